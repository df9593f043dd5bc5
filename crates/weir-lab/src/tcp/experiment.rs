//! A comparison of TCP from its plan to its results.
//!
//! First every row is checked; then each load is run in blocks ([`blocks`]) until its rounds are through,
//! its confidence is reached or its time is up. What fails is noted and the experiment goes on; an
//! interrupt ends it with what there is.

use super::bench::{Bench, Checked, Idle, Made, Run};
use super::classic;
use super::plan::{self, Load, PLANNED_OVERHEAD_MS, Settings};
use super::results::Results;
use super::sample::{Circumstances, Sample};
use crate::bench::RunError;
use crate::blocks::{self, Blocks, GIVEN_UP_AFTER, Interrupted};
use crate::cell::{Conformance, Measured};
use crate::exit;
use crate::plan::{Role, Row, Schedule};
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
    /// So many connections are tried, to find out how many a row can hold.
    Trying(&'a Row, u32),
    /// What was found.
    Held(&'a Row, String),
}

/// Runs the experiment that `results` describes and fills it in.
pub fn run(
    bench: &mut dyn Bench,
    results: &mut Results,
    settings: &Settings,
    tell: &mut dyn FnMut(Progress),
) {
    let budget_s = match (&results.classic, settings.budget_s) {
        // What it takes is known when it is found.
        (Some(_), None) => f64::INFINITY,
        _ => settings.budget_s(&results.loads, &results.rows),
    };
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
        .and_then(|()| classic::search(experiment.bench, results, experiment.tell));
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
    /// What starting and ending each run so far cost, the making of its connections apart.
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
                    results.idle[index] = checked.idle;
                    results.checked = Some(Checked { idle: Idle::default(), ..checked });
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
        self.run_one_of_each_group_again(results);
        Ok(())
    }

    /// A row that shows the noise of others must run, and be of their group.
    fn run_one_of_each_group_again(&self, results: &mut Results) {
        let passed = |results: &Results, row: usize| {
            results.conformance[row] == Conformance::Passed
                && !matches!(results.rows[row].role, Role::Again(_))
        };
        let planned = results.rows.iter().any(|row| matches!(row.role, Role::Again(_)));
        for group in [false, true] {
            let of_group = |results: &Results, row: usize| {
                passed(results, row) && results.group_of(row) == group
            };
            let rows = 0..results.rows.len();
            let Some(first) = rows.clone().find(|row| of_group(results, *row)) else { continue };
            let second = rows.clone().find(|index| match results.rows[*index].role {
                Role::Again(of) => of_group(results, of),
                _ => false,
            });
            match second {
                Some(second) => {
                    let Role::Again(of) = results.rows[second].role else { continue };
                    results.conformance[second] = results.conformance[of].clone();
                    results.idle[second] = results.idle[of];
                }
                None if planned => results.add_again(first),
                None => {}
            }
        }
    }

    /// Runs every load in its turn. Time that one did not use is left to the next.
    fn measure(&mut self, results: &mut Results) -> Result<(), Interrupted> {
        let passed = |row: &usize| results.conformance[*row] == Conformance::Passed;
        let rows: Vec<usize> = (0..results.rows.len()).filter(passed).collect();
        if rows.is_empty() {
            results.error = Some(
                "none of the designs can be measured here; the reasons stand in their rows".into(),
            );
            return Ok(());
        }
        for index in 0..results.loads.len() {
            let load = results.loads[index];
            let overhead_ms = crate::stats::median(&self.overhead_ms)
                .map_or(PLANNED_OVERHEAD_MS, |overhead| overhead.max(0.0) as u64)
                + load.connecting_ms();
            let left_s = (self.budget_s - self.bench.elapsed_s()).max(0.0);
            let share_s = plan::shares(&results.loads[index..], left_s)[0];
            let schedule = self.settings.schedule(share_s, rows.len(), overhead_ms);
            results.schedules[index] = Some(schedule);
            (self.tell)(Progress::Load(&load, schedule));
            let mut random = self.random.clone();
            let mut course = Course { experiment: self, results, load: index, schedule };
            // Every load has figures, even when that takes longer.
            let cut = blocks::run(&mut course, &rows, schedule, true, &mut random)?;
            self.random = random;
            if let Some(made) = cut {
                results.warnings.push(format!(
                    "{load}: ended after {made} of {} rounds, because its time was up",
                    schedule.rounds
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

    fn measure_once(
        &mut self,
        results: &mut Results,
        (load, row): (usize, usize),
        block: u32,
        schedule: Schedule,
    ) -> Result<(), Interrupted> {
        let run = Run {
            row: &results.rows[row],
            load: results.loads[load],
            warmup_ms: schedule.warmup_ms,
            run_ms: schedule.run_ms,
        };
        let before_s = self.bench.elapsed_s();
        match sample(self.bench, results, &run, (row, block)) {
            Ok(sample) => {
                let took_ms = (self.bench.elapsed_s() - before_s) * 1000.0;
                let planned_ms = schedule.run_ms + schedule.warmup_ms + run.load.connecting_ms();
                self.overhead_ms.push(took_ms - planned_ms as f64);
                results.cells[load][row].samples.push(sample);
            }
            Err(RunError::Interrupted) => return Err(Interrupted),
            Err(error) => {
                (self.tell)(Progress::Failed(run.row, error.to_string()));
                results.cells[load][row].failed(error.to_string());
            }
        }
        Ok(())
    }
}

/// Makes one run of a row.
pub(super) fn sample(
    bench: &mut dyn Bench,
    results: &Results,
    run: &Run,
    (row, block): (usize, u32),
) -> Result<Sample, RunError> {
    let core_to_core_ns = bench.core_to_core_ns();
    let made: Made = bench.run(run)?;
    let at = Circumstances {
        block,
        core_to_core_ns,
        core_to_core_after_ns: bench.core_to_core_ns(),
        server_cores: results.server_cores.len().max(1),
        client_cores: results.client_cores.len().max(1),
        polls: results.polls(row),
    };
    Ok(Sample::of(&at, &run.load, &made))
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
        let incomplete = cell.samples.iter().filter(|s| s.incomplete().is_some()).count();
        let in_vain = cell.failed_runs + incomplete as u32;
        // It has no rank any more, and often takes long.
        in_vain >= GIVEN_UP_AFTER
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

/// The exit code that tells the truth about an experiment, as that of one of UDP.
pub fn exit_code(results: &Results) -> u8 {
    let complete = results.has_figures() && !results.interrupted;
    exit::of_experiment(&results.rows, complete, !results.has_invalid_runs())
}

#[cfg(test)]
#[path = "experiment_tests.rs"]
mod tests;
