//! When datagrams go out: an open loop.
//!
//! The time of every datagram is fixed before the flood begins; what the receiver or the
//! network does changes nothing about it. Datagrams go out in quanta, one call to the
//! operating system each. A quantum that could not go out within the time of one quantum
//! after it was due is counted and skipped: catching up would be a burst that nobody asked
//! for, and the loss that it causes would be blamed on the receiver.
//!
//! Every datagram that goes out bears the time at which its quantum was due, not that of the
//! call: so a generator that is held up does not shorten the latencies that it measures.
//!
//! - [`rate`]: from bits per second or a share of a link to datagrams per second;
//! - [`Pacer`]: which quantum is due, a pure function of the times it is given;
//! - [`windows`]: how well the pace was held, measured in the real run;
//! - [`wait`]: the waiting, apart from all that.

pub mod rate;
pub mod wait;
pub mod windows;

pub use rate::Load;
pub use windows::{WINDOW_NS, Windows};

/// Quanta a second aimed at: as many as one thread can send a call each without falling
/// behind (a call that wakes a sleeping receiver takes about 5 µs), for a small quantum is
/// a smooth pace.
pub const QUANTA_PER_S: f64 = 100_000.0;

/// Datagrams per quantum: the fewest with which there are at most `quanta_per_s` of them, what the
/// engine can do ([`QUANTA_PER_S`] mostly), and at most `capacity`, what one call of it carries.
///
/// So below 100,000 datagrams a second each goes out by itself, and above it 10 ms hold
/// 500 quanta or more.
pub fn quantum(datagrams_per_s: f64, quanta_per_s: f64, capacity: u32) -> u32 {
    ((datagrams_per_s / quanta_per_s).ceil() as u32).clamp(1, capacity.max(1))
}

/// What to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// Nothing before this time.
    At {
        /// When the next quantum is due, in ns of the clock given.
        ns: u64,
    },
    /// Send one quantum now.
    Now {
        /// When it was due, which is never later than now. Latency is clocked from here: from
        /// the call on, a generator that is held up would hide the wait.
        due_ns: u64,
        /// Datagrams that are too late and must not be sent.
        skipped: u64,
    },
}

/// Decides when each quantum goes out. It reads no clock and never waits.
///
/// Quantum `k` is due at `start + k * quantum / rate`. It never goes out before, so what
/// was sent is never more than one quantum ahead of `rate * time`; and it goes out less
/// than the time of one quantum later, or not at all.
#[derive(Debug, Clone)]
pub struct Pacer {
    start_ns: u64,
    interval_ns: f64,
    quantum: u32,
    next: u64,
}

impl Pacer {
    /// Of `datagrams_per_s` above 0 from `start_ns` on, `quantum` (at least 1) at a time.
    pub fn new(datagrams_per_s: f64, quantum: u32, start_ns: u64) -> Self {
        assert!(datagrams_per_s > 0.0 && quantum > 0, "nothing would ever be due");
        Self { start_ns, interval_ns: f64::from(quantum) * 1e9 / datagrams_per_s, quantum, next: 0 }
    }

    /// When quantum `k` is due. By multiplication, so that nothing adds up over the run.
    fn due_ns(&self, k: u64) -> u64 {
        self.start_ns.saturating_add((k as f64 * self.interval_ns).ceil() as u64)
    }

    /// What to do at `now_ns`. [`Due::Now`] hands the quantum out: the caller sends it.
    #[inline]
    pub fn poll(&mut self, now_ns: u64) -> Due {
        let mut due_ns = self.due_ns(self.next);
        if now_ns < due_ns {
            return Due::At { ns: due_ns };
        }
        let mut skipped = 0;
        if now_ns >= self.due_ns(self.next + 1) {
            // At least one quantum is too late; the latest that is due is the only one
            // that is not. Rounding may put the quotient one off to either side.
            let mut latest = ((now_ns - self.start_ns) as f64 / self.interval_ns) as u64;
            while self.due_ns(latest) > now_ns {
                latest -= 1;
            }
            while self.due_ns(latest + 1) <= now_ns {
                latest += 1;
            }
            skipped = (latest - self.next) * u64::from(self.quantum);
            self.next = latest;
            due_ns = self.due_ns(latest);
        }
        self.next += 1;
        Due::Now { due_ns, skipped }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_quantum_is_small_and_bounded() {
        assert_eq!(quantum(1.0, QUANTA_PER_S, 64), 1);
        assert_eq!(quantum(100_000.0, QUANTA_PER_S, 64), 1);
        assert_eq!(quantum(200_000.0, QUANTA_PER_S, 64), 2);
        assert_eq!(quantum(1e9, QUANTA_PER_S, 64), 64);
        assert_eq!(quantum(1e9, QUANTA_PER_S, 0), 1);
        assert_eq!(quantum(200_000.0, 10_000.0, 64), 20);
    }

    /// Runs a pacer for `seconds`; `late_ns` says how late each wait ends.
    fn run(
        rate: f64,
        quantum: u32,
        seconds: f64,
        mut late_ns: impl FnMut() -> u64,
    ) -> (Windows, u64, u64) {
        let start = 1_000_000_007;
        let end = start + (seconds * 1e9) as u64;
        let mut pacer = Pacer::new(rate, quantum, start);
        let mut windows = Windows::new(rate, quantum, start);
        let interval_ns = f64::from(quantum) * 1e9 / rate;
        let (mut now, mut sent, mut skipped_all) = (start, 0, 0);
        while now < end {
            match pacer.poll(now) {
                Due::At { ns } => now = ns + late_ns(),
                Due::Now { due_ns, skipped } => {
                    skipped_all += skipped;
                    let place = (sent + skipped_all) / u64::from(quantum);
                    let intended = start as f64 + place as f64 * interval_ns;
                    assert!((due_ns as f64 - intended).abs() <= 1.0, "{due_ns} not {intended}");
                    assert!(due_ns <= now && ((now - due_ns) as f64) < interval_ns + 1.0);
                    sent += u64::from(quantum);
                    windows.record(now, u64::from(quantum));
                    let target = rate * (now - start) as f64 / 1e9;
                    let ahead = sent as f64 - target;
                    assert!(ahead <= f64::from(quantum) + 1e-3, "{ahead} ahead");
                    let due = (sent + skipped_all) as f64 - f64::from(quantum);
                    let late = target - due;
                    assert!(late <= f64::from(quantum) + 1e-3, "{late} late and yet sent");
                }
            }
        }
        windows.finish(end);
        (windows, sent, skipped_all)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// With a clock that is always on time every window holds.
        #[test]
        fn on_time_every_window_holds(rate in 1.0f64..2e6, capacity in 1u32..128) {
            let (windows, sent, skipped) = run(rate, quantum(rate, QUANTA_PER_S, capacity), 0.3, || 0);
            prop_assert_eq!(windows.within(), windows.count());
            prop_assert_eq!(skipped, 0);
            let off = (sent as f64 - rate * 0.3).abs();
            prop_assert!(off <= f64::from(quantum(rate, QUANTA_PER_S, capacity)) + 1.0);
        }

        /// Waits that end late by less than a quantum lose nothing, and where 2 % are two
        /// quanta or more every window holds still.
        #[test]
        fn with_jitter_every_window_holds(
            rate in 10_000.0f64..2e6,
            jitter in proptest::collection::vec(0.0f64..0.98, 50..100),
        ) {
            let quantum = quantum(rate, QUANTA_PER_S, 64);
            let interval_ns = f64::from(quantum) * 1e9 / rate;
            let mut at = 0;
            let late = || { at += 1; (jitter[at % jitter.len()] * interval_ns) as u64 };
            let (windows, _, skipped) = run(rate, quantum, 0.2, late);
            prop_assert_eq!(skipped, 0);
            prop_assert_eq!(windows.within(), windows.count());
        }

        /// Whatever the clock does: never ahead, never late and sent, and every datagram
        /// either sent or skipped (checked in `run` and here).
        #[test]
        fn with_any_delays_nothing_is_caught_up(
            rate in 100.0f64..2e6,
            delays_ns in proptest::collection::vec(0u64..3_000_000, 20..60),
        ) {
            let quantum = quantum(rate, QUANTA_PER_S, 64);
            let mut at = 0;
            let late = || { at += 1; delays_ns[at % delays_ns.len()] };
            let (_, sent, skipped) = run(rate, quantum, 0.2, late);
            let accounted = (sent + skipped) as f64;
            // Quanta become due until the end, and the last wait may end 3 ms after it.
            prop_assert!(accounted <= rate * 0.203 + f64::from(quantum) + 1.0);
            prop_assert!(accounted + rate * 0.003 + 2.0 * f64::from(quantum) >= rate * 0.2);
        }
    }
}
