//! One row under one load, whatever was measured: its samples, what failed, and what every figure of it
//! is made of.

use crate::experiment::plan::Row;
use crate::experiment::plan::budget::NO_TIME;
use crate::experiment::verdict::{Verdict, of_runs};
use crate::report::number::{UNKNOWN, percent};
use crate::stats::compare::{Reading, alike};
use crate::stats::{CONFIDENCE, Estimate, bootstrap, median};
use crate::wire::Latency;
use serde::Serialize;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use weir::counters::{ALL_ENTRIES, ENTRIES_BY_KERNEL, ENTRIES_SOURCE, ENTRIES_WITHOUT_FUTEX};
use weir::machine::MOST_LOAD_OF_OTHERS;

/// What disturbed a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Disturbance {
    /// The machine became another (core to core) in the middle.
    MachineChanged,
    /// The generator did not keep its pace.
    PaceNotKept,
    /// Datagrams were lost though fewer were offered than the row takes.
    Lost,
    /// The account of the datagrams does not balance.
    Unbalanced,
    /// The server took nothing while it was measured, and not all that was sent arrived.
    NothingTaken,
    /// Connections were not made or broke, or messages were not answered.
    Incomplete,
}

impl Disturbance {
    /// Whether the row itself may have caused it.
    pub(crate) fn may_be_its_own(self) -> bool {
        matches!(self, Self::Lost | Self::Unbalanced | Self::NothingTaken | Self::Incomplete)
    }

    /// In words.
    pub(crate) fn said(self) -> &'static str {
        match self {
            Self::MachineChanged => "the machine changed (core to core)",
            Self::PaceNotKept => "the generator did not keep its pace",
            Self::Lost => "datagrams were lost below saturation",
            Self::Unbalanced => "the ledger did not balance",
            Self::NothingTaken => "the server took nothing while it was measured",
            Self::Incomplete => "connections or answers were missing",
        }
    }
}

/// When a run was made, and on what machine.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct When {
    /// The block it belongs to.
    pub block: u32,
    /// False if the machine was another than during most runs of the load, so that the medians are
    /// taken without it.
    pub counted: bool,
    /// Nanoseconds of a cache line's way from core to core just before it.
    pub core_to_core_ns: Option<f64>,
    /// The same just after it.
    pub core_to_core_after_ns: Option<f64>,
    /// Share (0 to 1) of all cores that other programs had meanwhile, if known.
    pub load_of_others: Option<f64>,
    /// Which attempt it is at this run of its block, from 1.
    pub attempt: u32,
    /// What disturbed it, if anything did.
    pub disturbed: Option<Disturbance>,
    /// Whether another attempt stands in its place ([`crate::experiment::repeat`]).
    pub replaced: bool,
}

impl Default for When {
    fn default() -> Self {
        Self {
            block: 0,
            counted: true,
            core_to_core_ns: None,
            core_to_core_after_ns: None,
            load_of_others: None,
            attempt: 1,
            disturbed: None,
            replaced: false,
        }
    }
}

impl When {
    /// In a block, and nothing is known of the machine.
    pub fn in_block(block: u32) -> Self {
        Self { block, ..Self::default() }
    }

    /// Its time from core to core before and after.
    fn times(&self) -> [Option<f64>; 2] {
        [self.core_to_core_ns, self.core_to_core_after_ns]
    }
}

/// What every sample has, whatever it tells of.
pub trait Measured {
    /// When it was made, and on what machine.
    fn when(&self) -> &When;
    /// The same, to be changed.
    fn when_mut(&mut self) -> &mut When;
    /// What limited the run.
    fn verdict(&self) -> &Verdict;
    /// Why nothing may be concluded from it, if so.
    fn invalid(&self) -> Option<String>;

    /// What of that no repeat mends: it holds for the row, whichever attempt stands.
    fn wrong(&self) -> Option<String> {
        self.invalid()
    }

    /// Its latencies, and the histogram that they are of; that is empty if there was none.
    fn latencies(&self) -> (Option<Latency>, &[(u64, u64)]);

    /// The settings as obtained, by name.
    fn settings(&self) -> &BTreeMap<String, String>;

    /// Whether the machine became another (core to core) in the middle of the run.
    fn changed_machine(&self) -> bool {
        let [before, after] = self.when().times();
        !alike(before, after)
    }

    /// What disturbed the run, if anything did; nothing where what is wrong no repeat mends.
    fn disturbance(&self) -> Option<Disturbance> {
        (self.wrong().is_none() && self.changed_machine()).then_some(Disturbance::MachineChanged)
    }

    /// One metric with what is needed to pair it. `None` where it is unknown, for a run in the
    /// middle of which the machine became another, and for one in whose place another stands.
    fn reading(&self, metric: &Metric<Self>) -> Option<Reading>
    where
        Self: Sized,
    {
        if self.changed_machine() || self.when().replaced {
            return None;
        }
        let value = (metric.of)(self)?;
        let When { block, core_to_core_ns, .. } = *self.when();
        Some(Reading { block, value, core_to_core_ns })
    }
}

/// What of [`Measured`] is told by fields of the same names; settings are those of what is named.
macro_rules! measured {
    ($($of:ident).*) => {
        fn when(&self) -> &$crate::experiment::cell::When {
            &self.when
        }

        fn when_mut(&mut self) -> &mut $crate::experiment::cell::When {
            &mut self.when
        }

        fn verdict(&self) -> &$crate::experiment::verdict::Verdict {
            &self.verdict
        }

        fn settings(&self) -> &std::collections::BTreeMap<String, String> {
            &self.$($of.)*settings
        }

        fn latencies(&self) -> (Option<$crate::wire::Latency>, &[(u64, u64)]) {
            (self.latency_ns, &self.$($of.)*latency_histogram)
        }
    };
}
pub(crate) use measured;

/// Which end of a metric is the good one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// More is better: datagrams per second.
    Higher,
    /// Less is better: latency.
    Lower,
}

impl Better {
    /// The order of two figures, the better one first.
    pub fn first(self, a: f64, b: f64) -> Ordering {
        match self {
            Self::Higher => b.total_cmp(&a),
            Self::Lower => a.total_cmp(&b),
        }
    }
}

/// A figure that every sample may have, and all that is known of it: tables, legends and documents follow.
pub struct Metric<S> {
    /// Its name in the document; a dot makes an object of it.
    pub name: &'static str,
    /// Its unit there.
    pub unit: &'static str,
    /// What it means, in a sentence.
    pub about: &'static str,
    /// The heading of its column, whose second line says the unit or the parts.
    pub heading: &'static str,
    /// Which end of it is the good one.
    pub better: Better,
    /// How it stands in a table.
    pub text: fn(f64) -> String,
    /// Takes it from a sample.
    pub of: fn(&S) -> Option<f64>,
}

/// Metrics of a kind of sample, each by a name, and all of them in the order of the document: its meaning, its
/// place and unit in the document, the heading of its column, which end is the good one, and how it is written.
macro_rules! metrics {
    ($Sample:ty; $(
        $(#[doc = $about:literal])* $ident:ident, $name:literal, $unit:literal, $heading:literal,
        $better:ident, $text:expr, $of:expr;
    )*) => {
        $(
            $(#[doc = $about])*
            pub const $ident: $crate::experiment::cell::Metric<$Sample> =
                $crate::experiment::cell::Metric {
                    name: $name,
                    unit: $unit,
                    about: concat!($($about),*),
                    heading: $heading,
                    better: $crate::experiment::cell::Better::$better,
                    text: $text,
                    of: $of,
                };
        )*
        /// Every metric, in the order of the document.
        pub const METRICS: &[$crate::experiment::cell::Metric<$Sample>] = &[$($ident),*];
    };
}
pub(crate) use metrics;

/// Whether a row did what every design must do, before it was timed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Conformance {
    /// Not looked at: the row cannot run here, or the experiment ended before.
    NotChecked,
    /// Everything arrived once and whole.
    Passed,
    /// It did not, and why.
    Failed(String),
}

/// How a row under a load ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// At least one run succeeded.
    Ok,
    /// It cannot run on this machine.
    Unavailable,
    /// There was no time for a run of it, or nothing to measure.
    NotMeasured,
    /// It failed its check, or no run succeeded.
    Failed,
}

impl Status {
    /// Its name in the document.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Unavailable => "unavailable",
            Self::NotMeasured => "not_measured",
            Self::Failed => "failed",
        }
    }

    /// What stands in a table in place of figures; `None` where there are some.
    pub fn without_figures(self) -> Option<&'static str> {
        match self {
            Self::Ok => None,
            Self::NotMeasured => Some("not measured"),
            Self::Unavailable | Self::Failed => Some(self.name()),
        }
    }
}

/// Why there was nothing to run of a row under a load: that is no failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Skipped {
    /// It cannot run under this load on this machine.
    Unavailable(String),
    /// There was no time for it, or nothing to measure.
    NotMeasured(String),
}

impl Skipped {
    /// Why.
    pub fn reason(&self) -> &String {
        match self {
            Self::Unavailable(reason) | Self::NotMeasured(reason) => reason,
        }
    }

    /// How such a row ended.
    fn status(&self) -> Status {
        match self {
            Self::Unavailable(_) => Status::Unavailable,
            Self::NotMeasured(_) => Status::NotMeasured,
        }
    }
}

/// One row under one load.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell<S> {
    /// Its successful runs, in the order of time.
    pub samples: Vec<S>,
    /// Why its other runs failed, each once.
    pub failures: Vec<String>,
    /// How many runs failed.
    pub failed_runs: u32,
    /// Why there was nothing to run, if so.
    pub skipped: Option<Skipped>,
    /// Entries into the kernel as the kernel counted them in a run of their own, for what the metric of entries is
    /// for; `None` where that was not needed or is not permitted.
    pub entries_counted: Option<f64>,
    /// True if most of its runs were made while the machine was another than during most runs
    /// of the load, so that its figures cannot be compared.
    pub of_another_machine: bool,
}

impl<S> Default for Cell<S> {
    fn default() -> Self {
        Self {
            samples: vec![],
            failures: vec![],
            failed_runs: 0,
            skipped: None,
            entries_counted: None,
            of_another_machine: false,
        }
    }
}

/// Why a cell of another machine has no rank.
pub(crate) const OF_ANOTHER_MACHINE: &str = "the machine changed (core to core): fewer than 3 of its runs \
                                         match those of the other rows";

/// Fewest samples of the usual machine that a median may rest on alone.
const FEWEST_ALIKE: usize = 3;

/// Most different reasons of failure that a cell keeps; further ones are only counted.
pub const MOST_FAILURES_KEPT: usize = 8;

impl<S: Measured> Cell<S> {
    /// Notes a run that failed.
    pub fn failed(&mut self, reason: String) {
        self.failed_runs += 1;
        if !self.failures.contains(&reason) && self.failures.len() < MOST_FAILURES_KEPT {
            self.failures.push(reason);
        }
    }

    /// Notes that there was no time for a run, where none was made.
    pub fn had_no_time(&mut self) {
        if self.samples.is_empty() && self.failed_runs == 0 {
            self.skipped.get_or_insert_with(|| Skipped::NotMeasured(NO_TIME.into()));
        }
    }

    /// How its row ended.
    pub fn status(&self, row: &Row, conformance: &Conformance) -> Status {
        if row.unavailable.is_some() {
            Status::Unavailable
        } else if !self.samples.is_empty() {
            Status::Ok
        } else if self.failed_runs > 0 || matches!(conformance, Conformance::Failed(_)) {
            Status::Failed
        } else {
            self.skipped.as_ref().map_or(Status::NotMeasured, Skipped::status)
        }
    }

    /// Why there are no figures of its row, or none that may be used; `None` if there are.
    pub fn without_figures(&self, row: &Row, conformance: &Conformance) -> Option<String> {
        if let Some(reason) = &row.unavailable {
            return Some(reason.clone());
        }
        if let Conformance::Failed(reason) = conformance {
            return Some(format!("failed the check before timing: {reason}"));
        }
        self.samples.is_empty().then(|| self.why_empty())
    }

    /// Where its entries into the kernel were counted; `None` where nothing says so.
    pub fn entries_source(&self) -> Option<&str> {
        if self.entries_counted.is_some() {
            return Some(ENTRIES_BY_KERNEL);
        }
        self.samples.last()?.settings().get(ENTRIES_SOURCE).map(String::as_str)
    }

    /// Whether all its entries into the kernel were counted. Else there were so many at least, and it is compared with
    /// no other by them.
    pub fn counts_all_entries(&self) -> bool {
        matches!(self.entries_source(), Some(ALL_ENTRIES | ENTRIES_BY_KERNEL))
    }

    /// Whether the server says that its own count leaves entries out.
    pub fn leaves_entries_out(&self) -> bool {
        self.entries_source() == Some(ENTRIES_WITHOUT_FUTEX)
    }

    /// Notes what came of a run in which the kernel counted entries, if it did.
    pub fn note_entries(&mut self, sample: &S, metric: &Metric<S>) {
        let source = sample.settings().get(ENTRIES_SOURCE).map(String::as_str);
        if source == Some(ENTRIES_BY_KERNEL) {
            self.entries_counted = (metric.of)(sample);
        }
    }

    /// Entries into the kernel: the kernel's count where there is one, else the median of the server's own.
    pub fn entries(&self, metric: &Metric<S>, seed: u64) -> Option<f64> {
        self.entries_counted.or_else(|| Some(self.estimate(metric, seed)?.median))
    }

    /// How a number of entries stands in a table.
    pub(crate) fn entries_text(&self, number: String) -> String {
        match self.counts_all_entries() || number == UNKNOWN {
            true => number,
            false => format!("≥ {number}"),
        }
    }

    /// The samples in whose place no other attempt stands.
    pub fn standing(&self) -> impl DoubleEndedIterator<Item = &S> {
        self.samples.iter().filter(|sample| !sample.when().replaced)
    }

    /// What makes its figures wrong, if anything. All samples that stand are looked at, counted or not: wrong
    /// data are an error on any machine. What no repeat mends counts in all attempts, replaced or not.
    pub fn invalid(&self) -> Option<String> {
        let wrong = self.samples.iter().find_map(Measured::wrong);
        wrong.or_else(|| self.standing().find_map(Measured::invalid))
    }

    /// The samples that count: what every figure of the cell is made of.
    pub fn counted(&self) -> impl Iterator<Item = &S> {
        self.samples.iter().filter(|sample| sample.when().counted)
    }

    /// The values of a metric, where known, of the samples that count.
    pub fn values(&self, metric: &Metric<S>) -> Vec<f64> {
        self.counted().filter_map(|sample| (metric.of)(sample)).collect()
    }

    /// The values of a metric with their blocks.
    pub fn readings(&self, metric: &Metric<S>) -> Vec<Reading> {
        self.samples.iter().filter_map(|sample| sample.reading(metric)).collect()
    }

    /// Median and interval of a metric.
    pub fn estimate(&self, metric: &Metric<S>, seed: u64) -> Option<Estimate> {
        bootstrap::estimate(&self.values(metric), CONFIDENCE, seed)
    }

    /// What limited most of the samples that count.
    pub fn verdict(&self) -> Option<Verdict> {
        let verdicts: Vec<Verdict> = self.counted().map(|s| s.verdict().clone()).collect();
        of_runs(&verdicts)
    }

    /// Why there are no figures, where there are none.
    pub fn why_empty(&self) -> String {
        match self.failures.first().or(self.skipped.as_ref().map(Skipped::reason)) {
            Some(reason) => reason.clone(),
            None => "the experiment ended before its first run".into(),
        }
    }
}

/// Whether there are no figures since there was no time for a run: none was made, not even one that failed.
pub(crate) fn had_no_time<S>(cells: &[Vec<Cell<S>>]) -> bool {
    let cells = || cells.iter().flatten();
    let lacked_time = |cell: &Cell<S>| matches!(cell.skipped, Some(Skipped::NotMeasured(_)));
    cells().all(|cell| cell.samples.is_empty() && cell.failed_runs == 0) && cells().any(lacked_time)
}

/// Whether a row was not checked though it can run, since there was no time for that.
pub(crate) fn any_unchecked(rows: &[Row], conformance: &[Conformance]) -> bool {
    let unchecked = |(row, conformance): (&Row, &Conformance)| {
        row.unavailable.is_none() && *conformance == Conformance::NotChecked
    };
    rows.iter().zip(conformance).any(unchecked)
}

/// Takes out of the medians of one load what was measured while the machine was another one: a
/// virtual machine may change its speed from one minute to the next, and its time from
/// core to core with it. What most runs of a load had is the measure. A row that would
/// keep fewer than `FEWEST_ALIKE` keeps all, but cannot be ranked among the others.
pub fn count_only_alike<S: Measured>(cells: &mut [Cell<S>]) {
    let times: Vec<f64> = cells
        .iter()
        .flat_map(|cell| cell.standing())
        .filter_map(|sample| sample.when().core_to_core_ns)
        .collect();
    let usual = median(&times);
    for cell in cells {
        let like = |sample: &S| {
            let times = sample.when().times();
            times.into_iter().all(|time| alike(time, usual))
        };
        let like_count = cell.standing().filter(|s| like(s)).count();
        let enough = like_count >= FEWEST_ALIKE;
        cell.of_another_machine = !enough && like_count < cell.standing().count();
        cell.samples.iter_mut().for_each(|s| {
            s.when_mut().counted = !s.when().replaced && (!enough || like(s));
        });
    }
}

/// Warns if other programs had a good part of the cores, of which these are the shares in each run.
pub(crate) fn busy_machine(loads: &[f64]) -> Option<String> {
    let busy = loads.iter().filter(|load| **load > MOST_LOAD_OF_OTHERS).count();
    (busy * 10 >= loads.len().max(1)).then(|| {
        format!(
            "other programs used {} of the CPU (median; more than {} in {busy} of {} runs): the figures are too \
             low, and rows are not compared fairly; stop those programs",
            percent(median(loads).unwrap_or(0.0)),
            percent(MOST_LOAD_OF_OTHERS),
            loads.len()
        )
    })
}
