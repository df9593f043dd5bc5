//! `sync-empty`: one thread asks for nothing, again and again.
//!
//! A read of no bytes is answered before any driver is asked: what is left is the entry into the kernel,
//! the look for the file, and the way back. So its distance from `sync` is what the driver costs, and its
//! distance from `no-op` what entering costs. It has no use but that. It fails where a driver wants to be
//! asked for nothing, too: then it is the driver that is measured.
//!
//! Origin: read(2) with a length of 0; the 0-byte ReadFile of the original (OSR), which never reached
//! the driver.

use super::engine::run;
use crate::{
    Error, Unavailable,
    device::{About, Contract, Design, Handler, Job, Running, Wants, native::Plain},
    options::options,
};

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
        Plain::PROVIDER
    }

    fn wants(&self) -> Wants {
        Wants::Nothing
    }

    fn start<H: Handler>(self, mut job: Job<H>) -> Result<Running<H>, Error> {
        job.device.takes_empty_reads("design sync-empty")?;
        let plain = Plain::new(&job.device.descriptor)?;
        job.spawn(move |worker| run(worker, &plain, &mut []))?;
        job.run()
    }

    fn availability(&self) -> Result<(), Unavailable> {
        crate::device::availability()
    }
}
