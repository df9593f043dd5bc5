//! `poll`: each thread hands the list of its connections to the system, and looks through it for those
//! that are ready.
//!
//! The list is kept up to date, an entry for each connection, and given to the kernel whole with every
//! wait; the kernel asks each socket, and the thread looks at each answer. So a wait costs time for every
//! connection that is open, busy or not, and nothing stays in the kernel between waits. It shares
//! that cost among all that became ready meanwhile: under load it is cheap, with many idle
//! connections and a few busy ones it is not. There is no bound but the descriptors of the process.
//! A connection that is ready is received from until nothing is left, but at most `drain` times.
//!
//! Several threads have a list and a listening socket each (SO_REUSEPORT); where an address cannot be shared, all
//! have the same one, and each that is woken for a connection asks for it.
//!
//! Origin: poll(2), System V Release 3, 1986.

use super::engine::{ReadyThread, run};
use crate::{
    Error,
    design::{design, or_cores},
    gather::Gather,
    readiness::{Poll as PollSet, Trigger},
    stream,
    tcp::{ActiveSet, Handler, Job, Running},
};

design! {
    tcp::Poll "poll", Poll;
    summary: "each thread passes the list of its connections to the system and scans it for ready ones";
    origin: "poll(2), System V";
    options {
        /// Threads, each with a list and connections of its own; 0 for as many as there are cores.
        threads: u32 = 0, 0..=256;
        /// Most receives from a connection for one wake-up.
        drain: u32 = 16, 1..=65_536;
        /// How long messages may gather before a wait ends, and how many are enough (can be changed while it runs).
        gather: Gather = Gather::NONE, Gather::LIMITS;
    }
    provider: |_| PollSet::PROVIDER;
    availability: |_| stream::availability();
    resolve: |design| or_cores(&mut design.threads);
    active_set: |design| ActiveSet::of(design.threads);
}

impl Poll {
    fn begin<H: Handler>(self, mut job: Job<H>) -> Result<Running, Error> {
        let threads = self.threads as usize;
        let listeners = if threads > 1 { job.listen_shared(threads)? } else { vec![job.listen()?] };
        let (shares, gather) = (job.active_shares(threads)?, job.gathers(self.gather));
        for (listeners, share) in listeners.into_iter().zip(shares) {
            let set = PollSet::new()?;
            let thread =
                ReadyThread::new(job.buffer_bytes, self.drain, Trigger::Level).serving(share);
            let gather = gather.clone();
            job.spawn(move |worker| run(worker, set, &listeners, thread, gather))?;
        }
        job.run()
    }
}
