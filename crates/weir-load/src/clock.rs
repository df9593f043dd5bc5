//! The clock that all times of a run are taken from.

use crate::sys;

/// Nanoseconds of the machine's monotonic clock (CLOCK_MONOTONIC, QueryPerformanceCounter).
///
/// The same clock for all processes of one machine, so the time stamped by a generator and
/// the time at which a server on the same machine received can be subtracted. Between two
/// machines they have nothing in common.
#[inline]
pub fn now_ns() -> u64 {
    sys::monotonic_ns()
}

/// CPU time that the current thread has used so far, in nanoseconds, user and kernel
/// together. `None` where the system does not tell.
pub fn thread_cpu_ns() -> Option<u64> {
    sys::thread_cpu_ns()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_does_not_go_back() {
        let mut last = now_ns();
        for _ in 0..10_000 {
            let now = now_ns();
            assert!(now >= last);
            last = now;
        }
    }

    #[test]
    fn cpu_time_grows_with_work_and_stays_below_wall_time() {
        let (wall, Some(cpu)) = (now_ns(), thread_cpu_ns()) else { return };
        let used = || thread_cpu_ns().expect("it told the first time") - cpu;
        while used() == 0 {
            assert!(now_ns() < wall + 60_000_000_000, "a minute of work took no time");
        }
        let (used, passed) = (used(), now_ns() - wall);
        // Where it goes in ticks it may be one ahead (Windows: 15.6 ms).
        assert!(used <= passed + 16_000_000, "{used} ns of CPU in {passed} ns");
    }
}
