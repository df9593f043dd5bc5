//! An experiment from its plan to its results.
//!
//! First the generator is calibrated and every row is checked; then each load is run in
//! blocks until its rounds are through, its confidence is reached or its time is up. What
//! fails is noted and the experiment goes on; an interrupt ends it with what there is.

use crate::exit;
use crate::experiment::blocks::{self, Blocks, GIVEN_UP_AFTER, Interrupted};
use crate::experiment::cell::{self, Measured, When};
use crate::experiment::course::Progress as Happened;
use crate::experiment::descriptors;
use crate::experiment::plan::budget::{NONE_CAN_BE_MEASURED, NOT_CHECKED, Time};
use crate::experiment::plan::{Role, Schedule, budget};
use crate::experiment::ranking::{Ranking, ranked_by};
use crate::experiment::repeat::{self, Disturbance};
use crate::experiment::verdict::{NO_LOSS, PACE_KEPT};
use crate::report::words::number_of;
use crate::stats::random::Random;
use crate::udp::bench::{Bench, Extent, Made, Run, RunError};
use crate::udp::curve::{self, NoRate};
use crate::udp::plan::{self, Depth, Load};
use crate::udp::results::{
    Calibration, Conformance, Results, Skipped, busy_machine, nothing_polled, unequal_settings,
    unlike_calibration,
};
use crate::udp::sample::{Circumstances, KERNEL_ENTRIES, Sample};
use crate::wire::{FloodReport, ServerReport};
use weir_load::peer::setting;

/// Datagrams of a check, and the flows they come from.
const CHECK: Extent = Extent::Checked { datagrams: 1000, flows: 4 };
/// Most attempts at a check into which others may have sent.
const MOST_CHECKS: u32 = 2;
/// What starting and ending a run costs until it has been measured, in milliseconds.
const OVERHEAD_GUESS_MS: u64 = 300;
/// What calibrating the generator costs, in milliseconds.
const CALIBRATION_GUESS_MS: f64 = 800.0;

/// How an experiment is run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// How much to measure.
    pub depth: Depth,
    /// Rounds of each load, if they were asked for.
    pub rounds: Option<u32>,
    /// Seconds it may take in all; `None` for what the rounds take that were asked for, else for the depth's own.
    pub budget_s: Option<f64>,
    /// Whether nothing may go on beyond those seconds, since they were asked for.
    pub is_bound: bool,
}

impl Settings {
    /// Seconds it may take in all.
    pub fn budget_s(&self, results: &Results) -> f64 {
        let (loads, rows) = (&results.loads, &results.rows);
        self.budget_s.unwrap_or_else(|| match self.rounds {
            Some(_) => {
                crate::udp::plan::budget::estimate_s(|load| self.rounds_of(load), loads, rows)
            }
            None => self.depth.budget_s(loads, rows),
        })
    }

    /// Rounds of a load that are aimed at.
    pub fn rounds_of(&self, load: &Load) -> u32 {
        self.rounds.unwrap_or_else(|| self.depth.rounds_of(load))
    }
}

/// What happened, for whoever watches.
#[derive(Debug, Clone, PartialEq)]
pub enum Progress<'a> {
    /// The generator was calibrated.
    Calibrated(Calibration),
    /// What happens in every comparison.
    Course(Happened<'a, Load>),
}

/// Runs the experiment that `results` describes and fills it in.
pub fn run(
    bench: &mut dyn Bench,
    results: &mut Results,
    settings: &Settings,
    tell: &mut dyn FnMut(Progress),
) {
    let Settings { rounds, is_bound, .. } = *settings;
    let seconds = settings.budget_s(results);
    let time = Time { seconds, is_bound, has_rounds: rounds.is_some() };
    if time.is_bound {
        bench.end_within(time.seconds);
    }
    let mut experiment = Experiment {
        bench,
        settings: *settings,
        time,
        random: Random::seeded(results.seed),
        tell,
        overhead_ms: vec![],
        check_ms: vec![],
    };
    let ended = experiment
        .calibrate(results)
        .and_then(|()| experiment.check(results))
        .and_then(|()| experiment.measure(results));
    if ended.is_err() {
        results.interrupted = true;
    }
    results.count_only_alike();
    let found = [
        unequal_settings(results),
        busy_machine(results),
        unlike_calibration(results),
        nothing_polled(results),
    ]
    .concat();
    results.warnings.extend(found);
}

/// Leaves out the loads for whose sockets a process may not have the descriptors. Gives what that makes of the
/// comparison, to be said before anything runs.
pub fn heed_descriptors(results: &mut Results, limit: Option<u64>) -> Vec<String> {
    let mut said = vec![];
    for (load, cells) in results.loads.iter().zip(&mut results.cells) {
        let sockets = u64::from(load.flows.max(1)) * u64::from(load.generators.max(1));
        let generators =
            format!("a process of {} generators with {} flows", load.generators, load.flows);
        let server = format!("a server on {} ports", load.ports.max(1));
        let missing = [(generators, sockets), (server, load.ports.max(1).into())]
            .into_iter()
            .find_map(|(who, n)| descriptors::missing(limit, who, n + descriptors::BESIDES));
        let Some(missing) = missing else { continue };
        said.push(format!("left out: {load}: {missing}"));
        let skipped = Skipped::Unavailable(missing);
        cells.iter_mut().for_each(|cell| cell.skipped = Some(skipped.clone()));
    }
    if said.len() == results.loads.len()
        && let Some(reason) =
            results.cells.first().and_then(|cells| cells.first()?.skipped.as_ref())
    {
        results.rows.iter_mut().for_each(|row| {
            row.unavailable.get_or_insert_with(|| reason.reason().clone());
        });
    }
    results.warnings.extend(said.iter().cloned());
    said
}

struct Experiment<'a> {
    bench: &'a mut dyn Bench,
    settings: Settings,
    time: Time,
    random: Random,
    tell: &'a mut dyn FnMut(Progress),
    /// What starting and ending each run so far cost.
    overhead_ms: Vec<f64>,
    /// What checking each row so far cost.
    check_ms: Vec<f64>,
}

impl Experiment<'_> {
    fn calibrate(&mut self, results: &mut Results) -> Result<(), Interrupted> {
        let mut kinds: Vec<Load> = vec![];
        for index in 0..results.loads.len() {
            for offloaded in results.groups(index) {
                let load = results.loads[index].at(plan::Rate::Saturation);
                let load = Load { receive_offload: load.receive_offload || offloaded, ..load };
                if !kinds.iter().any(|known| calibration_of(known).is_of(&load)) {
                    kinds.push(load);
                }
            }
        }
        for load in kinds {
            if !self.time.has_room(self.bench.elapsed_s(), CALIBRATION_GUESS_MS) {
                results.warnings.push(
                    "there was no time (-t) to calibrate the generator, so its limit is not known"
                        .into(),
                );
                break;
            }
            let core_to_core_ns = self.bench.core_to_core_ns();
            match self.bench.calibrate(&load) {
                Ok(sent_per_s) => {
                    let calibration = Calibration {
                        sent_per_s,
                        core_to_core_ns,
                        core_to_core_after_ns: self.bench.core_to_core_ns(),
                        ..calibration_of(&load)
                    };
                    (self.tell)(Progress::Calibrated(calibration));
                    results.calibrations.push(calibration);
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

    /// Checks each row that can run. The second name of a row passes with its first.
    fn check(&mut self, results: &mut Results) -> Result<(), Interrupted> {
        // Slices are as long as the longest datagrams, so those are checked; else it is the base.
        let longest = results.loads.iter().map(|load| load.size_bytes).max();
        let (Some(base), Some(size_bytes)) = (results.loads.first().copied(), longest) else {
            return Ok(());
        };
        let base = Load { size_bytes, ..base.at(plan::Rate::Saturation) };
        let mut unchecked = vec![];
        for index in 0..results.rows.len() {
            let row = results.rows[index].clone();
            if let Role::Again(mut of) = row.role {
                // It shows the noise, so another row runs twice where its own does not run.
                let passed = |c: &Conformance| *c == Conformance::Passed;
                let other = (0..index).find(|other| {
                    passed(&results.conformance[*other])
                        && results.rows[*other].receive_offload == row.receive_offload
                });
                if let Some(other) = other.filter(|_| !passed(&results.conformance[of])) {
                    of = other;
                    results.rows[index] = results.rows[of].clone().with_role(Role::Again(of));
                }
                results.conformance[index] = results.conformance[of].clone();
                results.rows[index].unavailable = results.rows[of].unavailable.clone();
                results.rows[index].runs_on = results.rows[of].runs_on.clone();
                if unchecked.contains(&of) {
                    unchecked.push(index);
                }
                continue;
            }
            if row.unavailable.is_some() {
                continue;
            }
            let before_s = self.bench.elapsed_s();
            let takes_ms = crate::stats::median(&self.check_ms).unwrap_or(0.0);
            if !self.time.has_room(before_s, takes_ms) {
                unchecked.push(index);
                continue;
            }
            (self.tell)(Progress::Course(Happened::Checking(&row)));
            let receive_offload = base.receive_offload || row.receive_offload;
            let load = match row.peer {
                None => Load { receive_offload, ..base },
                // One that cannot have several ports or work is there under the other loads.
                Some(_) => Load { receive_offload, ports: 1, work: Default::default(), ..base },
            };
            let run = Run { row: &row, load: &load, per_second: None, extent: CHECK };
            let mut attempt = 1;
            let outcome = loop {
                match self.check_once(results, index, &run) {
                    // What the account lacks may be others' doing, and may be the row's own: if it recurs, it is. That
                    // wrong data came is its own at once.
                    Err(RunError::Disturbed(reason))
                        if attempt < MOST_CHECKS
                            && self.time.has_room(self.bench.elapsed_s(), takes_ms) =>
                    {
                        attempt += 1;
                        let again = format!("the check of {row} was made again: {reason}");
                        results.warnings.push(again);
                    }
                    other => break other,
                }
            };
            self.check_ms.push((self.bench.elapsed_s() - before_s) * 1000.0);
            results.conformance[index] = match outcome {
                Ok(conformance) => conformance,
                Err(RunError::Interrupted) => return Err(Interrupted),
                Err(RunError::TimeIsUp(_)) => {
                    unchecked.push(index);
                    Conformance::NotChecked
                }
                Err(RunError::Unavailable(reason)) => {
                    results.rows[index].unavailable = Some(reason.clone());
                    (self.tell)(Progress::Course(Happened::Dropped(&row, reason)));
                    Conformance::NotChecked
                }
                Err(RunError::Failed(reason) | RunError::Disturbed(reason)) => {
                    Conformance::Failed(reason)
                }
            };
            if let Conformance::Failed(reason) = &results.conformance[index] {
                (self.tell)(Progress::Course(Happened::Dropped(&row, reason.clone())));
            }
        }
        if !unchecked.is_empty() {
            let names: Vec<String> =
                unchecked.iter().map(|row| results.rows[*row].to_string()).collect();
            results.warnings.push(self.time.unchecked(&names, results.rows.len()));
            for cells in &mut results.cells {
                unchecked.iter().for_each(|row| {
                    let reason = || Skipped::NotMeasured(NOT_CHECKED.into());
                    cells[*row].skipped.get_or_insert_with(reason);
                });
            }
        }
        Ok(())
    }

    /// Checks a row once.
    fn check_once(
        &mut self,
        results: &mut Results,
        index: usize,
        run: &Run,
    ) -> Result<Conformance, RunError> {
        let before_s = self.bench.elapsed_s();
        let Made { server, flood, .. } = self.bench.run(run)?;
        let took_ms = (self.bench.elapsed_s() - before_s) * 1000.0;
        self.overhead_ms.push(took_ms - flood.elapsed_ns as f64 / 1e6);
        let is_peer = run.row.peer.is_some();
        if is_peer {
            // Only the program itself knows what it stands on.
            results.rows[index].runs_on = server.settings.get(setting::LIBRARY).cloned();
        }
        let conformance = conformance(&server, &flood)?;
        // A peer answers nothing: it was only made to receive.
        if conformance != Conformance::Passed || is_peer {
            return Ok(conformance);
        }
        results.checked = Some(self.bench.check(run.row, run.load)?);
        Ok(Conformance::Passed)
    }

    /// Runs every load in its turn. Time that one did not use is left to the next.
    fn measure(&mut self, results: &mut Results) -> Result<(), Interrupted> {
        let passed = |row: &usize| results.conformance[*row] == Conformance::Passed;
        if !(0..results.rows.len()).any(|row| passed(&row)) {
            let unchecked = cell::any_unchecked(&results.rows, &results.conformance);
            results.error.get_or_insert_with(|| match unchecked {
                true => self.time.without_a_run(),
                false => NONE_CAN_BE_MEASURED.into(),
            });
            return Ok(());
        }
        let rows_of = |load: usize| -> Vec<usize> {
            let taking = |row: &usize| {
                let skipped = results.cells[load][*row].skipped.is_some();
                passed(row) && results.takes_part(load, *row) && !skipped
            };
            (0..results.rows.len()).filter(taking).collect()
        };
        let rows: Vec<Vec<usize>> = (0..results.loads.len()).map(rows_of).collect();
        let counts: Vec<usize> = rows.iter().map(Vec::len).collect();
        for index in 0..results.loads.len() {
            let overhead_ms = crate::stats::median(&self.overhead_ms)
                .map_or(OVERHEAD_GUESS_MS, |overhead| overhead.max(0.0) as u64);
            let left_s = (self.time.seconds - self.bench.elapsed_s()).max(0.0);
            let Settings { depth, rounds, .. } = self.settings;
            let rounds_of = |load: &Load| self.settings.rounds_of(load);
            let share_s =
                plan::shares(rounds_of, &results.loads[index..], &counts[index..], left_s)[0];
            let aimed = depth.rounds_of(&results.loads[index]);
            let schedule = budget::fit_asked(rounds, aimed, share_s, counts[index], overhead_ms);
            results.schedules[index] = Some(schedule);
            (self.tell)(Progress::Course(Happened::Load(&results.loads[index], schedule)));
            self.measure_load(results, index, &rows[index], schedule)?;
        }
        results.warnings.extend(self.time.exceeded(self.bench.elapsed_s()));
        if self.time.is_bound && cell::had_no_time(&results.cells) {
            results.error.get_or_insert_with(|| self.time.without_a_run());
        }
        Ok(())
    }

    fn measure_load(
        &mut self,
        results: &mut Results,
        load: usize,
        rows: &[usize],
        schedule: Schedule,
    ) -> Result<(), Interrupted> {
        let mut random = self.random.clone();
        let mut course = Course { experiment: self, results, load, schedule };
        // The first load has enough rounds for intervals even when that takes longer.
        let cut = blocks::run(&mut course, rows, schedule, load == 0, &mut random)?;
        self.random = random;
        self.count_entries(results, load, rows, schedule)?;
        if let Some(made) = cut {
            results.warnings.push(format!(
                "{}: ended after {made} of {} rounds, because its time was up",
                results.loads[load], schedule.rounds
            ));
        }
        Ok(())
    }

    /// Makes one more run of each row whose own count leaves entries into the kernel out, in which the kernel counts
    /// them, and keeps nothing else of it.
    fn count_entries(
        &mut self,
        results: &mut Results,
        load_index: usize,
        rows: &[usize],
        schedule: Schedule,
    ) -> Result<(), Interrupted> {
        let leaves_out = |row: &&usize| results.cells[load_index][**row].leaves_entries_out();
        let wanting: Vec<usize> = rows.iter().filter(leaves_out).copied().collect();
        if wanting.is_empty() || !self.bench.count_entries(true) {
            return Ok(());
        }
        let extent = Extent::Timed { warmup_ms: schedule.warmup_ms, run_ms: schedule.run_ms };
        for row in wanting {
            let Ok(per_second) = curve::per_second(results, load_index, row) else { continue };
            // Only a time that was given as a bound is one: these runs are few.
            if self.time.is_bound && self.bench.elapsed_s() > self.time.seconds {
                break;
            }
            let load = results.load_of(load_index, row);
            let run = Run { row: &results.rows[row], load: &load, per_second, extent };
            match self.bench.run(&run) {
                Ok(Made { server, flood, .. }) => {
                    let sample = Sample::of(&Circumstances::default(), &server, &flood);
                    results.cells[load_index][row].note_entries(&sample, &KERNEL_ENTRIES);
                }
                Err(RunError::Interrupted) => return Err(Interrupted),
                // It has its figures; only this one stays a lower bound.
                Err(_) => {}
            }
        }
        self.bench.count_entries(false);
        Ok(())
    }

    fn measure_once(
        &mut self,
        results: &mut Results,
        load_index: usize,
        row_index: usize,
        block: u32,
        schedule: Schedule,
    ) -> Result<(), Interrupted> {
        let row = results.rows[row_index].clone();
        let load = results.load_of(load_index, row_index);
        let per_second = match curve::per_second(results, load_index, row_index) {
            Ok(per_second) => per_second,
            Err(NoRate::Unknown(reason)) => {
                results.cells[load_index][row_index].failed(reason);
                return Ok(());
            }
            Err(NoRate::NothingToSearch(reason)) => {
                let skipped = Skipped::NotMeasured(reason);
                results.cells[load_index][row_index].skipped = Some(skipped);
                return Ok(());
            }
        };
        let extent = Extent::Timed { warmup_ms: schedule.warmup_ms, run_ms: schedule.run_ms };
        let before_s = self.bench.elapsed_s();
        let core_to_core_ns = self.bench.core_to_core_ns();
        match self.bench.run(&Run { row: &row, load: &load, per_second, extent }) {
            Ok(made) if !made.server.end_signalled => {
                let reason = "the server did not see the end of the run, so its counts are open";
                results.cells[load_index][row_index].failed(reason.into());
            }
            Ok(Made { server, flood, load_of_others }) => {
                let took_ms = (self.bench.elapsed_s() - before_s) * 1000.0;
                let planned_ms = (schedule.run_ms + schedule.warmup_ms) as f64;
                self.overhead_ms.push(took_ms - planned_ms);
                let calibration = results.calibration(&load);
                let alike = calibration.map(|c| c.is_alike(core_to_core_ns));
                let at = Circumstances {
                    when: When {
                        block,
                        core_to_core_ns,
                        core_to_core_after_ns: self.bench.core_to_core_ns(),
                        load_of_others,
                        ..When::default()
                    },
                    paced: per_second.is_some(),
                    calibrated_per_s: calibration
                        .filter(|_| alike == Some(true))
                        .map(|c| c.sent_per_s),
                    calibration_alike: alike,
                    server_cores: results.server_cores.len().max(1),
                    generator_cores: results.generator_cores.len().max(1),
                };
                let mut sample = Sample::of(&at, &server, &flood);
                sample.when.disturbed = disturbance(&sample, &load);
                results.cells[load_index][row_index].samples.push(sample);
            }
            Err(RunError::Interrupted) => return Err(Interrupted),
            // It can run elsewhere, or it would have been left out before.
            Err(RunError::Unavailable(reason))
                if results.cells[load_index][row_index].samples.is_empty() =>
            {
                (self.tell)(Progress::Course(Happened::Skipped(&row, reason.clone())));
                let skipped = Skipped::Unavailable(reason);
                results.cells[load_index][row_index].skipped = Some(skipped);
            }
            Err(error @ RunError::TimeIsUp(_)) => {
                let cell = &mut results.cells[load_index][row_index];
                if cell.samples.is_empty() {
                    cell.skipped.get_or_insert(Skipped::NotMeasured(error.to_string()));
                }
            }
            Err(error) => {
                (self.tell)(Progress::Course(Happened::Failed(&row, error.to_string())));
                results.cells[load_index][row_index].failed(error.to_string());
            }
        }
        Ok(())
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
        self.experiment.time.is_up(self.experiment.bench.elapsed_s())
    }

    fn has_time(&self) -> bool {
        let Schedule { warmup_ms, run_ms, .. } = self.schedule;
        let overhead_ms = crate::stats::median(&self.experiment.overhead_ms)
            .unwrap_or(OVERHEAD_GUESS_MS as f64)
            .max(0.0);
        let takes_ms = (warmup_ms + run_ms) as f64 + overhead_ms;
        self.experiment.time.has_room(self.experiment.bench.elapsed_s(), takes_ms)
    }

    fn lacks_time(&mut self, row: usize) {
        self.results.cells[self.load][row].had_no_time();
    }

    fn is_settled(&mut self) -> bool {
        self.experiment.settings.rounds.is_none() && is_settled(self.results, self.load)
    }

    fn is_over(&self, row: usize) -> bool {
        let cell = &self.results.cells[self.load][row];
        let given_up = cell.samples.is_empty() && cell.failed_runs >= GIVEN_UP_AFTER;
        given_up || cell.skipped.is_some()
    }

    fn begins(&mut self, row: usize, number: usize, of: usize) {
        (self.experiment.tell)(Progress::Course(Happened::Run {
            number,
            of,
            row: &self.results.rows[row],
        }));
    }

    fn run(&mut self, row: usize, block: u32) -> Result<bool, Interrupted> {
        let Self { experiment, results, load, schedule } = self;
        experiment.measure_once(results, *load, row, block, *schedule)?;
        Ok(repeat::settle(&mut results.cells[*load], row, block, schedule.rounds))
    }
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

/// Whether more rounds of a load would tell nothing that was asked for: every figure is as sure
/// as that, and every verdict is given.
fn is_settled(results: &mut Results, load: usize) -> bool {
    results.count_only_alike();
    let (metric, _) = ranked_by(&results.loads[load]);
    let is_open = |group| Ranking::of_group(results, load, group).is_open();
    results.confidence(load, metric).reached() && !results.groups(load).into_iter().any(is_open)
}

/// What disturbed a run, if anything did. That datagrams are lost is no disturbance where more are offered than a
/// row takes, or where that is what is searched for.
fn disturbance(sample: &Sample, load: &Load) -> Option<Disturbance> {
    if sample.wrong().is_some() || !load.is_paced() {
        return sample.disturbance();
    }
    let late = sample.pace_kept.is_some_and(|kept| kept < PACE_KEPT);
    let below_saturation = matches!(load.rate, plan::Rate::PerSecond(_));
    let received = sample.ledger.received_percent();
    let lost = below_saturation && received.is_some_and(|kept| kept < 100.0 * (1.0 - NO_LOSS));
    match sample.disturbance() {
        Some(cause) => Some(cause),
        // What may be the row's own comes first: it is made again by the stricter rule.
        None if lost => Some(Disturbance::Lost),
        None => late.then_some(Disturbance::PaceNotKept),
    }
}

/// Whether every datagram of a check arrived once and whole, or is accounted for as dropped
/// by the kernel before the design could see it.
///
/// # Errors
/// [`RunError::Disturbed`] where it does not add up, and others sent datagrams too.
fn conformance(server: &ServerReport, flood: &FloodReport) -> Result<Conformance, RunError> {
    let sample = Sample::of(&Circumstances::default(), server, flood);
    let unexplained = sample.ledger.unexplained();
    let strangers = server.audit.strangers;
    let failed = |reason: String| Ok(Conformance::Failed(reason));
    if flood.sent == 0 {
        failed("the generator sent nothing".into())
    } else if server.audit.received == 0 {
        failed(format!("none of {} datagrams reached the handler", flood.sent))
    } else if let Some(reason) = sample.disproved() {
        failed(reason)
    } else if let Some(error) = sample.data_error() {
        failed(error)
    } else if unexplained != 0 {
        let text = format!(
            "sent {}, received {}, dropped {}: {unexplained} unexplained",
            flood.sent,
            server.audit.received,
            sample.ledger.dropped()
        );
        // A machine that is busy may lose some where nobody counts them, and strangers may have sent some.
        let beside = match strangers {
            0 => String::new(),
            n => format!(", beside {} of strangers", number_of(n as usize, "datagram")),
        };
        Err(RunError::Disturbed(text + &beside))
    } else if !server.end_signalled {
        failed("the server did not see the end of the run".into())
    } else {
        Ok(Conformance::Passed)
    }
}

/// The exit code that tells the truth about an experiment: 0 success, 1 the run failed,
/// 3 completed with data errors, an invalid run or one that failed, 5 nothing could run here. An experiment
/// that was interrupted is not complete, so it counts as failed.
pub fn exit_code(results: &Results) -> u8 {
    let complete = results.has_figures() && !results.interrupted;
    exit::of_experiment(&results.rows, complete, !results.has_invalid_runs())
}

#[cfg(test)]
#[path = "experiment_tests.rs"]
mod tests;
