//! `sync`: one thread reads, and reads again.
//!
//! The plainest way, and the one to beat: a call enters the kernel, finds the file by its descriptor,
//! asks its driver, and comes back with the answer. Nothing is allocated, nothing queued, nobody woken.
//! It costs one entry for each I/O. It fails where an I/O takes time: the thread sleeps until it is over,
//! so a device that could do many at a time does one.
//!
//! What may keep a read waiting (a pipe, an eventfd) is asked not to: where nothing is there yet, the
//! thread waits for it with poll(2), so that a stop can end the wait.
//!
//! Origin: read(2). The original is one thread with ReadFile on a driver that completes every read with
//! nothing (OSR).

use super::{
    About, Contract, Design, Handler, Job, Running, Worker,
    native::{self, Plain},
    queue::Issue,
};
use crate::{
    Error, Unavailable,
    counters::Counters,
    memory::Slice,
    options::{Options as _, options},
};
use std::sync::Arc;

options! {
    /// Options of the design `sync`: it has none.
    #[derive(Copy, Eq)]
    pub struct Synchronous {}
}

impl Design for Synchronous {
    const ABOUT: About = About {
        name: "sync",
        summary: "one thread reads, and reads again when that is over",
        origin: "read(2); the synchronous ReadFile of the original",
        contract: Contract::Read,
    };

    fn provider(&self) -> &'static str {
        native::PROVIDER
    }

    fn start<H: Handler>(self, mut job: Job<H>) -> Result<Running<H>, Error> {
        self.check()?;
        let plain = Plain::new(&job.device.descriptor)?;
        let buffer = job.buffers(1)?.take().expect("just made");
        job.spawn(move |worker| run(worker, &plain, buffer))?;
        job.run()
    }

    fn availability(&self) -> Result<(), Unavailable> {
        native::availability()
    }
}

fn run<H: Handler>(worker: &mut Worker<H>, plain: &Plain, mut buffer: Slice) -> Result<(), Error> {
    let calls = Arc::clone(&worker.calls);
    worker.ready(Some(plain.waker()));
    while let Some(issue) = worker.issue() {
        handle(worker, plain, &issue, buffer.payload_mut(), &calls);
    }
    Ok(())
}

#[inline]
fn handle<H: Handler>(
    worker: &mut Worker<H>,
    plain: &Plain,
    issue: &Issue,
    buffer: &mut [u8],
    calls: &Counters,
) {
    let outcome = plain.issue(buffer, issue.at, calls);
    worker.finish(issue, outcome, buffer);
}
