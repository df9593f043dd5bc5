//! A queue that holds a number of completions, for the tests of the hand-over: with loom's locks
//! where loom runs, else with the library's.

use crate::{
    counters::Counters,
    memory::Slice,
    rio::{Batch, CompletionQueue, Peer, Refused, RequestQueue, Span, Stopped, Woken},
    sync::{Condvar, Mutex, MutexGuard},
    wake::Waker,
};
use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

#[derive(Default)]
struct ModelState {
    completions: u32,
    /// A waker was used since the last wait.
    asked: bool,
    /// What the next wait answers.
    error: Option<io::Error>,
}

/// What a [`Queue`] holds.
pub(super) struct Fake {
    state: Mutex<ModelState>,
    changed: Condvar,
}

impl Fake {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(ModelState::default()), changed: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, ModelState> {
        self.state.lock().unwrap()
    }

    fn change(&self, change: impl FnOnce(&mut ModelState)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    pub(super) fn put(&self, completions: u32) {
        self.change(|state| state.completions += completions);
    }

    #[cfg(not(loom))]
    pub(super) fn fail(&self, kind: io::ErrorKind) {
        self.change(|state| state.error = Some(kind.into()));
    }
}

pub(super) struct Queue(Arc<Fake>);

impl Queue {
    pub(super) fn of(fake: &Arc<Fake>) -> Self {
        Self(Arc::clone(fake))
    }
}

impl CompletionQueue for Queue {
    type Rq = NoRequests;

    /// Takes one completion, so that there is something left for another turn.
    fn dequeue(&mut self, _: &mut Batch, _: &Counters) -> io::Result<usize> {
        let ready = &mut self.0.lock().completions;
        let taken = (*ready).min(1);
        *ready -= taken;
        Ok(taken as usize)
    }

    fn wait(&mut self, at_least: u32, _: Option<Duration>, _: &Counters) -> io::Result<Woken> {
        let mut state = self.0.lock();
        loop {
            if std::mem::take(&mut state.asked) {
                return Ok(Woken::ByWaker);
            }
            if let Some(error) = state.error.take() {
                return Err(error);
            }
            if state.completions >= at_least {
                return Ok(Woken::Ready);
            }
            state = self.0.changed.wait(state).unwrap();
        }
    }

    fn waker(&self) -> Waker {
        let fake = Arc::clone(&self.0);
        Waker::new(move || fake.change(|state| state.asked = true))
    }

    fn stop(self, _: Vec<NoRequests>, _: Instant) -> Stopped {
        Stopped::default()
    }
}

/// Posts nothing: these tests only dequeue.
pub(super) struct NoRequests;

impl RequestQueue for NoRequests {
    fn receive(&mut self, slice: Slice) -> Result<(), (Slice, Refused)> {
        Err((slice, Refused::Full))
    }

    fn send(&mut self, slice: Slice, _: impl Into<Span>, _: &Peer) -> Result<(), (Slice, Refused)> {
        Err((slice, Refused::Full))
    }

    fn commit(&mut self, _: &Counters) -> io::Result<()> {
        Ok(())
    }

    fn outstanding(&self) -> (u32, u32) {
        (0, 0)
    }
}
