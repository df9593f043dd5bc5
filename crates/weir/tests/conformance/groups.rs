//! Datagrams to groups (multicast), and how datagrams are sent.

use super::{support::*, wine};
use socket2::SockRef;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use weir::{
    Error,
    socket::{PathMtu, SocketOptions},
    udp::{Server, Transmit},
};

pub const CHECKS: &[Check] = &[
    ("a_group_is_joined_and_left", a_group_is_joined_and_left),
    ("a_join_that_one_socket_refuses_is_undone", a_join_that_one_socket_refuses_is_undone),
    ("what_is_no_group_cannot_be_joined", what_is_no_group_cannot_be_joined),
    ("options_of_sending", options_of_sending),
];

/// A group of one's own machine (RFC 2365).
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 255, 77, 3);

/// Whoever sends to the group on loopback, as its index.
fn sender_to_group() -> Result<(UdpSocket, u32), Skipped> {
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    let by_loopback = SockRef::from(&sender).set_multicast_if_v4(&Ipv4Addr::LOCALHOST);
    let sent = by_loopback.and_then(|()| sender.send_to(b"to nobody", (GROUP, 9)));
    sent.map_err(|e| Skipped(format!("nothing is sent to a group on loopback here: {e}")))?;
    Ok((sender, 1))
}

fn a_group_is_joined_and_left(subject: &Subject) -> Result<(), Skipped> {
    wine::GROUP_BY_NUMBER.leaves_out().map_or(Ok(()), |why| Err(Skipped(why)))?;
    let (sender, loopback) = sender_to_group()?;
    let server = Server::bind("0.0.0.0:0".parse().unwrap()).join(GROUP.into(), loopback);
    let (server, log) = start_or_skip(subject, &server, Answer::Nothing)?;
    let port = server.local_addresses()[0].port();
    let group = SocketAddr::from((GROUP, port));
    let alone = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    // What is sent to one address follows what is sent to the group: it tells when that has come, or never will.
    let mut expected = 0;
    let mut round = |comes: bool| {
        sender.send_to(b"to all", group).unwrap();
        sender.send_to(b"to one", alone).unwrap();
        expected += 1 + usize::from(comes);
        log.wait_for(expected);
        let count = |bytes: &[u8]| log.seen().iter().filter(|seen| seen.bytes == bytes).count();
        (count(b"to all"), count(b"to one"))
    };
    assert_eq!(round(true), (1, 1), "once, however many sockets have the address");
    server.leave(GROUP.into(), loopback).unwrap();
    assert_eq!(round(false), (1, 2));
    server.join(GROUP.into(), loopback).unwrap();
    assert_eq!(round(true), (2, 3));
    stop(server, &log);
    Ok(())
}

/// One socket of two has joined as many groups as it may.
fn a_join_that_one_socket_refuses_is_undone(subject: &Subject) -> Result<(), Skipped> {
    const MOST: u8 = 200;
    wine::GROUP_BY_NUMBER.leaves_out().map_or(Ok(()), |why| Err(Skipped(why)))?;
    let (_, loopback) = sender_to_group()?;
    let of_group = SocketAddr::from((GROUP, 0));
    UdpSocket::bind(of_group)
        .map_err(|e| Skipped(format!("no socket is bound to a group's address here: {e}")))?;
    let server = Server::bind(of_group).and_bind("0.0.0.0:0".parse().unwrap());
    let (server, log) = start_or_skip(subject, &server, Answer::Nothing)?;
    // The one that is bound to another group is not asked.
    let other = |number| Ipv4Addr::new(239, 255, 78, number).into();
    let Some(refused) = (0..MOST).find(|number| server.join(other(*number), loopback).is_err())
    else {
        return Err(Skipped(format!("a socket joins {MOST} groups here")));
    };
    let error = server.join(GROUP.into(), loopback).unwrap_err();
    assert!(error.to_string().contains("joining 239.255.77.3"), "{error}");
    // The first socket has left it again: it could not join a group that it is in.
    server.leave(other(refused - 1), loopback).unwrap();
    server.join(GROUP.into(), loopback).unwrap();
    assert!(server.join(GROUP.into(), loopback).is_err());
    stop(server, &log);
    Ok(())
}

fn what_is_no_group_cannot_be_joined(subject: &Subject) -> Result<(), Skipped> {
    let no_group = Server::bind("0.0.0.0:0".parse().unwrap()).join(Ipv4Addr::LOCALHOST.into(), 0);
    let not_bound = Server::bind(any_port()).join(GROUP.into(), 0);
    for server in [no_group, not_bound] {
        match subject.try_log(&server, Answer::Nothing).map(drop) {
            Err(error @ Error::Option { .. }) => {
                assert!(error.to_string().contains("allowed: the address of a group"), "{error}");
            }
            other => panic!("{other:?}"),
        }
    }
    let (server, log) = subject.log(&Server::bind(any_port()));
    assert!(server.leave(GROUP.into(), 0).is_err());
    stop(server, &log);
    Ok(())
}

/// Each is taken by the system, and datagrams still come and go.
fn options_of_sending(subject: &Subject) -> Result<(), Skipped> {
    for path_mtu in [PathMtu::Fragment, PathMtu::Discover, PathMtu::Probe] {
        let options = SocketOptions::default()
            .traffic_class(Some(0b0010_1000))
            .hops(Some(33))
            .group_hops(Some(2))
            .path_mtu(path_mtu);
        let limits = echo_limits().transmits_outstanding(8);
        let server = Server::bind(any_port()).socket_options(options).limits(limits);
        let (server, log) = start_or_skip(subject, &server, Answer::Echo)?;
        let at = server.local_addresses()[0];
        let sender = &senders(1, at)[0];
        let mut buffer = [0; 64];
        sender.send_to(b"hello", at).unwrap();
        assert_eq!(receive(sender, &mut buffer).unwrap(), (5, at));
        let to = sender.local_addr().unwrap();
        server.outbox().send(Transmit::new(to, b"by itself")).unwrap();
        assert_eq!(receive(sender, &mut buffer).unwrap(), (9, at));
        assert_eq!(stop(server, &log).send_errors, 0);
    }
    Ok(())
}
