//! Every engine sends real datagrams over loopback, and every one is looked at.

use std::{
    io::Read as _,
    net::{Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket},
    thread,
    time::Instant,
};

use super::*;
use crate::{
    stamp::{DATAGRAM_BYTES_MAX, Stamp, body_is_intact},
    sys, wine,
};

fn sink(ipv6: bool) -> (UdpSocket, SocketAddr) {
    let at: SocketAddr =
        if ipv6 { (Ipv6Addr::LOCALHOST, 0).into() } else { (Ipv4Addr::LOCALHOST, 0).into() };
    let sink = UdpSocket::bind(at).expect("loopback can be bound");
    sink.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout can be set");
    let at = sink.local_addr().expect("it has an address");
    (sink, at)
}

/// Engines that this machine can open; `send` is always one of them.
fn usable() -> Vec<&'static About> {
    let usable: Vec<_> = engines().iter().filter(|about| about.probe().is_ok()).collect();
    assert!(usable.iter().any(|about| about.name == "send"));
    usable
}

/// Sends two batches of every length that matters on two lanes and checks what arrives.
fn check(about: &About, size_bytes: usize, ipv6: bool) {
    let (sink, at) = sink(ipv6);
    let lanes: Vec<_> = (0..2)
        .map(|flow| Lane::connect(at, flow, Blocking::Yes).expect("loopback is reachable"))
        .collect();
    assert_ne!(lanes[0].local.port(), lanes[1].local.port());
    let mut engine = (about.open)(size_bytes, &lanes).expect("the engine was probed");
    let capacity = engine.capacity();
    let mut next = [0u64; 2];
    let secret = Secret::random();
    let mut received = vec![0; DATAGRAM_BYTES_MAX + 1];
    for datagrams in [capacity, 1, capacity.div_ceil(2), capacity] {
        // What is on its way must fit into the receiving socket's buffer.
        let datagrams = datagrams.min((100_000 / size_bytes.max(1000)) as u32).max(1);
        for (lane, next) in lanes.iter().zip(&mut next) {
            let (flow, first_sequence) = (lane.flow, *next);
            let batch = Batch {
                run: 77,
                flow,
                first_sequence,
                due_ns: 5,
                datagrams,
                secret,
                head: Head::default(),
            };
            let sent = engine.send(lane, &batch);
            assert_eq!((sent.sent, sent.refused), (datagrams, 0), "{}", about.name);
            assert!(sent.failure.is_none());
            for sequence in first_sequence..first_sequence + u64::from(datagrams) {
                let (size, from) = sink.recv_from(&mut received).expect("it arrives");
                assert_eq!((size, from.port()), (size_bytes, lane.local.port()));
                assert!(body_is_intact(&received[..size]));
                if size_bytes >= STAMP_BYTES {
                    let stamp = batch.stamp(sequence);
                    assert_eq!(Stamp::read(&received[..size]), Ok(stamp));
                }
            }
            *next += u64::from(datagrams);
        }
    }
}

#[test]
fn every_datagram_arrives_as_it_was_sent() {
    for about in usable() {
        for size_bytes in [1, 31, 32, 33, 64, 1024, 1472] {
            check(about, size_bytes, false);
        }
        check(about, 64, true);
        check(about, 1452, true);
    }
}

#[test]
fn empty_and_large_datagrams_go_where_the_engine_takes_them() {
    let offloads = |about: &&About| ["gso", "uso"].contains(&about.name);
    for about in usable().into_iter().filter(|about| !offloads(about)) {
        check(about, 0, false);
        check(about, 20_000, false);
        check(about, DATAGRAM_BYTES_MAX, false);
    }
}

#[test]
fn what_nobody_receives_is_refused_and_counted() {
    if wine::SEND_TELLS_OF_NO_RECEIVER.is_left_out() {
        return;
    }
    for about in usable() {
        // Who is connected to one, here to itself, receives from no other, and keeps the port from other tests.
        let (sink, at) = sink(false);
        sink.connect(at).expect("loopback is reachable");
        let lane = Lane::connect(at, 0, Blocking::Yes).expect("connecting sends nothing");
        let mut engine = (about.open)(64, std::slice::from_ref(&lane)).expect("probed");
        let secret = Secret::random();
        let (mut offered, mut taken, mut refusals) = (0, 0, Refusals::default());
        // The answer that nobody receives it comes when the system has had time for it.
        let by = Instant::now() + Duration::from_secs(60);
        for first_sequence in 0.. {
            if first_sequence >= 20 && (refusals.connection_refused > 0 || Instant::now() >= by) {
                break;
            }
            let batch = Batch {
                run: 1,
                flow: 0,
                first_sequence,
                due_ns: 0,
                datagrams: 1,
                secret,
                head: Head::default(),
            };
            let sent = engine.send(&lane, &batch);
            assert!(sent.failure.is_none(), "{}: {:?}", about.name, sent.failure);
            offered += 1;
            taken += sent.sent;
            if let Some(refusal) = sent.refusal {
                refusals.add(refusal, sent.refused.into());
            }
        }
        assert!(refusals.connection_refused > 0, "{}", about.name);
        assert_eq!(u64::from(taken) + refusals.total(), offered);
    }
}

#[test]
fn a_lost_socket_is_a_failure_and_no_refusal() {
    let gone = Sent::until(3, 5, io::Error::from(io::ErrorKind::NotConnected));
    assert_eq!((gone.sent, gone.refused, gone.failed), (3, 0, 5));
    assert!(gone.failure.is_some());
    let full = Sent::until(3, 5, io::Error::from(io::ErrorKind::WouldBlock));
    assert_eq!((full.sent, full.refused, full.failed), (3, 5, 0));
    assert!(full.failure.is_none());
}

#[test]
fn the_best_engine_is_chosen_by_trying() {
    let (_sink, at) = sink(false);
    let lane = Lane::connect(at, 0, Blocking::Yes).expect("loopback is reachable");
    let lanes = std::slice::from_ref(&lane);
    let Best { about, engine, passed_over } = open_best(0, lanes).expect("send always works");
    assert!(!["gso", "uso"].contains(&about.name), "empty datagrams are cut from nothing");
    assert!(engine.capacity() >= 1);
    assert_eq!(passed_over[0].what, format!("engine {}", engines()[0].name));
    assert!(named("send").is_ok());
    assert!(named("pigeon").unwrap_err().to_string().contains("sendmmsg"));
}

/// A send that found no room in time is refused, and the socket is as good as before: what was taken arrives whole, and
/// what is sent later behind it. Of a stream, since a datagram on loopback nearly always finds room.
#[test]
fn a_send_that_waited_for_room_in_vain_loses_nothing() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback can be bound");
    let sender =
        TcpStream::connect(listener.local_addr().expect("its address")).expect("connected");
    let (mut receiver, _) = listener.accept().expect("it connects");
    receiver.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout can be set");
    let (sender, within) = (socket2::Socket::from(sender), Duration::from_millis(20));
    sys::limit_waits(&sender, within).expect("waits can be limited");
    let bytes: Vec<u8> = (0..64 << 10).map(|place| (place % 251) as u8).collect();
    let mut taken = 0;
    let send = |taken: &mut usize| {
        // From where the pattern goes on.
        let sent = sys::send(&sender, &bytes[*taken % 251..], Some(within));
        sent.map(|sent| *taken += sent)
    };
    let full = loop {
        if let Err(error) = send(&mut taken) {
            break error;
        }
    };
    assert_eq!(refusal_of(&full), Some(Refusal::WouldBlock));
    let all = thread::scope(|scope| {
        let reading = scope.spawn(move || {
            let mut all = Vec::new();
            receiver.read_to_end(&mut all).map(|_| all)
        });
        while send(&mut taken).is_err() {} // until there is room
        sender.shutdown(Shutdown::Write).expect("it is connected");
        reading.join().expect("it reads").expect("all is read")
    });
    assert_eq!(all.len(), taken);
    let other = all.iter().enumerate().find(|(place, byte)| **byte != (place % 251) as u8);
    assert_eq!(other, None, "what was taken arrives in order");
}
