//! Plain sockets, on loopback.

use super::*;
use std::{
    collections::BTreeSet,
    net::{Ipv6Addr, UdpSocket},
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

fn bind(options: SocketOptions) -> DatagramSocket {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    DatagramSocket::bind(&Endpoint { address, options }).unwrap()
}

#[test]
fn one_datagram_with_its_source_and_truncation() {
    let (socket, counters) = (bind(SocketOptions::default()), Counters::default());
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    for sent in [&b"hello"[..], b"", b"longer than eight"] {
        peer.send_to(sent, socket.local_address()).unwrap();
        let mut buffer = [0; 8];
        let got = socket.receive(&mut buffer, Mode::Wait, &counters).unwrap().unwrap();
        let kept = sent.len().min(8);
        assert_eq!(got.from, peer.local_addr().unwrap());
        assert_eq!((got.len, got.truncated), (kept, sent.len() > 8));
        assert_eq!(&buffer[..kept], &sent[..kept]);
    }
    assert!(socket.receive(&mut [0; 8], Mode::Try, &counters).unwrap().is_none());
    assert!(counters.kernel_entries.get() >= 4);
}

#[test]
fn batches_keep_order_and_sources() {
    let (socket, counters) = (bind(SocketOptions::default()), Counters::default());
    let peers: Vec<_> = (0..3).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
    for i in 0..30u8 {
        let bytes = vec![i; i as usize % 5];
        peers[i as usize % 3].send_to(&bytes, socket.local_address()).unwrap();
    }
    let mut headers = Headers::new(16);
    let mut buffers: Vec<_> = (0..16).map(|_| vec![0u8; 4]).collect();
    let mut next = 0u8;
    while next < 30 {
        let n = socket.receive_many(&mut headers, &mut buffers, Mode::Wait, &counters).unwrap();
        assert!((1..=16).contains(&n));
        for (i, buffer) in buffers.iter().enumerate().take(n) {
            let got = headers.arrival(i);
            assert_eq!(got.from, peers[next as usize % 3].local_addr().unwrap());
            assert_eq!(got.len, next as usize % 5);
            assert!(buffer[..got.len].iter().all(|&byte| byte == next));
            next += 1;
        }
    }
    assert_eq!(socket.receive_many(&mut headers, &mut buffers, Mode::Try, &counters).unwrap(), 0);
}

#[test]
fn sends_singly_and_in_batches() {
    let (socket, counters) = (bind(SocketOptions::default()), Counters::default());
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = Peer::from(peer.local_addr().unwrap());
    socket.send(b"single", &to, &counters).unwrap();
    let batch: Vec<_> = (0..10u8).map(|i| (vec![i; 3], to)).collect();
    let mut headers = Headers::new(4);
    let mut sent = 0;
    while sent < batch.len() {
        let next = |i: usize| (&batch[sent + i].0[..], None, batch[sent + i].1);
        sent += socket.send_many(&mut headers, batch.len() - sent, next, &counters).unwrap();
    }
    let mut buffer = [0; 16];
    assert_eq!(peer.recv_from(&mut buffer).unwrap(), (6, socket.local_address()));
    for i in 0..10u8 {
        assert_eq!(peer.recv_from(&mut buffer).unwrap().0, 3);
        assert_eq!(buffer[..3], [i; 3]);
    }
}

#[test]
fn ending_wakes_every_waiter_and_lasts() {
    let socket = bind(SocketOptions::default());
    let waiters: Vec<_> = (0..4)
        .map(|i| {
            let socket = socket.clone();
            std::thread::spawn(move || {
                let counters = Counters::default();
                if i % 2 == 0 {
                    return socket.receive(&mut [0; 8], Mode::Wait, &counters).unwrap().is_none();
                }
                let mut buffers = [[0u8; 8]; 4];
                let mut headers = Headers::new(4);
                socket.receive_many(&mut headers, &mut buffers, Mode::Wait, &counters).unwrap() == 0
            })
        })
        .collect();
    socket.end_receiving();
    for waiter in waiters {
        assert!(waiter.join().unwrap());
    }
    assert!(socket.receive(&mut [0; 8], Mode::Wait, &Counters::default()).unwrap().is_none());
}

#[test]
fn ending_reaches_those_about_to_wait() {
    // The end comes at every stage of the others' receives.
    for _ in 0..200 {
        let socket = bind(SocketOptions::default());
        let start = std::sync::Barrier::new(4);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let counters = Counters::default();
                    start.wait();
                    let got = socket.receive(&mut [0; 8], Mode::Wait, &counters);
                    assert!(got.unwrap().is_none());
                });
            }
            start.wait();
            socket.end_receiving();
        });
    }
}

/// A socket on an address that was given back. Another test that starts a program holds its socket for a moment: until
/// exec(2) the program has what this process had open.
#[track_caller]
pub(crate) fn free_again(address: SocketAddr) -> UdpSocket {
    let by = Instant::now() + Duration::from_secs(60);
    loop {
        match UdpSocket::bind(address) {
            Ok(socket) => return socket,
            Err(e) if e.kind() == io::ErrorKind::AddrInUse && Instant::now() < by => {}
            Err(e) => panic!("binding to {address}: {e}"),
        }
        thread::yield_now();
    }
}

#[test]
fn an_address_in_use_is_named() {
    let socket = bind(SocketOptions::default());
    let error = DatagramSocket::bind(&socket.local_address().into()).unwrap_err().to_string();
    assert!(error.contains(&socket.local_address().to_string()), "{error}");
    assert!(error.contains("choose another port"), "{error}");
}

#[test]
fn ipv6_sources_are_told() {
    let address = SocketAddr::from((Ipv6Addr::LOCALHOST, 0));
    let socket = DatagramSocket::bind(&address.into()).unwrap();
    let peer = UdpSocket::bind("[::1]:0").unwrap();
    peer.send_to(b"six", socket.local_address()).unwrap();
    let got = socket.receive(&mut [0; 8], Mode::Wait, &Counters::default()).unwrap().unwrap();
    assert_eq!((got.len, got.from), (3, peer.local_addr().unwrap()));
}

#[test]
fn local_address_where_asked() {
    let options = SocketOptions { local_address: true, ..SocketOptions::default() };
    let mapped = Ipv4Addr::new(127, 0, 0, 2).to_ipv6_mapped();
    for (bound, from, to, told) in [
        ("0.0.0.0:0", "127.0.0.1:0", "127.0.0.2", IpAddr::from(Ipv4Addr::new(127, 0, 0, 2))),
        ("[::]:0", "[::1]:0", "::1", Ipv6Addr::LOCALHOST.into()),
        // The unspecified address of IPv6 receives IPv4 as well, in mapped form.
        ("[::]:0", "127.0.0.1:0", "127.0.0.2", mapped.into()),
    ] {
        let endpoint = Endpoint { address: bound.parse().unwrap(), options };
        let socket = DatagramSocket::bind(&endpoint).unwrap();
        let peer = UdpSocket::bind(from).unwrap();
        for sent in [&b"short"[..], b"longer than eight"] {
            peer.send_to(sent, (to, socket.local_address().port())).unwrap();
            let counters = Counters::default();
            let got = socket.receive(&mut [0; 8], Mode::Wait, &counters).unwrap().unwrap();
            assert_eq!((got.local, got.truncated), (Some(told), sent.len() > 8));
            assert_eq!(got.from.port(), peer.local_addr().unwrap().port());
            assert_eq!(got.from.is_ipv6(), socket.local_address().is_ipv6());
        }
    }
}

#[test]
fn what_is_sent_leaves_from_where_its_peer_says() {
    if replies_from_local_address().is_err() {
        return;
    }
    let options = SocketOptions { local_address: true, ..SocketOptions::default() };
    let everybody = IpAddr::from(Ipv4Addr::new(224, 0, 0, 1));
    let other = Ipv4Addr::new(127, 0, 0, 2);
    for (bound, local, source) in [
        ("0.0.0.0:0", other.into(), other),
        ("0.0.0.0:0", everybody, Ipv4Addr::LOCALHOST),
        ("[::]:0", other.to_ipv6_mapped().into(), other),
        ("[::]:0", other.into(), Ipv4Addr::LOCALHOST), // of another family: the system's choice
    ] {
        let endpoint = Endpoint { address: bound.parse().unwrap(), options };
        let socket = DatagramSocket::bind(&endpoint).unwrap();
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut address = receiver.local_addr().unwrap();
        if socket.local_address().is_ipv6() {
            address.set_ip(Ipv4Addr::LOCALHOST.to_ipv6_mapped().into());
        }
        let (to, counters) =
            (Peer { address, local: Some(local), link: None, ecn: None }, Counters::default());
        socket.send(b"one", &to, &counters).unwrap();
        let batch = |_| (&b"batch"[..], None, to);
        assert_eq!(socket.send_many(&mut Headers::new(2), 2, batch, &counters).unwrap(), 2);
        for length in [3, 5, 5] {
            let from = SocketAddr::from((source, socket.local_address().port()));
            assert_eq!(receiver.recv_from(&mut [0; 8]).unwrap(), (length, from), "{bound}");
        }
    }
}

#[test]
fn what_the_system_cannot_tell_is_refused_or_told() {
    let options = SocketOptions { receive_time: true, ..SocketOptions::default() };
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let socket = match DatagramSocket::bind(&Endpoint { address, options }) {
        Ok(socket) => socket,
        Err(error) => return assert!(matches!(error, Error::Unavailable(_)), "{error}"),
    };
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    peer.send_to(b"x", socket.local_address()).unwrap();
    let got = socket.receive(&mut [0; 8], Mode::Wait, &Counters::default()).unwrap().unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    assert!(now.abs_diff(got.at.unwrap()) < Duration::from_secs(60));
}

#[test]
fn segments_go_at_once_or_each_by_itself() {
    let (socket, counters) = (bind(SocketOptions::default()), Counters::default());
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = Peer::from(peer.local_addr().unwrap());
    for count in [5, TOO_MANY_SEGMENTS] {
        let bytes: Vec<_> = (0..count).flat_map(|i| [i as u8; 3]).collect();
        let segment = NonZeroU16::new(3).unwrap();
        socket.send_segments(&bytes, segment, &to, &counters).unwrap();
        for i in 0..count {
            let mut buffer = [0; 16];
            assert_eq!(peer.recv_from(&mut buffer).unwrap().0, 3);
            assert_eq!(buffer[..3], [i as u8; 3]);
        }
    }
}

#[test]
fn several_datagrams_come_as_one_where_that_was_asked_for() {
    let options = SocketOptions { receive_offload: true, ..SocketOptions::default() };
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let socket = match DatagramSocket::bind(&Endpoint { address, options }) {
        Ok(socket) => socket,
        Err(error) => return assert!(matches!(error, Error::Unavailable(_)), "{error}"),
    };
    let (sender, counters) = (bind(SocketOptions::default()), Counters::default());
    let (to, segment) = (Peer::from(socket.local_address()), NonZeroU16::new(10).unwrap());
    let mut buffer = vec![0; OFFLOADED_BYTES];
    for (len, several, datagrams) in [(95, Some(segment), 10), (10, None, 1), (0, None, 1)] {
        let bytes: Vec<_> = (0..len as u8).collect();
        match several {
            Some(segment) => sender.send_segments(&bytes, segment, &to, &counters).unwrap(),
            None => sender.send(&bytes, &to, &counters).unwrap(),
        }
        let got = socket.receive(&mut buffer, Mode::Wait, &counters).unwrap().unwrap();
        assert_eq!((got.len, got.segment, got.datagrams()), (len, several, datagrams));
        assert_eq!(buffer[..len], bytes);
    }
}

/// The system would choose a port that others share for one of so many now and then.
#[test]
fn a_port_that_the_system_chooses_is_shared_with_nobody() {
    let options = SocketOptions { reuse_port: true, ..SocketOptions::default() };
    for address in [SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), (Ipv6Addr::LOCALHOST, 0).into()] {
        let endpoint = Endpoint { address, options };
        let sockets: Vec<_> =
            (0..400).map_while(|_| DatagramSocket::bind(&endpoint).ok()).collect();
        let ports: BTreeSet<_> =
            sockets.iter().map(|socket| socket.local_address().port()).collect();
        assert_eq!(ports.len(), sockets.len());
        if cfg!(target_os = "linux") && address.is_ipv4() {
            assert_eq!(sockets.len(), 400);
        }
        if let Some(first) = sockets.first() {
            let its = Endpoint { address: first.local_address(), options };
            DatagramSocket::bind(&its).expect("who knows the port may share it");
        }
    }
}

fn bind_shard(address: SocketAddr, shard: Shard) -> Result<DatagramSocket, Error> {
    let steer_by_core = Some(shard);
    let options = SocketOptions { reuse_port: true, steer_by_core, ..SocketOptions::default() };
    DatagramSocket::bind(&Endpoint { address, options })
}

/// Whether sockets have the datagrams of a core, where the system says that they can. Under Wine it must say that
/// they cannot.
fn sockets_have_cores() -> bool {
    let told = datagrams_can_be_steered_by_core();
    let Err(why) = &told else { return true };
    if crate::wine::CPU_AFFINITY.is_left_out() {
        assert!(why.to_string().contains("SIO_CPU_AFFINITY"), "{why}");
    } else {
        eprintln!("not run: {why}");
    }
    false
}

#[test]
fn a_core_that_leads_to_another_socket_is_refused() {
    let any = (Ipv4Addr::LOCALHOST, 0).into();
    for wrong in [Shard { number: 0, of: 2, core: 5 }, Shard { number: 0, of: 0, core: 0 }] {
        let said = bind_shard(any, wrong).expect_err("refused").to_string();
        assert!(said.contains(&format!("core {} do not go to socket 0", wrong.core)), "{said}");
    }
    if sockets_have_cores() {
        let core = crate::affinity::allowed_cores()[0];
        bind_shard(any, Shard { number: (core % 2) as u16, of: 2, core }).unwrap();
    }
}

/// Whichever of them gets a datagram: one of them does, and nobody else.
#[test]
fn sockets_of_cores_share_an_address_and_each_datagram_reaches_one() {
    if !sockets_have_cores() {
        return;
    }
    let cores = crate::affinity::allowed_cores();
    let of = cores.len() as u16;
    let mut address = (Ipv4Addr::LOCALHOST, 0).into();
    let mut sockets = Vec::new();
    for (place, core) in cores.iter().copied().enumerate() {
        // Where the numbers of the cores have holes, one socket for all of them that there are.
        let shard = match core == place {
            true => Shard { number: place as u16, of, core },
            false => Shard { number: 0, of: 1, core },
        };
        let socket = bind_shard(address, shard).unwrap();
        address = socket.local_address();
        sockets.push(socket);
    }
    const DATAGRAMS: usize = 20;
    let (sender, counters) = (bind(SocketOptions::default()), Counters::default());
    (0..DATAGRAMS).for_each(|_| sender.send(b"one", &address.into(), &counters).unwrap());
    let mut came = 0;
    while came < DATAGRAMS {
        for socket in &sockets {
            let got = socket.receive(&mut [0; 16], Mode::Try, &counters).unwrap();
            came += usize::from(got.is_some());
        }
        std::thread::yield_now();
    }
}

/// A port that nobody else gets, and that takes nothing from anybody but itself.
fn nobody() -> UdpSocket {
    let nobody = UdpSocket::bind("127.0.0.1:0").unwrap();
    nobody.connect(nobody.local_addr().unwrap()).unwrap();
    nobody
}

/// Errors wait in the socket, more than are taken at a time: neither what is sent nor what is
/// received meanwhile is lost by them, and all are told in the end.
#[test]
fn errors_of_peers_are_taken_a_few_at_a_time() {
    const ERRORS: usize = MOST_ERRORS + 20;
    let options = SocketOptions { peer_errors: true, ..SocketOptions::default() };
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let socket = match DatagramSocket::bind(&Endpoint { address, options }) {
        Ok(socket) => socket,
        Err(error) => return assert!(matches!(error, Error::Unavailable(_)), "{error}"),
    };
    let counters = Counters::default();
    let nobody = nobody();
    let gone = nobody.local_addr().unwrap();
    for _ in 0..ERRORS {
        socket.send(b"to nobody", &gone.into(), &counters).unwrap();
    }
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    peer.send_to(b"one", socket.local_address()).unwrap();
    peer.send_to(b"two", socket.local_address()).unwrap();
    let (mut left, mut told) = (ERRORS, Vec::new());
    for bytes in [&b"one"[..], b"two"] {
        let taken = socket.take_errors(&counters, |error| told.push(error));
        assert_eq!(taken, left.min(MOST_ERRORS));
        left -= taken;
        // The next error is pending, or none is.
        let mut buffer = [0; 8];
        let got = socket.receive(&mut buffer, Mode::Wait, &counters).unwrap().unwrap();
        assert_eq!(&buffer[..got.len], bytes);
        let to = Peer::from(peer.local_addr().unwrap());
        let batch = |_| (bytes, None, to);
        let sent = socket.send_many(&mut Headers::new(2), 2, batch, &counters).unwrap();
        assert_eq!(sent, 2);
        for _ in 0..sent {
            assert_eq!(peer.recv_from(&mut buffer).unwrap().0, 3);
        }
    }
    assert_eq!(socket.take_errors(&counters, |error| told.push(error)), 0);
    assert_eq!(told.len(), ERRORS);
    assert!(told.iter().all(|error| error.destination == gone));
    assert!(socket.receive(&mut [0; 8], Mode::Try, &counters).unwrap().is_none());
}

/// Taking one error makes the next one pending. Whoever sends at the same time meets them, one after
/// the other, and its datagrams go all the same.
#[test]
fn errors_taken_by_one_thread_fail_no_send_of_another() {
    const ROUNDS: usize = 400;
    let options = SocketOptions { peer_errors: true, ..SocketOptions::default() };
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let socket = match DatagramSocket::bind(&Endpoint { address, options }) {
        Ok(socket) => socket,
        Err(error) => return assert!(matches!(error, Error::Unavailable(_)), "{error}"),
    };
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    let nobody = nobody();
    let to_nobody = Peer::from(nobody.local_addr().unwrap());
    let (counters, to_peer) = (Counters::default(), Peer::from(peer.local_addr().unwrap()));
    for _ in 0..ROUNDS {
        for _ in 0..100 {
            socket.send(b"to nobody", &to_nobody, &counters).unwrap();
        }
        let together = Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                let counters = Counters::default();
                together.wait();
                while socket.take_errors(&counters, drop) > 0 {}
            });
            together.wait();
            for _ in 0..20 {
                socket.send(b"to a peer", &to_peer, &counters).unwrap();
            }
        });
        for _ in 0..20 {
            peer.recv_from(&mut [0; 16]).unwrap();
        }
    }
}

#[test]
fn a_gauge_keeps_the_last_figures_of_a_socket_that_is_closed() {
    let options =
        SocketOptions { receive_buffer: ReceiveBuffer::Bytes(4096), ..SocketOptions::default() };
    let socket = bind(options);
    let (gauge, address) = (socket.gauge(), socket.local_address());
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    for _ in 0..100 {
        peer.send_to(&[0; 100], address).unwrap();
    }
    let open = gauge.read();
    assert_eq!((open.address, open.napi_id), (address, None));
    drop(socket);
    drop(free_again(address)); // a gauge holds no socket open
    assert_eq!(gauge.read(), open);
    // Where it is told at all.
    assert!(open.usage.drops.is_none_or(|drops| drops > 0));
}

/// A socket that receives several datagrams as one, if they are; `None` where the system has no such thing.
fn joining() -> Option<DatagramSocket> {
    let options = SocketOptions { receive_offload: true, ..SocketOptions::default() };
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    DatagramSocket::bind(&Endpoint { address, options }).ok()
}

/// How what is sent to these comes there: bytes, and of how many datagrams.
fn came(receiver: &DatagramSocket) -> (Vec<u8>, usize) {
    let mut buffer = vec![0; OFFLOADED_BYTES];
    let got = receiver.receive(&mut buffer, Mode::Wait, &Counters::default()).unwrap().unwrap();
    buffer.truncate(got.len);
    (buffer, got.datagrams())
}

#[test]
fn datagrams_in_a_row_to_one_peer_leave_as_one_unless_that_is_off() {
    let (Some(first), Some(second)) = (joining(), joining()) else { return };
    let to = [&first, &second].map(|socket| Peer::from(socket.local_address()));
    // What is sent where, and of how many times so many bytes: with 40 some are copied to leave as one, and others not.
    let sent = [(0, 5), (0, 5), (0, 2), (0, 2), (1, 7), (1, 8), (1, 8), (0, 9)];
    let counters = Counters::default();
    let mut headers = Headers::new(16);
    for (send_offload, times) in [(true, 1), (true, 40), (false, 1)] {
        let bytes: Vec<_> = (0..).zip(sent).map(|(i, (_, len))| vec![i; len * times]).collect();
        let sender = bind(SocketOptions { send_offload, ..SocketOptions::default() });
        assert_eq!(sender.send_offload_obtained().is_some(), send_offload);
        let span = |i: usize| (&bytes[i][..], None, to[sent[i].0]);
        assert_eq!(
            sender.send_many(&mut headers, sent.len(), span, &counters).unwrap(),
            sent.len()
        );
        let joined = |of: &[&[usize]]| -> Vec<(Vec<u8>, usize)> {
            let one =
                |of: &&[usize]| (of.iter().flat_map(|i| bytes[*i].clone()).collect(), of.len());
            of.iter().map(one).collect()
        };
        let (to_first, to_second): (Vec<_>, Vec<_>) = match send_offload {
            true => (joined(&[&[0, 1, 2], &[3], &[7]]), joined(&[&[4], &[5, 6]])),
            false => (joined(&[&[0], &[1], &[2], &[3], &[7]]), joined(&[&[4], &[5], &[6]])),
        };
        for (receiver, expected) in [(&first, to_first), (&second, to_second)] {
            let got: Vec<_> = expected.iter().map(|_| came(receiver)).collect();
            assert_eq!(got, expected);
        }
    }
    assert_eq!(counters.kernel_entries.get(), 3);
}

#[test]
fn what_is_not_taken_as_one_leaves_one_by_one() {
    let (Some(receiver), counters) = (joining(), Counters::default()) else { return };
    let (sender, to) = (bind(SocketOptions::default()), Peer::from(receiver.local_address()));
    // No route leads there from an IPv4 socket.
    let nowhere = Peer::from("[::1]:9".parse::<SocketAddr>().unwrap());
    let mut headers = Headers::new(8);
    let span = |i: usize| (&b"abcd"[..], None, if i < 3 { nowhere } else { to });
    let failed = sender.send_many(&mut headers, 5, span, &counters).unwrap_err();
    assert_ne!(failed.kind(), std::io::ErrorKind::WouldBlock);
    assert_eq!(counters.kernel_entries.get(), 2, "together, and the first by itself");
    // Its datagrams are no reason to send others one by one.
    assert_eq!(sender.send_many(&mut headers, 2, |_| span(3), &counters).unwrap(), 2);
    assert_eq!(came(&receiver), (b"abcdabcd".to_vec(), 2));
}
