//! No epoll on this system. The type has no values, so its functions are never reached.

use super::Trigger;
use crate::{
    Error, Unavailable,
    counters::Counters,
    readiness::{Interest, Streams},
    rio::Woken,
    socket::DatagramSocket,
    stream::{Listener, Stream},
    wake::Waker,
};
use std::{convert::Infallible, io, time::Duration};

/// A set of sockets to wait for with epoll(7).
#[derive(Debug)]
pub struct Epoll(Infallible);

impl Epoll {
    /// Its name, where a provider is named.
    pub const PROVIDER: &'static str = "epoll";

    /// Says that there is none.
    ///
    /// # Errors
    /// [`Unavailable`], always.
    pub fn availability() -> Result<(), Unavailable> {
        Err(missing())
    }

    /// Never makes one.
    ///
    /// # Errors
    /// [`Unavailable`], always.
    pub fn new(_events_max: usize) -> Result<Self, Error> {
        Err(missing().into())
    }

    /// Never called.
    ///
    /// # Errors
    /// None.
    pub fn add(&mut self, _: &DatagramSocket, _: u32, _: Trigger) -> Result<(), Error> {
        match self.0 {}
    }

    /// Never called.
    ///
    /// # Errors
    /// None.
    pub fn wait(&mut self, _: Option<Duration>, _: &Counters) -> io::Result<Woken> {
        match self.0 {}
    }

    /// Never makes one.
    ///
    /// # Errors
    /// [`Unavailable`], always.
    pub fn of_streams(_events_max: usize, _: Trigger) -> Result<Self, Error> {
        Err(missing().into())
    }

    /// Never called.
    ///
    /// # Errors
    /// None.
    pub fn listen(&mut self, _: &Listener, _: u32) -> Result<(), Error> {
        match self.0 {}
    }

    /// Never called.
    pub fn forget_listener(&mut self, _: &Listener) {
        match self.0 {}
    }

    /// Never called.
    pub fn ready_count(&self) -> usize {
        match self.0 {}
    }

    /// Never called.
    pub fn next_ready(&mut self) -> Option<u32> {
        match self.0 {}
    }

    /// Never called.
    pub fn exclusive(self, _: bool) -> Self {
        match self.0 {}
    }

    /// Never called.
    pub fn busy_poll(&mut self, _: Duration) -> String {
        match self.0 {}
    }

    /// Never called.
    pub fn ready(&self) -> impl Iterator<Item = u32> {
        match self.0 {}
        #[expect(unreachable_code, reason = "it gives the type")]
        std::iter::empty()
    }

    /// Never called.
    pub fn waker(&self) -> Waker {
        match self.0 {}
    }
}

impl Streams for Epoll {
    fn watch(&mut self, _: &Stream, _: u32, _: Interest) -> io::Result<()> {
        match self.0 {}
    }

    fn change(&mut self, _: &Stream, _: u32, _: Interest) -> io::Result<()> {
        match self.0 {}
    }

    fn forget(&mut self, _: &Stream, _: u32) {
        match self.0 {}
    }
}

fn missing() -> Unavailable {
    Unavailable::new("epoll", "only Linux has it")
}
