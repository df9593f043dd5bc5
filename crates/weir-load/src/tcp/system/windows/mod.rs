//! Windows: WSAPoll, which is given every socket with every wait, so that many connections are better
//! shared by several processes; sockets that never wait; TransmitFile.

mod file;

use super::Ready;
use file::{Transmission, Transmitted};
use socket2::{Domain, Protocol, Socket as Socket2, Type};
use std::{
    cell::Cell,
    fs::File,
    io,
    net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, UdpSocket},
    os::windows::{fs::FileExt, io::AsRawSocket},
    ptr,
    sync::Arc,
    time::{Duration, Instant},
};
use weir::{Unavailable, stream::UnixAddress};
use windows_sys::Win32::Networking::WinSock::{
    FD_SET, POLLERR, POLLHUP, POLLNVAL, POLLRDNORM, POLLWRNORM, SOCKET, SOCKET_ERROR, TIMEVAL,
    WSAEADDRINUSE, WSAEADDRNOTAVAIL, WSAECONNABORTED, WSAECONNREFUSED, WSAECONNRESET, WSAEMFILE,
    WSAENETRESET, WSAENOBUFS, WSAESHUTDOWN, WSAETIMEDOUT, WSAGetLastError, WSAPOLLFD, WSAPoll,
    recv, select, send,
};

#[expect(clippy::unnecessary_wraps, reason = "as on every system")]
pub(crate) fn availability() -> Result<(), Unavailable> {
    Ok(())
}

/// A connection that is being made, or stands.
pub(crate) struct Socket {
    socket: Socket2,
    /// What of a file is under way on it.
    file: Cell<Option<Box<Transmission>>>,
}

impl std::fmt::Debug for Socket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.socket.fmt(f)
    }
}

impl Socket {
    /// Begins to connect, from `source` or an address of the system's choice; with buffers of that size, or the
    /// system's.
    pub(crate) fn connect(
        target: SocketAddr,
        source: Option<IpAddr>,
        buffer_bytes: Option<usize>,
    ) -> io::Result<Self> {
        let domain = Domain::for_address(target);
        let socket = Socket2::new(domain, Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        // A message leaves when it is sent.
        socket.set_tcp_nodelay(true)?;
        if let Some(bytes) = buffer_bytes {
            // The window that the server is offered follows from it, so it comes before the connect.
            socket.set_recv_buffer_size(bytes)?;
            socket.set_send_buffer_size(bytes)?;
        }
        if let Some(source) = source {
            socket.bind(&SocketAddr::new(source, 0).into())?;
        }
        match socket.connect(&target.into()) {
            Err(e) if e.kind() != io::ErrorKind::WouldBlock => Err(e),
            _ => Ok(Self { socket, file: Cell::default() }),
        }
    }

    /// There are none here.
    pub(crate) fn connect_unix(_: &UnixAddress, _: Option<usize>) -> io::Result<Self> {
        let why = weir::stream::unix_availability().map_err(|why| why.to_string());
        Err(io::Error::new(io::ErrorKind::Unsupported, why.err().unwrap_or_default()))
    }

    /// Of a socket that became ready: whether it is connected.
    pub(crate) fn connected(&self) -> io::Result<()> {
        match self.socket.take_error()? {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Receives: how many bytes, 0 for the end, `None` where nothing is there.
    #[inline]
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let room = i32::try_from(buffer.len()).unwrap_or(i32::MAX);
        // SAFETY: the system writes at most as many bytes as the buffer has.
        settled(unsafe { recv(self.raw(), buffer.as_mut_ptr(), room, 0) })
    }

    /// Sends the beginning of `bytes`: how many, or `None` where there is no room.
    #[inline]
    pub(crate) fn send(&self, bytes: &[u8]) -> io::Result<Option<usize>> {
        let len = i32::try_from(bytes.len()).unwrap_or(i32::MAX);
        // SAFETY: the system reads at most as many bytes as there are.
        settled(unsafe { send(self.raw(), bytes.as_ptr(), len, 0) })
    }

    /// Sends what lies at a place of a file, without copying it: how many bytes, 0 where the file has ended
    /// before, or `None` where the last ones are under way still. That all of them go is known later, when what
    /// comes back may be here already ([`file_was_short`](Self::file_was_short)).
    pub(crate) fn send_file(&self, file: &File, at: u64, len: usize) -> io::Result<Option<usize>> {
        if let Some(mut last) = self.file.take() {
            match last.sent(&self.socket)? {
                None => {
                    self.file.set(Some(last));
                    return Ok(None);
                }
                Some(sent) if sent < last.len() => return Ok(Some(0)),
                Some(_) => {}
            }
        }
        let begun = Transmission::start(&self.socket, file, at, len)?;
        let len = begun.len();
        self.file.set(Some(begun));
        Ok(Some(len))
    }

    /// Whether bytes of a file are under way that it has said to have sent.
    pub(crate) fn is_sending_a_file(&self) -> bool {
        self.with_file(|last| matches!(last.sent(&self.socket), Ok(None))).unwrap_or(false)
    }

    /// Whether the file had ended before the last of them.
    ///
    /// # Errors
    /// With which sending them ended.
    pub(crate) fn file_was_short(&self) -> io::Result<bool> {
        let is_short = |last: &mut Transmission| {
            let sent = last.sent(&self.socket)?;
            Ok(sent.is_some_and(|sent| sent < last.len()))
        };
        self.with_file(is_short).unwrap_or(Ok(false))
    }

    fn with_file<R>(&self, look: impl FnOnce(&mut Transmission) -> R) -> Option<R> {
        let mut last = self.file.take()?;
        let seen = look(&mut last);
        self.file.set(Some(last));
        Some(seen)
    }

    /// Tells the server that nothing follows.
    pub(crate) fn end_sending(&self) -> io::Result<()> {
        self.socket.shutdown(Shutdown::Write)
    }

    /// Ends both directions: what has come can be received, and then its end.
    pub(crate) fn end_both(&self) {
        // It fails where the connection is gone, and then its end is there.
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    #[inline]
    fn raw(&self) -> SOCKET {
        self.socket.as_raw_socket() as SOCKET
    }
}

/// The transmission ends before the socket is closed.
impl Drop for Socket {
    fn drop(&mut self) {
        if let Some(mut transmission) = self.file.take() {
            transmission.cancel(&self.socket);
        }
    }
}

/// Makes "not now" a `None`.
#[inline]
fn settled(count: i32) -> io::Result<Option<usize>> {
    if count != SOCKET_ERROR {
        return Ok(Some(count as usize));
    }
    let error = last_error();
    if error.kind() == io::ErrorKind::WouldBlock { Ok(None) } else { Err(error) }
}

fn last_error() -> io::Error {
    // SAFETY: reads a variable of this thread.
    io::Error::from_raw_os_error(unsafe { WSAGetLastError() })
}

/// Ends a wait of its set, now or the next one: a UDP socket connected to itself, since nothing but a socket can be
/// waited for beside sockets.
#[derive(Debug, Clone)]
pub(crate) struct WakeEvent(Arc<UdpSocket>);

impl WakeEvent {
    fn new() -> io::Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        // Connected, it takes datagrams from nobody but itself.
        socket.connect(socket.local_addr()?)?;
        socket.set_nonblocking(true)?;
        Ok(Self(Arc::new(socket)))
    }

    pub(crate) fn signal(&self) {
        // It fails where its buffer is full of signals, and then it is signalled already.
        let _ = self.0.send(&[1]);
    }

    fn clear(&self) {
        while self.0.recv(&mut [0; 1]).is_ok() {}
    }
}

/// How often those that are being made are asked whether they have failed.
const ASK_EVERY: Duration = Duration::from_millis(50);

/// The place of a number that is not in the set.
const NOWHERE: u32 = u32::MAX;

/// Sockets that are waited for. WSAPoll tells what is so, again and again; so room to send is asked for only while
/// one is being made or has found none.
pub(crate) struct Set {
    wake_event: WakeEvent,
    /// The wake event comes first, then the sockets.
    entries: Vec<WSAPOLLFD>,
    /// The number of each entry behind the wake event's.
    numbers: Vec<u32>,
    /// Where the entry of a number stands, if it has one.
    places: Vec<u32>,
    /// Sockets that are being made.
    connecting: usize,
    /// When they were asked last whether they have failed.
    asked: Instant,
    /// Transmissions that are over.
    transmitted: Arc<Transmitted>,
    ready: Vec<Ready>,
}

impl std::fmt::Debug for Set {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Set of {}", self.numbers.len())
    }
}

impl Set {
    /// An empty set. A wait tells all that are ready, since it looks at all.
    pub(crate) fn new(_: usize) -> io::Result<Self> {
        let wake_event = WakeEvent::new()?;
        let number = wake_event.0.as_raw_socket() as SOCKET;
        Ok(Self {
            entries: vec![WSAPOLLFD { fd: number, events: POLLRDNORM, revents: 0 }],
            numbers: Vec::new(),
            places: Vec::new(),
            connecting: 0,
            asked: Instant::now(),
            transmitted: Arc::new(Transmitted::new(wake_event.clone())),
            wake_event,
            ready: Vec::new(),
        })
    }

    pub(crate) fn wake_event(&self) -> WakeEvent {
        self.wake_event.clone()
    }

    #[expect(clippy::unnecessary_wraps, reason = "as on every system")]
    pub(crate) fn add(&mut self, socket: &Socket, number: u32) -> io::Result<()> {
        let index = number as usize;
        if index >= self.places.len() {
            self.places.resize(index + 1, NOWHERE);
        }
        self.places[index] = self.numbers.len() as u32;
        self.numbers.push(number);
        self.entries.push(WSAPOLLFD { fd: socket.raw(), events: POLLWRNORM, revents: 0 });
        self.connecting += 1;
        Ok(())
    }

    /// A socket found no room to send: it is told when there is.
    pub(crate) fn await_room(&mut self, socket: &Socket, number: u32) -> io::Result<()> {
        if let Some(result) = socket.with_file(|last| last.notify(&self.transmitted, number)) {
            return result;
        }
        if let Some(entry) = self.entry(number) {
            entry.events |= POLLWRNORM;
        }
        Ok(())
    }

    /// Takes a socket out, before it is closed.
    pub(crate) fn forget(&mut self, number: u32) {
        let Some(place) = self.places.get_mut(number as usize) else { return };
        let place = std::mem::replace(place, NOWHERE) as usize;
        if place == NOWHERE as usize {
            return;
        }
        let entry = self.entries.swap_remove(1 + place);
        self.connecting -= usize::from(is_being_made(&entry));
        self.numbers.swap_remove(place);
        if let Some(moved) = self.numbers.get(place) {
            self.places[*moved as usize] = place as u32;
        }
    }

    /// Waits until a socket is ready, the wake event is signalled, or so long; returns how many are ready.
    pub(crate) fn wait(&mut self, timeout_ns: Option<u64>) -> io::Result<usize> {
        self.ready.clear();
        // Rounded down: what is due is sent in time, at the price of calls that do not wait.
        let timeout_ms =
            timeout_ns.map_or(-1, |ns| i32::try_from(ns / 1_000_000).unwrap_or(i32::MAX));
        // SAFETY: the entries outlive the call.
        let ready =
            unsafe { WSAPoll(self.entries.as_mut_ptr(), self.entries.len() as u32, timeout_ms) };
        if ready == SOCKET_ERROR {
            return Err(last_error());
        }
        if self.entries[0].revents != 0 {
            self.wake_event.clear();
            let over = self.transmitted.take();
            self.ready.extend(over.map(|number| Ready::of(number, false, false)));
        }
        if ready > 0 {
            for (entry, number) in self.entries[1..].iter_mut().zip(&self.numbers) {
                if entry.revents != 0 {
                    let ended = entry.revents & (POLLERR | POLLHUP | POLLNVAL) != 0;
                    let receive = entry.revents & POLLRDNORM != 0;
                    self.ready.push(Ready::of(*number, receive, ended));
                    self.connecting -= usize::from(is_being_made(entry));
                    entry.events = POLLRDNORM;
                }
            }
        }
        self.ask_for_failures()?;
        Ok(self.ready.len())
    }

    /// One of those that were ready when the last wait ended.
    #[inline]
    pub(crate) fn ready(&self, index: usize) -> Ready {
        self.ready[index]
    }

    /// Before Windows 10 2004 WSAPoll says nothing of one that cannot be made; select does.
    fn ask_for_failures(&mut self) -> io::Result<()> {
        if self.connecting == 0 || self.asked.elapsed() < ASK_EVERY {
            return Ok(());
        }
        self.asked = Instant::now();
        // An FD_SET of this length: their number, which is followed by four bytes that mean nothing, and the sockets.
        let made = self.entries[1..].iter().filter(|entry| is_being_made(entry));
        let mut set: Vec<usize> = std::iter::once(0).chain(made.map(|entry| entry.fd)).collect();
        set[0] = set.len() - 1;
        let (nothing, at_once) = (ptr::null_mut(), TIMEVAL { tv_sec: 0, tv_usec: 0 });
        let pointer: *mut FD_SET = set.as_mut_ptr().cast();
        // SAFETY: the set has as many sockets as it says, and outlives the call, which reads and writes no more.
        if unsafe { select(0, nothing, nothing, pointer, &at_once) } == SOCKET_ERROR {
            return Err(last_error());
        }
        let failed = &set[1..1 + (set[0] as u32) as usize];
        for (entry, number) in self.entries[1..].iter_mut().zip(&self.numbers) {
            if !failed.is_empty() && is_being_made(entry) && failed.contains(&entry.fd) {
                self.ready.push(Ready::of(*number, false, true));
                self.connecting -= 1;
                entry.events = POLLRDNORM;
            }
        }
        Ok(())
    }

    fn entry(&mut self, number: u32) -> Option<&mut WSAPOLLFD> {
        let place = *self.places.get(number as usize)?;
        self.entries.get_mut(1 + place as usize)
    }
}

/// Whether it is told for nothing but that it was made.
fn is_being_made(entry: &WSAPOLLFD) -> bool {
    entry.events == POLLWRNORM
}

/// Reads what lies at a place of a file: how many bytes, 0 at its end.
pub(crate) fn read_at(file: &File, bytes: &mut [u8], at: u64) -> io::Result<usize> {
    file.seek_read(bytes, at)
}

/// What a [`Set`] waits with.
pub(crate) const READINESS: &str = "WSAPoll";

/// The call behind [`Socket::send_file`].
pub(crate) const SENDS_FILES_BY: &str = "TransmitFile";

/// Each wait looks at all of them.
pub(crate) const CONNECTIONS_OF_PROCESS: Option<u64> = Some(4096);

/// Nothing but memory limits them.
pub(crate) fn descriptors() -> Option<u64> {
    None
}

fn is(error: &io::Error, codes: &[i32]) -> bool {
    error.raw_os_error().is_some_and(|code| codes.contains(&code))
}

/// Whether no port is left for the source address.
pub(crate) fn is_no_port(error: &io::Error) -> bool {
    is(error, &[WSAEADDRNOTAVAIL, WSAEADDRINUSE])
}

/// Whether the Unix socket of that name is not one of streams: there are none here.
pub(crate) fn is_of_another_kind(_: &io::Error) -> bool {
    false
}

/// Whether the process or the system can have no more sockets.
pub(crate) fn is_no_descriptor(error: &io::Error) -> bool {
    is(error, &[WSAEMFILE, WSAENOBUFS])
}

/// Whether nobody listens there.
pub(crate) fn is_refused(error: &io::Error) -> bool {
    is(error, &[WSAECONNREFUSED])
}

/// Whether the other side broke the connection off.
pub(crate) fn is_reset(error: &io::Error) -> bool {
    is(error, &[WSAECONNRESET, WSAECONNABORTED, WSAENETRESET, WSAESHUTDOWN])
}

/// Whether the other side does not answer at all.
pub(crate) fn is_timed_out(error: &io::Error) -> bool {
    is(error, &[WSAETIMEDOUT])
}
