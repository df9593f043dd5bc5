//! `weir compare iops`: every design for devices that can run here, reading the same, or writing, side by side.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use weir::device::{Device, Direction, Kind, MOST_LENGTH, NAMES, Reads};
use weir_lab::device::experiment;
use weir_lab::device::fio::{self, Fio};
use weir_lab::device::plan::{DEVICE, DEVICE_FOR_FIO, Load, MOST_DELAY, QUICK_S, STANDARD_S};
use weir_lab::device::processes::Processes;
use weir_lab::device::results::Results;
use weir_lab::device::rows::{self, title};
use weir_lab::experiment::descriptors;
use weir_lab::experiment::plan::{Row, Settings};
use weir_lab::iops::{self, LEAST_BESIDE};
use weir_lab::machine::Machine;
use weir_load::quantity::{parse_size, parse_time};

use super::EXIT_CODES;
use super::common::{CommonArgs, OfAll, Planned, depth, parse_time_given};
use super::context::Context;
use super::part::Part;
use crate::cores::Cores;
use crate::exit::Failure;
use crate::iops::code_of;

/// Options of `weir compare iops`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXIT_CODES)]
pub struct IopsArgs {
    #[arg(help = format!(
        "What to read, as for `weir iops`; each is a separate load [default: {DEVICE}{}]",
        DEVICE_FOR_FIO.map_or(String::new(), |zeroes| format!(", with --fio also {zeroes}"))
    ))]
    path: Vec<PathBuf>,

    #[arg(long, conflicts_with_all = ["delay", "fio"], help = format!(
        "Write zeroes instead of reading: only to {}, which discard them", NAMES.writable
    ))]
    write: bool,

    /// Design with its options, such as "ring --depth 64"; repeatable [default: every design once, rings also
    /// with other depths and batches].
    #[arg(long)]
    design: Vec<String>,

    /// Bytes per I/O (k = 1024).
    #[arg(
        short, long, visible_alias = "bs", value_parser = parse_size, value_delimiter = ',',
        default_value = "4096"
    )]
    length: Vec<usize>,

    /// How long each read takes, up to 200ms, as in 0,1us,10us,100us: a load for each, on a device made of timers. For
    /// each length, the report says where designs overtake plain reads.
    #[arg(long, value_parser = parse_time, value_delimiter = ',', conflicts_with = "path")]
    delay: Vec<Duration>,

    /// Read this path although it is not known to be harmless (a character device, or a file on a special
    /// file system); reading may have side effects.
    #[arg(long, value_name = "PATH")]
    device: Vec<PathBuf>,

    /// Also run fio, from the PATH: its synchronous engines, and its ring with registered files and buffers,
    /// 128 outstanding in one batch. fio refuses sources that return nothing, such as the null device.
    #[arg(long)]
    fio: bool,

    /// A first look: every design once, and too few rounds for intervals and verdicts.
    #[arg(long, conflicts_with = "sweep")]
    quick: bool,

    /// Each design that keeps I/Os outstanding with 1 to 1024 of them. --dry-run says how long it takes.
    #[arg(long, conflicts_with = "design")]
    sweep: bool,

    /// At the end, run each row once more for this long (at least 3 s), to see whether its rate declines. It takes
    /// turns with plain reads, so that a change of the machine is not taken for one of the design; their turns are
    /// extra (a fifth of the whole).
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    over_time: Option<Duration>,

    #[arg(short = 't', long, value_parser = parse_time_given, help = format!(
        "Total time [default: {STANDARD_S}s, with --quick {QUICK_S}s; with --rounds, or with more loads or rows than \
         usual, as long as their rounds take: see --dry-run]. If given, it is a limit: nothing that does not fit is \
         begun, and the results are written when it is over. The long runs of --over-time are extra"
    ))]
    time: Option<Duration>,

    /// Cores that each run is bound to: 0 or 2,3 or 4-7 [default: all that this process may use].
    #[arg(long)]
    cpu: Option<Cores>,

    #[command(flatten)]
    pub(super) common: CommonArgs,
}

impl IopsArgs {
    /// What a comparison of all kinds has of it.
    pub fn of_all(of: &OfAll) -> Self {
        Self { quick: of.quick, time: of.time, common: of.common.clone(), ..super::defaults() }
    }

    fn direction(&self) -> Direction {
        if self.write { Direction::Write } else { Direction::Read }
    }
}

/// Compares them.
pub fn compare(args: &IopsArgs, context: &Context) -> Result<Part, Failure> {
    let loads = loads(args)?;
    let settings = settings(args)?;
    for load in &loads {
        can_be_opened(load, &args.device)?;
    }
    let fio = args.fio.then(Fio::find);
    let rows = rows(args, fio.as_ref())?;
    let program = super::program()?;
    let mut results = Results::new(context.command.clone(), Machine::watch_for_ios(), rows, loads);
    results.own.fio = fio.and_then(Result::ok);
    results.own.long_run = args.over_time;
    results.own.cores = cores(args)?;
    if results.machine.unbound().is_some() {
        // fio would refuse to run; the header and a warning say so.
        results.own.cores.clear();
    }
    let warnings = descriptors::heed(&mut results, weir_load::tcp::descriptors());
    let (cores, direction) = (results.own.cores.clone(), args.direction());
    let named = args.device.iter().map(|path| path.display().to_string()).collect();
    let (common, places) = (&args.common, String::new());
    let planned = Planned { results, settings, common, context, places, title, warnings };
    planned.make(|results, settings, making| {
        let (interrupt, display) = (making.interrupt.clone(), &mut making.display);
        let mut bench = Processes::new(program, cores, named, direction, interrupt, making.tell)
            .logging_performance(common.logged_every());
        experiment::run(&mut bench, results, settings, &mut |progress| {
            display.show(&progress, title)
        });
        Ok(())
    })
}

fn loads(args: &IopsArgs) -> Result<Vec<Load>, Failure> {
    if let Some(length) = args.length.iter().find(|length| **length > MOST_LENGTH) {
        return Err(Failure::usage(format!(
            "I/Os (--length) of {length} bytes; allowed: 0 to {MOST_LENGTH}"
        )));
    }
    let mut devices: Vec<String> = vec![];
    for path in &args.path {
        let text = path.to_str().ok_or_else(|| {
            Failure::usage(format!(
                "{} is not valid UTF-8 and cannot be written to a document",
                path.display()
            ))
        })?;
        if Device::is_of_this_process(path) {
            return Err(Failure::usage(format!(
                "{text:?} cannot be compared: each run is a separate process, which does not have this \
                 one's open files"
            )));
        }
        devices.push(text.into());
    }
    if devices.is_empty() && args.delay.is_empty() {
        devices.push(DEVICE.into());
        devices.extend(DEVICE_FOR_FIO.filter(|_| args.fio).map(String::from));
    }
    let mut loads: Vec<Load> = vec![];
    for length in &args.length {
        let delayed = args.delay.iter().map(|delay| Load::delayed(*delay, *length));
        let of_paths = devices.iter().map(|device| Load::of_text(device, *length));
        for load in delayed.chain(of_paths) {
            let load = load.of(args.direction());
            if !loads.contains(&load) {
                loads.push(load);
            }
        }
    }
    Ok(loads)
}

/// What must not be read or written to, or cannot be, is told before anything runs.
fn can_be_opened(load: &Load, named: &[PathBuf]) -> Result<(), Failure> {
    if let Some(delay) = load.delay().filter(|delay| *delay > MOST_DELAY) {
        return Err(Failure::usage(format!(
            "reads that take {delay:?}; allowed: 0 to {MOST_DELAY:?}, so that the longest run lasts for \
             several of them"
        )));
    }
    if weir::device::availability().is_err() {
        return Ok(());
    }
    let device = iops::open(load.device.as_ref(), named, load.direction)
        .map_err(|error| Failure { code: code_of(&error), message: error.to_string() })?;
    // One that the kernel makes up, which was named, tells no size.
    let made_up = named.iter().any(|name| name == device.path());
    if device.kind() == Kind::File && device.bytes() == 0 && !made_up {
        return Err(Failure::usage(format!(
            "{} is empty, so reads return nothing; name a file with content",
            load.device
        )));
    }
    Ok(Reads::of(&device).length(load.length).check()?)
}

fn settings(args: &IopsArgs) -> Result<Settings, Failure> {
    if let Some(time) = args.over_time
        && time < LEAST_BESIDE
    {
        return Err(Failure::usage(format!(
            "an --over-time of {time:?}; allowed: {LEAST_BESIDE:?} or more, so that there are enough turns"
        )));
    }
    Ok(Settings {
        depth: depth(args.quick, args.sweep),
        rounds: args.common.rounds,
        budget_s: args.time.map(|time| time.as_secs_f64()),
        is_bound: args.time.is_some(),
    })
}

/// The rows: designs, fio, and one of the designs twice.
fn rows(args: &IopsArgs, fio: Option<&Result<Fio, String>>) -> Result<Vec<Row>, Failure> {
    let mut rows = match args.design.is_empty() {
        true => rows::all(depth(args.quick, args.sweep)),
        false => rows::of_texts(&args.design).map_err(Failure::usage)?,
    };
    if let Some(found) = fio {
        rows::add_as_fio(&mut rows);
        rows.extend(fio::rows(found));
    }
    rows::heed(&mut rows, args.direction());
    rows::add_again(&mut rows);
    Ok(rows)
}

/// The cores that runs are bound to; none where they are not.
fn cores(args: &IopsArgs) -> Result<Vec<usize>, Failure> {
    let asked = args.cpu.as_ref().map(|Cores(cores)| cores.clone()).unwrap_or_default();
    let allowed = weir::affinity::allowed_cores();
    match asked.iter().find(|core| !allowed.contains(core)) {
        Some(core) => Err(Failure::usage(format!(
            "this process may not use core {core}; it may use {allowed:?}"
        ))),
        None => Ok(asked),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(words: &[&str]) -> IopsArgs {
        crate::compare::parsed(words).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    fn devices(words: &[&str]) -> Vec<String> {
        super::loads(&args(words)).unwrap().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_device_and_length_is_a_load_once() {
        let with = |devices: &[&str]| -> Vec<String> {
            devices.iter().map(|device| format!("{device}, 4096 B")).collect()
        };
        assert_eq!(devices(&[]), with(&[DEVICE]));
        let both: Vec<&str> = std::iter::once(DEVICE).chain(DEVICE_FOR_FIO).collect();
        assert_eq!(devices(&["--fio"]), with(&both));
        assert_eq!(devices(&["--fio", "/dev/zero", "-l", "512,4k,512"]).len(), 2);
        assert_eq!(
            devices(&["--delay", "0,10us", "-l", "8"]),
            ["a device that takes 0ns, 8 B", "a device that takes 10µs, 8 B"]
        );
        assert_eq!(devices(&["--write"]), [format!("{DEVICE}, 4096 B, writes")]);
        let written_otherwise = ["timer:10us", "timer:0.01ms", "timer:soon"];
        assert_eq!(devices(&written_otherwise).len(), 2, "what is no delay is refused later");
    }

    #[test]
    fn a_design_is_added_once_more_and_fio_is_there_where_it_is_asked_for() {
        let of = |words: &[&str], fio: Option<&Result<Fio, String>>| -> Vec<String> {
            rows(&args(words), fio).unwrap().iter().map(title).collect()
        };
        let words = ["--design", "sync-empty", "--design", "sync"];
        let found = Ok(Fio { version: "fio-3".into() });
        assert_eq!(
            of(&words, Some(&found))[2..6],
            ["fio sync", "fio psync", "fio pvsync2", "fio io_uring"]
        );
        if weir::device::availability().is_ok() {
            assert_eq!(of(&words, None), ["sync-empty", "sync", "sync (again)"]);
        }
    }

    #[test]
    fn a_file_without_a_byte_is_refused() {
        if weir::device::availability().is_err() {
            return;
        }
        let path = std::env::temp_dir().join(format!("weir-empty-{}", std::process::id()));
        std::fs::File::create(&path).unwrap();
        let refused = can_be_opened(&Load::new(path.display().to_string(), 512), &[]);
        std::fs::write(&path, "something").unwrap();
        let read = can_be_opened(&Load::new(path.display().to_string(), 512), &[]);
        std::fs::remove_file(&path).unwrap();
        let failure = refused.unwrap_err();
        assert_eq!(failure.code, crate::exit::USAGE);
        assert!(failure.message.contains("is empty"), "{}", failure.message);
        assert!(read.is_ok());
    }

    #[test]
    fn nothing_is_written_to_but_what_throws_it_away() {
        if weir::device::availability().is_err() {
            return;
        }
        let of = |path: &str| Load::new(path, 512).of(Direction::Write);
        assert!(can_be_opened(&of(DEVICE), &[]).is_ok());
        for path in ["/dev/full", "/dev/urandom", "/proc/self/comm"] {
            let failure = can_be_opened(&of(path), &[path.into()]).unwrap_err();
            assert_eq!(failure.code, crate::exit::USAGE);
            assert!(failure.message.contains("weir writes only to"), "{}", failure.message);
        }
    }

    #[test]
    fn what_makes_no_sense_is_said() {
        for (words, said) in [(&["-"][..], "separate process"), (&["-l", "1g"], "allowed: 0 to")] {
            let failure = super::loads(&args(words)).unwrap_err();
            assert!(failure.message.contains(said), "{words:?}: {}", failure.message);
        }
        let failure = super::settings(&args(&["--over-time", "2s"])).unwrap_err();
        assert!(failure.message.contains("3s or more"), "{}", failure.message);
    }
}
