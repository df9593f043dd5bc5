//! Counters of one thread that reads a device.

use super::counters;

counters! {
    "I/Os that one take brought, where it brought any.";
    /// I/Os given to the system: each comes back, and is then completed or failed.
    issued,
    /// I/Os that the system completed, with whatever number of bytes.
    completed,
    /// I/Os that it did not complete.
    failed,
    /// Those of them that were cancelled, since the run ended.
    cancelled,
    /// Completed I/Os that brought nothing, though something was asked for.
    empty,
    /// Completed I/Os that brought less than was asked for, but something.
    short,
    /// Bytes that came.
    bytes,
    /// I/Os whose latency was taken.
    sampled,
    /// Completions handed to another thread.
    hand_overs,
}

impl Snapshot {
    /// Whether every I/O that was issued has come back, and is counted once. True of a run that is
    /// over.
    pub fn balances(&self) -> bool {
        self.issued == self.completed + self.failed
    }

    /// I/Os that failed by themselves.
    pub fn errors(&self) -> u64 {
        self.failed.saturating_sub(self.cancelled)
    }
}
