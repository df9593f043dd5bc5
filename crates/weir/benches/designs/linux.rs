//! The pairs, and how they are timed.

mod bare;
mod flood;

use flood::Flood;
use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};
use weir::udp::{AnyDesign, Datagram, Replies, Server};

const WARM_UP: Duration = Duration::from_millis(100);
const MEASURED: Duration = Duration::from_millis(400);
const SERVER_CORE: usize = 0;
const SENDER_CORE: usize = 1;

/// A bare loop: it receives on a socket bound by itself until told to stop.
type Bare = fn(&bare::Run) -> std::io::Result<()>;

// On `uring-armed`, since the bare loops leave their receive armed: the same system calls.
const PAIRS: &[(&str, Bare)] = &[
    ("blocking", bare::blocking),
    ("blocking-batch", bare::blocking_batch),
    ("epoll", bare::epoll),
    ("rio-event --provider uring-armed --outstanding 4096", bare::uring_event),
    ("rio-hybrid --threads 1 --provider uring-armed --outstanding 4096", bare::uring_hybrid),
];

/// What one side did in one round.
#[derive(Clone, Copy)]
struct Sample {
    per_s: f64,
    cpu_ns: f64,
}

pub fn main() {
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let rounds = if std::env::var_os("WEIR_BENCH_QUICK").is_some() { 3 } else { 15 };
    println!("64-byte datagrams, medians of {rounds} interleaved rounds; ratio = library / bare\n");
    println!(
        "{:<58} {:>12} {:>12} {:>8} {:>8} {:>7}  quartiles",
        "design", "library/s", "bare/s", "lib ns", "bare ns", "ratio"
    );
    for &(design, bare) in
        PAIRS.iter().filter(|(name, _)| filter.as_ref().is_none_or(|f| name.contains(f)))
    {
        let any = AnyDesign::parse(design).expect("the table names designs that exist");
        if let Err(unavailable) = any.availability() {
            println!("{design:<58} skipped: {unavailable}");
            continue;
        }
        let mut pairs = Vec::new();
        for round in 0..rounds {
            let (mut library, mut rival) = (None, None);
            for side in 0..2 {
                if (round + side) % 2 == 0 {
                    library = Some(run_library(&any));
                } else {
                    rival = Some(run_bare(bare));
                }
            }
            pairs.push((library.expect("ran"), rival.expect("ran")));
        }
        print_pair(design, &pairs);
    }
}

fn print_pair(design: &str, pairs: &[(Sample, Sample)]) {
    let of = |f: &dyn Fn(&(Sample, Sample)) -> f64, q: f64| {
        let mut values: Vec<f64> = pairs.iter().map(f).collect();
        values.sort_by(f64::total_cmp);
        values[((values.len() - 1) as f64 * q).round() as usize]
    };
    let ratio = |pair: &(Sample, Sample)| pair.0.per_s / pair.1.per_s;
    println!(
        "{design:<58} {:>12.0} {:>12.0} {:>8.0} {:>8.0} {:>7.3}  {:.3} to {:.3}",
        of(&|pair| pair.0.per_s, 0.5),
        of(&|pair| pair.1.per_s, 0.5),
        of(&|pair| pair.0.cpu_ns, 0.5),
        of(&|pair| pair.1.cpu_ns, 0.5),
        of(&ratio, 0.5),
        of(&ratio, 0.25),
        of(&ratio, 0.75),
    );
}

fn run_library(design: &AnyDesign) -> Sample {
    bare::pin(SERVER_CORE);
    let server = Server::bind(SocketAddr::from(([127, 0, 0, 1], 0)))
        .start(design.clone(), |_thread| {
            let mut bytes = 0u64;
            move |datagram: Datagram<'_>, _: &mut Replies<'_>| {
                bytes = std::hint::black_box(bytes + datagram.bytes.len() as u64);
            }
        })
        .expect("the design said it can run");
    let flood = Flood::start(server.local_addresses()[0], SENDER_CORE);
    let read = || {
        let datagrams: u64 = server.counters().iter().map(|thread| thread.datagrams).sum();
        (datagrams, bare::cpu_ns_of_threads("weir-udp"))
    };
    let sample = measure(read);
    flood.stop();
    let report = server.stop();
    assert!(report.failure.is_none(), "{design:?}: {:?}", report.failure);
    sample
}

fn run_bare(body: Bare) -> Sample {
    bare::pin(SERVER_CORE);
    let run = bare::Run::bind();
    let flood = Flood::start(run.address, SENDER_CORE);
    let sample = std::thread::scope(|scope| {
        std::thread::Builder::new()
            .name("bare".into())
            .spawn_scoped(scope, || body(&run).expect("the bare loop runs where the design does"))
            .expect("a thread");
        let sample = measure(|| (run.count.get(), bare::cpu_ns_of_threads("bare")));
        run.stop();
        sample
    });
    flood.stop();
    sample
}

fn measure(read: impl Fn() -> (u64, u64)) -> Sample {
    std::thread::sleep(WARM_UP);
    let (before, cpu_before) = read();
    let start = Instant::now();
    std::thread::sleep(MEASURED);
    let (after, cpu_after) = read();
    let datagrams = (after - before).max(1) as f64;
    Sample {
        per_s: datagrams / start.elapsed().as_secs_f64(),
        cpu_ns: (cpu_after - cpu_before) as f64 / datagrams,
    }
}
