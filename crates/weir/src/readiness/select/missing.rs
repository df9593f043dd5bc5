//! No select on this system yet. The types have no values, so their functions are never reached.

use crate::{
    Error, Unavailable,
    counters::Counters,
    readiness::{Interest, Streams},
    rio::Woken,
    stream::{Listener, Stream},
    wake::Waker,
};
use std::{convert::Infallible, io, time::Duration};

/// Sets for one call of select(2).
#[derive(Debug)]
pub struct Select(Infallible);

impl Select {
    /// Its name, where a provider is named.
    pub const PROVIDER: &'static str = "select";

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
    pub fn new() -> Result<Self, Error> {
        Err(missing().into())
    }

    /// Never called.
    pub fn clear(&mut self) {
        match self.0 {}
    }

    /// Never called.
    pub fn put_listener(&mut self, _: &Listener) {
        match self.0 {}
    }

    /// Never called.
    pub fn put(&mut self, _: &Stream, _: Interest) {
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
    pub fn listener_is_ready(&self, _: &Listener) -> bool {
        match self.0 {}
    }

    /// Never called.
    pub fn is_ready(&self, _: &Stream) -> bool {
        match self.0 {}
    }

    /// Never called.
    pub fn waker(&self) -> Waker {
        match self.0 {}
    }
}

/// Connections to wait for with select(2), found by their descriptors.
#[derive(Debug)]
pub struct SelectIndexed(Infallible);

impl SelectIndexed {
    /// Its name, where a provider is named.
    pub const PROVIDER: &'static str = "select";

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
    pub fn new() -> Result<Self, Error> {
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

macro_rules! no_streams {
    ($($Set:ty),*) => {
        $(impl Streams for $Set {
            fn watch(&mut self, _: &Stream, _: u32, _: Interest) -> io::Result<()> {
                match self.0 {}
            }

            fn change(&mut self, _: &Stream, _: u32, _: Interest) -> io::Result<()> {
                match self.0 {}
            }

            fn forget(&mut self, _: &Stream, _: u32) {
                match self.0 {}
            }
        })*
    };
}
no_streams!(Select, SelectIndexed);

fn missing() -> Unavailable {
    Unavailable::new("select", "it is not on this OS yet")
}
