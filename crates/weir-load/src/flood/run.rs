//! The course of a flood.

use std::{
    net::SocketAddr,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use super::{
    FloodError, FloodSpec,
    generator::{Generator, Live, Obtained, Outcome, Phase, Setup},
    report::{EndedBy, FloodReport, LoadReport, Progress},
};
use crate::{
    clock::now_ns,
    control::{ClientSettings, ControlClient, RunEnd},
    engine::{Blocking, Refusals},
    pacing::{self, Load, windows::WITHIN_MIN},
    stop::{Stop, StopReason},
};

/// What whoever started a flood may want to show.
#[derive(Debug)]
pub enum Event<'a> {
    /// Everything is set up, nothing was sent: the effective settings by name.
    Ready(&'a [(&'static str, String)]),
    /// An interval is over.
    Interval(Progress),
}

/// How long before its start a phase is handed to the generators, so that all are ready.
const LEAD_NS: u64 = 2_000_000;

enum Answer {
    Opened(Result<Obtained, FloodError>),
    Done(Box<Outcome>),
    Panicked(String),
}

/// Floods as specified; returns when it is over.
///
/// `stop` ends it early, and its report is whole then. `watch` is told how it goes, on the
/// calling thread.
///
/// # Errors
/// If it cannot begin. What happens later stands in the report.
pub fn flood(
    spec: &FloodSpec,
    stop: &Arc<Stop>,
    mut watch: impl FnMut(Event<'_>),
) -> Result<FloodReport, FloodError> {
    spec.check()?;
    let mut ports = spec.ports.clone();
    let control = match spec.control {
        None => None,
        Some(address) => {
            let settings =
                ClientSettings { any_build: spec.any_build, ..ClientSettings::default() };
            let control = ControlClient::connect(address, &settings, Arc::clone(stop))?;
            let consent = control.ask(&spec.ask(), spec.target, &ports)?;
            if ports.is_empty() {
                ports = consent.ports;
                // More ports than flows: the first ones.
                ports.truncate(spec.flows_in_all());
            }
            Some(control)
        }
    };
    let setups = setups(spec, &ports);
    let lives: Vec<Live> = setups.iter().map(|_| Live::default()).collect();

    thread::scope(|scope| {
        let mut generators = Vec::new();
        for (setup, live) in setups.iter().zip(&lives) {
            let (command, commands) = mpsc::sync_channel::<Phase>(1);
            // One answer at a time is outstanding from each generator.
            let (answer, answers) = mpsc::sync_channel(1);
            thread::Builder::new()
                .name("weir flood".into())
                .spawn_scoped(scope, move || serve(setup, live, stop, &commands, &answer))
                .map_err(FloodError::Thread)?;
            generators.push((command, answers));
        }
        // Dropping the generators' channels ends their threads, on every way out of here.
        let crew = Crew { spec, stop, lives: &lives, generators };
        let obtained = crew.obtained()?;
        let quantum = quantum(spec, obtained.capacity)?;
        watch(Event::Ready(&describe(spec, &ports, &obtained, quantum)));

        let mut warm_up_sent = 0;
        if let Some(run) = spec.warm_up_run() {
            let outcomes = crew.run(run, quantum, spec.warm_up, None, &mut |_| {})?;
            warm_up_sent = outcomes.iter().map(|outcome| outcome.sent).sum();
        }
        if let Some(control) = &control {
            control.start(spec.run)?;
        }
        let outcomes = crew.run(spec.run, quantum, spec.duration, spec.datagrams, &mut watch)?;
        let mut report = assemble(spec, ports, obtained, quantum, outcomes, stop);
        report.warm_up_sent = warm_up_sent;
        if let Some(control) = control {
            let end = RunEnd {
                run: spec.run,
                sent_per_flow: report.sent_per_flow.clone(),
                refused: report.refused,
                late_skipped: report.late_skipped,
                cpu_ns: report.cpu_ns,
                elapsed_ns: report.elapsed_ns,
            };
            match control.end(end) {
                Ok(account) => report.report = Some(account),
                Err(error) => {
                    report.failure.get_or_insert_with(|| format!("no report: {error}"));
                }
            }
        }
        Ok(report)
    })
}

/// The settings that a flood would have, without sending anything or asking the server.
///
/// # Errors
/// As [`flood`], as far as that can be known beforehand.
pub fn settings(spec: &FloodSpec) -> Result<Vec<(&'static str, String)>, FloodError> {
    spec.check()?;
    // Connecting a UDP socket sends nothing, so any port serves to try the engine.
    const ANY: [u16; 1] = [9];
    let ports: &[u16] = if spec.ports.is_empty() { &ANY } else { &spec.ports };
    let setup = setups(spec, ports).swap_remove(0);
    // On a thread of its own: it may be bound to a core.
    let obtained = thread::scope(|scope| {
        let opening = scope.spawn(|| Generator::open(&setup).map(|generator| generator.obtained));
        opening.join().unwrap_or_else(|panic| Err(FloodError::Panicked(text_of(&*panic))))
    })?;
    Ok(describe(spec, &spec.ports, &obtained, quantum(spec, obtained.capacity)?))
}

fn setups(spec: &FloodSpec, ports: &[u16]) -> Vec<Setup> {
    let single_core = thread::available_parallelism().is_ok_and(|cores| cores.get() == 1);
    let blocking = match spec.load {
        Load::Saturation => Blocking::Yes,
        Load::Paced { .. } => Blocking::No,
    };
    let target = |flow: usize| SocketAddr::new(spec.target, ports[flow % ports.len()]);
    (0..spec.generators)
        .map(|number| {
            let first_flow = number * spec.flows;
            Setup {
                targets: (first_flow..first_flow + spec.flows).map(target).collect(),
                first_flow: first_flow as u16,
                size_bytes: spec.size_bytes,
                engine: spec.engine.clone(),
                blocking,
                core: spec.cores.get(number % spec.cores.len().max(1)).copied(),
                single_core,
            }
        })
        .collect()
}

fn quantum(spec: &FloodSpec, capacity: u32) -> Result<u32, FloodError> {
    match (spec.quantum, spec.load.datagrams_per_s()) {
        (Some(asked), _) if asked > capacity => Err(FloodError::Spec(format!(
            "a quantum of {asked} (--quantum) is more than one call of the engine carries, \
             {capacity}"
        ))),
        (Some(asked), _) => Ok(asked),
        (None, None) => Ok(capacity),
        (None, Some(rate)) => Ok(pacing::quantum(rate / spec.generators as f64, capacity)),
    }
}

fn describe(
    spec: &FloodSpec,
    ports: &[u16],
    obtained: &Obtained,
    quantum: u32,
) -> Vec<(&'static str, String)> {
    let list = |numbers: &[String]| numbers.join(", ");
    let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
    let cores: Vec<String> = spec.cores.iter().map(usize::to_string).collect();
    let mut lines = vec![
        ("target", spec.target.to_string()),
        ("ports", if ports.is_empty() { "as the server names them".into() } else { list(&ports) }),
        ("run id", spec.run.to_string()),
        ("datagram size", format!("{} bytes of payload", spec.size_bytes)),
        ("flows", format!("{} for each of {} generators", spec.flows, spec.generators)),
        ("cores", if cores.is_empty() { "any".into() } else { list(&cores) }),
        ("engine", obtained.engine.to_owned()),
    ];
    lines.extend(obtained.settings.iter().map(|(name, value)| (*name, value.clone())));
    lines.extend(obtained.passed_over.iter().map(|why| ("not used", why.to_string())));
    lines.push(("send buffer", format!("{} bytes", obtained.send_buffer_bytes)));
    lines.push(match spec.load {
        Load::Saturation => ("load", "saturation".into()),
        Load::Paced { datagrams_per_s } => (
            "load",
            format!(
                "{datagrams_per_s:.0} datagrams/s, {:.0} bit/s of payload",
                datagrams_per_s * spec.size_bytes as f64 * 8.0
            ),
        ),
    });
    lines.push(match spec.load.datagrams_per_s() {
        None => ("quantum", format!("{quantum} datagrams a call")),
        Some(rate) => (
            "quantum",
            format!(
                "{quantum} datagrams every {:.1} µs; later than that they are skipped",
                f64::from(quantum) * 1e6 * spec.generators as f64 / rate
            ),
        ),
    });
    lines.push(("duration", format!("at most {:?}", spec.duration)));
    if let Some(datagrams) = spec.datagrams {
        lines.push(("datagrams", datagrams.to_string()));
    }
    if !spec.warm_up.is_zero() {
        lines.push(("warm-up", format!("{:?}", spec.warm_up)));
    }
    let control = spec.control.map_or("none: loopback only".into(), |at| at.to_string());
    lines.push(("control", control));
    lines
}

/// What the thread of a generator does.
fn serve(
    setup: &Setup,
    live: &Live,
    stop: &Stop,
    commands: &mpsc::Receiver<Phase>,
    answer: &mpsc::SyncSender<Answer>,
) {
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let mut generator = match Generator::open(setup) {
            Ok(generator) => generator,
            Err(error) => return answer.send(Answer::Opened(Err(error))),
        };
        answer.send(Answer::Opened(Ok(generator.obtained.clone())))?;
        for phase in commands {
            answer.send(Answer::Done(Box::new(generator.run(&phase, live, stop))))?;
        }
        Ok(())
    }));
    if let Err(panic) = outcome {
        stop.request(StopReason::Failed);
        // If nobody listens, the flood was given up already.
        let _ = answer.send(Answer::Panicked(text_of(&*panic)));
    }
}

fn text_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no text".into())
}

/// The generators, seen from the thread that leads them.
struct Crew<'a> {
    spec: &'a FloodSpec,
    stop: &'a Stop,
    lives: &'a [Live],
    generators: Vec<(mpsc::SyncSender<Phase>, mpsc::Receiver<Answer>)>,
}

impl Crew<'_> {
    /// Waits until all are open. They are all alike, so the first speaks for all.
    fn obtained(&self) -> Result<Obtained, FloodError> {
        let mut first = None;
        for (_, answers) in &self.generators {
            match answers.recv() {
                Ok(Answer::Opened(obtained)) => {
                    let obtained = obtained?;
                    first.get_or_insert(obtained);
                }
                Ok(Answer::Panicked(text)) => return Err(FloodError::Panicked(text)),
                Ok(Answer::Done(_)) | Err(_) => return Err(gone()),
            }
        }
        first.ok_or_else(gone)
    }

    /// Runs one phase on all generators, telling of every interval.
    fn run(
        &self,
        run: u32,
        quantum: u32,
        duration: Duration,
        datagrams: Option<u64>,
        watch: &mut dyn FnMut(Event<'_>),
    ) -> Result<Vec<Outcome>, FloodError> {
        let count = self.generators.len() as u64;
        let rate = self.spec.load.datagrams_per_s().map(|rate| rate / count as f64);
        let interval_ns = rate.map_or(0.0, |rate| f64::from(quantum) * 1e9 / rate);
        let start_ns = now_ns() + LEAD_NS;
        for (number, (commands, _)) in (0..).zip(&self.generators) {
            // Evenly between one another's quanta.
            let offset_ns = (interval_ns * number as f64 / count as f64) as u64;
            let share = |all: u64| all / count + u64::from(number < all % count);
            let phase = Phase {
                run,
                datagrams_per_s: rate,
                quantum,
                start_ns: start_ns + offset_ns,
                end_ns: start_ns + offset_ns + duration.as_nanos() as u64,
                datagrams: datagrams.map_or(u64::MAX, share),
            };
            commands.send(phase).map_err(|_| gone())?;
        }
        let mut teller = Teller::new(self.spec.interval, self.lives);
        let mut outcomes = Vec::new();
        for (_, answers) in &self.generators {
            let outcome = loop {
                match answers.recv_timeout(teller.left()) {
                    Ok(Answer::Done(outcome)) => break *outcome,
                    Ok(Answer::Panicked(text)) => return Err(self.give_up(text)),
                    Ok(Answer::Opened(_)) | Err(RecvTimeoutError::Disconnected) => {
                        return Err(self.give_up("it ended without an answer".into()));
                    }
                    Err(RecvTimeoutError::Timeout) => teller.tell(watch),
                }
            };
            outcomes.push(outcome);
        }
        Ok(outcomes)
    }

    fn give_up(&self, why: String) -> FloodError {
        self.stop.request(StopReason::Failed);
        FloodError::Panicked(why)
    }
}

fn gone() -> FloodError {
    FloodError::Panicked("its thread ended without an answer".into())
}

/// Tells of intervals when they are over.
struct Teller<'a> {
    interval: Option<Duration>,
    lives: &'a [Live],
    start: Instant,
    told: u32,
    before: [u64; 4],
}

impl<'a> Teller<'a> {
    fn new(interval: Option<Duration>, lives: &'a [Live]) -> Self {
        let interval = interval.filter(|interval| !interval.is_zero());
        let mut teller = Self { interval, lives, start: Instant::now(), told: 0, before: [0; 4] };
        teller.before = teller.counts();
        teller
    }

    fn counts(&self) -> [u64; 4] {
        let sum = |count: fn(&Live) -> u64| self.lives.iter().map(count).sum();
        [
            sum(|live| live.offered.get()),
            sum(|live| live.sent.get()),
            sum(|live| live.refused.get()),
            sum(|live| live.late_skipped.get()),
        ]
    }

    fn left(&self) -> Duration {
        const FOR_EVER: Duration = Duration::from_secs(24 * 3600);
        self.interval.map_or(FOR_EVER, |interval| {
            (interval * (self.told + 1)).saturating_sub(self.start.elapsed())
        })
    }

    fn tell(&mut self, watch: &mut dyn FnMut(Event<'_>)) {
        let Some(interval) = self.interval else { return };
        let after = self.counts();
        let [offered, sent, refused, late_skipped] =
            std::array::from_fn(|at| after[at] - self.before[at]);
        let ns = |intervals: u32| (interval * intervals).as_nanos() as u64;
        watch(Event::Interval(Progress {
            from_ns: ns(self.told),
            to_ns: ns(self.told + 1),
            offered,
            sent,
            refused,
            late_skipped,
        }));
        self.before = after;
        self.told += 1;
    }
}

fn assemble(
    spec: &FloodSpec,
    ports: Vec<u16>,
    obtained: Obtained,
    quantum: u32,
    outcomes: Vec<Outcome>,
    stop: &Stop,
) -> FloodReport {
    let sum = |count: fn(&Outcome) -> u64| outcomes.iter().map(count).sum::<u64>();
    let (offered, sent) = (sum(|o| o.offered), sum(|o| o.sent));
    let mut refusals = Refusals::default();
    outcomes.iter().for_each(|outcome| refusals.merge(&outcome.refusals));
    let started_ns = outcomes.iter().map(|o| o.started_ns).min().unwrap_or(0);
    let ended_ns = outcomes.iter().map(|o| o.ended_ns).max().unwrap_or(0);
    let elapsed_ns = ended_ns.saturating_sub(started_ns).max(1);
    let per_s = |count: u64| count as f64 * 1e9 / elapsed_ns as f64;
    let paced = spec.load != Load::Saturation;
    let (windows, within) = (sum(|o| o.windows), sum(|o| o.windows_within));
    let cpu_ns: Option<u64> = outcomes.iter().map(|o| o.cpu_ns).sum();
    let failure = outcomes.iter().find_map(|o| o.failure.clone());
    let (ended_by, failure) = match stop.reason() {
        Some(StopReason::ControlLost(why)) => (
            EndedBy::ControlLost,
            failure.or_else(|| Some(format!("{why}; without it the flood was ended at once"))),
        ),
        Some(StopReason::Asked) => (EndedBy::Asked, failure),
        Some(StopReason::Failed) => (EndedBy::Failure, failure),
        None if spec.datagrams.is_some_and(|asked| offered >= asked) => {
            (EndedBy::Datagrams, failure)
        }
        None => (EndedBy::Time, failure),
    };
    FloodReport {
        run: spec.run,
        target: spec.target,
        ports,
        engine: obtained.engine,
        engine_settings: obtained.settings.into_iter().collect(),
        engines_passed_over: obtained.passed_over.iter().map(ToString::to_string).collect(),
        send_offload: if obtained.engine == "gso" { "gso" } else { "none" },
        size_bytes: spec.size_bytes,
        flows: spec.flows_in_all(),
        generators: spec.generators,
        cores: spec.cores.clone(),
        send_buffer_bytes: obtained.send_buffer_bytes,
        load: LoadReport {
            kind: if paced { "paced" } else { "saturation" },
            offered_per_s: spec.load.datagrams_per_s(),
        },
        quantum,
        offered,
        sent,
        refused: offered - sent,
        refusals,
        late_skipped: sum(|o| o.late_skipped),
        elapsed_ns,
        offered_per_s: per_s(offered),
        sent_per_s: per_s(sent),
        bits_per_second: per_s(sent) * spec.size_bytes as f64 * 8.0,
        windows: paced.then_some(windows),
        windows_within: paced.then_some(within),
        pace_held: paced.then_some(within as f64 >= WITHIN_MIN * windows as f64),
        cpu_ns,
        cpu_ns_per_datagram: cpu_ns.filter(|_| sent > 0).map(|ns| ns as f64 / sent as f64),
        cpu_utilization_percent: cpu_ns
            .map(|ns| 100.0 * ns as f64 / (elapsed_ns as f64 * spec.generators as f64)),
        sent_per_flow: outcomes.into_iter().flat_map(|o| o.sent_per_flow).collect(),
        warm_up_sent: 0,
        ended_by,
        failure,
        report: None,
    }
}
