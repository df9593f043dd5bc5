//! Why a connection ended, and why output was refused.

use crate::counters::stream::Counters;
use std::io;

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// Both sides had sent all that they would.
    #[error("both sides had finished sending")]
    Finished,
    /// The handler broke it off.
    #[error("the handler broke it off")]
    Aborted,
    /// It broke: what the system answered.
    #[error("it broke: {0}")]
    Failed(io::Error),
    /// The peer sent nothing for too long.
    #[error("nothing came from the peer for too long")]
    Silent,
    /// The peer took nothing of what was sent for too long, or left its direction open.
    #[error("the peer took no output for too long")]
    Stalled,
    /// The peer left more output lying than may be.
    #[error("the peer left too much output unread")]
    OutputFull,
    /// A filter broke it off, for the reason that it gives.
    #[error("a filter closed it: {0}")]
    Filter(String),
    /// A filter ended it in order, for the reason that it gives.
    #[error("a filter closed it: {0}")]
    Declined(String),
    /// The server stopped before it was over.
    #[error("the server stopped")]
    Stopped,
    /// The handler panicked with this text.
    #[error("the handler panicked: {0}")]
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

/// Why output was refused. The refusal is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// More would wait than [`Limits::output_bytes`](super::Limits::output_bytes) allows.
    #[error("the output waiting for the peer has reached its limit")]
    Full,
    /// There is nothing to echo: nothing was received in this call.
    #[error("there is nothing to echo: nothing was received")]
    NothingReceived,
    /// An echo goes before everything else that a call sends, and something was sent before it.
    #[error("an echo goes first, and something was sent before it")]
    TooLate,
    /// The server has said that it sends no more.
    #[error("this side of the connection is finished")]
    Finished,
    /// The connection of a [`Handle`](super::Handle) has gone.
    #[error("the connection has gone")]
    Gone,
}
