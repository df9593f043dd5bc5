//! What is known of a datagram beside its bytes, where it lies: in the cache line in front of them.
//!
//! ```text
//! | local address 16 | time 8 | MAC 6 | port 2 | kinds 2 | class 1 | hops 1 | source 28 | payload ...
//! 0                  16       24      30       32        34        35       36          64
//! ```
//!
//! Who sees no frames may know of an interface: its index is where else a MAC is.
//!
//! So a completion stays small, and an address is only decoded where somebody asks for it, as with the buffer for the
//! remote address of RIOReceiveEx. The source is a sockaddr_in or sockaddr_in6 of Linux, on every system: io_uring puts
//! it there by itself. Whatever else lies in the line, reading it is safe and yields some address.

use super::{Arrival, Ecn, Link, Meta, Peer, Span};
use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, SocketAddrV6},
    num::NonZeroU16,
    time::Duration,
};

/// Bytes in front of a payload that say where its datagram came from.
pub const CONTEXT_BYTES: usize = 64;

/// A line in front of a payload.
pub(crate) type Line = [u8; CONTEXT_BYTES];

/// Where in the line the source begins.
pub(crate) const SOURCE: usize = CONTEXT_BYTES - SOURCE_BYTES;

/// The longer of the two kinds of source: a sockaddr_in6.
pub(crate) const SOURCE_BYTES: usize = 28;

const LOCAL: usize = 0;
const TIME: usize = 16;
const MAC: usize = 24;
const PORT: usize = 30;
const KINDS: usize = 32;
const MORE_KINDS: usize = 33;
const CLASS: usize = 34;
const HOPS: usize = 35;
const INTERFACE: usize = MAC;

// What else the line says.
const LOCAL_V4: u8 = 1 << 0;
const LOCAL_V6: u8 = 1 << 1;
const TIMED: u8 = 1 << 2;
const LINKED: u8 = 1 << 3;
/// From here on two bits: the mark of a datagram that is to be sent.
const MARK: u32 = 4;

// And that is in the other byte.
const CLASSED: u8 = 1 << 0;
const HOPPED: u8 = 1 << 1;
const BY_INTERFACE: u8 = 1 << 2;

// Address families, as in Linux.
const AF_INET: u16 = 2;
pub(crate) const AF_INET6: u16 = 10;

/// What a completion says of a datagram that was received, or of several with receive offload. Where it came from lies in
/// its slice ([`Completion::source`](crate::rio::Completion::source)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    len: u32,
    /// Where it is several datagrams, bytes of each: see [`Arrival::segment`].
    pub segment: Option<NonZeroU16>,
    /// Whether the datagram was longer than the slice, and its end is lost.
    pub truncated: bool,
    /// Whether its line says more than the source.
    says_more: bool,
}

impl Received {
    /// One datagram, in a line that says nothing but its source, of which so many bytes are there: at most 4 GiB.
    #[inline]
    pub(crate) fn new(len: usize, truncated: bool) -> Self {
        Self { len: len as u32, segment: None, truncated, says_more: false }
    }

    /// Bytes in the slice's payload.
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether it is an empty datagram.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many datagrams it is.
    #[inline]
    pub fn datagrams(&self) -> usize {
        Span { len: self.len(), segment: self.segment }.datagrams()
    }

    /// The same datagrams, with this line in front of them.
    #[inline]
    pub(crate) fn with(self, line: &Line) -> InPlace<'_> {
        InPlace { received: self, line }
    }
}

/// Something that was received, and where it came from: told when somebody asks.
pub(crate) trait Origin {
    /// How much it is.
    fn received(&self) -> Received;

    /// Who sent it.
    fn source(&self) -> SocketAddr;

    /// The address it was sent to, where asked for.
    fn local(&self) -> Option<IpAddr>;

    /// When the kernel received it, where asked for.
    fn at(&self) -> Option<Duration>;

    /// What its frame said, where frames are seen.
    fn link(&self) -> Option<Link>;

    /// What else was asked for.
    fn meta(&self) -> Meta;

    /// How it is to be marked when it is sent: what was received says nothing of that.
    #[inline]
    fn mark(&self) -> Option<Ecn> {
        None
    }

    /// Whether it says anything but its source.
    #[inline]
    fn says_more(&self) -> bool {
        self.received().says_more
    }

    /// Where a reply goes, and from where.
    #[inline]
    fn peer(&self) -> Peer {
        match self.says_more() {
            false => self.source().into(),
            true => {
                let (local, link, ecn) = (self.local(), self.link(), self.mark());
                Peer { address: self.source(), local, link, ecn }
            }
        }
    }

    /// All of it.
    fn arrival(&self) -> Arrival {
        let Received { segment, truncated, .. } = self.received();
        let len = self.received().len();
        let (from, local, at, link) = (self.source(), self.local(), self.at(), self.link());
        Arrival { len, from, local, truncated, at, segment, link, meta: self.meta() }
    }
}

impl Origin for Arrival {
    #[inline]
    fn received(&self) -> Received {
        Received {
            len: self.len as u32,
            segment: self.segment,
            truncated: self.truncated,
            says_more: self.local.is_some()
                | self.at.is_some()
                | self.link.is_some()
                | (self.meta != Meta::NONE),
        }
    }

    #[inline]
    fn source(&self) -> SocketAddr {
        self.from
    }

    #[inline]
    fn local(&self) -> Option<IpAddr> {
        self.local
    }

    #[inline]
    fn at(&self) -> Option<Duration> {
        self.at
    }

    #[inline]
    fn link(&self) -> Option<Link> {
        self.link
    }

    #[inline]
    fn meta(&self) -> Meta {
        self.meta
    }
}

/// What was received, with the line in front of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InPlace<'a> {
    received: Received,
    line: &'a Line,
}

impl InPlace<'_> {
    /// What else the line says.
    #[inline]
    fn kinds(&self) -> u8 {
        if self.received.says_more { self.line[KINDS] } else { 0 }
    }
}

impl Origin for InPlace<'_> {
    #[inline]
    fn received(&self) -> Received {
        self.received
    }

    #[inline]
    fn source(&self) -> SocketAddr {
        source(self.line)
    }

    fn local(&self) -> Option<IpAddr> {
        let octets: [u8; 16] = at(self.line, LOCAL);
        match self.kinds() & (LOCAL_V4 | LOCAL_V6) {
            0 => None,
            LOCAL_V4 => Some(Ipv4Addr::from(at::<4>(self.line, LOCAL)).into()),
            _ => Some(octets.into()),
        }
    }

    fn at(&self) -> Option<Duration> {
        let ns = u64::from_ne_bytes(at(self.line, TIME));
        (self.kinds() & TIMED != 0).then(|| Duration::from_nanos(ns))
    }

    fn link(&self) -> Option<Link> {
        let local_port = u16::from_ne_bytes(at(self.line, PORT));
        let link = Link { mac: at(self.line, MAC), local_port };
        (self.kinds() & LINKED != 0).then_some(link)
    }

    fn meta(&self) -> Meta {
        let kinds = if self.received.says_more { self.line[MORE_KINDS] } else { 0 };
        let is = |kind: u8| kinds & kind != 0;
        Meta {
            interface: is(BY_INTERFACE).then(|| u32::from_ne_bytes(at(self.line, INTERFACE))),
            traffic_class: is(CLASSED).then_some(self.line[CLASS]),
            hops: is(HOPPED).then_some(self.line[HOPS]),
        }
    }

    fn mark(&self) -> Option<Ecn> {
        Ecn::from_bits(self.kinds() >> MARK)
    }
}

/// So many bytes of a line.
#[inline]
fn at<const N: usize>(line: &Line, place: usize) -> [u8; N] {
    *line[place..].first_chunk().expect("all fields lie inside the line")
}

/// Reads the source in a line; what is none of the internet is nobody.
#[inline]
fn source(line: &Line) -> SocketAddr {
    let port = u16::from_be_bytes(at(line, SOURCE + 2));
    match u16::from_ne_bytes(at(line, SOURCE)) {
        AF_INET => (Ipv4Addr::from(at::<4>(line, SOURCE + 4)), port).into(),
        AF_INET6 => {
            let flow = u32::from_ne_bytes(at(line, SOURCE + 4));
            let octets: [u8; 16] = at(line, SOURCE + 8);
            let scope = u32::from_ne_bytes(at(line, SOURCE + 24));
            SocketAddrV6::new(octets.into(), port, flow, scope).into()
        }
        _ => SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0).into(),
    }
}

/// Writes where a datagram came from into the line in front of its payload, and returns what its completion says.
pub(crate) fn write(line: &mut Line, arrival: &Arrival) -> Received {
    let received = arrival.received();
    write_source(line, &arrival.from);
    if received.says_more {
        write_more(line, arrival);
    }
    received
}

/// Writes where a datagram is to go into the line in front of its payload, as if it had come from there.
pub(crate) fn write_destination(line: &mut Line, to: &Peer) -> Received {
    let Peer { address: from, local, link, ecn } = *to;
    let arrival = Arrival {
        len: 0,
        from,
        local,
        truncated: false,
        at: None,
        segment: None,
        link,
        meta: Meta::NONE,
    };
    let mut received = write(line, &arrival);
    if let Some(ecn) = ecn {
        if !received.says_more {
            (line[KINDS], line[MORE_KINDS]) = (0, 0);
        }
        line[KINDS] |= (ecn as u8) << MARK;
        received.says_more = true;
    }
    received
}

/// Writes a source into a line.
pub(crate) fn write_source(line: &mut Line, source: &SocketAddr) {
    let place = &mut line[SOURCE..];
    place[2..4].copy_from_slice(&source.port().to_be_bytes());
    match source {
        SocketAddr::V4(v4) => {
            place[..2].copy_from_slice(&AF_INET.to_ne_bytes());
            place[4..8].copy_from_slice(&v4.ip().octets());
        }
        SocketAddr::V6(v6) => {
            place[..2].copy_from_slice(&AF_INET6.to_ne_bytes());
            place[4..8].copy_from_slice(&v6.flowinfo().to_ne_bytes());
            place[8..24].copy_from_slice(&v6.ip().octets());
            place[24..].copy_from_slice(&v6.scope_id().to_ne_bytes());
        }
    }
}

/// Writes what else is known into a line.
fn write_more(line: &mut Line, arrival: &Arrival) {
    let mut kinds = 0;
    match arrival.local {
        None => {}
        Some(IpAddr::V4(v4)) => {
            kinds |= LOCAL_V4;
            line[LOCAL..][..4].copy_from_slice(&v4.octets());
        }
        Some(IpAddr::V6(v6)) => {
            kinds |= LOCAL_V6;
            line[LOCAL..][..16].copy_from_slice(&v6.octets());
        }
    }
    if let Some(at) = arrival.at {
        kinds |= TIMED;
        // Of 584 years.
        line[TIME..][..8].copy_from_slice(&(at.as_nanos() as u64).to_ne_bytes());
    }
    if let Some(Link { mac, local_port }) = arrival.link {
        kinds |= LINKED;
        line[MAC..][..6].copy_from_slice(&mac);
        line[PORT..][..2].copy_from_slice(&local_port.to_ne_bytes());
    }
    line[KINDS] = kinds;
    let mut more = 0;
    if let Some(class) = arrival.meta.traffic_class {
        more |= CLASSED;
        line[CLASS] = class;
    }
    if let Some(hops) = arrival.meta.hops {
        more |= HOPPED;
        line[HOPS] = hops;
    }
    // A frame's device is the provider's to know.
    if let (Some(interface), None) = (arrival.meta.interface, arrival.link) {
        more |= BY_INTERFACE;
        line[INTERFACE..][..4].copy_from_slice(&interface.to_ne_bytes());
    }
    line[MORE_KINDS] = more;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_source() -> impl Strategy<Value = SocketAddr> {
        let v4 = any::<([u8; 4], u16)>().prop_map(|(ip, port)| (Ipv4Addr::from(ip), port).into());
        let v6 = any::<([u8; 16], u16, u32, u32)>().prop_map(|(ip, port, flow, scope)| {
            SocketAddrV6::new(ip.into(), port, flow, scope).into()
        });
        prop_oneof![v4, v6]
    }

    fn any_arrival() -> impl Strategy<Value = Arrival> {
        let local = prop::option::of(any_source().prop_map(|source| source.ip()));
        let link = prop::option::of(
            any::<([u8; 6], u16)>().prop_map(|(mac, local_port)| Link { mac, local_port }),
        );
        let at = prop::option::of(any::<u64>().prop_map(Duration::from_nanos));
        let size = (any::<u32>(), any::<u16>(), any::<bool>());
        let meta = any::<(Option<u32>, Option<u8>, Option<u8>)>();
        (any_source(), local, link, at, size, meta).prop_map(
            |(from, local, link, at, size, meta)| {
                let (len, segment) = (size.0 as usize, NonZeroU16::new(size.1));
                let (interface, traffic_class, hops) = meta;
                let interface = interface.filter(|_| link.is_none());
                let meta = Meta { interface, traffic_class, hops };
                Arrival { len, from, local, truncated: size.2, at, segment, link, meta }
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_whatever_lay_there(
            arrival in any_arrival(),
            before in prop::collection::vec(any::<u8>(), CONTEXT_BYTES),
        ) {
            let mut line: Line = before.try_into().unwrap();
            let received = write(&mut line, &arrival);
            prop_assert_eq!(received.with(&line).arrival(), arrival);
            prop_assert_eq!(received.with(&line).peer(), arrival.peer());
            prop_assert_eq!(received.datagrams(), arrival.datagrams());
        }

        #[test]
        fn where_one_is_to_go_is_read_whatever_lay_there(
            arrival in any_arrival(),
            mark in any::<u8>(),
            before in prop::collection::vec(any::<u8>(), CONTEXT_BYTES),
        ) {
            let mut line: Line = before.try_into().unwrap();
            let to = Peer { ecn: Ecn::from_bits(mark), ..arrival.peer() };
            let goes = write_destination(&mut line, &to);
            prop_assert_eq!(goes.with(&line).peer(), to);
        }

        #[test]
        fn whatever_lies_in_a_line_reads_as_something(
            line in prop::collection::vec(any::<u8>(), CONTEXT_BYTES),
            says_more: bool,
        ) {
            let line: Line = line.try_into().unwrap();
            let arrival = Received { says_more, ..Received::new(1, false) }.with(&line).arrival();
            prop_assert!(says_more || (arrival.local, arrival.at, arrival.link) == (None, None, None));
            prop_assert!(says_more || arrival.meta == Meta::NONE);
        }
    }

    #[test]
    fn no_address_is_nobody() {
        let line = [0xee; CONTEXT_BYTES];
        assert_eq!(Received::new(3, false).with(&line).source(), "0.0.0.0:0".parse().unwrap());
    }
}
