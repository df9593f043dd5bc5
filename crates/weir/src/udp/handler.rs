//! What a server does with a datagram: written once, for every design.

use crate::{
    events::event,
    limits::Limits,
    rio::{Peer, Span},
    socket::{Link, Meta, PeerError, context::Origin},
    udp::{
        outbox::{Checked, Exits, NotTaken, SharedOutbox, Transmit},
        reply_loops::Loops,
    },
};
use std::{
    any::Any,
    net::{IpAddr, SocketAddr},
    num::NonZeroU16,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// One datagram, in place.
#[derive(Debug)]
pub struct Datagram<'a> {
    /// Its bytes, where they were received. They may be changed, and sent back so by
    /// [`Replies::echo`].
    pub bytes: &'a mut [u8],
    /// Who sent it. By a Unix socket it is the address that
    /// [stands for his name](crate::stream::UnixAddress::of), or 0.0.0.0:0 where he has none.
    pub source: SocketAddr,
    /// The address it was sent to, where asked for.
    pub local: Option<IpAddr>,
    /// The socket it came in on, by its place among the server's addresses.
    pub socket: u32,
    /// When the kernel received it, since the Unix epoch, where asked for.
    pub received_at: Option<Duration>,
    /// Whether it was longer than the slice, and its end is lost.
    pub truncated: bool,
    /// What its packet said besides, where asked for.
    pub meta: Meta,
    /// Where it came together with others (receive offload): bytes of each of them but the last.
    pub segment: Option<NonZeroU16>,
    /// What its frame said, where the provider sees frames (`xdp`, `packet-any-port`): the Ethernet address of the
    /// sender, and the port of ours.
    pub link: Option<Link>,
}

/// Handles datagrams. Each thread of the server has a handler of its own, so its state
/// needs no lock.
pub trait Handler: Send + 'static {
    /// Handles one datagram. A panic stops the server, which reports it, or loses this datagram: see [`OnPanic`].
    fn on_datagram(&mut self, datagram: Datagram<'_>, replies: &mut Replies<'_>);

    /// Called once on each thread before it handles a datagram, and before the server's start returns. What is put into
    /// the outbox leaves right afterwards.
    fn on_start(&mut self, outbox: &mut Outbox<'_>) {
        let _ = outbox;
    }

    /// Called at the time that was asked for by [`Outbox::call_at`], or as soon after it as the thread is not busy: with
    /// a batch, say. In time means within some 60 µs on Linux where the design's wait takes a time as exactly, and at the
    /// next tick of the clock on Windows.
    fn on_time(&mut self, outbox: &mut Outbox<'_>) {
        let _ = outbox;
    }

    /// Called once on each thread when the server stops, by itself or asked to, after the last datagram was handled. What is
    /// put into the outbox is sent by plain sockets. Not called on a thread that failed.
    fn on_stop(&mut self, outbox: &mut Outbox<'_>) {
        let _ = outbox;
    }

    /// Called after the datagrams of one dequeue, before the thread looks for more: the place
    /// for what need not be done for each datagram. What is put into the outbox leaves when it returns.
    fn on_batch_end(&mut self, outbox: &mut Outbox<'_>) {
        let _ = outbox;
    }

    /// Called where a datagram that was sent met an error on its way: nobody has the port, or the
    /// path is broken. Only where [`SocketOptions::peer_errors`] asked for it. `socket` is the one that
    /// it left by, by its place among the server's addresses. The thread that is told need not be
    /// the one that answered.
    ///
    /// [`SocketOptions::peer_errors`]: crate::socket::SocketOptions::peer_errors
    fn on_error(&mut self, error: PeerError, socket: u32) {
        let _ = (error, socket);
    }
}

/// What becomes of a server whose handler panics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnPanic {
    /// It ends, and says why: the state of its handler may be broken, and nobody knows how far.
    #[default]
    End,
    /// What the handler was called for is over: the datagram is dropped, with what it was answered until then, and counted
    /// (`handler_panics`). The same handler is called for what follows, so its state must bear being left anywhere. A
    /// panic in [`Handler::on_start`] is an error of the start all the same.
    Drop,
}

impl<F: FnMut(Datagram<'_>, &mut Replies<'_>) + Send + 'static> Handler for F {
    fn on_datagram(&mut self, datagram: Datagram<'_>, replies: &mut Replies<'_>) {
        self(datagram, replies);
    }
}

crate::design::boxed!();

impl Handler for Boxed {
    #[inline]
    fn on_datagram(&mut self, datagram: Datagram<'_>, replies: &mut Replies<'_>) {
        self.0.on_datagram(datagram, replies);
    }

    #[inline]
    fn on_start(&mut self, outbox: &mut Outbox<'_>) {
        self.0.on_start(outbox);
    }

    fn on_time(&mut self, outbox: &mut Outbox<'_>) {
        self.0.on_time(outbox);
    }

    fn on_stop(&mut self, outbox: &mut Outbox<'_>) {
        self.0.on_stop(outbox);
    }

    #[inline]
    fn on_batch_end(&mut self, outbox: &mut Outbox<'_>) {
        self.0.on_batch_end(outbox);
    }

    fn on_error(&mut self, error: PeerError, socket: u32) {
        self.0.on_error(error, socket);
    }
}

/// Why a reply was refused. The refusal is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The server was not allowed to reply at all: see [`Limits`].
    #[error("this server is a sink: allow replies by its limits")]
    Sink,
    /// The reply would be longer than [`Limits::reply_percent`] allows for the datagram received, or than
    /// [`Server::payload_bytes`](crate::udp::Server::payload_bytes).
    #[error(
        "the reply is longer than Limits::reply_percent allows for this datagram (100 by default: no longer than the \
         datagram itself; Limits::answers allows 300), or than Server::payload_bytes"
    )]
    TooLong,
    /// The limit on replies per second is reached.
    #[error("the limit on replies per second is reached")]
    Rate,
    /// This datagram was answered with [`Replies::MOST_COPIES`] copies already.
    #[error("one datagram may be answered with no more copies")]
    TooMany,
    /// The reply would go round for ever: see [`Limits::refuse_loops`]. It is counted apart.
    #[error(
        "it would loop for ever: it goes to this server itself or to a service that answers anything, or repeats \
         identical bytes to one source"
    )]
    Loop,
}

/// Takes the replies to one datagram.
pub struct Replies<'a> {
    reply_buffer: &'a mut ReplyBuffer,
    /// What is answered: whom, and from where.
    came: &'a dyn Origin,
    /// The socket that the datagram came in on, by its place.
    socket: u32,
    /// Bytes that may still be answered for this datagram.
    budget: usize,
    received: usize,
    /// Whether a reply was admitted.
    answered: bool,
    pub(super) echo: bool,
}

impl<'a> Replies<'a> {
    /// Copies that one datagram may be answered with, at most, whatever the design: they wait in
    /// memory of the thread's own until the handler returns. An echo does not count among them.
    pub const MOST_COPIES: usize = 64;

    #[inline]
    pub(super) fn new(
        reply_buffer: &'a mut ReplyBuffer,
        came: &'a dyn Origin,
        socket: u32,
        received: usize,
    ) -> Self {
        let budget = received * reply_buffer.limits.reply_percent as usize / 100;
        Self { reply_buffer, came, socket, budget, received, answered: false, echo: false }
    }

    /// Sends the datagram's bytes back to their source, as they stand when the handler
    /// returns, without copying them. A second call changes nothing. Whether those bytes went to that
    /// source again and again is looked at only then: where they did, the echo is dropped, and counted.
    ///
    /// # Errors
    /// [`Refused`], counted.
    pub fn echo(&mut self) -> Result<(), Refused> {
        if !self.echo {
            self.admit(self.received, None)?;
            self.echo = true;
        }
        Ok(())
    }

    /// Sends a copy of `bytes` to the datagram's source, when the handler has returned. One that
    /// finds [`Limits::replies_outstanding`] others under way then is dropped, and counted like a
    /// refusal.
    ///
    /// # Errors
    /// [`Refused`], counted; [`Refused::TooMany`] from the copy behind
    /// [`MOST_COPIES`](Self::MOST_COPIES) on.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), Refused> {
        if bytes.len() > self.reply_buffer.longest {
            return self.refuse(Refused::TooLong);
        }
        if self.reply_buffer.replies() == Self::MOST_COPIES {
            return self.refuse(Refused::TooMany);
        }
        self.admit(bytes.len(), Some(bytes))?;
        let start = self.reply_buffer.bytes.len();
        self.reply_buffer.bytes.extend_from_slice(bytes);
        self.reply_buffer.pending.push(Pending {
            start,
            span: bytes.len().into(),
            to: self.came.peer(),
            socket: self.socket,
        });
        Ok(())
    }

    /// Where datagrams go that are no replies: to anybody, as far as [`Limits::transmits_outstanding`] allows.
    pub fn outbox(&mut self) -> Outbox<'_> {
        Outbox::new(self.reply_buffer)
    }

    /// `copy`: the bytes, where they are not those of the datagram.
    fn admit(&mut self, len: usize, copy: Option<&[u8]>) -> Result<(), Refused> {
        if self.reply_buffer.limits.replies_outstanding == 0 {
            return self.refuse(Refused::Sink);
        }
        if len > self.budget || (self.answered && self.budget == 0) {
            return self.refuse(Refused::TooLong);
        }
        // What is shorter than what was received comes to rest by itself.
        if len >= self.received
            && !self.reply_buffer.loops.may_answer(self.came.source(), || self.came.local())
        {
            return Err(Refused::Loop);
        }
        if let Some(bytes) = copy.filter(|_| len == self.received)
            && !self.reply_buffer.loops.may_send(bytes, self.came.source())
        {
            return Err(Refused::Loop);
        }
        if !self.reply_buffer.rate.admit() {
            return self.refuse(Refused::Rate);
        }
        // An empty one is a packet on the wire, too: many of them would be more than was received.
        self.budget = self.budget.saturating_sub(len.max(1));
        self.answered = true;
        Ok(())
    }

    fn refuse(&mut self, why: Refused) -> Result<(), Refused> {
        event!(TRACE, %why, "a reply is refused");
        self.reply_buffer.refused += 1;
        Err(why)
    }
}

/// Where a handler puts datagrams that go to anybody: [`Replies::outbox`], and the calls that have
/// nothing to answer.
///
/// ```
/// use std::net::SocketAddr;
/// use weir::{limits::Limits, udp::{Blocking, Datagram, Replies, Server, Transmit}};
///
/// let upstream = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
/// let to: SocketAddr = upstream.local_addr().unwrap();
/// let limits = Limits::SINK.transmits_outstanding(64);
/// let server = Server::bind("127.0.0.1:0".parse().unwrap())
///     .limits(limits)
///     .start(Blocking::default(), move |_thread| {
///         move |datagram: Datagram<'_>, replies: &mut Replies<'_>| {
///             let _ = replies.outbox().send(Transmit::new(to, datagram.bytes));
///         }
///     })
///     .unwrap();
/// let client = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
/// client.send_to(b"passed on", server.local_addresses()[0]).unwrap();
/// let mut buffer = [0; 16];
/// let (bytes, from) = upstream.recv_from(&mut buffer).unwrap();
/// assert_eq!((&buffer[..bytes], from), (&b"passed on"[..], server.local_addresses()[0]));
/// let _ = server.stop();
/// ```
#[derive(Debug)]
pub struct Outbox<'a> {
    buffer: &'a mut ReplyBuffer,
}

impl<'a> Outbox<'a> {
    pub(super) fn new(buffer: &'a mut ReplyBuffer) -> Self {
        Self { buffer }
    }

    /// Sends a copy of the contents when the handler returns, by the first of the server's sockets that can send there.
    /// What finds no room then is dropped, and counted: where [`Limits::transmits_outstanding`] are under way as
    /// `replies_refused`, where the socket's send buffer is full as `send_errors`. What was sent counts among `replies`.
    ///
    /// # Errors
    /// [`NotTaken`]; counted among `replies_refused`.
    pub fn send(&mut self, transmit: Transmit<'_>) -> Result<(), NotTaken> {
        self.put(None, transmit)
    }

    /// The same by a socket of one's choice, by its place among the server's addresses ([`Datagram::socket`]).
    ///
    /// # Errors
    /// [`NotTaken`]; counted.
    ///
    /// [`Datagram::socket`]: Datagram::socket
    pub fn send_by(&mut self, socket: u32, transmit: Transmit<'_>) -> Result<(), NotTaken> {
        self.put(Some(socket), transmit)
    }

    /// How many more datagrams, or spans of several, may be put in before the handler returns.
    pub fn room(&self) -> usize {
        self.buffer.room_for_transmits()
    }

    /// Has the handler of this thread called then ([`Handler::on_time`]), or at once if that is
    /// past. It replaces a time that was asked for before: who has several keeps them, and asks for the first. While none is
    /// asked for nothing is done for it.
    pub fn call_at(&mut self, time: Instant) {
        self.buffer.call_at = Some(time);
    }

    /// Takes that back.
    pub fn call_never(&mut self) {
        self.buffer.call_at = None;
    }

    /// When the handler will be called.
    pub fn called_at(&self) -> Option<Instant> {
        self.buffer.call_at
    }

    /// An outbox for other threads.
    pub fn shared(&self) -> SharedOutbox {
        SharedOutbox::new(&self.buffer.exits)
    }

    fn put(&mut self, by: Option<u32>, transmit: Transmit<'_>) -> Result<(), NotTaken> {
        let buffer = &mut *self.buffer;
        let taken = buffer.exits.check(by, &transmit).and_then(|checked| {
            match checked.spans(transmit.contents).len() <= buffer.room_for_transmits() {
                true => Ok(checked),
                false => Err(NotTaken::Full),
            }
        });
        match taken {
            Ok(checked) => {
                for bytes in checked.spans(transmit.contents) {
                    buffer.put_transmit(bytes, &checked);
                }
                Ok(())
            }
            Err(why) => {
                buffer.refused += transmit.datagrams() as u64;
                Err(why)
            }
        }
    }
}

/// Where the replies to one datagram wait until it has been handled, and what the handler sends besides.
#[derive(Debug)]
pub(super) struct ReplyBuffer {
    limits: Limits,
    /// Longest datagram received whole, and so the longest reply.
    pub(super) longest: usize,
    rate: Arc<Rate>,
    bytes: Vec<u8>,
    pending: Vec<Pending>,
    /// How many of them are no replies.
    transmits: usize,
    pub(super) exits: Arc<Exits>,
    /// When the handler is to be called.
    pub(super) call_at: Option<Instant>,
    /// Replies refused since the counters were last brought up to date.
    pub(super) refused: u64,
    pub(super) loops: Loops,
}

#[derive(Debug)]
struct Pending {
    start: usize,
    span: Span,
    to: Peer,
    socket: u32,
}

impl ReplyBuffer {
    pub(super) fn new(
        limits: Limits,
        rate: Arc<Rate>,
        longest: usize,
        own: &[SocketAddr],
        exits: Arc<Exits>,
    ) -> Self {
        let room = if limits.replies_outstanding == 0 { 0 } else { Replies::MOST_COPIES };
        let transmits = limits.transmits_outstanding as usize;
        Self {
            limits,
            longest,
            rate,
            // As long as those that are no replies are more than that, it grows once.
            bytes: Vec::with_capacity((room + transmits.min(Replies::MOST_COPIES)) * longest),
            pending: Vec::with_capacity(room + transmits),
            transmits: 0,
            exits,
            call_at: None,
            refused: 0,
            loops: Loops::new(own, limits.refuse_loops && limits.replies_outstanding > 0),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Forgets all that waits.
    pub(super) fn clear(&mut self) {
        self.pending.clear();
        self.bytes.clear();
        self.transmits = 0;
    }

    /// How many replies wait.
    #[inline]
    fn replies(&self) -> usize {
        self.pending.len() - self.transmits
    }

    /// Whether anything but replies may be sent.
    #[inline]
    pub(super) fn may_transmit(&self) -> bool {
        self.limits.transmits_outstanding > 0
    }

    pub(super) fn room_for_transmits(&self) -> usize {
        (self.limits.transmits_outstanding as usize).saturating_sub(self.transmits)
    }

    /// Adds a piece that is no reply. There must be room.
    pub(super) fn put_transmit(&mut self, bytes: &[u8], checked: &Checked) {
        let (start, span) = (self.bytes.len(), checked.span(bytes));
        self.bytes.extend_from_slice(bytes);
        self.pending.push(Pending { start, span, to: checked.to, socket: checked.socket });
        self.transmits += 1;
    }

    /// Gives each of them to `send`, with the socket it leaves by and how it is cut, and forgets it.
    pub(super) fn flush(&mut self, mut send: impl FnMut(u32, &[u8], Span, &Peer)) {
        for Pending { start, span, to, socket } in self.pending.drain(..) {
            send(socket, &self.bytes[start..][..span.len], span, &to);
        }
        self.bytes.clear();
        self.transmits = 0;
    }
}

/// Admits so many replies a second over all threads: a bucket that holds 10 ms' worth, or one.
///
/// The bucket is one number, the time at which it will be full again (the generic cell rate
/// algorithm). It is touched only by replies, and only where there is a limit.
#[derive(Debug)]
pub(super) struct Rate {
    /// Nanoseconds that one reply takes; `None`: no limit.
    interval_ns: Option<u64>,
    since: Instant,
    full_at_ns: AtomicU64,
}

const BURST: Duration = Duration::from_millis(10);

impl Rate {
    pub(super) fn new(per_s: Option<u64>) -> Self {
        // Rounded up, so that it is never more than asked for; none at all is one in an age.
        let interval_ns =
            per_s.map(|n| if n == 0 { u64::MAX } else { 1_000_000_000u64.div_ceil(n) });
        Self { interval_ns, since: Instant::now(), full_at_ns: AtomicU64::new(0) }
    }

    fn admit(&self) -> bool {
        let Some(interval_ns) = self.interval_ns else { return true };
        if interval_ns == u64::MAX {
            return false;
        }
        self.admit_at(interval_ns, self.since.elapsed().as_nanos() as u64)
    }

    fn admit_at(&self, interval_ns: u64, now_ns: u64) -> bool {
        let deepest_ns = now_ns + interval_ns.max(BURST.as_nanos() as u64);
        let pour = |full_at_ns: u64| {
            let full_at_ns = full_at_ns.max(now_ns) + interval_ns;
            (full_at_ns <= deepest_ns).then_some(full_at_ns)
        };
        self.full_at_ns.fetch_update(Relaxed, Relaxed, pour).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Threads that ask at the same time, on a clock that they move on themselves: how long they take for it
    /// on this machine is no matter.
    #[test]
    fn a_rate_holds_over_all_threads() {
        const TIME_NS: u64 = 200_000_000;
        const STEP_NS: u64 = 5_000;
        for per_s in [1, 100, 20_000] {
            let rate = Rate::new(Some(per_s));
            let interval_ns = rate.interval_ns.unwrap();
            let clock_ns = AtomicU64::new(0);
            let admitted: u64 = std::thread::scope(|scope| {
                let admit = || {
                    let mut admitted = 0;
                    loop {
                        let now_ns = clock_ns.fetch_add(STEP_NS, Relaxed);
                        if now_ns >= TIME_NS {
                            return admitted;
                        }
                        admitted += u64::from(rate.admit_at(interval_ns, now_ns));
                    }
                };
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(admit)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).sum()
            });
            let (most, burst) = (per_s / 5 + 1, per_s / 100 + 1);
            assert!(admitted <= most + burst, "{admitted} at {per_s}/s");
            assert!(admitted >= 1.max(most / 2), "{admitted} at {per_s}/s");
        }
    }

    #[test]
    fn none_is_none_and_no_limit_is_no_limit() {
        assert!(!Rate::new(Some(0)).admit());
        let unlimited = Rate::new(None);
        assert!((0..100_000).all(|_| unlimited.admit()));
    }
}
