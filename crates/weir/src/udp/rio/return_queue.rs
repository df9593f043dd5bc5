//! The hand-over from the threads that handle datagrams to the one that posts their slices.
//!
//! What a thread has finished, a whole batch at a time, goes into the return queue under a lock that
//! is held for an append; the reader swaps it for an empty one. Both have room for every slice of
//! the region, and what a thread collects has room for a batch and the copies that answer a
//! datagram, so nothing is allocated once the server runs.

use super::{
    engine::{self, Next, Reply, SharedQueue, ToPost},
    gathered::Gathered,
};
use crate::{
    Error,
    counters::Counters,
    gather::Asked,
    memory::Region,
    rio::{self, Batch, CompletionQueue, HandOver, Provider, RequestQueue as _},
    sync::{Condvar, Mutex, MutexGuard},
    udp::{Handler, Job, Running, Worker},
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// What is finished and not posted yet.
pub(super) struct ReturnQueue {
    state: Mutex<ReturnQueueState>,
    filled: Condvar,
    /// How many slices there are.
    slices: usize,
    sockets: usize,
}

/// Whether the reader has to be woken. A model of the designs with a reader decides by it, too.
pub mod reader {
    /// Whether the reader waits.
    #[derive(Debug, Default)]
    pub struct Waits(bool);

    impl Waits {
        /// Something was put in. True: the reader waits, and must be woken, this once.
        #[inline]
        pub fn filled(&mut self) -> bool {
            std::mem::take(&mut self.0)
        }

        /// Whether it does.
        pub fn is_waiting(&self) -> bool {
            self.0
        }

        /// The reader found nothing, and is about to wait.
        #[inline]
        pub fn found_nothing(&mut self) {
            self.0 = true;
        }
    }
}

struct ReturnQueueState {
    to_post: ToPost,
    reader: reader::Waits,
    closed: bool,
    /// The reader has left: what is put in goes back to the pool.
    left: bool,
}

impl ReturnQueue {
    /// For all slices of a region, which belong to so many sockets.
    pub(super) fn new(region: &Region, sockets: usize) -> Arc<Self> {
        let slices = region.count() as usize;
        let state = ReturnQueueState {
            to_post: ToPost::new(slices, sockets),
            reader: reader::Waits::default(),
            closed: false,
            left: false,
        };
        Arc::new(Self { state: Mutex::new(state), filled: Condvar::new(), slices, sockets })
    }

    /// What a thread collects before it puts it in. A batch is put in when it is more than
    /// `per_dequeue`, with what the handler sent.
    pub(super) fn collection(&self, per_dequeue: usize) -> ToPost {
        ToPost::new(per_dequeue + 1, self.sockets)
    }

    /// What the reader takes: it is swapped for what is in the return queue.
    fn taken(&self) -> ToPost {
        ToPost::new(self.slices, self.sockets)
    }

    fn lock(&self) -> MutexGuard<'_, ReturnQueueState> {
        // Nothing that runs under the lock can panic half way through a change.
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Puts all of it in, and wakes the reader if it waits.
    pub(super) fn put(&self, to_post: &mut ToPost) {
        if to_post.is_empty() {
            return;
        }
        let mut state = self.lock();
        if state.left {
            return to_post.clear();
        }
        state.to_post.append(to_post);
        let wake = state.reader.filled();
        drop(state);
        if wake {
            self.filled.notify_one();
        }
    }

    /// Takes all that is there into `to_post`, which is empty; waits until there is something.
    /// False: closed, and empty.
    #[cfg(test)]
    pub(super) fn take(&self, to_post: &mut ToPost, counters: &Counters) -> bool {
        self.take_until(to_post, None, counters)
    }

    /// The same until then at the latest: then `to_post` may stay empty.
    pub(super) fn take_until(
        &self,
        to_post: &mut ToPost,
        until: Option<Instant>,
        counters: &Counters,
    ) -> bool {
        let mut state = self.lock();
        while state.to_post.is_empty() && !state.closed {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return true;
            }
            state.reader.found_nothing();
            counters.parks.one();
            state = match left {
                None => self.filled.wait(state).unwrap_or_else(|e| e.into_inner()),
                Some(left) => {
                    self.filled.wait_timeout(state, left).unwrap_or_else(|e| e.into_inner()).0
                }
            };
        }
        std::mem::swap(&mut state.to_post, to_post);
        !to_post.is_empty()
    }

    /// Ends the reader's wait for good.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.filled.notify_one();
    }
}

/// What those who put slices in share. When the last of them has left, nothing more comes: so the reader posts all that
/// they have handled, also when the server stops.
struct Filling(Arc<ReturnQueue>);

impl Filling {
    fn queue(&self) -> &ReturnQueue {
        &self.0
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Starts a server with so many threads that handle datagrams as `run` says, and a reader.
pub(super) fn start<H: Handler, P: Provider<HandOver, Cq: Send, Rq: Send>>(
    mut job: Job<H>,
    provider: P,
    threads: u32,
    outstanding: u32,
    per_dequeue: u32,
    gather: Asked,
    run: impl Fn(&mut Worker<H>, &SharedQueue<Gathered<P::Cq>>, &ReturnQueue) -> Result<(), Error>
    + Send
    + Sync
    + 'static,
) -> Result<Running<H>, Error> {
    let ready = engine::open(&mut job, &provider, outstanding, per_dequeue, gather)?;
    let returned = ReturnQueue::new(&ready.region, job.endpoints.len());
    let filling = Filling(Arc::clone(&returned));
    engine::spawn_sharing(
        &mut job,
        provider,
        ready,
        threads as usize + 1,
        Box::new(move |worker, shared| read(worker, shared, &returned)),
        Arc::new(move |worker: &mut Worker<H>, shared: &SharedQueue<_>| {
            run(worker, shared, filling.queue())
        }),
    )?;
    job.run()
}

/// The reader's place. When it leaves, in a panic too, no slice stays behind in the return queue.
struct Reading<'a>(&'a ReturnQueue);

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.left = true;
        state.to_post.clear();
    }
}

/// The reader: posts whatever the others have finished, and nobody else ever posts, so no lock
/// is around that. It holds the request queues for as long as it lives.
fn read<H: Handler, Q: CompletionQueue>(
    worker: &mut Worker<H>,
    shared: &SharedQueue<Q>,
    returned: &ReturnQueue,
) -> Result<(), Error> {
    let _reading = Reading(returned);
    let mut requests = shared.lock_all();
    let mut to_post = returned.taken();
    loop {
        if worker.on_time() {
            let region = &shared.region;
            worker.post_replies(region, |socket, slice, span, to| {
                requests.get(socket).send(slice, span, to).is_ok()
            });
            requests.commit_all(worker)?;
        }
        if !returned.take_until(&mut to_post, worker.call_at(), &worker.counters) {
            return Ok(());
        }
        to_post.post(worker, &mut requests)?;
        worker.collect_errors();
    }
}

/// Handles a batch, and puts its slices into the return queue: at the end, and before where what the handler sends
/// makes it more than `per_dequeue`.
pub(super) fn handle<H: Handler, Q: CompletionQueue>(
    worker: &mut Worker<H>,
    shared: &SharedQueue<Q>,
    batch: Option<&mut Batch>,
    to_post: &mut ToPost,
    returned: &ReturnQueue,
) -> Result<(), Error> {
    if let Some(batch) = batch {
        worker.with_each(batch.drain(), |worker, completion| {
            let answer = |worker: &mut Worker<H>| answer(worker, shared, to_post, returned);
            let next = engine::settle(worker, completion, answer)?;
            add(next, to_post, shared.per_dequeue, returned);
            if worker.has_replies() {
                self::answer(worker, shared, to_post, returned);
            }
            Ok(())
        })?;
        worker.batch_end();
    }
    if worker.has_replies() {
        answer(worker, shared, to_post, returned);
    }
    returned.put(to_post);
    Ok(())
}

/// Adds a slice to what is to be posted, and puts that in once it is more than a batch.
#[inline]
fn add(next: Next, to_post: &mut ToPost, per_dequeue: usize, returned: &ReturnQueue) {
    to_post.add(next);
    if to_post.len() > per_dequeue {
        returned.put(to_post);
    }
}

/// Adds what the handler left to what is to be posted.
#[cold]
fn answer<H: Handler, Q: CompletionQueue>(
    worker: &mut Worker<H>,
    shared: &SharedQueue<Q>,
    to_post: &mut ToPost,
    returned: &ReturnQueue,
) {
    worker.post_replies(&shared.region, |socket, mut slice, span, to| {
        let to = rio::goes_to(&mut slice, to);
        let next = Next { slice, socket, send: Some(Reply { span, to }) };
        add(next, to_post, shared.per_dequeue, returned);
        true // refused, if at all, by the reader
    });
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
