//! `uring-cmd`: one thread keeps control calls outstanding on a ring.
//!
//! The asynchronous form of `control`: a command goes through the ring to the driver, which may complete it at
//! once or later. It costs what `ring` costs but for the read: a request taken from a cache, the file looked
//! up and held, a completion written. It pays where drivers offer more than reads and writes (disks pass
//! their own commands like that) and several are to be under way. It fails to pay where a call is over at
//! once: then it saves entries, and spends them on requests.
//!
//! As `control`, it runs on weir's own nothing device only.
//!
//! Origin: io_uring, Linux 5.19: IORING_OP_URING_CMD.

use super::engine::ring_design;
use crate::device::{
    Wants,
    io::{self, Operation, Shape},
};

ring_design! {
    UringCmd "uring-cmd";
    summary: "one thread keeps control calls outstanding on a ring";
    origin: "io_uring, Linux 5.19: IORING_OP_URING_CMD";
    options {
        /// Control calls outstanding.
        depth: u32 = 128, 1..=io::MOST_DEPTH;
        /// Most of them started by one entry into the kernel.
        batch: u32 = 32, 1..=io::MOST_DEPTH;
        /// Fewest completions that a wait waits for.
        complete_min: u32 = 1, 1..=io::MOST_DEPTH;
    }
    shape: |_, depth| Shape { depth, operation: Operation::Command, polls: None };
    complete_min: |design| design.complete_min;
    wants: |_| Wants::Calls;
}
