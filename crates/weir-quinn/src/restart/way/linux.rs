//! A pair of Unix sockets that nobody else can get at: it has no name, and one end is passed on with the socket.

use socket2::SockRef;
use std::{
    io,
    task::{Context, Poll, ready},
};
use tokio::{io::ReadBuf, runtime::Handle};
use weir::{Error, Unavailable, stream::UnixDatagram};

/// What may wait on a way, in bytes with what the kernel needs for them, if it allows as much (net.core.wmem_max).
const ROOM: usize = 4 << 20;

fn failed(e: io::Error) -> Error {
    Error::io("making a way between processes", e)
}

/// Both ends.
///
/// # Errors
/// [`Error::Unavailable`] without a runtime of tokio, and [`Error::Io`].
pub(crate) fn pair() -> Result<(Inbox, Way), Error> {
    let (inbox, way) = UnixDatagram::pair().map_err(failed)?;
    let room = SockRef::from(&way).set_send_buffer_size(ROOM);
    let way = room.map_err(failed).and_then(|()| Way::of(way))?;
    Ok((Inbox::of(inbox)?, way))
}

/// The end at which a process receives.
#[derive(Debug)]
pub(crate) struct Inbox {
    socket: UnixDatagram,
    /// The same, as tokio's reactor watches it.
    watched: tokio::net::UnixDatagram,
}

impl Inbox {
    fn of(socket: UnixDatagram) -> Result<Self, Error> {
        if Handle::try_current().is_err() {
            let what = "forwarding to another process";
            return Err(Unavailable::new(what, "there is no runtime of tokio here").into());
        }
        socket.set_nonblocking(true).map_err(failed)?;
        let watched = socket.try_clone().and_then(tokio::net::UnixDatagram::from_std);
        Ok(Self { socket, watched: watched.map_err(failed)? })
    }

    pub(crate) fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(buffer);
        ready!(self.watched.poll_recv(cx, &mut buffer))?;
        Poll::Ready(Ok(buffer.filled().len()))
    }

    /// Says something to who has the other end, as far as there is somebody.
    pub(crate) fn say(&self, what: &[u8]) {
        let _ = self.socket.send(what);
    }
}

/// The end at which others send.
#[derive(Debug)]
pub(crate) struct Way(UnixDatagram);

impl Way {
    pub(crate) fn of(socket: UnixDatagram) -> Result<Self, Error> {
        socket.set_nonblocking(true).map_err(failed)?;
        Ok(Self(socket))
    }

    pub(crate) fn send(&self, forwarded: &[u8]) -> Sent {
        loop {
            return match self.0.send(forwarded) {
                Ok(_) => Sent::Yes,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => Sent::Gone,
                // The end of one that was found gone before.
                Err(e) if e.kind() == io::ErrorKind::NotConnected => Sent::Gone,
                Err(_) => Sent::Full, // or the kernel has no memory for it
            };
        }
    }

    /// The socket once more, to be passed on.
    pub(crate) fn socket(&self) -> Result<UnixDatagram, Error> {
        self.0.try_clone().map_err(failed)
    }

    /// Where the other end says something.
    pub(crate) fn answers(&self) -> Result<Inbox, Error> {
        Inbox::of(self.socket()?)
    }
}

/// What became of something that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    Yes,
    /// There is no room, and it was left out.
    Full,
    /// Nobody is there any more.
    Gone,
}
