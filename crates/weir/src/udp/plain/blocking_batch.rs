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

use super::engine::{self, Buffers};
use crate::{
    Error,
    design::design,
    gather::Gather,
    socket::{DatagramSocket, Mode},
    udp::{Handler, Job, Running, Worker},
};

design! {
    udp::BlockingBatch "blocking-batch", Socket;
    summary: "each thread receives up to a batch of datagrams with one call";
    origin: "recvmmsg(2), Linux 2.6.33; as GQCSEx in Holgate 2012";
    options {
        /// Threads that receive on each address.
        threads: u32 = 1, 1..=256;
        /// Most datagrams received by one call.
        batch: u32 = 32, 1..=1024;
        /// How long datagrams may gather before a wait ends, and how many are enough (can be changed while it runs).
        gather: Gather = Gather::NONE, Gather::LIMITS;
    }
    provider: |_| crate::socket::PROVIDER;
    availability: |_| Ok(());
}

impl BlockingBatch {
    fn begin<H: Handler>(self, job: Job<H>) -> Result<Running<H>, Error> {
        job.state("one-call-per-batch", crate::socket::BATCHES_IN_ONE_CALL);
        let buffers = |region: &_| Buffers::new(region, self.batch as usize);
        engine::start_blocking(job, self.threads, self.batch, self.gather, buffers, receive)
    }
}

/// Receives a batch.
fn receive<H: Handler>(
    worker: &mut Worker<H>,
    socket: &DatagramSocket,
    number: u32,
    buffers: &mut Buffers,
    mode: Mode,
) -> Result<usize, Error> {
    match buffers.receive(worker, socket, mode) {
        Ok(0) => Ok(0),
        Ok(filled) => engine::handle_batch(worker, socket, number, buffers, filled),
        Err(e) => worker.receive_failed(e).map(|()| 0),
    }
}
