//! Datagrams and connections awaited by tasks, on every design: by an executor of a few lines, so that nothing depends on
//! one.

#[path = "suite/receive.rs"]
mod receive;

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, TcpStream, UdpSocket},
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
    time::Duration,
};
use weir::{
    asynchronous::{self, Connection, Full},
    limits::Limits,
    tcp, udp,
    udp::Transmit,
};

/// Time limits only catch hangs.
const PATIENCE: Duration = Duration::from_secs(60);

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let (mut future, mut cx) = (pin!(future), Context::from_waker(&waker));
    loop {
        match future.as_mut().poll(&mut cx) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park_timeout(PATIENCE),
        }
    }
}

fn udp_designs() -> Vec<(&'static str, udp::AnyDesign)> {
    let names = ["blocking-batch", "epoll", "port", "rio-event", "rio-hybrid --threads 2"];
    let designs = names.into_iter().map(|name| (name, udp::AnyDesign::parse(name).unwrap()));
    designs.filter(|(_, design)| design.availability().is_ok()).collect()
}

fn tcp_designs() -> Vec<(&'static str, tcp::AnyDesign)> {
    let names = ["blocking", "poll", "epoll", "port", "ring", "rio-tcp"];
    let designs = names.into_iter().map(|name| (name, tcp::AnyDesign::parse(name).unwrap()));
    designs.filter(|(_, design)| design.availability().is_ok()).collect()
}

#[test]
fn datagrams_are_awaited_and_answered_on_several_designs() {
    for (name, design) in udp_designs() {
        let (receive, mut datagrams) = asynchronous::datagrams(64, Full::DropNewest);
        let server = udp::Server::bind("127.0.0.1:0".parse().unwrap())
            .limits(Limits::SINK.transmits_outstanding(64))
            .start(design, move |_| receive.handler())
            .unwrap();
        let (address, outbox) = (server.local_addresses()[0], server.outbox());
        let answering = thread::spawn(move || {
            block_on(async {
                let mut many = Vec::new();
                let mut count = 0;
                while let Some(datagram) = datagrams.next().await {
                    outbox.send(Transmit::new(datagram.source, &datagram.bytes)).unwrap();
                    count += 1;
                    if count == 50 {
                        break;
                    }
                }
                while datagrams.next_many(&mut many).await > 0 {
                    for datagram in many.drain(..) {
                        outbox.send(Transmit::new(datagram.source, &datagram.bytes)).unwrap();
                        count += 1;
                    }
                }
                (count, datagrams.take_dropped())
            })
        });
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        for number in 0..100u8 {
            client.send_to(&[number; 30], address).unwrap();
            let mut answer = [0; 64];
            let (bytes, _) =
                receive::receive(&client, &mut answer).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_eq!(answer[..bytes], [number; 30], "{name}");
        }
        assert!(server.stop().failure.is_none(), "{name}");
        // It ends since the server has stopped.
        assert_eq!(answering.join().unwrap(), (100, 0), "{name}");
    }
}

#[test]
fn a_future_that_is_dropped_takes_no_datagram() {
    let (receive, mut datagrams) = asynchronous::datagrams(8, Full::DropNewest);
    let server = udp::Server::bind("127.0.0.1:0".parse().unwrap())
        .start(udp::AnyDesign::parse("blocking").unwrap(), move |_| receive.handler())
        .unwrap();
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut cx = Context::from_waker(Waker::noop());
    for _ in 0..3 {
        assert!(pin!(datagrams.next()).poll(&mut cx).is_pending());
        // Polled, and dropped.
    }
    client.send_to(b"one", server.local_addresses()[0]).unwrap();
    assert_eq!(block_on(datagrams.next()).unwrap().bytes, b"one");
    // More than there is room for: those that are lost are counted.
    for number in 0..20 {
        client.send_to(&[number], server.local_addresses()[0]).unwrap();
    }
    while server.counters()[0].datagrams < 21 {
        thread::yield_now();
    }
    assert!(server.stop().failure.is_none());
    let numbers: Vec<u8> = std::iter::from_fn(|| block_on(datagrams.next()))
        .map(|datagram| datagram.bytes[0])
        .collect();
    assert_eq!((&numbers[..], datagrams.take_dropped()), (&[0, 1, 2, 3, 4, 5, 6, 7][..], 12));
}

/// Echoes until the peer has sent all that it will.
async fn echo(mut connection: Connection) {
    let mut buffer = [0; 4096];
    loop {
        match connection.read(&mut buffer).await.unwrap() {
            0 => return connection.finish(),
            count => connection.write_all(&buffer[..count]).await.unwrap(),
        }
    }
}

#[test]
fn connections_are_awaited_read_and_written_on_several_designs() {
    for (name, design) in tcp_designs() {
        let (accept, mut connections) = asynchronous::connections(16, 16 * 1024);
        let server = tcp::Server::bind("127.0.0.1:0".parse().unwrap())
            .start(design, move |peer| accept.handler(peer))
            .unwrap();
        let address = server.local_addresses()[0];
        let serving = thread::spawn(move || {
            let mut threads = Vec::new();
            while let Some(connection) = block_on(connections.next()) {
                threads.push(thread::spawn(move || block_on(echo(connection))));
            }
            threads.into_iter().map(|thread| thread.join().unwrap()).count()
        });
        let clients: Vec<_> = (0..4u8)
            .map(|number| {
                thread::spawn(move || {
                    // Far more than may wait anywhere on the way.
                    let message: Vec<u8> =
                        (0..1_000_000u32).map(|i| (i / 3) as u8 ^ number).collect();
                    let stream = TcpStream::connect(address).unwrap();
                    stream.set_read_timeout(Some(PATIENCE)).unwrap();
                    let mut writing = stream.try_clone().unwrap();
                    let sent = message.clone();
                    let writer = thread::spawn(move || {
                        writing.write_all(&sent).unwrap();
                        writing.shutdown(Shutdown::Write).unwrap();
                    });
                    let mut echoed = Vec::new();
                    (&stream).read_to_end(&mut echoed).unwrap();
                    writer.join().unwrap();
                    assert!(echoed == message, "client {number} got {} bytes", echoed.len());
                })
            })
            .collect();
        for client in clients {
            client.join().unwrap_or_else(|_| panic!("{name}"));
        }
        let report = server.stop();
        assert!(report.failure.is_none(), "{name}");
        assert_eq!(serving.join().unwrap(), 4, "{name}");
    }
}

#[test]
fn who_has_finished_writes_nothing_more_and_waits_for_nothing() {
    for (name, design) in tcp_designs() {
        let (accept, mut connections) = asynchronous::connections(1, 1000);
        let server = tcp::Server::bind("127.0.0.1:0".parse().unwrap())
            .start(design, move |peer| accept.handler(peer))
            .unwrap();
        let mut client = TcpStream::connect(server.local_addresses()[0]).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut connection = block_on(connections.next()).unwrap();
        block_on(connection.write_all(b"all")).unwrap();
        connection.finish();
        let refused =
            |connection: &mut Connection| block_on(connection.write(b"more")).unwrap_err().kind();
        assert_eq!(refused(&mut connection), std::io::ErrorKind::BrokenPipe, "{name}: at once");
        let mut got = Vec::new();
        client.read_to_end(&mut got).unwrap();
        assert_eq!(got, b"all", "{name}");
        assert_eq!(refused(&mut connection), std::io::ErrorKind::BrokenPipe, "{name}: then, too");
        drop(client);
        assert!(server.stop().failure.is_none(), "{name}");
    }
}

#[test]
fn a_peer_that_is_not_read_from_has_to_wait_and_nothing_is_lost() {
    for (name, design) in tcp_designs() {
        let (accept, mut connections) = asynchronous::connections(1, 1000);
        let server = tcp::Server::bind("127.0.0.1:0".parse().unwrap())
            .start(design, move |peer| accept.handler(peer))
            .unwrap();
        let mut client = TcpStream::connect(server.local_addresses()[0]).unwrap();
        let mut connection = block_on(connections.next()).unwrap();
        // So much that the peer is stopped for certain.
        client.set_nonblocking(true).unwrap();
        let (chunk, mut sent) = (vec![7; 65_536], 0);
        let mut quiet = 0;
        while quiet < 1000 && sent < 256 << 20 {
            match client.write(&chunk) {
                Ok(count) => (sent, quiet) = (sent + count, 0),
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                    quiet += 1;
                    thread::yield_now();
                }
                Err(e) => panic!("{name}: {e}"),
            }
        }
        assert!(sent < 256 << 20, "{name}: nothing stopped the peer");
        // Polled, and dropped: nothing is taken by that.
        let mut buffer = vec![0; 10_000];
        let mut cx = Context::from_waker(Waker::noop());
        if let Poll::Ready(count) = pin!(connection.read(&mut buffer)).poll(&mut cx) {
            sent -= count.unwrap();
        }
        client.shutdown(Shutdown::Write).unwrap();
        let mut read = 0;
        loop {
            match block_on(connection.read(&mut buffer)).unwrap() {
                0 => break,
                count => read += count,
            }
        }
        assert_eq!(read, sent, "{name}");
        drop(connection);
        client.set_nonblocking(false).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        assert_end(&client, &format!("{name}: dropping it closes it"));
        assert!(server.stop().failure.is_none(), "{name}");
    }
}

/// Waits for the end of what the peer sends, before which nothing comes.
fn assert_end(mut client: &TcpStream, what: &str) {
    let mut came = Vec::new();
    client.read_to_end(&mut came).unwrap_or_else(|e| panic!("{what}: {e}"));
    assert_eq!(came, [], "{what}");
}

#[test]
fn what_finds_no_place_or_nobody_is_closed_and_a_stop_ends_a_read() {
    for (name, design) in tcp_designs() {
        let (accept, mut connections) = asynchronous::connections(1, 1000);
        // Its peer does not close when the server stops.
        let limits = tcp::Limits::default().stop(Duration::from_millis(10));
        let server = tcp::Server::bind("127.0.0.1:0".parse().unwrap())
            .limits(limits)
            .start(design, move |peer| accept.handler(peer))
            .unwrap();
        let connect = || {
            let stream = TcpStream::connect(server.local_addresses()[0]).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream
        };
        let mut first = connect();
        first.write_all(b"!").unwrap();
        // It is open before it waits to be taken, but what it sends is received after that.
        while server.counters().bytes_received == 0 {
            thread::yield_now();
        }
        let second = connect();
        assert_end(&second, &format!("{name}: one waits already"));
        let mut connection = block_on(connections.next()).unwrap();
        assert_eq!(connection.peer(), first.local_addr().unwrap(), "{name}");
        assert_eq!(block_on(connection.read(&mut [0; 10])).unwrap(), 1, "{name}");
        drop(connections);
        let third = connect();
        assert_end(&third, &format!("{name}: nobody takes them any more"));
        let reading = thread::spawn(move || {
            let mut buffer = [0; 10];
            let read = block_on(connection.read(&mut buffer));
            (read, block_on(connection.write(b"late")))
        });
        assert!(server.stop().failure.is_none(), "{name}");
        let (read, written) = reading.join().unwrap();
        assert!(!matches!(read, Ok(1..)), "{name}: {read:?}");
        assert!(written.is_err(), "{name}: {written:?}");
        drop(first);
    }
}
