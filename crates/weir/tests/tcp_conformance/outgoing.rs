//! Outgoing connections: they are served as those that are accepted, count to the same limits, and nothing of them is left.

#[path = "../../examples/tcp_proxy.rs"]
mod tcp_proxy;

use super::{
    client::{Client, Random, clients},
    support::*,
};
use socket2::{Domain, Socket, Type};
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Mutex,
        mpsc::{self, Receiver, Sender},
    },
    thread,
};
use weir::tcp::{
    AnyDesign, Connector, Final, Handle, Handler, Output, Reason, Refused, Running, Server,
};

pub const CHECKS: &[Check] = &[
    ("outgoing_connections_are_served_as_others", outgoing_connections_are_served),
    ("a_connect_that_fails_is_told", a_connect_that_fails_is_told),
    ("outgoing_connections_to_unix_sockets", unix::outgoing_connections_to_unix_sockets),
    ("an_outgoing_connection_has_its_turn_at_once", an_outgoing_connection_has_its_turn_at_once),
    ("a_proxy_passes_everything_on", a_proxy_passes_everything_on),
    ("a_proxy_waits_for_who_does_not_read", a_proxy_waits),
];

/// Echoes, and says how it ends. An outgoing one speaks first.
struct Echoes {
    outgoing: bool,
    ends: Sender<(bool, Reached)>,
}

/// What became of one.
#[derive(Debug, PartialEq)]
enum Reached {
    Connected(SocketAddr),
    Closed(How, String),
}

impl Handler for Echoes {
    fn on_connect(&mut self, peer: SocketAddr, output: &mut Output<'_>) {
        if self.outgoing {
            output.send(b"hello").unwrap();
        }
        let _ = self.ends.send((self.outgoing, Reached::Connected(peer)));
    }

    fn on_receive(&mut self, _: &mut [u8], output: &mut Output<'_>) {
        output.echo().unwrap();
    }

    fn on_close(&mut self, reason: &Reason) {
        let closed = Reached::Closed(reason.into(), reason.to_string());
        let _ = self.ends.send((self.outgoing, closed));
    }
}

/// A server of them, its connector, and what it says of the outgoing ones.
struct Started {
    running: Running,
    connector: Connector<Echoes>,
    said: Receiver<(bool, Reached)>,
    say: Sender<(bool, Reached)>,
}

impl Started {
    fn with(subject: &Subject, server: &Server) -> Self {
        let (say, said) = mpsc::channel();
        let (connector, to) = (Connector::new(), Mutex::new(say.clone()));
        let running = server.start_connecting(subject.design().clone(), &connector, move |_| {
            let ends = to.lock().expect("nobody panics with it").clone();
            Echoes { outgoing: false, ends }
        });
        Self { running: running.unwrap_or_else(|e| panic!("{e}")), connector, said, say }
    }

    fn connect(&self, to: SocketAddr) -> Result<(), Refused> {
        self.connector.connect(to, Echoes { outgoing: true, ends: self.say.clone() })
    }

    /// What is said of an outgoing one next.
    fn next(&self) -> Reached {
        loop {
            let said = self.said.recv_timeout(PATIENCE).expect("something is said");
            if let (true, said) = said {
                return said;
            }
        }
    }

    fn stop(self) -> Final {
        let report = self.running.stop();
        assert!(report.failure.is_none(), "{:?}", report.failure);
        assert_eq!((report.open, report.total().closed()), (0, report.total().accepted));
        let late = Echoes { outgoing: true, ends: self.say };
        assert_eq!(self.connector.connect(any_port(), late), Err(Refused::Gone));
        report
    }
}

/// A socket that the server connects to.
fn other() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind(any_port()).expect("an address of this process");
    let address = listener.local_addr().expect("it is bound");
    (listener, address)
}

/// An address at which nobody listens. It is kept bound, or another process might listen there by then.
fn nobody() -> (Socket, SocketAddr) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.bind(&any_port().into()).expect("an address of this process");
    let address = socket.local_addr().expect("it is bound").as_socket().expect("of IPv4");
    (socket, address)
}

fn outgoing_connections_are_served(subject: &Subject) -> Result<(), Skipped> {
    const EACH: usize = 6;
    let server = Started::with(subject, &server());
    let (listener, address) = other();
    let mut incoming = clients(EACH, server.running.local_addresses()[0]);
    incoming.iter_mut().for_each(Client::ping);
    let mut outgoing = Vec::new();
    for seed in 0..EACH {
        server.connect(address).unwrap();
        let (stream, _) = listener.accept().expect("the server connects");
        let mut stream = Client::on(stream, seed as u64);
        let mut hello = [0; 5];
        (&stream.stream).read_exact(&mut hello).expect("what it says");
        assert_eq!(&hello, b"hello");
        assert_eq!(server.next(), Reached::Connected(address));
        stream.ping();
        outgoing.push(stream);
    }
    assert_eq!(server.running.open() as usize, 2 * EACH);
    let mut random = Random(3);
    for client in incoming.iter_mut().chain(&mut outgoing) {
        client.exchange(50_000, &mut random);
    }
    // Half of them end at the peer's wish, the others when the server stops.
    for mut client in outgoing.drain(..EACH / 2) {
        client.end_sending();
        client.expect_end();
        let Reached::Closed(how, _) = server.next() else { panic!("it connected already") };
        assert_eq!(how, How::Finished);
    }
    let rest: Vec<_> = outgoing.into_iter().chain(incoming).collect();
    let ends = thread::spawn(move || {
        for mut client in rest {
            client.expect_end();
        }
    });
    let total = server.stop().total();
    ends.join().expect("an end each");
    assert_eq!((total.accepted, total.closed_finished), (2 * EACH as u64, 2 * EACH as u64));
    Ok(())
}

fn a_connect_that_fails_is_told(subject: &Subject) -> Result<(), Skipped> {
    let with = limits().connections(1);
    let server = Started::with(subject, &server_with(with));
    let (_kept, address) = nobody();
    server.connect(address).unwrap();
    let Reached::Closed(How::Failed, why) = server.next() else { panic!("nobody listens there") };
    assert!(why.contains("refused") || why.contains("timed out"), "{why}");
    // One connection is all that there may be.
    let (listener, address) = other();
    server.connect(address).unwrap();
    let (mut first, _) = listener.accept().expect("the server connects");
    first.read_exact(&mut [0; 5]).expect("what it says");
    assert_eq!(server.next(), Reached::Connected(address));
    server.connect(address).unwrap();
    let Reached::Closed(How::Failed, why) = server.next() else { panic!("there is no room") };
    assert!(why.contains("the most allowed"), "{why}");
    drop(first);
    let Reached::Closed(How::Finished, _) = server.next() else { panic!("its peer has closed") };
    let total = server.stop().total();
    assert_eq!((total.accepted, total.refused), (1, 1));
    Ok(())
}

/// What the system lacks is told as what fails.
#[cfg(not(target_os = "linux"))]
mod unix {
    use super::*;

    pub fn outgoing_connections_to_unix_sockets(subject: &Subject) -> Result<(), Skipped> {
        let server = Started::with(subject, &server());
        let handler = Echoes { outgoing: true, ends: server.say.clone() };
        server.connector.connect_unix("@weir", handler).unwrap();
        let Reached::Closed(How::Failed, why) = server.next() else { panic!("there are none") };
        assert!(why.contains("a Unix socket"), "{why}");
        let _ = server.stop();
        Ok(())
    }
}

#[cfg(target_os = "linux")]
mod unix {
    use super::{super::machine, *};
    use std::{fs, time::Duration};
    use weir::stream::UnixAddress;

    fn connect(server: &Started, to: &UnixAddress) {
        let handler = Echoes { outgoing: true, ends: server.say.clone() };
        server.connector.connect_unix(to.clone(), handler).unwrap();
    }

    fn connected() -> Reached {
        Reached::Connected(machine::ourselves().into())
    }

    fn assert_failed(server: &Started, word: &str) {
        let Reached::Closed(How::Failed, why) = server.next() else { panic!("it stands") };
        assert!(why.contains(word), "{why}");
    }

    /// At a path and at an abstract name, from a server that has none of its own; where nobody listens; and where as many wait
    /// as may, who are accepted in time, or not.
    pub fn outgoing_connections_to_unix_sockets(subject: &Subject) -> Result<(), Skipped> {
        let server = Started::with(subject, &server());
        let path = any_path();
        let at_path = UnixAddress::from(&path);
        let name = format!("@{}", path.file_name().expect("a name").display());
        let mut random = Random(7);
        for at in [&at_path, &UnixAddress::from(&*name)] {
            let listener = machine::listen_unix_for(at, 8);
            for seed in 0..3 {
                connect(&server, at);
                assert_eq!(server.next(), connected());
                let mut peer = Client::on(machine::accept_unix(&listener), seed);
                let mut hello = [0; 5];
                (&peer.stream).read_exact(&mut hello).expect("what it says");
                assert_eq!(&hello, b"hello");
                peer.exchange(50_000, &mut random);
                peer.end_sending();
                peer.expect_end();
                let Reached::Closed(how, _) = server.next() else { panic!("it stands already") };
                assert_eq!(how, How::Finished);
            }
        }
        // It has left its file.
        connect(&server, &at_path);
        assert_failed(&server, "refused");
        fs::remove_file(&path).expect("its file");
        connect(&server, &at_path);
        assert_failed(&server, "No such file");
        // Two may wait.
        let listener = machine::listen_unix_for(&at_path, 1);
        for _ in 0..2 {
            connect(&server, &at_path);
            assert_eq!(server.next(), connected());
        }
        let mut server = server;
        server.connector = server.connector.timeout(Duration::from_millis(30));
        connect(&server, &at_path);
        assert_failed(&server, "timed out");
        server.connector = server.connector.timeout(PATIENCE);
        connect(&server, &at_path);
        let mut peers: Vec<_> =
            (0..2).map(|seed| Client::on(machine::accept_unix(&listener), seed)).collect();
        assert_eq!(server.next(), connected());
        peers.push(Client::on(machine::accept_unix(&listener), 2));
        for peer in &mut peers {
            (&peer.stream).read_exact(&mut [0; 5]).expect("what it says");
            peer.ping();
        }
        // The stop ends them.
        let ends = thread::spawn(move || peers.iter_mut().for_each(Client::expect_end));
        let total = server.stop().total();
        ends.join().expect("an end each");
        assert_eq!((total.accepted, total.closed_finished), (9, 9));
        fs::remove_file(path).expect("its file");
        Ok(())
    }
}

/// Asks another server when its peer says something, and passes the answer on.
struct Passes {
    to: SocketAddr,
    connector: Connector<Passes>,
    /// Of the connection that is answered, where this is the one that asks.
    asker: Option<Handle>,
}

impl Handler for Passes {
    fn on_receive(&mut self, bytes: &mut [u8], output: &mut Output<'_>) {
        let Some(asker) = &self.asker else {
            let asker = Some(output.handle());
            let asks = Passes { asker, connector: self.connector.clone(), ..*self };
            return self.connector.connect(self.to, asks).unwrap();
        };
        asker.send(bytes).unwrap();
        output.finish();
    }
}

/// Where one connection is served at a time: the one that is served waits for the one that it has asked for.
fn an_outgoing_connection_has_its_turn_at_once(subject: &Subject) -> Result<(), Skipped> {
    let with = super::active::limits_of(subject, 1, limits())?;
    let (listener, to) = other();
    let connector = Connector::new();
    let its = connector.clone();
    let server = server_with(with)
        .start_connecting(subject.design().clone(), &connector, move |_| Passes {
            to,
            connector: its.clone(),
            asker: None,
        })
        .unwrap_or_else(|e| panic!("{e}"));
    let at = server.local_addresses()[0];
    let mut first = TcpStream::connect(at).expect("the server listens");
    first.set_read_timeout(Some(PATIENCE)).expect("a time");
    first.write_all(b"?").expect("it reads");
    let (mut asked, _) = listener.accept().expect("the server connects");
    let mut second = TcpStream::connect(at).expect("the server listens");
    second.set_read_timeout(Some(PATIENCE)).expect("a time");
    until("a connection that waits", || server.counters().waited == 1);
    asked.write_all(b"yes").expect("it reads");
    let mut answer = [0; 3];
    first.read_exact(&mut answer).expect("what was answered");
    assert_eq!(&answer, b"yes");
    // The other one has its turn when the first has gone, whatever else is connected.
    second.write_all(b"?").expect("it waits");
    drop(first);
    let (mut again, _) = listener.accept().expect("the server connects");
    again.write_all(b"yes").expect("it reads");
    second.read_exact(&mut answer).expect("what was answered");
    drop((asked, again, second));
    let report = server.stop();
    assert!(report.failure.is_none(), "{:?}", report.failure);
    assert_eq!((report.total().accepted, report.total().waited), (4, 1));
    Ok(())
}

/// A server behind the proxy, which sends back what it receives, and the proxy.
fn behind_a_proxy(subject: &Subject) -> (Running, Running) {
    let behind = server().start(AnyDesign::parse("poll").expect("it is known"), |_| echo);
    let behind = behind.unwrap_or_else(|e| panic!("{e}"));
    let to = behind.local_addresses()[0];
    let proxy = tcp_proxy::start(any_port(), to, subject.design().clone());
    (behind, proxy.unwrap_or_else(|e| panic!("{e}")))
}

fn a_proxy_passes_everything_on(subject: &Subject) -> Result<(), Skipped> {
    let (behind, proxy) = behind_a_proxy(subject);
    let mut random = Random(5);
    let mut all = clients(6, proxy.local_addresses()[0]);
    for _ in 0..3 {
        for client in &mut all {
            client.exchange(100_000, &mut random);
        }
    }
    for client in &mut all {
        client.send(1000);
        client.end_sending();
        client.expect(1000);
        client.expect_end();
    }
    drop(all);
    until("the end of all connections", || proxy.open() == 0);
    let report = proxy.stop();
    assert!(report.failure.is_none(), "{:?}", report.failure);
    assert_eq!((report.total().accepted, report.total().closed_finished), (12, 12));
    assert_eq!(behind.stop().total().closed_finished, 6);
    // Nobody behind it: who connects is told so by the end.
    let (_kept, nobody) = nobody();
    let proxy = tcp_proxy::start(any_port(), nobody, subject.design().clone()).unwrap();
    let mut client = Client::connect(proxy.local_addresses()[0], 1);
    client.expect_end();
    drop(client);
    assert!(proxy.stop().failure.is_none());
    Ok(())
}

fn a_proxy_waits(subject: &Subject) -> Result<(), Skipped> {
    let (behind, proxy) = behind_a_proxy(subject);
    let mut client = Client::connect(proxy.local_addresses()[0], 9);
    // As much goes as all buffers on the way hold, and no more.
    client.fill_up(|| proxy.counters().pauses > 0);
    client.expect((client.sent() - client.back()) as usize);
    client.ping();
    client.end_sending();
    client.expect_end();
    drop(client);
    assert!(proxy.stop().failure.is_none() && behind.stop().failure.is_none());
    Ok(())
}
