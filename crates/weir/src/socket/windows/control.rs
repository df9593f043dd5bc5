//! Control data of Windows.

use std::{
    mem,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};
use windows_sys::Win32::Networking::WinSock::{
    CMSGHDR, IP_PKTINFO, IPPROTO_IP, IPPROTO_IPV6, IPV6_PKTINFO,
};

/// Room for the control data of one datagram: packet information of IPv6, the larger.
pub(crate) const CONTROL_BYTES: usize = 64;

/// Control data, aligned as Winsock's headers want it.
#[repr(C, align(8))]
pub(crate) struct Control(pub [u8; CONTROL_BYTES]);

/// The address a datagram was sent to, from the control data that came with it.
pub(super) fn local_address_in(control: &[u8]) -> Option<IpAddr> {
    const HEADER: usize = mem::size_of::<CMSGHDR>();
    const ALIGN: usize = mem::align_of::<CMSGHDR>();
    const WORD: usize = mem::size_of::<usize>();
    let mut rest = control;
    while let Some((header, behind)) = rest.split_at_checked(HEADER) {
        // The length of the data with its header, the level, and the type.
        let length = usize::from_ne_bytes(header[..WORD].try_into().ok()?);
        let level = i32::from_ne_bytes(header[WORD..WORD + 4].try_into().ok()?);
        let kind = i32::from_ne_bytes(header[WORD + 4..WORD + 8].try_into().ok()?);
        let data = behind.get(..length.checked_sub(HEADER)?)?;
        match (level, kind) {
            (IPPROTO_IP, IP_PKTINFO) => {
                let octets: [u8; 4] = data.get(..4)?.try_into().ok()?;
                return Some(Ipv4Addr::from(octets).into());
            }
            (IPPROTO_IPV6, IPV6_PKTINFO) => {
                let octets: [u8; 16] = data.get(..16)?.try_into().ok()?;
                return Some(Ipv6Addr::from(octets).into());
            }
            _ => rest = rest.get(length.checked_next_multiple_of(ALIGN)?..)?,
        }
    }
    None
}

/// Writes control data that lets a datagram leave from this address of ours, and returns its
/// length. An IPv4 address in IPv6 form is written as what it is.
pub(super) fn write_source(control: &mut Control, source: IpAddr) -> usize {
    match source.to_canonical() {
        IpAddr::V4(v4) => write(control, IPPROTO_IP, IP_PKTINFO, &v4.octets()),
        IpAddr::V6(v6) => write(control, IPPROTO_IPV6, IPV6_PKTINFO, &v6.octets()),
    }
}

/// Writes packet information: a header, the address, and the interface, 32 bits that are 0 for
/// any.
fn write(control: &mut Control, level: i32, kind: i32, octets: &[u8]) -> usize {
    let length = mem::size_of::<CMSGHDR>() + octets.len() + mem::size_of::<u32>();
    let mut rest = &mut control.0[..];
    for bytes in
        [&length.to_ne_bytes()[..], &level.to_ne_bytes(), &kind.to_ne_bytes(), octets, &[0; 4]]
    {
        let (place, behind) = rest.split_at_mut(bytes.len());
        place.copy_from_slice(bytes);
        rest = behind;
    }
    length.next_multiple_of(mem::align_of::<CMSGHDR>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn control(level: i32, kind: i32, data: &[u8]) -> Vec<u8> {
        let length = mem::size_of::<CMSGHDR>() + data.len();
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend(level.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(data);
        bytes.resize(length.next_multiple_of(mem::align_of::<CMSGHDR>()), 0);
        bytes
    }

    #[test]
    fn packet_information_is_found_behind_other_control_data() {
        let mut bytes = control(IPPROTO_IP, IP_PKTINFO + 1, &[1, 2, 3]);
        assert_eq!(local_address_in(&bytes), None);
        bytes.extend(control(IPPROTO_IP, IP_PKTINFO, &[127, 0, 0, 2, 9, 9, 9, 9]));
        assert_eq!(local_address_in(&bytes), Some(Ipv4Addr::new(127, 0, 0, 2).into()));
        let six = Ipv6Addr::LOCALHOST;
        let mut data = six.octets().to_vec();
        data.extend([1, 0, 0, 0]);
        let bytes = control(IPPROTO_IPV6, IPV6_PKTINFO, &data);
        assert_eq!(local_address_in(&bytes), Some(six.into()));
    }

    #[test]
    fn the_source_that_is_written_is_read_again() {
        for (source, read) in
            [("10.1.2.3", "10.1.2.3"), ("::1", "::1"), ("::ffff:10.1.2.3", "10.1.2.3")]
        {
            let mut control = Control([0xff; CONTROL_BYTES]);
            let length = write_source(&mut control, source.parse().unwrap());
            let got = local_address_in(&control.0[..length]);
            assert_eq!(got, Some(read.parse().unwrap()));
        }
    }

    proptest! {
        #[test]
        fn any_control_data_is_read_without_a_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..64),
            length in 0usize..80,
        ) {
            local_address_in(&bytes);
            let mut plausible = length.to_ne_bytes().to_vec();
            plausible.extend(&bytes);
            local_address_in(&plausible);
        }
    }
}
