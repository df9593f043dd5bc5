//! Registered I/O on AF_PACKET: copies of the datagrams to every port of an address, out of a ring that the kernel fills.
//!
//! It is for where AF_XDP is not allowed, and for devices that have no program: it needs CAP_NET_RAW alone. The kernel puts
//! each packet into a block of the ring (TPACKET_V3), and hands over a block when it is full or some milliseconds old: so
//! waiting is for a block, not for a datagram, and a dequeue is no call. A filter in the kernel lets through what is for
//! us; headers and checksums are looked at by the same code as AF_XDP's.
//!
//! What it sees are copies: *the kernel handles the same datagrams*. It gives them to the sockets that have their ports,
//! and answers those that no socket has with an ICMP error (port unreachable). So it takes nothing from other programs,
//! and is no way to answer: it is refused to servers that send.
//!
//! Cost: a copy by the kernel into the ring, one here into a slice, and what the kernel does with every datagram besides.
//!
//! How it fails: what finds no room in the ring is lost to us alone (`no_buffer` counts). Parts of datagrams are counted
//! (`passed_fragments`) and left to the kernel, as are packets with the tag of a VLAN (`passed_foreign`), which are for the
//! VLAN's own device. Damaged packets are `discarded`. Several datagrams that the system left to a device to cut apart, or
//! joined when they came, are cut apart here.
//!
//! Origin: packet(7); Documentation/networking/packet_mmap.rst of the kernel; TPACKET_V3, Linux 3.2; segments told by
//! PACKET_VNET_HDR on a ring, Linux 4.6.

#[cfg(all(target_os = "linux", feature = "xdp"))]
mod linux;

#[cfg(all(target_os = "linux", feature = "xdp"))]
pub use linux::{PacketCompletions, PacketOpened, PacketRequests};

/// Registered I/O on AF_PACKET, of the datagrams to every port of an address.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Packet;

impl Packet {
    /// The provider's name.
    pub fn name(&self) -> &'static str {
        "packet-any-port"
    }
}
