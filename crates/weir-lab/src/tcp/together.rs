//! What the clients at several hosts did together, as one report: counts are added up, round trips merged as histograms.

use std::collections::BTreeMap;

use weir_load::latency::Histogram;
use weir_load::tcp::{Holds, Window};

use super::plan::Load;
use super::wire::LoadReport;
use crate::udp::together::share;

/// The part that one of several clients has of a load; `None` if there are more clients than connections.
pub fn part(load: &Load, index: usize, of: usize) -> Option<Load> {
    let all = load.connections_per_block();
    let own = share(all.into(), index, of) as u32;
    let rate = |bytes: u32| (u64::from(bytes) * u64::from(own) / u64::from(all.max(1))).max(1);
    (own > 0).then(|| Load {
        connections: own * load.blocks.max(1),
        block_bytes_per_s: load.block_bytes_per_s.map(|bytes| rate(bytes) as u32),
        ..*load
    })
}

/// All of them as one; `None` of none.
pub fn merged(parts: Vec<LoadReport>) -> Option<LoadReport> {
    let mut parts = parts.into_iter();
    let mut all = parts.next()?;
    for part in parts {
        add(&mut all, part);
    }
    Some(all)
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
    use crate::tcp::plan::Pattern;

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
        let all = merged(vec![report(100, &[5, 900]), report(50, &[7])]).unwrap();
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
        assert_eq!(merged(vec![report(1, &[1]), silent]).unwrap().window, None);
        assert_eq!(merged(vec![]), None);
    }

    #[test]
    fn connections_and_rates_are_divided() {
        let load = Load::new(Pattern::PingPong, 64, 10, None, None);
        let parts: Vec<_> = (0..4).map(|index| part(&load, index, 4)).collect();
        let of: Vec<u32> = parts.iter().flatten().map(|part| part.connections).collect();
        assert_eq!(of, [3, 3, 2, 2]);
        let one = Load::new(Pattern::PingPong, 64, 1, None, None);
        assert_eq!(part(&one, 1, 2), None, "there is one connection");
        let paced = Load { block_bytes_per_s: Some(1000), ..load };
        let rates: Vec<u32> =
            (0..4).filter_map(|index| part(&paced, index, 4)?.block_bytes_per_s).collect();
        assert_eq!(rates, [300, 300, 200, 200]);
    }
}
