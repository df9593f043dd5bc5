//! Peers that do not read, or read slowly, hold nothing that others need. That the others are answered is checked
//! here, how soon is measured elsewhere.

use super::{
    client::{Client, clients, socket_to},
    support::*,
    wine,
};
use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::SocketAddr,
};
use weir::{
    stream::StreamOptions,
    tcp::{Output, Server},
};

pub const CHECKS: &[Check] =
    &[("beside_stuck_peers", beside_stuck_peers), ("beside_slow_readers", beside_slow_readers)];

/// More than any design lets be under way by default, of what its connections share.
const MANY: u64 = 250;

/// Asks for a long answer; anything else comes back.
const LONG: u8 = b'L';

/// Much more than the buffers of both ends take.
const LONG_BYTES: usize = 64 * 1024;

/// Of the system's buffers for what the server sends, at either end of a connection.
const BUFFER: usize = 4096;
/// Of those for what it receives.
const REQUESTS: usize = 32 * 1024;

fn answer(bytes: &mut [u8], output: &mut Output<'_>) {
    match bytes {
        [LONG] => output.send(&[0; LONG_BYTES]).expect("there is room for it"),
        _ => echo(bytes, output),
    }
}

/// A server on which nothing stalls and nobody is silent, however long the clients take, with little room in the system.
fn roomless() -> Server {
    let limits = limits().stalled(None).silent(None).output_bytes(LONG_BYTES);
    let options = StreamOptions::default()
        .send_buffer_bytes(Some(BUFFER))
        .receive_buffer_bytes(Some(REQUESTS));
    server_with(limits).stream_options(options)
}

/// Connects with as little room.
fn connect(to: SocketAddr, seed: u64) -> Client {
    let (socket, address) = socket_to(to);
    socket.set_recv_buffer_size(BUFFER).unwrap();
    socket.set_send_buffer_size(REQUESTS).unwrap();
    socket.connect(&address).unwrap_or_else(|e| panic!("connecting to {to}: {e}"));
    Client::on(socket.into(), seed)
}

/// Connects so many that ask for a long answer each, and waits until each has its beginning.
fn who_ask(to: SocketAddr, count: u64) -> Vec<Client> {
    let all: Vec<_> = (0..count).map(|seed| connect(to, seed)).collect();
    all.iter().for_each(|client| (&client.stream).write_all(&[LONG]).expect("sending one byte"));
    for client in &all {
        while let Err(e) = client.stream.peek(&mut [0]) {
            assert_eq!(e.kind(), ErrorKind::Interrupted, "the beginning of the answer: {e}");
        }
    }
    all
}

/// Sends until nothing goes. Says whether anything went.
fn sends_what_goes(client: &mut Client) -> bool {
    let stream = &mut client.stream;
    stream.set_nonblocking(true).expect("a socket that is open");
    let mut any = false;
    loop {
        match stream.write(&[0; 16 * 1024]) {
            Ok(_) => any = true,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) if e.kind() == ErrorKind::WouldBlock => return any,
            Err(e) => panic!("sending: {e}"),
        }
    }
}

/// Those that were there before the others, and those that come later, are answered.
fn ping(before: &mut [Client], to: SocketAddr) {
    for _ in 0..3 {
        before.iter_mut().for_each(Client::ping);
        Client::connect(to, 1).ping();
    }
}

/// First those that have asked for more than they take, then those that send and never read.
fn beside_stuck_peers(subject: &Subject) -> Result<(), Skipped> {
    if subject.is_called("tcp/poll")
        && let Some(why) = wine::POLL_BESIDE_UNREAD.leaves_out()
    {
        return Err(Skipped(why));
    }
    if let Some(why) = wine::SMALL_BUFFERS.leaves_out() {
        return Err(Skipped(why));
    }
    let (server, log) = subject.start(&roomless(), |_| answer);
    let to = server.local_addresses()[0];
    let mut before = clients(4, to);
    before.iter_mut().for_each(Client::ping);
    let asked = who_ask(to, MANY);
    ping(&mut before, to);
    let mut sending: Vec<_> = (0..MANY).map(|seed| connect(to, seed)).collect();
    // Until the server receives from none of them any more.
    until("a pause of the server", || {
        // Each of them in every round: whoever begins only when those before it are done begins late.
        sending.iter_mut().filter_map(|client| sends_what_goes(client).then_some(())).count() == 0
    });
    ping(&mut before, to);
    // All of it beside peers that were stuck to the end: none has gone, and none has read a byte.
    log.wait_for("the end of those who came later", |told| told.closed.len() >= 6);
    let told = log.told();
    assert_eq!(told.closed.len(), 6, "some that were stuck were closed");
    assert!(told.sent < MANY * LONG_BYTES as u64, "{} bytes have gone somewhere", told.sent);
    drop((asked, sending, before));
    log.wait_for("the end of all", |told| told.closed.len() as u64 == 2 * MANY + 10);
    stop(server, &log);
    Ok(())
}

/// Each of them takes a little at a time, again and again.
fn beside_slow_readers(subject: &Subject) -> Result<(), Skipped> {
    const ROUNDS: usize = 8;
    /// So much makes room for more in the server's system.
    const TAKEN: usize = 4 * 1024;
    let (server, log) = subject.start(&roomless(), |_| answer);
    let to = server.local_addresses()[0];
    let mut before = clients(4, to);
    before.iter_mut().for_each(Client::ping);
    let slow = who_ask(to, MANY);
    for _ in 0..ROUNDS {
        for client in &slow {
            let mut taken = [1; TAKEN];
            (&client.stream).read_exact(&mut taken).expect("a part of the long answer");
            assert_eq!(taken, [0; TAKEN]);
        }
        ping(&mut before, to);
    }
    drop((slow, before));
    log.wait_for("the end of all", |told| told.closed.len() as u64 == MANY + 4 + 3 * ROUNDS as u64);
    stop(server, &log);
    Ok(())
}
