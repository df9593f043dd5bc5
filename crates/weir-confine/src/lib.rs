//! Runs a program with less than this machine allows: io_uring or the binding of threads forbidden, few descriptors, little
//! address space, no privilege. For tests of what weir says then; none of it needs root.
//!
//! On systems other than Linux it is empty.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
pub use linux::{Confinement, Resource};
