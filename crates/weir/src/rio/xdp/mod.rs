//! Registered I/O on AF_XDP: frames between a queue of a network device and the program's own
//! memory, past the network stack of the kernel.
//!
//! A program on the device gives the datagrams that are ours to the socket: the device (or the
//! kernel, where it has to copy) puts each frame into a slice of the *fill ring* and says so in
//! the *receive ring*. Both are shared memory, so posting is a store and dequeuing is a load. What
//! the network stack would do is done here: headers are checked, checksums verified, and replies
//! get headers of their own, to the device that the datagram came from.
//!
//! Cost: for each datagram a parser's work and its checksum, and no call into the kernel but to
//! wait and to send (one for each batch). The kernel's own work runs where the device is served,
//! not in the thread that dequeues.
//!
//! How it fails: one socket sees one queue of one device; what the device spreads over other
//! queues goes to the kernel (`passed_unserved` counts). A frame that finds no slice is lost
//! (`no_buffer` counts), one that is longer than a slice too (`too_long`), and one that is damaged
//! (`discarded`). Fragments, options and VLANs go to the kernel (`passed_fragments`,
//! `passed_foreign`). It needs privilege.
//!
//! An address on the link is known from frames alone, so only a reply goes as a frame. A datagram to anybody else goes by
//! the kernel, from a plain socket on the same address and port.
//!
//! Where the kernel copies frames, each that is sent becomes a packet, which crosses the network stack of whoever receives
//! it by itself. So replies in a row to one peer leave as one by that plain socket (UDP_SEGMENT), unless each is to leave by
//! itself ([`SocketOptions::send_offload`](crate::socket::SocketOptions::send_offload)).
//!
//! Segmentation offload: a sender on the same machine may leave it to a device to cut several
//! datagrams apart. A driver that runs the program itself (veth does) makes the sender cut them
//! first. In generic mode they come as one frame, which looks like one long datagram: it is `too_long`,
//! or, since nothing else tells it from a true one, `discarded` for its checksum, which was left to
//! the device too. Senders on the machine must then do both themselves: `ethtool -K DEVICE tx off`.
//!
//! Privilege: CAP_NET_RAW for the socket; CAP_BPF and CAP_NET_ADMIN for the program; and memory
//! that may be locked, or CAP_IPC_LOCK. Once the queues are started none of it is needed any more (Linux
//! 5.19): [`privilege`](crate::privilege) gives it up.
//!
//! Beside each address a plain socket is bound to it: it keeps the port, is told of what goes to
//! the kernel, sends to those who have not written, and is never read.
//!
//! Origin: AF_XDP, Linux 4.18; need-wakeup, Linux 5.4; links for programs on devices, Linux 5.9.

#[cfg(all(target_os = "linux", feature = "xdp"))]
mod linux;

#[cfg(all(target_os = "linux", feature = "xdp"))]
pub use linux::{XdpCompletions, XdpOpened, XdpRequests};
#[cfg(all(target_os = "linux", feature = "xdp"))]
pub(super) use linux::{device_named, hold, is_fragment, parse_packet, place_in};

/// How frames get from the device into slices, and who serves the device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mode {
    /// The best that the device has: the program in its driver, and without copying where the driver
    /// can. The kernel serves the device when it interrupts.
    #[default]
    Best,
    /// The same, but whoever finds nothing to dequeue serves the device himself
    /// (SO_PREFER_BUSY_POLL, Linux 5.11), each time with a call.
    BusyPolled,
    /// Copied by the kernel, also where the driver need not.
    Copied,
    /// The program outside the driver, and copied: what every device can.
    Generic,
}

/// Registered I/O on AF_XDP.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Xdp {
    /// How frames get into slices.
    pub mode: Mode,
    /// Receive the datagrams to every port of the address, not to the bound one alone. Those to
    /// other programs never reach them: answers of name servers, say.
    pub any_port: bool,
}

impl Xdp {
    /// For the bound ports, in this mode.
    pub fn of(mode: Mode) -> Self {
        Self { mode, ..Self::default() }
    }

    /// The provider's name: which datagrams it takes, and how, makes a row of its own.
    pub fn name(&self) -> &'static str {
        match (self.any_port, self.mode) {
            (true, _) => "xdp-any-port",
            (false, Mode::Best) => "xdp",
            (false, Mode::BusyPolled) => "xdp-busy-polled",
            (false, Mode::Copied) => "xdp-copied",
            (false, Mode::Generic) => "xdp-generic",
        }
    }
}
