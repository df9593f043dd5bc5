//! The bare loops: the system calls of a design and nothing else. They echo; that is all that they do. One
//! file a mechanism.
//!
//! Where a design keeps what the system does not take, these wait until it does, or say so: the loads of
//! this benchmark never fill a socket.

pub mod async_select;
pub mod blocking;
pub mod epoll;
pub mod event_select;
pub mod overlapped_events;
pub mod poll;
pub mod port;
pub mod port_ordered;
pub mod ring;
pub mod ring_hybrid;
pub mod rings;
pub mod rio_tcp;
pub mod select;

use std::{
    io,
    net::{SocketAddr, TcpListener},
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
    sync::atomic::{
        AtomicBool, AtomicUsize,
        Ordering::{Relaxed, SeqCst},
    },
    thread,
};

/// Bytes received at a time, as by the designs.
const BUFFER_BYTES: usize = weir::tcp::DEFAULT_BUFFER_BYTES;
/// Receives from one connection for one wake-up, as by the designs.
const DRAIN: usize = 16;
/// Ready sockets of one wait, as for the designs.
const EVENTS: usize = 512;
/// As the threads of designs have that are many.
const STACK_BYTES: usize = 128 * 1024;
/// Seldom enough not to count.
const LOOK_EVERY_MS: i32 = 20;

pub struct Run {
    pub listener: TcpListener,
    pub address: SocketAddr,
    stop: AtomicBool,
}

impl Run {
    pub fn bind() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        Self { listener, address, stop: AtomicBool::new(false) }
    }

    /// It ends once the last connection has gone: the client's end wakes it.
    pub fn stop(&self) {
        self.stop.store(true, SeqCst);
    }

    fn is_over(&self, open: usize) -> bool {
        open == 0 && self.stop.load(SeqCst)
    }

    /// Accepts one connection.
    fn accept(&self) -> io::Result<OwnedFd> {
        let (stream, _) = self.listener.accept()?;
        stream.set_nodelay(true)?;
        Ok(stream.into())
    }

    /// Accepts for others until it is over, which is looked for now and then, since nothing wakes one that
    /// accepts.
    fn accept_for(
        &self,
        open: &AtomicUsize,
        mut hand_over: impl FnMut(OwnedFd) -> io::Result<()>,
    ) -> io::Result<()> {
        let fd = self.listener.as_raw_fd();
        while !self.is_over(open.load(SeqCst)) {
            let mut entry = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
            // SAFETY: one entry, which outlives the call.
            if check(unsafe { libc::poll(&mut entry, 1, LOOK_EVERY_MS) } as isize)? > 0 {
                let connection = self.accept()?;
                open.fetch_add(1, SeqCst);
                hand_over(connection)?;
            }
        }
        Ok(())
    }
}

/// Starts one of many threads, under the name by which their CPU time is found.
fn start<'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    body: impl FnOnce() -> io::Result<()> + Send + 'scope,
) -> io::Result<()> {
    let thread = thread::Builder::new().name("bare".into()).stack_size(STACK_BYTES);
    thread.spawn_scoped(scope, || body().expect("it runs where the design does")).map(drop)
}

/// Room for a connection in a group that another thread looks after.
fn take_room(taken: &AtomicUsize, most: usize) -> bool {
    // Only the thread that accepts adds.
    taken.load(Relaxed) < most && taken.fetch_add(1, Relaxed) < most
}

fn check(n: isize) -> io::Result<usize> {
    if n >= 0 { Ok(n as usize) } else { Err(io::Error::last_os_error()) }
}

/// Receives what there is: `None` where there is nothing.
pub fn receive(fd: RawFd, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    // SAFETY: the kernel writes at most as many bytes as the buffer has.
    let count = check(unsafe {
        libc::recv(fd, buffer.as_mut_ptr().cast(), buffer.len(), libc::MSG_DONTWAIT)
    });
    match count {
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
        count => count.map(Some),
    }
}

/// Sends all of it.
pub fn send_all(fd: RawFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: the kernel reads as many bytes as there are.
        let sent = check(unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), flags) });
        match sent {
            Ok(count) => bytes = &bytes[count..],
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                let mut room = libc::pollfd { fd, events: libc::POLLOUT, revents: 0 };
                // SAFETY: one entry, which outlives the call.
                check(unsafe { libc::poll(&mut room, 1, -1) } as isize)?;
            }
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Echoes what a connection has, as a design does that is told as long as there is more. Says whether it
/// has ended.
fn serve(fd: RawFd, buffer: &mut [u8]) -> io::Result<bool> {
    for _ in 0..DRAIN {
        match receive(fd, buffer)? {
            None => return Ok(false),
            Some(0) => return Ok(true),
            Some(count) => {
                send_all(fd, &buffer[..count])?;
                if count < buffer.len() {
                    return Ok(false);
                }
            }
        }
    }
    Ok(false)
}

/// An epoll set.
pub struct Epoll {
    set: OwnedFd,
    events: Vec<libc::epoll_event>,
}

impl Epoll {
    pub fn new() -> io::Result<Self> {
        Self::telling(EVENTS)
    }

    /// A set of which one wait tells so many.
    fn telling(most: usize) -> io::Result<Self> {
        // SAFETY: takes no pointers.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) } as isize)?;
        // SAFETY: a new descriptor, which nobody else owns.
        let set = unsafe { OwnedFd::from_raw_fd(fd as RawFd) };
        Ok(Self { set, events: vec![libc::epoll_event { events: 0, u64: 0 }; most] })
    }

    pub fn add(&self, fd: RawFd, token: u64, events: libc::c_int) -> io::Result<()> {
        let mut event = libc::epoll_event { events: events as u32, u64: token };
        let (set, add) = (self.set.as_raw_fd(), libc::EPOLL_CTL_ADD);
        // SAFETY: the event outlives the call, which copies it.
        check(unsafe { libc::epoll_ctl(set, add, fd, &mut event) } as isize).map(drop)
    }

    /// Says how many are ready.
    pub fn wait(&mut self, timeout_ms: i32) -> io::Result<usize> {
        let (set, room) = (self.set.as_raw_fd(), self.events.len() as libc::c_int);
        // SAFETY: the kernel writes at most as many events as there is room for.
        check(unsafe { libc::epoll_wait(set, self.events.as_mut_ptr(), room, timeout_ms) } as isize)
    }

    /// Waits for as long as it takes, also where the work of a ring interrupts it.
    fn wait_for_one(&mut self) -> io::Result<u64> {
        loop {
            match self.wait(-1) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Ok(0) => {}
                result => return result.map(|_| self.token(0)),
            }
        }
    }

    /// The same set for another thread.
    fn shared(&self) -> io::Result<Self> {
        Ok(Self { set: self.set.try_clone()?, events: Vec::new() })
    }

    pub fn token(&self, index: usize) -> u64 {
        self.events[index].u64
    }
}

/// An event that a thread can be told: eventfd(2).
struct WakeEvent(OwnedFd);

impl WakeEvent {
    fn new() -> io::Result<Self> {
        let fd =
            // SAFETY: takes no pointers.
            check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) } as isize)?;
        // SAFETY: a new descriptor, which nobody else owns.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd as RawFd) }))
    }

    fn signal(&self) -> io::Result<()> {
        let one = 1u64;
        // SAFETY: the kernel reads eight bytes, which outlive the call.
        check(unsafe { libc::write(self.fd(), (&raw const one).cast(), size_of::<u64>()) })
            .map(drop)
    }

    fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
