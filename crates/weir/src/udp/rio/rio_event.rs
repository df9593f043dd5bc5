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
    engine::{self, Ready, dequeue_failed, wait_failed},
    rio_design,
};
use crate::{
    Error,
    options::{Options as _, options},
    rio::{Batch, Choice, CompletionQueue, OneThread, Provider},
    udp::{Handler, Job, Running, Worker},
};

options! {
    /// Options of the design `rio-event`.
    pub struct RioEvent {
        /// Provider of registered I/O.
        provider: Choice = Choice::Auto, Choice::NAMES;
        /// Receives posted at a time.
        outstanding: u32 = 150_000, 1..=1_000_000;
        /// Most completions taken by one dequeue.
        dequeue_max: u32 = 1000, 1..=65_536;
    }
}

rio_design!(
    RioEvent,
    "rio-event",
    "one thread waits for registered I/O to complete and takes all that has come",
    "RIO event, Holgate 2011",
    hands_over: |_| false
);

impl RioEvent {
    /// Starts it on a provider of one's own.
    ///
    /// # Errors
    /// As [`Design::start`](crate::udp::Design::start).
    pub fn start_on<H: Handler, P: Provider<OneThread>>(
        self,
        mut job: Job<H>,
        provider: P,
    ) -> Result<Running<H>, Error> {
        self.check()?;
        let ready = engine::open(&mut job, &provider, self.outstanding, self.dequeue_max)?;
        job.spawn(move |worker| run(worker, &provider, ready))?;
        job.run()
    }
}

fn run<H: Handler, P: Provider<OneThread>>(
    worker: &mut Worker<H>,
    provider: &P,
    ready: Ready<P::Opened>,
) -> Result<(), Error> {
    let Ready { region, opened, needs } = ready;
    engine::run(provider.start(opened)?, |completions, requests, granted| {
        engine::post_all(worker, &region, &needs, requests)?;
        engine::announce(worker, granted, Some(completions.waker()));
        let mut batch = Batch::new(needs.per_dequeue as usize);
        while !worker.stopping() {
            worker.hear_errors();
            worker.counters.notifies.one();
            worker.counters.waits.one();
            completions.wait(1, None, &worker.counters).map_err(wait_failed)?;
            let received =
                completions.dequeue(&mut batch, &worker.counters).map_err(dequeue_failed)?;
            worker.counters.dequeued(received);
            if !batch.is_empty() {
                engine::handle(worker, &mut batch, &region, requests)?;
            }
        }
        Ok(())
    })
}
