//! `epoll`: each thread is told which sockets are ready, and receives from them.
//!
//! One thread can watch many sockets. After a wake-up it drains the socket, one datagram a
//! call, but at most `drain` of them, so that one busy socket cannot starve the others (the
//! set is level-triggered: what is left is told again). It costs the entry of the wait on top
//! of one entry for each datagram; draining shares the wait among all that came meanwhile,
//! and a call that finds nothing is what it costs to know that the socket is empty.
//! With several threads on one socket all of them wake for a datagram that one of them gets.
//!
//! Origin: what a Linux engineer writes first; epoll(7), Linux 2.6.

use super::engine::{self, Drained};
use crate::{
    Error,
    design::design,
    gather::Gather,
    readiness::Epoll as EpollSet,
    socket::{DatagramSocket, Mode},
    udp::{Handler, Job, Running, Worker},
};

design! {
    udp::Epoll "epoll", Epoll on EpollSet;
    summary: "each thread waits until sockets are ready and drains them, up to a limit";
    origin: "epoll(7), Linux 2.6";
    options {
        /// Threads, each with its own set, which holds every socket.
        threads: u32 = 1, 1..=256;
        /// Most datagrams received from a socket for one wake-up.
        drain: u32 = 64, 1..=65_536;
        /// How long datagrams may gather before a wait ends, and how many are enough (can be changed while it runs).
        gather: Gather = Gather::NONE, Gather::LIMITS;
    }
}

impl Epoll {
    fn begin<H: Handler>(self, job: Job<H>) -> Result<Running<H>, Error> {
        EpollSet::availability()?;
        let most = self.drain;
        engine::start_epoll(
            job,
            self.threads,
            1,
            self.gather,
            engine::one,
            move |worker, socket, number, buffer| {
                drain(worker, socket, number, buffer.payload_mut(), most)
            },
        )
    }
}

/// Receives from a socket that is ready until it is empty, or the bound is reached. What one
/// wake-up brings from a socket is one batch.
fn drain<H: Handler>(
    worker: &mut Worker<H>,
    socket: &DatagramSocket,
    number: u32,
    buffer: &mut [u8],
    most: u32,
) -> Result<Drained, Error> {
    let (mut received, mut left) = (0, true);
    for _ in 0..most {
        let arrival = match socket.receive(buffer, Mode::Try, &worker.counters) {
            Ok(Some(arrival)) => arrival,
            Ok(None) => {
                left = false;
                break;
            }
            Err(e) => {
                worker.receive_failed(e)?;
                continue;
            }
        };
        received += arrival.datagrams();
        engine::handle_one(worker, socket, number, buffer, &arrival);
        engine::flush(worker);
    }
    worker.counters.dequeued(received);
    engine::batch_end(worker);
    Ok(Drained { datagrams: received, left })
}
