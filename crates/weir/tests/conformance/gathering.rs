//! Waiting in groups, and sleeping ahead of what is expected, for the designs that have it.

use super::support::*;
use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};
use weir::udp::{Running, Server};

pub const CHECKS: &[Check] = &[
    ("gathers_groups", gathers_groups),
    ("gathers_a_lone_datagram", gathers_a_lone_datagram),
    ("gathers_more_than_is_taken_at_a_time", gathers_more_than_is_taken_at_a_time),
    ("gathers_until_a_stop", gathers_until_a_stop),
    ("gathers_from_when_that_is_asked_for", gathers_from_when_that_is_asked_for),
];

/// Far longer than the datagrams here are apart.
const LONGER: &str = "150000us,65536";
const LONGER_TIME: Duration = Duration::from_millis(150);

/// The longest that may be asked for.
const LONG: &str = "1000000us,65536";

/// Starts a server that lets datagrams gather, and logs them.
fn log(subject: &Subject, gather: &str) -> (Running<Boxed>, Arc<Log>) {
    let mut design = subject.design();
    design.set("gather", gather).unwrap();
    let server = Server::bind(any_port());
    let (server, log) = subject.try_log_design(design, &server, Answer::Nothing).unwrap();
    let settings = server.effective();
    let told = |name| settings.iter().find(|(known, _)| known == name).map(|(_, value)| &**value);
    assert_eq!(told("gather"), Some(gather));
    assert!(told("gathers-by").is_some_and(|how| how.contains("slack")), "it is told how");
    (server, log)
}

/// Datagrams that come one by one, each after the thread went to sleep again, wake it a few times and not each time.
fn gathers_groups(subject: &Subject) -> Result<(), Skipped> {
    const COUNT: usize = 100;
    let (server, log) = log(subject, LONGER);
    let to = server.local_addresses()[0];
    let sender = &senders(1, to)[0];
    let mut sent = Tally::new();
    let since = Instant::now();
    for number in 0..COUNT {
        let bytes = pattern(number, 100);
        sender.send_to(&bytes, to).unwrap();
        *sent.entry((sender.local_addr().unwrap(), bytes)).or_default() += 1;
        thread::sleep(Duration::from_millis(1)); // the pace, not a wait for something
    }
    log.wait_for(COUNT);
    let total = stop(server, &log);
    assert_same(&log.seen(), &sent);
    assert_few(total.waits, subject, COUNT, since);
    Ok(())
}

/// Without gathering each datagram has its own wait. Threads that share a socket have some each, and on a busy machine, where
/// the datagrams take their time, a wait is over now and then.
fn assert_few(waits: u64, subject: &Subject, datagrams: usize, since: Instant) {
    let over = since.elapsed().as_nanos() / LONGER_TIME.as_nanos();
    let most = datagrams as u64 / 2 + 2 * u64::from(subject.threads()) * over as u64;
    assert!(waits < most, "{waits} waits for {datagrams} datagrams, of at most {most}");
}

fn gathers_a_lone_datagram(subject: &Subject) -> Result<(), Skipped> {
    let (server, log) = log(subject, "500us,64");
    let to = server.local_addresses()[0];
    let sent = send_all(&senders(1, to), to, [100; 5], 1, &log);
    stop(server, &log);
    assert_same(&log.seen(), &sent);
    Ok(())
}

/// What is taken at a time is less than a group: the rest does not wait as long again. If it did, this would take longer
/// than anybody's patience.
fn gathers_more_than_is_taken_at_a_time(subject: &Subject) -> Result<(), Skipped> {
    let mut design = subject.design();
    for option in ["drain", "batch", "threshold", "dequeue-max"] {
        if design.known_options().iter().any(|known| known.name == option) {
            design.set(option, "3").unwrap();
        }
    }
    design.set("gather", LONG).unwrap();
    let server = Server::bind(any_port());
    let (server, log) = subject.try_log_design(design, &server, Answer::Nothing).unwrap();
    let to = server.local_addresses()[0];
    let sender = &senders(1, to)[0];
    let (mut sent, mut count) = (Tally::new(), 0);
    // The first of them teach it that there is something to wait for.
    for more in [10, 200] {
        for number in count..count + more {
            let bytes = pattern(number, 16);
            sender.send_to(&bytes, to).unwrap();
            *sent.entry((sender.local_addr().unwrap(), bytes)).or_default() += 1;
        }
        count += more;
        log.wait_for(count);
    }
    stop(server, &log);
    assert_same(&log.seen(), &sent);
    Ok(())
}

/// A server that did not let datagrams gather does, and then no longer.
fn gathers_from_when_that_is_asked_for(subject: &Subject) -> Result<(), Skipped> {
    const COUNT: usize = 100;
    let (server, log) = subject
        .try_log_design(subject.design(), &Server::bind(any_port()), Answer::Nothing)
        .unwrap();
    let to = server.local_addresses()[0];
    let senders = senders(1, to);
    let mut sent = send_all(&senders, to, [100; 5], 1, &log);
    for wrong in ["many", "200us", "2s,64"] {
        let error = server.set(&[("gather", wrong)]).unwrap_err().to_string();
        assert!(error.contains("200us,64"), "{error}");
    }
    server.set(&[("gather", LONGER)]).unwrap();
    let value = |name: &str| {
        let settings = server.effective();
        settings.into_iter().find(|(known, _)| known == name).map(|(_, value)| value)
    };
    assert_eq!(value("gather").as_deref(), Some(LONGER));
    let waits = || server.counters().iter().map(|counters| counters.waits).sum::<u64>();
    let (before, since) = (waits(), Instant::now());
    for number in 0..COUNT {
        let bytes = pattern(number, 100);
        senders[0].send_to(&bytes, to).unwrap();
        *sent.entry((senders[0].local_addr().unwrap(), bytes)).or_default() += 1;
        thread::sleep(Duration::from_millis(1)); // the pace, not a wait for something
    }
    log.wait_for(5 + COUNT);
    assert_few(waits() - before, subject, COUNT, since);
    server.set(&[("gather", "none")]).unwrap();
    assert_eq!(value("gather").as_deref(), Some("none"));
    add(&mut sent, send_all(&senders, to, [100; 5], 1, &log));
    stop(server, &log);
    assert_same(&log.seen(), &sent);
    Ok(())
}

/// A stop finds it asleep with datagrams that wait: those that it did not take are dropped, as with every stop.
fn gathers_until_a_stop(subject: &Subject) -> Result<(), Skipped> {
    let (server, log) = log(subject, LONG);
    let to = server.local_addresses()[0];
    let sender = &senders(1, to)[0];
    for number in 0..5 {
        sender.send_to(&pattern(number, 100), to).unwrap();
    }
    log.wait_for(1);
    let total = stop(server, &log);
    assert!((1..=5).contains(&total.datagrams));
    Ok(())
}

/// Of the designs that can sleep ahead of what they expect.
pub const CHECKS_OF_ADAPTIVE: &[Check] = &[("sleeps_ahead", sleeps_ahead)];

/// Regular datagrams, silence, a burst and regular ones again: every one is handled, and the stop finds it asleep.
fn sleeps_ahead(subject: &Subject) -> Result<(), Skipped> {
    let mut design = subject.design();
    design.set("adaptive", "true").unwrap();
    let server = Server::bind(any_port());
    let (server, log) = subject.try_log_design(design, &server, Answer::Nothing).unwrap();
    let to = server.local_addresses()[0];
    let senders = senders(1, to);
    let mut sent = Tally::new();
    let regular = |sent: &mut Tally| {
        for _ in 0..50 {
            add(sent, send_all(&senders, to, [100], 1, &log));
            thread::sleep(Duration::from_millis(1)); // the pace, not a wait for something
        }
    };
    regular(&mut sent);
    thread::sleep(Duration::from_millis(100)); // the silence
    add(&mut sent, send_all(&senders, to, [100; 30], WINDOW, &log));
    regular(&mut sent);
    stop(server, &log);
    assert_same(&log.seen(), &sent);
    Ok(())
}
