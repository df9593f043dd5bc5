//! Sockets that come from somebody else: from the service manager that started this program, or from the one that it
//! replaces.
//!
//! A server takes them by `from_std` ([`udp::Server::from_std`], [`tcp::Server::from_std`]), a Unix socket by
//! `from_unix` ([`tcp::Server::from_unix`], [`udp::Server::from_unix`]).
//!
//! # What belongs to the socket
//!
//! Whoever has a socket shares all that is set on it: the sizes of its buffers, what is told of its datagrams, receive
//! offload, and whether calls wait (O_NONBLOCK, which a server of UDP takes off, and one of TCP puts on). So servers that
//! have it at the same time, as before and after a restart, should ask the same of it: of two that differ in
//! `receive_offload` or `local_address`, one is told what the other asked for.
//!
//! A thread that waits for a datagram of such a socket in a call (`blocking`, `blocking-batch`) does so by ppoll(2) where
//! nothing has come yet, and then receives: one call more for each time that it sleeps.
//!
//! # From a service manager
//!
//! systemd opens the sockets of a service before it starts it, and passes them on (sd_listen_fds(3)):
//! [`from_service_manager`]. They may have a port below 1024, which the program itself may not bind; and what comes while
//! it is not there waits.
//!
//! # From one program to the next
//!
//! A program that is to be replaced [offers](Offer) its sockets at a path. Its successor [takes them over](take_over),
//! starts its servers, and says so; then the first one stops. So there is no moment in which nobody has the
//! sockets, and nothing that comes by them is lost:
//!
//! - A datagram waits in the socket until one of the two takes it. The one that took it answers it, since a server
//!   whose sockets were given to it ends by handling all that it took from them.
//! - A connection waits to be accepted until one of the two accepts it. The first one
//!   [accepts no more](crate::tcp::Running::end_accepting), and serves those that it has until they are over, or for as long as
//!   it likes to wait. Its sockets have to be [kept](crate::tcp::Server::keep_listening).
//!
//! | design | so a server can end |
//! | --- | --- |
//! | UDP: `blocking`, `blocking-batch`, `epoll`, `epoll-batch` | yes |
//! | `rio-polled`, `rio-event`, `rio-event-polled`, `rio-port`, `rio-reader`, `rio-hybrid`, `rio-hybrid-reader`, by the providers `uring` and `batch` | yes |
//! | the same by `xdp` and `packet-any-port` | no: frames come by a queue of the program's own |
//! | `port`, `port-batch` | yes |
//! | `rio-sharded`, by the providers `uring` and `batch` | yes; it takes as many sockets of each address as it has threads |
//! | TCP: all | yes |
//!
//! Of a design for UDP [`ends_without_loss`](crate::udp::Design::ends_without_loss) says it, and
//! [`sockets_per_address`](crate::udp::Design::sockets_per_address) how many sockets it takes of each address
//! ([`bind_sharing`](crate::socket::bind_sharing) binds them). Several that share an address have to go on together: a
//! datagram is in one of them as soon as it has come, and is lost with it if nobody has that any more. Designs that take one
//! take several as well: all threads of these receive by each.
//!
//! ```no_run
//! use std::{net::UdpSocket, path::Path};
//! use weir::inherited::{Inherited, Offer, Socket, take_over};
//! use weir::udp::{BlockingBatch, Datagram, Replies, Server};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let path = Path::new("/run/example/next");
//! let mut before = take_over(path)?;
//! let socket = match before.as_mut().and_then(|before| before.sockets().pop()) {
//!     Some(Inherited { socket: Socket::Datagrams(socket), .. }) => socket,
//!     _ => UdpSocket::bind("127.0.0.1:5300")?,
//! };
//! let kept = Inherited { name: "udp".into(), socket: Socket::Datagrams(socket.try_clone()?) };
//! let server = Server::from_std(socket)?
//!     .start(BlockingBatch::default(), |_| |_: Datagram<'_>, _: &mut Replies<'_>| {})?;
//! // Before the other one ends: if this fails it goes on.
//! let offer = Offer::at(path)?;
//! if let Some(before) = before {
//!     before.serving()?; // it ends
//! }
//! offer.hand_over(&[kept])?; // waits for the next one
//! let report = server.stop();
//! # Ok(())
//! # }
//! ```
//!
//! [`udp::Server::from_std`]: crate::udp::Server::from_std
//! [`tcp::Server::from_std`]: crate::tcp::Server::from_std
//! [`tcp::Server::from_unix`]: crate::tcp::Server::from_unix
//! [`udp::Server::from_unix`]: crate::udp::Server::from_unix

#[cfg_attr(target_os = "linux", path = "linux.rs")]
#[cfg_attr(windows, path = "windows.rs")]
mod native;

use crate::{
    Error,
    stream::{UnixDatagram, UnixListener},
    wake::Waker,
};
use std::{
    net::{TcpListener, UdpSocket},
    path::Path,
};

/// The most sockets that are passed on.
pub const MOST_SOCKETS: usize = 64;

/// The longest name of one, in bytes (FileDescriptorName= in systemd.socket(5)).
pub const LONGEST_NAME: usize = 255;

/// A socket that somebody else had.
#[derive(Debug)]
#[non_exhaustive]
pub enum Socket {
    /// A UDP socket, bound.
    Datagrams(UdpSocket),
    /// A TCP socket that listens.
    Listener(TcpListener),
    /// A Unix socket (SOCK_STREAM) that listens.
    UnixListener(UnixListener),
    /// A Unix socket of datagrams (SOCK_DGRAM), bound.
    UnixDatagrams(UnixDatagram),
}

/// A socket that somebody else had, and what he called it.
#[derive(Debug)]
pub struct Inherited {
    /// Its name: of systemd that of the socket unit, unless FileDescriptorName= says otherwise.
    pub name: String,
    /// The socket.
    pub socket: Socket,
}

impl Inherited {
    /// The same socket once more.
    ///
    /// # Errors
    /// [`Error::Io`] with what the operating system answered.
    pub fn try_clone(&self) -> Result<Self, Error> {
        let socket = match &self.socket {
            Socket::Datagrams(socket) => socket.try_clone().map(Socket::Datagrams),
            Socket::Listener(socket) => socket.try_clone().map(Socket::Listener),
            Socket::UnixListener(socket) => socket.try_clone().map(Socket::UnixListener),
            Socket::UnixDatagrams(socket) => socket.try_clone().map(Socket::UnixDatagrams),
        };
        let socket = socket.map_err(|e| Error::io("duplicating a socket", e))?;
        Ok(Self { name: self.name.clone(), socket })
    }
}

/// The sockets that a service manager has passed on to this process (LISTEN_FDS, LISTEN_PID and LISTEN_FDNAMES,
/// sd_listen_fds(3)), the first time that it is called; none afterwards, and where there are none. The descriptors that the
/// environment names are taken for this process's own: nothing else in it may have taken them before.
///
/// # Errors
/// [`Error::Option`] where they are described in a way that makes no sense, or one is neither a socket of datagrams
/// (UDP, Unix) nor a listening one of TCP or of Unix (SOCK_STREAM).
pub fn from_service_manager() -> Result<Vec<Inherited>, Error> {
    native::from_service_manager()
}

/// Asks the program that offers its sockets at this path for them; `None` where none does.
///
/// # Errors
/// [`Error::Io`] with what the operating system answered, that what came makes no sense, or that the program there is of
/// another user (not this one, nor root); [`Error::Unavailable`] where sockets cannot be handed over.
pub fn take_over(path: &Path) -> Result<Option<TakenOver>, Error> {
    let taken = native::take_over(path)?;
    Ok(taken.map(|(sockets, before)| TakenOver { sockets, before }))
}

/// The sockets of a program that is to be replaced. Where this is dropped before [`serving`](Self::serving), that program
/// goes on.
#[derive(Debug)]
pub struct TakenOver {
    sockets: Vec<Inherited>,
    before: native::Before,
}

impl TakenOver {
    /// Takes them out, in the order in which they were offered.
    pub fn sockets(&mut self) -> Vec<Inherited> {
        std::mem::take(&mut self.sockets)
    }

    /// Says that they are served here now, so that the other program stops.
    ///
    /// # Errors
    /// [`Error::Io`] where it is not there any more.
    pub fn serving(self) -> Result<(), Error> {
        self.before.serving()
    }
}

/// Where a successor asks for this program's sockets: a Unix socket that only the same user may connect to.
#[derive(Debug)]
pub struct Offer(native::Offer);

impl Offer {
    /// Makes the place, instead of that of a program before.
    ///
    /// # Errors
    /// [`Error::Io`] with what the operating system answered; [`Error::Unavailable`] where sockets cannot be handed over.
    pub fn at(path: &Path) -> Result<Self, Error> {
        native::Offer::at(path).map(Self)
    }

    /// Waits for a successor, passes the sockets on to it, and waits until it serves them. Where it does not come to that
    /// within a minute, or is of another user, the next one is waited for; and so it is where the system has no descriptor
    /// or memory to give for a while.
    ///
    /// # Errors
    /// [`Error::Option`] for more than [`MOST_SOCKETS`], or a name that is longer than [`LONGEST_NAME`] or has a line
    /// feed; [`Error::Io`] with what the operating system answered, or that it was [closed](Self::closer).
    pub fn hand_over(&self, sockets: &[Inherited]) -> Result<(), Error> {
        if sockets.len() > MOST_SOCKETS {
            let problem = format!("{} are too many; allowed: {MOST_SOCKETS}", sockets.len());
            return Err(Error::option("sockets", problem));
        }
        let is_wrong = |one: &&Inherited| one.name.len() > LONGEST_NAME || one.name.contains('\n');
        if let Some(Inherited { name, .. }) = sockets.iter().find(is_wrong) {
            let problem = format!(
                "{name:?} is not allowed; a name has {LONGEST_NAME} bytes at most, and no line feed"
            );
            return Err(Error::option("sockets", problem));
        }
        self.0.hand_over(sockets)
    }

    /// Ends [`hand_over`](Self::hand_over), now or the next time, from any thread.
    pub fn closer(&self) -> Waker {
        self.0.closer()
    }
}
