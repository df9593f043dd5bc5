//! Unix datagram sockets: unix(7).
//!
//! A datagram is never lost on its way: as many wait at a socket as `net.unix.max_dgram_qlen` says, and whoever sends one
//! more is refused, or waits. So a peer that takes nothing is one that nothing can be sent to, and a send to it must
//! neither wait nor look like a want of room that others meet, too.

use super::{Ending, Native, entered};
#[cfg(feature = "udp")]
use crate::stream::UnixDatagram;
use crate::{
    Error, Unavailable,
    counters::Counters,
    socket::{
        Endpoint, Peer, SocketOptions,
        names::{self, KeptName},
    },
    stream::{
        UnixAddress,
        native::{OwnFile, bind_to},
    },
};
use socket2::{Domain, Socket, Type};
use std::{
    fs, io,
    mem::{self, MaybeUninit, offset_of},
    net::SocketAddr,
    path::PathBuf,
    slice,
};
#[cfg(feature = "udp")]
use std::{net::UdpSocket, os::fd::OwnedFd};

/// Room for the name of a Unix socket.
pub(crate) const LOCAL_NAME_BYTES: usize = mem::size_of::<libc::sockaddr_un>();

/// Bytes in front of it.
const BEFORE_PATH: usize = offset_of!(libc::sockaddr_un, sun_path);

/// How many datagrams wait at a socket, at most.
const QUEUE: &str = "/proc/sys/net/unix/max_dgram_qlen";

/// Removes the file of a socket.
type Remove = fn(&OwnFile);

/// What only such a socket has.
#[derive(Debug)]
pub(super) struct Local {
    name: KeptName,
    /// Which goes with it, and by what: a program that opens none of these has no code that removes files.
    file: Option<(OwnFile, Remove)>,
    /// Others have the socket, too.
    is_given: bool,
}

/// While the socket is open.
impl Drop for Local {
    fn drop(&mut self) {
        self.file.iter().for_each(|(file, remove)| remove(file));
    }
}

impl Local {
    pub(super) fn address(&self) -> SocketAddr {
        self.name.address()
    }
}

/// Opens one.
pub(in crate::socket) fn open_unix(endpoint: &Endpoint) -> Result<Native, Error> {
    let Endpoint { address, options } = *endpoint;
    has_no(&options)?;
    let name = UnixAddress::of(address).ok_or_else(|| names::stands_for_none(endpoint))?;
    let failed = |source| Error::BindUnix { address: name.clone(), source };
    let (socket, file) = match options.given {
        Some(given) => {
            let socket = Socket::from(given.socket().map_err(failed)?);
            socket.set_nonblocking(false).map_err(failed)?;
            (socket, None)
        }
        None => {
            let socket = Socket::new(Domain::UNIX, Type::DGRAM, None).map_err(failed)?;
            let file = bind_to(&socket, &name, options.unix_mode, Type::DGRAM).map_err(failed)?;
            (socket, file)
        }
    };
    let file = file.map(|file| (file, OwnFile::remove as Remove));
    let own = own_name(&socket).and_then(|name| KeptName::new(&name)).map_err(failed)?;
    let local = Local { name: own, file, is_given: options.given.is_some() };
    if let Some(bytes) = options.send_buffer_bytes {
        let refused = |e| Error::io(format!("SO_SNDBUF on the socket for {name}"), e);
        socket.set_send_buffer_size(bytes).map_err(refused)?;
    }
    let queue = fs::read_to_string(QUEUE).unwrap_or_default();
    let receive_buffer = match queue.trim() {
        "" => "the system's".into(),
        queue => {
            format!("the system's, where {queue} datagrams may wait (net.unix.max_dgram_qlen)")
        }
    };
    Ok(Native {
        local: Some(local),
        is_local: true,
        socket,
        control: false,
        errors: None,
        busy_poll: None,
        receive_buffer,
        segmentation: None,
        // A datagram may have neither a name nor bytes, so nothing would tell it from the end of receiving.
        ending: Some(Ending::new().map_err(failed)?),
    })
}

/// Refuses what such a socket has not.
fn has_no(options: &SocketOptions) -> Result<(), Error> {
    match options.missing_at_unix() {
        None => Ok(()),
        Some(what) => Err(Unavailable::new(what, "it does not exist on a Unix socket")
            .advise("leave it out")
            .into()),
    }
}

/// The name that a socket is bound to.
fn own_name(socket: &Socket) -> io::Result<Vec<u8>> {
    let address = socket.local_addr()?;
    // SAFETY: the address has so many bytes.
    let name = unsafe { name_in(address.as_ptr().cast(), address.len() as usize) };
    let has_none =
        || io::Error::new(io::ErrorKind::InvalidInput, "the socket has no name; bind it first");
    name.map(<[u8]>::to_vec).ok_or_else(has_none)
}

/// A socket that is bound already, with its name.
#[cfg(feature = "udp")]
pub(in crate::socket) fn bound_unix(socket: UnixDatagram) -> io::Result<(Vec<u8>, UdpSocket)> {
    if socket.peer_addr().is_ok() {
        let problem =
            "the socket is connected, so it receives from one peer alone; leave it unconnected";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
    }
    let socket = Socket::from(OwnedFd::from(socket));
    Ok((own_name(&socket)?, socket.into()))
}

/// The name in an address of a Unix socket; `None` where it has none, or it is no such address.
///
/// # Safety
/// `address` points at `length` readable bytes, which live for 'a.
unsafe fn name_in<'a>(address: *const u8, length: usize) -> Option<&'a [u8]> {
    let length = length.min(LOCAL_NAME_BYTES); // of a path of 108 bytes the kernel counts its end, too
    let bytes = length.checked_sub(BEFORE_PATH).filter(|bytes| *bytes > 0)?;
    // SAFETY: so many bytes are there: a family, and the name behind it.
    let (family, name) = unsafe {
        let family = address.cast::<libc::sa_family_t>().read_unaligned();
        (family, slice::from_raw_parts(address.add(BEFORE_PATH), bytes))
    };
    if i32::from(family) != libc::AF_UNIX {
        return None;
    }
    match name[0] {
        0 => Some(name),
        _ => name.split(|byte| *byte == 0).next(),
    }
}

/// The address that stands for the name of a peer; `None` where it has none, or it is no Unix socket's.
///
/// # Safety
/// `address` points at `length` readable bytes.
#[cold]
#[inline(never)]
pub(super) unsafe fn decode_local(address: *const u8, length: usize) -> Option<SocketAddr> {
    // SAFETY: the caller's word.
    let name = unsafe { name_in(address, length) };
    name.and_then(names::address_of)
}

/// Writes the name that an address stands for as the kernel reads it, and returns its length. Of a name that was forgotten
/// it is that of no name, which the kernel refuses.
#[cold]
#[inline(never)]
pub(crate) fn encode_local(
    address: &SocketAddr,
    into: &mut [MaybeUninit<u8>; LOCAL_NAME_BYTES],
) -> libc::socklen_t {
    let family = (libc::AF_UNIX as libc::sa_family_t).to_ne_bytes();
    let mut length = 0;
    let mut put = |bytes: &[u8]| {
        for (place, byte) in into[length..].iter_mut().zip(bytes) {
            place.write(*byte);
            length += 1;
        }
    };
    put(&family);
    names::with_name(address, |name| {
        put(name);
        if name[0] != 0 {
            put(&[0]);
        }
    });
    length as libc::socklen_t
}

/// What a send to a Unix socket failed with. That its queue is full is not what would-block says elsewhere: that there will
/// be room for whatever is sent.
#[cold]
pub(crate) fn of_unix_peer(errno: i32) -> i32 {
    match errno {
        libc::EAGAIN => libc::ENOBUFS,
        errno => errno,
    }
}

impl Native {
    /// Where nothing was received: whether another who has this Unix socket, too, has shut it down. The system lets every wait
    /// for it end at once from then on (POLLRDHUP of poll(2)), and no receive says why. It takes an entry into the kernel of a
    /// socket that others have, and none of any other.
    ///
    /// # Errors
    /// That it is so.
    #[inline]
    pub(crate) fn is_still_open(&self, counters: Option<&Counters>) -> io::Result<()> {
        match &self.local {
            Some(local) if local.is_given => self.is_not_shut(counters),
            _ => Ok(()),
        }
    }

    #[cold]
    fn is_not_shut(&self, counters: Option<&Counters>) -> io::Result<()> {
        let mut entry = libc::pollfd { fd: self.fd(), events: libc::POLLRDHUP, revents: 0 };
        counters.into_iter().for_each(|counters| counters.kernel_entries.one());
        // SAFETY: one entry, which outlives the call.
        let ready = unsafe { libc::poll(&raw mut entry, 1, 0) };
        if ready == 1 && entry.revents & libc::POLLRDHUP != 0 {
            let problem = "another process or thread that has this Unix socket has shut it down";
            return Err(io::Error::new(io::ErrorKind::BrokenPipe, problem));
        }
        Ok(())
    }

    /// Whether it is a Unix socket.
    #[inline]
    pub(crate) fn is_local(&self) -> bool {
        self.is_local
    }

    /// As `send`, to a Unix socket.
    #[cold]
    pub(super) fn send_to_name(
        &self,
        bytes: &[u8],
        to: &Peer,
        counters: &Counters,
    ) -> io::Result<()> {
        let mut name = [MaybeUninit::uninit(); LOCAL_NAME_BYTES];
        let length = encode_local(&to.address, &mut name);
        // SAFETY: bytes and name outlive the call, and length is the name's.
        let call = || unsafe {
            libc::sendto(
                self.fd(),
                bytes.as_ptr().cast(),
                bytes.len(),
                libc::MSG_DONTWAIT,
                name.as_ptr().cast(),
                length,
            )
        };
        entered(counters, call).map(drop).map_err(|e| self.of_send(e))
    }

    /// What a send failed with.
    #[inline]
    pub(super) fn of_send(&self, e: io::Error) -> io::Error {
        match e.raw_os_error() {
            Some(errno) if self.is_local => io::Error::from_raw_os_error(of_unix_peer(errno)),
            _ => e,
        }
    }
}

/// A path of these bytes, which the system gave.
pub(in crate::socket) fn path_of(bytes: Vec<u8>) -> PathBuf {
    use std::os::unix::ffi::OsStringExt as _;
    std::ffi::OsString::from_vec(bytes).into()
}
