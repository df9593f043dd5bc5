//! Reading what the system counts for a socket, from outside of whoever uses it.

use super::native::Native;
use crate::counters::os::SocketUsage;
use std::{
    net::SocketAddr,
    sync::{Arc, OnceLock, Weak},
};

/// A socket that is open, and where its last figures go.
#[derive(Debug)]
pub(super) struct OpenSocket {
    pub(super) native: Native,
    last: Arc<OnceLock<Figures>>,
}

impl From<Native> for OpenSocket {
    fn from(native: Native) -> Self {
        Self { native, last: Arc::default() }
    }
}

impl Drop for OpenSocket {
    fn drop(&mut self) {
        let _ = self.last.set(Figures::of(&self.native));
    }
}

#[derive(Debug, Clone, Copy)]
struct Figures {
    usage: SocketUsage,
    napi_id: Option<u32>,
}

impl Figures {
    fn of(native: &Native) -> Self {
        Self { usage: native.usage(), napi_id: native.napi_id() }
    }
}

/// Reads the figures of a socket from any thread: while it is open, and the last ones afterwards. It
/// does not keep the socket open.
#[derive(Debug, Clone)]
pub struct Gauge {
    address: SocketAddr,
    open: Weak<OpenSocket>,
    last: Arc<OnceLock<Figures>>,
}

/// What the system counts for one socket of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketState {
    /// The address it is bound to; of a Unix socket that which [stands for its name](crate::stream::UnixAddress::of).
    pub address: SocketAddr,
    /// What was dropped at it since it was opened, what waits in it, and its room. With receive
    /// offload Linux counts a drop of several datagrams that came as one as one.
    pub usage: SocketUsage,
    /// The number of the device's queue that its latest datagram came by, as the system calls it: the
    /// queue that busy polling polls. `None` where none came by such a queue: on loopback none does.
    pub napi_id: Option<u32>,
}

impl Gauge {
    pub(super) fn new(address: SocketAddr, open: &Arc<OpenSocket>) -> Self {
        Self { address, open: Arc::downgrade(open), last: Arc::clone(&open.last) }
    }

    /// Reads it, with two system calls.
    pub fn read(&self) -> SocketState {
        let figures = match self.open.upgrade() {
            Some(open) => Some(Figures::of(&open.native)),
            None => self.last.get().copied(),
        };
        SocketState {
            address: self.address,
            usage: figures.map(|figures| figures.usage).unwrap_or_default(),
            napi_id: figures.and_then(|figures| figures.napi_id),
        }
    }
}
