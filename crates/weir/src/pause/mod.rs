//! A sleep of a given time that ends earlier when it is asked to, and timed waits that end in time.

#[cfg_attr(windows, path = "windows.rs")]
#[cfg_attr(target_os = "linux", path = "linux.rs")]
mod native;

pub(crate) use native::{FINE_TIMERS, end_in_time};

use crate::wake::Waker;
use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

thread_local! {
    /// Whether the timed waits of the calling thread were made to end in time.
    static IN_TIME: Cell<bool> = const { Cell::new(false) };
}

/// Has the timed waits of the calling thread end in time, the first time that it is called.
pub(crate) fn end_in_time_once() {
    if !IN_TIME.replace(true) {
        end_in_time();
    }
}

/// Lets its thread sleep, until a [`Waker`] ends that: for good, unless that is [forgotten](Pause::forget).
#[derive(Debug)]
pub(crate) struct Pause {
    ended: Arc<AtomicBool>,
}

impl Pause {
    pub fn new() -> Self {
        Self { ended: Arc::default() }
    }

    /// Ends the sleep of the calling thread, and lets it sleep no more.
    pub fn waker(&self) -> Waker {
        let (ended, sleeper) = (Arc::clone(&self.ended), thread::current());
        Waker::new(move || {
            // A swap, so that who forgets sees what all wakers were used for, and not the last alone.
            ended.swap(true, Ordering::AcqRel);
            sleeper.unpark();
        })
    }

    /// Its thread sleeps again, although the waker was used. What the waker was used for until now is seen by whoever looks
    /// for it from now on.
    pub fn forget(&self) {
        self.ended.swap(false, Ordering::AcqRel);
    }

    /// Sleeps for so long, or until the waker was used. It must be the thread that made the waker.
    pub fn sleep(&self, time: Duration) {
        let until = Instant::now() + time;
        let mut left = time;
        while !left.is_zero() && !self.ended.load(Ordering::Acquire) {
            thread::park_timeout(left); // which may return for a reason of somebody else's
            left = until.saturating_duration_since(Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn it_lasts_as_long_as_asked_whoever_else_wakes_the_thread() {
        let pause = Pause::new();
        let time = Duration::from_millis(20);
        thread::current().unpark();
        let began = Instant::now();
        pause.sleep(time);
        assert!(began.elapsed() >= time);
    }

    #[test]
    fn its_waker_ends_it_and_all_that_follow() {
        const FOR_EVER: Duration = Duration::from_secs(24 * 3600);
        let (sender, receiver) = mpsc::channel();
        let sleeper = thread::spawn(move || {
            let pause = Pause::new();
            sender.send(pause.waker()).unwrap();
            pause.sleep(FOR_EVER);
            pause.sleep(FOR_EVER);
        });
        receiver.recv().unwrap().wake();
        sleeper.join().unwrap();
    }

    #[test]
    fn what_is_forgotten_ends_no_sleep_and_what_follows_does() {
        const FOR_EVER: Duration = Duration::from_secs(24 * 3600);
        let pause = Pause::new();
        let waker = pause.waker();
        let time = Duration::from_millis(20);
        waker.wake();
        pause.sleep(FOR_EVER);
        pause.forget();
        let began = Instant::now();
        pause.sleep(time);
        assert!(began.elapsed() >= time);
        waker.wake();
        pause.sleep(FOR_EVER);
    }

    #[test]
    fn what_is_done_about_late_timers_is_told() {
        let told = thread::spawn(end_in_time).join().unwrap();
        assert!(!told.is_empty());
    }
}
