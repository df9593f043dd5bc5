//! No engine on this system yet. The types have no values, so their functions are never reached.

use super::Ready;
use std::{
    convert::Infallible,
    fs::File,
    io,
    net::{IpAddr, SocketAddr},
};
use weir::Unavailable;

fn missing() -> Unavailable {
    Unavailable::new("the load of connections", "it is not on this OS yet")
}

pub(crate) fn availability() -> Result<(), Unavailable> {
    Err(missing())
}

#[derive(Debug)]
pub(crate) struct Socket(Infallible);

impl Socket {
    pub(crate) fn connect(_: SocketAddr, _: Option<IpAddr>) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn connected(&self) -> io::Result<()> {
        match self.0 {}
    }

    pub(crate) fn receive(&self, _: &mut [u8]) -> io::Result<Option<usize>> {
        match self.0 {}
    }

    pub(crate) fn send(&self, _: &[u8]) -> io::Result<Option<usize>> {
        match self.0 {}
    }

    pub(crate) fn send_file(&self, _: &File, _: u64, _: usize) -> io::Result<Option<usize>> {
        match self.0 {}
    }

    pub(crate) fn end_sending(&self) -> io::Result<()> {
        match self.0 {}
    }
}

#[derive(Debug, Clone)]
pub(crate) struct WakeEvent(Infallible);

impl WakeEvent {
    pub(crate) fn signal(&self) {
        match self.0 {}
    }
}

#[derive(Debug)]
pub(crate) struct Set(Infallible);

impl Set {
    pub(crate) fn new(_: usize) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn wake_event(&self) -> WakeEvent {
        match self.0 {}
    }

    pub(crate) fn add(&self, _: &Socket, _: u32) -> io::Result<()> {
        match self.0 {}
    }

    pub(crate) fn wait(&mut self, _: Option<u64>) -> io::Result<usize> {
        match self.0 {}
    }

    pub(crate) fn ready(&self, _: usize) -> Ready {
        match self.0 {}
    }
}

pub(crate) fn read_at(_: &File, _: &mut [u8], _: u64) -> io::Result<usize> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(crate) fn descriptors() -> Option<u64> {
    None
}

pub(crate) fn is_no_port(_: &io::Error) -> bool {
    false
}

pub(crate) fn is_no_descriptor(_: &io::Error) -> bool {
    false
}

pub(crate) fn is_refused(_: &io::Error) -> bool {
    false
}

pub(crate) fn is_reset(_: &io::Error) -> bool {
    false
}

pub(crate) fn is_timed_out(_: &io::Error) -> bool {
    false
}
