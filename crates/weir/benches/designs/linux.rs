//! The pairs, and how they are timed.

mod bare;
mod flood;

use crate::timing::{Extent, Sample, cpu_ns_of_threads, quantile};
use bare::{port, rings, sockets};
use flood::Flood;
use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};
use weir::{
    affinity::{allowed_cores, pin_current_thread},
    udp::{AnyDesign, Datagram, Replies, Server},
};

/// Far longer than the first datagram takes on any machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// A bare loop: it receives on a socket bound by itself until told to stop.
type Bare = fn(&bare::Run) -> std::io::Result<()>;

const PAIRS: &[(&str, Bare)] = &[
    ("blocking", sockets::blocking),
    ("blocking-batch", sockets::blocking_batch),
    ("epoll", sockets::epoll),
    ("epoll-batch", sockets::epoll_batch),
    ("port --threads 1", port::port),
    ("port-batch --threads 1", port::port_batch),
    // Waits after each batch, and so never sweeps.
    ("rio-event --provider uring --outstanding 1024", rings::uring_event),
    ("rio-port --threads 1 --provider uring --outstanding 1024", rings::uring_handed_over),
    ("rio-polled --provider uring --outstanding 1024", rings::uring_polled),
    ("rio-event-polled --provider uring --outstanding 1024", rings::uring_event_polled),
    ("rio-sharded --threads 1 --provider uring --outstanding 1024", rings::uring_event_polled),
    ("rio-hybrid --threads 1 --provider uring --outstanding 1024", rings::uring_hybrid),
    ("rio-hybrid --threads 1 --provider uring-armed --outstanding 1024", rings::uring_armed_hybrid),
];

pub fn main() {
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let (extent, cores) = (Extent::asked(), allowed_cores());
    let (server_core, sender_core) = (cores[0], cores[cores.len() - 1]);
    let rounds = extent.rounds;
    if server_core == sender_core {
        println!("one core for both sides: figures say little");
    }
    pin_current_thread(server_core).expect("this process may use that core");
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
                    library = Some(run_library(&any, sender_core, extent));
                } else {
                    rival = Some(run_bare(bare, sender_core, extent));
                }
            }
            pairs.push((library.expect("ran"), rival.expect("ran")));
        }
        match extent.says_of_speed {
            true => print_pair(design, &pairs),
            false => println!("{design:<58} both sides received"),
        }
    }
}

fn print_pair(design: &str, pairs: &[(Sample, Sample)]) {
    let median = |of: fn(&(Sample, Sample)) -> f64| quantile(pairs, 0.5, of);
    let ratio = |pair: &(Sample, Sample)| pair.0.per_s / pair.1.per_s;
    println!(
        "{design:<58} {:>12.0} {:>12.0} {:>8.0} {:>8.0} {:>7.3}  {:.3} to {:.3}",
        median(|pair| pair.0.per_s),
        median(|pair| pair.1.per_s),
        median(|pair| pair.0.cpu_ns),
        median(|pair| pair.1.cpu_ns),
        median(ratio),
        quantile(pairs, 0.25, ratio),
        quantile(pairs, 0.75, ratio),
    );
}

fn run_library(design: &AnyDesign, sender_core: usize, extent: Extent) -> Sample {
    let server = Server::bind(SocketAddr::from(([127, 0, 0, 1], 0)))
        .start(design.clone(), |_thread| {
            let mut bytes = 0u64;
            move |datagram: Datagram<'_>, _: &mut Replies<'_>| {
                bytes = std::hint::black_box(bytes + datagram.bytes.len() as u64);
            }
        })
        .expect("the design said it can run");
    let flood = Flood::start(server.local_addresses()[0], sender_core);
    let read = || {
        let datagrams: u64 = server.counters().iter().map(|thread| thread.datagrams).sum();
        (datagrams, cpu_ns_of_threads("weir-udp"))
    };
    let sample = measure(extent, read);
    flood.stop();
    let report = server.stop();
    assert!(report.failure.is_none(), "{design:?}: {:?}", report.failure);
    sample
}

fn run_bare(body: Bare, sender_core: usize, extent: Extent) -> Sample {
    let run = bare::Run::bind();
    let flood = Flood::start(run.address, sender_core);
    let sample = std::thread::scope(|scope| {
        std::thread::Builder::new()
            .name("bare".into())
            .spawn_scoped(scope, || body(&run).expect("the bare loop runs where the design does"))
            .expect("a thread");
        let sample = measure(extent, || (run.count.get(), cpu_ns_of_threads("bare")));
        run.stop();
        sample
    });
    flood.stop();
    sample
}

fn measure(extent: Extent, read: impl Fn() -> (u64, u64)) -> Sample {
    std::thread::sleep(extent.warm_up);
    let (before, cpu_before) = read();
    let start = Instant::now();
    let (after, cpu_after) = loop {
        std::thread::sleep(extent.measured);
        let (after, cpu_after) = read();
        if after > before {
            break (after, cpu_after);
        }
        // A moment may be too short on a machine that is busy with other things.
        assert!(start.elapsed() < PATIENCE, "nothing was received");
    };
    let datagrams = (after - before) as f64;
    Sample {
        per_s: datagrams / start.elapsed().as_secs_f64(),
        cpu_ns: (cpu_after - cpu_before) as f64 / datagrams,
    }
}
