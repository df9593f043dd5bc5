//! What a server does with a datagram: written once, for every design.

use crate::{limits::Limits, rio::Peer};
use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

/// One datagram, in place.
#[derive(Debug)]
pub struct Datagram<'a> {
    /// Its bytes, where they were received. They may be changed, and sent back so by
    /// [`Replies::echo`].
    pub bytes: &'a mut [u8],
    /// Who sent it.
    pub source: SocketAddr,
    /// The address it was sent to, where asked for.
    pub local: Option<IpAddr>,
    /// The socket it came in on, by its place among the server's addresses.
    pub socket: u32,
    /// When the kernel received it, since the Unix epoch, where asked for.
    pub received_at: Option<Duration>,
    /// Whether it was longer than the slice, and its end is lost.
    pub truncated: bool,
}

/// Handles datagrams. Each thread of the server has a handler of its own, so its state
/// needs no lock.
pub trait Handler: Send + 'static {
    /// Handles one datagram. A panic stops the server, which reports it.
    fn on_datagram(&mut self, datagram: Datagram<'_>, replies: &mut Replies<'_>);

    /// Called after the datagrams of one dequeue, before the thread looks for more: the place
    /// for what need not be done for each datagram.
    fn on_batch_end(&mut self) {}
}

impl<F: FnMut(Datagram<'_>, &mut Replies<'_>) + Send + 'static> Handler for F {
    fn on_datagram(&mut self, datagram: Datagram<'_>, replies: &mut Replies<'_>) {
        self(datagram, replies);
    }
}

/// Why a reply was refused. The refusal is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// The server was not allowed to reply at all: see [`Limits`].
    Sink,
    /// The reply would be longer than the limit allows for the datagram received.
    TooLong,
    /// The limit on replies per second is reached.
    Rate,
    /// As many replies as allowed are outstanding.
    NoRoom,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refused::Sink => "this server is a sink: allow replies by its limits",
            Refused::TooLong => "the reply is longer than the limit allows for this datagram",
            Refused::Rate => "the limit on replies per second is reached",
            Refused::NoRoom => "as many replies as allowed are outstanding",
        })
    }
}

impl std::error::Error for Refused {}

/// Takes the replies to one datagram.
pub struct Replies<'a> {
    desk: &'a mut Desk,
    to: Peer,
    /// The socket that the datagram came in on, by its place.
    socket: u32,
    /// Bytes that may still be answered for this datagram.
    budget: usize,
    received: usize,
    pub(super) echo: bool,
}

impl<'a> Replies<'a> {
    #[inline]
    pub(super) fn new(desk: &'a mut Desk, to: Peer, socket: u32, received: usize) -> Self {
        let budget = received * desk.limits.reply_percent as usize / 100;
        Self { desk, to, socket, budget, received, echo: false }
    }

    /// Sends the datagram's bytes back to their source, as they stand when the handler
    /// returns, without copying them. A second call changes nothing.
    ///
    /// # Errors
    /// [`Refused`], counted.
    pub fn echo(&mut self) -> Result<(), Refused> {
        if !self.echo {
            self.admit(self.received)?;
            self.echo = true;
        }
        Ok(())
    }

    /// Sends a copy of `bytes` to the datagram's source.
    ///
    /// # Errors
    /// [`Refused`], counted.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), Refused> {
        if bytes.len() > self.desk.longest {
            return self.refuse(Refused::TooLong);
        }
        if self.desk.pending.len() == self.desk.pending.capacity() {
            return self.refuse(Refused::NoRoom);
        }
        self.admit(bytes.len())?;
        let start = self.desk.bytes.len();
        self.desk.bytes.extend_from_slice(bytes);
        self.desk.pending.push(Pending {
            start,
            len: bytes.len(),
            to: self.to,
            socket: self.socket,
        });
        Ok(())
    }

    fn admit(&mut self, len: usize) -> Result<(), Refused> {
        if self.desk.limits.replies_outstanding == 0 {
            return self.refuse(Refused::Sink);
        }
        if len > self.budget {
            return self.refuse(Refused::TooLong);
        }
        if !self.desk.rate.admit() {
            return self.refuse(Refused::Rate);
        }
        self.budget -= len;
        Ok(())
    }

    fn refuse(&mut self, why: Refused) -> Result<(), Refused> {
        self.desk.refused += 1;
        Err(why)
    }
}

/// Where the replies to one datagram wait until it has been handled.
pub(super) struct Desk {
    limits: Limits,
    longest: usize,
    rate: Rate,
    bytes: Vec<u8>,
    pending: Vec<Pending>,
    /// Replies refused since the counters were last brought up to date.
    pub(super) refused: u64,
}

struct Pending {
    start: usize,
    len: usize,
    to: Peer,
    socket: u32,
}

/// Replies copied for one datagram, at most.
const PENDING_REPLIES: usize = 64;

impl Desk {
    pub(super) fn new(limits: Limits, threads: usize, longest: usize) -> Self {
        let room = if limits.replies_outstanding == 0 { 0 } else { PENDING_REPLIES };
        let per_s = limits.replies_per_s.map(|n| n.div_ceil(threads.max(1) as u64));
        Self {
            limits,
            longest,
            rate: Rate::new(per_s),
            bytes: Vec::with_capacity(room * longest),
            pending: Vec::with_capacity(room),
            refused: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Gives each reply to `send`, with the socket it leaves by, and forgets it.
    pub(super) fn flush(&mut self, mut send: impl FnMut(u32, &[u8], &Peer)) {
        for reply in self.pending.drain(..) {
            send(reply.socket, &self.bytes[reply.start..][..reply.len], &reply.to);
        }
        self.bytes.clear();
    }
}

/// Admits so many a second, in slots of 10 ms that do not save up.
struct Rate {
    per_slot: Option<u64>,
    slot: Instant,
    left: u64,
}

const SLOT: Duration = Duration::from_millis(10);

impl Rate {
    fn new(per_s: Option<u64>) -> Self {
        let per_slot = per_s.map(|n| (n / 100).max(1));
        Self { per_slot, slot: Instant::now(), left: per_slot.unwrap_or(0) }
    }

    fn admit(&mut self) -> bool {
        let Some(per_slot) = self.per_slot else { return true };
        if self.left == 0 && self.slot.elapsed() >= SLOT {
            self.slot = Instant::now();
            self.left = per_slot;
        }
        let admitted = self.left > 0;
        self.left = self.left.saturating_sub(1);
        admitted
    }
}
