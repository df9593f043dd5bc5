//! A queue that holds a number of completions, for the tests of the hand-over: with loom's locks
//! where loom runs, else with the library's.

use crate::{
    counters::Counters,
    memory::Slice,
    rio::{
        Batch, CompletionQueue, Peer, Refused, RequestQueue, Span, Stopped, Woken, turn::TurnPort,
    },
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
    /// What the next wait answers, or the next time that a packet is asked for.
    error: Option<io::Error>,
    /// A packet was asked for and has not come.
    armed: bool,
    /// Packets that the port holds.
    packets: usize,
}

impl ModelState {
    fn deliver(&mut self) {
        if self.armed && self.completions > 0 {
            self.armed = false;
            self.packets += 1;
        }
    }
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
        self.change(|state| {
            state.completions += completions;
            state.deliver();
        });
    }

    pub(super) fn fail(&self, kind: io::ErrorKind) {
        self.change(|state| state.error = Some(kind.into()));
    }
}

/// With or without a port of the system's.
pub(super) struct Queue {
    fake: Arc<Fake>,
    has_port: bool,
}

impl Queue {
    pub(super) fn of(fake: &Arc<Fake>, has_port: bool) -> Self {
        Self { fake: Arc::clone(fake), has_port }
    }
}

struct Port(Arc<Fake>);

impl TurnPort for Port {
    fn notify(&self) -> io::Result<()> {
        let mut refused = None;
        self.0.change(|state| {
            refused = state.error.take();
            assert!(!state.armed, "asked again before the packet came");
            state.armed = refused.is_none();
            state.deliver();
        });
        refused.map_or(Ok(()), Err)
    }

    fn post(&self, packets: usize) {
        self.0.change(|state| state.packets += packets);
    }

    fn take(&self, timeout: Option<Duration>, _: &Counters) -> io::Result<bool> {
        let mut state = self.0.lock();
        while state.packets == 0 {
            if timeout == Some(Duration::ZERO) {
                return Ok(false);
            }
            state = self.0.changed.wait(state).unwrap();
        }
        state.packets -= 1;
        Ok(true)
    }
}

impl CompletionQueue for Queue {
    type Rq = NoRequests;

    /// Takes one completion, so that there is something left for another turn.
    fn dequeue(&mut self, _: &mut Batch, _: &Counters) -> io::Result<usize> {
        let ready = &mut self.fake.lock().completions;
        let taken = (*ready).min(1);
        *ready -= taken;
        Ok(taken as usize)
    }

    /// A wait with a time is over at once where nothing has come, however long the time.
    fn wait(
        &mut self,
        at_least: u32,
        timeout: Option<Duration>,
        _: &Counters,
    ) -> io::Result<Woken> {
        assert!(!self.has_port, "threads wait at its port");
        let mut state = self.fake.lock();
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
            if timeout.is_some() {
                return Ok(Woken::TimedOut);
            }
            state = self.fake.changed.wait(state).unwrap();
        }
    }

    fn gather(&mut self, _: u32, _: Duration, counters: &Counters) -> io::Result<Woken> {
        self.wait(1, None, counters)
    }

    fn gathers(&self) -> String {
        "it has no time".into()
    }

    fn waker(&self) -> Waker {
        let fake = Arc::clone(&self.fake);
        Waker::new(move || fake.change(|state| state.asked = true))
    }

    fn turn_port(&self) -> Option<Box<dyn TurnPort>> {
        self.has_port.then(|| Box::new(Port(Arc::clone(&self.fake))) as Box<dyn TurnPort>)
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
