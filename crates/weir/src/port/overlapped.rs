//! Overlapped calls of Winsock 2 on streams, for the providers that start them: receives, sends, and accepts (AcceptEx)
//! with what an accepted connection needs before it is one. How their end is told is the provider's.

use crate::{
    port::streams::Outcome,
    socket::native::{control_call, last_error},
    stream::{self, Accepted, Listener, native},
};
use socket2::{Domain, Protocol, SockAddr, SockAddrStorage, Socket, Type};
use std::{
    io,
    net::SocketAddr,
    os::windows::io::AsRawSocket,
    ptr::{self, NonNull},
    sync::atomic::{AtomicUsize, Ordering::Acquire},
};
use windows_sys::Win32::{
    Foundation::STATUS_PENDING,
    Networking::WinSock::{
        LPFN_ACCEPTEX, LPFN_DISCONNECTEX, LPFN_GETACCEPTEXSOCKADDRS,
        SIO_GET_EXTENSION_FUNCTION_POINTER, SO_UPDATE_ACCEPT_CONTEXT, SOCKADDR, SOCKADDR_STORAGE,
        SOCKET, SOL_SOCKET, TF_REUSE_SOCKET, WSA_IO_PENDING, WSA_OPERATION_ABORTED, WSABUF,
        WSAECONNABORTED, WSAEOPNOTSUPP, WSAEWOULDBLOCK, WSAID_ACCEPTEX, WSAID_DISCONNECTEX,
        WSAID_GETACCEPTEXSOCKADDRS, WSARecv, WSASend, setsockopt,
    },
    System::IO::OVERLAPPED,
};

/// Calls that make a connection of what an accept brought.
pub(super) const CALLS_OF_ACCEPTED: u64 = 1 + native::ADOPTED;

/// How a call began: the operation is over already, or is under way; both tell of its end. An error is Winsock's code,
/// and nothing was started.
pub(super) type Begun = Result<Progress, i32>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    Over,
    UnderWay,
}

/// What the system says of an operation (HasOverlappedIoCompleted): STATUS_PENDING until it is over, and whoever sees
/// that it is over sees what it has written.
///
/// # Safety
/// The operation is in place.
#[inline]
pub(super) unsafe fn status(operation: *const OVERLAPPED) -> i32 {
    // SAFETY: the caller's word. The system writes it as a whole, as others do here.
    let status = unsafe { AtomicUsize::from_ptr((&raw const (*operation).Internal).cast_mut()) };
    status.load(Acquire) as i32
}

/// Bytes that an operation has brought, if it is over and well.
///
/// # Safety
/// As for [`status`].
#[inline]
pub(super) unsafe fn brought(operation: *const OVERLAPPED) -> u64 {
    // SAFETY: the caller's word, and what is over the system writes to no more.
    unsafe {
        match status(operation) {
            STATUS_PENDING | i32::MIN..0 => 0,
            _ => (*operation).InternalHigh as u64,
        }
    }
}

/// Starts a receive of up to so many bytes, of none for a wait.
///
/// # Safety
/// Until the operation is over, buffer, flags and operation stay in place and are nobody else's, and the operation is
/// all zeroes but for its event.
#[inline]
pub(super) unsafe fn receive(
    socket: SOCKET,
    (buffer, len): (*mut u8, usize),
    flags: *mut u32,
    operation: *mut OVERLAPPED,
) -> Begun {
    let vector = WSABUF { len: u32::try_from(len).unwrap_or(u32::MAX), buf: buffer };
    // SAFETY: the vector is copied; the caller vouches for what is not.
    let result = unsafe {
        flags.write(0);
        WSARecv(socket, &vector, 1, ptr::null_mut(), flags, operation, None)
    };
    begun(result == 0)
}

/// Starts a send.
///
/// # Safety
/// Until the operation is over, bytes and operation stay in place and nobody else writes to them, and the operation is
/// all zeroes but for its event.
#[inline]
pub(super) unsafe fn send(
    socket: SOCKET,
    (bytes, len): (*const u8, usize),
    operation: *mut OVERLAPPED,
) -> Begun {
    let vector = WSABUF { len: u32::try_from(len).unwrap_or(u32::MAX), buf: bytes.cast_mut() };
    // SAFETY: the vector is copied; the caller vouches for what is not, and a send only reads its bytes.
    let result = unsafe { WSASend(socket, &vector, 1, ptr::null_mut(), 0, operation, None) };
    begun(result == 0)
}

fn begun(over: bool) -> Begun {
    if over {
        return Ok(Progress::Over);
    }
    match last_error() {
        WSA_IO_PENDING => Ok(Progress::UnderWay),
        code => Err(code),
    }
}

/// Room for an address, as AcceptEx wants it.
const ADDRESS: usize = size_of::<SOCKADDR_STORAGE>() + 16;

/// Where an accept writes both addresses: memory that stays where it is, whoever has this.
pub(super) struct Addresses(NonNull<AddressBuffer>);

#[repr(C, align(8))]
pub(super) struct AddressBuffer([u8; 2 * ADDRESS]);

// SAFETY: plain memory, which is reached through this value alone, and by the system.
unsafe impl Send for Addresses {}

impl Addresses {
    pub fn new() -> Self {
        Self(NonNull::from(Box::leak(Box::new(AddressBuffer([0; 2 * ADDRESS])))))
    }

    /// For an accept. It is the system's until that is over.
    pub fn buffer(&self) -> *mut AddressBuffer {
        self.0.as_ptr()
    }
}

impl Drop for Addresses {
    fn drop(&mut self) {
        // SAFETY: it was a box, and no accept is under way: else this is leaked instead.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// The functions for accepting on a listening socket. They are asked of each, since each may be another provider's.
#[derive(Clone, Copy)]
pub(super) struct Accepting {
    accept: LPFN_ACCEPTEX,
    addresses: LPFN_GETACCEPTEXSOCKADDRS,
}

impl Accepting {
    /// None where the socket listens no longer.
    pub fn on(listener: &Listener) -> io::Result<Option<Self>> {
        listener.native().with_socket(Self::of).transpose()
    }

    fn of(socket: &Socket) -> io::Result<Self> {
        let mut its = Self { accept: None, addresses: None };
        let ask = SIO_GET_EXTENSION_FUNCTION_POINTER;
        // SAFETY: each call reads a GUID and writes the pointer to the function of that GUID.
        unsafe {
            control_call(socket, ask, &WSAID_ACCEPTEX, &mut its.accept)?;
            control_call(socket, ask, &WSAID_GETACCEPTEXSOCKADDRS, &mut its.addresses)?;
        }
        Ok(its)
    }

    /// Starts accepting the next connection as this socket, without its first data.
    ///
    /// # Safety
    /// Until the operation is over, addresses, count and operation stay in place and are nobody else's, the sockets stay open
    /// or are closed by their owner, and the operation is all zeroes but for its event.
    pub unsafe fn accept(
        &self,
        listener: &Listener,
        accepted: &Socket,
        addresses: *mut AddressBuffer,
        count: *mut u32,
        operation: *mut OVERLAPPED,
    ) -> Begun {
        let accept = self.accept.ok_or(WSAEOPNOTSUPP)?;
        let (room, accepted) = (ADDRESS as u32, accepted.as_raw_socket() as SOCKET);
        let started = listener.native().with_socket(|listening| {
            let listening = listening.as_raw_socket() as SOCKET;
            // SAFETY: the caller's word; the addresses have room for two.
            let result = unsafe {
                accept(listening, accepted, addresses.cast(), 0, room, room, count, operation)
            };
            begun(result != 0)
        });
        started.unwrap_or(Err(WSA_OPERATION_ABORTED))
    }

    /// What an accept brought that is over and well: the socket becomes a connection like those that are accepted
    /// otherwise. None where the socket listens no longer, and a connection cannot be made of it.
    pub fn accepted(
        &self,
        listener: &Listener,
        accepted: Socket,
        addresses: &Addresses,
    ) -> Option<io::Result<Accepted>> {
        listener.native().with_socket(|listening| {
            let peer = self.peer(addresses)?;
            let listening = listening.as_raw_socket() as SOCKET;
            let its = accepted.as_raw_socket() as SOCKET;
            let size = size_of_val(&listening) as i32;
            // SAFETY: the option's value is a socket's handle, which lives through the call.
            let updated = unsafe {
                let value = (&raw const listening).cast();
                setsockopt(its, SOL_SOCKET, SO_UPDATE_ACCEPT_CONTEXT, value, size)
            };
            if updated != 0 {
                return Err(io::Error::from_raw_os_error(last_error()));
            }
            Ok(Accepted { stream: native::Stream::adopt(accepted)?, peer })
        })
    }

    fn peer(&self, addresses: &Addresses) -> io::Result<SocketAddr> {
        let find = self.addresses.ok_or(io::ErrorKind::Unsupported)?;
        let (mut local, mut remote) = (ptr::null_mut::<SOCKADDR>(), ptr::null_mut::<SOCKADDR>());
        let (mut local_len, mut remote_len) = (0, 0);
        let mut storage = SockAddrStorage::zeroed();
        // SAFETY: the room is that of the accept, and the call points into it; as much as there is room for is copied.
        let peer = unsafe {
            let room = ADDRESS as u32;
            find(
                addresses.buffer().cast_const().cast(),
                0,
                room,
                room,
                &mut local,
                &mut local_len,
                &mut remote,
                &mut remote_len,
            );
            let len = usize::try_from(remote_len).unwrap_or(0).min(size_of_val(&storage));
            ptr::copy_nonoverlapping(remote.cast::<u8>(), (&raw mut storage).cast::<u8>(), len);
            SockAddr::new(storage, len as _)
        };
        peer.as_socket().ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

/// How an accept ended.
pub(super) fn accepted(
    listener: &Listener,
    accepting: Option<&Accepting>,
    socket: Option<Socket>,
    addresses: &Addresses,
    result: Result<usize, i32>,
) -> Outcome<Accepted> {
    if result == Err(WSAEWOULDBLOCK) {
        return Outcome::Returned; // Wine: somebody else has had the connection
    }
    let (Ok(_), Some(socket), Some(accepting)) = (result, socket, accepting) else {
        return settled(result, |_| unreachable!("it was not started"));
    };
    match accepting.accepted(listener, socket, addresses) {
        Some(Ok(accepted)) => Outcome::Done(accepted),
        Some(Err(e)) => Outcome::Failed(of_this_connection(e)),
        None => Outcome::Returned,
    }
}

/// Why no connection could be made of what an accept had brought. Unless the system has nothing to give, that is about
/// this one alone, whatever the code: else a peer that goes at the right moment would end the server.
fn of_this_connection(error: io::Error) -> io::Error {
    if stream::is_want_of_resources(&error) {
        return error;
    }
    io::Error::from_raw_os_error(WSAECONNABORTED)
}

/// What a result means.
#[inline]
pub(super) fn settled<T>(result: Result<usize, i32>, done: impl FnOnce(usize) -> T) -> Outcome<T> {
    match result {
        Ok(count) => Outcome::Done(done(count)),
        // It was cancelled, its thread has exited, or its socket listens no longer.
        Err(WSA_OPERATION_ABORTED) => Outcome::Returned,
        Err(code) => Outcome::Failed(io::Error::from_raw_os_error(code)),
    }
}

/// How a send of at least one byte ended. Under Wine 8 one that waits for room when the peer ends its sending is now and
/// then reported as done with nothing sent: it comes back, and nothing is wrong with its connection.
#[inline]
pub(super) fn sent(result: Result<usize, i32>) -> Outcome<usize> {
    match result {
        Ok(0) => Outcome::Returned,
        result => settled(result, |count| count),
    }
}

/// The function for disconnecting sockets that were accepted on a listening one.
#[derive(Clone, Copy)]
pub(super) struct Disconnecting(LPFN_DISCONNECTEX);

impl Disconnecting {
    /// None where the socket listens no longer.
    pub fn on(listener: &Listener) -> io::Result<Option<Self>> {
        let of = |socket: &Socket| {
            let mut its = Self(None);
            // SAFETY: the call reads a GUID and writes the pointer to the function of that GUID.
            unsafe {
                let ask = SIO_GET_EXTENSION_FUNCTION_POINTER;
                control_call(socket, ask, &WSAID_DISCONNECTEX, &mut its.0)?;
            }
            Ok(its)
        };
        listener.native().with_socket(of).transpose()
    }

    /// Starts making of a connection's socket one that is as new, once all that was sent has arrived.
    ///
    /// # Safety
    /// Until the operation is over, it stays in place and is nobody else's, the socket stays open or is closed by its
    /// owner, and the operation is all zeroes but for its event.
    pub unsafe fn disconnect(self, socket: SOCKET, operation: *mut OVERLAPPED) -> Begun {
        let disconnect = self.0.ok_or(WSAEOPNOTSUPP)?;
        // SAFETY: the caller's word.
        begun(unsafe { disconnect(socket, operation, TF_REUSE_SOCKET, 0) } != 0)
    }
}

/// A socket for the next connection on this listening one.
///
/// # Errors
/// Where the system has none to give.
pub(super) fn socket_for(listener: &Listener) -> io::Result<Socket> {
    Socket::new(Domain::for_address(listener.local_address()), Type::STREAM, Some(Protocol::TCP))
}

#[cfg(test)]
mod tests {
    use super::*;
    use windows_sys::Win32::Networking::WinSock::{WSAEINVAL, WSAENOBUFS, WSAENOTSOCK};

    #[test]
    fn a_send_that_has_sent_nothing_comes_back_and_harms_nobody() {
        assert!(matches!(sent(Ok(0)), Outcome::Returned));
        assert!(matches!(sent(Ok(7)), Outcome::Done(7)));
        assert!(matches!(sent(Err(WSA_OPERATION_ABORTED)), Outcome::Returned));
        let failed = sent(Err(WSAECONNABORTED));
        assert!(matches!(failed, Outcome::Failed(e) if e.raw_os_error() == Some(WSAECONNABORTED)));
    }

    #[test]
    fn a_connection_that_goes_as_it_is_accepted_is_no_failure_of_the_server() {
        let without_code = io::ErrorKind::InvalidData.into();
        let coded = [WSAEINVAL, WSAENOTSOCK].map(io::Error::from_raw_os_error);
        for error in coded.into_iter().chain([without_code]) {
            assert!(stream::concerns_one_connection(&of_this_connection(error)));
        }
        let nothing_to_give = of_this_connection(io::Error::from_raw_os_error(WSAENOBUFS));
        assert!(stream::is_want_of_resources(&nothing_to_give));
    }
}
