//! Where weir's providers have nothing that a reactor could watch.

use std::{
    convert::Infallible,
    io,
    marker::PhantomData,
    task::{Context, Poll},
};
use weir::{Error, Unavailable, rio::Watched};

/// Whether there is one.
pub(crate) const EXISTS: bool = false;

/// There is none.
#[derive(Debug)]
pub(crate) struct Reactor(Infallible);

impl Reactor {
    /// Says why not.
    pub(crate) fn watch(_: Vec<Watched>) -> Result<Self, Error> {
        let reason = "only Linux has a descriptor for it";
        Err(Unavailable::new("telling by tokio's reactor", reason)
            .advise("use --tell thread")
            .into())
    }

    pub(crate) fn for_room(self) -> io::Result<Self> {
        match self.0 {}
    }

    pub(crate) fn poll(&self, _: &mut Context<'_>, _: bool) -> Poll<io::Result<Ready<'_>>> {
        match self.0 {}
    }
}

/// There is nothing to be ready.
pub(crate) struct Ready<'a>(Infallible, PhantomData<&'a ()>);

impl Ready<'_> {
    pub(crate) fn clear(self) {
        match self.0 {}
    }
}
