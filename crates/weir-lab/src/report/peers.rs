//! weir's designs against programs of other libraries, in words and for a program.

use serde_json::{Value, json};

use crate::experiment::cell::Metric;
use crate::experiment::ranking::no_ratio_because;
use crate::experiment::results::Results;
use crate::report::Reported;
use crate::report::document::difference;
use crate::report::sentences::times;
use crate::stats::compare::Difference;

/// A design and a peer, each the best by one metric.
pub struct Against<K: Reported> {
    /// By what.
    pub metric: &'static Metric<K::Sample>,
    /// How that is called.
    pub name: &'static str,
    /// The best of weir's rows.
    pub own: usize,
    /// The best of the peers.
    pub peer: usize,
    /// The figure of weir's to that of the peer, over pairs of runs of one round.
    pub ratio: Difference,
}

impl<K: Reported> Against<K> {
    /// In words; `beside` stands behind the design's name.
    pub fn said(&self, results: &Results<K>, load: usize, beside: &str) -> String {
        let [own, peer] = [self.own, self.peer].map(|row| results.title(row));
        let name = self.name;
        let (times, worth) = match &self.ratio {
            Difference::Real(ratio) => (times(ratio), "a real difference"),
            Difference::Tie(ratio) => (times(ratio), "a tie, within the noise"),
            Difference::TooFew(Some(ratio)) => {
                (times(ratio), "from too few comparable rounds to call it real")
            }
            Difference::TooFew(None) => {
                let cells = &results.cells[load];
                return format!(
                    "Peers: how {own} compares with {peer} in {name} is unknown: {}.",
                    no_ratio_because(&cells[self.own], &cells[self.peer], self.metric)
                );
            }
        };
        format!("Peers: {own}{beside} has {times} {name} of the best of them, {peer}; {worth}.")
    }

    /// For a program.
    pub fn value(&self, results: &Results<K>) -> Value {
        json!({
            "metric": self.metric.name,
            "own": results.rows[self.own].spec(),
            "peer": results.rows[self.peer].spec(),
            "own_to_peer": difference(self.ratio),
        })
    }
}
