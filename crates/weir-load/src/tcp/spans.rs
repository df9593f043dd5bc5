//! Stretches of time, such as those in which connections were being made: of several threads and
//! processes together, and without the waits between them.

use serde::{Deserialize, Serialize};

/// Stretches from one moment to another, in ns of the monotonic clock, in order and apart.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Spans(Vec<(u64, u64)>);

impl Spans {
    /// Stretches that are kept. Where there are more, the shortest time between two counts as theirs.
    const MOST: usize = 1024;

    /// Adds a stretch, which may lie over others.
    pub(super) fn add(&mut self, from_ns: u64, to_ns: u64) {
        if from_ns >= to_ns {
            return;
        }
        let first = self.0.partition_point(|(_, to)| *to < from_ns);
        let touched = self.0[first..].iter().take_while(|(from, _)| *from <= to_ns).count();
        let touched = first..first + touched;
        let whole = self.0[touched.clone()]
            .iter()
            .fold((from_ns, to_ns), |(from, to), other| (from.min(other.0), to.max(other.1)));
        self.0.splice(touched, [whole]);
        if self.0.len() > Self::MOST {
            self.close_the_shortest_gap();
        }
    }

    fn close_the_shortest_gap(&mut self) {
        let gaps = self.0.windows(2).map(|two| two[1].0 - two[0].1).enumerate();
        if let Some((before, _)) = gaps.min_by_key(|(_, gap)| *gap) {
            let (_, to_ns) = self.0.remove(before + 1);
            self.0[before].1 = to_ns;
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        other.0.iter().for_each(|(from, to)| self.add(*from, *to));
    }

    /// Puts them on another clock.
    pub(super) fn on_clock(&mut self, clock: impl Fn(u64) -> u64) {
        self.0.iter_mut().for_each(|(from, to)| (*from, *to) = (clock(*from), clock(*to)));
    }

    /// How long all of them are, in ns; none where there are none.
    pub(super) fn total_ns(&self) -> Option<u64> {
        let total: u64 = self.0.iter().map(|(from, to)| to - from).sum();
        Some(total).filter(|total| *total > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn waits_between_them_do_not_count() {
        let mut spans = Spans::default();
        assert_eq!(spans.total_ns(), None);
        spans.add(5, 5);
        assert_eq!(spans.total_ns(), None);
        spans.add(1000, 1010);
        spans.add(0, 10);
        let mut others = Spans::default();
        others.add(5, 15);
        others.add(500, 501);
        spans.merge(&others);
        assert_eq!(spans.total_ns(), Some(15 + 1 + 10));
        spans.add(0, 2000);
        assert_eq!(spans, Spans(vec![(0, 2000)]));
    }

    #[test]
    fn many_are_bounded_and_the_shortest_waits_go() {
        let mut spans = Spans::default();
        let many = 2 * Spans::MOST as u64;
        for number in 0..many {
            // Every second wait is short.
            let from = number / 2 * 1000 + number % 2 * 11;
            spans.add(from, from + 10);
        }
        assert_eq!(spans.0.len(), Spans::MOST);
        assert_eq!(spans.total_ns(), Some(many * 10 + many / 2));
    }

    proptest! {
        #[test]
        fn each_moment_counts_once(all in prop::collection::vec((0u64..200, 0u64..30), 0..40)) {
            let (mut spans, mut covered) = (Spans::default(), [false; 300]);
            for (from, len) in all {
                spans.add(from, from + len);
                covered[from as usize..(from + len) as usize].fill(true);
            }
            let expected = covered.iter().filter(|moment| **moment).count() as u64;
            prop_assert_eq!(spans.total_ns().unwrap_or(0), expected);
            prop_assert!(spans.0.windows(2).all(|two| two[0].1 < two[1].0), "{:?}", spans);
        }
    }
}
