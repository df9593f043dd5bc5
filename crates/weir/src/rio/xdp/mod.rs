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
//! queues goes to the kernel. A frame that finds no slice is lost (`no_buffer` counts); one that
//! is longer than a slice, or damaged, is lost (`discarded` counts): segments that a sender on the
//! same machine left to a device (generic mode) are such frames. Fragments, options and VLANs go
//! to the kernel. Peers must have written first, since an address on the link is known from
//! frames alone. It needs privilege.
//!
//! Privilege: CAP_NET_RAW for the socket; CAP_BPF and CAP_NET_ADMIN for the program; and memory
//! that may be locked, or CAP_IPC_LOCK.
//!
//! Beside each address a plain socket is bound to it: it keeps the port, is told of what goes to
//! the kernel, and is never read.
//!
//! Origin: AF_XDP, Linux 4.18; need-wakeup, Linux 5.4; links for programs on devices, Linux 5.9.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
mod missing;

#[cfg(target_os = "linux")]
pub use linux::{XdpCompletions, XdpOpened, XdpRequests};

/// Registered I/O on AF_XDP.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Xdp {
    /// Receive the datagrams to every port of the address, not to the bound one alone. Those to
    /// other programs never reach them: answers of name servers, say.
    pub any_port: bool,
}

impl Xdp {
    /// The provider's name: which datagrams it takes makes a row of its own.
    pub fn name(&self) -> &'static str {
        if self.any_port { "xdp-any-port" } else { "xdp" }
    }
}
