//! The pairs, and how they are timed.

mod bare;
mod client;

use crate::timing::{
    Extent, Sample, by_name, cpu_ns_of_threads, in_rounds, is_asked_for, measure, part_cores,
    quantile, starts,
};
use bare::{
    async_select, blocking, epoll, event_select, overlapped_events, poll, port, port_ordered, ring,
    ring_hybrid, rio_tcp, select,
};
use client::{Client, MESSAGE_BYTES, check_echo};
use std::{net::SocketAddr, time::Duration};
use weir::tcp::{AnyDesign, Output, Running, Server};

/// A bare loop: it echoes on connections to a socket that listens, until told to stop.
type Bare = fn(&bare::Run) -> std::io::Result<()>;

/// Each design with the bare loop of its system calls. What several threads hand each other is no system call, so
/// designs that may have one have one; where threads come with the connections both sides have them.
const PAIRS: &[(&str, Bare)] = &[
    ("epoll --threads 1", epoll::level),
    ("epoll --threads 1 --trigger edge", epoll::edge),
    ("poll --threads 1", poll::poll),
    ("select", select::select),
    ("select-indexed", select::select_indexed),
    ("async-select", async_select::async_select),
    ("event-select", event_select::event_select),
    ("overlapped-events", overlapped_events::overlapped_events),
    ("blocking", blocking::blocking),
    ("port --threads 1", port::port),
    ("port-ordered --threads 1", port_ordered::port_ordered),
    ("ring --threads 1", ring::ring),
    ("ring-hybrid --threads 1", ring_hybrid::ring_hybrid),
    ("rio-tcp --threads 1", rio_tcp::rio_tcp),
];

/// Before a side is measured, and how long it is.
const WARM_UP: Duration = Duration::from_millis(60);
const MEASURED: Duration = Duration::from_millis(300);

/// Messages under way on each connection.
const UNDER_WAY: &[usize] = &[1, 16];

pub fn main() {
    let (extent, client_core) = (Extent::asked(WARM_UP, MEASURED), part_cores());
    println!(
        "{} connections, {MESSAGE_BYTES}-byte messages, medians of {} interleaved rounds; designs \
         {}; ratios = library to bare, 1 is as good\n",
        client::CONNECTIONS,
        extent.rounds,
        starts()
    );
    println!(
        "{:<34} {:>5} {:>11} {:>11} {:>7} {:>7} {:>6} {:<15} {:>6} quartiles",
        "design", "under", "library/s", "bare/s", "lib ns", "bare ns", "rate", "quartiles", "CPU"
    );
    for &(design, bare) in PAIRS.iter().filter(|(pair, _)| is_asked_for(pair)) {
        let any = AnyDesign::parse(design).expect("the table names designs that exist");
        if let Err(unavailable) = any.availability() {
            println!("{design:<34} skipped: {unavailable}");
            continue;
        }
        for &under_way in UNDER_WAY {
            let pairs = in_rounds(
                extent,
                || run_library(&any, under_way, client_core, extent),
                || run_bare(bare, under_way, client_core, extent),
            );
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

/// Starts a design by its type, or by its name if that is asked for.
fn start(design: AnyDesign) -> Running {
    let server = Server::bind(SocketAddr::from(([127, 0, 0, 1], 0)));
    let handler = |_peer| {
        |_: &mut [u8], output: &mut Output<'_>| {
            output.echo().expect("there is room for what was just received");
        }
    };
    let started = match design {
        by_its_name if by_name() => server.start(by_its_name, handler),
        AnyDesign::Blocking(design) => server.start(design, handler),
        AnyDesign::Select(design) => server.start(design, handler),
        AnyDesign::SelectIndexed(design) => server.start(design, handler),
        AnyDesign::Poll(design) => server.start(design, handler),
        AnyDesign::AsyncSelect(design) => server.start(design, handler),
        AnyDesign::EventSelect(design) => server.start(design, handler),
        AnyDesign::OverlappedEvents(design) => server.start(design, handler),
        AnyDesign::Port(design) => server.start(design, handler),
        AnyDesign::PortOrdered(design) => server.start(design, handler),
        AnyDesign::Epoll(design) => server.start(design, handler),
        AnyDesign::Ring(design) => server.start(design, handler),
        AnyDesign::RioTcp(design) => server.start(design, handler),
        AnyDesign::RingHybrid(design) => server.start(design, handler),
        other => panic!("this benchmark does not name the type of {other:?}: add it here"),
    };
    started.expect("the design said it can run")
}

fn run_library(design: &AnyDesign, under_way: usize, client_core: usize, extent: Extent) -> Sample {
    let server = start(design.clone());
    let address = server.local_addresses()[0];
    check_echo(address);
    let client = Client::start(address, under_way, client_core);
    let sample = measure(extent, || (client.messages(), cpu_ns_of_threads("weir-tcp")));
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
        let sample = measure(extent, || (client.messages(), cpu_ns_of_threads("bare")));
        run.stop();
        client.stop();
        sample
    })
}
