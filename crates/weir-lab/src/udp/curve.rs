//! A row under rising load: the highest rate of which it loses nothing, the highest of which it
//! loses little, and the rates that are asked for on the way there.
//!
//! A rate is good where, in at least half of its runs, no more is lost than the goal allows: one
//! preemption of a virtual machine loses a few datagrams at any rate, and would leave no rate that
//! is good. The rate that counts is the highest below which no rate was bad.

use crate::experiment::course::NoRun;
use crate::stats::median;
use crate::udp::plan::line_rate::Speed;
use crate::udp::plan::{Goal, Load, Rate};
use crate::udp::results::Results;
use crate::udp::sample::{Metric, PACE, SENT, Sample};
use crate::udp::verdict::PACE_KEPT;

/// What a rate lost, as a share (0 to 1) of the datagrams sent; where answers are expected, what was not answered.
fn lost(sample: &Sample) -> Option<f64> {
    let delivered = sample.delivered_percent()?;
    Some((1.0 - delivered / 100.0).max(0.0))
}

/// A step this small, as a share of the rate, is not worth a run.
const NARROW: f64 = 0.02;
/// How far above a rate that was good the next is tried, if nothing above was bad.
const BEYOND: f64 = 1.25;

/// One rate that a row was offered evenly.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Index of the load.
    pub load: usize,
    /// Datagrams per second that were sent: median of its runs.
    pub sent_per_s: f64,
    /// Share of them (0 to 1) that was lost: median of its runs.
    pub lost: f64,
}

/// The highest rate within a goal, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Highest {
    /// Nothing usable was measured.
    Unknown,
    /// No rate that was tried was bad.
    AtLeast(f64),
    /// The first was good, the second bad.
    Between(f64, f64),
    /// Even the lowest that was tried was bad.
    Below(f64),
}

impl Highest {
    /// The highest rate that was good.
    pub fn good(self) -> Option<f64> {
        match self {
            Self::AtLeast(rate) | Self::Between(rate, _) => Some(rate),
            Self::Unknown | Self::Below(_) => None,
        }
    }
}

/// The rates that a row was offered evenly under loads that are like the given one, lowest first:
/// those of the loads before `before`, and only where the generator kept its pace and the counts
/// are whole.
pub fn points(results: &Results, like: &Load, row: usize, before: usize) -> Vec<Point> {
    let mut points: Vec<Point> = (0..before.min(results.loads.len()))
        .filter(|load| results.loads[*load].is_paced() && results.loads[*load].is_like(like))
        .filter_map(|load| point(results, load, row))
        .collect();
    points.sort_by(|a, b| a.sent_per_s.total_cmp(&b.sent_per_s));
    points
}

fn point(results: &Results, load: usize, row: usize) -> Option<Point> {
    let cell = &results.cells[load][row];
    let of = |metric: &Metric| median(&cell.values(metric));
    let kept = of(&PACE).is_none_or(|percent| percent >= PACE_KEPT * 100.0);
    if !kept || results.is_invalid(load, row) {
        return None;
    }
    let lost: Vec<f64> = cell.counted().filter_map(lost).collect();
    Some(Point { load, sent_per_s: of(&SENT)?, lost: median(&lost)? })
}

/// The highest rate of those points within a goal.
pub fn highest(points: &[Point], goal: Goal) -> Highest {
    let bad = points.iter().position(|point| point.lost > goal.most_lost());
    match bad {
        None => points.last().map_or(Highest::Unknown, |last| Highest::AtLeast(last.sent_per_s)),
        Some(0) => Highest::Below(points[0].sent_per_s),
        Some(bad) => Highest::Between(points[bad - 1].sent_per_s, points[bad].sent_per_s),
    }
}

/// The highest rate of a row within a goal, from all loads that are like the given one.
pub fn highest_of(results: &Results, like: &Load, row: usize, goal: Goal) -> Highest {
    highest(&points(results, like, row, results.loads.len()), goal)
}

/// Datagrams per second to ask of the generator for a row under a load; `None` means as many as it
/// can.
///
/// # Errors
/// Why there is no rate to ask for.
pub fn per_second(results: &Results, load: usize, row: usize) -> Result<Option<u64>, NoRun> {
    let whole = |rate: f64| Ok(Some(rate.round().max(1.0) as u64));
    let before = |goal| highest(&points(results, &results.loads[load], row, load), goal);
    match results.loads[load].rate {
        Rate::Saturation | Rate::Burst { .. } => Ok(None),
        Rate::PerSecond(rate) => Ok(Some(rate)),
        Rate::OfLink(of) => {
            let rate = of.per_second(results.loads[load].size_bytes);
            let most = results.calibration(&results.load_of(load, row));
            match most.filter(|most| (rate as f64) > most.sent_per_s) {
                Some(most) => Err(NoRun::NotMeasured(format!(
                    "the generator sends at most {:.0} datagrams/s, which is {:.1} % of {}",
                    most.sent_per_s,
                    of.share * 100.0 * most.sent_per_s / rate as f64,
                    Speed(of.bits_per_s),
                ))),
                None => Ok(Some(rate)),
            }
        }
        Rate::OfMaximum(share) => match results.maximum(load, row) {
            Some(maximum) => whole(maximum * share),
            None => Err(NoRun::Failed(
                "its maximum is not known, because none of its runs at saturation succeeded".into(),
            )),
        },
        Rate::Search { goal, .. } => next(results, load, row, before(goal)).and_then(whole),
        Rate::OfPartialDrop(share) => match before(Goal::PartialDrop).good() {
            Some(rate) => whole(rate * share),
            None => {
                Err(NoRun::NotMeasured("no rate was found at which it loses little enough".into()))
            }
        },
    }
}

/// The next rate to try.
fn next(results: &Results, load: usize, row: usize, known: Highest) -> Result<f64, NoRun> {
    let nothing = |why: &str| Err(NoRun::NotMeasured(why.into()));
    match known {
        Highest::Unknown => nothing("no rate below its maximum could be offered evenly"),
        Highest::Between(good, bad) if bad - good <= bad * NARROW => nothing("it is known closely"),
        Highest::Between(good, bad) => Ok((good + bad) / 2.0),
        Highest::Below(bad) => Ok(bad / 2.0),
        Highest::AtLeast(good) => {
            let beyond = good * BEYOND;
            let most = results.calibration(&results.load_of(load, row));
            match most.is_some_and(|most| beyond > most.sent_per_s) {
                true => nothing("the generator cannot offer more"),
                false => Ok(beyond),
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::experiment::cell::Conformance;
    use crate::experiment::cell::When;
    use crate::experiment::plan::Row;
    use crate::machine::Machine;
    use crate::udp::sample::Circumstances;
    use crate::udp::sample::tests::{flood, server};

    /// A run that was offered so many a second, of which this share was lost.
    pub(crate) fn offered(block: u32, per_second: f64, lost: f64) -> Sample {
        let at =
            Circumstances { when: When::in_block(block), paced: true, ..Circumstances::default() };
        let mut sample = Sample::of(&at, &server(), &flood());
        let dropped = (sample.ledger.sent as f64 * lost).round() as u64;
        sample.ledger.received = sample.ledger.sent - dropped;
        sample.ledger.dropped_socket = Some(dropped);
        sample.sent_per_s = Some(per_second);
        sample.pace_kept = Some(1.0);
        sample
    }

    /// One row under these loads; each a rate and what is lost of it in its three runs.
    fn results(loads: &[(Rate, f64, [f64; 3])]) -> Results {
        let base = Load::saturation(64);
        let all = loads.iter().map(|(rate, ..)| base.at(*rate)).collect();
        let rows = vec![Row::parse("epoll").unwrap()];
        let mut results = Results::new(vec![], Machine::default(), rows, all);
        results.conformance[0] = Conformance::Passed;
        for (load, (_, rate, lost)) in loads.iter().enumerate() {
            results.cells[load][0].samples =
                (0..3).map(|block| offered(block as u32, *rate, lost[block])).collect();
        }
        results
    }

    fn share(share: f64, lost: [f64; 3]) -> (Rate, f64, [f64; 3]) {
        (Rate::OfMaximum(share), share * 1e6, lost)
    }

    const ALL: [f64; 3] = [0.0; 3];

    #[test]
    fn the_highest_rate_is_the_one_below_which_none_was_bad() {
        let some = [0.0, 0.001, 0.004];
        // Of 62.5 % less was lost than of 50 %: that does not make it good.
        let results = results(&[
            share(0.25, [0.0, 0.0, 0.5]),
            share(0.75, [0.02, 0.02, 0.02]),
            share(0.5, some),
            share(0.625, ALL),
        ]);
        let of = |goal| highest_of(&results, &results.loads[0], 0, goal);
        assert_eq!(of(Goal::NoDrop), Highest::Between(250_000.0, 500_000.0));
        assert_eq!(of(Goal::PartialDrop), Highest::Between(625_000.0, 750_000.0));
        assert_eq!(highest(&[], Goal::NoDrop), Highest::Unknown);
    }

    #[test]
    fn the_search_halves_what_is_open_and_looks_only_at_loads_before_it() {
        let search = |goal, step| (Rate::Search { goal, step }, 375_000.0, ALL);
        let mut results = results(&[
            share(0.25, ALL),
            share(0.5, [0.002; 3]),
            search(Goal::NoDrop, 1),
            search(Goal::PartialDrop, 1),
            search(Goal::NoDrop, 2),
            (Rate::OfPartialDrop(0.1), 1.0, ALL),
        ]);
        let asked = |results: &Results, load| per_second(results, load, 0);
        assert_eq!(asked(&results, 2), Ok(Some(375_000)));
        assert_eq!(asked(&results, 3), Ok(Some(625_000)), "beyond: 500,000 was good enough");
        assert_eq!(asked(&results, 4), Ok(Some(437_500)));
        assert_eq!(asked(&results, 5), Ok(Some(50_000)));
        results.own.calibrations.push(crate::udp::results::Calibration {
            receive_offload: false,
            size_bytes: 64,
            flows: 1,
            generators: 1,
            sent_per_s: 600_000.0,
            core_to_core_ns: None,
            core_to_core_after_ns: None,
        });
        let nothing = NoRun::NotMeasured("the generator cannot offer more".into());
        assert_eq!(asked(&results, 3), Err(nothing));
        let nothing = NoRun::NotMeasured("it is known closely".into());
        for sample in &mut results.cells[2][0].samples {
            sample.sent_per_s = Some(495_000.0);
        }
        assert_eq!(asked(&results, 4), Err(nothing));
    }

    #[test]
    fn where_even_the_lowest_rate_was_bad_a_lower_one_is_tried() {
        let goal = Goal::NoDrop;
        let results = results(&[share(0.5, [0.1; 3]), (Rate::Search { goal, step: 1 }, 1.0, ALL)]);
        assert_eq!(per_second(&results, 1, 0), Ok(Some(250_000)));
        let of = |goal| highest(&points(&results, &results.loads[0], 0, 1), goal);
        assert_eq!((of(goal), of(goal).good()), (Highest::Below(500_000.0), None));
    }

    #[test]
    fn a_rate_at_which_the_generator_did_not_keep_its_pace_tells_nothing() {
        let mut results = results(&[share(0.5, ALL), share(0.75, [0.2; 3])]);
        results.cells[1][0].samples.iter_mut().for_each(|s| s.pace_kept = Some(0.5));
        let of = highest_of(&results, &results.loads[0], 0, Goal::NoDrop);
        assert_eq!(of, Highest::AtLeast(500_000.0));
        let other = Load { flows: 4, ..results.loads[0] };
        assert_eq!(highest_of(&results, &other, 0, Goal::NoDrop), Highest::Unknown);
    }

    #[test]
    fn a_share_of_a_link_is_offered_where_the_generator_sends_as_many() {
        let of =
            |share| Rate::OfLink(crate::udp::plan::LinkShare { share, bits_per_s: 1_040_000_000 });
        // At 130 bytes of the link each, a million of 64 B a second are all of it.
        let mut results = results(&[(of(0.5), 5e5, ALL), (of(1.0), 1e6, ALL)]);
        assert_eq!(
            [0, 1].map(|load| per_second(&results, load, 0)),
            [Ok(Some(500_000)), Ok(Some(1_000_000))]
        );
        results.own.calibrations.push(crate::udp::results::Calibration {
            receive_offload: false,
            size_bytes: 64,
            flows: 1,
            generators: 1,
            sent_per_s: 750_000.0,
            core_to_core_ns: None,
            core_to_core_after_ns: None,
        });
        assert_eq!(per_second(&results, 0, 0), Ok(Some(500_000)));
        let why = "the generator sends at most 750000 datagrams/s, which is 75.0 % of 1.04 Gbit/s";
        assert_eq!(per_second(&results, 1, 0), Err(NoRun::NotMeasured(why.into())));
    }

    #[test]
    fn a_share_of_an_unknown_maximum_cannot_be_asked_for() {
        let mut results = results(&[(Rate::Saturation, 1e6, ALL), share(0.5, ALL)]);
        assert_eq!(per_second(&results, 0, 0), Ok(None));
        // The simulated server receives 800,000 a second.
        assert_eq!(per_second(&results, 1, 0), Ok(Some(400_000)));
        results.cells[0][0].samples.clear();
        assert!(matches!(per_second(&results, 1, 0), Err(NoRun::Failed(_))));
    }
}
