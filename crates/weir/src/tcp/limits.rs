//! Limits that every TCP server has, whatever its design.

use crate::{
    Error,
    options::{named, settings},
};
use std::time::Duration;

settings! {
    /// How many connections, how much for each, and how long nothing may happen.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Limits {
        /// Most connections at a time. One more is accepted, told why ([`REFUSAL`]) and closed
        /// after [`linger`](Self::linger).
        pub connections: u32,
        /// Connections served at a time; `None` for all. The first so many are, in the order in which they
        /// came, and the others wait for one of those to be closed: accepted, but not received from.
        /// [`silent`](Self::silent) begins with their turn, since it is the server that lets them wait; so a
        /// peer that has gone meanwhile is found by then at the latest. Where threads have connections of their
        /// own each serves its share ([`Design::active_set`](super::Design::active_set)); fewer than
        /// there are threads are refused. Outgoing connections ([`Connector`](super::Connector)) do not count and do not
        /// wait: those that are served may wait for them.
        pub active: Option<u32>,
        /// Threads that may be started for connections, where a design starts them as connections come: a connection
        /// beyond is refused as one beyond [`connections`](Self::connections) is. `None` for as many as the system
        /// lets the process have ([`threads_left`](crate::process::threads_left)), which is the bound in any case.
        pub threads: Option<u32>,
        /// Bytes of output that may wait for a peer to take them. While so many wait nothing is received
        /// from it, so its own sending comes to rest; beyond it lies at most one buffer, of what was
        /// received already.
        pub output_bytes: usize,
        /// What happens when they do.
        pub when_full: WhenFull,
        /// How long a peer may send nothing at all after it has connected; `None` for any time.
        pub silent: Option<Duration>,
        /// How long a peer that has sent something may send nothing; `None` for any time.
        pub idle: Option<Duration>,
        /// How long output may wait without the peer taking any; `None` for any time.
        pub stalled: Option<Duration>,
        /// How long a peer may keep its direction open after the server has finished. One that was refused and told why
        /// has this time too, so that a reset does not overtake the reason; beyond 128 of them the first is closed.
        pub linger: Duration,
        /// How long a stop waits for output that is under way, and for peers to close.
        pub stop: Duration,
    }
}

named! {
    /// What happens to a connection whose output is full.
    #[derive(Default)]
    pub enum WhenFull {
        /// Nothing is received from it until the peer takes some, or has stalled too long.
        #[default]
        Wait = "wait",
        /// It is closed.
        Close = "close",
    }
}

/// Connections served at a time where an active set is asked for without a number: the high throughput server
/// of "Network Programming for Microsoft Windows", Jones and Ohlund.
pub const ACTIVE: u32 = 100;

/// What a connection that is refused is told begins so; a reason and the end of a line follow.
pub const REFUSAL: &str = "weir: refused: ";

impl Default for Limits {
    /// 65,536 connections, 256 KiB of output each; silent peers are closed after 300 s (as in the
    /// server that this re-creates), peers that take nothing after 60 s.
    fn default() -> Self {
        Self {
            connections: 65_536,
            active: None,
            threads: None,
            output_bytes: 256 * 1024,
            when_full: WhenFull::Wait,
            silent: Some(Duration::from_secs(300)),
            idle: None,
            stalled: Some(Duration::from_secs(60)),
            linger: Duration::from_secs(5),
            stop: Duration::from_secs(5),
        }
    }
}

/// The most connections that can be asked for.
pub const MOST_CONNECTIONS: u32 = 16_000_000;

impl Limits {
    pub(super) fn check(&self) -> Result<(), Error> {
        if !(1..=MOST_CONNECTIONS).contains(&self.connections) {
            let problem =
                format!("{} is not allowed; allowed: 1 to {MOST_CONNECTIONS}", self.connections);
            return Err(Error::option("connections-max", problem));
        }
        if self.output_bytes == 0 {
            let problem = "0 is not allowed: nothing could be answered";
            return Err(Error::option("output-bytes", problem));
        }
        if self.active == Some(0) {
            let problem = "0 is not allowed: no connection would be served";
            return Err(Error::option("active", problem));
        }
        for (name, time) in
            [("silent", self.silent), ("idle", self.idle), ("stalled", self.stalled)]
        {
            if time == Some(Duration::ZERO) {
                return Err(Error::option(name, "0 is not allowed; leave it out for no limit"));
            }
        }
        Ok(())
    }
}
