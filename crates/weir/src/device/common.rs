//! What the threads of a run share.

use crate::{
    Error,
    lifecycle::{Lifecycle, lock},
};
use std::{
    io,
    sync::{
        Condvar, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// What the threads of a run share.
pub(super) struct Common {
    pub shared: Lifecycle,
    /// I/Os that may still be issued, if that is limited.
    left: Option<AtomicU64>,
    /// Bytes that an I/O is expected to move.
    pub expected: usize,
    /// Whether an empty read says that nothing will come any more.
    pub ends: bool,
    /// What each I/O does, with what.
    what: String,
    errors: Mutex<Errors>,
    errors_max: u64,
    /// When the run was made: times of the sample count from here, whichever thread takes them.
    pub made: Instant,
    /// When the first thread began.
    pub began: OnceLock<Instant>,
    /// Whether all threads are ready, so that the first I/O may be issued.
    all_ready: Mutex<bool>,
    go: Condvar,
    /// Threads that have not ended.
    pub alive: Mutex<usize>,
    over: Condvar,
}

impl Common {
    /// Of a run of so many I/Os, if that is limited, which ends after so many errors.
    pub fn new(
        ios: Option<u64>,
        errors_max: u64,
        expected: usize,
        ends: bool,
        what: String,
    ) -> Self {
        Self {
            shared: Lifecycle::default(),
            left: ios.map(AtomicU64::new),
            expected,
            ends,
            what,
            errors: Mutex::default(),
            errors_max,
            made: Instant::now(),
            began: OnceLock::new(),
            all_ready: Mutex::new(false),
            go: Condvar::new(),
            alive: Mutex::new(0),
            over: Condvar::new(),
        }
    }

    /// Whether one more I/O may be issued, as far as their number is concerned.
    #[inline]
    pub fn take_one(&self) -> bool {
        match &self.left {
            None => true,
            Some(left) => left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok(),
        }
    }

    pub fn state(&self, name: &str, value: impl ToString) {
        self.shared.state(name, value);
    }

    /// What was being done when an I/O failed.
    pub fn what(&self) -> String {
        self.what.clone()
    }

    /// Notes an error of the device; more than may be end the run.
    pub fn note(&self, error: io::Error) {
        let mut errors = lock(&self.errors);
        errors.note(&error);
        if errors.all() > self.errors_max {
            drop(errors);
            self.shared.fail(Error::io(self.what(), error));
        }
    }

    pub fn errors(&self) -> Errors {
        lock(&self.errors).clone()
    }

    /// Lets the threads that are ready begin, now and later.
    pub fn open(&self) {
        *lock(&self.all_ready) = true;
        self.go.notify_all();
    }

    /// Sleeps until all threads are ready: threads that already read would keep the cores from one that
    /// is still to be started, longer the more of them there are.
    pub fn wait_for_all(&self) {
        let mut all_ready = lock(&self.all_ready);
        while !*all_ready {
            all_ready = self.go.wait(all_ready).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The last thread that ends, ends the run.
    pub fn thread_ended(&self) {
        let mut alive = lock(&self.alive);
        *alive -= 1;
        if *alive == 0 {
            self.shared.stop();
            self.over.notify_all();
        }
    }

    /// Waits until all threads have ended, or until the time is over if there is one; says whether they have.
    pub fn wait(&self, time: Option<Duration>) -> bool {
        let (alive, some) = (lock(&self.alive), |alive: &mut usize| *alive > 0);
        let left = match time {
            None => *self.over.wait_while(alive, some).unwrap_or_else(PoisonError::into_inner),
            Some(time) => {
                let waited = self.over.wait_timeout_while(alive, time, some);
                *waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        left == 0
    }
}

/// Errors of a device, by what they say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Errors {
    kinds: Vec<(String, u64)>,
    others: u64,
}

/// Most errors told apart.
const KINDS: usize = 16;

impl Errors {
    fn note(&mut self, error: &io::Error) {
        let text = error.to_string();
        if let Some((_, times)) = self.kinds.iter_mut().find(|(kind, _)| *kind == text) {
            *times += 1;
        } else if self.kinds.len() < KINDS {
            self.kinds.push((text, 1));
        } else {
            self.others += 1;
        }
    }

    /// Each kind of error and how often it came, in the order of coming; at most 16 are told apart.
    pub fn by_kind(&self) -> &[(String, u64)] {
        &self.kinds
    }

    /// How many there were.
    pub fn all(&self) -> u64 {
        self.kinds.iter().map(|(_, times)| times).sum::<u64>() + self.others
    }
}
