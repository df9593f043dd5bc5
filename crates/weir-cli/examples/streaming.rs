//! Streaming in one direction: each TCP design as a sink beside iperf3, in interleaved rounds.
//!
//! ```text
//! cargo build --release -p weir-cli
//! cargo run --release -p weir-cli --example streaming -- [--rounds N] [--seconds S] [--connections N] [--kib N] [DESIGN...]
//! ```
//!
//! Both have a process that sends messages of 64 KiB on 4 connections as fast as it can, on the last core, and one
//! that receives up to as much at a time and drops it, on the first. iperf3 is as it is by default (`iperf3 -s`,
//! `iperf3 -c -P 4 -l 64K`); buffers of sockets are the system's for all. Neither makes or checks what it sends. A
//! second is left out at the beginning. What is counted is what the receivers have received: iperf3 says it itself, a server
//! of weir between the marks that its client's measurement begins and ends with. In each round everything
//! runs once, and begins one further on in the list; the ratio to iperf3 is taken within the round, and told with its
//! interval of 95 %. CPU is the receiver's.

mod common;

use std::{
    io::{BufRead, BufReader},
    net::TcpListener,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use common::{Server, designs, document, last_core, load, number};
use serde_json::Value;
use weir_lab::stats::{bootstrap::paired_ratio, median};

/// The row that all are compared with.
const IPERF3: &str = "iperf3";

/// What is sent.
struct Stream {
    seconds: u64,
    connections: u64,
    kib: u64,
}

/// What a receiver did.
#[derive(Clone, Copy)]
struct Run {
    bits_per_s: f64,
    /// CPU time of its process, as a share of a core.
    cpu: f64,
}

/// A process that is ended when dropped.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn of_weir(design: &str, stream: &Stream) -> Result<Run, String> {
    let bytes = format!("{}k", stream.kib);
    let mut server = Server::start(design, &["--buffer", &bytes])?;
    let (connections, time) = (stream.connections.to_string(), (stream.seconds + 1).to_string());
    let flags = ["--one-way", "--tell-phases", "-c", &connections, "-b", &bytes, "-t", &time];
    let mut client = load(&server.port, &flags)
        .args(["-O", "1", "-i", "0"])
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| e.to_string())?;
    let mut lines = BufReader::new(client.stdout.take().expect("piped"));
    let loaded = loop {
        let line = document(&mut lines)?;
        match line["phase"].as_str() {
            Some("began" | "ended") => server.say("mark")?,
            Some(_) => {}
            None => break line,
        }
    };
    client.wait().map_err(|e| e.to_string())?;
    if loaded["status"] != "ok" {
        return Err(loaded["reason"].to_string());
    }
    let report = server.end()?;
    let window = &report["window"];
    let of = |value: &Value| value.as_f64().ok_or_else(|| format!("no such figure in {window}"));
    let elapsed_ns = of(&window["elapsed_ns"])?;
    let received = of(&window["counters"]["bytes_received"])?;
    Ok(Run { bits_per_s: received * 8e9 / elapsed_ns, cpu: of(&window["cpu_ns"])? / elapsed_ns })
}

fn of_iperf3(stream: &Stream) -> Result<Run, String> {
    let missing = |e: std::io::Error| format!("iperf3 cannot be started ({e}): install it");
    // A port that is free now, and most likely still in a moment.
    let free = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    let port = free.map_err(|e| e.to_string())?.port().to_string();
    let server = Command::new("iperf3")
        .args(["-s", "-1", "--forceflush", "-A", "0", "-B", "127.0.0.1", "-p", &port])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(missing)?;
    let mut server = Ended(server);
    let mut lines = BufReader::new(server.0.stdout.take().expect("piped")).lines();
    let listens = |line: std::io::Result<String>| line.is_ok_and(|it| it.contains("listening"));
    if !lines.by_ref().any(listens) {
        return Err("iperf3 does not listen".into());
    }
    thread::spawn(move || lines.for_each(drop));
    let Stream { seconds, connections, kib } = stream;
    let output = Command::new("iperf3")
        .args(["-c", "127.0.0.1", "-p", &port, "-J", "-O", "1", "-A", &last_core()])
        .args(["-P", &connections.to_string(), "-l", &format!("{kib}K")])
        .args(["-t", &seconds.to_string()])
        .output()
        .map_err(missing)?;
    let document: Value = serde_json::from_slice(&output.stdout).map_err(|e| e.to_string())?;
    let end = &document["end"];
    let of = |value: &Value| value.as_f64().ok_or_else(|| document["error"].to_string());
    Ok(Run {
        bits_per_s: of(&end["sum_received"]["bits_per_second"])?,
        cpu: of(&end["cpu_utilization_percent"]["remote_total"])? / 100.0,
    })
}

fn main() -> Result<(), String> {
    let mut stream = Stream { seconds: 3, connections: 4, kib: 64 };
    let (mut rounds, mut rows) = (7, Vec::new());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = |most| number(&argument, &mut arguments, 1, most);
        match argument.as_str() {
            "--rounds" => rounds = number(100)?,
            "--seconds" => stream.seconds = number(600)?,
            "--connections" => stream.connections = number(1000)?,
            "--kib" => stream.kib = number(1024)?,
            _ => rows.push(argument),
        }
    }
    if rows.is_empty() {
        rows = designs()?;
    }
    rows.insert(0, IPERF3.into());
    let Stream { seconds, connections, kib } = stream;
    println!("{connections} connections, {kib} KiB, one way; {rounds} rounds of {seconds} s");
    let mut runs: Vec<Vec<Option<Run>>> = vec![Vec::new(); rows.len()];
    for round in 0..rounds as usize {
        for place in 0..rows.len() {
            let row = (round + place) % rows.len();
            let run = match rows[row].as_str() {
                IPERF3 => of_iperf3(&stream),
                design => of_weir(design, &stream),
            };
            runs[row].push(run.map_err(|why| eprintln!("{}: {}", rows[row], why.trim())).ok());
            // What a run leaves in the system is not the next one's.
            thread::sleep(Duration::from_millis(200));
        }
    }
    println!("received by              Gbit/s    CPU   of iperf3  95 % interval");
    for (row, its) in rows.iter().zip(&runs) {
        let of = |value: fn(&Run) -> f64| {
            median(&its.iter().flatten().map(value).collect::<Vec<_>>()).unwrap_or(f64::NAN)
        };
        let both = |(a, b): (&Option<Run>, &Option<Run>)| {
            Some((a.as_ref()?.bits_per_s, b.as_ref()?.bits_per_s))
        };
        let pairs: Vec<_> = its.iter().zip(&runs[0]).filter_map(both).collect();
        let ratio = paired_ratio(&pairs, 0.95, 1).filter(|_| row != IPERF3);
        let ratio = ratio.map_or(String::new(), |ratio| {
            let interval = ratio.interval.map_or("too few rounds for one".into(), |interval| {
                format!("{:.2} to {:.2}", interval.low, interval.high)
            });
            format!("{:>9.2}  {interval}", ratio.median)
        });
        println!(
            "{row:<22} {:>8.2} {:>6.2}  {ratio}",
            of(|run| run.bits_per_s) / 1e9,
            of(|run| run.cpu),
        );
    }
    Ok(())
}
