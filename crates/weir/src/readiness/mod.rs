//! Readiness: being told that a call would not wait.
//!
//! The oldest contract of the three, and the smallest: sockets are added with a token, a wait
//! ends when at least one of them is ready, and then the program makes the calls itself. Each
//! mechanism is a type of its own with the same functions in the same order ([`Poll`],
//! [`Epoll`]), since in a design that is named after a mechanism the mechanism is the design. For
//! connections, which come and go, there are besides [`Select`], [`SelectIndexed`], [`Events`] and
//! [`Signals`]; all of them are [`Streams`].
//!
//! The example `readiness_chat` of this package is a chat by hand on three of these sets.
//!
//! What a file for an operating system must supply: a wake event (something that can be signalled from
//! any thread and shows up as ready), and the mechanism's own set of sockets.
//!
//! What holds for each:
//!
//! - Events are hints. A socket that was told ready may turn out to have nothing.
//! - A set keeps its sockets open, so an event can never belong to a descriptor that was
//!   closed and given to another.
//! - [`Waker`]s end a wait, now or the next one. What is ready besides is
//!   told all the same.
//! - Only what was added is told: errors of a socket count as ready, and its next call says
//!   what they are.
//!
//! What is NOT guaranteed: the order of the tokens; that a time-out is exact (it is never
//! short); that the end of receiving ([`DatagramSocket::end_receiving`]) ends a wait: on Linux
//! it does, on Windows it takes a waker.
//!
//! [`DatagramSocket::end_receiving`]: crate::socket::DatagramSocket::end_receiving

pub mod epoll;
pub mod events;
#[cfg(windows)]
mod network_events;
pub mod poll;
pub mod select;
pub mod signals;
pub(crate) mod wake_event;

#[cfg(test)]
mod streams_tests;
#[cfg(test)]
mod tests;

use crate::{
    Error,
    contract::contract,
    counters::Counters,
    design::Sealed,
    options::named,
    stream::{Listener, Stream},
    wake::Waker,
};
use std::{io, time::Duration};

pub use epoll::Epoll;
pub use events::Events;
pub use poll::Poll;
pub use select::{Select, SelectIndexed};
pub use signals::Signals;

/// What a connection is to be told for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interest {
    /// That something can be received, or the peer has ended.
    pub receive: bool,
    /// That there is room to send.
    pub send: bool,
}

impl Interest {
    /// Nothing but errors and ends.
    pub const NONE: Self = Self { receive: false, send: false };
    /// To receive only.
    pub const RECEIVE: Self = Self { receive: true, send: false };
}

named! {
    /// When a socket is told as ready.
    pub enum Trigger {
        /// As long as it is.
        Level = "level",
        /// When something has come.
        Edge = "edge",
    }
}

contract! {
    for Epoll;
    /// A set of connections, each under the number of its slot. Errors and ends are told with whatever one
    /// is told for; those of one that is told for nothing, by some mechanisms only.
    ///
    /// The set does not keep them open: one is forgotten before it is closed.
    pub trait Streams {
        /// Puts a connection into the set.
        ///
        /// # Errors
        /// What the operating system answered.
        fn watch(&mut self, stream: &Stream, slot: u32, interest: Interest) -> io::Result<()>;

        /// Changes what one is told for. What is ready already is told again.
        ///
        /// # Errors
        /// What the operating system answered.
        fn change(&mut self, stream: &Stream, slot: u32, interest: Interest) -> io::Result<()>;

        /// Takes one out of the set. It may still be told once by the wait that is over.
        fn forget(&mut self, stream: &Stream, slot: u32);
    }
}

/// A set of connections and listening sockets whose wait names what is ready by its token. Only sets of this crate
/// implement it.
pub trait Tokens: Streams + Sealed {
    /// Adds a listening socket, to be reported by its token as long as a connection waits.
    ///
    /// # Errors
    /// [`Error::Io`] with what the operating system answered.
    fn listen(&mut self, listener: &Listener, token: u32) -> Result<(), Error>;

    /// Takes a listening socket out of the set.
    fn forget_listener(&mut self, listener: &Listener);

    /// Waits until something is ready, the time is over, or it is woken. `None`: no time-out.
    ///
    /// # Errors
    /// What the operating system answered.
    fn wait(&mut self, timeout: Option<Duration>, counters: &Counters) -> io::Result<()>;

    /// How many were ready when the last wait ended.
    fn ready_count(&self) -> usize;

    /// Takes the token of the next of them.
    fn next_ready(&mut self) -> Option<u32>;

    /// Whether the last wait told as many as it may, so that others may be ready.
    fn may_have_left(&self) -> bool;

    /// Ends a wait, now or the next one.
    fn waker(&self) -> Waker;
}

macro_rules! tokens {
    ($($Set:ty, may have left: $left:expr;)*) => {
        $(impl Sealed for $Set {}

        impl Tokens for $Set {
            fn listen(&mut self, listener: &Listener, token: u32) -> Result<(), Error> {
                self.listen(listener, token)
            }

            fn forget_listener(&mut self, listener: &Listener) {
                self.forget_listener(listener);
            }

            #[inline]
            fn wait(&mut self, timeout: Option<Duration>, counters: &Counters) -> io::Result<()> {
                self.wait(timeout, counters).map(drop)
            }

            #[inline]
            fn ready_count(&self) -> usize {
                self.ready_count()
            }

            #[inline]
            fn next_ready(&mut self) -> Option<u32> {
                self.next_ready()
            }

            #[inline]
            fn may_have_left(&self) -> bool {
                let left: fn(&Self) -> bool = $left;
                left(self)
            }

            fn waker(&self) -> Waker {
                self.waker()
            }
        })*
    };
}
tokens! {
    Epoll, may have left: Epoll::may_have_left;
    Poll, may have left: |_| false;
    SelectIndexed, may have left: |_| false;
}
