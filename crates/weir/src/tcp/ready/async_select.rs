//! `async-select`: one thread takes messages from a queue, each of which names a connection on which
//! something happened.
//!
//! Each connection is told once whom to tell; from then on the system queues a message whenever data or an
//! end has come, there is room to send again, or something broke. The thread takes one after another.
//! Nothing is handed over or looked through, whatever the number of connections. It costs a
//! call for each message, and messages come for each segment that arrives, or each receive that leaves
//! something, whether the connection is still being served or not: a burst makes messages that find nothing any
//! more. A message tells of what happens, once, so a connection is received from until nothing is left; what the
//! bound `drain` leaves is served again before the next message is waited for.
//!
//! It fails softly where the queue is full: then every connection is asked once (the counter `queue_overflows`),
//! and nothing is lost. Under a load that fills the queue again and again it becomes a `poll` with detours. There
//! may be no more connections than the queue has room for messages of ([`Signals::MOST`]).
//!
//! Messages of a listening socket go to one thread, whoever else has the socket. So where it goes on elsewhere
//! ([`keep_listening`](crate::tcp::Server::keep_listening)) the thread waits for connections beside the queue, which costs
//! a call more for each message.
//!
//! Origin: the WSAAsyncSelect server of "Network Programming for Microsoft Windows", Jones and Ohlund,
//! where messages go to a window; fcntl(2): O_ASYNC, F_SETSIG, Linux 2.4.

use super::{
    engine::{LISTENERS, ReadyThread, ask_for_connections},
    gatherer::Gatherer,
};
use crate::{
    Error,
    design::design,
    gather::{Asked, Gather},
    readiness::{Signals, Trigger},
    stream::Listener,
    tcp::{ActiveSet, Handler, Job, Running, Worker},
};
use std::time::Duration;

design! {
    tcp::AsyncSelect "async-select", Signals on Signals;
    summary: "one thread takes messages from a queue, each of which names a connection that is ready";
    origin: "the WSAAsyncSelect server of Jones and Ohlund; fcntl(2), O_ASYNC";
    options {
        /// Most receives from a connection for one message.
        drain: u32 = 16, 1..=65_536;
        /// How long messages may gather before a wait ends, and how many are enough (can be changed while it runs).
        gather: Gather = Gather::NONE, Gather::LIMITS;
    }
    active_set: |_| ActiveSet::InOrder;
}

impl AsyncSelect {
    fn begin<H: Handler>(self, mut job: Job<H>) -> Result<Running, Error> {
        let listeners = job.listen()?;
        let gather = job.gathers(self.gather);
        let thread = ReadyThread::new(job.buffer_bytes, self.drain, Trigger::Edge)
            .serving(job.limits.active);
        job.spawn(move |worker| run(worker, &listeners, thread, gather))?;
        job.run()
    }
}

fn run<H: Handler>(
    worker: &mut Worker<H>,
    listeners: &[Listener],
    mut thread: ReadyThread<H>,
    gather: Asked,
) -> Result<(), Error> {
    // Messages come to the thread that asks for them.
    let mut set = Signals::new()?;
    worker.state("messages", set.effective());
    // The queue is to hold the messages of all.
    let most = Signals::MOST - listeners.len() as u32;
    worker.limits.connections = worker.limits.connections.min(most);
    let mut listening = false;
    // Of each listening socket, whether connections may wait that no message will tell of.
    let mut waiting = vec![false; listeners.len()];
    let mut gatherer = Gatherer::new(worker, gather);
    let waker = gatherer.waker(set.waker());
    worker.mailbox.serve();
    worker.open_mailbox(waker.clone());
    worker.ready(Some(waker));
    while worker.serving(thread.table.len()) {
        if thread.listens() != listening {
            listening = !listening;
            let (listen, forget) = (Signals::listen, Signals::forget_listener);
            ask_for_connections(&mut set, listeners, listening, listen, forget)?;
        }
        thread.tell_left_off(worker);
        let at_once = thread.listens() && waiting.contains(&true);
        let timeout = if at_once { Some(Duration::ZERO) } else { thread.timeout(worker) };
        // A wait takes one message of the queue, behind which there may be others.
        let left = thread.take_left() || set.ready_count() > 0;
        gatherer
            .wait(worker, timeout, left, |timeout, calls| set.wait(timeout, calls))
            .map_err(|e| Error::io("waiting for messages", e))?;
        worker.counters.queue_overflows.add(set.take_overflows());
        thread.run_timers(worker, &mut set);
        thread.end_accepting(listeners);
        handle(worker, &mut set, &mut thread, listeners, &mut waiting)?;
    }
    thread.cut_off(worker, &mut set);
    Ok(())
}

fn handle<H: Handler>(
    worker: &mut Worker<H>,
    set: &mut Signals,
    thread: &mut ReadyThread<H>,
    listeners: &[Listener],
    waiting: &mut [bool],
) -> Result<(), Error> {
    let told = set.ready_count() + thread.left();
    if told > 0 {
        worker.counters.batches.record(told as u64);
    }
    thread.serve_again(worker, set);
    while let Some(token) = set.next_ready() {
        match waiting.get_mut(token.wrapping_sub(LISTENERS) as usize) {
            Some(waiting) => *waiting = true,
            None => thread.serve_once(worker, set, token),
        }
    }
    for (listener, waiting) in listeners.iter().zip(waiting) {
        if *waiting && thread.listens() {
            // What waits when a pause begins is told by no message when it is over.
            *waiting = thread.accept(worker, set, listener)? || !thread.listens();
        }
    }
    Ok(())
}
