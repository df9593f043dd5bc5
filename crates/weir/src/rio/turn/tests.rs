//! The same hand-over with real threads: what it does, and what it counts. Miri runs these.

use super::{
    Parking, Turns,
    model::{Fake, Queue},
};
use crate::{
    counters::Counters,
    rio::{Batch, CompletionQueue as _},
};
use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, mpsc},
    thread,
};

fn turns(threads: usize) -> (Turns<Queue>, Arc<Fake>) {
    let fake = Fake::new();
    (Turns::new(Queue::of(&fake), threads), fake)
}

/// A provider's own places to sleep in: what rouses comes before the sleep or in it. The first
/// thread's sleep fails, and of the fifth it is said that it cannot be roused.
struct Places(Vec<(Mutex<bool>, Condvar)>);

impl Parking for Places {
    fn sleep(&self, thread: usize, _: &Counters) -> io::Result<()> {
        let (roused, changed) = &self.0[thread];
        let mut roused = roused.lock().unwrap();
        while !std::mem::take(&mut *roused) {
            roused = changed.wait(roused).unwrap();
        }
        if thread == 0 { Err(io::ErrorKind::OutOfMemory.into()) } else { Ok(()) }
    }

    fn rouse(&self, thread: usize, _: Option<usize>) -> io::Result<()> {
        *self.0[thread].0.lock().unwrap() = true;
        self.0[thread].1.notify_one();
        if thread == 4 { Err(io::ErrorKind::ResourceBusy.into()) } else { Ok(()) }
    }
}

fn turns_in_places(threads: usize) -> (Turns<Queue>, Arc<Fake>) {
    let fake = Fake::new();
    let places = Box::new(Places((0..threads).map(|_| Default::default()).collect()));
    (Turns::with_parking(Queue::of(&fake), threads, places), fake)
}

/// Waits until so many threads are parked: nothing announces that.
fn until_parked(turns: &Turns<Queue>, threads: usize) {
    while turns.parked() < threads {
        thread::yield_now();
    }
}

#[test]
fn a_turn_is_counted_once_for_each_thing_done() {
    let (turns, fake) = turns(1);
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
    for (turns, fake) in [turns(4), turns_in_places(4)] {
        park_and_be_woken(&turns, &fake);
    }
}

fn park_and_be_woken(turns: &Turns<Queue>, fake: &Fake) {
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
fn a_sleep_that_fails_hands_the_turn_on() {
    let (turns, fake) = turns_in_places(3);
    let (turns, counters) = (&turns, Counters::default());
    fake.put(1);
    let held = turns.take(2, &counters).unwrap().expect("not closed");
    thread::scope(|scope| {
        let below = scope.spawn(|| turns.take(1, &Counters::default()).unwrap().is_some());
        until_parked(turns, 1);
        let fails = scope.spawn(|| turns.take(0, &Counters::default()).err().map(|e| e.kind()));
        until_parked(turns, 2);
        held.notify(&counters);
        assert_eq!(fails.join().unwrap(), Some(io::ErrorKind::OutOfMemory));
        assert!(below.join().unwrap(), "the turn was not lost");
    });
    assert!(turns.take_back().is_some());
}

#[test]
fn that_a_thread_cannot_be_roused_is_told_to_who_asks_next() {
    let (turns, fake) = turns_in_places(5);
    let (turns, counters) = (&turns, Counters::default());
    fake.put(1);
    let held = turns.take(1, &counters).unwrap().expect("not closed");
    thread::scope(|scope| {
        // It is roused in truth; so either of the two hears it.
        let roused = scope.spawn(|| turns.take(4, &Counters::default()).err().map(|e| e.kind()));
        until_parked(turns, 1);
        held.notify(&counters);
        let told = [turns.take(1, &counters).err().map(|e| e.kind()), roused.join().unwrap()];
        let busy = Some(io::ErrorKind::ResourceBusy);
        assert!(told == [busy, None] || told == [None, busy], "{told:?}");
    });
    assert!(turns.take_back().is_some());
}

#[test]
fn a_wait_that_fails_gives_the_turn_up() {
    let (turns, fake) = turns(1);
    fake.fail(io::ErrorKind::OutOfMemory);
    let failed = turns.take(0, &Counters::default()).err().expect("the wait failed");
    assert_eq!(failed.kind(), io::ErrorKind::OutOfMemory);
    assert!(turns.take_back().is_some());
}

#[test]
fn closing_ends_the_wait_of_the_holder_and_of_the_parked() {
    for (turns, _) in [turns(4), turns_in_places(4)] {
        close_on_three(&turns);
    }
}

fn close_on_three(turns: &Turns<Queue>) {
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
