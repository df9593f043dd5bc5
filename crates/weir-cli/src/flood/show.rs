//! What `weir flood` prints: text, or one JSON document.

use std::io::Write;

use serde_json::{Map, Value, json};
use weir_load::{FloodReport, flood::Progress};

use super::{failure_of, invalid, text_of_error};
use crate::intervals::Intervals;

/// Version of the JSON document.
const SCHEMA_VERSION: u32 = 1;

/// Collects what the document will hold, and prints what is for people.
pub(super) struct Shown {
    json: bool,
    settings: Vec<(&'static str, String)>,
    intervals: Intervals<Progress>,
}

impl Shown {
    pub(super) fn new(json: bool) -> Self {
        Self { json, settings: Vec::new(), intervals: Intervals::default() }
    }

    /// A line for people: on stdout, unless that is for the document. A reader that has
    /// gone is no reason to end a run.
    fn say(&self, line: &str) {
        let _ = if self.json {
            writeln!(std::io::stderr(), "{line}")
        } else {
            writeln!(std::io::stdout(), "{line}")
        };
    }

    pub(super) fn settings(&mut self, settings: &[(&'static str, String)]) {
        for (name, value) in settings {
            self.say(&format!("{name:>18}  {value}"));
        }
        self.settings = settings.to_vec();
    }

    pub(super) fn interval(&mut self, progress: &Progress, size_bytes: usize) {
        let (from_s, to_s) = (progress.from_ns as f64 / 1e9, progress.to_ns as f64 / 1e9);
        let sent_per_s = progress.sent as f64 / (to_s - from_s);
        if self.intervals.is_empty() {
            self.say("\n  from    to s    sent/s   Mbit/s of payload   refused   skipped");
        }
        self.say(&format!(
            "{from_s:>6.1} {to_s:>7.1} {sent_per_s:>9.0} {:>19.1} {:>9} {:>9}",
            sent_per_s * size_bytes as f64 * 8.0 / 1e6,
            progress.refused,
            progress.late_skipped,
        ));
        self.intervals.push(*progress);
    }

    /// Prints the result, whatever it is; gives an error if the document cannot be written.
    pub(super) fn end(&self, outcome: anyhow::Result<Option<FloodReport>>) -> anyhow::Result<()> {
        let failed = |reason| ("failed", Some(reason));
        let (status, reason) = match &outcome {
            Ok(Some(report)) => match (failure_of(report), invalid(report)) {
                (Some(reason), _) => failed(reason),
                (None, Some(reason)) => ("invalid", Some(reason)),
                (None, None) => ("ok", None),
            },
            Ok(None) => ("ok", None),
            Err(error) => failed(text_of_error(error)),
        };
        if let Ok(Some(report)) = &outcome {
            self.report(report);
        }
        if let Some(reason) = &reason {
            eprintln!("weir flood: {reason}");
        }
        if self.json {
            let document = self.document(outcome.ok().flatten().as_ref(), status, reason)?;
            writeln!(std::io::stdout(), "{document}")?;
        }
        Ok(())
    }

    fn document(
        &self,
        report: Option<&FloodReport>,
        status: &str,
        reason: Option<String>,
    ) -> anyhow::Result<Value> {
        let mut document = Map::new();
        document.insert("schema_version".into(), SCHEMA_VERSION.into());
        document.insert("command".into(), crate::arguments().into());
        document.insert("status".into(), status.into());
        document.insert("reason".into(), reason.into());
        let settings = self.settings.iter();
        let settings: Vec<Value> =
            settings.map(|(name, value)| json!({ "name": name, "value": value })).collect();
        document.insert("settings".into(), settings.into());
        let intervals: Vec<Value> = self.intervals.iter().map(interval_value).collect();
        document.insert("intervals".into(), intervals.into());
        for field in REPORT_FIELDS {
            document.insert((*field).into(), Value::Null);
        }
        if let Some(report) = report {
            let Value::Object(fields) = serde_json::to_value(report)? else {
                anyhow::bail!("a report is an object");
            };
            document.extend(fields);
        }
        Ok(document.into())
    }

    fn report(&self, report: &FloodReport) {
        let count = |name: &str, value: u64| self.say(&format!("{name:>18}  {value}"));
        self.say("");
        count("offered", report.offered);
        count("sent", report.sent);
        count("refused", report.refused);
        count("skipped as late", report.late_skipped);
        self.say(&format!(
            "{:>18}  {:.3} s, ended by {:?}",
            "elapsed",
            report.elapsed_ns as f64 / 1e9,
            report.ended_by
        ));
        self.say(&format!(
            "{:>18}  {:.0} datagrams/s, {:.1} Mbit/s of payload",
            "sent",
            report.sent_per_s,
            report.bits_per_second / 1e6
        ));
        if let Some(ns) = report.cpu_ns_per_datagram {
            let waiting = if report.windows.is_some() { ", waiting included" } else { "" };
            self.say(&format!("{:>18}  {ns:.0} ns per datagram sent{waiting}", "CPU"));
        }
        if let (Some(windows), Some(within)) = (report.windows, report.windows_within) {
            self.say(&format!(
                "{:>18}  {within} of {windows} windows of 10 ms within 2 % or one quantum",
                "pace"
            ));
        }
        if report.pace_held == Some(false) {
            eprintln!(
                "weir flood: the pace was not held: fewer than 99 % of the windows are within \
                 tolerance; lower the rate, or give the generator a core of its own (--cpu)"
            );
        }
        if let Some(account) = &report.report {
            self.account(account);
        }
    }

    /// The server's account, as far as it is in the usual words.
    fn account(&self, report: &Value) {
        let account = report.get("audit").unwrap_or(report);
        self.say(&format!("{:>18}", "the server's count"));
        for (name, text) in [
            ("received", "received"),
            ("lost", "lost"),
            ("duplicates", "duplicates"),
            ("reordered", "reordered"),
            ("wrong_size", "of wrong size"),
            ("corrupt", "damaged"),
            ("corrupt_headers", "corrupt stamps"),
            ("corrupt_bodies", "corrupt bodies"),
            ("strangers", "strangers"),
        ] {
            if let Some(count) = account[name].as_u64() {
                self.say(&format!("{text:>18}  {count}"));
            }
        }
        let latency = &account["latency_ns"];
        let us = |name: &str| latency[name].as_f64().map(|ns| ns / 1e3);
        if let (Some(p50), Some(p99)) = (us("p50"), us("p99")) {
            let text = "one-way latency";
            self.say(&format!("{text:>18}  p50 {p50:.1} µs, p99 {p99:.1} µs"));
        }
    }
}

/// The document of a flood that was not even tried.
pub(super) fn failure(reason: &str) -> String {
    let document = Shown::new(true).document(None, "failed", Some(reason.to_owned()));
    document.map(|document| document.to_string()).unwrap_or_default()
}

fn interval_value(progress: &Progress) -> Value {
    json!({
        "from_s": progress.from_ns as f64 / 1e9,
        "to_s": progress.to_ns as f64 / 1e9,
        "offered": progress.offered,
        "sent": progress.sent,
        "refused": progress.refused,
        "late_skipped": progress.late_skipped,
    })
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
    "report",
];
