//! A connection without its I/O: what was received goes in, what is to be sent comes out, and
//! [`Connection::wants`] says what to do next. So every design treats a connection alike, and
//! differs only in how it moves the bytes.

use super::{
    Asks, Handler, Limits, Output, Reason, WhenFull, Worker,
    handler::{Echo, Queue},
    mail::{Given, Reach},
};
use crate::{
    lifecycle::{contain, text_of},
    timer::{Moment, Tick, Wheel},
};
use std::{net::SocketAddr, num::NonZeroUsize};

/// One connection, its handler and its output.
#[derive(Debug)]
pub struct Connection<H> {
    /// There unless it could not be made.
    handler: Option<H>,
    queue: Queue,
    /// Bytes of output in the hands of the design, which the system has not taken yet.
    lent: usize,
    /// Why it must be closed, once it must; or why it ends in order.
    reason: Option<Box<Reason>>,
    /// The reason is for an orderly end: what waits is sent first, and the peer closes too.
    ends_in_order: bool,
    /// When something was last received; before that, when it connected.
    last_received: Tick,
    /// When output was last taken, or began to wait, or was finished.
    last_sent: Tick,
    /// Whether anything was received.
    has_received: bool,
    /// The peer sends no more.
    ended: bool,
    /// The handler sends no more.
    pub(super) finished: bool,
    /// The server stops, and the handler was told so.
    pub(super) stopped: bool,
    /// When the handler asked to be called ([`Moment::NEVER`] for no call).
    alarm: Moment,
    /// The handler asked to receive nothing for now.
    receive_paused: bool,
    /// The handler still has output to come: its end is waited for.
    pub(super) holds: bool,
    /// The handler asked to receive on whatever becomes of sending.
    hears: bool,
    /// Its turn has not come: it is not served yet.
    waits: bool,
    /// The end of sending (a FIN) was sent to the peer.
    fin_sent: bool,
    /// Whether receiving pauses, for counting.
    paused: bool,
    /// Bytes to be received before it finishes, where it is to finish after so many.
    pub(super) left: Option<NonZeroUsize>,
    /// How handles reach it.
    reach: Reach,
}

/// A time that runs out, and what that means.
type Deadline = (Tick, fn() -> Reason);

/// What a connection wants of the design that moves its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wants {
    /// To receive.
    pub receive: bool,
    /// To send what [`Connection::unsent`] says.
    pub send: bool,
    /// To send the end of sending (a FIN) to the peer.
    pub end_sending: bool,
    /// To be closed, and nothing else.
    pub close: bool,
}

impl<H: Handler> Connection<H> {
    /// A connection that was accepted from `peer`.
    pub fn open(worker: &mut Worker<H>, peer: SocketAddr) -> Self {
        Self::open_given(worker, peer, None)
    }

    /// A connection with `peer`, with the handler that it was given, if any.
    pub(super) fn open_given(
        worker: &mut Worker<H>,
        peer: SocketAddr,
        given: Option<Given>,
    ) -> Self {
        let mut connection = Self::unopened(worker, peer, given);
        connection.call(worker, Echo::Nothing, |handler, output| handler.on_connect(peer, output));
        connection
    }

    /// The same of one whose handler is not told that it is connected: it is to be closed.
    pub(super) fn unopened(worker: &Worker<H>, peer: SocketAddr, given: Option<Given>) -> Self {
        let now = worker.clock.now();
        let handler = worker.make_handler(peer, given);
        let unmade = || Box::new(Reason::Panicked("it could not be made".into()));
        let reason = handler.is_none().then(unmade);
        Self {
            handler,
            queue: Queue::default(),
            lent: 0,
            reason,
            ends_in_order: false,
            last_received: now,
            last_sent: now,
            has_received: false,
            ended: false,
            finished: false,
            stopped: false,
            alarm: Moment::NEVER,
            receive_paused: false,
            holds: false,
            hears: false,
            waits: false,
            fin_sent: false,
            paused: false,
            left: None,
            reach: Reach::default(),
        }
    }

    /// It is served under this number from now on: who leaves something for it names that to its thread.
    pub fn place(&mut self, worker: &Worker<H>, slot: u32) {
        self.reach.place(&worker.mailbox, slot);
    }

    /// Whether a handle has left something for it.
    #[inline]
    pub fn has_mail(&self) -> bool {
        self.reach.has_mail()
    }

    /// Whether a handle of it was asked for.
    #[inline]
    pub(super) fn is_known(&self) -> bool {
        self.reach.is_known()
    }

    /// Gives the handler what handles have left for it. What there is no room for waits for the next time.
    #[cold]
    pub fn take_mail(&mut self, worker: &mut Worker<H>) {
        let Some(inbox) = self.reach.inbox() else { return };
        let mut mail = inbox.take();
        self.call(worker, Echo::Nothing, |handler, output| handler.on_mail(&mut mail, output));
        inbox.put_back(mail);
    }

    /// Takes what was received, at least one byte. Returns how many bytes, from the beginning, are
    /// to be sent back before anything else; [`echoed`](Self::echoed) is told what became of them.
    #[inline]
    #[must_use]
    pub fn received(&mut self, worker: &mut Worker<H>, bytes: &mut [u8]) -> usize {
        worker.counters.messages.one();
        worker.counters.bytes_received.add(bytes.len() as u64);
        self.last_received = worker.clock.now();
        self.has_received = true;
        if self.discards_input() || self.must_close() {
            worker.counters.bytes_discarded.add(bytes.len() as u64);
            return 0;
        }
        let before = self.queue.len();
        let full = self.hears && self.is_full(&worker.limits);
        let possible = if full { Echo::Full } else { Echo::Possible };
        let echo = self.call(worker, possible, |handler, output| {
            handler.on_receive(bytes, output);
        });
        if let Some(left) = self.left {
            self.finish_after(worker, left.get().saturating_sub(bytes.len()));
        }
        if !echo {
            return 0;
        }
        if before == 0 && self.lent == 0 {
            return bytes.len();
        }
        self.queue.borrow(&mut worker.spare);
        self.queue.insert(before, bytes);
        worker.counters.bytes_queued.add(bytes.len() as u64);
        self.check_output_limit(&worker.limits);
        0
    }

    /// Of the bytes to be sent back the system took so many; the others wait.
    #[inline]
    pub fn echoed(&mut self, worker: &mut Worker<H>, bytes: &[u8], taken: usize) {
        let left = &bytes[taken..];
        if !left.is_empty() {
            if self.queue.is_empty() {
                self.last_sent = worker.clock.now();
                self.queue.borrow(&mut worker.spare);
            }
            self.queue.push_front(left);
            worker.counters.bytes_queued.add(left.len() as u64);
            self.check_output_limit(&worker.limits);
        }
        self.taken(worker, taken, left.is_empty());
    }

    /// What is to be sent next.
    #[inline]
    pub fn unsent(&self) -> &[u8] {
        self.queue.bytes()
    }

    /// Of [`unsent`](Self::unsent) the system took so many bytes.
    #[inline]
    pub fn sent(&mut self, worker: &mut Worker<H>, taken: usize) {
        self.queue.take(taken, &mut worker.spare);
        let whole = self.queue.is_empty();
        self.taken(worker, taken, whole);
    }

    /// Moves what is to be sent next into `out`, which is empty, for a design that sends while others
    /// handle what is received; [`returned`](Self::returned) is told what became of it.
    pub fn lend(&mut self, out: &mut Vec<u8>) {
        self.queue.move_into(out);
        self.lent += out.len();
    }

    /// Lends so many bytes of what was received, which are to be sent back before anything else.
    pub fn lend_echo(&mut self, bytes: usize) {
        // Nothing waited before: it begins to wait with what was just received.
        self.last_sent = self.last_received;
        self.lent += bytes;
    }

    /// Of what was lent the system took so many more bytes.
    pub fn returned(&mut self, worker: &mut Worker<H>, taken: usize) {
        self.lent -= taken;
        let whole = self.lent == 0;
        self.taken(worker, taken, whole);
    }

    fn taken(&mut self, worker: &mut Worker<H>, taken: usize, whole: bool) {
        if taken == 0 {
            return;
        }
        if !whole {
            worker.counters.short_sends.one();
        }
        self.last_sent = worker.clock.now();
        if self.paused {
            // It begins to be heard again.
            self.last_received = self.last_sent;
        }
        worker.counters.sends.one();
        worker.counters.bytes_sent.add(taken as u64);
        self.call(worker, Echo::Nothing, |handler, output| handler.on_sent(taken, output));
        if self.has_mail() {
            self.take_mail(worker); // there is room for what there was none for
        }
    }

    /// The peer has sent all that it will.
    pub fn ended(&mut self, worker: &mut Worker<H>) {
        if std::mem::replace(&mut self.ended, true) || self.discards_input() {
            return;
        }
        self.call(worker, Echo::Nothing, |handler, output| handler.on_end(output));
    }

    /// The end of sending (a FIN) was sent to the peer.
    pub fn fin_sent(&mut self, worker: &Worker<H>) {
        self.fin_sent = true;
        self.reach.finish();
        self.last_sent = worker.clock.now();
    }

    /// It is to be closed for this reason, unless it already is for another.
    #[cold]
    pub fn fail(&mut self, reason: Reason) {
        self.end(Box::new(reason));
    }

    /// It is to be closed for this reason, or to end in order for it.
    #[cold]
    fn end(&mut self, reason: Box<Reason>) {
        let in_order = matches!(*reason, Reason::Declined(_));
        self.finished |= in_order;
        // Whatever else happens to one that ends in order, this stays the reason.
        self.ends_in_order = in_order && (self.ends_in_order || self.reason.is_none());
        self.reason.get_or_insert(reason);
    }

    /// Whether it must be closed, for a reason other than an end in order.
    #[inline]
    fn must_close(&self) -> bool {
        self.reason.is_some() && !self.ends_in_order
    }

    /// Whether the peer has sent all that it will.
    pub fn is_ended(&self) -> bool {
        self.ended
    }

    /// Whether what comes from the peer is dropped.
    #[inline]
    pub(super) fn discards_input(&self) -> bool {
        self.stopped || (self.finished && !(self.hears && self.reason.is_none()))
    }

    /// Whether the end of sending (a FIN) was sent to the peer.
    pub fn is_fin_sent(&self) -> bool {
        self.fin_sent
    }

    /// Whether as much waits for the peer as may.
    #[inline]
    fn is_full(&self, limits: &Limits) -> bool {
        self.queue.len() + self.lent >= limits.output_bytes
    }

    /// Whether it is received from.
    #[inline]
    fn receives(&self, limits: &Limits) -> bool {
        // What comes when it has finished is dropped, whatever its handler asked for.
        let held = (self.receive_paused || self.waits) && !self.discards_input();
        !self.ended && !held && (self.hears || !self.is_full(limits))
    }

    /// What is to be done next.
    #[inline]
    pub fn wants(&self, limits: &Limits) -> Wants {
        let close = self.must_close() || (self.ended && self.fin_sent);
        if close {
            return Wants { close, ..Wants::default() };
        }
        Wants {
            receive: self.receives(limits),
            send: !self.queue.is_empty(),
            // Where the peer has ended and nothing waits, the handler is not called again: whatever it
            // forgot, nothing can follow.
            end_sending: (self.finished || self.ended)
                && !self.holds
                && !self.fin_sent
                && self.queue.is_empty()
                && self.lent == 0,
            close,
        }
    }

    /// It is not served before its turn comes: nothing is received from it. That it is silent meanwhile is
    /// not held against it.
    pub fn wait_for_its_turn(&mut self, worker: &Worker<H>) {
        worker.counters.waited.one();
        self.waits = true;
    }

    /// Its turn has come.
    pub fn begin(&mut self, worker: &Worker<H>) {
        if std::mem::take(&mut self.waits) {
            self.last_received = worker.clock.now();
        }
    }

    /// Counts a pause, where receiving pauses since the output is full or the handler asked for it.
    pub fn note_pause(&mut self, worker: &Worker<H>, wants: Wants) {
        let pauses = !wants.receive && !self.ended && !wants.close && !self.waits;
        if pauses && !self.paused {
            worker.counters.pauses.one();
        }
        self.paused = pauses;
    }

    /// When the first of its limits is reached if nothing happens before.
    #[inline]
    pub fn deadline(&self, limits: &Limits) -> Option<Tick> {
        self.deadlines(limits).into_iter().flatten().map(|(due, _)| due).min()
    }

    /// When the handler asked to be called, or [`Moment::NEVER`].
    #[inline]
    pub fn alarm(&self) -> Moment {
        self.alarm
    }

    /// Sets its times in the clock of the thread that serves it under this number. `armed` is when its timer fires: one
    /// that fires too early is set again, and only one that would be late is moved.
    #[inline]
    pub(super) fn set_times(&self, worker: &mut Worker<H>, slot: u32, armed: &mut Tick) {
        if let Some(due) = self.deadline(&worker.limits)
            && due < *armed
        {
            *armed = due;
            worker.clock.set(slot, due);
        }
        if self.alarm != Moment::NEVER {
            worker.clock.set_alarm(slot, self.alarm);
        }
    }

    /// Each time that it may run out of, and what for.
    #[inline]
    fn deadlines(&self, limits: &Limits) -> [Option<Deadline>; 2] {
        let after = |since: Tick, time| Wheel::ticks(time).saturating_add(since);
        let silence = if self.has_received { limits.idle } else { limits.silent };
        // While nothing is received from it, its silence is the server's own doing.
        let heard = (!(self.fin_sent && self.discards_input()) && self.receives(limits))
            .then(|| {
                silence
                    .map(|time| (after(self.last_received, time), (|| Reason::Silent) as fn() -> _))
            })
            .flatten();
        let stalled = if !self.queue.is_empty() || self.lent > 0 {
            limits.stalled
        } else if self.fin_sent && !self.ended && self.discards_input() {
            Some(limits.linger)
        } else {
            None
        };
        let moved =
            stalled.map(|time| (after(self.last_sent, time), (|| Reason::Stalled) as fn() -> _));
        [heard, moved]
    }

    /// A timer of it fired, perhaps one that has been put off since. Fails it where a time has run out, and calls the handler where
    /// that is what was asked for.
    pub fn timed(&mut self, worker: &mut Worker<H>) {
        let now = worker.clock.now();
        let over =
            self.deadlines(&worker.limits).into_iter().flatten().find(|(due, _)| *due <= now);
        if let Some((_, reason)) = over {
            self.fail(reason());
        }
        self.fire_alarm(worker);
    }

    /// Calls the handler where the time has come that it asked for, and nothing else.
    pub(super) fn fire_alarm(&mut self, worker: &mut Worker<H>) {
        if self.alarm <= worker.clock.moment() {
            self.alarm = Moment::NEVER;
            self.call(worker, Echo::Nothing, |handler, output| handler.on_time(output));
        }
    }

    /// Ends it, tells the handler, and returns the reason. Whoever calls it drops the stream next.
    pub fn close(mut self, worker: &mut Worker<H>) -> Reason {
        let reason = self.reason.take().map_or(Reason::Finished, |reason| *reason);
        self.reach.hang_up();
        let waiting = self.queue.len();
        self.queue.take(waiting, &mut worker.spare);
        if !matches!(reason, Reason::Panicked(_)) {
            let told = contain(|| {
                if let Some(handler) = &mut self.handler {
                    handler.on_close(&reason);
                }
            });
            if let Err(panic) = told {
                let reason = Reason::Panicked(text_of(&*panic));
                worker.closed(&reason);
                return reason;
            }
        }
        worker.closed(&reason);
        reason
    }

    /// Calls the handler, and says whether it asked for an echo.
    #[inline]
    pub(super) fn call(
        &mut self,
        worker: &mut Worker<H>,
        echo: Echo,
        call: impl FnOnce(&mut H, &mut Output<'_>),
    ) -> bool {
        let over = self.must_close();
        let Some(handler) = self.handler.as_mut().filter(|_| !over) else {
            return false;
        };
        let was_empty = self.queue.is_empty();
        let before = self.queue.len();
        let now = worker.virtual_now();
        let mut output = Output {
            queue: &mut self.queue,
            spare: &mut worker.spare,
            limit: worker.limits.output_bytes.saturating_sub(self.lent),
            echo,
            finished: &mut self.finished,
            end: None,
            refused: 0,
            now,
            messages: None,
            reach: &mut self.reach,
            mailbox: &worker.mailbox,
            #[cfg(feature = "tls")]
            tls: None,
        };
        let called = contain(|| {
            call(handler, &mut output);
            handler.asks()
        });
        let Output { echo, end, refused, .. } = output;
        if refused > 0 {
            worker.counters.output_refused.add(refused);
        }
        let queued = self.queue.len() - before;
        if queued > 0 {
            worker.counters.bytes_queued.add(queued as u64);
            if was_empty {
                self.last_sent = worker.clock.now();
            }
            self.check_output_limit(&worker.limits);
        }
        if let Some(reason) = end {
            self.end(reason);
        }
        match called {
            Ok(asks) => {
                self.heed(worker, asks);
                if self.finished {
                    self.reach.finish();
                }
            }
            Err(panic) => {
                // Nothing that it was told in this call counts.
                self.reason = None;
                self.fail(Reason::Panicked(text_of(&*panic)));
            }
        }
        echo == Echo::Asked && !self.must_close()
    }

    /// Does as the handler asks.
    #[inline]
    fn heed(&mut self, worker: &Worker<H>, asks: Asks) {
        self.alarm = asks.deadline.map_or(Moment::NEVER, |at| worker.clock.moment_of(at));
        if self.receive_paused && !asks.pause {
            // It begins to be heard again.
            self.last_received = worker.clock.now();
        }
        self.receive_paused = asks.pause;
        self.holds = asks.holds;
        self.hears = asks.hears;
        self.finished |= self.stopped && !self.holds;
    }

    fn check_output_limit(&mut self, limits: &Limits) {
        if limits.when_full == WhenFull::Close && self.is_full(limits) {
            self.fail(Reason::OutputFull);
        }
    }
}

#[cfg(test)]
mod tests;
