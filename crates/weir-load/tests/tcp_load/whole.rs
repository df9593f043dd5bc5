//! Loads of servers that do what they should.

use crate::support::*;
use std::{net::TcpListener, time::Duration};
use weir_load::{
    Stop,
    tcp::{EndedBy, Engine, Event, LoadSpec, Sizes, load},
};

each_engine!(
    one_a_hundred_and_a_thousand_connections_are_echoed,
    waits_between_blocks_are_no_time_of_connecting,
    a_load_goes_on_behind_what_is_measured,
    messages_of_any_length_are_echoed,
    ipv6_and_further_addresses_of_loopback_are_loaded,
    blocks_are_added_one_after_another_and_time_ends_it,
);

fn one_a_hundred_and_a_thousand_connections_are_echoed(engine: Engine) {
    let server = Server::echo();
    for (connections, sends, outstanding, threads) in
        [(1, 500, 1, 1), (1, 300, 16, 1), (100, 20, 1, 1), (100, 20, 7, 3), (1000, 3, 2, 2)]
    {
        let spec = LoadSpec {
            connections,
            sends: Some(sends),
            outstanding,
            threads,
            sizes: Sizes::of(200),
            ..server.spec(engine)
        };
        let report = run(&spec);
        assert_clean(&report, connections.into(), sends);
        assert_eq!(report.counts.bytes_sent, u64::from(connections) * sends * 200);
        assert!(report.open_max <= connections.into());
        let window = report.window.as_ref().expect("it is the whole load");
        assert_eq!(window.messages, report.counts.messages_over);
        // Windows counts it in ticks, of which it may have had none.
        assert!(window.cpu_ns.is_some_and(|ns| ns > 0 || cfg!(windows)), "{window:?}");
        assert!(report.connects_per_s.is_some_and(|rate| rate > 0.0));
    }
}

/// A rate of connections says how fast they are made, and not how long nothing was to be done.
fn waits_between_blocks_are_no_time_of_connecting(engine: Engine) {
    // Far longer than it takes to make four connections.
    in_time(Duration::from_millis(250), |wait| waits_are_no_time_of_connecting(engine, wait));
}

fn waits_are_no_time_of_connecting(engine: Engine, wait: Duration) {
    let server = Server::echo();
    for (blocks, threads) in [(3, 1), (2, 2)] {
        let (connections, sends) = (4, Some(1));
        let block_interval = wait;
        let spec =
            LoadSpec { connections, sends, blocks, threads, block_interval, ..server.spec(engine) };
        let report = run(&spec);
        assert_clean(&report, u64::from(blocks) * 4, 1);
        let connecting = Duration::from_nanos(report.connecting_ns.expect("they were made"));
        assert!(connecting < wait, "{connecting:?}");
        assert!(Duration::from_nanos(report.elapsed_ns) >= (blocks - 1) * wait);
        let rate = report.connects_per_s.expect("they were made") * connecting.as_secs_f64();
        assert!((rate - f64::from(blocks) * 4.0).abs() < 0.01, "{rate}");
    }
}

/// So whoever measures the server beside it may be a little late.
fn a_load_goes_on_behind_what_is_measured(engine: Engine) {
    in_time(INSTANT, |instant| a_load_goes_on_within(engine, instant));
}

fn a_load_goes_on_within(engine: Engine, instant: Duration) {
    let server = Server::echo();
    let (duration, tail) = (instant, instant * 3 / 2);
    let spec = LoadSpec { duration, tail, ..server.spec(engine) };
    let report = run(&spec);
    let window = report.window.as_ref().expect("it was measured");
    assert!(Duration::from_nanos(report.elapsed_ns) >= duration + tail, "{report:?}");
    assert!(window.messages < report.counts.messages_over, "{report:?}");
}

fn messages_of_any_length_are_echoed(engine: Engine) {
    let server = Server::echo();
    for (least, most, outstanding) in [(1, 1, 3), (1, 9, 1), (1, 40_000, 5), (300_000, 700_000, 2)]
    {
        let sizes = Sizes { least, most };
        let spec =
            LoadSpec { connections: 5, sends: Some(12), outstanding, sizes, ..server.spec(engine) };
        let report = run(&spec);
        assert_clean(&report, 5, 12);
        let bytes = u64::from(least) * 60..=u64::from(most) * 60;
        assert!(bytes.contains(&report.counts.bytes_sent), "{report:?}");
    }
}

fn ipv6_and_further_addresses_of_loopback_are_loaded(engine: Engine) {
    for address in ["[::1]:0", "127.3.2.1:0"] {
        let listener = TcpListener::bind(address).unwrap();
        let server = Server::listening(listener, |stream, _| echo(stream, |_, _| {}));
        let spec = LoadSpec { connections: 3, sends: Some(5), ..server.spec(engine) };
        assert_clean(&run(&spec), 3, 5);
    }
}

fn blocks_are_added_one_after_another_and_time_ends_it(engine: Engine) {
    in_time(INSTANT, |instant| blocks_are_added_within(engine, instant));
}

fn blocks_are_added_within(engine: Engine, instant: Duration) {
    let server = Server::echo();
    let spec = LoadSpec {
        connections: 5,
        blocks: 3,
        block_interval: instant / 3,
        threads: 2,
        duration: 2 * instant,
        warm_up: instant / 2,
        interval: Some(instant / 10),
        ..server.spec(engine)
    };
    let mut steps = Vec::new();
    let report = load(&spec, &Stop::new(), |event| {
        if let Event::Interval(progress) = event {
            steps.push(progress);
        }
    })
    .unwrap();
    assert_eq!((report.invalid(), report.ended_by), (None, EndedBy::Time), "{report:?}");
    assert_eq!((report.counts.connected, report.counts.finished), (15, 15));
    assert_eq!(report.messages_unanswered, 0, "what is under way at the end is waited for");
    let attempted: Vec<u64> = steps.iter().map(|step| step.attempted).collect();
    assert!(attempted.is_sorted() && attempted[0] < 15, "{attempted:?}");
    assert_eq!(attempted.last(), Some(&15));
    let told: u64 = steps.iter().map(|step| step.messages).sum();
    assert!(told > 0 && told <= report.counts.messages_over);
    let window = report.window.unwrap();
    // It is read when its time has come, or a little later.
    let expected = (spec.duration - spec.warm_up).as_nanos() as f64;
    assert!(window.elapsed_ns as f64 > 0.9 * expected, "{window:?}");
    assert!(window.messages > 0 && window.messages < report.counts.messages_over);
    let measured = report.latency_ns.unwrap().n;
    assert!(measured > 0 && measured < report.counts.messages_over, "the rest was before");
}
