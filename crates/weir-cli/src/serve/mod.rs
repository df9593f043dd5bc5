//! `weir serve`; and `weir serve udp`, which runs one design until it is told to end, and reports.
//!
//! For a person it prints its settings, a line an interval, and at the end the report of the
//! originals and more. With `--json` it prints two documents, one a line: where it listens,
//! and its report; that is how `weir compare` uses it.

mod account;
mod course;
mod event;
mod handler;
mod hold;
mod metrics;
mod peer;
pub mod performance;
mod ports;
mod rest;
mod tcp;
mod tcp_peer;
mod text;
mod together;
mod unix;
mod watch;
mod window;

use std::collections::BTreeMap;
use std::io::{BufRead as _, Read as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use weir::counters::os::KernelEntries;
use weir::limits::Limits;
use weir::memory::{Commit, NumaNode, PageKind};
use weir::socket::{OFFLOADED_BYTES, PathMtu, ReceiveBuffer, SocketOptions};
use weir::udp::{DEFAULT_PAYLOAD_BYTES, Final, OFFLOADED_OUTSTANDING, Server, Spec};
use weir_lab::udp::plan::{Held, Work};
use weir_lab::wire::{self, SCHEMA_VERSION};
use weir_load::audit::Audit;
use weir_load::control::{ControlServer, ControlSettings, Key};
use weir_load::quantity::{parse_bit_rate, parse_count, parse_rate, parse_size, parse_time};

use crate::cores::{Cores, keep_to};
use crate::exit::{self, Failure};
use crate::interrupts;
use crate::keys;
use crate::shown::{self, TellArgs};
use crate::width::fitted_lines;
use event::Event;
use handler::Reply;
use hold::Hold;
use metrics::{About, MetricsArgs};
use performance::{PerformanceArgs, PerformanceLog};
use ports::{OnProvider, Ports};
use rest::Rest;
use watch::{Now, Watch};

/// What `weir serve` can serve.
#[derive(Debug, Subcommand)]
pub enum Serve {
    /// Run one UDP design: a sink that counts, unless --echo is given.
    Udp(ServeUdp),
    /// Run one TCP design: a sink that counts, unless --echo is given.
    Tcp(tcp::ServeTcp),
    /// Run a program on another library in place of a UDP design, to compare it.
    Peer(peer::ServePeer),
    /// Run any program that echoes TCP in place of a TCP design, to compare it.
    TcpPeer(tcp_peer::ServeTcpPeer),
}

/// What a caller of a UDP server may rely on.
const EXIT_CODES: &str = "Exit codes: 0 success, also when Ctrl-C or a signal ended it; 1 it failed, or was stopped in \
                          the middle of a run; 2 wrong usage; 3 data or counts of a run are wrong, or a run was not \
                          ended by its generator; 5 it cannot run here.";

/// What --json gives of servers: whoever starts one must know where it listens before it ends.
const JSON: &str = "Two JSON documents on stdout, a line each, everything else on stderr: {\"ready\": …} with the \
                    addresses as soon as it listens, and the report at the end. If it cannot begin, one document says \
                    why. --ndjson has the same two as its first and last event";

/// Options of `weir serve udp`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES, mut_arg("json", |arg| arg.help(JSON)))]
pub struct ServeUdp {
    /// Design with its options, as `weir designs` lists them.
    #[arg(long, default_value = "rio-hybrid --threads 1")]
    design: String,

    /// Address and port to receive on; repeatable. Port 0 takes any free one. [::] alone receives IPv4 too (unless
    /// net.ipv6.bindv6only is set); together with an IPv4 address on the same port it leaves IPv4 to that one [default:
    /// 127.0.0.1:8080, where neither --port nor --unix is given].
    #[arg(long)]
    bind: Vec<SocketAddr>,

    /// Port of 127.0.0.1 to receive on, instead of --bind; several with commas.
    #[arg(short, long, value_delimiter = ',', conflicts_with = "bind")]
    port: Vec<u16>,

    /// Path of a Unix socket of datagrams to receive by, besides --bind or --port if they are given; repeatable. The
    /// file is created at the start and removed at the end; one left behind by a server that is gone is replaced. @NAME
    /// is a name of the abstract namespace, by which anybody in the same network namespace may send.
    #[arg(long, value_name = "PATH", value_parser = unix::parse_path)]
    unix: Vec<PathBuf>,

    /// Mode of the files of --unix, in octal, such as 660: whoever may write to them may send [default: as the umask
    /// says].
    #[arg(long, value_name = "MODE", value_parser = unix::parse_mode, requires = "unix")]
    unix_mode: Option<u32>,

    /// Have the kernel count the entries into it, which slows every system call of the machine down: for runs in which
    /// nothing else is measured. It needs root.
    #[arg(long, hide = true)]
    count_entries: bool,

    /// Address and port of the control channel, or a port of 127.0.0.1, over which generators request consent. Consent is bound to the
    /// generator's address, and ends when more arrives than was requested. Where other machines can reach the
    /// channel, --max-pps, --max-bitrate and --max-time are required.
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address)]
    control: Option<SocketAddr>,

    /// Most datagrams per second that all generators together may request (k = 1000); one that wants to flood
    /// as fast as possible is refused, unless this is "any" [default: any].
    #[arg(long, requires = "control", value_parser = parse_most_datagrams)]
    max_pps: Option<Most>,

    /// Most bits of payload per second that all generators together may request (k = 1000), in the same way
    /// [default: any].
    #[arg(long, requires = "control", value_parser = parse_most_bits)]
    max_bitrate: Option<Most>,

    #[arg(long, requires = "control", value_parser = parse_limit, help = format!(
        "The longest flood that a generator may request, warm-up included [default: {:?}]",
        ControlSettings::default().duration_max
    ))]
    max_time: Option<Duration>,

    /// File with a key of 16 bytes or more: only generators that have the same one are accepted. Without this
    /// option it may be in the environment variable WEIR_KEY. What follows on the control channel is not
    /// encrypted.
    #[arg(long, requires = "control")]
    key_file: Option<PathBuf>,

    /// Cores to run on: 0 or 2,3 or 4-7.
    #[arg(long)]
    cpu: Option<Cores>,

    /// Longest datagram received whole, in bytes (k = 1024).
    #[arg(long, default_value_t = DEFAULT_PAYLOAD_BYTES, value_parser = parse_size)]
    size: usize,

    /// Work per datagram: this many steps plus one of a pseudo-random generator; shared:500 runs them on
    /// state that all threads share under a lock.
    #[arg(long, default_value_t)]
    work: Work,

    /// Receive buffer of each socket: outstanding, which is room for as many datagrams as the design has receives
    /// outstanding, as far as the system grants it; system, which is its default; or bytes to request (k = 1024). On
    /// frames (AF_XDP) it says how many slices the kernel is given ahead.
    #[arg(long, default_value_t, value_parser = parse_receive_buffer)]
    rcvbuf: ReceiveBuffer,

    /// Stop every thread at its first datagram of each run, for a time, such as 10ms, or until the generator has sent
    /// everything ("sent"). It shows how much of a burst the server receives.
    #[arg(long, requires = "control")]
    hold: Option<Held>,

    #[arg(long, help = format!(
        "Receive several datagrams of one sender and one size as one (UDP_GRO): in slices of {OFFLOADED_BYTES} bytes, \
         of which {OFFLOADED_OUTSTANDING} are outstanding where a design has its default. Where several are dropped \
         together, the system counts one drop"
    ))]
    receive_offload: bool,

    /// Send each answer by itself. Otherwise several answers to one client leave as one (UDP_SEGMENT), where the
    /// design sends batches: the client receives the same datagrams, and they cost less.
    #[arg(long)]
    no_send_offload: bool,

    /// Poll the queue of the network device for this long before a receive sleeps, such as 50us; may need
    /// CAP_NET_ADMIN. The report says which queues were polled: on loopback there is none.
    #[arg(long, value_parser = parse_time)]
    busy_poll: Option<Duration>,

    /// Pages of the memory: auto, normal, or huge if available.
    #[arg(long, value_parser = parse_pages)]
    pages: Option<PageKind>,

    /// NUMA node of the memory: its number, or auto.
    #[arg(long, value_parser = parse_numa_node)]
    numa_node: Option<NumaNode>,

    /// When the pages of the memory are allocated. locked: all at the start, and locked where that is permitted; but
    /// as with touched if they would take more than an eighth of the memory that is left. touched: each when it is
    /// first used [default: locked].
    #[arg(long, value_parser = parse_commit)]
    commit: Option<Commit>,

    /// Send every datagram back to its source, from the address that it was sent to, but never to this server
    /// itself or to services that answer anything (echo, chargen and the like). Of identical replies to one
    /// source, some are dropped (the 129th, then increasingly rarely), which ends loops between echo servers;
    /// these count as loops dropped.
    #[arg(long)]
    echo: bool,

    /// Answer with this many bytes of the beginning of a datagram, instead of all of it (k = 1024).
    #[arg(long, requires = "echo", value_parser = parse_size)]
    reply_size: Option<usize>,

    /// Traffic class of replies: six bits of differentiated services and two of congestion, as 184 or 0xb8 (IP_TOS,
    /// IPV6_TCLASS) [default: the system's].
    #[arg(short = 'S', long, requires = "echo", value_name = "CLASS", value_parser = parse_class)]
    tos: Option<u8>,

    /// Hops that replies may take, 1 to 255 (IP_TTL, IPV6_UNICAST_HOPS) [default: the system's].
    #[arg(long, requires = "echo", value_name = "HOPS", value_parser = clap::value_parser!(u8).range(1..))]
    ttl: Option<u8>,

    /// What to do with replies longer than the MTU of their path: system (what the system does), fragment, discover
    /// (send no fragments (DF), and learn the MTU), or probe (the same without learning).
    #[arg(long, requires = "echo", default_value = "system", value_parser = parse_path_mtu)]
    path_mtu: PathMtu,

    /// Receive what is sent to this multicast group, through the device with this index (see `ip link`; without one the
    /// system chooses). --bind must be a wildcard address, or the group's own. Repeatable.
    #[arg(long, value_name = "GROUP[%INDEX]", value_parser = parse_group)]
    join: Vec<(IpAddr, u32)>,

    /// Report and count replies that failed on their way (ICMP).
    #[arg(long, requires = "echo")]
    peer_errors: bool,

    /// Most replies per second with --echo (k = 1000), or "any".
    #[arg(long, default_value = "100k", value_parser = parse_replies)]
    replies_per_s: Most,

    /// Interval of progress lines, at least 10 ms; 0 for none.
    #[arg(short, long, default_value = "1s", value_parser = crate::interval::parse)]
    interval: Duration,

    /// Receive the datagrams to every port of a device's addresses (--on), and show who sends to which port, with
    /// Ethernet address: a table at each interval, and one at the end. With AF_XDP no other program gets these
    /// datagrams. Where AF_XDP is not allowed, AF_PACKET gives copies: the kernel handles the same datagrams, too,
    /// and answers those that nobody receives with an ICMP error. The output says which of the two is used, and why.
    #[arg(long, requires = "on", conflicts_with_all = ["echo", "control", "bind", "port", "unix", "receive_offload"])]
    any_port: bool,

    /// The device at whose addresses to receive, such as eth0; link-local addresses of IPv6 are left out.
    #[arg(long, value_name = "DEVICE", requires = "any_port")]
    on: Option<String>,

    /// How the datagrams to every port are received: xdp (AF_XDP; CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF) or packet
    /// (AF_PACKET; CAP_NET_RAW) [default: the first that can be used here].
    #[arg(long, requires = "any_port", value_parser = ports::parse_provider)]
    provider: Option<weir::rio::Choice>,

    /// Rows of the tables: the senders and ports with the most datagrams. At most 256 are kept; when there are as
    /// many, a new one takes the place of the one with the fewest.
    #[arg(
        long, default_value_t = 10, requires = "any_port",
        value_parser = clap::value_parser!(u16).range(1..=ports::ENTRIES as i64)
    )]
    top: u16,

    /// Also print each datagram: time since the start in seconds, Ethernet address, source and destination, length and
    /// beginning; at most so many a second [default: 20]. The others are counted.
    #[arg(
        long, value_name = "PER_SECOND", requires = "any_port", num_args = 0..=1,
        require_equals = true, default_missing_value = "20",
        value_parser = clap::value_parser!(u32).range(1..=1000)
    )]
    print: Option<u32>,

    /// End after the first run of a generator.
    #[arg(short = '1', long, visible_alias = "one-off", requires = "control")]
    once: bool,

    /// Take the runs of so many generators, which begin together, for one: it begins when all have started, is over when
    /// all have ended, and has one report, whose window is the time in which datagrams of all came.
    #[arg(long, hide = true, value_name = "GENERATORS", requires = "control", value_parser = parse_together)]
    runs_together: Option<u16>,

    /// End when the standard input ends.
    #[arg(long)]
    end_with_input: bool,

    /// Verify every byte of every datagram instead of samples.
    #[arg(long)]
    verify_all: bool,

    /// Accept generators of another build.
    #[arg(long)]
    any_build: bool,

    #[command(flatten)]
    metrics: MetricsArgs,

    #[command(flatten)]
    performance: PerformanceArgs,

    #[command(flatten)]
    tell: TellArgs,
}

/// The highest rate that is permitted.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Most {
    Any,
    PerSecond(f64),
}

impl Most {
    fn per_second(self) -> Option<f64> {
        match self {
            Self::Any => None,
            Self::PerSecond(rate) => Some(rate),
        }
    }
}

fn parse_most(text: &str, rate: fn(&str) -> Result<f64, String>) -> Result<Most, String> {
    if text == "any" { Ok(Most::Any) } else { rate(text).map(Most::PerSecond) }
}

fn parse_most_datagrams(text: &str) -> Result<Most, String> {
    parse_most(text, parse_rate)
}

fn parse_most_bits(text: &str) -> Result<Most, String> {
    parse_most(text, parse_bit_rate)
}

fn parse_replies(text: &str) -> Result<Most, String> {
    parse_most(text, |text| parse_count(text).map(|count| count as f64))
}

/// An address with a port, or a port of 127.0.0.1.
pub fn parse_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse::<u16>() {
        return Ok((Ipv4Addr::LOCALHOST, port).into());
    }
    text.parse().map_err(|_| {
        "give a port, or an address with a port such as 127.0.0.1:5200 or [::1]:5200".to_owned()
    })
}

/// What a server answers.
fn reply(args: &ServeUdp) -> Option<Reply> {
    args.echo.then(|| args.reply_size.map_or(Reply::Whole, Reply::Beginning))
}

/// What it may answer.
fn limits(args: &ServeUdp) -> Limits {
    match (args.echo, args.replies_per_s) {
        (false, _) => Limits::SINK,
        (true, Most::PerSecond(rate)) => Limits::echo(rate as u64),
        (true, Most::Any) => Limits::echo(0).replies_per_s(None),
    }
}

/// The key that generators must have, if one is given.
fn key(file: Option<&Path>) -> Result<Option<Key>, Failure> {
    keys::find("serve", file).map_err(Failure::usage)
}

fn parse_limit(text: &str) -> Result<Duration, String> {
    match parse_time(text)? {
        limit if limit.is_zero() => Err("a limit of 0 permits nothing; give a longer time".into()),
        limit => Ok(limit),
    }
}

fn parse_pages(text: &str) -> Result<PageKind, String> {
    text.parse().map_err(|()| "use auto, normal or huge".into())
}

/// Reads a traffic class, in decimal or in hexadecimal digits.
fn parse_class(text: &str) -> Result<u8, String> {
    let class = match text.strip_prefix("0x") {
        Some(digits) => u8::from_str_radix(digits, 16),
        None => text.parse(),
    };
    class.map_err(|_| "use 0 to 255, or 0x00 to 0xff".into())
}

fn parse_path_mtu(text: &str) -> Result<PathMtu, String> {
    text.parse().map_err(|()| "use system, fragment, discover or probe".into())
}

/// Reads a group, and the index of a device.
fn parse_group(text: &str) -> Result<(IpAddr, u32), String> {
    let (group, index) = text.split_once('%').unwrap_or((text, "0"));
    let group = group.parse().ok().filter(IpAddr::is_multicast);
    group.zip(index.parse().ok()).ok_or_else(|| {
        "use the address of a group, 224.0.0.0/4 or ff00::/8, and perhaps a device's index behind it, as in \
         239.1.2.3%2"
            .into()
    })
}

fn parse_commit(text: &str) -> Result<Commit, String> {
    text.parse().map_err(|()| "use locked or touched".into())
}

/// Reads the size of a receive buffer.
pub fn parse_receive_buffer(text: &str) -> Result<ReceiveBuffer, String> {
    match text {
        "outstanding" => Ok(ReceiveBuffer::Outstanding),
        "system" => Ok(ReceiveBuffer::System),
        _ => parse_size(text)
            .map(ReceiveBuffer::Bytes)
            .map_err(|problem| format!("{problem}; or use outstanding, or system")),
    }
}

fn parse_numa_node(text: &str) -> Result<NumaNode, String> {
    text.parse().map_err(|_| "use auto or the number of a node".into())
}

/// How often counters are read during a run, for the measured window.
const READ_EVERY: Duration = Duration::from_millis(20);
/// How often they are read at other times, while anything comes, and how often a server of another program is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How long a generator may take to fetch its report and hang up.
const REPORT_FETCHED_WITHIN: Duration = Duration::from_secs(2);
/// How often that is looked at.
const FETCHED_EVERY: Duration = Duration::from_millis(2);

/// Longest line of the standard input that is listened to.
const LONGEST_WORD_BYTES: u64 = 64;

/// Runs `weir serve`.
pub fn run(serve: &Serve) -> ExitCode {
    let json = |json| TellArgs { json, ..TellArgs::default() };
    let (name, tell, outcome) = match serve {
        Serve::Udp(args) => ("udp", args.tell, serve_udp(args)),
        Serve::Tcp(args) => ("tcp", args.tell, tcp::serve(args)),
        Serve::Peer(args) => ("peer", json(args.json), peer::serve(args)),
        Serve::TcpPeer(args) => ("tcp-peer", json(args.json), tcp_peer::serve(args)),
    };
    let code = match outcome {
        Ok(code) => code,
        Err(failure) => {
            if tell.is_for_programs() {
                let document = failure_document(&failure);
                let last = if tell.ndjson { shown::event("end", document) } else { document };
                crate::print(&format!("{last}\n"));
            }
            say!("weir serve {name}: {}", failure.message);
            failure.code
        }
    };
    ExitCode::from(code)
}

/// The document of a server that did not come to its report. One line, for whoever started it
/// reads line by line.
pub fn failure_document(failure: &Failure) -> serde_json::Value {
    let unavailable = failure.code == exit::UNAVAILABLE;
    let error = wire::Failure { unavailable, message: failure.message.clone() };
    serde_json::json!({
        "schema_version": SCHEMA_VERSION,
        "command": crate::arguments(),
        "status": if unavailable { "unavailable" } else { "failed" },
        "reason": failure.message,
        "error": error,
    })
}

/// Prints what a command found for whoever started it, or the document of its failure; the exit code says which.
pub fn print_found<T: serde::Serialize, E: Into<Failure>>(found: Result<T, E>) -> ExitCode {
    let (document, code) = match found {
        Ok(found) => (serde_json::json!(found), exit::OK),
        Err(error) => {
            let failure = error.into();
            (failure_document(&failure), failure.code)
        }
    };
    crate::print(&format!("{document}\n"));
    ExitCode::from(code)
}

fn serve_udp(args: &ServeUdp) -> Result<u8, Failure> {
    let permission = Permission {
        control: args.control,
        key_file: args.key_file.as_deref(),
        any_build: args.any_build,
        datagrams: args.max_pps,
        bits: args.max_bitrate,
        longest: args.max_time,
        together: args.runs_together,
    };
    let control_settings = permission.on_control()?;
    let listener = metrics::open(&args.metrics, args.cpu.as_ref())?;
    let mut log = args.performance.open()?;
    // Before any thread is started: threads inherit it on Linux.
    let unbound = args.cpu.as_ref().map(|cores| keep_to("serve udp", cores)).transpose()?.flatten();
    let (sender, events) = channel();
    let audit = Audit::new();
    let Begun { watch, design, ports, on_provider } = begin(args, &audit, &sender)?;
    let control = match args.control {
        Some(address) => Some(
            ControlServer::bind(address, control_settings, Arc::clone(&watch) as _)
                .map_err(Failure::failed)?,
        ),
        None => None,
    };
    stop_on_request(args.end_with_input, &sender)?;
    let mut settings = watch.settings();
    settings.extend(on_provider.as_ref().map(|on| ("any-port".to_owned(), on.said.clone())));
    settings.extend(unbound.map(|why| ("cpu".to_owned(), why)));
    settings.extend(listener.as_ref().map(|listener| ("metrics".to_owned(), listener.url())));
    let spec = on_provider.as_ref().map_or(&args.design, |on| &on.design);
    let about = About::of(&design, spec, &settings);
    let watched = Arc::clone(&watch);
    let pages = metrics::udp::pages(about, move || watched.scraped());
    let endpoint = listener.map(|listener| listener.answer(pages)).transpose()?;
    announce(args, &watch, &settings, control.as_ref())?;
    if let Some(log) = &mut log {
        log.begin(watch.performance());
    }
    watch_until_end(args, &watch, &mut log, &events, ports.as_deref());
    let logged = log.map_or(Ok(()), |log| log.end(watch.performance()));
    // A server that is stopped has no counters: they would seem to begin anew.
    drop(endpoint);
    if let Some(control) = &control {
        let deadline = Instant::now() + REPORT_FETCHED_WITHIN;
        // The generator hangs up once it has its report; there is no event for that.
        while args.once && control.peers() > 0 && Instant::now() < deadline {
            std::thread::sleep(FETCHED_EVERY);
        }
    }
    drop(control);
    // What could not be logged is told once everything else was.
    conclude(args, &watch, &design, ports.as_deref()).and_then(|code| logged.map(|()| code))
}

/// A server that was started.
struct Begun {
    watch: Arc<Watch>,
    /// The name of its design.
    design: String,
    /// Who sends to which port, where it receives the datagrams to all.
    ports: Option<Arc<Ports>>,
    on_provider: Option<OnProvider>,
}

/// Starts the server: on the first provider that can be used, where it receives the datagrams to every port.
fn begin(args: &ServeUdp, audit: &Arc<Audit>, events: &Sender<Event>) -> Result<Begun, Failure> {
    let Some(device) = &args.on else {
        unix::check(&args.unix, args.unix_mode, "send")?;
        let mut bind = bound(&args.bind, &args.port);
        if bind.is_empty() && args.unix.is_empty() {
            bind.push(USUAL_ADDRESS);
        }
        let started = start(args, &args.design, &bind, None, audit, events);
        let (watch, design) = started?;
        return Ok(Begun { watch, design, ports: None, on_provider: None });
    };
    let addresses = ports::addresses(device)?;
    let ports = Ports::new(addresses.len(), args.top.into(), args.print);
    let ((watch, design), on_provider) =
        ports::start_on_first(&args.design, args.provider, |design| {
            start(args, design, &addresses, Some(&ports), audit, events)
        })?;
    Ok(Begun { watch, design, ports: Some(ports), on_provider: Some(on_provider) })
}

/// Where a server of UDP receives of which nothing is said.
pub const USUAL_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);

/// The addresses of --bind, or those that -p stands for.
fn bound(bind: &[SocketAddr], ports: &[u16]) -> Vec<SocketAddr> {
    if ports.is_empty() {
        return bind.to_vec();
    }
    ports.iter().map(|port| (Ipv4Addr::LOCALHOST, *port).into()).collect()
}

/// Starts the server. Gives also the name of its design.
fn start(
    args: &ServeUdp,
    design: &str,
    bind: &[SocketAddr],
    ports: Option<&Arc<Ports>>,
    audit: &Arc<Audit>,
    events: &Sender<Event>,
) -> Result<(Arc<Watch>, String), weir::Error> {
    let Spec { design, region } = Spec::parse(design)?;
    let name = design.about().name.to_owned();
    design.availability()?;
    let none = || weir::Error::option("bind", "no address to receive on");
    let (mut addresses, mut paths) = (bind.iter().copied(), args.unix.iter());
    let server = match addresses.next() {
        Some(address) => Server::bind(address),
        None => Server::bind_unix(paths.next().ok_or_else(none)?),
    };
    let mut server = server
        .payload_bytes(args.size)
        .region_options(
            region
                .pages(args.pages.unwrap_or(region.pages))
                .numa_node(args.numa_node.unwrap_or(region.numa_node))
                .commit(args.commit.unwrap_or(region.commit)),
        )
        .socket_options(
            SocketOptions::default()
                .receive_buffer(args.rcvbuf)
                // With one address there is nothing to choose, and nothing to pay for it.
                .local_address(
                    (args.echo && bind.iter().any(|at| at.ip().is_unspecified()))
                        || ports.is_some(),
                )
                .receive_offload(args.receive_offload)
                .send_offload(!args.no_send_offload)
                .busy_poll(args.busy_poll)
                .peer_errors(args.peer_errors)
                .traffic_class(args.tos)
                .hops(args.ttl)
                .path_mtu(args.path_mtu),
        )
        .give_up_privilege(true)
        .limits(limits(args));
    server = addresses.fold(server, Server::and_bind);
    server = paths.fold(server, Server::and_bind_unix);
    if let Some(mode) = args.unix_mode {
        server = server.unix_mode(mode);
    }
    for (group, interface) in &args.join {
        server = server.join(*group, *interface);
    }
    let of_handlers = Arc::clone(audit);
    let hold = args.hold.map(|held| Arc::new(Hold::new(held)));
    let of_hold = hold.clone();
    let of_ports = ports.cloned().map(|ports| (ports, events.clone()));
    let rest = Rest::new(events.clone());
    let recorders = move || of_ports.as_ref().map(|(ports, events)| ports.recorder(events));
    let handlers = handler::handlers(
        move || of_handlers.auditor(),
        args.work,
        reply(args),
        of_hold,
        recorders,
        rest.clone(),
    );
    // With the privilege that is given up below.
    let entries = args.count_entries.then(KernelEntries::begin).transpose();
    let entries = entries?;
    let running = server.start(design, handlers)?;
    // Threads that are started from here on have none either.
    weir::privilege::give_up().map_err(|error| weir::Error::io("giving up privilege", error))?;
    let audit = Arc::clone(audit);
    let watch = Watch::new(running, name.clone(), audit, args.verify_all, events.clone(), rest)
        .counting(entries)
        .answering(reply(args))
        .recording(args.performance.recorder())
        .holding(hold)
        .together(args.runs_together.unwrap_or(1).into());
    Ok((Arc::new(watch), name))
}

/// What generators may ask for.
struct Permission<'a> {
    control: Option<SocketAddr>,
    key_file: Option<&'a Path>,
    any_build: bool,
    datagrams: Option<Most>,
    bits: Option<Most>,
    longest: Option<Duration>,
    together: Option<u16>,
}

impl Permission<'_> {
    /// The settings of the control channel. Where others than this machine can ask, somebody must have said how much.
    fn on_control(&self) -> Result<ControlSettings, Failure> {
        let Self { control, datagrams, bits, longest, .. } = *self;
        let unlimited = datagrams.is_none() || bits.is_none() || longest.is_none();
        let outside = control.filter(|address| !address.ip().to_canonical().is_loopback());
        if let (Some(address), true) = (outside, unlimited) {
            return Err(Failure::usage(format!(
                "other machines can reach the control channel at {address}, so what they may send \
                 must be limited: give --max-pps, --max-bitrate and --max-time, such as --max-pps \
                 100k --max-bitrate 1G --max-time 60, or a loopback address"
            )));
        }
        let default = ControlSettings { any_build: self.any_build, ..ControlSettings::default() };
        let together = self.together.unwrap_or(1).into();
        Ok(ControlSettings {
            peers_max: default.peers_max.max(together),
            peers_per_address_max: default.peers_per_address_max.max(together),
            strangers_max: default.strangers_max.max(together),
            strangers_per_address_max: default.strangers_per_address_max.max(together),
            key: control.map(|_| key(self.key_file)).transpose()?.flatten(),
            bits_per_s_max: bits.and_then(Most::per_second),
            datagrams_per_s_max: datagrams.and_then(Most::per_second),
            duration_max: longest.unwrap_or(default.duration_max),
            ..default
        })
    }
}

/// Runs of generators that are taken for one.
fn parse_together(text: &str) -> Result<u16, String> {
    match text.parse() {
        Ok(number @ 1..=RUNS_MAX) => Ok(number),
        _ => Err(format!("{text} is not allowed; allowed: 1 to {RUNS_MAX}")),
    }
}

/// As many as can be told apart.
const RUNS_MAX: u16 = weir_load::audit::RUNS_MAX as u16;

/// Ctrl-C or a signal, and where asked for the end of the input, end the server with its report; the second
/// Ctrl-C ends everything.
fn stop_on_request(end_with_input: bool, events: &Sender<Event>) -> Result<(), Failure> {
    let sender = events.clone();
    interrupts::heed(move || drop(sender.send(Event::Stop)))?;
    if end_with_input {
        let sender = events.clone();
        std::thread::spawn(move || {
            let mut input = std::io::stdin().lock();
            let mut line = Vec::new();
            let mut next = |line: &mut Vec<u8>| {
                line.clear();
                input.by_ref().take(LONGEST_WORD_BYTES).read_until(b'\n', line)
            };
            while next(&mut line).is_ok_and(|n| n > 0) {
                let word = String::from_utf8_lossy(&line).trim().to_owned();
                let _ = sender.send(Event::Asked(word));
            }
            let _ = sender.send(Event::Stop);
        });
    }
    Ok(())
}

fn announce(
    args: &ServeUdp,
    watch: &Watch,
    settings: &BTreeMap<String, String>,
    control: Option<&ControlServer>,
) -> Result<(), Failure> {
    let control = control.map(ControlServer::local_address);
    if args.tell.is_for_programs() {
        let (addresses, settings) = (watch.addresses().to_vec(), settings.clone());
        let unix = watch.unix_addresses().to_vec();
        print_ready(wire::Ready { addresses, unix, control, settings }, args.tell)?;
    } else {
        announce_in_words(args, watch, settings, control);
    }
    if !args.interval.is_zero() {
        line(args, text::INTERVAL_HEADING);
    }
    Ok(())
}

fn announce_in_words(
    args: &ServeUdp,
    watch: &Watch,
    settings: &BTreeMap<String, String>,
    control: Option<SocketAddr>,
) {
    crate::print(&fitted_lines(&text::first_settings(settings)));
    for address in watch.addresses() {
        crate::print(&format!("receives on: {address}\n"));
    }
    for address in watch.unix_addresses() {
        crate::print(&format!("receives on: {address}\n"));
    }
    if let Some(control) = control {
        let most = |most: Option<Most>, what| {
            let most = most.and_then(Most::per_second);
            most.map_or(String::new(), |rate| format!(", at most {rate} {what}"))
        };
        let datagrams = most(args.max_pps, "datagrams/s");
        let bits = most(args.max_bitrate, "bits of payload/s");
        let longest = args.max_time.map_or(String::new(), |time| format!(", at most {time:?}"));
        let line = format!("control channel: {control}{datagrams}{bits}{longest}\n");
        crate::print(&fitted_lines(&line));
    }
}

/// Takes readings and prints lines until something ends the server.
fn watch_until_end(
    args: &ServeUdp,
    watch: &Watch,
    log: &mut Option<PerformanceLog>,
    events: &Receiver<Event>,
    ports: Option<&Ports>,
) {
    let every = (!args.interval.is_zero()).then_some(args.interval);
    let mut then = Now::ZERO;
    let mut next_line = every.map(|every| Instant::now() + every);
    // None while nothing comes.
    let mut next_read = Some(Instant::now() + LOOK_EVERY);
    loop {
        let is_on = watch.has_active_run();
        let pause = if is_on { READ_EVERY } else { LOOK_EVERY };
        // A run that began since asks for the next reading sooner.
        if is_on || next_read.is_some() {
            let soon = Instant::now() + pause;
            next_read = Some(next_read.map_or(soon, |read| read.min(soon)));
        }
        let logged = log.as_ref().and_then(PerformanceLog::due);
        let event = match [next_read, next_line, logged].into_iter().flatten().min() {
            Some(until) => events.recv_timeout(until.saturating_duration_since(Instant::now())),
            None => events.recv().map_err(RecvTimeoutError::from),
        };
        match event {
            Ok(Event::Stop) => return,
            Ok(Event::RunEnded) if args.once => return,
            // What comes after silence is measured from its first datagrams on.
            Ok(Event::Came) => next_read = Some(Instant::now()),
            Ok(Event::RunBegan | Event::RunEnded | Event::Asked(_)) => {}
            Ok(Event::Note(note)) => say!("{note}"),
            Ok(Event::Line(text)) => line(args, &text),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        // By the clock and not on a timeout: a stream of notes must not put readings off.
        if next_read.is_some_and(|read| Instant::now() >= read) {
            let may_rest = !watch.read() && watch.may_rest();
            next_read = (!may_rest).then(|| Instant::now() + pause);
        }
        if let Some(log) = log {
            log.read_if_due(|| watch.performance());
        }
        if let (Some(every), Some(at)) = (every, next_line)
            && Instant::now() >= at
        {
            let now = watch.now();
            line(args, &text::interval(&then, &now));
            if args.tell.ndjson {
                print_lost(print_document(&shown::event("interval", text::fields(&then, &now))));
            }
            if let Some(settings) = watch.changed() {
                line(args, &text::in_force(&settings));
            }
            let table = ports.map(Ports::interval).unwrap_or_default();
            if !table.is_empty() {
                line(args, table.trim_end());
            }
            then = now;
            next_line = Some(at + every);
        }
    }
}

/// Stops the server and prints its report. Gives the exit code: data errors if a run's data
/// were wrong, if a generator went away without a word, so that its counts are open, or if the
/// kernel kept slices; failed if nothing was wrong but that whoever stopped it cut a run off.
fn conclude(
    args: &ServeUdp,
    watch: &Watch,
    design: &str,
    ports: Option<&Ports>,
) -> Result<u8, Failure> {
    let mut report = watch.report();
    if let Some(server) = watch.take_server() {
        let Final { slices, failure, threads, .. } = server.stop();
        if report.runs == 0 {
            // It is of the server's whole life: what its threads counted is so until their end. What the system
            // counted is so until the stop, since to give memory back is no service.
            let counted: Vec<_> = threads.iter().map(|thread| thread.counters.clone()).collect();
            report.audit.received = account::put_counts(&mut report, &counted).datagrams;
        }
        let usage: Vec<_> = threads.iter().map(|thread| thread.usage).collect();
        account::add_usage(&mut report.threads, &usage);
        report.slices_missing = slices.missing;
        if slices.missing > 0 {
            say!(
                "weir serve udp: {} of {} slices did not come back from the kernel",
                slices.missing,
                slices.made
            );
        }
        if let Some(error) = failure {
            if !args.tell.is_for_programs() {
                crate::print(&fitted_lines(&text::report(&report, args.work)));
            }
            let mut failure = Failure::from(error);
            failure.message = format!("{design} stopped with an error: {}", failure.message);
            return Err(failure);
        }
    }
    let wrong = watch.has_wrong_runs() || report.slices_missing > 0;
    let end = End::of(wrong, watch.was_stopped_in_a_run());
    match (args.tell.is_for_programs(), ports.map(Ports::report)) {
        (true, any_port) => {
            let any_port = any_port.map(|(_, any_port)| any_port);
            print_ended(&Concluded { report: &report, any_port }, end, args.tell)?;
        }
        (false, any_port) => {
            let (table, _) = any_port.unzip();
            let text = text::report(&report, args.work);
            let details = text::details(&report.settings, args.tell);
            let text = fitted_lines(&format!("{text}{details}"));
            crate::print_report(&format!("{}{text}", table.unwrap_or_default()))?;
        }
    }
    Ok(end.code("udp"))
}

/// The document at the end.
#[derive(serde::Serialize)]
struct Concluded<'a> {
    #[serde(flatten)]
    report: &'a wire::ServerReport,
    /// Who sent to which port, where it received the datagrams to all.
    #[serde(skip_serializing_if = "Option::is_none")]
    any_port: Option<ports::Report>,
}

/// How a server of UDP that gave its report ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Ok,
    /// The data or the counts of a run are wrong, or slices are missing.
    Wrong,
    /// It was stopped in the middle of a run.
    Stopped,
}

impl End {
    fn of(wrong: bool, stopped_in_a_run: bool) -> Self {
        match (wrong, stopped_in_a_run) {
            (true, _) => Self::Wrong,
            (false, true) => Self::Stopped,
            (false, false) => Self::Ok,
        }
    }

    fn status(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Wrong => "invalid",
            Self::Stopped => "failed",
        }
    }

    fn reason(self) -> Option<&'static str> {
        match self {
            Self::Ok => None,
            Self::Wrong => Some(
                "the data or the counts of a run are wrong, its generator went away without ending it, or slices did \
                 not come back",
            ),
            Self::Stopped => {
                Some("it was stopped in the middle of a run, so how much was sent is not known")
            }
        }
    }

    /// The exit code; that it was stopped is said, too.
    fn code(self, name: &str) -> u8 {
        match self {
            Self::Ok => exit::OK,
            Self::Wrong => exit::DATA_ERRORS,
            Self::Stopped => {
                say!("weir serve {name}: {}", self.reason().unwrap_or_default());
                exit::FAILED
            }
        }
    }
}

/// Prints the last document of a server of UDP.
fn print_ended(report: &impl serde::Serialize, end: End, tell: TellArgs) -> Result<(), Failure> {
    print_last(report, end.status(), end.reason(), tell)
}

/// Prints the last document of a server of TCP, and why it failed, if it did.
fn print_concluded(
    report: &impl serde::Serialize,
    failure: Option<&str>,
    tell: TellArgs,
) -> Result<(), Failure> {
    print_last(report, if failure.is_some() { "failed" } else { "ok" }, failure, tell)
}

/// Prints where a server listens.
fn print_ready(ready: wire::Ready, tell: TellArgs) -> Result<(), Failure> {
    let line = wire::ReadyLine::new(ready);
    if !tell.ndjson {
        return print_document(&line);
    }
    let fields = serde_json::to_value(&line).map_err(Failure::failed)?;
    print_document(&shown::event("begin", fields))
}

/// Says that an interval was lost, which is no reason to end.
fn print_lost(printed: Result<(), Failure>) {
    if let Err(failure) = printed {
        say!("weir serve: {}", failure.message);
    }
}

/// Prints the last document: a report, and what all documents have.
fn print_last(
    report: &impl serde::Serialize,
    status: &str,
    reason: Option<&str>,
    tell: TellArgs,
) -> Result<(), Failure> {
    #[derive(serde::Serialize)]
    struct Last<'a, R> {
        #[serde(skip_serializing_if = "Option::is_none")]
        event: Option<&'a str>,
        schema_version: u32,
        command: Vec<String>,
        status: &'a str,
        reason: Option<&'a str>,
        #[serde(flatten)]
        report: &'a R,
    }
    let event = tell.ndjson.then_some("end");
    let (schema_version, command) = (SCHEMA_VERSION, crate::arguments());
    print_document(&Last { event, schema_version, command, status, reason, report })
}

/// A line for people: on standard output unless documents go there.
fn line(args: &ServeUdp, text: &str) {
    if args.tell.is_for_programs() {
        say!("{text}");
    } else {
        crate::print(&format!("{text}\n"));
    }
}

/// Prints a document for whoever reads line by line.
fn print_document(document: &impl serde::Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(document).map_err(Failure::failed)?;
    crate::print_report(&format!("{text}\n"))
}
