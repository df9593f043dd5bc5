//! Timed waits on Linux, which end late by the thread's slack.

use nix::sys::prctl;

/// Whether a timed wait ends within microseconds of its time.
pub(crate) const FINE_TIMERS: bool = true;

/// The kernel lets timers of a thread go off together within this time, 50 µs unless it is told (timerslack_ns of
/// proc_pid_timerslack_ns(5)). 0 would stand for that default.
const SLACK_NS: u64 = 1;

/// Has the calling thread's timed waits end in time, whatever call they are made by (PR_SET_TIMERSLACK, Linux 2.6.28).
/// Says in words what came of it.
pub(crate) fn end_in_time() -> String {
    match prctl::set_timerslack(SLACK_NS) {
        Ok(()) => format!("timer slack {SLACK_NS} ns"),
        Err(e) => format!("timers end up to 50 µs late: PR_SET_TIMERSLACK: {e}"),
    }
}
