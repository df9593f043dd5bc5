//! What the designs share that receive a batch with one call: their buffers, and what becomes of
//! a batch.

use super::{Handler, Worker};
use crate::{
    memory::{Region, Slice},
    socket::{DatagramSocket, Headers, Mode, Peer},
};
use std::{io, sync::Arc};

/// What a thread receives into, and what it sends back.
pub(super) struct Buffers {
    headers: Headers,
    /// One buffer for each datagram of a batch.
    payloads: Vec<Slice>,
    /// Which of them go back to their source, and how much of each.
    echoes: Vec<(usize, usize, Peer)>,
}

impl Buffers {
    /// Takes so many slices of the pool, as far as there are that many.
    pub(super) fn new(region: &Arc<Region>, batch: usize) -> Self {
        Self {
            headers: Headers::new(batch),
            payloads: (0..batch).filter_map(|_| region.take()).collect(),
            echoes: Vec::with_capacity(batch),
        }
    }

    /// The most datagrams of one batch.
    pub(super) fn len(&self) -> usize {
        self.payloads.len()
    }

    /// Receives a batch with one call; says how many datagrams came.
    #[inline]
    pub(super) fn receive<H: Handler>(
        &mut self,
        worker: &Worker<H>,
        socket: &DatagramSocket,
        mode: Mode,
    ) -> io::Result<usize> {
        socket.receive_many(&mut self.headers, &mut self.payloads, mode, &worker.counters)
    }
}

/// Gives the first `received` datagrams to the handler, and sends what it answers.
#[inline]
pub(super) fn handle<H: Handler>(
    worker: &mut Worker<H>,
    socket: &DatagramSocket,
    number: u32,
    buffers: &mut Buffers,
    received: usize,
) {
    let Buffers { headers, payloads, echoes } = buffers;
    for (i, payload) in payloads.iter_mut().enumerate().take(received) {
        let arrival = headers.arrival(i);
        if worker.deliver(payload.payload_mut(), &arrival, number) {
            echoes.push((i, arrival.len, arrival.peer()));
        }
        if worker.has_replies() {
            worker.flush(|bytes, to, counters| socket.send(bytes, to, counters));
        }
    }
    worker.batch_end();
    if !echoes.is_empty() {
        reply(worker, socket, buffers);
    }
}

/// Sends the echoes of a batch, with as few calls as the system takes.
fn reply<H: Handler>(worker: &mut Worker<H>, socket: &DatagramSocket, buffers: &mut Buffers) {
    let Buffers { headers, payloads, echoes } = buffers;
    let mut next = 0;
    while next < echoes.len() {
        let datagram = |i: usize| {
            let (payload, len, to) = echoes[next + i];
            (&payloads[payload].payload()[..len], to)
        };
        match socket.send_many(headers, echoes.len() - next, datagram, &worker.counters) {
            Ok(sent) => {
                worker.counters.replies.add(sent as u64);
                next += sent;
            }
            Err(e) => {
                // The first one was not taken: count it, and go on with those behind it.
                worker.sent(Err(e));
                next += 1;
            }
        }
    }
    echoes.clear();
}
