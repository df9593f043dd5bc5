//! Posting: slices are gathered here and told to the kernel at commit.

use super::common::Common;
use crate::{
    counters::Counters,
    memory::{Posted, Slice},
    rio::{
        Peer, Refused, RequestQueue, Span,
        requests::{Outgoing, Reserved, of_region},
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
    reserved: Reserved,
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
            reserved: Reserved::default(),
            kick,
        }
    }

    /// A slice that may be posted.
    #[inline]
    fn checked(&self, slice: Slice) -> Result<Slice, (Slice, Refused)> {
        match self.common.is_stopped() {
            true => Err((slice, Refused::Stopped)),
            false => of_region(slice, &self.common.region),
        }
    }

    /// Gives back what was not committed, and counts it.
    pub(super) fn give_back(&mut self) -> u32 {
        let receives = self.common.take_back(self.receives.drain(..));
        let sends = self.sends.drain(..).count() as u32;
        self.common.receives_out.take_off(receives);
        self.reserved.give_up(|left| self.common.receives_out.take_off(left));
        self.common.sends_out.take_off(sends);
        receives + sends
    }
}

impl<T: Sharing> RequestQueue for XdpRequests<T> {
    #[inline]
    fn receive(&mut self, slice: Slice) -> Result<(), (Slice, Refused)> {
        let slice = self.checked(slice)?;
        let Self { common, reserved, .. } = self;
        if let Err(refused) = reserved.take(|more| common.count_receives(more)) {
            return Err((slice, refused));
        }
        self.receives.push(slice.post());
        Ok(())
    }

    fn reserve(&mut self, receives: u32) {
        let Self { common, reserved, .. } = self;
        reserved.fill(receives, |more| common.count_receives(more));
    }

    #[inline]
    fn send(
        &mut self,
        slice: Slice,
        span: impl Into<Span>,
        to: &Peer,
    ) -> Result<(), (Slice, Refused)> {
        let slice = self.checked(slice)?;
        let common = &self.common;
        let outstanding = (&common.sends_out, common.needs.sends);
        self.sends.push(Outgoing::new(slice, span.into(), to, outstanding)?);
        Ok(())
    }

    fn commit(&mut self, counters: &Counters) -> io::Result<()> {
        let Self { common, endpoint, receives, sends, reserved, kick } = self;
        reserved.give_up(|left| common.receives_out.take_off(left));
        let bound = &common.bounds[*endpoint as usize];
        let port = &common.ports[bound.port];
        let rouse = !receives.is_empty()
            && port
                .filling
                .with(|filling| !common.is_stopped() && filling.post(receives, &common.table));
        if rouse {
            counters.kernel_entries.one();
            port.socket().rouse();
        }
        if common.is_stopped() {
            return Err(Refused::Stopped.into());
        }
        if sends.is_empty() {
            return Ok(());
        }
        port.transmit.with(|transmit| {
            if common.is_stopped() {
                return Err(Refused::Stopped.into());
            }
            transmit.push(sends, *endpoint, bound, &port.device, &common.table, counters);
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
