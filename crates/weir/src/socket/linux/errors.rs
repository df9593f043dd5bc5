//! The error queue of a socket: IP_RECVERR and IPV6_RECVERR, see ip(7).
//!
//! The kernel tells of an error twice. It goes into the queue, and it is *pending*: the next call on
//! the socket fails with it, whatever that call was for, and only that one. So a call that fails with
//! such an error is noted and made again; whoever has the thread takes the queue then. Taking one error
//! makes the next one pending, so none that is left is forgotten, and nobody takes any while a send is
//! made again: all of them could meet it. What is queued counts against the receive buffer: it must be
//! taken, or no datagram finds room.

use super::{Native, entered, message, set_flag, unless_empty};
use crate::{
    counters::Counters,
    socket::errors::{Icmp, PeerError},
};
use socket2::Socket;
use std::{
    io,
    mem::{self, MaybeUninit},
    net::{IpAddr, SocketAddr},
    sync::{
        PoisonError, RwLock, RwLockReadGuard,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
};

/// How often a call is made again that failed with a pending error. Each failure takes one away, and
/// others may come meanwhile: on loopback one from every reply to nobody that another thread sends.
const TRIES: usize = 32;

/// Room for the control data of an error: the error with the address of who told it (64 bytes with
/// its header), and whatever else was asked for of datagrams.
const CONTROL_BYTES: usize = 256;

/// Of a socket that asked for errors: whether some may wait in the queue.
#[derive(Debug, Default)]
pub(super) struct Errors {
    noted: AtomicBool,
    /// How many were taken from the queue; it wraps.
    taken: AtomicU32,
    /// Written by who takes one, read by those who make a send again that met one.
    taking: RwLock<()>,
}

impl Errors {
    /// Asks for the errors of a socket's family. One of IPv6 sends to IPv4, too.
    pub(super) fn ask(socket: &Socket, at: SocketAddr) -> io::Result<Self> {
        set_flag(socket, libc::IPPROTO_IP, libc::IP_RECVERR)?;
        if at.is_ipv6() {
            set_flag(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVERR)?;
        }
        Ok(Self::default())
    }

    fn while_none_is_taken(&self) -> RwLockReadGuard<'_, ()> {
        self.taking.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether an ICMP message may have told of this error (icmp_err_convert and icmpv6_err_convert of
/// the kernel's sources).
fn may_be_of_a_peer(errno: i32) -> bool {
    matches!(
        errno,
        libc::ECONNREFUSED
            | libc::EHOSTUNREACH
            | libc::ENETUNREACH
            | libc::ENOPROTOOPT
            | libc::EMSGSIZE
            | libc::EOPNOTSUPP
            | libc::EHOSTDOWN
            | libc::ENONET
            | libc::EPROTO
            | libc::EACCES
    )
}

impl Native {
    /// Whether it asked for the errors of peers.
    #[inline]
    pub fn hears_errors(&self) -> bool {
        self.errors.is_some()
    }

    /// How many errors were taken from the queue so far; it wraps. 0 where it did not ask for any.
    pub fn errors_taken(&self) -> u32 {
        self.errors.as_ref().map_or(0, |errors| errors.taken.load(Relaxed))
    }

    /// Takes note that an operation failed with this error. True: it may have been pending, and says
    /// nothing of that operation.
    #[inline]
    pub fn note_error(&self, errno: i32) -> bool {
        let noted = self.errors.is_some() && may_be_of_a_peer(errno);
        if noted {
            self.note_errors();
        }
        noted
    }

    /// Takes note that errors may wait.
    #[inline]
    pub fn note_errors(&self) {
        if let Some(errors) = &self.errors {
            errors.noted.store(true, Relaxed);
        }
    }

    /// Whether errors may wait; whoever asks is to take them, or to note them again.
    #[inline]
    pub(in crate::socket) fn take_note(&self) -> bool {
        let Some(Errors { noted, .. }) = &self.errors else { return false };
        noted.load(Relaxed) && noted.swap(false, Relaxed)
    }

    #[inline]
    fn was_pending(&self, e: &io::Error) -> bool {
        e.raw_os_error().is_some_and(|errno| self.note_error(errno))
    }

    /// What a receive answered; where that was a pending error, what receives without waiting answer:
    /// datagrams may lie behind it.
    #[inline]
    pub(super) fn receive_behind_errors<R>(
        &self,
        received: io::Result<R>,
        receive: impl FnMut() -> io::Result<R>,
    ) -> io::Result<R> {
        match received {
            Err(e) if self.was_pending(&e) => match self.again_behind_errors(e, receive) {
                Err(e) if self.was_pending(&e) => Err(io::ErrorKind::WouldBlock.into()),
                received => received,
            },
            received => received,
        }
    }

    /// Sends, and again where that met a pending error. Nobody takes errors from the queue meanwhile:
    /// each that is taken makes the next one pending, and all of them could meet this send.
    #[inline]
    pub(super) fn send_behind_errors<R>(
        &self,
        mut send: impl FnMut() -> io::Result<R>,
    ) -> io::Result<R> {
        match send() {
            Err(e) if self.was_pending(&e) => {
                let errors = self.errors.as_ref();
                let _none_is_taken = errors.map(Errors::while_none_is_taken);
                self.again_behind_errors(e, send)
            }
            sent => sent,
        }
    }

    /// Makes a call again that met a pending error.
    #[cold]
    fn again_behind_errors<R>(
        &self,
        met: io::Error,
        mut again: impl FnMut() -> io::Result<R>,
    ) -> io::Result<R> {
        let mut met = met;
        for _ in 0..TRIES {
            match again() {
                Err(e) if self.was_pending(&e) => met = e,
                result => return result,
            }
        }
        Err(met)
    }

    /// Takes an error from the queue, if there is one.
    pub(in crate::socket) fn take_error(
        &self,
        counters: &Counters,
    ) -> io::Result<Option<PeerError>> {
        #[repr(C, align(8))]
        struct Control([MaybeUninit<u8>; CONTROL_BYTES]);
        let Some(errors) = &self.errors else { return Ok(None) };
        let mut control = Control([MaybeUninit::uninit(); CONTROL_BYTES]);
        let mut name = MaybeUninit::<libc::sockaddr_storage>::uninit();
        // What came back of the datagram itself is not asked for.
        let mut vector = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let mut header = message::header(&mut vector, &mut name, None);
        header.msg_control = control.0.as_mut_ptr().cast();
        header.msg_controllen = CONTROL_BYTES as _;
        let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
        // SAFETY: the header points at a name, an empty vector and control data that outlive the call,
        // with their lengths.
        let take = || unsafe { libc::recvmsg(self.fd(), &mut header, flags) };
        let taken = {
            let _alone = errors.taking.write().unwrap_or_else(PoisonError::into_inner);
            entered(counters, take)
        };
        if unless_empty(taken)?.is_none() {
            return Ok(None);
        }
        errors.taken.fetch_add(1, Relaxed);
        // SAFETY: recvmsg filled name and control data, and says how much of each.
        Ok(unsafe { read_error(&header) })
    }
}

/// Reads what recvmsg with MSG_ERRQUEUE filled. `None`: it tells of no error.
///
/// # Safety
/// The kernel filled the header's name and control data, and they are still there.
unsafe fn read_error(header: &libc::msghdr) -> Option<PeerError> {
    let destination =
        // SAFETY: the caller vouches for the name, of msg_namelen bytes.
        unsafe { message::decode(header.msg_name.cast(), header.msg_namelen as usize) };
    // SAFETY: the caller vouches for the control data; the CMSG functions stay inside it.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(header) };
    while !next.is_null() {
        // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR return headers that lie inside the data.
        let (control, data) = unsafe { (&*next, libc::CMSG_DATA(next)) };
        let of = (control.cmsg_level, control.cmsg_type);
        let length: usize = control.cmsg_len as _; // 32 bits with some C libraries
        let bytes = length.saturating_sub(data as usize - next as usize);
        const ERROR_BYTES: usize = mem::size_of::<libc::sock_extended_err>();
        if (of == (libc::IPPROTO_IP, libc::IP_RECVERR)
            || of == (libc::IPPROTO_IPV6, libc::IPV6_RECVERR))
            && bytes >= ERROR_BYTES
        {
            // SAFETY: so many bytes are there, and the kernel puts a sock_extended_err behind this
            // header, and behind that the address of who told of it.
            let (told, by) = unsafe {
                let told = data.cast::<libc::sock_extended_err>().read_unaligned();
                (told, message::decode(data.add(ERROR_BYTES), bytes - ERROR_BYTES))
            };
            return Some(peer_error(destination, &told, by.ip()));
        }
        // SAFETY: as for CMSG_FIRSTHDR.
        next = unsafe { libc::CMSG_NXTHDR(header, next) };
    }
    None
}

fn peer_error(destination: SocketAddr, told: &libc::sock_extended_err, by: IpAddr) -> PeerError {
    let v6 = told.ee_origin == libc::SO_EE_ORIGIN_ICMP6;
    let by_icmp = v6 || told.ee_origin == libc::SO_EE_ORIGIN_ICMP;
    let errno = told.ee_errno as i32;
    PeerError {
        destination,
        errno,
        icmp: by_icmp.then_some(Icmp { v6, kind: told.ee_type, code: told.ee_code }),
        offender: (by_icmp && !by.is_unspecified()).then_some(by),
        path_mtu_bytes: (errno == libc::EMSGSIZE && told.ee_info > 0).then_some(told.ee_info),
    }
}
