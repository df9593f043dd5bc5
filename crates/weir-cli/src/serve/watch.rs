//! Watches a server while it runs, and makes its report.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use weir::counters::os::{ProcessUsage, Sampler, SocketUsage, SystemUsage};
use weir::counters::{BatchSnapshot, Snapshot};
use weir::udp::Running;
use weir_lab::wire;
use weir_load::audit::{Audit, AuditReport, AuditSettings};
use weir_load::control::{AgreedRun, Ending, Receiver};

use super::handler::Measured;
use super::window::{Reading, Readings};

/// The machine's counters are read at every so-many-th reading: they cost 35 µs.
const SYSTEM_EVERY: u32 = 10;

/// What wakes the main thread.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// The user, or whoever started the server, wants it to end.
    Stop,
    /// A generator's run began or started: readings must be taken.
    RunBegan,
    /// A run is over and its report is on its way.
    RunEnded,
    /// Something to tell the user.
    Note(String),
}

/// What is watched, shared by the main thread and the control channel.
pub struct Watch {
    design: String,
    addresses: Vec<SocketAddr>,
    audit: Arc<Audit>,
    verify_all: bool,
    events: Sender<Event>,
    state: Mutex<State>,
}

struct State {
    /// Until it is stopped.
    server: Option<Running<Measured>>,
    sampler: Sampler,
    since: Since,
    readings: Readings,
    until_system: u32,
    kernel_bytes: Option<u64>,
    active_runs: u32,
    /// Ids of the active runs whose warm-up is over; at most as many as the audit has runs.
    started: Vec<u32>,
    /// Runs whose data were wrong or whose end nobody signalled.
    wrong_runs: u32,
    last: Option<wire::ServerReport>,
}

/// The counters when the run, or the server, began.
struct Since {
    at: Instant,
    threads: Vec<Snapshot>,
    process: ProcessUsage,
    system: SystemUsage,
    sockets: Option<SocketUsage>,
}

/// One interval, for a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Since the server began, or the last run did.
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
    ) -> Self {
        let mut sampler = Sampler::new();
        let since = Since::now(&server, &mut sampler);
        let addresses = server.local_addresses().to_vec();
        let mut state = State {
            server: Some(server),
            sampler,
            since,
            readings: Readings::default(),
            until_system: 0,
            kernel_bytes: None,
            active_runs: 0,
            started: vec![],
            wrong_runs: 0,
            last: None,
        };
        state.begin();
        Self { design, addresses, audit, verify_all, events, state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The addresses it receives on.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The settings in effect, by name.
    pub fn settings(&self) -> BTreeMap<String, String> {
        self.lock().settings()
    }

    /// Whether the server still runs; it ends by itself only when it failed.
    pub fn is_running(&self) -> bool {
        self.lock().server.as_ref().is_some_and(Running::is_running)
    }

    /// Whether a generator's run is on.
    pub fn has_active_run(&self) -> bool {
        self.lock().active_runs > 0
    }

    /// Whether the data of a run were wrong, or its end was not signalled.
    pub fn has_wrong_runs(&self) -> bool {
        self.lock().wrong_runs > 0
    }

    /// Takes a reading.
    pub fn read(&self) {
        self.lock().read();
    }

    /// What there is since the server or the last run began.
    pub fn now(&self) -> Now {
        let mut state = self.lock();
        let state = &mut *state;
        let total = total(&state.threads());
        let system = state.sampler.system().since(&state.since.system);
        let process = state.sampler.process().since(&state.since.process);
        Now {
            elapsed_ns: nanoseconds(state.since.at),
            datagrams: total.datagrams,
            cpu_ns: process.cpu_ns,
            dropped_socket: state.since.dropped_at_sockets(&self.addresses, &system),
        }
    }

    /// Takes the server, to stop it.
    pub fn take_server(&self) -> Option<Running<Measured>> {
        self.lock().server.take()
    }

    /// The report of the last run; without any, of the server's whole life.
    pub fn report(&self) -> wire::ServerReport {
        let mut state = self.lock();
        match state.last.clone() {
            Some(report) => report,
            None => {
                state.read();
                self.make_report(&mut state, None, false)
            }
        }
    }

    fn make_report(
        &self,
        state: &mut State,
        audit: Option<&AuditReport>,
        end_signalled: bool,
    ) -> wire::ServerReport {
        let threads = state.threads();
        let total = total(&threads);
        let system = state.sampler.system().since(&state.since.system);
        let all = state.sampler.process();
        let process = all.since(&state.since.process);
        let loopback = self.addresses.iter().all(|address| address.ip().is_loopback());
        wire::ServerReport {
            design: self.design.clone(),
            settings: state.settings(),
            end_signalled,
            threads_started: threads.len() as u32,
            threads_used: threads.iter().filter(|thread| thread.datagrams > 0).count() as u32,
            slices_missing: 0, // known only once the server has stopped
            window: state.readings.window(),
            counters: total.named().iter().map(|(name, n)| ((*name).to_owned(), *n)).collect(),
            batches: batches(&total),
            threads: threads.iter().map(thread_report).collect(),
            audit: audit.map_or_else(
                || wire::Audit { received: total.datagrams, ..wire::Audit::default() },
                audit_report,
            ),
            system: wire::SystemReport {
                cpu_ns: all.cpu_ns,
                context_switches: both(process.voluntary_switches, process.involuntary_switches),
                interrupts: system.total.interrupts,
                // The loopback device has no queue of its own: it hands every packet to the
                // queue of the CPU, where a drop is counted.
                dropped_device: loopback.then_some(0),
                dropped_cpu_queue: system.softnet_total().dropped,
                dropped_socket: state.since.dropped_at_sockets(&self.addresses, &system),
                resident_bytes: process.peak_resident_bytes,
                kernel_bytes: state.kernel_bytes,
                cores: weir::affinity::allowed_cores(),
            },
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
        let mut settings = AuditSettings::for_ask(ask);
        if self.verify_all {
            settings.verify_every = 1;
        }
        self.audit.begin(settings)?;
        let mut state = self.lock();
        state.active_runs += 1;
        if state.active_runs == 1 {
            state.begin();
        }
        drop(state);
        self.tell(Event::RunBegan);
        Ok(ports)
    }

    fn start(&self, run: &AgreedRun) {
        let mut state = self.lock();
        // Several generators share one server: what is counted begins with the first that has
        // warmed up, however many have asked already.
        if state.started.is_empty() {
            state.begin();
        }
        state.started.push(run.ask.run);
    }

    fn quiet_ns(&self) -> u64 {
        self.audit.quiet_ns()
    }

    fn end(&self, run: &AgreedRun, ending: &Ending) -> serde_json::Value {
        let sent = match ending {
            Ending::Signalled(end) => Some(end.sent_per_flow.as_slice()),
            Ending::NotSignalled { .. } => None,
        };
        let audit = self.audit.end(run.ask.run, sent);
        let mut state = self.lock();
        state.read();
        state.active_runs = state.active_runs.saturating_sub(1);
        state.started.retain(|id| *id != run.ask.run);
        let mut report = self.make_report(&mut state, audit.as_ref(), sent.is_some());
        if !run.same_host {
            // The clocks of two machines do not agree to a microsecond.
            report.audit.latency_ns = None;
            report.audit.latency_histogram.clear();
        }
        if report.audit.data_errors || !report.end_signalled {
            state.wrong_runs += 1;
        }
        let value = serde_json::to_value(&report).unwrap_or_default();
        state.last = Some(report);
        drop(state);
        if let Ending::NotSignalled { reason } = ending {
            self.note(&format!("the end of the run was not signalled: {reason}"));
        }
        self.tell(Event::RunEnded);
        value
    }

    fn note(&self, text: &str) {
        self.tell(Event::Note(text.to_owned()));
    }
}

impl State {
    /// Counts from now on.
    fn begin(&mut self) {
        if let Some(server) = &self.server {
            self.since = Since::now(server, &mut self.sampler);
        }
        self.readings.clear();
        self.until_system = 0;
        self.kernel_bytes = None;
        self.read();
    }

    fn settings(&self) -> BTreeMap<String, String> {
        let effective = self.server.as_ref().map(Running::effective).unwrap_or_default();
        effective.into_iter().collect()
    }

    fn threads(&self) -> Vec<Snapshot> {
        let now = self.server.as_ref().map(Running::counters).unwrap_or_default();
        now.iter().zip(&self.since.threads).map(|(now, then)| now.since(then)).collect()
    }

    fn read(&mut self) {
        let datagrams = total(&self.threads()).datagrams;
        let cpu_ns = self.sampler.process().cpu_ns;
        self.readings.push(Reading { at_ns: nanoseconds(self.since.at), datagrams, cpu_ns });
        if self.until_system == 0 {
            self.until_system = SYSTEM_EVERY;
            let bytes = self.sampler.system().total.udp_memory_bytes;
            self.kernel_bytes = self.kernel_bytes.max(bytes);
        }
        self.until_system -= 1;
    }
}

impl Since {
    fn now(server: &Running<Measured>, sampler: &mut Sampler) -> Self {
        let sockets = SocketUsage::bound_to(server.local_addresses());
        let (process, system) = (sampler.process(), sampler.system());
        Self { at: Instant::now(), threads: server.counters(), process, system, sockets }
    }

    /// Datagrams dropped at the server's sockets; where sockets cannot be told apart, at all
    /// of the machine.
    fn dropped_at_sockets(&self, addresses: &[SocketAddr], system: &SystemUsage) -> Option<u64> {
        match self.sockets.zip(SocketUsage::bound_to(addresses)) {
            Some((then, now)) => now.since(&then).drops,
            None => {
                let udp = system.udp();
                both(udp.receive_buffer_errors, udp.memory_errors.or(Some(0)))
            }
        }
    }
}

fn nanoseconds(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

fn total(threads: &[Snapshot]) -> Snapshot {
    let mut total = Snapshot::default();
    threads.iter().for_each(|thread| total.merge(thread));
    total
}

fn both(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    Some(a? + b?)
}

fn served(addresses: &[SocketAddr]) -> String {
    let list: Vec<String> =
        addresses.iter().map(|address| address.ip()).map(|ip: IpAddr| ip.to_string()).collect();
    format!("use {}", list.join(" or "))
}

fn batches(counters: &Snapshot) -> wire::Batches {
    let of: &BatchSnapshot = &counters.batches;
    let count = of.count();
    let known = |value: u64| (count > 0).then_some(value);
    wire::Batches {
        min: known(of.min),
        p10: of.percentile(0.10),
        p50: of.percentile(0.50),
        p90: of.percentile(0.90),
        max: known(of.max),
        mean: (count > 0).then(|| counters.datagrams as f64 / count as f64),
    }
}

fn thread_report(counters: &Snapshot) -> wire::ThreadReport {
    wire::ThreadReport {
        dequeues: counters.dequeues,
        notifies: counters.notifies,
        datagrams: counters.datagrams,
        batches: batches(counters),
    }
}

fn audit_report(audit: &AuditReport) -> wire::Audit {
    let latency = audit.latency_ns.as_ref().map(|summary| {
        let percentile = |name: &str| summary.percentile.get(name).copied().unwrap_or_default();
        wire::Latency {
            n: summary.n,
            min: summary.min,
            p50: percentile("50"),
            p90: percentile("90"),
            p99: percentile("99"),
            p999: percentile("99.9"),
            max: summary.max,
        }
    });
    wire::Audit {
        received: audit.received,
        strangers: audit.strangers,
        corrupt: audit.corrupt_bodies + audit.corrupt_headers + audit.unknown_flow,
        wrong_size: audit.wrong_size,
        duplicates: audit.duplicates,
        reordered: audit.reordered,
        data_errors: audit.data_errors,
        latency_ns: latency,
        latency_histogram: histogram(audit),
    }
}

/// The histogram of the latencies, where the audit's report has one. It is taken by the name
/// under which the report is published, since its form is that of the document.
fn histogram(audit: &AuditReport) -> Vec<(u64, u64)> {
    let mut document = serde_json::to_value(audit).unwrap_or_default();
    let published = document.get_mut("latency_histogram").map(serde_json::Value::take);
    published.and_then(|value| serde_json::from_value(value).ok()).unwrap_or_default()
}
