//! `rio-tcp`: registered I/O for TCP, each receive with a slice of its own.
//!
//! It is `ring` as Windows' registered I/O would have it: a slice is posted for each connection before
//! anything comes, and comes back with what was received. So receiving needs no choice of a buffer and
//! nobody starves another, and each connection, idle or not, holds as many slices as are posted for it
//! (`--posts`): that is what it costs beside a post for each message. Where all slices are posted a connection
//! waits for one (`--slices`).
//!
//! On io_uring the kernel holds one of a connection's slices at a time, and the others follow: several receives
//! at once would complete in any order.
//!
//! Origin: registered I/O, Windows 8, for TCP: left open by Holgate's study of UDP (2012).

use super::engine;
use crate::{
    Error,
    design::{design, or_cores},
    gather::Gather,
    rio::streams::{Receiving, StreamNeeds},
    tcp::{ActiveSet, Handler, IdleHolds, Job, Running},
};

design! {
    tcp::RioTcp "rio-tcp", Rio;
    summary: "each thread posts a slice for every connection and takes completions";
    origin: "registered I/O, Windows 8; left open by Holgate 2012";
    options {
        /// Threads, each with a queue and connections of its own; 0 for as many as there are cores.
        threads: u32 = 0, 0..=256;
        /// Slices posted for each connection.
        posts: u32 = 1, 1..=16;
        /// Slices of a thread; 0 for as many as its connections may post, and for their answers.
        slices: u32 = 0, 0..=16_777_216;
        /// Most tables of connections of a thread; 0 for as many as the connection limit requires.
        tables: u32 = 0, 0..=1024;
        /// How long messages may gather before a wait ends, and how many are enough (can be changed while it runs).
        gather: Gather = Gather::NONE, Gather::LIMITS;
    }
    provider: |design| engine::provider(design.receiving());
    availability: |design| engine::availability(design.receiving());
    resolve: |design| or_cores(&mut design.threads);
    active_set: |design| ActiveSet::of(design.threads);
    idle_holds: |_| IdleHolds::Buffer(
        "the slices posted for it: a receive names its slice beforehand",
    );
}

impl RioTcp {
    fn begin<H: Handler>(self, job: Job<H>) -> Result<Running, Error> {
        let needs = self.needs(&job);
        let gather = job.gathers(self.gather);
        engine::start(job, self.threads, needs, gather, || ())
    }

    fn receiving(&self) -> Receiving {
        Receiving::Posted { each: self.posts, slices: self.slices }
    }
}

/// Most bytes of the slices of a thread, of address space: memory is taken as they are used.
const MOST_BYTES: usize = 1024 * 1024 * 1024;

/// Slices for answers under way, beside those that are posted.
const ANSWERS: u32 = 1024;

impl RioTcp {
    fn needs<H: Handler>(&self, job: &Job<H>) -> StreamNeeds {
        let posted = job.limits.connections.saturating_mul(self.posts).saturating_add(ANSWERS);
        let slices = if self.slices == 0 { posted } else { self.slices };
        let slices = slices.min((MOST_BYTES / job.buffer_bytes) as u32).max(4);
        StreamNeeds {
            slice_bytes: job.buffer_bytes,
            connections: job.limits.connections,
            receiving: Receiving::Posted { each: self.posts, slices },
            tables: self.tables,
            zero_copy_bytes: None,
        }
    }
}
