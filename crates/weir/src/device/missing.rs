//! Where devices cannot be read yet: nothing of this can be made, and each way to it says why.

use super::{
    io::{Issue, Outcome, Queue},
    target::{Direction, Found, Kind},
};
use crate::{
    Error, Unavailable,
    counters::Counters,
    memory::{Region, Slice},
    wake::Waker,
};
use std::{
    convert::Infallible,
    io,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

/// The name of what reads with plain system calls.
pub const PROVIDER: &str = "none";

fn why() -> Unavailable {
    Unavailable::new("reading devices", "it is written for Linux only, so far")
}

pub fn availability() -> Result<(), Unavailable> {
    Err(why())
}

/// Nothing starts here, so nothing is short for it.
pub fn is_shortage(_: &io::Error) -> bool {
    false
}

/// There is none.
#[derive(Debug)]
pub struct Descriptor(Infallible);

impl Descriptor {
    pub fn open(
        _: &Path,
        _: Direction,
        _: impl FnOnce(&Found) -> Result<Kind, Error>,
    ) -> Result<(Self, Found, Kind), Error> {
        Err(why().into())
    }

    pub fn semaphore() -> Result<Self, Error> {
        Err(why().into())
    }

    pub fn pipe() -> Result<(Self, io::PipeWriter), Error> {
        Err(why().into())
    }

    pub fn timer(_: Duration) -> Result<Self, Error> {
        Err(why().into())
    }

    pub fn stated(&self) -> Vec<(&'static str, String)> {
        match self.0 {}
    }
}

/// There is none.
#[derive(Debug)]
pub struct Plain(Infallible);

impl Plain {
    pub fn new(descriptor: &Arc<Descriptor>) -> Result<Self, Error> {
        match descriptor.0 {}
    }

    pub fn waker(&self) -> Waker {
        match self.0 {}
    }

    pub fn issue(&self, _: &mut [u8], _: u64, _: &Counters) -> Outcome {
        match self.0 {}
    }
}

/// There is none.
#[derive(Debug)]
pub struct Controls(Infallible);

impl Controls {
    pub fn of(descriptor: &Arc<Descriptor>) -> Self {
        match descriptor.0 {}
    }

    pub fn availability(_: &'static str) -> Result<(), Unavailable> {
        Err(why())
    }

    pub fn waker(&self) -> Waker {
        match self.0 {}
    }

    pub fn call(&self, _: &Counters) -> Outcome {
        match self.0 {}
    }
}

/// What each I/O is for the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Plain,
    Registered,
    Command,
    NoOp,
}

/// What is wanted of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    pub depth: u32,
    pub operation: Operation,
    pub polls: Option<u32>,
}

pub const MOST_DEPTH: u32 = 16_384;

/// There is none.
#[derive(Debug)]
pub struct RingQueue(Infallible);

impl RingQueue {
    pub fn open(
        _: &str,
        descriptor: &Arc<Descriptor>,
        _: Shape,
        _: Arc<Region>,
    ) -> Result<Self, Error> {
        match descriptor.0 {}
    }

    pub fn availability(_: &'static str, _: Shape) -> Result<(), Unavailable> {
        Err(why())
    }
}

/// There is none.
#[derive(Debug)]
pub struct AioQueue(Infallible);

impl AioQueue {
    pub fn open(_: &str, descriptor: &Arc<Descriptor>, _: Arc<Region>) -> Result<Self, Error> {
        match descriptor.0 {}
    }

    pub fn availability(_: &'static str) -> Result<(), Unavailable> {
        Err(why())
    }
}

macro_rules! never {
    ($Queue:ident) => {
        impl Queue for $Queue {
            fn begin(&mut self, _: &Counters) -> Result<(), Error> {
                match self.0 {}
            }

            fn waker(&self) -> Waker {
                match self.0 {}
            }

            fn room(&self) -> usize {
                match self.0 {}
            }

            fn outstanding(&self) -> usize {
                match self.0 {}
            }

            fn start(&mut self, _: &Issue, _: &Counters) {
                match self.0 {}
            }

            fn take(
                &mut self,
                _: usize,
                _: Option<Instant>,
                _: &Counters,
                _: impl FnMut(&Issue, Outcome, &[u8]),
            ) -> io::Result<usize> {
                match self.0 {}
            }

            fn call_back(&mut self, _: &Counters) {
                match self.0 {}
            }

            fn granted(&self) -> Vec<(&'static str, String)> {
                match self.0 {}
            }
        }
    };
}
never!(RingQueue);
never!(AioQueue);

/// An I/O that is over, with its memory.
#[derive(Debug)]
pub struct Done {
    pub slice: Slice,
    pub issue: Issue,
    pub outcome: Outcome,
}

/// There is none.
#[derive(Debug)]
pub struct DevicePort(Infallible);

impl DevicePort {
    pub fn open(
        _: &str,
        descriptor: &Arc<Descriptor>,
        _: Arc<Region>,
        _: u32,
        _: u32,
    ) -> Result<Self, Error> {
        match descriptor.0 {}
    }

    pub fn seat(&self) -> Seat<'_> {
        match self.0 {}
    }

    pub fn start(&self, _: Slice, _: &Issue, _: &Counters) -> Result<(), Slice> {
        match self.0 {}
    }

    pub fn commit(&self, _: &Counters) -> io::Result<()> {
        match self.0 {}
    }

    pub fn is_idle(&self) -> bool {
        match self.0 {}
    }

    pub fn ender(self: &Arc<Self>) -> Waker {
        match self.0 {}
    }

    pub fn close(&self) {
        match self.0 {}
    }

    pub fn granted(&self) -> Vec<(&'static str, String)> {
        match self.0 {}
    }
}

/// There is none.
pub struct Seat<'a>(Infallible, std::marker::PhantomData<&'a ()>);

impl Seat<'_> {
    pub fn take(&mut self, _: &mut Vec<Done>, _: usize, _: &Counters) -> io::Result<Option<usize>> {
        match self.0 {}
    }
}
