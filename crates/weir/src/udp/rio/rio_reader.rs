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
    engine::{self, SharedQueue},
    return_queue::{self, ReturnQueue},
    rio_design,
};
use crate::{
    Error,
    gather::Gather,
    options::Options as _,
    rio::{Choice, CompletionQueue, HandOver, Provider},
    udp::{Handler, Job, Running, Worker},
};

rio_design! {
    RioReader "rio-reader";
    summary: "threads take turns to dequeue, and pass finished slices to one thread that posts them";
    origin: "RIO IOCP with a reader thread, Holgate 2012";
    options {
        /// Provider of registered I/O.
        provider: Choice = Choice::Auto, Choice::NAMES;
        /// Threads that handle datagrams; the reader is one more.
        threads: u32 = 8, 1..=255;
        /// Receives posted at a time; by default fewer where their slices would take more than 256 MiB.
        outstanding: u32 = 150_000, 1..=1_000_000;
        /// Most completions taken by one dequeue.
        dequeue_max: u32 = 1000, 1..=65_536;
        /// How long datagrams may gather before a wait ends, and how many are enough (can be changed while it runs).
        gather: Gather = Gather::NONE, Gather::LIMITS;
    }
    hands_over: |_| true;
}

impl RioReader {
    /// Starts it on a provider of one's own.
    ///
    /// # Errors
    /// As [`Design::start`](crate::udp::Design::start).
    pub fn start_on<H: Handler, P: Provider<HandOver, Cq: Send, Rq: Send>>(
        self,
        job: Job<H>,
        provider: P,
    ) -> Result<Running<H>, Error> {
        self.check()?;
        let Self { threads, outstanding, dequeue_max, gather, .. } = self;
        let gather = job.gathers(gather);
        return_queue::start(job, provider, threads, outstanding, dequeue_max, gather, run)
    }
}

fn run<H: Handler, Q: CompletionQueue>(
    worker: &mut Worker<H>,
    shared: &SharedQueue<Q>,
    returned: &ReturnQueue,
) -> Result<(), Error> {
    let mut to_post = returned.collection(shared.per_dequeue);
    engine::take_turns(worker, shared, |worker, batch| {
        return_queue::handle(worker, shared, batch, &mut to_post, returned)
    })
}
