//! `ring`: one thread keeps reads outstanding on a ring.
//!
//! Reads are written into a queue in memory, one entry into the kernel starts a batch of them and waits
//! for the first to be over, and what is over is read from a second queue. So an entry is shared by a
//! batch; what each I/O still costs is a request in the kernel: taken from a cache, filled, the file
//! looked up and held, and a completion written. It pays where I/Os take time, since a device gets `depth`
//! of them at once from one thread. It fails to pay where a device answers at once and its driver does
//! less than the request costs: then it saves entries, and spends them on requests.
//!
//! Origin: io_uring, Linux 5.1; IORING_OP_READ, 5.6.

use super::{
    About, Contract, Design, Handler, Job, Running, Worker,
    native::{self, Operation, RingQueue, Shape},
    queue::{Queue, begin, drain, fill, take},
};
use crate::{
    Error, Unavailable,
    counters::Counters,
    options::{Options as _, options},
};
use std::sync::Arc;

options! {
    /// Options of the design `ring`.
    #[derive(Copy, Eq)]
    pub struct Ring {
        /// Reads outstanding.
        depth: u32 = 128, 1..=native::MOST_DEPTH;
        /// Most reads started by one entry into the kernel.
        batch: u32 = 32, 1..=native::MOST_DEPTH;
        /// Fewest completions that a wait waits for.
        complete_min: u32 = 1, 1..=native::MOST_DEPTH;
    }
}

impl Design for Ring {
    const ABOUT: About = About {
        name: "ring",
        summary: "one thread keeps reads outstanding on a ring, and starts a batch by one entry",
        origin: "io_uring, Linux 5.1",
        contract: Contract::Queue,
    };

    fn provider(&self) -> &'static str {
        "uring"
    }

    fn start<H: Handler>(self, mut job: Job<H>) -> Result<Running<H>, Error> {
        self.check()?;
        let region = job.buffers(self.depth as usize)?;
        let shape = Shape { depth: self.depth, operation: Operation::Plain, polls: None };
        let queue = RingQueue::open("design ring", &job.device.descriptor, shape, region)?;
        job.spawn(move |worker| run(worker, queue, &self))?;
        job.run()
    }

    fn availability(&self) -> Result<(), Unavailable> {
        let shape = Shape { depth: 1, operation: Operation::Plain, polls: None };
        RingQueue::availability("design ring", shape)
    }
}

fn run<H: Handler>(
    worker: &mut Worker<H>,
    mut queue: impl Queue,
    options: &Ring,
) -> Result<(), Error> {
    let calls = Arc::clone(&worker.calls);
    begin(worker, &mut queue)?;
    while fill(worker, &mut queue, options.batch as usize) {
        handle(worker, &mut queue, options, &calls)?;
    }
    drain(worker, &mut queue, &calls)
}

#[inline]
fn handle<H: Handler>(
    worker: &mut Worker<H>,
    queue: &mut impl Queue,
    options: &Ring,
    calls: &Counters,
) -> Result<(), Error> {
    // While there is room for another batch, nothing need be waited for.
    let at_least = if queue.room() > 0 { 0 } else { options.complete_min as usize };
    take(worker, queue, at_least, None, calls)
}
