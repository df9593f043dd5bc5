//! `port-batch`: threads take many completions at a time from a completion port.
//!
//! As `port`, but a take brings whatever has finished, up to `batch`, and the buffers are posted
//! again together. So the trip through the port is shared by all that came meanwhile, and the
//! faster the datagrams come the less each costs. With several threads one of them takes all
//! that is there and the others find nothing: threads are used by turns, not side by side, until
//! one batch takes longer to handle than the next takes to come. When datagrams come slowly a
//! batch is one, and the design is `port`.
//!
//! On io_uring the thread that submitted a receive copies what came for it: the one that leads,
//! which as a rule takes next.
//!
//! Origin: the "IOCP + GQCSEx" server of Holgate's study (2011).

use super::engine::{self, PortServer, port_design};
use crate::{
    Error,
    memory::Slice,
    port::{Port, SocketId, Taken, Worker as Taker},
    udp::{Handler, Worker},
};

port_design! {
    PortBatch "port-batch";
    summary: "threads take up to a batch of completions at a time from a completion port";
    origin: "IOCP + GQCSEx, Holgate 2012";
    options of its own {
        /// Most completions of one take.
        batch: u32 = 1000, 1..=65_536;
    }
    run: |design: Self| move |worker: &mut _, server: &_| run(worker, server, design.batch as usize);
}

fn run<H: Handler, P: Port>(
    worker: &mut Worker<H>,
    server: &PortServer<P>,
    batch: usize,
) -> Result<(), Error> {
    let mut taker = engine::join(worker, server)?;
    let mut taken = Taken::new(batch);
    let mut again = Again { socket: None, slices: Vec::with_capacity(batch) };
    while engine::take(worker, server, &mut taker, &mut taken)? {
        handle(worker, server, &mut taker, &mut taken, &mut again)?;
    }
    Ok(())
}

/// Handles what one take brought, and posts the slices again together.
#[inline]
fn handle<H: Handler, P: Port>(
    worker: &mut Worker<H>,
    server: &PortServer<P>,
    taker: &mut P::Worker<'_>,
    taken: &mut Taken,
    again: &mut Again,
) -> Result<(), Error> {
    let mut received = 0;
    for mut completion in taken.drain() {
        let delivered = engine::deliver(worker, server, taker, &mut completion);
        received += delivered.received;
        if let Some((socket, slice)) = engine::settle(worker, taker, completion, &delivered)? {
            again.add(worker, taker, socket, slice);
        }
    }
    again.post(worker, taker);
    engine::batch_end(worker, server, taker, received);
    Ok(())
}

/// Slices to be posted again together: all of one socket.
struct Again {
    socket: Option<SocketId>,
    slices: Vec<Slice>,
}

impl Again {
    /// Adds a slice. Slices of another socket are posted first.
    #[inline]
    fn add<H: Handler>(
        &mut self,
        worker: &Worker<H>,
        taker: &mut impl Taker,
        socket: SocketId,
        slice: Slice,
    ) {
        if self.socket != Some(socket) {
            self.post(worker, taker);
            self.socket = Some(socket);
        }
        self.slices.push(slice);
    }

    /// Posts them. A slice that is one too many (it was a reply's), or comes after the end,
    /// returns to the pool by being dropped.
    #[inline]
    fn post<H: Handler>(&mut self, worker: &Worker<H>, taker: &mut impl Taker) {
        let before = self.slices.len();
        let Some(socket) = self.socket else { return };
        let _ = taker.receive_all(socket, &mut self.slices);
        worker.counters.posts.add((before - self.slices.len()) as u64);
        self.slices.clear();
    }
}
