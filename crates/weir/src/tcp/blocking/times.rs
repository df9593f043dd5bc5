//! The times of `blocking` at which handlers asked to be called: one thread for all connections, started
//! where the first one asks.

use super::crowd::Crowd;
use crate::{
    Error,
    crew::lock,
    tcp::{Handler, Worker},
    timer::Tick,
};
use std::{
    sync::{Arc, Condvar, Mutex, PoisonError},
    time::Instant,
};

/// What the threads of connections ask of the one that keeps the times.
#[derive(Default)]
pub(super) struct Times {
    asked: Mutex<Asked>,
    changed: Condvar,
}

#[derive(Default)]
struct Asked {
    /// Timers to be set, by the number of the connection, or cancelled: a few for each connection.
    timers: Vec<(u32, Option<Tick>)>,
    runs: bool,
    /// Threads that accept. With the last one every connection has gone.
    accept: u32,
}

/// KiB of stack for the thread: handlers run on it.
const STACK: usize = 128;

impl Times {
    /// A thread begins to accept.
    pub(super) fn accepts(&self) {
        lock(&self.asked).accept += 1;
    }

    /// A thread accepts no more, and the connections have gone.
    pub(super) fn accepts_no_more(&self) {
        lock(&self.asked).accept -= 1;
        self.changed.notify_all();
    }

    /// Has the handler of a connection called at this tick.
    pub(super) fn set<H: Handler>(
        &self,
        worker: &Worker<H>,
        crowd: &Arc<Crowd<H>>,
        number: u32,
        due: Tick,
    ) -> Result<(), Error> {
        let mut asked = lock(&self.asked);
        asked.timers.push((number, Some(due)));
        let runs = std::mem::replace(&mut asked.runs, true);
        drop(asked);
        self.changed.notify_all();
        if runs {
            return Ok(());
        }
        let crowd = Arc::clone(crowd);
        let started = worker.spawn(STACK * 1024, move |worker| {
            keep(worker, &crowd);
            Ok(())
        });
        if started.is_err() {
            lock(&self.asked).runs = false;
        }
        started
    }

    /// A connection is over.
    pub(super) fn cancel(&self, number: u32) {
        lock(&self.asked).timers.push((number, None));
        self.changed.notify_all();
    }

    /// Does what was asked for and waits until a timer is due; `false` where the server has ended.
    fn wait<H: Handler>(&self, worker: &mut Worker<H>) -> bool {
        let mut asked = lock(&self.asked);
        loop {
            for (number, due) in asked.timers.drain(..) {
                match due {
                    Some(due) => worker.clock.set(number, due),
                    None => _ = worker.clock.cancel(number),
                }
            }
            if asked.accept == 0 {
                return false;
            }
            asked = match worker.clock.next_in(Instant::now()) {
                None => self.changed.wait(asked).unwrap_or_else(PoisonError::into_inner),
                Some(left) if left.is_zero() => return true,
                Some(left) => {
                    let waited = self.changed.wait_timeout(asked, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

/// The thread: handlers are called without a lock but that of their own connection.
fn keep<H: Handler>(worker: &mut Worker<H>, crowd: &Crowd<H>) {
    let mut due = Vec::new();
    while crowd.times.wait(worker) {
        worker.clock.expired(Instant::now(), &mut due);
        while let Some(number) = due.pop() {
            // One that is at work is asked again with the next tick: the others need not wait for it.
            if crowd.member(number).is_some_and(|pair| !pair.fire_alarm(worker)) {
                worker.clock.set(number, worker.clock.now() + 1);
            }
        }
    }
}
