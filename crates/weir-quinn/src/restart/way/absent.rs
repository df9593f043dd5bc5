//! Where sockets are not handed over there are no ways.

use std::{
    convert::Infallible,
    io,
    task::{Context, Poll},
};
use weir::{Error, Unavailable, stream::UnixDatagram};

/// Says why not.
pub(crate) fn pair() -> Result<(Inbox, Way), Error> {
    let reason = "weir does not hand sockets over on this system yet";
    Err(Unavailable::new("forwarding to another process", reason).into())
}

/// There is none.
#[derive(Debug)]
pub(crate) struct Inbox(Infallible);

impl Inbox {
    pub(crate) fn poll_recv(&self, _: &mut Context<'_>, _: &mut [u8]) -> Poll<io::Result<usize>> {
        match self.0 {}
    }

    pub(crate) fn say(&self, _: &[u8]) {
        match self.0 {}
    }
}

/// There is none.
#[derive(Debug)]
pub(crate) struct Way(Infallible);

impl Way {
    pub(crate) fn of(_: UnixDatagram) -> Result<Self, Error> {
        pair().map(|(_, way)| way)
    }

    pub(crate) fn send(&self, _: &[u8]) -> Sent {
        match self.0 {}
    }

    pub(crate) fn socket(&self) -> Result<UnixDatagram, Error> {
        match self.0 {}
    }

    pub(crate) fn answers(&self) -> Result<Inbox, Error> {
        match self.0 {}
    }
}

/// What became of something that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(dead_code, reason = "nothing is sent")]
pub(crate) enum Sent {
    Yes,
    Full,
    Gone,
}
