//! The pairs, and how they are timed.

mod bare;
mod flood;

use crate::timing::{
    Extent, Sample, by_name, cpu_ns_of_threads, in_rounds, is_asked_for, measure, part_cores,
    quantile, starts,
};
use bare::{port, rings, sockets};
use flood::Flood;
use std::{net::SocketAddr, time::Duration};
use weir::{
    socket::{ReceiveBuffer, SocketOptions},
    udp::{AnyDesign, Datagram, Handler, Replies, Running, Server},
};

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

/// Before a side is measured, and how long it is.
const WARM_UP: Duration = Duration::from_millis(100);
const MEASURED: Duration = Duration::from_millis(400);

pub fn main() {
    let (extent, sender_core) = (Extent::asked(WARM_UP, MEASURED), part_cores());
    let rounds = extent.rounds;
    println!(
        "64-byte datagrams, medians of {rounds} interleaved rounds; designs {}; ratio = library / bare\n",
        starts()
    );
    println!(
        "{:<58} {:>12} {:>12} {:>8} {:>8} {:>7}  quartiles",
        "design", "library/s", "bare/s", "lib ns", "bare ns", "ratio"
    );
    for &(design, bare) in PAIRS.iter().filter(|(pair, _)| is_asked_for(pair)) {
        let any = AnyDesign::parse(design).expect("the table names designs that exist");
        if let Err(unavailable) = any.availability() {
            println!("{design:<58} skipped: {unavailable}");
            continue;
        }
        let pairs = in_rounds(
            extent,
            || run_library(&any, sender_core, extent),
            || run_bare(bare, sender_core, extent),
        );
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

/// Starts a design by its type, or by its name if that is asked for.
fn start(design: AnyDesign) -> Running<impl Handler> {
    // With a socket as the bare loop has it: a buffer for thousands of datagrams is always full at saturation, and what
    // has waited that long has left the caches.
    let options = SocketOptions::default().receive_buffer(ReceiveBuffer::System);
    let server = Server::bind(SocketAddr::from(([127, 0, 0, 1], 0))).socket_options(options);
    let handler = |_thread| {
        let mut bytes = 0u64;
        move |datagram: Datagram<'_>, _: &mut Replies<'_>| {
            bytes = std::hint::black_box(bytes + datagram.bytes.len() as u64);
        }
    };
    let started = match design {
        by_its_name if by_name() => server.start(by_its_name, handler),
        AnyDesign::Blocking(design) => server.start(design, handler),
        AnyDesign::BlockingBatch(design) => server.start(design, handler),
        AnyDesign::Epoll(design) => server.start(design, handler),
        AnyDesign::EpollBatch(design) => server.start(design, handler),
        AnyDesign::Port(design) => server.start(design, handler),
        AnyDesign::PortBatch(design) => server.start(design, handler),
        AnyDesign::RioEvent(design) => server.start(design, handler),
        AnyDesign::RioPort(design) => server.start(design, handler),
        AnyDesign::RioPolled(design) => server.start(design, handler),
        AnyDesign::RioEventPolled(design) => server.start(design, handler),
        AnyDesign::RioSharded(design) => server.start(design, handler),
        AnyDesign::RioHybrid(design) => server.start(design, handler),
        other => panic!("{other:?} is in no pair"),
    };
    started.expect("the design said it can run")
}

fn run_library(design: &AnyDesign, sender_core: usize, extent: Extent) -> Sample {
    let server = start(design.clone());
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
