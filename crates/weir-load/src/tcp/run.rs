//! The course of a load, seen from the thread that leads it.

use super::{
    Conduct, Engine, EngineUsed, LoadError, LoadReport, LoadSpec, Pace, Part, Progress,
    SourceRange, Times, Window, assemble,
    content::SentFile,
    counts::Live,
    moves::{Moves, Needs},
    part::{Holds, Reading, Seen},
    sources::Sources,
    system::{self, WakeEvent},
    worker::{self, LoadShared, Note, Outcome},
};
use crate::{
    clock::now_ns,
    hangs::{self, Hangs},
    lock::lock,
    stop::{Stop, StopReason},
    sys,
};
use std::{
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread,
    time::Duration,
};
use weir::{Unavailable, counters::os::ThreadId};

/// What whoever started a load may want to show.
#[derive(Debug)]
pub enum Event<'a> {
    /// Everything is set up, nothing was sent: the effective settings by name.
    Ready(&'a [(&'static str, String)]),
    /// Every connection of this process is made, or has failed.
    Settled,
    /// From now on messages are measured, as far as all began together (not with a number of messages
    /// for each connection).
    Began,
    /// From this moment on, in ns of [`now_ns`], they are not.
    Ended(u64),
    /// An interval is over.
    Interval(Progress),
}

/// How often a stop, which has no waker, is looked for.
const LOOK_EVERY_NS: u64 = 20_000_000;
/// How long answers, and ends of connections, are waited for once ranks are to end before their time: some of them may have
/// less than a second until mpirun ends them.
const DRAIN_OF_RANKS_NS: u64 = 300_000_000;
/// A moment that never comes.
pub(super) const NEVER: u64 = u64::MAX;

/// Loads a server as specified; returns when every connection is over.
///
/// `stop` ends it early, in order, and its report is whole then. `watch` is told how it goes, on the
/// calling thread. As many descriptors as the process may have are asked for.
///
/// # Errors
/// If it cannot begin, or a thread panicked. What happens otherwise stands in the report.
pub fn load(
    spec: &LoadSpec,
    stop: &Stop,
    watch: impl FnMut(Event<'_>),
) -> Result<LoadReport, LoadError> {
    Ok(assemble(spec, run(spec, stop, None, false, watch)?))
}

/// The share of one process of several. Whoever leads them sends the times once all have said
/// [`Event::Settled`]; with a number of messages for each connection, nobody waits for that.
///
/// # Errors
/// As [`load`].
pub fn load_part(
    spec: &LoadSpec,
    stop: &Stop,
    times: &Receiver<Times>,
    watch: impl FnMut(Event<'_>),
) -> Result<Part, LoadError> {
    run(spec, stop, Some(times), false, watch)
}

/// The same of a process whose end others wait for: a thread that hangs is a reason to stop ([`StopReason::Hangs`]), and this
/// may never return then.
pub(super) fn load_rank(
    spec: &LoadSpec,
    stop: &Stop,
    times: &Receiver<Times>,
    watch: impl FnMut(Event<'_>),
) -> Result<Part, LoadError> {
    run(spec, stop, Some(times), true, watch)
}

fn run(
    spec: &LoadSpec,
    stop: &Stop,
    times: Option<&Receiver<Times>>,
    finds_hangs: bool,
    mut watch: impl FnMut(Event<'_>),
) -> Result<Part, LoadError> {
    spec.check()?;
    let (engine, used) = choose(spec)?;
    let settings = settings_with(spec, &used)?;
    if spec.gives_way {
        sys::give_way().map_err(LoadError::Priority)?;
    }
    let file = sent_file(spec)?;
    let lives: Vec<Live> = (0..spec.threads).map(|_| Live::default()).collect();
    let shared = LoadShared {
        measure_from_ns: AtomicU64::new(NEVER),
        end_ns: AtomicU64::new(NEVER),
        drained_ns: AtomicU64::new(NEVER),
        sources: Mutex::new(Sources::to(spec.target.ip(), spec.share.index, spec.sources)),
        file,
    };
    let mut all_moves = Vec::new();
    for number in 0..spec.threads {
        let longest = shared.file.as_ref().map_or(spec.sizes.most.into(), SentFile::bytes);
        let needs = Needs {
            run: spec.run,
            connections: spec.dealt_in_all(spec.number_of_thread(number)),
            window_bytes: longest.saturating_mul(spec.outstanding.into()),
            answered: spec.conduct == Conduct::Messages
                && !spec.one_way
                && !spec.half_close
                && spec.file.is_none(),
        };
        all_moves.push(Moves::open(engine, &needs)?);
    }
    let wake_events = all_moves.iter().map(Moves::wake_event).collect();
    thread::scope(|scope| {
        let (sender, notes) = mpsc::channel();
        let (ready_sender, ready) = mpsc::channel();
        // Dropping them ends the threads that wait for their start.
        let mut starts = Vec::new();
        for ((number, live), moves) in lives.iter().enumerate().zip(all_moves) {
            let (start, started) = mpsc::sync_channel::<u64>(1);
            let (notes, ready, shared) = (sender.clone(), ready_sender.clone(), &shared);
            let body = move || {
                let result = prepare(spec, number, live);
                let failed = result.is_err();
                if ready.send(result).is_err() || failed {
                    return;
                }
                if let Ok(began_ns) = started.recv() {
                    worker::serve(spec, shared, live, number, moves, began_ns, notes);
                }
            };
            let builder = thread::Builder::new().name("weir load".into());
            builder.spawn_scoped(scope, body).map_err(LoadError::Thread)?;
            starts.push(start);
        }
        drop((sender, ready_sender));
        ready.iter().take(spec.threads).collect::<Result<(), _>>()?;
        watch(Event::Ready(&settings));
        let began_ns = now_ns();
        let mut leader = Leader::new(spec, stop, &shared, &lives, wake_events, began_ns);
        leader.hangs = finds_hangs.then(|| Hangs::new(spec.threads));
        starts.iter().zip(&lives).for_each(|(start, live)| {
            live.serves.store(true, Relaxed);
            // It waits for it.
            let _ = start.send(began_ns);
        });
        leader.lead(&notes, times, used, &mut watch)
    })
}

/// What each thread does first.
fn prepare(spec: &LoadSpec, number: usize, live: &Live) -> Result<(), LoadError> {
    sys::ask_for_precise_sleeps();
    let _ = live.thread.set(ThreadId::current());
    let number = spec.number_of_thread(number) as usize;
    match spec.cores.get(number % spec.cores.len().max(1)) {
        Some(&core) => weir::affinity::pin_current_thread(core)
            .map_err(|source| LoadError::Pin { core, source }),
        None => Ok(()),
    }
}

/// The file that is to be sent, if one is.
fn sent_file(spec: &LoadSpec) -> Result<Option<SentFile>, LoadError> {
    spec.file.as_deref().map(|path| SentFile::open(path, spec.file_by)).transpose()
}

/// Which engine a load uses: the one that it asks for; else a ring where it can be used and the loop is closed.
///
/// # Errors
/// If the one asked for cannot be used, or none.
fn choose(spec: &LoadSpec) -> Result<(Engine, EngineUsed), Unavailable> {
    if let Some(engine) = spec.engine {
        engine.availability()?;
        return Ok((engine, EngineUsed::of(engine, None)));
    }
    let reason = if spec.pace != Pace::Closed {
        "an open loop, whose rate is given".into()
    } else if spec.conduct != Conduct::Messages {
        "connections that are not to be fast".into()
    } else {
        match Engine::Uring.availability() {
            Ok(()) => {
                let reason = "the faster one where the next message follows an answer".into();
                return Ok((Engine::Uring, EngineUsed::of(Engine::Uring, Some(reason))));
            }
            Err(why) => why.to_string(),
        }
    };
    Engine::Readiness.availability()?;
    Ok((Engine::Readiness, EngineUsed::of(Engine::Readiness, Some(reason))))
}

/// The settings that a load would have, without connecting.
///
/// # Errors
/// As [`load`], as far as that can be known beforehand.
pub fn settings(spec: &LoadSpec) -> Result<Vec<(&'static str, String)>, LoadError> {
    spec.check()?;
    let (_, used) = choose(spec)?;
    settings_with(spec, &used)
}

fn settings_with(
    spec: &LoadSpec,
    engine: &EngineUsed,
) -> Result<Vec<(&'static str, String)>, LoadError> {
    let or = |value: Option<String>, none: &str| value.unwrap_or_else(|| none.into());
    let sizes = spec.sizes;
    let named = |(conduct, _): &&(Conduct, &str)| *conduct == spec.conduct;
    let (_, conduct) = Conduct::ALL.iter().find(named).expect("all are there");
    let mut settings = vec![
        ("target", spec.destination()),
        (
            "connections",
            match spec.blocks {
                1 => spec.connections_in_all().to_string(),
                blocks => format!("{} in {blocks} blocks", spec.connections_in_all()),
            },
        ),
        ("block interval", format!("{:?}", spec.block_interval)),
        (
            "message bytes",
            match sent_file(spec)? {
                Some(file) => file.describe(),
                None if sizes.least == sizes.most => sizes.most.to_string(),
                None => format!("{} to {}", sizes.least, sizes.most),
            },
        ),
        (
            "loop",
            match spec.pace {
                Pace::Closed => "closed".into(),
                Pace::Open { messages_per_s } => format!("open, {messages_per_s} messages/s"),
            },
        ),
        ("outstanding", format!("{} messages on each connection", spec.outstanding)),
        ("sends", or(spec.sends.map(|sends| format!("{sends} on each connection")), "no limit")),
        ("conduct", (*conduct).into()),
        ("engine", engine.to_string()),
        (
            "from",
            match spec.sources {
                None => "any address of this machine".into(),
                Some(SourceRange { first, count }) => {
                    format!("{count} addresses from {first} on, in turn")
                }
            },
        ),
        ("answers", if spec.one_way { "none (one way)" } else { "every byte verified" }.into()),
        (
            "end of sending",
            match spec.half_close {
                true => "with the last message (half-close)",
                false => "when all is answered",
            }
            .into(),
        ),
        ("duration", format!("{:?}, the first {:?} of it a warm-up", spec.duration, spec.warm_up)),
        ("processes", spec.share.of.to_string()),
        ("threads", format!("{} in each", spec.threads)),
        ("cores", or((!spec.cores.is_empty()).then(|| format!("{:?}", spec.cores)), "any")),
        ("connecting", format!("{} at a time, {:?} each", spec.connecting, spec.connect_timeout)),
        (
            "a connection is made",
            match spec.together {
                true => "when its first message has come back; then all begin together",
                false => "when it is connected, and begins at once",
            }
            .into(),
        ),
        ("answer timeout", format!("{:?}", spec.answer_timeout)),
    ];
    if let Some(descriptors) = system::descriptors() {
        settings.push(("descriptors", format!("{descriptors} at most in this process")));
    }
    Ok(settings)
}

/// Leads the threads of a load.
struct Leader<'a> {
    spec: &'a LoadSpec,
    stop: &'a Stop,
    shared: &'a LoadShared,
    lives: &'a [Live],
    wake_events: Vec<WakeEvent>,
    began_ns: u64,
    measure_from_ns: u64,
    end_ns: u64,
    from: Option<Reading>,
    to: Option<Reading>,
    holds: Option<Holds>,
    reported: Reading,
    next_line_ns: u64,
    open_max: u64,
    /// Where threads that hang are looked for.
    hangs: Option<Hangs>,
}

impl<'a> Leader<'a> {
    fn new(
        spec: &'a LoadSpec,
        stop: &'a Stop,
        shared: &'a LoadShared,
        lives: &'a [Live],
        wake_events: Vec<WakeEvent>,
        began_ns: u64,
    ) -> Self {
        let nothing = Reading { at_ns: began_ns, counts: Default::default(), cpu_ns: Some(0) };
        let every = spec.interval.map(ns);
        let mut leader = Self {
            spec,
            stop,
            shared,
            lives,
            wake_events,
            began_ns,
            measure_from_ns: NEVER,
            end_ns: NEVER,
            from: None,
            to: None,
            holds: None,
            reported: nothing,
            next_line_ns: every.map_or(NEVER, |every| began_ns.saturating_add(every)),
            open_max: 0,
            hangs: None,
        };
        if spec.sends.is_some() {
            leader.measure(spec.times_from(began_ns));
            leader.from = Some(nothing);
        }
        leader
    }

    /// Messages are measured so.
    fn measure(&mut self, Times { measure_from_ns, end_ns }: Times) {
        (self.measure_from_ns, self.end_ns) = (measure_from_ns, end_ns);
        self.shared.measure_from_ns.store(self.measure_from_ns, Relaxed);
        self.shared.end_ns.store(self.end_ns.saturating_add(ns(self.spec.tail)), Relaxed);
        self.signal();
    }

    fn signal(&self) {
        self.wake_events.iter().for_each(WakeEvent::signal);
    }

    fn lead(
        &mut self,
        notes: &Receiver<Note>,
        times: Option<&Receiver<Times>>,
        engine: EngineUsed,
        watch: &mut dyn FnMut(Event<'_>),
    ) -> Result<Part, LoadError> {
        let mut outcomes: Vec<Outcome> = Vec::new();
        let (mut settled, mut panicked) = (0, None);
        while outcomes.len() + usize::from(panicked.is_some()) < self.spec.threads {
            match notes.recv_timeout(self.pause()) {
                Ok(Note::Settled) => {
                    settled += 1;
                    if settled == self.spec.threads {
                        watch(Event::Settled);
                        if self.spec.sends.is_some() {
                            self.look_at_memory();
                        }
                        if times.is_none() && self.end_ns == NEVER {
                            self.measure(self.spec.times_from(now_ns()));
                        }
                    }
                }
                Ok(Note::Over(outcome)) => outcomes.push(*outcome),
                Ok(Note::Panicked(text)) => {
                    self.stop.request(StopReason::Failed);
                    panicked = Some(text);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if let Some(Ok(times)) = times.map(Receiver::try_recv)
                && self.end_ns == NEVER
            {
                self.measure(times);
            }
            self.look(watch);
        }
        if let Some(text) = panicked {
            return Err(LoadError::Panicked(text));
        }
        if let (Some(_), None) = (&self.from, &self.to) {
            // Every connection was over before the time was.
            let ended_ns = outcomes.iter().map(|outcome| outcome.ended_ns).max();
            let mut last = self.read(ended_ns.unwrap_or_else(now_ns));
            // Threads that have ended are no longer asked.
            last.cpu_ns = outcomes.iter().map(|outcome| outcome.cpu_ns).sum();
            self.to = Some(last);
        }
        self.report_rest(outcomes.iter().map(|outcome| outcome.ended_ns).max(), watch);
        let seen = Seen {
            began_ns: self.began_ns,
            open_max: self.open_max,
            source_addresses: lock(&self.shared.sources).used(),
            window: self.from.zip(self.to).map(|(from, to)| Window::between(&from, &to)),
            holds: self.holds,
            file_bytes: self.shared.file.as_ref().map(SentFile::bytes),
            engine,
            time_was_over: outcomes.iter().any(|outcome| outcome.ended_ns >= self.end_ns),
        };
        Ok(Part::of(self.lives, outcomes, seen, self.stop))
    }

    /// How long until something is to be looked at.
    fn pause(&self) -> Duration {
        let now = now_ns();
        let mut until = now + LOOK_EVERY_NS;
        if self.from.is_none() {
            until = until.min(self.measure_from_ns);
        }
        if self.to.is_none() {
            until = until.min(self.end_ns);
        }
        Duration::from_nanos(until.min(self.next_line_ns).saturating_sub(now))
    }

    /// Looks at what time and others ask for.
    fn look(&mut self, watch: &mut dyn FnMut(Event<'_>)) {
        let now = now_ns();
        if self.stop.is_requested() && self.shared.end_ns.load(Relaxed) > now {
            self.end_ns = self.end_ns.min(now);
            self.shared.end_ns.store(now, Relaxed);
            self.signal();
        }
        if self.stop.is_requested() && self.hangs.is_some() {
            // Others wait for what this one did.
            self.shared.drained_ns.fetch_min(now.saturating_add(DRAIN_OF_RANKS_NS), Relaxed);
        }
        if self.from.is_none() && now >= self.measure_from_ns && now < self.end_ns {
            self.from = Some(self.read(now));
            watch(Event::Began);
        }
        if self.to.is_none() && self.from.is_some() && now >= self.end_ns {
            self.to = Some(self.read(now));
            watch(Event::Ended(self.end_ns));
            self.look_at_memory();
        }
        self.open_max = self.open_max.max(self.open());
        let threads = self.lives.len();
        let looks = |hangs: &mut Hangs| hangs.look(self.lives.iter().map(Live::turns));
        if let Some(number) = self.hangs.as_mut().and_then(looks) {
            self.stop.request(StopReason::Hangs(hangs::in_words("thread", number, threads)));
        }
        if now >= self.next_line_ns {
            let every = self.spec.interval.map_or(NEVER, ns);
            self.report(self.read(now), watch);
            while self.next_line_ns <= now {
                self.next_line_ns = self.next_line_ns.saturating_add(every);
            }
        }
    }

    /// What was counted since the last interval, so that all of them add up to the load.
    fn report_rest(&mut self, ended_ns: Option<u64>, watch: &mut dyn FnMut(Event<'_>)) {
        let reading = self.read(ended_ns.unwrap_or(0).max(self.reported.at_ns + 1));
        if self.spec.interval.is_some() && reading.counts != self.reported.counts {
            self.report(reading, watch);
        }
    }

    fn report(&mut self, reading: Reading, watch: &mut dyn FnMut(Event<'_>)) {
        let counts = reading.counts.since(&self.reported.counts);
        watch(Event::Interval(Progress {
            from_ns: self.reported.at_ns - self.began_ns,
            to_ns: reading.at_ns - self.began_ns,
            open: self.open(),
            attempted: reading.counts.attempted,
            connected: reading.counts.connected,
            messages: counts.messages_over,
            bytes_sent: counts.bytes_sent,
            bytes_received: counts.bytes_received,
        }));
        self.reported = reading;
    }

    fn look_at_memory(&mut self) {
        if self.spec.looks_at_memory && self.holds.is_none() {
            let port = self.spec.unix.is_none().then(|| self.spec.target.port());
            self.holds = Some(Holds::now(port));
        }
    }

    fn open(&self) -> u64 {
        self.lives.iter().map(|live| live.open.get()).sum()
    }

    fn read(&self, at_ns: u64) -> Reading {
        let mut counts = super::Counts::default();
        self.lives.iter().for_each(|live| counts.merge(&live.counts()));
        let cpu_of = |live: &Live| live.thread.get().and_then(|thread| thread.cpu_ns());
        Reading { at_ns, counts, cpu_ns: self.lives.iter().map(cpu_of).sum() }
    }
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
