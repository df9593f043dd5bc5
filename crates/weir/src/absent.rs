//! What Linux has and other systems have not yet, as types without values. Designs are compiled with them, so a
//! design that cannot run is a row with a reason: whatever would make one says why there is none, and what is
//! called on one is never reached. Of each function the types of its parameters stand here, and no body.
#![expect(missing_docs, clippy::missing_errors_doc, reason = "each is documented where it exists")]

use crate::{
    Error, Unavailable,
    contract::absent,
    counters::Counters,
    device::{io::*, target::*},
    memory::{Layout, Region, Slice},
    port,
    readiness::{Interest, Trigger},
    rio::{Woken, streams::*, uring::streams::UringStreams},
    socket::DatagramSocket,
    stream,
    wake::Waker,
};
use std::{io, io::PipeWriter, path::Path, sync::Arc, time::Duration};

absent! {
    each {}
    "reading devices", "it is written for Linux only, so far", "none":
    Descriptor {
        pub fn availability() -> Result<(), Unavailable>;
        pub fn open(_: &Path, _: Direction, _: impl FnOnce(&Found) -> Result<Kind, Error>)
            -> Result<(Self, Found, Kind), Error>;
        pub fn semaphore() -> Result<Self, Error>;
        pub fn pipe() -> Result<(Self, PipeWriter), Error>;
        pub fn timer(_: Duration) -> Result<Self, Error>;
        pub fn controls(&self) -> Controls;
        pub fn stated(&self) -> Vec<(&'static str, String)>;
    }
    Plain { pub fn new(_: &Arc<Descriptor>) -> Result<Self, Error>; }
    Controls { pub fn availability(_: &'static str) -> Result<(), Unavailable>; }
    RingQueue {
        pub fn availability(_: &'static str, _: Shape) -> Result<(), Unavailable>;
        pub fn open(_: &str, _: &Arc<Descriptor>, _: Shape, _: Arc<Region>) -> Result<Self, Error>;
    }
    AioQueue {
        pub fn availability(_: &'static str) -> Result<(), Unavailable>;
        pub fn open(_: &str, _: &Arc<Descriptor>, _: Arc<Region>) -> Result<Self, Error>;
    }
    DevicePort {
        pub fn open(_: &str, _: &Arc<Descriptor>, _: Arc<Region>, _: u32, _: u32)
            -> Result<Self, Error>;
        pub fn seat(&self) -> Seat;
        pub fn start(&self, _: Slice, _: &Issue, _: &Counters) -> Result<(), Slice>;
        pub fn commit(&self, _: &Counters) -> io::Result<()>;
        pub fn is_idle(&self) -> bool;
        pub fn close(&self);
        pub fn ender(&self) -> Waker;
        pub fn granted(&self) -> Vec<(&'static str, String)>;
    }
    Seat {
        pub fn take(&mut self, _: &mut Vec<Done>, _: usize, _: &Counters)
            -> io::Result<Option<usize>>;
    }
    "the completion port", "it is not built for this system yet", "none":
    Never {}
}

absent! {
    each {
        pub fn availability() -> Result<(), Unavailable>;
        pub fn wait(&mut self, _: Option<Duration>, _: &Counters) -> io::Result<Woken>;
        pub fn waker(&self) -> Waker;
        pub fn forget_listener(&mut self, _: &stream::Listener);
        pub fn listen(&mut self, _: &stream::Listener, _: u32) -> Result<(), Error>;
        pub fn ready_count(&self) -> usize;
        pub fn next_ready(&mut self) -> Option<u32>;
    }
    "select", "it is not on this OS yet", "select":
    Select {
        pub fn new() -> Result<Self, Error>;
        pub fn clear(&mut self);
        pub fn put_listener(&mut self, _: &stream::Listener);
        pub fn put(&mut self, _: &stream::Stream, _: Interest);
        pub fn listener_is_ready(&self, _: &stream::Listener) -> bool;
        pub fn is_ready(&self, _: &stream::Stream) -> bool;
    }
    SelectIndexed {
        pub fn new() -> Result<Self, Error>;
    }
    "signals of readiness", "only Linux has them", "signals":
    Signals {
        pub fn new() -> Result<Self, Error>;
        pub fn effective(&self) -> String;
        pub fn take_overflows(&mut self) -> u64;
    }
    "epoll", "only Linux has it", "epoll":
    Epoll {
        pub fn new(_: usize) -> Result<Self, Error>;
        pub fn of_streams(_: usize, _: Trigger) -> Result<Self, Error>;
        pub fn add(&mut self, _: &DatagramSocket, _: u32, _: Trigger) -> Result<(), Error>;
        pub fn exclusive(self, _: bool) -> Self;
        pub fn busy_poll(&mut self, _: Duration) -> String;
        pub fn ready(&self) -> std::vec::IntoIter<u32>;
    }
}

pub const SHORTAGES: &[i32] = &[];

impl StreamProvider for UringStreams {
    type Queue = Never;
    type Opened = Never;

    fn name(&self) -> &'static str {
        "uring"
    }

    fn availability(&self, _: Receiving) -> Result<(), Unavailable> {
        Err(Unavailable::new("provider uring for streams", "io_uring is a mechanism of Linux"))
    }

    fn open(&self, _: &[stream::Listener], _: &StreamNeeds) -> Result<Never, Error> {
        Err(Never::why().into())
    }

    fn start(&self, opened: Never, _: &Arc<Counters>) -> Result<StartedStreams<Never>, Error> {
        opened.never()
    }
}

/// A completion port that cannot be opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NoPort {
    pub shape: port::Shape,
}

impl NoPort {
    /// As Windows will have it (WSA_MAXIMUM_WAIT_EVENTS).
    pub const MOST: u32 = 64;
}

impl port::Provider for NoPort {
    const NAME: &'static str = Never::PROVIDER;
    type Port = Never;

    fn layout(&self, _: &port::Needs) -> Result<Layout, Unavailable> {
        Err(Never::why())
    }

    fn open(&self, _: &port::Needs) -> Result<Never, Error> {
        Err(Never::why().into())
    }
}

impl port::streams::Provider for NoPort {
    const NAME: &'static str = Never::PROVIDER;
    type Port = Never;

    fn availability(&self) -> Result<(), Unavailable> {
        Err(Unavailable::new("completions of streams", "that is not built for this system yet"))
    }

    fn open(&self, _: &port::streams::Needs) -> Result<Never, Error> {
        Err(Never::why().into())
    }
}
