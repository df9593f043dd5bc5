//! weir's designs against programs of other libraries: the best of each, under one load.

use serde_json::{Value, json};

use crate::experiment::cell::{Better, Metric};
use crate::report::document::with;
use crate::report::peers::Against;
use crate::tcp::results::{Results, Tcp};
use crate::tcp::sample::{CPU, LATENCY_P50, MESSAGES, Sample};

/// By what they are compared, and what it is called.
const METRICS: [(&Metric<Sample>, &str); 3] = [
    (&MESSAGES, "the messages/s"),
    (&CPU, "the CPU time per message"),
    (&LATENCY_P50, "the median round trip"),
];

/// How the best designs, what waits and what polls apart, stand to the best peer; with each, whether it polls. Empty
/// without peers.
pub fn against(results: &Results, load: usize) -> Vec<(Against<Tcp>, bool)> {
    if results.rows.iter().all(|row| row.peer.is_none()) {
        return vec![];
    }
    let mut found = vec![];
    for (metric, name) in METRICS {
        let best = |polls: bool, peer: bool| {
            let ranking = results.ranking_by(load, polls, metric);
            let place =
                ranking.places.iter().find(|at| results.rows[at.row].peer.is_some() == peer)?;
            Some((place.row, place.median))
        };
        let peers = [false, true].into_iter().filter_map(|polls| best(polls, true));
        let peer = peers.reduce(|a, b| match metric.better {
            Better::Higher if b.1 > a.1 => b,
            Better::Lower if b.1 < a.1 => b,
            _ => a,
        });
        let Some((peer, _)) = peer else { continue };
        for polls in [false, true] {
            let Some((own, _)) = best(polls, false) else { continue };
            let ratio = results.against(load, metric, (own, peer));
            found.push((Against { metric, name, own, peer, ratio }, polls));
        }
    }
    found
}

/// In words.
pub fn said(results: &Results, load: usize) -> Vec<String> {
    let beside = |polls: bool| if polls { ", which busy-polls," } else { "" };
    against(results, load)
        .iter()
        .map(|(found, polls)| found.said(results, load, beside(*polls)))
        .collect()
}

/// For a program.
pub fn values(results: &Results, load: usize) -> Value {
    let value = |(found, polls): &(Against<Tcp>, bool)| {
        with(found.value(results), json!({ "polls": polls }))
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
        let pairs: Vec<_> = found.iter().map(|f| (f.0.metric.name, f.0.own, f.0.peer)).collect();
        assert_eq!(pairs[0], ("messages_per_s", 1, 2));
        assert_eq!(pairs[1], ("cpu_ns_per_message", 1, 2));
        let ratio = found[0].0.ratio.ratio().unwrap();
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
                "Peers: how epoll compares with ncat (peer) in the CPU time per message is unknown: in each \
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
            .filter(|f| f.0.metric.name == "messages_per_s")
            .map(|f| (f.1, f.0.own, f.0.peer))
            .collect();
        assert_eq!(of, [(false, 1, 2), (true, 0, 2)]);
    }

    #[test]
    fn without_peers_nothing_is_said() {
        let results = results(&[("poll", 80e3), ("epoll", 100e3)], 1);
        assert!(said(&results, 0).is_empty() && values(&results, 0) == json!([]));
    }
}
