//! What one process of a load did. A process may have so many descriptors, and so many connections;
//! what several did is added up here.

use super::{Causes, Counts, EngineUsed, Wrong, counts::Live, spans::Spans, worker::Outcome};
use crate::{
    latency::Histogram,
    stop::{Stop, StopReason},
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt};
use weir::counters::os::{Sampler, TcpEnds};

/// Why a load ended: of several processes, the last of these. It is shown as the words that say so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndedBy {
    /// Every connection was over.
    Connections,
    /// Its time was over.
    Time,
    /// Someone asked, with Ctrl-C for instance.
    Asked,
    /// A thread failed.
    Failure,
}

impl fmt::Display for EndedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EndedBy::Connections => "every connection was over",
            EndedBy::Time => "its time was over",
            EndedBy::Asked => "it was asked to end",
            EndedBy::Failure => "a thread failed",
        })
    }
}

/// What was counted from when all blocks stood to the end of sending, without the warm-up; of a load
/// with a number of messages for each connection, from the beginning to the end.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// How long it was, in ns.
    pub elapsed_ns: u64,
    /// Messages that were over in it.
    pub messages: u64,
    /// Bytes sent in it.
    pub bytes_sent: u64,
    /// Bytes received in it.
    pub bytes_received: u64,
    /// Messages per second.
    pub messages_per_s: f64,
    /// Bits of payload sent per second (no header is included).
    pub bits_per_second_sent: f64,
    /// Bits of payload received per second.
    pub bits_per_second_received: f64,
    /// CPU time of the threads in it, in ns; none where it is not known.
    pub cpu_ns: Option<u64>,
    /// The same for each message.
    pub cpu_ns_per_message: Option<f64>,
}

/// What the client's end holds, looked at once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holds {
    /// Memory of the load's processes, in bytes; none where it is not known.
    pub resident_bytes: Option<u64>,
    /// Sockets of this machine that are connected to the target's port, and what the kernel has in their buffers, in
    /// bytes; none where it is not known.
    pub sockets: Option<u64>,
    /// See `sockets`.
    pub socket_bytes: Option<u64>,
}

impl Holds {
    /// With a port that of the target; one that is a Unix socket has none.
    pub(super) fn now(port: Option<u16>) -> Self {
        let ends = port.and_then(TcpEnds::of_port);
        Self {
            resident_bytes: Sampler::new().process().resident_bytes,
            sockets: ends.map(|ends| ends.to_the_port.sockets),
            socket_bytes: ends.map(|ends| ends.to_the_port.bytes),
        }
    }

    /// With another process of the same load, which sees the same sockets.
    fn beside(self, other: Self) -> Self {
        let sum = |one: Option<u64>, another: Option<u64>| Some(one? + another?);
        Self {
            resident_bytes: sum(self.resident_bytes, other.resident_bytes),
            sockets: self.sockets.max(other.sockets),
            socket_bytes: self.socket_bytes.max(other.socket_bytes),
        }
    }

    /// Of processes on several hosts, each of which sees the sockets of its own.
    pub(super) fn of_hosts<'a>(each: impl IntoIterator<Item = (&'a str, Self)>) -> Option<Self> {
        let mut hosts = BTreeMap::<&str, Self>::new();
        for (host, holds) in each {
            hosts
                .entry(host)
                .and_modify(|of_host| *of_host = of_host.beside(holds))
                .or_insert(holds);
        }
        let sum = |one: Option<u64>, another: Option<u64>| Some(one? + another?);
        hosts.into_values().reduce(|one, another| Self {
            resident_bytes: sum(one.resident_bytes, another.resident_bytes),
            sockets: sum(one.sockets, another.sockets),
            socket_bytes: sum(one.socket_bytes, another.socket_bytes),
        })
    }
}

/// What was read of all threads at a moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reading {
    pub(super) at_ns: u64,
    pub(super) counts: Counts,
    pub(super) cpu_ns: Option<u64>,
}

impl Window {
    pub(super) fn between(from: &Reading, to: &Reading) -> Self {
        let counts = to.counts.since(&from.counts);
        let cpu_ns = to.cpu_ns.zip(from.cpu_ns).map(|(to, from)| to.saturating_sub(from));
        let (sent, received) = (counts.bytes_sent, counts.bytes_received);
        let elapsed_ns = to.at_ns.saturating_sub(from.at_ns);
        Self::new(elapsed_ns, counts.messages_over, sent, received, cpu_ns)
    }

    fn new(
        elapsed_ns: u64,
        messages: u64,
        bytes_sent: u64,
        bytes_received: u64,
        cpu_ns: Option<u64>,
    ) -> Self {
        let elapsed_ns = elapsed_ns.max(1);
        let per_s = |count: u64| count as f64 * 1e9 / elapsed_ns as f64;
        Self {
            elapsed_ns,
            messages,
            bytes_sent,
            bytes_received,
            messages_per_s: per_s(messages),
            bits_per_second_sent: per_s(bytes_sent) * 8.0,
            bits_per_second_received: per_s(bytes_received) * 8.0,
            cpu_ns,
            cpu_ns_per_message: cpu_ns
                .filter(|_| messages > 0)
                .map(|ns| ns as f64 / messages as f64),
        }
    }

    /// Both together, which lay beside one another in time.
    pub(super) fn beside(&self, other: &Self) -> Self {
        Self::new(
            self.elapsed_ns.max(other.elapsed_ns),
            self.messages + other.messages,
            self.bytes_sent + other.bytes_sent,
            self.bytes_received + other.bytes_received,
            self.cpu_ns.zip(other.cpu_ns).map(|(one, another)| one + another),
        )
    }
}

/// What one process of a load did, or several.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Processes that it is of.
    pub processes: u32,
    pub(super) engine: EngineUsed,
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
    pub(super) holds: Option<Holds>,
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
    pub(super) holds: Option<Holds>,
    pub(super) file_bytes: Option<u64>,
    pub(super) engine: EngineUsed,
    pub(super) time_was_over: bool,
}

impl Part {
    /// Adds up what the threads of this process did.
    pub(super) fn of(lives: &[Live], outcomes: Vec<Outcome>, seen: Seen, stop: &Stop) -> Self {
        let Seen {
            began_ns,
            open_max,
            source_addresses,
            window,
            holds,
            file_bytes,
            engine,
            time_was_over,
        } = seen;
        let process = Sampler::new().process();
        let mut part = Self {
            processes: 1,
            engine,
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
            holds,
            began_ns,
            ended_ns: outcomes.iter().map(|o| o.ended_ns).max().unwrap_or(began_ns),
            ended_by: match stop.reason() {
                Some(StopReason::Asked) => EndedBy::Asked,
                Some(
                    StopReason::Failed
                    | StopReason::Hangs(_)
                    | StopReason::ControlLost(_)
                    | StopReason::Revoked(_),
                ) => EndedBy::Failure,
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

    /// All latencies, as counts that can be added place by place to those of another part; none are left in it.
    pub(super) fn take_latencies(&mut self) -> Vec<u64> {
        let histograms = [&mut self.latencies, &mut self.delays, &mut self.connects];
        histograms.into_iter().flat_map(|histogram| std::mem::take(histogram).counts()).collect()
    }

    /// Puts them in, those of three histograms.
    pub(super) fn put_latencies(&mut self, counts: &[u64]) {
        let histograms = [&mut self.latencies, &mut self.delays, &mut self.connects];
        for (histogram, counts) in
            histograms.into_iter().zip(counts.chunks((counts.len() / 3).max(1)))
        {
            *histogram = Histogram::of_counts(counts);
        }
    }

    /// Puts its times on another clock.
    pub(super) fn on_clock(&mut self, clock: impl Fn(u64) -> u64) {
        (self.began_ns, self.ended_ns) = (clock(self.began_ns), clock(self.ended_ns));
        self.connecting.on_clock(clock);
    }

    /// Adds what other processes did at the same time.
    pub fn merge(&mut self, other: Self) {
        let both = |a: Option<u64>, b: Option<u64>| Some(a? + b?);
        self.processes += other.processes;
        self.engine.add(other.engine);
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
        self.holds = self.holds.zip(other.holds).map(|(one, another)| one.beside(another));
        self.began_ns = self.began_ns.min(other.began_ns);
        self.ended_ns = self.ended_ns.max(other.ended_ns);
        self.ended_by = self.ended_by.max(other.ended_by);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_counted_once_on_a_host_and_added_up_over_hosts() {
        let holds = |sockets| Holds {
            resident_bytes: Some(1),
            sockets: Some(sockets),
            socket_bytes: Some(10 * sockets),
        };
        let all = Holds::of_hosts([("a", holds(3)), ("b", holds(5)), ("a", holds(4))]);
        let expected = Holds { resident_bytes: Some(3), sockets: Some(9), socket_bytes: Some(90) };
        assert_eq!(all, Some(expected));
        let unknown = Holds { sockets: None, ..holds(3) };
        let all = Holds::of_hosts([("a", holds(3)), ("b", unknown)]).unwrap();
        assert_eq!((all.sockets, all.socket_bytes), (None, Some(60)));
        assert_eq!(Holds::of_hosts([]), None);
    }
}
