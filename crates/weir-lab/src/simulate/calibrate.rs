//! Measuring here what the model needs to know.
//!
//! What a datagram costs is measured on weir's own contracts, and under a flood, as servers under load meet it: a thread on
//! another core, where there is one, fills a socket and goes on sending while the time is taken in which this thread
//! receives some of what lies there. What a call costs and what each datagram costs is told apart by the time that calls
//! take which bring many, and calls which bring few. Each figure is the median of many bursts, so that one that was interrupted
//! does not count, and of several passes over all of them.

use super::costs::{Cost, Table};
use std::{
    collections::BTreeMap,
    hint::{black_box, spin_loop},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    num::NonZeroU16,
    sync::{
        Arc, Mutex,
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

/// How often all is measured, since a machine may be disturbed for longer than one measurement takes.
const PASSES: usize = 5;
/// Bursts of each measurement.
const BURSTS: usize = 61;
/// Datagrams of a burst, half of what fits into a socket's usual buffer.
const MANY: usize = 128;
/// Datagrams of a dequeue: few, and all of a burst.
const DEQUEUES: [usize; 2] = [8, MANY];
/// The same of a take from a port: one, and as many as lie ready at a time where a port does not arm more receives.
const TAKES: [usize; 2] = [1, 64];
/// Locks that a datagram costs in takes of one from a port that threads share: who may run, the take, and the post.
const LOCKS: f64 = 3.0;
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
            (0..PASSES).map(|_| measure(basic, first, last)).collect::<Result<Vec<_>, _>>()
        });
        measuring.join()
    });
    measured.unwrap_or_else(|panic| std::panic::resume_unwind(panic)).map(of_passes)
}

/// The median of each cost.
fn of_passes(passes: Vec<Table>) -> Table {
    let mut all: BTreeMap<String, Vec<Cost>> = BTreeMap::new();
    for (name, cost) in passes.into_iter().flat_map(|table| table.0) {
        all.entry(name).or_default().push(cost);
    }
    let median = |(name, mut costs): (String, Vec<Cost>)| {
        costs.sort_by(|one, other| one.ns.total_cmp(&other.ns));
        let middle = costs.len() / 2;
        (name, costs.swap_remove(middle))
    };
    Table(all.into_iter().map(median).collect())
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

    let core = two.then_some(last);
    let from = &format!(
        "sent {}, in trains of {TRAIN} with segmentation offload where the system has it",
        if two {
            "on another core, which goes on sending"
        } else {
            "before: there is one core only"
        }
    );
    let socket = DatagramSocket::bind(&loopback().into())?;
    let sender = Sender::start(socket.local_address(), core)?;
    let receive = receive_ns(&socket, &sender)?;
    // For what asks a socket that has something.
    sender.fill(Instant::now() + LIMIT)?;
    drop(sender);
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
    match Epoll::availability() {
        Ok(()) => found.add(
            "readiness",
            readiness_ns(&socket)?,
            "a wait of epoll on a socket that has datagrams, 1000 in a row",
        ),
        Err(_) => {
            found.add("readiness", call, "assumed: as a system call, since there is no epoll")
        }
    };
    found.add(
        "receive_none",
        receive_none_ns(&socket)?,
        "a call for a datagram where there is none, 1000 in a row",
    );
    let rio = rio(core)?;
    let [few, many] = DEQUEUES;
    let how = &format!(
        "dequeues of {few} and of {many} datagrams of {DATAGRAM_BYTES} bytes on provider batch, {from}"
    );
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
    let (port, lock) = port(core)?;
    let [few, many] = TAKES;
    let how = &format!(
        "takes of {few} and of up to {many} datagrams of {DATAGRAM_BYTES} bytes from this system's completion port, {from}"
    );
    found.add("take", port.fixed, &format!("{how}: what the number does not account for"));
    found.add("take_each", port.each, &format!("{how}: what one more takes"));
    found.add("port_post", port.post, &format!("{how}: posting their receives again, for each"));
    let how = format!(
        "{how}: by how much takes of {few} from a port for two threads cost more, for each of {LOCKS} locks"
    );
    found.add("port_lock", lock, &how);
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

/// Fills a socket: a thread on another core, which goes on sending until this is dropped; where there is no other core, whoever
/// asks for it.
///
/// A sender that rests while datagrams are received makes them dearer than any flood does: Linux leaves their memory to the core
/// that they came from, which frees it when it sends next. If it does not send, the receiver has to interrupt it after a few of
/// them, for which a core that sleeps has to be woken, or to free them itself.
enum Sender {
    Flood { sent: Arc<AtomicU64>, over: Arc<AtomicBool>, failed: mpsc::Receiver<Error> },
    Here(Box<Train>),
}

impl Sender {
    fn start(to: SocketAddr, core: Option<usize>) -> Result<Self, Error> {
        let train = Train::to(to)?;
        let Some(core) = core else { return Ok(Self::Here(Box::new(train))) };
        let (sent, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (fail, failed) = mpsc::channel();
        let flood = Self::Flood { sent: Arc::clone(&sent), over: Arc::clone(&over), failed };
        thread::spawn(move || {
            let _ = affinity::pin_where_permitted(&[core]);
            while !over.load(Relaxed) {
                match train.send() {
                    Ok(()) => sent.fetch_add(TRAIN as u64, Relaxed),
                    Err(error) => return drop(fail.send(error)),
                };
            }
        });
        Ok(flood)
    }

    /// Returns when a burst lies in the socket.
    fn fill(&self, until: Instant) -> Result<(), Error> {
        let (sent, failed) = match self {
            Self::Flood { sent, failed, .. } => (sent, failed),
            Self::Here(train) => return (0..MANY / TRAIN).try_for_each(|_| train.send()),
        };
        // What is too much for the socket is lost.
        let enough = sent.load(Relaxed) + 2 * MANY as u64;
        while sent.load(Relaxed) < enough {
            if let Ok(error) = failed.try_recv() {
                return Err(error);
            }
            in_time(until)?;
        }
        Ok(())
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        if let Self::Flood { over, failed, .. } = self {
            over.store(true, Relaxed);
            // It has ended when there is nobody who could fail.
            while failed.recv().is_ok() {}
        }
    }
}

/// Datagrams that are sent with one call.
struct Train {
    socket: DatagramSocket,
    to: Peer,
    bytes: [u8; TRAIN * DATAGRAM_BYTES as usize],
    counters: Counters,
}

impl Train {
    fn to(to: SocketAddr) -> Result<Self, Error> {
        Ok(Self {
            socket: DatagramSocket::bind(&loopback().into())?,
            to: Peer::from(to),
            bytes: [0; TRAIN * DATAGRAM_BYTES as usize],
            counters: Counters::default(),
        })
    }

    fn send(&self) -> Result<(), Error> {
        let Self { socket, to, bytes, counters } = self;
        let segment = NonZeroU16::new(DATAGRAM_BYTES).expect("datagrams have bytes");
        let sent = socket.send_segments(bytes, segment, to, counters);
        sent.map_err(|unsent| Error::io("sending datagrams to be received", unsent.error))
    }
}

/// Receives with a call for each.
fn receive_ns(socket: &DatagramSocket, sender: &Sender) -> Result<f64, Error> {
    let (mut buffer, counters) = ([0; 1024], Counters::default());
    let until = Instant::now() + LIMIT;
    bursts(until, || {
        sender.fill(until)?;
        let begun = Instant::now();
        let mut left = MANY;
        while left > 0 {
            match receive(socket, &mut buffer, &counters)? {
                0 => in_time(until)?,
                came => left = left.saturating_sub(came),
            }
        }
        Ok(begun.elapsed().as_nanos() as f64 / MANY as f64)
    })
}

/// What one call brings, if anything.
fn receive(
    socket: &DatagramSocket,
    buffer: &mut [u8],
    counters: &Counters,
) -> Result<usize, Error> {
    match socket.receive(buffer, Mode::Try, counters) {
        Ok(arrival) => Ok(arrival.map_or(0, |arrival| arrival.datagrams())),
        Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => Ok(0),
        Err(e) => Err(Error::io("receiving what was sent", e)),
    }
}

/// Waits for what is there already.
fn readiness_ns(socket: &DatagramSocket) -> Result<f64, Error> {
    let mut set = Epoll::new(1, Trigger::Level)?;
    set.add(socket, 0)?;
    let counters = Counters::default();
    bursts(Instant::now() + LIMIT, || {
        let begun = Instant::now();
        for _ in 0..1000 {
            set.wait(Some(LIMIT), &counters)
                .map_err(|e| Error::io("waiting for what was sent", e))?;
        }
        Ok(begun.elapsed().as_nanos() as f64 / 1000.0)
    })
}

/// Asks a socket that it has emptied.
fn receive_none_ns(socket: &DatagramSocket) -> Result<f64, Error> {
    let (mut buffer, counters) = ([0; 1024], Counters::default());
    while receive(socket, &mut buffer, &counters)? > 0 {}
    Ok(per_step(1000, || drop(black_box(socket.receive(&mut buffer, Mode::Try, &counters)))))
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

/// What a datagram was received for.
#[derive(Clone, Copy)]
struct Each {
    /// All of it.
    all: f64,
    /// Posting its memory again.
    post: f64,
}

/// What a call costs whatever it brings, what each datagram costs, and posting its memory again.
struct PerDatagram {
    fixed: f64,
    each: f64,
    post: f64,
}

impl PerDatagram {
    /// From calls that bring few and calls that bring many.
    fn of([few, many]: [usize; 2], of_few: Each, of_many: Each) -> Self {
        let (few, many) = (few as f64, many as f64);
        let each = (many * of_many.all - few * of_few.all) / (many - few);
        let post = of_many.post;
        Self { fixed: few * (of_few.all - each), each: each - post, post }
    }
}

/// Receives bursts by steps, each of which says how many datagrams it brought, and how long it posted.
fn received_by(
    sender: &Sender,
    mut step: impl FnMut() -> Result<(usize, Duration), Error>,
) -> Result<Each, Error> {
    let until = Instant::now() + LIMIT;
    let mut posts = Vec::with_capacity(BURSTS);
    let all = bursts(until, || {
        sender.fill(until)?;
        let (mut received, mut posting) = (0, Duration::ZERO);
        let begun = Instant::now();
        while received < MANY {
            let (came, posted) = step()?;
            if came == 0 {
                in_time(until)?;
            }
            (received, posting) = (received + came, posting + posted);
        }
        let all = begun.elapsed();
        posts.push(posting.as_nanos() as f64 / received as f64);
        Ok(all.as_nanos() as f64 / received as f64)
    })?;
    posts.sort_by(f64::total_cmp);
    Ok(Each { all, post: posts[posts.len() / 2] })
}

/// How long this takes, where it is asked: with few datagrams looking at the clock would take as long.
fn how_long(asked: bool, f: impl FnOnce()) -> Duration {
    let begun = asked.then(Instant::now);
    f();
    begun.map_or(Duration::ZERO, |begun| begun.elapsed())
}

/// Dequeues on plain sockets, which every system has.
fn rio(core: Option<usize>) -> Result<PerDatagram, Error> {
    let provider = PlainSockets;
    let [few, many] = DEQUEUES;
    let needs = rio::Needs {
        payload: 1024,
        receives: 4096,
        sends: 0,
        per_dequeue: many as u32,
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
    let mut of = |most: usize| {
        let mut batch = Batch::new(most);
        received_by(&sender, || {
            let came = started.completions.dequeue(&mut batch, &counters).map_err(failed)?;
            let mut committed = Ok(());
            let posting = how_long(most == many, || {
                for completion in batch.drain() {
                    let _ = started.requests[0].receive(completion.slice);
                }
                committed = started.requests[0].commit(&counters);
            });
            committed.map_err(failed)?;
            Ok((came, posting))
        })
    };
    let (of_few, of_many) = (of(few)?, of(many)?);
    drop(sender);
    let rio::Started { completions, requests, .. } = started;
    let _ = completions.stop(requests, Instant::now() + Duration::from_secs(1));
    Ok(PerDatagram::of(DEQUEUES, of_few, of_many))
}

/// Takes from this system's completion port, and a lock of one that threads share.
fn port(core: Option<usize>) -> Result<(PerDatagram, f64), Error> {
    let [few, many] = TAKES;
    let of_few = port_taking(core, few, 1)?;
    let of_many = port_taking(core, many, 1)?;
    let shared = port_taking(core, few, 2)?;
    let lock = (shared.all - of_few.all) / LOCKS;
    Ok((PerDatagram::of(TAKES, of_few, of_many), lock))
}

/// What a datagram costs in takes of so many from a port for so many threads.
fn port_taking(core: Option<usize>, most: usize, threads: u32) -> Result<Each, Error> {
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
        received_by(&sender, || {
            let came = worker.take(&mut taken, Some(LIMIT), &counters).map_err(failed)?;
            let posting = how_long(most > 1, || {
                for completion in taken.drain() {
                    if let PortCompletion::Operation { slice, .. } = completion {
                        let _ = worker.receive(id, slice);
                    }
                }
            });
            Ok((came.unwrap_or(0), posting))
        })
    };
    let _ = port.stop(Instant::now() + Duration::from_secs(1));
    measured
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::costs::Costs;

    #[test]
    fn a_pass_that_was_disturbed_does_not_count() {
        let pass = |ns| Table([("call".into(), Cost { ns, how: String::new() })].into());
        assert_eq!(of_passes(vec![pass(9000.0), pass(101.0), pass(100.0)]), pass(101.0));
    }

    #[test]
    fn what_a_call_costs_is_told_from_what_each_datagram_costs() {
        let of = |datagrams: f64| Each { all: 210.0 / datagrams + 480.0, post: 30.0 };
        let PerDatagram { fixed, each, post } = PerDatagram::of([8, 128], of(8.0), of(128.0));
        for (found, expected) in [(fixed, 210.0), (each, 450.0), (post, 30.0)] {
            assert!((found - expected).abs() < 1e-6, "{found} and {expected}");
        }
    }

    /// What is sent while nobody receives is lost: what lies there is a burst all the same.
    #[test]
    fn a_socket_is_filled_again_and_again_by_a_core_that_goes_on_sending() {
        let core = affinity::allowed_cores().last().copied();
        for core in [None, core] {
            let socket = DatagramSocket::bind(&loopback().into()).unwrap();
            let sender = Sender::start(socket.local_address(), core).unwrap();
            for _ in 0..3 {
                let until = Instant::now() + LIMIT;
                sender.fill(until).unwrap();
                let (mut buffer, counters) = ([0; 1024], Counters::default());
                let mut came = 0;
                // What was sent is there at once, unless others have the core on which the system passes it on.
                while came < MANY {
                    came += receive(&socket, &mut buffer, &counters).unwrap();
                    in_time(until).unwrap();
                }
                assert_eq!(came, MANY, "one with each call");
            }
        }
    }

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
