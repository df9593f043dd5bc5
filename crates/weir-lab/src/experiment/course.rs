//! A comparison from its plan to its results.
//!
//! First every row is checked; then each load is run in blocks ([`blocks`]) until its rounds are through,
//! its confidence is reached or its time is up. What fails is noted and the experiment goes on; an
//! interrupt ends it with what there is.

use crate::child::ChildError;
use crate::experiment::blocks::{self, Blocks, GIVEN_UP_AFTER, Interrupted};
use crate::experiment::cell::{self, Cell, Conformance, Disturbance, Measured, Skipped, When};
use crate::experiment::plan::budget::{NONE_CAN_BE_MEASURED, NOT_CHECKED, Time};
use crate::experiment::plan::{Depth, Row, Schedule, Settings, budget};
use crate::experiment::repeat;
use crate::experiment::results::{Results, Study};
use crate::stats::random::Random;

/// What happened, for whoever watches.
pub enum Progress<'a, K: Study> {
    /// Something is known that holds for all rows.
    Known(String),
    /// A row is checked.
    Checking(&'a Row),
    /// A row failed its check or cannot run.
    Dropped(&'a Row, String),
    /// A load begins, by this schedule.
    Load(&'a K::Load, Schedule),
    /// A run is made: which of how many of this load.
    Run {
        /// Its number, from 1.
        number: usize,
        /// Of so many.
        of: usize,
        /// Its row.
        row: &'a Row,
        /// The row with the best figure so far, and that.
        leading: Option<(&'a Row, String)>,
    },
    /// It was made.
    Measured {
        /// The load.
        load: &'a K::Load,
        /// Its row.
        row: &'a Row,
        /// What came of it.
        sample: &'a K::Sample,
    },
    /// It failed.
    Failed(&'a Row, String),
    /// A row cannot run under this load.
    Skipped(&'a Row, String),
    /// Something else is done with a row: what.
    Besides(&'a Row, String),
    /// What came of that.
    Found(&'a Row, String),
}

/// Who is told what happens.
pub type Tell<'a, K> = &'a mut dyn FnMut(Progress<K>);

/// Why a run delivered nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// This machine cannot run the row.
    #[error("{0}")]
    Unavailable(String),
    /// The time for all was over before it was through: that is no fault of the row.
    #[error("the total time was used up: {0}")]
    TimeIsUp(String),
    /// Something came between that may be none of the row's.
    #[error("{0}")]
    Disturbed(String),
    /// It failed this time.
    #[error("{0}")]
    Failed(String),
    /// The user wants to stop.
    #[error("interrupted")]
    Interrupted,
}

impl RunError {
    /// The same of what may only have failed since the time for all was over.
    pub(crate) fn or_time_is_up(self, time_is_up: bool) -> Self {
        match self {
            Self::Failed(reason) if time_is_up => Self::TimeIsUp(reason),
            other => other,
        }
    }
}

impl From<ChildError> for RunError {
    fn from(error: ChildError) -> Self {
        match error {
            ChildError::Reported(failure) if failure.unavailable => {
                Self::Unavailable(failure.message)
            }
            ChildError::Interrupted => Self::Interrupted,
            other => Self::Failed(other.to_string()),
        }
    }
}

/// One run to be made.
#[derive(Debug, Clone, Copy)]
pub struct Run<'a, L> {
    /// The row.
    pub row: &'a Row,
    /// The load.
    pub load: &'a L,
    /// Milliseconds that nothing counts.
    pub warmup_ms: u64,
    /// Milliseconds that are measured.
    pub run_ms: u64,
}

/// Where runs are made.
pub trait Bench<K: Course> {
    /// Seconds since the experiment began.
    fn elapsed_s(&self) -> f64;

    /// Lets nothing go on for longer than so many seconds after the experiment began.
    fn end_within(&mut self, _seconds: f64) {}

    /// Nanoseconds of a cache line's way between the cores that take part, now.
    fn core_to_core_ns(&mut self) -> Option<f64>;

    /// Looks whether a row does what every row must do, and how busy it is with little to do. It will be run
    /// under these loads.
    ///
    /// # Errors
    /// Any [`RunError`]; [`RunError::Failed`] says what was wrong, [`RunError::Disturbed`] what may be others'
    /// doing, and is looked at once more.
    fn check(&mut self, row: &Row, loads: &[K::Load]) -> Result<K::Checked, RunError>;

    /// Has the kernel count the entries of weir's own servers in the runs from now on, or no longer; gives whether it
    /// can. That slows every system call down, so such a run is good for nothing else.
    fn count_entries(&mut self, _on: bool) -> bool {
        false
    }

    /// Makes one run.
    ///
    /// # Errors
    /// Any [`RunError`].
    fn run(&mut self, run: &Run<K::Load>) -> Result<K::Made, RunError>;
}

/// What the course of a comparison must know of its kind.
pub trait Course: Study {
    /// What a row was checked with.
    type Checked;
    /// What a run delivered.
    type Made;
    /// What starting and ending a run costs until it has been measured, in milliseconds.
    const PLANNED_OVERHEAD_MS: u64;
    /// What checking a row costs in a plan, in milliseconds.
    const PLANNED_CHECK_MS: u64;

    /// Rounds of a load that are aimed at: fewer make runs longer.
    fn aims_at(depth: Depth, load: &Self::Load) -> u32;

    /// Seconds from the first check to the table where nothing unusual is asked for; what has more loads or more
    /// rows than that has the time that it takes.
    fn usual_s(depth: Depth, loads: &[Self::Load], rows: &[Row]) -> Option<f64>;

    /// Milliseconds of a run in such a plan.
    fn planned_run_ms(_: &Self::Load) -> u64 {
        budget::PLANNED_RUN_MS
    }

    /// Milliseconds that go by before the checks in such a plan.
    fn planned_before_ms(_: &[Self::Load]) -> u64 {
        0
    }

    /// Seconds that what comes after all loads takes.
    fn planned_after_s(&self, _: &[Row]) -> f64 {
        0.0
    }

    /// Rounds of a load: those asked for, or what is aimed at.
    fn rounds_of(settings: &Settings, load: &Self::Load) -> u32 {
        settings.rounds.unwrap_or_else(|| Self::aims_at(settings.depth, load))
    }

    /// Seconds that an experiment may take in all.
    fn budget_s(settings: &Settings, loads: &[Self::Load], rows: &[Row]) -> f64 {
        let usual = || match settings.rounds {
            Some(_) => None,
            None => Self::usual_s(settings.depth, loads, rows),
        };
        let asked = settings.budget_s.or_else(usual);
        asked.unwrap_or_else(|| Self::estimate_s(settings, loads, rows))
    }

    /// The seconds that loads and rows take with all the rounds of each load.
    fn estimate_s(settings: &Settings, loads: &[Self::Load], rows: &[Row]) -> f64 {
        let of_load = |load: &Self::Load| {
            let run_ms = Self::planned_run_ms(load) + budget::WARMUP_MS + Self::PLANNED_OVERHEAD_MS;
            let rows = Self::count_rows(load, rows) as u64;
            let rounds = u64::from(Self::rounds_of(settings, load));
            rounds * rows * (run_ms + Self::preparing_ms(load))
        };
        (Self::before_ms(loads, rows) + loads.iter().map(of_load).sum::<u64>()) as f64 / 1000.0
    }

    /// What is planned of each load: its part of the time that checks leave, and the rounds that it makes of it.
    fn planned(settings: &Settings, loads: &[Self::Load], rows: &[Row]) -> Vec<Planned> {
        let of: Vec<(Self::Load, usize)> =
            loads.iter().map(|load| (load.clone(), Self::count_rows(load, rows))).collect();
        let before_s = Self::before_ms(loads, rows) as f64 / 1000.0;
        let left_s = (Self::budget_s(settings, loads, rows) - before_s).max(0.0);
        let planned = |((load, rows), share_s): (&(Self::Load, usize), f64)| {
            let overhead_ms = Self::PLANNED_OVERHEAD_MS + Self::preparing_ms(load);
            let schedule = Self::schedule(settings, load, share_s, *rows, overhead_ms);
            let fits = schedule.total_ms(*rows, overhead_ms) as f64 <= share_s * 1000.0;
            Planned { rows: *rows, share_s, schedule, fits: fits || !settings.is_bound }
        };
        of.iter().zip(Self::shares(settings, &of, left_s)).map(planned).collect()
    }

    /// Milliseconds that go by before the first load: what the checks take by the plan, and what comes before them.
    fn before_ms(loads: &[Self::Load], rows: &[Row]) -> u64 {
        let can_run = rows.iter().filter(|row| row.unavailable.is_none()).count();
        can_run as u64 * Self::PLANNED_CHECK_MS + Self::planned_before_ms(loads)
    }

    /// Notes with what a row was checked.
    fn checked(results: &mut Results<Self>, row: usize, with: Self::Checked);

    /// Whether a row may show the noise of its group, which is that of its second name.
    fn may_run_again(_: &Row) -> bool {
        true
    }

    /// Whether a group has a row that runs again, where these all have one that could.
    fn runs_again(_: Self::Group, _among: &[Self::Group]) -> bool {
        true
    }

    /// How many rows take part in a load and may run here, as far as is known: the second name of a row is one of
    /// them.
    fn count_rows(load: &Self::Load, rows: &[Row]) -> usize {
        let taking = |row: &&Row| row.unavailable.is_none() && Self::takes_part(load, row);
        rows.iter().filter(taking).count()
    }

    /// The seconds of each load, with which stands how many rows it has: in proportion to what its rounds take at
    /// least. A single load has all.
    fn shares(settings: &Settings, loads: &[(Self::Load, usize)], seconds: f64) -> Vec<f64> {
        let fixed_ms = budget::SHORTEST_RUN_MS + budget::WARMUP_MS + Self::PLANNED_OVERHEAD_MS;
        let weight = |(load, rows): &(Self::Load, usize)| {
            let rounds = f64::from(Self::rounds_of(settings, load));
            rounds * *rows as f64 * (fixed_ms + Self::preparing_ms(load)) as f64
        };
        let all: f64 = loads.iter().map(weight).sum();
        loads.iter().map(|load| seconds * weight(load) / all.max(1.0)).collect()
    }

    /// Rounds and run time of a load that has `share_s` seconds, where starting and ending a run costs
    /// `overhead_ms`.
    fn schedule(
        settings: &Settings,
        load: &Self::Load,
        share_s: f64,
        rows: usize,
        overhead_ms: u64,
    ) -> Schedule {
        let aimed = Self::aims_at(settings.depth, load);
        budget::fit_asked(settings.rounds, aimed, share_s, rows, overhead_ms)
    }

    /// Milliseconds that getting ready for this load takes, in each run.
    fn preparing_ms(_: &Self::Load) -> u64 {
        0
    }

    /// What a row is run under where it stands under that load.
    ///
    /// # Errors
    /// Why there is nothing to run.
    fn load_of(results: &Results<Self>, load: usize, _row: usize) -> Result<Self::Load, NoRun> {
        Ok(results.loads[load].clone())
    }

    /// What a run of a row came to.
    ///
    /// # Errors
    /// If it is no sample.
    fn sample(
        results: &Results<Self>,
        row: usize,
        load: &Self::Load,
        when: &When,
        made: Self::Made,
    ) -> Result<Self::Sample, RunError>;

    /// What disturbed a run under a load, if anything did.
    fn disturbance(_: &Self::Load, sample: &Self::Sample) -> Option<Disturbance> {
        sample.disturbance()
    }

    /// Runs of a row that were made in vain: those that failed, as long as none succeeded.
    fn in_vain(cell: &Cell<Self::Sample>) -> u32 {
        if cell.samples.is_empty() { cell.failed_runs } else { 0 }
    }
}

/// What is planned of a load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Planned {
    /// The rows that take part and may run here.
    pub rows: usize,
    /// Its part of the time, in seconds.
    pub share_s: f64,
    /// Its rounds; more or fewer are made if runs cost less or more than planned, or once all is decided.
    pub schedule: Schedule,
    /// Whether they fit into the time, where that is a limit.
    pub fits: bool,
}

/// Why there is nothing to run of a row under a load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoRun {
    /// What it follows from was not found: that is as if its run had failed.
    Failed(String),
    /// There is nothing to measure.
    NotMeasured(String),
}

/// Most attempts at a check into which others may have come.
const MOST_CHECKS: u32 = 2;

/// Checks the rows and measures the loads, within that time.
///
/// # Errors
/// [`Interrupted`].
pub fn run<K: Course>(
    bench: &mut dyn Bench<K>,
    results: &mut Results<K>,
    settings: &Settings,
    time: Time,
    random: &mut Random,
    tell: Tell<K>,
) -> Result<(), Interrupted> {
    let settings = *settings;
    results.asked_for_rounds = settings.rounds.is_some();
    let (overhead_ms, check_ms) = (vec![], vec![]);
    let mut experiment = Experiment { bench, settings, time, random, tell, overhead_ms, check_ms };
    if time.is_bound {
        experiment.bench.end_within(time.seconds);
    }
    experiment.check(results)?;
    experiment.measure(results)
}

/// Ends an experiment that went so far: says what must be known of it.
pub fn conclude<K: Study>(results: &mut Results<K>, went: Result<(), Interrupted>) {
    results.interrupted |= went.is_err();
    results.count_only_alike();
    results.warnings.extend(results.busy_machine());
}

/// Makes one run of a row.
///
/// # Errors
/// Any [`RunError`].
pub fn sample<K: Course>(
    bench: &mut dyn Bench<K>,
    results: &Results<K>,
    run: &Run<K::Load>,
    (row, block): (usize, u32),
) -> Result<K::Sample, RunError> {
    let core_to_core_ns = bench.core_to_core_ns();
    let made = bench.run(run)?;
    let core_to_core_after_ns = bench.core_to_core_ns();
    let when = When { block, core_to_core_ns, core_to_core_after_ns, ..When::default() };
    K::sample(results, row, run.load, &when, made)
}

/// The share of the runs that need no more than a further one is given.
const MOST_RUNS: f64 = 0.9;

struct Experiment<'a, 'b, K: Course> {
    bench: &'a mut dyn Bench<K>,
    settings: Settings,
    time: Time,
    random: &'a mut Random,
    tell: Tell<'b, K>,
    /// What starting and ending each run so far cost, getting ready for its load apart.
    overhead_ms: Vec<f64>,
    /// What checking each row so far cost.
    check_ms: Vec<f64>,
}

impl<K: Course> Experiment<'_, '_, K> {
    /// Checks each row that can run, and finds out whether it polls. The second name of a row passes with
    /// its first, and each group that is ranked gets one.
    fn check(&mut self, results: &mut Results<K>) -> Result<(), Interrupted> {
        let mut unchecked = vec![];
        for index in 0..results.rows.len() {
            let row = results.rows[index].clone();
            if row.unavailable.is_some() || results.first_of(index).is_some() {
                continue;
            }
            let takes_ms = crate::stats::median(&self.check_ms).unwrap_or(0.0);
            let before_s = self.bench.elapsed_s();
            if !self.time.has_room(before_s, takes_ms) {
                unchecked.push(index);
                continue;
            }
            (self.tell)(Progress::Checking(&row));
            let mut attempt = 1;
            let checked = loop {
                match self.bench.check(&row, &results.loads) {
                    // It may be the row's own all the same: if it recurs, it is.
                    Err(RunError::Disturbed(reason))
                        if attempt < MOST_CHECKS
                            && self.time.has_room(self.bench.elapsed_s(), takes_ms) =>
                    {
                        attempt += 1;
                        let again = format!("the check of {row} was repeated: {reason}");
                        results.warnings.push(again);
                    }
                    other => break other,
                }
            };
            self.check_ms.push((self.bench.elapsed_s() - before_s) * 1000.0);
            results.conformance[index] = match checked {
                Ok(checked) => {
                    K::checked(results, index, checked);
                    Conformance::Passed
                }
                Err(RunError::Interrupted) => return Err(Interrupted),
                Err(RunError::Unavailable(reason)) => {
                    results.rows[index].unavailable = Some(reason.clone());
                    (self.tell)(Progress::Dropped(&row, reason));
                    Conformance::NotChecked
                }
                Err(RunError::TimeIsUp(_)) => {
                    unchecked.push(index);
                    Conformance::NotChecked
                }
                Err(RunError::Failed(reason) | RunError::Disturbed(reason)) => {
                    (self.tell)(Progress::Dropped(&row, reason.clone()));
                    Conformance::Failed(reason)
                }
            };
        }
        if !unchecked.is_empty() {
            let names: Vec<String> =
                unchecked.iter().map(|row| results.rows[*row].title()).collect();
            results.warnings.push(self.time.unchecked(&names, results.rows.len()));
            unchecked.iter().for_each(|row| not_checked(results, *row));
        }
        run_one_of_each_group_again(results);
        for second in 0..results.rows.len() {
            if results.first_of(second).is_some_and(|of| unchecked.contains(&of)) {
                not_checked(results, second);
            }
        }
        Ok(())
    }

    /// Runs every load in its turn. Time that one did not use is left to the next.
    fn measure(&mut self, results: &mut Results<K>) -> Result<(), Interrupted> {
        let rows = results.passed();
        if rows.is_empty() {
            let unchecked = cell::any_unchecked(&results.rows, &results.conformance);
            results.error.get_or_insert_with(|| match unchecked {
                true => self.time.without_a_run(),
                false => NONE_CAN_BE_MEASURED.into(),
            });
            return Ok(());
        }
        let rows_of = |results: &Results<K>, load: usize| -> Vec<usize> {
            let taking = |row: &usize| {
                results.takes_part(load, *row) && results.cells[load][*row].skipped.is_none()
            };
            rows.iter().copied().filter(taking).collect()
        };
        for index in 0..results.loads.len() {
            let rows = rows_of(results, index);
            if rows.is_empty() {
                continue;
            }
            let load = &results.loads[index];
            let overhead_ms = crate::stats::median(&self.overhead_ms)
                .map_or(K::PLANNED_OVERHEAD_MS, |overhead| overhead.max(0.0) as u64)
                + K::preparing_ms(load);
            let left_s = (self.time.seconds - self.bench.elapsed_s()).max(0.0);
            let ahead: Vec<(K::Load, usize)> = (index..results.loads.len())
                .map(|load| (results.loads[load].clone(), rows_of(results, load).len()))
                .filter(|(_, rows)| *rows > 0)
                .collect();
            let share_s = K::shares(&self.settings, &ahead, left_s)[0];
            let schedule = K::schedule(&self.settings, load, share_s, rows.len(), overhead_ms);
            (self.tell)(Progress::Load(load, schedule));
            results.schedules[index] = Some(schedule);
            let mut random = self.random.clone();
            let mut course = OfLoad { experiment: self, results, load: index, schedule };
            let cut = blocks::run(&mut course, &rows, schedule, &mut random)?;
            *self.random = random;
            results.cut[index] = cut;
            self.count_entries(results, index, &rows, schedule)?;
            if let Some(made) = cut {
                let begun = results.rounds_made(index) as u32 > made;
                results.warnings.push(format!(
                    "{}: ended after {made} of {} rounds, because its time ran out{}",
                    results.loads[index],
                    schedule.rounds,
                    if begun { "; some rows also ran in the next one" } else { "" }
                ));
            }
        }
        results.warnings.extend(self.time.exceeded(self.bench.elapsed_s()));
        if self.time.is_bound && !results.has_figures() && cell::had_no_time(&results.cells) {
            results.error.get_or_insert_with(|| self.time.without_a_run());
        }
        Ok(())
    }

    /// How long all but the slowest runs of a load take: a time that was asked for is no median.
    fn run_takes_ms(&self, load: &K::Load, schedule: Schedule) -> f64 {
        let Schedule { warmup_ms, run_ms, .. } = schedule;
        let overhead_ms = crate::stats::quantile(&self.overhead_ms, MOST_RUNS)
            .unwrap_or(K::PLANNED_OVERHEAD_MS as f64)
            .max(0.0);
        (warmup_ms + run_ms + K::preparing_ms(load)) as f64 + overhead_ms
    }

    /// Makes one more run of each row whose own count leaves entries into the kernel out, in which the kernel counts
    /// them, and keeps nothing else of it.
    fn count_entries(
        &mut self,
        results: &mut Results<K>,
        load: usize,
        rows: &[usize],
        schedule: Schedule,
    ) -> Result<(), Interrupted> {
        let Schedule { warmup_ms, run_ms, .. } = schedule;
        let wanting = rows.iter().filter(|row| results.cells[load][**row].leaves_entries_out());
        let wanting: Vec<usize> = wanting.copied().collect();
        if wanting.is_empty() || !self.bench.count_entries(true) {
            return Ok(());
        }
        let mut took_ms = self.run_takes_ms(&results.loads[load], schedule);
        for row in wanting {
            // These are slower than others.
            let before_s = self.bench.elapsed_s();
            if !self.time.has_room(before_s, took_ms) {
                break;
            }
            let Ok(asked) = K::load_of(results, load, row) else { continue };
            let run = Run { row: &results.rows[row], load: &asked, warmup_ms, run_ms };
            match sample(self.bench, results, &run, (row, 0)) {
                Ok(sample) => results.cells[load][row].note_entries(&sample, &K::ENTRIES),
                Err(RunError::Interrupted) => return Err(Interrupted),
                // It has its figures; only this one stays a lower bound.
                Err(_) => {}
            }
            took_ms = took_ms.max((self.bench.elapsed_s() - before_s) * 1000.0);
        }
        self.bench.count_entries(false);
        Ok(())
    }

    fn measure_once(
        &mut self,
        results: &mut Results<K>,
        (load, row): (usize, usize),
        block: u32,
        schedule: Schedule,
    ) -> Result<(), Interrupted> {
        let Schedule { warmup_ms, run_ms, .. } = schedule;
        let asked = match K::load_of(results, load, row) {
            Ok(asked) => asked,
            Err(NoRun::Failed(reason)) => {
                results.cells[load][row].failed(reason);
                return Ok(());
            }
            Err(NoRun::NotMeasured(reason)) => {
                results.cells[load][row].skipped = Some(Skipped::NotMeasured(reason));
                return Ok(());
            }
        };
        let run = Run { row: &results.rows[row], load: &asked, warmup_ms, run_ms };
        let before_s = self.bench.elapsed_s();
        let made = sample(self.bench, results, &run, (row, block));
        let is_first = results.cells[load][row].samples.is_empty();
        match made {
            Ok(mut sample) => {
                sample.when_mut().disturbed = K::disturbance(&results.loads[load], &sample);
                let took_ms = (self.bench.elapsed_s() - before_s) * 1000.0;
                let planned_ms = warmup_ms + run_ms + K::preparing_ms(run.load);
                self.overhead_ms.push(took_ms - planned_ms as f64);
                let (load_of, row_of) = (&results.loads[load], &results.rows[row]);
                (self.tell)(Progress::Measured { load: load_of, row: row_of, sample: &sample });
                results.cells[load][row].samples.push(sample);
            }
            Err(RunError::Interrupted) => return Err(Interrupted),
            // It can run elsewhere, or it would have been left out before. What has run can run.
            Err(RunError::Unavailable(reason)) if is_first => {
                (self.tell)(Progress::Skipped(run.row, reason.clone()));
                results.cells[load][row].skipped = Some(Skipped::Unavailable(reason));
            }
            Err(error @ RunError::TimeIsUp(_)) => {
                if is_first {
                    let reason = || Skipped::NotMeasured(error.to_string());
                    results.cells[load][row].skipped.get_or_insert_with(reason);
                }
            }
            Err(
                RunError::Unavailable(reason)
                | RunError::Failed(reason)
                | RunError::Disturbed(reason),
            ) => {
                (self.tell)(Progress::Failed(run.row, reason.clone()));
                results.cells[load][row].failed(reason);
            }
        }
        Ok(())
    }
}

/// Notes that there was no time for the check of a row.
fn not_checked<K: Study>(results: &mut Results<K>, row: usize) {
    for cells in &mut results.cells {
        let reason = || Skipped::NotMeasured(NOT_CHECKED.into());
        cells[row].skipped.get_or_insert_with(reason);
    }
}

/// A row that shows the noise of others must run, and be of their group. A second name that was planned of a
/// row that cannot show it is given to one that can.
fn run_one_of_each_group_again<K: Course>(results: &mut Results<K>) {
    if !(0..results.rows.len()).any(|row| results.first_of(row).is_some()) {
        return;
    }
    let first_of = |results: &Results<K>, group: K::Group| {
        results.passed().into_iter().find(|row| {
            results.first_of(*row).is_none()
                && K::may_run_again(&results.rows[*row])
                && results.group_of(*row) == group
        })
    };
    let among: Vec<K::Group> =
        K::GROUPS.iter().copied().filter(|group| first_of(results, *group).is_some()).collect();
    let groups: Vec<K::Group> =
        among.iter().copied().filter(|group| K::runs_again(*group, &among)).collect();
    for group in &groups {
        let Some(first) = first_of(results, *group) else { continue };
        let runs = |of: usize| results.conformance[of] == Conformance::Passed;
        let second_of = |wanted: &dyn Fn(usize) -> bool| {
            (0..results.rows.len()).find_map(|second| {
                Some((second, results.first_of(second).filter(|of| wanted(*of))?))
            })
        };
        let planned = second_of(&|of| runs(of) && results.group_of(of) == *group);
        let unused = || second_of(&|of| !runs(of) || !groups.contains(&results.group_of(of)));
        match (planned, planned.is_none().then(unused).flatten()) {
            (Some((second, of)), _) => results.make_again(second, of),
            (None, Some((second, _))) => results.make_again(second, first),
            (None, None) => results.add_again(first),
        }
    }
    for second in 0..results.rows.len() {
        if let Some(of) = results.first_of(second) {
            results.make_again(second, of);
        }
    }
}

/// The runs of one load.
struct OfLoad<'a, 'b, 'c, K: Course> {
    experiment: &'a mut Experiment<'b, 'c, K>,
    results: &'a mut Results<K>,
    load: usize,
    schedule: Schedule,
}

impl<K: Course> Blocks for OfLoad<'_, '_, '_, K> {
    fn time_is_up(&self) -> bool {
        self.experiment.time.is_up(self.experiment.bench.elapsed_s())
    }

    fn has_time(&self) -> bool {
        let takes_ms = self.experiment.run_takes_ms(&self.results.loads[self.load], self.schedule);
        self.experiment.time.has_room(self.experiment.bench.elapsed_s(), takes_ms)
    }

    fn lacks_time(&mut self, row: usize) {
        self.results.cells[self.load][row].had_no_time();
    }

    fn is_settled(&mut self) -> bool {
        self.experiment.settings.ends_early() && self.results.is_settled(self.load)
    }

    fn is_over(&self, row: usize) -> bool {
        let cell = &self.results.cells[self.load][row];
        cell.skipped.is_some() || K::in_vain(cell) >= GIVEN_UP_AFTER
    }

    fn begins(&mut self, row: usize, number: usize, of: usize) {
        let leading = self.results.leading(self.load);
        let leading = leading.map(|(row, figure)| (&self.results.rows[row], figure));
        let row = &self.results.rows[row];
        (self.experiment.tell)(Progress::Run { number, of, row, leading });
    }

    fn run(&mut self, row: usize, block: u32) -> Result<bool, Interrupted> {
        let Self { experiment, results, load, schedule } = self;
        experiment.measure_once(results, (*load, row), block, *schedule)?;
        Ok(repeat::settle(&mut results.cells[*load], row, block, schedule.rounds))
    }
}
