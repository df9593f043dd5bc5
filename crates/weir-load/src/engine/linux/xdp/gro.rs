//! Turning GRO on, with which a veth has a queue that frames can be put into.
//!
//! Origin: linux/ethtool.h, netdevice(7).

use std::{io, net::UdpSocket, os::fd::AsRawFd as _};

/// `struct ethtool_value`.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// Turns it on for a device of the calling thread's network namespace.
///
/// # Errors
/// What the kernel answered.
pub fn receive_together(device: &str) -> io::Result<()> {
    const SET_GRO: u32 = 0x2c; // ETHTOOL_SGRO
    let any = UdpSocket::bind("0.0.0.0:0")?;
    let mut value = Value { command: SET_GRO, data: 1 };
    // SAFETY: all zeroes is a valid request.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The name ends with a zero, however long it is.
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name.iter_mut().take(room).zip(device.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: SIOCETHTOOL takes such a request; what it points at is what this command reads, and
    // outlives the call.
    let result = unsafe { libc::ioctl(any.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
