//! `rio-event-polled`: as `rio-event`, but looks again before it asks to be told.
//!
//! After each batch the thread dequeues once more, and only when that brought nothing does it
//! notify and wait. Under load it hardly ever waits: what came while the last batch was handled
//! is there already, and the notification and the wait are saved. When datagrams come slowly it
//! costs one empty look for each of them, and waits as `rio-event` does.
//!
//! On io_uring this thread copies, when it enters the kernel.
//!
//! Origin: the "RIO event, polled" server of Holgate's study (2012).

use super::engine::{OwnQueue, design_of_one_thread};
use crate::{Error, rio::CompletionQueue, udp::Handler};

design_of_one_thread! {
    RioEventPolled "rio-event-polled";
    summary: "one thread dequeues in a loop and sleeps only after an empty dequeue";
    origin: "RIO event polled, Holgate 2012";
    waits: gather;
    step: step;
}

/// What the thread does again and again.
pub(super) fn step<H: Handler, Q: CompletionQueue>(
    queue: &mut OwnQueue<'_, H, Q>,
) -> Result<(), Error> {
    match queue.dequeue()? {
        true => queue.handle(),
        false => queue.wait(),
    }
}
