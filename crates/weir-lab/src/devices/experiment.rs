//! A comparison of designs that read a device, from its plan to its results.
//!
//! First every row is checked; then each load is run in blocks ([`blocks`]) until its rounds are through,
//! its confidence is reached or its time is up; then, if that was asked for, each row runs once for long.
//! What fails is noted and the experiment goes on; an interrupt ends it with what there is.

use super::bench::{Bench, Run};
use super::plan::{Load, PLANNED_OVERHEAD_MS, Settings};
use super::results::{Group, LongRun, Results};
use super::sample::{Circumstances, Sample};
use crate::bench::RunError;
use crate::blocks::{self, Blocks, GIVEN_UP_AFTER, Interrupted};
use crate::cell::{Conformance, Measured, Status};
use crate::exit;
use crate::plan::{self, Role, Row, Schedule};
use crate::random::Random;

/// What happened, for whoever watches.
#[derive(Debug, Clone, PartialEq)]
pub enum Progress<'a> {
    /// A row is checked.
    Checking(&'a Row),
    /// A row failed its check or cannot run.
    Dropped(&'a Row, String),
    /// A load begins, by this schedule.
    Load(&'a Load, Schedule),
    /// A run is made: which of how many of this load.
    Run {
        /// Its number, from 1.
        number: usize,
        /// Of so many.
        of: usize,
        /// Its row.
        row: &'a Row,
    },
    /// It failed.
    Failed(&'a Row, String),
    /// A row cannot read this device.
    Skipped(&'a Row, String),
    /// A long run is made.
    LongRun(&'a Row),
}

/// Runs the experiment that `results` describes and fills it in.
pub fn run(
    bench: &mut dyn Bench,
    results: &mut Results,
    settings: &Settings,
    tell: &mut dyn FnMut(Progress),
) {
    let budget_s = settings.budget_s(&results.loads, &results.rows);
    let mut experiment = Experiment {
        bench,
        settings: *settings,
        budget_s,
        random: Random::seeded(results.seed),
        tell,
        overhead_ms: vec![],
    };
    let ended = experiment
        .check(results)
        .and_then(|()| experiment.measure(results))
        .and_then(|()| experiment.run_long(results));
    if ended.is_err() {
        results.interrupted = true;
    }
    results.count_only_alike();
    results.warnings.extend(results.busy_machine());
}

struct Experiment<'a> {
    bench: &'a mut dyn Bench,
    settings: Settings,
    budget_s: f64,
    random: Random,
    tell: &'a mut dyn FnMut(Progress),
    /// What starting and ending each run so far cost.
    overhead_ms: Vec<f64>,
}

impl Experiment<'_> {
    /// Checks each row that can run, and finds out whether it polls. The second name of a row passes with
    /// its first, and each group that is ranked gets one.
    fn check(&mut self, results: &mut Results) -> Result<(), Interrupted> {
        for index in 0..results.rows.len() {
            let row = results.rows[index].clone();
            if row.unavailable.is_some() || matches!(row.role, Role::Again(_)) {
                continue;
            }
            (self.tell)(Progress::Checking(&row));
            results.conformance[index] = match self.bench.check(&row) {
                Ok(checked) => {
                    results.checked[index] = Some(checked);
                    Conformance::Passed
                }
                Err(RunError::Interrupted) => return Err(Interrupted),
                Err(RunError::Unavailable(reason)) => {
                    results.rows[index].unavailable = Some(reason.clone());
                    (self.tell)(Progress::Dropped(&row, reason));
                    Conformance::NotChecked
                }
                Err(RunError::Failed(reason)) => {
                    (self.tell)(Progress::Dropped(&row, reason.clone()));
                    Conformance::Failed(reason)
                }
            };
        }
        run_one_of_each_group_again(results);
        Ok(())
    }

    /// Runs every load in its turn. Time that one did not use is left to the next.
    fn measure(&mut self, results: &mut Results) -> Result<(), Interrupted> {
        let rows = passed(results);
        if rows.is_empty() {
            results.error = Some(
                "none of the designs can be measured here; the reasons stand in their rows".into(),
            );
            return Ok(());
        }
        for index in 0..results.loads.len() {
            let overhead_ms = crate::stats::median(&self.overhead_ms)
                .map_or(PLANNED_OVERHEAD_MS, |overhead| overhead.max(0.0) as u64);
            let left_s = (self.budget_s - self.bench.elapsed_s()).max(0.0);
            let share_s = left_s / (results.loads.len() - index) as f64;
            let schedule = self.settings.schedule(share_s, rows.len(), overhead_ms);
            results.schedules[index] = Some(schedule);
            (self.tell)(Progress::Load(&results.loads[index], schedule));
            let mut random = self.random.clone();
            let mut course = Course { experiment: self, results, load: index, schedule };
            // Every load has figures, even when that takes longer.
            let cut = blocks::run(&mut course, &rows, schedule, true, &mut random)?;
            self.random = random;
            if let Some(made) = cut {
                results.warnings.push(format!(
                    "{}: ended after {made} of {} rounds, because its time was up",
                    results.loads[index], schedule.rounds
                ));
            }
        }
        let took_s = self.bench.elapsed_s();
        if took_s > self.budget_s * 1.1 {
            results.warnings.push(format!(
                "it took {took_s:.0} s instead of {:.0}: compare fewer designs, or give it more time",
                self.budget_s
            ));
        }
        Ok(())
    }

    /// Runs each row once for long under the first load, in random order.
    fn run_long(&mut self, results: &mut Results) -> Result<(), Interrupted> {
        let Some(time) = self.settings.long_run else { return Ok(()) };
        for row in plan::block_order(&passed(results), &mut self.random) {
            let again = matches!(results.rows[row].role, Role::Again(_));
            if again || results.status(0, row) != Status::Ok {
                continue;
            }
            (self.tell)(Progress::LongRun(&results.rows[row]));
            let made = self.bench.long_run(&results.rows[row], &results.loads[0], time);
            results.long_runs[row] = match made {
                Ok(decay) => Some(LongRun::Made(decay)),
                Err(RunError::Interrupted) => return Err(Interrupted),
                Err(error) => {
                    (self.tell)(Progress::Failed(&results.rows[row], error.to_string()));
                    Some(LongRun::Failed(error.to_string()))
                }
            };
        }
        Ok(())
    }

    fn measure_once(
        &mut self,
        results: &mut Results,
        (load, row): (usize, usize),
        block: u32,
        schedule: Schedule,
    ) -> Result<(), Interrupted> {
        let run = Run {
            row: &results.rows[row],
            load: &results.loads[load],
            warmup_ms: schedule.warmup_ms,
            run_ms: schedule.run_ms,
        };
        let before_s = self.bench.elapsed_s();
        let core_to_core_ns = self.bench.core_to_core_ns();
        match self.bench.run(&run) {
            Ok(made) => {
                let core_to_core_after_ns = self.bench.core_to_core_ns();
                let at = Circumstances { block, core_to_core_ns, core_to_core_after_ns };
                let took_ms = (self.bench.elapsed_s() - before_s) * 1000.0;
                self.overhead_ms.push(took_ms - (schedule.run_ms + schedule.warmup_ms) as f64);
                results.cells[load][row].samples.push(Sample::of(&at, made));
            }
            Err(RunError::Interrupted) => return Err(Interrupted),
            Err(RunError::Unavailable(reason)) => {
                (self.tell)(Progress::Skipped(run.row, reason.clone()));
                let cell = &mut results.cells[load][row];
                // What has been read before can be read.
                if cell.samples.is_empty() {
                    cell.skipped = Some(reason);
                } else {
                    cell.failed(reason);
                }
            }
            Err(RunError::Failed(reason)) => {
                (self.tell)(Progress::Failed(run.row, reason.clone()));
                results.cells[load][row].failed(reason);
            }
        }
        Ok(())
    }
}

/// The rows that are timed.
fn passed(results: &Results) -> Vec<usize> {
    let passed = |row: &usize| results.conformance[*row] == Conformance::Passed;
    (0..results.rows.len()).filter(passed).collect()
}

/// A row that shows the noise of others must run, and be of their group.
fn run_one_of_each_group_again(results: &mut Results) {
    let planned = results.rows.iter().any(|row| matches!(row.role, Role::Again(_)));
    for group in [Group::Waits, Group::Polls] {
        let of_group = |results: &Results, row: usize| {
            results.conformance[row] == Conformance::Passed
                && results.rows[row].peer.is_none()
                && results.group_of(row) == group
        };
        let is_again = |row: &Row| matches!(row.role, Role::Again(_));
        let rows = 0..results.rows.len();
        let mut firsts = rows.clone().filter(|row| !is_again(&results.rows[*row]));
        let Some(first) = firsts.find(|row| of_group(results, *row)) else { continue };
        let second = rows.clone().find_map(|index| match results.rows[index].role {
            Role::Again(of) if of_group(results, of) => Some((index, of)),
            _ => None,
        });
        match second {
            Some((second, of)) => {
                results.conformance[second] = results.conformance[of].clone();
                results.checked[second] = results.checked[of].clone();
            }
            None if planned => results.add_again(first),
            None => {}
        }
    }
}

/// The runs of one load.
struct Course<'a, 'b> {
    experiment: &'a mut Experiment<'b>,
    results: &'a mut Results,
    load: usize,
    schedule: Schedule,
}

impl Blocks for Course<'_, '_> {
    fn time_is_up(&self) -> bool {
        self.experiment.bench.elapsed_s() > self.experiment.budget_s
    }

    fn is_settled(&mut self) -> bool {
        self.experiment.settings.rounds.is_none() && self.results.is_settled(self.load)
    }

    fn is_over(&self, row: usize) -> bool {
        let cell = &self.results.cells[self.load][row];
        cell.skipped.is_some() || cell.failed_runs >= GIVEN_UP_AFTER
    }

    fn begins(&mut self, row: usize, number: usize, of: usize) {
        (self.experiment.tell)(Progress::Run { number, of, row: &self.results.rows[row] });
    }

    fn run(&mut self, row: usize, block: u32) -> Result<bool, Interrupted> {
        let Self { experiment, results, load, schedule } = self;
        experiment.measure_once(results, (*load, row), block, *schedule)?;
        let lost = |sample: &Sample| sample.block == block && sample.changed_machine();
        Ok(results.cells[*load][row].samples.last().is_some_and(lost))
    }
}

/// The exit code that tells the truth about an experiment, as that of one of UDP. What no row can read is as if
/// none could run.
pub fn exit_code(results: &Results) -> u8 {
    let unavailable = |row: usize| results.status(0, row) == Status::Unavailable;
    let complete = results.has_figures() && !results.interrupted;
    if !results.has_figures() && (0..results.rows.len()).all(unavailable) {
        return exit::UNAVAILABLE;
    }
    exit::of_experiment(&results.rows, complete, !results.has_invalid_runs())
}

#[cfg(test)]
#[path = "experiment_tests.rs"]
mod tests;
