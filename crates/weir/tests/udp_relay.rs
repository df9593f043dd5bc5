//! The example `udp_relay`, end to end: clients on this side, an upstream server of its own on the other, every design
//! between them.

#[path = "suite/receive.rs"]
mod receive;
#[allow(dead_code, reason = "its main is not called")]
#[path = "../examples/udp_relay.rs"]
mod udp_relay;

use receive::receive;
use std::{
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    thread,
    time::{Duration, Instant},
};
use weir::udp::designs;

/// Time limits only catch hangs.
const PATIENCE: Duration = Duration::from_secs(60);

fn socket(at: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind(at).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Answers each datagram with the port that it came from, and its bytes backwards, until one is empty.
fn serve(upstream: &UdpSocket) -> Vec<SocketAddr> {
    let (mut buffer, mut seen) = ([0; 2048], Vec::new());
    loop {
        let (bytes, from) = upstream.recv_from(&mut buffer).expect("a datagram, or the end");
        if bytes == 0 {
            return seen;
        }
        if !seen.contains(&from) {
            seen.push(from);
        }
        buffer[..bytes].reverse();
        let answer = [&from.port().to_be_bytes(), &buffer[..bytes]].concat();
        upstream.send_to(&answer, from).unwrap();
    }
}

/// Some clients that ask in turn, each of whom must get the answers to his own questions and no others.
fn relays(design: &str, loopback: SocketAddr) {
    const CLIENTS: usize = 4;
    let upstream = socket(loopback);
    let upstream_at = upstream.local_addr().unwrap();
    let (relay, table) = udp_relay::start(loopback, upstream_at, design, CLIENTS)
        .unwrap_or_else(|e| panic!("{design}: {e}"));
    let addresses = relay.local_addresses().to_vec();
    let at = addresses[0];
    let serving = thread::spawn(move || serve(&upstream));
    let clients: Vec<_> = (0..CLIENTS).map(|_| socket(loopback)).collect();
    let mut buffer = [0; 2048];
    let mut ports = [None; CLIENTS];
    for round in 0..10_usize {
        for (number, client) in clients.iter().enumerate() {
            let question: Vec<_> = (0..=(round * 150)).map(|i| (i * 7 + number) as u8).collect();
            client.send_to(&question, at).unwrap();
            let (bytes, from) = receive(client, &mut buffer).expect("an answer");
            assert_eq!(from, at, "{design}");
            let (port, answer) = buffer[..bytes].split_first_chunk().expect("a port");
            let expected: Vec<_> = question.into_iter().rev().collect();
            assert_eq!(answer, expected, "{design}");
            // The same each time.
            let port = u16::from_be_bytes(*port);
            assert_eq!(*ports[number].get_or_insert(port), port, "{design}");
        }
    }
    // A stranger may not send through a client's port, and one client more has none.
    socket(loopback).send_to(b"from a stranger", addresses[1]).unwrap();
    let one_more = socket(loopback);
    one_more.send_to(b"is there room?", at).unwrap();
    let until = Instant::now() + PATIENCE;
    while table.lock().unwrap().not_served == 0 {
        assert!(Instant::now() < until, "{design}: a client too many is counted");
        thread::yield_now();
    }
    socket(loopback).send_to(&[], upstream_at).unwrap();
    let seen = serving.join().unwrap();
    assert_eq!(seen.len(), CLIENTS, "{design}: a port each");
    assert!(seen.iter().all(|from| addresses[1..].contains(from)), "{design}");
    let report = relay.stop();
    assert!(report.failure.is_none(), "{design}: {:?}", report.failure);
    let total = report.total();
    assert_eq!((total.replies_refused, total.send_errors), (0, 0), "{design}");
    assert_eq!(report.slices.missing, 0, "{design}");
    for client in clients.iter().chain([&one_more]) {
        client.set_nonblocking(true).unwrap();
        assert!(client.recv_from(&mut buffer).is_err(), "{design}: an answer too many");
    }
}

#[test]
fn each_client_gets_the_answers_to_his_own_questions_whatever_the_design() {
    for design in designs() {
        if let Err(why) = design.availability() {
            println!("skipped {}: {why}", design.about().name);
            continue;
        }
        let has = |name: &str| design.known_options().iter().any(|option| option.name == name);
        let options = if has("outstanding") { " --outstanding 256" } else { "" };
        let text = format!("{}{options}", design.about().name);
        relays(&text, (Ipv4Addr::LOCALHOST, 0).into());
    }
    relays("blocking-batch", (Ipv6Addr::LOCALHOST, 0).into());
}
