//! `weir load tcp`: connections to a server, and messages on them.

mod parts;
mod show;

use std::{
    net::SocketAddr, path::PathBuf, process::ExitCode, str::FromStr, sync::Arc, time::Duration,
};

use clap::{Subcommand, ValueEnum};
use weir_load::{
    Stop,
    flood::random_run,
    quantity::{parse_count, parse_rate, parse_size, parse_time},
    tcp::{self, FileBy, LoadError, LoadReport, LoadSpec, Pace, Share, Sizes},
};

use crate::{
    cores::{Cores, permitted},
    exit::{FAILED, OK, UNAVAILABLE, USAGE, text_of_error},
    flood::{Usage, heed_interrupts, resolve},
    shown::{self, Shown},
};

/// The server's port if nothing is said.
const PORT: u16 = 5150;
/// How long a load lasts if nothing else is said.
const DURATION: Duration = Duration::from_secs(10);
/// The same if a number of messages is given: it ends then, but no later than this.
const DURATION_OF_A_NUMBER: Duration = Duration::from_secs(600);
/// How long connecting may take in all, for one connection and for each further one.
const SETUP: (Duration, Duration) = (Duration::from_secs(120), Duration::from_micros(500));
/// How long is waited at the end, in the same way: half a million connections do not end in an instant.
const DRAIN: (Duration, Duration) = (Duration::from_secs(5), Duration::from_micros(100));

/// What `weir load` can load.
#[derive(Debug, Subcommand)]
pub enum Load {
    Tcp(LoadTcp),
}

/// What letters mean that the client of the original models and iperf3 both have.
const LETTERS: &str = "\
Letters: -c, -b, -r, -x and -o are those of the client of the six classic models: connections of \
each block, bytes of a message, bytes per second of each block, messages of each connection, and \
messages under way. -p, -t, -l, -P, -F, -i, -O and -J are iperf3's, and win where both have one: -t is \
the time, and the original's -t, a file to send, is -F. -l is the same as -b, and -P as -c; -b is no \
bit rate.

A file is sent by sendfile(2), as iperf3 does it with -Z: its bytes are not copied here. MSG_ZEROCOPY \
would spare no more, since on loopback the kernel copies such bytes all the same.

Held connections: -c 500k --every 60s sends one message a minute on each of half a million; processes \
and addresses follow from the number.

Exit codes: 0 success; 1 it failed, as where nobody listens, or connections were not made, or were \
refused, broken off, ended early or left without an answer; 2 wrong usage; 3 bytes were wrong or lost; 5 \
it cannot run here.";

/// Load a TCP server with connections, in blocks, and verify every byte that it sends back.
///
/// The server echoes, unless --one-way is given; any echo server will do. Only loopback addresses are
/// loaded. From 10,000 connections on, or where ports run out, further addresses of 127.0.0.0/8 are
/// taken. Counts and rates: k = 1000. Sizes: k = 1024. Times: us, ms, s, m, h.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = LETTERS)]
pub struct LoadTcp {
    /// Address or name of the server, alone or with its port: 127.0.0.1, [::1]:5150, localhost:5150.
    target: String,

    /// Port of the server [default: that of the target, or 5150].
    #[arg(short, long)]
    port: Option<u16>,

    /// Connections of each block.
    #[arg(
        short, long, visible_short_alias = 'P', visible_alias = "parallel", default_value = "1",
        value_parser = parse_whole
    )]
    connections: u32,

    /// Blocks, which are added one by one.
    #[arg(long, default_value = "1", value_parser = parse_whole)]
    blocks: u32,

    /// Time from the beginning of one block to that of the next.
    #[arg(long, default_value = "2", value_parser = parse_time)]
    block_interval: Duration,

    /// Bytes of a message; a range, such as 1-64k, for messages of random lengths.
    #[arg(short, long, visible_short_alias = 'l', visible_alias = "length", default_value = "64")]
    buffer: Range,

    /// Send this file, as one message, instead of bytes of the load's own; with neither -x nor -t once on
    /// each connection. What comes back is compared with the file.
    #[arg(
        short = 'F',
        long,
        visible_alias = "transmit-file",
        value_name = "PATH",
        conflicts_with = "buffer"
    )]
    file: Option<PathBuf>,

    /// How the file is sent.
    #[arg(long, value_enum, default_value_t, requires = "file")]
    file_by: By,

    /// Messages of each connection, which is closed then [default: as many as the time allows].
    #[arg(short = 'x', long, value_parser = parse_count)]
    sends: Option<u64>,

    /// Messages under way on each connection, at most. 1 is ping-pong.
    #[arg(short, long, default_value = "1", value_parser = parse_whole)]
    outstanding: u32,

    /// Bytes per second of each whole block (of messages as long as they are on average): an open
    /// loop. Without a rate the next message follows an answer.
    #[arg(short, long, value_parser = parse_rate, group = "pace")]
    rate: Option<f64>,

    /// Messages per second over all connections of all blocks: an open loop, in which latency runs
    /// from when a message was due.
    #[arg(long, value_parser = parse_rate, group = "pace")]
    messages_per_s: Option<f64>,

    /// One message in so long on each connection: an open loop.
    #[arg(long, value_parser = parse_every, group = "pace")]
    every: Option<Duration>,

    /// End a connection's sending with its last message, while answers are still to come.
    #[arg(long)]
    half_close: bool,

    /// A connection counts as made only when its first message has come back, so that the server has
    /// accepted it, and none sends a second one before all are made.
    #[arg(long)]
    together: bool,

    /// The server may refuse some connections, as at its limits: that is no failure, as long as it serves one.
    #[arg(long)]
    refusals_expected: bool,

    /// Nothing is to come back: the server is a sink. The same bytes are sent again and again, as by iperf3.
    #[arg(long)]
    one_way: bool,

    #[arg(short, long, value_parser = parse_time, help = format!(
        "How long messages are sent, once all blocks stand [default: {DURATION:?}; with -x from the \
         beginning on, and at most {DURATION_OF_A_NUMBER:?}]"
    ))]
    time: Option<Duration>,

    /// Of that so long is not measured.
    #[arg(short = 'O', long = "omit", default_value = "0", value_parser = parse_time)]
    omit: Duration,

    /// Processes, which share the connections [default: as many as it takes to have the descriptors].
    #[arg(long)]
    processes: Option<u32>,

    /// Which of its processes this one is: for a load of several, which starts this.
    #[arg(long, hide = true)]
    part: Option<parts::Which>,

    /// Threads over all processes, at least one of each, which share the connections.
    #[arg(long, default_value_t = 1)]
    threads: usize,

    /// Cores to run on: 0 or 2,3 or 4-7; threads take them in turn.
    #[arg(long)]
    cpu: Option<Cores>,

    /// Connections that are being made at a time, over all threads.
    #[arg(long, default_value = "256", value_parser = parse_whole)]
    connecting: u32,

    /// How long making one connection may take: Linux drops what a full backlog cannot take.
    #[arg(long, default_value = "5", value_parser = parse_time)]
    connect_timeout: Duration,

    #[arg(long, value_parser = parse_time, help = format!(
        "How long making all of them may take, besides the time between blocks [default: {:?}, and {:?} for \
         each connection]", SETUP.0, SETUP.1
    ))]
    setup_time: Option<Duration>,

    /// How long an answer may take before its connection is given up.
    #[arg(long, default_value = "30", value_parser = parse_time)]
    answer_timeout: Duration,

    #[arg(long, value_parser = parse_time, help = format!(
        "How long is waited at the end for answers, and for the server to close its side [default: {:?}, and \
         {:?} for each connection]", DRAIN.0, DRAIN.1
    ))]
    drain: Option<Duration>,

    /// A line every so often, at least 10 ms; 0 for none. The document holds at most 4096
    /// intervals: of a longer load neighbours are joined.
    #[arg(short, long, default_value = "1", value_parser = crate::interval::parse)]
    interval: Duration,

    /// Run id, which goes into the bytes that are sent [default: random].
    #[arg(long)]
    run_id: Option<u32>,

    /// Go on so long behind what is measured, so that the server can be looked at as it was under load.
    #[arg(long, hide = true, default_value = "0", value_parser = parse_time)]
    tail: Duration,

    /// With --json, also a line when all connections are made, when measuring begins and when it ends:
    /// {"phase":"settled"}, "began", "ended" (with "at_ns" of the machine's monotonic clock).
    #[arg(long, requires = "json")]
    tell_phases: bool,

    /// Print the effective settings, and connect to nothing.
    #[arg(long)]
    dry_run: bool,

    /// One JSON document on stdout, all else on stderr.
    #[arg(short = 'J', long)]
    json: bool,
}

/// How a file is sent.
#[derive(Debug, Clone, Copy, Default, ValueEnum)]
enum By {
    /// By sendfile(2), without copying it.
    #[default]
    Sendfile,
    /// It is read and sent.
    Copy,
}

impl From<By> for FileBy {
    fn from(by: By) -> Self {
        match by {
            By::Sendfile => FileBy::Sendfile,
            By::Copy => FileBy::Copy,
        }
    }
}

/// Lengths of messages, as written: `64`, `1-64k`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range(Sizes);

impl FromStr for Range {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (least, most) = text.split_once('-').unwrap_or((text, text));
        let bytes = |text: &str| {
            let bytes = parse_size(text)?;
            u32::try_from(bytes).map_err(|_| {
                format!("{text:?} is too long for a message: these are its bytes, and no bit rate")
            })
        };
        Ok(Self(Sizes { least: bytes(least)?, most: bytes(most)? }))
    }
}

fn parse_whole(text: &str) -> Result<u32, String> {
    u32::try_from(parse_count(text)?).map_err(|_| format!("{text:?} is too many"))
}

fn parse_every(text: &str) -> Result<Duration, String> {
    match parse_time(text)? {
        every if every.is_zero() => {
            Err("a message every 0 s is no rate; give a time, such as 60s or 1ms, or leave this out for the \
                 next message after each answer"
                .into())
        }
        every => Ok(every),
    }
}

/// Where the server is: the target may name its port, as `weir serve tcp` prints it.
fn server(target: &str, port: Option<u16>) -> anyhow::Result<SocketAddr> {
    let bare = target.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(target);
    // More than one colon, and no brackets: an address of IPv6, which ends with no port.
    let named = match target.rsplit_once(':') {
        Some((name, port)) if !name.contains(':') || name.ends_with(']') => Some((name, port)),
        _ => None,
    };
    let Some((name, named)) = named else {
        return Ok(SocketAddr::new(resolve(bare)?, port.unwrap_or(PORT)));
    };
    let named: u16 = named
        .parse()
        .map_err(|_| Usage(format!("{named:?} in {target:?} is no port; right is 0 to 65535")))?;
    if let Some(port) = port.filter(|port| *port != named) {
        return Err(Usage(format!(
            "the target {target} has port {named}, and --port says {port}; give one of them"
        ))
        .into());
    }
    let name = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
    Ok(SocketAddr::new(resolve(name)?, named))
}

/// Runs it; the exit code is 0 for success, 1 for a failed run, 2 for wrong usage, 3 for
/// data errors, 5 if nothing could run here.
pub fn run(load: &Load) -> ExitCode {
    let Load::Tcp(args) = load;
    if let Some(parts::Which(share)) = args.part {
        return ExitCode::from(run_part(args, share));
    }
    shown::run(args.json, |shown| attempt(args, shown))
}

fn attempt(args: &LoadTcp, shown: &mut Shown<LoadReport>) -> anyhow::Result<Option<LoadReport>> {
    let mut spec = specify(args)?;
    let descriptors = tcp::descriptors();
    let processes = match args.processes {
        Some(processes) => processes,
        None => parts::needed(spec.connections_in_all(), spec.threads, descriptors)?,
    };
    if processes != 1 {
        take_share(&mut spec, Share { index: 0, of: processes }, args.threads)?;
    }
    if args.dry_run {
        shown.settings(&tcp::settings(&spec)?);
        return Ok(None);
    }
    let stop = Arc::new(Stop::new());
    heed_interrupts(&stop)?;
    let tell = |shown: &mut Shown<LoadReport>, event: tcp::Event<'_>| {
        show::event(shown, args.tell_phases, event)
    };
    if processes != 1 {
        shown.settings(&tcp::settings(&spec)?);
        let run = args.run_id.is_none().then_some(spec.run);
        return parts::load(&spec, processes, run, &stop, |event| tell(shown, event)).map(Some);
    }
    let report = tcp::load(&spec, &stop, |event| tell(shown, event))?;
    Ok(Some(report))
}

/// Runs one process of several; gives the exit code.
fn run_part(args: &LoadTcp, share: Share) -> u8 {
    let stop = Arc::new(Stop::new());
    let outcome = specify(args).and_then(|mut spec| {
        take_share(&mut spec, share, args.threads)?;
        heed_interrupts(&stop)?;
        Ok(parts::serve(&spec, &stop)?)
    });
    match outcome {
        Ok(()) => OK,
        Err(error) => {
            let code = code_of_error(&error);
            parts::fail(text_of_error::<LoadError>(&error), code);
            code
        }
    }
}

/// Makes it the share of one process, with its share of the threads.
fn take_share(spec: &mut LoadSpec, share: Share, threads: usize) -> Result<(), LoadError> {
    spec.share = share;
    spec.threads = threads.div_ceil(share.of.max(1) as usize).max(1);
    spec.check()
}

fn specify(args: &LoadTcp) -> anyhow::Result<LoadSpec> {
    let Range(sizes) = args.buffer;
    let mean_bytes = match &args.file {
        None => (f64::from(sizes.least) + f64::from(sizes.most)) / 2.0,
        Some(path) => tcp::bytes_of_file(path)? as f64,
    };
    let connections = u64::from(args.connections) * u64::from(args.blocks);
    let pace = match (args.rate, args.messages_per_s.or(args.every.map(per_s(connections)))) {
        (Some(_), _) if mean_bytes == 0.0 => {
            return Err(Usage("messages (--buffer) of 0 bytes have no rate in bytes".into()).into());
        }
        (Some(bytes_per_s), _) => {
            Pace::Open { messages_per_s: bytes_per_s / mean_bytes * f64::from(args.blocks) }
        }
        (None, Some(messages_per_s)) => Pace::Open { messages_per_s },
        (None, None) => Pace::Closed,
    };
    let once = args.file.is_some() && args.time.is_none();
    let sends = args.sends.or(once.then_some(1));
    let unless_told = if sends.is_some() { DURATION_OF_A_NUMBER } else { DURATION };
    let of_all = |(once, each): (Duration, Duration)| {
        once.saturating_add(each.saturating_mul(u32::try_from(connections).unwrap_or(u32::MAX)))
    };
    let spec = LoadSpec {
        target: server(&args.target, args.port)?,
        connections: args.connections,
        blocks: args.blocks,
        block_interval: args.block_interval,
        sizes,
        file: args.file.clone(),
        file_by: args.file_by.into(),
        sends,
        outstanding: args.outstanding,
        pace,
        one_way: args.one_way,
        refusals_expected: args.refusals_expected,
        half_close: args.half_close,
        together: args.together,
        share: Share::ALL,
        threads: args.threads,
        cores: args.cpu.as_ref().map(|Cores(cores)| permitted("load", cores)).unwrap_or_default(),
        duration: args.time.unwrap_or(unless_told),
        warm_up: args.omit,
        tail: args.tail,
        setup_max: args.setup_time.unwrap_or_else(|| of_all(SETUP)),
        connecting: args.connecting,
        connect_timeout: args.connect_timeout,
        answer_timeout: args.answer_timeout,
        drain: args.drain.unwrap_or_else(|| of_all(DRAIN)),
        run: args.run_id.unwrap_or_else(random_run),
        interval: Some(args.interval).filter(|interval| !interval.is_zero()),
    };
    spec.check()?;
    Ok(spec)
}

/// Messages per second over so many connections, each of which sends one in a given time.
fn per_s(connections: u64) -> impl Fn(Duration) -> f64 {
    move |every| connections as f64 / every.as_secs_f64()
}

fn code_of_error(error: &anyhow::Error) -> u8 {
    match error.downcast_ref::<LoadError>() {
        Some(
            LoadError::Spec(_)
            | LoadError::NotLoopback { .. }
            | LoadError::File { .. }
            | LoadError::Pin { .. },
        ) => USAGE,
        Some(LoadError::Unavailable(_)) => UNAVAILABLE,
        Some(_) => FAILED,
        None if error.is::<Usage>() => USAGE,
        None => error.downcast_ref::<parts::PartFailed>().map_or(FAILED, |failed| failed.code),
    }
}

/// The document of a load that was not even tried.
pub fn failure(reason: &str) -> String {
    shown::refusal::<LoadReport>(reason)
}

#[cfg(test)]
mod tests;
