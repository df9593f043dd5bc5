//! `ring-polled`: as `ring`, and a thread of the kernel looks for what is to be started.
//!
//! While that thread is awake the program never enters the kernel: it writes into one queue and reads from
//! the other. It costs a second core, which is busy as long as there is something to do and 10 ms longer;
//! its time counts as this process's. It runs on any core, or, where the program keeps to several of more, on the
//! second of those. After so many looks that found nothing the program waits in the
//! kernel after all. It fails where there is no second core, since then the two wait for each other's
//! turn, and where an I/O costs less than the way of its queue entry from one core to the other.
//!
//! Origin: io_uring, Linux 5.1: IORING_SETUP_SQPOLL; without privilege since 5.13.

use super::{
    About, Contract, Design, Handler, Job, Running, Worker,
    native::{self, Operation, RingQueue, Shape},
    queue::{Queue, begin, drain, fill, take},
};
use crate::{
    Error, Unavailable,
    counters::Counters,
    options::{Named, Options as _, options},
};
use std::sync::Arc;

options! {
    /// Options of the design `ring-polled`.
    #[derive(Copy, Eq)]
    pub struct RingPolled {
        /// Reads outstanding.
        depth: u32 = 128, 1..=native::MOST_DEPTH;
        /// Most reads started at a time.
        batch: u32 = 32, 1..=native::MOST_DEPTH;
        /// Looks that find nothing before the program waits in the kernel.
        polls: u32 = 10_000, 1..=1_000_000_000;
        /// Whether file and memory are known to the ring, as in ring-registered.
        registered: bool = true, Named(&["true", "false"]);
    }
}

impl Design for RingPolled {
    const ABOUT: About = About {
        name: "ring-polled",
        summary: "a thread of the kernel starts the reads, so that the program enters it only to wait",
        origin: "io_uring, Linux 5.1: SQPOLL",
        contract: Contract::Queue,
    };

    fn provider(&self) -> &'static str {
        "uring"
    }

    fn start<H: Handler>(self, mut job: Job<H>) -> Result<Running<H>, Error> {
        self.check()?;
        let region = job.buffers(self.depth as usize)?;
        let queue = RingQueue::open(
            "design ring-polled",
            &job.device.descriptor,
            self.shape(self.depth),
            region,
        )?;
        job.spawn(move |worker| run(worker, queue, &self))?;
        job.run()
    }

    fn availability(&self) -> Result<(), Unavailable> {
        RingQueue::availability("design ring-polled", self.shape(1))
    }
}

impl RingPolled {
    fn shape(&self, depth: u32) -> Shape {
        let operation = if self.registered { Operation::Registered } else { Operation::Plain };
        Shape { depth, operation, polls: Some(self.polls) }
    }
}

fn run<H: Handler>(
    worker: &mut Worker<H>,
    mut queue: impl Queue,
    options: &RingPolled,
) -> Result<(), Error> {
    let calls = Arc::clone(&worker.calls);
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
