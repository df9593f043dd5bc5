//! The times of `blocking` at which handlers asked to be called, and what handles have left: both threads of a connection
//! may be in the system then. So it is one more thread for all connections, started where the first one asks, or the
//! first handle is made.

use crate::{
    Error,
    lifecycle::lock,
    tcp::{
        Handler, Worker,
        mail::{Incoming, Mailbox},
    },
    timer::Moment,
    wake::Waker,
};
use std::{
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// What the threads of connections ask of the one that keeps the times.
pub(super) struct Times {
    shared: Arc<Shared>,
    /// What handles have left for connections.
    pub(super) mailbox: Arc<Mailbox>,
    /// Whether the thread runs.
    runs: AtomicBool,
}

#[derive(Default)]
struct Shared {
    asked: Mutex<Asked>,
    changed: Condvar,
}

#[derive(Default)]
struct Asked {
    /// Timers to be set, by the number of the connection, or cancelled: a few for each connection.
    timers: Vec<(u32, Option<Moment>)>,
    /// Something is in the mailbox.
    mail: bool,
    /// Threads that accept. With the last one every connection has gone.
    accept: u32,
}

/// KiB of stack for the thread: handlers run on it.
const STACK: usize = 128;

/// When one whose handler is at work is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(1);

impl Times {
    /// Of connections for each of which so many bytes may wait.
    pub(super) fn new(most: usize) -> Self {
        let (shared, mailbox) = (Arc::new(Shared::default()), Arc::new(Mailbox::new(most)));
        let its = Arc::clone(&shared);
        mailbox.wakes(Waker::new(move || {
            lock(&its.asked).mail = true;
            its.changed.notify_all();
        }));
        Self { shared, mailbox, runs: AtomicBool::new(false) }
    }

    /// A thread begins to accept.
    pub(super) fn accepts(&self) {
        lock(&self.shared.asked).accept += 1;
    }

    /// A thread accepts no more, and the connections have gone.
    pub(super) fn accepts_no_more(&self) {
        lock(&self.shared.asked).accept -= 1;
        self.shared.changed.notify_all();
    }

    /// Has the handler of a connection called at this moment.
    pub(super) fn set(&self, number: u32, due: Moment) {
        lock(&self.shared.asked).timers.push((number, Some(due)));
        self.shared.changed.notify_all();
    }

    /// Starts the thread where it does not run. `keep` makes what it does, which is to [`keep`](Self::keep) the times.
    #[inline]
    pub(super) fn start<H: Handler, K: FnOnce(&mut Worker<H>) + Send + 'static>(
        &self,
        worker: &Worker<H>,
        keep: impl FnOnce() -> K,
    ) -> Result<(), Error> {
        if self.runs.load(Relaxed) || self.runs.swap(true, Relaxed) {
            return Ok(());
        }
        let keep = keep();
        let started = worker.spawn(STACK * 1024, move |worker| {
            keep(worker);
            Ok(())
        });
        if started.is_err() {
            self.runs.store(false, Relaxed);
        }
        started
    }

    /// What the thread does: `call` calls the handler of a connection, and returns whether it could; `take_in` takes in a
    /// connection that others have made. No lock is held meanwhile.
    pub(super) fn keep<H: Handler>(
        &self,
        worker: &mut Worker<H>,
        call: impl Fn(u32, &mut Worker<H>) -> bool,
        take_in: impl Fn(Incoming, &mut Worker<H>),
    ) {
        let mut due = Vec::new();
        while self.wait(worker) {
            worker.clock.expired(Instant::now(), &mut due);
            if self.mailbox.any() {
                for incoming in self.mailbox.take(&mut due) {
                    take_in(incoming, worker);
                }
            }
            while let Some(number) = due.pop() {
                // One that is at work is asked again a little later: the others need not wait for it.
                if !call(number, worker) {
                    let again = worker.clock.moment().after(ASK_AGAIN);
                    worker.clock.set_alarm(number, again);
                }
            }
        }
    }

    /// A connection is over.
    pub(super) fn cancel(&self, number: u32) {
        if !self.runs.load(Relaxed) {
            return;
        }
        lock(&self.shared.asked).timers.push((number, None));
        self.shared.changed.notify_all();
    }

    /// Does what was asked for and waits until a timer is due, or something is in the mailbox; `false` where the server has ended.
    fn wait<H: Handler>(&self, worker: &mut Worker<H>) -> bool {
        let mut asked = lock(&self.shared.asked);
        loop {
            for (number, due) in asked.timers.drain(..) {
                match due {
                    Some(due) => worker.clock.set_alarm(number, due),
                    None => worker.clock.cancel(number),
                }
            }
            if asked.accept == 0 {
                return false;
            }
            if std::mem::take(&mut asked.mail) {
                return true;
            }
            worker.wait_in_time(&worker.clock);
            asked = match worker.clock.next_in(Instant::now()) {
                None => self.shared.changed.wait(asked).unwrap_or_else(PoisonError::into_inner),
                Some(left) if left.is_zero() => return true,
                Some(left) => {
                    let waited = self.shared.changed.wait_timeout(asked, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}
