//! Messages: when they begin, and on their way out.

use super::{DUE_AT_ONCE, End, Slot, State, TURN, Worker};
use crate::{
    clock::now_ns,
    tcp::{Conduct, Pace, content::Amiss, moves::Sending, run::NEVER, system::Socket},
};
use std::{cmp::Reverse, io, sync::atomic::Ordering::Relaxed};

impl Worker<'_> {
    /// Sends every message of an open loop that is due.
    pub(super) fn send_what_is_due(&mut self) {
        // A number of them: what has come wants to be received, too.
        for _ in 0..DUE_AT_ONCE {
            let now = now_ns();
            let Some(Reverse((due_ns, number))) = self.due.peek().copied() else { return };
            if due_ns > now || self.ending {
                return;
            }
            self.due.pop();
            let block = &mut self.blocks[number as usize];
            let (place, message) = (
                (block.next % u64::from(block.connections)) as u32,
                block.next / u64::from(block.connections),
            );
            block.next += 1;
            let slot = block.first + place;
            let schedule = block.schedule.as_ref().expect("only such are due");
            let next_ns = schedule.due_ns(block.next);
            if self.spec.sends.is_none_or(|sends| message < sends) {
                self.due.push(Reverse((next_ns, number)));
            }
            let Slot { stream, state, .. } = &self.slots[slot as usize];
            let held_up = stream.under_way() >= u64::from(self.spec.outstanding)
                || stream.begun() != message
                || *state != State::Open;
            if !held_up && due_ns >= self.shared.measure_from_ns.load(Relaxed) {
                self.live.delays.record(now - due_ns);
            }
            self.send(slot, now);
        }
    }

    /// Where none sends a second message before all connections are made: now they are.
    pub(super) fn begin_together(&mut self, now: u64) {
        if self.begun || self.shared.end_ns.load(Relaxed) == NEVER {
            return;
        }
        self.begun = true;
        for number in 0..self.slots.len() as u32 {
            self.send(number, now);
        }
    }

    /// Begins every message of a connection that may begin, and sends what there is room for.
    pub(super) fn send(&mut self, number: u32, now: u64) {
        for _ in 0..TURN {
            self.begin_messages(number, now);
            let Self { slots, moves, content, .. } = self;
            let slot = &mut slots[number as usize];
            let (State::Open, Some(socket)) = (slot.state, &slot.socket) else { return };
            if slot.sending > 0 {
                return; // the rest follows when it is over
            }
            if slot.stream.unsent() == 0 {
                if socket.is_sending_a_file() {
                    self.await_room(number);
                } else if self.spec.one_way || self.spec.half_close {
                    self.check_last_message(number);
                }
                return;
            }
            let (asked, taken) = match slot.stream.send(moves, (socket, number), content) {
                Ok(Sending { asked, under_way: true, .. }) => {
                    slot.sending = asked as u32;
                    return;
                }
                Ok(Sending { asked, taken: Some(taken), .. }) => (asked, taken),
                Ok(Sending { taken: None, .. }) => return self.await_room(number),
                Err(Amiss::Socket(e)) => return self.fail_to_send(number, e),
                Err(amiss) => return self.close(number, End::from(amiss)),
            };
            self.note_sent(number, taken);
            if taken < asked {
                self.live.short_sends.one();
                return self.await_room(number);
            }
        }
        self.yield_turn(number);
    }

    /// The system took so many bytes of a connection.
    fn note_sent(&mut self, number: u32, taken: usize) {
        self.live.sends.one();
        self.live.bytes_sent.add(taken as u64);
        let Self { slots, live, content, .. } = self;
        let slot = &mut slots[number as usize];
        if self.spec.one_way {
            slot.waiting_since = self.clock.now();
            slot.stream.end_taken(content, |_| live.messages_over.one());
        }
        if self.spec.one_way || self.spec.half_close || self.ending {
            self.check_last_message(number);
        }
    }

    /// A send that was under way is over: the bytes taken, or the system's number of the error.
    #[inline]
    pub(super) fn sent(&mut self, number: u32, sent: Result<usize, i32>) {
        let slot = &mut self.slots[number as usize];
        let asked = std::mem::take(&mut slot.sending) as usize;
        let taken = match sent {
            Ok(taken) => taken,
            Err(error) => {
                slot.stream.not_taken(asked);
                let error = io::Error::from_raw_os_error(error);
                return match error.kind() {
                    // The connection may be over by now.
                    _ if slot.state == State::Over => {}
                    io::ErrorKind::WouldBlock => self.await_room(number),
                    io::ErrorKind::Interrupted => self.send(number, self.moves.now_ns()),
                    _ => self.fail_to_send(number, error),
                };
            }
        };
        slot.stream.not_taken(asked - taken);
        self.note_sent(number, taken);
        if taken < asked {
            self.live.short_sends.one();
            return self.await_room(number);
        }
        // What was begun meanwhile, or may begin now.
        if self.spec.one_way || self.slots[number as usize].stream.unsent() > 0 {
            self.send(number, self.moves.now_ns());
        }
    }

    /// It goes on when there is room.
    fn await_room(&mut self, number: u32) {
        let Some(socket) = &self.slots[number as usize].socket else { return };
        if let Err(e) = self.moves.await_room(socket, number) {
            self.fail_to_send(number, e);
        }
    }

    /// Others have their turn before the rest of it.
    pub(super) fn yield_turn(&mut self, number: u32) {
        if !std::mem::replace(&mut self.slots[number as usize].again, true) {
            self.again.push(number);
        }
    }

    pub(super) fn begin_messages(&mut self, number: u32, now: u64) {
        let slot = &mut self.slots[number as usize];
        if slot.state != State::Open || self.ending || self.spec.conduct == Conduct::Silent {
            return;
        }
        let outstanding = u64::from(self.spec.outstanding);
        let most = if self.begun { self.spec.sends.unwrap_or(u64::MAX) } else { 1 };
        let block = &self.blocks[slot.block as usize];
        let paced = self.spec.pace != Pace::Closed;
        let (was_idle, before) = (slot.stream.under_way() == 0, slot.stream.begun());
        while slot.stream.under_way() < outstanding && slot.stream.begun() < most {
            let message = slot.stream.begun();
            let intended_ns = match &block.schedule {
                Some(schedule) => schedule.due_on_ns(number - block.first, message),
                None if paced => break,
                None => now,
            };
            if intended_ns > now {
                break;
            }
            let place = u64::from(number) * outstanding + message % outstanding;
            self.times[place as usize] = intended_ns;
            slot.stream.begin(&self.content);
        }
        self.live.messages_sent.add(slot.stream.begun() - before);
        if was_idle && slot.stream.under_way() > 0 {
            slot.waiting_since = self.clock.now();
            if !slot.timed {
                self.set_timer(number, self.spec.answer_timeout);
            }
        }
    }

    /// What the server said before it broke the connection off can still be received.
    pub(super) fn fail_to_send(&mut self, number: u32, error: io::Error) {
        let slot = &mut self.slots[number as usize];
        (slot.state, slot.ended) = (State::Broken, true);
        if self.moves.tells_what_is_left() {
            // Nothing follows, so that its end is told.
            slot.socket.iter().for_each(Socket::end_both);
            self.unsendable.insert(number, error);
            return self.receive(number);
        }
        self.receive(number);
        if self.slots[number as usize].state == State::Broken {
            self.break_off(number, error);
        }
    }

    /// Tells the server that nothing follows, if all that was to be sent is over, or, with a half-close,
    /// taken by the system; and sees to it that the server ends, too.
    pub(super) fn check_last_message(&mut self, number: u32) {
        let slot = &mut self.slots[number as usize];
        let over = slot.stream.under_way() == 0;
        if slot.state == State::Ending && over {
            return self.wait_for_the_end(number);
        }
        let (State::Open, Some(socket)) = (slot.state, &slot.socket) else { return };
        if slot.sending > 0 {
            return; // it is looked at again when that is over
        }
        let sends = self.spec.sends.unwrap_or(u64::MAX);
        let enough = match self.spec.half_close {
            true => slot.stream.begun() >= sends && slot.stream.unsent() == 0,
            false => slot.stream.over() >= sends,
        };
        let ending = self.ending && (over || self.spec.half_close && slot.stream.unsent() == 0);
        if !enough && !ending {
            return;
        }
        // Nothing says that an end waits for what is under way of a file.
        if socket.is_sending_a_file() {
            return self.await_room(number);
        }
        match socket.end_sending() {
            Ok(()) => {
                slot.state = State::Ending;
                if over {
                    self.wait_for_the_end(number);
                }
            }
            Err(e) => self.break_off(number, e),
        }
    }

    /// All was answered: the server is given some time to close its side.
    fn wait_for_the_end(&mut self, number: u32) {
        self.slots[number as usize].waiting_since = self.clock.now();
        self.set_timer(number, self.spec.drain);
    }
}
