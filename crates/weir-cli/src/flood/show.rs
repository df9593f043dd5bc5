//! What `weir flood` prints: text, or one JSON document.

use std::time::Duration;

use serde_json::{Map, Value, json};
use weir_load::{
    FloodReport,
    flood::{AnswersReport, EndedBy, Progress},
};

use super::{Flooded, code_of_error, failure_of, invalid, late};
use crate::{
    exit::text_of_error,
    interval::has_line,
    shown::{self, Ending, Finding},
};

type Shown = shown::Shown<Flooded>;

pub(super) fn interval(shown: &mut Shown, progress: &Progress, size_bytes: usize, every: Duration) {
    let (from_s, to_s) = (progress.from_ns as f64 / 1e9, progress.to_ns as f64 / 1e9);
    let sent_per_s = progress.sent as f64 / (to_s - from_s);
    let head = "\n  from    to s    sent/s   Mbit/s of payload   refused   skipped";
    let line = format!(
        "{from_s:>6.1} {to_s:>7.1} {sent_per_s:>9.0} {:>19.1} {:>9} {:>9}",
        sent_per_s * size_bytes as f64 * 8.0 / 1e6,
        progress.refused,
        progress.late_skipped,
    );
    let has_line = has_line(progress.from_ns, progress.to_ns, every);
    shown.interval(head, has_line.then_some(line.as_str()), *progress);
}

/// How a flood ended.
pub(super) fn ending(report: &FloodReport, any_pace: bool) -> Ending {
    if let Some(reason) = failure_of(report) {
        return Ending::Failed(reason);
    }
    if let Some(reason) = invalid(report) {
        return Ending::Invalid(reason);
    }
    if let Some(reason) = report.lost_too_much() {
        return Ending::LimitExceeded(reason);
    }
    late(report).filter(|_| !any_pace).map_or(Ending::Ok, Ending::Invalid)
}

impl Finding for Flooded {
    const COMMAND: &'static str = "weir flood";

    const SETTINGS: &[&str] =
        &["target", "ports", "datagram size", "load", "engine", "duration", "ranks"];

    type Interval = Progress;

    fn ending(&self) -> Ending {
        ending(&self.report, self.any_pace)
    }

    fn asked_to_end(&self) -> Option<String> {
        let FloodReport { ended_by, elapsed_ns, offered, warm_up_sent, .. } = &self.report;
        (*ended_by == EndedBy::Asked).then(|| match (offered, warm_up_sent) {
            (0, 1..) => "in the warm-up, before anything was counted".into(),
            _ => format!("after {:.1} s", *elapsed_ns as f64 / 1e9),
        })
    }

    fn error(error: &anyhow::Error) -> (String, u8) {
        (text_of_error(error), code_of_error(error))
    }

    fn print(&self, shown: &Shown) {
        let Self { report, any_pace } = self;
        shown.say("");
        if let (Some(windows), Some(within)) = (report.windows, report.windows_within) {
            let held = if report.pace_held == Some(false) { "NOT HELD: " } else { "" };
            let text =
                format!("{held}{within} of {windows} windows of 10 ms within 2 % or one quantum");
            shown.tell("pace", text);
        }
        shown.tell("offered", report.offered);
        shown.tell("sent", report.sent);
        shown.tell("refused", report.refused);
        shown.tell("skipped as late", report.late_skipped);
        shown.tell(
            "elapsed",
            format!("{:.3} s: {}", report.elapsed_ns as f64 / 1e9, report.ended_by),
        );
        shown.tell(
            "sent",
            format!(
                "{:.0} datagrams/s, {:.1} Mbit/s of payload",
                report.sent_per_s,
                report.bits_per_second / 1e6
            ),
        );
        if let Some(ns) = report.cpu_ns_per_datagram {
            let waiting = if report.windows.is_some() { ", waiting included" } else { "" };
            shown.tell("CPU", format!("{ns:.0} ns per datagram sent{waiting}"));
        }
        // Where it is no reason to fail, it is told here.
        if let Some(late) = late(report).filter(|_| *any_pace) {
            shown.note(&late);
        }
        if let Some(answers) = &report.answers {
            answered(shown, answers);
        }
        lost(shown, report);
        if let Some(account) = &report.report {
            self::account(shown, account);
        }
        if let Some(ranks) = &report.ranks {
            let head = format!("{:>14} {:>12} {:>12} {:>12}", "sent", "sent/s", "received", "lost");
            shown::ranks(shown, ranks, &head, |it| {
                let or = |count: Option<u64>| count.map_or("-".into(), |count| count.to_string());
                format!(
                    "{:>14} {:>12.0} {:>12} {:>12}",
                    it.sent,
                    it.sent_per_s,
                    or(it.received),
                    or(it.lost_packets)
                )
            });
        }
    }

    fn interval(interval: &Progress) -> serde_json::Result<Value> {
        Ok(json!({
            "from_ns": interval.from_ns,
            "to_ns": interval.to_ns,
            "offered": interval.offered,
            "sent": interval.sent,
            "refused": interval.refused,
            "late_skipped": interval.late_skipped,
        }))
    }

    fn fields(found: Option<&Self>) -> anyhow::Result<Map<String, Value>> {
        let Some(Self { report, .. }) = found else {
            return Ok(REPORT_FIELDS.iter().map(|field| ((*field).into(), Value::Null)).collect());
        };
        match serde_json::to_value(report)? {
            Value::Object(fields) => Ok(fields),
            _ => anyhow::bail!("a report is an object"),
        }
    }
}

/// What came back.
fn answered(shown: &Shown, answers: &AnswersReport) {
    shown.tell("answered", format!("{}: {:.0} answers/s", answers.answered, answers.answers_per_s));
    let dropped = match answers.dropped_socket {
        None => String::new(),
        Some(dropped) => format!("; {dropped} answers were dropped at the generator's sockets"),
    };
    shown.tell("not answered", format!("{}{dropped}", answers.missing));
    if answers.given_up > 0 {
        let text = format!("{} requests were under way for 100 ms or more", answers.given_up);
        shown.tell("given up", text);
    }
    if let Some(times) = &answers.round_trip_ns {
        let us = |name: &str| times.percentile.get(name).copied().unwrap_or_default() as f64 / 1e3;
        let text =
            format!("p50 {:.1} µs, p99 {:.1} µs, p99.9 {:.1} µs", us("50"), us("99"), us("99.9"));
        shown.tell("round trip", text);
    }
}

/// What arrived and what did not, and where that was lost, as far as the server tells.
fn lost(shown: &Shown, flood: &FloodReport) {
    shown.tell(
        "received",
        match (flood.received, &flood.report) {
            (Some(received), _) => received.to_string(),
            (None, Some(_)) => "unknown (not reported by the server)".into(),
            (None, None) if flood.failure.is_some() => "unknown (no report from the server)".into(),
            (None, None) => "unknown (no control channel)".into(),
        },
    );
    let (Some(lost), Some(percent)) = (flood.lost_packets, flood.lost_percent) else { return };
    let system = flood.report.as_ref().and_then(|report| report.get("system"));
    let dropped = |name: &str| system.and_then(|system| system[name].as_u64());
    let places: Vec<String> = [
        ("dropped_device", "at the server's device"),
        ("dropped_cpu_queue", "at the queue of a CPU"),
        ("dropped_socket", "at its socket"),
    ]
    .iter()
    .filter_map(|(name, place)| {
        let count = dropped(name).filter(|count| *count > 0)?;
        // Where the count is the whole machine's, whose that is.
        let source = system.and_then(|system| system.get(format!("{name}_source"))?.as_str());
        Some(match source {
            Some(source) => format!("{count} at sockets ({source})"),
            None => format!("{count} {place}"),
        })
    })
    .collect();
    let at = match (lost, places.is_empty()) {
        (0, _) => String::new(),
        (_, true) => "; where is not known".into(),
        (_, false) => format!("; the server's system dropped {}", places.join(", ")),
    };
    shown.tell("lost", format!("{lost} ({percent:.3} %){at}"));
}

/// The server's account, as far as it is in the usual words.
fn account(shown: &Shown, report: &Value) {
    let account = report.get("audit").unwrap_or(report);
    shown.say("\nThe server's count:");
    for (name, field) in [
        ("duplicates", "duplicates"),
        ("reordered", "reordered"),
        ("of wrong size", "wrong_size"),
        ("damaged", "corrupt"),
        ("corrupt stamps", "corrupt_headers"),
        ("corrupt bodies", "corrupt_bodies"),
        ("not of this run", "strangers"),
    ] {
        if let Some(count) = account[field].as_u64() {
            shown.tell(name, count);
        }
    }
    let latency = &account["latency_ns"];
    let us = |name: &str| latency[name].as_f64().map(|ns| ns / 1e3);
    if let (Some(p50), Some(p99)) = (us("p50"), us("p99")) {
        shown.tell("one-way latency", format!("p50 {p50:.1} µs, p99 {p99:.1} µs"));
    }
}

/// The fields of a report: null in a document without one.
pub(super) const REPORT_FIELDS: &[&str] = &[
    "run",
    "target",
    "ports",
    "engine",
    "engine_settings",
    "engines_passed_over",
    "send_offload",
    "size_bytes",
    "flows",
    "generators",
    "cores",
    "send_buffer_bytes",
    "load",
    "quantum",
    "offered",
    "sent",
    "refused",
    "refusals",
    "late_skipped",
    "started_ns",
    "elapsed_ns",
    "offered_per_s",
    "sent_per_s",
    "bits_per_second",
    "windows",
    "windows_within",
    "pace_held",
    "cpu_ns",
    "process_cpu_ns",
    "cpu_ns_per_datagram",
    "cpu_utilization_percent",
    "sent_per_flow",
    "warm_up_sent",
    "ended_by",
    "failure",
    "received",
    "lost_packets",
    "lost_percent",
    "max_loss_percent",
    "answers",
    "report",
    "ranks",
];
