//! What every design does that calls a socket, from top to bottom: a thread waits in the call, or for readiness, once it
//! has let datagrams gather where that was asked for; what came goes to the handler, one datagram or a batch; and what
//! the handler answers is sent.

use crate::{
    Error,
    gather::{Asked, Gather, Gathering},
    memory::{Region, Slice},
    pause::Pause,
    readiness::{Epoll, Trigger},
    socket::{
        Arrival, DatagramSocket, Headers, Mode, Peer, Span,
        context::{CONTEXT_BYTES, Line, Origin as _},
    },
    udp::{Handler, Job, Running, Worker},
    wake::Waker,
};
use std::{io, sync::Arc, time::Instant};

/// Starts so many threads at each socket. Each takes its buffers from a pool of `slices` for each thread; `receive` calls
/// its socket, whose number is given, and handles what that brings. It says how many datagrams that is.
pub(super) fn start_blocking<H: Handler, B: Send + 'static>(
    mut job: Job<H>,
    threads: u32,
    slices: u32,
    gather: Gather,
    buffers: impl Fn(&Arc<Region>) -> B,
    receive: impl Fn(&mut Worker<H>, &DatagramSocket, u32, &mut B, Mode) -> Result<usize, Error>
    + Copy
    + Send
    + 'static,
) -> Result<Running<H>, Error> {
    let sockets = job.bind()?;
    let (threads, gather) = (threads as usize * sockets.len(), job.gathers(gather));
    let region = job.buffers(threads * slices as usize)?;
    for thread in 0..threads {
        let number = thread % sockets.len();
        let (all, socket, gather) = (sockets.clone(), sockets[number].clone(), gather.clone());
        let mut buffers = buffers(&region);
        job.spawn(move |worker| {
            worker.sockets = all;
            let ending = socket.clone();
            let mut gatherer = Gatherer::new(worker, gather);
            let wake = gatherer.waker();
            worker.ready(Some(Waker::new(move || {
                ending.end_receiving();
                wake.wake();
            })));
            let mut receive = |worker: &mut Worker<H>, mode| {
                receive(worker, &socket, number as u32, &mut buffers, mode)
            };
            while !worker.stopping() {
                before_waiting(worker);
                if gatherer.is_on() {
                    receive_gathered(worker, &mut gatherer, &mut receive)?;
                } else {
                    wait_in_call(worker, &mut receive)?;
                }
            }
            worker.on_stop(&[]);
            Ok(())
        })?;
    }
    job.run()
}

/// Starts so many threads, each with a set of its own that holds every socket. `drain` receives from a socket that is
/// ready, whose number is given, without waiting.
pub(super) fn start_epoll<H: Handler, B: Send + 'static>(
    mut job: Job<H>,
    threads: u32,
    slices: u32,
    gather: Gather,
    buffers: impl Fn(&Arc<Region>) -> B,
    drain: impl Fn(&mut Worker<H>, &DatagramSocket, u32, &mut B) -> Result<Drained, Error>
    + Copy
    + Send
    + 'static,
) -> Result<Running<H>, Error> {
    let sockets = job.bind()?;
    let region = job.buffers(threads as usize * slices as usize)?;
    let gather = job.gathers(gather);
    for thread in 0..threads {
        let mut set = Epoll::new(sockets.len(), Trigger::Level)?;
        for (number, socket) in sockets.iter().enumerate() {
            set.add(socket, number as u32)?;
        }
        if let Some(granted) = job.busy_poll().map(|time| set.busy_poll(time))
            && thread == 0
        {
            job.state("busy-poll-wait", granted);
        }
        let (sockets, mut buffers) = (sockets.clone(), buffers(&region));
        let gather = gather.clone();
        job.spawn(move |worker| {
            worker.sockets.clone_from(&sockets);
            let mut gatherer = Gatherer::new(worker, gather);
            let (of_set, of_gatherer) = (set.waker(), gatherer.waker());
            worker.ready(Some(Waker::new(move || {
                of_set.wake();
                of_gatherer.wake();
            })));
            while !worker.stopping() {
                before_waiting(worker);
                if gatherer.is_on() {
                    gatherer.sleep(worker);
                }
                worker.counters.waits.one();
                set.wait(worker.time_left(), &worker.counters)
                    .map_err(|e| Error::io("waiting for readiness", e))?;
                let mut came = Drained::default();
                for number in set.ready() {
                    let of_it = drain(worker, &sockets[number as usize], number, &mut buffers)?;
                    came.datagrams += of_it.datagrams;
                    came.left |= of_it.left;
                }
                gatherer.received(came.datagrams, came.left);
            }
            worker.on_stop(&[]);
            Ok(())
        })?;
    }
    job.run()
}

/// What a wake-up brought from a socket.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Drained {
    pub(super) datagrams: usize,
    /// The bound was reached, so the socket may have more.
    pub(super) left: bool,
}

/// What is due before each wait: errors that peers reported, and what the handler asked to be called for.
#[inline]
fn before_waiting<H: Handler>(worker: &mut Worker<H>) {
    worker.collect_errors();
    if worker.on_time() {
        worker.flush_to_sockets();
    }
}

/// Waits in the call for what comes next.
#[inline]
fn wait_in_call<H: Handler>(
    worker: &mut Worker<H>,
    receive: &mut impl FnMut(&mut Worker<H>, Mode) -> Result<usize, Error>,
) -> Result<usize, Error> {
    worker.counters.waits.one();
    let mode = worker.mode();
    receive(worker, mode)
}

/// After so many gathered datagrams a thread looks whether it is to stop.
const GATHERED_MAX: usize = 65_536;

/// Lets datagrams gather, takes what has come, and only where that is nothing waits in the call for the next one.
fn receive_gathered<H: Handler>(
    worker: &mut Worker<H>,
    gatherer: &mut Gatherer,
    receive: &mut impl FnMut(&mut Worker<H>, Mode) -> Result<usize, Error>,
) -> Result<(), Error> {
    gatherer.sleep(worker);
    let mut came = 0;
    while came < GATHERED_MAX {
        match receive(worker, Mode::Try)? {
            0 => break,
            some => came += some,
        }
    }
    if came == 0 && !worker.stopping() {
        came = wait_in_call(worker, receive)?;
    }
    gatherer.received(came, came >= GATHERED_MAX);
    Ok(())
}

/// Lets datagrams gather while its thread sleeps.
struct Gatherer {
    gathering: Gathering,
    pause: Pause,
}

impl Gatherer {
    /// For the calling thread.
    fn new<H: Handler>(worker: &mut Worker<H>, asked: Asked) -> Self {
        let how = "a timed sleep of the thread beside its sockets";
        let gathering = asked.begin(how, |name, value| worker.state(name, value));
        Self { gathering, pause: Pause::new() }
    }

    fn is_on(&mut self) -> bool {
        self.gathering.is_on()
    }

    /// What ends its sleep at a stop.
    fn waker(&self) -> Waker {
        self.pause.waker()
    }

    /// Sleeps while datagrams gather, if that pays.
    fn sleep<H: Handler>(&mut self, worker: &Worker<H>) {
        let time = self.gathering.wait(Instant::now());
        let time = worker.time_left().map_or(time, |left| time.min(left));
        if !time.is_zero() {
            worker.counters.waits.one();
            worker.counters.kernel_entries.one();
            self.pause.sleep(time);
        }
    }

    /// Takes note of what was received after it, and whether there may be more.
    fn received(&mut self, datagrams: usize, left: bool) {
        self.gathering.dequeued(datagrams, left, Instant::now);
    }
}

/// The buffer of a thread that receives one datagram at a time.
pub(super) fn one(region: &Arc<Region>) -> Slice {
    region.take().expect("one for each thread")
}

/// Gives what came into it to the handler, and sends it back if it shall go back.
#[inline]
pub(super) fn handle_one<H: Handler>(
    worker: &mut Worker<H>,
    socket: &DatagramSocket,
    number: u32,
    buffer: &mut [u8],
    arrival: &Arrival,
) {
    if let Some(echo) = worker.deliver(buffer, arrival, number, Worker::flush_to_sockets) {
        worker.echo(socket, buffer, echo, &arrival.peer());
    }
}

/// What a thread receives batches into, and what it sends back.
pub(super) struct Buffers {
    headers: Headers,
    /// One buffer for each datagram of a batch.
    payloads: Vec<Slice>,
    /// Where the datagram came from that is handled now.
    line: Line,
    /// Which of them go back to their source, and what of each.
    echoes: Vec<(usize, Span, Peer)>,
}

impl Buffers {
    /// Takes so many slices of the pool, as far as there are that many.
    pub(super) fn new(region: &Arc<Region>, batch: usize) -> Self {
        Self {
            headers: Headers::new(batch),
            payloads: (0..batch).filter_map(|_| region.take()).collect(),
            line: [0; CONTEXT_BYTES],
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
pub(super) fn handle_batch<H: Handler>(
    worker: &mut Worker<H>,
    socket: &DatagramSocket,
    number: u32,
    buffers: &mut Buffers,
    filled: usize,
) -> Result<usize, Error> {
    let Buffers { headers, payloads, line, echoes } = buffers;
    let mut datagrams = 0;
    let came = payloads.iter_mut().enumerate().take(filled);
    worker.with_each(came, |worker, (i, payload)| {
        let received = headers.tell(i, line);
        datagrams += received.datagrams();
        let came = received.with(line);
        let payload = payload.payload_mut();
        let echo = worker.deliver_of_batch(payload, &came, number, Worker::flush_to_sockets);
        if let Some(echo) = echo {
            echoes.push((i, echo, came.peer()));
        }
        flush(worker);
        Ok(())
    })?;
    worker.counters.dequeued(datagrams);
    batch_end(worker);
    if !echoes.is_empty() {
        send_echoes(worker, socket, buffers);
    }
    Ok(datagrams)
}

/// Sends the echoes of a batch, with as few calls as the system takes.
fn send_echoes<H: Handler>(worker: &mut Worker<H>, socket: &DatagramSocket, buffers: &mut Buffers) {
    let Buffers { headers, payloads, echoes, .. } = buffers;
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

/// Says that the datagrams of one dequeue are handled, and sends what the handler left.
#[inline]
pub(super) fn batch_end<H: Handler>(worker: &mut Worker<H>) {
    worker.batch_end();
    flush(worker);
}

/// Sends what the handler left, if anything.
#[inline]
pub(super) fn flush<H: Handler>(worker: &mut Worker<H>) {
    if worker.has_replies() {
        worker.flush_to_sockets();
    }
}
