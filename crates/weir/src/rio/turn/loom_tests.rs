//! Every interleaving of a few threads, by loom: `RUSTFLAGS="--cfg loom"`. A turn that is lost
//! shows as a deadlock.

use super::Turns;
use crate::{
    counters::Counters,
    memory::Slice,
    rio::{Batch, CompletionQueue, Full, Peer, RequestQueue, Stopped, Woken},
    wake::Waker,
};
use loom::{
    sync::{Arc, Condvar, Mutex, atomic::AtomicU32},
    thread,
};
use std::{
    io,
    sync::atomic::Ordering::SeqCst,
    time::{Duration, Instant},
};

/// A queue that holds a number of completions.
#[derive(Default)]
struct Fake {
    /// Completions, and whether a waker was used since the last wait.
    state: Mutex<(u32, bool)>,
    changed: Condvar,
}

impl Fake {
    fn put(&self, completions: u32) {
        self.state.lock().unwrap().0 += completions;
        self.changed.notify_all();
    }
}

struct Queue(Arc<Fake>);

/// Posts nothing: these tests only dequeue.
struct NoRequests;

impl RequestQueue for NoRequests {
    fn receive(&mut self, slice: Slice) -> Result<(), (Slice, Full)> {
        Err((slice, Full))
    }

    fn send(&mut self, slice: Slice, _: usize, _: &Peer) -> Result<(), (Slice, Full)> {
        Err((slice, Full))
    }

    fn commit(&mut self, _: &Counters) -> io::Result<()> {
        Ok(())
    }

    fn outstanding(&self) -> (u32, u32) {
        (0, 0)
    }
}

impl CompletionQueue for Queue {
    type Rq = NoRequests;

    /// Takes one completion, so that there is something left for another turn.
    fn dequeue(&mut self, _: &mut Batch, _: &Counters) -> io::Result<usize> {
        let ready = &mut self.0.state.lock().unwrap().0;
        let taken = (*ready).min(1);
        *ready -= taken;
        Ok(taken as usize)
    }

    fn wait(&mut self, at_least: u32, _: Option<Duration>, _: &Counters) -> io::Result<Woken> {
        let mut state = self.0.state.lock().unwrap();
        loop {
            if std::mem::take(&mut state.1) {
                return Ok(Woken::ByWaker);
            }
            if state.0 >= at_least {
                return Ok(Woken::Ready);
            }
            state = self.0.changed.wait(state).unwrap();
        }
    }

    fn waker(&self) -> Waker {
        let fake = Arc::clone(&self.0);
        Waker::new(move || {
            fake.state.lock().unwrap().1 = true;
            fake.changed.notify_all();
        })
    }

    fn stop(self, _: Vec<NoRequests>, _: Instant) -> Stopped {
        Stopped::default()
    }
}

struct World {
    turns: Turns<Queue>,
    fake: Arc<Fake>,
    holders: AtomicU32,
    dequeued: AtomicU32,
}

impl World {
    fn new(threads: usize) -> Arc<Self> {
        let fake = Arc::new(Fake::default());
        Arc::new(Self {
            turns: Turns::new(Queue(Arc::clone(&fake)), threads),
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

fn explore(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

fn all_is_dequeued(keep: bool) {
    explore(move || {
        let world = World::new(2);
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
    all_is_dequeued(false);
}

#[test]
fn a_turn_that_is_kept_dequeues_all() {
    all_is_dequeued(true);
}

#[test]
fn closing_wakes_who_waits_and_who_is_parked() {
    explore(|| {
        let world = World::new(2);
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

/// Two threads park in either order; the one that parked last has the queue first.
#[test]
fn the_thread_that_parked_last_is_first() {
    explore(|| {
        let world = World::new(3);
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
            if state.parked.len() == 2 {
                break state.parked.clone();
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
