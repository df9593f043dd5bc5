//! How the bytes of a thread's connections are moved: by calls, on sockets that are told to be ready; or by requests on
//! a ring, which tells what became of them.
//!
//! A ring joins what a batch of connections sends into one entry into the kernel, and receives by itself. So it loads a
//! server harder from the same core. Everything else of a load is the same on both, above all what is sent, and that
//! every byte of what comes is compared.

use super::{
    Engine, LoadError,
    pattern::Pattern,
    system::{Ready, Ring, Set, Socket, WakeEvent},
};
use crate::clock::now_ns;
use std::io;

/// Sockets told by one wait, at most.
const EVENTS: usize = 512;
/// Bytes received at a time, and sent at a time, at most.
const BUFFER_BYTES: u64 = 128 * 1024;
/// So many bytes find room in the buffer of any socket here that has none under way.
const FITS_ANY_SOCKET: u64 = 16 * 1024;

/// What is to be moved for one thread of a load.
#[derive(Debug, Clone, Copy)]
pub(super) struct Needs {
    /// The run, of whose pattern what is sent again and again is.
    pub(super) run: u32,
    /// Connections of the thread.
    pub(super) connections: u64,
    /// Bytes under way on a connection, at most.
    pub(super) window_bytes: u64,
    /// Whether each send is answered, whatever becomes of it, if there was room for it.
    pub(super) answered: bool,
}

/// What one call was to send, and sent; `None` where there was no room.
#[derive(Debug)]
pub(super) struct Sending {
    pub(super) asked: usize,
    pub(super) taken: Option<usize>,
    /// What became of it is told later.
    pub(super) under_way: bool,
}

/// Moves the bytes of one thread's connections, and waits for them.
pub(super) enum Moves {
    Calls(Calls),
    Ring(Box<Ring>),
}

/// Calls on sockets that are ready.
pub(super) struct Calls {
    set: Set,
    received: Box<[u8]>,
    sent: Box<[u8]>,
}

impl Moves {
    /// For one thread of a load.
    pub(super) fn open(engine: Engine, needs: &Needs) -> Result<Self, LoadError> {
        let &Needs { run, connections, window_bytes, answered } = needs;
        let bytes = window_bytes.min(BUFFER_BYTES) as usize;
        match engine {
            Engine::Readiness => {
                let buffer = || filled(run, bytes.max(4096));
                let set = Set::new(EVENTS).map_err(LoadError::Wait)?;
                Ok(Self::Calls(Calls { set, received: buffer(), sent: buffer() }))
            }
            Engine::Uring => {
                // An answer comes whatever became of the send, where any socket has room for all of it.
                let wakes_for_sends = !answered || window_bytes > FITS_ANY_SOCKET;
                let mut ring = Ring::open(connections, bytes, wakes_for_sends)?;
                Pattern::new(run, 0).fill(0, ring.memory_of_sends());
                Ok(Self::Ring(Box::new(ring)))
            }
        }
    }

    /// To be called once by the thread that uses it from then on.
    pub(super) fn begin(&mut self) -> io::Result<()> {
        match self {
            Self::Calls(_) => Ok(()),
            Self::Ring(ring) => ring.begin(),
        }
    }

    pub(super) fn wake_event(&self) -> WakeEvent {
        match self {
            Self::Calls(calls) => calls.set.wake_event(),
            Self::Ring(ring) => ring.wake_event(),
        }
    }

    /// Adds a socket that is being connected.
    pub(super) fn add(&mut self, socket: &Socket, number: u32) -> io::Result<()> {
        match self {
            Self::Calls(calls) => calls.set.add(socket, number),
            Self::Ring(ring) => {
                ring.await_room(socket, number);
                Ok(())
            }
        }
    }

    /// A socket is connected: it is received from, or only its end is waited for.
    pub(super) fn connected(&mut self, socket: &Socket, number: u32, is_read: bool) {
        match self {
            Self::Calls(_) => {}
            Self::Ring(ring) if is_read => ring.begin_to_receive(socket, number),
            Self::Ring(ring) => ring.await_end(socket, number),
        }
    }

    /// A socket found no room to send: it is told when there is.
    #[inline]
    pub(super) fn await_room(&mut self, socket: &Socket, number: u32) -> io::Result<()> {
        match self {
            Self::Calls(calls) => calls.set.await_room(socket, number),
            Self::Ring(ring) => {
                ring.await_room(socket, number);
                Ok(())
            }
        }
    }

    /// Takes a socket out, before it is closed.
    pub(super) fn forget(&mut self, number: u32) {
        match self {
            Self::Calls(calls) => calls.set.forget(number),
            Self::Ring(ring) => ring.forget(number),
        }
    }

    /// Waits until a socket is ready or something became of a request, its wake event is signalled, or so long; returns how
    /// many are to be attended to.
    pub(super) fn wait(&mut self, timeout_ns: u64) -> io::Result<usize> {
        match self {
            Self::Calls(calls) => calls.set.wait(Some(timeout_ns)),
            Self::Ring(ring) => ring.wait(timeout_ns),
        }
    }

    /// One of those that the last wait told.
    #[inline]
    pub(super) fn ready(&mut self, index: usize) -> Ready {
        match self {
            Self::Calls(calls) => calls.set.ready(index),
            Self::Ring(ring) => ring.ready(index),
        }
    }

    /// When what is attended to came: a ring has received it when the wait was over, where a call receives it now.
    #[inline]
    pub(super) fn now_ns(&self) -> u64 {
        match self {
            Self::Calls(_) => now_ns(),
            Self::Ring(ring) => ring.now_ns(),
        }
    }

    /// Receives: how many bytes, 0 for the end, `None` where nothing is there now.
    #[inline]
    pub(super) fn receive(&mut self, socket: &Socket, number: u32) -> io::Result<Option<usize>> {
        match self {
            Self::Calls(calls) => socket.receive(&mut calls.received),
            Self::Ring(ring) => ring.receive(socket, number),
        }
    }

    /// The bytes that the last receive took, so many.
    #[inline]
    pub(super) fn received(&self, count: usize) -> &[u8] {
        match self {
            Self::Calls(calls) => &calls.received[..count],
            Self::Ring(ring) => ring.received(count),
        }
    }

    /// Whether after a receive of so many bytes more may be there: less than there was room for is all.
    #[inline]
    pub(super) fn may_be_more(&self, count: usize) -> bool {
        match self {
            Self::Calls(calls) => count == calls.received.len(),
            // It comes by itself.
            Self::Ring(_) => false,
        }
    }

    /// Whether what is there when a connection breaks comes by itself, and not by asking.
    pub(super) fn tells_what_is_left(&self) -> bool {
        matches!(self, Self::Ring(_))
    }

    /// Sends so many bytes, which `make` writes, or as many of them as go at a time.
    #[inline]
    pub(super) fn send(
        &mut self,
        socket: &Socket,
        number: u32,
        len: u64,
        make: impl FnOnce(&mut [u8]),
    ) -> io::Result<Sending> {
        match self {
            Self::Calls(calls) => {
                let asked = len.min(calls.sent.len() as u64) as usize;
                make(&mut calls.sent[..asked]);
                let taken = socket.send(&calls.sent[..asked])?;
                Ok(Sending { asked, taken, under_way: false })
            }
            Self::Ring(ring) => {
                let asked = ring.send(socket, number, len, make);
                Ok(Sending { asked, taken: None, under_way: true })
            }
        }
    }

    /// Room for what is read of a file and sent by a call.
    pub(super) fn room(&mut self) -> &mut [u8] {
        match self {
            Self::Calls(calls) => &mut calls.sent,
            Self::Ring(ring) => ring.memory_of_sends(),
        }
    }
}

fn filled(run: u32, bytes: usize) -> Box<[u8]> {
    let mut bytes = vec![0; bytes].into_boxed_slice();
    Pattern::new(run, 0).fill(0, &mut bytes);
    bytes
}
