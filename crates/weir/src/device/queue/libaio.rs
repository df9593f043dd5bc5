//! `libaio`: one thread keeps reads outstanding on the older asynchronous I/O of Linux.
//!
//! A batch is started by one call and taken by another, so it costs two entries for a batch where a ring
//! needs one, and the kernel copies a block and an event for each I/O. It pays for files that are read
//! past the cache of pages (O_DIRECT, which weir does not ask for). It fails quietly: whatever the driver
//! cannot do asynchronously, it does while the call that starts it waits. What may keep a read waiting is
//! refused for that reason.
//!
//! Origin: io_submit(2), io_getevents(2), Linux 2.6, here without the library that gave it its name.

use super::engine::{self, Sizes};
use crate::{
    Error,
    design::design,
    device::{Handler, Job, Running, io, native::AioQueue},
};

design! {
    #[derive(Copy, Eq)]
    device::Libaio "libaio", Queue;
    summary: "one thread starts batches of reads with one call and takes them with another";
    origin: "io_submit(2), Linux 2.6";
    options {
        /// Reads outstanding.
        depth: u32 = 128, 1..=io::MOST_DEPTH;
        /// Most reads started by one call.
        batch: u32 = 32, 1..=io::MOST_DEPTH;
        /// Fewest completions that a wait waits for.
        complete_min: u32 = 1, 1..=io::MOST_DEPTH;
    }
    provider: |_| AioQueue::PROVIDER;
    availability: |_| AioQueue::availability("design libaio");
}

impl Libaio {
    fn begin<H: Handler>(self, job: Job<H>) -> Result<Running<H>, Error> {
        let sizes = Sizes { depth: self.depth, batch: self.batch, complete_min: self.complete_min };
        engine::start(job, sizes, |descriptor, region| {
            AioQueue::open("design libaio", descriptor, region)
        })
    }
}
