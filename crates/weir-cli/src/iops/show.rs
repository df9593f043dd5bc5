//! What `weir iops` prints: text, or one JSON document.

use serde_json::{Map, Value, json};
use weir::counters::ENTRIES_WITHOUT_FUTEX;
use weir_lab::{
    iops::{
        Decay, EndedBy, Ends, FEWEST_TURNS, JudgedBy, OverTime, PAIRS, Progress, Report, Trend,
        Window,
    },
    report::number::{bytes, microseconds, per_1000, si, three_figures},
    stats::Estimate,
};
use weir_load::latency::Summary;

use super::{Found, code_of_error};
use crate::{
    exit::text_of_error,
    shown::{self, Ending, Finding},
};

type Shown = shown::Shown<Found>;

const SECOND_NS: u64 = 1_000_000_000;

pub(super) fn interval(shown: &mut Shown, progress: &Progress) {
    let (from_s, to_s) = (progress.from_ns as f64 / 1e9, progress.to_ns as f64 / 1e9);
    let head = "\n  from    to s          total      in period     I/Os per s   failed";
    let line = format!(
        "{from_s:>6.1} {to_s:>7.1} {:>14} {:>14} {:>14.0} {:>8}",
        progress.total,
        progress.completed,
        progress.per_s(),
        progress.failed,
    );
    shown.interval(head, Some(&line), *progress);
}

impl Finding for Found {
    const COMMAND: &'static str = "weir iops";

    const SETTINGS: &[&str] = &["device", "direction", "length", "design", "depth", "time"];

    type Interval = Progress;

    fn ending(&self) -> Ending {
        match (&self.report.failure, self.report.invalid()) {
            (Some(reason), _) => Ending::Failed(reason.clone()),
            (None, Some(reason)) => Ending::Invalid(reason),
            (None, None) => Ending::Ok,
        }
    }

    fn asked_to_end(&self) -> Option<String> {
        let asked_s = self.time.as_secs_f64();
        (self.report.ended_by == EndedBy::Asked).then(|| match &self.report.window {
            None => "in the warm-up, before anything was measured".into(),
            Some(window) => format!("after {:.1} of {asked_s} s", window.elapsed_ns as f64 / 1e9),
        })
    }

    fn error(error: &anyhow::Error) -> (String, u8) {
        (text_of_error(error), code_of_error(error))
    }

    fn print(&self, shown: &Shown) {
        let report = &self.report;
        shown.say("");
        counts(shown, report);
        if let Some(found) = &report.window {
            let whole = report.kernel_entries_source != ENTRIES_WITHOUT_FUTEX;
            window(shown, found, whole, report.over_time.is_some());
        }
        if let Some(summary) = &report.latency_ns {
            let of = format!("one in {}, {} in all", report.sample_every, summary.n);
            shown.tell("latency", format!("{} ({of})", latency(summary)));
        }
        match (&self.sampling, report.sampling_percent) {
            (Some(ratio), _) => shown.tell("taking it costs", sampling(ratio)),
            (None, Some(percent)) => shown.tell(
                "taking it costs",
                format!("about {percent:.2} %, by what reading the clock takes"),
            ),
            (None, None) => {}
        }
        if let Some(found) = &report.over_time {
            over_time(shown, found);
        }
        if let Some(window) = &report.window {
            shown.say(&fio_line(window));
        }
        if let Some(why) = self.ended_early() {
            shown.note(&why);
        }
        for warning in &report.warnings {
            shown.note(&format!("note: {warning}"));
        }
    }

    fn interval(interval: &Progress) -> serde_json::Result<Value> {
        serde_json::to_value(interval)
    }

    fn fields(found: Option<&Self>) -> anyhow::Result<Map<String, Value>> {
        let mut fields = Map::new();
        fields.insert("report".into(), serde_json::to_value(found.map(|found| &found.report))?);
        let sampling = found.and_then(|found| found.sampling).map(|ratio| {
            json!({
                "ratio": ratio.median,
                "low": ratio.interval.map(|interval| interval.low),
                "high": ratio.interval.map(|interval| interval.high),
                "pairs": ratio.samples,
            })
        });
        fields.insert("sampling_cost".into(), sampling.into());
        Ok(fields)
    }
}

impl Found {
    /// Why there is less than was asked for, where nothing went wrong.
    fn ended_early(&self) -> Option<String> {
        match (self.report.ended_by, &self.report.window) {
            (EndedBy::Ios, None) if self.warm_up.is_zero() => {
                Some("it ended before anything could be measured: give more I/Os (-k)".into())
            }
            (EndedBy::Ios, None) => Some(
                "it ended before the warm-up did, so there is no rate: use -O 0, or ask for more I/Os (-k)"
                    .into(),
            ),
            _ => None,
        }
    }
}

fn counts(shown: &Shown, report: &Report) {
    let counts = &report.counts;
    shown.tell("issued", counts.issued);
    shown.tell("completed", counts.completed);
    for (name, count) in [
        ("failed", counts.failed - counts.cancelled.min(counts.failed)),
        ("cancelled", counts.cancelled),
        ("short", counts.short),
        ("empty", counts.empty),
    ] {
        if count > 0 {
            shown.tell(name, count);
        }
    }
    for (error, times) in &report.errors {
        shown.tell("error", format!("{times}: {error}"));
    }
}

fn window(shown: &Shown, window: &Window, whole: bool, beside: bool) {
    shown.tell(
        "measured",
        format!("{:.3} s, {} I/Os", window.elapsed_ns as f64 / 1e9, window.completed),
    );
    shown.tell("rate", format!("{:.0} I/Os per s", window.ios_per_s));
    // What is left of a second is none.
    if let Some(second) = &window.second
        && window.elapsed_ns >= SECOND_NS
    {
        shown.tell("median second", seconds(second, &window.seconds));
    }
    if !beside {
        shown.tell("over time", window.decay.as_ref().map_or_else(too_short, course));
    }
    let each = |name: &str, value: Option<f64>, text: &dyn Fn(f64) -> String| {
        if let Some(value) = value {
            shown.tell(name, text(value));
        }
    };
    each("system calls", window.kernel_entries_per_io, &|calls| {
        let of_ios = format!("{} per 1000 I/Os", per_1000(calls * 1000.0));
        match whole {
            true => of_ios,
            false => {
                format!(
                    "≥ {of_ios}, not counting those by which threads wait for each other (futex)"
                )
            }
        }
    });
    each("taken at a time", window.ios_per_take, &|ios| three_figures(ios));
    each("handed over", window.hand_overs_per_io.filter(|share| *share > 0.0), &|share| {
        format!("{} per 1000 I/Os", per_1000(share * 1000.0))
    });
    each("CPU", window.cpu_ns_per_io, &|ns| {
        let system = window.cpu_system_ns_per_io;
        let system = system.map_or(String::new(), |ns| format!(", {ns:.0} of it in the kernel"));
        let cores = window.cpu_utilization_percent.unwrap_or_default();
        format!("{ns:.0} ns per I/O{system}; {cores:.0} % of a core")
    });
    if let (Some(gave), Some(lost)) =
        (window.voluntary_switches_per_s, window.involuntary_switches_per_s)
    {
        shown.tell("context switches", format!("{gave:.0} per s voluntary, {lost:.0} involuntary"));
    }
    each("others' load", window.load_of_others_percent, &|share| {
        format!("{share:.0} % of the cores")
    });
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
        format!("95 % interval: {} to {}", si(interval.low), si(interval.high))
    });
    format!("{} I/Os ({sure}; least {}, most {})", si(second.median), si(least), si(most))
}

fn too_short() -> String {
    format!("measure {} s or more to see whether the rate falls", weir_lab::iops::FEWEST_SECONDS)
}

/// How it went beside its control.
fn over_time(shown: &Shown, found: &OverTime) {
    let OverTime { control, turn_s, control_turn_s, readings, .. } = found;
    let turns = readings.len();
    let what = match found.judged_by {
        JudgedBy::Rate => "the rate",
        JudgedBy::PerCpu => "the rate per CPU second (others had the cores)",
    };
    shown.tell("over time", format!("{what} {}", found.verdict));
    shown.tell("", beside(&format!("to {control}"), found.rate.as_ref()));
    shown.tell("", beside(&format!("per CPU second, to {control}"), found.per_cpu.as_ref()));
    shown.tell("", beside(&format!("{control} itself"), found.control_rate.as_ref()));
    let Ends { first, last } = found.ios_per_s;
    let (first, last) = (si(first), si(last));
    shown.tell("", format!("first tenth {first} I/Os per s, last {last}; {turns} turns of {turn_s} s, {control_turn_s} s of {control} between"));
    shown.tell(
        "outstanding",
        format!("{:.0} at first, {:.0} at last", found.outstanding.first, found.outstanding.last),
    );
    for (name, ends) in [
        ("memory", &found.resident_bytes),
        ("of the kernel", &found.kernel_bytes),
        ("slab, of all", &found.slab_bytes),
    ] {
        if let Some(Ends { first, last }) = ends {
            shown.tell(name, format!("{} at first, {} at last", bytes(*first), bytes(*last)));
        }
    }
}

fn beside(of: &str, trend: Option<&Trend>) -> String {
    trend.map_or_else(
        || format!("{of}: unknown with fewer than {FEWEST_TURNS} turns"),
        |Trend { percent, low, high, .. }| {
            format!(
                "{of}: {percent:+.2} % over the whole time, 95 % interval: {low:+.2} to {high:+.2}"
            )
        },
    )
}

fn course(decay: &Decay) -> String {
    let verdict = match (decay.falls(), decay.rises()) {
        (true, _) => "it falls",
        (_, true) => "it rises",
        _ => "no clear trend",
    };
    format!(
        "{:+.2} % a minute, 95 % interval: {:+.2} to {:+.2}; {verdict}",
        decay.percent_per_minute, decay.low, decay.high
    )
}

fn sampling(ratio: &Estimate) -> String {
    let percent = |ratio: f64| (1.0 - ratio) * 100.0;
    let sure = ratio.interval.map_or(String::new(), |interval| {
        format!(", 95 % interval: {:+.2} to {:+.2}", percent(interval.high), percent(interval.low))
    });
    let pairs = ratio.samples;
    format!("{:+.2} % of the rate{sure} ({pairs} of {PAIRS} pairs)", percent(ratio.median))
}

fn latency(summary: &Summary) -> String {
    shown::latency(summary, |ns| match ns {
        0..=99_999 => format!("{:.2}", ns as f64 / 1e3),
        _ => microseconds(ns as f64),
    })
}
