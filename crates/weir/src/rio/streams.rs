//! The contract of registered I/O for streams.
//!
//! One queue of a thread for listening sockets and for connections: accepting, receiving, sending, ending
//! and closing are asked for, and what became of each comes as a [`StreamCompletion`]. Memory is registered
//! once and cut into slices, as for datagrams; what was received goes back by moving its slice into a
//! [`Load`].
//!
//! What every provider must supply: a [`StreamProvider`] that finds out by trying whether it can run, opens
//! queues on any thread, and starts each on the thread that will use it; from then on it cannot leave that
//! thread.
//!
//! What holds on every provider:
//!
//! - A connection is a [`StreamId`]: a place and which use of it. A stale one names nothing: what is asked of
//!   it is passed over.
//! - A connection is over at its [`StreamCompletion::Closed`] and not before; by then everything that was
//!   outstanding on it has come back. Whoever asked for the close hears nothing else of it.
//! - A slice comes back exactly once: in a completion, or at the [`StreamQueue::stop`].
//! - What a peer sent comes in order, and [`StreamCompletion::Ended`] behind all of it.
//! - A connection has one send under way at a time.
//!
//! What is NOT guaranteed: that a send takes all that it was given; that completions of different
//! connections come in the order of what was asked; that a wait that returned [`Woken::Ready`] is followed
//! by a dequeue that brings something.
//!
//! Bounds, and what happens when they are reached:
//!
//! | what | bound | policy |
//! | --- | --- | --- |
//! | connections | [`StreamNeeds::connections`], or what the system allows | nothing is accepted until one is closed; peers wait where connections wait |
//! | slices | [`Receiving`] | receiving stops and the program is told ([`StreamCompletion::Starved`]), or no slice can be posted |
//! | sends, ends of sending, questions | one of each for each connection | a send is given back; an end and a question are answered by the one under way |
//! | requests that the kernel does not take yet | a few for each connection | wait in user space, in order |

mod choice;

pub(crate) use choice::{Choice, with_stream_provider};

use super::{Refused, Stopped, Woken};
use crate::{
    Error, Unavailable, contract::contract, counters::Counters, memory::Slice, options::named,
    rio::Batch, stream::Listener, wake::Waker,
};
use std::{
    fmt, io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

/// What a design needs of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamNeeds {
    /// Bytes received at a time, at most.
    pub slice_bytes: usize,
    /// Most connections at a time.
    pub connections: u32,
    /// What is received into.
    pub receiving: Receiving,
    /// Most tables of connections that the queue may use, where the system bounds one; 0 for as many as the
    /// connections need.
    pub tables: u32,
    /// Loads of so many bytes or more are sent from where they lie (zero copy); `None` for never.
    pub zero_copy_bytes: Option<usize>,
}

/// What is received into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Receiving {
    /// Slices that connections share: the kernel takes one when something came. A connection receives until it is
    /// told not to, and an idle one holds none.
    Shared {
        /// The most slices for each table of connections; there are fewer while those do.
        slices: u32,
        /// What a connection waits with.
        idle: Idle,
    },
    /// Slices that are posted for one connection: so many at a time, at most. A connection receives as often
    /// as it was asked to.
    Posted {
        /// Slices for each connection.
        each: u32,
        /// Slices in all.
        slices: u32,
    },
}

named! {
    /// What a connection waits with for something to receive, where slices are shared.
    #[derive(Default)]
    pub enum Idle {
        /// A receive that goes on: a request for many messages, for which the system holds all that a receive takes.
        #[default]
        Receive = "receive",
        /// A question whether something came, for which it holds less, and then a receive: two requests for each
        /// message.
        Poll = "poll",
    }
}

/// A way of supplying registered I/O for streams.
pub trait StreamProvider: Clone + Send + Sync + 'static {
    /// Its queue.
    type Queue: StreamQueue;
    /// A queue that was not started yet.
    type Opened: Send;

    /// Its name.
    fn name(&self) -> &'static str;

    /// Whether it can run here and receives so, by trying: not every one has slices that connections share.
    ///
    /// # Errors
    /// Why it cannot.
    fn availability(&self, receiving: Receiving) -> Result<(), Unavailable>;

    /// Makes a queue for these sockets.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Memory`] or [`Error::Unavailable`], with what was being done.
    fn open(&self, listeners: &[Listener], needs: &StreamNeeds) -> Result<Self::Opened, Error>;

    /// Starts it on the calling thread. What it does counts in `counters`.
    ///
    /// # Errors
    /// [`Error::Io`] with what was being done.
    fn start(
        &self,
        opened: Self::Opened,
        counters: &Arc<Counters>,
    ) -> Result<StartedStreams<Self::Queue>, Error>;
}

/// A queue that runs.
pub struct StartedStreams<Q> {
    /// The queue.
    pub queue: Q,
    /// What was obtained, to be stated beside every figure: name and value.
    pub granted: Vec<(&'static str, String)>,
}

/// A connection: its place, and which use of that place it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StreamId {
    /// Its place, from 0: small numbers, used again.
    pub number: u32,
    /// Which use of that place.
    pub generation: u32,
}

/// What is to be sent.
#[derive(Debug)]
pub enum Load {
    /// The bytes of a slice's payload from `start` to `end`: what was received is sent back so, without a
    /// copy.
    Slice {
        /// The slice.
        slice: Slice,
        /// The first byte.
        start: u32,
        /// Behind the last.
        end: u32,
    },
    /// The bytes from `start` on.
    Bytes {
        /// The bytes.
        bytes: Vec<u8>,
        /// The first that is to be sent.
        start: usize,
    },
}

impl Load {
    /// What is to be sent.
    ///
    /// # Panics
    /// If it names bytes that there are not.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Load::Slice { slice, start, end } => &slice.payload()[*start as usize..*end as usize],
            Load::Bytes { bytes, start } => &bytes[*start..],
        }
    }

    /// Passes over so many bytes, which were sent.
    ///
    /// # Panics
    /// If there are not so many.
    #[inline]
    pub fn advance(&mut self, count: usize) {
        assert!(count <= self.bytes().len(), "{count} bytes sent, of {}", self.bytes().len());
        match self {
            Load::Slice { start, .. } => *start += count as u32,
            Load::Bytes { start, .. } => *start += count,
        }
    }

    /// Whether all was sent.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes().is_empty()
    }
}

impl From<Vec<u8>> for Load {
    fn from(bytes: Vec<u8>) -> Self {
        Load::Bytes { bytes, start: 0 }
    }
}

/// What became of something that was asked for.
#[derive(Debug)]
pub enum StreamCompletion {
    /// A connection came.
    Accepted {
        /// It.
        connection: StreamId,
        /// The other end.
        peer: SocketAddr,
        /// The socket it came by, by its place among the listeners.
        listener: u32,
    },
    /// One could not be accepted. Where the system has no more to give
    /// ([`is_want_of_resources`](crate::stream::is_want_of_resources)) the connection still waits, and
    /// accepting stopped until it is asked for again.
    AcceptFailed {
        /// What the system answered.
        error: io::Error,
    },
    /// So many bytes lie at the beginning of the slice's payload, at least one.
    Received {
        /// Whose.
        connection: StreamId,
        /// They.
        slice: Slice,
        /// How many.
        len: u32,
    },
    /// The peer sends no more; receiving is over.
    Ended {
        /// Whose.
        connection: StreamId,
    },
    /// There was no slice to receive into: receiving stopped, and must be asked for again when there is one
    /// ([`StreamQueue::slices`]).
    Starved {
        /// Whose.
        connection: StreamId,
    },
    /// Receiving failed and is over.
    Failed {
        /// Whose.
        connection: StreamId,
        /// What the system answered.
        error: io::Error,
    },
    /// So many bytes were taken to be sent.
    Sent {
        /// Whose.
        connection: StreamId,
        /// What was to be sent; `None` where it was all taken and the kernel still reads it: then it comes as
        /// [`Returned`](Self::Returned).
        load: Option<Load>,
        /// How many bytes of it.
        count: usize,
    },
    /// The send failed.
    NotSent {
        /// Whose.
        connection: StreamId,
        /// What was to be sent; `None` as above.
        load: Option<Load>,
        /// What the system answered.
        error: io::Error,
    },
    /// The kernel no longer reads this.
    Returned {
        /// What was sent.
        load: Load,
    },
    /// The peer was told that nothing follows, or could not be.
    EndSent {
        /// Whose.
        connection: StreamId,
        /// What the system answered.
        result: io::Result<()>,
    },
    /// So many bytes are behind those that came as `Received` before this: the system has received and
    /// acknowledged them.
    Waiting {
        /// Whose.
        connection: StreamId,
        /// How many.
        bytes: usize,
    },
    /// The connection is over.
    Closed {
        /// Which.
        connection: StreamId,
    },
}

contract! {
    for Never;
    /// The queue of a thread.
    pub trait StreamQueue: Sized {
        /// Accepts connections at every listener until told not to.
        fn accept(&mut self);

        /// Accepts no more. What is under way may still come.
        fn stop_accepting(&mut self);

        /// Whether accepts are under way, as those are that were told to stop and have not.
        fn is_accepting(&self) -> bool;

        /// Takes in a connection that was made by other means, as if it had been accepted.
        ///
        /// # Errors
        /// There is no place for it, or what the system answered.
        fn adopt(&mut self, stream: &crate::stream::Stream) -> io::Result<StreamId>;

        /// Receives: until told not to, or once for each time that it is asked ([`Receiving`]). Says
        /// whether there is a slice, where one must be posted.
        #[must_use]
        fn receive(&mut self, connection: StreamId) -> bool;

        /// Receives no more. What is under way still comes; slices that are posted stay so.
        fn stop_receiving(&mut self, connection: StreamId);

        /// Slices that could be received into now, by this connection.
        fn slices(&self, connection: StreamId) -> u32;

        /// Whether slices become so few that none should be kept from receiving for long. Where that is asked
        /// often, and there may be more of them, there are from now on.
        fn is_short(&mut self, connection: StreamId) -> bool;

        /// Takes a slice to receive into.
        fn give_back(&mut self, slice: Slice);

        /// Sends.
        ///
        /// # Errors
        /// Gives the load back where there is nothing to be sent, where a send is under way, where the
        /// connection is over, or where its slice is of another region than this queue's
        /// ([`Refused::OtherRegion`]): only slices that came from this queue are sent from where they lie.
        fn send(&mut self, connection: StreamId, load: Load) -> Result<(), (Load, Refused)>;

        /// Tells the peer that nothing follows what was sent. Asked again before its
        /// [`StreamCompletion::EndSent`], that one answers both.
        fn end_sending(&mut self, connection: StreamId);

        /// Asks how many bytes the system has received that were not received from it. Asked again before its
        /// [`StreamCompletion::Waiting`], that one answers both.
        fn ask_waiting(&mut self, connection: StreamId);

        /// Closes, whatever is under way. With `abrupt` what was not sent is lost, and the peer sees a reset.
        /// Asked again it is passed over.
        fn close(&mut self, connection: StreamId, abrupt: bool);

        /// Moves completions into `out`, up to its capacity, and says how many. Where the queue looks empty a
        /// provider may enter the kernel once for each of its tables; each such entry is counted.
        ///
        /// # Errors
        /// What the system answered: the queue is of no more use and must be stopped.
        fn dequeue(&mut self, out: &mut Batch<StreamCompletion>) -> io::Result<usize>;

        /// Makes known to the kernel what was asked for, and waits until something can be dequeued, the time is
        /// over, or it is woken.
        ///
        /// # Errors
        /// What the system answered.
        fn wait(&mut self, timeout: Option<Duration>) -> io::Result<Woken>;

        /// Lets completions gather, so that one wake-up serves many: as [`wait`](Self::wait), but sleeps although there are
        /// some, until `at_most` is over, or there are `enough` as far as the provider can tell. Where there were none by
        /// then it may sleep on until there is one.
        ///
        /// # Errors
        /// What the system answered.
        fn gather(
            &mut self,
            enough: u32,
            at_most: Duration,
            timeout: Option<Duration>,
        ) -> io::Result<Woken>;

        /// How [`gather`](Self::gather) does it, in words: to be stated beside every figure.
        fn gathers(&self) -> String;

        /// Something that ends a wait, now or the next one, from any thread.
        fn waker(&self) -> Waker;

        /// Closes every connection that is open, with a reset, and gives every slice back to its pool. Dropping
        /// a queue instead leaks its slices deliberately and counts them
        /// ([`Region::leaked`](crate::memory::Region::leaked)).
        fn stop(self, by: Instant) -> Stopped;
    }
}

impl fmt::Display for Receiving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Receiving::Shared { slices, .. } => {
                write!(f, "up to {slices} slices that connections share")
            }
            Receiving::Posted { each, slices } => {
                write!(f, "{each} slices posted for each connection, of {slices}")
            }
        }
    }
}
