//! What a server tells of each datagram, and what it counts.

use crate::support::*;
use std::{
    net::IpAddr,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use weir::{socket::SocketOptions, udp::Server};

pub const CHECKS: &[Check] = &[
    ("truncation", truncation),
    ("wrong_sizes", wrong_sizes),
    ("local_address", local_address),
    ("receive_time", receive_time),
    ("counters_while_running", counters_while_running),
];

fn truncation(subject: &Subject) -> Result<(), Skipped> {
    const ROOM: usize = 64;
    let (server, log) = subject.log(&Server::bind(any_port()).payload_bytes(ROOM));
    let to = server.local_addresses()[0];
    let sizes = [64, 65, 10, 1000, 9000, 64, 0, 128];
    let sent = send_all(&senders(1, to), to, sizes, 1, &log);
    let total = stop(server, &log);
    assert_eq!(total.truncated, 4);
    let seen = log.seen();
    for (number, (seen, size)) in seen.iter().zip(sizes).enumerate() {
        assert_eq!(seen.truncated, size > ROOM, "{size} bytes");
        assert_eq!(seen.bytes, pattern(number, size)[..size.min(ROOM)], "{size} bytes");
    }
    assert_eq!(sent.len(), seen.len());
    Ok(())
}

/// In the original a full-size datagram later in the same batch cancelled what one of another
/// size had begun.
fn wrong_sizes(subject: &Subject) -> Result<(), Skipped> {
    let (server, log) = subject.log(&Server::bind(any_port()).expected_bytes(100));
    let to = server.local_addresses()[0];
    let sizes = [100, 99, 100, 100, 101, 0, 100];
    send_all(&senders(1, to), to, sizes, sizes.len(), &log);
    let total = stop(server, &log);
    assert_eq!(total.wrong_size, 3);
    assert_eq!(total.datagrams, 7);
    Ok(())
}

fn local_address(subject: &Subject) -> Result<(), Skipped> {
    let options = SocketOptions { local_address: true, ..SocketOptions::default() };
    for at in ["127.0.0.1:0", "[::1]:0"] {
        let server = Server::bind(at.parse().unwrap()).socket_options(options);
        let (server, log) = start_or_skip(subject, &server, Answer::Nothing)?;
        let to = server.local_addresses()[0];
        let sent = send_all(&senders(2, to), to, [0, 10, 500, 1024], WINDOW, &log);
        stop(server, &log);
        let seen = log.seen();
        assert_same(&seen, &sent);
        let expected: Option<IpAddr> = Some(to.ip());
        assert!(seen.iter().all(|seen| seen.local == expected), "{seen:?}");
    }
    Ok(())
}

fn receive_time(subject: &Subject) -> Result<(), Skipped> {
    let options = SocketOptions { receive_time: true, ..SocketOptions::default() };
    let server = Server::bind(any_port()).socket_options(options);
    let (server, log) = start_or_skip(subject, &server, Answer::Nothing)?;
    let to = server.local_addresses()[0];
    let sent = send_all(&senders(1, to), to, [0, 10, 1024], WINDOW, &log);
    stop(server, &log);
    let seen = log.seen();
    assert_same(&seen, &sent);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    for seen in seen {
        let at = seen.received_at.expect("asked for");
        assert!(now.abs_diff(at) < Duration::from_secs(60), "{at:?} at {now:?}");
    }
    Ok(())
}

/// Counters may be read at any time, and never run backwards.
fn counters_while_running(subject: &Subject) -> Result<(), Skipped> {
    let (server, log) = subject.log(&Server::bind(any_port()));
    let to = server.local_addresses()[0];
    let senders = senders(1, to);
    let mut last = 0;
    for round in 1..=20 {
        send_all(&senders, to, std::iter::repeat_n(100, 10), WINDOW, &log);
        let now: u64 = server.counters().iter().map(|counters| counters.datagrams).sum();
        assert!(now >= last, "{now} after {last}");
        // The handler of the last one may still run; those before it are counted.
        assert!((round * 10 - 1..=round * 10).contains(&now), "{now} in round {round}");
        last = now;
    }
    assert!(server.is_running());
    let total = stop(server, &log);
    assert_eq!(total.datagrams, 200);
    Ok(())
}
