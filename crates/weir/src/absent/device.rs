//! Devices, as far as other systems than Linux lack them.

use crate::{
    Error, Unavailable,
    contract::absent,
    counters::Counters,
    device::{io::*, kind::*},
    memory::{Region, Slice},
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
