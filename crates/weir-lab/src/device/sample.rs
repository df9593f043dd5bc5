//! What one run delivered, and the metrics that are taken from it.

use serde::Serialize;

use super::bench::Made;
use crate::experiment::cell::{Measured, Metric, When, measured, metrics};
use crate::experiment::verdict::{Limit, USED_UP, Verdict, others_had};
use crate::iops::decay;
use crate::report::number::{
    bytes, microseconds, per_message, percent_of, si, three_figures, whole,
};
use crate::stats::latency::of_histogram;
use crate::wire::Latency;

/// One run's figures. Unknown ones are `None`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Sample {
    /// When it was made, and on what machine.
    #[serde(flatten)]
    pub when: When,
    /// What it delivered.
    #[serde(flatten)]
    pub made: Made,
    /// How long I/Os took, of a sample of them, in ns.
    pub latency_ns: Option<Latency>,
    /// How the rate changed within the run, in percent a second.
    pub change_percent_per_s: Option<f64>,
    /// What limited the run.
    pub verdict: Verdict,
}

impl Sample {
    /// What a run delivered, with its circumstances.
    pub fn of(at: &When, made: Made) -> Self {
        let (parts, part_s) = &made.parts;
        Self {
            when: When { load_of_others: made.load_of_others, ..*at },
            latency_ns: of_histogram(&made.latency_histogram),
            change_percent_per_s: decay(parts, *part_s).map(|of| of.percent_per_minute / 60.0),
            verdict: verdict(&made),
            made,
        }
    }
}

/// Times that a run gave its core up, for each I/O, from which it waited for I/Os: the longest queue there is,
/// waited for as a whole, is one in sixteen thousand.
const WAITS: f64 = 3e-5;
/// So often in a second a process gives its core up that only watches its own I/Os; of a run that makes no
/// more I/Os, the difference is not seen.
const WATCHING_PER_S: f64 = 40.0;

/// Whether a run waited for its I/Os. `None`: not known.
fn waited(made: &Made) -> Option<bool> {
    let for_ios_per_s = made.waits_per_io? * made.ios_per_s - WATCHING_PER_S;
    let told_apart = made.ios_per_s > WATCHING_PER_S;
    told_apart.then_some(for_ios_per_s >= WAITS * made.ios_per_s)
}

/// What limited a run: its own work where it kept a core busy; others where it did not wait and they had its core; what
/// it waited for where it gave its core up.
fn verdict(made: &Made) -> Verdict {
    let of = |limited_by, reason| Verdict {
        limited_by,
        lower_bound: limited_by == Limit::Others,
        reason,
    };
    let Some(cores) = made.cores_busy else {
        return of(Limit::Unknown, "CPU time is not known".into());
    };
    if cores >= USED_UP {
        return of(Limit::Server, format!("it kept {cores:.2} cores busy"));
    }
    let busy = format!("{cores:.2} cores were busy");
    match (waited(made), others_had(made.load_of_others)) {
        (Some(false), Some(others)) => {
            of(Limit::Others, format!("it did not wait: {busy} with it, and {others}"))
        }
        (Some(false), None) => of(Limit::Unknown, format!("{busy}, and yet it did not wait")),
        (None, Some(others)) => of(Limit::Unknown, format!("{busy}, and {others}")),
        _ => of(Limit::Load, format!("it waited: {busy}")),
    }
}

/// A verdict in one word for a table.
pub fn word(limit: Limit) -> &'static str {
    match limit {
        Limit::Server => "CPU",
        Limit::Load => "waiting",
        Limit::Others => limit.word(),
        _ => "unknown",
    }
}

impl Measured for Sample {
    measured!(made);

    fn invalid(&self) -> Option<String> {
        self.made.invalid.clone()
    }
}

/// A metric of a run that reads a device.
pub type DeviceMetric = Metric<Sample>;

metrics! {
    Sample;
    /// I/Os that completed per second: the median over the rounds, after the warm-up.
    RATE, "ios_per_s", "I/Os/s", "I/Os/s\n", Higher, si, |s| Some(s.made.ios_per_s);
    /// Bytes per second.
    BYTES, "bytes_per_s", "bytes/s", "bytes/s\n", Higher, bytes, |s| Some(s.made.bytes_per_s);
    /// From when an I/O was issued until it was in the program's hands, of one I/O in 128: the median over the
    /// rounds of each run's own percentile.
    LATENCY_P50, "latency_ns.p50", "ns", "latency\np50 µs", Lower, short_time,
        |s| Some(s.latency_ns?.p50 as f64);
    /// 90th percentile of the latency.
    LATENCY_P90, "latency_ns.p90", "ns", "latency\np90 µs", Lower, short_time,
        |s| Some(s.latency_ns?.p90 as f64);
    /// 99th percentile of the latency.
    LATENCY_P99, "latency_ns.p99", "ns", "latency\np99 µs", Lower, short_time,
        |s| Some(s.latency_ns?.p99 as f64);
    /// 99.9th percentile of the latency.
    LATENCY_P999, "latency_ns.p99_9", "ns", "latency\np99.9 µs", Lower, short_time,
        |s| Some(s.latency_ns?.p999 as f64);
    /// Longest latency of the sample.
    LATENCY_MAX, "latency_ns.max", "ns", "latency\nmax µs", Lower, short_time,
        |s| Some(s.latency_ns?.max as f64);
    /// Share of an I/O's CPU time that taking latencies costs.
    SAMPLING, "sampling_percent", "%", "sampling\n", Lower, percent_of, |s| s.made.sampling_percent;
    /// CPU time of the process for each I/O, including its kernel threads; the parts are found by sampling at
    /// the timer's ticks.
    CPU, "cpu_ns_per_io", "ns", "CPU ns/I/O\nuser/system", Lower, whole, |s| s.made.cpu_ns_per_io;
    /// The part of it in the kernel.
    CPU_SYSTEM, "cpu_system_ns_per_io", "ns", "CPU ns/I/O\nsystem", Lower, whole, |s| s.made.cpu_system_ns_per_io;
    /// CPU time that the process used, in percent of a core.
    CPU_SHARE, "cpu_utilization_percent", "%", "CPU\nof a core", Lower, percent_of,
        |s| Some(s.made.cores_busy? * 100.0);
    /// Entries into the kernel for each I/O.
    KERNEL_ENTRIES, "kernel_entries_per_io", "1", "calls\n/I/O", Lower, per_message, |s| s.made.kernel_entries_per_io;
    /// I/Os taken at once.
    TAKEN, "ios_per_take", "I/Os", "I/Os\n/take", Higher, three_figures, |s| s.made.ios_per_take;
    /// Context switches for each I/O.
    CONTEXT_SWITCHES, "context_switches_per_io", "1", "switches\n/I/O", Lower, small,
        |s| s.made.context_switches_per_io;
    /// Completions handled by another thread than the one that took them, for each I/O.
    HAND_OVERS, "hand_overs_per_io", "1", "hand-overs\n/I/O", Lower, per_message, |s| s.made.hand_overs_per_io;
    /// How the rate changes within a run.
    CHANGE, "change_percent_per_s", "%/s", "change\n%/s", Higher, three_figures, |s| s.change_percent_per_s;
    /// Time of a cache line from core to core.
    CORE_TO_CORE, "core_to_core_ns", "ns", "core to\ncore ns", Lower, whole, |s| s.when.core_to_core_ns;
    /// Share of all cores that other programs used.
    OTHERS, "load_of_others_percent", "%", "others\nof cores", Lower, percent_of,
        |s| s.when.load_of_others.map(|share| share * 100.0);
}

/// Nanoseconds as microseconds: many an I/O takes less than one.
pub fn short_time(ns: f64) -> String {
    if ns < 9950.0 { format!("{:.2}", ns / 1e3) } else { microseconds(ns) }
}

/// A count for each I/O, of which there may be very few.
fn small(value: f64) -> String {
    match value {
        v if v > 0.0 && v < 0.0005 => "<0.001".into(),
        v => per_message(v),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A run of a design that keeps one core busy.
    pub(crate) fn made(ios_per_s: f64) -> Made {
        Made {
            command: "weir iops".into(),
            ios_per_s,
            completed: ios_per_s as u64 / 2,
            latency_histogram: vec![(401, 90), (902, 10)],
            sampling_percent: Some(ios_per_s / 1e7),
            kernel_entries_per_io: Some(1.0),
            cpu_ns_per_io: Some(1e9 / ios_per_s),
            cpu_system_ns_per_io: Some(0.8e9 / ios_per_s),
            cores_busy: Some(1.0),
            context_switches_per_io: Some(0.001),
            parts: (vec![ios_per_s; 10], 0.05),
            ..Made::default()
        }
    }

    #[test]
    fn a_sample_has_its_latencies_and_what_limited_it() {
        let sample = Sample::of(&When::default(), made(2e6));
        let latency = sample.latency_ns.unwrap();
        assert_eq!((latency.n, latency.p50, latency.p99), (100, 401, 902));
        assert_eq!(
            (sample.verdict.limited_by, sample.change_percent_per_s),
            (Limit::Server, Some(0.0))
        );
        let waits = Made { cores_busy: Some(0.2), waits_per_io: Some(1.0), ..made(1e3) };
        let waits = Sample::of(&When::default(), waits);
        assert_eq!(word(waits.verdict.limited_by), "waiting");
        let unknown = Made { cores_busy: None, latency_histogram: vec![], ..made(1e3) };
        let unknown = Sample::of(&When::default(), unknown);
        assert_eq!((word(unknown.verdict.limited_by), unknown.latency_ns), ("unknown", None));
    }

    #[test]
    fn what_others_took_from_it_is_no_waiting() {
        let word_of = |waits_per_io, load_of_others| {
            let made = Made { cores_busy: Some(0.5), waits_per_io, load_of_others, ..made(1e6) };
            word(Sample::of(&When::default(), made).verdict.limited_by)
        };
        assert_eq!(word_of(Some(3e-5), Some(0.4)), "others", "it lost its core, and gave none up");
        assert_eq!(word_of(Some(2e-6), Some(0.01)), "unknown", "nobody is seen who had it");
        assert_eq!(word_of(Some(1.0 / 1024.0), Some(0.4)), "waiting", "a long queue, as a whole");
        assert_eq!(word_of(Some(1.0), None), "waiting");
        assert_eq!((word_of(None, Some(0.4)), word_of(None, None)), ("unknown", "waiting"));
    }

    #[test]
    fn a_rate_that_falls_within_a_run_shows() {
        // One percent of the first in each twentieth of a second.
        let parts = (0..10).map(|n| 1000.0 - 10.0 * f64::from(n)).collect();
        let falls = Made { parts: (parts, 0.05), ..made(1e3) };
        let change = Sample::of(&When::default(), falls).change_percent_per_s.unwrap();
        assert!((change + 20.0 / 0.955).abs() < 1e-6, "{change}");
    }
}
