//! A comparison of designs that read a device, from its plan to its results.
//!
//! Its course is that of every comparison ([`course`]); then, if that was asked for, each row runs once for
//! long.

use super::bench::{Checked, Made};
use super::plan::{Load, PLANNED_OVERHEAD_MS, aims_at, runs, usual_s};
use super::results::{Devices, Group, LongRun, Results};
use super::sample::Sample;
use crate::experiment::blocks::Interrupted;
use crate::experiment::cell::{Status, When};
use crate::experiment::course::{self, Course, Progress, RunError, Tell};
use crate::experiment::plan::{self, Depth, Row, Schedule, Settings, budget};
use crate::iops::{OverTime, Plan};
use crate::stats::random::Random;
use std::time::Duration;

impl Course for Devices {
    type Checked = Checked;
    type Made = Made;

    const PLANNED_OVERHEAD_MS: u64 = PLANNED_OVERHEAD_MS;
    const PLANNED_CHECK_MS: u64 = 300;

    fn aims_at(depth: Depth, _: &Load) -> u32 {
        aims_at(depth)
    }

    fn usual_s(depth: Depth, loads: &[Load], rows: &[Row]) -> Option<f64> {
        usual_s(depth, loads, rows)
    }

    fn planned_run_ms(load: &Load) -> u64 {
        load.shortest_run_ms().max(budget::PLANNED_RUN_MS)
    }

    fn checked(results: &mut Results, row: usize, with: Checked) {
        results.own.checked[row] = Some(with);
    }

    fn may_run_again(row: &Row) -> bool {
        row.peer.is_none()
    }

    /// Of those that read nothing one runs again only where no other reads.
    fn runs_again(group: Group, among: &[Group]) -> bool {
        group != Group::Nothing || among.len() == 1
    }

    /// The long runs come at the end.
    fn planned_after_s(&self, rows: &[Row]) -> f64 {
        self.long_run.map_or(0.0, |time| Plan::of(time).total().as_secs_f64() * runs(rows) as f64)
    }

    /// Where each I/O takes long, fewer rounds, and then more time.
    fn schedule(
        settings: &Settings,
        load: &Load,
        share_s: f64,
        rows: usize,
        overhead_ms: u64,
    ) -> Schedule {
        let longer_ms = load.shortest_run_ms() - budget::SHORTEST_RUN_MS;
        let (aimed, overhead_ms) = (aims_at(settings.depth), overhead_ms + longer_ms);
        let schedule = budget::fit_asked(settings.rounds, aimed, share_s, rows, overhead_ms);
        Schedule { run_ms: (schedule.run_ms + longer_ms).min(budget::LONGEST_RUN_MS), ..schedule }
    }

    fn sample(
        _: &Results,
        _: usize,
        _: &Load,
        when: &When,
        made: Made,
    ) -> Result<Sample, RunError> {
        Ok(Sample::of(when, made))
    }
}

/// Where runs are made: [`super::processes`] does it for real, with a process for each run.
/// [`RunError::Unavailable`] of a run says that the row cannot read this device.
pub trait Bench: course::Bench<Devices> {
    /// Makes one long run, of so much time of its own, beside plain reads: how its rate changes with time. `None` where
    /// that is not known.
    ///
    /// # Errors
    /// Any [`RunError`].
    fn long_run(
        &mut self,
        row: &Row,
        load: &Load,
        time: Duration,
    ) -> Result<Option<OverTime>, RunError>;
}

/// Runs the experiment that `results` describes and fills it in.
pub fn run(bench: &mut dyn Bench, results: &mut Results, settings: &Settings, tell: Tell<Devices>) {
    let time = settings.time(Devices::budget_s(settings, &results.loads, &results.rows));
    let mut random = Random::seeded(results.seed);
    let went =
        course::run::<Devices>(bench, results, settings, time, &mut random, tell).and_then(|()| {
            if time.is_bound {
                // They come on top, and are as long as was asked for.
                bench.end_within(f64::INFINITY);
            }
            run_long(bench, results, &mut random, tell)
        });
    course::conclude(results, went);
}

/// Runs each row once for long under the first load, in random order.
fn run_long(
    bench: &mut dyn Bench,
    results: &mut Results,
    random: &mut Random,
    tell: Tell<Devices>,
) -> Result<(), Interrupted> {
    let Some(time) = results.own.long_run else { return Ok(()) };
    for row in plan::block_order(&results.passed(), random) {
        if results.first_of(row).is_some() || results.status(0, row) != Status::Ok {
            continue;
        }
        tell(Progress::Besides(&results.rows[row], "for long".into()));
        let made = bench.long_run(&results.rows[row], &results.loads[0], time);
        results.own.long_runs[row] = match made {
            Ok(found) => Some(LongRun::Made(found.map(Box::new))),
            Err(RunError::Interrupted) => return Err(Interrupted),
            Err(error) => {
                tell(Progress::Failed(&results.rows[row], error.to_string()));
                Some(LongRun::Failed(error.to_string()))
            }
        };
    }
    Ok(())
}

#[cfg(test)]
mod tests;
