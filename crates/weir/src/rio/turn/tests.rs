//! The same hand-over with real threads: what it does, and what it counts. Miri runs these.

use super::{
    Turns,
    model::{Fake, Queue},
};
use crate::{
    counters::Counters,
    rio::{Batch, CompletionQueue as _},
};
use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, mpsc},
    thread,
};

fn turns(threads: usize) -> (Turns<Queue>, Arc<Fake>) {
    turns_of(threads, false)
}

/// With a port of the system's, or without.
fn turns_of(threads: usize, has_port: bool) -> (Turns<Queue>, Arc<Fake>) {
    let fake = Fake::new();
    (Turns::new(Queue::of(&fake, has_port), threads), fake)
}

/// Waits until so many threads are parked: nothing announces that.
fn until_parked(turns: &Turns<Queue>, threads: usize) {
    while turns.parked() < threads {
        thread::yield_now();
    }
}

#[test]
fn a_turn_is_counted_once_for_each_thing_done() {
    for has_port in [false, true] {
        is_counted_once_for_each_thing_done(has_port);
    }
}

fn is_counted_once_for_each_thing_done(has_port: bool) {
    let (turns, fake) = turns_of(1, has_port);
    let counters = Counters::default();
    fake.put(2);
    let mut batch = Batch::new(1);
    let mut turn = turns.take(0, &counters).unwrap().expect("not closed");
    assert_eq!(turn.queue().dequeue(&mut batch, &counters).unwrap(), 1);
    let mut turn = turn.wait(&counters).unwrap().expect("not closed");
    assert_eq!(turn.queue().dequeue(&mut batch, &counters).unwrap(), 1);
    assert!(turns.take_back().is_none(), "it is held");
    turn.notify(&counters);
    let counts = (counters.waits.get(), counters.notifies.get(), counters.parks.get());
    assert_eq!(counts, (2, 1, 0));
    assert!(turns.take_back().is_some(), "it was given up");
}

#[test]
fn threads_park_and_the_last_one_is_first() {
    let (turns, fake) = &turns(4);
    let counters = Counters::default();
    let (sender, order) = mpsc::channel();
    fake.put(1);
    let first = turns.take(0, &counters).unwrap().expect("not closed");
    thread::scope(|scope| {
        for index in 1..4 {
            let sender = sender.clone();
            scope.spawn(move || {
                let counters = Counters::default();
                let turn = turns.take(index, &counters).unwrap().expect("not closed");
                sender.send((index, counters.parks.get())).unwrap();
                // Given up by being dropped: a thread that leaves takes nothing with it.
                drop(turn);
            });
            until_parked(turns, index);
        }
        first.notify(&counters);
    });
    let order: Vec<_> = order.try_iter().collect();
    assert_eq!(order, [(3, 1), (2, 1), (1, 1)]);
    assert_eq!(turns.parked(), 0);
}

#[test]
fn a_port_that_refuses_is_told_once() {
    let (turns, fake) = turns_of(1, true);
    let counters = Counters::default();
    fake.put(1);
    let turn = turns.take(0, &counters).unwrap().expect("not closed");
    fake.fail(io::ErrorKind::OutOfMemory);
    turn.notify(&counters);
    let failed = turns.take(0, &counters).expect_err("no packet comes");
    assert_eq!(failed.kind(), io::ErrorKind::OutOfMemory);
    turns.close();
    assert!(turns.take(0, &counters).unwrap().is_none());
    assert!(turns.take_back().is_some());
}

#[test]
fn closing_ends_waits_at_a_port() {
    let (turns, _) = &turns_of(4, true);
    thread::scope(|scope| {
        let take =
            |index| scope.spawn(move || turns.take(index, &Counters::default()).unwrap().is_none());
        let threads = [2, 1, 3].map(take);
        turns.close();
        assert!(threads.into_iter().all(|thread| thread.join().unwrap()));
    });
    assert!(turns.take_back().is_some());
}

#[test]
fn a_holder_that_panics_gives_the_turn_up() {
    let (turns, fake) = turns(2);
    let (turns, fake) = (&turns, &*fake);
    fake.put(1);
    let turn = turns.take(0, &Counters::default()).unwrap().expect("not closed");
    thread::scope(|scope| {
        let other = scope.spawn(|| turns.take(1, &Counters::default()).unwrap().is_some());
        until_parked(turns, 1);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _held = turn;
            std::panic::resume_unwind(Box::new("on purpose"));
        }));
        assert!(panicked.is_err());
        assert!(other.join().unwrap(), "the one that was parked has it");
    });
    assert!(turns.take_back().is_some());
}

#[test]
fn a_wait_that_fails_gives_the_turn_up() {
    let (turns, fake) = turns(1);
    fake.fail(io::ErrorKind::OutOfMemory);
    let failed = turns.take(0, &Counters::default()).expect_err("the wait failed");
    assert_eq!(failed.kind(), io::ErrorKind::OutOfMemory);
    assert!(turns.take_back().is_some());
}

#[test]
fn closing_ends_the_wait_of_the_holder_and_of_the_parked() {
    let (turns, _) = &turns(4);
    thread::scope(|scope| {
        let take =
            |index| scope.spawn(move || turns.take(index, &Counters::default()).unwrap().is_none());
        let threads = [2, 1, 3].map(take);
        // Two park; the third waits in the queue, or is about to.
        until_parked(turns, 2);
        turns.close();
        assert!(threads.into_iter().all(|thread| thread.join().unwrap()));
    });
    assert!(turns.take(0, &Counters::default()).unwrap().is_none(), "closed for good");
    assert!(turns.take_back().is_some());
}
