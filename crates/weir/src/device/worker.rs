//! What each thread of a run holds: it says what is issued, and counts what came back.

use super::{
    Direction, Handler,
    common::Common,
    io::{Issue, Outcome},
    positions::Positions,
    sampling::Sampling,
};
use crate::{
    Error,
    counters::device::Counters,
    lifecycle::{Answer, Answers},
    wake::Waker,
};
use std::{io, num::NonZeroU64, sync::Arc, time::Instant};

/// One thread of a run.
pub struct Worker<H> {
    /// Its number, from 0.
    pub index: usize,
    /// Its counters; this thread is their only writer.
    pub counters: Arc<Counters>,
    /// What its calls into contracts count.
    pub calls: Arc<crate::counters::Counters>,
    pub(super) handler: H,
    /// A panic now is the handler's.
    pub(super) in_handler: bool,
    common: Arc<Common>,
    positions: Positions,
    direction: Direction,
    sampling: Sampling,
    /// Bytes that an I/O is expected to move.
    expected: usize,
    /// None is to be issued any more.
    pub(super) exhausted: bool,
    ready: Answer,
}

impl<H: Handler> Worker<H> {
    pub(super) fn new(
        index: usize,
        handler: H,
        common: Arc<Common>,
        positions: Positions,
        direction: Direction,
        sampling: Sampling,
        ready: Answers,
    ) -> Self {
        let expected = common.expected;
        Self {
            index,
            counters: Arc::default(),
            calls: Arc::default(),
            handler,
            in_handler: false,
            common,
            positions,
            direction,
            sampling,
            expected,
            exhausted: false,
            ready: Answer::to(Some(ready)),
        }
    }

    /// Says that the thread has started, and sleeps until all have. `waker` ends its waits.
    pub fn ready(&mut self, waker: Option<Waker>) {
        if let Some(waker) = waker {
            self.common.shared.add_waker(waker);
        }
        self.ready.give(Ok(()));
        self.common.wait_for_all();
        self.common.began.get_or_init(Instant::now);
    }

    /// States a setting that was only known once the thread had started.
    pub fn state(&self, name: &str, value: impl ToString) {
        self.common.state(name, value);
    }

    /// Whether the run is to end.
    #[inline]
    pub fn stopping(&self) -> bool {
        self.common.shared.stopping()
    }

    /// The next I/O, which counts as issued from now on; `None` if none is to be issued any more.
    #[inline]
    pub fn issue(&mut self) -> Option<Issue> {
        if self.common.shared.stopping() || !self.common.take_one() {
            return None;
        }
        self.counters.issued.one();
        let at = self.positions.next();
        let since = if self.sampling.due() { self.now() } else { None };
        Some(Issue { at, since })
    }

    /// Counts what became of an I/O, and tells the handler of what it read or wrote: `buffer` begins with
    /// that.
    #[inline]
    pub fn finish(&mut self, issue: &Issue, outcome: Outcome, buffer: &[u8]) {
        let Outcome::Moved(bytes) = outcome else { return self.failed(outcome) };
        self.counters.completed.one();
        if let Some(since) = issue.since {
            self.sample(since);
        }
        if bytes < self.expected {
            self.less(bytes);
        }
        self.counters.bytes.add(bytes as u64);
        self.in_handler = true;
        match self.direction {
            Direction::Read => self.handler.on_read(&buffer[..bytes], issue.at),
            Direction::Write => self.handler.on_write(bytes),
        }
        self.in_handler = false;
    }

    /// Counts a take that brought so many.
    #[inline]
    pub fn took(&self, ios: usize) {
        if ios > 0 {
            self.counters.batches.record(ios as u64);
        }
    }

    /// The time since the run was made, in ns, and one more.
    #[cold]
    fn now(&self) -> Option<NonZeroU64> {
        NonZeroU64::new(self.common.made.elapsed().as_nanos() as u64 + 1)
    }

    #[cold]
    fn sample(&mut self, since: NonZeroU64) {
        let now = self.now().map_or(0, NonZeroU64::get);
        let ns = now.saturating_sub(since.get());
        self.counters.sampled.one();
        self.in_handler = true;
        self.handler.on_sample(ns);
        self.in_handler = false;
    }

    #[inline]
    fn less(&mut self, bytes: usize) {
        if bytes > 0 {
            self.counters.short.one();
            return;
        }
        self.counters.empty.one();
        if self.common.ends {
            self.ended();
        }
    }

    /// Nobody writes to the pipe: what would follow is as many empty reads as the program can make.
    #[cold]
    fn ended(&self) {
        let problem = "it has no writer any more, and all that was written is read";
        let end = io::Error::new(io::ErrorKind::UnexpectedEof, problem);
        self.common.shared.fail(Error::io(self.common.what(), end));
    }

    #[cold]
    fn failed(&mut self, outcome: Outcome) {
        self.counters.failed.one();
        let error = match outcome {
            Outcome::Failed(error) => error,
            _ if self.stopping() => return self.counters.cancelled.one(),
            _ => io::Error::new(io::ErrorKind::Interrupted, "the system called it back"),
        };
        self.common.note(error);
    }

    pub(super) fn end(&mut self, error: Option<Error>) {
        self.ready.end(error, &self.common.shared);
    }
}
