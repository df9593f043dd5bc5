//! The metrics of a UDP server.

use std::collections::BTreeMap;

use weir::counters::Snapshot;
use weir::counters::names::{CALLS, UDP};
use weir::counters::os::ProcessUsage;
use weir::tunable::Setting;

use super::{About, Kind, Value, batches, now, write_counters, write_process};

/// What a UDP server tells at a moment.
#[derive(Debug, Clone)]
pub struct Figures {
    /// What all threads counted since the server began.
    pub total: Snapshot,
    /// Threads that have begun.
    pub threads: usize,
    /// Their CPU time in nanoseconds, if known.
    pub threads_cpu_ns: Option<u64>,
    /// What the process used.
    pub process: ProcessUsage,
    /// Datagrams dropped before the server could take them, by where that was, as far as it is known.
    pub dropped: [(&'static str, Option<u64>); 3],
    /// Memory of the kernel for UDP, in bytes.
    pub kernel_bytes: Option<u64>,
    /// Runs of generators that are open.
    pub runs_open: usize,
    /// Runs that have ended.
    pub runs_ended: u32,
    /// Those of them of which data or counts were wrong.
    pub runs_wrong: u32,
    /// Settings that may be changed while the server runs.
    pub settings: Vec<Setting>,
}

/// Makes the page, again and again, from what `read` gives.
pub fn pages(about: About, read: impl Fn() -> Figures) -> impl FnMut() -> String {
    let began = now();
    let mut most = BTreeMap::new();
    move || {
        let mut figures = read();
        // One of them is the difference of counters that are not read at one moment, and so may seem to shrink.
        for (at, dropped) in &mut figures.dropped {
            if let Some(dropped) = dropped {
                let known = most.entry(*at).or_insert(0);
                *known = (*known).max(*dropped);
                *dropped = *known;
            }
        }
        page(&about, &figures, began)
    }
}

fn page(about: &About, figures: &Figures, began: Option<u64>) -> String {
    let Figures { total, dropped, .. } = figures;
    let mut page = about.page();
    write_counters(&mut page, UDP, &total.named());
    write_counters(&mut page, CALLS, &total.named());
    page.histogram(
        "weir_batch_datagrams",
        "Datagrams per dequeue, without the empty ones.",
        &batches(&total.batches, Some(total.datagrams)),
    );
    let labels = dropped.map(|(at, _)| [("reason", at)]);
    let samples = labels
        .iter()
        .zip(dropped)
        .filter_map(|(label, (_, count))| Some((label.as_slice(), Value::Count((*count)?))));
    page.several(
        Kind::Counter,
        "weir_datagrams_dropped_total",
        "Datagrams dropped since the server began, by place: at its sockets, at the queue of a CPU, at the network device. \
         Those at a queue or a device may belong to other programs.",
        &samples.collect::<Vec<_>>(),
    );
    page.one(Kind::Gauge, "weir_threads", "Threads of the server.", Some(figures.threads as u64));
    page.one(
        Kind::Counter,
        "weir_threads_cpu_seconds_total",
        "CPU time of the server's threads, without those that watch the server and serve this page.",
        figures.threads_cpu_ns.map(Value::Nanoseconds),
    );
    page.one(
        Kind::Gauge,
        "weir_kernel_memory_bytes",
        "Memory that the kernel holds for UDP, for all programs.",
        figures.kernel_bytes,
    );
    page.one(
        Kind::Gauge,
        "weir_runs_open",
        "Runs of generators, begun over the control channel, that are still open.",
        Some(figures.runs_open as u64),
    );
    page.one(
        Kind::Counter,
        "weir_runs_ended_total",
        "Runs of generators that have ended.",
        Some(u64::from(figures.runs_ended)),
    );
    page.one(
        Kind::Counter,
        "weir_runs_wrong_total",
        "Runs with wrong data, or that the generator did not end itself.",
        Some(u64::from(figures.runs_wrong)),
    );
    let labels: Vec<_> =
        figures.settings.iter().map(|of| ([("setting", of.name)], of.number)).collect();
    let samples = labels.iter().map(|(label, value)| (label.as_slice(), Value::Count(*value)));
    page.several(
        Kind::Gauge,
        "weir_setting",
        "Settings that may be changed while the server runs (weir set): a time in microseconds, a flag as 0 or 1.",
        &samples.collect::<Vec<_>>(),
    );
    write_process(&mut page, &figures.process, began);
    page.text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_of_drops_never_shrinks_and_an_unknown_one_is_left_out() {
        let about = About { design: "d".into(), given: "d".into(), provider: "p".into() };
        let readings = [(Some(5), Some(9)), (Some(3), None), (Some(6), Some(8))];
        let next = std::cell::Cell::new(0);
        let mut pages = pages(about, || {
            let (socket, device) = readings[next.replace(next.get() + 1)];
            Figures {
                total: Snapshot::default(),
                threads: 1,
                threads_cpu_ns: None,
                process: ProcessUsage::default(),
                dropped: [("socket", socket), ("cpu_queue", None), ("device", device)],
                kernel_bytes: None,
                runs_open: 0,
                runs_ended: 0,
                runs_wrong: 0,
                settings: vec![],
            }
        });
        let told = |page: String| -> Vec<String> {
            let of_drops = |line: &&str| line.starts_with("weir_datagrams_dropped_total{");
            page.lines()
                .filter(of_drops)
                .map(|line| line.rsplit("reason=\"").next().unwrap_or_default().to_owned())
                .collect()
        };
        assert_eq!(told(pages()), ["socket\"} 5", "device\"} 9"]);
        assert_eq!(told(pages()), ["socket\"} 5"]);
        assert_eq!(told(pages()), ["socket\"} 6", "device\"} 9"]);
    }
}
