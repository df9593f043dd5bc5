//! What each thread of a server holds.

use super::{
    Handler, Limits, Reason,
    common::{ForThreads, Server},
    handler::Spare,
    mail::{Given, Incoming, Mailbox},
};
use crate::{
    Error,
    counters::stream::Counters,
    events::event,
    lifecycle::{Answer, Answers, contain, lock, text_of},
    pause,
    stream::Stream,
    timer::Clock,
    wake::Waker,
};
use std::{
    cell::Cell,
    net::SocketAddr,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

/// One thread of a server: its counters, its clock, and what it shares with the others.
pub struct Worker<H> {
    /// Its number, from 0.
    pub index: usize,
    /// Its counters; this thread is their only writer.
    pub counters: Arc<Counters>,
    /// What its calls into contracts count.
    pub calls: Arc<crate::counters::Counters>,
    /// The limits of the server.
    pub limits: Limits,
    /// Times of its connections, by their slots.
    pub clock: Clock,
    /// Whether its timed waits were told to end in time.
    in_time: Cell<bool>,
    pub(super) spare: Spare,
    /// What handles of its connections have left, where this thread has connections of its own.
    pub(super) mailbox: Arc<Mailbox>,
    server: Arc<Server<H>>,
    ready: Answer,
    /// When the stop was first seen.
    stopped: Option<Instant>,
    /// The time as handlers see it, where a test makes it.
    #[cfg(any(test, fuzzing))]
    pub(crate) now: Option<Instant>,
}

impl<H: Handler> Worker<H> {
    pub(super) fn new(
        index: usize,
        server: Arc<Server<H>>,
        counters: Arc<Counters>,
        calls: Arc<crate::counters::Counters>,
        ready: Option<Answers>,
    ) -> Self {
        Self {
            index,
            counters,
            calls,
            limits: server.limits,
            clock: Clock::starting(server.since),
            in_time: Cell::new(false),
            spare: Spare::default(),
            mailbox: Arc::new(Mailbox::new(server.limits.output_bytes)),
            server,
            ready: Answer::to(ready),
            stopped: None,
            #[cfg(any(test, fuzzing))]
            now: None,
        }
    }

    /// Says that the thread has started. `waker` ends its waits.
    pub fn ready(&mut self, waker: Option<Waker>) {
        if let Some(waker) = waker {
            self.mailbox.wakes(waker.clone());
            self.server.shared.add_waker(waker);
        }
        self.ready.give(Ok(()));
    }

    /// The thread ends before the server does: nobody is to end its waits any more ([`ready`](Self::ready)).
    pub(super) fn forget(&self, waker: &Waker) {
        self.server.shared.forget_waker(waker);
    }

    /// Starts another thread of the server, while it runs, with a stack of so many bytes.
    ///
    /// # Errors
    /// [`Error::Io`] if the system gives no thread.
    pub fn spawn(
        &self,
        stack_bytes: usize,
        body: impl FnOnce(&mut Worker<H>) -> Result<(), Error> + Send + 'static,
    ) -> Result<(), Error> {
        self.server.spawn(Some(stack_bytes), None, Box::new(body))
    }

    /// States a setting that was only known once the thread had started.
    pub fn state(&self, name: &str, value: impl ToString) {
        self.server.shared.state(name, value);
    }

    /// Whether the server stops: no more connections are accepted, and those that are open finish.
    #[inline]
    pub fn stopping(&self) -> bool {
        self.server.shared.stopping()
    }

    /// Whether nothing more is to be accepted, though the server goes on ([`Running::end_accepting`]).
    ///
    /// [`Running::end_accepting`]: super::Running::end_accepting
    pub fn leaves_off(&self) -> bool {
        self.server.leaves_off.load(Relaxed)
    }

    /// The thread, which [left off](Self::leaves_off), has taken in all that it has accepted and accepts nothing more.
    pub(super) fn left_off(&self) {
        self.server.left_off();
    }

    /// Whether the thread has connections to serve, or may get some: until the server stops, and then
    /// until the last is gone or [`Limits::stop`] is over.
    pub fn serving(&mut self, open: usize) -> bool {
        if !self.stopping() {
            return true;
        }
        let since = *self.stopped.get_or_insert_with(Instant::now);
        open > 0 && since.elapsed() < self.limits.stop
    }

    /// How long a wait may last, as far as timers and the end of the server are concerned, from
    /// [the clock's time](Clock::time).
    pub fn timeout(&self) -> Option<Duration> {
        self.wait_in_time(&self.clock);
        let now = self.clock.time();
        let stop = self
            .stopped
            .map(|since| self.limits.stop.saturating_sub(now.saturating_duration_since(since)));
        let timer = self.clock.next_in(now);
        [stop, timer].into_iter().flatten().min()
    }

    /// Has the waits of this thread end in time, from the first that an alarm is to end.
    #[inline]
    pub(super) fn wait_in_time(&self, clock: &Clock) {
        if clock.has_alarms() && !self.in_time.replace(true) {
            self.state("timers", pause::end_in_time());
        }
    }

    /// Whether one more connection may be open. If so it counts from now on, until it is closed; if not
    /// it is told so.
    #[must_use]
    pub fn admit(&self, stream: &Stream) -> bool {
        let admitted = self.let_in();
        if let Err(why) = &admitted {
            self.turn_away(stream, why);
        }
        admitted.is_ok()
    }

    /// The same for a design that tells it by itself ([`refusal`](Self::refusal)).
    ///
    /// # Errors
    /// Why it may not.
    pub fn let_in(&self) -> Result<(), String> {
        let by_threads = self.server.for_threads.get();
        let by_threads = by_threads.filter(|most| most.connections < self.limits.connections);
        let most = by_threads.map_or(self.limits.connections, |most| most.connections);
        let admit = |open: u32| (open < most).then_some(open + 1);
        if let Ok(before) = self.server.open.fetch_update(Relaxed, Relaxed, admit) {
            self.server.most_open.fetch_max(before + 1, Relaxed);
            self.counters.accepted.one();
            return Ok(());
        }
        self.counters.refused.one();
        let why = match by_threads {
            Some(ForThreads { limit, .. }) => {
                format!("there are {most} connections, as many as there are threads for ({limit})")
            }
            None => format!("there are {most} connections, the most allowed"),
        };
        event!(DEBUG, why, "a connection is refused: a limit is reached");
        Err(why)
    }

    /// What a connection is told that is refused.
    pub fn refusal(why: &str) -> String {
        format!("{}{why}\n", super::REFUSAL)
    }

    /// Refuses a connection that was let in, and for which something is missing after all: it counts as
    /// refused too, and is still to be closed.
    pub fn refuse(&self, stream: &Stream, why: &str) {
        self.counters.refused.one();
        event!(WARN, why, "a connection is refused: something is missing for it");
        self.turn_away(stream, why);
    }

    /// Tells a connection that it is refused, and why, as far as that goes without waiting. It stays open for a
    /// while: closed at once it could end in a reset, whatever the peer has read by then.
    fn turn_away(&self, stream: &Stream, why: &str) {
        let text = Self::refusal(why);
        let _ = stream.send(text.as_bytes(), crate::stream::Mode::Try, &self.calls);
        if stream.end_sending(&self.calls).is_ok() {
            self.server.refused.keep(stream.clone());
        }
    }

    /// Counts that accepting pauses, since the system has no descriptor or memory to give. Those that were refused give
    /// theirs back.
    pub(super) fn accepting_pauses(&self) {
        self.counters.accept_pauses.one();
        event!(WARN, "accepting pauses: descriptors or memory are short");
        self.server.refused.close_all();
    }

    /// The time as handlers see it, where it is not the clock's.
    #[inline]
    pub(super) fn virtual_now(&self) -> Option<Instant> {
        #[cfg(any(test, fuzzing))]
        return self.now;
        #[cfg(not(any(test, fuzzing)))]
        None
    }

    /// A handler for this peer. Where it cannot be made the server ends: `None`.
    pub(super) fn make_handler(&self, peer: SocketAddr, given: Option<Given>) -> Option<H> {
        event!(DEBUG, %peer, "a connection begins");
        let made = contain(|| (self.server.make_handler)(peer, given));
        made.inspect_err(|panic| {
            let message = text_of(&**panic);
            let thread = self.index;
            self.server.shared.fail(Error::HandlerPanicked { thread, message });
        })
        .ok()
    }

    /// Connections that others have made come to this thread's mailbox, too, until it is shut: the thread, whose wait
    /// `waker` ends, takes them in. To be said before the thread is [`ready`](Self::ready).
    pub(super) fn open_mailbox(&self, waker: Waker) {
        self.mailbox.wakes(waker);
        self.open_shared_mailbox(&self.mailbox);
    }

    /// The same of a mailbox that several threads share, and that knows its waker.
    pub(super) fn open_shared_mailbox(&self, mailbox: &Arc<Mailbox>) {
        lock(&self.server.mailboxes).push(Arc::clone(mailbox));
    }

    /// Leaves a connection in a mailbox, in the one with this number ([`served`](super::mail::served)) where it is open.
    /// Gives it back where all are shut.
    pub(super) fn bring(&self, incoming: Incoming, mailbox: usize) -> Result<(), Incoming> {
        let open = lock(&self.server.mailboxes);
        let is_meant = |its: &Arc<Mailbox>| Arc::as_ptr(its).addr() == mailbox;
        let next = || self.server.next_mailbox.fetch_add(1, Relaxed) as usize;
        let first = open.iter().position(is_meant).unwrap_or_else(next);
        let mut incoming = incoming;
        for at in 0..open.len() {
            match open[(first + at) % open.len()].bring(incoming) {
                Ok(()) => return Ok(()),
                Err(back) => incoming = back,
            }
        }
        Err(incoming)
    }

    /// The moment that the server's time runs from.
    pub(super) fn since(&self) -> Instant {
        self.server.since
    }

    /// Counts what was done with timers of a clock that threads share.
    pub(super) fn add_timers(&self, counts: crate::timer::Counts) {
        self.server.add_timers(counts);
    }

    pub(super) fn closed(&self, reason: &Reason) {
        reason.count(&self.counters);
        event!(DEBUG, %reason, "a connection has ended");
        self.server.closed();
    }

    /// The server's failure, and the end of every thread.
    pub(super) fn end(&mut self, error: Option<Error>) {
        self.ready.end(error, &self.server.shared);
        self.server.add_timers(self.clock.counts());
    }
}
