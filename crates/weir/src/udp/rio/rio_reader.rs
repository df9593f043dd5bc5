//! `rio-reader`: as `rio-port`, but one thread does all the posting.
//!
//! The threads that handle datagrams chain the slices they have finished and hand them on, a
//! batch at a time, to a reader thread. It alone posts receives and sends, so there is no lock
//! around the request queue. What it costs is the hand-over: the reader is one more thread that
//! touches every slice, and has to be woken when it waits. If it falls behind, receives run out.
//!
//! On io_uring the thread that armed the receive copies, and is interrupted for it: the reader,
//! until the receive ends and the next is armed by who has the queue then.
//!
//! Origin: the "RIO IOCP with a reader thread" of Holgate's study (2012).

use super::{
    engine::{self, SharedQueue, dequeue_failed, wait_failed},
    return_queue::{self, ReturnQueue},
    rio_design,
};
use crate::{
    Error,
    options::Options as _,
    rio::{Batch, Choice, CompletionQueue, HandOver, Provider},
    udp::{Handler, Job, Running, Worker},
};
use std::sync::Arc;

rio_design! {
    RioReader "rio-reader";
    summary: "threads take turns to dequeue, and pass finished slices to one thread that posts them";
    origin: "RIO IOCP with a reader thread, Holgate 2012";
    options {
        /// Provider of registered I/O.
        provider: Choice = Choice::Auto, Choice::NAMES;
        /// Threads that handle datagrams; the reader is one more.
        threads: u32 = 8, 1..=255;
        /// Receives posted at a time.
        outstanding: u32 = 150_000, 1..=1_000_000;
        /// Most completions taken by one dequeue.
        dequeue_max: u32 = 1000, 1..=65_536;
    }
    hands_over: |_| true;
}

impl RioReader {
    /// Starts it on a provider of one's own.
    ///
    /// # Errors
    /// As [`Design::start`](crate::udp::Design::start).
    pub fn start_on<H, P>(self, mut job: Job<H>, provider: P) -> Result<Running<H>, Error>
    where
        H: Handler,
        P: Provider<HandOver>,
        P::Cq: Send,
        P::Rq: Send,
    {
        self.check()?;
        let ready = engine::open(&mut job, &provider, self.outstanding, self.dequeue_max)?;
        let returned = ReturnQueue::new(&ready.region, job.endpoints.len());
        let filled = Arc::clone(&returned);
        engine::spawn_sharing(
            &mut job,
            provider,
            ready,
            self.threads as usize + 1,
            move |worker, shared| return_queue::read(worker, shared, &returned),
            move |worker, shared| run(worker, shared, &filled),
        )?;
        job.run()
    }
}

fn run<H: Handler, Q: CompletionQueue>(
    worker: &mut Worker<H>,
    shared: &SharedQueue<Q>,
    returned: &ReturnQueue,
) -> Result<(), Error> {
    let counters = Arc::clone(&worker.counters);
    let mut batch = Batch::new(shared.per_dequeue);
    let mut done = returned.collection(shared.per_dequeue);
    while let Some(mut turn) = shared.turns.take(worker.index, &counters).map_err(wait_failed)? {
        let received = turn.queue().dequeue(&mut batch, &counters).map_err(dequeue_failed)?;
        counters.dequeued(received);
        turn.notify(&counters);
        worker.collect_errors();
        return_queue::handle(worker, shared, &mut batch, &mut done, returned)?;
    }
    Ok(())
}
