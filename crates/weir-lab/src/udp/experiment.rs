//! A comparison of UDP from its plan to its results.
//!
//! First the generator is calibrated; then its course is that of every comparison ([`course`]).

use super::bench::{Bench, Made};
use super::check::Checked;
use super::curve;
use super::plan::budget::{aims_at, usual_s};
use super::plan::{Load, Rate};
use super::results::{
    Calibration, Results, Udp, nothing_polled, unequal_settings, unlike_calibration,
};
use super::sample::{Circumstances, Sample};
use crate::experiment::blocks::Interrupted;
use crate::experiment::cell::{Disturbance, Measured, When};
use crate::experiment::course::{self, Course, NoRun, Progress, RunError, Tell};
use crate::experiment::plan::budget::Time;
use crate::experiment::plan::{Depth, Row, Settings};
use crate::report::number::si;
use crate::stats::random::Random;
use crate::udp::verdict::{NO_LOSS, PACE_KEPT};

/// What calibrating the generator costs, in milliseconds.
const CALIBRATION_MS: u64 = 800;

impl Course for Udp {
    type Checked = Checked;
    type Made = Made;

    const PLANNED_OVERHEAD_MS: u64 = 130;
    const PLANNED_CHECK_MS: u64 = 400;

    fn aims_at(depth: Depth, load: &Load) -> u32 {
        aims_at(depth, load)
    }

    fn usual_s(depth: Depth, loads: &[Load], _: &[Row]) -> Option<f64> {
        usual_s(depth, loads)
    }

    /// The generator is calibrated for each kind of load.
    fn planned_before_ms(loads: &[Load]) -> u64 {
        let sinks = || loads.iter().filter(|load| load.replies.is_none());
        if sinks().next().is_none() {
            return 0;
        }
        let kinds = sinks().filter(|load| load.rate == Rate::Saturation).count() as u64;
        let bursts = sinks().any(|load| load.burst().is_some());
        kinds.max(u64::from(!bursts)) * CALIBRATION_MS
    }

    fn checked(results: &mut Results, row: usize, with: Checked) {
        match with {
            Checked::Design(echoed) => results.own.checked = Some(echoed),
            // Only the program itself knows what it stands on.
            Checked::Peer { library } => results.rows[row].runs_on = library,
        }
    }

    /// What is there for a sweep only is not run under every load.
    fn may_run_again(row: &Row) -> bool {
        !row.only_swept
    }

    /// At the rate that is the row's own.
    fn load_of(results: &Results, load: usize, row: usize) -> Result<Load, NoRun> {
        let rate = curve::per_second(results, load, row)?;
        let of = results.load_of(load, row);
        if of.burst().is_some() {
            return Ok(of);
        }
        Ok(of.at(rate.map_or(Rate::Saturation, Rate::PerSecond)))
    }

    fn sample(
        results: &Results,
        _: usize,
        load: &Load,
        when: &When,
        made: Made,
    ) -> Result<Sample, RunError> {
        if !made.server.end_signalled {
            let reason = "the server did not see the end of the run, so its counts are open";
            return Err(RunError::Failed(reason.into()));
        }
        let calibration = results.calibration(load);
        let alike = calibration.map(|c| c.is_alike(when.core_to_core_ns));
        let at = Circumstances {
            when: When { load_of_others: made.load_of_others, ..*when },
            paced: load.is_paced(),
            burst: load.burst().is_some(),
            answered: load.replies.is_some(),
            calibrated_per_s: calibration.filter(|_| alike == Some(true)).map(|c| c.sent_per_s),
            calibration_alike: alike,
            server_cores: results.own.server_cores.len().max(1),
            generator_cores: results.own.generator_cores.len().max(1),
        };
        Ok(Sample::of(&at, &made.server, &made.flood))
    }

    fn disturbance(load: &Load, sample: &Sample) -> Option<Disturbance> {
        disturbance(sample, load)
    }
}

/// Runs the experiment that `results` describes and fills it in.
pub fn run(bench: &mut dyn Bench, results: &mut Results, settings: &Settings, tell: Tell<Udp>) {
    let time = settings.time(Udp::budget_s(settings, &results.loads, &results.rows));
    if time.is_bound {
        bench.end_within(time.seconds);
    }
    let mut random = Random::seeded(results.seed);
    let went = calibrate(bench, results, time, tell)
        .and_then(|()| course::run::<Udp>(bench, results, settings, time, &mut random, tell));
    course::conclude(results, went);
    let found =
        [unequal_settings(results), unlike_calibration(results), nothing_polled(results)].concat();
    // That the machine was busy weighs most, and stays the last.
    let before = results.warnings.len() - usize::from(results.busy_machine().is_some());
    results.warnings.splice(before..before, found);
}

/// Finds what the generator can do at most with each kind of load.
fn calibrate(
    bench: &mut dyn Bench,
    results: &mut Results,
    time: Time,
    tell: Tell<Udp>,
) -> Result<(), Interrupted> {
    let mut kinds: Vec<Load> = vec![];
    // How fast a burst comes is told by each.
    let bursts = |index: &usize| results.loads[*index].burst().is_some();
    for index in (0..results.loads.len()).filter(|index| !bursts(index)) {
        for offloaded in results.groups(index) {
            let load = results.loads[index].at(Rate::Saturation);
            let load = Load { receive_offload: load.receive_offload || offloaded, ..load };
            // What it sends to nobody says nothing of what it sends and takes.
            if load.replies.is_some() {
                continue;
            }
            if !kinds.iter().any(|known| calibration_of(known).is_of(&load)) {
                kinds.push(load);
            }
        }
    }
    for load in kinds {
        if !time.has_room(bench.elapsed_s(), CALIBRATION_MS as f64) {
            results.warnings.push(
                "there was no time (-t) to calibrate the generator, so its limit is not known"
                    .into(),
            );
            break;
        }
        let core_to_core_ns = bench.core_to_core_ns();
        match bench.calibrate(&load) {
            Ok(sent_per_s) => {
                let calibration = Calibration {
                    sent_per_s,
                    core_to_core_ns,
                    core_to_core_after_ns: bench.core_to_core_ns(),
                    ..calibration_of(&load)
                };
                tell(Progress::Known(format!(
                    "the generator sends at most {} datagrams/s",
                    si(sent_per_s)
                )));
                results.own.calibrations.push(calibration);
            }
            Err(RunError::Interrupted) => return Err(Interrupted),
            Err(error) => {
                let warning = format!(
                    "the generator could not be calibrated, so its limit is not known: {error}"
                );
                // What is so for every kind of load is said once.
                if !results.warnings.contains(&warning) {
                    results.warnings.push(warning);
                }
            }
        }
    }
    Ok(())
}

/// A calibration of the generator for such a load, before it was made.
fn calibration_of(load: &Load) -> Calibration {
    Calibration {
        receive_offload: load.receive_offload,
        size_bytes: load.size_bytes,
        flows: load.flows,
        generators: load.generators,
        sent_per_s: 0.0,
        core_to_core_ns: None,
        core_to_core_after_ns: None,
    }
}

/// What disturbed a run, if anything did. That datagrams are lost is no disturbance where more are offered than a
/// row takes, or where that is what is searched for.
fn disturbance(sample: &Sample, load: &Load) -> Option<Disturbance> {
    if load.burst().is_some() {
        // One that was over within a reading has no rate, and is not disturbed by that.
        let is_rate = |cause: &Disturbance| {
            matches!(cause, Disturbance::PaceNotKept | Disturbance::NothingTaken)
        };
        return sample.disturbance().filter(|cause| !is_rate(cause));
    }
    if sample.wrong().is_some() || !load.is_paced() {
        return sample.disturbance();
    }
    let late = sample.pace_kept.is_some_and(|kept| kept < PACE_KEPT);
    let below_saturation = load.offered_per_s().is_some();
    let received = sample.delivered_percent();
    let lost = below_saturation && received.is_some_and(|kept| kept < 100.0 * (1.0 - NO_LOSS));
    match sample.disturbance() {
        Some(cause) => Some(cause),
        // What may be the row's own comes first: it is made again by the stricter rule.
        None if lost => Some(Disturbance::Lost),
        None => late.then_some(Disturbance::PaceNotKept),
    }
}

#[cfg(test)]
mod tests;
