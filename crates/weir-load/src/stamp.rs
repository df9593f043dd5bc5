//! What a generator writes into a datagram, and what a receiver reads from it.
//!
//! The first 32 bytes are the stamp, in little endian:
//!
//! | bytes | content |
//! | --- | --- |
//! | 0..4 | the letters `weir` |
//! | 4..6 | version of this format |
//! | 6..8 | flow: the number of the generator's socket |
//! | 8..12 | run id |
//! | 12..16 | check over all the other bytes of the stamp |
//! | 16..24 | sequence number in the flow, from 0, in the lower 40 bits; proof of reading in the upper 24 |
//! | 24..32 | when it was due, in ns of the machine's monotonic clock |
//!
//! The bytes after it are a pattern that depends on their place alone, so that a generator
//! fills its buffer once and then writes only stamps, and a receiver can tell shifted,
//! truncated and overwritten bytes.
//!
//! The proof is a number that follows from a secret of the generator ([`crate::proof`]), so that only who has
//! read a datagram knows it.
//!
//! Latencies are clocked from the time at which a datagram was due: that of its quantum when
//! the flood is paced, however late the call to the operating system was. At saturation all are
//! due at once, and the time is that of the call, read just before it.
//!
//! A datagram shorter than 32 bytes cannot carry a stamp. It carries the pattern (or
//! nothing, if it is empty), and receivers can only count it.

use std::sync::LazyLock;

/// Bytes of a stamp; a datagram must have as many to carry one.
pub const STAMP_BYTES: usize = 32;

/// The largest payload of a UDP datagram over IPv4 in bytes: 65,535 without the headers of
/// IP and UDP. IPv6 could carry 20 more; the generators use the same bound for both.
pub const DATAGRAM_BYTES_MAX: usize = 65_507;

/// The most flows of one run, of all its generators.
pub const FLOWS_MAX: usize = 1024;

/// The version of the format written by this build.
pub const VERSION: u16 = 2;

/// Bits of a sequence number: enough for a day at 12 million datagrams a second in each flow.
pub const SEQUENCE_BITS: u32 = 40;

/// The bits of a sequence number.
const SEQUENCE: u64 = (1 << SEQUENCE_BITS) - 1;

const MAGIC: u32 = u32::from_le_bytes(*b"weir");

/// What is written into each datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// Tells the datagrams of this run from all others.
    pub run: u32,
    /// Number of the generator's flow (socket) within the run.
    pub flow: u16,
    /// Number of the datagram within its flow, from 0; of [`SEQUENCE_BITS`].
    pub sequence: u64,
    /// Proof of reading, of [`crate::proof::VALUE_BITS`].
    pub proof: u32,
    /// When it was due, in ns of [`crate::clock`]: when paced the time of its quantum, at
    /// saturation that of the call that sent it.
    pub due_ns: u64,
}

/// Why bytes are not a stamp of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoStamp {
    /// Fewer than [`STAMP_BYTES`].
    Short,
    /// Does not begin as a stamp does.
    Foreign,
    /// A stamp in a version that this build does not know.
    Version(u16),
    /// Begins as a stamp, but the check does not match: bytes were changed on the way.
    Corrupt,
}

impl Stamp {
    /// Writes the stamp over the first [`STAMP_BYTES`] of a datagram.
    ///
    /// A few nanoseconds: four stores and two multiplications.
    ///
    /// # Panics
    /// If the datagram is shorter; whoever sends short datagrams does not stamp them.
    #[inline]
    pub fn write(&self, datagram: &mut [u8]) {
        let bytes: &mut [u8; STAMP_BYTES] =
            datagram.first_chunk_mut().expect("the datagram has room for a stamp");
        let first = u64::from(MAGIC) | u64::from(VERSION) << 32 | u64::from(self.flow) << 48;
        let numbers = (self.sequence & SEQUENCE) | u64::from(self.proof) << SEQUENCE_BITS;
        let check = check(first, self.run, numbers, self.due_ns);
        let second = u64::from(self.run) | u64::from(check) << 32;
        bytes[0..8].copy_from_slice(&first.to_le_bytes());
        bytes[8..16].copy_from_slice(&second.to_le_bytes());
        bytes[16..24].copy_from_slice(&numbers.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.due_ns.to_le_bytes());
    }

    /// Reads the stamp of a datagram; any bytes may be given.
    #[inline]
    pub fn read(datagram: &[u8]) -> Result<Self, NoStamp> {
        let Some(bytes) = datagram.first_chunk::<STAMP_BYTES>() else {
            return Err(NoStamp::Short);
        };
        let (first, second, numbers) = (word(bytes, 0), word(bytes, 8), word(bytes, 16));
        if first as u32 != MAGIC {
            return Err(NoStamp::Foreign);
        }
        let version = (first >> 32) as u16;
        let stamp = Self {
            run: second as u32,
            flow: (first >> 48) as u16,
            sequence: numbers & SEQUENCE,
            proof: (numbers >> SEQUENCE_BITS) as u32,
            due_ns: word(bytes, 24),
        };
        // The check first: a version that was changed on the way is corruption.
        if check(first, stamp.run, numbers, stamp.due_ns) != (second >> 32) as u32 {
            return Err(if version == VERSION {
                NoStamp::Corrupt
            } else {
                NoStamp::Version(version)
            });
        }
        if version == VERSION { Ok(stamp) } else { Err(NoStamp::Version(version)) }
    }
}

#[inline]
fn word(bytes: &[u8; STAMP_BYTES], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// A hash of the stamp's words by folded multiplication: it finds accidents, with one
/// chance in 2^32 to miss one, and is no protection against forgery.
#[inline]
fn check(first: u64, run: u32, numbers: u64, due_ns: u64) -> u32 {
    // Odd constants without structure (fractional bits of the square roots of primes).
    const KEYS: [u64; 4] = [
        0x6a09_e667_f3bc_c909,
        0xbb67_ae85_84ca_a73b,
        0x3c6e_f372_fe94_f82b,
        0xa54f_f53a_5f1d_36f1,
    ];
    let hash = fold(first ^ KEYS[0], u64::from(run) ^ KEYS[1])
        ^ fold(numbers ^ KEYS[2], due_ns ^ KEYS[3]).rotate_left(17);
    (hash ^ (hash >> 32)) as u32
}

/// Both halves of a product, laid over one another: a step of a hash.
#[inline]
pub(crate) fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// The pattern for every place in a datagram.
static PATTERN: LazyLock<Box<[u8]>> = LazyLock::new(|| {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let step = |state: &mut u64| {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        (*state >> 32) as u8
    };
    (0..DATAGRAM_BYTES_MAX).map(|_| step(&mut state)).collect()
});

/// Fills a whole datagram with the pattern; a stamp is then written over its beginning.
///
/// # Panics
/// If it is longer than [`DATAGRAM_BYTES_MAX`].
pub fn fill(datagram: &mut [u8]) {
    datagram.copy_from_slice(&PATTERN[..datagram.len()]);
}

/// Whether the bytes after the stamp (all bytes, if there is no room for one) are the
/// pattern still.
pub fn body_is_intact(datagram: &[u8]) -> bool {
    let from = if datagram.len() < STAMP_BYTES { 0 } else { STAMP_BYTES };
    PATTERN.get(from..datagram.len()).is_some_and(|pattern| pattern == &datagram[from..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proof::VALUE_BITS;
    use proptest::prelude::*;

    fn any_stamp() -> impl Strategy<Value = Stamp> {
        (any::<u32>(), any::<u16>(), 0..=SEQUENCE, 0..1u32 << VALUE_BITS, any::<u64>()).prop_map(
            |(run, flow, sequence, proof, due_ns)| Stamp { run, flow, sequence, proof, due_ns },
        )
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(stamp in any_stamp(), size in STAMP_BYTES..2000usize) {
            let mut datagram = vec![0; size];
            fill(&mut datagram);
            stamp.write(&mut datagram);
            prop_assert_eq!(Stamp::read(&datagram), Ok(stamp));
            prop_assert!(body_is_intact(&datagram));
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(Stamp::read(&bytes).is_err());
            let _ = body_is_intact(&bytes);
        }

        #[test]
        fn a_changed_bit_is_noticed(stamp in any_stamp(), bit in 0..8 * 96usize) {
            let mut datagram = vec![0; 96];
            fill(&mut datagram);
            stamp.write(&mut datagram);
            datagram[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Stamp::read(&datagram).is_err() || !body_is_intact(&datagram));
        }
    }

    #[test]
    fn short_and_foreign_bytes_are_told_apart() {
        assert_eq!(Stamp::read(&[0; 31]), Err(NoStamp::Short));
        assert_eq!(Stamp::read(&[0; 32]), Err(NoStamp::Foreign));
        let mut newer = [0; 32];
        newer[..4].copy_from_slice(b"weir");
        newer[4] = 9;
        assert_eq!(Stamp::read(&newer), Err(NoStamp::Version(9)));
    }

    #[test]
    fn a_shifted_body_is_not_intact() {
        let mut datagram = vec![0; 200];
        fill(&mut datagram);
        datagram.copy_within(41..200, 40);
        assert!(!body_is_intact(&datagram));
        assert!(body_is_intact(&[]));
        assert!(!body_is_intact(&[0; DATAGRAM_BYTES_MAX + 1]));
    }
}
