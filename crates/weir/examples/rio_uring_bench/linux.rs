//! The contenders, and how they are timed.

use crate::{bare, flood::Flood, threads::cpu_ns_of_threads};
use std::{
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread::{Scope, ScopedJoinHandle},
    time::{Duration, Instant},
};
use weir::{
    affinity,
    counters::Counters,
    memory::{Region, RegionOptions},
    rio::{
        Batch, CompletionQueue, HandOver, Needs, OneThread, Opened, Outcome, Provider,
        RequestQueue, Started, Threading,
        uring::{Polling, Uring},
    },
};

const WARM_UP: Duration = Duration::from_millis(100);
const MEASURED: Duration = Duration::from_millis(400);
const SERVER_CORE: usize = 0;
const SENDER_CORE: usize = 1;
/// What the receiving threads are called, so that their CPU time is found.
const RECEIVER: &str = "receiver";

/// What a contender did in one round.
#[derive(Clone, Copy)]
struct Sample {
    per_s: f64,
    cpu_ns: f64,
    batch: f64,
    entries_per_1000: f64,
}

/// One contender; the first is what the others are compared with.
struct Contender {
    name: &'static str,
    run: fn() -> Sample,
}

const CONTENDERS: &[Contender] = &[
    Contender { name: "bare multishot, waiting", run: || run_bare(bare::rings::uring_event) },
    Contender {
        name: "bare multishot, polling 50 us",
        run: || run_bare(bare::rings::uring_armed_hybrid),
    },
    Contender {
        name: "bare multishot, polling 50 us, swept",
        run: || run_bare(bare::rings::uring_hybrid),
    },
    Contender { name: "bare recvmmsg of 64", run: || run_bare(bare::sockets::blocking_batch) },
    Contender {
        name: "uring, waiting",
        run: || run::<OneThread>(Polling::Deferred, 4096, Duration::ZERO),
    },
    Contender {
        name: "uring, polling 50 us",
        run: || run::<OneThread>(Polling::Deferred, 4096, Duration::from_micros(50)),
    },
    Contender {
        name: "uring, waiting, 150,000 posted",
        run: || run::<OneThread>(Polling::Deferred, 150_000, Duration::ZERO),
    },
    Contender {
        name: "uring-interrupt, waiting",
        run: || run::<OneThread>(Polling::Interrupt, 4096, Duration::ZERO),
    },
    Contender {
        name: "uring-interrupt, handed over, waiting",
        run: || run::<HandOver>(Polling::Interrupt, 4096, Duration::ZERO),
    },
    Contender {
        name: "uring-sqpoll, waiting",
        run: || run::<OneThread>(Polling::KernelThread, 4096, Duration::ZERO),
    },
];

pub fn main() {
    let mut arguments = std::env::args().skip(1);
    let rounds: usize = arguments.next().map_or(9, |n| n.parse().expect("a number of rounds"));
    let filter = arguments.next().unwrap_or_default();
    let (first, others) = CONTENDERS.split_first().expect("there is a bare loop");
    let chosen: Vec<_> =
        std::iter::once(first).chain(others.iter().filter(|c| c.name.contains(&filter))).collect();
    let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); chosen.len()];
    for round in 0..rounds {
        for turn in 0..chosen.len() {
            let which = (round + turn) % chosen.len();
            samples[which].push((chosen[which].run)());
        }
    }
    println!("64-byte datagrams, medians of {rounds} rounds\n");
    println!(
        "{:<38} {:>12} {:>7} {:>7} {:>8} {:>7}  quartiles",
        "contender", "datagrams/s", "CPU ns", "batch", "entries", "ratio"
    );
    for (contender, own) in chosen.iter().zip(&samples) {
        let of = |f: fn(&Sample) -> f64| quantile(own.iter().map(f), 0.5);
        let ratios = || own.iter().zip(&samples[0]).map(|(own, bare)| own.per_s / bare.per_s);
        println!(
            "{:<38} {:>12.0} {:>7.0} {:>7.1} {:>8.1} {:>7.3}  {:.3} to {:.3}",
            contender.name,
            of(|s| s.per_s),
            of(|s| s.cpu_ns),
            of(|s| s.batch),
            of(|s| s.entries_per_1000),
            quantile(ratios(), 0.5),
            quantile(ratios(), 0.25),
            quantile(ratios(), 0.75),
        );
    }
}

fn quantile(values: impl Iterator<Item = f64>, q: f64) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * q).round() as usize]
}

/// Reads datagrams, dequeues and kernel entries before and after the time measured. What a bare
/// loop does not count is 0, and prints as NaN or 0.
fn measure(read: impl Fn() -> [u64; 3]) -> Sample {
    let all = || (read(), cpu_ns_of_threads(RECEIVER));
    std::thread::sleep(WARM_UP);
    let (before, cpu_before) = all();
    let start = Instant::now();
    std::thread::sleep(MEASURED);
    let (after, cpu_after) = all();
    let [datagrams, dequeues, entries] = [0, 1, 2].map(|i| (after[i] - before[i]) as f64);
    Sample {
        per_s: datagrams / start.elapsed().as_secs_f64(),
        cpu_ns: (cpu_after - cpu_before) as f64 / datagrams,
        batch: if dequeues > 0.0 { datagrams / dequeues } else { f64::NAN },
        entries_per_1000: if entries > 0.0 { entries / datagrams * 1000.0 } else { f64::NAN },
    }
}

/// A thread of the receiving side, on its core.
fn receiver<'s>(
    scope: &'s Scope<'s, '_>,
    body: impl FnOnce() + Send + 's,
) -> ScopedJoinHandle<'s, ()> {
    let pinned = move || {
        affinity::pin_current_thread(SERVER_CORE).expect("this process may use that core");
        body();
    };
    let named = std::thread::Builder::new().name(RECEIVER.into());
    named.spawn_scoped(scope, pinned).expect("a thread")
}

fn run_bare(body: fn(&bare::Run) -> std::io::Result<()>) -> Sample {
    let run = bare::Run::bind();
    let flood = Flood::start(run.address, SENDER_CORE);
    let sample = std::thread::scope(|scope| {
        receiver(scope, || body(&run).expect("the bare loop runs"));
        let sample = measure(|| [run.count.get(), 0, 0]);
        run.stop();
        sample
    });
    flood.stop();
    sample
}

/// The provider's own loop: what a design does, without a handler.
fn run<T: Threading>(polling: Polling, outstanding: u32, spin: Duration) -> Sample
where
    Uring: Provider<T>,
{
    let needs = Needs {
        payload: 1024,
        receives: outstanding,
        sends: 0,
        per_dequeue: 1000,
        offload: false,
        meta: false,
    };
    let provider = Uring::polling(polling);
    let layout = Provider::<T>::layout(&provider, &needs).expect("io_uring is allowed");
    let region = Region::new(layout, outstanding, RegionOptions::default()).expect("memory");
    let at = SocketAddr::from(([127, 0, 0, 1], 0));
    let opened = Provider::<T>::open(&provider, &[at.into()], &region, &needs).expect("a port");
    let at = opened.local_addresses()[0];
    let (counters, stop) = (Counters::default(), AtomicBool::new(false));
    let sample = std::thread::scope(|scope| {
        let receiving = receiver(scope, || {
            let started = Provider::<T>::start(&provider, opened).expect("a ring");
            let Started { completions: mut queue, mut requests, .. } = started;
            while let Some(slice) = region.take() {
                requests[0].receive(slice).expect("as many as were asked for");
            }
            requests[0].commit(&counters).expect("committed");
            let mut batch = Batch::new(needs.per_dequeue as usize);
            let (mut bytes, mut empty_since) = (0, None);
            while !stop.load(Relaxed) {
                let received = queue.dequeue(&mut batch, &counters).expect("the ring works");
                if batch.is_empty() {
                    let since = *empty_since.get_or_insert_with(Instant::now);
                    if spin.is_zero() || since.elapsed() >= spin {
                        queue.wait(1, None, &counters).expect("the ring works");
                        empty_since = None;
                    }
                    continue;
                }
                empty_since = None;
                counters.dequeues.one();
                counters.datagrams.add(received as u64);
                for completion in batch.drain() {
                    if let Outcome::Received(arrival) = completion.outcome {
                        bytes += completion.slice.payload()[..arrival.len()].len();
                    }
                    requests[0].receive(completion.slice).expect("it was outstanding");
                }
                requests[0].commit(&counters).expect("committed");
            }
            std::hint::black_box(bytes);
            let stopped = queue.stop(requests, Instant::now() + Duration::from_secs(5));
            assert_eq!(stopped.missing, 0, "slices are missing");
        });
        let flood = Flood::start(at, SENDER_CORE);
        let sample = measure(|| {
            [counters.datagrams.get(), counters.dequeues.get(), counters.kernel_entries.get()]
        });
        stop.store(true, Relaxed); // the flood goes on until the loop has seen it
        receiving.join().expect("the receiver does not panic");
        flood.stop();
        sample
    });
    assert_eq!(region.in_pool(), outstanding, "slices are missing");
    sample
}
