//! The same questions to Knot DNS and NSD, with the same zone: what weir-dns answers is what they answer, record by record.

#![cfg(target_os = "linux")]

mod common;

use common::{
    PATIENCE, ask,
    messages::{Record, names, question, records},
    testing::{Folder, required::cannot_run},
    zone_file,
};
use domain::base::Message;
use std::{
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream, UdpSocket},
    path::Path,
    process::{Child, Command, Stdio},
};
use weir_dns::{
    answers::{Answers, Transport},
    name::Name,
    types,
    zone::Zone,
};

/// What an answer says.
#[derive(Debug, PartialEq)]
struct Said {
    rcode: u16,
    authoritative: bool,
    truncated: bool,
    answer: Vec<Record>,
    authority: Vec<Record>,
    /// The addresses of a referral. What else is of help is each server's own choice.
    glue: Vec<Record>,
}

fn said(message: &[u8]) -> Said {
    let message = Message::from_slice(message).unwrap();
    let header = message.header();
    let [answer, mut authority] =
        [message.answer(), message.authority()].map(|of| records(of.unwrap()));
    let is_referral = authority.iter().any(|record| record.1 == types::NS) && answer.is_empty();
    let mut glue = if is_referral { records(message.additional().unwrap()) } else { vec![] };
    let mut answer = answer;
    if header.tc() {
        // How much of it is sent all the same is each server's own choice.
        (answer, authority, glue) = (vec![], vec![], vec![]);
    } else if !answer.is_empty() && header.aa() {
        // Who has the zone may be told with what is asked for, and is by some.
        let of_apex = |record: &Record| record.1 == types::NS && record.0.labels() == 2;
        authority.retain(|record| !of_apex(record));
    }
    Said {
        rcode: message.opt_rcode().to_int(),
        authoritative: header.aa(),
        truncated: header.tc(),
        answer,
        authority,
        glue,
    }
}

/// A server that others have made, on an address of its own.
struct Reference {
    child: Child,
    address: SocketAddr,
    _folder: Folder,
}

impl Drop for Reference {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An address that no other process listens on: made of this one's number.
fn own_address(port: u16) -> SocketAddr {
    let [.., high, low] = std::process::id().to_be_bytes();
    SocketAddr::from(([127, 77, high, low], port))
}

impl Reference {
    fn start(
        name: &str,
        port: u16,
        command: impl FnOnce(&Path, SocketAddr) -> Command,
    ) -> Option<Self> {
        let (folder, address) = (Folder::new(name), own_address(port));
        let mut command = command(&folder.0, address);
        let child =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let child = match child {
            Ok(child) => child,
            Err(e) => {
                cannot_run(name, Err::<(), _>(format!("{name} cannot be started: {e}")));
                return None;
            }
        };
        let reference = Self { child, address, _folder: folder };
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        let apex = Name::parse("example.com").unwrap();
        let answer = ask(&client, address, &question(1, &apex, types::SOA, None));
        assert!(answer.is_some(), "{name} does not answer");
        Some(reference)
    }

    fn by_udp(&self, query: &[u8]) -> Vec<u8> {
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        ask(&client, self.address, query).expect("it answers")
    }

    fn by_tcp(&self, query: &[u8]) -> Vec<u8> {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let length = (query.len() as u16).to_be_bytes();
        stream.write_all(&[&length, query].concat()).unwrap();
        let mut length = [0; 2];
        stream.read_exact(&mut length).unwrap();
        let mut answer = vec![0; u16::from_be_bytes(length).into()];
        stream.read_exact(&mut answer).unwrap();
        answer
    }
}

fn knot(folder: &Path, address: SocketAddr) -> Command {
    let at = folder.display();
    let (ip, port) = (address.ip(), address.port());
    let zone = zone_file();
    let config = format!(
        "server:\n    rundir: \"{at}\"\n    listen: {ip}@{port}\n    udp-workers: 1\n    tcp-workers: 1\n    \
         background-workers: 1\ndatabase:\n    storage: \"{at}\"\nlog:\n  - target: stderr\n    any: warning\n\
         zone:\n  - domain: example.com\n    file: \"{zone}\"\n    zonefile-load: whole\n    journal-content: none\n    \
         zonefile-sync: -1\n",
        zone = zone.display()
    );
    let path = folder.join("knot.conf");
    fs::write(&path, config).unwrap();
    let mut command = Command::new("knotd");
    command.arg("--config").arg(path);
    command
}

fn nsd(folder: &Path, address: SocketAddr) -> Command {
    let at = folder.display();
    let (ip, port) = (address.ip(), address.port());
    let config = format!(
        "server:\n  ip-address: {ip}\n  port: {port}\n  username: \"\"\n  chroot: \"\"\n  zonesdir: \"{at}\"\n  \
         database: \"\"\n  pidfile: \"{at}/nsd.pid\"\n  xfrdfile: \"{at}/xfrd\"\n  zonelistfile: \"{at}/zones\"\n  \
         xfrdir: \"{at}\"\n  server-count: 1\n  minimal-responses: yes\n  rrl-ratelimit: 0\n\
         remote-control:\n  control-enable: no\nzone:\n  name: example.com\n  zonefile: \"{zone}\"\n",
        zone = zone_file().display()
    );
    let path = folder.join("nsd.conf");
    fs::write(&path, config).unwrap();
    let mut command = Command::new("nsd");
    command.arg("-d").arg("-c").arg(path);
    command
}

/// Whether it is in a circle of other names, where each server has its own way to give up; or the root, of which each has its
/// own opinion.
fn is_left_out(name: &Name) -> bool {
    let in_circle = ["round", "about", "self"].map(|first| name.to_string().starts_with(first));
    in_circle.contains(&true) || name.labels() == 0
}

const TYPES: [u16; 12] = [1, 2, 5, 6, 12, 15, 16, 28, 33, 43, 257, 65_280];

fn compare(reference: &Reference) {
    let text = fs::read(zone_file()).unwrap();
    let zone = Zone::parse(&text, &zone_file(), None).unwrap();
    let answers = Answers::new(vec![zone.clone()]).unwrap();
    let mut compared = 0;
    for name in names(&zone).into_iter().filter(|name| !is_left_out(name)) {
        for of in TYPES {
            for edns in [None, Some(512), Some(1232), Some(4096)] {
                let query = question(0x1234, &name, of, edns);
                let mut ours = Vec::new();
                answers.answer(&query, Transport::Udp(1232), &mut ours);
                let theirs = reference.by_udp(&query);
                assert_eq!(said(&ours), said(&theirs), "{name} {of} {edns:?}");
                compared += 1;
                if edns == Some(1232) && said(&ours).truncated {
                    let mut ours = Vec::new();
                    answers.answer(&query, Transport::Tcp, &mut ours);
                    assert_eq!(said(&ours), said(&reference.by_tcp(&query)), "{name} {of} by TCP");
                }
            }
        }
    }
    assert!(compared > 2000, "{compared} answers");
}

#[test]
fn answers_are_those_of_knot_dns() {
    if let Some(knot) = Reference::start("knotd", 53_000, knot) {
        compare(&knot);
    }
}

#[test]
fn answers_are_those_of_nsd() {
    if let Some(nsd) = Reference::start("nsd", 53_001, nsd) {
        compare(&nsd);
    }
}
