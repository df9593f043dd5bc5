//! The columns of the tables: what each shows of a row under a load.

use crate::experiment::cell::{self, Measured};
use crate::experiment::plan::Row;
use crate::experiment::ranking::Ranking;
use crate::report::number::{UNKNOWN, bytes, microseconds, or_unknown, per_1000, percent, si};
use crate::stats::compare::Difference;
use crate::stats::latency;
use crate::stats::{Estimate, bootstrap};
use crate::udp::ledger::Ledger;
use crate::udp::results::Results;
use crate::udp::sample::Cell;
use crate::udp::sample::{
    BATCH_P10, BATCH_P50, BATCH_P90, CONTEXT_SWITCHES, CPU, KERNEL_ENTRIES, LATENCY_MAX,
    LATENCY_P50, LATENCY_P99, LATENCY_P999, MEMORY, Metric, OFFERED, PACE, PERCENT_OF_SENT,
    RECEIVED, SERVER_CPU, THREADS_CPU, THREADS_STARTED, THREADS_USED,
};
use crate::wire::Latency;

/// What a cell of a table is made from.
pub struct At<'a> {
    /// All results.
    pub results: &'a Results,
    /// The ranking of this load.
    pub ranking: &'a Ranking,
    /// Index of the load.
    pub load: usize,
    /// Index of the load whose latency a table of saturation borrows.
    pub latency_load: Option<usize>,
    /// Index of the row.
    pub row: usize,
}

impl At<'_> {
    fn row(&self) -> &Row {
        &self.results.rows[self.row]
    }

    fn cell(&self) -> &Cell {
        &self.results.cells[self.load][self.row]
    }

    fn median(&self, metric: &Metric) -> Option<f64> {
        median(self.cell(), metric, self.results.seed)
    }

    /// A percentile of the latency in microseconds.
    fn latency(&self, metric: &Metric, of: fn(&Latency) -> u64) -> String {
        or_unknown(percentile(self.cell(), metric, of, self.results.seed), microseconds)
    }

    fn median_text(&self, metric: &Metric, text: impl Fn(f64) -> String) -> String {
        or_unknown(self.median(metric), text)
    }
}

fn median(cell: &Cell, metric: &Metric, seed: u64) -> Option<f64> {
    Some(cell.estimate(metric, seed)?.median)
}

/// A percentile of all runs' latencies together; where they cannot be merged, the median of the
/// runs' own.
pub(super) fn percentile(
    cell: &Cell,
    metric: &Metric,
    of: fn(&Latency) -> u64,
    seed: u64,
) -> Option<f64> {
    match latency::merged(&cell.samples) {
        Some(all) => Some(of(&all) as f64),
        None => median(cell, metric, seed),
    }
}

/// The largest latency of all runs that count.
fn largest(at: &At) -> String {
    or_unknown(at.cell().values(&LATENCY_MAX).into_iter().reduce(f64::max), microseconds)
}

/// Entries into the kernel, or how many there were at least.
fn entries(at: &At) -> String {
    let entries = at.cell().entries(&KERNEL_ENTRIES, at.results.seed);
    at.cell().entries_text(or_unknown(entries, per_1000))
}

/// One column.
#[derive(Clone, Copy)]
pub struct Column {
    /// Its heading; the second line says the unit or the parts.
    pub heading: &'static str,
    /// True for figures, which stand to the right.
    pub figure: bool,
    /// The text for a row.
    pub text: fn(&At) -> String,
}

const fn words(heading: &'static str, text: fn(&At) -> String) -> Column {
    Column { heading, figure: false, text }
}

const fn figure(heading: &'static str, text: fn(&At) -> String) -> Column {
    Column { heading, figure: true, text }
}

/// The columns that name a row: they stand in every part of a table.
pub const NAMES: &[Column] = &[
    words("design", |at| at.row().title()),
    words("provider", |at| at.row().shown_provider().unwrap_or(UNKNOWN).to_owned()),
];

/// What a load of saturation shows: the result first, then why.
pub const THROUGHPUT: &[Column] = &[
    figure("threads\nused/all", threads),
    figure("received/s\n", received),
    figure("±\n", |at| spread(at, &RECEIVED)),
    figure("of\nsent", |at| at.median_text(&PERCENT_OF_SENT, percent_of_100)),
    figure("× best\n", to_best),
    figure("× trad.\n", to_traditional),
    figure("CPU\nns/dgram", |at| at.median_text(&CPU, |v| format!("{v:.0}"))),
    figure("latency µs\np50/p99", borrowed_latency),
    words("limited\nby", limited_by),
    figure("batch\np10/p50/p90", batches),
    figure("entries\n/1000", entries),
    figure("switches\n/1000", |at| at.median_text(&CONTEXT_SWITCHES, per_1000)),
    figure("memory\n", |at| at.median_text(&MEMORY, bytes)),
    figure("drops\ndev/cpu/sock", drops),
];

/// What is shown of the receiving threads alone, beside their process, on a link of its own.
const THREADS_CPU_COLUMN: Column =
    figure("thread\nns/dgram", |at| at.median_text(&THREADS_CPU, |v| format!("{v:.0}")));

/// The columns of a load.
pub fn of(results: &Results, load: usize) -> Vec<Column> {
    let mut columns =
        if results.loads[load].is_paced() { LATENCY.to_vec() } else { THROUGHPUT.to_vec() };
    let after = columns.iter().position(|column| column.heading.starts_with("CPU"));
    if let (Some(_), Some(after)) = (&results.own.link, after) {
        columns.insert(after + 1, THREADS_CPU_COLUMN);
    }
    columns
}

/// What a paced load shows.
pub const LATENCY: &[Column] = &[
    figure("threads\nused/all", threads),
    figure("offered/s\n", |at| at.median_text(&OFFERED, si)),
    figure("of\nsent", |at| at.median_text(&PERCENT_OF_SENT, percent_of_100)),
    figure("p50\nµs", |at| at.latency(&LATENCY_P50, |l| l.p50)),
    figure("±\n", |at| spread(at, &LATENCY_P50)),
    figure("× best\n", to_best),
    figure("p99\nµs", |at| at.latency(&LATENCY_P99, |l| l.p99)),
    figure("p99.9\nµs", |at| at.latency(&LATENCY_P999, |l| l.p999)),
    figure("max\nµs", largest),
    figure("CPU\nof cores", |at| at.median_text(&SERVER_CPU, |v| percent(v / 100.0))),
    figure("CPU\nns/dgram", |at| at.median_text(&CPU, |v| format!("{v:.0}"))),
    words("limited\nby", limited_by),
    figure("pace\nkept", |at| at.median_text(&PACE, percent_of_100)),
    figure("entries\n/1000", entries),
    figure("switches\n/1000", |at| at.median_text(&CONTEXT_SWITCHES, per_1000)),
    figure("drops\ndev/cpu/sock", drops),
];

fn threads(at: &At) -> String {
    let count = |metric| at.median_text(metric, |v| format!("{v:.0}"));
    format!("{}/{}", count(&THREADS_USED), count(&THREADS_STARTED))
}

fn received(at: &At) -> String {
    let at_least = at.cell().verdict().is_some_and(|verdict| verdict.lower_bound);
    let sign = if at_least { "≥" } else { "" };
    at.median_text(&RECEIVED, |rate| format!("{sign}{}", si(rate)))
}

fn spread(at: &At, metric: &Metric) -> String {
    spread_of(at.cell(), metric, at.results.seed)
}

/// Half of the interval; in brackets half of the range where there are too few samples for one.
pub(crate) fn spread_of<S: Measured>(
    cell: &cell::Cell<S>,
    metric: &cell::Metric<S>,
    seed: u64,
) -> String {
    let Some(estimate) = cell.estimate(metric, seed) else { return UNKNOWN.into() };
    let percent = |share: f64| if share > 1.0 { ">100 %".into() } else { percent(share) };
    if let Some(share) = estimate.relative_half_width() {
        return percent(share);
    }
    let values = cell.values(metric);
    let range = bootstrap::range(&values).filter(|_| values.len() > 1);
    let of_range = Estimate { interval: range, ..estimate };
    or_unknown(of_range.relative_half_width(), |share| format!("({})", percent(share)))
}

/// Percent that are near 100 keep a decimal, so that a small loss is seen.
fn percent_of_100(value: f64) -> String {
    match value {
        v if (99.995..=100.005).contains(&v) => "100 %".into(),
        v if v > 90.0 => format!("{v:.2} %"),
        v => percent(v / 100.0),
    }
}

fn to_traditional(at: &At) -> String {
    let Some(place) = at.ranking.place(at.row) else { return UNKNOWN.into() };
    if at.results.measure() == Some(at.row) {
        return "1".into();
    }
    place.to_traditional.map_or_else(|| UNKNOWN.into(), |difference| ratio(&difference, |r| r))
}

/// The row's figure to the winner's: 1 for the winner.
fn to_best(at: &At) -> String {
    let Some(place) = at.ranking.place(at.row).filter(|_| !at.ranking.is_too_noisy()) else {
        return UNKNOWN.into();
    };
    match &place.winner_to_it {
        None => "1".into(),
        Some(difference) => ratio(difference, |winner_to_it| 1.0 / winner_to_it),
    }
}

/// A ratio with a sign that says what it is worth.
pub(crate) fn ratio(difference: &Difference, of: fn(f64) -> f64) -> String {
    let text = |ratio: &Estimate| match of(ratio.median) {
        ratio if ratio < 99.5 => format!("{ratio:.2}"),
        ratio => format!("{ratio:.0}"),
    };
    match difference {
        Difference::Real(ratio) => text(ratio),
        Difference::Tie(ratio) => format!("~{}", text(ratio)),
        Difference::TooFew(Some(ratio)) => format!("?{}", text(ratio)),
        Difference::TooFew(None) => "?".into(),
    }
}

fn borrowed_latency(at: &At) -> String {
    let Some(load) = at.latency_load else { return UNKNOWN.into() };
    let cell = &at.results.cells[load][at.row];
    let of = |metric, of| percentile(cell, metric, of, at.results.seed).map(microseconds);
    match (of(&LATENCY_P50, |l: &Latency| l.p50), of(&LATENCY_P99, |l: &Latency| l.p99)) {
        (Some(p50), Some(p99)) => format!("{p50}/{p99}"),
        _ => UNKNOWN.into(),
    }
}

fn limited_by(at: &At) -> String {
    match at.results.status(at.load, at.row).without_figures() {
        Some(word) => word.into(),
        None if at.results.is_invalid(at.load, at.row) => "INVALID".into(),
        None if at.results.claimed(at.load, at.row).is_some() => "claimed".into(),
        None => at.cell().verdict().map_or_else(|| UNKNOWN.into(), |v| v.limited_by.word().into()),
    }
}

fn batches(at: &At) -> String {
    let of = |metric| at.median_text(metric, |v| format!("{v:.0}"));
    let parts = [of(&BATCH_P10), of(&BATCH_P50), of(&BATCH_P90)];
    if parts.iter().all(|part| part == UNKNOWN) { UNKNOWN.into() } else { parts.join("/") }
}

/// Drops at each place as percent of what was sent; `?` where a place cannot be seen.
fn drops(at: &At) -> String {
    let Some(ledger) = at.cell().ledger() else { return UNKNOWN.into() };
    let Ledger { sent, dropped_device, dropped_cpu_queue, dropped_socket, .. } = ledger;
    let share = |count: Option<u64>| match count {
        None => "?".into(),
        Some(0) => "0".into(),
        Some(count) => {
            let percent = count as f64 / (sent as f64).max(1.0) * 100.0;
            if percent < 0.1 { "<0.1".into() } else { one_decimal_if_small(percent) }
        }
    };
    let parts: [String; 3] =
        [share(dropped_device), share(dropped_cpu_queue), share(dropped_socket)];
    format!("{} %", parts.join("/"))
}

fn one_decimal_if_small(percent: f64) -> String {
    if percent < 9.95 { format!("{percent:.1}") } else { format!("{percent:.0}") }
}
