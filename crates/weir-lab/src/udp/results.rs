//! What an experiment found: every row under every load, with its samples.

pub use crate::experiment::cell::{Cell, Conformance, Skipped, Status};

use crate::experiment::cell::{self, Metric};
use crate::experiment::plan::{Role, Row, Schedule};
use crate::experiment::verdict::{NO_LOSS, PACE_KEPT};
use crate::machine::Machine;
use crate::report::number::percent;
use crate::stats::Estimate;
use crate::stats::compare::{Confidence, alike};
use crate::udp::bench::Checked;
use crate::udp::ledger::Ledger;
use crate::udp::plan::{Load, Rate};
use crate::udp::sample::{PACE, RECEIVED, Sample};

/// Confidence of all intervals, as a share.
pub const CONFIDENCE: f64 = 0.95;

/// Why a peer has no rank by latency.
const PEER_LATENCY: &str = "its latency is not measured: it answers nothing, and what it says of its latency itself cannot \
                            be checked";

impl Cell {
    /// The counts of the samples that count, added up.
    pub fn ledger(&self) -> Option<Ledger> {
        let mut counted = self.counted();
        let mut sum = counted.next()?.ledger.clone();
        counted.for_each(|sample| sum.add(&sample.ledger));
        Some(sum)
    }
}

/// What the generator can do at most: into sockets that nobody reads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Calibration {
    /// Whether the sink asked for receive offload, which changes the sender's work.
    pub receive_offload: bool,
    /// Payload of its datagrams in bytes.
    pub size_bytes: u32,
    /// Flows of each generator.
    pub flows: u16,
    /// Generators.
    pub generators: u16,
    /// Datagrams per second sent.
    pub sent_per_s: f64,
    /// Nanoseconds of a cache line's way from core to core just before it.
    pub core_to_core_ns: Option<f64>,
    /// The same just after it.
    pub core_to_core_after_ns: Option<f64>,
}

impl Calibration {
    /// Whether it tells of such a load.
    pub fn is_of(&self, load: &Load) -> bool {
        self.receive_offload == load.receive_offload
            && self.size_bytes == load.size_bytes
            && self.flows == load.flows
            && self.generators == load.generators
    }

    /// Whether the machine was the same throughout it as at a moment of that core-to-core time.
    pub fn is_alike(&self, core_to_core_ns: Option<f64>) -> bool {
        let times = [self.core_to_core_ns, self.core_to_core_after_ns];
        times.into_iter().all(|time| alike(time, core_to_core_ns))
    }
}

/// An experiment and what came out.
#[derive(Debug, Clone, PartialEq)]
pub struct Results {
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
    pub loads: Vec<Load>,
    /// How often and how long each load was planned to run, once that is known.
    pub schedules: Vec<Option<Schedule>>,
    /// By load, then by row.
    pub cells: Vec<Vec<Cell>>,
    /// The cores of the server.
    pub server_cores: Vec<usize>,
    /// The cores of the generator.
    pub generator_cores: Vec<usize>,
    /// What link server and generator had of their own; `None` on loopback.
    pub link: Option<String>,
    /// What the generator can do at most.
    pub calibrations: Vec<Calibration>,
    /// What the rows were checked with before they were timed; `None` if none passed.
    pub checked: Option<Checked>,
    /// What a reader must know before trusting a figure.
    pub warnings: Vec<String>,
    /// True if it was ended before its plan was through.
    pub interrupted: bool,
    /// Why nothing more could be done, if so.
    pub error: Option<String>,
}

impl Results {
    /// Results without any run yet.
    pub fn new(command: Vec<String>, machine: Machine, rows: Vec<Row>, loads: Vec<Load>) -> Self {
        Self {
            command,
            machine,
            seed: 0,
            asked_half_width: 0.05,
            conformance: vec![Conformance::NotChecked; rows.len()],
            cells: vec![vec![Cell::default(); rows.len()]; loads.len()],
            schedules: vec![None; loads.len()],
            rows,
            loads,
            server_cores: vec![],
            generator_cores: vec![],
            link: None,
            calibrations: vec![],
            checked: None,
            warnings: vec![],
            interrupted: false,
            error: None,
        }
    }

    /// Takes out of the medians what was measured while the machine was another one
    /// ([`cell::count_only_alike`]).
    pub fn count_only_alike(&mut self) {
        self.cells.iter_mut().for_each(|cells| cell::count_only_alike(cells));
    }

    /// Whether a row takes part in a load.
    pub fn takes_part(&self, load: usize, row: usize) -> bool {
        self.loads[load].takes(&self.rows[row])
    }

    /// A load as it is for a row: receive offload may be asked for by either.
    pub fn load_of(&self, load: usize, row: usize) -> Load {
        let of = self.loads[load];
        Load { receive_offload: of.receive_offload || self.rows[row].receive_offload, ..of }
    }

    /// Whether rows with receive offload stand beside the others under a load; without them, and
    /// with them. Each that there are is ranked by itself.
    pub fn groups(&self, load: usize) -> Vec<bool> {
        let is_there = |offloaded: &bool| {
            let of_group = |row: &usize| self.rows[*row].receive_offload == *offloaded;
            (0..self.rows.len()).filter(of_group).any(|row| self.takes_part(load, row))
        };
        [false, true].into_iter().filter(is_there).collect()
    }

    /// How a row under a load ended.
    pub fn status(&self, load: usize, row: usize) -> Status {
        self.cells[load][row].status(&self.rows[row], &self.conformance[row])
    }

    /// Why a row under a load has no rank; `None` if it has one.
    pub fn unranked(&self, load: usize, row: usize) -> Option<String> {
        let cell = &self.cells[load][row];
        let reason = cell.without_figures(&self.rows[row], &self.conformance[row]);
        if let Some(reason) = reason.or_else(|| self.invalid(load, row)) {
            return Some(reason);
        }
        if let Some(reason) = self.claimed(load, row) {
            return Some(reason);
        }
        // Nothing would change that, so it comes before what the machine did.
        if self.loads[load].is_paced() && self.rows[row].peer.is_some() {
            return Some(PEER_LATENCY.into());
        }
        if cell.of_another_machine {
            return Some(cell::OF_ANOTHER_MACHINE.into());
        }
        if !self.loads[load].is_paced() {
            return None;
        }
        let ledger = cell.ledger()?;
        if let Some(received) = ledger.received_percent().filter(|p| *p < 100.0 * (1.0 - NO_LOSS)) {
            return Some(format!(
                "{:.2} % of what was sent was lost, and the latency of the rest leaves out the worst",
                100.0 - received
            ));
        }
        match cell.estimate(&PACE, self.seed) {
            Some(kept) if kept.median < PACE_KEPT * 100.0 => Some(format!(
                "the generator kept its pace in {} of its windows only",
                percent(kept.median / 100.0)
            )),
            _ => None,
        }
    }

    /// Why the figures of a row under a load cannot be checked, if so: those of a peer that shows nothing of
    /// what it received.
    pub fn claimed(&self, load: usize, row: usize) -> Option<String> {
        self.cells[load][row].samples.iter().find_map(Sample::claimed)
    }

    /// Whether what a peer says of itself is contradicted.
    pub fn is_disproved(&self, load: usize, row: usize) -> bool {
        self.cells[load][row].samples.iter().any(|sample| sample.disproved().is_some())
    }

    /// What makes a cell's figures wrong, if anything; figures that are right and cannot be
    /// compared are not ranked all the same. All samples are looked at, counted or not: a ledger
    /// that does not balance is an error on any machine.
    pub fn invalid(&self, load: usize, row: usize) -> Option<String> {
        self.cells[load][row].invalid()
    }

    /// Whether a row's figures under a load are wrong, or it failed its check.
    pub fn is_invalid(&self, load: usize, row: usize) -> bool {
        matches!(self.conformance[row], Conformance::Failed(_)) || self.invalid(load, row).is_some()
    }

    /// Whether the rows of a load are compared: not where each has a rate of its own.
    pub fn compares(&self, load: usize) -> bool {
        matches!(self.loads[load].rate, Rate::Saturation | Rate::PerSecond(_))
    }

    /// The row that others are compared with, if it is among them.
    pub fn traditional(&self) -> Option<usize> {
        self.rows.iter().position(|row| row.role == Role::Traditional)
    }

    /// The row that runs under two names, and its second name, of the rows without receive offload
    /// beside them or with it.
    pub fn again(&self, offloaded: bool) -> Option<(usize, usize)> {
        self.rows.iter().enumerate().find_map(|(index, row)| match row.role {
            Role::Again(of) if row.receive_offload == offloaded => Some((of, index)),
            _ => None,
        })
    }

    /// What a row received per second at most: its median at saturation under a load that is like
    /// the given one.
    pub fn maximum(&self, load: usize, row: usize) -> Option<f64> {
        let like = |other: &Load| !other.is_paced() && other.is_like(&self.loads[load]);
        let load = self.loads.iter().position(like)?;
        Some(self.cells[load][row].estimate(&RECEIVED, self.seed)?.median)
    }

    /// Whether the ratios of a load can be put beside the published ones: those were made without
    /// offload, work and busy polling, and by a generator that does not go past the network stack.
    pub fn is_like_published(&self, load: usize) -> bool {
        let of = &self.loads[load];
        let plain = !of.receive_offload && of.busy_poll_us.is_none() && of.work.is_none();
        plain && self.link.is_none()
    }

    /// What the generator can do at most with such a load.
    pub fn calibration(&self, load: &Load) -> Option<&Calibration> {
        self.calibrations.iter().find(|calibration| calibration.is_of(load))
    }

    /// How sure the figures of a load are, over all its ranked rows.
    pub fn confidence(&self, load: usize, metric: &Metric) -> Confidence {
        let estimates: Vec<Estimate> = (0..self.rows.len())
            .filter(|row| self.takes_part(load, *row) && self.unranked(load, *row).is_none())
            .filter_map(|row| self.cells[load][row].estimate(metric, self.seed))
            .collect();
        Confidence::of(&estimates, self.asked_half_width)
    }

    /// True if a check failed, a run failed, or a run's data or ledger was wrong: any of these
    /// makes the experiment invalid in part.
    pub fn has_invalid_runs(&self) -> bool {
        let conformance_failed = |c: &Conformance| matches!(c, Conformance::Failed(_));
        self.conformance.iter().any(conformance_failed)
            || self
                .cells
                .iter()
                .flatten()
                .any(|cell| cell.failed_runs > 0 || cell.invalid().is_some())
    }

    /// True if at least one run succeeded.
    pub fn has_figures(&self) -> bool {
        self.cells.iter().flatten().any(|cell| !cell.samples.is_empty())
    }
}

/// The server's setting that says how large the receive buffers of its sockets are, in bytes.
pub const RECEIVE_BUFFER: &str = "receive-buffer-bytes";

/// Warns of settings that must be equal for figures to be compared, and are not: some of them over
/// all loads, the others among the rows that are compared under one load.
pub fn unequal_settings(results: &Results) -> Vec<String> {
    fn rows_of<'a>(rows: &'a [Row], cells: &'a [Cell]) -> Vec<(&'a Row, &'a Cell)> {
        rows.iter().zip(cells).collect()
    }
    let all: Vec<(&Row, &Cell)> =
        results.cells.iter().flat_map(|cells| rows_of(&results.rows, cells)).collect();
    let mut found = unequal(&all, &[RECEIVE_BUFFER, ENGINE]);
    for load in 0..results.loads.len() {
        for group in results.groups(load) {
            let mut cells = rows_of(&results.rows, &results.cells[load]);
            cells.retain(|(row, _)| row.receive_offload == group);
            found.extend(unequal(&cells, &["receive-offload", "busy-poll-us", "size"]));
        }
    }
    let mut warnings: Vec<String> = vec![];
    for warning in found {
        if !warnings.contains(&warning) {
            warnings.push(warning);
        }
    }
    warnings
}

/// The generator's engine, as if it were a setting of the server.
const ENGINE: &str = "generator's engine";

fn unequal(cells: &[(&Row, &Cell)], names: &[&str]) -> Vec<String> {
    let setting = |sample: &Sample, name: &str| match name {
        ENGINE => sample.engine.clone(),
        _ => sample.settings.get(name).cloned(),
    };
    let mut warnings = vec![];
    for name in names {
        let mut values: Vec<(String, &Row)> = vec![];
        for (row, sample) in
            cells.iter().flat_map(|(row, c)| c.samples.iter().map(move |s| (*row, s)))
        {
            if let Some(value) = setting(sample, name)
                && !values.iter().any(|(known, _)| *known == value)
            {
                values.push((value, row));
            }
        }
        if values.len() > 1 {
            let list: Vec<String> =
                values.iter().map(|(value, row)| format!("{value} ({row})")).collect();
            warnings.push(format!("rows were made under different {name}: {}", list.join(", ")));
        }
    }
    warnings
}

/// Warns if other programs had a good part of the cores while the runs were made.
pub fn busy_machine(results: &Results) -> Vec<String> {
    let samples = results.cells.iter().flatten().flat_map(|cell| &cell.samples);
    let loads: Vec<f64> = samples.filter_map(|sample| sample.when.load_of_others).collect();
    cell::busy_machine(&loads).into_iter().collect()
}

/// The server's setting that says which queues of devices were polled.
pub const POLLED_QUEUES: &str = "busy-poll-queues";

/// Warns of busy polling that was asked for where there was nothing to poll.
pub fn nothing_polled(results: &Results) -> Vec<String> {
    let samples = || results.cells.iter().flatten().flat_map(|cell| &cell.samples);
    let told = samples().filter_map(|sample| sample.settings.get(POLLED_QUEUES));
    let unpolled = told.filter(|queues| queues.starts_with("none")).count();
    if unpolled == 0 {
        return vec![];
    }
    vec![format!(
        "busy polling polled nothing in {unpolled} of {} runs: the sockets know no queue of a device \
         (on loopback there is none); the figures are those of waiting",
        samples().count()
    )]
}

/// Warns of runs on what was in effect another machine than that of the generator's calibration.
pub fn unlike_calibration(results: &Results) -> Vec<String> {
    let samples = || results.cells.iter().flatten().flat_map(|cell| &cell.samples);
    let unlike = samples().filter(|sample| sample.calibration_alike == Some(false)).count();
    if unlike == 0 {
        return vec![];
    }
    let time =
        |time: Option<f64>| time.map_or_else(|| "unknown".into(), |ns| format!("{ns:.0} ns"));
    let mut at: Vec<String> =
        results.calibrations.iter().map(|c| time(c.core_to_core_ns)).collect();
    at.dedup();
    vec![format!(
        "in {unlike} of {} runs the machine was another (core to core) than at the calibration of \
         the generator ({}): in those its maximum is not known, and is not used",
        samples().count(),
        at.join(", ")
    )]
}

#[cfg(test)]
#[path = "results_tests.rs"]
mod tests;
