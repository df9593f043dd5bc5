//! `rio-event-polled`: as `rio-event`, but looks again before it asks to be told.
//!
//! After each batch the thread dequeues once more, and only when that brought nothing does it
//! notify and wait. Under load it hardly ever waits: what came while the last batch was handled
//! is there already, and the notification and the wait are saved. When datagrams come slowly it
//! costs one empty look for each of them, and waits as `rio-event` does.
//!
//! On io_uring this thread copies, when it enters the kernel.
//!
//! Origin: the "RIO event, polled" server of Holgate's study (2012).

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
    RioEventPolled "rio-event-polled";
    summary: "one thread dequeues in a loop and sleeps only after an empty dequeue";
    origin: "RIO event polled, Holgate 2012";
    options {
        /// Provider of registered I/O.
        provider: Choice = Choice::Auto, Choice::NAMES;
        /// Receives posted at a time.
        outstanding: u32 = 150_000, 1..=1_000_000;
        /// Most completions taken by one dequeue.
        dequeue_max: u32 = 1000, 1..=65_536;
    }
}

impl RioEventPolled {
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
pub(super) fn turn<H: Handler, Q: CompletionQueue>(
    queue: &mut OwnQueue<'_, H, Q>,
) -> Result<(), Error> {
    match queue.dequeue()? {
        true => queue.handle(),
        false => queue.wait(),
    }
}
