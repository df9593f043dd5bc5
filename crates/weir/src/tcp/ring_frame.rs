//! What every design does whose connections are registered I/O: what a completion means for a connection,
//! and what is asked for next.
//!
//! When to wait, and what slices are received into, is what the designs differ in: it stands in their own
//! files.
//!
//! What was received goes back in the slice it came in. Where slices become few it is copied instead, so
//! that peers that read slowly cannot keep all of them; and what comes while a connection's output is full
//! is held in memory of its own: receiving is stopped then, so that is no more than was under way.

use super::{ActiveSet, Connection, Handler, Job, Reason, Worker, active::Active, door::Door};
use crate::{
    Error, Unavailable,
    memory::Slice,
    rio::{
        Batch,
        streams::{
            Load, Receiving, StartedStreams, StreamCompletion, StreamId, StreamNeeds,
            StreamProvider, StreamQueue, Streams,
        },
    },
    stream::{self, Listener},
    timer::Tick,
};
use std::{
    collections::VecDeque,
    mem,
    time::{Duration, Instant},
};

/// Completions taken by one dequeue, at most.
pub(super) const DEQUEUED: usize = 256;

/// How long the last connections may take to go that were cut off.
const CUT_OFF: Duration = Duration::from_secs(2);

/// Memory of sends kept for the next: at most so many pieces of so many bytes.
const SPARE: (usize, usize) = (64, 64 * 1024);

/// What the provider is called.
pub(super) fn provider() -> &'static str {
    Streams::default().name()
}

/// Whether it can be had here.
pub(super) fn availability() -> Result<(), Unavailable> {
    Streams::default().availability()
}

/// How it serves no more connections at a time than may be.
pub(super) fn active_set(threads: u32) -> ActiveSet {
    match threads {
        1 => ActiveSet::InOrder,
        _ => ActiveSet::PerThread,
    }
}

/// Starts a thread for each of so many queues, each with listening sockets of its own.
pub(super) fn start<H: Handler>(
    job: &mut Job<H>,
    threads: u32,
    needs: StreamNeeds,
    run: impl Fn(&mut Worker<H>, &mut Room<H, <Streams as StreamProvider>::Queue>) -> Result<(), Error>
    + Clone
    + Send
    + 'static,
) -> Result<(), Error> {
    let (provider, threads) = (Streams::default(), threads as usize);
    let listeners =
        if threads > 1 { job.listen_shared(threads)? } else { vec![job.listen()?; threads] };
    let shares = job.active_shares(threads)?;
    for (listeners, active) in listeners.into_iter().zip(shares) {
        let opened = provider.open(&listeners, &needs)?;
        let run = run.clone();
        job.spawn(move |worker| {
            let started = provider.start(opened, &worker.calls)?;
            let mut room = Room::new(worker, started, listeners, needs, active)?;
            let result = run(worker, &mut room);
            room.end(worker);
            result
        })?;
    }
    Ok(())
}

/// What is known of a place for a connection.
enum Entry<H> {
    Free,
    /// It is told that it is refused, and then closed.
    Refused,
    Open(Open<H>),
    /// Its close was asked for.
    Closing,
}

/// A connection that is open.
struct Open<H> {
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

impl<H> Open<H> {
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

/// The connections of one thread, and the queue of what is asked for them.
pub(super) struct Room<H, Q> {
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
    /// Numbers of timers that fell due.
    due: Vec<u32>,
    /// Connections that found no slice to receive into.
    starved: VecDeque<StreamId>,
    spare: Vec<Vec<u8>>,
    door: Door,
    accepting: bool,
    active: Active,
}

impl<H: Handler, Q: StreamQueue> Room<H, Q> {
    fn new(
        worker: &mut Worker<H>,
        started: StartedStreams<Q>,
        listeners: Vec<Listener>,
        needs: StreamNeeds,
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
        worker.ready(Some(queue.waker()));
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
            due: Vec::new(),
            starved: VecDeque::new(),
            spare: Vec::new(),
            door: Door::new(),
            accepting: true,
            active: Active::new(active),
        })
    }

    #[inline]
    fn queue(&mut self) -> &mut Q {
        self.queue.as_mut().expect("it is there until the end")
    }

    /// Connections that are not over.
    pub(super) fn len(&self) -> usize {
        self.open
    }

    /// Takes what completed, and says how much.
    #[inline]
    pub(super) fn dequeue(&mut self, batch: &mut Batch<StreamCompletion>) -> Result<usize, Error> {
        self.queue().dequeue(batch).map_err(|e| Error::io("taking completions", e))
    }

    /// Waits until something completed, and as long as `worker` and pauses allow.
    pub(super) fn wait(&mut self, worker: &Worker<H>) -> Result<(), Error> {
        worker.calls.waits.one();
        let timeout = [self.door.timeout(), worker.timeout()].into_iter().flatten().min();
        self.queue().wait(timeout).map_err(|e| Error::io("waiting for completions", e))?;
        Ok(())
    }

    /// Does what completions ask for.
    #[inline]
    pub(super) fn handle(&mut self, worker: &mut Worker<H>, batch: &mut Batch<StreamCompletion>) {
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
                self.door.given_back();
                self.mind_the_door();
            }
        }
    }

    #[inline]
    fn open_at(&mut self, connection: StreamId) -> Option<&mut Open<H>> {
        match &mut self.entries[connection.number as usize] {
            Entry::Open(open) => Some(open),
            Entry::Free | Entry::Refused | Entry::Closing => None,
        }
    }

    fn accepted(
        &mut self,
        worker: &mut Worker<H>,
        connection: StreamId,
        peer: std::net::SocketAddr,
    ) {
        let StreamId { number, generation } = connection;
        let place = number as usize;
        if self.entries.len() <= place {
            self.entries.resize_with(place + 1, || Entry::Free);
        }
        self.open += 1;
        if let Err(why) = worker.let_in() {
            self.entries[place] = Entry::Refused;
            let text = Worker::<H>::refusal(&why).into_bytes();
            if self.queue().send(connection, text.into()).is_err() {
                self.close_entry(connection, false);
            }
            return;
        }
        self.entries[place] = Entry::Open(Open {
            connection: Connection::open(worker, peer),
            generation,
            armed: Tick::MAX,
            held: None,
            receiving: 0,
            sending: false,
            ending: false,
            asking: false,
            starved: false,
        });
        if !self.active.admit(number)
            && let Some(open) = self.open_at(connection)
        {
            open.connection.wait_for_its_turn(worker);
        }
        if self.door.is_shut() {
            self.finish(worker, number); // it was on its way here when the server stopped
        }
        self.settle(worker, number);
    }

    fn not_accepted(&mut self, worker: &Worker<H>, error: &std::io::Error) {
        if !stream::is_want_of_resources(error) {
            worker.counters.accept_errors.one();
            return;
        }
        // All that were asked for may say so.
        if self.door.is_open() {
            worker.counters.accept_pauses.one();
            self.door.pause();
        }
        self.accepting = false;
    }

    /// Begins to accept again after a pause.
    fn mind_the_door(&mut self) {
        if self.door.is_open() && !self.accepting {
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
                    Err(load) => {
                        open.connection.fail(too_many_sends());
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

    fn end_sent(&mut self, worker: &mut Worker<H>, id: StreamId, result: std::io::Result<()>) {
        if let Entry::Refused = self.entries[id.number as usize] {
            return self.close_entry(id, false);
        }
        let Some(open) = self.open_at(id) else { return };
        open.ending = false;
        match result {
            Ok(()) => open.connection.told(worker),
            Err(e) => open.connection.fail(Reason::Failed(e)),
        }
        self.settle(worker, id.number);
    }

    /// Sends; nothing is under way.
    fn send(&mut self, id: StreamId, load: Load) {
        let sent = self.queue().send(id, load);
        let Some(open) = self.open_at(id) else { return };
        match sent {
            Ok(()) => open.sending = true,
            Err(load) => {
                open.connection.fail(too_many_sends());
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

    /// Handles what was held, as far as there is room for output.
    #[cold]
    fn catch_up(worker: &mut Worker<H>, open: &mut Open<H>, buffer_bytes: usize) {
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

    /// Asks for what the connection wants next, and closes it when it is over.
    #[inline]
    fn settle(&mut self, worker: &mut Worker<H>, number: u32) {
        let Self { queue, entries, .. } = self;
        let queue = queue.as_mut().expect("it is there until the end");
        let Entry::Open(open) = &mut entries[number as usize] else { return };
        let id = StreamId { number, generation: open.generation };
        if open.held.is_some() {
            Self::catch_up(worker, open, self.buffer_bytes);
        }
        let mut wants = open.connection.wants(&worker.limits);
        if wants.send && !open.sending && !open.ending {
            let mut bytes = self.spare.pop().unwrap_or_default();
            open.connection.lend(&mut bytes);
            match queue.send(id, bytes.into()) {
                Ok(()) => open.sending = true,
                Err(_) => open.connection.fail(too_many_sends()),
            }
            wants = open.connection.wants(&worker.limits);
        }
        if wants.end_sending && !open.ending {
            if open.connection.is_ended() {
                // Closing says the same.
                open.connection.told(worker);
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
        // A timer that fires too early is set again; only one that would be late is moved.
        if let Some(due) = open.connection.deadline(&worker.limits)
            && due < open.armed
        {
            open.armed = due;
            worker.clock.set(number, due);
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

    fn fail(&mut self, worker: &mut Worker<H>, id: StreamId, reason: Reason) {
        if let Some(open) = self.open_at(id) {
            open.connection.fail(reason);
            self.settle(worker, id.number);
        }
    }

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

    fn close_entry(&mut self, id: StreamId, abrupt: bool) {
        self.entries[id.number as usize] = Entry::Closing;
        self.queue().close(id, abrupt);
    }

    /// What the clock and the end of the server ask for.
    #[inline]
    pub(super) fn mind_the_time(&mut self, worker: &mut Worker<H>) {
        let now = Instant::now();
        worker.clock.expired(now, &mut self.due);
        while let Some(number) = self.due.pop() {
            if let Entry::Open(open) = &mut self.entries[number as usize] {
                open.armed = Tick::MAX;
                open.connection.timed(worker);
                self.settle(worker, number);
            }
        }
        self.door.mind_the_time(now);
        self.mind_the_door();
        if worker.stopping() && !self.door.is_shut() {
            self.door.shut();
            self.listeners.iter().for_each(Listener::end_accepting);
            self.queue().stop_accepting();
            self.active.dissolve();
            for number in 0..self.entries.len() as u32 {
                self.finish(worker, number);
            }
        }
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
    fn end(&mut self, worker: &mut Worker<H>) {
        for number in 0..self.entries.len() as u32 {
            if let Entry::Open(open) = &mut self.entries[number as usize] {
                open.connection.fail(Reason::Stopped);
                self.close(worker, number);
            }
        }
        if let Some(queue) = self.queue.take() {
            let stopped = queue.stop(Instant::now() + CUT_OFF);
            if stopped.missing > 0 {
                worker.state("slices-missing", stopped.missing);
            }
        }
    }
}

#[cold]
fn too_many_sends() -> Reason {
    Reason::Failed(std::io::Error::other("the queue takes no more sends"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Beside a place in the provider's table (24 bytes) and a link in the wheel (12).
    #[test]
    fn an_idle_connection_costs_little() {
        type Handler = fn(&mut [u8], &mut super::super::Output<'_>);
        let bytes = size_of::<Entry<Handler>>();
        assert!(bytes + 24 + 12 <= 200, "{bytes} bytes for an entry");
    }
}
