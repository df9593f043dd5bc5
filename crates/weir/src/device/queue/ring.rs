//! `ring`: one thread keeps reads outstanding on a ring.
//!
//! Reads are written into a queue in memory, one entry into the kernel starts a batch of them and waits
//! for the first to be over, and what is over is read from a second queue. So an entry is shared by a
//! batch; what each I/O still costs is a request in the kernel: taken from a cache, filled, the file
//! looked up and held, and a completion written. It pays where I/Os take time, since a device gets `depth`
//! of them at once from one thread. It fails to pay where a device answers at once and its driver does
//! less than the request costs: then it saves entries, and spends them on requests.
//!
//! Origin: io_uring, Linux 5.1; IORING_OP_READ, 5.6.

use super::engine::ring_design;
use crate::device::io::{self, Operation, Shape};

ring_design! {
    Ring "ring";
    summary: "one thread keeps reads outstanding on a ring, and starts a batch with one system call";
    origin: "io_uring, Linux 5.1";
    options {
        /// Reads outstanding.
        depth: u32 = 128, 1..=io::MOST_DEPTH;
        /// Most reads started by one entry into the kernel.
        batch: u32 = 32, 1..=io::MOST_DEPTH;
        /// Fewest completions that a wait waits for.
        complete_min: u32 = 1, 1..=io::MOST_DEPTH;
    }
    shape: |_, depth| Shape { depth, operation: Operation::Plain, polls: None };
    complete_min: |design| design.complete_min;
}
