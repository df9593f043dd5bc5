//! What the threads of a load count while it runs.

use crate::latency::Latencies;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};
use weir::counters::{Counter, os::ThreadId};

/// What goes up and down, written by one thread.
#[derive(Debug, Default)]
pub(super) struct Level(AtomicU64);

impl Level {
    pub(super) fn set(&self, level: usize) {
        self.0.store(level as u64, Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What one thread counts, and any thread reads.
        #[derive(Debug, Default)]
        #[repr(align(128))] // two cache lines: no neighbour shares ours, prefetch included
        pub(super) struct Live {
            $(pub(super) $name: Counter,)*
            /// Connections that stand.
            pub(super) open: Level,
            /// From the intended time of a message to its end.
            pub(super) latencies: Latencies,
            /// From the intended time of a message to its sending, where nothing but this program
            /// held it up. Of an open loop only.
            pub(super) delays: Latencies,
            /// From the beginning of a connect to its success.
            pub(super) connects: Latencies,
            pub(super) thread: OnceLock<ThreadId>,
            /// Whether it was told to begin, and has not come to its end.
            pub(super) serves: AtomicBool,
        }

        /// What was counted by one thread, or by all.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct Counts {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Live {
            /// Reads every counter, one after another.
            pub(super) fn counts(&self) -> Counts {
                Counts { $($name: self.$name.get(),)* }
            }

            /// What grows with all that it does, and with each wait for something to do; none while there is nothing.
            pub(super) fn turns(&self) -> Option<u64> {
                let turns = || [$(self.$name.get(),)*].into_iter().fold(0, u64::wrapping_add);
                self.serves.load(Relaxed).then(turns)
            }
        }

        impl Counts {
            /// Adds another thread's.
            pub fn merge(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
            }

            /// What was counted since `earlier`.
            pub fn since(&self, earlier: &Self) -> Self {
                Self { $($name: self.$name.saturating_sub(earlier.$name),)* }
            }

            /// Every count by its name.
            pub fn named(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }
        }
    };
}

counts! {
    /// Connections that were begun.
    attempted,
    /// Those that were made.
    connected,
    /// Those that the system at the other end refused: nobody listens there.
    refused,
    /// Those that were not made in time: Linux drops what a full backlog cannot take.
    timed_out,
    /// Those that failed otherwise; the causes say how.
    connect_failed,
    /// Those that were being made when the load ended.
    unfinished,
    /// Connections that ended in order, when all was answered.
    finished,
    /// Those that a server of weir refused, and said why.
    refused_by_server,
    /// Those that the server broke off.
    reset,
    /// Those that broke otherwise; the causes say how.
    broken,
    /// Those that the server closed in order before they were done, when it owed nothing, or nothing but
    /// answers to messages that its end may have crossed on their way.
    ended_by_server,
    /// Those that the server closed in order in the middle of an answer, or when it had had time for one
    /// that was due: what it owed is lost.
    truncated,
    /// Those on which wrong bytes came.
    wrong,
    /// Those given up since no answer came for too long.
    unanswered,
    /// Those whose answers had not all come when the time to end was over.
    cut_off,
    /// Those that the server did not close after all was answered and it was told the end.
    left_open,
    /// Messages begun.
    messages_sent,
    /// Those that came back, or, of one-way loads, that the system took.
    messages_over,
    /// Bytes that the system took.
    bytes_sent,
    /// Bytes that came.
    bytes_received,
    /// Sends that the system took something of.
    sends,
    /// Those of which it took a part only.
    short_sends,
    /// Receives that brought something.
    receives,
    /// Waits for anything to happen.
    waits,
}

impl Counts {
    /// What is wrong with the counts of the load itself, if anything is: each connection that was
    /// begun is made or is not, each that was made ends once.
    pub fn unbalanced(&self) -> Option<String> {
        let not_made = self.refused + self.timed_out + self.connect_failed + self.unfinished;
        let ends = self.finished
            + self.refused_by_server
            + self.reset
            + self.broken
            + self.ended_by_server
            + self.truncated
            + self.wrong
            + self.unanswered
            + self.cut_off
            + self.left_open;
        if self.attempted != self.connected + not_made {
            return Some(format!(
                "{} connections were begun, but {} made and {not_made} not",
                self.attempted, self.connected
            ));
        }
        (self.connected != ends)
            .then(|| format!("{} connections were made, but {ends} ended", self.connected))
    }
}

/// What went wrong how often. Of more than [`Causes::MOST`] kinds the others are one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Causes(BTreeMap<String, u64>);

impl Causes {
    /// Kinds that are told apart.
    pub const MOST: usize = 32;

    /// Counts one.
    pub(super) fn add(&mut self, cause: impl Into<String>, count: u64) {
        let cause = cause.into();
        let known = self.0.contains_key(&cause) || self.0.len() < Self::MOST;
        let cause = if known { cause } else { "others".into() };
        *self.0.entry(cause).or_default() += count;
    }

    pub(super) fn merge(&mut self, other: Self) {
        other.0.into_iter().for_each(|(cause, count)| self.add(cause, count));
    }

    /// Each cause with its count, the most frequent first.
    pub fn by_count(&self) -> Vec<(&str, u64)> {
        let mut all: Vec<_> = self.0.iter().map(|(cause, count)| (&**cause, *count)).collect();
        all.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        all
    }

    /// Whether nothing went wrong.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_only_waits_makes_turns_and_whoever_has_nothing_to_do_none() {
        let live = Live::default();
        assert_eq!(live.turns(), None);
        live.serves.store(true, Relaxed);
        assert_eq!(live.turns(), Some(0));
        live.waits.one();
        live.left_open.one();
        assert_eq!(live.turns(), Some(2));
    }

    #[test]
    fn causes_are_bounded_and_none_is_lost() {
        let mut causes = Causes::default();
        assert!(causes.is_empty());
        for number in 0..100 {
            causes.add(format!("cause {}", number % 50), 1);
        }
        let all = causes.by_count();
        assert!(all.len() <= Causes::MOST + 1, "{all:?}");
        assert_eq!(all[0].0, "others");
        assert_eq!(all.iter().map(|(_, count)| count).sum::<u64>(), 100);
        let mut both = Causes::default();
        both.merge(causes.clone());
        both.merge(causes);
        assert_eq!(both.by_count().iter().map(|(_, count)| count).sum::<u64>(), 200);
    }

    #[test]
    fn every_connection_is_accounted_for() {
        let right = Counts {
            attempted: 9,
            connected: 5,
            refused: 1,
            timed_out: 1,
            connect_failed: 1,
            unfinished: 1,
            finished: 3,
            reset: 2,
            ..Counts::default()
        };
        assert_eq!(right.unbalanced(), None);
        let lost = Counts { attempted: 10, ..right };
        assert!(lost.unbalanced().unwrap().contains("10 connections were begun"));
        let twice = Counts { finished: 4, ..right };
        assert!(twice.unbalanced().unwrap().contains("but 6 ended"));
        let mut sum = right;
        sum.merge(&right);
        assert_eq!((sum.attempted, sum.since(&right)), (18, right));
    }
}
