//! `weir iops`: I/Os per second through one device.

mod show;

use std::{io::ErrorKind, path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use anyhow::anyhow;
use weir::device::{AnyDesign, Direction, NAMES, Names};
use weir_lab::{
    iops::{self, Event, LEAST_BESIDE, PAIRS, Report, SAMPLE_EVERY, Spec},
    stats::Estimate,
};
use weir_load::{
    Stop,
    quantity::{parse_count, parse_size, parse_time},
};

use crate::{
    cores::{Cores, keep_to},
    exit::{FAILED, UNAVAILABLE, USAGE, Usage},
    flood::heed_interrupts,
    serve::performance::parse_interval,
    shown::{self, Shown, TellArgs},
};

/// How long it is watched if nothing else is said.
const DURATION: Duration = Duration::from_secs(10);
/// The same if a number of I/Os is given: it ends then, but no later than this.
const DURATION_OF_A_NUMBER: Duration = Duration::from_secs(600);

/// What a device is, and what the letters mean to users of fio.
fn after() -> String {
    let Names { readable, writable, .. } = NAMES;
    format!(
        "\
What may be read: {readable} Everything is opened for reading only.

What may be written to (--write): {writable}; it is opened for writing only. Anything else is refused before it is opened for writing, and no flag overrides that. Designs that move no \
bytes (sync-empty, no-op, control, uring-cmd) have no writes.

{COUNTS}"
    )
}

/// What its figures are, fio's words, and the exit codes.
const COUNTS: &str = "\
Figures per I/O (system calls, CPU time) come from counters of working threads, which cannot all be read at one \
moment: at either end of the measured time they may be off by what each thread has under way, an I/O or a batch, \
so for a few I/Os they say nothing.

The system calls that are counted are entries into the kernel for I/O: submitting, reading, waiting, setting a \
timer. Those by which threads wait for and wake each other (futex) are not counted: where a design has such \
threads, the number is preceded by ≥, and kernel_entries_source says so.

fio's names: --bs is -l, --iodepth is --depth, --number_ios is -k, --ramp_time is -O, --ioengine is --design.

Exit codes: 0 success; 1 it failed, with the figures so far; 2 wrong usage, or a path that must not be read or \
written to; 3 some I/Os failed; 5 it cannot run here; 130 it was ended by Ctrl-C or a signal, with the figures so far.";

/// Read a device as fast as one design can, or write to one, and report I/Os per second.
///
/// Counts: k = 1000. Sizes: k = 1024. Times: us, ms, s, m, h.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = after())]
pub struct IopsArgs {
    /// What to read, or to write to.
    path: PathBuf,

    #[arg(long, help = format!("Write zeroes instead: only to {}, which discard them", NAMES.writable))]
    write: bool,

    /// The design with its options, as in "ring --depth 64"; `weir designs` lists them.
    #[arg(long, visible_alias = "ioengine", default_value = "sync")]
    design: String,

    /// I/Os outstanding, for designs that have several [default: the design's own].
    #[arg(long, visible_alias = "iodepth", value_parser = parse_count)]
    depth: Option<u64>,

    /// Bytes per I/O, 0 to 16M.
    #[arg(short, long, visible_alias = "bs", default_value = "4096", value_parser = parse_size)]
    length: usize,

    /// Measured time [default: 10 s; with -k at most 10 min].
    #[arg(short, long, value_parser = parse_time)]
    time: Option<Duration>,

    /// End after this many I/Os, warm-up included. Counting them down costs an atomic operation each.
    #[arg(short = 'k', long, visible_alias = "number_ios", value_parser = parse_count)]
    blockcount: Option<u64>,

    /// Warm-up time that is not measured.
    #[arg(short = 'O', long, visible_alias = "ramp_time", default_value = "500ms", value_parser = parse_time)]
    omit: Duration,

    /// Interval of progress lines, at least 10 ms; 0 for none. The document holds at most 4096 intervals: those of a
    /// longer run are merged.
    #[arg(short, long, default_value = "5s", value_parser = crate::interval::parse)]
    interval: Duration,

    /// Read this path although it is not known to be harmless (a character device, or a file on a special
    /// file system); reading may have side effects. Must be the path given as the argument.
    #[arg(long, value_name = "PATH")]
    device: Vec<PathBuf>,

    /// Take the latency of one I/O in this many, at random; 0 for none.
    #[arg(long, default_value_t = SAMPLE_EVERY)]
    sample_every: u32,

    /// Measure afterwards what taking latencies costs: short runs with and without, in random order.
    #[arg(long)]
    sampling_cost: bool,

    /// See whether the rate declines over the measured time (3 s or more). The design given here, such as sync, is a
    /// control: it takes turns with the one that is measured, so that a change of the machine is not taken for one of
    /// the design. The control's turns are extra, a fifth of the whole.
    #[arg(long, value_name = "DESIGN", conflicts_with_all = ["blockcount", "sampling_cost", "count_entries"])]
    control: Option<String>,

    /// Cores to run on: 0 or 2,3 or 4-7 [default: all that this process may use].
    #[arg(long)]
    cpu: Option<Cores>,

    /// I/Os that may fail before it ends.
    #[arg(long, default_value = "0", value_parser = parse_count)]
    errors_max: u64,

    /// Have the kernel count the entries into it, which slows every system call of the machine down: for runs in which
    /// nothing else is measured. It needs root.
    #[arg(long, hide = true)]
    count_entries: bool,

    #[arg(
        long, value_name = "TIME", value_parser = parse_interval, requires = "json",
        help = "Put a performance log with this interval, such as 1s, into the document: what each thread, each core \
                and the system did in it (CPU time, context switches, interrupts, memory)"
    )]
    performance_interval: Option<Duration>,

    /// Print the effective settings, and read nothing. The path is still opened.
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    tell: TellArgs,
}

/// What came of it: the run, and what taking latencies costs, where that was asked for.
struct Found {
    report: Report,
    sampling: Option<Estimate>,
    /// How long it was to be watched, and to read before.
    time: Duration,
    warm_up: Duration,
}

/// Runs it; the exit code is 0 for success, 1 for a failed run, 2 for wrong usage, 3 for
/// I/Os that failed, 5 if it could not run here.
pub fn run(args: &IopsArgs) -> ExitCode {
    shown::run(args.tell, |shown| attempt(args, shown))
}

fn attempt(args: &IopsArgs, shown: &mut Shown<Found>) -> anyhow::Result<Option<Found>> {
    // Before any thread is started: they inherit it.
    let unbound = args.cpu.as_ref().map(|cores| keep_to("iops", cores)).transpose();
    let unbound = unbound.map_err(|failure| anyhow!(Usage(failure.message)))?.flatten();
    let spec = specify(args, &args.design, args.depth)?;
    let control = match &args.control {
        Some(design) => Some(specify(args, design, None)?),
        None => None,
    };
    if control.is_some() && spec.time < LEAST_BESIDE {
        let problem = format!(
            "a --time of {:?} with --control; allowed: {LEAST_BESIDE:?} or more, so that there are enough turns",
            spec.time
        );
        return Err(Usage(problem).into());
    }
    if args.dry_run {
        shown.only_settings(&[settings(&spec), asked(args, &spec, unbound)].concat());
        return Ok(None);
    }
    let stop = Arc::new(Stop::new());
    heed_interrupts(&stop)?;
    let asked = asked(args, &spec, unbound);
    let watch = |event: Event<'_>| match event {
        Event::Ready(obtained) => shown.settings(&[obtained, &asked[..]].concat()),
        Event::Interval(progress) => show::interval(shown, &progress),
    };
    let report = match &control {
        Some(control) => iops::measure_beside(&spec, control, &stop, watch),
        None => iops::measure(&spec, &stop, watch),
    }?;
    let sampling = match args.sampling_cost && report.failure.is_none() && !stop.is_requested() {
        true => {
            shown.say(&format!("\nmeasuring what taking latencies costs: {PAIRS} pairs of runs"));
            iops::sampling_cost(&spec, &stop)?
        }
        false => None,
    };
    Ok(Some(Found { report, sampling, time: spec.time, warm_up: spec.warm_up }))
}

fn specify(args: &IopsArgs, design: &str, depth: Option<u64>) -> anyhow::Result<Spec> {
    let mut design = AnyDesign::parse(design)?;
    if let Some(depth) = depth {
        let name = design.about().name;
        design.set("depth", &depth.to_string()).map_err(|error| match error {
            weir::Error::UnknownName { .. } => {
                anyhow!(Usage(format!(
                    "the design {name} has one I/O at a time: it takes no --depth"
                )))
            }
            other => other.into(),
        })?;
    }
    if args.time.is_some_and(|time| time.is_zero()) {
        return Err(Usage("a --time of 0 measures nothing; allowed: more than 0".into()).into());
    }
    if args.sampling_cost && args.sample_every == 0 {
        return Err(Usage("--sampling-cost needs latencies taken (--sample-every)".into()).into());
    }
    design.resolve();
    if let Some(other) = args.device.iter().find(|device| **device != args.path) {
        return Err(Usage(format!(
            "--device {} is not the path that is read, {}: it permits that path only",
            other.display(),
            args.path.display()
        ))
        .into());
    }
    let direction = if args.write { Direction::Write } else { Direction::Read };
    // What cannot run is not worth opening a device for.
    design.availability().and_then(|()| design.can(direction)).map_err(weir::Error::from)?;
    let device = iops::open(&args.path, &args.device, direction)?;
    let default = if args.blockcount.is_some() { DURATION_OF_A_NUMBER } else { DURATION };
    Ok(Spec {
        design,
        device,
        length: args.length,
        ios: args.blockcount,
        time: args.time.unwrap_or(default),
        warm_up: args.omit,
        interval: Some(args.interval).filter(|interval| !interval.is_zero()),
        sample_every: args.sample_every,
        errors_max: args.errors_max,
        count_entries: args.count_entries,
        performance: args.performance_interval,
    })
}

/// What is asked for, where nothing is obtained yet.
fn settings(spec: &Spec) -> Vec<(String, String)> {
    let mut settings = vec![
        ("device".to_owned(), spec.device.path().display().to_string()),
        ("kind".to_owned(), spec.device.kind().to_string()),
        ("direction".to_owned(), spec.device.direction().to_string()),
        ("length".to_owned(), spec.length.to_string()),
        ("design".to_owned(), spec.design.about().name.to_owned()),
    ];
    settings.extend(spec.design.values());
    settings
}

/// How it is measured.
fn asked(args: &IopsArgs, spec: &Spec, unbound: Option<String>) -> Vec<(String, String)> {
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "none".into());
    let cores =
        args.cpu.as_ref().map_or_else(weir::affinity::allowed_cores, |Cores(cores)| cores.clone());
    let cores: Vec<String> = cores.iter().map(usize::to_string).collect();
    [
        ("time", format!("{:?}", spec.time)),
        ("warm-up", format!("{:?}", spec.warm_up)),
        ("interval", or_none(spec.interval.map(|every| format!("{every:?}")))),
        ("ios-max", or_none(spec.ios.map(|ios| ios.to_string()))),
        ("sample-every", spec.sample_every.to_string()),
        ("errors-max", spec.errors_max.to_string()),
        ("control", or_none(args.control.clone())),
        ("cpu", unbound.unwrap_or_else(|| cores.join(","))),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

fn code_of_error(error: &anyhow::Error) -> u8 {
    match error.downcast_ref::<weir::Error>() {
        Some(error) => code_of(error),
        None if error.is::<Usage>() => USAGE,
        None => FAILED,
    }
}

/// The exit code that says the same as an error of a device, or of its path.
pub fn code_of(error: &weir::Error) -> u8 {
    match error {
        weir::Error::Option { .. }
        | weir::Error::UnknownName { .. }
        | weir::Error::Refused { .. } => USAGE,
        weir::Error::Unavailable(_) => UNAVAILABLE,
        // Of the path: nothing else is looked for by a name.
        weir::Error::Io { source, .. } if source.kind() == ErrorKind::NotFound => USAGE,
        _ => FAILED,
    }
}

/// The document of a run that was not even tried.
pub fn failure(reason: &str, ndjson: bool) -> String {
    shown::refusal::<Found>(reason, ndjson)
}
