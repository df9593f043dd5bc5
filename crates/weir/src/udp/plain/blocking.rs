//! `blocking`: each thread receives one datagram after the other.
//!
//! The oldest design, and the one to beat: a thread asks for a datagram and sleeps until
//! there is one. It costs one entry into the kernel for each datagram and, when they come
//! slowly, one sleep and one wake-up; when they come fast the thread never sleeps.
//! It fails where a datagram costs less than the call that fetches it, and where one
//! thread must watch many sockets.
//!
//! Origin: the "polled UDP" server of Holgate's study (2011), with recvfrom in a loop.

use super::engine;
use crate::{
    Error,
    design::design,
    gather::Gather,
    memory::Slice,
    socket::{DatagramSocket, Mode},
    udp::{Handler, Job, Running, Worker},
};

design! {
    udp::Blocking "blocking", Socket;
    summary: "each thread receives one datagram per blocking call";
    origin: "polled UDP, Holgate 2011; recvfrom(2) in a loop";
    options {
        /// Threads that receive on each address.
        threads: u32 = 1, 1..=256;
        /// How long datagrams may gather before a wait ends, and how many are enough (can be changed while it runs).
        gather: Gather = Gather::NONE, Gather::LIMITS;
    }
    provider: |_| crate::socket::PROVIDER;
    availability: |_| Ok(());
}

impl Blocking {
    fn begin<H: Handler>(self, job: Job<H>) -> Result<Running<H>, Error> {
        engine::start_blocking(job, self.threads, 1, self.gather, engine::one, receive)
    }
}

/// Receives one datagram; the loop around it is [`engine::start_blocking`].
fn receive<H: Handler>(
    worker: &mut Worker<H>,
    socket: &DatagramSocket,
    number: u32,
    buffer: &mut Slice,
    mode: Mode,
) -> Result<usize, Error> {
    match socket.receive(buffer.payload_mut(), mode, &worker.counters) {
        Ok(Some(arrival)) => {
            worker.counters.dequeued(arrival.datagrams());
            engine::handle_one(worker, socket, number, buffer.payload_mut(), &arrival);
            engine::batch_end(worker);
            Ok(arrival.datagrams())
        }
        Ok(None) => Ok(0),
        Err(e) => worker.receive_failed(e).map(|()| 0),
    }
}
