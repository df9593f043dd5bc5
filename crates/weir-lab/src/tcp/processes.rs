//! Runs with two processes: `weir serve tcp` on its cores, `weir load tcp` on others.
//!
//! Both are this same executable, started with commands that a person can repeat. The server says where
//! it listens; the client connects to it, says when all connections stand, when it begins to measure and
//! when it ends, and the server is told so. Each answer has a deadline; a child that misses it is ended.
//!
//! On a link of its own ([`crate::udp::link`]) the server runs at its end, and the client has the consent of its control
//! channel, as it needs it for everything but loopback.
//!
//! Over hosts ([`crate::hosts`]) there is a client at each of several, which share the connections. Each holds the consent of
//! the server's control channel, and all are measured from one time on, by the clock of each.

mod mixes;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use weir::machine::LoadMeter;
use weir_load::ranks::clocks::{Between, Offset};
use weir_load::tcp::{EngineUsed, Window as LoadWindow};

use super::bench::{Checked, Idle, Made, Run};
use super::loaded::{Followed, Loaded};
use super::plan::{Load, Pattern};
use super::policy::Policy;
use super::results::Tcp;
use super::rows::{of_server, text_of_design};
use super::together;
use super::wire::{BUFFERS, MARK, PhaseLine, STANDING, ServerReport, Window};
use crate::child::{Child, ChildError, CommandLine, Interrupt, Runner};
use crate::experiment::course::{Bench, RunError};
use crate::experiment::plan::Row;
use crate::hosts::own::{CORES, THREADS, part};
use crate::hosts::{Fleet, Host, Kind, Latencies, Reading, Reports, Task};
use crate::udp::link::{self, Site};
use crate::udp::sample::divide;
use crate::wire::{Failure, ReadyLine};

const SERVER: &str = "the server";
const CLIENT: &str = "the client";

/// How long a load goes on behind what is measured of it, so that its server is looked at under load.
const TAIL: Duration = Duration::from_millis(100);

/// How long a server may take to listen.
const READY_WITHIN: Duration = Duration::from_secs(15);
/// How long making all connections may take.
const SETUP: Duration = Duration::from_secs(30);
/// How long making one connection may take, and an answer.
const ANSWER: Duration = Duration::from_secs(10);
/// How long either may take for its report beyond the time of the run and the making of connections.
const REPORT_WITHIN: Duration = Duration::from_secs(20);
/// How long either may take to end after its report.
const END_WITHIN: Duration = Duration::from_secs(5);
/// Connections that a server is allowed besides those of the load.
const MORE_CONNECTIONS: u32 = 64;
/// Fewest connections that a server is allowed.
const CONNECTIONS_MAX: u32 = 65_536;

/// A check: so many connections, messages on each, messages under way, bytes of a message.
const CHECK_CONNECTIONS: u32 = 16;
const CHECK_MESSAGES: u64 = 20;
const CHECK_OUTSTANDING: u32 = 4;
const CHECK_BYTES: (u32, u32) = (1, 64 << 10);
/// Descriptors that a server has open in a check, at least.
pub const CHECK_DESCRIPTORS: u64 =
    CHECK_CONNECTIONS as u64 + crate::experiment::descriptors::BESIDES;
/// How long a check may take. What hangs is found by [`ANSWER`]: this is for a machine that others have, on which all takes
/// so many times as long.
const CHECK_TIME: Duration = Duration::from_secs(60);
/// A look at how busy a server is with little to do: warm-up and time that is measured.
const IDLE_WARMUP_MS: u64 = 40;
const IDLE_RUN_MS: u64 = 120;

/// What stands in the command of a peer for the bytes that it is to receive at a time.
pub const BUFFER: &str = "{buffer}";

/// Makes runs with this executable.
pub struct Processes {
    server_cores: Vec<usize>,
    client_cores: Vec<usize>,
    runner: Runner,
    /// Where server and client meet.
    site: Site,
    /// The engine of the client under each load, in its first run.
    engines: Mutex<Vec<(Load, String)>>,
}

impl Processes {
    /// With the executable at `program`, which is `weir` itself. `tell` is given every command before it
    /// is started.
    pub fn new(
        program: PathBuf,
        server_cores: Vec<usize>,
        client_cores: Vec<usize>,
        interrupt: Interrupt,
        tell: Option<fn(&str)>,
    ) -> Self {
        let runner = Runner::new(program, interrupt, tell);
        let site = Site::Loopback { has_ipv6: false };
        Self { server_cores, client_cores, runner, site, engines: Mutex::default() }
    }

    /// The same where server and client meet elsewhere. On a link, the calling thread must be at the client's end of
    /// it.
    pub fn at(self, site: Site) -> Self {
        Self { site, ..self }
    }

    /// The same that logs the performance of its servers at these intervals.
    pub fn logging_performance(mut self, every: Option<Duration>) -> Self {
        self.runner.log_performance(every);
        self
    }

    /// The hosts of the clients, where there are several.
    fn clients(&self) -> &[Host] {
        self.site.fleet().map_or(&[], |fleet| &fleet.hosts().generators)
    }

    /// Starts a client: of several the one at that host.
    fn spawn_client(
        &self,
        name: &'static str,
        host: Option<&Host>,
        command: &CommandLine,
    ) -> Result<Child, ChildError> {
        match self.site.fleet().zip(host) {
            Some((fleet, host)) => self.runner.spawn_at(fleet, host, name, command),
            None => self.runner.spawn(name, command),
        }
    }

    /// The command of the server of a row.
    fn server(&self, row: &Row, connections: u32, buffer_bytes: u32) -> CommandLine {
        let own = of_server(row);
        let says = |name: &str| own.iter().any(|(of, _)| *of == name);
        let limits = own.iter().flat_map(|(name, value)| {
            std::iter::once(format!("--{name}")).chain(value.map(str::to_owned))
        });
        let command = self.runner.weir().arguments(["serve"]);
        let command = match &row.peer {
            None => command
                .arguments([
                    "tcp".to_owned(),
                    "--design".into(),
                    text_of_design(row),
                    "--echo".into(),
                ])
                .option("--buffer", (!says("buffer")).then_some(buffer_bytes))
                .option(
                    "--connections-max",
                    (!says("connections-max"))
                        .then_some((connections + MORE_CONNECTIONS).max(CONNECTIONS_MAX)),
                )
                .arguments(limits)
                .arguments(["--interval", "0"]),
            Some(peer) => {
                let of_peer = peer.command.to_string();
                command
                    .arguments(["tcp-peer".to_owned(), "--command".into(), of_peer])
                    .option("--buffer", peer.command.mentions(BUFFER).then_some(buffer_bytes))
            }
        };
        let any_port = SocketAddr::new(self.site.server(), 0);
        command
            .option("--bind", Some(any_port))
            .option("--control", (!any_port.ip().is_loopback()).then_some(any_port))
            .on_cores(&self.server_cores)
            .arguments(self.runner.counting().filter(|_| row.peer.is_none()))
            .arguments(["--end-with-input", "--json"])
    }

    /// The command of a client, of several that of the first.
    fn client(&self, target: impl Into<Target>) -> CommandLine {
        self.client_with(self.clients().first(), target, self.wait(ANSWER))
    }

    /// The same of one at this host that waits so long for an answer.
    fn client_with(
        &self,
        host: Option<&Host>,
        target: impl Into<Target>,
        answer: String,
    ) -> CommandLine {
        let cores = host.map_or(&self.client_cores, |host| &host.cores);
        let command = self.client_at(target.into()).on_cores(cores);
        let threads = Some(cores.len()).filter(|cores| *cores > 1);
        self.with_times(command.option("--threads", threads), answer)
    }

    /// What all clients are told of their target.
    fn client_at(&self, Target { at, control }: Target) -> CommandLine {
        let command = self.runner.weir();
        let command = command.arguments(["load".to_owned(), "tcp".into(), at.ip().to_string()]);
        command.option("-p", Some(at.port())).option("--control", control)
    }

    /// And of how long they may wait.
    fn with_times(&self, command: CommandLine, answer: String) -> CommandLine {
        command
            .option("--setup-time", Some(self.wait(SETUP)))
            .option("--connect-timeout", Some(self.wait(ANSWER)))
            .option("--answer-timeout", Some(answer))
            .arguments(["-i", "0", "--json"])
    }

    /// The command of the client of a load for a time.
    fn client_for(&self, target: impl Into<Target>, load: &Load, times: (u64, u64)) -> CommandLine {
        let connections = load.connections_per_block();
        with_load(self.client(target), load, (connections, load.block_bytes_per_s), times)
    }

    /// The command of the client of a check.
    fn client_of_check(&self, row: &Row, target: Target) -> CommandLine {
        // Each from an address of its own, and with less under way, where there is a limit on either. Only loopback has
        // so many addresses, and a link of its own.
        let has_many = target.at.is_ipv4() && target.at.ip().is_loopback();
        let is_limited = !of_server(row).is_empty() && (has_many || self.site.link().is_some());
        let outstanding = if is_limited { CHECK_OUTSTANDING / 2 } else { CHECK_OUTSTANDING };
        self.client(target)
            .option("-c", Some(self.connections_of_check(row)))
            .option("--sources", is_limited.then_some(CHECK_CONNECTIONS))
            .option(
                "--first-source",
                self.site.link().filter(|_| is_limited).map(|_| link::CLIENTS),
            )
            .option("-b", Some(format!("{}-{}", CHECK_BYTES.0, CHECK_BYTES.1)))
            .option("-o", Some(outstanding))
            .option("-x", Some(CHECK_MESSAGES))
            .option("-t", Some(format!("{}s", CHECK_TIME.as_secs())))
    }

    /// Connections of a check: a client at another host has one address, of which there may be a limit.
    fn connections_of_check(&self, row: &Row) -> u32 {
        let is_elsewhere = self.site.fleet().is_some_and(|fleet| fleet.hosts().is_elsewhere());
        let limit = Policy::of(row).per_address.filter(|_| is_elsewhere);
        limit.map_or(CHECK_CONNECTIONS, |limit| limit.min(CHECK_CONNECTIONS))
    }

    /// How long a client may wait for what has so long on any machine, as its command spells it.
    fn wait(&self, usual: Duration) -> String {
        match self.runner.time.wait(usual) {
            time if time.subsec_millis() == 0 => format!("{}s", time.as_secs()),
            time => format!("{}ms", time.as_millis()),
        }
    }

    /// Starts a server and waits until it listens. Gives also where, and with which settings.
    fn start(&self, command: &CommandLine) -> Result<(Child, Target, ReadyLine), ChildError> {
        let mut server = match self.site.fleet() {
            Some(fleet) => self.runner.spawn_at(fleet, &fleet.hosts().server, SERVER, command)?,
            None => self.site.at_server(|| self.runner.spawn(SERVER, command))?,
        };
        let line: ReadyLine = server.document("ready line", self.runner.within(READY_WITHIN))?;
        match line.ready.addresses.first().copied() {
            Some(at) => {
                let control = line.ready.control;
                Ok((server, Target { at, control }, line))
            }
            None => Err(ChildError::Garbage {
                name: SERVER,
                what: "ready line",
                problem: "no address in it".into(),
            }),
        }
    }

    /// Lets a client load a server, which is told how far it is. Gives the client's report, and why it is
    /// invalid if it is.
    fn load(
        &self,
        command: &CommandLine,
        server: &mut Child,
        lasts: Duration,
    ) -> Result<Loaded, ChildError> {
        self.follow(command, server, lasts, Asks::Standing)?.with_messages()
    }

    /// Lets a client load a server, which is asked these things meanwhile. Whether the load came to anything is the
    /// caller's to say.
    fn follow(
        &self,
        command: &CommandLine,
        server: &mut Child,
        lasts: Duration,
        asks: Asks,
    ) -> Result<Followed, ChildError> {
        let host = self.clients().first();
        let clocks = self.site.fleet().map(|fleet| fleet.clocks()).transpose()?;
        let mut client = self.spawn_client(CLIENT, host, command)?;
        let deadline = self.deadline(lasts);
        let mut ended_ns = None;
        let document = loop {
            let document: Value = client.document("report", deadline)?;
            match serde_json::from_value(document.clone()) {
                Ok(PhaseLine { phase, at_ns }) => {
                    ended_ns = at_ns;
                    tell(server, asks, &phase);
                }
                Err(_) => break document,
            }
        };
        client.finish(self.runner.within(END_WITHIN))?;
        let mut followed = Followed::read(document)?;
        // By the clock of the server, which is held against it.
        let by_server = |ns| match &clocks {
            Some(clocks) => clocks.of_server().there(clocks.of_first().here(ns)),
            None => ns,
        };
        followed.ended_ns = ended_ns.map(by_server);
        Ok(followed)
    }

    /// When a client that is started now, and lasts so long when its connections stand, must have reported.
    fn deadline(&self, lasts: Duration) -> Instant {
        self.runner.time.deadline(self.runner.time.wait(SETUP) + lasts, REPORT_WITHIN)
    }

    /// Loads a server from every client's host, together. It is told how far all of them are. Gives also how wrong the clock
    /// of any of them may be, in ns.
    fn load_together(
        &self,
        fleet: &Fleet,
        target: Target,
        run: &Run,
        server: &mut Child,
    ) -> Result<(Loaded, u64), ChildError> {
        let clocks = fleet.clocks()?;
        let clients = self.clients().len();
        // Each has a part of the connections, and the rate that goes with it.
        let all = u64::from(run.load.connections_per_block());
        let rate = run.load.block_bytes_per_s.map(|bytes| part(bytes.into(), all));
        let command = self.client_at(target).arguments([CORES, THREADS]);
        let command = self.with_times(command, self.wait(ANSWER));
        let command =
            with_load(command, run.load, (part(all, all), rate), (run.warmup_ms, run.run_ms));
        let command = command.arguments(["--wait-for-start"]);
        let deadline = self.deadline(Duration::from_millis(run.warmup_ms + run.run_ms));
        let task = Task {
            kind: Kind::Tcp,
            words: command.words().to_vec(),
            parts: run.load.parts_of(clients),
            phases: vec!["settled".into(), "began".into()],
            tells_end: false,
            latencies: Latencies::None,
            per_second: None,
            within_ms: deadline.saturating_duration_since(Instant::now()).as_millis() as u64,
        };
        let mut clients = self.runner.start_all(fleet, task, &command, Offset::default())?;
        clients.come_to("settled")?;
        clients.begin(&clocks);
        clients.come_to("began")?;
        // All of them run now.
        tell(server, Asks::Standing, "began");
        // The first that ends ends the window; the others go on for as long as the tail.
        let ended_ns = clients.first_comes_to("ended", &clocks)?;
        if ended_ns.is_some() {
            tell(server, Asks::Standing, "ended");
        }
        let ended_ns = ended_ns.map(|ns| clocks.of_server().there(ns));
        let Reports::Tcp(all) = clients.reports(Between::default())? else {
            return Err(failed("clients report as generators do".into()));
        };
        let together::All { report, invalid, uncertainty_ns } = *all;
        let uncertainty_ns = uncertainty_ns.max(clocks.of_server().uncertainty_ns);
        Ok((Loaded { report, invalid, ended_ns }, uncertainty_ns))
    }

    /// A run over hosts.
    fn try_run_together(&self, fleet: &Fleet, run: &Run) -> Result<Made, ChildError> {
        fleet.begin_meters();
        let command = self.server(run.row, run.load.connections, run.load.buffer_bytes);
        let logging = self.runner.logging().into_iter().filter(|_| run.row.peer.is_none());
        let (mut server, target, line) = self.start(&command.arguments(logging))?;
        let (loaded, uncertainty_ns) = match self.load_together(fleet, target, run, &mut server) {
            Ok(loaded) => loaded,
            Err(error) => return Err(server.or_blame(error)),
        };
        let mut report = self.end(server)?;
        under_load_only(&mut report, loaded.report.window.as_ref(), loaded.ended_ns);
        let Reading { others, .. } = fleet.read_meters(report.cpu_ns.unwrap_or(0))?;
        let known = ("clocks-known-within-ns".to_owned(), uncertainty_ns.to_string());
        for (name, value) in
            line.ready.settings.into_iter().chain(places(fleet, run.load)).chain([known])
        {
            report.settings.entry(name).or_insert(value);
        }
        let Loaded { report: load, invalid, .. } = loaded;
        let invalid = invalid
            .or_else(|| load.engine.as_ref().and_then(|used| self.other_engine(run.load, used)));
        Ok(Made { server: report, load, others: None, invalid, load_of_others: others })
    }

    fn try_run(&self, run: &Run) -> Result<Made, ChildError> {
        if let Some(mix) = &run.load.mix {
            return self.try_mix(run, mix);
        }
        if let Some(fleet) = self.site.fleet() {
            return self.try_run_together(fleet, run);
        }
        let mut meter = LoadMeter::start();
        let logging = self.runner.logging();
        let logging = logging.into_iter().filter(|_| run.row.peer.is_none());
        let command = self.server(run.row, run.load.connections, run.load.buffer_bytes);
        let command = command.arguments(logging);
        let (mut server, at, line) = self.start(&command)?;
        let command = self.client_for(at, run.load, (run.warmup_ms, run.run_ms));
        let lasts = Duration::from_millis(run.warmup_ms + run.run_ms);
        let loaded = match self.load(&command, &mut server, lasts) {
            Ok(loaded) => loaded,
            Err(error) => return Err(server.or_blame(error)),
        };
        let mut report = self.end(server)?;
        under_load_only(&mut report, loaded.report.window.as_ref(), loaded.ended_ns);
        let Loaded { report: load, invalid, .. } = loaded;
        let invalid = invalid.or_else(|| self.other_engine(run.load, load.engine.as_ref()?));
        for (name, value) in line.ready.settings {
            report.settings.entry(name).or_insert(value);
        }
        let own_ns = report.cpu_ns.unwrap_or(0) + load.process_cpu_ns.unwrap_or(0);
        let load_of_others = meter.read(own_ns).others;
        Ok(Made { server: report, load, others: None, invalid, load_of_others })
    }

    /// Why a run is not like the first one of its load, if its client chose another engine: what was to be had then may
    /// not be any more.
    fn other_engine(&self, load: &Load, used: &EngineUsed) -> Option<String> {
        let EngineUsed { name: used, reason, .. } = used;
        let mut engines = self.engines.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((_, first)) = engines.iter().find(|(known, _)| known == load) else {
            engines.push((*load, used.clone()));
            return None;
        };
        (first != used).then(|| {
            let why = reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
            format!(
                "its client used the engine {used}{why}, but that of the first run used {first}"
            )
        })
    }

    /// Ends a server in order and takes its report.
    fn end(&self, mut server: Child) -> Result<ServerReport, ChildError> {
        server.close_input();
        let report: ServerReport = server.document("report", self.runner.within(REPORT_WITHIN))?;
        let ended = server.finish(self.runner.within(END_WITHIN))?;
        match ended.success() {
            true => Ok(report),
            false => Err(ChildError::BadEnd { name: SERVER, status: ended.to_string() }),
        }
    }

    fn try_check(&self, row: &Row) -> Result<Checked, ChildError> {
        let command = self.server(row, CHECK_CONNECTIONS, CHECK_BYTES.1);
        let (mut server, at, _) = self.start(&command)?;
        let checked = match self.load(&self.client_of_check(row, at), &mut server, CHECK_TIME) {
            Ok(loaded) => loaded,
            Err(error) => return Err(server.or_blame(error)),
        };
        let Loaded { report: load, invalid, .. } = checked;
        let wrong = |message: String| Err(failed(message));
        let of = &load.counts;
        let connections = self.connections_of_check(row);
        let messages = u64::from(connections) * CHECK_MESSAGES;
        if let Some(reason) = invalid {
            return wrong(reason);
        }
        if of.messages_over != messages || of.finished != u64::from(connections) {
            let cause = load.worst_cause().map(|cause| format!(": {cause}")).unwrap_or_default();
            return wrong(format!(
                "of {messages} messages {} came back, and of {connections} connections {} ended \
                 in order{cause}",
                of.messages_over, of.finished
            ));
        }
        let idle = Load::new(Pattern::PingPong, 64, 1, None, None);
        let command = self.client_for(at, &idle, (IDLE_WARMUP_MS, IDLE_RUN_MS));
        let lasts = Duration::from_millis(IDLE_WARMUP_MS + IDLE_RUN_MS);
        let loaded = match self.load(&command, &mut server, lasts) {
            Ok(loaded) => loaded,
            Err(error) => return Err(server.or_blame(error)),
        };
        let mut report = self.end(server)?;
        under_load_only(&mut report, loaded.report.window.as_ref(), loaded.ended_ns);
        let (idly, window) = (loaded.report, report.window.unwrap_or_default());
        let per_ns = |count: Option<u64>| divide(count? as f64, window.elapsed_ns as f64);
        let messages_per_ns =
            idly.window.and_then(|window| divide(window.messages as f64, window.elapsed_ns as f64));
        let sleeps_per_ns = per_ns(window.voluntary_switches);
        Ok(Checked {
            connections: connections.into(),
            messages,
            message_bytes: CHECK_BYTES,
            client_engine: load.engine.as_ref().map(ToString::to_string),
            idle: Idle {
                cores_busy: per_ns(window.cpu_ns),
                sleeps_per_message: sleeps_per_ns
                    .zip(messages_per_ns)
                    .and_then(|(s, m)| divide(s, m)),
            },
        })
    }
}

/// Where the clients of a run are, and over which links they come, as settings.
fn places(fleet: &Fleet, load: &Load) -> [(String, String); 2] {
    let hosts = load.hosts_of(fleet.hosts());
    [
        ("clients".to_owned(), hosts.generators_in_words()),
        ("links".to_owned(), hosts.links_in_words()),
    ]
}

/// What a client is told of a load, of which it has so many connections of each block, and so many bytes per second.
fn with_load(
    command: CommandLine,
    load: &Load,
    (connections, rate): (impl fmt::Display, Option<impl fmt::Display>),
    (warmup, run): (u64, u64),
) -> CommandLine {
    let blocks = (load.blocks > 1).then_some(load.blocks);
    command
        .option("-c", Some(connections))
        .option("--blocks", blocks)
        .option("--block-interval", blocks.map(|_| "0"))
        .option("-b", Some(load.message_bytes))
        .option("-o", Some(load.outstanding))
        .option("-r", rate)
        .arguments(load.block_bytes_per_s.is_none().then_some("--together"))
        .option("-t", Some(format!("{}ms", warmup + run)))
        .option("-O", (warmup > 0).then(|| format!("{warmup}ms")))
        .arguments(["--tell-phases"])
        .option("--tail", Some(format!("{}ms", TAIL.as_millis())))
}

/// Where a server listens, and where it is asked for its consent, if it has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Target {
    at: SocketAddr,
    control: Option<SocketAddr>,
}

impl From<SocketAddr> for Target {
    fn from(at: SocketAddr) -> Self {
        Self { at, control: None }
    }
}

fn failed(message: String) -> ChildError {
    ChildError::Reported(Failure { unavailable: false, message })
}

/// Asks a server what it is to be asked at a phase of its load.
fn tell(server: &mut Child, asks: Asks, phase: &str) {
    asks.at(phase).iter().for_each(|word| server.say(word));
}

/// What a server is asked while it is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asks {
    /// What it holds before it is measured.
    Standing,
    /// What it holds behind that, when its load still goes on: so that looking does not disturb it.
    Buffers,
    /// What it holds when all connections are made. It is measured over the whole load.
    BuffersOnce,
}

impl Asks {
    /// What is said at a phase of the load.
    fn at(self, phase: &str) -> &'static [&'static str] {
        // Not when all connections stand: a server may have to accept them still.
        match (self, phase) {
            (Self::Standing, "began") => &[STANDING, MARK],
            (Self::Standing, "ended") | (Self::Buffers, "began") => &[MARK],
            (Self::Buffers, "ended") => &[MARK, STANDING, BUFFERS],
            (Self::BuffersOnce, "settled") => &[STANDING, BUFFERS],
            _ => &[],
        }
    }
}

/// Takes back what a server used between its marks where that was not the time of the load: where the second mark came
/// when the load had ended, the two are so close that they tell of a moment, or no work for the messages lies between them.
fn under_load_only(
    report: &mut ServerReport,
    measured: Option<&LoadWindow>,
    ended_ns: Option<u64>,
) {
    let (measured_ns, messages) =
        measured.map_or((0, 0), |measured| (measured.elapsed_ns, measured.messages));
    let window = report.window.get_or_insert_default();
    let late_ns = ended_ns.map_or(0, |ended_ns| window.ended_ns.saturating_sub(ended_ns));
    let ms = |ns: u64| ns / 1_000_000;
    let why = if late_ns > TAIL.as_nanos() as u64 {
        format!("it was read {} ms late, when the load had ended", ms(late_ns))
    } else if window.elapsed_ns == 0 || window.elapsed_ns < measured_ns / 2 {
        format!("it was read over {} ms of {} ms", ms(window.elapsed_ns), ms(measured_ns))
    } else if window.cpu_ns == Some(0) && messages > 0 {
        format!(
            "{messages} messages were answered, and no CPU time was seen: it lies before or after"
        )
    } else {
        return;
    };
    let Window { elapsed_ns, ended_ns, accepted, .. } = *window;
    *window = Window { elapsed_ns, ended_ns, accepted, ..Window::default() };
    report.unknown.get_or_insert_with(|| why.clone());
    report.switches_unknown.get_or_insert(why);
}

impl Bench<Tcp> for Processes {
    fn count_entries(&mut self, on: bool) -> bool {
        // Whether the kernel of another host can is not known here.
        self.site.fleet().is_none() && self.runner.count_entries(on)
    }

    fn elapsed_s(&self) -> f64 {
        self.runner.time.elapsed_s()
    }

    fn end_within(&mut self, seconds: f64) {
        self.runner.time.set(seconds);
    }

    fn core_to_core_ns(&mut self) -> Option<f64> {
        if self.site.fleet().is_some() {
            return None; // no cache is common to two hosts
        }
        let (server, client) = (*self.server_cores.first()?, *self.client_cores.first()?);
        (server != client).then(|| weir::machine::core_to_core_ns(server, client))?
    }

    fn check(&mut self, row: &Row, _: &[Load]) -> Result<Checked, RunError> {
        self.try_check(row)
            .map_err(|error| RunError::from(error).or_time_is_up(self.runner.time.is_up()))
    }

    fn run(&mut self, run: &Run) -> Result<Made, RunError> {
        self.try_run(run)
            .map_err(|error| RunError::from(error).or_time_is_up(self.runner.time.is_up()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn processes() -> Processes {
        Processes::new("weir".into(), vec![0], vec![1], Interrupt::new(), None)
    }

    #[test]
    fn a_client_with_another_engine_than_in_the_first_run_of_a_load_makes_no_run_like_it() {
        let processes = processes();
        let engine = |name: &str| EngineUsed { name: name.into(), by: "it".into(), reason: None };
        let [one, other] =
            [1, 2].map(|connections| Load::new(Pattern::PingPong, 64, connections, None, None));
        assert_eq!(processes.other_engine(&one, &engine("uring")), None);
        assert_eq!(processes.other_engine(&other, &engine("readiness")), None);
        assert_eq!(processes.other_engine(&one, &engine("uring")), None);
        let why = processes.other_engine(&one, &engine("readiness")).unwrap();
        assert!(why.contains("readiness") && why.contains("first run used uring"), "{why}");
    }

    #[test]
    fn a_server_that_was_not_read_under_its_load_tells_nothing_of_it() {
        const LOAD_ENDED_NS: u64 = 1_000_000_000;
        let tail_ns = TAIL.as_nanos() as u64;
        let of_messages = |messages: u64, cpu_ns: u64, window: Option<(u64, u64)>| {
            let window = window.map(|(elapsed_ns, ended_ns)| Window {
                elapsed_ns,
                ended_ns,
                cpu_ns: Some(cpu_ns),
                ..Window::default()
            });
            let mut report = ServerReport { window, ..ServerReport::default() };
            let measured =
                LoadWindow { elapsed_ns: 300_000_000, messages, ..LoadWindow::default() };
            under_load_only(&mut report, Some(&measured), Some(LOAD_ENDED_NS));
            (report.window.unwrap().cpu_ns, report.unknown.unwrap_or_default())
        };
        let of = |window| of_messages(8, 7, window);
        let in_time_ns = LOAD_ENDED_NS + tail_ns;
        assert_eq!(of(Some((150_000_000, in_time_ns))), (Some(7), String::new()));
        let late = of(Some((300_000_000, in_time_ns + 9_000_000)));
        assert_eq!(late, (None, "it was read 109 ms late, when the load had ended".into()));
        let moment = of(Some((2_000_000, in_time_ns)));
        assert_eq!(moment, (None, "it was read over 2 ms of 300 ms".into()));
        assert_eq!(of(None), (None, "it was read over 0 ms of 300 ms".into()));
        let whole = Some((300_000_000, in_time_ns));
        assert_eq!(of_messages(0, 0, whole), (Some(0), String::new()), "nothing to do");
        let (cpu_ns, why) = of_messages(8, 0, whole);
        assert_eq!(cpu_ns, None);
        assert!(why.starts_with("8 messages were answered, and no CPU time was seen"), "{why}");
    }

    #[test]
    fn the_commands_are_such_as_a_person_would_write() {
        let row = Row::parse("epoll --trigger edge").unwrap();
        assert_eq!(
            processes().server(&row, 64, 4096).to_string(),
            "weir serve tcp --design 'epoll --trigger edge' --echo --buffer 4096 --connections-max 65536 \
             --interval 0 --bind 127.0.0.1:0 --cpu 0 --end-with-input --json"
        );
        let load = Load::new(Pattern::Streaming, 16_384, 64, None, None);
        let at: SocketAddr = "127.0.0.1:7".parse().unwrap();
        assert_eq!(
            processes().client_for(at, &load, (60, 300)).to_string(),
            "weir load tcp 127.0.0.1 -p 7 --cpu 1 --setup-time 30s --connect-timeout 10s \
             --answer-timeout 10s -i 0 --json -c 64 -b 16384 -o 16 --together -t 360ms -O 60ms \
             --tell-phases --tail 100ms"
        );
        let many = processes().server(&row, 100_000, 4096).to_string();
        assert!(many.contains("--connections-max 100064"), "{many}");
    }

    #[test]
    fn a_peer_is_told_how_much_to_receive_and_what_stands_for_it_where_to_listen() {
        let row = Row::parse_peer("go=bin/go {ip} {port} {buffer}").unwrap();
        let unquoted = processes().server(&row, 64, 16_384).to_string().replace(r"'\''", "");
        assert_eq!(
            unquoted,
            "weir serve tcp-peer --command 'bin/go {ip} {port} {buffer}' --buffer 16384 --bind 127.0.0.1:0 \
             --cpu 0 --end-with-input --json"
        );
    }

    fn at() -> SocketAddr {
        "127.0.0.1:7".parse().unwrap()
    }

    #[test]
    fn the_loads_of_the_original_come_in_blocks() {
        let loads = crate::tcp::classic::loads();
        let text = processes().client_for(at(), &loads[1], (0, 500));
        let text = text.to_string();
        let wanted = "-c 1000 --blocks 12 --block-interval 0 -b 4096 -o 16 -r 200000 -t 500ms";
        assert!(text.contains(wanted), "{text}");
        let several = Processes::new("weir".into(), vec![0], vec![2, 3], Interrupt::new(), None);
        let text = several.client(at()).to_string();
        assert!(text.contains("--cpu 2,3 --threads 2"), "{text}");
    }
}
