//! Waiting for a time: asleep while it is far, spinning when it is near.

use std::{hint, thread, time::Duration};

use crate::{clock::now_ns, stop::Stop, sys};

/// A sleep may end this late on a quiet machine; so much is waited by spinning.
const SPIN_NS: u64 = 100_000;

/// Times nearer than this are not worth a sleep.
const SLEEP_FROM_NS: u64 = 2 * SPIN_NS;

/// The longest sleep, so that a stop is noticed soon however far the next datagram is.
const SLEEP_MAX_NS: u64 = 20_000_000;

/// Waits in the thread that made it.
#[derive(Debug)]
pub struct Waiter {
    yields: bool,
}

impl Waiter {
    /// For the current thread. Where the process has a single core, which a server may
    /// share, near times are waited for by yielding instead of spinning: less precise, but
    /// a spinning generator would be all that runs.
    pub fn for_current_thread(single_core: bool) -> Self {
        sys::ask_for_precise_sleeps();
        Self { yields: single_core }
    }

    /// Lets a moment pass before the next look at something that may come at any time: not at all, or where a server
    /// may share the core, by yielding it.
    #[inline]
    pub fn pause(&self) {
        if self.yields {
            thread::yield_now();
        } else {
            hint::spin_loop();
        }
    }

    /// Waits until `until_ns` or until a stop is requested; gives the time then.
    #[inline]
    pub fn wait(&self, until_ns: u64, stop: &Stop) -> u64 {
        loop {
            let now = now_ns();
            if now >= until_ns || stop.is_requested() {
                return now;
            }
            let left = until_ns - now;
            if left > SLEEP_FROM_NS {
                thread::sleep(Duration::from_nanos((left - SPIN_NS).min(SLEEP_MAX_NS)));
            } else if self.yields {
                thread::yield_now();
            } else {
                hint::spin_loop();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stop::StopReason;

    #[test]
    fn never_returns_early_and_heeds_a_stop() {
        let waiter = Waiter::for_current_thread(false);
        let stop = Stop::new();
        for wait_ns in [0, 10_000, 150_000, 3_000_000] {
            let until = now_ns() + wait_ns;
            assert!(waiter.wait(until, &stop) >= until);
        }
        stop.request(StopReason::Asked);
        let before = now_ns();
        assert!(waiter.wait(before + 3_600_000_000_000, &stop) < before + 3_600_000_000_000);
    }
}
