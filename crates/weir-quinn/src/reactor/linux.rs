//! Readiness by tokio's reactor.

#![allow(unsafe_code, reason = "a descriptor is handed to the reactor")]

use std::{
    io,
    task::{Context, Poll},
};
use tokio::{
    io::{Interest, unix::AsyncFd},
    runtime::Handle,
};
use weir::{Error, Unavailable, rio::Watched};

/// Whether there is one.
pub(crate) const EXISTS: bool = true;

/// What the reactor watches: one descriptor.
#[derive(Debug)]
pub(crate) struct Reactor(AsyncFd<Watched>);

impl Reactor {
    /// Has tokio's reactor watch a queue of one socket.
    ///
    /// # Panics
    /// As [`AsyncFd`]: if the runtime's I/O is not enabled.
    pub(crate) fn watch(watched: Vec<Watched>) -> Result<Self, Error> {
        let unavailable = |reason: &str| {
            Unavailable::new("telling by tokio's reactor", reason).advise("use --tell thread")
        };
        if Handle::try_current().is_err() {
            return Err(unavailable("there is no runtime of tokio here").into());
        }
        let mut watched = watched.into_iter();
        let (Some(one), None) = (watched.next(), watched.next()) else {
            return Err(unavailable("this provider has no descriptor to be watched").into());
        };
        let interest = Interest::READABLE | Interest::WRITABLE;
        // SAFETY: what is watched names one descriptor, and keeps it open as long as it lives.
        let fd = unsafe { AsyncFd::register_with_interest(one, interest) };
        fd.map(Self).map_err(|e| Error::io("watching a queue by tokio's reactor", e.into()))
    }

    /// Watches for room to send from now on, and for nothing else: a socket by which others receive.
    pub(crate) fn for_room(self) -> io::Result<Self> {
        // SAFETY: as above.
        let fd =
            unsafe { AsyncFd::register_with_interest(self.0.into_inner(), Interest::WRITABLE) };
        Ok(Self(fd?))
    }

    /// Looks whether there may be something to dequeue, and with `blocked` also whether a send that waits may go on.
    /// Otherwise the task is woken when there is.
    pub(crate) fn poll(&self, cx: &mut Context<'_>, blocked: bool) -> Poll<io::Result<Ready<'_>>> {
        let write = if blocked { self.0.poll_write_ready(cx)? } else { Poll::Pending };
        let read = self.0.poll_read_ready(cx)?;
        if read.is_pending() && write.is_pending() {
            return Poll::Pending;
        }
        let taken = |guard: Poll<_>| match guard {
            Poll::Ready(guard) => Some(guard),
            Poll::Pending => None,
        };
        Poll::Ready(Ok(Ready { guards: [taken(read), taken(write)] }))
    }
}

/// That there may be something. What comes after it was looked is not forgotten by [`clear`](Self::clear).
pub(crate) struct Ready<'a> {
    guards: [Option<tokio::io::unix::AsyncFdReadyGuard<'a, Watched>>; 2],
}

impl Ready<'_> {
    /// There is nothing more.
    pub(crate) fn clear(self) {
        for mut guard in self.guards.into_iter().flatten() {
            guard.clear_ready();
        }
    }
}
