//! Every I/O design of a server, on Linux and on Windows, behind one small API.
//!
//! # Features
//!
//! | feature | what it adds | default |
//! | --- | --- | --- |
//! | `udp` | servers of UDP: [`udp`] | yes |
//! | `tcp` | servers of TCP and filters for their connections: [`tcp`], [`filter`] | yes |
//! | `device` | I/Os of devices: [`device`] | |
//! | `xdp` | providers of registered I/O that take frames and packets of network devices: [`rio::xdp`], [`rio::packet`] | |
//! | `tls` | the filter [`Tls`](filter::Tls) on [rustls](https://docs.rs/rustls), and `tcp`; building it takes a C compiler | |
//! | `fake` | providers of registered I/O in memory, for tests: `rio::fake` | |
//!
//! What servers stand on is there without any of them: contracts and their providers ([`rio`], [`port`], [`readiness`],
//! [`socket`], [`stream`]), [`memory`], [`counters`] and [`timer`].
//!
//! No design has a feature of its own, as none needs one: a program that starts a design by its type is compiled with that
//! design alone. One that starts it by its name has all of its kind, which were compiled once, with this library.

// What a server of one kind stands on is used by no other. With all kinds nothing may be left over.
#![cfg_attr(
    not(all(feature = "udp", feature = "tcp", feature = "device", feature = "xdp")),
    allow(dead_code, unused_imports, unused_macros)
)]
#![cfg_attr(docsrs, feature(doc_cfg))]
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
#[cfg(feature = "device")]
pub mod device;
#[forbid(unsafe_code)]
pub mod error;
#[cfg(feature = "tcp")]
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
#[cfg(feature = "tcp")]
#[forbid(unsafe_code)]
pub mod tcp;
#[forbid(unsafe_code)]
pub mod timer;
#[allow(dead_code, reason = "not each provider needs all of it")]
#[forbid(unsafe_code)]
mod token;
#[forbid(unsafe_code)]
pub mod tunable;
#[cfg(feature = "udp")]
#[forbid(unsafe_code)]
pub mod udp;
#[forbid(unsafe_code)]
pub mod wake;
#[cfg(test)]
mod wine;

pub use error::{Error, Unavailable};
/// The library that [`filter::Tls`] speaks TLS with, whose types are a part of its interface.
#[cfg(feature = "tls")]
pub use rustls;

/// The code of the book's chapter on this library is compiled and run with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../../book/src/writing-a-server.md")]
struct WritingAServer;

/// So is that of the README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
