//! Locks and atomics: the standard library's, or loom's when its model checker runs.

#[cfg(loom)]
pub(crate) use loom::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicBool, Ordering, fence},
};
#[cfg(all(loom, target_os = "linux"))]
pub(crate) use loom::thread;
#[cfg(all(not(loom), any(test, target_os = "linux")))]
pub(crate) use std::sync::atomic::fence;
#[cfg(not(loom))]
pub(crate) use std::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicBool, Ordering},
};
#[cfg(all(not(loom), target_os = "linux"))]
pub(crate) use std::thread;
