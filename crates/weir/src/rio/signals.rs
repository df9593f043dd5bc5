//! What a poster must know of the thread that waits, and why that thread was woken.
//!
//! The thread that is about to wait raises its flags, then looks for work, then waits; a poster
//! leaves work, then looks at the flags. Both looks at the work are under its lock, so one of
//! the two sees the other: no work is left while everybody waits.

use crate::sync::{
    AtomicBool,
    Ordering::{Acquire, Relaxed, Release},
};
use crate::wake::Waker;
use std::sync::Arc;

/// Flags between the posters and the thread that waits. The locks of the work order them.
#[derive(Debug, Default)]
pub(super) struct Signals {
    /// A thread waits that leaves out a socket without slices.
    starved: AtomicBool,
    /// A thread waits.
    waiting: AtomicBool,
    /// The program woke it, rather than a poster.
    woken: AtomicBool,
    /// The queue was stopped. Whoever posts looks again under the lock of what he posts to.
    stopped: AtomicBool,
}

impl Signals {
    /// The thread that is about to wait will look for work now.
    pub(super) fn about_to_look(&self) {
        self.starved.store(true, Relaxed);
        self.waiting.store(true, Relaxed);
    }

    /// It has looked. With every socket watched, slices need not be told to it.
    pub(super) fn looked(&self, starved: bool) {
        if !starved {
            self.starved.store(false, Relaxed);
        }
    }

    /// It has work, or gave up waiting.
    pub(super) fn no_longer_waiting(&self) {
        self.starved.store(false, Relaxed);
        self.waiting.store(false, Relaxed);
    }

    /// A poster has left slices. Whether the waiting thread must be told.
    pub(super) fn slices_left(&self) -> bool {
        self.starved.load(Relaxed)
    }

    /// A poster has left sends, or completions of sends. Whether the waiting thread must be told.
    pub(super) fn sends_left(&self) -> bool {
        self.waiting.load(Relaxed)
    }

    /// What the program wakes the thread by; `end_wait` ends its wait.
    pub(super) fn waker(self: &Arc<Self>, end_wait: impl Fn() + Send + Sync + 'static) -> Waker {
        let signals = Arc::clone(self);
        Waker::new(move || {
            signals.set_woken();
            end_wait();
        })
    }

    /// The program wakes the thread.
    fn set_woken(&self) {
        // The wake event that is signalled next is a call into the kernel, which orders this before it.
        self.woken.store(true, Release);
    }

    /// Nothing is posted from now on.
    pub(super) fn set_stopped(&self) {
        self.stopped.store(true, Relaxed);
    }

    /// Whether the queue was stopped.
    #[inline]
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Relaxed)
    }

    /// Whether the program woke the thread, which uses that up.
    pub(super) fn take_woken(&self) -> bool {
        self.woken.swap(false, Acquire)
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::Signals;
    use crate::sync::{Condvar, Mutex};
    use loom::{sync::Arc, thread};

    /// The work, and the wake event that a wait ends with.
    #[derive(Default)]
    struct Shared {
        signals: Signals,
        slices: Mutex<u32>,
        sends: Mutex<u32>,
        wake_event: Mutex<bool>,
        signalled: Condvar,
    }

    impl Shared {
        fn ring(&self) {
            *self.wake_event.lock().unwrap() = true;
            self.signalled.notify_one();
        }

        /// Waits until `work` has been left: for ever, if a poster does not ring.
        fn wait_for(&self, work: &Mutex<u32>) {
            loop {
                self.signals.about_to_look();
                let nothing = *work.lock().unwrap() == 0;
                self.signals.looked(nothing);
                if nothing {
                    let mut signalled = self.wake_event.lock().unwrap();
                    while !*signalled {
                        signalled = self.signalled.wait(signalled).unwrap();
                    }
                    *signalled = false;
                }
                self.signals.no_longer_waiting();
                if !nothing {
                    return;
                }
            }
        }
    }

    #[test]
    fn slices_left_are_found() {
        loom::model(|| {
            let shared = Arc::new(Shared::default());
            let poster = Arc::clone(&shared);
            let poster = thread::spawn(move || {
                *poster.slices.lock().unwrap() += 1;
                if poster.signals.slices_left() {
                    poster.ring();
                }
            });
            shared.wait_for(&shared.slices);
            poster.join().unwrap();
        });
    }

    #[test]
    fn sends_left_are_found() {
        loom::model(|| {
            let shared = Arc::new(Shared::default());
            let poster = Arc::clone(&shared);
            let poster = thread::spawn(move || {
                *poster.sends.lock().unwrap() += 1;
                if poster.signals.sends_left() {
                    poster.ring();
                }
            });
            shared.wait_for(&shared.sends);
            poster.join().unwrap();
        });
    }
}
