//! Where the next I/O reads.

/// Places in a regular file: block after block, and from the beginning again; only whole blocks, unless
/// there is none. Of anything else the place is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Positions {
    next: u64,
    block: u64,
    /// Where no whole block begins any more.
    end: u64,
}

impl Positions {
    /// The places of one of several threads that share a file of so many bytes: each begins elsewhere.
    pub fn of(bytes: u64, block: usize, thread: usize, threads: usize) -> Self {
        let block = block as u64;
        let blocks = bytes.checked_div(block).unwrap_or(0);
        let share = u128::from(blocks) * thread as u128 / threads.max(1) as u128;
        let end = blocks * block;
        Self { next: (share as u64 * block).min(end.saturating_sub(block)), block, end }
    }

    /// Nowhere in particular.
    pub const NOWHERE: Self = Self { next: 0, block: 0, end: 0 };

    #[inline]
    pub fn next(&mut self) -> u64 {
        let at = self.next;
        self.next += self.block;
        if self.next >= self.end {
            self.next = 0;
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nowhere_stays_there() {
        let mut positions = Positions::NOWHERE;
        assert_eq!([positions.next(), positions.next()], [0, 0]);
    }

    proptest! {
        #[test]
        fn every_whole_block_is_read_before_one_is_read_again(
            bytes in 0u64..50_000, block in 1usize..5000, threads in 1usize..8, pick in 0usize..8,
        ) {
            let thread = pick % threads;
            let mut positions = Positions::of(bytes, block, thread, threads);
            let blocks = (bytes / block as u64).max(1);
            let round: Vec<u64> = (0..blocks).map(|_| positions.next()).collect();
            let mut sorted = round.clone();
            sorted.sort_unstable();
            let all: Vec<u64> = (0..blocks).map(|number| number * block as u64).collect();
            prop_assert_eq!(sorted, all);
            prop_assert_eq!(positions.next(), round[0]);
        }

        #[test]
        fn a_block_never_ends_behind_the_file(bytes in any::<u64>(), block in 1usize..1 << 30) {
            let mut positions = Positions::of(bytes, block, 3, 7);
            for _ in 0..20 {
                let at = positions.next();
                prop_assert!(at == 0 || at + block as u64 <= bytes);
            }
        }
    }
}
