//! The columns of the tables: what each shows of a row under a load.

use crate::experiment::plan::Row;
use crate::experiment::ranking::Ranking;
use crate::report::number::{UNKNOWN, bytes, microseconds, or_unknown, per_message, percent, si};
use crate::stats::latency;
use crate::tcp::results::Results;
use crate::tcp::rows::title;
use crate::tcp::sample::{
    CONTEXT_SWITCHES, CPU, CPU_PER_BYTE, KERNEL_ENTRIES, KERNEL_MEMORY, MEMORY, MESSAGES, RECEIVED,
    SENT, SERVER_CPU, Sample, THREADS, TcpMetric, WAITS, word,
};
use crate::udp::report::columns::{ratio, spread_of};
use crate::wire::Latency;

type Cell = crate::experiment::cell::Cell<Sample>;

/// Fewest connections of which the kernel's memory is told from what it holds besides.
pub const FEWEST_FOR_KERNEL_MEMORY: u64 = 500;

/// What a cell of a table is made from.
pub struct At<'a> {
    /// All results.
    pub results: &'a Results,
    /// The ranking of the row's group under this load.
    pub ranking: &'a Ranking,
    /// Index of the load.
    pub load: usize,
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

    fn text(&self, metric: &TcpMetric, text: impl Fn(f64) -> String) -> String {
        let estimate = self.cell().estimate(metric, self.results.seed);
        or_unknown(estimate.map(|estimate| estimate.median), text)
    }

    fn latency(&self, of: fn(&Latency) -> u64) -> String {
        let all = latency::merged(&self.cell().samples);
        or_unknown(all.map(|all| of(&all) as f64), microseconds)
    }
}

/// Entries into the kernel, or how many there were at least.
fn entries(at: &At) -> String {
    let entries = at.cell().entries(&KERNEL_ENTRIES, at.results.seed);
    at.cell().entries_text(or_unknown(entries, per_message))
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
    words("design", |at| title(at.row())),
    words("provider", |at| at.row().shown_provider().unwrap_or(UNKNOWN).to_owned()),
];

/// The result first, then why.
const ALL: &[Column] = &[
    figure("messages/s\n", messages),
    figure("±\n", |at| spread_of(at.cell(), &MESSAGES, at.results.seed)),
    figure("× best\n", to_best),
    figure("round trip µs\np50/p99", |at| {
        format!("{}/{}", at.latency(|l| l.p50), at.latency(|l| l.p99))
    }),
    figure("CPU\nns/message", |at| at.text(&CPU, |v| format!("{v:.0}"))),
    figure("CPU\nns/byte", |at| at.text(&CPU_PER_BYTE, crate::report::number::three_figures)),
    figure("CPU\nof cores", |at| at.text(&SERVER_CPU, |v| percent(v / 100.0))),
    words("limited\nby", limited_by),
    figure("calls\n/message", entries),
    figure("waits\n/message", |at| at.text(&WAITS, per_message)),
    figure("switches\n/message", |at| at.text(&CONTEXT_SWITCHES, per_message)),
    figure("threads\n", |at| at.text(&THREADS, |v| format!("{v:.0}"))),
    figure("memory\n", |at| at.text(&MEMORY, bytes)),
    figure("kernel\n", kernel),
    figure("served/\nasked for", served),
];

/// Bytes in both directions: what matters where messages are long, and where the original had no other
/// figure.
const THROUGHPUT: &[Column] = &[
    figure("bytes/s\nsent", |at| at.text(&SENT, si)),
    figure("bytes/s\nreceived", |at| at.text(&RECEIVED, si)),
];

/// The columns of a load.
pub fn of(results: &Results, load: usize) -> Vec<Column> {
    let mut columns = ALL.to_vec();
    let of = &results.loads[load];
    if of.block_bytes_per_s.is_some() || of.message_bytes >= 1024 {
        columns.splice(3..3, THROUGHPUT.iter().copied());
    }
    columns
}

fn messages(at: &At) -> String {
    let at_least = at.cell().verdict().is_some_and(|verdict| verdict.lower_bound)
        && at.results.loads[at.load].block_bytes_per_s.is_none();
    let sign = if at_least { "≥" } else { "" };
    at.text(&MESSAGES, |rate| format!("{sign}{}", si(rate)))
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

fn limited_by(at: &At) -> String {
    match at.results.status(at.load, at.row).without_figures() {
        Some(word) => word.into(),
        None if at.results.invalid(at.load, at.row).is_some() => "INVALID".into(),
        None => at.cell().verdict().map_or_else(|| UNKNOWN.into(), |v| word(v.limited_by).into()),
    }
}

fn kernel(at: &At) -> String {
    let enough = |sample: &Sample| sample.connected >= FEWEST_FOR_KERNEL_MEMORY;
    match at.cell().samples.iter().all(enough) {
        true => at.text(&KERNEL_MEMORY, bytes),
        false => UNKNOWN.into(),
    }
}

/// Connections that were served to the end, in the run that served the fewest.
fn served(at: &At) -> String {
    let fewest = at.cell().standing().min_by_key(|sample| sample.served());
    fewest.map_or_else(|| UNKNOWN.into(), |sample| format!("{}/{}", sample.served(), sample.asked))
}
