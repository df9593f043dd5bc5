//! Plain sockets: one datagram a call, a batch a call, and both behind epoll.

use super::{PAYLOAD_BYTES, Run, check};
use std::{io, mem, os::fd::AsRawFd};

/// Datagrams of one call, or of one wake-up.
const BATCH: usize = 32;
/// Datagrams that one wake-up may bring in batches.
const DRAIN: usize = 256;

pub fn blocking(run: &Run) -> io::Result<()> {
    let mut buffer = [0u8; PAYLOAD_BYTES];
    // SAFETY: all zeroes is a valid name.
    let mut name: libc::sockaddr_storage = unsafe { mem::zeroed() };
    let mut bytes = 0;
    while !run.stopping() {
        let mut length = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
        // SAFETY: buffer, name and length live through the call, with their sizes.
        bytes += check(unsafe {
            libc::recvfrom(
                run.socket.as_raw_fd(),
                buffer.as_mut_ptr().cast(),
                buffer.len(),
                libc::MSG_TRUNC,
                (&raw mut name).cast(),
                &mut length,
            )
        })?;
        run.count.one();
    }
    std::hint::black_box(bytes);
    Ok(())
}

pub fn epoll(run: &Run) -> io::Result<()> {
    let fd = run.socket.as_raw_fd();
    let (epoll, mut event) = watch(fd)?;
    let mut buffer = [0u8; PAYLOAD_BYTES];
    // SAFETY: all zeroes is a valid name.
    let mut name: libc::sockaddr_storage = unsafe { mem::zeroed() };
    let mut bytes = 0;
    while !run.stopping() {
        wait(epoll, &mut event)?;
        for _ in 0..BATCH {
            let mut length = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            // SAFETY: buffer, name and length live through the call, with their sizes.
            let n = unsafe {
                libc::recvfrom(
                    fd,
                    buffer.as_mut_ptr().cast(),
                    buffer.len(),
                    libc::MSG_TRUNC | libc::MSG_DONTWAIT,
                    (&raw mut name).cast(),
                    &mut length,
                )
            };
            match check(n) {
                Ok(n) => bytes += n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) => return Err(e),
            }
            run.count.one();
        }
    }
    std::hint::black_box(bytes);
    // SAFETY: opened above and not used again.
    unsafe { libc::close(epoll) };
    Ok(())
}

/// Room for a batch, with the headers that the kernel wants. What they point at never moves.
struct Batch {
    _buffers: Vec<[u8; PAYLOAD_BYTES]>,
    _vectors: Vec<libc::iovec>,
    _names: Vec<libc::sockaddr_storage>,
    headers: Vec<libc::mmsghdr>,
}

impl Batch {
    fn new() -> Self {
        let mut buffers = vec![[0u8; PAYLOAD_BYTES]; BATCH];
        // SAFETY: all zeroes is valid for both.
        let mut names: Vec<libc::sockaddr_storage> = vec![unsafe { mem::zeroed() }; BATCH];
        let vector = |buffer: &mut [u8; PAYLOAD_BYTES]| libc::iovec {
            iov_base: buffer.as_mut_ptr().cast(),
            iov_len: buffer.len(),
        };
        let mut vectors: Vec<libc::iovec> = buffers.iter_mut().map(vector).collect();
        // SAFETY: as above.
        let mut headers: Vec<libc::mmsghdr> = vec![unsafe { mem::zeroed() }; BATCH];
        for i in 0..BATCH {
            headers[i].msg_hdr.msg_iov = &mut vectors[i];
            headers[i].msg_hdr.msg_iovlen = 1;
            headers[i].msg_hdr.msg_name = (&raw mut names[i]).cast();
        }
        Self { _buffers: buffers, _vectors: vectors, _names: names, headers }
    }

    /// Returns datagrams and bytes.
    fn receive(&mut self, fd: libc::c_int, flags: libc::c_int) -> io::Result<(usize, usize)> {
        for header in &mut self.headers {
            header.msg_hdr.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
        }
        // SAFETY: every pointer in the headers points at memory that lives as long as they do.
        let n = check(unsafe {
            libc::recvmmsg(
                fd,
                self.headers.as_mut_ptr(),
                BATCH as libc::c_uint,
                flags as _,
                std::ptr::null_mut(),
            )
        } as isize)?;
        Ok((n, self.headers[..n].iter().map(|header| header.msg_len as usize).sum()))
    }
}

pub fn blocking_batch(run: &Run) -> io::Result<()> {
    let (mut batch, mut bytes) = (Batch::new(), 0);
    while !run.stopping() {
        let (datagrams, more) = batch.receive(run.socket.as_raw_fd(), libc::MSG_WAITFORONE)?;
        bytes += more;
        run.count.add(datagrams as u64);
    }
    std::hint::black_box(bytes);
    Ok(())
}

pub fn epoll_batch(run: &Run) -> io::Result<()> {
    let fd = run.socket.as_raw_fd();
    let (epoll, mut event) = watch(fd)?;
    let (mut batch, mut bytes) = (Batch::new(), 0);
    while !run.stopping() {
        wait(epoll, &mut event)?;
        let mut taken = 0;
        while taken < DRAIN {
            let (datagrams, more) = match batch.receive(fd, libc::MSG_DONTWAIT) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                received => received?,
            };
            bytes += more;
            taken += datagrams;
            run.count.add(datagrams as u64);
            if datagrams < BATCH {
                break;
            }
        }
    }
    std::hint::black_box(bytes);
    // SAFETY: opened above and not used again.
    unsafe { libc::close(epoll) };
    Ok(())
}

fn watch(fd: libc::c_int) -> io::Result<(libc::c_int, libc::epoll_event)> {
    // SAFETY: plain calls with values that live through them.
    let epoll = check(unsafe { libc::epoll_create1(0) } as isize)? as libc::c_int;
    let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
    // SAFETY: as above.
    check(unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &mut event) } as isize)?;
    Ok((epoll, event))
}

fn wait(epoll: libc::c_int, event: &mut libc::epoll_event) -> io::Result<()> {
    // SAFETY: room for one event is given.
    check(unsafe { libc::epoll_wait(epoll, event, 1, -1) } as isize).map(drop)
}
