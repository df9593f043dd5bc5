//! Messages in a queue: real-time signals of O_ASYNC, taken one at a time. What a message tells is told once, so
//! a connection is received from until nothing is left.

use super::{BUFFER_BYTES, Run, check, epoll::serve_all};
use std::{
    io, mem,
    os::fd::{AsRawFd, OwnedFd, RawFd},
    ptr,
};

// Of asm-generic/fcntl.h.
const F_SETSIG: libc::c_int = 10;
const F_SETOWN_EX: libc::c_int = 15;
const F_OWNER_TID: libc::c_int = 0;

/// `struct f_owner_ex`.
#[repr(C)]
struct Owner {
    kind: libc::c_int,
    id: libc::pid_t,
}

/// The beginning of a `siginfo_t` that O_ASYNC made.
#[repr(C)]
struct Message {
    signal: libc::c_int,
    _error: libc::c_int,
    _code: libc::c_int,
    _band: libc::c_long,
    fd: libc::c_int,
}

/// The queue of this thread.
struct Queue {
    signal: libc::c_int,
    taken: libc::sigset_t,
}

impl Queue {
    fn new() -> io::Result<Self> {
        let signal = libc::SIGRTMIN() + 12;
        // SAFETY: zeroes are a value of a set, which the calls fill with signals that there are, and read.
        let (taken, code) = unsafe {
            let mut taken = mem::zeroed();
            libc::sigemptyset(&mut taken);
            libc::sigaddset(&mut taken, signal);
            libc::sigaddset(&mut taken, libc::SIGIO);
            (taken, libc::pthread_sigmask(libc::SIG_BLOCK, &taken, ptr::null_mut()))
        };
        if code == 0 { Ok(Self { signal, taken }) } else { Err(io::Error::from_raw_os_error(code)) }
    }

    /// Has a socket tell this queue. What came before it does not.
    fn watch(&self, fd: RawFd) -> io::Result<()> {
        // SAFETY: takes no pointers.
        let id = unsafe { libc::syscall(libc::SYS_gettid) } as libc::pid_t;
        let (owner, on) = (Owner { kind: F_OWNER_TID, id }, 1);
        // SAFETY: each reads what it is given a pointer to, which outlives the call, or takes a number.
        unsafe {
            check(libc::fcntl(fd, F_SETOWN_EX, &raw const owner) as isize)?;
            check(libc::fcntl(fd, F_SETSIG, self.signal) as isize)?;
            check(libc::ioctl(fd, libc::FIOASYNC, &raw const on) as isize)?;
        }
        Ok(())
    }

    /// The socket that the next message names, or `None` where the queue was full.
    fn next(&self) -> io::Result<Option<RawFd>> {
        // SAFETY: zeroes are a value of it; the call reads a set and writes a siginfo_t, and both outlive it.
        // That begins with the fields of a message where O_ASYNC made the signal, which is all that sends
        // it to this thread.
        let message = unsafe {
            let mut info = mem::zeroed::<libc::siginfo_t>();
            check(libc::sigtimedwait(&self.taken, &mut info, ptr::null()) as isize)?;
            (&raw const info).cast::<Message>().read()
        };
        Ok((message.signal == self.signal).then_some(message.fd))
    }
}

pub fn async_select(run: &Run) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    let queue = Queue::new()?;
    let mut connections: Vec<Option<OwnedFd>> = Vec::new();
    let mut open = 0;
    let listener = run.listener.as_raw_fd();
    run.listener.set_nonblocking(true)?;
    queue.watch(listener)?;
    // Answers how many came.
    let accept = |connections: &mut Vec<Option<OwnedFd>>, buffer: &mut [u8]| -> io::Result<usize> {
        let mut came = 0;
        loop {
            let connection = match run.accept() {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(came),
                connection => connection?,
            };
            let fd = connection.as_raw_fd();
            queue.watch(fd)?;
            if serve_all(fd, buffer)? {
                continue;
            }
            came += 1;
            if connections.len() <= fd as usize {
                connections.resize_with(fd as usize + 1, || None);
            }
            connections[fd as usize] = Some(connection);
        }
    };
    open += accept(&mut connections, &mut buffer)?;
    while !run.is_over(open) {
        match queue.next()? {
            Some(fd) if fd == listener => open += accept(&mut connections, &mut buffer)?,
            // It may be one of the last connection that had this number: then nothing is there.
            Some(fd) => open -= usize::from(serve_one(&mut connections, fd as usize, &mut buffer)?),
            None => {
                open += accept(&mut connections, &mut buffer)?;
                for fd in 0..connections.len() {
                    open -= usize::from(serve_one(&mut connections, fd, &mut buffer)?);
                }
            }
        }
    }
    Ok(())
}

/// Says whether it has ended.
fn serve_one(
    connections: &mut [Option<OwnedFd>],
    fd: usize,
    buffer: &mut [u8],
) -> io::Result<bool> {
    let Some(place) = connections.get_mut(fd) else { return Ok(false) };
    let Some(connection) = place else { return Ok(false) };
    let ended = serve_all(connection.as_raw_fd(), buffer)?;
    if ended {
        *place = None;
    }
    Ok(ended)
}
