//! What a reactor of the program's own can watch, so that no thread has to sit in a wait of weir's.

#[cfg_attr(target_os = "linux", path = "linux.rs")]
#[cfg_attr(not(target_os = "linux"), path = "absent.rs")]
mod native;

pub use native::Watched;
