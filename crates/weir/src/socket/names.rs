//! Names of Unix sockets, and the addresses that stand for them.
//!
//! Handlers, filters and all that designs share know a peer by a [`SocketAddr`], which fits the line in front of a payload
//! and is copied with every datagram. The name of a Unix socket has up to 108 bytes. So names are kept here, and what goes
//! around is an address that nobody of the internet can have, with the place of a name in it.
//!
//! There are [`MOST`] names at most in a program. Beyond that the one is forgotten that nobody has asked for for longest,
//! roughly (the clock algorithm), unless a socket is bound to it: what is sent to its address from then on is not sent.
//! A name that is known already costs a lock and a look into a hash table, and no memory.
//!
//! Most programs have no Unix sockets. So what keeps names is called through [`Does`], which only whoever makes a name puts
//! there: a program in which nobody does has none of that code.

use super::Endpoint;
use crate::Error;
use std::{
    collections::HashMap,
    io,
    net::{Ipv6Addr, SocketAddr, SocketAddrV6},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

/// Names that are known at a time, at most: 110 bytes each, and what it takes to find them.
const MOST: usize = 65_536;

/// Of addresses that stand for names: out of those that nothing comes from (100::/64, RFC 6666), with a scope, which the
/// kernel says of addresses of a link alone, and port 0.
const PREFIX: u64 = 0x0100 << 48;
const SCOPE: u32 = u32::from_be_bytes(*b"unix");

/// Whether it may be an address that stands for a name: no other address is taken for one, but some that the user made.
#[inline]
pub(crate) fn stands_for_name(address: &SocketAddr) -> bool {
    matches!(address, SocketAddr::V6(v6) if v6.scope_id() == SCOPE && is_of_prefix(v6))
}

#[cold]
fn is_of_prefix(v6: &SocketAddrV6) -> bool {
    (v6.ip().to_bits() >> 64) as u64 == PREFIX && v6.port() == 0
}

#[derive(Debug)]
struct Entry {
    name: Arc<[u8]>,
    /// How many names had this place before.
    turn: u32,
    /// By so many sockets.
    kept: u32,
    /// Since the hand came by.
    asked_for: bool,
}

#[derive(Debug)]
struct Names {
    most: usize,
    places: HashMap<Arc<[u8]>, usize>,
    entries: Vec<Entry>,
    hand: usize,
}

impl Names {
    fn new(most: usize) -> Self {
        Self { most, places: HashMap::new(), entries: Vec::new(), hand: 0 }
    }

    /// The place of a name, which it has from now on where it had none. `None`: sockets keep all places.
    fn place_of(&mut self, name: &[u8]) -> Option<usize> {
        if let Some(&place) = self.places.get(name) {
            self.entries[place].asked_for = true;
            return Some(place);
        }
        let name: Arc<[u8]> = name.into();
        let mut entry = Entry { name: Arc::clone(&name), turn: 0, kept: 0, asked_for: true };
        let place = match self.entries.len() < self.most {
            true => {
                self.entries.push(entry);
                self.entries.len() - 1
            }
            false => {
                let place = self.forget_one()?;
                let before = &mut self.entries[place];
                self.places.remove(&before.name);
                entry.turn = before.turn.wrapping_add(1);
                *before = entry;
                place
            }
        };
        self.places.insert(name, place);
        Some(place)
    }

    /// The place of the first name that was not asked for since the hand came by.
    fn forget_one(&mut self) -> Option<usize> {
        for _ in 0..2 * self.entries.len() {
            let place = self.hand;
            self.hand = (place + 1) % self.entries.len();
            let entry = &mut self.entries[place];
            if entry.kept == 0 && !std::mem::take(&mut entry.asked_for) {
                return Some(place);
            }
        }
        None
    }

    fn address(&self, place: usize) -> SocketAddr {
        let ip = Ipv6Addr::from_bits((u128::from(PREFIX) << 64) | place as u128);
        SocketAddrV6::new(ip, 0, self.entries[place].turn, SCOPE).into()
    }

    /// The name that an address stands for, if it is not forgotten.
    fn entry(&mut self, address: &SocketAddr) -> Option<&mut Entry> {
        let SocketAddr::V6(v6) = address else { return None };
        if !stands_for_name(address) {
            return None;
        }
        let place = usize::try_from(v6.ip().to_bits() as u64).ok()?;
        let entry = self.entries.get_mut(place).filter(|entry| entry.turn == v6.flowinfo())?;
        entry.asked_for = true;
        Some(entry)
    }
}

static NAMES: Mutex<Option<Names>> = Mutex::new(None);

fn with_names<R>(look: impl FnOnce(&mut Names) -> R) -> R {
    let mut names: MutexGuard<'_, _> = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    look(names.get_or_insert_with(|| Names::new(MOST)))
}

/// What is done with the name that an address stands for.
type Look<'a> = &'a mut dyn FnMut(&mut Entry);

/// What is done where there are names.
#[derive(Debug)]
struct Does {
    address_of: fn(&[u8]) -> Option<SocketAddr>,
    look_at: fn(&SocketAddr, Look<'_>),
}

static DOES: OnceLock<Does> = OnceLock::new();

/// For who makes a name.
fn does() -> &'static Does {
    DOES.get_or_init(|| Does {
        address_of: |name| {
            with_names(|names| names.place_of(name).map(|place| names.address(place)))
        },
        look_at: |address, look| {
            with_names(|names| names.entry(address).into_iter().for_each(look))
        },
    })
}

/// The address that stands for the name of a peer: a path, or an abstract name with the byte 0 before it. `None` where there is
/// no place for it, as sockets keep all.
#[allow(dead_code, reason = "not every system has Unix sockets of datagrams")]
pub(super) fn address_of(name: &[u8]) -> Option<SocketAddr> {
    DOES.get().and_then(|does| (does.address_of)(name))
}

/// Reads the name that an address stands for. `None`: it stands for none, or that was forgotten.
pub(super) fn with_name<R>(address: &SocketAddr, read: impl FnOnce(&[u8]) -> R) -> Option<R> {
    let (does, mut read, mut result) = (DOES.get()?, Some(read), None);
    (does.look_at)(address, &mut |entry| result = read.take().map(|read| read(&entry.name)));
    result
}

/// The address of an endpoint stands for no name, or for one that was forgotten.
pub(super) fn stands_for_none(endpoint: &Endpoint) -> Error {
    Error::Bind { address: endpoint.address, source: io::ErrorKind::NotFound.into() }
}

/// A name that is not forgotten as long as this is there.
#[derive(Debug)]
pub(crate) struct KeptName {
    address: SocketAddr,
    /// Through which it is let go: a type that may have one of these has no more of that code than this.
    does: &'static Does,
}

impl KeptName {
    /// Keeps a name.
    pub(crate) fn new(name: &[u8]) -> io::Result<Self> {
        let address = with_names(|names| {
            let place = names.place_of(name).ok_or_else(too_many)?;
            names.entries[place].kept += 1;
            io::Result::Ok(names.address(place))
        })?;
        Ok(Self { address, does: does() })
    }

    /// The address that stands for it.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for KeptName {
    fn drop(&mut self) {
        (self.does.look_at)(&self.address, &mut |entry| entry.kept -= 1);
    }
}

fn too_many() -> io::Error {
    io::Error::other("there are too many Unix sockets")
}

/// The address that stands for a name, which is made known for it.
pub(super) fn made_for(name: &[u8]) -> io::Result<SocketAddr> {
    (does().address_of)(name).ok_or_else(too_many)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::UnixAddress;
    use proptest::prelude::*;
    use std::collections::HashSet;

    #[test]
    fn a_name_and_its_address_are_of_each_other() {
        for name in ["/run/a.sock", "@b", "./@c", "relative/d", "@"] {
            let name = UnixAddress::from(name);
            match SocketAddr::try_from(&name) {
                Ok(address) => {
                    assert!(stands_for_name(&address));
                    assert_eq!(SocketAddr::try_from(&name).unwrap(), address);
                    assert_eq!(UnixAddress::of(address), Some(name));
                }
                Err(e) => {
                    assert!(name.abstract_name() == Some(b"") && e.to_string().contains("no name"))
                }
            }
        }
        // As an address of the internet may be, and as one with a scope may be.
        for other in ["0.0.0.0:0", "[100::1]:0", "[fe80::1%7]:0", "[::1]:80"] {
            let other: SocketAddr = other.parse().unwrap();
            assert!(!stands_for_name(&other) && UnixAddress::of(other).is_none());
        }
    }

    #[test]
    fn a_name_that_is_kept_is_not_forgotten() {
        let kept = KeptName::new(b"/tests/names/kept").unwrap();
        let again = KeptName::new(b"/tests/names/kept").unwrap();
        assert_eq!(kept.address(), again.address());
        let count = || with_names(|names| names.entry(&kept.address()).unwrap().kept);
        assert_eq!(count(), 2);
        drop(again);
        assert_eq!(count(), 1);
    }

    #[test]
    fn where_sockets_keep_all_places_there_is_none_left() {
        let mut names = Names::new(2);
        for name in [b"a", b"b"] {
            let place = names.place_of(name).unwrap();
            names.entries[place].kept = 1;
        }
        assert_eq!(names.place_of(b"c"), None);
        assert_eq!(names.place_of(b"b"), Some(1));
        names.entries[0].kept = 0;
        assert_eq!(names.place_of(b"c"), Some(0));
    }

    proptest! {
        /// An address stands for the name that it was made for, or for none, however many came since; and the last one that
        /// was asked for is known.
        #[test]
        fn an_address_never_stands_for_another_name(asked in prop::collection::vec(0u8..12, 1..300)) {
            let mut names = Names::new(4);
            let mut told = HashSet::new();
            for name in asked {
                let place = names.place_of(&[name]).unwrap();
                let address = names.address(place);
                prop_assert_eq!(&*names.entry(&address).unwrap().name, &[name]);
                told.insert((name, address));
                prop_assert!(names.entries.len() <= 4 && names.places.len() == names.entries.len());
                // In the order of their places, so that asking changes what is forgotten as little as may be.
                for (name, address) in &told {
                    let asked_for: Vec<_> = names.entries.iter().map(|entry| entry.asked_for).collect();
                    let known = names.entry(address).map(|entry| entry.name.to_vec());
                    prop_assert!(known.is_none_or(|known| known == [*name]));
                    names.entries.iter_mut().zip(asked_for).for_each(|(entry, was)| entry.asked_for = was);
                }
            }
        }
    }
}
