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
        let correction = (count / (count - 1.0).max(1.0)).sqrt();
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
