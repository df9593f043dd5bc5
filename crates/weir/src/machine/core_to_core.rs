//! How long a cache line takes from one core to another.

use crate::affinity;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Release},
};
use std::thread;
use std::time::{Duration, Instant};

/// Nobody waits for the other any longer than this, whatever else the cores do.
const LIMIT: Duration = Duration::from_millis(5);
/// The median of so many bursts: one that was interrupted does not count.
const BURSTS: u64 = 9;
/// With fewer bursts done when the time is over, there is no answer.
const FEWEST_BURSTS: usize = 5;
/// Round trips in a burst: at 200 ns one way, all bursts take less than half of the limit.
const ROUND_TRIPS: u64 = 512;
/// The first round trips find the other thread not yet there, and are not counted.
const WARM_UP: u64 = 64;
/// How often a waiting thread looks at the other's figure before it looks at the clock.
const LOOKS_PER_CLOCK: u32 = 256;

/// The ball: alone in its cache line and the one fetched with it.
#[repr(align(128))]
struct Ball(AtomicU64);

/// The time that one core's store takes to be seen by another core, in ns: half a round trip
/// of one cache line between two threads pinned to the cores `a` and `b`; the median of
/// several bursts. Both threads work for 5 ms at most; on a busy machine they may have to wait
/// for their cores besides.
///
/// On a virtual machine this changes by itself, as the host moves its cores, and the figures
/// of any two threads that work together change with it: so it stands beside each sample.
///
/// `None` if the cores are one and the same, cannot be used by this process, or were too busy
/// to finish in time, or if no thread could be started.
pub fn core_to_core_ns(a: usize, b: usize) -> Option<f64> {
    if a == b {
        return None;
    }
    let ball = Ball(AtomicU64::new(0));
    let until = Instant::now() + LIMIT;
    let mut bursts = thread::scope(|scope| {
        // Two threads of their own, so that the caller keeps its cores.
        let answering = || {
            if affinity::pin_current_thread(b).is_ok() {
                answer(&ball, until);
            }
        };
        let serving = || {
            affinity::pin_current_thread(a).map_or_else(|_| Vec::new(), |()| serve(&ball, until))
        };
        thread::Builder::new().spawn_scoped(scope, answering).ok()?;
        thread::Builder::new().spawn_scoped(scope, serving).ok()?.join().ok()
    })?;
    if bursts.len() < FEWEST_BURSTS {
        return None;
    }
    bursts.sort_by(f64::total_cmp);
    Some(bursts[bursts.len() / 2])
}

/// Throws odd numbers and waits for the even one after each; the time of one way, in ns, in
/// each burst that was finished.
fn serve(ball: &Ball, until: Instant) -> Vec<f64> {
    let mut number = 0;
    let mut round_trip = || {
        ball.0.store(number + 1, Release);
        number += 2;
        seen(ball, number, until)
    };
    if !(0..WARM_UP).all(|_| round_trip()) {
        return Vec::new();
    }
    let mut bursts = Vec::with_capacity(BURSTS as usize);
    for _ in 0..BURSTS {
        let start = Instant::now();
        if !(0..ROUND_TRIPS).all(|_| round_trip()) {
            break;
        }
        bursts.push(start.elapsed().as_nanos() as f64 / (2 * ROUND_TRIPS) as f64);
    }
    bursts
}

/// Answers each odd number with the even one after it.
fn answer(ball: &Ball, until: Instant) {
    const LAST: u64 = 2 * (WARM_UP + BURSTS * ROUND_TRIPS);
    let mut number = 0;
    while number < LAST && seen(ball, number + 1, until) {
        number += 2;
        ball.0.store(number, Release);
    }
}

/// Waits until the ball shows `number`; false if the time is over first.
fn seen(ball: &Ball, number: u64, until: Instant) -> bool {
    loop {
        for _ in 0..LOOKS_PER_CLOCK {
            if ball.0.load(Acquire) == number {
                return true;
            }
            std::hint::spin_loop();
        }
        if Instant::now() >= until {
            return false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_cores_are_further_apart_than_nothing_and_nearer_than_the_limit() {
        let cores = affinity::allowed_cores();
        let [a, b, ..] = cores[..] else {
            assert_eq!(core_to_core_ns(cores[0], cores[0] + 1), None);
            return;
        };
        // A busy machine may not answer in time; it must answer once in a while.
        let answer = (0..1000).find_map(|_| core_to_core_ns(a, b)).expect("an answer");
        let most_ns = LIMIT.as_nanos() as f64 / (2 * ROUND_TRIPS) as f64;
        assert!(answer > 1.0 && answer < most_ns, "{answer} ns");
        assert_eq!(affinity::allowed_cores(), cores, "the caller keeps its cores");
    }

    #[test]
    fn no_answer_where_there_are_no_two_cores() {
        let core = affinity::allowed_cores()[0];
        assert_eq!(core_to_core_ns(core, core), None);
        assert_eq!(core_to_core_ns(core, usize::MAX), None);
        assert_eq!(core_to_core_ns(usize::MAX, core), None);
    }
}
