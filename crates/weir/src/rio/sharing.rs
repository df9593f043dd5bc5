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
    /// Adds one, unless the count is at `limit`.
    fn add_one_below(&self, limit: u32) -> bool;

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
    fn add_one_below(&self, limit: u32) -> bool {
        let count = Cell::get(self);
        if count < limit {
            self.set(count + 1);
        }
        count < limit
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
    fn add_one_below(&self, limit: u32) -> bool {
        // It only counts: what is counted is handed over by a lock.
        let add = |count| (count < limit).then_some(count + 1);
        self.fetch_update(Relaxed, Relaxed, add).is_ok()
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
