//! What the designs on a completion port share: opening the port, starting its threads, what becomes of each
//! completion, and giving everything back.
//!
//! Completions of one connection come to several threads, so each connection stands behind a lock of its
//! own, as behind the original's critical section. Whoever has one of its completions takes that lock, calls
//! the handler, and starts what the connection wants next; the other locks ([`port_shares`](super::port_shares))
//! are taken under it for a few steps each, never the other way round.

use super::{
    ActiveSet, Connection, Handler, Job, Reason, Worker,
    active::Active,
    port_places::{Open, Order, Places, Sending},
    port_shares::{Accepts, Clock, Pool, Sends, end_accepting},
};
use crate::{
    Error, Unavailable,
    crew::{contain, lock},
    memory::{Load, Slice},
    options::Named,
    port::{
        Key, Packet, Refused,
        streams::{
            Closing, Completion, ListenerId, Native, Needs, Outcome, Port, Provider, StreamId,
            Taken, Worker as Taker,
        },
    },
    stream::{self, Accepted, Listener, Mode},
    timer::{Tick, Wheel},
};
use std::{
    fmt, io,
    panic::resume_unwind,
    str::FromStr,
    sync::{
        Arc, Mutex, TryLockError,
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
    /// Most sends outstanding, of all connections.
    pub(super) sends: u32,
    /// Receives outstanding on each connection, and what it waits with.
    pub(super) receives: u32,
    pub(super) idle: Idle,
    /// Most receives for one wait, where it waits without a buffer.
    pub(super) drain: u32,
}

/// A port, its connections, and what its threads share. The last to leave stops it.
pub(super) struct Shared<P, H> {
    port: P,
    listeners: Vec<(Listener, ListenerId)>,
    places: Places<H>,
    pool: Pool,
    sends: Mutex<Sends>,
    /// Who is served and who waits.
    active: Mutex<Active>,
    accepts: Mutex<Accepts>,
    /// Whether accepting may be paused, so that who looks need not lock.
    paused: AtomicBool,
    clock: Mutex<Clock>,
    numbers: Numbers,
}

/// Of the packet that tells of the end of the server.
pub(super) const STOP: Packet = Packet { key: Key(u64::MAX), value: 0 };

/// How long giving back may take that has only to be asked for.
const GIVING_BACK: Duration = Duration::from_secs(10);

/// Slices that a thread keeps at hand.
const AT_HAND: usize = 16;

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
        sends: numbers.sends,
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
            sends: Mutex::new(Sends::new(numbers.sends)),
            active: Mutex::default(),
            accepts: Mutex::new(Accepts::new(0, 0, 0, 0)),
            paused: AtomicBool::new(false),
            clock: Mutex::new(Clock::new(Wheel::starting(since))),
            numbers,
        }
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
fn close<H: Handler>(worker: &mut Worker<H>, connection: Connection<H>, stream: &stream::Stream) {
    if connection.close(worker).is_abrupt() {
        stream.reset_when_closed();
    }
}

/// A thread at the port, with what it has at hand.
pub(super) struct Hand<'p, 'w, P: Port, H: Handler> {
    pub(super) worker: &'w mut Worker<H>,
    shared: &'p Shared<P, H>,
    taker: P::Worker<'p>,
    slices: Vec<Slice>,
    due: Vec<u32>,
    /// A send is over, and another connection waits for its turn.
    sent: bool,
    /// Connections that are to be served from now on, in the place of others.
    next: Vec<u32>,
}

impl<P: Port, H: Handler> Drop for Hand<'_, '_, P, H> {
    fn drop(&mut self) {
        self.shared.pool.give(self.slices.drain(..));
    }
}

impl<'p, P: Port, H: Handler> Hand<'p, '_, P, H> {
    /// Takes what has finished, and minds the clock. False: the port was closed.
    pub(super) fn take(&mut self, taken: &mut Taken) -> Result<bool, Error> {
        let calls = Arc::clone(&self.worker.calls);
        loop {
            self.close_when_over();
            let now = Instant::now();
            let pause = self.pause();
            let until = lock(&self.shared.clock).watch(self.worker.index, now, pause);
            let timeout = until.map(|until| until.saturating_duration_since(now));
            let took = self.taker.take(taken, timeout, &calls);
            let Some(count) = took.map_err(|e| Error::io("taking completions", e))? else {
                return Ok(false);
            };
            self.mind_the_time();
            if count > 0 {
                self.worker.counters.batches.record(count as u64);
                return Ok(true);
            }
        }
    }

    fn pause(&self) -> Option<Instant> {
        if !self.shared.paused.load(Relaxed) {
            return None;
        }
        lock(&self.shared.accepts).paused_until()
    }

    /// Once the server has stopped and the last connection has gone there is nothing to take any more.
    fn close_when_over(&self) {
        if self.worker.stopping() && self.shared.places.open() == 0 {
            let accepts = lock(&self.shared.accepts);
            let over = accepts.is_shut() && accepts.outstanding() == 0;
            drop(accepts);
            if over && self.shared.places.open() == 0 {
                self.shared.port.close();
            }
        }
    }

    /// What the clock and the end of the server ask for.
    fn mind_the_time(&mut self) {
        let now = Instant::now();
        self.worker.clock.expired(now, &mut self.due); // it has no timers, and tells the time
        let time_is_over = lock(&self.shared.clock).back(self.worker.index, now, &mut self.due);
        while let Some(slot) = self.due.pop() {
            self.with(slot, |hand, open| {
                open.armed = Tick::MAX;
                open.connection.timed(hand.worker);
            });
        }
        if self.shared.paused.load(Relaxed) && lock(&self.shared.accepts).resume(Some(now)) {
            self.shared.paused.store(false, Relaxed);
            self.keep_accepting();
        }
        if self.worker.stopping() {
            self.stop();
        }
        if time_is_over {
            self.shared.port.close(); // whoever leaves last cuts off what is still open
        }
    }

    /// Calls `f` with the connection in a slot, if there is one, and starts what it wants next.
    fn with(&mut self, slot: u32, f: impl FnOnce(&mut Self, &mut Open<H>)) {
        self.with_any(slot, None, f);
    }

    /// The same where it is the connection of a completion. Between a take and this lock another thread may
    /// have had the last of that connection, and a new one may have its slot.
    #[inline]
    fn with_its(&mut self, key: Key, id: StreamId, f: impl FnOnce(&mut Self, &mut Open<H>)) {
        self.with_any(key.0 as u32, Some(id), f);
    }

    #[inline]
    fn with_any(
        &mut self,
        slot: u32,
        id: Option<StreamId>,
        f: impl FnOnce(&mut Self, &mut Open<H>),
    ) {
        let shared = self.shared;
        let mut place = lock(shared.places.get(slot));
        let meant = |open: &&mut Open<H>| !open.closing && id.is_none_or(|id| id == open.id);
        if let Some(open) = place.as_mut().filter(meant) {
            f(self, open);
            self.settle(slot, &mut place);
        }
        drop(place);
        if std::mem::take(&mut self.sent) {
            self.pass_the_turn();
        }
        if !self.next.is_empty() {
            self.begin_next();
        }
    }

    /// Serves those whose turn has come in the active set.
    #[cold]
    fn begin_next(&mut self) {
        while let Some(slot) = self.next.pop() {
            self.with(slot, |hand, open| {
                // It may have gone meanwhile, and the one that has its slot waits.
                if lock(&hand.shared.active).serves(slot) {
                    open.connection.begin(hand.worker);
                }
            });
        }
    }

    /// Does with a completion what every design does. A wait to receive is the design's own.
    #[inline]
    pub(super) fn handle(&mut self, completion: Completion) -> Result<(), Error> {
        match completion {
            Completion::Accept { key, outcome, .. } => self.accepted(key.0 as usize, outcome)?,
            Completion::Receive { key, stream, slice, number, outcome, .. } => {
                self.arrived(key, stream, slice, number, outcome);
            }
            Completion::Send { key, stream, load, outcome, .. } => {
                self.sent(key, stream, load, outcome);
            }
            Completion::Closed { key, stream } => self.closed(key, stream),
            Completion::Wait { .. } => {}
            Completion::Packet(_) => self.stop(),
        }
        Ok(())
    }

    /// An accept is over: with a connection, or not.
    fn accepted(&mut self, listener: usize, outcome: Outcome<Accepted>) -> Result<(), Error> {
        let mut outcome = outcome;
        loop {
            match outcome {
                Outcome::Done(accepted) => {
                    self.let_in(accepted);
                    let ask = lock(&self.shared.accepts).succeeded(listener);
                    if !ask {
                        break;
                    }
                    let waits =
                        self.shared.listeners[listener].0.accept(Mode::Try, &self.worker.calls);
                    outcome = match waits {
                        Ok(Some(accepted)) => {
                            lock(&self.shared.accepts).ran_dry(listener);
                            Outcome::Done(accepted)
                        }
                        Ok(None) => break,
                        Err(e) => Outcome::Failed(e),
                    };
                }
                Outcome::Failed(e) if stream::is_want_of_resources(&e) => {
                    if lock(&self.shared.accepts).pause(listener) {
                        self.worker.counters.accept_pauses.one();
                        self.shared.paused.store(true, Relaxed);
                    }
                    break;
                }
                Outcome::Failed(e) if stream::concerns_one_connection(&e) => {
                    self.worker.counters.accept_errors.one();
                    break;
                }
                Outcome::Failed(e) => return Err(Error::io("accepting a connection", e)),
                Outcome::Returned => break,
            }
        }
        lock(&self.shared.accepts).back(listener, 1);
        self.keep_accepting();
        Ok(())
    }

    /// Starts as many accepts as are to be outstanding.
    fn keep_accepting(&mut self) {
        for (number, (_, id)) in self.shared.listeners.iter().enumerate() {
            let more = lock(&self.shared.accepts).start_more(number);
            let started = (0..more).take_while(|_| self.taker.accept(*id).is_ok()).count() as u32;
            if started < more {
                lock(&self.shared.accepts).back(number, more - started); // the port is closed
            }
        }
    }

    fn let_in(&mut self, accepted: Accepted) {
        let Accepted { stream, peer } = accepted;
        if self.worker.admit(&stream) {
            self.take_in(Accepted { stream, peer });
        }
    }

    /// Connections that are open.
    pub(super) fn open(&self) -> u32 {
        self.shared.places.open()
    }

    /// Takes in a connection that was admitted.
    pub(super) fn take_in(&mut self, accepted: Accepted) {
        let Accepted { stream, peer } = accepted;
        let shared = self.shared;
        let mut connection = Connection::open(self.worker, peer);
        let slot = shared.places.claim();
        let mut place = lock(shared.places.get(slot));
        let id = match shared.port.associate(stream.clone(), Key(slot.into())) {
            Ok(id) => id,
            Err(refused) => {
                drop(place);
                shared.places.give_back(slot);
                connection.fail(self.refused(refused));
                return close(self.worker, connection, &stream);
            }
        };
        let (order, sending, armed) = (Order::default(), Sending::Nothing, Tick::MAX);
        let (receives, received, closing) = (0, 0, false);
        *place = Some(Open {
            connection,
            stream,
            id,
            receives,
            order,
            sending,
            received,
            armed,
            closing,
        });
        if let Some(open) = place.as_mut().filter(|_| !lock(&shared.active).admit(slot)) {
            open.connection.wait_for_its_turn(self.worker);
        }
        drop(place);
        if lock(&shared.accepts).is_shut() {
            return self.with(slot, Self::finish); // it was on its way here when the server stopped
        }
        // What has come already is the first data with the accept: a receive that is started now is tried
        // as it is submitted, and where none is started it is tried here.
        match shared.numbers.idle {
            Idle::Buffer => self.with(slot, |_, _| ()),
            Idle::ZeroByte => self.with(slot, |hand, open| hand.drain(slot, open)),
        }
    }

    /// Why a connection must be closed where the port does not take its operation.
    fn refused(&self, refused: Refused) -> Reason {
        match refused {
            Refused::Closed => Reason::Stopped,
            refused => Reason::Failed(io::Error::other(refused.to_string())),
        }
    }

    /// A receive is over.
    #[inline]
    fn arrived(
        &mut self,
        key: Key,
        id: StreamId,
        slice: Slice,
        number: u32,
        outcome: Outcome<usize>,
    ) {
        let mut slice = Some(slice);
        self.with_its(key, id, |_, open| {
            open.receives -= 1;
            open.order.put(number, slice.take().expect("it is put once"), outcome);
        });
        slice.into_iter().for_each(|slice| self.keep(slice)); // its connection is over, or about to be
    }

    /// A wait to receive is over: receives what is there, and waits again.
    pub(super) fn waited(&mut self, key: Key, id: StreamId, outcome: Outcome<()>) {
        self.with_its(key, id, |hand, open| {
            open.receives -= 1;
            match outcome {
                Outcome::Done(()) => hand.drain(key.0 as u32, open),
                Outcome::Failed(e) => open.connection.fail(Reason::Failed(e)),
                Outcome::Returned => {}
            }
        });
    }

    /// Receives what is there without waiting, within a bound.
    fn drain(&mut self, slot: u32, open: &mut Open<H>) {
        for _ in 0..self.shared.numbers.drain {
            if !open.connection.wants(&self.worker.limits).receive {
                break;
            }
            let mut slice = match self.slice() {
                Ok(slice) => slice,
                Err(e) => return open.connection.fail(Reason::Failed(io::Error::other(e))),
            };
            let room = slice.payload().len();
            match open.stream.receive(slice.payload_mut(), Mode::Try, &self.worker.calls) {
                Ok(Some(count)) => {
                    self.deliver(slot, open, slice, Outcome::Done(count));
                    if count < room {
                        break;
                    }
                }
                Ok(None) => {
                    self.worker.counters.empty_receives.one();
                    return self.keep(slice);
                }
                Err(e) => return self.deliver(slot, open, slice, Outcome::Failed(e)),
            }
        }
    }

    /// Gives the connection what a receive brought.
    #[inline]
    fn deliver(
        &mut self,
        slot: u32,
        open: &mut Open<H>,
        mut slice: Slice,
        outcome: Outcome<usize>,
    ) {
        match outcome {
            Outcome::Done(0) => open.connection.ended(self.worker),
            Outcome::Done(count) => {
                open.received += count as u64;
                let echo = open.connection.received(self.worker, &mut slice.payload_mut()[..count]);
                if echo > 0 {
                    open.connection.lend_echo(echo);
                    return self.send(slot, open, Load::of_slice(slice, echo));
                }
            }
            Outcome::Failed(e) => open.connection.fail(Reason::Failed(e)),
            Outcome::Returned => {}
        }
        self.keep(slice);
    }

    /// Sends what a connection has lent, now or when its turn comes.
    #[inline]
    fn send(&mut self, slot: u32, open: &mut Open<H>, load: Load) {
        if lock(&self.shared.sends).admit(slot, open.id) {
            self.send_now(open, load);
        } else {
            open.sending = Sending::Queued(load);
        }
    }

    #[inline]
    fn send_now(&mut self, open: &mut Open<H>, load: Load) {
        open.sending = Sending::UnderWay;
        if let Err((load, refused)) = self.taker.send(open.id, load) {
            open.sending = Sending::Nothing;
            self.sent |= lock(&self.shared.sends).over();
            open.connection.fail(self.refused(refused));
            self.put_away(load);
        }
    }

    /// A send is over.
    #[inline]
    fn sent(&mut self, key: Key, id: StreamId, load: Load, outcome: Outcome<usize>) {
        self.sent |= lock(&self.shared.sends).over();
        let (mut load, mut left) = (Some(load), None);
        self.with_its(key, id, |hand, open| {
            let mut load = load.take().expect("it is handled once");
            open.sending = Sending::Nothing;
            match outcome {
                Outcome::Done(0) => {
                    open.connection.fail(Reason::Failed(io::ErrorKind::WriteZero.into()))
                }
                Outcome::Done(count) => {
                    load.sent(count);
                    open.connection.returned(hand.worker, count);
                }
                Outcome::Failed(e) => open.connection.fail(Reason::Failed(e)),
                Outcome::Returned => {}
            }
            if load.left().is_empty() || open.connection.wants(&hand.worker.limits).close {
                left = Some(load);
            } else {
                hand.send(key.0 as u32, open, load);
            }
        });
        load.into_iter().chain(left).for_each(|load| self.put_away(load));
    }

    /// Starts the sends whose turn has come.
    #[cold]
    fn pass_the_turn(&mut self) {
        let shared = self.shared;
        while let Some((slot, id)) = { lock(&shared.sends).next() } {
            let mut place = lock(shared.places.get(slot));
            let open = place.as_mut().filter(|open| open.id == id && !open.closing);
            match open.map(|open| (std::mem::take(&mut open.sending), open)) {
                Some((Sending::Queued(load), open)) => {
                    self.send_now(open, load);
                    self.settle(slot, &mut place);
                }
                // It is over, or about to be.
                _ => drop(lock(&shared.sends).over()),
            }
        }
        self.sent = false;
    }

    /// Handles what was received, starts what the connection wants next, and takes it from the port when it
    /// is to be closed.
    #[inline]
    fn settle(&mut self, slot: u32, place: &mut Option<Open<H>>) {
        let Some(open) = place.as_mut() else { return };
        let limits = self.worker.limits;
        let mut wants = open.connection.wants(&limits);
        // A pause that is over, before what was held back begins another.
        open.connection.note_pause(self.worker, wants);
        while wants.receive
            && let Some((slice, outcome)) = open.order.take()
        {
            self.deliver(slot, open, slice, outcome);
            wants = open.connection.wants(&limits);
        }
        if wants.send && matches!(open.sending, Sending::Nothing) {
            let mut bytes = Vec::new();
            open.connection.lend(&mut bytes);
            self.send(slot, open, Load::of_vector(bytes));
        }
        if wants.end_sending {
            match open.stream.end_sending(&self.worker.calls) {
                Ok(()) => open.connection.told(self.worker),
                Err(e) => open.connection.fail(Reason::Failed(e)),
            }
        }
        wants = open.connection.wants(&limits);
        open.connection.note_pause(self.worker, wants);
        if wants.receive {
            self.receive(open);
            wants = open.connection.wants(&limits);
        }
        if wants.close {
            return self.close(slot, place);
        }
        // A timer that fires too early is set again; only one that would be late is moved.
        if let Some(due) = open.connection.deadline(&limits)
            && due < open.armed
        {
            open.armed = due;
            lock(&self.shared.clock).set(slot, due);
        }
    }

    /// Has as many receives outstanding as are meant to be, or a wait for one.
    #[inline]
    fn receive(&mut self, open: &mut Open<H>) {
        let most = self.shared.numbers.receives;
        while open.receives + open.order.len() < most {
            let started = match self.shared.numbers.idle {
                Idle::ZeroByte => self.taker.wait_to_receive(open.id).map(drop),
                Idle::Buffer => match self.slice() {
                    Ok(slice) => {
                        self.taker.receive(open.id, slice).map(drop).map_err(|(slice, refused)| {
                            self.keep(slice);
                            refused
                        })
                    }
                    Err(e) => return open.connection.fail(Reason::Failed(io::Error::other(e))),
                },
            };
            match started {
                Ok(()) => open.receives += 1,
                Err(refused) => return open.connection.fail(self.refused(refused)),
            }
        }
    }

    /// Takes a connection from the port. It is over now, or when all that is outstanding has come back.
    #[cold]
    fn close(&mut self, slot: u32, place: &mut Option<Open<H>>) {
        let Some(open) = place.as_mut() else { return };
        open.closing = true;
        if let Sending::Queued(load) = std::mem::take(&mut open.sending) {
            self.put_away(load);
        }
        let calls = Arc::clone(&self.worker.calls);
        match self.taker.close(open.id, &calls) {
            Closing::Follows => {}
            Closing::Over | Closing::Gone => {
                let open = place.take();
                self.over(slot, open);
            }
        }
    }

    /// A connection is over that was taken from the port.
    fn closed(&mut self, key: Key, id: StreamId) {
        let slot = key.0 as u32;
        let open = lock(self.shared.places.get(slot)).take_if(|open| open.id == id);
        self.over(slot, open);
        self.begin_next();
    }

    fn over(&mut self, slot: u32, open: Option<Open<H>>) {
        let Some(Open { connection, stream, .. }) = open else { return };
        lock(&self.shared.clock).wheel.cancel(slot);
        self.next.extend(lock(&self.shared.active).leave(slot));
        // Before its end is counted, and another admitted.
        self.shared.places.give_back(slot);
        close(self.worker, connection, &stream);
        drop(stream);
        if self.shared.paused.load(Relaxed) && lock(&self.shared.accepts).resume(None) {
            self.shared.paused.store(false, Relaxed);
            self.keep_accepting();
        }
    }

    /// The server stops: accepts no more, and has every connection finish once what the system has received
    /// of it by now is handled.
    fn stop(&mut self) {
        let shared = self.shared;
        if !lock(&shared.accepts).shut() {
            return;
        }
        shared.paused.store(false, Relaxed);
        end_accepting(shared.listeners.iter().map(|(listener, _)| listener));
        lock(&shared.active).dissolve();
        lock(&shared.clock).stop_by = Some(Instant::now() + self.worker.limits.stop);
        // Those whose handler is at work on another thread are told last.
        let is_busy = |slot: &u32| {
            matches!(shared.places.get(*slot).try_lock(), Err(TryLockError::WouldBlock))
        };
        let (busy, others): (Vec<_>, Vec<_>) = (0..shared.places.slots()).partition(is_busy);
        for slot in others.into_iter().chain(busy) {
            self.with(slot, Self::finish);
        }
    }

    fn finish(&mut self, open: &mut Open<H>) {
        open.connection.begin(self.worker);
        // Not what waits in the system: a completion may have it, or another thread.
        let received = open.stream.received_in_all(&self.worker.calls).unwrap_or(0);
        let left = received.saturating_sub(open.received);
        open.connection.finish_after(self.worker, usize::try_from(left).unwrap_or(usize::MAX));
    }

    /// A slice to receive into.
    #[inline]
    fn slice(&mut self) -> Result<Slice, Error> {
        self.slices.pop().map_or_else(|| self.shared.pool.take(), Ok)
    }

    #[inline]
    fn keep(&mut self, slice: Slice) {
        self.slices.push(slice);
        if self.slices.len() > AT_HAND {
            self.shared.pool.give(self.slices.drain(AT_HAND / 2..));
        }
    }

    #[inline]
    fn put_away(&mut self, load: Load) {
        match load.into_slice() {
            Ok(slice) => self.keep(slice),
            Err(bytes) => self.worker.spare.put(bytes),
        }
    }
}
