//! A thread's place at the port.

use super::operations::Operations;
use crate::{
    counters::Counters,
    memory::{Load, Slice},
    port::{
        Cancelled, Refused, Token,
        limit::Seat,
        streams::{Closing, ListenerId, StreamId, Taken, Worker},
        uring::inner::Inner,
    },
};
use std::{io, marker::PhantomData, time::Duration};

/// A thread's place at a [`UringStreamsPort`](super::UringStreamsPort).
pub struct StreamsWorker<'a> {
    port: &'a Inner<Operations>,
    seat: Seat<'a>,
    /// It stays on its thread: there it runs or not.
    stays: PhantomData<*const ()>,
}

impl<'a> StreamsWorker<'a> {
    pub(super) fn new(port: &'a Inner<Operations>, seat: Seat<'a>) -> Self {
        Self { port, seat, stays: PhantomData }
    }
}

impl Worker for StreamsWorker<'_> {
    fn take(
        &mut self,
        out: &mut Taken,
        timeout: Option<Duration>,
        counters: &Counters,
    ) -> io::Result<Option<usize>> {
        self.port.take(&mut self.seat, out, timeout, counters)
    }

    fn accept(&mut self, listener: ListenerId) -> Result<Token, Refused> {
        self.port.with(|state| match state.closed {
            true => Err(Refused::Closed),
            false => state.operations.accept(listener),
        })
    }

    #[inline]
    fn receive(&mut self, stream: StreamId, slice: Slice) -> Result<Token, (Slice, Refused)> {
        let started = self.port.with(|state| match state.closed {
            true => Err((Some(slice), Refused::Closed)),
            false => state.operations.receive(stream, Some(slice)),
        });
        started.map_err(|(slice, refused)| (slice.expect("the one that was given"), refused))
    }

    #[inline]
    fn wait_to_receive(&mut self, stream: StreamId) -> Result<Token, Refused> {
        self.port.with(|state| match state.closed {
            true => Err(Refused::Closed),
            false => state.operations.receive(stream, None).map_err(|(_, refused)| refused),
        })
    }

    #[inline]
    fn send(&mut self, stream: StreamId, load: Load) -> Result<Token, (Load, Refused)> {
        debug_assert!(!load.left().is_empty(), "a send of nothing");
        self.port.with(|state| match state.closed {
            true => Err((load, Refused::Closed)),
            false => state.operations.send(stream, load),
        })
    }

    fn close(&mut self, stream: StreamId, _: &Counters) -> Closing {
        self.port.with(|state| state.operations.close(stream))
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
