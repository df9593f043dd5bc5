//! `blocking`: each thread receives one datagram after the other.
//!
//! The oldest design, and the one to beat: a thread asks for a datagram and sleeps until
//! there is one. It costs one entry into the kernel for each datagram and, when they come
//! slowly, one sleep and one wake-up; when they come fast the thread never sleeps.
//! It fails where a datagram costs less than the call that fetches it, and where one
//! thread must watch many sockets.
//!
//! Origin: the "polled UDP" server of Holgate's study (2011), with recvfrom in a loop.

use super::{About, Contract, Design, Handler, Job, Running, Worker};
use crate::{
    Error, Unavailable,
    options::options,
    socket::{DatagramSocket, Mode},
    wake::Waker,
};

options! {
    /// Options of the design `blocking`.
    pub struct Blocking {
        /// Threads that receive on each address.
        threads: u32 = 1, 1..=256;
    }
}

impl Design for Blocking {
    const ABOUT: About = About {
        name: "blocking",
        summary: "each thread receives one datagram after the other and sleeps in between",
        origin: "polled UDP, Holgate 2011; recvfrom(2) in a loop",
        contract: Contract::Socket,
    };

    fn start<H: Handler>(self, mut job: Job<H>) -> Result<Running<H>, Error> {
        let sockets = job.bind()?;
        let threads = self.threads as usize * sockets.len();
        for thread in 0..threads {
            let number = thread % sockets.len();
            let socket = sockets[number].clone();
            job.spawn(threads, move |worker| run(worker, &socket, number as u32))?;
        }
        job.run()
    }

    fn availability(&self) -> Result<(), Unavailable> {
        Ok(())
    }
}

fn run<H: Handler>(
    worker: &mut Worker<H>,
    socket: &DatagramSocket,
    number: u32,
) -> Result<(), Error> {
    let mut buffer = vec![0; worker.payload_bytes()];
    let ending = socket.clone();
    worker.ready(Some(Waker::new(move || ending.end_receiving())));
    while !worker.stopping() {
        worker.counters.waits.one();
        let arrival = match socket.receive(&mut buffer, Mode::Wait, &worker.counters) {
            Ok(Some(arrival)) => arrival,
            Ok(None) => continue,
            Err(e) => {
                worker.receive_failed(e)?;
                continue;
            }
        };
        worker.counters.dequeued(1);
        handle(worker, socket, number, &mut buffer, &arrival);
    }
    Ok(())
}

#[inline]
fn handle<H: Handler>(
    worker: &mut Worker<H>,
    socket: &DatagramSocket,
    number: u32,
    buffer: &mut [u8],
    arrival: &crate::socket::Arrival,
) {
    if worker.deliver(buffer, arrival, number) {
        worker.sent(socket.send(&buffer[..arrival.len], &arrival.from, &worker.counters));
    }
    worker.batch_end();
    if worker.has_replies() {
        worker.flush(|bytes, to, counters| socket.send(bytes, &to.address, counters));
    }
}
