//! `port`: threads take completions from a completion port, and start the next operation of a connection
//! when the last one is over.
//!
//! A connection has a receive outstanding, and a send while something is to be sent; whichever thread is free
//! takes what has finished, whoever started it. At most as many threads run as there are cores, and the last
//! one to wait is woken first. It costs a trip through the port for each receive and each send, a lock for
//! each connection, since its completions come to several threads, and what the port itself costs. Idle
//! connections cost no thread: with `--idle buffer` each holds a buffer, with `zero-byte` none, for one more
//! operation a message: a receive of no bytes ends when something has come, and then receives that do not
//! wait bring it, at most `drain` of them.
//!
//! As in the original, `accepts` are outstanding at first; when they run dry, and a connection waits though
//! some are outstanding, a burst of `accept-burst` more is, up to `accepts-most`. First data comes with the
//! accept where it has come by then: the receive that follows is tried as it is submitted. At most `sends`
//! are outstanding, of all connections; further ones wait in order. That bounds what the system has to hold for sends,
//! and it is for sends that move: one that is outstanding for 10 ms while others wait counts to its own connection from
//! then on, and so do the next ones until 16 in a row have moved. So a peer that reads nothing, or slowly, holds its own send
//! and not the others'. Of those there is one for each connection, and at most `stuck` in all: beyond, who is stuck for
//! longest is closed. Nobody asks beforehand whether a send would move, for not every system can tell. Buffers and
//! connections are used again.
//!
//! It fails where a crowd gets stuck at once: `sends` of them have the pool for 10 ms, and then the next.
//!
//! Silence and other time-outs stand in one wheel for all threads, which one of them watches.
//!
//! Origin: the completion-port server of "Network Programming for Microsoft Windows", Jones and Ohlund.

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
    tcp::Port "port", Port;
    summary: "threads take completions from a completion port; one receive outstanding for each connection";
    origin: "the completion-port server of Jones and Ohlund";
    options {
        /// Threads that take from the port; 0 for as many as there are cores.
        threads: u32 = 0, 0..=256;
        /// Most threads that run at a time; 0 for as many as there are cores.
        concurrency: u32 = 0, 0..=256;
        /// Completions taken at a time.
        take: u32 = 1, 1..=65_536;
        /// What a connection waits with for something to receive.
        idle: Idle = Idle::Buffer, Idle::NAMES;
        /// Most receives from a connection for one wait without a buffer.
        drain: u32 = 16, 1..=65_536;
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
    idle_holds: |design| match design.idle {
        Idle::Buffer => IdleHolds::Buffer(
            "a buffer: that of its outstanding receive; none with --idle zero-byte",
        ),
        Idle::ZeroByte => IdleHolds::NoBuffer,
    };
}

impl Port {
    fn begin<H: Handler>(self, job: Job<H>) -> Result<Running, Error> {
        let numbers = Numbers {
            threads: self.threads,
            concurrency: self.concurrency,
            take: self.take,
            accepts: (self.accepts, self.accepts_most, self.accept_burst),
            sends: self.sends,
            stuck: self.stuck,
            receiving: Receiving { receives: 1, idle: self.idle, drain: self.drain },
        };
        let shape = Shape { submit_after: self.submit_after, ..Shape::BEST };
        engine::start(job, &Native { shape }, numbers)
    }
}
