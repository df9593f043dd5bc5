//! Sets that are built for each call.

use super::{
    native::{self, Sets},
    signalled, wait, wake_event,
};
use crate::{
    Error, Unavailable,
    counters::Counters,
    readiness::{
        Interest, Streams,
        wake_event::{self as events, WakeEvent},
    },
    rio::Woken,
    stream::{Listener, Stream},
    wake::Waker,
};
use std::{io, sync::Arc, time::Duration};

/// Sets for one call of select: to be filled before, and asked after it.
#[derive(Debug)]
pub struct Select {
    wake_event: Arc<WakeEvent>,
    sets: Sets,
}

impl Select {
    /// Its name, where a provider is named.
    pub const PROVIDER: &'static str = super::PROVIDER;

    /// Whether the system has it, by trying.
    ///
    /// # Errors
    /// What it answered.
    pub fn availability() -> Result<(), Unavailable> {
        super::availability()
    }

    /// Empty sets.
    ///
    /// # Errors
    /// [`Error::Io`] with what the system answered when asked for the waker's descriptor.
    pub fn new() -> Result<Self, Error> {
        Ok(Self { wake_event: wake_event()?, sets: Sets::default() })
    }

    /// Takes everything out of the sets.
    pub fn clear(&mut self) {
        self.sets.clear();
    }

    /// Puts a listening socket in, to be told as long as a connection waits.
    pub fn put_listener(&mut self, listener: &Listener) {
        self.sets.want(native::of(listener.native()), true, false);
    }

    /// Puts a connection in.
    #[inline]
    pub fn put(&mut self, stream: &Stream, interest: Interest) {
        self.sets.want(native::of(stream.native()), interest.receive, interest.send);
    }

    /// Waits until something that was put in is ready, the time is over, or it is woken. `None`: no
    /// time-out. The sets are the answer then.
    ///
    /// # Errors
    /// What the operating system answered; the sets are empty then.
    pub fn wait(&mut self, timeout: Option<Duration>, counters: &Counters) -> io::Result<Woken> {
        let wake_event = native::of_wake_event(&self.wake_event);
        let woken =
            wait(&mut self.sets, timeout, counters, |sets| sets.want(wake_event, true, false))?;
        let signalled = signalled(&mut self.sets, &self.wake_event, counters);
        Ok(if signalled { Woken::ByWaker } else { woken })
    }

    /// Whether a connection waits at this socket, by the last wait.
    pub fn listener_is_ready(&self, listener: &Listener) -> bool {
        self.sets.contain(native::of(listener.native()))
    }

    /// Whether this connection is ready, by the last wait.
    #[inline]
    pub fn is_ready(&self, stream: &Stream) -> bool {
        self.sets.contain(native::of(stream.native()))
    }

    /// Ends a wait, now or the next one.
    pub fn waker(&self) -> Waker {
        events::waker(&self.wake_event)
    }
}

/// The sets are built before each call: nothing is known of a connection in between.
impl Streams for Select {
    fn watch(&mut self, _: &Stream, _: u32, _: Interest) -> io::Result<()> {
        Ok(())
    }

    fn change(&mut self, _: &Stream, _: u32, _: Interest) -> io::Result<()> {
        Ok(())
    }

    fn forget(&mut self, stream: &Stream, _: u32) {
        // The answer is not to be taken for that of a connection that gets its socket.
        self.sets.remove(native::of(stream.native()));
    }
}
