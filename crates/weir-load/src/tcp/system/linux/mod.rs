//! Linux: epoll(7), edge-triggered, so that a socket is added once and costs no other call; sockets
//! that never wait; and io_uring (`ring`).

mod ring;

pub(crate) use ring::Ring;

use super::Ready;
use socket2::{Domain, Protocol, SockAddr, Socket as Socket2, Type};
use std::{
    ffi::OsStr,
    fs::File,
    io,
    net::{IpAddr, Shutdown, SocketAddr},
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
        unix::ffi::OsStrExt as _,
    },
    path::Path,
    sync::Arc,
};
use weir::{Unavailable, stream::UnixAddress};

/// The wake event's token; numbers of sockets fit in 32 bits.
const WAKE_EVENT: u64 = u64::MAX;

pub(crate) fn availability() -> Result<(), Unavailable> {
    epoll()
        .map(drop)
        .map_err(|e| Unavailable::new("the load of connections", format!("epoll_create1: {e}")))
}

/// A connection that is being made, or stands.
#[derive(Debug)]
pub(crate) struct Socket(OwnedFd);

impl Socket {
    /// Begins to connect, from `source` or an address of the system's choice; with buffers of that size, or the
    /// system's.
    pub(crate) fn connect(
        target: SocketAddr,
        source: Option<IpAddr>,
        buffer_bytes: Option<usize>,
    ) -> io::Result<Self> {
        let domain = Domain::for_address(target);
        let socket = Socket2::new(domain, Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
        // A message leaves when it is sent.
        socket.set_tcp_nodelay(true)?;
        if let Some(bytes) = buffer_bytes {
            // The window that the server is offered follows from it, so it comes before the connect.
            socket.set_recv_buffer_size(bytes)?;
            socket.set_send_buffer_size(bytes)?;
        }
        if let Some(source) = source {
            // The port is chosen by connect(2), which needs one that is free for this target only
            // (Linux 4.2). Without it one is chosen here, which is free for all.
            let _ = set_option(&socket, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1);
            socket.bind(&SocketAddr::new(source, 0).into())?;
        }
        match socket.connect(&target.into()) {
            Err(e) if e.raw_os_error() != Some(libc::EINPROGRESS) => Err(e),
            _ => Ok(Self(socket.into())),
        }
    }

    /// Connects to a Unix socket, with buffers of that size, or the system's.
    pub(crate) fn connect_unix(
        target: &UnixAddress,
        buffer_bytes: Option<usize>,
    ) -> io::Result<Self> {
        let address = match target.abstract_name() {
            Some(name) => SockAddr::unix(OsStr::from_bytes(&[b"\0", name].concat())),
            None => SockAddr::unix(target.path().unwrap_or(Path::new(""))),
        };
        let too_long = |_| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                "its name is too long: use at most 107 bytes",
            )
        };
        let address = address.map_err(too_long)?;
        let socket = Socket2::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
        if let Some(bytes) = buffer_bytes {
            socket.set_recv_buffer_size(bytes)?;
            socket.set_send_buffer_size(bytes)?;
        }
        // It stands at once, or not at all.
        socket.connect(&address)?;
        Ok(Self(socket.into()))
    }

    /// Of a socket that became ready: whether it is connected.
    pub(crate) fn connected(&self) -> io::Result<()> {
        match socket2::SockRef::from(&self.0).take_error()? {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Receives: how many bytes, 0 for the end, `None` where nothing is there.
    #[inline]
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        // SAFETY: the kernel writes at most as many bytes as the buffer has.
        settled(|| unsafe {
            libc::recv(self.fd(), buffer.as_mut_ptr().cast(), buffer.len(), libc::MSG_DONTWAIT)
        })
    }

    /// Sends the beginning of `bytes`: how many, or `None` where there is no room.
    #[inline]
    pub(crate) fn send(&self, bytes: &[u8]) -> io::Result<Option<usize>> {
        // SAFETY: the kernel reads as many bytes as there are.
        settled(|| unsafe {
            let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
            libc::send(self.fd(), bytes.as_ptr().cast(), bytes.len(), flags)
        })
    }

    /// Sends what lies at a place of a file, without copying it: how many bytes, 0 where the file ends
    /// before, or `None` where there is no room. SIGPIPE, which it would raise where nobody receives any
    /// more, is ignored in programs in Rust.
    pub(crate) fn send_file(&self, file: &File, at: u64, len: usize) -> io::Result<Option<usize>> {
        let at = libc::off_t::try_from(at).map_err(io::Error::other)?;
        settled(|| {
            let mut at = at;
            // SAFETY: the kernel reads and writes the offset, which outlives the call.
            unsafe { libc::sendfile(self.fd(), file.as_raw_fd(), &raw mut at, len) }
        })
    }

    /// What it has said to have sent of a file has gone: none is under way.
    pub(crate) fn is_sending_a_file(&self) -> bool {
        false
    }

    /// So the file was not short of it either.
    #[expect(clippy::unnecessary_wraps, reason = "as on every system")]
    pub(crate) fn file_was_short(&self) -> io::Result<bool> {
        Ok(false)
    }

    /// Tells the server that nothing follows.
    pub(crate) fn end_sending(&self) -> io::Result<()> {
        socket2::SockRef::from(&self.0).shutdown(Shutdown::Write)
    }

    /// Ends both directions: what has come can be received, and then its end.
    pub(crate) fn end_both(&self) {
        // It fails where the connection is gone, and then its end is there.
        let _ = socket2::SockRef::from(&self.0).shutdown(Shutdown::Both);
    }

    #[inline]
    fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

fn set_option(
    socket: &impl AsRawFd,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: the kernel reads an int, which outlives the call.
    let result = unsafe {
        let len = size_of_val(&value) as libc::socklen_t;
        libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), len)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
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

/// Ends a wait of its set, now or the next one.
#[derive(Debug, Clone)]
pub(crate) struct WakeEvent(Arc<OwnedFd>);

impl WakeEvent {
    pub(crate) fn signal(&self) {
        let one = 1u64;
        // SAFETY: the kernel reads eight bytes. It fails only at a count of 2^64 that nobody has read, and
        // then it is signalled still.
        unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), size_of::<u64>()) };
    }
}

/// Sockets that are waited for.
#[derive(Debug)]
pub(crate) struct Set {
    epoll: OwnedFd,
    wake_event: WakeEvent,
    events: Vec<libc::epoll_event>,
    ready: usize,
    /// Whether waits are precise (epoll_pwait2, Linux 5.11).
    precise: bool,
}

impl Set {
    /// An empty set, of which one wait tells so many sockets at most.
    pub(crate) fn new(events_max: usize) -> io::Result<Self> {
        let epoll = epoll()?;
        // SAFETY: takes no pointers.
        let wake_event = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if wake_event < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor, which nobody else owns.
        let wake_event = WakeEvent(Arc::new(unsafe { OwnedFd::from_raw_fd(wake_event) }));
        let nothing = libc::epoll_event { events: 0, u64: 0 };
        let events = vec![nothing; events_max.max(1)];
        let set = Self { epoll, wake_event, events, ready: 0, precise: true };
        // Told each time that it is signalled, it need not be read.
        set.control(set.wake_event.0.as_raw_fd(), libc::EPOLLIN | libc::EPOLLET, WAKE_EVENT)?;
        Ok(set)
    }

    pub(crate) fn wake_event(&self) -> WakeEvent {
        self.wake_event.clone()
    }

    pub(crate) fn add(&mut self, socket: &Socket, number: u32) -> io::Result<()> {
        let events = libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET;
        self.control(socket.fd(), events, number.into())
    }

    /// Room is told as everything else.
    #[inline]
    #[expect(clippy::unnecessary_wraps, reason = "as on every system")]
    pub(crate) fn await_room(&mut self, _: &Socket, _: u32) -> io::Result<()> {
        Ok(())
    }

    /// The kernel forgets what is closed.
    pub(crate) fn forget(&mut self, _: u32) {}

    fn control(&self, fd: RawFd, events: libc::c_int, token: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: events as u32, u64: token };
        // SAFETY: the event outlives the call, which copies it.
        let result = unsafe {
            libc::epoll_ctl(self.epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &raw mut event)
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Waits until a socket is ready, the wake event is signalled, or so long; returns how many are ready.
    pub(crate) fn wait(&mut self, timeout_ns: Option<u64>) -> io::Result<usize> {
        self.ready = 0;
        let count = match self.call(timeout_ns) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => 0,
            result => result?,
        };
        for index in 0..count {
            let event = self.events[index];
            if event.u64 != WAKE_EVENT {
                self.events[self.ready] = event;
                self.ready += 1;
            }
        }
        Ok(self.ready)
    }

    /// One of those that were ready when the last wait ended.
    #[inline]
    pub(crate) fn ready(&self, index: usize) -> Ready {
        let libc::epoll_event { events, u64: token } = self.events[..self.ready][index];
        let ends = libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR;
        let has = |flags: libc::c_int| events & flags as u32 != 0;
        Ready::of(token as u32, has(libc::EPOLLIN), has(ends))
    }

    fn call(&mut self, timeout_ns: Option<u64>) -> io::Result<usize> {
        if self.precise {
            match self.call_precisely(timeout_ns) {
                // Older, or forbidden.
                Err(e) if matches!(e.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
                    self.precise = false;
                }
                result => return result,
            }
        }
        // Rounded down: what is due is sent in time, at the price of calls that do not wait.
        let timeout_ms = timeout_ns
            .map_or(-1, |ns| libc::c_int::try_from(ns / 1_000_000).unwrap_or(libc::c_int::MAX));
        // SAFETY: the kernel writes at most as many events as there are.
        counted(unsafe {
            let room = self.events.len() as libc::c_int;
            let events = self.events.as_mut_ptr();
            libc::epoll_wait(self.epoll.as_raw_fd(), events, room, timeout_ms).into()
        })
    }

    fn call_precisely(&mut self, timeout_ns: Option<u64>) -> io::Result<usize> {
        const SECOND: u64 = 1_000_000_000;
        let timeout = timeout_ns.map(|ns| libc::timespec {
            tv_sec: (ns / SECOND) as libc::time_t,
            tv_nsec: (ns % SECOND) as libc::c_long,
        });
        let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: the kernel writes at most as many events as there are, reads the timeout, which
        // outlives the call, and no mask of signals.
        counted(unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.epoll.as_raw_fd(),
                self.events.as_mut_ptr(),
                self.events.len() as libc::c_int,
                timeout,
                std::ptr::null::<libc::sigset_t>(),
                0usize,
            )
        })
    }
}

fn counted(count: libc::c_long) -> io::Result<usize> {
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

fn epoll() -> io::Result<OwnedFd> {
    // SAFETY: takes no pointers.
    let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor, which nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Reads what lies at a place of a file: how many bytes, 0 at its end.
pub(crate) fn read_at(file: &File, bytes: &mut [u8], at: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, bytes, at)
}

/// What a [`Set`] waits with.
pub(crate) const READINESS: &str = "epoll";

/// The call behind [`Socket::send_file`].
pub(crate) const SENDS_FILES_BY: &str = "sendfile";

/// A wait costs the same for any number.
pub(crate) const CONNECTIONS_OF_PROCESS: Option<u64> = None;

/// How many descriptors this process may have, after asking for as many as it may ask for.
pub(crate) fn descriptors() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes one rlimit, which outlives the call.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return None;
    }
    if limit.rlim_cur < limit.rlim_max {
        let raised = libc::rlimit { rlim_cur: limit.rlim_max, ..limit };
        // SAFETY: the kernel reads one rlimit, which outlives the call.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) } == 0 {
            limit = raised;
        }
    }
    Some(limit.rlim_cur)
}

fn is(error: &io::Error, codes: &[libc::c_int]) -> bool {
    error.raw_os_error().is_some_and(|code| codes.contains(&code))
}

/// Whether no port is left for the source address.
pub(crate) fn is_no_port(error: &io::Error) -> bool {
    is(error, &[libc::EADDRNOTAVAIL, libc::EADDRINUSE])
}

/// Whether the Unix socket of that name is not one of streams.
pub(crate) fn is_of_another_kind(error: &io::Error) -> bool {
    is(error, &[libc::EPROTOTYPE])
}

/// Whether the process or the system can have no more sockets.
pub(crate) fn is_no_descriptor(error: &io::Error) -> bool {
    is(error, &[libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM, libc::ENOSPC])
}

/// Whether nobody listens there.
pub(crate) fn is_refused(error: &io::Error) -> bool {
    is(error, &[libc::ECONNREFUSED])
}

/// Whether the other side broke the connection off.
pub(crate) fn is_reset(error: &io::Error) -> bool {
    is(error, &[libc::ECONNRESET, libc::EPIPE, libc::ECONNABORTED])
}

/// Whether the other side does not answer at all.
pub(crate) fn is_timed_out(error: &io::Error) -> bool {
    is(error, &[libc::ETIMEDOUT])
}
