//! Connection IDs that say whose they are, to those who have the key.

use quinn::{ConnectionId, ConnectionIdGenerator, EndpointConfig};
use quinn_proto::InvalidCid;
use std::{fmt, hash::Hasher as _, str::FromStr, time::Duration};
use weir::Error;

/// Length of an ID, in bytes, and how many of them are random.
const LENGTH: usize = 8;
const RANDOM: usize = 4;

/// The connection IDs of one process: four bytes by chance, and four of SipHash-2-4 of those by a key of its own.
///
/// Who has the key tells them from others. To anybody else they are random bytes, which tell nothing of the process or of the
/// connection (RFC 9000, 5.1). Of IDs that somebody makes up one of 2³² passes for one of these.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ConnectionIds {
    key: [u64; 2],
}

impl ConnectionIds {
    /// Those of a new key.
    ///
    /// # Errors
    /// [`Error::Io`] where the system has no random numbers.
    pub fn new() -> Result<Self, Error> {
        let part = || getrandom::u64().map_err(|e| Error::io("making a key", e.into()));
        Ok(Self { key: [part()?, part()?] })
    }

    /// Has an endpoint give its connections such IDs.
    pub fn configure(self, config: &mut EndpointConfig) {
        config.cid_generator(move || Box::new(self));
    }

    /// Whether this is one of them.
    pub fn made(&self, id: &[u8]) -> bool {
        match id.split_first_chunk::<RANDOM>() {
            Some((random, tag)) => *tag == self.tag(random),
            None => false,
        }
    }

    /// Whether a datagram goes to a connection that has one of them.
    pub fn are_of(&self, datagram: &[u8]) -> bool {
        destination(datagram).is_some_and(|id| self.made(id))
    }

    #[expect(
        deprecated,
        reason = "of the others that std has none says its algorithm: two programs have to agree on it"
    )]
    fn tag(&self, random: &[u8; RANDOM]) -> [u8; LENGTH - RANDOM] {
        let mut hasher = std::hash::SipHasher::new_with_keys(self.key[0], self.key[1]);
        hasher.write(random);
        let [tag @ .., _, _, _, _] = hasher.finish().to_le_bytes();
        tag
    }
}

impl ConnectionIdGenerator for ConnectionIds {
    fn generate_cid(&mut self) -> ConnectionId {
        let random = getrandom::u32().expect("the system has random numbers").to_le_bytes();
        let mut id = [0; LENGTH];
        id[..RANDOM].copy_from_slice(&random);
        id[RANDOM..].copy_from_slice(&self.tag(&random));
        ConnectionId::new(&id)
    }

    fn validate(&self, id: &ConnectionId) -> Result<(), InvalidCid> {
        if self.made(id) { Ok(()) } else { Err(InvalidCid) }
    }

    fn cid_len(&self) -> usize {
        LENGTH
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

/// The connection ID that a datagram goes to, by what all versions of QUIC have in common (RFC 8999, 5): a long header says how
/// long it is, and after a short one it is as long as ours.
fn destination(datagram: &[u8]) -> Option<&[u8]> {
    let (first, rest) = datagram.split_first()?;
    if first & 0x80 == 0 {
        return rest.get(..LENGTH);
    }
    let (_version, rest) = rest.split_at_checked(4)?;
    let (length, rest) = rest.split_first()?;
    rest.get(..usize::from(*length))
}

/// The key in hexadecimal, for the process that is to know these: whoever has it can make such IDs.
impl fmt::LowerHex for ConnectionIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}{:016x}", self.key[0], self.key[1])
    }
}

impl FromStr for ConnectionIds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let part = |digits: &str| match digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            true => u64::from_str_radix(digits, 16).ok(),
            false => None, // a sign
        };
        let key = text.split_at_checked(16).filter(|(_, second)| second.len() == 16);
        let key = key.and_then(|(first, second)| Some([part(first)?, part(second)?]));
        key.map(|key| Self { key }).ok_or_else(|| "a key has 32 hexadecimal digits".into())
    }
}

/// It keeps the key to itself.
impl fmt::Debug for ConnectionIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionIds").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn long(version: [u8; 4], id: &[u8], rest: &[u8]) -> Vec<u8> {
        [&[0xc3][..], &version, &[id.len() as u8], id, rest].concat()
    }

    #[test]
    fn ids_are_told_by_their_key_alone() {
        let (mut one, another) = (ConnectionIds::new().unwrap(), ConnectionIds::new().unwrap());
        for _ in 0..100 {
            let id = one.generate_cid();
            assert_eq!(id.len(), one.cid_len());
            assert!(one.made(&id) && one.validate(&id).is_ok());
            assert!(!another.made(&id) && another.validate(&id).is_err());
            assert!(!one.made(&id[..7]) && !one.made(&[&id[..], &[0]].concat()));
        }
    }

    /// Two programs agree on it, whatever compiled them (SipHash-2-4 of 00 01 02 03 by the key 00 01 ... 0f).
    #[test]
    fn the_algorithm_is_the_published_one() {
        let key = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
        let ids = ConnectionIds { key };
        assert_eq!(ids.tag(&[0, 1, 2, 3]), 0xcf2794e0277187b7_u64.to_le_bytes()[..4]);
    }

    #[test]
    fn keys_are_read_as_they_are_written_and_not_shown_otherwise() {
        let ids = ConnectionIds::new().unwrap();
        let written = format!("{ids:x}");
        assert_eq!(written.parse::<ConnectionIds>().unwrap(), ids);
        assert!(!format!("{ids:?}").contains(&written[..8]));
        for wrong in
            ["", "1", &written[1..], &format!("{written}0"), &written.replace(&written[..1], "+")]
        {
            assert!(wrong.parse::<ConnectionIds>().is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn a_datagram_is_told_by_the_id_in_its_header(
            first in any::<u8>(), version in any::<[u8; 4]>(), rest in prop::collection::vec(any::<u8>(), 0..50),
        ) {
            let mut ids = ConnectionIds::new().unwrap();
            let id = ids.generate_cid();
            let short = [&[first & 0x7f][..], &id, &rest].concat();
            prop_assert!(ids.are_of(&short) && ids.are_of(&long(version, &id, &rest)));
            // Cut short it is nobody's.
            prop_assert!(!ids.are_of(&short[..LENGTH]));
            prop_assert!(!ids.are_of(&long(version, &id, &[])[..5 + LENGTH]));
        }

        #[test]
        fn any_bytes_are_taken(datagram in prop::collection::vec(any::<u8>(), 0..300)) {
            let id = destination(&datagram);
            prop_assert!(id.is_none_or(|id| id.len() < datagram.len()));
        }
    }
}
