//! The performance log: what each thread of a server, each core and the system did in every interval of a run.
//!
//! It is what the study of UDP servers logged beside its runs with the system's own performance monitor (context switches
//! of each thread, CPU time and interrupts of each core, UDP's counts, memory), and what weir's threads count besides.
//! [`Recorder`] takes the readings, from outside of the server's threads, as everything in it is counted anyway;
//! [`Record`] is what lies between two of them. Each run of a document has its records, from which [`ndjson`], [`csv`](fn@csv)
//! and the pictures of the page are made.

mod export;
mod pictures;
mod recorder;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use export::{csv, csv_heading, csv_lines, has_any, line, ndjson};
pub(crate) use pictures::pictures;
pub use recorder::{Batches, Now, Recorder, ThreadNow};

/// From one reading to the next, unless another time is asked for: as the study had it.
pub const INTERVAL: Duration = Duration::from_secs(1);
/// The shortest and the longest time from one to the next. A reading takes some 0.1 ms of a core, and the system counts
/// what cores do in steps of 10 ms.
pub const INTERVALS: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(3600));
/// Most records of a run: when there would be more, two become one, and from then on each is twice as long.
pub const MOST_RECORDS: usize = 120;
/// Most threads that are told apart; those beyond are only in the sums.
pub const MOST_THREADS: usize = 64;
/// Most cores that are told of, the lowest numbers first.
pub const MOST_CORES: usize = 128;
/// A core that was busy for less than this share of an interval is not told of, only counted.
const IDLE: f64 = 0.01;

/// Figures by name. What this system does not tell is null.
pub type Figures = BTreeMap<String, Option<u64>>;
/// Counts by name; what was not counted is left out.
pub type Counts = BTreeMap<String, u64>;

/// What there was in one interval.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Record {
    /// When it began, in ns since the first reading.
    pub from_ns: u64,
    /// When it ended.
    pub to_ns: u64,
    /// What the server's threads counted in it, all together, by name: of UDP datagrams, dequeues, posts, notifies, waits,
    /// kernel_entries and others (weir::counters::Counters).
    pub counts: Counts,
    /// Datagrams (or connections, or I/Os) for each dequeue that brought any.
    pub mean_batch: Option<f64>,
    /// Thread by thread.
    pub threads: Vec<Thread>,
    /// Threads that are not told apart, as there were too many.
    #[serde(skip_serializing_if = "is_zero")]
    pub more_threads: u64,
    /// Core by core, those that did hardly anything left out; empty where this system does not tell.
    pub cores: Vec<Core>,
    /// Cores that were busy for less than a hundredth of it.
    pub idle_cores: u64,
    /// The server's process: CPU time, context switches and page faults in it, and its memory at the end.
    pub process: Figures,
    /// The machine: interrupts and context switches in it, and the kernel's memory at the end.
    pub system: Figures,
    /// The machine's UDP, all programs together.
    pub udp: Figures,
    /// The network receive path of all cores: packets processed, dropped as a queue was full, and times it stopped with
    /// work left.
    pub network: Figures,
    /// Settings that may be changed while the server runs, as they were at its end: times in microseconds, flags as 0 or 1.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: Counts,
    /// The server's sockets, where they can be told: datagrams dropped in it, and the bytes that waited at its end.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub sockets: Figures,
}

/// What a thread of the server did in an interval.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Thread {
    /// Its name.
    pub name: String,
    /// The system's number of it.
    pub id: u64,
    /// What the system counted of it: cpu_ns and the part of that in the kernel, voluntary_switches and
    /// involuntary_switches, migrations, and the core it last ran on.
    pub usage: Figures,
    /// What it counted itself, by name; empty where the study counts for all threads together.
    pub counts: Counts,
    /// Datagrams for each dequeue that brought any.
    pub mean_batch: Option<f64>,
}

/// What a core did in an interval, in percent of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Core {
    /// Its number.
    pub core: usize,
    /// Anything at all, its host's work in its place included.
    pub busy_percent: Option<f64>,
    /// User code.
    pub user_percent: Option<f64>,
    /// The kernel, interrupts apart.
    pub system_percent: Option<f64>,
    /// Hardware interrupts.
    pub irq_percent: Option<f64>,
    /// Software interrupts (DPCs): most of receiving from the network.
    pub softirq_percent: Option<f64>,
    /// Its host ran something else.
    pub steal_percent: Option<f64>,
    /// Hardware interrupts that it took.
    pub interrupts: Option<u64>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Record {
    /// How long it was, in seconds.
    pub fn seconds(&self) -> f64 {
        self.to_ns.saturating_sub(self.from_ns) as f64 / 1e9
    }
}
