//! Who wins under a load, who is tied, and how far from the traditional design each lies.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use crate::experiment::cell::{Cell, Measured, Metric, Status};
use crate::stats::compare::{Difference, Pairs, noise_floor, pair, weigh};
use crate::stats::{CONFIDENCE, Estimate, median, together};

/// A noise floor above which nothing is compared, as a share.
pub const TOO_NOISY: f64 = 1.0;

/// One ranked row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Place {
    /// Index of the row.
    pub row: usize,
    /// Its median.
    pub median: f64,
    /// Its rank, from 1; rows that are tied with the first of theirs share it. `None` where that is undecided.
    pub rank: Option<usize>,
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
        [] => "they were measured in no round in common".into(),
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

/// The ranked rows of one load by one metric, best first, those of one rank together. The second name of a row has no
/// place of its own.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Ranking {
    /// Best first.
    pub places: Vec<Place>,
    /// Differences below this share are noise; `None` if it is not known.
    pub noise_floor: Option<f64>,
    /// How many comparisons of two rows have intervals that hold together.
    pub comparisons: usize,
    /// Pairs left out because the machine changed between their runs.
    pub unlike_pairs: usize,
    /// The ratios of all pairs of rows.
    ratios: BTreeMap<(usize, usize), Option<Estimate>>,
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

    /// Ranks rows of whatever kind: by the rows' medians, and by the intervals of all their pairs together.
    pub fn among<S: Measured>(contest: &Contest<S>) -> Self {
        let Contest { cells, metric, seed, .. } = *contest;
        let noise_floor = contest.again.as_ref().and_then(|all| noise_floor(all, CONFIDENCE, seed));
        let mut unlike_pairs = contest.again.as_ref().map_or(0, |pairs| pairs.unlike);
        let known = contest.rows.iter().copied();
        let mut order: Vec<(usize, f64)> = known
            .filter_map(|row| Some((row, cells[row].estimate(metric, seed)?.median)))
            .collect();
        order.sort_by(|(_, a), (_, b)| metric.better.first(*a, *b));
        let Some((winner, _)) = order.first().copied() else {
            return Self { noise_floor, unlike_pairs, ..Self::default() };
        };
        let rows: Vec<usize> = order.iter().map(|(row, _)| *row).collect();
        let compared = Compared::of(contest, &rows);
        let mut verdict = |first: usize, second: usize| {
            let (pairs, ratio) = compared.get(first, second)?;
            unlike_pairs += pairs.unlike;
            Some(weigh(ratio, noise_floor))
        };
        let halves = Halves::of(contest, &rows);
        let mut places: Vec<Place> = vec![];
        for (row, median) in order {
            let winner_to_it = verdict(winner, row).map(|verdict| halves.confirm(verdict, row));
            let to_traditional = contest.traditional.and_then(|other| verdict(row, other));
            places.push(Place { row, median, rank: None, winner_to_it, to_traditional });
        }
        let between = |first: usize, second: usize| match compared.get(first, second) {
            Some((_, ratio)) => weigh(ratio, noise_floor),
            None => Difference::TooFew(None),
        };
        let places = ranked(places, between);
        let comparisons = compared.judged();
        let ratios = compared.of.into_iter().map(|(rows, (_, ratio))| (rows, ratio)).collect();
        Self { places, noise_floor, comparisons, unlike_pairs, ratios }
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

    /// A row's rank, from 1: rows tied with the winner share the first, and of the rows behind those that are tied
    /// with the best of them the next, and so on. `None` where that is undecided.
    pub fn rank(&self, row: usize) -> Option<usize> {
        self.winner()?;
        self.place(row)?.rank
    }

    /// How one ranked row stands to another, by the interval that holds together with all others. What the halves of the
    /// rounds say is not asked.
    pub fn between(&self, first: usize, second: usize) -> Option<Difference> {
        let ratio = match self.ratios.get(&(first, second)) {
            Some(ratio) => *ratio,
            None => self.ratios.get(&(second, first))?.map(Estimate::inverse),
        };
        Some(weigh(ratio, self.noise_floor))
    }

    /// The ranked place of a row.
    pub fn place(&self, row: usize) -> Option<&Place> {
        self.places.iter().find(|place| place.row == row)
    }
}

/// The comparisons of all pairs of rows, whose intervals hold together.
struct Compared {
    of: BTreeMap<(usize, usize), (Pairs, Option<Estimate>)>,
}

impl Compared {
    /// Compares each of these rows with those behind it, and all with the one that is the measure.
    fn of<S: Measured>(contest: &Contest<S>, rows: &[usize]) -> Self {
        let Contest { cells, metric, traditional, seed, .. } = *contest;
        let outside = traditional.filter(|row| !rows.contains(row));
        let rows: Vec<usize> = rows.iter().copied().chain(outside).collect();
        let readings: Vec<_> = rows.iter().map(|row| cells[*row].readings(metric)).collect();
        let both = (0..rows.len()).flat_map(|a| (a + 1..rows.len()).map(move |b| (a, b)));
        let (names, pairs): (Vec<_>, Vec<_>) =
            both.map(|(a, b)| ((rows[a], rows[b]), pair(&readings[a], &readings[b]))).unzip();
        let ratios = together::paired_ratios(&pairs, CONFIDENCE, seed);
        Self { of: names.into_iter().zip(pairs.into_iter().zip(ratios)).collect() }
    }

    /// How the first row stands to the second; `None` of one to itself.
    fn get(&self, first: usize, second: usize) -> Option<(&Pairs, Option<Estimate>)> {
        match self.of.get(&(first, second)) {
            Some((pairs, ratio)) => Some((pairs, *ratio)),
            None => self
                .of
                .get(&(second, first))
                .map(|(pairs, ratio)| (pairs, ratio.map(Estimate::inverse))),
        }
    }

    /// How many have an interval.
    fn judged(&self) -> usize {
        self.of.values().filter(|(_, ratio)| ratio.is_some_and(|of| of.interval.is_some())).count()
    }
}

/// The best row of each half of the rounds, and how the other half sees it.
///
/// That a row was chosen since it looks best speaks for it in the rounds that it was chosen by, and not in the others.
struct Halves<'a, S> {
    contest: &'a Contest<'a, S>,
    best: [Option<usize>; 2],
}

impl<'a, S: Measured> Halves<'a, S> {
    fn of(contest: &'a Contest<'a, S>, rows: &[usize]) -> Self {
        let best = [0, 1].map(|half| {
            let figure = |row: &usize| {
                let of_half = contest.cells[*row].counted().filter(|s| s.when().block % 2 == half);
                let values: Vec<f64> = of_half.filter_map(|s| (contest.metric.of)(s)).collect();
                Some((*row, median(&values)?))
            };
            let known = rows.iter().filter_map(figure);
            known.min_by(|(_, a), (_, b)| contest.metric.better.first(*a, *b)).map(|(row, _)| row)
        });
        Self { contest, best }
    }

    /// A difference to this row is real only if the best row of each half is ahead of it in the other half, too.
    fn confirm(&self, verdict: Difference, row: usize) -> Difference {
        let Difference::Real(ratio) = verdict else { return verdict };
        match [0, 1].map(|half| self.is_ahead(half, row)) {
            [Some(true), Some(true)] => verdict,
            [None, _] | [_, None] => Difference::TooFew(Some(ratio)),
            _ => Difference::Tie(ratio),
        }
    }

    /// Whether the best of the other half is ahead of this row in this half. `None` where no pair of it says so.
    fn is_ahead(&self, half: u32, row: usize) -> Option<bool> {
        let Contest { cells, metric, .. } = self.contest;
        let best = self.best[1 - half as usize]?;
        if best == row {
            return Some(false);
        }
        let pairs = pair(&cells[best].readings(metric), &cells[row].readings(metric)).of_half(half);
        let ratios: Vec<f64> = pairs.pairs.iter().map(|(a, b)| a / b).collect();
        Some(metric.better.first(median(&ratios)?, 1.0) == Ordering::Less)
    }
}

/// Gives places their ranks, and puts those of one rank together: the first and all that are tied with it; then the
/// best of those behind and all that are tied with that; and so on. What is undecided stands where its figure does.
fn ranked(places: Vec<Place>, verdict: impl Fn(usize, usize) -> Difference) -> Vec<Place> {
    let is_decided = places.iter().skip(1).any(|place| !place.is_unclear());
    // By place: the first of its rank, unless that is undecided.
    let mut firsts: Vec<Option<usize>> = vec![None; places.len()];
    let mut left: Vec<usize> = (0..places.len()).collect();
    while let Some(first) = left.first().copied() {
        firsts[first] = (first > 0 || is_decided || places.len() == 1).then_some(first);
        left.retain(|other| {
            let stands = match places[*other].winner_to_it {
                Some(to_winner) if first == 0 || matches!(to_winner, Difference::TooFew(_)) => {
                    to_winner
                }
                _ => verdict(places[first].row, places[*other].row),
            };
            if matches!(stands, Difference::Tie(_)) {
                firsts[*other] = Some(first);
            }
            *other != first && matches!(stands, Difference::Real(_))
        });
    }
    let mut order: Vec<usize> = (0..places.len()).collect();
    order.sort_by_key(|place| firsts[*place].unwrap_or(*place));
    let rank = |place: usize| {
        let first = firsts[place]?;
        order.iter().position(|other| *other == first).map(|position| position + 1)
    };
    order.iter().map(|place| Place { rank: rank(*place), ..places[*place] }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::cell::When;
    use crate::experiment::cell::{Better, Conformance};
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
    fn rows_behind_share_a_rank_where_they_are_tied_and_stand_together() {
        let results = results(&[
            ("port", Role::Plain, 1.0),
            ("rio-event", Role::Plain, 1.995),
            ("rio-hybrid", Role::Plain, 2.0),
            ("epoll", Role::Plain, 1.2),
            ("rio-hybrid", Role::Again(2), 2.0),
            ("blocking", Role::Plain, 1.201),
        ]);
        let ranking = results.ranking_by(0, false, &RECEIVED);
        let ranks: Vec<(usize, Option<usize>)> =
            ranking.places.iter().map(|place| (place.row, place.rank)).collect();
        let wanted = [(2, 1), (1, 1), (5, 3), (3, 3), (0, 5)];
        assert_eq!(ranks, wanted.map(|(row, rank)| (row, Some(rank))));
        assert_eq!(ranking.comparisons, 10, "each of five rows with each other");
    }

    #[test]
    fn a_row_with_too_few_rounds_has_no_rank_and_takes_none_from_others() {
        let mut results = four();
        results.cells[0][3].samples.truncate(3);
        let ranking = results.ranking_by(0, false, &RECEIVED);
        let order: Vec<usize> = ranking.places.iter().map(|place| place.row).collect();
        assert_eq!(order, [2, 1, 3, 0], "it stands where its figure does");
        let ranks = [2, 1, 3, 0].map(|row| ranking.rank(row));
        assert_eq!(ranks, [Some(1), Some(1), None, Some(4)]);
        assert_eq!(ranking.comparisons, 3);
    }

    #[test]
    fn a_difference_that_one_half_of_the_rounds_does_not_confirm_is_a_tie() {
        let mut results = four();
        let verdict = |results: &Results| {
            results.ranking_by(0, false, &RECEIVED).place(3).unwrap().winner_to_it.unwrap()
        };
        assert!(matches!(verdict(&results), Difference::Real(_)));
        // In the odd rounds it is far ahead, as chance may have it; so it is the best that these choose.
        for sample in results.cells[0][3].samples.iter_mut().filter(|s| s.when.block % 2 == 1) {
            sample.received_per_s = sample.received_per_s.map(|rate| rate * 3.0);
        }
        assert!(matches!(verdict(&results), Difference::Tie(_)));
        // Where one half has no round of it, that is open.
        results.cells[0][3].samples.retain(|sample| sample.when.block % 2 == 0);
        assert!(matches!(verdict(&results), Difference::TooFew(_)));
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
            "they were measured in no round in common"
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
        assert_eq!((ranking.rank(0), ranking.rank(1), ranking.rank(2)), (None, None, None));
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
