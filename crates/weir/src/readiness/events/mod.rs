//! events: groups of a fixed size.
//!
//! The shape of WSAWaitForMultipleEvents: a thread waits for at most so many handles, is told of
//! one, and goes through the others from there. So a group costs a thread; in return a thread never has
//! more than its few connections to look after. The first handle of a group is its waker's. Those that are ready
//! are told in turn, so none is told twice while another waits.
//!
//! On Linux a group is an epoll set, whose wait tells all that are ready (64 at most), each as long as it is. On
//! Windows a wait tells one, and the others follow with the next waits. There each socket has an event
//! (WSAEventSelect), and is told again once it was received from and more is there, or sent to until there was no room
//! and there is some again; the end that a peer has sent is told as long as something is to be received.

#[cfg_attr(target_os = "linux", path = "linux.rs")]
#[cfg_attr(windows, path = "windows.rs")]
mod native;

use super::{Interest, Streams};
use crate::{
    Error, Unavailable,
    counters::Counters,
    rio::Woken,
    stream::{Listener, Stream},
    wake::Waker,
};
use std::{io, time::Duration};

/// A group of handles to wait for.
#[derive(Debug)]
pub struct Events {
    set: native::Set,
    /// Handles that it may have, the waker's included.
    most: u32,
    handles: u32,
}

impl Events {
    /// The name of what it runs on.
    pub const PROVIDER: &'static str = native::PROVIDER;

    /// The most handles that a group may have, its waker's included.
    pub const MOST: u32 = native::MOST;

    /// Whether the system has what it takes, by trying.
    ///
    /// # Errors
    /// What it answered.
    pub fn availability() -> Result<(), Unavailable> {
        native::availability()
    }

    /// A group of at most so many handles, with its waker's: 1 to [`MOST`](Self::MOST).
    ///
    /// # Errors
    /// [`Error::Io`] with what the system answered.
    pub fn new(most: u32) -> Result<Self, Error> {
        Ok(Self { set: native::new()?, most: most.min(Self::MOST), handles: 1 })
    }

    /// How many more handles it has room for.
    pub fn room(&self) -> u32 {
        self.most.saturating_sub(self.handles)
    }

    /// Adds a listening socket, to be told by its token as long as a connection waits.
    ///
    /// # Errors
    /// [`Error::Io`]: the group is full, or what the system answered.
    pub fn listen(&mut self, listener: &Listener, token: u32) -> Result<(), Error> {
        self.check_room().map_err(|e| Error::io("listening", e))?;
        self.set.listen(listener, token)?;
        self.handles += 1;
        Ok(())
    }

    /// Takes a listening socket out, which is in the group.
    pub fn forget_listener(&mut self, listener: &Listener) {
        self.set.forget_listener(listener);
        self.handles -= 1;
    }

    /// Waits until one is ready, the time is over, or it is woken. `None`: no time-out.
    ///
    /// # Errors
    /// What the operating system answered.
    pub fn wait(&mut self, timeout: Option<Duration>, counters: &Counters) -> io::Result<Woken> {
        self.set.wait(timeout, counters)
    }

    /// Takes the token of one that was ready when the last wait ended, and was not taken yet: ones in turn, then
    /// `None`. On Windows there is one.
    #[inline]
    pub fn next_ready(&mut self) -> Option<u32> {
        self.set.next_ready()
    }

    /// Whether others than the last wait told may be ready.
    #[inline]
    pub(crate) fn may_have_left(&self) -> bool {
        self.set.may_have_left()
    }

    /// Ends a wait of this group, now or the next one.
    pub fn waker(&self) -> Waker {
        self.set.waker()
    }

    fn check_room(&self) -> io::Result<()> {
        if self.room() > 0 {
            return Ok(());
        }
        Err(io::Error::other(format!("a group of {} handles is full", self.most)))
    }
}

impl Streams for Events {
    fn watch(&mut self, stream: &Stream, slot: u32, interest: Interest) -> io::Result<()> {
        self.check_room()?;
        self.set.watch(stream, slot, interest)?;
        self.handles += 1;
        Ok(())
    }

    fn change(&mut self, stream: &Stream, slot: u32, interest: Interest) -> io::Result<()> {
        self.set.change(stream, slot, interest)
    }

    fn forget(&mut self, stream: &Stream, slot: u32) {
        self.set.forget(stream, slot);
        self.handles -= 1;
    }
}
