//! Unix sockets: unix(7).

use crate::{
    Error,
    stream::{LocalPeer, StreamOptions, UnixAddress, configure_buffers},
};
use socket2::{Domain, SockAddr, Socket, Type};
use std::{
    ffi::OsStr,
    fs, io,
    os::{
        fd::{AsRawFd as _, OwnedFd, RawFd},
        unix::{
            ffi::OsStrExt as _,
            fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _},
        },
    },
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
};

impl UnixAddress {
    /// As the system has it.
    fn encoded(&self) -> io::Result<SockAddr> {
        SockAddr::unix(OsStr::from_bytes(&self.name_bytes()?))
    }

    /// The same, with a path that stays right whatever the folder of the process becomes: as long as it is no longer than a
    /// name may be, since a relative one may be.
    fn wherever_it_is(&self) -> io::Result<Option<PathBuf>> {
        self.path().map(std::path::absolute).transpose()
    }
}

/// The file that a socket listens at, which goes with it.
#[derive(Debug)]
pub(crate) struct OwnFile {
    path: PathBuf,
    /// Which file it is: the device, and the number there.
    is: (u64, u64),
    removed: AtomicBool,
}

impl OwnFile {
    fn at(path: &Path) -> io::Result<Self> {
        let found = fs::symlink_metadata(path)?;
        let is = (found.dev(), found.ino());
        Ok(Self { path: path.to_owned(), is, removed: AtomicBool::new(false) })
    }

    /// Removes it, unless another has taken its place.
    pub(crate) fn remove(&self) {
        if self.removed.swap(true, SeqCst) {
            return;
        }
        // As long as the socket is open nobody else's file has this number.
        if fs::symlink_metadata(&self.path).is_ok_and(|now| (now.dev(), now.ino()) == self.is) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Binds a socket that is to listen, with its file.
pub(super) fn bind(
    address: &UnixAddress,
    mode: Option<u32>,
    options: StreamOptions,
) -> Result<(Socket, Option<OwnFile>), Error> {
    let failed = |source| Error::BindUnix { address: address.clone(), source };
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None).map_err(failed)?;
    configure_buffers(&socket, options)
        .map_err(|(what, e)| Error::io(format!("{what} on the socket for {address}"), e))?;
    let file = bind_to(&socket, address, mode, Type::STREAM).map_err(failed)?;
    let ready = || {
        socket.listen(i32::try_from(options.backlog).unwrap_or(i32::MAX))?;
        socket.set_nonblocking(true)
    };
    ready().map_err(|e| {
        file.iter().for_each(OwnFile::remove);
        failed(e)
    })?;
    Ok((socket, file))
}

/// Binds a socket of this kind to its name, in place of what was left there by a program that has it no longer. Where
/// that is a path, its file is made, with this mode.
pub(crate) fn bind_to(
    socket: &Socket,
    address: &UnixAddress,
    mode: Option<u32>,
    kind: Type,
) -> io::Result<Option<OwnFile>> {
    let encoded = address.encoded()?;
    let path = address.wherever_it_is()?;
    let Some(path) = path.as_deref() else {
        return socket.bind(&encoded).map(|()| None);
    };
    if let Some(mode) = mode {
        // The file is made with no more than this, so nobody gets in before it has its mode.
        // SAFETY: the call only reads its two numbers.
        if unsafe { libc::fchmod(socket.as_raw_fd(), mode) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    match socket.bind(&encoded) {
        Err(e) if e.kind() == io::ErrorKind::AddrInUse => {
            clear_away(path, &encoded, kind)?;
            socket.bind(&encoded)?;
        }
        bound => bound?,
    }
    let file = OwnFile::at(path)?;
    if let Some(mode) = mode
        && let Err(e) = fs::set_permissions(path, fs::Permissions::from_mode(mode))
    {
        file.remove();
        return Err(e);
    }
    Ok(Some(file))
}

/// Removes what a program has left behind that listened there once and does no longer.
fn clear_away(path: &Path, encoded: &SockAddr, kind: Type) -> io::Result<()> {
    let found = fs::symlink_metadata(path)?;
    if !found.file_type().is_socket() {
        let problem = "there is a file that is not a socket; choose another path, or remove it";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, problem));
    }
    let asks = Socket::new(Domain::UNIX, kind, None)?;
    asks.set_nonblocking(true)?;
    match asks.connect(encoded) {
        Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {}
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        // Somebody is there, though perhaps not for us (EACCES, EPROTOTYPE), or not now (EAGAIN).
        _ => return Err(io::ErrorKind::AddrInUse.into()),
    }
    let now = fs::symlink_metadata(path);
    if now.is_ok_and(|now| (now.dev(), now.ino()) != (found.dev(), found.ino())) {
        return Err(io::ErrorKind::AddrInUse.into()); // somebody else has begun meanwhile
    }
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// Who is at the other end; nobody known where the system does not say.
pub(super) fn peer(fd: RawFd) -> LocalPeer {
    let mut said = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len = size_of_val(&said) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, which is what the struct has.
    unsafe {
        let into = (&raw mut said).cast();
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, into, &raw mut len);
    }
    LocalPeer { user: said.uid, group: said.gid, process: said.pid.cast_unsigned() }
}

/// What the peek offset of a connection begins with.
static OFFSET: i32 = 1 << 30;

/// Bytes received after which it begins anew.
const RENEWED_AFTER: u64 = 1 << 28;

/// How much a connection has received. TCP's counter is missing here; but the kernel takes every byte that is received off
/// the offset at which MSG_PEEK would look (SO_PEEK_OFF, Linux 3.4), under the lock of the receive itself. So an offset that
/// nobody peeks at counts, whoever receives and wherever the bytes are on their way, and it costs a receive nothing.
#[derive(Debug)]
pub(super) struct Count {
    /// Bytes received when the offset was set.
    before: Mutex<u64>,
    /// Bytes that have arrived where they are handled.
    delivered: AtomicU64,
    /// As many had when it was set.
    renewed: AtomicU64,
}

impl Count {
    pub(super) fn of(fd: RawFd) -> io::Result<Self> {
        set_offset(fd)?;
        Ok(Self { before: Mutex::new(0), delivered: 0.into(), renewed: 0.into() })
    }

    /// So many bytes were received, by whoever receives from it now.
    #[inline]
    pub(super) fn delivered(&self, fd: RawFd, bytes: usize) {
        // One at a time receives.
        let all = self.delivered.load(Relaxed) + bytes as u64;
        self.delivered.store(all, Relaxed);
        if all - self.renewed.load(Relaxed) >= RENEWED_AFTER {
            self.renew(fd, all);
        }
    }

    pub(super) fn all_delivered(&self) -> u64 {
        self.delivered.load(Relaxed)
    }

    /// Nobody receives from it at this moment.
    #[cold]
    fn renew(&self, fd: RawFd, all: u64) {
        let mut before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(offset) = offset(fd)
            && set_offset(fd).is_ok()
        {
            *before += u64::from(OFFSET.abs_diff(offset));
            self.renewed.store(all, Relaxed);
        }
    }

    /// Bytes that have come in all: those that were received, and those that wait.
    pub(super) fn in_all(
        &self,
        fd: RawFd,
        waiting: impl Fn() -> io::Result<usize>,
    ) -> io::Result<u64> {
        let before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let (now, waiting) = (offset(fd)?, waiting()?);
            pass(fd)?;
            // What was received meanwhile may have been counted as waiting, too.
            if offset(fd)? == now {
                return Ok(*before + u64::from(OFFSET.abs_diff(now)) + waiting as u64);
            }
        }
    }
}

fn set_offset(fd: RawFd) -> io::Result<()> {
    // SAFETY: the call reads one int, which outlives it.
    let answer = unsafe {
        let (from, len) = ((&raw const OFFSET).cast(), size_of_val(&OFFSET));
        libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_PEEK_OFF, from, len as libc::socklen_t)
    };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn offset(fd: RawFd) -> io::Result<i32> {
    let mut offset = 0;
    let mut len = size_of_val(&offset) as libc::socklen_t;
    // SAFETY: the call writes one int, which outlives it.
    let answer = unsafe {
        let into = (&raw mut offset).cast();
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEEK_OFF, into, &raw mut len)
    };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(offset) }
}

/// Waits until a receive that is in the middle of its bytes is done with them, by standing in line behind it: it looks for
/// a byte behind all that may wait, so it takes none.
fn pass(fd: RawFd) -> io::Result<()> {
    let mut byte = 0u8;
    // SAFETY: the call writes at most one byte, which outlives it.
    let answer = unsafe {
        let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
        libc::recv(fd, (&raw mut byte).cast(), 1, flags)
    };
    match io::Error::last_os_error() {
        e if answer < 0
            && !matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) =>
        {
            Err(e)
        }
        _ => Ok(()),
    }
}

/// Begins to connect.
pub(super) fn connect(to: &UnixAddress, options: StreamOptions) -> io::Result<OwnedFd> {
    let encoded = to.encoded()?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    configure_buffers(&socket, options).map_err(|(_, e)| e)?;
    socket.set_nonblocking(true)?;
    socket.connect(&encoded)?;
    socket.set_nonblocking(false)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        counters::Counters,
        stream::{Listener, Mode, Stream, is_want_of_resources},
    };
    use std::{
        io::Write as _, os::unix::net::UnixStream, sync::atomic::AtomicU32, thread, time::Duration,
    };

    fn any_path() -> PathBuf {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Relaxed);
        std::env::temp_dir().join(format!("weir-stream-{}-{number}.sock", std::process::id()))
    }

    fn listen(address: &UnixAddress) -> Result<Listener, Error> {
        Listener::bind_unix(address, None, StreamOptions::default())
    }

    fn why_not(address: impl Into<UnixAddress>) -> String {
        listen(&address.into()).expect_err("it cannot be").to_string()
    }

    #[test]
    fn what_is_no_address_is_told_with_what_to_do() {
        assert!(why_not("").contains("no name"));
        assert!(why_not("@").contains("no name"));
        assert!(why_not("a\0b").contains("value 0"));
        let long = why_not(format!("/{}", "x".repeat(120)));
        assert!(long.contains("121 bytes") && long.contains("107") && long.contains("shorter"));
        let nowhere = why_not("/nonexistent/folder/x.sock");
        assert!(
            nowhere.contains("cannot bind unix:/nonexistent") && nowhere.contains("make it first")
        );
        let path = any_path();
        let listener = listen(&path.as_path().into()).unwrap();
        assert!(why_not(path.as_path()).contains("somebody listens there"));
        // As long as may be, and one more, of either kind.
        for (begin, most) in [("@", 107), ("", 107)] {
            let folder = if begin == "@" {
                String::new()
            } else {
                format!("{}/", path.parent().unwrap().display())
            };
            let name = |bytes: usize| {
                let own = format!("{folder}weir-{}-", std::process::id());
                format!("{begin}{own}{}", "x".repeat(bytes - own.len()))
            };
            assert!(listen(&name(most).into()).is_ok());
            assert!(listen(&name(most + 1).into()).is_err());
        }
        drop(listener);
        assert!(!path.exists());
    }

    #[test]
    fn a_socket_that_is_shut_accepts_nothing_and_has_no_file() {
        let path = any_path();
        let listener = listen(&path.as_path().into()).unwrap();
        let counters = Counters::default();
        let _waits = UnixStream::connect(&path).unwrap();
        assert!(listener.accept(Mode::Try, &counters).unwrap().is_some());
        assert!(listener.accept(Mode::Try, &counters).unwrap().is_none());
        thread::scope(|scope| {
            let waiting = scope.spawn(|| listener.accept(Mode::Wait, &Counters::default()));
            listener.end_accepting();
            assert!(waiting.join().unwrap().unwrap().is_none());
        });
        assert!(!path.exists());
        assert!(UnixStream::connect(&path).is_err());
    }

    #[test]
    fn a_wait_ends_where_another_who_has_the_socket_ends_the_listening() {
        let path = any_path();
        let theirs = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let ours = Listener::from_unix(theirs.try_clone().unwrap()).unwrap();
        let waits = UnixStream::connect(&path).unwrap();
        let theirs = Socket::from(OwnedFd::from(theirs));
        thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                // Who came before is served.
                let counters = Counters::default();
                let first = ours.accept(Mode::Wait, &counters).unwrap();
                (first.is_some(), ours.accept(Mode::Wait, &counters).unwrap().is_some())
            });
            theirs.shutdown(std::net::Shutdown::Read).unwrap();
            assert_eq!(waiting.join().unwrap(), (true, false));
        });
        drop(waits);
        fs::remove_file(path).unwrap();
    }

    /// What is looked for and removed is the file that was made, wherever the process goes later.
    #[test]
    fn a_relative_path_is_of_the_folder_of_its_start() {
        let path = |name: &str| UnixAddress::from(name).wherever_it_is().unwrap();
        let here = std::env::current_dir().unwrap();
        assert_eq!(path("a/b.sock"), Some(here.join("a/b.sock")));
        assert_eq!(path("/a/b.sock"), Some("/a/b.sock".into()));
        assert_eq!(path("@b"), None);
    }

    /// A connection, and its other end.
    fn pair() -> (Stream, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let accepted = super::super::Stream::adopt_unix(ours.into()).unwrap();
        assert_eq!(LocalPeer::of(accepted.peer).unwrap().process, std::process::id());
        (accepted.stream, theirs)
    }

    #[test]
    fn bytes_are_counted_wherever_they_are() {
        let (stream, mut peer) = pair();
        let counters = Counters::default();
        let mut buffer = [0; 70];
        for round in 1..=3 {
            peer.write_all(&[1; 100]).unwrap();
            assert_eq!(stream.received_in_all(&counters).unwrap(), 100 * round);
            assert_eq!(stream.native().undelivered().unwrap(), 100);
            assert_eq!(stream.receive(&mut buffer, Mode::Try, &counters).unwrap(), Some(70));
            assert_eq!(stream.received_in_all(&counters).unwrap(), 100 * round);
            assert_eq!(stream.native().undelivered().unwrap(), 30);
            // By other means, which say so later.
            let mut other: &UnixStream = &UnixStream::from(
                std::os::fd::AsFd::as_fd(&stream.native().fd).try_clone_to_owned().unwrap(),
            );
            std::io::Read::read_exact(&mut other, &mut buffer[..30]).unwrap();
            assert_eq!(stream.received_in_all(&counters).unwrap(), 100 * round);
            assert_eq!(stream.native().undelivered().unwrap(), 30);
            stream.native().delivered(30);
            assert_eq!(stream.native().undelivered().unwrap(), 0);
            let count = stream.native().count.as_ref().unwrap();
            count.renew(stream.native().fd(), count.all_delivered());
            assert_eq!(offset(stream.native().fd()).unwrap(), OFFSET);
            assert_eq!(stream.received_in_all(&counters).unwrap(), 100 * round);
        }
        drop(peer);
        assert_eq!(stream.receive(&mut buffer, Mode::Wait, &counters).unwrap(), Some(0));
        assert_eq!(stream.received_in_all(&counters).unwrap(), 300);
    }

    /// Whoever asks while another receives is never told less than had come by then, nor more than was sent.
    #[test]
    fn the_count_is_right_while_another_receives() {
        const PIECES: u64 = 20_000;
        let (stream, mut peer) = pair();
        let sent = AtomicU64::new(0);
        thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..PIECES {
                    sent.fetch_add(13, SeqCst);
                    peer.write_all(&[7; 13]).unwrap();
                }
                drop(peer);
            });
            scope.spawn(|| {
                let mut buffer = [0; 37];
                let counters = Counters::default();
                stream.set_timeouts(Some(Duration::from_secs(60)), None).unwrap();
                while stream.receive(&mut buffer, Mode::Wait, &counters).unwrap() != Some(0) {}
            });
            let (mut before, counters) = (0, Counters::default());
            while before < 13 * PIECES {
                let now = stream.received_in_all(&counters).unwrap();
                assert!(now >= before, "{now} after {before}");
                assert!(now <= sent.load(SeqCst), "{now} of {}", sent.load(SeqCst));
                before = now;
            }
        });
    }

    #[test]
    fn a_queue_that_is_full_refuses_one_that_does_not_wait() {
        let address = UnixAddress::from(any_path());
        let options = StreamOptions { backlog: 1, ..StreamOptions::default() };
        let _listener = Listener::bind_unix(&address, None, options).unwrap();
        let counters = Counters::default();
        let mut all = Vec::new();
        let error = loop {
            match Stream::connect_unix(&address, options, &counters) {
                Ok(stream) => all.push(stream),
                Err(e) => break e,
            }
            assert!(all.len() < 10, "the backlog has no end");
        };
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        assert!(!is_want_of_resources(&error));
    }
}
