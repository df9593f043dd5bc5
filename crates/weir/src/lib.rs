//! Every I/O design of a server, on Linux and on Windows, behind one small API.
// Examples are copied: what the compiler would warn of in them fails their tests.
#![doc(test(attr(allow(unused), deny(warnings))))]

#[cfg(not(target_os = "linux"))]
mod absent;
pub mod affinity;
#[cfg(target_os = "linux")]
pub mod bpf;
mod contract;
pub mod counters;
#[forbid(unsafe_code)]
mod design;
pub mod device;
#[forbid(unsafe_code)]
pub mod error;
#[forbid(unsafe_code)]
pub mod filter;
#[forbid(unsafe_code)]
pub mod gather;
#[forbid(unsafe_code)]
mod left;
#[forbid(unsafe_code)]
mod lifecycle;
#[forbid(unsafe_code)]
pub mod limits;
pub mod machine;
pub mod memory;
#[forbid(unsafe_code)]
pub mod options;
mod pause;
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
#[forbid(unsafe_code)]
pub mod tcp;
#[forbid(unsafe_code)]
pub mod timer;
#[allow(dead_code, reason = "not each provider needs all of it")]
#[forbid(unsafe_code)]
mod token;
#[forbid(unsafe_code)]
pub mod tunable;
#[forbid(unsafe_code)]
pub mod udp;
#[forbid(unsafe_code)]
pub mod wake;
#[cfg(test)]
mod wine;

pub use error::{Error, Unavailable};

/// The code of the book's chapter on this library is compiled and run with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../../book/src/writing-a-server.md")]
struct WritingAServer;

/// So is that of the README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
