//! epoll(7), told as long as a connection is ready, or when something came.

use super::{BUFFER_BYTES, Epoll, Run, receive, send_all, serve};
use std::{
    io,
    os::fd::{AsRawFd, OwnedFd, RawFd},
};

/// The listening socket's token; descriptors are those of connections.
const LISTENER: u64 = u64::MAX;

pub fn level(run: &Run) -> io::Result<()> {
    echo(run, libc::EPOLLIN | libc::EPOLLRDHUP, serve)
}

pub fn edge(run: &Run) -> io::Result<()> {
    echo(run, libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLET, serve_all)
}

fn echo(
    run: &Run,
    events: libc::c_int,
    serve: fn(RawFd, &mut [u8]) -> io::Result<bool>,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut epoll = Epoll::new()?;
    epoll.add(run.listener.as_raw_fd(), LISTENER, libc::EPOLLIN)?;
    let mut connections: Vec<Option<OwnedFd>> = Vec::new();
    let mut open = 0;
    while !run.is_over(open) {
        for index in 0..epoll.wait(-1)? {
            let token = epoll.token(index);
            if token == LISTENER {
                let connection = run.accept()?;
                let fd = connection.as_raw_fd();
                epoll.add(fd, fd as u64, events)?;
                if connections.len() <= fd as usize {
                    connections.resize_with(fd as usize + 1, || None);
                }
                connections[fd as usize] = Some(connection);
                open += 1;
            } else if serve(token as RawFd, &mut buffer)? {
                connections[token as usize] = None;
                open -= 1;
            }
        }
    }
    Ok(())
}

/// What is told once: nothing may be left.
pub fn serve_all(fd: RawFd, buffer: &mut [u8]) -> io::Result<bool> {
    loop {
        match receive(fd, buffer)? {
            None => return Ok(false),
            Some(0) => return Ok(true),
            Some(count) => send_all(fd, &buffer[..count])?,
        }
    }
}
