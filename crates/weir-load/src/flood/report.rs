//! What a flood did.

use std::{collections::BTreeMap, net::IpAddr};

use serde::Serialize;

use crate::engine::Refusals;

/// Why a flood ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EndedBy {
    /// Its time was over.
    Time,
    /// Its number of datagrams was offered.
    Datagrams,
    /// Someone asked, with Ctrl-C for instance.
    Asked,
    /// The control connection was lost.
    ControlLost,
    /// A generator failed.
    Failure,
}

/// What was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LoadReport {
    /// `saturation` or `paced`.
    pub kind: &'static str,
    /// Datagrams per second asked for; none at saturation.
    pub offered_per_s: Option<f64>,
}

/// What a flood did. `offered = sent + refused`; what was skipped was never offered.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FloodReport {
    /// Run id.
    pub run: u32,
    /// Where to.
    pub target: IpAddr,
    /// Ports there.
    pub ports: Vec<u16>,
    /// The engine obtained.
    pub engine: &'static str,
    /// How it was set up.
    pub engine_settings: BTreeMap<&'static str, String>,
    /// Why each better engine was not used, if none was named.
    pub engines_passed_over: Vec<String>,
    /// `gso` if the operating system cut the datagrams from larger ones, else `none`.
    pub send_offload: &'static str,
    /// Payload bytes of each datagram.
    pub size_bytes: usize,
    /// Flows over all generators.
    pub flows: usize,
    /// Threads.
    pub generators: usize,
    /// Cores they were bound to, in turn; empty if to none.
    pub cores: Vec<usize>,
    /// Size of each socket's send buffer in bytes, as obtained.
    pub send_buffer_bytes: usize,
    /// What was asked for.
    pub load: LoadReport,
    /// Datagrams per call.
    pub quantum: u32,
    /// Datagrams handed to the operating system.
    pub offered: u64,
    /// Those that it took.
    pub sent: u64,
    /// Those that it did not take.
    pub refused: u64,
    /// The same by reason.
    pub refusals: Refusals,
    /// Datagrams that were late by more than a quantum, and not offered.
    pub late_skipped: u64,
    /// From the start of the first generator to the end of the last, in ns.
    pub elapsed_ns: u64,
    /// Datagrams offered per second.
    pub offered_per_s: f64,
    /// Datagrams sent per second.
    pub sent_per_s: f64,
    /// Bits of payload sent per second (no header is included).
    pub bits_per_second: f64,
    /// Windows of 10 ms, over all generators; none at saturation.
    pub windows: Option<u64>,
    /// Those in which a generator kept its pace within 2 % or one quantum.
    pub windows_within: Option<u64>,
    /// Whether 99 % of them are.
    pub pace_held: Option<bool>,
    /// CPU time of all generators in ns, user and kernel; none where it is not known.
    pub cpu_ns: Option<u64>,
    /// The same per datagram sent.
    pub cpu_ns_per_datagram: Option<f64>,
    /// CPU time as a share of the elapsed time of as many cores as generators. Waiting for
    /// the next quantum is done by spinning, so a paced generator is near 100 as well.
    pub cpu_utilization_percent: Option<f64>,
    /// Datagrams sent, for each flow.
    pub sent_per_flow: Vec<u64>,
    /// Datagrams sent in the warm-up, which count nowhere else.
    pub warm_up_sent: u64,
    /// Why it ended.
    pub ended_by: EndedBy,
    /// What went wrong, if anything did.
    pub failure: Option<String>,
    /// What the server reported, as it is; none without a control connection.
    pub report: Option<serde_json::Value>,
}

/// How a flood went in one interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Beginning and end of the interval in ns since the start of the flood.
    pub from_ns: u64,
    /// See `from_ns`.
    pub to_ns: u64,
    /// Datagrams offered in it.
    pub offered: u64,
    /// Datagrams sent in it.
    pub sent: u64,
    /// Datagrams refused in it.
    pub refused: u64,
    /// Datagrams skipped in it.
    pub late_skipped: u64,
}
