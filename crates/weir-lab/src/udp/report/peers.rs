//! weir's designs against the programs of other libraries: the best of each, under one load.

use serde_json::{Value, json};

use crate::experiment::ranking::no_ratio_because;
use crate::stats::compare::Difference;
use crate::stats::{Estimate, Interval};
use crate::udp::results::Results;
use crate::udp::sample::Metric;

/// The best design and the best peer by one metric.
#[derive(Clone, Copy)]
pub struct Against {
    /// By what.
    pub metric: &'static Metric,
    /// The best of weir's rows.
    pub own: usize,
    /// The best of the peers.
    pub peer: usize,
    /// The figure of weir's to that of the peer, over pairs of runs of one round.
    pub ratio: Difference,
}

/// How the best design stands to the best peer, both of one group ([`Results::groups`]), by what the load is ranked
/// by. `None` without peers that are ranked, as under loads that are ranked by latency, and where it is too
/// noisy to compare.
pub fn against(results: &Results, load: usize, offloaded: bool) -> Option<Against> {
    if results.rows.iter().all(|row| row.peer.is_none()) {
        return None;
    }
    let (metric, _) = results.ranked_by(load);
    let ranking = results.ranking(load, offloaded);
    ranking.winner()?; // nobody wins where it is too noisy
    let best =
        |peer: bool| ranking.places.iter().find(|at| results.rows[at.row].peer.is_some() == peer);
    let (own, peer) = (best(false)?, best(true)?);
    // One of the two is the winner, to which the other was compared.
    let ratio = match (own.winner_to_it, peer.winner_to_it) {
        (None, Some(own_to_peer)) => own_to_peer,
        (Some(peer_to_own), _) => inverse(peer_to_own),
        (None, None) => return None,
    };
    Some(Against { metric, own: own.row, peer: peer.row, ratio })
}

pub(crate) fn inverse(difference: Difference) -> Difference {
    let of = |ratio: Estimate| Estimate {
        median: 1.0 / ratio.median,
        interval: ratio.interval.map(|i| Interval { low: 1.0 / i.high, high: 1.0 / i.low }),
        ..ratio
    };
    match difference {
        Difference::Real(ratio) => Difference::Real(of(ratio)),
        Difference::Tie(ratio) => Difference::Tie(of(ratio)),
        Difference::TooFew(ratio) => Difference::TooFew(ratio.map(of)),
    }
}

/// In words.
pub fn said(results: &Results, load: usize, offloaded: bool) -> Vec<String> {
    against(results, load, offloaded)
        .iter()
        .map(|found| {
            let (own, peer) = (&results.rows[found.own], &results.rows[found.peer]);
            let times = |ratio: &Estimate| {
                let interval = ratio.interval.map(|i| format!(" ({:.2} to {:.2})", i.low, i.high));
                format!("{:.2} times{}", ratio.median, interval.unwrap_or_default())
            };
            let (times, worth) = match &found.ratio {
                Difference::Real(ratio) => (times(ratio), "a real difference"),
                Difference::Tie(ratio) => (times(ratio), "a tie, within the noise"),
                Difference::TooFew(Some(ratio)) => {
                    (times(ratio), "from too few comparable rounds to call it real")
                }
                Difference::TooFew(None) => {
                    let cells = &results.cells[load];
                    let (first, second) = (&cells[found.own], &cells[found.peer]);
                    return format!(
                        "Peers: how {own} stands to {peer} in datagrams/s is not known: {}.",
                        no_ratio_because(first, second, found.metric)
                    );
                }
            };
            format!(
                "Peers: {own} has {times} the datagrams/s of the best of them, {peer}; {worth}."
            )
        })
        .collect()
}

/// For a program.
pub fn values(results: &Results, load: usize, offloaded: bool) -> Value {
    let value = |found: &Against| {
        let ratio = found.ratio.ratio();
        let interval = ratio.and_then(|ratio| ratio.interval);
        json!({
            "metric": found.metric.name,
            "own": results.rows[found.own].spec(),
            "peer": results.rows[found.peer].spec(),
            "own_to_peer": {
                "median": ratio.map(|ratio| ratio.median),
                "low": interval.map(|interval| interval.low),
                "high": interval.map(|interval| interval.high),
                "pairs": ratio.map(|ratio| ratio.samples),
                "verdict": match found.ratio {
                    Difference::Real(_) => "real",
                    Difference::Tie(_) => "tie",
                    Difference::TooFew(_) => "too_few_pairs",
                },
            },
        })
    };
    against(results, load, offloaded).iter().map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::plan::Row;
    use crate::udp::report::fixture;

    /// The fixture, in which the row of that index is a peer's.
    fn with_peer(index: usize) -> Results {
        let mut results = fixture::results();
        let spec = results.rows[index].design.clone();
        results.rows[index] = Row::parse_peer(&format!("other {spec}=program")).unwrap();
        results
    }

    #[test]
    fn without_peers_nothing_is_said() {
        let results = fixture::results();
        assert!(said(&results, 0, false).is_empty() && values(&results, 0, false) == json!([]));
    }

    #[test]
    fn the_best_of_each_are_compared() {
        // blocking, 1.32 M/s; the best is rio-hybrid with 2.05 M/s.
        let results = with_peer(1);
        let found = against(&results, 0, false).unwrap();
        assert_eq!((found.own, found.peer), (3, 1));
        let ratio = found.ratio.ratio().unwrap();
        assert!((ratio.median - 2.05 / 1.32).abs() < 1e-9, "{ratio:?}");
        let text = said(&results, 0, false).concat();
        let end = "the datagrams/s of the best of them, other blocking (peer); a real difference.";
        assert!(text.ends_with(end), "{text}");
        assert!(against(&results, 1, false).is_none(), "its latency is only its word");
    }

    #[test]
    fn a_peer_that_wins_is_told_as_well() {
        let mut results = with_peer(1);
        for sample in &mut results.cells[0][1].samples {
            sample.received_per_s = sample.received_per_s.map(|rate| rate * 3.0);
        }
        let found = against(&results, 0, false).unwrap();
        assert_eq!((found.own, found.peer), (3, 1));
        let ratio = found.ratio.ratio().unwrap();
        assert!((ratio.median - 2.05 / 3.96).abs() < 1e-9, "{ratio:?}");
        assert!(ratio.interval.is_some_and(|i| i.low <= i.high), "{ratio:?}");
        assert_eq!(values(&results, 0, false)[0]["own_to_peer"]["verdict"], "real");
        // One row that is three times itself.
        for sample in &mut results.cells[0][4].samples {
            sample.received_per_s = sample.received_per_s.map(|rate| rate * 3.0);
        }
        assert!(against(&results, 0, false).is_none(), "it is too noisy to compare");
    }
}
