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

use super::engine::run;
use crate::{
    Error,
    design::design,
    device::{Handler, Job, Running, native::Plain},
};

design! {
    #[derive(Copy, Eq)]
    device::Synchronous "sync", Read;
    summary: "one thread reads in a loop";
    origin: "read(2); the synchronous ReadFile of the original";
    options {}
    provider: |_| Plain::PROVIDER;
    availability: |_| crate::device::availability();
}

impl Synchronous {
    fn begin<H: Handler>(self, mut job: Job<H>) -> Result<Running<H>, Error> {
        let plain = Plain::new(&job.device.descriptor)?;
        let mut buffer = job.buffers(1)?.take().expect("just made");
        job.spawn(move |worker| run(worker, &plain, buffer.payload_mut()))?;
        job.run()
    }
}
