//! How `weir serve udp` sleeps while nothing comes: its counters are read at times, and not at all after two readings in a
//! row that found nothing new. Then the first datagram that a thread has handled wakes who reads them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;

use super::event::Event;

/// Shared by the threads of a server and by who reads their counters.
#[derive(Debug, Clone)]
pub struct Rest {
    is_on: Arc<AtomicBool>,
    events: Sender<Event>,
}

impl Rest {
    /// Nobody rests yet; who does is woken by these events.
    pub fn new(events: Sender<Event>) -> Self {
        Self { is_on: Arc::new(AtomicBool::new(false)), events }
    }

    /// Who reads the counters wants to be woken from now on; says whether that was so already. Only then may he rest: a
    /// thread that looked just before does not wake him, and what it has counted may be in the next reading alone.
    pub fn begin(&self) -> bool {
        self.is_on.swap(true, Ordering::SeqCst)
    }

    /// He need not be woken any more.
    pub fn end(&self) {
        self.is_on.store(false, Ordering::Relaxed);
    }

    /// A thread has handled datagrams. That costs it a look at memory that hardly anybody writes to.
    #[inline]
    pub fn datagrams_came(&self) {
        if self.is_on.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        // One of the threads tells it; the main thread is gone only when the process ends.
        if self.is_on.swap(false, Ordering::SeqCst) {
            let _ = self.events.send(Event::Came);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{TryRecvError, channel};

    use super::*;

    #[test]
    fn the_first_datagrams_of_a_rest_wake_and_no_others() {
        let (sender, events) = channel();
        let (rest, of_thread) = (Rest::new(sender.clone()), Rest::new(sender).clone());
        of_thread.datagrams_came();
        assert_eq!(events.try_recv(), Err(TryRecvError::Empty), "they are another server's");
        let of_thread = rest.clone();
        of_thread.datagrams_came();
        assert_eq!(events.try_recv(), Err(TryRecvError::Empty), "nobody rests");
        assert!(!rest.begin() && rest.begin(), "it is on once it was begun");
        of_thread.datagrams_came();
        of_thread.datagrams_came();
        assert_eq!(
            (events.try_recv(), events.try_recv()),
            (Ok(Event::Came), Err(TryRecvError::Empty))
        );
        assert!(!rest.begin(), "waking has ended it");
        rest.end();
        of_thread.datagrams_came();
        assert_eq!(events.try_recv(), Err(TryRecvError::Empty));
    }
}
