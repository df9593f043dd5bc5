//! poll: the whole set goes to the kernel with every call.
//!
//! It exists everywhere, keeps no state in the kernel, and costs time for each socket of the
//! set with every call: right for a handful of sockets. For one socket it is the cheapest
//! wait with a time-out and a waker that there is.

#[cfg(target_os = "linux")]
#[path = "linux.rs"]
mod native;
#[cfg(windows)]
#[path = "windows.rs"]
mod native;

use super::bell::{self, Bell};
use crate::{counters::Counters, rio::Woken, socket::DatagramSocket, wake::Waker};
use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

/// A set of sockets to wait for with poll(2) or WSAPoll.
#[derive(Debug)]
pub struct Poll {
    bell: Arc<Bell>,
    /// The bell comes first, then the sockets.
    entries: Vec<native::Entry>,
    /// Kept open as long as their descriptors are in the set.
    sockets: Vec<(DatagramSocket, u32)>,
}

impl Poll {
    /// An empty set.
    ///
    /// # Errors
    /// What the operating system answered when asked for the waker's descriptor.
    pub fn new() -> io::Result<Self> {
        let bell = Arc::new(Bell::new()?);
        let entries = vec![native::Entry::of_bell(&bell)];
        Ok(Self { bell, entries, sockets: Vec::new() })
    }

    /// Adds a socket. The set tells it by its token when it can be received from.
    pub fn add(&mut self, socket: &DatagramSocket, token: u32) {
        self.entries.push(native::Entry::of_socket(socket.native()));
        self.sockets.push((socket.clone(), token));
    }

    /// What a socket is told for: that it can be received from, or sent to. `place` is its
    /// place in the order of adding. A socket that is told for nothing may still be told when
    /// it has an error.
    pub fn want(&mut self, place: usize, receive: bool, send: bool) {
        self.entries[1 + place].want(receive, send);
    }

    /// Waits until a socket is ready, the time is over, or it is woken. `None`: no time-out.
    ///
    /// # Errors
    /// What the operating system answered.
    pub fn wait(&mut self, timeout: Option<Duration>, counters: &Counters) -> io::Result<Woken> {
        let by = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut left = timeout;
        let ready = loop {
            counters.kernel_entries.one();
            match native::poll(&mut self.entries, left) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Ok(0) if timeout.is_none() => {} // a time-out of the system's own
                result => break result?,
            }
            left = by.map(|by| by.saturating_duration_since(Instant::now()));
        };
        for (entry, (socket, _)) in self.entries[1..].iter().zip(&self.sockets) {
            if entry.has_error() {
                socket.native().note_errors(); // it stays ready until they are taken
            }
        }
        if self.entries[0].is_ready() {
            counters.kernel_entries.one();
            self.bell.clear();
            return Ok(Woken::ByWaker);
        }
        Ok(if ready == 0 { Woken::TimedOut } else { Woken::Ready })
    }

    /// For how long a wait polls the queues of devices, in words: that is the system's setting.
    pub fn busy_poll() -> String {
        native::busy_poll()
    }

    /// The tokens of the sockets that were ready when the last wait ended.
    pub fn ready(&self) -> impl Iterator<Item = u32> {
        let sockets = self.entries[1..].iter().zip(&self.sockets);
        sockets.filter(|(entry, _)| entry.is_ready()).map(|(_, (_, token))| *token)
    }

    /// Ends a wait of this set, now or the next one.
    pub fn waker(&self) -> Waker {
        bell::waker(&self.bell)
    }
}
