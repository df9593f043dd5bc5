//! What every design does that is told when a connection is ready: accept, receive until nothing is
//! left or the bound is reached, send what waits, and ask for what is wanted next.
//!
//! The waiting, and what is asked of the system for it, is what the designs differ in: it stands in
//! their own files.

use super::{
    Connection, Handler, Reason, Worker,
    table::{Open, Table},
};
use crate::{
    Error,
    readiness::{Interest, Streams},
    stream::{self, Accepted, Listener, Mode, Stream},
    timer::{TICK, Tick},
};
use std::time::Instant;

/// Connections accepted for one wake-up, at most: the open ones are not to wait for long.
pub(super) const ACCEPTED_AT_ONCE: u32 = 64;

/// The connections of one thread, and where it receives into.
pub(super) struct Room<H> {
    pub(super) table: Table<H>,
    buffer: Box<[u8]>,
    /// Most receives from one connection for one wake-up.
    drain: u32,
    /// Numbers of timers that fell due.
    due: Vec<u32>,
    /// Until when nothing is accepted, since the system had no descriptor or memory to give.
    paused_until: Option<Instant>,
    listening: bool,
    stopped: bool,
}

impl<H: Handler> Room<H> {
    pub(super) fn new(buffer_bytes: usize, drain: u32) -> Self {
        Self {
            table: Table::new(),
            buffer: vec![0; buffer_bytes].into(),
            drain,
            due: Vec::new(),
            paused_until: None,
            listening: true,
            stopped: false,
        }
    }

    /// Whether anything is to be accepted now.
    pub(super) fn listens(&self) -> bool {
        self.listening
    }

    /// Accepts what waits, within a bound. Where the system has no descriptor or no memory to give
    /// the connection stays where it waits, and accepting pauses until one was given back, or for a
    /// tick: another program may give back, too.
    pub(super) fn accept(
        &mut self,
        worker: &mut Worker<H>,
        set: &mut impl Streams,
        listener: &Listener,
    ) -> Result<(), Error> {
        for _ in 0..ACCEPTED_AT_ONCE {
            let Accepted { stream, peer } = match listener.accept(Mode::Try, &worker.calls) {
                Ok(Some(accepted)) => accepted,
                Ok(None) => break,
                Err(e) if stream::is_want_of_resources(&e) => {
                    worker.counters.accept_pauses.one();
                    self.paused_until = Some(Instant::now() + TICK);
                    self.listening = false;
                    break;
                }
                Err(e) if stream::concerns_one_connection(&e) => {
                    worker.counters.accept_errors.one();
                    continue;
                }
                Err(e) => return Err(Error::io("accepting a connection", e)),
            };
            if !worker.admit(&stream) {
                continue;
            }
            let connection = Connection::open(worker, peer);
            let interest = Interest::RECEIVE;
            let open = Open { connection, stream, interest, armed: Tick::MAX };
            let slot = self.table.insert(open);
            let stream = &self.table.get_mut(slot).expect("it was just put there").stream;
            if let Err(e) = set.watch(stream, slot, interest) {
                self.fail(worker, set, slot, Reason::Failed(e), false);
                continue;
            }
            // Its handler may have begun to speak; and it needs a timer.
            self.settle(worker, set, slot);
        }
        Ok(())
    }

    /// Serves a connection that is ready. Says whether it may still be, since the bound was reached.
    pub(super) fn serve(
        &mut self,
        worker: &mut Worker<H>,
        set: &mut impl Streams,
        slot: u32,
    ) -> bool {
        let Some(open) = self.table.get_mut(slot) else { return false };
        let more = receive(worker, open, &mut self.buffer, self.drain);
        self.settle(worker, set, slot);
        more
    }

    /// Sends what waits, asks for what is wanted next, and closes what is over.
    fn settle(&mut self, worker: &mut Worker<H>, set: &mut impl Streams, slot: u32) {
        let Some(open) = self.table.get_mut(slot) else { return };
        send(worker, &mut open.connection, &open.stream);
        let mut wants = open.connection.wants(&worker.limits);
        if wants.end_sending {
            match open.stream.end_sending(&worker.calls) {
                Ok(()) => open.connection.told(worker),
                Err(e) => open.connection.fail(Reason::Failed(e)),
            }
            wants = open.connection.wants(&worker.limits);
        }
        open.connection.note_pause(worker, wants);
        if wants.close {
            return self.close(worker, set, slot, true);
        }
        let interest = wants.interest();
        if interest != open.interest {
            open.interest = interest;
            if let Err(e) = set.change(&open.stream, slot, interest) {
                return self.fail(worker, set, slot, Reason::Failed(e), true);
            }
        }
        // A timer that fires too early is set again; only one that would be late is moved.
        let Some(open) = self.table.get_mut(slot) else { return };
        if let Some(due) = open.connection.deadline(&worker.limits)
            && due < open.armed
        {
            open.armed = due;
            worker.clock.set(slot, due);
        }
    }

    fn fail(
        &mut self,
        worker: &mut Worker<H>,
        set: &mut impl Streams,
        slot: u32,
        reason: Reason,
        watched: bool,
    ) {
        if let Some(open) = self.table.get_mut(slot) {
            open.connection.fail(reason);
        }
        self.close(worker, set, slot, watched);
    }

    fn close(&mut self, worker: &mut Worker<H>, set: &mut impl Streams, slot: u32, watched: bool) {
        let Some(open) = self.table.remove(slot) else { return };
        if watched {
            set.forget(&open.stream, slot);
        }
        worker.clock.cancel(slot);
        if open.connection.close(worker).is_abrupt() {
            open.stream.reset_when_closed();
        }
        // A descriptor was given back.
        self.listening = !self.stopped;
        self.paused_until = None;
    }

    /// What the clock and the end of the server ask for; to be called after each wait.
    pub(super) fn mind_the_time(&mut self, worker: &mut Worker<H>, set: &mut impl Streams) {
        let now = Instant::now();
        worker.clock.expired(now, &mut self.due);
        while let Some(slot) = self.due.pop() {
            if let Some(open) = self.table.get_mut(slot) {
                open.armed = Tick::MAX;
                open.connection.timed(worker);
                self.settle(worker, set, slot);
            }
        }
        if self.paused_until.is_some_and(|until| until <= now) {
            self.paused_until = None;
            self.listening = !self.stopped;
        }
        if worker.stopping() && !self.stopped {
            self.stopped = true;
            self.listening = false;
            for slot in 0..self.table.slots() {
                let Some(open) = self.table.get_mut(slot) else { continue };
                // What was received by the system by now is handled; then it finishes. What of it
                // has no room now is told again, since it is asked for anew.
                let waiting = open.stream.waiting(&worker.calls).unwrap_or(0);
                open.connection.finish_after(waiting);
                open.interest = Interest::NONE;
                self.serve(worker, set, slot);
            }
        }
    }

    /// How long a wait may last.
    pub(super) fn timeout(&self, worker: &Worker<H>) -> Option<std::time::Duration> {
        let paused = self.paused_until.map(|until| until.saturating_duration_since(Instant::now()));
        [paused, worker.timeout()].into_iter().flatten().min()
    }

    /// Cuts off what is still open when the time to stop is over.
    pub(super) fn cut_off(&mut self, worker: &mut Worker<H>, set: &mut impl Streams) {
        for slot in 0..self.table.slots() {
            if self.table.get_mut(slot).is_some() {
                self.fail(worker, set, slot, Reason::Stopped, true);
            }
        }
    }
}

/// Receives until nothing is left, nothing more is wanted, or the bound is reached; says whether it
/// was the bound.
#[inline]
fn receive<H: Handler>(
    worker: &mut Worker<H>,
    open: &mut Open<H>,
    buffer: &mut [u8],
    drain: u32,
) -> bool {
    let Open { connection, stream, .. } = open;
    for _ in 0..drain {
        if !connection.wants(&worker.limits).receive {
            return false;
        }
        match stream.receive(buffer, Mode::Try, &worker.calls) {
            Ok(Some(0)) => {
                connection.ended(worker);
                return false;
            }
            Ok(Some(count)) => {
                let bytes = &mut buffer[..count];
                let echo = connection.received(worker, bytes);
                if echo > 0 {
                    match stream.send(&bytes[..echo], Mode::Try, &worker.calls) {
                        Ok(taken) => connection.echoed(worker, bytes, taken.unwrap_or(0)),
                        Err(e) => connection.fail(Reason::Failed(e)),
                    }
                }
                send(worker, connection, stream);
            }
            Ok(None) => {
                worker.counters.empty_receives.one();
                return false;
            }
            Err(e) => {
                connection.fail(Reason::Failed(e));
                return false;
            }
        }
    }
    true
}

/// Sends what waits, as far as there is room.
#[inline]
fn send<H: Handler>(worker: &mut Worker<H>, connection: &mut Connection<H>, stream: &Stream) {
    while connection.wants(&worker.limits).send {
        match stream.send(connection.unsent(), Mode::Try, &worker.calls) {
            Ok(Some(taken)) => connection.sent(worker, taken),
            Ok(None) => return,
            Err(e) => return connection.fail(Reason::Failed(e)),
        }
    }
}
