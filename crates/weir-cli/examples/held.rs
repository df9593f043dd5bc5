//! How many connections a TCP design holds, and what one costs: many that each echo once in a while, and what
//! the server and the kernel have in memory for them.
//!
//! ```text
//! cargo build --release -p weir-cli
//! cargo run --release -p weir-cli --example held -- [--connections N] [--every S] [--time S] [DESIGN...]
//! ```
//!
//! Without arguments it is `ring` and `epoll` with 15,000 connections each, which is about what a process with
//! 20,000 descriptors lets `epoll` hold; `ring` holds more than there are descriptors. The server has the first
//! core, the client's processes the last one, so that they cannot connect faster than it accepts.
//!
//! Each connection sends one message of 64 bytes in so many seconds, at a time that is fixed beforehand. A first
//! turn of all is not measured, and then the server is asked what it and the kernel hold. What the kernel holds is
//! for both ends of a connection: the client is the same for all designs, so what two designs differ by is the
//! server's. It is told in pages of the whole machine, so it is worth something where nothing else runs; which
//! objects they are tells /proc/slabinfo (as root). The second line says what became of connections and messages:
//! "ok" means that no byte was lost or wrong.

mod common;

use std::{
    io::{BufReader, Read},
    thread,
    time::Duration,
};

use common::{Server, document, load, number};

/// What is asked for.
struct Asked {
    connections: u64,
    every_s: u64,
    time_s: u64,
}

/// A line of a file of /proc in bytes, if there is such a file and line.
fn kib(path: &str, label: &str) -> Option<f64> {
    let mut text = String::new();
    std::fs::File::open(path).ok()?.read_to_string(&mut text).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(label))?;
    Some(line.split_whitespace().next()?.parse::<f64>().ok()? * 1024.0)
}

fn run(design: &str, asked: &Asked) -> Result<String, String> {
    let slab_before = kib("/proc/meminfo", "Slab:");
    let Asked { connections, every_s, time_s } = asked;
    let (connections, every) = (connections.to_string(), every_s.to_string());
    let mut server = Server::start(design, &["--echo", "--connections-max", &connections])?;
    let resident = format!("/proc/{}/status", server.child.id());
    let resident_before = kib(&resident, "VmRSS:");
    let time = (every_s + time_s).to_string();
    let flags = ["--tell-phases", "-c", &connections, "--every", &every, "-O", &every, "-t", &time];
    let mut client =
        load(&server.port, &flags).args(["-i", "10"]).spawn().map_err(|e| e.to_string())?;
    let mut lines = BufReader::new(client.stdout.take().expect("piped"));
    let mut held = (None, None);
    let loaded = loop {
        let line = document(&mut lines)?;
        match line["phase"].as_str() {
            Some("began") => {
                server.say("standing")?;
                held = (kib(&resident, "VmRSS:"), kib("/proc/meminfo", "Slab:"));
            }
            Some(_) => {}
            None => break line,
        }
    };
    client.wait().map_err(|e| e.to_string())?;
    let server = server.end()?;
    let (standing, report) = (&server["standing"], &loaded["report"]);
    let open = standing["open"].as_f64().unwrap_or_default().max(1.0);
    let each = |now: Option<f64>, then: Option<f64>| {
        now.zip(then).map_or("unknown".into(), |(now, then)| format!("{:.0}", (now - then) / open))
    };
    let count = |name: &str| report[name].as_u64().unwrap_or_default();
    let ms = |name: &str| {
        let ns = report["latency_ns"][name].as_f64();
        ns.map_or("unknown".into(), |ns| format!("{:.2}", ns / 1e6))
    };
    Ok(format!(
        "{design}: {open:.0} connections, {} threads; bytes for each: {} of the server's, {} of the kernel's \
         that it cannot give back, {} of all its objects (both ends)\n    {} ({}): {} of {} connected, {} \
         finished; {} messages over, {} unanswered, {} due and not sent; p50 {} ms, p99 {} ms, largest {} ms; \
         {} processes, {} source addresses",
        standing["threads"],
        each(held.0, resident_before),
        each(standing["kernel_bytes"].as_f64(), Some(0.0)),
        each(held.1, slab_before),
        loaded["status"].as_str().unwrap_or("no status"),
        loaded["reason"].as_str().unwrap_or("nothing wrong"),
        count("connected"),
        connections,
        count("finished"),
        count("messages_over"),
        count("messages_unanswered"),
        count("messages_due_unsent"),
        ms("p50"),
        ms("p99"),
        report["latency_ns"]["max"]
            .as_f64()
            .map_or("unknown".into(), |ns| format!("{:.2}", ns / 1e6)),
        count("processes"),
        count("source_addresses"),
    ))
}

fn main() -> Result<(), String> {
    let mut asked = Asked { connections: 15_000, every_s: 5, time_s: 10 };
    let mut designs = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--connections" => asked.connections = number(&argument, &mut arguments, 1, 4_000_000)?,
            "--every" => asked.every_s = number(&argument, &mut arguments, 1, 3600)?,
            "--time" => asked.time_s = number(&argument, &mut arguments, 1, 3600)?,
            _ => designs.push(argument),
        }
    }
    if designs.is_empty() {
        designs = ["ring", "epoll"].map(str::to_owned).to_vec();
    }
    for design in designs {
        match run(&design, &asked) {
            Ok(text) => println!("{text}"),
            Err(why) => println!("{design}: failed: {}", why.trim()),
        }
        // What the kernel gives back of the run before comes a moment later.
        thread::sleep(Duration::from_secs(2));
    }
    Ok(())
}
