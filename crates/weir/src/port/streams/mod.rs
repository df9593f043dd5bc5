//! The contract of the completion port, for streams.
//!
//! As the port of datagrams ([`port`](super)), with the same limit and the same order of waking: listening
//! sockets and connections are *associated* with it under a key, a program *starts* operations on them, and
//! threads *take* what has finished.
//!
//! The operations: *accept* a connection; *receive* into a slice; *wait to receive*, which holds no memory
//! and ends when a receive would bring something (Winsock's receive of zero bytes); *send* a
//! [`Load`]. Ending the sending is a call that waits for nothing ([`Stream::end_sending`]), and no operation.
//!
//! What holds on every provider, beside what holds of the port of datagrams:
//!
//! - An operation that was started comes back exactly once, and its memory with it: from [`Worker::take`],
//!   or, when the port is stopped, to the slice's pool.
//! - *Receives of a stream are filled in the order in which they were started*, however many are outstanding
//!   and whichever threads take them: each carries its number. Whoever takes them puts them in order.
//! - *A stream is over at its* [`Completion::Closed`] *only*, or where [`Worker::close`] says so: everything
//!   outstanding on it has come back by then. Until then its key and its [`StreamId`] are its own. Come
//!   back is what was taken, handled or not: where several threads take, a completion of a stream that is
//!   over may still be in a thread's hands. Its [`StreamId`] tells.
//! - A send may take a part only; the rest is to be started again.
//! - Accepts that wait end as [`Outcome::Returned`] when the listening socket ends accepting
//!   ([`Listener::end_accepting`]), or the port does ([`Worker::end_accepting`]), which leaves the socket to others.
//!
//! What is NOT guaranteed:
//!
//! - That several receives of one stream are in the kernel's hands at a time. On Windows they are, and are
//!   filled in the order posted; io_uring promises no order, so its provider hands them over one by one.
//! - That several sends of one stream leave in the order started: start one at a time.
//! - That an accept brings the first data, as AcceptEx can: a client that connects and is silent would hold it. So it
//!   waits for none on Windows either. Start a receive, which on io_uring is tried as it is submitted, in the same entry
//!   into the kernel as everything else.
//! - That a socket can belong to several ports, or come back to one: on Windows it belongs to its first for ever.
//!
//! A second kind of provider ([`NativeEvents`]) supplies the same operations to one thread, each with an event
//! of its own: the thread waits for a group of events, and is told one at a time
//! (WSAWaitForMultipleEvents), of which it can have so many and no more ([`NativeEvents::MOST`]). There a packet is
//! what the first event of the group is for.
//!
//! Every fixed resource has a bound, given in [`Needs`]; what exceeds it is refused and given back.

// This system's providers: a port that threads share, and one thread's with an event for each operation.
#[cfg(windows)]
pub use super::{iocp::streams::IocpStreams as Native, winsock::WinsockEvents as NativeEvents};

#[cfg(target_os = "linux")]
pub use super::uring::streams::{UringStreams as Native, events::UringEvents as NativeEvents};

pub(super) mod connections;
pub(super) mod events;
pub(super) mod proof;
#[cfg(test)]
pub(super) mod tests;

use super::{Cancelled, Finished, Key, Packet, Refused, Stopped, Token};
use crate::{
    Error, Unavailable,
    counters::Counters,
    gather::Gather,
    memory::{Load, Slice},
    rio::Batch,
    stream::{Accepted, Listener, Stream},
    wake::Waker,
};
use std::{
    io,
    time::{Duration, Instant},
};

/// What is asked of a port: its bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needs {
    /// Most listening sockets associated.
    pub listeners: u32,
    /// Most connections associated at a time.
    pub streams: u32,
    /// Most accepts outstanding at a time, over all listening sockets.
    pub accepts: u32,
    /// Most receives and waits to receive outstanding at a time, over all connections.
    pub receives: u32,
    /// Most sends outstanding at a time, over all connections.
    pub sends: u32,
    /// Most user packets posted and not yet taken.
    pub packets: u32,
    /// Most threads that take from the port.
    pub threads: u32,
    /// Most of them that run at a time; 0 for as many as this process has cores.
    pub concurrency: u32,
}

/// One way of supplying a completion port for streams.
pub trait Provider: Clone + Send + Sync + 'static {
    /// Its name.
    const NAME: &'static str;

    /// Its port.
    type Port: Port;

    /// Whether it can run here: it tries.
    ///
    /// # Errors
    /// [`Unavailable`], with the reason.
    fn availability(&self) -> Result<(), Unavailable>;

    /// Makes a port.
    ///
    /// # Errors
    /// [`Error::Option`], [`Error::Unavailable`] or [`Error::Io`], with what was being done.
    fn open(&self, needs: &Needs) -> Result<Self::Port, Error>;
}

/// A completion port for streams. Dropping it without [`stop`](Port::stop) leaks what is outstanding,
/// deliberately, and counts slices ([`Region::leaked`](crate::memory::Region::leaked)).
pub trait Port: Sized + Send + Sync + 'static {
    /// What a thread takes with.
    type Worker<'a>: Worker
    where
        Self: 'a;

    /// Lets accepts be started on a listening socket. Their completions carry `key`.
    ///
    /// # Errors
    /// [`Error::Option`] past [`Needs::listeners`].
    fn listen(&self, listener: Listener, key: Key) -> Result<ListenerId, Error>;

    /// Lets operations be started on a connection. Its completions carry `key`.
    ///
    /// # Errors
    /// [`Refused`] past [`Needs::streams`], when the port is closed, or where the system does not let it
    /// have the socket, which belongs to another already, say.
    fn associate(&self, stream: Stream, key: Key) -> Result<StreamId, Refused>;

    /// Puts a packet at the end of the queue. Any thread may do so.
    ///
    /// # Errors
    /// Gives the packet back when [`Needs::packets`] wait already, or the port is closed.
    fn post(&self, packet: Packet, counters: &Counters) -> Result<(), (Packet, Refused)>;

    /// Something that posts a packet, from any thread, also after the port has gone. Where it finds no
    /// room it does nothing.
    fn poster(&self, packet: Packet) -> Waker;

    /// A place among the threads that take, for the calling thread.
    ///
    /// # Errors
    /// [`Error::Option`] past [`Needs::threads`].
    fn worker(&self) -> Result<Self::Worker<'_>, Error>;

    /// Bytes of a stream that the system has received and acknowledged since the beginning: those that
    /// receives of this port brought, taken already or not, and those that wait in the socket. The peer's
    /// end may count as one. What was received by [`Stream::receive`] counts or does not: who receives by
    /// both cannot use it.
    ///
    /// # Errors
    /// What the operating system answered, or that it does not tell; [`io::ErrorKind::NotFound`] for a stream
    /// that is over.
    fn received_in_all(&self, stream: StreamId, counters: &Counters) -> io::Result<u64>;

    /// Refuses all further operations and packets, and lets every take return `None`, now and later. What
    /// has not been taken comes back by [`stop`](Port::stop).
    fn close(&self);

    /// Something that closes the port, now or later, from any thread, also after it has gone.
    fn closer(&self) -> Waker;

    /// Closes, cancels what is outstanding, and gives all memory back. No worker is left when this is
    /// called: a worker borrows its port.
    fn stop(self, by: Instant) -> Stopped;

    /// What was obtained, to be stated beside every figure: name and value.
    fn granted(&self) -> Vec<(&'static str, String)>;
}

/// A thread's place among those that take from a port. It stays on its thread, and dropping it lets another
/// thread run.
pub trait Worker {
    /// As [`port::Worker::take`](super::Worker::take).
    ///
    /// # Errors
    /// What the operating system answered: the port is of no more use and must be stopped.
    fn take(
        &mut self,
        out: &mut Taken,
        timeout: Option<Duration>,
        counters: &Counters,
    ) -> io::Result<Option<usize>>;

    /// As [`port::Worker::take_gathered`](super::Worker::take_gathered).
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
        "each message ends a wait".into()
    }

    /// Takes what lies ready, for a thread that runs already: it runs on, and neither waits nor enters the
    /// kernel. Returns how many; 0 also where only [`take`](Worker::take) is to bring it, since a batch
    /// waits to be submitted, another thread's turn has come, or the provider knows no shorter way.
    #[inline]
    fn take_ready(&mut self, out: &mut Taken) -> usize {
        let _ = out;
        0
    }

    /// Starts accepting a connection.
    ///
    /// # Errors
    /// [`Refused`] when [`Needs::accepts`] are outstanding, or the port is closed.
    fn accept(&mut self, listener: ListenerId) -> Result<Token, Refused>;

    /// Ends accepting, where others go on with the listening sockets: further accepts are refused, and those that are
    /// outstanding are cancelled. Each comes back as ever, with a connection or without. One that came meanwhile may have
    /// woken an accept that was cancelled, and nobody else who waits at the socket: so whoever ends accepting asks the socket
    /// once more when all have come back. By default, which is that of systems where nobody else has a listening socket,
    /// nothing is done.
    fn end_accepting(&mut self, counters: &Counters) {
        let _ = counters;
    }

    /// Starts a receive into a slice's payload. Done, it brought so many bytes, 0 for the peer's end.
    ///
    /// # Errors
    /// Gives the slice back when [`Needs::receives`] are outstanding, the port is closed, or the stream is
    /// over or about to be.
    fn receive(&mut self, stream: StreamId, slice: Slice) -> Result<Token, (Slice, Refused)>;

    /// Starts a wait until something can be received, the peer's end included.
    ///
    /// # Errors
    /// As for [`receive`](Worker::receive).
    fn wait_to_receive(&mut self, stream: StreamId) -> Result<Token, Refused>;

    /// Starts a send of what is left of a load, at least one byte. Done, so many more bytes of it were
    /// taken.
    ///
    /// # Errors
    /// Gives the load back when [`Needs::sends`] are outstanding, or some are and the system has nothing to tell of
    /// one more with ([`Refused::Full`]), the port is closed, or the stream is over or about to be.
    fn send(&mut self, stream: StreamId, load: Load) -> Result<Token, (Load, Refused)>;

    /// Takes a stream from the port: nothing more is started on it, and what is outstanding is cancelled. The
    /// port lets go of the connection when it is over; the peer sees its end when the last clone of the
    /// stream has gone.
    fn close(&mut self, stream: StreamId, counters: &Counters) -> Closing;

    /// Drops the program's hold on a connection that is over. Where it is the last one, the connection has ended in
    /// order, and [`Shape::reuse_sockets`] is asked for, its socket becomes that of an accept to come.
    ///
    /// [`Shape::reuse_sockets`]: super::Shape::reuse_sockets
    fn let_go(&mut self, stream: Stream, counters: &Counters) {
        let _ = (stream, counters);
    }

    /// Makes started operations known to the kernel now. [`take`](Worker::take) does so by itself.
    ///
    /// # Errors
    /// What the operating system answered; nothing started is lost.
    fn commit(&mut self, counters: &Counters) -> io::Result<()>;

    /// Asks for an operation to be cancelled. It is over when it comes back. Of a send that was cancelled nobody knows
    /// how much has left: its stream is of no more use, and is to be closed.
    fn cancel(&mut self, token: Token, counters: &Counters) -> Cancelled;

    /// Calls `f`, which may block, and lets another thread run meanwhile.
    ///
    /// # Errors
    /// What the operating system answered when started operations were made known to it first; `f` was not
    /// called.
    fn blocking<R>(&mut self, counters: &Counters, f: impl FnOnce() -> R) -> io::Result<R>;
}

/// A listening socket of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ListenerId(pub(crate) u32);

/// A connection of a port: a slot and the slot's generation. One that is out of date names nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StreamId(pub(crate) u64);

/// What became of the wish to close a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "it says whether a completion follows"]
pub enum Closing {
    /// Nothing was outstanding: it is over.
    Over,
    /// [`Completion::Closed`] follows when all that is outstanding has come back.
    Follows,
    /// It is over already, or never was.
    Gone,
}

/// How an operation ended.
#[derive(Debug)]
pub enum Outcome<T> {
    /// As meant.
    Done(T),
    /// It failed.
    Failed(io::Error),
    /// It was taken back before anything happened.
    Returned,
}

/// Something that has finished. The token of an operation is out of date from now on.
#[derive(Debug)]
pub enum Completion {
    /// An accept.
    Accept {
        /// The operation.
        token: Token,
        /// The listening socket.
        listener: ListenerId,
        /// What the program called it.
        key: Key,
        /// The connection.
        outcome: Outcome<Accepted>,
    },
    /// A receive.
    Receive {
        /// The operation.
        token: Token,
        /// The connection.
        stream: StreamId,
        /// What the program called it.
        key: Key,
        /// The slice, back in the program's hands.
        slice: Slice,
        /// How many receives were started on this stream before it, modulo 2^32.
        number: u32,
        /// How many bytes it brought.
        outcome: Outcome<usize>,
    },
    /// A wait to receive.
    Wait {
        /// The operation.
        token: Token,
        /// The connection.
        stream: StreamId,
        /// What the program called it.
        key: Key,
        /// Whether there is something, as far as one knows: it is a hint.
        outcome: Outcome<()>,
    },
    /// A send.
    Send {
        /// The operation.
        token: Token,
        /// The connection.
        stream: StreamId,
        /// What the program called it.
        key: Key,
        /// The load, back in the program's hands, as it was started.
        load: Load,
        /// How many bytes more of it were taken.
        outcome: Outcome<usize>,
    },
    /// A stream that was closed is over.
    Closed {
        /// The connection: the name is out of date from now on.
        stream: StreamId,
        /// What the program called it.
        key: Key,
    },
    /// A packet of the program's own.
    Packet(Packet),
}

impl From<Packet> for Completion {
    fn from(packet: Packet) -> Self {
        Completion::Packet(packet)
    }
}

impl Finished for Completion {
    fn brings_memory(&self) -> bool {
        matches!(self, Completion::Receive { .. } | Completion::Send { .. })
    }
}

/// Room for the completions of one take.
pub type Taken = Batch<Completion>;
