//! Whether one flooding peer starves 1000 slow ones: for each TCP design the latency of the slow ones, without
//! the flood and with it.
//!
//! ```text
//! cargo build --release -p weir-cli
//! cargo run --release -p weir-cli --example fairness -- [--rounds N] [--seconds S] [DESIGN...]
//! ```
//!
//! The slow ones send 2 messages of 64 bytes a second each, at times that are fixed beforehand, so what waits
//! for its turn is clocked from when it was due. The flood is one connection with 8 messages of 64 KB under
//! way, as fast as the server answers. The server has the first core, both clients have the last one, where
//! the flood's client competes with the slow ones' for time: so what is told is an upper bound of what the
//! server does. Rounds alternate without and with the flood; the figures are the medians of the rounds.

use std::{
    io::{BufRead, BufReader, Read},
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    thread,
    time::Duration,
};

use serde_json::Value;

/// Slow connections, and what they send over all of them.
const SLOW: &str = "1000";
const MESSAGES_PER_S: &str = "2000";
/// What the flood may cost the slow ones at the 99th percentile, as a ratio.
const GOAL: f64 = 3.0;

fn weir() -> Command {
    // The examples lie in a folder beside the program.
    let mut path: PathBuf = std::env::current_exe().expect("this program has a path");
    path.pop();
    path.pop();
    Command::new(path.join("weir"))
}

/// A server that is ended when dropped.
struct Server {
    child: Child,
    port: String,
}

impl Server {
    fn start(design: &str) -> Result<Self, String> {
        let mut child = weir()
            .args(["serve", "tcp", "--bind", "127.0.0.1:0", "--json", "--echo", "--cpu", "0"])
            .args(["--interval", "0", "--end-with-input", "--design", design])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| {
                format!("weir cannot be started ({e}): build it with the same profile first")
            })?;
        let mut line = String::new();
        let mut lines = BufReader::new(child.stdout.take().expect("piped"));
        lines.read_line(&mut line).map_err(|e| e.to_string())?;
        let ready: Value = serde_json::from_str(&line).map_err(|e| format!("{e} in {line:?}"))?;
        let Some(address) = ready["ready"]["addresses"][0].as_str() else {
            return Err(ready["reason"].to_string());
        };
        let port = address.rsplit(':').next().expect("a port").to_owned();
        // Its report is of no use here; it must be able to write it.
        thread::spawn(move || lines.read_to_string(&mut String::new()));
        Ok(Self { child, port })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

fn load(port: &str, core: &str, more: &[&str]) -> Command {
    let mut command = weir();
    command
        .args(["load", "tcp", "127.0.0.1", "--json", "--interval", "0", "--cpu", core, "-p", port])
        .args(more)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn document(output: &Output) -> Result<Value, String> {
    let errors = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(format!("{}: {errors}", output.status));
    }
    serde_json::from_slice(&output.stdout).map_err(|e| format!("{e}: {errors}"))
}

/// What one run shows: the slow ones' p50 and p99, and bytes per second of the flood.
struct Run {
    p50_us: f64,
    p99_us: f64,
    flood_bytes_per_s: f64,
}

fn run(design: &str, core: &str, seconds: u32, with_flood: bool) -> Result<Run, String> {
    let server = Server::start(design)?;
    // The flood begins before what is measured and ends behind it.
    let (omit, time) = ("2", (seconds + 2).to_string());
    let longer = (seconds + 5).to_string();
    let flood = with_flood
        .then(|| {
            load(&server.port, core, &["-c", "1", "-b", "64k", "-o", "8", "-t", &longer]).spawn()
        })
        .transpose()
        .map_err(|e| e.to_string())?;
    let slow = load(
        &server.port,
        core,
        &["-c", SLOW, "-b", "64", "--messages-per-s", MESSAGES_PER_S, "-O", omit, "-t", &time],
    )
    .output()
    .map_err(|e| e.to_string());
    let flood = flood.map(Child::wait_with_output).transpose().map_err(|e| e.to_string())?;
    let slow = document(&slow?)?;
    let flood_bytes_per_s = match flood {
        None => 0.0,
        Some(flood) => {
            let flood = document(&flood)?;
            let bits = flood["report"]["window"]["bits_per_second_received"].as_f64();
            bits.ok_or("the flood's document says nothing")? / 8.0
        }
    };
    let us = |name: &str| {
        let ns = slow["report"]["latency_ns"]["percentile"][name].as_f64();
        ns.map(|ns| ns / 1e3).ok_or_else(|| format!("no percentile {name} in {slow}"))
    };
    Ok(Run { p50_us: us("50")?, p99_us: us("99")?, flood_bytes_per_s })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The designs that can run here.
fn designs() -> Result<Vec<String>, String> {
    let output = weir().args(["designs", "--json"]).output().map_err(|e| e.to_string())?;
    let list = document(&output)?;
    let designs = list["tcp_designs"].as_array().ok_or("no TCP designs")?.iter();
    let runs = designs.filter(|design| design["status"] == "ok");
    Ok(runs.filter_map(|design| design["name"].as_str().map(str::to_owned)).collect())
}

fn main() -> Result<(), String> {
    let (mut rounds, mut seconds, mut asked) = (3_u32, 5_u32, Vec::new());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || {
            let text = arguments.next().ok_or_else(|| format!("{argument} needs a number"))?;
            text.parse::<u32>().map_err(|e| format!("{text:?}: {e}"))
        };
        match argument.as_str() {
            "--rounds" => rounds = number()?.clamp(1, 100),
            "--seconds" => seconds = number()?.clamp(1, 600),
            _ => asked.push(argument),
        }
    }
    let designs = if asked.is_empty() { designs()? } else { asked };
    let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let core = (cores - 1).to_string();
    println!(
        "{SLOW} slow connections, {MESSAGES_PER_S} messages/s in all; {rounds} rounds of {seconds} s"
    );
    println!(
        "design              p50 us    p99 us   with a flood: p50       p99   ratio of p99   flood MB/s"
    );
    for design in designs {
        let (mut alone, mut flooded) = (Vec::new(), Vec::new());
        let mut failure = None;
        for _ in 0..rounds {
            for (with_flood, runs) in [(false, &mut alone), (true, &mut flooded)] {
                match run(&design, &core, seconds, with_flood) {
                    Ok(run) => runs.push(run),
                    Err(why) => failure = Some(why),
                }
                // Ports in TIME_WAIT and threads that end are of the run before.
                thread::sleep(Duration::from_millis(200));
            }
        }
        if let Some(why) = failure {
            println!("{design:<16}  failed: {}", why.trim());
            continue;
        }
        let of = |runs: &[Run], value: fn(&Run) -> f64| median(runs.iter().map(value).collect());
        let (p99, with) = (of(&alone, |run| run.p99_us), of(&flooded, |run| run.p99_us));
        let ratio = with / p99;
        println!(
            "{design:<16}  {:>8.0}  {p99:>8.0}   {:>17.0}  {with:>8.0}   {ratio:>6.2} {}  {:>10.0}",
            of(&alone, |run| run.p50_us),
            of(&flooded, |run| run.p50_us),
            if ratio <= GOAL { "within" } else { "BEYOND" },
            of(&flooded, |run| run.flood_bytes_per_s) / 1e6,
        );
    }
    Ok(())
}
