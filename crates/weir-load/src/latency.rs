//! One-way latencies in a fixed log-linear histogram.
//!
//! Exact below 256 ns, then 128 buckets to each doubling up to 137 s: a bucket is at most
//! 0.8 % wide, and its middle at most 0.4 % from any value in it. Recording is a load and a
//! store, without allocation; histograms of threads, runs and machines are added, never
//! their percentiles.

use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use weir::counters::Counter;

const STEPS: u64 = 128;
const STEP_BITS: u32 = STEPS.trailing_zeros();
/// The last doubling held: values from 2^37 ns on fall into the last bucket.
const TOP_BIT: u32 = 36;
const BUCKETS: usize = ((TOP_BIT - STEP_BITS + 2) as usize) * STEPS as usize;

/// The percentiles that a summary states.
pub const PERCENTILES: [(&str, f64); 6] =
    [("10", 0.10), ("50", 0.50), ("90", 0.90), ("99", 0.99), ("99.9", 0.999), ("99.99", 0.9999)];

#[inline]
fn bucket_of(ns: u64) -> usize {
    let ns = ns.min((1 << (TOP_BIT + 1)) - 1);
    let shift = (63 - (ns | STEPS).leading_zeros()) - STEP_BITS;
    (u64::from(shift) * STEPS + (ns >> shift)) as usize
}

/// The middle of a bucket in ns.
fn middle_of(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < 2 * STEPS {
        return bucket;
    }
    let shift = bucket / STEPS - 1;
    ((bucket - shift * STEPS) << shift) + ((1 << shift) / 2)
}

/// Latencies recorded by one thread, readable by any while it records.
#[derive(Debug)]
pub struct Latencies(Box<[Counter]>);

impl Default for Latencies {
    fn default() -> Self {
        Self((0..BUCKETS).map(|_| Counter::default()).collect())
    }
}

impl Latencies {
    /// Records one latency in ns. Only the owning thread may call this.
    #[inline]
    pub fn record(&self, ns: u64) {
        self.0[bucket_of(ns)].one();
    }

    /// Adds what was recorded so far to a histogram.
    pub fn add_to(&self, histogram: &mut Histogram) {
        for (sum, counter) in histogram.0.iter_mut().zip(&self.0) {
            *sum += counter.get();
        }
    }
}

/// Latencies at one moment; those of several threads or runs can be added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram(Vec<u64>);

impl Default for Histogram {
    fn default() -> Self {
        Self(vec![0; BUCKETS])
    }
}

/// The usual figures of a histogram, in ns; each is within 0.4 % of the true one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// How many latencies were recorded.
    pub n: u64,
    /// The smallest.
    pub min: u64,
    /// The largest.
    pub max: u64,
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation.
    pub stddev: f64,
    /// [`PERCENTILES`] by name.
    pub percentile: BTreeMap<&'static str, u64>,
}

/// Published as the buckets that hold something: pairs of the bucket's middle in ns and
/// its count.
impl Serialize for Histogram {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let held = self.0.iter().enumerate().filter(|(_, count)| **count > 0);
        serializer.collect_seq(held.map(|(bucket, count)| (middle_of(bucket), count)))
    }
}

/// Reads what was published. The middle of a bucket lies in it, so nothing is lost.
impl<'de> Deserialize<'de> for Histogram {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut histogram = Self::default();
        for (middle, count) in Vec::<(u64, u64)>::deserialize(deserializer)? {
            let sum = &mut histogram.0[bucket_of(middle)];
            *sum = sum.saturating_add(count);
        }
        Ok(histogram)
    }
}

impl Histogram {
    /// Adds another's latencies to these.
    pub fn merge(&mut self, other: &Self) {
        for (sum, more) in self.0.iter_mut().zip(&other.0) {
            *sum += more;
        }
    }

    /// How many latencies were recorded.
    pub fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The latency in ns at or below which a share `quantile` (0 to 1) lies; `None` if
    /// nothing was recorded.
    pub fn percentile(&self, quantile: f64) -> Option<u64> {
        let count = self.count();
        let rank = ((quantile.clamp(0.0, 1.0) * count as f64).ceil() as u64).clamp(1, count.max(1));
        let mut below = 0;
        self.0
            .iter()
            .position(|n| {
                below += n;
                below >= rank
            })
            .map(middle_of)
    }

    /// The usual figures; `None` if nothing was recorded.
    pub fn summary(&self) -> Option<Summary> {
        let n = self.count();
        let filled = || self.0.iter().enumerate().filter(|(_, n)| **n > 0);
        let min = middle_of(filled().next()?.0);
        let max = middle_of(filled().next_back()?.0);
        let sum: f64 = filled().map(|(bucket, n)| middle_of(bucket) as f64 * *n as f64).sum();
        let mean = sum / n as f64;
        let squares: f64 =
            filled().map(|(bucket, n)| (middle_of(bucket) as f64 - mean).powi(2) * *n as f64).sum();
        let percentile = PERCENTILES
            .iter()
            .filter_map(|(name, quantile)| Some((*name, self.percentile(*quantile)?)))
            .collect();
        Some(Summary { n, min, max, mean, stddev: (squares / n as f64).sqrt(), percentile })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn buckets_follow_one_another_without_a_gap() {
        for ns in 0..1_000_000 {
            assert!(bucket_of(ns + 1) - bucket_of(ns) <= 1, "at {ns}");
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
        assert_eq!(Histogram::default().percentile(0.5), None);
        assert_eq!(Histogram::default().summary(), None);
    }

    proptest! {
        #[test]
        fn a_bucket_is_near_its_values(ns in 0u64..1 << (TOP_BIT + 1)) {
            let middle = middle_of(bucket_of(ns));
            prop_assert!(middle.abs_diff(ns) as f64 <= ns as f64 * 0.004, "{ns} as {middle}");
        }

        #[test]
        fn percentiles_are_those_of_the_sorted_values(
            mut values in proptest::collection::vec(0u64..10_000_000, 1..300),
            quantile in 0.0f64..1.0,
        ) {
            let (one, other) = (Latencies::default(), Latencies::default());
            for (at, value) in values.iter().enumerate() {
                if at % 2 == 0 { one.record(*value) } else { other.record(*value) }
            }
            let mut all = Histogram::default();
            one.add_to(&mut all);
            let mut rest = Histogram::default();
            other.add_to(&mut rest);
            all.merge(&rest);
            values.sort_unstable();
            let rank = ((quantile * values.len() as f64).ceil() as usize).max(1);
            let (expected, got) = (values[rank - 1], all.percentile(quantile).unwrap());
            prop_assert!(got.abs_diff(expected) as f64 <= expected as f64 * 0.004);
            let published = serde_json::to_string(&all).unwrap();
            prop_assert_eq!(&serde_json::from_str::<Histogram>(&published).unwrap(), &all);
            let summary = all.summary().unwrap();
            prop_assert_eq!(summary.n, values.len() as u64);
            prop_assert!(summary.min <= summary.percentile["50"]);
            prop_assert!(summary.percentile["99.9"] <= summary.max);
        }
    }
}
