//! What the designs on a completion port share: opening the port, starting its threads, and giving everything
//! back. What a thread does stands in [`hand`](super::hand), what becomes of a connection's completions
//! in [`flow`](super::flow).
//!
//! Completions of one connection come to several threads, so each connection stands behind a lock of its
//! own, as behind the original's critical section. Whoever has one of its completions takes that lock, calls
//! the handler, and starts what the connection wants next; the other locks ([`shares`](super::shares))
//! are taken under it for a few steps each, never the other way round.

use super::{
    hand::Hand,
    places::{Open, Places},
    shares::{Accepts, Clock, Pool, Sends},
};
use crate::{
    Error, Unavailable,
    crew::{contain, lock},
    options::Named,
    port::{
        Key, Packet,
        streams::{ListenerId, Native, Needs, Port, Provider, Worker as _},
    },
    stream::{self, Listener},
    tcp::{ActiveSet, Connection, Handler, Job, Reason, Worker, active::Active},
    timer::Wheel,
};
use std::{
    fmt, io,
    panic::resume_unwind,
    str::FromStr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// What a connection waits with for something to receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Idle {
    /// A receive, which holds a buffer.
    Buffer,
    /// A receive of no bytes, which holds none; what has come is received when it ends.
    ZeroByte,
}

impl Idle {
    /// The names accepted.
    pub const NAMES: Named = Named(&["buffer", "zero-byte"]);
}

impl FromStr for Idle {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "buffer" => Ok(Idle::Buffer),
            "zero-byte" => Ok(Idle::ZeroByte),
            _ => Err(()),
        }
    }
}

impl fmt::Display for Idle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Idle::Buffer => "buffer",
            Idle::ZeroByte => "zero-byte",
        })
    }
}

/// The numbers that the designs let one choose.
#[derive(Debug, Clone, Copy)]
pub(super) struct Numbers {
    pub(super) threads: u32,
    pub(super) concurrency: u32,
    /// Accepts outstanding at first, at most, and how many more when they run dry.
    pub(super) accepts: (u32, u32, u32),
    /// Most sends outstanding, of all connections, of peers that are not stuck, and most of those that are.
    pub(super) sends: u32,
    pub(super) stuck: u32,
    /// Receives outstanding on each connection, and what it waits with.
    pub(super) receives: u32,
    pub(super) idle: Idle,
    /// Most receives for one wait, where it waits without a buffer.
    pub(super) drain: u32,
}

/// A port, its connections, and what its threads share. The last to leave stops it.
pub(super) struct Shared<P, H> {
    pub(super) port: P,
    pub(super) listeners: Vec<(Listener, ListenerId)>,
    pub(super) places: Places<H>,
    pub(super) pool: Pool,
    pub(super) sends: Sends,
    /// Who is served and who waits.
    pub(super) active: Mutex<Active>,
    pub(super) accepts: Mutex<Accepts>,
    /// Whether accepting is paused, so that who looks need not lock. It changes under the lock of `accepts` only:
    /// else one thread's end of a pause could hide the next pause, which then nobody would end.
    paused: AtomicBool,
    pub(super) clock: Mutex<Clock>,
    pub(super) numbers: Numbers,
}

/// Of the packet that tells of the end of the server.
pub(super) const STOP: Packet = Packet { key: Key(u64::MAX), value: 0 };

/// How long giving back may take that has only to be asked for.
const GIVING_BACK: Duration = Duration::from_secs(10);

/// Whether a port can be had here.
pub(super) fn availability() -> Result<(), Unavailable> {
    Native::default().availability()
}

/// How it serves no more connections at a time than may be: the threads share one order.
pub(super) fn active_set() -> ActiveSet {
    ActiveSet::InOrder
}

/// Opens the port, listens, and associates the listening sockets.
pub(super) fn open<H: Handler, P: Provider>(
    job: &mut Job<H>,
    provider: &P,
    numbers: Numbers,
) -> Result<Shared<P::Port, H>, Error> {
    let (first, most, burst) = numbers.accepts;
    let (connections, listeners) = (job.limits.connections, job.endpoints.len() as u32);
    let needs = Needs {
        listeners,
        streams: connections,
        accepts: most.max(first).saturating_mul(listeners),
        receives: connections.saturating_mul(numbers.receives),
        // One of each connection.
        sends: numbers.sends.saturating_add(numbers.stuck).min(connections),
        packets: 1,
        threads: numbers.threads,
        concurrency: numbers.concurrency,
    };
    let port = provider.open(&needs)?;
    let listening = job.listen()?;
    let associate = |(number, listener): (usize, Listener)| {
        port.listen(listener.clone(), Key(number as u64)).map(|id| (listener, id))
    };
    let listeners: Vec<_> =
        listening.into_iter().enumerate().map(associate).collect::<Result<_, _>>()?;
    for (name, value) in port.granted() {
        job.state(name, value);
    }
    let accepts = Accepts::new(listeners.len(), first, most, burst);
    let pool = Pool::new(job.buffer_bytes);
    Ok(Shared {
        accepts: Mutex::new(accepts),
        active: Mutex::new(Active::new(job.limits.active)),
        listeners,
        ..Shared::of_connections(port, connections, pool, job.since(), numbers)
    })
}

/// Starts the threads. Each calls `run`, and the last to leave gives everything back.
pub(super) fn spawn<H: Handler, P: Port>(
    job: &mut Job<H>,
    shared: Shared<P, H>,
    run: impl Fn(&mut Worker<H>, &Shared<P, H>) -> Result<(), Error> + Clone + Send + 'static,
) -> Result<(), Error> {
    let closer = shared.port.closer();
    job.on_stop(shared.port.poster(STOP));
    let threads = shared.numbers.threads;
    // One share for each thread and none for this one, so that the last thread finds itself last.
    let shared = Arc::new(shared);
    let shares: Vec<_> = (1..threads).map(|_| Arc::clone(&shared)).collect();
    for shared in shares.into_iter().chain([shared]) {
        let run = run.clone();
        let spawned = job.spawn(move |worker| {
            let result = contain(|| run(worker, &shared));
            shared.port.close(); // the others must not wait for this thread
            let given_back = Arc::into_inner(shared).map_or(Ok(()), |shared| shared.end(worker));
            result.unwrap_or_else(|panic| resume_unwind(panic)).and(given_back)
        });
        if spawned.is_err() {
            closer.wake();
            return spawned;
        }
    }
    Ok(())
}

/// Takes a place among the threads that take. The first thread starts the first accepts.
pub(super) fn join<'p, 'w, H: Handler, P: Port>(
    worker: &'w mut Worker<H>,
    shared: &'p Shared<P, H>,
) -> Result<Hand<'p, 'w, P, H>, Error> {
    let taker = shared.port.worker()?;
    let mut hand = Hand {
        worker,
        shared,
        taker,
        slices: Vec::new(),
        unlooked: 0,
        due: Vec::new(),
        sent: false,
        next: Vec::new(),
    };
    if hand.worker.index == 0 {
        hand.keep_accepting();
        let calls = Arc::clone(&hand.worker.calls);
        hand.taker.commit(&calls).map_err(|e| Error::io("starting accepts", e))?;
    }
    hand.worker.ready(None);
    Ok(hand)
}

impl<P: Port, H: Handler> Shared<P, H> {
    /// For connections that others accept.
    pub(super) fn of_connections(
        port: P,
        connections: u32,
        pool: Pool,
        since: Instant,
        numbers: Numbers,
    ) -> Self {
        Self {
            port,
            listeners: Vec::new(),
            places: Places::new(connections),
            pool,
            sends: Sends::new(numbers.sends, numbers.stuck, since),
            active: Mutex::default(),
            accepts: Mutex::new(Accepts::new(0, 0, 0, 0)),
            paused: AtomicBool::new(false),
            clock: Mutex::new(Clock::new(Wheel::starting(since))),
            numbers,
        }
    }

    /// An accept failed for want of descriptors or memory. Says whether accepting pauses from now on.
    pub(super) fn pause(&self, listener: usize) -> bool {
        let mut accepts = lock(&self.accepts);
        let begins = accepts.pause(listener);
        self.paused.store(accepts.paused_until().is_some(), Relaxed);
        begins
    }

    /// Until when accepting is paused, if it is.
    pub(super) fn paused_until(&self) -> Option<Instant> {
        self.paused.load(Relaxed).then(|| lock(&self.accepts).paused_until())?
    }

    /// Ends a pause, where a descriptor was given back, or its time is over. Says whether there was one.
    pub(super) fn resume(&self, now: Option<Instant>) -> bool {
        if !self.paused.load(Relaxed) {
            return false;
        }
        let mut accepts = lock(&self.accepts);
        let ended = accepts.resume(now);
        self.paused.store(accepts.paused_until().is_some(), Relaxed);
        ended
    }

    /// No more accepts are started. Says whether they were until now.
    pub(super) fn shut(&self) -> bool {
        let mut accepts = lock(&self.accepts);
        self.paused.store(false, Relaxed);
        accepts.shut()
    }

    /// Stops the port, and cuts off the connections that are still open.
    pub(super) fn end(self, worker: &mut Worker<H>) -> Result<(), Error> {
        let Self { port, places, pool, clock, .. } = self;
        let stopped = port.stop(Instant::now() + GIVING_BACK);
        let mut clock = clock.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        for slot in 0..places.slots() {
            if let Some(Open { mut connection, stream, .. }) = lock(places.get(slot)).take() {
                clock.wheel.cancel(slot);
                connection.fail(Reason::Stopped);
                close(worker, connection, &stream);
            }
        }
        worker.add_timers(clock.wheel.counts());
        let (made, out) = pool.account();
        if stopped.missing == 0 && out == 0 {
            return Ok(());
        }
        let missing =
            io::Error::other(format!("{} of {made} did not come back", stopped.missing.max(out)));
        Err(Error::io("taking slices back from the port", missing))
    }
}

/// Ends a connection, and tells its handler.
pub(super) fn close<H: Handler>(
    worker: &mut Worker<H>,
    connection: Connection<H>,
    stream: &stream::Stream,
) {
    if connection.close(worker).is_abrupt() {
        stream.reset_when_closed();
    }
}
