//! The experiment of the original study (Jones and Ohlund, table 6-3): as many connections as its first
//! rows had, sending as fast as they can; more connections at a rate; and the most that a design can hold.
//!
//! The first two are loads like any other. The third is a search: the number of connections is doubled
//! until they are not all made, served and kept, and then grows in steps from the last number that was.

use serde::Serialize;

use super::bench::Run;
use super::plan::{Load, PLANNED_OVERHEAD_MS, Pattern};
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

/// Connections of a block of the original's client.
const BLOCK: u32 = 1000;
/// Bytes of a message: the original's buffer.
const MESSAGE_BYTES: u32 = 4096;
/// Bytes per second of a block.
const BLOCK_BYTES_PER_S: u32 = 200_000;
/// Messages under way where a connection sends as fast as it can: one goes out while one comes back.
const UNDER_WAY: u32 = 2;
/// Messages that may be under way where a connection has a rate: more than ever come together.
const UNDER_WAY_OF_RATE: u32 = 16;
/// Connections of the first rows, and of the second ones.
const CONNECTIONS: (u32, u32) = (7000, 12_000);
/// Connections from which the search begins for a design that cannot hold those.
const FEWEST: u32 = 250;
/// Steps between the last number that was held and the first that was not.
const STEPS: u32 = 4;
/// Milliseconds that a number of connections must be held and served.
const HELD_MS: u64 = 1000;

/// The two loads of the original.
pub fn loads() -> Vec<Load> {
    vec![at_full_speed(CONNECTIONS.0), at_a_rate(CONNECTIONS.1)]
}

fn at_full_speed(connections: u32) -> Load {
    Load {
        outstanding: UNDER_WAY,
        blocks: connections.div_ceil(BLOCK),
        ..Load::new(Pattern::Streaming, MESSAGE_BYTES, connections, None, Some(MESSAGE_BYTES))
    }
}

fn at_a_rate(connections: u32) -> Load {
    let blocks = (connections / BLOCK).max(1);
    Load {
        outstanding: UNDER_WAY_OF_RATE,
        blocks,
        connections: if blocks > 1 { blocks * BLOCK } else { connections },
        block_bytes_per_s: Some(BLOCK_BYTES_PER_S),
        ..at_full_speed(connections)
    }
}

/// What the search found.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Classic {
    /// The most that is tried.
    pub most: u32,
    /// For each row, what was found; `None` where nothing was searched for.
    pub held: Vec<Option<Held>>,
}

/// How many connections a row holds.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Held {
    /// The most that were all made, served and kept.
    pub connections: Option<u32>,
    /// The number at which it broke; `None` if it did not.
    pub broke_at: Option<u32>,
    /// How many of those were made.
    pub made_there: Option<u64>,
    /// How many of those were served until they ended in order.
    pub served_there: Option<u64>,
    /// What it broke for.
    pub cause: Option<String>,
    /// The run with the most connections that were held.
    pub sample: Option<Sample>,
}

impl Classic {
    /// The search, up to so many connections.
    pub fn up_to(most: u32) -> Self {
        Self { most, held: vec![] }
    }

    /// All runs.
    pub fn samples(&self) -> impl Iterator<Item = &Sample> {
        self.held.iter().flatten().filter_map(|held| held.sample.as_ref())
    }

    /// Whether there is a figure.
    pub fn has_figures(&self) -> bool {
        self.samples().next().is_some()
    }

    /// Whether any run was wrong.
    pub fn has_invalid_runs(&self) -> bool {
        self.samples().any(|sample| sample.invalid.is_some())
    }
}

impl Held {
    /// In words.
    pub fn said(&self) -> String {
        let held = match self.connections {
            Some(connections) => format!("holds {connections} connections"),
            None => "holds none of the numbers that were tried".into(),
        };
        match (self.broke_at, &self.cause) {
            (Some(at), Some(cause)) => format!("{held}; at {at} it broke: {cause}"),
            (None, Some(cause)) => format!("{held}; {cause}"),
            _ => format!("{held}, and was not asked for more"),
        }
    }
}

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

/// A row of the original's table.
pub struct Published {
    /// Its model.
    pub model: &'static str,
    /// Our design that does the same.
    pub ours: &'static str,
    /// Which of the three: as fast as they can, at a rate, the most.
    pub part: usize,
    /// Connections attempted and connected, where that survives.
    pub connections: Option<(u32, u32)>,
    /// Bytes per second that the clients received.
    pub received_per_s: f64,
}

const fn published(
    model: &'static str,
    ours: &'static str,
    part: usize,
    connections: Option<(u32, u32)>,
    received_per_s: f64,
) -> Published {
    Published { model, ours, part, connections, received_per_s }
}

/// Every figure of table 6-3 that survives (originals of 2002, other machines, another system): they are
/// compared by rank and ratio only.
pub const PUBLISHED: &[Published] = &[
    published("blocking", "blocking", 0, Some((7000, 1008)), 2_198_148.0),
    published("non-blocking", "select", 0, Some((7000, 4011)), 0.0),
    published("WSAAsyncSelect", "async-select", 0, Some((7000, 1956)), 1_637_819.0),
    published("WSAEventSelect", "event-select", 0, Some((7000, 6999)), 5_186_297.0),
    published("overlapped, events", "overlapped-events", 0, Some((7000, 5558)), 4_095_644.0),
    published("completion port", "port", 0, Some((7000, 7000)), 3_893_507.0),
    published("blocking", "blocking", 1, Some((12_000, 1008)), 402_227.0),
    published("non-blocking", "select", 1, Some((12_000, 5779)), 0.0),
    published("WSAAsyncSelect", "async-select", 1, Some((12_000, 4077)), 652_902.0),
    published("WSAEventSelect", "event-select", 1, Some((12_000, 11_080)), 3_217_493.0),
    published("overlapped, events", "overlapped-events", 1, None, 1_803_878.0),
    published("completion port", "port", 1, None, 5_027_095.0),
    published("WSAEventSelect", "event-select", 2, Some((46_000, 45_933)), 3_851_059.0),
    published("overlapped, events", "overlapped-events", 2, None, 3_834_511.0),
    published("completion port", "port", 2, None, 4_326_496.0),
];

/// A figure among those of the same part: its rank from 1, and its ratio to the best.
pub fn rank_and_ratio(all: &[f64], own: f64) -> (usize, f64) {
    let best = all.iter().copied().fold(0.0, f64::max);
    let before = all.iter().filter(|other| **other > own).count();
    (before + 1, if best > 0.0 { own / best } else { 0.0 })
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
        assert!(held.said().contains("was not asked for more"));
        assert!(tried(12_000, 12_000, 1_000_000).0.is_empty());
    }

    #[test]
    fn the_loads_are_those_of_the_original() {
        let loads = loads();
        assert_eq!((loads[0].connections, loads[0].blocks), (7000, 7));
        assert_eq!(
            loads[1].to_string(),
            "streaming, 4096 B, 12000 connections, 16 under way on each, 200000 bytes/s for each \
             block of 1000"
        );
        let few = at_a_rate(250);
        assert_eq!((few.blocks, few.connections_per_block()), (1, 250));
    }

    #[test]
    fn what_was_published_is_ranks_and_ratios() {
        let first: Vec<f64> =
            PUBLISHED.iter().filter(|p| p.part == 0).map(|p| p.received_per_s).collect();
        assert_eq!(first.len(), 6);
        assert_eq!(rank_and_ratio(&first, 5_186_297.0), (1, 1.0));
        let (rank, ratio) = rank_and_ratio(&first, 3_893_507.0);
        assert!(rank == 3 && (ratio - 0.751).abs() < 0.001, "{rank} {ratio}");
        assert_eq!(rank_and_ratio(&first, 0.0), (6, 0.0));
        let known: Vec<&str> = PUBLISHED.iter().map(|p| p.ours).collect();
        assert!(known.contains(&"port") && known.contains(&"select"));
    }
}
