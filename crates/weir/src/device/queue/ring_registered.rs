//! `ring-registered`: as `ring`, with a file and memory that the ring knows.
//!
//! The file is put into the ring's table once, and the memory is pinned once. So an I/O neither looks a
//! descriptor up and holds its file, nor finds and pins the pages that it reads into. What is left of its
//! cost is the request itself. It costs memory that stays locked (the limit is `ulimit -l`) and cannot be
//! swapped; on Linux 6.1 taking them back takes a second at the end of a run, on 6.12 no time. It fails, at the
//! start, where more is asked for than may be locked.
//!
//! Origin: io_uring, Linux 5.1: IORING_REGISTER_FILES, IORING_REGISTER_BUFFERS, IORING_OP_READ_FIXED.

use super::engine::ring_design;
use crate::device::io::{self, Operation, Shape};

ring_design! {
    RingRegistered "ring-registered";
    summary: "as ring, with file and memory registered with the ring";
    origin: "io_uring, Linux 5.1: registered files and buffers";
    options {
        /// Reads outstanding.
        depth: u32 = 128, 1..=io::MOST_DEPTH;
        /// Most reads started by one entry into the kernel.
        batch: u32 = 32, 1..=io::MOST_DEPTH;
        /// Fewest completions that a wait waits for.
        complete_min: u32 = 1, 1..=io::MOST_DEPTH;
    }
    shape: |_, depth| Shape { depth, operation: Operation::Registered, polls: None };
    complete_min: |design| design.complete_min;
}
