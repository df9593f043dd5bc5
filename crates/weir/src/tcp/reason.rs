//! Why a connection ended.

use crate::counters::stream::Counters;
use std::{fmt, io};

/// Why a connection ended.
#[derive(Debug)]
pub enum Reason {
    /// Both sides had sent all that they would.
    Finished,
    /// The handler broke it off.
    Aborted,
    /// It broke: what the system answered.
    Failed(io::Error),
    /// The peer sent nothing for too long.
    Silent,
    /// The peer took nothing of what was sent for too long, or left its direction open.
    Stalled,
    /// The peer left more output lying than may be.
    OutputFull,
    /// A filter broke it off, for the reason that it gives.
    Filter(String),
    /// A filter ended it in order, for the reason that it gives.
    Declined(String),
    /// The server stopped before it was over.
    Stopped,
    /// The handler panicked with this text.
    Panicked(String),
}

impl Reason {
    pub(super) fn count(&self, counters: &Counters) {
        match self {
            Reason::Finished => &counters.closed_finished,
            Reason::Aborted => &counters.closed_aborted,
            Reason::Failed(_) => &counters.closed_failed,
            Reason::Silent => &counters.closed_silent,
            Reason::Stalled => &counters.closed_stalled,
            Reason::OutputFull => &counters.closed_output_full,
            Reason::Filter(_) | Reason::Declined(_) => &counters.closed_by_filter,
            Reason::Stopped => &counters.closed_stopped,
            Reason::Panicked(_) => &counters.closed_panicked,
        }
        .one();
    }

    /// Whether the other side is told by a reset, since what it would still be sent is lost.
    pub(super) fn is_abrupt(&self) -> bool {
        !matches!(self, Reason::Finished | Reason::Failed(_) | Reason::Declined(_))
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Finished => f.write_str("both sides had sent all they would"),
            Reason::Aborted => f.write_str("the handler broke it off"),
            Reason::Failed(e) => write!(f, "it broke: {e}"),
            Reason::Silent => f.write_str("nothing came from the peer for too long"),
            Reason::Stalled => f.write_str("the peer took no output for too long"),
            Reason::OutputFull => f.write_str("the peer left too much output unread"),
            Reason::Filter(why) | Reason::Declined(why) => write!(f, "a filter closed it: {why}"),
            Reason::Stopped => f.write_str("the server stopped"),
            Reason::Panicked(text) => write!(f, "the handler panicked: {text}"),
        }
    }
}
