//! `port`: threads take one completion at a time from a completion port.
//!
//! Receives are posted with a buffer each, far more than there are threads, and whichever thread
//! is free takes the next completion, handles the datagram and posts the buffer again. At most
//! as many threads run as there are cores, and the last one to wait is woken first, so a thread
//! that blocks is made up for and few are used while few are needed. It costs a trip through the
//! port for every datagram. It fails to scale where each datagram wakes a thread: a second thread
//! waits in the port whenever a first one handles, and the two take turns.
//!
//! Where the kernel wakes every receive that is armed on a socket, only as many are given to it as come
//! at once (or as `armed` says), the others wait in a list, and posts are submitted `submit-after` at a time. The
//! shape of the original, everything armed and a call for each post, is `--armed 5000
//! --submit-after 1`.
//!
//! On io_uring the thread that submitted a receive copies what came for it: the one that leads,
//! which as a rule takes next.
//!
//! Origin: the IOCP servers of Holgate's study (2011), with 1 and with 8 threads.

use super::engine::{self, Numbers, PortServer};
use crate::{
    Error,
    design::design,
    options::Named,
    port::{self, Completion, Native, Provider as _, Shape, Taken, Worker as _},
    udp::{Handler, Job, Running, Worker},
};

design! {
    udp::Port "port", Port;
    summary: "threads take one completion at a time from a completion port";
    origin: "IOCP with 1 and 8 threads, Holgate 2011";
    options {
        /// Threads that take from the port.
        threads: u32 = 8, 1..=256;
        /// Receives posted at a time.
        outstanding: u32 = 5000, 1..=1_000_000;
        /// Receives given to the kernel at a time, of each socket; 0 for as many as come at once, at most 64.
        armed: u32 = Shape::BEST.armed, 0..=1_000_000;
        /// Posts that wait before a take that need not enter the kernel submits them.
        submit_after: u32 = Shape::BEST.submit_after, 1..=65_536;
        /// What is done when its call returns is taken by its thread without a packet.
        skip_ready: bool = false, Named(&["true", "false"]);
        /// Most threads that run at a time; 0 for as many as there are cores.
        concurrency: u32 = 0, 0..=256;
    }
    provider: |_| Native::NAME;
    availability: |design| engine::availability(design.shape());
    parks_threads: |design| design.threads > 1;
}

impl Port {
    fn shape(&self) -> Shape {
        let Self { armed, submit_after, skip_ready, .. } = *self;
        Shape { armed, submit_after, skip_ready, ..Shape::BEST }
    }

    fn begin<H: Handler>(self, mut job: Job<H>) -> Result<Running<H>, Error> {
        let Self { threads, outstanding, concurrency, .. } = self;
        let numbers = Numbers { threads, outstanding, concurrency };
        let shared = engine::open(&mut job, &Native { shape: self.shape() }, numbers)?;
        engine::spawn(&mut job, threads, shared, run)?;
        job.run()
    }
}

impl Port {
    /// As the original does it: 5000 receives armed, and a call for each that is posted again.
    pub fn original() -> Self {
        let Shape { armed, submit_after, .. } = Shape::original(Self::default().outstanding);
        Self { armed, submit_after, ..Self::default() }
    }
}

fn run<H: Handler, P: port::Port>(
    worker: &mut Worker<H>,
    shared: &PortServer<P>,
) -> Result<(), Error> {
    let mut taker = engine::join(worker, shared)?;
    let mut taken = Taken::new(1);
    while engine::take(worker, &mut taker, &mut taken)? {
        for completion in taken.drain() {
            handle(worker, shared, &mut taker, completion)?;
        }
    }
    Ok(())
}

/// Handles one completion and posts its slice again.
#[inline]
fn handle<H: Handler, P: port::Port>(
    worker: &mut Worker<H>,
    shared: &PortServer<P>,
    taker: &mut P::Worker<'_>,
    completion: Completion,
) -> Result<(), Error> {
    let settled = engine::settle(worker, shared, taker, completion)?;
    // A slice that is one too many (it was a reply's) returns to the pool by being dropped.
    if let Some((socket, slice)) = settled.again
        && taker.receive(socket, slice).is_ok()
    {
        worker.counters.posts.one();
    }
    worker.counters.dequeued(settled.received);
    worker.batch_end();
    Ok(())
}
