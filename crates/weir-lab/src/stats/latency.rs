//! The latencies of several runs as those of one.
//!
//! That is the distribution of a cell, as its document keeps it. What tables, pictures and rankings show of latencies is
//! another figure, the median over the rounds of each run's own percentile, as of every other metric: it has an
//! interval, and one disturbed run of nine does not decide it.

use crate::experiment::cell::Measured;
use crate::wire::Latency;
use weir_load::latency::Histogram;

/// The latencies of all samples that count together. `None` unless each of those that took any
/// gave its histogram.
pub fn merged<S: Measured>(samples: &[S]) -> Option<Latency> {
    let mut all = Histogram::default();
    let mut ends: Option<(u64, u64)> = None;
    for sample in samples.iter().filter(|sample| sample.when().counted) {
        let (Some(latency), histogram) = sample.latencies() else { continue };
        if histogram.is_empty() {
            return None;
        }
        all.extend(histogram.iter().copied());
        let (min, max) = ends.unwrap_or((latency.min, latency.max));
        ends = Some((min.min(latency.min), max.max(latency.max)));
    }
    let (min, max) = ends?;
    Some(summary(&all, min, max))
}

/// The figures of one histogram: pairs of a latency in nanoseconds and its count, in any order.
/// `None` if it is empty.
pub fn of_histogram(histogram: &[(u64, u64)]) -> Option<Latency> {
    let mut all = Histogram::default();
    all.extend(histogram.iter().copied());
    Some(summary(&all, all.percentile(0.0)?, all.percentile(1.0)?))
}

fn summary(all: &Histogram, min: u64, max: u64) -> Latency {
    let percentile = |share| all.percentile(share).map_or(max, |ns| ns.clamp(min, max));
    Latency {
        n: all.count(),
        min,
        p50: percentile(0.50),
        p90: percentile(0.90),
        p99: percentile(0.99),
        p999: percentile(0.999),
        max,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::udp::sample::tests::{flood, server};
    use crate::udp::sample::{Circumstances, Sample};

    fn sample(min: u64, max: u64, histogram: &[(u64, u64)]) -> Sample {
        let mut server = server();
        server.audit.latency_ns = Some(Latency { min, max, ..Latency::default() });
        server.audit.latency_histogram = histogram.to_vec();
        Sample::of(&Circumstances::default(), &server, &flood())
    }

    #[test]
    fn percentiles_are_those_of_all_datagrams() {
        // Of 1000 datagrams 980 take 10 ns; the 20 slow ones are all in one run of two.
        let mut samples =
            vec![sample(9, 10, &[(10, 500)]), sample(8, 995, &[(10, 480), (1000, 20)])];
        let all = merged(&samples).unwrap();
        assert_eq!((all.n, all.min, all.max), (1000, 8, 995));
        assert_eq!((all.p50, all.p90, all.p99, all.p999), (10, 10, 995, 995));
        samples[1].when.counted = false;
        assert_eq!(merged(&samples).unwrap().max, 10, "what does not count is left out");
    }

    #[test]
    fn one_histogram_has_the_same_figures() {
        let all = of_histogram(&[(1002, 20), (8, 1), (10, 979), (5, 0)]).unwrap();
        assert_eq!((all.n, all.min, all.p50, all.p99, all.max), (1000, 8, 10, 1002, 1002));
        assert_eq!((of_histogram(&[]), of_histogram(&[(7, 0)])), (None, None));
        assert_eq!(of_histogram(&[(1, u64::MAX), (2, u64::MAX)]).unwrap().n, u64::MAX);
    }

    #[test]
    fn a_run_without_a_histogram_leaves_nothing_to_merge() {
        assert_eq!(merged(&[sample(1, 2, &[(2, 5)]), sample(1, 2, &[])]), None);
        assert_eq!(merged::<Sample>(&[]), None);
    }
}
