//! Two saved results held against each other: the machines first, then each row that both have.
//!
//! Their runs were not interleaved, so what changed on the machine between them is in every difference. What the rows of
//! a load have in common is therefore said apart, once, and each row is judged by what remains ([`apart()`]).

use std::fmt::Write as _;

use serde::Serialize;

use super::{Figure, Part};
use crate::experiment::cell::Better;
use crate::report::layout::{figures, paragraph, table_of_width};
use crate::report::number::{percent, si, three_figures};
use crate::report::words::list;
use crate::stats::apart::{self, Apart, FEWEST_ROWS, Judged, apart};
use crate::stats::compare::alike;
use crate::stats::{Estimate, median};

/// Properties of a machine of which none may differ where figures are compared.
const SAME: [&str; 6] =
    ["cpu_model", "cores", "kernel", "hypervisor", "architecture", "mitigations"];

/// What became of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Its figure is better, beyond the noise.
    Better,
    /// Its figure is worse, beyond the noise.
    Worse,
    /// No difference beyond the noise.
    WithinNoise,
    /// One of the results has too few rounds to tell.
    TooFewRounds,
}

impl Change {
    fn word(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Worse => "WORSE",
            Self::WithinNoise => "within the noise",
            Self::TooFewRounds => "too few rounds",
        }
    }
}

/// A row in both results.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Row {
    /// The load.
    pub load: String,
    /// The row.
    pub spec: String,
    /// The metric.
    pub metric: String,
    /// Its median before.
    pub before: f64,
    /// Its median after.
    pub after: f64,
    /// How many times the former the latter is.
    pub ratio: f64,
    /// The interval that this follows from both of theirs.
    pub low: Option<f64>,
    /// Its upper end.
    pub high: Option<f64>,
    /// How many times better than before it is by itself: what all rows of its load have in common is taken out, and
    /// more is better.
    pub own_ratio: f64,
    /// The lower end of its interval, which holds together with those of all rows at 95 % confidence.
    pub own_low: Option<f64>,
    /// Its upper end.
    pub own_high: Option<f64>,
    /// Differences below this share are noise, by the larger floor of both.
    pub noise_floor: Option<f64>,
    /// What that is worth.
    pub change: Change,
}

/// What the rows of a load changed in common.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Common {
    /// The load.
    pub load: String,
    /// How many rows both results have figures of.
    pub rows: usize,
    /// How many times better than before they are: the median of their ratios.
    pub ratio: f64,
    /// The lower end of its interval.
    pub low: Option<f64>,
    /// Its upper end.
    pub high: Option<f64>,
    /// What that is worth; `null` where it is not judged: there are too few rows to tell what they have in common, or
    /// the machines differ.
    pub change: Option<Change>,
}

/// Two results of one kind.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Diff {
    /// What was compared.
    pub kind: String,
    /// Properties of the machines that differ: name, before, after.
    pub machines: Vec<(String, String, String)>,
    /// Whether the machines are alike, so that figures as such are compared. Else only what a row changed against the
    /// others is.
    pub comparable: bool,
    /// The change that the rows of all loads have in common: the median of their ratios.
    pub common_ratio: Option<f64>,
    /// The change that the rows of each load have in common.
    pub commons: Vec<Common>,
    /// The rows that both have.
    pub rows: Vec<Row>,
    /// Rows and loads that only the first has.
    pub only_before: Vec<String>,
    /// Rows and loads that only the second has.
    pub only_after: Vec<String>,
}

impl Diff {
    /// Compares two results of the same kind.
    pub fn of(before: Part, after: Part) -> Self {
        let machines: Vec<_> = SAME
            .iter()
            .filter_map(|name| {
                let [a, b] = [before, after].map(|part| part.machine(name));
                let shown = |text: Option<String>| text.unwrap_or_else(|| "unknown".into());
                (a != b).then(|| ((*name).to_owned(), shown(a), shown(b)))
            })
            .chain(core_to_core(before, after))
            .chain(link(before, after))
            .collect();
        let comparable = machines.is_empty();
        let (old, new) = (before.figures(), after.figures());
        let same = |a: &Figure, b: &Figure| {
            (&a.load, a.name(), &a.provider, &a.metric)
                == (&b.load, b.name(), &b.provider, &b.metric)
        };
        let pairs: Vec<(&Figure, &Figure, Option<apart::Change>)> = old
            .iter()
            .filter_map(|a| Some((a, new.iter().find(|b| same(a, b))?)))
            .filter(|(a, b)| a.median > 0.0 && b.median > 0.0)
            .map(|(a, b)| (a, b, change(a, b)))
            .collect();
        let logarithms: Vec<f64> = pairs.iter().map(|(a, b, _)| better_by(a, b).ln()).collect();
        let of_loads = || pairs.chunk_by(|(a, ..), (b, ..)| a.load == b.load);
        let rows = pairs.iter().filter(|(_, _, change)| change.is_some()).count();
        let judged = Judged { rows, commons: of_loads().count() };
        let (mut rows, mut commons) = (vec![], vec![]);
        for of_load in of_loads() {
            let load = &of_load[0].0.load;
            let floor = before.noise_floor(load).zip(after.noise_floor(load));
            let floor = floor.map(|(a, b)| a.max(b));
            let changes: Vec<apart::Change> =
                of_load.iter().filter_map(|(_, _, change)| *change).collect();
            // On another machine only what a row changed against the others is judged, however few they are.
            let is_common = changes.len() >= FEWEST_ROWS || !comparable;
            let Apart { common, own } = apart(&changes, judged, is_common);
            let of_rows: Vec<f64> = of_load.iter().map(|(a, b, _)| better_by(a, b).ln()).collect();
            let taken_out = match common {
                Some(common) if is_common => common.median,
                // Without intervals nothing is judged, and what the rows have in common is theirs all the same.
                None if of_rows.len() >= FEWEST_ROWS || !comparable => {
                    median(&of_rows).map_or(1.0, f64::exp)
                }
                _ => 1.0,
            };
            let mut own = own.into_iter();
            rows.extend(of_load.iter().map(|(a, b, change)| {
                let own = change.and_then(|_| own.next());
                row(a, b, taken_out, own, floor)
            }));
            commons.extend(common.map(|common| Common {
                load: load.clone(),
                rows: changes.len(),
                ratio: common.median,
                low: common.interval.map(|interval| interval.low),
                high: common.interval.map(|interval| interval.high),
                change: (is_common && comparable).then(|| worth(Some(common), floor)),
            }));
        }
        let only = |of: &[Figure], others: &[Figure]| {
            let missing = of.iter().filter(|a| !others.iter().any(|b| same(a, b)));
            missing.map(|figure| format!("{} under {}", figure.spec, figure.load)).collect()
        };
        Self {
            kind: before.kind().to_owned(),
            machines,
            comparable,
            common_ratio: median(&logarithms)
                .filter(|_| logarithms.len() >= FEWEST_ROWS)
                .map(f64::exp),
            commons,
            rows,
            only_before: only(&old, &new),
            only_after: only(&new, &old),
        }
    }

    /// Of how many rows one of the results has too few rounds to tell.
    fn unjudged(&self) -> usize {
        self.rows.iter().filter(|row| row.change == Change::TooFewRounds).count()
    }

    /// Why nothing can be judged, where nothing can.
    pub fn why_not_judged(&self) -> Option<&'static str> {
        match (self.rows.len(), self.unjudged()) {
            (0, _) => Some("the two results have no row in common"),
            (all, unjudged) if all == unjudged => Some("all rows have too few rounds"),
            _ => None,
        }
    }

    /// Whether any row is worse, beyond the noise, or all rows of a load together are.
    pub fn has_regressed(&self) -> bool {
        let mut commons = self.commons.iter();
        self.rows.iter().any(|row| row.change == Change::Worse)
            || commons.any(|common| common.change == Some(Change::Worse))
    }

    /// What rows changed together, beyond the noise: a sentence for each load where they did.
    pub fn together(&self) -> impl Iterator<Item = String> {
        let changed = self.commons.iter().filter_map(|common| match common.change? {
            Change::Better => Some((common, "better")),
            Change::Worse => Some((common, "WORSE")),
            Change::WithinNoise | Change::TooFewRounds => None,
        });
        changed.map(|(common, word)| {
            let interval = common.low.zip(common.high);
            let interval = interval.map(|(low, high)| format!(" ({low:.2} to {high:.2})"));
            format!(
                "{word}: all {} rows under {} together are {:.2} times as good{}: the machine changed, or \
                 something that all of them share",
                common.rows,
                common.load,
                common.ratio,
                interval.unwrap_or_default()
            )
        })
    }

    /// For a person, at most so wide.
    pub fn text(&self, width: usize) -> String {
        let mut text = format!("{}\n", self.kind);
        let mut say = |words: &str| paragraph(&mut text, words, width);
        if self.comparable {
            say("The machines are alike.");
        } else {
            let differences = self.machines.iter();
            let said: Vec<String> =
                differences.map(|(name, a, b)| format!("{name} ({a}, then {b})")).collect();
            say(&format!(
                "The machines differ: {}. So absolute figures are not judged, only each row's change \
                 relative to the others.",
                list(&said)
            ));
        }
        match (self.why_not_judged(), self.unjudged()) {
            (Some(why), _) => say(&format!("Nothing can be judged: {why}.")),
            (None, 0) => {}
            (None, unjudged) => {
                let all = self.rows.len();
                say(&format!("{unjudged} of {all} rows cannot be judged: too few rounds."));
            }
        }
        if let Some(common) = self.common_ratio {
            say(&format!(
                "All rows together changed by a factor of {common:.2} (median; more is better). Each row is judged \
                 by its change relative to that of its load."
            ));
        }
        self.together().for_each(|line| say(&format!("{line}.")));
        let mut loads: Vec<&str> = vec![];
        self.rows.iter().for_each(|row| {
            if !loads.contains(&row.load.as_str()) {
                loads.push(&row.load);
            }
        });
        for load in loads {
            let mut table = table_of_width(width);
            table.set_header([
                "design",
                "before",
                "after",
                "after/before",
                "relative to all",
                "verdict",
            ]);
            for row in self.rows.iter().filter(|row| row.load == load) {
                let interval = row.low.zip(row.high);
                let interval = interval.map(|(low, high)| format!(" ({low:.2} to {high:.2})"));
                table.add_row([
                    row.spec.clone(),
                    si(row.before),
                    si(row.after),
                    format!("{:.2}{}", row.ratio, interval.unwrap_or_default()),
                    relative(row),
                    row.change.word().to_owned(),
                ]);
            }
            let floor =
                self.rows.iter().find(|row| row.load == load).and_then(|row| row.noise_floor);
            let floor = floor.map(|floor| format!("; noise floor {}", percent(floor)));
            let _ =
                write!(text, "\n{load}{}\n\n{}\n", floor.unwrap_or_default(), figures(table, &[5]));
        }
        for (which, rows) in [("BEFORE", &self.only_before), ("AFTER", &self.only_after)] {
            if !rows.is_empty() {
                text.push('\n');
                paragraph(&mut text, &format!("Only in {which}: {}.", list(rows)), width);
            }
        }
        text
    }
}

/// The times from core to core, where they are not alike: a virtual machine may have moved.
fn core_to_core(before: Part, after: Part) -> Option<(String, String, String)> {
    let [a, b] = [before, after].map(Part::core_to_core_ns);
    let shown = |ns: Option<f64>| ns.map_or_else(|| "unknown".into(), |ns| format!("{ns:.0} ns"));
    (!alike(a, b)).then(|| ("core to core".into(), shown(a), shown(b)))
}

/// The links, where one result is of loopback and the other of another. Names of devices differ from run to run.
fn link(before: Part, after: Part) -> Option<(String, String, String)> {
    let [a, b] = [before, after].map(Part::link);
    let shown = |link: Option<&str>| link.unwrap_or("loopback").to_owned();
    (a.is_some() != b.is_some()).then(|| ("link".into(), shown(a), shown(b)))
}

/// How many times better the second is.
fn better_by(before: &Figure, after: &Figure) -> f64 {
    match before.better() {
        Better::Higher => after.median / before.median,
        Better::Lower => before.median / after.median,
    }
}

/// A row's own change, with its interval.
fn relative(row: &Row) -> String {
    let interval = row.own_low.zip(row.own_high);
    let interval = interval.map(|(low, high)| format!(" ({low:.2} to {high:.2})"));
    three_figures(row.own_ratio) + &interval.unwrap_or_default()
}

/// How many times better the second is, as a change; `None` where either has too few rounds for an interval.
fn change(before: &Figure, after: &Figure) -> Option<apart::Change> {
    let of = |figure: &Figure| Some((figure.median, figure.interval?));
    match before.better() {
        Better::Higher => apart::Change::between(of(before)?, of(after)?),
        Better::Lower => apart::Change::between(of(after)?, of(before)?),
    }
}

/// What a change is worth of which more is better: it is beyond the noise where its interval does not hold 1, and it is
/// larger than the noise floor.
fn worth(better_by: Option<Estimate>, noise_floor: Option<f64>) -> Change {
    let Some((ratio, floor)) = better_by.zip(noise_floor) else { return Change::TooFewRounds };
    let holds = ratio.interval.is_none_or(|within| within.low <= 1.0 && 1.0 <= within.high);
    let is_within = ratio.median.ln().abs() <= (1.0 + floor).ln();
    match (holds || is_within, ratio.median > 1.0) {
        (true, _) => Change::WithinNoise,
        (false, true) => Change::Better,
        (false, false) => Change::Worse,
    }
}

/// A row in both results, of whose change this is what all rows of its load have in common, and this its own, where that
/// is known.
fn row(
    before: &Figure,
    after: &Figure,
    common: f64,
    own: Option<Estimate>,
    noise_floor: Option<f64>,
) -> Row {
    // The ends that follow from both intervals: wider than 95 % would take, as no pair of runs stands behind it.
    let interval = before.interval.zip(after.interval);
    let interval = interval.filter(|((low, _), _)| *low > 0.0);
    let own_interval = own.and_then(|own| own.interval);
    Row {
        load: before.load.clone(),
        spec: before.spec.clone(),
        metric: before.metric.clone(),
        before: before.median,
        after: after.median,
        ratio: after.median / before.median,
        low: interval.map(|(a, b)| b.0 / a.1),
        high: interval.map(|(a, b)| b.1 / a.0),
        own_ratio: better_by(before, after) / common,
        own_low: own_interval.map(|interval| interval.low),
        own_high: own_interval.map(|interval| interval.high),
        noise_floor,
        change: worth(own, noise_floor),
    }
}
