//! Unix sockets of datagrams: what stands for their names, and what opens them, in programs that name one.
//!
//! Most programs have none. So what opens them is called through a pointer, as what keeps [names](super::names) is. Only
//! whoever [keeps](kept) the name for one, or asks for the address that stands for a name, puts it there.

use super::{
    Endpoint, Native,
    names::{KeptName, made_for, stands_for_none, with_name},
    native,
};
use crate::{Error, stream::UnixAddress};
use std::{io, net::SocketAddr, sync::OnceLock};

type Open = fn(&Endpoint) -> Result<Native, Error>;

static OPENS: OnceLock<Open> = OnceLock::new();

/// Keeps the name that a socket is to be bound to, or is.
#[cfg(feature = "udp")]
pub(crate) fn kept(name: &[u8]) -> io::Result<KeptName> {
    let kept = KeptName::new(name)?;
    may_open();
    Ok(kept)
}

/// A socket for a name may be opened from now on.
fn may_open() {
    OPENS.get_or_init(|| native::open_unix);
}

/// Opens the socket for an address that stands for a name.
pub(super) fn open(endpoint: &Endpoint) -> Result<Native, Error> {
    match OPENS.get() {
        Some(open) => open(endpoint),
        None => Err(stands_for_none(endpoint)),
    }
}

impl UnixAddress {
    /// The name of a peer on a Unix datagram socket, where it is the address that stands for one: handlers are told such
    /// addresses ([`Datagram::source`](crate::udp::Datagram::source)). `None` where it is an address of the internet or of a
    /// peer that has no name, or the name was forgotten: a program remembers the 65,536 that came or were asked for last.
    pub fn of(address: SocketAddr) -> Option<Self> {
        with_name(&address, |name| match name.split_first() {
            Some((0, name)) => Self::from(native::path_of([b"@", name].concat())),
            // What would be taken for an abstract name is the file of that name here.
            Some((b'@', _)) => Self::from(native::path_of([b"./", name].concat())),
            _ => Self::from(native::path_of(name.to_vec())),
        })
    }
}

impl TryFrom<&UnixAddress> for SocketAddr {
    type Error = io::Error;

    /// The address that stands for this name, for whom a server on a Unix datagram socket shall send to
    /// ([`Transmit::destination`](crate::udp::Transmit::destination)). To be asked for anew from time to time, since names that nobody asks for are
    /// forgotten ([`UnixAddress::of`]).
    ///
    /// ```
    /// use std::net::SocketAddr;
    /// use weir::stream::UnixAddress;
    ///
    /// let name = UnixAddress::from("@example");
    /// let address = SocketAddr::try_from(&name).unwrap();
    /// assert_eq!(UnixAddress::of(address), Some(name));
    /// assert_eq!(UnixAddress::of("127.0.0.1:80".parse().unwrap()), None);
    /// ```
    fn try_from(name: &UnixAddress) -> io::Result<SocketAddr> {
        let address = made_for(&name.name_bytes()?)?;
        may_open(); // it may be what a socket is bound to
        Ok(address)
    }
}
