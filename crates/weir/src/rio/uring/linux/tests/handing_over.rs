//! The forms that are ways of handing over: who copies, turns as messages, and that they refuse
//! queues that stay on one thread.

use super::*;
use crate::{
    counters::os::{ThreadId, ThreadSampler},
    rio::{
        Woken,
        turn::{Parking as _, Turns},
    },
};
use std::{
    sync::{
        atomic::{AtomicBool, Ordering::SeqCst},
        mpsc,
    },
    thread,
};

#[test]
fn they_refuse_queues_of_one_thread_and_name_what_is_the_same_there() {
    for (polling, same) in [
        (Polling::Armer, "uring-armed"),
        (Polling::Rearm, "uring-armed"),
        (Polling::Message, "uring"),
    ] {
        let refused = Provider::<OneThread>::layout(&Uring::polling(polling), &NEEDS).unwrap_err();
        assert!(refused.reason.contains("handing queues over"), "{refused}");
        assert!(refused.advice.unwrap().contains(&format!("provider {same},")));
    }
}

/// Time that a thread of this process spent on a core, in ns.
fn cpu_ns(thread: ThreadId) -> u64 {
    ThreadSampler::new(thread).unwrap().read().unwrap().cpu_ns.unwrap()
}

/// Big datagrams received while the thread that started the queue sleeps: who copied them has
/// used the time. With the receive of the first thread left armed that is the first thread; armed
/// anew by the holder, or by a thread that does nothing else, it hardly runs.
#[test]
fn the_thread_that_started_the_queue_copies_only_where_its_receive_stays_armed() {
    if cannot_run_here::<HandOver>(Polling::Interrupt) {
        return;
    }
    let copied = |polling| {
        let needs = Needs { payload: 60_000, receives: 8, ..NEEDS };
        let Rig { region, mut queue, mut requests, at, .. } =
            Rig::<HandOver>::new(polling, needs, &[loopback()]);
        let counters = Counters::default();
        while let Some(slice) = region.take() {
            requests[0].receive(slice).unwrap();
        }
        requests[0].commit(&counters).unwrap();
        let first = ThreadId::current();
        let (done, wait_done) = mpsc::channel();
        let holder = thread::spawn(move || {
            let (counters, mut batch) = (Counters::default(), Batch::new(8));
            let sender = peer(at[0]);
            let bytes = payload(1, 60_000);
            let before = (cpu_ns(first), cpu_ns(ThreadId::current()));
            for _ in 0..300 {
                sender.send_to(&bytes, at[0]).unwrap();
                while batch.is_empty() {
                    assert_eq!(queue.wait(1, Some(PATIENCE), &counters).unwrap(), Woken::Ready);
                    queue.dequeue(&mut batch, &counters).unwrap();
                }
                for completion in batch.drain() {
                    requests[0].receive(completion.slice).unwrap();
                }
                requests[0].commit(&counters).unwrap();
            }
            let used = cpu_ns(first) - before.0;
            let share = used as f64 / (cpu_ns(ThreadId::current()) - before.1) as f64;
            done.send((queue, requests, share)).unwrap();
        });
        let (queue, requests, share) = wait_done.recv().unwrap();
        holder.join().unwrap();
        let stopped = queue.stop(requests, Instant::now() + PATIENCE);
        assert_eq!((stopped.missing, region.in_pool()), (0, 8));
        share
    };
    let interrupt = copied(Polling::Interrupt);
    for polling in [Polling::Armer, Polling::Rearm] {
        let share = copied(polling);
        assert!(4.0 * share < interrupt, "{polling:?}: {share}; where it stays armed {interrupt}");
    }
}

#[test]
fn a_message_that_comes_before_the_sleep_ends_it() {
    if cannot_run_here::<HandOver>(Polling::Message) {
        return;
    }
    let (messages, counters) = (messages::Messages::new(2).unwrap(), Counters::default());
    for by in [Some(0), None] {
        messages.rouse(1, by).unwrap();
        messages.sleep(1, &counters).unwrap();
        assert_eq!(counters.kernel_entries.get(), 0, "it was there");
    }
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| messages.sleep(1, &counters).unwrap());
        messages.rouse(1, Some(0)).unwrap();
        sleeper.join().unwrap();
    });
}

/// Its failure lies in the sender's ring: it is no reason to wake up there, and one to wake the
/// addressee.
#[test]
fn a_message_that_fails_wakes_its_addressee_and_nobody_else() {
    if cannot_run_here::<HandOver>(Polling::Message) {
        return;
    }
    let (messages, counters) = (messages::Messages::new(2).unwrap(), Counters::default());
    messages.fail(1, 0);
    let roused = AtomicBool::new(false);
    thread::scope(|scope| {
        let sender = scope.spawn(|| {
            messages.sleep(0, &Counters::default()).unwrap();
            assert!(roused.load(SeqCst), "by the failure of a message");
        });
        messages.sleep(1, &counters).unwrap();
        roused.store(true, SeqCst);
        messages.rouse(0, None).unwrap();
        sender.join().unwrap();
    });
}

/// Turns that go round several threads, each of which gives them up after every dequeue.
#[test]
fn turns_go_round_by_messages() {
    if cannot_run_here::<HandOver>(Polling::Message) {
        return;
    }
    const THREADS: usize = 4;
    const DATAGRAMS: usize = 2000;
    let Rig { region, queue, mut requests, at, .. } =
        Rig::<HandOver>::new(Polling::Message, NEEDS, &[loopback()]);
    let counters = Counters::default();
    while let Some(slice) = region.take() {
        requests[0].receive(slice).unwrap();
    }
    requests[0].commit(&counters).unwrap();
    let parking = queue.parking(THREADS).unwrap().expect("this form has one");
    let turns = Turns::with_parking(queue, THREADS, parking);
    let (received, total) = mpsc::channel();
    let parks = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (turns, received) = (&turns, received.clone());
                scope.spawn(move || {
                    let (counters, mut batch) = (Counters::default(), Batch::new(4));
                    while let Some(mut turn) = turns.take(thread, &counters).unwrap() {
                        turn.queue().dequeue(&mut batch, &counters).unwrap();
                        turn.notify(&counters);
                        batch
                            .drain()
                            .for_each(|completion| received.send(completion.slice).unwrap());
                    }
                    counters.parks.get()
                })
            })
            .collect();
        let sender = peer(at[0]);
        for number in 0..DATAGRAMS {
            sender.send_to(&payload(number, 50), at[0]).unwrap();
            let slice = total.recv_timeout(PATIENCE).expect("a turn was lost");
            assert_eq!(slice.payload()[..50], payload(number, 50));
            requests[0].receive(slice).unwrap();
            requests[0].commit(&counters).unwrap();
        }
        turns.close();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum::<u64>()
    });
    assert!(parks > THREADS as u64, "turns went round: {parks} parks");
    let stopped = turns.take_back().unwrap().stop(requests, Instant::now() + PATIENCE);
    assert_eq!((stopped.missing, region.in_pool()), (0, NEEDS.receives));
}
