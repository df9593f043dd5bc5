//! The times of `blocking` at which handlers asked to be called: one thread for all connections, started
//! where the first one asks.

use crate::{
    Error,
    lifecycle::lock,
    tcp::{Handler, Worker},
    timer::Tick,
};
use std::{
    sync::{Condvar, Mutex, PoisonError},
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

    /// Has the handler of a connection called at this tick. `keep` makes what the thread does, which is to
    /// [`keep`](Self::keep) them.
    pub(super) fn set<H: Handler, K: FnOnce(&mut Worker<H>) + Send + 'static>(
        &self,
        worker: &Worker<H>,
        number: u32,
        due: Tick,
        keep: impl FnOnce() -> K,
    ) -> Result<(), Error> {
        let mut asked = lock(&self.asked);
        asked.timers.push((number, Some(due)));
        let runs = std::mem::replace(&mut asked.runs, true);
        drop(asked);
        self.changed.notify_all();
        if runs {
            return Ok(());
        }
        let keep = keep();
        let started = worker.spawn(STACK * 1024, move |worker| {
            keep(worker);
            Ok(())
        });
        if started.is_err() {
            lock(&self.asked).runs = false;
        }
        started
    }

    /// What the thread does: `call` calls the handler of a connection, and answers whether it could. No lock is held
    /// meanwhile.
    pub(super) fn keep<H: Handler>(
        &self,
        worker: &mut Worker<H>,
        call: impl Fn(u32, &mut Worker<H>) -> bool,
    ) {
        let mut due = Vec::new();
        while self.wait(worker) {
            worker.clock.expired(Instant::now(), &mut due);
            while let Some(number) = due.pop() {
                // One that is at work is asked again with the next tick: the others need not wait for it.
                if !call(number, worker) {
                    worker.clock.set(number, worker.clock.now() + 1);
                }
            }
        }
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
