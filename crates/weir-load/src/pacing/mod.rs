//! When datagrams go out: an open loop.
//!
//! The time of every datagram is fixed before the flood begins, at even distances or as independent senders would have
//! it ([`Arrivals`]); what the receiver or the network does changes nothing about it. Datagrams go out in quanta, one call to the
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

use crate::random::Random;
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

/// How the quanta of a pace follow one another.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Arrivals {
    /// At even distances.
    #[default]
    Even,
    /// At the times of a Poisson process: exponentially distributed gaps, each independent of those before, as where many
    /// independent senders come together.
    Poisson,
}

impl Arrivals {
    /// The names that users give.
    pub const NAMES: [&'static str; 2] = ["even", "poisson"];

    /// The name that users give.
    pub fn name(self) -> &'static str {
        match self {
            Self::Even => Self::NAMES[0],
            Self::Poisson => Self::NAMES[1],
        }
    }
}

impl std::str::FromStr for Arrivals {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Even, Self::Poisson]
            .into_iter()
            .find(|arrivals| arrivals.name() == text)
            .ok_or_else(|| format!("arrivals are {}, not {text:?}", Self::NAMES.join(" or ")))
    }
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
/// Evenly paced, quantum `k` is due at `start + k * quantum / rate`. It never goes out before, so what
/// was sent is never more than one quantum ahead of `rate * time`; and it goes out less
/// than the time of one quantum later, or not at all.
///
/// In a Poisson process several may be due at nearly the same time, and a call takes a while: so a quantum may be late by
/// [`POISSON_LATE_INTERVALS`] times the mean gap. Latency is clocked from when it was due.
#[derive(Debug, Clone)]
pub struct Pacer {
    start_ns: u64,
    interval_ns: f64,
    quantum: u32,
    next: Next,
}

/// How late a quantum of a Poisson process may go out, in mean gaps. At the shortest mean gap ([`QUANTA_PER_S`]) a call
/// takes half of it; then one in a million has to wait for so long behind others.
pub const POISSON_LATE_INTERVALS: f64 = 8.0;

/// The quantum that goes out next.
#[derive(Debug, Clone)]
enum Next {
    Even {
        number: u64,
    },
    Poisson {
        /// When it is due, in ns after the start.
        after_ns: f64,
        gaps: Random,
        /// Datagrams that were too late and have not been told of.
        skipped: u64,
    },
}

impl Pacer {
    /// Of `datagrams_per_s` above 0 from `start_ns` on, `quantum` (at least 1) at a time.
    pub fn new(datagrams_per_s: f64, quantum: u32, start_ns: u64) -> Self {
        assert!(datagrams_per_s > 0.0 && quantum > 0, "nothing would ever be due");
        let interval_ns = f64::from(quantum) * 1e9 / datagrams_per_s;
        Self { start_ns, interval_ns, quantum, next: Next::Even { number: 0 } }
    }

    /// At the same mean rate, with the gaps of a Poisson process. They are the same for the same seed.
    pub fn poisson(datagrams_per_s: f64, quantum: u32, start_ns: u64, seed: u64) -> Self {
        let even = Self::new(datagrams_per_s, quantum, start_ns);
        let mut gaps = Random::seeded(seed);
        let after_ns = gaps.gap(even.interval_ns);
        Self { next: Next::Poisson { after_ns, gaps, skipped: 0 }, ..even }
    }

    /// What to do at `now_ns`. [`Due::Now`] hands the quantum out: the caller sends it.
    #[inline]
    pub fn poll(&mut self, now_ns: u64) -> Due {
        let (start_ns, interval_ns, quantum) = (self.start_ns, self.interval_ns, self.quantum);
        match &mut self.next {
            Next::Even { number } => {
                // By multiplication, so that nothing adds up over the run.
                let due_ns =
                    |k: u64| start_ns.saturating_add((k as f64 * interval_ns).ceil() as u64);
                let first = *number;
                if now_ns < due_ns(first) {
                    return Due::At { ns: due_ns(first) };
                }
                let mut latest = first;
                if now_ns >= due_ns(first + 1) {
                    // At least one quantum is too late; the latest that is due is the only one
                    // that is not. Rounding may put the quotient one off to either side.
                    latest = ((now_ns - start_ns) as f64 / interval_ns) as u64;
                    while due_ns(latest) > now_ns {
                        latest -= 1;
                    }
                    while due_ns(latest + 1) <= now_ns {
                        latest += 1;
                    }
                }
                *number = latest + 1;
                Due::Now { due_ns: due_ns(latest), skipped: (latest - first) * u64::from(quantum) }
            }
            Next::Poisson { after_ns, gaps, skipped } => loop {
                let due_ns = start_ns.saturating_add(after_ns.ceil() as u64);
                if now_ns < due_ns {
                    return Due::At { ns: due_ns };
                }
                *after_ns += gaps.gap(interval_ns);
                if (now_ns - due_ns) as f64 <= POISSON_LATE_INTERVALS * interval_ns {
                    return Due::Now { due_ns, skipped: std::mem::take(skipped) };
                }
                *skipped += u64::from(quantum);
            },
        }
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

        /// A Poisson process has its rate; on time or held up, every quantum is sent no earlier than it is due and in order,
        /// or skipped because it was too late; and windows go by what was due in them.
        #[test]
        fn a_poisson_process_is_sent_or_skipped(
            rate in 20_000.0f64..1e6,
            seed in 0u64..1000,
            late_ns in proptest::collection::vec(0u64..200_000, 1..20),
            is_on_time in proptest::bool::ANY,
        ) {
            let (start, seconds) = (1_000_000_007, 0.5);
            let quantum = quantum(rate, QUANTA_PER_S, 64);
            let mean_ns = f64::from(quantum) * 1e9 / rate;
            let mut pacer = Pacer::poisson(rate, quantum, start, seed);
            let mut windows = Windows::of_due(quantum, start);
            let (mut now, mut last_due, mut sent, mut skipped_all, mut at) = (start, 0, 0u64, 0, 0);
            let end = start + (seconds * 1e9) as u64;
            while now < end {
                match pacer.poll(now) {
                    Due::At { ns } => {
                        at += 1;
                        now = ns + if is_on_time { 0 } else { late_ns[at % late_ns.len()] };
                    }
                    Due::Now { due_ns, skipped } => {
                        prop_assert!(due_ns <= now && due_ns >= last_due);
                        prop_assert!((now - due_ns) as f64 <= POISSON_LATE_INTERVALS * mean_ns);
                        last_due = due_ns;
                        sent += u64::from(quantum);
                        skipped_all += skipped;
                        windows.due(due_ns, skipped + u64::from(quantum));
                        windows.record(now, quantum.into());
                    }
                }
            }
            windows.finish(end);
            prop_assert!(!is_on_time || (skipped_all == 0 && windows.within() == windows.count()));
            // Five standard deviations of the number of quanta, and what a last wait adds.
            let quanta = (sent + skipped_all) as f64 / f64::from(quantum);
            let expected = seconds * 1e9 / mean_ns;
            prop_assert!((quanta - expected).abs() < 5.0 * expected.sqrt() + 2e5 / mean_ns + 1.0, "{} of {}", quanta, expected);
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
