//! Runs with two processes: `weir serve udp` on its cores, `weir flood` on another.
//!
//! Both are this same executable, started with commands that a person can repeat. The
//! server says where it listens, the generator asks it for consent over the control channel
//! and floods it, both report. Each answer has a deadline; a child that misses it is ended.
//!
//! Over hosts ([`crate::hosts`]) there is a generator at each of several, and each asks for itself. They begin together:
//! each says when it can, and all are told one time, by the clock of each.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::bench::{Bench, Extent, Made, Run};
use super::check::{self, Checked};
use super::exchange::{self, Echoed, Exchange};
use super::results::Udp;
use super::together::report_of;
use serde_json::Value;
use weir::machine::LoadMeter;
use weir::memory::Commit;
use weir::socket::{DatagramSocket, Endpoint, ReceiveBuffer, SocketOptions};
use weir_load::engine::{Head, WITHOUT_OFFLOAD};
use weir_load::pacing::Arrivals;
use weir_load::ranks::clocks::{Between, Offset};
use weir_load::stamp::STAMP_BYTES;

use crate::child::{Child, ChildError, CommandLine, Interrupt, Runner};
use crate::exit::DATA_ERRORS;
use crate::experiment::course::{self, RunError};
use crate::experiment::plan::Row;
use crate::hosts::own::{CLOCKS, CORES, part};
use crate::hosts::{Fleet, Kind, Latencies, Reading, Reports, Task};
use crate::udp::link::{self, Site};
use crate::udp::plan::{Held, Load};
use crate::wire::{Failure, FloodReport, ReadyLine, ServerReport};

const SERVER: &str = "the server";
const GENERATOR: &str = "the generator";
/// What a generator says when it can begin, and is to be told when.
const READY: &str = "ready";

/// How long a server may take to listen: it registers memory, which may have to be zeroed.
const READY_WITHIN: Duration = Duration::from_secs(15);
/// How long either may take for its report beyond the time of the run itself.
const REPORT_WITHIN: Duration = Duration::from_secs(15);
/// How long either may take to end after its report.
const END_WITHIN: Duration = Duration::from_secs(5);
/// Datagrams per second of a check: slow enough for a default receive buffer to bridge a
/// preemption.
const CHECK_PER_SECOND: u64 = 10_000;
/// A check ends after this time even if it could not send all its datagrams: on a machine that
/// is busy with other things most are skipped as late.
const CHECK_AT_MOST_MS: u64 = 5000;
/// A burst ends after this time even if not all of it could be sent.
const BURST_AT_MOST_MS: u64 = 30_000;
/// The longest datagram that a server takes whole if it is not told of longer ones.
const DEFAULT_SIZE_BYTES: u32 = weir::udp::DEFAULT_PAYLOAD_BYTES as u32;
/// How long the generator is calibrated.
const CALIBRATION_MS: u64 = 500;

/// Makes runs with this executable.
pub struct Processes {
    server_cores: Vec<usize>,
    generator_core: Option<usize>,
    /// Further cores for further generators.
    more_generator_cores: Vec<usize>,
    site: Site,
    runner: Runner,
}

impl Processes {
    /// With the executable at `program`, which is `weir` itself. `tell` is given every
    /// command before it is started.
    pub fn new(
        program: PathBuf,
        server_cores: Vec<usize>,
        generator_core: Option<usize>,
        interrupt: Interrupt,
        tell: Option<fn(&str)>,
    ) -> Self {
        let site = Site::Loopback { has_ipv6: exchange::has_ipv6() };
        let runner = Runner::new(program, interrupt, tell);
        Self { server_cores, generator_core, more_generator_cores: vec![], site, runner }
    }

    /// The same where server and generator meet elsewhere. On a link, the calling thread must be at the
    /// generator's end of it.
    pub fn at(mut self, site: Site) -> Self {
        self.site = site;
        self
    }

    /// The same that logs the performance of its servers at these intervals.
    pub fn logging_performance(mut self, every: Option<Duration>) -> Self {
        self.runner.log_performance(every);
        self
    }

    /// Gives further generators cores of their own; without, they share the first one's.
    pub fn with_more_generator_cores(mut self, cores: Vec<usize>) -> Self {
        self.more_generator_cores = cores;
        self
    }

    /// The command of the server of a run.
    fn server(&self, run: &Run) -> CommandLine {
        let load = run.load;
        let mut command = self.runner.weir().arguments(match &run.row.peer {
            None => ["serve", "udp", "--design"].map(String::from),
            Some(_) => ["serve", "peer", "--command"].map(String::from),
        });
        command = command.arguments([match &run.row.peer {
            None => run.row.spec(),
            Some(peer) => peer.command.to_string(),
        }]);
        for _ in 0..load.ports.max(1) {
            command = command.arguments(["--bind".into(), any_port(self.site.server())]);
        }
        command = command
            .arguments(["--control".into(), any_port(self.site.server())])
            .arguments(self.permission())
            .on_cores(&self.server_cores)
            .option("--size", (load.size_bytes > DEFAULT_SIZE_BYTES).then_some(load.size_bytes))
            .option("--work", (!load.work.is_none()).then_some(load.work))
            .option("--hold", load.burst().map(|(_, held)| held).filter(|held| *held != Held::No))
            .arguments(memory(run.row, load))
            .option("--busy-poll", load.busy_poll_us.map(|us| format!("{us}us")))
            .arguments(receive_offload(load));
        if let Some(replies) = load.replies {
            command = command
                .arguments(["--echo", "--replies-per-s", "any"])
                .option("--reply-size", replies.size_bytes)
                .arguments((!load.joins_replies()).then_some("--no-send-offload"));
        }
        if matches!(run.extent, Extent::Checked { .. }) {
            command = command.arguments(["--verify-all"]);
        }
        let generators = self.site.fleet().map_or(1, |fleet| fleet.hosts().generators.len());
        command = command.option("--runs-together", (generators > 1).then_some(generators));
        if run.row.peer.is_none() && matches!(run.extent, Extent::Timed { .. }) {
            command = command.arguments(self.runner.logging());
        }
        command.arguments(self.runner.counting().filter(|_| run.row.peer.is_none())).arguments([
            "--once",
            "--end-with-input",
            "--json",
        ])
    }

    /// The command of the generator of a run against the given ports; over hosts that of each, with marks for what is its own:
    /// they share what is to be sent.
    fn generator(
        &self,
        load: &Load,
        per_second: Option<u64>,
        extent: Extent,
        head: Head,
        ports: &[u16],
        control: Option<SocketAddr>,
    ) -> CommandLine {
        let is_at_hosts = self.site.fleet().is_some();
        let of_part = |all: u64| match is_at_hosts {
            true => part(all, all),
            false => all.max(1).to_string(),
        };
        let (flows, datagrams, per_second) = match extent {
            Extent::Timed { .. } => (load.flows, None, per_second),
            Extent::Burst { datagrams } => (load.flows, Some(datagrams), None),
            Extent::Checked { datagrams, flows } => {
                // As in any load: with fewer flows than ports some would have none.
                let load = Load { flows, ports: ports.len() as u16, ..*load }.with_enough_flows();
                (load.flows, Some(datagrams), Some(CHECK_PER_SECOND))
            }
        };
        let replies = load.replies.filter(|_| control.is_some());
        let closed = replies.filter(|_| per_second.is_none());
        let port_list: Vec<String> = ports.iter().map(u16::to_string).collect();
        let is_poisson = load.arrivals == Arrivals::Poisson && per_second.is_some();
        let mut command = self
            .runner
            .weir()
            .arguments(["flood".into(), self.site.server().to_string()])
            .arguments(["-p".into(), port_list.join(",")])
            .option("--control", control);
        command = match is_at_hosts {
            true => command.arguments([CORES]),
            false => command.on_cores(&self.generator_cores(load)),
        };
        command = command
            .option("-l", Some(load.size_bytes))
            .option("--head", (!head.is_empty()).then_some(head))
            .arguments(replies.map(|_| "--reply"))
            .option("--reply-size", replies.and_then(|replies| replies.size_bytes))
            .option("--outstanding", closed.map(|replies| replies.outstanding))
            .option("-P", Some(flows))
            .option("--generators", (load.generators > 1).then_some(load.generators))
            .option("-k", datagrams.map(of_part))
            .option("--pps", per_second.map(of_part))
            .option("--arrivals", is_poisson.then_some(load.arrivals.name()));
        let (warmup_ms, run_ms) = milliseconds(extent);
        let limit = if datagrams.is_some() { "--max-time" } else { "-t" };
        command = command
            .option(limit, Some(format!("{run_ms}ms")))
            .option("-O", (warmup_ms > 0).then(|| format!("{warmup_ms}ms")));
        if !load.send_offload {
            command = command.arguments(["--engine", WITHOUT_OFFLOAD]);
        } else if self.site.link().is_some() && load.replies.is_none() {
            command = command.arguments(["--engine", link::engine(per_second)]);
        }
        command.arguments(["-i", "0", "--json"])
    }

    /// The cores of the generators of a load.
    fn generator_cores(&self, load: &Load) -> Vec<usize> {
        let more = usize::from(load.generators.max(1)) - 1;
        let more = self.more_generator_cores.iter().copied().take(more);
        self.generator_core.into_iter().chain(more).collect()
    }

    /// The command of the server of a check: it answers, and tells how often.
    fn echo_server(&self, row: &Row, load: &Load) -> CommandLine {
        let mut command = self
            .runner
            .weir()
            .arguments(["serve", "udp", "--design"])
            .arguments([row.spec()])
            .arguments(["--bind".into(), any_port(self.site.server())]);
        if let Some(v6) = self.site.server_v6() {
            command = command.arguments(["--bind".into(), any_port(v6)]);
        }
        command
            .on_cores(&self.server_cores)
            .option("--size", (load.size_bytes > DEFAULT_SIZE_BYTES).then_some(load.size_bytes))
            .option("--busy-poll", load.busy_poll_us.map(|us| format!("{us}us")))
            .arguments(memory(row, load))
            .arguments(receive_offload(load))
            .arguments(["--echo", "--interval", "0", "--end-with-input", "--json"])
    }

    /// The outer error is that the server did not go through with it.
    fn try_check(&self, row: &Row, load: &Load) -> Result<Result<Echoed, RunError>, ChildError> {
        let longest = load.size_bytes.max(DEFAULT_SIZE_BYTES) as usize;
        let mut server = self.spawn_server(&self.echo_server(row, load))?;
        let line: ReadyLine = server.document("ready line", self.runner.within(READY_WITHIN))?;
        let mut exchanges = vec![];
        let outcome = line.ready.addresses.iter().try_for_each(|address| {
            let opened = Exchange::open(*address)
                .map_err(|error| format!("cannot open a socket to check {address}: {error}"))?;
            exchanges.push(opened);
            exchanges.last_mut().map_or(Ok(()), |exchange| exchange.run(longest))
        });
        // Its report also where the exchange failed: a server that crashed is the likelier cause.
        server.close_input();
        let report: ServerReport = server.document("report", self.runner.within(REPORT_WITHIN))?;
        let ended = server.finish(self.runner.within(END_WITHIN))?;
        if !ended.success() {
            return Err(ChildError::BadEnd { name: SERVER, status: ended.to_string() });
        }
        Ok(self.judge(outcome, &exchanges, &report, longest))
    }

    /// Whether all came back as it was sent.
    fn judge(
        &self,
        outcome: Result<(), String>,
        exchanges: &[Exchange],
        report: &ServerReport,
        longest: usize,
    ) -> Result<Echoed, RunError> {
        let wrong = |problem: String| RunError::Failed(problem);
        outcome.map_err(wrong)?;
        // Whatever the server still had to say is in the sockets once it has ended.
        exchanges.iter().try_for_each(Exchange::is_over).map_err(wrong)?;
        let sent: u64 = exchanges.iter().map(Exchange::sent).sum();
        match report.counters.get("datagrams") {
            Some(counted) if *counted > sent => Err(RunError::Disturbed(format!(
                "the server counted {} more datagrams than were sent in the check: somebody else sent to its \
                 port, or it counts some twice",
                counted - sent
            ))),
            Some(counted) if *counted != sent => {
                Err(wrong(format!("{sent} datagrams were sent, it counted {counted}")))
            }
            _ => Ok(Echoed {
                datagrams: sent,
                senders: exchange::SENDERS,
                sizes_bytes: exchange::sizes(longest),
                ipv6: self.site.server_v6().is_some(),
            }),
        }
    }

    /// Starts the server at its end.
    fn spawn_server(&self, command: &CommandLine) -> Result<Child, ChildError> {
        match self.site.fleet() {
            Some(fleet) => self.runner.spawn_at(fleet, &fleet.hosts().server, SERVER, command),
            None => self.site.at_server(|| self.runner.spawn(SERVER, command)),
        }
    }

    /// What a server is told where its control channel is not on loopback: that it may be flooded at any
    /// rate. Nobody else is on a link of its own; over hosts a generator must have the run's key.
    fn permission(&self) -> Vec<String> {
        let words = ["--max-pps", "any", "--max-bitrate", "any", "--max-time", "1h"];
        let elsewhere = !self.site.server().is_loopback();
        words.into_iter().filter(|_| elsewhere).map(String::from).collect()
    }

    /// What a run is made by, and what the machine or the hosts did meanwhile.
    fn try_run(&self, run: &Run) -> Result<Made, ChildError> {
        let Some(fleet) = self.site.fleet() else {
            let mut meter = LoadMeter::start();
            let made = self.try_run_metered(run)?;
            let load_of_others = meter.read(own_cpu_ns(&made.server, &made.flood)).others;
            return Ok(Made { load_of_others, ..made });
        };
        fleet.begin_meters();
        let mut made = self.try_run_metered(run)?;
        let server_ns = made.server.system.cpu_ns.unwrap_or(0);
        let Reading { others, send_dropped } = fleet.read_meters(server_ns)?;
        let hosts = fleet.hosts();
        let together = made.flood.together.get_or_insert_default();
        // Over loopback there is nothing between a sender and the server that could lose anything unseen.
        together.over_network = hosts.is_elsewhere();
        together.send_dropped = send_dropped.filter(|_| together.over_network);
        let settings = &mut made.server.settings;
        settings.insert("generators".into(), hosts.generators_in_words());
        settings.insert("links".into(), hosts.links_in_words());
        Ok(Made { load_of_others: others, ..made })
    }

    fn try_run_metered(&self, run: &Run) -> Result<Made, ChildError> {
        let mut server = self.spawn_server(&self.server(run))?;
        let line: ReadyLine = server.document("ready line", self.runner.within(READY_WITHIN))?;
        let ready = line.ready;
        let ports: Vec<u16> = ready.addresses.iter().map(SocketAddr::port).collect();
        let head = run.row.peer.as_ref().map_or_else(Head::default, |peer| peer.head);
        let control = ready.control;
        let flooded = match self.site.fleet() {
            Some(fleet) => self.try_flood_together(fleet, run, head, &ports, control),
            None => {
                let generator =
                    self.generator(run.load, run.per_second(), run.extent, head, &ports, control);
                self.try_flood(&generator, run.extent)
            }
        };
        let flood = match flooded {
            Ok(flood) => flood,
            Err(error) => return Err(server.or_blame(error)),
        };
        let mut report: ServerReport =
            server.document("report", self.runner.within(REPORT_WITHIN))?;
        let ended = server.finish(self.runner.within(END_WITHIN))?;
        // The report says what is wrong, and the run is kept as an invalid one.
        let explained = ended.code() == Some(DATA_ERRORS.into()) && report.tells_of_errors();
        if !ended.success() && !explained {
            return Err(ChildError::BadEnd { name: SERVER, status: ended.to_string() });
        }
        for (name, value) in ready.settings {
            report.settings.entry(name).or_insert(value);
        }
        Ok(Made { server: report, flood, load_of_others: None })
    }

    /// Floods from every generator's host, together.
    fn try_flood_together(
        &self,
        fleet: &Fleet,
        run: &Run,
        head: Head,
        ports: &[u16],
        control: Option<SocketAddr>,
    ) -> Result<FloodReport, ChildError> {
        let clocks = fleet.clocks()?;
        let latencies = match has_one_way_latency(fleet, run, head) {
            false => Latencies::None,
            true if fleet.have_one_clock() => Latencies::OneClock,
            true => Latencies::Compared,
        };
        let own_clock = || match latencies {
            Latencies::Compared => fleet.clocks_from_server(),
            Latencies::None | Latencies::OneClock => Ok(Offset::default()),
        };
        let before = own_clock()?;
        let what = (run.per_second(), run.extent);
        let mut command = self.generator(run.load, what.0, what.1, head, ports, control);
        if latencies != Latencies::None {
            command = command.arguments(["--clocks", CLOCKS]);
        }
        command = command.arguments(["--wait-for-start"]);
        let (warmup_ms, run_ms) = milliseconds(run.extent);
        let lasts = Duration::from_millis(warmup_ms + run_ms);
        let deadline = self.runner.time.deadline(lasts, REPORT_WITHIN);
        let generators = fleet.hosts().generators.len();
        let task = Task {
            kind: Kind::Udp,
            words: command.words().to_vec(),
            parts: generators,
            phases: vec![READY.into(); 1 + usize::from(warmup_ms > 0)],
            tells_end: latencies == Latencies::Compared,
            latencies,
            // One after another's datagram, as those of several threads.
            per_second: run.per_second().filter(|_| generators > 1),
            within_ms: deadline.saturating_duration_since(Instant::now()).as_millis() as u64,
        };
        let phases = task.phases.len();
        let mut all = self.runner.start_all(fleet, task, &command, before)?;
        for _ in 0..phases {
            all.come_to(READY)?;
            all.begin(&clocks);
        }
        all.end()?;
        let after = own_clock()?;
        match all.reports(Between { before, after })? {
            Reports::Udp(all) => Ok(all.into_report()),
            Reports::Tcp(_) => Err(failed("generators report as clients do".into())),
        }
    }

    fn try_flood(&self, command: &CommandLine, extent: Extent) -> Result<FloodReport, ChildError> {
        let generator = self.runner.spawn(GENERATOR, command)?;
        let (warmup_ms, run_ms) = milliseconds(extent);
        let lasts = Duration::from_millis(warmup_ms + run_ms);
        self.report_of(generator, self.runner.time.deadline(lasts, REPORT_WITHIN))
    }

    /// What a generator says at its end.
    fn report_of(
        &self,
        mut generator: Child,
        deadline: Instant,
    ) -> Result<FloodReport, ChildError> {
        let document: Value = generator.whole_document("report", deadline)?;
        generator.finish(self.runner.within(END_WITHIN))?;
        report_of(document)
    }
}

/// Whether the server takes one-way latencies of a run, of generators at other hosts: of datagrams with a stamp, which it
/// does not answer. Of those that it answers round trips are taken.
fn has_one_way_latency(fleet: &Fleet, run: &Run, head: Head) -> bool {
    let has_stamp = run.load.size_bytes as usize >= STAMP_BYTES && head.is_empty();
    let is_timed = matches!(run.extent, Extent::Timed { .. });
    fleet.hosts().is_elsewhere() && run.load.replies.is_none() && has_stamp && is_timed
}

fn failed(message: String) -> ChildError {
    ChildError::Reported(Failure { unavailable: false, message })
}

impl course::Bench<Udp> for Processes {
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
        let (server, generator) = match self.site.fleet().map(|fleet| fleet.hosts()) {
            None => (*self.server_cores.first()?, self.generator_core?),
            // No cache is common to two hosts.
            Some(hosts) if hosts.is_elsewhere() => return None,
            // Ranks of one machine. It is measured by rank 0, which generates there.
            Some(hosts) => {
                (*hosts.server.cores.first()?, *hosts.generators.first()?.cores.first()?)
            }
        };
        if server == generator {
            return None;
        }
        weir::machine::core_to_core_ns(server, generator)
    }

    fn check(&mut self, row: &Row, loads: &[Load]) -> Result<Checked, RunError> {
        check::of(self, row, loads)
    }

    fn run(&mut self, run: &course::Run<Load>) -> Result<Made, RunError> {
        self.run_once(&Run::of(run))
    }
}

impl Bench for Processes {
    fn calibrate(&mut self, load: &Load) -> Result<f64, RunError> {
        let nobody = match &self.site {
            Site::Loopback { .. } => None,
            Site::Link(_) => Some("on a virtual link"),
            Site::Hosts(_) => Some("over hosts"),
        };
        if let Some(place) = nobody {
            let reason =
                format!("{place} it floods only a server that consents, and such a server reads");
            return Err(RunError::Failed(reason));
        }
        let failed = |error: weir::Error| {
            RunError::Failed(format!("cannot open a socket that nobody reads: {error}"))
        };
        // Nobody reads it, so its buffer fills at once and everything after is dropped. Without
        // receive offload the kernel cuts what is sent on the core of the sender: so the sink asks
        // for it where the server does.
        let options = SocketOptions::default().receive_offload(load.receive_offload);
        let address = (Ipv4Addr::LOCALHOST, 0).into();
        let sink = DatagramSocket::bind(&Endpoint { address, options }).map_err(failed)?;
        let port = sink.local_address().port();
        let extent = Extent::Timed { warmup_ms: 0, run_ms: CALIBRATION_MS };
        let generator = self.generator(load, None, extent, Head::default(), &[port], None);
        let flood = self.try_flood(&generator, extent)?;
        if flood.elapsed_ns == 0 || flood.sent == 0 {
            return Err(RunError::Failed("the generator sent nothing".into()));
        }
        Ok(flood.sent as f64 * 1e9 / flood.elapsed_ns as f64)
    }

    fn echo(&mut self, row: &Row, load: &Load) -> Result<Echoed, RunError> {
        let late = |error| RunError::from(error).or_time_is_up(self.runner.time.is_up());
        self.try_check(row, load).map_err(late)?
    }

    fn run_once(&mut self, run: &Run) -> Result<Made, RunError> {
        self.try_run(run)
            .map_err(|error| RunError::from(error).or_time_is_up(self.runner.time.is_up()))
    }
}

/// An address with a port of the system's choice.
fn any_port(address: IpAddr) -> String {
    SocketAddr::new(address, 0).to_string()
}

/// What a server is told of its memory. Rows that are compared have like receive buffers, whatever their designs would
/// ask for, and each run starts a server of its own: so pages come as they are touched, unless it is about bursts, or
/// the row says otherwise.
fn memory(row: &Row, load: &Load) -> Vec<String> {
    let commits = load.burst().is_some() || row.options.iter().any(|(name, _)| name == COMMIT);
    let mut words = vec![];
    match (&row.peer, load.rcvbuf) {
        (Some(_), ReceiveBuffer::Bytes(_)) | (None, _) => {
            words.extend(["--rcvbuf".into(), load.rcvbuf.to_string()]);
        }
        (Some(_), _) => {}
    }
    if row.peer.is_none() && !commits {
        words.extend([format!("--{COMMIT}"), Commit::Touched.to_string()]);
    }
    words
}

/// The option that says when pages of the memory come into being.
const COMMIT: &str = "commit";

/// The server's flag for receive offload.
fn receive_offload(load: &Load) -> Option<&'static str> {
    load.receive_offload.then_some("--receive-offload")
}

/// CPU time of both processes over their whole lives, in nanoseconds: whatever else the
/// machine's cores spent meanwhile was spent by other programs. A generator that does not
/// say tells at least of its measured phase.
fn own_cpu_ns(server: &ServerReport, flood: &FloodReport) -> u64 {
    let generator_ns = flood.process_cpu_ns.or(flood.cpu_ns);
    server.system.cpu_ns.unwrap_or(0) + generator_ns.unwrap_or(0)
}

/// How long the warm-up and the run last at most, in milliseconds.
fn milliseconds(extent: Extent) -> (u64, u64) {
    match extent {
        Extent::Timed { warmup_ms, run_ms } => (warmup_ms, run_ms),
        Extent::Burst { .. } => (0, BURST_AT_MOST_MS),
        Extent::Checked { .. } => (0, CHECK_AT_MOST_MS),
    }
}

#[cfg(all(test, unix))]
mod tests;
