//! `ring-polled`: as `ring`, and a thread of the kernel looks for what is to be started.
//!
//! While that thread is awake the program never enters the kernel: it writes into one queue and reads from
//! the other. It costs a second core, which is busy as long as there is something to do and 10 ms longer;
//! its time counts as this process's. It runs on any core, or, where the program keeps to several of more, on the
//! second of those. After so many looks that found nothing the program waits in the
//! kernel after all. It fails where there is no second core, since then the two wait for each other's
//! turn, and where an I/O costs less than the way of its queue entry from one core to the other.
//!
//! Origin: io_uring, Linux 5.1: IORING_SETUP_SQPOLL; without privilege since 5.13.

use super::engine::ring_design;
use crate::{
    device::io::{self, Operation, Shape},
    options::Named,
};

ring_design! {
    RingPolled "ring-polled";
    summary: "a kernel thread starts the reads, so the program enters the kernel only to wait";
    origin: "io_uring, Linux 5.1: SQPOLL";
    options {
        /// Reads outstanding.
        depth: u32 = 128, 1..=io::MOST_DEPTH;
        /// Most reads started at a time.
        batch: u32 = 32, 1..=io::MOST_DEPTH;
        /// Looks that find nothing before the program waits in the kernel.
        polls: u32 = 10_000, 1..=1_000_000_000;
        /// Whether file and memory are registered with the ring, as in ring-registered.
        registered: bool = true, Named(&["true", "false"]);
    }
    shape: |design, depth| {
        let operation =
            if design.registered { Operation::Registered } else { Operation::Plain };
        Shape { depth, operation, polls: Some(design.polls) }
    };
    complete_min: |_| 1;
}
