//! What a flood did.

use std::{collections::BTreeMap, fmt, net::IpAddr};

use serde::{Deserialize, Serialize};
use weir::counters::os::Sampler;

use super::{
    FloodSpec,
    generator::{Obtained, Outcome},
};
use crate::{
    audit::AuditReport,
    engine::{self, Refusals},
    latency::{Histogram, Summary},
    pacing::{Load, windows::WITHIN_MIN},
    ranks::course::{Figures, RanksReport},
    stop::{Stop, StopReason},
};

/// Why a flood ended. It is shown as the words that say so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndedBy {
    /// Its time was over.
    Time,
    /// Its number of datagrams was offered.
    Datagrams,
    /// Someone asked, with Ctrl-C for instance.
    Asked,
    /// The control connection was lost.
    ControlLost,
    /// The server revoked its consent.
    Revoked,
    /// A generator failed.
    Failure,
}

impl fmt::Display for EndedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EndedBy::Time => "its time was over",
            EndedBy::Datagrams => "its number of datagrams was offered",
            EndedBy::Asked => "it was asked to end",
            EndedBy::ControlLost => "the control connection was lost",
            EndedBy::Revoked => "the server revoked its consent",
            EndedBy::Failure => "a generator failed",
        })
    }
}

/// What was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LoadReport {
    /// `saturation` or `paced`.
    pub kind: &'static str,
    /// Datagrams per second asked for; none at saturation.
    #[serde(rename = "asked_per_s")]
    pub offered_per_s: Option<f64>,
    /// `even` or `poisson`; none at saturation.
    pub arrivals: Option<&'static str>,
}

/// What whoever started a flood may want to show.
#[derive(Debug)]
pub enum Event<'a> {
    /// Everything is set up, nothing was sent: the effective settings by name.
    Ready(&'a [(&'static str, String)]),
    /// An interval is over.
    Interval(Progress),
}

/// What came back of a flood whose datagrams are requests. Counts are of answers, unless they say otherwise; each is held
/// against the request that it answers, byte for byte. `sent = answered + missing`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AnswersReport {
    /// Requests of each flow under way at most; none where a pace said when to send.
    pub outstanding: Option<u32>,
    /// Bytes that an answer is to have.
    pub size_bytes: usize,
    /// Different requests that were answered.
    pub answered: u64,
    /// Those of them before the flood was over.
    pub answered_in_time: u64,
    /// The same per second.
    pub answers_per_s: f64,
    /// Requests sent and not answered: at the end answers are waited for until none has come for 0.4 s, for 5 s at most.
    pub missing: u64,
    /// Requests that were under way for 100 ms or more, so that another took their place; some may have been answered
    /// later.
    pub given_up: u64,
    /// All that came, whatever was wrong with them.
    pub received: u64,
    /// To a request that had been answered already.
    pub duplicates: u64,
    /// To an earlier request than the one before it. That is no error.
    pub reordered: u64,
    /// Of another size.
    pub wrong_size: u64,
    /// Whose bytes are not those of the request, or not of any.
    pub corrupt: u64,
    /// That show a number which was not in the request, or came to another flow.
    pub forged: u64,
    /// Of no run of this flood.
    pub strangers: u64,
    /// Dropped at the generator's own sockets; none where the system does not tell.
    pub dropped_socket: Option<u64>,
    /// Whether anything came that is not the answer to what was sent.
    pub data_errors: bool,
    /// Time that the generators had nothing to send and nothing to take, in ns, added up. Whoever waits a lot is not
    /// the limit.
    pub waiting_ns: u64,
    /// From the time at which a request was due, or without a pace from the call that sent it, to its answer's being
    /// taken, in ns.
    pub round_trip_ns: Option<Summary>,
    /// The same, to be merged with those of other runs.
    pub round_trip_histogram: Histogram,
}

impl AnswersReport {
    fn of(spec: &FloodSpec, outcomes: &[Outcome], audit: &AuditReport, elapsed_ns: u64) -> Self {
        let found = || outcomes.iter().filter_map(|outcome| outcome.found.as_ref());
        let answered: u64 = found().map(|found| found.answered).sum();
        let in_time: u64 = found().map(|found| found.in_time).sum();
        let forged = found().map(|found| found.forged).sum();
        let sent: u64 = outcomes.iter().map(|outcome| outcome.sent).sum();
        let closed = spec.load == Load::Saturation;
        Self {
            outstanding: spec.replies.filter(|_| closed).map(|replies| replies.outstanding),
            size_bytes: spec.reply_bytes().unwrap_or_default(),
            answered,
            answered_in_time: in_time,
            answers_per_s: in_time as f64 * 1e9 / elapsed_ns as f64,
            missing: sent.saturating_sub(answered),
            given_up: found().map(|found| found.given_up).sum(),
            received: audit.received,
            duplicates: audit.duplicates,
            reordered: audit.reordered,
            wrong_size: audit.wrong_size,
            corrupt: audit.corrupt_bodies + audit.corrupt_headers + audit.unknown_flow,
            forged,
            strangers: audit.strangers,
            dropped_socket: found().map(|found| found.dropped_socket).sum(),
            data_errors: audit.data_errors || forged > 0 || audit.strangers > 0,
            waiting_ns: found().map(|found| found.waiting_ns).sum(),
            round_trip_ns: audit.latency_ns.clone(),
            round_trip_histogram: audit.latencies.clone(),
        }
    }
}

/// What a flood did. `offered = sent + refused`, and the two sides are counted apart: offered
/// is what the pace made due and the generators handed to their engines, the rest what the
/// engines say became of it. What was skipped was never offered.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FloodReport {
    /// Run id.
    pub run: u32,
    /// Where to.
    pub target: IpAddr,
    /// Ports there.
    pub ports: Vec<u16>,
    /// The engine obtained.
    pub engine: &'static str,
    /// How it was set up.
    pub engine_settings: BTreeMap<&'static str, String>,
    /// Why each better engine was not used, if none was named.
    pub engines_passed_over: Vec<String>,
    /// `gso` if the operating system cut the datagrams from larger ones, else `none`.
    pub send_offload: &'static str,
    /// Payload bytes of each datagram.
    pub size_bytes: usize,
    /// Flows over all generators.
    pub flows: usize,
    /// Threads.
    pub generators: usize,
    /// Cores they were bound to, in turn; empty if to none.
    pub cores: Vec<usize>,
    /// Size of each socket's send buffer in bytes, as obtained.
    pub send_buffer_bytes: usize,
    /// What was asked for.
    pub load: LoadReport,
    /// Datagrams per call.
    pub quantum: u32,
    /// Datagrams handed to the engines.
    pub offered: u64,
    /// Those that the operating system took.
    pub sent: u64,
    /// Those that it did not take, for whichever reason.
    pub refused: u64,
    /// The same by reason.
    pub refusals: Refusals,
    /// Datagrams that were too late (by the time of a quantum, or as [`Arrivals`](crate::pacing::Arrivals) say), and not offered.
    pub late_skipped: u64,
    /// When the first generator began, in ns of the machine's monotonic clock.
    pub started_ns: u64,
    /// From the start of the first generator to the end of the last, in ns.
    pub elapsed_ns: u64,
    /// Datagrams offered per second.
    pub offered_per_s: f64,
    /// Datagrams sent per second.
    pub sent_per_s: f64,
    /// Bits of payload sent per second (no header is included).
    pub bits_per_second: f64,
    /// Windows of 10 ms, over all generators; none at saturation.
    pub windows: Option<u64>,
    /// Those in which a generator kept its pace within 2 % or one quantum.
    pub windows_within: Option<u64>,
    /// Whether 99 % of them are.
    pub pace_held: Option<bool>,
    /// CPU time of all generators in ns, user and kernel; none where it is not known.
    pub cpu_ns: Option<u64>,
    /// CPU time of this whole process so far, with start-up, control channel and warm-up.
    pub process_cpu_ns: Option<u64>,
    /// CPU time of the generators per datagram sent.
    pub cpu_ns_per_datagram: Option<f64>,
    /// CPU time as a share of the elapsed time of as many cores as generators. Waiting for
    /// the next quantum is done by spinning, so a paced generator is near 100 as well.
    pub cpu_utilization_percent: Option<f64>,
    /// Datagrams sent, for each flow.
    pub sent_per_flow: Vec<u64>,
    /// Datagrams sent in the warm-up, which count nowhere else.
    pub warm_up_sent: u64,
    /// Why it ended.
    pub ended_by: EndedBy,
    /// What went wrong, if anything did.
    pub failure: Option<String>,
    /// Datagrams that the server received, by its report; none without a control connection.
    pub received: Option<u64>,
    /// Those that were sent and did not arrive.
    pub lost_packets: Option<u64>,
    /// The same as a share of those sent.
    pub lost_percent: Option<f64>,
    /// The share that may be lost, if a limit was set.
    pub max_loss_percent: Option<f64>,
    /// What came back, where answers were expected.
    pub answers: Option<AnswersReport>,
    /// What the server reported, as it is; none without a control connection. Of several ranks, what can be added up.
    pub report: Option<serde_json::Value>,
    /// What each rank did, where several flooded together; the other figures are those of all.
    pub ranks: Option<RanksReport<FloodFigures>>,
}

impl FloodReport {
    /// Takes what the server reported into the account.
    pub(super) fn reported(&mut self, report: serde_json::Value) {
        let account = report.get("audit").unwrap_or(&report);
        let count = |name: &str| account.get(name).and_then(serde_json::Value::as_u64);
        self.received = count("received");
        let arrived = |received: u64| received.saturating_sub(count("duplicates").unwrap_or(0));
        let not_arrived = self.received.map(|received| self.sent.saturating_sub(arrived(received)));
        self.lost_packets = count("lost").or(not_arrived);
        let sent = self.sent as f64;
        self.lost_percent = self
            .lost_packets
            .map(|lost| if self.sent == 0 { 0.0 } else { 100.0 * lost as f64 / sent });
        self.report = Some(report);
    }

    /// That more was lost than may be, or that nobody knows, if a limit was set and that is so.
    pub fn lost_too_much(&self) -> Option<String> {
        let most = self.max_loss_percent?;
        let (Some(lost), Some(percent)) = (self.lost_packets, self.lost_percent) else {
            return Some("what was lost is not known, so --max-loss cannot be checked".into());
        };
        (percent > most).then(|| {
            format!(
                "{lost} of {} datagrams were lost, {percent:.3} %; at most {most} % may be \
                 (--max-loss)",
                self.sent
            )
        })
    }

    /// What is wrong with the generator's own counts, if anything is.
    pub fn unbalanced(&self) -> Option<String> {
        let Self { offered, sent, refused, .. } = self;
        (*offered != sent.saturating_add(*refused)).then(|| {
            format!(
                "{offered} datagrams were offered, but {sent} sent and {refused} refused: the \
                 counts of the engine {} are wrong, and so is whatever follows from them",
                self.engine
            )
        })
    }
}

/// What one rank of a flood did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FloodFigures {
    /// Run id of its datagrams.
    pub run: u32,
    /// Datagrams offered.
    pub offered: u64,
    /// Datagrams sent.
    pub sent: u64,
    /// Those refused by its system.
    pub refused: u64,
    /// The same by reason.
    pub refusals: Refusals,
    /// Datagrams skipped as late.
    pub late_skipped: u64,
    /// Datagrams sent per second.
    pub sent_per_s: f64,
    /// Datagrams sent, for each flow.
    pub sent_per_flow: Vec<u64>,
    /// Datagrams sent in the warm-up.
    pub warm_up_sent: u64,
    /// When it began, on the clock of rank 0, in ns.
    pub began_ns: u64,
    /// From its start to its end, in ns.
    pub elapsed_ns: u64,
    /// Windows of 10 ms of a pace, and those within it.
    pub windows: Option<u64>,
    /// See `windows`.
    pub windows_within: Option<u64>,
    /// CPU time of its generators, in ns.
    pub cpu_ns: Option<u64>,
    /// CPU time of its process, in ns.
    pub process_cpu_ns: Option<u64>,
    /// Datagrams that the server received of it.
    pub received: Option<u64>,
    /// Those that did not arrive.
    pub lost_packets: Option<u64>,
    /// Why it ended.
    pub ended_by: EndedBy,
    /// What the server reported of it.
    pub report: Option<serde_json::Value>,
}

impl Figures for FloodFigures {
    fn began_and_ended_ns(&self) -> (u64, u64) {
        (self.began_ns, self.began_ns.saturating_add(self.elapsed_ns))
    }

    fn per_s(&self) -> f64 {
        self.sent_per_s
    }
}

/// How a flood went in one interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Beginning and end of the interval in ns since the start of the flood.
    pub from_ns: u64,
    /// See `from_ns`.
    pub to_ns: u64,
    /// Datagrams offered in it.
    pub offered: u64,
    /// Datagrams sent in it.
    pub sent: u64,
    /// Datagrams refused in it.
    pub refused: u64,
    /// Datagrams skipped in it.
    pub late_skipped: u64,
}

/// Adds up what the generators did.
pub(super) fn assemble(
    spec: &FloodSpec,
    ports: Vec<u16>,
    obtained: Obtained,
    quantum: u32,
    outcomes: Vec<Outcome>,
    answers: Option<&AuditReport>,
    stop: &Stop,
) -> FloodReport {
    let sum = |count: fn(&Outcome) -> u64| outcomes.iter().map(count).sum::<u64>();
    let (offered, sent) = (sum(|o| o.offered), sum(|o| o.sent));
    let mut refusals = Refusals::default();
    outcomes.iter().for_each(|outcome| refusals.merge(&outcome.refusals));
    let started_ns = outcomes.iter().map(|o| o.started_ns).min().unwrap_or(0);
    let ended_ns = outcomes.iter().map(|o| o.ended_ns).max().unwrap_or(0);
    let elapsed_ns = ended_ns.saturating_sub(started_ns).max(1);
    let per_s = |count: u64| count as f64 * 1e9 / elapsed_ns as f64;
    let paced = spec.load != Load::Saturation;
    let (windows, within) = (sum(|o| o.windows), sum(|o| o.windows_within));
    let cpu_ns: Option<u64> = outcomes.iter().map(|o| o.cpu_ns).sum();
    let failure = outcomes.iter().find_map(|o| o.failure.clone());
    let (ended_by, failure) = match stop.reason() {
        Some(StopReason::ControlLost(why)) => (
            EndedBy::ControlLost,
            failure.or_else(|| Some(format!("{why}; without it the flood was ended at once"))),
        ),
        Some(StopReason::Revoked(why)) => (
            EndedBy::Revoked,
            failure.or_else(|| Some(format!("the server revoked its consent: {why}"))),
        ),
        Some(StopReason::Asked) => (EndedBy::Asked, failure),
        Some(StopReason::Failed) => (EndedBy::Failure, failure),
        Some(StopReason::Hangs(why)) => (EndedBy::Failure, failure.or(Some(why))),
        None if spec.datagrams.is_some_and(|asked| offered >= asked) => {
            (EndedBy::Datagrams, failure)
        }
        None => (EndedBy::Time, failure),
    };
    let answers = answers.map(|audit| AnswersReport::of(spec, &outcomes, audit, elapsed_ns));
    FloodReport {
        run: spec.run,
        target: spec.target,
        ports,
        engine: obtained.engine,
        engine_settings: obtained.settings.into_iter().collect(),
        engines_passed_over: obtained.passed_over.iter().map(ToString::to_string).collect(),
        send_offload: if engine::has_offload(obtained.engine) { obtained.engine } else { "none" },
        size_bytes: spec.size_bytes,
        flows: spec.flows_in_all(),
        generators: spec.generators,
        cores: spec.cores.clone(),
        send_buffer_bytes: obtained.send_buffer_bytes,
        load: LoadReport {
            kind: if paced { "paced" } else { "saturation" },
            offered_per_s: spec.load.datagrams_per_s(),
            arrivals: paced.then(|| spec.arrivals.name()),
        },
        quantum,
        offered,
        sent,
        refused: refusals.total(),
        refusals,
        late_skipped: sum(|o| o.late_skipped),
        started_ns,
        elapsed_ns,
        offered_per_s: per_s(offered),
        sent_per_s: per_s(sent),
        bits_per_second: per_s(sent) * spec.size_bytes as f64 * 8.0,
        windows: paced.then_some(windows),
        windows_within: paced.then_some(within),
        pace_held: paced.then_some(within as f64 >= WITHIN_MIN * windows as f64),
        cpu_ns,
        process_cpu_ns: Sampler::new().process().cpu_ns,
        cpu_ns_per_datagram: cpu_ns.filter(|_| sent > 0).map(|ns| ns as f64 / sent as f64),
        cpu_utilization_percent: cpu_ns
            .map(|ns| 100.0 * ns as f64 / (elapsed_ns as f64 * spec.generators as f64)),
        sent_per_flow: outcomes.into_iter().flat_map(|o| o.sent_per_flow).collect(),
        warm_up_sent: 0,
        ended_by,
        failure,
        received: None,
        lost_packets: None,
        lost_percent: None,
        max_loss_percent: spec.max_loss.map(|share| share * 100.0),
        answers,
        report: None,
        ranks: None,
    }
}
