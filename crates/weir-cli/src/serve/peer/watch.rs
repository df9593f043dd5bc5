//! What is counted for a peer from a moment on, and its end of the control channel.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::mpsc::Sender;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use weir::counters::os::{DeviceUsage, OfThread, Sampler, SocketUsage, SystemUsage};
use weir::process::TreeUsage;
use weir_lab::child::ChildError;
use weir_lab::wire::{self, Window};
use weir_load::audit::AuditSettings;
use weir_load::control::{AgreedRun, Ending, Outstanding, Receiver, RunEnd};
use weir_load::peer::{Count, Ready, Serve};
use weir_load::proof::OfRun;
use weir_load::stamp::STAMP_BYTES;

use super::super::account::both;
use super::super::event::Event;
use super::super::window::{Reading, Readings};
use super::port::Port;
use super::program::{Account, Program, delivered};
use crate::exit::Failure;

/// The machine's counters are read at every so-many-th reading.
const SYSTEM_EVERY: u32 = 10;
/// The sockets on the port are looked at at every so-many-th reading: it costs 0.1 ms.
const PORT_EVERY: u32 = 5;
/// The most datagrams that the kernel gives a program at once with receive offload (UDP_MAX_SEGMENTS), and
/// counts as one.
const MOST_AS_ONE: u64 = 128;
/// By this share the window may be better than the whole run; a program whose own counts say more has
/// counted at other times than it received.
const WINDOW_BETTER: f64 = 1.05;
/// A thread took part if it used at least this share of the CPU time of all.
const TOOK_PART: f64 = 0.05;

/// A peer, shared by the main thread and the control channel.
pub struct PeerWatch {
    ready: Ready,
    verify_all: bool,
    /// Whether it was asked to receive several datagrams as one.
    receive_offload: bool,
    /// Bytes that it answers with at most, if it answers.
    reply_bytes: Option<usize>,
    /// How many generators flood it together.
    generators: usize,
    talks: bool,
    events: Sender<Event>,
    state: Mutex<WatchState>,
}

struct WatchState {
    /// Until it is ended.
    program: Option<Program>,
    sampler: Sampler,
    /// The runs that are open: one, or one of each generator, which are taken for one.
    runs: Vec<OpenRun>,
    /// Since they began, or all have started if they have a warm-up.
    course: Option<Course>,
    /// What had arrived at the last change, and when that was noticed.
    last_change: (u64, Instant),
    failure: Option<String>,
    wrong_runs: u32,
    /// Whether a run was cut off since this server was stopped.
    stopped_in_a_run: bool,
    last: Option<wire::ServerReport>,
}

/// A generator's run.
struct OpenRun {
    agreed: AgreedRun,
    has_started: bool,
    /// Whether its generator has sent everything, or is lost.
    is_over: bool,
    ending: Option<Ending>,
}

impl OpenRun {
    /// How its generator said that it ended.
    fn signalled(&self) -> Option<&RunEnd> {
        match &self.ending {
            Some(Ending::Signalled(end)) => Some(end),
            _ => None,
        }
    }

    /// What its proofs are checked with.
    fn proved_by(&self) -> Option<OfRun> {
        let ask = &self.agreed.ask;
        Some(OfRun { secret: self.signalled()?.secret?, run: ask.run, flows: ask.flows })
    }
}

/// What was there when a run began, and the readings since.
struct Course {
    at: Instant,
    process: TreeUsage,
    threads: Vec<OfThread>,
    system: SystemUsage,
    port: Port,
    /// Of the device that has its address, unless that is loopback.
    device: Option<DeviceUsage>,
    readings: Readings,
    /// The most that the program said it had received, and whether it said less once.
    counted: u64,
    count_fell: bool,
    /// When the generator had sent everything, and the CPU time by then.
    sent_at: Option<(u64, Option<u64>)>,
    until_port: u32,
    until_system: u32,
    kernel_bytes: Option<u64>,
}

impl PeerWatch {
    /// Watches a program that listens, as it was `asked` to; `verify_all`: whether every byte is to be verified.
    pub fn new(
        program: Program,
        ready: Ready,
        asked: &Serve,
        verify_all: bool,
        events: Sender<Event>,
    ) -> Result<Self, Failure> {
        let Serve { receive_offload, reply_bytes, .. } = *asked;
        let generators = asked.runs_together.unwrap_or(1);
        let talks = program.talks();
        let state = WatchState {
            program: Some(program),
            sampler: Sampler::new(),
            runs: vec![],
            course: None,
            last_change: (0, Instant::now()),
            failure: None,
            wrong_runs: 0,
            stopped_in_a_run: false,
            last: None,
        };
        let state = Mutex::new(state);
        Ok(Self {
            ready,
            verify_all,
            receive_offload,
            reply_bytes,
            generators,
            talks,
            events,
            state,
        })
    }

    fn lock(&self) -> MutexGuard<'_, WatchState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where it receives.
    pub fn address(&self) -> SocketAddr {
        self.ready.address
    }

    /// What it said that it obtained.
    pub fn settings(&self) -> &BTreeMap<String, String> {
        &self.ready.settings
    }

    /// Whether a generator's run is on.
    pub fn has_active_run(&self) -> bool {
        self.lock().course.is_some()
    }

    /// Whether the program ended by itself, or said something else than it should.
    pub fn has_failed(&self) -> bool {
        self.lock().failure.is_some()
    }

    /// Whether the data of a run were wrong, or its end was not signalled.
    pub fn has_wrong_runs(&self) -> bool {
        self.lock().wrong_runs > 0
    }

    /// Whether a run was cut off since this server was stopped.
    pub fn was_stopped_in_a_run(&self) -> bool {
        self.lock().stopped_in_a_run
    }

    /// Takes a reading.
    pub fn read(&self) {
        self.lock().read(self.address());
    }

    /// Ends the program. Gives the report of the last run, and what went wrong, if anything did.
    pub fn end(&self, within: Duration) -> (wire::ServerReport, Option<String>) {
        let mut state = self.lock();
        let report = state.last.take().unwrap_or_default();
        let ended = state.program.take().map_or(Ok(()), |program| program.finish(within));
        let failure = state.failure.take();
        (report, failure.or_else(|| ended.err().map(|error| error.to_string())))
    }

    fn tell(&self, event: Event) {
        // The main thread is gone only when the process ends.
        let _ = self.events.send(event);
    }

    /// Does something with the program; gives the error as text, and keeps it.
    fn with<T>(
        &self,
        state: &mut WatchState,
        run: impl FnOnce(&mut Program) -> Result<T, ChildError>,
    ) -> Result<T, String> {
        let outcome = state.with(run);
        if outcome.is_err() {
            self.tell(Event::Stop);
        }
        outcome
    }

    /// What its device dropped, and not the queue of the CPU behind it.
    fn dropped_at_device(&self, course: &Course, cpu_queue: Option<u64>) -> Option<u64> {
        let at = self.address();
        if at.ip().is_loopback() {
            return Some(0);
        }
        let all = device_of(at)?.since(course.device.as_ref()?).dropped?;
        Some(all.saturating_sub(cpu_queue.unwrap_or(0)))
    }

    /// Whether this is so of the runs of all generators that are to be.
    fn all(&self, state: &WatchState, is: impl Fn(&OpenRun) -> bool) -> bool {
        state.runs.len() == self.generators && state.runs.iter().all(is)
    }

    /// Ends the runs that are open, which all have ended.
    fn end_all(&self, state: &mut WatchState) -> wire::ServerReport {
        let at = self.address();
        let runs = std::mem::take(&mut state.runs);
        state.all_sent();
        state.read(at);
        let sent = |run: &OpenRun| match run.signalled() {
            Some(end) => end.sent_per_flow.clone(),
            None => vec![0; run.agreed.ask.flows],
        };
        let sent: Vec<u64> = runs.iter().flat_map(sent).collect();
        // Before it is told, too: what it closes then was there, however short the run.
        if let Some(course) = &mut state.course {
            course.port.look(at);
        }
        let account = self.with(state, |program| program.end(&sent, at));
        let course = state.course.take();
        let report = match (account, course) {
            (Ok(account), Some(mut course)) => {
                course.port.look(at);
                self.report(state, &course, account, &runs)
            }
            _ => wire::ServerReport::default(), // the failure is told instead
        };
        let is_stopped = |run: &OpenRun| run.ending == Some(Ending::Stopped);
        let stopped = runs.iter().any(is_stopped);
        let lost = runs.iter().any(|run| run.signalled().is_none() && !is_stopped(run));
        state.stopped_in_a_run |= stopped;
        if report.audit.data_errors || lost {
            state.wrong_runs += 1;
        }
        report
    }

    fn report(
        &self,
        state: &mut WatchState,
        course: &Course,
        account: Account,
        runs: &[OpenRun],
    ) -> wire::ServerReport {
        let (all, threads) = state
            .program
            .as_mut()
            .map(|program| (program.usage(), program.threads()))
            .unwrap_or_default();
        let (used, system) = (all.since(&course.process), state.sampler.system());
        let (all, process) = (all.usage, used.usage);
        let system = system.since(&course.system);
        let own = state.sampler.process().cpu_ns;
        let dropped_cpu_queue = system.softnet_total().dropped;
        let mut counters = account.counters.clone();
        counters.insert("datagrams".into(), account.received());
        let proved_by: Option<Vec<OfRun>> = runs.iter().map(OpenRun::proved_by).collect();
        // They begin together.
        let each: Option<Vec<u64>> =
            runs.iter().map(|run| Some(run.signalled()?.elapsed_ns)).collect();
        let sent_in_ns = each.and_then(|each| each.into_iter().max());
        let is_stamped = |run: &OpenRun| run.agreed.ask.size_bytes >= STAMP_BYTES;
        let most_as_one = if self.receive_offload { MOST_AS_ONE } else { 1 };
        let peer = wire::PeerReport {
            talks: self.talks,
            stamped: runs.iter().all(is_stamped),
            proof: proved_by.and_then(|runs| account.check(&runs)),
            counted: course.counted,
            count_fell: course.count_fell,
            kernel_received: delivered(&system, self.address())
                .map(|delivered| delivered.saturating_mul(most_as_one)),
            sockets_closed: course.port.closed(),
        };
        wire::ServerReport {
            settings: self.ready.settings.clone(),
            end_signalled: runs.iter().all(|run| run.signalled().is_some()),
            threads_started: threads.len() as u32,
            threads_used: took_part(&course.threads, &threads),
            window: course.window(account.received(), sent_in_ns),
            peer: Some(peer),
            counters,
            audit: account.audit(),
            system: wire::SystemReport {
                // Both processes: what others had is what is left.
                cpu_ns: both(all.cpu_ns, own),
                unknown: used.unknown,
                switches_unknown: used.switches_unknown,
                context_switches: both(process.voluntary_switches, process.involuntary_switches),
                interrupts: system.total.interrupts,
                dropped_device: self.dropped_at_device(course, dropped_cpu_queue),
                dropped_cpu_queue,
                dropped_socket: course.port.dropped(),
                dropped_socket_source: None,
                queued_bytes: SocketUsage::bound_to(&[self.address()])
                    .and_then(|all| all.queued_bytes),
                no_port: system.udp().no_ports,
                delivered: system.udp().in_datagrams,
                resident_bytes: all.peak_resident_bytes,
                kernel_bytes: course.kernel_bytes,
                cores: weir::affinity::allowed_cores(),
            },
            ..wire::ServerReport::default()
        }
    }
}

/// The device that has an address; none for loopback, whose device has no queue of its own.
fn device_of(at: SocketAddr) -> Option<DeviceUsage> {
    (!at.ip().is_loopback()).then(|| DeviceUsage::having(&[at.ip()]))?
}

/// How many threads used a good part of the CPU time that all used in between. Their times are
/// as of the last timer tick, which is exact enough for that.
fn took_part(before: &[OfThread], after: &[OfThread]) -> u32 {
    let used = |thread: &OfThread| {
        let then = before.iter().find(|other| other.id == thread.id);
        let then = then.and_then(|other| other.usage.cpu_ns).unwrap_or(0);
        thread.usage.cpu_ns.unwrap_or(0).saturating_sub(then) as f64
    };
    let all: f64 = after.iter().map(used).sum();
    after.iter().filter(|thread| all > 0.0 && used(thread) >= all * TOOK_PART).count() as u32
}

impl WatchState {
    fn with<T>(
        &mut self,
        run: impl FnOnce(&mut Program) -> Result<T, ChildError>,
    ) -> Result<T, String> {
        let gone = || "the peer was ended".to_owned();
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        let program = self.program.as_mut().ok_or_else(gone)?;
        run(program).map_err(|error| {
            let message = error.to_string();
            self.failure = Some(message.clone());
            message
        })
    }

    /// A generator's run, where it is open.
    fn run(&mut self, run: &AgreedRun) -> Option<&mut OpenRun> {
        self.runs.iter_mut().find(|open| open.agreed.ask.run == run.ask.run)
    }

    /// Counts for a run from now on.
    fn begin(&mut self, at: SocketAddr) -> Result<(), String> {
        let Count { handled, .. } = self.with(|program| program.count(at))?;
        let (process, threads) = self
            .program
            .as_mut()
            .map(|program| (program.usage(), program.threads()))
            .unwrap_or_default();
        let mut course = Course {
            at: Instant::now(),
            process,
            threads,
            system: self.sampler.system(),
            port: Port::at(at),
            device: device_of(at),
            readings: Readings::default(),
            counted: 0,
            count_fell: false,
            sent_at: None,
            until_port: PORT_EVERY,
            until_system: 0,
            kernel_bytes: None,
        };
        course.read(0, course.process.usage.cpu_ns);
        self.course = Some(course);
        self.last_change = (handled, Instant::now());
        Ok(())
    }

    /// The generator has sent everything, or has gone.
    fn all_sent(&mut self) {
        let Some(course) = self.course.as_mut().filter(|course| course.sent_at.is_none()) else {
            return;
        };
        let cpu_ns = self.program.as_mut().and_then(Program::cpu_ns);
        course.sent_at = Some((course.elapsed_ns(), cpu_ns));
    }

    fn read(&mut self, at: SocketAddr) {
        // A failure is kept, and found by whoever looks.
        let Ok(count) = self.with(|program| program.count(at)) else { return };
        let cpu_ns = self.program.as_mut().and_then(Program::cpu_ns);
        let Some(course) = &mut self.course else { return };
        course.read(count.received, cpu_ns);
        if course.until_port == 0 {
            course.until_port = PORT_EVERY;
            course.port.look(at);
        }
        course.until_port -= 1;
        if course.until_system == 0 {
            course.until_system = SYSTEM_EVERY;
            let bytes = self.sampler.system().total.udp_memory_bytes;
            course.kernel_bytes = course.kernel_bytes.max(bytes);
        }
        course.until_system -= 1;
    }
}

impl Course {
    fn read(&mut self, received: u64, cpu_ns: Option<u64>) {
        self.count_fell |= received < self.counted;
        self.counted = self.counted.max(received);
        self.readings.push(Reading {
            at_ns: self.elapsed_ns(),
            datagrams: received,
            // What else it says it was given nobody can check.
            handled: received,
            cpu_ns,
            // Which of its threads receive only the program knows.
            threads_cpu_ns: None,
        });
    }

    fn elapsed_ns(&self) -> u64 {
        u64::try_from(self.at.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// The measured window by the program's counts; but all of the run, by weir's own clock, where the window is
    /// better than that: when it counts is its own affair. The clock is the generator's: until its end is noticed here
    /// it has been put together, sent and read, which on a busy machine is a good part of a short run.
    fn window(&self, received: u64, sent_in_ns: Option<u64>) -> Window {
        let window = self.readings.window();
        let Some((noticed_ns, cpu_ns)) = self.sent_at else { return window };
        let elapsed_ns = sent_in_ns.unwrap_or(noticed_ns);
        let cpu_ns =
            cpu_ns.zip(self.process.usage.cpu_ns).map(|(now, then)| now.saturating_sub(then));
        let whole = Window {
            elapsed_ns,
            datagrams: received,
            handled: received,
            cpu_ns,
            threads_cpu_ns: None,
        };
        believed(window, whole)
    }
}

/// The window, unless its rate or its CPU time is better than that of the whole run.
fn believed(window: Window, whole: Window) -> Window {
    let per_datagram = |of: &Window, figure: Option<u64>| {
        figure.filter(|_| of.datagrams > 0).map(|figure| figure as f64 / of.datagrams as f64)
    };
    let is_better = |of: fn(&Window) -> Option<u64>| {
        let both = per_datagram(&window, of(&window)).zip(per_datagram(&whole, of(&whole)));
        both.is_some_and(|(window, whole)| window * WINDOW_BETTER < whole)
    };
    let better = is_better(|window| Some(window.elapsed_ns)) || is_better(|window| window.cpu_ns);
    if better { whole } else { window }
}

impl Receiver for PeerWatch {
    fn begin(&self, run: &AgreedRun) -> Result<Vec<u16>, String> {
        let at = self.address();
        if at.ip().to_canonical() != run.local {
            return Err(format!("nothing is served on {}; use {}", run.local, at.ip()));
        }
        let mut state = self.lock();
        match (state.runs.len(), self.generators) {
            (open, generators) if open < generators => {}
            (_, 1) => {
                return Err(
                    "a run is open already, and a peer can count for only one at a time; wait for its end"
                        .into(),
                );
            }
            (_, several) => {
                return Err(format!(
                    "all {several} generators that were announced are here already"
                ));
            }
        }
        let mut settings = AuditSettings::for_run(run);
        if self.verify_all {
            settings.verify_every = 1;
        }
        let beside = !state.runs.is_empty();
        self.with(&mut state, |program| program.begin(&settings, beside, at))?;
        if !beside {
            state.begin(at)?;
        }
        let agreed = run.clone();
        state.runs.push(OpenRun { agreed, has_started: false, is_over: false, ending: None });
        drop(state);
        self.tell(Event::RunBegan);
        Ok(vec![at.port()])
    }

    fn answers(&self, run: &AgreedRun, reply_bytes: usize) -> Result<(), String> {
        match self.reply_bytes.map(|most| most.min(run.ask.size_bytes)) {
            Some(own) if own == reply_bytes => Ok(()),
            Some(own) => {
                Err(format!("it answers with {own} bytes, not {reply_bytes}; give --reply-size"))
            }
            None => Err("it answers nothing; start it with --echo".into()),
        }
    }

    fn start(&self, run: &AgreedRun) {
        let at = self.address();
        let mut state = self.lock();
        state.run(run).into_iter().for_each(|run| run.has_started = true);
        if !self.all(&state, |run| run.has_started) {
            return;
        }
        if self.with(&mut state, |program| program.started(at)).is_ok() {
            // If that fails it is kept as the program's failure, and ends the server.
            let _ = state.begin(at);
        }
    }

    fn all_sent(&self, run: &AgreedRun) {
        let mut state = self.lock();
        state.run(run).into_iter().for_each(|run| run.is_over = true);
        if self.all(&state, |run| run.is_over) {
            state.all_sent();
        }
    }

    fn outstanding(&self, _run: &AgreedRun, _sent: Option<u64>) -> Outstanding {
        let sockets = SocketUsage::bound_to(&[self.address()]);
        let queued_bytes = sockets.and_then(|sockets| sockets.queued_bytes);
        Outstanding { queued_bytes, missing: None }
    }

    fn quiet_ns(&self, run: &AgreedRun) -> u64 {
        let at = self.address();
        let mut state = self.lock();
        let is_over = state.run(run).is_some_and(|run| run.is_over);
        if is_over && !self.all(&state, |run| run.is_over) {
            // What the others send may be in the sockets.
            return 0;
        }
        let Ok(count) = self.with(&mut state, |program| program.count(at)) else {
            return u64::MAX;
        };
        if count.handled != state.last_change.0 {
            state.last_change = (count.handled, Instant::now());
        }
        u64::try_from(state.last_change.1.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn end(&self, run: &AgreedRun, ending: &Ending) -> serde_json::Value {
        let mut state = self.lock();
        if let Ending::NotSignalled { reason } = ending {
            self.note(&format!("the end of the run was not signalled: {reason}"));
        }
        state.run(run).into_iter().for_each(|run| run.ending = Some(ending.clone()));
        if !self.all(&state, |run| run.ending.is_some()) {
            // The report is of all of them.
            return serde_json::Value::Null;
        }
        let report = self.end_all(&mut state);
        let value = serde_json::to_value(&report).unwrap_or_default();
        state.last = Some(report);
        drop(state);
        self.tell(Event::RunEnded);
        value
    }

    fn note(&self, text: &str) {
        self.tell(Event::Note(text.to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir::counters::os::{ThreadId, ThreadUsage};

    #[test]
    fn a_program_that_counts_when_it_likes_gains_nothing() {
        let of = |elapsed_ns, datagrams, cpu_ns| {
            let cpu_ns = Some(cpu_ns);
            Window { elapsed_ns, datagrams, handled: datagrams, cpu_ns, threads_cpu_ns: None }
        };
        let whole = of(1000, 5000, 900);
        let honest = of(960, 4850, 865);
        assert_eq!(believed(honest, whole), honest);
        // All of it told in the last moments, or while it slept.
        assert_eq!(believed(of(20, 5000, 20), whole), whole);
        assert_eq!(believed(of(960, 4850, 20), whole), whole);
        let unknown = Window { cpu_ns: None, ..honest };
        assert_eq!(believed(unknown, whole), unknown);
        assert_eq!(believed(of(0, 0, 0), of(1000, 0, 0)), of(0, 0, 0));
    }

    /// A program that received 1000 datagrams/ms for 300 ms, at 1 us of CPU time each, and whose end was noticed
    /// at `noticed_ms`.
    fn honest(noticed_ms: u64) -> Course {
        let mut readings = Readings::default();
        for ms in (0..=320).step_by(20) {
            let datagrams = 1000 * ms.min(300);
            readings.push(Reading {
                at_ns: ms * 1_000_000,
                datagrams,
                handled: datagrams,
                cpu_ns: Some(1000 * datagrams),
                threads_cpu_ns: None,
            });
        }
        let mut process = TreeUsage::default();
        process.usage.cpu_ns = Some(0);
        Course {
            at: Instant::now(),
            process,
            threads: vec![],
            system: SystemUsage::default(),
            port: Port::default(),
            device: None,
            readings,
            counted: 300_000,
            count_fell: false,
            sent_at: Some((noticed_ms * 1_000_000, Some(300_000_000))),
            until_port: 0,
            until_system: 0,
            kernel_bytes: None,
        }
    }

    #[test]
    fn a_generator_whose_end_is_noticed_late_costs_the_program_nothing() {
        let end = Some(300_000_000);
        let rate = |window: Window| window.datagrams as f64 * 1e9 / window.elapsed_ns as f64;
        for noticed_ms in [301, 320, 400] {
            let window = honest(noticed_ms).window(300_000, end);
            assert_eq!((window, rate(window)), (honest(noticed_ms).readings.window(), 1e6));
        }
        // Where the end was not signalled there is no other clock than that of who noticed it.
        let window = honest(400).window(300_000, None);
        assert_eq!((window.elapsed_ns, window.datagrams), (400_000_000, 300_000));
        // Nor does the generator's clock help a program that counts all in the last moment.
        let mut late = honest(400);
        late.readings = Readings::default();
        for (ms, datagrams) in [(0, 0), (280, 1000), (299, 299_000), (300, 300_000), (320, 300_000)]
        {
            let at_ns = ms * 1_000_000;
            let (cpu_ns, threads_cpu_ns) = (Some(at_ns), None);
            let handled = datagrams;
            late.readings.push(Reading { at_ns, datagrams, handled, cpu_ns, threads_cpu_ns });
        }
        assert_eq!(late.window(300_000, end).elapsed_ns, 300_000_000);
    }

    #[test]
    fn threads_that_did_next_to_nothing_took_no_part() {
        let id = ThreadId::current();
        let of = |cpu_ns| {
            let usage = ThreadUsage { cpu_ns: Some(cpu_ns), ..ThreadUsage::default() };
            OfThread { id, usage }
        };
        assert_eq!(took_part(&[], &[]), 0);
        assert_eq!(took_part(&[of(500)], &[of(500)]), 0, "nobody did anything");
        assert_eq!(took_part(&[], &[of(90_000), of(4000), of(6000)]), 2);
    }
}
