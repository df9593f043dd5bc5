//! Which loads there are, how long they take, and how often they run.

use std::fmt;

use serde::Serialize;

use super::mix::Mix;
use crate::experiment::plan::budget;
use crate::experiment::plan::{Depth, Row};
use crate::hosts::Hosts;
use crate::stats::bootstrap;

/// What a connection does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// One message at a time: the next one follows the answer.
    PingPong,
    /// Several messages under way, so that neither end waits for the other.
    Streaming,
}

impl Pattern {
    /// Both.
    pub const ALL: [Self; 2] = [Self::PingPong, Self::Streaming];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::PingPong => "ping-pong",
            Self::Streaming => "streaming",
        }
    }
}

/// Bytes that one streaming connection has under way, unless told otherwise: what keeps both ends busy
/// on loopback.
pub const STREAM_BYTES: u64 = 256 << 10;
/// Messages that it has under way at least and at most, whatever their size.
pub const STREAM_MESSAGES: (u64, u64) = (2, 64);
/// Bytes under way on all connections together beyond which each has fewer: the system's memory for
/// TCP has a limit.
const BYTES_UNDER_WAY_MAX: u64 = 1 << 30;
/// Bytes that a server receives at a time, at least (the originals' buffer) and at most.
pub const BUFFER_BYTES: (u64, u64) = (4 << 10, 64 << 10);

/// One load. Rows are compared only under the same one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Load {
    /// What a connection does.
    pub pattern: Pattern,
    /// Bytes of a message.
    pub message_bytes: u32,
    /// Connections, in all.
    pub connections: u32,
    /// Blocks that they come in, of which each has as many.
    pub blocks: u32,
    /// Bytes per second that are sent on all connections of a block together; `None` for as many as come
    /// back.
    pub block_bytes_per_s: Option<u32>,
    /// Messages under way on each.
    pub outstanding: u32,
    /// Bytes that a server of weir's receives at a time.
    pub buffer_bytes: u32,
    /// Who else is there, and what else is asked of these connections, where strategies are compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mix: Option<Mix>,
}

impl Load {
    /// A load; `outstanding` and `buffer_bytes` as they were asked for.
    pub fn new(
        pattern: Pattern,
        message_bytes: u32,
        connections: u32,
        outstanding: Option<u32>,
        buffer_bytes: Option<u32>,
    ) -> Self {
        let bytes = u64::from(message_bytes).max(1);
        let under_way = match (pattern, outstanding) {
            (Pattern::PingPong, _) => 1,
            (Pattern::Streaming, Some(asked)) => u64::from(asked),
            (Pattern::Streaming, None) => {
                let most = BYTES_UNDER_WAY_MAX / u64::from(connections.max(1));
                (STREAM_BYTES.min(most) / bytes).clamp(STREAM_MESSAGES.0, STREAM_MESSAGES.1)
            }
        };
        let comes = (bytes * under_way).clamp(BUFFER_BYTES.0, BUFFER_BYTES.1);
        Self {
            pattern,
            message_bytes,
            connections,
            blocks: 1,
            block_bytes_per_s: None,
            outstanding: under_way as u32,
            buffer_bytes: buffer_bytes.unwrap_or(comes as u32),
            mix: None,
        }
    }

    /// Connections of each block.
    pub fn connections_per_block(&self) -> u32 {
        self.connections / self.blocks.max(1)
    }

    /// How many clients of so many take part, each with a connection of every block at least.
    pub(crate) fn parts_of(&self, clients: usize) -> usize {
        clients.min(self.connections_per_block() as usize)
    }

    /// The same hosts, with those clients that take part: of a mix the first has the connections that count, and the last those
    /// beside them.
    pub(crate) fn hosts_of(&self, hosts: &Hosts) -> Hosts {
        let Some(mix) = &self.mix else {
            return hosts.of_generators(self.parts_of(hosts.generators.len()));
        };
        let mut taking_part = hosts.of_generators(1);
        if mix.others.is_some() && hosts.generators.len() > 1 {
            taking_part.generators.extend(hosts.generators.last().cloned());
        }
        taking_part
    }

    /// Its connections, with those beside them.
    pub fn connections_in_all(&self) -> u32 {
        self.connections + self.mix.map_or(0, |mix| mix.others())
    }

    /// Whether messages are sent at a rate, whatever comes back.
    pub fn has_rate(&self) -> bool {
        self.block_bytes_per_s.is_some() || self.mix.is_some_and(|mix| mix.messages_per_s.is_some())
    }

    /// What making and ending its connections costs, in milliseconds, as long as it was not measured.
    pub fn connecting_ms(&self) -> u64 {
        let of_mix = self.mix.map_or(0, |mix| match mix.name.is_attack() {
            true => OTHERS_MS + ATTACK_MS,
            false if mix.others.is_some() => OTHERS_MS,
            false => 0,
        });
        of_mix + u64::from(self.connections_in_all()) * CONNECTING_US / 1000
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(mix) = &self.mix {
            write!(f, "{}: ", mix.name.name())?;
        }
        write!(f, "{}, {} B, ", self.pattern.name(), self.message_bytes)?;
        match self.connections {
            1 => f.write_str("1 connection")?,
            n => write!(f, "{n} connections")?,
        }
        match self.outstanding {
            1 => {}
            n => write!(f, ", {n} under way on each")?,
        }
        if let Some(mix) = &self.mix {
            if let Some(messages) = mix.messages_each {
                write!(f, ", {messages} on each")?;
            }
            if let Some(rate) = mix.messages_per_s {
                write!(f, ", {rate}/s in all")?;
            }
            f.write_str(&mix.beside())?;
        }
        match self.block_bytes_per_s {
            None => Ok(()),
            Some(rate) => {
                write!(f, ", {rate} bytes/s for each block of {}", self.connections_per_block())
            }
        }
    }
}

/// What was asked for; an empty list stands for what the depth has by itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    /// How much to measure.
    pub depth: Depth,
    /// Bytes of a message.
    pub message_bytes: Vec<u32>,
    /// Connections.
    pub connections: Vec<u32>,
    /// What they do.
    pub patterns: Vec<Pattern>,
    /// Messages under way on each streaming connection.
    pub outstanding: Option<u32>,
    /// Bytes that a server receives at a time.
    pub buffer_bytes: Option<u32>,
}

/// Bytes of a message, unless told otherwise.
pub fn message_bytes(depth: Depth) -> &'static [u32] {
    match depth {
        Depth::Quick | Depth::Standard => &[64],
        Depth::Full => &[64, 1024, 16_384, 65_536],
    }
}

/// Connections, unless told otherwise.
pub fn connections(depth: Depth) -> &'static [u32] {
    match depth {
        Depth::Quick => &[64],
        Depth::Standard => &[1, 64, 1000],
        Depth::Full => &[1, 64, 1000, 10_000],
    }
}

/// What they do, unless told otherwise.
pub fn patterns(depth: Depth) -> &'static [Pattern] {
    match depth {
        Depth::Quick | Depth::Standard => &[Pattern::PingPong],
        Depth::Full => &Pattern::ALL,
    }
}

impl Asked {
    /// Only what the depth has by itself.
    pub fn new(depth: Depth) -> Self {
        Self {
            depth,
            message_bytes: vec![],
            connections: vec![],
            patterns: vec![],
            outstanding: None,
            buffer_bytes: None,
        }
    }

    /// Every load: each size with each number of connections in each pattern, once.
    pub fn loads(&self) -> Vec<Load> {
        fn or<T: Copy>(said: &[T], otherwise: &[T]) -> Vec<T> {
            if said.is_empty() { otherwise.to_vec() } else { said.to_vec() }
        }
        let mut loads: Vec<Load> = vec![];
        for pattern in or(&self.patterns, patterns(self.depth)) {
            for size in or(&self.message_bytes, message_bytes(self.depth)) {
                for connections in or(&self.connections, connections(self.depth)) {
                    let load =
                        Load::new(pattern, size, connections, self.outstanding, self.buffer_bytes);
                    if !loads.contains(&load) {
                        loads.push(load);
                    }
                }
            }
        }
        loads
    }
}

/// What starting and ending both processes of a run costs until it has been measured, connections apart.
pub const PLANNED_OVERHEAD_MS: u64 = 100;
/// What making and ending a connection costs, in microseconds, at both ends together.
const CONNECTING_US: u64 = 60;
/// Rows that two minutes have enough rounds for: with peers there are more, and they have the time that they
/// take.
const ROWS_IN_TWO_MINUTES: usize = 18;

/// Seconds of a first look at the mixes.
pub const QUICK_MIXES_S: f64 = 50.0;
/// What the second client of a mix costs, in milliseconds, and waiting for connections to be closed or unstuck.
const OTHERS_MS: u64 = 150;
const ATTACK_MS: u64 = 500;

/// Rounds that are aimed at.
pub fn aims_at(depth: Depth, load: &Load) -> u32 {
    match depth {
        // Half a dozen mixes take long enough with what an interval needs.
        Depth::Standard if load.mix.is_some() => bootstrap::FEWEST_SAMPLES as u32,
        Depth::Quick => budget::FEWEST_ROUNDS,
        // Three more than an interval needs, for a machine that changes its speed by itself.
        Depth::Standard => bootstrap::FEWEST_SAMPLES as u32 + 3,
        Depth::Full => bootstrap::FEWEST_SAMPLES as u32,
    }
}

/// Seconds of the first look and of the table within two minutes, where no more than usual was asked for.
pub fn usual_s(depth: Depth, loads: &[Load], rows: &[Row]) -> Option<f64> {
    if loads.iter().any(|load| load.mix.is_some()) {
        return (depth == Depth::Quick).then_some(QUICK_MIXES_S);
    }
    let can_run = rows.iter().filter(|row| row.unavailable.is_none()).count();
    let ordinary = can_run <= ROWS_IN_TWO_MINUTES
        && loads.iter().all(|load| load.connections <= 1000)
        && loads.len() <= Asked::new(Depth::Standard).loads().len();
    match depth {
        Depth::Quick if ordinary && loads.len() == 1 => Some(budget::QUICK_S),
        Depth::Standard if ordinary => Some(budget::STANDARD_S),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::course::Course;
    use crate::experiment::plan::Settings;
    use crate::tcp::results::Tcp;

    fn texts(asked: &Asked) -> Vec<String> {
        asked.loads().iter().map(Load::to_string).collect()
    }

    #[test]
    fn the_default_is_three_numbers_of_connections_and_the_sweep_is_everything() {
        let wanted = [
            "ping-pong, 64 B, 1 connection",
            "ping-pong, 64 B, 64 connections",
            "ping-pong, 64 B, 1000 connections",
        ];
        assert_eq!(texts(&Asked::new(Depth::Standard)), wanted);
        assert_eq!(texts(&Asked::new(Depth::Full)).len(), 4 * 4 * 2);
        assert_eq!(texts(&Asked::new(Depth::Quick)).len(), 1);
    }

    #[test]
    fn lists_are_every_combination_once() {
        let asked = Asked {
            message_bytes: vec![64, 1024, 64],
            connections: vec![4],
            patterns: vec![Pattern::Streaming],
            ..Asked::new(Depth::Standard)
        };
        let wanted = [
            "streaming, 64 B, 4 connections, 64 under way on each",
            "streaming, 1024 B, 4 connections, 64 under way on each",
        ];
        assert_eq!(texts(&asked), wanted);
    }

    #[test]
    fn what_is_under_way_is_bounded() {
        let of = |bytes, connections| {
            Load::new(Pattern::Streaming, bytes, connections, None, None).outstanding
        };
        assert_eq!((of(64, 1), of(1024, 1), of(16_384, 1), of(65_536, 1)), (64, 64, 16, 4));
        assert_eq!((of(65_536, 10_000), of(16_384, 10_000)), (2, 6));
        let asked = Load::new(Pattern::Streaming, 65_536, 4, Some(16), Some(1 << 20));
        assert_eq!((asked.outstanding, asked.buffer_bytes), (16, 1 << 20));
        let buffer = |pattern, bytes| Load::new(pattern, bytes, 1, None, None).buffer_bytes;
        assert_eq!(buffer(Pattern::PingPong, 64), 4096);
        assert_eq!(buffer(Pattern::PingPong, 16_384), 16_384);
        assert_eq!(buffer(Pattern::Streaming, 65_536), 65_536);
        assert_eq!(Load::new(Pattern::PingPong, 64, 1, Some(9), None).outstanding, 1);
    }

    #[test]
    fn the_default_fits_into_two_minutes_with_enough_rounds_for_intervals() {
        // Fifteen designs and one of them twice; checks have taken ten seconds.
        let loads = Asked::new(Depth::Standard).loads();
        let settings = Settings::new(Depth::Standard);
        assert_eq!(Tcp::budget_s(&settings, &loads, &[]), 110.0);
        let many = vec![Row::parse("epoll").unwrap(); 27];
        assert!(Tcp::budget_s(&settings, &loads, &many) > 250.0, "designs and peers");
        let with_rows: Vec<(Load, usize)> = loads.iter().map(|load| (*load, 16)).collect();
        for (load, share_s) in loads.iter().zip(Tcp::shares(&settings, &with_rows, 100.0)) {
            let overhead_ms = PLANNED_OVERHEAD_MS + load.connecting_ms();
            let schedule = Tcp::schedule(&settings, load, share_s, 16, overhead_ms);
            assert!(schedule.rounds as usize >= bootstrap::FEWEST_SAMPLES, "{load}: {schedule:?}");
            assert!(schedule.total_ms(16, overhead_ms) as f64 <= share_s * 1000.0, "{schedule:?}");
        }
    }

    #[test]
    fn rounds_that_were_asked_for_are_kept() {
        let loads = Asked::new(Depth::Quick).loads();
        let settings = Settings { rounds: Some(4), ..Settings::new(Depth::Standard) };
        assert_eq!(Tcp::schedule(&settings, &loads[0], 0.1, 8, 100).rounds, 4);
        let long = Tcp::schedule(&settings, &loads[0], 1000.0, 2, 100);
        assert_eq!((long.rounds, long.run_ms), (4, budget::LONGEST_RUN_MS));
        let rows = [Row::parse("epoll").unwrap()];
        // One check and four rounds of 300 + 60 + 100 + 3 ms.
        let estimate = Tcp::budget_s(&settings, &loads, &rows);
        assert!((estimate - (0.6 + 4.0 * 0.463)).abs() < 1e-9, "{estimate}");
    }
}
