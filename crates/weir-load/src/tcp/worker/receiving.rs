//! What comes: connections that are made, answers, refusals, and ends.

use super::{End, Slot, State, TURN, Worker};
use crate::{
    clock::now_ns,
    tcp::{
        Conduct, Wrong,
        content::Amiss,
        refusal::{self, Heard},
        system::{self, Ready},
    },
};
use std::{io, sync::atomic::Ordering::Relaxed, time::Duration};
use weir::timer::Wheel;

/// How long a server may take from when it handles nothing further to when its end is seen here, with all
/// its connections and ours: much longer than any message takes on loopback.
const CROSSING: Duration = Duration::from_secs(1);

impl Worker<'_> {
    /// Attends to a socket that changed.
    #[inline]
    pub(super) fn attend(&mut self, Ready { number, receive, ended, sent }: Ready) {
        if let Some(sent) = sent {
            return self.sent(number, sent);
        }
        let slot = &mut self.slots[number as usize];
        slot.ended |= ended;
        match (slot.state, &slot.socket) {
            (State::Over, _) | (_, None) => return,
            (State::Connecting, Some(socket)) => match socket.connected() {
                Ok(()) => self.connected(number),
                Err(e) if system::is_refused(&e) => return self.close(number, End::Refused),
                Err(e) if system::is_timed_out(&e) => return self.close(number, End::TimedOut),
                // It was made, and the server has broken it off already.
                Err(e) if system::is_reset(&e) => {
                    self.connected(number);
                    if self.slots[number as usize].state != State::Over {
                        self.break_off(number, e);
                    }
                    return;
                }
                Err(e) => return self.close(number, End::ConnectFailed(e)),
            },
            (_, Some(socket)) => match self.content.check_file(socket) {
                Ok(()) => {}
                Err(Amiss::Socket(e)) => return self.fail_to_send(number, e),
                Err(amiss) => return self.close(number, End::from(amiss)),
            },
        }
        if receive || ended {
            self.receive(number);
        }
        self.send(number, self.moves.now_ns());
    }

    pub(super) fn connected(&mut self, number: u32) {
        let now = now_ns();
        let outstanding = self.spec.outstanding as usize;
        let began_ns = self.times[number as usize * outstanding];
        self.live.connects.record(now - began_ns);
        self.live.connected.one();
        self.standing += 1;
        self.live.open.set(self.standing);
        if let Some((_, last_ns)) = &mut self.making {
            *last_ns = now;
        }
        self.clock.cancel(number);
        let slot = &mut self.slots[number as usize];
        slot.state = State::Open;
        slot.timed = false;
        if let Some(socket) = &slot.socket {
            self.moves.connected(socket, number, self.spec.conduct != Conduct::Stuck);
        }
        if !self.spec.together {
            self.settle(number);
        }
        self.check_last_message(number);
    }

    /// Notes that a connection is made, or has failed.
    pub(super) fn settle(&mut self, number: u32) {
        let slot = &mut self.slots[number as usize];
        if std::mem::replace(&mut slot.settled, true) {
            return;
        }
        let block = slot.block;
        self.connecting -= 1;
        self.check_making();
        self.blocks[block as usize].unsettled -= 1;
        self.begin_schedule(block);
    }

    /// Receives what there is, and answers.
    pub(super) fn receive(&mut self, number: u32) {
        // One that is stuck reads when all end, or to learn how its connection has ended.
        let is_stuck = self.spec.conduct == Conduct::Stuck && !self.ending;
        if is_stuck && !self.slots[number as usize].ended {
            return;
        }
        for _ in 0..TURN {
            let slot = &self.slots[number as usize];
            let (false, Some(socket)) = (slot.state == State::Over, &slot.socket) else { return };
            match self.moves.receive(socket, number) {
                Ok(Some(0)) => return self.ended(number),
                Ok(Some(count)) => {
                    let now = self.moves.now_ns();
                    self.take(number, count, now);
                    self.check_last_message(number);
                    self.send(number, now);
                    // The end lies behind what came, if it was told.
                    let more = self.moves.may_be_more(count);
                    if !more && !self.slots[number as usize].ended {
                        return;
                    }
                }
                Ok(None) => return,
                Err(e) => return self.break_off(number, e),
            }
        }
        self.yield_turn(number);
    }

    /// Takes so many bytes of the buffer, which came on this connection.
    pub(super) fn take(&mut self, number: u32, count: usize, now: u64) {
        let Self { slots, times, live, spec, shared, moves, content, .. } = self;
        let slot = &mut slots[number as usize];
        let bytes = moves.received(count);
        live.receives.one();
        live.bytes_received.add(count as u64);
        if slot.state == State::ReadsRefusal {
            return self.read_refusal(number, count, None);
        }
        slot.waiting_since = self.clock.now();
        let outstanding = u64::from(spec.outstanding);
        let (measure_from_ns, end_ns) =
            (shared.measure_from_ns.load(Relaxed), shared.end_ns.load(Relaxed));
        let record = |intended_ns: u64, count: u64| {
            if count > 0 && (measure_from_ns..end_ns).contains(&intended_ns) {
                live.latencies.record_many(now.saturating_sub(intended_ns), count);
            }
        };
        // Those of a pipeline were begun together, and are recorded together.
        let (mut messages, mut intended_ns, mut alike) = (0, 0, 0);
        let over = |message: u64| {
            let place = u64::from(number) * outstanding + message % outstanding;
            let intended = times[place as usize];
            if intended != intended_ns {
                record(intended_ns, std::mem::take(&mut alike));
                intended_ns = intended;
            }
            alike += 1;
            messages += 1;
        };
        let result = match spec.one_way {
            false => slot.stream.received(bytes, content, over),
            true => Err(Amiss::Wrong(slot.stream.unexpected(bytes[0]))),
        };
        record(intended_ns, alike);
        live.messages_over.add(messages);
        match result {
            Ok(()) if slot.settled || slot.stream.over() == 0 => {}
            Ok(()) => self.settle(number),
            Err(Amiss::Wrong(wrong)) if slot.stream.is_fresh() => {
                self.read_refusal(number, count, Some(wrong));
            }
            Err(amiss) => self.close(number, End::from(amiss)),
        }
    }

    /// What came first is no echo: it may be a refusal.
    pub(super) fn read_refusal(&mut self, number: u32, count: usize, wrong: Option<Wrong>) {
        if let Some(wrong) = wrong {
            self.heard.insert(number, (Vec::new(), wrong));
        }
        let Some((bytes, wrong)) = self.heard.get_mut(&number) else { return };
        let room = refusal::REFUSAL_BYTES_MAX.saturating_sub(bytes.len());
        bytes.extend_from_slice(self.moves.received(count.min(room)));
        match refusal::read(bytes, false) {
            Heard::Perhaps => self.slots[number as usize].state = State::ReadsRefusal,
            Heard::Refusal(text) => self.close(number, End::RefusedByServer(text)),
            Heard::Other => {
                let wrong = *wrong;
                self.close(number, End::Wrong(wrong));
            }
        }
    }

    /// The server sends no more.
    pub(super) fn ended(&mut self, number: u32) {
        if let Some((bytes, wrong)) = self.heard.get(&number) {
            let end = match refusal::read(bytes, true) {
                Heard::Refusal(text) => End::RefusedByServer(text),
                _ => End::Wrong(*wrong),
            };
            return self.close(number, end);
        }
        let slot = &self.slots[number as usize];
        // A reset that follows an end is seen as an end, with the reset as the socket's error.
        let is_reset = || slot.socket.as_ref().is_some_and(|socket| socket.connected().is_err());
        if let Some(error) = self.unsendable.remove(&number) {
            return self.break_off(number, error);
        }
        let end = match slot.state {
            State::Broken => End::Reset,
            State::Ending if slot.stream.under_way() == 0 => End::Finished,
            _ if slot.stream.under_way() == 0 => End::EndedByServer,
            _ if is_reset() => End::Reset,
            _ if self.may_have_crossed(slot) => End::EndedByServer,
            _ => End::Truncated,
        };
        self.close(number, end);
    }

    /// Whether the messages under way on a connection that the server ended may have been sent before that
    /// end was to be seen here, and arrived when the server took nothing more: as happens to one that is
    /// stopped under load. What it had begun to answer, or had time to, it owed; and so where its end
    /// follows ours. A sink owes nothing.
    fn may_have_crossed(&self, slot: &Slot) -> bool {
        // Messages are not told apart by their age: a server that has several of a connection answers what
        // came before its stop, and each answer has the next message sent.
        let silent = self.clock.now().saturating_sub(slot.waiting_since);
        self.spec.one_way
            || slot.state == State::Open
                && silent < Wheel::ticks(CROSSING)
                && !slot.stream.is_within_an_answer(&self.content)
    }

    pub(super) fn break_off(&mut self, number: u32, error: io::Error) {
        let end = match self.heard.get(&number).map(|(bytes, _)| refusal::read(bytes, true)) {
            Some(Heard::Refusal(text)) => End::RefusedByServer(text),
            _ if system::is_reset(&error) => End::Reset,
            _ => End::Broken(error),
        };
        self.close(number, end);
    }
}
