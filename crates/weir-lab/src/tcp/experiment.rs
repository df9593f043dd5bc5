//! A comparison of TCP from its plan to its results.
//!
//! Its course is that of every comparison ([`course`]); then, if that was asked for, the most connections are
//! searched for that each row can hold.

use std::collections::BTreeSet;

use super::bench::{Checked, Idle, Made};
use super::plan::{self, Load, PLANNED_OVERHEAD_MS};
use super::policy::Policy;
use super::processes::CHECK_DESCRIPTORS;
use super::results::{Results, Tcp};
use super::sample::{Circumstances, Sample};
use super::search;
use crate::experiment::cell::{Cell, When};
use crate::experiment::course::{self, Bench, Course, RunError, Tell};
use crate::experiment::descriptors;
use crate::experiment::plan::budget::{self, Time};
use crate::experiment::plan::{Depth, Row, Settings};
use crate::stats::random::Random;

impl Course for Tcp {
    type Checked = Checked;
    type Made = Made;

    const PLANNED_OVERHEAD_MS: u64 = PLANNED_OVERHEAD_MS;
    const PLANNED_CHECK_MS: u64 = 600;

    fn aims_at(depth: Depth, load: &Load) -> u32 {
        plan::aims_at(depth, load)
    }

    fn usual_s(depth: Depth, loads: &[Load], rows: &[Row]) -> Option<f64> {
        plan::usual_s(depth, loads, rows)
    }

    /// What comes in blocks is the original's, which has all the time that it wants.
    fn planned_run_ms(load: &Load) -> u64 {
        if load.blocks > 1 { budget::LONGEST_RUN_MS } else { budget::PLANNED_RUN_MS }
    }

    fn checked(results: &mut Results, row: usize, with: Checked) {
        results.own.idle[row] = with.idle;
        results.own.checked = Some(Checked { idle: Idle::default(), ..with });
    }

    fn preparing_ms(load: &Load) -> u64 {
        load.connecting_ms()
    }

    fn sample(
        results: &Results,
        row: usize,
        load: &Load,
        when: &When,
        mut made: Made,
    ) -> Result<Sample, RunError> {
        if let Some(expected) = Policy::of(&results.rows[row]).expects(load) {
            let contradicted = expected.contradicted(&made.load, made.others.as_ref());
            made.invalid = made.invalid.or(contradicted);
        }
        let at = Circumstances {
            when: *when,
            server_cores: results.own.server_cores.len().max(1),
            client_cores: results.own.client_cores.len().max(1),
            polls: results.polls(row),
        };
        Ok(Sample::of(&at, load, &made))
    }

    /// Also rounds in which it had too few connections: the row has no rank any more, and often takes long. The attempts
    /// of a round follow each other at once, so one stall may be in all of them: they count as one.
    fn in_vain(cell: &Cell<Sample>) -> u32 {
        // One in a round of which another attempt was whole was none of its own, or is judged when more rounds are made.
        let whole = |block: u32| {
            cell.samples.iter().any(|s| s.when.block == block && s.incomplete().is_none())
        };
        let incomplete: BTreeSet<u32> = cell
            .samples
            .iter()
            .filter(|sample| sample.incomplete().is_some() && !whole(sample.when.block))
            .map(|sample| sample.when.block)
            .collect();
        cell.failed_runs + incomplete.len() as u32
    }
}

/// Runs the experiment that `results` describes and fills it in.
pub fn run(
    bench: &mut dyn Bench<Tcp>,
    results: &mut Results,
    settings: &Settings,
    tell: Tell<Tcp>,
) {
    let all = settings.time(match (&results.own.classic, settings.budget_s) {
        // What it takes is known when it is found.
        (Some(_), None) => f64::INFINITY,
        _ => Tcp::budget_s(settings, &results.loads, &results.rows),
    });
    let of_loads = match results.own.classic {
        Some(_) => Time { seconds: all.seconds * (1.0 - PART_OF_THE_SEARCH), ..all },
        None => all,
    };
    let mut random = Random::seeded(results.seed);
    let went =
        course::run::<Tcp>(bench, results, settings, of_loads, &mut random, tell).and_then(|()| {
            if all.is_bound {
                bench.end_within(all.seconds);
            }
            search::search(bench, results, all, tell)
        });
    course::conclude(results, went);
}

/// The part of the time that the search for the most connections has, where there is one.
pub const PART_OF_THE_SEARCH: f64 = 0.4;

/// Leaves out the loads, and if need be the rows, for whose connections a process may not have the descriptors. Gives
/// what that makes of the comparison, to be said before anything runs.
pub fn heed_descriptors(results: &mut Results, limit: Option<u64>) -> Vec<String> {
    results.own.descriptors = limit;
    let of_check = descriptors::missing(limit, "the check of a server", CHECK_DESCRIPTORS);
    for row in results.rows.iter_mut().filter(|row| row.unavailable.is_none()) {
        row.unavailable = of_check.clone();
    }
    results.warnings.extend(of_check.iter().cloned());
    of_check.into_iter().chain(descriptors::heed(results, limit)).collect()
}

#[cfg(test)]
mod tests;
