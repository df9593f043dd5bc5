//! The limit that weir keeps itself, and who is woken.

use super::*;
use crate::port::tests::order::{packet, take_packet};
use std::{
    sync::{
        atomic::{AtomicU32, Ordering::SeqCst},
        mpsc,
    },
    thread,
};

/// Returns once so many threads are parked.
fn until_parked(bench: &Bench, parked: usize) {
    while bench.port.inner.limit.parked() != parked {
        thread::yield_now();
    }
}

/// A take with room for one brings the packet and leaves the alarm, which the next one finds alone; it must
/// be armed again before that one waits.
#[test]
fn a_packet_wakes_a_thread_that_waits_each_time() {
    if cannot_run_here() {
        return;
    }
    let bench = bench(Uring::default(), Needs { concurrency: 1, ..needs() });
    let (taken, came) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut worker = bench.port.worker().unwrap();
            for _ in 0..6 {
                taken.send(take_packet(&mut worker)).unwrap();
            }
        });
        for value in 0..6 {
            while !bench.port.inner.with(|state| state.waiting) {
                thread::yield_now();
            }
            bench.port.post(packet(value), &Counters::default()).unwrap();
            assert_eq!(came.recv_timeout(LONG), Ok(value), "it sleeps on");
        }
    });
    bench.stop();
}

#[test]
fn a_thread_whose_time_is_over_comes_back_when_it_may_run() {
    if cannot_run_here() {
        return;
    }
    let bench = bench(Uring::default(), Needs { concurrency: 1, ..needs() });
    let counters = Counters::default();
    let mut worker = bench.port.worker().unwrap();
    let time = Some(Duration::from_millis(1));
    assert_eq!(worker.take(&mut Taken::new(1), time, &counters).unwrap(), Some(0));
    assert_eq!(bench.port.inner.limit.running(), 1, "it runs");
    thread::scope(|scope| {
        // A thread that parks comes back as well, and only when it may run.
        let (parked, late) = mpsc::channel();
        let bench = &bench;
        scope.spawn(move || {
            let mut worker = bench.port.worker().unwrap();
            let taken = worker.take(&mut Taken::new(1), time, &Counters::default());
            parked.send(taken.unwrap()).unwrap();
        });
        assert_eq!(
            late.recv_timeout(Duration::from_millis(20)),
            Err(mpsc::RecvTimeoutError::Timeout)
        );
        drop(worker);
        assert_eq!(late.recv_timeout(LONG), Ok(Some(0)));
    });
    bench.stop();
}

#[test]
fn never_more_run_than_may() {
    if cannot_run_here() {
        return;
    }
    for limit in [1, 2, 3] {
        let needs = Needs { packets: 400, threads: 6, concurrency: limit, ..needs() };
        let bench = bench(Uring::default(), needs);
        let (running, most, left) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(400));
        for value in 0..400 {
            bench.port.post(packet(value), &Counters::default()).unwrap();
        }
        thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    let counters = Counters::default();
                    let mut worker = bench.port.worker().unwrap();
                    let mut out = Taken::new(1);
                    while worker.take(&mut out, None, &counters).unwrap().is_some() {
                        let now = running.fetch_add(1, SeqCst) + 1;
                        most.fetch_max(now, SeqCst);
                        assert!(now <= limit, "{now} run, {limit} may");
                        out.drain();
                        thread::yield_now();
                        running.fetch_sub(1, SeqCst);
                        if left.load(SeqCst) % 7 == 0 {
                            worker.blocking(&counters, thread::yield_now).unwrap();
                        }
                        if left.fetch_sub(1, SeqCst) == 1 {
                            bench.port.close();
                        }
                    }
                });
            }
        });
        assert!(most.load(SeqCst) >= 1);
        bench.stop();
    }
}

#[test]
fn the_thread_that_parked_last_is_woken_first() {
    if cannot_run_here() {
        return;
    }
    let bench = bench(Uring::default(), Needs { concurrency: 1, threads: 5, ..needs() });
    let (taken, order) = mpsc::channel();
    thread::scope(|scope| {
        let mut first = bench.port.worker().unwrap();
        bench.port.post(packet(0), &Counters::default()).unwrap();
        assert_eq!(take_packet(&mut first), 0);
        for number in 1..5 {
            let (bench, taken) = (&bench, taken.clone());
            scope.spawn(move || {
                let mut worker = bench.port.worker().unwrap();
                let value = take_packet(&mut worker);
                taken.send((number, value)).unwrap();
            });
            until_parked(bench, number);
        }
        for value in 1..5 {
            bench.port.post(packet(value), &Counters::default()).unwrap();
        }
        drop(first);
        let order: Vec<_> = (0..4).map(|_| order.recv_timeout(LONG).unwrap()).collect();
        assert_eq!(order, [(4, 1), (3, 2), (2, 3), (1, 4)]);
    });
    bench.stop();
}

#[test]
fn with_a_limit_of_one_the_same_thread_takes_all() {
    if cannot_run_here() {
        return;
    }
    let bench = bench(Uring::default(), Needs { concurrency: 1, ..needs() });
    thread::scope(|scope| {
        let mut first = bench.port.worker().unwrap();
        bench.port.post(packet(0), &Counters::default()).unwrap();
        assert_eq!(take_packet(&mut first), 0);
        let other = scope.spawn(|| {
            let mut worker = bench.port.worker().unwrap();
            worker.take(&mut Taken::new(1), None, &Counters::default()).unwrap()
        });
        until_parked(&bench, 1);
        for value in 1..50 {
            bench.port.post(packet(value), &Counters::default()).unwrap();
            assert_eq!(take_packet(&mut first), value);
            assert_eq!(bench.port.inner.limit.parked(), 1, "the other sleeps on");
        }
        bench.port.close();
        assert_eq!(other.join().unwrap(), None);
    });
    bench.stop();
}

#[test]
fn a_thread_that_blocks_leaves_the_limit_and_comes_back() {
    if cannot_run_here() {
        return;
    }
    let bench = bench(Uring::default(), Needs { concurrency: 1, ..needs() });
    thread::scope(|scope| {
        let mut first = bench.port.worker().unwrap();
        (0..2).for_each(|value| bench.port.post(packet(value), &Counters::default()).unwrap());
        assert_eq!(take_packet(&mut first), 0);
        let other = scope.spawn(|| take_packet(&mut bench.port.worker().unwrap()));
        until_parked(&bench, 1);
        let value = first.blocking(&Counters::default(), || other.join().unwrap()).unwrap();
        assert_eq!(value, 1);
        assert_eq!(bench.port.inner.limit.running(), 1, "it runs again");
    });
    bench.stop();
}
