//! Busy polling: a receive that would wait polls the device's queue for a while first.
//!
//! It needs a device whose driver has NAPI, and on the socket the number of its queue (SO_INCOMING_NAPI_ID),
//! which comes with the first datagram. Loopback has none, and there nothing is polled. By
//! socket(7) asking for more than sysctl net.core.busy_read has needs CAP_NET_ADMIN; newer kernels give it
//! to everybody (6.18 does). See also napi.rst of the kernel's documentation.

use super::{Native, set_option};
use crate::Unavailable;
use socket2::Socket;
use std::{fs, mem, os::fd::AsRawFd, time::Duration};

/// The most packets of one poll: what a driver takes at a time (NAPI_POLL_WEIGHT). Sockets have 8.
pub(crate) const BUDGET: u16 = 64;

/// A time as the kernel takes it, in µs.
pub(crate) fn microseconds(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}

/// Lets receives of this socket poll for so long. Says in words what came of it.
pub(super) fn ask(socket: &Socket, time: Duration) -> Result<String, Unavailable> {
    let us = libc::c_int::try_from(time.as_micros()).unwrap_or(libc::c_int::MAX);
    let set =
        // SAFETY: these options take an int.
        |name, value: libc::c_int| unsafe { set_option(socket, libc::SOL_SOCKET, name, &value) };
    set(libc::SO_BUSY_POLL, us).map_err(|e| {
        let unavailable =
            Unavailable::new("busy polling", format!("the socket option SO_BUSY_POLL: {e}"));
        match e.raw_os_error() {
            Some(libc::EPERM) => unavailable.advise(
                "this kernel wants CAP_NET_ADMIN for it: run as root, give the program this \
                 capability (setcap), or leave it off",
            ),
            _ => unavailable.advise("it needs Linux 3.11 or later; leave it off"),
        }
    })?;
    let mut told = format!("{us} µs (SO_BUSY_POLL)");
    // These two came later (Linux 5.11), and need CAP_NET_ADMIN: without them it polls all the same.
    for (option, name, value) in [
        ("SO_PREFER_BUSY_POLL", libc::SO_PREFER_BUSY_POLL, 1),
        ("SO_BUSY_POLL_BUDGET", libc::SO_BUSY_POLL_BUDGET, libc::c_int::from(BUDGET)),
    ] {
        told += &match set(name, value) {
            Ok(()) => format!(", {option} {value}"),
            Err(e) if e.raw_os_error() == Some(libc::EPERM) => {
                format!(", {option} refused without CAP_NET_ADMIN")
            }
            Err(e) => format!(", {option} refused: {e}"),
        };
    }
    Ok(told)
}

/// For how long poll(2), select(2) and, unless it was told otherwise, epoll(7) poll for: sysctl
/// net.core.busy_poll, in µs.
pub(crate) fn of_the_system_us() -> Option<u32> {
    fs::read_to_string("/proc/sys/net/core/busy_poll").ok()?.trim().parse().ok()
}

impl Native {
    /// What came of busy polling, in words, where it was asked for.
    pub(in crate::socket) fn busy_poll(&self) -> Option<String> {
        self.busy_poll.clone()
    }

    /// The queue of a device that the latest datagram came by.
    pub(in crate::socket) fn napi_id(&self) -> Option<u32> {
        let mut id: u32 = 0;
        let mut bytes = mem::size_of_val(&id) as libc::socklen_t;
        let name = libc::SO_INCOMING_NAPI_ID;
        // SAFETY: this option is 32 bits, which live through the call, and `bytes` is their length.
        let result = unsafe {
            let to = (&raw mut id).cast();
            libc::getsockopt(self.socket.as_raw_fd(), libc::SOL_SOCKET, name, to, &mut bytes)
        };
        (result == 0 && id != 0).then_some(id)
    }
}
