//! What each thread of a server holds.

use super::{
    Handler,
    handler::{Datagram, Outbox, Replies, ReplyBuffer},
};
use crate::{
    Error,
    counters::Counters,
    events::event,
    lifecycle::{Answer, Answers, Lifecycle, contain, text_of},
    memory::{Region, Slice},
    pause, privilege,
    socket::{
        DatagramSocket, Meta, Mode, Peer, Received, Span, Unsent, WeakSocket, context::Origin,
    },
    wake::Waker,
};
use std::{
    any::Any,
    io,
    num::NonZeroU16,
    panic::resume_unwind,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
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
    /// The sockets by which replies leave, where they leave by plain ones, by their places.
    pub(super) sockets: Vec<DatagramSocket>,
    /// The handler panicked, and is not called again: its state may be broken.
    panicked: bool,
    /// A panic of the handler loses what it was called for, and no more.
    pub(super) survives: bool,
    /// Sockets go on when the server has stopped: what was taken from them is handled until then.
    pub(super) hands_over: bool,
    /// The handler is being called: a panic is its.
    calling: bool,
    /// Its timed waits end in time.
    in_time: bool,
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
            sockets: Vec::new(),
            panicked: false,
            survives: false,
            hands_over: false,
            calling: false,
            in_time: false,
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
        let survives = std::mem::take(&mut self.survives);
        let called = self.call(|handler, outbox| handler.on_start(outbox));
        self.survives = survives;
        self.ready.give(given_up.and(called));
    }

    /// Calls the handler where its time has come. Says whether it left something to be sent.
    #[inline]
    pub(super) fn on_time(&mut self) -> bool {
        if self.reply_buffer.call_at.is_some() {
            self.call_in_time();
        }
        self.has_replies()
    }

    fn call_in_time(&mut self) {
        if !std::mem::replace(&mut self.in_time, true) {
            self.state("timers", pause::end_in_time());
        }
        if self.reply_buffer.call_at.is_some_and(|at| at <= Instant::now()) {
            self.reply_buffer.call_at = None;
            let _ = self.call(|handler, outbox| handler.on_time(outbox));
        }
    }

    /// When the handler is to be called, if it asked for that.
    #[inline]
    pub(super) fn call_at(&self) -> Option<Instant> {
        self.reply_buffer.call_at
    }

    /// How long a wait may last, if it may not for ever.
    #[inline]
    pub(super) fn time_left(&self) -> Option<Duration> {
        self.call_at().map(|at| at.saturating_duration_since(Instant::now()))
    }

    /// How a call may wait that receives.
    #[inline]
    pub(super) fn mode(&self) -> Mode {
        self.time_left().map_or(Mode::Wait, Mode::WaitFor)
    }

    /// The thread handles no more datagrams. To be called as long as the sockets are open: `own`, where it has its own.
    pub(super) fn on_stop(&mut self, own: &[WeakSocket]) {
        let _ = self.call(|handler, outbox| handler.on_stop(outbox));
        let (counters, exits) = (&self.counters, Arc::clone(&self.reply_buffer.exits));
        self.reply_buffer.flush(|socket, bytes, span, to| {
            let own = own.get(socket as usize);
            match exits.send_last((socket, own), bytes, span, to, counters) {
                Ok(()) => counters.replies.add(span.datagrams() as u64),
                Err(unsent) => count_unsent(&unsent, counters),
            }
        });
    }

    /// Calls the handler with its outbox, unless it panicked before. An error says that it panicked now.
    fn call(&mut self, call: impl FnOnce(&mut H, &mut Outbox<'_>)) -> Result<(), Error> {
        if self.panicked {
            return Ok(());
        }
        let (handler, reply_buffer) = (&mut self.handler, &mut self.reply_buffer);
        let called = contain(|| call(handler, &mut Outbox::new(reply_buffer)));
        self.count_refused();
        called.map_err(|panic| self.panicked(&*panic))
    }

    /// Brings the counters of what was refused up to date.
    #[inline]
    fn count_refused(&mut self) {
        if self.reply_buffer.refused > 0 {
            self.counters.replies_refused.add(std::mem::take(&mut self.reply_buffer.refused));
        }
        if self.reply_buffer.loops.dropped > 0 {
            self.counters.loops_dropped.add(std::mem::take(&mut self.reply_buffer.loops.dropped));
        }
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
    /// `payload` is the whole buffer it was received into. Returns what shall go back to its
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
            let echo = match self.survives {
                false => self.deliver_one(payload, received, came, socket),
                true => self.deliver_surviving(payload, received, came, socket),
            };
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
            let bytes = &mut payload[start..start + len];
            let echo = match self.survives {
                false => self.deliver_one(bytes, datagram, came, socket),
                true => self.deliver_surviving(bytes, datagram, came, socket),
            };
            if echo {
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
        let (local, received_at, link, meta) = match came.says_more() {
            false => (None, None, None, Meta::NONE),
            true => (came.local(), came.at(), came.link(), came.meta()),
        };
        let segment = came.received().segment;
        let bytes_of_it = &mut *bytes;
        let datagram = Datagram {
            bytes: bytes_of_it,
            // Read where it is wanted, here and below: moved from one to the other it would keep the core waiting.
            source: came.source(),
            local,
            socket,
            received_at,
            truncated: received.truncated,
            meta,
            segment,
            link,
        };
        let mut replies = Replies::new(&mut self.reply_buffer, came, socket, len);
        self.calling = true;
        self.handler.on_datagram(datagram, &mut replies);
        self.calling = false;
        let echo = replies.echo;
        echo && self.reply_buffer.loops.may_send(bytes, came.source())
    }

    /// The same where a panic of the handler loses this datagram alone.
    #[inline(never)]
    fn deliver_surviving(
        &mut self,
        payload: &mut [u8],
        received: Received,
        came: &impl Origin,
        socket: u32,
    ) -> bool {
        contain(|| self.deliver_one(payload, received, came, socket)).unwrap_or_else(|panic| {
            self.caught(panic);
            false
        })
    }

    /// A panic was caught: one of the handler's stops the server.
    #[cold]
    fn caught(&mut self, panic: Box<dyn Any + Send>) {
        match std::mem::take(&mut self.calling) {
            true => drop(self.panicked(&*panic)),
            false => resume_unwind(panic),
        }
    }

    /// Says that the datagrams of one dequeue are handled.
    #[inline]
    pub fn batch_end(&mut self) {
        let _ = self.call(|handler, outbox| handler.on_batch_end(outbox));
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

    /// Whether the handler may send anything but replies: by any socket, whatever datagram it handles.
    #[inline]
    pub(super) fn may_transmit(&self) -> bool {
        self.reply_buffer.may_transmit()
    }

    /// Sends what the handler left by the plain sockets of its thread, and counts what became of it.
    pub(super) fn flush_to_sockets(&mut self) {
        let (counters, sockets) = (&self.counters, &self.sockets);
        self.reply_buffer.flush(|socket, bytes, span, to| {
            match sockets[socket as usize].send_span(bytes, span, to, counters) {
                Ok(()) => counters.replies.add(span.datagrams() as u64),
                Err(unsent) => count_unsent(&unsent, counters),
            }
        });
    }

    /// Copies what the handler left into slices of the pool, each reply into one, and gives it to `send`
    /// with what of it is sent, which hands it to the queue of the socket that it leaves by
    /// and says whether there was room. Those without a slice or without room are counted as
    /// refused; what becomes of the others is counted at their completion.
    #[cold]
    pub fn post_replies(
        &mut self,
        region: &Arc<Region>,
        mut send: impl FnMut(u32, Slice, Span, &Peer) -> bool,
    ) {
        let counters = &self.counters;
        self.reply_buffer.flush(|socket, bytes, span, to| {
            let sent = region.take().is_some_and(|mut slice| {
                slice.payload_mut()[..bytes.len()].copy_from_slice(bytes);
                send(socket, slice, span, to)
            });
            if !sent {
                counters.replies_refused.add(span.datagrams() as u64);
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
        match socket.send_span(&payload[..span.len], span, to, &self.counters) {
            Ok(()) => self.counters.replies.add(span.datagrams() as u64),
            Err(unsent) => self.not_sent(&unsent),
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
        count_unsent(unsent, &self.counters);
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
        event!(DEBUG, error = %e, "a receive failed");
        match e.kind() {
            ConnectionRefused | ConnectionReset | HostUnreachable | NetworkUnreachable
            | OutOfMemory => Ok(()),
            _ => Err(Error::io("receiving a datagram", e)),
        }
    }

    /// The handler panicked, which ends the server or not. Says what happened.
    #[cold]
    fn panicked(&mut self, panic: &(dyn Any + Send)) -> Error {
        self.counters.handler_panics.one();
        let (thread, message) = (self.index, text_of(panic));
        event!(ERROR, thread, message, "the handler panicked");
        if self.survives {
            self.reply_buffer.clear();
        } else {
            self.panicked = true;
            self.shared.fail(Error::HandlerPanicked { thread, message: message.clone() });
        }
        Error::HandlerPanicked { thread, message }
    }

    pub(super) fn end(&mut self, error: Option<Error>) {
        self.ready.end(error, &self.shared);
    }
}

fn count_unsent(unsent: &Unsent, counters: &Counters) {
    counters.send_errors.add(unsent.datagrams.into());
    counters.replies.add(unsent.sent.into());
}

fn count_sent(result: io::Result<()>, counters: &Counters) {
    match result {
        Ok(()) => counters.replies.one(),
        Err(_) => counters.send_errors.one(),
    }
}
