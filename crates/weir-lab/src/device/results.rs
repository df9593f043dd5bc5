//! What a comparison of designs that read a device found: every row under every load, with its samples.

use std::time::Duration;

use serde::Serialize;

use super::bench::Checked;
use super::fio::Fio;
use super::plan::Load;
use super::rows::{MEASURE, depth_of, title};
use super::sample::{DeviceMetric, KERNEL_ENTRIES, METRICS, RATE, Sample};
use crate::experiment::plan::{Role, Row};
use crate::experiment::results::{self, Besides, Study};
use crate::iops::OverTime;

/// Rows that are ranked among each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// They wait where there is nothing to do.
    Waits,
    /// They keep a core busy even then.
    Polls,
    /// They read nothing, and show what is spent before a device is reached.
    Nothing,
}

impl Group {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Waits, Self::Polls, Self::Nothing];

    /// Its name in the document.
    pub fn name(self) -> &'static str {
        match self {
            Self::Waits => "waits",
            Self::Polls => "polls",
            Self::Nothing => "reads_nothing",
        }
    }
}

/// A long run of a row.
#[derive(Debug, Clone, PartialEq)]
pub enum LongRun {
    /// How the rate changed, if that is known.
    Made(Option<Box<OverTime>>),
    /// It failed.
    Failed(String),
}

/// A comparison of designs that read a device: what only that has, as it stands in the document.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Devices {
    /// What each row was checked with, once it was.
    #[serde(skip)]
    pub checked: Vec<Option<Checked>>,
    /// By row: its long run under the first load, if there was one.
    #[serde(skip)]
    pub long_runs: Vec<Option<LongRun>>,
    /// How long each row runs once at the end, beside a control, to see whether its rate declines; `None` for not at
    /// all.
    #[serde(skip)]
    pub long_run: Option<Duration>,
    /// The cores that runs were bound to; none if they were not.
    pub cores: Vec<usize>,
    /// The fio that takes part, if one does.
    pub fio: Option<Fio>,
}

/// An experiment and what came out.
pub type Results = results::Results<Devices>;

impl Study for Devices {
    type Load = Load;
    type Sample = Sample;
    type Group = Group;

    const GROUPS: &'static [Group] = &Group::ALL;
    const METRICS: &'static [DeviceMetric] = METRICS;
    const ENTRIES: DeviceMetric = KERNEL_ENTRIES;

    fn ranked_by(_: &Load) -> &'static DeviceMetric {
        &RATE
    }

    fn rows_are(&mut self, count: usize) {
        self.checked.resize(count, None);
        self.long_runs.resize(count, None);
    }

    fn same_as(&mut self, second: usize, of: usize) {
        self.checked[second] = self.checked[of].clone();
    }

    /// One of which nothing is known, as of a program that is not weir's, is ranked among those that wait.
    fn group_of(results: &Results, row: usize) -> Group {
        match &results.own.checked[row] {
            Some(checked) if checked.reads_nothing => Group::Nothing,
            Some(checked) if checked.polls() == Some(true) => Group::Polls,
            _ => Group::Waits,
        }
    }

    fn judged_by(group: Group) -> Group {
        if group == Group::Nothing { Group::Waits } else { group }
    }

    fn measure(rows: &[Row]) -> Option<usize> {
        let is_it = |row: &Row| {
            row.design == MEASURE && row.peer.is_none() && !matches!(row.role, Role::Again(_))
        };
        rows.iter().position(is_it)
    }

    /// Each I/O that takes a timer has one.
    fn descriptors(load: &Load, row: &Row) -> Vec<(String, u64)> {
        let timers = u64::from(load.delay().map_or(0, |_| depth_of(row).unwrap_or(1)));
        vec![(format!("{} with {timers} timers", title(row)), timers)]
    }

    fn besides(&self) -> Besides {
        let failed = |run: &Option<LongRun>| matches!(run, Some(LongRun::Failed(_)));
        Besides { is_invalid: self.long_runs.iter().any(failed), ..Besides::default() }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::device::plan::DEVICE;
    use crate::device::sample::tests::made;
    use crate::experiment::cell::{Cell, Conformance, Skipped, Status, When};
    use crate::machine::Machine;
    use crate::stats::compare::Difference;

    /// A row for each text with its I/Os per second under each load; the machine's common speed differs
    /// from block to block. Texts with a `=` are programs that are not weir's; the row under a second name
    /// is the last one.
    pub(crate) fn under(loads: Vec<Load>, rows: &[(&str, &[f64])], again: usize) -> Results {
        let parse = |text: &str| match text.contains('=') {
            true => Row::parse_peer(text).unwrap(),
            false => Row::parse(text).unwrap(),
        };
        let all: Vec<Row> = rows.iter().map(|(text, _)| parse(text)).collect();
        let mut results = Results::new(vec![], Machine::default(), all, loads);
        results.add_again(again);
        for row in 0..results.rows.len() {
            let (second, of) = match results.rows[row].role {
                Role::Again(of) => (true, of),
                _ => (false, row),
            };
            results.conformance[row] = Conformance::Passed;
            results.own.checked[row] =
                Some(Checked { idle_cores: Some(0.02), ..Checked::default() });
            for load in 0..results.loads.len() {
                for (block, common) in [1.0, 0.6, 1.1, 0.9, 0.7, 0.8, 1.0].into_iter().enumerate() {
                    let waver = if second && block % 2 == 0 { 1.01 } else { 1.0 };
                    let at = When::in_block(block as u32);
                    let sample = Sample::of(&at, made(rows[of].1[load] * common * waver));
                    results.cells[load][row].samples.push(sample);
                }
            }
        }
        results
    }

    /// The same under one load.
    pub(crate) fn results(rows: &[(&str, f64)], again: usize) -> Results {
        let rates: Vec<(&str, [f64; 1])> =
            rows.iter().map(|(text, rate)| (*text, [*rate])).collect();
        let rows: Vec<(&str, &[f64])> =
            rates.iter().map(|(text, rate)| (*text, &rate[..])).collect();
        under(vec![Load::new(DEVICE, 4096)], &rows, again)
    }

    fn is(results: &mut Results, row: usize, reads_nothing: bool, cores_busy: f64) {
        let checked = results.own.checked[row].as_mut().unwrap();
        checked.reads_nothing = reads_nothing;
        checked.idle_cores = Some(cores_busy);
    }

    #[test]
    fn the_best_its_ties_and_the_ratios_to_the_measure() {
        let mut results =
            results(&[("sync", 2e6), ("ring", 1e6), ("ring-registered", 2.5e6), ("no-op", 8e6)], 0);
        is(&mut results, 3, true, 1.0);
        assert_eq!(results.groups(0), [Group::Waits, Group::Nothing]);
        let ranking = results.ranking(0, Group::Waits);
        let order: Vec<usize> = ranking.places.iter().map(|place| place.row).collect();
        assert_eq!((order, ranking.rank(1)), (vec![2, 0, 1], Some(3)));
        let to_measure = |row: usize| ranking.place(row).unwrap().to_traditional;
        assert!(
            matches!(to_measure(2), Some(Difference::Real(r)) if (r.median - 1.25).abs() < 1e-9)
        );
        assert_eq!(to_measure(0), None, "to itself it has none");
        let nothing = results.ranking(0, Group::Nothing);
        let ratio = nothing.place(3).unwrap().to_traditional;
        assert!(
            matches!(ratio, Some(Difference::Real(r)) if (r.median - 4.0).abs() < 1e-9),
            "{ratio:?}"
        );
    }

    #[test]
    fn what_polls_is_ranked_apart() {
        let mut results = results(&[("sync", 2e6), ("ring-polled", 3e6)], 0);
        is(&mut results, 1, false, 1.9);
        assert_eq!(results.groups(0), [Group::Waits, Group::Polls]);
        assert_eq!(results.ranking(0, Group::Waits).winner().unwrap().row, 0);
        assert_eq!(results.ranking(0, Group::Polls).noise_floor, None);
        results.add_again(1);
        assert_eq!(results.again(Group::Polls), Some((1, 3)));
    }

    #[test]
    fn where_nothing_is_read_the_second_name_shows_the_noise_and_is_no_rival() {
        let mut results = results(&[("no-op", 8e6), ("sync-empty", 2e6)], 0);
        (0..2).for_each(|row| is(&mut results, row, true, 1.0));
        assert_eq!(results.groups(0), [Group::Nothing]);
        assert_eq!(results.again(Group::Nothing), Some((0, 2)));
        let ranking = results.ranking(0, Group::Nothing);
        let order: Vec<usize> = ranking.places.iter().map(|place| place.row).collect();
        assert_eq!((order, ranking.rank(2)), (vec![0, 1], None));
        assert!(ranking.noise_floor.is_some() && !ranking.is_open());
    }

    #[test]
    fn what_a_row_cannot_read_is_no_failure_and_has_no_rank() {
        let mut results = results(&[("sync", 2e6), ("fio psync=fio", 1e6)], 0);
        results.cells[0][1] = Cell {
            skipped: Some(Skipped::Unavailable("fio refuses it".into())),
            ..Cell::default()
        };
        assert_eq!(
            (results.status(0, 1), results.has_invalid_runs()),
            (Status::Unavailable, false)
        );
        assert_eq!(results.unranked(0, 1).unwrap(), "fio refuses it");
        results.cells[0][0].samples[0].made.invalid = Some("3 I/Os failed".into());
        assert!(results.has_invalid_runs() && results.ranking(0, Group::Waits).places.is_empty());
    }
}
