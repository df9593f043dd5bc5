//! Watches a server while it runs, and makes its report.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir::counters::os::KernelEntries;
use weir::counters::os::{Sampler, SocketUsage, ThreadId};
use weir::counters::{ENTRIES_BY_KERNEL, ENTRIES_SOURCE, Snapshot};
use weir::socket::SocketState;
use weir::tunable::Setting;
use weir::udp::Running;
use weir::wake::Waker;
use weir_lab::performance::{Batches, Now as Recorded, Record, Recorder, ThreadNow};
use weir_lab::wire;
use weir_load::audit::{Audit, AuditReport, AuditSettings};
use weir_load::control::{AgreedRun, Arrived, Ending, InForce, Outstanding, Receiver};

use super::account::{audit_report, both, put_counts, total};
use super::course::{Course, Cpu};
use super::event::Event;
use super::handler::{Measured, Reply};
use super::hold::Hold;
use super::metrics::udp::Figures as Scraped;
use super::rest::Rest;
use super::together::{Ended, Together};

/// The machine's counters are read at every so-many-th reading: they cost 35 µs.
const SYSTEM_EVERY: u32 = 10;

/// Why a run was cut short that was open when the server was stopped.
const STOPPED: &str = "the server was stopped before the generator had ended the run";

/// What is watched, shared by the main thread and the control channel.
pub struct Watch {
    design: String,
    addresses: Vec<SocketAddr>,
    unix_addresses: Vec<String>,
    audit: Arc<Audit>,
    verify_all: bool,
    /// What it answers, if it does.
    reply: Option<Reply>,
    events: Sender<Event>,
    /// What holds the server up, where anything does.
    hold: Option<Arc<Hold>>,
    /// By what its threads wake who rests.
    rest: Rest,
    state: Mutex<WatchState>,
}

struct WatchState {
    /// Until it is stopped.
    server: Option<Running<Measured>>,
    sampler: Sampler,
    /// Where the kernel counts the entries into it.
    entries: Option<KernelEntries>,
    /// Since the server began.
    whole: Course,
    /// Since each open run began, or started if it has a warm-up; by run id, at most as many
    /// as the audit has runs.
    runs: Vec<(u32, Course)>,
    /// Datagrams handled by the last reading.
    handled: u64,
    /// Where the runs of several generators are one.
    together: Option<Together>,
    until_system: u32,
    /// Runs whose data were wrong or whose end nobody signalled.
    wrong_runs: u32,
    /// Runs that have ended.
    runs_ended: u32,
    /// Whether a run was cut off since this server was stopped.
    stopped_in_a_run: bool,
    /// Whether settings were changed since that was last asked.
    were_changed: bool,
    /// The performance log of the run that began last, until the generator has sent everything.
    recorder: Option<Recorder>,
    /// The log as it was then.
    recorded: Vec<Record>,
    last: Option<wire::ServerReport>,
}

/// What the server tells of itself at a moment.
struct Figures {
    counters: Vec<Snapshot>,
    sockets: Vec<SocketState>,
    settings: BTreeMap<String, String>,
    /// Entries into the kernel, where that counts them.
    entries: Option<u64>,
}

/// One interval, for a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Since the server began.
    pub elapsed_ns: u64,
    /// Datagrams since then.
    pub datagrams: u64,
    /// CPU time of the process since then in nanoseconds, if known.
    pub cpu_ns: Option<u64>,
    /// Datagrams dropped at sockets since then, if known.
    pub dropped_socket: Option<u64>,
}

impl Now {
    /// Where everything begins.
    pub const ZERO: Self =
        Self { elapsed_ns: 0, datagrams: 0, cpu_ns: Some(0), dropped_socket: Some(0) };
}

impl Watch {
    /// Watches a server that has started.
    pub fn new(
        server: Running<Measured>,
        design: String,
        audit: Arc<Audit>,
        verify_all: bool,
        events: Sender<Event>,
        rest: Rest,
    ) -> Self {
        let ended = events.clone();
        server.on_end(Waker::new(move || drop(ended.send(Event::Stop))));
        let mut sampler = Sampler::new();
        let whole = Course::begin(&server, &mut sampler);
        let addresses = server.local_addresses().to_vec();
        let unix_addresses = server.unix_addresses().iter().map(ToString::to_string).collect();
        let mut state = WatchState {
            server: Some(server),
            sampler,
            entries: None,
            whole,
            runs: vec![],
            handled: 0,
            together: None,
            until_system: 0,
            wrong_runs: 0,
            runs_ended: 0,
            stopped_in_a_run: false,
            were_changed: false,
            recorder: None,
            recorded: vec![],
            last: None,
        };
        state.read(&audit);
        let state = Mutex::new(state);
        Self {
            design,
            addresses,
            unix_addresses,
            audit,
            verify_all,
            reply: None,
            events,
            hold: None,
            rest,
            state,
        }
    }

    fn lock(&self) -> MutexGuard<'_, WatchState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same with entries into the kernel that the kernel counts.
    pub fn counting(self, entries: Option<KernelEntries>) -> Self {
        self.lock().entries = entries;
        self
    }

    /// The same with a log of each run.
    pub fn recording(self, recorder: Option<Recorder>) -> Self {
        let mut state = self.lock();
        state.recorder = recorder;
        state.begin_recording();
        drop(state);
        self
    }

    /// The settings that may be changed while the server runs, as they are, if any was changed since the last call.
    pub fn changed(&self) -> Option<Vec<Setting>> {
        let mut state = self.lock();
        std::mem::take(&mut state.were_changed).then(|| state.tunable())
    }

    /// What the server tells of itself for a performance log.
    pub fn performance(&self) -> Recorded {
        self.lock().performance()
    }

    /// The same of a server that is held up by this.
    pub fn holding(self, hold: Option<Arc<Hold>>) -> Self {
        Self { hold, ..self }
    }

    /// The same of a server that takes the runs of so many generators for one.
    pub fn together(self, generators: usize) -> Self {
        self.lock().together = (generators > 1).then(|| Together::of(generators));
        self
    }

    /// The same of a server that answers.
    pub fn answering(self, reply: Option<Reply>) -> Self {
        Self { reply, ..self }
    }

    /// The addresses it receives on.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The Unix sockets it receives by, as they are told.
    pub fn unix_addresses(&self) -> &[String] {
        &self.unix_addresses
    }

    /// The settings in effect, by name.
    pub fn settings(&self) -> BTreeMap<String, String> {
        self.lock().settings()
    }

    /// Whether a generator's run is on.
    pub fn has_active_run(&self) -> bool {
        !self.lock().runs.is_empty()
    }

    /// Whether the data of a run were wrong, or its end was not signalled.
    pub fn has_wrong_runs(&self) -> bool {
        self.lock().wrong_runs > 0
    }

    /// Whether a run was cut off since this server was stopped.
    pub fn was_stopped_in_a_run(&self) -> bool {
        self.lock().stopped_in_a_run
    }

    /// Takes a reading. Gives whether anything was handled since the last one.
    pub fn read(&self) -> bool {
        self.lock().read(&self.audit)
    }

    /// Whether nothing need be read before a datagram comes or a run begins: this reading and the last found nothing new,
    /// and nobody wants a log of it. From then on [`Event::Came`] says that one came.
    pub fn may_rest(&self) -> bool {
        let wakes = self.rest.begin();
        let mut state = self.lock();
        let is_quiet =
            state.runs.is_empty() && state.recorder.is_none() && !state.read(&self.audit);
        if !is_quiet {
            self.rest.end();
        }
        is_quiet && wakes
    }

    /// What there is since the server began.
    pub fn now(&self) -> Now {
        let mut state = self.lock();
        let state = &mut *state;
        let total = total(&state.whole.threads(&state.counters()));
        let process = state.whole.process(&state.sampler.process());
        Now {
            elapsed_ns: state.whole.elapsed_ns(),
            datagrams: total.datagrams,
            cpu_ns: process.cpu_ns,
            dropped_socket: state.whole.dropped_at_sockets(&state.sockets(), &self.addresses),
        }
    }

    /// What there is to scrape, of the server's whole life.
    pub fn scraped(&self) -> Scraped {
        let mut state = self.lock();
        let state = &mut *state;
        let total = total(&state.counters());
        let threads = state.server.as_ref().map(Running::thread_ids).unwrap_or_default();
        let process = state.sampler.process();
        let system = state.sampler.system();
        let kernel_bytes = system.total.udp_memory_bytes;
        let system = state.whole.system(&system);
        let at_sockets = state.whole.dropped_at_sockets(&state.sockets(), &self.addresses);
        let dropped = Dropped::of(&state.settings(), &total, at_sockets);
        let cpu_queue = system.softnet_total().dropped;
        Scraped {
            threads: threads.len(),
            threads_cpu_ns: threads.into_iter().map(ThreadId::cpu_ns).sum(),
            dropped: [
                ("socket", dropped.at_socket),
                ("cpu_queue", cpu_queue),
                ("device", self.dropped_at_device(&state.whole, &dropped, cpu_queue)),
            ],
            total,
            process,
            kernel_bytes,
            runs_open: state.runs.len(),
            runs_ended: state.runs_ended,
            runs_wrong: state.wrong_runs,
            settings: state.tunable(),
        }
    }

    /// Datagrams dropped at the device, beside what is counted elsewhere too.
    fn dropped_at_device(
        &self,
        course: &Course,
        dropped: &Dropped,
        cpu_queue: Option<u64>,
    ) -> Option<u64> {
        // The loopback device has no queue of its own: it hands every packet to the queue of the CPU, where a drop
        // is counted.
        if self.addresses.iter().all(|address| address.ip().is_loopback()) {
            return Some(0);
        }
        let all = course.dropped_at_devices(&self.addresses)?;
        Some(all.saturating_sub(dropped.of_device + cpu_queue.unwrap_or(0)))
    }

    /// Takes the server, to stop it.
    pub fn take_server(&self) -> Option<Running<Measured>> {
        if let Some(hold) = &self.hold {
            hold.end(); // its threads could not end
        }
        self.lock().server.take()
    }

    /// The report of the last run; without any, of the server's whole life.
    pub fn report(&self) -> wire::ServerReport {
        let mut state = self.lock();
        if let Some(report) = state.last.clone() {
            return report;
        }
        state.read(&self.audit);
        state.end_recording();
        let state = &mut *state;
        let figures = state.figures();
        let report = self.make_report(&state.whole, &mut state.sampler, figures, None, false);
        wire::ServerReport { performance: std::mem::take(&mut state.recorded), ..report }
    }

    /// From what each thread counted, and each socket.
    fn make_report(
        &self,
        course: &Course,
        sampler: &mut Sampler,
        figures: Figures,
        audit: Option<&AuditReport>,
        end_signalled: bool,
    ) -> wire::ServerReport {
        let Figures { counters, sockets, settings, entries } = figures;
        let threads = course.threads(&counters);
        let total = total(&threads);
        let system = course.system(&sampler.system());
        let all = sampler.process();
        let process = course.process(&all);
        let dropped_socket = course.dropped_at_sockets(&sockets, &self.addresses);
        let dropped = Dropped::of(&settings, &total, dropped_socket);
        let (dropped_socket, dropped_socket_source) = match dropped.at_socket {
            Some(count) => (Some(count), None),
            None => system.dropped_at_sockets().unzip(),
        };
        let softnet = system.softnet_total().dropped;
        let queued_bytes = self.queued_bytes(&sockets);
        let mut report = wire::ServerReport {
            design: self.design.clone(),
            settings,
            end_signalled,
            runs: 0, // the caller knows
            peer: None,
            other_runs: course.other_runs,
            // What the threads counted is put in below.
            threads_started: 0,
            threads_used: 0,
            counters: BTreeMap::new(),
            batches: wire::Batches::default(),
            threads: vec![],
            cut_short: course.cut_short.clone(),
            slices_missing: 0, // known only once the server has stopped
            window: course.readings.window(),
            sockets: course.dropped_at_each(&sockets),
            performance: vec![],
            audit: audit.map_or_else(
                || wire::Audit { received: total.datagrams, ..wire::Audit::default() },
                audit_report,
            ),
            system: wire::SystemReport {
                cpu_ns: all.cpu_ns,
                unknown: None,
                switches_unknown: None,
                context_switches: both(process.voluntary_switches, process.involuntary_switches),
                interrupts: system.total.interrupts,
                dropped_device: self.dropped_at_device(course, &dropped, softnet),
                dropped_cpu_queue: softnet,
                dropped_socket,
                dropped_socket_source: dropped_socket_source.map(String::from),
                queued_bytes,
                no_port: system.udp().no_ports,
                delivered: system.udp().in_datagrams,
                resident_bytes: process.peak_resident_bytes,
                kernel_bytes: course.kernel_bytes,
                cores: weir::affinity::allowed_cores(),
            },
        };
        put_counts(&mut report, &threads);
        if let Some((then, now)) = course.entries.zip(entries) {
            report.counters.insert("kernel_entries".into(), now.saturating_sub(then));
            report.settings.insert(ENTRIES_SOURCE.into(), ENTRIES_BY_KERNEL.into());
        }
        report
    }

    /// The report of the runs of several generators that are one.
    fn report_of_all(&self, state: &mut WatchState, ended: Ended) -> wire::ServerReport {
        let figures = state.figures();
        let course = ended.course.as_ref().unwrap_or(&state.whole);
        let (audit, signalled) = (ended.audit.as_ref(), ended.signalled);
        let report = self.make_report(course, &mut state.sampler, figures, audit, signalled);
        let mut report = wire::ServerReport {
            runs: state.runs_ended,
            window: ended.window,
            cut_short: ended.cut_short,
            ..report
        };
        if !ended.tells_latency {
            forget_latency(&mut report);
        }
        report
    }

    /// What lies in the server's sockets, also in those that a provider keeps for itself, where the system tells of
    /// all by their address.
    fn queued_bytes(&self, sockets: &[SocketState]) -> Option<u64> {
        match SocketUsage::bound_to(&self.addresses) {
            Some(all) => all.queued_bytes,
            None if sockets.is_empty() => None,
            None => sockets.iter().map(|socket| socket.usage.queued_bytes).sum(),
        }
    }

    fn tell(&self, event: Event) {
        // The main thread is gone only when the process ends.
        let _ = self.events.send(event);
    }
}

impl Receiver for Watch {
    fn begin(&self, run: &AgreedRun) -> Result<Vec<u16>, String> {
        let serves = |address: &&SocketAddr| {
            address.ip().is_unspecified() || address.ip().to_canonical() == run.local
        };
        let ports: Vec<u16> = self.addresses.iter().filter(serves).map(SocketAddr::port).collect();
        if ports.is_empty() {
            return Err(format!("nothing is served on {}; {}", run.local, served(&self.addresses)));
        }
        let ask = &run.ask;
        let mut settings = AuditSettings::for_run(run);
        if self.verify_all {
            settings.verify_every = 1;
        }
        self.audit.begin(settings)?;
        let mut state = self.lock();
        if let Some(Err(reason)) =
            state.together.as_mut().map(|together| together.begin(ask.run, run.tells_latency()))
        {
            drop(state);
            self.audit.end(ask.run, None);
            return Err(reason);
        }
        state.begin(ask.run);
        drop(state);
        self.tell(Event::RunBegan);
        Ok(ports)
    }

    fn answers(&self, run: &AgreedRun, reply_bytes: usize) -> Result<(), String> {
        let Some(reply) = self.reply else {
            return Err(
                "this server answers nothing; flood it without --reply, or start it with --echo"
                    .into(),
            );
        };
        match reply.bytes(run.ask.size_bytes) {
            own if own == reply_bytes => Ok(()),
            own => Err(format!(
                "this server answers {} bytes with {own}, not with {reply_bytes}; give both the same --reply-size",
                run.ask.size_bytes
            )),
        }
    }

    fn start(&self, run: &AgreedRun) {
        let mut state = self.lock();
        self.audit.start(run.ask.run);
        state.begin(run.ask.run);
        let is_last = state.start_together(run.ask.run);
        if let (true, Some(hold)) = (is_last, &self.hold) {
            hold.arm();
        }
    }

    fn all_sent(&self, run: &AgreedRun) {
        let mut state = self.lock();
        if state.together.as_mut().is_some_and(|together| !together.all_sent(run.ask.run)) {
            return;
        }
        state.end_recording();
        if let Some(hold) = &self.hold {
            hold.all_sent();
        }
    }

    fn quiet_ns(&self, run: &AgreedRun) -> u64 {
        if self.lock().together.as_ref().is_some_and(|together| together.waits(run.ask.run)) {
            return 0;
        }
        let quiet_ns = self.audit.quiet_ns(run.ask.run);
        self.hold.as_ref().map_or(quiet_ns, |hold| quiet_ns.min(hold.quiet_ns()))
    }

    fn arrived(&self, run: &AgreedRun) -> Option<Arrived> {
        self.audit.arrived(run.ask.run)
    }

    fn outstanding(&self, run: &AgreedRun, sent: Option<u64>) -> Outstanding {
        let mut state = self.lock();
        let state = &mut *state;
        let sockets_now = state.sockets();
        let settings = state.settings();
        let (course, sent, received) = match (&mut state.together, state.runs.as_slice()) {
            (Some(together), _) => {
                let all = sent.and_then(|sent| together.sent(run.ask.run, sent));
                let Some(all) = all else { return Outstanding::default() };
                let received = together.received(|id| self.audit.received(id));
                let Some(course) = together.course() else { return Outstanding::default() };
                (course, Some(all), received)
            }
            (None, [(id, course)]) if *id == run.ask.run => {
                (course, sent, self.audit.received(*id))
            }
            // With several runs nobody can say whose datagrams lie in a socket, or were dropped there. While there are any, one
            // of this run may be among them: it is waited for, but given up after a while, as others may keep sending.
            _ => {
                let queued = self.queued_bytes(&sockets_now).unwrap_or(0);
                return Outstanding { queued_bytes: None, missing: (queued > 0).then_some(1) };
            }
        };
        let is = |name: &str, value: &str| settings.get(name).is_some_and(|v| v.starts_with(value));
        // The sockets of AF_XDP hold a port and are never read.
        let queued_bytes =
            (!is("provider", "xdp")).then(|| self.queued_bytes(&sockets_now)).flatten();
        let loopback = self.addresses.iter().all(|address| address.ip().is_loopback());
        // Elsewhere a device may drop, and with receive offload a drop is of several.
        let accountable = sent.filter(|_| loopback && !is("receive-offload", "true"));
        let missing = accountable.map(|sent| {
            let system = course.system(&state.sampler.system());
            // Where that is not told, what was dropped is missing, too: it is given up after a while.
            let at_sockets = course.dropped_at_sockets(&sockets_now, &self.addresses).unwrap_or(0);
            let dropped = at_sockets + system.softnet_total().dropped.unwrap_or(0);
            sent.saturating_sub(received + dropped)
        });
        Outstanding { queued_bytes, missing }
    }

    fn cut_short(&self, run: &AgreedRun, reason: &str) {
        let mut state = self.lock();
        if let Some((_, course)) = state.runs.iter_mut().find(|(id, _)| *id == run.ask.run) {
            course.cut_short.get_or_insert_with(|| reason.to_owned());
        }
        drop(state);
        self.note(reason);
    }

    fn end(&self, run: &AgreedRun, ending: &Ending) -> serde_json::Value {
        let sent = match ending {
            Ending::Signalled(end) => Some(end.sent_per_flow.as_slice()),
            Ending::NotSignalled { .. } | Ending::Stopped => None,
        };
        let mut state = self.lock();
        // The last reading comes first: once the audit has ended the run it knows no count.
        state.read(&self.audit);
        let audit = self.audit.end(run.ask.run, sent);
        let state_now = &mut *state;
        let at = state_now.runs.iter().position(|(id, _)| *id == run.ask.run);
        let course = at.map(|at| state_now.runs.remove(at).1);
        let course = course.as_ref().unwrap_or(&state_now.whole);
        let figures = state_now.figures();
        let mut report = self.make_report(
            course,
            &mut state_now.sampler,
            figures,
            audit.as_ref(),
            sent.is_some(),
        );
        if !run.tells_latency() {
            forget_latency(&mut report);
        }
        let stopped = *ending == Ending::Stopped;
        let incomplete = !report.end_signalled || report.cut_short.is_some();
        if report.audit.data_errors || incomplete && !stopped {
            state.wrong_runs += 1;
        }
        if stopped {
            state.stopped_in_a_run = true;
            report.cut_short.get_or_insert_with(|| STOPPED.into());
        }
        let signalled = sent.is_some();
        let of_all = match &mut state.together {
            None => Some(None),
            Some(together) => {
                together.end(run.ask.run, audit, signalled, report.cut_short.clone()).map(Some)
            }
        };
        let is_last = of_all.is_some();
        if is_last {
            state.runs_ended += 1;
        }
        report.runs = state.runs_ended;
        let value = serde_json::to_value(&report).unwrap_or_default();
        if let Some(Some(ended)) = of_all {
            report = self.report_of_all(&mut state, ended);
        }
        // It is for whoever started this server, and would be too much for the control channel.
        if is_last {
            report.performance = std::mem::take(&mut state.recorded);
            state.last = Some(report);
        }
        drop(state);
        if let Ending::NotSignalled { reason } = ending {
            self.note(&format!("the end of the run was not signalled: {reason}"));
        }
        if is_last {
            self.tell(Event::RunEnded);
        }
        value
    }

    fn set(&self, changes: &[(&str, &str)]) -> Result<Vec<InForce>, String> {
        let mut state = self.lock();
        let server = state.server.as_ref().ok_or("this server is being stopped")?;
        let before = server.settings();
        let now = server.set(changes).map_err(|error| error.to_string())?;
        state.were_changed |= now != before;
        Ok(for_control(now))
    }

    fn note(&self, text: &str) {
        self.tell(Event::Note(text.to_owned()));
    }
}

/// Settings as the control channel tells them.
pub fn for_control(settings: Vec<Setting>) -> Vec<InForce> {
    let told = |of: Setting| InForce { name: of.name.into(), value: of.value, allowed: of.allowed };
    settings.into_iter().map(told).collect()
}

impl WatchState {
    /// Counts for a run from now on, whatever was counted for it before.
    fn begin(&mut self, run: u32) {
        let Some(mut course) = self.begin_course() else { return };
        let before = self.runs.iter().position(|(id, _)| *id == run);
        let before = before.map(|at| self.runs.remove(at).1);
        course.other_runs = match before {
            Some(before) => {
                course.cut_short = before.cut_short;
                before.other_runs
            }
            None => {
                self.runs.iter_mut().for_each(|(_, other)| other.other_runs += 1);
                u32::try_from(self.runs.len()).unwrap_or(u32::MAX)
            }
        };
        let cpu = self.cpu();
        course.read(0, None, cpu);
        self.runs.push((run, course));
        self.until_system = 0;
        self.begin_recording();
    }

    fn begin_course(&mut self) -> Option<Course> {
        let server = self.server.as_ref()?;
        let mut course = Course::begin(server, &mut self.sampler);
        // From here on it is the threads of the server that are counted, and not those that look on.
        course.entries = self.entries.as_ref().and_then(|entries| {
            entries.leave_out_all_but(&server.thread_ids()).and_then(|()| entries.read()).ok()
        });
        Some(course)
    }

    /// The warm-up of a run is over. Gives whether everything that is to be measured begins with it.
    fn start_together(&mut self, run: u32) -> bool {
        let Some(true) = self.together.as_mut().map(|together| together.start(run)) else {
            return self.together.is_none();
        };
        let course = self.begin_course();
        if let Some((together, course)) = self.together.as_mut().zip(course) {
            together.begin_course(course);
        }
        true
    }

    fn begin_recording(&mut self) {
        let now = self.recorder.is_some().then(|| self.performance());
        if let Some((recorder, now)) = self.recorder.as_mut().zip(now) {
            recorder.begin(now);
        }
    }

    /// What the server tells of itself for a performance log.
    fn performance(&self) -> Recorded {
        let counters = self.counters();
        let threads = self.server.as_ref().map(Running::thread_ids).unwrap_or_default();
        let batches =
            |of: &Snapshot| Batches { dequeues: of.batches.count(), brought: of.datagrams };
        let thread = |(index, (id, of)): (usize, (ThreadId, &Snapshot))| ThreadNow {
            id,
            name: format!("weir-udp-{index}"),
            counts: of.named(),
            batches: batches(of),
        };
        let total = total(&counters);
        Recorded {
            counts: total.named(),
            batches: batches(&total),
            threads: threads.into_iter().zip(&counters).enumerate().map(thread).collect(),
            more_threads: 0,
            settings: self.tunable().iter().map(|setting| (setting.name, setting.number)).collect(),
            sockets: self.sockets().iter().map(|socket| socket.usage).collect(),
        }
    }

    /// What may be changed while the server runs, as it is.
    fn tunable(&self) -> Vec<Setting> {
        self.server.as_ref().map(Running::settings).unwrap_or_default()
    }

    /// The generator has sent everything: what comes after it, the quiet in which its end is waited for, is no part of
    /// the run.
    fn end_recording(&mut self) {
        let now = self.has_begun_recording().then(|| self.performance());
        if let Some((recorder, now)) = self.recorder.as_mut().zip(now) {
            self.recorded = recorder.end(now);
        }
    }

    fn has_begun_recording(&self) -> bool {
        self.recorder.as_ref().is_some_and(Recorder::has_begun)
    }

    fn settings(&self) -> BTreeMap<String, String> {
        let effective = self.server.as_ref().map(Running::effective).unwrap_or_default();
        effective.into_iter().collect()
    }

    fn figures(&self) -> Figures {
        let (counters, sockets) = (self.counters(), self.sockets());
        let entries = self.entries.as_ref().and_then(|entries| entries.read().ok());
        Figures { counters, sockets, settings: self.settings(), entries }
    }

    fn sockets(&self) -> Vec<SocketState> {
        self.server.as_ref().map(Running::sockets).unwrap_or_default()
    }

    fn counters(&self) -> Vec<Snapshot> {
        self.server.as_ref().map(Running::counters).unwrap_or_default()
    }

    fn cpu(&mut self) -> Cpu {
        let threads = self.server.as_ref().map(Running::thread_ids).unwrap_or_default();
        let process_ns = self.sampler.process().cpu_ns;
        Cpu { process_ns, threads_ns: threads.into_iter().map(ThreadId::cpu_ns).sum() }
    }

    fn read(&mut self, audit: &Audit) -> bool {
        let due = self.recorder.as_ref().is_some_and(Recorder::is_due).then(|| self.performance());
        if let Some((recorder, now)) = self.recorder.as_mut().zip(due) {
            recorder.read(now);
        }
        let counters = self.counters();
        let cpu = self.cpu();
        let handled = |course: &Course| total(&course.threads(&counters)).datagrams;
        let of_all = handled(&self.whole);
        let is_new = of_all != std::mem::replace(&mut self.handled, of_all);
        self.whole.read(of_all, None, cpu);
        for (run, course) in &mut self.runs {
            course.read(handled(course), Some(audit.received(*run)), cpu);
        }
        if let Some(together) = &mut self.together {
            let handled = together.course().map_or(0, handled);
            together.read(|run| audit.received(run), handled, cpu);
        }
        if self.until_system == 0 {
            self.until_system = SYSTEM_EVERY;
            let bytes = self.sampler.system().total.udp_memory_bytes;
            let runs = self.runs.iter_mut().map(|(_, course)| course);
            let together = self.together.as_mut().and_then(Together::course_mut);
            for course in runs.chain([&mut self.whole]).chain(together) {
                course.kernel_bytes = course.kernel_bytes.max(bytes);
            }
        }
        self.until_system -= 1;
        is_new
    }
}

/// What was dropped at the server's sockets, and how much of that its device counts, too.
struct Dropped {
    at_socket: Option<u64>,
    of_device: u64,
}

impl Dropped {
    /// Where frames are received past the kernel, its sockets know nothing of them: the server has
    /// counted what found no slice, which the device counts as dropped, and what was damaged.
    fn of(settings: &BTreeMap<String, String>, total: &Snapshot, at_sockets: Option<u64>) -> Self {
        if !settings.contains_key("xdp") {
            return Self { at_socket: at_sockets, of_device: 0 };
        }
        let of_device = total.no_buffer + total.overflows + total.too_long;
        Self { at_socket: Some(of_device + total.discarded), of_device }
    }
}

/// The clocks of two machines, or systems, have nothing in common, and it is not known how they stand to one another.
fn forget_latency(report: &mut wire::ServerReport) {
    report.audit.latency_ns = None;
    report.audit.latency_histogram.clear();
}

fn served(addresses: &[SocketAddr]) -> String {
    if addresses.is_empty() {
        return "it has Unix sockets alone, which no flood goes to; start it with --bind, too"
            .into();
    }
    let list: Vec<String> =
        addresses.iter().map(|address| address.ip()).map(|ip: IpAddr| ip.to_string()).collect();
    format!("use {}", list.join(" or "))
}

#[cfg(test)]
mod tests;
