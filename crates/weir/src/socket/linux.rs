//! Datagram sockets of Linux: recvfrom(2) (recvmsg(2) where control data is asked for),
//! recvmmsg(2), sendto(2), sendmmsg(2).

use super::{Arrival, Endpoint, Mode};
use crate::{Error, counters::Counters};
use socket2::{Domain, Protocol, Socket, Type};
use std::{
    io,
    mem::{self, MaybeUninit},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6},
    os::fd::{AsRawFd, RawFd},
    time::Duration,
};

/// recvmmsg and sendmmsg move a whole batch with one entry into the kernel.
pub const BATCHES_IN_ONE_CALL: bool = true;

/// Room for the control data of one datagram: packet information (IPv6, the larger) and a
/// time stamp, each with its header.
pub(crate) const CONTROL_BYTES: usize = 128;

/// A bound socket.
#[derive(Debug)]
pub struct Native {
    socket: Socket,
    control: bool,
}

impl Native {
    pub(super) fn open(endpoint: &Endpoint) -> Result<Self, Error> {
        let Endpoint { address, options } = *endpoint;
        let refused = |what: &str| {
            let what = format!("{what} on the socket for {address}");
            move |e| Error::io(what, e)
        };
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))
            .map_err(refused("opening"))?;
        if let Some(bytes) = options.receive_buffer_bytes {
            socket.set_recv_buffer_size(bytes).map_err(refused("SO_RCVBUF"))?;
        }
        if let Some(bytes) = options.send_buffer_bytes {
            socket.set_send_buffer_size(bytes).map_err(refused("SO_SNDBUF"))?;
        }
        if options.reuse_port {
            socket.set_reuse_port(true).map_err(refused("SO_REUSEPORT"))?;
        }
        if options.local_address {
            let (level, name) = match address {
                SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_PKTINFO),
                SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
            };
            set_flag(&socket, level, name).map_err(refused("IP_PKTINFO"))?;
        }
        if options.receive_time {
            set_flag(&socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS)
                .map_err(refused("SO_TIMESTAMPNS"))?;
        }
        socket.bind(&address.into()).map_err(|source| Error::Bind { address, source })?;
        Ok(Self { socket, control: options.local_address || options.receive_time })
    }

    /// The descriptor, for providers that hand it to a ring.
    pub fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Whether its datagrams carry control data (local address, receive time).
    pub fn has_control(&self) -> bool {
        self.control
    }

    pub(super) fn local_address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()?.as_socket().ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    pub(super) fn receive_buffer_bytes(&self) -> io::Result<usize> {
        self.socket.recv_buffer_size()
    }

    #[inline]
    pub(super) fn receive(
        &self,
        buffer: &mut [u8],
        mode: Mode,
        counters: &Counters,
    ) -> io::Result<Option<Arrival>> {
        let mut name = MaybeUninit::<libc::sockaddr_storage>::uninit();
        if self.control {
            return self.receive_with_control(buffer, &mut name, mode, counters);
        }
        loop {
            counters.kernel_entries.one();
            let mut length = mem::size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            // SAFETY: buffer, name and length outlive the call, with the sizes given. MSG_TRUNC
            // makes the kernel return the datagram's own length; it writes no more than fits.
            let n = unsafe {
                libc::recvfrom(
                    self.fd(),
                    buffer.as_mut_ptr().cast(),
                    buffer.len(),
                    mode.flags() | libc::MSG_TRUNC,
                    name.as_mut_ptr().cast(),
                    &mut length,
                )
            };
            if n >= 0 {
                // Without a name nobody sent it: this is how the kernel says that receiving was
                // ended.
                return Ok((length > 0).then(|| Arrival {
                    len: (n as usize).min(buffer.len()),
                    // SAFETY: recvfrom wrote `length` bytes of the name.
                    from: unsafe { decode(name.as_ptr().cast(), length as usize) },
                    local: None,
                    truncated: n as usize > buffer.len(),
                    at: None,
                }));
            }
            match io::Error::last_os_error() {
                e if e.kind() == io::ErrorKind::Interrupted => continue,
                e if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                e => return Err(e),
            }
        }
    }

    fn receive_with_control(
        &self,
        buffer: &mut [u8],
        name: &mut MaybeUninit<libc::sockaddr_storage>,
        mode: Mode,
        counters: &Counters,
    ) -> io::Result<Option<Arrival>> {
        let mut control = MaybeUninit::<Control>::uninit();
        let mut vector =
            libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        let mut header = header(&mut vector, name, Some(&mut control));
        loop {
            counters.kernel_entries.one();
            // SAFETY: the header points at a name, a vector and control data that outlive the
            // call, and at the caller's buffer.
            let n = unsafe { libc::recvmsg(self.fd(), &mut header, mode.flags()) };
            if n >= 0 {
                return Ok((header.msg_namelen > 0).then(|| {
                    // SAFETY: recvmsg filled the name and the control data of this header.
                    unsafe { arrival(&header, n as usize) }
                }));
            }
            match io::Error::last_os_error() {
                e if e.kind() == io::ErrorKind::Interrupted => continue,
                e if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                e => return Err(e),
            }
        }
    }

    #[inline]
    pub(super) fn send(
        &self,
        bytes: &[u8],
        to: &SocketAddr,
        counters: &Counters,
    ) -> io::Result<()> {
        let (name, length) = encode(to);
        loop {
            counters.kernel_entries.one();
            // SAFETY: bytes and name outlive the call, and length is the name's.
            let n = unsafe {
                libc::sendto(
                    self.fd(),
                    bytes.as_ptr().cast(),
                    bytes.len(),
                    libc::MSG_DONTWAIT,
                    (&raw const name).cast(),
                    length,
                )
            };
            if n >= 0 {
                return Ok(());
            }
            let e = io::Error::last_os_error();
            if e.kind() != io::ErrorKind::Interrupted {
                return Err(e);
            }
        }
    }

    /// shutdown(2) on an unconnected UDP socket answers ENOTCONN, but it does mark the
    /// socket and wake everyone who waits on it (inet_shutdown, since Linux 2.6).
    pub(super) fn end_receiving(&self, _local_address: SocketAddr) {
        let _ = self.socket.shutdown(std::net::Shutdown::Read);
    }
}

fn set_flag(socket: &Socket, level: libc::c_int, name: libc::c_int) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the option's value is an int, which lives through the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const on).cast(),
            mem::size_of_val(&on) as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

impl Mode {
    fn flags(self) -> libc::c_int {
        match self {
            Mode::Wait => 0,
            Mode::Try => libc::MSG_DONTWAIT,
        }
    }
}

/// Control data, aligned as the kernel's headers want it.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; CONTROL_BYTES]);

fn header(
    vector: &mut libc::iovec,
    name: &mut MaybeUninit<libc::sockaddr_storage>,
    control: Option<&mut MaybeUninit<Control>>,
) -> libc::msghdr {
    // SAFETY: all zeroes is a valid msghdr.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    header.msg_name = name.as_mut_ptr().cast();
    header.msg_namelen = mem::size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    header.msg_iov = vector;
    header.msg_iovlen = 1;
    if let Some(control) = control {
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = CONTROL_BYTES as _;
    }
    header
}

/// Reads a header that recvmsg filled.
///
/// # Safety
/// The kernel filled the header's name and control data, and they are still there.
#[inline]
unsafe fn arrival(header: &libc::msghdr, len: usize) -> Arrival {
    // SAFETY: the caller vouches for the name, of msg_namelen bytes.
    let from = unsafe { decode(header.msg_name.cast(), header.msg_namelen as usize) };
    let mut arrival = Arrival {
        len,
        from,
        local: None,
        truncated: header.msg_flags & libc::MSG_TRUNC != 0,
        at: None,
    };
    if header.msg_controllen > 0 {
        // SAFETY: the caller vouches for the control data, of msg_controllen bytes.
        unsafe { read_control(header, &mut arrival) };
    }
    arrival
}

/// Reads packet information and time stamp from the control data of a header.
///
/// # Safety
/// `msg_control` points at `msg_controllen` bytes that the kernel filled.
pub(crate) unsafe fn read_control(header: &libc::msghdr, arrival: &mut Arrival) {
    // SAFETY: the caller vouches for the control data; the CMSG functions stay inside it.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(header) };
    while !next.is_null() {
        // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR return headers that lie inside the data.
        let control = unsafe { &*next };
        // SAFETY: as above; the data follows its header.
        let data = unsafe { libc::CMSG_DATA(next) };
        match (control.cmsg_level, control.cmsg_type) {
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                // SAFETY: the kernel puts an in_pktinfo behind this header.
                let info: libc::in_pktinfo =
                    unsafe { data.cast::<libc::in_pktinfo>().read_unaligned() };
                arrival.local = Some(Ipv4Addr::from(info.ipi_addr.s_addr.to_ne_bytes()).into());
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                // SAFETY: the kernel puts an in6_pktinfo behind this header.
                let info: libc::in6_pktinfo =
                    unsafe { data.cast::<libc::in6_pktinfo>().read_unaligned() };
                arrival.local = Some(IpAddr::from(Ipv6Addr::from(info.ipi6_addr.s6_addr)));
            }
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                // SAFETY: the kernel puts a timespec behind this header.
                let at: libc::timespec = unsafe { data.cast::<libc::timespec>().read_unaligned() };
                arrival.at = Some(Duration::new(at.tv_sec as u64, at.tv_nsec as u32));
            }
            _ => {}
        }
        // SAFETY: as for CMSG_FIRSTHDR.
        next = unsafe { libc::CMSG_NXTHDR(header, next) };
    }
}

/// An address of no one, for a name of a family that is not the internet's.
pub(crate) const NOBODY: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));

/// Reads a socket address as the kernel writes it.
///
/// # Safety
/// `name` points at `length` readable bytes.
#[inline]
pub(crate) unsafe fn decode(name: *const u8, length: usize) -> SocketAddr {
    if length < mem::size_of::<libc::sa_family_t>() {
        return NOBODY;
    }
    // SAFETY: at least a family is there.
    let family = unsafe { name.cast::<libc::sa_family_t>().read_unaligned() };
    if family == libc::AF_INET as libc::sa_family_t && length >= mem::size_of::<libc::sockaddr_in>()
    {
        // SAFETY: the length covers a sockaddr_in.
        let v4 = unsafe { name.cast::<libc::sockaddr_in>().read_unaligned() };
        SocketAddrV4::new(v4.sin_addr.s_addr.to_ne_bytes().into(), u16::from_be(v4.sin_port)).into()
    } else if family == libc::AF_INET6 as libc::sa_family_t
        && length >= mem::size_of::<libc::sockaddr_in6>()
    {
        // SAFETY: the length covers a sockaddr_in6.
        let v6 = unsafe { name.cast::<libc::sockaddr_in6>().read_unaligned() };
        SocketAddrV6::new(
            v6.sin6_addr.s6_addr.into(),
            u16::from_be(v6.sin6_port),
            v6.sin6_flowinfo,
            v6.sin6_scope_id,
        )
        .into()
    } else {
        NOBODY
    }
}

/// A name large enough for both families of the internet.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) union Name {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

/// Writes a socket address as the kernel reads it, with its length.
#[inline]
pub(crate) fn encode(address: &SocketAddr) -> (Name, libc::socklen_t) {
    match address {
        SocketAddr::V4(v4) => (
            Name {
                v4: libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: v4.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                    sin_zero: [0; 8],
                },
            },
            mem::size_of::<libc::sockaddr_in>() as libc::socklen_t,
        ),
        SocketAddr::V6(v6) => (
            Name {
                v6: libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: v6.port().to_be(),
                    sin6_flowinfo: v6.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                    sin6_scope_id: v6.scope_id(),
                },
            },
            mem::size_of::<libc::sockaddr_in6>() as libc::socklen_t,
        ),
    }
}

/// Message headers for a batch, made once and used again for every call.
pub struct Headers {
    headers: Box<[libc::mmsghdr]>,
    vectors: Box<[libc::iovec]>,
    names: Box<[MaybeUninit<libc::sockaddr_storage>]>,
    control: Box<[MaybeUninit<Control>]>,
    received: usize,
}

// SAFETY: the pointers in the headers are set anew from borrowed buffers in every call and
// are not followed outside it; what they point at otherwise belongs to this value.
unsafe impl Send for Headers {}

impl Headers {
    /// Headers for batches of up to `capacity` datagrams.
    pub fn new(capacity: usize) -> Self {
        // SAFETY: all zeroes is a valid mmsghdr and a valid iovec.
        let (header, vector) = unsafe { (mem::zeroed::<libc::mmsghdr>(), mem::zeroed()) };
        Self {
            headers: vec![header; capacity].into(),
            vectors: vec![vector; capacity].into(),
            names: vec![MaybeUninit::uninit(); capacity].into(),
            control: vec![MaybeUninit::uninit(); capacity].into(),
            received: 0,
        }
    }

    pub(super) fn receive<B: AsMut<[u8]>>(
        &mut self,
        native: &Native,
        buffers: &mut [B],
        mode: Mode,
        counters: &Counters,
    ) -> io::Result<usize> {
        self.received = 0;
        let count = buffers.len().min(self.headers.len());
        for (i, buffer) in buffers.iter_mut().take(count).enumerate() {
            let buffer = buffer.as_mut();
            self.vectors[i] =
                libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
            self.headers[i].msg_hdr = header(
                &mut self.vectors[i],
                &mut self.names[i],
                native.control.then_some(&mut self.control[i]),
            );
        }
        let flags = mode.flags() | if mode == Mode::Wait { libc::MSG_WAITFORONE } else { 0 };
        loop {
            counters.kernel_entries.one();
            // SAFETY: the first `count` headers point at names, vectors and control data of
            // this value and at the caller's buffers, all borrowed through the call.
            let n = unsafe {
                libc::recvmmsg(
                    native.fd(),
                    self.headers.as_mut_ptr(),
                    count as libc::c_uint,
                    flags as _,
                    std::ptr::null_mut(),
                )
            };
            if n >= 0 {
                // A header without a name is the end of receiving, and so is all behind it.
                let named =
                    self.headers[..n as usize].iter().take_while(|h| h.msg_hdr.msg_namelen > 0);
                self.received = named.count();
                return Ok(self.received);
            }
            match io::Error::last_os_error() {
                e if e.kind() == io::ErrorKind::Interrupted => continue,
                e if e.kind() == io::ErrorKind::WouldBlock => return Ok(0),
                e => return Err(e),
            }
        }
    }

    /// The datagram in buffer `i` of the last [`receive_many`](super::DatagramSocket::receive_many).
    #[inline]
    pub fn arrival(&self, i: usize) -> Arrival {
        assert!(i < self.received, "datagram {i} of {}", self.received);
        let header = &self.headers[i];
        // SAFETY: the last call filled the first `received` headers, and their names and
        // control data belong to this value.
        unsafe { arrival(&header.msg_hdr, header.msg_len as usize) }
    }

    pub(super) fn send<'a>(
        &mut self,
        native: &Native,
        count: usize,
        mut datagram: impl FnMut(usize) -> (&'a [u8], SocketAddr),
        counters: &Counters,
    ) -> io::Result<usize> {
        self.received = 0;
        let count = count.min(self.headers.len());
        for i in 0..count {
            let (bytes, to) = datagram(i);
            self.vectors[i] =
                libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
            let mut header = header(&mut self.vectors[i], &mut self.names[i], None);
            let (name, length) = encode(&to);
            // SAFETY: a Name is smaller than the storage it is written to.
            unsafe { self.names[i].as_mut_ptr().cast::<Name>().write_unaligned(name) };
            header.msg_namelen = length;
            self.headers[i].msg_hdr = header;
        }
        loop {
            counters.kernel_entries.one();
            // SAFETY: as in `receive`; the bytes live for 'a, beyond this call, and are only read.
            let n = unsafe {
                libc::sendmmsg(
                    native.fd(),
                    self.headers.as_mut_ptr(),
                    count as libc::c_uint,
                    libc::MSG_DONTWAIT as _,
                )
            };
            if n >= 0 {
                return Ok(n as usize);
            }
            let e = io::Error::last_os_error();
            if e.kind() != io::ErrorKind::Interrupted {
                return Err(e);
            }
        }
    }
}
