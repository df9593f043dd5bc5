//! `sync-empty`: one thread asks for nothing, again and again.
//!
//! A read of no bytes is answered before any driver is asked: what is left is the entry into the kernel,
//! the look for the file, and the way back. So its distance from `sync` is what the driver costs, and its
//! distance from `no-op` what entering costs. It has no use but that. It fails where a driver wants to be
//! asked for nothing, too: then it is the driver that is measured.
//!
//! Origin: read(2) with a length of 0; the 0-byte ReadFile of the original (OSR), which never reached
//! the driver.

use super::{
    About, Contract, Design, Handler, Job, Running, Worker,
    native::{self, Reader},
    queue::Issue,
};
use crate::{
    Error, Unavailable,
    counters::Counters,
    options::{Options as _, options},
};
use std::sync::Arc;

options! {
    /// Options of the design `sync-empty`: it has none.
    #[derive(Copy, Eq)]
    pub struct SynchronousEmpty {}
}

impl Design for SynchronousEmpty {
    const ABOUT: About = About {
        name: "sync-empty",
        summary: "one thread reads 0 bytes again and again, so no driver is asked",
        origin: "read(2); the 0-byte ReadFile of the original",
        contract: Contract::Read,
    };

    fn provider(&self) -> &'static str {
        native::PROVIDER
    }

    fn start<H: Handler>(self, mut job: Job<H>) -> Result<Running<H>, Error> {
        self.check()?;
        job.device.takes_empty_reads("design sync-empty")?;
        let reader = Reader::new(&job.device.descriptor)?;
        job.spawn(move |worker| run(worker, &reader))?;
        job.run()
    }

    fn availability(&self) -> Result<(), Unavailable> {
        native::availability()
    }
}

fn run<H: Handler>(worker: &mut Worker<H>, reader: &Reader) -> Result<(), Error> {
    let calls = Arc::clone(&worker.calls);
    worker.expect_nothing();
    worker.ready(Some(reader.waker()));
    while let Some(issue) = worker.issue() {
        handle(worker, reader, &issue, &calls);
    }
    Ok(())
}

#[inline]
fn handle<H: Handler>(worker: &mut Worker<H>, reader: &Reader, issue: &Issue, calls: &Counters) {
    let outcome = reader.read(&mut [], issue.at, calls);
    worker.finish(issue, outcome, &[]);
}
