//! A UDP socket on loopback, connected to itself: the only thing that WSAPoll can wait for is
//! a socket.

use crate::socket::native::set_option;
use socket2::{Domain, Protocol, Socket, Type};
use std::{
    io,
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    os::windows::io::AsRawSocket,
};
use windows_sys::Win32::Networking::WinSock::{SO_EXCLUSIVEADDRUSE, SOCKET, SOL_SOCKET};

/// A wake event.
#[derive(Debug)]
pub struct WakeEvent(UdpSocket);

impl WakeEvent {
    pub fn new() -> io::Result<Self> {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
        // Else any program could take the port, and the signals with it, by asking for SO_REUSEADDR.
        set_option(&socket, SOL_SOCKET, SO_EXCLUSIVEADDRUSE, 1)?;
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
        let socket = UdpSocket::from(socket);
        // Connected, it takes datagrams from nobody but itself.
        socket.connect(socket.local_addr()?)?;
        socket.set_nonblocking(true)?;
        Ok(Self(socket))
    }

    pub fn signal(&self) {
        // It fails where its buffer is full of signals, and then it is signalled already.
        let _ = self.0.send(&[1]);
    }

    pub fn clear(&self) {
        while self.0.recv(&mut [0; 1]).is_ok() {}
    }

    pub fn raw(&self) -> SOCKET {
        self.0.as_raw_socket() as SOCKET
    }
}
