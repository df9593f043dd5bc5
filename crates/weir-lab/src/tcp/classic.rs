//! The experiment of the original study (Jones and Ohlund, table 6-3): as many connections as its first
//! rows had, sending as fast as they can; more connections at a rate; and the most that a design can hold.
//!
//! The first two are loads like any other, the third is a search ([`super::search`]).

use serde::Serialize;

use super::plan::{Load, Pattern};
use super::sample::Sample;

/// Connections of a block of the original's client.
pub(super) const BLOCK: u32 = 1000;
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

/// A load of that many connections at the rate of the original.
pub(super) fn at_a_rate(connections: u32) -> Load {
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
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
            _ => format!("{held} (more was not tried)"),
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

#[cfg(test)]
mod tests {
    use super::*;

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
