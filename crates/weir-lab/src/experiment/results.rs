//! What a comparison found: every row under every load, with its samples, and how rows stand to each other.
//!
//! What differs from one to the next is told by a [`Study`]; how rows are grouped, ranked and judged is the same.

use std::fmt::{Debug, Display};

use weir::machine::MOST_LOAD_OF_OTHERS;

use crate::exit;
use crate::experiment::cell::{self, Better, Cell, Conformance, Measured, Metric, Status};
use crate::experiment::plan::{Role, Row, Schedule};
use crate::experiment::ranking::{Contest, Ranking};
use crate::machine::Machine;
use crate::stats::compare::{Confidence, Difference, Pairs, judge, noise_floor, pair};
use crate::stats::{CONFIDENCE, Estimate, median};

/// What is compared: what rows are run under, what comes of it, and what is known of it besides.
pub trait Study: Clone + Debug + Default + PartialEq + Sized + 'static {
    /// What rows are run under, and compared under.
    type Load: Clone + Debug + Display + PartialEq;
    /// One run's figures.
    type Sample: Measured + Clone + Debug + PartialEq + 'static;
    /// Rows that are ranked among each other.
    type Group: Copy + Debug + PartialEq + 'static;

    /// All groups.
    const GROUPS: &'static [Self::Group];
    /// All metrics, in the order of the document.
    const METRICS: &'static [Metric<Self::Sample>];
    /// Entries into the kernel.
    const ENTRIES: Metric<Self::Sample>;

    /// By what the rows of a load are ranked.
    fn ranked_by(load: &Self::Load) -> &'static Metric<Self::Sample>;

    /// There are so many rows now.
    fn rows_are(&mut self, _count: usize) {}

    /// A row is the second name of another.
    fn same_as(&mut self, _second: usize, _of: usize) {}

    /// The group in which a row is ranked that is no second name.
    fn group_of(results: &Results<Self>, row: usize) -> Self::Group;

    /// The group by whose noise this one is judged, where a row of that runs under two names.
    fn judged_by(group: Self::Group) -> Self::Group {
        group
    }

    /// Whether a row takes part in a load.
    fn takes_part(_: &Self::Load, _: &Row) -> bool {
        true
    }

    /// Whether the rows of a load are compared.
    fn compares(_: &Self::Load) -> bool {
        true
    }

    /// The row to which the others' ratios are taken.
    fn measure(_: &[Row]) -> Option<usize> {
        None
    }

    /// Why figures of a row under a load that are right cannot be compared, if so.
    fn incomparable(_: &Results<Self>, _load: usize, _row: usize) -> Option<String> {
        None
    }

    /// Whether a row ran under a load, and did nothing of what it is for.
    fn nothing_arrived(results: &Results<Self>, load: usize, row: usize) -> bool {
        results.rate_is_zero(load, row)
    }

    /// Which descriptors a row under a load takes: whoever has them, and how many.
    fn descriptors(load: &Self::Load, row: &Row) -> Vec<(String, u64)>;

    /// What was measured besides, if anything was.
    fn besides(&self) -> Besides {
        Besides::default()
    }
}

/// Why a row has no rank with which nothing arrived.
const NOTHING_ARRIVED: &str = "nothing arrived while it was measured";

/// What was measured besides the loads.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Besides {
    /// Whether there are figures of it.
    pub has_figures: bool,
    /// Whether any of it failed or was wrong.
    pub is_invalid: bool,
    /// Shares (0 to 1) of all cores that other programs had meanwhile.
    pub loads_of_others: Vec<f64>,
}

/// An experiment and what came out.
#[derive(Debug, Clone, PartialEq)]
pub struct Results<K: Study> {
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
    /// The loads.
    pub loads: Vec<K::Load>,
    /// How often and how long each load was planned to run, once that is known.
    pub schedules: Vec<Option<Schedule>>,
    /// Whether the number of rounds was asked for.
    pub asked_for_rounds: bool,
    /// How many rounds of each load were complete when its time ran out; `None` where it did not.
    pub cut: Vec<Option<u32>>,
    /// By load, then by row.
    pub cells: Vec<Vec<Cell<K::Sample>>>,
    /// What only this kind of comparison has.
    pub own: K,
    /// What a reader must know before trusting a figure.
    pub warnings: Vec<String>,
    /// True if it was ended before its plan was through.
    pub interrupted: bool,
    /// Why nothing more could be done, if so.
    pub error: Option<String>,
}

impl<K: Study> Results<K> {
    /// Results without any run yet.
    pub fn new(
        command: Vec<String>,
        machine: Machine,
        rows: Vec<Row>,
        loads: Vec<K::Load>,
    ) -> Self {
        let mut own = K::default();
        own.rows_are(rows.len());
        Self {
            command,
            machine,
            seed: 0,
            asked_half_width: 0.05,
            conformance: vec![Conformance::NotChecked; rows.len()],
            cells: vec![vec![Cell::default(); rows.len()]; loads.len()],
            schedules: vec![None; loads.len()],
            asked_for_rounds: false,
            cut: vec![None; loads.len()],
            rows,
            loads,
            own,
            warnings: vec![],
            interrupted: false,
            error: None,
        }
    }

    /// Adds a row that runs again under a second name.
    pub fn add_again(&mut self, of: usize) {
        self.rows.push(self.rows[of].clone());
        self.conformance.push(Conformance::NotChecked);
        self.cells.iter_mut().for_each(|cells| cells.push(Cell::default()));
        self.own.rows_are(self.rows.len());
        self.make_again(self.rows.len() - 1, of);
    }

    /// Makes a row the second name of another, with all that is known of that.
    pub fn make_again(&mut self, second: usize, of: usize) {
        self.rows[second] = self.rows[of].clone().with_role(Role::Again(of));
        self.conformance[second] = self.conformance[of].clone();
        for cells in &mut self.cells {
            cells[second].skipped = cells[of].skipped.clone();
        }
        self.own.same_as(second, of);
    }

    /// The row of which this one is the second name, if it is one.
    pub fn first_of(&self, row: usize) -> Option<usize> {
        if let Role::Again(of) = self.rows[row].role { Some(of) } else { None }
    }

    /// The group in which a row is ranked, a second name's that of its first.
    pub fn group_of(&self, row: usize) -> K::Group {
        K::group_of(self, self.first_of(row).unwrap_or(row))
    }

    /// Whether a row takes part in a load.
    pub fn takes_part(&self, load: usize, row: usize) -> bool {
        K::takes_part(&self.loads[load], &self.rows[row])
    }

    /// By what the rows of a load are ranked.
    pub fn ranked_by(&self, load: usize) -> &'static Metric<K::Sample> {
        K::ranked_by(&self.loads[load])
    }

    /// Whether the rows of a load are compared.
    pub fn compares(&self, load: usize) -> bool {
        K::compares(&self.loads[load])
    }

    /// The groups under a load: those of rows that can run, or of all where none can.
    pub fn groups(&self, load: usize) -> Vec<K::Group> {
        let taking = || (0..self.rows.len()).filter(|row| self.takes_part(load, *row));
        let none_can = taking().all(|row| self.rows[row].unavailable.is_some());
        let shown = |row: &usize| none_can || self.rows[*row].unavailable.is_none();
        let is_there =
            |group: &K::Group| taking().filter(shown).any(|row| self.group_of(row) == *group);
        K::GROUPS.iter().copied().filter(is_there).collect()
    }

    /// The rows of a group under a load.
    pub fn rows_of(&self, load: usize, group: K::Group) -> impl Iterator<Item = usize> {
        (0..self.rows.len())
            .filter(move |row| self.group_of(*row) == group && self.takes_part(load, *row))
    }

    /// The row by whose noise a group is judged, and its second name.
    pub fn again(&self, group: K::Group) -> Option<(usize, usize)> {
        let of_group = |group: K::Group| {
            (0..self.rows.len()).find_map(|second| {
                let of = self.first_of(second).filter(|of| self.group_of(*of) == group)?;
                Some((of, second))
            })
        };
        of_group(K::judged_by(group)).or_else(|| of_group(group))
    }

    /// The row to which the others' ratios are taken.
    pub fn measure(&self) -> Option<usize> {
        K::measure(&self.rows)
    }

    /// The rows that passed their check.
    pub fn passed(&self) -> Vec<usize> {
        let passed = |row: &usize| self.conformance[*row] == Conformance::Passed;
        (0..self.rows.len()).filter(passed).collect()
    }

    /// Whether the rate that a row is ranked by was 0.
    pub fn rate_is_zero(&self, load: usize, row: usize) -> bool {
        let metric = self.ranked_by(load);
        let usual = median(&self.cells[load][row].values(metric));
        metric.better == Better::Higher && usual.is_some_and(|rate| rate <= 0.0)
    }

    /// How a row under a load ended.
    pub fn status(&self, load: usize, row: usize) -> Status {
        match self.cells[load][row].status(&self.rows[row], &self.conformance[row]) {
            Status::Ok if K::nothing_arrived(self, load, row) => Status::Failed,
            status => status,
        }
    }

    /// How a row ended, and by what it is shown among those without a rank: more is better.
    pub fn shown(&self, load: usize, row: usize) -> (Status, Option<f64>) {
        let metric = self.ranked_by(load);
        let figure = self.median(load, row, metric).map(|median| match metric.better {
            Better::Higher => median,
            Better::Lower => -median,
        });
        (self.status(load, row), figure)
    }

    /// The median of a metric of a row under a load, over its rounds: so every figure is told, percentiles of latencies
    /// too, of which each run has its own.
    pub fn median(&self, load: usize, row: usize, metric: &Metric<K::Sample>) -> Option<f64> {
        Some(self.cells[load][row].estimate(metric, self.seed)?.median)
    }

    /// What a metric of a row under a load is compared by: of entries into the kernel only a number that leaves none
    /// out.
    pub fn cost(&self, load: usize, row: usize, metric: &Metric<K::Sample>) -> Option<f64> {
        let cell = &self.cells[load][row];
        match metric.name == K::ENTRIES.name {
            true => cell.entries(metric, self.seed).filter(|_| cell.counts_all_entries()),
            false => self.median(load, row, metric),
        }
    }

    /// What to ask for to have more rounds of a load.
    pub fn more_rounds(&self, load: usize) -> &'static str {
        // Where the time ended before the rounds that were asked for, more of them are of no use.
        match self.asked_for_rounds && self.cut[load].is_none() {
            true => "more rounds (--rounds)",
            false => "more time (-t)",
        }
    }

    /// Why a row under a load has no rank; `None` if it has one.
    pub fn unranked(&self, load: usize, row: usize) -> Option<String> {
        let cell = &self.cells[load][row];
        cell.without_figures(&self.rows[row], &self.conformance[row])
            .or_else(|| self.invalid(load, row))
            .or_else(|| K::incomparable(self, load, row))
            .or_else(|| K::nothing_arrived(self, load, row).then(|| NOTHING_ARRIVED.into()))
            .or_else(|| {
                let more = || self.more_rounds(load);
                cell.of_another_machine
                    .then(|| format!("{}; ask for {}", cell::OF_ANOTHER_MACHINE, more()))
            })
    }

    /// What makes a cell's figures wrong, if anything.
    pub fn invalid(&self, load: usize, row: usize) -> Option<String> {
        self.cells[load][row].invalid()
    }

    /// Whether a row's figures under a load are wrong, or it failed its check.
    pub fn is_invalid(&self, load: usize, row: usize) -> bool {
        matches!(self.conformance[row], Conformance::Failed(_)) || self.invalid(load, row).is_some()
    }

    /// Takes out of the medians what was measured while the machine was another one
    /// ([`cell::count_only_alike`]).
    pub fn count_only_alike(&mut self) {
        self.cells.iter_mut().for_each(|cells| cell::count_only_alike(cells));
    }

    /// Ranks the rows of a group by what the load is ranked by.
    pub fn ranking(&self, load: usize, group: K::Group) -> Ranking {
        self.ranking_by(load, group, self.ranked_by(load))
    }

    /// The rankings of all groups, by load.
    pub fn rankings(&self) -> Vec<Vec<(K::Group, Ranking)>> {
        let of_load = |load: usize| {
            let groups = self.groups(load).into_iter();
            groups.map(|group| (group, self.ranking(load, group))).collect()
        };
        (0..self.loads.len()).map(of_load).collect()
    }

    /// Ranks the rows of a group. Where the rows of a load are not compared, none has a place.
    pub fn ranking_by(&self, load: usize, group: K::Group, metric: &Metric<K::Sample>) -> Ranking {
        if !self.compares(load) {
            return Ranking::default();
        }
        let rows = self
            .rows_of(load, group)
            .filter(|row| self.first_of(*row).is_none() && self.unranked(load, *row).is_none());
        Ranking::among(&Contest {
            cells: &self.cells[load],
            metric,
            rows: rows.collect(),
            again: self.pairs_of_again(load, group, metric),
            traditional: self.measure().filter(|row| self.unranked(load, *row).is_none()),
            seed: self.seed,
        })
    }

    fn pairs_of_again(
        &self,
        load: usize,
        group: K::Group,
        metric: &Metric<K::Sample>,
    ) -> Option<Pairs> {
        let (of, second) = self.again(group)?;
        let ranked = |row: usize| self.unranked(load, row).is_none();
        (ranked(of) && ranked(second)).then(|| self.pairs(load, metric, (of, second)))
    }

    /// The pairs of two rows, of runs of one round.
    pub fn pairs(
        &self,
        load: usize,
        metric: &Metric<K::Sample>,
        (first, second): (usize, usize),
    ) -> Pairs {
        let cells = &self.cells[load];
        pair(&cells[first].readings(metric), &cells[second].readings(metric))
    }

    /// Differences of the rows of a group below this share are noise; `None` if it is not known. A row that is
    /// not compared has no noise that would be that of the others.
    pub fn noise_floor(
        &self,
        load: usize,
        group: K::Group,
        metric: &Metric<K::Sample>,
    ) -> Option<f64> {
        noise_floor(&self.pairs_of_again(load, group, metric)?, CONFIDENCE, self.seed)
    }

    /// How one row stands to another of whatever group, above the noise of both groups.
    pub fn against(
        &self,
        load: usize,
        metric: &Metric<K::Sample>,
        (first, second): (usize, usize),
    ) -> Difference {
        let floor = |row: usize| self.noise_floor(load, self.group_of(row), metric);
        let floor = floor(first).zip(floor(second)).map(|(a, b)| a.max(b));
        judge(&self.pairs(load, metric, (first, second)), floor, CONFIDENCE, self.seed)
    }

    /// How many times better the first row is than the second.
    pub fn better_by(
        &self,
        load: usize,
        metric: &Metric<K::Sample>,
        (first, second): (usize, usize),
    ) -> Difference {
        match metric.better {
            Better::Higher => self.against(load, metric, (first, second)),
            Better::Lower => self.against(load, metric, (second, first)),
        }
    }

    /// How sure the figures of a load are, over all its ranked rows.
    pub fn confidence(&self, load: usize) -> Confidence {
        let metric = self.ranked_by(load);
        let estimates: Vec<Estimate> = (0..self.rows.len())
            .filter(|row| self.takes_part(load, *row) && self.unranked(load, *row).is_none())
            .filter_map(|row| self.cells[load][row].estimate(metric, self.seed))
            .collect();
        Confidence::of(&estimates, self.asked_half_width)
    }

    /// Whether more rounds of a load would tell nothing that was asked for: every figure is as sure as that,
    /// and every verdict is given.
    pub fn is_settled(&mut self, load: usize) -> bool {
        self.count_only_alike();
        let open = |group| self.ranking(load, group).is_open();
        self.confidence(load).reached() && !self.groups(load).into_iter().any(open)
    }

    /// All samples.
    pub fn samples(&self) -> impl Iterator<Item = &K::Sample> {
        self.cells.iter().flatten().flat_map(|cell| &cell.samples)
    }

    /// The row that has the best figure under a load so far, and that as it is written. Nothing is concluded from it.
    pub fn leading(&self, load: usize) -> Option<(usize, String)> {
        let metric = self.ranked_by(load);
        let known = (0..self.rows.len()).filter(|row| self.first_of(*row).is_none());
        let figure = |row: usize| Some((row, median(&self.cells[load][row].values(metric))?));
        let figures = known.filter_map(figure);
        let (row, figure) = match metric.better {
            Better::Higher => figures.max_by(|(_, a), (_, b)| a.total_cmp(b)),
            Better::Lower => figures.min_by(|(_, a), (_, b)| a.total_cmp(b)),
        }?;
        Some((row, (metric.text)(figure)))
    }

    /// The rounds of a load that were begun.
    pub fn rounds_made(&self, load: usize) -> usize {
        let samples = self.cells[load].iter().flat_map(|cell| &cell.samples);
        samples.map(|sample| sample.when().block as usize + 1).max().unwrap_or(0)
    }

    /// The rounds of a load that are complete, as far as that is known: where its time ran out, some rows may have run in
    /// one more.
    pub fn rounds_complete(&self, load: usize) -> usize {
        self.cut[load].map_or_else(|| self.rounds_made(load), |complete| complete as usize)
    }

    /// True if a check failed, a run failed, or a run's data were wrong.
    pub fn has_invalid_runs(&self) -> bool {
        self.conformance.iter().any(|c| matches!(c, Conformance::Failed(_)))
            || self.cells.iter().flatten().any(|cell| cell.failed_runs > 0)
            || self.cells.iter().flatten().any(|cell| cell.invalid().is_some())
            || (0..self.loads.len())
                .any(|load| (0..self.rows.len()).any(|row| K::nothing_arrived(self, load, row)))
            || self.own.besides().is_invalid
    }

    /// True if at least one run succeeded.
    pub fn has_figures(&self) -> bool {
        self.samples().next().is_some() || self.own.besides().has_figures
    }

    /// Warns if other programs had a good part of the cores while the runs were made.
    pub fn busy_machine(&self) -> Option<String> {
        cell::busy_machine(&self.loads_of_others())
    }

    /// The share (0 to 1) of all cores that other programs usually had, if that was too much.
    pub fn busy_share(&self) -> Option<f64> {
        let loads = self.loads_of_others();
        median(&loads).filter(|share| *share > MOST_LOAD_OF_OTHERS)
    }

    fn loads_of_others(&self) -> Vec<f64> {
        let mut loads: Vec<f64> =
            self.samples().filter_map(|sample| sample.when().load_of_others).collect();
        loads.extend(self.own.besides().loads_of_others);
        loads
    }

    /// How many runs of a load fell into a time when the machine was another, of how many.
    pub fn uncounted_runs(&self, load: usize) -> (usize, usize) {
        let standing = || self.cells[load].iter().flat_map(|cell| cell.standing());
        (standing().filter(|sample| !sample.when().counted).count(), standing().count())
    }

    /// The time from core to core before each run.
    pub fn core_to_core_ns(&self) -> Vec<f64> {
        self.samples().filter_map(|sample| sample.when().core_to_core_ns).collect()
    }

    /// The exit code that tells the truth about the experiment. One that somebody ended says so, unless it was an error that
    /// ended it; what no row can be run under is as if none could run.
    pub fn exit_code(&self) -> u8 {
        let unavailable = |row: usize| {
            (0..self.loads.len()).all(|load| self.status(load, row) == Status::Unavailable)
        };
        let none_runs_here = !self.rows.is_empty() && (0..self.rows.len()).all(unavailable);
        match (self.has_figures(), self.interrupted, self.has_invalid_runs()) {
            (false, ..) if none_runs_here => exit::UNAVAILABLE,
            (_, true, _) if self.error.is_none() => exit::INTERRUPTED,
            (false, ..) | (_, true, _) => exit::FAILED,
            (true, false, true) => exit::DATA_ERRORS,
            (true, false, false) => exit::OK,
        }
    }
}
