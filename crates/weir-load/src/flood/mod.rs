//! A flood from its specification to its report.
//!
//! One thread for each generator, with its own flows, engine and pacer; nothing is shared
//! between them but the stop flag. The thread that calls [`flood`] talks to the server and
//! watches the counts.
//!
//! Every flood has an end in time, and goes to loopback unless a server consented to it.

mod answers;
mod describe;
mod generator;
mod ranks;
mod report;
mod run;
mod spec;
mod threads;
mod window;

use std::{io, net::SocketAddr};

use weir::Unavailable;

pub use ranks::{flood_of_ranks, share};
pub use report::{AnswersReport, EndedBy, Event, FloodFigures, FloodReport, LoadReport, Progress};
pub use run::{flood, flood_from, settings};
pub use spec::{FloodSpec, GENERATORS_MAX, INTERVAL_MIN, OUTSTANDING_MAX, Replies, random_run};
pub(crate) use threads::text_of;

use crate::control::ControlError;

/// Why a flood could not begin. What happens later stands in its report.
#[derive(Debug, thiserror::Error)]
pub enum FloodError {
    /// The specification makes no sense.
    #[error("{0}")]
    Spec(String),
    /// Nobody agreed to it.
    #[error(
        "{target} is not a loopback address, and a flood elsewhere needs the server's consent: start the server there with --control, and give the address of its control channel with --control"
    )]
    NoConsent {
        /// Where it should have gone.
        target: std::net::IpAddr,
    },
    /// The control channel.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The engine cannot be used here.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// A name that does not exist.
    #[error(transparent)]
    Name(#[from] weir::Error),
    /// No socket for a flow.
    #[error(
        "cannot open a flow to {target}: {source}; with many flows, look at the limit on open files (ulimit -n)"
    )]
    Lane {
        /// Where it should have gone.
        target: SocketAddr,
        /// What the operating system answered.
        source: io::Error,
    },
    /// A generator cannot run on its core.
    #[error(
        "cannot run a generator on core {core}: {source}; choose one that this process may use"
    )]
    Pin {
        /// The core asked for.
        core: usize,
        /// What the operating system answered.
        source: io::Error,
    },
    /// No thread for a generator.
    #[error("cannot start the thread of a generator: {0}")]
    Thread(io::Error),
    /// A generator panicked.
    #[error("a generator panicked: {0}")]
    Panicked(String),
    /// The ranks of the flood could not begin together.
    #[error("the ranks could not begin together: {0}")]
    Start(#[from] crate::ranks::Lost),
    /// Another rank failed, or is lost.
    #[error("{0}")]
    Ranks(String),
}

#[cfg(test)]
mod tests;
