//! The sockets on a peer's port while a run goes.

use std::collections::HashMap;
use std::net::SocketAddr;

use weir::counters::os::{BoundSocket, SocketUsage};

/// The most sockets that are told apart. Of further ones is known only that they were there.
const SOCKETS_MAX: usize = 1024;

/// All sockets that were seen on a port since a run began, whoever holds them.
#[derive(Debug, Default)]
pub struct Port {
    /// By inode: the figures when the run began (of one that came later: nothing), and the last.
    seen: HashMap<u64, (SocketUsage, SocketUsage)>,
    /// Those that were there at the last look.
    open: usize,
    /// Seen, and not told apart.
    beyond: u32,
    known: bool,
}

impl Port {
    /// The sockets that are there when a run begins.
    pub fn at(address: SocketAddr) -> Self {
        let mut port = Self::default();
        if let Some(sockets) = SocketUsage::each_bound_to(&[address]) {
            port.begin(&sockets);
        }
        port
    }

    /// Looks again.
    pub fn look(&mut self, address: SocketAddr) {
        if let Some(sockets) = SocketUsage::each_bound_to(&[address]).filter(|_| self.known) {
            self.take(&sockets);
        }
    }

    fn begin(&mut self, sockets: &[BoundSocket]) {
        self.known = true;
        self.take(sockets);
        for (first, last) in self.seen.values_mut() {
            *first = *last;
        }
    }

    fn take(&mut self, sockets: &[BoundSocket]) {
        self.open = sockets.len();
        for socket in sockets {
            if !self.seen.contains_key(&socket.inode) && self.seen.len() == SOCKETS_MAX {
                self.beyond = self.beyond.saturating_add(1);
                continue;
            }
            let nothing = SocketUsage { drops: Some(0), ..SocketUsage::default() };
            self.seen.entry(socket.inode).or_insert((nothing, nothing)).1 = socket.usage;
        }
    }

    /// Datagrams that were dropped at any of them since the run began, as far as that was seen.
    pub fn dropped(&self) -> Option<u64> {
        let dropped = |(first, last): &(SocketUsage, SocketUsage)| last.since(first).drops;
        self.known.then(|| self.seen.values().map(dropped).sum()).flatten()
    }

    /// How many were there during the run and are not there now.
    pub fn closed(&self) -> u32 {
        // With more than can be told apart some have gone, or may have.
        (self.seen.len() - self.open.min(self.seen.len())) as u32 + self.beyond
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket(inode: u64, drops: u64) -> BoundSocket {
        let usage = SocketUsage { drops: Some(drops), ..SocketUsage::default() };
        BoundSocket { inode, usage }
    }

    #[test]
    fn what_was_dropped_at_a_socket_that_is_gone_is_not_forgotten() {
        let mut port = Port::default();
        port.begin(&[socket(5, 100)]);
        assert_eq!((port.dropped(), port.closed()), (Some(0), 0));
        port.take(&[socket(5, 103), socket(6, 40)]);
        port.take(&[socket(5, 104), socket(6, 50)]);
        assert_eq!((port.dropped(), port.closed()), (Some(54), 0));
        port.take(&[socket(5, 105)]);
        assert_eq!((port.dropped(), port.closed()), (Some(55), 1));
        assert_eq!((Port::default().dropped(), Port::default().closed()), (None, 0));
    }

    #[test]
    fn any_number_of_sockets_is_looked_at() {
        let mut port = Port::default();
        port.begin(&[socket(0, 0)]);
        for inode in 1..2000 {
            port.take(&[socket(0, 0), socket(inode, 1)]);
        }
        assert_eq!(port.seen.len(), SOCKETS_MAX);
        assert!(port.closed() > 1000);
    }
}
