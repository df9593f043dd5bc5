//! `weir compare`: every design that can run here, under the same load, side by side.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use weir::socket::MOST_BUSY_POLL;
use weir_lab::bench::processes::Processes;
use weir_lab::child::Interrupt;
use weir_lab::experiment::{self, Progress, Settings};
use weir_lab::machine::Machine;
use weir_lab::plan::{
    self, Depth, Load, Rate, Row, Work,
    rows::{self, Breadth},
};
use weir_lab::random::fresh_seed;
use weir_lab::report::number::{percent, si};
use weir_lab::report::{json, table};
use weir_lab::results::Results;
use weir_load::quantity::{parse_percent, parse_rate, parse_size, parse_time};

use crate::cores::Cores;
use crate::exit::{self, Failure};

/// What a caller may rely on.
const EXIT_CODES: &str = "\
Exit codes: 0 success; 1 it failed or was interrupted; 2 wrong usage; 3 complete, but a row \
failed its check, a run failed, or its data or ledger are wrong; 5 no design can run here.";

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// UDP servers.
    Udp,
}

/// Options of `weir compare`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct CompareArgs {
    /// What to compare.
    #[arg(value_enum, default_value = "udp")]
    kind: Kind,

    /// Design with its options, such as "rio-hybrid --threads 2"; may be given several times
    /// [default: every design once, on its best provider, with at most as many threads as the
    /// server has cores].
    #[arg(long)]
    design: Vec<String>,

    /// A first look in half a minute: saturation only, too few rounds for intervals.
    #[arg(long, conflicts_with = "full")]
    quick: bool,

    /// Every load, every variant of every design, and more rounds; takes about 40 minutes.
    #[arg(long)]
    full: bool,

    /// Each design on each of its providers, on one thread and on its own number of threads; takes
    /// about 5 minutes.
    #[arg(long, conflicts_with = "design")]
    variants: bool,

    /// Time that it may take in all [default: 110s, with --quick 30s, with --variants 5m, with
    /// --full 40m].
    #[arg(short = 't', long, value_parser = parse_time)]
    time: Option<std::time::Duration>,

    /// Payload of a datagram in bytes (k = 1024).
    #[arg(short = 'l', long, default_value = "64", value_parser = parse_size)]
    length: usize,

    /// Work per datagram: this many and one steps of a pseudo-random generator; shared:500 makes
    /// them on state that all threads share under a lock.
    #[arg(long, default_value_t)]
    work: Work,

    /// Flows of the generator.
    #[arg(short = 'P', long, default_value_t = 1)]
    parallel: u16,

    /// Receive buffer to ask for, in bytes (k = 1024) [default: the system's].
    #[arg(long, value_parser = parse_size)]
    rcvbuf: Option<usize>,

    /// Paced load besides saturation, in datagrams per second (k = 1000) or as a share of each
    /// design's own maximum: 50k or 75%; may be given several times.
    #[arg(long, value_parser = parse_pace)]
    pace: Vec<Pace>,

    /// Generator without segmentation offload.
    #[arg(long)]
    no_send_offload: bool,

    /// Servers with receive offload (UDP_GRO): several datagrams of one sender and one size come as
    /// one. Such figures are compared among themselves only.
    #[arg(long)]
    receive_offload: bool,

    /// Servers whose sockets poll the queue of their device for so long before they wait, such as 50us;
    /// may need CAP_NET_ADMIN. Such figures are compared among themselves only. On loopback there is
    /// nothing to poll, and the report says so.
    #[arg(long, value_parser = parse_polling)]
    busy_poll: Option<u64>,

    /// A load may end early once every verdict is given and half of every 95 % interval is at most
    /// this share of its figure.
    #[arg(long, default_value = "5%", value_parser = parse_percent)]
    confidence: f64,

    /// Cores of the server: 0 or 2,3 or 4-7 [default: the first ones, at most 8].
    #[arg(long)]
    server_cpu: Option<Cores>,

    /// Core of the generator [default: the last one].
    #[arg(long)]
    generator_cpu: Option<usize>,

    /// Seed of the order, to have it again.
    #[arg(long)]
    seed: Option<u64>,

    /// Print every command before it is started.
    #[arg(short, long)]
    verbose: bool,

    /// Print the plan and run nothing.
    #[arg(long)]
    dry_run: bool,

    /// One document on standard output instead of the table: all figures with every sample.
    #[arg(short = 'J', long)]
    json: bool,
}

/// A paced load, as written.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Pace(Rate);

fn parse_pace(text: &str) -> Result<Pace, String> {
    match text.ends_with('%') {
        true => Ok(Pace(Rate::OfMaximum(parse_percent(text)?))),
        false => Ok(Pace(Rate::PerSecond(parse_rate(text)?.round().max(1.0) as u64))),
    }
}

/// How long sockets poll, in microseconds.
fn parse_polling(text: &str) -> Result<u64, String> {
    let time = parse_time(text)?;
    match u64::try_from(time.as_micros()) {
        Ok(us) if us > 0 && time <= MOST_BUSY_POLL => Ok(us),
        _ => Err(format!("{text:?} is not allowed; allowed: 1us to {MOST_BUSY_POLL:?}")),
    }
}

/// Width of the report where there is no terminal: all columns of a table beside each other.
const WIDTH_WITHOUT_TERMINAL: usize = 205;
/// Most cores that the server is given unless told otherwise.
const MOST_SERVER_CORES: usize = 8;

/// Seconds for every variant of every design, with the loads of the default.
const VARIANTS_BUDGET_S: f64 = 300.0;

/// Runs `weir compare`.
pub fn run(args: &CompareArgs) -> ExitCode {
    let command = crate::arguments();
    match compare(args, &command) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            if args.json {
                crate::print(&format!("{:#}\n", json::failure(&command, &failure.message)));
            }
            eprintln!("weir compare: {}", failure.message);
            ExitCode::from(failure.code)
        }
    }
}

fn compare(args: &CompareArgs, command: &[String]) -> Result<u8, Failure> {
    let Kind::Udp = args.kind;
    let interrupt = Interrupt::new();
    let raised = interrupt.clone();
    ctrlc::set_handler(move || raised.raise())
        .map_err(|error| Failure::failed(format!("cannot heed Ctrl-C: {error}")))?;

    let (server_cores, generator_core) = cores(args)?;
    let breadth = match args.variants || args.full {
        true => Breadth::Variants,
        false => Breadth::Designs { cores: server_cores.len() },
    };
    let mut rows = match args.design.is_empty() {
        true => rows::all(breadth),
        false => rows::of_texts(&args.design).map_err(Failure::usage)?,
    };
    let again = rows::preferred_again(&rows);
    plan::add_again(&mut rows, again);
    let depth = depth(args);
    let loads = loads(args, depth)?;

    let mut results = Results::new(command.to_vec(), Machine::watch(), rows, loads);
    results.seed = args.seed.unwrap_or_else(fresh_seed);
    results.asked_half_width = args.confidence;
    results.server_cores = server_cores.clone();
    results.generator_cores = vec![generator_core];
    if server_cores.contains(&generator_core) {
        results.warnings.push(format!(
            "server and generator share core {generator_core}: rates say little about either"
        ));
    }
    let of_variants = (args.variants && depth == Depth::Standard).then_some(VARIANTS_BUDGET_S);
    let budget_s = args.time.map(|time| time.as_secs_f64()).or(of_variants);
    let settings = Settings { depth, budget_s };
    eprint!("{}", effective(&results, &settings));
    if args.dry_run {
        if args.json {
            crate::print_results(&format!("{:#}\n", json::plan(&results)))?;
        }
        return Ok(exit::OK);
    }
    let program = std::env::current_exe()
        .map_err(|error| Failure::failed(format!("cannot find the executable itself: {error}")))?;
    let tell: Option<fn(&str)> = args.verbose.then_some(|command| eprintln!("\n{command}"));
    let mut bench = Processes::new(program, server_cores, Some(generator_core), interrupt, tell);
    let mut display = Display { terminal: std::io::stderr().is_terminal(), width: 0 };
    experiment::run(&mut bench, &mut results, &settings, &mut |progress| display.show(&progress));
    display.clear();
    let printed = match args.json {
        true => crate::print_results(&format!("{:#}\n", json::document(&results))),
        false => crate::print_results(&table::report(&results, width())),
    };
    if printed.is_err() {
        // What took minutes to measure is not lost with it.
        eprint!("{}", table::report(&results, width()));
    }
    printed.map(|()| experiment::exit_code(&results))
}

fn depth(args: &CompareArgs) -> Depth {
    match (args.quick, args.full) {
        (true, _) => Depth::Quick,
        (_, true) => Depth::Full,
        _ => Depth::Standard,
    }
}

fn loads(args: &CompareArgs, depth: Depth) -> Result<Vec<Load>, Failure> {
    const MOST_BYTES: usize = weir_load::stamp::DATAGRAM_BYTES_MAX;
    if args.length > MOST_BYTES {
        return Err(Failure::usage(format!(
            "a datagram of {} bytes is too long; a UDP datagram carries at most {MOST_BYTES}",
            args.length
        )));
    }
    let base = Load {
        work: args.work,
        flows: args.parallel.max(1),
        receive_offload: args.receive_offload,
        send_offload: !args.no_send_offload,
        rcvbuf_bytes: args.rcvbuf.map(|bytes| bytes as u64),
        busy_poll_us: args.busy_poll,
        ..Load::saturation(args.length as u32)
    };
    if args.pace.is_empty() {
        return Ok(plan::loads(depth, base));
    }
    let paced = args.pace.iter().map(|Pace(rate)| base.at(*rate));
    Ok(std::iter::once(base).chain(paced).collect())
}

/// The server's cores and the generator's: the last core is the generator's, the server has
/// the others.
fn cores(args: &CompareArgs) -> Result<(Vec<usize>, usize), Failure> {
    let allowed = weir::affinity::allowed_cores();
    let known = |core: &usize| allowed.contains(core);
    let asked = args.server_cpu.iter().flat_map(|Cores(cores)| cores).chain(&args.generator_cpu);
    if let Some(core) = asked.into_iter().find(|core| !known(core)) {
        return Err(Failure::usage(format!(
            "core {core} is not one that this process may use; there are {allowed:?}"
        )));
    }
    let server_asked = args.server_cpu.as_ref().map(|Cores(cores)| cores.clone());
    let last_free = |taken: &[usize]| {
        allowed.iter().rev().find(|core| !taken.contains(core)).or(allowed.last()).copied()
    };
    let generator = match args.generator_cpu {
        Some(core) => core,
        None => last_free(server_asked.as_deref().unwrap_or(&[])).unwrap_or(0),
    };
    let server = server_asked.unwrap_or_else(|| {
        let others: Vec<usize> = allowed
            .iter()
            .copied()
            .filter(|core| *core != generator)
            .take(MOST_SERVER_CORES)
            .collect();
        if others.is_empty() { vec![generator] } else { others }
    });
    Ok((server, generator))
}

/// The effective settings, before anything runs.
fn effective(results: &Results, settings: &Settings) -> String {
    let budget = settings.budget_s.unwrap_or_else(|| settings.depth.budget_s());
    let mut text = format!(
        "compares {} rows in about {budget:.0} s: server on core {:?}, generator on core {:?}, \
         intervals of ±{} asked for, seed {}\n",
        results.rows.len(),
        results.server_cores,
        results.generator_cores,
        percent(results.asked_half_width),
        results.seed
    );
    for load in &results.loads {
        text.push_str(&format!("  load: {load}\n"));
    }
    for row in &results.rows {
        let reason = row.unavailable.as_ref().map(|reason| format!(" ({reason})"));
        text.push_str(&format!("  row: {row}{}\n", reason.unwrap_or_default()));
    }
    text
}

/// Progress on standard error: one line that changes on a terminal, else a line for what is
/// worth keeping in a log.
struct Display {
    terminal: bool,
    /// Characters of the line that stands there.
    width: usize,
}

impl Display {
    fn show(&mut self, progress: &Progress) {
        match progress {
            Progress::Calibrated(calibration) => self.keep(&format!(
                "the generator sends at most {} datagrams/s",
                si(calibration.sent_per_s)
            )),
            Progress::Checking(row) => self.change(&format!("checks {row}")),
            Progress::Dropped(row, reason) => self.keep(&format!("{row} is left out: {reason}")),
            Progress::Load(load, schedule) => self.keep(&format!(
                "{load}: {} rounds, runs of {} ms",
                schedule.rounds, schedule.run_ms
            )),
            Progress::Run { number, of, row } => {
                self.change(&format!("[{number}/{of}] {row}"));
            }
            Progress::Failed(row, reason) => self.keep(&failed(row, reason)),
        }
    }

    fn keep(&mut self, line: &str) {
        self.clear();
        eprintln!("{line}");
    }

    fn change(&mut self, line: &str) {
        if self.terminal {
            self.clear();
            eprint!("{line}");
            let _ = std::io::stderr().flush();
            self.width = line.chars().count();
        }
    }

    fn clear(&mut self) {
        if self.width > 0 {
            eprint!("\r{:width$}\r", "", width = self.width);
            self.width = 0;
        }
    }
}

fn failed(row: &Row, reason: &str) -> String {
    format!("{row} failed: {reason}")
}

fn width() -> usize {
    let terminal = std::io::stdout().is_terminal().then(terminal_size::terminal_size).flatten();
    terminal.map_or(WIDTH_WITHOUT_TERMINAL, |(width, _)| usize::from(width.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_of_polling_has_limits() {
        assert_eq!(parse_polling("50us"), Ok(50));
        assert_eq!(parse_polling("1ms"), Ok(1000));
        assert!(parse_polling("0").is_err() && parse_polling("2").is_err());
    }

    #[test]
    fn a_pace_is_a_rate_or_a_share() {
        assert_eq!(parse_pace("50k"), Ok(Pace(Rate::PerSecond(50_000))));
        assert_eq!(parse_pace("75%"), Ok(Pace(Rate::OfMaximum(0.75))));
        assert!(
            parse_pace("0").is_err() && parse_pace("150%").is_err() && parse_pace("x").is_err()
        );
    }
}
