//! The join policy of `rio-hybrid`, proved on a simulated queue, where a test decides what a
//! dequeue finds: a second thread joins when a dequeue reaches the threshold, never before,
//! and threads fall away by parking.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use weir::{
    counters::Snapshot,
    options::MicrosecondsValue,
    rio::{
        HandOver, OneThread, Provider,
        fake::{FakeWinsock, FakeXdp, Injected, Wire},
    },
    udp::{Datagram, Final, Handler, Replies, RioHybrid, Running, Server},
};

const PATIENCE: Duration = Duration::from_secs(60);
const THREADS: u32 = 4;
const THRESHOLD: u32 = 8;

/// A number in a datagram at which its handler holds until the test releases it; 0 for none.
type Hold = u32;

/// Where handlers hold, and the test sees which thread holds where.
#[derive(Default)]
struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Default)]
struct GateState {
    /// The thread that came to each hold.
    came: BTreeMap<Hold, usize>,
    released: BTreeMap<Hold, ()>,
}

impl Gate {
    fn wait_until<R>(&self, what: &str, done: impl Fn(&GateState) -> Option<R>) -> R {
        let by = Instant::now() + PATIENCE;
        let mut state = self.lock();
        loop {
            if let Some(result) = done(&state) {
                return result;
            }
            let left = by.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{what} did not happen");
            state =
                self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Called by a handler.
    fn hold(&self, at: Hold, thread: usize) {
        self.lock().came.insert(at, thread);
        self.changed.notify_all();
        self.wait_until("a release", |state| state.released.get(&at).copied());
    }

    /// Waits until a thread holds there, and says which.
    fn holder(&self, at: Hold) -> usize {
        self.wait_until("a hold", |state| state.came.get(&at).copied())
    }

    fn release(&self, at: Hold) {
        self.lock().released.insert(at, ());
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, GateState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Holds where a datagram says so, and counts.
struct Holder {
    thread: usize,
    gate: Arc<Gate>,
    handled: u64,
}

impl Handler for Holder {
    fn on_datagram(&mut self, datagram: Datagram<'_>, _: &mut Replies<'_>) {
        self.handled += 1;
        let at = u32::from_le_bytes((&*datagram.bytes).try_into().expect("four bytes"));
        if at != 0 {
            self.gate.hold(at, self.thread);
        }
    }
}

struct Bench {
    wire: Wire,
    gate: Arc<Gate>,
    server: Running<Holder>,
    to: SocketAddr,
}

impl Bench {
    fn start<P>(wire: &Wire, provider: P) -> Self
    where
        P: Provider<OneThread> + Provider<HandOver>,
        <P as Provider<HandOver>>::Cq: Send,
        <P as Provider<HandOver>>::Rq: Send,
    {
        let options = RioHybrid::default()
            .threads(THREADS)
            .outstanding(64)
            .dequeue_max(32)
            .threshold(THRESHOLD)
            .spin(MicrosecondsValue(0));
        let gate = Arc::new(Gate::default());
        let gates = Arc::clone(&gate);
        let make = move |thread| Holder { thread, gate: Arc::clone(&gates), handled: 0 };
        let job = Server::bind(SocketAddr::from(([127, 0, 0, 1], 9000))).job(make).unwrap();
        let server = options.start_on(job, provider).unwrap();
        let to = server.local_addresses()[0];
        let bench = Self { wire: wire.clone(), gate, server, to };
        bench.wait_for_parks(u64::from(THREADS) - 1);
        bench
    }

    /// One datagram arrives.
    fn inject(&self, hold: Hold) {
        let from = SocketAddr::from(([127, 0, 0, 1], 20_000));
        assert_eq!(self.wire.inject(self.to, from, &hold.to_le_bytes()), Injected::Taken);
    }

    /// So many arrive that the next dequeue finds exactly `count`, the first of them a hold.
    fn inject_batch(&self, hold: Hold, count: u32) {
        self.inject(hold);
        for _ in 1..count {
            self.inject(0);
        }
    }

    /// Datagrams arrive one by one, each dequeued before the next.
    fn trickle(&self, count: u32) {
        for _ in 0..count {
            self.inject(0);
            assert!(self.wire.wait_for_dequeued(PATIENCE));
        }
    }

    fn parks(&self) -> u64 {
        self.server.counters().iter().map(|counters| counters.parks).sum()
    }

    /// Counters are announced by nobody.
    fn wait_for_parks(&self, count: u64) {
        let by = Instant::now() + PATIENCE;
        while self.parks() < count {
            assert!(Instant::now() < by, "{} of {count} threads parked", self.parks());
            std::thread::yield_now();
        }
        assert_eq!(self.parks(), count);
    }

    fn stop(self) -> Final<Holder> {
        let report = self.server.stop();
        assert!(report.failure.is_none(), "{}", report.failure.as_ref().unwrap());
        assert_eq!((report.slices.returned, report.slices.missing), (report.slices.made, 0));
        for thread in &report.threads {
            assert_eq!(thread.counters.datagrams, thread.handler.handled);
        }
        report
    }
}

fn handled(report: &Final<Holder>) -> Vec<u64> {
    report.threads.iter().map(|thread| thread.handler.handled).collect()
}

/// What comes singly, and what stays one below the threshold, is one thread's work, even while
/// that thread is held up.
fn below_the_threshold_nobody_joins(b: Bench) {
    b.trickle(100);
    b.inject(1);
    let thread = b.gate.holder(1);
    b.inject_batch(2, THRESHOLD - 1);
    b.gate.release(1);
    assert_eq!(b.gate.holder(2), thread);
    b.inject_batch(3, THRESHOLD - 1); // nobody takes them meanwhile: see the count below
    b.gate.release(2);
    assert_eq!(b.gate.holder(3), thread);
    b.gate.release(3);
    b.trickle(100);
    assert_eq!(b.parks(), u64::from(THREADS) - 1, "nobody left its place");
    let report = b.stop();
    let all = u64::from(200 + 1 + 2 * (THRESHOLD - 1));
    let mut expected = vec![0; THREADS as usize];
    expected[thread] = all;
    assert_eq!(handled(&report), expected);
}

/// A dequeue that reaches the threshold lets one more thread in, and only one; when the load
/// falls the threads that come back find the queue held, and park.
fn at_the_threshold_one_joins_at_a_time(b: Bench) {
    let parked = u64::from(THREADS) - 1;
    b.inject(1);
    let first = b.gate.holder(1);
    b.inject_batch(2, THRESHOLD);
    b.gate.release(1);
    assert_eq!(b.gate.holder(2), first, "the thread that took the batch handles it");
    // The queue is the second's now: what comes while the first is held up is its work.
    b.inject(3);
    let second = b.gate.holder(3);
    assert_ne!(second, first);
    b.inject_batch(4, THRESHOLD);
    b.gate.release(3);
    assert_eq!(b.gate.holder(4), second);
    b.inject(5);
    let third = b.gate.holder(5);
    assert!(third != first && third != second);
    assert_eq!(b.parks(), parked, "so far nobody parked again");
    // One below the threshold keeps the fourth out.
    b.inject_batch(6, THRESHOLD - 1);
    b.gate.release(5);
    assert_eq!(b.gate.holder(6), third);
    // The load falls: whoever is done finds the queue held, and parks.
    b.gate.release(2);
    b.wait_for_parks(parked + 1);
    b.gate.release(4);
    b.wait_for_parks(parked + 2);
    b.gate.release(6);
    b.trickle(50);
    assert_eq!(b.parks(), parked + 2);
    let report = b.stop();
    let mut expected = vec![0; THREADS as usize];
    expected[first] = u64::from(1 + THRESHOLD);
    expected[second] = u64::from(1 + THRESHOLD);
    expected[third] = u64::from(1 + (THRESHOLD - 1) + 50);
    assert_eq!(handled(&report), expected, "the fourth was never needed");
}

/// The threshold may be changed while the server runs.
fn the_threshold_is_tunable(b: Bench) {
    b.server.tune("threshold", 2).unwrap();
    b.inject(1);
    let first = b.gate.holder(1);
    b.inject_batch(2, 2);
    b.gate.release(1);
    assert_eq!(b.gate.holder(2), first);
    b.inject(3);
    let second = b.gate.holder(3);
    assert_ne!(second, first);
    b.server.tune("threshold", 32).unwrap();
    b.inject_batch(4, 31);
    b.gate.release(3);
    assert_eq!(b.gate.holder(4), second);
    b.inject(5);
    b.gate.release(4);
    assert_eq!(b.gate.holder(5), second, "31 are below the threshold now");
    b.gate.release(5);
    b.gate.release(2);
    let error = b.server.tune("threshold", 33).unwrap_err().to_string();
    assert!(error.contains("1 to 32"), "{error}");
    assert!(b.wire.wait_for_dequeued(PATIENCE));
    drop(b.stop());
}

/// The spin bound may be changed while the server runs: a waiting thread polls on after its next
/// datagram, and one that polls waits at once. The longest bound is a second, so an attempt shows
/// something only where all of it took less.
fn the_spin_bound_is_tunable(b: Bench) {
    const LONGEST_US: u64 = 1_000_000;
    let count = |of: fn(&Snapshot) -> u64| b.server.counters().iter().map(of).sum::<u64>();
    let until = |done: &dyn Fn() -> bool| {
        let by = Instant::now() + PATIENCE;
        while !done() {
            assert!(Instant::now() < by, "{:?}", b.server.counters());
            std::thread::yield_now();
        }
    };
    until(&|| count(|c| c.waits) > 0); // the one that has the queue waits, as it does again after each attempt
    let shown = (0..10).any(|_| {
        let (waits, polls) = (count(|c| c.waits), count(|c| c.empty_dequeues));
        b.server.tune("spin", LONGEST_US).unwrap();
        let since = Instant::now();
        b.inject(0);
        // It waits again without as many polls where it had no core for most of its time.
        until(&|| count(|c| c.empty_dequeues) >= polls + 100 || count(|c| c.waits) > waits);
        let polled = count(|c| c.waits) == waits;
        b.server.tune("spin", 0).unwrap();
        until(&|| count(|c| c.waits) > waits);
        polled && since.elapsed() < Duration::from_micros(LONGEST_US)
    });
    assert!(shown, "it never polled, or never stopped polling");
    let error = b.server.tune("spin", LONGEST_US + 1).unwrap_err().to_string();
    assert!(error.contains("0us to 1000000us"), "{error}");
    drop(b.stop());
}

macro_rules! on_both {
    ($($name:ident,)*) => {
        $(mod $name {
            use super::*;

            #[test]
            fn by_the_rules_of_xdp() {
                let wire = Wire::new(1);
                super::$name(Bench::start(&wire, FakeXdp::new(&wire)));
            }

            #[test]
            fn by_the_rules_of_winsock() {
                let wire = Wire::new(1);
                super::$name(Bench::start(&wire, FakeWinsock::new(&wire)));
            }
        })*
    };
}

on_both! {
    below_the_threshold_nobody_joins,
    at_the_threshold_one_joins_at_a_time,
    the_threshold_is_tunable,
    the_spin_bound_is_tunable,
}
