//! Where connections come from. A source address has so many ports (28,232 on a usual Linux, for one
//! target), so more connections take further addresses of 127.0.0.0/8.

use std::net::{IpAddr, Ipv4Addr};

/// Connections from one address before the next one is taken. Long before the last port is gone
/// the system searches long for one that is free.
const OF_ONE: u32 = 10_000;

/// Addresses that one process takes at most: those of another process begin behind them.
pub(super) const MOST: u32 = 1024;

/// Which address the next connection comes from.
#[derive(Debug)]
pub(super) struct Sources {
    several: bool,
    first: u32,
    number: u32,
    taken: u32,
}

/// An address to connect from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Source {
    number: u32,
    /// None for the one that the system chooses.
    pub(super) address: Option<IpAddr>,
}

impl Sources {
    /// For connections of a process, by its number, to `target`: several addresses where it is one
    /// of 127.0.0.0/8.
    pub(super) fn to(target: IpAddr, process: u32) -> Self {
        let several = matches!(target, IpAddr::V4(address) if address.is_loopback());
        let first = if several { process * MOST } else { 0 };
        Self { several, first, number: first, taken: 0 }
    }

    /// The address for one more connection.
    pub(super) fn take(&mut self) -> Source {
        if self.several && self.taken >= OF_ONE && self.has_another() {
            self.next();
        }
        self.taken += 1;
        let first = u32::from(Ipv4Addr::LOCALHOST);
        let address = (self.number > 0).then(|| Ipv4Addr::from(first + self.number).into());
        Source { number: self.number, address }
    }

    /// That one has no port left. Says whether there is another.
    pub(super) fn exhausted(&mut self, source: Source) -> bool {
        // Another thread may have found out before.
        if source.number == self.number {
            if !self.several || !self.has_another() {
                return false;
            }
            self.next();
        }
        true
    }

    /// Addresses taken so far.
    pub(super) fn used(&self) -> u32 {
        if self.taken == 0 { 0 } else { self.number - self.first + 1 }
    }

    fn has_another(&self) -> bool {
        self.number + 1 < self.first + MOST
    }

    fn next(&mut self) {
        self.number += 1;
        self.taken = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_address_follows_before_the_ports_are_gone_and_when_they_are() {
        let mut sources = Sources::to(Ipv4Addr::LOCALHOST.into(), 0);
        assert_eq!(sources.used(), 0);
        for _ in 0..OF_ONE {
            assert_eq!(sources.take().address, None);
        }
        let second = sources.take();
        assert_eq!(second.address, Some([127, 0, 0, 2].into()));
        assert!(sources.exhausted(second));
        assert!(sources.exhausted(second), "another thread has not heard of it yet");
        assert_eq!(sources.take().address, Some([127, 0, 0, 3].into()));
        assert_eq!(sources.used(), 3);
    }

    #[test]
    fn their_number_is_bounded() {
        let mut sources = Sources::to([127, 1, 2, 3].into(), 0);
        let mut taken = 1;
        loop {
            let source = sources.take();
            if !sources.exhausted(source) {
                break;
            }
            taken += 1;
        }
        assert_eq!(taken, MOST);
        let mut other = Sources::to([127, 1, 2, 3].into(), 1);
        assert_eq!(other.take().address, Some([127, 0, 4, 1].into()), "behind the first's");
        let mut v6 = Sources::to("::1".parse().unwrap(), 1);
        let only = v6.take();
        assert!(only.address.is_none() && !v6.exhausted(only), "IPv6 has one address of loopback");
    }
}
