//! What only the documents of UDP have.

#![expect(dead_code, reason = "these types are only described: their comments stand in the schema")]

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::Value;

use crate::report::schema::described::Described;
use crate::report::schema::parts::{Against, Dated, Difference, Estimate, Group};
use crate::udp::kernel_memory::Probe;
use crate::udp::ledger::Ledger;
use crate::udp::replies::Replies;
use crate::udp::results::Udp;
use crate::wire::Latency;

impl Described for Udp {
    type OfAll = OfUdp;
    type OfLoad = UdpLoad;
    type OfRow = UdpRow;

    fn other_documents(generator: &mut SchemaGenerator) -> Vec<Schema> {
        vec![generator.subschema_for::<Memory>()]
    }
}

#[derive(JsonSchema)]
pub struct OfUdp {
    #[serde(flatten)]
    own: Udp,
    sweeps: Sweeps,
    /// Of --burst: what each row took.
    #[serde(skip_serializing_if = "Option::is_none")]
    bursts: Option<Vec<Bursts>>,
}

#[derive(JsonSchema)]
pub struct UdpLoad {
    #[serde(flatten)]
    group: Group<Peers>,
    load: AskedOfUdp,
    /// table, or step of a sweep.
    shown: String,
    /// Rows with receive offload, which are ranked apart.
    receive_offload: Option<Group<Offloaded>>,
    receiving_threads_on_frames: Option<Frames>,
    /// What was published of the originals, beside what was measured; null under paced loads.
    published: Option<Vec<Published>>,
}

#[derive(JsonSchema)]
pub struct Peers {
    peers: Vec<Against>,
}

#[derive(JsonSchema)]
pub struct Offloaded {
    peers: Vec<Against>,
    gains: Option<Gains>,
}

#[derive(JsonSchema)]
pub struct Gains {
    designs: Vec<Gain>,
    best_with_to_best_without: Option<Gain>,
    best_with_to_traditional: Option<Gain>,
}

#[derive(JsonSchema)]
pub struct Gain {
    with: String,
    without: String,
    ratio: Difference,
}

/// Bursts to servers that do the same meanwhile.
#[derive(JsonSchema)]
pub struct Bursts {
    /// 0: the server waits for datagrams; a time: it is held for so long; sent: it is held until all is sent.
    held: String,
    /// The load with the largest of them.
    load: AskedOfUdp,
    /// How many datagrams each has, the smallest first.
    datagrams: Vec<u64>,
    rows: Vec<BurstRow>,
}

/// What a row took of each burst, and what it had to take it with.
#[derive(JsonSchema)]
pub struct BurstRow {
    spec: String,
    name: String,
    provider: Option<String>,
    /// Datagrams, medians over the rounds.
    taken: Vec<Option<f64>>,
    taken_percent: Vec<Option<f64>>,
    /// Memory that it may receive into.
    registered_bytes: Option<f64>,
    /// The part of that which was locked before anything came.
    locked_bytes: Option<f64>,
    /// Of each socket, as the system reports it.
    receive_buffer_bytes: Option<f64>,
}

#[derive(JsonSchema)]
pub struct AskedOfUdp {
    /// saturation, paced, burst or closed_loop.
    kind: String,
    offered_per_s: Option<u64>,
    share_of_maximum: Option<f64>,
    share_of_partial_drop_rate: Option<f64>,
    search: Option<Search>,
    size_bytes: u32,
    /// What the server answers; null for a sink.
    replies: Option<AskedReplies>,
    work: u32,
    work_shared: bool,
    ports: u16,
    flows: u16,
    generators: u16,
    receive_offload: bool,
    send_offload: bool,
    rcvbuf_bytes: Option<u64>,
    busy_poll_us: Option<u64>,
    /// outstanding: receive buffers have room for as many datagrams as there are receives outstanding.
    #[serde(skip_serializing_if = "Option::is_none")]
    rcvbuf: Option<String>,
    /// poisson, where datagrams do not come at even distances.
    #[serde(skip_serializing_if = "Option::is_none")]
    arrivals: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    burst: Option<Burst>,
    #[serde(skip_serializing_if = "Option::is_none")]
    link: Option<ShareOfLink>,
}

/// Of which link the load is a share.
#[derive(JsonSchema)]
pub struct ShareOfLink {
    /// Of what the link carries, above 0 and at most 1.
    share: f64,
    /// The link's speed.
    bits_per_s: u64,
    /// What a datagram takes on it: payload, headers, check sequence, preamble and gap.
    wire_bytes: u64,
}

/// The answers that are expected of a server.
#[derive(JsonSchema)]
pub struct AskedReplies {
    /// Requests of each flow under way; null where requests are paced.
    outstanding: Option<u32>,
    size_bytes: u32,
    /// on, off, or with_receive: which servers let answers in a row to one peer leave as one, of those that can.
    offload: String,
}

/// Datagrams sent at once.
#[derive(JsonSchema)]
pub struct Burst {
    datagrams: u64,
    /// 0, a time, or sent.
    held: String,
}

/// A step of the search for the highest rate that a design takes.
#[derive(JsonSchema)]
pub struct Search {
    /// no_drop or partial_drop.
    goal: String,
    step: u32,
}

#[derive(JsonSchema)]
pub struct Frames {
    frames: String,
    sockets: String,
    frames_cpu_ns_per_datagram: f64,
    sockets_cpu_ns_per_datagram: f64,
    ratio: Option<Estimate>,
}

#[derive(JsonSchema)]
pub struct Published {
    test: String,
    received_per_s: Option<f64>,
    link_percent: Option<f64>,
    ratio_to_traditional: Option<f64>,
    threads: Option<u32>,
    measured_row: Option<String>,
    measured_ratio_to_traditional: Option<f64>,
    not_compared: Option<String>,
}

#[derive(JsonSchema)]
pub struct UdpRow {
    /// The load as it was obtained.
    load: AskedOfUdp,
    peer: Option<UdpPeer>,
    ledger: Option<Account>,
    /// What became of the answers; null where none was expected.
    replies: Option<AccountOfReplies>,
    latency_of_all_runs_ns: Option<Latency>,
    ratio_to_traditional: Option<Difference>,
}

#[derive(JsonSchema)]
pub struct UdpPeer {
    command: String,
    /// Whether what it received is derived, since it tells nothing.
    derived: bool,
    /// Bytes that it expects at the beginning of each datagram, in hexadecimal digits.
    head: String,
    /// Why its figures rest on its own word, if they do.
    claimed: Option<String>,
}

/// Where every datagram went.
#[derive(JsonSchema)]
pub struct Account {
    counts: Ledger,
    /// Datagrams of which nobody knows where they are.
    unexplained: Option<i64>,
    /// Those of them that are lost for certain, where the system does not tell what was dropped at sockets; they
    /// make no run invalid. null where it tells.
    lost_place_unknown: Option<u64>,
}

/// What became of the answers.
#[derive(JsonSchema)]
pub struct AccountOfReplies {
    counts: Replies,
    /// Answers given that neither arrived nor are known to be dropped; null where the server does not say what it gave.
    unexplained: Option<i64>,
}

#[derive(JsonSchema)]
pub struct Sweeps {
    work: Vec<Sweep>,
    threads: Vec<Sweep>,
    /// Over options of designs.
    #[serde(skip_serializing_if = "Option::is_none")]
    options: Option<Vec<Sweep>>,
    load: Option<UnderLoad>,
}

#[derive(JsonSchema)]
pub struct Sweep {
    /// work, threads, or the name of a sweep over an option: outstanding, dequeue, threshold, defer.
    axis: String,
    work_shared: Option<bool>,
    load: Option<AskedOfUdp>,
    designs: Vec<String>,
    stops: Vec<Stop>,
    crossings: Vec<Crossing>,
}

#[derive(JsonSchema)]
pub struct Stop {
    at: f64,
    /// By design.
    received_per_s: Vec<Option<f64>>,
}

/// Where one design overtakes another.
#[derive(JsonSchema)]
pub struct Crossing {
    before: String,
    after: String,
    between: [f64; 2],
    at: f64,
    verdict: String,
}

#[derive(JsonSchema)]
pub struct UnderLoad {
    load: AskedOfUdp,
    rows: Vec<Curve>,
}

#[derive(JsonSchema)]
pub struct Curve {
    spec: String,
    provider: Option<String>,
    receive_offload: bool,
    points: Vec<Point>,
    no_drop: Highest,
    partial_drop: Highest,
}

#[derive(JsonSchema)]
pub struct Point {
    sent_per_s: f64,
    lost_percent: f64,
}

#[derive(JsonSchema)]
pub struct Highest {
    highest_good_per_s: Option<f64>,
    lowest_bad_per_s: Option<f64>,
}

/// The memory that the kernel holds for outstanding receives (--memory).
#[derive(JsonSchema)]
pub struct Memory {
    #[serde(flatten)]
    dated: Dated,
    schema_version: u32,
    /// memory.
    kind: String,
    command: Vec<String>,
    status: String,
    machine: BTreeMap<String, Value>,
    /// Servers that were started for each figure, which is their median.
    repetitions: u32,
    /// By so much the kernel's memory changed without a server.
    noise_bytes: u64,
    without_a_server: Vec<Probe>,
    results: Vec<MemoryOf>,
}

#[derive(JsonSchema)]
pub struct MemoryOf {
    design: String,
    provider: Option<String>,
    spec: String,
    outstanding: Option<u32>,
    status: String,
    reason: Option<String>,
    registered_bytes: Option<u64>,
    kernel_bytes: Option<f64>,
    samples: Vec<Probe>,
}
