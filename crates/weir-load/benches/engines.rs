//! The engines of the load of TCP connections against each other, under the same servers.
//!
//! ```text
//! cargo bench -p weir-load --bench engines                       # 9 rounds of each load, some 3 minutes
//! cargo bench -p weir-load --bench engines -- --quick            # 3 rounds
//! cargo bench -p weir-load --bench engines -- --design "ring --threads 1"
//! cargo bench -p weir-load --bench engines -- --bytes 4096       # messages of another length
//! ```
//!
//! The server echoes on one core, the load runs on another. In each round the engines run one after the
//! other, in an order that alternates; each run is a load of its own with a server of its own, of which every byte is
//! verified. Printed are medians over the rounds: messages/s; CPU ns of the load's thread for each message, with the
//! kernel's part; what that makes in messages per second of a core; and the ratio of the latter within the rounds, with
//! its quartiles, so that 1.5 is half as many again. Where the server is the slower side the ratio of the rates says
//! little, that of the CPU times all the same.
//!
//! `cargo test` runs each engine once under each load, for a moment, and says nothing of speed.

use std::{net::SocketAddr, time::Duration};
use weir::{
    affinity::{allowed_cores, pin_current_thread},
    tcp::{AnyDesign, Output, Server},
};
use weir_load::{
    Stop,
    tcp::{Engine, LoadSpec, Sizes, load},
};

/// Connections, and messages under way on each.
const LOADS: [(u32, u32); 4] = [(64, 1), (64, 16), (1000, 1), (1000, 16)];

/// What one run came to.
#[derive(Debug, Clone, Copy)]
struct Sample {
    per_s: f64,
    cpu_ns: f64,
}

/// How often and how long each engine runs.
#[derive(Debug, Clone, Copy)]
struct Extent {
    says_of_speed: bool,
    rounds: usize,
    duration: Duration,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let given = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let value = |flag: &str| {
        let at = arguments.iter().position(|argument| argument == flag)?;
        Some(arguments.get(at + 1).expect("a value follows").clone())
    };
    let extent = match (given("--bench"), given("--quick")) {
        (true, quick) => Extent {
            says_of_speed: true,
            rounds: if quick { 3 } else { 9 },
            duration: Duration::from_millis(600),
        },
        (false, _) => {
            Extent { says_of_speed: false, rounds: 1, duration: Duration::from_millis(30) }
        }
    };
    let bytes = value("--bytes").map_or(64, |text| text.parse().expect("a number of bytes"));
    let designs = value("--design").map_or_else(
        || vec!["epoll --threads 1".to_owned(), "ring --threads 1".into()],
        |design| vec![design],
    );
    let cores = allowed_cores();
    let (server, client) = (cores[0], cores[cores.len() - 1]);
    if server == client {
        println!("one core for both sides: figures say little");
    }
    pin_current_thread(server).expect("this process may use that core");
    let engines = Engine::ALL.map(|engine| (engine, engine.availability()));
    for (engine, availability) in &engines {
        if let Err(why) = availability {
            println!("{} skipped: {why}", engine.name());
        }
    }
    println!("{bytes}-byte messages, medians of {} interleaved rounds", extent.rounds);
    println!(
        "{:<20} {:>6} {:>6} {:<10} {:>11} {:>8} {:>12} {:>6} quartiles",
        "server", "conns", "under", "engine", "messages/s", "CPU ns", "per s, core", "ratio"
    );
    for design in &designs {
        let any = AnyDesign::parse(design).expect("a design that exists");
        if let Err(why) = any.availability() {
            println!("{design:<20} skipped: {why}");
            continue;
        }
        for (connections, outstanding) in LOADS {
            let run = |engine| {
                run(&any, engine, (connections, outstanding, bytes), client, extent.duration)
            };
            let mut samples: [Vec<Option<Sample>>; 2] = [Vec::new(), Vec::new()];
            for round in 0..extent.rounds {
                for place in [round % 2, 1 - round % 2] {
                    let (engine, availability) = &engines[place];
                    samples[place].push(availability.is_ok().then(|| run(*engine)));
                }
            }
            print(design, (connections, outstanding), &samples, extent);
        }
    }
}

fn print(
    design: &str,
    (connections, outstanding): (u32, u32),
    samples: &[Vec<Option<Sample>>; 2],
    extent: Extent,
) {
    let [ring, readiness] = samples;
    let pairs = ring.iter().zip(readiness);
    let ratios: Vec<f64> = pairs
        .filter_map(|(ring, readiness)| Some(readiness.as_ref()?.cpu_ns / ring.as_ref()?.cpu_ns))
        .collect();
    for (engine, samples) in Engine::ALL.into_iter().zip(samples) {
        let of: Vec<Sample> = samples.iter().flatten().copied().collect();
        if of.is_empty() {
            continue;
        }
        let head = format!("{design:<20} {connections:>6} {outstanding:>6} {:<10}", engine.name());
        if !extent.says_of_speed {
            println!("{head} echoed");
            continue;
        }
        let rate = quantile(of.iter().map(|sample| sample.per_s).collect(), 0.5);
        let cpu_ns = quantile(of.iter().map(|sample| sample.cpu_ns).collect(), 0.5);
        let line = format!("{head} {rate:>11.0} {cpu_ns:>8.0} {:>12.0}", 1e9 / cpu_ns);
        match engine {
            Engine::Uring if !ratios.is_empty() => {
                let of = |share| quantile(ratios.clone(), share);
                println!("{line} {:>6.3} {:.3} to {:.3}", of(0.5), of(0.25), of(0.75));
            }
            _ => println!("{line}"),
        }
    }
}

fn quantile(mut of: Vec<f64>, share: f64) -> f64 {
    of.sort_by(f64::total_cmp);
    of[((of.len() - 1) as f64 * share).round() as usize]
}

/// Loads a server of that design with an engine.
fn run(
    design: &AnyDesign,
    engine: Engine,
    (connections, outstanding, bytes): (u32, u32, u32),
    core: usize,
    duration: Duration,
) -> Sample {
    let server = Server::bind(SocketAddr::from(([127, 0, 0, 1], 0)))
        .start(design.clone(), |_peer| {
            |_: &mut [u8], output: &mut Output<'_>| {
                output.echo().expect("there is room for what was just received");
            }
        })
        .expect("the design said it can run");
    let spec = LoadSpec {
        connections,
        outstanding,
        sizes: Sizes::of(bytes),
        together: true,
        engine: Some(engine),
        cores: vec![core],
        duration,
        warm_up: duration / 6,
        ..LoadSpec::new(server.local_addresses()[0])
    };
    let report = load(&spec, &Stop::new(), |_| {}).expect("it can begin");
    assert_eq!((report.invalid(), &report.failure), (None, &None), "{report:?}");
    let ended = server.stop();
    assert!(ended.failure.is_none(), "{design:?}: {:?}", ended.failure);
    // A moment may be over before anything was measured, and where CPU time is counted in ticks it may have none.
    let Some(window) = report.window else { return Sample { per_s: 0.0, cpu_ns: 0.0 } };
    let cpu_ns = window.cpu_ns_per_message.unwrap_or(0.0);
    Sample { per_s: window.messages_per_s, cpu_ns }
}
