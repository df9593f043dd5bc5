//! No streams on this system yet. The types have no values, so their functions are never reached.

use super::{Accepted, Mode, StreamOptions};
use crate::{Error, Unavailable};
use std::{convert::Infallible, io, net::SocketAddr, time::Duration};

pub fn availability() -> Result<(), Unavailable> {
    Err(Unavailable::new("TCP", "it is not on this OS yet"))
}

impl super::Listener {
    pub(crate) fn native(&self) -> &Listener {
        &self.native
    }
}

impl super::Stream {
    pub(crate) fn native(&self) -> &Stream {
        &self.native
    }
}

/// A socket that listens.
#[derive(Debug)]
pub struct Listener(Infallible);

impl Listener {
    pub fn bind(_: SocketAddr, _: StreamOptions) -> Result<Self, Error> {
        Err(Unavailable::new("TCP", "it is not on this OS yet").into())
    }

    pub fn local_address(&self) -> io::Result<SocketAddr> {
        match self.0 {}
    }

    pub fn granted(&self) -> Vec<(&'static str, String)> {
        match self.0 {}
    }

    /// Its number, as the system's calls take it.
    pub fn raw(&self) -> usize {
        match self.0 {}
    }

    pub fn accept(&self, _: Mode) -> io::Result<Option<Accepted>> {
        match self.0 {}
    }

    pub fn end_accepting(&self) {
        match self.0 {}
    }
}

/// A connection.
#[derive(Debug)]
pub struct Stream(Infallible);

impl Stream {
    /// Its number, as the system's calls take it.
    pub fn raw(&self) -> usize {
        match self.0 {}
    }

    pub fn take_error(&self) -> Option<io::Error> {
        match self.0 {}
    }

    pub fn receive(&self, _: &mut [u8], _: Mode) -> io::Result<Option<usize>> {
        match self.0 {}
    }

    pub fn send(&self, _: &[u8], _: Mode) -> io::Result<Option<usize>> {
        match self.0 {}
    }

    pub fn end_sending(&self) -> io::Result<()> {
        match self.0 {}
    }

    pub fn end_receiving(&self) {
        match self.0 {}
    }

    pub fn waiting(&self) -> io::Result<usize> {
        match self.0 {}
    }

    pub fn received_in_all(&self) -> io::Result<u64> {
        match self.0 {}
    }

    pub fn set_timeouts(&self, _: Option<Duration>, _: Option<Duration>) -> io::Result<()> {
        match self.0 {}
    }

    pub fn end(&self) {
        match self.0 {}
    }

    pub fn reset_when_closed(&self) {
        match self.0 {}
    }
}

pub fn is_want_of_resources(_: &io::Error) -> bool {
    false
}

pub fn concerns_one_connection(_: &io::Error) -> bool {
    false
}
