//! What the designs on a completion port share: opening the port, starting its threads, what
//! becomes of a completion, and giving everything back.

use crate::{
    Error, Unavailable,
    gather::{Asked, Gathering},
    lifecycle::{LeaveTogether, lock},
    memory::{Region, Slice},
    port::{
        Completion, Key, Native, Needs, Outcome, Port, Provider, Shape, SocketId, Span, Taken,
        Worker as Taker,
    },
    udp::{
        Handler, Job, Worker,
        job::{STOP_TIMEOUT, stop_deadline},
    },
};
use std::{
    cell::Cell,
    io,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

/// Declares a design whose threads share one port: beside what every design is, its own options, and its loop.
macro_rules! port_design {
    (
        $Design:ident $name:literal;
        summary: $summary:literal;
        origin: $origin:literal;
        options of its own { $($own:tt)* }
        run: $run:expr;
    ) => {
        $crate::design::design! {
            udp::$Design $name, Port;
            summary: $summary;
            origin: $origin;
            options {
                /// Threads that take from the port.
                threads: u32 = 8, 1..=256;
                /// Receives posted at a time.
                outstanding: u32 = 5000, 1..=1_000_000;
                $($own)*
                /// Receives that the kernel gets per socket; 0 for as many as arrive at once, 4 to 64.
                armed: u32 = $crate::port::Shape::BEST.armed, 0..=1_000_000;
                /// Posts that collect before a take that need not enter the kernel submits them.
                submit_after: u32 = $crate::port::Shape::BEST.submit_after, 1..=65_536;
                /// An operation that is done when its call returns is handled at once, without a packet to the port.
                skip_ready: bool = false, $crate::options::Named(&["true", "false"]);
                /// Most threads that run at a time; 0 for as many as there are cores.
                concurrency: u32 = 0, 0..=256;
                /// How long datagrams may gather before a wait ends, and how many are enough (can be changed while it runs).
                gather: $crate::gather::Gather =
                    $crate::gather::Gather::NONE, $crate::gather::Gather::LIMITS;
            }
            provider: |_| <$crate::port::Native as $crate::port::Provider>::NAME;
            availability: |design| $crate::udp::port::engine::availability(design.shape());
            parks_threads: |design| design.threads > 1;
        }

        impl $Design {
            fn shape(&self) -> $crate::port::Shape {
                let Self { armed, submit_after, skip_ready, .. } = *self;
                let best = $crate::port::Shape::BEST;
                $crate::port::Shape { armed, submit_after, skip_ready, ..best }
            }

            fn begin<H: $crate::udp::Handler>(
                self,
                mut job: $crate::udp::Job<H>,
            ) -> Result<$crate::udp::Running<H>, $crate::Error> {
                let Self { threads, outstanding, concurrency, .. } = self;
                let numbers =
                    $crate::udp::port::engine::Numbers { threads, outstanding, concurrency };
                let provider = $crate::port::Native { shape: self.shape() };
                let gather = job.gathers(self.gather);
                let server =
                    $crate::udp::port::engine::open(&mut job, &provider, numbers, gather)?;
                $crate::udp::port::engine::spawn(&mut job, threads, server, $run(self))?;
                job.run()
            }
        }
    };
}
pub(super) use port_design;

/// The numbers that both designs let one choose.
#[derive(Debug, Clone, Copy)]
pub(super) struct Numbers {
    pub(super) threads: u32,
    pub(super) outstanding: u32,
    pub(super) concurrency: u32,
}

/// A port with its sockets, and memory. The threads share it, and the last to leave stops it.
pub(super) struct PortServer<P> {
    port: P,
    region: Arc<Region>,
    sockets: Vec<SocketId>,
    outstanding: u32,
    /// What waits are asked for, and what decides how long they gather: that of whichever thread waits.
    gather: Asked,
    gathering: Mutex<Gathering>,
}

/// Whether a port can be had here: small needs, since what is asked is whether it runs at all.
pub(super) fn availability(shape: Shape) -> Result<(), Unavailable> {
    let needs = Needs {
        payload: 1,
        sockets: 1,
        receives: 1,
        sends: 0,
        packets: 0,
        threads: 1,
        concurrency: 1,
    };
    Native { shape }.layout(&needs).map(drop)
}

/// Makes the region as the provider wants it cut, opens the port, and associates the sockets.
pub(super) fn open<H: Handler, P: Provider>(
    job: &mut Job<H>,
    provider: &P,
    numbers: Numbers,
    gather: Asked,
) -> Result<PortServer<P::Port>, Error> {
    let Numbers { threads, outstanding, concurrency } = numbers;
    let sends = job.limits.sends();
    let needs = Needs {
        payload: job.slice_bytes(),
        sockets: job.endpoints.len() as u32,
        receives: outstanding,
        sends,
        packets: 0,
        threads,
        concurrency,
    };
    let layout = provider.layout(&needs)?;
    let region = Region::new(layout, outstanding.saturating_add(sends), job.region)?;
    let port = provider.open(&needs)?;
    job.make_room_for(outstanding);
    let sockets = job.bind()?;
    let associate = |(number, socket)| port.associate(socket, Key(number as u64));
    let sockets = sockets.into_iter().enumerate().map(associate).collect::<Result<Vec<_>, _>>()?;
    job.state_memory(std::slice::from_ref(&region));
    for (name, value) in port.granted() {
        job.state(name, value);
    }
    let gathering = Mutex::new(Gathering::new(gather.clone(), Instant::now()));
    Ok(PortServer { port, region, sockets, outstanding, gather, gathering })
}

/// Starts the threads. Each calls `run`, and the last to leave stops the port.
pub(super) fn spawn<H: Handler, P: Port>(
    job: &mut Job<H>,
    threads: u32,
    server: PortServer<P>,
    run: impl Fn(&mut Worker<H>, &PortServer<P>) -> Result<(), Error> + Clone + Send + 'static,
) -> Result<(), Error> {
    let closer = server.port.closer();
    job.on_stop(match job.hands_over {
        true => server.port.finisher(STOP_TIMEOUT),
        false => closer.clone(),
    });
    for server in LeaveTogether::shares(threads, server) {
        let run = run.clone();
        let spawned = job.spawn(move |worker| {
            let ended = Cell::new(false);
            let run = |worker: &mut Worker<H>, server: &PortServer<P>| {
                run(worker, server)?;
                worker.on_stop(&[]);
                ended.set(true);
                Ok(())
            };
            // Where it has ended it ends for the others, too, when they have sent what they have to send.
            let close = |server: &PortServer<P>| {
                if !ended.get() {
                    server.port.close();
                }
            };
            server.live(worker, run, close, |_, server| {
                // What did not come back is counted in the region, and told from there.
                let _ = server.port.stop(stop_deadline());
                Ok(())
            })
        });
        if spawned.is_err() {
            closer.wake();
            return spawned;
        }
    }
    Ok(())
}

/// Takes a place among the threads that take. The first thread posts the first receives.
pub(super) fn join<'p, H: Handler, P: Port>(
    worker: &mut Worker<H>,
    server: &'p PortServer<P>,
) -> Result<P::Worker<'p>, Error> {
    let mut taker = server.port.worker()?;
    if worker.index == 0 {
        let state = |name: &str, value: String| worker.state(name, value);
        *lock(&server.gathering) = server.gather.clone().begin(&taker.gathers(), state);
        post_all(worker, server, &mut taker)?;
    }
    worker.ready(None);
    Ok(taker)
}

/// Takes what has finished. False: the port was closed, or all that others do not go on with was handled.
#[inline]
pub(super) fn take<H: Handler, P: Port>(
    worker: &mut Worker<H>,
    server: &PortServer<P>,
    taker: &mut P::Worker<'_>,
    taken: &mut Taken,
) -> Result<bool, Error> {
    loop {
        worker.collect_errors();
        if worker.on_time() {
            flush(worker, server, taker);
        }
        let time_left = worker.time_left();
        let took = match server.gather.is_on() {
            true => take_gathered(worker, server, taker, taken, time_left),
            false => taker.take(taken, time_left, &worker.counters),
        };
        match took.map_err(|e| Error::io("taking completions", e))? {
            None => return Ok(false),
            Some(0) => {}
            Some(_) => return Ok(true),
        }
    }
}

/// Takes, and lets datagrams gather before a wait where that pays.
fn take_gathered<H: Handler, P: Port>(
    worker: &Worker<H>,
    server: &PortServer<P>,
    taker: &mut P::Worker<'_>,
    taken: &mut Taken,
    time_left: Option<Duration>,
) -> io::Result<Option<usize>> {
    let mut gather = || lock(&server.gathering).now();
    taker.take_gathered(taken, time_left, &mut gather, &worker.counters)
}

/// Starts the first receives, shared among the sockets.
fn post_all<H: Handler, P: Port>(
    worker: &Worker<H>,
    server: &PortServer<P>,
    taker: &mut P::Worker<'_>,
) -> Result<(), Error> {
    let sockets = server.sockets.iter().cycle();
    for (&socket, _) in sockets.zip(0..server.outstanding) {
        let Some(slice) = server.region.take() else { break };
        if taker.receive(socket, slice).is_err() {
            break; // closed already
        }
        worker.counters.posts.one();
    }
    taker.commit(&worker.counters).map_err(|e| Error::io("posting receives", e))
}

/// What the handler made of what came.
#[derive(Debug, Default)]
pub(super) struct Delivered {
    /// How many datagrams it was.
    pub(super) received: usize,
    /// What of it shall go back.
    echo: Option<Span>,
}

/// Gives what came to the handler, where it lies. What else completed is left to [`settle`].
#[inline]
pub(super) fn deliver<H: Handler, P: Port>(
    worker: &mut Worker<H>,
    server: &PortServer<P>,
    taker: &mut P::Worker<'_>,
    completion: &mut Completion,
) -> Delivered {
    let Completion::Operation { slice, key, outcome: Outcome::Received(arrival), .. } = completion
    else {
        return Delivered::default();
    };
    let mut flush = |worker: &mut Worker<H>| flush(worker, server, taker);
    let echo = worker.deliver(slice.payload_mut(), arrival, key.0 as u32, &mut flush);
    if worker.has_replies() {
        flush(worker);
    }
    Delivered { received: arrival.datagrams(), echo }
}

/// Says that the datagrams of one take, so many, are handled, and sends what the handler left.
#[inline]
pub(super) fn batch_end<H: Handler, P: Port>(
    worker: &mut Worker<H>,
    server: &PortServer<P>,
    taker: &mut P::Worker<'_>,
    received: usize,
) {
    worker.counters.dequeued(received);
    if server.gather.is_on() {
        // What the port has left is taken before it waits.
        lock(&server.gathering).dequeued(received, false, Instant::now);
    }
    worker.batch_end();
    if worker.has_replies() {
        flush(worker, server, taker);
    }
}

/// Sends what the handler left, from slices of the pool.
#[cold]
fn flush<H: Handler, P: Port>(
    worker: &mut Worker<H>,
    server: &PortServer<P>,
    taker: &mut P::Worker<'_>,
) {
    worker.post_replies(&server.region, |socket, slice, span, to| {
        taker.send(server.sockets[socket as usize], slice, span, to).is_ok()
    });
}

/// Sends back what shall go back of what came, or counts what else completed. Returns the slice that is to be posted
/// again, and for which socket.
#[inline]
pub(super) fn settle<H: Handler>(
    worker: &mut Worker<H>,
    taker: &mut impl Taker,
    completion: Completion,
    delivered: &Delivered,
) -> Result<Option<(SocketId, Slice)>, Error> {
    let Completion::Operation { mut slice, socket, outcome, .. } = completion else {
        return Ok(None); // this server posts no packets
    };
    match outcome {
        Outcome::Received(arrival) => {
            if let Some(span) = delivered.echo {
                match taker.send(socket, slice, span, &arrival.peer()) {
                    Ok(_) => return Ok(None),
                    Err((back, _)) => {
                        worker.counters.replies_refused.add(span.datagrams() as u64);
                        slice = back;
                    }
                }
            }
        }
        Outcome::Sent(span) => worker.counters.replies.add(span.datagrams() as u64),
        Outcome::NotSent(unsent) => worker.not_sent(&unsent),
        Outcome::Failed(e) => worker.receive_failed(e)?,
        Outcome::Returned => {}
    }
    Ok(Some((socket, slice)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        required::cannot_run,
        udp::{Datagram, Replies, Server},
    };
    use std::net::UdpSocket;

    /// A thread that panics with a datagram in its hands, alone and while another takes: the port
    /// is stopped by whichever leaves last.
    #[test]
    fn every_slice_comes_back_after_a_panic_outside_the_handler() {
        if cannot_run("port", availability(Shape::BEST)) {
            return;
        }
        for threads in [1, 2] {
            panics(threads);
        }
    }

    #[allow(unreachable_code, unused_variables, reason = "where no port can be, its type is empty")]
    fn panics(threads: u32) {
        let server = Server::bind("127.0.0.1:0".parse().unwrap());
        let mut job = server.job(|_| |_: Datagram<'_>, _: &mut Replies<'_>| ()).unwrap();
        let numbers = Numbers { threads, outstanding: 64, concurrency: 1 };
        let server = open(&mut job, &Native::default(), numbers, Asked::default()).unwrap();
        spawn(&mut job, threads, server, |worker, server| {
            let mut taker = join(worker, server)?;
            let mut taken = Taken::new(8);
            while take(worker, server, &mut taker, &mut taken)? {
                assert!(taken.is_empty(), "panicked on purpose");
            }
            Ok(())
        })
        .unwrap();
        let running = job.run().unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.send_to(b"datagram", running.local_addresses()[0]).unwrap();
        while running.is_running() {
            std::thread::yield_now();
        }
        let report = running.stop();
        assert!(matches!(&report.failure, Some(Error::ThreadPanicked { .. })));
        assert_eq!((report.slices.made, report.slices.returned), (64, 64));
        assert_eq!(report.slices.missing, 0);
    }
}
