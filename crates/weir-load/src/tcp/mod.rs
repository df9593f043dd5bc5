//! A load of TCP connections on a server, usually one that echoes.
//!
//! Connections come in blocks, as in the client that this re-creates ([`LoadSpec`]): each block of so
//! many is added some time after the one before. On each connection messages are sent, with a number of
//! them under way at most: one after another as answers come (a closed loop; with one under way it
//! is ping-pong), or at times that are fixed beforehand (an open loop, [`Pace`]). The latency of a
//! message runs from when it was to be sent to when its last byte has come back. In an open loop
//! that is when it was due: a server that stops answering gets no mercy by not being asked.
//!
//! Every byte that comes back is compared with the one that was sent there ([`pattern`]). A connection
//! costs about 100 bytes and no buffer, since what is to be sent follows from its offset. Instead of the
//! pattern a file can be sent, each time as one message ([`LoadSpec::file`]).
//!
//! Connections may also behave badly ([`Conduct`]): say nothing at all, or send and read nothing.
//!
//! Several messages that may be sent at the same moment go out in one call, as a pipelining client's do.
//!
//! Every load has an end in time, and goes to loopback, or to a host that takes part in the run: there is no consent to be
//! asked for yet.

mod connection;
mod content;
mod counts;
mod engine;
mod moves;
mod part;
pub mod pattern;
mod ranks;
pub mod refusal;
mod report;
mod run;
mod schedule;
mod sources;
mod spans;
mod spec;
mod system;
mod worker;

#[cfg(any(test, fuzzing))]
pub use connection::model;
pub use content::{FileBy, Sizes, Wrong, bytes_of_file};
pub use counts::{Causes, Counts};
pub use engine::{Engine, EngineUsed};
pub use part::{EndedBy, Holds, Part, Window};
pub use ranks::{load_of_ranks, why_not_agreed};
pub use report::{LoadFigures, LoadReport, Progress, assemble};
pub use run::{Event, load, load_part, settings};
pub use spec::{
    CONNECTIONS_MAX, Conduct, LoadSpec, MESSAGE_BYTES_MAX, PROCESSES_MAX, Pace, SOURCES_MAX, Share,
    SourceRange, THREADS_MAX, Times, UNDER_WAY_MAX,
};

use std::{io, net::IpAddr, path::PathBuf};
use weir::Unavailable;

/// Why a load could not begin, or came to no report.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The specification makes no sense.
    #[error("{0}")]
    Spec(String),
    /// Nobody agreed to it.
    #[error(
        "{target} is not a loopback address, and connections are loaded on loopback only, unless the server agrees (start \
         it with --control, and give the address of its control channel with --control), or a rank of the same run is on its \
         host (start one there, with mpirun, and name it with --mpi-server)"
    )]
    NotLoopback {
        /// Where it should have gone.
        target: IpAddr,
    },
    /// The file to be sent cannot be.
    #[error("cannot send {}: {problem}", path.display())]
    File {
        /// Where it is.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// There is no engine here.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// A thread has nothing to wait with.
    #[error("cannot wait for connections: {0}; look at the limit on open files (ulimit -n)")]
    Wait(io::Error),
    /// A thread cannot run on its core.
    #[error("cannot run a thread on core {core}: {source}; choose one that this process may use")]
    Pin {
        /// The core asked for.
        core: usize,
        /// What the operating system answered.
        source: io::Error,
    },
    /// It cannot give way to other programs.
    #[error("cannot take the lowest priority (--gives-way): {0}")]
    Priority(io::Error),
    /// No thread.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// The ranks of the load could not begin together.
    #[error("the ranks could not begin together: {0}")]
    Start(#[from] crate::ranks::Lost),
    /// Another rank failed, or is lost.
    #[error("{0}")]
    Ranks(String),
    /// A thread panicked: an error in weir.
    #[error("a thread of the load panicked, which is an error in weir: {0}")]
    Panicked(String),
}

/// So many connections are better shared by several processes, each waiting for its own; none where their number costs
/// a wait nothing.
pub const CONNECTIONS_OF_PROCESS: Option<u64> = system::CONNECTIONS_OF_PROCESS;

/// How many descriptors this process may have, after asking for as many as it may ask for: each
/// connection takes one. None where there is no such limit, or it cannot be known.
pub fn descriptors() -> Option<u64> {
    system::descriptors()
}
