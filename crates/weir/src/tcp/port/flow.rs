//! What the connections of a completion port receive and send, and how one is closed. All of it under the
//! connection's own lock.

use super::{
    frame::{Idle, close},
    hand::Hand,
    places::{Open, Sending},
    shares::{Place, STUCK_AFTER},
};
use crate::{
    crew::{lock, try_lock},
    memory::{Load, Slice},
    port::{
        Key, Refused,
        streams::{Closing, Outcome, Port, StreamId, Worker as _},
    },
    stream::Mode,
    tcp::{Handler, Reason},
};
use std::{io, sync::Arc, time::Instant};

impl<P: Port, H: Handler> Hand<'_, '_, P, H> {
    /// Why a connection must be closed where the port does not take its operation.
    pub(super) fn refused(&self, refused: Refused) -> Reason {
        match refused {
            Refused::Closed => Reason::Stopped,
            refused => Reason::Failed(io::Error::other(refused.to_string())),
        }
    }

    /// A receive is over.
    #[inline]
    pub(super) fn arrived(
        &mut self,
        key: Key,
        id: StreamId,
        slice: Slice,
        number: u32,
        outcome: Outcome<usize>,
    ) {
        let mut slice = Some(slice);
        self.with_its(key, id, |_, open| {
            open.receives -= 1;
            open.order.put(number, slice.take().expect("it is put once"), outcome);
        });
        slice.into_iter().for_each(|slice| self.keep(slice)); // its connection is over, or about to be
    }

    /// A wait to receive is over: receives what is there, and waits again.
    pub(super) fn waited(&mut self, key: Key, id: StreamId, outcome: Outcome<()>) {
        self.with_its(key, id, |hand, open| {
            open.receives -= 1;
            match outcome {
                Outcome::Done(()) => hand.drain(key.0 as u32, open),
                Outcome::Failed(e) => open.connection.fail(Reason::Failed(e)),
                Outcome::Returned => {}
            }
        });
    }

    /// Receives what is there without waiting, within a bound.
    pub(super) fn drain(&mut self, slot: u32, open: &mut Open<H>) {
        for _ in 0..self.shared.numbers.drain {
            if !open.connection.wants(&self.worker.limits).receive {
                break;
            }
            let mut slice = match self.slice() {
                Ok(slice) => slice,
                Err(e) => return open.connection.fail(Reason::Failed(io::Error::other(e))),
            };
            let room = slice.payload().len();
            match open.stream.receive(slice.payload_mut(), Mode::Try, &self.worker.calls) {
                Ok(Some(count)) => {
                    self.deliver(slot, open, slice, Outcome::Done(count));
                    if count < room {
                        break;
                    }
                }
                Ok(None) => {
                    self.worker.counters.empty_receives.one();
                    return self.keep(slice);
                }
                Err(e) => return self.deliver(slot, open, slice, Outcome::Failed(e)),
            }
        }
    }

    /// Gives the connection what a receive brought.
    #[inline]
    fn deliver(
        &mut self,
        slot: u32,
        open: &mut Open<H>,
        mut slice: Slice,
        outcome: Outcome<usize>,
    ) {
        match outcome {
            Outcome::Done(0) => open.connection.ended(self.worker),
            Outcome::Done(count) => {
                open.received += count as u64;
                let echo = open.connection.received(self.worker, &mut slice.payload_mut()[..count]);
                if echo > 0 {
                    open.connection.lend_echo(echo);
                    return self.send(slot, open, Load::of_slice(slice, echo));
                }
            }
            Outcome::Failed(e) => open.connection.fail(Reason::Failed(e)),
            Outcome::Returned => {}
        }
        self.keep(slice);
    }

    /// Sends what a connection has lent, now or when its turn comes.
    #[inline]
    fn send(&mut self, slot: u32, open: &mut Open<H>, load: Load) {
        let left = match self.shared.sends.take_in_turn(open.slow.is()) {
            Some(place) => self.send_now(slot, open, load, place),
            None => Some(load),
        };
        if let Some(load) = left {
            open.sending = Sending::Queued(load);
            self.shared.sends.join(slot, open.id);
            // One may have come back before.
            self.sent = true;
        }
    }

    /// Sends, at this place. Answers what must wait after all, since the system has nothing to tell of one more send
    /// with: then others are outstanding.
    #[inline]
    fn send_now(
        &mut self,
        slot: u32,
        open: &mut Open<H>,
        load: Load,
        place: Place,
    ) -> Option<Load> {
        let (load, refused) = match self.taker.send(open.id, load) {
            Ok(_) => {
                // One whose peer is likely to be stuck is clocked from the beginning, others when somebody waits.
                let seen = match place {
                    Place::Pool => {
                        self.shared.places.mark(slot);
                        None
                    }
                    Place::Beside => Some(Instant::now()),
                };
                open.sending = Sending::UnderWay { place, seen };
                return None;
            }
            Err(back) => back,
        };
        self.give_back(place);
        if refused == Refused::Full {
            return Some(load);
        }
        open.connection.fail(self.refused(refused));
        self.put_away(load);
        None
    }

    /// A send gives its place back: it may be another's turn.
    #[inline]
    fn give_back(&mut self, place: Place) {
        self.shared.sends.give_back(place);
        self.sent |= self.shared.sends.any();
    }

    /// A send is over.
    #[inline]
    pub(super) fn sent(&mut self, key: Key, id: StreamId, load: Load, outcome: Outcome<usize>) {
        let (mut load, mut left) = (Some(load), None);
        // Where its connection is about to be over the place is given back with it.
        self.with_its(key, id, |hand, open| {
            let mut load = load.take().expect("it is handled once");
            if let Sending::UnderWay { place, seen } = std::mem::take(&mut open.sending) {
                open.slow.sent(seen.is_some_and(|seen| seen.elapsed() >= STUCK_AFTER));
                hand.give_back(place);
            }
            match outcome {
                Outcome::Done(0) => {
                    open.connection.fail(Reason::Failed(io::ErrorKind::WriteZero.into()))
                }
                Outcome::Done(count) => {
                    load.sent(count);
                    open.connection.returned(hand.worker, count);
                }
                Outcome::Failed(e) => open.connection.fail(Reason::Failed(e)),
                Outcome::Returned => {}
            }
            if load.left().is_empty() || open.connection.wants(&hand.worker.limits).close {
                left = Some(load);
            } else {
                hand.send(key.0 as u32, open, load);
            }
        });
        load.into_iter().chain(left).for_each(|load| self.put_away(load));
    }

    /// Starts the sends whose turn has come.
    #[cold]
    pub(super) fn pass_the_turn(&mut self) {
        let shared = self.shared;
        while let Some((slot, id)) = shared.sends.first() {
            let mut place = lock(shared.places.get(slot));
            let open = place.as_mut().filter(|open| open.id == id && !open.closing);
            let queued = open.and_then(|open| open.sending.take_queued().map(|load| (open, load)));
            let Some((open, load)) = queued else {
                // It is over, or about to be, or another thread has just sent it.
                shared.sends.leave(slot, id);
                continue;
            };
            let left = match shared.sends.take(open.slow.is()) {
                Some(place) => self.send_now(slot, open, load, place),
                None => Some(load),
            };
            if let Some(load) = left {
                open.sending = Sending::Queued(load);
                break; // whoever has one of those back that are outstanding goes on
            }
            shared.sends.leave(slot, id);
            self.settle(slot, &mut place);
        }
        self.sent = false;
    }

    /// Others wait for their turn: takes those sends from the pool whose peers are stuck. Where more are stuck than
    /// may be, those that have been for longest are given up for the ones that wait.
    #[cold]
    pub(super) fn set_stuck_aside(&mut self, now: Instant) {
        let shared = self.shared;
        let (leaving, mut in_pool) = (shared.sends.leaving(), 0);
        for slot in shared.places.marked() {
            // Who is at work on one another time.
            let Some(mut place) = try_lock(shared.places.get(slot)) else { continue };
            let open = place.as_mut().filter(|open| !open.closing && open.sending.is_in_pool());
            let Some(open) = open else {
                shared.places.unmark(slot);
                continue;
            };
            if !open.sending.is_stuck(now) {
                continue;
            }
            if shared.sends.set_aside() {
                open.sending.set_aside();
            } else {
                in_pool += 1;
            }
        }
        if in_pool > 0 {
            self.give_up_stuck(now, in_pool, leaving);
        }
        shared.sends.look_again(now);
        self.pass_the_turn();
    }

    /// Gives up who has been stuck for longest.
    fn give_up_stuck(&mut self, now: Instant, in_pool: usize, leaving: usize) {
        let shared = self.shared;
        if shared.sends.to_give_up(in_pool, usize::MAX, leaving) == 0 {
            return; // however many are stuck
        }
        let mut stuck = Vec::new();
        for slot in 0..shared.places.slots() {
            let Some(place) = try_lock(shared.places.get(slot)) else { continue };
            let Some(open) = place.as_ref().filter(|open| !open.closing) else { continue };
            if let Some(since) = open.sending.stuck_since(now) {
                stuck.push((since, slot, open.id));
            }
        }
        let count = shared.sends.to_give_up(in_pool, stuck.len(), leaving);
        stuck.sort_unstable_by_key(|(since, ..)| *since);
        for (since, slot, id) in stuck.into_iter().take(count) {
            self.with_its(Key(slot.into()), id, |_, open| {
                // Unless it has moved meanwhile.
                if open.sending.stuck_since(now) == Some(since) {
                    open.connection.fail(Reason::Stalled);
                }
            });
        }
    }

    /// Handles what was received, starts what the connection wants next, and takes it from the port when it
    /// is to be closed.
    #[inline]
    pub(super) fn settle(&mut self, slot: u32, place: &mut Option<Open<H>>) {
        let Some(open) = place.as_mut() else { return };
        let limits = self.worker.limits;
        let mut wants = open.connection.wants(&limits);
        // A pause that is over, before what was held back begins another.
        open.connection.note_pause(self.worker, wants);
        while wants.receive
            && let Some((slice, outcome)) = open.order.take()
        {
            self.deliver(slot, open, slice, outcome);
            wants = open.connection.wants(&limits);
        }
        if wants.send && matches!(open.sending, Sending::Nothing) {
            let mut bytes = Vec::new();
            open.connection.lend(&mut bytes);
            self.send(slot, open, Load::of_vector(bytes));
        }
        if wants.end_sending {
            match open.stream.end_sending(&self.worker.calls) {
                Ok(()) => open.connection.told(self.worker),
                Err(e) => open.connection.fail(Reason::Failed(e)),
            }
        }
        wants = open.connection.wants(&limits);
        open.connection.note_pause(self.worker, wants);
        if wants.receive {
            self.receive(open);
            wants = open.connection.wants(&limits);
        }
        if wants.close {
            return self.close(slot, place);
        }
        // A timer that fires too early is set again; only one that would be late is moved.
        if let Some(due) = open.connection.deadline(&limits)
            && due < open.armed
        {
            open.armed = due;
            lock(&self.shared.clock).set(slot, due);
        }
    }

    /// Has as many receives outstanding as are meant to be, or a wait for one.
    #[inline]
    fn receive(&mut self, open: &mut Open<H>) {
        let most = self.shared.numbers.receives;
        while open.receives + open.order.len() < most {
            let started = match self.shared.numbers.idle {
                Idle::ZeroByte => self.taker.wait_to_receive(open.id).map(drop),
                Idle::Buffer => match self.slice() {
                    Ok(slice) => {
                        self.taker.receive(open.id, slice).map(drop).map_err(|(slice, refused)| {
                            self.keep(slice);
                            refused
                        })
                    }
                    Err(e) => return open.connection.fail(Reason::Failed(io::Error::other(e))),
                },
            };
            match started {
                Ok(()) => open.receives += 1,
                Err(refused) => return open.connection.fail(self.refused(refused)),
            }
        }
    }

    /// Takes a connection from the port. It is over now, or when all that is outstanding has come back.
    #[cold]
    pub(super) fn close(&mut self, slot: u32, place: &mut Option<Open<H>>) {
        let Some(open) = place.as_mut() else { return };
        open.closing = true;
        if let Some(load) = open.sending.take_queued() {
            self.put_away(load);
        }
        if matches!(open.sending, Sending::UnderWay { .. }) {
            self.shared.sends.leaves();
        }
        let calls = Arc::clone(&self.worker.calls);
        match self.taker.close(open.id, &calls) {
            Closing::Follows => {}
            Closing::Over | Closing::Gone => {
                let open = place.take();
                self.over(slot, open);
            }
        }
    }

    /// A connection is over that was taken from the port.
    pub(super) fn closed(&mut self, key: Key, id: StreamId) {
        let slot = key.0 as u32;
        let open = lock(self.shared.places.get(slot)).take_if(|open| open.id == id);
        self.over(slot, open);
        if std::mem::take(&mut self.sent) {
            self.pass_the_turn();
        }
        self.begin_next();
    }

    fn over(&mut self, slot: u32, open: Option<Open<H>>) {
        let Some(Open { connection, stream, sending, closing, .. }) = open else { return };
        if let Sending::UnderWay { place, .. } = sending {
            self.give_back(place);
            if closing {
                self.shared.sends.has_left();
            }
        }
        lock(&self.shared.clock).wheel.cancel(slot);
        self.next.extend(lock(&self.shared.active).leave(slot));
        // Before its end is counted, and another admitted.
        self.shared.places.give_back(slot);
        close(self.worker, connection, &stream);
        drop(stream);
        if self.shared.resume(None) {
            self.keep_accepting();
        }
    }
}
