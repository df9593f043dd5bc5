//! `event-select`: threads that look after a group of at most 64 handles each.
//!
//! A wait takes at most so many handles, so connections are dealt out in groups, with a thread for each. A thread goes
//! once through those that are ready, and waits again. The first handle of a group wakes its thread when a connection was
//! handed over to it. One thread accepts, and hands what comes to the first group that has room; where
//! none has, it starts another. Of groups that run empty one stays, to be filled again, and the others end.
//!
//! A group has little to look through, whatever the number of connections, and a slow handler holds up
//! only those of its own group. It costs a thread for every 63 connections, its stack and two
//! descriptors; where a wait tells one handle, also a wait for each message. It fails where the system has no more
//! threads or descriptors to give: connections that find no room are refused. A connection that is
//! ready is received from until nothing is left, but at most `drain` times.
//!
//! Origin: the WSAEventSelect server of "Network Programming for Microsoft Windows", Jones and Ohlund,
//! whose limit of 64 is WSA_MAXIMUM_WAIT_EVENTS.

use super::{
    engine::{LISTENERS, ReadyThread, ask_for_connections},
    gatherer::Gatherer,
    groups::{self, Group, Groups},
};
use crate::{
    Error,
    design::design,
    gather::{Asked, Gather},
    readiness::{Events, Trigger},
    rio::Woken,
    stream::Listener,
    tcp::{
        ActiveSet, Handler, Job, Running, Worker,
        acceptor::{ACCEPTED_AT_ONCE, Acceptor, Attempt},
        stop::shut_mailbox,
    },
};
use std::{sync::Arc, time::Instant};

design! {
    tcp::EventSelect "event-select", Events on Events;
    summary: "threads, each waiting for a group of at most 64 handles; another thread when all are full";
    origin: "the WSAEventSelect server of Jones and Ohlund";
    options {
        /// Handles of a group, of which one wakes its thread.
        group: u32 = 64, 2..=Events::MOST;
        /// Most receives from a connection for one wake-up.
        drain: u32 = 16, 1..=65_536;
        /// KiB of stack for the thread of each group.
        stack: u32 = 128, 16..=65_536;
        /// How long messages of a group may gather before a wait ends, and how many are enough (can be changed while it runs).
        gather: Gather = Gather::NONE, Gather::LIMITS;
    }
    active_set: |_| ActiveSet::Absent(
        "a thread serves its own group only, and groups come with the connections",
    );
}

impl EventSelect {
    fn begin<H: Handler>(self, mut job: Job<H>) -> Result<Running, Error> {
        let listeners = job.listen()?;
        job.limit_by_threads(1, self.group - 1)?;
        let set = Events::new(listeners.len() as u32 + 1)?;
        let (buffer_bytes, gather) = (job.buffer_bytes, job.gathers(self.gather));
        job.spawn(move |worker| run(worker, set, &listeners, buffer_bytes, &self, &gather))?;
        job.run()
    }
}

/// The thread that accepts.
fn run<H: Handler>(
    worker: &mut Worker<H>,
    mut set: Events,
    listeners: &[Listener],
    buffer_bytes: usize,
    options: &EventSelect,
    gather: &Asked,
) -> Result<(), Error> {
    let mut acceptor = Acceptor::new();
    let groups = Arc::new(Groups::default());
    let mut listening = false;
    worker.open_mailbox(set.waker());
    worker.ready(Some(set.waker()));
    let begin = |worker: &Worker<H>| start_group(worker, &groups, buffer_bytes, options, gather);
    while !worker.stopping() {
        if acceptor.accepts() != listening {
            listening = !listening;
            let (listen, forget) = (Events::listen, Events::forget_listener);
            ask_for_connections(&mut set, listeners, listening, listen, forget)?;
        }
        acceptor.tell_left_off(worker);
        worker.calls.waits.one();
        set.wait(acceptor.timeout(), &worker.calls)
            .map_err(|e| Error::io("waiting for connections", e))?;
        acceptor.run_timers(Instant::now());
        if worker.leaves_off() {
            acceptor.leave_off();
        }
        groups::deal_what_came(worker, &groups, begin);
        while let Some(token) = set.next_ready() {
            let Some(listener) = listeners.get(token.wrapping_sub(LISTENERS) as usize) else {
                continue; // of nobody's
            };
            if !acceptor.accepts() {
                continue;
            }
            for _ in 0..ACCEPTED_AT_ONCE {
                match acceptor.accept(worker, listener)? {
                    Attempt::Accepted(accepted) => groups::deal(worker, &groups, accepted, begin),
                    Attempt::Lost => {}
                    Attempt::Nothing => break,
                }
            }
        }
    }
    listeners.iter().for_each(Listener::end_accepting);
    shut_mailbox(worker);
    Ok(())
}

fn start_group<H: Handler>(
    worker: &Worker<H>,
    groups: &Arc<Groups>,
    buffer_bytes: usize,
    options: &EventSelect,
    gather: &Asked,
) -> Result<Arc<Group>, Error> {
    let set = Events::new(options.group)?;
    let group = Arc::new(Group::new(set.room(), set.waker()));
    let (its, groups, gather) = (Arc::clone(&group), Arc::clone(groups), gather.clone());
    let thread = ReadyThread::new(buffer_bytes, options.drain, Trigger::Level);
    worker.spawn(options.stack as usize * 1024, move |worker| {
        let gatherer = Gatherer::new(worker, gather);
        let stop = gatherer.waker(set.waker());
        worker.ready(Some(stop.clone()));
        let result = look_after(worker, set, thread, gatherer, &its, &groups);
        its.close();
        worker.forget(&stop);
        result
    })?;
    Ok(group)
}

/// The thread of a group.
fn look_after<H: Handler>(
    worker: &mut Worker<H>,
    mut set: Events,
    mut thread: ReadyThread<H>,
    mut gatherer: Gatherer,
    group: &Arc<Group>,
    groups: &Groups,
) -> Result<(), Error> {
    worker.mailbox.serve();
    while worker.serving(thread.table.len()) {
        let left = thread.take_left() || set.may_have_left();
        let woken = gatherer
            .wait(worker, thread.timeout(worker), left, |timeout, calls| set.wait(timeout, calls))
            .map_err(|e| Error::io("waiting for readiness", e))?;
        let before = thread.table.len() as u32;
        thread.run_timers(worker, &mut set);
        handle(worker, &mut set, &mut thread);
        group.left(before, thread.table.len());
        // Behind the look at the clock: from then on they are heard, however long nobody woke the thread.
        if woken == Woken::ByWaker {
            group.take_in(worker, &mut set, &mut thread);
        }
        if thread.table.len() == 0 && groups.retire(group) {
            break;
        }
    }
    // What was handed over at the last moment is cut off too.
    group.close();
    group.take_in(worker, &mut set, &mut thread);
    thread.cut_off(worker, &mut set);
    Ok(())
}

fn handle<H: Handler>(worker: &mut Worker<H>, set: &mut Events, thread: &mut ReadyThread<H>) {
    let mut ready = thread.left() as u64;
    thread.serve_again(worker, set);
    while let Some(slot) = set.next_ready() {
        thread.serve(worker, set, slot);
        ready += 1;
    }
    if ready > 0 {
        worker.counters.batches.record(ready);
    }
}
