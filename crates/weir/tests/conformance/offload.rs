//! Receive offload: a buffer that brings many datagrams is as many datagrams, to the handler, in
//! the counters and in the replies. These checks are for rows that have it, beside all others.

use super::support::*;
use std::{
    net::{IpAddr, Ipv6Addr, SocketAddr},
    num::NonZeroU16,
};
use weir::{
    counters::Counters,
    limits::Limits,
    socket::{DatagramSocket, Endpoint, Mode, OFFLOADED_BYTES, Peer, SocketOptions},
    udp::{AnyDesign, Datagram, OFFLOADED_OUTSTANDING, Refused, Replies, Server},
};

pub const CHECKS: &[Check] = &[
    ("segments_once", segments_once),
    ("segments_share_a_completion", segments_share_a_completion),
    ("segments_truncated", segments_truncated),
    ("segments_of_wrong_size", segments_of_wrong_size),
    ("segments_echo", segments_echo),
    ("segments_leave_as_they_came", segments_leave_as_they_came),
    ("segments_reply_by_copy", segments_reply_by_copy),
    ("segments_some_echo", segments_some_echo),
    ("segments_no_more_than_received", segments_no_more_than_received),
    ("segments_few_replies_outstanding", segments_few_replies_outstanding),
    ("segments_with_all_else_asked_for", segments_with_all_else_asked_for),
    ("offload_defaults", offload_defaults),
];

/// Sends many datagrams with one call.
struct Cutter {
    socket: DatagramSocket,
    to: SocketAddr,
    counters: Counters,
    sent: usize,
}

impl Cutter {
    fn new(to: SocketAddr) -> Self {
        let mut at = any_port();
        if to.is_ipv6() {
            at.set_ip(Ipv6Addr::LOCALHOST.into());
        }
        let socket = DatagramSocket::bind(&at.into()).unwrap();
        Self { socket, to, counters: Counters::default(), sent: 0 }
    }

    /// So many datagrams, all of this size but the last, and what they are.
    fn send(&mut self, count: usize, size: usize, last: usize) -> Vec<Vec<u8>> {
        let sizes = (1..count).map(|_| size).chain([last]);
        let datagrams: Vec<_> =
            sizes.enumerate().map(|(i, size)| pattern(self.sent + i, size)).collect();
        self.sent += count;
        let segment = NonZeroU16::new(size as u16).unwrap();
        let before = self.counters.kernel_entries.get();
        let to = Peer::from(self.to);
        self.socket.send_segments(&datagrams.concat(), segment, &to, &self.counters).unwrap();
        assert_eq!(self.counters.kernel_entries.get(), before + 1, "it was not sent as one");
        datagrams
    }

    fn address(&self) -> SocketAddr {
        self.socket.local_address()
    }

    /// Receives as many datagrams, and checks from whom they come; in order of their bytes.
    fn receive(&self, count: usize) -> Vec<Vec<u8>> {
        let mut got: Vec<_> = (0..count)
            .map(|_| {
                let mut buffer = [0; 2048];
                let mut arrival = None;
                until("a reply", || {
                    arrival = self.socket.receive(&mut buffer, Mode::Try, &self.counters).unwrap();
                    arrival.is_some()
                });
                let arrival = arrival.expect("just received");
                assert_eq!(arrival.from, self.to);
                buffer[..arrival.len].to_vec()
            })
            .collect();
        got.sort();
        got
    }

    fn assert_silent(&self) {
        let got = self.socket.receive(&mut [0; 2048], Mode::Try, &self.counters).unwrap();
        assert!(got.is_none(), "one reply too many: {got:?}");
    }
}

/// Replies to every datagram of the longest spans, from each of several threads.
fn many_replies() -> Limits {
    Limits::default().replies_outstanding(1024)
}

fn sorted(datagrams: impl IntoIterator<Item = Vec<u8>>) -> Vec<Vec<u8>> {
    let mut datagrams: Vec<_> = datagrams.into_iter().collect();
    datagrams.sort();
    datagrams
}

/// Counts, sizes and the size of the last, that a socket of each family takes as one.
const SPANS: &[(usize, usize, usize)] =
    &[(2, 1, 1), (40, 64, 64), (64, 100, 1), (3, 1024, 1023), (44, 1472, 900), (2, 30_000, 30_000)];

fn segments_once(subject: &Subject) -> Result<(), Skipped> {
    let six = SocketAddr::from((Ipv6Addr::LOCALHOST, 0));
    let server = Server::bind(any_port()).and_bind(six).payload_bytes(30_000);
    let (server, log) = subject.log(&server);
    let (mut sent, mut count) = (Tally::new(), 0);
    for &to in server.local_addresses() {
        let mut senders = [Cutter::new(to), Cutter::new(to)];
        for _ in 0..3 {
            for &(number, size, last) in SPANS {
                for sender in &mut senders {
                    for bytes in sender.send(number, size, last) {
                        *sent.entry((sender.address(), bytes)).or_default() += 1;
                        count += 1;
                    }
                }
                log.wait_for(count);
            }
        }
    }
    let total = stop(server, &log);
    assert_same(&log.seen(), &sent);
    assert!(log.seen().iter().all(|seen| seen.socket == u32::from(seen.source.is_ipv6())));
    assert_eq!((total.datagrams, total.truncated), (count as u64, 0));
    Ok(())
}

/// Designs that can take few completions at a time take many datagrams all the same: so they
/// came in few completions.
fn segments_share_a_completion(subject: &Subject) -> Result<(), Skipped> {
    const FEW: u32 = 4;
    const SPANS: u64 = 20;
    const COUNT: usize = 40;
    let mut design = subject.design();
    for name in ["batch", "drain", "dequeue-max"] {
        if subject.has(name) {
            design.set(name, &FEW.to_string()).unwrap();
        }
    }
    let (server, log) =
        subject.try_log_design(design, &Server::bind(any_port()), Answer::Nothing).unwrap();
    let mut sender = Cutter::new(server.local_addresses()[0]);
    for span in 1..=SPANS as usize {
        sender.send(COUNT, 64, 64);
        log.wait_for(span * COUNT);
    }
    let total = stop(server, &log);
    assert_eq!(total.datagrams, SPANS * COUNT as u64);
    // The next may have come before the design looked whether there was more.
    assert!(total.batches.min >= COUNT as u64, "{} in a dequeue", total.batches.min);
    assert!(total.batches.count() <= SPANS);
    Ok(())
}

fn segments_truncated(subject: &Subject) -> Result<(), Skipped> {
    const ROOM: usize = 64;
    let limited = Server::bind(any_port()).payload_bytes(ROOM).limits(many_replies());
    let (server, log) = subject.log_with(&limited, Answer::Echo);
    let mut sender = Cutter::new(server.local_addresses()[0]);
    let datagrams = [sender.send(20, 100, 64), sender.send(10, 64, 10)].concat();
    log.wait_for(30);
    let kept: Vec<_> =
        datagrams.iter().map(|bytes| bytes[..bytes.len().min(ROOM)].to_vec()).collect();
    assert_eq!(sender.receive(30), sorted(kept.clone()));
    let total = stop(server, &log);
    assert_eq!(total.truncated, 19);
    let mut seen = log.seen();
    seen.sort_by_key(|seen| seen.bytes[..4].to_vec());
    for (seen, (kept, sent)) in seen.iter().zip(kept.iter().zip(&datagrams)) {
        assert_eq!((&seen.bytes, seen.truncated), (kept, sent.len() > ROOM));
    }
    Ok(())
}

fn segments_of_wrong_size(subject: &Subject) -> Result<(), Skipped> {
    let (server, log) = subject.log(&Server::bind(any_port()).expected_bytes(100));
    let mut sender = Cutter::new(server.local_addresses()[0]);
    sender.send(10, 100, 99);
    sender.send(5, 101, 100);
    log.wait_for(15);
    let total = stop(server, &log);
    assert_eq!((total.datagrams, total.wrong_size), (15, 5));
    Ok(())
}

fn segments_echo(subject: &Subject) -> Result<(), Skipped> {
    answers(subject, Answer::Echo);
    Ok(())
}

/// What came as one leaves as one: a sender that receives with offload, too, gets it back so. On
/// loopback nothing but the sender's own call puts datagrams together.
fn segments_leave_as_they_came(subject: &Subject) -> Result<(), Skipped> {
    const COUNT: usize = 30;
    const SIZE: usize = 100;
    let server = Server::bind(any_port()).limits(many_replies());
    let (server, log) = subject.log_with(&server, Answer::Echo);
    let mut sender = Cutter::new(server.local_addresses()[0]);
    let options = SocketOptions::default().receive_offload(true);
    sender.socket = DatagramSocket::bind(&Endpoint { address: any_port(), options }).unwrap();
    for span in 1..=5 {
        let sent = sender.send(COUNT, SIZE, SIZE).concat();
        let mut buffer = vec![0; OFFLOADED_BYTES];
        let arrival =
            sender.socket.receive(&mut buffer, Mode::Wait, &sender.counters).unwrap().unwrap();
        assert_eq!((arrival.from, arrival.datagrams()), (sender.to, COUNT), "span {span}");
        assert_eq!(buffer[..arrival.len], sent);
    }
    let total = stop(server, &log);
    assert_eq!(total.send_errors, 0);
    Ok(())
}

fn segments_reply_by_copy(subject: &Subject) -> Result<(), Skipped> {
    answers(subject, Answer::Copy);
    Ok(())
}

/// More copies than one datagram may be answered with, over all datagrams of a slice.
fn answers(subject: &Subject, answer: Answer) {
    let six = SocketAddr::from((Ipv6Addr::LOCALHOST, 0));
    let server = Server::bind(any_port()).and_bind(six).limits(many_replies());
    let (server, log) = subject.log_with(&server, answer);
    let mut expected = 0;
    for &to in server.local_addresses() {
        let mut senders = [Cutter::new(to), Cutter::new(to)];
        for (count, size, last) in [(2, 10, 10), (64, 100, 50), (40, 1024, 1024)] {
            let sent = senders.each_mut().map(|sender| sender.send(count, size, last));
            for (sender, sent) in senders.iter().zip(sent) {
                assert_eq!(sender.receive(count), sorted(sent));
                expected += count as u64;
            }
        }
        senders.iter().for_each(Cutter::assert_silent);
    }
    until("the count of the last reply", || {
        server.counters().iter().map(|counters| counters.replies).sum::<u64>() == expected
    });
    let total = stop(server, &log);
    assert_eq!((total.datagrams, total.replies_refused, total.send_errors), (expected, 0, 0));
}

/// Those that are answered leave, in place and changed, and those that are not do not.
fn segments_some_echo(subject: &Subject) -> Result<(), Skipped> {
    let server = Server::bind(any_port()).limits(many_replies());
    let handler = |_| {
        |datagram: Datagram<'_>, replies: &mut Replies<'_>| {
            if datagram.bytes[0] % 3 == 1 {
                datagram.bytes.reverse();
                replies.echo().unwrap();
            }
        }
    };
    let server = subject.start(&server, handler).unwrap();
    let mut sender = Cutter::new(server.local_addresses()[0]);
    for last in [1, 99, 100] {
        let sent = sender.send(50, 100, last).into_iter().filter(|bytes| bytes[0] % 3 == 1);
        let reversed: Vec<_> = sent.map(|bytes| bytes.into_iter().rev().collect()).collect();
        assert_eq!(sender.receive(reversed.len()), sorted(reversed));
        sender.assert_silent();
    }
    assert_whole(&server.stop());
    Ok(())
}

fn segments_no_more_than_received(subject: &Subject) -> Result<(), Skipped> {
    let server = Server::bind(any_port()).limits(many_replies());
    let handler = |_| {
        |datagram: Datagram<'_>, replies: &mut Replies<'_>| {
            replies.send(&datagram.bytes[..50]).unwrap();
            assert_eq!(replies.echo(), Err(Refused::TooLong));
            replies.send(&datagram.bytes[50..]).unwrap();
        }
    };
    let server = subject.start(&server, handler).unwrap();
    let mut sender = Cutter::new(server.local_addresses()[0]);
    let sent = sender.send(40, 100, 100);
    let halves = sent.iter().flat_map(|bytes| [bytes[..50].to_vec(), bytes[50..].to_vec()]);
    assert_eq!(sender.receive(80), sorted(halves));
    sender.assert_silent();
    let report = server.stop();
    assert_whole(&report);
    assert_eq!(report.total().replies_refused, 40);
    Ok(())
}

/// With fewer send slots than spans each datagram is answered or counted as refused.
fn segments_few_replies_outstanding(subject: &Subject) -> Result<(), Skipped> {
    const SPANS: usize = 8;
    const COUNT: usize = 16;
    let limits = Limits::default().replies_outstanding(1);
    let (server, log) = subject.log_with(&Server::bind(any_port()).limits(limits), Answer::Echo);
    let to = server.local_addresses()[0];
    let mut sender = Cutter::new(to);
    for _ in 0..SPANS {
        sender.send(COUNT, 20, 20);
    }
    log.wait_for(SPANS * COUNT);
    until("an account of every reply", || {
        let all = server.counters();
        let sum = all.iter().map(|c| c.replies + c.replies_refused).sum::<u64>();
        sum == (SPANS * COUNT) as u64
    });
    let total = stop(server, &log);
    assert_eq!(sender.receive(total.replies as usize).len(), total.replies as usize);
    sender.assert_silent();
    assert!(total.replies > 0 && total.replies.is_multiple_of(COUNT as u64));
    Ok(())
}

/// All that comes beside the bytes of a datagram at once: there is room for it.
fn segments_with_all_else_asked_for(subject: &Subject) -> Result<(), Skipped> {
    let options = SocketOptions::default().local_address(true).receive_time(true);
    for at in ["0.0.0.0:0", "[::]:0"] {
        let server = Server::bind(at.parse().unwrap()).socket_options(options);
        let server = server.limits(many_replies());
        let (server, log) = start_or_skip(subject, &server, Answer::Echo)?;
        let here: IpAddr = if at.starts_with('[') { "::1" } else { "127.0.0.3" }.parse().unwrap();
        let mut sender = Cutter::new(SocketAddr::new(here, server.local_addresses()[0].port()));
        let sent = sender.send(30, 200, 100);
        assert_eq!(sender.receive(30), sorted(sent));
        stop(server, &log);
        let whole = |seen: &Seen| seen.local == Some(here) && seen.received_at.is_some();
        assert!(log.seen().iter().all(whole), "{:?}", log.seen()[0]);
    }
    Ok(())
}

/// Slices are large, so there are fewer unless one asks for more; both are told.
fn offload_defaults(subject: &Subject) -> Result<(), Skipped> {
    let effective = |design: AnyDesign| {
        let started = subject.try_log_design(design, &Server::bind(any_port()), Answer::Nothing);
        let (server, log) = started.unwrap();
        let effective = server.effective();
        stop(server, &log);
        move |name: &str| {
            let told = effective.iter().find(|(told, _)| told == name);
            told.unwrap_or_else(|| panic!("{name} is not told")).1.clone()
        }
    };
    let told = effective(subject.untouched());
    assert_eq!((told("receive-offload"), told("slice-bytes")), ("true".into(), "65527".into()));
    if subject.has("outstanding") {
        assert_eq!(told("outstanding"), OFFLOADED_OUTSTANDING.to_string());
        let mut design = subject.untouched();
        design.set("outstanding", "300").unwrap();
        assert_eq!(effective(design)("outstanding"), "300");
    }
    Ok(())
}
