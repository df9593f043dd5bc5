//! Time that runs out, and how connections end.

use super::{End, Slot, State, Worker};
use crate::tcp::{Conduct, content::Amiss, system};
use std::{
    io,
    sync::atomic::Ordering::Relaxed,
    time::{Duration, Instant},
};
use weir::timer::{TICK, Wheel};

impl From<Amiss> for End {
    fn from(amiss: Amiss) -> Self {
        match amiss {
            Amiss::Wrong(wrong) => End::Wrong(wrong),
            Amiss::File(text) => End::FileAmiss(text),
            Amiss::Socket(error) => End::Broken(error),
        }
    }
}

/// What to do about a connection that was not made, where more is known than the system says by itself.
fn hint(error: &io::Error) -> Option<&'static str> {
    if system::is_no_port(error) {
        return Some("no port is left for it (ip_local_port_range)");
    }
    if system::is_of_another_kind(error) {
        return Some(
            "it is a Unix socket of datagrams, and a load sends streams: name one of `weir serve tcp --unix`",
        );
    }
    Some(match error.kind() {
        // Of a Unix socket, which does not wait: on TCP the system repeats it.
        io::ErrorKind::WouldBlock => {
            "the server's backlog is full of connections that wait to be accepted: make fewer at a time \
             (--connecting), or give the server a longer one (--backlog)"
        }
        io::ErrorKind::NotFound => "nothing has that name: start the server first, or name another",
        io::ErrorKind::PermissionDenied => {
            "this user may not write to it: the server says with --unix-mode who may"
        }
        _ => return None,
    })
}

impl Worker<'_> {
    pub(super) fn set_timer(&mut self, number: u32, time: Duration) {
        self.slots[number as usize].timed = true;
        // The clock stands at the last tick looked at, which may be over.
        let due = self.clock.now().saturating_add(1).saturating_add(Wheel::ticks(time));
        self.clock.set(number, due);
    }

    pub(super) fn check_clock(&mut self, now: u64) {
        if now < self.clock_looked_ns + TICK.as_nanos() as u64 {
            return;
        }
        self.clock_looked_ns = now;
        let mut expired = std::mem::take(&mut self.expired);
        self.clock.expired(Instant::now(), &mut expired);
        while let Some(number) = expired.pop() {
            self.timed(number);
        }
        self.expired = expired;
    }

    /// A connection's timer fell due.
    pub(super) fn timed(&mut self, number: u32) {
        let slot = &mut self.slots[number as usize];
        slot.timed = false;
        let waited = self.clock.now().saturating_sub(slot.waiting_since);
        match slot.state {
            State::Over => {}
            State::Connecting => self.close(number, End::TimedOut),
            State::Ending if slot.stream.under_way() == 0 => self.close(number, End::LeftOpen),
            _ if slot.stream.under_way() == 0 => {}
            // It waits for no answer.
            _ if self.spec.conduct == Conduct::Stuck && !self.ending => {
                self.set_timer(number, self.spec.answer_timeout);
            }
            _ => match Wheel::ticks(self.spec.answer_timeout).saturating_sub(waited) {
                0 => self.close(number, End::Unanswered),
                left => self.set_timer(number, TICK * left),
            },
        }
    }

    pub(super) fn check_end(&mut self, now: u64) {
        let end_ns = self.shared.end_ns.load(Relaxed);
        if now < end_ns {
            return;
        }
        if !std::mem::replace(&mut self.ending, true) {
            // It is no fault that those are not begun which nobody waits for.
            self.gave_up = true;
            self.due.clear();
            for number in 0..self.slots.len() as u32 {
                match self.slots[number as usize].state {
                    State::Connecting => self.close(number, End::Unfinished),
                    // Nothing tells again of what came while it was stuck.
                    State::Open if self.spec.conduct == Conduct::Stuck => {
                        self.slots[number as usize].waiting_since = self.clock.now();
                        self.yield_turn(number);
                        self.check_last_message(number);
                    }
                    _ => self.check_last_message(number),
                }
            }
        }
        let drained_ns = end_ns.saturating_add(self.spec.drain.as_nanos() as u64);
        if now >= drained_ns.min(self.shared.drained_ns.load(Relaxed)) {
            self.end_all(|slot| match slot.state {
                State::Ending if slot.stream.under_way() == 0 => End::LeftOpen,
                _ => End::CutOff,
            });
        }
    }

    pub(super) fn end_all(&mut self, end: impl Fn(&Slot) -> End) {
        for number in 0..self.slots.len() as u32 {
            let slot = &self.slots[number as usize];
            match slot.state {
                State::Over => {}
                State::Connecting => self.close(number, End::Unfinished),
                _ => self.close(number, end(slot)),
            }
        }
    }

    pub(super) fn close(&mut self, number: u32, end: End) {
        let slot = &mut self.slots[number as usize];
        let was = std::mem::replace(&mut slot.state, State::Over);
        debug_assert_ne!(was, State::Over, "a connection ends once");
        self.moves.forget(number);
        slot.socket = None;
        self.clock.cancel(number);
        if !self.heard.is_empty() {
            self.heard.remove(&number);
        }
        if !self.unsendable.is_empty() {
            self.unsendable.remove(&number);
        }
        self.open -= 1;
        let live = self.live;
        let count = match &end {
            End::Refused => &live.refused,
            End::TimedOut => &live.timed_out,
            End::ConnectFailed(_) => &live.connect_failed,
            End::Unfinished => &live.unfinished,
            End::Finished => &live.finished,
            End::RefusedByServer(_) => &live.refused_by_server,
            End::Reset => &live.reset,
            End::Broken(_) | End::FileAmiss(_) => &live.broken,
            End::EndedByServer => &live.ended_by_server,
            End::Truncated => &live.truncated,
            End::Wrong(_) => &live.wrong,
            End::Unanswered => &live.unanswered,
            End::CutOff => &live.cut_off,
            End::LeftOpen => &live.left_open,
        };
        count.one();
        match end {
            End::ConnectFailed(e) => {
                let hint = hint(&e).map_or(String::new(), |hint| format!("; {hint}"));
                self.outcome.causes.add(format!("connecting: {e}{hint}"), 1);
            }
            End::Broken(e) => self.outcome.causes.add(format!("connected: {e}"), 1),
            End::RefusedByServer(text) => self.outcome.refusals.add(text, 1),
            End::FileAmiss(text) => {
                self.outcome.causes.add(text.clone(), 1);
                self.outcome.file_problem.get_or_insert(text);
            }
            End::Wrong(wrong) => {
                self.outcome.wrong.get_or_insert(wrong);
            }
            _ => {}
        }
        self.settle(number);
        if was != State::Connecting {
            self.standing -= 1;
            self.live.open.set(self.standing);
        }
    }
}
