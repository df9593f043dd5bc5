//! What the basic steps of I/O cost on this machine, measured in a moment.

use super::core_to_core_ns;
use crate::affinity;
use std::{
    hint::black_box,
    sync::{
        atomic::{AtomicU32, Ordering::SeqCst},
        mpsc,
    },
    thread::{self, Thread},
    time::Instant,
};

/// Times in nanoseconds; `None` where they could not be measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Costs {
    /// A system call that does nothing.
    pub call_ns: Option<u64>,
    /// Reading the clock.
    pub clock_ns: Option<u64>,
    /// From waking a thread that sleeps, on another core where there is one, to its first step.
    pub wake_ns: Option<u64>,
    /// A cache line from one core to another.
    pub hop_ns: Option<u64>,
}

/// The median of so many bursts: one that was interrupted does not count.
const BURSTS: usize = 9;
/// Steps in a burst.
const STEPS: u32 = 1000;
/// Wake-ups in a burst: each takes microseconds, on some machines a hundred.
const WAKES: u32 = 40;

impl Costs {
    /// Measures them. It takes some 10 ms, on slow machines 100, and moves no thread of the caller's.
    pub fn measure() -> Self {
        let cores = affinity::allowed_cores();
        Self {
            call_ns: super::native::call().then(|| {
                median_ns(STEPS, || {
                    black_box(super::native::call());
                })
            }),
            clock_ns: Some(median_ns(STEPS, || {
                black_box(Instant::now());
            })),
            wake_ns: wake_ns(),
            hop_ns: match cores[..] {
                [first, .., last] => core_to_core_ns(first, last).map(|ns| ns.round() as u64),
                _ => None,
            },
        }
    }
}

/// What one step takes.
fn median_ns(steps: u32, step: impl Fn()) -> u64 {
    let burst = || {
        let begun = Instant::now();
        (0..steps).for_each(|_| step());
        begun.elapsed().as_nanos() as u64 / u64::from(steps)
    };
    let mut bursts: Vec<u64> = (0..BURSTS).map(|_| burst()).collect();
    bursts.sort_unstable();
    bursts[BURSTS / 2]
}

/// Two threads wake each other in turn, each time out of a sleep: half of a round trip.
fn wake_ns() -> Option<u64> {
    let cores = affinity::allowed_cores();
    let (first, last) = (*cores.first()?, *cores.last()?);
    let turn = AtomicU32::new(FIRST);
    thread::scope(|scope| {
        let (meet, met) = mpsc::channel::<Thread>();
        let turn = &turn;
        let other = scope.spawn(move || {
            let _ = affinity::pin_where_permitted(&[last]);
            let Ok(caller) = met.recv() else { return };
            while sleep_until(turn, OTHER) {
                turn.store(FIRST, SeqCst);
                caller.unpark();
            }
        });
        let timing = scope.spawn(move || {
            let _ = affinity::pin_where_permitted(&[first]);
            let other = other.thread();
            meet.send(thread::current()).ok()?;
            let burst = || {
                let begun = Instant::now();
                for _ in 0..WAKES {
                    turn.store(OTHER, SeqCst);
                    other.unpark();
                    sleep_until(turn, FIRST);
                }
                begun.elapsed().as_nanos() as u64 / u64::from(2 * WAKES)
            };
            let mut bursts: Vec<u64> = (0..BURSTS).map(|_| burst()).collect();
            turn.store(OVER, SeqCst);
            other.unpark();
            bursts.sort_unstable();
            Some(bursts[BURSTS / 2])
        });
        timing.join().ok().flatten()
    })
}

/// Whose turn it is to wake the other.
const FIRST: u32 = 0;
const OTHER: u32 = 1;
const OVER: u32 = 2;

/// Parks until it is this thread's turn. False: there are no more.
fn sleep_until(turn: &AtomicU32, whose: u32) -> bool {
    loop {
        // Looked at first: what else waits in this thread may have taken the wake-up.
        match turn.load(SeqCst) {
            OVER => return false,
            its if its == whose => return true,
            _ => thread::park(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_costs_is_measured_here() {
        let costs = Costs::measure();
        assert!(costs.clock_ns.is_some_and(|ns| ns < 1_000_000), "{costs:?}");
        assert!(costs.wake_ns.is_some_and(|ns| ns > 0), "{costs:?}");
        assert_eq!(costs.call_ns.is_some(), cfg!(target_os = "linux"), "{costs:?}");
    }
}
