//! What the designs share that receive a batch with one call: their buffers, and what becomes of
//! a batch.

use crate::{
    memory::{Region, Slice},
    socket::{DatagramSocket, Headers, Mode, Peer, Span},
    udp::{Handler, Worker},
};
use std::{io, sync::Arc};

/// What a thread receives into, and what it sends back.
pub(super) struct Buffers {
    headers: Headers,
    /// One buffer for each datagram of a batch.
    payloads: Vec<Slice>,
    /// Which of them go back to their source, and what of each.
    echoes: Vec<(usize, Span, Peer)>,
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

    /// How many buffers a batch has.
    pub(super) fn len(&self) -> usize {
        self.payloads.len()
    }

    /// Receives a batch with one call; says how many buffers were filled.
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

/// Gives what came in the first `filled` buffers to the handler, and sends what it answers. Counts
/// it as one dequeue, and says how many datagrams it brought.
#[inline]
pub(super) fn handle<H: Handler>(
    worker: &mut Worker<H>,
    socket: &DatagramSocket,
    number: u32,
    buffers: &mut Buffers,
    filled: usize,
) -> usize {
    let Buffers { headers, payloads, echoes } = buffers;
    let mut datagrams = 0;
    for (i, payload) in payloads.iter_mut().enumerate().take(filled) {
        let arrival = headers.arrival(i);
        datagrams += arrival.datagrams();
        let flush = |worker: &mut Worker<H>| worker.flush_to(socket);
        if let Some(echo) = worker.deliver(payload.payload_mut(), &arrival, number, flush) {
            echoes.push((i, echo, arrival.peer()));
        }
        if worker.has_replies() {
            worker.flush_to(socket);
        }
    }
    worker.counters.dequeued(datagrams);
    worker.batch_end();
    if !echoes.is_empty() {
        reply(worker, socket, buffers);
    }
    datagrams
}

/// Sends the echoes of a batch, with as few calls as the system takes.
fn reply<H: Handler>(worker: &mut Worker<H>, socket: &DatagramSocket, buffers: &mut Buffers) {
    let Buffers { headers, payloads, echoes } = buffers;
    let mut next = 0;
    while next < echoes.len() {
        let span = |i: usize| {
            let (payload, span, to) = echoes[next + i];
            (&payloads[payload].payload()[..span.len], span.segment, to)
        };
        match socket.send_many(headers, echoes.len() - next, span, &worker.counters) {
            Ok(taken) => {
                let sent = echoes[next..next + taken].iter().map(|(_, span, _)| span.datagrams());
                worker.counters.replies.add(sent.sum::<usize>() as u64);
                next += taken;
            }
            Err(e) => {
                // The first one was not taken: count it, and go on with those behind it.
                let (payload, span, to) = echoes[next];
                worker.echo_refused(socket, payloads[payload].payload(), span, &to, e);
                next += 1;
            }
        }
    }
    echoes.clear();
}
