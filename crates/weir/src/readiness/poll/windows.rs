//! WSAPoll, whose time-out counts milliseconds.

use crate::{readiness::wake_event::WakeEvent, socket::Native};
use socket2::Socket;
use std::{io, os::windows::io::AsRawSocket, time::Duration};
use windows_sys::Win32::Networking::WinSock::{
    POLLERR, POLLRDNORM, POLLWRNORM, SOCKET, SOCKET_ERROR, WSAGetLastError, WSAPOLLFD, WSAPoll,
};

/// The name of the provider.
pub const PROVIDER: &str = "WSAPoll";

/// One socket to wait for.
#[repr(transparent)]
pub struct Entry(WSAPOLLFD);

impl Entry {
    pub fn of_wake_event(wake_event: &WakeEvent) -> Self {
        Self(WSAPOLLFD { fd: wake_event.raw(), events: POLLRDNORM, revents: 0 })
    }

    pub fn of_socket(socket: &Native) -> Self {
        Self(WSAPOLLFD { fd: socket.raw(), events: POLLRDNORM, revents: 0 })
    }

    /// Of a socket that is told for nothing yet.
    pub fn of(socket: &Socket) -> Self {
        Self(WSAPOLLFD { fd: socket.as_raw_socket() as SOCKET, events: 0, revents: 0 })
    }

    pub fn is_of(&self, socket: &Socket) -> bool {
        self.0.fd == socket.as_raw_socket() as SOCKET
    }

    pub fn want(&mut self, receive: bool, send: bool) {
        self.0.events = if receive { POLLRDNORM } else { 0 } | if send { POLLWRNORM } else { 0 };
    }

    pub fn is_ready(&self) -> bool {
        self.0.revents != 0
    }

    pub fn has_error(&self) -> bool {
        self.0.revents & POLLERR != 0
    }
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Entry({}, {:#x})", self.0.fd, self.0.events)
    }
}

/// No socket can ask for it here.
pub fn busy_poll() -> String {
    "none".into()
}

/// Waits and returns how many entries are ready.
pub fn poll(entries: &mut [Entry], timeout: Option<Duration>) -> io::Result<usize> {
    // Rounded up: a wait is never short. A negative number means no time-out.
    let timeout_ms = timeout.map_or(-1, |timeout| {
        i32::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX)
    });
    for entry in &mut *entries {
        entry.0.revents = 0; // a call that fails writes none
    }
    // SAFETY: an Entry is a WSAPOLLFD, and the entries outlive the call.
    let ready = unsafe { WSAPoll(entries.as_mut_ptr().cast(), entries.len() as u32, timeout_ms) };
    if ready == SOCKET_ERROR {
        // SAFETY: reads a variable of this thread.
        return Err(io::Error::from_raw_os_error(unsafe { WSAGetLastError() }));
    }
    Ok(ready as usize)
}
