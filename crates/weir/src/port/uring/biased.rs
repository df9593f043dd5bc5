//! A lock that costs one thread next to nothing: biased locking.
//!
//! A port of one thread is used by that thread for each operation, and by others seldom: who posts a packet, closes
//! the port, or associates a socket. So the lock has an *owner*, which marks that it is inside by a plain store and
//! looks, by a plain load, whether the bias is on. Another thread takes a mutex, turns the bias off, and waits until
//! the owner is not inside; the owner takes the mutex as well from then on, until it has done so [`QUIET`] times
//! and nobody else came in between.
//!
//! What makes that right is that of the owner's store and the other's store at least one is seen by the other side.
//! Without the bias each would need a fence between its store and its load; here the other thread has the kernel put
//! one into all running threads of the process (membarrier(2), Linux 4.14), and the owner only needs the compiler to
//! keep the order. Where the kernel does not, there is no bias, and this is a mutex.
//!
//! What it costs: others pay that call, some microseconds, at most once for [`QUIET`] times that the owner comes. How
//! it fails: a thread that waits for the owner, which was put off its core while inside, yields until it is back.
//!
//! Source: "Quickly Reacquirable Locks", Dice, Moir and Scherer, 2003; asymmetric fences as in membarrier(2).

use crate::sync::{
    AtomicBool, Mutex, MutexGuard, Ordering,
    thread::{self, ThreadId},
};
use std::{
    cell::{Cell, UnsafeCell},
    marker::PhantomData,
    ops::{Deref, DerefMut},
};

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

/// How often the owner takes the mutex in a row, without anybody else in between, until the bias is on again.
const QUIET: u32 = if cfg!(any(loom, miri)) { 2 } else { 256 };

/// A value that one thread at a time may change.
pub(super) struct Biased<T> {
    /// Held by whoever is inside, but the owner while the bias is on. Names the owner's thread.
    mutex: Mutex<Option<ThreadId>>,
    /// Whether the bias is off. Changed under the mutex only.
    off: AtomicBool,
    /// Whether another came since the owner last took the mutex. Changed under the mutex only.
    came: AtomicBool,
    /// Whether the owner is inside without the mutex, or looks whether it may be. Changed by the owner only.
    inside: AtomicBool,
    owned: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached by one thread at a time, which may be any.
unsafe impl<T: Send> Sync for Biased<T> {}

/// The right to go in without the mutex. It stays on its thread.
pub(super) struct Owner<'a, T> {
    lock: &'a Biased<T>,
    /// Times in a row that it took the mutex and nobody else had.
    locked: Cell<u32>,
    stays: PhantomData<*const ()>,
}

impl<T> Biased<T> {
    /// With an owner to come, or not: then it is a mutex for good.
    pub fn new(value: T, may_have_an_owner: bool) -> Self {
        Self {
            mutex: Mutex::new(None),
            off: AtomicBool::new(true),
            came: AtomicBool::new(false),
            inside: AtomicBool::new(false),
            owned: AtomicBool::new(!(may_have_an_owner && fences::are_had())),
            value: UnsafeCell::new(value),
        }
    }

    /// Makes the calling thread the owner, unless there is one, or can be none.
    pub fn own(&self) -> Option<Owner<'_, T>> {
        let owned = self.owned.swap(true, Ordering::AcqRel);
        (!owned).then(|| {
            *self.mutex() = Some(thread::current().id());
            Owner { lock: self, locked: Cell::new(0), stays: PhantomData }
        })
    }

    /// Goes in, for whoever is not the owner. The owner may do so too, but not from inside, which panics while the bias
    /// is on.
    pub fn lock(&self) -> Guard<'_, T> {
        let mutex = self.mutex();
        // Who the calling thread is takes as long to find out as the mutex: it is asked only where somebody may be the owner.
        if mutex.is_some_and(|owner| owner == thread::current().id()) {
            // The owner itself: what keeps others out is the mutex.
            assert!(!self.inside.load(Ordering::Relaxed), "it is inside already");
            return Guard { lock: self, mutex: Some(mutex), stays: PhantomData };
        }
        self.came.store(true, Ordering::Relaxed);
        if !self.off.load(Ordering::Relaxed) {
            self.off.store(true, Ordering::Relaxed);
            fences::heavy();
            while self.inside.load(Ordering::Acquire) {
                thread::yield_now();
            }
        }
        // Whoever else is not the owner waits for the mutex. The owner is not inside without it: either it has seen
        // that the bias is off, or its mark was seen here, and then that it was taken away.
        Guard { lock: self, mutex: Some(mutex), stays: PhantomData }
    }

    fn mutex(&self) -> MutexGuard<'_, Option<ThreadId>> {
        // A panic inside is a broken invariant of whoever panicked; what the kernel holds is still accounted for, so
        // it must be reached.
        self.mutex.lock().unwrap_or_else(|e| e.into_inner())
    }
}

/// The right to be inside, which ends with it.
pub(super) struct Guard<'a, T> {
    lock: &'a Biased<T>,
    /// None where it is the owner's mark instead.
    mutex: Option<MutexGuard<'a, Option<ThreadId>>>,
    stays: PhantomData<*const ()>,
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: only the thread that is inside has a guard, and one at a time.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.mutex.is_none() {
            self.lock.inside.store(false, Ordering::Release);
        }
    }
}

impl<'a, T> Owner<'a, T> {
    /// Goes in.
    ///
    /// # Panics
    /// If it is inside already.
    #[inline]
    pub fn lock(&self) -> Guard<'a, T> {
        let lock = self.lock;
        assert!(!lock.inside.load(Ordering::Relaxed), "it is inside already");
        lock.inside.store(true, Ordering::Relaxed);
        fences::light();
        // Whoever else has turned the bias off by now sees the mark and waits. What others did before is seen here, since
        // the bias was turned on again by this thread, under the mutex.
        let mutex = if lock.off.load(Ordering::Relaxed) { Some(self.mutex()) } else { None };
        Guard { lock, mutex, stays: PhantomData }
    }

    /// The mutex instead of the mark, while the bias is off.
    #[cold]
    fn mutex(&self) -> MutexGuard<'a, Option<ThreadId>> {
        let Biased { off, came, inside, .. } = self.lock;
        inside.store(false, Ordering::Release);
        let guard = self.lock.mutex();
        if came.load(Ordering::Relaxed) {
            came.store(false, Ordering::Relaxed);
            self.locked.set(0);
        }
        self.locked.set(self.locked.get() + 1);
        if self.locked.get() == QUIET {
            self.locked.set(0);
            off.store(false, Ordering::Relaxed);
        }
        guard
    }
}

impl<T> Drop for Owner<'_, T> {
    fn drop(&mut self) {
        // The next one begins without the bias, and sees what this one did.
        let lock = self.lock;
        let mut guard = lock.mutex();
        *guard = None;
        lock.off.store(true, Ordering::Relaxed);
        drop(guard);
        lock.owned.store(false, Ordering::Release);
    }
}

/// A fence that costs one side nothing and the other a call.
#[cfg(not(any(loom, miri)))]
mod fences {
    use std::{
        io,
        sync::{
            OnceLock,
            atomic::{Ordering::SeqCst, compiler_fence},
        },
        thread,
    };

    /// Commands of membarrier(2), from linux/membarrier.h: a fence in all running threads of this process, and the
    /// wish to use it.
    const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
    const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

    fn membarrier(command: libc::c_int) -> bool {
        // SAFETY: takes no pointers.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
    }

    /// Whether the kernel has them, by trying: as from here on for this process.
    pub fn are_had() -> bool {
        static HAD: OnceLock<bool> = OnceLock::new();
        *HAD.get_or_init(|| membarrier(REGISTER_PRIVATE_EXPEDITED) && membarrier(PRIVATE_EXPEDITED))
    }

    /// Of the side that comes often.
    #[inline(always)]
    pub fn light() {
        compiler_fence(SeqCst);
    }

    /// Of the other.
    pub fn heavy() {
        while !membarrier(PRIVATE_EXPEDITED) {
            let e = io::Error::last_os_error();
            // It was tried when the port was opened.
            assert_eq!(
                e.raw_os_error(),
                Some(libc::ENOMEM),
                "membarrier was forbidden meanwhile: {e}"
            );
            thread::yield_now();
        }
    }
}

/// The same where a checker follows each access.
#[cfg(any(loom, miri))]
mod fences {
    use crate::sync::{Ordering::SeqCst, fence};

    pub fn are_had() -> bool {
        true
    }

    pub fn light() {
        fence(SeqCst);
    }

    pub fn heavy() {
        fence(SeqCst);
    }
}
