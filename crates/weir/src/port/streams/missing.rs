//! The completion port for streams where no provider is built yet: it says so.

use super::{
    Cancelled, Closing, Key, ListenerId, Needs, Packet, Port, Provider, Refused, Stopped, StreamId,
    Taken, Token, Worker,
};
use crate::{
    Error, Unavailable,
    counters::Counters,
    memory::{Load, Slice},
    port::Shape,
    stream::{Listener, Stream},
    wake::Waker,
};
use std::{
    io,
    time::{Duration, Instant},
};

/// A provider that is never available.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Missing {
    /// How much the kernel would be given at a time.
    pub shape: Shape,
}

/// A provider of events that is never available.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MissingEvents;

impl Provider for MissingEvents {
    const NAME: &'static str = "none";
    type Port = Never;

    fn availability(&self) -> Result<(), Unavailable> {
        Err(unavailable())
    }

    fn open(&self, _: &Needs) -> Result<Never, Error> {
        Err(unavailable().into())
    }
}

/// A port that nobody has: there is no value of this type.
#[derive(Debug, Clone, Copy)]
pub enum Never {}

fn unavailable() -> Unavailable {
    Unavailable::new("completions of streams", "that is not built for this system yet")
}

impl Provider for Missing {
    const NAME: &'static str = "none";
    type Port = Never;

    fn availability(&self) -> Result<(), Unavailable> {
        Err(unavailable())
    }

    fn open(&self, _: &Needs) -> Result<Never, Error> {
        Err(unavailable().into())
    }
}

impl Port for Never {
    type Worker<'a> = Never;

    fn listen(&self, _: Listener, _: Key) -> Result<ListenerId, Error> {
        match *self {}
    }

    fn associate(&self, _: Stream, _: Key) -> Result<StreamId, Refused> {
        match *self {}
    }

    fn post(&self, _: Packet, _: &Counters) -> Result<(), (Packet, Refused)> {
        match *self {}
    }

    fn poster(&self, _: Packet) -> Waker {
        match *self {}
    }

    fn worker(&self) -> Result<Never, Error> {
        match *self {}
    }

    fn close(&self) {
        match *self {}
    }

    fn closer(&self) -> Waker {
        match *self {}
    }

    fn stop(self, _: Instant) -> Stopped {
        match self {}
    }

    fn granted(&self) -> Vec<(&'static str, String)> {
        match *self {}
    }
}

impl Worker for Never {
    fn take(
        &mut self,
        _: &mut Taken,
        _: Option<Duration>,
        _: &Counters,
    ) -> io::Result<Option<usize>> {
        match *self {}
    }

    fn accept(&mut self, _: ListenerId) -> Result<Token, Refused> {
        match *self {}
    }

    fn receive(&mut self, _: StreamId, _: Slice) -> Result<Token, (Slice, Refused)> {
        match *self {}
    }

    fn wait_to_receive(&mut self, _: StreamId) -> Result<Token, Refused> {
        match *self {}
    }

    fn send(&mut self, _: StreamId, _: Load) -> Result<Token, (Load, Refused)> {
        match *self {}
    }

    fn close(&mut self, _: StreamId, _: &Counters) -> Closing {
        match *self {}
    }

    fn commit(&mut self, _: &Counters) -> io::Result<()> {
        match *self {}
    }

    fn cancel(&mut self, _: Token, _: &Counters) -> Cancelled {
        match *self {}
    }

    fn blocking<R>(&mut self, _: &Counters, _: impl FnOnce() -> R) -> io::Result<R> {
        match *self {}
    }
}
