//! Two saved results held against each other: the machines first, then each row that both have.
//!
//! Their runs were not interleaved, so what changed on the machine between them is in every difference. What all rows
//! have in common is therefore said apart, and each row's own change is what remains.

use std::fmt::Write as _;

use schemars::JsonSchema;
use serde::Serialize;

use super::{Figure, Part};
use crate::experiment::cell::Better;
use crate::report::layout::{figures, paragraph, table_of_width};
use crate::report::number::{percent, si, three_figures};
use crate::report::words::list;
use crate::stats::compare::alike;
use crate::stats::median;

/// Properties of a machine of which none may differ where figures are compared.
const SAME: [&str; 6] =
    ["cpu_model", "cores", "kernel", "hypervisor", "architecture", "mitigations"];

/// What became of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
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
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
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
    /// The ratio to what all rows of the load have in common.
    pub own_ratio: f64,
    /// Differences below this share are noise, by the larger floor of both.
    pub noise_floor: Option<f64>,
    /// What that is worth.
    pub change: Change,
}

/// Two results of one kind.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Diff {
    /// What was compared.
    pub kind: String,
    /// Properties of the machines that differ: name, before, after.
    pub machines: Vec<(String, String, String)>,
    /// Whether the machines are alike, so that figures as such are compared. Else only what a row changed against the
    /// others is.
    pub comparable: bool,
    /// The change that the rows have in common: the median of their ratios.
    pub common_ratio: Option<f64>,
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
            .collect();
        let comparable = machines.is_empty();
        let (old, new) = (before.figures(), after.figures());
        let same = |a: &Figure, b: &Figure| {
            (&a.load, a.name(), &a.provider, &a.metric)
                == (&b.load, b.name(), &b.provider, &b.metric)
        };
        let pairs: Vec<(&Figure, &Figure)> = old
            .iter()
            .filter_map(|a| Some((a, new.iter().find(|b| same(a, b))?)))
            .filter(|(a, b)| a.median > 0.0 && b.median > 0.0)
            .collect();
        let logarithms: Vec<f64> = pairs.iter().map(|(a, b)| better_by(a, b).ln()).collect();
        let common = median(&logarithms).map(f64::exp);
        let rows = pairs
            .iter()
            .map(|(a, b)| {
                let floor = before.noise_floor(&a.load).zip(after.noise_floor(&a.load));
                row(a, b, common.unwrap_or(1.0), floor.map(|(a, b)| a.max(b)), comparable)
            })
            .collect();
        let only = |of: &[Figure], others: &[Figure]| {
            let missing = of.iter().filter(|a| !others.iter().any(|b| same(a, b)));
            missing.map(|figure| format!("{} under {}", figure.spec, figure.load)).collect()
        };
        Self {
            kind: before.kind().to_owned(),
            machines,
            comparable,
            common_ratio: common,
            rows,
            only_before: only(&old, &new),
            only_after: only(&new, &old),
        }
    }

    /// Whether any row is worse, beyond the noise.
    pub fn has_regressed(&self) -> bool {
        self.rows.iter().any(|row| row.change == Change::Worse)
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
        if self.rows.is_empty() {
            say("The two results have no row in common.");
        }
        if let Some(common) = self.common_ratio {
            say(&format!(
                "All rows together changed by a factor of {common:.2} (median; more is better)."
            ));
        }
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
                    three_figures(row.own_ratio),
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

/// How many times better the second is.
fn better_by(before: &Figure, after: &Figure) -> f64 {
    match before.better() {
        Better::Higher => after.median / before.median,
        Better::Lower => before.median / after.median,
    }
}

fn row(
    before: &Figure,
    after: &Figure,
    common: f64,
    noise_floor: Option<f64>,
    comparable: bool,
) -> Row {
    let ratio = after.median / before.median;
    // The ends that follow from both intervals: wider than 95 % would take, as no pair of runs stands behind it.
    let interval = before.interval.zip(after.interval);
    let interval = interval.filter(|((low, _), _)| *low > 0.0);
    let interval = interval.map(|(a, b)| (b.0 / a.1, b.1 / a.0));
    let own = better_by(before, after) / common;
    let judged = interval.zip(noise_floor).map(|((low, high), floor)| {
        let (low, high, ratio) = match comparable {
            true => (low, high, ratio),
            false => (low / common, high / common, ratio / common),
        };
        let is_within = ratio.ln().abs() <= (1.0 + floor).ln();
        match (low <= 1.0 && 1.0 <= high || is_within, before.better()) {
            (true, _) => Change::WithinNoise,
            (false, Better::Higher) if ratio > 1.0 => Change::Better,
            (false, Better::Lower) if ratio < 1.0 => Change::Better,
            (false, _) => Change::Worse,
        }
    });
    Row {
        load: before.load.clone(),
        spec: before.spec.clone(),
        metric: before.metric.clone(),
        before: before.median,
        after: after.median,
        ratio,
        low: interval.map(|(low, _)| low),
        high: interval.map(|(_, high)| high),
        own_ratio: own,
        noise_floor,
        change: judged.unwrap_or(Change::TooFewRounds),
    }
}
