//! Who has the queue, who waits for it, and who is woken: what [`Turns`](super::Turns) decides, without its lock, its
//! condition variables and the queue itself. A model of a server decides by the same code.

/// A queue that one thread has at a time, and the threads that wait for it.
#[derive(Debug)]
pub struct Order<Q> {
    /// The queue, while nobody holds a turn.
    queue: Option<Q>,
    /// Threads that parked, the latest on top.
    parked: Vec<usize>,
    /// Threads picked from the stack that have not yet run.
    woken: Box<[bool]>,
}

impl<Q> Order<Q> {
    /// For so many threads. The queue comes with the first [`put_back`](Self::put_back).
    pub fn new(threads: usize) -> Self {
        Self {
            queue: None,
            parked: Vec::with_capacity(threads),
            woken: vec![false; threads].into(),
        }
    }

    /// The queue, for whoever asks while nobody has it. A thread that was woken for it may be too late, and parks
    /// again.
    #[inline]
    pub fn take(&mut self) -> Option<Q> {
        self.queue.take()
    }

    /// Puts the queue back.
    #[inline]
    pub fn put_back(&mut self, queue: Q) {
        debug_assert!(self.queue.is_none(), "two turns for one queue");
        self.queue = Some(queue);
    }

    /// Puts a thread on the stack of those that wait, below its number given to [`new`](Self::new).
    #[inline]
    pub fn park(&mut self, thread: usize) {
        self.parked.push(thread);
        self.woken[thread] = false;
    }

    /// Picks the thread that parked last, to be woken.
    #[inline]
    pub fn pick(&mut self) -> Option<usize> {
        let thread = self.parked.pop()?;
        self.woken[thread] = true;
        Some(thread)
    }

    /// Whether a thread that parked was picked since.
    #[inline]
    pub fn is_picked(&self, thread: usize) -> bool {
        self.woken[thread]
    }

    /// Takes a thread that waits no longer off the stack, if it is there.
    pub fn leave(&mut self, thread: usize) {
        self.parked.retain(|parked| *parked != thread);
    }

    /// Empties the stack, to wake everybody who was not picked.
    pub fn pick_all(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.parked)
    }

    /// The threads that are parked, the latest last.
    pub fn parked(&self) -> &[usize] {
        &self.parked
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn whoever_parked_last_is_picked_first_and_only_once() {
        let mut order = Order::new(3);
        order.put_back("queue");
        assert_eq!((order.take(), order.take()), (Some("queue"), None), "one has it");
        (0..3).for_each(|thread| order.park(thread));
        order.put_back("queue");
        assert_eq!(order.pick(), Some(2));
        assert!(order.is_picked(2) && !order.is_picked(1));
        // Somebody else was faster: the one that was picked parks again, and is on top.
        assert!(order.take().is_some() && order.take().is_none());
        order.park(2);
        assert!(!order.is_picked(2));
        assert_eq!([order.pick(), order.pick()], [Some(2), Some(1)]);
        (1..3).for_each(|thread| order.park(thread));
        order.leave(1);
        assert_eq!(order.parked(), [0, 2], "one has left, and the others stay");
        order.leave(2);
        assert_eq!(order.pick_all(), [0]);
        assert_eq!(order.parked(), [0usize; 0]);
        assert_eq!(order.pick(), None);
    }
}
