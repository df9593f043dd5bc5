//! Packets in a block of the ring: where each lies, and what the kernel says of it.
//!
//! The kernel writes the blocks, so they are believed; all the same nothing is looked at beyond a block's end.
//!
//! Origin: linux/if_packet.h (TPACKET_V3), linux/virtio_net.h.

use std::{mem::offset_of, num::NonZeroU16};

/// Bytes of `struct virtio_net_hdr`, which lies just before a packet.
const SEGMENTS_BYTES: usize = 10;
/// Where it says of what kind the segments are, and how long each is.
const SEGMENT_KIND: usize = 1;
const SEGMENT_BYTES: usize = 4;
/// VIRTIO_NET_HDR_GSO_UDP_L4: several datagrams.
const OF_DATAGRAMS: u8 = 5;

/// The packet has the tag of a VLAN, which was taken out of it.
const TAGGED: u32 = libc::TP_STATUS_VLAN_VALID;
/// The bits of a tag that are the number of the VLAN; 0 is a tag for priority alone.
const VLAN: u32 = 0x0fff;

/// A field of a block or of a packet's header.
fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let field = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(field.try_into().ok()?))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let field = bytes.get(at..at.checked_add(2)?)?;
    Some(u16::from_ne_bytes(field.try_into().ok()?))
}

/// Where the header of a block begins: behind the version, and the offset of what is private.
const HEADER: usize = 8;

/// Where a block says who owns it.
pub const STATUS: usize = HEADER + offset_of!(libc::tpacket_hdr_v1, block_status);

/// How many packets a block has, and where the first begins.
pub fn packets(block: &[u8]) -> Option<(u32, usize)> {
    let count = u32_at(block, HEADER + offset_of!(libc::tpacket_hdr_v1, num_pkts))?;
    let first = u32_at(block, HEADER + offset_of!(libc::tpacket_hdr_v1, offset_to_first_pkt))?;
    Some((count, first as usize))
}

/// A packet in a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Captured {
    /// Where its network header begins, and where it ends.
    pub packet: std::ops::Range<usize>,
    /// Its EtherType.
    pub protocol: u16,
    /// Who sent it: zeroes where the device has no such addresses.
    pub mac: [u8; 6],
    /// Whether it ends before the packet does.
    pub cut: bool,
    /// The VLAN whose tag it had.
    pub vlan: Option<NonZeroU16>,
    /// Bytes of each of several datagrams that it is, but for the last.
    pub segment: Option<NonZeroU16>,
    /// Where the next one begins.
    pub next: usize,
}

/// The packet whose header begins there; `None` where it cannot be one.
pub fn captured(block: &[u8], at: usize) -> Option<Captured> {
    use libc::{tpacket_hdr_variant1, tpacket3_hdr};
    let header = |field: usize| u32_at(block, at.checked_add(field)?);
    let place = |field: usize| Some(usize::from(u16_at(block, at.checked_add(field)?)?));
    let next = header(offset_of!(tpacket3_hdr, tp_next_offset))? as usize;
    let kept = header(offset_of!(tpacket3_hdr, tp_snaplen))? as usize;
    let whole = header(offset_of!(tpacket3_hdr, tp_len))? as usize;
    let status = header(offset_of!(tpacket3_hdr, tp_status))?;
    let variant = offset_of!(tpacket3_hdr, hv1);
    let tag = header(variant + offset_of!(tpacket_hdr_variant1, tp_vlan_tci))?;
    // Both from where its header begins; the bytes that are kept are counted from the first.
    let link = at.checked_add(place(offset_of!(tpacket3_hdr, tp_mac))?)?;
    let network = at.checked_add(place(offset_of!(tpacket3_hdr, tp_net))?)?;
    let end = link.checked_add(kept)?;
    if !(at < link && link <= network && network <= end && end <= block.len()) {
        return None;
    }
    // Behind the header, aligned as that is.
    let from = at + size_of::<tpacket3_hdr>().next_multiple_of(16);
    let protocol = u16_at(block, from + offset_of!(libc::sockaddr_ll, sll_protocol))?.to_be();
    let length = *block.get(from + offset_of!(libc::sockaddr_ll, sll_halen))?;
    let mac = from + offset_of!(libc::sockaddr_ll, sll_addr);
    let mac: [u8; 6] = block.get(mac..mac + 6)?.try_into().ok()?;
    let segments = block.get(link.checked_sub(SEGMENTS_BYTES)?..link)?;
    let of_datagrams = segments[SEGMENT_KIND] == OF_DATAGRAMS;
    let segment = u16_at(segments, SEGMENT_BYTES).filter(|_| of_datagrams);
    let vlan = (status & TAGGED != 0).then_some((tag & VLAN) as u16);
    Some(Captured {
        packet: network..end,
        protocol,
        mac: if length == 6 { mac } else { [0; 6] },
        cut: kept < whole,
        vlan: vlan.and_then(NonZeroU16::new),
        segment: segment.and_then(NonZeroU16::new),
        next: at.checked_add(next)?,
    })
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Where a packet that begins at 0 has what: as the kernel lays it out for Ethernet.
    const LINK: usize = 82;
    const NETWORK: usize = 96;

    fn put(block: &mut [u8], at: usize, bytes: &[u8]) {
        block[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// A packet of IPv4 as the kernel writes it, and what follows it.
    fn written(packet: &[u8], next: u32) -> Vec<u8> {
        let mut block = vec![0; NETWORK];
        block.extend_from_slice(packet);
        let kept = (block.len() - LINK) as u32;
        for (at, value) in [(0, next), (12, kept), (16, kept)] {
            put(&mut block, at, &value.to_ne_bytes());
        }
        put(&mut block, 24, &(LINK as u16).to_ne_bytes());
        put(&mut block, 26, &(NETWORK as u16).to_ne_bytes());
        put(&mut block, 48 + 2, &0x0800u16.to_be_bytes());
        block[48 + 11] = 6;
        put(&mut block, 48 + 12, &[2, 0, 0, 0, 0, 9]);
        block
    }

    #[test]
    fn a_packet_is_where_the_kernel_says() {
        let mut block = written(b"a packet", 200);
        let plain = captured(&block, 0).unwrap();
        assert_eq!(&block[plain.packet.clone()], b"a packet");
        assert_eq!((plain.protocol, plain.mac), (0x0800, [2, 0, 0, 0, 0, 9]));
        assert_eq!((plain.next, plain.cut, plain.vlan, plain.segment), (200, false, None, None));
        // A tag of VLAN 5 with a priority, and one of priority alone.
        put(&mut block, 20, &TAGGED.to_ne_bytes());
        put(&mut block, 32, &0x6005u32.to_ne_bytes());
        assert_eq!(captured(&block, 0).unwrap().vlan, NonZeroU16::new(5));
        put(&mut block, 32, &0x6000u32.to_ne_bytes());
        assert_eq!(captured(&block, 0).unwrap().vlan, None);
        // Several datagrams of 100 bytes; of TCP there are none.
        put(&mut block, LINK - 10 + 4, &100u16.to_ne_bytes());
        assert_eq!(captured(&block, 0).unwrap().segment, None);
        block[LINK - 10 + 1] = OF_DATAGRAMS;
        assert_eq!(captured(&block, 0).unwrap().segment, NonZeroU16::new(100));
        put(&mut block, 16, &2000u32.to_ne_bytes());
        assert!(captured(&block, 0).unwrap().cut);
        assert_eq!(captured(&block[..block.len() - 1], 0), None, "it would end outside");
    }

    proptest! {
        #[test]
        fn whatever_stands_in_a_block_a_packet_lies_within(
            mut block in prop::collection::vec(any::<u8>(), 0..200),
            at in 0usize..210,
            small in any::<bool>(),
        ) {
            if small && block.len() > at + 28 {
                // Fields that are small enough to be believed now and then.
                for field in [1, 2, 3, 13, 14, 15, 25, 27] {
                    block[at + field] = 0;
                }
            }
            if let Some(found) = captured(&block, at) {
                prop_assert!(found.packet.start <= found.packet.end && found.packet.end <= block.len());
            }
            let _ = packets(&block);
        }
    }
}
