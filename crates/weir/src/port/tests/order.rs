//! Packets, the limit, who is woken, and time.

use super::*;
use crate::port::{Packet, Refused};
use std::{
    sync::{
        Barrier,
        atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
        mpsc,
    },
    thread,
};

pub fn packet(value: u64) -> Packet {
    Packet { key: Key(1), value }
}

pub fn take_packet(worker: &mut impl Worker) -> u64 {
    match take_one(worker) {
        Completion::Packet(Packet { key: Key(1), value }) => value,
        other => panic!("{other:?} instead of a packet"),
    }
}

#[test]
fn packets_come_in_order_and_are_bounded() {
    if cannot_run_here() {
        return;
    }
    let bench = bench(Native::default(), Needs { packets: 100, ..needs() });
    let counters = Counters::default();
    let mut worker = bench.port.worker().unwrap();
    for round in 0..3u64 {
        for value in 0..100 {
            bench.port.post(packet(round * 100 + value), &counters).unwrap();
        }
        let one_more = packet(u64::MAX);
        assert_eq!(bench.port.post(one_more, &counters), Err((one_more, Refused::Full)));
        for value in 0..100 {
            assert_eq!(take_packet(&mut worker), round * 100 + value);
        }
    }
    bench.port.close();
    assert_eq!(bench.port.post(packet(0), &counters), Err((packet(0), Refused::Closed)));
    drop(worker);
    bench.stop();
}

#[test]
fn a_packet_wakes_a_thread_that_waits() {
    if cannot_run_here() {
        return;
    }
    let bench = bench(Native::default(), needs());
    thread::scope(|scope| {
        let taker = scope.spawn(|| take_packet(&mut bench.port.worker().unwrap()));
        bench.port.post(packet(5), &Counters::default()).unwrap();
        assert_eq!(taker.join().unwrap(), 5);
    });
    bench.stop();
}

#[test]
fn a_take_that_waits_ends_when_the_port_is_closed() {
    if cannot_run_here() {
        return;
    }
    for threads in 1..4 {
        let bench = bench(Native::default(), Needs { concurrency: 1, ..needs() });
        let (waiting, waits) = mpsc::channel();
        thread::scope(|scope| {
            let takers: Vec<_> = (0..threads)
                .map(|_| {
                    let (bench, waiting) = (&bench, waiting.clone());
                    scope.spawn(move || {
                        let mut worker = bench.port.worker().unwrap();
                        waiting.send(()).unwrap();
                        let (mut out, counters) = (Taken::new(1), Counters::default());
                        let first = worker.take(&mut out, None, &counters).unwrap();
                        (first, worker.take(&mut out, None, &counters).unwrap())
                    })
                })
                .collect();
            takers.iter().for_each(|_| waits.recv().unwrap());
            bench.port.close();
            for taker in takers {
                assert_eq!(taker.join().unwrap(), (None, None));
            }
        });
        bench.stop();
    }
}

/// Threads that compute, and do not wait for anything.
#[test]
fn no_more_run_than_may() {
    if cannot_run_here() || crate::wine::CONCURRENCY_VALUE.is_left_out() {
        return;
    }
    for concurrency in [1, 2] {
        let bench = bench(Native::default(), Needs { concurrency, ..needs() });
        let (running, over) = (AtomicU32::new(0), AtomicBool::new(false));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut worker = bench.port.worker().unwrap();
                    let mut out = Taken::new(1);
                    while worker.take(&mut out, None, &Counters::default()).unwrap().is_some() {
                        out.drain();
                        running.fetch_add(1, SeqCst);
                        while !over.load(SeqCst) {
                            std::hint::spin_loop();
                        }
                        running.fetch_sub(1, SeqCst);
                    }
                });
            }
            let post = |value: u32| {
                bench.port.post(packet(value.into()), &Counters::default()).unwrap();
            };
            // One after the other: who waits for a lock that another holds lets one more run, where the system counts.
            for value in 1..=concurrency {
                post(value);
                while running.load(SeqCst) < value {
                    thread::yield_now();
                }
            }
            (concurrency..4).for_each(post);
            // What runs by then that may not is found; nothing depends on how long this is.
            thread::sleep(Duration::from_millis(100));
            let found = running.load(SeqCst);
            over.store(true, SeqCst);
            bench.port.close();
            assert_eq!(found, concurrency);
        });
        bench.stop();
    }
}

#[test]
fn a_take_ends_when_its_time_is_over() {
    if cannot_run_here() {
        return;
    }
    let bench = bench(Native::default(), Needs { concurrency: 1, ..needs() });
    let counters = Counters::default();
    let mut worker = bench.port.worker().unwrap();
    // With something to submit, too: then the kernel does not say that the time is over.
    for receives in [0, 1] {
        bench.post(&mut worker, receives);
        let began = Instant::now();
        let time = Duration::from_millis(5);
        assert_eq!(worker.take(&mut Taken::new(1), Some(time), &counters).unwrap(), Some(0));
        assert!(began.elapsed() >= time);
    }
    drop(worker);
    bench.stop();
}

#[test]
fn as_many_run_as_may() {
    if cannot_run_here() {
        return;
    }
    let bench = bench(Native::default(), Needs { concurrency: 3, ..needs() });
    // Three threads hold a packet at the same time, or this never ends.
    let together = Barrier::new(3);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut worker = bench.port.worker().unwrap();
                let mut out = Taken::new(1);
                while worker.take(&mut out, None, &Counters::default()).unwrap().is_some() {
                    out.drain();
                    together.wait();
                    bench.port.close();
                }
            });
        }
        (0..3).for_each(|value| bench.port.post(packet(value), &Counters::default()).unwrap());
    });
    bench.stop();
}

#[test]
fn a_thread_that_blocks_lets_another_in() {
    if cannot_run_here() {
        return;
    }
    let bench = bench(Native::default(), Needs { concurrency: 1, ..needs() });
    thread::scope(|scope| {
        let mut first = bench.port.worker().unwrap();
        (0..2).for_each(|value| bench.port.post(packet(value), &Counters::default()).unwrap());
        assert_eq!(take_packet(&mut first), 0);
        let other = scope.spawn(|| take_packet(&mut bench.port.worker().unwrap()));
        let value = first.blocking(&Counters::default(), || other.join().unwrap()).unwrap();
        assert_eq!(value, 1);
        drop(first);
    });
    bench.stop();
}

#[test]
fn a_worker_that_panics_lets_another_in() {
    if cannot_run_here() {
        return;
    }
    let bench = bench(Native::default(), Needs { concurrency: 1, ..needs() });
    (0..2).for_each(|value| bench.port.post(packet(value), &Counters::default()).unwrap());
    thread::scope(|scope| {
        let first = scope.spawn(|| {
            let mut worker = bench.port.worker().unwrap();
            take_packet(&mut worker);
            std::panic::resume_unwind(Box::new("quietly"));
        });
        assert!(first.join().is_err());
        assert_eq!(take_packet(&mut bench.port.worker().unwrap()), 1);
    });
    bench.stop();
}

#[test]
fn places_are_bounded() {
    if cannot_run_here() {
        return;
    }
    let bench = bench(Native::default(), Needs { threads: 2, ..needs() });
    let (one, two) = (bench.port.worker().unwrap(), bench.port.worker().unwrap());
    let error = bench.port.worker().err().unwrap().to_string();
    assert!(error.contains("opened for 2"), "{error}");
    drop(one);
    let again = bench.port.worker();
    assert!(again.is_ok());
    drop((two, again));
    bench.stop();
}
