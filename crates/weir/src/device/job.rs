//! What every design is given to start with.

use super::{
    Device, Direction, Handler, Running, Wants, Worker,
    common::Common,
    handler::{Left, MakeHandler},
    positions::Positions,
    reads::Reads,
    running::{Thread, ThreadFinal},
    sampling::Sampling,
};
use crate::{
    Error,
    events::event,
    lifecycle::{Answers, failure_of, live, lock},
    memory::{Layout, Region},
};
use std::{
    sync::{Arc, OnceLock},
    thread,
};

/// A run to be started: what is read, how much at a time, and who is told.
pub struct Job<H> {
    /// What is read.
    pub device: Device,
    /// Bytes asked for by each I/O.
    pub length: usize,
    reads: Reads,
    make_handler: MakeHandler<H>,
    pub(super) common: Arc<Common>,
    /// How many threads read.
    threads: usize,
    started: Vec<Thread>,
    ready: Answers,
}

/// What a thread does from its start to its end.
type Body<H> = Box<dyn FnOnce(&mut Worker<H>) -> Result<(), Error> + Send>;

impl<H: Handler> Job<H> {
    pub(super) fn new(reads: Reads, wants: Wants, make_handler: MakeHandler<H>) -> Self {
        let (device, length) = (reads.device.clone(), reads.length);
        let path = device.path().display();
        let what = match device.direction() {
            Direction::Read => format!("reading {path}"),
            Direction::Write => format!("writing to {path}"),
        };
        let expected = match wants {
            Wants::Content => device.kind().record().map_or(length, |record| length.min(record)),
            Wants::Nothing | Wants::Calls => 0,
        };
        let common = Common::new(reads.ios, reads.errors_max, expected, device.kind().ends(), what);
        common.state("device", path);
        common.state("kind", device.kind());
        common.state("direction", device.direction());
        common.state("length", length);
        for (name, value) in device.descriptor.stated() {
            common.state(name, value);
        }
        Self {
            device,
            length,
            reads,
            make_handler,
            common: Arc::new(common),
            threads: 1,
            started: Vec::new(),
            ready: Answers::default(),
        }
    }

    /// Memory for so many I/Os, all zeroes, and what was obtained stated.
    ///
    /// # Errors
    /// [`Error::Memory`].
    pub fn buffers(&self, count: usize) -> Result<Arc<Region>, Error> {
        let layout = Layout::packed(0, self.length.max(1), ALIGNMENT);
        let region = Region::new(layout, count as u32, self.reads.region)?;
        let obtained = region.obtained();
        self.state("memory-bytes", obtained.bytes);
        self.state("page-bytes", obtained.page_bytes);
        self.state("huge-pages-advised", obtained.huge_pages_advised);
        lock(&self.common.shared.regions).push(Arc::clone(&region));
        Ok(region)
    }

    /// States a setting that is in effect.
    pub fn state(&self, name: &str, value: impl ToString) {
        self.common.state(name, value);
    }

    /// Says how many threads will read, so that each begins elsewhere in a file.
    pub fn shared_by(&mut self, threads: usize) {
        self.threads = threads;
    }

    /// Calls `waker` when the run ends.
    pub fn on_stop(&self, waker: crate::wake::Waker) {
        self.common.shared.add_waker(waker);
    }

    /// Starts a thread. `body` says [`Worker::ready`] once all that can fail at the start is
    /// done, which sleeps until all threads are, and returns when the run ends.
    ///
    /// # Errors
    /// [`Error::Io`] if the system gives no thread.
    pub fn spawn(
        &mut self,
        body: impl FnOnce(&mut Worker<H>) -> Result<(), Error> + Send + 'static,
    ) -> Result<(), Error> {
        self.spawn_boxed(Box::new(body))
    }

    /// Compiled once for all bodies.
    fn spawn_boxed(&mut self, body: Body<H>) -> Result<(), Error> {
        let index = self.started.len();
        let id = Arc::new(OnceLock::new());
        let own_id = Arc::clone(&id);
        let bytes = self.device.bytes();
        let positions = match self.device.kind() {
            super::Kind::File => Positions::of(bytes, self.length.max(1), index, self.threads),
            _ => Positions::NOWHERE,
        };
        let mut worker = Worker::new(
            index,
            (self.make_handler)(index),
            Arc::clone(&self.common),
            positions,
            self.device.direction(),
            Sampling::one_in(self.reads.sample_every, index as u64 + 1),
            self.ready.clone(),
        );
        let (counters, calls) = (Arc::clone(&worker.counters), Arc::clone(&worker.calls));
        let common = Arc::clone(&self.common);
        *lock(&common.alive) += 1;
        let spawned =
            thread::Builder::new().name(format!("weir-device-{index}")).spawn(move || {
                let usage = live(&own_id, || {
                    let error = match failure_of(index, || body(&mut worker)) {
                        Some(Error::ThreadPanicked { thread, message }) if worker.in_handler => {
                            Some(Error::HandlerPanicked { thread, message })
                        }
                        other => other,
                    };
                    worker.end(error);
                });
                let (counters, calls) = (worker.counters.snapshot(), worker.calls.snapshot());
                common.thread_ended();
                ThreadFinal { handler: Box::new(worker.handler) as Left, counters, calls, usage }
            });
        let handle = spawned.map_err(|e| {
            *lock(&self.common.alive) -= 1;
            Error::io(format!("starting thread {index}"), e)
        })?;
        self.started.push(Thread { handle, counters, calls, id });
        Ok(())
    }

    /// Waits until every thread is ready.
    ///
    /// # Errors
    /// The first error of a thread; all threads have ended then.
    pub fn run(mut self) -> Result<Running<H>, Error> {
        let first_error = self.ready.first_error_of(self.started.len());
        let started = std::mem::take(&mut self.started);
        let running = Running::new(Arc::clone(&self.common), started);
        match first_error {
            None => {
                self.common.open();
                event!(INFO, settings = ?running.effective(), "a device is read or written");
                Ok(running)
            }
            Some(error) => {
                // Whoever sleeps until all are ready finds that it is over.
                self.common.shared.stop();
                self.common.open();
                drop(running);
                Err(error)
            }
        }
    }
}

/// Buffers begin where a device that reads past the cache of pages can take them.
const ALIGNMENT: usize = 512;

/// A start that failed half way leaves no thread behind.
impl<H> Drop for Job<H> {
    fn drop(&mut self) {
        if self.started.is_empty() {
            return;
        }
        self.common.shared.stop();
        self.common.open();
        for thread in self.started.drain(..) {
            let _ = thread.handle.join();
        }
    }
}
