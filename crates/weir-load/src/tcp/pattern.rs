//! What the bytes of a stream are: the byte at each offset of each connection follows from the run,
//! the connection and the offset, and from nothing else.
//!
//! So a byte that comes back tells where it belongs. One that was changed, lost, sent twice, put in
//! another place or into another connection's stream differs from what belongs there, or shifts
//! what follows until something does; what is missing at the end is missing in the count. The pattern
//! has no period that a stream could reach.

/// The bytes of one connection's stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pattern {
    seed: u64,
}

const WORD: usize = size_of::<u64>();

/// 2^64 divided by the golden ratio, as in SplitMix64 (Steele, Lea and Flood, 2014).
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
/// A multiplier of SplitMix64.
const MULTIPLIER: u64 = 0xbf58_476d_1ce4_e5b9;

impl Pattern {
    /// Of a connection in a run.
    pub fn new(run: u32, connection: u32) -> Self {
        let number = (u64::from(run) << 32) | u64::from(connection);
        Self { seed: mix(mix(number.wrapping_add(GOLDEN))) }
    }

    /// Eight bytes, the first of which lies at 8 times `index`.
    #[inline]
    fn word(self, index: u64) -> u64 {
        mix(self.seed.wrapping_add(index.wrapping_mul(GOLDEN)))
    }

    /// The byte at an offset.
    #[inline]
    pub fn byte(self, offset: u64) -> u8 {
        self.word(offset / WORD as u64).to_le_bytes()[offset as usize % WORD]
    }

    /// Writes the bytes from an offset on.
    #[inline]
    pub fn fill(self, offset: u64, bytes: &mut [u8]) {
        let (head, index) = self.head(offset, bytes.len());
        let (head, rest) = bytes.split_at_mut(head);
        for (byte, at) in head.iter_mut().zip(offset..) {
            *byte = self.byte(at);
        }
        let mut words = rest.chunks_exact_mut(WORD);
        let mut index = index;
        for word in &mut words {
            word.copy_from_slice(&self.word(index).to_le_bytes());
            index += 1;
        }
        let last = self.word(index).to_le_bytes();
        let tail = words.into_remainder();
        tail.copy_from_slice(&last[..tail.len()]);
    }

    /// The place of the first byte that is not the one that belongs there, where the first of `bytes`
    /// belongs at `offset`.
    #[inline]
    pub fn difference(self, offset: u64, bytes: &[u8]) -> Option<usize> {
        let (head, first) = self.head(offset, bytes.len());
        let (_, rest) = bytes.split_at(head);
        let words = rest.chunks_exact(WORD);
        let tail_index = first + words.len() as u64;
        let last = self.word(tail_index).to_le_bytes();
        let tail = words.remainder();
        let right = (offset..).zip(&bytes[..head]).all(|(at, byte)| *byte == self.byte(at))
            && (first..).zip(words).all(|(index, word)| *word == self.word(index).to_le_bytes())
            && *tail == last[..tail.len()];
        if right {
            return None;
        }
        (offset..).zip(bytes).position(|(at, byte)| *byte != self.byte(at))
    }

    /// How many bytes lie before the first whole word, and that word's index.
    #[inline]
    fn head(self, offset: u64, len: usize) -> (usize, u64) {
        let head = (offset.wrapping_neg() % WORD as u64) as usize;
        (head.min(len), offset.div_ceil(WORD as u64))
    }
}

/// Half of SplitMix64's finish: enough that neighbours have nothing in common, at one multiplication
/// for eight bytes.
#[inline]
fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 32)).wrapping_mul(MULTIPLIER);
    word ^ (word >> 29)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Offsets near the beginning, and near the end of what there can be.
    fn offsets() -> impl Strategy<Value = u64> {
        prop_oneof![0u64..1000, (1u64 << 62)..(1 << 62) + 1000]
    }

    fn stream(pattern: Pattern, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        pattern.fill(offset, &mut bytes);
        bytes
    }

    proptest! {
        #[test]
        fn filling_is_byte_by_byte(run: u32, connection: u32, offset in offsets(), len in 0usize..200) {
            let pattern = Pattern::new(run, connection);
            let bytes = stream(pattern, offset, len);
            prop_assert!(bytes.iter().zip(offset..).all(|(byte, at)| *byte == pattern.byte(at)));
            prop_assert_eq!(pattern.difference(offset, &bytes), None);
        }

        #[test]
        fn where_it_is_cut_does_not_matter(offset in offsets(), len in 1usize..200, cut in 0usize..200) {
            let pattern = Pattern::new(1, 2);
            let bytes = stream(pattern, offset, len);
            let (first, second) = bytes.split_at(cut.min(len));
            prop_assert_eq!(pattern.difference(offset, first), None);
            prop_assert_eq!(pattern.difference(offset + first.len() as u64, second), None);
        }

        #[test]
        fn every_changed_byte_is_found_in_its_place(
            offset in offsets(), len in 1usize..300, at: prop::sample::Index, change in 1u8..,
        ) {
            let pattern = Pattern::new(7, 7);
            let mut bytes = stream(pattern, offset, len);
            let at = at.index(len);
            bytes[at] ^= change;
            prop_assert_eq!(pattern.difference(offset, &bytes), Some(at));
        }

        #[test]
        fn every_two_bytes_that_changed_places_are_found(
            offset in offsets(), len in 2usize..300,
            one: prop::sample::Index, other: prop::sample::Index,
        ) {
            let pattern = Pattern::new(7, 8);
            let mut bytes = stream(pattern, offset, len);
            let (one, other) = (one.index(len), other.index(len));
            prop_assume!(bytes[one] != bytes[other]);
            bytes.swap(one, other);
            prop_assert_eq!(pattern.difference(offset, &bytes), Some(one.min(other)));
        }

        /// What is lost is seen in what follows. 64 bytes that are all alike are not, so the test
        /// leaves as many behind the loss; nearer to the end it is the count that tells.
        #[test]
        fn every_loss_is_found(
            offset in offsets(), len in 65usize..400, at: prop::sample::Index, lost in 1usize..5000,
        ) {
            let pattern = Pattern::new(7, 9);
            let mut bytes = stream(pattern, offset, len + lost);
            let at = at.index(len - 64);
            bytes.drain(at..at + lost);
            let found = pattern.difference(offset, &bytes);
            prop_assert!(found.is_some_and(|found| found >= at), "{found:?}");
        }

        #[test]
        fn everything_that_came_twice_is_found(
            offset in offsets(), len in 65usize..400, at: prop::sample::Index, twice in 1usize..64,
        ) {
            let pattern = Pattern::new(7, 10);
            let mut bytes = stream(pattern, offset, len);
            let at = at.index(len - 64);
            let again = bytes[at..at + twice].to_vec();
            bytes.splice(at..at, again);
            prop_assert!(pattern.difference(offset, &bytes).is_some_and(|found| found >= at));
        }

        #[test]
        fn bytes_of_another_connection_or_run_are_found(
            run: u32, connection: u32, other: u32, offset in offsets(),
        ) {
            let bytes = stream(Pattern::new(run, connection), offset, 64);
            prop_assume!(other != connection);
            prop_assert!(Pattern::new(run, other).difference(offset, &bytes).is_some());
            prop_assert!(Pattern::new(!run, connection).difference(offset, &bytes).is_some());
        }
    }

    #[test]
    fn it_does_not_repeat_itself() {
        let bytes = stream(Pattern::new(3, 4), 0, 1 << 20);
        let first = &bytes[..16];
        assert_eq!(bytes.windows(16).filter(|window| *window == first).count(), 1);
        let mut counts = [0u32; 256];
        bytes.iter().for_each(|byte| counts[usize::from(*byte)] += 1);
        // 4096 of each are expected, give or take 64.
        assert!(counts.iter().all(|count| count.abs_diff(4096) < 400), "{counts:?}");
    }
}
