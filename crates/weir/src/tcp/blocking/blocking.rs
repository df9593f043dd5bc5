//! `blocking`: two threads for each connection, one that receives and one that sends.
//!
//! The oldest design, and the easiest to write: each thread asks for one thing and sleeps until it has
//! it. What the receiving thread's handler answers goes through a queue to the sending thread, so a
//! peer that reads slowly never holds up what it sends, until the queue is full. It costs two threads
//! for each connection (a stack each, and a thread of the kernel), and for each message two
//! switches of threads and two entries into the kernel. It fails where the system has no more threads
//! to give, or the process no more mappings for their stacks: what comes beyond is refused.
//!
//! Time-outs are those of the calls ([`Stream::set_timeouts`](crate::stream::Stream::set_timeouts)), since each
//! waits for one connection only. Where a handler asks to be called at a time of its own, or is woken by a handle of its
//! connection, which may be while both threads are in the system, one more thread for all connections does that.
//!
//! Origin: the blocking server of "Network Programming for Microsoft Windows", Jones and Ohlund.

use super::connections::{Connections, Pair, Sizes};
use crate::{
    Error,
    design::design,
    stream::{self, Accepted, Listener, Mode},
    tcp::{
        ActiveSet, Connection, Handler, IdleHolds, Job, Limits, Reason, Running, Worker,
        mail::Incoming,
    },
    timer::TICK,
    wake::Waker,
};
use std::{
    sync::{Arc, mpsc},
    time::Duration,
};

design! {
    tcp::Blocking "blocking", Socket;
    summary: "two threads for each connection, one that receives and one that sends";
    origin: "the blocking server of Jones and Ohlund; recv(2) and send(2) in loops";
    options {
        /// KiB of stack for each of the two threads of a connection.
        stack: u32 = 128, 16..=65_536;
    }
    provider: |_| crate::socket::PROVIDER;
    availability: |_| stream::availability();
    parks_threads: |_| true;
    active_set: |_| ActiveSet::Absent(
        "each connection has its own threads, which serve no other",
    );
    idle_holds: |_| IdleHolds::Buffer(
        "a buffer and two stacks: its thread sleeps in a receive",
    );
}

impl Blocking {
    fn begin<H: Handler>(self, mut job: Job<H>) -> Result<Running, Error> {
        let sizes = Sizes { stack: self.stack as usize * 1024, buffer: job.buffer_bytes };
        job.limit_by_threads(2, 1)?;
        let connections = Arc::new(Connections::new(job.limits.output_bytes, sizes, handle));
        let mut connects = job.connects();
        for listener in job.listen()? {
            let connections = Arc::clone(&connections);
            let opens = std::mem::take(&mut connects);
            job.spawn(move |worker| run(worker, &listener, &connections, opens))?;
        }
        job.run()
    }
}

fn run<H: Handler>(
    worker: &mut Worker<H>,
    listener: &Listener,
    connections: &Arc<Connections<H>>,
    opens: bool,
) -> Result<(), Error> {
    let ending = listener.clone();
    connections.serve(worker);
    // Whatever ends this thread, those of the connections end with it.
    let _end = connections.end_when_dropped(worker.limits.stop);
    if opens {
        connections.open_mailbox(worker)?;
    }
    let (ends, ended) = mpsc::sync_channel(1);
    worker.ready(Some(Waker::new(move || {
        ending.end_accepting();
        let _ = ends.try_send(());
    })));
    let mut left_off = false;
    while !worker.stopping() {
        worker.calls.waits.one();
        let accepted = match listener.accept(Mode::Wait, &worker.calls) {
            Ok(Some(accepted)) => accepted,
            // Accepting was ended: with the server, or before it.
            Ok(None) => {
                if !worker.stopping() && !std::mem::replace(&mut left_off, true) {
                    worker.left_off();
                }
                let _ = ended.recv();
                continue;
            }
            Err(e) if stream::is_want_of_resources(&e) => {
                worker.accepting_pauses();
                connections.wait_for_one_to_leave(TICK);
                continue;
            }
            Err(e) if stream::concerns_one_connection(&e) => {
                worker.counters.accept_errors.one();
                continue;
            }
            Err(e) => return Err(Error::io("accepting a connection", e)),
        };
        if worker.admit(&accepted.stream) {
            handle(worker, connections, accepted.into());
        }
    }
    Ok(())
}

/// What one of the two threads of a connection does.
type Loop<H> = fn(&mut Worker<H>, &Pair<H>, usize);

/// Starts the two threads of a connection. Where the system has none to give, it is refused.
fn handle<H: Handler>(
    worker: &mut Worker<H>,
    connections: &Arc<Connections<H>>,
    incoming: Incoming,
) {
    let Incoming { accepted: Accepted { stream, peer }, given } = incoming;
    let Sizes { stack, buffer } = connections.sizes;
    let limits = worker.limits;
    let timeouts = stream.set_timeouts(limits.silent, look_after(&limits));
    let is_ours = given.is_some();
    let connection = Connection::open_given(worker, peer, given);
    let pair = Pair::join(worker, connection, stream, connections);
    pair.connection(worker).place(worker, pair.number());
    if let Err(e) = timeouts {
        pair.fail(worker, Reason::Failed(e));
    }
    let loops: [Loop<H>; 2] = [receive, send];
    for body in loops {
        let (its, all) = (Arc::clone(&pair), Arc::clone(connections));
        let started = worker.spawn(stack, move |worker| {
            all.serve(worker);
            body(worker, &its, buffer);
            its.leave(worker);
            Ok(())
        });
        if let Err(error) = started {
            // Whom we connected to has asked for nothing.
            if !is_ours {
                worker.refuse(&pair.stream, &error.to_string());
            }
            pair.fail(worker, Reason::Failed(std::io::Error::other(error)));
            pair.leave(worker);
        }
    }
}

/// The receiving thread: what the handler answers goes into the queue.
fn receive<H: Handler>(worker: &mut Worker<H>, pair: &Pair<H>, buffer_bytes: usize) {
    let mut buffer = vec![0; buffer_bytes];
    let mut spoken = false;
    while pair.wait_to_receive(worker) {
        worker.calls.waits.one();
        let received = pair.stream.receive(&mut buffer, Mode::Wait, &worker.calls);
        let mut connection = pair.connection(worker);
        match received {
            Ok(Some(0)) => {
                connection.ended(worker);
                return pair.release(worker, connection);
            }
            Ok(Some(count)) => {
                connection.count(count);
                let bytes = &mut buffer[..count];
                let echo = connection.received(worker, bytes);
                if echo > 0 {
                    connection.echoed(worker, &bytes[..echo], 0);
                }
            }
            Ok(None) => connection.fail(Reason::Silent),
            Err(e) => connection.fail(pair.reason(e)),
        }
        pair.release(worker, connection);
        let limits = &worker.limits;
        if !std::mem::replace(&mut spoken, true) && limits.idle != limits.silent {
            // It fails for no socket that is open.
            let _ = pair.stream.set_timeouts(limits.idle, look_after(limits));
        }
    }
}

/// Looks at output that waits, in the time after which it has stalled. A send of which a part was taken
/// ends with its time-out too, and does not tell when that was: so it may be closed an eighth too late.
const LOOKS: u32 = 8;

/// How long a send waits before it is looked at.
fn look_after(limits: &Limits) -> Option<Duration> {
    limits.stalled.map(|stalled| stalled / LOOKS)
}

/// The sending thread.
fn send<H: Handler>(worker: &mut Worker<H>, pair: &Pair<H>, _: usize) {
    let mut out = Vec::new();
    while pair.wait_to_send(worker, &mut out) {
        if out.is_empty() {
            let told = pair.stream.end_sending(&worker.calls);
            let mut connection = pair.connection(worker);
            match told {
                Ok(()) => connection.fin_sent(worker),
                Err(e) => connection.fail(pair.reason(e)),
            }
            pair.release(worker, connection);
            continue;
        }
        let (mut taken, mut looks) = (0, 0);
        while taken < out.len() {
            worker.calls.waits.one();
            let sent = pair.stream.send(&out[taken..], Mode::Wait, &worker.calls);
            let mut connection = pair.connection(worker);
            match sent {
                Ok(Some(count)) => {
                    (taken, looks) = (taken + count, 0);
                    connection.returned(worker, count);
                }
                Ok(None) => {
                    looks += 1;
                    if looks == LOOKS {
                        connection.fail(Reason::Stalled);
                    }
                }
                Err(e) => connection.fail(pair.reason(e)),
            }
            let over = connection.wants(&worker.limits).close;
            // It is out of the system already: to be woken from there by an end in order would hide the reset.
            if over {
                connection.sends_no_more();
            }
            pair.release(worker, connection);
            if over {
                break;
            }
        }
        out.clear();
    }
}
