//! No signals of readiness on this system. The type has no values, so its functions are never reached.

use crate::{
    Error, Unavailable,
    counters::Counters,
    readiness::{Interest, Streams},
    rio::Woken,
    stream::{Listener, Stream},
    wake::Waker,
};
use std::{convert::Infallible, io, time::Duration};

/// Sockets whose readiness is queued as signals for one thread.
#[derive(Debug)]
pub struct Signals(Infallible);

impl Signals {
    /// Its name, where a provider is named.
    pub const PROVIDER: &'static str = "signals";

    /// Says that there are none.
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
    pub fn new() -> Result<Self, Error> {
        Err(missing().into())
    }

    /// Never called.
    pub fn effective(&self) -> String {
        match self.0 {}
    }

    /// Never called.
    pub fn take_overflows(&mut self) -> u64 {
        match self.0 {}
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
    ///
    /// # Errors
    /// None.
    pub fn wait(&mut self, _: Option<Duration>, _: &Counters) -> io::Result<Woken> {
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
    pub fn waker(&self) -> Waker {
        match self.0 {}
    }
}

impl Streams for Signals {
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
    Unavailable::new("signals of readiness", "only Linux has them")
}
