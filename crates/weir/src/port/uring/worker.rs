//! A thread's place at the port.

use super::{operations::Operations, place::Place};
use crate::{
    counters::Counters,
    gather::Gather,
    memory::Slice,
    port::{Cancelled, Refused, SocketId, Taken, Token, Worker},
    rio::{Peer, Span},
};
use std::{io, time::Duration};

/// A thread's place at a [`UringPort`](super::UringPort).
pub struct UringWorker<'a>(pub(super) Place<'a, Operations>);

impl Worker for UringWorker<'_> {
    fn take(
        &mut self,
        out: &mut Taken,
        timeout: Option<Duration>,
        counters: &Counters,
    ) -> io::Result<Option<usize>> {
        match self.0.take_ready(out) {
            0 => self.0.take(out, timeout, counters),
            some => Ok(Some(some)),
        }
    }

    fn take_gathered(
        &mut self,
        out: &mut Taken,
        timeout: Option<Duration>,
        gather: &mut dyn FnMut() -> Gather,
        counters: &Counters,
    ) -> io::Result<Option<usize>> {
        match self.0.take_ready(out) {
            0 => self.0.take_gathered(out, timeout, gather, counters),
            some => Ok(Some(some)),
        }
    }

    fn gathers(&self) -> String {
        "io_uring_enter with a time-out; no receive is armed meanwhile, and a sweep takes what has come".into()
    }

    #[inline]
    fn receive(&mut self, socket: SocketId, slice: Slice) -> Result<Token, (Slice, Refused)> {
        self.0.start(slice, |operations, slice| operations.receive(socket, slice))
    }

    #[inline]
    fn receive_all(&mut self, socket: SocketId, slices: &mut Vec<Slice>) -> Result<(), Refused> {
        self.0.with(|state| {
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
        self.0.start(slice, |operations, slice| operations.send(socket, slice, span, to))
    }

    fn commit(&mut self, counters: &Counters) -> io::Result<()> {
        self.0.commit(counters)
    }

    fn cancel(&mut self, token: Token, counters: &Counters) -> Cancelled {
        self.0.cancel(token, counters)
    }

    fn blocking<R>(&mut self, counters: &Counters, f: impl FnOnce() -> R) -> io::Result<R> {
        self.0.blocking(counters, f)
    }
}
