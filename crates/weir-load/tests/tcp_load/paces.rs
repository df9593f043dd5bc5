//! What is due when, what ends a load, and where its ports run out.

use crate::support::*;
use std::{
    io::{self, Read as _, Write as _},
    net::TcpListener,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};
use weir_load::{
    Stop, StopReason,
    tcp::{EndedBy, Engine, Event, LoadSpec, Pace, Sizes, load},
};

each_engine!(
    an_open_loop_tells_of_every_message_that_had_to_wait,
    messages_of_small_blocks_are_due_at_once,
    messages_that_were_due_and_could_not_be_sent_are_counted,
    a_sink_gets_every_byte_and_answers_none,
    a_stop_ends_it_in_order,
    the_report_is_one_document_without_a_nan,
    where_ports_run_out_further_addresses_are_taken,
    none_sends_a_second_message_before_all_have_their_first_back,
);

/// The server answers nothing for a while. A client that asks only when it has an answer would have
/// one slow message a connection; here each that was due is as late as it is.
fn an_open_loop_tells_of_every_message_that_had_to_wait(engine: Engine) {
    const STALL: Duration = Duration::from_millis(300);
    let server = Server::start(|stream, _| {
        let mut stalled = false;
        echo(stream, |offset, _| {
            if offset >= 64 * 20 && !std::mem::replace(&mut stalled, true) {
                thread::sleep(STALL);
            }
        })
    });
    // So many in the time that the pace gives them, however long this machine takes for them.
    const EACH: u64 = 200;
    let spec = LoadSpec {
        connections: 2,
        pace: Pace::Open { messages_per_s: 400.0 },
        sends: Some(EACH),
        ..server.spec(engine)
    };
    let report = run(&spec);
    assert_eq!((report.invalid(), &report.failure), (None, &None), "{report:?}");
    let over = report.counts.messages_over as f64;
    assert_eq!(report.counts.messages_over, 2 * EACH);
    // While it stalls, 0.3 s of messages come due; half of those wait for more than half of it.
    let late = {
        let total = report.latency_histogram.count();
        let within = (0..=1000u32)
            .map(|share| f64::from(share) / 1000.0)
            .filter(|share| {
                let ns = report.latency_histogram.percentile(*share).unwrap();
                ns > STALL.as_nanos() as u64 / 2
            })
            .count();
        total as f64 * within as f64 / 1000.0
    };
    // More of them on a machine that is busy with other things; a client that asks only when it has an
    // answer would have two.
    assert!(late >= 40.0, "{late} of {over} waited long");
    assert!(report.latency_ns.unwrap().max >= STALL.as_nanos() as u64);
    let delays = report.send_delay_ns.expect("of an open loop");
    assert!(delays.n > 0, "{delays:?}");
}

/// However blocks and threads divide them, each connection sends from the beginning on.
fn messages_of_small_blocks_are_due_at_once(engine: Engine) {
    let server = Server::echo();
    let spec = LoadSpec {
        blocks: 7,
        block_interval: Duration::ZERO,
        threads: 4,
        // One in 100 s on each connection, of which the first is due when its block stands.
        pace: Pace::Open { messages_per_s: 0.07 },
        sends: Some(1),
        // Before the next one is due on any of them.
        duration: Duration::from_secs(10),
        ..server.spec(engine)
    };
    assert_clean(&run(&spec), 7, 1);
}

fn messages_that_were_due_and_could_not_be_sent_are_counted(engine: Engine) {
    in_time(INSTANT, |instant| what_was_due_within_is_counted(engine, instant));
}

fn what_was_due_within_is_counted(engine: Engine, instant: Duration) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let spec = LoadSpec {
        connections: 4,
        pace: Pace::Open { messages_per_s: 200.0 },
        duration: 2 * instant,
        drain: Duration::ZERO,
        ..spec_of(engine, listener.local_addr().unwrap())
    };
    let report = run(&spec);
    assert_eq!(report.messages_unanswered, 4, "{report:?}");
    // No fewer than came due in its time, and none besides: on a busy machine that may have been longer.
    let due = report.messages_due_unsent + 4;
    let most = 200 * report.elapsed_ns / 1_000_000_000 + 4;
    let least = 175 * 2 * instant.as_millis() as u64 / 1000;
    assert!((least..=most).contains(&due), "{due}, not {least} to {most}");
}

fn a_sink_gets_every_byte_and_answers_none(engine: Engine) {
    in_time(INSTANT, |instant| a_sink_gets_every_byte_within(engine, instant));
}

fn a_sink_gets_every_byte_within(engine: Engine, duration: Duration) {
    let received = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&received);
    let server = Server::start(move |mut stream, _| {
        let count = io::copy(&mut stream, &mut io::sink())?;
        counted.fetch_add(count, SeqCst);
        Ok(())
    });
    let spec = LoadSpec {
        connections: 3,
        outstanding: 8,
        one_way: true,
        sizes: Sizes::of(50_000),
        duration,
        ..server.spec(engine)
    };
    let report = run(&spec);
    assert_eq!((report.invalid(), &report.failure), (None, &None), "{report:?}");
    assert_eq!((report.counts.finished, report.counts.bytes_received), (3, 0));
    assert!(report.counts.messages_over > 3);
    drop(server);
    assert_eq!(received.load(SeqCst), report.counts.bytes_sent);
}

fn a_stop_ends_it_in_order(engine: Engine) {
    let server = Server::echo();
    let spec = LoadSpec {
        connections: 20,
        duration: Duration::from_secs(600),
        interval: Some(Duration::from_millis(50)),
        ..server.spec(engine)
    };
    let (stop, began) = (Stop::new(), Instant::now());
    let report = load(&spec, &stop, |event| {
        if matches!(event, Event::Interval(progress) if progress.messages > 0) {
            stop.request(StopReason::Asked);
        }
    })
    .unwrap();
    assert!(began.elapsed() < SOON, "it hung");
    assert_eq!((report.ended_by, report.invalid()), (EndedBy::Asked, None), "{report:?}");
    assert_eq!((report.counts.finished, report.messages_unanswered), (20, 0));
}

fn the_report_is_one_document_without_a_nan(engine: Engine) {
    let server = Server::echo();
    let report = run(&LoadSpec { sends: Some(3), ..server.spec(engine) });
    let value = serde_json::to_value(&report).expect("it can be written");
    assert_eq!(value["messages_over"], 3, "{value}");
    assert!(value["latency_ns"]["p99_9"].is_u64(), "{value}");
    assert_eq!(value["ended_by"], "connections");
}

/// Only Linux gives a thread a network of its own.
#[cfg(not(target_os = "linux"))]
fn with_few_ports() -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Moves the calling thread, and those that it starts, into a network of its own, in which a source
/// address has 10 ports. It is gone when they are.
#[cfg(target_os = "linux")]
fn with_few_ports() -> io::Result<()> {
    // SAFETY: takes a number and touches no memory of ours.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let up = std::process::Command::new("ip").args(["link", "set", "lo", "up"]).status()?;
    assert!(up.success(), "ip: {up}");
    std::fs::write("/proc/sys/net/ipv4/ip_local_port_range", "40000 40009")
}

fn where_ports_run_out_further_addresses_are_taken(engine: Engine) {
    let alone = thread::spawn(move || {
        if let Err(why) = with_few_ports() {
            let required = std::env::var("WEIR_REQUIRE").unwrap_or_default();
            assert_ne!(required, "all", "required by WEIR_REQUIRE, but there is no network: {why}");
            eprintln!("not run: no network of its own: {why}");
            return;
        }
        // Outside of the range of what is chosen, so that it takes none.
        let listener = TcpListener::bind("127.0.0.1:5150").unwrap();
        let server = Server::listening(listener, |stream, _| echo(stream, |_, _| {}));
        let spec =
            LoadSpec { connections: 35, threads: 2, duration: INSTANT, ..server.spec(engine) };
        let report = run(&spec);
        assert_eq!((report.counts.finished, report.invalid()), (35, None), "{report:?}");
        assert!((4..=5).contains(&report.source_addresses), "{}", report.source_addresses);

        // IPv6 has one address of loopback.
        let listener = TcpListener::bind("[::1]:5151").unwrap();
        let server = Server::listening(listener, |stream, _| echo(stream, |_, _| {}));
        let report = run(&LoadSpec { connections: 15, duration: INSTANT, ..server.spec(engine) });
        assert_eq!((report.counts.finished, report.counts.connect_failed), (10, 5), "{report:?}");
        let (cause, count) = report.errors.by_count()[0];
        assert!(cause.contains("port") && count == 5, "{cause}");
    });
    alone.join().unwrap();
}

/// A server that answers nobody before it has seen the first message of all would wait for ever if a
/// connection were made one after the other; one that sees a second before that has found a fault.
fn none_sends_a_second_message_before_all_have_their_first_back(engine: Engine) {
    in_time(INSTANT, |instant| none_sends_a_second_message_too_early(engine, instant));
}

fn none_sends_a_second_message_too_early(engine: Engine, duration: Duration) {
    const ALL: u32 = 40;
    let answered = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&answered);
    let server = Server::start(move |mut stream, _| {
        let mut message = [0; 64];
        for number in 0_u32.. {
            if stream.read_exact(&mut message).is_err() {
                break;
            }
            if number == 0 {
                // The last ones are late.
                thread::sleep(Duration::from_millis(2));
                seen.fetch_add(1, SeqCst);
            } else if seen.load(SeqCst) < ALL {
                return Err(io::Error::other("one ran ahead"));
            }
            stream.write_all(&message)?;
        }
        Ok(())
    });
    let spec = LoadSpec {
        connections: ALL,
        connecting: 3,
        outstanding: 4,
        together: true,
        duration,
        ..server.spec(engine)
    };
    let report = run(&spec);
    assert_eq!((report.invalid(), report.counts.connected), (None, ALL.into()), "{report:?}");
    assert_eq!(answered.load(SeqCst), ALL);
    assert!(report.counts.messages_over > u64::from(ALL), "{report:?}");
    // Without an answer none is made, and nothing is measured.
    let silent = Server::start(|mut stream, _| {
        stream.read_to_end(&mut Vec::new())?;
        Ok(())
    });
    let report = run(&LoadSpec {
        answer_timeout: INSTANT / 2,
        ..LoadSpec { target: silent.spec(engine).target, ..spec }
    });
    assert_eq!(report.counts.unanswered, u64::from(ALL), "{report:?}");
    assert_eq!(report.counts.messages_over, 0);
}
