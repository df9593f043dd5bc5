//! Takes that let messages gather before they wait: whatever a provider makes of that, each operation comes back.

use super::*;
use crate::{
    gather::Gather,
    pause::FINE_TIMERS,
    port::{Cancelled, Packet},
};

on_each! {
    what_comes_while_they_gather_is_taken_afterwards,
    what_comes_next_ends_a_wait_that_lets_nothing_gather,
    what_is_left_behind_a_full_slice_waits_for_nothing,
    one_that_always_has_something_does_not_keep_others_waiting,
    a_wait_to_receive_ends_where_something_was_left,
    an_end_that_came_with_bytes_is_told_after_them,
    a_packet_that_comes_as_they_begin_to_gather_ends_the_sleep,
    a_receive_that_nothing_came_for_can_be_cancelled,
    closing_brings_back_what_nothing_came_for,
    a_stop_brings_back_what_nothing_came_for,
    a_take_that_lets_nothing_gather_brings_it_too,
}

/// Takes one completion, after a sleep of this time where nothing has finished before.
fn gather_one(worker: &mut impl Worker, at_most: Duration) -> Completion {
    let mut out = Taken::new(1);
    let mut left = at_most;
    let mut gather = || Gather { at_most: std::mem::take(&mut left), enough: 64 };
    let counters = Counters::default();
    let took = worker.take_gathered(&mut out, Some(LONG), &mut gather, &counters).unwrap();
    assert_eq!(took, Some(1));
    out.drain().next().unwrap()
}

/// The same, of a receive: how much it brought.
fn gather_receive(worker: &mut impl Worker, at_most: Duration) -> (StreamId, usize) {
    match gather_one(worker, at_most) {
        Completion::Receive { stream, outcome: Outcome::Done(count), .. } => (stream, count),
        other => panic!("{other:?} instead of a receive"),
    }
}

/// Nothing comes. Receives that are started from now on need not be armed.
fn gather_nothing(worker: &mut impl Worker) {
    let mut out = Taken::new(1);
    let mut gather = || Gather { at_most: Duration::ZERO, enough: 64 };
    let (time, counters) = (Some(SHORT), Counters::default());
    let took = worker.take_gathered(&mut out, time, &mut gather, &counters).unwrap();
    assert_eq!(took, Some(0), "{:?}", out.drain().next());
}

const SHORT: Duration = Duration::from_millis(1);

fn what_comes_while_they_gather_is_taken_afterwards<P: Provider + Default>() {
    let Some(bench) = bench::<P>(needs()) else { return };
    let mut worker = bench.port.worker().unwrap();
    let mut connections: Vec<_> = (0..3).map(|key| bench.connect(&mut worker, key)).collect();
    gather_nothing(&mut worker);
    for _ in 0..3 {
        for (client, _, id) in &mut connections {
            worker.receive(*id, bench.slice()).unwrap();
            client.write_all(&[0; 10]).unwrap();
        }
        let mut came: Vec<_> = (0..3).map(|_| gather_receive(&mut worker, SHORT)).collect();
        came.sort_by_key(|(stream, _)| stream.0);
        let mut all: Vec<_> = connections.iter().map(|(_, _, id)| (*id, 10)).collect();
        all.sort_by_key(|(stream, _)| stream.0);
        assert_eq!(came, all);
    }
    drop(worker);
    bench.stop();
}

fn what_comes_next_ends_a_wait_that_lets_nothing_gather<P: Provider + Default>() {
    let Some(bench) = bench::<P>(needs()) else { return };
    let mut worker = bench.port.worker().unwrap();
    let (mut client, _stream, id) = bench.connect(&mut worker, 7);
    for _ in 0..3 {
        gather_nothing(&mut worker);
        worker.receive(id, bench.slice()).unwrap();
        gather_nothing(&mut worker);
        client.write_all(&[0; 10]).unwrap();
        assert_eq!(gather_receive(&mut worker, Duration::ZERO), (id, 10));
    }
    // The peer's end, too.
    worker.receive(id, bench.slice()).unwrap();
    gather_nothing(&mut worker);
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(gather_receive(&mut worker, Duration::ZERO), (id, 0));
    drop(worker);
    bench.stop();
}

/// What would gather here would do so for longer than anybody's patience.
fn what_is_left_behind_a_full_slice_waits_for_nothing<P: Provider + Default>() {
    let Some(bench) = bench::<P>(needs()) else { return };
    let mut worker = bench.port.worker().unwrap();
    let (mut client, _stream, id) = bench.connect(&mut worker, 7);
    gather_nothing(&mut worker);
    let began = Instant::now();
    client.write_all(&[0; 3 * SLICE]).unwrap();
    worker.receive(id, bench.slice()).unwrap();
    assert_eq!(gather_receive(&mut worker, SHORT), (id, SLICE));
    for _ in 0..2 {
        worker.receive(id, bench.slice()).unwrap();
        assert_eq!(gather_receive(&mut worker, 2 * LONG), (id, SLICE));
    }
    assert!(began.elapsed() < LONG);
    drop(worker);
    bench.stop();
}

fn one_that_always_has_something_does_not_keep_others_waiting<P: Provider + Default>() {
    let Some(bench) = bench::<P>(needs()) else { return };
    let mut worker = bench.port.worker().unwrap();
    let (mut client, _stream, id) = bench.connect(&mut worker, 7);
    let (mut other, _stream, other_id) = bench.connect(&mut worker, 8);
    gather_nothing(&mut worker);
    worker.receive(other_id, bench.slice()).unwrap();
    client.write_all(&[0; 2 * SLICE]).unwrap();
    worker.receive(id, bench.slice()).unwrap();
    assert_eq!(gather_receive(&mut worker, SHORT), (id, SLICE));
    other.write_all(&[0; 10]).unwrap();
    let mut came = None;
    for _ in 0..1000 {
        client.write_all(&[0; SLICE]).unwrap();
        worker.receive(id, bench.slice()).unwrap();
        came = Some(gather_receive(&mut worker, 2 * LONG));
        if came == Some((other_id, 10)) {
            break;
        }
    }
    assert_eq!(came, Some((other_id, 10)));
    drop(worker);
    bench.stop();
}

fn a_wait_to_receive_ends_where_something_was_left<P: Provider + Default>() {
    let Some(bench) = bench::<P>(needs()) else { return };
    let mut worker = bench.port.worker().unwrap();
    let (mut client, stream, id) = bench.connect(&mut worker, 7);
    gather_nothing(&mut worker);
    worker.wait_to_receive(id).unwrap();
    gather_nothing(&mut worker);
    client.write_all(&[0; 10]).unwrap();
    let began = Instant::now();
    for at_most in [SHORT, 2 * LONG, 2 * LONG] {
        let came = gather_one(&mut worker, at_most);
        assert!(matches!(came, Completion::Wait { outcome: Outcome::Done(()), .. }), "{came:?}");
        let counters = Counters::default();
        assert_eq!(stream.receive(&mut [0], Mode::Try, &counters).unwrap(), Some(1));
        worker.wait_to_receive(id).unwrap();
    }
    assert!(began.elapsed() < LONG);
    drop(worker);
    bench.stop();
}

fn an_end_that_came_with_bytes_is_told_after_them<P: Provider + Default>() {
    let Some(bench) = bench::<P>(needs()) else { return };
    let mut worker = bench.port.worker().unwrap();
    let (mut client, _stream, id) = bench.connect(&mut worker, 7);
    gather_nothing(&mut worker);
    worker.receive(id, bench.slice()).unwrap();
    client.write_all(&[0; 10]).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(gather_receive(&mut worker, SHORT), (id, 10));
    worker.receive(id, bench.slice()).unwrap();
    assert_eq!(gather_receive(&mut worker, Duration::ZERO), (id, 0));
    drop(worker);
    bench.stop();
}

/// It is posted after the last look and before the sleep, which would last longer than anybody's patience.
fn a_packet_that_comes_as_they_begin_to_gather_ends_the_sleep<P: Provider + Default>() {
    if !FINE_TIMERS {
        return; // nothing gathers there
    }
    let Some(bench) = bench::<P>(needs()) else { return };
    let mut worker = bench.port.worker().unwrap();
    let (mut out, counters) = (Taken::new(1), Counters::default());
    let packet = Packet { key: Key(5), value: 6 };
    let mut gather = || {
        bench.port.post(packet, &counters).unwrap();
        Gather { at_most: LONG, enough: 64 }
    };
    let began = Instant::now();
    let took = worker.take_gathered(&mut out, Some(2 * LONG), &mut gather, &counters).unwrap();
    assert_eq!(took, Some(1));
    let came = out.drain().next();
    assert!(matches!(came, Some(Completion::Packet(its)) if its == packet), "{came:?}");
    assert!(began.elapsed() < LONG);
    drop(worker);
    bench.stop();
}

fn a_receive_that_nothing_came_for_can_be_cancelled<P: Provider + Default>() {
    let Some(bench) = bench::<P>(needs()) else { return };
    let mut worker = bench.port.worker().unwrap();
    let (_client, _stream, id) = bench.connect(&mut worker, 7);
    gather_nothing(&mut worker);
    let token = worker.receive(id, bench.slice()).unwrap();
    gather_nothing(&mut worker);
    assert_eq!(worker.cancel(token, &Counters::default()), Cancelled::Asked);
    let came = gather_one(&mut worker, Duration::ZERO);
    let returned = matches!(came, Completion::Receive { outcome: Outcome::Returned, .. });
    assert!(returned, "{came:?}");
    drop((came, worker));
    bench.stop();
}

fn closing_brings_back_what_nothing_came_for<P: Provider + Default>() {
    let Some(bench) = bench::<P>(needs()) else { return };
    let mut worker = bench.port.worker().unwrap();
    let (_client, _stream, id) = bench.connect(&mut worker, 7);
    gather_nothing(&mut worker);
    (0..2).for_each(|_| started(worker.receive(id, bench.slice())));
    gather_nothing(&mut worker);
    assert_eq!(worker.close(id, &Counters::default()), Closing::Follows);
    for _ in 0..2 {
        let came = gather_one(&mut worker, Duration::ZERO);
        let returned = matches!(came, Completion::Receive { outcome: Outcome::Returned, .. });
        assert!(returned, "{came:?}");
    }
    let came = gather_one(&mut worker, Duration::ZERO);
    assert!(matches!(came, Completion::Closed { stream, .. } if stream == id), "{came:?}");
    drop(worker);
    bench.stop();
}

fn a_stop_brings_back_what_nothing_came_for<P: Provider + Default>() {
    let Some(bench) = bench::<P>(needs()) else { return };
    let mut worker = bench.port.worker().unwrap();
    let (_client, _stream, id) = bench.connect(&mut worker, 7);
    gather_nothing(&mut worker);
    (0..2).for_each(|_| started(worker.receive(id, bench.slice())));
    gather_nothing(&mut worker);
    drop(worker);
    bench.stop();
}

fn a_take_that_lets_nothing_gather_brings_it_too<P: Provider + Default>() {
    let Some(bench) = bench::<P>(needs()) else { return };
    let mut worker = bench.port.worker().unwrap();
    let (mut client, _stream, id) = bench.connect(&mut worker, 7);
    gather_nothing(&mut worker);
    worker.receive(id, bench.slice()).unwrap();
    gather_nothing(&mut worker);
    client.write_all(&[0; 10]).unwrap();
    assert!(matches!(take_receive(&mut worker).2, Outcome::Done(10)));
    drop(worker);
    bench.stop();
}
