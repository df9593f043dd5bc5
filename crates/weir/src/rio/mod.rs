//! The contract of registered I/O.
//!
//! Memory is registered once and cut into slices. A *request queue* takes slices to
//! receive into and slices to send from; a *completion queue* gives them back, with what
//! became of them. The contract follows Windows' registered I/O (RIO, Windows 8) and holds
//! as well over io_uring, AF_XDP and plain sockets.
//!
//! The example `rio_sink` of this package is a UDP sink by hand on this contract, on a provider that is chosen by its name
//! ([`Choice::with`]).
//!
//! What every provider must supply: a [`Layout`] for its slices, queues that are opened on
//! any thread and started on the thread that will arm them, and a [`Waker`].
//!
//! What holds on every provider:
//!
//! - One thread at a time posts on a request queue, and one dequeues from a completion
//!   queue: the methods take `&mut self`. With [`OneThread`] the queues cannot leave the
//!   thread that started them; with [`HandOver`] they move from holder to holder.
//!
//!   ```compile_fail,E0277
//!   # use weir::rio::{OneThread, Provider, batch::PlainSockets};
//!   fn may_leave_its_thread<Q: Send>() {}
//!   may_leave_its_thread::<<PlainSockets as Provider<OneThread>>::Rq>();
//!   ```
//!
//!   ```compile_fail,E0499
//!   # use weir::{memory::Slice, rio::RequestQueue};
//!   fn post_side_by_side<Q: RequestQueue + Send>(mut queue: Q, one: Slice, other: Slice) {
//!       std::thread::scope(|scope| {
//!           scope.spawn(|| queue.receive(one).is_ok());
//!           scope.spawn(|| queue.receive(other).is_ok()); // a second `&mut`
//!       });
//!   }
//!   ```
//! - A posted slice comes back exactly once: in a completion, or from
//!   [`CompletionQueue::stop`].
//! - The context of a datagram (source, local address) belongs to the slice it came in,
//!   since on io_uring and AF_XDP the kernel chooses the slice: it lies in the [`CONTEXT_BYTES`] in front of
//!   the payload, and is decoded when somebody asks ([`Completion::source`]).
//!
//! What is NOT guaranteed: that slices are filled in the order posted; that a wait which
//! returned [`Woken::Ready`] is followed by a dequeue that brings something; that `Sent`
//! completions come in order with `Received` ones.

pub mod batch;
mod choice;
#[cfg(any(test, target_os = "linux"))] // what it is used for is there
mod combining;
#[cfg(any(test, feature = "fake"))]
pub mod fake;
pub mod packet;
#[cfg(test)]
#[cfg_attr(
    not(target_os = "linux"),
    expect(dead_code, reason = "providers of Linux use more of it")
)]
mod provider_tests;
mod requests;
mod sharing;
mod signals;
pub mod streams;
pub mod turn;
pub mod uring;
mod watched;
pub mod winsock;
#[cfg(all(test, target_os = "linux"))]
mod wire_tests;
pub mod xdp;

pub use crate::socket::{CONTEXT_BYTES, Peer, Received, Span, Unsent};
#[cfg(not(all(target_os = "linux", feature = "xdp")))]
pub(crate) use choice::absent_here;
pub use choice::{AboutProvider, Choice, OnProvider};
pub(crate) use choice::{Chosen, with_provider};
pub use requests::Refused;
pub use watched::Watched;

use crate::{
    Error, Unavailable,
    counters::Counters,
    design::Sealed,
    memory::{Layout, Region, Slice},
    socket::{
        Arrival, DatagramSocket, Endpoint,
        context::{self, InPlace, Line, Origin},
    },
    wake::Waker,
};
use std::{
    fmt, io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

/// What a design needs of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needs {
    /// Longest datagram to be received whole, in bytes.
    pub payload: usize,
    /// Most receives that will be posted at a time, over all sockets.
    pub receives: u32,
    /// Most sends that will be outstanding at a time; 0 for a sink.
    pub sends: u32,
    /// Most completions taken by one dequeue.
    pub per_dequeue: u32,
    /// Whether a socket asks for receive offload. Then `payload` is at least
    /// [`OFFLOADED_BYTES`](crate::socket::OFFLOADED_BYTES).
    pub offload: bool,
    /// Whether a socket asks for the traffic class or the hops of a datagram.
    pub meta: bool,
}

/// Whether queues stay on the thread that started them or move between threads: [`OneThread`] or [`HandOver`].
pub trait Threading: fmt::Debug + Copy + Send + Sync + Sealed + 'static {
    /// Makes what contains it `Send` or not.
    type Marker: fmt::Debug + Default;
    /// Whether several threads take turns with the queues.
    const HANDS_OVER: bool;
}

/// Queues that never leave the thread that started them: they are not `Send`.
#[derive(Debug, Clone, Copy)]
pub struct OneThread;

/// Queues that move between threads, held by one at a time: `Send`, used by `&mut`.
#[derive(Debug, Clone, Copy)]
pub struct HandOver;

impl Sealed for OneThread {}
impl Sealed for HandOver {}

impl Threading for OneThread {
    type Marker = std::marker::PhantomData<*const ()>;
    const HANDS_OVER: bool = false;
}

impl Threading for HandOver {
    type Marker = std::marker::PhantomData<()>;
    const HANDS_OVER: bool = true;
}

/// One way of supplying registered I/O.
pub trait Provider<T: Threading>: Clone + Send + Sync + 'static {
    /// Its completion queue.
    type Cq: CompletionQueue<Rq = Self::Rq>;
    /// Its request queue: one for each socket.
    type Rq: RequestQueue;
    /// Queues with their sockets bound, not yet started.
    type Opened: Opened + Send;

    /// How slices must be cut to meet these needs: with [`CONTEXT_BYTES`] of headroom at least.
    ///
    /// # Errors
    /// [`Unavailable`] if the provider cannot run here (it tries), or not with these needs.
    fn layout(&self, needs: &Needs) -> Result<Layout, Unavailable>;

    /// Binds a socket to each endpoint and makes the queues.
    ///
    /// # Errors
    /// [`Error::Bind`], [`Error::Io`] or [`Error::Unavailable`], with what was being done.
    fn open(
        &self,
        at: &[Endpoint],
        region: &Arc<Region>,
        needs: &Needs,
    ) -> Result<Self::Opened, Error>;

    /// Starts the queues on the calling thread, which is the one that arms the receives.
    /// Where the kernel copies in the task that armed them, that thread must live until the
    /// queues are stopped.
    ///
    /// # Errors
    /// [`Error::Io`] with what was being done.
    fn start(&self, opened: Self::Opened) -> Result<Started<Self::Cq, Self::Rq>, Error>;
}

/// Queues with their sockets bound, not yet started.
pub trait Opened {
    /// The address of each socket, in the order of the endpoints.
    fn local_addresses(&self) -> Vec<SocketAddr> {
        self.sockets().iter().map(DatagramSocket::local_address).collect()
    }

    /// The sockets that datagrams come by, in the order of the endpoints: for reading what the system
    /// counts for them, and for taking errors of peers from them. None where it has no such sockets.
    fn sockets(&self) -> Vec<DatagramSocket> {
        Vec::new()
    }

    /// The sockets by which any thread may send from the addresses, in the order of the endpoints: those that
    /// datagrams come by, if there are any. None where it has no sockets at all.
    fn senders(&self) -> Vec<DatagramSocket> {
        self.sockets()
    }
}

/// Queues that run.
pub struct Started<Cq, Rq> {
    /// The completion queue of all sockets.
    pub completions: Cq,
    /// The request queue of each socket, in the order of the endpoints.
    pub requests: Vec<Rq>,
    /// What was obtained, to be stated beside every figure: name and value.
    pub granted: Vec<(&'static str, String)>,
}

/// Where a program posts slices.
pub trait RequestQueue {
    /// Posts a slice to receive into. Slices beyond what the kernel can hold wait in this
    /// queue and follow by themselves.
    ///
    /// # Errors
    /// Gives the slice back when more than [`Needs::receives`] would be outstanding, when it is of
    /// another region than the queue's, or when the completion queue was stopped.
    fn receive(&mut self, slice: Slice) -> Result<(), (Slice, Refused)>;

    /// Makes sure of room for the next `receives` at once, as far as there is any: cheaper than
    /// one by one where several threads count. What is not used is given up at the commit.
    fn reserve(&mut self, receives: u32) {
        let _ = receives;
    }

    /// Posts the span at the beginning of a slice to be sent: so many bytes as one datagram, or
    /// several datagrams behind each other. It comes back as [`Outcome::Sent`] or
    /// [`Outcome::NotSent`].
    ///
    /// # Errors
    /// Gives the slice back when more than [`Needs::sends`] would be outstanding, when it is of
    /// another region than the queue's, or when the completion queue was stopped.
    ///
    /// # Panics
    /// If the span is longer than the slice's payload, whatever the provider.
    fn send(
        &mut self,
        slice: Slice,
        span: impl Into<Span>,
        to: &Peer,
    ) -> Result<(), (Slice, Refused)>;

    /// Makes posted requests known to the kernel, if there are any that it does not know.
    /// Receives may need no call at all.
    ///
    /// # Errors
    /// What the operating system answered, or that the completion queue was stopped; nothing posted is
    /// lost: what was not made known goes back to its pool with this queue.
    fn commit(&mut self, counters: &Counters) -> io::Result<()>;

    /// Receives and sends that are outstanding.
    fn outstanding(&self) -> (u32, u32);

    /// Whether sends that were committed wait for room in the socket, so that whoever [watches](CompletionQueue::watched) has
    /// to look whether it is writable, too. Where the kernel waits for it this is never so.
    fn sends_wait(&self) -> bool {
        false
    }
}

/// Where completions arrive.
pub trait CompletionQueue: Sized {
    /// The request queue that belongs to it.
    type Rq: RequestQueue;

    /// Moves completions into `out`, up to its capacity, and returns how many datagrams
    /// were received. Where the queue looks empty a provider may enter the kernel once;
    /// each such entry is counted. Re-arms what needs it.
    ///
    /// # Errors
    /// What the operating system answered: the queue is of no more use and must be stopped.
    fn dequeue(&mut self, out: &mut Batch, counters: &Counters) -> io::Result<usize>;

    /// Waits until `at_least` completions can be dequeued, the time is over, or it is woken.
    ///
    /// # Errors
    /// What the operating system answered.
    fn wait(
        &mut self,
        at_least: u32,
        timeout: Option<Duration>,
        counters: &Counters,
    ) -> io::Result<Woken>;

    /// Lets datagrams gather, so that one wake-up serves many: sleeps although there are some, until `at_most` is over,
    /// or `enough` can be dequeued as far as the provider can tell, or it is woken. Where nothing came by then it may
    /// sleep on until something has. An error of the queue ends it at the next dequeue or wait.
    ///
    /// # Errors
    /// What the operating system answered.
    fn gather(&mut self, enough: u32, at_most: Duration, counters: &Counters) -> io::Result<Woken>;

    /// How [`gather`](Self::gather) does it, in words: to be stated beside every figure.
    fn gathers(&self) -> String;

    /// Whether the last dequeue may have left datagrams behind although it had room for them: then the next one comes
    /// before anything gathers.
    fn may_have_left(&self) -> bool {
        false
    }

    /// Something that ends a wait, now or the next one, from any thread.
    fn waker(&self) -> Waker;

    /// What a reactor of the program's own watches instead of having a thread in [`wait`](Self::wait), once
    /// [`prepare_to_wait`](Self::prepare_to_wait) has said that nothing is there: one of them becomes readable when there
    /// may be something to dequeue, or writable when a send that found no room may go on, for which a dequeue has to be
    /// made, too. Empty where only a wait tells.
    fn watched(&self) -> Vec<Watched> {
        Vec::new()
    }

    /// Does what [`wait`](Self::wait) does before it sleeps. `true`: there may be something to dequeue already. Else
    /// whatever comes from now on makes one of [`watched`](Self::watched) ready, anew where it was ready before, so that
    /// watching for edges is enough. To be called when receives are posted and committed, and the last dequeue brought
    /// nothing, not even a send, and [left nothing](Self::may_have_left).
    ///
    /// # Errors
    /// What the operating system answered.
    fn prepare_to_wait(&mut self, counters: &Counters) -> io::Result<bool> {
        let _ = counters;
        Ok(true)
    }

    /// What delivers the queue's turn where the system does ([`turn`]): threads that share the queue wait there,
    /// and not by [`wait`](Self::wait). `None` where it does not.
    fn turn_port(&self) -> Option<Box<dyn turn::TurnPort>> {
        None
    }

    /// Takes no more from the sockets, which others go on with. What was taken already is dequeued as ever: says whether
    /// there may be some of it yet. To be called again until there is none. By default a queue takes from the sockets only
    /// when it is dequeued.
    ///
    /// # Errors
    /// What the operating system answered.
    fn end_receiving(&mut self, counters: &Counters) -> io::Result<bool> {
        let _ = counters;
        Ok(false)
    }

    /// Ends receiving, cancels what is outstanding, and gives every slice back to its pool.
    /// Must be called on a thread that may use the queue; dropping a queue instead leaks
    /// its region deliberately and counts it ([`Region::leaked`]).
    ///
    /// A request queue that is not among `requests` takes nothing any more ([`Refused::Stopped`]); what
    /// was posted on it and not committed goes back to its pool when it is dropped.
    fn stop(self, requests: Vec<Self::Rq>, by: Instant) -> Stopped;
}

/// What became of a slice. It is at most 48 bytes long, of which a batch holds many.
#[derive(Debug)]
pub struct Completion {
    /// The slice, back in the program's hands.
    pub slice: Slice,
    /// The socket, by its place among the endpoints.
    pub socket: u32,
    /// What became of it.
    pub outcome: Outcome,
}

/// How a request ended. `R`: what is said of a datagram that was received.
#[derive(Debug)]
pub enum Outcome<R = Received> {
    /// A datagram lies in the slice's payload, or several with receive offload.
    Received(R),
    /// These were handed to the network.
    Sent(Span),
    /// The receive failed; the slice is unharmed.
    Failed(io::Error),
    /// The send failed; the slice is unharmed. It concerns these datagrams: their address or their
    /// length, say.
    NotSent(Unsent),
    /// The request was taken back before anything happened.
    Returned,
}

impl Completion {
    /// Who sent what was received; `None` where nothing was.
    #[inline]
    pub fn source(&self) -> Option<SocketAddr> {
        self.in_place().map(|came| came.source())
    }

    /// Where a reply goes, and from where; `None` where nothing was received.
    #[inline]
    pub fn peer(&self) -> Option<Peer> {
        self.in_place().map(|came| came.peer())
    }

    /// All that is known of what was received; `None` where nothing was.
    pub fn arrival(&self) -> Option<Arrival> {
        self.in_place().map(|came| came.arrival())
    }

    #[inline]
    fn in_place(&self) -> Option<InPlace<'_>> {
        let Outcome::Received(received) = self.outcome else { return None };
        Some(received.with(line(&self.slice)))
    }
}

/// The line in front of the payload of a slice. Every provider has its slices cut so that there is one.
#[inline]
fn line(slice: &Slice) -> &Line {
    let headroom = slice.region().layout().headroom;
    slice.whole()[..headroom].last_chunk().expect(NO_LINE)
}

/// A slice's line, and its payload.
#[inline]
pub(crate) fn line_and_payload(slice: &mut Slice) -> (&mut Line, &mut [u8]) {
    let (head, payload) = slice.split_mut();
    (head.last_chunk_mut().expect(NO_LINE), payload)
}

const NO_LINE: &str = "slices of registered I/O have room for a context";

/// Says in a slice where the datagram in it came from; returns what its completion says.
pub(crate) fn received(slice: &mut Slice, arrival: &Arrival) -> Received {
    context::write(line_and_payload(slice).0, arrival)
}

/// Says in a slice where a datagram in it shall go, as if it had come from there.
pub(crate) fn goes_to(slice: &mut Slice, to: &Peer) -> Received {
    context::write_destination(line_and_payload(slice).0, to)
}

/// How a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Woken {
    /// There are completions to dequeue (perhaps: events are hints).
    Ready,
    /// The time was over.
    TimedOut,
    /// A [`Waker`] ended it.
    ByWaker,
}

/// What [`CompletionQueue::stop`] achieved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stopped {
    /// Slices that came back.
    pub returned: u32,
    /// Slices that the kernel still holds: at the deadline, or since a request queue that was not given
    /// back keeps its socket open. They are leaked, and counted, unless they come back with that queue.
    pub missing: u32,
}

/// Room for the completions of one dequeue, or of one take from a port.
pub struct Batch<C = Completion> {
    completions: Vec<C>,
    capacity: usize,
}

impl<C> Batch<C> {
    /// Room for up to `capacity` completions; it never grows.
    ///
    /// # Panics
    /// If `capacity` is 0: a dequeue could bring nothing.
    pub fn new(capacity: usize) -> Self {
        assert!(capacity > 0, "a batch needs room for a completion");
        Self { completions: Vec::with_capacity(capacity), capacity }
    }

    /// How many more fit.
    #[inline]
    pub fn room(&self) -> usize {
        self.capacity - self.completions.len()
    }

    /// How many are in it.
    #[inline]
    pub fn len(&self) -> usize {
        self.completions.len()
    }

    /// Whether none is in it.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.completions.is_empty()
    }

    /// Adds one, for providers. There must be room.
    #[inline]
    pub fn push(&mut self, completion: C) {
        assert!(self.completions.len() < self.capacity, "no room in the batch");
        self.completions.push(completion);
    }

    /// They, where they lie.
    #[inline]
    pub fn as_slice(&self) -> &[C] {
        &self.completions
    }

    /// The last of them, to be completed where it lies.
    #[inline(always)]
    pub fn last_mut(&mut self) -> Option<&mut C> {
        self.completions.last_mut()
    }

    /// The first of them, to be looked at where it lies: what was just written in parts is better not moved as a
    /// whole.
    #[inline]
    pub fn first_mut(&mut self) -> Option<&mut C> {
        self.completions.first_mut()
    }

    /// Takes all of them out, in order.
    #[inline]
    pub fn drain(&mut self) -> std::vec::Drain<'_, C> {
        self.completions.drain(..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_completion_is_small() {
        assert!(size_of::<Completion>() <= 48, "{} bytes", size_of::<Completion>());
    }
}
