//! `epoll`: each thread is told which of its connections are ready, and serves those.
//!
//! The set of connections stays in the kernel, and a wait brings only what is ready, so idle
//! connections cost memory and nothing else. A connection that is ready is received from until
//! nothing is left, but at most `drain` times, so that one busy peer cannot starve the others. It
//! costs the entry of the wait on top of a receive and a send for each message, and shares the wait
//! among all that became ready meanwhile. With `--trigger level` a short receive is not followed by
//! another that finds nothing; with `edge` the kernel tells less often and every drain ends in an
//! empty receive.
//!
//! New connections come to one of the threads: by a socket for each thread on one address
//! (`--share sockets`, SO_REUSEPORT), which spreads them by a hash whether a thread is busy or not; or
//! by one socket in every thread's set (`--share exclusive`, EPOLLEXCLUSIVE), of which the thread
//! that waits gets it.
//!
//! Origin: epoll(7), Linux 2.6; what a Linux engineer writes today.

use super::engine::{ReadyThread, run};
use crate::{
    Error,
    design::{design, or_cores},
    gather::Gather,
    readiness::{Epoll as EpollSet, Trigger},
    tcp::{ActiveSet, Handler, Job, Running, Share},
};

design! {
    tcp::Epoll "epoll", Epoll on EpollSet;
    summary: "each thread waits until connections are ready and drains them, up to a limit";
    origin: "epoll(7), Linux 2.6";
    options {
        /// Threads, each with a set and connections of its own; 0 for as many as there are cores.
        threads: u32 = 0, 0..=256;
        /// Most receives from a connection for one wake-up.
        drain: u32 = 16, 1..=65_536;
        /// Whether a connection is reported for as long as it is ready, or when something arrives.
        trigger: Trigger = Trigger::Level, Trigger::NAMES;
        /// How threads share new connections: by a socket each, or by one that wakes one of them.
        share: Share = Share::Sockets, Share::NAMES;
        /// How long messages may gather before a wait ends, and how many are enough (can be changed while it runs).
        gather: Gather = Gather::NONE, Gather::LIMITS;
    }
    resolve: |design| or_cores(&mut design.threads);
    active_set: |design| ActiveSet::of(design.threads);
}

impl Epoll {
    fn begin<H: Handler>(self, mut job: Job<H>) -> Result<Running, Error> {
        let threads = self.threads as usize;
        let listeners = match self.share {
            Share::Sockets if threads > 1 => job.listen_shared(threads)?,
            Share::Sockets | Share::Exclusive => vec![job.listen()?; threads],
        };
        let (shares, gather) = (job.active_shares(threads)?, job.gathers(self.gather));
        for (listeners, share) in listeners.into_iter().zip(shares) {
            let set =
                EpollSet::new(EVENTS, self.trigger)?.exclusive(self.share == Share::Exclusive);
            let thread =
                ReadyThread::new(job.buffer_bytes, self.drain, self.trigger).serving(share);
            let gather = gather.clone();
            job.spawn(move |worker| run(worker, set, &listeners, thread, gather))?;
        }
        job.run()
    }
}

/// Connections reported by one wait, at most.
const EVENTS: usize = 512;
