//! How many datagrams a dequeue brought: a histogram that costs one increment.

use super::Counter;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How many buckets [`BatchSizes`] has: exact up to 8, then 8 to each doubling, up to 2^20.
pub const BATCH_BUCKETS: usize = 8 + 8 * 17;

/// The distribution of batch sizes: a fixed log-linear histogram with 8 buckets to each
/// doubling, so a percentile is at most 12.5 % above the true one.
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
            buckets: [const { Counter(AtomicU64::new(0)) }; BATCH_BUCKETS],
        }
    }
}

/// The bucket of a size.
#[inline]
pub(crate) fn bucket_of(size: u64) -> usize {
    if size < 16 {
        return size.min(15) as usize;
    }
    let doubling = 63 - size.leading_zeros() as usize; // 4 for 16..32
    (((doubling - 2) * 8) + ((size >> (doubling - 3)) & 7) as usize).min(BATCH_BUCKETS - 1)
}

/// The largest size that falls into a bucket.
pub(crate) fn bucket_top(bucket: usize) -> u64 {
    if bucket < 16 {
        return bucket as u64;
    }
    let (doubling, step) = (bucket / 8 + 2, (bucket % 8) as u64);
    ((8 + step + 1) << (doubling - 3)) - 1
}

impl BatchSizes {
    #[inline]
    pub(super) fn record(&self, size: u64) {
        if size < self.min.load(Relaxed) {
            self.min.store(size, Relaxed);
        }
        if size > self.max.load(Relaxed) {
            self.max.store(size, Relaxed);
        }
        self.buckets[bucket_of(size)].one();
    }
}

/// [`BatchSizes`] at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchSnapshot {
    /// The smallest batch; 0 if there was none.
    pub min: u64,
    /// The largest batch.
    pub max: u64,
    buckets: Vec<u64>,
}

impl Default for BatchSnapshot {
    fn default() -> Self {
        Self { min: 0, max: 0, buckets: vec![0; BATCH_BUCKETS] }
    }
}

impl BatchSizes {
    /// Reads the distribution.
    pub fn snapshot(&self) -> BatchSnapshot {
        let min = self.min.load(Relaxed);
        BatchSnapshot {
            min: if min == u64::MAX { 0 } else { min },
            max: self.max.load(Relaxed),
            buckets: self.buckets.iter().map(Counter::get).collect(),
        }
    }
}

impl BatchSnapshot {
    /// How many batches were counted.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Adds another distribution to this one.
    pub fn merge(&mut self, other: &BatchSnapshot) {
        self.min = match (self.min, other.min) {
            (0, min) | (min, 0) => min,
            (a, b) => a.min(b),
        };
        self.max = self.max.max(other.max);
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine += theirs;
        }
    }

    /// What was counted since `earlier`. Minimum and maximum stay those of the whole run.
    pub fn since(&self, earlier: &BatchSnapshot) -> BatchSnapshot {
        BatchSnapshot {
            min: self.min,
            max: self.max,
            buckets: self.buckets.iter().zip(&earlier.buckets).map(|(a, b)| a - b).collect(),
        }
    }

    /// The size at or below which a share `quantile` (0 to 1) of the batches lies, or
    /// `None` if there was no batch. At most 12.5 % above the true value.
    pub fn percentile(&self, quantile: f64) -> Option<u64> {
        let count = self.count();
        let rank = ((quantile.clamp(0.0, 1.0) * count as f64).ceil() as u64).clamp(1, count.max(1));
        let mut below = 0;
        for (bucket, n) in self.buckets.iter().enumerate() {
            below += n;
            if below >= rank {
                return Some(bucket_top(bucket).min(self.max));
            }
        }
        None
    }
}
