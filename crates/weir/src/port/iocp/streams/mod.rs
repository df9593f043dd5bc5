//! The completion port of Windows, for streams: as for datagrams ([`iocp`](super)), with other operations.
//!
//! *Accepting* is AcceptEx, which is given the socket that becomes the connection, and does not wait for first data: so
//! a client that connects and is silent holds no accept. The connection is completed by SO_UPDATE_ACCEPT_CONTEXT.
//! The functions are asked of each listening socket, since another provider of Winsock may be behind it.
//!
//! *The order of receives.* A socket fills its receives in the order in which they were posted. So a receive has its
//! number and is posted under one lock, that of its connection's turn. They are taken in any order.
//!
//! *Waiting without memory* is a receive of no bytes.
//!
//! *Closing.* All that is outstanding on the socket is cancelled by one call, behind whatever another thread is just
//! starting, which is the connection's turn once more. What was finished before that comes back as what it is. The
//! connection is over with its last packet.
//!
//! *How much has come in all* the system tells (SIO_TCP_INFO, Windows 10 1703). Under Wine, which does not, it is counted
//! here: what receives have brought, taken or not, and what lies in the socket. On Windows that might be too little,
//! since a receive may be known as over only when its packet is taken. So where the call fails there it is not known:
//! without it there is no such port, and where it fails for one connection, that one is reset at a stop.
//!
//! *Using sockets again* ([`Shape::reuse_sockets`]). Where the peer's end was received, nothing failed, and the program
//! lets go of the connection, its socket is disconnected (DisconnectEx, TF_REUSE_SOCKET), and serves an accept of the
//! same listening socket. It stays associated, under the key that it had. No more are on their way than accepts may be
//! outstanding; further ones, and those of which the system does not make new ones, are closed. Where this end was the
//! first to end, the disconnecting lasts as long as the connection's TIME_WAIT, and holds its place.
//!
//! What it costs: a call for each operation; two locks around a slot's coming, one around its going. A socket is made
//! for each accept, and two more calls make a connection of it. One that is used again is not made and not associated;
//! instead it is asked whether it is to be reset, and disconnected.
//!
//! How it fails: see [`iocp`](super). A socket belongs to one port for ever, so one that is associated with another is
//! refused.
//!
//! Origin: Windows NT 4.0 (AcceptEx); DisconnectEx, Windows XP; CancelIoEx, Windows Vista.

mod operations;
#[cfg(test)]
mod tests;
mod worker;

pub use worker::IocpStreamsWorker;

use super::{check, granted, inner::Inner, place::Place};
use crate::{
    Error, Unavailable,
    counters::Counters,
    machine,
    port::{
        Key, Packet, Refused, Shape, Stopped, concurrency,
        streams::{ListenerId, Needs, Port, Provider, StreamId, proof},
    },
    socket::native::last_error,
    stream::{Listener, Stream},
    wake::Waker,
};
use operations::{Listening, Operations};
use std::{io, os::windows::io::AsRawSocket, ptr, sync::Arc, time::Instant};
use windows_sys::Win32::Networking::WinSock::{SIO_TCP_INFO, SOCKET, TCP_INFO_v0, WSAIoctl};

/// The provider, with what can be chosen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IocpStreams {
    /// The kernel has at once what is started, however much. Of this it heeds [`Shape::skip_ready`] and
    /// [`Shape::reuse_sockets`].
    pub shape: Shape,
}

const WHAT: &str = "provider iocp of the completion port for streams";

impl Provider for IocpStreams {
    const NAME: &'static str = "iocp";
    type Port = IocpStreamsPort;

    fn availability(&self) -> Result<(), Unavailable> {
        proof::prove(self, WHAT, None)
    }

    fn open(&self, needs: &Needs) -> Result<IocpStreamsPort, Error> {
        check(&[
            ("threads", needs.threads, 1),
            ("listeners", needs.listeners, 0),
            ("streams", needs.streams, 1),
            ("accepts", needs.accepts, 0),
            ("receives", needs.receives, 0),
            ("sends", needs.sends, 0),
            ("packets", needs.packets, 0),
        ])?;
        let concurrency = concurrency(needs.concurrency);
        let Shape { skip_ready: skip, reuse_sockets: reuse, .. } = self.shape;
        let inner = Inner::open(Operations::new(needs, reuse), needs.packets, concurrency)?;
        Ok(IocpStreamsPort { inner, concurrency, skip, reuse, threads: needs.threads })
    }
}

/// A completion port of the system, for streams.
pub struct IocpStreamsPort {
    /// Shared with those who may close the port, or post to it.
    inner: Arc<Inner<Operations>>,
    concurrency: u32,
    skip: bool,
    reuse: bool,
    threads: u32,
}

impl Port for IocpStreamsPort {
    type Worker<'a> = IocpStreamsWorker<'a>;

    fn listen(&self, listener: Listener, key: Key) -> Result<ListenerId, Error> {
        let listening = Listening::new(listener.clone(), key, self.reuse)?;
        self.inner.with(|state| {
            let id = state.operations.next_listener()?;
            // One that listens no longer needs no port.
            let associate = |socket: &socket2::Socket| {
                self.inner.queue.associate(socket.as_raw_socket() as SOCKET, self.skip)
            };
            let what = "associating a listening socket with the completion port";
            let associated = listener.native().with_socket(associate).unwrap_or(Ok(()));
            associated.map_err(|e| Error::io(what, e))?;
            state.operations.listen(listening);
            Ok(id)
        })
    }

    fn associate(&self, stream: Stream, key: Key) -> Result<StreamId, Refused> {
        if self.inner.is_closed() {
            return Err(Refused::Closed);
        }
        self.inner.with(|state| {
            if state.operations.streams_are_full() {
                return Err(Refused::Full);
            }
            if !state.operations.is_associated(&stream) {
                let socket = stream.native().raw();
                let associated = self.inner.queue.associate(socket, self.skip);
                associated.map_err(|e| {
                    e.raw_os_error().map_or(Refused::MustHavePackets, Refused::Unassociated)
                })?;
            }
            state.operations.associate(stream, key)
        })
    }

    fn post(&self, packet: Packet, counters: &Counters) -> Result<(), (Packet, Refused)> {
        self.inner.post(packet, counters)
    }

    fn poster(&self, packet: Packet) -> Waker {
        let inner = Arc::clone(&self.inner);
        Waker::new(move || {
            let _ = inner.post(packet, &Counters::default());
        })
    }

    fn worker(&self) -> Result<IocpStreamsWorker<'_>, Error> {
        Place::at(&self.inner, self.threads, self.skip).map(IocpStreamsWorker)
    }

    fn received_in_all(&self, stream: StreamId, counters: &Counters) -> io::Result<u64> {
        counters.kernel_entries.one();
        // Also of one that is about to be over.
        let its = self.inner.with(|state| state.operations.stream(stream))?;
        received_in_all(its.native().raw()).or_else(|e| {
            if !machine::is_wine() {
                return Err(e);
            }
            counters.kernel_entries.one();
            self.inner.with(|state| state.operations.counted_in_all(stream))
        })
    }

    fn close(&self) {
        self.inner.close();
    }

    fn closer(&self) -> Waker {
        self.inner.closer()
    }

    fn stop(self, by: Instant) -> Stopped {
        self.inner.stop(by)
    }

    fn granted(&self) -> Vec<(&'static str, String)> {
        let mut granted = granted(self.concurrency, self.skip);
        granted.push(("reuse-sockets-obtained", self.reuse.to_string()));
        granted
    }
}

impl Drop for IocpStreamsPort {
    fn drop(&mut self) {
        // Without a stop: what the kernel holds is leaked and counted.
        self.inner.give_up();
    }
}

/// Bytes that the system has received and acknowledged on a connection, those included that lie in the socket.
///
/// What is documented is "the total number of bytes received", and no more. This assumes that each byte of the stream
/// is counted once and nothing else is: no header, neither end of the connection, nothing that came twice or out of
/// order. A test holds it against what was read, on Windows: Wine has no such call.
fn received_in_all(socket: SOCKET) -> io::Result<u64> {
    let version: u32 = 0;
    let mut info = TCP_INFO_v0::default();
    let (asked, size) = (size_of_val(&version) as u32, size_of_val(&info) as u32);
    let mut written = 0;
    // SAFETY: the socket is open; the call reads a version and writes what belongs to that, both of which outlive it.
    let result = unsafe {
        let (version, info) = ((&raw const version).cast(), (&raw mut info).cast());
        let no_overlapped = ptr::null_mut();
        WSAIoctl(
            socket,
            SIO_TCP_INFO,
            version,
            asked,
            info,
            size,
            &mut written,
            no_overlapped,
            None,
        )
    };
    match result {
        0 => Ok(info.BytesIn),
        _ => Err(io::Error::from_raw_os_error(last_error())),
    }
}
