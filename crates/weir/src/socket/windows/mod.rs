//! Datagram sockets of Windows: WSARecvFrom (WSARecvMsg where control data is asked for),
//! sendto.
//!
//! There is no call for a batch, so a batch is a loop. There is no flag for one call that
//! must not wait either: the socket is non-blocking, and a receive that waits is an
//! overlapped one with an event, which such a socket lets wait all the same. That is what
//! Winsock's own blocking receive does inside (post, then wait for an event), so it costs
//! the same, and the wait can listen to a second event, which ends receiving.

mod batch;
mod control;
mod send;
mod sending;

pub use batch::Headers;
pub(crate) use control::{CONTROL_BYTES, Control};
pub(super) use send::MARKS;

/// Whether a socket can be used that is bound already: registered I/O needs one that was opened for it.
pub(super) const TAKES_GIVEN: bool = false;

pub use send::replies_from_local_address;

use super::{Arrival, DatagramSocket, Endpoint, Meta, Mode, PeerError, ReceiveBuffer, Shard};
use crate::{
    Error, Unavailable,
    counters::{Counters, os::SocketUsage},
};
use control::local_address_in;
use socket2::{Domain, Protocol, SockAddr, SockAddrStorage, Socket, Type};
use std::{
    cell::OnceCell,
    ffi::c_void,
    io, mem,
    net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4},
    os::windows::io::{AsRawHandle, AsRawSocket, FromRawHandle, OwnedHandle},
    ptr,
    time::Duration,
};
use windows_sys::Win32::{
    Foundation::{HANDLE, STATUS_PENDING, WAIT_OBJECT_0},
    Networking::WinSock::{
        IP_PKTINFO, IPPROTO_IP, IPPROTO_IPV6, IPV6_PKTINFO, LPFN_WSARECVMSG,
        LPWSAOVERLAPPED_COMPLETION_ROUTINE, MSG_TRUNC, SIO_CPU_AFFINITY,
        SIO_GET_EXTENSION_FUNCTION_POINTER, SIO_UDP_CONNRESET, SO_EXCLUSIVEADDRUSE, SOCKET,
        SOCKET_ERROR, SOL_SOCKET, WSA_INVALID_EVENT, WSA_IO_PENDING, WSA_OPERATION_ABORTED,
        WSA_WAIT_TIMEOUT, WSAAsyncSelect, WSABUF, WSACreateEvent, WSAEMSGSIZE, WSAENETRESET,
        WSAESHUTDOWN, WSAEVENT, WSAEWOULDBLOCK, WSAGetLastError, WSAGetOverlappedResult,
        WSAID_WSARECVMSG, WSAIoctl, WSAMSG, WSARecvFrom, WSASetEvent, WSAWaitForMultipleEvents,
        setsockopt,
    },
    System::{
        IO::{CancelIoEx, OVERLAPPED},
        Threading::INFINITE,
    },
    UI::WindowsAndMessaging::HWND_MESSAGE,
};

/// A path of these bytes, which no system of this kind gives.
pub(super) fn path_of(bytes: Vec<u8>) -> std::path::PathBuf {
    String::from_utf8_lossy(&bytes).into_owned().into()
}

/// There is no such socket.
pub(super) fn open_unix(endpoint: &Endpoint) -> Result<Native, Error> {
    Err(super::names::stands_for_none(endpoint))
}

/// There is no such socket.
#[cfg(feature = "udp")]
pub(super) fn bound_unix<S>(_: S) -> io::Result<(Vec<u8>, std::net::UdpSocket)> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Every datagram is a call of its own.
pub const BATCHES_IN_ONE_CALL: bool = false;

/// An address of no one, for a name of a family that is not the internet's.
const NOBODY: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));

/// How long after a cancel it is asked for again.
pub(crate) const CANCEL_AGAIN: Duration = Duration::from_millis(10);

/// WSARecvMsg, which has to be asked for at run time.
type ReceiveMessage = unsafe extern "system" fn(
    SOCKET,
    *mut WSAMSG,
    *mut u32,
    *mut OVERLAPPED,
    LPWSAOVERLAPPED_COMPLETION_ROUTINE,
) -> i32;

/// A bound socket.
#[derive(Debug)]
pub struct Native {
    socket: Socket,
    ipv6: bool,
    /// WSARecvMsg, if datagrams carry control data.
    receive_message: Option<ReceiveMessage>,
    /// Whether a datagram may leave from several addresses, and is told from which.
    names_source: bool,
    /// Set when receiving was ended, and from then on.
    ended: OwnedHandle,
}

impl Native {
    pub(super) fn open(endpoint: &Endpoint) -> Result<Self, Error> {
        Self::open_of(endpoint, Type::DGRAM)
    }

    fn open_of(endpoint: &Endpoint, kind: Type) -> Result<Self, Error> {
        let Endpoint { address, options } = *endpoint;
        if options.reuse_port && options.steer_by_core.is_none() {
            return Err(Unavailable::new(
                "an address shared by several sockets",
                "Windows spreads datagrams over them only by the core that received them",
            )
            .advise("open one socket, or one port for each, or use a socket for each core")
            .into());
        }
        if options.receive_time {
            return Err(Unavailable::new(
                "the receive time of datagrams",
                "Windows sockets do not report it with the datagram here",
            )
            .into());
        }
        if options.asks_for_meta() {
            return Err(Unavailable::new(
                "the traffic class and hops of datagrams",
                "weir does not ask Windows for them yet",
            )
            .advise("leave them off")
            .into());
        }
        if options.receive_offload {
            return Err(Unavailable::new("receive offload", "it is not supported on Windows yet")
                .advise("leave it off")
                .into());
        }
        if options.peer_errors {
            return Err(Unavailable::new(
                "errors of peers",
                "Windows reports it only as WSAECONNRESET, which is not supported here yet",
            )
            .advise("do not ask for them: none of them makes a call fail (SIO_UDP_CONNRESET)")
            .into());
        }
        if options.busy_poll.is_some() {
            return Err(Unavailable::new("busy polling", "Windows has none for sockets")
                .advise("leave it off")
                .into());
        }
        let refused = |what: &str| {
            let what = format!("{what} on the socket for {address}");
            move |e| Error::io(what, e)
        };
        let socket = Socket::new(Domain::for_address(address), kind, Some(Protocol::UDP))
            .map_err(refused("opening"))?;
        socket.set_nonblocking(true).map_err(refused("FIONBIO"))?;
        match options.steer_by_core {
            Some(shard) => steer_by_core(&socket, shard)?,
            // Else any program could take the port over by asking for SO_REUSEADDR.
            None => set_flag(&socket, SOL_SOCKET, SO_EXCLUSIVEADDRUSE)
                .map_err(refused("SO_EXCLUSIVEADDRUSE"))?,
        }
        // Else a reply to a port that nobody holds makes a later receive fail.
        // SAFETY: the call reads 32 bits and writes nothing.
        unsafe { control_call(&socket, SIO_UDP_CONNRESET, &0u32, &mut ()) }
            .map_err(refused("SIO_UDP_CONNRESET"))?;
        if address.is_ipv6() {
            // As on Linux: the unspecified address receives IPv4 too, unless another socket is to.
            socket.set_only_v6(options.only_v6).map_err(refused("IPV6_V6ONLY"))?;
        }
        // Winsock charges a socket for the bytes of a datagram alone.
        let receive_buffer_bytes = match options.receive_buffer {
            ReceiveBuffer::System | ReceiveBuffer::Outstanding => None,
            ReceiveBuffer::Bytes(bytes) => Some(bytes),
            ReceiveBuffer::Datagrams { count, bytes } => Some(bytes.saturating_mul(count as usize)),
        };
        if let Some(bytes) = receive_buffer_bytes {
            let bytes = bytes.min(i32::MAX as usize);
            // What is asked for by the number of datagrams never makes it smaller.
            let default = socket.recv_buffer_size().unwrap_or(0);
            let asked_in_bytes = matches!(options.receive_buffer, ReceiveBuffer::Bytes(_));
            if asked_in_bytes || bytes > default {
                socket.set_recv_buffer_size(bytes).map_err(refused("SO_RCVBUF"))?;
            }
        }
        sending::ask(&socket, address, &options)?;
        if let Some(bytes) = options.send_buffer_bytes {
            socket.set_send_buffer_size(bytes).map_err(refused("SO_SNDBUF"))?;
        }
        let mut receive_message: LPFN_WSARECVMSG = None;
        if options.local_address {
            set_flag(&socket, IPPROTO_IP, IP_PKTINFO).map_err(refused("IP_PKTINFO"))?;
            if address.is_ipv6() {
                set_flag(&socket, IPPROTO_IPV6, IPV6_PKTINFO).map_err(refused("IPV6_PKTINFO"))?;
            }
            let ask = SIO_GET_EXTENSION_FUNCTION_POINTER;
            // SAFETY: the call reads a GUID and writes the pointer to the function of that GUID.
            unsafe { control_call(&socket, ask, &WSAID_WSARECVMSG, &mut receive_message) }
                .map_err(refused("asking for WSARecvMsg"))?;
        }
        let ended = new_event().map_err(refused("WSACreateEvent"))?;
        socket.bind(&address.into()).map_err(|source| Error::Bind { address, source })?;
        let names_source = options.local_address && address.ip().is_unspecified();
        Ok(Self { socket, ipv6: address.is_ipv6(), receive_message, names_source, ended })
    }

    /// The same socket, for one more user.
    #[cfg(feature = "udp")]
    pub(super) fn to_std(&self) -> io::Result<std::net::UdpSocket> {
        Ok(self.socket.try_clone()?.into())
    }

    /// The socket, for providers that start operations on it.
    pub fn raw(&self) -> SOCKET {
        self.socket.as_raw_socket() as SOCKET
    }

    /// Whether its datagrams carry control data (the local address).
    pub fn has_control(&self) -> bool {
        self.receive_message.is_some()
    }

    /// The socket, for what every system has.
    pub(super) fn socket(&self) -> &Socket {
        &self.socket
    }

    pub(super) fn local_address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()?.as_socket().ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    pub(super) fn receive_buffer_bytes(&self) -> io::Result<usize> {
        self.socket.recv_buffer_size()
    }

    /// It grants what is asked for.
    /// Not here yet: each datagram leaves by itself.
    pub(super) fn send_offload(&self) -> Option<&'static str> {
        None
    }

    pub(super) fn receive_buffer(&self) -> Option<String> {
        None
    }

    /// What Winsock tells of it.
    pub(super) fn usage(&self) -> SocketUsage {
        SocketUsage::of(&self.socket).unwrap_or_default()
    }

    /// Not known here.
    pub(super) fn napi_id(&self) -> Option<u32> {
        None
    }

    /// Asking for it was refused.
    pub(super) fn busy_poll(&self) -> Option<String> {
        None
    }

    /// Asking for them was refused, as for the three that follow.
    pub fn hears_errors(&self) -> bool {
        false
    }

    /// Nothing to note.
    pub fn note_errors(&self) {}

    pub(super) fn take_note(&self) -> bool {
        false
    }

    pub(super) fn take_error(&self, _counters: &Counters) -> io::Result<Option<PeerError>> {
        Ok(None)
    }

    #[inline]
    pub(super) fn receive(
        &self,
        buffer: &mut [u8],
        mode: Mode,
        counters: &Counters,
    ) -> io::Result<Option<Arrival>> {
        let mut name = SockAddrStorage::zeroed();
        let mut control = Control([0; CONTROL_BYTES]);
        let room = buffer.len().min(u32::MAX as usize);
        let mut vector = WSABUF { len: room as u32, buf: buffer.as_mut_ptr() };
        loop {
            let mut message = WSAMSG {
                name: ptr::from_mut(&mut name).cast(),
                namelen: mem::size_of::<SockAddrStorage>() as i32,
                lpBuffers: &mut vector,
                dwBufferCount: 1,
                Control: WSABUF {
                    len: if self.has_control() { CONTROL_BYTES as u32 } else { 0 },
                    buf: control.0.as_mut_ptr(),
                },
                dwFlags: 0,
            };
            // SAFETY: the message points at a name, control data and a vector that live on
            // this stack, and at the caller's buffer, borrowed meanwhile; both calls return
            // only when the system is done with all of them.
            let received = unsafe {
                match mode {
                    Mode::Try => self.receive_now(&mut message, counters),
                    Mode::Wait => self.receive_waiting(&mut message, None, counters)?,
                    Mode::WaitFor(time) => {
                        self.receive_waiting(&mut message, Some(time), counters)?
                    }
                }
            };
            let (len, truncated) = match received {
                Ok(len) => (len as usize, message.dwFlags & MSG_TRUNC != 0),
                Err(WSAEMSGSIZE) => (room, true),
                // Nothing there, or receiving was ended: before the call, or while it waited.
                Err(WSAEWOULDBLOCK | WSAESHUTDOWN | WSA_OPERATION_ABORTED) => return Ok(None),
                // An earlier reply died on its way, which is no news of this datagram.
                Err(WSAENETRESET) => continue,
                Err(code) => return Err(io::Error::from_raw_os_error(code)),
            };
            // SAFETY: Winsock wrote both, or left the zeroes.
            let arrival = unsafe { self.arrival(&name, &control, &message, len, truncated) };
            return Ok(Some(arrival));
        }
    }

    /// What Winsock said of a datagram of so many bytes.
    ///
    /// # Safety
    /// It wrote as much of the name and of the control data as the message says.
    #[inline]
    pub(crate) unsafe fn arrival(
        &self,
        name: &SockAddrStorage,
        control: &Control,
        message: &WSAMSG,
        len: usize,
        truncated: bool,
    ) -> Arrival {
        // SAFETY: a name is numbers, and the caller vouches for its length.
        let from = unsafe { SockAddr::new(ptr::read(name), message.namelen) };
        let local = match self.has_control() {
            true => local_address_of(&control.0[..message.Control.len as usize], self.ipv6),
            false => None,
        };
        let from = from.as_socket().unwrap_or(NOBODY);
        Arrival {
            len,
            from,
            local,
            truncated,
            at: None,
            segment: None,
            link: None,
            meta: Meta::NONE,
        }
    }

    /// Starts a receive, for whoever takes its packet from a port. Returns Winsock's code where there will be none; after
    /// WSAEMSGSIZE there may be one.
    ///
    /// # Safety
    /// What the arguments point at stays valid, and nobody else's, until the packet is taken.
    #[inline]
    pub(crate) unsafe fn start_receive(
        &self,
        message: *mut WSAMSG,
        operation: *mut OVERLAPPED,
    ) -> Result<Done, i32> {
        // SAFETY: the caller's word.
        let result = unsafe { self.call(message, ptr::null_mut(), operation) };
        started(result)
    }

    /// One receive that does not wait. Returns the bytes received, or Winsock's code.
    ///
    /// # Safety
    /// What the message points at is valid, and nobody else's meanwhile.
    unsafe fn receive_now(&self, message: *mut WSAMSG, counters: &Counters) -> Result<u32, i32> {
        counters.kernel_entries.one();
        let mut len = 0;
        // SAFETY: the caller vouches for the message; without an overlapped structure the
        // call is over when it returns.
        let result = unsafe { self.call(message, &mut len, ptr::null_mut()) };
        if result == SOCKET_ERROR { Err(last_error()) } else { Ok(len) }
    }

    /// Calls WSARecvFrom or WSARecvMsg, and returns what that returns.
    ///
    /// # Safety
    /// What the arguments point at stays valid, and nobody else's, until the call is over or,
    /// with an overlapped structure, the operation.
    #[inline]
    unsafe fn call(&self, message: *mut WSAMSG, len: *mut u32, operation: *mut OVERLAPPED) -> i32 {
        match self.receive_message {
            // SAFETY: the caller vouches for the arguments.
            Some(receive) => unsafe { receive(self.raw(), message, len, operation, None) },
            // SAFETY: as above; the message's fields are what this call takes one by one.
            None => unsafe {
                let WSAMSG { lpBuffers, dwBufferCount, name, .. } = *message;
                let (flags, namelen) = (&raw mut (*message).dwFlags, &raw mut (*message).namelen);
                WSARecvFrom(
                    self.raw(),
                    lpBuffers,
                    dwBufferCount,
                    len,
                    flags,
                    name,
                    namelen,
                    operation,
                    None,
                )
            },
        }
    }

    /// One receive that waits for a datagram or the end of receiving. Returns the bytes
    /// received, or Winsock's code.
    ///
    /// # Safety
    /// As for `receive_now`.
    ///
    /// # Errors
    /// If this thread can have no event.
    unsafe fn receive_waiting(
        &self,
        message: *mut WSAMSG,
        time: Option<Duration>,
        counters: &Counters,
    ) -> io::Result<Result<u32, i32>> {
        with_event_of_thread(|arrived| {
            // SAFETY: all zeroes is a valid OVERLAPPED.
            let mut operation: OVERLAPPED = unsafe { mem::zeroed() };
            operation.hEvent = without_packet(arrived);
            let operation = &raw mut operation;
            counters.kernel_entries.one();
            // SAFETY: the caller vouches for the message; message and operation stay in place
            // until the operation is over, which is waited for below.
            let result = unsafe { self.call(message, ptr::null_mut(), operation) };
            if result == SOCKET_ERROR {
                match last_error() {
                    WSA_IO_PENDING => self.wait_for(operation, arrived, time, counters),
                    code => return Err(code),
                }
            }
            // SAFETY: the operation was started on this socket with an event. After this nothing writes to message or
            // operation any more.
            unsafe { result_of_waiting(self.raw(), operation, &mut 0) }
        })
    }

    /// Waits until the operation is over or receiving was ended, or the time is over, and then cancels it.
    fn wait_for(
        &self,
        operation: *const OVERLAPPED,
        arrived: HANDLE,
        time: Option<Duration>,
        counters: &Counters,
    ) {
        // Rounded up: who waits is not to look again before its time.
        let milliseconds = |time: Duration| time.as_nanos().div_ceil(1_000_000);
        let time_ms =
            time.map_or(INFINITE, |time| milliseconds(time).min(u128::from(INFINITE - 1)) as u32);
        counters.kernel_entries.one();
        let events = [arrived, self.ended.as_raw_handle()];
        // SAFETY: both events live: one is this socket's, one this thread's.
        let woken = unsafe { WSAWaitForMultipleEvents(2, events.as_ptr(), 0, time_ms, 0) };
        if woken != WAIT_OBJECT_0 {
            counters.kernel_entries.one();
            self.cancel(operation, arrived);
        }
    }

    fn cancel(&self, operation: *const OVERLAPPED, over: HANDLE) {
        // SAFETY: the operation was started on this socket and is still in place; the event is this thread's.
        unsafe { cancel(self.raw(), operation, over) };
    }

    /// Shutdown makes every later receive fail at once, but wakes nobody (Wine 8 does not,
    /// and Windows promises nothing); the event wakes whoever waits.
    pub(super) fn end_receiving(&self, _local_address: SocketAddr) {
        let _ = self.socket.shutdown(std::net::Shutdown::Read);
        // SAFETY: the event lives as long as this socket. Setting a live event cannot fail.
        unsafe { WSASetEvent(self.ended.as_raw_handle() as WSAEVENT) };
    }
}

impl DatagramSocket {
    /// Opens and binds a socket that can have queues of registered I/O (WSA_FLAG_REGISTERED_IO).
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub(crate) fn bind_registered(endpoint: &Endpoint) -> Result<Self, Error> {
        Self::of(Native::open_of(endpoint, Type::DGRAM.registered_io())?, endpoint)
    }
}

/// The address that a datagram was sent to, as its control data says, in the form that its source has on this socket.
#[inline]
pub(crate) fn local_address_of(control: &[u8], ipv6: bool) -> Option<IpAddr> {
    match local_address_in(control)? {
        IpAddr::V4(v4) if ipv6 => Some(v4.to_ipv6_mapped().into()),
        address => Some(address),
    }
}

/// Whether an operation was done when its call returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Done {
    Yes,
    Later,
}

/// What the call that starts an operation said, for whoever waits at a port.
#[inline]
pub(crate) fn started(result: i32) -> Result<Done, i32> {
    match if result == SOCKET_ERROR { last_error() } else { 0 } {
        0 => Ok(Done::Yes),
        WSA_IO_PENDING => Ok(Done::Later),
        code => Err(code),
    }
}

pub(crate) fn last_error() -> i32 {
    // SAFETY: reads a variable of this thread.
    unsafe { WSAGetLastError() }
}

pub(crate) fn new_event() -> io::Result<OwnedHandle> {
    // SAFETY: takes nothing.
    let event = unsafe { WSACreateEvent() };
    if event == WSA_INVALID_EVENT {
        return Err(io::Error::from_raw_os_error(last_error()));
    }
    // SAFETY: a new event is nobody else's, and CloseHandle closes it.
    Ok(unsafe { OwnedHandle::from_raw_handle(event as HANDLE) })
}

/// A time-out in milliseconds, rounded up: a wait is never short, unless the system's clock is ahead.
pub(crate) fn milliseconds(timeout: Option<Duration>) -> u32 {
    let rounded = |timeout: Duration| {
        u32::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(INFINITE).min(INFINITE - 1)
    };
    timeout.map_or(INFINITE, rounded)
}

/// Calls `f` with an event that belongs to this thread. The system resets it when an
/// operation starts with it.
pub(crate) fn with_event_of_thread<R>(f: impl FnOnce(HANDLE) -> R) -> io::Result<R> {
    thread_local! { static EVENT: OnceCell<OwnedHandle> = const { OnceCell::new() } }
    EVENT.with(|cell| {
        let event = match cell.get() {
            Some(event) => event,
            None => {
                let event = new_event()?;
                cell.get_or_init(|| event)
            }
        };
        Ok(f(event.as_raw_handle()))
    })
}

/// The event of an overlapped call in the form that sends no packet to the completion port of its socket, if that
/// has one: nobody there knows the call.
pub(crate) fn without_packet(event: HANDLE) -> HANDLE {
    event.map_addr(|address| address | 1)
}

/// Cancels an operation, and returns once it is over, cancelled or not. Wine 8 forgets a cancel that comes while
/// something is on its way to the operation, which then waits on where another thread has taken that: so it is asked
/// for again until the operation is over.
///
/// # Safety
/// The operation was started on this socket with this event, and is in place.
#[cold]
pub(crate) unsafe fn cancel(socket: SOCKET, operation: *const OVERLAPPED, over: HANDLE) {
    let again_ms = milliseconds(Some(CANCEL_AGAIN));
    loop {
        // It may be over by now, and then there is nothing to cancel.
        // SAFETY: the caller's word.
        unsafe { CancelIoEx(socket as HANDLE, operation) };
        // SAFETY: the caller's word.
        let woken = unsafe { WSAWaitForMultipleEvents(1, &over, 0, again_ms, 0) };
        if woken != WSA_WAIT_TIMEOUT {
            return;
        }
    }
}

/// Waits until an operation is over that was started on this socket with an event: how many bytes, or Winsock's code.
/// After this the system writes to nothing of it.
///
/// # Safety
/// It was started so, and is in place.
pub(crate) unsafe fn result_of_waiting(
    socket: SOCKET,
    operation: *const OVERLAPPED,
    flags: &mut u32,
) -> Result<u32, i32> {
    let mut len = 0;
    // SAFETY: the caller's word; length and flags outlive the call.
    let done = unsafe { WSAGetOverlappedResult(socket, operation, &mut len, 1, flags) };
    let result = if done == 0 { Err(last_error()) } else { Ok(len) };
    // SAFETY: the caller's word. The system may be writing, so it is read as it stands.
    let status = unsafe { (&raw const (*operation).Internal).read_volatile() } as i32;
    if status == STATUS_PENDING {
        // Whoever called has it on the stack, with what is written to.
        eprintln!(
            "weir: the system does not say how an operation ended, and has it still: {result:?}"
        );
        std::process::abort();
    }
    result
}

/// Has a listening socket tell of the next connection whatever it has told; what is asked of it is to be asked anew.
/// On Windows an accept does that, also one that finds nothing. Under Wine only one that finds a connection does, and
/// FD_ACCEPT may be late: told of one that was accepted by then. There a call for messages has all forgotten, even
/// for messages of nothing.
pub(crate) fn tell_anew(listener: SOCKET) {
    if crate::machine::is_wine() {
        // SAFETY: no pointers. No message is asked for, so none comes to that window, which is the system's own.
        unsafe { WSAAsyncSelect(listener, HWND_MESSAGE, 0, 0) };
    }
}

/// Gives the socket the datagrams that this core received, and lets it share its address with sockets of other cores
/// (SIO_CPU_AFFINITY, which takes a processor's index in 16 bits, before the address is bound). What a core without
/// a socket received goes to one of the others; to which is not documented. Nor is whether such an address may be
/// exclusive (SO_EXCLUSIVEADDRUSE), so that is not asked for: sharing must not fail by it.
fn steer_by_core(socket: &Socket, shard: Shard) -> Result<(), Error> {
    let processor = shard.checked_core().map_err(|e| Error::io("SIO_CPU_AFFINITY", e))?;
    // SAFETY: the call reads 16 bits and writes nothing.
    unsafe { control_call(socket, SIO_CPU_AFFINITY, &processor, &mut ()) }.map_err(|refused| {
        let what = "datagrams steered by the core that received them";
        Unavailable::new(what, format!("the system refuses SIO_CPU_AFFINITY: {refused}"))
            .advise("it is there since Windows 10 version 2004; under Wine it is not")
            .into()
    })
}

fn set_flag(socket: &Socket, level: i32, name: i32) -> io::Result<()> {
    set_option(socket, level, name, 1)
}

pub(crate) fn set_option(socket: &Socket, level: i32, name: i32, value: u32) -> io::Result<()> {
    let raw = socket.as_raw_socket() as SOCKET;
    let length = mem::size_of_val(&value) as i32;
    // SAFETY: the option's value is 32 bits, which live through the call.
    let result = unsafe { setsockopt(raw, level, name, (&raw const value).cast(), length) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// WSAIoctl with an input and an output of fixed size.
///
/// # Safety
/// `In` is what `code` reads, and `Out` is what it writes.
pub(crate) unsafe fn control_call<In, Out>(
    socket: &Socket,
    code: u32,
    input: &In,
    output: &mut Out,
) -> io::Result<()> {
    let mut written = 0;
    // SAFETY: the caller vouches for the types; the values live through the call, and their
    // lengths are stated.
    let result = unsafe {
        WSAIoctl(
            socket.as_raw_socket() as SOCKET,
            code,
            ptr::from_ref(input).cast::<c_void>(),
            mem::size_of::<In>() as u32,
            ptr::from_mut(output).cast::<c_void>(),
            mem::size_of::<Out>() as u32,
            &mut written,
            ptr::null_mut(),
            None,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
