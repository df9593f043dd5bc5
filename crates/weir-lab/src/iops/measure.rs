//! The run itself.

use super::{EndedBy, Event, Progress, Report, Spec, Window, decay, per_s};
use crate::performance::{Batches, Now, Recorder, ThreadNow};
use crate::stats::bootstrap;
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};
use weir::{
    Error, counters,
    counters::{
        ENTRIES_BY_KERNEL, ENTRIES_SOURCE,
        device::Snapshot,
        os::{KernelEntries, ProcessUsage, Sampler},
    },
    device::{Final, Handler, Kind, Running},
    machine::{Load, LoadMeter, Machine},
};
use weir_load::{
    Stop,
    latency::{Histogram, Latencies},
};

/// Readings of the clock by which it is known how long one takes: some ten microseconds in all.
const READINGS: u32 = 512;

/// Notes latencies; of what was read it does not look at a byte.
pub(super) struct Timed(Arc<Latencies>);

impl Timed {
    pub fn new(latencies: Arc<Latencies>) -> Self {
        Self(latencies)
    }
}

impl Handler for Timed {
    fn on_sample(&mut self, ns: u64) {
        self.0.record(ns);
    }
}

/// How long a request to stop may wait to be seen.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

const SECOND: Duration = Duration::from_secs(1);

/// All that is read at one moment.
pub(super) struct Reading {
    pub at: Instant,
    pub counts: Snapshot,
    pub calls: counters::Snapshot,
    pub usage: ProcessUsage,
}

impl Reading {
    /// Where `entries` are counted by the kernel, they are those.
    pub fn now<H>(
        running: &Running<H>,
        sampler: &mut Sampler,
        entries: Option<&KernelEntries>,
    ) -> Result<Self, Error> {
        let mut calls = running.calls();
        if let Some(entries) = entries {
            calls.kernel_entries =
                entries.read().map_err(|e| Error::io("reading the count of kernel entries", e))?;
        }
        Ok(Self { at: Instant::now(), counts: running.counters(), calls, usage: sampler.process() })
    }
}

/// Measures it. `stop` ends it early, with what was found so far.
///
/// # Errors
/// Whatever fails before the first I/O; later only what the kernel counted, where that was asked for and cannot be read.
pub fn measure(
    spec: &Spec,
    stop: &Stop,
    mut watch: impl FnMut(Event<'_>),
) -> Result<Report, Error> {
    let machine = Machine::describe();
    let latencies: Arc<Mutex<Vec<Arc<Latencies>>>> = Arc::default();
    let handlers = Arc::clone(&latencies);
    let entries = spec.count_entries.then(KernelEntries::begin).transpose()?;
    if let Some(entries) = &entries {
        // Those who look on do not count; the design's threads come now.
        entries
            .leave_out_all_but(&[])
            .map_err(|e| Error::io("leaving threads out of the count of kernel entries", e))?;
    }
    let running = spec.reads().start(spec.design.clone(), move |_| {
        let own = Arc::new(Latencies::default());
        handlers.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&own));
        Timed::new(own)
    })?;
    let mut effective = running.effective();
    if entries.is_some() {
        effective.retain(|(name, _)| name != ENTRIES_SOURCE);
        effective.push((ENTRIES_SOURCE.into(), ENTRIES_BY_KERNEL.into()));
    }
    watch(Event::Ready(&effective));
    let entries_source = entries_source(effective);
    let mut sampler = Sampler::new();
    let mut performance = vec![];
    let mut ended = wait(&running, stop, Instant::now() + spec.warm_up);
    let window = match ended {
        Some(_) => None,
        None => {
            let mut meter = LoadMeter::start();
            let first = Reading::now(&running, &mut sampler, entries.as_ref())?;
            let mut course = Course::new(&first, spec);
            if let Some(log) = &mut course.log {
                log.begin(now(&running));
            }
            ended = course.follow(&running, stop, &mut watch);
            if let Some(log) = &mut course.log {
                performance = log.end(now(&running));
            }
            let last = Reading::now(&running, &mut sampler, entries.as_ref())?;
            course.end(&last, &mut watch);
            Some((Used::between(&first, &last).window(course.seconds), meter.read(0)))
        }
    };
    // All of them may have been over before it began.
    let window = window.filter(|(window, _)| window.completed > 0 || ended != Some(EndedBy::Ios));
    let watched =
        Watched { machine: &machine, window, ended, entries_source, latencies: &latencies };
    Ok(Report { performance, ..report(spec, watched, running.stop()) })
}

/// By what entries into the kernel are counted, of the settings in effect.
pub(super) fn entries_source(effective: Vec<(String, String)>) -> String {
    let found = effective.into_iter().find(|(name, _)| name == ENTRIES_SOURCE);
    found.map(|(_, source)| source).unwrap_or_default()
}

/// What was seen of a run until it was stopped.
pub(super) struct Watched<'a> {
    pub machine: &'a Machine,
    pub window: Option<(Window, Load)>,
    pub ended: Option<EndedBy>,
    /// What the entries into the kernel were counted by.
    pub entries_source: String,
    pub latencies: &'a Mutex<Vec<Arc<Latencies>>>,
}

/// The report of a run that is over.
pub(super) fn report<H>(spec: &Spec, watched: Watched<'_>, report: Final<H>) -> Report {
    let Watched { machine, window, ended, entries_source, latencies } = watched;
    let total = report.total();
    let mut histogram = Histogram::default();
    for own in latencies.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        own.add_to(&mut histogram);
    }
    let load = window.as_ref().map(|(_, load)| *load).unwrap_or_default();
    let mut warnings = crate::machine::warnings_of_ios(machine, load);
    if spec.device.kind() == Kind::File && total.empty > 0 {
        warnings.push(format!(
            "{} reads of the file were empty: it holds nothing, or has become shorter meanwhile",
            total.empty
        ));
    }
    let window = window.map(|(window, load)| Window {
        load_of_others_percent: load.others.map(|share| share * 100.0),
        ..window
    });
    let threads = report.threads.len();
    let ended_by = match ended {
        _ if report.failure.is_some() => EndedBy::Failure,
        Some(ended_by) => ended_by,
        None => EndedBy::Time,
    };
    let mut errors = report.errors.by_kind().to_vec();
    let named: u64 = errors.iter().map(|(_, times)| times).sum();
    if report.errors.all() > named {
        errors.push(("others".into(), report.errors.all() - named));
    }
    Report {
        design: spec.design.about().name.into(),
        kernel_entries_source: entries_source,
        provider: spec.design.provider().into(),
        device: spec.device.path().display().to_string(),
        kind: spec.device.kind().to_string(),
        direction: spec.device.direction().to_string(),
        length_bytes: spec.length,
        counts: (&total).into(),
        errors,
        machine: crate::machine::properties(machine),
        sampling_percent: window
            .as_ref()
            .and_then(|window| share_of_clock(spec.sample_every, threads, window))
            .map(|share| share * 100.0),
        window,
        latency_ns: histogram.summary(),
        latency_histogram: histogram,
        sample_every: spec.sample_every,
        performance: vec![],
        warnings,
        ended_by,
        failure: report.failure.map(|failure| failure.to_string()),
        over_time: None,
    }
}

/// The share (0 to 1) of an I/O's CPU time, or of its thread's time where that is not known, that goes into
/// reading the clock twice for each I/O that is timed, by what a reading takes now. `None` where none is timed,
/// or none was seen.
fn share_of_clock(sample_every: u32, threads: usize, window: &Window) -> Option<f64> {
    if sample_every == 0 || window.completed == 0 {
        return None;
    }
    let began = Instant::now();
    for _ in 0..READINGS {
        std::hint::black_box(Instant::now());
    }
    let reading_ns = began.elapsed().as_nanos() as f64 / f64::from(READINGS);
    // What an I/O takes of a thread that issues one after the other.
    let elapsed_ns = window
        .cpu_ns_per_io
        .unwrap_or_else(|| window.elapsed_ns as f64 * threads as f64 / window.completed as f64);
    (elapsed_ns > 0.0).then(|| 2.0 * reading_ns / f64::from(sample_every) / elapsed_ns)
}

/// Waits until then; why it ended before, if it did.
pub(super) fn wait<H>(running: &Running<H>, stop: &Stop, until: Instant) -> Option<EndedBy> {
    loop {
        if stop.is_requested() {
            return Some(EndedBy::Asked);
        }
        let left = until.saturating_duration_since(Instant::now());
        if running.wait_for(left.min(LOOK_AGAIN)) {
            return Some(EndedBy::Ios);
        }
        if left.is_zero() {
            return None;
        }
    }
}

/// The seconds and the intervals of the time watched.
struct Course {
    began: Instant,
    end: Instant,
    second: Mark,
    interval: Option<(Duration, Mark)>,
    /// I/Os completed and bytes that came before it began.
    before: (u64, u64, u64),
    seconds: Vec<f64>,
    /// The performance log, where one is asked for.
    log: Option<Recorder>,
}

/// The last reading of a row of them.
#[derive(Clone, Copy)]
struct Mark {
    /// When the next is due.
    next: Instant,
    at: Instant,
    /// Completed, failed, bytes.
    counts: (u64, u64, u64),
}

/// Most seconds kept: more than a day. What follows is in the totals only.
const SECONDS_MAX: usize = 100_000;

fn counts(of: &Snapshot) -> (u64, u64, u64) {
    (of.completed, of.failed, of.bytes)
}

impl Course {
    fn new(first: &Reading, spec: &Spec) -> Self {
        let (began, before) = (first.at, counts(&first.counts));
        let mark = |every: Duration| Mark { next: began + every, at: began, counts: before };
        Self {
            began,
            end: began + spec.time,
            second: mark(SECOND),
            interval: spec.interval.map(|every| (every, mark(every))),
            before,
            seconds: Vec::new(),
            log: spec.performance.map(Recorder::new),
        }
    }

    /// Reads at the end of each second and of each interval, until the time is over.
    fn follow(
        &mut self,
        running: &Running<Timed>,
        stop: &Stop,
        watch: &mut impl FnMut(Event<'_>),
    ) -> Option<EndedBy> {
        loop {
            let interval = self.interval.map(|(_, mark)| mark.next);
            let log = self.log.as_ref().and_then(Recorder::due);
            let next =
                interval.into_iter().chain(log).fold(self.second.next.min(self.end), Instant::min);
            let ended = wait(running, stop, next);
            if ended.is_some() {
                return ended;
            }
            // Counters and clock together, once for all that is due.
            let (counts, now) = (counts(&running.counters()), Instant::now());
            if now >= self.second.next {
                self.second(counts, now);
            }
            if let Some((every, mark)) = self.interval
                && now >= mark.next
            {
                let next = Mark { next: mark.next + every, at: now, counts };
                watch(Event::Interval(self.progress(&mark, &next)));
                self.interval = Some((every, next));
            }
            if now >= self.end {
                return None;
            }
            if let Some(log) = self.log.as_mut().filter(|log| log.is_due()) {
                log.read(self::now(running));
            }
        }
    }

    fn second(&mut self, counts: (u64, u64, u64), now: Instant) {
        let elapsed = now - self.second.at;
        if self.seconds.len() < SECONDS_MAX {
            let completed = counts.0 - self.second.counts.0;
            self.seconds.push(per_s(completed, elapsed.as_nanos() as u64));
        }
        // After a late look no second is made of what is left of one.
        let mut next = self.second.next;
        while next <= now {
            next += SECOND;
        }
        self.second = Mark { next, at: now, counts };
    }

    /// What is left behind the last whole interval; the last part of a second only where there is no whole
    /// one.
    fn end(&mut self, last: &Reading, watch: &mut impl FnMut(Event<'_>)) {
        let at_end = Mark { next: last.at, at: last.at, counts: counts(&last.counts) };
        if self.seconds.is_empty() {
            self.second(at_end.counts, last.at);
        }
        if let Some((_, mark)) = self.interval
            && last.at > mark.at + LOOK_AGAIN
        {
            watch(Event::Interval(self.progress(&mark, &at_end)));
        }
    }

    fn progress(&self, from: &Mark, to: &Mark) -> Progress {
        Progress {
            from_ns: (from.at - self.began).as_nanos() as u64,
            to_ns: (to.at - self.began).as_nanos() as u64,
            total: to.counts.0 - self.before.0,
            completed: to.counts.0 - from.counts.0,
            failed: to.counts.1 - from.counts.1,
            bytes: to.counts.2 - from.counts.2,
        }
    }
}

/// The confidence of every interval here.
const CONFIDENCE: f64 = 0.95;
/// The intervals of the same figures are the same.
const SEED: u64 = 5;

/// What the design's threads tell of themselves; what they count is told of all together.
fn now(running: &Running<Timed>) -> Now {
    let (counts, calls) = (running.counters(), running.calls());
    let thread = |(index, id)| ThreadNow {
        id,
        name: format!("weir-device-{index}"),
        counts: vec![],
        batches: Batches::default(),
    };
    Now {
        batches: Batches { dequeues: counts.batches.count(), brought: counts.completed },
        counts: [counts.named(), calls.named()].concat(),
        threads: running.thread_ids().into_iter().enumerate().map(thread).collect(),
        ..Now::default()
    }
}

/// What a run did and used in a time.
#[derive(Default)]
pub(super) struct Used {
    pub elapsed_ns: u64,
    pub counts: Snapshot,
    pub calls: counters::Snapshot,
    pub usage: ProcessUsage,
}

impl Used {
    pub fn between(first: &Reading, last: &Reading) -> Self {
        Self {
            elapsed_ns: (last.at - first.at).as_nanos() as u64,
            counts: last.counts.since(&first.counts),
            calls: last.calls.since(&first.calls),
            usage: last.usage.since(&first.usage),
        }
    }

    /// Both times together.
    pub fn add(&mut self, other: &Self) {
        self.elapsed_ns += other.elapsed_ns;
        self.counts.merge(&other.counts);
        self.calls.merge(&other.calls);
        self.usage = self.usage.plus(&other.usage);
    }

    pub fn window(self, seconds: Vec<f64>) -> Window {
        let Self { elapsed_ns, counts, calls, usage } = self;
        window(elapsed_ns, &counts, &calls, &usage, seconds)
    }
}

fn window(
    elapsed_ns: u64,
    counts: &Snapshot,
    calls: &counters::Snapshot,
    usage: &ProcessUsage,
    seconds: Vec<f64>,
) -> Window {
    let share = |part: f64, of: u64| (of > 0).then(|| part / of as f64);
    let per_io = |part: u64| share(part as f64, counts.completed);
    let switches = |count: Option<u64>| count.map(|count| per_s(count, elapsed_ns));
    let takes = counts.batches.count();
    Window {
        elapsed_ns,
        completed: counts.completed,
        ios_per_s: per_s(counts.completed, elapsed_ns),
        bytes_per_s: per_s(counts.bytes, elapsed_ns),
        second: bootstrap::estimate(&seconds, CONFIDENCE, SEED),
        decay: decay(&seconds, SECOND.as_secs_f64()),
        seconds,
        kernel_entries_per_io: share(calls.kernel_entries as f64, counts.issued),
        ios_per_entry: share(counts.issued as f64, calls.kernel_entries),
        ios_per_take: share(counts.completed as f64, takes),
        hand_overs_per_io: per_io(counts.hand_overs),
        cpu_ns_per_io: usage.cpu_ns.and_then(per_io),
        cpu_system_ns_per_io: usage.cpu_system_ns.and_then(per_io),
        cpu_utilization_percent: usage.cpu_ns.and_then(|ns| share(ns as f64 * 100.0, elapsed_ns)),
        voluntary_switches_per_s: switches(usage.voluntary_switches),
        involuntary_switches_per_s: switches(usage.involuntary_switches),
        load_of_others_percent: None,
    }
}
