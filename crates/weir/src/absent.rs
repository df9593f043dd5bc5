//! What Linux has and other systems have not yet, as types without values. Designs are compiled with them, so a
//! design that cannot run is a row with a reason: whatever would make one says why there is none, and what is
//! called on one is never reached. Of each function the types of its parameters stand here, and no body.
#![expect(missing_docs, clippy::missing_errors_doc, reason = "each is documented where it exists")]

#[cfg(feature = "device")]
pub mod device;

#[cfg(feature = "device")]
pub use device::*;

use crate::{
    Error, Unavailable,
    contract::absent,
    counters::Counters,
    readiness::Trigger,
    rio::{Woken, streams::*, uring::streams::UringStreams},
    socket::DatagramSocket,
    stream,
    wake::Waker,
};
use std::{io, sync::Arc, time::Duration};

absent! {
    each {}
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
        pub(crate) fn may_have_left(&self) -> bool;
    }
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
