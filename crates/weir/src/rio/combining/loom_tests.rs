//! Bringing against using in every interleaving, by loom.

use super::*;
use crate::rio::HandOver;
use loom::thread;
use std::sync::Arc;

type Sums = Combining<HandOver, Vec<u32>, u32>;

fn take(all: &mut Vec<u32>, items: &mut Vec<u32>) -> bool {
    all.append(items);
    true
}

/// Threads of queues of their own bring one item each, while another uses the value.
fn explore(queues: u32, bring: fn(&Sums, u32)) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let sums = Arc::new(Sums::new(Vec::new(), queues as usize, 1));
        let bringers: Vec<_> = (0..queues)
            .map(|queue| {
                let sums = Arc::clone(&sums);
                thread::spawn(move || bring(&sums, queue))
            })
            .collect();
        sums.with(take, |_| ());
        for bringer in bringers {
            bringer.join().unwrap();
        }
        // Nobody uses it any more: what was left then is never taken.
        let mut all = sums.value.with(|all| all.clone());
        all.sort_unstable();
        assert_eq!(all, (0..queues).collect::<Vec<_>>(), "something was left behind");
    });
}

#[test]
fn nothing_is_left_behind() {
    for queues in 1..=2 {
        explore(queues, |sums, queue| {
            sums.bring(queue as usize, &mut vec![queue], || true, take);
        });
    }
}

/// Shows that the test above would find a bringer who leaves something and goes.
#[test]
#[should_panic(expected = "something was left behind")]
fn going_without_another_try_leaves_something_behind() {
    explore(1, |sums, queue| sums.leave(queue as usize, &mut vec![queue], || true));
}

/// What is brought after the end stays with who brings it.
#[test]
fn nothing_is_taken_after_the_end() {
    loom::model(|| {
        let sums = Arc::new(Sums::new(Vec::new(), 1, 1));
        let ended = Arc::new(AtomicBool::new(false));
        let bringer = {
            let (sums, ended) = (Arc::clone(&sums), Arc::clone(&ended));
            thread::spawn(move || {
                let mut items = vec![1];
                sums.bring(0, &mut items, || !ended.load(Relaxed), take);
                items.len()
            })
        };
        sums.value.with(|_| ended.store(true, Relaxed));
        sums.wait_for_all();
        let taken = sums.with(take, |all| all.len()).0;
        assert_eq!(taken + bringer.join().unwrap(), 1);
        assert_eq!(sums.value.with(|all| all.len()), taken, "taken after the end");
    });
}
