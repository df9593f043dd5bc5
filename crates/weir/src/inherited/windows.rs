//! No service manager passes sockets on here, and a program passes them on to one that it names (WSADuplicateSocket), which
//! weir does not do yet.

use super::Inherited;
use crate::{Error, Unavailable, wake::Waker};
use std::path::Path;

pub fn from_service_manager() -> Result<Vec<Inherited>, Error> {
    Ok(vec![])
}

fn unavailable() -> Error {
    Unavailable::new(
        "handing sockets over to another program",
        "weir does not do it on this system yet",
    )
    .advise("stop the server before its successor starts")
    .into()
}

#[derive(Debug)]
pub enum Before {}

impl Before {
    pub fn serving(self) -> Result<(), Error> {
        match self {}
    }
}

pub fn take_over(_: &Path) -> Result<Option<(Vec<Inherited>, Before)>, Error> {
    Err(unavailable())
}

#[derive(Debug)]
pub enum Offer {}

impl Offer {
    pub fn at(_: &Path) -> Result<Self, Error> {
        Err(unavailable())
    }

    pub fn hand_over(&self, _: &[Inherited]) -> Result<(), Error> {
        match *self {}
    }

    pub fn closer(&self) -> Waker {
        match *self {}
    }
}
