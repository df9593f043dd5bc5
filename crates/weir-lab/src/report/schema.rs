//! The schema of the documents, for programs that read them. What is written is held against it in tests, and must
//! have no field that it does not name.

#![expect(dead_code, reason = "most of these types are described, and never made")]

use std::collections::BTreeMap;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde_json::Value;

use crate::device::sample::Sample as DeviceSample;
use crate::iops::Decay;
use crate::report::conclusion::Conclusion;
use crate::saved::claims::Judged;
use crate::saved::diff::Diff;
use crate::tcp::plan::Load as TcpLoad;
use crate::tcp::sample::Sample as TcpSample;
use crate::udp::kernel_memory::Probe;
use crate::udp::ledger::Ledger;
use crate::udp::replies::Replies;
use crate::udp::sample::Sample as UdpSample;
use crate::wire::Latency;
use crate::{device, tcp, udp};

/// The schema of every document that `weir compare` writes.
pub fn schema() -> Schema {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let mut schema = settings.into_generator().into_root_schema_for::<Document>();
    schema.insert("title".into(), "A result of weir compare".into());
    schema
}

/// What `weir compare` writes with --json, and keeps as result.json.
#[derive(JsonSchema)]
#[schemars(untagged)]
enum Document {
    Udp(Box<Comparison<OfUdp, UdpLoad, UdpRow, UdpSample>>),
    Tcp(Box<Comparison<OfTcp, OfTcpLoad, TcpRow, TcpSample>>),
    Iops(Box<Comparison<OfDevices, OfDevicesLoad, DeviceRow, DeviceSample>>),
    All(Box<All>),
    Memory(Box<Memory>),
    Planned(Box<Planned>),
    Failed(Box<Failed>),
}

/// A comparison of one kind.
#[derive(JsonSchema)]
struct Comparison<O, L, R, S> {
    #[serde(flatten)]
    dated: Dated,
    #[serde(flatten)]
    head: Head,
    /// The confidence of every interval in it, in percent.
    confidence_percent: f64,
    /// What it concludes.
    conclusion: Conclusion,
    /// The load that decides, by its place among the loads; null if none has figures that are compared.
    main_load: Option<usize>,
    /// The loads, in the order in which they ran.
    loads: Vec<Load<L>>,
    /// What the figures say to each question that such a comparison can be asked.
    answers: Vec<Answer>,
    /// Every row under every load.
    results: Vec<Row<R, S>>,
    /// What a reader must know before trusting a figure.
    warnings: Vec<String>,
    /// Whether it was ended before its plan was through.
    interrupted: bool,
    /// Why nothing more could be done, if so.
    error: Option<String>,
    #[serde(flatten)]
    own: O,
}

/// When it was made; missing in the parts of a document of all kinds.
#[derive(JsonSchema)]
struct Dated {
    /// When it began: RFC 3339, UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    started_at: Option<String>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_at: Option<String>,
    /// The exit code of the command.
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<u8>,
    /// With --baseline: what changed since that.
    #[serde(skip_serializing_if = "Option::is_none")]
    baseline: Option<Vec<Diff>>,
    /// Of `weir reproduce`: what became of each claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    claims: Option<Vec<Judged>>,
}

#[derive(JsonSchema)]
struct Head {
    /// Changes when a field changes its meaning or goes away.
    schema_version: u32,
    /// udp, tcp or iops.
    kind: String,
    /// The command as typed; with a plan, the command that it stands for.
    command: Vec<String>,
    /// Properties of the machine by name, with units in the names (null: not known), and warnings.
    machine: BTreeMap<String, Value>,
    /// Gives the same order of runs and the same intervals again.
    seed: u64,
}

#[derive(JsonSchema)]
struct Answer {
    question: String,
    sentences: Vec<String>,
}

#[derive(JsonSchema)]
struct Load<L> {
    /// How it is called in tables, and in the rows' load_name.
    name: String,
    /// The metric by which rows are ranked.
    ranked_by: String,
    confidence: Confidence,
    /// Rounds that were planned, ms of a run, and ms before it that do not count; null if it did not begin.
    rounds: Option<u32>,
    run_ms: Option<u64>,
    warmup_ms: Option<u64>,
    #[serde(flatten)]
    own: L,
}

#[derive(JsonSchema)]
struct Confidence {
    /// Half the width of intervals that was asked for, in percent of the median.
    asked_half_width_percent: f64,
    /// The widest of all rows; null while one has no interval.
    widest_half_width_percent: Option<f64>,
    /// Whether all are as narrow as asked.
    reached: bool,
}

/// Rows that are ranked among each other.
#[derive(JsonSchema)]
struct Group<G> {
    /// The row with the best figure, by its spec; null if nothing is ranked or the noise is too large.
    winner: Option<String>,
    /// Differences below it are noise: how far one design lies from itself under two names.
    noise_floor_percent: Option<f64>,
    /// How many comparisons of two rows have intervals that hold together.
    comparisons: usize,
    /// Pairs of runs left out because the machine changed between them.
    unlike_pairs: usize,
    /// Who wins, by how much and why: a sentence each.
    summary: Vec<String>,
    #[serde(flatten)]
    own: G,
}

#[derive(JsonSchema)]
struct Row<R, S> {
    /// design, or peer for a program of another library.
    kind: String,
    design: String,
    provider: Option<String>,
    /// Options that were given, by name.
    options: BTreeMap<String, String>,
    /// The row with its options, as they are typed.
    spec: String,
    /// The row as it is called in tables and sentences: with its provider where another row has the same name.
    name: String,
    /// plain, traditional (the measure of others) or again (a row under a second name, which shows the noise).
    role: String,
    load_name: String,
    /// ok, unavailable, failed, not_measured, invalid …
    status: String,
    /// Why it has no rank, if it has none.
    reason: Option<String>,
    /// not_checked, passed or failed.
    conformance: String,
    /// From 1; rows that cannot be told apart share one.
    rank: Option<usize>,
    tied_with_winner: Option<bool>,
    /// The winner's figure to this one's.
    winner_to_it: Option<Difference>,
    /// What stands in tables under "limit": what kept it from more, INVALID, or why there are no figures.
    limit: String,
    /// server, generator, both, others, … : what kept it from more.
    limited_by: Option<String>,
    /// Whether it could have done more than it was asked to.
    lower_bound: Option<bool>,
    limit_reason: Option<String>,
    /// The settings that were obtained, by name.
    settings: Option<BTreeMap<String, String>>,
    /// Every metric by name, in groups where a name has two parts.
    metrics: BTreeMap<String, MetricOrGroup>,
    kernel_entries_source: Option<String>,
    kernel_entries_counted: Option<f64>,
    /// Every run.
    runs: Vec<S>,
    failed_runs: u32,
    /// Why runs failed.
    failures: Vec<String>,
    skipped: Option<String>,
    #[serde(flatten)]
    own: R,
}

/// The median of a ratio over pairs of runs, and what is claimed of it.
#[derive(JsonSchema)]
struct Difference {
    #[serde(flatten)]
    estimate: Estimate,
    /// real, tie or too_few_pairs.
    verdict: String,
    pairs: Option<usize>,
}

/// A median and the ends of its interval; null where there are too few samples.
#[derive(JsonSchema)]
struct Estimate {
    median: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
}

#[derive(JsonSchema)]
#[schemars(untagged)]
enum MetricOrGroup {
    Metric(Metric),
    Group(BTreeMap<String, Metric>),
}

#[derive(JsonSchema)]
struct Metric {
    #[serde(flatten)]
    estimate: Estimate,
    /// The figure of each run.
    samples: Vec<Option<f64>>,
    /// Which of them count; the others ran while the machine was another.
    counted: Vec<bool>,
    unit: String,
}

#[derive(JsonSchema)]
struct Peer {
    command: String,
}

/// The best design against the best peer, by one metric.
#[derive(JsonSchema)]
struct Against {
    metric: String,
    own: String,
    peer: String,
    own_to_peer: Difference,
    /// Of TCP: whether that design busy-polls.
    #[serde(skip_serializing_if = "Option::is_none")]
    polls: Option<bool>,
}

// ---- UDP --------------------------------------------------------------------------

#[derive(JsonSchema)]
struct OfUdp {
    #[serde(flatten)]
    own: udp::results::Udp,
    sweeps: Sweeps,
}

#[derive(JsonSchema)]
struct UdpLoad {
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
struct Peers {
    peers: Vec<Against>,
}

#[derive(JsonSchema)]
struct Offloaded {
    peers: Vec<Against>,
    gains: Option<Gains>,
}

#[derive(JsonSchema)]
struct Gains {
    designs: Vec<Gain>,
    best_with_to_best_without: Option<Gain>,
    best_with_to_traditional: Option<Gain>,
}

#[derive(JsonSchema)]
struct Gain {
    with: String,
    without: String,
    ratio: Difference,
}

#[derive(JsonSchema)]
struct AskedOfUdp {
    /// saturation, paced, or closed_loop.
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
}

/// The answers that are expected of a server.
#[derive(JsonSchema)]
struct AskedReplies {
    /// Requests of each flow under way; null where requests are paced.
    outstanding: Option<u32>,
    size_bytes: u32,
}

/// A step of the search for the highest rate that a design takes.
#[derive(JsonSchema)]
struct Search {
    /// no_drop or partial_drop.
    goal: String,
    step: u32,
}

#[derive(JsonSchema)]
struct Frames {
    frames: String,
    sockets: String,
    frames_cpu_ns_per_datagram: f64,
    sockets_cpu_ns_per_datagram: f64,
    ratio: Option<Estimate>,
}

#[derive(JsonSchema)]
struct Published {
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
struct UdpRow {
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
struct UdpPeer {
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
struct Account {
    counts: Ledger,
    /// Datagrams of which nobody knows where they are.
    unexplained: Option<i64>,
    /// Those of them that are lost for certain, where the system does not tell what was dropped at sockets; they
    /// make no run invalid. null where it tells.
    lost_place_unknown: Option<u64>,
}

/// What became of the answers.
#[derive(JsonSchema)]
struct AccountOfReplies {
    counts: Replies,
    /// Answers given that neither arrived nor are known to be dropped; null where the server does not say what it gave.
    unexplained: Option<i64>,
}

#[derive(JsonSchema)]
struct Sweeps {
    work: Vec<Sweep>,
    threads: Vec<Sweep>,
    load: Option<UnderLoad>,
}

#[derive(JsonSchema)]
struct Sweep {
    /// work or threads.
    axis: String,
    work_shared: Option<bool>,
    load: Option<AskedOfUdp>,
    designs: Vec<String>,
    stops: Vec<Stop>,
    crossings: Vec<Crossing>,
}

#[derive(JsonSchema)]
struct Stop {
    at: f64,
    /// By design.
    received_per_s: Vec<Option<f64>>,
}

/// Where one design overtakes another.
#[derive(JsonSchema)]
struct Crossing {
    before: String,
    after: String,
    between: [f64; 2],
    at: f64,
    verdict: String,
}

#[derive(JsonSchema)]
struct UnderLoad {
    load: AskedOfUdp,
    rows: Vec<Curve>,
}

#[derive(JsonSchema)]
struct Curve {
    spec: String,
    provider: Option<String>,
    receive_offload: bool,
    points: Vec<Point>,
    no_drop: Highest,
    partial_drop: Highest,
}

#[derive(JsonSchema)]
struct Point {
    sent_per_s: f64,
    lost_percent: f64,
}

#[derive(JsonSchema)]
struct Highest {
    highest_good_per_s: Option<f64>,
    lowest_bad_per_s: Option<f64>,
}

// ---- TCP --------------------------------------------------------------------------

#[derive(JsonSchema)]
struct OfTcp {
    #[serde(flatten)]
    own: tcp::results::Tcp,
    /// Of --classic: the most connections of each design, and what was published.
    classic: Option<Classic>,
}

#[derive(JsonSchema)]
struct OfTcpLoad {
    load: TcpLoad,
    groups: Vec<Group<Polling>>,
    peers: Vec<Against>,
}

#[derive(JsonSchema)]
struct Polling {
    /// Whether it is the group of busy-polling designs.
    polls: bool,
}

#[derive(JsonSchema)]
struct TcpRow {
    load: TcpLoad,
    peer: Option<Peer>,
    /// Round trips of all runs together.
    #[serde(skip_serializing_if = "Option::is_none")]
    latency_of_all_runs_ns: Option<Latency>,
    #[serde(skip_serializing_if = "Option::is_none")]
    round_trip_of_all_runs_ns: Option<Latency>,
    polls: Option<bool>,
    cores_busy_with_one_connection: Option<f64>,
    sleeps_per_message_with_one_connection: Option<f64>,
}

#[derive(JsonSchema)]
struct Classic {
    most_tried: u32,
    held: Vec<HeldBy>,
    published: Vec<PublishedOfTcp>,
}

#[derive(JsonSchema)]
struct HeldBy {
    spec: String,
    most: tcp::classic::Held,
}

#[derive(JsonSchema)]
struct PublishedOfTcp {
    part: String,
    model: String,
    attempted: Option<u64>,
    connected: Option<u64>,
    received_bytes_per_s: Option<f64>,
    design: Option<String>,
    measured_attempted: Option<u64>,
    measured_connected: Option<u64>,
    measured_served: Option<u64>,
    measured_received_bytes_per_s: Option<f64>,
    unranked: Option<String>,
}

// ---- Devices ----------------------------------------------------------------------

#[derive(JsonSchema)]
struct OfDevices {
    #[serde(flatten)]
    own: device::results::Devices,
    /// The row that others are compared with besides the winner.
    ratio_to: Option<String>,
    crossings: Option<Vec<DeviceCrossing>>,
    long_runs: Vec<LongRun>,
}

#[derive(JsonSchema)]
struct OfDevicesLoad {
    load: DeviceLoad,
    groups: Vec<Group<DeviceGroup>>,
}

#[derive(JsonSchema)]
struct DeviceLoad {
    device: String,
    length_bytes: usize,
    /// read or write.
    direction: String,
    delay_us: Option<f64>,
}

#[derive(JsonSchema)]
struct DeviceGroup {
    /// waits, polls or reads_nothing.
    group: String,
}

#[derive(JsonSchema)]
struct DeviceRow {
    load: DeviceLoad,
    peer: Option<Peer>,
    latency_of_all_runs_ns: Option<Latency>,
    ratio_to_sync: Option<Difference>,
    depth: Option<u32>,
    check: Option<device::bench::Checked>,
    group: String,
    cores_busy_with_little_to_do: Option<f64>,
    /// The command that made its runs.
    command: Option<String>,
}

#[derive(JsonSchema)]
struct DeviceCrossing {
    length_bytes: usize,
    before: String,
    after: String,
    between_us: [f64; 2],
    at_us: f64,
    real: bool,
}

#[derive(JsonSchema)]
struct LongRun {
    spec: String,
    decay: Option<Decay>,
    verdict: Option<String>,
    failure: Option<String>,
}

// ---- Other documents --------------------------------------------------------------

/// All kinds, one after the other.
#[derive(JsonSchema)]
struct All {
    #[serde(flatten)]
    dated: Dated,
    schema_version: u32,
    /// all.
    kind: String,
    command: Vec<String>,
    seed: u64,
    interrupted: bool,
    error: Option<String>,
    udp: Box<Part<Comparison<OfUdp, UdpLoad, UdpRow, UdpSample>>>,
    tcp: Box<Part<Comparison<OfTcp, OfTcpLoad, TcpRow, TcpSample>>>,
    iops: Box<Part<Comparison<OfDevices, OfDevicesLoad, DeviceRow, DeviceSample>>>,
}

#[derive(JsonSchema)]
#[schemars(untagged)]
enum Part<C> {
    Made(C),
    Planned(Planned),
    Failed(Failed),
}

/// What a comparison would do, with --dry-run.
#[derive(JsonSchema)]
struct Planned {
    #[serde(flatten)]
    dated: Dated,
    #[serde(flatten)]
    head: Head,
    /// The rows.
    planned: Vec<String>,
    /// The seconds that it takes.
    planned_s: f64,
    loads: Vec<Value>,
    results: [Value; 0],
    error: Option<String>,
    /// What only this kind has.
    #[serde(flatten)]
    own: BTreeMap<String, Value>,
}

/// A command that failed before there were results.
#[derive(JsonSchema)]
struct Failed {
    schema_version: u32,
    command: Vec<String>,
    /// failed, or unavailable where this machine cannot run it.
    status: String,
    reason: String,
    machine: BTreeMap<String, Value>,
    results: [Value; 0],
    error: String,
}

/// The memory that the kernel holds for outstanding receives (--memory).
#[derive(JsonSchema)]
struct Memory {
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
struct MemoryOf {
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

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;
    use crate::exit;
    use crate::experiment::plan::{Depth, Settings};
    use crate::report::document::{document, failure, plan};

    /// The same, and no field that it does not name.
    fn strict(schema: &mut Value) {
        match schema {
            Value::Object(fields) => {
                if fields.get("properties").is_some_and(Value::is_object) {
                    fields.entry("additionalProperties").or_insert(false.into());
                }
                fields.values_mut().for_each(strict);
            }
            Value::Array(all) => all.iter_mut().for_each(strict),
            _ => {}
        }
    }

    /// What is wrong with a document of the kind that is described at this place of the root's list.
    fn wrong(document: &Value, at: usize) -> Vec<String> {
        let mut schema = Value::from(schema());
        strict(&mut schema);
        let root = schema["anyOf"][at].clone();
        let fields = schema.as_object_mut().unwrap();
        fields.remove("anyOf");
        fields.extend(root.as_object().cloned().unwrap_or_else(Map::new));
        let validator = jsonschema::validator_for(&schema).unwrap();
        validator.iter_errors(document).map(|e| format!("{}: {e}", e.instance_path())).collect()
    }

    #[test]
    fn documents_have_the_fields_that_are_described_and_no_others() {
        let udp = document(&crate::udp::report::fixture::results());
        assert_eq!(wrong(&udp, 0), Vec::<String>::new());
        let rows = [("epoll", 100e3), ("poll", 80e3), ("go=x {port}", 90e3)];
        let tcp = document(&crate::tcp::results::tests::results(&rows, 1));
        assert_eq!(wrong(&tcp, 1), Vec::<String>::new());
        let rows = [("sync", 2e6), ("ring --depth 7", 1e6), ("fio psync=fio", 9e5)];
        let mut devices = crate::device::results::tests::results(&rows, 0);
        devices.own.long_runs[0] = Some(crate::device::results::LongRun::Failed("no".into()));
        assert_eq!(wrong(&document(&devices), 2), Vec::<String>::new());
        let failed = failure(&["weir".into()], "no design can run", exit::FAILED);
        assert_eq!(wrong(&failed, 6), Vec::<String>::new());
        let settings =
            Settings { depth: Depth::Full, rounds: None, budget_s: None, is_bound: false };
        assert_eq!(wrong(&plan(&devices, &settings), 5), Vec::<String>::new());
        let all = json!({
            "schema_version": 1, "kind": "all", "command": [], "seed": 1, "interrupted": false, "error": null,
            "udp": udp, "tcp": tcp, "iops": failed,
        });
        assert_eq!(wrong(&all, 3), Vec::<String>::new());
    }

    #[test]
    fn what_is_missing_unknown_or_of_another_type_is_found() {
        let whole = document(&crate::udp::report::fixture::results());
        for (path, value) in [
            ("/seed", json!("7")),
            ("/loads/0/rounds", json!(true)),
            ("/results/0/rank", json!("first")),
        ] {
            let mut changed = whole.clone();
            *changed.pointer_mut(path).unwrap() = value;
            assert_eq!(wrong(&changed, 0).len(), 1, "{path}");
        }
        let mut more = whole.clone();
        more["results"][0]["surprise"] = 1.into();
        assert_eq!(wrong(&more, 0).len(), 1);
        let mut less = whole;
        less["results"][0].as_object_mut().unwrap().remove("reason");
        assert_eq!(wrong(&less, 0).len(), 1);
    }

    #[test]
    fn the_published_schema_is_this() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../book/src/result.schema.json");
        let text = format!("{:#}\n", Value::from(schema()));
        if std::env::var_os("WEIR_BLESS").is_some() {
            std::fs::write(path, &text).unwrap();
        }
        let published = std::fs::read_to_string(path).unwrap_or_default();
        assert!(published == text, "{path} is old; make it anew with WEIR_BLESS=1");
    }
}
