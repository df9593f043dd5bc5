//! What is to be with the kernel before anybody waits: receives, accepts, and what ends the wait.

use super::{
    one_ring::{NONE, state},
    queue::UringStreamQueue,
    requests::{self, class},
};
use crate::{
    memory::{Posted, Slice},
    ring::Token,
    rio::streams::{Idle, Receiving},
};

impl UringStreamQueue {
    /// Arms the receive of a connection that wants one, unless one is under way or must not be.
    #[inline]
    pub(super) fn arm(&mut self, at: usize, place: u32) {
        let known = self.place(at, place);
        // A receive that goes along with the question could be counted in its answer.
        let not_now = state::RECEIVING | state::ASKING | state::CLOSING;
        if known.is(not_now) || !known.is(state::WANTED) {
            return;
        }
        known.state |= state::RECEIVING;
        let (posted, is_local) = (known.posted, known.is(state::LOCAL));
        let token = self.token(class::RECEIVE, at, place);
        let layout = self.slices.region.layout();
        let entry = match self.needs.receiving {
            // One that goes on can miss the end of a Unix stream: see the module `streams`.
            Receiving::Shared { idle: Idle::Receive, .. } if is_local => {
                requests::receive_next(place, token, layout.payload as u32)
            }
            Receiving::Shared { idle: Idle::Receive, .. } => requests::receive_many(place, token),
            Receiving::Shared { idle: Idle::Poll, .. } => {
                self.place(at, place).state |= state::POLLING;
                requests::wait_to_receive(place, token)
            }
            Receiving::Posted { .. } => {
                let (first, _) = self.slices.region.extent();
                let offset = posted as usize * layout.stride + layout.headroom;
                let address = first.as_ptr().wrapping_add(offset);
                requests::receive_one(place, token, address, layout.payload as u32)
            }
        };
        // SAFETY: buffers of a group live until it was taken away; a posted slice is this receive's until
        // its completion.
        unsafe { self.push(at, entry) };
    }

    /// A question whether something came is over: receives it, if it is still to be received.
    pub(super) fn something_came(&mut self, at: usize, place: u32) {
        let known = self.place(at, place);
        if !known.is(state::WANTED) || known.is(state::ASKING | state::CLOSING) {
            known.state &= !(state::RECEIVING | state::RECEIVE_CANCELLED);
            if known.is(state::CLOSING) {
                self.go_on_closing(at, place);
            }
            return;
        }
        let token = self.token(class::RECEIVE, at, place);
        let len = self.slices.region.layout().payload as u32;
        // SAFETY: buffers of a group live until it was taken away.
        unsafe { self.push(at, requests::receive_what_came(place, token, len)) };
    }

    /// Takes the slice that the kernel received into, where slices are posted, and lets the next follow.
    pub(super) fn take_posted(&mut self, at: usize, place: u32) -> Option<Slice> {
        let behind = &self.behind;
        let known = &mut self.rings[at].places[place as usize];
        if known.posted == NONE {
            return None;
        }
        let index = known.posted;
        known.posted = behind[index as usize];
        if known.posted == NONE {
            known.state &= !state::WANTED;
        }
        // SAFETY: it was posted from this region for this connection, and its receive is over, or it never
        // began.
        Some(unsafe { Posted::from_index(index).reclaim(&self.slices.region) })
    }

    /// Asks for as many connections as there is room for.
    pub(super) fn ask_for_connections(&mut self) {
        while let Some(listener) = self.accepts.next() {
            let Some((at, place)) = self.take_place() else { return };
            let (token, name) = self.accepts.insert(listener, at, place);
            let fd = self.accepts.fd(listener);
            let entry = match self.accepts.is_local(listener) {
                true => requests::accept_local(fd, name, token),
                false => requests::accept(fd, place, name, token),
            };
            // SAFETY: the name is the accept's until its completion, and never moves.
            unsafe { self.push(at, entry) };
        }
    }

    /// A place for a connection, in the first ring that has one, or in one more.
    pub(super) fn take_place(&mut self) -> Option<(usize, u32)> {
        for (at, ring) in self.rings.iter_mut().enumerate() {
            if let Some(place) = ring.take_place() {
                return Some((at, place));
            }
        }
        if self.rings.len() == self.most_rings {
            return None;
        }
        match super::one_more(self) {
            Ok(()) => {
                let at = self.rings.len() - 1;
                self.rings[at].take_place().map(|place| (at, place))
            }
            Err(_) => {
                // Connections wait: perhaps there is one to be had later, or a place before.
                self.accepts.pause();
                self.no_ring = true;
                None
            }
        }
    }

    /// Does what is to be done before a look or a wait: arms what wakes it, asks for connections, and makes
    /// room for what found none.
    pub(super) fn keep_up(&mut self) {
        if self.accepts.is_short() {
            self.ask_for_connections();
        }
        if !self.alarm_armed || (self.rings.len() > 1 && !self.wake_armed) {
            self.arm_what_wakes();
        }
        for ring in &mut self.rings {
            if let Err(e) = ring.flush(&self.counters) {
                self.broken.get_or_insert(e);
            }
        }
    }

    #[cold]
    fn arm_what_wakes(&mut self) {
        if !self.alarm_armed {
            self.alarm.reset();
            let entries = self.alarm.entries(Token::bare(class::ALARM));
            // They are linked, so both go or neither. SAFETY: what they point at is static.
            let mut armed = unsafe { self.rings[0].submissions.push(&entries) }.is_ok();
            if !armed {
                match self.rings[0].submissions.submit(&self.counters) {
                    // SAFETY: as above.
                    Ok(()) => armed = unsafe { self.rings[0].submissions.push(&entries) }.is_ok(),
                    Err(e) => drop(self.broken.get_or_insert(e)),
                }
            }
            self.alarm_armed = armed;
        }
        if self.rings.len() > 1 && !self.wake_armed {
            let entry = requests::watch(self.wake_event.fd(), Token::bare(class::WAKE_EVENT));
            // SAFETY: it points at nothing.
            unsafe { self.push(0, entry) };
            self.wake_armed = true;
        }
    }
}
