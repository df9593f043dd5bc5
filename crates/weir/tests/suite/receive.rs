//! Receiving in a thread that has opened rings.

use std::{
    io,
    net::{SocketAddr, UdpSocket},
};

/// Receives one datagram. A ring that an earlier server closed may interrupt the thread that
/// opened it: the kernel runs the end of a ring in every thread that used it.
pub fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
    loop {
        match socket.recv_from(buffer) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
