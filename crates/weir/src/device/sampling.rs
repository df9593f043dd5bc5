//! Which I/Os are timed.
//!
//! Reading the clock twice costs a quarter of a read of a device that does nothing, so only one in so
//! many is timed. The gaps are random: with equal ones, a design that keeps 128 outstanding would show
//! the same place of each batch again and again.

/// Picks one I/O in `every`, on average.
#[derive(Debug, Clone)]
pub(super) struct Sampling {
    every: u32,
    left: u32,
    random: u64,
}

impl Sampling {
    /// One in so many, 0 for none; `seed` makes threads differ.
    pub fn one_in(every: u32, seed: u64) -> Self {
        let random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut sampling = Self { every: every.min(MOST), left: 0, random };
        sampling.left = sampling.gap();
        sampling
    }

    /// Whether the next I/O is timed.
    #[inline(always)]
    pub fn due(&mut self) -> bool {
        self.left -= 1;
        if self.left > 0 {
            return false;
        }
        self.draw()
    }

    #[cold]
    fn draw(&mut self) -> bool {
        self.left = self.gap();
        self.every > 0
    }

    /// 1 to 2 * every - 1, each as likely.
    fn gap(&mut self) -> u32 {
        if self.every == 0 {
            return u32::MAX;
        }
        // xorshift64 (Marsaglia, 2003).
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let range = u64::from(2 * self.every - 1);
        (((self.random >> 32) * range) >> 32) as u32 + 1
    }
}

/// The longest mean gap.
pub(super) const MOST: u32 = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    fn sampled(every: u32, ios: u32) -> Vec<u32> {
        let mut sampling = Sampling::one_in(every, 7);
        (0..ios).filter(|_| sampling.due()).collect()
    }

    #[test]
    fn none_and_all() {
        assert_eq!(sampled(0, 100_000), []);
        assert_eq!(sampled(1, 1000).len(), 1000);
    }

    #[test]
    fn one_in_so_many_on_average_and_in_no_step_with_a_batch() {
        const EVERY: u32 = 128;
        let places = sampled(EVERY, 1_280_000);
        assert!((9_500..10_500).contains(&places.len()), "{}", places.len());
        let mut of_batch = [0u32; 128];
        places.iter().for_each(|place| of_batch[(place % 128) as usize] += 1);
        assert!(of_batch.iter().all(|times| (30..150).contains(times)), "{of_batch:?}");
        let longest = places.windows(2).map(|two| two[1] - two[0]).max();
        assert!(longest < Some(2 * EVERY), "{longest:?}");
    }
}
