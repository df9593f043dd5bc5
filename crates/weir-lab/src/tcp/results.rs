//! What a comparison of TCP found: every row under every load, with its samples.

use serde::Serialize;

use super::bench::{Checked, Idle};
use super::classic::Classic;
use super::plan::Load;
use super::sample::{KERNEL_ENTRIES, LATENCY_P99, MESSAGES, METRICS, Sample, TcpMetric};
use super::strategies;
use crate::experiment::plan::Row;
use crate::experiment::results::{self, Besides, Study};
use crate::hosts::Hosts;
use crate::stats::median;

/// A comparison of TCP: what only that has, as it stands in the document.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Tcp {
    /// What each row did with little to do.
    #[serde(skip)]
    pub idle: Vec<Idle>,
    /// The cores of the server.
    pub server_cores: Vec<usize>,
    /// The cores of the client.
    pub client_cores: Vec<usize>,
    /// Where server and clients ran; `None` on one machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Hosts>,
    /// What link server and client had of their own; `None` on loopback.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// How many descriptors a process may have, if that is known and limited.
    #[serde(skip)]
    pub descriptors: Option<u64>,
    /// What the rows were checked with before they were timed; `None` if none passed.
    #[serde(rename = "check")]
    pub checked: Option<Checked>,
    /// The experiment of the original study, if it was that.
    #[serde(skip)]
    pub classic: Option<Classic>,
}

/// An experiment and what came out.
pub type Results = results::Results<Tcp>;

impl Results {
    /// Whether a row polls. `None` if that is not known.
    pub fn polls(&self, row: usize) -> Option<bool> {
        self.own.idle[row].polls()
    }
}

impl Study for Tcp {
    type Load = Load;
    type Sample = Sample;
    /// Rows that poll, and rows that wait.
    type Group = bool;

    const GROUPS: &'static [bool] = &[false, true];
    const METRICS: &'static [TcpMetric] = METRICS;
    const ENTRIES: TcpMetric = KERNEL_ENTRIES;

    /// Where all are offered the same, by how long the slowest of them wait.
    fn ranked_by(load: &Load) -> &'static TcpMetric {
        match load.mix.is_some_and(|mix| mix.messages_per_s.is_some()) {
            true => &LATENCY_P99,
            false => &MESSAGES,
        }
    }

    fn takes_part(load: &Load, row: &Row) -> bool {
        load.mix.as_ref().is_none_or(|mix| strategies::takes_part(mix, row))
    }

    fn rows_are(&mut self, count: usize) {
        self.idle.resize(count, Idle::default());
    }

    fn same_as(&mut self, second: usize, of: usize) {
        self.idle[second] = self.idle[of];
    }

    /// One of which it is not known is ranked among those that wait.
    fn group_of(results: &Results, row: usize) -> bool {
        results.polls(row).unwrap_or(false)
    }

    fn incomparable(results: &Results, load: usize, row: usize) -> Option<String> {
        results.cells[load][row].standing().find_map(Sample::incomplete)
    }

    fn nothing_arrived(results: &Results, load: usize, row: usize) -> bool {
        let messages = results.cells[load][row].values(&MESSAGES);
        median(&messages).is_some_and(|messages| messages <= 0.0)
    }

    fn descriptors(load: &Load, _: &Row) -> Vec<(String, u64)> {
        let all = load.connections_in_all();
        let server = match all {
            1 => "a server of 1 connection".into(),
            n => format!("a server of {n} connections"),
        };
        vec![(server, all.into())]
    }

    fn besides(&self) -> Besides {
        let Some(classic) = &self.classic else { return Besides::default() };
        Besides {
            has_figures: classic.has_figures(),
            is_invalid: classic.has_invalid_runs(),
            loads_of_others: classic.samples().filter_map(|of| of.when.load_of_others).collect(),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::experiment::cell::Conformance;
    use crate::experiment::plan::{Role, Row};
    use crate::machine::Machine;
    use crate::stats::compare::Difference;
    use crate::tcp::sample::tests::{at, load, made};

    /// A row for each text with its messages per second; the machine's common speed differs from block to
    /// block. Texts with a `=` are peers; the row under a second name is the last one.
    pub(crate) fn results(rows: &[(&str, f64)], again: usize) -> Results {
        let parse = |text: &str| match text.contains('=') {
            true => Row::parse_peer(text).unwrap(),
            false => Row::parse(text).unwrap(),
        };
        let all: Vec<Row> = rows.iter().map(|(text, _)| parse(text)).collect();
        let mut results = Results::new(vec![], Machine::default(), all, vec![load()]);
        results.add_again(again);
        results.own.server_cores = vec![0];
        results.own.client_cores = vec![1];
        for row in 0..results.rows.len() {
            let (second, of) = match results.rows[row].role {
                Role::Again(of) => (true, of),
                _ => (false, row),
            };
            results.conformance[row] = Conformance::Passed;
            results.own.idle[row].cores_busy = Some(0.4);
            for (block, common) in [1.0, 0.6, 1.1, 0.9, 0.7, 0.8, 1.0].into_iter().enumerate() {
                let waver = if second && block % 2 == 0 { 1.01 } else { 1.0 };
                let speed = rows[of].1 * common * waver;
                let sample = Sample::of(&at(block as u32), &load(), &made(speed, 5e8 / rows[of].1));
                results.cells[0][row].samples.push(sample);
            }
        }
        results
    }

    #[test]
    fn the_best_its_tie_and_the_ratios() {
        let results = results(&[("poll", 80e3), ("epoll", 100e3), ("select", 99.9e3)], 1);
        let ranking = results.ranking(0, false);
        let order: Vec<usize> = ranking.places.iter().map(|place| place.row).collect();
        assert_eq!((order, ranking.rank(2), ranking.rank(0)), (vec![1, 2, 0], Some(1), Some(3)));
        assert!(ranking.noise_floor.is_some_and(|floor| floor < 0.02));
        assert!(matches!(results.against(0, &MESSAGES, (1, 0)), Difference::Real(_)));
        assert!(results.ranking(0, true).places.is_empty());
    }

    #[test]
    fn what_polls_is_ranked_apart() {
        let mut results = results(&[("poll", 80e3), ("epoll", 100e3), ("select", 120e3)], 1);
        results.own.idle[2].cores_busy = Some(0.99);
        assert_eq!(results.groups(0), [false, true]);
        assert_eq!(results.ranking(0, false).winner().unwrap().row, 1);
        let polling = results.ranking(0, true);
        assert_eq!((polling.winner().unwrap().row, polling.noise_floor), (2, None));
        let across = results.against(0, &MESSAGES, (2, 1));
        assert!(matches!(across, Difference::TooFew(Some(_))), "the noise of one group is unknown");
        results.add_again(2);
        assert_eq!(results.again(true), Some((2, 4)));
    }

    #[test]
    fn wrong_and_incomplete_rows_have_no_rank() {
        let mut results = results(&[("poll", 80e3), ("epoll", 100e3), ("select", 120e3)], 0);
        results.cells[0][1].samples[3].connected = 60;
        assert!(results.unranked(0, 1).unwrap().contains("60 of 64 connections"));
        assert!(!results.has_invalid_runs(), "fewer connections are a figure");
        results.cells[0][2].samples[0].invalid = Some("byte 7 is wrong".into());
        assert_eq!(results.unranked(0, 2).unwrap(), "byte 7 is wrong");
        assert!(results.has_invalid_runs());
        assert_eq!(results.ranking(0, false).places.len(), 1);
        for sample in &mut results.cells[0][0].samples {
            sample.messages_per_s = Some(0.0);
        }
        assert_eq!(results.unranked(0, 0).unwrap(), "nothing arrived while it was measured");
        assert_eq!(results.status(0, 0).name(), "failed");
        assert!(results.ranking(0, false).places.is_empty());
        results.conformance[0] = Conformance::Failed("no echo".into());
        assert!(results.unranked(0, 0).unwrap().contains("failed the check"));
    }
}
