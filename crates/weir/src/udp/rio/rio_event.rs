//! `rio-event`: one thread asks to be told, waits, and takes what has come.
//!
//! The plainest use of registered I/O: notify, wait, dequeue, handle. Receives are posted
//! without a call, and one wait brings everything that came meanwhile, so the faster the
//! datagrams come the less each of them costs. When they come slowly each costs a sleep
//! and a wake-up, as in every design that waits.
//!
//! On io_uring this thread copies, when it enters the kernel.
//!
//! Origin: the "RIO event" server of Holgate's study (2011).

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
    RioEvent "rio-event";
    summary: "one thread waits for registered I/O to complete and takes everything that has completed";
    origin: "RIO event, Holgate 2011";
    options {
        /// Provider of registered I/O.
        provider: Choice = Choice::Auto, Choice::NAMES;
        /// Receives posted at a time.
        outstanding: u32 = 150_000, 1..=1_000_000;
        /// Most completions taken by one dequeue.
        dequeue_max: u32 = 1000, 1..=65_536;
    }
}

impl RioEvent {
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
    queue.wait()?;
    match queue.dequeue()? {
        true => queue.handle(),
        false => Ok(()),
    }
}
