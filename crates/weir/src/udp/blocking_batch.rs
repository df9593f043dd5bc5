//! `blocking-batch`: each thread receives what is there, many datagrams in one call.
//!
//! As `blocking`, but a call brings up to `batch` datagrams, so the entry into the kernel
//! is shared by all that came meanwhile. When datagrams come slowly a batch is one, and the
//! design is `blocking` with a little more to set up. It fails where the kernel's own work
//! for each datagram outweighs the entry, and its buffers are touched in turn, so a large
//! batch leaves the cache.
//!
//! Origin: recvmmsg(2), Linux 2.6.33; the batch of the study's GetQueuedCompletionStatusEx,
//! for calls that wait.

use super::{About, Contract, Design, Handler, Job, Running, Worker};
use crate::{
    Error, Unavailable,
    memory::Slice,
    options::{Options as _, options},
    socket::{DatagramSocket, Headers, Mode, Peer},
    wake::Waker,
};

options! {
    /// Options of the design `blocking-batch`.
    pub struct BlockingBatch {
        /// Threads that receive on each address.
        threads: u32 = 1, 1..=256;
        /// Most datagrams received by one call.
        batch: u32 = 64, 1..=1024;
    }
}

impl Design for BlockingBatch {
    const ABOUT: About = About {
        name: "blocking-batch",
        summary: "each thread receives up to a batch of datagrams with one call",
        origin: "recvmmsg(2), Linux 2.6.33; as GQCSEx in Holgate 2011",
        contract: Contract::Socket,
    };

    fn start<H: Handler>(self, mut job: Job<H>) -> Result<Running<H>, Error> {
        self.check()?;
        let sockets = job.bind()?;
        job.state("one-call-per-batch", crate::socket::BATCHES_IN_ONE_CALL);
        let threads = self.threads as usize * sockets.len();
        let region = job.buffers(threads * self.batch as usize)?;
        for thread in 0..threads {
            let number = thread % sockets.len();
            let socket = sockets[number].clone();
            let payloads = (0..self.batch).filter_map(|_| region.take()).collect();
            job.spawn(move |worker| run(worker, &socket, number as u32, payloads))?;
        }
        job.run()
    }

    fn provider(&self) -> &'static str {
        crate::socket::PROVIDER
    }

    fn availability(&self) -> Result<(), Unavailable> {
        Ok(())
    }
}

/// What a thread receives into, and what it sends back.
struct Buffers {
    headers: Headers,
    /// One buffer for each datagram of a batch.
    payloads: Vec<Slice>,
    /// Which of them go back to their source, and how much of each.
    echoes: Vec<(usize, usize, Peer)>,
}

fn run<H: Handler>(
    worker: &mut Worker<H>,
    socket: &DatagramSocket,
    number: u32,
    payloads: Vec<Slice>,
) -> Result<(), Error> {
    let batch = payloads.len();
    let mut buffers = Buffers {
        headers: Headers::new(batch),
        payloads,
        echoes: Vec::with_capacity(batch),
    };
    let ending = socket.clone();
    worker.ready(Some(Waker::new(move || ending.end_receiving())));
    while !worker.stopping() {
        worker.counters.waits.one();
        let Buffers { headers, payloads, .. } = &mut buffers;
        match socket.receive_many(headers, payloads, Mode::Wait, &worker.counters) {
            Ok(0) => {}
            Ok(received) => {
                worker.counters.dequeued(received);
                handle(worker, socket, number, &mut buffers, received);
            }
            Err(e) => worker.receive_failed(e)?,
        }
    }
    Ok(())
}

#[inline]
fn handle<H: Handler>(
    worker: &mut Worker<H>,
    socket: &DatagramSocket,
    number: u32,
    buffers: &mut Buffers,
    received: usize,
) {
    let Buffers { headers, payloads, echoes } = buffers;
    for (i, payload) in payloads.iter_mut().enumerate().take(received) {
        let arrival = headers.arrival(i);
        if worker.deliver(payload.payload_mut(), &arrival, number) {
            echoes.push((i, arrival.len, arrival.peer()));
        }
        if worker.has_replies() {
            worker.flush(|bytes, to, counters| socket.send(bytes, to, counters));
        }
    }
    worker.batch_end();
    if !echoes.is_empty() {
        reply(worker, socket, buffers);
    }
}

/// Sends the echoes of a batch, with as few calls as the system takes.
fn reply<H: Handler>(worker: &mut Worker<H>, socket: &DatagramSocket, buffers: &mut Buffers) {
    let Buffers { headers, payloads, echoes } = buffers;
    let mut next = 0;
    while next < echoes.len() {
        let datagram = |i: usize| {
            let (payload, len, to) = echoes[next + i];
            (&payloads[payload].payload()[..len], to)
        };
        match socket.send_many(headers, echoes.len() - next, datagram, &worker.counters) {
            Ok(sent) => {
                worker.counters.replies.add(sent as u64);
                next += sent;
            }
            Err(e) => {
                // The first one was not taken: count it, and go on with those behind it.
                worker.sent(Err(e));
                next += 1;
            }
        }
    }
    echoes.clear();
}
