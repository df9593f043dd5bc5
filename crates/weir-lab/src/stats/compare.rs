//! Is a difference real? Pairs, the noise floor and the tie rule.

use super::{Estimate, bootstrap};

/// One measured figure with what is needed to pair it: the block it was measured in and
/// the state of the machine at that moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reading {
    /// The block: every row runs once in each.
    pub block: u32,
    /// The figure.
    pub value: f64,
    /// Nanoseconds of a cache line's way from core to core just before the run, if known.
    pub core_to_core_ns: Option<f64>,
}

/// Two readings whose core-to-core times differ by more than this factor were taken on
/// what is in effect two different machines: a virtual machine moves between cores that
/// share a cache and cores that do not (about 27 ns and 170 ns), and its speed with it.
pub const ALIKE_WITHIN: f64 = 2.0;

/// Pairs of one block, and how many were left out because the machine had changed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Pairs {
    /// First and second figure of each block that has both.
    pub pairs: Vec<(f64, f64)>,
    /// The block of each.
    pub blocks: Vec<u32>,
    /// Pairs left out because the machine changed between their two runs.
    pub unlike: usize,
}

impl Pairs {
    /// Each pair with its block.
    pub fn with_blocks(&self) -> impl Iterator<Item = (u32, (f64, f64))> {
        self.blocks.iter().copied().zip(self.pairs.iter().copied())
    }

    /// Those of every second block: from the first on, or from the second.
    pub fn of_half(&self, half: u32) -> Self {
        let of_half = self.with_blocks().filter(|(block, _)| block % 2 == half);
        let (blocks, pairs) = of_half.unzip();
        Self { pairs, blocks, unlike: 0 }
    }
}

/// Pairs the readings of two rows, block by block.
pub fn pair(first: &[Reading], second: &[Reading]) -> Pairs {
    let mut found = Pairs::default();
    for a in first {
        for b in second.iter().filter(|b| b.block == a.block) {
            if alike(a.core_to_core_ns, b.core_to_core_ns) {
                found.pairs.push((a.value, b.value));
                found.blocks.push(a.block);
            } else {
                found.unlike += 1;
            }
        }
    }
    found
}

/// Whether two core-to-core times tell of the same machine. Unknown counts as alike.
pub fn alike(a: Option<f64>, b: Option<f64>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => a.max(b) <= a.min(b) * ALIKE_WITHIN,
        _ => true,
    }
}

/// What the experiment cannot tell from nothing: how far a design seems to lie from itself
/// when it runs under two names.
///
/// As a share: 0.03 means that differences below 3 % are noise here. It is the farther end
/// of the interval of the ratio of the two names, or the farthest of their ratios where the
/// pairs are too few for an interval. `None` without a pair.
pub fn noise_floor(again: &Pairs, confidence: f64, seed: u64) -> Option<f64> {
    let ratio = bootstrap::paired_ratio(&again.pairs, confidence, seed)?;
    let distance = |r: f64| r.ln().abs();
    let farthest = match ratio.interval {
        Some(interval) => distance(interval.low).max(distance(interval.high)),
        None => {
            let ratios = again.pairs.iter().map(|(a, b)| distance(a / b));
            ratios.filter(|distance| distance.is_finite()).fold(0.0, f64::max)
        }
    };
    Some(farthest.exp() - 1.0)
}

/// What two rows' pairs say.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Difference {
    /// The first is `ratio` times the second, and that is more than noise.
    Real(Estimate),
    /// Too close to tell apart: within the noise floor, or the interval holds 1.
    Tie(Estimate),
    /// Too few pairs for an interval: the ratio is shown, nothing is claimed.
    TooFew(Option<Estimate>),
}

impl Difference {
    /// The ratio, whatever it is worth.
    pub fn ratio(&self) -> Option<Estimate> {
        match self {
            Self::Real(ratio) | Self::Tie(ratio) => Some(*ratio),
            Self::TooFew(ratio) => *ratio,
        }
    }
}

/// Judges the pairs of two rows. Real is only what has an interval, does not hold 1, and
/// is farther from 1 than the noise floor (without a known floor nothing is real).
pub fn judge(pairs: &Pairs, floor: Option<f64>, confidence: f64, seed: u64) -> Difference {
    weigh(bootstrap::paired_ratio(&pairs.pairs, confidence, seed), floor)
}

/// Judges the ratio of two rows by its interval and the noise floor, as [`judge`] does.
pub fn weigh(ratio: Option<Estimate>, floor: Option<f64>) -> Difference {
    let Some(ratio) = ratio else { return Difference::TooFew(None) };
    let (Some(interval), Some(floor)) = (ratio.interval, floor) else {
        return Difference::TooFew(Some(ratio));
    };
    let holds_one = interval.low <= 1.0 && 1.0 <= interval.high;
    let within_noise = ratio.median.ln().abs() <= (1.0 + floor).ln();
    if holds_one || within_noise { Difference::Tie(ratio) } else { Difference::Real(ratio) }
}

/// Whether an experiment is as sure as it was asked to be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Confidence {
    /// The half-width asked for, as a share of the median: 0.05 is "±5 %".
    pub asked: f64,
    /// The widest half-width of all estimates; `None` while one has no interval.
    pub widest: Option<f64>,
}

impl Confidence {
    /// Of several estimates. An estimate without an interval leaves the widest unknown.
    pub fn of(estimates: &[Estimate], asked: f64) -> Self {
        let widths: Option<Vec<f64>> =
            estimates.iter().map(Estimate::relative_half_width).collect();
        let widest = widths.and_then(|widths| widths.into_iter().reduce(f64::max));
        Self { asked, widest }
    }

    /// True if every estimate is at least as narrow as asked.
    pub fn reached(&self) -> bool {
        self.widest.is_some_and(|widest| widest <= self.asked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readings(values: &[f64]) -> Vec<Reading> {
        let reading = |(block, value): (usize, &f64)| Reading {
            block: block as u32,
            value: *value,
            core_to_core_ns: None,
        };
        values.iter().enumerate().map(reading).collect()
    }

    #[test]
    fn only_the_same_block_is_paired() {
        let mut second = readings(&[10.0, 20.0, 30.0]);
        second.remove(1);
        let pairs = pair(&readings(&[1.0, 2.0, 3.0]), &second);
        assert_eq!(pairs.pairs, vec![(1.0, 10.0), (3.0, 30.0)]);
    }

    #[test]
    fn a_machine_that_changed_between_two_runs_makes_no_pair() {
        let near = Reading { block: 0, value: 2.0, core_to_core_ns: Some(27.0) };
        let far = Reading { block: 0, value: 1.0, core_to_core_ns: Some(170.0) };
        assert_eq!(pair(&[near], &[far]), Pairs { unlike: 1, ..Pairs::default() });
        assert_eq!(pair(&[near], &[Reading { core_to_core_ns: Some(30.0), ..far }]).pairs.len(), 1);
        assert_eq!(pair(&[near], &[Reading { core_to_core_ns: None, ..far }]).pairs.len(), 1);
    }

    #[test]
    fn the_noise_floor_is_the_farther_end() {
        let again =
            Pairs { pairs: vec![(1.00, 1.0), (1.02, 1.0), (0.96, 1.0)], ..Pairs::default() };
        let floor = noise_floor(&again, 0.95, 1).unwrap();
        assert!((floor - (1.0 / 0.96 - 1.0)).abs() < 1e-9, "{floor}");
        assert_eq!(noise_floor(&Pairs::default(), 0.95, 1), None);
    }

    #[test]
    fn a_difference_within_the_noise_is_a_tie() {
        let pairs =
            Pairs { pairs: [vec![(1.03, 1.0); 5], vec![(1.04, 1.0)]].concat(), ..Pairs::default() };
        assert!(matches!(judge(&pairs, Some(0.05), 0.95, 1), Difference::Tie(_)));
        assert!(matches!(judge(&pairs, Some(0.01), 0.95, 1), Difference::Real(_)));
    }

    #[test]
    fn an_interval_that_holds_one_is_a_tie() {
        let pairs =
            Pairs { pairs: [vec![(1.3, 1.0); 5], vec![(0.8, 1.0)]].concat(), ..Pairs::default() };
        assert!(matches!(judge(&pairs, Some(0.01), 0.95, 1), Difference::Tie(_)));
    }

    #[test]
    fn nothing_is_claimed_from_five_pairs_or_without_a_floor() {
        let five = Pairs { pairs: vec![(2.0, 1.0); 5], ..Pairs::default() };
        let claimed = judge(&five, Some(0.01), 0.95, 1);
        assert!(matches!(claimed, Difference::TooFew(Some(_))));
        assert_eq!(claimed.ratio().unwrap().median, 2.0);
        let six = Pairs { pairs: vec![(2.0, 1.0); 6], ..Pairs::default() };
        assert!(matches!(judge(&six, None, 0.95, 1), Difference::TooFew(Some(_))));
        assert_eq!(judge(&Pairs::default(), Some(0.1), 0.95, 1), Difference::TooFew(None));
    }

    #[test]
    fn a_real_difference_is_rarely_found_where_there_is_none() {
        // Two names of one design, 10 % noise, 7 blocks: the verdict must be "tie".
        let mut random = crate::stats::random::Random::seeded(5);
        let mut noisy = || 1.0 + (random.below(2001) as f64 - 1000.0) / 10_000.0;
        let wrong = (0..200)
            .filter(|seed| {
                let mut column = || (0..7).map(|_| noisy()).collect::<Vec<_>>();
                let (a, b, c) = (column(), column(), column());
                let floor = noise_floor(&pair(&readings(&a), &readings(&b)), 0.95, *seed);
                let pairs = pair(&readings(&a), &readings(&c));
                matches!(judge(&pairs, floor, 0.95, *seed), Difference::Real(_))
            })
            .count();
        assert!(wrong <= 10, "{wrong} of 200 experiments saw a difference where none was");
    }

    #[test]
    fn confidence_is_that_of_the_widest() {
        let narrow =
            bootstrap::estimate(&[100.0, 101.0, 99.0, 100.0, 100.0, 100.0], 0.95, 1).unwrap();
        let wide =
            bootstrap::estimate(&[100.0, 150.0, 50.0, 100.0, 100.0, 100.0], 0.95, 1).unwrap();
        assert!(Confidence::of(&[narrow], 0.05).reached());
        assert!(!Confidence::of(&[narrow, wide], 0.05).reached());
        let unknown = bootstrap::estimate(&[1.0], 0.95, 1).unwrap();
        assert_eq!(Confidence::of(&[narrow, unknown], 0.05).widest, None);
        assert!(!Confidence::of(&[], 0.05).reached());
    }
}
