//! Pages from the operating system. Each file supplies `Pages` with the same methods:
//! `map(bytes, align, options)`, `base`, `obtained`, and gives the pages back when dropped.

use super::{Commit, Committed};
use std::ptr::NonNull;

/// What comes of what was asked, for so many bytes where so many are left, if that matters and is known: an eighth at most
/// is committed at the start, by `all`, so that a program that starts takes nobody's last memory, nor several that start
/// together.
fn committed(
    asked: Commit,
    bytes: usize,
    left_bytes: impl FnOnce() -> Option<u64>,
    all: impl FnOnce() -> Committed,
) -> Committed {
    if asked == Commit::Touched {
        return Committed::Touched;
    }
    match left_bytes() {
        Some(left) if bytes as u64 > left / 8 => Committed::TooLittle { left_bytes: Some(left) },
        _ => all(),
    }
}

/// Writes to every page of memory that is filled with zeroes.
///
/// # Safety
/// So many bytes there may be written to, and nobody else knows them yet.
#[cold]
unsafe fn touch(base: NonNull<u8>, bytes: usize, page_bytes: usize) {
    for at in (0..bytes).step_by(page_bytes) {
        // SAFETY: inside those bytes.
        unsafe { base.add(at).write_volatile(0) };
    }
}

// Miri cannot map memory, and other systems have no file of their own: both use the heap.
#[cfg(any(miri, not(target_os = "linux")))]
mod heap;
#[cfg(any(miri, not(target_os = "linux")))]
pub use heap::Pages;

#[cfg(all(target_os = "linux", not(miri)))]
mod linux;
#[cfg(all(target_os = "linux", not(miri)))]
pub use linux::Pages;
