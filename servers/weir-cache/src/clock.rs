//! The time that keys expire by.

use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

/// Milliseconds since some beginning.
#[derive(Debug, Clone)]
pub enum Clock {
    /// Of the machine's steady clock, since this moment.
    Steady(Instant),
    /// As somebody sets it: a test.
    Set(Arc<AtomicU64>),
}

impl Clock {
    /// The machine's, from now on.
    pub fn steady() -> Self {
        Self::Steady(Instant::now())
    }

    /// The time, to be read when it is first asked for.
    pub fn now(&self) -> Now<'_> {
        Now { clock: self, read: Cell::new(None) }
    }

    fn read(&self) -> u64 {
        match self {
            Clock::Steady(since) => since.elapsed().as_millis() as u64,
            Clock::Set(time) => time.load(Relaxed),
        }
    }
}

/// The time of what is done at once: commands that came together have the same, and those that need none read none.
#[derive(Debug)]
pub struct Now<'a> {
    clock: &'a Clock,
    read: Cell<Option<u64>>,
}

impl Now<'_> {
    /// In milliseconds.
    pub fn ms(&self) -> u64 {
        self.read.get().unwrap_or_else(|| {
            let now = self.clock.read();
            self.read.set(Some(now));
            now
        })
    }
}
