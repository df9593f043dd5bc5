//! UDP servers: one API over every design.
//!
//! ```
//! use weir::udp::{Blocking, Datagram, Replies, Server};
//!
//! let server = Server::bind("127.0.0.1:0".parse().unwrap())
//!     .start(Blocking::default(), |_thread| {
//!         let mut bytes = 0;
//!         move |datagram: Datagram<'_>, _: &mut Replies<'_>| bytes += datagram.bytes.len()
//!     })
//!     .unwrap();
//! std::net::UdpSocket::bind("127.0.0.1:0").unwrap()
//!     .send_to(b"hello", server.local_addresses()[0])
//!     .unwrap();
//! # while server.counters()[0].datagrams == 0 { std::thread::yield_now(); }
//! let report = server.stop();
//! assert!(report.failure.is_none());
//! assert_eq!(report.total().datagrams, 1);
//! ```
//!
//! A design is chosen by its type, as above, or by its name, as in
//! `AnyDesign::parse("rio-hybrid --threads 2")` ([`Startable`] says what differs).
//!
//! Designs stand in folders by their mechanism (`plain`, `port`, `rio`), each a file: what it is and its options
//! (`design!`), how it starts, and the loop of its threads. What designs of a folder share stands in the `engine` beside
//! them. Adding a design is adding a file and a line in the table below.

mod handler;
mod job;
mod outbox;
mod plain;
mod port;
mod reply_loops;
mod rio;
mod running;
mod server;
mod spec;
mod worker;

pub use handler::{Datagram, Handler, OnPanic, Outbox, Refused, Replies};
pub use job::Job;
pub use outbox::{NotTaken, SharedCounts, SharedOutbox, Transmit};
pub use running::{Final, Running, Slices, ThreadFinal};
pub use server::{DEFAULT_PAYLOAD_BYTES, OFFLOADED_OUTSTANDING, OUTSTANDING_BYTES, Server};
pub use spec::Spec;
pub use worker::Worker;

use crate::{
    Error, Unavailable,
    design::{Sealed, designs},
    options::Options,
    rio::Choice,
};
pub use crate::{
    design::{About, Contract},
    socket::{Ecn, Meta},
};
use handler::{Boxed, MakeHandler};

/// One way for a UDP server to do its I/O. Only weir has designs: handlers and filters are what programs bring along.
pub trait Design: Options + Sealed {
    /// What it is.
    const ABOUT: About;

    /// Replaces what is left to weir's choice by what it stands for here, so that the settings
    /// in effect say it.
    fn resolve(&mut self) {}

    /// The name of the provider that it runs on here.
    fn provider(&self) -> &'static str;

    /// Whether it hands a queue from thread to thread.
    fn hands_over(&self) -> bool {
        false
    }

    /// Whether its threads wait for each other at locks or condition variables, so that they enter the kernel
    /// (futex) where no counter of a contract counts it.
    fn parks_threads(&self) -> bool {
        self.hands_over()
    }

    /// Whether a server of it, whose sockets were given to it, ends by handling all that it took from them: so that it can
    /// be replaced by one that has the same sockets, and nothing is lost ([`crate::inherited`]).
    ///
    /// # Errors
    /// [`Error::Option`] that says why it does not.
    fn ends_without_loss(&self) -> Result<(), Error> {
        if Self::ABOUT.contract != Contract::Rio
            || self.provider().parse::<Choice>()?.reaches_loopback()
        {
            return Ok(());
        }
        let problem = format!(
            "{} receives through a queue of its own, which it cannot share with another program, so it cannot be \
             replaced without a loss; use another design",
            Self::ABOUT.name
        );
        Err(Error::option("design", problem))
    }

    /// How many sockets it has of each address: as many are to be given to a server of it ([`crate::inherited`]), which
    /// [`bind_sharing`](crate::socket::bind_sharing) makes.
    fn sockets_per_address(&self) -> u32 {
        1
    }

    /// Starts it.
    ///
    /// # Errors
    /// Whatever fails before the server runs, with its cause and what to do.
    fn start<H: Handler>(self, job: Job<H>) -> Result<Running<H>, Error>;

    /// Whether it can run here, by trying.
    ///
    /// # Errors
    /// Why it cannot.
    fn availability(&self) -> Result<(), Unavailable>;
}

designs! {
    Server => Running<H>, Running<Boxed>, Running::with_handlers;
    {
    /// Whether it hands a queue from thread to thread.
    hands_over: bool;
    /// Whether its threads wait for each other at locks or condition variables, so that they enter the
    /// kernel (futex) where no counter of a contract counts it.
    parks_threads: bool;
    /// Whether a server of it, whose sockets were given to it, ends by handling all that it took from them
    /// ([`Design::ends_without_loss`]).
    ///
    /// # Errors
    /// [`Error::Option`] that says why it does not.
    ends_without_loss: Result<(), Error>;
    /// How many sockets it has of each address ([`Design::sockets_per_address`]).
    sockets_per_address: u32;
    }

    plain::Blocking,
    plain::BlockingBatch,
    plain::Epoll,
    plain::EpollBatch,
    port::Port,
    port::PortBatch,
    rio::RioPolled,
    rio::RioEvent,
    rio::RioEventPolled,
    rio::RioPort,
    rio::RioReader,
    rio::RioHybrid,
    rio::RioHybridReader,
    rio::RioSharded,
}

pub use rio::Steering;

/// What designs decide, apart from the threads, locks and queues that carry it out, for models of servers. Who is
/// given a queue is decided in [`rio::turn::order`](crate::rio::turn::order), who runs at a port in
/// [`port::limit::rules`](crate::port::limit::rules), how many receives it arms in
/// [`port::armed_count`](crate::port::armed_count).
pub mod policy {
    pub use super::rio::{Turning, after, reader, receives_of_shard};
}
