//! Which runs are made again, and which of several attempts stands.
//!
//! A stall of the machine must not cost a row its rank, and whoever is asked again until the answer pleases is
//! favoured. So the rule never looks at the figure that rows are ranked by, only at the cause:
//!
//! - What mostly is no design's doing, a machine that became another or a generator that did not keep its pace, is
//!   no measurement: the run is made again, up to [`MOST_ATTEMPTS`] times, until that has been in vain in
//!   [`ROUNDS_IN_VAIN`] rounds of a row.
//! - A design can make the generator late all the same: it may share its core, or have to be woken by it. So where a
//!   row's first attempts were late in more rounds than a machine's stalls explain, and those of most other rows
//!   under that load were not, they stand, and are made again no more.
//! - What the row itself may have caused, loss below saturation, connections that broke, an account that does
//!   not balance, is doubted once. If it recurs it is the row's own, the first attempt stands, and no run of
//!   that row under that load is doubted any more. Nor is it where it happens in more rounds than a machine's
//!   stalls explain: then the first attempts stand in all of them.
//! - Whether there is another attempt is decided by the rounds that are planned, so that it does not matter when the
//!   stalls came; what stands is decided by the rounds that were made.
//! - Wrong data, and what a peer says that is contradicted, are never doubted. Such a run makes the row invalid
//!   even where another attempt stands in its place.
//!
//! All attempts are kept, and marked.

use std::collections::BTreeMap;

use crate::experiment::cell::{Cell, Disturbance, Measured};
use crate::report::words::list;

/// Most attempts at one run of a row in a round.
pub const MOST_ATTEMPTS: u32 = 3;
/// Rounds in which all attempts may be disturbed before a row's runs are made again no more.
pub const ROUNDS_IN_VAIN: usize = 2;
/// Of so many rounds one may have been disturbed by what may be the row's own, at least one in all.
const ROUNDS_FOR_A_DOUBT: u32 = 4;

/// The attempts of each round, in the order of time, by their places among the samples.
fn rounds_of<S: Measured>(cell: &Cell<S>) -> BTreeMap<u32, Vec<usize>> {
    let mut rounds: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (place, sample) in cell.samples.iter().enumerate() {
        rounds.entry(sample.when().block).or_default().push(place);
    }
    rounds
}

/// Whether so many rounds of all these are more than a machine's stalls explain.
fn too_many(disturbed: u32, of: u32) -> bool {
    disturbed > (of / ROUNDS_FOR_A_DOUBT).max(1)
}

/// In how many rounds the first attempt of a row was late, and of how many.
fn late_rounds<S: Measured>(cell: &Cell<S>) -> (u32, u32) {
    let first = |sample: &&S| sample.when().attempt == 1;
    let late = |sample: &&S| sample.when().disturbed == Some(Disturbance::PaceNotKept);
    let firsts = || cell.samples.iter().filter(first);
    (firsts().filter(late).count() as u32, firsts().count() as u32)
}

/// Whether the generator was late in too many rounds of this row, and not in too many of most other rows.
fn is_late_by_itself(late: &[(u32, u32)], row: usize, planned_rounds: Option<u32>) -> bool {
    let too_late = |(rounds, of): (u32, u32)| too_many(rounds, of);
    let others = || (0..late.len()).filter(|other| *other != row && late[*other].1 > 0);
    let late_too = others().filter(|other| too_late(late[*other])).count();
    let (rounds, of) = late[row];
    too_late((rounds, planned_rounds.unwrap_or(of)))
        && others().count() > 0
        && late_too * 2 <= others().count()
}

/// Judges the attempts of the rows of a load after one of this row in this round: numbers them, marks which of them
/// stand, and gives whether another is to be made.
pub fn settle<S: Measured>(
    cells: &mut [Cell<S>],
    row: usize,
    round: u32,
    planned_rounds: u32,
) -> bool {
    if let Some(attempts) = rounds_of(&cells[row]).get(&round) {
        for (number, place) in (1..).zip(attempts) {
            cells[row].samples[*place].when_mut().attempt = number;
        }
    }
    let late: Vec<(u32, u32)> = cells.iter().map(late_rounds).collect();
    // What the others did since may have changed what stands of a row.
    for (index, cell) in cells.iter_mut().enumerate() {
        mark_standing(cell, is_late_by_itself(&late, index, None));
    }
    is_made_again(&cells[row], round, planned_rounds, || {
        is_late_by_itself(&late, row, Some(planned_rounds))
    })
}

/// Whether another attempt is made at the run of a row in this round.
fn is_made_again<S: Measured>(
    cell: &Cell<S>,
    round: u32,
    planned_rounds: u32,
    is_late_by_itself: impl Fn() -> bool,
) -> bool {
    let rounds = rounds_of(cell);
    let Some(attempts) = rounds.get(&round) else { return false };
    let disturbed = |place: &usize| cell.samples[*place].when().disturbed;
    let in_vain = |places: &&Vec<usize>| {
        places.len() as u32 >= MOST_ATTEMPTS && places.iter().all(|p| disturbed(p).is_some())
    };
    match attempts.last().and_then(disturbed) {
        _ if attempts.len() as u32 >= MOST_ATTEMPTS => false,
        None => false,
        Some(cause) if cause.may_be_its_own() => {
            let doubts = doubts_of(cell, &rounds);
            let doubted_rounds = doubts.iter().filter(|count| **count > 0).count() as u32;
            let recurred = doubts.iter().any(|count| *count > 1);
            !too_many(doubted_rounds, planned_rounds) && !recurred
        }
        Some(Disturbance::PaceNotKept) if is_late_by_itself() => false,
        Some(_) => rounds.values().filter(in_vain).count() < ROUNDS_IN_VAIN,
    }
}

/// How many attempts of each round were disturbed by what may be the row's own.
fn doubts_of<S: Measured>(cell: &Cell<S>, rounds: &BTreeMap<u32, Vec<usize>>) -> Vec<usize> {
    let doubted = |place: &&usize| is_doubted(&cell.samples[**place]);
    rounds.values().map(|places| places.iter().filter(doubted).count()).collect()
}

/// Whether a run was disturbed by what may be the row's own.
fn is_doubted<S: Measured>(sample: &S) -> bool {
    sample.when().disturbed.is_some_and(Disturbance::may_be_its_own)
}

/// Marks which attempt of each round of a row stands.
fn mark_standing<S: Measured>(cell: &mut Cell<S>, is_late_by_itself: bool) {
    let rounds = rounds_of(cell);
    let doubts = doubts_of(cell, &rounds);
    let doubted_rounds = doubts.iter().filter(|count| **count > 0).count() as u32;
    let too_many = too_many(doubted_rounds, rounds.len() as u32);
    let disturbed = |place: &usize| cell.samples[*place].when().disturbed;
    let standing: Vec<(usize, usize)> = rounds
        .values()
        .zip(doubts)
        .flat_map(|(places, doubts)| {
            let is_late = |place: &usize| disturbed(place) == Some(Disturbance::PaceNotKept);
            let late = places.first().copied().filter(|p| is_late_by_itself && is_late(p));
            let first_doubt = places.iter().find(|p| is_doubted(&cell.samples[**p])).copied();
            let clean = places.iter().rev().find(|place| disturbed(place).is_none()).copied();
            let its_own = first_doubt.filter(|_| too_many || doubts > 1);
            let stands = late.or(its_own).or(clean).or(first_doubt).or(places.last().copied());
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
        let were = if count == 1 { "run was" } else { "runs were" };
        text.push_str(&format!(" {count} disturbed {were} repeated ({why})."));
    }
    if !standing.is_empty() {
        let (count, why) = causes(&standing);
        let what = match count {
            1 => "run counts although it was disturbed",
            _ => "runs count although they were disturbed",
        };
        text.push_str(&format!(" {count} {what} ({why})."));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::cell::When;
    use crate::udp::sample::tests::{flood, server};
    use crate::udp::sample::{Circumstances, Sample};
    use Disturbance::{Lost, MachineChanged, PaceNotKept};

    const ROUNDS: u32 = 9;

    /// What disturbs a row's attempt in a round, if anything does.
    type Disturbs = fn(u32, u32) -> Option<Disturbance>;

    /// Benches that disturb the attempts of each row so; gives the cells after so many of the planned rounds.
    fn rows_made(rounds: u32, planned: u32, rows: &[Disturbs]) -> Vec<Cell<Sample>> {
        let mut cells = vec![Cell::default(); rows.len()];
        for round in 0..rounds {
            for (row, disturbs) in rows.iter().enumerate() {
                for attempt in 1.. {
                    let at =
                        Circumstances { when: When::in_block(round), ..Circumstances::default() };
                    let mut sample = Sample::of(&at, &server(), &flood());
                    sample.when.disturbed = disturbs(round, attempt);
                    cells[row].samples.push(sample);
                    if !settle(&mut cells, row, round, planned) {
                        break;
                    }
                }
            }
        }
        cells
    }

    /// One row, in as many rounds as are planned.
    fn made(rounds: u32, disturbs: Disturbs) -> Cell<Sample> {
        rows_made(rounds, rounds, &[disturbs]).remove(0)
    }

    /// Round, attempt, and what disturbed it, of those that stand.
    fn standing(cell: &Cell<Sample>) -> Vec<(u32, u32, Option<Disturbance>)> {
        let stands = cell.samples.iter().filter(|sample| !sample.when.replaced);
        stands.map(|s| (s.when.block, s.when.attempt, s.when.disturbed)).collect()
    }

    #[test]
    fn what_is_disturbed_once_is_made_again_and_both_are_kept() {
        let once: [(Disturbance, Disturbs); 3] = [
            (MachineChanged, |round, attempt| {
                (round == 1 && attempt == 1).then_some(MachineChanged)
            }),
            (PaceNotKept, |round, attempt| (round == 1 && attempt == 1).then_some(PaceNotKept)),
            (Lost, |round, attempt| (round == 1 && attempt == 1).then_some(Lost)),
        ];
        for (cause, disturbs) in once {
            let cell = made(3, disturbs);
            assert_eq!(cell.samples.len(), 4);
            assert_eq!(standing(&cell), [(0, 1, None), (1, 2, None), (2, 1, None)]);
            let first = &cell.samples[1].when;
            assert_eq!(
                (first.disturbed, first.replaced, first.counted),
                (Some(cause), true, false)
            );
            assert!(said(&[cell]).contains(" 1 disturbed run was repeated (1: "));
        }
    }

    #[test]
    fn what_mostly_is_no_designs_doing_is_made_again_until_that_was_in_vain_twice() {
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
            said(std::slice::from_ref(&cell))
                .contains("9 runs count although they were disturbed (9: datagrams were lost")
        );
        let once = made(1, |_, _| Some(Lost));
        assert!(said(&[once]).contains(" 1 run counts although it was disturbed (1: "));
    }

    #[test]
    fn what_happens_in_too_many_rounds_is_no_stall_whatever_the_repeats_say() {
        let every_second: Disturbs = |_, attempt| (attempt == 1).then_some(Lost);
        let two = made(ROUNDS, |round, attempt| (round % 5 == 3 && attempt == 1).then_some(Lost));
        assert!(
            standing(&two).iter().all(|(.., cause)| cause.is_none()),
            "two of nine may be stalls"
        );
        let cell = made(ROUNDS, every_second);
        assert!(
            standing(&cell).iter().all(|(_, attempt, cause)| (*attempt, *cause) == (1, Some(Lost)))
        );
        assert_eq!(cell.samples.len() as u32, ROUNDS + 2, "and none is doubted from the third on");
        assert!(cell.samples.iter().all(|sample| sample.when.counted != sample.when.replaced));
    }

    #[test]
    fn when_the_stalls_came_does_not_matter() {
        let twice: [Disturbs; 3] = [
            |round, attempt| (round < 2 && attempt == 1).then_some(Lost),
            |round, attempt| ([0, 8].contains(&round) && attempt == 1).then_some(Lost),
            |round, attempt| ([7, 8].contains(&round) && attempt == 1).then_some(Lost),
        ];
        for disturbs in twice {
            let cell = made(ROUNDS, disturbs);
            assert_eq!(cell.samples.len() as u32, ROUNDS + 2, "both are made again");
            assert!(standing(&cell).iter().all(|(.., cause)| cause.is_none()));
        }
        // Ended early, two were too many.
        let cell = rows_made(6, ROUNDS, &twice[..1]).remove(0);
        assert_eq!(standing(&cell).iter().filter(|(.., cause)| cause.is_some()).count(), 2);
    }

    #[test]
    fn a_row_that_alone_makes_the_generator_late_keeps_its_first_attempts() {
        let calm: Disturbs = |_, _| None;
        let late: Disturbs = |_, attempt| (attempt == 1).then_some(PaceNotKept);
        let cells = rows_made(ROUNDS, ROUNDS, &[calm, late, late, calm, calm]);
        for cell in &cells[1..3] {
            assert!(
                standing(cell)
                    .iter()
                    .all(|(_, attempt, cause)| (*attempt, *cause) == (1, Some(PaceNotKept)))
            );
            assert_eq!(cell.samples.len() as u32, ROUNDS + 2, "no more are made again");
            assert!(cell.samples.iter().all(|sample| sample.when.counted != sample.when.replaced));
        }
        // Where the others are late, too, or it is in few rounds, it is the machine.
        let few: Disturbs = |round, attempt| (round > 6 && attempt == 1).then_some(PaceNotKept);
        for rows in [[late, late, late, calm], [few, calm, calm, calm]] {
            let cells = rows_made(ROUNDS, ROUNDS, &rows);
            assert!(cells.iter().all(|cell| standing(cell).iter().all(|(.., c)| c.is_none())));
        }
    }
}
