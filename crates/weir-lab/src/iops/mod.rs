//! Measuring one design that reads a device, or writes to one: what `weir iops` shows.
//!
//! The I/Os begin, warm up, and are then watched for a time: counters are read at the end of each
//! second, once and together with the clock, and every rate is a difference of two readings divided by the
//! time between them. What the original got wrong in this (one counter read several times for a line, a
//! first period without a beginning, time in whole seconds) cannot happen that way.

mod cost;
mod decay;
mod measure;
mod over_time;
mod target;
mod trend;
mod turns;

pub use cost::{PAIRS, sampling_cost};
pub use decay::{Decay, FEWEST as FEWEST_SECONDS, decay};
pub use measure::measure;
pub use over_time::measure_beside;
pub use target::{TIMER, open};
pub use trend::{FEWEST_TURNS, MARGIN_PERCENT, Trend, Verdict, trend};
pub use turns::{
    Ends, JudgedBy, LEAST_BESIDE, OverTime, Plan, Reading, Side, Turn, said, settles, take_turns,
};

use crate::{performance::Record, stats::Estimate};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::time::Duration;
use weir::{
    counters::device::Snapshot,
    device::{AnyDesign, Device, Reads},
};
use weir_load::latency::{Histogram, Summary};

/// One I/O in so many is timed, if nothing else is said.
pub const SAMPLE_EVERY: u32 = 128;

/// What is measured.
#[derive(Debug, Clone)]
pub struct Spec {
    /// How it is read.
    pub design: AnyDesign,
    /// What is read, or written to.
    pub device: Device,
    /// Bytes asked for by each I/O.
    pub length: usize,
    /// Ends it after so many I/Os, warm-up included.
    pub ios: Option<u64>,
    /// How long it is watched, at most.
    pub time: Duration,
    /// How long it reads before.
    pub warm_up: Duration,
    /// How often it is told how it goes; `None` for never.
    pub interval: Option<Duration>,
    /// One I/O in so many is timed; 0 for none.
    pub sample_every: u32,
    /// I/Os that may fail before it ends.
    pub errors_max: u64,
    /// The kernel counts the entries into it, which slows every system call of the machine down.
    pub count_entries: bool,
    /// How often what threads, cores and the system did is logged in the report; `None` for never.
    pub performance: Option<Duration>,
}

impl Spec {
    fn reads(&self) -> Reads {
        let reads = Reads::of(&self.device)
            .length(self.length)
            .sample_every(self.sample_every)
            .errors_max(self.errors_max);
        match self.ios {
            Some(ios) => reads.ios(ios),
            None => reads,
        }
    }
}

/// What is told while it goes on.
#[derive(Debug)]
pub enum Event<'a> {
    /// It has begun, with these settings in effect.
    Ready(&'a [(String, String)]),
    /// An interval is over.
    Interval(Progress),
}

/// What happened in an interval of the time watched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Progress {
    /// From this moment, in ns of the time watched.
    pub from_ns: u64,
    /// To this one.
    pub to_ns: u64,
    /// I/Os completed since watching began, at its end.
    pub total: u64,
    /// I/Os completed in it.
    pub completed: u64,
    /// I/Os that failed in it.
    pub failed: u64,
    /// Bytes that came in it.
    pub bytes: u64,
}

impl Progress {
    /// I/Os per second.
    pub fn per_s(&self) -> f64 {
        per_s(self.completed, self.to_ns.saturating_sub(self.from_ns))
    }
}

fn per_s(count: u64, ns: u64) -> f64 {
    if ns == 0 { 0.0 } else { count as f64 * 1e9 / ns as f64 }
}

/// Why it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EndedBy {
    /// The time was over.
    Time,
    /// All I/Os that were asked for are over.
    Ios,
    /// Somebody asked for it.
    Asked,
    /// It failed.
    Failure,
}

/// I/Os of a whole run, from its first to its last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counts {
    /// Given to the system.
    pub issued: u64,
    /// Completed, with whatever number of bytes.
    pub completed: u64,
    /// Not completed.
    pub failed: u64,
    /// Of those that failed: cancelled when the run ended.
    pub cancelled: u64,
    /// Completed with nothing, though something was asked for.
    pub empty: u64,
    /// Completed with less than was asked for.
    pub short: u64,
    /// Bytes that came.
    pub bytes: u64,
}

impl From<&Snapshot> for Counts {
    fn from(of: &Snapshot) -> Self {
        Self {
            issued: of.issued,
            completed: of.completed,
            failed: of.failed,
            cancelled: of.cancelled,
            empty: of.empty,
            short: of.short,
            bytes: of.bytes,
        }
    }
}

/// What was seen in the time watched.
///
/// Counters of threads at work cannot be read all at one moment: what is for each I/O may be off by what every
/// thread has under way (an I/O, or a batch) at either end. So it says nothing of a few I/Os, and little of fewer
/// than a hundred times as many.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Window {
    /// How long it was.
    pub elapsed_ns: u64,
    /// I/Os completed in it.
    pub completed: u64,
    /// I/Os completed per second.
    pub ios_per_s: f64,
    /// Bytes per second.
    pub bytes_per_s: f64,
    /// The rate of each second of it, or of the whole where it was shorter.
    pub seconds: Vec<f64>,
    /// The median second, with its 95 % interval.
    #[serde(serialize_with = "estimate", skip_deserializing)]
    pub second: Option<Estimate>,
    /// Where it led: how the rate changes with time.
    pub decay: Option<Decay>,
    /// Entries into the kernel for each I/O issued. Parking and waking of threads are among them only where the
    /// kernel counted them ([`Report::kernel_entries_source`]).
    pub kernel_entries_per_io: Option<f64>,
    /// I/Os issued by each entry.
    pub ios_per_entry: Option<f64>,
    /// I/Os that a take brought, where it brought any; `None` where nothing is taken.
    pub ios_per_take: Option<f64>,
    /// Completions handed to another thread, for each I/O.
    pub hand_overs_per_io: Option<f64>,
    /// CPU time of the process (threads that the kernel lends it included) for each I/O.
    pub cpu_ns_per_io: Option<f64>,
    /// The part of it in the kernel; found by sampling at the timer's ticks.
    pub cpu_system_ns_per_io: Option<f64>,
    /// CPU time of the process in percent of one core's.
    pub cpu_utilization_percent: Option<f64>,
    /// Times a thread gave up its core, per second.
    pub voluntary_switches_per_s: Option<f64>,
    /// Times a thread lost its core, per second.
    pub involuntary_switches_per_s: Option<f64>,
    /// Cores' time that other programs used, in percent.
    pub load_of_others_percent: Option<f64>,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The design.
    pub design: String,
    /// What it ran on.
    pub provider: String,
    /// What the entries into the kernel were counted by ([`weir::counters::ENTRIES_SOURCE`]).
    pub kernel_entries_source: String,
    /// What was read, or written to.
    pub device: String,
    /// What that is.
    pub kind: String,
    /// What each I/O did: `reads` or `writes`.
    pub direction: String,
    /// Bytes asked for by each I/O.
    pub length_bytes: usize,
    /// The whole run, from the first I/O to the last.
    pub counts: Counts,
    /// Errors by what they say.
    pub errors: Vec<(String, u64)>,
    /// The machine, its properties by name with units in the names; unknown ones are null.
    pub machine: Map<String, Value>,
    /// The time watched; `None` where it ended before.
    pub window: Option<Window>,
    /// Latency of the sample, warm-up included.
    pub latency_ns: Option<Summary>,
    /// The same as a histogram, to be merged with those of other runs.
    pub latency_histogram: Histogram,
    /// One I/O in so many was timed.
    pub sample_every: u32,
    /// What reading the clock for that costs, in percent of an I/O's CPU time; `None` where none was timed.
    pub sampling_percent: Option<f64>,
    /// The performance log of the time watched; empty where none was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub performance: Vec<Record>,
    /// What makes the figures doubtful.
    pub warnings: Vec<String>,
    /// Why it ended.
    pub ended_by: EndedBy,
    /// What went wrong, if something did.
    pub failure: Option<String>,
    /// How its rate changed beside that of a control, where it took turns with one.
    pub over_time: Option<OverTime>,
}

impl Report {
    /// Why nothing may be concluded from a run that did not fail, if so.
    pub fn invalid(&self) -> Option<String> {
        let counts = &self.counts;
        if counts.issued != counts.completed + counts.failed {
            return Some(format!(
                "{} I/Os were issued, and {} came back: an error in weir",
                counts.issued,
                counts.completed + counts.failed
            ));
        }
        let errors = counts.failed.saturating_sub(counts.cancelled);
        (errors > 0).then(|| format!("{errors} I/Os failed"))
    }
}

fn estimate<S: serde::Serializer>(
    estimate: &Option<Estimate>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let value = estimate.map(|estimate| {
        serde_json::json!({
            "median": estimate.median,
            "low": estimate.interval.map(|interval| interval.low),
            "high": estimate.interval.map(|interval| interval.high),
            "samples": estimate.samples,
        })
    });
    value.serialize(serializer)
}
