//! What a TCP server did, for a person and as a document.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};
use weir::counters::os::{ProcessUsage, Sampler, SystemUsage};
use weir::counters::stream::Snapshot;
use weir::tcp::{Final, Running, ThreadFinal};
use weir_lab::performance::Record;
use weir_lab::report::number::{UNKNOWN, bytes, or_unknown, per_1000, si};
use weir_lab::tcp::wire::{Standing, Window};
use weir_load::clock::now_ns;

use crate::serve::{account::both, text::at_least};

/// The heading of the interval lines.
pub const INTERVAL_HEADING: &str =
    "      s       open  accepted/s  receives/s  Mbit/s in       out    CPU";

/// What was counted up to a moment.
#[derive(Debug, Clone)]
pub struct Totals {
    /// When, of the machine's clock.
    at_ns: u64,
    counters: Snapshot,
    calls: weir::counters::Snapshot,
    open: u32,
    process: ProcessUsage,
    system: SystemUsage,
    /// Whether its entries are those that the kernel counted.
    by_kernel: bool,
}

impl Totals {
    /// Entries into the kernel as that counted them.
    pub fn entries_are(&mut self, count: u64) {
        self.calls.kernel_entries = count;
        self.by_kernel = true;
    }

    /// Reads all of it.
    pub fn read(running: &Running, sampler: &mut Sampler) -> Self {
        Self {
            at_ns: now_ns(),
            counters: running.counters(),
            calls: running.calls(),
            open: running.open(),
            process: sampler.process(),
            system: sampler.system(),
            by_kernel: false,
        }
    }
}

/// Whether the entries between two marks are those that the kernel counted.
pub fn counted_by_kernel(marks: &[Totals]) -> bool {
    marks.len() == 2 && marks.iter().all(|mark| mark.by_kernel)
}

/// What was counted between two marks.
pub fn window(marks: &[Totals]) -> Option<Window> {
    let [from, to] = marks else { return None };
    let of = |named: Vec<(&'static str, u64)>| -> BTreeMap<String, u64> {
        named.into_iter().map(|(name, count)| (name.to_owned(), count)).collect()
    };
    let used = to.process.since(&from.process);
    Some(Window {
        elapsed_ns: to.at_ns.saturating_sub(from.at_ns),
        ended_ns: to.at_ns,
        accepted: Some(to.counters.accepted),
        cpu_ns: used.cpu_ns,
        context_switches: both(used.voluntary_switches, used.involuntary_switches),
        voluntary_switches: used.voluntary_switches,
        counters: of(to.counters.since(&from.counters).named()),
        calls: of(to.calls.since(&from.calls).named()),
    })
}

/// The line of one interval.
pub fn interval(elapsed: Duration, then: &Totals, now: &Totals) -> String {
    let seconds =
        Duration::from_nanos(now.at_ns.saturating_sub(then.at_ns)).as_secs_f64().max(1e-9);
    let counted = now.counters.since(&then.counters);
    let rate = |count: u64| count as f64 / seconds;
    let cpu = now.process.since(&then.process).cpu_ns.map(|ns| rate(ns) / 1e9 * 100.0);
    format!(
        "{:>7.1} {:>10}  {:>10}  {:>10}  {:>9.1} {:>9.1}  {:>5}",
        elapsed.as_secs_f64(),
        now.open,
        si(rate(counted.accepted)),
        si(rate(counted.messages)),
        rate(counted.bytes_received) * 8.0 / 1e6,
        rate(counted.bytes_sent) * 8.0 / 1e6,
        or_unknown(cpu, |percent| format!("{percent:.0} %"))
    )
}

/// The figures of one interval, for programs; its times are since the server began.
pub fn fields([from, to]: [Duration; 2], then: &Totals, now: &Totals) -> Value {
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let counted = now.counters.since(&then.counters);
    json!({
        "from_ns": ns(from),
        "to_ns": ns(to),
        "open": now.open,
        "accepted": counted.accepted,
        "receives": counted.messages,
        "bytes_received": counted.bytes_received,
        "bytes_sent": counted.bytes_sent,
        "cpu_ns": now.process.since(&then.process).cpu_ns,
    })
}

/// One thread.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ThreadReport {
    /// Connections that it accepted.
    pub accepted: u64,
    /// Receives that brought something.
    pub receives: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Bytes sent.
    pub bytes_sent: u64,
    /// CPU time in ns, if known.
    pub cpu_ns: Option<u64>,
    /// Context switches, if known.
    pub context_switches: Option<u64>,
    /// The core it last ran on, if known.
    pub core: Option<u64>,
}

/// What a server did.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// Name of its design.
    pub design: String,
    /// The settings in effect, by name.
    pub settings: BTreeMap<String, String>,
    /// From the start to the stop, in ns.
    pub elapsed_ns: u64,
    /// What it counted of connections and bytes, by name, over all threads.
    pub counters: BTreeMap<&'static str, u64>,
    /// What its calls counted, by name: kernel entries, waits and the like.
    pub calls: BTreeMap<&'static str, u64>,
    /// Connections that one wake-up brought something for: the median, and the most.
    pub ready_p50: Option<u64>,
    /// See `ready_p50`.
    pub ready_max: Option<u64>,
    /// Connections that ended.
    pub closed: u64,
    /// Connections that nobody closed: none.
    pub open: u32,
    /// The most connections that were open at a time.
    pub most_open: u32,
    /// The most threads at a time.
    pub most_threads: usize,
    /// Threads that ended while the server ran.
    pub threads_gone: u64,
    /// Those that ran at the end.
    pub threads: Vec<ThreadReport>,
    /// What was done with timers, by name.
    pub timers: BTreeMap<&'static str, u64>,
    /// CPU time of the process since the server started, in ns.
    pub cpu_ns: Option<u64>,
    /// Context switches of the process since then.
    pub context_switches: Option<u64>,
    /// Interrupts of the machine since then.
    pub interrupts: Option<u64>,
    /// The most memory that the process had, in bytes.
    pub resident_bytes: Option<u64>,
    /// What was counted between two marks, where whoever started it asked for them.
    pub window: Option<Window>,
    /// What it held when all connections stood, likewise.
    pub standing: Option<Standing>,
    /// The performance log between the marks, likewise.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub performance: Vec<Record>,
    /// Why it stopped by itself, if it did.
    pub failure: Option<String>,
}

impl Report {
    /// Of a server that was stopped.
    pub fn of(
        design: String,
        settings: BTreeMap<String, String>,
        fin: &Final,
        before: &Totals,
        sampler: &mut Sampler,
    ) -> Self {
        let (total, calls) = (fin.total(), fin.calls());
        let process = sampler.process();
        let used = process.since(&before.process);
        let timers = fin.timers;
        let batches = &total.batches;
        Self {
            design,
            settings,
            elapsed_ns: u64::try_from(fin.elapsed.as_nanos()).unwrap_or(u64::MAX),
            counters: total.named().into_iter().collect(),
            calls: calls.named().into_iter().filter(|(_, count)| *count > 0).collect(),
            ready_p50: batches.percentile(0.5),
            ready_max: (batches.count() > 0).then_some(batches.max),
            closed: total.closed(),
            open: fin.open,
            most_open: fin.most_open,
            most_threads: fin.most_threads,
            threads_gone: fin.gone.threads,
            threads: fin.threads.iter().map(thread).collect(),
            timers: BTreeMap::from([
                ("created", timers.created),
                ("set", timers.set),
                ("updated", timers.updated),
                ("fired", timers.fired),
                ("cancelled", timers.cancelled),
            ]),
            cpu_ns: used.cpu_ns,
            context_switches: both(used.voluntary_switches, used.involuntary_switches),
            interrupts: sampler.system().since(&before.system).total.interrupts,
            resident_bytes: process.peak_resident_bytes,
            window: None,
            standing: None,
            performance: vec![],
            failure: None,
        }
    }

    fn counter(&self, name: &str) -> u64 {
        self.counters.get(name).copied().unwrap_or_default()
    }

    /// The report for a person.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let known = |n: Option<u64>| n.map_or_else(|| UNKNOWN.into(), |n| n.to_string());
        let receives = self.counter("messages");
        let seconds = self.elapsed_ns as f64 / 1e9;
        let _ = writeln!(
            text,
            "{:.0} ms, {receives} receives, {} bytes in, {} out",
            seconds * 1000.0,
            self.counter("bytes_received"),
            self.counter("bytes_sent")
        );
        // Filters turn away what was accepted: such connections are among those, and among those that ended.
        let refused = match (self.counter("closed_by_filter"), self.counter("refused")) {
            (0, refused) => format!("{refused} refused"),
            (filtered, 0) => format!("{filtered} refused or ended by a filter"),
            (filtered, refused) => {
                format!("{refused} refused, {filtered} refused or ended by a filter")
            }
        };
        let _ = writeln!(
            text,
            "connections: {} accepted, {refused}, {} ended; {} open at a time at most",
            self.counter("accepted"),
            self.closed,
            self.most_open
        );
        let per = |count: Option<u64>| {
            count.filter(|_| receives > 0).map(|count| count as f64 / receives as f64)
        };
        let cpu = self.cpu_ns.map(|ns| ns as f64);
        let _ = writeln!(
            text,
            "CPU: {} ns per receive, {} of a core",
            or_unknown(per(self.cpu_ns), |ns| format!("{ns:.0}")),
            or_unknown(cpu.filter(|_| seconds > 0.0), |ns| format!("{:.0} %", ns / 1e7 / seconds))
        );
        let entries = self.calls.get("kernel_entries").copied();
        let per_thousand =
            |count: Option<u64>| or_unknown(per(count).map(|n| n * 1000.0), per_1000);
        let _ = writeln!(
            text,
            "per 1000 receives: {} context switches, {} interrupts, {}{} kernel entries",
            per_thousand(self.context_switches),
            per_thousand(self.interrupts),
            at_least(&self.settings),
            per_thousand(entries)
        );
        let _ = writeln!(
            text,
            "memory: {} of the process",
            or_unknown(self.resident_bytes.map(|n| n as f64), bytes)
        );
        let _ = writeln!(
            text,
            "threads: {} at the end, {} at most; {} ended before",
            self.threads.len(),
            self.most_threads,
            self.threads_gone
        );
        for (index, thread) in self.threads.iter().enumerate().take(THREADS_SHOWN) {
            let _ = writeln!(
                text,
                "thread {index}: {} connections, {} receives, {} bytes in, {} out, {} ms of CPU \
                 time, {} context switches, last on core {}",
                thread.accepted,
                thread.receives,
                thread.bytes_received,
                thread.bytes_sent,
                or_unknown(thread.cpu_ns.map(|ns| ns as f64 / 1e6), |ms| format!("{ms:.1}")),
                known(thread.context_switches),
                known(thread.core)
            );
        }
        if self.threads.len() > THREADS_SHOWN {
            let _ = writeln!(text, "and {} more threads", self.threads.len() - THREADS_SHOWN);
        }
        let list = |counts: &BTreeMap<&'static str, u64>| {
            let counted = counts.iter().filter(|(_, count)| **count > 0);
            let words = counted.map(|(name, count)| format!("{} {count}", name.replace('_', " ")));
            words.collect::<Vec<_>>().join(", ")
        };
        for (name, counts) in [("counters", list(&self.counters)), ("timers", list(&self.timers))] {
            // Where nothing was counted there is nothing to say.
            if !counts.is_empty() {
                let _ = writeln!(text, "{name}: {counts}");
            }
        }
        text
    }
}

/// Threads that a person is shown, of a design that may have thousands.
const THREADS_SHOWN: usize = 16;

fn thread(thread: &ThreadFinal) -> ThreadReport {
    let ThreadFinal { counters, usage, .. } = thread;
    ThreadReport {
        accepted: counters.accepted,
        receives: counters.messages,
        bytes_received: counters.bytes_received,
        bytes_sent: counters.bytes_sent,
        cpu_ns: usage.cpu_ns,
        context_switches: both(usage.voluntary_switches, usage.involuntary_switches),
        core: usage.core,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_has_the_figures_of_the_report() {
        let report = Report {
            elapsed_ns: 2_000_000_000,
            counters: [("accepted", 7), ("messages", 1000), ("bytes_received", 64_000)].into(),
            calls: [("kernel_entries", 3000)].into(),
            closed: 7,
            most_open: 5,
            most_threads: 20,
            threads: vec![ThreadReport { accepted: 1, ..ThreadReport::default() }; 18],
            cpu_ns: Some(5_000_000),
            ..Report::default()
        };
        let text = report.text();
        assert!(text.starts_with("2000 ms, 1000 receives"), "the answer first: {text}");
        for line in [
            "threads: 18 at the end, 20 at most; 0 ended before",
            "and 2 more threads",
            "connections: 7 accepted, 0 refused, 7 ended; 5 open at a time at most",
            "2000 ms, 1000 receives, 64000 bytes in, 0 out",
            "CPU: 5000 ns per receive, 0 % of a core",
            "per 1000 receives: - context switches, - interrupts, 3000 kernel entries",
            "counters: accepted 7, bytes received 64000, messages 1000",
        ] {
            assert!(text.lines().any(|l| l == line), "{line:?} is missing of\n{text}");
        }
        assert!(!text.contains("timers"), "there were none: {text}");
        let of = |counters: &[(&'static str, u64)]| {
            let counters = counters.iter().copied().collect();
            Report { counters, closed: 5, most_open: 1, ..Report::default() }.text()
        };
        let by_filter = of(&[("accepted", 5), ("closed_by_filter", 4)]);
        assert!(by_filter.contains("5 accepted, 4 refused or ended by a filter, 5 ended"));
        let by_both = of(&[("accepted", 5), ("refused", 2), ("closed_by_filter", 4)]);
        assert!(by_both.contains("5 accepted, 2 refused, 4 refused or ended by a filter, 5 ended"));
        let report = Report { timers: [("set", 3), ("fired", 0)].into(), ..report };
        assert!(report.text().ends_with("\ntimers: set 3\n"), "{}", report.text());
    }
}
