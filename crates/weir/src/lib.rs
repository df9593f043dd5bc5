//! Every I/O design of a server, on Linux and on Windows, behind one small API.

pub mod counters;
pub mod error;

pub use error::{Error, Unavailable};
