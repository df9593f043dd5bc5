//! A descriptor that epoll(7) or poll(2) can watch.

use crate::{ring::Ring, socket::DatagramSocket};
use std::{
    os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
    sync::Arc,
};

/// Something that tells by a descriptor that a completion queue has something, or may send on. It keeps that descriptor open:
/// take it out of the reactor, and drop it, before or soon after the queue is stopped.
#[derive(Debug, Clone)]
pub struct Watched(Source);

#[derive(Debug, Clone)]
enum Source {
    Socket(DatagramSocket),
    /// A ring is readable while its completion queue is not empty.
    Ring(Arc<Ring>),
}

impl Watched {
    /// What is watched of sockets: each by itself.
    pub(crate) fn all_of<'a>(sockets: impl Iterator<Item = &'a DatagramSocket>) -> Vec<Self> {
        sockets.map(|socket| Self(Source::Socket(socket.clone()))).collect()
    }

    pub(crate) fn ring(ring: &Arc<Ring>) -> Self {
        Self(Source::Ring(Arc::clone(ring)))
    }
}

impl AsFd for Watched {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as its socket or its ring lives, which this value keeps.
        unsafe { BorrowedFd::borrow_raw(self.as_raw_fd()) }
    }
}

impl AsRawFd for Watched {
    fn as_raw_fd(&self) -> RawFd {
        match &self.0 {
            Source::Socket(socket) => socket.native().fd(),
            Source::Ring(ring) => ring.fd(),
        }
    }
}
