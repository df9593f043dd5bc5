//! How the bytes of a thread's connections are moved: by calls, on sockets that are told to be ready; or by requests on
//! a ring, which tells what became of them.
//!
//! A ring joins what a batch of connections sends into one entry into the kernel, and receives by itself. So it loads a
//! server harder from the same core. Everything else of a load is the same on both, above all what is sent, and that
//! every byte of what comes is compared.

use super::{
    Conduct, LoadError, LoadSpec, Pace,
    content::{Amiss, Sending, SentFile},
    pattern::Pattern,
    system::{self, Ready, Ring, Set, Socket, WakeEvent},
};
use crate::clock::now_ns;
use serde::{Deserialize, Serialize};
use std::io;
use weir::{Error, Unavailable};

/// Sockets told by one wait, at most.
const EVENTS: usize = 512;
/// Bytes received at a time, and sent at a time, at most.
const BUFFER_BYTES: u64 = 128 * 1024;
/// So many bytes find room in the buffer of any socket here that has none under way.
const FITS_ANY_SOCKET: u64 = 16 * 1024;

/// How the bytes of connections are moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// By requests on an io_uring of each thread.
    Uring,
    /// By calls, on sockets that are ready.
    Readiness,
}

impl Engine {
    /// All of them, the one that is better in a closed loop first.
    pub const ALL: [Self; 2] = [Self::Uring, Self::Readiness];

    /// Its name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Uring => "uring",
            Self::Readiness => "readiness",
        }
    }

    /// What it is.
    pub fn summary(self) -> &'static str {
        match self {
            Self::Uring => {
                "requests on an io_uring of each thread: receives that go on by themselves, sends submitted together"
            }
            Self::Readiness => "calls on sockets that are ready",
        }
    }

    /// The engine of a name.
    ///
    /// # Errors
    /// With the names that exist.
    pub fn named(name: &str) -> Result<Self, Error> {
        let found = Self::ALL.into_iter().find(|engine| engine.name() == name);
        found.ok_or_else(|| Error::unknown_name("engine", name, Self::ALL.map(Self::name)))
    }

    /// Whether it can be used here, found by moving a byte with it.
    ///
    /// # Errors
    /// What was tried, and what came of it.
    pub fn availability(self) -> Result<(), Unavailable> {
        match self {
            Self::Uring => Ring::probe(),
            Self::Readiness => system::availability(),
        }
    }
}

/// The engine of a load, and why it is not the other one where nobody asked for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineUsed {
    /// Its name.
    pub name: String,
    /// What it waits with, or what it moves bytes by.
    pub by: String,
    /// Why it was chosen; none where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
}

impl std::fmt::Display for EngineUsed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, by, reason } = self;
        write!(f, "{name} ({by})")?;
        reason.iter().try_for_each(|reason| write!(f, ": {reason}"))
    }
}

impl EngineUsed {
    fn of(engine: Engine, reason: Option<String>) -> Self {
        let by = match engine {
            Engine::Uring => "io_uring",
            Engine::Readiness => system::READINESS,
        };
        Self { name: engine.name().into(), by: by.into(), reason }
    }

    /// Says so where another process of the same load has another.
    pub(super) fn add(&mut self, other: Self) {
        if self.name != other.name && !self.name.contains(" and ") {
            self.name = format!("{} and {}", self.name, other.name);
            self.by = format!("{} and {}", self.by, other.by);
            self.reason = self.reason.take().or(other.reason);
        }
    }

    /// Which engine a load uses: the one that it asks for; else a ring where it can be used and the loop is closed.
    ///
    /// # Errors
    /// If the one asked for cannot be used, or none.
    pub(super) fn choose(spec: &LoadSpec) -> Result<(Engine, Self), Unavailable> {
        if let Some(engine) = spec.engine {
            engine.availability()?;
            return Ok((engine, Self::of(engine, None)));
        }
        let reason = if spec.pace != Pace::Closed {
            "an open loop, whose rate is given".into()
        } else if spec.conduct != Conduct::Messages {
            "connections that are not to be fast".into()
        } else {
            match Engine::Uring.availability() {
                Ok(()) => {
                    let reason = "the faster one where the next message follows an answer".into();
                    return Ok((Engine::Uring, Self::of(Engine::Uring, Some(reason))));
                }
                Err(why) => why.to_string(),
            }
        };
        Engine::Readiness.availability()?;
        Ok((Engine::Readiness, Self::of(Engine::Readiness, Some(reason))))
    }
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
    /// For one thread of a load, by its number among those of all processes.
    pub(super) fn open(
        engine: Engine,
        spec: &LoadSpec,
        thread: u32,
        file: Option<&SentFile>,
    ) -> Result<Self, LoadError> {
        let longest = file.map_or(spec.sizes.most.into(), SentFile::bytes);
        let window = longest.saturating_mul(spec.outstanding.into());
        let bytes = window.min(BUFFER_BYTES) as usize;
        match engine {
            Engine::Readiness => {
                let buffer = || filled(spec.run, bytes.max(4096));
                let set = Set::new(EVENTS).map_err(LoadError::Wait)?;
                Ok(Self::Calls(Calls { set, received: buffer(), sent: buffer() }))
            }
            Engine::Uring => {
                // Where a window fits any socket's buffer and is answered, an answer comes whatever became of the send.
                let answered = !spec.one_way && !spec.half_close && file.is_none();
                let minds_sends =
                    !answered || spec.conduct != Conduct::Messages || window > FITS_ANY_SOCKET;
                let mut ring = Ring::open(spec.dealt_in_all(thread), bytes, minds_sends)?;
                Pattern::new(spec.run, 0).fill(0, ring.memory_of_sends());
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

    /// Waits until a socket is ready, or something became of a request, it is rung, or so long; answers how many are to
    /// be attended to.
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
    ) -> Result<Sending, Amiss> {
        match self {
            Self::Calls(calls) => {
                let asked = len.min(calls.sent.len() as u64) as usize;
                make(&mut calls.sent[..asked]);
                let taken = socket.send(&calls.sent[..asked]).map_err(Amiss::Socket)?;
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
