//! Where connections come from. A source address has so many ports (28,232 on a usual Linux, for one
//! target), so more connections take further addresses of 127.0.0.0/8.

use super::SourceRange;
use std::net::{IpAddr, Ipv4Addr};

/// Connections from one address before the next one is taken. Long before the last port is gone
/// the system searches long for one that is free.
const OF_ONE: u32 = 10_000;

/// Addresses that one process takes at most: those of another process begin behind them.
pub(super) const MOST: u32 = 1024;

/// Which address the next connection comes from.
#[derive(Debug)]
pub(super) struct Sources {
    /// Those that were asked for, if any were.
    asked: Option<SourceRange>,
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
    /// For connections of a process, by its number, to `target`: those asked for, and else several addresses
    /// where it is one of 127.0.0.0/8.
    pub(super) fn to(target: IpAddr, process: u32, asked: Option<SourceRange>) -> Self {
        let several =
            asked.is_none() && matches!(target, IpAddr::V4(address) if address.is_loopback());
        let first = if several { process * MOST } else { 0 };
        Self { asked, several, first, number: first, taken: 0 }
    }

    /// The address for one more connection, the one of that number: which of those asked for it has follows from that
    /// alone, so that each has as many as any other.
    pub(super) fn take(&mut self, connection: u32) -> Source {
        if let Some(asked) = self.asked {
            self.taken = self.taken.saturating_add(1);
            return Source { number: 0, address: Some(asked.of_connection(connection).into()) };
        }
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
        match (self.taken, self.asked) {
            (0, _) => 0,
            (taken, Some(asked)) => taken.min(asked.count),
            (_, None) => self.number - self.first + 1,
        }
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
        let mut sources = Sources::to(Ipv4Addr::LOCALHOST.into(), 0, None);
        assert_eq!(sources.used(), 0);
        for _ in 0..OF_ONE {
            assert_eq!(sources.take(0).address, None);
        }
        let second = sources.take(0);
        assert_eq!(second.address, Some([127, 0, 0, 2].into()));
        assert!(sources.exhausted(second));
        assert!(sources.exhausted(second), "another thread has not heard of it yet");
        assert_eq!(sources.take(0).address, Some([127, 0, 0, 3].into()));
        assert_eq!(sources.used(), 3);
    }

    #[test]
    fn their_number_is_bounded() {
        let mut sources = Sources::to([127, 1, 2, 3].into(), 0, None);
        let mut taken = 1;
        loop {
            let source = sources.take(0);
            if !sources.exhausted(source) {
                break;
            }
            taken += 1;
        }
        assert_eq!(taken, MOST);
        let mut other = Sources::to([127, 1, 2, 3].into(), 1, None);
        assert_eq!(other.take(0).address, Some([127, 0, 4, 1].into()), "behind the first's");
        let mut v6 = Sources::to("::1".parse().unwrap(), 1, None);
        let only = v6.take(0);
        assert!(only.address.is_none() && !v6.exhausted(only), "IPv6 has one address of loopback");
    }

    #[test]
    fn those_asked_for_have_equally_many_whoever_connects() {
        let asked = SourceRange { first: Ipv4Addr::new(127, 0, 0, 254), count: 3 };
        let target = Ipv4Addr::LOCALHOST.into();
        let mut parts = [0, 1].map(|part| Sources::to(target, part, Some(asked)));
        let mut of_each = std::collections::BTreeMap::new();
        for connection in 0..300 {
            let source = parts[connection as usize % 2].take(connection);
            *of_each.entry(source.address.unwrap()).or_insert(0) += 1;
            assert!(!parts[0].exhausted(source), "there is no other for it");
        }
        let wanted = [[127, 0, 0, 254], [127, 0, 0, 255], [127, 0, 1, 0]];
        assert_eq!(of_each, wanted.map(|address| (address.into(), 100)).into());
        assert_eq!(parts[0].used(), 3);
    }
}
