//! `rio-sharded` where the core that receives a datagram decides who gets it, and what becomes of its sockets.

#[path = "suite/receive.rs"]
mod receive;
#[path = "../src/required.rs"]
mod required;

use receive::receive;
use required::cannot_run;
use std::{
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    sync::mpsc,
    thread,
    time::Duration,
};
use weir::{
    affinity::{allowed_cores, current_core, pin_current_thread},
    limits::Limits,
    socket::{bind_sharing, sockets_can_be_given},
    udp::{AnyDesign, Datagram, Replies, RioSharded, Server},
};

/// What the tests give to a server, as one type: each is all designs on all providers, compiled.
type Handle = Box<dyn FnMut(Datagram<'_>, &mut Replies<'_>) + Send>;

/// Far more than anything here takes.
const LONG: Duration = Duration::from_secs(60);

/// Datagrams sent from each core.
const EACH: usize = 50;

/// The design with so many threads, to which the receiving cores lead.
fn steered(threads: u32) -> AnyDesign {
    let outstanding = 256 * threads;
    let mut design =
        AnyDesign::from(RioSharded::default().threads(threads).outstanding(outstanding));
    design.set("steering", "core").expect("a name of the option");
    design
}

/// Whether the numbers of these cores, modulo how many they are, differ.
fn lead_to_every_thread(cores: &[usize]) -> bool {
    (0..cores.len()).all(|thread| cores.iter().any(|core| core % cores.len() == thread))
}

#[test]
fn a_datagram_is_handled_on_the_core_that_received_it() {
    let cores = allowed_cores();
    if cores.len() < 2 || !lead_to_every_thread(&cores) {
        return eprintln!("not run: cores {cores:?} may be used; it takes 2, next to each other");
    }
    let threads = cores.len() as u32;
    let design = steered(threads);
    if cannot_run(design.about().name, design.availability()) {
        return;
    }
    let (told, seen) = mpsc::channel();
    let make = move |thread: usize| -> Handle {
        let told = told.clone();
        Box::new(move |datagram, _| {
            let from = usize::from(datagram.bytes[0]);
            let _ = told.send((from, current_core(), thread));
        })
    };
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let server = Server::bind(any).start(design, make).unwrap();
    let to = server.local_addresses()[0];
    for (index, core) in cores.iter().copied().enumerate() {
        // On loopback the core that sends receives as well.
        let send = move || {
            pin_current_thread(core).unwrap();
            for _ in 0..EACH {
                // Many flows, so that a hash would spread them.
                let socket = UdpSocket::bind(any).unwrap();
                socket.send_to(&[index as u8], to).unwrap();
            }
        };
        thread::spawn(send).join().unwrap();
        for _ in 0..EACH {
            let (from, on, thread) = seen.recv_timeout(LONG).expect("a datagram");
            assert_eq!((from, on), (index, Some(core)), "handled by thread {thread}");
            assert_eq!(thread, core % cores.len());
        }
    }
    let report = server.stop();
    assert!(report.failure.is_none() && report.total().datagrams == (EACH * cores.len()) as u64);
}

#[test]
fn threads_that_no_core_leads_to_are_refused() {
    let threads = allowed_cores().len() as u32 + 1;
    let design = steered(threads);
    if cannot_run(design.about().name, design.availability()) {
        return;
    }
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let sink = |_| -> Handle { Box::new(|_, _| ()) };
    let Err(error) = Server::bind(any).start(design, sink).map(drop) else {
        panic!("a thread waits for what never comes");
    };
    assert!(error.to_string().contains("steering"), "{error}");
}

#[test]
fn a_design_whose_threads_share_takes_over_all_sockets_of_a_sharded_one() {
    if let Err(why) = sockets_can_be_given() {
        return eprintln!("not run: {why}");
    }
    let design = AnyDesign::from(RioSharded::default().threads(2).outstanding(512));
    if cannot_run(design.about().name, design.availability()) {
        return;
    }
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let sockets = bind_sharing(any, design.sockets_per_address()).unwrap();
    let to = sockets[0].local_addr().unwrap();
    let start = |design: AnyDesign| {
        let mut given = sockets.iter().map(|socket| socket.try_clone().unwrap());
        let server = Server::from_std(given.next().unwrap()).unwrap();
        let server = given.fold(server, |server, socket| server.and_from_std(socket).unwrap());
        let echo = |_| -> Handle { Box::new(|_, replies| replies.echo().unwrap()) };
        server.limits(Limits::echo(100_000)).start(design, echo).unwrap()
    };
    let first = start(design);
    assert_eq!(first.local_addresses(), [to]);
    let second = start(AnyDesign::parse("epoll --threads 1").unwrap());
    assert_eq!(second.local_addresses(), [to, to]);
    assert!(first.stop().failure.is_none());
    // So many that a hash gives each socket some.
    for number in 0..32 {
        let client = UdpSocket::bind(any).unwrap();
        client.set_read_timeout(Some(LONG)).unwrap();
        client.send_to(&[number; 9], to).unwrap();
        let mut answer = [0; 16];
        assert_eq!(receive(&client, &mut answer).unwrap(), (9, to));
        assert_eq!(answer[..9], [number; 9]);
    }
    let report = second.stop();
    assert!(report.failure.is_none() && report.total().datagrams == 32);
}
