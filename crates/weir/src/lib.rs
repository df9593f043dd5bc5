#![doc = include_str!("../README.md")]
//!
//! # Where to find what
//!
//! | module | what is in it |
//! | --- | --- |
//! | [`udp`], [`tcp`], [`device`] | servers: `Server`, `Handler`, `Running`, and the table of designs of each |
//! | [`filter`] | filters between a TCP connection and its handler: limits, time-outs, TLS |
//! | [`limits`], [`tcp::Limits`] | how much a server may accept and send |
//! | [`rio`], [`port`], [`readiness`], [`socket`], [`stream`], [`memory`] | the contracts that designs are built on, each with the rules that hold on every provider |
//! | [`counters`], [`tunable`] | what a server counts, and what may be changed while it runs |
//! | `asynchronous` | tasks of any executor that await what a server receives (with `udp` or `tcp`) |
//! | [`inherited`] | sockets from a service manager, or from the process that this one replaces |
//! | [`timer`], [`options`], [`error`], [`wake`], [`gather`] | what all of the above use |
//! | [`machine`], [`affinity`], [`process`], [`privilege`] | the machine's properties, where threads run, and their rights |
//!
//! Example programs are in the package's folder `examples`: a sink, an echo server, a statsd aggregator, a relay, a
//! TCP proxy, and a program without a server on each contract (`rio_sink`, `port_lines`, `readiness_chat`).
//!
//! # Features
//!
//! | feature | what it adds | default |
//! | --- | --- | --- |
//! | `udp` | UDP servers: [`udp`] | yes |
//! | `tcp` | TCP servers, and filters for their connections: [`tcp`], [`filter`] | yes |
//! | `device` | I/Os on devices: [`device`] | |
//! | `xdp` | providers of registered I/O that take frames and packets of network devices: [`rio::xdp`], [`rio::packet`] | |
//! | `tls` | the filter [`Tls`](filter::Tls) on [rustls](https://docs.rs/rustls), and `tcp`; building it takes a C compiler | |
//! | `tracing` | events for [tracing](https://docs.rs/tracing): what a server does besides serving | |
//! | `metrics` | counters for the recorder of [metrics](https://docs.rs/metrics): `Running::export_metrics` | |
//! | `fake` | in-memory providers of registered I/O, for tests: `rio::fake` | |
//!
//! The foundation of the servers is available without any feature: contracts and their providers ([`rio`], [`port`],
//! [`readiness`], [`socket`], [`stream`]), [`memory`], [`counters`] and [`timer`].
//!
//! There is no feature per design, because none is needed: a program that starts a design by its type is compiled with that
//! design alone. A program that starts designs by name has all of their kind, which were compiled once, with this library.
//!
//! # Compatibility
//!
//! Errors, information about servers (enums of reasons, reports, counters) and settings are `#[non_exhaustive]`: they may grow
//! in minor versions. Settings (options of designs, `Limits`, `SocketOptions`, what a handler [`Asks`](tcp::Asks)) are made
//! from a default by methods named after their fields, so a new field breaks nothing:
//!
//! ```
//! use weir::{tcp, udp};
//!
//! let limits = tcp::Limits::default().connections(100).idle(None);
//! let design = udp::RioHybrid::default().threads(2);
//! assert_eq!((limits.connections, design.threads), (100, 2));
//! ```
//!
//! ```compile_fail,E0639
//! let limits = weir::tcp::Limits { connections: 100, ..weir::tcp::Limits::default() };
//! ```
//!
//! Traits that only this crate implements (those of designs, of what can be started, and of readiness sets) are sealed. You
//! can implement handlers, filters and providers of registered I/O yourself.

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
#[cfg(any(feature = "udp", feature = "tcp"))]
#[forbid(unsafe_code)]
pub mod asynchronous;
#[cfg(target_os = "linux")]
pub mod bpf;
mod contract;
pub mod counters;
#[forbid(unsafe_code)]
mod deadline;
#[forbid(unsafe_code)]
mod design;
#[cfg(feature = "device")]
pub mod device;
#[forbid(unsafe_code)]
pub mod error;
mod events;
#[cfg(feature = "tcp")]
#[forbid(unsafe_code)]
pub mod filter;
#[forbid(unsafe_code)]
pub mod gather;
pub mod inherited;
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

/// The code of the book's pages on this library, and of the README, is compiled and run with the tests.
macro_rules! pages {
    ($($Page:ident = $path:literal;)*) => {
        $(#[cfg(doctest)]
        #[doc = include_str!($path)]
        struct $Page;)*
    };
}
pages! {
    Readme = "../../../README.md";
    WritingAServer = "../../../book/src/writing-a-server.md";
    WritingATcpServer = "../../../book/src/writing-a-tcp-server.md";
    Tcp = "../../../book/src/tcp.md";
    Filters = "../../../book/src/filters.md";
    Timers = "../../../book/src/timers.md";
    ReadingADevice = "../../../book/src/reading-a-device.md";
    BuildingBlocks = "../../../book/src/building-blocks.md";
    Moving = "../../../book/src/moving.md";
    QuinnAndAsync = "../../../book/src/quinn-and-async.md";
}
