//! `port`: threads take one completion at a time from a completion port.
//!
//! Receives are posted with a buffer each, far more than there are threads, and whichever thread
//! is free takes the next completion, handles the datagram and posts the buffer again. At most
//! as many threads run as there are cores, and the last one to wait is woken first, so a thread
//! that blocks is made up for and few are used while few are needed. It costs a trip through the
//! port for every datagram. It fails to scale where each datagram wakes a thread: a second thread
//! waits in the port whenever a first one handles, and the two take turns.
//!
//! Where the kernel wakes every receive that is armed on a socket, only as many are given to it as come
//! at once (or as `armed` says), the others wait in a list, and posts are submitted `submit-after` at a time. The
//! shape of the original, everything armed and a call for each post, is `--armed 5000
//! --submit-after 1`.
//!
//! On io_uring the thread that submitted a receive copies what came for it: the one that leads,
//! which as a rule takes next.
//!
//! Origin: the IOCP servers of Holgate's study (2011), with 1 and with 8 threads.

use super::engine::{self, PortServer, port_design};
use crate::{
    Error,
    port::{self, Shape, Taken, Worker as _},
    udp::{Handler, Worker},
};

port_design! {
    Port "port";
    summary: "threads take one completion at a time from a completion port";
    origin: "IOCP with 1 and 8 threads, Holgate 2011";
    options of its own {}
    run: |_: Self| run;
}

impl Port {
    /// As the original does it: 5000 receives armed, and a call for each that is posted again.
    pub fn original() -> Self {
        let Shape { armed, submit_after, .. } = Shape::original(Self::default().outstanding);
        Self { armed, submit_after, ..Self::default() }
    }
}

fn run<H: Handler, P: port::Port>(
    worker: &mut Worker<H>,
    server: &PortServer<P>,
) -> Result<(), Error> {
    let mut taker = engine::join(worker, server)?;
    let mut taken = Taken::new(1);
    while engine::take(worker, server, &mut taker, &mut taken)? {
        handle(worker, server, &mut taker, &mut taken)?;
    }
    Ok(())
}

/// Handles the one completion of a take, and posts its slice again.
#[inline]
fn handle<H: Handler, P: port::Port>(
    worker: &mut Worker<H>,
    server: &PortServer<P>,
    taker: &mut P::Worker<'_>,
    taken: &mut Taken,
) -> Result<(), Error> {
    let Some(completion) = taken.first_mut() else { return Ok(()) };
    let delivered = engine::deliver(worker, server, taker, completion);
    for completion in taken.drain() {
        // A slice that is one too many (it was a reply's) returns to the pool by being dropped.
        if let Some((socket, slice)) = engine::settle(worker, taker, completion, &delivered)?
            && taker.receive(socket, slice).is_ok()
        {
            worker.counters.posts.one();
        }
    }
    engine::batch_end(worker, server, taker, delivered.received);
    Ok(())
}
