//! `rio-hybrid-reader`: the hybrid, with one thread that does all the posting.
//!
//! A thread keeps the queue as long as it keeps up, as in `rio-hybrid`, and hands the slices it has
//! finished to a reader, as in `rio-reader`. So the thread that dequeues does nothing else, and
//! there is no lock around the request queue. Under load two threads work in any case, and each
//! batch passes from one core to another: it can only pay where posting is dear.
//!
//! On io_uring the thread that holds the queue copies under load (it sweeps); below that the one
//! that armed the receive: the reader at first, later who last waited after a sweep.
//!
//! Origin: the "complex hybrid" of Holgate's study (2012).

use super::{
    engine::SharedQueue,
    return_queue::{self, ReturnQueue},
    rio_design,
    rio_hybrid::{self, Tuning},
};
use crate::{
    Error,
    gather::Gather,
    options::{Microseconds, MicrosecondsValue, Options as _},
    rio::{Choice, CompletionQueue, HandOver, Provider},
    udp::{Handler, Job, Running, Worker},
};

rio_design! {
    RioHybridReader "rio-hybrid-reader";
    summary: "one thread busy-polls registered I/O while that pays; another posts the slices it finished";
    origin: "complex hybrid, Holgate 2012";
    options with threshold_within_dequeue {
        /// Provider of registered I/O.
        provider: Choice = Choice::Auto, Choice::NAMES;
        /// Threads that may handle datagrams; the reader is one more.
        threads: u32 = 8, 1..=255;
        /// Receives posted at a time; by default fewer where their slices would take more than 256 MiB.
        outstanding: u32 = 150_000, 1..=1_000_000;
        /// Most completions taken by one dequeue.
        dequeue_max: u32 = 1000, 1..=65_536;
        /// Datagrams in one dequeue at which a second thread joins; at most dequeue-max, which is no more than 1000 unless it
        /// is set (can be changed while it runs).
        threshold: u32 = 666, 1..=65_536;
        /// How long to poll after the last datagram before waiting, in microseconds (can be changed while it runs).
        spin: MicrosecondsValue = MicrosecondsValue(50), Microseconds(0..=1_000_000);
        /// How long datagrams may gather before a wait that follows polling in vain ends, and how many are enough (can
        /// be changed while it runs).
        gather: Gather = Gather::NONE, Gather::LIMITS;
    }
    hands_over: |_| true;
}

fn threshold_within_dequeue(options: &RioHybridReader) -> Result<(), Error> {
    rio_hybrid::within_dequeue(options.threshold, options.dequeue_max)
}

impl RioHybridReader {
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
        let Self { threads, outstanding, dequeue_max, .. } = self;
        let tuning = Tuning::new(&job, self.threshold, dequeue_max, self.spin.0, None);
        let run =
            move |worker: &mut _, shared: &_, returned: &_| run(worker, shared, &tuning, returned);
        let gather = job.gathers(self.gather).after_polling();
        return_queue::start(job, provider, threads, outstanding, dequeue_max, gather, run)
    }
}

fn run<H: Handler, Q: CompletionQueue>(
    worker: &mut Worker<H>,
    shared: &SharedQueue<Q>,
    tuning: &Tuning,
    returned: &ReturnQueue,
) -> Result<(), Error> {
    let mut to_post = returned.collection(shared.per_dequeue);
    rio_hybrid::hold_until_overwhelmed(worker, shared, tuning, |worker, batch| {
        return_queue::handle(worker, shared, batch, &mut to_post, returned)
    })
}
