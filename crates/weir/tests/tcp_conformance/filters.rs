//! Filters in front of a handler: each alone, and all in a chain.

use super::{
    client::{Client, Random, clients, read},
    support::*,
    wine,
};
use socket2::{Domain, Socket, Type};
use std::{
    io::{Read, Write},
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use weir::{
    filter::{ConnectionLimit, Filter, FlowControl, Policy, RateLimit, ReadTimeout, Verdict},
    stream::StreamOptions,
    tcp::{Final, Handler, Limits, Output, REFUSAL},
    timer::{Counts, TICK},
};

pub const CHECKS: &[Check] = &[
    ("filter_read_timeout_of_a_closed_connection", read_timeout_of_a_closed_connection),
    ("filter_read_timeout_fires", read_timeout_fires),
    ("filter_refuses_beyond_a_number", refuses_beyond_a_number),
    ("filter_refuses_beyond_a_number_of_an_address", refuses_beyond_a_number_of_an_address),
    ("filter_limits_the_rate", limits_the_rate),
    ("filter_flow_blocks", flow_blocks),
    ("filter_flow_drops", flow_drops),
    ("filter_flow_breaks_off", flow_breaks_off),
    ("filter_chain", chain),
    ("filter_chain_at_a_stop", chain_at_a_stop),
];

const SHORT: Duration = Duration::from_millis(400);

/// What nothing of a check comes near to.
const LONG: Duration = Duration::from_secs(600);

/// Limits without times, so that a filter's are the only ones.
fn timeless() -> Limits {
    limits().silent(None).idle(None).stalled(None)
}

/// An echo that holds something on as long as it lives.
struct Holds(#[allow(dead_code, reason = "it is there to be dropped")] Arc<()>);

impl Handler for Holds {
    fn on_receive(&mut self, _: &mut [u8], output: &mut Output<'_>) {
        output.echo().unwrap();
    }
}

/// The defect of a framework whose filters did not see the shutdown: connections that had been closed in
/// order stayed until their read timeout, which then fired.
fn read_timeout_of_a_closed_connection(subject: &Subject) -> Result<(), Skipped> {
    let alive = Arc::new(());
    let held = Arc::clone(&alive);
    let handlers = ReadTimeout::new(LONG).handlers(move |_| Holds(Arc::clone(&held)));
    let (server, log) = subject.start(&server_with(timeless()), handlers);
    let mut clients = clients(5, server.local_addresses()[0]);
    clients.iter_mut().for_each(Client::ping);
    assert_eq!(Arc::strong_count(&alive), 2 + clients.len());
    for client in &mut clients {
        client.end_sending();
        client.expect_end();
    }
    drop(clients);
    until("the end of every handler", || Arc::strong_count(&alive) == 2 && server.open() == 0);
    let report: Final = stop_within(server, &log, limits().stop + SLACK);
    assert_eq!(report.total().closed_finished, 5);
    // One timer a connection, set once and cancelled: nothing fires for one that is over.
    let Counts { created, set, updated, fired, cancelled, .. } = report.timers;
    assert!((1..=5).contains(&created), "{:?}", report.timers);
    assert_eq!((set, updated, fired, cancelled), (5, 0, 0, 5));
    Ok(())
}

fn read_timeout_fires(subject: &Subject) -> Result<(), Skipped> {
    in_time(SHORT, |short| read_timeout_fires_with(subject, short))
}

fn read_timeout_fires_with(subject: &Subject, short: Duration) -> Result<(), Skipped> {
    let handlers = ReadTimeout::new(short).handlers(|_| echo);
    let (server, log) = subject.start(&server_with(timeless()), handlers);
    let to = server.local_addresses()[0];
    let since = Instant::now();
    let (mut silent, mut quiet, mut talks) =
        (Client::connect(to, 1), Client::connect(to, 2), Client::connect(to, 3));
    quiet.ping();
    while log.told().closed.len() < 2 {
        talks.ping();
        assert!(since.elapsed() < PATIENCE, "they were never closed");
    }
    assert!(since.elapsed() > short - TICK, "after {:?}", since.elapsed());
    for client in [&mut silent, &mut quiet] {
        assert_eq!(log.wait_for_ending(client.address()), How::Filter);
        client.expect_reset();
    }
    let text = log.told().closed[0].text.clone();
    assert!(text.contains(&format!("nothing was read for {short:?}")), "{text}");
    talks.ping();
    drop(talks);
    assert_eq!(stop(server, &log).closed_by_filter, 2);
    Ok(())
}

/// What a client is told that is refused.
fn refusal(client: &Client) -> String {
    let mut said = String::new();
    (&client.stream).read_to_string(&mut said).expect("a line and the end");
    said.strip_prefix(REFUSAL).expect("it is told that it is refused").to_owned()
}

fn refuses_beyond_a_number(subject: &Subject) -> Result<(), Skipped> {
    let limit = ConnectionLimit::new(3, u32::MAX);
    let handlers = limit.clone().handlers(|_| echo);
    let (server, log) = subject.start(&server(), handlers);
    let to = server.local_addresses()[0];
    let mut within = clients(3, to);
    within.iter_mut().for_each(Client::ping);
    for _ in 0..3 {
        let beyond = Client::connect(to, 9);
        assert_eq!(refusal(&beyond), "there are 3 connections, the most allowed\n");
        let address = beyond.address();
        drop(beyond);
        assert_eq!(log.wait_for_ending(address), How::Declined);
    }
    within.iter_mut().for_each(Client::ping);
    drop(within.remove(0));
    until("a place", || limit.open() == 2);
    let mut next = Client::connect(to, 10);
    next.ping();
    drop((within, next));
    let total = stop(server, &log);
    assert_eq!((total.closed_finished, total.closed_by_filter), (4, 3));
    assert_eq!((limit.open(), limit.addresses(), limit.refused()), (0, 0, 3));
    Ok(())
}

/// Connects from this address.
fn connect_from(from: &str, to: SocketAddr, seed: u64) -> Client {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    let from: SocketAddr = format!("{from}:0").parse().expect("an address");
    socket.bind(&from.into()).expect("an address of loopback");
    socket.connect(&to.into()).expect("a server");
    Client::on(socket.into(), seed)
}

fn refuses_beyond_a_number_of_an_address(subject: &Subject) -> Result<(), Skipped> {
    let limit = ConnectionLimit::new(u32::MAX, 2);
    let handlers = limit.clone().handlers(|_| echo);
    let (server, log) = subject.start(&server(), handlers);
    let to = server.local_addresses()[0];
    let mut within = clients(2, to);
    within.iter_mut().for_each(Client::ping);
    let beyond = Client::connect(to, 9);
    assert_eq!(refusal(&beyond), "there are 2 connections from your address, the most allowed\n");
    drop(beyond);
    // Another address is not concerned.
    let mut other = connect_from("127.0.0.2", to, 5);
    other.ping();
    assert_eq!((limit.open(), limit.addresses()), (3, 2));
    drop((within, other));
    let total = stop(server, &log);
    assert_eq!((total.closed_finished, total.closed_by_filter), (3, 1));
    assert_eq!((limit.addresses(), limit.refused()), (0, 1));
    Ok(())
}

/// By pauses: nothing is lost, and the others are not held up. A machine that is slower than the rate need not pause, so
/// it is tried with lower ones until it must.
fn limits_the_rate(subject: &Subject) -> Result<(), Skipped> {
    const BURST: Duration = Duration::from_millis(200);
    let pauses_at = |rate: u64| {
        // The most that one receive brought.
        let most = Arc::new(AtomicU64::new(0));
        let noted = Arc::clone(&most);
        let notes = move |_| {
            let noted = Arc::clone(&noted);
            move |bytes: &mut [u8], output: &mut Output<'_>| {
                noted.fetch_max(bytes.len() as u64, Relaxed);
                echo(bytes, output);
            }
        };
        let bytes = RateLimit::new(Some(rate), None).burst(BURST);
        let (server, log) = subject.start(&server(), bytes.handlers(notes));
        let to = server.local_addresses()[0];
        let mut client = Client::connect(to, 1);
        let (total, since) = (rate / 2, Instant::now());
        client.exchange(total, &mut Random(3));
        let took = since.elapsed();
        // The last receive was made when all before it were paid for, but for the burst.
        let paid = Duration::from_micros((total - most.load(Relaxed)) * 1_000_000 / rate);
        assert!(took >= paid.saturating_sub(BURST), "it took only {took:?}, {paid:?} of {rate}/s");
        let mut other = Client::connect(to, 2);
        other.ping();
        drop((client, other));
        let total = stop(server, &log);
        assert_eq!(total.closed_finished, 2, "{total:?}");
        total.pauses > 0
    };
    assert!([200_000, 40_000, 8000].into_iter().any(pauses_at), "it never pauses");
    const PER_S: u32 = 100;
    let messages = RateLimit::new(None, Some(PER_S.into())).burst(BURST);
    let (server, log) = subject.start(&super::support::server(), messages.handlers(|_| echo));
    let mut client = Client::connect(server.local_addresses()[0], 1);
    let since = Instant::now();
    (0..50).for_each(|_| client.ping());
    let took = since.elapsed();
    let paid = Duration::from_secs(1) / PER_S * 49;
    assert!(took >= paid - BURST, "it took only {took:?}");
    drop(client);
    stop(server, &log);
    Ok(())
}

/// A server whose system buffers little.
fn little() -> weir::tcp::Server {
    let options = StreamOptions::default().send_buffer_bytes(Some(16 * 1024));
    server().stream_options(options)
}

fn flow_blocks(subject: &Subject) -> Result<(), Skipped> {
    let flow = FlowControl::new(32 * 1024, Policy::Block);
    let (server, log) = subject.start(&little(), flow.clone().handlers(|_| echo));
    let mut client = Client::connect(server.local_addresses()[0], 1);
    client.fill_up(|| flow.blocked() > 0);
    client.end_sending();
    client.receive_all().expect("the end in order");
    assert_eq!(client.back(), client.sent());
    drop(client);
    let total = stop(server, &log);
    assert_eq!((total.closed_finished, flow.dropped()), (1, (0, 0)));
    assert!(log.told().most_waiting <= 32 * 1024, "{} bytes", log.told().most_waiting);
    Ok(())
}

/// Says numbered messages whenever it receives something.
struct Numbers(u32);

const MESSAGE: usize = 1000;

impl Handler for Numbers {
    fn on_receive(&mut self, _: &mut [u8], output: &mut Output<'_>) {
        for _ in 0..16 {
            let mut message = [self.0 as u8; MESSAGE];
            message[..4].copy_from_slice(&self.0.to_le_bytes());
            output.send(&message).expect("it is dropped and not refused");
            self.0 += 1;
        }
    }
}

/// Sends to one that does not read until messages are dropped, then has it read: the numbers that came.
fn drop_some(subject: &Subject, flow: &FlowControl) -> (Vec<u32>, u32) {
    let (server, log) = subject.start(&little(), flow.clone().handlers(|_| Numbers(0)));
    let mut client = Client::connect(server.local_addresses()[0], 1);
    until("a message that is dropped", || {
        // More than system and peer take is said sooner or later.
        let _ = (&client.stream).write_all(&[1; 8]);
        flow.dropped().0 > 20
    });
    client.end_sending();
    let mut said = Vec::new();
    let mut bytes = vec![0; 64 * 1024];
    loop {
        match read(&client.stream, &mut bytes).expect("bytes or the end") {
            0 => break,
            count => said.extend_from_slice(&bytes[..count]),
        }
    }
    let came = said.len() as u64;
    assert_eq!(came % MESSAGE as u64, 0, "a part of a message");
    let numbers = said.chunks_exact(MESSAGE).map(|message| {
        let (head, rest) = message.split_at(4);
        let number = u32::from_le_bytes(head.try_into().expect("four"));
        assert!(rest.iter().all(|byte| *byte == number as u8), "message {number}");
        number
    });
    let numbers: Vec<_> = numbers.collect();
    assert!(numbers.is_sorted_by(|one, next| one < next), "out of order");
    client.expect_end();
    drop(client);
    let total = stop(server, &log);
    assert_eq!(total.closed_finished, 1, "{}: {total:?}", log.told().closed[0].text);
    assert_eq!(total.bytes_sent, came, "what the system took, and what came");
    let said = total.messages as u32 * 16;
    assert_eq!(flow.dropped().0, u64::from(said) - numbers.len() as u64);
    assert_eq!(flow.dropped().1, flow.dropped().0 * MESSAGE as u64);
    (numbers, said)
}

fn flow_drops(subject: &Subject) -> Result<(), Skipped> {
    if let Some(why) = wine::REST_OF_A_SEND.leaves_out() {
        return Err(Skipped(why));
    }
    let ask = Policy::Ask(Arc::new(|full| {
        assert!(full.outstanding + full.message > full.bound);
        Verdict::DropOldest
    }));
    for policy in [Policy::DropOldest, ask] {
        let (numbers, said) = drop_some(subject, &FlowControl::new(32 * 1024, policy));
        assert_eq!(numbers.last(), Some(&(said - 1)), "the newest is kept");
    }
    let (numbers, said) = drop_some(subject, &FlowControl::new(32 * 1024, Policy::DropNewest));
    assert!(numbers.len() < said as usize && numbers[0] == 0);
    Ok(())
}

fn flow_breaks_off(subject: &Subject) -> Result<(), Skipped> {
    let flow = FlowControl::new(32 * 1024, Policy::Ask(Arc::new(|_| Verdict::Close)));
    let (server, log) = subject.start(&little(), flow.handlers(|_| Numbers(0)));
    let client = Client::connect(server.local_addresses()[0], 1);
    until("the end", || {
        let _ = (&client.stream).write_all(&[1; 8]);
        log.told().ending(client.address()).is_some()
    });
    assert_eq!(log.wait_for_ending(client.address()), How::Filter);
    drop(client);
    stop(server, &log);
    Ok(())
}

fn everything() -> impl Filter {
    ConnectionLimit::new(1000, 1000)
        .then(Some(ReadTimeout::new(LONG)))
        .then(None::<ReadTimeout>)
        .then(RateLimit::new(Some(1 << 40), Some(1 << 40)))
        .then(FlowControl::new(64 * 1024, Policy::Block))
}

/// Together they are not to be seen.
fn chain(subject: &Subject) -> Result<(), Skipped> {
    let handlers = everything().handlers(|_| echo as fn(&mut [u8], &mut Output<'_>));
    let (server, log) = subject.start(&server(), handlers);
    let mut clients = clients(10, server.local_addresses()[0]);
    for (number, client) in clients.iter_mut().enumerate() {
        client.exchange(200_000, &mut Random(number as u64));
        client.end_sending();
        client.expect_end();
    }
    drop(clients);
    let total = stop(server, &log);
    assert_eq!((total.closed_finished, total.bytes_sent), (10, 2_000_000));
    Ok(())
}

/// What was received by then is answered, also what waits in a filter.
fn chain_at_a_stop(subject: &Subject) -> Result<(), Skipped> {
    let handlers = everything().handlers(|_| echo as fn(&mut [u8], &mut Output<'_>));
    let (server, log) = subject.start(&server(), handlers);
    let mut client = Client::connect(server.local_addresses()[0], 1);
    client.ping();
    client.send(200_000);
    until("the arrival of all", || server.counters().bytes_received > 50_000);
    let receiving = std::thread::spawn(move || {
        client.receive_all().expect("the end in order");
        assert!(client.back() > 50_000);
        client.back()
    });
    let total = stop(server, &log);
    let back = receiving.join().expect("its answers");
    assert_eq!((total.closed_finished, total.bytes_sent), (1, back));
    Ok(())
}
