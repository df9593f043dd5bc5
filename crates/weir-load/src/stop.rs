//! The one flag that ends a flood, whoever raises it.

use std::sync::{
    Mutex,
    atomic::{AtomicBool, Ordering},
};

use crate::lock::lock;

/// Why a flood was ended before its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StopReason {
    /// Someone asked for it, with Ctrl-C for instance. The report is whole.
    Asked,
    /// The control connection was lost, with what happened to it.
    ControlLost(String),
    /// The server revoked its consent, for this reason.
    Revoked(String),
    /// A generator failed, so the others were ended.
    Failed,
    /// A thread hangs, in these words: it may never end.
    Hangs(String),
}

/// A flag that is read before every call to the operating system, without one of its own.
#[derive(Debug, Default)]
pub struct Stop {
    raised: AtomicBool,
    reason: Mutex<Option<StopReason>>,
}

impl Stop {
    /// A flag not raised yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Raises the flag. The first reason given is kept.
    pub fn request(&self, reason: StopReason) {
        lock(&self.reason).get_or_insert(reason);
        self.raised.store(true, Ordering::Release);
    }

    /// Whether it is raised.
    #[inline]
    pub fn is_requested(&self) -> bool {
        self.raised.load(Ordering::Relaxed)
    }

    /// Why, if it is raised.
    pub fn reason(&self) -> Option<StopReason> {
        lock(&self.reason).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_reason_is_kept() {
        let stop = Stop::new();
        assert!(!stop.is_requested());
        assert_eq!(stop.reason(), None);
        stop.request(StopReason::Asked);
        stop.request(StopReason::Failed);
        assert!(stop.is_requested());
        assert_eq!(stop.reason(), Some(StopReason::Asked));
    }
}
