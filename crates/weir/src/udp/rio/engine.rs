//! What every design on registered I/O does, from top to bottom: it makes the memory and opens the queues; posts the
//! first receives; hands what came to the handler, and posts its slice again; and gives everything back.
//!
//! Posting a slice makes it the kernel's; that a receive is armed to fill it is the provider's work, done whenever a
//! thread dequeues or waits.
//!
//! The queues belong to one thread ([`start_alone`]), or several share them ([`spawn_sharing`]): one at a time dequeues, and one
//! at a time posts for each socket. Then the first thread starts the queues and stops them; all threads live until the end, since on
//! io_uring a receive that is armed ends with the thread that armed it.

use super::gathered::Gathered;
use crate::{
    Error,
    counters::Counters,
    deadline::LastLook,
    gather::Asked,
    lifecycle::{contain, lock, try_lock},
    memory::{Region, Slice},
    rio::{
        Batch, Completion, CompletionQueue, HandOver, Needs, OneThread, Opened, Outcome, Provider,
        Received, RequestQueue, Span, Started, Threading, line_and_payload,
        turn::{Turns, Waited},
    },
    socket::{DatagramSocket, Endpoint, context::Origin},
    tunable::Unit,
    udp::{
        Handler, Job, Running, Worker,
        job::{make_room, stop_deadline},
    },
    wake::Waker,
};
use std::{
    io,
    panic::resume_unwind,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc,
    },
    time::Duration,
};

/// Registered memory, and queues that are not started yet.
pub(super) struct Ready<O> {
    pub(super) region: Arc<Region>,
    pub(super) opened: O,
    pub(super) needs: Needs,
    /// What is asked of the waits.
    pub(super) gather: Asked,
}

/// Makes the region as the provider wants it cut, and opens the queues.
pub(super) fn open<T: Threading, P: Provider<T>, H: Handler>(
    job: &mut Job<H>,
    provider: &P,
    outstanding: u32,
    per_dequeue: u32,
    gather: Asked,
) -> Result<Ready<P::Opened>, Error> {
    let sends = job.limits.sends();
    let (payload, offload) = (job.slice_bytes(), job.receive_offload());
    let meta = job.asks_for_meta();
    let needs = Needs { payload, receives: outstanding, sends, per_dequeue, offload, meta };
    let ready = open_at(job, provider, &job.endpoints, needs, gather)?;
    job.bound(ready.opened.local_addresses());
    job.watch(ready.opened.sockets());
    job.send_by(ready.opened.senders());
    job.state_memory(std::slice::from_ref(&ready.region));
    Ok(ready)
}

/// The same for one of several queues, which says nothing of itself yet.
pub(super) fn open_at<T: Threading, P: Provider<T>, H: Handler>(
    job: &Job<H>,
    provider: &P,
    endpoints: &[Endpoint],
    needs: Needs,
    gather: Asked,
) -> Result<Ready<P::Opened>, Error> {
    let layout = provider.layout(&needs)?;
    let region = Region::new(layout, needs.receives.saturating_add(needs.sends), job.region)?;
    let mut endpoints = endpoints.to_vec();
    make_room(&mut endpoints, needs.receives, needs.payload);
    let opened = provider.open(&endpoints, &region, &needs)?;
    Ok(Ready { region, opened, needs, gather })
}

/// Posts that are committed together where nothing else is asked for: all of a batch.
pub(super) const A_WHOLE_BATCH: u32 = 65_536;

/// How many posts are made together, which may be changed while the server runs: under the name of the design's option.
pub(super) fn posts_together<H: Handler>(
    job: &Job<H>,
    option: &'static str,
    posts: u32,
) -> Arc<AtomicU64> {
    job.tunable(option, Unit::Number, posts.into(), 1..=A_WHOLE_BATCH.into())
}

/// Starts a server whose one thread has the queues for itself. `step` is what it does again and again until it stops.
pub(super) fn start_alone<H: Handler, P: Provider<OneThread>>(
    mut job: Job<H>,
    provider: P,
    outstanding: u32,
    per_dequeue: u32,
    defer: u32,
    gather: Asked,
    step: impl FnMut(&mut OwnQueue<'_, H, Gathered<P::Cq>>) -> Result<(), Error> + Send + 'static,
) -> Result<Running<H>, Error> {
    let defer = posts_together(&job, "defer", defer);
    let ready = open(&mut job, &provider, outstanding, per_dequeue, gather)?;
    job.spawn(move |worker| run_alone(worker, &provider, ready, defer, step))?;
    job.run()
}

/// A design of one thread that has the queues for itself: it differs from the others in its `step`, what the thread
/// does again and again. One that `waits` has the option `gather`.
macro_rules! design_of_one_thread {
    (
        $Design:ident $name:literal;
        summary: $summary:literal;
        origin: $origin:literal;
        $(waits: $gather:ident;)?
        step: $step:ident;
    ) => {
        $crate::udp::rio::rio_design! {
            $Design $name;
            summary: $summary;
            origin: $origin;
            options {
                /// Provider of registered I/O.
                provider: $crate::rio::Choice =
                    $crate::rio::Choice::Auto, $crate::rio::Choice::NAMES;
                /// Receives posted at a time; by default fewer where their slices would take more than 256 MiB.
                outstanding: u32 = 150_000, 1..=1_000_000;
                /// Most completions taken by one dequeue.
                dequeue_max: u32 = 1000, 1..=65_536;
                /// Most posts that are deferred and committed together, as with RIO_MSG_DEFER (can be changed while it
                /// runs).
                defer: u32 = $crate::udp::rio::engine::A_WHOLE_BATCH, 1..=65_536;
                $(
                    /// How long datagrams may gather before a wait ends, and how many are enough (can be changed while
                    /// it runs).
                    $gather: $crate::gather::Gather =
                        $crate::gather::Gather::NONE, $crate::gather::Gather::LIMITS;
                )?
            }
        }

        impl $Design {
            /// Starts it on a provider of one's own.
            ///
            /// # Errors
            /// As [`Design::start`](crate::udp::Design::start).
            pub fn start_on<
                H: $crate::udp::Handler,
                P: $crate::rio::Provider<$crate::rio::OneThread>,
            >(
                self,
                job: $crate::udp::Job<H>,
                provider: P,
            ) -> Result<$crate::udp::Running<H>, $crate::Error> {
                $crate::options::Options::check(&self)?;
                let Self { outstanding, dequeue_max, defer, .. } = self;
                let gather = None::<$crate::gather::Asked>;
                $(let gather = gather.or_else(|| Some(job.gathers(self.$gather)));)?
                $crate::udp::rio::engine::start_alone(
                    job,
                    provider,
                    outstanding,
                    dequeue_max,
                    defer,
                    gather.unwrap_or_default(),
                    $step,
                )
            }
        }
    };
}
pub(super) use design_of_one_thread;

/// A thread that has the queues for itself. It stops them afterwards, so that every slice comes back however its loop
/// ended.
pub(super) fn run_alone<H: Handler, P: Provider<OneThread>>(
    worker: &mut Worker<H>,
    provider: &P,
    ready: Ready<P::Opened>,
    defer: Arc<AtomicU64>,
    mut step: impl FnMut(&mut OwnQueue<'_, H, Gathered<P::Cq>>) -> Result<(), Error>,
) -> Result<(), Error> {
    let Ready { region, opened, needs, gather } = ready;
    let senders: Vec<_> = opened.senders().iter().map(DatagramSocket::downgrade).collect();
    let Started { completions, mut requests, granted } = provider.start(opened)?;
    let mut completions =
        Gathered::new(completions, gather, needs.receives, |name, value| worker.state(name, value));
    let result = contain(|| {
        post_all(worker, &region, &needs, &mut requests)?;
        announce(worker, &granted, Some(completions.waker()));
        let (completions, requests) = (&mut completions, &mut requests[..]);
        let batch = Batch::new(needs.per_dequeue as usize);
        let received = 0;
        let mut queue = OwnQueue { worker, completions, requests, region, batch, received, defer };
        while !queue.worker.stopping() {
            queue.worker.collect_errors();
            if queue.worker.on_time() {
                queue.flush()?;
            }
            step(&mut queue)?;
        }
        if queue.worker.hands_over {
            queue.finish()?;
        }
        queue.worker.on_stop(&senders);
        Ok(())
    });
    // What did not come back is counted in the region, and told from there.
    let _ = completions.stop(requests, stop_deadline());
    result.unwrap_or_else(|panic| resume_unwind(panic))
}

/// The longest wait for what was taken from a socket and has not completed: nothing tells that it is over.
const FINISHING: Duration = Duration::from_millis(1);

/// The queues of a thread that has them for itself, and what it dequeued last.
pub(super) struct OwnQueue<'t, H, Q: CompletionQueue> {
    worker: &'t mut Worker<H>,
    completions: &'t mut Q,
    requests: &'t mut [Q::Rq],
    region: Arc<Region>,
    batch: Batch,
    /// Datagrams of the last dequeue.
    received: usize,
    /// Posts that are committed together, at most.
    defer: Arc<AtomicU64>,
}

impl<H: Handler, Q: CompletionQueue> OwnQueue<'_, H, Q> {
    /// Takes what has completed, without waiting. Says whether there was anything.
    #[inline]
    pub(super) fn dequeue(&mut self) -> Result<bool, Error> {
        let counters = &self.worker.counters;
        let received =
            self.completions.dequeue(&mut self.batch, counters).map_err(dequeue_failed)?;
        counters.dequeued(received);
        self.received = received;
        // The dequeue may have met an error of a peer, and a wait may follow.
        self.worker.collect_errors();
        Ok(!self.batch.is_empty())
    }

    /// How many datagrams the last dequeue brought: its completions may be other ones, too.
    #[inline]
    pub(super) fn received(&self) -> usize {
        self.received
    }

    /// Gives what was dequeued to the handler, and posts its slices again.
    #[inline]
    pub(super) fn handle(&mut self) -> Result<(), Error> {
        let defer = self.defer.load(Relaxed);
        handle(self.worker, &mut self.batch, &self.region, self.requests, defer)
    }

    /// Handles what was taken from sockets that others go on with, and sees the answers off.
    fn finish(&mut self) -> Result<(), Error> {
        let (mut look, mut found) = (LastLook::by(stop_deadline()), false);
        while self.completions.end_receiving(&self.worker.counters).map_err(dequeue_failed)?
            || self.requests.iter().any(|queue| queue.outstanding().1 > 0)
        {
            let Some(left) = look.wait(found) else {
                break; // what is left is counted as missing
            };
            found = self.dequeue()?;
            if !found {
                let (time, counters) = (FINISHING.min(left), &self.worker.counters);
                self.completions.wait(1, Some(time), counters).map_err(wait_failed)?;
                found = self.dequeue()?;
            }
            if found {
                self.handle()?;
            }
        }
        Ok(())
    }

    /// Sends what the handler left.
    fn flush(&mut self) -> Result<(), Error> {
        flush(self.worker, &self.region, self.requests);
        commit(self.worker, self.requests)
    }

    /// Asks to be notified, and waits until something has completed, the handler is to be called, or the server stops.
    #[inline]
    pub(super) fn wait(&mut self) -> Result<(), Error> {
        self.wait_at_most(self.worker.time_left())
    }

    /// The same, for a time at most.
    pub(super) fn wait_for(&mut self, time: Duration) -> Result<(), Error> {
        self.wait_at_most(Some(self.worker.time_left().map_or(time, |left| left.min(time))))
    }

    #[inline]
    fn wait_at_most(&mut self, time: Option<Duration>) -> Result<(), Error> {
        let counters = &self.worker.counters;
        counters.notifies.one();
        counters.waits.one();
        self.completions.wait(1, time, counters).map(drop).map_err(wait_failed)
    }
}

/// What a provider granted.
type Granted = [(&'static str, String)];

/// Says that the thread has started, what the provider granted, and how to end its waits.
fn announce<H: Handler>(worker: &mut Worker<H>, granted: &Granted, waker: Option<Waker>) {
    for (name, value) in granted {
        worker.state(name, value);
    }
    worker.ready(waker);
}

/// Posts the first receives: as many as are to be outstanding, shared among the sockets.
fn post_all<H: Handler, Q: RequestQueue>(
    worker: &Worker<H>,
    region: &Arc<Region>,
    needs: &Needs,
    requests: &mut [Q],
) -> Result<(), Error> {
    let sockets = requests.len();
    for n in 0..needs.receives as usize {
        let Some(slice) = region.take() else { break };
        if requests[n % sockets].receive(slice).is_err() {
            break; // the provider's own limit, which it states
        }
        worker.counters.posts.one();
    }
    commit(worker, requests)
}

/// Makes everything posted known to the kernel.
#[inline]
fn commit<H: Handler, Q: RequestQueue>(
    worker: &Worker<H>,
    requests: &mut [Q],
) -> Result<(), Error> {
    requests.iter_mut().try_for_each(|queue| commit_one(worker, queue))
}

#[inline]
fn commit_one<H: Handler>(worker: &Worker<H>, queue: &mut impl RequestQueue) -> Result<(), Error> {
    queue.commit(&worker.counters).map_err(|e| Error::io("posting requests", e))
}

/// What to do with a slice next: to post it.
pub(super) struct Next {
    pub(super) slice: Slice,
    pub(super) socket: u32,
    /// What is sent of it; `None` where it is posted to receive into.
    pub(super) send: Option<Reply>,
}

/// What is sent of a slice.
pub(super) struct Reply {
    pub(super) span: Span,
    /// Where it goes lies in the slice, as where a datagram came from.
    pub(super) to: Received,
}

/// Gives what came to the handler, or counts what else completed, and says what to do with the slice. `flush` sends the
/// replies to one of several datagrams. For use within [`Worker::with_each`].
#[inline(always)]
pub(super) fn settle<H: Handler>(
    worker: &mut Worker<H>,
    completion: Completion,
    flush: impl FnMut(&mut Worker<H>),
) -> Result<Next, Error> {
    let Completion { mut slice, socket, outcome } = completion;
    let send = match outcome {
        Outcome::Received(to) => {
            let (line, payload) = line_and_payload(&mut slice);
            let echo = worker.deliver_of_batch(payload, &to.with(line), socket, flush);
            echo.map(|span| Reply { span, to })
        }
        other => {
            settle_other(worker, other)?;
            None
        }
    };
    Ok(Next { slice, socket, send })
}

/// Counts what completed that is no datagram.
#[cold]
fn settle_other<H: Handler>(worker: &Worker<H>, outcome: Outcome) -> Result<(), Error> {
    match outcome {
        Outcome::Sent(span) => worker.counters.replies.add(span.datagrams() as u64),
        Outcome::Failed(e) => worker.receive_failed(e)?,
        Outcome::NotSent(unsent) => worker.not_sent(&unsent),
        Outcome::Returned | Outcome::Received(_) => {}
    }
    Ok(())
}

/// Posts a slice again, on the queue of its socket. Says whether it was posted to receive into.
#[inline(always)]
fn post<H: Handler>(worker: &Worker<H>, queue: &mut impl RequestQueue, next: Next) -> bool {
    let Next { mut slice, send, .. } = next;
    if let Some(Reply { span, to }) = send {
        let peer = to.with(line_and_payload(&mut slice).0).peer();
        slice = match queue.send(slice, span, &peer) {
            Ok(()) => return false,
            Err((slice, _)) => slice,
        };
        worker.counters.replies_refused.add(span.datagrams() as u64);
    }
    // A slice that is one too many (it was a reply's) returns to the pool by being dropped.
    queue.receive(slice).is_ok()
}

/// Sends the replies that the handler left, from slices of the pool.
#[cold]
fn flush<H: Handler, Q: RequestQueue>(
    worker: &mut Worker<H>,
    region: &Arc<Region>,
    requests: &mut [Q],
) {
    worker.post_replies(region, |socket, slice, span, to| {
        requests[socket as usize].send(slice, span, to).is_ok()
    });
}

/// Handles every completion of a batch and posts its slices again: for designs whose queues
/// belong to one thread.
#[inline]
fn handle<H: Handler, Q: RequestQueue>(
    worker: &mut Worker<H>,
    batch: &mut Batch,
    region: &Arc<Region>,
    requests: &mut [Q],
    defer: u64,
) -> Result<(), Error> {
    let (mut deferred, mut posts) = (0, 0);
    let handled = worker.with_each(batch.drain(), |worker, completion| {
        let next = settle(worker, completion, |worker| flush(worker, region, requests))?;
        let queue = &mut requests[next.socket as usize];
        posts += u64::from(post(worker, queue, next));
        if worker.has_replies() {
            flush(worker, region, requests);
        }
        deferred += 1;
        if deferred >= defer {
            commit(worker, requests)?;
            deferred = 0;
        }
        Ok(())
    });
    worker.counters.posts.add(posts);
    handled?;
    worker.batch_end();
    if worker.has_replies() {
        flush(worker, region, requests);
    }
    commit(worker, requests)
}

/// What the threads share: the right to dequeue, and the request queues, each under a lock of its own. So who posts for
/// one socket waits neither for who posts for another nor for who dequeues.
pub(super) struct SharedQueue<Q: CompletionQueue> {
    pub(super) turns: Turns<Q>,
    pub(super) region: Arc<Region>,
    /// Most completions taken by one dequeue.
    pub(super) per_dequeue: usize,
    /// Taken out at the end.
    requests: Box<[Mutex<Option<Q::Rq>>]>,
}

impl<Q: CompletionQueue> SharedQueue<Q> {
    /// How many sockets there are.
    pub(super) fn sockets(&self) -> usize {
        self.requests.len()
    }

    /// Locks the request queue of a socket, which takes one poster at a time. Counts that, and whether another thread
    /// holds the lock.
    fn lock(&self, socket: usize, counters: &Counters) -> MutexGuard<'_, Option<Q::Rq>> {
        let queue = &self.requests[socket];
        counters.locks.one();
        try_lock(queue).unwrap_or_else(|| {
            counters.locks_contended.one();
            lock(queue)
        })
    }

    /// The request queues of all sockets, for a thread that alone posts, as long as it lives.
    pub(super) fn lock_all(&self) -> AllLocked<'_, Q::Rq> {
        AllLocked(self.requests.iter().map(lock).collect())
    }

    /// Takes the request queues out, once no other thread posts any more.
    fn take_requests(&self) -> Vec<Q::Rq> {
        self.requests.iter().filter_map(|queue| lock(queue).take()).collect()
    }
}

const THERE: &str = "request queues are there until all threads have ended";

/// All request queues, of one thread.
pub(super) struct AllLocked<'a, Rq>(Vec<MutexGuard<'a, Option<Rq>>>);

impl<Rq: RequestQueue> AllLocked<'_, Rq> {
    /// The queue of a socket.
    pub(super) fn get(&mut self, socket: u32) -> &mut Rq {
        self.0[socket as usize].as_mut().expect(THERE)
    }

    /// Makes everything posted known.
    pub(super) fn commit_all<H: Handler>(&mut self, worker: &Worker<H>) -> Result<(), Error> {
        self.0.iter_mut().try_for_each(|queue| commit_one(worker, queue.as_mut().expect(THERE)))
    }
}

/// Request queues that a batch is posted on, one after the other.
pub(super) trait Posting {
    /// One of them.
    type Rq: RequestQueue;

    /// Works on the queue of a socket.
    fn post<R>(
        &mut self,
        socket: usize,
        counters: &Counters,
        work: impl FnOnce(&mut Self::Rq) -> R,
    ) -> R;
}

impl<Rq: RequestQueue> Posting for &mut AllLocked<'_, Rq> {
    type Rq = Rq;

    fn post<R>(&mut self, socket: usize, _: &Counters, work: impl FnOnce(&mut Rq) -> R) -> R {
        work(self.get(socket as u32))
    }
}

impl<Q: CompletionQueue> Posting for &SharedQueue<Q> {
    type Rq = Q::Rq;

    fn post<R>(
        &mut self,
        socket: usize,
        counters: &Counters,
        work: impl FnOnce(&mut Q::Rq) -> R,
    ) -> R {
        work(self.lock(socket, counters).as_mut().expect(THERE))
    }
}

/// Opens queues that are handed from thread to thread and spawns the threads: the first runs
/// `first`, the others run `other`. Stopping the server closes the turns.
pub(super) fn spawn_sharing<H: Handler, P: Provider<HandOver, Cq: Send, Rq: Send>>(
    job: &mut Job<H>,
    provider: P,
    ready: Ready<P::Opened>,
    threads: usize,
    first: First<H, Gathered<P::Cq>>,
    other: Other<H, Gathered<P::Cq>>,
) -> Result<(), Error> {
    // When every other thread has dropped its end of `left`, the queues are the first thread's
    // again.
    let (left, others_left) = mpsc::channel::<()>();
    let (mut invitations, mut invited) = (Vec::new(), Vec::new());
    for _ in 1..threads {
        let (sender, receiver) = mpsc::channel::<Arc<SharedQueue<Gathered<P::Cq>>>>();
        invitations.push(sender);
        invited.push((receiver, left.clone()));
    }
    drop(left);
    job.spawn(move |worker| {
        let Ready { region, opened, needs, gather } = ready;
        let Started { completions, mut requests, granted } = provider.start(opened)?;
        let completions = Gathered::new(completions, gather, needs.receives, |name, value| {
            worker.state(name, value)
        });
        let posted = post_all(worker, &region, &needs, &mut requests);
        let shared = Arc::new(SharedQueue {
            turns: Turns::new(completions, threads),
            region,
            per_dequeue: needs.per_dequeue as usize,
            requests: requests.into_iter().map(|queue| Mutex::new(Some(queue))).collect(),
        });
        let closing = Arc::downgrade(&shared);
        let close = Waker::new(move || {
            if let Some(shared) = closing.upgrade() {
                shared.turns.close();
            }
        });
        let result = contain(|| {
            posted?;
            announce(worker, &granted, Some(close));
            for invitation in invitations {
                let _ = invitation.send(Arc::clone(&shared));
            }
            first(worker, &shared)
        });
        shared.turns.close();
        let _ = others_left.recv(); // an error: every other thread has left
        let mut requests = shared.take_requests();
        let mut completions = shared.turns.take_back();
        let result = result.and_then(|ended| {
            contain(|| {
                ended?;
                if let Some(completions) = completions.as_mut().filter(|_| worker.hands_over) {
                    let batch = Batch::new(shared.per_dequeue);
                    let (requests, region) = (&mut requests[..], Arc::clone(&shared.region));
                    let defer = Arc::new(AtomicU64::new(A_WHOLE_BATCH.into()));
                    OwnQueue { worker, completions, requests, region, batch, received: 0, defer }
                        .finish()?;
                }
                worker.on_stop(&[]);
                Ok(())
            })
        });
        if let Some(completions) = completions {
            // What did not come back is counted in the region, and told from there.
            let _ = completions.stop(requests, stop_deadline());
        }
        result.unwrap_or_else(|panic| resume_unwind(panic))
    })?;
    for (shared, left) in invited {
        let other = Arc::clone(&other);
        job.spawn(move |worker| {
            let _left = left;
            worker.ready(None);
            // The first thread failed to start, and says why, if it never answers.
            let Ok(shared) = shared.recv() else { return Ok(()) };
            other(worker, &shared)?;
            worker.on_stop(&[]);
            Ok(())
        })?;
    }
    Ok(())
}

/// What the threads run, in boxes: so starting them is compiled once for all designs.
type First<H, Q> = Box<dyn FnOnce(&mut Worker<H>, &SharedQueue<Q>) -> Result<(), Error> + Send>;
type Other<H, Q> = Arc<dyn Fn(&mut Worker<H>, &SharedQueue<Q>) -> Result<(), Error> + Send + Sync>;

/// Dequeues whenever it is this thread's turn, and gives the queue up before what came goes to `handle`. That is given
/// nothing where the handler was called in time, and may have left something to be sent.
pub(super) fn take_turns<H: Handler, Q: CompletionQueue>(
    worker: &mut Worker<H>,
    shared: &SharedQueue<Q>,
    mut handle: impl FnMut(&mut Worker<H>, Option<&mut Batch>) -> Result<(), Error>,
) -> Result<(), Error> {
    let counters = Arc::clone(&worker.counters);
    let mut batch = Batch::new(shared.per_dequeue);
    loop {
        if worker.on_time() {
            handle(worker, None)?;
        }
        let until = worker.call_at();
        let waited = shared.turns.take_until(worker.index, until, &counters);
        let mut turn = match waited.map_err(wait_failed)? {
            Waited::Turn(turn) => turn,
            Waited::TimedOut => continue,
            Waited::Closed => return Ok(()),
        };
        let received = turn.queue().dequeue(&mut batch, &counters).map_err(dequeue_failed)?;
        counters.dequeued(received);
        turn.notify(&counters);
        worker.collect_errors();
        handle(worker, Some(&mut batch))?;
    }
}

/// What is to be posted when a batch is handled.
pub(super) struct ToPost {
    /// In the order in which it was handled. What was posted of it is gone.
    next: Vec<Option<Next>>,
    /// How many of them there are for each socket, and how many of those are receives.
    of: Box<[(u32, u32)]>,
}

impl ToPost {
    /// With room for so many slices. More are never in it, so that nothing is allocated later.
    pub(super) fn new(room: usize, sockets: usize) -> Self {
        Self { next: Vec::with_capacity(room), of: vec![(0, 0); sockets].into() }
    }

    pub(super) fn add(&mut self, next: Next) {
        debug_assert!(self.next.len() < self.next.capacity(), "no room for another slice");
        let (all, receives) = &mut self.of[next.socket as usize];
        *all += 1;
        *receives += u32::from(next.send.is_none());
        self.next.push(Some(next));
    }

    pub(super) fn len(&self) -> usize {
        self.next.len()
    }

    /// How many slices it can hold without another allocation.
    #[cfg(all(test, not(loom)))]
    pub(super) fn room(&self) -> usize {
        self.next.capacity()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.next.is_empty()
    }

    /// Moves what is in another one here.
    pub(super) fn append(&mut self, other: &mut Self) {
        let together = self.next.len() + other.next.len();
        debug_assert!(together <= self.next.capacity(), "no room for {together} slices");
        self.next.append(&mut other.next);
        for ((all, receives), its) in self.of.iter_mut().zip(&mut other.of) {
            let (its_all, its_receives) = std::mem::take(its);
            *all += its_all;
            *receives += its_receives;
        }
    }

    /// Gives all of it back to the pool.
    pub(super) fn clear(&mut self) {
        self.next.clear();
        self.of.fill((0, 0));
    }

    /// Posts all of it, on one queue after the other: each is locked once.
    pub(super) fn post<H: Handler>(
        &mut self,
        worker: &Worker<H>,
        mut queues: impl Posting,
    ) -> Result<(), Error> {
        let counters = &worker.counters;
        let (next, of) = (&mut self.next, &mut self.of);
        for (socket, (all, receives)) in of.iter_mut().map(std::mem::take).enumerate() {
            if all == 0 {
                continue;
            }
            let mine = |next: &&mut Option<Next>| {
                next.as_ref().is_some_and(|next| next.socket as usize == socket)
            };
            queues.post(socket, counters, |queue| {
                // One step of the count that the threads share, not one each.
                queue.reserve(receives);
                let mine = next.iter_mut().filter(mine).take(all as usize);
                let posted = mine.filter_map(Option::take);
                counters.posts.add(posted.map(|next| u64::from(post(worker, queue, next))).sum());
                commit_one(worker, queue)
            })?;
        }
        next.clear();
        Ok(())
    }
}

/// Handles a batch without any lock, then posts its slices again under that of their queue, `posts_per_lock` of
/// them at a time.
pub(super) fn handle_sharing<H: Handler, Q: CompletionQueue>(
    worker: &mut Worker<H>,
    shared: &SharedQueue<Q>,
    batch: Option<&mut Batch>,
    to_post: &mut ToPost,
    posts_per_lock: &AtomicU64,
) -> Result<(), Error> {
    if let Some(batch) = batch {
        let posts_per_lock = posts_per_lock.load(Relaxed) as usize;
        worker.with_each(batch.drain(), |worker, completion| {
            let flush = |worker: &mut Worker<H>| flush_sharing(worker, shared);
            to_post.add(settle(worker, completion, flush)?);
            if worker.has_replies() {
                flush(worker);
            }
            if to_post.len() >= posts_per_lock {
                to_post.post(worker, shared)?;
            }
            Ok(())
        })?;
        worker.batch_end();
    }
    if worker.has_replies() {
        flush_sharing(worker, shared);
    }
    to_post.post(worker, shared)?;
    if worker.may_transmit() {
        commit_all(worker, shared)?;
    }
    worker.collect_errors(); // of sends just made: this thread may park now
    Ok(())
}

/// Makes everything posted known, on whatever queue.
fn commit_all<H: Handler, Q: CompletionQueue>(
    worker: &Worker<H>,
    mut shared: &SharedQueue<Q>,
) -> Result<(), Error> {
    let commit = |queue: &mut Q::Rq| commit_one(worker, queue);
    (0..shared.sockets()).try_for_each(|socket| shared.post(socket, &worker.counters, commit))
}

/// Sends what the handler left, from slices of the pool. Replies are made known with the slice of the datagram that
/// they answer, which is posted on the same queue.
#[cold]
fn flush_sharing<H: Handler, Q: CompletionQueue>(
    worker: &mut Worker<H>,
    mut shared: &SharedQueue<Q>,
) {
    let counters = Arc::clone(&worker.counters);
    worker.post_replies(&shared.region, |socket, slice, span, to| {
        shared.post(socket as usize, &counters, |queue| queue.send(slice, span, to).is_ok())
    });
}

pub(super) fn dequeue_failed(e: io::Error) -> Error {
    Error::io("dequeuing completions", e)
}

pub(super) fn wait_failed(e: io::Error) -> Error {
    Error::io("waiting for completions", e)
}
