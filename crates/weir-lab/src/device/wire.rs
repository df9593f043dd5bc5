//! What the processes of runs say: the documents of `weir iops`, of the check, and of fio.

use serde::Deserialize;

pub use crate::iops::{Counts, OverTime, Progress as Interval, Window};
use crate::performance::Record;

/// What `weir iops --json` says.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Document {
    /// `ok`, `invalid` or `failed`.
    pub status: String,
    /// Why, if it is not `ok`.
    pub reason: Option<String>,
    /// The settings in effect.
    #[serde(default)]
    pub settings: Vec<Setting>,
    /// The time watched, in parts.
    #[serde(default)]
    pub intervals: Vec<Interval>,
    /// What came of it.
    pub report: Option<Report>,
}

/// A setting in effect.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Setting {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// What came of a run.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Report {
    /// What was read.
    #[serde(default)]
    pub kind: String,
    /// I/Os of the whole run.
    pub counts: Counts,
    /// The time watched, if it came to that.
    pub window: Option<Window>,
    /// Latencies of the sample: pairs of ns and count.
    #[serde(default)]
    pub latency_histogram: Vec<(u64, u64)>,
    /// What taking them costs, in percent of an I/O's CPU time.
    pub sampling_percent: Option<f64>,
    /// The performance log of the time watched.
    #[serde(default)]
    pub performance: Vec<Record>,
    /// How its rate changed beside that of a control, where it took turns with one.
    #[serde(default)]
    pub over_time: Option<OverTime>,
}

/// What fio says (`--output-format=json`), as far as it is read.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct FioDocument {
    /// Its jobs; one here.
    pub jobs: Vec<FioJob>,
}

/// A job of fio's.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct FioJob {
    /// The error that ended it, as errno; 0 for none.
    pub error: i32,
    /// CPU time in user mode, in percent of its time.
    #[serde(default)]
    pub usr_cpu: f64,
    /// The same in the kernel.
    #[serde(default)]
    pub sys_cpu: f64,
    /// Context switches.
    #[serde(default)]
    pub ctx: u64,
    /// Its reads.
    pub read: FioReads,
}

/// Reads of a job of fio's, its ramp apart.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct FioReads {
    /// Bytes that came.
    pub io_bytes: u64,
    /// I/Os that completed.
    pub total_ios: u64,
    /// Milliseconds that took.
    pub runtime: u64,
}
