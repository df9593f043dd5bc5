//! What an experiment needs of the world: to run a row under a load, once.
//!
//! [`super::processes`] does it for real, with a server and a generator as processes of their own;
//! the tests of [`crate::udp::experiment`] simulate it.

use super::exchange::Echoed;
use super::plan::Load;
use super::results::Udp;
use crate::experiment::course::{self, RunError};
use crate::experiment::plan::Row;
use crate::wire::{FloodReport, ServerReport};

/// One run to be made.
#[derive(Debug, Clone, Copy)]
pub struct Run<'a> {
    /// The row.
    pub row: &'a Row,
    /// The load.
    pub load: &'a Load,
    /// How long, or how many.
    pub extent: Extent,
}

impl<'a> Run<'a> {
    /// One of the course.
    pub fn of(run: &course::Run<'a, Load>) -> Self {
        let extent = match run.load.burst() {
            Some((datagrams, _)) => Extent::Burst { datagrams },
            None => Extent::Timed { warmup_ms: run.warmup_ms, run_ms: run.run_ms },
        };
        Self { row: run.row, load: run.load, extent }
    }

    /// Datagrams per second to offer; `None` for as many as the generator can.
    pub fn per_second(&self) -> Option<u64> {
        self.load.offered_per_s()
    }
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
    /// After so many datagrams, sent at once.
    Burst {
        /// Datagrams to send.
        datagrams: u64,
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

/// Where runs are made.
pub trait Bench: course::Bench<Udp> {
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
    fn echo(&mut self, row: &Row, load: &Load) -> Result<Echoed, RunError>;

    /// Makes one run, of whatever extent.
    ///
    /// # Errors
    /// Any [`RunError`].
    fn run_once(&mut self, run: &Run) -> Result<Made, RunError>;
}
