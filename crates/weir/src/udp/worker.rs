//! What each thread of a server holds.

use super::{
    Handler,
    handler::{Datagram, Replies, ReplyBuffer},
};
use crate::{
    Error,
    counters::Counters,
    lifecycle::{Answer, Answers, Lifecycle, contain, text_of},
    memory::{Region, Slice},
    privilege,
    socket::{DatagramSocket, Peer, Received, Span, Unsent, context::Origin},
    wake::Waker,
};
use std::{
    any::Any,
    io,
    num::NonZeroU16,
    panic::resume_unwind,
    sync::{Arc, atomic::Ordering::Relaxed},
};

/// A socket, with its place among the server's addresses.
pub(super) type Placed = (u32, DatagramSocket);

/// One thread of a server: its handler, its counters, and the replies it has to send.
pub struct Worker<H> {
    /// Its number, from 0.
    pub index: usize,
    /// Its counters; this thread is their only writer.
    pub counters: Arc<Counters>,
    /// The sockets that hear errors of peers, each with its place.
    pub(super) hearing: Arc<[Placed]>,
    handler: H,
    reply_buffer: ReplyBuffer,
    /// The handler panicked, and is not called again: its state may be broken.
    panicked: bool,
    /// The handler is being called: a panic is its.
    calling: bool,
    expected_bytes: usize,
    shared: Arc<Lifecycle>,
    ready: Answer,
}

impl<H: Handler> Worker<H> {
    pub(super) fn new(
        index: usize,
        counters: Arc<Counters>,
        handler: H,
        reply_buffer: ReplyBuffer,
        expected_bytes: Option<usize>,
        shared: Arc<Lifecycle>,
        ready: Answers,
    ) -> Self {
        Self {
            index,
            counters,
            hearing: Arc::default(),
            handler,
            reply_buffer,
            panicked: false,
            calling: false,
            expected_bytes: expected_bytes.unwrap_or(usize::MAX),
            shared,
            ready: Answer::to(Some(ready)),
        }
    }

    pub(super) fn into_handler(self) -> Box<H> {
        Box::new(self.handler)
    }

    /// Says that the thread has started. `waker` ends its waits.
    pub fn ready(&mut self, waker: Option<Waker>) {
        if let Some(waker) = waker {
            self.add_waker(waker);
        }
        let given_up = match self.shared.gives_up_privilege.load(Relaxed) {
            true => privilege::give_up().map_err(|e| Error::io("giving up privilege", e)),
            false => Ok(()),
        };
        self.ready.give(given_up);
    }

    /// Names something more that ends a wait of this thread.
    pub fn add_waker(&self, waker: Waker) {
        self.shared.add_waker(waker);
    }

    /// States a setting that was only known once the thread had started.
    pub fn state(&self, name: &str, value: impl ToString) {
        self.shared.state(name, value);
    }

    /// Whether the server stops.
    #[inline]
    pub fn stopping(&self) -> bool {
        self.shared.stopping()
    }

    /// Gives what arrived to the handler: a datagram, or one after the other where it is several.
    /// `payload` is the whole buffer it was received into. Answers what shall go back to its
    /// source: the span at the beginning of the buffer. `between` sends the replies of a datagram
    /// that another follows; those of the last are left.
    ///
    /// A panic of the handler is caught here, where no slice is in anyone else's hands; it
    /// stops the server.
    #[inline]
    #[must_use]
    pub(crate) fn deliver(
        &mut self,
        payload: &mut [u8],
        came: &impl Origin,
        socket: u32,
        between: impl FnMut(&mut Self),
    ) -> Option<Span> {
        let mut echo = None;
        let called = contain(|| echo = self.deliver_of_batch(payload, came, socket, between));
        if let Err(panic) = called {
            self.caught(panic);
        }
        echo
    }

    /// Does the same thing with each of several, which may deliver them ([`deliver_of_batch`](Self::deliver_of_batch)),
    /// and catches a panic of the handler once for all of them: what it had in its hands is dropped, and the others
    /// follow.
    #[inline]
    pub(crate) fn with_each<T>(
        &mut self,
        mut several: impl Iterator<Item = T>,
        mut each: impl FnMut(&mut Self, T) -> Result<(), Error>,
    ) -> Result<(), Error> {
        loop {
            match contain(|| several.try_for_each(|one| each(self, one))) {
                Ok(result) => return result,
                Err(panic) => self.caught(panic),
            }
        }
    }

    /// As [`deliver`](Self::deliver), but a panic is left to [`with_each`](Self::with_each).
    #[inline]
    #[must_use]
    pub(crate) fn deliver_of_batch(
        &mut self,
        payload: &mut [u8],
        came: &impl Origin,
        socket: u32,
        between: impl FnMut(&mut Self),
    ) -> Option<Span> {
        let received = came.received();
        if received.segment.is_none() && received.len() <= self.reply_buffer.longest {
            let echo = self.deliver_one(payload, received, came, socket);
            return echo.then_some(received.len().into());
        }
        self.deliver_each(payload, came, socket, between)
    }

    /// Gives each datagram of what arrived to the handler, no more of it than a buffer without
    /// receive offload would hold. Those that shall go back are moved together: all but the last
    /// are of one size, so that they can leave as they came.
    #[inline(never)]
    fn deliver_each(
        &mut self,
        payload: &mut [u8],
        came: &impl Origin,
        socket: u32,
        mut between: impl FnMut(&mut Self),
    ) -> Option<Span> {
        let received = came.received();
        let end = received.len().min(payload.len());
        let segment = received.segment.map_or(end, |segment| segment.get().into());
        let (mut echoes, mut echo_end) = (0, 0);
        for start in (0..end).step_by(segment) {
            let whole = segment.min(end - start);
            let len = whole.min(self.reply_buffer.longest);
            let truncated = len < whole || (received.truncated && start + whole == end);
            let datagram = Received::new(len, truncated);
            if self.deliver_one(&mut payload[start..start + len], datagram, came, socket) {
                if echo_end < start {
                    payload.copy_within(start..start + len, echo_end);
                }
                echo_end += len;
                echoes += 1;
            }
            if start + whole < end && self.has_replies() {
                between(self);
            }
        }
        let several = (echoes > 1).then_some(segment.min(self.reply_buffer.longest) as u16);
        (echoes > 0).then(|| Span { len: echo_end, segment: several.and_then(NonZeroU16::new) })
    }

    /// Gives a datagram to the handler. True: its bytes shall go back to their source.
    #[inline(always)]
    fn deliver_one(
        &mut self,
        payload: &mut [u8],
        received: Received,
        came: &impl Origin,
        socket: u32,
    ) -> bool {
        let len = received.len().min(payload.len());
        let bytes = &mut payload[..len];
        if self.panicked {
            return false;
        }
        self.counters.datagrams.one();
        self.counters.bytes.add(len as u64);
        if received.truncated {
            self.counters.truncated.one();
        }
        if self.expected_bytes != usize::MAX && len != self.expected_bytes {
            self.counters.wrong_size.one();
        }
        let (source, truncated) = (came.source(), received.truncated);
        let (local, received_at, link) = match came.says_more() {
            false => (None, None, None),
            true => (came.local(), came.at(), came.link()),
        };
        let datagram =
            Datagram { bytes: &mut *bytes, source, local, socket, received_at, truncated, link };
        let mut replies = Replies::new(&mut self.reply_buffer, came, socket, len);
        self.calling = true;
        self.handler.on_datagram(datagram, &mut replies);
        self.calling = false;
        let echo = replies.echo;
        echo && self.reply_buffer.loops.may_send(bytes, source)
    }

    /// A panic was caught: one of the handler's stops the server.
    #[cold]
    fn caught(&mut self, panic: Box<dyn Any + Send>) {
        match std::mem::take(&mut self.calling) {
            true => self.panicked(&*panic),
            false => resume_unwind(panic),
        }
    }

    /// Says that the datagrams of one dequeue are handled.
    #[inline]
    pub fn batch_end(&mut self) {
        if self.panicked {
            return;
        }
        let handler = &mut self.handler;
        if let Err(panic) = contain(|| handler.on_batch_end()) {
            self.panicked(&*panic);
        }
        if self.reply_buffer.refused > 0 {
            self.counters.replies_refused.add(std::mem::take(&mut self.reply_buffer.refused));
        }
        if self.reply_buffer.loops.dropped > 0 {
            self.counters.loops_dropped.add(std::mem::take(&mut self.reply_buffer.loops.dropped));
        }
    }

    /// Gives errors that peers reported to the handler, a few of each socket. To be called between a
    /// receive or a send and whatever may wait afterwards.
    #[inline]
    pub fn collect_errors(&mut self) {
        if !self.hearing.is_empty() {
            self.hear();
        }
    }

    fn hear(&mut self) {
        let (hearing, counters) = (Arc::clone(&self.hearing), Arc::clone(&self.counters));
        for (place, socket) in &*hearing {
            socket.take_errors(&counters, |error| {
                if self.panicked {
                    return;
                }
                counters.peer_errors.one();
                let handler = &mut self.handler;
                if let Err(panic) = contain(|| handler.on_error(error, *place)) {
                    self.panicked(&*panic);
                }
            });
        }
    }

    /// Whether the handler left replies to be sent.
    #[inline]
    pub fn has_replies(&self) -> bool {
        !self.reply_buffer.is_empty()
    }

    /// Sends each reply that the handler left, and counts what became of it.
    pub fn flush_to(&mut self, socket: &DatagramSocket) {
        let counters = &self.counters;
        self.reply_buffer
            .flush(|_, bytes, to| count_sent(socket.send(bytes, to, counters), counters));
    }

    /// Copies each reply that the handler left into a slice of the pool, and gives it to `send`
    /// with its length, which hands it to the queue of the socket that the datagram came in on
    /// and says whether there was room. Those without a slice or without room are counted as
    /// refused; what becomes of the others is counted at their completion.
    #[cold]
    pub fn post_replies(
        &mut self,
        region: &Arc<Region>,
        mut send: impl FnMut(u32, Slice, usize, &Peer) -> bool,
    ) {
        let counters = &self.counters;
        self.reply_buffer.flush(|socket, bytes, to| {
            let sent = region.take().is_some_and(|mut slice| {
                slice.payload_mut()[..bytes.len()].copy_from_slice(bytes);
                send(socket, slice, bytes.len(), to)
            });
            if !sent {
                counters.replies_refused.one();
            }
        });
    }

    /// Counts a reply that was sent, or was not.
    pub fn sent(&self, result: io::Result<()>) {
        count_sent(result, &self.counters);
    }

    /// Sends what shall go back to its source, and counts what became of it.
    #[inline]
    pub fn echo(&self, socket: &DatagramSocket, payload: &[u8], span: Span, to: &Peer) {
        let bytes = &payload[..span.len];
        match span.segment {
            None => self.sent(socket.send(bytes, to, &self.counters)),
            Some(segment) => match socket.send_segments(bytes, segment, to, &self.counters) {
                Ok(()) => self.counters.replies.add(span.datagrams() as u64),
                Err(unsent) => self.not_sent(&unsent),
            },
        }
    }

    /// The same where the system did not take the span as a whole.
    #[cold]
    pub fn echo_refused(
        &self,
        socket: &DatagramSocket,
        payload: &[u8],
        span: Span,
        to: &Peer,
        e: io::Error,
    ) {
        let counters = &self.counters;
        match span.segment {
            None => self.sent(Err(e)),
            Some(segment) => match socket.send_each(&payload[..span.len], segment, to, counters) {
                Ok(()) => counters.replies.add(span.datagrams() as u64),
                Err(unsent) => self.not_sent(&unsent),
            },
        }
    }

    /// Counts replies that were not sent.
    #[cold]
    pub fn not_sent(&self, unsent: &Unsent) {
        self.counters.send_errors.add(unsent.datagrams as u64);
        self.counters.replies.add(unsent.sent as u64);
    }

    /// Counts a receive that failed.
    ///
    /// # Errors
    /// [`Error::Io`] unless the failure concerns one datagram or one peer, as an ICMP message
    /// that came back does.
    pub fn receive_failed(&self, e: io::Error) -> Result<(), Error> {
        use io::ErrorKind::{
            ConnectionRefused, ConnectionReset, HostUnreachable, NetworkUnreachable, OutOfMemory,
        };
        self.counters.receive_errors.one();
        match e.kind() {
            ConnectionRefused | ConnectionReset | HostUnreachable | NetworkUnreachable
            | OutOfMemory => Ok(()),
            _ => Err(Error::io("receiving a datagram", e)),
        }
    }

    #[cold]
    fn panicked(&mut self, panic: &(dyn Any + Send)) {
        self.panicked = true;
        let message = text_of(panic);
        self.shared.fail(Error::HandlerPanicked { thread: self.index, message });
    }

    pub(super) fn end(&mut self, error: Option<Error>) {
        self.ready.end(error, &self.shared);
    }
}

fn count_sent(result: io::Result<()>, counters: &Counters) {
    match result {
        Ok(()) => counters.replies.one(),
        Err(_) => counters.send_errors.one(),
    }
}
