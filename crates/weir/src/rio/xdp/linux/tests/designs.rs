//! Every design of registered I/O on this provider, unchanged: the suite of `tests/conformance`
//! runs on loopback, which has no frames.

use super::*;
use crate::{
    limits::Limits,
    socket::tests::free_again,
    udp::{
        AnyDesign, Contract, Datagram, Final, Handler, Outbox, Replies, Running, Server, Transmit,
        designs,
    },
};
use std::sync::{Arc, RwLock, mpsc};

/// Datagrams that a client sends before it waits for their echoes.
const WINDOW: usize = 16;

/// Sends datagrams of every kind of length and expects each back, whole and from where it went.
fn echo_all(clients: &[UdpSocket], to: SocketAddr, sizes: &[usize]) {
    for (round, chunk) in sizes.chunks(WINDOW).enumerate() {
        let client = &clients[round % clients.len()];
        let mut expected: Vec<_> =
            chunk.iter().enumerate().map(|(i, &n)| payload(round * WINDOW + i, n)).collect();
        for bytes in &expected {
            client.send_to(bytes, to).unwrap();
        }
        let mut back = [0; 2000];
        while !expected.is_empty() {
            let (n, from) = client.recv_from(&mut back).unwrap();
            assert_eq!(from, to);
            let place = expected.iter().position(|bytes| bytes[..] == back[..n]);
            expected.swap_remove(place.expect("an echo of what was sent, once"));
        }
    }
}

/// Every design of registered I/O on this provider, with its name: with those of the options that it has, and on each of
/// these numbers of threads where it has several.
fn each_design(threads: &[&str], options: &[(&str, &str)]) -> Vec<(String, AnyDesign)> {
    let mut all = Vec::new();
    for design in designs().into_iter().filter(|design| design.about().contract == Contract::Rio) {
        let has = |name: &str| design.known_options().iter().any(|one| one.name == name);
        let name = design.about().name;
        let numbers: &[&str] = match name {
            "rio-sharded" => &["1"], // the device has one queue
            _ if has("threads") => threads,
            _ => &[],
        };
        let mut design = design.clone();
        design.set("provider", "xdp").unwrap();
        for (option, value) in options.iter().filter(|(option, _)| has(option)) {
            design.set(option, value).unwrap();
        }
        if numbers.is_empty() {
            all.push((name.to_string(), design.clone()));
        }
        for number in numbers {
            design.set("threads", number).unwrap();
            all.push((format!("{name} on {number} threads"), design.clone()));
        }
    }
    all
}

/// Stops a server, which must have ended in order and given every slice back.
fn stop<H: Handler>(running: Running<H>, name: &str) -> Final<H> {
    let at = running.local_addresses()[0];
    let report = running.stop();
    assert!(report.failure.is_none(), "{name}: {:?}", report.failure);
    let slices = report.slices;
    assert_eq!((slices.returned, slices.missing), (slices.made, 0), "{name}");
    drop(free_again(at));
    report
}

/// Passes on what comes to somebody who has never written.
struct PassesOn {
    to: SocketAddr,
}

impl Handler for PassesOn {
    fn on_start(&mut self, outbox: &mut Outbox<'_>) {
        outbox.send(Transmit::new(self.to, b"begins")).unwrap();
    }

    fn on_datagram(&mut self, datagram: Datagram<'_>, replies: &mut Replies<'_>) {
        replies.send(&datagram.bytes[..1]).unwrap();
        let contents = &*datagram.bytes;
        let whole = Transmit::new(self.to, contents);
        let cut = Transmit { segment_size: Some(100), ..whole };
        replies.outbox().send(cut).unwrap();
    }

    fn on_stop(&mut self, outbox: &mut Outbox<'_>) {
        outbox.send(Transmit::new(self.to, b"ends")).unwrap();
    }
}

#[test]
fn every_design_sends_to_who_has_not_written() {
    on_a_wire(|wire| {
        for (name, design) in each_design(&["1"], &[("outstanding", "64")]) {
            for at in [OURS_V4, OURS_V6] {
                let silent = wire.client(ours(at));
                let to = silent.local_addr().unwrap();
                let limits =
                    Limits { replies_outstanding: 16, transmits_outstanding: 32, ..Limits::SINK };
                let server = Server::bind(ours(at)).limits(limits).payload_bytes(1000);
                let running = server
                    .start(design.clone(), move |_| PassesOn { to })
                    .unwrap_or_else(|e| panic!("{name}: {e}"));
                let from = running.local_addresses()[0];
                let handlers = running.counters().len();
                let mut buffer = [0; 2000];
                let mut expect = |expected: &[u8]| {
                    let (bytes, source) = silent.recv_from(&mut buffer).unwrap();
                    assert_eq!((&buffer[..bytes], source), (expected, from), "{name}");
                };
                (0..handlers).for_each(|_| expect(b"begins"));
                let client = wire.client(from);
                for number in 0..10 {
                    let sent = payload(number, 250);
                    client.send_to(&sent, from).unwrap();
                    let mut answer = [0; 10];
                    assert_eq!(client.recv_from(&mut answer).unwrap(), (1, from), "{name}");
                    assert_eq!(answer[0], sent[0]);
                    sent.chunks(100).for_each(&mut expect);
                }
                running.outbox().send(Transmit::new(to, b"by another thread")).unwrap();
                expect(b"by another thread");
                let total = stop(running, &name).total();
                (0..handlers).for_each(|_| expect(b"ends"));
                assert_eq!((total.replies_refused, total.send_errors), (0, 0), "{name}");
            }
        }
    });
}

#[test]
fn every_design_echoes_every_byte_over_both_families_and_gives_every_slice_back() {
    on_a_wire(|wire| {
        let options = [("outstanding", "256"), ("threshold", "4")];
        for (name, design) in each_design(&["1", "4"], &options) {
            for at in [OURS_V4, OURS_V6] {
                let name = format!("{name} at {at}");
                let limits = Limits { replies_outstanding: 64, ..Limits::default() };
                let server = Server::bind(ours(at)).limits(limits).payload_bytes(1500);
                let echo = |thread: usize| {
                    let mut copy = thread == 0;
                    move |datagram: Datagram<'_>, replies: &mut Replies<'_>| {
                        // In place and as a copy in turn: the headers are made anew for both.
                        copy = !copy;
                        let sent = if copy { replies.send(datagram.bytes) } else { replies.echo() };
                        sent.expect("the limits allow it");
                    }
                };
                let running =
                    server.start(design.clone(), echo).unwrap_or_else(|e| panic!("{name}: {e}"));
                let to = running.local_addresses()[0];
                let clients = [wire.client(to), wire.client(to)];
                let sizes: Vec<_> = (0..256).map(|i| i * 41 % 1453).collect();
                echo_all(&clients, to, &sizes);
                let total = stop(running, &name).total();
                assert_eq!(total.datagrams, 256, "{name}");
                // The last ones may have been under way at the stop; every one came, though.
                assert_eq!((total.replies_refused, total.send_errors), (0, 0), "{name}");
                assert_eq!(total.discarded, 0, "{name}");
            }
        }
    });
}

#[test]
fn every_design_takes_a_burst_of_as_many_as_are_outstanding_while_it_is_held() {
    /// No more than the devices of the wire hold themselves where nobody has a core to pass frames on.
    const OUTSTANDING: usize = 200;
    on_a_wire(|wire| {
        let outstanding = OUTSTANDING.to_string();
        for (name, design) in each_design(&["1", "4"], &[("outstanding", &outstanding)]) {
            let gate = Arc::new(RwLock::new(()));
            let (handled, datagrams) = mpsc::channel();
            let held = Arc::clone(&gate);
            let make = move |_| {
                let (held, handled) = (Arc::clone(&held), handled.clone());
                move |datagram: Datagram<'_>, _: &mut Replies<'_>| {
                    drop(held.read());
                    handled.send(datagram.bytes.to_vec()).unwrap();
                }
            };
            let server = Server::bind(ours(OURS_V4)).payload_bytes(64);
            let running = server.start(design, make).unwrap_or_else(|e| panic!("{name}: {e}"));
            // Let go before the server, whose threads wait for it, where this panics.
            let hold = gate.write();
            let to = running.local_addresses()[0];
            let client = wire.client(to);
            let mut sent: Vec<_> = (0..OUTSTANDING).map(|i| payload(i, 8 + i % 57)).collect();
            for bytes in &sent {
                client.send_to(bytes, to).unwrap();
            }
            drop(hold);
            while !sent.is_empty() {
                let came = datagrams.recv_timeout(PATIENCE);
                let came = came.unwrap_or_else(|_| panic!("{name}: {} did not come", sent.len()));
                let place = sent.iter().position(|bytes| *bytes == came);
                sent.swap_remove(place.unwrap_or_else(|| panic!("{name}: {came:?} was not sent")));
            }
            let total = stop(running, &name).total();
            assert_eq!((total.no_buffer, total.overflows, total.discarded), (0, 0, 0), "{name}");
        }
    });
}
