//! What is told of a datagram beside its bytes and its addresses, where asked for.

use super::support::*;
use socket2::SockRef;
use std::{
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    sync::mpsc,
};
use weir::{
    Error,
    counters::Counters,
    limits::Limits,
    socket::{DatagramSocket, Endpoint, Mode, SocketOptions, datagrams_can_be_marked},
    udp::{Datagram, Ecn, Meta, Replies, Server, Transmit},
};

pub const CHECKS: &[Check] = &[
    ("told_of_each_datagram", told_of_each_datagram),
    ("told_of_nothing_unasked", told_of_nothing_unasked),
    ("a_mark_arrives", a_mark_arrives),
];

/// Traffic classes: of nothing special, of a service, and of both kinds of mark.
const CLASSES: [u8; 4] = [0, 0b1011_1000, 0b1011_1010, 0b0000_0011];

fn send(sender: &UdpSocket, to: SocketAddr, class: u8, hops: u8) -> std::io::Result<()> {
    let socket = SockRef::from(sender);
    match to.ip() {
        ip if ip.to_canonical().is_ipv4() => {
            socket.set_tos_v4(class.into())?;
            socket.set_ttl_v4(hops.into())?;
        }
        _ => {
            set_class_v6(&socket, class)?;
            socket.set_unicast_hops_v6(hops.into())?;
        }
    }
    sender.send_to(&[class, hops], to).map(drop)
}

#[cfg(unix)]
fn set_class_v6(socket: &SockRef<'_>, class: u8) -> std::io::Result<()> {
    socket.set_tclass_v6(class.into())
}

/// Where it cannot be set it is not told either, and the check is left out before this is called.
#[cfg(not(unix))]
fn set_class_v6(_: &SockRef<'_>, _: u8) -> std::io::Result<()> {
    Err(std::io::ErrorKind::Unsupported.into())
}

/// Over IPv4, over IPv6, and over IPv4 to a socket of IPv6.
fn told_of_each_datagram(subject: &Subject) -> Result<(), Skipped> {
    let options = SocketOptions::default()
        .local_address(true)
        .receive_time(true)
        .receive_traffic_class(true)
        .receive_hops(true);
    for (at, to) in [
        ("127.0.0.1:0", Ipv4Addr::LOCALHOST.into()),
        ("[::1]:0", Ipv6Addr::LOCALHOST.into()),
        ("[::]:0", Ipv4Addr::LOCALHOST.into()),
    ] {
        let (tell, told) = mpsc::channel();
        let handler = move |_| {
            let tell = tell.clone();
            move |datagram: Datagram<'_>, _: &mut Replies<'_>| {
                let sent = (datagram.bytes[0], datagram.bytes[1]);
                let time = datagram.received_at;
                let _ = tell.send((sent, datagram.local, time, datagram.meta));
            }
        };
        let server = Server::bind(at.parse().unwrap()).socket_options(options);
        let server = match subject.start(&server, handler) {
            Err(Error::Unavailable(why)) => return Err(Skipped(why.to_string())),
            server => server.unwrap(),
        };
        let to = SocketAddr::new(to, server.local_addresses()[0].port());
        let sender = &senders(1, to)[0];
        for (class, hops) in CLASSES.into_iter().zip([1, 64, 200, 255]) {
            send(sender, to, class, hops).unwrap();
            let (sent, local, time, meta) = told.recv_timeout(PATIENCE).expect("a datagram");
            assert_eq!((sent, local.map(|ip| ip.to_canonical())), ((class, hops), Some(to.ip())));
            assert!(time.is_some(), "the kernel's time");
            assert_eq!((meta.traffic_class, meta.hops), (Some(class), Some(hops)));
            assert_eq!(meta.ecn(), Ecn::from_bits(class));
            assert!(meta.interface.is_some_and(|index| index > 0), "{meta:?}");
        }
        assert_whole(&server.stop());
    }
    Ok(())
}

fn told_of_nothing_unasked(subject: &Subject) -> Result<(), Skipped> {
    let (tell, told) = mpsc::channel();
    let handler = move |_| {
        let tell = tell.clone();
        move |datagram: Datagram<'_>, _: &mut Replies<'_>| {
            let Datagram { local, received_at, meta, segment, .. } = datagram;
            let _ = tell.send((local, received_at, meta, segment));
        }
    };
    let server = subject.start(&Server::bind(any_port()), handler).unwrap();
    let to = server.local_addresses()[0];
    senders(1, to)[0].send_to(b"unasked", to).unwrap();
    let told = told.recv_timeout(PATIENCE).expect("a datagram");
    assert_eq!(told, (None, None, Meta::NONE, None));
    assert_whole(&server.stop());
    Ok(())
}

/// What a handler, or another thread, marks comes so, in segments, too, and from an address of its choice.
fn a_mark_arrives(subject: &Subject) -> Result<(), Skipped> {
    datagrams_can_be_marked().map_err(|why| Skipped(why.to_string()))?;
    let options = SocketOptions::default().receive_traffic_class(true);
    for (at, peer_at) in
        [("127.0.0.1:0", "127.0.0.1:0"), ("[::1]:0", "[::1]:0"), ("[::]:0", "127.0.0.1:0")]
    {
        let address = peer_at.parse().unwrap();
        let peer = DatagramSocket::bind(&Endpoint { address, options }).unwrap();
        let to = peer.local_address();
        let marks = [None, Some(Ecn::Ect0), Some(Ecn::Ect1), Some(Ecn::Ce)];
        let handler = move |_| {
            move |datagram: Datagram<'_>, replies: &mut Replies<'_>| {
                for ecn in marks {
                    let transmit = Transmit::new(to, datagram.bytes);
                    let transmit = transmit.ecn(ecn).source(Some(to.ip()));
                    replies.outbox().send(transmit.segment_size(Some(8))).unwrap();
                }
            }
        };
        let limits = Limits::SINK.transmits_outstanding(64);
        let server = Server::bind(at.parse().unwrap()).limits(limits);
        let server = subject.start(&server, handler).unwrap();
        let counters = Counters::default();
        let came = || {
            let mut buffer = [0; 64];
            let received = peer.receive(&mut buffer, Mode::WaitFor(PATIENCE), &counters);
            let arrival = received.unwrap().expect("a datagram");
            (arrival.len, arrival.meta.traffic_class)
        };
        let ours = SocketAddr::new(to.ip(), server.local_addresses()[0].port());
        senders(1, ours)[0].send_to(&[7; 20], ours).unwrap();
        let mut all: Vec<_> = (0..12).map(|_| came()).collect();
        all.sort_unstable(); // several threads of the kernel may send
        let class = |ecn: Option<Ecn>| Some(ecn.map_or(0, |ecn| ecn as u8));
        let of_mark = |ecn| [(4, class(ecn)), (8, class(ecn)), (8, class(ecn))];
        let mut expected: Vec<_> = marks.into_iter().flat_map(of_mark).collect();
        expected.sort_unstable();
        assert_eq!(all, expected);
        for ecn in marks {
            server.outbox().send(Transmit::new(to, b"marked").ecn(ecn)).unwrap();
            assert_eq!(came(), (6, class(ecn)));
        }
        assert_whole(&server.stop());
    }
    Ok(())
}
