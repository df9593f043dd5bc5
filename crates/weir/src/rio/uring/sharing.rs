//! What the two halves of a queue share: plain cells where both stay on one thread, locks where
//! they are used by different threads at the same time.

use crate::{
    rio::{HandOver, OneThread, Threading},
    sync::Mutex,
};
use std::{
    cell::{Cell, RefCell},
    sync::{
        PoisonError,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

/// How the two halves of a queue share what they share.
pub trait Sharing: Threading {
    /// Holds a value that one of the halves uses at a time.
    type Guard<V>: Guard<V>;
    /// Holds a number.
    type Count: Count;
}

impl Sharing for OneThread {
    type Guard<V> = RefCell<V>;
    type Count = Cell<u32>;
}

impl Sharing for HandOver {
    type Guard<V> = Mutex<V>;
    type Count = AtomicU32;
}

/// Holds a value that one user has at a time.
pub trait Guard<V> {
    /// Takes a value in.
    fn new(value: V) -> Self;
    /// Uses the value; waits while another thread does.
    fn with<R>(&self, f: impl FnOnce(&mut V) -> R) -> R;
    /// Uses the value, unless another thread does just now.
    fn try_with<R>(&self, f: impl FnOnce(&mut V) -> R) -> Option<R>;
}

impl<V> Guard<V> for RefCell<V> {
    fn new(value: V) -> Self {
        Self::new(value)
    }

    #[inline]
    fn with<R>(&self, f: impl FnOnce(&mut V) -> R) -> R {
        f(&mut self.borrow_mut())
    }

    #[inline]
    fn try_with<R>(&self, f: impl FnOnce(&mut V) -> R) -> Option<R> {
        Some(self.with(f))
    }
}

// A panic under one of these locks cannot leave the value half changed in a way that matters:
// at worst a slice is counted as leaked. So a poisoned lock is used on.
impl<V> Guard<V> for Mutex<V> {
    fn new(value: V) -> Self {
        Self::new(value)
    }

    #[inline]
    fn with<R>(&self, f: impl FnOnce(&mut V) -> R) -> R {
        f(&mut self.lock().unwrap_or_else(PoisonError::into_inner))
    }

    #[inline]
    fn try_with<R>(&self, f: impl FnOnce(&mut V) -> R) -> Option<R> {
        // Poisoned or taken: both come right by themselves at the next `with`.
        self.try_lock().ok().map(|mut value| f(&mut value))
    }
}

/// Holds a number that both halves change.
pub trait Count: Default {
    /// Adds one, unless that would be more than `limit`.
    fn add_up_to(&self, limit: u32) -> bool;
    /// Takes `n` away.
    fn subtract(&self, n: u32);
    /// The number now.
    fn get(&self) -> u32;
}

impl Count for Cell<u32> {
    #[inline]
    fn add_up_to(&self, limit: u32) -> bool {
        let n = self.get();
        if n < limit {
            self.set(n + 1);
        }
        n < limit
    }

    #[inline]
    fn subtract(&self, n: u32) {
        self.set(self.get() - n);
    }

    #[inline]
    fn get(&self) -> u32 {
        self.get()
    }
}

// Relaxed: the numbers only bound something; what they count is handed over under a lock.
impl Count for AtomicU32 {
    #[inline]
    fn add_up_to(&self, limit: u32) -> bool {
        let fits = self.fetch_add(1, Relaxed) < limit;
        if !fits {
            self.fetch_sub(1, Relaxed);
        }
        fits
    }

    #[inline]
    fn subtract(&self, n: u32) {
        self.fetch_sub(n, Relaxed);
    }

    #[inline]
    fn get(&self) -> u32 {
        self.load(Relaxed)
    }
}
