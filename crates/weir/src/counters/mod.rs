//! Counters of one thread, cheap enough to leave on.
//!
//! Each thread of a server owns one [`Counters`] and is its only writer; anyone may read
//! it while it runs. So an increment is a plain load, add and store (no locked
//! instruction), and a reader sees each counter as it was a moment ago.
//!
//! They cost about 1.5 ns for each datagram (3 increments a datagram, and a dequeue with its
//! batch size every 1, 8 or 64 of them), in a loop that does nothing else to hide them behind:
//! `cargo run --release -p weir-io --example counter_cost`. The bound is 10 ns.
//!
//! What the operating system counts (CPU time, context switches, drops, interrupts,
//! memory) is in [`os`].

mod batch;
mod counter;
pub mod device;
#[cfg(feature = "metrics")]
pub(crate) mod export;
pub mod names;
pub mod os;
pub mod stream;

pub use batch::{BATCH_BUCKETS, BatchSizes, BatchSnapshot};
pub use counter::Counter;

/// The setting in effect that says what the counts `kernel_entries` are of.
pub const ENTRIES_SOURCE: &str = "kernel-entries-source";

/// What it says where they are of all entries.
pub const ALL_ENTRIES: &str = "own counters";

/// What it says where threads also wait for each other at locks, which enter the kernel uncounted: then they are of
/// so many at least.
pub const ENTRIES_WITHOUT_FUTEX: &str = "own counters, without futex";

/// What it says where the kernel counted them ([`os::KernelEntries`]): all of them.
pub const ENTRIES_BY_KERNEL: &str = "kernel";

/// What it says of a design.
pub(crate) fn entries_source(parks_threads: bool) -> &'static str {
    if parks_threads { ENTRIES_WITHOUT_FUTEX } else { ALL_ENTRIES }
}

macro_rules! counters {
    ($batches:literal; $($(#[$doc:meta])* $name:ident,)*) => {
        /// What one thread of a server counts.
        #[derive(Debug, Default)]
        #[repr(align(128))] // two cache lines: no neighbour shares ours, prefetch included
        pub struct Counters {
            $($(#[$doc])* pub $name: $crate::counters::Counter,)*
            #[doc = $batches]
            pub batches: $crate::counters::BatchSizes,
        }

        /// The counters of one thread, or of several added up, at one moment.
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Snapshot {
            $($(#[$doc])* pub $name: u64,)*
            #[doc = $batches]
            pub batches: $crate::counters::BatchSnapshot,
        }

        impl Default for Snapshot {
            fn default() -> Self {
                Self { $($name: 0,)* batches: Default::default() }
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
                $(self.$name = self.$name.saturating_add(other.$name);)*
                self.batches.merge(&other.batches);
            }

            /// What was counted since `earlier`, a snapshot of the same thread or threads.
            pub fn since(&self, earlier: &Snapshot) -> Snapshot {
                Snapshot {
                    $($name: self.$name.saturating_sub(earlier.$name),)*
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

pub(crate) use counters;

counters! {
    "Datagrams per dequeue that was not empty.";
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
    /// Calls that would wait if nothing had arrived; a thread that is busy never sleeps in them.
    waits,
    /// Times the thread was parked for another to wake it.
    parks,
    /// Receives posted.
    posts,
    /// Times the lock of a request queue was taken to post, where threads share the queue.
    locks,
    /// Times another thread held that lock just then, so that this one had to wait for it.
    locks_contended,
    /// Times the kernel found no buffer posted.
    no_buffer,
    /// Times completions were found that the completion queue could not hold.
    overflows,
    /// Datagrams longer than the slice.
    truncated,
    /// Frames that were not believed (length or checksum), where frames are seen.
    discarded,
    /// Frames that fitted no slice, where frames are seen.
    too_long,
    /// Frames of other programs that were passed on to the kernel, where frames are seen: other
    /// addresses, ports and protocols.
    passed_foreign,
    /// Parts of datagrams that were passed on to the kernel, which alone puts them together.
    passed_fragments,
    /// Datagrams for the server that came by a queue of the device where it has no socket, and went to
    /// the kernel.
    passed_unserved,
    /// Datagrams of another size than the expected one, where one is expected.
    wrong_size,
    /// Receives that failed.
    receive_errors,
    /// Errors of datagrams sent that peers reported, given to the handler.
    peer_errors,
    /// Calls of the handler that panicked.
    handler_panics,
    /// Replies, and what else a handler sent, handed to the operating system.
    replies,
    /// Those refused by a limit, or for want of a buffer.
    replies_refused,
    /// Replies dropped because they would go round for ever.
    loops_dropped,
    /// Replies, and what else a handler sent, that the operating system failed to send.
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

impl Snapshot {
    /// Datagrams per dequeue that brought any, or `None` if none did.
    pub fn mean_batch(&self) -> Option<f64> {
        let batches = self.dequeues.saturating_sub(self.empty_dequeues);
        (batches > 0).then(|| self.datagrams as f64 / batches as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn counted(dequeues: &[usize]) -> Counters {
        let counters = Counters::default();
        for datagrams in dequeues {
            counters.dequeued(*datagrams);
            counters.datagrams.add(*datagrams as u64);
        }
        counters
    }

    #[test]
    fn an_empty_dequeue_is_no_batch() {
        let counted = counted(&[0, 3, 0, 5]).snapshot();
        assert_eq!((counted.dequeues, counted.empty_dequeues, counted.batches.count()), (4, 2, 2));
        assert_eq!((counted.batches.min, counted.batches.max), (3, 5));
        assert_eq!(counted.mean_batch(), Some(4.0));
        assert_eq!(Snapshot::default().mean_batch(), None);
    }

    #[test]
    fn names_come_with_their_own_counts() {
        let counters = Counters::default();
        counters.datagrams.one();
        counters.bytes.add(64);
        counters.send_errors.add(3);
        let named = counters.snapshot().named();
        assert_eq!(named[0], ("datagrams", 1));
        assert_eq!(named[1], ("bytes", 64));
        assert_eq!(named.last(), Some(&("send_errors", 3)));
        assert_eq!(named.iter().map(|(_, n)| n).sum::<u64>(), 68);
    }

    #[test]
    fn counters_share_no_cache_line_with_a_neighbour() {
        assert_eq!((align_of::<Counters>(), size_of::<Counters>() % 128), (128, 0));
    }

    #[test]
    fn a_reader_sees_a_count_grow_and_loses_none() {
        const COUNTS: u64 = 100_000;
        let counter = Counter::default();
        std::thread::scope(|scope| {
            scope.spawn(|| (0..COUNTS).for_each(|_| counter.one()));
            let mut last = 0;
            while last < COUNTS {
                let now = counter.get();
                assert!(now >= last, "a count went back from {last} to {now}");
                last = now;
                std::thread::yield_now();
            }
        });
        assert_eq!(counter.get(), COUNTS);
    }

    proptest! {
        #[test]
        fn what_is_merged_in_is_what_since_takes_out(
            a in prop::collection::vec(0usize..2000, 0..50),
            b in prop::collection::vec(0usize..2000, 0..50),
        ) {
            let (a, b) = (counted(&a).snapshot(), counted(&b).snapshot());
            let mut both = a.clone();
            both.merge(&b);
            let rest = both.since(&a);
            prop_assert_eq!(rest.named(), b.named());
            prop_assert_eq!(rest.batches.count(), b.batches.count());
            prop_assert_eq!(rest.mean_batch(), b.mean_batch());
        }
    }
}
