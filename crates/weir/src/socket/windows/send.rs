//! Sending: sendto, and WSASendMsg where a datagram is to leave from an address of our choice.

use super::{
    Done, Native,
    control::{CONTROL_BYTES, Control, write_source},
    last_error, result_of_waiting, started, with_event_of_thread, without_packet,
};
use crate::{
    Unavailable,
    counters::Counters,
    deadline::PROOF_TIMEOUT,
    socket::{Endpoint, Peer, SocketOptions},
};
use socket2::SockAddr;
use std::{
    io, mem,
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
    num::NonZeroU16,
    ptr,
    sync::OnceLock,
    time::Duration,
};
use windows_sys::Win32::{
    Foundation::WAIT_OBJECT_0,
    Networking::WinSock::{
        SOCKET_ERROR, WSA_IO_PENDING, WSA_OPERATION_ABORTED, WSABUF, WSAEWOULDBLOCK, WSAMSG,
        WSASendMsg, WSASendTo, WSAWaitForMultipleEvents,
    },
    System::IO::OVERLAPPED,
};

/// How long a send waits that would block: longer than a busy machine keeps a thread off its cores. Under Wine (8) a send
/// would block whenever another thread is sending on the same socket, however empty its buffer.
const SEND_PATIENCE: Duration = Duration::from_millis(100);

/// Whether datagrams can be sent with a mark of congestion: not here yet (IP_ECN).
pub(in crate::socket) const MARKS: bool = false;

impl Native {
    /// Whether a datagram leaves from the address that its peer says.
    pub(in crate::socket) fn can_name_source(&self) -> bool {
        self.names_source
    }

    /// Not here yet: whoever asks sends each datagram by itself.
    pub(in crate::socket) fn send_segments(
        &self,
        _bytes: &[u8],
        _segment: NonZeroU16,
        _to: &Peer,
        _counters: &Counters,
    ) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    #[inline]
    pub(in crate::socket) fn send(
        &self,
        bytes: &[u8],
        to: &Peer,
        counters: &Counters,
    ) -> io::Result<()> {
        let address = SockAddr::from(to.address);
        let length = u32::try_from(bytes.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut vector = WSABUF { len: length, buf: bytes.as_ptr().cast_mut() };
        counters.kernel_entries.one();
        if self.names_source
            && let Some(source) = to.source()
        {
            return self.send_from(source, &mut vector, &address);
        }
        match self.socket.send_to(bytes, &address) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            result => return result.map(drop),
        }
        let (name, namelen) = (address.as_ptr().cast(), address.len());
        // SAFETY: bytes, vector and name stay in place until the operation is over, which is
        // waited for; the system only reads the bytes.
        self.send_waiting(|operation| unsafe {
            let (socket, sent) = (self.raw(), ptr::null_mut());
            WSASendTo(socket, &vector, 1, sent, 0, name, namelen, operation, None)
        })
    }

    /// Writes the address that a datagram is to leave from where one is to be named, and returns the length.
    #[inline]
    pub(crate) fn name_source(&self, control: &mut Control, to: &Peer) -> usize {
        match to.source().filter(|_| self.names_source) {
            Some(source) => write_source(control, source),
            None => 0,
        }
    }

    /// Starts a send, as [`start_receive`](Self::start_receive) does a receive.
    ///
    /// # Safety
    /// As there.
    #[inline]
    pub(crate) unsafe fn start_send(
        &self,
        message: *const WSAMSG,
        operation: *mut OVERLAPPED,
    ) -> Result<Done, i32> {
        // SAFETY: the caller's word; the message's fields are what the second call takes one by one.
        let result = unsafe {
            let WSAMSG { name, namelen, lpBuffers, dwBufferCount, .. } = *message;
            let sent = ptr::null_mut();
            if (*message).Control.len > 0 {
                WSASendMsg(self.raw(), message, 0, sent, operation, None)
            } else {
                let (name, raw) = (name.cast_const(), self.raw());
                WSASendTo(raw, lpBuffers, dwBufferCount, sent, 0, name, namelen, operation, None)
            }
        };
        started(result)
    }

    /// Sends from this address of ours.
    fn send_from(&self, source: IpAddr, vector: &mut WSABUF, to: &SockAddr) -> io::Result<()> {
        let mut control = Control([0; CONTROL_BYTES]);
        let message = WSAMSG {
            name: to.as_ptr().cast_mut().cast(),
            namelen: to.len(),
            lpBuffers: vector,
            dwBufferCount: 1,
            Control: WSABUF {
                len: write_source(&mut control, source) as u32,
                buf: control.0.as_mut_ptr(),
            },
            dwFlags: 0,
        };
        let mut sent = 0;
        let result =
            // SAFETY: the message points at a name, a vector and control data that outlive the call,
            // which only reads them, and is over when it returns.
            unsafe { WSASendMsg(self.raw(), &message, 0, &mut sent, ptr::null_mut(), None) };
        match if result == SOCKET_ERROR { last_error() } else { 0 } {
            0 => Ok(()),
            // SAFETY: as above, and all of it stays until the operation is over, which is waited
            // for.
            WSAEWOULDBLOCK => self.send_waiting(|operation| unsafe {
                WSASendMsg(self.raw(), &message, 0, ptr::null_mut(), operation, None)
            }),
            code => Err(io::Error::from_raw_os_error(code)),
        }
    }

    /// Sends as soon as the socket can, if that is within [`SEND_PATIENCE`]. `start` starts the
    /// operation on this socket, and returns what the call returned.
    #[cold]
    fn send_waiting(&self, start: impl FnOnce(*mut OVERLAPPED) -> i32) -> io::Result<()> {
        let code = with_event_of_thread(|sent| {
            // SAFETY: all zeroes is a valid OVERLAPPED.
            let mut operation: OVERLAPPED = unsafe { mem::zeroed() };
            operation.hEvent = without_packet(sent);
            let operation = &raw mut operation;
            if start(operation) == SOCKET_ERROR {
                match last_error() {
                    WSA_IO_PENDING => {}
                    code => return code,
                }
                let patience_ms = SEND_PATIENCE.as_millis() as u32;
                // SAFETY: the event is this thread's, and lives.
                let over = unsafe { WSAWaitForMultipleEvents(1, &sent, 0, patience_ms, 0) };
                if over != WAIT_OBJECT_0 {
                    self.cancel(operation, sent);
                }
            }
            // SAFETY: as for a receive that waits: after this the operation is over.
            unsafe { result_of_waiting(self.raw(), operation, &mut 0) }.err().unwrap_or(0)
        })?;
        match code {
            0 => Ok(()),
            WSA_OPERATION_ABORTED => Err(io::ErrorKind::WouldBlock.into()),
            code => Err(io::Error::from_raw_os_error(code)),
        }
    }
}

/// Whether a datagram leaves from the address of ours that its [`Peer`] says, by trying: Wine 8
/// takes the wish and does not heed it.
///
/// # Errors
/// Why it does not.
pub fn replies_from_local_address() -> Result<(), Unavailable> {
    static PROVED: OnceLock<Result<(), String>> = OnceLock::new();
    let proved = PROVED.get_or_init(|| match source_obtained() {
        Ok(source) if source == OTHER => Ok(()),
        Ok(source) => Err(format!("a datagram sent from {OTHER} by WSASendMsg came from {source}")),
        Err(e) => Err(format!("sending from {OTHER} by WSASendMsg: {e}")),
    });
    proved.clone().map_err(|reason| {
        Unavailable::new("answering from the address that was written to", reason)
            .advise("bind each address of this machine separately")
    })
}

/// An address of loopback that the system does not choose by itself.
const OTHER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

fn source_obtained() -> io::Result<IpAddr> {
    let receiver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    receiver.set_read_timeout(Some(PROOF_TIMEOUT))?;
    let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let options = SocketOptions { local_address: true, ..SocketOptions::default() };
    let native = Native::open(&Endpoint { address, options })
        .map_err(|e| io::Error::other(e.to_string()))?;
    let to = Peer { local: Some(OTHER.into()), ..receiver.local_addr()?.into() };
    native.send(&[0], &to, &Counters::default())?;
    Ok(receiver.recv_from(&mut [0])?.1.ip())
}
