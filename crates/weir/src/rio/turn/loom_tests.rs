//! Every interleaving of a few threads, by loom: `RUSTFLAGS="--cfg loom"`. A turn that is lost
//! shows as a deadlock.

use super::{
    Turns,
    model::{Fake, Queue},
};
use crate::{
    counters::Counters,
    rio::{Batch, CompletionQueue},
};
use loom::{
    sync::{Arc, Mutex, atomic::AtomicU32},
    thread,
};
use std::sync::atomic::Ordering::SeqCst;

struct World {
    turns: Turns<Queue>,
    fake: std::sync::Arc<Fake>,
    holders: AtomicU32,
    dequeued: AtomicU32,
}

impl World {
    fn new(threads: usize, has_port: bool) -> Arc<Self> {
        let fake = Fake::new();
        Arc::new(Self {
            turns: Turns::new(Queue::of(&fake, has_port), threads),
            fake,
            holders: AtomicU32::new(0),
            dequeued: AtomicU32::new(0),
        })
    }

    /// Dequeues one at a time until closed; whoever dequeues the last closes. With `keep` a
    /// thread waits on with its turn, else it gives the turn up each time.
    fn serve(&self, thread: usize, last: u32, keep: bool) {
        let (counters, mut batch) = (Counters::default(), Batch::new(1));
        let mut turn = self.turns.take(thread, &counters).unwrap();
        while let Some(mut held) = turn {
            assert_eq!(self.holders.fetch_add(1, SeqCst), 0, "two hold the queue");
            let n = held.queue().dequeue(&mut batch, &counters).unwrap() as u32;
            let done = n > 0 && self.dequeued.fetch_add(n, SeqCst) + n == last;
            self.holders.fetch_sub(1, SeqCst);
            if done {
                self.turns.close();
            }
            turn = if keep {
                held.wait(&counters).unwrap()
            } else {
                held.notify(&counters);
                self.turns.take(thread, &counters).unwrap()
            };
        }
    }
}

impl World {
    /// Waits for a turn that does not come, and closes as a thread does that failed. Whether it was told why.
    fn ends_with_error(&self, thread: usize) -> bool {
        let failed = self.turns.take(thread, &Counters::default()).map(|turn| turn.is_some());
        self.turns.close();
        assert!(!failed.as_ref().is_ok_and(|took| *took), "nobody was to have a turn");
        failed.is_err()
    }
}

fn explore(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

fn all_is_dequeued(keep: bool, has_port: bool) {
    explore(move || {
        let world = World::new(2, has_port);
        let threads: Vec<_> = (0..2)
            .map(|i| {
                let world = Arc::clone(&world);
                thread::spawn(move || world.serve(i, 2, keep))
            })
            .collect();
        world.fake.put(2);
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(world.dequeued.load(SeqCst), 2);
        assert!(world.turns.take_back().is_some(), "the queue was given up");
    });
}

#[test]
fn a_turn_given_up_is_taken_by_another() {
    all_is_dequeued(false, false);
    all_is_dequeued(false, true);
}

#[test]
fn a_turn_that_is_kept_dequeues_all() {
    all_is_dequeued(true, false);
    all_is_dequeued(true, true);
}

#[test]
fn closing_wakes_who_waits_and_who_is_parked() {
    closing_wakes_all(false);
    closing_wakes_all(true);
}

fn closing_wakes_all(has_port: bool) {
    explore(move || {
        let world = World::new(2, has_port);
        let threads: Vec<_> = (0..2)
            .map(|i| {
                let world = Arc::clone(&world);
                thread::spawn(move || {
                    let turn = world.turns.take(i, &Counters::default()).unwrap();
                    assert!(turn.is_none(), "nothing ever comes");
                })
            })
            .collect();
        world.turns.close();
        for thread in threads {
            thread.join().unwrap();
        }
        assert!(world.turns.take_back().is_some(), "the queue was given up");
    });
}

/// Whichever thread is told, none waits for a packet that never comes.
#[test]
fn a_port_that_refuses_ends_all_waits() {
    explore(|| {
        let world = World::new(2, true);
        world.fake.put(1);
        let counters = Counters::default();
        let turn = world.turns.take(0, &counters).unwrap().expect("not closed");
        world.fake.fail(std::io::ErrorKind::OutOfMemory);
        let other = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.ends_with_error(1))
        };
        turn.notify(&counters);
        let told = world.ends_with_error(0);
        assert!(told ^ other.join().unwrap(), "one is told");
        assert!(world.turns.take_back().is_some(), "the queue was given up");
    });
}

/// Two threads park in either order; the one that parked last has the queue first.
#[test]
fn the_thread_that_parked_last_is_first() {
    explore(|| {
        let world = World::new(3, false);
        world.fake.put(1);
        let counters = Counters::default();
        let first = world.turns.take(0, &counters).unwrap().expect("not closed");
        let took = Arc::new(Mutex::new(Vec::new()));
        let threads: Vec<_> = (1..3)
            .map(|i| {
                let (world, took) = (Arc::clone(&world), Arc::clone(&took));
                thread::spawn(move || {
                    let turn = world.turns.take(i, &Counters::default()).unwrap();
                    took.lock().unwrap().push(i);
                    drop(turn);
                })
            })
            .collect();
        let mut expected = loop {
            let state = world.turns.lock();
            if state.order.parked().len() == 2 {
                break state.order.parked().to_vec();
            }
            drop(state);
            thread::yield_now();
        };
        first.notify(&counters);
        for thread in threads {
            thread.join().unwrap();
        }
        expected.reverse();
        assert_eq!(*took.lock().unwrap(), expected);
    });
}
