//! The bare loops of Linux: each engine's system call and nothing else.

use std::{
    io, mem,
    net::{SocketAddr, UdpSocket},
    os::fd::AsRawFd,
};

use io_uring::{IoUring, opcode, types};

/// A function that sends some datagrams in one call and says how many.
pub type Bare = Box<dyn FnMut() -> io::Result<u64>>;

const BATCH: usize = 64;

/// The largest payload, which also bounds a send that is segmented.
const BYTES_MAX: usize = 65_507;

/// The bare loop of an engine; `None` if it has none here.
pub fn open(engine: &str, to: SocketAddr, size_bytes: usize) -> io::Result<Option<Bare>> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.connect(to)?;
    Ok(match engine {
        "send" => {
            let datagram = vec![7; size_bytes];
            Some(Box::new(move || socket.send(&datagram).map(|_| 1)))
        }
        "sendmmsg" => Some(sendmmsg(socket, size_bytes)),
        "gso" => Some(gso(socket, size_bytes)?),
        "uring" => Some(uring(socket, size_bytes)?),
        _ => None,
    })
}

fn gso(socket: UdpSocket, size_bytes: usize) -> io::Result<Bare> {
    let segment = size_bytes as i32;
    // SAFETY: an open socket, and an int of the length stated that outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_UDP,
            libc::UDP_SEGMENT,
            (&raw const segment).cast(),
            mem::size_of_val(&segment) as libc::socklen_t,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let datagrams = BATCH.min(BYTES_MAX / size_bytes);
    let bytes = vec![7; size_bytes * datagrams];
    Ok(Box::new(move || socket.send(&bytes).map(|_| datagrams as u64)))
}

fn sendmmsg(socket: UdpSocket, size_bytes: usize) -> Bare {
    // Leaked, so that the messages can point to it for as long as the loop may live.
    let bytes: &'static [u8] = vec![7; size_bytes * BATCH].leak();
    let pieces: &'static mut [libc::iovec] = bytes
        .chunks_exact(size_bytes)
        .map(|piece| libc::iovec {
            iov_base: piece.as_ptr().cast_mut().cast(),
            iov_len: piece.len(),
        })
        .collect::<Vec<_>>()
        .leak();
    let mut messages: Vec<libc::mmsghdr> = pieces
        .iter_mut()
        .map(|piece| {
            // SAFETY: plain integers and pointers, for which zeros and null are valid.
            let mut message: libc::mmsghdr = unsafe { mem::zeroed() };
            message.msg_hdr.msg_iov = piece;
            message.msg_hdr.msg_iovlen = 1;
            message
        })
        .collect();
    Box::new(move || {
        // SAFETY: an open socket; the messages point to memory that is never freed.
        let sent =
            unsafe { libc::sendmmsg(socket.as_raw_fd(), messages.as_mut_ptr(), BATCH as u32, 0) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(sent as u64) }
    })
}

fn uring(socket: UdpSocket, size_bytes: usize) -> io::Result<Bare> {
    let mut ring: IoUring = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_submit_all()
        .build(BATCH as u32)?;
    // Leaked, so that a send still with the kernel finds it whatever becomes of the loop.
    let bytes: &'static [u8] = vec![7; size_bytes * BATCH].leak();
    Ok(Box::new(move || {
        let target = types::Fd(socket.as_raw_fd());
        for piece in bytes.chunks_exact(size_bytes) {
            let entry = opcode::Send::new(target, piece.as_ptr(), piece.len() as u32).build();
            // SAFETY: the bytes are never freed nor written to, and the socket is open
            // until the loop has waited for all of its sends.
            unsafe { ring.submission().push(&entry) }.map_err(io::Error::other)?;
        }
        ring.submit_and_wait(BATCH)?;
        Ok(ring.completion().filter(|completion| completion.result() >= 0).count() as u64)
    }))
}
