//! `no-op`: one thread keeps requests outstanding that do nothing.
//!
//! As `ring`, but no file, no driver, no memory: a request is taken from the kernel's cache and completed.
//! That is the floor under every other design on a ring; what they cost more is what their I/Os cost. The
//! device is opened all the same, and never touched. It has no use but that.
//!
//! Origin: io_uring, Linux 5.1: IORING_OP_NOP.

use super::{engine::Sizes, on_a_ring};
use crate::{
    device::{
        Wants,
        io::{self, Operation, Shape},
    },
    options::options,
};

options! {
    /// Options of the design `no-op`.
    #[derive(Copy, Eq)]
    pub struct NoOp {
        /// Requests outstanding.
        depth: u32 = 128, 1..=io::MOST_DEPTH;
        /// Most requests started by one entry into the kernel.
        batch: u32 = 128, 1..=io::MOST_DEPTH;
    }
}

on_a_ring!(
    NoOp,
    "no-op",
    "one thread keeps requests outstanding on a ring that do nothing: the floor",
    "io_uring, Linux 5.1: IORING_OP_NOP",
    Wants::Nothing
);

impl NoOp {
    fn sizes(&self) -> Sizes {
        Sizes { depth: self.depth, batch: self.batch, complete_min: 1 }
    }

    fn shape(&self, depth: u32) -> Shape {
        Shape { depth, operation: Operation::NoOp, polls: None }
    }
}
