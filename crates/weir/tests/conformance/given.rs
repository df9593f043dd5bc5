//! Sockets that are bound already, and that go on when their server has stopped.

use super::support::*;
use std::{collections::HashSet, net::UdpSocket, time::Duration};
use weir::{
    Error,
    socket::sockets_can_be_given,
    udp::{Datagram, Replies, Server},
};

pub const CHECKS: &[Check] = &[
    ("sockets_that_are_given_are_served", sockets_that_are_given_are_served),
    ("a_socket_goes_from_server_to_server", a_socket_goes_from_server_to_server),
];

/// A socket for one more server.
fn once_more(socket: &UdpSocket) -> UdpSocket {
    socket.try_clone().expect("one more descriptor")
}

fn given(subject: &Subject, socket: &UdpSocket) -> Result<Server, Skipped> {
    if let Err(why) = sockets_can_be_given() {
        assert!(Server::from_std(once_more(socket)).is_err(), "it is said at once");
        return Err(Skipped(why.to_string()));
    }
    let server = Server::from_std(once_more(socket)).expect("it is bound");
    if subject.is_of("rio-sharded") {
        let error = subject.try_log(&server, Answer::Nothing).err().expect("it has other sockets");
        assert!(matches!(error, Error::Option { .. }), "{error}");
        return Err(Skipped(error.to_string()));
    }
    Ok(server)
}

fn sockets_that_are_given_are_served(subject: &Subject) -> Result<(), Skipped> {
    let sockets = [(); 3].map(|()| UdpSocket::bind(any_port()).expect("an address"));
    let addresses = sockets.each_ref().map(|socket| socket.local_addr().expect("it is bound"));
    // As those of a program that waits by itself.
    sockets[1].set_nonblocking(true).expect("O_NONBLOCK");
    let server = given(subject, &sockets[0])?;
    let server = server.and_from_std(once_more(&sockets[1])).expect("it is bound");
    let own = server.and_bind(any_port());
    let (server, log) = subject.log_with(&own.limits(echo_limits()), Answer::Copy);
    assert_eq!(server.local_addresses()[..2], addresses[..2]);
    let client = UdpSocket::bind(any_port()).expect("an address");
    client.set_read_timeout(Some(PATIENCE)).expect("a time");
    for (number, to) in server.local_addresses().to_vec().into_iter().enumerate() {
        client.send_to(&[number as u8; 9], to).expect("it is sent");
        let mut back = [0; 16];
        let (length, from) = client.recv_from(&mut back).expect("an answer");
        assert_eq!((&back[..length], from), (&[number as u8; 9][..], to));
    }
    let report = server.stop();
    assert_whole(&report);
    let places: Vec<_> = log.seen().iter().map(|seen| seen.socket).collect();
    assert_eq!(places, [0, 1, 2]);
    // They are open, and what comes waits.
    client.send_to(b"later", addresses[0]).expect("it is sent");
    sockets[0].set_nonblocking(false).expect("O_NONBLOCK");
    assert_eq!(sockets[0].recv(&mut [0; 16]).expect("it came"), 5);
    Ok(())
}

/// How often the socket changes hands, and how many datagrams are answered in between.
const CHANGES: usize = 12;
const BETWEEN: usize = 400;

/// One server after the other has the socket, each started before the one before stops, while a client has so many
/// datagrams under way. Each of them is answered once.
fn a_socket_goes_from_server_to_server(subject: &Subject) -> Result<(), Skipped> {
    let socket = UdpSocket::bind(any_port()).expect("an address");
    let to = socket.local_addr().expect("it is bound");
    let first = given(subject, &socket)?;
    if let Err(error) = subject.design().ends_without_loss() {
        assert!(subject.is_of("port") || subject.is_of("port-batch"), "{error}");
        return Err(Skipped(error.to_string()));
    }
    let start = |server: Server| {
        let answer = |datagram: Datagram<'_>, replies: &mut Replies<'_>| {
            // By turns as a copy and in place, as either goes its own way.
            let sent = match datagram.bytes[0] % 2 {
                0 => replies.send(datagram.bytes),
                _ => replies.echo(),
            };
            sent.expect("it is allowed");
        };
        subject.start(&server.limits(echo_limits()), move |_| answer).expect("it starts")
    };
    let mut server = start(first);
    let client = UdpSocket::bind(any_port()).expect("an address");
    client.connect(to).expect("an address");
    client.set_read_timeout(Some(PATIENCE)).expect("a time");
    let (mut under_way, mut next) = (HashSet::new(), 0u64);
    let mut go_on = |count: usize, last: bool| {
        let mut answers = 0;
        while answers < count || last && !under_way.is_empty() {
            while under_way.len() < WINDOW && answers < count {
                client.send(&next.to_le_bytes()).expect("it is sent");
                under_way.insert(next);
                next += 1;
            }
            let mut back = [0; 16];
            let length = client.recv(&mut back).expect("each datagram is answered");
            let number = u64::from_le_bytes(back[..length].try_into().expect("as it was sent"));
            assert!(under_way.remove(&number), "datagram {number} is answered twice");
            answers += 1;
        }
    };
    for _ in 0..CHANGES {
        go_on(BETWEEN, false);
        let successor = start(Server::from_std(once_more(&socket)).expect("it is bound"));
        assert_whole(&std::mem::replace(&mut server, successor).stop());
    }
    go_on(BETWEEN, true);
    client.set_read_timeout(Some(Duration::from_millis(1))).expect("a time");
    assert!(client.recv(&mut [0; 16]).is_err(), "a datagram is answered twice");
    assert_whole(&server.stop());
    Ok(())
}
