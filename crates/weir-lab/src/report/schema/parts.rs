//! What the documents of all comparisons have in common.

#![expect(dead_code, reason = "these types are only described: their comments stand in the schema")]

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde_json::Value;

use crate::hosts::Hosts;
use crate::report::conclusion::Conclusion;
use crate::report::schema::described::Described;
use crate::saved::claims::Judged;
use crate::saved::diff::Diff;

/// The document of a comparison of this kind.
pub type ComparisonOf<K> = Comparison<
    <K as Described>::OfAll,
    <K as Described>::OfLoad,
    <K as Described>::OfRow,
    <K as crate::experiment::results::Study>::Sample,
>;

/// A comparison of one kind.
#[derive(JsonSchema)]
pub struct Comparison<O, L, R, S> {
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
pub struct Dated {
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
pub struct Head {
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
pub struct Answer {
    question: String,
    sentences: Vec<String>,
}

#[derive(JsonSchema)]
pub struct Load<L> {
    /// How it is called in tables, and in the rows' load_name.
    name: String,
    /// The metric by which rows are ranked.
    ranked_by: String,
    confidence: Confidence,
    /// Rounds that were planned, ms of a run, and ms before it that do not count; null if it did not begin.
    rounds: Option<u32>,
    run_ms: Option<u64>,
    warmup_ms: Option<u64>,
    /// Rounds in which every row ran; null if it did not begin.
    rounds_complete: Option<usize>,
    /// That it was not measured, or had fewer rounds than planned, and why; null if it missed nothing.
    missed: Option<String>,
    #[serde(flatten)]
    own: L,
}

#[derive(JsonSchema)]
pub struct Confidence {
    /// Half the width of intervals that was asked for, in percent of the median.
    asked_half_width_percent: f64,
    /// The widest of all rows; null while one has no interval.
    widest_half_width_percent: Option<f64>,
    /// Whether all are as narrow as asked.
    reached: bool,
}

/// Rows that are ranked among each other.
#[derive(JsonSchema)]
pub struct Group<G> {
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
pub struct Row<R, S> {
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
    /// Where its runs were made, of a comparison over hosts: the server, and the generators that took part, with their links.
    #[serde(skip_serializing_if = "Option::is_none")]
    hosts: Option<Hosts>,
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
pub struct Difference {
    #[serde(flatten)]
    estimate: Estimate,
    /// real, tie or too_few_pairs.
    verdict: String,
    pairs: Option<usize>,
}

/// A median and the ends of its interval; null where there are too few samples.
#[derive(JsonSchema)]
pub struct Estimate {
    median: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
}

#[derive(JsonSchema)]
#[schemars(untagged)]
pub enum MetricOrGroup {
    Metric(Metric),
    Group(BTreeMap<String, Metric>),
}

#[derive(JsonSchema)]
pub struct Metric {
    #[serde(flatten)]
    estimate: Estimate,
    /// The figure of each run.
    samples: Vec<Option<f64>>,
    /// Which of them count; the others ran while the machine was another.
    counted: Vec<bool>,
    unit: String,
}

#[derive(JsonSchema)]
pub struct Peer {
    command: String,
}

/// The best design against the best peer, by one metric.
#[derive(JsonSchema)]
pub struct Against {
    metric: String,
    own: String,
    peer: String,
    own_to_peer: Difference,
    /// Of TCP: whether that design busy-polls.
    #[serde(skip_serializing_if = "Option::is_none")]
    polls: Option<bool>,
}

#[derive(JsonSchema)]
#[schemars(untagged)]
pub enum Part<C> {
    Made(C),
    Planned(Planned),
    Failed(Failed),
}

/// What a comparison would do, with --dry-run.
#[derive(JsonSchema)]
pub struct Planned {
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
pub struct Failed {
    schema_version: u32,
    command: Vec<String>,
    /// failed, or unavailable where this machine cannot run it.
    status: String,
    reason: String,
    machine: BTreeMap<String, Value>,
    results: [Value; 0],
    error: String,
}
