//! Datagrams as they are forwarded: a header with what quinn is told of them, and they.
//!
//! Both ends are processes of one user, and may be of two versions of a program: the first byte says which form it is, and what
//! is not understood is left out.

use quinn::udp::{EcnCodepoint, RecvMeta};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// What a process says when it receives no more. (Nothing at all is said to find out whether somebody is there.)
pub(super) const ENDED: &[u8] = &[0];

/// The form of what follows.
const FORM: u8 = 1;

/// Bytes of the header.
pub(super) const HEADER: usize = 48;

/// The most bytes of both: what the kernel joins is not longer than the longest datagram.
pub(super) const LONGEST: usize = HEADER + (1 << 16);

/// A family of addresses; none.
const NONE: u8 = 0;
const V4: u8 = 4;
const V6: u8 = 6;

/// The header.
pub(super) fn header(meta: &RecvMeta) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    let (family, address) = octets(Some(meta.addr.ip()));
    let (local_family, local) = octets(meta.dst_ip);
    let (scope, flow) = match meta.addr {
        SocketAddr::V4(_) => (0, 0),
        SocketAddr::V6(v6) => (v6.scope_id(), v6.flowinfo()),
    };
    header[..4].copy_from_slice(&[FORM, meta.ecn.map_or(0, |ecn| ecn as u8), family, local_family]);
    header[4..6].copy_from_slice(&meta.addr.port().to_be_bytes());
    // What is longer is one datagram.
    header[6..8].copy_from_slice(&u16::try_from(meta.stride).unwrap_or(0).to_be_bytes());
    header[8..24].copy_from_slice(&address);
    header[24..40].copy_from_slice(&local);
    header[40..44].copy_from_slice(&scope.to_be_bytes());
    header[44..48].copy_from_slice(&flow.to_be_bytes());
    header
}

/// What quinn is told of what was forwarded. `None`: it is not understood, or empty.
pub(super) fn read(forwarded: &[u8]) -> Option<RecvMeta> {
    let (header, datagrams) = forwarded.split_first_chunk::<HEADER>()?;
    let [FORM, ecn, family, local_family, ..] = *header else { return None };
    let two = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let four = |at: usize| (u32::from(two(at)) << 16) | u32::from(two(at + 2));
    let octets = |at: usize| *header[at..].first_chunk().expect("the header has them");
    let address = match ip(family, octets(8))? {
        IpAddr::V4(v4) => (v4, two(4)).into(),
        IpAddr::V6(v6) => SocketAddrV6::new(v6, two(4), four(44), four(40)).into(),
    };
    let stride = match two(6) {
        0 => datagrams.len(),
        stride => stride.into(),
    };
    (!datagrams.is_empty()).then_some(RecvMeta {
        addr: address,
        len: datagrams.len(),
        stride,
        ecn: EcnCodepoint::from_bits(ecn),
        dst_ip: ip(local_family, octets(24)),
    })
}

fn octets(address: Option<IpAddr>) -> (u8, [u8; 16]) {
    match address {
        None => (NONE, [0; 16]),
        Some(IpAddr::V4(v4)) => (V4, v4.to_ipv6_mapped().octets()),
        Some(IpAddr::V6(v6)) => (V6, v6.octets()),
    }
}

fn ip(family: u8, octets: [u8; 16]) -> Option<IpAddr> {
    let address = Ipv6Addr::from(octets);
    match family {
        V4 => address.to_ipv4_mapped().map(IpAddr::V4),
        V6 => Some(address.into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn address() -> impl Strategy<Value = SocketAddr> {
        let v6 = (any::<Ipv6Addr>(), any::<u16>(), any::<u32>(), any::<u32>());
        prop_oneof![
            any::<std::net::SocketAddrV4>().prop_map(SocketAddr::V4),
            v6.prop_map(|(ip, port, flow, scope)| SocketAddrV6::new(ip, port, flow, scope).into()),
        ]
    }

    proptest! {
        #[test]
        fn what_is_said_of_datagrams_comes_over(
            addr in address(), dst_ip in any::<Option<IpAddr>>(), ecn in 0..4u8, stride in 1..1500usize,
            datagrams in prop::collection::vec(any::<u8>(), 1..3000),
        ) {
            let ecn = EcnCodepoint::from_bits(ecn);
            let meta = RecvMeta { addr, len: datagrams.len(), stride, ecn, dst_ip };
            let forwarded = [&header(&meta)[..], &datagrams].concat();
            let read = read(&forwarded).unwrap();
            prop_assert_eq!((read.addr, read.len, read.stride), (addr, meta.len, stride));
            prop_assert_eq!((read.ecn, read.dst_ip), (ecn, dst_ip));
        }

        #[test]
        fn any_bytes_are_taken(forwarded in prop::collection::vec(any::<u8>(), 0..100), form in any::<bool>()) {
            let mut forwarded = forwarded;
            if form && let Some(first) = forwarded.first_mut() {
                *first = FORM;
            }
            if let Some(meta) = read(&forwarded) {
                prop_assert!(meta.len == forwarded.len() - HEADER && meta.stride > 0);
            }
        }
    }

    #[test]
    fn what_is_no_datagram_is_not_taken_for_one() {
        assert!(read(&[]).is_none() && read(ENDED).is_none());
        let meta = RecvMeta::default();
        assert!(read(&header(&meta)).is_none(), "it has no datagram");
    }
}
