//! What the laboratory and its two children say to each other: JSON documents, one a line.
//!
//! `weir serve udp --json` prints a [`Ready`] line, and a [`ServerReport`] at its end;
//! `weir flood --json` prints one [`FloodReport`]. A child that fails prints a [`Failure`]
//! instead. Unknown fields are ignored and missing ones are unknown, so that a document
//! written by hand or by another build is still read as far as it goes.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use weir_load::latency::Summary;
use weir_load::proof::Checked;

use crate::performance::Record;

/// Version of the documents of a server. 2: the percentile 99.9 of a latency is `p99_9`, where it was `p999`.
pub const SCHEMA_VERSION: u32 = 2;

/// First line of a server: it listens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadyLine {
    /// Version of the document.
    #[serde(default)]
    pub schema_version: u32,
    /// Where and how.
    pub ready: Ready,
}

impl ReadyLine {
    /// The line of a server that listens there.
    pub fn new(ready: Ready) -> Self {
        Self { schema_version: SCHEMA_VERSION, ready }
    }
}

/// Where a server listens and with which settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// Its addresses; empty only where it listens on Unix sockets alone.
    pub addresses: Vec<SocketAddr>,
    /// The Unix sockets that it listens on: `unix:` and a path, or `@` and a name of the abstract namespace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unix: Vec<String>,
    /// Its control channel, if it has one.
    #[serde(default)]
    pub control: Option<SocketAddr>,
    /// The settings obtained, by name.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
}

/// The line of a child that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureLine {
    /// What happened.
    pub error: Failure,
}

/// Why a child failed: an object, or the message alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "FailureText")]
pub struct Failure {
    /// True if this machine cannot run what was asked for, whoever asks.
    pub unavailable: bool,
    /// What to tell the user.
    pub message: String,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum FailureText {
    Message(String),
    Detailed {
        #[serde(default)]
        unavailable: bool,
        message: String,
    },
}

impl From<FailureText> for Failure {
    fn from(text: FailureText) -> Self {
        match text {
            FailureText::Message(message) => Self { unavailable: false, message },
            FailureText::Detailed { unavailable, message } => Self { unavailable, message },
        }
    }
}

/// Last line of a server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerReport {
    /// The design's name.
    pub design: String,
    /// The settings obtained, by name.
    pub settings: BTreeMap<String, String>,
    /// Whether the generator signalled the end of the run; if not, quiet ended it.
    pub end_signalled: bool,
    /// Why the run was ended although something of it was still to come, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut_short: Option<String>,
    /// Runs that have ended since the server began, this one included: what is told is of the last of
    /// them. 0 if there was none, and it is of the server's whole life.
    pub runs: u32,
    /// Other runs that were open at some time during this one. Counters, batches, drops and
    /// whatever else is of the server and not of a datagram are those of all together.
    pub other_runs: u32,
    /// Threads started.
    pub threads_started: u32,
    /// Threads that handled any datagram.
    pub threads_used: u32,
    /// Slices that did not come back from the kernel; their memory is lost.
    pub slices_missing: u32,
    /// The part of the run that is measured.
    pub window: Window,
    /// The counters of all threads over the whole run, by name.
    pub counters: BTreeMap<String, u64>,
    /// The batches of all threads over the whole run.
    pub batches: Batches,
    /// Thread by thread.
    pub threads: Vec<ThreadReport>,
    /// Socket by socket; empty where they cannot be told.
    pub sockets: Vec<SocketReport>,
    /// What the receiver found in the datagrams.
    pub audit: Audit,
    /// What the operating system counted over the whole run.
    pub system: SystemReport,
    /// The performance log of the run: what threads, cores and the system did in each interval of it; empty without one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub performance: Vec<Record>,
    /// What a program that is not weir's said of itself, and what there is to check it by; `None` for weir's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<PeerReport>,
}

/// What there is to check what a peer says of itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PeerReport {
    /// Whether it talks with weir; else its counts are those of the kernel.
    pub talks: bool,
    /// Whether the run's datagrams were long enough for a stamp.
    pub stamped: bool,
    /// What was found of the proofs of reading that it handed back, if it handed back any.
    pub proof: Option<Checked>,
    /// The most datagrams of the run that it said it had received, while the run went.
    pub counted: u64,
    /// Whether it said fewer once than before.
    pub count_fell: bool,
    /// The most datagrams that it can have received: what UDP gave all programs of the network namespace since
    /// the run began, if known.
    pub kernel_received: Option<u64>,
    /// Sockets on its port that were there during the run and not at its end.
    pub sockets_closed: u32,
}

impl ServerReport {
    /// Whether it says that the run is complete and wrong: a server that says so ends with
    /// another exit code than 0.
    pub fn tells_of_errors(&self) -> bool {
        self.audit.data_errors
            || self.slices_missing > 0
            || !self.end_signalled
            || self.cut_short.is_some()
    }
}

/// The measured part of a run: after the warm-up, while datagrams still came.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Window {
    /// Its length in nanoseconds.
    pub elapsed_ns: u64,
    /// Datagrams of the run that the handler was given in it.
    pub datagrams: u64,
    /// All datagrams that the handler was given in it, those of strangers and of other runs too.
    pub handled: u64,
    /// CPU time of the server's process in it in nanoseconds, if known.
    pub cpu_ns: Option<u64>,
    /// The part of it that the threads had which receive and handle datagrams, in nanoseconds, if known:
    /// without what watches them, and without threads of the kernel.
    pub threads_cpu_ns: Option<u64>,
}

/// Datagrams per dequeue that was not empty.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Batches {
    /// The smallest; `None` if there was none.
    pub min: Option<u64>,
    /// A tenth were at most this.
    pub p10: Option<u64>,
    /// Half were at most this.
    pub p50: Option<u64>,
    /// Nine tenths were at most this.
    pub p90: Option<u64>,
    /// The largest.
    pub max: Option<u64>,
    /// Their mean.
    pub mean: Option<f64>,
}

/// What one thread did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ThreadReport {
    /// Calls that asked for received datagrams.
    pub dequeues: u64,
    /// Notifications asked for.
    pub notifies: u64,
    /// Datagrams handled.
    pub datagrams: u64,
    /// Datagrams per dequeue that was not empty.
    pub batches: Batches,
    /// CPU time over its whole life in nanoseconds, whatever runs there were; known once it has ended.
    pub cpu_ns: Option<u64>,
    /// Context switches over its whole life: times it waited, and times it lost its core.
    pub context_switches: Option<u64>,
    /// The core it last ran on.
    pub core: Option<u64>,
}

/// What was lost at one of the server's sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketReport {
    /// The address it is bound to; several may share it. Of a Unix socket `unix:` and its name.
    #[serde(with = "bound_at")]
    pub address: SocketAddr,
    /// Datagrams that the system dropped at it over the whole run, if known. With receive offload
    /// several that came as one count as one.
    pub dropped: Option<u64>,
}

/// Where a socket is bound: an address, or the name of a Unix socket that it stands for, which says nothing elsewhere.
mod bound_at {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
    use std::net::SocketAddr;
    use weir::stream::UnixAddress;

    pub fn serialize<S: Serializer>(address: &SocketAddr, to: S) -> Result<S::Ok, S::Error> {
        match UnixAddress::of(*address) {
            Some(name) => to.collect_str(&name),
            None => address.serialize(to),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<SocketAddr, D::Error> {
        let text = String::deserialize(from)?;
        match text.strip_prefix("unix:") {
            Some(name) => SocketAddr::try_from(&UnixAddress::from(name)).map_err(D::Error::custom),
            None => text.parse().map_err(D::Error::custom),
        }
    }
}

/// What a receiver found in the datagrams of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Audit {
    /// Datagrams of this run, whatever their state.
    pub received: u64,
    /// Datagrams that belong to no run or to another.
    pub strangers: u64,
    /// Datagrams whose header or body was damaged.
    pub corrupt: u64,
    /// Datagrams of another size than the run's.
    pub wrong_size: u64,
    /// Datagrams that arrived more than once.
    pub duplicates: u64,
    /// Datagrams that arrived after a later one.
    pub reordered: u64,
    /// Whether anything arrived that was not sent like that: damaged, doubled, of another
    /// size. Losses and reordering are no such errors, for UDP promises neither.
    pub data_errors: bool,
    /// One-way latency, if the two ends share a clock and any was taken.
    pub latency_ns: Option<Latency>,
    /// The same latencies as pairs: the middle of a bucket in nanoseconds, and how many lay in it.
    /// Empty where the receiver gives none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub latency_histogram: Vec<(u64, u64)>,
}

/// Latencies in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Latency {
    /// How many there are.
    pub n: u64,
    /// The smallest.
    pub min: u64,
    /// Half were at most this.
    pub p50: u64,
    /// 90 % were at most this.
    pub p90: u64,
    /// 99 % were at most this.
    pub p99: u64,
    /// 99.9 % were at most this.
    #[serde(rename = "p99_9")]
    pub p999: u64,
    /// The largest.
    pub max: u64,
}

/// What the operating system counted. Unknown values are `None`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SystemReport {
    /// CPU time of the process since it was started, in nanoseconds.
    pub cpu_ns: Option<u64>,
    /// Why its CPU time is not known, where that has a reason of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
    /// The same of its context switches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub switches_unknown: Option<String>,
    /// Context switches of the process.
    pub context_switches: Option<u64>,
    /// Interrupts of all cores.
    pub interrupts: Option<u64>,
    /// Datagrams dropped by the network device.
    pub dropped_device: Option<u64>,
    /// Datagrams dropped at the queue of a CPU.
    pub dropped_cpu_queue: Option<u64>,
    /// Datagrams dropped at the server's sockets.
    pub dropped_socket: Option<u64>,
    /// What counted those, where the system does not tell what each socket drops: it is the whole machine's count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dropped_socket_source: Option<String>,
    /// Bytes that still lay in the server's sockets at the end, if known.
    pub queued_bytes: Option<u64>,
    /// Datagrams of all programs that came to a port that nobody had, if known.
    pub no_port: Option<u64>,
    /// Datagrams that UDP gave to all programs, if known. Several that came as one, with receive offload, count as one, and
    /// those that are received past the kernel do not count.
    pub delivered: Option<u64>,
    /// Memory of the process in bytes, at its largest.
    pub resident_bytes: Option<u64>,
    /// Memory of the kernel for sockets in bytes.
    pub kernel_bytes: Option<u64>,
    /// Cores the process may run on.
    pub cores: Vec<usize>,
}

/// Whether a generator's document is one of failure: looked at before its figures, which
/// are null then.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FloodStatus {
    /// `ok`, `invalid` (complete, and its counts or data are wrong, or its pace was not held, which is judged by the windows) or
    /// `failed`.
    pub status: Option<String>,
    /// Why it failed.
    pub reason: Option<String>,
}

impl FloodStatus {
    /// Why it failed; `None` if it did not.
    pub fn failure(&self) -> Option<String> {
        let failed = self.status.as_deref() == Some("failed");
        failed.then(|| self.reason.clone().unwrap_or_else(|| "the generator failed".into()))
    }
}

/// The document of a generator that did not fail.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FloodReport {
    /// Datagrams it wanted to send.
    pub offered: u64,
    /// Datagrams the system took.
    pub sent: u64,
    /// Datagrams the system refused.
    pub refused: u64,
    /// Datagrams skipped because their time had passed.
    pub late_skipped: u64,
    /// When the first was sent, in ns of [`weir_load::clock::now_ns`] of its machine.
    pub started_ns: u64,
    /// From the first to the last in nanoseconds.
    pub elapsed_ns: u64,
    /// CPU time of the generator in nanoseconds, if known.
    pub cpu_ns: Option<u64>,
    /// CPU time of the generator's whole process up to its end, warm-up and start included, in
    /// nanoseconds, if known.
    pub process_cpu_ns: Option<u64>,
    /// Datagrams of one call.
    pub quantum: Option<u64>,
    /// Windows of 10 ms of a paced run.
    pub windows: Option<u64>,
    /// Those in which the pace was kept.
    pub windows_within: Option<u64>,
    /// The engine used.
    pub engine: Option<String>,
    /// Generators (threads) that sent.
    pub generators: u64,
    /// What came back, where answers were expected.
    pub answers: Option<Answers>,
    /// The receiver's report, if the control channel delivered one.
    pub report: Option<serde_json::Value>,
    /// Of generators at several hosts: how they were together.
    #[serde(skip)]
    pub together: Option<Together>,
}

/// How generators at several hosts were together.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Together {
    /// From the start of the first to that of the last, in ns.
    pub skew_ns: u64,
    /// How wrong that may be, in ns: what is known of the clocks.
    pub skew_uncertainty_ns: u64,
    /// Whether a network is between them and the server, and not the loopback device of one machine.
    pub over_network: bool,
    /// Packets that their devices were to send and dropped, where all tell.
    pub send_dropped: Option<u64>,
    /// One-way latencies, where they were looked for.
    pub one_way: Option<OneWay>,
}

/// One-way latencies of generators at several hosts, by clocks that were compared.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OneWay {
    /// Those of all datagrams whose time was taken, where they are known well enough.
    pub latency_ns: Option<Latency>,
    /// The same as pairs: the middle of a bucket in nanoseconds, and how many lay in it.
    pub histogram: Vec<(u64, u64)>,
    /// How wrong they may be, in nanoseconds either way.
    pub uncertainty_ns: Option<u64>,
    /// Why they are not told, where they were taken.
    pub withheld: Option<String>,
    /// The clock of each generator.
    pub clocks: Vec<GeneratorClock>,
}

/// How the clock of a generator at another host stood to that of the server in a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct GeneratorClock {
    /// The generator's rank.
    pub rank: usize,
    /// What its clock showed more than that of the server's host before the run, in nanoseconds; 0 where it is the same clock.
    pub offset_ns: i64,
    /// By how much more it went until the end of the run, in nanoseconds.
    pub drift_ns: i64,
    /// How wrong the middle between the two is, in nanoseconds either way: half of the fastest round trip between the two
    /// ranks, before or after the run, and half the drift.
    pub uncertainty_ns: u64,
}

/// A line by which a child says that it has come so far.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadyTo {
    /// `ready`: it can begin, and is to be told when.
    pub phase: String,
}

/// What a generator says of the answers that it took.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Answers {
    /// Requests of each flow under way at most; `None` where they were paced.
    pub outstanding: Option<u32>,
    /// Different requests answered.
    pub answered: u64,
    /// Answers per second until the end of the run.
    pub answers_per_s: f64,
    /// Requests sent and not answered.
    pub missing: u64,
    /// Requests under way for 100 ms or more.
    pub given_up: u64,
    /// Answers to a request that had been answered.
    pub duplicates: u64,
    /// Answers of another size.
    pub wrong_size: u64,
    /// Answers that were damaged.
    pub corrupt: u64,
    /// Answers to what was not sent, or to another flow than their own.
    pub forged: u64,
    /// Answers of no run of the generator's.
    pub strangers: u64,
    /// Answers dropped at its sockets, if known.
    pub dropped_socket: Option<u64>,
    /// How long it had nothing to do, in nanoseconds.
    pub waiting_ns: u64,
    /// The round trips.
    pub round_trip_ns: Option<Latency>,
    /// The same as pairs: the middle of a bucket in nanoseconds, and how many lay in it.
    pub round_trip_histogram: Vec<(u64, u64)>,
}

impl From<&Summary> for Latency {
    fn from(summary: &Summary) -> Self {
        let of = |name: &str| summary.percentile.get(name).copied().unwrap_or_default();
        Self {
            n: summary.n,
            min: summary.min,
            p50: of("50"),
            p90: of("90"),
            p99: of("99"),
            p999: of("99.9"),
            max: summary.max,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_may_be_an_object_or_a_text() {
        let read = |text: &str| serde_json::from_str::<FailureLine>(text).map(|line| line.error);
        let text = read(r#"{"error":"no"}"#).unwrap();
        assert_eq!(text, Failure { unavailable: false, message: "no".into() });
        let object = read(r#"{"error":{"message":"no","unavailable":true}}"#).unwrap();
        assert!(object.unavailable);
        assert!(read(r#"{"error":null,"sent":1}"#).is_err(), "null is no failure");
        assert!(read(r#"{"sent":1}"#).is_err());
    }

    #[test]
    fn a_flood_says_whether_it_failed() {
        let read = |text: &str| serde_json::from_str::<FloodStatus>(text).unwrap().failure();
        assert_eq!(read(r#"{"status":"ok","reason":null,"sent":3}"#), None);
        assert_eq!(read(r#"{"status":"failed","reason":"no","sent":null}"#), Some("no".into()));
        assert_eq!(read(r#"{"sent":3}"#), None);
    }
}
