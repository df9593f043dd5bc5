//! `rio-port`: registered I/O behind a completion port.
//!
//! All threads wait at the port. One is given the queue, dequeues, and notifies at once: the next
//! thread may have the queue while this one still handles what it took. So many threads share
//! the work, each with a batch of its own, and they share all that they touch, too. The request
//! queue takes one poster at a time: there is a lock around posting on each (`SharedQueue::lock`), and
//! every thread needs it. With few datagrams each costs a wake-up, and with many each thread
//! gets a few of them before the next one is woken.
//!
//! On io_uring the thread that armed the receive copies, for whoever has the queue, and is
//! interrupted for it: the first one, until the receive ends and the next is armed by who has the
//! queue then.
//!
//! Origin: the "RIO IOCP" servers of Holgate's study (2012), on one thread and on eight. Those
//! took the lock for each post (`--posts-per-lock 1`).

use super::{
    engine::{self, SharedQueue, ToPost},
    rio_design,
};
use crate::{
    Error,
    gather::Gather,
    options::Options as _,
    rio::{Choice, CompletionQueue, HandOver, Provider},
    udp::{Handler, Job, Running, Worker},
};
use std::sync::{Arc, atomic::AtomicU64};

rio_design! {
    RioPort "rio-port";
    summary: "threads wait at a port, dequeue registered I/O in turn, and notify before they handle";
    origin: "RIO IOCP, Holgate 2012";
    options {
        /// Provider of registered I/O.
        provider: Choice = Choice::Auto, Choice::NAMES;
        /// Threads that wait at the port.
        threads: u32 = 8, 1..=256;
        /// Receives posted at a time; by default fewer where their slices would take more than 256 MiB.
        outstanding: u32 = 150_000, 1..=1_000_000;
        /// Most completions taken by one dequeue.
        dequeue_max: u32 = 1000, 1..=65_536;
        /// Slices posted each time the lock is taken (can be changed while it runs).
        posts_per_lock: u32 = 1000, 1..=65_536;
        /// How long datagrams may gather before a wait ends, and how many are enough (can be changed while it runs).
        gather: Gather = Gather::NONE, Gather::LIMITS;
    }
    hands_over: |_| true;
    parks_threads: |design| design.threads > 1;
}

impl RioPort {
    /// Starts it on a provider of one's own.
    ///
    /// # Errors
    /// As [`Design::start`](crate::udp::Design::start).
    pub fn start_on<H: Handler, P: Provider<HandOver, Cq: Send, Rq: Send>>(
        self,
        mut job: Job<H>,
        provider: P,
    ) -> Result<Running<H>, Error> {
        self.check()?;
        let gather = job.gathers(self.gather);
        let ready = engine::open(&mut job, &provider, self.outstanding, self.dequeue_max, gather)?;
        let posts_per_lock = engine::posts_together(&job, "posts-per-lock", self.posts_per_lock);
        let run = move |worker: &mut Worker<H>, shared: &SharedQueue<_>| {
            run(worker, shared, &posts_per_lock)
        };
        let (threads, other) = (self.threads as usize, Arc::new(run.clone()));
        engine::spawn_sharing(&mut job, provider, ready, threads, Box::new(run), other)?;
        job.run()
    }
}

fn run<H: Handler, Q: CompletionQueue>(
    worker: &mut Worker<H>,
    shared: &SharedQueue<Q>,
    posts_per_lock: &AtomicU64,
) -> Result<(), Error> {
    let mut to_post = ToPost::new(shared.per_dequeue, shared.sockets());
    engine::take_turns(worker, shared, |worker, batch| {
        engine::handle_sharing(worker, shared, batch, &mut to_post, posts_per_lock)
    })
}
