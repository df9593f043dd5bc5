//! Timed waits on Windows, which end at the next tick of the clock.

use std::sync::OnceLock;
use windows_sys::Win32::Media::{TIMERR_NOERROR, timeBeginPeriod};

/// Whether a timed wait ends within microseconds of its time. Of Windows' waits only those for a high-resolution timer
/// do, and no provider here waits for one beside its sockets.
pub(crate) const FINE_TIMERS: bool = false;

/// The shortest tick that there is on every machine; the usual one is 15.6 ms.
const TICK_MS: u32 = 1;

/// Has the timed waits of the process end at a tick of a millisecond, for as long as it runs (timeBeginPeriod; since
/// Windows 10 version 2004 it concerns no other process). Says in words what came of it.
pub(crate) fn end_in_time() -> String {
    static ASKED: OnceLock<u32> = OnceLock::new();
    // SAFETY: takes no pointers.
    let result = *ASKED.get_or_init(|| unsafe { timeBeginPeriod(TICK_MS) });
    match result {
        TIMERR_NOERROR => format!("timers end at a tick of {TICK_MS} ms (timeBeginPeriod)"),
        error => {
            format!("timers end at the next tick of the clock: timeBeginPeriod: error {error}")
        }
    }
}
