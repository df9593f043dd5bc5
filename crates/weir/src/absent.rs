//! What Linux has and other systems have not yet, as types without values. Designs are compiled with them, so a
//! design that cannot run is a row with a reason: whatever would make one says why there is none, and what is
//! called on one is never reached. Of each function the types of its parameters stand here, and no body.
#![expect(missing_docs, clippy::missing_errors_doc, reason = "each is documented where it exists")]

use crate::{
    Error, Unavailable,
    contract::absent,
    counters::Counters,
    device::{io::*, kind::*},
    memory::{Region, Slice},
    readiness::Trigger,
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
        pub fn open(_: &Path, _: Direction, _: bool) -> Result<(Self, Kind, u64), Error>;
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
        pub fn availability(_: &'static str) -> Result<(), Unavailable>;
        pub fn open(_: &str, _: &Arc<Descriptor>, _: Arc<Region>, _: u32, _: u32)
            -> Result<Self, Error>;
        pub fn worker(&self) -> DevicePortWorker;
        pub fn start(&self, _: Slice, _: &Issue, _: &Counters) -> Result<(), Slice>;
        pub fn commit(&self, _: &Counters) -> io::Result<()>;
        pub fn is_idle(&self) -> bool;
        pub fn close(&self);
        pub fn ender(&self) -> Waker;
        pub fn granted(&self) -> Vec<(&'static str, String)>;
    }
    DevicePortWorker {
        pub fn take(&mut self, _: &mut Vec<Done>, _: usize, _: &Counters)
            -> io::Result<Option<usize>>;
    }
    "provider uring for streams", "io_uring is a mechanism of Linux", "none":
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
    "epoll", "only Linux has it", "epoll":
    Epoll {
        pub fn new(_: usize, _: Trigger) -> Result<Self, Error>;
        pub fn add(&mut self, _: &DatagramSocket, _: u32) -> Result<(), Error>;
        pub fn exclusive(self, _: bool) -> Self;
        pub fn busy_poll(&mut self, _: Duration) -> String;
        pub fn ready(&self) -> std::vec::IntoIter<u32>;
    }
}

pub const SHORTAGES: &[i32] = &[];

/// What stands in a plan although nothing can be opened.
pub const NAMES: Names = Names {
    null: "null",
    zeroes: None,
    nothing: None,
    semaphore: "events",
    event: "events",
    readable: "nothing on this system yet.",
    writable: "nothing",
};

pub fn is_of_this_process(path: &Path) -> bool {
    path.as_os_str() == "-"
}

impl StreamProvider for UringStreams {
    type Queue = Never;
    type Opened = Never;

    fn name(&self) -> &'static str {
        "uring"
    }

    fn availability(&self, _: Receiving) -> Result<(), Unavailable> {
        Err(Never::why())
    }

    fn open(&self, _: &[stream::Listener], _: &StreamNeeds) -> Result<Never, Error> {
        Err(Never::why().into())
    }

    fn start(&self, opened: Never, _: &Arc<Counters>) -> Result<StartedStreams<Never>, Error> {
        opened.never()
    }
}
