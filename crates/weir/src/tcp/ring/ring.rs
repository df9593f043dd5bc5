//! `ring`: each thread asks for what it wants in a ring that it shares with the kernel, and takes what
//! completed from another.
//!
//! Nothing is asked whether it is ready: a connection is accepted, received from and sent to by requests,
//! and what became of them comes as completions, some dozens for one entry into the kernel that
//! submits as many requests. A connection receives until it is told not to, into slices that all of them
//! share, so an idle one holds no buffer; what was received goes back in the slice it came in, without
//! a copy. Connections are no descriptors of the process but places in a table of the ring's.
//!
//! For an idle connection the kernel holds all that its receive takes: 896 bytes beside the socket (Linux 6.18),
//! where `epoll` has 208. With `--idle poll` a connection waits with a question whether something came, which is
//! 288 bytes, and is received from then: one more request for each message, and one more entry for one that
//! comes alone.
//!
//! It costs an entry into the kernel for each batch, and one more before each wait: a message that comes alone
//! costs about as much as with `epoll`. It fails where the system has no such rings, or forbids them,
//! as containers do; and ending one direction only is dear (a thread of the kernel's does it). A table
//! holds as many connections as the process may have descriptors: beyond that a thread makes further rings
//! (`--rings`), and watches them from its first.
//!
//! New connections come to one of the threads by a socket for each on one address (SO_REUSEPORT), which
//! spreads them by a hash whether a thread is busy or not.
//!
//! Origin: io_uring, Linux 5.1; multishot receives and provided buffers, 6.0.

use super::engine;
use crate::{
    Error,
    design::{design, or_cores},
    gather::Gather,
    options::Bytes,
    rio::streams::{Idle, Receiving, StreamNeeds},
    tcp::{ActiveSet, Handler, Job, Running},
};

design! {
    tcp::Ring "ring", Rio;
    summary: "each thread writes requests into a ring and takes completions from it";
    origin: "io_uring, Linux 5.1 and 6.0";
    options {
        /// Threads, each with a ring and connections of its own; 0 for as many as there are cores.
        threads: u32 = 0, 0..=256;
        /// Most slices of a ring that its connections receive into; it begins with 64 and gets more if they
        /// run short.
        slices: u32 = 512, 4..=32_768;
        /// Most rings of a thread; 0 for as many as the connection limit requires.
        rings: u32 = 0, 0..=1024;
        /// What an idle connection waits with.
        idle: Idle = Idle::Receive, Idle::NAMES;
        /// Size from which sends are zero-copy; 0 for never.
        zero_copy: u32 = 0, Bytes(0..=16_777_216);
        /// How long messages may gather before a wait ends, and how many are enough (can be changed while it runs).
        gather: Gather = Gather::NONE, Gather::LIMITS;
    }
    provider: |design| engine::provider(design.receiving());
    availability: |design| engine::availability(design.receiving());
    resolve: |design| or_cores(&mut design.threads);
    active_set: |design| ActiveSet::of(design.threads);
}

impl Ring {
    fn begin<H: Handler>(self, job: Job<H>) -> Result<Running, Error> {
        let needs = needs(&job, self.slices, self.idle, self.rings, self.zero_copy);
        let gather = job.gathers(self.gather);
        engine::start(job, self.threads, needs, gather, || ())
    }

    fn receiving(&self) -> Receiving {
        Receiving::Shared { slices: self.slices, idle: self.idle }
    }
}

/// Most bytes of the slices of one ring: fewer where each is long.
const MOST_BYTES: usize = 64 * 1024 * 1024;

/// What the designs need that receive into slices which connections share.
pub(super) fn needs<H: Handler>(
    job: &Job<H>,
    slices: u32,
    idle: Idle,
    rings: u32,
    zero_copy: u32,
) -> StreamNeeds {
    let slices = slices.min((MOST_BYTES / job.buffer_bytes) as u32).max(4);
    StreamNeeds {
        slice_bytes: job.buffer_bytes,
        connections: job.limits.connections,
        receiving: Receiving::Shared { slices, idle },
        tables: rings,
        zero_copy_bytes: (zero_copy > 0).then_some(zero_copy as usize),
    }
}
