//! Datagrams in Ethernet frames: taking one apart, and writing the headers of a reply.
//!
//! The formats are etherparse's work. What is ours is what may be believed: a frame that the
//! program on the device let through is looked at again here, since on a device that is not ours
//! alone anybody may send anything, and its checksums are verified, since no kernel did.
//!
//! A frame that was sent on the same machine (over veth, say) carries no complete checksum: the
//! sender leaves it to a device that it never reaches. The field then holds the sum of the pseudo
//! header, as for offloading, and that is all that can be verified.

use crate::socket::Link;
use etherparse::{
    EtherType, Ethernet2Header, Ethernet2HeaderSlice, IpNumber, Ipv4Header, Ipv4HeaderSlice,
    Ipv6FlowLabel, Ipv6Header, Ipv6HeaderSlice, UdpHeader, UdpHeaderSlice, checksum::Sum16BitWords,
};
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    ops::Range,
};

/// Bytes of headers before the payload of a datagram over IPv4 without options.
pub const HEADERS_V4: usize = Ethernet2Header::LEN + Ipv4Header::MIN_LEN + UdpHeader::LEN;

/// Bytes of headers before the payload of a datagram over IPv6 without extensions.
pub const HEADERS_V6: usize = Ethernet2Header::LEN + Ipv6Header::LEN + UdpHeader::LEN;

/// Routers that a reply may pass: the default of Linux.
const HOPS: u8 = 64;

/// A datagram in a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    pub from: SocketAddr,
    pub to: SocketAddr,
    /// The device that sent the frame.
    pub mac: [u8; 6],
    /// Where in the frame its payload lies.
    pub payload: Range<usize>,
    /// Whether its checksum was left to a device: it comes from this machine, and may be several
    /// datagrams that the device was to cut apart, where the kernel does not see to that before.
    pub left_to_device: bool,
}

/// Why a frame holds no datagram that can be believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Malformed {
    /// Not a whole datagram of UDP in plain Ethernet.
    NoDatagram,
    /// A length that contradicts another.
    Length,
    /// The checksum of IPv4 or of UDP is wrong.
    Checksum,
}

/// Headers of a network layer, as far as both kinds have it.
struct Network {
    source: IpAddr,
    destination: IpAddr,
    /// The sum of both addresses and of the protocol.
    pseudo: Sum16BitWords,
    /// Where its payload lies.
    payload: Range<usize>,
}

/// A datagram in a packet of IP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Datagram {
    pub from: SocketAddr,
    pub to: SocketAddr,
    /// Where its payload lies.
    pub payload: Range<usize>,
    /// Whether its checksum was left to a device.
    pub left_to_device: bool,
}

/// Takes a frame apart.
///
/// # Errors
/// [`Malformed`], where it holds no datagram that can be believed.
pub fn parse(frame: &[u8]) -> Result<Packet, Malformed> {
    let ethernet = Ethernet2HeaderSlice::from_slice(frame).map_err(|_| Malformed::NoDatagram)?;
    let datagram = parse_packet(frame, Ethernet2Header::LEN, ethernet.ether_type().0)?;
    let Datagram { from, to, payload, left_to_device } = datagram;
    Ok(Packet { from, to, mac: ethernet.source(), payload, left_to_device })
}

/// Takes a packet of IP apart that begins there and is of that EtherType. What follows it is ignored.
///
/// # Errors
/// [`Malformed`], where it holds no datagram that can be believed.
pub fn parse_packet(bytes: &[u8], start: usize, ether_type: u16) -> Result<Datagram, Malformed> {
    let network = match EtherType(ether_type) {
        EtherType::IPV4 => parse_v4(bytes, start)?,
        EtherType::IPV6 => parse_v6(bytes, start)?,
        _ => return Err(Malformed::NoDatagram),
    };
    let datagram = bytes.get(network.payload.clone()).ok_or(Malformed::Length)?;
    let udp = UdpHeaderSlice::from_slice(datagram).map_err(|_| Malformed::Length)?;
    let length = usize::from(udp.length());
    if length < UdpHeader::LEN {
        return Err(Malformed::Length);
    }
    // Shorter than the packet is allowed: what follows belongs to nobody.
    let datagram = datagram.get(..length).ok_or(Malformed::Length)?;
    let pseudo = network.pseudo.add_2bytes(udp.length().to_be_bytes());
    let [.., high, low] = *udp.slice() else { return Err(Malformed::Length) };
    let left_to_device = check([high, low], pseudo, datagram, network.source.is_ipv4())?;
    let start = network.payload.start;
    Ok(Datagram {
        from: SocketAddr::new(network.source, udp.source_port()),
        to: SocketAddr::new(network.destination, udp.destination_port()),
        payload: start + UdpHeader::LEN..start + length,
        left_to_device,
    })
}

/// Whether a packet of IP of that EtherType is a part of a datagram.
pub fn is_fragment(packet: &[u8], ether_type: u16) -> bool {
    match EtherType(ether_type) {
        EtherType::IPV4 => {
            Ipv4HeaderSlice::from_slice(packet).is_ok_and(|header| header.is_fragmenting_payload())
        }
        EtherType::IPV6 => Ipv6HeaderSlice::from_slice(packet)
            .is_ok_and(|header| header.next_header() == IpNumber::IPV6_FRAGMENTATION_HEADER),
        _ => false,
    }
}

/// Checks a datagram's checksum: it is right, or left out where that may be, or that of a frame whose
/// sender left it to a device. Returns whether it is the last.
///
/// # Errors
/// [`Malformed::Checksum`].
#[inline]
fn check(
    field: [u8; 2],
    pseudo: Sum16BitWords,
    datagram: &[u8],
    is_v4: bool,
) -> Result<bool, Malformed> {
    if field == [0, 0] {
        return if is_v4 { Ok(false) } else { Err(Malformed::Checksum) };
    }
    if pseudo.clone().add_slice(datagram).ones_complement() == 0 {
        return Ok(false);
    }
    let left_to_device = u16::from_ne_bytes(field) == !pseudo.ones_complement();
    if left_to_device { Ok(true) } else { Err(Malformed::Checksum) }
}

fn parse_v4(bytes: &[u8], start: usize) -> Result<Network, Malformed> {
    let packet = bytes.get(start..).ok_or(Malformed::NoDatagram)?;
    let header = Ipv4HeaderSlice::from_slice(packet).map_err(|_| Malformed::NoDatagram)?;
    if header.protocol() != IpNumber::UDP || header.is_fragmenting_payload() {
        return Err(Malformed::NoDatagram);
    }
    if Sum16BitWords::new().add_slice(header.slice()).ones_complement() != 0 {
        return Err(Malformed::Checksum);
    }
    let length = usize::from(header.payload_len().map_err(|_| Malformed::Length)?);
    let payload = start + header.slice().len();
    Ok(Network {
        source: header.source_addr().into(),
        destination: header.destination_addr().into(),
        pseudo: pseudo(&header.source(), &header.destination()),
        payload: payload..payload + length,
    })
}

fn parse_v6(bytes: &[u8], start: usize) -> Result<Network, Malformed> {
    let packet = bytes.get(start..).ok_or(Malformed::NoDatagram)?;
    let header = Ipv6HeaderSlice::from_slice(packet).map_err(|_| Malformed::NoDatagram)?;
    if header.next_header() != IpNumber::UDP {
        return Err(Malformed::NoDatagram);
    }
    let payload = start + Ipv6Header::LEN;
    Ok(Network {
        source: header.source_addr().into(),
        destination: header.destination_addr().into(),
        pseudo: pseudo(&header.source(), &header.destination()),
        payload: payload..payload + usize::from(header.payload_length()),
    })
}

fn pseudo(source: &[u8], destination: &[u8]) -> Sum16BitWords {
    Sum16BitWords::new().add_slice(source).add_slice(destination).add_2bytes([0, IpNumber::UDP.0])
}

/// Both ends of a datagram to be sent.
#[derive(Debug, Clone, Copy)]
pub struct Ends {
    pub from: SocketAddr,
    pub from_mac: [u8; 6],
    pub to: SocketAddr,
    pub to_mac: [u8; 6],
}

impl Ends {
    /// How many bytes of headers come before the payload; `None` where the families differ.
    pub fn headers(&self) -> Option<usize> {
        match (self.from, self.to) {
            (SocketAddr::V4(_), SocketAddr::V4(_)) => Some(HEADERS_V4),
            (SocketAddr::V6(_), SocketAddr::V6(_)) => Some(HEADERS_V6),
            _ => None,
        }
    }
}

/// Writes the headers before a payload that lies in `memory`, and returns where the frame lies.
/// `None` where the families of the addresses differ, or the payload is longer than a datagram.
///
/// # Panics
/// If the payload is not within `memory`, or has no room for headers before it.
pub fn write_headers(
    memory: &mut [u8],
    payload: Range<usize>,
    ends: &Ends,
) -> Option<Range<usize>> {
    let start = payload.start - ends.headers()?;
    let (before, bytes) = memory[..payload.end].split_at_mut(payload.start);
    let before = &mut before[start..];
    let length = u16::try_from(UdpHeader::LEN + bytes.len()).ok()?;
    let (source_port, destination_port) = (ends.from.port(), ends.to.port());
    let mut udp = UdpHeader { source_port, destination_port, length, checksum: 0 };
    let (source, destination) = (ends.from.ip(), ends.to.ip());
    let (network, transport) = before.split_at_mut(before.len() - UdpHeader::LEN);
    let (ethernet, network) = network.split_at_mut(Ethernet2Header::LEN);
    let ether_type = match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            network.copy_from_slice(&header_v4(length, source, destination)?);
            let (source, destination) = (source.octets(), destination.octets());
            udp.checksum = udp.calc_checksum_ipv4_raw(source, destination, bytes).ok()?;
            EtherType::IPV4
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            network.copy_from_slice(&header_v6(length, source, destination));
            let (source, destination) = (source.octets(), destination.octets());
            udp.checksum = udp.calc_checksum_ipv6_raw(source, destination, bytes).ok()?;
            EtherType::IPV6
        }
        _ => return None,
    };
    transport.copy_from_slice(&udp.to_bytes());
    let header = Ethernet2Header { source: ends.from_mac, destination: ends.to_mac, ether_type };
    ethernet.copy_from_slice(&header.to_bytes());
    Some(start..payload.end)
}

fn header_v4(length: u16, source: Ipv4Addr, destination: Ipv4Addr) -> Option<[u8; 20]> {
    let (source, destination) = (source.octets(), destination.octets());
    // With "do not fragment" set, an identification means nothing (RFC 6864).
    let mut header = Ipv4Header::new(length, HOPS, IpNumber::UDP, source, destination).ok()?;
    header.header_checksum = header.calc_header_checksum();
    header.to_bytes().as_slice().try_into().ok()
}

fn header_v6(length: u16, source: Ipv6Addr, destination: Ipv6Addr) -> [u8; Ipv6Header::LEN] {
    let header = Ipv6Header {
        traffic_class: 0,
        flow_label: Ipv6FlowLabel::ZERO,
        payload_length: length,
        next_header: IpNumber::UDP,
        hop_limit: HOPS,
        source: source.octets(),
        destination: destination.octets(),
    };
    header.to_bytes()
}

impl Packet {
    /// What the frame says beside the datagram.
    pub fn link(&self) -> Link {
        Link { mac: self.mac, local_port: self.to.port() }
    }
}

#[cfg(test)]
mod tests;
