//! Counters of one thread, cheap enough to leave on.
//!
//! Each thread of a server owns one [`Counters`] and is its only writer; anyone may read
//! it while it runs. So an increment is a plain load, add and store (no locked
//! instruction), and a reader sees each counter as it was a moment ago.
//!
//! What the operating system counts (CPU time, context switches, drops, interrupts,
//! memory) is in [`os`].

pub mod os;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A count that one thread writes and any thread reads.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`. Only the owning thread may call this: two writers would lose counts
    /// (they could not break anything else).
    #[inline(always)]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// Adds one.
    #[inline(always)]
    pub fn one(&self) {
        self.add(1);
    }

    /// The count as last written.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

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
    fn record(&self, size: u64) {
        if size < self.min.load(Relaxed) {
            self.min.store(size, Relaxed);
        }
        if size > self.max.load(Relaxed) {
            self.max.store(size, Relaxed);
        }
        self.buckets[bucket_of(size)].one();
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What one thread of a server counts.
        #[derive(Debug, Default)]
        #[repr(align(128))] // two cache lines: no neighbour shares ours, prefetch included
        pub struct Counters {
            $($(#[$doc])* pub $name: Counter,)*
            /// Datagrams per dequeue that was not empty.
            pub batches: BatchSizes,
        }

        /// The counters of one thread, or of several added up, at one moment.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct Snapshot {
            $($(#[$doc])* pub $name: u64,)*
            /// Datagrams per dequeue that was not empty.
            pub batches: BatchSnapshot,
        }

        impl Default for Snapshot {
            fn default() -> Self {
                Self { $($name: 0,)* batches: BatchSnapshot::default() }
            }
        }

        impl Counters {
            /// Reads every counter. The counters are read one after another, not at one
            /// instant.
            pub fn snapshot(&self) -> Snapshot {
                Snapshot { $($name: self.$name.get(),)* batches: self.batches.snapshot() }
            }
        }

        impl Snapshot {
            /// Adds another thread's counters to these.
            pub fn merge(&mut self, other: &Snapshot) {
                $(self.$name += other.$name;)*
                self.batches.merge(&other.batches);
            }

            /// What was counted since `earlier`.
            pub fn since(&self, earlier: &Snapshot) -> Snapshot {
                Snapshot {
                    $($name: self.$name - earlier.$name,)*
                    batches: self.batches.since(&earlier.batches),
                }
            }

            /// Every counter by its name, in declaration order.
            pub fn named(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }
        }
    };
}

counters! {
    /// Datagrams handed to the handler.
    datagrams,
    /// Payload bytes of those.
    bytes,
    /// Calls that asked for received datagrams.
    dequeues,
    /// Those that brought none.
    empty_dequeues,
    /// Entries into the kernel (or, on a provider in memory, what would be one).
    kernel_entries,
    /// Times the right to dequeue was given up, or a notification asked for.
    notifies,
    /// Times the thread waited for something to arrive.
    waits,
    /// Times the thread was parked for another to wake it.
    parks,
    /// Receives posted.
    posts,
    /// Times the kernel found no buffer posted.
    no_buffer,
    /// Completions that the completion queue could not hold at once.
    overflows,
    /// Datagrams longer than the slice.
    truncated,
    /// Datagrams of another size than the expected one, where one is expected.
    wrong_size,
    /// Receives that failed.
    receive_errors,
    /// Replies handed to the operating system.
    replies,
    /// Replies refused by a limit, or for want of a buffer.
    replies_refused,
    /// Replies that the operating system failed to send.
    send_errors,
}

impl Counters {
    /// Counts one dequeue that brought `datagrams`.
    #[inline]
    pub fn dequeued(&self, datagrams: usize) {
        self.dequeues.one();
        if datagrams == 0 {
            self.empty_dequeues.one();
        } else {
            self.batches.record(datagrams as u64);
        }
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
