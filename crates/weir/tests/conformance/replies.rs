//! Echoes and other replies: the same bytes to the right sender from the right address, and
//! never more than was received.

use super::support::*;
use socket2::{Domain, Protocol, Socket, Type};
use std::{
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    time::Instant,
};
use weir::{
    counters::Snapshot,
    limits::Limits,
    socket::SocketOptions,
    udp::{Datagram, Refused, Replies, Server},
};

pub const CHECKS: &[Check] = &[
    ("echo", echo),
    ("reply_by_copy", reply_by_copy),
    ("answers_in_a_row", answers_in_a_row),
    ("changed_in_place", changed_in_place),
    ("sink_stays_silent", sink_stays_silent),
    ("no_more_than_received", no_more_than_received),
    ("most_copies", most_copies),
    ("reply_rate", reply_rate),
    ("loops_come_to_rest", loops_come_to_rest),
    ("replies_from_the_address_written_to", replies_from_the_address_written_to),
    ("few_replies_outstanding", few_replies_outstanding),
    ("peer_has_gone", peer_has_gone),
    ("echo_to_nowhere", echo_to_nowhere),
    ("copy_to_nowhere", copy_to_nowhere),
];

fn echo(subject: &Subject) -> Result<(), Skipped> {
    answers(subject, Answer::Echo);
    Ok(())
}

fn reply_by_copy(subject: &Subject) -> Result<(), Skipped> {
    answers(subject, Answer::Copy);
    Ok(())
}

fn answers(subject: &Subject, answer: Answer) {
    let six = SocketAddr::from((Ipv6Addr::LOCALHOST, 0));
    let server = Server::bind(any_port()).and_bind(six).limits(echo_limits());
    let (server, log) = subject.log_with(&server, answer);
    let addresses = server.local_addresses().to_vec();
    let mut expected = 0;
    for to in addresses {
        let senders = senders(3, to);
        for round in 0..30 {
            for (i, sender) in senders.iter().enumerate() {
                sender.send_to(&pattern(round * 3 + i, (round * 11) % 300), to).unwrap();
            }
            for (i, sender) in senders.iter().enumerate() {
                expect(sender, to, &pattern(round * 3 + i, (round * 11) % 300));
                expected += 1;
            }
        }
        senders.iter().for_each(assert_silent);
    }
    let total = stop(server, &log);
    assert_eq!((total.datagrams, total.replies_refused, total.send_errors), (expected, 0, 0));
    // A send whose completion came after the stop was asked for is not counted.
    assert!(total.replies <= expected);
}

/// What leaves as one comes as what it was: each answer by itself, to its sender.
fn answers_in_a_row(subject: &Subject) -> Result<(), Skipped> {
    let options = [SocketOptions::default(), SocketOptions::default().send_offload(false)];
    for options in options {
        let server = Server::bind(any_port()).socket_options(options).limits(echo_limits());
        let (server, log) = subject.log_with(&server, Answer::Echo);
        let to = server.local_addresses()[0];
        let senders = senders(2, to);
        let sizes = [[48; 20].as_slice(), &[16; 3], &[0; 2], &[47; 8], &[48, 47, 46]].concat();
        let mut expected = 0;
        for round in 0..4 {
            let datagrams = |sender: usize| {
                let number = |i: usize| (round * 2 + sender) * sizes.len() + i;
                let of = sizes.iter().enumerate().map(move |(i, size)| pattern(number(i), *size));
                of.collect::<Vec<_>>()
            };
            for (i, sender) in senders.iter().enumerate() {
                for bytes in datagrams(i) {
                    sender.send_to(&bytes, to).unwrap();
                }
            }
            for (i, sender) in senders.iter().enumerate() {
                let (mut sent, mut buffer) = (datagrams(i), [0; 2048]);
                let mut came: Vec<_> = (0..sent.len())
                    .map(|_| {
                        let (len, from) = receive(sender, &mut buffer).expect("an answer");
                        assert_eq!(from, to);
                        buffer[..len].to_vec()
                    })
                    .collect();
                // With several threads they come in any order.
                sent.sort();
                came.sort();
                assert_eq!(came, sent);
                expected += sent.len() as u64;
            }
        }
        senders.iter().for_each(assert_silent);
        let total = stop(server, &log);
        assert_eq!((total.datagrams, total.replies_refused, total.send_errors), (expected, 0, 0));
    }
    Ok(())
}

fn expect(socket: &UdpSocket, from: SocketAddr, bytes: &[u8]) {
    let mut buffer = [0; 2048];
    let (len, source) = receive(socket, &mut buffer).expect("a reply");
    assert_eq!((&buffer[..len], source), (bytes, from));
}

fn assert_silent(socket: &UdpSocket) {
    socket.set_nonblocking(true).unwrap();
    let got = socket.recv_from(&mut [0; 2048]);
    assert!(got.is_err(), "one reply too many: {got:?}");
    socket.set_nonblocking(false).unwrap();
}

fn changed_in_place(subject: &Subject) -> Result<(), Skipped> {
    let server = Server::bind(any_port()).limits(echo_limits());
    let handler = |_| {
        |datagram: Datagram<'_>, replies: &mut Replies<'_>| {
            datagram.bytes.reverse();
            replies.echo().unwrap();
        }
    };
    let server = subject.start(&server, handler).unwrap();
    let to = server.local_addresses()[0];
    let sender = &senders(1, to)[0];
    for len in [0, 1, 5, 64, 1024] {
        sender.send_to(&pattern(1, len), to).unwrap();
        let mut reversed = pattern(1, len);
        reversed.reverse();
        expect(sender, to, &reversed);
    }
    assert_whole(&server.stop());
    Ok(())
}

fn sink_stays_silent(subject: &Subject) -> Result<(), Skipped> {
    let (server, log) = subject.log_with(&Server::bind(any_port()), Answer::Echo);
    let to = server.local_addresses()[0];
    let senders = senders(1, to);
    send_all(&senders, to, std::iter::repeat_n(10, 50), WINDOW, &log);
    let total = stop(server, &log);
    assert_silent(&senders[0]);
    assert_eq!((total.replies, total.replies_refused), (0, 50));
    Ok(())
}

fn no_more_than_received(subject: &Subject) -> Result<(), Skipped> {
    let server = Server::bind(any_port()).limits(echo_limits());
    let handler = |_| {
        |datagram: Datagram<'_>, replies: &mut Replies<'_>| {
            let half = datagram.bytes.len() / 2;
            replies.send(&datagram.bytes[..half]).unwrap();
            assert_eq!(replies.send(&[0; 512]), Err(Refused::TooLong));
            // An echo of the whole would be half as much again as was received.
            assert_eq!(replies.echo(), Err(Refused::TooLong));
            replies.send(&datagram.bytes[half..]).unwrap();
        }
    };
    let server = subject.start(&server, handler).unwrap();
    let to = server.local_addresses()[0];
    let sender = &senders(1, to)[0];
    for number in 0..20 {
        let bytes = pattern(number, 100);
        sender.send_to(&bytes, to).unwrap();
        expect(sender, to, &bytes[..50]);
        expect(sender, to, &bytes[50..]);
    }
    assert_silent(sender);
    let report = server.stop();
    assert_whole(&report);
    assert_eq!(report.total().replies_refused, 40);
    Ok(())
}

/// How many copies a datagram is answered with at most is the same in every design; one more is
/// refused and counted, and none of the others is lost.
fn most_copies(subject: &Subject) -> Result<(), Skipped> {
    const TOO_MANY: usize = 5;
    let server = Server::bind(any_port()).limits(echo_limits());
    let handler = |_| {
        |_: Datagram<'_>, replies: &mut Replies<'_>| {
            for number in 0..Replies::MOST_COPIES {
                replies.send(&[number as u8]).unwrap();
            }
            for _ in 0..TOO_MANY {
                assert_eq!(replies.send(&[255]), Err(Refused::TooMany));
            }
        }
    };
    let server = subject.start(&server, handler).unwrap();
    let to = server.local_addresses()[0];
    let sender = &senders(1, to)[0];
    for _ in 0..3 {
        sender.send_to(&pattern(0, 500), to).unwrap();
        let mut came: Vec<_> = (0..Replies::MOST_COPIES)
            .map(|_| {
                let mut buffer = [0; 2];
                assert_eq!(receive(sender, &mut buffer).expect("a copy"), (1, to));
                usize::from(buffer[0])
            })
            .collect();
        came.sort_unstable(); // several threads of the kernel may send
        assert!(came.into_iter().eq(0..Replies::MOST_COPIES));
    }
    assert_silent(sender);
    let report = server.stop();
    assert_whole(&report);
    assert_eq!(report.total().replies_refused, 3 * TOO_MANY as u64);
    Ok(())
}

/// A server on every address of the machine answers from the one that was written to: others
/// would take the answer for a stranger's.
fn replies_from_the_address_written_to(subject: &Subject) -> Result<(), Skipped> {
    let options = SocketOptions::default().local_address(true);
    for (at, written_to) in [
        ("0.0.0.0:0", &["127.0.0.2", "127.0.0.1", "127.1.2.3"][..]),
        // The unspecified address of IPv6 receives IPv4 as well.
        ("[::]:0", &["127.0.0.2", "::1", "127.1.2.3"]),
    ] {
        for answer in [Answer::Echo, Answer::Copy] {
            let server = Server::bind(at.parse().unwrap());
            let server = server.socket_options(options).limits(echo_limits());
            let (server, log) = start_or_skip(subject, &server, answer)?;
            let port = server.local_addresses()[0].port();
            for (number, to) in written_to.iter().enumerate() {
                let to = SocketAddr::new(to.parse().unwrap(), port);
                let senders = senders(2, to);
                for sender in &senders {
                    sender.send_to(&pattern(number, 100), to).unwrap();
                }
                for sender in &senders {
                    expect(sender, to, &pattern(number, 100));
                }
            }
            let total = stop(server, &log);
            assert_eq!((total.replies_refused, total.send_errors), (0, 0));
        }
    }
    Ok(())
}

/// Two servers that are made to echo each other's datagrams, and one that is made to answer itself,
/// come to rest.
fn loops_come_to_rest(subject: &Subject) -> Result<(), Skipped> {
    let forger = Forger::new()?;
    if UdpSocket::bind(any_port()).unwrap().send_to(b"to nobody", ("127.0.0.1", 0)).is_ok() {
        return Err(Skipped("a send to port 0 does not fail here (Wine 10.0)".into()));
    }
    for answer in [Answer::Echo, Answer::Copy] {
        let echo = || subject.log_with(&Server::bind(any_port()).limits(echo_limits()), answer);
        let servers = [echo(), echo()];
        let [one, other] = [0, 1].map(|n: usize| servers[n].0.local_addresses()[0].port());
        let count = |of: fn(&Snapshot) -> u64| {
            let all = servers.iter().flat_map(|(server, _)| server.counters());
            all.map(|counters| of(&counters)).sum::<u64>()
        };
        let dropped = || count(|counters| counters.loops_dropped);
        forger.send_from(one, one, b"from itself");
        servers[0].1.wait_for(1);
        until("the count of the reply to itself", || dropped() == 1);
        forger.send_from(other, one, b"round and round");
        until("the end of the loop", || dropped() >= 2);
        let datagrams = count(|counters| counters.datagrams);
        // Each thread counts to 128 by itself.
        let most = 2 * u64::from(subject.threads().max(1)) * 128 + 2;
        assert!((128..=most).contains(&datagrams), "{datagrams} of at most {most}");
        let [one, other] = servers.map(|(server, log)| stop(server, &log));
        assert_eq!(one.datagrams + other.datagrams, datagrams, "something still goes round");
        assert_eq!(one.replies_refused + other.replies_refused, 0);
    }
    Ok(())
}

/// Whatever the reason, there is a limit to how much is answered.
fn reply_rate(subject: &Subject) -> Result<(), Skipped> {
    const BURST: usize = 300;
    let limits = echo_limits().replies_per_s(Some(100));
    let server = Server::bind(any_port()).limits(limits);
    let since = Instant::now();
    let (server, log) = subject.log_with(&server, Answer::Echo);
    let to = server.local_addresses()[0];
    send_all(&senders(1, to), to, std::iter::repeat_n(10, BURST), WINDOW, &log);
    // A reply that is admitted and not yet sent when the server stops is refused after all.
    until("a reply", || server.counters().iter().any(|counters| counters.replies > 0));
    let total = stop(server, &log);
    let admitted = BURST as u64 - total.replies_refused;
    // One limit for all threads together: a slot of 10 ms admits one reply, and one slot may
    // have begun before.
    let slots = since.elapsed().as_millis() as u64 / 10 + 2;
    assert!(admitted <= slots, "{admitted} in {slots} slots, {} threads", subject.threads());
    assert!(total.replies > 0 && total.replies <= admitted, "{} of {admitted}", total.replies);
    Ok(())
}

/// With fewer send slots than datagrams each one is answered or counted as refused.
fn few_replies_outstanding(subject: &Subject) -> Result<(), Skipped> {
    const COUNT: usize = 400;
    let limits = Limits::default().replies_outstanding(2);
    let server = Server::bind(any_port()).limits(limits);
    let (server, log) = subject.log_with(&server, Answer::Echo);
    let to = server.local_addresses()[0];
    let senders = senders(1, to);
    let sent = send_all(&senders, to, std::iter::repeat_n(20, COUNT), WINDOW, &log);
    let total = stop(server, &log);
    assert!(total.replies + total.replies_refused <= COUNT as u64);
    senders[0].set_nonblocking(true).unwrap();
    let mut buffer = [0; 64];
    let mut answered = 0;
    while let Ok((len, from)) = senders[0].recv_from(&mut buffer) {
        assert_eq!(from, to);
        let key = (senders[0].local_addr().unwrap(), buffer[..len].to_vec());
        assert!(sent.contains_key(&key));
        answered += 1;
    }
    assert!(answered > 0, "no reply at all");
    assert!(answered + total.replies_refused <= COUNT as u64);
    Ok(())
}

/// What comes back from a port that nobody holds any more (an ICMP message) must not end the
/// service.
fn peer_has_gone(subject: &Subject) -> Result<(), Skipped> {
    let server = Server::bind(any_port()).limits(echo_limits());
    let (server, log) = subject.log_with(&server, Answer::Echo);
    let to = server.local_addresses()[0];
    for number in 0..10 {
        // Closed as soon as it has sent.
        leavers(1, to)[0].send_to(&pattern(number, 30), to).unwrap();
        log.wait_for(number + 1);
    }
    let sender = &senders(1, to)[0];
    sender.send_to(b"still there?", to).unwrap();
    expect(sender, to, b"still there?");
    let report = server.stop();
    assert!(report.failure.is_none(), "{}", report.failure.unwrap());
    assert_slices(&report);
    Ok(())
}

fn echo_to_nowhere(subject: &Subject) -> Result<(), Skipped> {
    to_nowhere(subject, Answer::Echo)
}

fn copy_to_nowhere(subject: &Subject) -> Result<(), Skipped> {
    to_nowhere(subject, Answer::Copy)
}

/// A datagram whose source is port 0 cannot be answered: a system refuses to send there, or takes it and sends nothing.
/// Each such reply is counted, its slice comes back, and everyone else gets theirs.
fn to_nowhere(subject: &Subject, answer: Answer) -> Result<(), Skipped> {
    const ROUNDS: usize = 20;
    let forger = Forger::new()?;
    let refused = UdpSocket::bind("127.0.0.1:0").unwrap().send_to(&[0], "127.0.0.1:0").is_err();
    // Fewer slots for replies than are forged: one that did not come back would be missed.
    let limits = Limits::default().replies_outstanding(8);
    let (server, log) = subject.log_with(&Server::bind(any_port()).limits(limits), answer);
    let to = server.local_addresses()[0];
    let sender = &senders(1, to)[0];
    for round in 0..ROUNDS {
        forger.send_from(0, to.port(), b"from port 0");
        let bytes = pattern(round, 40);
        sender.send_to(&bytes, to).unwrap();
        expect(sender, to, &bytes);
        log.wait_for(2 * (round + 1));
        // A thread that has no core may hold a slot that is over: the next reply could find none.
        until("the count of both replies", || {
            let counters = server.counters();
            let over = counters.iter().map(|thread| thread.send_errors + thread.replies);
            over.sum::<u64>() == 2 * (round as u64 + 1)
        });
    }
    assert!(server.is_running());
    let total = stop(server, &log);
    let failed = if refused { ROUNDS as u64 } else { 0 };
    assert_eq!((total.send_errors, total.replies_refused), (failed, 0));
    assert_eq!(log.seen().iter().filter(|seen| seen.source.port() == 0).count(), ROUNDS);
    assert_silent(sender);
    Ok(())
}

/// Sends datagrams that say they come from a port of its choice.
struct Forger(Socket);

impl Forger {
    fn new() -> Result<Self, Skipped> {
        let raw = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::UDP));
        raw.map(Self).map_err(|e| Skipped(format!("a source cannot be forged here: {e}")))
    }

    fn send_from(&self, from_port: u16, to_port: u16, bytes: &[u8]) {
        let length = (8 + bytes.len()) as u16;
        // Source port, destination port, length, and no checksum (RFC 768).
        let header = [from_port, to_port, length, 0].map(u16::to_be_bytes);
        let to = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        self.0.send_to(&[header.as_flattened(), bytes].concat(), &to.into()).unwrap();
    }
}
