//! What `weir iops` prints: text, or one JSON document.

use std::io::Write;

use serde_json::{Map, Value, json};
use weir_lab::{
    iops::{Decay, PAIRS, Progress, Report, Window},
    report::number::{bytes, microseconds, per_1000, si, three_figures},
    stats::Estimate,
};
use weir_load::latency::Summary;

use super::Found;
use crate::intervals::Intervals;

/// Version of the JSON document.
const SCHEMA_VERSION: u32 = 1;

/// Collects what the document will hold, and prints what is for people.
pub(super) struct Shown {
    json: bool,
    settings: Vec<(String, String)>,
    intervals: Intervals<Progress>,
}

impl Shown {
    pub(super) fn new(json: bool) -> Self {
        Self { json, settings: Vec::new(), intervals: Intervals::default() }
    }

    /// A line for people: on stdout, unless that is for the document. A reader that has
    /// gone is no reason to end a run.
    pub(super) fn say(&self, line: &str) {
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

    pub(super) fn settings(&mut self, settings: &[(String, String)]) {
        for (name, value) in settings {
            self.tell(name, value);
        }
        self.settings = settings.to_vec();
    }

    pub(super) fn interval(&mut self, progress: &Progress, length: usize) {
        let (from_s, to_s) = (progress.from_ns as f64 / 1e9, progress.to_ns as f64 / 1e9);
        if self.intervals.is_empty() {
            self.say(&format!(
                "\n  from    to s          total      in period     I/Os per s   failed   ({length} \
                 bytes each)"
            ));
        }
        self.say(&format!(
            "{from_s:>6.1} {to_s:>7.1} {:>14} {:>14} {:>14.0} {:>8}",
            progress.total,
            progress.completed,
            progress.per_s(),
            progress.failed,
        ));
        self.intervals.push(*progress);
    }

    /// Prints the result, whatever it is; gives an error if the document cannot be written.
    pub(super) fn end(&self, outcome: anyhow::Result<Option<Found>>) -> anyhow::Result<()> {
        let (status, reason) = match &outcome {
            Ok(Some(Found { report, .. })) => match (&report.failure, report.invalid()) {
                (Some(reason), _) => ("failed", Some(reason.clone())),
                (None, Some(reason)) => ("invalid", Some(reason)),
                (None, None) => ("ok", None),
            },
            Ok(None) => ("ok", None),
            Err(error) => ("failed", Some(format!("{error:#}"))),
        };
        if let Ok(Some(found)) = &outcome {
            self.found(found);
        }
        if let Some(reason) = &reason {
            eprintln!("weir iops: {reason}");
        }
        if self.json {
            let document = self.document(outcome.ok().flatten().as_ref(), status, reason)?;
            writeln!(std::io::stdout(), "{document}")?;
        }
        Ok(())
    }

    fn document(
        &self,
        found: Option<&Found>,
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
        document.insert("report".into(), serde_json::to_value(found.map(|found| &found.report))?);
        let sampling = found.and_then(|found| found.sampling).map(|ratio| {
            json!({
                "ratio": ratio.median,
                "low": ratio.interval.map(|interval| interval.low),
                "high": ratio.interval.map(|interval| interval.high),
                "pairs": ratio.samples,
            })
        });
        document.insert("sampling_cost".into(), sampling.into());
        Ok(document.into())
    }

    fn found(&self, found: &Found) {
        let report = &found.report;
        self.say("");
        self.counts(report);
        if let Some(window) = &report.window {
            self.window(window);
        }
        if let Some(summary) = &report.latency_ns {
            let of = format!("one in {}, {} in all", report.sample_every, summary.n);
            self.tell("latency", format!("{} ({of})", latency(summary)));
        }
        if let Some(ratio) = &found.sampling {
            self.tell("taking it costs", sampling(ratio));
        }
        if let Some(window) = &report.window {
            self.say(&fio_line(window));
        }
        for warning in &report.warnings {
            eprintln!("weir iops: note: {warning}");
        }
    }

    fn counts(&self, report: &Report) {
        let counts = &report.counts;
        self.tell("issued", counts.issued);
        self.tell("completed", counts.completed);
        for (name, count) in [
            ("failed", counts.failed - counts.cancelled.min(counts.failed)),
            ("called back", counts.cancelled),
            ("short", counts.short),
            ("empty", counts.empty),
        ] {
            if count > 0 {
                self.tell(name, count);
            }
        }
        for (error, times) in &report.errors {
            self.tell("error", format!("{times}: {error}"));
        }
    }

    fn window(&self, window: &Window) {
        self.tell(
            "watched",
            format!("{:.3} s, {} I/Os", window.elapsed_ns as f64 / 1e9, window.completed),
        );
        self.tell("rate", format!("{:.0} I/Os per s", window.ios_per_s));
        if let Some(second) = &window.second {
            self.tell("median second", seconds(second, &window.seconds));
        }
        self.tell("over time", window.decay.as_ref().map_or_else(too_short, course));
        let each = |name: &str, value: Option<f64>, text: &dyn Fn(f64) -> String| {
            if let Some(value) = value {
                self.tell(name, text(value));
            }
        };
        each("system calls", window.kernel_entries_per_io, &|calls| {
            format!("{} per 1000 I/Os", per_1000(calls * 1000.0))
        });
        each("taken at a time", window.ios_per_take, &|ios| three_figures(ios));
        each("handed over", window.hand_overs_per_io.filter(|share| *share > 0.0), &|share| {
            format!("{} per 1000 I/Os", per_1000(share * 1000.0))
        });
        each("CPU", window.cpu_ns_per_io, &|ns| {
            let system = window.cpu_system_ns_per_io;
            let system =
                system.map_or(String::new(), |ns| format!(", {ns:.0} of it in the kernel"));
            let cores = window.cpu_utilization_percent.unwrap_or_default();
            format!("{ns:.0} ns per I/O{system}; {cores:.0} % of a core")
        });
        if let (Some(gave), Some(lost)) =
            (window.voluntary_switches_per_s, window.involuntary_switches_per_s)
        {
            self.tell(
                "context switches",
                format!("{gave:.0} per s waiting, {lost:.0} pushed aside"),
            );
        }
        each("others' load", window.load_of_others_percent, &|share| {
            format!("{share:.0} % of the cores")
        });
    }
}

/// As fio and its t/io_uring print it; where nothing is taken, each call completes what it issued.
fn fio_line(window: &Window) -> String {
    let per_call = |ios: Option<f64>| ios.map_or_else(|| "inf".into(), three_figures);
    format!(
        "\nIOPS={}, BW={}/s, IOS/call={}/{}",
        si(window.ios_per_s),
        bytes(window.bytes_per_s),
        per_call(window.ios_per_entry),
        per_call(window.ios_per_take.or(window.ios_per_entry)),
    )
}

fn seconds(second: &Estimate, all: &[f64]) -> String {
    let least = all.iter().copied().fold(f64::INFINITY, f64::min);
    let most = all.iter().copied().fold(0.0, f64::max);
    let sure = second.interval.map_or("too few seconds for an interval".into(), |interval| {
        format!("95 % sure: {} to {}", si(interval.low), si(interval.high))
    });
    format!("{} I/Os ({sure}; least {}, most {})", si(second.median), si(least), si(most))
}

fn too_short() -> String {
    format!("watch {} s or more to see whether the rate falls", weir_lab::iops::FEWEST_SECONDS)
}

fn course(decay: &Decay) -> String {
    let verdict = match (decay.falls(), decay.rises()) {
        (true, _) => "it falls",
        (_, true) => "it rises",
        _ => "neither falls nor rises for sure",
    };
    format!(
        "{:+.2} % a minute, 95 % sure: {:+.2} to {:+.2}; {verdict}",
        decay.percent_per_minute, decay.low, decay.high
    )
}

fn sampling(ratio: &Estimate) -> String {
    let percent = |ratio: f64| (1.0 - ratio) * 100.0;
    let sure = ratio.interval.map_or(String::new(), |interval| {
        format!(", 95 % sure: {:+.2} to {:+.2}", percent(interval.high), percent(interval.low))
    });
    let pairs = ratio.samples;
    format!("{:+.2} % of the rate{sure} ({pairs} of {PAIRS} pairs)", percent(ratio.median))
}

fn latency(summary: &Summary) -> String {
    let us = |ns: u64| match ns {
        0..=99_999 => format!("{:.2}", ns as f64 / 1e3),
        _ => microseconds(ns as f64),
    };
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

/// The document of a run that was not even tried.
pub(super) fn failure(reason: &str) -> String {
    let document = Shown::new(true).document(None, "failed", Some(reason.to_owned()));
    document.map(|document| document.to_string()).unwrap_or_default()
}
