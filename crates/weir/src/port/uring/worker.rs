//! A thread's place at the port.

use super::{inner::Inner, operations::Operations};
use crate::{
    counters::Counters,
    memory::Slice,
    port::{Cancelled, Refused, SocketId, Taken, Token, Worker, limit::Seat},
    rio::{Peer, Span},
};
use std::{io, marker::PhantomData, time::Duration};

/// A thread's place at a [`UringPort`](super::UringPort).
pub struct UringWorker<'a> {
    port: &'a Inner<Operations>,
    seat: Seat<'a>,
    /// It stays on its thread: there it runs or not.
    stays: PhantomData<*const ()>,
}

impl<'a> UringWorker<'a> {
    pub(super) fn new(port: &'a Inner<Operations>, seat: Seat<'a>) -> Self {
        Self { port, seat, stays: PhantomData }
    }
}

impl Worker for UringWorker<'_> {
    fn take(
        &mut self,
        out: &mut Taken,
        timeout: Option<Duration>,
        counters: &Counters,
    ) -> io::Result<Option<usize>> {
        self.port.take(&mut self.seat, out, timeout, counters)
    }

    #[inline]
    fn receive(&mut self, socket: SocketId, slice: Slice) -> Result<Token, (Slice, Refused)> {
        self.port.with(|state| match state.closed {
            true => Err((slice, Refused::Closed)),
            false => state.operations.receive(socket, slice),
        })
    }

    #[inline]
    fn receive_all(&mut self, socket: SocketId, slices: &mut Vec<Slice>) -> Result<(), Refused> {
        self.port.with(|state| {
            if state.closed {
                return Err(Refused::Closed);
            }
            while let Some(slice) = slices.pop() {
                if let Err((slice, refused)) = state.operations.receive(socket, slice) {
                    slices.push(slice);
                    return Err(refused);
                }
            }
            Ok(())
        })
    }

    #[inline]
    fn send(
        &mut self,
        socket: SocketId,
        slice: Slice,
        span: impl Into<Span>,
        to: &Peer,
    ) -> Result<Token, (Slice, Refused)> {
        let span = span.into();
        if span.len > slice.region().layout().payload {
            return Err((slice, Refused::TooLong));
        }
        self.port.with(|state| match state.closed {
            true => Err((slice, Refused::Closed)),
            false => state.operations.send(socket, slice, span, to),
        })
    }

    fn commit(&mut self, counters: &Counters) -> io::Result<()> {
        self.port.commit(counters)
    }

    fn cancel(&mut self, token: Token, counters: &Counters) -> Cancelled {
        let asked = self.port.with(|state| state.cancel(token, counters));
        if asked { Cancelled::Asked } else { Cancelled::Gone }
    }

    fn blocking<R>(&mut self, counters: &Counters, f: impl FnOnce() -> R) -> io::Result<R> {
        self.port.commit(counters)?;
        self.seat.leave();
        let result = f();
        self.seat.enter();
        Ok(result)
    }
}
