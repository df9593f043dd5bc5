//! What every design on a completion port does, from top to bottom: it opens the port and starts its threads; a thread
//! takes what has finished and runs the timers; each completion goes to its connection (an accept brings one), under
//! that connection's lock; what was received is handled, and what the connection wants next is started; sends beyond
//! those that the port allows wait in order; the stop. Before a thread waits it may let messages gather, where that was
//! asked for: then one wake-up serves many.
//!
//! Completions of one connection come to several threads, so each connection stands behind a lock of its
//! own, as behind the original's critical section. Whoever has one of its completions takes that lock, calls
//! the handler, and starts what the connection wants next; the other locks are taken under it for a few steps each,
//! never the other way round.
//!
//! Apart stand the accepts, with what re-arms them ([`accepts`](super::accepts)); how many sends may be outstanding, and
//! whose turn is next ([`sends`](super::sends)); the order of several receives of a connection
//! ([`receive_order`](super::receive_order)); the table of slots, and the pool of slices.

use super::{
    accepts::Accepts,
    pool::Pool,
    receive_order::ReceiveOrder,
    sends::{Place, STUCK_AFTER, Sending, Sends, Slow},
    slots::Slots,
};
use crate::{
    Error,
    gather::{Asked, Gathering},
    lifecycle::{LeaveTogether, lock, try_lock},
    memory::{Load, Slice},
    options::named,
    port::{
        Key, Packet, Refused,
        streams::{
            Closing, Completion, Needs, Outcome, Port, Provider, StreamId, Taken, Worker as _,
        },
    },
    stream::{self, Accepted, Listener, Mode, Stream},
    tcp::{
        Connection, Handler, Job, Limits, Reason, Running, Worker,
        active::Active,
        mail::{Incoming, Mailbox},
        stop::{self, shut_mailbox},
    },
    timer::{Clock, Moment, Tick},
};
use std::{
    io,
    sync::{Arc, Mutex, TryLockError},
    time::{Duration, Instant},
};

/// Declares a design whose threads share one port: beside what every design is, how a connection of it receives, and
/// what one can choose of that.
macro_rules! port_design {
    (
        $Design:ident $name:literal;
        summary: $summary:literal;
        origin: $origin:literal;
        options of its own { $($own:tt)* }
        receiving: $receiving:expr;
        $($rest:tt)*
    ) => {
        $crate::design::design! {
            tcp::$Design $name, Port;
            summary: $summary;
            origin: $origin;
            options {
                /// Threads that take from the port; 0 for as many as there are cores.
                threads: u32 = 0, 0..=256;
                /// Most threads that run at a time; 0 for as many as there are cores.
                concurrency: u32 = 0, 0..=256;
                /// Completions taken at a time.
                take: u32 = 1, 1..=65_536;
                $($own)*
                /// Accepts outstanding at first, at each address.
                accepts: u32 = 5, 1..=65_536;
                /// Most accepts outstanding at each address.
                accepts_most: u32 = 500, 1..=65_536;
                /// How many more accepts to start when they run dry.
                accept_burst: u32 = 100, 0..=65_536;
                /// Most sends outstanding, of all connections; further ones wait.
                sends: u32 = 200, 1..=1_000_000;
                /// Most further sends outstanding, of stalled peers; beyond that the connection stalled longest is
                /// closed. 0 for one per connection.
                stuck: u32 = 0, 0..=1_000_000;
                /// Operations that collect before a take that need not enter the kernel submits them.
                submit_after: u32 = $crate::port::Shape::BEST.submit_after, 1..=65_536;
                /// An operation that is done when its call returns is handled at once, without a packet to the port.
                skip_ready: bool = false, $crate::options::Named(&["true", "false"]);
                /// The socket of a connection that ended in order is used again for a later accept.
                reuse_sockets: bool = false, $crate::options::Named(&["true", "false"]);
                /// How long messages may gather before a wait ends, and how many are enough (can be changed while it runs).
                gather: $crate::gather::Gather =
                    $crate::gather::Gather::NONE, $crate::gather::Gather::LIMITS;
            }
            provider: |_| <$crate::port::streams::Native as $crate::port::streams::Provider>::NAME;
            availability: |design| {
                use $crate::port::streams::Provider as _;
                design.provider().availability()
            };
            resolve: |design| $crate::design::or_cores(&mut design.threads);
            parks_threads: |design| design.threads != 1;
            active_set: |_| $crate::tcp::ActiveSet::InOrder; // the threads share one order
            $($rest)*
        }

        impl $Design {
            fn provider(&self) -> $crate::port::streams::Native {
                let Self { submit_after, skip_ready, reuse_sockets, .. } = *self;
                let best = $crate::port::Shape::BEST;
                let shape =
                    $crate::port::Shape { submit_after, skip_ready, reuse_sockets, ..best };
                $crate::port::streams::Native { shape }
            }

            fn begin<H: $crate::tcp::Handler>(
                self,
                job: $crate::tcp::Job<H>,
            ) -> Result<$crate::tcp::Running, $crate::Error> {
                let receiving: fn(&Self) -> Receiving = $receiving;
                let numbers = $crate::tcp::port::engine::Numbers {
                    threads: self.threads,
                    concurrency: self.concurrency,
                    take: self.take,
                    accepts: (self.accepts, self.accepts_most, self.accept_burst),
                    sends: self.sends,
                    stuck: self.stuck,
                    receiving: receiving(&self),
                };
                let gather = job.gathers(self.gather);
                $crate::tcp::port::engine::start(job, &self.provider(), numbers, gather)
            }
        }
    };
}
pub(super) use port_design;

/// The numbers that the designs let one choose.
#[derive(Debug, Clone, Copy)]
pub(super) struct Numbers {
    pub(super) threads: u32,
    /// Most threads that run at a time; 0 for as many as there are cores.
    pub(super) concurrency: u32,
    /// Completions taken at a time.
    pub(super) take: u32,
    /// Accepts outstanding at first, at most, and how many more when they run dry.
    pub(super) accepts: (u32, u32, u32),
    /// Most sends outstanding, of all connections, of peers that are not stuck.
    pub(super) sends: u32,
    /// Most of those that are; 0 for as many as there may be connections.
    pub(super) stuck: u32,
    pub(super) receiving: Receiving,
}

/// How a connection receives.
#[derive(Debug, Clone, Copy)]
pub(super) struct Receiving {
    /// Receives outstanding on it, and what it waits with.
    pub(super) receives: u32,
    pub(super) idle: Idle,
    /// Most receives for one wait, where it waits without a buffer.
    pub(super) drain: u32,
}

impl Numbers {
    fn stuck_of(&self, connections: u32) -> u32 {
        if self.stuck == 0 { connections } else { self.stuck }
    }
}

named! {
    /// What a connection waits with for something to receive.
    pub enum Idle {
        /// A receive, which holds a buffer.
        Buffer = "buffer",
        /// A receive of no bytes, which holds none; what has come is received when it ends.
        ZeroByte = "zero-byte",
    }
}

/// A port, its connections, and what its threads share. The last to leave stops it.
pub(super) struct PortServer<P, H> {
    port: P,
    accepts: Accepts,
    connections: Slots<PortConnection<H>>,
    /// Who is served and who waits.
    active: Mutex<Active>,
    /// Memory to receive into.
    pool: Pool,
    /// Whose turn it is to send.
    sends: Sends,
    timers: Mutex<Timers>,
    /// What waits are asked for, and what decides how long they gather: that of whichever thread waits.
    gather: Asked,
    waits: Mutex<Waits>,
    /// What handles have left for connections.
    mailbox: Arc<Mailbox>,
    pub(super) numbers: Numbers,
    /// Those of the server.
    limits: Limits,
}

/// What is known of the waits in which messages may gather.
struct Waits {
    gathering: Gathering,
    /// When the last one ended: what has come since then has waited since then.
    ended: Instant,
}

/// A connection that is open, and what the threads know of it.
struct PortConnection<H> {
    connection: Connection<H>,
    stream: Stream,
    id: StreamId,
    /// Receives that are outstanding, or the wait for one.
    receives: u32,
    /// What was received and not handled yet.
    order: ReceiveOrder,
    sending: Sending,
    /// Whether its sends were stuck lately.
    slow: Slow,
    /// Bytes that were handled.
    received: u64,
    /// When its timer fires; [`Tick::MAX`] where it has none.
    armed: Tick,
    /// When its alarm goes off; [`Moment::NEVER`] where it has none.
    alarm: Moment,
    /// It was taken from the port, and is over when all that is outstanding has come back.
    closing: bool,
}

/// Of the packet that tells of the end of the server.
pub(super) const STOP: Packet = Packet { key: Key(u64::MAX), value: 0 };

/// Of the packet that tells of something in the mailbox. Where there is no room for it others are in the queue, and the
/// thread that takes one of them looks into the mailbox.
const MAIL: Packet = Packet { key: Key(u64::MAX), value: 1 };

/// How long giving back may take that has only to be asked for.
pub(super) const GIVING_BACK: Duration = Duration::from_secs(10);

/// Starts a server on this port.
pub(super) fn start<H: Handler>(
    mut job: Job<H>,
    provider: &impl Provider,
    numbers: Numbers,
    gather: Asked,
) -> Result<Running, Error> {
    let server = open(&mut job, provider, numbers, gather)?;
    spawn(&mut job, server)?;
    job.run()
}

/// Opens the port, listens, and associates the listening sockets.
fn open<H: Handler, P: Provider>(
    job: &mut Job<H>,
    provider: &P,
    numbers: Numbers,
    gather: Asked,
) -> Result<PortServer<P::Port, H>, Error> {
    let (first, most, _) = numbers.accepts;
    let (connections, listeners) = (job.limits.connections, job.listeners());
    let needs = Needs {
        listeners,
        streams: connections,
        accepts: most.max(first).saturating_mul(listeners),
        receives: connections.saturating_mul(numbers.receiving.receives),
        // One of each connection.
        sends: numbers.sends.saturating_add(numbers.stuck_of(connections)).min(connections),
        packets: 2,
        threads: numbers.threads,
        concurrency: numbers.concurrency,
    };
    let port = provider.open(&needs)?;
    let listening = job.listen()?;
    let associate = |(number, listener): (usize, Listener)| {
        port.listen(listener.clone(), Key(number as u64)).map(|id| (listener, id))
    };
    let listeners = listening.into_iter().enumerate().map(associate).collect::<Result<_, _>>()?;
    for (name, value) in port.granted() {
        job.state(name, value);
    }
    let pool = Pool::new(job.buffer_bytes);
    Ok(PortServer {
        accepts: Accepts::new(listeners, numbers.accepts),
        active: Mutex::new(Active::new(job.limits.active)),
        ..PortServer::of_connections(
            port,
            connections,
            pool,
            (job.since(), job.limits),
            numbers,
            gather,
        )
    })
}

impl<P: Port, H: Handler> PortServer<P, H> {
    /// For connections that others accept.
    pub(super) fn of_connections(
        port: P,
        connections: u32,
        pool: Pool,
        (since, limits): (Instant, Limits),
        numbers: Numbers,
        gather: Asked,
    ) -> Self {
        let mailbox = Arc::new(Mailbox::new(limits.output_bytes));
        mailbox.wakes(port.poster(MAIL));
        Self {
            port,
            mailbox,
            accepts: Accepts::none(),
            connections: Slots::new(connections),
            active: Mutex::default(),
            pool,
            sends: Sends::new(numbers.sends, numbers.stuck_of(connections), numbers.threads, since),
            timers: Mutex::new(Timers::new(Clock::starting(since))),
            waits: Mutex::new(Waits {
                gathering: Gathering::new(gather.clone(), since),
                ended: since,
            }),
            gather,
            numbers,
            limits,
        }
    }
}

/// Starts the threads. The last to leave gives everything back.
fn spawn<H: Handler, P: Port>(job: &mut Job<H>, server: PortServer<P, H>) -> Result<(), Error> {
    let closer = server.port.closer();
    job.on_stop(server.port.poster(STOP));
    for server in LeaveTogether::shares(server.numbers.threads, server) {
        let spawned = job.spawn(move |worker| {
            server.live(
                worker,
                run,
                |server| server.port.close(),
                |worker, server| server.end(worker),
            )
        });
        if spawned.is_err() {
            closer.wake();
            return spawned;
        }
    }
    Ok(())
}

/// A thread at the port, with what it has at hand.
pub(super) struct PortThread<'p, 'w, P: Port, H: Handler> {
    worker: &'w mut Worker<H>,
    server: &'p PortServer<P, H>,
    taker: P::Worker<'p>,
    slices: Vec<Slice>,
    /// Takes since it last looked at the clock.
    unlooked: u32,
    /// How many messages it had received when it last went to the port to wait.
    messages: u64,
    due: Vec<u32>,
    /// A send is over while another connection waits for its turn, or one has begun to wait: see
    /// [`start_waiting_sends`](Self::start_waiting_sends).
    turns_changed: bool,
    /// Connections that are to be served from now on, in the place of others.
    next: Vec<u32>,
}

/// Slices that a thread keeps at hand.
const AT_HAND: usize = 16;

/// Takes between two looks at the clock, at most, while completions lie ready.
const LOOK_AFTER: u32 = 16;

/// The loop of a thread.
fn run<H: Handler, P: Port>(
    worker: &mut Worker<H>,
    server: &PortServer<P, H>,
) -> Result<(), Error> {
    let mut thread = join(worker, server)?;
    let mut taken = Taken::new(server.numbers.take as usize);
    while thread.take(&mut taken)? {
        for completion in taken.drain() {
            thread.handle(completion)?;
            // Nobody was woken for what its handler has left for others: it does not wait for the rest.
            thread.take_mail();
        }
    }
    Ok(())
}

/// Takes a place among the threads that take. The first thread starts the first accepts.
pub(super) fn join<'p, 'w, H: Handler, P: Port>(
    worker: &'w mut Worker<H>,
    server: &'p PortServer<P, H>,
) -> Result<PortThread<'p, 'w, P, H>, Error> {
    let taker = server.port.worker()?;
    worker.mailbox = Arc::clone(&server.mailbox);
    worker.mailbox.serve();
    let mut thread = PortThread {
        worker,
        server,
        taker,
        slices: Vec::new(),
        unlooked: 0,
        messages: 0,
        due: Vec::new(),
        turns_changed: false,
        next: Vec::new(),
    };
    // One of those that share it.
    if thread.worker.index == 0 || server.numbers.threads == 1 {
        let (how, worker) = (thread.taker.gathers(), &thread.worker);
        lock(&server.waits).gathering =
            server.gather.clone().begin(&how, |name, value| worker.state(name, value));
    }
    if thread.worker.index == 0 {
        thread.worker.open_shared_mailbox(&server.mailbox);
        server.accepts.rearm(&mut thread.taker);
        let calls = Arc::clone(&thread.worker.calls);
        thread.taker.commit(&calls).map_err(|e| Error::io("starting accepts", e))?;
    }
    thread.worker.ready(None);
    Ok(thread)
}

// Taking: a thread waits for completions, and then runs the timers.
impl<P: Port, H: Handler> PortThread<'_, '_, P, H> {
    /// Takes what has finished, and runs the timers: after each take that may have waited, and else after so many takes.
    /// False: the port was closed.
    pub(super) fn take(&mut self, taken: &mut Taken) -> Result<bool, Error> {
        loop {
            self.take_mail();
            self.end_leaving();
            self.close_when_over();
            let mut count = 0;
            if self.unlooked < LOOK_AFTER {
                self.unlooked += 1;
                count = self.taker.take_ready(taken);
            }
            if count == 0 {
                let timeout = self.watch();
                let took = match self.server.gather.is_on() && !self.has_to_end() {
                    true => self.take_gathered(taken, timeout),
                    false => self.taker.take(taken, timeout, &self.worker.calls),
                };
                let Some(brought) = took.map_err(|e| Error::io("taking completions", e))? else {
                    return Ok(false);
                };
                count = brought;
                self.run_timers();
            }
            if count > 0 {
                self.worker.counters.batches.record(count as u64);
                return Ok(true);
            }
        }
    }

    /// Whether somebody waits for an end: of the server, or of its accepting. Then nothing is worth waiting for.
    fn has_to_end(&self) -> bool {
        self.worker.stopping() || self.worker.leaves_off() && self.server.accepts.is_leaving()
    }

    /// Takes, and lets messages gather before a wait where that pays.
    fn take_gathered(
        &mut self,
        taken: &mut Taken,
        timeout: Option<Duration>,
    ) -> io::Result<Option<usize>> {
        let waits = &self.server.waits;
        let messages = self.worker.counters.messages.get();
        let came = messages - std::mem::replace(&mut self.messages, messages);
        if came > 0 {
            let mut waits = lock(waits);
            let ended = waits.ended;
            // What the port has left is taken before it waits.
            waits.gathering.dequeued(came as usize, false, || ended);
        }
        let mut waited = false;
        let mut gather = || {
            waited = true;
            lock(waits).gathering.now()
        };
        let took = self.taker.take_gathered(taken, timeout, &mut gather, &self.worker.calls);
        if waited {
            lock(waits).ended = Instant::now();
        }
        took
    }

    /// How long this thread may wait.
    fn watch(&self) -> Option<Duration> {
        let pause = self
            .server
            .accepts
            .paused_until()
            .into_iter()
            .chain(self.server.sends.next_look())
            .min();
        let mut timers = lock(&self.server.timers);
        self.worker.wait_in_time(&timers.clock);
        let now = timers.clock.time();
        let until = timers.watch(self.worker.index, now, pause)?;
        Some(until.saturating_duration_since(now))
    }

    /// What the time asks for after a wait: timers that are due, the end of a pause of accepting, sends that may be stuck,
    /// and the server's stop, with its end.
    fn run_timers(&mut self) {
        let now = Instant::now();
        self.unlooked = 0;
        self.worker.clock.expired(now, &mut self.due); // it has no timers, and tells the time
        let time_is_over = lock(&self.server.timers).back(self.worker.index, now, &mut self.due);
        while let Some(slot) = self.due.pop() {
            self.with(slot, |thread, open| {
                (open.armed, open.alarm) = (Tick::MAX, Moment::NEVER);
                open.connection.timed(thread.worker);
            });
        }
        self.server.accepts.resume(Some(now), &mut self.taker);
        if self.server.sends.is_to_look(now) {
            self.set_stuck_aside(now);
        }
        self.heed_ends();
        if time_is_over {
            self.server.port.close(); // whoever leaves last cuts off what is still open
        }
    }

    /// Settles the connections that handles have left something for.
    fn take_mail(&mut self) {
        if self.server.mailbox.any() {
            let mut slots = Vec::new();
            for incoming in self.server.mailbox.take(&mut slots) {
                self.take_in(incoming);
            }
            slots.into_iter().for_each(|slot| self.with(slot, |_, _| ()));
        }
    }
}

/// The timers of all connections, by slot, and who watches them.
///
/// One clock for all, since whichever thread has a connection must be able to set its timer. One thread's
/// take ends when the next timer is due, the others' do not: whoever goes to take and finds that nobody
/// wakes in time takes that upon itself.
struct Timers {
    clock: Clock,
    watch: Option<(usize, Instant)>,
    /// When the time to stop is over.
    stop_by: Option<Instant>,
}

impl Timers {
    fn new(clock: Clock) -> Self {
        Self { clock, watch: None, stop_by: None }
    }

    /// When a thread that goes to take is to be woken, for timers, for the end of the server, and for the end
    /// of a pause.
    fn watch(&mut self, thread: usize, now: Instant, pause: Option<Instant>) -> Option<Instant> {
        let timer = self.clock.next_in(now).and_then(|left| now.checked_add(left));
        let due = [timer, self.stop_by, pause].into_iter().flatten().min()?;
        match self.watch {
            Some((another, at)) if another != thread && at <= due => None,
            _ => {
                self.watch = Some((thread, due));
                Some(due)
            }
        }
    }

    /// A thread is back from its take. Moves into `due` the slots whose timers fell due, and says whether the
    /// time to stop is over.
    fn back(&mut self, thread: usize, now: Instant, due: &mut Vec<u32>) -> bool {
        self.watch.take_if(|(its, _)| *its == thread);
        self.clock.expired(now, due);
        self.stop_by.is_some_and(|by| by <= now)
    }
}

// What has finished goes to its connection.
impl<P: Port, H: Handler> PortThread<'_, '_, P, H> {
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
            Completion::Wait { key, stream, outcome, .. } => self.waited(key, stream, outcome),
            Completion::Packet(_) => {
                self.take_mail();
                self.heed_ends();
            }
        }
        Ok(())
    }

    /// An accept is over: with a connection, or not. It is re-armed when that is taken in.
    fn accepted(&mut self, listener: usize, outcome: Outcome<Accepted>) -> Result<(), Error> {
        let server = self.server;
        let mut brought = server.accepts.brought(self.worker, listener, outcome)?;
        while let Some(accepted) = brought {
            if self.worker.admit(&accepted.stream) {
                self.take_in(accepted);
            }
            brought = server.accepts.beyond(self.worker, listener)?;
        }
        server.accepts.done(listener, &mut self.taker);
        Ok(())
    }

    /// Takes in a connection that was admitted.
    pub(super) fn take_in(&mut self, incoming: impl Into<Incoming>) {
        let Incoming { accepted: Accepted { stream, peer }, given } = incoming.into();
        let server = self.server;
        let is_ours = given.is_some();
        let mut connection = Connection::open_given(self.worker, peer, given);
        let slot = server.connections.claim();
        let mut place = lock(server.connections.get(slot));
        let id = match server.port.associate(stream.clone(), Key(slot.into())) {
            Ok(id) => id,
            Err(refused) => {
                drop(place);
                server.connections.give_back(slot);
                connection.fail(self.refused(refused));
                return close(self.worker, connection, &stream);
            }
        };
        *place = Some(PortConnection {
            connection,
            stream,
            id,
            receives: 0,
            order: ReceiveOrder::default(),
            sending: Sending::Nothing,
            slow: Slow::default(),
            received: 0,
            armed: Tick::MAX,
            alarm: Moment::NEVER,
            closing: false,
        });
        if let Some(open) = place.as_mut() {
            open.connection.place(self.worker, slot);
            if !is_ours && !lock(&server.active).admit(slot) {
                open.connection.wait_for_its_turn(self.worker);
            }
        }
        drop(place);
        if server.accepts.is_shut() {
            return self.with(slot, Self::finish); // it was on its way here when the server stopped
        }
        // What has come already is the first data with the accept: a receive that is started now is tried
        // as it is submitted, and where none is started it is tried here.
        match server.numbers.receiving.idle {
            Idle::Buffer => self.with(slot, |_, _| ()),
            Idle::ZeroByte => self.with(slot, |thread, open| thread.drain(slot, open)),
        }
    }

    /// Connections that are open.
    pub(super) fn connections(&self) -> u32 {
        self.server.connections.open()
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
    fn waited(&mut self, key: Key, id: StreamId, outcome: Outcome<()>) {
        self.with_its(key, id, |thread, open| {
            open.receives -= 1;
            match outcome {
                Outcome::Done(()) => thread.drain(key.0 as u32, open),
                Outcome::Failed(e) => open.connection.fail(Reason::Failed(e)),
                Outcome::Returned => {}
            }
        });
    }

    /// A send is over.
    #[inline]
    fn sent(&mut self, key: Key, id: StreamId, load: Load, outcome: Outcome<usize>) {
        let (mut load, mut left) = (Some(load), None);
        // Where its connection is about to be over the place is given back with it.
        self.with_its(key, id, |thread, open| {
            let mut load = load.take().expect("it is handled once");
            if let Sending::UnderWay { place, seen } = std::mem::take(&mut open.sending) {
                open.slow.sent(seen.is_some_and(|seen| seen.elapsed() >= STUCK_AFTER));
                thread.give_back(place);
            }
            match outcome {
                Outcome::Done(0) => {
                    open.connection.fail(Reason::Failed(io::ErrorKind::WriteZero.into()))
                }
                Outcome::Done(count) => {
                    load.sent(count);
                    open.connection.returned(thread.worker, count);
                }
                Outcome::Failed(e) => open.connection.fail(Reason::Failed(e)),
                Outcome::Returned => {}
            }
            if load.left().is_empty() || open.connection.wants(&thread.worker.limits).close {
                left = Some(load);
            } else {
                thread.send(key.0 as u32, open, load);
            }
        });
        load.into_iter().chain(left).for_each(|load| self.put_away(load));
    }

    /// A connection is over that was taken from the port.
    fn closed(&mut self, key: Key, id: StreamId) {
        let slot = key.0 as u32;
        let open = lock(self.server.connections.get(slot)).take_if(|open| open.id == id);
        self.over(slot, open);
        if std::mem::take(&mut self.turns_changed) {
            self.start_waiting_sends();
        }
        self.serve_next();
    }
}

// Under a connection's lock: what came is handled, and what it wants next is started.
impl<P: Port, H: Handler> PortThread<'_, '_, P, H> {
    /// Calls `f` with the connection in a slot, if there is one, and starts what it wants next.
    fn with(&mut self, slot: u32, f: impl FnOnce(&mut Self, &mut PortConnection<H>)) {
        self.with_any(slot, None, f);
    }

    /// The same where it is the connection of a completion. Between a take and this lock another thread may
    /// have had the last of that connection, and a new one may have its slot.
    #[inline]
    fn with_its(
        &mut self,
        key: Key,
        id: StreamId,
        f: impl FnOnce(&mut Self, &mut PortConnection<H>),
    ) {
        self.with_any(key.0 as u32, Some(id), f);
    }

    #[inline]
    fn with_any(
        &mut self,
        slot: u32,
        id: Option<StreamId>,
        f: impl FnOnce(&mut Self, &mut PortConnection<H>),
    ) {
        let server = self.server;
        let mut place = lock(server.connections.get(slot));
        let meant =
            |open: &&mut PortConnection<H>| !open.closing && id.is_none_or(|id| id == open.id);
        if let Some(open) = place.as_mut().filter(meant) {
            f(self, open);
            self.settle(slot, &mut place);
        }
        drop(place);
        if std::mem::take(&mut self.turns_changed) {
            self.start_waiting_sends();
        }
        if !self.next.is_empty() {
            self.serve_next();
        }
    }

    /// Handles what was received, starts what the connection wants next, and takes it from the port when it
    /// is to be closed.
    #[inline]
    fn settle(&mut self, slot: u32, place: &mut Option<PortConnection<H>>) {
        let Some(open) = place.as_mut() else { return };
        let limits = &self.server.limits;
        if open.connection.has_mail() {
            open.connection.take_mail(self.worker);
        }
        let mut wants = open.connection.wants(limits);
        // A pause that is over, before what was held back begins another.
        open.connection.note_pause(self.worker, wants);
        while wants.receive
            && let Some((slice, outcome)) = open.order.take()
        {
            self.deliver(slot, open, slice, outcome);
            wants = open.connection.wants(limits);
        }
        if wants.send && matches!(open.sending, Sending::Nothing) {
            let mut bytes = Vec::new();
            open.connection.lend(&mut bytes);
            self.send(slot, open, Load::of_vector(bytes));
        }
        if wants.end_sending {
            match open.stream.end_sending(&self.worker.calls) {
                Ok(()) => open.connection.fin_sent(self.worker),
                Err(e) => open.connection.fail(Reason::Failed(e)),
            }
        }
        wants = open.connection.wants(limits);
        open.connection.note_pause(self.worker, wants);
        if wants.receive {
            self.receive(open);
            wants = open.connection.wants(limits);
        }
        if wants.close {
            return self.close(slot, place);
        }
        // A timer that fires too early is set again; only one that would be late is moved.
        if let Some(due) = open.connection.deadline(limits)
            && due < open.armed
        {
            open.armed = due;
            lock(&self.server.timers).clock.set(slot, due);
        }
        let alarm = open.connection.alarm();
        if alarm < open.alarm {
            open.alarm = alarm;
            lock(&self.server.timers).clock.set_alarm(slot, alarm);
        }
    }

    /// Receives what is there without waiting, within a bound.
    fn drain(&mut self, slot: u32, open: &mut PortConnection<H>) {
        for _ in 0..self.server.numbers.receiving.drain {
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
        open: &mut PortConnection<H>,
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

    /// Has as many receives outstanding as are meant to be, or a wait for one.
    #[inline]
    fn receive(&mut self, open: &mut PortConnection<H>) {
        let most = self.server.numbers.receiving.receives;
        while open.receives + open.order.len() < most {
            let started = match self.server.numbers.receiving.idle {
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

    /// Serves those whose turn has come in the active set.
    #[cold]
    fn serve_next(&mut self) {
        while let Some(slot) = self.next.pop() {
            self.with(slot, |thread, open| {
                // It may have gone meanwhile, and the one that has its slot waits.
                if lock(&thread.server.active).serves(slot) {
                    open.connection.begin(thread.worker);
                }
            });
        }
    }
}

// Sends, and their turns among all connections.
impl<P: Port, H: Handler> PortThread<'_, '_, P, H> {
    /// Sends what a connection has lent, now or when its turn comes.
    #[inline]
    fn send(&mut self, slot: u32, open: &mut PortConnection<H>, load: Load) {
        let left = match self.server.sends.take_in_turn(open.slow.is()) {
            Some(place) => self.send_now(slot, open, load, place),
            None => Some(load),
        };
        if let Some(load) = left {
            open.sending = Sending::Queued(load);
            self.server.sends.enqueue(slot, open.id);
            // One may have come back before.
            self.turns_changed = true;
        }
    }

    /// Sends, at this place. Returns the load where it must wait after all, since the system has no room to report one more
    /// send: then others are outstanding.
    #[inline]
    fn send_now(
        &mut self,
        slot: u32,
        open: &mut PortConnection<H>,
        load: Load,
        place: Place,
    ) -> Option<Load> {
        let (load, refused) = match self.taker.send(open.id, load) {
            Ok(_) => {
                // One whose peer is likely to be stuck is clocked from the beginning, others when somebody waits.
                let seen = match place {
                    Place::Pool => {
                        self.server.connections.mark(slot);
                        None
                    }
                    Place::Beside => Some(Instant::now()),
                };
                open.sending = Sending::UnderWay { place, seen };
                return None;
            }
            Err(back) => back,
        };
        self.give_back(place);
        if refused == Refused::Full {
            return Some(load);
        }
        open.connection.fail(self.refused(refused));
        self.put_away(load);
        None
    }

    /// A send gives its place back: it may be another's turn.
    #[inline]
    fn give_back(&mut self, place: Place) {
        self.server.sends.give_back(place);
        self.turns_changed |= self.server.sends.any_waiting();
    }

    /// Starts the sends that waited and whose turn has come.
    #[cold]
    fn start_waiting_sends(&mut self) {
        let server = self.server;
        while let Some((slot, id)) = server.sends.first_waiting() {
            let mut place = lock(server.connections.get(slot));
            let open = place.as_mut().filter(|open| open.id == id && !open.closing);
            let queued = open.and_then(|open| open.sending.take_queued().map(|load| (open, load)));
            let Some((open, load)) = queued else {
                // It is over, or about to be, or another thread has just sent it.
                server.sends.dequeue(slot, id);
                continue;
            };
            let left = match server.sends.take(open.slow.is()) {
                Some(place) => self.send_now(slot, open, load, place),
                None => Some(load),
            };
            if let Some(load) = left {
                open.sending = Sending::Queued(load);
                break; // the next send that is over goes on here
            }
            server.sends.dequeue(slot, id);
            self.settle(slot, &mut place);
        }
        self.turns_changed = false;
    }

    /// Others wait for their turn: takes those sends from the pool whose peers are stuck. Where more are stuck than
    /// may be, those that have been for longest are given up for the ones that wait.
    #[cold]
    fn set_stuck_aside(&mut self, now: Instant) {
        let server = self.server;
        let (closing, mut in_pool) = (server.sends.closing(), 0);
        for slot in server.connections.marked() {
            // Who is at work on one another time.
            let Some(mut place) = try_lock(server.connections.get(slot)) else { continue };
            let open = place.as_mut().filter(|open| !open.closing && open.sending.is_in_pool());
            let Some(open) = open else {
                server.connections.unmark(slot);
                continue;
            };
            if !open.sending.is_stuck(now) {
                continue;
            }
            if server.sends.set_aside() {
                open.sending.set_aside();
            } else {
                in_pool += 1;
            }
        }
        if in_pool > 0 {
            self.give_up_stuck(now, in_pool, closing);
        }
        server.sends.look_again(now);
        self.start_waiting_sends();
    }

    /// Gives up who has been stuck for longest.
    fn give_up_stuck(&mut self, now: Instant, in_pool: usize, closing: usize) {
        let server = self.server;
        if server.sends.to_give_up(in_pool, usize::MAX, closing) == 0 {
            return; // however many are stuck
        }
        let mut stuck = Vec::new();
        for slot in 0..server.connections.slots() {
            let Some(place) = try_lock(server.connections.get(slot)) else { continue };
            let Some(open) = place.as_ref().filter(|open| !open.closing) else { continue };
            if let Some(since) = open.sending.stuck_since(now) {
                stuck.push((since, slot, open.id));
            }
        }
        let count = server.sends.to_give_up(in_pool, stuck.len(), closing);
        stuck.sort_unstable_by_key(|(since, ..)| *since);
        for (since, slot, id) in stuck.into_iter().take(count) {
            self.with_its(Key(slot.into()), id, |_, open| {
                // Unless it has moved meanwhile.
                if open.sending.stuck_since(now) == Some(since) {
                    open.connection.fail(Reason::Stalled);
                }
            });
        }
    }
}

// The end of a connection.
impl<P: Port, H: Handler> PortThread<'_, '_, P, H> {
    /// Why a connection must be closed where the port does not take its operation.
    fn refused(&self, refused: Refused) -> Reason {
        match refused {
            Refused::Closed => Reason::Stopped,
            refused => Reason::Failed(io::Error::other(refused.to_string())),
        }
    }

    /// Takes a connection from the port. It is over now, or when all that is outstanding has come back.
    #[cold]
    fn close(&mut self, slot: u32, place: &mut Option<PortConnection<H>>) {
        let Some(open) = place.as_mut() else { return };
        open.closing = true;
        if let Some(load) = open.sending.take_queued() {
            self.put_away(load);
        }
        if matches!(open.sending, Sending::UnderWay { .. }) {
            self.server.sends.will_close();
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

    fn over(&mut self, slot: u32, open: Option<PortConnection<H>>) {
        let Some(PortConnection { connection, stream, sending, closing, .. }) = open else {
            return;
        };
        if let Sending::UnderWay { place, .. } = sending {
            self.give_back(place);
            if closing {
                self.server.sends.has_closed();
            }
        }
        lock(&self.server.timers).clock.cancel(slot);
        self.next.extend(lock(&self.server.active).leave(slot));
        // Before its end is counted, and another admitted.
        self.server.connections.give_back(slot);
        close(self.worker, connection, &stream);
        let calls = Arc::clone(&self.worker.calls);
        self.taker.let_go(stream, &calls);
        self.server.accepts.resume(None, &mut self.taker);
    }
}

/// Ends a connection, and tells its handler.
fn close<H: Handler>(worker: &mut Worker<H>, connection: Connection<H>, stream: &stream::Stream) {
    if connection.close(worker).is_abrupt() {
        stream.reset_when_closed();
    }
}

// The end of accepting, and that of the server.
impl<P: Port, H: Handler> PortThread<'_, '_, P, H> {
    /// Does what an end asks for that this thread was woken for.
    fn heed_ends(&mut self) {
        if self.worker.leaves_off() {
            self.server.accepts.leave_off(&mut self.taker, &self.worker.calls);
        }
        if self.worker.stopping() {
            self.stop();
        }
    }

    /// Says that nothing more is accepted, once the accepts have come back.
    fn end_leaving(&mut self) {
        if !self.worker.leaves_off() {
            return;
        }
        if let Some(came) = self.server.accepts.left_off(self.worker) {
            came.into_iter().for_each(|accepted| self.take_in(accepted));
            // For all threads: none of them accepts any more.
            (0..self.server.numbers.threads).for_each(|_| self.worker.left_off());
        }
    }

    /// The server stops: accepts no more, and has every connection finish once what the system has received
    /// of it by now is handled.
    fn stop(&mut self) {
        let server = self.server;
        if !server.accepts.shut(&mut self.taker, &self.worker.calls) {
            return;
        }
        lock(&server.active).dissolve();
        lock(&server.timers).stop_by = Some(Instant::now() + self.worker.limits.stop);
        // Those whose handler is at work on another thread are told last.
        let is_busy = |slot: &u32| {
            matches!(server.connections.get(*slot).try_lock(), Err(TryLockError::WouldBlock))
        };
        let (busy, others): (Vec<_>, Vec<_>) = (0..server.connections.slots()).partition(is_busy);
        for slot in others.into_iter().chain(busy) {
            self.with(slot, Self::finish);
        }
    }

    fn finish(&mut self, open: &mut PortConnection<H>) {
        open.connection.begin(self.worker);
        let (connection, stream) = (&mut open.connection, &open.stream);
        match self.server.numbers.receiving.idle {
            // Not what waits in the system: a completion may have it, or another thread.
            Idle::Buffer => {
                let in_all = self.server.port.received_in_all(open.id, &self.worker.calls);
                stop::finish_at(self.worker, connection, stream, in_all, open.received);
            }
            // What was received is handled under the connection's lock.
            Idle::ZeroByte => {
                let waiting = stream.waiting(&self.worker.calls);
                stop::finish(self.worker, connection, stream, waiting);
            }
        }
    }

    /// Once the server has stopped and the last connection has gone there is nothing to take any more.
    fn close_when_over(&self) {
        if self.worker.stopping() && self.server.connections.open() == 0 {
            // Counted once more behind it: an accept that was outstanding may have brought a connection meanwhile.
            let over = self.server.accepts.is_over();
            if over && self.server.connections.open() == 0 {
                self.server.port.close();
            }
        }
    }
}

// The last thread that leaves gives everything back.
impl<P: Port, H: Handler> PortServer<P, H> {
    /// Stops the port, and cuts off the connections that are still open.
    pub(super) fn end(self, worker: &mut Worker<H>) -> Result<(), Error> {
        let Self { port, connections, pool, timers, .. } = self;
        shut_mailbox(worker);
        let stopped = port.stop(Instant::now() + GIVING_BACK);
        let mut timers = timers.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        for slot in 0..connections.slots() {
            if let Some(PortConnection { mut connection, stream, .. }) =
                lock(connections.get(slot)).take()
            {
                timers.clock.cancel(slot);
                connection.fail(Reason::Stopped);
                close(worker, connection, &stream);
            }
        }
        worker.add_timers(timers.clock.counts());
        let (made, out) = pool.account();
        if stopped.missing == 0 && out == 0 {
            return Ok(());
        }
        let missing =
            io::Error::other(format!("{} of {made} did not come back", stopped.missing.max(out)));
        Err(Error::io("taking slices back from the port", missing))
    }
}

// Slices at hand.
impl<P: Port, H: Handler> PortThread<'_, '_, P, H> {
    /// A slice to receive into.
    #[inline]
    fn slice(&mut self) -> Result<Slice, Error> {
        self.slices.pop().map_or_else(|| self.server.pool.take(), Ok)
    }

    #[inline]
    fn keep(&mut self, slice: Slice) {
        self.slices.push(slice);
        if self.slices.len() > AT_HAND {
            self.server.pool.give(self.slices.drain(AT_HAND / 2..));
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

impl<P: Port, H: Handler> Drop for PortThread<'_, '_, P, H> {
    fn drop(&mut self) {
        self.server.pool.give(self.slices.drain(..));
    }
}

#[cfg(test)]
mod tests;
