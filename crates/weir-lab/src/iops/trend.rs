//! Whether a rate declines over a long run, told from what the machine does.
//!
//! What is looked at is the logarithm of the ratio of a rate to that of a control that takes turns with it: what both
//! share (a core that becomes slower, a host that is busy) is not in it. The slope is Theil's and Sen's, as in
//! [`decay`](mod@super::decay), over blocks of neighbouring turns. Sen's interval takes each point for independent of
//! its neighbours, which those of a computer seldom are: so the variance that it rests on is raised by the
//! autocorrelation of the residuals' ranks, as K. H. Hamed and A. R. Rao do ("A modified Mann-Kendall trend test for
//! autocorrelated data", Journal of Hydrology 204, 1998); here only by neighbours that are alike, so that no interval
//! becomes narrower than without.

use super::decay::{Slope, Z_95, slope};
use crate::stats::median;
use serde::{Deserialize, Serialize};

/// Fewest turns of which a trend is told.
pub const FEWEST_TURNS: usize = 20;

/// A change that surely is no larger than this, in percent of the rate over the whole run, is called none: a quarter of
/// what the original saw (970,000 to 865,000).
pub const MARGIN_PERCENT: f64 = 3.0;

/// Most blocks that a trend rests on.
const MOST_BLOCKS: usize = 60;

/// How much a rate changed over a whole run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Trend {
    /// Change from the run's beginning to its end, in percent; below 0 it declines.
    pub percent: f64,
    /// Lower end of its 95 % interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Blocks of neighbouring turns that it rests on.
    pub blocks: usize,
    /// By how much the likeness of neighbours raised the variance; 1 for not at all.
    pub inflation: f64,
}

/// What a trend says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Verdict {
    /// By so many percent.
    Declines(f64),
    /// By so many percent.
    Rises(f64),
    /// By no more than so many percent either way.
    Steady(f64),
    /// It does not decline by more than so many percent; whether it rises is not known.
    AtMost(f64),
    /// The interval is too wide to say.
    Unknown,
}

impl Trend {
    /// What it says: nothing changed where the whole interval lies within [`MARGIN_PERCENT`].
    pub fn verdict(&self) -> Verdict {
        let within = self.low.abs().max(self.high.abs());
        match () {
            () if within <= MARGIN_PERCENT => Verdict::Steady(within),
            () if self.high < 0.0 => Verdict::Declines(-self.percent),
            () if self.low > 0.0 => Verdict::Rises(self.percent),
            () if self.low >= -MARGIN_PERCENT => Verdict::AtMost(-self.low),
            () => Verdict::Unknown,
        }
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Declines(percent) => write!(f, "declines by {percent:.1} %"),
            Self::Rises(percent) => write!(f, "does not decline: it rises by {percent:.1} %"),
            Self::Steady(within) => write!(f, "does not decline (within ±{within:.1} %)"),
            Self::AtMost(percent) => write!(f, "does not decline by more than {percent:.1} %"),
            Self::Unknown => f.write_str("undecided"),
        }
    }
}

/// The trend of logarithms of ratios, one for each turn, all as long. `None` for fewer than [`FEWEST_TURNS`].
pub fn trend(logs: &[f64]) -> Option<Trend> {
    if logs.len() < FEWEST_TURNS {
        return None;
    }
    // The last block has what is left, so that no turn is left out.
    let blocks = logs.len().min(MOST_BLOCKS);
    let block = |of: usize| &logs[of * logs.len() / blocks..(of + 1) * logs.len() / blocks];
    let points: Vec<f64> = (0..blocks).filter_map(|of| median(block(of))).collect();
    let plain = slope(&points, 1.0)?;
    let residuals: Vec<f64> =
        points.iter().enumerate().map(|(at, point)| point - plain.median * at as f64).collect();
    let inflation = inflation(&residuals);
    let Slope { median, low, high } = slope(&points, inflation)?;
    let percent = |slope: f64| ((slope * points.len() as f64).exp() - 1.0) * 100.0;
    Some(Trend {
        percent: percent(median),
        low: percent(low),
        high: percent(high),
        blocks: points.len(),
        inflation,
    })
}

/// By how much the variance of Kendall's count grows where neighbours are alike (Hamed and Rao, equation 14): by the
/// autocorrelations of the ranks, from the nearest neighbours up to the first that is no surer than noise.
fn inflation(residuals: &[f64]) -> f64 {
    let ranks = ranks(residuals);
    let n = ranks.len() as f64;
    let mean = ranks.iter().sum::<f64>() / n;
    let around: Vec<f64> = ranks.iter().map(|rank| rank - mean).collect();
    let variance: f64 = around.iter().map(|rank| rank * rank).sum();
    if variance == 0.0 {
        return 1.0;
    }
    let sum: f64 = (1..ranks.len() / 2)
        .map(|lag| {
            let products = around.iter().zip(&around[lag..]).map(|(one, other)| one * other);
            let left = n - lag as f64;
            // Of so few points the estimate is too low by about its own share of them (Kendall, 1954).
            let found = products.sum::<f64>() / variance;
            (left, found + (1.0 + 4.0 * found.max(0.0)) / n, found)
        })
        .take_while(|(.., found)| *found > Z_95 / 2.0 / n.sqrt())
        .map(|(left, corrected, _)| left * (left - 1.0) * (left - 2.0) * corrected.min(1.0))
        .sum();
    1.0 + 2.0 / (n * (n - 1.0) * (n - 2.0)) * sum
}

/// The rank of each, from 0; of equal ones the earlier has the lower.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|one, other| values[*one].total_cmp(&values[*other]));
    let mut ranks = vec![0.0; values.len()];
    order.into_iter().enumerate().for_each(|(rank, at)| ranks[at] = rank as f64);
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::random::Random;

    /// Noise between -1 and 1, with no favourite side.
    fn noise(random: &mut Random) -> f64 {
        (random.next_u64() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }

    /// Logarithms of ratios that fall by a share over the run, with noise of which so much is that of the neighbour.
    fn series(random: &mut Random, turns: usize, falls: f64, likeness: f64) -> Vec<f64> {
        let mut own = 0.0;
        (0..turns)
            .map(|turn| {
                own = likeness * own + 0.02 * noise(random);
                (1.0 - falls).ln() * turn as f64 / turns as f64 + own
            })
            .collect()
    }

    #[test]
    fn a_decline_is_told_with_its_size() {
        let mut random = Random::seeded(1);
        let found = trend(&series(&mut random, 300, 0.11, 0.3)).unwrap();
        let Verdict::Declines(percent) = found.verdict() else { panic!("{found:?}") };
        assert!((9.0..13.0).contains(&percent) && found.low < found.high, "{found:?}");
        assert_eq!(found.blocks, 60);
        assert!(found.verdict().to_string().starts_with("declines by 1"), "{found:?}");
        let rises = trend(&series(&mut random, 300, -0.2, 0.3)).unwrap();
        assert!(matches!(rises.verdict(), Verdict::Rises(_)), "{rises:?}");
    }

    #[test]
    fn what_does_not_change_is_told_from_what_cannot_be_told() {
        let mut random = Random::seeded(2);
        let steady = trend(&series(&mut random, 300, 0.0, 0.0)).unwrap();
        assert!(matches!(steady.verdict(), Verdict::Steady(within) if within < 2.0), "{steady:?}");
        let loud: Vec<f64> = (0..300).map(|_| noise(&mut random)).collect();
        let unknown = trend(&loud).unwrap();
        assert_eq!(unknown.verdict(), Verdict::Unknown, "{unknown:?}");
        assert_eq!(unknown.verdict().to_string(), "undecided");
    }

    #[test]
    fn a_rise_that_is_not_sure_is_no_decline() {
        let of = |low, high| {
            let found =
                Trend { percent: (low + high) / 2.0, low, high, blocks: 60, inflation: 1.0 };
            found.verdict().to_string()
        };
        assert_eq!(of(-1.2, 7.7), "does not decline by more than 1.2 %");
        assert_eq!(of(-5.4, 0.8), "undecided");
        assert_eq!(of(-2.5, 1.0), "does not decline (within ±2.5 %)");
        assert_eq!(of(-9.0, -1.0), "declines by 5.0 %");
    }

    #[test]
    fn outliers_do_not_bend_it() {
        let mut logs = vec![0.0; 200];
        logs[150..180].iter_mut().step_by(3).for_each(|log| *log = -3.0);
        let found = trend(&logs).unwrap();
        assert_eq!((found.percent, found.verdict()), (0.0, Verdict::Steady(0.0)));
    }

    #[test]
    fn of_few_turns_nothing_is_told() {
        assert_eq!(trend(&[0.0; FEWEST_TURNS - 1]), None);
        assert!(trend(&[0.0; FEWEST_TURNS]).is_some());
    }

    /// How many of 300 series without a trend seem to have one.
    fn wrong(turns: usize, likeness: f64) -> usize {
        let mut random = Random::seeded(7);
        (0..300)
            .filter(|_| {
                let found = trend(&series(&mut random, turns, 0.0, likeness)).unwrap();
                found.high < 0.0 || found.low > 0.0
            })
            .count()
    }

    #[test]
    fn noise_is_seldom_taken_for_a_trend_though_neighbours_are_alike() {
        // 5 % and three deviations of what 300 experiments show; where neighbours are much alike, up to 15 %.
        for (turns, likeness, most) in [
            (FEWEST_TURNS, 0.0, 27),
            (60, 0.0, 27),
            (300, 0.0, 27),
            (60, 0.3, 39),
            (300, 0.6, 39),
            (60, 0.6, 39),
            (300, 0.9, 45),
        ] {
            let wrong = wrong(turns, likeness);
            assert!(wrong <= most, "{wrong} of 300 with {turns} turns, likeness {likeness}");
        }
    }

    #[test]
    fn the_true_change_lies_in_the_interval() {
        let mut random = Random::seeded(9);
        let covered = (0..300)
            .filter(|_| {
                let found = trend(&series(&mut random, 300, 0.05, 0.3)).unwrap();
                found.low <= -5.0 && -5.0 <= found.high
            })
            .count();
        assert!(covered >= 270, "{covered} of 300");
    }
}
