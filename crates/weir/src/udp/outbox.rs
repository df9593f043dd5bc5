//! Sending to anybody at any time, and not only in answer to who has written.
//!
//! A handler is lent an [`Outbox`](super::Outbox), and other threads have a [`SharedOutbox`]. Both send by the server's own sockets, so
//! that what they send comes from the address and port that clients know. Both are closed until
//! [`Limits::transmits_outstanding`] opens them.
//!
//! What a handler puts into its outbox leaves as replies do when it returns: by the design's own way of sending, in batches
//! where it has any. What another thread sends leaves at once, by a call on that thread: a socket takes datagrams from
//! several threads, so nobody has to be woken for it.

use crate::{
    Error, Unavailable,
    counters::Counters,
    lifecycle::Lifecycle,
    limits::Limits,
    socket::{
        DatagramSocket, Ecn, OFFLOADED_BYTES, Peer, Span, Unsent, WeakSocket,
        datagrams_can_be_marked, names::stands_for_name,
    },
};
use std::{
    fmt, io,
    net::{IpAddr, SocketAddr},
    num::NonZeroU16,
    sync::{
        Arc, PoisonError, RwLock, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// A datagram to be sent, or several of one size to one peer. Its terms are those of quinn-udp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Transmit<'a> {
    /// Where it goes: also an address that stands for the name of a Unix socket
    /// ([`UnixAddress`](crate::stream::UnixAddress)), by a Unix socket. An address of IPv4 may go by a socket of IPv6 that is bound to all addresses.
    pub destination: SocketAddr,
    /// The address of ours that it leaves from; `None` for one of the system's choice. It must be the one that the socket
    /// is bound to, where the system does not let it be chosen ([`DatagramSocket::names_source`]).
    pub source: Option<IpAddr>,
    /// How its packets are marked, where the system lets that be said
    /// ([`datagrams_can_be_marked`]). Its traffic class is the mark alone then, whatever
    /// [`SocketOptions::traffic_class`](crate::socket::SocketOptions::traffic_class) says.
    pub ecn: Option<Ecn>,
    /// Bytes of each datagram where the contents are several, of which the last may be shorter; `None` for one.
    pub segment_size: Option<usize>,
    /// What is sent. Each datagram has at most as many bytes as [`Server::payload_bytes`](super::Server::payload_bytes)
    /// says.
    pub contents: &'a [u8],
}

impl<'a> Transmit<'a> {
    /// One datagram, from an address of the system's choice.
    pub fn new(destination: SocketAddr, contents: &'a [u8]) -> Self {
        Self { destination, source: None, ecn: None, segment_size: None, contents }
    }

    /// Sets [`source`](field@Self::source).
    #[must_use]
    pub const fn source(mut self, source: Option<IpAddr>) -> Self {
        self.source = source;
        self
    }

    /// Sets [`ecn`](field@Self::ecn).
    #[must_use]
    pub const fn ecn(mut self, ecn: Option<Ecn>) -> Self {
        self.ecn = ecn;
        self
    }

    /// Sets [`segment_size`](field@Self::segment_size).
    #[must_use]
    pub const fn segment_size(mut self, bytes: Option<usize>) -> Self {
        self.segment_size = bytes;
        self
    }

    /// How many datagrams it is.
    pub fn datagrams(&self) -> usize {
        let bytes = self.contents.len();
        self.segment_size.filter(|size| *size > 0).map_or(1, |size| bytes.div_ceil(size).max(1))
    }
}

/// Why a datagram was not taken to be sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotTaken {
    /// The server was not allowed to send by itself.
    #[error("this server sends nothing by itself: allow it by Limits::transmits_outstanding")]
    NotAllowed,
    /// A datagram is too long.
    #[error(
        "{bytes} bytes are more than a datagram of this server has, {most}: raise Server::payload_bytes"
    )]
    TooLong {
        /// Bytes of the datagram.
        bytes: usize,
        /// The most that there may be.
        most: usize,
    },
    /// The contents are to be cut into datagrams of no bytes.
    #[error("the contents cannot be cut into datagrams of 0 bytes: give another segment_size")]
    NoSegment,
    /// [`Limits::transmits_outstanding`] datagrams, or spans of several, wait already.
    #[error("as many datagrams wait to be sent as Limits::transmits_outstanding allows")]
    Full,
    /// No socket of the server can send there.
    #[error(
        "no socket of this server can send to {0}: bind an address of its family, and name that one"
    )]
    NoSocket(SocketAddr),
    /// The datagram cannot be sent from that address.
    #[error(
        "the system does not let a datagram leave from {0} by this socket: name none, or bind that address, or ask for \
         SocketOptions::local_address"
    )]
    Source(IpAddr),
    /// The system, or weir on it, does not mark datagrams.
    #[error("a datagram cannot be marked on this system, or not by this socket: leave ecn out")]
    Ecn,
    /// The server has ended.
    #[error("the server has ended")]
    Ended,
    /// What the system answered, the first time if it was several times. Would-block: the socket's send buffer is full.
    #[error("sending a datagram: {0}")]
    Failed(#[source] io::Error),
}

/// An outbox for other threads than the server's: it may be cloned, kept, and used when the server has ended, which it
/// then says. It does not keep the server's sockets open.
#[derive(Debug, Clone)]
pub struct SharedOutbox {
    exits: Arc<Exits>,
}

impl SharedOutbox {
    pub(super) fn new(exits: &Arc<Exits>) -> Self {
        Self { exits: Arc::clone(exits) }
    }

    /// Sends at once, on the calling thread, by the first of the server's sockets that can send there. It does not wait
    /// for room in the socket's send buffer (on Windows 100 ms at most).
    ///
    /// # Errors
    /// [`NotTaken`].
    pub fn send(&self, transmit: Transmit<'_>) -> Result<(), NotTaken> {
        self.exits.send(None, &transmit)
    }

    /// The same by a socket of one's choice, by its place among the server's addresses.
    ///
    /// # Errors
    /// [`NotTaken`].
    pub fn send_by(&self, socket: u32, transmit: Transmit<'_>) -> Result<(), NotTaken> {
        self.exits.send(Some(socket), &transmit)
    }

    /// Datagrams that were sent by this outbox and all other shared ones of its server, and those that were not. They are
    /// not among the counters of the server's threads.
    pub fn counts(&self) -> SharedCounts {
        let Exits { sent, not_sent, .. } = &*self.exits;
        SharedCounts { sent: sent.load(Relaxed), not_sent: not_sent.load(Relaxed) }
    }
}

/// What became of datagrams that were given to shared outboxes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SharedCounts {
    /// The system took them.
    pub sent: u64,
    /// They were refused, by weir or by the system.
    pub not_sent: u64,
}

/// A socket that may be sent by.
struct Exit {
    address: SocketAddr,
    /// Whether a datagram may leave from other addresses than that.
    names_source: bool,
    /// Where any thread may send; for handlers there is always a way.
    socket: Option<WeakSocket>,
}

/// By which sockets a server sends, and what.
pub(super) struct Exits {
    all: Box<[Exit]>,
    limits: Limits,
    /// Bytes of a datagram, at most.
    longest: usize,
    /// Bytes that are sent in one piece, at most.
    slice_bytes: usize,
    /// Whether datagrams come by sockets, and not by frames.
    receives_by_sockets: bool,
    /// Not held: who is woken at its end may hold a socket.
    server: Weak<Lifecycle>,
    /// Held by whoever sends, so that no socket is open any longer once the server was stopped.
    sending: RwLock<()>,
    sent: AtomicU64,
    not_sent: AtomicU64,
}

impl fmt::Debug for Exits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.all.iter().map(|exit| exit.address)).finish()
    }
}

/// Datagrams that are sent in one piece, at most: as many as every Linux cuts (UDP_SEGMENT).
const MOST_SEGMENTS: usize = 64;

/// Bytes that are cut at once, at most: the longest payload of UDP over IPv4.
const MOST_BYTES: usize = OFFLOADED_BYTES - 20;

/// What was found to be all right with a [`Transmit`].
#[derive(Debug)]
pub(super) struct Checked {
    pub(super) socket: u32,
    pub(super) to: Peer,
    segment: Option<NonZeroU16>,
    /// Bytes that are sent in one piece.
    piece: usize,
}

impl Checked {
    /// The contents in pieces: one where they are a datagram, with or without bytes.
    pub(super) fn spans<'c>(
        &self,
        contents: &'c [u8],
    ) -> impl ExactSizeIterator<Item = &'c [u8]> + use<'c> {
        let piece = self.piece.max(1);
        (0..contents.len().div_ceil(piece).max(1)).map(move |number| {
            let start = number * piece;
            &contents[start..contents.len().min(start + piece)]
        })
    }

    /// How a piece is cut.
    pub(super) fn span(&self, bytes: &[u8]) -> Span {
        let several = |segment: &NonZeroU16| bytes.len() > usize::from(segment.get());
        Span { len: bytes.len(), segment: self.segment.filter(several) }
    }
}

impl Exits {
    /// For sockets at these addresses; `senders` are those that any thread may send by.
    pub(super) fn new(
        addresses: &[SocketAddr],
        senders: &[DatagramSocket],
        (limits, longest, slice_bytes): (Limits, usize, usize),
        receives_by_sockets: bool,
        server: &Arc<Lifecycle>,
    ) -> Arc<Self> {
        let exit = |(place, &address): (usize, &SocketAddr)| {
            let socket = senders.get(place);
            let names_source = socket.is_none_or(DatagramSocket::names_source);
            Exit { address, names_source, socket: socket.map(DatagramSocket::downgrade) }
        };
        Arc::new(Self {
            all: addresses.iter().enumerate().map(exit).collect(),
            limits,
            longest,
            slice_bytes,
            receives_by_sockets,
            server: Arc::downgrade(server),
            sending: RwLock::default(),
            sent: AtomicU64::new(0),
            not_sent: AtomicU64::new(0),
        })
    }

    /// Sends a piece by the thread's own socket, or by that of all threads, where it is still open, whether the server
    /// stops or not.
    pub(super) fn send_last(
        &self,
        (place, own): (u32, Option<&WeakSocket>),
        bytes: &[u8],
        span: Span,
        to: &Peer,
        counters: &Counters,
    ) -> Result<(), Unsent> {
        let of_all = || self.all.get(place as usize).and_then(|exit| exit.socket.as_ref());
        let socket = own.or_else(of_all).and_then(WeakSocket::upgrade);
        let socket = socket.ok_or_else(|| Unsent {
            error: io::ErrorKind::NotConnected.into(),
            datagrams: span.datagrams() as u32,
            sent: 0,
        })?;
        socket.send_span(bytes, span, to, counters)
    }

    /// Has each socket that can receive from a group do so: all of them or, on an error, none.
    pub(super) fn join(&self, group: IpAddr, interface: u32) -> Result<(), Error> {
        let mut joined = Vec::new();
        let result = self.sockets_of(group)?.into_iter().try_for_each(|socket| {
            socket.join(group, interface)?;
            joined.push(socket);
            Ok(())
        });
        if result.is_err() {
            // Each has just joined, and can leave.
            joined.iter().for_each(|socket| _ = socket.leave(group, interface));
        }
        let device = match interface {
            0 => String::new(),
            index => format!(" on the device with the index {index} (see `ip link`)"),
        };
        result.map_err(|e| Error::io(format!("joining {group}{device}"), e))
    }

    /// Has none of them receive from a group any more. Of those that refuse the first says why.
    pub(super) fn leave(&self, group: IpAddr, interface: u32) -> Result<(), Error> {
        let left = self.sockets_of(group)?.into_iter().map(|socket| socket.leave(group, interface));
        let left = left.fold(Ok(()), io::Result::and);
        left.map_err(|e| Error::io(format!("leaving {group}"), e))
    }

    /// The sockets that can receive from a group, at least one.
    fn sockets_of(&self, group: IpAddr) -> Result<Vec<DatagramSocket>, Error> {
        let of_family = |exit: &&Exit| exit.address.is_ipv4() == group.is_ipv4();
        let bound = |exit: &&Exit| exit.address.ip().is_unspecified() || exit.address.ip() == group;
        let sockets: Vec<_> = self.all.iter().filter(of_family).filter(bound).collect();
        if !self.receives_by_sockets {
            let reason =
                "this provider receives frames, but leaves frames to a group to the kernel";
            let why = Unavailable::new("receiving from a group", reason);
            return Err(why.advise("use a provider with sockets").into());
        }
        if !group.is_multicast() || sockets.is_empty() {
            let problem = format!(
                "{group} is not allowed; allowed: the address of a group (224.0.0.0/4, ff00::/8), where the server is \
                 bound to every address of its family or to that of the group"
            );
            return Err(Error::option("join", problem));
        }
        let gone =
            || Error::io(format!("joining or leaving {group}"), io::ErrorKind::NotConnected.into());
        let open =
            |exit: &Exit| exit.socket.as_ref().and_then(WeakSocket::upgrade).ok_or_else(gone);
        sockets.into_iter().map(open).collect()
    }

    /// Has nobody send any more, after the server was asked to stop.
    pub(super) fn close(&self) {
        drop(self.sending.write().unwrap_or_else(PoisonError::into_inner));
    }

    pub(super) fn check(
        &self,
        by: Option<u32>,
        transmit: &Transmit<'_>,
    ) -> Result<Checked, NotTaken> {
        let Transmit { destination, source, ecn, segment_size, contents } = *transmit;
        if self.limits.transmits_outstanding == 0 {
            return Err(NotTaken::NotAllowed);
        }
        let bytes = contents.len();
        let each = match segment_size {
            Some(0) => return Err(NotTaken::NoSegment),
            Some(size) => size.min(bytes),
            None => bytes,
        };
        if each > self.longest {
            return Err(NotTaken::TooLong { bytes: each, most: self.longest });
        }
        if ecn.is_some() && datagrams_can_be_marked().is_err() {
            return Err(NotTaken::Ecn);
        }
        let no_socket = || NotTaken::NoSocket(destination);
        let socket = match by {
            Some(socket) => socket,
            None => self.leads_to(destination).ok_or_else(no_socket)?,
        };
        let exit = self.all.get(socket as usize).ok_or_else(no_socket)?;
        let address = exit.reach(destination).ok_or_else(no_socket)?;
        let local = source.map(|source| exit.leave_from(source)).transpose()?;
        let is_unix = stands_for_name(&exit.address);
        if is_unix && ecn.is_some() {
            return Err(NotTaken::Ecn);
        }
        let segment = u16::try_from(each).ok().filter(|_| each < bytes).and_then(NonZeroU16::new);
        let piece = match segment {
            None => bytes,
            Some(_) if is_unix => each, // the system cuts none
            Some(_) => {
                let most = self.slice_bytes.min(MOST_BYTES) / each;
                each * most.clamp(1, MOST_SEGMENTS)
            }
        };
        let to = Peer { address, local, link: None, ecn };
        Ok(Checked { socket, to, segment, piece })
    }

    /// The first socket that can send there: one of its family, or else one that stands for both.
    fn leads_to(&self, destination: SocketAddr) -> Option<u32> {
        let of_family = |exit: &Exit| {
            exit.address.is_ipv4() == destination.is_ipv4()
                && stands_for_name(&exit.address) == stands_for_name(&destination)
        };
        let place = self.all.iter().position(of_family);
        place
            .or_else(|| self.all.iter().position(|exit| exit.reach(destination).is_some()))
            .map(|place| place as u32)
    }

    fn send(&self, by: Option<u32>, transmit: &Transmit<'_>) -> Result<(), NotTaken> {
        let result = self.send_now(by, transmit);
        if result.is_err() {
            self.not_sent.fetch_add(transmit.datagrams() as u64, Relaxed);
        }
        result.and_then(|failed| failed.map_or(Ok(()), |e| Err(NotTaken::Failed(e))))
    }

    /// Sends, and counts that; returns the first error of the system's.
    fn send_now(
        &self,
        by: Option<u32>,
        transmit: &Transmit<'_>,
    ) -> Result<Option<io::Error>, NotTaken> {
        let _sending = self.sending.read().unwrap_or_else(PoisonError::into_inner);
        if self.server.upgrade().is_none_or(|server| server.stopping()) {
            return Err(NotTaken::Ended);
        }
        let checked = self.check(by, transmit)?;
        let Some(socket) = &self.all[checked.socket as usize].socket else {
            return Err(NotTaken::NoSocket(transmit.destination));
        };
        let socket = socket.upgrade().ok_or(NotTaken::Ended)?;
        let (counters, mut failed) = (Counters::default(), None);
        for bytes in checked.spans(transmit.contents) {
            let span = checked.span(bytes);
            match socket.send_span(bytes, span, &checked.to, &counters) {
                Ok(()) => self.sent.fetch_add(span.datagrams() as u64, Relaxed),
                Err(unsent) => {
                    failed.get_or_insert(unsent.error);
                    self.not_sent.fetch_add(unsent.datagrams.into(), Relaxed);
                    self.sent.fetch_add(unsent.sent.into(), Relaxed)
                }
            };
        }
        Ok(failed)
    }
}

impl Exit {
    /// How this socket writes an address; `None` if it cannot send there.
    fn reach(&self, destination: SocketAddr) -> Option<SocketAddr> {
        let port = destination.port();
        if stands_for_name(&self.address) || stands_for_name(&destination) {
            let both = stands_for_name(&self.address) && stands_for_name(&destination);
            return both.then_some(destination);
        }
        match (self.address.ip(), destination.ip()) {
            (IpAddr::V4(_), IpAddr::V4(_)) => Some(destination),
            (IpAddr::V4(_), IpAddr::V6(v6)) => v6.to_ipv4_mapped().map(|v4| (v4, port).into()),
            (IpAddr::V6(ours), IpAddr::V4(v4)) => {
                ours.is_unspecified().then(|| (v4.to_ipv6_mapped(), port).into())
            }
            (IpAddr::V6(_), IpAddr::V6(_)) => Some(destination),
        }
    }

    /// How this socket writes an address of ours that a datagram is to leave from.
    fn leave_from(&self, source: IpAddr) -> Result<IpAddr, NotTaken> {
        let ours = match (self.address.ip(), source) {
            (IpAddr::V6(_), IpAddr::V4(v4)) => v4.to_ipv6_mapped().into(),
            (IpAddr::V4(_), IpAddr::V6(v6)) => {
                v6.to_ipv4_mapped().ok_or(NotTaken::Source(source))?.into()
            }
            _ => source,
        };
        let may = self.names_source && !stands_for_name(&self.address) || ours == self.address.ip();
        may.then_some(ours).ok_or(NotTaken::Source(source))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn exits(addresses: &[&str], longest: usize, slice_bytes: usize) -> Arc<Exits> {
        let limits = Limits { transmits_outstanding: 8, ..Limits::SINK };
        let addresses: Vec<SocketAddr> = addresses.iter().map(|at| at.parse().unwrap()).collect();
        Exits::new(&addresses, &[], (limits, longest, slice_bytes), true, &Arc::default())
    }

    fn to(destination: &str) -> Transmit<'static> {
        Transmit::new(destination.parse().unwrap(), b"bytes")
    }

    #[test]
    fn the_socket_is_one_that_can_send_there() {
        let both = exits(&["[::1]:1", "127.0.0.1:1", "[::]:2"], 99, 99);
        let by = |exits: &Exits, destination| exits.check(None, &to(destination)).map(|c| c.socket);
        assert_eq!(by(&both, "192.0.2.1:9").unwrap(), 1);
        assert_eq!(by(&both, "[2001:db8::1]:9").unwrap(), 0);
        let six = exits(&["[::1]:1", "[::]:2"], 99, 99);
        let mapped = six.check(None, &to("192.0.2.1:9")).unwrap();
        assert_eq!(
            (mapped.socket, mapped.to.address),
            (1, "[::ffff:192.0.2.1]:9".parse().unwrap())
        );
        let alone = exits(&["127.0.0.1:1"], 99, 99);
        assert!(matches!(by(&alone, "[2001:db8::1]:9"), Err(NotTaken::NoSocket(_))));
        assert!(matches!(alone.check(Some(1), &to("192.0.2.1:9")), Err(NotTaken::NoSocket(_))));
        let back = both.check(Some(1), &to("[::ffff:192.0.2.1]:9")).unwrap();
        assert_eq!(back.to.address, "192.0.2.1:9".parse().unwrap());
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_the_reason() {
        let exits = exits(&["127.0.0.1:1"], 4, 100);
        let bytes = Transmit { segment_size: Some(0), ..to("192.0.2.1:9") };
        assert!(matches!(exits.check(None, &bytes), Err(NotTaken::NoSegment)));
        let long = exits.check(None, &to("192.0.2.1:9"));
        assert!(matches!(long, Err(NotTaken::TooLong { bytes: 5, most: 4 })));
        let source = Some("2001:db8::1".parse().unwrap());
        let from = Transmit { source, segment_size: Some(4), ..to("192.0.2.1:9") };
        assert!(matches!(exits.check(None, &from), Err(NotTaken::Source(_))));
        let silent = Exits::new(&[], &[], (Limits::SINK, 9, 9), true, &Arc::default());
        assert!(matches!(silent.check(None, &to("192.0.2.1:9")), Err(NotTaken::NotAllowed)));
    }

    proptest! {
        /// However it is cut, the pieces are the contents, and each is one that is sent at once.
        #[test]
        fn pieces_are_whole_segments(
            bytes in 0usize..100_000,
            segment in prop::option::of(1usize..1500),
            slice_bytes in prop::sample::select(vec![1500, 2048, 65_527]),
        ) {
            let contents = vec![0; bytes];
            let exits = exits(&["127.0.0.1:1"], 1500, slice_bytes);
            let transmit =
                Transmit { segment_size: segment, contents: &contents, ..to("192.0.2.1:9") };
            let Ok(checked) = exits.check(None, &transmit) else {
                prop_assert!(segment.is_none() && bytes > 1500);
                return Ok(());
            };
            let spans: Vec<_> = checked.spans(&contents).map(|bytes| checked.span(bytes)).collect();
            prop_assert_eq!(spans.iter().map(|span| span.len).sum::<usize>(), bytes);
            let datagrams: usize = spans.iter().map(Span::datagrams).sum();
            prop_assert_eq!(datagrams, transmit.datagrams());
            for span in spans {
                prop_assert!(span.len <= slice_bytes && span.datagrams() <= MOST_SEGMENTS);
            }
        }
    }
}
