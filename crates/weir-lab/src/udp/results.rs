//! What an experiment found: every row under every load, with its samples.

use serde::Serialize;

use super::exchange::Echoed;
use super::ledger::Ledger;
use super::plan::{Load, Rate};
use super::replies::Replies;
use super::sample::{
    ANSWERS, Cell, KERNEL_ENTRIES, LATENCY_P50, METRICS, Metric, PACE, RECEIVE_BUFFER, RECEIVED,
    Sample, TAKEN,
};
use crate::experiment::plan::{Role, Row};
use crate::experiment::ranking::Ranking;
use crate::experiment::results::{self, Study};
use crate::hosts::Hosts;
use crate::report::number::percent;
use crate::stats::compare::alike;
use crate::udp::verdict::{NO_LOSS, PACE_KEPT};

/// Why a peer has no rank by latency.
const PEER_LATENCY: &str = "its latency is not measured: it answers nothing, and what it reports of its own \
                            latency cannot be checked";

impl Cell {
    /// The counts of the samples that count, added up.
    pub fn ledger(&self) -> Option<Ledger> {
        let mut counted = self.counted();
        let mut sum = counted.next()?.ledger.clone();
        counted.for_each(|sample| sum.add(&sample.ledger));
        Some(sum)
    }

    /// The counts of the way back of the samples that count, added up, where answers were expected.
    pub fn replies(&self) -> Option<Replies> {
        let mut counted = self.counted().filter_map(|sample| sample.replies.as_ref());
        let mut sum = counted.next()?.clone();
        counted.for_each(|replies| sum.add(replies));
        Some(sum)
    }
}

/// What the generator can do at most: into sockets that nobody reads.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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

/// A comparison of UDP: what only that has, as it stands in the document.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Udp {
    /// The cores of the server.
    pub server_cores: Vec<usize>,
    /// The cores of the generator.
    pub generator_cores: Vec<usize>,
    /// What link server and generator had of their own; `None` on loopback.
    pub link: Option<String>,
    /// Where server and generators ran; `None` on one machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Hosts>,
    /// What the generator can do at most.
    #[serde(rename = "calibration")]
    pub calibrations: Vec<Calibration>,
    /// What the rows were checked with before they were timed; `None` if none passed.
    #[serde(rename = "check")]
    pub checked: Option<Echoed>,
}

/// An experiment and what came out.
pub type Results = results::Results<Udp>;

impl Study for Udp {
    type Load = Load;
    type Sample = Sample;
    /// Rows with receive offload beside the others, and the others.
    type Group = bool;

    const GROUPS: &'static [bool] = &[false, true];
    const METRICS: &'static [Metric] = METRICS;
    const ENTRIES: Metric = KERNEL_ENTRIES;

    /// Received datagrams where as many are offered as can be, answers where so many requests are under way, latency
    /// where they are offered evenly, and what is taken of a burst. Over hosts the latency of a sink may not be known.
    fn ranked_by(load: &Load) -> &'static Metric {
        match load.rate {
            Rate::Saturation if load.replies.is_some() => &ANSWERS,
            Rate::Saturation => &RECEIVED,
            Rate::Burst { .. } => &TAKEN,
            _ if load.over_hosts && load.replies.is_none() => &RECEIVED,
            _ => &LATENCY_P50,
        }
    }

    /// In a short run on a busy machine all that is received may come after the time that is measured.
    fn nothing_arrived(results: &Results, load: usize, row: usize) -> bool {
        let received = results.cells[load][row].ledger().is_some_and(|ledger| ledger.received > 0);
        results.rate_is_zero(load, row) && !received
    }

    fn group_of(results: &Results, row: usize) -> bool {
        results.rows[row].receive_offload
    }

    fn takes_part(load: &Load, row: &Row) -> bool {
        load.takes(row)
    }

    /// Not where each row has a rate of its own.
    fn compares(load: &Load) -> bool {
        let is_rate = matches!(load.rate, Rate::Saturation | Rate::Burst { .. });
        is_rate || load.offered_per_s().is_some()
    }

    /// The traditional design is the measure of both groups.
    fn measure(rows: &[Row]) -> Option<usize> {
        rows.iter().position(|row| row.role == Role::Traditional)
    }

    fn incomparable(results: &Results, load: usize, row: usize) -> Option<String> {
        if let Some(reason) = results.claimed(load, row) {
            return Some(reason);
        }
        if !results.loads[load].is_paced() {
            return None;
        }
        let answered = results.loads[load].replies.is_some();
        if results.rows[row].peer.is_some() && !answered {
            return Some(PEER_LATENCY.into());
        }
        let cell = &results.cells[load][row];
        let received = match cell.replies() {
            Some(replies) => replies.share().map(|share| share * 100.0),
            None => cell.ledger()?.received_percent(),
        };
        // What is ranked by what arrives says what was lost by its figure.
        let by_latency = answered || !results.loads[load].over_hosts;
        let is_too_little = |percent: &f64| by_latency && *percent < 100.0 * (1.0 - NO_LOSS);
        if let Some(received) = received.filter(is_too_little) {
            return Some(format!(
                "{:.2} % of what was sent was {}, and the latency of the rest leaves out the worst",
                100.0 - received,
                if answered { "not answered" } else { "lost" }
            ));
        }
        let kept = results.median(load, row, &PACE).filter(|kept| *kept < PACE_KEPT * 100.0)?;
        Some(format!(
            "the generator kept its pace in {} of its windows only",
            percent(kept / 100.0)
        ))
    }

    fn descriptors(load: &Load, _: &Row) -> Vec<(String, u64)> {
        let sockets = u64::from(load.flows.max(1)) * u64::from(load.generators.max(1));
        let generators =
            format!("a process of {} generators with {} flows", load.generators, load.flows);
        let ports = load.ports.max(1);
        vec![(generators, sockets), (format!("a server on {ports} ports"), ports.into())]
    }
}

impl Results {
    /// A load as it is for a row: receive offload may be asked for by either.
    pub fn load_of(&self, load: usize, row: usize) -> Load {
        let of = self.loads[load];
        Load { receive_offload: of.receive_offload || self.rows[row].receive_offload, ..of }
    }

    /// The group that a load has a table of first: the rows without receive offload, if there are both.
    pub fn main_group(&self, load: usize) -> bool {
        self.groups(load).first().copied().unwrap_or(false)
    }

    /// The ranking of that group.
    pub fn main_ranking(&self, load: usize) -> Ranking {
        self.ranking(load, self.main_group(load))
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

    /// What a row received per second at most: its median at saturation under a load that is like
    /// the given one.
    pub fn maximum(&self, load: usize, row: usize) -> Option<f64> {
        let like =
            |other: &Load| other.rate == Rate::Saturation && other.is_like(&self.loads[load]);
        let load = self.loads.iter().position(like)?;
        self.median(load, row, Udp::ranked_by(&self.loads[load]))
    }

    /// Whether the ratios of a load can be put beside the published ones: those were made without
    /// offload, work and busy polling, and by a generator that does not go past the network stack.
    pub fn is_like_published(&self, load: usize) -> bool {
        let of = &self.loads[load];
        let plain = !of.receive_offload && of.busy_poll_us.is_none() && of.work.is_none();
        let plain = plain && of.burst().is_none() && of.replies.is_none();
        plain && self.own.link.is_none()
    }

    /// What the generator can do at most with such a load.
    pub fn calibration(&self, load: &Load) -> Option<&Calibration> {
        let mut calibrations = self.own.calibrations.iter().filter(|_| load.replies.is_none());
        calibrations.find(|calibration| calibration.is_of(load))
    }
}

/// Warns of settings that must be equal for figures to be compared, and are not: some of them over
/// all loads, the others among the rows that are compared under one load.
pub fn unequal_settings(results: &Results) -> Vec<String> {
    fn rows_of<'a>(rows: &'a [Row], cells: &'a [Cell]) -> Vec<(&'a Row, &'a Cell)> {
        rows.iter().zip(cells).collect()
    }
    // What each design has of its own is what a burst is about.
    let is_burst = |load: usize| results.loads.get(load).is_some_and(|of| of.burst().is_some());
    let alike = results.cells.iter().enumerate().filter(|(load, _)| !is_burst(*load));
    let all: Vec<(&Row, &Cell)> =
        alike.flat_map(|(_, cells)| rows_of(&results.rows, cells)).collect();
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
            warnings.push(format!("rows ran under different {name}: {}", list.join(", ")));
        }
    }
    warnings
}

/// The server's setting that says which queues of devices were polled.
pub const POLLED_QUEUES: &str = "busy-poll-queues";

/// Warns of busy polling that was asked for where there was nothing to poll.
pub fn nothing_polled(results: &Results) -> Vec<String> {
    let queues = results.samples().filter_map(|sample| sample.settings.get(POLLED_QUEUES));
    let unpolled = queues.filter(|queues| queues.starts_with("none")).count();
    if unpolled == 0 {
        return vec![];
    }
    vec![format!(
        "busy polling polled nothing in {unpolled} of {} runs: the sockets have no device queue to poll (there is none \
         on loopback); the figures are those of plain waiting",
        results.samples().count()
    )]
}

/// Warns of runs on what was in effect another machine than that of the generator's calibration.
pub fn unlike_calibration(results: &Results) -> Vec<String> {
    let unlike = results.samples().filter(|sample| sample.calibration_alike == Some(false)).count();
    if unlike == 0 {
        return vec![];
    }
    let time =
        |time: Option<f64>| time.map_or_else(|| "unknown".into(), |ns| format!("{ns:.0} ns"));
    let mut at: Vec<String> =
        results.own.calibrations.iter().map(|c| time(c.core_to_core_ns)).collect();
    at.dedup();
    vec![format!(
        "in {unlike} of {} runs the machine had changed (core to core) since the calibration of the \
         generator ({}): in those its maximum is unknown and not used",
        results.samples().count(),
        at.join(", ")
    )]
}

#[cfg(test)]
mod tests;
