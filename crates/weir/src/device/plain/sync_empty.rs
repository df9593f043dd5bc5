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
    Error,
    design::design,
    device::{Handler, Job, Running, Wants, native::Plain},
};

design! {
    #[derive(Copy, Eq)]
    device::SynchronousEmpty "sync-empty", Read;
    summary: "one thread makes zero-length reads in a loop, which reach no driver";
    origin: "read(2); the 0-byte ReadFile of the original";
    options {}
    provider: |_| Plain::PROVIDER;
    availability: |_| crate::device::availability();
    wants: |_| Wants::Nothing;
}

impl SynchronousEmpty {
    fn begin<H: Handler>(self, mut job: Job<H>) -> Result<Running<H>, Error> {
        job.device.takes_empty_reads("design sync-empty")?;
        let plain = Plain::new(&job.device.descriptor)?;
        job.spawn(move |worker| run(worker, &plain, &mut []))?;
        job.run()
    }
}
