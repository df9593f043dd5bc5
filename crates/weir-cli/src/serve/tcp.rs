//! `weir serve tcp`: runs one design until it is told to end, and reports.
//!
//! With `--json` it prints two documents, one a line: where it listens, and its report.

mod handler;
mod report;
mod tls;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use clap::Args;
use weir::counters::os::{KernelEntries, Sampler, TcpEnds};
use weir::counters::{ENTRIES_BY_KERNEL, ENTRIES_SOURCE};
use weir::filter::{ConnectionLimit, Filter, RateLimit, ReadTimeout};
use weir::stream::{Keepalive, StreamOptions};
use weir::tcp::{
    AnyDesign, DEFAULT_BUFFER_BYTES, Limits, MOST_CONNECTIONS, Running, Server, ThreadNow, WhenFull,
};
use weir::wake::Waker;
use weir_lab::performance::{Batches, MOST_THREADS, Now, Record, Recorder, ThreadNow as Thread};
use weir_lab::tcp::wire::{BUFFERS, KernelHeld, MARK, STANDING, Standing};
use weir_lab::{udp::plan::Work, wire};
use weir_load::control::{
    AgreedRun, ControlServer, ControlSettings, Ending, InForce, Receiver as OfControl,
};
use weir_load::quantity::{parse_count, parse_size, parse_time};

use super::event::Event;
use super::metrics::{self, About, MetricsArgs};
use super::performance::{PerformanceArgs, PerformanceLog};
use super::watch::for_control;
use super::{bound, stop_on_request, text, unix};
use crate::cores::{Cores, keep_to};
use crate::exit::{self, Failure};
use crate::shown::{self, TellArgs};
use crate::width::fitted_lines;
use report::{Report, Totals};

/// Options of `weir serve tcp`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 success, also when Ctrl-C or a signal ended it; 1 it failed; 2 wrong usage; 5 it \
                  cannot run here.",
    mut_arg("json", |arg| arg.help(super::JSON))
)]
pub struct ServeTcp {
    /// Design with its options, as `weir designs` lists them [default: the first of epoll, port and blocking that
    /// this system has].
    #[arg(long)]
    design: Option<String>,

    /// Address and port to listen on; repeatable. Port 0 takes any free one. [::] alone serves IPv4 too (unless
    /// net.ipv6.bindv6only is set); together with an IPv4 address on the same port it leaves IPv4 to that one [default:
    /// 127.0.0.1:5150, where neither --port nor --unix is given].
    #[arg(long)]
    bind: Vec<SocketAddr>,

    /// Port of 127.0.0.1 to listen on, instead of --bind; several with commas.
    #[arg(short, long, value_delimiter = ',', conflicts_with = "bind")]
    port: Vec<u16>,

    /// Path of a Unix socket to listen on, besides --bind or --port if they are given; repeatable. The file is created
    /// at the start and removed at the end; one left behind by a server that is gone is replaced. @NAME is a name of
    /// the abstract namespace, by which anybody in the same network namespace may connect.
    #[arg(long, value_name = "PATH", value_parser = unix::parse_path)]
    unix: Vec<PathBuf>,

    /// Mode of the files of --unix, in octal, such as 660: whoever may write to them may connect [default: as the umask
    /// says].
    #[arg(long, value_name = "MODE", value_parser = unix::parse_mode, requires = "unix")]
    unix_mode: Option<u32>,

    /// Have the kernel count the entries into it, which slows every system call of the machine down: for runs in which
    /// nothing else is measured. It needs root.
    #[arg(long, hide = true)]
    count_entries: bool,

    /// Address and port of the control channel, or a port of 127.0.0.1, over which loads from other machines ask for
    /// permission (`weir load tcp --control`): they must be of the same build, and have the same key if there is one.
    /// `weir set` uses it to show and change settings while the server runs.
    #[arg(long, value_name = "ADDRESS", value_parser = super::parse_address)]
    control: Option<SocketAddr>,

    /// File with a key of 16 bytes or more: only loads that have the same one are accepted. Without this option it may
    /// be in the environment variable WEIR_KEY.
    #[arg(long, requires = "control")]
    key_file: Option<PathBuf>,

    /// Cores to run on: 0 or 2,3 or 4-7.
    #[arg(long)]
    cpu: Option<Cores>,

    /// Bytes received at a time, at most (k = 1024).
    #[arg(short, long, default_value_t = DEFAULT_BUFFER_BYTES, value_parser = parse_size)]
    buffer: usize,

    /// Work per receive: this many steps plus one of a pseudo-random generator; shared:500 runs them on state
    /// that all connections share under a lock.
    #[arg(long, default_value_t)]
    work: Work,

    /// Receive buffer to request, in bytes (k = 1024) [default: the system's].
    #[arg(long, value_parser = parse_size)]
    rcvbuf: Option<usize>,

    /// Send buffer to request, in bytes (k = 1024) [default: the system's].
    #[arg(long, value_parser = parse_size)]
    sndbuf: Option<usize>,

    /// Connections that may wait to be accepted; the system has a limit of its own.
    #[arg(long, default_value_t = StreamOptions::default().backlog)]
    backlog: u32,

    /// Gather small segments before they are sent (leaves TCP_NODELAY off).
    #[arg(long)]
    delay: bool,

    /// Send everything received back on its connection.
    #[arg(long)]
    echo: bool,

    /// Most connections at a time (k = 1000); further ones are refused with a reason.
    #[arg(long, default_value_t = Limits::default().connections, value_parser = parse_connections)]
    connections_max: u32,

    /// Most connections served at a time, in order of arrival (k = 1000); the others wait. 100 where no number is
    /// given.
    #[arg(long, value_parser = parse_connections, num_args = 0..=1, default_missing_value = ACTIVE_TEXT)]
    active: Option<u32>,

    /// Most threads for connections (k = 1000), where a design starts them as connections come [default: as
    /// many as the system allows the process].
    #[arg(long, value_parser = parse_connections)]
    threads_max: Option<u32>,

    /// Most connections from one address at a time (k = 1000; of IPv6 from one /64); further ones are refused
    /// with a reason.
    #[arg(long, value_parser = parse_connections)]
    per_address: Option<u32>,

    /// Most bytes a second from each connection (k = 1000): receiving pauses beyond.
    #[arg(long, value_parser = parse_most_a_second)]
    max_rate: Option<u64>,

    /// Most receives a second from each connection (k = 1000): receiving pauses beyond.
    #[arg(long, value_parser = parse_most_a_second)]
    max_receives: Option<u64>,

    /// Close a connection from which nothing was read for this long, whether or not it ever sent anything
    /// (the filter; --silent and --idle are the server's own limits); 0 for never.
    #[arg(long, default_value = "0", value_parser = parse_time)]
    read_timeout: Duration,

    #[command(flatten)]
    tls: tls::TlsArgs,

    /// Bytes of output that may wait on one connection (k = 1024): at this limit, receiving from it pauses.
    #[arg(long, default_value_t = Limits::default().output_bytes, value_parser = parse_size)]
    output_bytes: usize,

    /// Close a connection whose output is full, instead of waiting for its peer.
    #[arg(long)]
    close_when_full: bool,

    /// Close connections that never sent anything after this time; 0 for never.
    #[arg(long, default_value = "300s", value_parser = parse_time)]
    silent: Duration,

    /// Close connections that sent something and have been silent for this long; 0 for never.
    #[arg(long, default_value = "0", value_parser = parse_time)]
    idle: Duration,

    /// Close connections that take none of their output for this long; 0 for never.
    #[arg(long, default_value = "60s", value_parser = parse_time)]
    stalled: Duration,

    /// Probe a peer that has been silent for this long (SO_KEEPALIVE), then every 10 s; six unanswered probes
    /// break the connection. Whole seconds; 0 for never.
    #[arg(long, default_value = "60s", value_parser = parse_time)]
    keepalive: Duration,

    /// At the end, wait this long for output under way and for peers to close.
    #[arg(long, default_value = "5s", value_parser = parse_time)]
    stop_time: Duration,

    /// Interval of progress lines, at least 10 ms; 0 for none.
    #[arg(short, long, default_value = "1s", value_parser = crate::interval::parse)]
    interval: Duration,

    /// End when the standard input ends.
    #[arg(long)]
    end_with_input: bool,

    #[command(flatten)]
    metrics: MetricsArgs,

    #[command(flatten)]
    performance: PerformanceArgs,

    /// End when the first clients have gone: once there have been connections, and none for a second; with --control,
    /// no load may be connected to that channel either.
    #[arg(short = '1', long, visible_alias = "one-off")]
    once: bool,

    #[command(flatten)]
    pub tell: TellArgs,
}

/// Serves until it is told to end; gives the exit code.
pub fn serve(args: &ServeTcp) -> Result<u8, Failure> {
    let listener = metrics::open(&args.metrics, args.cpu.as_ref())?;
    let mut log = args.performance.open()?;
    let unbound = args.cpu.as_ref().map(|cores| keep_to("serve tcp", cores)).transpose()?.flatten();
    // With the privilege that is given up now.
    let entries = args.count_entries.then(KernelEntries::begin).transpose();
    let entries = entries.map_err(weir::Error::from)?;
    // Before any thread is started: its threads have none either.
    weir::privilege::give_up()
        .map_err(|error| Failure::failed(format!("cannot give up privilege: {error}")))?;
    // Each connection takes one.
    let descriptors = weir_load::tcp::descriptors();
    let mut sampler = Sampler::new();
    let held_before = KernelHeld::now(&mut sampler);
    let asked = args.design.clone().unwrap_or_else(usual_design);
    let (running, design) = start(args, &asked)?;
    let before = Totals::read(&running, &mut sampler);
    let (sender, events) = channel();
    stop_on_request(args.end_with_input, &sender)?;
    let mut ready = settings(args, &running, descriptors, &unbound);
    ready.extend(listener.as_ref().map(|listener| ("metrics".to_owned(), listener.url())));
    let ended = sender.clone();
    running.on_end(Waker::new(move || drop(ended.send(Event::Stop))));
    let running = Arc::new(running);
    let about = About::of(&design, &asked, &ready);
    let pages = metrics::tcp::pages(about, Arc::clone(&running));
    let endpoint = listener.map(|listener| listener.answer(pages)).transpose()?;
    let consents = || Consents { of_design: Some((Arc::downgrade(&running), sender)) };
    let control = args
        .control
        .map(|at| open_control(at, args.key_file.as_deref(), consents()))
        .transpose()?;
    announce(args, &running, control.as_ref(), ready)?;
    let mut watched = Watched {
        args,
        running: &running,
        sampler,
        entries,
        began: Instant::now(),
        held_before,
        standing: None,
        marks: vec![],
        recorder: args.performance.recorder(),
        recorded: vec![],
        once: args.once.then_some(Once { control: control.as_ref(), quiet_since: None }),
    };
    if let Some(recorder) = &mut watched.recorder {
        recorder.begin(performance(&running));
    }
    if let Some(log) = &mut log {
        log.begin(performance(&running));
    }
    watched.until_end(&before, &mut log, &events);
    if watched.marks.is_empty() {
        watched.record();
    }
    let Watched { mut sampler, standing, marks, recorded, .. } = watched;
    let logged = log.map_or(Ok(()), |log| log.end(performance(&running)));
    drop(control);
    // With its end nobody else has the server.
    drop(endpoint);
    let running = Arc::into_inner(running)
        .ok_or_else(|| Failure::failed("the thread that serves metrics still runs"))?;
    let mut settings = settings(args, &running, descriptors, &unbound);
    if report::counted_by_kernel(&marks) {
        settings.insert(ENTRIES_SOURCE.into(), ENTRIES_BY_KERNEL.into());
    }
    let fin = running.stop();
    let mut report = Report::of(design, settings, &fin, &before, &mut sampler);
    report.standing = standing;
    report.window = report::window(&marks);
    report.performance = recorded;
    let failure = fin.failure.map(Failure::from);
    if let Some(failure) = &failure {
        report.failure = Some(failure.message.clone());
    }
    let left_open =
        (report.open > 0).then(|| format!("{} connections were not closed", report.open));
    // A server that failed is told of by whoever called this, in a document, too.
    let printed = match (args.tell.is_for_programs(), &failure) {
        (true, Some(_)) => Ok(()),
        (true, None) => super::print_concluded(&report, left_open.as_deref(), args.tell),
        (false, _) => {
            let details = text::details(&report.settings, args.tell);
            crate::print_report(&fitted_lines(&format!("{}{details}", report.text())))
        }
    };
    match (failure, left_open) {
        (Some(mut failure), _) => {
            failure.message =
                format!("{} stopped with an error: {}", report.design, failure.message);
            Err(failure)
        }
        // The document has told it.
        (None, Some(why)) if args.tell.is_for_programs() => {
            say!("weir serve tcp: {why}");
            printed.map(|()| exit::FAILED)
        }
        (None, Some(why)) => Err(Failure::failed(why)),
        (None, None) => printed.and(logged).map(|()| exit::OK),
    }
}

/// Starts the server. Gives also the name of its design.
fn start(args: &ServeTcp, asked: &str) -> Result<(Running, String), Failure> {
    let design = AnyDesign::parse(asked)?;
    let name = design.about().name.to_owned();
    design.availability().map_err(weir::Error::from)?;
    unix::check(&args.unix, args.unix_mode, "connect")?;
    let mut bind = bound(&args.bind, &args.port);
    if bind.is_empty() && args.unix.is_empty() {
        bind.push(USUAL_ADDRESS);
    }
    let mut addresses = bind.into_iter();
    let mut paths = args.unix.iter();
    let server = match (addresses.next(), paths.next()) {
        (Some(address), None) => Server::bind(address),
        (Some(address), Some(path)) => Server::bind(address).and_bind_unix(path),
        (None, Some(path)) => Server::bind_unix(path),
        (None, None) => return Err(Failure::usage("no address to listen on")),
    };
    let connections = args.connections_max;
    let some = |time: Duration| Some(time).filter(|time| !time.is_zero());
    let mut server = server
        .buffer_bytes(args.buffer)
        .stream_options(
            StreamOptions::default()
                .no_delay(!args.delay)
                .receive_buffer_bytes(args.rcvbuf)
                .send_buffer_bytes(args.sndbuf)
                .backlog(args.backlog)
                .keepalive(some(args.keepalive).map(keepalive)),
        )
        .limits(
            Limits::default()
                .connections(connections)
                .active(args.active)
                .threads(args.threads_max)
                .output_bytes(args.output_bytes)
                .when_full(if args.close_when_full { WhenFull::Close } else { WhenFull::Wait })
                .silent(some(args.silent))
                .idle(some(args.idle))
                .stalled(some(args.stalled))
                .stop(args.stop_time),
        );
    server = addresses.fold(server, Server::and_bind);
    server = paths.fold(server, Server::and_bind_unix);
    if let Some(mode) = args.unix_mode {
        server = server.unix_mode(mode);
    }
    let handlers = handler::handlers(args.work, args.echo);
    let running = server.start(design, filters(args)?.handlers(handlers))?;
    Ok((running, name))
}

/// The design of a server of which nothing else is said: what systems have for many connections, the first that this
/// one has.
fn usual_design() -> String {
    const USUAL: [&str; 2] = ["epoll", "port"];
    let runs = |name: &&str| AnyDesign::parse(name).is_ok_and(|it| it.availability().is_ok());
    USUAL.into_iter().find(runs).unwrap_or("blocking").into()
}

/// Where it listens unless told otherwise.
const USUAL_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 5150);

/// The default of an active set, as text.
const ACTIVE_TEXT: &str = "100";

/// Connections, of which there must be some (k = 1000).
fn parse_connections(text: &str) -> Result<u32, String> {
    match parse_count(text)? {
        number if (1..=u64::from(MOST_CONNECTIONS)).contains(&number) => Ok(number as u32),
        _ => Err(format!("{text} is not allowed; allowed: 1 to {MOST_CONNECTIONS}")),
    }
}

/// Bytes or receives a second (k = 1000, as of all rates).
fn parse_most_a_second(text: &str) -> Result<u64, String> {
    some_a_second(parse_count(text)?)
}

fn some_a_second(rate: u64) -> Result<u64, String> {
    match rate {
        0 => Err("0 is not allowed: nothing would be received; leave it out for no limit".into()),
        rate => Ok(rate),
    }
}

/// Asked first after this time, and then as often as usual, or as often as that.
fn keepalive(idle: Duration) -> Keepalive {
    let usual = Keepalive::default();
    usual.idle(idle).interval(usual.interval.min(idle))
}

/// The filters that were asked for. Where there are none, a connection asks once a call whether there are.
fn filters(args: &ServeTcp) -> Result<impl Filter, Failure> {
    let per_address = args.per_address.map(|most| ConnectionLimit::new(u32::MAX, most));
    let rate = (args.max_rate.is_some() || args.max_receives.is_some())
        .then(|| RateLimit::new(args.max_rate, args.max_receives));
    let timeout = Some(args.read_timeout).filter(|time| !time.is_zero()).map(ReadTimeout::new);
    let tls = args.tls.filter()?;
    let any = per_address.is_some() || rate.is_some() || timeout.is_some() || tls.is_some();
    Ok(any.then(|| per_address.then(rate).then(timeout).then(tls)))
}

fn settings(
    args: &ServeTcp,
    running: &Running,
    descriptors: Option<u64>,
    unbound: &Option<String>,
) -> BTreeMap<String, String> {
    let mut settings: BTreeMap<_, _> = running.effective().into_iter().collect();
    settings.insert("echo".into(), args.echo.to_string());
    settings.insert("work".into(), args.work.to_string());
    settings.extend(args.tls.settings());
    // What was asked for is what was obtained, or no thread may be bound at all.
    let cores =
        args.cpu.as_ref().map_or(weir::affinity::allowed_cores(), |Cores(cores)| cores.clone());
    let cores: Vec<_> = cores.iter().map(usize::to_string).collect();
    settings.insert("cpu".into(), unbound.clone().unwrap_or_else(|| cores.join(",")));
    let filters = [
        ("per-address", args.per_address.map(u64::from)),
        ("max-rate", args.max_rate),
        ("max-receives", args.max_receives),
        ("read-timeout-ms", Some(args.read_timeout.as_millis() as u64).filter(|ms| *ms > 0)),
    ];
    for (name, value) in filters {
        if let Some(value) = value {
            settings.insert(name.into(), value.to_string());
        }
    }
    if let Some(descriptors) = descriptors {
        settings.insert("descriptors-max".into(), descriptors.to_string());
    }
    settings
}

/// The longest load, as `weir load` has it.
const LONGEST_LOAD: Duration = Duration::from_secs(24 * 3600);
/// Most loads that are agreed to at a time.
const MOST_LOADS: usize = 256;

/// Agrees to loads that prove that they are of this build, and have the key if there is one. A load holds its connection as
/// long as it lasts.
pub(super) fn open_control(
    at: SocketAddr,
    key_file: Option<&Path>,
    consents: Consents,
) -> Result<ControlServer, Failure> {
    let settings = ControlSettings {
        key: super::key(key_file)?,
        peers_max: MOST_LOADS,
        peers_per_address_max: MOST_LOADS,
        strangers_max: MOST_LOADS,
        strangers_per_address_max: MOST_LOADS,
        ask_within: LONGEST_LOAD,
        ..ControlSettings::default()
    };
    ControlServer::bind(at, settings, Arc::new(consents)).map_err(Failure::failed)
}

/// A server of connections, which is never flooded.
pub(super) struct Consents {
    /// One of weir's, and who is told when a setting of it is changed.
    of_design: Option<(Weak<Running>, Sender<Event>)>,
}

impl Consents {
    /// Of a program that is not weir's.
    pub(super) fn of_peer() -> Self {
        Self { of_design: None }
    }
}

impl OfControl for Consents {
    fn begin(&self, _: &AgreedRun) -> Result<Vec<u16>, String> {
        Err("this is a TCP server, which cannot be flooded; load it with weir load tcp".into())
    }

    fn start(&self, _: &AgreedRun) {}

    fn quiet_ns(&self, _: &AgreedRun) -> u64 {
        u64::MAX
    }

    fn end(&self, _: &AgreedRun, _: &Ending) -> serde_json::Value {
        serde_json::Value::Null
    }

    fn set(&self, changes: &[(&str, &str)]) -> Result<Vec<InForce>, String> {
        let Some((running, events)) = &self.of_design else {
            return Err("this program has no settings that weir could change".into());
        };
        let running = running.upgrade().ok_or("this server is being stopped")?;
        let before = running.settings();
        let now = running.set(changes).map_err(|error| error.to_string())?;
        if now != before {
            // Nobody listens only when the server ends.
            let _ = events.send(Event::Line(text::in_force(&now)));
        }
        Ok(for_control(now))
    }
}

fn announce(
    args: &ServeTcp,
    running: &Running,
    control: Option<&ControlServer>,
    settings: BTreeMap<String, String>,
) -> Result<(), Failure> {
    let addresses = running.local_addresses().to_vec();
    if args.tell.is_for_programs() {
        let control = control.map(ControlServer::local_address);
        let unix = running.unix_addresses().iter().map(ToString::to_string).collect();
        super::print_ready(wire::Ready { addresses, unix, control, settings }, args.tell)?;
    } else {
        crate::print(&fitted_lines(&text::first_settings(&settings)));
        for address in addresses {
            crate::print(&format!("listens on: {address}\n"));
        }
        for address in running.unix_addresses() {
            crate::print(&format!("listens on: {address}\n"));
        }
        if let Some(control) = control {
            crate::print(&format!("control channel: {}\n", control.local_address()));
        }
    }
    if !args.interval.is_zero() {
        line(args, report::INTERVAL_HEADING);
    }
    Ok(())
}

/// A line for people: on standard output unless documents go there.
fn line(args: &ServeTcp, text: &str) {
    if args.tell.is_for_programs() {
        say!("{text}");
    } else {
        crate::print(&format!("{text}\n"));
    }
}

/// A server that is watched.
struct Watched<'a> {
    args: &'a ServeTcp,
    running: &'a Running,
    sampler: Sampler,
    /// Where the kernel counts the entries into it.
    entries: Option<KernelEntries>,
    began: Instant,
    /// What the kernel held before the server was started.
    held_before: KernelHeld,
    standing: Option<Standing>,
    /// The first mark and the last one.
    marks: Vec<Totals>,
    /// The performance log between the marks.
    recorder: Option<Recorder>,
    /// The log as it was at the last one.
    recorded: Vec<Record>,
    /// What ends it with its first clients, where that is asked for.
    once: Option<Once<'a>>,
}

/// How often a server that ends with its first clients looks whether they have gone, for which there is no event.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long nobody may come and nothing be open until they have: a load may make its connections one after the other.
const QUIET: Duration = Duration::from_secs(1);

/// Whether the first clients of a server have gone.
struct Once<'a> {
    /// Where loads hold the server for as long as they last.
    control: Option<&'a ControlServer>,
    /// Since when there has been no client, after the first.
    quiet_since: Option<(Instant, u64)>,
}

impl Once<'_> {
    /// `accepted` counts connections, of which so many are open.
    fn have_gone(&mut self, accepted: u64, open: u32, now: Instant) -> bool {
        let held = self.control.is_some_and(|control| control.peers() > 0);
        if accepted == 0 || open > 0 || held {
            self.quiet_since = None;
            return false;
        }
        match self.quiet_since {
            Some((since, by_then)) if by_then == accepted => now.duration_since(since) >= QUIET,
            _ => {
                self.quiet_since = Some((now, accepted));
                false
            }
        }
    }
}

/// What the server tells of itself for a performance log.
fn performance(running: &Running) -> Now {
    let threads = running.threads(MOST_THREADS);
    let more_threads = running.thread_ids().len().saturating_sub(threads.len()) as u64;
    let thread = |of: ThreadNow| Thread {
        id: of.id,
        name: format!("weir-tcp-{}", of.index),
        counts: [of.counters.named(), of.calls.named()].concat(),
        batches: Batches::default(),
    };
    Now {
        counts: [running.counters().named(), running.calls().named()].concat(),
        threads: threads.into_iter().map(thread).collect(),
        more_threads,
        settings: running.settings().iter().map(|of| (of.name, of.number)).collect(),
        ..Now::default()
    }
}

impl Watched<'_> {
    /// What whoever started this asks for by a line of the standard input.
    fn asked(&mut self, word: &str) {
        match word {
            STANDING => {
                let process = self.sampler.process();
                let held = KernelHeld::now(&mut self.sampler);
                let (kernel, all) = held.grown_since(&self.held_before);
                self.standing = Some(Standing {
                    open: Some(self.running.open().into()),
                    threads: Some(self.running.thread_ids().len() as u64),
                    resident_bytes: process.resident_bytes,
                    kernel_bytes: Some(all),
                    kernel,
                    ..Standing::default()
                });
            }
            BUFFERS => {
                let standing = self.standing.get_or_insert_default();
                let address = self.running.local_addresses().first();
                let ends = address.and_then(|address| TcpEnds::of_port(address.port()));
                standing.sockets = ends.map(|ends| ends.at_the_port.sockets);
                standing.socket_bytes = ends.map(|ends| ends.at_the_port.bytes);
            }
            MARK => {
                self.marks.truncate(1);
                self.marks.push(Totals::read(self.running, &mut self.sampler));
                self.count_entries();
                self.record();
            }
            _ => {}
        }
    }

    /// Begins the performance log at the first mark, and ends it at the second.
    fn record(&mut self) {
        let Some(recorder) = &mut self.recorder else { return };
        let now = performance(self.running);
        match self.marks.len() {
            1 => recorder.begin(now),
            _ => self.recorded = recorder.end(now),
        }
    }

    /// Puts what the kernel counted in the place of what the server counted itself, at the last mark.
    fn count_entries(&mut self) {
        let (Some(entries), Some(mark)) = (&self.entries, self.marks.last_mut()) else { return };
        let server = self.running.thread_ids();
        // Those who look on do not count; threads that come with connections later do.
        if let Ok(count) = entries.leave_out_all_but(&server).and_then(|()| entries.read()) {
            mark.entries_are(count);
        }
    }

    /// Prints lines until something ends the server.
    fn until_end(
        &mut self,
        before: &Totals,
        log: &mut Option<PerformanceLog>,
        events: &Receiver<Event>,
    ) {
        let every = Some(self.args.interval).filter(|every| !every.is_zero());
        let mut next_line = every.map(|every| Instant::now() + every);
        let (mut then, mut from) = (before.clone(), Duration::ZERO);
        loop {
            // Without lines to print nothing wakes this thread: a server at rest costs nothing.
            let logged = log.as_ref().and_then(PerformanceLog::due);
            let recorded = self.recorder.as_ref().and_then(Recorder::due);
            let looks = self.once.as_ref().map(|_| Instant::now() + LOOK_EVERY);
            let until = next_line.into_iter().chain(logged).chain(recorded).chain(looks).min();
            let event = match until {
                Some(line) => events.recv_timeout(line.saturating_duration_since(Instant::now())),
                None => events.recv().map_err(RecvTimeoutError::from),
            };
            match event {
                Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                Ok(Event::Asked(word)) => self.asked(&word),
                Ok(Event::Line(line)) => self::line(self.args, &line),
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
            }
            if let Some(once) = &mut self.once {
                let accepted = self.running.counters().accepted;
                if once.have_gone(accepted, self.running.open(), Instant::now()) {
                    return;
                }
            }
            if let Some(log) = log {
                log.read_if_due(|| performance(self.running));
            }
            if let Some(recorder) = self.recorder.as_mut().filter(|recorder| recorder.is_due()) {
                recorder.read(performance(self.running));
            }
            if let (Some(every), Some(at)) = (every, next_line)
                && Instant::now() >= at
            {
                let now = Totals::read(self.running, &mut self.sampler);
                let elapsed = self.began.elapsed();
                self::line(self.args, &report::interval(elapsed, &then, &now));
                if self.args.tell.ndjson {
                    let fields = report::fields([from, elapsed], &then, &now);
                    let event = shown::event("interval", fields);
                    super::print_lost(super::print_document(&event));
                }
                (then, from) = (now, elapsed);
                next_line = Some(at + every);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_have_gone_when_all_are_closed_and_nobody_comes_for_a_while() {
        let mut once = Once { control: None, quiet_since: None };
        let began = Instant::now();
        let at = |seconds: f64| began + QUIET.mul_f64(seconds);
        for (seconds, accepted, open, gone) in [
            (0.0, 0, 0, false),
            (9.0, 0, 0, false), // nobody has come
            (10.0, 1, 1, false),
            (11.0, 1, 0, false),
            (11.9, 1, 0, false),
            (12.1, 2, 0, false), // another came and went meanwhile
            (12.2, 3, 1, false),
            (14.0, 3, 0, false),
            (15.0, 3, 0, true),
        ] {
            assert_eq!(once.have_gone(accepted, open, at(seconds)), gone, "at {seconds}");
        }
    }
}
