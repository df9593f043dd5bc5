//! One-way latencies in a histogram with fixed bounds.
//!
//! Exact below 256 ns, then 128 buckets to each doubling up to 137 s: a bucket is at most
//! 0.8 % wide, and its middle at most 0.4 % from any value in it. Those are the buckets of
//! [`hdrhistogram`] with two digits, which adds histograms up and finds percentiles. Recording is
//! our own, as others read what a thread records meanwhile: a load and a store, without
//! allocation. Histograms of threads, runs and machines are added, never their percentiles.

use hdrhistogram::Histogram as Buckets;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use weir::counters::Counter;

/// Digits in which values of one bucket are alike.
const DIGITS: u8 = 2;
/// Buckets to each doubling, with so many digits.
const STEPS: u64 = 128;
/// Longer latencies count as this one.
const MOST_NS: u64 = (1 << 37) - 1;

/// The percentiles that a summary states.
pub const PERCENTILES: [(&str, f64); 6] =
    [("10", 0.10), ("50", 0.50), ("90", 0.90), ("99", 0.99), ("99.9", 0.999), ("99.99", 0.9999)];

/// The place of a latency's bucket among all.
#[inline]
fn bucket_of(ns: u64) -> usize {
    let ns = ns.min(MOST_NS);
    let shift = (ns | STEPS).ilog2() - STEPS.ilog2();
    (u64::from(shift) * STEPS + (ns >> shift)) as usize
}

/// Latencies recorded by one thread, readable by any while it records.
#[derive(Debug)]
pub struct Latencies(Box<[Counter]>);

impl Default for Latencies {
    fn default() -> Self {
        let buckets = Histogram::default().0.distinct_values();
        Self((0..buckets).map(|_| Counter::default()).collect())
    }
}

impl Latencies {
    /// Records one latency in ns. Only the owning thread may call this.
    #[inline]
    pub fn record(&self, ns: u64) {
        self.0[bucket_of(ns)].one();
    }

    /// Records the same latency in ns so many times. Only the owning thread may call this.
    #[inline]
    pub fn record_many(&self, ns: u64, count: u64) {
        self.0[bucket_of(ns)].add(count);
    }

    /// Adds what was recorded so far to a histogram.
    pub fn add_to(&self, histogram: &mut Histogram) {
        let empty = Histogram::default();
        let values = empty.0.iter_all().map(|bucket| bucket.value_iterated_to());
        histogram.extend(values.zip(self.0.iter().map(Counter::get)));
    }
}

/// Latencies at one moment; those of several threads or runs can be added.
#[derive(Debug, Clone, PartialEq)]
pub struct Histogram(Buckets<u64>);

impl Default for Histogram {
    fn default() -> Self {
        Self(Buckets::new_with_bounds(1, MOST_NS, DIGITS).expect("bounds that make sense"))
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
    /// [`PERCENTILES`] by name; in documents each is a field as `p50` or `p99_9`.
    #[serde(flatten, serialize_with = "as_fields")]
    pub percentile: BTreeMap<&'static str, u64>,
}

/// Percentiles by names as all documents have them.
fn as_fields<S: serde::Serializer>(
    percentile: &BTreeMap<&'static str, u64>,
    to: S,
) -> Result<S::Ok, S::Error> {
    to.collect_map(percentile.iter().map(|(name, ns)| (format!("p{}", name.replace('.', "_")), ns)))
}

/// Published as the buckets that hold something: pairs of the bucket's middle in ns and
/// its count.
impl Serialize for Histogram {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.recorded())
    }
}

/// Reads what was published. The middle of a bucket lies in it, so nothing is lost.
impl<'de> Deserialize<'de> for Histogram {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut histogram = Self::default();
        histogram.extend(Vec::<(u64, u64)>::deserialize(deserializer)?);
        Ok(histogram)
    }
}

/// Takes pairs of a latency in ns and its count, whatever they are.
impl Extend<(u64, u64)> for Histogram {
    fn extend<T: IntoIterator<Item = (u64, u64)>>(&mut self, latencies: T) {
        for (ns, count) in latencies {
            // A percentile is found by summing counts up, which all together are to fit.
            let count = count.min(u64::MAX - self.count());
            if count > 0 {
                self.0.saturating_record_n(ns, count);
            }
        }
    }
}

impl Histogram {
    /// Adds another's latencies to these.
    pub fn merge(&mut self, other: &Self) {
        self.extend(other.recorded());
    }

    /// The buckets that hold something: the middle of each in ns, and its count.
    pub fn recorded(&self) -> impl Iterator<Item = (u64, u64)> {
        let buckets = self.0.iter_recorded();
        buckets.map(|bucket| (self.middle(bucket.value_iterated_to()), bucket.count_at_value()))
    }

    /// The counts of all buckets, as many in every histogram: those of several can be added place by place.
    pub fn counts(&self) -> Vec<u64> {
        self.0.iter_all().map(|bucket| bucket.count_at_value()).collect()
    }

    /// The histogram that has these [counts](Self::counts).
    pub fn of_counts(counts: &[u64]) -> Self {
        let empty = Self::default();
        let values = empty.0.iter_all().map(|bucket| empty.middle(bucket.value_iterated_to()));
        let mut histogram = Self::default();
        histogram.extend(values.zip(counts.iter().copied()));
        histogram
    }

    /// The middle of the bucket that a value is in.
    fn middle(&self, ns: u64) -> u64 {
        self.0.median_equivalent(ns)
    }

    /// How many latencies were recorded.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The latency in ns at or below which a share `quantile` (0 to 1) lies; `None` if
    /// nothing was recorded.
    pub fn percentile(&self, quantile: f64) -> Option<u64> {
        (self.count() > 0).then(|| self.middle(self.0.value_at_quantile(quantile)))
    }

    /// The usual figures; `None` if nothing was recorded.
    pub fn summary(&self) -> Option<Summary> {
        let percentile = |(name, quantile)| Some((name, self.percentile(quantile)?));
        Some(Summary {
            n: self.count(),
            percentile: PERCENTILES.into_iter().map(percentile).collect::<Option<_>>()?,
            min: self.middle(self.0.min()),
            max: self.middle(self.0.max()),
            mean: self.0.mean(),
            stddev: self.0.stdev(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_histogram_may_be_empty_or_full() {
        let mut histogram = Histogram::default();
        histogram.extend([(7, 0)]);
        assert_eq!(histogram, Histogram::default());
        assert_eq!((histogram.percentile(0.5), histogram.summary()), (None, None));
        assert_eq!(serde_json::to_string(&histogram).unwrap(), "[]");
        let huge = format!("[[5, {0}], [{0}, {0}], [6, 1]]", u64::MAX);
        let mut huge: Histogram = serde_json::from_str(&huge).unwrap();
        huge.merge(&huge.clone());
        assert_eq!((huge.count(), huge.percentile(1.0)), (u64::MAX, Some(5)), "nothing wraps");
    }

    #[test]
    fn a_latency_is_recorded_in_the_bucket_that_it_is_read_from() {
        let empty = Histogram::default();
        let mut next = 0;
        for (place, bucket) in empty.0.iter_all().enumerate() {
            assert_eq!((bucket_of(next), bucket_of(bucket.value_iterated_to())), (place, place));
            next = bucket.value_iterated_to() + 1;
        }
        assert_eq!((next, bucket_of(u64::MAX)), (MOST_NS + 1, empty.0.distinct_values() - 1));
    }

    proptest! {
        #[test]
        fn a_bucket_is_near_its_values(ns in 0..=MOST_NS) {
            let mut histogram = Histogram::default();
            histogram.extend([(ns, 1)]);
            let middle = histogram.percentile(0.5).unwrap();
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
            let mut counts = all.counts();
            prop_assert_eq!(&Histogram::of_counts(&counts), &all);
            counts.iter_mut().zip(all.counts()).for_each(|(count, more)| *count += more);
            let twice = Histogram::of_counts(&counts);
            prop_assert_eq!((twice.count(), twice.percentile(quantile)), (2 * all.count(), all.percentile(quantile)));
            let published = serde_json::to_string(&all).unwrap();
            prop_assert_eq!(&serde_json::from_str::<Histogram>(&published).unwrap(), &all);
            let summary = all.summary().unwrap();
            prop_assert_eq!(summary.n, values.len() as u64);
            let mean = values.iter().sum::<u64>() as f64 / values.len() as f64;
            prop_assert!((summary.mean - mean).abs() <= mean * 0.004);
            prop_assert!(summary.min <= summary.percentile["50"]);
            prop_assert!(summary.percentile["99.9"] <= summary.max);
        }
    }
}
