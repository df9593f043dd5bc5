//! Intervals of many comparisons that hold all at once.
//!
//! Where the best of many rows is looked for, one of them looks best by chance: each interval of 95 % by itself is wrong
//! once in twenty, and of the 120 pairs of 16 rows some are nearly always. So the intervals here are as wide as is
//! needed for *all* of them to hold in 95 % of experiments, whichever row turns out to be the best (Tukey's all-pairs
//! comparison; see Hsu, *Multiple Comparisons*, 1996).
//!
//! How wide that is comes from the rounds themselves (the wild bootstrap of Liu, 1988, for the largest of many
//! deviations, as in Westfall and Young, 1993): what each pair of a round deviates from the median of its comparison is
//! noise, and might as well have had the other sign. So the signs of whole rounds are drawn anew, which keeps what the
//! rows of a round have in common, and the largest of all medians is noted; what 95 % of those do not exceed is the
//! margin. It assumes no distribution, and works from few rounds on, since all rows show the noise.

use super::bootstrap::FEWEST_SAMPLES;
use super::compare::Pairs;
use super::random::Random;
use super::{Estimate, Interval};

/// How often the signs of the rounds are drawn.
const DRAWS: usize = 500;
/// Up to so many rounds every combination of signs is taken once. A sign of all rounds together changes nothing.
const ALL_SIGNS_UP_TO: usize = 9;

/// One comparison, as logarithms.
struct Comparison {
    /// Median of the logarithms of the ratios.
    median: f64,
    /// Block and distance from that median of each pair.
    deviations: Vec<(u32, f64)>,
    /// How many times as noisy as usual it is; at least 1, since a small noise of few rounds may be luck.
    noise: f64,
    /// Larger than 1, since deviations from the samples' own median are smaller than those from the true one.
    correction: f64,
}

/// The ratio of each of these pairs with an interval. All intervals hold together with this confidence; one of fewer
/// than [`FEWEST_SAMPLES`] pairs has none. `None` for no pair that has a ratio.
pub fn paired_ratios(all: &[Pairs], confidence: f64, seed: u64) -> Vec<Option<Estimate>> {
    let mut comparisons: Vec<Option<Comparison>> = all.iter().map(Comparison::of).collect();
    let enough = |of: &&mut Comparison| of.deviations.len() >= FEWEST_SAMPLES;
    let mut judged: Vec<&mut Comparison> =
        comparisons.iter_mut().flatten().filter(enough).collect();
    scale(&mut judged);
    let margin = margin(&judged, confidence, seed);
    comparisons.iter().map(|of| of.as_ref().map(|of| of.estimate(margin, confidence))).collect()
}

impl Comparison {
    fn of(pairs: &Pairs) -> Option<Self> {
        let mut logarithms: Vec<(u32, f64)> = pairs
            .with_blocks()
            .filter(|(_, (a, b))| *a > 0.0 && *b > 0.0 && a.is_finite() && b.is_finite())
            .map(|(block, (a, b))| (block, (a / b).ln()))
            .collect();
        let median = middle(&mut logarithms.iter().map(|(_, log)| *log).collect::<Vec<_>>())?;
        logarithms.iter_mut().for_each(|(_, log)| *log -= median);
        let count = logarithms.len() as f64;
        let correction = count / (count - 1.0).max(1.0);
        Some(Self { median, deviations: logarithms, noise: 1.0, correction })
    }

    /// How far its pairs deviate, without the one in the middle of an odd number: that is the median, and says nothing.
    fn noise_of_pairs(&self) -> Vec<(u32, f64)> {
        let mut all = self.deviations.clone();
        if all.len() % 2 == 1 {
            all.sort_by(|(_, a), (_, b)| a.total_cmp(b));
            all.remove(all.len() / 2);
        }
        all
    }

    /// The median distance of its pairs from their median.
    fn spread(&self) -> f64 {
        let mut distances: Vec<f64> = self.deviations.iter().map(|(_, by)| by.abs()).collect();
        middle(&mut distances).unwrap_or(0.0)
    }

    fn estimate(&self, margin: Option<f64>, confidence: f64) -> Estimate {
        let samples = self.deviations.len();
        let margin = margin.filter(|_| samples >= FEWEST_SAMPLES);
        let interval = |margin: f64| {
            let by = margin * self.noise * self.correction;
            let own = self.interval_by_itself(confidence);
            let (low, high) = (own.low.min(-by), own.high.max(by));
            Interval { low: (self.median + low).exp(), high: (self.median + high).exp() }
        };
        Estimate { median: self.median.exp(), interval: margin.map(interval), samples }
    }

    /// The interval of its median as if it were the only comparison, from that median: between those of its pairs outside
    /// of which a median lies no more often than the confidence allows (Thompson, 1936).
    fn interval_by_itself(&self, confidence: f64) -> Interval {
        let mut sorted: Vec<f64> = self.deviations.iter().map(|(_, by)| *by).collect();
        sorted.sort_by(f64::total_cmp);
        let count = sorted.len();
        // The chance that so many pairs or fewer lie on one side of the true median, as of coins.
        let (mut left_out, mut exactly) = (0, 0.5f64.powi(count as i32));
        let mut chance = exactly;
        loop {
            exactly *= (count - left_out) as f64 / (left_out + 1) as f64;
            chance += exactly;
            if 2.0 * chance > 1.0 - confidence {
                break;
            }
            left_out += 1;
        }
        Interval { low: sorted[left_out], high: sorted[count - 1 - left_out] }
    }
}

/// Gives comparisons that are noisier than most a wider interval, so that one noisy row does not widen all.
fn scale(comparisons: &mut [&mut Comparison]) {
    let mut spreads: Vec<f64> = comparisons.iter().map(|of| of.spread()).collect();
    let Some(usual) = middle(&mut spreads).filter(|usual| *usual > 0.0) else { return };
    comparisons.iter_mut().for_each(|of| of.noise = (of.spread() / usual).max(1.0));
}

/// What the largest of all medians exceeds by chance no more often than the confidence allows.
fn margin(comparisons: &[&mut Comparison], confidence: f64, seed: u64) -> Option<f64> {
    let noise: Vec<(f64, Vec<(u32, f64)>)> =
        comparisons.iter().map(|of| (of.noise, of.noise_of_pairs())).collect();
    let blocks = noise.iter().flat_map(|(_, of)| of).map(|(block, _)| *block as usize + 1).max()?;
    let mut random = Random::seeded(seed);
    let all = blocks <= ALL_SIGNS_UP_TO;
    let draws = if all { 1 << (blocks - 1) } else { DRAWS };
    let mut turned = vec![false; blocks];
    let mut medians = vec![];
    let mut largest: Vec<f64> = (0..draws)
        .map(|draw| {
            for (block, turned) in turned.iter_mut().enumerate() {
                *turned = if all { draw >> block & 1 == 1 } else { random.below(2) == 1 };
            }
            let chance = |(noise, of): &(f64, Vec<(u32, f64)>)| {
                let sign =
                    |(block, by): &(u32, f64)| if turned[*block as usize] { -by } else { *by };
                medians.clear();
                medians.extend(of.iter().map(sign));
                middle(&mut medians).unwrap_or(0.0).abs() / noise
            };
            noise.iter().map(chance).fold(0.0, f64::max)
        })
        .collect();
    largest.sort_by(f64::total_cmp);
    let within = (largest.len() as f64 * confidence.clamp(0.0, 1.0)).ceil() as usize;
    largest.get(within.max(1) - 1).copied()
}

/// The median of finite samples, which are put in order as far as that takes.
fn middle(samples: &mut [f64]) -> Option<f64> {
    if samples.is_empty() {
        return None;
    }
    let is_even = samples.len().is_multiple_of(2);
    let (below, upper, _) = samples.select_nth_unstable_by(samples.len() / 2, f64::total_cmp);
    let lower = below.iter().copied().max_by(f64::total_cmp).filter(|_| is_even);
    Some(lower.map_or(*upper, |lower| (lower + *upper) / 2.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIDENCE: f64 = 0.95;

    /// Pairs of these ratios, one in each block.
    fn pairs(ratios: &[f64]) -> Pairs {
        Pairs {
            pairs: ratios.iter().map(|ratio| (*ratio, 1.0)).collect(),
            blocks: (0..ratios.len() as u32).collect(),
            unlike: 0,
        }
    }

    /// Figures of so many rows around 1, each with noise of so many percent, as pairs of every two.
    fn of_equal_rows(random: &mut Random, percent: &[f64], rounds: usize) -> Vec<Pairs> {
        let mut row = |percent: &f64| -> Vec<f64> {
            let mut uniform = || random.below(2001) as f64 / 1000.0 - 1.0;
            (0..rounds)
                .map(|_| 1.0 + (uniform() + uniform() + uniform()) / 100.0 * percent)
                .collect()
        };
        let rows: Vec<Vec<f64>> = percent.iter().map(&mut row).collect();
        let both = (0..rows.len()).flat_map(|a| (a + 1..rows.len()).map(move |b| (a, b)));
        both.map(|(a, b)| {
            let ratios: Vec<f64> = rows[a].iter().zip(&rows[b]).map(|(a, b)| a / b).collect();
            pairs(&ratios)
        })
        .collect()
    }

    fn holds_one(ratio: &Estimate) -> bool {
        ratio.interval.is_some_and(|interval| interval.low <= 1.0 && 1.0 <= interval.high)
    }

    #[test]
    fn all_intervals_hold_together_as_often_as_they_say() {
        let mut random = Random::seeded(14);
        let noisy = [1.0, 1.0, 5.0, 1.0, 1.0, 5.0];
        for (rows, rounds) in
            [(&noisy[..2], 7), (&noisy[..5], 9), (&noisy[..], 9), (&noisy[..4], 25)]
        {
            let experiments = 200;
            let wrong = (0..experiments).filter(|seed| {
                let all = of_equal_rows(&mut random, rows, rounds);
                let ratios = paired_ratios(&all, CONFIDENCE, *seed);
                !ratios.iter().flatten().all(holds_one)
            });
            // Three deviations more than 5 % of 200.
            let (wrong, rows) = (wrong.count(), rows.len());
            assert!(wrong <= 19, "{wrong} of 200 with {rows} rows and {rounds} rounds");
        }
    }

    #[test]
    fn an_interval_alone_is_no_narrower_than_by_itself() {
        let alone = paired_ratios(&[pairs(&[1.1, 1.2, 1.0, 1.3, 1.15, 1.05, 1.25])], CONFIDENCE, 1);
        let alone = alone[0].unwrap();
        let interval = alone.interval.unwrap();
        assert!((alone.median - 1.15).abs() < 1e-9);
        assert!(interval.low <= 1.0 && interval.high >= 1.3, "seven samples: at least their range");
    }

    #[test]
    fn a_noisy_comparison_is_wide_and_leaves_the_others_as_they_are() {
        let quiet = || pairs(&[1.00, 1.01, 0.99, 1.02, 0.98, 1.01, 0.99, 1.00, 1.01]);
        let loud = pairs(&[1.0, 2.0, 0.5, 3.0, 0.3, 2.5, 0.4, 1.1, 0.9]);
        let width = |ratio: Option<Estimate>| {
            let interval = ratio.unwrap().interval.unwrap();
            interval.high / interval.low
        };
        let ratios = paired_ratios(&[quiet(), quiet(), quiet(), loud], CONFIDENCE, 1);
        assert!(width(ratios[0]) < 1.1, "{}", width(ratios[0]));
        assert!(width(ratios[3]) > 3.0, "{}", width(ratios[3]));
    }

    #[test]
    fn what_cannot_be_judged_has_no_interval() {
        let five = pairs(&[1.0, 1.1, 0.9, 1.2, 0.8]);
        let nothing = pairs(&[0.0, f64::NAN]);
        let ratios = paired_ratios(&[five, nothing, pairs(&[2.0; 6])], CONFIDENCE, 1);
        let same = Interval { low: 2.0, high: 2.0 };
        assert_eq!(ratios[0].unwrap().interval, None);
        assert_eq!(ratios[1], None);
        let interval = ratios[2].unwrap().interval.unwrap();
        assert!((interval.low - same.low).abs() < 1e-9 && (interval.high - same.high).abs() < 1e-9);
        assert_eq!(paired_ratios(&[], CONFIDENCE, 1), vec![]);
    }

    proptest::proptest! {
        #[test]
        fn an_interval_holds_its_median_and_turns_with_it(
            ratios in proptest::collection::vec(0.5..2.0f64, 6..30), seed in 0u64..100,
        ) {
            let turned: Vec<f64> = ratios.iter().map(|ratio| 1.0 / ratio).collect();
            let one = paired_ratios(&[pairs(&ratios)], CONFIDENCE, seed)[0].unwrap();
            let other = paired_ratios(&[pairs(&turned)], CONFIDENCE, seed)[0].unwrap().inverse();
            let (a, b) = (one.interval.unwrap(), other.interval.unwrap());
            proptest::prop_assert!(a.low <= one.median && one.median <= a.high);
            proptest::prop_assert!((a.low - b.low).abs() < 1e-9 && (a.high - b.high).abs() < 1e-9);
        }

        #[test]
        fn the_middle_is_the_median(mut samples in proptest::collection::vec(-1e9..1e9f64, 1..40)) {
            let wanted = crate::stats::median(&samples).unwrap();
            let found = middle(&mut samples).unwrap();
            proptest::prop_assert!((found - wanted).abs() <= 1e-9 * wanted.abs().max(1.0));
        }
    }
}
