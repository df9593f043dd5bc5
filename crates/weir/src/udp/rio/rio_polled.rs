//! `rio-polled`: one thread spins on the completion queue of registered I/O.
//!
//! It never sleeps, so it answers as fast as the machine can, and it burns a core whether
//! datagrams come or not. On a provider whose kernel work runs in this thread (io_uring,
//! deferred) an empty dequeue enters the kernel; on one with a kernel thread it only reads
//! memory. It fails where cores are scarce: on a core that it shares with the sender it
//! takes the time that the sender needs.
//!
//! On io_uring this thread copies, when it enters the kernel.
//!
//! Origin: the "RIO polled" server of Holgate's study (2011).

use super::engine::{OwnQueue, design_of_one_thread};
use crate::{Error, rio::CompletionQueue, udp::Handler};

design_of_one_thread! {
    RioPolled "rio-polled";
    summary: "one thread spins on the completion queue of registered I/O";
    origin: "RIO polled, Holgate 2011";
    step: step;
}

/// What the thread does again and again.
fn step<H: Handler, Q: CompletionQueue>(queue: &mut OwnQueue<'_, H, Q>) -> Result<(), Error> {
    match queue.dequeue()? {
        true => queue.handle()?,
        false => std::hint::spin_loop(),
    }
    Ok(())
}
