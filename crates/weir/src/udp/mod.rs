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
//! `AnyDesign::parse("rio-hybrid --threads 2")`.
//!
//! Each design is one file, in the same order: its options; what it is (`ABOUT`); `start`, with
//! everything that can fail before a thread runs; `run`, a thread's own loop; and `handle`, what
//! it does with what came (where several designs do the same with it, that stands in the
//! frame beside them: `rio_frame`, `port_frame`). Adding a design is adding a file and a line in the
//! table below.

mod batch_frame;
mod handler;
mod job;
mod port_frame;
mod rio_basket;
mod rio_crew;
mod rio_frame;
mod rio_winning;
mod running;
mod server;
mod spec;
mod worker;

pub use handler::{Datagram, Handler, Refused, Replies};
pub use job::Job;
pub use running::{Final, Running, Slices, ThreadFinal};
pub use server::{DEFAULT_PAYLOAD_BYTES, OFFLOADED_OUTSTANDING, Server};
pub use spec::Spec;
pub use worker::Worker;

use crate::{
    Error, Unavailable,
    options::{OptionInfo, Options},
};

/// What a design is, in a few lines.
#[derive(Debug, Clone, Copy)]
pub struct About {
    /// Its name.
    pub name: &'static str,
    /// How it works, in one sentence.
    pub summary: &'static str,
    /// Where it comes from.
    pub origin: &'static str,
    /// The contract it stands on: `socket`, `epoll`, `port` or `rio`.
    pub contract: Contract,
}

/// What a design stands on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contract {
    /// Plain sockets ([`crate::socket`]).
    Socket,
    /// Readiness by epoll ([`crate::readiness`]).
    Epoll,
    /// A completion port ([`crate::port`]).
    Port,
    /// Registered I/O ([`crate::rio`]), on any of its providers.
    Rio,
}

/// One way for a UDP server to do its I/O.
pub trait Design: Options {
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

macro_rules! designs {
    ($($file:ident::$Design:ident,)*) => {
        $(mod $file; pub use $file::$Design;)*

        /// Any design, with its options: what a name is turned into.
        #[derive(Debug, Clone, PartialEq)]
        pub enum AnyDesign {
            $(#[doc = concat!("See [`", stringify!($Design), "`].")] $Design($Design),)*
        }

        /// Every design with its defaults, in the order of the table.
        pub fn designs() -> Vec<AnyDesign> {
            vec![$(AnyDesign::$Design($Design::default()),)*]
        }

        impl AnyDesign {
            /// What it is.
            pub fn about(&self) -> About {
                match self { $(Self::$Design(_) => $Design::ABOUT,)* }
            }

            /// Its options.
            pub fn known_options(&self) -> Vec<OptionInfo> {
                match self { $(Self::$Design(_) => $Design::known(),)* }
            }

            /// Sets an option by its name.
            ///
            /// # Errors
            /// [`Error::UnknownName`] and [`Error::Option`].
            pub fn set(&mut self, name: &str, value: &str) -> Result<(), Error> {
                match self { $(Self::$Design(design) => design.set(name, value),)* }
            }

            /// Its options with their values.
            pub fn values(&self) -> Vec<(String, String)> {
                match self { $(Self::$Design(design) => design.values(),)* }
            }

            /// Checks its options.
            ///
            /// # Errors
            /// [`Error::Option`] for the first that is out of its limits.
            pub fn check(&self) -> Result<(), Error> {
                match self { $(Self::$Design(design) => design.check(),)* }
            }

            /// Replaces what is left to weir's choice (a provider `auto`) by what it stands for
            /// here.
            pub fn resolve(&mut self) {
                match self { $(Self::$Design(design) => design.resolve(),)* }
            }

            /// The name of the provider that it runs on here: for a design that runs on
            /// several, the one that is chosen.
            pub fn provider(&self) -> &'static str {
                match self { $(Self::$Design(design) => design.provider(),)* }
            }

            /// Whether it hands a queue from thread to thread: providers that are a way of doing that
            /// ([`only_hands_over`](crate::rio::Choice::only_hands_over)) are for such designs.
            pub fn hands_over(&self) -> bool {
                match self { $(Self::$Design(design) => design.hands_over(),)* }
            }

            /// Whether it can run here, by trying.
            ///
            /// # Errors
            /// Why it cannot.
            pub fn availability(&self) -> Result<(), Unavailable> {
                match self { $(Self::$Design(design) => design.availability(),)* }
            }

            pub(crate) fn start<H: Handler>(self, job: Job<H>) -> Result<Running<H>, Error> {
                match self { $(Self::$Design(design) => design.start(job),)* }
            }
        }

        $(impl From<$Design> for AnyDesign {
            fn from(design: $Design) -> Self {
                Self::$Design(design)
            }
        })*
    };
}

designs! {
    blocking::Blocking,
    blocking_batch::BlockingBatch,
    epoll::Epoll,
    epoll_batch::EpollBatch,
    port::Port,
    port_batch::PortBatch,
    rio_polled::RioPolled,
    rio_event::RioEvent,
    rio_event_polled::RioEventPolled,
    rio_port::RioPort,
    rio_reader::RioReader,
    rio_hybrid::RioHybrid,
    rio_hybrid_reader::RioHybridReader,
    rio_sharded::RioSharded,
}

pub use rio_sharded::Steering;

impl AnyDesign {
    /// A design from its name and options, as in `rio-hybrid --threads 2`.
    ///
    /// # Errors
    /// [`Error::UnknownName`] with the names there are; [`Error::Option`].
    pub fn parse(text: &str) -> Result<Self, Error> {
        let (mut design, words) = Self::named_in(text)?;
        crate::options::set_all(words, |name, value| design.set(name, value))?;
        design.check()?;
        Ok(design)
    }

    /// The design that a text begins with, with its defaults, and the other words.
    fn named_in(text: &str) -> Result<(Self, std::str::SplitWhitespace<'_>), Error> {
        let mut words = text.split_whitespace();
        let name = words.next().unwrap_or_default();
        let design =
            designs().into_iter().find(|design| design.about().name == name).ok_or_else(|| {
                Error::UnknownName {
                    kind: "design",
                    name: name.into(),
                    known: designs().iter().map(|d| d.about().name).collect::<Vec<_>>().join(", "),
                }
            })?;
        Ok((design, words))
    }
}
