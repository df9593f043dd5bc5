//! A thread at a completion port: what it takes, minds the time, lets connections in, and ends the server.

use super::{
    frame::{Idle, Shared, close},
    places::{Open, Order, Sending},
    shares::{Slow, end_accepting},
};
use crate::{
    Error,
    crew::lock,
    memory::{Load, Slice},
    port::{
        Key,
        streams::{Completion, Outcome, Port, StreamId, Taken, Worker as _},
    },
    stream::{self, Accepted, Mode},
    tcp::{Connection, Handler, Worker},
    timer::Tick,
};
use std::{
    sync::TryLockError,
    time::{Duration, Instant},
};

/// Slices that a thread keeps at hand.
const AT_HAND: usize = 16;
/// Takes between two looks at the clock, at most, while completions lie ready.
const LOOK_AFTER: u32 = 16;

/// A thread at the port, with what it has at hand.
pub(super) struct Hand<'p, 'w, P: Port, H: Handler> {
    pub(super) worker: &'w mut Worker<H>,
    pub(super) shared: &'p Shared<P, H>,
    pub(super) taker: P::Worker<'p>,
    pub(super) slices: Vec<Slice>,
    /// Takes since it last looked at the clock.
    pub(super) unlooked: u32,
    pub(super) due: Vec<u32>,
    /// A send is over, and another connection waits for its turn; or one has begun to wait.
    pub(super) sent: bool,
    /// Connections that are to be served from now on, in the place of others.
    pub(super) next: Vec<u32>,
}

impl<P: Port, H: Handler> Drop for Hand<'_, '_, P, H> {
    fn drop(&mut self) {
        self.shared.pool.give(self.slices.drain(..));
    }
}

impl<P: Port, H: Handler> Hand<'_, '_, P, H> {
    /// Takes what has finished, and minds the clock: wherever it may have waited, and else after so many takes.
    /// False: the port was closed.
    pub(super) fn take(&mut self, taken: &mut Taken) -> Result<bool, Error> {
        loop {
            self.close_when_over();
            let mut count = 0;
            if self.unlooked < LOOK_AFTER {
                self.unlooked += 1;
                count = self.taker.take_ready(taken);
            }
            if count == 0 {
                let timeout = self.watch();
                let took = self.taker.take(taken, timeout, &self.worker.calls);
                let Some(brought) = took.map_err(|e| Error::io("taking completions", e))? else {
                    return Ok(false);
                };
                count = brought;
                self.mind_the_time();
            }
            if count > 0 {
                self.worker.counters.batches.record(count as u64);
                return Ok(true);
            }
        }
    }

    /// How long this thread may wait, from when it last looked at the clock.
    fn watch(&self) -> Option<Duration> {
        let (thread, now) = (self.worker.index, self.worker.clock.looked());
        let pause = self.shared.paused_until().into_iter().chain(self.shared.sends.look_at()).min();
        let until = lock(&self.shared.clock).watch(thread, now, pause);
        until.map(|until| until.saturating_duration_since(now))
    }

    /// Once the server has stopped and the last connection has gone there is nothing to take any more.
    fn close_when_over(&self) {
        if self.worker.stopping() && self.shared.places.open() == 0 {
            let accepts = lock(&self.shared.accepts);
            let over = accepts.is_shut() && accepts.outstanding() == 0;
            drop(accepts);
            if over && self.shared.places.open() == 0 {
                self.shared.port.close();
            }
        }
    }

    /// What the clock and the end of the server ask for.
    fn mind_the_time(&mut self) {
        let now = Instant::now();
        self.unlooked = 0;
        self.worker.clock.expired(now, &mut self.due); // it has no timers, and tells the time
        let time_is_over = lock(&self.shared.clock).back(self.worker.index, now, &mut self.due);
        while let Some(slot) = self.due.pop() {
            self.with(slot, |hand, open| {
                open.armed = Tick::MAX;
                open.connection.timed(hand.worker);
            });
        }
        if self.shared.resume(Some(now)) {
            self.keep_accepting();
        }
        if self.shared.sends.is_to_look(now) {
            self.set_stuck_aside(now);
        }
        if self.worker.stopping() {
            self.stop();
        }
        if time_is_over {
            self.shared.port.close(); // whoever leaves last cuts off what is still open
        }
    }

    /// Calls `f` with the connection in a slot, if there is one, and starts what it wants next.
    pub(super) fn with(&mut self, slot: u32, f: impl FnOnce(&mut Self, &mut Open<H>)) {
        self.with_any(slot, None, f);
    }

    /// The same where it is the connection of a completion. Between a take and this lock another thread may
    /// have had the last of that connection, and a new one may have its slot.
    #[inline]
    pub(super) fn with_its(
        &mut self,
        key: Key,
        id: StreamId,
        f: impl FnOnce(&mut Self, &mut Open<H>),
    ) {
        self.with_any(key.0 as u32, Some(id), f);
    }

    #[inline]
    fn with_any(
        &mut self,
        slot: u32,
        id: Option<StreamId>,
        f: impl FnOnce(&mut Self, &mut Open<H>),
    ) {
        let shared = self.shared;
        let mut place = lock(shared.places.get(slot));
        let meant = |open: &&mut Open<H>| !open.closing && id.is_none_or(|id| id == open.id);
        if let Some(open) = place.as_mut().filter(meant) {
            f(self, open);
            self.settle(slot, &mut place);
        }
        drop(place);
        if std::mem::take(&mut self.sent) {
            self.pass_the_turn();
        }
        if !self.next.is_empty() {
            self.begin_next();
        }
    }

    /// Serves those whose turn has come in the active set.
    #[cold]
    pub(super) fn begin_next(&mut self) {
        while let Some(slot) = self.next.pop() {
            self.with(slot, |hand, open| {
                // It may have gone meanwhile, and the one that has its slot waits.
                if lock(&hand.shared.active).serves(slot) {
                    open.connection.begin(hand.worker);
                }
            });
        }
    }

    /// Does with a completion what every design does. A wait to receive is the design's own.
    #[inline]
    pub(super) fn handle(&mut self, completion: Completion) -> Result<(), Error> {
        match completion {
            Completion::Accept { key, outcome, .. } => self.accepted(key.0 as usize, outcome)?,
            Completion::Receive { key, stream, slice, number, outcome, .. } => {
                self.arrived(key, stream, slice, number, outcome);
            }
            Completion::Send { key, stream, load, outcome, .. } => {
                self.sent(key, stream, load, outcome);
            }
            Completion::Closed { key, stream } => self.closed(key, stream),
            Completion::Wait { .. } => {}
            Completion::Packet(_) => self.stop(),
        }
        Ok(())
    }

    /// An accept is over: with a connection, or not.
    fn accepted(&mut self, listener: usize, outcome: Outcome<Accepted>) -> Result<(), Error> {
        let mut outcome = outcome;
        loop {
            match outcome {
                Outcome::Done(accepted) => {
                    self.let_in(accepted);
                    let ask = lock(&self.shared.accepts).succeeded(listener);
                    if !ask {
                        break;
                    }
                    let waits =
                        self.shared.listeners[listener].0.accept(Mode::Try, &self.worker.calls);
                    outcome = match waits {
                        Ok(Some(accepted)) => {
                            lock(&self.shared.accepts).ran_dry(listener);
                            Outcome::Done(accepted)
                        }
                        Ok(None) => break,
                        Err(e) => Outcome::Failed(e),
                    };
                }
                Outcome::Failed(e) if stream::is_want_of_resources(&e) => {
                    if self.shared.pause(listener) {
                        self.worker.counters.accept_pauses.one();
                    }
                    break;
                }
                Outcome::Failed(e) if stream::concerns_one_connection(&e) => {
                    self.worker.counters.accept_errors.one();
                    break;
                }
                Outcome::Failed(e) => return Err(Error::io("accepting a connection", e)),
                Outcome::Returned => break,
            }
        }
        lock(&self.shared.accepts).back(listener, 1);
        self.keep_accepting();
        Ok(())
    }

    /// Starts as many accepts as are to be outstanding.
    pub(super) fn keep_accepting(&mut self) {
        for (number, (_, id)) in self.shared.listeners.iter().enumerate() {
            let more = lock(&self.shared.accepts).start_more(number);
            let started = (0..more).take_while(|_| self.taker.accept(*id).is_ok()).count() as u32;
            if started < more {
                lock(&self.shared.accepts).back(number, more - started); // the port is closed
            }
        }
    }

    fn let_in(&mut self, accepted: Accepted) {
        let Accepted { stream, peer } = accepted;
        if self.worker.admit(&stream) {
            self.take_in(Accepted { stream, peer });
        }
    }

    /// Connections that are open.
    pub(super) fn open(&self) -> u32 {
        self.shared.places.open()
    }

    /// Takes in a connection that was admitted.
    pub(super) fn take_in(&mut self, accepted: Accepted) {
        let Accepted { stream, peer } = accepted;
        let shared = self.shared;
        let mut connection = Connection::open(self.worker, peer);
        let slot = shared.places.claim();
        let mut place = lock(shared.places.get(slot));
        let id = match shared.port.associate(stream.clone(), Key(slot.into())) {
            Ok(id) => id,
            Err(refused) => {
                drop(place);
                shared.places.give_back(slot);
                connection.fail(self.refused(refused));
                return close(self.worker, connection, &stream);
            }
        };
        let (order, sending, armed) = (Order::default(), Sending::Nothing, Tick::MAX);
        let (receives, received, slow, closing) = (0, 0, Slow::default(), false);
        *place = Some(Open {
            connection,
            stream,
            id,
            receives,
            order,
            sending,
            slow,
            received,
            armed,
            closing,
        });
        if let Some(open) = place.as_mut().filter(|_| !lock(&shared.active).admit(slot)) {
            open.connection.wait_for_its_turn(self.worker);
        }
        drop(place);
        if lock(&shared.accepts).is_shut() {
            return self.with(slot, Self::finish); // it was on its way here when the server stopped
        }
        // What has come already is the first data with the accept: a receive that is started now is tried
        // as it is submitted, and where none is started it is tried here.
        match shared.numbers.idle {
            Idle::Buffer => self.with(slot, |_, _| ()),
            Idle::ZeroByte => self.with(slot, |hand, open| hand.drain(slot, open)),
        }
    }

    /// The server stops: accepts no more, and has every connection finish once what the system has received
    /// of it by now is handled.
    fn stop(&mut self) {
        let shared = self.shared;
        if !shared.shut() {
            return;
        }
        end_accepting(shared.listeners.iter().map(|(listener, _)| listener));
        lock(&shared.active).dissolve();
        lock(&shared.clock).stop_by = Some(Instant::now() + self.worker.limits.stop);
        // Those whose handler is at work on another thread are told last.
        let is_busy = |slot: &u32| {
            matches!(shared.places.get(*slot).try_lock(), Err(TryLockError::WouldBlock))
        };
        let (busy, others): (Vec<_>, Vec<_>) = (0..shared.places.slots()).partition(is_busy);
        for slot in others.into_iter().chain(busy) {
            self.with(slot, Self::finish);
        }
    }

    fn finish(&mut self, open: &mut Open<H>) {
        open.connection.begin(self.worker);
        // Not what waits in the system: a completion may have it, or another thread.
        let received = open.stream.received_in_all(&self.worker.calls).unwrap_or(0);
        let left = received.saturating_sub(open.received);
        open.connection.finish_after(self.worker, usize::try_from(left).unwrap_or(usize::MAX));
    }

    /// A slice to receive into.
    #[inline]
    pub(super) fn slice(&mut self) -> Result<Slice, Error> {
        self.slices.pop().map_or_else(|| self.shared.pool.take(), Ok)
    }

    #[inline]
    pub(super) fn keep(&mut self, slice: Slice) {
        self.slices.push(slice);
        if self.slices.len() > AT_HAND {
            self.shared.pool.give(self.slices.drain(AT_HAND / 2..));
        }
    }

    #[inline]
    pub(super) fn put_away(&mut self, load: Load) {
        match load.into_slice() {
            Ok(slice) => self.keep(slice),
            Err(bytes) => self.worker.spare.put(bytes),
        }
    }
}
