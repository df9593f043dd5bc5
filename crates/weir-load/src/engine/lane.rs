//! The socket of a flow.

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use socket2::{Domain, Protocol, Socket, Type};

use crate::sys;

/// Whether a send waits for room in the socket's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blocking {
    /// At saturation: it waits, so what is offered is what the device takes. It waits at
    /// most 100 ms, so that a stop is noticed on a dead link, and is refused then.
    Yes,
    /// Paced: what is not taken at its time is refused.
    No,
}

/// The longest that a send waits for room.
const SEND_WAIT: Duration = Duration::from_millis(100);

/// One flow: a socket connected to the target from a port of its own.
#[derive(Debug)]
pub struct Lane {
    pub(super) socket: Socket,
    /// How long a send waits for room, if at all.
    waits: Option<Duration>,
    /// Where it sends to.
    pub target: SocketAddr,
    /// Its own address.
    pub local: SocketAddr,
    /// Its number in the run.
    pub flow: u16,
    /// Size of its send buffer in bytes, as obtained.
    pub send_buffer_bytes: usize,
}

impl Lane {
    /// Opens a flow to `target`.
    ///
    /// # Errors
    /// If there is no socket to be had (the limit on open files), no route, or no port.
    pub fn connect(target: SocketAddr, flow: u16, blocking: Blocking) -> io::Result<Self> {
        let any: SocketAddr = if target.is_ipv4() {
            (Ipv4Addr::UNSPECIFIED, 0).into()
        } else {
            (Ipv6Addr::UNSPECIFIED, 0).into()
        };
        let socket = Socket::new(Domain::for_address(target), Type::DGRAM, Some(Protocol::UDP))?;
        socket.bind(&any.into())?;
        socket.connect(&target.into())?;
        let waits = (blocking == Blocking::Yes).then_some(SEND_WAIT);
        match waits {
            Some(within) => sys::limit_waits(&socket, within)?,
            None => socket.set_nonblocking(true)?,
        }
        let local = socket.local_addr()?.as_socket().ok_or(io::ErrorKind::Unsupported)?;
        let send_buffer_bytes = socket.send_buffer_size()?;
        Ok(Self { socket, waits, target, local, flow, send_buffer_bytes })
    }

    /// Sends one datagram, or as one what the system cuts into several.
    #[inline]
    pub(super) fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        sys::send(&self.socket, bytes, self.waits)
    }
}
