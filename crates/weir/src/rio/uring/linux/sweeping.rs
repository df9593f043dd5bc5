//! When to sweep and when to leave receives armed.
//!
//! A receive that waits has an entry in the wait queue of its socket. Each datagram that comes
//! calls on that entry, on the core that sends, and both cores write to its cache lines. A sweep
//! leaves no entry: it is a multishot receive that does not wait (MSG_DONTWAIT), takes what lies
//! in the socket, and is over when its submission is.

use std::time::{Duration, Instant};

/// The most datagrams that the kernel hands over before a multishot receive lets others run
/// (MULTISHOT_MAX_RETRY of its sources): as many in one dequeue, and more are waiting.
const RUN: u32 = 32;

/// So many sweeps in a row that brought nothing, and receives are armed again.
const DRY_SWEEPS: u32 = 32;

/// After a sweep that emptied a socket, the next one is put off for so long: each look takes
/// the socket's lock from the sender. Sooner costs up to 5 % of the rate, later empties the
/// socket's buffer too late.
const GATHERING: Duration = Duration::from_micros(5);

/// Whether to sweep, and how much at a time.
#[derive(Debug)]
pub(super) struct Sweeping {
    on: bool,
    /// Sweeps of each socket in one dequeue, and the most of them.
    sweeps: u32,
    most: u32,
    /// Sweeps in a row that brought nothing.
    dry: u32,
    /// When the last one emptied a socket.
    emptied: Option<Instant>,
    /// The last dequeue may have left datagrams in a socket.
    left: bool,
}

/// The most sweeps of a socket in one dequeue of so many completions.
pub(super) fn most_sweeps(per_dequeue: u32) -> u32 {
    per_dequeue.div_ceil(RUN)
}

impl Sweeping {
    /// For dequeues of at most so many completions.
    pub fn new(per_dequeue: u32) -> Self {
        let most = most_sweeps(per_dequeue);
        Self { on: false, sweeps: 1, most, dry: 0, emptied: None, left: false }
    }

    /// Takes note of what a dequeue brought that did not sweep.
    #[inline]
    pub fn not_swept(&mut self, received: u32) {
        if received >= RUN {
            self.begin();
        }
    }

    /// Sweeps from now on, one run at a time.
    pub fn begin(&mut self) {
        (self.on, self.sweeps, self.dry, self.emptied) = (true, 1, 0, None);
        self.left = false;
    }

    /// Takes note of a dequeue that brought so many and did not sweep: it took what had been received before.
    #[inline]
    pub fn put_off(&mut self, received: u32) {
        self.left = received > 0;
    }

    /// Takes note of what a dequeue brought that swept so many sockets, and whether one of them
    /// was emptied.
    #[inline]
    pub fn swept(&mut self, received: u32, sockets: u32, emptied: bool) {
        let full = self.sweeps * RUN * sockets.max(1);
        // Of several sockets one may have more though another was emptied.
        let of_one = self.sweeps * RUN;
        self.left = received > 0 && (!emptied || (sockets > 1 && received >= of_one));
        self.emptied = emptied.then(Instant::now);
        if received >= full {
            self.sweeps = (2 * self.sweeps).min(self.most);
        } else if received < full / 2 {
            self.sweeps = (self.sweeps / 2).max(1);
        }
        self.dry = if received == 0 { self.dry + 1 } else { 0 };
        self.on = self.dry < DRY_SWEEPS;
    }

    /// Lets a few datagrams gather if a socket was just emptied.
    #[inline]
    pub fn gather(&self) {
        if let Some(emptied) = self.emptied {
            while emptied.elapsed() < GATHERING {
                std::hint::spin_loop();
            }
        }
    }

    /// Whether to sweep.
    #[inline]
    pub fn on(&self) -> bool {
        self.on
    }

    /// How many sweeps of a socket belong into one dequeue.
    #[inline]
    pub fn sweeps(&self) -> u32 {
        self.sweeps
    }

    /// The most that `sweeps` returns.
    pub fn most(&self) -> u32 {
        self.most
    }

    /// Whether the last dequeue may have left datagrams in a socket.
    pub fn may_have_left(&self) -> bool {
        self.left
    }

    /// The queue is about to wait: receives must be armed.
    pub fn stop(&mut self) {
        (self.on, self.left) = (false, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_run_starts_it_and_dry_sweeps_or_a_wait_end_it() {
        let mut sweeping = Sweeping::new(1000);
        sweeping.not_swept(RUN - 1);
        assert!(!sweeping.on());
        sweeping.not_swept(RUN);
        assert!(sweeping.on());
        for _ in 1..DRY_SWEEPS {
            sweeping.swept(0, 1, true);
        }
        sweeping.swept(1, 1, true);
        for _ in 1..DRY_SWEEPS {
            sweeping.swept(0, 1, true);
            assert!(sweeping.on());
        }
        sweeping.swept(0, 1, true);
        assert!(!sweeping.on());
        sweeping.not_swept(RUN);
        sweeping.stop();
        assert!(!sweeping.on());
    }

    #[test]
    fn more_sweeps_belong_into_a_dequeue_while_each_is_full() {
        let mut sweeping = Sweeping::new(100);
        sweeping.not_swept(RUN);
        let mut took = vec![sweeping.sweeps()];
        for received in [RUN, 2 * RUN, 4 * RUN, 2 * RUN, 2 * RUN - 1, 2 * RUN - 1, 0, 0] {
            sweeping.swept(received, 1, received < RUN);
            took.push(sweeping.sweeps());
        }
        assert_eq!(took, [1, 2, 4, 4, 4, 2, 2, 1, 1]);
        assert_eq!(sweeping.most(), 4, "as many as fill a dequeue of 100");
    }

    #[test]
    fn each_socket_has_its_part() {
        let mut sweeping = Sweeping::new(1000);
        sweeping.begin();
        sweeping.swept(RUN, 8, true);
        assert_eq!(sweeping.sweeps(), 1, "eight sockets hold eight times as much");
        sweeping.swept(8 * RUN, 8, false);
        assert_eq!(sweeping.sweeps(), 2);
    }

    #[test]
    fn a_socket_that_was_not_emptied_may_have_more() {
        let mut sweeping = Sweeping::new(1000);
        sweeping.begin();
        sweeping.swept(RUN, 1, false);
        assert!(sweeping.may_have_left());
        sweeping.swept(RUN, 1, true);
        assert!(!sweeping.may_have_left());
        sweeping.put_off(1);
        assert!(sweeping.may_have_left(), "it took what had come before, and looked no further");
        sweeping.swept(0, 1, false);
        assert!(!sweeping.may_have_left(), "there was no buffer: nothing is gained by another");
        sweeping.begin();
        sweeping.swept(RUN, 2, true);
        assert!(sweeping.may_have_left(), "one of two was emptied");
        sweeping.stop();
        assert!(!sweeping.may_have_left());
    }

    #[test]
    fn nothing_gathers_after_a_full_sweep() {
        let mut sweeping = Sweeping::new(1000);
        sweeping.not_swept(RUN);
        assert_eq!(sweeping.emptied, None);
        sweeping.swept(RUN - 1, 1, false);
        assert_eq!(sweeping.emptied, None, "it ended for want of a buffer, say");
        sweeping.swept(RUN - 1, 1, true);
        let emptied = sweeping.emptied.expect("that emptied the socket");
        sweeping.gather();
        assert!(emptied.elapsed() >= GATHERING);
        sweeping.swept(RUN * sweeping.sweeps(), 1, false);
        assert_eq!(sweeping.emptied, None);
    }
}
