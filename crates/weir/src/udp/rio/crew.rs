//! What the registered-I/O designs with several threads at one queue share: who starts the queue,
//! how the others learn of it, and who stops it when all have left.
//!
//! The first thread starts the queues and stops them; all threads live until the end, since on
//! io_uring a receive that is armed ends with the thread that armed it.

use super::engine::{self, Next, Ready};
use crate::{
    Error,
    crew::contain,
    memory::Region,
    rio::{Batch, CompletionQueue, HandOver, Provider, RequestQueue, Started, turn::Turns},
    udp::{Handler, Job, Worker, job::stop_deadline},
    wake::Waker,
};
use std::{
    io,
    panic::resume_unwind,
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
};

/// What the threads share: the right to dequeue, and the request queues under their lock.
pub(super) struct Crew<Q: CompletionQueue> {
    pub(super) turns: Turns<Q>,
    pub(super) region: Arc<Region>,
    /// Most completions taken by one dequeue.
    pub(super) per_dequeue: usize,
    requests: Mutex<Vec<Q::Rq>>,
}

impl<Q: CompletionQueue> Crew<Q> {
    /// The request queues of all sockets. A request queue takes one poster at a time.
    pub(super) fn requests(&self) -> MutexGuard<'_, Vec<Q::Rq>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens queues that are handed from thread to thread and spawns the threads: the first runs
/// `first`, the others run `other`. Stopping the server closes the turns.
pub(super) fn spawn<H, P>(
    job: &mut Job<H>,
    provider: P,
    ready: Ready<P::Opened>,
    threads: usize,
    first: impl FnOnce(&mut Worker<H>, &Crew<P::Cq>) -> Result<(), Error> + Send + 'static,
    other: impl Fn(&mut Worker<H>, &Crew<P::Cq>) -> Result<(), Error> + Clone + Send + 'static,
) -> Result<(), Error>
where
    H: Handler,
    P: Provider<HandOver>,
    P::Cq: Send,
    P::Rq: Send,
{
    // When every other thread has dropped its end of `left`, the queues are the first thread's
    // again.
    let (left, others_left) = mpsc::channel::<()>();
    let (mut invitations, mut invited) = (Vec::new(), Vec::new());
    for _ in 1..threads {
        let (sender, receiver) = mpsc::channel::<Arc<Crew<P::Cq>>>();
        invitations.push(sender);
        invited.push((receiver, left.clone()));
    }
    drop(left);
    job.spawn(move |worker| {
        let Ready { region, opened, needs } = ready;
        let Started { completions, mut requests, granted } = provider.start(opened)?;
        let posted = engine::post_all(worker, &region, &needs, &mut requests);
        let crew = Arc::new(Crew {
            turns: Turns::new(completions, threads),
            region,
            per_dequeue: needs.per_dequeue as usize,
            requests: Mutex::new(requests),
        });
        let closing = Arc::downgrade(&crew);
        let close = Waker::new(move || {
            if let Some(crew) = closing.upgrade() {
                crew.turns.close();
            }
        });
        let result = contain(|| {
            posted?;
            engine::announce(worker, &granted, Some(close));
            for invitation in invitations {
                let _ = invitation.send(Arc::clone(&crew));
            }
            first(worker, &crew)
        });
        crew.turns.close();
        let _ = others_left.recv(); // an error: every other thread has left
        let requests = std::mem::take(&mut *crew.requests());
        if let Some(completions) = crew.turns.take_back() {
            // What did not come back is counted in the region, and told from there.
            let _ = completions.stop(requests, stop_deadline());
        }
        result.unwrap_or_else(|panic| resume_unwind(panic))
    })?;
    for (crew, left) in invited {
        let other = other.clone();
        job.spawn(move |worker| {
            let _left = left;
            worker.ready(None);
            // The first thread failed to start, and says why, if it never answers.
            let Ok(crew) = crew.recv() else { return Ok(()) };
            other(worker, &crew)
        })?;
    }
    Ok(())
}

/// What is to be posted when a batch is handled.
pub(super) struct Done {
    next: Vec<Next>,
    /// How many of them are receives, for each socket.
    receives: Vec<u32>,
}

impl Done {
    /// With room for so many slices. More are never in it, so that nothing is allocated later.
    pub(super) fn new(room: usize, sockets: usize) -> Self {
        Self { next: Vec::with_capacity(room), receives: vec![0; sockets] }
    }

    pub(super) fn add(&mut self, next: Next) {
        debug_assert!(self.next.len() < self.next.capacity(), "no room for another slice");
        if let Next::Receive { socket, .. } = next {
            self.receives[socket as usize] += 1;
        }
        self.next.push(next);
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
        for (mine, its) in self.receives.iter_mut().zip(&mut other.receives) {
            *mine += std::mem::take(its);
        }
    }

    /// Gives all of it back to the pool.
    pub(super) fn clear(&mut self) {
        self.next.clear();
        self.receives.fill(0);
    }

    /// Posts all of it.
    pub(super) fn post<H: Handler, Q: RequestQueue>(
        &mut self,
        worker: &Worker<H>,
        requests: &mut [Q],
    ) -> Result<(), Error> {
        for (queue, receives) in requests.iter_mut().zip(&mut self.receives) {
            // One step of the count that the threads share, not one each.
            queue.reserve(std::mem::take(receives));
        }
        for next in self.next.drain(..) {
            engine::post(worker, requests, next);
        }
        engine::commit(worker, requests)
    }
}

/// Handles a batch without any lock, then posts its slices again under one, `posts_per_lock` of
/// them at a time.
pub(super) fn handle<H: Handler, Q: CompletionQueue>(
    worker: &mut Worker<H>,
    crew: &Crew<Q>,
    batch: &mut Batch,
    done: &mut Done,
    posts_per_lock: usize,
) -> Result<(), Error> {
    for completion in batch.drain() {
        let flush = |worker: &mut Worker<H>| {
            engine::flush(worker, &crew.region, &mut crew.requests());
        };
        done.add(engine::settle(worker, completion, flush)?);
        if worker.has_replies() {
            flush(worker);
        }
        if done.len() >= posts_per_lock {
            done.post(worker, &mut crew.requests())?;
        }
    }
    worker.batch_end();
    done.post(worker, &mut crew.requests())?;
    worker.hear_errors(); // of sends just made: this thread may park now
    Ok(())
}

pub(super) fn dequeue_failed(e: io::Error) -> Error {
    Error::io("dequeuing completions", e)
}

pub(super) fn wait_failed(e: io::Error) -> Error {
    Error::io("waiting for completions", e)
}
