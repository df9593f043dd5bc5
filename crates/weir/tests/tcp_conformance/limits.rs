//! What a server allows a peer, and for how long.

use super::{
    client::{Client, Random, clients},
    support::*,
    wine,
};
use std::{
    io::{ErrorKind, Read, Write},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};
use weir::{
    Error,
    tcp::{MOST_CONNECTIONS, Output, REFUSAL, Refused, WhenFull},
};

pub const CHECKS: &[Check] = &[
    ("reads_slowly", reads_slowly),
    ("reads_slowly_and_is_not_idle", reads_slowly_and_is_not_idle),
    ("never_reads", never_reads),
    ("never_reads_where_full_is_the_end", never_reads_where_full_is_the_end),
    ("never_speaks", never_speaks),
    ("comes_after_a_long_quiet", comes_after_a_long_quiet),
    ("speaks_no_more", speaks_no_more),
    ("stays_when_the_server_has_finished", stays_when_the_server_has_finished),
    ("too_many_connections", too_many_connections),
    ("stays_when_it_is_refused", stays_when_it_is_refused),
    ("output_beyond_the_limit", output_beyond_the_limit),
    ("limits_that_make_no_sense", limits_that_make_no_sense),
];

/// A time-out that is long enough to tell from none, in ticks of the clock of connections and
/// otherwise.
const SHORT: Duration = Duration::from_millis(400);

/// How much less it may be: the clock goes in ticks, and one has begun when a connection comes.
const TICKS: Duration = weir::timer::TICK.saturating_mul(2);

/// What a slow reader leaves lying stays within its limit, and everything arrives at last.
fn reads_slowly(subject: &Subject) -> Result<(), Skipped> {
    let limits = limits().output_bytes(64 * 1024);
    let (server, log) = subject.echo(&server_with(limits));
    let mut client = Client::connect(server.local_addresses()[0], 1);
    client.fill_up(|| server.counters().pauses > 0);
    // Little by little at first.
    for _ in 0..1000 {
        client.expect(10);
    }
    // Others are served meanwhile.
    let mut other = Client::connect(server.local_addresses()[0], 2);
    other.ping();
    client.end_sending();
    client.receive_all().expect("the end in order");
    assert_eq!(client.back(), client.sent());
    drop((client, other));
    let total = stop(server, &log);
    assert_eq!(total.closed_finished, 2);
    assert!(total.pauses > 0);
    assert_bounded(&log, limits);
    Ok(())
}

/// While the server does not receive it cannot hold the peer's silence against it.
fn reads_slowly_and_is_not_idle(subject: &Subject) -> Result<(), Skipped> {
    in_time(SHORT, |short| reads_slowly_and_is_not_idle_with(subject, short))
}

fn reads_slowly_and_is_not_idle_with(subject: &Subject, short: Duration) -> Result<(), Skipped> {
    let limits = limits().output_bytes(64 * 1024).idle(Some(short));
    let (server, log) = subject.echo(&server_with(limits));
    let mut client = Client::connect(server.local_addresses()[0], 1);
    client.fill_up(|| server.counters().pauses > 0);
    // A peer that reads all the time, but so slowly that the server does not get to receive: this
    // measures time, so it waits for time.
    let since = Instant::now();
    while since.elapsed() < 3 * short {
        client.expect(1);
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(log.told().closed, [], "the server let it down");
    client.end_sending();
    client.receive_all().expect("the end in order");
    assert_eq!(client.back(), client.sent());
    assert_eq!(log.wait_for_ending(client.address()), How::Finished);
    stop(server, &log);
    Ok(())
}

fn never_reads(subject: &Subject) -> Result<(), Skipped> {
    in_time(SHORT, |short| never_reads_with(subject, short))
}

fn never_reads_with(subject: &Subject, short: Duration) -> Result<(), Skipped> {
    // Filling up takes a while where the machine is busy.
    let stalled = 4 * short;
    let limits = limits().output_bytes(64 * 1024).stalled(Some(stalled));
    let (server, log) = subject.echo(&server_with(limits));
    let to = server.local_addresses()[0];
    let mut client = Client::connect(to, 1);
    let since = Instant::now();
    client.fill_up(|| server.counters().pauses > 0);
    // Others are served until then, and it is not held against them that they are quiet.
    let mut other = Client::connect(to, 2);
    other.ping();
    assert_eq!(log.wait_for_ending(client.address()), How::Stalled);
    assert!(since.elapsed() > stalled - TICKS, "after {:?}", since.elapsed());
    client.expect_reset();
    other.ping();
    drop(other);
    assert_eq!(stop(server, &log).closed_stalled, 1);
    assert_bounded(&log, limits);
    Ok(())
}

fn never_reads_where_full_is_the_end(subject: &Subject) -> Result<(), Skipped> {
    if let Some(why) = wine::REST_OF_A_SEND.leaves_out() {
        return Err(Skipped(why));
    }
    let limits = limits().output_bytes(64 * 1024).when_full(WhenFull::Close);
    let (server, log) = subject.echo(&server_with(limits));
    let to = server.local_addresses()[0];
    let client = Client::connect(to, 1);
    let mut other = Client::connect(to, 2);
    let bytes = vec![1; 1 << 20];
    let error = loop {
        // It is cut off at some time.
        if let Err(e) = (&client.stream).write_all(&bytes) {
            break e;
        }
    };
    assert!(matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{error}");
    assert_eq!(log.wait_for_ending(client.address()), How::OutputFull);
    other.ping();
    drop(other);
    assert_eq!(stop(server, &log).closed_output_full, 1);
    assert_bounded(&log, limits);
    Ok(())
}

fn never_speaks(subject: &Subject) -> Result<(), Skipped> {
    in_time(SHORT, |short| never_speaks_with(subject, short))
}

fn never_speaks_with(subject: &Subject, short: Duration) -> Result<(), Skipped> {
    let limits = limits().silent(Some(short)).idle(None);
    let (server, log) = subject.echo(&server_with(limits));
    let to = server.local_addresses()[0];
    let since = Instant::now();
    let mut spoke_once = Client::connect(to, 1);
    spoke_once.ping();
    let mut silent = clients(5, to);
    for client in &mut silent {
        assert_eq!(log.wait_for_ending(client.address()), How::Silent);
        client.expect_reset();
    }
    assert!(since.elapsed() > short - TICKS, "after {:?}", since.elapsed());
    // What was said once counts for good.
    let mut last = Client::connect(to, 2);
    assert_eq!(log.wait_for_ending(last.address()), How::Silent);
    last.expect_reset();
    spoke_once.ping();
    drop(spoke_once);
    assert_eq!(stop(server, &log).closed_silent, 6);
    Ok(())
}

/// Who comes has its whole time, however long nobody was there.
fn comes_after_a_long_quiet(subject: &Subject) -> Result<(), Skipped> {
    in_time(SHORT, |short| comes_after_a_long_quiet_with(subject, short))
}

fn comes_after_a_long_quiet_with(subject: &Subject, short: Duration) -> Result<(), Skipped> {
    let limits = limits().silent(Some(short)).idle(None);
    let (server, log) = subject.echo(&server_with(limits));
    // The first finds threads that have just begun, the second those that it left.
    for seed in 1..=2 {
        thread::sleep(2 * short); // this is about time
        let mut client = Client::connect(server.local_addresses()[0], seed);
        client.ping();
        let address = client.address();
        drop(client);
        assert_eq!(log.wait_for_ending(address), How::Finished);
    }
    assert_eq!(stop(server, &log).closed_silent, 0);
    Ok(())
}

fn speaks_no_more(subject: &Subject) -> Result<(), Skipped> {
    in_time(SHORT, |short| speaks_no_more_with(subject, short))
}

fn speaks_no_more_with(subject: &Subject, short: Duration) -> Result<(), Skipped> {
    let limits = limits().silent(None).idle(Some(short));
    let (server, log) = subject.echo(&server_with(limits));
    let to = server.local_addresses()[0];
    let never_spoke = Client::connect(to, 1);
    let mut quiet = Client::connect(to, 2);
    let mut talks = Client::connect(to, 3);
    let since = Instant::now();
    quiet.ping();
    while log.told().ending(quiet.address()).is_none() {
        talks.ping();
        assert!(since.elapsed() < PATIENCE, "the quiet one was never closed");
    }
    assert!(since.elapsed() > short - TICKS, "after {:?}", since.elapsed());
    assert_eq!(log.wait_for_ending(quiet.address()), How::Silent);
    quiet.expect_reset();
    assert_eq!(log.told().closed.len(), 1, "the quiet one only");
    drop(talks);
    let mut never_spoke = never_spoke;
    never_spoke.ping();
    drop(never_spoke);
    assert_eq!(stop(server, &log).closed_silent, 1);
    Ok(())
}

/// A peer that keeps its direction open is waited for so long and no longer, whether it is quiet or goes
/// on sending.
fn stays_when_the_server_has_finished(subject: &Subject) -> Result<(), Skipped> {
    in_time(SHORT, |short| stays_when_the_server_has_finished_with(subject, short))
}

fn stays_when_the_server_has_finished_with(
    subject: &Subject,
    short: Duration,
) -> Result<(), Skipped> {
    let limits = limits().linger(short);
    let (server, log) = subject
        .start(&server_with(limits), |_| |_: &mut [u8], output: &mut Output<'_>| output.finish());
    let to = server.local_addresses()[0];
    let mut stays = clients(2, to);
    let since = Instant::now();
    for client in &mut stays {
        client.send(1);
        client.expect_end();
    }
    // One of them goes on.
    while stays[1].stream.write(&[0; 100]).is_ok() && since.elapsed() < PATIENCE {
        thread::sleep(Duration::from_millis(1));
    }
    for client in &stays {
        assert_eq!(log.wait_for_ending(client.address()), How::Stalled);
    }
    assert!(since.elapsed() > short - TICKS, "after {:?}", since.elapsed());
    assert_eq!(stop(server, &log).closed_stalled, 2);
    Ok(())
}

fn too_many_connections(subject: &Subject) -> Result<(), Skipped> {
    let limits = limits().connections(3).linger(PATIENCE);
    let (server, log) = subject.echo(&server_with(limits));
    let to = server.local_addresses()[0];
    let mut within = clients(3, to);
    within.iter_mut().for_each(Client::ping);
    for _ in 0..5 {
        let beyond = Client::connect(to, 9);
        let mut said = String::new();
        (&beyond.stream).read_to_string(&mut said).unwrap();
        let why = said.strip_prefix(REFUSAL).expect("it is told that it is refused");
        assert_eq!(why, "there are 3 connections, the most allowed\n");
        // What it sends, before or after, is no reason for a reset, which could overtake what it is told.
        for _ in 0..3 {
            within.iter_mut().for_each(Client::ping);
            (&beyond.stream).write_all(b"it speaks").expect("it was not reset");
        }
    }
    // Those within are not concerned, and the place of one that leaves is given again.
    for round in 0..5 {
        within.iter_mut().for_each(Client::ping);
        drop(within.remove(0));
        until("the end of a connection", || server.open() == 2);
        let mut next = Client::connect(to, 10 + round);
        next.ping();
        within.push(next);
    }
    drop(within);
    let total = stop(server, &log);
    assert_eq!((total.accepted, total.refused, total.closed_finished), (8, 5, 8));
    Ok(())
}

/// One that is refused and goes on sending is waited for so long and no longer.
fn stays_when_it_is_refused(subject: &Subject) -> Result<(), Skipped> {
    in_time(SHORT, |short| stays_when_it_is_refused_with(subject, short))
}

fn stays_when_it_is_refused_with(subject: &Subject, short: Duration) -> Result<(), Skipped> {
    let limits = limits().connections(1).linger(short);
    let (server, log) = subject.echo(&server_with(limits));
    let mut within = Client::connect(server.local_addresses()[0], 1);
    within.ping();
    let since = Instant::now();
    let mut beyond = Client::connect(server.local_addresses()[0], 2);
    while beyond.stream.write(b"it speaks").is_ok() {
        assert!(since.elapsed() < PATIENCE, "it is never closed");
        thread::sleep(Duration::from_millis(1));
    }
    assert!(since.elapsed() > short - TICKS, "after {:?}", since.elapsed());
    within.ping();
    drop(within);
    assert_eq!(stop(server, &log).refused, 1);
    Ok(())
}

/// What a handler offers beyond the limit is refused and counted, and nothing of it is sent.
fn output_beyond_the_limit(subject: &Subject) -> Result<(), Skipped> {
    const ROOM: usize = 10_000;
    let limits = limits().output_bytes(ROOM);
    let refused = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&refused);
    let (server, log) = subject.start(&server_with(limits), move |_| {
        let counted = Arc::clone(&counted);
        move |bytes: &mut [u8], output: &mut Output<'_>| {
            assert_eq!(output.send(&[b'x'; ROOM + 1]), Err(Refused::Full));
            output.send(bytes).expect("there is room");
            counted.fetch_add(1, Relaxed);
        }
    });
    let mut client = Client::connect(server.local_addresses()[0], 1);
    for _ in 0..10 {
        client.ping();
    }
    drop(client);
    let total = stop(server, &log);
    assert_eq!(total.output_refused, refused.load(Relaxed));
    assert_eq!((total.closed_finished, total.bytes_sent), (1, 1000));
    Ok(())
}

fn limits_that_make_no_sense(subject: &Subject) -> Result<(), Skipped> {
    let wrong = [
        ("connections-max", limits().connections(0)),
        ("connections-max", limits().connections(MOST_CONNECTIONS + 1)),
        ("output-bytes", limits().output_bytes(0)),
        ("silent", limits().silent(Some(Duration::ZERO))),
        ("idle", limits().idle(Some(Duration::ZERO))),
        ("stalled", limits().stalled(Some(Duration::ZERO))),
    ];
    for (wrong, limits) in wrong {
        match subject.try_start(&server_with(limits), |_| echo) {
            Err(Error::Option { name, .. }) => assert_eq!(name, wrong),
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("it started with {limits:?}"),
        }
    }
    // The least output that may be: one byte waits, and all the same everything comes back.
    let limits = limits().output_bytes(1);
    let (server, log) = subject.echo(&server_with(limits));
    let mut client = Client::connect(server.local_addresses()[0], 1);
    client.exchange(1 << 20, &mut Random(1));
    drop(client);
    assert_eq!(stop(server, &log).closed_finished, 1);
    Ok(())
}
