//! What the laboratory and its two children say to each other about TCP: JSON documents, one a line.
//!
//! `weir serve tcp --json` prints a [`ReadyLine`](crate::wire::ReadyLine), and a [`ServerReport`] at its
//! end. While it runs, lines of its standard input tell it when to look at itself: [`STANDING`] when all
//! connections stand and the warm-up is over, [`MARK`] when messages begin to be measured and when that ends. What it counted
//! between the two marks is its [`Window`].
//!
//! `weir load tcp --json --tell-phases` prints a [`PhaseLine`] at those moments and a [`LoadDocument`] at
//! its end. Unknown fields are ignored and missing ones are unknown.

use std::collections::BTreeMap;

use crate::performance::Record;
use serde::{Deserialize, Serialize};
use weir::counters::os::{KernelMemory, Sampler};
use weir_load::tcp::{Counts, EngineUsed, Holds, Window as LoadWindow, Wrong};

/// Asks a server what it holds, now that all connections stand.
pub const STANDING: &str = "standing";
/// Asks a server what the kernel has in the buffers of its connections, too.
pub const BUFFERS: &str = "buffers";
/// Asks a server to read its counters.
pub const MARK: &str = "mark";

/// The report of a server, or of what stands for a program of another library.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerReport {
    /// The design's name, or the program's command.
    pub design: String,
    /// The settings obtained, by name.
    pub settings: BTreeMap<String, String>,
    /// What it counted over its whole life; empty for a program that tells nothing.
    pub counters: BTreeMap<String, u64>,
    /// The most connections that were seen open at a time, if known.
    pub most_open: Option<u64>,
    /// The most threads at a time, if known.
    pub most_threads: Option<u64>,
    /// CPU time of the process over its whole life in ns, if known.
    pub cpu_ns: Option<u64>,
    /// Why its CPU time is not known, where that has a reason of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
    /// The same of its context switches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub switches_unknown: Option<String>,
    /// The most memory that the process had, in bytes, if known.
    pub resident_bytes: Option<u64>,
    /// What it counted between two marks.
    pub window: Option<Window>,
    /// What it held when all connections stood.
    pub standing: Option<Standing>,
    /// Its performance log between two marks; empty without one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub performance: Vec<Record>,
}

/// What a server counted between two marks.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Window {
    /// From one to the other, in ns.
    pub elapsed_ns: u64,
    /// When the second one was, in ns of [`weir_load::clock::now_ns`]; 0 if that is not known.
    pub ended_ns: u64,
    /// Connections that it had accepted by the second mark, since it was started, if known: what waits
    /// in the system to be accepted is made for its client, and served by nobody.
    pub accepted: Option<u64>,
    /// CPU time of the process in ns, if known.
    pub cpu_ns: Option<u64>,
    /// Context switches of the process, if known.
    pub context_switches: Option<u64>,
    /// Those of them with which a thread gave up its core by itself, if known.
    pub voluntary_switches: Option<u64>,
    /// What it counted of connections and bytes, by name; empty for a program that tells nothing.
    pub counters: BTreeMap<String, u64>,
    /// What its calls counted, by name; likewise.
    pub calls: BTreeMap<String, u64>,
}

/// What a server held when all connections stood.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Standing {
    /// Connections that were open, if known.
    pub open: Option<u64>,
    /// Threads that ran, if known: of a design its own, of another program all.
    pub threads: Option<u64>,
    /// Memory of the process, in bytes, if known.
    pub resident_bytes: Option<u64>,
    /// Sockets of its connections, as far as this was asked for and is known.
    pub sockets: Option<u64>,
    /// What the kernel has in their buffers, in bytes, likewise.
    pub socket_bytes: Option<u64>,
    /// How much more the kernel held than before the server was started, in bytes: for both ends of the
    /// connections, and for whatever else began on this machine meanwhile.
    pub kernel_bytes: Option<i64>,
    /// The parts of that by name; what is not known here is null.
    pub kernel: BTreeMap<String, Option<i64>>,
}

/// What the kernel holds at a moment: objects, stacks, rings, and what waits in TCP sockets.
#[derive(Debug, Clone, Copy)]
pub struct KernelHeld {
    memory: KernelMemory,
    tcp_bytes: Option<u64>,
}

impl KernelHeld {
    /// Now. It takes about 1 ms.
    pub fn now(sampler: &mut Sampler) -> Self {
        let tcp_bytes = sampler.system().total.tcp_memory_bytes;
        Self { memory: KernelMemory::now(), tcp_bytes }
    }

    /// How much more it is than `earlier` was, in parts and in all.
    pub fn grown_since(&self, earlier: &Self) -> (BTreeMap<String, Option<i64>>, i64) {
        let (each, sum) = self.memory.grown_since(&earlier.memory);
        let mut all: BTreeMap<_, _> =
            each.into_iter().map(|(name, grown)| (name.to_owned(), grown)).collect();
        let waits =
            self.tcp_bytes.zip(earlier.tcp_bytes).map(|(now, then)| now as i64 - then as i64);
        all.insert("tcp_bytes".into(), waits);
        (all, sum + waits.unwrap_or(0))
    }
}

/// A moment of a load.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct PhaseLine {
    /// `settled`, `began` or `ended`.
    pub phase: String,
    /// When that was, of `ended`, in ns of [`weir_load::clock::now_ns`].
    pub at_ns: Option<u64>,
}

/// The document of a load.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct LoadDocument {
    /// `ok`, `invalid` (bytes were wrong or lost, or its own counts are) or `failed`.
    pub status: String,
    /// Why it is not `ok`.
    pub reason: Option<String>,
    /// What it did; `None` if it did not begin.
    pub report: Option<LoadReport>,
}

/// What a load did, as far as a comparison wants to know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoadReport {
    /// What happened to connections and messages.
    #[serde(flatten)]
    pub counts: Counts,
    /// Connections that were asked for and not begun.
    #[serde(default)]
    pub not_attempted: u64,
    /// Processes.
    #[serde(default)]
    pub processes: u32,
    /// What moved the bytes.
    #[serde(default)]
    pub engine: Option<EngineUsed>,
    /// Connections made per second, of all that were made.
    #[serde(default)]
    pub connects_per_s: Option<f64>,
    /// Messages that did not come back.
    #[serde(default)]
    pub messages_unanswered: u64,
    /// What was measured.
    #[serde(default)]
    pub window: Option<LoadWindow>,
    /// Round trips in ns: pairs of a latency and how many had it.
    #[serde(default)]
    pub latency_histogram: Vec<(u64, u64)>,
    /// What went wrong, and how often.
    #[serde(default)]
    pub errors: BTreeMap<String, u64>,
    /// What a server of weir said when it refused connections, and how often.
    #[serde(default)]
    pub refusals: BTreeMap<String, u64>,
    /// The first byte found wrong.
    #[serde(default)]
    pub wrong_bytes: Option<Wrong>,
    /// CPU time of all its processes over their whole lives in ns, if known.
    #[serde(default)]
    pub process_cpu_ns: Option<u64>,
    /// The most memory that its processes had, in bytes, if known.
    #[serde(default)]
    pub peak_resident_bytes: Option<u64>,
    /// From the beginning to the end of the last connection, in ns.
    #[serde(default)]
    pub elapsed_ns: u64,
    /// What its end held, where it was asked to look.
    #[serde(default)]
    pub holds: Option<Holds>,
}

impl LoadReport {
    /// The cause that most connections failed for, if one is known: what the system or the server said,
    /// and else how they ended.
    pub fn worst_cause(&self) -> Option<String> {
        let said = self.errors.iter().chain(&self.refusals);
        let said = said.max_by_key(|(_, count)| **count).map(|(cause, _)| cause.clone());
        let c = &self.counts;
        let ends = [
            (c.refused, "nobody listened"),
            (c.timed_out, "connecting took too long"),
            (c.unfinished, "there was no time left to connect"),
            (self.not_attempted, "they were not begun in time"),
            (c.reset, "the server reset them"),
            (c.ended_by_server, "the server ended them"),
            (c.truncated, "the server ended them while answers were due"),
            (c.unanswered, "an answer took too long"),
            (c.cut_off, "answers were still due at the end"),
        ];
        let end = ends.into_iter().max_by_key(|(count, _)| *count).filter(|(count, _)| *count > 0);
        said.or_else(|| end.map(|(_, how)| how.to_owned()))
    }

    /// One that did nothing.
    #[cfg(test)]
    pub(crate) fn none() -> Self {
        let counts = serde_json::to_value(Counts::default()).expect("counts are numbers");
        serde_json::from_value(counts).expect("all else has a default")
    }

    /// Connections that were made and ended otherwise than in order.
    pub fn lost(&self) -> u64 {
        let c = &self.counts;
        c.refused_by_server
            + c.reset
            + c.broken
            + c.ended_by_server
            + c.truncated
            + c.wrong
            + c.unanswered
            + c.cut_off
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_of_other_builds_are_read_as_far_as_they_go() {
        let report: ServerReport = serde_json::from_str(r#"{"design":"x","more":1}"#).unwrap();
        assert_eq!((report.design.as_str(), report.window), ("x", None));
        let failed: LoadDocument =
            serde_json::from_str(r#"{"status":"failed","reason":"no","report":null}"#).unwrap();
        assert_eq!((failed.reason.as_deref(), failed.report), (Some("no"), None));
        let phase: PhaseLine = serde_json::from_str(r#"{"phase":"began"}"#).unwrap();
        assert_eq!(phase.phase, "began");
    }

    #[test]
    fn the_cause_is_what_was_said_and_else_how_it_ended() {
        let mut report = LoadReport::none();
        assert_eq!(report.worst_cause(), None);
        report.counts.cut_off = 11;
        report.counts.reset = 2;
        assert_eq!(report.worst_cause().unwrap(), "answers were still due at the end");
        assert_eq!(report.lost(), 13);
        report.refusals = [("no descriptor".to_owned(), 1)].into();
        assert_eq!(report.worst_cause().unwrap(), "no descriptor");
    }

    #[test]
    fn the_parts_of_what_the_kernel_holds_add_up() {
        let mut sampler = Sampler::new();
        let (first, second) = (KernelHeld::now(&mut sampler), KernelHeld::now(&mut sampler));
        let (parts, all) = second.grown_since(&first);
        assert_eq!(parts.values().flatten().sum::<i64>(), all);
        assert!(parts.contains_key("tcp_bytes"));
    }
}
