//! Windows: clocks, affinity, identity.

use std::{
    fs::File,
    io::{self, Read as _},
    net::TcpStream,
    os::windows::io::AsRawSocket,
    path::Path,
    sync::OnceLock,
    time::{Duration, Instant},
};

use socket2::Socket;

use windows_sys::Win32::{
    Foundation::FILETIME,
    Media::timeBeginPeriod,
    Networking::WinSock::{
        POLLRDNORM, POLLWRNORM, SOCKET, SOCKET_ERROR, WSAENOBUFS, WSAGetLastError, WSAPOLLFD,
        WSAPoll,
    },
    System::{
        Performance::{QueryPerformanceCounter, QueryPerformanceFrequency},
        Threading::{
            GetCurrentProcess, GetCurrentThread, GetThreadTimes, IDLE_PRIORITY_CLASS,
            SetPriorityClass,
        },
    },
};

/// WSAENOBUFS.
pub(crate) const NO_BUFFERS: i32 = WSAENOBUFS;

/// A read of a connection goes on when this side shuts it down (seen under Wine 8), until
/// the other side answers or its time is over.
pub(crate) const READ_SLICE: Option<Duration> = Some(Duration::from_millis(100));

/// The socket never waits, and [`send`] waits for room by itself: a send that ends by SO_SNDTIMEO leaves its socket in a
/// state that is not defined.
pub(crate) fn limit_waits(socket: &Socket, _within: Duration) -> io::Result<()> {
    socket.set_nonblocking(true)
}

/// Sends on a socket that never waits; where there is no room, waits for it at most so long, if at all.
#[inline]
pub(crate) fn send(socket: &Socket, bytes: &[u8], within: Option<Duration>) -> io::Result<usize> {
    match (socket.send(bytes), within) {
        (Err(error), Some(within)) if error.kind() == io::ErrorKind::WouldBlock => {
            send_when_there_is_room(socket, bytes, within)
        }
        (sent, _) => sent,
    }
}

#[cold]
fn send_when_there_is_room(socket: &Socket, bytes: &[u8], within: Duration) -> io::Result<usize> {
    let deadline = Instant::now() + within;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let has_room = is_ready(socket, POLLWRNORM, left)?;
        match socket.send(bytes) {
            // Another may have taken the room.
            Err(error)
                if error.kind() == io::ErrorKind::WouldBlock && has_room && !left.is_zero() => {}
            sent => return sent,
        }
    }
}

/// Reads, and waits for it at most so long: then it is `WouldBlock`. What comes at that moment stays, which is not
/// promised of a read that ends by SO_RCVTIMEO. One thread alone reads.
pub(crate) fn read_within(
    mut stream: &TcpStream,
    bytes: &mut [u8],
    within: Option<Duration>,
) -> io::Result<usize> {
    match within {
        Some(within) if !is_ready(stream, POLLRDNORM, within)? => {
            Err(io::ErrorKind::WouldBlock.into())
        }
        _ => stream.read(bytes),
    }
}

/// Waits until something can be read, or sent, or has failed, at most so long (rounded up to a millisecond).
fn is_ready(socket: &impl AsRawSocket, events: i16, within: Duration) -> io::Result<bool> {
    let mut entry = WSAPOLLFD { fd: socket.as_raw_socket() as SOCKET, events, revents: 0 };
    let within_ms = within.as_nanos().div_ceil(1_000_000).try_into().unwrap_or(i32::MAX);
    // SAFETY: one entry, which outlives the call.
    let ready = unsafe { WSAPoll(&raw mut entry, 1, within_ms) };
    if ready == SOCKET_ERROR {
        // SAFETY: reads a variable of this thread.
        return Err(io::Error::from_raw_os_error(unsafe { WSAGetLastError() }));
    }
    Ok(ready > 0)
}

/// Ticks a second; fixed at boot.
fn frequency_hz() -> u64 {
    static FREQUENCY: OnceLock<u64> = OnceLock::new();
    *FREQUENCY.get_or_init(|| {
        let mut ticks = 0;
        // SAFETY: `ticks` is a valid i64 that outlives the call.
        unsafe { QueryPerformanceFrequency(&raw mut ticks) };
        (ticks as u64).max(1)
    })
}

#[inline]
pub(crate) fn monotonic_ns() -> u64 {
    let mut ticks = 0;
    // SAFETY: `ticks` is a valid i64 that outlives the call.
    unsafe { QueryPerformanceCounter(&raw mut ticks) };
    // In 128 bits: ticks times 10^9 leaves 64 bits after half an hour at 10 MHz.
    (ticks as u128 * 1_000_000_000 / u128::from(frequency_hz())) as u64
}

pub(crate) fn thread_cpu_ns() -> Option<u64> {
    const EMPTY: FILETIME = FILETIME { dwLowDateTime: 0, dwHighDateTime: 0 };
    let (mut created, mut exited, mut kernel, mut user) = (EMPTY, EMPTY, EMPTY, EMPTY);
    // SAFETY: the pseudo handle of the current thread is always valid, and the four
    // FILETIMEs outlive the call.
    let ok = unsafe {
        GetThreadTimes(
            GetCurrentThread(),
            &raw mut created,
            &raw mut exited,
            &raw mut kernel,
            &raw mut user,
        )
    };
    let ns = |t: FILETIME| ((u64::from(t.dwHighDateTime) << 32) | u64::from(t.dwLowDateTime)) * 100;
    (ok != 0).then(|| ns(kernel) + ns(user))
}

/// The standard library sleeps on a high-resolution timer where there is one. Waits for sockets end with the
/// system's ticks: from now on those of this process are as short as they can be.
pub(crate) fn ask_for_precise_sleeps() {
    // SAFETY: it takes a number. Its failure only makes waits less precise.
    unsafe { timeBeginPeriod(1) };
}

/// The priority class of what runs where nothing else wants to.
pub(crate) fn give_way() -> io::Result<()> {
    // SAFETY: the pseudo handle of this process is always valid.
    match unsafe { SetPriorityClass(GetCurrentProcess(), IDLE_PRIORITY_CLASS) } {
        0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// The heap returns by itself what it does not need.
pub(crate) fn give_memory_back() {}

pub(crate) fn open_own_executable() -> io::Result<File> {
    File::open(std::env::current_exe()?)
}

/// Two processes of one Windows machine are told by their addresses instead.
pub(crate) fn host_id() -> Option<String> {
    None
}

/// Who may read a file is in lists here, and not in its mode.
pub(crate) fn others_can_read(_: &Path) -> bool {
    false
}

pub(crate) fn clock_id() -> Option<String> {
    None
}
