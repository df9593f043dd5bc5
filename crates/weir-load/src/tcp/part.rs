//! What one process of a load did. A process may have so many descriptors, and so many connections;
//! what several did is added up here.

use super::{Causes, Counts, EndedBy, Window, Wrong, counts::Live, spans::Spans, worker::Outcome};
use crate::{
    latency::Histogram,
    stop::{Stop, StopReason},
};
use serde::{Deserialize, Serialize};
use weir::counters::os::Sampler;

/// When messages are measured, of the machine's monotonic clock in ns
/// ([`now_ns`](crate::clock::now_ns)), which all processes have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// From here on.
    pub measure_from_ns: u64,
    /// Up to here, when sending ends.
    pub end_ns: u64,
}

/// What one process of a load did, or several.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Processes that it is of.
    pub processes: u32,
    pub(super) counts: Counts,
    pub(super) latencies: Histogram,
    pub(super) delays: Histogram,
    pub(super) connects: Histogram,
    pub(super) errors: Causes,
    pub(super) refusals: Causes,
    pub(super) wrong_bytes: Option<Wrong>,
    pub(super) file_bytes: Option<u64>,
    pub(super) file_problem: Option<String>,
    pub(super) unanswered: u64,
    pub(super) due_unsent: u64,
    pub(super) connecting: Spans,
    pub(super) open_max: u64,
    pub(super) source_addresses: u32,
    pub(super) window: Option<Window>,
    pub(super) cpu_ns: Option<u64>,
    pub(super) process_cpu_ns: Option<u64>,
    pub(super) peak_resident_bytes: Option<u64>,
    pub(super) began_ns: u64,
    pub(super) ended_ns: u64,
    pub(super) ended_by: EndedBy,
}

/// What the leading thread saw of a load.
pub(super) struct Seen {
    pub(super) began_ns: u64,
    pub(super) open_max: u64,
    pub(super) source_addresses: u32,
    pub(super) window: Option<Window>,
    pub(super) file_bytes: Option<u64>,
    pub(super) time_was_over: bool,
}

impl Part {
    /// Adds up what the threads of this process did.
    pub(super) fn of(lives: &[Live], outcomes: Vec<Outcome>, seen: Seen, stop: &Stop) -> Self {
        let Seen { began_ns, open_max, source_addresses, window, file_bytes, time_was_over } = seen;
        let process = Sampler::new().process();
        let mut part = Self {
            processes: 1,
            counts: Counts::default(),
            latencies: Histogram::default(),
            delays: Histogram::default(),
            connects: Histogram::default(),
            errors: Causes::default(),
            refusals: Causes::default(),
            wrong_bytes: outcomes.iter().find_map(|outcome| outcome.wrong),
            file_bytes,
            file_problem: outcomes.iter().find_map(|outcome| outcome.file_problem.clone()),
            unanswered: outcomes.iter().map(|outcome| outcome.unanswered).sum(),
            due_unsent: outcomes.iter().map(|outcome| outcome.due_unsent).sum(),
            connecting: Spans::default(),
            open_max,
            source_addresses,
            window,
            cpu_ns: outcomes.iter().map(|outcome| outcome.cpu_ns).sum(),
            process_cpu_ns: process.cpu_ns,
            peak_resident_bytes: process.peak_resident_bytes,
            began_ns,
            ended_ns: outcomes.iter().map(|o| o.ended_ns).max().unwrap_or(began_ns),
            ended_by: match stop.reason() {
                Some(StopReason::Asked) => EndedBy::Asked,
                Some(StopReason::Failed | StopReason::ControlLost(_) | StopReason::Revoked(_)) => {
                    EndedBy::Failure
                }
                None if time_was_over => EndedBy::Time,
                None => EndedBy::Connections,
            },
        };
        for live in lives {
            part.counts.merge(&live.counts());
            live.latencies.add_to(&mut part.latencies);
            live.delays.add_to(&mut part.delays);
            live.connects.add_to(&mut part.connects);
        }
        for outcome in outcomes {
            part.connecting.merge(&outcome.connecting);
            part.errors.merge(outcome.causes);
            part.refusals.merge(outcome.refusals);
        }
        part
    }

    /// Adds what other processes did at the same time.
    pub fn merge(&mut self, other: Self) {
        let both = |a: Option<u64>, b: Option<u64>| Some(a? + b?);
        self.processes += other.processes;
        self.counts.merge(&other.counts);
        self.latencies.merge(&other.latencies);
        self.delays.merge(&other.delays);
        self.connects.merge(&other.connects);
        self.errors.merge(other.errors);
        self.refusals.merge(other.refusals);
        self.wrong_bytes = self.wrong_bytes.or(other.wrong_bytes);
        self.file_bytes = self.file_bytes.or(other.file_bytes);
        self.file_problem = self.file_problem.take().or(other.file_problem);
        self.unanswered += other.unanswered;
        self.due_unsent += other.due_unsent;
        self.connecting.merge(&other.connecting);
        self.open_max += other.open_max;
        self.source_addresses += other.source_addresses;
        self.window = match (self.window.take(), other.window) {
            (Some(one), Some(another)) => Some(one.beside(&another)),
            (one, another) => one.or(another),
        };
        self.cpu_ns = both(self.cpu_ns, other.cpu_ns);
        self.process_cpu_ns = both(self.process_cpu_ns, other.process_cpu_ns);
        self.peak_resident_bytes = both(self.peak_resident_bytes, other.peak_resident_bytes);
        self.began_ns = self.began_ns.min(other.began_ns);
        self.ended_ns = self.ended_ns.max(other.ended_ns);
        self.ended_by = self.ended_by.max(other.ended_by);
    }
}
