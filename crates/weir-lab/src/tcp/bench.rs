//! What a comparison of TCP needs of the world: to run a row under a load, once.
//!
//! [`super::processes`] does it for real, with a server and a client as processes of their own; the tests
//! of [`super::experiment`] simulate it.

use serde::Serialize;

use super::plan::Load;
use super::wire::{LoadReport, ServerReport};
use crate::bench::RunError;
use crate::plan::Row;

/// One run to be made.
#[derive(Debug, Clone, Copy)]
pub struct Run<'a> {
    /// The row.
    pub row: &'a Row,
    /// The load.
    pub load: Load,
    /// Milliseconds that nothing counts, after all connections stand.
    pub warmup_ms: u64,
    /// Milliseconds that are measured.
    pub run_ms: u64,
}

/// What a run delivered.
#[derive(Debug, Clone, PartialEq)]
pub struct Made {
    /// The server's report.
    pub server: ServerReport,
    /// The client's.
    pub load: LoadReport,
    /// Why nothing may be concluded from it, if so: bytes were wrong or lost, or the client's own counts
    /// are wrong.
    pub invalid: Option<String>,
    /// Share (0 to 1) of all cores that other programs had meanwhile, if known.
    pub load_of_others: Option<f64>,
}

/// What a row was checked with, and passed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Checked {
    /// Connections.
    pub connections: u64,
    /// Messages sent and answered, byte for byte.
    pub messages: u64,
    /// Bytes of a message, at least and at most.
    pub message_bytes: (u32, u32),
    /// Cores' worth of time that the server took in a ping-pong on one connection, where it waits half
    /// of the time if it can wait; if known.
    #[serde(skip)]
    pub cores_busy: Option<f64>,
}

/// Where runs are made.
pub trait Bench {
    /// Seconds since the experiment began.
    fn elapsed_s(&self) -> f64;

    /// Nanoseconds of a cache line's way between the server's core and the client's, now.
    fn core_to_core_ns(&mut self) -> Option<f64>;

    /// Looks whether a row answers messages of random sizes on several connections, byte for byte, and
    /// ends each connection in order; and how busy it is with little to do.
    ///
    /// # Errors
    /// Any [`RunError`]; [`RunError::Failed`] says what was wrong.
    fn check(&mut self, row: &Row) -> Result<Checked, RunError>;

    /// Makes one run.
    ///
    /// # Errors
    /// Any [`RunError`].
    fn run(&mut self, run: &Run) -> Result<Made, RunError>;
}
