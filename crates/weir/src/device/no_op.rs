//! `no-op`: one thread keeps requests outstanding that do nothing.
//!
//! As `ring`, but no file, no driver, no memory: a request is taken from the kernel's cache and completed.
//! That is the floor under every other design on a ring; what they cost more is what their I/Os cost. The
//! device is opened all the same, and never touched. It has no use but that.
//!
//! Origin: io_uring, Linux 5.1: IORING_OP_NOP.

use super::{
    About, Contract, Design, Handler, Job, Running, Wants, Worker,
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
    /// Options of the design `no-op`.
    #[derive(Copy, Eq)]
    pub struct NoOp {
        /// Requests outstanding.
        depth: u32 = 128, 1..=native::MOST_DEPTH;
        /// Most requests started by one entry into the kernel.
        batch: u32 = 128, 1..=native::MOST_DEPTH;
    }
}

impl Design for NoOp {
    const ABOUT: About = About {
        name: "no-op",
        summary: "one thread keeps requests outstanding on a ring that do nothing: the floor",
        origin: "io_uring, Linux 5.1: IORING_OP_NOP",
        contract: Contract::Queue,
    };

    fn provider(&self) -> &'static str {
        "uring"
    }

    fn wants(&self) -> Wants {
        Wants::Nothing
    }

    fn start<H: Handler>(self, mut job: Job<H>) -> Result<Running<H>, Error> {
        self.check()?;
        let region = job.buffers(self.depth as usize)?;
        let shape = Shape { depth: self.depth, operation: Operation::NoOp, polls: None };
        let queue = RingQueue::open("design no-op", &job.device.descriptor, shape, region)?;
        job.spawn(move |worker| run(worker, queue, &self))?;
        job.run()
    }

    fn availability(&self) -> Result<(), Unavailable> {
        let shape = Shape { depth: 1, operation: Operation::NoOp, polls: None };
        RingQueue::availability("design no-op", shape)
    }
}

fn run<H: Handler>(
    worker: &mut Worker<H>,
    mut queue: impl Queue,
    options: &NoOp,
) -> Result<(), Error> {
    let calls = Arc::clone(&worker.calls);
    worker.expect_nothing();
    begin(worker, &mut queue)?;
    while fill(worker, &mut queue, options.batch as usize) {
        handle(worker, &mut queue, &calls)?;
    }
    drain(worker, &mut queue, &calls)
}

#[inline]
fn handle<H: Handler>(
    worker: &mut Worker<H>,
    queue: &mut impl Queue,
    calls: &Counters,
) -> Result<(), Error> {
    // While there is room for another batch, nothing need be waited for.
    let at_least = usize::from(queue.room() == 0);
    take(worker, queue, at_least, None, calls)
}
