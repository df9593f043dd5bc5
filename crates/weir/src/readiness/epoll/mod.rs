//! epoll: the set stays in the kernel, and a wait brings only what is ready.
//!
//! A wait costs time for each socket that is ready and nothing for the others: right for many
//! sockets. With [`Trigger::Level`](super::Trigger::Level) a socket is told as long as it is ready; with
//! [`Trigger::Edge`](super::Trigger::Edge) only when something has come since it was told last, so the program must
//! receive until nothing is left, or remember that it did not.
//!
//! Linux only. Elsewhere everything here says so.

#[cfg(target_os = "linux")]
#[path = "linux.rs"]
mod native;
#[cfg(not(target_os = "linux"))]
use crate::absent as native;

pub use native::Epoll;
