//! Busy polling: a receive that would wait polls the device's queue for a while first.
//!
//! It needs a device whose driver has NAPI, and on the socket the number of its queue (SO_INCOMING_NAPI_ID),
//! which comes with the first datagram. Loopback has none, and there nothing is polled. Asking for
//! more than sysctl net.core.busy_read has needs CAP_NET_ADMIN. See socket(7), and napi.rst of the
//! kernel's documentation.

use super::{Native, set_option};
use crate::Unavailable;
use socket2::Socket;
use std::{fs, io, mem, os::fd::AsRawFd, time::Duration};

/// The most packets of one poll: what a driver takes at a time (NAPI_POLL_WEIGHT). Sockets have 8.
pub(crate) const BUDGET: u16 = 64;

/// A time as the kernel takes it, in µs.
pub(crate) fn microseconds(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}

/// Lets receives of this socket poll for so long.
pub(super) fn ask(socket: &Socket, time: Duration) -> Result<(), Unavailable> {
    let refused = |option: &str, e: &io::Error| {
        let unavailable =
            Unavailable::new("busy polling", format!("the socket option {option}: {e}"));
        match e.raw_os_error() {
            Some(libc::EPERM) => unavailable.advise(
                "it needs CAP_NET_ADMIN: run as root, give the program this capability (setcap), or \
                 leave it off",
            ),
            _ => unavailable.advise("it needs Linux 3.11 or later; leave it off"),
        }
    };
    let us = libc::c_int::try_from(time.as_micros()).unwrap_or(libc::c_int::MAX);
    // SAFETY: these options take an int.
    let set =
        |name, value: libc::c_int| unsafe { set_option(socket, libc::SOL_SOCKET, name, &value) };
    set(libc::SO_BUSY_POLL, us).map_err(|e| refused("SO_BUSY_POLL", &e))?;
    // These two came later (Linux 5.11): without them it polls all the same.
    for (option, name, value) in [
        ("SO_PREFER_BUSY_POLL", libc::SO_PREFER_BUSY_POLL, 1),
        ("SO_BUSY_POLL_BUDGET", libc::SO_BUSY_POLL_BUDGET, libc::c_int::from(BUDGET)),
    ] {
        match set(name, value) {
            Err(e) if e.raw_os_error() != Some(libc::ENOPROTOOPT) => {
                return Err(refused(option, &e));
            }
            _ => {}
        }
    }
    Ok(())
}

/// For how long poll(2), select(2) and, unless it was told otherwise, epoll(7) poll for: sysctl
/// net.core.busy_poll, in µs.
pub(crate) fn of_the_system_us() -> Option<u32> {
    fs::read_to_string("/proc/sys/net/core/busy_poll").ok()?.trim().parse().ok()
}

impl Native {
    /// For how long a receive polls, whether it is preferred to interrupts, and how many packets a
    /// poll takes: as obtained.
    pub(in crate::socket) fn busy_poll(&self) -> Option<String> {
        let us = self.option(libc::SO_BUSY_POLL)?;
        let preferred = self.option(libc::SO_PREFER_BUSY_POLL);
        let budget = self.option(libc::SO_BUSY_POLL_BUDGET);
        let unknown = || "not known to this kernel".to_string();
        Some(format!(
            "{us} µs; preferred to interrupts: {}; packets at a time: {}",
            preferred.map_or_else(unknown, |on| (on != 0).to_string()),
            budget.map_or_else(unknown, |budget| budget.to_string()),
        ))
    }

    /// The queue of a device that the latest datagram came by.
    pub(in crate::socket) fn napi_id(&self) -> Option<u32> {
        self.option(libc::SO_INCOMING_NAPI_ID).map(|id| id as u32).filter(|&id| id != 0)
    }

    fn option(&self, name: libc::c_int) -> Option<libc::c_int> {
        let mut value: libc::c_int = 0;
        let mut bytes = mem::size_of_val(&value) as libc::socklen_t;
        // SAFETY: these options are an int, which lives through the call, and `bytes` is its length.
        let result = unsafe {
            let to = (&raw mut value).cast();
            libc::getsockopt(self.socket.as_raw_fd(), libc::SOL_SOCKET, name, to, &mut bytes)
        };
        (result == 0).then_some(value)
    }
}
