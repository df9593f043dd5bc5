//! epoll: the set stays in the kernel, and a wait brings only what is ready.
//!
//! A wait costs time for each socket that is ready and nothing for the others: right for many
//! sockets. With [`Trigger::Level`] a socket is told as long as it is ready; with
//! [`Trigger::Edge`] only when something has come since it was told last, so the program must
//! receive until nothing is left, or remember that it did not.
//!
//! Linux only. Elsewhere everything here says so.

#[cfg(target_os = "linux")]
#[path = "linux.rs"]
mod native;
#[cfg(not(target_os = "linux"))]
use crate::absent as native;

pub use native::Epoll;

use std::{fmt, str::FromStr};

/// When a socket is told as ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    /// As long as it is.
    Level,
    /// When something has come.
    Edge,
}

impl FromStr for Trigger {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "level" => Ok(Trigger::Level),
            "edge" => Ok(Trigger::Edge),
            _ => Err(()),
        }
    }
}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Trigger::Level => "level",
            Trigger::Edge => "edge",
        })
    }
}
