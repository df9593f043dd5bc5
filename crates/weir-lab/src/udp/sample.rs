//! What one run delivered, and the metrics that are taken from it.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::experiment::cell::Disturbance;
use crate::experiment::cell::{self, Measured, When, measured, metrics};
use crate::experiment::verdict::Verdict;
use crate::performance::Record;
use crate::report::number::{bytes, microseconds, per_1000, percent_of, percent_of_100, si, whole};
use crate::udp::belief::{self, Belief, Said};
use crate::udp::ledger::{Balance, Ledger};
use crate::udp::replies::Replies;
use crate::udp::verdict::{Evidence, OfAnswers, judge};
use crate::wire::{Answers, Audit, Batches, FloodReport, GeneratorClock, Latency, ServerReport};

/// The server's setting that says how large the receive buffers of its sockets are, in bytes.
pub const RECEIVE_BUFFER: &str = "receive-buffer-bytes";

/// The circumstances of a run, that neither child knows.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Circumstances {
    /// When it was made, and on what machine.
    pub when: When,
    /// True if the generator kept to a rate.
    pub paced: bool,
    /// True if all was sent at once.
    pub burst: bool,
    /// True if the server was to answer.
    pub answered: bool,
    /// What the generator sends per second into a sink that drops, where that was measured while
    /// the machine was the same.
    pub calibrated_per_s: Option<f64>,
    /// Whether it was; `None` if it was not measured at all.
    pub calibration_alike: Option<bool>,
    /// How many cores the server had.
    pub server_cores: usize,
    /// How many cores the generator had.
    pub generator_cores: usize,
}

/// One run's figures. Unknown ones are `None`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Sample {
    /// When it was made, and on what machine.
    #[serde(flatten)]
    pub when: When,
    /// Whether the machine was the same (core to core) as at the generator's calibration; `None`
    /// without one.
    pub calibration_alike: Option<bool>,
    /// Datagrams per second that reached the handler after the warm-up.
    pub received_per_s: Option<f64>,
    /// Datagrams per second offered over the whole run.
    pub offered_per_s: Option<f64>,
    /// Datagrams per second sent over the whole run.
    pub sent_per_s: Option<f64>,
    /// Answers per second that the generator took, each held against its request; `None` where none was expected.
    pub answers_per_s: Option<f64>,
    /// CPU time of the server's process per datagram in nanoseconds; where answers are expected, per answer. So are all
    /// counts per 1000.
    pub cpu_ns_per_datagram: Option<f64>,
    /// CPU time of the threads that receive and handle datagrams, per datagram in nanoseconds.
    pub threads_cpu_ns_per_datagram: Option<f64>,
    /// Why the CPU time of the server is not known, where that has a reason of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_unknown: Option<String>,
    /// The same of its context switches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_switches_unknown: Option<String>,
    /// Share of its cores that the server used.
    pub server_cpu: Option<f64>,
    /// Share of its cores that the generator used.
    pub generator_cpu: Option<f64>,
    /// Share of its time that the generator had nothing to send and nothing to take, where answers are expected.
    pub generator_waiting: Option<f64>,
    /// One-way latency, where it was taken; where answers are expected, the round trip.
    pub latency_ns: Option<Latency>,
    /// How wrong a one-way latency between hosts may be, in nanoseconds either way: the most of all generators.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_uncertainty_ns: Option<u64>,
    /// Why it is not told, where it was taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_withheld: Option<String>,
    /// How the clocks of the generators stood to that of the server, where they were compared for that.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clocks: Vec<GeneratorClock>,
    /// Its histogram, to be merged with those of other runs; empty if the receiver gave none.
    #[serde(skip)]
    pub latency_histogram: Vec<(u64, u64)>,
    /// Datagrams per dequeue.
    pub batches: Batches,
    /// Entries into the kernel per 1000 datagrams.
    pub kernel_entries_per_1000: Option<f64>,
    /// Calls of the server that sleep if nothing has arrived, per 1000 datagrams.
    pub waits_per_1000: Option<f64>,
    /// Times that the completion queue could not hold what had completed, over the whole run.
    pub completion_overflows: Option<u64>,
    /// Times that the kernel found no receive posted, over the whole run: what arrived waited in the socket, or was
    /// dropped there.
    pub no_buffer: Option<u64>,
    /// Datagrams longer than a slice, over the whole run.
    pub truncated: Option<u64>,
    /// Context switches of the server's process per 1000 datagrams.
    pub context_switches_per_1000: Option<f64>,
    /// Interrupts of all cores per 1000 datagrams.
    pub interrupts_per_1000: Option<f64>,
    /// Memory of the server's process in bytes.
    pub resident_bytes: Option<u64>,
    /// Memory of the kernel for sockets in bytes.
    pub kernel_bytes: Option<u64>,
    /// Threads that handled any datagram.
    pub threads_used: u32,
    /// Threads started.
    pub threads_started: u32,
    /// Share of the generator's 10 ms windows in which it kept its pace.
    pub pace_kept: Option<f64>,
    /// Datagrams the generator skipped because their time had passed.
    pub late_skipped: u64,
    /// Where every datagram went.
    pub ledger: Ledger,
    /// What became of the answers, where any were expected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replies: Option<Replies>,
    /// What was wrong with them, if anything was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wrong_answers: Option<String>,
    /// What the receiver found in them.
    pub audit: Audit,
    /// Slices that did not come back from the kernel.
    pub slices_missing: u32,
    /// Whether the generator signalled the end of the run.
    pub end_signalled: bool,
    /// Why the run was ended although something of it was still to come, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut_short: Option<String>,
    /// How far the word of a peer goes; `None` for weir's own servers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub belief: Option<Belief>,
    /// How long it took to send a burst, in nanoseconds; `None` of any other load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst_sent_in_ns: Option<u64>,
    /// What limited the run.
    pub verdict: Verdict,
    /// Its performance log: what threads, cores and the system did in each interval of it; empty without one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub performance: Vec<Record>,
    /// The server's settings as obtained.
    pub settings: BTreeMap<String, String>,
    /// The engine of the generator.
    pub engine: Option<String>,
    /// Of generators at several hosts, from the start of the first to that of the last, in nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_skew_ns: Option<u64>,
    /// How wrong that may be, in nanoseconds: half of the fastest round trip between ranks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_skew_uncertainty_ns: Option<u64>,
}

impl Sample {
    /// Puts together what both children said.
    pub fn of(at: &Circumstances, server: &ServerReport, flood: &FloodReport) -> Self {
        let window_s = server.window.elapsed_ns as f64 / 1e9;
        let sent_for_s = flood.elapsed_ns as f64 / 1e9;
        let received_per_s = divide(server.window.datagrams as f64, window_s);
        let sent_per_s = divide(flood.sent as f64, sent_for_s);
        let cpu_ns = server.window.cpu_ns.map(|ns| ns as f64);
        let busy = |cpu_ns: Option<f64>, elapsed_ns: u64, cores: usize| {
            divide(cpu_ns?, elapsed_ns as f64 * cores.max(1) as f64)
        };
        let server_cpu = busy(cpu_ns, server.window.elapsed_ns, at.server_cores);
        let usable_cores = at.server_cores.min(server.threads_used as usize);
        let server_cpu_of_threads = busy(cpu_ns, server.window.elapsed_ns, usable_cores);
        let generator_cpu =
            busy(flood.cpu_ns.map(|ns| ns as f64), flood.elapsed_ns, at.generator_cores);
        let answers = flood.answers.as_ref().filter(|_| at.answered);
        let replies = answers.map(|answers| Replies::of(server, flood.sent, answers));
        let counted = |name: &str| server.counters.get(name).copied();
        let handled = counted("datagrams").unwrap_or(server.audit.received);
        // Where answers are what is wanted, a request that was not answered cost the others something.
        let per_answer = replies
            .as_ref()
            .and_then(|replies| divide(server.audit.received as f64, replies.answered as f64));
        let factor = per_answer.unwrap_or(1.0);
        let per_1000 = |count: Option<u64>| divide(count? as f64 * 1000.0 * factor, handled as f64);
        let generator_waiting = answers.and_then(|answers| {
            divide(
                answers.waiting_ns as f64,
                flood.elapsed_ns as f64 * flood.generators.max(1) as f64,
            )
        });
        let ledger = ledger_of(server, flood);
        let pace_kept = flood
            .windows
            .zip(flood.windows_within)
            .and_then(|(all, within)| divide(within as f64, all as f64));
        let verdict = judge(&Evidence {
            paced: at.paced,
            burst: at.burst,
            offered: flood.offered,
            refused: flood.refused,
            late_skipped: flood.late_skipped,
            pace_kept,
            sent: flood.sent,
            received: server.audit.received,
            dropped_cpu_queue: server.system.dropped_cpu_queue,
            place_unknown: ledger.lost_place_unknown().is_some_and(|lost| lost > 0),
            server_cpu,
            server_cpu_of_threads,
            generator_cpu,
            of_calibrated_maximum: sent_per_s.zip(at.calibrated_per_s).map(|(s, c)| s / c),
            load_of_others: at.when.load_of_others,
            answers: replies.as_ref().map(|replies| OfAnswers {
                share: replies.share().unwrap_or(0.0),
                generator_waiting,
                requests_lost: replies.requests_lost,
                missing: replies.missing,
                dropped_at_generator: replies.dropped_socket.unwrap_or(0),
            }),
        });
        // The clocks of two hosts have nothing in common but what was found when they were compared.
        let over_network = flood.together.as_ref().filter(|together| together.over_network);
        let one_way = over_network.map(|together| together.one_way.clone().unwrap_or_default());
        let audited = match &one_way {
            None => server.audit.latency_ns,
            Some(one_way) => one_way.latency_ns,
        };
        let (latency_ns, latency_histogram) = match (answers, &one_way) {
            (Some(answers), _) => (answers.round_trip_ns, answers.round_trip_histogram.clone()),
            (None, None) => (audited, server.audit.latency_histogram.clone()),
            (None, Some(one_way)) => (audited, one_way.histogram.clone()),
        };
        let one_way = one_way.unwrap_or_default();
        Self {
            when: at.when,
            calibration_alike: at.calibration_alike,
            received_per_s,
            offered_per_s: divide(flood.offered as f64, sent_for_s),
            sent_per_s,
            answers_per_s: answers.map(|answers| answers.answers_per_s),
            cpu_ns_per_datagram: cpu_ns
                .and_then(|ns| divide(ns * factor, server.window.handled as f64)),
            threads_cpu_ns_per_datagram: server
                .window
                .threads_cpu_ns
                .and_then(|ns| divide(ns as f64 * factor, server.window.handled as f64)),
            server_unknown: server.system.unknown.clone(),
            server_switches_unknown: server.system.switches_unknown.clone(),
            server_cpu,
            generator_cpu,
            generator_waiting,
            latency_ns,
            latency_uncertainty_ns: one_way.uncertainty_ns,
            latency_withheld: one_way.withheld,
            clocks: one_way.clocks,
            latency_histogram,
            batches: server.batches,
            kernel_entries_per_1000: per_1000(counted("kernel_entries")),
            waits_per_1000: per_1000(counted("waits")),
            completion_overflows: counted("overflows"),
            no_buffer: counted("no_buffer"),
            truncated: counted("truncated"),
            context_switches_per_1000: per_1000(server.system.context_switches),
            interrupts_per_1000: per_1000(server.system.interrupts),
            resident_bytes: server.system.resident_bytes,
            kernel_bytes: server.system.kernel_bytes,
            threads_used: server.threads_used,
            threads_started: server.threads_started,
            pace_kept,
            late_skipped: flood.late_skipped,
            ledger,
            replies,
            wrong_answers: answers.and_then(wrong_answers),
            audit: Audit { latency_histogram: vec![], latency_ns: audited, ..server.audit.clone() },
            slices_missing: server.slices_missing,
            end_signalled: server.end_signalled,
            cut_short: server.cut_short.clone(),
            belief: server.peer.map(|peer| {
                let said = Said {
                    received: server.audit.received,
                    sent: flood.sent,
                    end_signalled: server.end_signalled,
                    answered: answers.map(|answers| answers.answered),
                };
                belief::of(&peer, said)
            }),
            burst_sent_in_ns: at.burst.then_some(flood.elapsed_ns),
            verdict,
            performance: server.performance.clone(),
            settings: server.settings.clone(),
            engine: flood.engine.clone(),
            start_skew_ns: flood.together.as_ref().map(|together| together.skew_ns),
            start_skew_uncertainty_ns: flood
                .together
                .as_ref()
                .map(|together| together.skew_uncertainty_ns),
        }
    }

    /// A figure that the server obtained, by its name among the settings.
    fn obtained(&self, name: &str) -> Option<f64> {
        self.settings.get(name)?.parse().ok()
    }

    /// What is wrong with the datagrams that arrived, if anything.
    pub fn data_error(&self) -> Option<String> {
        let audit = &self.audit;
        let found = listed(&[
            (audit.corrupt, "damaged"),
            (audit.wrong_size, "of a wrong size"),
            (audit.duplicates, "arrived twice"),
        ]);
        let of_requests = found.map(|found| format!("{found} of {} datagrams", audit.received));
        of_requests.or_else(|| self.wrong_answers.clone())
    }

    /// Percent of the datagrams sent that were received; where answers are expected, that were answered.
    pub fn delivered_percent(&self) -> Option<f64> {
        match &self.replies {
            Some(replies) => replies.share().map(|share| share * 100.0),
            None => self.ledger.received_percent(),
        }
    }

    /// Why the counts do not add up, there or back, if so.
    fn unbalanced(&self) -> Option<String> {
        match self.ledger.balance() {
            Balance::Unbalanced(sentence) => Some(sentence),
            Balance::Balanced => self.replies.as_ref()?.unbalanced(),
        }
    }

    /// Why what a peer says of itself is not believed, if it is contradicted.
    pub fn disproved(&self) -> Option<String> {
        match &self.belief {
            Some(Belief::Disproved(reason)) => Some(reason.clone()),
            _ => None,
        }
    }

    /// Why what a peer says of itself cannot be checked, if so.
    pub fn claimed(&self) -> Option<String> {
        match &self.belief {
            Some(Belief::Claimed(reason)) => Some(reason.clone()),
            _ => None,
        }
    }

    /// Why nothing may be concluded from the run, if so: what its peer says is contradicted, or its data, its
    /// memory or its ledger is wrong.
    pub fn invalid(&self) -> Option<String> {
        if let Some(reason) = self.wrong() {
            return Some(reason);
        }
        if self.slices_missing > 0 {
            return Some(format!(
                "slices that did not come back from the kernel: {}",
                self.slices_missing
            ));
        }
        if let Some(reason) = &self.cut_short {
            return Some(format!("a run was cut short: {reason}"));
        }
        let sentence = self.unbalanced()?;
        Some(format!("the ledger of a run does not balance: {sentence}"))
    }
}

impl Measured for Sample {
    measured!();

    fn invalid(&self) -> Option<String> {
        Self::invalid(self)
    }

    fn wrong(&self) -> Option<String> {
        self.disproved().or_else(|| self.data_error())
    }

    fn disturbance(&self) -> Option<Disturbance> {
        if self.wrong().is_some() || self.slices_missing > 0 || self.cut_short.is_some() {
            return None;
        }
        if self.changed_machine() {
            return Some(Disturbance::MachineChanged);
        }
        if self.unbalanced().is_some() {
            return Some(Disturbance::Unbalanced);
        }
        // Nothing arrived while it was measured, and all that was sent did: the generator had no core then.
        let is_zero = |rate| rate == 0.0;
        if self.ledger.received >= self.ledger.sent {
            let is_empty = self.received_per_s.is_none_or(is_zero);
            return is_empty.then_some(Disturbance::PaceNotKept);
        }
        // The server had none, or it is at fault itself.
        self.received_per_s.is_some_and(is_zero).then_some(Disturbance::NothingTaken)
    }
}

/// Where every datagram of a run went, by what both sides and the system counted.
fn ledger_of(server: &ServerReport, flood: &FloodReport) -> Ledger {
    let ledger = Ledger {
        offered: flood.offered,
        sent: flood.sent,
        refused: flood.refused,
        received: server.audit.received,
        dropped_device: server.system.dropped_device,
        dropped_cpu_queue: server.system.dropped_cpu_queue,
        dropped_socket: server.system.dropped_socket,
        dropped_socket_source: server.system.dropped_socket_source.clone(),
        dropped_sender: None,
        lost_network: None,
        strangers: server.audit.strangers,
    };
    let ledger = ledger.with_drops_of_the_machine();
    let offload = server.settings.get("receive-offload").is_some_and(|on| on == "true");
    let ledger = if offload { ledger.with_drops_of_several() } else { ledger };
    match &flood.together {
        Some(together) if together.over_network => {
            ledger.over_network(together.send_dropped, server.system.delivered)
        }
        _ => ledger,
    }
}

/// What was wrong with the answers, if anything was: all that came must be what was sent, once.
fn wrong_answers(answers: &Answers) -> Option<String> {
    let found = listed(&[
        (answers.corrupt, "damaged"),
        (answers.wrong_size, "of a wrong size"),
        (answers.duplicates, "given twice"),
        (answers.forged, "to what was not sent on their flow"),
        (answers.strangers, "of no run"),
    ]);
    found.map(|found| format!("of the answers, {found}"))
}

/// The counts that are not 0, each with what it counts; `None` if all are.
fn listed(counts: &[(u64, &str)]) -> Option<String> {
    let found = counts.iter().filter(|(count, _)| *count > 0);
    let found: Vec<String> = found.map(|(count, what)| format!("{count} {what}")).collect();
    (!found.is_empty()).then(|| found.join(", "))
}

/// The quotient, where there is one.
pub(crate) fn divide(a: f64, b: f64) -> Option<f64> {
    (b > 0.0).then(|| a / b)
}

/// A metric of a run of UDP.
pub type Metric = cell::Metric<Sample>;
/// A row of UDP under a load.
pub type Cell = cell::Cell<Sample>;

metrics! {
    Sample;
    /// Datagrams per second that reached the handler: the median over the rounds, after the warm-up; ≥ the server
    /// was not the limit.
    RECEIVED, "received_per_s", "datagrams/s", "received/s\n", Higher, si, |s| s.received_per_s;
    /// Answers per second that the generator took and verified byte for byte: the median over the rounds, after the
    /// warm-up; ≥ the server was not the limit.
    ANSWERS, "answers_per_s", "answers/s", "answers/s\n", Higher, si, |s| s.answers_per_s;
    /// Requests that were not answered, as percent of those sent.
    MISSING, "answers_missing_percent", "%", "not\nanswered", Lower, percent_of_100,
        |s| Some(100.0 - s.replies.as_ref()?.share()? * 100.0);
    /// Share of its time that the generator had nothing to send and nothing to take.
    GENERATOR_WAITING, "generator_waiting_percent", "%", "generator\nwaits", Higher, percent_of,
        |s| s.generator_waiting.map(|share| share * 100.0);
    /// Datagrams per second offered.
    OFFERED, "offered_per_s", "datagrams/s", "offered/s\n", Higher, si, |s| s.offered_per_s;
    /// Datagrams per second sent.
    SENT, "sent_per_s", "datagrams/s", "sent/s\n", Higher, si, |s| s.sent_per_s;
    /// Received as percent of sent, over the whole run.
    PERCENT_OF_SENT, "received_percent_of_sent", "%", "of\nsent", Higher, percent_of_100,
        |s| s.ledger.received_percent();
    /// CPU time of the server's process per datagram.
    CPU, "cpu_ns_per_datagram", "ns", "CPU\nns/dgram", Lower, whole, |s| s.cpu_ns_per_datagram;
    /// CPU time of the threads that receive and handle datagrams, per datagram.
    THREADS_CPU, "threads_cpu_ns_per_datagram", "ns", "thread\nns/dgram", Lower, whole,
        |s| s.threads_cpu_ns_per_datagram;
    /// Share of all the server's cores that it used.
    SERVER_CPU, "server_cpu_utilization_percent", "%", "CPU\nof cores", Lower, percent_of,
        |s| s.server_cpu.map(|c| c * 100.0);
    /// Share of its cores that the generator used.
    GENERATOR_CPU, "generator_cpu_utilization_percent", "%", "generator\nof cores", Lower, percent_of,
        |s| s.generator_cpu.map(|c| c * 100.0);
    /// Datagrams of a burst that reached the handler: the median over the rounds.
    TAKEN, "taken_datagrams", "datagrams", "taken\n", Higher, whole,
        |s| s.burst_sent_in_ns.map(|_| s.ledger.received as f64);
    /// How long the generator took to send a burst.
    SENT_IN, "burst_sent_in_ns", "ns", "sent in\nµs", Lower, microseconds,
        |s| s.burst_sent_in_ns.map(|ns| ns as f64);
    /// Memory that the server may receive into, registered before anything arrived.
    REGISTERED, "registered_bytes", "bytes", "registered\n", Lower, bytes, |s| s.obtained("memory-bytes");
    /// The part of it that was locked: allocated before anything arrived, and never taken away.
    LOCKED, "locked_bytes", "bytes", "locked\n", Higher, bytes, |s| s.obtained("locked-bytes");
    /// Receive buffer of each socket as the system reports it; none on frames.
    SOCKET_BUFFER, "receive_buffer_bytes", "bytes", "socket's\nbuffer", Higher, bytes,
        |s| s.obtained(RECEIVE_BUFFER);
    /// Median one-way latency, evenly paced, from the time at which a datagram was due, however late the generator
    /// sent it, to the handler: the median over the rounds of each run's own.
    LATENCY_P50, "latency_ns.p50", "ns", "p50\nµs", Lower, microseconds,
        |s| Some(s.latency_ns?.p50 as f64);
    /// 90th percentile of the same.
    LATENCY_P90, "latency_ns.p90", "ns", "p90\nµs", Lower, microseconds,
        |s| Some(s.latency_ns?.p90 as f64);
    /// 99th percentile of the same.
    LATENCY_P99, "latency_ns.p99", "ns", "p99\nµs", Lower, microseconds,
        |s| Some(s.latency_ns?.p99 as f64);
    /// 99.9th percentile of it.
    LATENCY_P999, "latency_ns.p99_9", "ns", "p99.9\nµs", Lower, microseconds,
        |s| Some(s.latency_ns?.p999 as f64);
    /// The longest of them.
    LATENCY_MAX, "latency_ns.max", "ns", "max\nµs", Lower, microseconds,
        |s| Some(s.latency_ns?.max as f64);
    /// A tenth of the batches were at most this.
    BATCH_P10, "batch_datagrams.p10", "datagrams", "batch\np10", Higher, whole, |s| Some(s.batches.p10? as f64);
    /// Half of the batches were at most this.
    BATCH_P50, "batch_datagrams.p50", "datagrams", "batch\np50", Higher, whole, |s| Some(s.batches.p50? as f64);
    /// Nine tenths of the batches were at most this.
    BATCH_P90, "batch_datagrams.p90", "datagrams", "batch\np90", Higher, whole, |s| Some(s.batches.p90? as f64);
    /// Entries into the kernel per 1000 datagrams.
    KERNEL_ENTRIES, "kernel_entries_per_1000_datagrams", "1/1000", "entries\n/1000", Lower, per_1000,
        |s| s.kernel_entries_per_1000;
    /// Calls that sleep if nothing has arrived, per 1000 datagrams.
    WAITS, "waits_per_1000_datagrams", "1/1000", "waits\n/1000", Lower, per_1000, |s| s.waits_per_1000;
    /// Times the completion queue could not hold what had completed, in a run.
    OVERFLOWS, "completion_overflows", "1", "queue\noverflows", Lower, whole,
        |s| Some(s.completion_overflows? as f64);
    /// Times the kernel found no receive posted, in a run: what arrived waited in the socket, or was dropped there.
    NO_BUFFER, "no_buffer", "1", "no receive\nposted", Lower, whole, |s| Some(s.no_buffer? as f64);
    /// Datagrams longer than a slice, in a run.
    TRUNCATED, "truncated_datagrams", "datagrams", "truncated\n", Lower, whole, |s| Some(s.truncated? as f64);
    /// Context switches of the server per 1000 datagrams.
    CONTEXT_SWITCHES, "context_switches_per_1000_datagrams", "1/1000", "switches\n/1000", Lower, per_1000,
        |s| s.context_switches_per_1000;
    /// Interrupts of all cores per 1000 datagrams.
    INTERRUPTS, "interrupts_per_1000_datagrams", "1/1000", "interrupts\n/1000", Lower, per_1000,
        |s| s.interrupts_per_1000;
    /// Memory of the server's process.
    MEMORY, "resident_bytes", "bytes", "memory\n", Lower, bytes, |s| Some(s.resident_bytes? as f64);
    /// Memory of the kernel for sockets.
    KERNEL_MEMORY, "kernel_bytes", "bytes", "kernel\n", Lower, bytes, |s| Some(s.kernel_bytes? as f64);
    /// Threads that handled any datagram.
    THREADS_USED, "threads_used", "threads", "threads\nused", Lower, whole, |s| Some(f64::from(s.threads_used));
    /// Threads started.
    THREADS_STARTED, "threads_started", "threads", "threads\nall", Lower, whole,
        |s| Some(f64::from(s.threads_started));
    /// Share of the generator's windows of 10 ms in which it kept its pace.
    PACE, "pace_kept_percent", "%", "pace\nkept", Higher, percent_of_100, |s| s.pace_kept.map(|share| share * 100.0);
    /// Time of a cache line from core to core.
    CORE_TO_CORE, "core_to_core_ns", "ns", "core to\ncore ns", Lower, whole, |s| s.when.core_to_core_ns;
    /// Share of all cores that other programs used.
    OTHERS, "load_of_others_percent", "%", "others\nof cores", Lower, percent_of,
        |s| s.when.load_of_others.map(|share| share * 100.0);
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::experiment::verdict::Limit;
    use crate::wire::{OneWay, SystemReport, Together, Window};

    pub(crate) fn server() -> ServerReport {
        ServerReport {
            design: "epoll".into(),
            end_signalled: true,
            threads_started: 8,
            threads_used: 2,
            window: Window {
                elapsed_ns: 500_000_000,
                datagrams: 400_000,
                handled: 400_000,
                cpu_ns: Some(490_000_000),
                threads_cpu_ns: Some(480_000_000),
            },
            counters: [
                ("datagrams", 480_000),
                ("kernel_entries", 960),
                ("waits", 48),
                ("overflows", 7),
            ]
            .map(|(name, count)| (name.to_owned(), count))
            .into(),
            audit: Audit {
                received: 480_000,
                latency_ns: Some(Latency {
                    n: 480_000,
                    p50: 5000,
                    p99: 7000,
                    ..Latency::default()
                }),
                ..Audit::default()
            },
            system: SystemReport {
                context_switches: Some(240),
                dropped_device: Some(0),
                dropped_cpu_queue: Some(0),
                dropped_socket: Some(120_000),
                resident_bytes: Some(4 << 20),
                ..SystemReport::default()
            },
            ..ServerReport::default()
        }
    }

    pub(crate) fn flood() -> FloodReport {
        FloodReport {
            offered: 600_000,
            sent: 600_000,
            elapsed_ns: 600_000_000,
            cpu_ns: Some(594_000_000),
            windows: Some(60),
            windows_within: Some(57),
            engine: Some("gso".into()),
            ..FloodReport::default()
        }
    }

    #[test]
    fn rates_come_from_the_window_and_ratios_from_the_whole_run() {
        let at = Circumstances { server_cores: 1, generator_cores: 1, ..Circumstances::default() };
        let sample = Sample::of(&at, &server(), &flood());
        assert_eq!(sample.received_per_s, Some(800_000.0));
        assert_eq!(sample.sent_per_s, Some(1_000_000.0));
        assert_eq!(sample.cpu_ns_per_datagram, Some(1225.0));
        assert_eq!(sample.threads_cpu_ns_per_datagram, Some(1200.0));
        assert_eq!(sample.server_cpu, Some(0.98));
        assert_eq!(sample.generator_cpu, Some(0.99));
        assert_eq!(sample.kernel_entries_per_1000, Some(2.0));
        assert_eq!(sample.waits_per_1000, Some(0.1));
        assert_eq!((sample.completion_overflows, sample.no_buffer), (Some(7), None));
        assert_eq!(sample.context_switches_per_1000, Some(0.5));
        assert_eq!(sample.interrupts_per_1000, None);
        assert_eq!(sample.pace_kept, Some(0.95));
        assert_eq!(sample.ledger.unexplained(), 0);
        assert_eq!(sample.verdict.limited_by, Limit::Server);
        assert_eq!(sample.data_error(), None);
        assert_eq!(sample.reading(&LATENCY_P99).unwrap().value, 7000.0);
        let changed = Sample {
            when: When {
                core_to_core_ns: Some(27.0),
                core_to_core_after_ns: Some(170.0),
                ..sample.when
            },
            ..sample
        };
        assert_eq!(changed.reading(&LATENCY_P99), None, "two machines in one run");
    }

    #[test]
    fn between_two_hosts_one_way_latency_is_what_was_found_by_compared_clocks() {
        let mut server = server();
        server.audit.latency_histogram = vec![(1000, 1)];
        let of = |over_network, one_way| {
            let together = Some(Together { over_network, one_way, ..Together::default() });
            Sample::of(&Circumstances::default(), &server, &FloodReport { together, ..flood() })
        };
        let (here, elsewhere) = (of(false, None), of(true, None));
        assert!(here.latency_ns.is_some() && !here.latency_histogram.is_empty());
        assert_eq!((elsewhere.latency_ns, elsewhere.audit.latency_ns), (None, None));
        assert!(elsewhere.latency_histogram.is_empty());
        assert_eq!(elsewhere.received_per_s, here.received_per_s);
        let found = Latency { n: 1, p50: 7000, ..Latency::default() };
        let compared = of(
            true,
            Some(OneWay {
                latency_ns: Some(found),
                histogram: vec![(7000, 1)],
                uncertainty_ns: Some(900),
                withheld: None,
                clocks: vec![GeneratorClock::default()],
            }),
        );
        assert_eq!((compared.latency_ns, compared.audit.latency_ns), (Some(found), Some(found)));
        assert_eq!(compared.latency_histogram, [(7000, 1)]);
        assert_eq!((compared.latency_uncertainty_ns, compared.clocks.len()), (Some(900), 1));
        let why = Some("the clocks are known within a day".to_owned());
        let withheld = of(true, Some(OneWay { withheld: why.clone(), ..OneWay::default() }));
        assert_eq!((withheld.latency_ns, withheld.latency_withheld), (None, why));
    }

    #[test]
    fn strangers_add_nothing_to_the_rate_and_share_the_cpu_time() {
        let mut server = server();
        server.window.handled = 490_000;
        let sample = Sample::of(&Circumstances::default(), &server, &flood());
        assert_eq!(sample.received_per_s, Some(800_000.0));
        assert_eq!(sample.cpu_ns_per_datagram, Some(1000.0));
    }

    #[test]
    fn empty_documents_make_a_sample_of_unknowns() {
        let sample = Sample::of(
            &Circumstances::default(),
            &ServerReport::default(),
            &FloodReport::default(),
        );
        let known: Vec<&str> =
            METRICS.iter().filter(|m| (m.of)(&sample).is_some()).map(|m| m.name).collect();
        assert_eq!(known, ["threads_used", "threads_started"]);
    }

    #[test]
    fn damage_is_said() {
        let mut server = server();
        server.audit.corrupt = 2;
        server.audit.duplicates = 1;
        let sample = Sample::of(&Circumstances::default(), &server, &flood());
        assert_eq!(sample.data_error().unwrap(), "2 damaged, 1 arrived twice of 480000 datagrams");
    }
}
