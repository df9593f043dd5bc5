//! Datagrams that are no replies: to anybody, at any time, from the server's own address and port.

use super::support::*;
use std::{
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    sync::{Arc, mpsc},
    thread,
};
use weir::{
    Error,
    limits::Limits,
    socket::{SocketOptions, datagrams_can_be_marked},
    udp::{Datagram, Ecn, Handler, NotTaken, Outbox, Replies, Server, Transmit},
};

pub const CHECKS: &[Check] = &[
    ("sent_to_anybody", sent_to_anybody),
    ("sent_by_a_socket_of_ones_choice", sent_by_a_socket_of_ones_choice),
    ("sent_at_the_end_of_a_batch", sent_at_the_end_of_a_batch),
    ("sent_in_segments", sent_in_segments),
    ("replies_and_others_side_by_side", replies_and_others_side_by_side),
    ("an_outbox_has_a_bound", an_outbox_has_a_bound),
    (
        "a_server_that_only_answers_sends_nothing_else",
        a_server_that_only_answers_sends_nothing_else,
    ),
    ("sent_from_an_address_of_ones_choice", sent_from_an_address_of_ones_choice),
    ("sent_by_other_threads", sent_by_other_threads),
    ("nothing_is_sent_after_the_end", nothing_is_sent_after_the_end),
];

/// Sends of the handlers' own, and replies.
fn limits() -> Limits {
    echo_limits().transmits_outstanding(128)
}

/// Sockets that stand for others than who wrote.
fn peers(count: usize, to: SocketAddr) -> (Vec<UdpSocket>, Vec<SocketAddr>) {
    let sockets = senders(count, to);
    let addresses = sockets.iter().map(|socket| socket.local_addr().unwrap()).collect();
    (sockets, addresses)
}

/// Expects these datagrams from there, in any order: several threads of the kernel may send.
fn expect_all(socket: &UdpSocket, from: SocketAddr, mut expected: Vec<Vec<u8>>) {
    let mut buffer = [0; 2048];
    while !expected.is_empty() {
        let (len, source) = receive(socket, &mut buffer).expect("a datagram");
        assert_eq!(source, from);
        let place = expected.iter().position(|bytes| bytes[..] == buffer[..len]);
        expected.swap_remove(place.unwrap_or_else(|| panic!("{:?} came", &buffer[..len])));
    }
}

fn sent_to_anybody(subject: &Subject) -> Result<(), Skipped> {
    let six = SocketAddr::from((Ipv6Addr::LOCALHOST, 0));
    let (peers_v4, v4) = peers(2, any_port());
    let (peers_v6, v6) = peers(2, six);
    let all = [v4, v6].concat();
    let handler = move |_| {
        let all = all.clone();
        move |datagram: Datagram<'_>, replies: &mut Replies<'_>| {
            for to in &all {
                replies.outbox().send(Transmit::new(*to, datagram.bytes)).unwrap();
            }
        }
    };
    let server = Server::bind(any_port()).and_bind(six).limits(limits());
    let server = subject.start(&server, handler).unwrap();
    let addresses = server.local_addresses().to_vec();
    for round in 0..20 {
        // Whichever socket it comes by, each leaves by one of its family.
        let to = addresses[round % 2];
        let bytes = pattern(round, (round * 53) % 1000);
        senders(1, to)[0].send_to(&bytes, to).unwrap();
        for (sockets, from) in [(&peers_v4, addresses[0]), (&peers_v6, addresses[1])] {
            sockets.iter().for_each(|socket| expect_all(socket, from, vec![bytes.clone()]));
        }
    }
    let report = server.stop();
    assert_whole(&report);
    let total = report.total();
    assert_eq!((total.datagrams, total.replies_refused, total.send_errors), (20, 0, 0));
    assert!(total.replies <= 80);
    Ok(())
}

/// Where the next two datagrams are from, which have these bytes, the lower address first.
fn sources_of_two(peer: &UdpSocket, bytes: &[u8]) -> [SocketAddr; 2] {
    let mut buffer = [0; 64];
    let mut from = [(); 2].map(|()| {
        let (len, from) = receive(peer, &mut buffer).expect("a datagram");
        assert_eq!(buffer[..len], *bytes);
        from
    });
    from.sort();
    from
}

fn sent_by_a_socket_of_ones_choice(subject: &Subject) -> Result<(), Skipped> {
    let (peers, to) = peers(1, any_port());
    let to = to[0];
    let handler = move |_| {
        move |datagram: Datagram<'_>, replies: &mut Replies<'_>| {
            let mut outbox = replies.outbox();
            // By the others, and not by the one that it came in on.
            for socket in (0..3).filter(|socket| *socket != datagram.socket) {
                outbox.send_by(socket, Transmit::new(to, datagram.bytes)).unwrap();
            }
            let nowhere = outbox.send_by(3, Transmit::new(to, b"by no socket"));
            assert!(matches!(nowhere, Err(NotTaken::NoSocket(address)) if address == to));
        }
    };
    let server = Server::bind(any_port()).and_bind(any_port()).and_bind(any_port());
    let server = subject.start(&server.limits(limits()), handler).unwrap();
    let addresses = server.local_addresses().to_vec();
    let sender = &senders(1, addresses[0])[0];
    for round in 0..12 {
        let came_by = addresses[round % 3];
        let bytes = pattern(round, 20);
        sender.send_to(&bytes, came_by).unwrap();
        let from = sources_of_two(&peers[0], &bytes);
        let mut others: Vec<_> = addresses.iter().copied().filter(|at| *at != came_by).collect();
        others.sort();
        assert_eq!(others, from);
    }
    let report = server.stop();
    assert_whole(&report);
    assert_eq!(report.total().replies_refused, 12, "by no socket");
    Ok(())
}

/// Collects what comes, and passes it on at the end of each batch.
struct Collects {
    to: SocketAddr,
    collected: Vec<Vec<u8>>,
}

impl Handler for Collects {
    fn on_datagram(&mut self, datagram: Datagram<'_>, _: &mut Replies<'_>) {
        self.collected.push(datagram.bytes.to_vec());
    }

    fn on_batch_end(&mut self, outbox: &mut Outbox<'_>) {
        for bytes in self.collected.drain(..) {
            outbox.send(Transmit::new(self.to, &bytes)).unwrap();
        }
    }
}

fn sent_at_the_end_of_a_batch(subject: &Subject) -> Result<(), Skipped> {
    let (peers, to) = peers(1, any_port());
    let to = to[0];
    let server = Server::bind(any_port()).limits(limits());
    let server = subject.start(&server, move |_| Collects { to, collected: Vec::new() }).unwrap();
    let at = server.local_addresses()[0];
    let sender = &senders(1, at)[0];
    for round in 0..5 {
        let sent: Vec<_> = (0..WINDOW).map(|i| pattern(round * WINDOW + i, 30 + i)).collect();
        for bytes in &sent {
            sender.send_to(bytes, at).unwrap();
        }
        expect_all(&peers[0], at, sent);
    }
    let report = server.stop();
    assert_whole(&report);
    let total = report.total();
    assert_eq!((total.replies_refused, total.send_errors), (0, 0));
    Ok(())
}

/// Contents that are cut into datagrams, also into more than a slice or a call holds.
fn sent_in_segments(subject: &Subject) -> Result<(), Skipped> {
    const CASES: [(usize, usize); 6] =
        [(1000, 100), (1001, 100), (99, 100), (900, 7), (3000, 1000), (0, 5)];
    let (peers, to) = peers(1, any_port());
    let to = to[0];
    let handler = move |_| {
        move |datagram: Datagram<'_>, replies: &mut Replies<'_>| {
            let (bytes, segment) = CASES[usize::from(datagram.bytes[0])];
            let contents = pattern(7, bytes);
            let transmit = Transmit::new(to, &contents).segment_size(Some(segment));
            replies.outbox().send(transmit).unwrap();
        }
    };
    let server = subject.start(&Server::bind(any_port()).limits(limits()), handler).unwrap();
    let at = server.local_addresses()[0];
    let sender = &senders(1, at)[0];
    let mut datagrams = 0;
    for (case, (bytes, segment)) in CASES.into_iter().enumerate() {
        sender.send_to(&[case as u8], at).unwrap();
        let contents = pattern(7, bytes);
        let expected: Vec<_> = match bytes {
            0 => vec![Vec::new()],
            _ => contents.chunks(segment).map(<[u8]>::to_vec).collect(),
        };
        datagrams += expected.len() as u64;
        expect_all(&peers[0], at, expected);
    }
    let report = server.stop();
    assert_whole(&report);
    let total = report.total();
    assert_eq!((total.replies_refused, total.send_errors), (0, 0));
    assert!(total.replies <= datagrams, "{} of {datagrams}", total.replies);
    Ok(())
}

fn replies_and_others_side_by_side(subject: &Subject) -> Result<(), Skipped> {
    let (peers, to) = peers(1, any_port());
    let to = to[0];
    let handler = move |_| {
        move |datagram: Datagram<'_>, replies: &mut Replies<'_>| {
            replies.outbox().send(Transmit::new(to, b"one came")).unwrap();
            replies.send(&datagram.bytes[..4]).unwrap();
            replies.outbox().send(Transmit::new(to, datagram.bytes)).unwrap();
            datagram.bytes[4..].reverse();
        }
    };
    let server = subject.start(&Server::bind(any_port()).limits(limits()), handler).unwrap();
    let at = server.local_addresses()[0];
    let sender = &senders(1, at)[0];
    for round in 0..20 {
        let bytes = pattern(round, 40);
        sender.send_to(&bytes, at).unwrap();
        expect_all(sender, at, vec![bytes[..4].to_vec()]);
        expect_all(&peers[0], at, vec![b"one came".to_vec(), bytes]);
    }
    let report = server.stop();
    assert_whole(&report);
    let total = report.total();
    assert_eq!((total.replies_refused, total.send_errors), (0, 0));
    Ok(())
}

/// What is one too many is refused and counted, and all others are sent.
fn an_outbox_has_a_bound(subject: &Subject) -> Result<(), Skipped> {
    const MOST: usize = 8;
    let (peers, to) = peers(1, any_port());
    let to = to[0];
    let handler = move |_| {
        move |_: Datagram<'_>, replies: &mut Replies<'_>| {
            let mut outbox = replies.outbox();
            assert_eq!(outbox.room(), MOST);
            for number in 0..MOST as u8 {
                outbox.send(Transmit::new(to, &[number])).unwrap();
            }
            assert_eq!(outbox.room(), 0);
            let full = outbox.send(Transmit::new(to, b"one too many"));
            assert!(matches!(full, Err(NotTaken::Full)), "{full:?}");
            let long = outbox.send(Transmit::new(to, &[0; 2000]));
            assert!(matches!(long, Err(NotTaken::TooLong { bytes: 2000, most: 1024 })), "{long:?}");
            let never = Transmit::new(to, b"in no bytes").segment_size(Some(0));
            assert!(matches!(outbox.send(never), Err(NotTaken::NoSegment)));
        }
    };
    let limits = Limits::SINK.transmits_outstanding(MOST as u32);
    let server = subject.start(&Server::bind(any_port()).limits(limits), handler).unwrap();
    let at = server.local_addresses()[0];
    let sender = &senders(1, at)[0];
    // Once: a thread that has no core may hold the slice of a send that is over.
    sender.send_to(b"go", at).unwrap();
    expect_all(&peers[0], at, (0..MOST as u8).map(|number| vec![number]).collect());
    let report = server.stop();
    assert_whole(&report);
    let total = report.total();
    assert_eq!((total.replies_refused, total.send_errors), (3, 0));
    Ok(())
}

fn a_server_that_only_answers_sends_nothing_else(subject: &Subject) -> Result<(), Skipped> {
    let (peers, to) = peers(1, any_port());
    let to = to[0];
    let handler = move |_| {
        move |_: Datagram<'_>, replies: &mut Replies<'_>| {
            let refused = replies.outbox().send(Transmit::new(to, b"to somebody else"));
            assert!(matches!(refused, Err(NotTaken::NotAllowed)), "{refused:?}");
            replies.echo().unwrap();
        }
    };
    let server = subject.start(&Server::bind(any_port()).limits(echo_limits()), handler).unwrap();
    let at = server.local_addresses()[0];
    let sender = &senders(1, at)[0];
    sender.send_to(b"hello", at).unwrap();
    expect_all(sender, at, vec![b"hello".to_vec()]);
    let shared = server.outbox().send(Transmit::new(to, b"nor by another thread"));
    assert!(matches!(shared, Err(NotTaken::NotAllowed)), "{shared:?}");
    let report = server.stop();
    assert_whole(&report);
    assert_eq!(report.total().replies_refused, 1);
    peers[0].set_nonblocking(true).unwrap();
    assert!(peers[0].recv_from(&mut [0; 64]).is_err());
    Ok(())
}

/// A server on every address of the machine says which of them a datagram leaves from.
fn sent_from_an_address_of_ones_choice(subject: &Subject) -> Result<(), Skipped> {
    let sources = ["127.0.0.2", "127.1.2.3"].map(|source| source.parse().unwrap());
    let (peers, to) = peers(1, any_port());
    let to = to[0];
    let ecn = datagrams_can_be_marked().is_ok().then_some(Ecn::Ect0);
    let handler = move |_| {
        move |datagram: Datagram<'_>, replies: &mut Replies<'_>| {
            for source in sources {
                let transmit = Transmit::new(to, datagram.bytes);
                let transmit = transmit.source(Some(source)).ecn(ecn);
                replies.outbox().send(transmit).unwrap();
            }
        }
    };
    let options = SocketOptions::default().local_address(true);
    let server = Server::bind("0.0.0.0:0".parse().unwrap()).socket_options(options);
    let server = match subject.start(&server.limits(limits()), handler) {
        Err(Error::Unavailable(why)) => return Err(Skipped(why.to_string())),
        server => server.unwrap(),
    };
    let port = server.local_addresses()[0].port();
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let sender = &senders(1, at)[0];
    for round in 0..5 {
        let bytes = pattern(round, 32);
        sender.send_to(&bytes, at).unwrap();
        let from = sources_of_two(&peers[0], &bytes);
        assert_eq!(from, sources.map(|source| SocketAddr::new(source, port)));
    }
    let report = server.stop();
    assert_whole(&report);
    assert_eq!(report.total().send_errors, 0);
    Ok(())
}

/// Other threads send while the server sleeps and while it serves.
fn sent_by_other_threads(subject: &Subject) -> Result<(), Skipped> {
    const EACH: usize = 50;
    const THREADS: usize = 3;
    // The handler's own outbox is another way to one for other threads.
    let (sender, receiver) = mpsc::channel();
    let handler = move |_| {
        let sender = sender.clone();
        move |_: Datagram<'_>, replies: &mut Replies<'_>| {
            let _ = sender.send(replies.outbox().shared());
            replies.echo().unwrap();
        }
    };
    let server = subject.start(&Server::bind(any_port()).limits(limits()), handler).unwrap();
    let at = server.local_addresses()[0];
    let (peers, addresses) = peers(THREADS, at);
    // Nothing has come yet: its threads sleep.
    let outbox = server.outbox();
    outbox.send(Transmit::new(addresses[0], b"unasked")).unwrap();
    expect_all(&peers[0], at, vec![b"unasked".to_vec()]);
    let asking = &senders(1, at)[0];
    asking.send_to(b"hello", at).unwrap();
    expect_all(asking, at, vec![b"hello".to_vec()]);
    let outboxes = [outbox.clone(), receiver.recv().unwrap(), outbox.clone()];
    let serving = AtomicBool::new(true);
    thread::scope(|scope| {
        let sending: Vec<_> = outboxes
            .into_iter()
            .zip(peers.iter().zip(&addresses))
            .map(|(outbox, (peer, &to))| {
                scope.spawn(move || {
                    for number in 0..EACH {
                        let bytes = pattern(number, 50);
                        let segment_size = (number % 2 == 1).then_some(25);
                        let transmit = Transmit::new(to, &bytes).segment_size(segment_size);
                        outbox.send(transmit).unwrap();
                        let expected = bytes.chunks(segment_size.unwrap_or(50)).map(<[u8]>::to_vec);
                        expect_all(peer, at, expected.collect());
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            // Equal ones again and again would be taken for a loop.
            for number in (0..).take_while(|_| serving.load(Relaxed)) {
                let bytes = pattern(number, 30);
                asking.send_to(&bytes, at).unwrap();
                expect_all(asking, at, vec![bytes]);
            }
        });
        let results: Vec<_> = sending.into_iter().map(|sending| sending.join()).collect();
        serving.store(false, Relaxed);
        results.into_iter().for_each(|result| result.unwrap());
    });
    let datagrams = THREADS * (EACH + EACH / 2);
    let counts = outbox.counts();
    assert_eq!((counts.sent, counts.not_sent), (datagrams as u64 + 1, 0));
    assert_whole(&server.stop());
    Ok(())
}

/// Whoever still has an outbox when the server has ended is told so, and its address is free.
fn nothing_is_sent_after_the_end(subject: &Subject) -> Result<(), Skipped> {
    let handler = |_| |_: Datagram<'_>, _: &mut Replies<'_>| ();
    let server = subject.start(&Server::bind(any_port()).limits(limits()), handler).unwrap();
    let at = server.local_addresses()[0];
    let (peers, to) = peers(1, at);
    let (outbox, sent) = (server.outbox(), Arc::new(AtomicU64::new(0)));
    let sending = {
        let (outbox, sent) = (outbox.clone(), Arc::clone(&sent));
        thread::spawn(move || {
            loop {
                match outbox.send(Transmit::new(to[0], b"again")) {
                    Ok(()) => sent.fetch_add(1, Relaxed),
                    Err(NotTaken::Ended) => return,
                    Err(other) => panic!("{other}"),
                };
                expect_all(&peers[0], at, vec![b"again".to_vec()]);
            }
        })
    };
    until("a datagram", || sent.load(Relaxed) > 0);
    assert_whole(&server.stop());
    assert_left(at);
    sending.join().unwrap();
    assert_eq!(outbox.counts().sent, sent.load(Relaxed));
    let late = outbox.send(Transmit::new(at, b"too late"));
    assert!(matches!(late, Err(NotTaken::Ended)), "{late:?}");
    Ok(())
}
