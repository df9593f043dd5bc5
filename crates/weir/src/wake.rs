//! Ending somebody's wait from another thread.
//!
//! A [`Waker`] is what is called. Who waits makes it, and decides how it ends the wait: a thread that watches sockets
//! watches a wake event, too (`readiness/wake_event`), one that waits in a ring has a poll of such an event there
//! (`ring/alarm`), a completion port gets a packet, and threads that take turns are told by who holds the turn (`rio/turn`).
//! `lifecycle` calls the wakers of a server's threads when it is to stop.

use std::{fmt, sync::Arc};

/// Ends a wait, now or the next one. Cheap to clone; may be used from any thread, also
/// after what it woke has gone.
#[derive(Clone)]
pub struct Waker(Arc<dyn Fn() + Send + Sync>);

impl Waker {
    /// A waker that calls `wake`, which must not block and may be called too often.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(wake))
    }

    /// Whether one is a clone of the other.
    pub(crate) fn is(&self, other: &Waker) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Ends the wait.
    pub fn wake(&self) {
        (self.0)();
    }
}

impl fmt::Debug for Waker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Waker")
    }
}
