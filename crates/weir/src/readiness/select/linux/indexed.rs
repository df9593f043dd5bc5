//! Sets that are kept, and an index from descriptors to connections.

use super::{Sets, index, of, of_wake_event};
use crate::{
    Error, Unavailable,
    counters::Counters,
    readiness::{
        Interest, Streams,
        select::{self, signalled, wait, wake_event},
        wake_event::{self as events, WakeEvent},
    },
    rio::Woken,
    stream::{Listener, Stream},
    wake::Waker,
};
use std::{io, os::fd::RawFd, sync::Arc, time::Duration};

/// Connections to wait for with select(2), found by their descriptors.
#[derive(Debug)]
pub struct SelectIndexed {
    wake_event: Arc<WakeEvent>,
    wanted: Sets,
    answer: Sets,
    /// The word of the answer that is looked at next.
    next: usize,
    /// The token of each descriptor.
    tokens: Vec<u32>,
}

impl SelectIndexed {
    /// Its name, where a provider is named.
    pub const PROVIDER: &'static str = select::PROVIDER;

    /// Whether the system has it, by trying.
    ///
    /// # Errors
    /// What it answered.
    pub fn availability() -> Result<(), Unavailable> {
        select::availability()
    }

    /// An empty set.
    ///
    /// # Errors
    /// [`Error::Io`] with what the system answered when asked for the waker's descriptor.
    pub fn new() -> Result<Self, Error> {
        let mut set = Self {
            wake_event: wake_event()?,
            wanted: Sets::default(),
            answer: Sets::default(),
            next: 0,
            tokens: Vec::new(),
        };
        set.wanted.want(of_wake_event(&set.wake_event), true, false);
        Ok(set)
    }

    /// Adds a listening socket, to be reported by its token as long as a connection waits.
    ///
    /// # Errors
    /// None.
    pub fn listen(&mut self, listener: &Listener, token: u32) -> Result<(), Error> {
        self.put(of(listener.native()), token, Interest::RECEIVE);
        Ok(())
    }

    /// Takes a listening socket out of the set.
    pub fn forget_listener(&mut self, listener: &Listener) {
        self.remove(of(listener.native()));
    }

    /// Waits until something is ready, the time is over, or it is woken. `None`: no time-out.
    ///
    /// # Errors
    /// What the operating system answered; nothing is ready then.
    pub fn wait(&mut self, timeout: Option<Duration>, counters: &Counters) -> io::Result<Woken> {
        let wanted = &self.wanted;
        self.next = 0;
        let woken = wait(&mut self.answer, timeout, counters, |answer| answer.copy_from(wanted))?;
        let signalled = signalled(&mut self.answer, &self.wake_event, counters);
        Ok(if signalled { Woken::ByWaker } else { woken })
    }

    /// How many are ready by the last wait, of those that were not taken yet.
    pub fn ready_count(&self) -> usize {
        self.answer.count()
    }

    /// Takes the token of the next that is ready by the last wait.
    #[inline]
    pub fn next_ready(&mut self) -> Option<u32> {
        self.answer.take_next(&mut self.next).map(|fd| self.tokens[index(fd)])
    }

    /// Ends a wait, now or the next one.
    pub fn waker(&self) -> Waker {
        events::waker(&self.wake_event)
    }

    fn put(&mut self, fd: RawFd, token: u32, interest: Interest) {
        let index = index(fd);
        if index >= self.tokens.len() {
            self.tokens.resize(index + 1, 0);
        }
        self.tokens[index] = token;
        self.wanted.want(fd, interest.receive, interest.send);
    }

    fn remove(&mut self, fd: RawFd) {
        self.wanted.remove(fd);
        // The answer is not to be taken for that of a connection that gets its descriptor.
        self.answer.remove(fd);
    }
}

impl Streams for SelectIndexed {
    fn watch(&mut self, stream: &Stream, slot: u32, interest: Interest) -> io::Result<()> {
        self.put(of(stream.native()), slot, interest);
        Ok(())
    }

    fn change(&mut self, stream: &Stream, _: u32, interest: Interest) -> io::Result<()> {
        self.wanted.want(of(stream.native()), interest.receive, interest.send);
        Ok(())
    }

    fn forget(&mut self, stream: &Stream, _: u32) {
        self.remove(of(stream.native()));
    }
}
