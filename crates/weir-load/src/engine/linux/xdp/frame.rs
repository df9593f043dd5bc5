//! The frame of a flow, and what of it differs from datagram to datagram: the stamp, and so the
//! checksum.

use etherparse::PacketBuilder;

use super::way::Way;
use crate::{
    engine::Lane,
    stamp::{STAMP_BYTES, fill},
};

/// Routers that a frame may pass: the default of Linux.
const HOPS: u8 = 64;

/// The frame of every datagram of a flow, but for its stamp.
pub struct Template {
    /// Headers and body; where the stamp will be it is zero.
    pub bytes: Vec<u8>,
    /// The sum of all that the checksum covers, without the stamp: in 16-bit words, not folded.
    sum: u64,
}

/// Bytes of headers before the payload.
pub fn headers_bytes(is_v4: bool) -> usize {
    if is_v4 { 14 + 20 + 8 } else { 14 + 40 + 8 }
}

impl Template {
    /// For datagrams of so many bytes, from the lane's own address. `None` where the addresses are of
    /// two families, or it is too long.
    pub fn new(lane: &Lane, way: &Way, size_bytes: usize) -> Option<Self> {
        let ethernet = PacketBuilder::ethernet2(way.from, way.to);
        let packet = match (lane.local.ip(), lane.target.ip()) {
            (std::net::IpAddr::V4(from), std::net::IpAddr::V4(to)) => {
                ethernet.ipv4(from.octets(), to.octets(), HOPS)
            }
            (std::net::IpAddr::V6(from), std::net::IpAddr::V6(to)) => {
                ethernet.ipv6(from.octets(), to.octets(), HOPS)
            }
            _ => return None,
        };
        let mut payload = vec![0; size_bytes];
        fill(&mut payload);
        if size_bytes >= STAMP_BYTES {
            payload[..STAMP_BYTES].fill(0);
        }
        let packet = packet.udp(lane.local.port(), lane.target.port());
        let mut bytes = Vec::with_capacity(packet.size(size_bytes));
        packet.write(&mut bytes, &payload).ok()?;
        let at = headers_bytes(lane.target.is_ipv4()) - 2;
        // What was summed up is what its complement says.
        let sum = u64::from(!u16::from_be_bytes([bytes[at], bytes[at + 1]]));
        Some(Self { bytes, sum })
    }

    /// The checksum with this stamp, as it lies in the frame.
    pub fn checksum(&self, stamp: &[u8; STAMP_BYTES]) -> [u8; 2] {
        let words =
            stamp.chunks_exact(2).map(|word| u64::from(u16::from_be_bytes([word[0], word[1]])));
        let mut sum = self.sum + words.sum::<u64>();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        // Zero would say that there is none.
        match !(sum as u16) {
            0 => [0xff; 2],
            checksum => checksum.to_be_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, UdpSocket};

    use etherparse::SlicedPacket;

    use super::*;
    use crate::{engine::Blocking, stamp::Stamp};

    fn way() -> Way {
        let (from, to) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        Way { device: 2, name: "weir1".into(), from, to, mtu: 1500 }
    }

    #[test]
    fn a_frame_is_what_others_read_and_its_checksum_is_right() {
        for own in ["127.0.0.1:0", "[::1]:0"] {
            let sink = UdpSocket::bind(own).unwrap();
            let at: SocketAddr = sink.local_addr().unwrap();
            let lane = Lane::connect(at, 0, Blocking::Yes).unwrap();
            for size in [0, 1, 31, 32, 33, 64, 1024, 1452] {
                let template = Template::new(&lane, &way(), size).unwrap();
                let headers = headers_bytes(at.is_ipv4());
                assert_eq!(template.bytes.len(), headers + size);
                for sequence in [0, 1, 77, u64::MAX] {
                    let mut bytes = template.bytes.clone();
                    let mut payload = vec![0; size];
                    fill(&mut payload);
                    if size >= STAMP_BYTES {
                        let stamp = Stamp { run: 5, flow: 0, sequence, proof: 0, due_ns: 9 };
                        stamp.write(&mut payload);
                        let stamp = payload.first_chunk().unwrap();
                        bytes[headers - 2..headers].copy_from_slice(&template.checksum(stamp));
                    }
                    bytes[headers..].copy_from_slice(&payload);
                    let packet = SlicedPacket::from_ethernet(&bytes).unwrap();
                    let Some(etherparse::TransportSlice::Udp(udp)) = packet.transport else {
                        panic!("no datagram")
                    };
                    let ports = (lane.local.port(), at.port());
                    assert_eq!((udp.source_port(), udp.destination_port()), ports);
                    assert_eq!(udp.payload(), payload);
                    let header = udp.to_header();
                    let right = match (lane.local.ip(), at.ip()) {
                        (std::net::IpAddr::V4(a), std::net::IpAddr::V4(b)) => {
                            header.calc_checksum_ipv4_raw(a.octets(), b.octets(), &payload)
                        }
                        (std::net::IpAddr::V6(a), std::net::IpAddr::V6(b)) => {
                            header.calc_checksum_ipv6_raw(a.octets(), b.octets(), &payload)
                        }
                        _ => unreachable!("of one family"),
                    };
                    assert_eq!(header.checksum, right.unwrap(), "{own}, {size} bytes, {sequence}");
                }
            }
        }
    }
}
