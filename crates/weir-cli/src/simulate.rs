//! `weir simulate`: a model of the UDP designs on many cores.

use std::io::{IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use clap::builder::{PathBufValueParser, PossibleValuesParser, TypedValueParser as _};
use weir_lab::report::html::{files_of_simulation, page_of_simulation};
use weir_lab::saved::Saved;
use weir_lab::simulate::calibrate::calibrate;
use weir_lab::simulate::costs::{Costs, Table};
use weir_lab::simulate::report::{Document, MODEL, SCHEMA, Settings};
use weir_lab::simulate::{
    Copies, Course, Design, MOST_THREADS, Plan, check, predict, simulate_all,
};
use weir_load::quantity::{parse_count, parse_rate, parse_time};

use crate::exit::{self, Failure};
use crate::{compare::output, width::width};

/// Predict how the UDP designs do on many cores: a model, not a measurement.
///
/// A simulation of each design's threads, locks and wake-ups. Its decisions (who has the queue, who is woken, when the
/// hybrid lets another thread join) are made by the library's own code; its costs were measured, on this machine or
/// elsewhere. It says which design overtakes which, from which load on and on how many cores, and how far it is off a
/// measured comparison. Datagrams arrive at random (Poisson); protocol processing is on other cores.
///
/// The same costs and seed give the same figures. Exit codes: 0 success; 1 it failed, or a file cannot be
/// written; 2 wrong usage, or a file that cannot be read; 5 costs cannot be measured here (give them with --costs).
#[derive(Debug, Args)]
pub struct SimulateArgs {
    /// Design; repeatable [default: all that the model has].
    #[arg(long, value_delimiter = ',', value_parser = PossibleValuesParser::new(Design::ALL.map(Design::name)))]
    design: Vec<String>,

    /// Cores of the server, 1 to 256.
    #[arg(long, value_delimiter = ',', value_parser = parse_count, default_value = "1,2,4,8,16,32,64")]
    cores: Vec<u64>,

    /// Datagrams offered in a second (k = 1000), up to 1000M.
    #[arg(long, value_delimiter = ',', value_parser = parse_rate, default_value = "50k,500k,1M,2M,5M,10M,20M,50M,100M")]
    load: Vec<f64>,

    /// Work of each datagram on state that all threads share, under its lock, at most 1ms.
    #[arg(long, value_delimiter = ',', value_parser = parse_time, default_value = "0,100ns,500ns,2us")]
    shared_work: Vec<Duration>,

    /// Other work of each datagram, at most 1ms.
    #[arg(long, value_parser = parse_time, default_value = "0")]
    work: Duration,

    /// Who copies a datagram: the thread that dequeues, as on plain sockets, or the network stack beforehand, as with
    /// RIO and AF_XDP.
    #[arg(long, value_delimiter = ',', value_parser = PossibleValuesParser::new(Copies::ALL.map(Copies::name)),
        default_value = "thread,stack")]
    copies: Vec<String>,

    /// Threads that handle datagrams, 1 to 256; a reader is one more [default: as many as cores].
    #[arg(long, value_parser = parse_count)]
    threads: Option<u64>,

    /// Datagrams that all sockets together can hold.
    #[arg(long, value_parser = parse_count, default_value = "16384")]
    buffer: u64,

    /// Flows, which rio-sharded spreads over its sockets by a hash.
    #[arg(long, value_parser = parse_count, default_value = "1024")]
    flows: u64,

    /// Datagrams that arrive at once.
    #[arg(long, value_parser = parse_count, default_value = "1")]
    train: u64,

    /// Most datagrams of one dequeue, or of one take of port-batch.
    #[arg(long, value_parser = parse_count, default_value = "1000")]
    dequeue_max: u64,

    /// Datagrams in one dequeue at which the hybrid lets another thread join.
    #[arg(long, value_parser = parse_count, default_value = "666")]
    threshold: u64,

    /// How long the hybrid polls after the last datagram.
    #[arg(long, value_parser = parse_time, default_value = "50us")]
    spin: Duration,

    /// About how many datagrams each row simulates, 1000 to 1M: more are steadier and slower.
    #[arg(long, value_parser = parse_count, default_value = "20k")]
    datagrams: u64,

    /// Seed of the traffic.
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Costs as --calibrate writes them [default: measured now].
    #[arg(long, value_name = "FILE", conflicts_with = "calibrate")]
    costs: Option<PathBuf>,

    /// Only measure the costs on this machine, and print them as TOML.
    #[arg(long)]
    calibrate: bool,

    /// Say how far the model is off this result of `weir compare udp`: a document, its folder or its report. Each row is
    /// simulated as it ran; options of load, cores and threads do not apply.
    #[arg(long, value_name = "REPORT", conflicts_with_all = ["calibrate", "plots"])]
    check: Option<PathBuf>,

    /// Show every row, not only those for the first and last value of each list.
    #[arg(long)]
    all: bool,

    /// One document on standard output.
    #[arg(short = 'J', long, conflicts_with = "calibrate")]
    json: bool,

    /// Print the JSON schema of that document, and do nothing else.
    #[arg(long, conflicts_with_all = ["calibrate", "check"])]
    schema: bool,

    /// Write the result (with --calibrate the costs, as TOML) to a file: .html, .csv or .json by the ending of its name;
    /// repeatable.
    #[arg(short, long, value_name = "FILE", value_parser = PathBufValueParser::new().try_map(parse_output))]
    output: Vec<PathBuf>,

    /// Write each picture into this folder as an SVG file.
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["calibrate", "schema"])]
    plots: Option<PathBuf>,
}

/// Characters of a line at most: sentences on longer ones are hard to read.
const READABLE: usize = 100;

/// Most bytes of a file of costs.
const MOST_COSTS_BYTES: u64 = 1 << 20;

fn parse_output(path: PathBuf) -> Result<PathBuf, String> {
    match ending(&path) {
        "html" | "csv" | "json" | "toml" => Ok(path),
        _ => Err("its name must end in .html, .csv or .json, with --calibrate in .toml".into()),
    }
}

fn ending(path: &Path) -> &str {
    path.extension().and_then(|ending| ending.to_str()).unwrap_or_default()
}

/// Runs `weir simulate`.
pub fn run(args: &SimulateArgs) -> ExitCode {
    match attempt(args) {
        Ok(()) => ExitCode::from(exit::OK),
        Err(failed) => {
            if args.json {
                crate::print(&format!("{}\n", failure(&failed)));
            }
            say!("weir simulate: {}", failed.message);
            ExitCode::from(failed.code)
        }
    }
}

/// Version of the document. 2: the percentile 99.9 of a latency is `p99_9`, where it was `p999`.
const SCHEMA_VERSION: u32 = 2;

/// The document of a simulation that failed.
fn failure(failed: &Failure) -> serde_json::Value {
    serde_json::json!({
        "schema_version": SCHEMA_VERSION,
        "kind": "simulation",
        "command": crate::arguments(),
        "status": "failed",
        "reason": failed.message,
    })
}

fn attempt(args: &SimulateArgs) -> Result<(), Failure> {
    if args.schema {
        return crate::print_results(SCHEMA);
    }
    let is_toml = |path: &&PathBuf| ending(path) == "toml";
    if args.calibrate {
        if let Some(other) = args.output.iter().find(|path| !is_toml(path)) {
            let path = other.display();
            return Err(Failure::usage(format!(
                "{path}: costs are written as TOML; give it a name that ends in .toml"
            )));
        }
        output_is_possible(args)?;
        let table = calibrate()?;
        args.output.iter().try_for_each(|path| output::write(path, &table.to_toml()))?;
        return if args.output.is_empty() {
            crate::print_results(&table.to_toml())
        } else {
            Ok(())
        };
    }
    if let Some(path) = args.output.iter().find(is_toml) {
        return Err(Failure::usage(format!(
            "{}: only costs are written as TOML; add --calibrate",
            path.display()
        )));
    }
    // What is wrong in a plan is said before anything is measured.
    let plan = plan(args)?;
    let courses = plan.courses().map_err(Failure::usage)?;
    output_is_possible(args)?;
    let measured = args.check.as_deref().map(Saved::open).transpose().map_err(Failure::usage)?;
    let table = match &args.costs {
        Some(path) => costs_of(path)?,
        None => {
            say!(
                "Measuring the costs here; `weir simulate --calibrate -o costs.toml` keeps them for --costs."
            );
            calibrate()?
        }
    };
    let costs = Costs::of(&table).map_err(Failure::usage)?;
    let check = match &measured {
        Some(saved) => {
            let refuse = |why| Failure::usage(format!("{}: {why}", saved.path.display()));
            Some(check::check(&saved.document, &costs, args.seed).map_err(refuse)?)
        }
        None => None,
    };
    let rows = match check {
        Some(_) => vec![],
        None => simulate_all(&courses, &costs, progress),
    };
    let crossings = predict::crossings(&rows);
    let course = plan.course;
    let document = Document {
        schema_version: SCHEMA_VERSION,
        kind: "simulation".into(),
        model: MODEL.into(),
        command: crate::arguments(),
        status: "completed".into(),
        seed: args.seed,
        answers: predict::answers(&crossings),
        costs: table,
        settings: Settings {
            buffer_datagrams: course.buffer,
            flows: course.flows,
            train_datagrams: course.train,
            dequeue_max: course.dequeue_max,
            threshold: course.threshold,
            spin_us: course.spin_us,
            own_work_ns: course.own_work_ns,
        },
        crossings,
        rows,
        check,
    };
    give(args, &document)
}

/// That files can be written where they are asked for, before anything is measured or computed.
fn output_is_possible(args: &SimulateArgs) -> Result<(), Failure> {
    args.output.iter().try_for_each(|path| output::can_be_written(path))?;
    let Some(folder) = &args.plots else { return Ok(()) };
    // The nearest that is there is what the rest is to be made in.
    match folder.ancestors().find(|above| above.exists()) {
        Some(above) if !above.is_dir() => Err(Failure::failed(format!(
            "--plots {}: {} is not a folder; give another place",
            folder.display(),
            above.display()
        ))),
        _ => Ok(()),
    }
}

/// Writes and prints what came out.
fn give(args: &SimulateArgs, document: &Document) -> Result<(), Failure> {
    let json = || serde_json::to_string_pretty(document).map_err(Failure::failed);
    for path in &args.output {
        let text = match ending(path) {
            "html" => page_of_simulation(document),
            "csv" => document.csv().map_err(Failure::failed)?,
            _ => json()? + "\n",
        };
        output::write(path, &text)?;
    }
    if let Some(folder) = &args.plots {
        output::write_all(folder, &files_of_simulation(document))?;
    }
    match args.json {
        true => crate::print_report(&(json()? + "\n")),
        false => crate::print_report(&document.text(args.all, width().min(READABLE))),
    }
}

fn plan(args: &SimulateArgs) -> Result<Plan, Failure> {
    let designs = args.design.iter().filter_map(|name| Design::named(name)).collect::<Vec<_>>();
    let ns = |time: Duration| time.as_secs_f64() * 1e9;
    let size = |name: &str, count: u64| {
        usize::try_from(count).map_err(|_| Failure::usage(format!("--{name} {count} is too many")))
    };
    let number = |name: &str, count: u64| {
        u32::try_from(count).map_err(|_| Failure::usage(format!("--{name} {count} is too many")))
    };
    if let Some(threads) = args.threads.filter(|of| !(1..=MOST_THREADS as u64).contains(of)) {
        return Err(Failure::usage(format!(
            "--threads {threads} cannot be simulated; ask for 1 to {MOST_THREADS}, or leave it out for as many as cores"
        )));
    }
    let course = Course {
        threads: size("threads", args.threads.unwrap_or(0))?,
        own_work_ns: ns(args.work),
        buffer: size("buffer", args.buffer)?,
        flows: number("flows", args.flows)?,
        train: number("train", args.train)?,
        dequeue_max: size("dequeue-max", args.dequeue_max)?,
        threshold: args.threshold,
        spin_us: ns(args.spin) / 1000.0,
        datagrams: args.datagrams,
        ..Course::default()
    };
    Ok(Plan {
        designs: if designs.is_empty() { Design::ALL.to_vec() } else { once_each(designs) },
        copies: once_each(args.copies.iter().filter_map(|name| Copies::named(name)).collect()),
        cores: once_each(
            args.cores.iter().map(|&cores| size("cores", cores)).collect::<Result<_, _>>()?,
        ),
        loads: distinct(args.load.clone()),
        shared_work_ns: distinct(args.shared_work.iter().map(|&time| ns(time)).collect()),
        course,
        seed: args.seed,
    })
}

fn once_each<T: Ord>(mut all: Vec<T>) -> Vec<T> {
    all.sort_unstable();
    all.dedup();
    all
}

fn distinct(mut all: Vec<f64>) -> Vec<f64> {
    all.sort_by(f64::total_cmp);
    all.dedup();
    all
}

/// The costs in a file.
fn costs_of(path: &Path) -> Result<Table, Failure> {
    let refuse = |why: &dyn std::fmt::Display| Failure::usage(format!("{}: {why}", path.display()));
    let unread = |error| {
        Failure::usage(format!(
            "cannot read {}: {error}; name a file that `weir simulate --calibrate -o costs.toml` wrote, or leave --costs \
             out, and the costs are measured now",
            path.display()
        ))
    };
    let file = std::fs::File::open(path).map_err(unread)?;
    let mut text = String::new();
    // What is no plain file does not say how long it is.
    file.take(MOST_COSTS_BYTES + 1).read_to_string(&mut text).map_err(unread)?;
    if text.len() as u64 > MOST_COSTS_BYTES {
        return Err(refuse(
            &"it is larger than any table of costs; `weir simulate --calibrate` writes one",
        ));
    }
    let table = Table::parse(&text).map_err(|error| refuse(&error))?;
    Costs::of(&table).map_err(|error| refuse(&error))?;
    Ok(table)
}

/// How far it is, where somebody sees it.
fn progress(done: usize, all: usize) {
    if std::io::stderr().is_terminal() {
        let end = if done == all { "\r\x1b[K" } else { "" };
        say_on!("\r{done} of {all} rows{end}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: SimulateArgs,
    }

    fn plan_of(words: &[&str]) -> Result<Plan, String> {
        let line = Line::try_parse_from(["weir"].iter().chain(words)).map_err(|e| e.to_string())?;
        plan(&line.args).map_err(|failure| failure.message)
    }

    #[test]
    fn lists_are_read_sorted_and_without_what_stands_twice() {
        let plan = plan_of(&[
            "--cores",
            "8,1,8",
            "--load",
            "2M,50k",
            "--shared-work",
            "2us,0",
            "--design",
            "port,rio-port",
        ])
        .unwrap();
        assert_eq!((plan.cores, plan.loads), (vec![1, 8], vec![50e3, 2e6]));
        assert_eq!(
            (plan.shared_work_ns, plan.designs),
            (vec![0.0, 2000.0], vec![Design::Port, Design::RioPort])
        );
    }

    #[test]
    fn by_default_all_designs_are_simulated_on_1_to_64_cores() {
        let plan = plan_of(&[]).unwrap();
        assert_eq!(plan.designs, Design::ALL);
        assert_eq!((plan.cores.first(), plan.cores.last()), (Some(&1), Some(&64)));
        assert_eq!(plan.loads.last(), Some(&1e8));
        plan.courses().unwrap();
    }

    #[test]
    fn what_is_unknown_is_refused() {
        for words in
            [["--design", "select"], ["--copies", "nobody"], ["--load", "0"], ["-o", "model.xls"]]
        {
            assert!(plan_of(&words).is_err(), "{words:?}");
        }
        assert!(plan_of(&["--flows", "5000M"]).is_err());
        for threads in ["0", "257", "999"] {
            let refused = plan_of(&["--threads", threads]).unwrap_err();
            assert!(refused.contains("ask for 1 to 256"), "{refused}");
        }
        assert_eq!(plan_of(&["--threads", "256"]).unwrap().course.threads, 256);
    }
}
