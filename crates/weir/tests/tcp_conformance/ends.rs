//! How connections end: by the peer, by the handler, in order and not.

use super::{
    alone::descriptors,
    client::{Client, Random, clients},
    machine,
    support::*,
    wine,
};
use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr},
    sync::{Arc, Barrier},
    thread,
};
use weir::tcp::{Handler, Output};

pub const CHECKS: &[Check] = &[
    ("half_close", half_close),
    ("half_close_of_many", half_close_of_many),
    ("half_close_while_the_thread_is_busy", half_close_while_the_thread_is_busy),
    ("end_that_the_handler_passes_over", end_that_the_handler_passes_over),
    ("last_words", last_words),
    ("finished_by_the_handler", finished_by_the_handler),
    ("aborted_by_the_handler", aborted_by_the_handler),
    ("reset_in_mid_stream", reset_in_mid_stream),
    ("reset_while_output_waits", reset_while_output_waits),
    ("connects_that_close_at_once", connects_that_close_at_once),
    ("what_many_needed_goes_with_them", what_many_needed_goes_with_them),
];

/// All bytes come back after the client has said that it sends no more; then the server's end.
fn half_close(subject: &Subject) -> Result<(), Skipped> {
    let (server, log) = subject.echo(&server());
    let to = server.local_addresses()[0];
    for count in [0, 1, 5000, 3_000_000] {
        let mut client = Client::connect(to, count as u64);
        let bytes = client.next(count);
        let mut sending = client.stream.try_clone().unwrap();
        thread::scope(|scope| {
            scope.spawn(move || {
                let (mut random, mut rest) = (Random(count as u64), &*bytes);
                while !rest.is_empty() {
                    let size = random.size(1 << 20).min(rest.len());
                    sending.write_all(&rest[..size]).unwrap();
                    rest = &rest[size..];
                }
                sending.shutdown(Shutdown::Write).unwrap();
            });
            client.expect(count);
        });
        client.expect_end();
        assert_eq!(log.wait_for_ending(client.address()), How::Finished);
    }
    let total = stop(server, &log);
    assert_eq!((total.closed_finished, log.told().ended), (4, 4));
    Ok(())
}

fn half_close_of_many(subject: &Subject) -> Result<(), Skipped> {
    let (server, log) = subject.echo(&server());
    let mut clients = clients(200, server.local_addresses()[0]);
    for client in &mut clients {
        client.send(10_000);
        client.end_sending();
    }
    for client in &mut clients {
        client.expect(10_000);
        client.expect_end();
    }
    drop(clients);
    assert_eq!(stop(server, &log).closed_finished, 200);
    Ok(())
}

/// Echoes, but is held up within its first receive: it meets another there when that begins, and when it may go on.
struct HeldUp {
    meets: Option<Arc<Barrier>>,
}

impl Handler for HeldUp {
    fn on_receive(&mut self, _: &mut [u8], output: &mut Output<'_>) {
        if let Some(other) = self.meets.take() {
            other.wait();
            other.wait();
        }
        output.echo().expect("nothing was sent before");
    }
}

/// Bytes and the end behind them come while the thread is busy, so it hears of both at once: neither is lost.
fn half_close_while_the_thread_is_busy(subject: &Subject) -> Result<(), Skipped> {
    let other = Arc::new(Barrier::new(2));
    let meets = Arc::clone(&other);
    let (server, log) = subject.start(&server(), move |_| HeldUp { meets: Some(meets.clone()) });
    for seed in 0..3 {
        let mut client = Client::connect(server.local_addresses()[0], seed);
        client.send(1);
        other.wait();
        client.send(100);
        client.end_sending();
        other.wait();
        client.expect(101);
        client.expect_end();
    }
    assert_eq!(stop(server, &log).closed_finished, 3);
    Ok(())
}

/// Echoes, and does nothing when the peer sends no more.
struct PassesOver;

impl Handler for PassesOver {
    fn on_receive(&mut self, _: &mut [u8], output: &mut Output<'_>) {
        output.echo().expect("nothing was sent before");
    }

    fn on_end(&mut self, _: &mut Output<'_>) {}
}

/// A handler is called no more once the peer has ended and nothing waits: such a connection must not
/// stay for ever, whatever its handler forgot.
fn end_that_the_handler_passes_over(subject: &Subject) -> Result<(), Skipped> {
    let (server, log) = subject.start(&server(), |_| PassesOver);
    let mut client = Client::connect(server.local_addresses()[0], 1);
    client.send(1000);
    client.end_sending();
    client.expect(1000);
    client.expect_end();
    assert_eq!(log.wait_for_ending(client.address()), How::Finished);
    stop(server, &log);
    Ok(())
}

/// Answers when everything was said.
#[derive(Default)]
struct Sums {
    sum: u64,
}

impl Handler for Sums {
    fn on_receive(&mut self, bytes: &mut [u8], _: &mut Output<'_>) {
        self.sum += bytes.iter().map(|&byte| u64::from(byte)).sum::<u64>();
    }

    fn on_end(&mut self, output: &mut Output<'_>) {
        output.send(self.sum.to_string().as_bytes()).expect("there is room");
        output.finish();
    }
}

fn last_words(subject: &Subject) -> Result<(), Skipped> {
    let (server, log) = subject.start(&server(), |_| Sums::default());
    let mut client = Client::connect(server.local_addresses()[0], 1);
    let bytes = client.next(100_000);
    (&client.stream).write_all(&bytes).unwrap();
    client.end_sending();
    let mut said = String::new();
    (&client.stream).read_to_string(&mut said).unwrap();
    let sum: u64 = bytes.iter().map(|&byte| u64::from(byte)).sum();
    assert_eq!(said, sum.to_string());
    drop(client);
    assert_eq!(stop(server, &log).closed_finished, 1);
    Ok(())
}

/// Sends very much and finishes; what else it is told is dropped.
fn farewell(_: &mut [u8], output: &mut Output<'_>) {
    output.send(&[b'!'; 200_000]).expect("there is room");
    output.finish();
    assert!(output.send(b"more").is_err() && output.echo().is_err(), "it has finished");
}

fn finished_by_the_handler(subject: &Subject) -> Result<(), Skipped> {
    if subject.has_several_receives()
        && let Some(why) = wine::END_BEFORE_THE_REST.leaves_out()
    {
        return Err(Skipped(why));
    }
    let (server, log) = subject.start(&server(), |_| farewell);
    let to = server.local_addresses()[0];
    // A peer that reads, and closes when it sees the end.
    let mut polite = Client::connect(to, 1);
    polite.send(1);
    let mut said = Vec::new();
    (&polite.stream).read_to_end(&mut said).unwrap();
    assert!(said.len() == 200_000 && said.iter().all(|&byte| byte == b'!'));
    // One that goes on sending after it has seen the end, for a while.
    let mut ignoring = Client::connect(to, 2);
    ignoring.send(1);
    (&ignoring.stream).read_to_end(&mut said).unwrap();
    assert_eq!(said.len(), 400_000);
    ignoring.send(100_000);
    let addresses = [polite.address(), ignoring.address()];
    drop((polite, ignoring));
    addresses.iter().for_each(|&peer| assert_eq!(log.wait_for_ending(peer), How::Finished));
    let total = stop(server, &log);
    assert_eq!((total.bytes_discarded, total.output_refused), (100_000, 4));
    Ok(())
}

fn aborted_by_the_handler(subject: &Subject) -> Result<(), Skipped> {
    let (server, log) = subject.start(&server(), |_| {
        |_: &mut [u8], output: &mut Output<'_>| {
            output.send(&[1; 100_000]).expect("there is room");
            output.abort();
        }
    });
    let to = server.local_addresses()[0];
    for number in 0..10 {
        let mut client = Client::connect(to, number);
        client.send(1);
        client.expect_reset();
        assert_eq!(log.wait_for_ending(client.address()), How::Aborted);
    }
    assert_eq!(stop(server, &log).closed_aborted, 10);
    Ok(())
}

fn reset_in_mid_stream(subject: &Subject) -> Result<(), Skipped> {
    wine::RESETS.leaves_out().map_or(Ok(()), |why| Err(Skipped(why)))?;
    let (server, log) = subject.echo(&server());
    let to = server.local_addresses()[0];
    let mut other = Client::connect(to, 0);
    let mut broken = Vec::<SocketAddr>::new();
    for number in 1..=20 {
        let mut client = Client::connect(to, number);
        client.ping();
        client.send(20_000);
        broken.push(client.address());
        client.reset();
        other.ping();
    }
    broken.iter().for_each(|&peer| assert_eq!(log.wait_for_ending(peer), How::Failed));
    other.exchange(1 << 20, &mut Random(1));
    drop(other);
    let total = stop(server, &log);
    assert_eq!((total.closed_failed, total.closed_finished), (20, 1));
    let broken = |ending: &&Ending| ending.how == How::Failed;
    for ending in log.told().closed.iter().filter(broken) {
        assert!(ending.text.starts_with("it broke: "), "{}", ending.text);
    }
    Ok(())
}

/// The server does not receive then, and hears of the reset all the same.
fn reset_while_output_waits(subject: &Subject) -> Result<(), Skipped> {
    if let Some(why) = wine::REST_OF_A_SEND.leaves_out() {
        return Err(Skipped(why));
    }
    let (server, log) = subject.echo(&server());
    let to = server.local_addresses()[0];
    for number in 0..3 {
        let mut client = Client::connect(to, number);
        let before = server.counters().pauses;
        client.fill_up(|| server.counters().pauses > before);
        let peer = client.address();
        client.reset();
        assert_eq!(log.wait_for_ending(peer), How::Failed);
    }
    assert_eq!(stop(server, &log).closed_failed, 3);
    Ok(())
}

/// Half of them in order, the other half by a reset.
fn connects_that_close_at_once(subject: &Subject) -> Result<(), Skipped> {
    let (server, log) = subject.echo(&server());
    let to = server.local_addresses()[0];
    let mut other = Client::connect(to, 0);
    thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                for number in 0..250 {
                    let client = Client::connect(to, number);
                    if thread % 2 == 0 { client.reset() } else { drop(client) }
                }
            });
        }
    });
    other.ping();
    until("the end of the connections", || {
        let total = server.counters();
        total.accepted + total.accept_errors == 1001 && total.closed() == total.accepted - 1
    });
    let mut late = Client::connect(to, 1);
    late.ping();
    drop((other, late));
    let total = stop(server, &log);
    assert!(total.closed_finished >= 502, "{}", total.closed_finished);
    Ok(())
}

/// Threads and descriptors that were there for many connections are given back when those have gone, but for what
/// is kept for a few that may come.
fn what_many_needed_goes_with_them(subject: &Subject) -> Result<(), Skipped> {
    const MANY: usize = 400;
    /// Threads and descriptors of a group of connections, where a design has such.
    const KEPT: (usize, usize) = (1, 70);
    let (Some(_), Some(_)) = (machine::threads(), descriptors()) else {
        return Err(Skipped("the system does not tell of threads and descriptors".into()));
    };
    let now = || machine::threads().zip(descriptors()).expect("as before");
    let (server, log) = subject.echo(&server());
    let to = server.local_addresses()[0];
    let before = now();
    for _ in 0..2 {
        let mut many = clients(MANY, to);
        many.iter_mut().for_each(Client::ping);
        drop(many);
        until("the return of threads and descriptors", || {
            let (threads, descriptors) = now();
            threads <= before.0 + KEPT.0 && descriptors <= before.1 + KEPT.1
        });
        // And those that come later find room.
        Client::connect(to, 1).ping();
    }
    assert_eq!(stop(server, &log).closed_finished, 2 * (MANY as u64 + 1));
    Ok(())
}
