//! From what the server, its auditors and the system counted to the words of its report.

use weir::counters::os::ThreadUsage;
use weir::counters::{BatchSnapshot, Snapshot};
use weir_lab::wire;
use weir_load::audit::AuditReport;

/// All threads as one.
pub fn total(threads: &[Snapshot]) -> Snapshot {
    let mut total = Snapshot::default();
    threads.iter().for_each(|thread| total.merge(thread));
    total
}

/// A sum that is known only if both parts are.
pub fn both(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    Some(a? + b?)
}

/// How many datagrams the dequeues brought.
fn batches(counters: &Snapshot) -> wire::Batches {
    let of: &BatchSnapshot = &counters.batches;
    let count = of.count();
    let known = |value: u64| (count > 0).then_some(value);
    wire::Batches {
        min: known(of.min),
        p10: of.percentile(0.10),
        p50: of.percentile(0.50),
        p90: of.percentile(0.90),
        max: known(of.max),
        mean: (count > 0).then(|| counters.datagrams as f64 / count as f64),
    }
}

/// Puts into a report what each thread counted. Gives that of all.
pub fn put_counts(report: &mut wire::ServerReport, threads: &[Snapshot]) -> Snapshot {
    let total = total(threads);
    report.threads_started = threads.len() as u32;
    report.threads_used = threads.iter().filter(|thread| thread.datagrams > 0).count() as u32;
    report.counters = total.named().iter().map(|(name, n)| ((*name).to_owned(), *n)).collect();
    report.batches = batches(&total);
    report.threads = threads.iter().map(thread_report).collect();
    total
}

/// One thread.
fn thread_report(counters: &Snapshot) -> wire::ThreadReport {
    wire::ThreadReport {
        dequeues: counters.dequeues,
        notifies: counters.notifies,
        datagrams: counters.datagrams,
        batches: batches(counters),
        ..wire::ThreadReport::default()
    }
}

/// What the system counted of each thread, once they have ended; both in the same order.
pub fn add_usage(threads: &mut [wire::ThreadReport], usage: &[ThreadUsage]) {
    for (thread, usage) in threads.iter_mut().zip(usage) {
        thread.cpu_ns = usage.cpu_ns;
        thread.context_switches = both(usage.voluntary_switches, usage.involuntary_switches);
        thread.core = usage.core;
    }
}

/// What the auditors found.
pub fn audit_report(audit: &AuditReport) -> wire::Audit {
    wire::Audit {
        received: audit.received,
        strangers: audit.strangers,
        corrupt: audit.corrupt_bodies + audit.corrupt_headers + audit.unknown_flow,
        wrong_size: audit.wrong_size,
        duplicates: audit.duplicates,
        reordered: audit.reordered,
        data_errors: audit.data_errors,
        latency_ns: audit.latency_ns.as_ref().map(wire::Latency::from),
        latency_histogram: audit.latencies.recorded().collect(),
    }
}
