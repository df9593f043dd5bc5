//! The search for the most connections that a design can hold: their number is doubled until they are not all made,
//! served and kept, and then grows in steps from the last number that was.

use super::bench::Run;
use super::classic::{BLOCK, Classic, Held, at_a_rate};
use super::plan::PLANNED_OVERHEAD_MS;
use super::results::{Results, Tcp};
use super::rows::title;
use super::sample::Sample;
use crate::experiment::blocks::Interrupted;
use crate::experiment::cell::Conformance;
use crate::experiment::course::{self, Bench, Progress, RunError, Tell};
use crate::experiment::descriptors;
use crate::experiment::plan::budget::Time;
use crate::experiment::plan::{Role, budget};
use crate::experiment::results::Study;

/// Connections from which the search begins for a design that cannot hold those.
const FEWEST: u32 = 250;
/// Steps between the last number that was held and the first that was not.
const STEPS: u32 = 4;
/// Milliseconds that a number of connections must be held and served.
const HELD_MS: u64 = 1000;

/// Searches for the most that each row can hold, if that was asked for, as far as there is time.
///
/// # Errors
/// [`Interrupted`].
pub fn search(
    bench: &mut dyn Bench<Tcp>,
    results: &mut Results,
    time: Time,
    tell: Tell<Tcp>,
) -> Result<(), Interrupted> {
    let Some(Classic { most, .. }) = results.own.classic else { return Ok(()) };
    for row in 0..results.rows.len() {
        let passed = results.conformance[row] == Conformance::Passed;
        let first = !matches!(results.rows[row].role, Role::Again(_));
        let held = match passed && first {
            true => {
                let known = known(results, row);
                let mut attempt = |connections: u32| {
                    let what = format!("{connections} connections");
                    tell(Progress::Besides(&results.rows[row], what));
                    attempt(bench, results, time, row, connections)
                };
                let held = climb(known, most, &mut attempt)?;
                tell(Progress::Found(&results.rows[row], held.said()));
                Some(held)
            }
            false => None,
        };
        if let Some(classic) = &mut results.own.classic {
            classic.held.push(held);
        }
    }
    Ok(())
}

/// What the loads of the original have told already: the most of their connections that were held, and the
/// last run with them, where it was one at a rate as those of the search are.
fn known(results: &Results, row: usize) -> Option<(u32, Option<Sample>)> {
    let held = (0..results.loads.len()).filter(|load| {
        !results.cells[*load][row].samples.is_empty() && results.unranked(*load, row).is_none()
    });
    let at = held.max_by_key(|load| results.loads[*load].connections)?;
    let load = &results.loads[at];
    let sample = load.block_bytes_per_s.and(results.cells[at][row].standing().next_back());
    Some((load.connections, sample.cloned()))
}

/// What came of one number of connections.
enum Attempt {
    Held(Box<Sample>),
    Broke {
        made_and_served: Option<(u64, u64)>,
        cause: String,
    },
    /// It was not made, or not to its end: why.
    NotMade(String),
}

fn attempt(
    bench: &mut dyn Bench<Tcp>,
    results: &Results,
    time: Time,
    row: usize,
    connections: u32,
) -> Result<Attempt, Interrupted> {
    let load = at_a_rate(connections);
    let takes = Tcp::descriptors(&load, &results.rows[row]);
    if let Some(missing) = descriptors::lacking(takes, results.own.descriptors) {
        return Ok(Attempt::NotMade(missing));
    }
    let takes_ms = budget::WARMUP_MS + HELD_MS + PLANNED_OVERHEAD_MS + load.connecting_ms();
    if !time.has_room(bench.elapsed_s(), takes_ms as f64) {
        return Ok(Attempt::NotMade(format!("there was no time (-t) to try {connections}")));
    }
    let run =
        Run { row: &results.rows[row], load: &load, warmup_ms: budget::WARMUP_MS, run_ms: HELD_MS };
    match course::sample(bench, results, &run, (row, 0)) {
        Err(RunError::Interrupted) => Err(Interrupted),
        Err(RunError::TimeIsUp(reason)) => Ok(Attempt::NotMade(reason)),
        Err(error) => Ok(Attempt::Broke { made_and_served: None, cause: error.to_string() }),
        Ok(sample) => Ok(match sample.invalid.clone().or_else(|| sample.incomplete()) {
            Some(cause) => {
                Attempt::Broke { made_and_served: Some((sample.connected, sample.served())), cause }
            }
            None => Attempt::Held(Box::new(sample)),
        }),
    }
}

/// Numbers that are tried: doubled, and after the first that was not held in steps from the last that
/// was. `known` is held already.
fn climb(
    known: Option<(u32, Option<Sample>)>,
    most: u32,
    attempt: &mut dyn FnMut(u32) -> Result<Attempt, Interrupted>,
) -> Result<Held, Interrupted> {
    let (connections, sample) = known.unzip();
    let mut held = Held { connections, sample: sample.flatten(), ..Held::default() };
    let mut step = None;
    loop {
        let last = held.connections.unwrap_or(0);
        let next = match step {
            None if last == 0 => FEWEST,
            None => last.saturating_mul(2),
            Some(step) => last + step,
        };
        let next = if next > BLOCK { next / BLOCK * BLOCK } else { next };
        // The first that was not held is known: a step that leads there tells nothing more.
        if next.min(most) <= last || held.broke_at.is_some_and(|broke| next >= broke) {
            return Ok(held);
        }
        match attempt(next.min(most))? {
            Attempt::Held(sample) => {
                held.connections = Some(next.min(most));
                held.sample = Some(*sample);
            }
            Attempt::NotMade(why) => {
                if held.broke_at.is_none() {
                    held.cause = Some(why);
                }
                return Ok(held);
            }
            Attempt::Broke { made_and_served, cause } => {
                let again = step.is_some();
                held.broke_at = Some(next.min(most));
                (held.made_there, held.served_there) = made_and_served.unzip();
                held.cause = Some(cause);
                let width = ((next - last) / STEPS).max(if last >= BLOCK { BLOCK } else { 50 });
                step = Some(width);
                // The second one that breaks has been approached in steps.
                if again {
                    return Ok(held);
                }
            }
        }
    }
}

/// A row by its name, as it stands in the table.
pub fn row_of(results: &Results, design: &str) -> Option<usize> {
    results
        .rows
        .iter()
        .position(|row| row.design == design && row.peer.is_none() && row.role == Role::Plain)
}

/// The name of a row with what the search found, for the report.
pub fn said(results: &Results) -> Vec<String> {
    let Some(classic) = &results.own.classic else { return vec![] };
    let rows = results.rows.iter().zip(&classic.held);
    rows.filter_map(|(row, held)| Some(format!("{} {}.", title(row), held.as_ref()?.said())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::sample::tests::{at, load, made};

    /// What a climb tries on a row that holds so many.
    fn tried(known: u32, most: u32, holds: u32) -> (Vec<u32>, Held) {
        let mut numbers = vec![];
        let known = (known > 0).then_some((known, None));
        let held = climb(known, most, &mut |n| {
            numbers.push(n);
            Ok(match n <= holds {
                true => Attempt::Held(Box::new(Sample::of(&at(0), &load(), &made(1000.0, 5000.0)))),
                false => Attempt::Broke {
                    made_and_served: Some((holds.into(), holds.into())),
                    cause: "no more".into(),
                },
            })
        });
        (numbers, held.unwrap())
    }

    #[test]
    fn the_number_is_doubled_and_then_grows_in_steps() {
        let (numbers, held) = tried(12_000, 1_000_000, 19_900);
        assert_eq!(numbers, [24_000, 15_000, 18_000, 21_000]);
        assert_eq!((held.connections, held.broke_at), (Some(18_000), Some(21_000)));
        assert_eq!((held.made_there, held.cause.as_deref()), (Some(19_900), Some("no more")));
        assert!(held.said().contains("holds 18000 connections; at 21000 it broke: no more"));
    }

    #[test]
    fn one_that_holds_few_is_searched_from_below() {
        let (numbers, held) = tried(0, 1_000_000, 1100);
        assert_eq!(numbers, [250, 500, 1000, 2000]);
        assert_eq!((held.connections, held.broke_at), (Some(1000), Some(2000)));
        let (numbers, held) = tried(0, 1_000_000, 100);
        assert_eq!(numbers, [250, 62, 124]);
        assert_eq!((held.connections, held.broke_at), (Some(62), Some(124)));
        assert!(tried(0, 1000, 0).1.said().contains("holds none"));
    }

    #[test]
    fn nobody_is_asked_for_more_than_is_allowed() {
        let (numbers, held) = tried(12_000, 50_000, 1_000_000);
        assert_eq!(numbers, [24_000, 48_000, 50_000]);
        assert_eq!((held.connections, held.broke_at), (Some(50_000), None));
        assert!(held.said().contains("more was not tried"));
        assert!(tried(12_000, 12_000, 1_000_000).0.is_empty());
    }
}
