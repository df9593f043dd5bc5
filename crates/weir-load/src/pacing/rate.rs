//! From what people ask for to datagrams per second.

/// How much is offered.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Load {
    /// As fast as one call after another goes.
    Saturation,
    /// Evenly paced.
    Paced {
        /// Datagrams per second, above 0, over all flows and generators.
        datagrams_per_s: f64,
    },
}

impl Load {
    /// Datagrams per second, or `None` at saturation.
    pub fn datagrams_per_s(&self) -> Option<f64> {
        match self {
            Self::Saturation => None,
            Self::Paced { datagrams_per_s } => Some(*datagrams_per_s),
        }
    }

    /// From bits of payload per second, as iperf3 counts them (no header is included).
    ///
    /// # Errors
    /// For empty datagrams, which have no bits.
    pub fn from_payload_bits_per_s(bits_per_s: f64, size_bytes: usize) -> Result<Self, String> {
        if size_bytes == 0 {
            return Err("a bit rate says nothing about empty datagrams; \
                        give datagrams per second instead (--pps)"
                .into());
        }
        Ok(Self::Paced { datagrams_per_s: bits_per_s / (size_bytes as f64 * 8.0) })
    }

    /// From a share (0 to 1) of a link of so many bits per second, on which a datagram
    /// takes [`wire_bytes`].
    pub fn from_link(share: f64, link_bits_per_s: f64, size_bytes: usize, ipv6: bool) -> Self {
        let bits = wire_bytes(size_bytes, ipv6) as f64 * 8.0;
        Self::Paced { datagrams_per_s: share * link_bits_per_s / bits }
    }
}

/// Bytes that a datagram occupies on an Ethernet without VLAN: payload, UDP 8, IPv4 20 or IPv6 40,
/// Ethernet 14, frame check 4, at least 64 together; then preamble 8 and gap 12.
///
/// What does not fit into one packet of 1500 bytes, the usual MTU, goes in fragments, each with
/// headers of its own; over IPv6 each of them has another header of 8 bytes.
///
/// Origin: IEEE 802.3, RFC 768, RFC 791, RFC 8200.
pub fn wire_bytes(size_bytes: usize, ipv6: bool) -> usize {
    const UDP: usize = 8;
    const MTU: usize = 1500;
    let (ip, of_fragment) = if ipv6 { (40, 8) } else { (20, 0) };
    let datagram = UDP + size_bytes;
    if ip + datagram <= MTU {
        return frame_bytes(ip + datagram);
    }
    let headers = ip + of_fragment;
    // Where a fragment begins is counted in units of 8 bytes.
    let most = (MTU - headers) / 8 * 8;
    let (whole, rest) = (datagram / most, datagram % most);
    whole * frame_bytes(headers + most) + if rest > 0 { frame_bytes(headers + rest) } else { 0 }
}

/// Bytes that a packet occupies in a frame of its own.
fn frame_bytes(packet: usize) -> usize {
    const ETHERNET: usize = 14;
    const FRAME_CHECK: usize = 4;
    const FRAME_MIN: usize = 64;
    const PREAMBLE: usize = 8;
    const GAP: usize = 12;
    (packet + ETHERNET + FRAME_CHECK).max(FRAME_MIN) + PREAMBLE + GAP
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_carries_what_the_textbook_says() {
        // 64-byte frames on 10 GbE: 14.88 million a second.
        let Load::Paced { datagrams_per_s } = Load::from_link(1.0, 1e10, 18, false) else {
            panic!("paced")
        };
        assert!((datagrams_per_s - 14_880_952.0).abs() < 1.0);
        assert_eq!(wire_bytes(0, false), 84);
        assert_eq!(wire_bytes(18, false), 84);
        assert_eq!(wire_bytes(1472, false), 1538);
        assert_eq!(wire_bytes(1452, true), 1538);
        assert_eq!(wire_bytes(1024, false), 1090);
    }

    #[test]
    fn what_is_longer_than_a_packet_goes_in_fragments() {
        // One byte more than fits is a fragment more, which is padded.
        assert_eq!(wire_bytes(1473, false), 1538 + 84);
        assert_eq!(wire_bytes(2 * 1480 - 8, false), 2 * 1538);
        // 1448 bytes in the first of IPv6, behind both headers, and 13 in the other.
        assert_eq!(wire_bytes(1453, true), (1448 + 86) + (13 + 86));
        let all: Vec<usize> = (0..65_507).map(|size| wire_bytes(size, false)).collect();
        assert!(all.is_sorted(), "a longer datagram never takes less");
    }

    #[test]
    fn bits_are_those_of_the_payload() {
        assert_eq!(
            Load::from_payload_bits_per_s(512_000.0, 64),
            Ok(Load::Paced { datagrams_per_s: 1000.0 })
        );
        assert!(Load::from_payload_bits_per_s(1e6, 0).is_err());
    }
}
