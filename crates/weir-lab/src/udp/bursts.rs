//! What each row takes of datagrams that are sent at once, along rising bursts.

use crate::experiment::plan::Role;
use crate::udp::plan::{Held, Load};
use crate::udp::results::Results;
use crate::udp::sample::PERCENT_OF_SENT;

/// Bursts to servers that do the same meanwhile.
#[derive(Debug, Clone, PartialEq)]
pub struct Bursts {
    /// What the server does meanwhile.
    pub held: Held,
    /// Indices of the loads, the smallest burst first.
    pub loads: Vec<usize>,
    /// The rows that take part, those first that take most of the largest burst.
    pub rows: Vec<usize>,
}

/// All that were measured, in the order of the loads.
pub fn all(results: &Results) -> Vec<Bursts> {
    let mut all: Vec<Bursts> = vec![];
    for (index, load) in results.loads.iter().enumerate() {
        let Some((_, held)) = load.burst() else { continue };
        let same = |of: &&mut Bursts| of.held == held && results.loads[of.loads[0]].is_like(load);
        match all.iter_mut().find(same) {
            Some(bursts) => bursts.loads.push(index),
            None => all.push(Bursts { held, loads: vec![index], rows: vec![] }),
        }
    }
    for bursts in &mut all {
        bursts.loads.sort_by_key(|load| bursts_of(&results.loads[*load]));
        let takes_part = |row: &usize| {
            let again = matches!(results.rows[*row].role, Role::Again(_));
            !again && (0..bursts.loads.len()).any(|at| bursts.taken(results, at, *row).is_some())
        };
        let mut rows: Vec<usize> = (0..results.rows.len()).filter(takes_part).collect();
        let last = bursts.loads.len() - 1;
        let share =
            |row: usize| bursts.taken(results, last, row).map_or(-1.0, |taken| taken.percent);
        rows.sort_by(|a, b| share(*b).total_cmp(&share(*a)));
        bursts.rows = rows;
    }
    all
}

fn bursts_of(load: &Load) -> u64 {
    load.burst().map_or(0, |(datagrams, _)| datagrams)
}

/// What a row took of a burst.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Taken {
    /// Percent of what was sent, the median over the rounds.
    pub percent: f64,
    /// Whether it took everything in every round.
    pub all: bool,
}

impl Bursts {
    /// How many datagrams each burst has.
    pub fn datagrams(&self, results: &Results) -> Vec<u64> {
        self.loads.iter().map(|load| bursts_of(&results.loads[*load])).collect()
    }

    /// What a row took of the burst at a place; `None` where nothing counts.
    pub fn taken(&self, results: &Results, at: usize, row: usize) -> Option<Taken> {
        let load = self.loads[at];
        let percent = results.median(load, row, &PERCENT_OF_SENT)?;
        let ledger = results.cells[load][row].ledger()?;
        Some(Taken { percent, all: ledger.received >= ledger.sent })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::udp::plan::Rate;
    use crate::udp::report::fixture;

    #[test]
    fn bursts_to_like_servers_stand_together_smallest_first() {
        let mut results = fixture::results();
        assert_eq!(all(&results), []);
        let of = |datagrams, held| Load::saturation(64).at(Rate::Burst { datagrams, held });
        results.loads = vec![of(5000, Held::No), of(70, Held::No), of(70, Held::UntilSent)];
        let cells = results.cells[0].clone();
        results.cells = vec![cells.clone(), cells.clone(), cells];
        let found = all(&results);
        let places: Vec<_> = found.iter().map(|of| (of.held, of.loads.clone())).collect();
        assert_eq!(places, [(Held::No, vec![1, 0]), (Held::UntilSent, vec![2])]);
        assert_eq!(found[0].datagrams(&results), [70, 5000]);
        let shares: Vec<f64> = found[0]
            .rows
            .iter()
            .map(|row| found[0].taken(&results, 1, *row).expect("it takes part").percent)
            .collect();
        assert!(!shares.is_empty() && shares.is_sorted_by(|a, b| a >= b), "{shares:?}");
    }
}
