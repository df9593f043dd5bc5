//! poll: the whole set goes to the kernel with every call.
//!
//! It exists everywhere, keeps no state in the kernel, and costs time for each socket of the
//! set with every call: right for a handful of sockets. For one socket it is the cheapest
//! wait with a time-out and a waker that there is.
//!
//! A set is either of datagram sockets ([`Poll::add`]) or of connections and those that listen for them
//! ([`Streams`], [`Poll::listen`]), which come and go: there the entry of one that is
//! forgotten is filled by the last, so each of these changes is constant work.

#[cfg_attr(target_os = "linux", path = "linux.rs")]
#[cfg_attr(windows, path = "windows.rs")]
pub(super) mod native;

use super::{
    Interest, Streams,
    wake_event::{self, WakeEvent},
};
use crate::{
    Error,
    counters::Counters,
    rio::Woken,
    socket::DatagramSocket,
    stream::{Listener, Stream},
    wake::Waker,
};
use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

/// A set of sockets to wait for with poll(2) or WSAPoll.
#[derive(Debug)]
pub struct Poll {
    wake_event: Arc<WakeEvent>,
    /// The wake event comes first, then the sockets.
    entries: Vec<native::Entry>,
    /// Kept open as long as their descriptors are in the set.
    sockets: Vec<(DatagramSocket, u32)>,
    /// In a set of connections, the token of each entry behind the wake event's.
    tokens: Vec<u32>,
    /// Where the entry of a slot stands, if it has one.
    places: Vec<u32>,
    /// The tokens that the last wait found ready, in a set of connections, and how many of them were taken.
    found: Vec<u32>,
    taken: usize,
}

impl Poll {
    /// Its name, where a provider is named.
    pub const PROVIDER: &'static str = native::PROVIDER;

    /// An empty set.
    ///
    /// # Errors
    /// [`Error::Io`] with what the operating system answered when asked for the waker's descriptor.
    pub fn new() -> Result<Self, Error> {
        let wake_event = WakeEvent::new().map_err(|e| Error::io("making a waker", e))?;
        let wake_event = Arc::new(wake_event);
        let entries = vec![native::Entry::of_wake_event(&wake_event)];
        Ok(Self {
            wake_event,
            entries,
            sockets: Vec::new(),
            tokens: Vec::new(),
            places: Vec::new(),
            found: Vec::new(),
            taken: 0,
        })
    }

    /// Adds a socket, to be reported by its token when it can be received from.
    ///
    /// # Errors
    /// None.
    pub fn add(&mut self, socket: &DatagramSocket, token: u32) -> Result<(), Error> {
        debug_assert!(self.tokens.is_empty(), "a set of connections");
        self.entries.push(native::Entry::of_socket(socket.native()));
        self.sockets.push((socket.clone(), token));
        Ok(())
    }

    /// What a socket is told for: that it can be received from, or sent to. `place` is its
    /// place in the order of adding. A socket that is told for nothing may still be told when
    /// it has an error.
    pub fn want(&mut self, place: usize, receive: bool, send: bool) {
        self.entries[1 + place].want(receive, send);
    }

    /// Adds a listening socket, to be reported by its token as long as a connection waits. The token is
    /// no slot of a connection.
    ///
    /// # Errors
    /// None.
    pub fn listen(&mut self, listener: &Listener, token: u32) -> Result<(), Error> {
        let mut entry = native::Entry::of(listener.native());
        entry.want(true, false);
        self.push(entry, token);
        Ok(())
    }

    /// Takes a listening socket out of the set. This looks for it; one that is not in it need not be
    /// taken out.
    pub fn forget_listener(&mut self, listener: &Listener) {
        // Where it listens no longer, its number may be that of a connection in this set.
        let is_its = |(place, (entry, token)): (usize, (&native::Entry, &u32))| {
            let of_connection = self.places.get(*token as usize) == Some(&(place as u32));
            entry.is_of(listener.native()) && !of_connection
        };
        if let Some(place) = self.entries[1..].iter().zip(&self.tokens).enumerate().position(is_its)
        {
            self.remove(place);
        }
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
                // A time-out of the system's own, or a little early.
                Ok(0) if by.is_none_or(|by| Instant::now() < by) => {}
                result => break result?,
            }
            left = by.map(|by| by.saturating_duration_since(Instant::now()));
        };
        for (entry, (socket, _)) in self.entries[1..].iter().zip(&self.sockets) {
            if entry.has_error() {
                socket.native().note_errors(); // it stays ready until they are taken
            }
        }
        self.look_through(ready);
        if self.entries[0].is_ready() {
            counters.kernel_entries.one();
            self.wake_event.clear();
            return Ok(Woken::ByWaker);
        }
        Ok(if ready == 0 { Woken::TimedOut } else { Woken::Ready })
    }

    /// For how long a wait polls the queues of devices, in words: that is the system's setting.
    pub fn busy_poll() -> String {
        native::busy_poll()
    }

    /// The tokens of the datagram sockets that were ready when the last wait ended.
    pub fn ready(&self) -> impl Iterator<Item = u32> {
        let sockets = self.entries[1..].iter().zip(&self.sockets);
        sockets.filter(|(entry, _)| entry.is_ready()).map(|(_, (_, token))| *token)
    }

    /// How many connections and listening sockets were ready when the last wait ended.
    #[inline]
    pub fn ready_count(&self) -> usize {
        self.found.len()
    }

    /// Takes the token of the next of them.
    #[inline]
    pub fn next_ready(&mut self) -> Option<u32> {
        let token = self.found.get(self.taken).copied();
        self.taken += usize::from(token.is_some());
        token
    }

    /// Ends a wait of this set, now or the next one.
    pub fn waker(&self) -> Waker {
        wake_event::waker(&self.wake_event)
    }

    /// Looks through the whole set for those that are ready, until all of them are found: that is
    /// what poll costs. Entries move while they are served, so their tokens are kept.
    fn look_through(&mut self, ready: usize) {
        self.found.clear();
        self.taken = 0;
        let mut left = ready - usize::from(ready > 0 && self.entries[0].is_ready());
        for (entry, token) in self.entries[1..].iter().zip(&self.tokens) {
            if left == 0 {
                break;
            }
            if entry.is_ready() {
                self.found.push(*token);
                left -= 1;
            }
        }
    }

    fn push(&mut self, entry: native::Entry, token: u32) {
        debug_assert!(self.sockets.is_empty(), "a set of datagram sockets");
        self.entries.push(entry);
        self.tokens.push(token);
    }

    /// Takes out the entry at this place behind the wake event's; the last one moves there.
    fn remove(&mut self, place: usize) {
        self.entries.swap_remove(1 + place);
        self.tokens.swap_remove(place);
        let moved = self.tokens.get(place).and_then(|token| self.places.get_mut(*token as usize));
        if let Some(its) = moved {
            *its = place as u32;
        }
    }
}

/// The place of a slot that is not in the set.
const NOWHERE: u32 = u32::MAX;

impl Streams for Poll {
    fn watch(&mut self, stream: &Stream, slot: u32, interest: Interest) -> io::Result<()> {
        let index = slot as usize;
        if index >= self.places.len() {
            self.places.resize(index + 1, NOWHERE);
        }
        debug_assert_eq!(self.places[index], NOWHERE, "a slot is watched once");
        self.places[index] = self.tokens.len() as u32;
        let mut entry = native::Entry::of(stream.native());
        entry.want(interest.receive, interest.send);
        self.push(entry, slot);
        Ok(())
    }

    fn change(&mut self, _: &Stream, slot: u32, interest: Interest) -> io::Result<()> {
        if let Some(place) = self.places.get(slot as usize).filter(|place| **place != NOWHERE) {
            self.entries[1 + *place as usize].want(interest.receive, interest.send);
        }
        Ok(())
    }

    fn forget(&mut self, _: &Stream, slot: u32) {
        let place = self.places.get_mut(slot as usize);
        let place = place.map_or(NOWHERE, |place| std::mem::replace(place, NOWHERE));
        if place != NOWHERE {
            self.remove(place as usize);
        }
    }
}
