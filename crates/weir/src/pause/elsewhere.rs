//! Timed waits where they end at the next tick of the clock.

/// Whether a timed wait ends within microseconds of its time. Of Windows' waits only those for a high-resolution timer
/// do, and no provider here waits for one beside its sockets.
pub(crate) const FINE_TIMERS: bool = false;

/// Has the calling thread's timed waits end in time, as far as the system can. Says in words what came of it.
pub(crate) fn end_in_time() -> String {
    "timers end at the next tick of the clock".into()
}
