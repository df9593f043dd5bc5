//! What the suite asks of the system about its own process, where the system tells (Linux).

use std::{fs, io, net::TcpStream, path::Path};
use weir::stream::LocalPeer;
#[cfg(target_os = "linux")]
use weir::stream::UnixListener;

/// Descriptors that the checks are left with: enough for 2000 connections with both ends in one
/// process, and few enough to be used up by the check that does so.
#[cfg(target_os = "linux")]
const MOST_DESCRIPTORS: u64 = 8192;

/// Starts this program again with fewer descriptors, where it may have more.
#[cfg(target_os = "linux")]
pub fn confine() {
    use std::{os::unix::process::CommandExt as _, process::Command};
    use weir_confine::{Confinement, Resource};

    if most_descriptors().is_none_or(|most| most <= MOST_DESCRIPTORS) {
        return;
    }
    let program = std::env::current_exe().expect("this program has a path");
    let mut command = Command::new(program);
    command.args(std::env::args_os().skip(1));
    let confinement = Confinement::new().limit(Resource::Descriptors, MOST_DESCRIPTORS);
    let error = confinement.confine(&mut command).exec();
    panic!("the suite cannot be started with fewer descriptors: {error}");
}

#[cfg(not(target_os = "linux"))]
pub fn confine() {}

/// The most that may be.
pub fn most_descriptors() -> Option<u64> {
    if cfg!(windows) {
        return None; // Wine shows Linux's files, and they are none of its affair
    }
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    match line.split_whitespace().next()? {
        "unlimited" => Some(u64::MAX),
        most => most.parse().ok(),
    }
}

/// Threads of this process.
pub fn threads() -> Option<usize> {
    if cfg!(windows) {
        return None;
    }
    Some(fs::read_dir("/proc/self/task").ok()?.count())
}

/// Bytes that each client sent and that the server's system has not acknowledged (SIOCOUTQ in tcp(7)): of a Unix socket
/// none.
#[cfg(target_os = "linux")]
pub fn unacknowledged(clients: &[&TcpStream]) -> Option<Vec<u64>> {
    use std::os::fd::AsRawFd as _;

    let of = |client: &&TcpStream| {
        if client.local_addr().is_err() {
            return Some(0);
        }
        let mut waiting: libc::c_int = 0;
        // SAFETY: the kernel writes one int, which outlives the call; the descriptor is open.
        let told = unsafe { libc::ioctl(client.as_raw_fd(), libc::TIOCOUTQ, &raw mut waiting) };
        if told == 0 { u64::try_from(waiting).ok() } else { None }
    };
    clients.iter().map(of).collect()
}

/// Connects to a Unix socket, which has the functions that one of TCP has.
#[cfg(target_os = "linux")]
pub fn connect_unix(path: &Path) -> io::Result<TcpStream> {
    use socket2::{Domain, SockAddr, Socket, Type};

    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.connect(&SockAddr::unix(path)?)?;
    Ok(socket.into())
}

#[cfg(not(target_os = "linux"))]
pub fn connect_unix(_: &Path) -> io::Result<TcpStream> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Listens at a path as another program does, which leaves its file behind.
#[cfg(target_os = "linux")]
pub fn listen_unix(path: &Path) -> io::Result<UnixListener> {
    UnixListener::bind(path)
}

/// Listens at a path or an abstract name, where so many connections may wait to be accepted, and one more.
#[cfg(target_os = "linux")]
pub fn listen_unix_for(address: &weir::stream::UnixAddress, backlog: i32) -> UnixListener {
    use socket2::{Domain, SockAddr, Socket, Type};

    let name = match (address.path(), address.abstract_name()) {
        (Some(path), _) => path.to_owned(),
        (None, name) => format!("\0{}", String::from_utf8_lossy(name.unwrap_or_default())).into(),
    };
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None).expect("a socket");
    socket.bind(&SockAddr::unix(name).expect("a short name")).expect("a name that is free");
    socket.listen(backlog).expect("it is bound");
    std::os::fd::OwnedFd::from(socket).into()
}

/// A connection, which has the functions that one of TCP has.
#[cfg(target_os = "linux")]
pub fn accept_unix(listener: &UnixListener) -> TcpStream {
    let (stream, _) = listener.accept().expect("a connection");
    std::os::fd::OwnedFd::from(stream).into()
}

/// The rights to a file.
#[cfg(target_os = "linux")]
pub fn mode(path: &Path) -> io::Result<u32> {
    use std::os::unix::fs::MetadataExt as _;

    fs::metadata(path).map(|found| found.mode() & 0o777)
}

/// Who this process is to the other end of a Unix socket.
pub fn ourselves() -> LocalPeer {
    #[cfg(target_os = "linux")]
    // SAFETY: neither call can fail, or touches memory.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    #[cfg(not(target_os = "linux"))]
    let (user, group) = (0, 0);
    LocalPeer { user, group, process: std::process::id() }
}

#[cfg(not(target_os = "linux"))]
pub fn unacknowledged(_: &[&TcpStream]) -> Option<Vec<u64>> {
    None
}
