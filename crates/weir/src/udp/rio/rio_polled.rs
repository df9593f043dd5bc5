//! `rio-polled`: one thread spins on the completion queue of registered I/O.
//!
//! It never sleeps, so it answers as fast as the machine can, and it burns a core whether
//! datagrams come or not. On a provider whose kernel work runs in this thread (io_uring,
//! deferred) an empty dequeue enters the kernel; on one with a kernel thread it only reads
//! memory. It fails where cores are scarce: on a core that it shares with the sender it
//! takes the time that the sender needs.
//!
//! On io_uring this thread copies, when it enters the kernel.
//!
//! Origin: the "RIO polled" server of Holgate's study (2011).

use super::{
    engine::{self, OwnQueue},
    rio_design,
};
use crate::{
    Error,
    options::Options as _,
    rio::{Choice, CompletionQueue, OneThread, Provider},
    udp::{Handler, Job, Running},
};

rio_design! {
    RioPolled "rio-polled";
    summary: "one thread spins on the completion queue of registered I/O";
    origin: "RIO polled, Holgate 2011";
    options {
        /// Provider of registered I/O.
        provider: Choice = Choice::Auto, Choice::NAMES;
        /// Receives posted at a time.
        outstanding: u32 = 150_000, 1..=1_000_000;
        /// Most completions taken by one dequeue.
        dequeue_max: u32 = 1000, 1..=65_536;
    }
}

impl RioPolled {
    /// Starts it on a provider of one's own.
    ///
    /// # Errors
    /// As [`Design::start`](crate::udp::Design::start).
    pub fn start_on<H: Handler, P: Provider<OneThread>>(
        self,
        job: Job<H>,
        provider: P,
    ) -> Result<Running<H>, Error> {
        self.check()?;
        engine::start_alone(job, provider, self.outstanding, self.dequeue_max, turn)
    }
}

/// What the thread does again and again.
fn turn<H: Handler, Q: CompletionQueue>(queue: &mut OwnQueue<'_, H, Q>) -> Result<(), Error> {
    match queue.dequeue()? {
        true => queue.handle()?,
        false => std::hint::spin_loop(),
    }
    Ok(())
}
