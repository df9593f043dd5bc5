//! Sockets that are bound already, and that go on when their server has stopped.

use super::support::*;
use std::{
    collections::BTreeSet,
    net::{SocketAddr, UdpSocket},
    time::Duration,
};
use weir::{
    Error,
    socket::{bind_sharing, sockets_can_be_given},
    udp::{Datagram, Replies, Server},
};

pub const CHECKS: &[Check] = &[
    ("sockets_that_are_given_are_served", sockets_that_are_given_are_served),
    ("a_socket_goes_from_server_to_server", a_socket_goes_from_server_to_server),
];

/// As many sockets of one address as a server of a row is given.
struct Place(Vec<UdpSocket>);

impl Place {
    fn bind(subject: &Subject) -> Result<Self, Skipped> {
        if let Err(why) = sockets_can_be_given() {
            let socket = UdpSocket::bind(any_port()).expect("an address");
            assert!(Server::from_std(socket).is_err(), "it is said at once");
            assert!(bind_sharing(any_port(), 2).is_err(), "here, too");
            return Err(Skipped(why.to_string()));
        }
        let sockets = subject.design().sockets_per_address();
        assert_eq!(sockets, if subject.is_of("rio-sharded") { subject.threads() } else { 1 });
        Ok(Self(bind_sharing(any_port(), sockets).expect("an address")))
    }

    fn address(&self) -> SocketAddr {
        self.0[0].local_addr().expect("it is bound")
    }

    /// The sockets, for one more server.
    fn once_more(&self) -> impl Iterator<Item = UdpSocket> {
        self.0.iter().map(|socket| socket.try_clone().expect("one more descriptor"))
    }

    fn server(&self) -> Server {
        let mut sockets = self.once_more();
        let first = Server::from_std(sockets.next().expect("there is one")).expect("it is bound");
        sockets.fold(first, |server, socket| server.and_from_std(socket).expect("it is bound"))
    }
}

fn sockets_that_are_given_are_served(subject: &Subject) -> Result<(), Skipped> {
    let places = [Place::bind(subject)?, Place::bind(subject)?, Place::bind(subject)?];
    let addresses = places.each_ref().map(Place::address);
    // As those of a program that waits by itself.
    places[1].0.iter().for_each(|socket| socket.set_nonblocking(true).expect("O_NONBLOCK"));
    let too_few = Server::from_std(places[0].once_more().next().expect("there is one"));
    if places[0].0.len() > 1 {
        let error = subject.try_log(&too_few.expect("it is bound"), Answer::Nothing).err();
        let error = error.expect("each thread has its own");
        assert!(matches!(&error, Error::Option { name, .. } if name == "threads"), "{error}");
        assert!(error.to_string().contains("one was given"), "{error}");
    }
    let server = places[1].once_more().fold(places[0].server(), |server, socket| {
        server.and_from_std(socket).expect("it is bound")
    });
    let own = server.and_bind(any_port());
    let (server, log) = subject.log_with(&own.limits(echo_limits()), Answer::Copy);
    assert_eq!(server.local_addresses()[..2], addresses[..2]);
    assert_eq!(server.local_addresses().len(), 3);
    let client = UdpSocket::bind(any_port()).expect("an address");
    client.set_read_timeout(Some(PATIENCE)).expect("a time");
    for (number, to) in server.local_addresses().to_vec().into_iter().enumerate() {
        client.send_to(&[number as u8; 9], to).expect("it is sent");
        let mut back = [0; 16];
        let (length, from) = receive(&client, &mut back).expect("an answer");
        assert_eq!((&back[..length], from), (&[number as u8; 9][..], to));
    }
    let report = server.stop();
    assert_whole(&report);
    let seen: Vec<_> = log.seen().iter().map(|seen| seen.socket).collect();
    assert_eq!(seen, [0, 1, 2]);
    // They are open, and what comes waits.
    client.send_to(b"later", addresses[0]).expect("it is sent");
    places[0].0.iter().for_each(|socket| socket.set_nonblocking(true).expect("O_NONBLOCK"));
    let came = |socket: &UdpSocket| socket.recv(&mut [0; 16]).is_ok_and(|length| length == 5);
    until("its arrival", || places[0].0.iter().any(came));
    Ok(())
}

/// How often the socket changes hands, and how many datagrams are answered in between.
const CHANGES: usize = 12;
const BETWEEN: usize = 200;

/// Clients, which a hash spreads over sockets that share an address.
const CLIENTS: usize = 8;

/// One server after the other has the socket, each started before the one before stops, while clients have so many
/// datagrams under way. Each of them is answered once.
fn a_socket_goes_from_server_to_server(subject: &Subject) -> Result<(), Skipped> {
    let place = Place::bind(subject)?;
    subject.design().ends_without_loss().expect("a server on loopback does");
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
    let mut server = start(place.server());
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let client = UdpSocket::bind(any_port()).expect("an address");
            client.connect(place.address()).expect("an address");
            client.set_read_timeout(Some(PATIENCE)).expect("a time");
            client
        })
        .collect();
    let client_of = |number: u64| &clients[number as usize % CLIENTS];
    let (mut under_way, mut next) = (BTreeSet::new(), 0u64);
    let mut go_on = |count: usize, last: bool| {
        let mut answers = 0;
        while answers < count || last && !under_way.is_empty() {
            while under_way.len() < WINDOW && answers < count {
                client_of(next).send(&next.to_le_bytes()).expect("it is sent");
                under_way.insert(next);
                next += 1;
            }
            let oldest = *under_way.first().expect("something is under way");
            let mut back = [0; 16];
            let (length, _) =
                receive(client_of(oldest), &mut back).expect("each datagram is answered");
            let number = u64::from_le_bytes(back[..length].try_into().expect("as it was sent"));
            assert!(under_way.remove(&number), "datagram {number} is answered twice");
            answers += 1;
        }
    };
    for _ in 0..CHANGES {
        go_on(BETWEEN, false);
        let successor = start(place.server());
        assert_whole(&std::mem::replace(&mut server, successor).stop());
    }
    go_on(BETWEEN, true);
    for client in &clients {
        client.set_read_timeout(Some(Duration::from_millis(1))).expect("a time");
        assert!(receive(client, &mut [0; 16]).is_err(), "a datagram is answered twice");
    }
    assert_whole(&server.stop());
    Ok(())
}
