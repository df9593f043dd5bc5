//! The wish to stop, from Ctrl-C to whoever waits.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Event;

/// Raised once, never lowered. Clones are the same interrupt.
///
/// Whoever waits for a child is woken by an event in the same channel that brings the
/// child's lines, so that nothing has to poll.
#[derive(Debug, Clone, Default)]
pub struct Interrupt(Arc<Listeners>);

#[derive(Debug, Default)]
struct Listeners {
    raised: AtomicBool,
    listeners: Mutex<Vec<(u32, SyncSender<Event>)>>,
}

impl Interrupt {
    /// Not raised.
    pub fn new() -> Self {
        Self::default()
    }

    /// Raises it and wakes all who wait. May be called from a handler of Ctrl-C that runs in
    /// a thread of its own, not from a signal handler.
    pub fn raise(&self) {
        self.0.raised.store(true, SeqCst);
        for (_, listener) in self.listeners().drain(..) {
            // A full channel has events that wake its reader, who looks at the flag after each.
            let _ = listener.try_send(Event::Interrupted);
        }
    }

    /// Whether it was raised.
    pub fn is_raised(&self) -> bool {
        self.0.raised.load(SeqCst)
    }

    /// Adds who is to be woken: the reader of a child, known by its process id. It looks at
    /// the flag before each wait, so that nothing is missed that was raised before.
    pub(crate) fn listen(&self, child: u32, listener: SyncSender<Event>) {
        self.listeners().push((child, listener));
    }

    /// Forgets the reader of a child that is gone.
    pub(crate) fn forget(&self, child: u32) {
        self.listeners().retain(|(id, _)| *id != child);
    }

    fn listeners(&self) -> MutexGuard<'_, Vec<(u32, SyncSender<Event>)>> {
        self.0.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
