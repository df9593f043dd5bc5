//! The pairs, and how they are timed.

mod bare;
mod client;

use crate::timing::{Extent, Sample, cpu_ns_of_threads, quantile};
use bare::{blocking, epoll, poll, ring, select};
use client::{Client, MESSAGE_BYTES, check_echo};
use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};
use weir::{
    affinity::{allowed_cores, pin_current_thread},
    tcp::{AnyDesign, Output, Server},
};

/// Far longer than the first message takes on any machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// A bare loop: it echoes on connections to a socket that listens, until told to stop.
type Bare = fn(&bare::Run) -> std::io::Result<()>;

/// Each design with the bare loop of its system calls. Those of a completion port belong
/// here, each with its loop in a file of its own beside `bare/epoll.rs`.
const PAIRS: &[(&str, Bare)] = &[
    ("epoll --threads 1", epoll::level),
    ("epoll --threads 1 --trigger edge", epoll::edge),
    ("poll --threads 1", poll::poll),
    ("select", select::select),
    ("select-indexed", select::select_indexed),
    ("blocking", blocking::blocking),
    ("ring --threads 1", ring::ring),
];

/// Messages under way on each connection.
const UNDER_WAY: &[usize] = &[1, 16];

pub fn main() {
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let (extent, cores) = (Extent::asked(), allowed_cores());
    let (server_core, client_core) = (cores[0], cores[cores.len() - 1]);
    if server_core == client_core {
        println!("one core for both sides: figures say little");
    }
    pin_current_thread(server_core).expect("this process may use that core");
    println!(
        "{} connections, {MESSAGE_BYTES}-byte messages, medians of {} interleaved rounds; ratios = \
         library to bare, 1 is as good\n",
        client::CONNECTIONS,
        extent.rounds
    );
    println!(
        "{:<34} {:>5} {:>11} {:>11} {:>7} {:>7} {:>6} {:<15} {:>6} quartiles",
        "design", "under", "library/s", "bare/s", "lib ns", "bare ns", "rate", "quartiles", "CPU"
    );
    for &(design, bare) in
        PAIRS.iter().filter(|(name, _)| filter.as_ref().is_none_or(|f| name.contains(f)))
    {
        let any = AnyDesign::parse(design).expect("the table names designs that exist");
        if let Err(unavailable) = any.availability() {
            println!("{design:<34} skipped: {unavailable}");
            continue;
        }
        for &under_way in UNDER_WAY {
            let mut pairs = Vec::new();
            for round in 0..extent.rounds {
                let (mut library, mut rival) = (None, None);
                for side in 0..2 {
                    if (round + side) % 2 == 0 {
                        library = Some(run_library(&any, under_way, client_core, extent));
                    } else {
                        rival = Some(run_bare(bare, under_way, client_core, extent));
                    }
                }
                pairs.push((library.expect("ran"), rival.expect("ran")));
            }
            match extent.says_of_speed {
                true => print_pair(design, under_way, &pairs),
                false => println!("{design:<34} {under_way:>5} both sides echoed"),
            }
        }
    }
}

fn print_pair(design: &str, under_way: usize, pairs: &[(Sample, Sample)]) {
    let median = |of: fn(&(Sample, Sample)) -> f64| quantile(pairs, 0.5, of);
    let rate = |pair: &(Sample, Sample)| pair.0.per_s / pair.1.per_s;
    let cpu = |pair: &(Sample, Sample)| pair.1.cpu_ns / pair.0.cpu_ns;
    let quartiles = |of: fn(&(Sample, Sample)) -> f64| {
        format!("{:.3} to {:.3}", quantile(pairs, 0.25, of), quantile(pairs, 0.75, of))
    };
    println!(
        "{design:<34} {under_way:>5} {:>11.0} {:>11.0} {:>7.0} {:>7.0} {:>6.3} {:<15} {:>6.3} {}",
        median(|pair| pair.0.per_s),
        median(|pair| pair.1.per_s),
        median(|pair| pair.0.cpu_ns),
        median(|pair| pair.1.cpu_ns),
        median(rate),
        quartiles(rate),
        median(cpu),
        quartiles(cpu),
    );
}

fn run_library(design: &AnyDesign, under_way: usize, client_core: usize, extent: Extent) -> Sample {
    let server = Server::bind(SocketAddr::from(([127, 0, 0, 1], 0)))
        .start(design.clone(), |_peer| {
            |_: &mut [u8], output: &mut Output<'_>| {
                output.echo().expect("there is room for what was just received");
            }
        })
        .expect("the design said it can run");
    let address = server.local_addresses()[0];
    check_echo(address);
    let client = Client::start(address, under_way, client_core);
    let sample = measure(extent, &client, "weir-tcp");
    client.stop();
    let report = server.stop();
    assert!(report.failure.is_none(), "{design:?}: {:?}", report.failure);
    sample
}

fn run_bare(body: Bare, under_way: usize, client_core: usize, extent: Extent) -> Sample {
    let run = bare::Run::bind();
    std::thread::scope(|scope| {
        std::thread::Builder::new()
            .name("bare".into())
            .spawn_scoped(scope, || body(&run).expect("the bare loop runs where the design does"))
            .expect("a thread");
        check_echo(run.address);
        let client = Client::start(run.address, under_way, client_core);
        let sample = measure(extent, &client, "bare");
        run.stop();
        client.stop();
        sample
    })
}

fn measure(extent: Extent, client: &Client, threads: &str) -> Sample {
    std::thread::sleep(extent.warm_up);
    let read = || (client.messages(), cpu_ns_of_threads(threads));
    let (before, cpu_before) = read();
    let start = Instant::now();
    let (after, cpu_after) = loop {
        std::thread::sleep(extent.measured);
        let (after, cpu_after) = read();
        if after > before {
            break (after, cpu_after);
        }
        // A moment may be too short on a machine that is busy with other things.
        assert!(start.elapsed() < PATIENCE, "nothing came back");
    };
    let messages = (after - before) as f64;
    Sample {
        per_s: messages / start.elapsed().as_secs_f64(),
        cpu_ns: (cpu_after - cpu_before) as f64 / messages,
    }
}
