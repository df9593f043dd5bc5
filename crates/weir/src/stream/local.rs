//! Unix sockets (AF_UNIX): where one listens, and who is at its other end.

use std::{
    fmt, io,
    net::{Ipv6Addr, SocketAddr, SocketAddrV6},
    path::{Path, PathBuf},
};

/// Where a Unix socket listens: a path of the file system, or, written with an `@` before it as systemd and ss(8) do, a name
/// of Linux's abstract namespace (unix(7)), which is no file and is gone with its socket. A file whose name begins with
/// that sign is `./@name`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct UnixAddress(PathBuf);

impl UnixAddress {
    /// The path; `None` for an abstract name.
    pub fn path(&self) -> Option<&Path> {
        self.abstract_name().is_none().then_some(&self.0)
    }

    /// The abstract name, without its sign; `None` for a path.
    pub fn abstract_name(&self) -> Option<&[u8]> {
        self.0.as_os_str().as_encoded_bytes().strip_prefix(b"@")
    }

    /// The name as Linux has it: a path, or an abstract name with the byte 0 before it.
    pub(crate) fn name_bytes(&self) -> io::Result<Vec<u8>> {
        /// The longest in bytes: sun_path, without the byte that ends a path or begins an abstract name.
        const LONGEST: usize = 107;
        let wrong = |problem: String| io::Error::new(io::ErrorKind::InvalidInput, problem);
        let path = self.0.as_os_str().as_encoded_bytes();
        let (name, bytes) = match self.abstract_name() {
            None => (path, path.to_vec()),
            Some(name) => (name, [b"\0", name].concat()),
        };
        if name.is_empty() {
            return Err(wrong("it has no name".into()));
        }
        // In an abstract name such a byte means nothing; peers that give the length of the whole structure have many.
        if self.path().is_some() && name.contains(&0) {
            return Err(wrong("there is a byte of value 0 in its name".into()));
        }
        if name.len() > LONGEST {
            return Err(wrong(format!(
                "its name has {} bytes, and {LONGEST} are the most; choose a shorter one",
                name.len()
            )));
        }
        Ok(bytes)
    }
}

impl<P: Into<PathBuf>> From<P> for UnixAddress {
    fn from(path: P) -> Self {
        Self(path.into())
    }
}

impl fmt::Display for UnixAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unix:{}", self.0.display())
    }
}

/// Who is at the other end of a Unix socket: the credentials of the process that connected, or that listened, at that time
/// (SO_PEERCRED of unix(7)).
///
/// Handlers and filters are told of a peer by an address. A peer of a Unix socket has none, so they are told one that
/// nobody else can have, with port 0: [`of`](Self::of) makes out of it who that is. What else the address says, such as
/// whether it is one of loopback, means nothing.
///
/// ```
/// use weir::stream::LocalPeer;
///
/// let peer = LocalPeer { user: 1000, group: 100, process: 4711 };
/// assert_eq!(LocalPeer::of(peer.into()), Some(peer));
/// assert_eq!(LocalPeer::of("127.0.0.1:80".parse().unwrap()), None);
/// assert_eq!(peer.to_string(), "user 1000, group 100, process 4711");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LocalPeer {
    /// The effective user; 65534 where this process's user namespace does not know it.
    pub user: u32,
    /// The effective group, likewise.
    pub group: u32,
    /// The process; 0 where it is not to be seen from this process's PID namespace. It may have ended since, and its number
    /// may be another's: only user and group are to be trusted.
    pub process: u32,
}

impl LocalPeer {
    /// A peer that is no process.
    pub(crate) const NOBODY: Self = Self { user: u32::MAX, group: u32::MAX, process: 0 };

    /// Who that is, where it is the address that stands for a peer of a Unix socket.
    pub fn of(address: SocketAddr) -> Option<Self> {
        // No peer of TCP has port 0: the system accepts none.
        let SocketAddr::V6(v6) = address else { return None };
        let bits = v6.ip().to_bits();
        let group = u32::try_from(bits).ok().filter(|_| v6.port() == 0)?;
        Some(Self { user: v6.scope_id(), group, process: v6.flowinfo() })
    }
}

impl From<LocalPeer> for SocketAddr {
    fn from(peer: LocalPeer) -> Self {
        let LocalPeer { user, group, process } = peer;
        SocketAddrV6::new(Ipv6Addr::from_bits(group.into()), 0, process, user).into()
    }
}

impl fmt::Display for LocalPeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { user, group, process } = self;
        write!(f, "user {user}, group {group}, process {process}")
    }
}
