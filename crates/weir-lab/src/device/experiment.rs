//! A comparison of designs that read a device, from its plan to its results.
//!
//! Its course is that of every comparison ([`course`]); then, if that was asked for, each row runs once for
//! long.

use super::bench::{Bench, Checked, Made};
use super::plan::{Load, PLANNED_OVERHEAD_MS, Settings};
use super::results::{Devices, Group, LongRun, Results};
use super::rows::{depth_of, title};
use super::sample::{DeviceMetric, KERNEL_ENTRIES, Sample};
use crate::exit;
use crate::experiment::blocks::Interrupted;
use crate::experiment::cell::{Cell, Skipped, Status, When};
use crate::experiment::course::{self, Course, Progress, Tell};
use crate::experiment::descriptors;
use crate::experiment::plan::budget::Time;
use crate::experiment::plan::{self, Row, Schedule};
use crate::stats::random::Random;
use crate::udp::bench::RunError;

impl Course for Devices {
    type Checked = Checked;
    type Made = Made;
    type Settings = Settings;

    const PLANNED_OVERHEAD_MS: u64 = PLANNED_OVERHEAD_MS;
    const ENTRIES: DeviceMetric = KERNEL_ENTRIES;

    fn checked(&mut self, row: usize, with: Checked) {
        self.checked[row] = Some(with);
    }

    fn may_run_again(row: &Row) -> bool {
        row.peer.is_none()
    }

    /// Of those that read nothing one runs again only where no other reads.
    fn runs_again(group: Group, among: &[Group]) -> bool {
        group != Group::Nothing || among.len() == 1
    }

    fn asks_for_rounds(settings: &Settings) -> bool {
        settings.rounds.is_some()
    }

    fn schedule(
        settings: &Settings,
        load: &Load,
        share_s: f64,
        rows: usize,
        overhead_ms: u64,
    ) -> Schedule {
        settings.schedule(load, share_s, rows, overhead_ms)
    }

    fn sample(_: &Results, _: usize, _: &Load, when: &When, made: Made) -> Sample {
        Sample::of(when, made)
    }

    fn unavailable(cell: &mut Cell<Sample>, reason: String) -> bool {
        // What has been read before can be read.
        let left_out = cell.samples.is_empty();
        if left_out {
            cell.skipped = Some(Skipped::Unavailable(reason));
        } else {
            cell.failed(reason);
        }
        left_out
    }
}

/// Runs the experiment that `results` describes and fills it in.
pub fn run(bench: &mut dyn Bench, results: &mut Results, settings: &Settings, tell: Tell<Devices>) {
    let seconds = settings.budget_s(&results.loads, &results.rows);
    let (is_bound, has_rounds) = (settings.budget_s.is_some(), settings.rounds.is_some());
    let time = Time { seconds, is_bound, has_rounds };
    let mut random = Random::seeded(results.seed);
    let went =
        course::run::<Devices>(bench, results, settings, time, &mut random, tell).and_then(|()| {
            if time.is_bound {
                // They come on top, and are as long as was asked for.
                bench.end_within(f64::INFINITY);
            }
            run_long(bench, results, settings, &mut random, tell)
        });
    course::conclude(results, went);
}

/// Leaves out, under loads of which each I/O takes a timer, the rows for whose timers a process may not have the
/// descriptors. Gives what that makes of the comparison, to be said before anything runs.
pub fn heed_descriptors(results: &mut Results, limit: Option<u64>) -> Vec<String> {
    let mut said = vec![];
    for (load, cells) in results.loads.iter().zip(&mut results.cells) {
        for (row, cell) in results.rows.iter().zip(cells) {
            let timers = u64::from(load.delay().map_or(0, |_| depth_of(row).unwrap_or(1)));
            let who = format!("{} with {timers} timers", title(row));
            let Some(missing) = descriptors::missing(limit, who, descriptors::BESIDES + timers)
            else {
                continue;
            };
            said.push(format!("left out: {load}: {missing}"));
            cell.skipped = Some(Skipped::Unavailable(missing));
        }
    }
    results.warnings.extend(said.iter().cloned());
    said
}

/// Runs each row once for long under the first load, in random order.
fn run_long(
    bench: &mut dyn Bench,
    results: &mut Results,
    settings: &Settings,
    random: &mut Random,
    tell: Tell<Devices>,
) -> Result<(), Interrupted> {
    let Some(time) = settings.long_run else { return Ok(()) };
    for row in plan::block_order(&results.passed(), random) {
        if results.first_of(row).is_some() || results.status(0, row) != Status::Ok {
            continue;
        }
        tell(Progress::Besides(&results.rows[row], "for long".into()));
        let made = bench.long_run(&results.rows[row], &results.loads[0], time);
        results.own.long_runs[row] = match made {
            Ok(decay) => Some(LongRun::Made(decay)),
            Err(RunError::Interrupted) => return Err(Interrupted),
            Err(error) => {
                tell(Progress::Failed(&results.rows[row], error.to_string()));
                Some(LongRun::Failed(error.to_string()))
            }
        };
    }
    Ok(())
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
