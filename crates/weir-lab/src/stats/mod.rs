//! Statistics of a few noisy samples: medians, quantiles, intervals, ties.
//!
//! Samples of a run are few (6 to 15) and not normal: the machine may change speed in the
//! middle. So everything rests on medians and on resampling ([`bootstrap`]), never on a
//! mean and its standard deviation, and designs are compared in pairs of the same block
//! ([`compare`]). Where many are compared, their intervals hold together ([`together`]). Between two
//! experiments, what all rows changed in common is told from what each did ([`mod@apart`]).

pub mod apart;
pub mod bootstrap;
pub mod compare;
pub mod latency;
pub mod random;
pub mod together;

/// Confidence of all intervals, as a share.
pub const CONFIDENCE: f64 = 0.95;

/// A range that holds the true value with the confidence it was made for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// Its lower end, in the unit of the samples.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

/// A median and how sure it is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The median of the samples.
    pub median: f64,
    /// Its confidence interval; `None` for fewer than [`bootstrap::FEWEST_SAMPLES`].
    pub interval: Option<Interval>,
    /// How many samples it rests on.
    pub samples: usize,
}

impl Estimate {
    /// Of a ratio: that of the second to the first.
    pub fn inverse(self) -> Self {
        let inverse = |i: Interval| Interval { low: 1.0 / i.high, high: 1.0 / i.low };
        Self { median: 1.0 / self.median, interval: self.interval.map(inverse), ..self }
    }

    /// Half the width of the interval as a share of the median: 0.02 is "±2 %". `None`
    /// without an interval, or around a median of 0.
    pub fn relative_half_width(&self) -> Option<f64> {
        let interval = self.interval?;
        (self.median != 0.0).then(|| (interval.high - interval.low) / 2.0 / self.median.abs())
    }
}

/// The middle of the samples; the mean of the middle two of an even number. `None` for no
/// samples. Samples that are not finite are left out.
pub fn median(samples: &[f64]) -> Option<f64> {
    quantile(samples, 0.5)
}

/// The value below which a share `p` (0 to 1) of the samples lies, between samples by a
/// straight line (type 7 of Hyndman and Fan, as in most statistics programs). `None` for
/// no samples. Samples that are not finite are left out.
pub fn quantile(samples: &[f64], p: f64) -> Option<f64> {
    let mut sorted: Vec<f64> = samples.iter().copied().filter(|x| x.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    quantile_of_sorted(&sorted, p)
}

pub(crate) fn quantile_of_sorted(sorted: &[f64], p: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let place = p.clamp(0.0, 1.0) * last as f64;
    let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    Some(below + (above - below) * place.fract())
}

#[cfg(test)]
mod tests {
    use super::*;
    use statrs::statistics::{Data, OrderStatistics};

    #[test]
    fn no_sample_has_no_median() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[f64::NAN]), None);
    }

    #[test]
    fn known_quantiles() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.9), Some(4.6));
        assert_eq!(quantile(&[7.0], 0.99), Some(7.0));
    }

    proptest::proptest! {
        #[test]
        fn the_median_is_the_one_of_statrs(samples in proptest::collection::vec(-1e9..1e9f64, 1..40)) {
            let theirs = Data::new(samples.clone()).median();
            let ours = median(&samples).unwrap();
            proptest::prop_assert!((ours - theirs).abs() <= 1e-6 * theirs.abs().max(1.0));
        }

        #[test]
        fn a_quantile_lies_within_the_samples(
            samples in proptest::collection::vec(-1e9..1e9f64, 1..40), p in 0.0..=1.0f64,
        ) {
            let value = quantile(&samples, p).unwrap();
            let low = samples.iter().copied().fold(f64::INFINITY, f64::min);
            let high = samples.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            proptest::prop_assert!(low <= value && value <= high);
        }
    }

    #[test]
    fn the_half_width_is_relative() {
        let interval = Some(Interval { low: 95.0, high: 105.0 });
        let estimate = Estimate { median: 100.0, interval, samples: 5 };
        assert_eq!(estimate.relative_half_width(), Some(0.05));
        assert_eq!(Estimate { interval: None, ..estimate }.relative_half_width(), None);
        assert_eq!(Estimate { median: 0.0, ..estimate }.relative_half_width(), None);
    }
}
