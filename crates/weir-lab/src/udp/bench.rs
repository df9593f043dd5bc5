//! What an experiment needs of the world: to run a row under a load, once.
//!
//! [`super::processes`] does it for real, with a server and a generator as processes of their own;
//! the tests of [`crate::udp::experiment`] simulate it.

use serde::Serialize;
use weir::counters::os::KernelEntries;

use crate::experiment::plan::Row;
use crate::udp::plan::Load;
use crate::wire::{FloodReport, ServerReport};

/// One run to be made.
#[derive(Debug, Clone, Copy)]
pub struct Run<'a> {
    /// The row.
    pub row: &'a Row,
    /// The load.
    pub load: &'a Load,
    /// Datagrams per second to offer; `None` for as many as the generator can.
    pub per_second: Option<u64>,
    /// How long, or how many.
    pub extent: Extent,
}

/// When a run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// After a time, both in milliseconds; the warm-up comes first.
    Timed {
        /// Not counted.
        warmup_ms: u64,
        /// Measured.
        run_ms: u64,
    },
    /// After so many datagrams, each of which is verified byte by byte.
    Checked {
        /// Datagrams to send.
        datagrams: u64,
        /// Flows to send them from.
        flows: u16,
    },
}

/// What a run delivered.
#[derive(Debug, Clone, PartialEq)]
pub struct Made {
    /// The server's report.
    pub server: ServerReport,
    /// The generator's.
    pub flood: FloodReport,
    /// Share (0 to 1) of all cores that other programs had meanwhile, if known.
    pub load_of_others: Option<f64>,
}

/// Why a run delivered nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// This machine cannot run the row.
    #[error("{0}")]
    Unavailable(String),
    /// The time for all was over before it was through: that is no fault of the row.
    #[error("the time for all was over: {0}")]
    TimeIsUp(String),
    /// Something came between that may be none of the row's.
    #[error("{0}")]
    Disturbed(String),
    /// It failed this time.
    #[error("{0}")]
    Failed(String),
    /// The user wants to stop.
    #[error("interrupted")]
    Interrupted,
}

/// Whether the kernel counts entries, where it is to: what this process may, its children may, too.
pub(crate) fn can_count_entries(on: bool) -> bool {
    on && KernelEntries::begin().is_ok()
}

/// The words by which a server of weir's has the kernel count its entries.
pub(crate) fn count_entries(on: bool) -> impl Iterator<Item = &'static str> {
    on.then_some("--count-entries").into_iter()
}

/// What a row was checked with, and passed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Checked {
    /// Datagrams sent and answered, each to its own sender.
    pub datagrams: u64,
    /// Sockets that sent them, for each family of addresses.
    pub senders: usize,
    /// Their sizes in bytes.
    pub sizes_bytes: Vec<usize>,
    /// Whether over IPv6 too: false where this machine has none.
    pub ipv6: bool,
}

impl RunError {
    /// The same of what may only have failed since the time for all was over.
    pub(crate) fn or_time_is_up(self, time_is_up: bool) -> Self {
        match self {
            Self::Failed(reason) if time_is_up => Self::TimeIsUp(reason),
            other => other,
        }
    }
}

/// Where runs are made.
pub trait Bench {
    /// Seconds since the experiment began.
    fn elapsed_s(&self) -> f64;

    /// Lets nothing go on for longer than so many seconds after the experiment began.
    fn end_within(&mut self, _seconds: f64) {}

    /// Nanoseconds of a cache line's way between the server's core and the generator's, now.
    fn core_to_core_ns(&mut self) -> Option<f64>;

    /// Datagrams per second that the generator sends with this load into a socket that
    /// nobody reads.
    ///
    /// # Errors
    /// [`RunError::Failed`], [`RunError::Interrupted`].
    fn calibrate(&mut self, load: &Load) -> Result<f64, RunError>;

    /// Has the row echo datagrams of all sizes up to its slices' from several senders, over IPv4
    /// and IPv6, and looks whether each comes back whole, once, and to its own sender.
    ///
    /// # Errors
    /// Any [`RunError`]; [`RunError::Failed`] says what was wrong.
    fn check(&mut self, row: &Row, load: &Load) -> Result<Checked, RunError>;

    /// Has the kernel count the entries of weir's own servers in the runs from now on, or no longer; gives whether it
    /// can. That slows every system call down, so such a run is good for nothing else.
    fn count_entries(&mut self, _on: bool) -> bool {
        false
    }

    /// Makes one run.
    ///
    /// # Errors
    /// Any [`RunError`].
    fn run(&mut self, run: &Run) -> Result<Made, RunError>;
}
