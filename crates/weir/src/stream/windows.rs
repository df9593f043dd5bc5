//! accept, WSARecv, send, on sockets that never wait by themselves.
//!
//! There is no flag for one call that must not wait, so every socket is non-blocking. A receive that waits is an
//! overlapped one with an event, which such a socket lets wait all the same: what Winsock's own blocking receive
//! does inside. Its time-out is that of the wait for the event, and it is ended by CancelIoEx, which takes back
//! what has received nothing and lets be what has; SO_RCVTIMEO leaves the socket in no defined state. A send
//! cannot wait like that: what a cancelled one has sent of its bytes nobody knows. So it is tried, and waits for
//! room (FD_WRITE), as accepting waits for a connection.

use super::{Accepted, Keepalive, Mode, StreamOptions, UnixAddress, configure};
use crate::{
    Error, Unavailable,
    counters::Counters,
    lifecycle::lock,
    socket::native::{
        CANCEL_AGAIN, cancel, last_error, milliseconds, new_event, result_of_waiting, set_option,
        tell_anew, with_event_of_thread, without_packet,
    },
};
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use std::{
    io,
    mem::MaybeUninit,
    net::SocketAddr,
    os::windows::io::{AsRawHandle, AsRawSocket, OwnedHandle, RawSocket},
    ptr,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, RwLock,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Relaxed, SeqCst},
            fence,
        },
    },
    time::{Duration, Instant},
};
use windows_sys::Win32::{
    Foundation::{ERROR_NETNAME_DELETED, ERROR_NO_SYSTEM_RESOURCES, HANDLE, WAIT_OBJECT_0},
    Networking::WinSock::{
        FD_ACCEPT, FD_CLOSE, FD_WRITE, FIONREAD, IPPROTO_TCP, SO_EXCLUSIVEADDRUSE, SOCKET,
        SOCKET_ERROR, SOL_SOCKET, TCP_KEEPCNT, TCP_KEEPIDLE, TCP_KEEPINTVL, WSA_IO_PENDING,
        WSA_NOT_ENOUGH_MEMORY, WSA_OPERATION_ABORTED, WSABUF, WSAECONNABORTED, WSAECONNRESET,
        WSAEHOSTUNREACH, WSAEMFILE, WSAENETUNREACH, WSAENOBUFS, WSAENOPROTOOPT, WSAENOTCONN,
        WSAESHUTDOWN, WSAETIMEDOUT, WSAEVENT, WSAEWOULDBLOCK, WSAEnumNetworkEvents, WSAEventSelect,
        WSARecv, WSASetEvent, getsockopt, ioctlsocket, recv, send,
    },
    System::{
        IO::{CancelIoEx, OVERLAPPED},
        Threading::WaitForSingleObject,
    },
};

/// A stream of which the system does not tell how many bytes it has received: there is none.
#[cfg(test)]
pub fn of_unknown_bytes() -> Option<(super::Stream, impl Sized)> {
    None::<(super::Stream, ())>
}

/// There are none here.
#[derive(Debug)]
pub enum UnixListener {}

/// Here is none.
#[derive(Debug)]
pub enum UnixDatagram {}

impl UnixDatagram {
    /// The same socket once more.
    ///
    /// # Errors
    /// There is none that could fail.
    pub fn try_clone(&self) -> io::Result<Self> {
        match *self {}
    }
}

impl UnixListener {
    /// The same socket once more.
    ///
    /// # Errors
    /// There is none that could fail.
    pub fn try_clone(&self) -> io::Result<Self> {
        match *self {}
    }
}

pub fn unix_availability() -> Result<(), Unavailable> {
    Err(no_unix_sockets())
}

fn no_unix_sockets() -> Unavailable {
    let why = Unavailable::new("a Unix socket", "weir does not offer those of Windows");
    why.advise("use an address of TCP on loopback")
}

/// A socket that listens.
#[derive(Debug)]
pub struct Listener {
    /// None from the end of accepting on: nothing else ends the listening. Clones have the number still, which
    /// may be another socket's by then, so calls are made under this lock ([`with_socket`](Self::with_socket)).
    socket: RwLock<Option<Socket>>,
    number: RawSocket,
    /// Tells that a connection waits, or that accepting was ended.
    changes: Changes,
    /// When the system asks a silent peer, in words.
    keepalive: String,
}

impl Listener {
    /// Always here.
    #[expect(clippy::unnecessary_wraps, reason = "as on every system")]
    pub fn availability() -> Result<(), Unavailable> {
        Ok(())
    }

    pub fn bind(address: SocketAddr, options: StreamOptions) -> Result<Self, Error> {
        if options.reuse_port {
            let why = "Windows does not spread connections over them";
            return Err(Unavailable::new("an address shared by several sockets", why).into());
        }
        let refused = |what: &str| {
            let what = format!("{what} on the socket for {address}");
            move |e| Error::io(what, e)
        };
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))
            .map_err(refused("opening"))?;
        socket.set_nonblocking(true).map_err(refused("FIONBIO"))?;
        // Else any program could take the port over by asking for SO_REUSEADDR.
        set_option(&socket, SOL_SOCKET, SO_EXCLUSIVEADDRUSE, 1)
            .map_err(refused("SO_EXCLUSIVEADDRUSE"))?;
        if address.is_ipv6() {
            // As on Linux: the unspecified address accepts IPv4 too, unless another socket is to.
            socket.set_only_v6(options.only_v6).map_err(refused("IPV6_V6ONLY"))?;
        }
        // What is accepted inherits these.
        let keepalive = configure(&socket, options, keep_alive);
        let keepalive = keepalive.map_err(|(what, e)| refused(what)(e))?;
        let keepalive = keepalive.unwrap_or_else(|| "never".into());
        socket.bind(&address.into()).map_err(|source| Error::Bind { address, source })?;
        socket
            .listen(backlog(options.backlog))
            .map_err(|source| Error::Bind { address, source })?;
        let number = socket.as_raw_socket();
        let socket = RwLock::new(Some(socket));
        Ok(Self { socket, number, changes: Changes::default(), keepalive })
    }

    pub fn bind_unix(_: &UnixAddress, _: Option<u32>, _: StreamOptions) -> Result<Self, Error> {
        Err(no_unix_sockets().into())
    }

    pub fn adopt_unix(listener: UnixListener) -> Result<(Self, UnixAddress), Error> {
        match listener {}
    }

    pub fn adopt(socket: Socket) -> Result<Self, Error> {
        socket.set_nonblocking(true).map_err(|e| Error::io("FIONBIO", e))?;
        let keepalive = match socket.keepalive() {
            Ok(true) => "as it was given".into(),
            _ => "never".into(),
        };
        let number = socket.as_raw_socket();
        let socket = RwLock::new(Some(socket));
        Ok(Self { socket, number, changes: Changes::default(), keepalive })
    }

    pub fn left_open(&self) -> Result<Self, Error> {
        Err(Unavailable::new(
            "a listening socket that goes on when its server has stopped",
            "weir leaves none open on this system yet",
        )
        .advise("leave keep_listening off")
        .into())
    }

    /// Calls `call` with the socket, which stays open meanwhile; `None` where accepting was ended.
    pub fn with_socket<R>(&self, call: impl FnOnce(&Socket) -> R) -> Option<R> {
        self.socket.read().unwrap_or_else(PoisonError::into_inner).as_ref().map(call)
    }

    pub fn local_address(&self) -> io::Result<SocketAddr> {
        let address = self.with_socket(Socket::local_addr).ok_or_else(not_open)??;
        address.as_socket().ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// How many connections may wait the system does not tell.
    pub fn granted(&self) -> Vec<(&'static str, String)> {
        let number = |value: io::Result<usize>| value.ok().map(|value| value.to_string());
        let of_socket =
            |value: fn(&Socket) -> io::Result<usize>| self.with_socket(value).and_then(number);
        let obtained = [
            ("receive-buffer-bytes", of_socket(Socket::recv_buffer_size)),
            ("send-buffer-bytes", of_socket(Socket::send_buffer_size)),
            ("keepalive", Some(self.keepalive.clone())),
        ];
        obtained.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }

    pub fn accept(&self, mode: Mode, counters: &Counters) -> io::Result<Option<Accepted>> {
        let mut asked = false;
        loop {
            let Some(accepted) = self.with_socket(accept_now) else { return Ok(None) };
            match accepted {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => match mode {
                    Mode::Try => return Ok(None),
                    Mode::Wait if asked => {
                        counters.kernel_entries.add(2);
                        self.changes.wait(None)?;
                        self.with_socket(|socket| self.changes.take(socket));
                        // What was told may be of a connection that somebody has accepted by now.
                        asked = false;
                    }
                    // One may have come since it was tried.
                    Mode::Wait => {
                        counters.kernel_entries.one();
                        let ask = |socket: &Socket| {
                            tell_anew(socket.as_raw_socket() as SOCKET);
                            self.changes.ask(socket, FD_ACCEPT)
                        };
                        self.with_socket(ask).transpose()?;
                        asked = true;
                    }
                },
                result => {
                    if result.is_ok() {
                        counters.kernel_entries.add(BESIDE_ACCEPT);
                    }
                    return result.map(Some);
                }
            }
            counters.kernel_entries.one();
        }
    }

    pub fn end_accepting(&self) {
        // Nobody waits in the system with the lock.
        drop(self.socket.write().unwrap_or_else(PoisonError::into_inner).take());
        self.changes.end();
    }
}

/// Its number, also when it listens no more: then it may be another's.
impl AsRawSocket for Listener {
    fn as_raw_socket(&self) -> RawSocket {
        self.number
    }
}

/// Calls for a connection that was accepted, beside accept and those of [`Stream::adopt`]: it is not inherited by
/// programs that this one starts, and is told for nothing.
const BESIDE_ACCEPT: u64 = 2 + ADOPTED;

/// Calls of [`Stream::adopt`].
pub const ADOPTED: u64 = 2;

fn accept_now(listening: &Socket) -> io::Result<Accepted> {
    let (socket, peer) = listening.accept()?;
    // It has inherited what the listening one is told for, and by what.
    // SAFETY: the socket is open; nothing is asked for, so no event is needed.
    unsafe { WSAEventSelect(socket.as_raw_socket() as SOCKET, 0, 0) };
    // One that was reset by then has no address any more (Wine 10).
    let peer = peer.as_socket().ok_or_else(|| io::Error::from_raw_os_error(WSAENOTCONN))?;
    Ok(Accepted { stream: Stream::adopt(socket)?, peer })
}

/// How many connections may wait, in the form in which listen takes more than 200 (SOMAXCONN_HINT).
fn backlog(asked: u32) -> i32 {
    match asked {
        0..=200 => asked as i32,
        more => -(more.min(65_535) as i32),
    }
}

/// Has the system ask a silent peer, and says when. A system before Windows 10 1709 is not told how often.
fn keep_alive(socket: &Socket, asked: Keepalive) -> io::Result<String> {
    let whole = |time: Duration| Duration::from_secs(time.as_secs_f64().ceil() as u64);
    let (idle, interval) = (whole(asked.idle), whole(asked.interval));
    socket.set_keepalive(true)?;
    let values = [
        (TCP_KEEPIDLE, idle.as_secs() as u32),
        (TCP_KEEPINTVL, interval.as_secs() as u32),
        (TCP_KEEPCNT, asked.tries),
    ];
    let set = |(name, value)| set_option(socket, IPPROTO_TCP, name, value);
    match values.into_iter().try_for_each(set) {
        Ok(()) => keepalive(socket),
        Err(e) if matches!(e.raw_os_error(), Some(WSAENOPROTOOPT)) => {
            // SIO_KEEPALIVE_VALS.
            let values = TcpKeepalive::new().with_time(idle).with_interval(interval);
            socket.set_tcp_keepalive(&values)?;
            Ok(format!("after {idle:?}, every {interval:?}, as often as the system chooses"))
        }
        Err(e) => Err(e),
    }
}

/// When the system asks a silent peer, in the words of [`Keepalive`].
pub fn keepalive(socket: &Socket) -> io::Result<String> {
    if !socket.keepalive()? {
        return Ok("never".into());
    }
    let seconds = |name| get_option(socket, IPPROTO_TCP, name).map(u64::from);
    let idle = Duration::from_secs(seconds(TCP_KEEPIDLE)?);
    let interval = Duration::from_secs(seconds(TCP_KEEPINTVL)?);
    let tries = get_option(socket, IPPROTO_TCP, TCP_KEEPCNT)?;
    Ok(Keepalive { idle, interval, tries }.to_string())
}

fn get_option(socket: &Socket, level: i32, name: i32) -> io::Result<u32> {
    let (mut value, mut length) = (0u32, size_of::<u32>() as i32);
    let raw = socket.as_raw_socket() as SOCKET;
    // SAFETY: the call writes at most as many bytes as the value has, which outlives it.
    match unsafe { getsockopt(raw, level, name, (&raw mut value).cast(), &mut length) } {
        0 => Ok(value),
        _ => Err(io::Error::from_raw_os_error(last_error())),
    }
}

/// A connection.
#[derive(Debug)]
pub struct Stream {
    socket: Socket,
    receiving: Receiving,
    /// Tells that there is room to send, or that sending was ended.
    room: Changes,
    /// The most bytes that one send is given.
    send_max: usize,
    /// How long a wait to receive and one to send may last, in ns; [`FOREVER`] for ever.
    timeouts_ns: [AtomicU64; 2],
    /// There where a port may use the socket again.
    lease: OnceLock<Lease>,
}

/// What a port knows of a connection whose socket it may use again.
#[derive(Debug)]
pub struct Lease {
    /// Which port: no other's is the same.
    pub port: Arc<()>,
    /// Which of its listening sockets has accepted it.
    pub listener: u32,
    /// The port has had the socket already, and this connection was not associated yet.
    pub from_before: AtomicBool,
    /// This connection was.
    pub associated: AtomicBool,
    peer_ended: AtomicBool,
    failed: AtomicBool,
}

impl Lease {
    pub fn new(port: Arc<()>, listener: u32, from_before: bool) -> Self {
        Self {
            port,
            listener,
            from_before: from_before.into(),
            associated: false.into(),
            peer_ended: false.into(),
            failed: false.into(),
        }
    }

    /// How a receive into a buffer ended.
    #[inline]
    pub fn received(&self, count: Option<usize>) {
        match count {
            None => self.failed.store(true, Relaxed),
            Some(0) => self.peer_ended.store(true, Relaxed),
            Some(_) => {}
        }
    }

    /// A send did not end well.
    pub fn send_failed(&self) {
        self.failed.store(true, Relaxed);
    }
}

const FOREVER: u64 = u64::MAX;

/// What others may do to whoever waits to receive.
#[derive(Debug, Default)]
struct Receiving {
    state: Mutex<ReceivingState>,
    /// A wait is over, or nobody counts any more.
    changed: Condvar,
    /// Bytes received.
    bytes: AtomicU64,
}

#[derive(Debug, Default)]
struct ReceivingState {
    /// Where the overlapped structures are of the receives that wait: of one, unless several threads receive.
    waiting: Vec<usize>,
    ended: bool,
    /// How many count what was received. No receive begins to wait meanwhile.
    counting: u32,
}

/// What came of one receive that waits.
enum Received {
    Bytes(usize),
    TimedOut,
    /// Somebody counted.
    Interrupted,
}

impl Stream {
    pub fn connect_unix(_: &UnixAddress, _: StreamOptions) -> io::Result<Accepted> {
        Err(io::Error::new(io::ErrorKind::Unsupported, no_unix_sockets()))
    }

    /// Before Windows 10 version 2004 WSAPoll does not tell of a connect that failed: there its time is over.
    pub fn connect(to: SocketAddr, options: StreamOptions) -> io::Result<super::Stream> {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
        configure(&socket, options, keep_alive).map_err(|(_, e)| e)?;
        socket.set_nonblocking(true)?;
        match socket.connect(&to.into()) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) => return Err(e),
        }
        Self::adopt(socket)
    }

    /// A connection that was accepted by other means than [`Listener::accept`].
    pub fn adopt(socket: Socket) -> io::Result<super::Stream> {
        socket.set_nonblocking(true)?;
        let send_max = socket.send_buffer_size()?.max(1);
        let stream = Self {
            socket,
            send_max,
            receiving: Receiving::default(),
            room: Changes::default(),
            timeouts_ns: [FOREVER; 2].map(AtomicU64::new),
            lease: OnceLock::new(),
        };
        Ok(super::Stream { native: Arc::new(stream) })
    }

    pub fn socket(&self) -> SockRef<'_> {
        SockRef::from(&self.socket)
    }

    /// The socket, for providers that start operations on it.
    pub fn raw(&self) -> SOCKET {
        self.socket.as_raw_socket() as SOCKET
    }

    /// As much of these bytes as one send is given: where there is any room in the socket's buffer, Windows takes a
    /// whole send, however long it is. So it holds at most twice the buffer for a peer that does not receive.
    #[inline]
    pub fn sendable<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[..bytes.len().min(self.send_max)]
    }

    /// Lets a port use the socket again.
    pub fn lease(&self, lease: Lease) {
        let given = self.lease.set(lease);
        debug_assert!(given.is_ok(), "a connection is accepted once");
    }

    pub fn leased(&self) -> Option<&Lease> {
        self.lease.get()
    }

    /// The socket with its lease, where it may be used again: the connection has ended in order, and nothing of it
    /// stays with the socket.
    pub fn ended_in_order(self, counters: &Counters) -> Option<(Socket, Lease)> {
        let Self { socket, room, lease, .. } = self;
        let lease = lease.into_inner()?;
        let in_order = lease.peer_ended.load(Relaxed) && !lease.failed.load(Relaxed);
        // Who waited for room has tied an event to the socket.
        if !in_order || room.event.get().is_some() {
            return None;
        }
        counters.kernel_entries.one();
        // Whoever meant to reset it has said so to the system.
        socket.linger().is_ok_and(|linger| linger.is_none()).then_some((socket, lease))
    }

    #[inline]
    pub fn receive(
        &self,
        buffer: &mut [u8],
        mode: Mode,
        counters: &Counters,
    ) -> io::Result<Option<usize>> {
        match mode {
            Mode::Try => Ok(match self.receive_now(buffer)? {
                None => lock(&self.receiving.state).ended.then_some(0),
                received => received,
            }),
            Mode::Wait => self.receive_waiting(buffer, counters),
        }
    }

    fn receive_now(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let room = i32::try_from(buffer.len()).unwrap_or(i32::MAX);
        // SAFETY: the system writes at most as many bytes as the buffer has.
        let count = unsafe { recv(self.raw(), buffer.as_mut_ptr(), room, 0) };
        if count != SOCKET_ERROR {
            self.receiving.bytes.fetch_add(count as u64, Relaxed);
            self.leased().into_iter().for_each(|lease| lease.received(Some(count as usize)));
            return Ok(Some(count as usize));
        }
        match last_error() {
            WSAEWOULDBLOCK => Ok(None),
            code => {
                self.leased().into_iter().for_each(|lease| lease.received(None));
                Err(io::Error::from_raw_os_error(code))
            }
        }
    }

    fn receive_waiting(&self, buffer: &mut [u8], counters: &Counters) -> io::Result<Option<usize>> {
        let by = self.deadline(0);
        loop {
            match self.receive_once(buffer, by, counters)? {
                Received::Bytes(count) => return Ok(Some(count)),
                Received::TimedOut => return Ok(None),
                Received::Interrupted => counters.kernel_entries.one(),
            }
        }
    }

    /// One overlapped receive, from its start until nothing of it is left in the system.
    fn receive_once(
        &self,
        buffer: &mut [u8],
        by: Option<Instant>,
        counters: &Counters,
    ) -> io::Result<Received> {
        let room = u32::try_from(buffer.len()).unwrap_or(u32::MAX);
        let vector = WSABUF { len: room, buf: buffer.as_mut_ptr() };
        let (mut flags, mut timed_out) = (0, false);
        with_event_of_thread(|arrived| {
            let mut state = lock(&self.receiving.state);
            while state.counting > 0 {
                state = self.receiving.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.ended {
                return self.receive_last(buffer, &state);
            }
            // SAFETY: all zeroes is a valid OVERLAPPED.
            let mut operation: OVERLAPPED = unsafe { std::mem::zeroed() };
            operation.hEvent = without_packet(arrived);
            let operation = &raw mut operation;
            // SAFETY: the vector is copied; buffer and operation stay in place until the operation is over, which
            // is waited for below.
            let started = unsafe {
                WSARecv(self.raw(), &vector, 1, ptr::null_mut(), &mut flags, operation, None)
            };
            if started == SOCKET_ERROR {
                match last_error() {
                    WSA_IO_PENDING => {
                        state.waiting.push(operation as usize);
                        drop(state);
                        counters.kernel_entries.one();
                        timed_out = !wait_for(arrived, by);
                        state = lock(&self.receiving.state);
                        if timed_out {
                            counters.kernel_entries.one();
                            // SAFETY: the operation was started on this socket with this event, and is in place.
                            unsafe { cancel(self.raw(), operation, arrived) };
                        }
                    }
                    code => return Err(io::Error::from_raw_os_error(code)),
                }
            }
            // SAFETY: the operation was started on this socket with an event. After this nothing writes to buffer or
            // operation any more.
            let result = unsafe { result_of_waiting(self.raw(), operation, &mut flags) };
            self.receiving.bytes.fetch_add(result.unwrap_or(0).into(), Relaxed);
            state.waiting.retain(|other| *other != operation as usize);
            self.receiving.changed.notify_all();
            match result {
                Ok(len) => Ok(Received::Bytes(len as usize)),
                Err(WSA_OPERATION_ABORTED) if state.ended => self.receive_last(buffer, &state),
                Err(WSA_OPERATION_ABORTED) if timed_out => Ok(Received::TimedOut),
                Err(WSA_OPERATION_ABORTED) => Ok(Received::Interrupted),
                Err(code) => Err(io::Error::from_raw_os_error(code)),
            }
        })?
    }

    /// What came of a receive that was ended: what is there, or as for the peer's end. It is counted before anybody
    /// else counts.
    fn receive_last(
        &self,
        buffer: &mut [u8],
        _: &MutexGuard<'_, ReceivingState>,
    ) -> io::Result<Received> {
        self.receive_now(buffer).map(|received| Received::Bytes(received.unwrap_or(0)))
    }

    /// Takes back every receive that waits and has received nothing.
    fn cancel_all(&self, state: &MutexGuard<'_, ReceivingState>) {
        for &operation in &state.waiting {
            // One that is over by now stays as it is.
            // SAFETY: the operation was started on this socket, and is in place: it stands among those that wait, under
            // the lock.
            unsafe { CancelIoEx(self.raw() as HANDLE, operation as *const OVERLAPPED) };
        }
    }

    #[inline]
    pub fn send(&self, bytes: &[u8], mode: Mode, counters: &Counters) -> io::Result<Option<usize>> {
        let bytes = self.sendable(bytes);
        let len = i32::try_from(bytes.len()).unwrap_or(i32::MAX);
        let (mut by, mut asked) = (None, false);
        loop {
            if self.room.have_ended() {
                return Err(io::Error::from_raw_os_error(WSAESHUTDOWN));
            }
            // SAFETY: the system reads at most as many bytes as there are.
            let count = unsafe { send(self.raw(), bytes.as_ptr(), len, 0) };
            if count != SOCKET_ERROR {
                return Ok(Some(count as usize));
            }
            match (last_error(), mode) {
                (WSAEWOULDBLOCK, Mode::Try) => return Ok(None),
                (WSAEWOULDBLOCK, Mode::Wait) if asked => {
                    counters.kernel_entries.add(2);
                    if !self.room.wait(by)? {
                        return Ok(None);
                    }
                    self.room.take(&self.socket);
                }
                // There may be room since it was tried.
                (WSAEWOULDBLOCK, Mode::Wait) => {
                    counters.kernel_entries.one();
                    by = self.deadline(1);
                    self.room.ask(&self.socket, FD_WRITE | FD_CLOSE)?;
                    asked = true;
                }
                (code, _) => return Err(io::Error::from_raw_os_error(code)),
            }
            counters.kernel_entries.one();
        }
    }

    pub fn end_receiving(&self) {
        let mut state = lock(&self.receiving.state);
        state.ended = true;
        self.cancel_all(&state);
    }

    pub fn end(&self) {
        self.end_receiving();
        self.room.end();
    }

    pub fn set_timeouts(
        &self,
        receive: Option<Duration>,
        send: Option<Duration>,
    ) -> io::Result<()> {
        for (own, time) in self.timeouts_ns.iter().zip([receive, send]) {
            let ns = time.map_or(FOREVER, |time| u64::try_from(time.as_nanos()).unwrap_or(FOREVER));
            own.store(ns, Relaxed);
        }
        Ok(())
    }

    /// When a wait ends that begins now: to receive (0), or to send (1).
    fn deadline(&self, which: usize) -> Option<Instant> {
        match self.timeouts_ns[which].load(Relaxed) {
            FOREVER => None,
            ns => Instant::now().checked_add(Duration::from_nanos(ns)),
        }
    }

    pub fn waiting(&self) -> io::Result<usize> {
        let mut bytes = 0;
        // SAFETY: this call writes 32 bits, which outlive it.
        if unsafe { ioctlsocket(self.raw(), FIONREAD, &mut bytes) } == SOCKET_ERROR {
            return Err(io::Error::from_raw_os_error(last_error()));
        }
        Ok(bytes as usize)
    }

    /// No wait reports what it was not asked for.
    pub fn is_hung_up(&self) -> bool {
        false
    }

    /// The system's own count (SIO_TCP_INFO) is not everywhere. So what was received is counted here, and a
    /// receive that waits is taken back meanwhile, so that none has anything in its hands.
    pub fn received_in_all(&self) -> io::Result<u64> {
        let mut state = lock(&self.receiving.state);
        state.counting += 1;
        while !state.waiting.is_empty() {
            self.cancel_all(&state);
            // It is asked for again: see `cancel`.
            let waited = self.receiving.changed.wait_timeout(state, CANCEL_AGAIN);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let waiting = self.waiting();
        let received = self.receiving.bytes.load(Relaxed);
        state.counting -= 1;
        drop(state);
        self.receiving.changed.notify_all();
        Ok(received + waiting? as u64)
    }
}

impl AsRawSocket for Stream {
    fn as_raw_socket(&self) -> RawSocket {
        self.socket.as_raw_socket()
    }
}

/// An event that is set when a socket has changed, or its use is ended. It is made when somebody waits first.
#[derive(Debug, Default)]
struct Changes {
    event: OnceLock<OwnedHandle>,
    ended: AtomicBool,
}

impl Changes {
    /// Asks to be told of these changes of the socket (FD_...), also of what is so already.
    fn ask(&self, socket: &Socket, changes: u32) -> io::Result<()> {
        let event = self.event()?;
        let socket = socket.as_raw_socket() as SOCKET;
        // SAFETY: both are open. The event lives as long as the socket's owner, which closes the socket first or
        // with it.
        match unsafe { WSAEventSelect(socket, event as WSAEVENT, changes as i32) } {
            0 => Ok(()),
            _ => Err(io::Error::from_raw_os_error(last_error())),
        }
    }

    /// Waits for a change, or the end; `false` where it took too long.
    fn wait(&self, by: Option<Instant>) -> io::Result<bool> {
        let event = self.event()?;
        Ok(self.have_ended() || wait_for(event, by))
    }

    /// Takes what was told, so that the next change is told again. An end is told for ever.
    fn take(&self, socket: &Socket) {
        let mut told = MaybeUninit::uninit();
        if let Some(event) = self.event.get() {
            let event = event.as_raw_handle() as WSAEVENT;
            // SAFETY: both are open, and the call writes one struct, which nobody reads.
            unsafe {
                WSAEnumNetworkEvents(socket.as_raw_socket() as SOCKET, event, told.as_mut_ptr())
            };
        }
        if self.have_ended() {
            self.end();
        }
    }

    fn have_ended(&self) -> bool {
        self.ended.load(Relaxed)
    }

    fn end(&self) {
        self.ended.store(true, Relaxed);
        // Either this sees the event, or whoever makes it sees the end.
        fence(SeqCst);
        if let Some(event) = self.event.get() {
            // SAFETY: the event lives. Setting a live event cannot fail.
            unsafe { WSASetEvent(event.as_raw_handle() as WSAEVENT) };
        }
    }

    fn event(&self) -> io::Result<HANDLE> {
        let event = match self.event.get() {
            Some(event) => event,
            None => {
                let event = new_event()?;
                self.event.get_or_init(|| event)
            }
        };
        fence(SeqCst);
        Ok(event.as_raw_handle())
    }
}

/// Waits for an event; `false` where it took too long. It is never short, whatever clock the system waits by.
fn wait_for(event: HANDLE, by: Option<Instant>) -> bool {
    loop {
        let left = by.map(|by| by.saturating_duration_since(Instant::now()));
        let left_ms = milliseconds(left);
        // SAFETY: the event is open: its owner waits for it.
        if unsafe { WaitForSingleObject(event, left_ms) } == WAIT_OBJECT_0 {
            return true;
        }
        if left_ms == 0 {
            return false;
        }
    }
}

fn not_open() -> io::Error {
    io::ErrorKind::NotConnected.into()
}

/// What accepting fails with for want of sockets or memory.
pub const WANT_OF_RESOURCES: &[i32] =
    &[WSAEMFILE, WSAENOBUFS, WSA_NOT_ENOUGH_MEMORY, ERROR_NO_SYSTEM_RESOURCES as i32];

/// What it fails with for one connection only.
pub const OF_ONE_CONNECTION: &[i32] = &[
    WSAECONNRESET,
    WSAECONNABORTED,
    WSAETIMEDOUT,
    WSAENETUNREACH,
    WSAEHOSTUNREACH,
    WSAENOTCONN, // one that was reset by then has no address any more (Wine 8)
    ERROR_NETNAME_DELETED as i32, // AcceptEx's word for a reset
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::{self, Listener};
    use std::{
        io::Write,
        net::{Ipv4Addr, TcpStream},
    };
    use windows_sys::Win32::{
        Foundation::{GetHandleInformation, HANDLE_FLAG_INHERIT, INVALID_HANDLE_VALUE},
        Networking::WinSock::{WSAEINVAL, WSAENOTSOCK},
        System::{
            IO::{CreateIoCompletionPort, GetQueuedCompletionStatus, PostQueuedCompletionStatus},
            Threading::INFINITE,
        },
    };

    fn pair() -> (Listener, stream::Stream, TcpStream) {
        let at = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listener = Listener::bind(at, StreamOptions::default()).unwrap();
        let client = TcpStream::connect(listener.local_address()).unwrap();
        let accepted = listener.accept(Mode::Wait, &Counters::default()).unwrap().unwrap();
        (listener, accepted.stream, client)
    }

    /// What waits here is nothing that a port of its socket knows.
    #[test]
    fn a_wait_sends_no_packet_to_the_port_of_its_socket() {
        let (_listener, stream, mut client) = pair();
        let nothing = ptr::null_mut();
        // SAFETY: a new port, and the socket is open. Neither call writes to memory of ours.
        let port = unsafe {
            let port = CreateIoCompletionPort(INVALID_HANDLE_VALUE, nothing, 0, 1);
            let socket = stream.native().raw() as HANDLE;
            assert_eq!(CreateIoCompletionPort(socket, port, 1, 0), port);
            port
        };
        stream.set_timeouts(Some(Duration::from_millis(20)), None).unwrap();
        let counters = Counters::default();
        // One that is cancelled, one that waits, and one that finds something.
        assert_eq!(stream.receive(&mut [0; 9], Mode::Wait, &counters).unwrap(), None);
        stream.set_timeouts(None, None).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| client.write_all(b"ab").unwrap());
            for _ in 0..2 {
                assert_eq!(stream.receive(&mut [0; 1], Mode::Wait, &counters).unwrap(), Some(1));
            }
        });
        let (mut bytes, mut key, mut operation) = (0, 0, ptr::null_mut());
        // SAFETY: the port is open, and the three values outlive the call. The first packet in it is the one that is
        // posted here, unless there is one of a receive.
        unsafe {
            assert_ne!(PostQueuedCompletionStatus(port, 0, 7, nothing.cast()), 0);
            let taken =
                GetQueuedCompletionStatus(port, &mut bytes, &mut key, &mut operation, INFINITE);
            assert_ne!(taken, 0);
            windows_sys::Win32::Foundation::CloseHandle(port);
        }
        assert_eq!((key, operation.is_null()), (7, true), "{bytes} bytes of a receive");
    }

    /// A program that is started inherits nothing.
    #[test]
    fn no_socket_is_inherited() {
        let (listener, stream, _client) = pair();
        for socket in [listener.native().as_raw_socket(), stream.native().as_raw_socket()] {
            let mut flags = 0;
            // SAFETY: the socket is open, and the call writes 32 bits.
            assert_ne!(unsafe { GetHandleInformation(socket as HANDLE, &mut flags) }, 0);
            assert_eq!(flags & HANDLE_FLAG_INHERIT, 0);
        }
    }

    /// Whether the next connection may be accepted at once, only when something was given back, or not at all.
    #[test]
    fn errors_of_accepting_are_told_apart() {
        let of = |code| {
            let error = io::Error::from_raw_os_error(code);
            (stream::is_want_of_resources(&error), stream::concerns_one_connection(&error))
        };
        for code in [WSAEMFILE, WSAENOBUFS] {
            assert_eq!(of(code), (true, false), "{code}");
        }
        for code in [WSAECONNRESET, WSAECONNABORTED] {
            assert_eq!(of(code), (false, true), "{code}");
        }
        for code in [WSAENOTSOCK, WSAEINVAL] {
            assert_eq!(of(code), (false, false), "{code}");
        }
    }

    #[test]
    fn a_backlog_above_200_is_a_hint() {
        assert_eq!([0, 200, 201, 4096, u32::MAX].map(backlog), [0, 200, -201, -4096, -65_535]);
    }
}
