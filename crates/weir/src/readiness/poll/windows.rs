//! WSAPoll, whose time-out counts milliseconds.
//!
//! It tells that a peer has ended (POLLHUP) whatever is asked for. So one that is told for nothing is left out,
//! and one that waits for room only, while its peer has ended, cannot be waited for at all: WSAPoll would return
//! at once, again and again. It is left out of every other call, which lasts a millisecond at most.

use crate::{
    readiness::wake_event::WakeEvent,
    socket::{Native, native::last_error},
};
use std::{io, os::windows::io::AsRawSocket, time::Duration};
use windows_sys::Win32::Networking::WinSock::{
    POLLERR, POLLHUP, POLLNVAL, POLLRDNORM, POLLWRNORM, SOCKET, SOCKET_ERROR, WSAENOTSOCK,
    WSAPOLLFD, WSAPoll,
};

/// The name of the provider.
pub const PROVIDER: &str = "WSAPoll";

/// One socket to wait for. Where it is left out the bits of its number are turned round: WSAPoll ignores numbers
/// below zero, and those of sockets are not.
#[repr(transparent)]
pub struct Entry(WSAPOLLFD);

impl Entry {
    pub fn of_wake_event(wake_event: &WakeEvent) -> Self {
        let mut entry = Self::of_raw(wake_event.raw());
        entry.want(true, false);
        entry
    }

    pub fn of_socket(socket: &Native) -> Self {
        let mut entry = Self::of_raw(socket.raw());
        entry.want(true, false);
        entry
    }

    /// Of a socket that is told for nothing yet.
    pub fn of(socket: &impl AsRawSocket) -> Self {
        Self::of_raw(socket.as_raw_socket() as SOCKET)
    }

    pub fn of_raw(socket: SOCKET) -> Self {
        Self(WSAPOLLFD { fd: !socket, events: 0, revents: 0 })
    }

    pub fn is_of(&self, socket: &impl AsRawSocket) -> bool {
        let its = if self.is_left_out() { !self.0.fd } else { self.0.fd };
        its == socket.as_raw_socket() as SOCKET
    }

    pub fn want(&mut self, receive: bool, send: bool) {
        self.0.events = if receive { POLLRDNORM } else { 0 } | if send { POLLWRNORM } else { 0 };
        if self.is_left_out() != (self.0.events == 0) {
            self.turn_round();
        }
    }

    pub fn is_ready(&self) -> bool {
        self.0.revents != 0
    }

    pub fn has_error(&self) -> bool {
        self.0.revents & POLLERR != 0
    }

    fn is_left_out(&self) -> bool {
        (self.0.fd as isize) < 0
    }

    fn turn_round(&mut self) {
        self.0.fd = !self.0.fd;
    }

    /// Whether the answer is an end that was not asked for.
    fn is_unasked(&self) -> bool {
        self.0.revents == POLLHUP && self.0.events & POLLRDNORM == 0
    }
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Entry({}, {:#x})", self.0.fd as isize, self.0.events)
    }
}

/// No socket can ask for it here.
pub fn busy_poll() -> String {
    "none".into()
}

/// Waits and returns how many entries are ready; none, also before the time is over.
pub fn poll(entries: &mut [Entry], timeout: Option<Duration>) -> io::Result<usize> {
    // Rounded up: a wait is never short. A negative number means no time-out.
    let mut timeout_ms = timeout.map_or(-1, |timeout| {
        i32::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX)
    });
    for entry in &mut *entries {
        entry.0.revents = 0; // a call that fails writes none
        if entry.is_left_out() && entry.0.events != 0 && timeout_ms != 0 {
            timeout_ms = 1;
        }
    }
    // SAFETY: an Entry is a WSAPOLLFD, and the entries outlive the call.
    let ready = unsafe { WSAPoll(entries.as_mut_ptr().cast(), entries.len() as u32, timeout_ms) };
    match ready {
        SOCKET_ERROR if last_error() == WSAENOTSOCK => poll_each(entries)?,
        SOCKET_ERROR => return Err(io::Error::from_raw_os_error(last_error())),
        _ => {}
    }
    // Counted here: Wine does not count those that it answers with POLLNVAL.
    let mut ready = 0;
    for entry in entries {
        if entry.is_left_out() {
            entry.0.revents = 0; // POLLNVAL under Wine
            if entry.0.events != 0 {
                entry.turn_round();
            }
        } else if entry.is_unasked() {
            entry.0.revents = 0;
            entry.turn_round();
        }
        ready += usize::from(entry.is_ready());
    }
    Ok(ready)
}

/// Looks at each socket by itself: another thread has closed one of them (a listener that threads share, at a stop), and
/// then Wine fails the whole call. Windows and Linux say so of that socket alone, as is done here.
#[cold]
fn poll_each(entries: &mut [Entry]) -> io::Result<()> {
    for entry in entries.iter_mut().filter(|entry| !entry.is_left_out()) {
        // SAFETY: an Entry is a WSAPOLLFD, it is one, and it outlives the call.
        let ready = unsafe { WSAPoll(std::ptr::from_mut(entry).cast(), 1, 0) };
        if ready == SOCKET_ERROR {
            if last_error() != WSAENOTSOCK {
                return Err(io::Error::from_raw_os_error(last_error()));
            }
            entry.0.revents = POLLNVAL;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_that_was_closed_is_told_and_the_others_are_still_looked_at() {
        let sockets = [(); 2].map(|()| std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
        let mut entries = sockets.each_ref().map(Entry::of);
        entries.iter_mut().for_each(|entry| entry.want(true, false));
        let [closed, open] = sockets;
        drop(closed);
        let polled = |entries: &mut [Entry]| poll(entries, Some(Duration::ZERO)).unwrap();
        assert_eq!(
            (polled(&mut entries), entries[0].is_ready(), entries[1].is_ready()),
            (1, true, false)
        );
        open.send_to(b"!", open.local_addr().unwrap()).unwrap();
        let by = std::time::Instant::now() + Duration::from_secs(60);
        while polled(&mut entries) < 2 {
            assert!(std::time::Instant::now() < by, "what came is never told");
        }
        assert!(entries[0].is_ready() && entries[1].is_ready());
    }
}
