//! What a run of a comparison of designs that read a device is, what it delivers, and what a row is checked with.

use std::collections::BTreeMap;

use serde::Serialize;

use super::plan::Load;
use crate::experiment::course;
use crate::performance::Record;

/// One run to be made.
pub type Run<'a> = course::Run<'a, Load>;

/// What a run delivered. Unknown figures are `None`.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Made {
    /// The command that made it.
    pub command: String,
    /// I/Os completed per second.
    pub ios_per_s: f64,
    /// Bytes per second that came.
    pub bytes_per_s: f64,
    /// I/Os that completed, warm-up included.
    pub completed: u64,
    /// I/Os that failed, warm-up included.
    pub failed: u64,
    /// Its latencies as a histogram: pairs of ns and count; empty where none was taken.
    #[serde(skip)]
    pub latency_histogram: Vec<(u64, u64)>,
    /// What taking them costs, in percent of an I/O's CPU time.
    pub sampling_percent: Option<f64>,
    /// Entries into the kernel for each I/O.
    pub kernel_entries_per_io: Option<f64>,
    /// I/Os that a take brought.
    pub ios_per_take: Option<f64>,
    /// Completions handed to another thread, for each I/O.
    pub hand_overs_per_io: Option<f64>,
    /// CPU time of the process for each I/O, in ns.
    pub cpu_ns_per_io: Option<f64>,
    /// The part of it in the kernel.
    pub cpu_system_ns_per_io: Option<f64>,
    /// Cores' worth of time that the process used.
    pub cores_busy: Option<f64>,
    /// Context switches for each I/O.
    pub context_switches_per_io: Option<f64>,
    /// Of those, the ones by which it gave its core up, since it had to wait.
    #[serde(skip)]
    pub waits_per_io: Option<f64>,
    /// The rate of each part of the run, all equally long, and how long one is in seconds.
    #[serde(skip)]
    pub parts: (Vec<f64>, f64),
    /// Why nothing may be concluded from it, if so.
    pub invalid: Option<String>,
    /// Share (0 to 1) of all cores that other programs had meanwhile.
    #[serde(skip)]
    pub load_of_others: Option<f64>,
    /// Its performance log: what threads, cores and the system did in each interval of it; empty without one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub performance: Vec<Record>,
    /// The settings as obtained.
    pub settings: BTreeMap<String, String>,
}

/// What a row was checked with, and passed.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Checked {
    /// I/Os on a file of known content.
    pub ios: u64,
    /// Bytes of each, every one of which was compared.
    pub length_bytes: usize,
    /// Whether it reads nothing, whatever there is to be read: it shows what an I/O costs without one.
    #[serde(skip)]
    pub reads_nothing: bool,
    /// Cores' worth of time that it took with little to do, with 128 I/Os outstanding at most, if known.
    #[serde(skip)]
    pub idle_cores: Option<f64>,
}

/// Cores' worth of time from which a design with little to do counts as polling: one that waits takes a few
/// hundredths for a few hundred I/Os a second; one that polls all of one, or its share of one that is busy with
/// other things.
const POLLS: f64 = 0.4;

impl Checked {
    /// Whether it polls. `None` if that is not known.
    pub fn polls(&self) -> Option<bool> {
        Some(self.idle_cores? >= POLLS)
    }
}
