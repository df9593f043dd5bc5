//! What the designs on a completion port share: opening the port, starting its threads, what
//! becomes of a completion, and giving everything back.

use super::{Handler, Job, Slices, Worker};
use crate::{
    Error, Unavailable,
    memory::{Region, Slice},
    port::{
        Completion, Key, Native, Needs, Outcome, Peer, Port, Provider, SocketId, Taken,
        Worker as Taker,
    },
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// How long a stop waits for the kernel to give slices back.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// The numbers that both designs let one choose.
#[derive(Debug, Clone, Copy)]
pub(super) struct Numbers {
    pub(super) threads: u32,
    pub(super) outstanding: u32,
    pub(super) concurrency: u32,
}

/// A port with its sockets, and memory. The threads share it, and the last to leave stops it.
pub(super) struct Shared<P> {
    port: P,
    region: Arc<Region>,
    sockets: Vec<SocketId>,
    outstanding: u32,
}

/// Whether a port can be had here: small needs, since what is asked is whether it runs at all.
pub(super) fn availability() -> Result<(), Unavailable> {
    let needs = Needs {
        payload: 1,
        sockets: 1,
        receives: 1,
        sends: 0,
        packets: 0,
        threads: 1,
        concurrency: 1,
    };
    Native::default().layout(&needs).map(drop)
}

/// Makes the region as the provider wants it cut, opens the port, and associates the sockets.
pub(super) fn open<H: Handler, P: Provider>(
    job: &mut Job<H>,
    provider: &P,
    numbers: Numbers,
) -> Result<Shared<P::Port>, Error> {
    let Numbers { threads, outstanding, concurrency } = numbers;
    let sends = job.limits.replies_outstanding;
    let needs = Needs {
        payload: job.payload_bytes,
        sockets: job.endpoints.len() as u32,
        receives: outstanding,
        sends,
        packets: 0,
        threads,
        concurrency,
    };
    let layout = provider.layout(&needs)?;
    let region = Region::new(layout, outstanding.saturating_add(sends), job.region)?;
    let port = provider.open(&needs)?;
    let sockets = job.bind()?;
    let associate = |(number, socket)| port.associate(socket, Key(number as u64));
    let sockets = sockets.into_iter().enumerate().map(associate).collect::<Result<Vec<_>, _>>()?;
    job.state_memory(&region);
    for (name, value) in port.granted() {
        job.state(name, value);
    }
    Ok(Shared { port, region, sockets, outstanding })
}

/// Starts the threads. Each calls `run`, and the last to leave stops the port.
pub(super) fn spawn<H: Handler, P: Port>(
    job: &mut Job<H>,
    threads: u32,
    shared: Shared<P>,
    run: impl Fn(&mut Worker<H>, &Shared<P>) -> Result<(), Error> + Clone + Send + 'static,
) -> Result<(), Error> {
    let closer = shared.port.closer();
    job.on_stop(closer.clone());
    // One share for each thread and none for this one, so that the last thread finds itself last.
    let shared = Arc::new(shared);
    let shares: Vec<_> = (1..threads).map(|_| Arc::clone(&shared)).collect();
    for shared in shares.into_iter().chain([shared]) {
        let run = run.clone();
        let spawned = job.spawn(move |worker| {
            let result = run(worker, &shared);
            if result.is_err() {
                shared.port.close(); // the others must not wait for this thread
            }
            if let Some(shared) = Arc::into_inner(shared) {
                stop(worker, shared);
            }
            result
        });
        if spawned.is_err() {
            closer.wake();
            return spawned;
        }
    }
    Ok(())
}

/// Takes a place among the threads that take. The first thread posts the first receives.
pub(super) fn join<'p, H: Handler, P: Port>(
    worker: &mut Worker<H>,
    shared: &'p Shared<P>,
) -> Result<P::Worker<'p>, Error> {
    let mut taker = shared.port.worker()?;
    if worker.index == 0 {
        post_all(worker, shared, &mut taker)?;
    }
    worker.ready(None);
    Ok(taker)
}

/// Takes what has finished. False: the port was closed.
#[inline]
pub(super) fn take<H: Handler>(
    worker: &Worker<H>,
    taker: &mut impl Taker,
    taken: &mut Taken,
) -> Result<bool, Error> {
    let took = taker.take(taken, None, &worker.counters);
    Ok(took.map_err(|e| Error::io("taking completions", e))?.is_some())
}

/// Starts the first receives, shared among the sockets.
fn post_all<H: Handler, P: Port>(
    worker: &Worker<H>,
    shared: &Shared<P>,
    taker: &mut P::Worker<'_>,
) -> Result<(), Error> {
    let sockets = shared.sockets.iter().cycle();
    for (&socket, _) in sockets.zip(0..shared.outstanding) {
        let Some(slice) = shared.region.take() else { break };
        if taker.receive(socket, slice).is_err() {
            break; // closed already
        }
        worker.counters.posts.one();
    }
    taker.commit(&worker.counters).map_err(|e| Error::io("posting receives", e))
}

/// What is left of a completion once it is dealt with.
pub(super) struct Settled {
    /// Whether it was a datagram.
    pub(super) received: bool,
    /// The slice to be posted again, and for which socket.
    pub(super) again: Option<(SocketId, Slice)>,
}

/// Gives a datagram to the handler, or counts what else completed.
#[inline]
pub(super) fn settle<H: Handler, P: Port>(
    worker: &mut Worker<H>,
    shared: &Shared<P>,
    taker: &mut P::Worker<'_>,
    completion: Completion,
) -> Result<Settled, Error> {
    let Completion::Operation { mut slice, socket, key, outcome, .. } = completion else {
        return Ok(Settled { received: false, again: None }); // this server posts no packets
    };
    let mut received = false;
    match outcome {
        Outcome::Received(arrival) => {
            received = true;
            let echo = worker.deliver(slice.payload_mut(), &arrival, key.0 as u32);
            if worker.has_replies() {
                flush(worker, shared, taker, socket);
            }
            if echo {
                let to = Peer { address: arrival.from, local: arrival.local };
                match taker.send(socket, slice, arrival.len, &to) {
                    Ok(_) => return Ok(Settled { received, again: None }),
                    Err((back, _)) => {
                        worker.counters.replies_refused.one();
                        slice = back;
                    }
                }
            }
        }
        Outcome::Sent(_) => worker.counters.replies.one(),
        Outcome::NotSent(_) => worker.counters.send_errors.one(),
        Outcome::Failed(e) => worker.receive_failed(e)?,
        Outcome::Returned => {}
    }
    Ok(Settled { received, again: Some((socket, slice)) })
}

/// Sends the replies that the handler left, from slices of the pool.
#[cold]
fn flush<H: Handler, P: Port>(
    worker: &mut Worker<H>,
    shared: &Shared<P>,
    taker: &mut P::Worker<'_>,
    socket: SocketId,
) {
    let mut refused = 0;
    worker.post_replies(|_, bytes, to| {
        let Some(mut slice) = shared.region.take() else {
            refused += 1;
            return;
        };
        slice.payload_mut()[..bytes.len()].copy_from_slice(bytes);
        if taker.send(socket, slice, bytes.len(), to).is_err() {
            refused += 1;
        }
    });
    worker.counters.replies_refused.add(refused);
}

/// Stops the port and accounts for every slice.
fn stop<H: Handler, P: Port>(worker: &Worker<H>, shared: Shared<P>) {
    let Shared { port, region, .. } = shared;
    let stopped = port.stop(Instant::now() + STOP_TIMEOUT);
    worker.account(Slices {
        made: region.count(),
        returned: region.in_pool(),
        missing: stopped.missing,
    });
}
