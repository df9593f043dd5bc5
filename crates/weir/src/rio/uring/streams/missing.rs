//! The provider where there is no io_uring: it says so.

use super::UringStreams;
use crate::{
    Error, Unavailable,
    counters::Counters,
    memory::Slice,
    rio::{
        Batch, Refused, Stopped, Woken,
        streams::{
            Load, StartedStreams, StreamCompletion, StreamId, StreamNeeds, StreamProvider,
            StreamQueue,
        },
    },
    stream::Listener,
    wake::Waker,
};
use std::{
    convert::Infallible,
    io,
    sync::Arc,
    time::{Duration, Instant},
};

/// A queue that there is not.
#[derive(Debug)]
pub struct Never(Infallible);

impl StreamProvider for UringStreams {
    type Queue = Never;
    type Opened = Never;

    fn name(&self) -> &'static str {
        "uring"
    }

    fn availability(&self) -> Result<(), Unavailable> {
        let reason = "io_uring is a mechanism of Linux";
        Err(Unavailable::new("provider uring for streams", reason))
    }

    fn open(&self, _: &[Listener], _: &StreamNeeds) -> Result<Never, Error> {
        self.availability()?;
        unreachable!("it is not available")
    }

    fn start(&self, opened: Never, _: &Arc<Counters>) -> Result<StartedStreams<Never>, Error> {
        match opened.0 {}
    }
}

impl StreamQueue for Never {
    fn accept(&mut self) {
        match self.0 {}
    }

    fn stop_accepting(&mut self) {
        match self.0 {}
    }

    fn receive(&mut self, _: StreamId) -> bool {
        match self.0 {}
    }

    fn stop_receiving(&mut self, _: StreamId) {
        match self.0 {}
    }

    fn slices(&self, _: StreamId) -> u32 {
        match self.0 {}
    }

    fn is_short(&mut self, _: StreamId) -> bool {
        match self.0 {}
    }

    fn give_back(&mut self, _: Slice) {
        match self.0 {}
    }

    fn send(&mut self, _: StreamId, _: Load) -> Result<(), (Load, Refused)> {
        match self.0 {}
    }

    fn end_sending(&mut self, _: StreamId) {
        match self.0 {}
    }

    fn ask_waiting(&mut self, _: StreamId) {
        match self.0 {}
    }

    fn close(&mut self, _: StreamId, _: bool) {
        match self.0 {}
    }

    fn dequeue(&mut self, _: &mut Batch<StreamCompletion>) -> io::Result<usize> {
        match self.0 {}
    }

    fn wait(&mut self, _: Option<Duration>) -> io::Result<Woken> {
        match self.0 {}
    }

    fn waker(&self) -> Waker {
        match self.0 {}
    }

    fn stop(self, _: Instant) -> Stopped {
        match self.0 {}
    }
}
