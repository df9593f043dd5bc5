//! Whether some peers starve 1000 others: for each TCP design the latency of those others, without the former and
//! beside them. The former are one that floods, or 1000 that never read, or 1000 that read slowly.
//!
//! ```text
//! cargo build --release -p weir-cli
//! cargo run --release -p weir-cli --example fairness -- \
//!     [--beside flood|stuck|slow] [--rounds N] [--seconds S] [DESIGN...]
//! ```
//!
//! Those whose latency is taken send 2 messages of 64 bytes a second each, at times that are fixed beforehand, so what
//! waits for its turn is clocked from when it was due. The flood is one connection with 8 messages of 64 KB under
//! way, as fast as the server answers. A peer that is stuck sends until nothing goes and reads nothing; one that is slow
//! does so too, and reads 4 KiB every 100 ms, each at a time of its own. The server has the first core, all clients have
//! the last one, where the flood's, the stuck ones' or the slow ones' has what the others leave (nice 19): so what they
//! wait for is the server, but for the system call in which that client may be when an answer comes. Rounds alternate
//! without and with them; the figures are the medians of the rounds.

mod common;

use std::{
    io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr},
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use common::{Server, designs, number};
use serde_json::Value;
use socket2::{Domain, Socket, Type};

/// Connections whose latency is taken, and what is sent over all of them.
const TAKEN: &str = "1000";
const MESSAGES_PER_S: &str = "2000";
/// Peers that are stuck or slow.
const MANY: usize = 1000;
/// What a slow one reads, and how often.
const SLOW_BYTES: usize = 4096;
const SLOW_EVERY: Duration = Duration::from_millis(100);
/// How many read at a time: were it all of them at once, every tenth of a second would begin with a queue of 1000.
const SLOW_AT_ONCE: usize = 10;
/// What the others may cost at the 99th percentile, as a ratio.
const GOAL: f64 = 3.0;

/// Who else is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beside {
    Flood,
    Stuck,
    Slow,
}

impl Beside {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "flood" => Ok(Beside::Flood),
            "stuck" => Ok(Beside::Stuck),
            "slow" => Ok(Beside::Slow),
            _ => Err(format!("{text:?} is none of flood, stuck, slow")),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Beside::Flood => "flood",
            Beside::Stuck => "stuck",
            Beside::Slow => "slow",
        }
    }
}

/// What this program is when it was started by itself: many peers that are stuck or slow, until its input ends. Says
/// when each of them has sent what goes.
fn be(who: Beside, port: u16) -> Result<(), String> {
    let to = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let peer = |_| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.set_recv_buffer_size(SLOW_BYTES)?;
        socket.set_send_buffer_size(4 * SLOW_BYTES)?;
        socket.connect(&to.into())?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    };
    let peers: std::io::Result<Vec<Socket>> = (0..MANY).map(peer).collect();
    let mut peers = peers.map_err(|e| format!("connecting to {to}: {e}"))?;
    let would_block =
        |e: &std::io::Error| matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted);
    let send_what_goes = |peers: &mut [Socket]| {
        let (bytes, mut sent) = ([0; 4 * SLOW_BYTES], 0);
        for peer in peers {
            loop {
                match peer.write(&bytes) {
                    Ok(count) => sent += count,
                    Err(e) if would_block(&e) => break,
                    Err(e) => return Err(format!("sending: {e}")),
                }
            }
        }
        Ok(sent)
    };
    // It takes a while until the server receives from none of them any more.
    let mut in_vain = 0;
    while in_vain < 20 {
        in_vain = if send_what_goes(&mut peers)? == 0 { in_vain + 1 } else { 0 };
        thread::sleep(Duration::from_millis(10));
    }
    println!("ready");
    let over = thread::spawn(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink()));
    if who == Beside::Stuck {
        over.join().ok();
        return Ok(());
    }
    let mut bytes = [0; SLOW_BYTES];
    let mut next = Instant::now();
    while !over.is_finished() {
        for some in peers.chunks_mut(SLOW_AT_ONCE) {
            for peer in &mut *some {
                match peer.read(&mut bytes) {
                    Ok(0) => return Err("the server has closed a connection".into()),
                    Ok(_) => {}
                    Err(e) if would_block(&e) => {}
                    Err(e) => return Err(format!("receiving: {e}")),
                }
            }
            send_what_goes(some)?;
            next += SLOW_EVERY * SLOW_AT_ONCE as u32 / MANY as u32;
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    }
    Ok(())
}

/// Starts them.
fn start(who: Beside, port: &str) -> Result<Child, String> {
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut child = Command::new("nice")
        .args(["-n", "19", "taskset", "-c", &common::last_core()])
        .arg(program)
        .args(["--be", who.name(), port])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| e.to_string())?;
    let mut ready = String::new();
    let mut lines = BufReader::new(child.stdout.take().expect("piped"));
    lines.read_line(&mut ready).map_err(|e| e.to_string())?;
    if ready != "ready\n" {
        return Err(end(child).expect_err("it was not ready"));
    }
    Ok(child)
}

/// Ends them: none of them may have been closed before.
fn end(mut child: Child) -> Result<(), String> {
    drop(child.stdin.take());
    let output = child.wait_with_output().map_err(|e| e.to_string())?;
    let errors = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("the peers beside: {errors}")) }
}

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

/// What one run shows: p50 and p99, and bytes per second of the flood.
struct Run {
    p50_us: f64,
    p99_us: f64,
    flood_bytes_per_s: f64,
}

fn run(design: &str, seconds: u64, beside: Option<Beside>) -> Result<Run, String> {
    let server = Server::start(design, &["--echo"])?;
    // The flood begins before what is measured and ends behind it.
    let (omit, time) = ("2", (seconds + 2).to_string());
    let longer = (seconds + 5).to_string();
    let others = beside.filter(|&who| who != Beside::Flood);
    let others = others.map(|who| start(who, &server.port)).transpose()?;
    let flood = (beside == Some(Beside::Flood))
        .then(|| {
            let words = ["-c", "1", "-b", "64k", "-o", "8", "-t", &longer];
            load_behind_others(&server.port, &words).spawn()
        })
        .transpose()
        .map_err(|e| e.to_string())?;
    let taken = load(
        &server.port,
        &["-c", TAKEN, "-b", "64", "--messages-per-s", MESSAGES_PER_S, "-O", omit, "-t", &time],
    )
    .output()
    .map_err(|e| e.to_string());
    let flood = flood.map(Child::wait_with_output).transpose().map_err(|e| e.to_string())?;
    others.map(end).transpose()?;
    let taken = document(&taken?)?;
    let flood_bytes_per_s = match flood {
        None => 0.0,
        Some(flood) => {
            let flood = document(&flood)?;
            let bits = flood["report"]["window"]["bits_per_second_received"].as_f64();
            bits.ok_or("the flood's document says nothing")? / 8.0
        }
    };
    let us = |name: &str| {
        let ns = taken["report"]["latency_ns"][name].as_f64();
        ns.map(|ns| ns / 1e3).ok_or_else(|| format!("no percentile {name} in {taken}"))
    };
    Ok(Run { p50_us: us("p50")?, p99_us: us("p99")?, flood_bytes_per_s })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Result<(), String> {
    let (mut rounds, mut seconds, mut asked, mut beside) = (3, 3, Vec::new(), Beside::Flood);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--be" => {
                let who = Beside::parse(&arguments.next().unwrap_or_default())?;
                return be(who, number(&argument, &mut arguments, 1, 65_535)? as u16);
            }
            "--beside" => beside = Beside::parse(&arguments.next().unwrap_or_default())?,
            "--rounds" => rounds = number(&argument, &mut arguments, 1, 100)?,
            "--seconds" => seconds = number(&argument, &mut arguments, 1, 600)?,
            _ => asked.push(argument),
        }
    }
    let designs = if asked.is_empty() { designs()? } else { asked };
    let others = match beside {
        Beside::Flood => "one that floods".to_owned(),
        Beside::Stuck => format!("{MANY} that never read"),
        Beside::Slow => format!("{MANY} that read slowly"),
    };
    println!(
        "{TAKEN} connections, {MESSAGES_PER_S} messages/s in all, alone and beside {others}; {rounds} rounds of \
         {seconds} s"
    );
    println!(
        "design              p50 us    p99 us   beside others: p50       p99   ratio of p99   flood MB/s"
    );
    for design in designs {
        let (mut alone, mut together) = (Vec::new(), Vec::new());
        let mut failure = None;
        for _ in 0..rounds {
            for (beside, runs) in [(None, &mut alone), (Some(beside), &mut together)] {
                match run(&design, seconds, beside) {
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
        let (p99, with) = (of(&alone, |run| run.p99_us), of(&together, |run| run.p99_us));
        let ratio = with / p99;
        println!(
            "{design:<16}  {:>8.0}  {p99:>8.0}   {:>18.0}  {with:>8.0}   {ratio:>6.2} {}  {:>10.0}",
            of(&alone, |run| run.p50_us),
            of(&together, |run| run.p50_us),
            if ratio <= GOAL { "within" } else { "BEYOND" },
            of(&together, |run| run.flood_bytes_per_s) / 1e6,
        );
    }
    Ok(())
}
