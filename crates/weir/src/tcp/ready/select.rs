//! `select`: one thread builds its sets anew for each wait, and asks every connection whether it was meant.
//!
//! The kernel's answer overwrites the question, so before each wait every connection is put into the sets
//! again; the kernel looks at each that is in them; and since the answer says nothing but
//! what is left, every connection is asked for in it. So a wait costs three passes over all
//! that is open, for one message as for a thousand: the limit of this design, kept on purpose
//! (`select-indexed` cures it). Many connections fail it long before descriptors run out. A
//! connection that is ready is received from until nothing is left, but at most `drain` times.
//!
//! Where a set is an array and not a row of bits (Winsock's FD_SET), to ask is to search, and the last pass costs
//! connections times those that are ready. The sets of the headers end at 1024 descriptors, or 64 sockets; these
//! do not.
//!
//! Origin: the non-blocking server of "Network Programming for Microsoft Windows", Jones and Ohlund;
//! select(2), 4.2BSD.

use super::{engine::ReadyThread, gatherer::Gatherer};
use crate::{
    Error,
    design::design,
    gather::{Asked, Gather},
    readiness::{Select as Sets, Trigger},
    stream::Listener,
    tcp::{ActiveSet, Handler, Job, Running, Worker},
};

design! {
    tcp::Select "select", Select on Sets;
    summary: "one thread rebuilds its sets for each wait and checks every connection against the answer";
    origin: "the non-blocking server of Jones and Ohlund; select(2)";
    options {
        /// Most receives from a connection for one wake-up.
        drain: u32 = 16, 1..=65_536;
        /// How long messages may gather before a wait ends, and how many are enough (can be changed while it runs).
        gather: Gather = Gather::NONE, Gather::LIMITS;
    }
    active_set: |_| ActiveSet::InOrder;
}

impl Select {
    fn begin<H: Handler>(self, mut job: Job<H>) -> Result<Running, Error> {
        let listeners = job.listen()?;
        let (sets, gather) = (Sets::new()?, job.gathers(self.gather));
        let thread = ReadyThread::new(job.buffer_bytes, self.drain, Trigger::Level)
            .serving(job.limits.active);
        job.spawn(move |worker| run(worker, sets, &listeners, thread, gather))?;
        job.run()
    }
}

fn run<H: Handler>(
    worker: &mut Worker<H>,
    mut sets: Sets,
    listeners: &[Listener],
    mut thread: ReadyThread<H>,
    gather: Asked,
) -> Result<(), Error> {
    let mut gatherer = Gatherer::new(worker, gather);
    let waker = gatherer.waker(sets.waker());
    worker.mailbox.serve();
    worker.open_mailbox(waker.clone());
    worker.ready(Some(waker));
    while worker.serving(thread.table.len()) {
        build(&mut sets, &mut thread, listeners);
        thread.tell_left_off(worker);
        let left = thread.take_left();
        gatherer
            .wait(worker, thread.timeout(worker), left, |timeout, calls| sets.wait(timeout, calls))
            .map_err(|e| Error::io("waiting for readiness", e))?;
        thread.run_timers(worker, &mut sets);
        thread.end_accepting(listeners);
        handle(worker, &mut sets, &mut thread, listeners)?;
    }
    thread.cut_off(worker, &mut sets);
    Ok(())
}

/// Puts in the sets what is to be asked for now.
fn build<H: Handler>(sets: &mut Sets, thread: &mut ReadyThread<H>, listeners: &[Listener]) {
    sets.clear();
    if thread.listens() {
        listeners.iter().for_each(|listener| sets.put_listener(listener));
    }
    for slot in 0..thread.table.slots() {
        if let Some(open) = thread.table.get_mut(slot) {
            sets.put(&open.stream, open.interest);
        }
    }
}

fn handle<H: Handler>(
    worker: &mut Worker<H>,
    sets: &mut Sets,
    thread: &mut ReadyThread<H>,
    listeners: &[Listener],
) -> Result<(), Error> {
    let mut ready = thread.left() as u64;
    thread.serve_again(worker, sets);
    for slot in 0..thread.table.slots() {
        if thread.table.get_mut(slot).is_some_and(|open| sets.is_ready(&open.stream)) {
            ready += 1;
            thread.serve(worker, sets, slot);
        }
    }
    for listener in listeners {
        if thread.listens() && sets.listener_is_ready(listener) {
            ready += 1;
            thread.accept(worker, sets, listener)?;
        }
    }
    if ready > 0 {
        worker.counters.batches.record(ready);
    }
    Ok(())
}
