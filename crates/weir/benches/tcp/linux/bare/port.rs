//! The completion port: accepts, receives and sends are requests of a ring that any thread may use, and what
//! takes a completion starts the next operation of its connection. Completions are taken one at a time; a take that
//! finds one ready submits only once a batch waits.

use super::{
    BUFFER_BYTES, Run,
    rings::{Buffers, checked, of_several_threads, push},
};
use io_uring::{IoUring, opcode, squeue::Entry, types::Fd};
use std::{
    io, mem,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
};
use weir::port::Shape;

/// What a completion is of: the lowest 32 bits say which connection, the next 24 which buffer.
const ACCEPT: u64 = 1 << 56;
const RECEIVE: u64 = 2 << 56;
const SEND: u64 = 3 << 56;

/// Accepts outstanding, as for the design.
const ACCEPTS: usize = 5;
/// Entries of the ring, as for the design.
const SUBMISSIONS: u32 = 1024;
/// For twice as many connections as the benchmark has.
const BUFFERS: u32 = 256;
/// Operations that wait until they are submitted while completions are ready, as for the design.
const SUBMIT_AFTER: usize = Shape::BEST.submit_after as usize;

/// Where the kernel writes who connected.
struct Name {
    storage: libc::sockaddr_storage,
    len: libc::socklen_t,
}

/// A port, its connections, and what is outstanding on them.
pub struct Port<'r> {
    run: &'r Run,
    ring: IoUring,
    names: Box<[Name]>,
    buffers: Buffers,
    /// By descriptor.
    connections: Vec<Option<OwnedFd>>,
    open: usize,
}

/// A completion.
pub enum Taken {
    /// A connection came.
    Accepted(RawFd),
    /// So many bytes came, into a buffer.
    Received(RawFd, u32, u32),
    /// The send from a buffer is over.
    Sent,
}

pub fn port(run: &Run) -> io::Result<()> {
    let mut port = Port::open(run)?;
    while let Some(taken) = port.take()? {
        match taken {
            Taken::Accepted(fd) => port.receive(fd)?,
            Taken::Received(fd, id, 0) => port.close(fd, id),
            Taken::Received(fd, id, count) => {
                port.send(fd, id, count)?;
                port.receive(fd)?;
            }
            Taken::Sent => {}
        }
    }
    Ok(())
}

impl<'r> Port<'r> {
    pub fn open(run: &'r Run) -> io::Result<Self> {
        // Connections inherit it.
        socket2::SockRef::from(&run.listener).set_tcp_nodelay(true)?;
        // SAFETY: zeroes are a value of both fields.
        let names = (0..ACCEPTS).map(|_| unsafe { mem::zeroed() }).collect();
        let (ring, buffers) = (of_several_threads(SUBMISSIONS)?, Buffers::new(BUFFERS));
        let mut port = Self { run, ring, names, buffers, connections: Vec::new(), open: 0 };
        (0..ACCEPTS).try_for_each(|number| port.accept(number))?;
        Ok(port)
    }

    /// Takes a completion, or `None` once the run is over.
    pub fn take(&mut self) -> io::Result<Option<Taken>> {
        while !self.run.is_over(self.open) {
            let pending = self.ring.submission().len();
            if pending < SUBMIT_AFTER {
                let entry = self.ring.completion().next();
                if let Some(entry) = entry {
                    return self.taken(entry.user_data(), entry.result()).map(Some);
                }
            }
            let ready = !self.ring.completion().is_empty();
            self.ring.submit_and_wait(usize::from(!ready))?;
        }
        Ok(None)
    }

    fn taken(&mut self, token: u64, result: i32) -> io::Result<Taken> {
        let (fd, id) = (token as u32 as RawFd, (token >> 32) as u32 & 0xff_ffff);
        Ok(match token & 0xff << 56 {
            ACCEPT => {
                let number = fd as usize;
                let fd = checked(result)? as RawFd;
                // SAFETY: the kernel has just made it for this accept.
                let connection = unsafe { OwnedFd::from_raw_fd(fd) };
                if self.connections.len() <= fd as usize {
                    self.connections.resize_with(fd as usize + 1, || None);
                }
                self.connections[fd as usize] = Some(connection);
                self.open += 1;
                self.accept(number)?;
                Taken::Accepted(fd)
            }
            RECEIVE => Taken::Received(fd, id, checked(result)?),
            _ => {
                self.buffers.sent(id, result)?;
                Taken::Sent
            }
        })
    }

    fn accept(&mut self, number: usize) -> io::Result<()> {
        let name = &mut self.names[number];
        name.len = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
        let (storage, len) = ((&raw mut name.storage).cast(), &raw mut name.len);
        let accept = opcode::Accept::new(Fd(self.run.listener.as_raw_fd()), storage, len);
        self.push(accept.flags(libc::SOCK_CLOEXEC).build(), ACCEPT | number as u64)
    }

    pub fn receive(&mut self, fd: RawFd) -> io::Result<()> {
        let (id, into) = self.buffers.take();
        let receive = opcode::Recv::new(Fd(fd), into, BUFFER_BYTES as u32).build();
        self.push(receive, RECEIVE | u64::from(id) << 32 | fd as u64)
    }

    pub fn send(&mut self, fd: RawFd, id: u32, count: u32) -> io::Result<()> {
        let send = opcode::Send::new(Fd(fd), self.buffers.send(id, count), count);
        let send = send.flags(libc::MSG_NOSIGNAL).build();
        self.push(send, SEND | u64::from(id) << 32 | fd as u64)
    }

    /// Of a connection that has ended. Its last send was submitted before this receive was.
    pub fn close(&mut self, fd: RawFd, id: u32) {
        self.connections[fd as usize] = None;
        self.buffers.give(id);
        self.open -= 1;
    }

    fn push(&mut self, entry: Entry, token: u64) -> io::Result<()> {
        push(&mut self.ring, &[entry.user_data(token)])
    }
}

/// Accepts are still outstanding: the kernel may write their names until the ring is gone, and says nothing of
/// when that is.
impl Drop for Port<'_> {
    fn drop(&mut self) {
        mem::forget(mem::take(&mut self.names));
    }
}
