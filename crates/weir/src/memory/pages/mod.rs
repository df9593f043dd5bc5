//! Pages from the operating system. Each file supplies `Pages` with the same methods:
//! `map(bytes, align, options)`, `base`, `obtained`, and gives the pages back when dropped.

// Miri cannot map memory, and other systems have no file of their own: both use the heap.
#[cfg(any(miri, not(target_os = "linux")))]
mod heap;
#[cfg(any(miri, not(target_os = "linux")))]
pub use heap::Pages;

#[cfg(all(target_os = "linux", not(miri)))]
mod linux;
#[cfg(all(target_os = "linux", not(miri)))]
pub use linux::Pages;
