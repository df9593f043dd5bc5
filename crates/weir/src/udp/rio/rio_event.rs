//! `rio-event`: one thread asks to be told, waits, and takes what has come.
//!
//! The plainest use of registered I/O: notify, wait, dequeue, handle. Receives are posted
//! without a call, and one wait brings everything that came meanwhile, so the faster the
//! datagrams come the less each of them costs. When they come slowly each costs a sleep
//! and a wake-up, as in every design that waits.
//!
//! On io_uring this thread copies, when it enters the kernel.
//!
//! Origin: the "RIO event" server of Holgate's study (2011).

use super::engine::{OwnQueue, design_of_one_thread};
use crate::{Error, rio::CompletionQueue, udp::Handler};

design_of_one_thread! {
    RioEvent "rio-event";
    summary: "one thread waits for registered I/O to complete and takes everything that has completed";
    origin: "RIO event, Holgate 2011";
    waits: gather;
    step: step;
}

/// What the thread does again and again.
fn step<H: Handler, Q: CompletionQueue>(queue: &mut OwnQueue<'_, H, Q>) -> Result<(), Error> {
    queue.wait()?;
    match queue.dequeue()? {
        true => queue.handle(),
        false => Ok(()),
    }
}
