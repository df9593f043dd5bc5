//! Connection filters: what stands between a connection and its handler, in one or several layers.
//!
//! A filter is a handler around the next one, so it sees everything: the connect, what is received, what
//! the system takes of what is sent, the end of the peer's sending, the stop of the server, and the close with
//! its reason. It costs no allocation and no call that the compiler cannot see through: where a design
//! is started by its name, the chain with its handler is in one box. What it does not change goes on in
//! place: an echo behind it is still not copied.
//!
//! ```
//! use std::time::Duration;
//! use weir::{filter::{ConnectionLimit, Filter, RateLimit, ReadTimeout}, tcp::{Output, Server}};
//!
//! # if weir::stream::availability().is_err() { return }
//! let chain = ConnectionLimit::new(10_000, 100) // in all, and from one address
//!     .then(RateLimit::new(Some(1_000_000), None)) // bytes a second
//!     .then(ReadTimeout::new(Duration::from_secs(30)));
//! let server = Server::bind("127.0.0.1:0".parse().unwrap())
//!     .start(weir::tcp::AnyDesign::parse("blocking").unwrap(), chain.handlers(|_peer| {
//!         |_: &mut [u8], output: &mut Output<'_>| output.echo().unwrap()
//!     }))
//!     .unwrap();
//! assert!(server.stop().failure.is_none());
//! ```
//!
//! The first of a chain is the nearest to the wire. A handler that was never told of a connection, since a
//! filter before it had it end first, is not told of its end.

mod connection_limit;
mod flow_control;
#[cfg(any(test, fuzzing))]
pub mod model;
mod rate_limit;
mod read_timeout;
#[cfg(feature = "tls")]
mod tls;

pub use connection_limit::{ConnectionLimit, Limited};
pub use flow_control::{Flow, FlowControl, Full, Policy, Verdict};
pub use rate_limit::{RateLimit, Rated};
pub use read_timeout::{ReadTimeout, TimedRead};
#[cfg(feature = "tls")]
pub use tls::{Secured, Tls};

use crate::tcp::{Handler, Output, passed_on};
use std::{net::SocketAddr, time::Instant};

/// A filter as it is set up: once for a server. It makes what stands around the handler of each connection.
pub trait Filter: Send + Sync + 'static {
    /// A handler behind this filter.
    type Of<H: Handler>: Handler;

    /// Puts the filter around the handler of a connection.
    fn around<H: Handler>(&self, peer: SocketAddr, next: H) -> Self::Of<H>;

    /// This filter, and another one behind it.
    fn then<F: Filter>(self, behind: F) -> Then<Self, F>
    where
        Self: Sized,
    {
        Then(self, behind)
    }

    /// Makes handlers behind this filter, for [`Server::start`](crate::tcp::Server::start).
    fn handlers<H: Handler>(
        self,
        make: impl Fn(SocketAddr) -> H + Send + Sync + 'static,
    ) -> impl Fn(SocketAddr) -> Self::Of<H> + Send + Sync + 'static
    where
        Self: Sized,
    {
        move |peer| self.around(peer, make(peer))
    }
}

/// Two filters, of which the first is the nearer to the wire.
#[derive(Debug, Clone)]
pub struct Then<A, B>(A, B);

impl<A: Filter, B: Filter> Filter for Then<A, B> {
    type Of<H: Handler> = A::Of<B::Of<H>>;

    fn around<H: Handler>(&self, peer: SocketAddr, next: H) -> Self::Of<H> {
        self.0.around(peer, self.1.around(peer, next))
    }
}

/// A filter that may be left out when the program runs.
impl<F: Filter> Filter for Option<F> {
    type Of<H: Handler> = Perhaps<F::Of<H>, H>;

    fn around<H: Handler>(&self, peer: SocketAddr, next: H) -> Self::Of<H> {
        match self {
            Some(filter) => Perhaps::With(Box::new(filter.around(peer, next))),
            None => Perhaps::Without(next),
        }
    }
}

/// A handler behind a filter, or without it.
#[derive(Debug)]
pub enum Perhaps<A, B> {
    /// Behind it. In memory of its own: what has no filter pays for none.
    With(Box<A>),
    /// Without.
    Without(B),
}

impl<A: Handler, B: Handler> Handler for Perhaps<A, B> {
    fn on_connect(&mut self, peer: SocketAddr, output: &mut Output<'_>) {
        match self {
            Perhaps::With(next) => next.on_connect(peer, output),
            Perhaps::Without(next) => next.on_connect(peer, output),
        }
    }

    passed_on!(next: Perhaps::With(next), Perhaps::Without(next));
}

/// Whether the next handler is to be called for its own time. The time of a filter and of the handlers
/// behind it is one for the connection: whose it was is asked when it comes.
fn is_due<H: Handler>(next: &H, now: Instant) -> bool {
    next.asks().deadline.is_some_and(|deadline| deadline <= now)
}
