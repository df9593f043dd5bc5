//! Counters of one thread of a server of streams.

use super::counters;

counters! {
    "Connections that one wait or take brought something for, where it brought anything.";
    /// Connections accepted.
    accepted,
    /// Connections refused, since there were as many as may be, or since a thread or descriptor for one
    /// was missing: the latter are among those accepted, and closed as broken.
    refused,
    /// Times accepting failed for want of descriptors or memory, and paused.
    accept_pauses,
    /// Connections that were lost before they could be accepted.
    accept_errors,
    /// Receives that brought bytes.
    messages,
    /// Bytes received.
    bytes_received,
    /// Calls that asked for bytes received and brought none.
    empty_receives,
    /// Bytes received behind the end of the handler's interest, and dropped.
    bytes_discarded,
    /// Sends that the system took at least a part of.
    sends,
    /// Those of which it took a part only.
    short_sends,
    /// Bytes that it took.
    bytes_sent,
    /// Bytes of output that were copied, to wait for room.
    bytes_queued,
    /// Times receiving from a connection paused since its output was full, or its handler asked for it.
    pauses,
    /// Connections that waited for their turn, since as many as may be were served.
    waited,
    /// Times the system's queue of readiness was full, and every connection was asked.
    queue_overflows,
    /// Output that a handler offered and that was refused, in calls.
    output_refused,
    /// Connections that ended in order.
    closed_finished,
    /// Connections that the handler broke off.
    closed_aborted,
    /// Connections that broke: a reset, a time-out of the system's own.
    closed_failed,
    /// Connections closed since nothing came from them for too long.
    closed_silent,
    /// Connections closed since they took no output for too long.
    closed_stalled,
    /// Connections closed since they left more output lying than may be.
    closed_output_full,
    /// Connections closed by a filter.
    closed_by_filter,
    /// Connections cut off by the end of the server.
    closed_stopped,
    /// Connections closed since their handler panicked.
    closed_panicked,
}

impl Snapshot {
    /// Connections that have ended, however.
    pub fn closed(&self) -> u64 {
        self.closed_finished
            + self.closed_aborted
            + self.closed_failed
            + self.closed_silent
            + self.closed_stalled
            + self.closed_output_full
            + self.closed_by_filter
            + self.closed_stopped
            + self.closed_panicked
    }
}
