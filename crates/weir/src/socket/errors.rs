//! What became of datagrams that were sent: errors that other machines report.
//!
//! A datagram that cannot be delivered comes back as an ICMP message to whoever sent it. Sockets
//! that serve many peers are not told, unless they ask ([`SocketOptions::peer_errors`]): then the
//! system keeps the message in a queue of the socket, and also fails the next call on that socket,
//! a receive or a send of anything to anybody. Here those calls are made again, so nothing is lost by
//! it, and what is in the queue is taken from there ([`DatagramSocket::take_errors`]).
//!
//! [`SocketOptions::peer_errors`]: super::SocketOptions::peer_errors
//! [`DatagramSocket::take_errors`]: super::DatagramSocket::take_errors

use std::{
    io,
    net::{IpAddr, SocketAddr},
};

/// The most errors taken from a socket at a time, so that a flood of them cannot keep datagrams
/// waiting. Those behind them are taken after the next dequeue; what finds no room in the socket's
/// receive buffer is lost.
pub const MOST_ERRORS: usize = 64;

/// A datagram of ours that met an error on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerError {
    /// Where it was to go.
    pub destination: SocketAddr,
    /// The system's number of the error (errno(3)).
    pub errno: i32,
    /// The message that told of it; `None` where this machine itself did not send it.
    pub icmp: Option<Icmp>,
    /// Who sent that message: the destination, or a router on the way.
    pub offender: Option<IpAddr>,
    /// Where the datagram was too long: the most bytes of a packet that the path takes.
    pub path_mtu_bytes: Option<u32>,
}

/// The kind of an ICMP message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Icmp {
    /// Whether it is one of ICMPv6, whose numbers are others.
    pub v6: bool,
    /// Its type (RFC 792, RFC 4443): 3 is "destination unreachable", which in ICMPv6 is 1.
    pub kind: u8,
    /// Its code: of "destination unreachable" 3 is "port unreachable", which in ICMPv6 is 4.
    pub code: u8,
}

impl PeerError {
    /// What kind of error it is: [`io::ErrorKind::ConnectionRefused`] where nobody has the port.
    pub fn kind(&self) -> io::ErrorKind {
        self.error().kind()
    }

    /// The error as the system words it.
    pub fn error(&self) -> io::Error {
        io::Error::from_raw_os_error(self.errno)
    }
}
