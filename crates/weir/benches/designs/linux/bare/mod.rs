//! The bare loops: the system calls of a design and nothing else. They count datagrams and
//! bytes; that is all that they do. One file a mechanism.

pub mod port;
pub mod rings;
pub mod sockets;

use std::{
    io,
    net::{SocketAddr, UdpSocket},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};
use weir::counters::Counter;

/// The payload of a slice, as in the designs.
const PAYLOAD_BYTES: usize = 1024;

pub struct Run {
    pub socket: UdpSocket,
    pub address: SocketAddr,
    pub count: Counter,
    stop: AtomicBool,
}

impl Run {
    pub fn bind() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let address = socket.local_addr().expect("bound");
        Self { socket, address, count: Counter::default(), stop: AtomicBool::new(false) }
    }

    /// The flood goes on until the loop has seen this, so no loop needs to be woken.
    pub fn stop(&self) {
        self.stop.store(true, Relaxed);
    }

    fn stopping(&self) -> bool {
        self.stop.load(Relaxed)
    }
}

fn check(n: isize) -> io::Result<usize> {
    if n >= 0 { Ok(n as usize) } else { Err(io::Error::last_os_error()) }
}
