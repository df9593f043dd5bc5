//! What a server tells of each datagram, and what it counts.

use super::{support::*, wine};
use std::{
    net::{IpAddr, Ipv6Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use weir::{
    Error,
    socket::{ReceiveBuffer, SocketOptions, SocketState},
    udp::{Datagram, Replies, Server},
};

pub const CHECKS: &[Check] = &[
    ("truncation", truncation),
    ("wrong_sizes", wrong_sizes),
    ("local_address", local_address),
    ("receive_time", receive_time),
    ("counters_while_running", counters_while_running),
    ("drops_of_each_socket", drops_of_each_socket),
    ("bursts", bursts),
    ("busy_poll", busy_poll),
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
    let options = SocketOptions::default().local_address(true);
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
    let options = SocketOptions::default().receive_time(true);
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

/// Drops at the sockets of an address; several may share it.
fn dropped_at(sockets: &[SocketState], address: SocketAddr) -> Option<u64> {
    let those = sockets.iter().filter(|socket| socket.address == address);
    those.map(|socket| socket.usage.drops).sum()
}

/// What the system drops at a socket is told of that socket, exactly, while the server runs and at its
/// end: what was sent there was handled or dropped.
fn drops_of_each_socket(subject: &Subject) -> Result<(), Skipped> {
    const SENT: u64 = 3000;
    let held = Arc::new(AtomicBool::new(true));
    let handled = Arc::new(AtomicU64::new(0));
    let (hold, count) = (Arc::clone(&held), Arc::clone(&handled));
    let make = move |_| {
        let (hold, count) = (Arc::clone(&hold), Arc::clone(&count));
        move |_: Datagram<'_>, _: &mut Replies<'_>| {
            until("the end of the hold", || !hold.load(Relaxed));
            count.fetch_add(1, Relaxed);
        }
    };
    let options = SocketOptions::default().receive_buffer(ReceiveBuffer::Bytes(4096));
    let six = SocketAddr::from((Ipv6Addr::LOCALHOST, 0));
    let server = Server::bind(any_port()).and_bind(six).socket_options(options);
    let server = subject.start(&server, make).unwrap();
    let addresses = server.local_addresses().to_vec();
    let (flooded, spared) = (addresses[0], addresses[1]);
    if dropped_at(&server.sockets(), flooded).is_none() {
        held.store(false, Relaxed);
        return Err(Skipped("this system does not tell what it drops at a socket".into()));
    }
    let sender = &senders(1, flooded)[0];
    for number in 0..SENT {
        sender.send_to(&number.to_le_bytes(), flooded).unwrap();
    }
    let live = dropped_at(&server.sockets(), flooded).expect("told above");
    assert!(live > 0, "nothing was dropped");
    held.store(false, Relaxed);
    until("an account of every datagram", || {
        let dropped = dropped_at(&server.sockets(), flooded).expect("told above");
        handled.load(Relaxed) + dropped == SENT
    });
    let report = server.stop();
    assert_whole(&report);
    assert_eq!(dropped_at(&report.sockets, flooded), Some(SENT - report.total().datagrams));
    assert_eq!(dropped_at(&report.sockets, spared), Some(0));
    Ok(())
}

/// As many datagrams as receives are outstanding, sent at once while every thread is held that has one to handle.
fn bursts(subject: &Subject) -> Result<(), Skipped> {
    const OUTSTANDING: u64 = 3000;
    if !subject.has("outstanding") {
        return Ok(()); // it has none, and the system's buffer
    }
    wine::ROOM_FOR_DATAGRAMS.leaves_out().map_or(Ok(()), |why| Err(Skipped(why)))?;
    let mut design = subject.design();
    design.set("outstanding", &OUTSTANDING.to_string()).expect("within the limits");
    let held = Arc::new(AtomicBool::new(true));
    let handled = Arc::new(AtomicU64::new(0));
    let (hold, count) = (Arc::clone(&held), Arc::clone(&handled));
    let make = move |_| {
        let (hold, count) = (Arc::clone(&hold), Arc::clone(&count));
        move |_: Datagram<'_>, _: &mut Replies<'_>| {
            until("the end of the hold", || !hold.load(Relaxed));
            count.fetch_add(1, Relaxed);
        }
    };
    let server = Server::bind(any_port()).payload_bytes(64);
    let server = subject.start_design(design, &server, make).unwrap();
    let told = server.effective().into_iter().find(|(name, _)| name == "receive-buffer");
    if let Some((_, told)) = &told
        && told.contains(" of ")
        && told.contains("rmem_max")
    {
        held.store(false, Relaxed);
        return Err(Skipped(told.clone()));
    }
    let to = server.local_addresses()[0];
    let sender = &senders(1, to)[0];
    for number in 0..OUTSTANDING {
        let mut bytes = [0; 64];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        sender.send_to(&bytes, to).unwrap();
    }
    held.store(false, Relaxed);
    let dropped = || dropped_at(&server.sockets(), to).unwrap_or(0);
    until("an account of every datagram", || handled.load(Relaxed) + dropped() >= OUTSTANDING);
    assert_eq!((handled.load(Relaxed), dropped()), (OUTSTANDING, 0), "{told:?}");
    assert_whole(&server.stop());
    Ok(())
}

/// What came of it is told: on loopback there is nothing to poll.
fn busy_poll(subject: &Subject) -> Result<(), Skipped> {
    let refuse = |time| {
        let server = Server::bind(any_port()).busy_poll(time);
        let error = subject.try_log(&server, Answer::Nothing).err().expect("refused").to_string();
        assert!(error.contains("busy-poll") && error.contains("1 µs to 1s"), "{error}");
    };
    refuse(Duration::ZERO);
    refuse(Duration::from_secs(2));
    let server = Server::bind(any_port()).busy_poll(Duration::from_micros(50));
    let (server, log) = match subject.try_log(&server, Answer::Nothing) {
        Ok(started) => started,
        Err(Error::Unavailable(reason)) => return Err(Skipped(reason.to_string())),
        Err(other) => panic!("{other}"),
    };
    let to = server.local_addresses()[0];
    send_all(&senders(1, to), to, [10; 50], WINDOW, &log);
    let effective = server.effective();
    let told = |name: &str| {
        let told = effective.iter().find(|(told, _)| told == name);
        told.unwrap_or_else(|| panic!("{name} is not told")).1.as_str()
    };
    assert_eq!(told("busy-poll-us"), "50");
    assert!(told("busy-poll").starts_with("50 µs"), "{}", told("busy-poll"));
    assert!(told("busy-poll-queues").starts_with("none"), "{}", told("busy-poll-queues"));
    assert!(server.sockets().iter().all(|socket| socket.napi_id.is_none()));
    if subject.at_defaults().about().contract != weir::udp::Contract::Socket {
        assert!(told("busy-poll-wait").contains("poll"), "{}", told("busy-poll-wait"));
    }
    stop(server, &log);
    Ok(())
}
