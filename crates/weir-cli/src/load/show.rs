//! What `weir load tcp` prints: text, or one JSON document.

use std::io::Write;

use serde_json::{Map, Value, json};
use weir_lab::report::number::{microseconds, si};
use weir_load::{
    latency::Summary,
    tcp::{Causes, Event, LoadReport, Progress},
};

use crate::intervals::Intervals;

/// Version of the JSON document.
const SCHEMA_VERSION: u32 = 1;

/// Causes that a person is shown of each kind.
const CAUSES_SHOWN: usize = 5;

/// Collects what the document will hold, and prints what is for people.
pub(super) struct Shown {
    json: bool,
    tells_phases: bool,
    settings: Vec<(&'static str, String)>,
    intervals: Intervals<Progress>,
}

impl Shown {
    pub(super) fn new(json: bool, tells_phases: bool) -> Self {
        Self { json, tells_phases, settings: Vec::new(), intervals: Intervals::default() }
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

    /// A figure with its name.
    fn tell(&self, name: &str, value: impl std::fmt::Display) {
        self.say(&format!("{name:>18}  {value}"));
    }

    /// Shows what happened.
    pub(super) fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Ready(settings) => self.settings(settings),
            Event::Settled => self.phase("settled"),
            Event::Began => self.phase("began"),
            Event::Ended => self.phase("ended"),
            Event::Interval(progress) => self.interval(&progress),
        }
    }

    /// Whoever started this may wait for it.
    fn phase(&self, phase: &str) {
        if self.tells_phases {
            crate::print(&format!("{}\n", json!({ "phase": phase })));
        }
    }

    pub(super) fn settings(&mut self, settings: &[(&'static str, String)]) {
        for (name, value) in settings {
            self.tell(name, value);
        }
        self.settings = settings.to_vec();
    }

    pub(super) fn interval(&mut self, progress: &Progress) {
        let (from_s, to_s) = (progress.from_ns as f64 / 1e9, progress.to_ns as f64 / 1e9);
        let per_s = |count: u64| count as f64 / (to_s - from_s);
        if self.intervals.is_empty() {
            self.say(
                "\n  from    to s   attempted  connected       open   messages/s   sent Mbit/s  \
                 received",
            );
        }
        self.say(&format!(
            "{from_s:>6.1} {to_s:>7.1} {:>11} {:>10} {:>10} {:>12.0} {:>13.1} {:>9.1}",
            progress.attempted,
            progress.connected,
            progress.open,
            per_s(progress.messages),
            per_s(progress.bytes_sent) * 8.0 / 1e6,
            per_s(progress.bytes_received) * 8.0 / 1e6,
        ));
        self.intervals.push(*progress);
    }

    /// Prints the result, whatever it is; gives an error if the document cannot be written.
    pub(super) fn end(&self, outcome: anyhow::Result<Option<LoadReport>>) -> anyhow::Result<()> {
        let (status, reason) = match &outcome {
            Ok(Some(report)) => match (report.invalid(), &report.failure) {
                (Some(reason), _) => ("invalid", Some(reason)),
                (None, Some(reason)) => ("failed", Some(reason.clone())),
                (None, None) => ("ok", None),
            },
            Ok(None) => ("ok", None),
            Err(error) => ("failed", Some(format!("{error:#}"))),
        };
        if let Ok(Some(report)) = &outcome {
            self.report(report);
        }
        if let Some(reason) = &reason {
            eprintln!("weir load tcp: {reason}");
        }
        if self.json {
            let document = self.document(outcome.ok().flatten().as_ref(), status, reason)?;
            writeln!(std::io::stdout(), "{document}")?;
        }
        Ok(())
    }

    fn document(
        &self,
        report: Option<&LoadReport>,
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
        let intervals: Result<Vec<Value>, _> =
            self.intervals.iter().map(serde_json::to_value).collect();
        document.insert("intervals".into(), intervals?.into());
        document.insert("report".into(), serde_json::to_value(report)?);
        Ok(document.into())
    }

    fn report(&self, report: &LoadReport) {
        let counts = &report.counts;
        self.say("");
        self.tell("attempted", counts.attempted);
        self.tell("connected", counts.connected);
        for (name, count) in [
            ("not attempted", report.not_attempted),
            ("refused", counts.refused),
            ("timed out", counts.timed_out),
            ("failed to connect", counts.connect_failed),
            ("unfinished", counts.unfinished),
            ("refused by server", counts.refused_by_server),
            ("reset", counts.reset),
            ("broken", counts.broken),
            ("ended by server", counts.ended_by_server),
            ("ended with a loss", counts.truncated),
            ("wrong bytes on", counts.wrong),
            ("gave no answer", counts.unanswered),
            ("cut off", counts.cut_off),
            ("left open", counts.left_open),
        ] {
            if count > 0 {
                self.tell(name, count);
            }
        }
        self.causes("error", &report.errors);
        self.causes("the server said", &report.refusals);
        if let (Some(rate), Some(ns)) = (report.connects_per_s, report.connecting_ns) {
            let text = format!("{} connections/s, for {:.3} s", si(rate), ns as f64 / 1e9);
            self.tell("connecting", text);
        }
        if let Some(connect) = &report.connect_ns {
            self.tell("time to connect", latency(connect));
        }
        if report.source_addresses > 1 {
            self.tell("source addresses", report.source_addresses);
        }
        self.tell(
            "messages",
            format!("{} sent, {} over", counts.messages_sent, counts.messages_over),
        );
        if report.messages_unanswered > 0 {
            self.tell("unanswered", report.messages_unanswered);
        }
        if report.messages_due_unsent > 0 {
            self.tell("due and not sent", report.messages_due_unsent);
        }
        self.tell(
            "elapsed",
            format!("{:.3} s, ended by {:?}", report.elapsed_ns as f64 / 1e9, report.ended_by),
        );
        if let Some(window) = &report.window {
            let seconds = window.elapsed_ns as f64 / 1e9;
            self.tell("measured", format!("{seconds:.3} s, {} messages", window.messages));
            self.tell("rate", format!("{:.0} messages/s", window.messages_per_s));
            self.tell(
                "throughput",
                format!(
                    "{:.1} Mbit/s sent, {:.1} received, of payload",
                    window.bits_per_second_sent / 1e6,
                    window.bits_per_second_received / 1e6
                ),
            );
            if let Some(ns) = window.cpu_ns_per_message {
                self.tell("CPU of the load", format!("{ns:.0} ns per message"));
            }
        }
        if let Some(summary) = &report.latency_ns {
            self.tell("latency", latency(summary));
        }
        if let Some(summary) = &report.send_delay_ns {
            self.tell("sent late by", latency(summary));
        }
    }

    fn causes(&self, name: &str, causes: &Causes) {
        for (cause, count) in causes.by_count().into_iter().take(CAUSES_SHOWN) {
            self.tell(name, format!("{count}: {cause}"));
        }
    }
}

fn latency(summary: &Summary) -> String {
    let us = |ns: u64| microseconds(ns as f64);
    let of = |name: &str| summary.percentile.get(name).copied().map_or_else(|| "-".into(), us);
    format!(
        "p50 {} µs, p90 {}, p99 {}, p99.9 {}, max {}",
        of("50"),
        of("90"),
        of("99"),
        of("99.9"),
        us(summary.max)
    )
}

/// The document of a load that was not even tried.
pub(super) fn failure(reason: &str) -> String {
    let document = Shown::new(true, false).document(None, "failed", Some(reason.to_owned()));
    document.map(|document| document.to_string()).unwrap_or_default()
}
