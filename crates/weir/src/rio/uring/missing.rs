//! The provider where there is no io_uring: it says so.

use super::Uring;
use crate::{
    Error, Unavailable,
    memory::{Layout, Region},
    rio::{Needs, Provider, Started, Threading, never::Never},
    socket::Endpoint,
};
use std::sync::Arc;

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
