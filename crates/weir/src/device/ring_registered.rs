//! `ring-registered`: as `ring`, with a file and memory that the ring knows.
//!
//! The file is put into the ring's table once, and the memory is pinned once. So an I/O neither looks a
//! descriptor up and holds its file, nor finds and pins the pages that it reads into. What is left of its
//! cost is the request itself. It costs memory that stays locked (the limit is `ulimit -l`) and cannot be
//! swapped; on Linux 6.1 taking them back takes a second at the end of a run, on 6.12 no time. It fails, at the
//! start, where more is asked for than may be locked.
//!
//! Origin: io_uring, Linux 5.1: IORING_REGISTER_FILES, IORING_REGISTER_BUFFERS, IORING_OP_READ_FIXED.

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
    /// Options of the design `ring-registered`.
    #[derive(Copy, Eq)]
    pub struct RingRegistered {
        /// Reads outstanding.
        depth: u32 = 128, 1..=native::MOST_DEPTH;
        /// Most reads started by one entry into the kernel.
        batch: u32 = 32, 1..=native::MOST_DEPTH;
        /// Fewest completions that a wait waits for.
        complete_min: u32 = 1, 1..=native::MOST_DEPTH;
    }
}

impl Design for RingRegistered {
    const ABOUT: About = About {
        name: "ring-registered",
        summary: "as ring, with a file and memory that the ring knows",
        origin: "io_uring, Linux 5.1: registered files and buffers",
        contract: Contract::Queue,
    };

    fn provider(&self) -> &'static str {
        "uring"
    }

    fn start<H: Handler>(self, mut job: Job<H>) -> Result<Running<H>, Error> {
        self.check()?;
        let region = job.buffers(self.depth as usize)?;
        let shape = Shape { depth: self.depth, operation: Operation::Registered, polls: None };
        let queue =
            RingQueue::open("design ring-registered", &job.device.descriptor, shape, region)?;
        job.spawn(move |worker| run(worker, queue, &self))?;
        job.run()
    }

    fn availability(&self) -> Result<(), Unavailable> {
        let shape = Shape { depth: 1, operation: Operation::Registered, polls: None };
        RingQueue::availability("design ring-registered", shape)
    }
}

fn run<H: Handler>(
    worker: &mut Worker<H>,
    mut queue: impl Queue,
    options: &RingRegistered,
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
    options: &RingRegistered,
    calls: &Counters,
) -> Result<(), Error> {
    // While there is room for another batch, nothing need be waited for.
    let at_least = if queue.room() > 0 { 0 } else { options.complete_min as usize };
    take(worker, queue, at_least, None, calls)
}
