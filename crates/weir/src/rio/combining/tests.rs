use super::*;
use crate::rio::{HandOver, OneThread};
use std::{sync::Arc, thread};

fn take(all: &mut Vec<u32>, items: &mut Vec<u32>) -> bool {
    all.append(items);
    true
}

#[test]
fn who_finds_it_in_use_leaves_what_he_brings_and_it_is_taken_along() {
    let sums = Combining::<HandOver, Vec<u32>, u32>::new(Vec::new(), 2, 3);
    let mut items = vec![1, 2, 3];
    let (left, told) = sums.with(take, |all| {
        assert!(!sums.bring(1, &mut items, || true, take), "it is in use");
        all.len()
    });
    assert_eq!((left, told, items.len()), (0, true, 0));
    assert_eq!(sums.with(take, |all| all.clone()), (vec![1, 2, 3], false));
}

#[test]
fn nothing_more_is_taken_where_it_may_not_be() {
    let sums = Combining::<HandOver, Vec<u32>, u32>::new(Vec::new(), 1, 1);
    let mut items = vec![1];
    assert!(!sums.bring(0, &mut items, || false, take));
    sums.with(take, |_| assert!(!sums.bring(0, &mut items, || false, take)));
    assert_eq!((items, sums.with(take, |all| all.len()).0), (vec![1], 0));
}

#[test]
fn on_one_thread_all_is_taken_at_once() {
    let sums = Combining::<OneThread, Vec<u32>, u32>::new(Vec::new(), 1, 1);
    assert!(sums.bring(0, &mut vec![5, 6], || true, take));
    assert_eq!(sums.with(take, |all| all.len()).0, 2);
}

/// With real threads, and so also under Miri and ThreadSanitizer.
#[test]
fn of_all_that_threads_bring_each_arrives_once() {
    const QUEUES: u32 = 3;
    const EACH: u32 = if cfg!(miri) { 20 } else { 5000 };
    let sums = Arc::new(Combining::<HandOver, Vec<u32>, u32>::new(
        Vec::new(),
        QUEUES as usize,
        EACH as usize,
    ));
    thread::scope(|scope| {
        for queue in 0..QUEUES {
            let sums = &sums;
            scope.spawn(move || {
                for n in 0..EACH {
                    sums.bring(queue as usize, &mut vec![queue * EACH + n], || true, take);
                }
            });
        }
        for _ in 0..EACH {
            sums.with(take, |_| ());
            sums.wait_for_all();
        }
    });
    let mut all = sums.value.with(|all| all.clone());
    all.sort_unstable();
    assert_eq!(all, (0..QUEUES * EACH).collect::<Vec<_>>());
}
