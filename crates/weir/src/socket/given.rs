//! Sockets that are bound already, on their way to where sockets are opened.

#[cfg(feature = "udp")]
use super::{names::KeptName, native, unix};
#[cfg(feature = "udp")]
use crate::stream::UnixDatagram;
use std::{
    io,
    net::UdpSocket,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// A socket that is bound already, in [`SocketOptions::given`](super::SocketOptions::given): it is there as long as its
/// [`Keeping`]. A server that it was given to has that by itself, and so has what that has started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Given(u64);

/// With the number of each: as few as servers have.
static SOCKETS: Mutex<Vec<(u64, UdpSocket)>> = Mutex::new(Vec::new());
static NEXT: AtomicU64 = AtomicU64::new(0);

fn sockets() -> MutexGuard<'static, Vec<(u64, UdpSocket)>> {
    SOCKETS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Given {
    /// The same socket, for one more user.
    ///
    /// # Errors
    /// What the system answered; [`io::ErrorKind::NotFound`] if nobody keeps it any more.
    #[allow(dead_code, reason = "not every system takes such sockets")]
    pub(super) fn socket(self) -> io::Result<UdpSocket> {
        let sockets = sockets();
        let found = sockets.iter().find(|(number, _)| *number == self.0);
        found.ok_or(io::ErrorKind::NotFound)?.1.try_clone()
    }
}

/// Keeps a Unix socket that is bound already, and its name.
///
/// # Errors
/// What the system answered; that it has no name, or is connected, so that it receives from one peer alone.
#[cfg(feature = "udp")]
pub(crate) fn keep_unix(socket: UnixDatagram) -> io::Result<(Keeping, KeptName)> {
    let (name, socket) = native::bound_unix(socket)?;
    Ok((Keeping::new(socket), unix::kept(&name)?))
}

/// Keeps a socket that is bound already, for whoever opens it in the place of a new one: it can be opened as long as this
/// is there, and what was opened stays open afterwards. Not every system takes such sockets
/// ([`sockets_can_be_given`](super::sockets_can_be_given)).
///
/// ```
/// use std::net::UdpSocket;
/// use weir::socket::{DatagramSocket, Endpoint, Keeping, SocketOptions, sockets_can_be_given};
///
/// # if sockets_can_be_given().is_err() { return }
/// let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
/// let address = socket.local_addr().unwrap();
/// let keeping = Keeping::new(socket);
/// let options = SocketOptions::default().given(Some(keeping.given()));
/// let opened = DatagramSocket::bind(&Endpoint { address, options }).unwrap();
/// drop(keeping);
/// assert_eq!(opened.local_address(), address);
/// ```
#[derive(Debug)]
pub struct Keeping(Given);

impl Keeping {
    /// Keeps this one.
    pub fn new(socket: UdpSocket) -> Self {
        let number = NEXT.fetch_add(1, Relaxed);
        sockets().push((number, socket));
        Self(Given(number))
    }

    /// What names it in [`SocketOptions::given`](super::SocketOptions::given).
    pub fn given(&self) -> Given {
        self.0
    }
}

impl Drop for Keeping {
    fn drop(&mut self) {
        sockets().retain(|(number, _)| *number != self.0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_there_as_long_as_it_is_kept() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let keeping = Keeping::new(socket);
        let given = keeping.given();
        assert_eq!(given.socket().unwrap().local_addr().unwrap(), address);
        drop(keeping);
        assert_eq!(given.socket().unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
