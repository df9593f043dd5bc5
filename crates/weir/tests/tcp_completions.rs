//! What sets the designs of TCP on completions apart from each other. What they have in common is checked by the
//! conformance tests.

#[path = "../src/required.rs"]
mod required;
#[path = "suite/tcp.rs"]
mod tcp;
#[path = "suite/tcp_designs.rs"]
mod tcp_designs;
#[path = "../src/wine.rs"]
mod wine;

use socket2::{Domain, Socket, Type};
use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::TcpStream,
    thread,
    time::Instant,
};
use tcp::{PATIENCE, connect, echo, exchange, exchange_at_once, stop};
use tcp_designs::{can_run, end, exchange_much, start};
use weir::{
    stream::StreamOptions,
    tcp::{AnyDesign, Limits, Output, Server},
};

#[test]
fn overlapped_events_starts_a_thread_for_each_full_group() {
    if !can_run("overlapped-events") {
        return;
    }
    // Three places, of two events each, beside the waker's event.
    let running = start("overlapped-events --group 7 --sends 1");
    let address = running.local_addresses()[0];
    let mut clients: Vec<_> = (0..20).map(|_| connect(address)).collect();
    for _ in 0..3 {
        clients.iter_mut().for_each(|client| exchange(client, b"hello"));
    }
    assert_eq!(running.thread_ids().len(), 1 + 7);
    clients.into_iter().for_each(end);
    let report = stop(running);
    assert_eq!(report.most_threads, 8);
}

/// Sends beyond the limit wait for their turn, and each gets it.
#[test]
fn a_port_with_one_send_at_a_time_serves_all() {
    for design in ["port --sends 1 --threads 2", "port-ordered --sends 1 --threads 2 --take 8"] {
        if !can_run(design) {
            return;
        }
        let running = start(design);
        let address = running.local_addresses()[0];
        let mut clients: Vec<_> = (0..100).map(|_| connect(address)).collect();
        for round in 0..10 {
            exchange_at_once(&mut clients, &[round; 2000]);
        }
        clients.into_iter().for_each(end);
        let total = stop(running).total();
        assert_eq!((total.closed_finished, total.bytes_sent), (100, 100 * 10 * 2000), "{design}");
    }
}

/// Many times as many connections as accepts, several at a time, each with bytes of its own. Where no socket can be
/// used again, the reason is said.
#[test]
fn a_port_that_uses_its_sockets_again_serves_all() {
    for design in ["port", "port --idle zero-byte", "port-ordered --receives 1"] {
        if !can_run(design) {
            return;
        }
        let design =
            format!("{design} --threads 2 --accepts 2 --accepts-most 4 --reuse-sockets true");
        if let Err(reason) = AnyDesign::parse(&design).unwrap().availability() {
            assert!(reason.to_string().contains("reuse-sockets"), "{reason}");
            return;
        }
        if wine::USED_SOCKETS.is_left_out() {
            return;
        }
        let running = start(&design);
        let address = running.local_addresses()[0];
        for round in 0..20 {
            let mut clients: Vec<_> = (0..6).map(|_| connect(address)).collect();
            for (number, client) in clients.iter_mut().enumerate() {
                exchange(client, &[round * 6 + number as u8; 3000]);
            }
            clients.into_iter().for_each(end);
        }
        let total = stop(running).total();
        assert_eq!((total.closed_finished, total.bytes_sent), (120, 120 * 3000), "{design}");
    }
}

/// Whichever thread starts an operation takes it, where it is done at once, and what each thread takes is one or more.
/// Only a port of Windows has this; elsewhere the option is refused, which the tests of that port see.
#[cfg(windows)]
#[test]
fn a_port_serves_all_where_what_is_ready_has_no_packet() {
    for design in [
        "port --skip-ready true --threads 1 --take 1",
        "port --skip-ready true --threads 2 --take 1",
        "port-ordered --skip-ready true --threads 2 --take 8",
    ] {
        if !can_run(design) {
            return;
        }
        let running = start(design);
        let address = running.local_addresses()[0];
        let mut clients: Vec<_> = (0..50).map(|_| connect(address)).collect();
        for round in 0..10 {
            exchange_at_once(&mut clients, &[round; 2000]);
        }
        clients.into_iter().for_each(end);
        let total = stop(running).total();
        assert_eq!((total.closed_finished, total.bytes_sent), (50, 50 * 10 * 2000), "{design}");
    }
}

/// Beside the pool of sends, as many may be outstanding as were asked for; beyond, who is stuck for longest goes.
#[test]
fn a_port_gives_up_who_is_stuck_for_longest() {
    const STUCK: u64 = 6;
    for design in ["port --sends 1 --stuck 2 --threads 2", "port-ordered --sends 1 --stuck 2"] {
        if !can_run(design) {
            return;
        }
        let limits = Limits::default().stalled(None);
        let options = StreamOptions::default().send_buffer_bytes(Some(4096));
        let answer = |bytes: &mut [u8], output: &mut Output<'_>| match bytes {
            [b'L'] => output.send(&[0; 256 * 1024]).unwrap(),
            _ => output.echo().unwrap(),
        };
        let running = Server::bind("127.0.0.1:0".parse().unwrap())
            .limits(limits)
            .stream_options(options)
            .start(AnyDesign::parse(design).unwrap(), move |_| answer)
            .unwrap();
        let address = running.local_addresses()[0];
        let stuck = |_| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            socket.set_recv_buffer_size(4096).unwrap();
            socket.connect(&address.into()).unwrap();
            let mut client = TcpStream::from(socket);
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            client.write_all(b"L").unwrap();
            while let Err(e) = client.peek(&mut [0]) {
                assert_eq!(e.kind(), ErrorKind::Interrupted, "the beginning of a long answer: {e}");
            }
            client
        };
        let stuck: Vec<_> = (0..STUCK).map(stuck).collect();
        let mut other = connect(address);
        for round in 0..10 {
            exchange(&mut other, &[round; 100]);
        }
        // The pool is whose turn it is, two are beside it, and the others made room, the first first: they count as closed a
        // little later. At the end they are as many.
        let by = Instant::now() + PATIENCE;
        while running.counters().closed_stalled < STUCK - 2 {
            assert!(Instant::now() < by, "{design}: {:?}", running.counters());
            thread::yield_now();
        }
        let mut bytes = vec![0; 1 << 20];
        for mut client in stuck.into_iter().take(STUCK as usize - 2) {
            while client.read(&mut bytes).is_ok_and(|count| count > 0) {}
        }
        end(other);
        assert_eq!(stop(running).total().closed_stalled, STUCK - 2, "{design}");
    }
}

/// Many threads and receives for one connection, and small buffers: the bytes come back in order.
#[test]
fn port_ordered_restores_the_order() {
    const DESIGN: &str = "port-ordered --threads 4 --concurrency 4 --receives 8";
    if !can_run(DESIGN) {
        return;
    }
    let running = Server::bind("127.0.0.1:0".parse().unwrap())
        .buffer_bytes(100)
        .start(AnyDesign::parse(DESIGN).unwrap(), |_| echo)
        .unwrap();
    let bytes = (0..1_000_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    exchange_much(connect(running.local_addresses()[0]), bytes);
    assert_eq!(stop(running).total().closed_finished, 1);
}
