//! Sets that are kept, and an index from sockets to connections.

use super::{Sets, of, of_wake_event};
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
use std::{collections::HashMap, io, sync::Arc, time::Duration};
use windows_sys::Win32::Networking::WinSock::SOCKET;

/// Connections to wait for with select, found by their sockets.
#[derive(Debug)]
pub struct SelectIndexed {
    wake_event: Arc<WakeEvent>,
    wanted: Sets,
    answer: Sets,
    index: HashMap<SOCKET, Entry>,
    /// How often was waited.
    waits: u64,
    /// The tokens that the last wait found ready, and how many of them were taken.
    ready: Vec<u32>,
    taken: usize,
}

#[derive(Debug)]
struct Entry {
    token: u32,
    /// Where it stands in the sets that are wanted, to receive and to send.
    places: [Option<usize>; 2],
    /// The wait that told it last: what is ready to receive and to send is told once.
    told_by: u64,
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
    /// [`Error::Io`] with what the system answered when asked for the waker's socket.
    pub fn new() -> Result<Self, Error> {
        let mut set = Self {
            wake_event: wake_event()?,
            wanted: Sets::default(),
            answer: Sets::default(),
            index: HashMap::new(),
            waits: 0,
            ready: Vec::new(),
            taken: 0,
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
        self.ready.clear();
        self.taken = 0;
        let wanted = &self.wanted;
        let woken = wait(&mut self.answer, timeout, counters, |answer| answer.copy_from(wanted))?;
        let signalled = signalled(&mut self.answer, &self.wake_event, counters);
        self.look_up();
        Ok(if signalled { Woken::ByWaker } else { woken })
    }

    /// How many are ready by the last wait, of those that were not taken yet.
    pub fn ready_count(&self) -> usize {
        self.ready.len() - self.taken
    }

    /// Takes the token of the next that is ready by the last wait.
    #[inline]
    pub fn next_ready(&mut self) -> Option<u32> {
        let token = self.ready.get(self.taken).copied();
        self.taken += usize::from(token.is_some());
        token
    }

    /// Ends a wait, now or the next one.
    pub fn waker(&self) -> Waker {
        events::waker(&self.wake_event)
    }

    /// Finds the tokens of those in the answer: nothing is searched.
    fn look_up(&mut self) {
        self.waits += 1;
        for socket in self.answer.receive.sockets().iter().chain(self.answer.send.sockets()) {
            if let Some(entry) = self.index.get_mut(socket)
                && entry.told_by != self.waits
            {
                entry.told_by = self.waits;
                self.ready.push(entry.token);
            }
        }
    }

    fn put(&mut self, socket: SOCKET, token: u32, interest: Interest) {
        self.index.insert(socket, Entry { token, places: [None; 2], told_by: 0 });
        self.want(socket, interest);
    }

    /// Brings a socket into the sets that it is wanted in, and out of the other; the last of a set fills a gap.
    fn want(&mut self, socket: SOCKET, interest: Interest) {
        let sets = [&mut self.wanted.receive, &mut self.wanted.send];
        let wanted = [interest.receive, interest.send];
        for (which, (set, wanted)) in sets.into_iter().zip(wanted).enumerate() {
            let Some(entry) = self.index.get_mut(&socket) else { return };
            match entry.places[which] {
                None if wanted => {
                    entry.places[which] = Some(set.sockets().len());
                    set.push(socket);
                }
                Some(place) if !wanted => {
                    entry.places[which] = None;
                    let moved = set.swap_remove(place);
                    if let Some(entry) = moved.and_then(|moved| self.index.get_mut(&moved)) {
                        entry.places[which] = Some(place);
                    }
                }
                _ => {}
            }
        }
    }

    fn remove(&mut self, socket: SOCKET) {
        self.want(socket, Interest::NONE);
        self.index.remove(&socket);
    }
}

impl Streams for SelectIndexed {
    fn watch(&mut self, stream: &Stream, slot: u32, interest: Interest) -> io::Result<()> {
        self.put(of(stream.native()), slot, interest);
        Ok(())
    }

    fn change(&mut self, stream: &Stream, _: u32, interest: Interest) -> io::Result<()> {
        self.want(of(stream.native()), interest);
        Ok(())
    }

    fn forget(&mut self, stream: &Stream, _: u32) {
        self.remove(of(stream.native()));
    }
}
