//! What a socket says of datagrams, and does with them: without quinn's endpoints.

use crate::on_each;
use quinn::{
    AsyncUdpSocket, Runtime, TokioRuntime,
    udp::{EcnCodepoint, RecvMeta, Transmit},
};
use std::{
    future::poll_fn,
    io::IoSliceMut,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
};
use weir_quinn::{Settings, WeirSocket};

on_each! {
    datagrams_come_with_all_that_quinn_asks_for
    what_is_sent_before_the_end_leaves
    a_port_is_free_when_its_socket_is_gone
    one_that_cannot_be_sent_is_counted_and_the_next_leaves
    a_buffer_that_is_too_short_loses_what_does_not_fit
    a_burst_beyond_the_receives_is_received_to_its_end
}

fn bind(address: &str, settings: &Settings) -> Arc<WeirSocket> {
    let runtime: Arc<dyn Runtime> = Arc::new(TokioRuntime);
    Arc::new(WeirSocket::bind(address.parse().unwrap(), settings, &runtime).unwrap())
}

/// What one receive gave: what was told of each buffer, and its bytes.
async fn receive(socket: &WeirSocket, buffer_bytes: usize) -> Vec<(RecvMeta, Vec<u8>)> {
    let mut memory = vec![vec![0; buffer_bytes]; 4];
    let mut metas = [RecvMeta::default(); 4];
    let count = {
        let mut buffers: Vec<_> = memory.iter_mut().map(|buffer| IoSliceMut::new(buffer)).collect();
        poll_fn(|cx| socket.poll_recv(cx, &mut buffers, &mut metas)).await.unwrap()
    };
    let of = |(meta, bytes): (RecvMeta, Vec<u8>)| (meta, bytes[..meta.len].to_vec());
    let came = metas.into_iter().zip(memory).take(count).map(of);
    came.filter(|(meta, _)| meta.len > 0).collect() // quinn passes over those that are empty
}

async fn send(socket: &Arc<WeirSocket>, transmit: &Transmit<'_>) {
    let mut poller = Arc::clone(socket).create_io_poller();
    loop {
        poll_fn(|cx| poller.as_mut().poll_writable(cx)).await.unwrap();
        match socket.try_send(transmit) {
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
            other => return other.unwrap(),
        }
    }
}

fn to(destination: SocketAddr, contents: &[u8]) -> Transmit<'_> {
    Transmit { destination, ecn: None, contents, segment_size: None, src_ip: None }
}

async fn datagrams_come_with_all_that_quinn_asks_for(settings: Settings) {
    let (one, other) = (bind("0.0.0.0:0", &settings), bind("0.0.0.0:0", &settings));
    let port = one.local_addr().unwrap().port();
    let destination = SocketAddr::from(([127, 0, 0, 2], port));
    let marks = one
        .effective()
        .iter()
        .any(|(name, value)| *name == "marks-of-congestion" && value == "yes");
    let source: IpAddr = Ipv4Addr::new(127, 0, 0, 3).into();
    for ecn in [Some(EcnCodepoint::Ect0), Some(EcnCodepoint::Ect1), None] {
        let transmit = Transmit {
            destination,
            ecn,
            contents: &[[1; 700], [2; 700], [3; 700]].concat()[..1500],
            segment_size: Some(700),
            src_ip: cfg!(target_os = "linux").then_some(source),
        };
        send(&other, &transmit).await;
        let mut datagrams = Vec::new();
        while datagrams.len() < 3 {
            for (meta, bytes) in receive(&one, 1 << 16).await {
                assert_eq!(meta.dst_ip, Some(destination.ip()));
                assert_eq!(meta.ecn, ecn.filter(|_| marks));
                assert_eq!(meta.addr.port(), other.local_addr().unwrap().port());
                if transmit.src_ip.is_some() {
                    assert_eq!(meta.addr.ip(), source);
                }
                datagrams.extend(bytes.chunks(meta.stride).map(<[u8]>::to_vec));
            }
        }
        assert_eq!(datagrams, [vec![1; 700], vec![2; 700], vec![3; 100]]);
    }
    assert!(!one.may_fragment() && one.max_transmit_segments() == 64);
}

async fn what_is_sent_before_the_end_leaves(settings: Settings) {
    let (one, other) = (bind("127.0.0.1:0", &settings), bind("127.0.0.1:0", &settings));
    for number in 0..10 {
        other.try_send(&to(one.local_addr().unwrap(), &[number])).unwrap();
    }
    let stats = other.stats();
    drop(other);
    assert_eq!(stats.slices().0, stats.slices().1);
    let mut came = Vec::new();
    while came.len() < 10 {
        for (meta, bytes) in receive(&one, 1 << 16).await {
            came.extend(bytes.chunks(meta.stride).map(|datagram| datagram[0]));
        }
    }
    assert_eq!(came, (0..10).collect::<Vec<_>>());
}

async fn a_port_is_free_when_its_socket_is_gone(settings: Settings) {
    // Another process may take a port at once that is free again: then it is tried with another.
    for tried in 1.. {
        let address = had_a_port(&settings).await;
        match std::net::UdpSocket::bind(address) {
            Ok(_) => return,
            Err(error) => assert!(tried < 5, "{address}: {error}"),
        }
    }
}

/// An address at which there was a socket.
async fn had_a_port(settings: &Settings) -> SocketAddr {
    let socket = bind("127.0.0.1:0", settings);
    let address = socket.local_addr().unwrap();
    // Somebody was about to receive.
    let waiting = tokio::spawn({
        let socket = Arc::clone(&socket);
        async move { receive(&socket, 1 << 16).await.len() }
    });
    tokio::task::yield_now().await;
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    let poller = Arc::clone(&socket).create_io_poller();
    drop((socket, poller));
    address
}

async fn one_that_cannot_be_sent_is_counted_and_the_next_leaves(settings: Settings) {
    let (one, other) = (bind("127.0.0.1:0", &settings), bind("127.0.0.1:0", &settings));
    // An address of IPv6 by a socket of IPv4.
    other.try_send(&to("[::1]:9".parse().unwrap(), b"nowhere")).unwrap();
    other.try_send(&to(one.local_addr().unwrap(), b"here")).unwrap();
    let came = receive(&one, 1 << 16).await;
    assert_eq!((came.len(), &came[0].1[..]), (1, &b"here"[..]));
    let stats = other.stats();
    drop(other);
    let counters = stats.counters();
    // Where it was not heard of before the end nobody counted it.
    assert!(counters.send_errors <= 1 && counters.replies <= 1, "{counters:?}");
}

async fn a_buffer_that_is_too_short_loses_what_does_not_fit(settings: Settings) {
    let one = bind("127.0.0.1:0", &settings);
    // Each leaves by itself: of those that come as one all would be lost with the first that does not fit.
    let other = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    other.connect(one.local_addr().unwrap()).unwrap();
    let mut came = Vec::new();
    for contents in [&[1; 100][..], &[2; 1000], &[3; 100]] {
        other.send(contents).unwrap();
    }
    while came.len() < 2 {
        came.extend(receive(&one, 500).await.into_iter().map(|(_, bytes)| bytes));
    }
    assert_eq!(came, [[1; 100], [3; 100]]);
    assert_eq!(one.stats().counters().truncated, 1);
}

async fn a_burst_beyond_the_receives_is_received_to_its_end(settings: Settings) {
    let one = bind("127.0.0.1:0", &settings.receives(2));
    let other = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    for number in 0..10 {
        other.send_to(&[number], one.local_addr().unwrap()).unwrap();
    }
    let mut came = Vec::new();
    while came.len() < 10 {
        for (meta, bytes) in receive(&one, 1 << 16).await {
            came.extend(bytes.chunks(meta.stride).map(|datagram| datagram[0]));
        }
    }
    came.sort_unstable();
    assert_eq!(came, (0..10).collect::<Vec<_>>());
}
