//! `uring-cmd`: one thread keeps control calls outstanding on a ring.
//!
//! The asynchronous form of `control`: a command goes through the ring to the driver, which may complete it at
//! once or later. It costs what `ring` costs but for the read: a request taken from a cache, the file looked
//! up and held, a completion written. It pays where drivers offer more than reads and writes (disks pass
//! their own commands like that) and several are to be under way. It fails to pay where a call is over at
//! once: then it saves entries, and spends them on requests.
//!
//! As `control`, it runs on weir's own nothing device only.
//!
//! Origin: io_uring, Linux 5.19: IORING_OP_URING_CMD.

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
    /// Options of the design `uring-cmd`.
    #[derive(Copy, Eq)]
    pub struct UringCmd {
        /// Control calls outstanding.
        depth: u32 = 128, 1..=native::MOST_DEPTH;
        /// Most of them started by one entry into the kernel.
        batch: u32 = 32, 1..=native::MOST_DEPTH;
        /// Fewest completions that a wait waits for.
        complete_min: u32 = 1, 1..=native::MOST_DEPTH;
    }
}

impl Design for UringCmd {
    const ABOUT: About = About {
        name: "uring-cmd",
        summary: "one thread keeps control calls outstanding on a ring",
        origin: "io_uring, Linux 5.19: IORING_OP_URING_CMD",
        contract: Contract::Queue,
    };

    fn provider(&self) -> &'static str {
        "uring"
    }

    fn wants(&self) -> Wants {
        Wants::Calls
    }

    fn start<H: Handler>(self, mut job: Job<H>) -> Result<Running<H>, Error> {
        self.check()?;
        job.device.takes_control_calls("uring-cmd")?;
        let region = job.buffers(self.depth as usize)?;
        let shape = Shape { depth: self.depth, operation: Operation::Command, polls: None };
        let queue = RingQueue::open("design uring-cmd", &job.device.descriptor, shape, region)?;
        job.spawn(move |worker| run(worker, queue, &self))?;
        job.run()
    }

    fn availability(&self) -> Result<(), Unavailable> {
        let shape = Shape { depth: 1, operation: Operation::Command, polls: None };
        RingQueue::availability("design uring-cmd", shape)
    }
}

fn run<H: Handler>(
    worker: &mut Worker<H>,
    mut queue: impl Queue,
    options: &UringCmd,
) -> Result<(), Error> {
    let calls = Arc::clone(&worker.calls);
    worker.expect_nothing();
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
    options: &UringCmd,
    calls: &Counters,
) -> Result<(), Error> {
    // While there is room for another batch, nothing need be waited for.
    let at_least = if queue.room() > 0 { 0 } else { options.complete_min as usize };
    take(worker, queue, at_least, None, calls)
}
