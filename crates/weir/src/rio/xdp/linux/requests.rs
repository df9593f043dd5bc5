//! Posting: slices are gathered here and told to the kernel at commit.

use super::common::{Common, Outgoing};
use crate::{
    counters::Counters,
    memory::{Posted, Slice},
    rio::{
        Full, Peer, RequestQueue, Span,
        sharing::{Count as _, Shared as _, Sharing},
    },
    wake::Waker,
};
use std::{io, sync::Arc};

/// The request queue of one address.
pub struct XdpRequests<T: Sharing> {
    common: Arc<Common<T>>,
    /// The address, by its place.
    endpoint: u32,
    /// Posted since the last commit.
    receives: Vec<Posted>,
    sends: Vec<Outgoing>,
    /// Counted as outstanding, and not posted.
    reserved: u32,
    /// Ends the wait of the completion queue, so that it looks again.
    kick: Waker,
}

impl<T: Sharing> XdpRequests<T> {
    pub(super) fn new(common: &Arc<Common<T>>, endpoint: u32, kick: Waker) -> Self {
        Self {
            common: Arc::clone(common),
            endpoint,
            receives: Vec::with_capacity(common.needs.receives as usize),
            sends: Vec::with_capacity(common.needs.sends as usize),
            reserved: 0,
            kick,
        }
    }

    /// Gives back what was not committed, and counts it.
    pub(super) fn give_back(&mut self) -> u32 {
        let receives = self.common.take_back(self.receives.drain(..));
        let sends = self.sends.drain(..).count() as u32;
        self.common.receives_out.take_off(receives + std::mem::take(&mut self.reserved));
        self.common.sends_out.take_off(sends);
        receives + sends
    }
}

impl<T: Sharing> RequestQueue for XdpRequests<T> {
    #[inline]
    fn receive(&mut self, slice: Slice) -> Result<(), (Slice, Full)> {
        assert!(Arc::ptr_eq(slice.region(), &self.common.region), "a slice of another region");
        if self.reserved == 0 {
            self.reserve(1);
        }
        let Some(left) = self.reserved.checked_sub(1) else { return Err((slice, Full)) };
        self.reserved = left;
        self.receives.push(slice.post());
        Ok(())
    }

    fn reserve(&mut self, receives: u32) {
        let more = receives.saturating_sub(self.reserved);
        self.reserved += self.common.receives_out.add_below(more, self.common.needs.receives);
    }

    #[inline]
    fn send(
        &mut self,
        slice: Slice,
        span: impl Into<Span>,
        to: &Peer,
    ) -> Result<(), (Slice, Full)> {
        let span = span.into();
        assert!(Arc::ptr_eq(slice.region(), &self.common.region), "a slice of another region");
        let room = slice.payload().len();
        assert!(span.len <= room, "{} bytes of {room}", span.len);
        if self.common.sends_out.add_below(1, self.common.needs.sends) == 0 {
            return Err((slice, Full));
        }
        self.sends.push(Outgoing { slice, span, to: *to });
        Ok(())
    }

    fn commit(&mut self, counters: &Counters) -> io::Result<()> {
        let Self { common, endpoint, receives, sends, reserved, kick } = self;
        if *reserved > 0 {
            common.receives_out.take_off(std::mem::take(reserved));
        }
        let bound = &common.bounds[*endpoint as usize];
        let port = &common.ports[bound.port];
        if !receives.is_empty()
            && port.filling.with(|filling| filling.post(receives, &common.table))
        {
            counters.kernel_entries.one();
            port.socket().rouse();
        }
        if sends.is_empty() {
            return Ok(());
        }
        port.transmit.with(|transmit| {
            transmit.push(sends, *endpoint, bound, &port.device, &common.table);
            transmit.kick(port.socket(), || counters.kernel_entries.one())
        })?;
        // Nothing tells a thread that waits of sends that are over: it has to know of them.
        if common.signals.sends_left() {
            counters.kernel_entries.one();
            kick.wake();
        }
        Ok(())
    }

    fn outstanding(&self) -> (u32, u32) {
        (self.common.receives_out.get(), self.common.sends_out.get())
    }
}

impl<T: Sharing> Drop for XdpRequests<T> {
    fn drop(&mut self) {
        self.give_back();
    }
}
