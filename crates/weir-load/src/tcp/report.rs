//! What a load did.

use super::{Causes, Counts, EndedBy, EngineUsed, Holds, LoadSpec, Pace, Part, Window, Wrong};
use crate::{
    latency::{Histogram, Summary},
    ranks::course::{Figures, RanksReport},
};
use serde::{Deserialize, Serialize};

/// What a load did.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LoadReport {
    /// Run id.
    pub run: u32,
    /// Where to: an address and port, or `unix:` and a path.
    pub target: String,
    /// Connections of each block.
    pub connections_per_block: u32,
    /// Blocks.
    pub blocks: u32,
    /// Processes: as many as it takes to have the descriptors.
    pub processes: u32,
    /// Threads of each.
    pub threads: usize,
    /// What moved the bytes.
    pub engine: EngineUsed,
    /// Cores they were bound to, in turn; empty if to none.
    pub cores: Vec<usize>,
    /// Bytes of a message, at least.
    pub message_bytes_min: u64,
    /// Bytes of a message, at most.
    pub message_bytes_max: u64,
    /// The file that was sent, each time as one message, if one was.
    pub file: Option<String>,
    /// Messages under way on each connection, at most.
    pub outstanding: u32,
    /// Messages of each connection, if that was limited.
    pub sends: Option<u64>,
    /// `closed` or `open`.
    pub loop_kind: &'static str,
    /// Messages per second asked for, of an open loop.
    #[serde(rename = "asked_per_s")]
    pub offered_per_s: Option<f64>,
    /// Whether nothing was to come back.
    pub one_way: bool,
    /// What happened to connections and messages.
    #[serde(flatten)]
    pub counts: Counts,
    /// Connections that were asked for and not begun.
    pub not_attempted: u64,
    /// The most connections that stood at a time, as far as was seen; of several processes, the sum.
    pub open_max: u64,
    /// How long connections were being made, in ns: of each block from its first connect to its last
    /// connection made, the waits between blocks left out.
    pub connecting_ns: Option<u64>,
    /// Connections made in that time, per second.
    pub connects_per_s: Option<f64>,
    /// Time that connecting took.
    pub connect_ns: Option<Summary>,
    /// Source addresses taken.
    pub source_addresses: u32,
    /// Messages that did not come back.
    pub messages_unanswered: u64,
    /// Messages of an open loop that were due and could not be sent, since their connections had as
    /// many under way as may be, or were over.
    pub messages_due_unsent: u64,
    /// What was measured; none if the load ended before that began, or was never connected.
    pub window: Option<Window>,
    /// From the intended time of a message to its end, of the window's messages.
    pub latency_ns: Option<Summary>,
    /// The same in full: buckets that hold something, by their middles.
    pub latency_histogram: Histogram,
    /// Of an open loop, from the intended time of a message to its sending, where nothing but this
    /// program held it up: as large as its latencies, these are the generator's, not the server's.
    pub send_delay_ns: Option<Summary>,
    /// What went wrong, and how often.
    pub errors: Causes,
    /// What a server of weir said when it refused connections.
    pub refusals: Causes,
    /// What happened to the file, if it was not what it was: nothing is said of the server then.
    pub file_problem: Option<String>,
    /// The first byte found wrong.
    pub wrong_bytes: Option<Wrong>,
    /// Whether what came back was wrong, or lost with an end in order.
    pub data_errors: bool,
    /// From the beginning to the end of the last connection, in ns.
    pub elapsed_ns: u64,
    /// CPU time of all threads in ns; none where it is not known.
    pub cpu_ns: Option<u64>,
    /// CPU time of this whole process so far.
    pub process_cpu_ns: Option<u64>,
    /// The most memory that this process had, in bytes.
    pub peak_resident_bytes: Option<u64>,
    /// What its end held, where it was to look.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holds: Option<Holds>,
    /// Why it ended.
    pub ended_by: EndedBy,
    /// What went wrong with the load as a whole, if anything did.
    pub failure: Option<String>,
    /// What each rank did, where several made the load together; the other figures are those of all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranks: Option<RanksReport<LoadFigures>>,
}

/// What one rank of a load did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoadFigures {
    /// Connections made.
    pub connected: u64,
    /// Connections that failed, in whichever way, or were never begun.
    pub failed: u64,
    /// Messages that were over in the measured window.
    pub messages: u64,
    /// The same per second.
    pub messages_per_s: f64,
    /// When it began, on the clock of rank 0, in ns.
    pub began_ns: u64,
    /// From its beginning to the end of its last connection, in ns.
    pub elapsed_ns: u64,
    /// CPU time of its threads, in ns.
    pub cpu_ns: Option<u64>,
    /// Why it ended.
    pub ended_by: EndedBy,
}

impl Figures for LoadFigures {
    fn began_and_ended_ns(&self) -> (u64, u64) {
        (self.began_ns, self.began_ns.saturating_add(self.elapsed_ns))
    }

    fn per_s(&self) -> f64 {
        self.messages_per_s
    }
}

/// How a load went in one interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Beginning of the interval in ns since the load began.
    pub from_ns: u64,
    /// Its end.
    pub to_ns: u64,
    /// Connections that stand at its end.
    pub open: u64,
    /// Connections begun up to its end.
    pub attempted: u64,
    /// Connections made up to its end.
    pub connected: u64,
    /// Messages that were over in it.
    pub messages: u64,
    /// Bytes sent in it.
    pub bytes_sent: u64,
    /// Bytes received in it.
    pub bytes_received: u64,
}

impl Progress {
    /// What several processes did in about the same interval.
    pub fn beside(&self, other: &Self) -> Self {
        Self {
            from_ns: self.from_ns.min(other.from_ns),
            to_ns: self.to_ns.max(other.to_ns),
            open: self.open + other.open,
            attempted: self.attempted + other.attempted,
            connected: self.connected + other.connected,
            messages: self.messages + other.messages,
            bytes_sent: self.bytes_sent + other.bytes_sent,
            bytes_received: self.bytes_received + other.bytes_received,
        }
    }
}

/// The report of a load, from what all its processes did.
pub fn assemble(spec: &LoadSpec, part: Part) -> LoadReport {
    let counts = part.counts;
    let connecting_ns = part.connecting.total_ns().filter(|_| counts.connected > 0);
    let offered_per_s = match spec.pace {
        Pace::Closed => None,
        Pace::Open { messages_per_s } => Some(messages_per_s),
    };
    let mut report = LoadReport {
        run: spec.run,
        target: spec.destination(),
        connections_per_block: spec.connections,
        blocks: spec.blocks,
        processes: part.processes,
        threads: spec.threads,
        engine: part.engine,
        cores: spec.cores.clone(),
        message_bytes_min: part.file_bytes.unwrap_or(spec.sizes.least.into()),
        message_bytes_max: part.file_bytes.unwrap_or(spec.sizes.most.into()),
        file: spec.file.as_ref().map(|path| path.display().to_string()),
        outstanding: spec.outstanding,
        sends: spec.sends,
        loop_kind: if offered_per_s.is_some() { "open" } else { "closed" },
        offered_per_s,
        one_way: spec.one_way,
        counts,
        not_attempted: spec.connections_in_all().saturating_sub(counts.attempted),
        open_max: part.open_max,
        connecting_ns,
        connects_per_s: connecting_ns.map(|ns| counts.connected as f64 * 1e9 / ns as f64),
        connect_ns: part.connects.summary(),
        source_addresses: part.source_addresses,
        messages_unanswered: part.unanswered,
        messages_due_unsent: part.due_unsent,
        // Where nothing was connected there was nothing to measure.
        window: part.window.filter(|_| counts.connected > 0),
        latency_ns: part.latencies.summary(),
        latency_histogram: part.latencies,
        send_delay_ns: part.delays.summary(),
        errors: part.errors,
        refusals: part.refusals,
        file_problem: part.file_problem,
        wrong_bytes: part.wrong_bytes,
        data_errors: counts.wrong + counts.truncated > 0,
        elapsed_ns: part.ended_ns.saturating_sub(part.began_ns),
        cpu_ns: part.cpu_ns,
        process_cpu_ns: part.process_cpu_ns,
        peak_resident_bytes: part.peak_resident_bytes,
        holds: part.holds,
        ended_by: part.ended_by,
        failure: None,
        ranks: None,
    };
    report.failure = report.why_failed(spec.refusals_expected);
    report
}

/// What makes the share of one process a failure, of which so many connections were asked, if anything does.
pub(super) fn failure_of_share(spec: &LoadSpec, part: &Part, asked: u64) -> Option<String> {
    if asked == 0 {
        return None;
    }
    let mut report = assemble(spec, part.clone());
    report.not_attempted = asked.saturating_sub(part.counts.attempted);
    report.why_failed(spec.refusals_expected)
}

impl LoadReport {
    /// Why nothing may be concluded from it, if so: bytes were wrong or lost, or its own counts are.
    pub fn invalid(&self) -> Option<String> {
        let counts = &self.counts;
        if let Some(wrong) = &self.wrong_bytes {
            let others = counts.wrong - 1;
            return Some(match others {
                0 => wrong.to_string(),
                _ => format!("{wrong}; and the same on {others} other connections"),
            });
        }
        if counts.truncated > 0 {
            return Some(format!(
                "{} connections were ended by the server, in order, while answers were due: those answers are lost",
                counts.truncated
            ));
        }
        let unbalanced = counts.unbalanced().or_else(|| {
            (counts.messages_sent != counts.messages_over + self.messages_unanswered).then(|| {
                format!(
                    "{} messages were sent, but {} are over and {} are not",
                    counts.messages_sent, counts.messages_over, self.messages_unanswered
                )
            })
        });
        unbalanced.map(|what| format!("{what}: the counts of the load are wrong"))
    }

    /// What makes it a failure as a whole, if anything does.
    fn why_failed(&self, refusals_expected: bool) -> Option<String> {
        let counts = &self.counts;
        let others = self.errors.by_count();
        let worst = others.first().map(|(cause, _)| format!(": {cause}")).unwrap_or_default();
        if let Some(problem) = &self.file_problem {
            return Some(problem.clone());
        }
        if self.ended_by == EndedBy::Failure {
            return Some(format!("a thread failed{worst}"));
        }
        if counts.attempted == 0 {
            return (self.ended_by != EndedBy::Asked)
                .then(|| format!("no connection was begun{worst}"));
        }
        if counts.connected == 0 {
            let (refused, timed_out) = (counts.refused, counts.timed_out);
            return Some(match (refused, timed_out) {
                _ if self.ended_by == EndedBy::Asked => return None,
                (0, 0) => format!("none of {} connections was made{worst}", counts.attempted),
                (1, 0) => "the connection was refused; is anything listening there?".into(),
                (_, 0) => {
                    format!("{refused} connections were refused; is anything listening there?")
                }
                _ => format!(
                    "none of {} connections was made in time: {timed_out} timed out",
                    counts.attempted
                ),
            });
        }
        if counts.refused_by_server == counts.connected {
            let why = self.refusals.by_count();
            let why = why.first().map(|(text, _)| *text).unwrap_or_default();
            return Some(format!("the server refused every connection: {why}"));
        }
        if self.ended_by == EndedBy::Asked {
            return None;
        }
        let ended = counts.reset + counts.broken + counts.ended_by_server;
        let all_connected = counts.connected == counts.attempted;
        let nothing = counts.messages_sent > 0 && counts.messages_over == 0 && ended == 0;
        if nothing && all_connected && !self.data_errors {
            let text = "no message came back; does the server echo? With a sink, use --one-way";
            return Some(text.to_owned());
        }
        self.failed_connections(refusals_expected)
    }

    /// How many connections were not made, or did not last as long as they were to, and how; none where
    /// all were and did. Wrong bytes are told of elsewhere.
    fn failed_connections(&self, refusals_expected: bool) -> Option<String> {
        let counts = &self.counts;
        let refused = if refusals_expected { 0 } else { counts.refused_by_server };
        let ways = [
            (self.not_attempted, "not begun"),
            (counts.refused, "refused"),
            (counts.timed_out, "not made in time"),
            (counts.connect_failed, "not to be made"),
            (counts.unfinished, "still being made at the end"),
            (refused, "refused by the server with a reason"),
            (counts.reset, "broken off by the server"),
            (counts.broken, "broken"),
            (counts.ended_by_server, "ended by the server before their time"),
            (counts.unanswered, "given up without an answer"),
            (counts.cut_off, "without their last answers at the end"),
        ];
        let failed: u64 = ways.iter().map(|(count, _)| count).sum();
        if failed == 0 {
            return None;
        }
        let how = ways.iter().filter(|(count, _)| *count > 0);
        let how: Vec<_> = how.map(|(count, how)| format!("{count} {how}")).collect();
        let all = counts.attempted + self.not_attempted;
        let mut text = format!("{failed} of {all} connections failed: {}", how.join(", "));
        if self.messages_unanswered > 0 {
            text += &format!("; {} messages did not come back", self.messages_unanswered);
        }
        let said = self.refusals.by_count();
        let said = said.first().filter(|_| refused > 0).map(|(text, _)| ("the server said", *text));
        let worst = self.errors.by_count().first().map(|(cause, _)| ("most often", *cause));
        for (who, what) in said.into_iter().chain(worst) {
            text += &format!("; {who}: {what}");
        }
        Some(text)
    }
}
