//! What a comparison of designs that read a device found: every row under every load, with its samples.

use super::bench::Checked;
use super::fio::Fio;
use super::plan::Load;
use super::rows::MEASURE;
use super::sample::{DeviceMetric, RATE, Sample};
use crate::cell::{self, Cell, Conformance, Status};
use crate::iops::Decay;
use crate::machine::Machine;
use crate::plan::{Role, Row, Schedule};
use crate::ranking::{Better, Contest, Ranking};
use crate::results::CONFIDENCE;
use crate::stats::Estimate;
use crate::stats::compare::{Confidence, Difference, Pairs, judge, noise_floor, pair};

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
    Made(Option<Decay>),
    /// It failed.
    Failed(String),
}

/// An experiment and what came out.
#[derive(Debug, Clone, PartialEq)]
pub struct Results {
    /// The command as typed.
    pub command: Vec<String>,
    /// The machine it ran on.
    pub machine: Machine,
    /// Gives the same order and the same intervals again.
    pub seed: u64,
    /// Half-width of the intervals that was asked for, as a share of the median.
    pub asked_half_width: f64,
    /// The rows.
    pub rows: Vec<Row>,
    /// What is known of each row's conformance.
    pub conformance: Vec<Conformance>,
    /// What each was checked with, once it was.
    pub checked: Vec<Option<Checked>>,
    /// The loads.
    pub loads: Vec<Load>,
    /// How often and how long each load was planned to run, once that is known.
    pub schedules: Vec<Option<Schedule>>,
    /// By load, then by row.
    pub cells: Vec<Vec<Cell<Sample>>>,
    /// By row: its long run under the first load, if there was one.
    pub long_runs: Vec<Option<LongRun>>,
    /// The cores that runs were bound to; none if they were not.
    pub cores: Vec<usize>,
    /// The fio that takes part, if one does.
    pub fio: Option<Fio>,
    /// What a reader must know before trusting a figure.
    pub warnings: Vec<String>,
    /// True if it was ended before its plan was through.
    pub interrupted: bool,
    /// Why nothing more could be done, if so.
    pub error: Option<String>,
}

impl Results {
    /// Results without any run yet.
    pub fn new(command: Vec<String>, machine: Machine, rows: Vec<Row>, loads: Vec<Load>) -> Self {
        Self {
            command,
            machine,
            seed: 0,
            asked_half_width: 0.05,
            conformance: vec![Conformance::NotChecked; rows.len()],
            checked: vec![None; rows.len()],
            cells: vec![vec![Cell::default(); rows.len()]; loads.len()],
            schedules: vec![None; loads.len()],
            long_runs: vec![None; rows.len()],
            rows,
            loads,
            cores: vec![],
            fio: None,
            warnings: vec![],
            interrupted: false,
            error: None,
        }
    }

    /// Adds a row that runs again under a second name.
    pub fn add_again(&mut self, of: usize) {
        self.rows.push(self.rows[of].clone().with_role(Role::Again(of)));
        self.conformance.push(self.conformance[of].clone());
        self.checked.push(self.checked[of].clone());
        self.long_runs.push(None);
        self.cells.iter_mut().for_each(|cells| cells.push(Cell::default()));
    }

    /// Whether a row polls. `None` if that is not known.
    pub fn polls(&self, row: usize) -> Option<bool> {
        self.checked[row].as_ref()?.polls()
    }

    /// The group in which a row is ranked. One of which nothing is known, as of a program that is not
    /// weir's, is ranked among those that wait.
    pub fn group_of(&self, row: usize) -> Group {
        match &self.checked[row] {
            Some(checked) if checked.reads_nothing => Group::Nothing,
            Some(checked) if checked.polls() == Some(true) => Group::Polls,
            _ => Group::Waits,
        }
    }

    /// The groups there are, of rows that can run.
    pub fn groups(&self) -> Vec<Group> {
        let is_there = |group: &Group| {
            (0..self.rows.len())
                .any(|row| self.group_of(row) == *group && self.rows[row].unavailable.is_none())
        };
        Group::ALL.into_iter().filter(is_there).collect()
    }

    /// The row of a group that runs under two names, and its second name. What reads nothing is judged
    /// by the noise of what waits.
    pub fn again(&self, group: Group) -> Option<(usize, usize)> {
        let of_group = if group == Group::Nothing { Group::Waits } else { group };
        self.rows.iter().enumerate().find_map(|(index, row)| match row.role {
            Role::Again(of) if self.group_of(of) == of_group => Some((of, index)),
            _ => None,
        })
    }

    /// The row to which the others' ratios are taken.
    pub fn measure(&self) -> Option<usize> {
        let is_it = |row: &Row| {
            row.design == MEASURE && row.peer.is_none() && !matches!(row.role, Role::Again(_))
        };
        self.rows.iter().position(is_it)
    }

    /// How a row under a load ended.
    pub fn status(&self, load: usize, row: usize) -> Status {
        let cell = &self.cells[load][row];
        if cell.skipped.is_some() { Status::Unavailable } else { cell.status(&self.rows[row]) }
    }

    /// Why a row under a load has no rank; `None` if it has one.
    pub fn unranked(&self, load: usize, row: usize) -> Option<String> {
        let cell = &self.cells[load][row];
        let reason = cell.without_figures(&self.rows[row], &self.conformance[row]);
        let reason = reason.or_else(|| self.invalid(load, row));
        reason.or_else(|| cell.of_another_machine.then(|| cell::OF_ANOTHER_MACHINE.into()))
    }

    /// What makes a cell's figures wrong, if anything.
    pub fn invalid(&self, load: usize, row: usize) -> Option<String> {
        self.cells[load][row].samples.iter().find_map(|sample| sample.invalid.clone())
    }

    /// Takes out of the medians what was measured while the machine was another one
    /// ([`cell::count_only_alike`]).
    pub fn count_only_alike(&mut self) {
        self.cells.iter_mut().for_each(|cells| cell::count_only_alike(cells));
    }

    /// Ranks the rows of a group by I/Os per second.
    pub fn ranking(&self, load: usize, group: Group) -> Ranking {
        let again = self.again(group);
        let rows = (0..self.rows.len())
            .filter(|row| self.group_of(*row) == group && self.unranked(load, *row).is_none())
            .filter(|row| again.is_none_or(|(_, second)| second != *row));
        Ranking::among(&Contest {
            cells: &self.cells[load],
            metric: &RATE,
            better: Better::Higher,
            rows: rows.collect(),
            again: self.pairs_of_again(load, group, &RATE),
            traditional: self.measure().filter(|row| self.unranked(load, *row).is_none()),
            seed: self.seed,
        })
    }

    fn pairs_of_again(&self, load: usize, group: Group, metric: &DeviceMetric) -> Option<Pairs> {
        let (of, second) = self.again(group)?;
        let ranked = |row: usize| self.unranked(load, row).is_none();
        (ranked(of) && ranked(second)).then(|| self.pairs(load, metric, (of, second)))
    }

    fn pairs(&self, load: usize, metric: &DeviceMetric, (first, second): (usize, usize)) -> Pairs {
        let cells = &self.cells[load];
        pair(&cells[first].readings(metric), &cells[second].readings(metric))
    }

    /// How one row stands to another of whatever group, above the noise of both groups.
    pub fn against(
        &self,
        load: usize,
        metric: &DeviceMetric,
        (first, second): (usize, usize),
    ) -> Difference {
        let floor = |row: usize| {
            let again = self.pairs_of_again(load, self.group_of(row), metric)?;
            noise_floor(&again, CONFIDENCE, self.seed)
        };
        let floor = floor(first).zip(floor(second)).map(|(a, b)| a.max(b));
        judge(&self.pairs(load, metric, (first, second)), floor, CONFIDENCE, self.seed)
    }

    /// How sure the figures of a load are, over all its ranked rows.
    pub fn confidence(&self, load: usize) -> Confidence {
        let estimates: Vec<Estimate> = (0..self.rows.len())
            .filter(|row| self.unranked(load, *row).is_none())
            .filter_map(|row| self.cells[load][row].estimate(&RATE, self.seed))
            .collect();
        Confidence::of(&estimates, self.asked_half_width)
    }

    /// Whether more rounds of a load would tell nothing that was asked for.
    pub fn is_settled(&mut self, load: usize) -> bool {
        self.count_only_alike();
        let open = |group| self.ranking(load, group).is_open();
        self.confidence(load).reached() && !self.groups().into_iter().any(open)
    }

    /// True if a check failed, a run failed, or a run's data were wrong.
    pub fn has_invalid_runs(&self) -> bool {
        let cells = || self.cells.iter().flatten();
        self.conformance.iter().any(|c| matches!(c, Conformance::Failed(_)))
            || cells().any(|cell| cell.failed_runs > 0)
            || cells().flat_map(|cell| &cell.samples).any(|sample| sample.invalid.is_some())
            || self.long_runs.iter().any(|run| matches!(run, Some(LongRun::Failed(_))))
    }

    /// True if at least one run succeeded.
    pub fn has_figures(&self) -> bool {
        self.cells.iter().flatten().any(|cell| !cell.samples.is_empty())
    }

    /// Warns if other programs had a good part of the cores while the runs were made.
    pub fn busy_machine(&self) -> Option<String> {
        let samples = self.cells.iter().flatten().flat_map(|cell| &cell.samples);
        let loads: Vec<f64> = samples.filter_map(|sample| sample.load_of_others).collect();
        cell::busy_machine(&loads)
    }

    /// Runs of a load in which the machine changed.
    pub fn changed_runs(&self, load: usize) -> usize {
        use crate::cell::Measured as _;
        let samples = self.cells[load].iter().flat_map(|cell| &cell.samples);
        samples.filter(|sample| sample.changed_machine()).count()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::devices::plan::DEVICE;
    use crate::devices::sample::{Circumstances, tests::made};

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
            results.checked[row] = Some(Checked { idle_cores: Some(0.02), ..Checked::default() });
            for load in 0..results.loads.len() {
                for (block, common) in [1.0, 0.6, 1.1, 0.9, 0.7, 0.8, 1.0].into_iter().enumerate() {
                    let waver = if second && block % 2 == 0 { 1.01 } else { 1.0 };
                    let at = Circumstances { block: block as u32, ..Circumstances::default() };
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
        let checked = results.checked[row].as_mut().unwrap();
        checked.reads_nothing = reads_nothing;
        checked.idle_cores = Some(cores_busy);
    }

    #[test]
    fn the_best_its_ties_and_the_ratios_to_the_measure() {
        let mut results =
            results(&[("sync", 2e6), ("ring", 1e6), ("ring-registered", 2.5e6), ("no-op", 8e6)], 0);
        is(&mut results, 3, true, 1.0);
        assert_eq!(results.groups(), [Group::Waits, Group::Nothing]);
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
        assert_eq!(results.groups(), [Group::Waits, Group::Polls]);
        assert_eq!(results.ranking(0, Group::Waits).winner().unwrap().row, 0);
        assert_eq!(results.ranking(0, Group::Polls).noise_floor, None);
        results.add_again(1);
        assert_eq!(results.again(Group::Polls), Some((1, 3)));
    }

    #[test]
    fn what_a_row_cannot_read_is_no_failure_and_has_no_rank() {
        let mut results = results(&[("sync", 2e6), ("fio psync=fio", 1e6)], 0);
        results.cells[0][1] = Cell { skipped: Some("fio refuses it".into()), ..Cell::default() };
        assert_eq!(
            (results.status(0, 1), results.has_invalid_runs()),
            (Status::Unavailable, false)
        );
        assert_eq!(results.unranked(0, 1).unwrap(), "fio refuses it");
        results.cells[0][0].samples[0].invalid = Some("3 I/Os failed".into());
        assert!(results.has_invalid_runs() && results.ranking(0, Group::Waits).places.is_empty());
    }
}
