//! `select-indexed`: as `select`, but the sets are kept, and only what the answer names is looked at.
//!
//! The sets of what is wanted follow each connection as it comes, changes and goes, and are copied for
//! each wait (two bits for each descriptor: 5 KB for 20,000 of them); in the answer only the bits that
//! are set are stepped through, a word at a time, and each leads to its connection by an index. So of the
//! three passes of `select` one is left, which no program can spare: the kernel's own, which asks every
//! socket. It is by far the longest of the three (`cargo run --release -p weir --example
//! readiness_cost`), so the cure is real and small, and a wait still costs time for each connection that
//! is open, about as much as `poll`'s. A connection that is ready is received from until nothing is left,
//! but at most `drain` times.
//!
//! Origin: the cure that "Network Programming for Microsoft Windows" (Jones and Ohlund) suggests for its
//! non-blocking server; select(2), 4.2BSD.

use super::engine::{Room, ask_for_connections};
use crate::{
    Error, Unavailable,
    options::{Options as _, options},
    readiness::{SelectIndexed as Set, Trigger},
    stream::Listener,
    tcp::{About, ActiveSet, Contract, Design, Handler, Job, Running, Worker},
};

options! {
    /// Options of the design `select-indexed`.
    pub struct SelectIndexed {
        /// Most receives from a connection for one wake-up.
        drain: u32 = 16, 1..=65_536;
    }
}

impl Design for SelectIndexed {
    const ABOUT: About = About {
        name: "select-indexed",
        summary: "one thread keeps its sets up to date and steps through what the answer names",
        origin: "what Jones and Ohlund suggest for their non-blocking server; select(2)",
        contract: Contract::Select,
    };

    fn start<H: Handler>(self, mut job: Job<H>) -> Result<Running, Error> {
        self.check()?;
        self.availability()?;
        let listeners = job.listen()?;
        let (set, buffer_bytes) = (Set::new()?, job.buffer_bytes);
        job.spawn(move |worker| run(worker, set, &listeners, buffer_bytes, &self))?;
        job.run()
    }

    fn active_set(&self) -> ActiveSet {
        ActiveSet::InOrder
    }

    fn provider(&self) -> &'static str {
        Set::PROVIDER
    }

    fn availability(&self) -> Result<(), Unavailable> {
        Set::availability()
    }
}

fn run<H: Handler>(
    worker: &mut Worker<H>,
    mut set: Set,
    listeners: &[Listener],
    buffer_bytes: usize,
    options: &SelectIndexed,
) -> Result<(), Error> {
    let mut room =
        Room::new(buffer_bytes, options.drain, Trigger::Level).serving(worker.limits.active);
    let mut listening = false;
    worker.ready(Some(set.waker()));
    while worker.serving(room.table.len()) {
        if room.listens() != listening {
            listening = !listening;
            let listen = |set: &mut Set, listener: &_, token| {
                set.listen(listener, token);
                Ok(())
            };
            let forget = Set::forget_listener;
            ask_for_connections(&mut set, listeners, listening, listen, forget)?;
        }
        worker.calls.waits.one();
        set.wait(room.timeout(worker), &worker.calls)
            .map_err(|e| Error::io("waiting for readiness", e))?;
        room.mind_the_time(worker, &mut set);
        if worker.stopping() {
            listeners.iter().for_each(Listener::end_accepting);
        }
        handle(worker, &mut set, &mut room, listeners)?;
    }
    room.cut_off(worker, &mut set);
    Ok(())
}

fn handle<H: Handler>(
    worker: &mut Worker<H>,
    set: &mut Set,
    room: &mut Room<H>,
    listeners: &[Listener],
) -> Result<(), Error> {
    let ready = set.ready_count();
    if ready > 0 {
        worker.counters.batches.record(ready as u64);
    }
    while let Some(token) = set.next_ready() {
        room.told(worker, set, listeners, token)?;
    }
    Ok(())
}
