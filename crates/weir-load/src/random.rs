//! A small seeded generator of random numbers, so that an experiment's order, its intervals and the arrivals of a load
//! can be had again.

/// SplitMix64 (Steele, Lea and Flood, 2014): 64 bits of state, one addition and a mix per
/// number. Good enough to shuffle, to resample and to pace; not for secrets.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// A generator that gives the same numbers for the same seed.
    pub fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A share above 0 and at most 1.
    pub fn share(&mut self) -> f64 {
        ((self.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// A time between two arrivals of a Poisson process: exponentially distributed, with this mean, in its unit.
    pub fn gap(&mut self, mean: f64) -> f64 {
        -self.share().ln() * mean
    }

    /// A number from 0 to `bound - 1`. The bias is below `bound / 2^64`.
    ///
    /// # Panics
    /// If `bound` is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        assert!(bound > 0, "no number lies below 0");
        ((u128::from(self.next_u64()) * bound as u128) >> 64) as usize
    }

    /// Puts the items into a random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_the_published_sequence() {
        // The reference implementation's first outputs for seed 1234567.
        let mut random = Random::seeded(1_234_567);
        assert_eq!(random.next_u64(), 6_457_827_717_110_365_317);
        assert_eq!(random.next_u64(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn a_shuffle_keeps_every_item_and_reaches_every_order() {
        let mut random = Random::seeded(1);
        let mut seen = std::collections::BTreeMap::new();
        for _ in 0..6000 {
            let mut items = [1, 2, 3];
            random.shuffle(&mut items);
            *seen.entry(items).or_insert(0) += 1;
        }
        assert_eq!(seen.len(), 6, "six orders of three items: {seen:?}");
        for (order, times) in seen {
            assert!((800..1200).contains(&times), "{order:?} came {times} times of 6000");
        }
    }

    #[test]
    fn gaps_have_the_mean_and_the_spread_of_an_exponential_distribution() {
        let mut random = Random::seeded(2);
        let gaps: Vec<f64> = (0..20_000).map(|_| random.gap(20.0)).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!(
            (mean - 20.0).abs() < 0.5 && (variance.sqrt() - 20.0).abs() < 0.7,
            "{mean} {variance}"
        );
        assert!(gaps.iter().all(|gap| gap.is_finite() && *gap >= 0.0));
    }
}
