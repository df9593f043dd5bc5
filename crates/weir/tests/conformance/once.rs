//! Every datagram once, with the right bytes and the right source.

use super::{support::*, wine};
use std::{
    net::{Ipv6Addr, SocketAddr},
    time::{Duration, Instant},
};
use weir::udp::Server;

pub const CHECKS: &[Check] = &[
    ("ipv4", ipv4),
    ("ipv6", ipv6),
    ("every_size", every_size),
    ("two_sockets", two_sockets),
    ("zero_bytes", zero_bytes),
    ("zero_byte_flood", zero_byte_flood),
    ("bursts", bursts),
];

fn ipv4(subject: &Subject) -> Result<(), Skipped> {
    several_senders(subject, any_port());
    Ok(())
}

fn ipv6(subject: &Subject) -> Result<(), Skipped> {
    several_senders(subject, SocketAddr::from((Ipv6Addr::LOCALHOST, 0)));
    Ok(())
}

fn several_senders(subject: &Subject, at: SocketAddr) {
    let (server, log) = subject.log(&Server::bind(at));
    let to = server.local_addresses()[0];
    let sizes = (0..600).map(|n| n % 97 * 10);
    let sent = send_all(&senders(3, to), to, sizes, WINDOW, &log);
    stop(server, &log);
    let seen = log.seen();
    assert_same(&seen, &sent);
    assert!(seen.iter().all(|seen| seen.socket == 0 && !seen.truncated));
    if subject.threads() == 1 {
        assert_in_order(&seen);
    }
}

/// What one sender sent comes in its order where one thread receives.
fn assert_in_order(seen: &[Seen]) {
    let mut last = std::collections::BTreeMap::new();
    for seen in seen.iter().filter(|seen| seen.bytes.len() >= 4) {
        let number = u32::from_le_bytes(seen.bytes[..4].try_into().unwrap());
        let before = last.insert(seen.source, number);
        assert!(before.is_none_or(|before| before < number), "{before:?} before {number}");
    }
}

/// The longest payload that a datagram can have, and those around every boundary below it.
const SIZES: &[usize] = &[
    0, 1, 2, 3, 4, 7, 8, 15, 16, 31, 32, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 512, 513,
    1023, 1024, 1025, 1472, 1473, 2047, 2048, 2049, 4095, 4096, 4097, 8191, 8192, 8193, 16_384,
    32_767, 32_768, 65_507,
];

/// Only IPv6 has them.
const SIZES_IPV6: &[usize] = &[65_508, 65_527];

fn every_size(subject: &Subject) -> Result<(), Skipped> {
    for at in [any_port(), SocketAddr::from((Ipv6Addr::LOCALHOST, 0))] {
        let (server, log) = subject.log(&Server::bind(at).payload_bytes(65_527));
        let to = server.local_addresses()[0];
        let longer = if at.is_ipv6() { SIZES_IPV6 } else { &[] };
        let sizes = SIZES.iter().chain(longer).copied();
        let sent = send_all(&senders(1, to), to, sizes, 1, &log);
        let total = stop(server, &log);
        assert_same(&log.seen(), &sent);
        assert_eq!(total.truncated, 0);
    }
    Ok(())
}

fn two_sockets(subject: &Subject) -> Result<(), Skipped> {
    let six = SocketAddr::from((Ipv6Addr::LOCALHOST, 0));
    let (server, log) = subject.log(&Server::bind(any_port()).and_bind(six));
    let addresses = server.local_addresses().to_vec();
    assert_eq!(addresses.len(), 2);
    assert!(addresses[0].is_ipv4() && addresses[1].is_ipv6());
    let mut sent = Tally::new();
    for _ in 0..3 {
        for &to in &addresses {
            let sizes = (0..40).map(|n| 20 + n);
            add(&mut sent, send_all(&senders(2, to), to, sizes, WINDOW, &log));
        }
    }
    stop(server, &log);
    let seen = log.seen();
    assert_same(&seen, &sent);
    assert!(seen.iter().all(|seen| seen.socket == u32::from(seen.source.is_ipv6())));
    Ok(())
}

/// On io_uring a datagram without bytes ends a multishot receive; a flood of them must not
/// end the service.
fn zero_bytes(subject: &Subject) -> Result<(), Skipped> {
    let (server, log) = subject.log(&Server::bind(any_port()));
    let to = server.local_addresses()[0];
    let senders = senders(2, to);
    let mut sent = send_all(&senders, to, std::iter::repeat_n(0, 300), WINDOW, &log);
    add(&mut sent, send_all(&senders, to, (0..100).map(|n| n % 2), WINDOW, &log));
    stop(server, &log);
    assert_same(&log.seen(), &sent);
    Ok(())
}

/// The same, faster than it can be taken: what finds no room is lost, what is taken is counted,
/// and what comes afterwards is served as if nothing had been.
fn zero_byte_flood(subject: &Subject) -> Result<(), Skipped> {
    const FLOOD: usize = 5000;
    wine::FLOOD_OF_EMPTY_DATAGRAMS.leaves_out().map_or(Ok(()), |why| Err(Skipped(why)))?;
    let (server, log) = subject.log(&Server::bind(any_port()));
    let to = server.local_addresses()[0];
    let (flooders, senders) = (senders(2, to), senders(2, to));
    for number in 0..FLOOD {
        // Where the system has no room it may say so.
        let _ = flooders[number % flooders.len()].send_to(&[], to);
    }
    // One of these comes through as soon as the socket has room again; with several sockets on the
    // address that is to be awaited for each sender, since each may lead to another socket.
    const AFTER: &[u8] = b"after the flood";
    let deadline = Instant::now() + PATIENCE;
    for sender in flooders.iter().chain(&senders) {
        let source = sender.local_addr().unwrap();
        let is_it = |seen: &Seen| seen.source == source && seen.bytes == AFTER;
        loop {
            assert!(Instant::now() < deadline, "nothing is served after the flood");
            sender.send_to(AFTER, to).unwrap();
            // It may have found no room.
            if log.come_within(Duration::from_millis(10), 1, is_it).is_ok() {
                break;
            }
        }
    }
    let sources: Vec<_> = senders.iter().map(|sender| sender.local_addr().unwrap()).collect();
    let is_normal = |seen: &Seen| seen.bytes != AFTER && sources.contains(&seen.source);
    let mut sent = Tally::new();
    for number in 0..100 {
        let sender = &senders[number % senders.len()];
        let bytes = pattern(number, number % 3 * 50);
        sender.send_to(&bytes, to).unwrap();
        *sent.entry((sender.local_addr().unwrap(), bytes)).or_default() += 1;
        log.wait_for_those(number + 1, is_normal);
    }
    stop(server, &log);
    let (normal, flood): (Vec<_>, Vec<_>) = log.seen().into_iter().partition(is_normal);
    assert_same(&normal, &sent);
    let empty = flood.iter().filter(|seen| seen.bytes.is_empty()).count();
    assert!((1..=FLOOD).contains(&empty), "{empty} of the flood");
    Ok(())
}

/// Batches of all sizes: with several threads these make others join.
fn bursts(subject: &Subject) -> Result<(), Skipped> {
    let (server, log) = subject.log(&Server::bind(any_port()));
    let to = server.local_addresses()[0];
    let senders = senders(2, to);
    let mut sent = Tally::new();
    let mut total = 0;
    for round in 0..60 {
        let burst = round % 20 + 1;
        for n in 0..burst {
            let sender = &senders[n % 2];
            let bytes = pattern(total, 48);
            sender.send_to(&bytes, to).unwrap();
            *sent.entry((sender.local_addr().unwrap(), bytes)).or_default() += 1;
            total += 1;
        }
        log.wait_for(total);
    }
    stop(server, &log);
    assert_same(&log.seen(), &sent);
    Ok(())
}
