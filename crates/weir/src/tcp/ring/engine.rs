//! What every design does whose connections are registered I/O, from top to bottom: it opens a queue for each thread
//! and starts it; a thread takes what completed, or waits; runs the timers; does what each completion asks for; asks for
//! what the connection wants next; and gives everything back.
//!
//! What was received goes back in the slice it came in. Where slices become few it is copied instead, so
//! that peers that read slowly cannot keep all of them; and what comes while a connection's output is full
//! is held in memory of its own: receiving is stopped then, so that is no more than was under way.
//!
//! Before it waits it may let messages gather, where that was asked for: then one wake-up serves many.
//!
//! Accepting and receiving are asked for once: the provider keeps an accept and, where slices are shared, a receive of
//! each connection armed, and arms again what ended, whenever the thread dequeues or waits.
//!
//! What slices are received into, and whether a thread that found nothing looks again before it waits, is what the
//! designs differ in.

use crate::{
    Error, Unavailable,
    gather::{Asked, Gather, Gathering},
    memory::Slice,
    rio::{
        Batch, Stopped,
        streams::{
            Choice, Load, Receiving, StartedStreams, StreamCompletion, StreamId, StreamNeeds,
            StreamProvider, StreamQueue, with_stream_provider,
        },
    },
    stream::{self, Listener},
    tcp::{
        Connection, Handler, Job, Reason, Running, Worker,
        acceptor::{ACCEPTED_AT_ONCE, Acceptor, Leaving, accept_what_waits},
        active::Active,
        mail::{Given, Incoming},
        refused::Lingering,
        stop::{shut_mailbox, turn_away},
    },
    timer::Tick,
};
use std::{
    collections::VecDeque,
    io, mem,
    net::SocketAddr,
    time::{Duration, Instant},
};

/// Completions taken by one dequeue, at most.
const DEQUEUED: usize = 256;

/// How long the last connections may take to go that were cut off: they have only to be asked for, so this is for a machine
/// that gives the thread no core.
const CUT_OFF: Duration = Duration::from_secs(10);

/// Memory of sends kept for the next: at most so many pieces of so many bytes.
const SPARE: (usize, usize) = (64, 64 * 1024);

/// The most of a thread that were refused and stay open: a part of the accepts that a provider has places for beside the
/// connections.
const REFUSED: usize = 16;

/// What the provider is called that receives so here.
pub(super) fn provider(receiving: Receiving) -> &'static str {
    Choice::that_receives(receiving).name()
}

/// Whether one can be had here.
pub(super) fn availability(receiving: Receiving) -> Result<(), Unavailable> {
    Choice::that_receives(receiving).availability(receiving)
}

/// What a thread does that found nothing, before it waits.
pub(super) trait BeforeWaiting {
    /// Whether it ever looks again: then each wait counts as a request to be notified.
    const POLLS: bool;
    /// Something was found.
    fn found(&mut self);
    /// Whether to look again.
    fn again(&mut self) -> bool;
}

/// It waits at once.
impl BeforeWaiting for () {
    const POLLS: bool = false;
    #[inline]
    fn found(&mut self) {}
    #[inline]
    fn again(&mut self) -> bool {
        false
    }
}

/// Starts a server of so many threads, each with a queue and listening sockets of its own.
pub(super) fn start<H: Handler, B: BeforeWaiting>(
    job: Job<H>,
    threads: u32,
    needs: StreamNeeds,
    gather: Asked,
    before_waiting: impl Fn() -> B + Clone + Send + 'static,
) -> Result<Running, Error> {
    with_stream_provider!(Choice::that_receives(needs.receiving), |provider| {
        start_on(provider, job, threads as usize, needs, gather, before_waiting)
    })
}

fn start_on<H: Handler, B: BeforeWaiting>(
    provider: impl StreamProvider,
    mut job: Job<H>,
    threads: usize,
    needs: StreamNeeds,
    gather: Asked,
    before_waiting: impl Fn() -> B + Clone + Send + 'static,
) -> Result<Running, Error> {
    let listeners =
        if threads > 1 { job.listen_shared(threads)? } else { vec![job.listen()?; threads] };
    let shares = job.active_shares(threads)?;
    for (listeners, active) in listeners.into_iter().zip(shares) {
        let opened = provider.open(&listeners, &needs)?;
        let (provider, before_waiting) = (provider.clone(), before_waiting.clone());
        let gather = gather.clone();
        job.spawn(move |worker| {
            let started = provider.start(opened, &worker.calls)?;
            let mut thread = RingThread::new(worker, started, listeners, needs, gather, active)?;
            let result = thread.run(worker, before_waiting());
            result.and(thread.end(worker))
        })?;
    }
    job.run()
}

/// The connections of one thread, and the queue of what is asked for them.
struct RingThread<H, Q> {
    queue: Option<Q>,
    listeners: Vec<Listener>,
    entries: Vec<Entry<H>>,
    /// Entries that are not free.
    open: usize,
    /// Whether connections share what they receive into.
    shared: bool,
    /// Receives that may be asked for at a time.
    receives: u16,
    /// Bytes handled at a time, at most.
    buffer_bytes: usize,
    /// When waits let messages gather.
    gathering: Gathering,
    /// Numbers of timers that fell due.
    due: Vec<u32>,
    /// Connections that found no slice to receive into.
    starved: VecDeque<StreamId>,
    spare: Vec<Vec<u8>>,
    acceptor: Acceptor,
    accepting: bool,
    /// How far it is with accepting no more, where the server goes on.
    leaving: Leaving,
    /// Those that were told that they are refused.
    refused: Lingering<StreamId>,
    active: Active,
}

// Starting, waiting, and the timers.
impl<H: Handler, Q: StreamQueue> RingThread<H, Q> {
    fn new(
        worker: &mut Worker<H>,
        started: StartedStreams<Q>,
        listeners: Vec<Listener>,
        needs: StreamNeeds,
        gather: Asked,
        active: Option<u32>,
    ) -> Result<Self, Error> {
        let StartedStreams { mut queue, granted } = started;
        for (name, value) in granted.iter().filter(|_| worker.index == 0) {
            worker.state(name, value);
        }
        queue.accept();
        // Whoever is told that it is ready may connect: it is asked for connections before.
        queue
            .wait(Some(Duration::ZERO))
            .map_err(|e| Error::io("asking for the first connections", e))?;
        worker.mailbox.serve();
        worker.open_mailbox(queue.waker());
        worker.ready(Some(queue.waker()));
        let gathering = gather.begin(&queue.gathers(), |name, value| worker.state(name, value));
        let receives = match needs.receiving {
            Receiving::Shared { .. } => 1,
            Receiving::Posted { each, .. } => each as u16,
        };
        Ok(Self {
            queue: Some(queue),
            listeners,
            entries: Vec::new(),
            open: 0,
            shared: matches!(needs.receiving, Receiving::Shared { .. }),
            receives,
            buffer_bytes: needs.slice_bytes,
            gathering,
            due: Vec::new(),
            starved: VecDeque::new(),
            spare: Vec::new(),
            acceptor: Acceptor::new(),
            accepting: true,
            leaving: Leaving::No,
            refused: Lingering::new(REFUSED, worker.limits.linger),
            active: Active::new(active),
        })
    }

    #[inline]
    fn queue(&mut self) -> &mut Q {
        self.queue.as_mut().expect("it is there until the end")
    }

    /// The loop of a thread.
    fn run<B: BeforeWaiting>(
        &mut self,
        worker: &mut Worker<H>,
        mut before_waiting: B,
    ) -> Result<(), Error> {
        let mut batch = Batch::new(DEQUEUED);
        while worker.serving(self.open) {
            if self.dequeue(&mut batch)? > 0 {
                before_waiting.found();
            } else if !before_waiting.again() {
                if B::POLLS {
                    worker.calls.notifies.one();
                }
                self.wait(worker)?;
            }
            self.run_timers(worker);
            self.handle(worker, &mut batch);
            self.take_mail(worker);
            self.end_leaving(worker);
        }
        Ok(())
    }

    /// Takes what completed, and says how much.
    #[inline]
    fn dequeue(&mut self, batch: &mut Batch<StreamCompletion>) -> Result<usize, Error> {
        let found = self.queue().dequeue(batch).map_err(|e| Error::io("taking completions", e))?;
        if self.gathering.heeds_dequeues() {
            let is_message = |completion: &&StreamCompletion| {
                matches!(completion, StreamCompletion::Received { .. })
            };
            let messages = batch.as_slice().iter().filter(is_message).count();
            // Nothing is left: nobody waits before a dequeue has brought nothing.
            self.gathering.dequeued(messages, false, Instant::now);
        }
        Ok(found)
    }

    /// Waits until something completed, or as much as is to gather, and as long as `worker` and pauses allow.
    fn wait(&mut self, worker: &Worker<H>) -> Result<(), Error> {
        // The last accept may have ended with nothing to be told of it.
        let leaves = matches!(self.leaving, Leaving::Cancelling) && !self.queue().is_accepting();
        if worker.mailbox.any() || leaves {
            return Ok(());
        }
        worker.calls.waits.one();
        let refused =
            self.refused.until().map(|until| until.saturating_duration_since(Instant::now()));
        let timeouts = [self.acceptor.timeout(), refused, worker.timeout()];
        let timeout = timeouts.into_iter().flatten().min();
        // At the end of the server nothing is worth waiting for, nor where somebody waits for the end of accepting.
        let ends = self.acceptor.is_shut() || matches!(self.leaving, Leaving::Cancelling);
        let Gather { enough, at_most } = if ends { Gather::NONE } else { self.gathering.now() };
        let time = timeout.map_or(at_most, |timeout| at_most.min(timeout));
        let waited = match time.is_zero() {
            true => self.queue().wait(timeout),
            false => self.queue().gather(enough, time, timeout),
        };
        waited.map_err(|e| Error::io("waiting for completions", e))?;
        Ok(())
    }

    /// What the clock and the end of the server ask for.
    #[inline]
    fn run_timers(&mut self, worker: &mut Worker<H>) {
        let now = Instant::now();
        worker.clock.expired(now, &mut self.due);
        while let Some(number) = self.due.pop() {
            if let Entry::Open(open) = &mut self.entries[number as usize] {
                open.armed = Tick::MAX;
                open.connection.timed(worker);
                self.settle(worker, number);
            }
        }
        while let Some(id) = self.refused.over(now) {
            self.close_entry(id, false);
        }
        self.acceptor.run_timers(now);
        self.accept_again();
        if matches!(self.leaving, Leaving::No) && worker.leaves_off() {
            self.acceptor.leave_off();
            self.queue().stop_accepting();
            self.leaving = Leaving::Cancelling;
        }
        if worker.stopping() && !self.acceptor.is_shut() {
            self.acceptor.shut();
            self.close_refused();
            self.listeners.iter().for_each(Listener::end_accepting);
            self.queue().stop_accepting();
            self.active.dissolve();
            for number in 0..self.entries.len() as u32 {
                self.finish(worker, number);
            }
        }
    }
}

// What became of what was asked for.
impl<H: Handler, Q: StreamQueue> RingThread<H, Q> {
    /// Settles the connections that handles have left something for, and takes in those that others have made. That is
    /// when all that completed is handled: the queue gives a place away once it has said that the connection there is
    /// closed, and one that is put there before that was heard here would be taken for it.
    #[inline]
    fn take_mail(&mut self, worker: &mut Worker<H>) {
        if worker.mailbox.any() {
            for incoming in worker.mailbox.take(&mut self.due) {
                self.adopt(worker, incoming);
            }
            while let Some(number) = self.due.pop() {
                self.settle(worker, number);
            }
        }
    }

    /// Says that nothing more is accepted, once the accepts are cancelled.
    #[inline]
    fn end_leaving(&mut self, worker: &mut Worker<H>) {
        if matches!(self.leaving, Leaving::Cancelling) && !self.queue().is_accepting() {
            self.leaving = Leaving::Left;
            let came = accept_what_waits(worker, &self.listeners, ACCEPTED_AT_ONCE);
            came.into_iter().for_each(|accepted| self.adopt(worker, accepted.into()));
            worker.left_off();
        }
    }

    /// Does what completions ask for.
    #[inline]
    fn handle(&mut self, worker: &mut Worker<H>, batch: &mut Batch<StreamCompletion>) {
        if batch.is_empty() {
            return;
        }
        worker.counters.batches.record(batch.len() as u64);
        for completion in batch.drain() {
            self.completed(worker, completion);
        }
        self.feed_starved(worker);
    }

    #[inline]
    fn completed(&mut self, worker: &mut Worker<H>, completion: StreamCompletion) {
        match completion {
            StreamCompletion::Received { connection, slice, len } => {
                self.received(worker, connection, slice, len as usize);
            }
            StreamCompletion::Sent { connection, load, count } => {
                self.sent(worker, connection, load, count);
            }
            StreamCompletion::Returned { load } => self.recycle(load),
            StreamCompletion::NotSent { connection, load, error } => {
                if let Some(load) = load {
                    self.recycle(load);
                }
                if let Entry::Refused = self.entries[connection.number as usize] {
                    return self.close_entry(connection, false);
                }
                self.fail(worker, connection, Reason::Failed(error));
            }
            StreamCompletion::Accepted { connection, peer, .. } => {
                self.accepted(worker, connection, peer);
            }
            StreamCompletion::AcceptFailed { error } => self.not_accepted(worker, &error),
            StreamCompletion::Ended { connection } => {
                if let Some(open) = self.open_at(connection) {
                    open.receiving = 0;
                    match &mut open.held {
                        Some(held) => held.ended = true,
                        None => open.connection.ended(worker),
                    }
                    self.settle(worker, connection.number);
                }
            }
            StreamCompletion::Starved { connection } => {
                if let Some(open) = self.open_at(connection) {
                    open.receiving = 0;
                    if !mem::replace(&mut open.starved, true) {
                        self.starved.push_back(connection);
                    }
                }
            }
            StreamCompletion::Failed { connection, error } => {
                if let Some(open) = self.open_at(connection) {
                    open.receiving = 0;
                }
                self.fail(worker, connection, Reason::Failed(error));
            }
            StreamCompletion::EndSent { connection, result } => {
                self.end_sent(worker, connection, result)
            }
            StreamCompletion::Waiting { connection, bytes } => {
                if let Some(open) = self.open_at(connection) {
                    open.asking = false;
                    let held = open.held.as_ref().map_or(0, |held| held.len());
                    open.connection.finish_after(worker, bytes + held);
                    self.settle(worker, connection.number);
                }
            }
            StreamCompletion::Closed { connection } => {
                self.entries[connection.number as usize] = Entry::Free;
                self.open -= 1;
                self.acceptor.descriptor_returned();
                self.accept_again();
            }
        }
    }

    #[inline]
    fn open_at(&mut self, connection: StreamId) -> Option<&mut RingConnection<H>> {
        match &mut self.entries[connection.number as usize] {
            Entry::Open(open) => Some(open),
            Entry::Free | Entry::Refused | Entry::Closing => None,
        }
    }

    fn accepted(&mut self, worker: &mut Worker<H>, connection: StreamId, peer: SocketAddr) {
        if let Err(why) = worker.let_in() {
            *self.claim_entry(connection) = Entry::Refused;
            let text = Worker::<H>::refusal(&why).into_bytes();
            if self.queue().send(connection, text.into()).is_err() {
                self.close_entry(connection, false);
            }
            return;
        }
        self.take_in(worker, connection, peer, None);
    }

    /// Takes in a connection that others have made.
    fn adopt(&mut self, worker: &mut Worker<H>, incoming: Incoming) {
        match self.queue().adopt(&incoming.accepted.stream) {
            Ok(id) => self.take_in(worker, id, incoming.accepted.peer, incoming.given),
            Err(e) => turn_away(worker, incoming, Reason::Failed(e)),
        }
    }

    /// The entry of a connection that has just come. It is open from now on.
    fn claim_entry(&mut self, connection: StreamId) -> &mut Entry<H> {
        let place = connection.number as usize;
        if self.entries.len() <= place {
            self.entries.resize_with(place + 1, || Entry::Free);
        }
        self.open += 1;
        &mut self.entries[place]
    }

    /// Takes in a connection that was admitted.
    fn take_in(
        &mut self,
        worker: &mut Worker<H>,
        connection: StreamId,
        peer: SocketAddr,
        given: Option<Given>,
    ) {
        let StreamId { number, generation } = connection;
        let is_ours = given.is_some();
        *self.claim_entry(connection) = Entry::Open(RingConnection {
            connection: Connection::open_given(worker, peer, given),
            generation,
            armed: Tick::MAX,
            held: None,
            receiving: 0,
            sending: false,
            ending: false,
            asking: false,
            starved: false,
        });
        let is_served = is_ours || self.active.admit(number);
        if let Some(open) = self.open_at(connection) {
            open.connection.place(worker, number);
            if !is_served {
                open.connection.wait_for_its_turn(worker);
            }
        }
        if self.acceptor.is_shut() {
            self.finish(worker, number); // it was on its way here when the server stopped
        }
        self.settle(worker, number);
    }

    fn not_accepted(&mut self, worker: &Worker<H>, error: &io::Error) {
        if !stream::is_want_of_resources(error) {
            worker.counters.accept_errors.one();
            return;
        }
        self.close_refused();
        // All that were asked for may say so.
        if self.acceptor.accepts() {
            worker.accepting_pauses();
            self.acceptor.pause();
        }
        self.accepting = false;
    }

    /// Begins to accept again after a pause.
    fn accept_again(&mut self) {
        if self.acceptor.accepts() && !self.accepting {
            self.accepting = true;
            self.queue().accept();
        }
    }

    #[inline]
    fn received(&mut self, worker: &mut Worker<H>, id: StreamId, slice: Slice, len: usize) {
        let Self { queue, entries, .. } = self;
        let queue = queue.as_mut().expect("it is there until the end");
        let Entry::Open(open) = &mut entries[id.number as usize] else {
            return queue.give_back(slice);
        };
        let mut slice = slice;
        let bytes = &mut slice.payload_mut()[..len];
        if !self.shared {
            open.receiving -= 1;
        }
        if open.held.is_some() || !open.connection.wants(&worker.limits).receive {
            open.held.get_or_insert_default().bytes.extend_from_slice(bytes);
            worker.counters.bytes_queued.add(len as u64);
            if self.shared && open.receiving > 0 {
                queue.stop_receiving(id);
                open.receiving = 0;
            }
            queue.give_back(slice);
        } else {
            let echo = open.connection.received(worker, bytes);
            if echo == 0 {
                queue.give_back(slice);
            } else if open.sending || queue.is_short(id) {
                open.connection.echoed(worker, &bytes[..echo], 0);
                queue.give_back(slice);
            } else {
                open.connection.lend_echo(echo);
                let load = Load::Slice { slice, start: 0, end: echo as u32 };
                match queue.send(id, load) {
                    Ok(()) => open.sending = true,
                    Err((load, why)) => {
                        open.connection.fail(Reason::Failed(why.into()));
                        self.recycle(load);
                    }
                }
            }
        }
        self.settle(worker, id.number);
    }

    #[inline]
    fn sent(&mut self, worker: &mut Worker<H>, id: StreamId, load: Option<Load>, count: usize) {
        if let Entry::Refused = self.entries[id.number as usize] {
            // What is left of a few words is not worth waiting for.
            self.queue().end_sending(id);
        }
        let Some(open) = self.open_at(id) else {
            return load.into_iter().for_each(|load| self.recycle(load));
        };
        open.connection.returned(worker, count);
        open.sending = false;
        let over = open.connection.wants(&worker.limits).close;
        if let Some(mut load) = load {
            load.advance(count);
            if load.is_empty() || over {
                self.recycle(load);
            } else {
                self.send(id, load);
            }
        }
        self.settle(worker, id.number);
    }

    fn end_sent(&mut self, worker: &mut Worker<H>, id: StreamId, result: io::Result<()>) {
        if let Entry::Refused = self.entries[id.number as usize] {
            // As with any other: see the module `refused`.
            let closed = match result.is_ok() && !self.acceptor.is_shut() {
                true => self.refused.add(id, Instant::now()),
                false => Some(id),
            };
            return closed.into_iter().for_each(|id| self.close_entry(id, false));
        }
        let Some(open) = self.open_at(id) else { return };
        open.ending = false;
        match result {
            Ok(()) => open.connection.fin_sent(worker),
            Err(e) => open.connection.fail(Reason::Failed(e)),
        }
        self.settle(worker, id.number);
    }

    fn fail(&mut self, worker: &mut Worker<H>, id: StreamId, reason: Reason) {
        if let Some(open) = self.open_at(id) {
            open.connection.fail(reason);
            self.settle(worker, id.number);
        }
    }

    /// Lets those receive that found no slice, as far as there are any.
    #[inline]
    fn feed_starved(&mut self, worker: &mut Worker<H>) {
        for _ in 0..self.starved.len() {
            let Some(&id) = self.starved.front() else { return };
            if self.queue().slices(id) == 0 {
                return;
            }
            self.starved.pop_front();
            if let Some(open) = self.open_at(id)
                && open.generation == id.generation
            {
                open.starved = false;
                self.settle(worker, id.number);
            }
        }
    }
}

// What a connection wants next.
impl<H: Handler, Q: StreamQueue> RingThread<H, Q> {
    /// Asks for what the connection wants next, and closes it when it is over.
    #[inline]
    fn settle(&mut self, worker: &mut Worker<H>, number: u32) {
        let Self { queue, entries, .. } = self;
        let queue = queue.as_mut().expect("it is there until the end");
        let Entry::Open(open) = &mut entries[number as usize] else { return };
        let id = StreamId { number, generation: open.generation };
        if open.connection.has_mail() {
            open.connection.take_mail(worker);
        }
        if open.held.is_some() {
            Self::catch_up(worker, open, self.buffer_bytes);
        }
        let mut wants = open.connection.wants(&worker.limits);
        if wants.send && !open.sending && !open.ending {
            let mut bytes = self.spare.pop().unwrap_or_default();
            open.connection.lend(&mut bytes);
            match queue.send(id, bytes.into()) {
                Ok(()) => open.sending = true,
                Err((_, why)) => open.connection.fail(Reason::Failed(why.into())),
            }
            wants = open.connection.wants(&worker.limits);
        }
        if wants.end_sending && !open.ending {
            if open.connection.is_ended() {
                // Closing says the same.
                open.connection.fin_sent(worker);
            } else {
                open.ending = true;
                queue.end_sending(id);
            }
            wants = open.connection.wants(&worker.limits);
        }
        open.connection.note_pause(worker, wants);
        if wants.close {
            return self.close(worker, number);
        }
        // While the output is full receiving goes on until something comes: most times nothing does.
        while wants.receive && open.may_receive(self.receives) {
            if !queue.receive(id) {
                open.starved = true;
                self.starved.push_back(id);
                break;
            }
            open.receiving += 1;
        }
        open.connection.set_times(worker, number, &mut open.armed);
    }

    /// Handles what was held, as far as there is room for output.
    #[cold]
    fn catch_up(worker: &mut Worker<H>, open: &mut RingConnection<H>, buffer_bytes: usize) {
        while let Some(held) = &mut open.held {
            if held.len() == 0 {
                if mem::take(&mut open.held).is_some_and(|held| held.ended) {
                    open.connection.ended(worker);
                }
                return;
            }
            // Each piece may be the one that it pauses after.
            let wants = open.connection.wants(&worker.limits);
            open.connection.note_pause(worker, wants);
            if !wants.receive {
                return;
            }
            let end = held.bytes.len().min(held.start + buffer_bytes);
            let bytes = &mut held.bytes[held.start..end];
            held.start = end;
            let echo = open.connection.received(worker, bytes);
            if echo > 0 {
                open.connection.echoed(worker, &bytes[..echo], 0);
            }
        }
    }

    /// Sends; nothing is under way.
    fn send(&mut self, id: StreamId, load: Load) {
        let sent = self.queue().send(id, load);
        let Some(open) = self.open_at(id) else { return };
        match sent {
            Ok(()) => open.sending = true,
            Err((load, why)) => {
                open.connection.fail(Reason::Failed(why.into()));
                self.recycle(load);
            }
        }
    }

    /// Gives back what a send was given.
    #[inline]
    fn recycle(&mut self, load: Load) {
        match load {
            Load::Slice { slice, .. } => self.queue().give_back(slice),
            Load::Bytes { mut bytes, .. } => {
                if self.spare.len() < SPARE.0 && bytes.capacity() <= SPARE.1 {
                    bytes.clear();
                    self.spare.push(bytes);
                }
            }
        }
    }
}

// The end of a connection, and of the server.
impl<H: Handler, Q: StreamQueue> RingThread<H, Q> {
    fn close(&mut self, worker: &mut Worker<H>, number: u32) {
        let entry = mem::replace(&mut self.entries[number as usize], Entry::Closing);
        let Entry::Open(open) = entry else { return };
        worker.clock.cancel(number);
        let abrupt = open.connection.close(worker).is_abrupt();
        self.queue().close(StreamId { number, generation: open.generation }, abrupt);
        if let Some(next) = self.active.leave(number)
            && let Entry::Open(open) = &mut self.entries[next as usize]
        {
            open.connection.begin(worker);
            self.settle(worker, next);
        }
    }

    fn close_refused(&mut self) {
        while let Some(id) = self.refused.any() {
            self.close_entry(id, false);
        }
    }

    fn close_entry(&mut self, id: StreamId, abrupt: bool) {
        self.entries[id.number as usize] = Entry::Closing;
        self.queue().close(id, abrupt);
    }

    /// Has a connection finish once what the system has received of it by now is handled.
    fn finish(&mut self, worker: &Worker<H>, number: u32) {
        let Self { queue, entries, .. } = self;
        let queue = queue.as_mut().expect("it is there until the end");
        if let Entry::Open(open) = &mut entries[number as usize] {
            open.connection.begin(worker);
            open.asking = true;
            queue.ask_waiting(StreamId { number, generation: open.generation });
        }
    }

    /// Cuts off what is still open, and gives everything back.
    fn end(&mut self, worker: &mut Worker<H>) -> Result<(), Error> {
        shut_mailbox(worker);
        for number in 0..self.entries.len() as u32 {
            if let Entry::Open(open) = &mut self.entries[number as usize] {
                open.connection.fail(Reason::Stopped);
                self.close(worker, number);
            }
        }
        let Some(queue) = self.queue.take() else { return Ok(()) };
        let Stopped { returned, missing } = queue.stop(Instant::now() + CUT_OFF);
        if missing == 0 {
            return Ok(());
        }
        let of = returned + missing;
        let missing = io::Error::other(format!("{missing} of {of} did not come back"));
        Err(Error::io("taking slices back from the queue", missing))
    }
}

/// What is known of a place for a connection.
enum Entry<H> {
    Free,
    /// It is told that it is refused, and then closed.
    Refused,
    Open(RingConnection<H>),
    /// Its close was asked for.
    Closing,
}

/// A connection that is open.
struct RingConnection<H> {
    connection: Connection<H>,
    generation: u32,
    /// When its timer fires; [`Tick::MAX`] where it has none.
    armed: Tick,
    /// What came while its output was full.
    held: Option<Box<Held>>,
    /// Receives asked for: one, where that goes on until it is stopped.
    receiving: u16,
    sending: bool,
    ending: bool,
    /// It was asked how much it is to finish after.
    asking: bool,
    /// It waits for a slice.
    starved: bool,
}

impl<H> RingConnection<H> {
    /// Whether one more receive may be asked for, of so many.
    #[inline]
    fn may_receive(&self, most: u16) -> bool {
        self.receiving < most && self.held.is_none() && !self.asking && !self.starved
    }
}

/// What came while the output was full, and waits to be handled.
#[derive(Default)]
struct Held {
    bytes: Vec<u8>,
    /// Those before it were handled.
    start: usize,
    /// The peer's end is behind it.
    ended: bool,
}

impl Held {
    fn len(&self) -> usize {
        self.bytes.len() - self.start
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        memory::Slice, rio::Refused, rio::Woken, rio::streams::Load, tcp::Server, wake::Waker,
    };

    /// A queue with nothing to do, of which so many slices stay away.
    struct Loses(u32);

    impl StreamQueue for Loses {
        fn accept(&mut self) {}
        fn stop_accepting(&mut self) {}
        fn is_accepting(&self) -> bool {
            false
        }
        fn adopt(&mut self, _: &crate::stream::Stream) -> io::Result<StreamId> {
            unreachable!("nobody brings any")
        }
        fn receive(&mut self, _: StreamId) -> bool {
            unreachable!("there are no connections")
        }
        fn stop_receiving(&mut self, _: StreamId) {}
        fn slices(&self, _: StreamId) -> u32 {
            0
        }
        fn is_short(&mut self, _: StreamId) -> bool {
            true
        }
        fn give_back(&mut self, _: Slice) {}
        fn send(&mut self, _: StreamId, load: Load) -> Result<(), (Load, Refused)> {
            Err((load, Refused::Closed))
        }
        fn end_sending(&mut self, _: StreamId) {}
        fn ask_waiting(&mut self, _: StreamId) {}
        fn close(&mut self, _: StreamId, _: bool) {}
        fn dequeue(&mut self, _: &mut Batch<StreamCompletion>) -> io::Result<usize> {
            Ok(0)
        }
        fn wait(&mut self, _: Option<Duration>) -> io::Result<Woken> {
            Ok(Woken::TimedOut)
        }
        fn gather(&mut self, _: u32, _: Duration, _: Option<Duration>) -> io::Result<Woken> {
            Ok(Woken::TimedOut)
        }
        fn gathers(&self) -> String {
            String::new()
        }
        fn waker(&self) -> Waker {
            Waker::new(|| {})
        }
        fn stop(self, _: Instant) -> Stopped {
            Stopped { returned: 5, missing: self.0 }
        }
    }

    #[test]
    fn a_slice_that_is_lost_ends_the_server_with_an_error() {
        let server = Server::bind("127.0.0.1:0".parse().unwrap());
        for (lost, said) in [(0, None), (3, Some("3 of 8 did not come back"))] {
            let handler = |_: &mut [u8], _: &mut crate::tcp::Output<'_>| {};
            let mut worker = server.job(move |_| handler).unwrap().worker();
            let receiving = Receiving::Posted { each: 1, slices: 8 };
            let (slice_bytes, connections, tables) = (64, 8, 0);
            let zero_copy_bytes = None;
            let needs =
                StreamNeeds { slice_bytes, connections, receiving, tables, zero_copy_bytes };
            let started = StartedStreams { queue: Loses(lost), granted: vec![] };
            let mut thread =
                RingThread::new(&mut worker, started, vec![], needs, Asked::default(), None)
                    .unwrap();
            let error = thread.end(&mut worker).err().map(|error| error.to_string());
            assert_eq!(error.is_some(), said.is_some(), "{error:?}");
            assert!(said.is_none_or(|said| error.unwrap().contains(said)));
        }
    }

    /// Beside a place in the provider's table (24 bytes) and a link in the wheel (12).
    #[test]
    fn an_idle_connection_costs_little() {
        type Handler = fn(&mut [u8], &mut crate::tcp::Output<'_>);
        let bytes = size_of::<Entry<Handler>>();
        assert!(bytes + 24 + 12 <= 200, "{bytes} bytes for an entry");
    }
}
