//! A socket for [quinn] on weir's registered I/O.
//!
//! A [`WeirSocket`] is an [`AsyncUdpSocket`](quinn::AsyncUdpSocket): give it to
//! [`Endpoint::new_with_abstract_socket`](quinn::Endpoint::new_with_abstract_socket), and use quinn's endpoint, connections and
//! streams as usual.
//!
//! ```
//! use quinn::{Endpoint, EndpointConfig, Runtime, TokioRuntime};
//! use std::sync::Arc;
//! use weir_quinn::{Settings, WeirSocket};
//!
//! let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
//! runtime.block_on(async {
//!     let runtime: Arc<dyn Runtime> = Arc::new(TokioRuntime);
//!     let settings = Settings::default().provider("batch".parse().unwrap());
//!     let socket = WeirSocket::bind("127.0.0.1:0".parse().unwrap(), &settings, &runtime).unwrap();
//!     let endpoint =
//!         Endpoint::new_with_abstract_socket(EndpointConfig::default(), None, Arc::new(socket), runtime).unwrap();
//!     assert!(endpoint.local_addr().unwrap().port() > 0);
//! });
//! ```
//!
//! Receives are posted beforehand into slices of registered memory, each with room for as many datagrams as the kernel joins
//! (UDP_GRO), and completions are dequeued when quinn polls. If the provider has plain sockets, datagrams can also be received
//! directly into quinn's buffers ([`Receive`]). What quinn sends is posted from slices, too, and handed to the
//! kernel when every task that is ready has had its turn ([`Sends::Gathered`]): datagrams of several polls leave by one call,
//! and those of one size to one peer as one (UDP_SEGMENT). ECN marks, the local address, and "do not
//! fragment" are set as quinn asks.
//!
//! [`Tell`] chooses what notifies quinn that something has arrived: tokio's reactor, which watches the provider's descriptor
//! (Linux), or a thread that waits in the queue (any system and runtime).
//!
//! Two things are bounded. The first is the number of posted receives ([`Settings::receives`]): further datagrams wait in the
//! socket's buffer, and are dropped there when that is full. The second is the number of sends under way
//! ([`Settings::sends_outstanding`]): beyond it quinn is told that the socket would block, and is woken when there
//! is room. A datagram that cannot be sent is counted and dropped; QUIC treats it like any lost datagram.
//!
//! Dropping the socket hands what is posted to the kernel, ends what is under way, and gives every slice back.
//!
//! With [`SharedSocket`] (Linux), a server that is being replaced keeps its connections while the new process accepts new ones,
//! both on one UDP socket.
//!
//! On systems other than Linux the socket runs by [`Tell::Thread`] on the provider `batch`, and ECN marks are not set.

#![deny(unsafe_code)]

mod queues;
#[cfg_attr(target_os = "linux", path = "reactor/linux.rs")]
#[cfg_attr(not(target_os = "linux"), path = "reactor/absent.rs")]
mod reactor;
mod restart;
mod settings;
mod socket;
mod thread;

pub use restart::{ConnectionIds, Forwarding, MOST_BEFORE, SharedSocket};
pub use settings::{Receive, Sends, Settings, Tell};
pub use socket::{Stats, WeirSocket};
pub use weir::rio::Choice as Provider;

/// The code of the README is compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
