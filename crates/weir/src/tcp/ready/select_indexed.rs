//! `select-indexed`: as `select`, but the sets are kept, and only what the answer names is looked at.
//!
//! The sets of what is wanted follow each connection as it comes, changes and goes, and are copied for
//! each wait (two bits for each descriptor: 5 KB for 20,000 of them; eight bytes each where sets are arrays); in the
//! answer only what is left is stepped through, and each leads to its connection by an index. So of the
//! three passes of `select` one is left, which no program can spare: the kernel's own, which asks every
//! socket. It is by far the longest of the three (`cargo run --release -p weir-io --example
//! readiness_cost`), so the cure is real and small, and a wait still costs time for each connection that
//! is open, about as much as `poll`'s. A connection that is ready is received from until nothing is left,
//! but at most `drain` times.
//!
//! Origin: the cure that "Network Programming for Microsoft Windows" (Jones and Ohlund) suggests for its
//! non-blocking server; select(2), 4.2BSD.

use super::engine::{ReadyThread, run};
use crate::{
    Error,
    design::design,
    gather::Gather,
    readiness::{SelectIndexed as Set, Trigger},
    tcp::{ActiveSet, Handler, Job, Running},
};

design! {
    tcp::SelectIndexed "select-indexed", Select on Set;
    summary: "one thread keeps its sets up to date and steps through the set bits of the answer";
    origin: "what Jones and Ohlund suggest for their non-blocking server; select(2)";
    options {
        /// Most receives from a connection for one wake-up.
        drain: u32 = 16, 1..=65_536;
        /// How long messages may gather before a wait ends, and how many are enough (can be changed while it runs).
        gather: Gather = Gather::NONE, Gather::LIMITS;
    }
    active_set: |_| ActiveSet::InOrder;
}

impl SelectIndexed {
    fn begin<H: Handler>(self, mut job: Job<H>) -> Result<Running, Error> {
        let listeners = job.listen()?;
        let (set, gather) = (Set::new()?, job.gathers(self.gather));
        let thread = ReadyThread::new(job.buffer_bytes, self.drain, Trigger::Level)
            .serving(job.limits.active);
        job.spawn(move |worker| run(worker, set, &listeners, thread, gather))?;
        job.run()
    }
}
