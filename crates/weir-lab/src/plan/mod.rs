//! What an experiment runs, under which loads, how often and in which order.
//!
//! Rounds are blocks: in each, every row runs once, in a random order that the seed gives
//! again. A machine that slows down for a while then slows all rows of a block, and pairs
//! of one block still tell the truth.

pub mod budget;
pub mod load;
pub mod peer;
pub mod row;
pub mod rows;
pub mod work;

pub use budget::{Depth, Schedule};
pub use load::{Load, Rate};
pub use peer::Peer;
pub use row::{Role, Row, RowError};
pub use work::Work;

use crate::random::Random;

/// Share of the budget that goes to saturation when paced loads follow.
///
/// Half is left to them: a verdict takes as many rounds there, and a paced run has few
/// datagrams, of which percentiles say little.
const SATURATION_SHARE: f64 = 0.5;

/// The loads of a depth for datagrams of one size.
pub fn loads(depth: Depth, base: Load) -> Vec<Load> {
    let at = |rate| base.at(rate);
    match depth {
        Depth::Quick => vec![base],
        Depth::Standard => vec![base, at(Rate::PerSecond(50_000))],
        Depth::Full => vec![
            base,
            at(Rate::PerSecond(50_000)),
            at(Rate::PerSecond(200_000)),
            at(Rate::OfMaximum(0.5)),
            at(Rate::OfMaximum(0.75)),
            at(Rate::OfMaximum(0.9)),
        ],
    }
}

/// Seconds for each load: saturation has most, the paced ones share the rest. A single
/// load has all.
pub fn shares(loads: &[Load], seconds: f64) -> Vec<f64> {
    let paced = loads.iter().filter(|load| load.is_paced()).count();
    let full = loads.len() - paced;
    let for_paced = match (full, paced) {
        (_, 0) => 0.0,
        (0, _) => seconds,
        _ => seconds * (1.0 - SATURATION_SHARE),
    };
    let share = |load: &Load| match load.is_paced() {
        true => for_paced / paced as f64,
        false => (seconds - for_paced) / full as f64,
    };
    loads.iter().map(share).collect()
}

/// Adds one row under a second name, so that the noise can be seen. Returns its place, or
/// `None` if no row can run.
///
/// `preferred` is the index of the row to take; the first row that can run is taken if it
/// is `None` or cannot run.
pub fn add_again(rows: &mut Vec<Row>, preferred: Option<usize>) -> Option<usize> {
    let can_run = |index: &usize| rows.get(*index).is_some_and(|row| row.unavailable.is_none());
    let of = preferred.filter(can_run).or_else(|| (0..rows.len()).find(can_run))?;
    rows.push(rows[of].clone().with_role(Role::Again(of)));
    Some(rows.len() - 1)
}

/// The order of one block: every index of `rows` once.
pub fn block_order(rows: &[usize], random: &mut Random) -> Vec<usize> {
    let mut order = rows.to_vec();
    random.shuffle(&mut order);
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_holds_every_row_once_and_the_seed_gives_it_again() {
        let rows: Vec<usize> = (0..17).collect();
        let mut order = block_order(&rows, &mut Random::seeded(4));
        assert_eq!(order, block_order(&rows, &mut Random::seeded(4)));
        assert_ne!(order, block_order(&rows, &mut Random::seeded(5)));
        order.sort_unstable();
        assert_eq!(order, rows);
    }

    #[test]
    fn one_row_that_can_run_runs_again() {
        let mut rows = vec![Row::parse("epoll").unwrap(), Row::parse("port").unwrap()];
        rows[0].unavailable = Some("no epoll here".into());
        assert_eq!(add_again(&mut rows, Some(0)), Some(2));
        assert_eq!((rows[2].design.as_str(), rows[2].role), ("port", Role::Again(1)));

        let mut none = vec![Row { unavailable: Some("no".into()), ..rows[0].clone() }];
        assert_eq!(add_again(&mut none, None), None);
        assert_eq!(none.len(), 1);
    }

    #[test]
    fn the_whole_budget_is_shared_out() {
        for depth in [Depth::Quick, Depth::Standard, Depth::Full] {
            let shares = shares(&loads(depth, Load::saturation(64)), 100.0);
            assert!((shares.iter().sum::<f64>() - 100.0).abs() < 1e-9);
            assert!(shares.iter().all(|share| *share > 0.0));
        }
        let paced = [Load::saturation(64).at(Rate::PerSecond(1))];
        assert_eq!(shares(&paced, 10.0), vec![10.0]);
    }
}
