//! Who wins under a load, who is tied, and how far from the traditional design each lies.

use crate::experiment::cell::{Better, Cell, Measured, Metric, Status};
use crate::stats::CONFIDENCE;
use crate::stats::compare::{Difference, Pairs, judge, noise_floor, pair};

/// A noise floor above which nothing is compared, as a share.
pub const TOO_NOISY: f64 = 1.0;

/// One ranked row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Place {
    /// Index of the row.
    pub row: usize,
    /// Its median.
    pub median: f64,
    /// The winner's figure to its own: how many times better the winner is in a metric
    /// where more is better. `None` for the winner.
    pub winner_to_it: Option<Difference>,
    /// Its figure to that of the traditional design; `None` for that design itself and where
    /// it was not measured.
    pub to_traditional: Option<Difference>,
}

impl Place {
    /// Whether it was found to be as good as the winner.
    pub fn ties_with_winner(&self) -> bool {
        matches!(self.winner_to_it, Some(Difference::Tie(_)))
    }

    /// Whether there are too few pairs to say how it stands to the winner.
    pub fn is_unclear(&self) -> bool {
        matches!(self.winner_to_it, Some(Difference::TooFew(_)))
    }

    /// Its verdicts that are open.
    fn open(&self) -> impl Iterator<Item = Difference> {
        let all = [self.winner_to_it, self.to_traditional];
        all.into_iter().flatten().filter(|verdict| matches!(verdict, Difference::TooFew(_)))
    }

    /// Whether there are too few pairs for any of its verdicts.
    pub fn is_open(&self) -> bool {
        self.open().next().is_some()
    }

    /// The fewest pairs of its open verdicts; `None` if none is open.
    pub fn open_pairs(&self) -> Option<usize> {
        self.open().map(|verdict| verdict.ratio().map_or(0, |ratio| ratio.samples)).min()
    }
}

/// Why there is no ratio of two rows by a metric, where there is none: what was so in the rounds that both
/// were in.
pub fn no_ratio_because<S: Measured>(
    first: &Cell<S>,
    second: &Cell<S>,
    metric: &Metric<S>,
) -> String {
    let (mut common, mut unknown, mut nothing, mut changed) = (0, 0, 0, 0);
    for a in first.standing() {
        for b in second.standing().filter(|b| b.when().block == a.when().block) {
            common += 1;
            match ((metric.of)(a), (metric.of)(b)) {
                (Some(a), Some(b)) if !(a > 0.0 && b > 0.0) => nothing += 1,
                (Some(_), Some(_)) => changed += 1,
                _ => unknown += 1,
            }
        }
    }
    let causes = [
        (unknown, "a figure is not known"),
        (nothing, "a figure is 0"),
        (changed, "the machine changed (core to core) in one of the runs or between them"),
    ];
    match causes.iter().filter(|(count, _)| *count > 0).collect::<Vec<_>>().as_slice() {
        [] => "they were measured in no common round".into(),
        [(_, cause)] if common == 1 => format!("in their only common round {cause}"),
        [(_, cause)] => format!("in each of their {common} common rounds {cause}"),
        several => {
            let several: Vec<String> =
                several.iter().map(|(count, cause)| format!("in {count} {cause}")).collect();
            format!("of their {common} common rounds {}", several.join(", "))
        }
    }
}

/// How sure it is that the best row is the best.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lead {
    /// No other row has a rank.
    Only,
    /// It is really better than each other.
    Alone,
    /// It is really better than some; the others are tied with it.
    Shared,
    /// It is really better than none, or open against some: its figure is the best, and that is all.
    NotShown,
}

/// The ranked rows of one load by one metric, best first. The second name of a row has no
/// place of its own.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Ranking {
    /// Best first.
    pub places: Vec<Place>,
    /// Differences below this share are noise; `None` if it is not known.
    pub noise_floor: Option<f64>,
    /// Pairs left out because the machine changed between their runs.
    pub unlike_pairs: usize,
}

/// Rows that are to be ranked among each other.
pub struct Contest<'a, S> {
    /// The cells of all rows under the load.
    pub cells: &'a [Cell<S>],
    /// By what.
    pub metric: &'a Metric<S>,
    /// The indices of those that are ranked.
    pub rows: Vec<usize>,
    /// The pairs of the row that runs under two names, if it is compared: they show the noise.
    pub again: Option<Pairs>,
    /// The row that others are compared with besides the winner.
    pub traditional: Option<usize>,
    /// Gives the same intervals again.
    pub seed: u64,
}

impl Ranking {
    /// The rows of a table: ranked ones first, best first, each followed by its second name; then the others of
    /// these rows, those that ran first, in the order of their figures: of each how it ended, and a figure of
    /// which more is better.
    pub fn order(
        &self,
        again: Option<(usize, usize)>,
        rows: impl Iterator<Item = usize>,
        shown: impl Fn(usize) -> (Status, Option<f64>),
    ) -> Vec<usize> {
        let mut order: Vec<usize> = vec![];
        for place in &self.places {
            order.push(place.row);
            if let Some((_, second)) = again.filter(|(of, _)| *of == place.row) {
                order.push(second);
            }
        }
        let mut rest: Vec<usize> = rows.filter(|row| !order.contains(row)).collect();
        rest.sort_by(|a, b| {
            let ((a, of_a), (b, of_b)) = (shown(*a), shown(*b));
            let figure = |of: Option<f64>| of.unwrap_or(f64::NEG_INFINITY);
            (a != Status::Ok).cmp(&(b != Status::Ok)).then(figure(of_b).total_cmp(&figure(of_a)))
        });
        order.extend(rest);
        order
    }

    /// Ranks rows of whatever kind.
    pub fn among<S: Measured>(contest: &Contest<S>) -> Self {
        let Contest { cells, metric, seed, .. } = *contest;
        let noise_floor = contest.again.as_ref().and_then(|all| noise_floor(all, CONFIDENCE, seed));
        let mut unlike_pairs = contest.again.as_ref().map_or(0, |pairs| pairs.unlike);
        let mut pairs = |first: usize, second: usize| -> Pairs {
            let found = pair(&cells[first].readings(metric), &cells[second].readings(metric));
            unlike_pairs += found.unlike;
            found
        };
        let known = contest.rows.iter().copied();
        let mut order: Vec<(usize, f64)> = known
            .filter_map(|row| Some((row, cells[row].estimate(metric, seed)?.median)))
            .collect();
        order.sort_by(|(_, a), (_, b)| match metric.better {
            Better::Higher => b.total_cmp(a),
            Better::Lower => a.total_cmp(b),
        });
        let winner = order.first().map(|(row, _)| *row);
        let mut compare = |first: Option<usize>, second: usize| {
            let first = first.filter(|first| *first != second)?;
            Some(judge(&pairs(first, second), noise_floor, CONFIDENCE, seed))
        };
        let mut places = vec![];
        for (row, median) in order {
            let winner_to_it = compare(winner, row);
            let to_traditional = match contest.traditional {
                Some(traditional) => compare(Some(row), traditional),
                None => None,
            };
            places.push(Place { row, median, winner_to_it, to_traditional });
        }
        Self { places, noise_floor, unlike_pairs }
    }

    /// Whether a design under two names differs from itself by more than everything that is
    /// to be compared: then nobody wins.
    pub fn is_too_noisy(&self) -> bool {
        self.noise_floor.is_some_and(|floor| floor > TOO_NOISY)
    }

    /// Whether any verdict is open for want of pairs.
    pub fn is_open(&self) -> bool {
        self.places.iter().any(Place::is_open)
    }

    /// The best row, unless the load was too noisy to compare.
    pub fn winner(&self) -> Option<&Place> {
        self.places.first().filter(|_| !self.is_too_noisy())
    }

    /// How sure it is that the winner is the best; `None` without a winner.
    pub fn lead(&self) -> Option<Lead> {
        self.winner()?;
        let others = &self.places[1..];
        let all = |of: fn(&Place) -> bool| others.iter().all(of);
        Some(match others {
            [] => Lead::Only,
            _ if all(Place::ties_with_winner) || others.iter().any(Place::is_unclear) => {
                Lead::NotShown
            }
            _ if others.iter().any(Place::ties_with_winner) => Lead::Shared,
            _ => Lead::Alone,
        })
    }

    /// A row's place, from 1; rows tied with the winner share the first.
    pub fn rank(&self, row: usize) -> Option<usize> {
        self.winner()?;
        let index = self.places.iter().position(|place| place.row == row)?;
        Some(if self.places[index].ties_with_winner() { 1 } else { index + 1 })
    }

    /// The ranked place of a row.
    pub fn place(&self, row: usize) -> Option<&Place> {
        self.places.iter().find(|place| place.row == row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::cell::Conformance;
    use crate::experiment::cell::When;
    use crate::experiment::plan::{Role, Row};
    use crate::machine::Machine;
    use crate::udp::plan::Load;
    use crate::udp::results::Results;
    use crate::udp::sample::RECEIVED;
    use crate::udp::sample::tests::{flood, server};
    use crate::udp::sample::{Circumstances, Sample};

    /// A row whose figure is `speed` times a block's common speed.
    fn results(speeds: &[(&str, Role, f64)]) -> Results {
        let rows: Vec<Row> = speeds
            .iter()
            .map(|(design, role, _)| Row::parse(design).unwrap().with_role(*role))
            .collect();
        let mut results =
            Results::new(vec![], Machine::default(), rows, vec![Load::saturation(64)]);
        for (row, (_, _, speed)) in speeds.iter().enumerate() {
            results.conformance[row] = Conformance::Passed;
            for (block, common) in [1.0, 0.6, 1.1, 0.9, 0.7, 0.8, 1.0].iter().enumerate() {
                let at = Circumstances {
                    when: When::in_block(block as u32),
                    ..Circumstances::default()
                };
                let mut sample = Sample::of(&at, &server(), &flood());
                // The second name wavers by 1 % against the first.
                let waver = 1.0 + if block % 2 == 0 { 0.01 } else { -0.01 };
                let own = if matches!(speeds[row].1, Role::Again(_)) { waver } else { 1.0 };
                sample.received_per_s = Some(1e6 * speed * common * own);
                results.cells[0][row].samples.push(sample);
            }
        }
        results
    }

    fn four() -> Results {
        results(&[
            ("port", Role::Traditional, 1.0),
            ("rio-event", Role::Plain, 1.995),
            ("rio-hybrid", Role::Plain, 2.0),
            ("epoll", Role::Plain, 1.2),
            ("rio-hybrid", Role::Again(2), 2.0),
        ])
    }

    #[test]
    fn the_winner_its_tie_and_the_ratios() {
        let ranking = four().ranking_by(0, false, &RECEIVED);
        let order: Vec<usize> = ranking.places.iter().map(|place| place.row).collect();
        assert_eq!(order, [2, 1, 3, 0], "the second name has no place");
        assert_eq!(
            (ranking.rank(2), ranking.rank(1), ranking.rank(3)),
            (Some(1), Some(1), Some(3))
        );
        assert_eq!(ranking.rank(4), None);
        let floor = ranking.noise_floor.unwrap();
        assert!((0.009..0.012).contains(&floor), "{floor}");
        let ratio = ranking.place(2).unwrap().to_traditional.unwrap();
        assert!(matches!(ratio, Difference::Real(r) if (r.median - 2.0).abs() < 1e-9), "{ratio:?}");
        assert_eq!(ranking.place(0).unwrap().to_traditional, None);
    }

    #[test]
    fn who_leads_is_said_only_where_it_is_shown() {
        let lead = |results: &Results| results.ranking_by(0, false, &RECEIVED).lead();
        assert_eq!(lead(&four()), Some(Lead::Shared), "rio-event is tied with it");
        let two = |speed| {
            let rows = [("port", Role::Plain, 1.0), ("epoll", Role::Plain, speed)];
            results(&[rows[0], rows[1], ("epoll", Role::Again(1), speed)])
        };
        assert_eq!(lead(&two(2.0)), Some(Lead::Alone));
        assert_eq!(lead(&two(1.001)), Some(Lead::NotShown));
        let mut few = two(2.0);
        few.cells[0].iter_mut().for_each(|cell| cell.samples.truncate(3));
        assert_eq!(lead(&few), Some(Lead::NotShown), "that it is ahead is open");
        few.cells[0][0].samples.clear();
        assert_eq!(lead(&few), Some(Lead::Only));
        few.cells[0].iter_mut().for_each(|cell| cell.samples.clear());
        assert_eq!(lead(&few), None);
    }

    #[test]
    fn why_there_is_no_ratio_is_what_was_so_in_the_rounds_of_both() {
        let because = |change: &dyn Fn(&mut Cell<Sample>, &mut Cell<Sample>)| {
            let mut results = four();
            let [first, second, ..] = results.cells[0].as_mut_slice() else { unreachable!() };
            change(first, second);
            no_ratio_because(first, second, &RECEIVED)
        };
        assert_eq!(
            because(&|_, second| {
                second.samples.iter_mut().for_each(|s| s.received_per_s = Some(0.0));
            }),
            "in each of their 7 common rounds a figure is 0"
        );
        assert_eq!(
            because(&|first, second| {
                first.samples.truncate(3);
                second.samples.drain(..3);
            }),
            "they were measured in no common round"
        );
        let several = because(&|first, second| {
            first.samples.truncate(2);
            first.samples[0].received_per_s = None;
            second.samples.iter_mut().for_each(|s| s.when.core_to_core_ns = Some(170.0));
        });
        assert!(
            several.starts_with("of their 2 common rounds in 1 a figure is not known, in 1 the")
        );
    }

    #[test]
    fn where_a_row_is_twice_itself_nobody_wins() {
        let mut results = four();
        for sample in &mut results.cells[0][4].samples {
            sample.received_per_s = sample.received_per_s.map(|rate| rate / 3.0);
        }
        let ranking = results.ranking_by(0, false, &RECEIVED);
        assert!(ranking.is_too_noisy() && ranking.places.len() == 4);
        assert_eq!((ranking.winner(), ranking.rank(2)), (None, None));
    }

    #[test]
    fn rows_at_rates_of_their_own_are_not_compared() {
        let mut results = four();
        results.loads[0].rate = crate::udp::plan::Rate::OfMaximum(0.5);
        let ranking = results.ranking_by(0, false, &RECEIVED);
        assert!(ranking.places.is_empty() && ranking.noise_floor.is_none());
    }

    #[test]
    fn a_paced_row_that_loses_or_whose_pace_was_not_kept_has_no_place() {
        let mut results = four();
        results.loads[0].rate = crate::udp::plan::Rate::PerSecond(50_000);
        for sample in results.cells[0].iter_mut().flat_map(|cell| &mut cell.samples) {
            sample.ledger.received += sample.ledger.dropped();
            sample.ledger.dropped_socket = Some(0);
            sample.pace_kept = Some(1.0);
        }
        assert_eq!(results.unranked(0, 1), None);
        results.cells[0][1].samples[0].ledger.received -= 10_000;
        results.cells[0][1].samples[0].ledger.dropped_socket = Some(10_000);
        assert!(results.unranked(0, 1).unwrap().contains("was lost"));
        assert_eq!(results.invalid(0, 1), None, "what was lost is accounted for");
        results.cells[0][2].samples.iter_mut().for_each(|s| s.pace_kept = Some(0.9));
        assert!(results.unranked(0, 2).unwrap().contains("kept its pace in 90 %"));
        let ranking = results.ranking_by(0, false, &RECEIVED);
        assert_eq!((ranking.place(1), ranking.place(2)), (None, None));
        assert!(ranking.place(3).is_some());
    }

    #[test]
    fn less_can_be_better() {
        let ranking = four().ranking_by(0, false, &Metric { better: Better::Lower, ..RECEIVED });
        assert_eq!(ranking.winner().unwrap().row, 0);
    }

    #[test]
    fn a_row_that_failed_its_check_has_no_place_and_is_no_measure() {
        let mut results = four();
        results.conformance[0] = Conformance::Failed("lost datagrams".into());
        let ranking = results.ranking_by(0, false, &RECEIVED);
        assert_eq!(ranking.rank(0), None);
        assert!(ranking.places.iter().all(|place| place.to_traditional.is_none()));
    }

    #[test]
    fn without_a_second_name_nothing_is_claimed() {
        let mut results = four();
        results.rows[4].role = Role::Plain;
        let ranking = results.ranking_by(0, false, &RECEIVED);
        assert_eq!(ranking.noise_floor, None);
        assert!(ranking.places[1..].iter().all(Place::is_unclear));
        assert_eq!(ranking.rank(1), Some(2));
    }

    #[test]
    fn rows_with_receive_offload_are_ranked_among_themselves() {
        let mut results = four();
        results.loads[0].takes.offloaded = true;
        for row in [1, 2, 4] {
            results.rows[row].receive_offload = true;
        }
        assert_eq!(results.groups(0), [false, true]);
        let plain = results.main_ranking(0);
        let order: Vec<usize> = plain.places.iter().map(|place| place.row).collect();
        assert_eq!((order, plain.noise_floor), (vec![3, 0], None), "its own noise is not known");
        let offloaded = results.ranking(0, true);
        assert_eq!(offloaded.winner().unwrap().row, 2);
        let ratio = offloaded.winner().unwrap().to_traditional.unwrap().ratio().unwrap();
        assert!((ratio.median - 2.0).abs() < 1e-9, "the measure is that of all");
    }

    #[test]
    fn a_row_that_takes_no_part_has_no_place() {
        let mut results = four();
        results.rows[1].only_swept = true;
        let ranking = results.main_ranking(0);
        assert!(ranking.place(1).is_none() && ranking.places.len() == 3);
    }

    #[test]
    fn nothing_measured_ranks_nothing() {
        let results = Results::new(
            vec![],
            Machine::default(),
            vec![Row::parse("epoll").unwrap()],
            vec![Load::saturation(64)],
        );
        let ranking = results.ranking_by(0, false, &RECEIVED);
        assert_eq!((ranking.winner(), ranking.noise_floor), (None, None));
    }
}
