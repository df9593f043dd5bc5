//! `no-op`: one thread keeps requests outstanding that do nothing.
//!
//! As `ring`, but no file, no driver, no memory: a request is taken from the kernel's cache and completed.
//! That is the floor under every other design on a ring; what they cost more is what their I/Os cost. The
//! device is opened all the same, and never touched. It has no use but that.
//!
//! Origin: io_uring, Linux 5.1: IORING_OP_NOP.

use super::engine::{self, Sizes};
use crate::{
    Error,
    design::design,
    device::{
        Handler, Job, Running, Wants,
        io::{self, Operation, Shape},
        native::RingQueue,
    },
};

design! {
    #[derive(Copy, Eq)]
    device::NoOp "no-op", Queue;
    summary: "one thread keeps requests that do nothing outstanding on a ring: the lower bound";
    origin: "io_uring, Linux 5.1: IORING_OP_NOP";
    options {
        /// Requests outstanding.
        depth: u32 = 128, 1..=io::MOST_DEPTH;
        /// Most requests started by one entry into the kernel.
        batch: u32 = 128, 1..=io::MOST_DEPTH;
    }
    provider: |_| "uring";
    availability: |design| RingQueue::availability("design no-op", design.shape(1));
    wants: |_| Wants::Nothing;
}

impl NoOp {
    fn begin<H: Handler>(self, job: Job<H>) -> Result<Running<H>, Error> {
        let sizes = Sizes { depth: self.depth, batch: self.batch, complete_min: 1 };
        engine::start_on_ring(job, "design no-op", sizes, self.shape(self.depth))
    }

    fn shape(&self, depth: u32) -> Shape {
        Shape { depth, operation: Operation::NoOp, polls: None }
    }
}
