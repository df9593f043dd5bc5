//! Queues that nobody has: what a provider has for queues where it cannot exist.

use super::{Batch, CompletionQueue, Opened, Peer, Refused, RequestQueue, Span, Stopped, Woken};
use crate::{counters::Counters, memory::Slice, wake::Waker};
use std::{
    io,
    net::SocketAddr,
    time::{Duration, Instant},
};

/// Queues that nobody has: there is no value of this type.
#[derive(Debug)]
pub enum Never {}

impl Opened for Never {
    fn local_addresses(&self) -> Vec<SocketAddr> {
        match *self {}
    }
}

impl RequestQueue for Never {
    fn receive(&mut self, _: Slice) -> Result<(), (Slice, Refused)> {
        match *self {}
    }

    fn send(&mut self, _: Slice, _: impl Into<Span>, _: &Peer) -> Result<(), (Slice, Refused)> {
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
