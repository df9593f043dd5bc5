//! From what is asked of a comparison of UDP to its loads, and how often they run.

pub mod asked;
pub mod budget;
pub mod load;
pub mod work;

pub use asked::{Asked, Sweep};
pub use load::{Goal, Load, Rate, Shown, Takes};
pub use work::Work;

use crate::experiment::plan::Row;

/// The rows of `rows` that take part in a load and may run here, as far as is known: the second
/// name of a row is one of them.
pub fn rows_of(load: &Load, rows: &[Row]) -> Vec<usize> {
    let taking = |index: &usize| load.takes(&rows[*index]) && rows[*index].unavailable.is_none();
    (0..rows.len()).filter(taking).collect()
}

/// The seconds of each load: what it aims at, in proportion. A single load has all.
///
/// With each load, how many rows it has. A load that compares wants more rounds than a step of a
/// search, and one of many rows takes longer.
pub fn shares(rounds_of: impl Fn(&Load) -> u32, loads: &[(Load, usize)], seconds: f64) -> Vec<f64> {
    let weight = |(load, rows): &(Load, usize)| f64::from(rounds_of(load)) * *rows as f64;
    let weights: Vec<f64> = loads.iter().map(weight).collect();
    let all: f64 = weights.iter().sum();
    weights.iter().map(|weight| seconds * weight / all.max(1.0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::plan::Depth;

    #[test]
    fn the_whole_budget_is_shared_out() {
        let base = Load::saturation(64);
        for depth in [Depth::Quick, Depth::Standard, Depth::Full] {
            let loads = Asked::new(depth, base).loads();
            let loads: Vec<(Load, usize)> = loads.into_iter().map(|load| (load, 10)).collect();
            let shares = shares(|load| budget::aims_at(depth, load), &loads, 100.0);
            assert!((shares.iter().sum::<f64>() - 100.0).abs() < 1e-9);
            assert!(shares.iter().all(|share| *share > 0.0));
        }
        let paced = base.at(Rate::PerSecond(1));
        assert_eq!(
            shares(|load| budget::aims_at(Depth::Standard, load), &[(paced, 3)], 10.0),
            vec![10.0]
        );
        assert_eq!(
            shares(|load| budget::aims_at(Depth::Standard, load), &[(base, 3), (paced, 3)], 10.0),
            vec![5.0, 5.0]
        );
        assert_eq!(
            shares(|load| budget::aims_at(Depth::Standard, load), &[(base, 3), (paced, 1)], 8.0),
            vec![6.0, 2.0]
        );
    }
}
