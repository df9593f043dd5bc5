//! How the queues of a provider share what they share: without a lock where they stay on one
//! thread, with one where they move.

use super::{HandOver, OneThread, Threading};
use crate::sync::Mutex;
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::{
        Arc, TryLockError,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

/// A threading with the means of sharing that it needs.
pub trait Sharing: Threading {
    /// A value that several queues reach.
    type Shared<X>: Shared<X>;
    /// A count that several queues change.
    type Count: Count;
}

/// A value that several queues reach, one at a time. Clones reach the same value.
pub trait Shared<X>: Clone {
    /// Shares a value.
    fn new(value: X) -> Self;

    /// Works on it. `f` must not reach for the same value again.
    fn with<R>(&self, f: impl FnOnce(&mut X) -> R) -> R;

    /// Works on it, unless another thread does just now.
    fn try_with<R>(&self, f: impl FnOnce(&mut X) -> R) -> Option<R>;
}

/// A count that several queues change. Clones are the same count.
pub trait Count: Clone + Default {
    /// Adds up to `n`, as far as the count stays within `limit`, and returns how many.
    fn add_below(&self, n: u32, limit: u32) -> u32;

    /// Takes `n` off.
    fn take_off(&self, n: u32);

    /// The count.
    fn get(&self) -> u32;
}

impl Sharing for OneThread {
    type Shared<X> = Rc<RefCell<X>>;
    type Count = Rc<Cell<u32>>;
}

impl Sharing for HandOver {
    type Shared<X> = Arc<Mutex<X>>;
    type Count = Arc<AtomicU32>;
}

impl<X> Shared<X> for Rc<RefCell<X>> {
    fn new(value: X) -> Self {
        Rc::new(RefCell::new(value))
    }

    #[inline]
    fn with<R>(&self, f: impl FnOnce(&mut X) -> R) -> R {
        f(&mut self.borrow_mut())
    }

    #[inline]
    fn try_with<R>(&self, f: impl FnOnce(&mut X) -> R) -> Option<R> {
        Some(self.with(f))
    }
}

impl<X> Shared<X> for Arc<Mutex<X>> {
    fn new(value: X) -> Self {
        Arc::new(Mutex::new(value))
    }

    #[inline]
    fn with<R>(&self, f: impl FnOnce(&mut X) -> R) -> R {
        // The queues leave what they share whole even where an assertion fails half way.
        f(&mut self.lock().unwrap_or_else(|e| e.into_inner()))
    }

    #[inline]
    fn try_with<R>(&self, f: impl FnOnce(&mut X) -> R) -> Option<R> {
        match self.try_lock() {
            Ok(mut value) => Some(f(&mut value)),
            Err(TryLockError::Poisoned(e)) => Some(f(&mut e.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl Count for Rc<Cell<u32>> {
    #[inline]
    fn add_below(&self, n: u32, limit: u32) -> u32 {
        let count = Cell::get(self);
        let added = n.min(limit.saturating_sub(count));
        self.set(count + added);
        added
    }

    #[inline]
    fn take_off(&self, n: u32) {
        self.set(Cell::get(self) - n);
    }

    #[inline]
    fn get(&self) -> u32 {
        Cell::get(self)
    }
}

impl Count for Arc<AtomicU32> {
    #[inline]
    fn add_below(&self, n: u32, limit: u32) -> u32 {
        // It only counts: what is counted is handed over by a lock.
        let room = |count| n.min(limit.saturating_sub(count));
        let before = self.fetch_update(Relaxed, Relaxed, |count| Some(count + room(count)));
        room(before.unwrap_or_else(|count| count))
    }

    #[inline]
    fn take_off(&self, n: u32) {
        self.fetch_sub(n, Relaxed);
    }

    #[inline]
    fn get(&self) -> u32 {
        self.load(Relaxed)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn bounded(count: impl Count) {
        assert_eq!((count.add_below(3, 5), count.get()), (3, 3));
        assert_eq!((count.add_below(3, 5), count.get()), (2, 5));
        assert_eq!((count.add_below(1, 5), count.add_below(1, 4)), (0, 0));
        count.take_off(4);
        assert_eq!((count.add_below(u32::MAX, u32::MAX), count.get()), (u32::MAX - 1, u32::MAX));
    }

    #[test]
    fn a_count_keeps_within_its_limit() {
        bounded(Rc::<Cell<u32>>::default());
        bounded(Arc::<AtomicU32>::default());
    }
}
