//! weir's designs against programs of other libraries: the best of each, under one load.

use serde_json::Value;

use crate::report::peers::Against;
use crate::udp::results::{Results, Udp};

/// How the best design stands to the best peer, both of one group, by what the load is ranked by. `None` without peers
/// that are ranked, as under loads that are ranked by latency, and where it is too noisy to compare.
pub fn against(results: &Results, load: usize, offloaded: bool) -> Option<Against<Udp>> {
    if results.rows.iter().all(|row| row.peer.is_none()) {
        return None;
    }
    let metric = results.ranked_by(load);
    let ranking = results.ranking(load, offloaded);
    ranking.winner()?; // nobody wins where it is too noisy
    let best = |peer: bool| {
        let is_one = |row: &usize| results.rows[*row].peer.is_some() == peer;
        ranking.places.iter().map(|place| place.row).find(is_one)
    };
    let (own, peer) = (best(false)?, best(true)?);
    let ratio = results.against(load, metric, (own, peer));
    let name = match (results.loads[load].is_paced(), results.loads[load].replies) {
        (true, _) => "the median round trip",
        (false, None) => "the datagrams/s",
        (false, Some(_)) => "the answers/s",
    };
    Some(Against { metric, name, own, peer, ratio })
}

/// In words.
pub fn said(results: &Results, load: usize, offloaded: bool) -> Vec<String> {
    against(results, load, offloaded).iter().map(|found| found.said(results, load, "")).collect()
}

/// For a program.
pub fn values(results: &Results, load: usize, offloaded: bool) -> Value {
    against(results, load, offloaded).iter().map(|found| found.value(results)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::plan::Row;
    use crate::udp::report::fixture;
    use serde_json::json;

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
