//! What the processes of runs say: the documents of `weir iops`, of the check, and of fio.

use serde::Deserialize;

use crate::iops::Decay;

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

/// A part of the time watched.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub struct Interval {
    /// From this moment, in ns of the time watched.
    pub from_ns: u64,
    /// To this one.
    pub to_ns: u64,
    /// I/Os completed in it.
    pub completed: u64,
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
}

/// I/Os of a whole run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct Counts {
    /// That completed.
    pub completed: u64,
    /// That did not.
    pub failed: u64,
    /// Of those that completed, the ones that brought nothing, though something was asked for.
    #[serde(default)]
    pub empty: u64,
}

/// What was seen in the time watched.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Window {
    /// I/Os completed per second.
    pub ios_per_s: f64,
    /// Bytes per second.
    pub bytes_per_s: f64,
    /// How the rate changes with time.
    pub decay: Option<Decay>,
    /// Entries into the kernel for each I/O.
    pub kernel_entries_per_io: Option<f64>,
    /// I/Os that a take brought.
    pub ios_per_take: Option<f64>,
    /// Completions handed to another thread, for each I/O.
    pub hand_overs_per_io: Option<f64>,
    /// CPU time for each I/O.
    pub cpu_ns_per_io: Option<f64>,
    /// The part of it in the kernel.
    pub cpu_system_ns_per_io: Option<f64>,
    /// CPU time in percent of one core's.
    pub cpu_utilization_percent: Option<f64>,
    /// Times a thread gave up its core, per second.
    pub voluntary_switches_per_s: Option<f64>,
    /// Times a thread lost its core, per second.
    pub involuntary_switches_per_s: Option<f64>,
    /// Cores' time that other programs used, in percent.
    pub load_of_others_percent: Option<f64>,
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
