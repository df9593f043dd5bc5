//! `no-op`: one thread keeps requests outstanding that do nothing.
//!
//! As `ring`, but no file, no driver, no memory: a request is taken from the kernel's cache and completed.
//! That is the floor under every other design on a ring; what they cost more is what their I/Os cost. The
//! device is opened all the same, and never touched. It has no use but that.
//!
//! Origin: io_uring, Linux 5.1: IORING_OP_NOP.

use super::engine::ring_design;
use crate::device::{
    Wants,
    io::{self, Operation, Shape},
};

ring_design! {
    NoOp "no-op";
    summary: "one thread keeps requests that do nothing outstanding on a ring: the lower bound";
    origin: "io_uring, Linux 5.1: IORING_OP_NOP";
    options {
        /// Requests outstanding.
        depth: u32 = 128, 1..=io::MOST_DEPTH;
        /// Most requests started by one entry into the kernel.
        batch: u32 = 128, 1..=io::MOST_DEPTH;
    }
    shape: |_, depth| Shape { depth, operation: Operation::NoOp, polls: None };
    complete_min: |_| 1;
    wants: |_| Wants::Nothing;
}
