//! With real threads, and what one thread sees.

use super::{Biased, QUIET, fences};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        atomic::{AtomicU32, Ordering::SeqCst},
        mpsc,
    },
    thread,
};

/// Enough for the bias to go on and off some times; fewer where a checker follows each step.
const TIMES: u32 = if cfg!(miri) { 20 } else { 200_000 };

/// Whether the system has no such fences, so that there can be no owner.
fn is_a_mutex_here() -> bool {
    let lacks = !fences::are_had();
    if lacks {
        println!("skipped: membarrier(2) is not to be had here, so the lock is a mutex");
    }
    lacks
}

fn is_on<T>(lock: &Biased<T>) -> bool {
    !lock.off.load(SeqCst)
}

fn another_comes<T: Send>(lock: &Biased<T>) {
    thread::scope(|scope| {
        scope.spawn(|| drop(lock.lock()));
    });
}

#[test]
fn nothing_is_lost_between_the_owner_and_others() {
    if is_a_mutex_here() {
        return;
    }
    let (lock, others) = (Biased::new(0u32, true), AtomicU32::new(0));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                // In the midst of what the owner does, as long as it does anything.
                for _ in 0..TIMES / 100 {
                    *lock.lock() += 1;
                    others.fetch_add(1, SeqCst);
                    thread::yield_now();
                }
            });
        }
        let owner = lock.own().expect("nobody is");
        (0..TIMES).for_each(|_| *owner.lock() += 1);
    });
    assert_eq!(*lock.lock(), TIMES + others.load(SeqCst));
}

#[test]
fn the_bias_goes_off_when_another_comes_and_on_when_none_does() {
    if is_a_mutex_here() {
        return;
    }
    let lock = Biased::new((), true);
    let owner = lock.own().unwrap();
    for _ in 0..2 {
        assert!(!is_on(&lock));
        (1..QUIET).for_each(|_| drop(owner.lock()));
        assert!(!is_on(&lock), "once more");
        drop(owner.lock());
        assert!(is_on(&lock));
        drop(owner.lock());
        another_comes(&lock);
    }
    // Another each time: it stays off.
    for _ in 0..3 {
        (1..QUIET).for_each(|_| drop(owner.lock()));
        another_comes(&lock);
    }
    assert!(!is_on(&lock));
}

#[test]
fn another_waits_while_the_owner_is_inside() {
    if is_a_mutex_here() {
        return;
    }
    let lock = Biased::new(0, true);
    let owner = lock.own().unwrap();
    (0..=QUIET).for_each(|_| drop(owner.lock()));
    thread::scope(|scope| {
        let mut inside = owner.lock();
        let (came, has_come) = mpsc::channel();
        let lock = &lock;
        let other = scope.spawn(move || {
            came.send(()).unwrap();
            *lock.lock()
        });
        has_come.recv().unwrap();
        // It turns the bias off, and waits.
        while is_on(lock) {
            thread::yield_now();
        }
        *inside = 7;
        drop(inside);
        assert_eq!(other.join().unwrap(), 7);
    });
}

/// The bias stays on: there is nobody to be fenced off.
#[test]
fn the_owner_may_come_as_others_do() {
    if is_a_mutex_here() {
        return;
    }
    let lock = Biased::new(0, true);
    let owner = lock.own().unwrap();
    (0..QUIET).for_each(|_| *owner.lock() += 1);
    assert!(is_on(&lock));
    *lock.lock() += 1;
    assert!(is_on(&lock));
    let inside = owner.lock();
    assert!(catch_unwind(AssertUnwindSafe(|| drop(lock.lock()))).is_err());
    assert_eq!(*inside, QUIET + 1);
}

#[test]
fn the_next_owner_may_be_another_thread() {
    if is_a_mutex_here() {
        return;
    }
    let lock = Biased::new(0, true);
    let owner = lock.own().unwrap();
    assert!(lock.own().is_none(), "there is one");
    (0..=QUIET).for_each(|_| *owner.lock() += 1);
    drop(owner);
    thread::scope(|scope| {
        scope.spawn(|| {
            let owner = lock.own().unwrap();
            (0..=QUIET).for_each(|_| *owner.lock() += 1);
        });
    });
    assert_eq!(*lock.lock(), 2 * (QUIET + 1));
}

#[test]
fn where_there_is_to_be_no_owner_it_is_a_mutex() {
    let lock = Biased::new(1, false);
    assert!(lock.own().is_none());
    *lock.lock() += 1;
    assert_eq!(*lock.lock(), 2);
}

#[test]
fn an_owner_that_comes_twice_is_told_so() {
    if is_a_mutex_here() {
        return;
    }
    let lock = Biased::new(0, true);
    let owner = lock.own().unwrap();
    (0..QUIET).for_each(|_| drop(owner.lock()));
    assert!(is_on(&lock));
    let inside = owner.lock();
    assert!(catch_unwind(AssertUnwindSafe(|| drop(owner.lock()))).is_err());
    drop(inside);
    *owner.lock() += 1;
    assert_eq!(*lock.lock(), 1);
}
