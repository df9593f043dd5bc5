//! Every interleaving of a few threads, by loom: `RUSTFLAGS="--cfg loom"`. A wake-up that is lost
//! shows as a deadlock.

use super::{Lead, Limit, Member};
use loom::{
    sync::{Arc, Condvar, Mutex, atomic::AtomicU32},
    thread,
};
use std::sync::atomic::Ordering::SeqCst;

/// The queue that the leader waits in.
#[derive(Default)]
struct Queue {
    /// What has come and not been taken, and whether waiting is over.
    state: Mutex<(u32, bool)>,
    changed: Condvar,
}

impl Queue {
    fn put(&self, items: u32) {
        self.state.lock().unwrap().0 += items;
        self.changed.notify_all();
    }

    fn end(&self) {
        self.state.lock().unwrap().1 = true;
        self.changed.notify_all();
    }

    fn wait(&self) {
        let mut state = self.state.lock().unwrap();
        while *state == (0, false) {
            state = self.changed.wait(state).unwrap();
        }
    }

    /// Whether there was something to take.
    fn take(&self) -> bool {
        let items = &mut self.state.lock().unwrap().0;
        let some = *items > 0;
        *items -= u32::from(some);
        some
    }
}

struct World {
    limit: Limit,
    queue: Queue,
    running: AtomicU32,
    taken: AtomicU32,
}

impl World {
    fn new(limit: u32, threads: usize) -> Arc<Self> {
        Arc::new(Self {
            limit: Limit::new(limit, threads),
            queue: Queue::default(),
            running: AtomicU32::new(0),
            taken: AtomicU32::new(0),
        })
    }

    /// What a provider's take does. `false`: closed.
    fn take(&self, member: &mut Member<'_>) -> bool {
        loop {
            if !member.try_lead() {
                match member.lead(None) {
                    Lead::Yours => {}
                    Lead::Closed => return false,
                    Lead::TimedOut => unreachable!("no timeout was given"),
                }
            }
            self.queue.wait();
            if self.queue.take() {
                member.run();
                return true;
            }
            // The wait was ended by closing.
            member.leave();
        }
    }

    /// Notes that the caller runs, and checks the limit.
    fn runs(&self, limit: u32) {
        assert!(self.running.fetch_add(1, SeqCst) < limit, "more run than may");
    }

    fn runs_no_more(&self) {
        self.running.fetch_sub(1, SeqCst);
    }

    fn close(&self) {
        self.limit.close();
        self.queue.end();
    }
}

fn explore(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// Threads take `items` in all; whoever takes the last one closes.
fn take_all(limit: u32, threads: usize, items: u32) {
    let world = World::new(limit, threads);
    let takers: Vec<_> = (0..threads)
        .map(|_| {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                let mut member = world.limit.join().unwrap();
                while world.take(&mut member) {
                    world.runs(limit);
                    let last = world.taken.fetch_add(1, SeqCst) + 1 == items;
                    world.runs_no_more();
                    if last {
                        world.close();
                    }
                }
            })
        })
        .collect();
    world.queue.put(items);
    for taker in takers {
        taker.join().unwrap();
    }
    assert_eq!(world.taken.load(SeqCst), items);
    assert_eq!((world.limit.running(), world.limit.parked()), (0, 0));
}

#[test]
fn everything_is_taken_and_one_runs() {
    explore(3, || take_all(1, 2, 2));
}

#[test]
fn everything_is_taken_and_two_run() {
    explore(2, || take_all(2, 3, 2));
}

/// The first to take waits, running, for the second: so the second must be let in.
#[test]
fn a_second_runs_while_the_first_does() {
    explore(3, || {
        let world = World::new(2, 2);
        let met = Arc::new((Mutex::new(0), Condvar::new()));
        let takers: Vec<_> = (0..2)
            .map(|_| {
                let (world, met) = (Arc::clone(&world), Arc::clone(&met));
                thread::spawn(move || {
                    let mut member = world.limit.join().unwrap();
                    assert!(world.take(&mut member));
                    world.runs(2);
                    let mut count = met.0.lock().unwrap();
                    *count += 1;
                    met.1.notify_all();
                    while *count < 2 {
                        count = met.1.wait(count).unwrap();
                    }
                    drop(count);
                    world.runs_no_more();
                })
            })
            .collect();
        world.queue.put(2);
        for taker in takers {
            taker.join().unwrap();
        }
    });
}

/// With a limit of one, the first to take blocks until the second has taken, and says so.
#[test]
fn blocking_lets_another_in_and_waits_to_come_back() {
    explore(3, || {
        let world = World::new(1, 2);
        let met = Arc::new((Mutex::new(0), Condvar::new()));
        let takers: Vec<_> = (0..2)
            .map(|_| {
                let (world, met) = (Arc::clone(&world), Arc::clone(&met));
                thread::spawn(move || {
                    let mut member = world.limit.join().unwrap();
                    assert!(world.take(&mut member));
                    world.runs(1);
                    world.runs_no_more();
                    member.leave();
                    let mut count = met.0.lock().unwrap();
                    *count += 1;
                    met.1.notify_all();
                    while *count < 2 {
                        count = met.1.wait(count).unwrap();
                    }
                    drop(count);
                    member.enter();
                    world.runs(1);
                    world.runs_no_more();
                })
            })
            .collect();
        world.queue.put(2);
        for taker in takers {
            taker.join().unwrap();
        }
        assert_eq!(world.limit.running(), 0);
    });
}

/// Two threads park in either order; when the first thread leaves, the one on top leads.
#[test]
fn the_thread_that_parked_last_leads_first() {
    explore(2, || {
        let limit = Arc::new(Limit::new(1, 3));
        let led = Arc::new(Mutex::new(Vec::new()));
        let mut first = limit.join().unwrap();
        first.enter();
        let others: Vec<_> = (0..2)
            .map(|_| {
                let (limit, led) = (Arc::clone(&limit), Arc::clone(&led));
                thread::spawn(move || {
                    let mut member = limit.join().unwrap();
                    assert_eq!(member.lead(None), Lead::Yours);
                    led.lock().unwrap().push(member.place());
                })
            })
            .collect();
        let mut expected = loop {
            let state = limit.lock();
            if state.rules.parked().len() == 2 {
                break state.rules.parked().to_vec();
            }
            drop(state);
            thread::yield_now();
        };
        first.leave();
        for other in others {
            other.join().unwrap();
        }
        expected.reverse();
        assert_eq!(*led.lock().unwrap(), expected);
    });
}

/// Closing at any moment lets everybody go: who leads, who is parked, who enters.
#[test]
fn closing_wakes_all() {
    explore(2, || {
        let world = World::new(1, 3);
        let mut first = world.limit.join().unwrap();
        first.enter();
        let takers: Vec<_> = (0..2)
            .map(|i| {
                let world = Arc::clone(&world);
                thread::spawn(move || {
                    let mut member = world.limit.join().unwrap();
                    if i == 0 {
                        member.enter();
                    }
                    assert!(!world.take(&mut member), "nothing ever comes");
                })
            })
            .collect();
        world.close();
        first.leave();
        for taker in takers {
            taker.join().unwrap();
        }
        assert_eq!((world.limit.running(), world.limit.parked()), (0, 0));
    });
}

/// Two threads come back from blocking again and again while a third leads and runs.
#[test]
fn who_comes_back_never_exceeds_the_limit() {
    explore(2, || {
        let world = World::new(1, 3);
        world.queue.put(1);
        let back: Vec<_> = (0..2)
            .map(|_| {
                let world = Arc::clone(&world);
                thread::spawn(move || {
                    let mut member = world.limit.join().unwrap();
                    for _ in 0..2 {
                        member.enter();
                        world.runs(1);
                        world.runs_no_more();
                        member.leave();
                    }
                })
            })
            .collect();
        let mut member = world.limit.join().unwrap();
        assert!(world.take(&mut member));
        world.runs(1);
        world.runs_no_more();
        drop(member);
        for thread in back {
            thread.join().unwrap();
        }
        assert_eq!(world.limit.running(), 0);
    });
}
