//! Who has a place among the connections: strangers, and generators that have introduced themselves.
//!
//! The two have places of their own, so that no number of strangers takes one from a generator.
//! Where strangers are as many as may be, the oldest of the address that has the most of them goes;
//! where generators are, the one that has been idle longest, of the address that has the most. One
//! that floods keeps its place. An address is that of IPv4, or the first 64 bits of IPv6: whoever has
//! one of those has them all.

use std::{
    net::{IpAddr, Ipv6Addr},
    time::{Duration, Instant},
};

/// How many may be there.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlaceLimits {
    pub strangers: usize,
    pub strangers_per_address: usize,
    pub generators: usize,
    pub generators_per_address: usize,
    /// A generator that has been idle for so long may have to go for another.
    pub idle_grace: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Stranger,
    Idle { since: Instant },
    Flooding,
}

#[derive(Debug)]
struct Guest {
    number: u64,
    address: IpAddr,
    stage: Stage,
}

/// The places, in the order in which they were taken.
#[derive(Debug)]
pub(super) struct Places {
    limits: PlaceLimits,
    guests: Vec<Guest>,
}

impl Places {
    pub(super) fn new(limits: PlaceLimits) -> Self {
        Self { limits, guests: Vec::new() }
    }

    /// Gives a stranger a place. Gives who must leave for that, if anyone must.
    pub(super) fn arrive(&mut self, number: u64, from: IpAddr) -> Option<u64> {
        let address = group(from);
        let is_stranger = |guest: &Guest| guest.stage == Stage::Stranger;
        let own = self.count(|guest| is_stranger(guest) && guest.address == address);
        let all = self.count(is_stranger);
        let leaves = if own >= self.limits.strangers_per_address {
            self.guests.iter().find(|guest| is_stranger(guest) && guest.address == address)
        } else if all >= self.limits.strangers {
            self.oldest_of_the_most(is_stranger)
        } else {
            None
        };
        let leaves = leaves.map(|guest| guest.number);
        leaves.into_iter().for_each(|number| self.leave(number));
        self.guests.push(Guest { number, address, stage: Stage::Stranger });
        leaves
    }

    /// A stranger has proven who it is. Gives who must leave for that, if anyone must.
    ///
    /// # Errors
    /// If all places are taken by generators that flood, or are about to.
    pub(super) fn introduce(&mut self, number: u64, now: Instant) -> Result<Option<u64>, String> {
        let Some(at) = self.guests.iter().position(|guest| guest.number == number) else {
            return Err("its place was taken by another; connect again".into());
        };
        let address = self.guests[at].address;
        let is_generator = |guest: &Guest| guest.stage != Stage::Stranger;
        let has_idled = |guest: &Guest| match guest.stage {
            Stage::Idle { since } => now.saturating_duration_since(since) >= self.limits.idle_grace,
            _ => false,
        };
        let own = self.count(|guest| is_generator(guest) && guest.address == address);
        let all = self.generators();
        let PlaceLimits { generators, generators_per_address, .. } = self.limits;
        let (leaves, full) = if own >= generators_per_address {
            let idle =
                self.guests.iter().find(|guest| has_idled(guest) && guest.address == address);
            (idle, Some(format!("{own} generators of this address are connected already")))
        } else if all >= generators {
            let full = format!("{all} generators are connected already");
            (self.oldest_of_the_most(has_idled), Some(full))
        } else {
            (None, None)
        };
        let leaves = leaves.map(|guest| guest.number);
        if let (Some(full), None) = (full, leaves) {
            return Err(format!("{full}; wait for one to end"));
        }
        let mut guest = self.guests.remove(at);
        guest.stage = Stage::Idle { since: now };
        // The oldest of the generators is the one that introduced itself first.
        self.guests.push(guest);
        leaves.into_iter().for_each(|number| self.leave(number));
        Ok(leaves)
    }

    /// A generator floods, or has ended that.
    pub(super) fn floods(&mut self, number: u64, floods: bool, now: Instant) {
        if let Some(at) = self.guests.iter().position(|guest| guest.number == number) {
            let mut guest = self.guests.remove(at);
            guest.stage = if floods { Stage::Flooding } else { Stage::Idle { since: now } };
            self.guests.push(guest);
        }
    }

    /// A connection has ended.
    pub(super) fn leave(&mut self, number: u64) {
        self.guests.retain(|guest| guest.number != number);
    }

    /// How many generators have a place.
    pub(super) fn generators(&self) -> usize {
        self.count(|guest| guest.stage != Stage::Stranger)
    }

    fn count(&self, which: impl Fn(&Guest) -> bool) -> usize {
        self.guests.iter().filter(|guest| which(guest)).count()
    }

    /// Of the address that has the most of these, the oldest.
    fn oldest_of_the_most(&self, which: impl Fn(&Guest) -> bool) -> Option<&Guest> {
        let mut most: Option<(usize, &Guest)> = None;
        for guest in self.guests.iter().filter(|guest| which(guest)) {
            let count = self.count(|other| which(other) && other.address == guest.address);
            // The first one found is the oldest of its address.
            if most.is_none_or(|(than, _)| count > than) {
                most = Some((count, guest));
            }
        }
        most.map(|(_, guest)| guest)
    }
}

/// Addresses that are taken for one.
fn group(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into()
        }
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: PlaceLimits = PlaceLimits {
        strangers: 4,
        strangers_per_address: 2,
        generators: 3,
        generators_per_address: 2,
        idle_grace: Duration::from_secs(1),
    };

    fn from(host: u8) -> IpAddr {
        [192, 0, 2, host].into()
    }

    #[test]
    fn strangers_never_take_the_place_of_a_generator() {
        let (mut places, now) = (Places::new(LIMITS), Instant::now());
        assert_eq!(places.arrive(0, from(1)), None);
        assert_eq!(places.introduce(0, now), Ok(None));
        for stranger in 1..1000 {
            let leaves = places.arrive(stranger, from(stranger as u8));
            assert_ne!(leaves, Some(0));
            assert!(places.guests.len() <= 1 + LIMITS.strangers);
        }
        // And one more generator finds a place among them, if it is quick.
        places.arrive(1000, from(1));
        assert_eq!(places.introduce(1000, now), Ok(None));
    }

    #[test]
    fn the_address_with_the_most_strangers_loses_its_oldest() {
        let mut places = Places::new(LIMITS);
        assert_eq!(places.arrive(1, from(1)), None);
        assert_eq!(places.arrive(2, from(2)), None);
        assert_eq!(places.arrive(3, from(2)), None);
        assert_eq!(places.arrive(4, from(2)), Some(2), "its own limit");
        assert_eq!(places.arrive(5, from(3)), None);
        assert_eq!(places.arrive(6, from(4)), Some(3), "the limit of all");
        assert!(places.introduce(3, Instant::now()).is_err(), "it has left");
    }

    #[test]
    fn only_a_generator_that_idles_goes_for_another() {
        let (mut places, now) = (Places::new(LIMITS), Instant::now());
        let later = now + LIMITS.idle_grace;
        for (number, host) in [(1, 1), (2, 2), (3, 2), (4, 3), (5, 2)] {
            places.arrive(number, from(host));
            if number <= 3 {
                assert_eq!(places.introduce(number, now), Ok(None));
            }
        }
        assert!(places.introduce(4, now).expect_err("full").contains("3 generators"));
        assert!(places.introduce(5, now).expect_err("full").contains("of this address"));
        places.floods(2, true, now);
        assert_eq!(places.introduce(4, later), Ok(Some(1)), "none has more than one that idles");
        assert_eq!(places.introduce(5, later), Ok(Some(3)), "of its own address, and idle");
        places.floods(2, false, later);
        places.leave(4);
        places.arrive(6, from(9));
        assert_eq!(places.introduce(6, later), Ok(None), "a place is free");
    }

    #[test]
    fn addresses_of_one_network_are_one() {
        let v6 = |text: &str| group(text.parse().expect("an address"));
        assert_eq!(v6("2001:db8::1"), v6("2001:db8::ffff:1"));
        assert_ne!(v6("2001:db8::1"), v6("2001:db8:0:1::1"));
        assert_eq!(v6("::ffff:192.0.2.1"), from(1));
    }
}
