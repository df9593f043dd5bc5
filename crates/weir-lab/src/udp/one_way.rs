//! One-way latencies of generators whose clocks are others than the server's.
//!
//! Before a run the clocks are compared, and the server takes the latencies of each generator by what its clock showed more
//! then. After the run they are compared again: so it is known how far they drifted apart meanwhile, by half of which all
//! latencies of that generator are moved, and how wrong the result may be ([`Between`]).

use serde::{Deserialize, Serialize};
use weir_load::latency::Histogram;
use weir_load::ranks::clocks::Between;

use crate::stats::latency::of_histogram;
use crate::wire::{FloodReport, GeneratorClock, OneWay};

/// Latencies are told if they are wrong by no more than the median divided by this.
const MEDIAN_DIVIDED_BY: u64 = 5;

/// The latencies of some generators as one distribution, and the clocks of each.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Taken {
    clocks: Vec<GeneratorClock>,
    histogram: Vec<(u64, u64)>,
}

impl Taken {
    /// Those of one generator: its rank, how its clock stood to the server's, and what it reported.
    pub fn of(rank: usize, clock: Between, report: &FloodReport) -> Self {
        let own = GeneratorClock {
            rank,
            offset_ns: clock.before.offset_ns,
            drift_ns: clock.drift_ns(),
            uncertainty_ns: clock.uncertainty_ns(),
        };
        let moved =
            |(ns, count): (u64, u64)| (ns.saturating_add_signed(clock.since_before_ns()), count);
        let mut histogram = Histogram::default();
        histogram.extend(taken(report).into_iter().map(moved));
        Self { clocks: vec![own], histogram: histogram.recorded().collect() }
    }

    /// With those of others.
    pub fn and(mut self, others: Self) -> Self {
        let mut histogram = Histogram::default();
        histogram.extend(self.histogram.iter().chain(&others.histogram).copied());
        self.clocks.extend(others.clocks);
        Self { histogram: histogram.recorded().collect(), ..self }
    }

    /// What is told of them.
    pub fn told(self) -> OneWay {
        let Self { mut clocks, histogram } = self;
        clocks.sort_unstable_by_key(|clock| clock.rank);
        let Some(latency) = of_histogram(&histogram) else {
            return OneWay { clocks, ..OneWay::default() };
        };
        let uncertainty_ns = clocks.iter().map(|clock| clock.uncertainty_ns).max().unwrap_or(0);
        if uncertainty_ns > latency.p50 / MEDIAN_DIVIDED_BY {
            let us = |ns: u64| ns as f64 / 1e3;
            let why = format!(
                "the clocks are known within {:.1} µs, which is more than a fifth of the median of {:.1} µs",
                us(uncertainty_ns),
                us(latency.p50)
            );
            return OneWay { clocks, withheld: Some(why), ..OneWay::default() };
        }
        OneWay {
            latency_ns: Some(latency),
            histogram,
            uncertainty_ns: Some(uncertainty_ns),
            withheld: None,
            clocks,
        }
    }
}

/// What the server took of one generator; nothing where it tells of none.
fn taken(report: &FloodReport) -> Vec<(u64, u64)> {
    let server = report.report.as_ref();
    let taken = server.and_then(|server| server.pointer("/audit/latency_histogram"));
    taken.and_then(|taken| serde_json::from_value(taken.clone()).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use weir_load::ranks::clocks::Offset;

    fn report(latencies: &[(u64, u64)]) -> FloodReport {
        let report = json!({ "audit": { "latency_histogram": latencies } });
        FloodReport { report: Some(report), ..FloodReport::default() }
    }

    fn clock(before_ns: i64, after_ns: i64, uncertainty_ns: u64) -> Between {
        let at = |offset_ns| Offset { offset_ns, uncertainty_ns };
        Between { before: at(before_ns), after: at(after_ns) }
    }

    #[test]
    fn latencies_of_each_generator_are_moved_by_the_drift_of_its_clock() {
        // What is true is 200 ns of the first, and 100 ns of the second.
        let reports = [report(&[(210, 3)]), report(&[(98, 2), (1, 1)])];
        let clocks = [clock(-5000, -5020, 5), clock(70, 74, 3)];
        let [first, second] = [0, 1].map(|at| Taken::of(2 - 2 * at, clocks[at], &reports[at]));
        let all = first.and(second).told();
        assert_eq!(all.histogram, [(3, 1), (100, 2), (200, 3)]);
        let latency = all.latency_ns.expect("they are told");
        assert_eq!((latency.n, latency.min, latency.p50, latency.max), (6, 3, 100, 200));
        assert_eq!((all.uncertainty_ns, all.withheld), (Some(15), None));
        let second = GeneratorClock { rank: 0, offset_ns: 70, drift_ns: 4, uncertainty_ns: 5 };
        assert_eq!((all.clocks[0], all.clocks[1].rank), (second, 2));
    }

    #[test]
    fn what_may_be_wrong_by_more_than_a_fifth_of_the_median_is_withheld_with_both_figures() {
        let of_one = |uncertainty_ns| {
            let report = report(&[(100_000, 9), (190_000, 1)]);
            Taken::of(0, clock(7, 7, uncertainty_ns), &report).told()
        };
        let median_ns = of_one(0).latency_ns.expect("one clock").p50;
        assert_eq!(of_one(median_ns / 5).uncertainty_ns, Some(median_ns / 5));
        let withheld = of_one(median_ns / 5 + 1);
        assert_eq!((withheld.latency_ns, withheld.uncertainty_ns), (None, None));
        assert!(withheld.histogram.is_empty() && withheld.clocks.len() == 1);
        let why = withheld.withheld.expect("a reason");
        let median = format!("the median of {:.1} µs", median_ns as f64 / 1e3);
        assert!(why.contains("known within 20.") && why.contains(&median), "{why}");
    }

    #[test]
    fn a_latency_that_would_be_less_than_nothing_is_none() {
        let report = report(&[(2, 1), (500, 9)]);
        let all = Taken::of(0, clock(0, -20, 1), &report).told();
        assert_eq!(all.latency_ns.expect("they are told").min, 0);
    }

    #[test]
    fn without_latencies_there_are_clocks_alone() {
        let nothing = FloodReport::default();
        let all = Taken::of(1, clock(9, 9, 1), &nothing).told();
        assert_eq!((all.latency_ns, all.withheld, all.clocks.len()), (None, None, 1));
    }
}
