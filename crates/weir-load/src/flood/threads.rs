//! The generators' threads, and the thread that leads them.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::mpsc::{self, RecvTimeoutError},
    thread::{self, Scope},
    time::Duration,
};

use super::{
    FloodError, FloodSpec,
    generator::{Generator, Live, Obtained, Outcome, Phase, Setup},
    report::{Event, Progress},
};
use crate::{
    clock::now_ns,
    hangs::{self, Hangs},
    lease::Lease,
    proof::Secret,
    random::Random,
    stop::{Stop, StopReason},
};

enum Answer {
    Opened(Result<Obtained, FloodError>),
    Done(Box<Outcome>),
    Panicked(String),
}

/// What the thread of a generator does.
fn serve(
    setup: &Setup,
    live: &Live,
    stop: &Stop,
    lease: &Lease,
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
            answer.send(Answer::Done(Box::new(generator.run(&phase, live, stop, lease))))?;
        }
        Ok(())
    }));
    if let Err(panic) = outcome {
        stop.request(StopReason::Failed);
        // If nobody listens, the flood was given up already.
        let _ = answer.send(Answer::Panicked(text_of(&*panic)));
    }
}

/// What a panic said.
pub(crate) fn text_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no text".into())
}

/// The generators, seen from the thread that leads them.
pub(super) struct Senders<'a> {
    spec: &'a FloodSpec,
    /// What the proofs of reading in all datagrams of the flood are made of.
    pub(super) secret: Secret,
    stop: &'a Stop,
    lives: &'a [Live],
    generators: Vec<(mpsc::SyncSender<Phase>, mpsc::Receiver<Answer>)>,
}

impl<'a> Senders<'a> {
    /// Starts a thread for each set-up. They end when it is dropped.
    pub(super) fn start<'scope>(
        scope: &'scope Scope<'scope, 'a>,
        spec: &'a FloodSpec,
        setups: &'a [Setup],
        lives: &'a [Live],
        stop: &'a Stop,
        lease: &'a Lease,
    ) -> Result<Self, FloodError> {
        let mut generators = Vec::new();
        for (setup, live) in setups.iter().zip(lives) {
            let (command, commands) = mpsc::sync_channel::<Phase>(1);
            // One answer at a time is outstanding from each generator.
            let (answer, answers) = mpsc::sync_channel(1);
            thread::Builder::new()
                .name("weir flood".into())
                .spawn_scoped(scope, move || serve(setup, live, stop, lease, &commands, &answer))
                .map_err(FloodError::Thread)?;
            generators.push((command, answers));
        }
        Ok(Self { spec, secret: Secret::random(), stop, lives, generators })
    }

    /// Waits until all are open. They are all alike, so the first speaks for all.
    pub(super) fn obtained(&self) -> Result<Obtained, FloodError> {
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

    /// Runs one phase on all generators, from a moment on and for so long, reporting every interval.
    pub(super) fn run(
        &self,
        run: u32,
        quantum: u32,
        (start_ns, duration): (u64, Duration),
        datagrams: Option<u64>,
        watch: &mut dyn FnMut(Event<'_>),
    ) -> Result<Vec<Outcome>, FloodError> {
        let count = self.generators.len() as u64;
        let rate = self.spec.load.datagrams_per_s().map(|rate| rate / count as f64);
        let interval_ns = rate.map_or(0.0, |rate| f64::from(quantum) * 1e9 / rate);
        for (number, (commands, _)) in (0..).zip(&self.generators) {
            // Evenly between one another's quanta.
            let offset_ns = (interval_ns * number as f64 / count as f64) as u64;
            let share = |all: u64| all / count + u64::from(number < all % count);
            let phase = Phase {
                run,
                datagrams_per_s: rate,
                arrivals: self.spec.arrivals,
                // Independent of those of other generators, and the same for the same run.
                seed: Random::seeded(u64::from(run) << 32 | number).next_u64(),
                quantum,
                start_ns: start_ns + offset_ns,
                end_ns: start_ns + offset_ns + duration.as_nanos() as u64,
                datagrams: datagrams.map_or(u64::MAX, share),
                secret: self.secret,
                head: self.spec.head,
            };
            commands.send(phase).map_err(|_| gone())?;
        }
        let mut intervals = Intervals::new(self.spec.interval, self.lives, start_ns.max(now_ns()));
        let mut hangs = Hangs::new(self.lives.len());
        let mut outcomes = Vec::new();
        for (_, answers) in &self.generators {
            let outcome = loop {
                match answers.recv_timeout(intervals.left().min(hangs.left())) {
                    Ok(Answer::Done(outcome)) => break *outcome,
                    Ok(Answer::Panicked(text)) => return Err(self.give_up(text)),
                    Ok(Answer::Opened(_)) | Err(RecvTimeoutError::Disconnected) => {
                        return Err(self.give_up("it ended without a result".into()));
                    }
                    Err(RecvTimeoutError::Timeout) => {
                        intervals.report_if_due(watch);
                        if let Some(number) = hangs.look(self.lives.iter().map(Live::turns)) {
                            let why = hangs::in_words("generator", number, self.lives.len());
                            self.stop.request(StopReason::Hangs(why));
                        }
                    }
                }
            };
            outcomes.push(outcome);
        }
        let ended_ns = outcomes.iter().map(|outcome| outcome.ended_ns).max();
        if let Some(ended_ns) = ended_ns {
            intervals.report_rest(ended_ns, watch);
        }
        Ok(outcomes)
    }

    fn give_up(&self, why: String) -> FloodError {
        self.stop.request(StopReason::Failed);
        FloodError::Panicked(why)
    }
}

fn gone() -> FloodError {
    FloodError::Panicked("its thread ended without a result".into())
}

/// Reports each interval when it is over, and at the end what is left.
struct Intervals<'a> {
    interval_ns: Option<u64>,
    lives: &'a [Live],
    start_ns: u64,
    /// Up to where all is reported, from the start.
    reported_ns: u64,
    before: [u64; 4],
}

impl<'a> Intervals<'a> {
    fn new(interval: Option<Duration>, lives: &'a [Live], start_ns: u64) -> Self {
        let interval_ns = interval.map(|interval| interval.as_nanos() as u64);
        let mut intervals = Self { interval_ns, lives, start_ns, reported_ns: 0, before: [0; 4] };
        intervals.before = intervals.counts();
        intervals
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
        self.interval_ns.map_or(FOR_EVER, |interval_ns| {
            let due_ns = self.start_ns + self.reported_ns + interval_ns;
            Duration::from_nanos(due_ns.saturating_sub(now_ns()))
        })
    }

    fn report_if_due(&mut self, watch: &mut dyn FnMut(Event<'_>)) {
        if let Some(interval_ns) = self.interval_ns.filter(|_| self.left().is_zero()) {
            self.report(self.reported_ns + interval_ns, watch);
        }
    }

    /// What was counted since the last interval that was whole, so that all of them add up to the flood.
    fn report_rest(&mut self, ended_ns: u64, watch: &mut dyn FnMut(Event<'_>)) {
        if self.interval_ns.is_some() && self.counts() != self.before {
            let to_ns = ended_ns.saturating_sub(self.start_ns);
            self.report(to_ns.max(self.reported_ns + 1), watch);
        }
    }

    fn report(&mut self, to_ns: u64, watch: &mut dyn FnMut(Event<'_>)) {
        let after = self.counts();
        let [offered, sent, refused, late_skipped] =
            std::array::from_fn(|at| after[at] - self.before[at]);
        watch(Event::Interval(Progress {
            from_ns: self.reported_ns,
            to_ns,
            offered,
            sent,
            refused,
            late_skipped,
        }));
        self.before = after;
        self.reported_ns = to_ns;
    }
}
