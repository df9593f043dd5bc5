//! Closing a connection once nothing of it is under way, and giving everything back at the end.

use super::{
    one_ring::{NONE, state},
    queue::UringStreamQueue,
    requests::{self, class},
};
use crate::rio::{
    Batch,
    streams::{StreamCompletion, StreamQueue as _},
};

impl UringStreamQueue {
    /// Goes on with a close, as far as what is under way lets it.
    pub(super) fn go_on_closing(&mut self, at: usize, place: u32) {
        let receive = self.token(class::RECEIVE, at, place);
        let known = self.place(at, place);
        let state = known.state;
        if state & state::CLOSED != 0 {
            return;
        }
        let (receiving, sending) = (state & state::RECEIVING != 0, state & state::SENDING != 0);
        let (cancel_receive, cancel_send) = (
            receiving && state & state::RECEIVE_CANCELLED == 0,
            sending && state & state::SEND_CANCELLED == 0,
        );
        let send = known.send;
        if cancel_receive {
            known.state |= state::RECEIVE_CANCELLED;
        }
        if cancel_send {
            known.state |= state::SEND_CANCELLED;
        }
        if state & state::UNDER_WAY == 0 {
            known.state |= state::CLOSED;
        }
        if cancel_receive {
            self.cancel(at, receive);
        }
        if cancel_send {
            self.cancel(at, send);
        }
        if state & state::UNDER_WAY != 0 {
            return;
        }
        while let Some(slice) = self.take_posted(at, place) {
            self.give_back(slice);
        }
        let token = self.token(class::CLOSE, at, place);
        // SAFETY: the option's value is static; a close points at nothing. Both are done in their order as
        // they are submitted.
        unsafe {
            if state & state::ABRUPT != 0 {
                self.push(at, requests::reset_when_closed(place));
            }
            self.push(at, requests::close(place, token));
        }
    }

    /// A close is over, unless the kernel still reads what was sent.
    pub(super) fn gone(&mut self, at: usize, place: u32, out: &mut Batch<StreamCompletion>) {
        let connection = self.id(at, place as usize);
        let known = self.place(at, place);
        known.state |= state::GONE;
        if known.notices > 0 {
            return;
        }
        self.rings[at].free_place(place);
        self.open -= 1;
        out.push(StreamCompletion::Closed { connection });
    }

    /// Takes back what no request uses any more. Returns how many slices could not be.
    pub(super) fn end(&mut self) -> u32 {
        for slice in self.free.drain(..) {
            // SAFETY: nobody holds it: it was put there as its receive was over.
            drop(unsafe { slice.reclaim(&self.slices.region) });
        }
        let mut ended = true;
        for ring in &mut self.rings {
            if let Some(group) = &mut ring.group {
                if ring.ring.take_buffers_away(requests::GROUP).is_ok() {
                    // SAFETY: the kernel gave it up, and no request is left.
                    unsafe { group.take_all(&mut self.slices) };
                } else {
                    ended = false;
                }
            }
        }
        self.ended = ended;
        self.in_kernel()
    }

    /// Slices that the kernel holds.
    pub(super) fn in_kernel(&self) -> u32 {
        let given: u32 = self
            .rings
            .iter()
            .filter_map(|ring| ring.group.as_ref())
            .map(|group| group.held())
            .sum();
        let mut posted = 0;
        for place in self.rings.iter().flat_map(|ring| &ring.places) {
            let mut next = place.posted;
            while next != NONE {
                posted += 1;
                next = self.behind[next as usize];
            }
        }
        given + posted + self.loads.slices()
    }
}

/// Closing the rings cancels what is under way, but only after this: so everything that the kernel may read
/// or write until then stays where it is for ever.
impl Drop for UringStreamQueue {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        for slice in self.free.drain(..) {
            // SAFETY: nobody holds it.
            drop(unsafe { slice.reclaim(&self.slices.region) });
        }
        self.slices.region.count_leaked(self.in_kernel());
        for group in self.rings.iter_mut().filter_map(|ring| ring.group.as_mut()) {
            group.leak();
        }
        self.loads.leak();
        self.accepts.leak();
    }
}
