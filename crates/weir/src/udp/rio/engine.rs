//! What the registered-I/O designs share: opening the queues, what becomes of a completion,
//! and giving everything back.

use crate::{
    Error,
    crew::contain,
    memory::{Region, Slice},
    rio::{
        Batch, Completion, CompletionQueue, Needs, Opened, Outcome, Peer, Provider, RequestQueue,
        Span, Started, Threading,
    },
    socket::Endpoint,
    udp::{Handler, Job, Worker, job::stop_deadline},
    wake::Waker,
};
use std::{panic::resume_unwind, sync::Arc};

/// Registered memory, and queues that are not started yet.
pub(super) struct Ready<O> {
    pub(super) region: Arc<Region>,
    pub(super) opened: O,
    pub(super) needs: Needs,
}

/// Makes the region as the provider wants it cut, and opens the queues.
pub(super) fn open<T: Threading, P: Provider<T>, H: Handler>(
    job: &mut Job<H>,
    provider: &P,
    outstanding: u32,
    per_dequeue: u32,
) -> Result<Ready<P::Opened>, Error> {
    let sends = job.limits.replies_outstanding;
    let (payload, offload) = (job.slice_bytes(), job.receive_offload());
    let needs = Needs { payload, receives: outstanding, sends, per_dequeue, offload };
    let ready = open_at(job, provider, &job.endpoints, needs)?;
    job.bound(ready.opened.local_addresses());
    job.watch(ready.opened.sockets());
    job.state_memory(std::slice::from_ref(&ready.region));
    Ok(ready)
}

/// The same for one of several queues, which says nothing of itself yet.
pub(super) fn open_at<T: Threading, P: Provider<T>, H: Handler>(
    job: &Job<H>,
    provider: &P,
    endpoints: &[Endpoint],
    needs: Needs,
) -> Result<Ready<P::Opened>, Error> {
    let layout = provider.layout(&needs)?;
    let region = Region::new(layout, needs.receives.saturating_add(needs.sends), job.region)?;
    let opened = provider.open(endpoints, &region, &needs)?;
    Ok(Ready { region, opened, needs })
}

/// What a provider granted.
type Granted = [(&'static str, String)];

/// Says that the thread has started, what the provider granted, and how to end its waits.
pub(super) fn announce<H: Handler>(
    worker: &mut Worker<H>,
    granted: &Granted,
    waker: Option<Waker>,
) {
    for (name, value) in granted {
        worker.state(name, value);
    }
    worker.ready(waker);
}

/// Posts the first receives: as many as are to be outstanding, shared among the sockets.
pub(super) fn post_all<H: Handler, Q: RequestQueue>(
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
pub(super) fn commit<H: Handler, Q: RequestQueue>(
    worker: &Worker<H>,
    requests: &mut [Q],
) -> Result<(), Error> {
    for queue in requests {
        queue.commit(&worker.counters).map_err(|e| Error::io("posting requests", e))?;
    }
    Ok(())
}

/// What to do with a slice next.
pub(super) enum Next {
    Receive { slice: Slice, socket: u32 },
    Send { slice: Slice, socket: u32, span: Span, to: Peer },
}

/// Gives what came to the handler, or counts what else completed, and says what to do with
/// the slice. `flush` sends the replies to one of several datagrams.
#[inline]
pub(super) fn settle<H: Handler>(
    worker: &mut Worker<H>,
    completion: Completion,
    flush: impl FnMut(&mut Worker<H>),
) -> Result<Next, Error> {
    let mut completion = completion;
    let socket = completion.socket;
    // By reference: an arrival is large, and is looked at where it is.
    if let Outcome::Received(arrival) = &completion.outcome {
        let echo = worker.deliver(completion.slice.payload_mut(), arrival, socket, flush);
        let to = echo.map(|span| (span, arrival.peer()));
        let slice = completion.slice;
        return Ok(match to {
            Some((span, to)) => Next::Send { slice, socket, span, to },
            None => Next::Receive { slice, socket },
        });
    }
    let Completion { slice, outcome, .. } = completion;
    match outcome {
        Outcome::Sent(span) => worker.counters.replies.add(span.datagrams() as u64),
        Outcome::Failed(e) => worker.receive_failed(e)?,
        Outcome::NotSent(unsent) => worker.not_sent(&unsent),
        Outcome::Returned | Outcome::Received(_) => {}
    }
    Ok(Next::Receive { slice, socket })
}

/// Posts a slice again.
#[inline]
pub(super) fn post<H: Handler, Q: RequestQueue>(
    worker: &Worker<H>,
    requests: &mut [Q],
    next: Next,
) {
    let (slice, socket) = match next {
        Next::Receive { slice, socket } => (slice, socket),
        Next::Send { slice, socket, span, to } => {
            match requests[socket as usize].send(slice, span, &to) {
                Ok(()) => return,
                Err((slice, _)) => {
                    worker.counters.replies_refused.add(span.datagrams() as u64);
                    (slice, socket)
                }
            }
        }
    };
    post_receive(worker, requests, slice, socket);
}

#[inline]
fn post_receive<H: Handler, Q: RequestQueue>(
    worker: &Worker<H>,
    requests: &mut [Q],
    slice: Slice,
    socket: u32,
) {
    // A slice that is one too many (it was a reply's) returns to the pool by being dropped.
    if requests[socket as usize].receive(slice).is_ok() {
        worker.counters.posts.one();
    }
}

/// Sends the replies that the handler left, from slices of the pool.
#[cold]
pub(super) fn flush<H: Handler, Q: RequestQueue>(
    worker: &mut Worker<H>,
    region: &Arc<Region>,
    requests: &mut [Q],
) {
    worker.post_replies(region, |socket, slice, len, to| {
        requests[socket as usize].send(slice, len, to).is_ok()
    });
}

/// Handles every completion of a batch and posts its slices again: for designs whose queues
/// belong to one thread.
#[inline]
pub(super) fn handle<H: Handler, Q: RequestQueue>(
    worker: &mut Worker<H>,
    batch: &mut Batch,
    region: &Arc<Region>,
    requests: &mut [Q],
) -> Result<(), Error> {
    for mut completion in batch.drain() {
        let between = |worker: &mut Worker<H>| flush(worker, region, requests);
        // What most often happens first, and where it lies: an arrival is large to be moved.
        if let Outcome::Received(arrival) = &completion.outcome {
            let socket = completion.socket;
            match worker.deliver(completion.slice.payload_mut(), arrival, socket, between) {
                None => post_receive(worker, requests, completion.slice, socket),
                Some(span) => {
                    let to = arrival.peer();
                    post(
                        worker,
                        requests,
                        Next::Send { slice: completion.slice, socket, span, to },
                    );
                }
            }
        } else {
            let next = settle(worker, completion, between)?;
            post(worker, requests, next);
        }
        if worker.has_replies() {
            flush(worker, region, requests);
        }
    }
    worker.batch_end();
    commit(worker, requests)
}

/// Calls the loop of a thread that has the queues for itself, and stops them afterwards, so that
/// every slice comes back however the loop ended.
pub(super) fn run<Q: CompletionQueue>(
    started: Started<Q, Q::Rq>,
    body: impl FnOnce(&mut Q, &mut [Q::Rq], &Granted) -> Result<(), Error>,
) -> Result<(), Error> {
    let Started { mut completions, mut requests, granted } = started;
    let result = contain(|| body(&mut completions, &mut requests, &granted));
    // What did not come back is counted in the region, and told from there.
    let _ = completions.stop(requests, stop_deadline());
    result.unwrap_or_else(|panic| resume_unwind(panic))
}
