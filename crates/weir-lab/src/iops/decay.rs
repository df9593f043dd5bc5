//! Whether a rate falls with time, as the original's did: a slope that outliers do not bend, with its
//! interval.
//!
//! The slope is the median of those between all pairs of points (Theil 1950); its interval follows from how
//! many pairs rise and fall where there is no slope (Sen 1968, by the variance of Kendall's count). It
//! assumes nothing about the shape of the noise, but that one second's does not tell the next one's: a
//! machine that changes its speed for seconds at a time makes intervals too narrow.

use crate::stats::quantile;
use serde::{Deserialize, Serialize};

/// Fewest points of which a slope has an interval.
pub const FEWEST: usize = 6;

/// Most points that are looked at: beyond, neighbours are joined. Pairs grow with the square.
const MOST: usize = 1000;

/// The normal distribution's quantile for 95 %, both sides together.
pub(super) const Z_95: f64 = 1.959_964;

/// How a rate changes with time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Decay {
    /// Change in a minute, as percent of the median rate; below 0 it falls.
    pub percent_per_minute: f64,
    /// Lower end of its 95 % interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// How many points it rests on.
    pub points: usize,
}

impl Decay {
    /// Whether it surely falls.
    pub fn falls(&self) -> bool {
        self.high < 0.0
    }

    /// Whether it surely rises.
    pub fn rises(&self) -> bool {
        self.low > 0.0
    }
}

/// The slope through rates of equal periods, each so many seconds long. `None` for fewer than
/// [`FEWEST`], or a median rate of 0.
pub fn decay(rates: &[f64], period_s: f64) -> Option<Decay> {
    let joined = rates.len().div_ceil(MOST).max(1);
    let points: Vec<f64> =
        rates.chunks_exact(joined).map(|some| some.iter().sum::<f64>() / joined as f64).collect();
    let median = quantile(&points, 0.5).filter(|median| *median > 0.0)?;
    if points.len() < FEWEST {
        return None;
    }
    let Slope { median: middle, low, high } = slope(&points, 1.0)?;
    let per_minute = |slope: f64| slope / (period_s * joined as f64) * 60.0 / median * 100.0;
    Some(Decay {
        percent_per_minute: per_minute(middle),
        low: per_minute(low),
        high: per_minute(high),
        points: points.len(),
    })
}

/// The slope from each point to the next.
pub(super) struct Slope {
    pub median: f64,
    /// The ends of its 95 % interval.
    pub low: f64,
    pub high: f64,
}

/// The slope through points that are equally far apart. The variance of Kendall's count is `inflation` times that of
/// independent points. `None` for fewer than two.
pub(super) fn slope(points: &[f64], inflation: f64) -> Option<Slope> {
    let mut slopes = Vec::with_capacity(points.len() * points.len().saturating_sub(1) / 2);
    for (first, from) in points.iter().enumerate() {
        let later = points.iter().enumerate().skip(first + 1);
        slopes.extend(later.map(|(second, to)| (to - from) / (second - first) as f64));
    }
    slopes.sort_by(f64::total_cmp);
    let median = quantile(&slopes, 0.5)?;
    let n = points.len() as f64;
    let spread = Z_95 * (n * (n - 1.0) * (2.0 * n + 5.0) / 18.0 * inflation).sqrt();
    let all = slopes.len() as f64;
    let at = |rank: f64| slopes[(rank.max(0.0) as usize).min(slopes.len() - 1)];
    let low = at(((all - spread) / 2.0).floor() - 1.0);
    Some(Slope { median, low, high: at(((all + spread) / 2.0).ceil()) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::random::Random;

    /// Noise between -1 and 1, with no favourite side.
    fn noise(random: &mut Random) -> f64 {
        (random.next_u64() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }

    #[test]
    fn a_straight_line_has_its_slope_and_no_doubt() {
        let rates: Vec<f64> = (0..60).map(|second| 1000.0 - f64::from(second)).collect();
        let found = decay(&rates, 1.0).expect("enough points");
        let expected = -60.0 / 970.5 * 100.0;
        for value in [found.percent_per_minute, found.low, found.high] {
            assert!((value - expected).abs() < 1e-9, "{found:?}");
        }
        assert!(found.falls() && !found.rises());
        let halves = decay(&rates, 0.5).expect("enough points");
        assert!((halves.percent_per_minute - 2.0 * expected).abs() < 1e-9, "twice as steep");
    }

    #[test]
    fn an_outlier_does_not_bend_it() {
        let mut rates = vec![1000.0; 30];
        rates[29] = 10.0;
        let found = decay(&rates, 1.0).expect("enough points");
        assert_eq!((found.percent_per_minute, found.falls()), (0.0, false));
    }

    #[test]
    fn few_points_and_nothing_at_all_have_none() {
        assert_eq!(decay(&[1.0; FEWEST - 1], 1.0), None);
        assert_eq!(decay(&[0.0; 10], 1.0), None);
        assert_eq!(decay(&[], 1.0), None);
    }

    #[test]
    fn noise_is_taken_for_a_slope_as_seldom_as_it_says() {
        let mut random = Random::seeded(31);
        for points in [FEWEST, 10, 40] {
            let surely = (0..1000)
                .filter(|_| {
                    let rates: Vec<f64> =
                        (0..points).map(|_| 1000.0 + 50.0 * noise(&mut random)).collect();
                    let found = decay(&rates, 1.0).expect("enough points");
                    found.falls() || found.rises()
                })
                .count();
            // 5 % and three deviations of what 1000 experiments show.
            assert!(surely <= 71, "{surely} of 1000 with {points} points");
        }
    }

    #[test]
    fn a_slope_lies_in_its_interval() {
        let mut random = Random::seeded(5);
        let covered = (0..1000)
            .filter(|_| {
                let rates: Vec<f64> = (0..30)
                    .map(|second| 1000.0 - 2.0 * f64::from(second) + 20.0 * noise(&mut random))
                    .collect();
                let found = decay(&rates, 1.0).expect("enough points");
                let truth = -2.0 * 60.0 / 971.0 * 100.0;
                found.low <= truth && truth <= found.high
            })
            .count();
        assert!(covered >= 925, "{covered} of 1000");
    }

    #[test]
    fn of_very_many_neighbours_are_joined() {
        let rates: Vec<f64> = (0..5000).map(|second| 10_000.0 - f64::from(second)).collect();
        let found = decay(&rates, 1.0).expect("enough points");
        assert_eq!(found.points, 1000);
        assert!((found.percent_per_minute + 60.0 / 7500.5 * 100.0).abs() < 1e-6, "{found:?}");
    }
}
