//! `weir flood`: offers datagrams to a server.

mod show;
pub(crate) mod together;

use std::{
    net::{IpAddr, SocketAddr, ToSocketAddrs},
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use anyhow::anyhow;
use serde::{Deserialize, Serialize};
use weir_load::{
    FloodError, FloodReport, FloodSpec, Stop, StopReason,
    engine::Head,
    flood::{
        Event, FloodFigures, OUTSTANDING_MAX, Replies, flood_from, flood_of_ranks, random_run,
        settings, share,
    },
    pacing::{Arrivals, Load, windows::WITHIN_MIN},
    quantity::{
        parse_bit_rate, parse_bytes, parse_count, parse_percent, parse_rate, parse_size, parse_time,
    },
    ranks::course::Failed,
};

use crate::{
    Command,
    cores::permitted,
    exit::{FAILED, UNAVAILABLE, USAGE, Usage},
    interrupts, keys,
    ranks::{self, Together},
    serve::USUAL_ADDRESS,
    shown::{self, Shown, TellArgs},
};

/// How long a flood lasts if nothing else is said.
const DURATION: Duration = Duration::from_secs(10);
/// The same if a number of datagrams or bytes is given: it ends then, but no later than this.
const DURATION_OF_A_NUMBER: Duration = Duration::from_secs(600);

/// Send datagrams to a UDP server, paced or as fast as possible.
///
/// Without --control, only loopback addresses are flooded: a server elsewhere must agree.
/// Counts and rates: k = 1000. Sizes: k = 1024. Times: ms, s, m, h.
#[derive(Debug, Clone, clap::Args)]
#[command(
    after_help = "Exit codes: 0 success; 1 it failed, for instance because the server was lost; 2 wrong usage; 3 data \
                  or counts are wrong, more was lost than --max-loss, or the pace was not held (see --any-pace); 5 it \
                  cannot run here; 130 it was ended by Ctrl-C or a signal, and reports what was sent until then (1 if it had failed \
                  besides, as where nobody listens)."
)]
pub struct FloodArgs {
    /// Address or name of the server, alone or with its port: 127.0.0.1, [::1]:8080, localhost:8080.
    target: String,

    /// Port of the server; several with commas (flows take them in turn) [default: that of the target, or 8080, and with
    /// --control those that the server names].
    #[arg(short, long, value_delimiter = ',')]
    port: Vec<u16>,

    #[arg(short, long, value_parser = parse_time, group = "end", help = format!(
        "How long [default: {DURATION:?}]. At most one of -t, -n and -k"
    ))]
    time: Option<Duration>,

    /// How many bytes of payload, rounded up to whole datagrams.
    #[arg(short = 'n', long, value_parser = parse_bytes, group = "end")]
    bytes: Option<u64>,

    /// How many datagrams.
    #[arg(short = 'k', long, alias = "datagrams", value_parser = parse_count, group = "end")]
    blockcount: Option<u64>,

    #[arg(long, value_parser = parse_time, help = format!(
        "End after this time even if not all bytes or datagrams are sent [default with -n or -k: \
         {DURATION_OF_A_NUMBER:?}]"
    ))]
    max_time: Option<Duration>,

    /// UDP, as iperf3 spells it; there is no other flood.
    #[arg(short, long)]
    udp: bool,

    /// Payload of each datagram in bytes, 0 to 65507. From 32 on it carries a stamp.
    #[arg(short, long, default_value = "64", value_parser = parse_size)]
    length: usize,

    /// Bytes, in hexadecimal, written over the beginning of each datagram, stamp included: for a
    /// server that expects its own header. weir's servers count such datagrams as not of this run (strangers).
    #[arg(long, default_value_t)]
    head: Head,

    /// Flows (sockets, each with a port of its own) of each generator.
    #[arg(short = 'P', long, default_value_t = 1)]
    parallel: usize,

    /// Expect an answer to each datagram, and verify it byte for byte: for a server with --echo. Without a rate,
    /// --outstanding requests of each flow are under way (closed loop); with one, requests go out at their times, and
    /// round trips are taken from those (open loop).
    #[arg(long)]
    reply: bool,

    /// Bytes of each answer, 32 or more and no more than --length: the beginning of the request (k = 1024)
    /// [default: all of it].
    #[arg(long, requires = "reply", value_parser = parse_size)]
    reply_size: Option<usize>,

    #[arg(long, requires = "reply", conflicts_with = "rate", help = format!(
        "Most requests outstanding on each flow, 1 to {OUTSTANDING_MAX} [default: {}]. More are sent once a quarter of \
         them is answered",
        Replies::default().outstanding
    ))]
    outstanding: Option<u32>,

    /// Bits of payload per second over all flows, as iperf3 counts them but not per flow;
    /// without any rate, as fast as possible.
    #[arg(short, long, value_parser = parse_bit_rate, group = "rate")]
    bitrate: Option<f64>,

    /// Datagrams per second over all flows.
    #[arg(long, value_parser = parse_rate, group = "rate")]
    pps: Option<f64>,

    /// Share of the link given by --link-speed, in bytes on the wire: headers, frame check,
    /// preamble and gap included, with those of each fragment of what exceeds 1500 bytes.
    #[arg(long, value_parser = parse_percent, group = "rate", requires = "link_speed")]
    link: Option<f64>,

    /// Bits per second of the link.
    #[arg(long, value_parser = parse_bit_rate, requires = "link")]
    link_speed: Option<f64>,

    /// How datagrams of a rate follow one another: at even intervals, or at the times of a Poisson process, as from
    /// many independent senders (exponential gaps; the same ones for the same --run-id).
    #[arg(long, value_name = "EVEN|POISSON", default_value = Arrivals::Even.name())]
    arrivals: Arrivals,

    /// Datagrams per call [default: computed, and printed].
    #[arg(long)]
    quantum: Option<u32>,

    /// Interval of progress lines, at least 10 ms; 0 for none. The document holds at most 4096 intervals: those of a
    /// longer flood are merged.
    #[arg(short, long, default_value = "1s", value_parser = crate::interval::parse)]
    interval: Duration,

    /// Warm-up time that is not counted.
    #[arg(short = 'O', long = "omit", default_value = "0", value_parser = parse_time)]
    omit: Duration,

    /// How datagrams are passed to the kernel: gso, sendmmsg, uring, send, on Windows uso or send [default: the best
    /// that works]; xdp sends live frames past the kernel's network stack, over an Ethernet device (Linux, with CAP_BPF
    /// and CAP_NET_ADMIN).
    #[arg(long)]
    engine: Option<String>,

    /// Threads, each with flows of its own; the rate is shared among them.
    #[arg(long, default_value_t = 1)]
    generators: usize,

    /// The server's control channel: address and port, or a port of the target.
    #[arg(long)]
    control: Option<String>,

    /// Accept a server of another build, and with --mpi ranks of another build.
    #[arg(long)]
    any_build: bool,

    /// File with the key that the server was started with. Without this option it may be in the environment
    /// variable WEIR_KEY.
    #[arg(long, requires = "control")]
    key_file: Option<PathBuf>,

    /// The share that may be lost, such as 0 or 0.1%: beyond it, or if the server does not report losses, the
    /// exit code is 3 [default: any, as UDP promises no delivery].
    #[arg(long, requires = "control", value_parser = parse_loss)]
    max_loss: Option<f64>,

    /// Exit with code 0 even if the pace was not held. The report says so all the same; without this option the exit
    /// code is 3, because the load was not the one asked for.
    #[arg(long)]
    any_pace: bool,

    /// Cores to run on, with commas; generators take them in turn.
    #[arg(long, value_delimiter = ',')]
    cpu: Vec<usize>,

    /// Run id of the datagrams [default: random].
    #[arg(long)]
    run_id: Option<u32>,

    /// Say {"phase":"ready"} when the warm-up, and then the run, can begin, and begin at the time of the next line of the
    /// standard input, {"start_ns":N}, in ns of the machine's monotonic clock: so several floods begin together.
    #[arg(long, hide = true, requires = "json")]
    wait_for_start: bool,

    /// What the clock here and that of the server showed at one moment, as OWN:SERVER in ns: with it the server tells one-way
    /// latencies although its clock is another one.
    #[arg(long, hide = true, requires = "control", value_parser = parse_clocks)]
    clocks: Option<i64>,

    /// One flood by all ranks that mpirun started: they share the rate and the number of datagrams; flows and
    /// generators are per rank. They start together, and rank 0 reports.
    #[arg(long, conflicts_with = "dry_run")]
    mpi: bool,

    /// Print the effective settings, and send nothing.
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    tell: TellArgs,
}

/// Runs it; the exit code is 0 for success, 1 for a failed run, 2 for wrong usage, 3 for
/// data errors, more loss than permitted or a pace that was not held, 5 if nothing could run here.
pub fn run(args: FloodArgs) -> ExitCode {
    if args.mpi {
        return ranks::run(args.tell, args.any_build, |all, shown| lead(&args, all, shown), follow);
    }
    shown::run(args.tell, |shown| attempt(&args, shown))
}

/// What a flood found, and whether it may be another than was asked for.
struct Flooded {
    report: FloodReport,
    any_pace: bool,
}

fn attempt(args: &FloodArgs, shown: &mut Shown<Flooded>) -> anyhow::Result<Option<Flooded>> {
    let spec = specify(args)?;
    if args.dry_run {
        shown.only_settings(&settings(&spec)?);
        return Ok(None);
    }
    let stop = Arc::new(Stop::new());
    heed_interrupts(&stop)?;
    let watch = |event: Event<'_>| match event {
        Event::Ready(settings) => shown.settings(settings),
        Event::Interval(progress) => {
            show::interval(shown, &progress, spec.size_bytes, args.interval);
        }
    };
    let report = if args.wait_for_start {
        let starts = together::starts(&stop);
        let mut start = || together::next(&starts, &stop);
        flood_from(&spec, &stop, &mut start, watch)?
    } else {
        weir_load::flood(&spec, &stop, watch)?
    };
    Ok(Some(Flooded { report, any_pace: args.any_pace }))
}

/// What rank 0 tells the others.
#[derive(Serialize, Deserialize)]
struct Plan {
    command: Vec<String>,
    target: IpAddr,
    ports: Vec<u16>,
    control: Option<SocketAddr>,
    run: u32,
}

/// Does the part of rank 0, and reports of all.
fn lead(
    args: &FloodArgs,
    all: &Together,
    shown: &mut Shown<Flooded>,
) -> anyhow::Result<Option<Flooded>> {
    let spec = specify(args)?;
    let count = all.ranks().count();
    // What is wrong with the shares is told before anybody waits.
    for rank in [0, count - 1] {
        share(&spec, rank, count)?;
    }
    let FloodSpec { target, control, run, .. } = spec;
    let ports = spec.ports.clone();
    all.plan(&Plan { command: crate::arguments(), target, ports, control, run })?;
    let course = all.course()?;
    let library = all.library().to_owned();
    let report = flood_of_ranks(&spec, &course, |settings| {
        let mut settings = settings.to_vec();
        settings.push(("ranks", format!("{count}, the settings are those of each; {library}")));
        shown.settings(&settings);
    })?;
    Ok(report.map(|report| Flooded { report, any_pace: args.any_pace }))
}

/// Does the part of any other rank.
fn follow(all: &Together) -> anyhow::Result<()> {
    let Some(plan) = all.planned::<Plan>()? else { return Ok(()) };
    let course = all.course()?;
    let Command::Flood(mut args) = ranks::parse(&plan.command)?.command else {
        anyhow::bail!("rank 0 runs another command");
    };
    args.target = plan.target.to_string();
    args.port = plan.ports;
    args.control = plan.control.map(|control| control.to_string());
    args.run_id = Some(plan.run);
    // What is wrong with it, such as a key that is not here, is told by rank 0.
    let spec = specify(&args).map_err(|error| Failed { message: format!("{error:#}") });
    match spec {
        Ok(spec) => flood_of_ranks(&spec, &course, |_| {}).map(|_| ()).map_err(Into::into),
        Err(failed) => {
            course.stop().request(StopReason::Failed);
            course.gather::<FloodFigures>(Err(failed), &mut []);
            Ok(())
        }
    }
}

fn specify(args: &FloodArgs) -> anyhow::Result<FloodSpec> {
    let (name, named) = name_and_port(&args.target)?;
    let target = resolve(name)?;
    let ports = match named {
        Some(named) => vec![only_port(&args.target, named, &args.port)?],
        None if args.port.is_empty() && args.control.is_none() => vec![USUAL_ADDRESS.port()],
        None => args.port.clone(),
    };
    let control = match &args.control {
        Some(control) => Some(resolve_control(control, target)?),
        None => None,
    };
    let load = match (args.bitrate, args.pps, args.link, args.link_speed) {
        (Some(bits), ..) => Load::from_payload_bits_per_s(bits, args.length).map_err(Usage)?,
        (_, Some(datagrams_per_s), ..) => Load::Paced { datagrams_per_s },
        (_, _, Some(share), Some(speed)) => {
            Load::from_link(share, speed, args.length, target.is_ipv6())
        }
        _ => Load::Saturation,
    };
    let datagrams = datagrams(args)?;
    let duration = match datagrams {
        Some(_) => args.max_time.unwrap_or(DURATION_OF_A_NUMBER),
        None => args.time.unwrap_or(DURATION).min(args.max_time.unwrap_or(Duration::MAX)),
    };
    Ok(FloodSpec {
        target,
        ports,
        control,
        any_build: args.any_build,
        key: match control {
            Some(_) => keys::find("flood", args.key_file.as_deref()).map_err(Usage)?,
            None => None,
        },
        engine: args.engine.clone(),
        size_bytes: args.length,
        head: args.head,
        replies: args.reply.then(|| Replies {
            size_bytes: args.reply_size,
            outstanding: args.outstanding.unwrap_or(Replies::default().outstanding),
            ..Replies::default()
        }),
        flows: args.parallel,
        generators: args.generators,
        load,
        arrivals: args.arrivals,
        quantum: args.quantum,
        duration,
        datagrams,
        warm_up: args.omit,
        cores: permitted("flood", &args.cpu),
        run: args.run_id.unwrap_or_else(random_run),
        max_loss: args.max_loss,
        interval: Some(args.interval).filter(|interval| !interval.is_zero()),
        clock_offset_ns: args.clocks,
    })
}

/// What one clock shows more than another, by what they showed at one moment.
fn parse_clocks(text: &str) -> Result<i64, String> {
    let both = text
        .split_once(':')
        .and_then(|(own, server)| Some((own.parse::<u64>().ok()?, server.parse::<u64>().ok()?)));
    let offset =
        both.and_then(|(own, server)| i64::try_from(i128::from(own) - i128::from(server)).ok());
    offset.ok_or_else(|| format!("{text:?} is not what two clocks showed in ns, such as 1000:2000"))
}

/// A share that may be nothing.
fn parse_loss(text: &str) -> Result<f64, String> {
    match text.trim().trim_end_matches('%').trim_end().parse() {
        Ok(0.0) => Ok(0.0),
        _ => parse_percent(text),
    }
}

/// How many datagrams end the flood, if a number does.
fn datagrams(args: &FloodArgs) -> Result<Option<u64>, Usage> {
    match args.bytes {
        None => Ok(args.blockcount),
        Some(_) if args.length == 0 => Err(Usage(
            "empty datagrams have no bytes to count; give the number of datagrams instead (-k)"
                .into(),
        )),
        Some(bytes) => Ok(Some(bytes.div_ceil(args.length as u64))),
    }
}

/// The address or name in a target, and the port if it has one, as servers print them.
pub fn name_and_port(target: &str) -> Result<(&str, Option<u16>), Usage> {
    let bare =
        |name| str::strip_prefix(name, "[").and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
    if target.starts_with("unix:") || names_a_file(target).is_some() {
        return Ok((target, None));
    }
    match target.rsplit_once(':') {
        // More than one colon, and no brackets: an address of IPv6, which ends with no port.
        Some((name, port)) if !name.contains(':') || name.ends_with(']') => {
            let wrong =
                |_| Usage(format!("{port:?} in {target:?} is not a port; allowed: 0 to 65535"));
            Ok((bare(name), Some(port.parse().map_err(wrong)?)))
        }
        _ => Ok((bare(target), None)),
    }
}

/// The port that a target names, unless --port has others.
pub fn only_port(target: &str, named: u16, given: &[u16]) -> Result<u16, Usage> {
    match given.iter().find(|port| **port != named) {
        Some(other) => Err(Usage(format!(
            "the target {target} has port {named}, and --port says {other}; give one of them"
        ))),
        None => Ok(named),
    }
}

pub fn resolve(target: &str) -> anyhow::Result<IpAddr> {
    if let Ok(address) = target.parse() {
        return Ok(address);
    }
    if let Some(path) = target.strip_prefix("unix:").or_else(|| names_a_file(target)) {
        return Err(Usage(format!(
            "{target} is a Unix socket, and datagrams are sent to an address and a port; give an address, such as 127.0.0.1; \
             a Unix socket of streams takes `weir load tcp unix:{path}`, one of datagrams what other programs send, such as \
             `socat - UNIX-SENDTO:{path}`"
        ))
        .into());
    }
    if target.is_empty() {
        return Err(Usage(
            "the target is empty; give an address, such as 127.0.0.1, or a name".into(),
        )
        .into());
    }
    let addresses = (target, 0).to_socket_addrs().map_err(|error| {
        Usage(format!("{target:?} is neither an address nor a known name: {error}"))
    })?;
    let first = addresses.map(|address| address.ip()).next();
    first.ok_or_else(|| Usage(format!("the name {target:?} has no address")).into())
}

/// The target where it names a file, or an abstract name, and no host: a Unix socket, whose `unix:` was left out.
pub fn names_a_file(target: &str) -> Option<&str> {
    let is_file = target.contains('/') || target.starts_with('@') || target.ends_with(".sock");
    is_file.then_some(target)
}

pub fn resolve_control(control: &str, target: IpAddr) -> anyhow::Result<SocketAddr> {
    if let Ok(port) = control.trim_start_matches(':').parse() {
        return Ok(SocketAddr::new(target, port));
    }
    if let Ok(address) = control.parse() {
        return Ok(address);
    }
    let wrong = || {
        Usage(format!("--control {control:?} is not an address and port, such as 127.0.0.1:5200"))
    };
    let mut addresses = control.to_socket_addrs().map_err(|_| wrong())?;
    // Of several addresses of a name, the one that is to be flooded.
    addresses.find(|address| address.ip() == target).ok_or_else(|| wrong().into())
}

/// The first Ctrl-C ends the run with its report, the second everything.
pub fn heed_interrupts(stop: &Arc<Stop>) -> anyhow::Result<()> {
    let stop = Arc::clone(stop);
    let heeded = interrupts::heed(move || stop.request(StopReason::Asked));
    heeded.map_err(|failure| anyhow!(failure.message))
}

fn code_of_error(error: &anyhow::Error) -> u8 {
    match error.downcast_ref::<FloodError>() {
        Some(
            FloodError::Spec(_)
            | FloodError::Name(_)
            | FloodError::NoConsent { .. }
            | FloodError::Pin { .. },
        ) => USAGE,
        Some(FloodError::Unavailable(_)) => UNAVAILABLE,
        Some(_) => FAILED,
        None if error.is::<Usage>() => USAGE,
        None => FAILED,
    }
}

/// Why nothing may be concluded from a flood that did not fail, if so.
fn invalid(report: &FloodReport) -> Option<String> {
    let has = |path: &str| {
        let account = report.report.as_ref();
        account.and_then(|account| account.pointer(path)).and_then(|errors| errors.as_bool())
    };
    let data_errors = has("/data_errors").or_else(|| has("/audit/data_errors")) == Some(true);
    let wrong = "the server received datagrams that differ from what was sent; see its counts";
    let data_errors = data_errors.then(|| wrong.into());
    let answers = report.answers.as_ref().filter(|answers| answers.data_errors);
    let answers = answers.map(|answers| {
        format!(
            "of {} answers, {} were damaged, {} of another size, {} duplicates, {} to requests that their flow had not sent, \
             and {} of no run",
            answers.received,
            answers.corrupt,
            answers.wrong_size,
            answers.duplicates,
            answers.forged,
            answers.strangers
        )
    });
    report.unbalanced().or(data_errors).or(answers)
}

/// That the load was not the one asked for, if so: by the rule of [`WITHIN_MIN`], which comparisons have, too.
fn late(report: &FloodReport) -> Option<String> {
    (report.pace_held == Some(false)).then(|| {
        format!(
            "the pace was not held: fewer than {:.0} % of the windows are within tolerance, and {} datagrams were skipped \
             as late; lower the rate, give the generator a core of its own (--cpu), or take whatever load it makes \
             (--any-pace)",
            WITHIN_MIN * 100.0,
            report.late_skipped
        )
    })
}

/// What makes a report one of failure, if anything does.
fn failure_of(report: &FloodReport) -> Option<String> {
    // The answer to one datagram refuses the next, so at a port without a listener about every
    // second one is refused.
    let refused = report.refusals.connection_refused;
    let nobody = report.offered > 0 && (report.sent == 0 || refused >= report.offered.div_ceil(3));
    let refused = || {
        format!(
            "{} of {} datagrams were refused; is anything listening there?",
            report.refused, report.offered
        )
    };
    let unanswered = report.answers.as_ref().is_some_and(|answers| answers.received == 0);
    let none = || {
        format!(
            "none of {} requests was answered; is anything listening there, and does it answer (weir serve udp --echo)?",
            report.sent
        )
    };
    let unanswered = || (report.sent > 0 && unanswered).then(none);
    report.failure.clone().or_else(|| nobody.then(refused)).or_else(unanswered)
}

/// The document of a flood that was not even tried.
pub fn failure(reason: &str, ndjson: bool) -> String {
    shown::refusal::<Flooded>(reason, ndjson)
}

#[cfg(test)]
mod tests;
