//! `port-batch`: threads take many completions at a time from a completion port.
//!
//! As `port`, but a take brings whatever has finished, up to `batch`, and the buffers are posted
//! again together. So the trip through the port is shared by all that came meanwhile, and the
//! faster the datagrams come the less each costs. With several threads one of them takes all
//! that is there and the others find nothing: threads are used by turns, not side by side, until
//! one batch takes longer to handle than the next takes to come. When datagrams come slowly a
//! batch is one, and the design is `port`.
//!
//! Origin: the "IOCP + GQCSEx" server of Holgate's study (2011).

use super::{
    About, Contract, Design, Handler, Job, Running,
    port_frame::{self, Numbers},
};
use crate::{
    Error, Unavailable,
    options::options,
    port::{Native, Shape},
};

options! {
    /// Options of the design `port-batch`.
    pub struct PortBatch {
        /// Threads that take from the port.
        threads: u32 = 8, 1..=256;
        /// Receives posted at a time.
        outstanding: u32 = 5000, 1..=1_000_000;
        /// Most completions of one take.
        batch: u32 = 1000, 1..=65_536;
        /// Most receives given to the kernel at a time, of each socket.
        armed: u32 = Shape::BEST.armed, 1..=1_000_000;
        /// Posts that wait before a take that need not enter the kernel submits them.
        submit_after: u32 = Shape::BEST.submit_after, 1..=65_536;
        /// Most threads that run at a time; 0 for as many as there are cores.
        concurrency: u32 = 0, 0..=256;
    }
}

impl Design for PortBatch {
    const ABOUT: About = About {
        name: "port-batch",
        summary: "threads take up to a batch of completions at a time from a completion port",
        origin: "IOCP + GQCSEx, Holgate 2011",
        contract: Contract::Port,
    };

    fn start<H: Handler>(self, mut job: Job<H>) -> Result<Running<H>, Error> {
        let shape = Shape { armed: self.armed, submit_after: self.submit_after };
        let numbers = Numbers {
            threads: self.threads,
            outstanding: self.outstanding,
            concurrency: self.concurrency,
            per_take: self.batch,
        };
        port_frame::start(&mut job, &Native { shape }, numbers)?;
        job.run()
    }

    fn availability(&self) -> Result<(), Unavailable> {
        port_frame::availability()
    }
}
