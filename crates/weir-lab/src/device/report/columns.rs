//! The columns of the tables: what each shows of a row under a load.

use crate::device::results::Results;
use crate::device::rows::title;
use crate::device::sample::{
    BYTES, CONTEXT_SWITCHES, CPU, CPU_SHARE, CPU_SYSTEM, DeviceMetric, HAND_OVERS, KERNEL_ENTRIES,
    RATE, Sample, TAKEN, word,
};
use crate::experiment::plan::Row;
use crate::experiment::ranking::Ranking;
use crate::report::number::{
    UNKNOWN, bytes, microseconds, or_unknown, per_message, percent, si, three_figures,
};
use crate::stats::latency;
use crate::udp::report::columns::{ratio, spread_of};
use crate::wire::Latency;

type Cell = crate::experiment::cell::Cell<Sample>;

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

    fn median(&self, metric: &DeviceMetric) -> Option<f64> {
        Some(self.cell().estimate(metric, self.results.seed)?.median)
    }

    fn text(&self, metric: &DeviceMetric, text: impl Fn(f64) -> String) -> String {
        or_unknown(self.median(metric), text)
    }

    fn latency(&self, of: fn(&Latency) -> u64) -> String {
        let all = latency::merged(&self.cell().samples);
        or_unknown(all.map(|all| of(&all) as f64), short_time)
    }
}

/// Nanoseconds as microseconds: many an I/O takes less than one.
pub fn short_time(ns: f64) -> String {
    if ns < 9950.0 { format!("{:.2}", ns / 1e3) } else { microseconds(ns) }
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
    figure("I/Os/s\n", |at| at.text(&RATE, si)),
    figure("±\n", |at| spread_of(at.cell(), &RATE, at.results.seed)),
    figure("× best\n", to_best),
    figure("× sync\n", to_measure),
    figure("latency µs\np50/p99", |at| {
        format!("{}/{}", at.latency(|l| l.p50), at.latency(|l| l.p99))
    }),
    figure("CPU ns/I/O\nuser/system", cpu),
    figure("CPU\nof a core", |at| at.text(&CPU_SHARE, |v| percent(v / 100.0))),
    words("limited\nby", limited_by),
    figure("calls\n/I/O", entries),
    figure("I/Os\n/take", |at| at.text(&TAKEN, three_figures)),
    figure("switches\n/I/O", |at| at.text(&CONTEXT_SWITCHES, small)),
    figure("hand-overs\n/I/O", |at| at.text(&HAND_OVERS, per_message)),
];

/// A count for each I/O, of which there may be very few.
fn small(value: f64) -> String {
    match value {
        v if v > 0.0 && v < 0.0005 => "<0.001".into(),
        v => per_message(v),
    }
}

/// The columns of a load.
pub fn of(results: &Results, load: usize) -> Vec<Column> {
    let mut columns = ALL.to_vec();
    let bytes_came = |cell: &Cell| cell.samples.iter().any(|sample| sample.bytes_per_s > 0.0);
    if results.cells[load].iter().any(bytes_came) {
        columns.insert(4, figure("bytes/s\n", |at| at.text(&BYTES, bytes)));
    }
    columns
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

/// The row's figure to that of plain reads.
fn to_measure(at: &At) -> String {
    let Some(place) = at.ranking.place(at.row).filter(|_| !at.ranking.is_too_noisy()) else {
        return UNKNOWN.into();
    };
    match &place.to_traditional {
        None if at.results.measure() == Some(at.row) => "1".into(),
        None => UNKNOWN.into(),
        Some(difference) => ratio(difference, |to_it| to_it),
    }
}

fn cpu(at: &At) -> String {
    let (Some(all), system) = (at.median(&CPU), at.median(&CPU_SYSTEM)) else {
        return UNKNOWN.into();
    };
    match system {
        Some(system) => format!("{:.0}/{system:.0}", (all - system).max(0.0)),
        None => format!("{all:.0} in all"),
    }
}

fn limited_by(at: &At) -> String {
    match at.results.status(at.load, at.row).without_figures() {
        Some(word) => word.into(),
        None if at.results.invalid(at.load, at.row).is_some() => "INVALID".into(),
        None => at.cell().verdict().map_or_else(|| UNKNOWN.into(), |v| word(v.limited_by).into()),
    }
}
