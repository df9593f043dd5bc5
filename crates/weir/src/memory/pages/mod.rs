//! Pages from the operating system. Each file supplies `Pages` with the same methods:
//! `map(bytes, align, options)`, `base`, `obtained`, and gives the pages back when dropped.

/// Whether so many bytes are committed at the start where so many are left: an eighth at most, so that a
/// program that starts takes nobody's last memory, nor several that start together. Where it is not known what is left, they are.
fn may_be_committed(bytes: usize, left_bytes: Option<u64>) -> bool {
    left_bytes.is_none_or(|left| bytes as u64 <= left / 8)
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
