//! weir's designs against programs of other libraries: the best of each, under one load.

use serde_json::{Value, json};

use crate::experiment::ranking::{Better, no_ratio_because};
use crate::stats::compare::Difference;
use crate::tcp::results::Results;
use crate::tcp::rows::title;
use crate::tcp::sample::{CPU, LATENCY_P50, MESSAGES, TcpMetric};
use crate::udp::report::json::difference;
use crate::udp::report::sentences::times;

/// By what they are compared, what it is called, and which end of it is the good one.
const METRICS: [(&TcpMetric, &str, Better); 3] = [
    (&MESSAGES, "the messages/s", Better::Higher),
    (&CPU, "the CPU time per message", Better::Lower),
    (&LATENCY_P50, "the median round trip", Better::Lower),
];

/// The best design of a group and the best peer by one metric.
pub struct Against {
    /// By what.
    pub metric: &'static TcpMetric,
    /// How that is called.
    name: &'static str,
    /// Whether the design polls.
    pub polls: bool,
    /// The best of weir's rows.
    pub own: usize,
    /// The best of the peers.
    pub peer: usize,
    /// The figure of weir's to that of the peer, over pairs of runs of one round.
    pub ratio: Difference,
}

/// How the best designs, what waits and what polls apart, stand to the best peer. Empty without peers.
pub fn against(results: &Results, load: usize) -> Vec<Against> {
    if results.rows.iter().all(|row| row.peer.is_none()) {
        return vec![];
    }
    let mut found = vec![];
    for (metric, name, better) in METRICS {
        let best = |polls: bool, peer: bool| {
            let ranking = results.ranking_by(load, polls, metric, better);
            let place =
                ranking.places.iter().find(|at| results.rows[at.row].peer.is_some() == peer)?;
            Some((place.row, place.median))
        };
        let peers = [false, true].into_iter().filter_map(|polls| best(polls, true));
        let peer = peers.reduce(|a, b| match better {
            Better::Higher if b.1 > a.1 => b,
            Better::Lower if b.1 < a.1 => b,
            _ => a,
        });
        let Some((peer, _)) = peer else { continue };
        for polls in [false, true] {
            let Some((own, _)) = best(polls, false) else { continue };
            let ratio = results.against(load, metric, (own, peer));
            found.push(Against { metric, name, polls, own, peer, ratio });
        }
    }
    found
}

/// In words.
pub fn said(results: &Results, load: usize) -> Vec<String> {
    against(results, load)
        .iter()
        .map(|found| {
            let (own, peer) = (title(&results.rows[found.own]), title(&results.rows[found.peer]));
            let polls = if found.polls { ", which polls," } else { "" };
            let (times, worth) = match &found.ratio {
                Difference::Real(ratio) => (times(ratio), "a real difference"),
                Difference::Tie(ratio) => (times(ratio), "a tie, within the noise"),
                Difference::TooFew(Some(ratio)) => {
                    (times(ratio), "from too few comparable rounds to call it real")
                }
                Difference::TooFew(None) => {
                    let (cells, name) = (&results.cells[load], found.name);
                    let (first, second) = (&cells[found.own], &cells[found.peer]);
                    return format!(
                        "Peers: how {own} stands to {peer} in {name} is not known: {}.",
                        no_ratio_because(first, second, found.metric)
                    );
                }
            };
            let name = found.name;
            format!("Peers: {own}{polls} has {times} {name} of the best of them, {peer}; {worth}.")
        })
        .collect()
}

/// For a program.
pub fn values(results: &Results, load: usize) -> Value {
    let value = |found: &Against| {
        json!({
            "metric": found.metric.name,
            "polls": found.polls,
            "own": results.rows[found.own].spec(),
            "peer": results.rows[found.peer].spec(),
            "own_to_peer": difference(found.ratio),
        })
    };
    against(results, load).iter().map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::results::tests::results;

    #[test]
    fn the_best_of_each_are_compared_by_rate_cost_and_time() {
        let results = results(
            &[("poll", 80e3), ("epoll", 100e3), ("tokio=x {port}", 90e3), ("go=y {port}", 70e3)],
            1,
        );
        let found = against(&results, 0);
        let pairs: Vec<_> = found.iter().map(|f| (f.metric.name, f.own, f.peer)).collect();
        assert_eq!(pairs[0], ("messages_per_s", 1, 2));
        assert_eq!(pairs[1], ("cpu_ns_per_message", 1, 2));
        let ratio = found[0].ratio.ratio().unwrap();
        assert!((ratio.median - 100.0 / 90.0).abs() < 1e-6, "{ratio:?}");
        assert!(said(&results, 0)[0].ends_with("tokio (peer); a real difference."));
        assert_eq!(values(&results, 0)[0]["own_to_peer"]["verdict"], "real");
    }

    #[test]
    fn why_a_ratio_is_missing_is_said_as_it_was() {
        let mut results = results(&[("epoll", 100e3), ("ncat=x {port}", 70e3)], 0);
        for sample in &mut results.cells[0][1].samples {
            sample.cpu_ns_per_message = Some(0.0);
        }
        let said = said(&results, 0).join(" ");
        assert!(
            said.contains(
                "Peers: how epoll stands to ncat (peer) in the CPU time per message is not known: in each \
                 of their 7 common rounds a figure is 0."
            ),
            "{said}"
        );
    }

    #[test]
    fn what_polls_is_compared_with_the_same_peer() {
        let mut results =
            results(&[("ring", 150e3), ("epoll", 100e3), ("tokio=x {port}", 90e3)], 1);
        results.own.idle[0].cores_busy = Some(1.0);
        let found = against(&results, 0);
        let of: Vec<_> = found
            .iter()
            .filter(|f| f.metric.name == "messages_per_s")
            .map(|f| (f.polls, f.own, f.peer))
            .collect();
        assert_eq!(of, [(false, 1, 2), (true, 0, 2)]);
    }

    #[test]
    fn without_peers_nothing_is_said() {
        let results = results(&[("poll", 80e3), ("epoll", 100e3)], 1);
        assert!(said(&results, 0).is_empty() && values(&results, 0) == json!([]));
    }
}
