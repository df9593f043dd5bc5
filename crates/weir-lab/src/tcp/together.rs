//! What the clients at several hosts did together, as one report: counts are added up, round trips merged as histograms.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use weir_load::latency::Histogram;
use weir_load::tcp::{Holds, Window};

use super::wire::LoadReport;

/// What several did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct All {
    /// Their counts and round trips.
    pub report: LoadReport,
    /// Why it is invalid, if that of any is.
    pub invalid: Option<String>,
    /// How wrong the clock of any of them may be, in ns either way.
    pub uncertainty_ns: u64,
}

impl All {
    /// With what others did.
    pub fn add(&mut self, others: Self) {
        add(&mut self.report, others.report);
        self.invalid = self.invalid.take().or(others.invalid);
        self.uncertainty_ns = self.uncertainty_ns.max(others.uncertainty_ns);
    }
}

fn add(all: &mut LoadReport, one: LoadReport) {
    let both = |a: Option<u64>, b: Option<u64>| Some(a? + b?);
    all.counts.merge(&one.counts);
    all.not_attempted += one.not_attempted;
    all.processes += one.processes;
    match (&mut all.engine, one.engine) {
        (Some(engine), Some(other)) => engine.add(other),
        (engine, _) => *engine = None,
    }
    all.connects_per_s = all.connects_per_s.zip(one.connects_per_s).map(|(a, b)| a + b);
    all.messages_unanswered += one.messages_unanswered;
    all.window = match (all.window.take(), one.window) {
        (Some(a), Some(b)) => Some(beside(&a, &b)),
        // What one of them did while it was measured is not known.
        _ => None,
    };
    let mut histogram = Histogram::default();
    histogram.extend(all.latency_histogram.iter().chain(&one.latency_histogram).copied());
    all.latency_histogram = histogram.recorded().collect();
    merge_causes(&mut all.errors, one.errors);
    merge_causes(&mut all.refusals, one.refusals);
    all.wrong_bytes = all.wrong_bytes.take().or(one.wrong_bytes);
    all.process_cpu_ns = both(all.process_cpu_ns, one.process_cpu_ns);
    all.peak_resident_bytes = both(all.peak_resident_bytes, one.peak_resident_bytes);
    all.elapsed_ns = all.elapsed_ns.max(one.elapsed_ns);
    // Each looked at the sockets of its own host.
    all.holds = all.holds.zip(one.holds).map(|(a, b)| Holds {
        resident_bytes: both(a.resident_bytes, b.resident_bytes),
        sockets: both(a.sockets, b.sockets),
        socket_bytes: both(a.socket_bytes, b.socket_bytes),
    });
}

/// Two windows that lie beside one another in time. Each has its own length, by a few microseconds; so rates are added,
/// and the counts are those of a time as long as the longer one.
fn beside(a: &Window, b: &Window) -> Window {
    let elapsed_ns = a.elapsed_ns.max(b.elapsed_ns);
    Window {
        elapsed_ns,
        messages: a.messages + b.messages,
        bytes_sent: a.bytes_sent + b.bytes_sent,
        bytes_received: a.bytes_received + b.bytes_received,
        messages_per_s: a.messages_per_s + b.messages_per_s,
        bits_per_second_sent: a.bits_per_second_sent + b.bits_per_second_sent,
        bits_per_second_received: a.bits_per_second_received + b.bits_per_second_received,
        cpu_ns: a.cpu_ns.zip(b.cpu_ns).map(|(a, b)| a + b),
        cpu_ns_per_message: None,
    }
}

fn merge_causes(all: &mut BTreeMap<String, u64>, one: BTreeMap<String, u64>) {
    for (cause, count) in one {
        *all.entry(cause).or_default() += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(messages: u64, latencies: &[u64]) -> LoadReport {
        let mut report = LoadReport::none();
        report.counts.connected = 2;
        report.counts.messages_over = messages;
        report.window = Some(Window {
            elapsed_ns: 1_000_000_000 + messages,
            messages,
            messages_per_s: messages as f64,
            cpu_ns: Some(7),
            ..Window::default()
        });
        let mut histogram = Histogram::default();
        histogram.extend(latencies.iter().map(|ns| (*ns, 1)));
        report.latency_histogram = histogram.recorded().collect();
        report.errors = [("reset".to_owned(), 1)].into();
        report.process_cpu_ns = Some(9);
        report
    }

    #[test]
    fn counts_are_added_and_round_trips_are_those_of_all() {
        let all = merged([report(100, &[5, 900]), report(50, &[7])]);
        assert_eq!((all.counts.connected, all.counts.messages_over), (4, 150));
        let window = all.window.as_ref().unwrap();
        assert_eq!((window.messages, window.elapsed_ns), (150, 1_000_000_100));
        assert_eq!((window.cpu_ns, all.process_cpu_ns), (Some(14), Some(18)));
        let mut one = Histogram::default();
        one.extend([5, 900, 7].map(|ns| (ns, 1)));
        assert_eq!(all.latency_histogram, one.recorded().collect::<Vec<_>>());
        assert_eq!(all.errors["reset"], 2);
        let mut silent = report(1, &[]);
        silent.window = None;
        assert_eq!(merged([report(1, &[1]), silent]).window, None);
    }

    fn merged([report, other]: [LoadReport; 2]) -> LoadReport {
        let mut all = All { report, invalid: None, uncertainty_ns: 7 };
        // As it is told from rank to rank.
        let told = serde_json::to_string(&All {
            report: other,
            invalid: Some("bytes".into()),
            uncertainty_ns: 3,
        });
        all.add(serde_json::from_str(&told.unwrap()).unwrap());
        assert_eq!(all.invalid.as_deref(), Some("bytes"));
        all.report
    }
}
