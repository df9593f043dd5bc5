//! The accepts that are under way, and where the kernel writes the peers' addresses; `arming` starts them.

use crate::{
    ring::{Slots, Token},
    stream::Listener,
};
use socket2::{SockAddr, SockAddrStorage};
use std::{mem, net::SocketAddr, os::fd::RawFd};

/// Accepts under way at a time, over all listeners: the most connections that come between two looks at
/// those that are open.
pub(super) const ACCEPTS: usize = 64;

/// Where the kernel writes an address.
pub(super) struct PeerAddress {
    storage: SockAddrStorage,
    len: libc::socklen_t,
}

impl PeerAddress {
    fn new() -> Self {
        let storage = SockAddrStorage::zeroed();
        let len = storage.size_of();
        Self { storage, len }
    }

    /// For the kernel.
    pub fn parts(name: *mut Self) -> (*mut libc::sockaddr, *mut libc::socklen_t) {
        // SAFETY: places inside what the pointer points at; nothing is read.
        unsafe { ((&raw mut (*name).storage).cast(), &raw mut (*name).len) }
    }

    /// What it wrote.
    fn address(&self) -> Option<SocketAddr> {
        let mut storage = SockAddrStorage::zeroed();
        let (from, len) = (&raw const self.storage, self.storage.size_of().min(self.len));
        // SAFETY: both are storage for any address, plain bytes.
        unsafe { (&raw mut storage).copy_from_nonoverlapping(from, 1) };
        // SAFETY: the kernel has written an address of this length.
        unsafe { SockAddr::new(storage, len) }.as_socket()
    }
}

/// An accept under way.
#[derive(Debug, Clone, Copy)]
struct Accept {
    listener: u32,
    /// The ring.
    at: usize,
    place: u32,
}

/// A listening socket.
struct Listening {
    listener: Listener,
    under_way: u32,
    /// It was told to accept no more.
    ended: bool,
}

/// Accepts under way.
pub(super) struct Accepts {
    listeners: Vec<Listening>,
    /// How many are asked for at each.
    each: u32,
    slots: Slots<Accept>,
    /// By slot.
    names: Box<[PeerAddress]>,
    wanted: bool,
}

impl Accepts {
    /// For these sockets, with at most `most` under way.
    pub fn new(class: u8, listeners: Vec<Listener>, most: usize) -> Self {
        let each = (most / listeners.len().max(1)).max(1);
        let most = each * listeners.len();
        let listening = |listener| Listening { listener, under_way: 0, ended: false };
        Self {
            listeners: listeners.into_iter().map(listening).collect(),
            each: each as u32,
            slots: Slots::new(class, most),
            names: (0..most).map(|_| PeerAddress::new()).collect(),
            wanted: false,
        }
    }

    /// Begins to ask.
    pub fn begin(&mut self) {
        self.wanted = true;
    }

    /// Asks no more for a while: the system has nothing to give.
    pub fn pause(&mut self) {
        self.wanted = false;
    }

    /// Asks no more. Returns what is to be cancelled.
    pub fn stop(&mut self) -> Vec<(usize, Token)> {
        self.wanted = false;
        self.slots.iter().map(|(token, accept)| (accept.at, token)).collect()
    }

    /// This listener was told to accept no more.
    pub fn ended(&mut self, listener: u32) {
        self.listeners[listener as usize].ended = true;
    }

    /// Whether more could be asked for.
    #[inline]
    pub fn is_short(&self) -> bool {
        self.wanted && self.slots.len() < self.names.len()
    }

    /// Whether none is under way.
    pub fn is_idle(&self) -> bool {
        self.slots.len() == 0
    }

    /// The listener that is asked for the next.
    pub fn next(&self) -> Option<u32> {
        let each = self.each;
        let lacks = |listening: &Listening| !listening.ended && listening.under_way < each;
        let place = self.listeners.iter().position(lacks).filter(|_| self.wanted)?;
        Some(place as u32)
    }

    /// The descriptor of a listener.
    pub fn fd(&self, listener: u32) -> RawFd {
        self.listeners[listener as usize].listener.native().fd()
    }

    /// Whether it is a Unix socket.
    pub fn is_local(&self, listener: u32) -> bool {
        self.listeners[listener as usize].listener.native().is_local()
    }

    /// Notes one that is asked for.
    pub fn insert(&mut self, listener: u32, at: usize, place: u32) -> (Token, *mut PeerAddress) {
        self.listeners[listener as usize].under_way += 1;
        let accept = Accept { listener, at, place };
        let token = self.slots.insert(accept).expect("each listener asks for so many and no more");
        let name = &mut self.names[token.slot()];
        *name = PeerAddress::new();
        (token, name)
    }

    /// One is over: its listener, its place, and who came.
    pub fn over(&mut self, token: Token, came: bool) -> Option<(u32, u32, Option<SocketAddr>)> {
        let Accept { listener, place, .. } = self.slots.remove(token)?;
        self.listeners[listener as usize].under_way -= 1;
        let peer = came.then(|| self.names[token.slot()].address()).flatten();
        Some((listener, place, peer))
    }

    /// Leaves the names to the kernel.
    pub fn leak(&mut self) {
        mem::forget(mem::take(&mut self.names));
    }
}
