//! Environment variables of sd_listen_fds(3), and SCM_RIGHTS of unix(7).

use super::{Inherited, LONGEST_NAME, MOST_SOCKETS, Socket};
use crate::{
    Error,
    stream::{concerns_one_connection, is_want_of_resources},
    wake::Waker,
};
use nix::{
    cmsg_space,
    sys::socket::{
        ControlMessage, ControlMessageOwned, MsgFlags, UnixAddr, getsockopt, recvmsg, sendmsg,
        sockopt::PeerCredentials,
    },
};
use socket2::{Domain, SockRef, Type};
use std::{
    env, fs,
    io::{self, IoSlice, IoSliceMut, Read as _, Write as _},
    net::Shutdown,
    os::{
        fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd},
        unix::{
            fs::PermissionsExt as _,
            net::{UnixListener, UnixStream},
        },
    },
    path::Path,
    process,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

/// The first descriptor that is passed on (SD_LISTEN_FDS_START).
const FIRST: RawFd = 3;

/// How long a successor may take.
const TIME_MAX: Duration = Duration::from_secs(60);

/// How long it is waited for descriptors or memory.
const RETRY: Duration = Duration::from_millis(100);

/// What a successor says when it serves.
const SERVING: &[u8] = b"serving";

pub fn from_service_manager() -> Result<Vec<Inherited>, Error> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    let is_ours = env::var("LISTEN_PID").is_ok_and(|pid| pid == process::id().to_string());
    if !is_ours || TAKEN.swap(true, Ordering::SeqCst) {
        return Ok(vec![]);
    }
    let text = env::var("LISTEN_FDS").unwrap_or_default();
    let count = text.parse().ok().filter(|count| *count <= MOST_SOCKETS).ok_or_else(|| {
        let problem = format!("{text:?} is not allowed; allowed: 0 to {MOST_SOCKETS}");
        Error::option("LISTEN_FDS", problem)
    })?;
    let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
    let names = names.split(':').map(str::to_owned).chain(std::iter::repeat(String::new()));
    let sockets = names.take(count).zip(FIRST..).map(|(name, fd)| {
        // SAFETY: the call only looks whether there is such a descriptor.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
            let problem = format!("{count} sockets are named, and descriptor {fd} is not open");
            return Err(Error::option("LISTEN_FDS", problem));
        }
        // SAFETY: it is open; the service manager says that it was opened for this process, whose other parts were told
        // to leave it alone, and nobody takes it a second time here.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let kept_to_itself = SockRef::from(&fd).set_cloexec(true);
        kept_to_itself.map_err(|e| Error::io(format!("FD_CLOEXEC on socket {name:?}"), e))?;
        inherited(name, fd)
    });
    sockets.collect()
}

/// A socket by what it is.
fn inherited(name: String, fd: OwnedFd) -> Result<Inherited, Error> {
    let of_it = |e| Error::io(format!("asking what socket {name:?} is"), e);
    let socket = SockRef::from(&fd);
    let (domain, kind) = (socket.domain().map_err(of_it)?, socket.r#type().map_err(of_it)?);
    let is_ip = [Domain::IPV4, Domain::IPV6].contains(&domain);
    let listens = kind == Type::STREAM && socket.is_listener().map_err(of_it)?;
    let socket = match kind {
        Type::DGRAM if is_ip => Socket::Datagrams(fd.into()),
        Type::DGRAM if domain == Domain::UNIX => Socket::UnixDatagrams(fd.into()),
        Type::STREAM if is_ip && listens => Socket::Listener(fd.into()),
        Type::STREAM if domain == Domain::UNIX && listens => Socket::UnixListener(fd.into()),
        _ => {
            let problem = format!(
                "socket {name:?} is neither one of datagrams (UDP, Unix) nor a listening one of TCP or of Unix"
            );
            return Err(Error::option("sockets", problem));
        }
    };
    Ok(Inherited { name, socket })
}

/// The connection to the program before.
#[derive(Debug)]
pub struct Before(UnixStream);

impl Before {
    pub fn serving(mut self) -> Result<(), Error> {
        let told = self.0.write_all(SERVING);
        told.map_err(|e| Error::io("telling the previous program that it may stop", e))
    }
}

pub fn take_over(path: &Path) -> Result<Option<(Vec<Inherited>, Before)>, Error> {
    let failed = |e| Error::io(format!("taking sockets over at {}", path.display()), e);
    let before = match UnixStream::connect(path) {
        Ok(before) => before,
        // None, or one that has ended.
        Err(e)
            if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) =>
        {
            return Ok(None);
        }
        Err(e) => return Err(failed(e)),
    };
    // Whoever may write to the folder may have put anything there.
    if !is_trusted(&before).map_err(failed)? {
        return Err(failed(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "the program there belongs to another user",
        )));
    }
    before.set_read_timeout(Some(TIME_MAX)).map_err(failed)?;
    let mut names = vec![0; MOST_SOCKETS * (LONGEST_NAME + 1)];
    let mut room = cmsg_space!([RawFd; MOST_SOCKETS]);
    let mut parts = [IoSliceMut::new(&mut names)];
    let message = recvmsg::<UnixAddr>(
        before.as_raw_fd(),
        &mut parts,
        Some(&mut room),
        MsgFlags::MSG_CMSG_CLOEXEC,
    );
    let message = message.map_err(|e| failed(e.into()))?;
    let mut fds = Vec::new();
    for part in message.cmsgs().map_err(|e| failed(e.into()))? {
        if let ControlMessageOwned::ScmRights(passed) = part {
            // SAFETY: the kernel made these descriptors for this process just now.
            fds.extend(passed.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
        }
    }
    let bytes = message.bytes;
    let names = String::from_utf8_lossy(&names[..bytes]).into_owned();
    let mut named: Vec<_> = names.split_terminator('\n').map(str::to_owned).collect();
    if named.len() != fds.len() || fds.is_empty() {
        let problem = format!("{} names came with {} sockets", named.len(), fds.len());
        return Err(failed(io::Error::new(io::ErrorKind::InvalidData, problem)));
    }
    let sockets = named.drain(..).zip(fds).map(|(name, fd)| inherited(name, fd));
    Ok(Some((sockets.collect::<Result<_, _>>()?, Before(before))))
}

/// Whether the other end is of this user, or of root.
fn is_trusted(other: &UnixStream) -> io::Result<bool> {
    let user = getsockopt(other, PeerCredentials)?.uid();
    Ok(user == 0 || user == nix::unistd::geteuid().as_raw())
}

#[derive(Debug)]
pub struct Offer {
    listener: Arc<UnixListener>,
    state: Arc<State>,
}

/// What its closer needs.
#[derive(Debug, Default)]
struct State {
    closed: AtomicBool,
    /// The successor that is waited for.
    next: Mutex<Option<UnixStream>>,
}

impl State {
    fn next(&self) -> MutexGuard<'_, Option<UnixStream>> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Offer {
    pub fn at(path: &Path) -> Result<Self, Error> {
        let failed = |e| Error::io(format!("offering sockets at {}", path.display()), e);
        // Made beside it, and put into its place at once: there is always one to connect to.
        let mut beside = path.as_os_str().to_owned();
        beside.push(format!(".{}", process::id()));
        let _ = fs::remove_file(&beside);
        let listener = UnixListener::bind(&beside).map_err(failed)?;
        let own = fs::Permissions::from_mode(0o600);
        let placed = fs::set_permissions(&beside, own).and_then(|()| fs::rename(&beside, path));
        if let Err(e) = placed {
            let _ = fs::remove_file(&beside);
            return Err(failed(e));
        }
        Ok(Self { listener: Arc::new(listener), state: Arc::default() })
    }

    pub fn hand_over(&self, sockets: &[Inherited]) -> Result<(), Error> {
        loop {
            let next = self.listener.accept().map(|(next, _)| next);
            let next = match next {
                _ if self.state.closed.load(Ordering::SeqCst) => return Err(closed()),
                Ok(next) => next,
                // Another part of the program may give some back.
                Err(e) if is_want_of_resources(&e) => {
                    thread::sleep(RETRY);
                    continue;
                }
                Err(e) if concerns_one_connection(&e) => continue,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(Error::io("waiting for a successor", e)),
            };
            *self.state.next() = next.try_clone().ok();
            if self.state.closed.load(Ordering::SeqCst) {
                return Err(closed());
            }
            let passed = pass(&next, sockets);
            *self.state.next() = None;
            if passed.is_ok_and(|serves| serves) {
                return Ok(());
            }
        }
    }

    pub fn closer(&self) -> Waker {
        let (listener, state) = (Arc::clone(&self.listener), Arc::clone(&self.state));
        Waker::new(move || {
            state.closed.store(true, Ordering::SeqCst);
            let _ = SockRef::from(&*listener).shutdown(Shutdown::Both);
            if let Some(next) = &*state.next() {
                let _ = next.shutdown(Shutdown::Both);
            }
        })
    }
}

fn closed() -> Error {
    Error::io("handing sockets over", io::ErrorKind::ConnectionAborted.into())
}

/// Passes the sockets on. Says whether they are served.
fn pass(mut next: &UnixStream, sockets: &[Inherited]) -> io::Result<bool> {
    if !is_trusted(next)? {
        return Ok(false);
    }
    next.set_read_timeout(Some(TIME_MAX))?;
    next.set_write_timeout(Some(TIME_MAX))?;
    let names: String = sockets.iter().map(|one| format!("{}\n", one.name)).collect();
    let fds: Vec<RawFd> = sockets
        .iter()
        .map(|one| match &one.socket {
            Socket::Datagrams(socket) => socket.as_raw_fd(),
            Socket::Listener(socket) => socket.as_raw_fd(),
            Socket::UnixListener(socket) => socket.as_raw_fd(),
            Socket::UnixDatagrams(socket) => socket.as_raw_fd(),
        })
        .collect();
    let (parts, rights) = ([IoSlice::new(names.as_bytes())], [ControlMessage::ScmRights(&fds)]);
    let flags = MsgFlags::MSG_NOSIGNAL;
    let sent = sendmsg::<UnixAddr>(next.as_raw_fd(), &parts, &rights, flags, None)?;
    if sent < names.len() {
        return Ok(false);
    }
    let mut said = [0; SERVING.len()];
    next.read_exact(&mut said)?;
    Ok(said == SERVING)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        net::{TcpListener, UdpSocket},
        os::{
            linux::net::SocketAddrExt as _,
            unix::net::{SocketAddr, UnixDatagram},
        },
        sync::atomic::AtomicUsize,
    };

    /// A path of its own, which goes with this.
    struct Place(std::path::PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            Self(env::temp_dir().join(format!("weir-{name}-{}", process::id())))
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
        }
    }

    fn sockets() -> Vec<Inherited> {
        let udp = Socket::Datagrams(UdpSocket::bind("127.0.0.1:0").unwrap());
        let tcp = Socket::Listener(TcpListener::bind("[::1]:0").unwrap());
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::SeqCst);
        let name = format!("weir-handed-over-{}-{number}", process::id());
        let name = SocketAddr::from_abstract_name(name).unwrap();
        let local = UnixListener::bind_addr(&name);
        // A socket of another kind may have the same name.
        let notes = UnixDatagram::bind_addr(&name).unwrap();
        vec![
            Inherited { name: "questions".into(), socket: udp },
            Inherited { name: String::new(), socket: tcp },
            Inherited { name: "local".into(), socket: Socket::UnixListener(local.unwrap()) },
            Inherited { name: "notes".into(), socket: Socket::UnixDatagrams(notes) },
        ]
    }

    fn addresses(sockets: &[Inherited]) -> Vec<(String, String)> {
        let address = |one: &Inherited| match &one.socket {
            Socket::Datagrams(socket) => format!("udp {}", socket.local_addr().unwrap()),
            Socket::Listener(socket) => format!("tcp {}", socket.local_addr().unwrap()),
            Socket::UnixListener(socket) => format!("unix {:?}", socket.local_addr().unwrap()),
            Socket::UnixDatagrams(socket) => format!("notes {:?}", socket.local_addr().unwrap()),
        };
        sockets.iter().map(|one| (one.name.clone(), address(one))).collect()
    }

    #[test]
    fn sockets_go_to_a_successor_that_serves_and_stay_with_one_whose_successor_does_not() {
        let place = Place::new("hand-over");
        assert!(take_over(&place.0).unwrap().is_none(), "nobody is there");
        let offer = Offer::at(&place.0).unwrap();
        let offered = sockets();
        let expected = addresses(&offered);
        std::thread::scope(|scope| {
            let handing = scope.spawn(|| offer.hand_over(&offered));
            let (first, before) = take_over(&place.0).unwrap().expect("somebody is there");
            assert_eq!(addresses(&first), expected);
            drop(before); // it does not come to serve
            let (second, before) = take_over(&place.0).unwrap().expect("he is still there");
            assert_eq!(addresses(&second), expected);
            // The place is the successor's from here on.
            let next = Offer::at(&place.0).unwrap();
            before.serving().unwrap();
            handing.join().unwrap().unwrap();
            // It is closed while a successor takes its time.
            let closer = next.closer();
            let handing = scope.spawn(move || next.hand_over(&sockets()));
            let (_, slow) = take_over(&place.0).unwrap().expect("it is there");
            closer.wake();
            assert!(handing.join().unwrap().is_err(), "it was closed");
            assert!(slow.serving().is_err() || take_over(&place.0).unwrap().is_none());
        });
        drop(offer);
        assert!(take_over(&place.0).unwrap().is_none(), "nobody is there any more");
    }

    #[test]
    fn what_is_no_server_socket_is_told() {
        let (ours, _) = UnixStream::pair().unwrap();
        let error = inherited("door".into(), ours.into()).unwrap_err().to_string();
        assert!(error.contains("\"door\"") && error.contains("TCP"), "{error}");
        let file = fs::File::open("/dev/null").unwrap();
        assert!(inherited("file".into(), file.into()).is_err());
    }
}
