//! Measuring a design that takes turns with a control: both read in this process, and whoever has no turn is held up.

use super::{
    EndedBy, Event, OverTime, Plan, Progress, Report, Spec, Turn,
    measure::{Reading, Timed, Used, Watched, entries_source, report},
    turns::{Side, settles, take_turns},
};
use std::{
    io,
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use weir::{
    Error,
    counters::os::{KernelMemory, Sampler},
    device::{Handler, Running},
    machine::{LoadMeter, Machine},
};
use weir_load::{Stop, latency::Latencies};

/// How long a design may take until the first of its threads stands still. One whose I/Os take longer than its turns
/// goes on waiting for them meanwhile, which takes nothing from the control.
const STANDS_STILL_WITHIN: Duration = Duration::from_secs(1);

/// A share of a design's I/Os that may complete while its control has the turn: what was under way.
const MOST_IN_TURN_OF_OTHER: f64 = 0.02;

/// Holds threads up.
#[derive(Debug)]
struct Gate {
    closed: AtomicBool,
    waiting: Mutex<u32>,
    changed: Condvar,
}

impl Gate {
    fn closed() -> Self {
        Self { closed: AtomicBool::new(true), waiting: Mutex::new(0), changed: Condvar::new() }
    }

    /// Comes back once it is open.
    #[inline]
    fn pass(&self) {
        if self.closed.load(Ordering::Relaxed) {
            self.wait();
        }
    }

    #[cold]
    fn wait(&self) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        *waiting += 1;
        self.changed.notify_all();
        while self.closed.load(Ordering::Relaxed) {
            waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        *waiting -= 1;
    }

    fn open(&self) {
        let _waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        self.closed.store(false, Ordering::Relaxed);
        self.changed.notify_all();
    }

    /// Closes it, and waits until the first thread stands before it, or for so long.
    fn close(&self, at_most: Duration) {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        self.closed.store(true, Ordering::Relaxed);
        let until = self.changed.wait_timeout_while(waiting, at_most, |waiting| *waiting == 0);
        drop(until);
    }
}

/// A handler whose thread can be held up with each I/O.
struct HeldUp {
    timed: Timed,
    gate: Arc<Gate>,
}

impl Handler for HeldUp {
    #[inline]
    fn on_read(&mut self, _: &[u8], _: u64) {
        self.gate.pass();
    }

    #[inline]
    fn on_write(&mut self, _: usize) {
        self.gate.pass();
    }

    fn on_sample(&mut self, ns: u64) {
        self.timed.on_sample(ns);
    }
}

/// A design that is there from beginning to end, and reads in its turns.
struct Taking<'a> {
    running: Option<Running<HeldUp>>,
    gate: Arc<Gate>,
    stop: &'a Stop,
    sampler: Sampler,
    latencies: Arc<Mutex<Vec<Arc<Latencies>>>>,
    effective: Vec<(String, String)>,
    used: Used,
    /// I/Os completed when its turn was over, and those that completed until the next.
    left_at: u64,
    between: u64,
}

impl<'a> Taking<'a> {
    fn start(spec: &Spec, stop: &'a Stop) -> Result<Self, Error> {
        let (latencies, gate) =
            (Arc::<Mutex<Vec<Arc<Latencies>>>>::default(), Arc::new(Gate::closed()));
        let (handlers, of_handlers) = (Arc::clone(&latencies), Arc::clone(&gate));
        let running = spec.reads().start(spec.design.clone(), move |_| {
            let own = Arc::new(Latencies::default());
            handlers.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&own));
            HeldUp { timed: Timed::new(own), gate: Arc::clone(&of_handlers) }
        })?;
        Ok(Self {
            effective: running.effective(),
            running: Some(running),
            gate,
            stop,
            sampler: Sampler::new(),
            latencies,
            used: Used::default(),
            left_at: 0,
            between: 0,
        })
    }

    /// Lets it end.
    fn stopped(&mut self) -> weir::device::Final<HeldUp> {
        self.gate.open();
        self.running.take().expect("it is stopped once").stop()
    }
}

impl Drop for Taking<'_> {
    /// Its threads are waited for, and must not wait themselves.
    fn drop(&mut self) {
        self.gate.open();
    }
}

impl Side for Taking<'_> {
    type End = EndedBy;

    fn turn(&mut self, time: Duration) -> Result<Turn, EndedBy> {
        let running = self.running.as_ref().expect("it is taken when everything is over");
        let completed = running.counters().completed;
        self.between += completed - self.left_at;
        let began = Instant::now();
        self.gate.open();
        if let Some(ended) = super::measure::wait(running, self.stop, began + settles(time)) {
            return Err(ended);
        }
        let now = |sampler: &mut Sampler| {
            Reading::now(running, sampler, None).expect("it reads no count of the kernel's")
        };
        let first = now(&mut self.sampler);
        let ended = super::measure::wait(running, self.stop, began + time);
        let last = now(&mut self.sampler);
        self.gate.close(STANDS_STILL_WITHIN);
        self.left_at = running.counters().completed;
        if let Some(ended) = ended {
            return Err(ended);
        }
        let (used, kernel) = (Used::between(&first, &last), KernelMemory::now());
        self.used.add(&used);
        let counts = &last.counts;
        Ok(Turn {
            completed: used.counts.completed,
            elapsed_ns: used.elapsed_ns,
            cpu_ns: used.usage.cpu_ns,
            outstanding: counts.issued.saturating_sub(counts.completed + counts.failed),
            resident_bytes: last.usage.resident_bytes,
            kernel_bytes: kernel.ring_bytes.zip(kernel.page_table_bytes).map(|(a, b)| a + b),
            slab_bytes: kernel.slab_bytes,
        })
    }
}

/// Measures a design that takes turns with a control, which reads the same: `spec.time` is the design's own, and its
/// warm-up the first of it. `stop` ends it early, with what was found so far.
///
/// # Errors
/// Whatever fails before the first I/O of either, and a design that goes on in the control's turns.
pub fn measure_beside(
    spec: &Spec,
    control: &Spec,
    stop: &Stop,
    mut watch: impl FnMut(Event<'_>),
) -> Result<Report, Error> {
    let machine = Machine::describe();
    let plan = Plan::of(spec.time);
    let mut design = Taking::start(spec, stop)?;
    let mut other = Taking::start(control, stop)?;
    watch(Event::Ready(&design.effective));
    let mut meter = LoadMeter::start();
    let mut intervals = Intervals { every: spec.interval, ..Intervals::default() };
    let warm = Plan { time: spec.warm_up, ..plan };
    let warm_up = match spec.warm_up.is_zero() {
        true => None,
        false => take_turns(&warm, &mut design, &mut other, |_| ()).2,
    };
    (design.used, design.between) = (Used::default(), 0);
    let (controls, designs, ended) = match warm_up {
        Some(ended) => (vec![], vec![], Some(ended)),
        None => take_turns(&plan, &mut design, &mut other, |turn| {
            if let Some(progress) = intervals.after(turn) {
                watch(Event::Interval(progress));
            }
        }),
    };
    let name = control.design.about().name;
    let load = meter.read(0);
    let found = OverTime::of(name, &plan, &controls, &designs, load.others);
    let (between, used) = (design.between, std::mem::take(&mut design.used));
    let in_turns = used.counts.completed;
    let seconds = found.readings.iter().map(|reading| reading.ios_per_s).collect();
    let window = (!designs.is_empty()).then(|| (used.window(seconds), load));
    let (effective, latencies) =
        (std::mem::take(&mut design.effective), Arc::clone(&design.latencies));
    let of_control = other.stopped();
    let watched = Watched {
        machine: &machine,
        window,
        ended,
        entries_source: entries_source(effective),
        latencies: &latencies,
    };
    let mut report = report(spec, watched, design.stopped());
    if let (None, Some(failure)) = (&report.failure, of_control.failure) {
        (report.failure, report.ended_by) =
            (Some(format!("the control, {name}: {failure}")), EndedBy::Failure);
    }
    if report.failure.is_none() && between as f64 > MOST_IN_TURN_OF_OTHER * in_turns as f64 + 1e4 {
        let problem =
            format!("{between} of its I/Os completed in turns of {name}, {in_turns} in its own");
        return Err(Error::io("letting the design take turns", io::Error::other(problem)));
    }
    report.over_time = Some(found);
    Ok(report)
}

/// What is told of several turns together.
#[derive(Default)]
struct Intervals {
    every: Option<Duration>,
    now: Progress,
}

impl Intervals {
    /// The interval that ends with this turn of the design, if one does; its times are the design's own.
    fn after(&mut self, turn: &Turn) -> Option<Progress> {
        self.now.to_ns += turn.elapsed_ns;
        self.now.total += turn.completed;
        self.now.completed += turn.completed;
        let every = self.every?.as_nanos() as u64;
        let is_due = self.now.to_ns - self.now.from_ns >= every;
        is_due.then(|| {
            let next = Progress { from_ns: self.now.to_ns, completed: 0, ..self.now };
            std::mem::replace(&mut self.now, next)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iops::open;
    use weir::device::{AnyDesign, Direction};
    use weir_load::StopReason;

    fn spec(design: &str) -> Spec {
        Spec {
            design: AnyDesign::parse(design).unwrap(),
            device: open("/dev/null".as_ref(), &[], Direction::Read).unwrap(),
            length: 512,
            ios: None,
            time: Duration::from_secs(3),
            warm_up: Duration::from_millis(100),
            interval: Some(Duration::from_millis(500)),
            sample_every: 128,
            errors_max: 0,
            count_entries: false,
            performance: None,
        }
    }

    #[test]
    fn a_design_and_its_control_take_turns() {
        if weir::device::availability().is_err() {
            return;
        }
        for name in ["sync", "ring", "overlapped-pool"] {
            let spec = spec(name);
            if spec.design.availability().is_err() {
                continue;
            }
            let (mut intervals, mut ready) = (vec![], 0);
            let report =
                measure_beside(&spec, &self::spec("sync"), &Stop::new(), |event| match event {
                    Event::Ready(_) => ready += 1,
                    Event::Interval(progress) => intervals.push(progress),
                })
                .unwrap();
            assert_eq!((report.failure.as_ref(), report.invalid(), ready), (None, None, 1));
            let found = report.over_time.unwrap();
            assert_eq!((found.control.as_str(), found.readings.len()), ("sync", 30), "{name}");
            assert!(found.resident_bytes.is_some() && !found.verdict.is_empty(), "{found:?}");
            assert!(!intervals.is_empty() && intervals[0].from_ns == 0);
            assert!(intervals.windows(2).all(|two| two[0].to_ns == two[1].from_ns));
            let window = report.window.unwrap();
            assert_eq!(window.seconds.len(), 30);
            assert!(window.completed <= report.counts.completed, "{name}");
        }
    }

    #[test]
    fn a_stop_ends_it_with_what_there_is() {
        if weir::device::availability().is_err() {
            return;
        }
        let (spec, stop) = (spec("sync"), Stop::new());
        let report = measure_beside(&spec, &spec.clone(), &stop, |event| {
            if matches!(event, Event::Interval(_)) {
                stop.request(StopReason::Asked);
            }
        })
        .unwrap();
        assert_eq!((report.ended_by, report.failure.as_ref()), (EndedBy::Asked, None));
        let found = report.over_time.unwrap();
        assert!(!found.readings.is_empty() && found.readings.len() < 30, "{found:?}");
        assert_eq!(found.verdict, "undecided");
    }

    #[test]
    fn a_control_that_cannot_begin_leaves_nothing_hanging() {
        if weir::device::availability().is_err() {
            return;
        }
        let (spec, mut control) = (spec("sync"), spec("sync"));
        control.length = weir::device::MOST_LENGTH + 1;
        assert!(measure_beside(&spec, &control, &Stop::new(), |_| ()).is_err());
    }
}
