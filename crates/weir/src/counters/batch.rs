//! How many datagrams a dequeue brought: a histogram that costs one increment.

use super::counter::Counter;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How many buckets [`BatchSizes`] has: exact below 16, then 8 to each doubling, up to 2^20.
pub const BATCH_BUCKETS: usize = 8 + 8 * 17;

/// The distribution of batch sizes: a fixed log-linear histogram with 8 buckets to each
/// doubling, so a percentile is at most 12.5 % above the true one.
///
/// Sizes of 2^20 and more share the last bucket.
#[derive(Debug)]
pub struct BatchSizes {
    min: AtomicU64,
    max: AtomicU64,
    buckets: [Counter; BATCH_BUCKETS],
}

impl Default for BatchSizes {
    fn default() -> Self {
        Self {
            min: AtomicU64::new(u64::MAX),
            max: AtomicU64::new(0),
            buckets: [const { Counter::new() }; BATCH_BUCKETS],
        }
    }
}

/// The bucket of a size.
#[inline]
pub(crate) fn bucket_of(size: u64) -> usize {
    if size < 16 {
        return size as usize;
    }
    let doubling = 63 - size.leading_zeros() as usize; // 4 for 16..32
    (((doubling - 2) * 8) + ((size >> (doubling - 3)) & 7) as usize).min(BATCH_BUCKETS - 1)
}

/// The smallest size that falls into a bucket.
fn bucket_bottom(bucket: usize) -> u64 {
    if bucket < 16 {
        return bucket as u64;
    }
    let (doubling, step) = (bucket / 8 + 2, (bucket % 8) as u64);
    (8 + step) << (doubling - 3)
}

/// The largest size that falls into a bucket; the last bucket has no end.
pub(crate) fn bucket_top(bucket: usize) -> u64 {
    if bucket + 1 < BATCH_BUCKETS { bucket_bottom(bucket + 1) - 1 } else { u64::MAX }
}

impl BatchSizes {
    /// Counts one batch. Only the thread that owns the counters may call this.
    #[inline]
    pub(crate) fn record(&self, size: u64) {
        if size < self.min.load(Relaxed) {
            self.min.store(size, Relaxed);
        }
        if size > self.max.load(Relaxed) {
            self.max.store(size, Relaxed);
        }
        self.buckets[bucket_of(size)].one();
    }

    /// Reads the distribution. The buckets are read one after another: while the owner
    /// counts, the newest batches may be in one figure and not yet in the other.
    pub fn snapshot(&self) -> BatchSnapshot {
        let min = self.min.load(Relaxed);
        BatchSnapshot {
            min: if min == u64::MAX { 0 } else { min },
            max: self.max.load(Relaxed),
            buckets: self.buckets.iter().map(Counter::get).collect(),
        }
    }
}

/// [`BatchSizes`] at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchSnapshot {
    /// The smallest batch; 0 if there was none.
    pub min: u64,
    /// The largest batch; 0 if there was none.
    pub max: u64,
    buckets: Vec<u64>,
}

impl Default for BatchSnapshot {
    fn default() -> Self {
        Self { min: 0, max: 0, buckets: vec![0; BATCH_BUCKETS] }
    }
}

impl BatchSnapshot {
    /// How many batches were counted.
    pub fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, n| sum.saturating_add(*n))
    }

    /// How many batches were no larger than `size`. Exact below 16 and where `size` is the largest of
    /// its bucket; elsewhere the batches of that bucket are left out.
    pub fn at_most(&self, size: u64) -> u64 {
        let whole = (0..BATCH_BUCKETS).take_while(|bucket| bucket_top(*bucket) <= size);
        whole.fold(0, |sum, bucket| sum.saturating_add(self.buckets[bucket]))
    }

    /// Adds another distribution to this one.
    pub fn merge(&mut self, other: &BatchSnapshot) {
        self.min = match (self.min, other.min) {
            (0, min) | (min, 0) => min,
            (a, b) => a.min(b),
        };
        self.max = self.max.max(other.max);
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine = mine.saturating_add(*theirs);
        }
    }

    /// What was counted since `earlier`, a snapshot of the same thread or threads.
    ///
    /// Minimum and maximum are those of the buckets that grew, so what came before does
    /// not show in them: exact below 16, else within 12.5 % of the true ones.
    pub fn since(&self, earlier: &BatchSnapshot) -> BatchSnapshot {
        let buckets: Vec<u64> = self
            .buckets
            .iter()
            .zip(&earlier.buckets)
            .map(|(later, earlier)| later.saturating_sub(*earlier))
            .collect();
        let grown = |n: &u64| *n > 0;
        let (min, max) = match (buckets.iter().position(grown), buckets.iter().rposition(grown)) {
            (Some(first), Some(last)) => {
                (bucket_bottom(first).max(self.min), bucket_top(last).min(self.max))
            }
            _ => (0, 0),
        };
        BatchSnapshot { min, max, buckets }
    }

    /// The size at or below which a share `quantile` (0 to 1) of the batches lies, or
    /// `None` if there was no batch. At most 12.5 % above the true value, and never above
    /// the largest batch.
    pub fn percentile(&self, quantile: f64) -> Option<u64> {
        let count = self.count();
        let rank = ((quantile.clamp(0.0, 1.0) * count as f64).ceil() as u64).clamp(1, count.max(1));
        let mut below = 0u64;
        for (bucket, n) in self.buckets.iter().enumerate() {
            below = below.saturating_add(*n);
            if below >= rank {
                return Some(bucket_top(bucket).min(self.max));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record_all(sizes: &[u64]) -> BatchSizes {
        let batches = BatchSizes::default();
        for size in sizes {
            batches.record(*size);
        }
        batches
    }

    /// The definition that `percentile` approximates: the smallest value with at least
    /// that share at or below it.
    fn true_percentile(sizes: &[u64], quantile: f64) -> u64 {
        let mut sorted = sizes.to_vec();
        sorted.sort_unstable();
        let rank = (quantile * sorted.len() as f64).ceil() as usize;
        sorted[rank.clamp(1, sorted.len()) - 1]
    }

    /// Sizes of every magnitude, not mostly huge ones.
    fn any_size() -> impl Strategy<Value = u64> {
        (0u32..64, any::<u64>()).prop_map(|(shift, bits)| (bits >> shift).max(1))
    }

    #[test]
    fn buckets_follow_each_other_without_gap() {
        assert_eq!(bucket_bottom(0), 0);
        for bucket in 0..BATCH_BUCKETS {
            assert_eq!(bucket_of(bucket_bottom(bucket)), bucket);
            assert_eq!(bucket_of(bucket_top(bucket)), bucket);
        }
        assert_eq!(bucket_bottom(BATCH_BUCKETS - 1), (1 << 20) - (1 << 16));
        assert_eq!(bucket_top(BATCH_BUCKETS - 1), u64::MAX);
    }

    #[test]
    fn nothing_counted_says_so() {
        let none = BatchSizes::default().snapshot();
        assert_eq!(none, BatchSnapshot::default());
        assert_eq!((none.min, none.max, none.count(), none.percentile(0.5)), (0, 0, 0, None));
    }

    #[test]
    fn percentiles_of_small_batches_are_exact() {
        let s = record_all(&[1, 1, 1, 1, 1, 2, 3, 4, 15, 15]).snapshot();
        assert_eq!((s.min, s.max, s.count()), (1, 15, 10));
        let at = |quantile| s.percentile(quantile).expect("ten batches");
        assert_eq!([at(0.0), at(0.5), at(0.6), at(0.8), at(0.81), at(1.0)], [1, 1, 2, 4, 15, 15]);
    }

    #[test]
    fn how_many_are_no_larger() {
        let s = record_all(&[1, 3, 3, 15, 16, 17, 64, 71, 72, 1 << 21]).snapshot();
        let at_most = [0, 1, 2, 3, 15, 17, 71, 79, u64::MAX].map(|size| s.at_most(size));
        assert_eq!(at_most, [0, 1, 1, 3, 4, 6, 8, 9, 10]);
        // 16 and 17 share a bucket, and so do 64 to 71.
        assert_eq!([16, 64].map(|size| s.at_most(size)), [4, 6]);
    }

    #[test]
    fn warm_up_does_not_show_in_the_minimum_and_maximum_of_a_run() {
        let batches = record_all(&[1, 1000]);
        let warm_up = batches.snapshot();
        assert_eq!(batches.snapshot().since(&warm_up), BatchSnapshot::default());
        batches.record(7);
        batches.record(12);
        let run = batches.snapshot().since(&warm_up);
        assert_eq!((run.min, run.max, run.count()), (7, 12, 2));
    }

    proptest! {
        #[test]
        fn a_size_lies_in_its_bucket_and_close_to_its_top(size in any_size()) {
            let bucket = bucket_of(size);
            prop_assert!(bucket_bottom(bucket) <= size && size <= bucket_top(bucket));
            if size < 16 {
                prop_assert_eq!(bucket_top(bucket), size);
            } else if bucket + 1 < BATCH_BUCKETS {
                prop_assert!(bucket_top(bucket) as f64 <= size as f64 * 1.125);
            }
        }

        #[test]
        fn a_larger_size_is_never_in_a_lower_bucket(a in any_size(), b in any_size()) {
            prop_assert!((a <= b) <= (bucket_of(a) <= bucket_of(b)));
        }

        #[test]
        fn percentiles_are_near_the_true_ones(
            sizes in prop::collection::vec(1u64..1 << 20, 1..200),
            quantile in 0.0f64..=1.0,
        ) {
            let found = record_all(&sizes).snapshot().percentile(quantile).expect("not empty");
            let truth = true_percentile(&sizes, quantile);
            // The last bucket alone has no top but the maximum.
            if bucket_of(truth) + 1 < BATCH_BUCKETS {
                prop_assert!(truth <= found && found as f64 <= truth as f64 * 1.125);
            }
        }

        #[test]
        fn merging_is_counting_everything_in_one(
            a in prop::collection::vec(any_size(), 0..50),
            b in prop::collection::vec(any_size(), 0..50),
        ) {
            let mut merged = record_all(&a).snapshot();
            merged.merge(&record_all(&b).snapshot());
            prop_assert_eq!(merged, record_all(&[a, b].concat()).snapshot());
        }

        #[test]
        fn since_is_what_came_after(
            before in prop::collection::vec(any_size(), 0..50),
            after in prop::collection::vec(any_size(), 1..50),
        ) {
            let batches = record_all(&before);
            let earlier = batches.snapshot();
            after.iter().for_each(|size| batches.record(*size));
            let run = batches.snapshot().since(&earlier);
            let alone = record_all(&after).snapshot();
            prop_assert_eq!(&run.buckets, &alone.buckets);
            prop_assert!(run.min <= alone.min && bucket_of(run.min) == bucket_of(alone.min));
            prop_assert!(run.max >= alone.max && bucket_of(run.max) == bucket_of(alone.max));
        }
    }
}
