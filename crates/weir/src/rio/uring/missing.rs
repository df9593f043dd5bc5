//! The provider where there is no io_uring: it says so.

use super::Uring;
use crate::{
    Error, Unavailable,
    counters::Counters,
    memory::{Layout, Region, Slice},
    rio::{
        Batch, CompletionQueue, Full, Needs, Opened, Peer, Provider, RequestQueue, Span, Started,
        Stopped, Threading, Woken,
    },
    socket::Endpoint,
    wake::Waker,
};
use std::{
    io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

/// Queues that nobody has: there is no value of this type.
#[derive(Debug)]
pub enum Never {}

impl Uring {
    fn unavailable(&self) -> Unavailable {
        let what = format!("provider {}", self.name());
        Unavailable::new(what, "io_uring is a mechanism of Linux").advise("use provider batch")
    }
}

impl<T: Threading> Provider<T> for Uring {
    type Cq = Never;
    type Rq = Never;
    type Opened = Never;

    fn layout(&self, _: &Needs) -> Result<Layout, Unavailable> {
        Err(self.unavailable())
    }

    fn open(&self, _: &[Endpoint], _: &Arc<Region>, _: &Needs) -> Result<Never, Error> {
        Err(self.unavailable().into())
    }

    fn start(&self, opened: Never) -> Result<Started<Never, Never>, Error> {
        match opened {}
    }
}

impl Opened for Never {
    fn local_addresses(&self) -> Vec<SocketAddr> {
        match *self {}
    }
}

impl RequestQueue for Never {
    fn receive(&mut self, _: Slice) -> Result<(), (Slice, Full)> {
        match *self {}
    }

    fn send(&mut self, _: Slice, _: impl Into<Span>, _: &Peer) -> Result<(), (Slice, Full)> {
        match *self {}
    }

    fn commit(&mut self, _: &Counters) -> io::Result<()> {
        match *self {}
    }

    fn outstanding(&self) -> (u32, u32) {
        match *self {}
    }
}

impl CompletionQueue for Never {
    type Rq = Never;

    fn dequeue(&mut self, _: &mut Batch, _: &Counters) -> io::Result<usize> {
        match *self {}
    }

    fn wait(&mut self, _: u32, _: Option<Duration>, _: &Counters) -> io::Result<Woken> {
        match *self {}
    }

    fn waker(&self) -> Waker {
        match *self {}
    }

    fn stop(self, _: Vec<Never>, _: Instant) -> Stopped {
        match self {}
    }
}
