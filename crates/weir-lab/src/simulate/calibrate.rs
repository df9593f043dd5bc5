//! Measuring here what the model needs to know.
//!
//! What a datagram costs is measured on weir's own contracts: another thread, on another core where there is one, fills
//! a socket, and then the time is taken in which this thread empties it. What a call costs and what each datagram costs
//! is told apart by the time that many take and that few take. Each figure is the median of many bursts, so that one that was
//! interrupted does not count.

use super::costs::{Cost, Table};
use std::{
    collections::BTreeMap,
    hint::{black_box, spin_loop},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    num::NonZeroU16,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};
use weir::{
    Error, affinity,
    counters::Counters,
    machine::Costs as Measured,
    memory::{Region, RegionOptions},
    port::{
        self, Completion as PortCompletion, Key, Port as _, Provider as _, Shape, Taken,
        Worker as _,
    },
    readiness::{Epoll, Trigger},
    rio::{
        self, Batch, CompletionQueue as _, HandOver, Opened as _, RequestQueue as _,
        batch::PlainSockets,
    },
    socket::{DatagramSocket, Mode, Peer},
};
use weir_load::{
    audit::{Audit, AuditSettings},
    stamp::Stamp,
};

/// Bursts of each measurement.
const BURSTS: usize = 61;
/// Datagrams of a burst: few and many, which fit into a socket's usual buffer.
const FEW: usize = 8;
const MANY: usize = 128;
/// Datagrams that are sent with one call.
const TRAIN: usize = 32;
const DATAGRAM_BYTES: u16 = 64;
/// Nothing is waited for any longer.
const LIMIT: Duration = Duration::from_secs(20);
/// How long the scheduler lets a thread run that others wait for: Linux's base slice of 0.7 ms for each doubling of the
/// cores.
const SLICE_NS: f64 = 2_800_000.0;

/// Measures all costs on this machine. It takes some seconds.
///
/// # Errors
/// What could not be measured, and why.
pub fn calibrate() -> Result<Table, Error> {
    // Asked before any thread is pinned: a pinned thread has one core.
    let cores = affinity::allowed_cores();
    let (first, last) = (cores.first().copied().unwrap_or(0), cores.last().copied().unwrap_or(0));
    let basic = Measured::measure();
    let measured = thread::scope(|scope| {
        let measuring = scope.spawn(|| {
            let _ = affinity::pin_where_permitted(&[first]);
            measure(basic, first, last)
        });
        measuring.join()
    });
    measured.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Costs as they are found.
#[derive(Default)]
struct Found(BTreeMap<String, Cost>);

impl Found {
    fn add(&mut self, name: &str, ns: f64, how: &str) -> f64 {
        let ns = (ns.max(0.0) * 10.0).round() / 10.0;
        self.0.insert(name.into(), Cost { ns, how: how.into() });
        ns
    }
}

fn measure(basic: Measured, first: usize, last: usize) -> Result<Table, Error> {
    let mut found = Found::default();
    let two = first != last;
    let far = if two { "on another core" } else { "on the same core: there is one only" };
    let of = |ns: Option<u64>| ns.map_or(0.0, |ns| ns as f64);
    let call =
        found.add("call", of(basic.call_ns), "a system call that does nothing, 1000 in a row");
    found.add("clock", of(basic.clock_ns), "reading the monotonic clock, 1000 in a row");
    let lock = {
        let mutex = Mutex::new(0u64);
        per_step(1000, || *mutex.lock().unwrap_or_else(|e| e.into_inner()) += 1)
    };
    let lock =
        found.add("lock", lock, "a mutex of the standard library, 1000 in a row on one thread");
    let spin = per_step(1000, spin_loop);
    found.add(
        "lock_spin",
        100.0 * spin,
        "100 spin hints, as the standard library's mutex on a futex",
    );
    let hop = if two { hop_ns(first, last)? } else { 0.0 };
    found.add("hop", hop, &format!("half a round trip of a cache line between two threads {far}"));
    let (wake_call, wake) = wakes(last);
    found.add("wake_call", wake_call, &format!("the call that wakes a thread that sleeps {far}"));
    found.add(
        "wake",
        wake,
        &format!("from the end of that call to the first step of the thread {far}"),
    );
    let switch = switch_ns(first) - call;
    found.add(
        "switch",
        switch,
        "two threads on one core that wake each other in turn: half a round trip, less a system call",
    );
    found.add(
        "slice",
        SLICE_NS,
        "assumed: the base slice of a fair scheduler (EEVDF) on eight cores and more",
    );
    let moved = moved_ns(last);
    let moved = found.add(
        "moved",
        moved,
        &format!("writing two cache lines of each of 1000 slices that were written {far}, less the same written here"),
    );
    found.add(
        "handle",
        handle_ns(),
        "the audit of weir serve, 10,000 datagrams of 64 bytes in a row",
    );
    found.add(
        "work_step",
        work_step_ns(),
        "100,000 steps of a linear congruential generator in a row",
    );

    let from = &format!(
        "sent {far} before, in trains of {TRAIN} with segmentation offload where the system has it"
    );
    let socket = DatagramSocket::bind(&loopback().into())?;
    let sender = Sender::start(socket.local_address(), last)?;
    let receive = receive_ns(&socket, &sender)?;
    found.add(
        "receive",
        receive,
        &format!("{MANY} datagrams of {DATAGRAM_BYTES} bytes, {from}: a call for each"),
    );
    found.add(
        "receive_hold",
        2.0 * lock,
        "assumed: as two locks, whose line comes from another core besides",
    );
    found.add(
        "enqueue",
        2.0 * lock + moved,
        "assumed: two locks, and the end of the queue from another core",
    );
    found.add(
        "receive_none",
        receive_none_ns(&socket),
        "a call for a datagram where there is none, 1000 in a row",
    );
    match Epoll::availability() {
        Ok(()) => found.add(
            "readiness",
            readiness_ns(&socket, &sender)?,
            "a wait of epoll on a socket that has a datagram, 1000 in a row",
        ),
        Err(_) => {
            found.add("readiness", call, "assumed: as a system call, since there is no epoll")
        }
    };
    let rio = rio(last)?;
    let how =
        &format!("{MANY} and {FEW} datagrams of {DATAGRAM_BYTES} bytes on provider batch, {from}");
    found.add("dequeue", rio.fixed, &format!("{how}: what the number does not account for"));
    found.add("dequeue_each", rio.each, &format!("{how}: what one more takes"));
    found.add(
        "post",
        rio.post,
        &format!("{how}: posting and committing their slices again, for each"),
    );
    found.add(
        "completion",
        (moved + lock).min(rio.each),
        "assumed: one datagram's memory from the core that copied it, and as much as a lock",
    );
    let port = port(last)?;
    let how = &format!(
        "{MANY} datagrams of {DATAGRAM_BYTES} bytes at this system's completion port, {from}"
    );
    found.add(
        "take",
        port.fixed,
        &format!("{how}: takes of one, less what each costs in takes of many"),
    );
    found.add("take_each", port.each, &format!("{how}: in takes of many, for each"));
    found.add("port_post", port.post, &format!("{how}: posting their receives again, for each"));
    let how =
        format!("{how}: posting at a port for two threads, for each, less posting at one for one");
    found.add("port_lock", port.lock, &how);
    Ok(Table(found.0))
}

fn loopback() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

/// A busy machine may not answer in time, and does once in a while.
fn hop_ns(first: usize, last: usize) -> Result<f64, Error> {
    let until = Instant::now() + LIMIT;
    loop {
        if let Some(ns) = weir::machine::core_to_core_ns(first, last) {
            return Ok(ns);
        }
        in_time(until)?;
    }
}

/// The median of so many.
fn median(mut burst: impl FnMut() -> f64) -> f64 {
    let mut all: Vec<f64> = (0..BURSTS).map(|_| burst()).collect();
    all.sort_by(f64::total_cmp);
    all[BURSTS / 2]
}

fn per_step(steps: u32, mut step: impl FnMut()) -> f64 {
    median(|| {
        let begun = Instant::now();
        (0..steps).for_each(|_| step());
        begun.elapsed().as_nanos() as f64 / f64::from(steps)
    })
}

/// A thread that sleeps is woken: what the call takes, and from its end to the thread's first step.
fn wakes(core: usize) -> (f64, f64) {
    let begun = Instant::now();
    let ns = move || begun.elapsed().as_nanos() as u64;
    let (asleep, woken_at, over) =
        (AtomicBool::new(false), AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            let _ = affinity::pin_where_permitted(&[core]);
            while !over.load(SeqCst) {
                asleep.store(true, SeqCst);
                thread::park();
                woken_at.store(ns(), SeqCst);
            }
        });
        let mut calls = vec![];
        let mut wakes = vec![];
        for _ in 0..BURSTS {
            while !asleep.swap(false, SeqCst) {
                thread::yield_now();
            }
            // It has said that it will sleep; it does by now, on whatever core.
            let settled = Instant::now();
            while settled.elapsed() < Duration::from_micros(100) {
                thread::yield_now();
            }
            woken_at.store(0, SeqCst);
            let called = ns();
            sleeper.thread().unpark();
            let returned = ns();
            let at = loop {
                match woken_at.load(SeqCst) {
                    0 => thread::yield_now(),
                    at => break at,
                }
            };
            calls.push((returned - called) as f64);
            wakes.push(at.saturating_sub(returned) as f64);
        }
        over.store(true, SeqCst);
        sleeper.thread().unpark();
        let median = |mut all: Vec<f64>| {
            all.sort_by(f64::total_cmp);
            all[BURSTS / 2]
        };
        (median(calls), median(wakes))
    })
}

/// Two threads on one core wake each other in turn: half of a round trip.
fn switch_ns(core: usize) -> f64 {
    const TURNS: u32 = 200;
    let turn = AtomicU64::new(0);
    thread::scope(|scope| {
        let (meet, met) = mpsc::channel::<thread::Thread>();
        let turn = &turn;
        let until = |whose: u64| {
            while turn.load(SeqCst) < whose {
                thread::park();
            }
        };
        let other = scope.spawn(move || {
            let _ = affinity::pin_where_permitted(&[core]);
            let Ok(caller) = met.recv() else { return };
            for round in 0..u64::from(TURNS) * BURSTS as u64 {
                until(2 * round + 1);
                turn.store(2 * round + 2, SeqCst);
                caller.unpark();
            }
        });
        if meet.send(thread::current()).is_err() {
            return 0.0;
        }
        let mut round = 0;
        median(|| {
            let begun = Instant::now();
            for _ in 0..TURNS {
                turn.store(2 * round + 1, SeqCst);
                other.thread().unpark();
                until(2 * round + 2);
                round += 1;
            }
            begun.elapsed().as_nanos() as f64 / f64::from(2 * TURNS)
        })
    })
}

/// Two cache lines of memory that another core wrote, less the same memory once it is here.
fn moved_ns(core: usize) -> f64 {
    const SLICES: usize = 1000;
    /// Words of a slice, of which the first two lines are written.
    const WORDS: usize = 128;
    let words: Vec<AtomicU64> = (0..SLICES * WORDS).map(|_| AtomicU64::new(0)).collect();
    let write = || {
        let begun = Instant::now();
        for slice in words.chunks(WORDS) {
            slice[0].store(1, Relaxed);
            slice[8].store(1, Relaxed);
        }
        begun.elapsed().as_nanos() as f64 / SLICES as f64
    };
    thread::scope(|scope| {
        let (ask, asked) = mpsc::channel::<()>();
        let (answer, answered) = mpsc::channel();
        let write = &write;
        scope.spawn(move || {
            let _ = affinity::pin_where_permitted(&[core]);
            while asked.recv().is_ok() {
                if answer.send(write()).is_err() {
                    return;
                }
            }
        });
        median(|| {
            let _ = ask.send(());
            let _ = answered.recv();
            let far = write();
            far - write()
        })
    })
}

fn handle_ns() -> f64 {
    const DATAGRAMS: u64 = 10_000;
    let audit = Audit::new();
    let size = usize::from(DATAGRAM_BYTES);
    let _ = audit.begin(AuditSettings::new(1, size, 1, false));
    audit.start(1);
    let mut auditor = audit.auditor();
    let mut datagram = vec![0; size];
    weir_load::stamp::fill(&mut datagram);
    let source = IpAddr::from(Ipv4Addr::LOCALHOST);
    let mut sequence = 0;
    let mut run = |audited: bool| {
        let begun = Instant::now();
        for _ in 0..DATAGRAMS {
            Stamp { run: 1, flow: 0, sequence, proof: 0, due_ns: 0 }.write(&mut datagram);
            if audited {
                black_box(auditor.record_now(source, &datagram));
            } else {
                black_box(&datagram);
            }
            sequence += 1;
        }
        begun.elapsed().as_nanos() as f64 / DATAGRAMS as f64
    };
    let with = median(|| run(true));
    with - median(|| run(false))
}

fn work_step_ns() -> f64 {
    const STEPS: u32 = 100_000;
    let mut random = 1u32;
    median(|| {
        let begun = Instant::now();
        for _ in 0..STEPS {
            random = black_box(random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
        }
        begun.elapsed().as_nanos() as f64 / f64::from(STEPS)
    })
}

/// A thread that sends so many datagrams to a socket when asked, and says how long each took.
struct Sender {
    ask: mpsc::Sender<usize>,
    sent: mpsc::Receiver<Result<f64, Error>>,
}

impl Sender {
    fn start(to: SocketAddr, core: usize) -> Result<Self, Error> {
        let (ask, asked) = mpsc::channel::<usize>();
        let (answer, sent) = mpsc::channel();
        let socket = DatagramSocket::bind(&loopback().into())?;
        let bytes = vec![0; TRAIN * usize::from(DATAGRAM_BYTES)];
        let segment = NonZeroU16::new(DATAGRAM_BYTES).expect("datagrams have bytes");
        let peer = Peer::from(to);
        // It ends when nobody asks any more.
        thread::spawn(move || {
            let _ = affinity::pin_where_permitted(&[core]);
            let counters = Counters::default();
            while let Ok(count) = asked.recv() {
                let begun = Instant::now();
                let mut result = Ok(());
                for train in (0..count).step_by(TRAIN) {
                    let bytes = &bytes[..(count - train).min(TRAIN) * usize::from(DATAGRAM_BYTES)];
                    result =
                        socket.send_segments(bytes, segment, &peer, &counters).map_err(|unsent| {
                            Error::io("sending datagrams to be received", unsent.error)
                        });
                    if result.is_err() {
                        break;
                    }
                }
                let each = begun.elapsed().as_nanos() as f64 / count as f64;
                if answer.send(result.map(|()| each)).is_err() {
                    return;
                }
            }
        });
        Ok(Self { ask, sent })
    }

    /// Sends so many, and returns when they are on their way: what each took.
    fn send(&self, count: usize) -> Result<f64, Error> {
        let gone =
            || Error::io("sending datagrams to be received", std::io::ErrorKind::BrokenPipe.into());
        self.ask.send(count).map_err(|_| gone())?;
        self.sent.recv().map_err(|_| gone())?
    }
}

/// Receives with a call for each, after all have come.
fn receive_ns(socket: &DatagramSocket, sender: &Sender) -> Result<f64, Error> {
    let (mut buffer, counters) = (vec![0; 1024], Counters::default());
    let until = Instant::now() + LIMIT;
    bursts(until, || {
        sender.send(MANY)?;
        let begun = Instant::now();
        drain(socket, &mut buffer, &counters, MANY, until)?;
        Ok(begun.elapsed().as_nanos() as f64 / MANY as f64)
    })
}

/// Asks a socket that is empty.
fn receive_none_ns(socket: &DatagramSocket) -> f64 {
    let (mut buffer, counters) = ([0; 1024], Counters::default());
    per_step(1000, || drop(black_box(socket.receive(&mut buffer, Mode::Try, &counters))))
}

/// Waits for what is there already.
fn readiness_ns(socket: &DatagramSocket, sender: &Sender) -> Result<f64, Error> {
    let mut set = Epoll::new(1, Trigger::Level)?;
    set.add(socket, 0)?;
    let counters = Counters::default();
    sender.send(1)?;
    let until = Instant::now() + LIMIT;
    let ns = bursts(until, || {
        let begun = Instant::now();
        for _ in 0..1000 {
            set.wait(Some(LIMIT), &counters)
                .map_err(|e| Error::io("waiting for what was sent", e))?;
        }
        Ok(begun.elapsed().as_nanos() as f64 / 1000.0)
    })?;
    drain(socket, &mut [0; 1024], &counters, 1, until)?;
    Ok(ns)
}

fn drain(
    socket: &DatagramSocket,
    buffer: &mut [u8],
    counters: &Counters,
    mut left: usize,
    until: Instant,
) -> Result<(), Error> {
    while left > 0 {
        match socket.receive(buffer, Mode::Try, counters) {
            Ok(Some(arrival)) => left = left.saturating_sub(arrival.datagrams()),
            Ok(None) => {}
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(e) => return Err(Error::io("receiving what was sent", e)),
        }
        in_time(until)?;
    }
    Ok(())
}

/// The median of bursts that may fail.
fn bursts(until: Instant, mut burst: impl FnMut() -> Result<f64, Error>) -> Result<f64, Error> {
    let mut all = Vec::with_capacity(BURSTS);
    for _ in 0..BURSTS {
        all.push(burst()?);
        in_time(until)?;
    }
    all.sort_by(f64::total_cmp);
    Ok(all[BURSTS / 2])
}

fn in_time(until: Instant) -> Result<(), Error> {
    if Instant::now() < until {
        return Ok(());
    }
    let late = std::io::Error::new(
        std::io::ErrorKind::TimedOut,
        "it took longer than 20 s; end what else uses the cores",
    );
    Err(Error::io("measuring what datagrams cost", late))
}

/// What a call costs whatever it brings, what each datagram costs, posting its memory again, and a lock that threads share.
struct PerDatagram {
    fixed: f64,
    each: f64,
    post: f64,
    lock: f64,
}

/// Dequeues on plain sockets, which every system has.
fn rio(core: usize) -> Result<PerDatagram, Error> {
    let provider = PlainSockets;
    let per_dequeue = 1000;
    let needs = rio::Needs {
        payload: 1024,
        receives: 4096,
        sends: 0,
        per_dequeue,
        offload: false,
        meta: false,
    };
    let layout = rio::Provider::<HandOver>::layout(&provider, &needs)?;
    let region = Region::new(layout, needs.receives, RegionOptions::default())?;
    let opened = rio::Provider::<HandOver>::open(&provider, &[loopback().into()], &region, &needs)?;
    let to = opened.local_addresses()[0];
    let mut started = rio::Provider::<HandOver>::start(&provider, opened)?;
    let counters = Counters::default();
    let failed = |e| Error::io("dequeuing what was sent", e);
    for slice in std::iter::from_fn(|| region.take()) {
        if started.requests[0].receive(slice).is_err() {
            break;
        }
    }
    started.requests[0].commit(&counters).map_err(failed)?;
    let sender = Sender::start(to, core)?;
    let mut batch = Batch::new(per_dequeue as usize);
    let until = Instant::now() + LIMIT;
    let mut posts = Vec::new();
    let mut of = |count: usize| {
        bursts(until, || {
            sender.send(count)?;
            let (mut dequeuing, mut posting, mut left) = (0, 0, count);
            while left > 0 {
                let begun = Instant::now();
                let came = started.completions.dequeue(&mut batch, &counters).map_err(failed)?;
                dequeuing += begun.elapsed().as_nanos();
                left = left.saturating_sub(came);
                let begun = Instant::now();
                for completion in batch.drain() {
                    let _ = started.requests[0].receive(completion.slice);
                }
                started.requests[0].commit(&counters).map_err(failed)?;
                posting += begun.elapsed().as_nanos();
                in_time(until)?;
            }
            if count == MANY {
                posts.push(posting as f64 / count as f64);
            }
            Ok(dequeuing as f64)
        })
    };
    let (few, many) = (of(FEW)?, of(MANY)?);
    let rio::Started { completions, requests, .. } = started;
    let _ = completions.stop(requests, Instant::now() + Duration::from_secs(1));
    posts.sort_by(f64::total_cmp);
    let each = ((many - few) / (MANY - FEW) as f64).max(0.0);
    let post = posts[posts.len() / 2];
    Ok(PerDatagram { fixed: few - each * FEW as f64, each, post, lock: 0.0 })
}

/// Takes from this system's completion port.
fn port(core: usize) -> Result<PerDatagram, Error> {
    let (one, post) = port_taking(core, 1, 1)?;
    let (each, _) = port_taking(core, 1000, 1)?;
    let (_, shared_post) = port_taking(core, 1, 2)?;
    let lock = shared_post - post;
    Ok(PerDatagram { fixed: one - each, each, post, lock })
}

/// What taking costs for each datagram, and posting it again, in takes of so many from a port for so many threads.
fn port_taking(core: usize, most: usize, threads: u32) -> Result<(f64, f64), Error> {
    let receives = 4096;
    let needs = port::Needs {
        payload: 1024,
        sockets: 1,
        receives,
        sends: 0,
        packets: 0,
        threads,
        concurrency: threads,
    };
    let provider = port::Native { shape: Shape::BEST };
    let region = Region::new(provider.layout(&needs)?, receives, RegionOptions::default())?;
    let port = provider.open(&needs)?;
    let socket = DatagramSocket::bind(&loopback().into())?;
    let to = socket.local_address();
    let id = port.associate(socket, Key(0))?;
    let counters = Counters::default();
    let failed = |e| Error::io("taking what was sent from the port", e);
    let measured = {
        let mut worker = port.worker()?;
        for slice in std::iter::from_fn(|| region.take()) {
            if worker.receive(id, slice).is_err() {
                break;
            }
        }
        worker.commit(&counters).map_err(failed)?;
        let sender = Sender::start(to, core)?;
        let mut taken = Taken::new(most);
        let until = Instant::now() + LIMIT;
        let mut posts = vec![];
        let taking = bursts(until, || {
            sender.send(MANY)?;
            let (mut taking, mut posting, mut left) = (0, 0, MANY);
            while left > 0 {
                let begun = Instant::now();
                worker.take(&mut taken, Some(LIMIT), &counters).map_err(failed)?;
                taking += begun.elapsed().as_nanos();
                let begun = Instant::now();
                for completion in taken.drain() {
                    if let PortCompletion::Operation { slice, outcome, .. } = completion {
                        let datagrams = match outcome {
                            rio::Outcome::Received(arrival) => arrival.datagrams(),
                            _ => 0,
                        };
                        left = left.saturating_sub(datagrams);
                        let _ = worker.receive(id, slice);
                    }
                }
                posting += begun.elapsed().as_nanos();
                in_time(until)?;
            }
            posts.push(posting as f64 / MANY as f64);
            Ok(taking as f64 / MANY as f64)
        })?;
        posts.sort_by(f64::total_cmp);
        (taking, posts[posts.len() / 2])
    };
    let _ = port.stop(Instant::now() + Duration::from_secs(1));
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::costs::Costs;

    #[test]
    fn all_costs_are_found_and_each_says_how() {
        let table = match calibrate() {
            Err(Error::Unavailable(why)) => return eprintln!("not run: {why}"),
            // Where others have the cores it gives up, and says so.
            Err(error @ Error::Io { .. }) if error.to_string().contains("end what else uses") => {
                return eprintln!("not run: {error}");
            }
            found => found.unwrap(),
        };
        let costs = Costs::of(&table).unwrap();
        assert!(costs.take_each > 0.0 && costs.receive > 0.0, "{costs:?}");
        // A difference, which others' work may hide.
        assert!(costs.dequeue_each >= 0.0, "{costs:?}");
        assert!(table.0.values().all(|cost| !cost.how.is_empty()));
        assert!(table.to_toml().contains("[dequeue_each]"));
    }
}
