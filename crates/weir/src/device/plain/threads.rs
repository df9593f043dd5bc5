//! `threads`: several threads, each reading in a loop.
//!
//! As `sync`, with as many reads at a time as there are threads. It costs a stack for each, and where
//! I/Os take time, a sleep and a wake-up for each of them. It fails where threads outnumber the cores and
//! the device answers at once: they only take turns; and where they all want the same place of a cache,
//! such as the count of references of one open file.
//!
//! All threads read from one descriptor, but of timers each has its own. Of a regular file each begins at
//! another place.
//!
//! Origin: read(2); a thread for each request is how servers began.

use super::engine::run;
use crate::{
    Error,
    design::{design, or_cores},
    device::{Handler, Job, Running, native::Plain},
};

design! {
    #[derive(Copy, Eq)]
    device::Threads "threads", Read;
    summary: "several threads, each reading in a loop";
    origin: "read(2)";
    options {
        /// Threads that read; 0 for as many as there are cores.
        threads: u32 = 0, 0..=1024;
    }
    provider: |_| Plain::PROVIDER;
    availability: |_| crate::device::availability();
    resolve: |design| or_cores(&mut design.threads);
}

impl Threads {
    fn begin<H: Handler>(self, mut job: Job<H>) -> Result<Running<H>, Error> {
        let threads = self.threads as usize;
        let region = job.buffers(threads)?;
        job.shared_by(threads);
        for _ in 0..threads {
            let plain = Plain::new(&job.device.descriptor)?;
            let mut buffer = region.take().expect("one for each thread");
            job.spawn(move |worker| run(worker, &plain, buffer.payload_mut()))?;
        }
        job.run()
    }
}
