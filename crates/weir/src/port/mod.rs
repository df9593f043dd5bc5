//! The contract of the completion port.
//!
//! A completion port is a queue of finished operations that several threads take from. Sockets
//! are *associated* with it under a key; a program *starts* operations on them, each with a
//! buffer of its own, and *takes* what has finished, one completion or many at a time. Packets
//! of the program's own can be *posted* into the same queue. The contract follows the completion
//! port of Windows NT 3.5 (`CreateIoCompletionPort`, `GetQueuedCompletionStatus`), with what
//! Windows Vista added: many completions in one take, and the cancelling of one operation.
//!
//! The example `port_lines` of this package is a TCP server by hand on the port for [`streams`].
//!
//! What every provider must supply: a [`Layout`] for its slices; sockets, operations and packets
//! within the [`Needs`] it was opened for; a concurrency limit; cancelling; a stop that gives
//! every slice back. The [`limit`] module holds a scheduler for those whose operating system has
//! none.
//!
//! What holds on every provider:
//!
//! - An operation that was started comes back exactly once: from [`Worker::take`], or, when the
//!   port is stopped or receiving is ended, to its slice's pool. It is over at that moment and not before, cancelled or
//!   not.
//! - At most so many threads run at a time as the limit says. A thread runs from the return of a
//!   take to its next take, except within [`Worker::blocking`]. Where weir keeps the limit
//!   ([`limit`]), a thread that comes back from there, or from a take that brought nothing, waits until
//!   it may run. Where the operating system keeps it (Windows), such a thread runs at once, so more may
//!   run until they take again; meanwhile nobody is given a completion.
//! - Of the threads that park, the one that parked last is woken first: its caches are warm, and
//!   the others sleep on.
//! - While fewer threads run than may, and a thread is left that takes, a completion is taken.
//! - Packets come in the order in which one thread posted them.
//!
//! What is NOT guaranteed:
//!
//! - The order of completions: receives finish in any order, so two datagrams of one sender may
//!   swap places, even with one thread.
//! - That an operation reaches the kernel before [`Worker::commit`], [`Worker::take`] or
//!   [`Worker::blocking`] is called on its thread. On Windows it does so at once.
//! - That a thread that blocks without saying so lets another in. On Windows the kernel sees it;
//!   elsewhere only [`Worker::blocking`] tells.
//! - That datagrams are received on behalf of a thread that has exited. Where the kernel copies
//!   in the thread that armed a receive, that thread must park, not exit, until the port is
//!   closed; if it exits, its armed receives come back as [`Outcome::Returned`] and no datagram
//!   is lost.
//!
//! Every fixed resource has a bound, given in [`Needs`], and one policy: what exceeds the bound
//! is refused and given back. A cancellation is never refused, since there is room for one for
//! each operation. Sockets stay associated until the port is stopped.
//!
//! A queue of registered I/O is not bound to a port here: its right to dequeue is handed out by
//! [`rio::turn`](crate::rio::turn), which wakes one thread where a port over a queue wakes two.

pub mod armed_count;
mod arming;
#[cfg(any(windows, test))] // pure, so its tests run everywhere
mod blocks;
#[cfg(windows)]
pub mod iocp;
pub mod limit;
#[cfg(windows)]
mod overlapped;
mod proof;
mod shape;
pub mod streams;
#[cfg(test)]
mod tests;
#[cfg(target_os = "linux")]
pub mod uring;
#[cfg(windows)]
pub mod winsock;

// This system's provider.
#[cfg(windows)]
pub use iocp::Iocp as Native;
#[cfg(target_os = "linux")]
pub use uring::Uring as Native;

use crate::{
    Error, Unavailable,
    counters::Counters,
    gather::Gather,
    memory::{Layout, Slice},
    socket::DatagramSocket,
    wake::Waker,
};
use std::{
    fmt, io,
    time::{Duration, Instant},
};

pub use crate::rio::{Peer, Span, Stopped};

/// How an operation ended. What came is told whole, since it is handled at once.
pub type Outcome = crate::rio::Outcome<crate::socket::Arrival>;
pub use shape::Shape;

/// What is asked of a port: its bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needs {
    /// Longest datagram to be received whole, in bytes; with receive offload at least
    /// [`OFFLOADED_BYTES`](crate::socket::OFFLOADED_BYTES).
    pub payload: usize,
    /// Most sockets associated.
    pub sockets: u32,
    /// Most receives outstanding at a time, over all sockets.
    pub receives: u32,
    /// Most sends outstanding at a time, over all sockets; 0 for a sink.
    pub sends: u32,
    /// Most user packets posted and not yet taken.
    pub packets: u32,
    /// Most threads that take from the port.
    pub threads: u32,
    /// Most of them that run at a time; 0 for as many as this process has cores.
    pub concurrency: u32,
}

/// One way of supplying a completion port.
pub trait Provider: Clone + Send + Sync + 'static {
    /// Its name.
    const NAME: &'static str;

    /// Its port.
    type Port: Port;

    /// How slices must be cut to meet these needs.
    ///
    /// # Errors
    /// [`Unavailable`] if the provider cannot run here (it tries), or not with these needs.
    fn layout(&self, needs: &Needs) -> Result<Layout, Unavailable>;

    /// Makes a port.
    ///
    /// # Errors
    /// [`Error::Unavailable`] or [`Error::Io`], with what was being done.
    fn open(&self, needs: &Needs) -> Result<Self::Port, Error>;
}

/// A completion port. Dropping it without [`stop`](Port::stop) leaks the slices that are
/// outstanding, deliberately, and counts them
/// ([`Region::leaked`](crate::memory::Region::leaked)).
pub trait Port: Sized + Send + Sync + 'static {
    /// What a thread takes with.
    type Worker<'a>: Worker
    where
        Self: 'a;

    /// Lets operations be started on a socket. Its completions carry `key`.
    ///
    /// # Errors
    /// [`Error::Option`] past [`Needs::sockets`], [`Error::Io`] with the system's answer.
    fn associate(&self, socket: DatagramSocket, key: Key) -> Result<SocketId, Error>;

    /// Puts a packet at the end of the queue. Any thread may do so.
    ///
    /// # Errors
    /// Gives the packet back when [`Needs::packets`] wait already, or the port is closed.
    fn post(&self, packet: Packet, counters: &Counters) -> Result<(), (Packet, Refused)>;

    /// A place among the threads that take, for the calling thread.
    ///
    /// # Errors
    /// [`Error::Option`] past [`Needs::threads`].
    fn worker(&self) -> Result<Self::Worker<'_>, Error>;

    /// Refuses all further operations and packets, and lets every take return `None`, now and
    /// later. What has not been taken comes back by [`stop`](Port::stop).
    fn close(&self);

    /// Something that closes the port, now or later, from any thread, also after it has gone.
    fn closer(&self) -> Waker;

    /// Something that ends receiving, now or later, from any thread, where others go on with the sockets: receives that have
    /// brought nothing yet are cancelled, and further ones refused. What the kernel received before is taken as ever, and sends
    /// go on; a take returns `None` when nothing is outstanding, or so long after it was called for. By default, which is that
    /// of systems where nobody else has a server's sockets, it is the [`closer`](Port::closer).
    fn finisher(&self, within: Duration) -> Waker {
        let _ = within;
        self.closer()
    }

    /// Closes, cancels what is outstanding, and gives every slice back to its pool. No worker is
    /// left when this is called: a worker borrows its port.
    fn stop(self, by: Instant) -> Stopped;

    /// What was obtained, to be stated beside every figure: name and value.
    fn granted(&self) -> Vec<(&'static str, String)>;
}

/// A thread's place among those that take from a port. It stays on its thread, and dropping it
/// lets another thread run.
pub trait Worker {
    /// Ends this thread's running and waits until it may run again with completions. Moves what
    /// has finished into `out`, as many as fit, and returns how many: 0 if the time was over,
    /// `None` if the port was closed. Where weir keeps the limit a take with a timeout may come
    /// back late, since a thread that comes back empty still waits until it may run.
    ///
    /// # Errors
    /// What the operating system answered: the port is of no more use and must be stopped.
    fn take(
        &mut self,
        out: &mut Taken,
        timeout: Option<Duration>,
        counters: &Counters,
    ) -> io::Result<Option<usize>>;

    /// As [`take`](Worker::take), but before the thread waits in the queue it asks `gather` how long datagrams may gather now,
    /// and sleeps for so long although there are some, so that one wake-up serves many: until there are enough, as far as the
    /// provider can tell. A provider that cannot waits for the next one.
    ///
    /// # Errors
    /// As [`take`](Worker::take).
    fn take_gathered(
        &mut self,
        out: &mut Taken,
        timeout: Option<Duration>,
        gather: &mut dyn FnMut() -> Gather,
        counters: &Counters,
    ) -> io::Result<Option<usize>> {
        let _ = gather;
        self.take(out, timeout, counters)
    }

    /// How [`take_gathered`](Worker::take_gathered) does it, in words: to be stated beside every figure.
    fn gathers(&self) -> String {
        "each datagram ends a wait".into()
    }

    /// Starts a receive into a slice. It comes back as [`Outcome::Received`],
    /// [`Outcome::Failed`] or [`Outcome::Returned`].
    ///
    /// # Errors
    /// Gives the slice back when [`Needs::receives`] are outstanding, or the port is closed.
    fn receive(&mut self, socket: SocketId, slice: Slice) -> Result<Token, (Slice, Refused)>;

    /// Starts a receive into each of the slices, last to first, in one step: cheaper than one by
    /// one. Their tokens come with their completions.
    ///
    /// # Errors
    /// As [`receive`](Worker::receive); those that were not started stay in `slices`.
    fn receive_all(&mut self, socket: SocketId, slices: &mut Vec<Slice>) -> Result<(), Refused>;

    /// Starts a send of the span at the beginning of a slice: so many bytes as one datagram, or
    /// several datagrams behind each other. It comes back as [`Outcome::Sent`],
    /// [`Outcome::NotSent`] or [`Outcome::Returned`].
    ///
    /// # Errors
    /// Gives the slice back when [`Needs::sends`] are outstanding, the port is closed, or the span
    /// is longer than the slice's payload.
    fn send(
        &mut self,
        socket: SocketId,
        slice: Slice,
        span: impl Into<Span>,
        to: &Peer,
    ) -> Result<Token, (Slice, Refused)>;

    /// Makes started operations known to the kernel now. [`take`](Worker::take) does so by
    /// itself.
    ///
    /// # Errors
    /// What the operating system answered; nothing started is lost.
    fn commit(&mut self, counters: &Counters) -> io::Result<()>;

    /// Asks for an operation to be cancelled. It is over when it comes back.
    fn cancel(&mut self, token: Token, counters: &Counters) -> Cancelled;

    /// Calls `f`, which may block, and lets another thread run meanwhile. Where weir keeps the
    /// limit it then waits until it may run again.
    ///
    /// # Errors
    /// What the operating system answered when started operations were made known to it first;
    /// `f` was not called.
    fn blocking<R>(&mut self, counters: &Counters, f: impl FnOnce() -> R) -> io::Result<R>;
}

/// What a program calls a socket, or a packet of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Key(pub u64);

/// A socket of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SocketId(pub(crate) u32);

/// One operation, for as long as it is outstanding: a slot and the slot's generation. A token
/// that is out of date names nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token(pub(crate) u64);

/// What a program posts to itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Packet {
    /// What the program calls it.
    pub key: Key,
    /// What it carries.
    pub value: u64,
}

/// Why an operation or a packet was not started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// As many are outstanding as the port was opened for.
    Full,
    /// The port is closed.
    Closed,
    /// More bytes are to be sent than the slice holds.
    TooLong,
    /// The port has no socket of that name: it is another port's.
    NoSuchSocket,
    /// The system does not let the port have this socket, and answered with this code: it belongs to one already, say.
    Unassociated(i32),
    /// The port does without packets for what is ready ([`Shape::skip_ready`]), and the socket's provider cannot.
    MustHavePackets,
}

/// What became of the wish to cancel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cancelled {
    /// It was asked for. The operation comes back, cancelled or finished.
    Asked,
    /// The operation has come back already, or never was.
    Gone,
    /// The provider cannot cancel one operation.
    Unsupported,
}

/// Something that has finished.
#[derive(Debug)]
pub enum Completion {
    /// An operation on a socket.
    Operation {
        /// The operation: the token is out of date from now on.
        token: Token,
        /// The socket.
        socket: SocketId,
        /// What the program called the socket.
        key: Key,
        /// The slice, back in the program's hands.
        slice: Slice,
        /// What became of it.
        outcome: Outcome,
    },
    /// A packet of the program's own.
    Packet(Packet),
}

impl From<Packet> for Completion {
    fn from(packet: Packet) -> Self {
        Completion::Packet(packet)
    }
}

/// What a take brings, of datagrams or of streams.
pub(crate) trait Finished: From<Packet> {
    /// Whether memory comes back with it, for counting.
    fn brings_memory(&self) -> bool;
}

impl Finished for Completion {
    fn brings_memory(&self) -> bool {
        matches!(self, Completion::Operation { .. })
    }
}

/// Room for the completions of one take.
pub type Taken = crate::rio::Batch<Completion>;

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            Refused::Full => "as many are outstanding as the port was opened for",
            Refused::Closed => "the port is closed",
            Refused::TooLong => "more bytes are to be sent than the slice holds",
            Refused::NoSuchSocket => "the port has no such socket",
            Refused::Unassociated(code) => {
                let answer = io::Error::from_raw_os_error(code);
                return write!(f, "the system does not let the port have the socket: {answer}");
            }
            Refused::MustHavePackets => {
                "what is ready on this socket must have its packet, since its provider is not the system's own: do \
                 without skip-ready"
            }
        })
    }
}

/// How many threads may run at a time: what was asked for, or the cores this process may use, as
/// on Windows.
fn concurrency(asked: u32) -> u32 {
    match asked {
        0 => std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32),
        some => some,
    }
}
