//! The comparison: the same server on each kind of socket, under the same loads, in processes of their own.
//!
//! Rounds in which each row runs once under each load, in random order. Ratios are of pairs within a round, to the first row;
//! the first row runs twice under two names, and what those two differ by is noise.

use crate::{keep_to, load::Measured};
use anyhow::Context as _;
use clap::Args;
use serde::{Deserialize, Serialize};
use std::{
    io::{BufRead as _, BufReader, Read as _},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
};

/// What is compared, and how often.
#[derive(Debug, Args)]
pub struct Options {
    /// A row: flags of `serve`, the first without --on ("batch --sends at-once"); the first row is what others are compared with
    #[arg(long = "row", default_values = ROWS)]
    rows: Vec<String>,
    /// A load: download, upload, requests, ping
    #[arg(long = "load", default_values = LOADS.each_ref().map(|load| load.name), value_parser = load)]
    loads: Vec<&'static Load>,
    /// Rounds
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Seconds of each run that are measured
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=60))]
    seconds: u32,
    /// Core of the server
    #[arg(long, default_value_t = 0)]
    server_cpu: usize,
    /// Core of the client
    #[arg(long, default_value_t = 1)]
    client_cpu: usize,
    /// quinn's own client, `quinn-perf`, in the place of `weir-quic load`. It has one connection, without a time before what
    /// is measured, and what it did is taken from the server's report
    #[arg(long, value_name = "PROGRAM")]
    quinn_perf: Option<PathBuf>,
    /// Write every run to this file, as JSON
    #[arg(long)]
    json: Option<PathBuf>,
}

const ROWS: [&str; 8] = [
    "quinn-udp",
    "batch",
    "batch --receive posted",
    "batch --sends at-once",
    "batch --spin-us 50",
    "batch --tell thread",
    "uring",
    "uring --tell thread",
];

/// What a client does.
#[derive(Debug)]
struct Load {
    name: &'static str,
    /// Flags of `weir-quic load`, and of quinn's client.
    flags: &'static str,
    of_quinn_perf: &'static str,
    /// What it is compared by, so many a second.
    unit: Unit,
    figure: fn(&Measured) -> f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Unit {
    Megabyte,
    Request,
}

/// A run of some seconds may not see the end of a large one: its bytes are what counts.
static LOADS: [Load; 4] = [
    Load {
        name: "download",
        flags: "--requests 1 --download 4294967296 --upload 0 --by-time",
        of_quinn_perf: "--bi-requests 1 --download-size 4294967296 --upload-size 0",
        unit: Unit::Megabyte,
        figure: |measured| measured.download_bytes_per_s / 1e6,
    },
    Load {
        name: "upload",
        flags: "--requests 1 --download 0 --upload 4294967296 --by-time",
        of_quinn_perf: "--bi-requests 1 --download-size 0 --upload-size 4294967296",
        unit: Unit::Megabyte,
        figure: |measured| measured.upload_bytes_per_s / 1e6,
    },
    Load {
        name: "requests",
        flags: "--connections 16 --requests 4 --download 1000 --upload 100",
        of_quinn_perf: "--bi-requests 64 --download-size 1000 --upload-size 100",
        unit: Unit::Request,
        figure: |measured| measured.requests_per_s,
    },
    Load {
        name: "ping",
        flags: "--requests 1 --download 100 --upload 100",
        of_quinn_perf: "--bi-requests 1 --download-size 100 --upload-size 100",
        unit: Unit::Request,
        figure: |measured| measured.requests_per_s,
    },
];

fn load(name: &str) -> Result<&'static Load, String> {
    let names = || LOADS.each_ref().map(|load| load.name).join(", ");
    let found = LOADS.iter().find(|load| load.name == name);
    found.ok_or_else(|| format!("there is no such load; there are: {}", names()))
}

/// For how much longer than it is asked quinn's client goes on, so that it can tell of the last second.
const QUINN_PERF_GOES_ON_S: f64 = 0.2;

/// A run.
#[derive(Debug, Serialize)]
struct Run {
    round: u32,
    row: String,
    load: &'static str,
    client: Measured,
    server: Server,
    /// What the load is compared by: MB/s, or requests/s.
    figure: f64,
    /// Of the server: µs of CPU for each MB, or for each request.
    cpu_us_each: Option<f64>,
}

/// What is read of a server's report.
#[derive(Debug, Serialize, Deserialize)]
struct Server {
    requests: u64,
    bytes_received: u64,
    bytes_sent: u64,
    cpu_s: Option<f64>,
    cpu_system_s: Option<f64>,
    datagrams_received: Option<u64>,
    datagrams_sent: Option<u64>,
    kernel_entries: Option<u64>,
}

/// A process that ends with this value.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn run(options: &Options) -> anyhow::Result<()> {
    let program = std::env::current_exe().context("finding this program")?;
    let first = options.rows.first().context("--row: name at least one")?;
    // The first twice: what the two differ by is noise.
    let again = format!("{first} (again)");
    let mut rows: Vec<(&str, &str)> = options.rows.iter().map(|row| (&**row, &**row)).collect();
    rows.insert(1, (&again, first));
    let mut runs = Vec::new();
    for round in 0..options.rounds {
        let each = |load| rows.iter().map(move |row| (load, row));
        let mut order: Vec<(&Load, _)> = options.loads.iter().copied().flat_map(each).collect();
        shuffle(&mut order)?;
        for (load, (name, flags)) in order {
            let (client, server) = one(&program, flags, load, options)
                .with_context(|| format!("{name} under {}", load.name))?;
            let (figure, cpu_us_each) = ((load.figure)(&client), server.cpu_us_each(load.unit));
            eprintln!("round {} {}: {name}: {figure:.0}", round + 1, load.name);
            let (row, load) = ((*name).to_owned(), load.name);
            runs.push(Run { round, row, load, client, server, figure, cpu_us_each });
        }
    }
    if let Some(path) = &options.json {
        std::fs::write(path, serde_json::to_vec_pretty(&runs)?)
            .with_context(|| format!("writing {}", path.display()))?;
    }
    for load in &options.loads {
        print(load, first, rows.iter().map(|(name, _)| *name), &runs);
    }
    Ok(())
}

impl Server {
    /// What it did in this time, where the client says too little of it.
    fn measured(&self, seconds: f64) -> Measured {
        Measured {
            seconds,
            requests: self.requests,
            requests_per_s: self.requests as f64 / seconds,
            download_bytes_per_s: self.bytes_sent as f64 / seconds,
            upload_bytes_per_s: self.bytes_received as f64 / seconds,
            ..Measured::default()
        }
    }

    /// How many of these it moved or answered.
    fn count(&self, unit: Unit) -> f64 {
        match unit {
            Unit::Megabyte => (self.bytes_sent + self.bytes_received) as f64 / 1e6,
            Unit::Request => self.requests as f64,
        }
    }

    fn cpu_us_each(&self, unit: Unit) -> Option<f64> {
        let count = self.count(unit);
        self.cpu_s.filter(|_| count > 0.0).map(|cpu_s| cpu_s * 1e6 / count)
    }
}

/// One run: a server is started, loaded, and stopped.
fn one(
    program: &Path,
    row: &str,
    load: &Load,
    options: &Options,
) -> anyhow::Result<(Measured, Server)> {
    let mut server = Command::new(program);
    server.args(["serve", "--listen", "127.0.0.1:0", "--until-eof", "--grace-s", "0", "--cpu"]);
    server.arg(options.server_cpu.to_string()).arg("--on").args(row.split_whitespace());
    let server = server.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut server = Process(server.spawn().context("starting the server")?);
    let mut output = BufReader::new(server.0.stdout.take().context("its output")?);
    let mut line = String::new();
    output.read_line(&mut line).context("reading what the server says")?;
    let address = line.split_whitespace().nth(2).filter(|_| line.starts_with("listening on "));
    let address =
        address.context("the server did not start: run `weir-quic serve` with its flags")?;
    let mut client = match &options.quinn_perf {
        None => {
            let mut client = Command::new(program);
            client.args(["load", "--connect", address]).args(load.flags.split(' '));
            client.args(["--cpu", &options.client_cpu.to_string()]);
            client.args(["--seconds", &options.seconds.to_string()]);
            client
        }
        Some(quinn_perf) => {
            let mut client = Command::new(quinn_perf);
            let at = address.replacen("127.0.0.1", "localhost", 1);
            client.args(["client", &at, "--ip", "127.0.0.1"]).args(load.of_quinn_perf.split(' '));
            client.args(["--duration", &options.seconds.to_string()]);
            client
        }
    };
    let loaded = output_on(options.client_cpu, client.stderr(Stdio::inherit()))?;
    anyhow::ensure!(loaded.status.success(), "the client failed: {}", loaded.status);
    drop(server.0.stdin.take());
    let mut report = String::new();
    output.read_to_string(&mut report).context("reading the server's report")?;
    anyhow::ensure!(server.0.wait()?.success(), "the server failed");
    let server: Server = serde_json::from_str(&report).context("the server's report")?;
    let measured = match options.quinn_perf {
        None => serde_json::from_slice(&loaded.stdout).context("what the client measured")?,
        Some(_) => server.measured(f64::from(options.seconds) + QUINN_PERF_GOES_ON_S),
    };
    Ok((measured, server))
}

/// Runs a program on this core, which it need not have a flag for: it is kept to what the thread is kept to that starts it.
fn output_on(core: usize, program: &mut Command) -> anyhow::Result<Output> {
    let run = || {
        keep_to(Some(core)).context("--client-cpu")?;
        program.output().with_context(|| format!("running {}", program.get_program().display()))
    };
    thread::scope(|scope| scope.spawn(run).join().expect("it does not panic"))
}

fn shuffle<X>(all: &mut [X]) -> anyhow::Result<()> {
    for end in (1..all.len()).rev() {
        let random = getrandom::u64().map_err(|e| anyhow::anyhow!("no random number: {e}"))?;
        // So few of them that no place is likelier to speak of.
        all.swap(end, (random % (end as u64 + 1)) as usize);
    }
    Ok(())
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let count = values.len();
    match count {
        0 => None,
        _ if count % 2 == 1 => Some(values[count / 2]),
        _ => Some((values[count / 2 - 1] + values[count / 2]) / 2.0),
    }
}

/// Ratios of a row to the first, of the pairs of each round: the least, the median, and the most.
fn ratios(
    runs: &[&Run],
    row: &str,
    first: &str,
    of: impl Fn(&Run) -> Option<f64>,
) -> Option<[f64; 3]> {
    let of_row = |name: &str, round| {
        runs.iter().find(|run| run.row == name && run.round == round).and_then(|run| of(run))
    };
    let rounds = runs.iter().map(|run| run.round).max()? + 1;
    let pairs = (0..rounds).filter_map(|round| Some(of_row(row, round)? / of_row(first, round)?));
    let pairs: Vec<f64> = pairs.collect();
    let least = pairs.iter().copied().reduce(f64::min)?;
    let most = pairs.iter().copied().reduce(f64::max)?;
    Some([least, median(pairs)?, most])
}

fn print<'a>(load: &Load, first: &str, rows: impl Iterator<Item = &'a str>, runs: &[Run]) {
    let runs: Vec<&Run> = runs.iter().filter(|run| run.load == load.name).collect();
    let unit = if load.unit == Unit::Megabyte { "MB" } else { "request" };
    println!(
        "\n{}\n\n| sockets | {unit}s/s, median | ratio, median of pairs | from | to | CPU µs/{unit} | ratio | latency p50 µs | p99 | entries/{unit} |",
        load.name
    );
    println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    for row in rows {
        let of_row = |of: &dyn Fn(&Run) -> Option<f64>| {
            median(runs.iter().filter(|run| run.row == row).filter_map(|run| of(run)).collect())
        };
        let [least, middle, most] = ratios(&runs, row, first, |run| Some(run.figure))
            .map_or([None; 3], |all| all.map(Some));
        let cpu = ratios(&runs, row, first, |run| run.cpu_us_each).map(|[_, middle, _]| middle);
        let entries =
            |run: &Run| Some(run.server.kernel_entries? as f64 / run.server.count(load.unit));
        let cells = [
            (of_row(&|run| Some(run.figure)), 0),
            (middle, 3),
            (least, 3),
            (most, 3),
            (of_row(&|run| run.cpu_us_each), 1),
            (cpu, 3),
            (of_row(&|run| run.client.latency_median_us.map(|us| us as f64)), 0),
            (of_row(&|run| run.client.latency_p99_us.map(|us| us as f64)), 0),
            (of_row(&entries), 2),
        ];
        let told = |(value, digits): (Option<f64>, usize)| {
            value.map_or_else(|| "-".into(), |value| format!("{value:.digits$}"))
        };
        println!("| {row} | {} |", cells.map(told).join(" | "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_the_middle_or_between_the_two() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn ratios_are_of_pairs_within_a_round() {
        let server = r#"{"requests":1,"bytes_received":0,"bytes_sent":0}"#;
        let run = |round, row: &str, figure| Run {
            round,
            row: row.into(),
            load: "ping",
            client: Measured::default(),
            server: serde_json::from_str(server).unwrap(),
            figure,
            cpu_us_each: None,
        };
        let runs = [
            run(0, "a", 10.0),
            run(0, "b", 20.0),
            run(1, "a", 100.0),
            run(1, "b", 110.0),
            run(2, "b", 7.0), // without its pair
        ];
        let runs: Vec<_> = runs.iter().collect();
        let [least, middle, most] = ratios(&runs, "b", "a", |run| Some(run.figure)).unwrap();
        assert_eq!((least, most), (1.1, 2.0));
        assert!((middle - 1.55).abs() < 1e-9);
        assert!(ratios(&runs, "b", "a", |run| run.cpu_us_each).is_none());
    }

    #[test]
    fn there_is_a_load_of_each_name_and_no_other() {
        assert!(LOADS.iter().all(|its| load(its.name).is_ok_and(|found| found.flags == its.flags)));
        assert!(load("flood").unwrap_err().contains("there are: download"));
    }
}
