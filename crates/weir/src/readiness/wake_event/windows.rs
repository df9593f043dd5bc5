//! A UDP socket on loopback, connected to itself: the only thing that WSAPoll can wait for is
//! a socket.

use std::{
    io,
    net::{Ipv4Addr, UdpSocket},
    os::windows::io::AsRawSocket,
};
use windows_sys::Win32::Networking::WinSock::SOCKET;

/// A wake event.
#[derive(Debug)]
pub struct WakeEvent(UdpSocket);

impl WakeEvent {
    pub fn new() -> io::Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
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
