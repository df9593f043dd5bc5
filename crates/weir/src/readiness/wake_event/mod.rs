//! A wake event that shows up as a readable descriptor: how a wait is ended from another thread.
//!
//! Each file supplies `WakeEvent` with `new`, `signal` (from any thread, never waits), `clear` (until
//! the next signal), and its descriptor.

#[cfg_attr(target_os = "linux", path = "linux.rs")]
#[cfg_attr(windows, path = "windows.rs")]
mod native;

pub(crate) use native::WakeEvent;

use crate::wake::Waker;
use std::sync::Arc;

/// A waker that signals this wake event.
pub(super) fn waker(wake_event: &Arc<WakeEvent>) -> Waker {
    let wake_event = Arc::clone(wake_event);
    Waker::new(move || wake_event.signal())
}
