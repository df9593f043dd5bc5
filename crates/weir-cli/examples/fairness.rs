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
//! the flood's client has what the slow ones' leave (nice 19): so what they wait for is the server, but for the
//! system call in which the flood's client may be when an answer comes. Rounds alternate without and with the
//! flood; the figures are the medians of the rounds.

mod common;

use std::{
    process::{Child, Command, Output, Stdio},
    thread,
    time::Duration,
};

use common::{Server, designs, number};
use serde_json::Value;

/// Slow connections, and what they send over all of them.
const SLOW: &str = "1000";
const MESSAGES_PER_S: &str = "2000";
/// What the flood may cost the slow ones at the 99th percentile, as a ratio.
const GOAL: f64 = 3.0;

/// A load that says nothing before its report.
fn load(port: &str, more: &[&str]) -> Command {
    let mut command = common::load(port, &["--interval", "0"]);
    command.args(more).stderr(Stdio::piped());
    command
}

/// The same that takes its core from nobody.
fn load_behind_others(port: &str, more: &[&str]) -> Command {
    let load = load(port, more);
    let mut command = Command::new("nice");
    command.args(["-n", "19"]).arg(load.get_program()).args(load.get_args());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
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

fn run(design: &str, seconds: u64, with_flood: bool) -> Result<Run, String> {
    let server = Server::start(design, &["--echo"])?;
    // The flood begins before what is measured and ends behind it.
    let (omit, time) = ("2", (seconds + 2).to_string());
    let longer = (seconds + 5).to_string();
    let flood = with_flood
        .then(|| {
            let words = ["-c", "1", "-b", "64k", "-o", "8", "-t", &longer];
            load_behind_others(&server.port, &words).spawn()
        })
        .transpose()
        .map_err(|e| e.to_string())?;
    let slow = load(
        &server.port,
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

fn main() -> Result<(), String> {
    let (mut rounds, mut seconds, mut asked) = (3, 3, Vec::new());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--rounds" => rounds = number(&argument, &mut arguments, 1, 100)?,
            "--seconds" => seconds = number(&argument, &mut arguments, 1, 600)?,
            _ => asked.push(argument),
        }
    }
    let designs = if asked.is_empty() { designs()? } else { asked };
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
                match run(&design, seconds, with_flood) {
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
