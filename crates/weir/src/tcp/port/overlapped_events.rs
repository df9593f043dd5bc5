//! `overlapped-events`: operations with an event each, and threads that wait for a group of at most 64.
//!
//! The system receives and sends, and sets the operation's event when it is done; a thread waits for the events of
//! its group, is told one, and asks what became of the operation. The first event of a group wakes its
//! thread when a connection was handed over to it. One thread accepts, with `accepts` outstanding at each
//! address, and deals connections out: to the first group that has room, or to a new one. Of groups that run empty
//! one stays, and the others end.
//!
//! Each connection has a receive outstanding, and a send while something is to be sent: so a group waits for two events
//! of each, and has 31 of them. Most sends are over at once, so of those that move `sends` are outstanding at a time,
//! further ones wait in order, and no more events are made for sends than that. One that does not move for 10 ms while
//! others wait is set aside, as by `port`, and has an event more: so a peer that reads nothing holds its own and no
//! other's. It costs a thread for every 31 connections, a wait for each operation (where what has finished is seen
//! without one, for those that have not), and what an event is: a descriptor, and its setting. It fails where the system has no more threads or descriptors to give: connections that find no
//! room are refused.
//!
//! Origin: the overlapped server with events of "Network Programming for Microsoft Windows", Jones and Ohlund,
//! whose limit of 64 is WSA_MAXIMUM_WAIT_EVENTS.

use super::{
    accepts::Accepts,
    engine::{self, GIVING_BACK, Numbers, PortServer, PortThread, Receiving, STOP},
    pool::Pool,
};
use crate::{
    Error,
    design::design,
    gather::{Asked, Gather},
    port::{
        Key, Packet,
        streams::{Completion, NativeEvents, Needs, Port, Provider, Taken, Worker as _},
    },
    stream::Listener,
    tcp::{
        ActiveSet, Handler, Idle, IdleHolds, Job, Reason, Running, Worker,
        ready::groups::{self, Group, Groups},
        stop::{shut_mailbox, turn_away},
    },
};
use std::{sync::Arc, time::Instant};

design! {
    tcp::OverlappedEvents "overlapped-events", Overlapped;
    summary: "an event for each operation; threads, each waiting for a group of at most 64 events";
    origin: "the overlapped server with events of Jones and Ohlund";
    options {
        /// Events of a group, of which one wakes its thread and two are a connection's.
        group: u32 = 64, 3..=NativeEvents::MOST;
        /// Most sends of a group outstanding at a time, of peers that are not stalled; further ones wait.
        sends: u32 = 8, 1..=4096;
        /// Accepts outstanding at each address.
        accepts: u32 = 5, 1..=4096;
        /// KiB of stack for the thread of each group.
        stack: u32 = 128, 16..=65_536;
        /// How long messages of a group may gather before a wait ends, and how many are enough (can be changed while it runs).
        gather: Gather = Gather::NONE, Gather::LIMITS;
    }
    provider: |_| NativeEvents::NAME;
    availability: |_| NativeEvents::default().availability();
    active_set: |_| ActiveSet::Absent("each thread has its own group and does not know the order of others");
    idle_holds: |_| IdleHolds::Buffer("a buffer: that of its outstanding receive");
}

impl OverlappedEvents {
    fn begin<H: Handler>(self, mut job: Job<H>) -> Result<Running, Error> {
        job.limit_by_threads(1, self.places())?;
        let gather = job.gathers(self.gather);
        begin(&mut job, NativeEvents::default(), self, gather)?;
        job.run()
    }
}

impl OverlappedEvents {
    /// Connections of a group: each has an event for what it receives and one for what it sends.
    fn places(&self) -> u32 {
        (self.group - 1) / 2
    }
}

/// Listens, and starts the thread that accepts.
fn begin<H: Handler, P: Provider>(
    job: &mut Job<H>,
    provider: P,
    options: OverlappedEvents,
    gather: Asked,
) -> Result<(), Error> {
    let count = job.listeners();
    let port = provider.open(&needs(count, options.accepts.saturating_mul(count), 0, 0))?;
    let associate = |(number, listener): (usize, Listener)| {
        port.listen(listener.clone(), Key(number as u64)).map(|id| (listener, id))
    };
    let listeners = job.listen()?.into_iter().enumerate().map(associate);
    let listeners = listeners.collect::<Result<Vec<_>, _>>()?;
    let accepts = Accepts::new(listeners, (options.accepts, options.accepts, 0));
    let buffer_bytes = job.buffer_bytes;
    job.spawn(move |worker| {
        let groups = Arc::new(Groups::default());
        let start_group = |worker: &Worker<H>| {
            start_group(worker, &groups, &provider, buffer_bytes, &options, &gather)
        };
        run(worker, port, &accepts, &groups, start_group)
    })
}

/// What a group is opened for: with an event for each operation.
fn needs(listeners: u32, accepts: u32, receives: u32, sends: u32) -> Needs {
    let streams = receives.max(1);
    Needs { listeners, streams, accepts, receives, sends, packets: 3, threads: 1, concurrency: 1 }
}

/// Of the packet that tells a group of a connection.
const CAME: Packet = Packet { key: Key(0), value: 0 };

/// The thread that accepts.
fn run<H: Handler>(
    worker: &mut Worker<H>,
    port: impl Port,
    accepts: &Accepts,
    groups: &Groups,
    start_group: impl Fn(&Worker<H>) -> Result<Arc<Group>, Error>,
) -> Result<(), Error> {
    let mut taken = Taken::new(1);
    let mut taker = port.worker()?;
    worker.open_mailbox(port.poster(STOP));
    worker.ready(Some(port.poster(STOP)));
    accepts.rearm(&mut taker);
    // At the end those that wait to be accepted are refused, and accepts that are outstanding come back.
    while !accepts.is_over() {
        let now = Instant::now();
        accepts.resume(Some(now), &mut taker);
        let timeout = accepts.paused_until().map(|until| until.saturating_duration_since(now));
        let took = taker.take(&mut taken, timeout, &worker.calls);
        took.map_err(|e| Error::io("waiting for connections", e))?;
        for completion in taken.drain() {
            if let Completion::Accept { key, outcome, .. } = completion {
                let listener = key.0 as usize;
                let brought = accepts.brought(worker, listener, outcome)?;
                if let Some(accepted) = brought.filter(|its| worker.admit(&its.stream)) {
                    groups::deal(worker, groups, accepted, &start_group);
                }
                accepts.done(listener, &mut taker);
            }
        }
        groups::deal_what_came(worker, groups, &start_group);
        if worker.leaves_off() {
            accepts.leave_off(&mut taker, &worker.calls);
            if let Some(came) = accepts.left_off(worker) {
                came.into_iter().for_each(|one| groups::deal(worker, groups, one, &start_group));
                worker.left_off();
            }
        }
        if worker.stopping() {
            accepts.shut(&mut taker, &worker.calls);
        }
    }
    shut_mailbox(worker);
    drop(taker);
    let _ = port.stop(Instant::now() + GIVING_BACK); // nothing is outstanding any more
    Ok(())
}

fn start_group<H: Handler>(
    worker: &Worker<H>,
    groups: &Arc<Groups>,
    provider: &impl Provider,
    buffer_bytes: usize,
    options: &OverlappedEvents,
    gather: &Asked,
) -> Result<Arc<Group>, Error> {
    let places = options.places();
    let port = provider.open(&needs(0, 0, places, places))?;
    let group = Arc::new(Group::new(places, port.poster(CAME)));
    let (its, groups, gather) = (Arc::clone(&group), Arc::clone(groups), gather.clone());
    let numbers = Numbers {
        threads: 1,
        concurrency: 1,
        take: 1,
        accepts: (0, 0, 0),
        sends: options.sends,
        stuck: places,
        receiving: Receiving { receives: 1, idle: Idle::Buffer, drain: 1 },
    };
    worker.spawn(options.stack as usize * 1024, move |worker| {
        let stop = port.poster(STOP);
        worker.ready(Some(stop.clone()));
        let pool = Pool::new(buffer_bytes);
        let server = PortServer::of_connections(
            port,
            places,
            pool,
            (worker.since(), worker.limits),
            numbers,
            gather,
        );
        let result = look_after(worker, &server, &its, &groups);
        worker.forget(&stop);
        // What was handed over at the last moment is cut off too.
        its.close();
        for accepted in its.came() {
            turn_away(worker, accepted, Reason::Stopped);
        }
        result.and(server.end(worker))
    })?;
    Ok(group)
}

/// The thread of a group.
fn look_after<H: Handler, P: Port>(
    worker: &mut Worker<H>,
    server: &PortServer<P, H>,
    group: &Arc<Group>,
    groups: &Groups,
) -> Result<(), Error> {
    let mut thread = engine::join(worker, server)?;
    let mut taken = Taken::new(server.numbers.take as usize);
    let mut open = 0;
    while thread.take(&mut taken)? {
        for completion in taken.drain() {
            open += handle(&mut thread, group, completion)?;
        }
        group.left(open, thread.connections() as usize);
        open = thread.connections();
        if open == 0 && groups.retire(group) {
            break;
        }
    }
    Ok(())
}

/// Returns how many connections came.
fn handle<H: Handler, P: Port>(
    thread: &mut PortThread<'_, '_, P, H>,
    group: &Group,
    completion: Completion,
) -> Result<u32, Error> {
    match completion {
        // With others in the queue there may have been no room for the packet that tells of a connection.
        Completion::Packet(packet) => {
            if packet != CAME {
                thread.handle(Completion::Packet(packet))?;
            }
            let came = group.came();
            let count = came.len() as u32;
            came.into_iter().for_each(|accepted| thread.take_in(accepted));
            Ok(count)
        }
        completion => thread.handle(completion).map(|()| 0),
    }
}
