//! Reads that go on, and what is left of them afterwards.

use super::{
    Handler,
    common::{Common, Errors},
    handler::{Left, left},
};
use crate::{
    Error,
    counters::{
        self,
        device::{Counters, Snapshot},
        os::{ThreadId, ThreadUsage},
    },
    lifecycle::lock,
    wake::Waker,
};
use std::{
    marker::PhantomData,
    sync::{Arc, OnceLock},
    thread,
    time::{Duration, Instant},
};

/// Reads that go on. Dropping it stops them.
pub struct Running<H> {
    run: Started,
    handlers: PhantomData<fn() -> H>,
}

/// The part of it that does not depend on the handler.
struct Started {
    common: Arc<Common>,
    threads: Vec<Thread>,
}

/// A thread of a run.
pub(super) struct Thread {
    pub handle: thread::JoinHandle<ThreadFinal<Left>>,
    pub counters: Arc<Counters>,
    pub calls: Arc<counters::Counters>,
    pub id: Arc<OnceLock<ThreadId>>,
}

/// What is left of a run that is over.
#[derive(Debug)]
#[must_use = "it says whether the run failed"]
#[non_exhaustive]
pub struct Final<H> {
    /// What each thread counted, with its handler.
    pub threads: Vec<ThreadFinal<H>>,
    /// From when the first thread began to the stop, to the end of the last I/O, or to the failure that ended it.
    pub elapsed: Duration,
    /// Buffers that were made, and that are back; what lacks is leaked, since the system did not give it
    /// back in time.
    pub buffers: (u32, u32),
    /// Errors of the device.
    pub errors: Errors,
    /// Why the run ended by itself, if that was no success.
    pub failure: Option<Error>,
}

/// What one thread leaves behind.
#[derive(Debug)]
#[non_exhaustive]
pub struct ThreadFinal<H> {
    /// Its handler, with its state.
    pub handler: H,
    /// What it counted.
    pub counters: Snapshot,
    /// What its calls into contracts counted.
    pub calls: counters::Snapshot,
    /// What the operating system counted of it.
    pub usage: ThreadUsage,
}

impl<H> Final<H> {
    /// The counters of all threads, added up.
    pub fn total(&self) -> Snapshot {
        let mut total = Snapshot::default();
        self.threads.iter().for_each(|thread| total.merge(&thread.counters));
        total
    }

    /// What the calls of all threads into contracts counted, added up.
    pub fn calls(&self) -> counters::Snapshot {
        let mut total = counters::Snapshot::default();
        self.threads.iter().for_each(|thread| total.merge(&thread.calls));
        total
    }
}

impl<H> Running<H> {
    pub(super) fn new(common: Arc<Common>, threads: Vec<Thread>) -> Self {
        Self { run: Started { common, threads }, handlers: PhantomData }
    }

    /// The same, by the handlers that are in the boxes of its threads.
    pub(super) fn with_handlers<T>(self) -> Running<T> {
        Running { run: self.run, handlers: PhantomData }
    }

    /// The settings in effect, asked for and obtained.
    pub fn effective(&self) -> Vec<(String, String)> {
        self.run.common.shared.effective()
    }

    /// The counters of all threads, added up, now.
    pub fn counters(&self) -> Snapshot {
        let mut total = Snapshot::default();
        self.run.threads.iter().for_each(|thread| total.merge(&thread.counters.snapshot()));
        total
    }

    /// What the calls of all threads into contracts counted, added up, now.
    pub fn calls(&self) -> counters::Snapshot {
        let mut total = counters::Snapshot::default();
        self.run.threads.iter().for_each(|thread| total.merge(&thread.calls.snapshot()));
        total
    }

    /// The operating system's number of each thread that has begun.
    pub fn thread_ids(&self) -> Vec<ThreadId> {
        self.run.threads.iter().filter_map(|thread| thread.id.get().copied()).collect()
    }

    /// Whether it still goes on. It ends by itself after the number of I/Os asked for, or when it
    /// failed.
    pub fn is_running(&self) -> bool {
        !self.run.common.shared.stopping()
    }

    /// Calls `waker` when it ends, asked to or by itself; at once if it has. So whoever waits for its end need not look.
    pub fn on_end(&self, waker: Waker) {
        self.run.common.shared.add_waker(waker);
    }

    /// Waits until it has ended, asked to ([`stopper`](Self::stopper)) or by itself; at once if it has. What is left of it
    /// then comes from [`stop`](Self::stop).
    pub fn wait(&self) {
        self.run.common.wait(None);
    }

    /// The same for so long at most; says whether it has ended.
    pub fn wait_for(&self, time: Duration) -> bool {
        self.run.common.wait(Some(time))
    }

    /// Asks it to end, from any thread, and does not wait for it: for whoever [`wait`](Self::wait)s, or for a thread
    /// that is told of signals. It takes locks, so a signal handler itself may not use it. [`stop`](Self::stop) is still to be
    /// called, and has less to wait for.
    pub fn stopper(&self) -> Waker {
        let shared = Arc::downgrade(&self.run.common);
        Waker::new(move || {
            if let Some(shared) = shared.upgrade() {
                shared.shared.stop();
            }
        })
    }

    /// Calls `call` with the failure when it fails, on the thread that does, before anybody is woken; at once if it
    /// has failed. Each that was given is called, and a panic of one harms nobody.
    pub fn on_failure(&self, call: impl FnOnce(&Error) + Send + 'static) {
        self.run.common.shared.on_failure(Box::new(call));
    }
}

impl<H: Handler> Running<H> {
    /// Ends it: issues no more, cancels what waits, and takes everything back.
    pub fn stop(self) -> Final<H> {
        let Final { threads, elapsed, buffers, errors, failure } = self.run.stop();
        let threads = threads.into_iter().map(ThreadFinal::with_handler).collect();
        Final { threads, elapsed, buffers, errors, failure }
    }
}

impl ThreadFinal<Left> {
    fn with_handler<H: Handler>(self) -> ThreadFinal<H> {
        let Self { handler, counters, calls, usage } = self;
        ThreadFinal { handler: left(handler), counters, calls, usage }
    }
}

impl Started {
    fn stop(mut self) -> Final<Left> {
        let threads = self.join();
        let ended = self.common.shared.ended.get().copied().unwrap_or_else(Instant::now);
        let began = self.common.began.get().copied().unwrap_or(ended);
        let elapsed = ended.saturating_duration_since(began);
        // Every queue has gone with its thread, so this is where each buffer has come to.
        let regions = lock(&self.common.shared.regions);
        let made = regions.iter().map(|region| region.count()).sum();
        let returned = regions.iter().map(|region| region.in_pool()).sum();
        drop(regions);
        let failure = self.common.shared.take_failure();
        let mut report = Final {
            threads,
            elapsed,
            buffers: (made, returned),
            errors: self.common.errors(),
            failure,
        };
        report.settle();
        report
    }

    fn join(&mut self) -> Vec<ThreadFinal<Left>> {
        self.common.shared.stop();
        let join = |thread: Thread| thread.handle.join().expect("the thread catches panics");
        self.threads.drain(..).map(join).collect()
    }
}

impl<H> Final<H> {
    /// What was under way when a thread ended in the middle (a panic, a queue that failed, or one that
    /// got nothing back in time) came back to nobody: it was cancelled.
    fn settle(&mut self) {
        let total = self.total();
        let lost = total.issued.saturating_sub(total.completed + total.failed);
        if let (true, Some(first)) = (lost > 0, self.threads.first_mut()) {
            first.counters.failed += lost;
            first.counters.cancelled += lost;
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        self.join();
    }
}
