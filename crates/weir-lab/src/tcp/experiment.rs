//! A comparison of TCP from its plan to its results.
//!
//! Its course is that of every comparison ([`course`]); then, if that was asked for, the most connections are
//! searched for that each row can hold.

use super::bench::{Checked, Idle, Made};
use super::classic;
use super::plan::{self, Load, PLANNED_OVERHEAD_MS, Settings};
use super::results::{Results, Tcp};
use super::sample::{Circumstances, Sample};
use crate::cell::{Cell, When};
use crate::course::{self, Bench, Course, Tell};
use crate::exit;
use crate::plan::Schedule;
use crate::random::Random;

impl Course for Tcp {
    type Checked = Checked;
    type Made = Made;
    type Settings = Settings;

    const PLANNED_OVERHEAD_MS: u64 = PLANNED_OVERHEAD_MS;

    fn checked(&mut self, row: usize, with: Checked) {
        self.idle[row] = with.idle;
        self.checked = Some(Checked { idle: Idle::default(), ..with });
    }

    fn asks_for_rounds(settings: &Settings) -> bool {
        settings.rounds.is_some()
    }

    fn share_s(loads: &[Load], left_s: f64) -> f64 {
        plan::shares(loads, left_s)[0]
    }

    fn schedule(
        settings: &Settings,
        _: &Load,
        share_s: f64,
        rows: usize,
        overhead_ms: u64,
    ) -> Schedule {
        settings.schedule(share_s, rows, overhead_ms)
    }

    fn preparing_ms(load: &Load) -> u64 {
        load.connecting_ms()
    }

    fn sample(results: &Results, row: usize, load: &Load, when: &When, made: Made) -> Sample {
        let at = Circumstances {
            when: *when,
            server_cores: results.own.server_cores.len().max(1),
            client_cores: results.own.client_cores.len().max(1),
            polls: results.polls(row),
        };
        Sample::of(&at, load, &made)
    }

    fn unavailable(cell: &mut Cell<Sample>, reason: String) -> bool {
        cell.failed(reason);
        false
    }

    /// Also those that had too few connections: the row has no rank any more, and often takes long.
    fn in_vain(cell: &Cell<Sample>) -> u32 {
        let incomplete = cell.samples.iter().filter(|sample| sample.incomplete().is_some());
        cell.failed_runs + incomplete.count() as u32
    }
}

/// Runs the experiment that `results` describes and fills it in.
pub fn run(
    bench: &mut dyn Bench<Tcp>,
    results: &mut Results,
    settings: &Settings,
    tell: Tell<Tcp>,
) {
    let budget_s = match (&results.own.classic, settings.budget_s) {
        // What it takes is known when it is found.
        (Some(_), None) => f64::INFINITY,
        _ => settings.budget_s(&results.loads, &results.rows),
    };
    let mut random = Random::seeded(results.seed);
    let went = course::run::<Tcp>(bench, results, settings, budget_s, &mut random, tell)
        .and_then(|()| classic::search(bench, results, tell));
    course::conclude(results, went);
}

/// The exit code that tells the truth about an experiment, as that of one of UDP.
pub fn exit_code(results: &Results) -> u8 {
    let complete = results.has_figures() && !results.interrupted;
    exit::of_experiment(&results.rows, complete, !results.has_invalid_runs())
}

#[cfg(test)]
#[path = "experiment_tests.rs"]
mod tests;
