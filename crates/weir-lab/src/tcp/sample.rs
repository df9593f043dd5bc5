//! What one run delivered, and the metrics that are taken from it.

use std::collections::BTreeMap;

use serde::Serialize;

use super::bench::Made;
use super::plan::Load;
use super::policy::closed;
use super::wire::LoadReport;
use crate::experiment::cell::Disturbance;
use crate::experiment::cell::{Measured, Metric, When, measured, metrics};
use crate::experiment::verdict::{Limit, USED_UP, Verdict, others_had};
use crate::performance::Record;
use crate::report::number::{
    bytes, microseconds, per_message, percent_of, si, three_figures, whole,
};
use crate::stats::latency::of_histogram;
use crate::udp::sample::divide;
use crate::wire::Latency;

/// The circumstances of a run, that neither child knows.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Circumstances {
    /// When it was made, and on what machine.
    pub when: When,
    /// How many cores the server had.
    pub server_cores: usize,
    /// How many cores the client had.
    pub client_cores: usize,
    /// Whether the server polls: then it is always busy. `None` if that is not known.
    pub polls: Option<bool>,
}

/// One run's figures. Unknown ones are `None`. A message is counted when all of it has come back.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Sample {
    /// When it was made, and on what machine.
    #[serde(flatten)]
    pub when: When,
    /// Messages per second that came back.
    pub messages_per_s: Option<f64>,
    /// Bytes per second that the client sent.
    pub sent_bytes_per_s: Option<f64>,
    /// Bytes per second that came back to it.
    pub received_bytes_per_s: Option<f64>,
    /// CPU time of the server's process per message in nanoseconds.
    pub cpu_ns_per_message: Option<f64>,
    /// Why the CPU time of the server is not known, where that has a reason of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_unknown: Option<String>,
    /// The same of its context switches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_switches_unknown: Option<String>,
    /// The same for each byte of a message.
    pub cpu_ns_per_byte: Option<f64>,
    /// Share of its cores that the server used.
    pub server_cpu: Option<f64>,
    /// Share of its cores that the client used.
    pub client_cpu: Option<f64>,
    /// Round trips.
    pub latency_ns: Option<Latency>,
    /// Their histogram, to be merged with those of other runs.
    #[serde(skip)]
    pub latency_histogram: Vec<(u64, u64)>,
    /// Entries into the kernel of the server per message, where it counts them.
    pub kernel_entries_per_message: Option<f64>,
    /// Waits of the server per message, where it counts them.
    pub waits_per_message: Option<f64>,
    /// Times that the completion queue could not hold what had completed, where the server counts them.
    pub completion_overflows: Option<u64>,
    /// Times that the kernel found no receive posted: what arrived waited in the socket.
    pub no_buffer: Option<u64>,
    /// Times that the system's queue of readiness was full, so that every connection was checked.
    pub readiness_overflows: Option<u64>,
    /// Context switches of the server's process per message.
    pub context_switches_per_message: Option<f64>,
    /// The most threads that the server had, as far as was seen; unknown where it was not looked at with all its
    /// connections.
    pub threads: Option<u64>,
    /// Memory of the server's process then, in bytes.
    pub resident_bytes: Option<u64>,
    /// How much more the kernel held then than before the server started, in bytes, for both ends.
    pub kernel_bytes: Option<i64>,
    /// The parts of that.
    pub kernel: BTreeMap<String, Option<i64>>,
    /// Connections asked for.
    pub asked: u64,
    /// Those that were begun.
    pub attempted: u64,
    /// Those that were made.
    pub connected: u64,
    /// Of those, the ones that ended otherwise than in order.
    pub lost: u64,
    /// Of those, the ones that the server had accepted when measuring ended, if it tells.
    pub accepted: Option<u64>,
    /// Connections made per second.
    pub connects_per_s: Option<f64>,
    /// Messages that were sent and did not come back.
    pub unanswered: u64,
    /// What most connections failed for, if any did.
    pub cause: Option<String>,
    /// Memory of the client's process, in bytes, where it was to look.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_resident_bytes: Option<u64>,
    /// What the kernel had in the buffers of the server's sockets, in bytes, likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_socket_bytes: Option<u64>,
    /// The same of the clients' sockets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_socket_bytes: Option<u64>,
    /// What became of the connections beside, in a mix that has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub others: Option<OfOthers>,
    /// Why nothing may be concluded from the run, if so.
    pub invalid: Option<String>,
    /// What limited the run.
    pub verdict: Verdict,
    /// Its performance log: what threads, cores and the system did in each interval of it; empty without one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub performance: Vec<Record>,
    /// The server's settings as obtained.
    pub settings: BTreeMap<String, String>,
}

/// What became of the connections beside those whose figures count, by their own client's counts.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OfOthers {
    /// Those that were asked for.
    pub asked: u64,
    /// Those that were made.
    pub connected: u64,
    /// Of those, the ones that the server refused with a reason.
    pub refused: u64,
    /// Of those, the ones that it closed otherwise.
    pub closed: u64,
    /// The reasons that it gave, and how often.
    pub reasons: BTreeMap<String, u64>,
    /// Bytes per second that came back to them.
    pub received_bytes_per_s: Option<f64>,
    /// Memory of their client's process, in bytes, at its most.
    pub resident_bytes: Option<u64>,
}

impl OfOthers {
    fn of(asked: u64, report: &LoadReport) -> Self {
        let counts = &report.counts;
        Self {
            asked,
            connected: counts.connected,
            refused: counts.refused_by_server,
            closed: closed(report),
            reasons: report.refusals.clone(),
            received_bytes_per_s: divide(
                counts.bytes_received as f64 * 1e9,
                report.elapsed_ns as f64,
            ),
            resident_bytes: report.peak_resident_bytes,
        }
    }

    /// Those that the server had to the end.
    pub fn stood(&self) -> u64 {
        self.connected.saturating_sub(self.refused + self.closed)
    }
}

impl Sample {
    /// Puts together what both children said.
    pub fn of(at: &Circumstances, asked: &Load, made: &Made) -> Self {
        let Made { server, load, .. } = made;
        let mix = asked.mix.as_ref();
        let measured = load.window.as_ref();
        let per_s = |count: u64, elapsed_ns: u64| divide(count as f64 * 1e9, elapsed_ns as f64);
        let rate = |of: fn(&weir_load::tcp::Window) -> u64| {
            measured.and_then(|window| per_s(of(window), window.elapsed_ns))
        };
        let messages_per_s = rate(|window| window.messages);
        // The server's marks lie a little beside the client's; so its figures are those of a second of
        // its own time, and the messages those of a second of the client's.
        let of_server = server.window.as_ref();
        // Where each connection has a number of messages, both windows have all of them.
        let has_all = mix.is_some_and(|mix| mix.messages_each.is_some());
        let per_message = |of: &dyn Fn(&super::wire::Window) -> Option<u64>| {
            let window = of_server?;
            if has_all {
                return divide(of(window)? as f64, measured?.messages as f64);
            }
            divide(per_s(of(window)?, window.elapsed_ns)?, messages_per_s?)
        };
        let cpu_ns_per_message = per_message(&|window| window.cpu_ns);
        let call = |name: &'static str| {
            per_message(&move |window: &super::wire::Window| window.calls.get(name).copied())
        };
        let busy = |cpu_ns: Option<u64>, elapsed_ns: u64, cores: usize| {
            divide(cpu_ns? as f64, elapsed_ns as f64 * cores.max(1) as f64)
        };
        let server_cpu = of_server.and_then(|w| busy(w.cpu_ns, w.elapsed_ns, at.server_cores));
        let client_cpu = measured.and_then(|w| busy(w.cpu_ns, w.elapsed_ns, at.client_cores));
        let standing = server.standing.as_ref();
        Self {
            when: When { load_of_others: made.load_of_others, ..at.when },
            messages_per_s,
            sent_bytes_per_s: rate(|window| window.bytes_sent),
            received_bytes_per_s: rate(|window| window.bytes_received),
            cpu_ns_per_message,
            server_unknown: server.unknown.clone(),
            server_switches_unknown: server.switches_unknown.clone(),
            cpu_ns_per_byte: cpu_ns_per_message
                .and_then(|ns| divide(ns, f64::from(asked.message_bytes))),
            server_cpu,
            client_cpu,
            latency_ns: of_histogram(&load.latency_histogram),
            latency_histogram: load.latency_histogram.clone(),
            kernel_entries_per_message: call("kernel_entries"),
            waits_per_message: call("waits"),
            completion_overflows: of_server.and_then(|w| w.calls.get("overflows").copied()),
            no_buffer: of_server.and_then(|w| w.calls.get("no_buffer").copied()),
            readiness_overflows: of_server.and_then(|w| w.counters.get("queue_overflows").copied()),
            context_switches_per_message: per_message(&|window| window.context_switches),
            threads: standing.and_then(|standing| server.most_threads.max(standing.threads)),
            resident_bytes: standing.and_then(|standing| standing.resident_bytes),
            kernel_bytes: standing.and_then(|standing| standing.kernel_bytes),
            kernel: standing.map(|standing| standing.kernel.clone()).unwrap_or_default(),
            asked: asked.connections.into(),
            attempted: load.counts.attempted,
            connected: load.counts.connected,
            lost: load.lost(),
            accepted: of_server.and_then(|window| window.accepted),
            connects_per_s: load.connects_per_s,
            unanswered: load.messages_unanswered,
            cause: load.worst_cause(),
            client_resident_bytes: load.holds.and_then(|holds| holds.resident_bytes),
            server_socket_bytes: standing.and_then(|standing| standing.socket_bytes),
            client_socket_bytes: load.holds.and_then(|holds| holds.socket_bytes),
            others: made
                .others
                .as_ref()
                .map(|report| OfOthers::of(mix.map_or(0, |mix| mix.others()).into(), report)),
            invalid: made.invalid.clone(),
            verdict: verdict(at, asked, server_cpu, client_cpu, made.load_of_others),
            performance: server.performance.clone(),
            settings: server.settings.clone(),
        }
    }

    /// Connections that were made and served until they ended in order.
    pub fn served(&self) -> u64 {
        self.connected.saturating_sub(self.lost)
    }

    /// What became of the connections, where not all were served to the end: one that the server
    /// refused when it stood, or that broke, is made for the system and served by nobody.
    pub fn tally(&self) -> String {
        let served = self.served();
        if served == self.asked {
            return format!("{served} of {}", self.asked);
        }
        let attempted = match self.attempted < self.asked {
            true => format!("{} of {} attempted", self.attempted, self.asked),
            false => format!("{} attempted", self.attempted),
        };
        let not_made = self.attempted.saturating_sub(self.connected);
        let rest = [(not_made, "not made"), (self.lost, "refused or broken")];
        let rest: String = rest
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!(", {count} {what}"))
            .collect();
        format!("{attempted}, {served} served to the end{rest}")
    }

    /// What was not as it was asked for, so that its figures are those of another load: connections that
    /// could not be made, or were lost, and messages that were not answered.
    pub fn incomplete(&self) -> Option<String> {
        let cause = || self.cause.as_ref().map(|cause| format!(": {cause}")).unwrap_or_default();
        if self.connected < self.asked {
            return Some(format!(
                "{} of {} connections were made{}",
                self.connected,
                self.asked,
                cause()
            ));
        }
        if self.lost > 0 {
            return Some(format!(
                "{} of {} connections were refused or broke{}",
                self.lost,
                self.connected,
                cause()
            ));
        }
        if let Some(others) = self.others.as_ref().filter(|of| of.connected < of.asked) {
            return Some(format!(
                "{} of {} other connections were made",
                others.connected, others.asked
            ));
        }
        if let Some(accepted) = self.accepted.filter(|accepted| *accepted < self.connected) {
            return Some(format!(
                "{accepted} of {} connections were accepted, the others were still waiting",
                self.connected
            ));
        }
        (self.unanswered > 0).then(|| format!("messages never answered: {}", self.unanswered))
    }
}

/// What limited a run: whoever's cores were used up, or other programs that had them.
fn verdict(
    at: &Circumstances,
    asked: &Load,
    server_cpu: Option<f64>,
    client_cpu: Option<f64>,
    load_of_others: Option<f64>,
) -> Verdict {
    let used_up = |share: Option<f64>| share.filter(|share| *share >= USED_UP);
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    let of = |limited_by, lower_bound, reason| Verdict { limited_by, lower_bound, reason };
    if asked.has_rate() {
        return of(Limit::Load, true, "the load had a rate".into());
    }
    // One that polls is always busy, which says nothing.
    let server = used_up(server_cpu).filter(|_| at.polls != Some(true));
    match (server, used_up(client_cpu)) {
        (Some(server), Some(client)) => {
            let (server, client) = (percent(server), percent(client));
            let reason = format!("server's cores {server} busy, client's {client}");
            of(Limit::Both, true, reason)
        }
        (Some(server), None) => {
            of(Limit::Server, false, format!("server's cores {} busy", percent(server)))
        }
        (None, Some(client)) => {
            of(Limit::Generator, true, format!("client's cores {} busy", percent(client)))
        }
        (None, None) if server_cpu.is_none() || client_cpu.is_none() => {
            of(Limit::Unknown, true, "CPU time is not known".into())
        }
        (None, None) => match others_had(load_of_others) {
            Some(others) => of(Limit::Others, true, others),
            None => of(
                Limit::Unknown,
                false,
                "neither side's cores were busy: each waited for the other".into(),
            ),
        },
    }
}

/// A verdict in one word for a table.
pub fn word(limit: Limit) -> &'static str {
    match limit {
        Limit::Generator => "client",
        Limit::Unknown => "neither",
        other => other.word(),
    }
}

impl Measured for Sample {
    measured!();

    fn invalid(&self) -> Option<String> {
        self.invalid.clone()
    }

    fn disturbance(&self) -> Option<Disturbance> {
        if self.invalid.is_some() {
            return None;
        }
        if self.changed_machine() {
            return Some(Disturbance::MachineChanged);
        }
        if self.incomplete().is_some() {
            return Some(Disturbance::Incomplete);
        }
        // It had no core in the time that was to be measured.
        self.messages_per_s.is_none().then_some(Disturbance::PaceNotKept)
    }
}

/// Fewest connections of which the kernel's memory is told from what it holds besides.
pub const FEWEST_FOR_KERNEL_MEMORY: u64 = 500;

/// A metric of a run of TCP.
pub type TcpMetric = Metric<Sample>;

metrics! {
    Sample;
    /// Messages per second that came back: the median over the rounds, after the warm-up; ≥ the client was (also)
    /// the limit.
    MESSAGES, "messages_per_s", "messages/s", "messages/s\n", Higher, si, |s| s.messages_per_s;
    /// Bytes per second sent.
    SENT, "sent_bytes_per_s", "bytes/s", "bytes/s\nsent", Higher, si, |s| s.sent_bytes_per_s;
    /// Bytes per second that came back.
    RECEIVED, "received_bytes_per_s", "bytes/s", "bytes/s\nreceived", Higher, si, |s| s.received_bytes_per_s;
    /// CPU time of the server's process per message, system calls and its share of the network's work included.
    CPU, "cpu_ns_per_message", "ns", "CPU\nns/message", Lower, whole, |s| s.cpu_ns_per_message;
    /// The same per byte of a message.
    CPU_PER_BYTE, "cpu_ns_per_byte", "ns", "CPU\nns/byte", Lower, three_figures, |s| s.cpu_ns_per_byte;
    /// Share of its cores that the server used.
    SERVER_CPU, "server_cpu_utilization_percent", "%", "CPU\nof cores", Lower, percent_of,
        |s| s.server_cpu.map(|c| c * 100.0);
    /// Share of its cores that the client used.
    CLIENT_CPU, "client_cpu_utilization_percent", "%", "client\nof cores", Lower, percent_of,
        |s| s.client_cpu.map(|c| c * 100.0);
    /// From when a message was to be sent to its last byte: the median over the rounds of each run's own percentile.
    LATENCY_P50, "round_trip_ns.p50", "ns", "round trip\np50 µs", Lower, microseconds,
        |s| Some(s.latency_ns?.p50 as f64);
    /// 90th percentile of the round trip.
    LATENCY_P90, "round_trip_ns.p90", "ns", "round trip\np90 µs", Lower, microseconds,
        |s| Some(s.latency_ns?.p90 as f64);
    /// 99th percentile of the round trip.
    LATENCY_P99, "round_trip_ns.p99", "ns", "round trip\np99 µs", Lower, microseconds,
        |s| Some(s.latency_ns?.p99 as f64);
    /// 99.9th percentile of the round trip.
    LATENCY_P999, "round_trip_ns.p99_9", "ns", "round trip\np99.9 µs", Lower, microseconds,
        |s| Some(s.latency_ns?.p999 as f64);
    /// Longest round trip.
    LATENCY_MAX, "round_trip_ns.max", "ns", "round trip\nmax µs", Lower, microseconds,
        |s| Some(s.latency_ns?.max as f64);
    /// Entries into the kernel per message.
    KERNEL_ENTRIES, "kernel_entries_per_message", "1", "calls\n/message", Lower, per_message,
        |s| s.kernel_entries_per_message;
    /// Waits among them.
    WAITS, "waits_per_message", "1", "waits\n/message", Lower, per_message, |s| s.waits_per_message;
    /// Times the completion queue could not hold what had completed, while it was measured.
    OVERFLOWS, "completion_overflows", "1", "queue\noverflows", Lower, whole,
        |s| Some(s.completion_overflows? as f64);
    /// Times the kernel found no receive posted, while it was measured: what arrived waited in the socket.
    NO_BUFFER, "no_buffer", "1", "no receive\nposted", Lower, whole, |s| Some(s.no_buffer? as f64);
    /// Times the system's queue of readiness was full, so that every connection was checked, while it was measured.
    READINESS_OVERFLOWS, "readiness_overflows", "1", "readiness\noverflows", Lower, whole,
        |s| Some(s.readiness_overflows? as f64);
    /// Context switches of the server per message.
    CONTEXT_SWITCHES, "context_switches_per_message", "1", "switches\n/message", Lower, per_message,
        |s| s.context_switches_per_message;
    /// The most threads that the server had.
    THREADS, "threads", "threads", "threads\n", Lower, whole, |s| Some(s.threads? as f64);
    /// Memory of the server when all connections were open.
    MEMORY, "resident_bytes", "bytes", "memory\n", Lower, bytes, |s| Some(s.resident_bytes? as f64);
    /// Memory of the client's process whose figures count, when measuring ended.
    CLIENT_MEMORY, "client_resident_bytes", "bytes", "client's\nmemory", Lower, bytes,
        |s| Some(s.client_resident_bytes? as f64);
    /// What the kernel then had in the buffers of all of the server's sockets, read or not yet acknowledged, with what
    /// it had set aside for more.
    SERVER_BUFFERS, "server_socket_bytes", "bytes", "server's\nbuffers", Lower, bytes,
        |s| Some(s.server_socket_bytes? as f64);
    /// The same of all the clients' sockets.
    CLIENT_BUFFERS, "client_socket_bytes", "bytes", "clients'\nbuffers", Lower, bytes,
        |s| Some(s.client_socket_bytes? as f64);
    /// Connections other than those whose figures count that the server refused with a reason.
    OTHERS_REFUSED, "others_refused", "connections", "others\nrefused", Lower, whole,
        |s| Some(s.others.as_ref()?.refused as f64);
    /// Of those other connections, the ones that it closed in another way.
    OTHERS_CLOSED, "others_closed", "connections", "others\nclosed", Lower, whole,
        |s| Some(s.others.as_ref()?.closed as f64);
    /// How much more the kernel held than before, for both ends, including objects and stacks of other programs that
    /// began meanwhile; not shown for fewer than 500 connections.
    KERNEL_MEMORY, "kernel_bytes", "bytes", "kernel\n", Lower, bytes, |s| Some(s.kernel_bytes? as f64);
    /// Connections begun.
    ATTEMPTED, "attempted", "connections", "attempted\n", Higher, whole, |s| Some(s.attempted as f64);
    /// Connections made.
    CONNECTED, "connected", "connections", "connected\n", Higher, whole, |s| Some(s.connected as f64);
    /// Of the requested connections, those served to their end, in the run that served the fewest; refused or
    /// broken ones do not count. Where messages follow as fast as they come back, a connection counts as made
    /// when its first message has come back, and all then begin together.
    SERVED, "served", "connections", "served/\nrequested", Higher, whole, |s| Some(s.served() as f64);
    /// Connections made per second.
    CONNECTS, "connects_per_s", "connections/s", "connects/s\n", Higher, si, |s| s.connects_per_s;
    /// Time of a cache line from core to core.
    CORE_TO_CORE, "core_to_core_ns", "ns", "core to\ncore ns", Lower, whole, |s| s.when.core_to_core_ns;
    /// Share of all cores that other programs used.
    OTHERS, "load_of_others_percent", "%", "others\nof cores", Lower, percent_of,
        |s| s.when.load_of_others.map(|share| share * 100.0);
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::tcp::plan::Pattern;
    use crate::tcp::wire::{ServerReport, Standing, Window};
    use weir_load::tcp::{Counts, Window as LoadWindow};

    pub(crate) fn load() -> Load {
        Load::new(Pattern::PingPong, 64, 64, None, None)
    }

    /// A run of half a second: 100,000 messages/s, 5 µs of the server's CPU for each.
    pub(crate) fn made(messages_per_s: f64, cpu_ns_per_message: f64) -> Made {
        let messages = (messages_per_s / 2.0) as u64;
        let window = LoadWindow {
            elapsed_ns: 500_000_000,
            messages,
            bytes_sent: messages * 64,
            bytes_received: messages * 64,
            messages_per_s,
            bits_per_second_sent: 0.0,
            bits_per_second_received: 0.0,
            cpu_ns: Some(450_000_000),
            cpu_ns_per_message: None,
        };
        // The server's marks are a tenth farther apart.
        let of_server = (messages_per_s * 0.55) as u64;
        Made {
            server: ServerReport {
                design: "epoll".into(),
                window: Some(Window {
                    elapsed_ns: 550_000_000,
                    cpu_ns: Some((of_server as f64 * cpu_ns_per_message) as u64),
                    context_switches: Some(of_server / 10),
                    calls: [("kernel_entries".to_owned(), of_server * 2)].into(),
                    ..Window::default()
                }),
                standing: Some(Standing {
                    open: Some(64),
                    threads: Some(1),
                    resident_bytes: Some(5 << 20),
                    kernel_bytes: Some(64 * 7400),
                    ..Standing::default()
                }),
                ..ServerReport::default()
            },
            load: LoadReport {
                counts: Counts {
                    attempted: 64,
                    connected: 64,
                    finished: 64,
                    messages_sent: messages,
                    messages_over: messages,
                    ..Counts::default()
                },
                not_attempted: 0,
                processes: 1,
                engine: None,
                connects_per_s: Some(20_000.0),
                messages_unanswered: 0,
                window: Some(window),
                latency_histogram: vec![(600_064, messages - 1), (900_000, 1)],
                errors: BTreeMap::new(),
                refusals: BTreeMap::new(),
                wrong_bytes: None,
                process_cpu_ns: Some(480_000_000),
                ..LoadReport::none()
            },
            others: None,
            invalid: None,
            load_of_others: Some(0.01),
        }
    }

    pub(crate) fn at(block: u32) -> Circumstances {
        let when = When::in_block(block);
        Circumstances { when, server_cores: 1, client_cores: 1, ..Circumstances::default() }
    }

    #[test]
    fn figures_of_the_server_are_those_of_its_own_window() {
        let sample = Sample::of(&at(0), &load(), &made(100_000.0, 5000.0));
        assert_eq!(sample.messages_per_s, Some(100_000.0));
        assert_eq!(sample.received_bytes_per_s, Some(6_400_000.0));
        let near = |value: Option<f64>, wanted: f64| {
            assert!(
                value.is_some_and(|v| (v - wanted).abs() < 1e-6 * wanted),
                "{value:?} {wanted}"
            );
        };
        near(sample.cpu_ns_per_message, 5000.0);
        near(sample.cpu_ns_per_byte, 5000.0 / 64.0);
        near(sample.kernel_entries_per_message, 2.0);
        near(sample.context_switches_per_message, 0.1);
        near(sample.server_cpu, 0.5);
        near(sample.client_cpu, 0.9);
        assert_eq!(sample.latency_ns.unwrap().p50, 600_064);
        assert_eq!((sample.incomplete(), sample.invalid.as_ref()), (None, None));
        assert_eq!(sample.waits_per_message, None, "what is not counted is not known");
    }

    #[test]
    fn context_switches_that_are_lost_say_nothing_of_the_cpu_time() {
        let mut made = made(100_000.0, 5000.0);
        made.server.switches_unknown = Some("lost".into());
        made.server.window.as_mut().unwrap().context_switches = None;
        let sample = Sample::of(&at(0), &load(), &made);
        assert!(sample.cpu_ns_per_message.is_some() && sample.server_unknown.is_none());
        assert_eq!(sample.context_switches_per_message, None);
        assert_eq!(sample.server_switches_unknown.as_deref(), Some("lost"));
    }

    #[test]
    fn whose_cores_are_used_up_limits() {
        let limit = |server_ns: f64, client_ns: u64, polls| {
            let mut made = made(100_000.0, server_ns);
            made.load.window.as_mut().unwrap().cpu_ns = Some(client_ns);
            let at = Circumstances { polls, ..at(0) };
            let verdict = Sample::of(&at, &load(), &made).verdict;
            (verdict.limited_by, verdict.lower_bound)
        };
        assert_eq!(limit(9800.0, 300_000_000, None), (Limit::Server, false));
        assert_eq!(limit(9800.0, 499_000_000, None), (Limit::Both, true));
        assert_eq!(limit(5000.0, 499_000_000, None), (Limit::Generator, true));
        assert_eq!(limit(5000.0, 300_000_000, None), (Limit::Unknown, false));
        assert_eq!(limit(9999.0, 300_000_000, Some(true)), (Limit::Unknown, false));
        let others = Made { load_of_others: Some(0.4), ..made(100_000.0, 5000.0) };
        let others = Sample::of(&at(0), &load(), &others).verdict;
        assert_eq!((others.limited_by, others.lower_bound), (Limit::Others, true));
        assert_eq!(others.reason, "other programs had 40 % of all cores");
        assert_eq!((word(Limit::Generator), word(Limit::Unknown)), ("client", "neither"));
    }

    #[test]
    fn a_load_that_was_not_the_one_asked_for_says_so() {
        let of = |change: &dyn Fn(&mut Made)| {
            let mut made = made(1000.0, 5000.0);
            change(&mut made);
            Sample::of(&at(0), &load(), &made).incomplete()
        };
        let fewer = of(&|made| {
            made.load.counts.connected = 60;
            made.load.refusals = [("no thread".to_owned(), 4)].into();
        });
        assert_eq!(fewer.unwrap(), "60 of 64 connections were made: no thread");
        let broke = of(&|m| m.load.counts.reset = 2);
        assert_eq!(
            broke.unwrap(),
            "2 of 64 connections were refused or broke: the server reset them"
        );
        let waited = of(&|m| m.server.window.as_mut().unwrap().accepted = Some(50));
        assert_eq!(
            waited.unwrap(),
            "50 of 64 connections were accepted, the others were still waiting"
        );
        assert!(of(&|m| m.load.messages_unanswered = 1).unwrap().ends_with("answered: 1"));
    }

    #[test]
    fn a_connection_that_broke_was_not_served() {
        let of = |change: &dyn Fn(&mut Made)| {
            let mut made = made(1000.0, 5000.0);
            change(&mut made);
            Sample::of(&at(0), &load(), &made)
        };
        let whole = of(&|_| ());
        assert_eq!((whole.served(), whole.tally().as_str()), (64, "64 of 64"));
        let broke = of(&|made| {
            made.load.counts.reset = 10;
            made.load.counts.refused_by_server = 4;
        });
        let said = "64 attempted, 50 served to the end, 14 refused or broken";
        assert_eq!((broke.served(), broke.tally().as_str()), (50, said));
        let fewer = of(&|made| {
            (made.load.counts.attempted, made.load.counts.connected) = (60, 58);
            made.load.counts.cut_off = 3;
        });
        assert_eq!(
            fewer.tally(),
            "60 of 64 attempted, 55 served to the end, 2 not made, 3 refused or broken"
        );
    }

    #[test]
    fn documents_without_figures_make_a_sample_of_unknowns() {
        let mut made = made(1000.0, 1.0);
        made.server = ServerReport::default();
        made.load.window = None;
        made.load.latency_histogram = vec![];
        made.load.connects_per_s = None;
        made.load_of_others = None;
        let sample = Sample::of(&Circumstances::default(), &load(), &made);
        let known: Vec<&str> =
            METRICS.iter().filter(|m| (m.of)(&sample).is_some()).map(|m| m.name).collect();
        assert_eq!(known, ["attempted", "connected", "served"]);
        assert_eq!(sample.verdict.limited_by, Limit::Unknown);
    }
}
