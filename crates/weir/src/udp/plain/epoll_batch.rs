//! `epoll-batch`: each thread is told which sockets are ready, and takes batches from them.
//!
//! As `epoll`, but a call brings up to `batch` datagrams. A call that brings fewer says that the
//! socket is empty, so there is none that finds nothing, and the entry of the wait is shared by
//! all that came meanwhile. After `drain` datagrams from one socket the next one has its turn (the
//! set is level-triggered: what is left is told again). When datagrams come slowly each costs a
//! wait and a call, and there is more to set up for it than in `epoll`.
//!
//! Origin: epoll(7), Linux 2.6, with recvmmsg(2), Linux 2.6.33.

use super::engine::{self, Buffers, Drained};
use crate::{
    Error,
    design::design,
    gather::Gather,
    readiness::Epoll as EpollSet,
    socket::{DatagramSocket, Mode},
    udp::{Handler, Job, Running, Worker},
};

design! {
    udp::EpollBatch "epoll-batch", Epoll on EpollSet;
    summary: "each thread waits until sockets are ready and takes batches from them, up to a limit";
    origin: "epoll(7) and recvmmsg(2), Linux 2.6.33";
    options {
        /// Threads, each with its own set, which holds every socket.
        threads: u32 = 1, 1..=256;
        /// Most datagrams received by one call.
        batch: u32 = 32, 1..=1024;
        /// Datagrams received from a socket for one wake-up after which the next has its turn.
        drain: u32 = 256, 1..=65_536;
        /// How long datagrams may gather before a wait ends, and how many are enough (can be changed while it runs).
        gather: Gather = Gather::NONE, Gather::LIMITS;
    }
}

impl EpollBatch {
    fn begin<H: Handler>(self, job: Job<H>) -> Result<Running<H>, Error> {
        EpollSet::availability()?;
        job.state("one-call-per-batch", crate::socket::BATCHES_IN_ONE_CALL);
        let buffers = |region: &_| Buffers::new(region, self.batch as usize);
        let most = self.drain as usize;
        engine::start_epoll(
            job,
            self.threads,
            self.batch,
            self.gather,
            buffers,
            move |worker, socket, number, buffers| drain(worker, socket, number, buffers, most),
        )
    }
}

/// Takes batches from a socket that is ready until one is short, or the bound is reached.
fn drain<H: Handler>(
    worker: &mut Worker<H>,
    socket: &DatagramSocket,
    number: u32,
    buffers: &mut Buffers,
    most: usize,
) -> Result<Drained, Error> {
    let (mut taken, mut left) = (0, true);
    while taken < most {
        let filled = match buffers.receive(worker, socket, Mode::Try) {
            Ok(0) => {
                worker.counters.dequeued(0);
                left = false;
                break;
            }
            Ok(filled) => filled,
            Err(e) => {
                worker.receive_failed(e)?;
                taken += 1; // an error that was pending was one call, as a datagram is
                continue;
            }
        };
        taken += engine::handle_batch(worker, socket, number, buffers, filled)?;
        if filled < buffers.len() {
            left = false;
            break;
        }
    }
    Ok(Drained { datagrams: taken, left })
}
