//! accept4(2), recv(2), send(2).

#[path = "linux/local.rs"]
mod local;

pub(crate) use local::{OwnFile, bind_to};
pub use std::os::unix::net::{UnixDatagram, UnixListener};

use super::{Accepted, Keepalive, Mode, StreamOptions, UnixAddress, configure};
use crate::{Error, Unavailable, counters::Counters, socket::native::Ending};
use socket2::{Domain, Protocol, SockAddr, SockAddrStorage, SockRef, Socket, TcpKeepalive, Type};
use std::{
    ffi::OsString,
    io,
    mem::offset_of,
    net::{Shutdown, SocketAddr},
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
        linux::net::SocketAddrExt as _,
        unix::ffi::OsStringExt as _,
    },
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

/// A stream of which the system does not tell how many bytes it has received, with its other end.
#[cfg(test)]
pub fn of_unknown_bytes() -> Option<(super::Stream, impl Sized)> {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap(); // TCP_INFO is of TCP alone
    Some((Stream::adopt(ours.into()), theirs))
}

/// Always here.
#[expect(clippy::unnecessary_wraps, reason = "as on every system")]
pub fn unix_availability() -> Result<(), Unavailable> {
    Ok(())
}

/// A socket that listens.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    /// Ends waits, where others go on listening.
    ending: Option<Ending>,
    /// It is a Unix socket.
    is_local: bool,
    /// Accepting was ended: of a Unix socket that is not told where accepting does not wait.
    ended: AtomicBool,
    /// What goes with it.
    file: Option<local::OwnFile>,
}

/// Where nobody else has it.
impl Drop for Listener {
    fn drop(&mut self) {
        self.file.iter().for_each(local::OwnFile::remove);
    }
}

impl Listener {
    /// Always here.
    #[expect(clippy::unnecessary_wraps, reason = "as on every system")]
    pub fn availability() -> Result<(), Unavailable> {
        Ok(())
    }

    pub fn bind(address: SocketAddr, options: StreamOptions) -> Result<Self, Error> {
        let refused = |what: &str| {
            let what = format!("{what} on the socket for {address}");
            move |e| Error::io(what, e)
        };
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))
            .map_err(refused("opening"))?;
        // A server that was restarted finds connections of the last one that are not quite over.
        socket.set_reuse_address(true).map_err(refused("SO_REUSEADDR"))?;
        if options.reuse_port {
            let what = "an address shared by several sockets";
            let unavailable = |e| Unavailable::new(what, format!("SO_REUSEPORT: {e}"));
            socket.set_reuse_port(true).map_err(unavailable)?;
        }
        if options.only_v6 && address.is_ipv6() {
            socket.set_only_v6(true).map_err(refused("IPV6_V6ONLY"))?;
        }
        // What is accepted inherits these.
        configure(&socket, options, keep_alive).map_err(|(what, e)| refused(what)(e))?;
        socket.bind(&address.into()).map_err(|source| Error::Bind { address, source })?;
        let backlog = i32::try_from(options.backlog).unwrap_or(i32::MAX);
        // Two sockets may be bound to one address (SO_REUSEADDR), but only one may listen.
        socket.listen(backlog).map_err(|source| Error::Bind { address, source })?;
        // Accepting that waits asks for it by poll(2), so that waiting and trying need one socket.
        socket.set_nonblocking(true).map_err(refused("O_NONBLOCK"))?;
        Ok(Self { socket, ending: None, is_local: false, ended: false.into(), file: None })
    }

    pub fn bind_unix(
        address: &UnixAddress,
        mode: Option<u32>,
        options: StreamOptions,
    ) -> Result<Self, Error> {
        let (socket, file) = local::bind(address, mode, options)?;
        Ok(Self { socket, ending: None, is_local: true, ended: false.into(), file })
    }

    pub fn adopt_unix(listener: UnixListener) -> Result<(Self, UnixAddress), Error> {
        let own =
            listener.local_addr().map_err(|e| Error::io("asking for the local address", e))?;
        let abstract_name = || {
            let name = own.as_abstract_name().unwrap_or_default();
            UnixAddress::from(OsString::from_vec([b"@", name].concat()))
        };
        let address = own.as_pathname().map_or_else(abstract_name, UnixAddress::from);
        Ok((Self::adopt(Socket::from(listener))?, address))
    }

    pub fn adopt(socket: Socket) -> Result<Self, Error> {
        // SO_ACCEPTCONN.
        match socket.is_listener() {
            Ok(true) => {}
            Ok(false) => return Err(Error::option("listener", "the socket does not listen")),
            Err(e) => return Err(Error::io("SO_ACCEPTCONN", e)),
        }
        socket.set_nonblocking(true).map_err(|e| Error::io("O_NONBLOCK", e))?;
        let domain = socket.domain().map_err(|e| Error::io("SO_DOMAIN", e))?;
        Ok(Self {
            socket,
            ending: None,
            is_local: domain == Domain::UNIX,
            ended: false.into(),
            file: None,
        })
    }

    pub fn left_open(&self) -> Result<Self, Error> {
        let socket = self.socket.try_clone().map_err(|e| Error::io("dup", e))?;
        let ending = Ending::new().map_err(|e| Error::io("eventfd", e))?;
        Ok(Self {
            socket,
            ending: Some(ending),
            is_local: self.is_local,
            ended: false.into(),
            file: None,
        })
    }

    /// Whether others have the socket, too, and go on with it.
    pub fn is_left_open(&self) -> bool {
        self.ending.is_some()
    }

    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()?.as_socket().ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    pub fn granted(&self) -> Vec<(&'static str, String)> {
        let socket = &self.socket;
        let number = |value: io::Result<usize>| value.ok().map(|value| value.to_string());
        if self.is_local {
            let sends = number(socket.send_buffer_size());
            return sends.map(|bytes| ("unix-send-buffer-bytes", bytes)).into_iter().collect();
        }
        let obtained = [
            ("receive-buffer-bytes", number(socket.recv_buffer_size())),
            ("send-buffer-bytes", number(socket.send_buffer_size())),
            ("backlog-obtained", self.backlog().ok().map(|backlog| backlog.to_string())),
            ("keepalive", keepalive(socket).ok()),
        ];
        obtained.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }

    /// Connections that may wait to be accepted, after the system's own limit.
    fn backlog(&self) -> io::Result<u32> {
        // For a socket that listens, the length of its queue stands there (tcp_get_info of Linux).
        Ok(tcp_info(self.fd())?.0.tcpi_sacked)
    }

    #[inline]
    pub fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    pub fn accept(&self, mode: Mode, counters: &Counters) -> io::Result<Option<Accepted>> {
        let mut is_over = false;
        loop {
            if self.ending.as_ref().is_some_and(Ending::is_over)
                || self.is_local && self.ended.load(SeqCst)
            {
                return Ok(None);
            }
            match self.accept_now() {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => match mode {
                    Mode::Try => return Ok(None),
                    Mode::Wait if is_over => return Ok(None),
                    Mode::Wait => {
                        counters.kernel_entries.one();
                        is_over = self.wait()?;
                    }
                },
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                // Accepting was ended.
                Err(e) if e.raw_os_error() == Some(libc::EINVAL) => return Ok(None),
                result => return result.map(Some),
            }
            counters.kernel_entries.one();
        }
    }

    pub fn end_accepting(&self) {
        if let Some(ending) = &self.ending {
            return ending.end();
        }
        // Who comes from here on is to find nobody rather than somebody who has just left.
        self.file.iter().for_each(local::OwnFile::remove);
        self.ended.store(true, SeqCst);
        // It ends the listening, and wakes whoever waits for it.
        let _ = self.socket.shutdown(Shutdown::Read);
    }

    fn accept_now(&self) -> io::Result<Accepted> {
        let mut storage = SockAddrStorage::zeroed();
        let mut len = storage.size_of();
        // SAFETY: the kernel writes at most `len` bytes of an address into the storage, and says
        // into `len` how many.
        let fd = unsafe {
            let name: *mut libc::sockaddr = (&raw mut storage).cast();
            libc::accept4(self.fd(), name, &raw mut len, libc::SOCK_CLOEXEC)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor, which nobody else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: the kernel has written an address of this length.
        let peer = unsafe { SockAddr::new(storage, len) };
        match peer.as_socket() {
            Some(peer) => Ok(Accepted { stream: Stream::adopt(fd), peer }),
            None if self.is_local => Stream::adopt_unix(fd),
            None => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Whether it is a Unix socket.
    pub fn is_local(&self) -> bool {
        self.is_local
    }

    /// Waits for somebody to come, or the end. Says whether another who has the socket has ended the listening: a Unix
    /// socket does not tell that otherwise, and is ready ever after.
    fn wait(&self) -> io::Result<bool> {
        let ending = self.ending.as_ref().map_or(-1, Ending::fd); // which is passed over
        let events = libc::POLLIN | libc::POLLRDHUP;
        let mut entries = [self.fd(), ending].map(|fd| libc::pollfd { fd, events, revents: 0 });
        // SAFETY: two entries, which outlive the call.
        if unsafe { libc::poll(entries.as_mut_ptr(), 2, -1) } < 0 {
            let e = io::Error::last_os_error();
            if e.kind() != io::ErrorKind::Interrupted {
                return Err(e);
            }
        }
        Ok(self.is_local && entries[0].revents & libc::POLLRDHUP != 0)
    }
}

impl AsRawFd for Listener {
    fn as_raw_fd(&self) -> RawFd {
        self.fd()
    }
}

/// Has the system ask a silent peer.
fn keep_alive(socket: &Socket, asked: Keepalive) -> io::Result<()> {
    let whole = |time: Duration| Duration::from_secs(time.as_secs_f64().ceil() as u64);
    let keepalive = TcpKeepalive::new().with_time(whole(asked.idle));
    let keepalive = keepalive.with_interval(whole(asked.interval)).with_retries(asked.tries);
    socket.set_tcp_keepalive(&keepalive)
}

/// A connection.
#[derive(Debug)]
pub struct Stream {
    fd: OwnedFd,
    /// What a Unix socket has received, which its system does not count. By itself, so that one of TCP is no larger.
    count: Option<Box<local::Count>>,
}

impl AsRawFd for Stream {
    fn as_raw_fd(&self) -> RawFd {
        self.fd()
    }
}

impl Stream {
    pub fn connect(to: SocketAddr, options: StreamOptions) -> io::Result<super::Stream> {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
        configure(&socket, options, keep_alive).map_err(|(_, e)| e)?;
        socket.set_nonblocking(true)?;
        match socket.connect(&to.into()) {
            Ok(()) => {}
            Err(e) if e.raw_os_error() == Some(libc::EINPROGRESS) => {}
            Err(e) => return Err(e),
        }
        // As what is accepted: who tries says so with each call.
        socket.set_nonblocking(false)?;
        Ok(Self::adopt(socket.into()))
    }

    /// A connection that was accepted by other means than [`Listener::accept`].
    pub fn adopt(fd: OwnedFd) -> super::Stream {
        super::Stream { native: Arc::new(Self { fd, count: None }) }
    }

    /// A connection of a Unix socket, and who is at its other end.
    pub fn adopt_unix(fd: OwnedFd) -> io::Result<Accepted> {
        let peer = local::peer(fd.as_raw_fd()).into();
        let count = Some(Box::new(local::Count::of(fd.as_raw_fd())?));
        let stream = super::Stream { native: Arc::new(Self { fd, count }) };
        Ok(Accepted { stream, peer })
    }

    pub fn connect_unix(to: &UnixAddress, options: StreamOptions) -> io::Result<Accepted> {
        Self::adopt_unix(local::connect(to, options)?)
    }

    /// Whether it is one of a Unix socket.
    #[inline]
    pub fn is_local(&self) -> bool {
        self.count.is_some()
    }

    /// So many bytes were received from a Unix socket by other means than [`receive`](Self::receive), and are about to be
    /// handled; no receive of it is under way.
    #[inline]
    pub fn delivered(&self, bytes: usize) {
        if let Some(count) = &self.count {
            count.delivered(self.fd(), bytes);
        }
    }

    /// Bytes of a Unix socket that have come and were not [`delivered`](Self::delivered).
    pub fn undelivered(&self) -> io::Result<usize> {
        let Some(count) = &self.count else { return self.waiting() };
        let left = self.received_in_all()?.saturating_sub(count.all_delivered());
        Ok(usize::try_from(left).unwrap_or(usize::MAX))
    }

    #[inline]
    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    pub fn socket(&self) -> SockRef<'_> {
        SockRef::from(&self.fd)
    }

    #[inline]
    pub fn receive(
        &self,
        buffer: &mut [u8],
        mode: Mode,
        _: &Counters,
    ) -> io::Result<Option<usize>> {
        // SAFETY: the kernel writes at most as many bytes as the buffer has.
        let received = settled(|| unsafe {
            libc::recv(self.fd(), buffer.as_mut_ptr().cast(), buffer.len(), flags(mode))
        });
        if let (Some(count), Ok(Some(bytes))) = (&self.count, &received) {
            count.delivered(self.fd(), *bytes);
        }
        received
    }

    #[inline]
    pub fn send(&self, bytes: &[u8], mode: Mode, _: &Counters) -> io::Result<Option<usize>> {
        // SAFETY: the kernel reads as many bytes as there are.
        settled(|| unsafe {
            let flags = flags(mode) | libc::MSG_NOSIGNAL;
            libc::send(self.fd(), bytes.as_ptr().cast(), bytes.len(), flags)
        })
    }

    /// A shutdown wakes who waits. What has come can still be received here.
    pub fn end_receiving(&self) {
        self.shut(Shutdown::Read);
    }

    pub fn end(&self) {
        self.shut(Shutdown::Both);
    }

    fn shut(&self, how: Shutdown) {
        // One that is over already needs no ending.
        let _ = self.socket().shutdown(how);
    }

    /// SO_RCVTIMEO and SO_SNDTIMEO: the kernel counts in its ticks, rounded up, and looks at the socket once more
    /// before it gives up. A signal that interrupts the thread begins the time anew.
    pub fn set_timeouts(
        &self,
        receive: Option<Duration>,
        send: Option<Duration>,
    ) -> io::Result<()> {
        // No time at all means for ever.
        let least = Duration::from_micros(1);
        self.socket().set_read_timeout(receive.map(|time| time.max(least)))?;
        self.socket().set_write_timeout(send.map(|time| time.max(least)))
    }

    pub fn waiting(&self) -> io::Result<usize> {
        let mut bytes: libc::c_int = 0;
        // SAFETY: this call writes one int, which outlives it (tcp(7), SIOCINQ).
        if unsafe { libc::ioctl(self.fd(), libc::FIONREAD, &raw mut bytes) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(bytes.max(0) as usize)
    }

    pub fn is_hung_up(&self) -> bool {
        let mut entry = libc::pollfd { fd: self.fd(), events: 0, revents: 0 };
        // SAFETY: one entry, which outlives the call.
        let ready = unsafe { libc::poll(&raw mut entry, 1, 0) };
        ready == 1 && entry.revents & libc::POLLHUP != 0
    }

    pub fn received_in_all(&self) -> io::Result<u64> {
        if let Some(count) = &self.count {
            return count.in_all(self.fd(), || self.waiting());
        }
        let (info, len) = tcp_info(self.fd())?;
        bytes_received(&info, len)
    }
}

/// When the system asks a silent peer, in the words of [`Keepalive`].
pub fn keepalive(socket: &Socket) -> io::Result<String> {
    if !socket.keepalive()? {
        return Ok("never".into());
    }
    let (idle, interval) = (socket.tcp_keepalive_time()?, socket.tcp_keepalive_interval()?);
    Ok(Keepalive { idle, interval, tries: socket.tcp_keepalive_retries()? }.to_string())
}

/// What the system says of a connection, and how many bytes of that it has written.
fn tcp_info(fd: RawFd) -> io::Result<(libc::tcp_info, usize)> {
    // SAFETY: numbers only, for which zero is a value.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut len = size_of_val(&info) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, which is what the struct has.
    let answer = unsafe {
        let into = (&raw mut info).cast();
        libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, into, &raw mut len)
    };
    if answer < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((info, len as usize))
}

/// Bytes received and acknowledged, where the first `len` bytes of this were written: since Linux 4.1.
fn bytes_received(info: &libc::tcp_info, len: usize) -> io::Result<u64> {
    let end = offset_of!(libc::tcp_info, tcpi_bytes_received) + size_of::<u64>();
    if len < end {
        let why = "the kernel does not tell how many bytes a connection has received (tcpi_bytes_received of tcp(7)); \
                   use Linux 4.1 or later";
        return Err(io::Error::new(io::ErrorKind::Unsupported, why));
    }
    Ok(info.tcpi_bytes_received)
}

fn flags(mode: Mode) -> libc::c_int {
    match mode {
        Mode::Wait => 0,
        Mode::Try => libc::MSG_DONTWAIT,
    }
}

/// Calls until no signal came in between, and makes "not now" a `None`.
#[inline]
fn settled(mut call: impl FnMut() -> isize) -> io::Result<Option<usize>> {
    loop {
        let count = call();
        if count >= 0 {
            return Ok(Some(count as usize));
        }
        let e = io::Error::last_os_error();
        match e.kind() {
            io::ErrorKind::Interrupted => {}
            io::ErrorKind::WouldBlock => return Ok(None),
            _ => return Err(e),
        }
    }
}

/// What accepting fails with for want of descriptors or memory.
pub const WANT_OF_RESOURCES: &[i32] = &[libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM];

/// What it fails with for one connection only.
pub const OF_ONE_CONNECTION: &[i32] = &[
    libc::ECONNABORTED,
    libc::EPERM, // a firewall's
    libc::EPROTO,
    libc::ENETDOWN,
    libc::ENOPROTOOPT,
    libc::EHOSTDOWN,
    libc::ENONET,
    libc::EHOSTUNREACH,
    libc::EOPNOTSUPP,
    libc::ENETUNREACH,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_does_not_count_is_an_error_and_not_a_zero() {
        // SAFETY: numbers only, for which zero is a value.
        let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
        info.tcpi_bytes_received = 7;
        assert_eq!(bytes_received(&info, size_of_val(&info)).unwrap(), 7);
        // As much as Linux 3.15 wrote.
        let least = offset_of!(libc::tcp_info, tcpi_bytes_received);
        let error = bytes_received(&info, least).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
    }
}
