//! TCP servers: one API over every design.
//!
//! ```
//! use std::io::{Read, Write};
//! use weir::tcp::{AnyDesign, Output, Server};
//!
//! # if weir::stream::availability().is_err() { return }
//! let server = Server::bind("127.0.0.1:0".parse().unwrap())
//!     .start(AnyDesign::parse("blocking").unwrap(), |_peer| {
//!         |_: &mut [u8], output: &mut Output<'_>| output.echo().unwrap()
//!     })
//!     .unwrap();
//! let mut client = std::net::TcpStream::connect(server.local_addresses()[0]).unwrap();
//! client.write_all(b"hello").unwrap();
//! let mut back = [0; 5];
//! client.read_exact(&mut back).unwrap();
//! assert_eq!(&back, b"hello");
//! drop(client);
//! let report = server.stop();
//! assert!(report.failure.is_none());
//! assert_eq!(report.total().bytes_sent, 5);
//! ```
//!
//! A handler is made for each connection ([`Handler`]): the server's threads call it, one at a time,
//! whatever the design. A design is chosen by its type, or by its name as above ([`Startable`] says what differs).
//!
//! Designs stand in folders by their mechanism (`blocking`, `ready`, `port`, `ring`). But for `blocking`, which is one
//! design, a folder has an engine that is read from top to bottom: it starts threads, waits, takes what came, handles
//! it, asks for what is wanted next, and stops. Each design is a file beside it: what it is and its options
//! (`design!`), and what it alone decides. What happens to the bytes and when a connection is over is no design's
//! business: it stands in [`Connection`], which does no I/O.

mod acceptor;
mod active;
#[cfg(any(test, fuzzing))]
pub mod alone;
mod blocking;
mod common;
mod connect;
mod connection;
mod handler;
mod job;
mod limits;
mod mail;
mod port;
mod ready;
mod reason;
mod refused;
mod relay;
mod ring;
mod running;
mod server;
mod stop;
mod worker;

pub use common::{Gone, ThreadFinal, ThreadNow};
pub use connect::{Connector, MOST_CONNECTING};
pub use connection::{Connection, Wants};
pub use handler::{Asks, Handler, Output};
pub(crate) use handler::{Echo, Queue, passed_on};
pub use job::Job;
pub use limits::{ACTIVE, Limits, MOST_CONNECTIONS, REFUSAL, WhenFull};
pub use mail::{Handle, Mail};
pub use port::Idle;
pub use reason::{Reason, Refused};
pub use relay::Relay;
pub use running::{Final, Running};
pub use server::{DEFAULT_BUFFER_BYTES, MOST_BUFFER_BYTES, Server};
pub use worker::Worker;

pub use crate::design::{About, Contract};
use crate::{
    Error, Unavailable,
    design::{Sealed, designs},
    options::{Options, named},
};
use handler::{Boxed, MakeHandler};
use std::fmt;

/// One way for a TCP server to do its I/O. Only weir has designs: handlers and filters are what programs bring along.
pub trait Design: Options + Sealed {
    /// What it is.
    const ABOUT: About;

    /// Replaces what is left to weir's choice by what it stands for here, so that the settings
    /// in effect say it.
    fn resolve(&mut self) {}

    /// How it serves no more connections at a time than [`Limits::active`] says.
    fn active_set(&self) -> ActiveSet {
        ActiveSet::Absent("it keeps no order in which connections came")
    }

    /// What a connection holds that waits for something to receive.
    fn idle_holds(&self) -> IdleHolds {
        IdleHolds::NoBuffer
    }

    /// Whether its threads wait for each other at locks or condition variables, so that they enter the kernel
    /// (futex) where no counter of a contract counts it.
    fn parks_threads(&self) -> bool {
        false
    }

    /// The name of the provider that it runs on here.
    fn provider(&self) -> &'static str;

    /// Starts it.
    ///
    /// # Errors
    /// Whatever fails before the server runs, with its cause and what to do.
    fn start<H: Handler>(self, job: Job<H>) -> Result<Running, Error>;

    /// Whether it can run here, by trying.
    ///
    /// # Errors
    /// Why it cannot.
    fn availability(&self) -> Result<(), Unavailable>;
}

designs! {
    Server => Running, Running, std::convert::identity;
    {
        /// How it serves no more connections at a time than [`Limits::active`] says.
        active_set: ActiveSet;
        /// What a connection holds that waits for something to receive.
        idle_holds: IdleHolds;
        /// Whether its threads wait for each other at locks or condition variables, so that they enter the
        /// kernel (futex) where no counter of a contract counts it.
        parks_threads: bool;
    }
    blocking::Blocking,
    ready::Select,
    ready::SelectIndexed,
    ready::Poll,
    ready::AsyncSelect,
    ready::EventSelect,
    port::OverlappedEvents,
    port::Port,
    port::PortOrdered,
    ready::Epoll,
    ring::Ring,
    ring::RioTcp,
    ring::RingHybrid,
}

/// How a design serves no more connections at a time than [`Limits::active`] says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActiveSet {
    /// In the order in which they came to the server.
    InOrder,
    /// Each thread has its share, and the order in which they came to it.
    PerThread,
    /// It does not, for this reason.
    Absent(&'static str),
}

impl ActiveSet {
    /// Of a design whose threads have connections of their own.
    pub(crate) fn of(threads: u32) -> Self {
        if threads == 1 { ActiveSet::InOrder } else { ActiveSet::PerThread }
    }
}

impl fmt::Display for ActiveSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ActiveSet::InOrder => f.write_str("yes, in the order of arrival"),
            ActiveSet::PerThread => {
                f.write_str("yes, each thread its share, in the order of arrival")
            }
            ActiveSet::Absent(why) => write!(f, "no: {why}"),
        }
    }
}

/// What a connection holds that waits for something to receive, beside its own state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdleHolds {
    /// No buffer: it takes one when something has come.
    NoBuffer,
    /// A buffer or several, for this reason.
    Buffer(&'static str),
}

impl fmt::Display for IdleHolds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IdleHolds::NoBuffer => f.write_str("no buffer"),
            IdleHolds::Buffer(why) => f.write_str(why),
        }
    }
}

named! {
    /// How the threads of a server share what connects.
    pub enum Share {
        /// Each thread listens with a socket of its own on the same address.
        Sockets = "sockets",
        /// All threads wait for one socket, and one of them is woken.
        Exclusive = "exclusive",
    }
}
