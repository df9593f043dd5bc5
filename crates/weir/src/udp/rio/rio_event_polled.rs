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
    /// Options of the design `rio-event-polled`.
    pub struct RioEventPolled {
        /// Provider of registered I/O.
        provider: Choice = Choice::Auto, Choice::NAMES;
        /// Receives posted at a time.
        outstanding: u32 = 150_000, 1..=1_000_000;
        /// Most completions taken by one dequeue.
        dequeue_max: u32 = 1000, 1..=65_536;
    }
}

rio_design!(
    RioEventPolled,
    "rio-event-polled",
    "one thread takes what is there again and again, and waits only when there was nothing",
    "RIO event polled, Holgate 2012",
    hands_over: |_| false
);

impl RioEventPolled {
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
            let received =
                completions.dequeue(&mut batch, &worker.counters).map_err(dequeue_failed)?;
            worker.counters.dequeued(received);
            worker.hear_errors();
            if !batch.is_empty() {
                engine::handle(worker, &mut batch, &region, requests)?;
                continue;
            }
            worker.counters.notifies.one();
            worker.counters.waits.one();
            completions.wait(1, None, &worker.counters).map_err(wait_failed)?;
        }
        Ok(())
    })
}
