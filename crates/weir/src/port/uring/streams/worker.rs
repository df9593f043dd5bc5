//! A thread's place at the port.

use super::operations::Operations;
use crate::{
    counters::Counters,
    gather::Gather,
    memory::{Load, Slice},
    port::{
        Cancelled, Refused, Token,
        streams::{Closing, ListenerId, StreamId, Taken, Worker},
        uring::place::Place,
    },
};
use std::{io, time::Duration};

/// A thread's place at a [`UringStreamsPort`](super::UringStreamsPort).
pub struct StreamsWorker<'a>(pub(super) Place<'a, Operations>);

impl Worker for StreamsWorker<'_> {
    fn take(
        &mut self,
        out: &mut Taken,
        timeout: Option<Duration>,
        counters: &Counters,
    ) -> io::Result<Option<usize>> {
        self.0.take(out, timeout, counters)
    }

    fn take_gathered(
        &mut self,
        out: &mut Taken,
        timeout: Option<Duration>,
        gather: &mut dyn FnMut() -> Gather,
        counters: &Counters,
    ) -> io::Result<Option<usize>> {
        self.0.take_gathered(out, timeout, gather, counters)
    }

    fn gathers(&self) -> String {
        "io_uring_enter with a time-out; no receive is armed meanwhile, and an epoll set tells which may begin".into()
    }

    #[inline]
    fn take_ready(&mut self, out: &mut Taken) -> usize {
        self.0.take_ready(out)
    }

    fn accept(&mut self, listener: ListenerId) -> Result<Token, Refused> {
        self.0.with(|state| match state.closed {
            true => Err(Refused::Closed),
            false => state.operations.accept(listener),
        })
    }

    fn end_accepting(&mut self, counters: &Counters) {
        for token in self.0.with(|state| state.operations.end_accepting()) {
            let _ = self.0.cancel(token, counters); // asked for, or over by itself
        }
    }

    #[inline]
    fn receive(&mut self, stream: StreamId, slice: Slice) -> Result<Token, (Slice, Refused)> {
        let given = Some(slice);
        let started = self.0.start(given, |operations, slice| operations.receive(stream, slice));
        started.map_err(|(slice, refused)| (slice.expect("the one that was given"), refused))
    }

    #[inline]
    fn wait_to_receive(&mut self, stream: StreamId) -> Result<Token, Refused> {
        let started = self.0.start(None, |operations, none| operations.receive(stream, none));
        started.map_err(|(_, refused)| refused)
    }

    #[inline]
    fn send(&mut self, stream: StreamId, load: Load) -> Result<Token, (Load, Refused)> {
        debug_assert!(!load.left().is_empty(), "a send of nothing");
        self.0.start(load, |operations, load| operations.send(stream, load))
    }

    fn close(&mut self, stream: StreamId, _: &Counters) -> Closing {
        self.0.with(|state| state.operations.close(stream))
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
