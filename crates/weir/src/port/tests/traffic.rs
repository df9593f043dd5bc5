//! Datagrams: every one once, whole, with its source.

use super::*;
use crate::{
    rio::{Peer, Span},
    socket::{TOO_MANY_SEGMENTS, replies_from_local_address},
};
use std::{
    collections::HashSet,
    num::NonZeroU16,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
};

#[test]
fn all_sizes_with_their_sources() {
    if cannot_run_here() {
        return;
    }
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let address: SocketAddr = address.parse().unwrap();
        let bench = bench_at(Native::default(), needs(), address.into());
        let peer = UdpSocket::bind(address).unwrap();
        let mut worker = bench.port.worker().unwrap();
        bench.post(&mut worker, 1);
        for size in (0..=256).step_by(16) {
            let sent: Vec<u8> = (0..size).map(|i| i as u8).collect();
            peer.send_to(&sent, bench.address).unwrap();
            let (slice, arrival) = take_datagram(&mut worker);
            assert_eq!(arrival.from, peer.local_addr().unwrap());
            assert_eq!((arrival.len, arrival.truncated), (size, false));
            assert_eq!(slice.payload()[..size], sent);
            worker.receive(bench.socket, slice).unwrap();
        }
        drop(worker);
        bench.stop();
    }
}

#[test]
fn the_longest_datagram_and_one_that_is_too_long() {
    if cannot_run_here() {
        return;
    }
    let bench = bench(Native::default(), Needs { payload: 65_507, receives: 2, ..needs() });
    let mut worker = bench.port.worker().unwrap();
    bench.post(&mut worker, 2);
    let sent: Vec<u8> = (0..65_507).map(|i| (i % 251) as u8).collect();
    sender().send_to(&sent, bench.address).unwrap();
    let (slice, arrival) = take_datagram(&mut worker);
    assert_eq!((arrival.len, arrival.truncated), (65_507, false));
    assert_eq!(slice.payload()[..65_507], sent);
    drop((slice, worker));
    bench.stop();

    let bench = super::bench(Native::default(), needs());
    let mut worker = bench.port.worker().unwrap();
    bench.post(&mut worker, 1);
    sender().send_to(&sent[..257], bench.address).unwrap();
    let (slice, arrival) = take_datagram(&mut worker);
    assert_eq!((arrival.len, arrival.truncated), (256, true));
    drop((slice, worker));
    bench.stop();
}

/// Whether it lies in the socket when its receive is started, or comes later; and the slot is used again.
pub fn every_datagram_that_is_too_long_is_told_once(provider: Native) {
    let bench = bench(provider, Needs { receives: 1, ..needs() });
    let counters = Counters::default();
    let mut worker = bench.port.worker().unwrap();
    let sender = sender();
    for round in 0..20u8 {
        let lies_there = round % 2 == 0;
        let send = |len: usize| sender.send_to(&vec![round; len], bench.address).unwrap();
        if lies_there {
            send(257);
        }
        worker.receive(bench.socket, bench.region.take().unwrap()).unwrap();
        worker.commit(&counters).unwrap();
        if !lies_there {
            send(257);
        }
        let (slice, arrival) = take_datagram(&mut worker);
        assert_eq!((arrival.len, arrival.truncated), (256, true));
        assert_eq!(slice.payload()[..256], [round; 256]);
        // The next is not ended by what is left of this one.
        worker.receive(bench.socket, slice).unwrap();
        let time = Some(Duration::from_millis(1));
        assert_eq!(worker.take(&mut Taken::new(1), time, &counters).unwrap(), Some(0));
        send(9);
        let (_, arrival) = take_datagram(&mut worker);
        assert_eq!((arrival.len, arrival.truncated), (9, false));
    }
    drop(worker);
    bench.stop();
}

#[test]
fn what_is_too_long_is_told_once() {
    if cannot_run_here() {
        return;
    }
    every_datagram_that_is_too_long_is_told_once(Native::default());
}

#[test]
fn what_is_longer_than_any_datagram_is_not_sent_and_comes_back() {
    if cannot_run_here() {
        return;
    }
    let bench = bench(Native::default(), Needs { payload: 65_535, sends: 1, ..needs() });
    let to = Peer::from(bench.address);
    let mut worker = bench.port.worker().unwrap();
    for _ in 0..3 {
        let slice = bench.region.take().unwrap();
        worker.send(bench.socket, slice, 65_508, &to).unwrap();
        let (_, _, outcome) = take_operation(&mut worker);
        assert!(matches!(outcome, Outcome::NotSent(_)), "{outcome:?}");
    }
    drop(worker);
    bench.stop();
}

#[test]
fn local_address_and_receive_time_where_asked_and_replies_from_there() {
    if cannot_run_here() {
        return;
    }
    let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let endpoint = |receive_time| {
        let options = SocketOptions { local_address: true, receive_time, ..Default::default() };
        Endpoint { address, options }
    };
    let has_time = DatagramSocket::bind(&endpoint(true)).is_ok();
    let bench = bench_at(Native::default(), needs(), endpoint(has_time));
    let mut worker = bench.port.worker().unwrap();
    bench.post(&mut worker, 1);
    let peer = sender();
    peer.set_read_timeout(Some(LONG)).unwrap();
    let local = Ipv4Addr::new(127, 0, 0, 2);
    peer.send_to(b"from where?", (local, bench.address.port())).unwrap();
    let (slice, arrival) = take_datagram(&mut worker);
    assert_eq!(arrival.local, Some(local.into()));
    assert_eq!(arrival.at.is_some(), has_time);
    if let Some(at) = arrival.at {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        assert!(now.abs_diff(at) < Duration::from_secs(60));
    }
    let answered = !cannot_run("replies", replies_from_local_address());
    let to = Peer { address: arrival.from, local: arrival.local, link: None, ecn: None };
    worker.send(bench.socket, slice, arrival.len, &to).unwrap();
    let (_, slice, outcome) = take_operation(&mut worker);
    assert!(matches!(outcome, Outcome::Sent(Span { len: 11, segment: None })), "{outcome:?}");
    let mut buffer = [0; 32];
    let from = SocketAddr::from((local, bench.address.port()));
    let (len, source) = peer.recv_from(&mut buffer).unwrap();
    assert_eq!((len, source.port()), (11, from.port()));
    assert!(source == from || !answered, "{source}");
    drop((slice, worker));
    bench.stop();
}

#[test]
fn several_datagrams_leave_at_once_or_each_by_itself() {
    if cannot_run_here() {
        return;
    }
    let bench = bench(Native::default(), needs());
    let peer = UdpSocket::bind(LOCALHOST).unwrap();
    peer.set_read_timeout(Some(LONG)).unwrap();
    let mut worker = bench.port.worker().unwrap();
    for count in [5, TOO_MANY_SEGMENTS] {
        let span = Span { len: count, segment: NonZeroU16::new(1) };
        for (address, reached) in
            [(peer.local_addr().unwrap(), true), ("[::1]:9".parse().unwrap(), false)]
        {
            let mut slice = bench.region.take().unwrap();
            slice.payload_mut()[..count].fill(count as u8);
            worker.send(bench.socket, slice, span, &Peer::from(address)).unwrap();
            match take_operation(&mut worker).2 {
                Outcome::Sent(sent) => assert!(reached && sent == span),
                Outcome::NotSent(unsent) => assert!(!reached && unsent.datagrams as usize == count),
                other => panic!("{other:?}"),
            }
        }
        let mut buffer = [0; 8];
        for _ in 0..count {
            assert_eq!(peer.recv_from(&mut buffer).unwrap().0, 1);
            assert_eq!(buffer[0], count as u8);
        }
    }
    drop(worker);
    bench.stop();
}

#[test]
fn an_echo_moves_the_slice_that_it_received() {
    if cannot_run_here() {
        return;
    }
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let address: SocketAddr = address.parse().unwrap();
        let bench = bench_at(Native::default(), needs(), address.into());
        let peer = UdpSocket::bind(address).unwrap();
        peer.set_read_timeout(Some(LONG)).unwrap();
        let mut worker = bench.port.worker().unwrap();
        bench.post(&mut worker, 1);
        for n in 0..20u8 {
            peer.send_to(&vec![n; n as usize], bench.address).unwrap();
            let (slice, arrival) = take_datagram(&mut worker);
            let index = slice.index();
            let to = Peer::from(arrival.from);
            worker.send(bench.socket, slice, arrival.len, &to).unwrap();
            let (_, slice, outcome) = take_operation(&mut worker);
            assert!(
                matches!(outcome, Outcome::Sent(Span { len, .. }) if len == n as usize),
                "{outcome:?}"
            );
            assert_eq!(slice.index(), index);
            let mut buffer = [0; 32];
            assert_eq!(peer.recv_from(&mut buffer).unwrap(), (n as usize, bench.address));
            assert!(buffer[..n as usize].iter().all(|&byte| byte == n));
            worker.receive(bench.socket, slice).unwrap();
        }
        drop(worker);
        bench.stop();
    }
}

/// `count` datagrams from three senders to `threads` threads, never more under way than the
/// socket's buffer holds: every one arrives, once. An eighth of them where checks are made once (WEIR_EACH_ONCE), as in
/// the conformance suites.
pub fn every_datagram_once(provider: Native, needs: Needs, per_take: usize, count: usize) {
    let is_each_once = std::env::var_os("WEIR_EACH_ONCE").is_some();
    let count = if is_each_once { count.div_ceil(8) } else { count };
    let bench = bench(provider, needs);
    let (seen, received) = (Mutex::new(HashSet::new()), AtomicUsize::new(0));
    let posted = std::sync::Barrier::new(2);
    thread::scope(|scope| {
        for thread in 0..needs.threads {
            let (bench, seen, received, posted) = (&bench, &seen, &received, &posted);
            scope.spawn(move || {
                let counters = Counters::default();
                let mut worker = bench.port.worker().unwrap();
                let mut out = Taken::new(per_take);
                if thread == 0 {
                    bench.post(&mut worker, needs.receives);
                    posted.wait();
                }
                while let Some(taken) = worker.take(&mut out, None, &counters).unwrap() {
                    assert!((1..=per_take).contains(&taken));
                    for completion in out.drain() {
                        let Completion::Operation { slice, outcome, .. } = completion else {
                            panic!("nobody posted a packet");
                        };
                        if let Outcome::Received(arrival) = outcome {
                            assert_eq!(arrival.len, 16);
                            let number = slice.payload()[..8].try_into().unwrap();
                            let new = (u64::from_le_bytes(number), arrival.from);
                            assert!(seen.lock().unwrap().insert(new), "{new:?} came twice");
                            received.fetch_add(1, SeqCst);
                        }
                        // Closing may come before this.
                        let _ = worker.receive(bench.socket, slice);
                    }
                }
            });
        }
        posted.wait();
        let senders = [sender(), sender(), sender()];
        let began = Instant::now();
        for number in 0..count {
            while number > received.load(SeqCst) + 100 {
                assert!(began.elapsed() < LONG, "{} of {number}", received.load(SeqCst));
                thread::yield_now();
            }
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&(number as u64).to_le_bytes());
            senders[number % 3].send_to(&bytes, bench.address).unwrap();
        }
        while received.load(SeqCst) < count {
            assert!(began.elapsed() < LONG, "{} of {count}", received.load(SeqCst));
            thread::yield_now();
        }
        bench.port.close();
    });
    assert_eq!(seen.into_inner().unwrap().len(), count);
    bench.stop();
}

#[test]
fn every_datagram_once_with_one_thread() {
    if cannot_run_here() {
        return;
    }
    let needs = Needs { threads: 1, ..needs() };
    every_datagram_once(Native::default(), needs, 1, 3000);
    every_datagram_once(Native::default(), needs, 1000, 3000);
}

#[test]
fn every_datagram_once_with_many_threads() {
    if cannot_run_here() {
        return;
    }
    for concurrency in [1, 2, 4] {
        let needs = Needs { concurrency, ..needs() };
        every_datagram_once(Native::default(), needs, 1, 3000);
        every_datagram_once(Native::default(), needs, 100, 3000);
    }
}

#[test]
fn every_datagram_once_with_one_receive_armed() {
    if cannot_run_here() {
        return;
    }
    every_datagram_once(native(1, 1), needs(), 8, 2000);
}

#[test]
fn every_datagram_once_in_the_original_shape() {
    if cannot_run_here() {
        return;
    }
    let needs = Needs { receives: 5000, threads: 8, ..needs() };
    every_datagram_once(native(5000, 1), needs, 1, 3000);
}

#[test]
fn two_sockets_share_a_port() {
    if cannot_run_here() {
        return;
    }
    let needs = Needs { sockets: 2, ..needs() };
    let bench = bench(Native::default(), needs);
    let second = DatagramSocket::bind(&LOCALHOST.into()).unwrap();
    let second_address = second.local_address();
    let second = bench.port.associate(second, Key(8)).unwrap();
    let third = DatagramSocket::bind(&LOCALHOST.into()).unwrap();
    let error = bench.port.associate(third, Key(9)).unwrap_err().to_string();
    assert!(error.contains("opened for 2"), "{error}");
    let mut worker = bench.port.worker().unwrap();
    worker.receive(bench.socket, bench.region.take().unwrap()).unwrap();
    worker.receive(second, bench.region.take().unwrap()).unwrap();
    sender().send_to(b"to the second", second_address).unwrap();
    match take_one(&mut worker) {
        Completion::Operation { socket, key, .. } => assert_eq!((socket, key), (second, Key(8))),
        Completion::Packet(packet) => panic!("{packet:?}"),
    }
    drop(worker);
    bench.stop();
}
