//! What many rows changed in common between two experiments, and what each changed by itself.
//!
//! Two experiments are not interleaved: whatever became slower between them (the machine, its host, the kernel, or what
//! all rows share) is in the change of every row. So the median of the rows' changes is said once, for all, and each
//! row is judged by what remains of its own change. The median holds as long as fewer than half of the rows changed
//! by themselves.
//!
//! Changes are differences of logarithms, since "twice" and "half" weigh the same. How sure one is follows from the
//! intervals of both figures, as of independent errors (the root of the sum of squares). What rows of one experiment
//! have in common of their noise leaves no trace in what is their own, but does in what they have in common: so that is
//! as unsure as one row is, however many there are. Each row's interval is as wide as is needed for those of all rows
//! to hold together (Šidák, 1967), and so are those of what is common under several loads. None is narrower than the
//! usual one: the small noise of a few rounds may be luck.

use super::{CONFIDENCE, Estimate, Interval, median};

/// Of fewer rows nobody can tell what they have in common.
pub const FEWEST_ROWS: usize = 3;
/// How much more the median of many varies than their mean, for noise that is normal: half of π.
const OF_A_MEDIAN: f64 = std::f64::consts::FRAC_PI_2;

/// A change, as a logarithm: above 0 it is more.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Change {
    /// The logarithm of how many times the former the latter is.
    by: f64,
    /// Half of its interval, which holds by itself with [`CONFIDENCE`].
    half_width: f64,
}

impl Change {
    /// From one figure to another; `None` where either has no interval, or is not above 0.
    pub fn between(before: (f64, (f64, f64)), after: (f64, (f64, f64))) -> Option<Self> {
        let half_width = |(low, high): (f64, f64)| (high / low).ln() / 2.0;
        let half_width = half_width(before.1).hypot(half_width(after.1));
        let by = (after.0 / before.0).ln();
        (by.is_finite() && half_width.is_finite()).then_some(Self { by, half_width })
    }

    /// As a ratio, with an interval that is wider by this factor.
    fn ratio(self, wider: f64) -> Estimate {
        let end = |half_width: f64| (self.by + half_width * wider).exp();
        let interval = Interval { low: end(-self.half_width), high: end(self.half_width) };
        Estimate { median: self.by.exp(), interval: Some(interval), samples: 1 }
    }
}

/// What rows have in common, and what is their own.
#[derive(Debug, Clone, PartialEq)]
pub struct Apart {
    /// The common change; `None` for no row.
    pub common: Option<Estimate>,
    /// Each row's own change.
    pub own: Vec<Estimate>,
}

/// How much is judged in all comparisons that are made, whose intervals are to hold together.
#[derive(Debug, Clone, Copy)]
pub struct Judged {
    /// Rows.
    pub rows: usize,
    /// Common changes.
    pub commons: usize,
}

/// Takes the changes of rows apart. Where `is_common` is false, each row's own change is all of it.
pub fn apart(changes: &[Change], judged: Judged, is_common: bool) -> Apart {
    let of = |field: fn(&Change) -> f64| median(&changes.iter().map(field).collect::<Vec<_>>());
    let usual = of(|change| change.half_width).unwrap_or(0.0);
    let common = of(|change| change.by).map(|by| Change { by, half_width: usual });
    let taken = common.map_or(0.0, |common| common.by);
    let (taken, unsure) = match is_common {
        true => (taken, (1.0 + OF_A_MEDIAN / changes.len().max(1) as f64).sqrt()),
        false => (0.0, 1.0),
    };
    let wider = |figures: usize| deviations(figures) / deviations(1);
    let own = |change: &Change| {
        let half_width = change.half_width.max(usual);
        Change { by: change.by - taken, half_width }.ratio(wider(judged.rows) * unsure)
    };
    let common = common.map(|common| common.ratio(wider(judged.commons)));
    Apart { common, own: changes.iter().map(own).collect() }
}

/// So many deviations to either side hold so many normal figures together with [`CONFIDENCE`]: the inverse of the
/// normal distribution, to 0.0005 (Abramowitz and Stegun, 26.2.23).
fn deviations(figures: usize) -> f64 {
    let outside = (1.0 - CONFIDENCE.powf(1.0 / figures.max(1) as f64)) / 2.0;
    let t = (-2.0 * outside.ln()).sqrt();
    let above = 2.515_517 + t * (0.802_853 + t * 0.010_328);
    t - above / (1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308)))
}

#[cfg(test)]
mod tests {
    use statrs::distribution::{ContinuousCDF, Normal};

    use super::*;
    use crate::stats::quantile_of_sorted;
    use crate::stats::random::Random;

    fn of_one_load(rows: usize) -> Judged {
        Judged { rows, commons: 1 }
    }

    fn holds(estimate: &Estimate, ratio: f64) -> bool {
        estimate.interval.is_some_and(|interval| interval.low <= ratio && ratio <= interval.high)
    }

    #[test]
    fn deviations_are_those_of_the_normal_distribution() {
        let normal = Normal::new(0.0, 1.0).unwrap();
        for figures in [1, 2, 15, 100] {
            let outside = (1.0 - CONFIDENCE.powf(1.0 / figures as f64)) / 2.0;
            let exact = normal.inverse_cdf(1.0 - outside);
            assert!((deviations(figures) - exact).abs() < 6e-4, "{figures}: {exact}");
        }
    }

    #[test]
    fn a_machine_that_is_slower_as_a_whole_is_said_once() {
        let of = |after: f64| {
            let figure = |median: f64| (median, (median * 0.99, median * 1.01));
            Change::between(figure(100.0), figure(after)).unwrap()
        };
        let mut changes = vec![of(90.0); 15];
        changes[3] = of(72.0);
        let found = apart(&changes, of_one_load(15), true);
        let common = found.common.unwrap();
        assert!((common.median - 0.9).abs() < 1e-9 && !holds(&common, 1.0), "{common:?}");
        let changed: Vec<usize> = (0..15).filter(|row| !holds(&found.own[*row], 1.0)).collect();
        assert_eq!(changed, [3]);
        let several = apart(&changes, Judged { rows: 15, commons: 20 }, true);
        assert_eq!(several.own, found.own);
        assert!(several.common.unwrap().interval.unwrap().high > common.interval.unwrap().high);
        assert!((found.own[3].median - 0.8).abs() < 1e-9);
        // By themselves all of them are slower.
        let alone = apart(&changes, of_one_load(15), false);
        assert!(alone.own.iter().all(|own| !holds(own, 1.0)));
        assert_eq!(apart(&[], of_one_load(0), true), Apart { common: None, own: vec![] });
    }

    #[test]
    fn figures_without_an_interval_say_nothing() {
        let known = (2.0, (1.0, 3.0));
        assert_eq!(Change::between(known, (0.0, (0.0, 0.0))), None);
        assert_eq!(Change::between((2.0, (0.0, 3.0)), known), None);
    }

    /// Experiments of rows whose figures have noise of their own and noise of the round, the second one 10 % slower as
    /// a whole: how often any row seems to have changed by itself.
    #[test]
    fn rows_that_did_not_change_rarely_seem_to() {
        let mut random = Random::seeded(8);
        let normal = Normal::new(0.0, 1.0).unwrap();
        let mut noise = move |deviation: f64| {
            let uniform = (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
            deviation * normal.inverse_cdf(uniform.clamp(1e-12, 1.0 - 1e-12))
        };
        for (rows, rounds, left_out) in [(3, 9, 1), (16, 6, 0), (16, 9, 1), (16, 25, 7)] {
            let mut experiment = |speed: f64| -> Vec<(f64, (f64, f64))> {
                let of_rounds: Vec<f64> = (0..rounds).map(|_| noise(0.02)).collect();
                (0..rows)
                    .map(|row| {
                        let own = if row % 4 == 0 { 0.05 } else { 0.02 };
                        let figures: Vec<f64> = of_rounds
                            .iter()
                            .map(|common| speed * (common + noise(own)).exp())
                            .collect();
                        // As wide as the bootstrap's: between those outside of which a median rarely lies.
                        let mut sorted = figures;
                        sorted.sort_by(f64::total_cmp);
                        let median = quantile_of_sorted(&sorted, 0.5).unwrap();
                        (median, (sorted[left_out], sorted[rounds - 1 - left_out]))
                    })
                    .collect()
            };
            const EXPERIMENTS: u64 = 200;
            let (mut false_ones, mut false_commons, mut found_commons) = (0, 0, 0);
            for _ in 0..EXPERIMENTS {
                let before = experiment(100.0);
                for (speed, commons) in [(100.0, &mut false_commons), (90.0, &mut found_commons)] {
                    let after = experiment(speed);
                    let changes: Vec<Change> = before
                        .iter()
                        .zip(&after)
                        .filter_map(|(a, b)| Change::between(*a, *b))
                        .collect();
                    let found = apart(&changes, of_one_load(rows), true);
                    *commons += u64::from(!holds(&found.common.unwrap(), 1.0));
                    let any = found.own.iter().any(|own| !holds(own, 1.0));
                    false_ones += u64::from(any && speed < 100.0);
                }
            }
            let said = format!(
                "{rows} rows, {rounds} rounds: {false_ones} of {EXPERIMENTS} have a false \
                                change, {false_commons} a false common one, {found_commons} find 10 %"
            );
            println!("{said}");
            // Three deviations more than 5 % of 200.
            assert!(false_ones <= 19 && false_commons <= 19, "{said}");
            assert!(rounds < 9 || found_commons >= 190, "{said}");
        }
    }
}
