//! Frames written, taken apart, and damaged.

use super::*;
use proptest::prelude::*;

/// More than any headers, so that it shows where they begin.
const ROOM: usize = 80;

fn ends() -> impl Strategy<Value = Ends> {
    let macs = (any::<[u8; 6]>(), any::<[u8; 6]>());
    let ports = (any::<u16>(), any::<u16>());
    let v4 = (any::<[u8; 4]>(), any::<[u8; 4]>()).prop_map(|(a, b)| (a.into(), b.into()));
    let v6 = (any::<[u8; 16]>(), any::<[u8; 16]>()).prop_map(|(a, b)| (a.into(), b.into()));
    let addresses = prop_oneof![v4, v6];
    (macs, ports, addresses).prop_map(|(macs, ports, (from, to)): (_, _, (IpAddr, IpAddr))| Ends {
        from: SocketAddr::new(from, ports.0),
        from_mac: macs.0,
        to: SocketAddr::new(to, ports.1),
        to_mac: macs.1,
    })
}

fn frame_of(ends: &Ends, payload: &[u8]) -> Vec<u8> {
    let mut memory = vec![0xaa; ROOM];
    memory.extend_from_slice(payload);
    let range = ROOM..memory.len();
    let frame = write_headers(&mut memory, range, ends).unwrap();
    assert_eq!(frame, ROOM - ends.headers().unwrap()..memory.len());
    assert!(memory[..frame.start].iter().all(|&byte| byte == 0xaa), "only headers are written");
    assert_eq!(&memory[ROOM..], payload, "the payload stays");
    memory[frame].to_vec()
}

/// Puts what a sender would that leaves the checksum to a device.
fn leave_checksum_to_device(frame: &mut [u8], ends: &Ends) {
    let at = ends.headers().unwrap() - 2;
    let length = (frame.len() - at - 2 + UdpHeader::LEN) as u16;
    let sum = match (ends.from.ip(), ends.to.ip()) {
        (IpAddr::V4(a), IpAddr::V4(b)) => pseudo(&a.octets(), &b.octets()),
        (IpAddr::V6(a), IpAddr::V6(b)) => pseudo(&a.octets(), &b.octets()),
        _ => unreachable!("of one family"),
    };
    let sum = !sum.add_2bytes(length.to_be_bytes()).ones_complement();
    frame[at..at + 2].copy_from_slice(&sum.to_ne_bytes());
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        ends in ends(),
        payload in prop::collection::vec(any::<u8>(), 0..1500),
        padding in 0usize..64,
    ) {
        let mut frame = frame_of(&ends, &payload);
        frame.resize(frame.len() + padding, 0x55); // a device fills short frames up
        let packet = parse(&frame).unwrap();
        prop_assert!(!packet.left_to_device);
        prop_assert_eq!((packet.from, packet.to), (ends.from, ends.to));
        prop_assert_eq!((packet.mac, &frame[..6]), (ends.from_mac, &ends.to_mac[..]));
        prop_assert_eq!(&frame[packet.payload.clone()], &payload[..]);
        prop_assert_eq!(packet.link(), Link { mac: ends.from_mac, local_port: ends.to.port() });
    }

    #[test]
    fn no_frame_is_believed_when_a_bit_of_what_is_summed_is_wrong(
        ends in ends(),
        payload in prop::collection::vec(any::<u8>(), 0..200),
        at in any::<prop::sample::Index>(),
        bit in 0u8..8,
    ) {
        let mut frame = frame_of(&ends, &payload);
        // Version, traffic class, flow label, length and hops of IPv6 are in no checksum.
        let summed_from = if ends.from.is_ipv4() { 14 } else { 22 };
        let at = summed_from + at.index(frame.len() - summed_from);
        frame[at] ^= 1 << bit;
        let field = ends.headers().unwrap() - 2;
        // Damage may make the field look like one left out, or left to a device.
        prop_assume!(ends.from.is_ipv6() || frame[field..field + 2] != [0, 0]);
        let mut left = frame.clone();
        leave_checksum_to_device(&mut left, &ends);
        prop_assume!(left != frame);
        prop_assert!(parse(&frame).is_err(), "byte {} bit {}", at, bit);
    }

    #[test]
    fn no_frame_is_believed_that_was_cut_off(
        ends in ends(),
        payload in prop::collection::vec(any::<u8>(), 0..200),
        keep in any::<prop::sample::Index>(),
    ) {
        let frame = frame_of(&ends, &payload);
        prop_assert!(parse(&frame[..keep.index(frame.len())]).is_err());
    }

    #[test]
    fn nothing_that_arrives_breaks_it(
        frame in prop::collection::vec(any::<u8>(), 0..200),
        v6 in any::<bool>(),
    ) {
        let mut frame = frame;
        if frame.len() > 24 {
            // So much is right that the rest is looked at.
            let kind: [u8; 3] = if v6 { [0x86, 0xdd, 0x60] } else { [0x08, 0x00, 0x45] };
            frame[12..15].copy_from_slice(&kind);
            frame[if v6 { 20 } else { 23 }] = 17;
        }
        if let Ok(packet) = parse(&frame) {
            prop_assert!(packet.payload.end <= frame.len());
        }
    }

    #[test]
    fn a_checksum_that_was_left_to_a_device_is_believed(
        ends in ends(),
        payload in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut frame = frame_of(&ends, &payload);
        leave_checksum_to_device(&mut frame, &ends);
        // That it is right by chance is as well.
        let whole = parse(&frame_of(&ends, &payload)).unwrap();
        let left = parse(&frame).unwrap();
        prop_assert!(left.left_to_device || frame == frame_of(&ends, &payload));
        prop_assert_eq!(Packet { left_to_device: false, ..left }, whole);
    }
}

fn some_ends(from: &str, to: &str) -> Ends {
    let (from, to) = (from.parse().unwrap(), to.parse().unwrap());
    Ends { from, from_mac: [2, 0, 0, 0, 0, 1], to, to_mac: [2, 0, 0, 0, 0, 2] }
}

#[test]
fn a_checksum_is_as_others_compute_it() {
    let ends = some_ends("10.0.0.1:1000", "10.0.0.2:2000");
    let frame = frame_of(&ends, b"hello");
    // Addresses, protocol and length; ports and length; "hello", as 16-bit words (RFC 768).
    let sum: u32 = [
        0x0a00, 0x0001, 0x0a00, 0x0002, 0x0011, 0x000d, 0x03e8, 0x07d0, 0x000d, 0x6865, 0x6c6c,
        0x6f00,
    ]
    .iter()
    .sum();
    let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
    assert_eq!(frame[40..42], checksum.to_be_bytes());
}

#[test]
fn what_is_left_out_is_believed_over_ipv4_alone() {
    let v4 = some_ends("10.0.0.1:1000", "10.0.0.2:2000");
    let v6 = some_ends("[fd00::1]:1000", "[fd00::2]:2000");
    for (ends, expected) in [(v4, Ok(())), (v6, Err(Malformed::Checksum))] {
        let mut frame = frame_of(&ends, b"hello");
        let at = ends.headers().unwrap() - 2;
        frame[at..at + 2].fill(0);
        assert_eq!(parse(&frame).map(drop), expected);
    }
}

#[test]
fn fragments_and_other_protocols_are_no_datagrams() {
    let ends = some_ends("10.0.0.1:1000", "10.0.0.2:2000");
    for (at, value) in [(20, 0x20), (21, 1), (23, 6), (12, 9), (14, 0x65)] {
        let mut frame = frame_of(&ends, b"hello");
        frame[at] = value;
        assert_eq!(parse(&frame), Err(Malformed::NoDatagram), "byte {at}");
    }
    let mut short = frame_of(&ends, b"hello");
    short[38..40].copy_from_slice(&7u16.to_be_bytes());
    assert_eq!(parse(&short), Err(Malformed::Length));
}

#[test]
fn a_frame_between_two_families_cannot_be_written() {
    let ends = some_ends("10.0.0.1:1000", "[fd00::2]:2000");
    assert_eq!(write_headers(&mut [0; 200], 100..110, &ends), None);
}
