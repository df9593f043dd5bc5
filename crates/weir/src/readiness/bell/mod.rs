//! A bell that shows up as a readable descriptor: how a wait is ended from another thread.
//!
//! Each file supplies `Bell` with `new`, `ring` (from any thread, never waits), `clear` (until
//! the next ring), and its descriptor.

#[cfg(target_os = "linux")]
#[path = "linux.rs"]
mod native;
#[cfg(windows)]
#[path = "windows.rs"]
mod native;

pub(crate) use native::Bell;

use crate::wake::Waker;
use std::sync::Arc;

/// A waker that rings this bell.
pub(super) fn waker(bell: &Arc<Bell>) -> Waker {
    let bell = Arc::clone(bell);
    Waker::new(move || bell.ring())
}
