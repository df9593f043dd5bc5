//! What every design does whose connections are registered I/O: starting, what a completion means, accepting,
//! and giving everything back. What a connection receives and sends stands in [`flow`](super::flow).
//!
//! When to wait, and what slices are received into, is what the designs differ in: it stands in their own
//! files.

use super::flow::{Entry, Open};
use crate::{
    Error, Unavailable,
    rio::{
        Batch, Stopped,
        streams::{
            Receiving, StartedStreams, StreamCompletion, StreamId, StreamNeeds, StreamProvider,
            StreamQueue, Streams,
        },
    },
    stream::{self, Listener},
    tcp::{ActiveSet, Connection, Handler, Job, Reason, Worker, active::Active, door::Door},
    timer::Tick,
};
use std::{
    collections::VecDeque,
    io, mem,
    time::{Duration, Instant},
};

/// Completions taken by one dequeue, at most.
pub(super) const DEQUEUED: usize = 256;

/// How long the last connections may take to go that were cut off.
const CUT_OFF: Duration = Duration::from_secs(2);

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
            result.and(room.end(worker))
        })?;
    }
    Ok(())
}

/// The connections of one thread, and the queue of what is asked for them.
pub(super) struct Room<H, Q> {
    pub(super) queue: Option<Q>,
    pub(super) listeners: Vec<Listener>,
    pub(super) entries: Vec<Entry<H>>,
    /// Entries that are not free.
    pub(super) open: usize,
    /// Whether connections share what they receive into.
    pub(super) shared: bool,
    /// Receives that may be asked for at a time.
    pub(super) receives: u16,
    /// Bytes handled at a time, at most.
    pub(super) buffer_bytes: usize,
    /// Numbers of timers that fell due.
    pub(super) due: Vec<u32>,
    /// Connections that found no slice to receive into.
    pub(super) starved: VecDeque<StreamId>,
    pub(super) spare: Vec<Vec<u8>>,
    pub(super) door: Door,
    pub(super) accepting: bool,
    pub(super) active: Active,
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
    pub(super) fn queue(&mut self) -> &mut Q {
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
    pub(super) fn open_at(&mut self, connection: StreamId) -> Option<&mut Open<H>> {
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

    fn not_accepted(&mut self, worker: &Worker<H>, error: &io::Error) {
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
    fn end(&mut self, worker: &mut Worker<H>) -> Result<(), Error> {
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
            let mut room = Room::new(&mut worker, started, vec![], needs, None).unwrap();
            let error = room.end(&mut worker).err().map(|error| error.to_string());
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
