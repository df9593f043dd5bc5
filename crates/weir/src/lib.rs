//! Every I/O design of a server, on Linux and on Windows, behind one small API.

pub mod affinity;
#[cfg(target_os = "linux")]
pub mod bpf;
pub mod counters;
mod crew;
mod design;
pub mod device;
pub mod error;
pub mod filter;
pub mod limits;
pub mod machine;
pub mod memory;
pub mod options;
pub mod port;
pub mod privilege;
pub mod process;
pub mod readiness;
#[cfg(test)]
mod required;
#[cfg(target_os = "linux")]
mod ring;
pub mod rio;
pub mod socket;
pub mod stream;
mod sync;
pub mod tcp;
pub mod timer;
pub mod udp;
pub mod wake;

pub use error::{Error, Unavailable};

/// The code of the book's chapter on this library is compiled and run with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../../book/src/writing-a-server.md")]
struct WritingAServer;
