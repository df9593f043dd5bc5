//! `port-ordered`: as `port`, with several receives outstanding for each connection, put back in order.
//!
//! While a thread handles what one receive has brought, the next is under way, and another thread may have it
//! before the first is done. So what comes is put in the order of the numbers that the receives had when they were
//! started, and handled in that order under the connection's lock; what comes early waits. It costs as
//! many buffers for each connection, idle ones included, and a look for the number that is next. What it
//! brings is what overlaps: with one thread nothing does.
//!
//! That the numbers tell the order of the bytes is the port's promise. On Windows a socket fills several
//! receives in the order in which they were posted. On io_uring receives that wait on one socket are woken in
//! an order that nobody promises (on Linux 6.18 four were filled in the order 4, 1, 3, 2), so numbers given at
//! the start would be wrong; the port there has one of them in the kernel at a time, and starts the next when the completion of
//! the one before is taken, before anybody handles it. So several buffers are posted, one is armed.
//!
//! It fails like `port`, and sooner, where memory is short.
//!
//! Origin: the advice on several outstanding receives in "Network Programming for Microsoft Windows", Jones and
//! Ohlund, chapter 6, and the sequence numbers of Holgate's server framework.

use super::engine::{self, Numbers, Receiving};
use crate::{
    Error,
    design::{design, or_cores},
    port::{
        Shape,
        streams::{Native, Provider as _},
    },
    tcp::{ActiveSet, Handler, Idle, IdleHolds, Job, Running},
};

design! {
    tcp::PortOrdered "port-ordered", Port;
    summary: "a completion port; several receives outstanding for each connection, put back in order";
    origin: "several outstanding receives, Jones and Ohlund; sequence numbers, Holgate";
    options {
        /// Threads that take from the port; 0 for as many as there are cores.
        threads: u32 = 0, 0..=256;
        /// Most threads that run at a time; 0 for as many as there are cores.
        concurrency: u32 = 0, 0..=256;
        /// Completions taken at a time.
        take: u32 = 1, 1..=65_536;
        /// Receives outstanding for each connection.
        receives: u32 = 4, 1..=256;
        /// Accepts outstanding at first, at each address.
        accepts: u32 = 5, 1..=65_536;
        /// Most accepts outstanding at each address.
        accepts_most: u32 = 500, 1..=65_536;
        /// How many more accepts to start when they run dry.
        accept_burst: u32 = 100, 0..=65_536;
        /// Most sends outstanding, of all connections; further ones wait.
        sends: u32 = 200, 1..=1_000_000;
        /// Most further sends outstanding, of stalled peers; beyond that the connection stalled longest is
        /// closed. 0 for one per connection.
        stuck: u32 = 0, 0..=1_000_000;
        /// Operations that wait before a take that need not enter the kernel submits them.
        submit_after: u32 = Shape::BEST.submit_after, 1..=65_536;
    }
    provider: |_| Native::NAME;
    availability: |_| Native::default().availability();
    resolve: |design| or_cores(&mut design.threads);
    parks_threads: |design| design.threads != 1;
    active_set: |_| ActiveSet::InOrder; // the threads share one order
    idle_holds: |_| IdleHolds::Buffer(
        "a buffer for each of its outstanding receives",
    );
}

impl PortOrdered {
    fn begin<H: Handler>(self, job: Job<H>) -> Result<Running, Error> {
        let numbers = Numbers {
            threads: self.threads,
            concurrency: self.concurrency,
            take: self.take,
            accepts: (self.accepts, self.accepts_most, self.accept_burst),
            sends: self.sends,
            stuck: self.stuck,
            receiving: Receiving { receives: self.receives, idle: Idle::Buffer, drain: 1 },
        };
        let shape = Shape { submit_after: self.submit_after, ..Shape::BEST };
        engine::start(job, &Native { shape }, numbers)
    }
}
