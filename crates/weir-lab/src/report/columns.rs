//! The columns of the tables: what each shows of a row under a load, and what that means.

use crate::experiment::cell::{Cell, Measured, Metric};
use crate::experiment::plan::Row;
use crate::experiment::ranking::Ranking;
use crate::experiment::results::Results;
use crate::report::Reported;
use crate::report::number::{UNKNOWN, factor, or_unknown, percent};
use crate::stats::compare::Difference;
use crate::stats::{Estimate, bootstrap};

/// A word beside a name, and what it means.
pub type Mark = (&'static str, &'static str);

/// See [`MARKS`].
pub const TIED: Mark = ("tied", "one of the best, which are alike within the noise");
/// See [`MARKS`].
pub const OPEN: Mark =
    ("undecided", "too few comparable rounds, or too much noise, to tell it from the best");
/// See [`MARKS`].
pub const AGAIN: Mark = ("second name", "the same row under a second name, which shows the noise");
/// See [`MARKS`].
pub const UNAVAILABLE: Mark =
    ("cannot run here", "the system lacks something; the reason is below, under what was left out");
/// See [`MARKS`].
pub const FAILED: Mark =
    ("failed", "its check or its runs failed; the reason is below, under what was left out");
/// See [`MARKS`].
pub const NOT_MEASURED: Mark = (
    "not measured",
    "there was no time for it, or nothing to measure; the reason is below, under what was left out",
);
/// See [`MARKS`].
pub const NOT_RANKED: Mark = (
    "not ranked",
    "its figures cannot be held against the others'; the reason is below, under what was left out",
);

/// All words beside names.
pub const MARKS: [Mark; 7] = [TIED, OPEN, AGAIN, UNAVAILABLE, FAILED, NOT_MEASURED, NOT_RANKED];

/// What the column of a figure's interval means.
pub const ABOUT_SPREAD: &str = "half of its 95 % interval; in brackets, with fewer than 6 rounds, half of their range, \
                                which is not an interval";
/// What the column of a row's figure to the best one's means.
pub const ABOUT_TO_BEST: &str = "ratio to the best row of its group, the median over pairs of runs of one round; ~ a \
                                 tie, within the noise; ? undecided, too few pairs; - not ranked (reason below the \
                                 table; its figures are not compared). (again): the same row under a second name, \
                                 which shows the noise";

/// What a cell of a table is made from.
pub struct At<'a, K: Reported> {
    /// All results.
    pub results: &'a Results<K>,
    /// The ranking of the row's group under this load.
    pub ranking: &'a Ranking,
    /// Index of the load.
    pub load: usize,
    /// Index of the row.
    pub row: usize,
}

impl<K: Reported> At<'_, K> {
    /// The row.
    pub fn row(&self) -> &Row {
        &self.results.rows[self.row]
    }

    /// The row under the load.
    pub fn cell(&self) -> &Cell<K::Sample> {
        &self.results.cells[self.load][self.row]
    }

    /// The median of a metric.
    pub fn median(&self, metric: &Metric<K::Sample>) -> Option<f64> {
        self.results.median(self.load, self.row, metric)
    }

    /// A metric as it is written.
    pub fn text(&self, metric: &Metric<K::Sample>) -> String {
        or_unknown(self.median(metric), metric.text)
    }

    fn has_lower_bound(&self) -> bool {
        self.cell().verdict().is_some_and(|verdict| verdict.lower_bound)
    }
}

/// What a column shows of a row.
type Text<K> = Box<dyn Fn(&At<K>) -> String>;

/// One column.
pub struct Column<K: Reported> {
    /// Its heading; the second line says the unit or the parts.
    pub heading: &'static str,
    /// True for figures, which stand to the right.
    pub figure: bool,
    /// What it means.
    pub about: String,
    /// The text for a row.
    pub text: Text<K>,
}

impl<K: Reported> Column<K> {
    /// A column of figures.
    pub fn figure(
        heading: &'static str,
        about: impl Into<String>,
        text: impl Fn(&At<K>) -> String + 'static,
    ) -> Self {
        Self { heading, figure: true, about: about.into(), text: Box::new(text) }
    }

    /// A column of words.
    pub fn words(
        heading: &'static str,
        about: impl Into<String>,
        text: impl Fn(&At<K>) -> String + 'static,
    ) -> Self {
        Self { figure: false, ..Self::figure(heading, about, text) }
    }

    /// The column of a metric.
    pub fn of(metric: &'static Metric<K::Sample>) -> Self {
        Self::figure(metric.heading, metric.about, |at| at.text(metric))
    }

    /// The same of one that is a lower bound where something else was the limit.
    pub fn bounded(metric: &'static Metric<K::Sample>) -> Self {
        Self::figure(metric.heading, metric.about, |at| {
            format!("{}{}", if at.has_lower_bound() { "≥" } else { "" }, at.text(metric))
        })
    }

    /// Several metrics of which the first says what they mean.
    pub fn parts(heading: &'static str, metrics: &'static [&'static Metric<K::Sample>]) -> Self {
        Self::figure(heading, metrics[0].about, |at| {
            let parts: Vec<String> = metrics.iter().map(|metric| at.text(metric)).collect();
            match parts.iter().all(|part| part == UNKNOWN) {
                true => UNKNOWN.into(),
                false => parts.join("/"),
            }
        })
    }

    /// Entries into the kernel, or how many there were at least.
    pub fn entries(metric: &'static Metric<K::Sample>) -> Self {
        let about = format!(
            "{}; ≥: futex calls, by which threads wait for and wake each other, are not counted, so this \
             number is not compared with others",
            metric.about.trim_end_matches('.')
        );
        Self::figure(metric.heading, about, |at| {
            let entries = at.cell().entries(metric, at.results.seed);
            at.cell().entries_text(or_unknown(entries, metric.text))
        })
    }

    /// How sure a metric is: half of its interval.
    pub fn spread(metric: &'static Metric<K::Sample>) -> Self {
        Self::figure("±\n", ABOUT_SPREAD, |at| spread_of(at.cell(), metric, at.results.seed))
    }

    /// The row's figure to the winner's: 1 for the winner.
    pub fn to_best() -> Self {
        Self::figure("× best\n", ABOUT_TO_BEST, |at| {
            let place = at.ranking.place(at.row).filter(|_| !at.ranking.is_too_noisy());
            place.map_or_else(
                || UNKNOWN.into(),
                |place| match &place.winner_to_it {
                    None => "1".into(),
                    Some(difference) => ratio(difference, |winner_to_it| 1.0 / winner_to_it),
                },
            )
        })
    }

    /// The row's figure to that of the row that is the measure.
    pub fn to_measure(heading: &'static str, about: &'static str) -> Self {
        Self::figure(heading, about, |at| {
            let Some(place) = at.ranking.place(at.row).filter(|_| !at.ranking.is_too_noisy())
            else {
                return UNKNOWN.into();
            };
            match &place.to_traditional {
                None if at.results.measure() == Some(at.row) => "1".into(),
                None => UNKNOWN.into(),
                Some(difference) => ratio(difference, |to_it| to_it),
            }
        })
    }

    /// What limited its runs, or why there are no figures.
    pub fn limited_by() -> Self {
        Self::words("limited\nby", K::LIMITS, |at| limit(at.results, at.load, at.row).into())
    }
}

/// What limited the runs of a row under a load, in a word, or why there are no figures.
pub(crate) fn limit<K: Reported>(results: &Results<K>, load: usize, row: usize) -> &'static str {
    match results.status(load, row).without_figures() {
        Some(word) => word,
        None if results.is_invalid(load, row) => "INVALID",
        None => match (K::doubted(results, load, row), results.cells[load][row].verdict()) {
            (Some(word), _) => word,
            (None, Some(verdict)) => K::word(verdict.limited_by),
            (None, None) => UNKNOWN,
        },
    }
}

/// The columns that name a row: they stand in every part of a table.
pub(crate) fn names<K: Reported>() -> Vec<Column<K>> {
    vec![
        Column::words("design", "", |at| K::name(at.row())),
        Column::words("provider", "", |at| at.row().shown_provider().unwrap_or(UNKNOWN).to_owned()),
    ]
}

/// Half of the interval; in brackets half of the range where there are too few samples for one.
fn spread_of<S: Measured>(cell: &Cell<S>, metric: &Metric<S>, seed: u64) -> String {
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

/// A ratio with a sign that says what it is worth.
pub(crate) fn ratio(difference: &Difference, of: fn(f64) -> f64) -> String {
    let text = |ratio: &Estimate| factor(of(ratio.median));
    match difference {
        Difference::Real(ratio) => text(ratio),
        Difference::Tie(ratio) => format!("~{}", text(ratio)),
        Difference::TooFew(Some(ratio)) => format!("?{}", text(ratio)),
        Difference::TooFew(None) => "?".into(),
    }
}
