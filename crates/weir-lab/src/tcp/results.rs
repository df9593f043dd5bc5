//! What a comparison of TCP found: every row under every load, with its samples.

use super::bench::{Checked, Idle};
use super::classic::Classic;
use super::plan::Load;
use super::sample::{MESSAGES, Sample, TcpMetric};
use crate::cell::{self, Cell, Conformance, Measured, Status};
use crate::machine::Machine;
use crate::plan::{Role, Row, Schedule};
use crate::ranking::{Better, Contest, Ranking};
use crate::results::CONFIDENCE;
use crate::stats::Estimate;
use crate::stats::compare::{Confidence, Difference, Pairs, judge, noise_floor, pair};

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
    /// What each did with little to do.
    pub idle: Vec<Idle>,
    /// The loads.
    pub loads: Vec<Load>,
    /// How often and how long each load was planned to run, once that is known.
    pub schedules: Vec<Option<Schedule>>,
    /// By load, then by row.
    pub cells: Vec<Vec<Cell<Sample>>>,
    /// The cores of the server.
    pub server_cores: Vec<usize>,
    /// The cores of the client.
    pub client_cores: Vec<usize>,
    /// What the rows were checked with before they were timed; `None` if none passed.
    pub checked: Option<Checked>,
    /// The experiment of the original study, if it was that.
    pub classic: Option<Classic>,
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
            idle: vec![Idle::default(); rows.len()],
            cells: vec![vec![Cell::default(); rows.len()]; loads.len()],
            schedules: vec![None; loads.len()],
            rows,
            loads,
            server_cores: vec![],
            client_cores: vec![],
            checked: None,
            classic: None,
            warnings: vec![],
            interrupted: false,
            error: None,
        }
    }

    /// Adds a row that runs again under a second name.
    pub fn add_again(&mut self, of: usize) {
        self.rows.push(self.rows[of].clone().with_role(Role::Again(of)));
        self.conformance.push(self.conformance[of].clone());
        self.idle.push(self.idle[of]);
        self.cells.iter_mut().for_each(|cells| cells.push(Cell::default()));
    }

    /// Whether a row polls. `None` if that is not known.
    pub fn polls(&self, row: usize) -> Option<bool> {
        self.idle[row].polls()
    }

    /// The group in which a row is ranked: rows that poll (true) and rows that wait. One of which it is
    /// not known is ranked among those that wait.
    pub fn group_of(&self, row: usize) -> bool {
        self.polls(row).unwrap_or(false)
    }

    /// The groups there are, of rows that can run.
    pub fn groups(&self) -> Vec<bool> {
        let is_there = |group: &bool| {
            (0..self.rows.len())
                .any(|row| self.group_of(row) == *group && self.rows[row].unavailable.is_none())
        };
        [false, true].into_iter().filter(is_there).collect()
    }

    /// The row of a group that runs under two names, and its second name.
    pub fn again(&self, polls: bool) -> Option<(usize, usize)> {
        self.rows.iter().enumerate().find_map(|(index, row)| match row.role {
            Role::Again(of) if self.group_of(of) == polls => Some((of, index)),
            _ => None,
        })
    }

    /// How a row under a load ended.
    pub fn status(&self, load: usize, row: usize) -> Status {
        self.cells[load][row].status(&self.rows[row])
    }

    /// Why a row under a load has no rank; `None` if it has one.
    pub fn unranked(&self, load: usize, row: usize) -> Option<String> {
        let cell = &self.cells[load][row];
        let reason = cell.without_figures(&self.rows[row], &self.conformance[row]);
        if let Some(reason) = reason.or_else(|| self.invalid(load, row)) {
            return Some(reason);
        }
        if let Some(reason) = cell.samples.iter().find_map(Sample::incomplete) {
            return Some(reason);
        }
        cell.of_another_machine.then(|| cell::OF_ANOTHER_MACHINE.into())
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

    /// Ranks the rows of a group by messages per second.
    pub fn ranking(&self, load: usize, polls: bool) -> Ranking {
        self.ranking_by(load, polls, &MESSAGES, Better::Higher)
    }

    /// Ranks the rows of a group.
    pub fn ranking_by(
        &self,
        load: usize,
        polls: bool,
        metric: &TcpMetric,
        better: Better,
    ) -> Ranking {
        let again = self.again(polls);
        let rows = (0..self.rows.len())
            .filter(|row| self.group_of(*row) == polls && self.unranked(load, *row).is_none())
            .filter(|row| again.is_none_or(|(_, second)| second != *row));
        Ranking::among(&Contest {
            cells: &self.cells[load],
            metric,
            better,
            rows: rows.collect(),
            again: self.pairs_of_again(load, polls, metric),
            traditional: None,
            seed: self.seed,
        })
    }

    fn pairs_of_again(&self, load: usize, polls: bool, metric: &TcpMetric) -> Option<Pairs> {
        let (of, second) = self.again(polls)?;
        let ranked = |row: usize| self.unranked(load, row).is_none();
        (ranked(of) && ranked(second)).then(|| self.pairs(load, metric, (of, second)))
    }

    fn pairs(&self, load: usize, metric: &TcpMetric, (first, second): (usize, usize)) -> Pairs {
        let cells = &self.cells[load];
        pair(&cells[first].readings(metric), &cells[second].readings(metric))
    }

    /// How one row stands to another of whatever group, above the noise of both groups.
    pub fn against(
        &self,
        load: usize,
        metric: &TcpMetric,
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
            .filter_map(|row| self.cells[load][row].estimate(&MESSAGES, self.seed))
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
            || self.classic.as_ref().is_some_and(Classic::has_invalid_runs)
    }

    /// True if at least one run succeeded.
    pub fn has_figures(&self) -> bool {
        self.cells.iter().flatten().any(|cell| !cell.samples.is_empty())
            || self.classic.as_ref().is_some_and(Classic::has_figures)
    }

    /// Warns if other programs had a good part of the cores while the runs were made.
    pub fn busy_machine(&self) -> Option<String> {
        let samples = self.cells.iter().flatten().flat_map(|cell| &cell.samples);
        let classic = self.classic.iter().flat_map(Classic::samples);
        let loads: Vec<f64> =
            samples.chain(classic).filter_map(|sample| sample.load_of_others).collect();
        cell::busy_machine(&loads)
    }

    /// Runs of a load in which the machine changed.
    pub fn changed_runs(&self, load: usize) -> usize {
        let samples = self.cells[load].iter().flat_map(|cell| &cell.samples);
        samples.filter(|sample| sample.changed_machine()).count()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::tcp::sample::tests::{at, load, made};

    /// A row for each text with its messages per second; the machine's common speed differs from block to
    /// block. Texts with a `=` are peers; the row under a second name is the last one.
    pub(crate) fn results(rows: &[(&str, f64)], again: usize) -> Results {
        let parse = |text: &str| match text.contains('=') {
            true => Row::parse_peer(text).unwrap(),
            false => Row::parse(text).unwrap(),
        };
        let all: Vec<Row> = rows.iter().map(|(text, _)| parse(text)).collect();
        let mut results = Results::new(vec![], Machine::default(), all, vec![load()]);
        results.add_again(again);
        results.server_cores = vec![0];
        results.client_cores = vec![1];
        for row in 0..results.rows.len() {
            let (second, of) = match results.rows[row].role {
                Role::Again(of) => (true, of),
                _ => (false, row),
            };
            results.conformance[row] = Conformance::Passed;
            results.idle[row].cores_busy = Some(0.4);
            for (block, common) in [1.0, 0.6, 1.1, 0.9, 0.7, 0.8, 1.0].into_iter().enumerate() {
                let waver = if second && block % 2 == 0 { 1.01 } else { 1.0 };
                let speed = rows[of].1 * common * waver;
                let sample = Sample::of(&at(block as u32), &load(), &made(speed, 5e8 / rows[of].1));
                results.cells[0][row].samples.push(sample);
            }
        }
        results
    }

    #[test]
    fn the_best_its_tie_and_the_ratios() {
        let results = results(&[("poll", 80e3), ("epoll", 100e3), ("select", 99.9e3)], 1);
        let ranking = results.ranking(0, false);
        let order: Vec<usize> = ranking.places.iter().map(|place| place.row).collect();
        assert_eq!((order, ranking.rank(2), ranking.rank(0)), (vec![1, 2, 0], Some(1), Some(3)));
        assert!(ranking.noise_floor.is_some_and(|floor| floor < 0.02));
        assert!(matches!(results.against(0, &MESSAGES, (1, 0)), Difference::Real(_)));
        assert!(results.ranking(0, true).places.is_empty());
    }

    #[test]
    fn what_polls_is_ranked_apart() {
        let mut results = results(&[("poll", 80e3), ("epoll", 100e3), ("select", 120e3)], 1);
        results.idle[2].cores_busy = Some(0.99);
        assert_eq!(results.groups(), [false, true]);
        assert_eq!(results.ranking(0, false).winner().unwrap().row, 1);
        let polling = results.ranking(0, true);
        assert_eq!((polling.winner().unwrap().row, polling.noise_floor), (2, None));
        let across = results.against(0, &MESSAGES, (2, 1));
        assert!(matches!(across, Difference::TooFew(Some(_))), "the noise of one group is unknown");
        results.add_again(2);
        assert_eq!(results.again(true), Some((2, 4)));
    }

    #[test]
    fn wrong_and_incomplete_rows_have_no_rank() {
        let mut results = results(&[("poll", 80e3), ("epoll", 100e3), ("select", 120e3)], 0);
        results.cells[0][1].samples[3].connected = 60;
        assert!(results.unranked(0, 1).unwrap().contains("60 of 64 connections"));
        assert!(!results.has_invalid_runs(), "fewer connections are a figure");
        results.cells[0][2].samples[0].invalid = Some("byte 7 is wrong".into());
        assert_eq!(results.unranked(0, 2).unwrap(), "byte 7 is wrong");
        assert!(results.has_invalid_runs());
        assert_eq!(results.ranking(0, false).places.len(), 1);
        results.conformance[0] = Conformance::Failed("no echo".into());
        assert!(results.unranked(0, 0).unwrap().contains("failed the check"));
    }
}
