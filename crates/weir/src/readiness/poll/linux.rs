//! ppoll(2): poll with a time-out in nanoseconds.

use crate::{
    readiness::wake_event::WakeEvent,
    socket::{Native, native},
};
use std::{io, os::fd::AsRawFd, time::Duration};

/// The name of the provider.
pub const PROVIDER: &str = "poll";

/// One descriptor to wait for.
#[derive(Debug)]
#[repr(transparent)]
pub struct Entry(libc::pollfd);

impl Entry {
    pub fn of_wake_event(wake_event: &WakeEvent) -> Self {
        Self(libc::pollfd { fd: wake_event.fd(), events: libc::POLLIN, revents: 0 })
    }

    pub fn of_socket(socket: &Native) -> Self {
        Self(libc::pollfd { fd: socket.fd(), events: libc::POLLIN, revents: 0 })
    }

    /// Of a socket that is told for nothing yet.
    pub fn of(socket: &impl AsRawFd) -> Self {
        Self(libc::pollfd { fd: socket.as_raw_fd(), events: 0, revents: 0 })
    }

    pub fn is_of(&self, socket: &impl AsRawFd) -> bool {
        self.0.fd == socket.as_raw_fd()
    }

    pub fn want(&mut self, receive: bool, send: bool) {
        self.0.events =
            if receive { libc::POLLIN } else { 0 } | if send { libc::POLLOUT } else { 0 };
    }

    pub fn is_ready(&self) -> bool {
        self.0.revents != 0
    }

    pub fn has_error(&self) -> bool {
        self.0.revents & libc::POLLERR != 0
    }
}

/// For how long poll(2) polls queues of devices, in words.
pub fn busy_poll() -> String {
    let us = native::of_the_system_us().map_or("unknown".into(), |us| us.to_string());
    format!("poll polls for {us} µs (sysctl net.core.busy_poll), a receive as its socket says")
}

/// Waits and returns how many entries are ready.
pub fn poll(entries: &mut [Entry], timeout: Option<Duration>) -> io::Result<usize> {
    let timeout = timeout.map(|timeout| libc::timespec {
        tv_sec: timeout.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: an Entry is a pollfd; entries and time-out outlive the call; no signal mask.
    let ready = unsafe {
        libc::ppoll(
            entries.as_mut_ptr().cast(),
            entries.len() as libc::nfds_t,
            timeout,
            std::ptr::null(),
        )
    };
    if ready >= 0 {
        return Ok(ready as usize);
    }
    let error = io::Error::last_os_error();
    for entry in &mut *entries {
        entry.0.revents = 0; // a call that fails need not write any
    }
    Err(error)
}
