//! What the designs on a completion port share: opening the port, what becomes of a completion,
//! and giving everything back.

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
    pub(super) per_take: u32,
}

/// A port with its sockets, and memory. The threads share it, and the last to leave stops it.
struct Shared<P> {
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

/// Opens the port and starts its threads.
pub(super) fn start<H: Handler, P: Provider>(
    job: &mut Job<H>,
    provider: &P,
    numbers: Numbers,
) -> Result<(), Error> {
    let Numbers { threads, outstanding, concurrency, per_take } = numbers;
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
    let memory = region.obtained();
    job.state("registered-bytes", memory.bytes);
    job.state("page-bytes", memory.page_bytes);
    for (name, value) in port.granted() {
        job.state(name, value);
    }
    let closer = port.closer();
    job.on_stop(closer.clone());
    // One share for each thread and none for this one, so that the last thread finds itself last.
    let shared = Arc::new(Shared { port, region, sockets, outstanding });
    let mut shares = vec![shared; threads as usize];
    for thread in 0..threads as usize {
        let shared = shares.pop().expect("as many as threads");
        let spawned = job.spawn(threads as usize, move |worker| {
            let result = run(worker, &shared, thread == 0, per_take as usize);
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

fn run<H: Handler, P: Port>(
    worker: &mut Worker<H>,
    shared: &Shared<P>,
    first: bool,
    per_take: usize,
) -> Result<(), Error> {
    let mut taker = shared.port.worker()?;
    if first {
        post_all(worker, shared, &mut taker)?;
    }
    worker.ready(None);
    let mut taken = Taken::new(per_take);
    let mut again = Again { socket: shared.sockets[0], slices: Vec::with_capacity(per_take) };
    let took = |e| Error::io("taking completions", e);
    while taker.take(&mut taken, None, &worker.counters).map_err(took)?.is_some() {
        handle(worker, shared, &mut taker, &mut taken, &mut again)?;
    }
    Ok(())
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

/// Slices to be posted again together: all of one socket.
struct Again {
    socket: SocketId,
    slices: Vec<Slice>,
}

impl Again {
    /// Adds a slice. Slices of another socket are posted first.
    #[inline]
    fn add<H: Handler>(
        &mut self,
        worker: &Worker<H>,
        taker: &mut impl Taker,
        socket: SocketId,
        slice: Slice,
    ) {
        if socket != self.socket {
            self.post(worker, taker);
            self.socket = socket;
        }
        self.slices.push(slice);
    }

    /// Posts them. A slice that is one too many (it was a reply's), or comes after the end,
    /// returns to the pool by being dropped.
    #[inline]
    fn post<H: Handler>(&mut self, worker: &Worker<H>, taker: &mut impl Taker) {
        let before = self.slices.len();
        let _ = taker.receive_all(self.socket, &mut self.slices);
        worker.counters.posts.add((before - self.slices.len()) as u64);
        self.slices.clear();
    }
}

/// Handles what one take brought, and posts the slices again.
#[inline]
fn handle<H: Handler, P: Port>(
    worker: &mut Worker<H>,
    shared: &Shared<P>,
    taker: &mut P::Worker<'_>,
    taken: &mut Taken,
    again: &mut Again,
) -> Result<(), Error> {
    let mut received = 0;
    for completion in taken.drain() {
        let Completion::Operation { mut slice, socket, key, outcome, .. } = completion else {
            continue; // this server posts no packets
        };
        match outcome {
            Outcome::Received(arrival) => {
                received += 1;
                let echo = worker.deliver(slice.payload_mut(), &arrival, key.0 as u32);
                if worker.has_replies() {
                    flush(worker, shared, taker, socket);
                }
                if echo {
                    let to = Peer { address: arrival.from, local: arrival.local };
                    match taker.send(socket, slice, arrival.len, &to) {
                        Ok(_) => continue,
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
        again.add(worker, taker, socket, slice);
    }
    again.post(worker, taker);
    worker.counters.dequeued(received);
    worker.batch_end();
    Ok(())
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
