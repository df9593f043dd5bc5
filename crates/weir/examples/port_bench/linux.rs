//! The contenders, and how they are timed.

use crate::flood::Flood;
use io_uring::{IoUring, opcode, types};
use std::{
    io, mem,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{Scope, ScopedJoinHandle},
    time::{Duration, Instant},
};
use weir::{
    counters::Counters,
    memory::{Region, RegionOptions},
    port::{Completion, Key, Needs, Outcome, Port, Provider, Shape, Taken, Worker, uring::Uring},
    socket::DatagramSocket,
};

const WARM_UP: Duration = Duration::from_millis(100);
const MEASURED: Duration = Duration::from_millis(400);
const SERVER_CORE: usize = 0;
const SENDER_CORE: usize = 1;
const PAYLOAD_BYTES: usize = 1024;
const OUTSTANDING: u32 = 5000;

/// One shape of the port.
#[derive(Clone, Copy)]
struct Contender {
    name: &'static str,
    threads: u32,
    per_take: usize,
    shape: Shape,
}

const CONTENDERS: &[Contender] = &[
    Contender {
        name: "port-batch, 1 thread, best",
        threads: 1,
        per_take: 1000,
        shape: Shape::BEST,
    },
    Contender {
        name: "port-batch, 8 threads, best",
        threads: 8,
        per_take: 1000,
        shape: Shape::BEST,
    },
    Contender { name: "port, 1 thread, best", threads: 1, per_take: 1, shape: Shape::BEST },
    Contender { name: "port, 8 threads, best", threads: 8, per_take: 1, shape: Shape::BEST },
    Contender {
        name: "port, 8 threads, original",
        threads: 8,
        per_take: 1,
        shape: Shape::original(OUTSTANDING),
    },
];

/// What a contender did in one round.
#[derive(Clone, Copy)]
struct Sample {
    per_s: f64,
    cpu_ns: f64,
    batch: f64,
}

pub fn main() {
    let mut arguments = std::env::args().skip(1);
    let rounds: usize = arguments.next().map_or(9, |n| n.parse().expect("a number of rounds"));
    let filter = arguments.next().unwrap_or_default();
    let contenders: Vec<_> = CONTENDERS.iter().filter(|c| c.name.contains(&filter)).collect();
    // The first is the bare loop.
    let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); contenders.len() + 1];
    for round in 0..rounds {
        for turn in 0..samples.len() {
            let which = (round + turn) % samples.len();
            let sample = match which.checked_sub(1) {
                None => run_bare(),
                Some(number) => run_port(contenders[number]),
            };
            samples[which].push(sample);
        }
    }
    println!("64-byte datagrams, {OUTSTANDING} outstanding, medians of {rounds} rounds\n");
    println!(
        "{:<30} {:>12} {:>8} {:>10} {:>7}  quartiles",
        "contender", "datagrams/s", "CPU ns", "batch", "ratio"
    );
    let names = std::iter::once("bare loop").chain(contenders.iter().map(|c| c.name));
    for (name, own) in names.zip(&samples) {
        let ratios = || own.iter().zip(&samples[0]).map(|(own, bare)| own.per_s / bare.per_s);
        println!(
            "{name:<30} {:>12.0} {:>8.0} {:>10.1} {:>7.3}  {:.3} to {:.3}",
            quantile(own.iter().map(|s| s.per_s), 0.5),
            quantile(own.iter().map(|s| s.cpu_ns), 0.5),
            quantile(own.iter().map(|s| s.batch), 0.5),
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

fn measure(read: impl Fn() -> (u64, u64)) -> Sample {
    std::thread::sleep(WARM_UP);
    let (before, takes_before, cpu_before) = with_cpu(&read);
    let start = Instant::now();
    std::thread::sleep(MEASURED);
    let (after, takes_after, cpu_after) = with_cpu(&read);
    let datagrams = (after - before).max(1) as f64;
    Sample {
        per_s: datagrams / start.elapsed().as_secs_f64(),
        cpu_ns: (cpu_after - cpu_before) as f64 / datagrams,
        batch: datagrams / (takes_after - takes_before).max(1) as f64,
    }
}

fn with_cpu(read: &impl Fn() -> (u64, u64)) -> (u64, u64, u64) {
    let (datagrams, takes) = read();
    (datagrams, takes, cpu_ns_of_receivers())
}

/// CPU time in ns of this process' threads of the name that receivers have here.
fn cpu_ns_of_receivers() -> u64 {
    std::fs::read_dir("/proc/self/task")
        .expect("procfs")
        .filter_map(|task| {
            let path = task.ok()?.path();
            let name = std::fs::read_to_string(path.join("comm")).ok()?;
            let schedstat = std::fs::read_to_string(path.join("schedstat")).ok()?;
            name.starts_with("receiver")
                .then(|| schedstat.split(' ').next()?.parse::<u64>().ok())?
        })
        .sum()
}

fn bind() -> DatagramSocket {
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    DatagramSocket::bind(&address.into()).expect("a port of the system's choice")
}

/// A thread of the receiving side, on its core.
fn receiver<'s>(
    scope: &'s Scope<'s, '_>,
    body: impl FnOnce() + Send + 's,
) -> ScopedJoinHandle<'s, ()> {
    let pinned = move || {
        weir::affinity::pin_current_thread(SERVER_CORE).expect("this process may use that core");
        body();
    };
    std::thread::Builder::new()
        .name("receiver".into())
        .spawn_scoped(scope, pinned)
        .expect("a thread")
}

fn run_port(contender: &Contender) -> Sample {
    let Contender { threads, per_take, shape, .. } = *contender;
    let needs = Needs {
        payload: PAYLOAD_BYTES,
        sockets: 1,
        receives: OUTSTANDING,
        sends: 0,
        packets: 0,
        threads,
        concurrency: 1, // one core receives
    };
    let provider = Uring { shape };
    let layout = provider.layout(&needs).expect("io_uring is allowed");
    let region = Region::new(layout, OUTSTANDING, RegionOptions::default()).expect("memory");
    let port = provider.open(&needs).expect("io_uring is allowed");
    let socket = bind();
    let address = socket.local_address();
    let socket = port.associate(socket, Key(0)).expect("one socket");
    let counters: Vec<_> = (0..threads).map(|_| Arc::new(Counters::default())).collect();
    let sample = std::thread::scope(|scope| {
        for counters in counters.clone() {
            let (port, region) = (&port, &region);
            receiver(scope, move || {
                let mut worker = port.worker().expect("a place for each thread");
                while let Some(slice) = region.take() {
                    worker.receive(socket, slice).expect("room for all");
                }
                let mut taken = Taken::new(per_take);
                let mut again = Vec::with_capacity(per_take);
                let mut bytes = 0;
                while worker.take(&mut taken, None, &counters).expect("the ring works").is_some() {
                    counters.dequeues.one();
                    let mut received = 0;
                    for completion in taken.drain() {
                        let Completion::Operation { slice, outcome, .. } = completion else {
                            continue;
                        };
                        if let Outcome::Received(arrival) = outcome {
                            bytes += slice.payload()[..arrival.len].len();
                            received += 1;
                        }
                        again.push(slice);
                    }
                    let _ = worker.receive_all(socket, &mut again); // refused when closed
                    again.clear();
                    counters.datagrams.add(received);
                }
                std::hint::black_box(bytes);
            });
        }
        let flood = Flood::start(address, SENDER_CORE);
        let sample = measure(|| {
            let sum = |f: fn(&Counters) -> u64| counters.iter().map(|c| f(c)).sum();
            (sum(|c| c.datagrams.get()), sum(|c| c.dequeues.get()))
        });
        port.close();
        flood.stop();
        sample
    });
    let stopped = port.stop(Instant::now() + Duration::from_secs(5));
    assert_eq!((stopped.missing, region.in_pool()), (0, OUTSTANDING), "slices are missing");
    sample
}

fn run_bare() -> Sample {
    let (socket, counters, stop) = (bind(), Counters::default(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let receiver = receiver(scope, || {
            bare(socket.native().fd(), &counters, &stop).expect("io_uring is allowed");
        });
        let flood = Flood::start(socket.local_address(), SENDER_CORE);
        let sample = measure(|| (counters.datagrams.get(), counters.dequeues.get()));
        stop.store(true, Relaxed);
        // The flood goes on until the loop has seen it, so the loop needs no waking.
        receiver.join().expect("the bare loop does not panic");
        flood.stop();
        sample
    })
}

/// A header, and all that it points at.
#[repr(C, align(64))]
struct Receive {
    message: libc::msghdr,
    vector: libc::iovec,
    name: libc::sockaddr_in6,
    payload: [u8; PAYLOAD_BYTES],
}

/// The system calls of the port at its best and nothing else: one ring with the flags of a shared
/// one and the socket in its table of files, 64 receives with a buffer each, submitted and waited
/// for by one entry.
fn bare(fd: libc::c_int, counters: &Counters, stop: &AtomicBool) -> io::Result<()> {
    // As many as the library arms under load.
    const ARMED: usize = 64;
    let mut ring: IoUring =
        IoUring::builder().setup_submit_all().setup_cqsize(256).build(ARMED as u32)?;
    ring.submitter().register_files(&[fd])?;
    // SAFETY: all zeroes is a valid value of every field.
    let mut receives: Box<[Receive]> = (0..ARMED).map(|_| unsafe { mem::zeroed() }).collect();
    let base = receives.as_mut_ptr();
    let mut free: Vec<usize> = (0..ARMED).collect();
    let mut bytes = 0;
    while !stop.load(Relaxed) {
        {
            let mut queue = ring.submission();
            for number in free.drain(..) {
                // SAFETY: the number is below their count, and the kernel is done with this one.
                let receive = unsafe { &mut *base.add(number) };
                receive.vector = libc::iovec {
                    iov_base: receive.payload.as_mut_ptr().cast(),
                    iov_len: PAYLOAD_BYTES,
                };
                receive.message.msg_name = (&raw mut receive.name).cast();
                receive.message.msg_namelen = size_of::<libc::sockaddr_in6>() as u32;
                receive.message.msg_iov = &raw mut receive.vector;
                receive.message.msg_iovlen = 1;
                let entry = opcode::RecvMsg::new(types::Fixed(0), &raw mut receive.message).build();
                // SAFETY: the header lives until the ring is drained.
                unsafe { queue.push(&entry.user_data(number as u64)) }.expect("as many as fit");
            }
        }
        ring.submit_and_wait(1)?;
        let mut received = 0;
        for completion in ring.completion() {
            bytes += completion.result().max(0) as usize;
            received += 1;
            free.push(completion.user_data() as usize);
        }
        counters.dequeues.one();
        counters.datagrams.add(received);
    }
    std::hint::black_box(bytes);
    // The kernel may write until the ring is gone, which it tells nobody: so this memory stays.
    mem::forget(receives);
    Ok(())
}
