//! Which runs are made again, and which of several attempts stands.
//!
//! A stall of the machine must not cost a row its rank, and whoever is asked again until the answer pleases is
//! favoured. So the rule never looks at the figure that rows are ranked by, only at the cause:
//!
//! - What no design can cause, a machine that became another or a generator that did not keep its pace, is no
//!   measurement: the run is made again, up to [`MOST_ATTEMPTS`] times, until that has been in vain in
//!   [`ROUNDS_IN_VAIN`] rounds of a row.
//! - What the row itself may have caused, loss below saturation, connections that broke, an account that does
//!   not balance, is doubted once. If it recurs it is the row's own, the first attempt stands, and no run of
//!   that row under that load is doubted any more. Nor is it where it happened in more rounds than a machine's
//!   stalls explain: then the first attempts stand in all of them.
//! - Wrong data are never doubted.
//!
//! All attempts are kept, and marked.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::cell::{Cell, Measured};
use crate::report::sentences::list;

/// Most attempts at one run of a row in a round.
pub const MOST_ATTEMPTS: u32 = 3;
/// Rounds in which all attempts may be disturbed before a row's runs are made again no more.
pub const ROUNDS_IN_VAIN: usize = 2;
/// Of so many rounds one may have been disturbed by what may be the row's own, at least one in all.
const ROUNDS_FOR_A_DOUBT: u32 = 4;

/// What disturbed a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Disturbance {
    /// The machine became another (core to core) in the middle.
    MachineChanged,
    /// The generator did not keep its pace.
    PaceNotKept,
    /// Datagrams were lost though fewer were offered than the row takes.
    Lost,
    /// The account of the datagrams does not balance.
    Unbalanced,
    /// Connections were not made or broke, or messages were not answered.
    Incomplete,
}

impl Disturbance {
    /// Whether the row itself may have caused it.
    fn may_be_its_own(self) -> bool {
        matches!(self, Self::Lost | Self::Unbalanced | Self::Incomplete)
    }

    /// In words.
    fn said(self) -> &'static str {
        match self {
            Self::MachineChanged => "the machine changed (core to core)",
            Self::PaceNotKept => "the generator did not keep its pace",
            Self::Lost => "datagrams were lost below saturation",
            Self::Unbalanced => "the ledger did not balance",
            Self::Incomplete => "connections or answers were missing",
        }
    }
}

/// The attempts of each round, in the order of time, by their places among the samples.
fn rounds_of<S: Measured>(cell: &Cell<S>) -> BTreeMap<u32, Vec<usize>> {
    let mut rounds: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (place, sample) in cell.samples.iter().enumerate() {
        rounds.entry(sample.when().block).or_default().push(place);
    }
    rounds
}

/// Judges the attempts of a row after one in this round: numbers it, marks which of them stand, and gives whether
/// another is to be made.
pub fn settle<S: Measured>(cell: &mut Cell<S>, round: u32) -> bool {
    let rounds = rounds_of(cell);
    let Some(attempts) = rounds.get(&round) else { return false };
    for (number, place) in (1..).zip(attempts) {
        cell.samples[*place].when_mut().attempt = number;
    }
    let doubted = |place: &&usize| {
        cell.samples[**place].when().disturbed.is_some_and(Disturbance::may_be_its_own)
    };
    let doubts = |places: &Vec<usize>| places.iter().filter(doubted).count();
    let doubted_rounds = rounds.values().filter(|places| doubts(places) > 0).count() as u32;
    let too_many = doubted_rounds > (rounds.len() as u32 / ROUNDS_FOR_A_DOUBT).max(1);
    let recurred = rounds.values().any(|places| doubts(places) > 1);
    let disturbed = |place: &usize| cell.samples[*place].when().disturbed;
    let in_vain = |places: &&Vec<usize>| {
        places.len() as u32 >= MOST_ATTEMPTS && places.iter().all(|p| disturbed(p).is_some())
    };
    let last = attempts.last().and_then(disturbed);
    let again = match last {
        _ if attempts.len() as u32 >= MOST_ATTEMPTS => false,
        None => false,
        Some(cause) if cause.may_be_its_own() => !too_many && !recurred,
        Some(_) => rounds.values().filter(in_vain).count() < ROUNDS_IN_VAIN,
    };
    let standing: Vec<(usize, usize)> = rounds
        .values()
        .flat_map(|places| {
            let first_doubt = places.iter().find(doubted).copied();
            let clean = places.iter().rev().find(|place| disturbed(place).is_none()).copied();
            let its_own = first_doubt.filter(|_| too_many || doubts(places) > 1);
            let stands = its_own.or(clean).or(first_doubt).or(places.last().copied());
            places.iter().map(move |place| (*place, stands.unwrap_or(*place)))
        })
        .collect();
    for (place, stands) in standing {
        let when = cell.samples[place].when_mut();
        let was_replaced = std::mem::replace(&mut when.replaced, place != stands);
        if when.replaced || was_replaced {
            when.counted = !when.replaced;
        }
    }
    again
}

/// What was disturbed and made again under a load, in words; empty if nothing was.
pub(crate) fn said<S: Measured>(cells: &[Cell<S>]) -> String {
    let (mut again, mut standing) = (BTreeMap::new(), BTreeMap::new());
    for cell in cells {
        for places in rounds_of(cell).values() {
            for (place, next) in places.iter().zip(places.iter().skip(1).map(Some).chain([None])) {
                let when = cell.samples[*place].when();
                let Some(cause) = when.disturbed else { continue };
                if next.is_some() {
                    *again.entry(cause).or_insert(0) += 1;
                }
                if !when.replaced {
                    *standing.entry(cause).or_insert(0) += 1;
                }
            }
        }
    }
    let causes = |counts: &BTreeMap<Disturbance, u32>| {
        let each: Vec<String> =
            counts.iter().map(|(cause, count)| format!("{count}: {}", cause.said())).collect();
        (counts.values().sum::<u32>(), list(&each))
    };
    let mut text = String::new();
    if !again.is_empty() {
        let (count, why) = causes(&again);
        text.push_str(&format!(" {count} disturbed runs were made again ({why})."));
    }
    if !standing.is_empty() {
        let (count, why) = causes(&standing);
        text.push_str(&format!(" {count} runs stand as they were disturbed ({why})."));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::When;
    use crate::sample::tests::{flood, server};
    use crate::sample::{Circumstances, Sample};
    use Disturbance::{Lost, MachineChanged, PaceNotKept};

    const ROUNDS: u32 = 9;

    /// A bench that disturbs the attempts of each round so; gives the cell after so many rounds.
    fn made(rounds: u32, disturbs: impl Fn(u32, u32) -> Option<Disturbance>) -> Cell {
        let mut cell = Cell::default();
        for round in 0..rounds {
            for attempt in 1.. {
                let at = Circumstances { when: When::in_block(round), ..Circumstances::default() };
                let mut sample = Sample::of(&at, &server(), &flood());
                sample.when.disturbed = disturbs(round, attempt);
                cell.samples.push(sample);
                if !settle(&mut cell, round) {
                    break;
                }
            }
        }
        cell
    }

    /// Round, attempt, and what disturbed it, of those that stand.
    fn standing(cell: &Cell) -> Vec<(u32, u32, Option<Disturbance>)> {
        let stands = cell.samples.iter().filter(|sample| !sample.when.replaced);
        stands.map(|s| (s.when.block, s.when.attempt, s.when.disturbed)).collect()
    }

    #[test]
    fn what_is_disturbed_once_is_made_again_and_both_are_kept() {
        for cause in [MachineChanged, PaceNotKept, Lost] {
            let cell = made(3, |round, attempt| (round == 1 && attempt == 1).then_some(cause));
            assert_eq!(cell.samples.len(), 4);
            assert_eq!(standing(&cell), [(0, 1, None), (1, 2, None), (2, 1, None)]);
            let first = &cell.samples[1].when;
            assert_eq!(
                (first.disturbed, first.replaced, first.counted),
                (Some(cause), true, false)
            );
            assert!(said(&[cell]).contains("1 disturbed runs were made again (1: "));
        }
    }

    #[test]
    fn what_no_design_causes_is_made_again_until_that_was_in_vain_twice() {
        let cell = made(ROUNDS, |_, _| Some(PaceNotKept));
        assert_eq!(cell.samples.len() as u32, 2 * MOST_ATTEMPTS + (ROUNDS - 2));
        assert_eq!(standing(&cell).len() as u32, ROUNDS, "each round has one that stands");
        let every_second = made(ROUNDS, |_, attempt| (attempt == 1).then_some(MachineChanged));
        assert_eq!(every_second.samples.len() as u32, 2 * ROUNDS);
        assert!(
            standing(&every_second)
                .iter()
                .all(|(_, attempt, cause)| { (*attempt, *cause) == (2, None) })
        );
    }

    #[test]
    fn what_recurs_is_the_rows_own_and_the_first_attempt_stands() {
        let cell = made(ROUNDS, |_, _| Some(Lost));
        assert_eq!(cell.samples.len() as u32, ROUNDS + 1, "doubted once");
        assert!(standing(&cell).iter().all(|(_, attempt, _)| *attempt == 1));
        assert!(
            said(&[cell]).contains("9 runs stand as they were disturbed (9: datagrams were lost")
        );
    }

    #[test]
    fn what_happens_in_too_many_rounds_is_no_stall_whatever_the_repeats_say() {
        let every_second = |_: u32, attempt: u32| (attempt == 1).then_some(Lost);
        let two = made(ROUNDS, |round, attempt| (round % 5 == 3 && attempt == 1).then_some(Lost));
        assert!(
            standing(&two).iter().all(|(.., cause)| cause.is_none()),
            "two of nine may be stalls"
        );
        let cell = made(ROUNDS, every_second);
        assert!(
            standing(&cell).iter().all(|(_, attempt, cause)| (*attempt, *cause) == (1, Some(Lost)))
        );
        assert_eq!(cell.samples.len() as u32, ROUNDS + 1, "and none is doubted from then on");
        assert!(cell.samples.iter().all(|sample| sample.when.counted != sample.when.replaced));
    }
}
