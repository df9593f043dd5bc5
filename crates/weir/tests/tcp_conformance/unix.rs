//! Servers on Unix sockets: their files, their peers, and programs that are not ours. The rows of the suite that end in `unix`
//! make other checks with clients on such a socket.

use super::{
    client::{Client, fill},
    machine,
    programs::{run, run_python},
    support::*,
};
use std::{fs, io::ErrorKind, net::SocketAddr, path::PathBuf, sync::mpsc};
use weir::{
    Error,
    filter::{ConnectionLimit, Filter as _},
    stream::{LocalPeer, UnixAddress},
    tcp::Server,
};

pub const CHECKS: &[Check] = &[
    ("unix_alone", unix_alone),
    ("unix_that_is_taken", unix_that_is_taken),
    ("unix_that_goes_from_server_to_server", unix_that_goes_from_server_to_server),
    ("unix_of_one_user", unix_of_one_user),
    ("unix_python", unix_python),
    ("unix_socat", unix_socat),
];

fn connect(address: &UnixAddress, seed: u64) -> Client {
    let path = address.path().map_or_else(
        || PathBuf::from(format!("\0{}", address.to_string().trim_start_matches("unix:@"))),
        PathBuf::from,
    );
    let stream = machine::connect_unix(&path).unwrap_or_else(|e| panic!("{address}: {e}"));
    Client::on(stream, seed)
}

/// A path and an abstract name, and no address of the internet: whoever comes is told by user, group and process.
fn unix_alone(subject: &Subject) -> Result<(), Skipped> {
    let subject = &subject.plain();
    let path = any_path();
    let name = format!("@{}", path.file_name().expect("a name").display());
    let (tell, told) = mpsc::channel();
    let server = Server::bind_unix(&path).unix_mode(0o640).and_bind_unix(&*name).limits(limits());
    let (server, log) = subject.start(&server, move |peer: SocketAddr| {
        tell.send(peer).expect("the check waits");
        echo
    });
    assert_eq!(server.local_addresses(), []);
    assert_eq!(server.unix_addresses(), [UnixAddress::from(&path), UnixAddress::from(name)]);
    assert_eq!(machine::mode(&path).expect("a file"), 0o640);
    for (seed, address) in (0..).zip(server.unix_addresses()) {
        let mut client = connect(address, seed);
        client.exchange(100_000, &mut super::client::Random(seed));
        let peer = told.recv_timeout(PATIENCE).expect("a connection");
        assert_eq!(LocalPeer::of(peer), Some(machine::ourselves()));
        client.end_sending();
        client.expect_end();
    }
    let total = stop(server, &log);
    assert_eq!((total.accepted, total.closed_finished, total.bytes_sent), (2, 2, 200_000));
    assert!(!path.exists());
    Ok(())
}

fn assert_not_bound(subject: &Subject, path: &UnixAddress, kind: ErrorKind) {
    match subject.try_start(&Server::bind_unix(path.clone()), |_| echo) {
        Err(Error::BindUnix { address, source }) => {
            assert_eq!((&address, source.kind()), (path, kind), "{source}");
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it started at {path}"),
    }
}

/// By another server, which is not disturbed; and by what a program has left that is gone.
fn unix_that_is_taken(subject: &Subject) -> Result<(), Skipped> {
    let subject = &subject.plain();
    let address = UnixAddress::from(any_path());
    let path = address.path().expect("a path");
    let start = || subject.echo(&Server::bind_unix(address.clone()).limits(limits()));
    let (server, log) = start();
    assert_not_bound(subject, &address, ErrorKind::AddrInUse);
    connect(&address, 1).ping();
    // Another program takes its place, and keeps it.
    fs::remove_file(path).expect("its file");
    drop(machine::listen_unix(path).expect("a path that is free"));
    let _ = stop_within(server, &log, limits().stop + SLACK);
    assert!(path.exists(), "the file of another was removed");
    // Which has gone meanwhile.
    let (server, log) = start();
    connect(&address, 2).ping();
    stop(server, &log);
    fs::write(path, "of somebody").expect("a path that is free");
    assert_not_bound(subject, &address, ErrorKind::AlreadyExists);
    assert_eq!(fs::read(path).expect("it is left alone"), b"of somebody");
    fs::remove_file(path).expect("our file");
    Ok(())
}

/// A socket that listens already, which one server takes after the other.
fn unix_that_goes_from_server_to_server(subject: &Subject) -> Result<(), Skipped> {
    let subject = &subject.plain();
    let path = any_path();
    let address = UnixAddress::from(&path);
    let listener = machine::listen_unix(&path).expect("a path that is free");
    let kept = || {
        let listener = listener.try_clone().expect("one more descriptor");
        let server = Server::from_unix(listener).expect("it listens");
        server.limits(limits()).keep_listening(true)
    };
    let (first, its_log) = subject.echo(&kept());
    assert_eq!(first.unix_addresses(), std::slice::from_ref(&address));
    let mut of_first = connect(&address, 1);
    of_first.ping();
    let (second, log) = subject.echo(&kept());
    first.end_accepting().expect("its socket is kept");
    let mut of_either: Vec<_> = (2..12).map(|seed| connect(&address, seed)).collect();
    of_either.iter_mut().for_each(Client::ping);
    of_first.ping();
    drop((of_first, of_either));
    until("the first server has no connection left", || first.open() == 0);
    let _ = stop_within(first, &its_log, limits().stop + SLACK);
    connect(&address, 20).ping();
    let _ = stop_within(second, &log, limits().stop + SLACK);
    assert!(path.exists(), "whoever made the file removes it");
    fs::remove_file(&path).expect("our file");
    Ok(())
}

/// Peers of one user count as one address.
fn unix_of_one_user(subject: &Subject) -> Result<(), Skipped> {
    let limit = ConnectionLimit::new(u32::MAX, 2);
    let (server, log) = subject.start(&server(), limit.clone().handlers(|_| echo));
    let to = server.local_addresses()[0];
    let mut within = super::client::clients(2, to);
    within.iter_mut().for_each(Client::ping);
    let beyond = Client::connect(to, 9);
    let mut said = String::new();
    std::io::Read::read_to_string(&mut &beyond.stream, &mut said).expect("a refusal");
    assert!(said.contains("2 connections from your user"), "{said}");
    drop((beyond, within));
    assert_eq!(stop(server, &log).closed_by_filter, 1);
    assert_eq!((limit.addresses(), limit.refused()), (0, 1));
    Ok(())
}

const PYTHON: &str = r#"
import socket, sys

clients = [socket.socket(socket.AF_UNIX) for _ in range(8)]
for client in clients:
    client.settimeout(60)
    client.connect(sys.argv[1])
for number, client in enumerate(clients):
    client.sendall(bytes([number]) * 1000)
    client.shutdown(socket.SHUT_WR)
for number, client in enumerate(clients):
    back = b""
    while piece := client.recv(65536):
        back += piece
    assert back == bytes([number]) * 1000
print("8 echoes")
"#;

fn unix_python(subject: &Subject) -> Result<(), Skipped> {
    let (server, log) = subject.echo(&server());
    let path = unix_beside(server.local_addresses()[0]).expect("a row of Unix sockets");
    let said = run_python(PYTHON, &[path.to_str().expect("a name in ASCII")])?;
    assert_eq!(said.trim_ascii_end(), b"8 echoes");
    assert_eq!(stop(server, &log).closed_finished, 8);
    Ok(())
}

fn unix_socat(subject: &Subject) -> Result<(), Skipped> {
    let (server, log) = subject.echo(&server());
    let path = unix_beside(server.local_addresses()[0]).expect("a row of Unix sockets");
    let mut bytes = vec![0; 1 << 20];
    fill(1, 0, &mut bytes);
    let to = format!("UNIX-CONNECT:{}", path.display());
    let back = run("socat", &["-t60", "-", &to], &bytes)?;
    assert!(back == bytes, "{} of {} bytes came back, or others", back.len(), bytes.len());
    assert_eq!(stop(server, &log).closed_finished, 1);
    Ok(())
}
