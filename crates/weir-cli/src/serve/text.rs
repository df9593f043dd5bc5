//! The report of a server for a person: what the originals printed, and more.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use weir::counters::{ENTRIES_SOURCE, ENTRIES_WITHOUT_FUTEX};
use weir::stream::UnixAddress;
use weir::tunable::Setting;
use weir_lab::report::number::{UNKNOWN, bytes, microseconds, or_unknown, per_1000, si};
use weir_lab::udp::plan::Work;
use weir_lab::wire::{Batches, ServerReport};

use super::watch::Now;
use crate::shown::TellArgs;
use serde_json::{Value, json};

/// The settings that are told before anything comes, in a line; what else one should know at once has a line of its own.
pub fn first_settings(settings: &BTreeMap<String, String>) -> String {
    let named = |names: &[&'static str]| {
        let value = |name: &&'static str| settings.get(*name).map(|value| (*name, value));
        names.iter().filter_map(value).collect::<Vec<_>>()
    };
    let first: Vec<String> = named(&["design", "provider", "threads", "echo"])
        .into_iter()
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    let mut text = format!("{}; --details shows all settings at the end\n", first.join(", "));
    for (name, value) in named(&["any-port", "metrics"]) {
        let _ = writeln!(text, "{name}: {value}");
    }
    text
}

/// Every setting, behind the report, where that was asked for.
pub fn details(all: &BTreeMap<String, String>, tell: TellArgs) -> String {
    if tell.details { format!("\nSettings:\n{}", settings(all)) } else { String::new() }
}

/// The figures of one interval, for programs.
pub fn fields(then: &Now, now: &Now) -> Value {
    let since = |now: Option<u64>, then: Option<u64>| Some(now?.saturating_sub(then?));
    json!({
        "from_ns": then.elapsed_ns,
        "to_ns": now.elapsed_ns,
        "datagrams": now.datagrams.saturating_sub(then.datagrams),
        "cpu_ns": since(now.cpu_ns, then.cpu_ns),
        "dropped_socket": since(now.dropped_socket, then.dropped_socket),
    })
}

/// The settings in effect, one a line.
pub fn settings<'a>(settings: impl IntoIterator<Item = (&'a String, &'a String)>) -> String {
    settings.into_iter().fold(String::new(), |mut text, (name, value)| {
        let _ = writeln!(text, "{name}: {value}");
        text
    })
}

/// The heading of the interval lines.
pub const INTERVAL_HEADING: &str = "      s  datagrams/s    CPU  dropped/s";

/// The line of one interval.
pub fn interval(then: &Now, now: &Now) -> String {
    let seconds = (now.elapsed_ns.saturating_sub(then.elapsed_ns) as f64 / 1e9).max(1e-9);
    let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
    let cpu = now.cpu_ns.zip(then.cpu_ns).map(|(now, then)| rate(now, then) / 1e9 * 100.0);
    let dropped = now.dropped_socket.zip(then.dropped_socket).map(|(now, then)| rate(now, then));
    format!(
        "{:>7.1}  {:>11}  {:>5}  {:>9}",
        now.elapsed_ns as f64 / 1e9,
        si(rate(now.datagrams, then.datagrams)),
        or_unknown(cpu, |percent| format!("{percent:.0} %")),
        or_unknown(dropped, si)
    )
}

/// The line behind that of an interval in which settings were changed.
pub fn in_force(settings: &[Setting]) -> String {
    let each = settings.iter().map(|setting| format!("{}={}", setting.name, setting.value));
    format!("settings in force: {}", each.collect::<Vec<_>>().join(" "))
}

/// The report at the end, the answer first. `work`, `dequeue_max` and `outstanding` are settings that the
/// originals printed; unknown ones are left out.
pub fn report(report: &ServerReport, work: Work) -> String {
    let mut text = String::new();
    let setting = |name: &str| report.settings.get(name);
    if report.runs > 1 {
        let _ = writeln!(
            text,
            "of the last of {} runs agreed over the control channel; CPU time, context switches and core of each \
             thread, and memory: of the server's whole life",
            report.runs
        );
    }
    if report.other_runs > 0 {
        let _ = writeln!(
            text,
            "other runs meanwhile: {}; counters, drops and CPU time are those of all together",
            report.other_runs
        );
    }
    let window = &report.window;
    let seconds = window.elapsed_ns as f64 / 1e9;
    let per_s = (seconds > 0.0).then(|| window.datagrams as f64 / seconds);
    let _ = writeln!(
        text,
        "{:.0} ms, {} datagrams, {} datagrams/s",
        seconds * 1000.0,
        window.datagrams,
        or_unknown(per_s, |rate| format!("{rate:.0}"))
    );
    if window.datagrams != report.audit.received && window.datagrams > 0 {
        let _ = writeln!(
            text,
            "that is the measured part, from the first reading of the counters that found datagrams to the last that \
             was followed by more; {} arrived in all",
            report.audit.received
        );
    }
    let cpu = window.cpu_ns.map(|ns| ns as f64);
    let per_datagram = cpu.filter(|_| window.handled > 0).map(|ns| ns / window.handled as f64);
    let _ = writeln!(
        text,
        "CPU: {} ns per datagram, {} of a core",
        or_unknown(per_datagram, |ns| format!("{ns:.0}")),
        or_unknown(cpu.filter(|_| seconds > 0.0), |ns| format!("{:.0} %", ns / 1e7 / seconds))
    );
    audit(&mut text, report);
    system(&mut text, report);
    let of_all = if work.shared { ", on state that all threads share under a lock" } else { "" };
    let _ = writeln!(text, "work per datagram: {} + 1 steps{of_all}", work.steps);
    for (name, words) in [("dequeue-max", "most per dequeue"), ("outstanding", "receives pending")]
    {
        if let Some(value) = setting(name) {
            let _ = writeln!(text, "{words}: {value}");
        }
    }
    let _ = writeln!(
        text,
        "threads running: {}; threads that handled any datagram: {}",
        report.threads_started, report.threads_used
    );
    for (index, thread) in report.threads.iter().enumerate() {
        let _ = writeln!(
            text,
            "thread {index}: {} dequeues, {} notifies, {} datagrams, {} per dequeue",
            thread.dequeues,
            thread.notifies,
            thread.datagrams,
            min_max_mean(&thread.batches)
        );
        let known = |n: Option<u64>| n.map_or_else(|| UNKNOWN.into(), |n| n.to_string());
        // Known once the server has stopped, and where the system tells it.
        if thread.cpu_ns.or(thread.context_switches).or(thread.core).is_some() {
            let _ = writeln!(
                text,
                "thread {index}: {} ms of CPU time, {} context switches, last on core {}",
                or_unknown(thread.cpu_ns.map(|ns| ns as f64 / 1e6), |ms| format!("{ms:.1}")),
                known(thread.context_switches),
                known(thread.core)
            );
        }
    }
    counters(&mut text, report);
    text
}

/// What stands before a number of entries into the kernel that leaves some out.
pub fn at_least(settings: &BTreeMap<String, String>) -> &'static str {
    let source = settings.get(ENTRIES_SOURCE).map(String::as_str);
    if source == Some(ENTRIES_WITHOUT_FUTEX) { "≥ " } else { "" }
}

fn system(text: &mut String, report: &ServerReport) {
    let system = &report.system;
    let datagrams = report.counters.get("datagrams").copied().unwrap_or_default();
    let ratio = |count: Option<u64>| {
        count.filter(|_| datagrams > 0).map(|count| count as f64 * 1000.0 / datagrams as f64)
    };
    let known = |count: Option<u64>| count.map_or_else(|| UNKNOWN.into(), |n| n.to_string());
    let _ = writeln!(
        text,
        "per 1000 datagrams: {} context switches, {} interrupts, {}{} kernel entries",
        or_unknown(ratio(system.context_switches), per_1000),
        or_unknown(ratio(system.interrupts), per_1000),
        at_least(&report.settings),
        or_unknown(ratio(report.counters.get("kernel_entries").copied()), per_1000)
    );
    let _ = writeln!(
        text,
        "dropped: {} at the device, {} at the queue of a CPU, {} at the socket{}",
        known(system.dropped_device),
        known(system.dropped_cpu_queue),
        known(system.dropped_socket),
        system
            .dropped_socket_source
            .iter()
            .map(|source| format!(" ({source})"))
            .collect::<String>()
    );
    // One socket is what the line above says.
    for socket in report.sockets.iter().filter(|_| report.sockets.len() > 1) {
        let at = match UnixAddress::of(socket.address) {
            Some(name) => name.to_string(),
            None => socket.address.to_string(),
        };
        let _ = writeln!(text, "socket {at}: {} dropped", known(socket.dropped));
    }
    let _ = writeln!(
        text,
        "memory: {} of the process, {} of the kernel for UDP",
        or_unknown(system.resident_bytes.map(|n| n as f64), bytes),
        or_unknown(system.kernel_bytes.map(|n| n as f64), bytes)
    );
}

fn audit(text: &mut String, report: &ServerReport) {
    let audit = &report.audit;
    let _ = writeln!(
        text,
        "audit: {} received, {} damaged, {} of wrong size, {} twice, {} out of order, {} not of this run",
        audit.received,
        audit.corrupt,
        audit.wrong_size,
        audit.duplicates,
        audit.reordered,
        audit.strangers
    );
    if let Some(latency) = audit.latency_ns {
        let us = |ns: u64| microseconds(ns as f64);
        let _ = writeln!(
            text,
            "latency: p50 {} µs, p90 {}, p99 {}, p99.9 {}, max {} ({} taken)",
            us(latency.p50),
            us(latency.p90),
            us(latency.p99),
            us(latency.p999),
            us(latency.max),
            latency.n
        );
    }
}

/// Every counter that is not 0 and was not shown yet.
fn counters(text: &mut String, report: &ServerReport) {
    let others: Vec<String> = report
        .counters
        .iter()
        .filter(|(name, count)| **count > 0 && *name != "datagrams")
        .map(|(name, count)| format!("{} {count}", name.replace('_', " ")))
        .collect();
    let _ = writeln!(text, "counters: {}", others.join(", "));
}

/// `1 - 1000 - 5.2`, as the originals had it: minimum, maximum, average.
fn min_max_mean(batches: &Batches) -> String {
    match (batches.min, batches.max, batches.mean) {
        (Some(min), Some(max), Some(mean)) => {
            format!("{min} - {max} - {mean:.1} (min - max - mean)")
        }
        _ => UNKNOWN.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_lab::wire::{Audit, Latency, SocketReport, SystemReport, ThreadReport, Window};

    #[test]
    fn the_report_has_what_the_originals_printed() {
        let batches =
            Batches { min: Some(1), max: Some(1000), mean: Some(5.25), ..Batches::default() };
        let all = ServerReport {
            threads_started: 8,
            threads_used: 1,
            settings: [
                ("outstanding", "150000"),
                ("dequeue-max", "1000"),
                (ENTRIES_SOURCE, ENTRIES_WITHOUT_FUTEX),
            ]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
            window: Window {
                elapsed_ns: 2_000_000_000,
                datagrams: 984_000,
                handled: 984_000,
                cpu_ns: Some(1_000_000_000),
                threads_cpu_ns: None,
            },
            threads: vec![ThreadReport {
                dequeues: 9,
                notifies: 4,
                datagrams: 984_000,
                batches,
                cpu_ns: Some(1_234_560_000),
                context_switches: Some(12),
                core: None,
            }],
            counters: [
                ("datagrams", 984_000),
                ("kernel_entries", 1968),
                ("posts", 7),
                ("overflows", 0),
            ]
            .map(|(name, count)| (name.to_owned(), count))
            .into(),
            audit: Audit {
                received: 984_000,
                latency_ns: Some(Latency { n: 5, p50: 4700, max: 14_000, ..Latency::default() }),
                ..Audit::default()
            },
            system: SystemReport { context_switches: Some(984), ..SystemReport::default() },
            sockets: [("127.0.0.1:7", Some(5)), ("[::1]:7", None)]
                .map(|(at, dropped)| SocketReport { address: at.parse().unwrap(), dropped })
                .into(),
            ..ServerReport::default()
        };
        let text = report(&all, Work { steps: 500, shared: false });
        for line in [
            "work per datagram: 500 + 1 steps",
            "most per dequeue: 1000",
            "receives pending: 150000",
            "threads running: 8; threads that handled any datagram: 1",
            "thread 0: 9 dequeues, 4 notifies, 984000 datagrams, 1 - 1000 - 5.2 (min - max - mean) per dequeue",
            "thread 0: 1234.6 ms of CPU time, 12 context switches, last on core -",
            "2000 ms, 984000 datagrams, 492000 datagrams/s",
            "CPU: 1016 ns per datagram, 50 % of a core",
            "per 1000 datagrams: 1.0 context switches, - interrupts, ≥ 2.0 kernel entries",
            "dropped: - at the device, - at the queue of a CPU, - at the socket",
            "socket 127.0.0.1:7: 5 dropped",
            "socket [::1]:7: - dropped",
            "counters: kernel entries 1968, posts 7",
        ] {
            assert!(text.lines().any(|l| l == line), "{line:?} is missing of\n{text}");
        }
        assert!(text.contains("latency: p50 4.7 µs"), "{text}");
        assert!(text.starts_with("2000 ms, 984000 datagrams"), "one run is all there is: {text}");
        assert!(!text.contains("arrived in all"), "the window has them all: {text}");
        let audit = Audit { received: 1_000_000, ..all.audit.clone() };
        let more = report(&ServerReport { audit, ..all.clone() }, Work::default());
        assert!(more.contains("; 1000000 arrived in all"), "{more}");
        let last = report(&ServerReport { runs: 3, ..all }, Work::default());
        assert!(last.starts_with("of the last of 3 runs agreed "), "{last}");
    }

    /// The originals divided by whole milliseconds and multiplied again, so that every rate was a
    /// multiple of 1000 and a low one was 0.
    #[test]
    fn a_rate_is_divided_last() {
        for (elapsed_ns, datagrams, rate) in [
            (2_000_000_000, 999, "500"),           // 999 / 2000 ms
            (1_000_900_000, 1_234_567, "1233457"), // / 1000 ms
            (900_000, 9, "10000"),                 // / 0 ms
        ] {
            let window = Window { elapsed_ns, datagrams, handled: datagrams, ..Window::default() };
            let text = report(&ServerReport { window, ..ServerReport::default() }, Work::default());
            let end = format!(" {datagrams} datagrams, {rate} datagrams/s");
            assert!(text.lines().any(|line| line.ends_with(&end)), "{end:?} is missing of\n{text}");
        }
        let now = Now { elapsed_ns: 2_000_000_000, datagrams: 999, ..Now::ZERO };
        assert!(interval(&Now::ZERO, &now).contains(" 500 "), "{}", interval(&Now::ZERO, &now));
    }

    #[test]
    fn an_interval_is_a_difference() {
        let then = Now {
            elapsed_ns: 1_000_000_000,
            datagrams: 500,
            cpu_ns: Some(0),
            dropped_socket: None,
        };
        let now = Now {
            elapsed_ns: 2_000_000_000,
            datagrams: 1500,
            cpu_ns: Some(500_000_000),
            dropped_socket: Some(3),
        };
        assert_eq!(interval(&then, &now), "    2.0          1 k   50 %          -");
    }
}
