//! What receive offload brings: each design with it against itself without, in the same rounds.

use crate::stats::compare::Difference;
use crate::udp::results::Results;

/// One design with and without.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gain {
    /// Index of the row without.
    pub plain: usize,
    /// Index of the row with it.
    pub offloaded: usize,
    /// The figure with it to the figure without.
    pub ratio: Difference,
}

/// What it brings under one load.
#[derive(Debug, Clone, PartialEq)]
pub struct Gains {
    /// Each design that was measured both ways, in the order of the rows.
    pub designs: Vec<Gain>,
    /// The best row with it against the best without.
    pub best: Option<Gain>,
    /// The best row with it against the traditional design.
    pub to_traditional: Option<Gain>,
}

/// What it brings under a load; `None` where rows of both kinds were not measured.
pub fn of_load(results: &Results, load: usize) -> Option<Gains> {
    if results.groups(load).len() < 2 {
        return None;
    }
    let (plain, offloaded) = (results.ranking(load, false), results.ranking(load, true));
    let metric = results.ranked_by(load);
    let gain = |with: usize, without: usize| {
        let ratio = results.against(load, metric, (with, without));
        Gain { plain: without, offloaded: with, ratio }
    };
    let pair_of = |with: usize| {
        let same = |without: &usize| results.rows[*without].spec() == results.rows[with].spec();
        plain.places.iter().map(|place| place.row).find(same)
    };
    let mut rows: Vec<usize> = offloaded.places.iter().map(|place| place.row).collect();
    rows.sort_unstable();
    let designs: Vec<Gain> =
        rows.into_iter().filter_map(|with| Some(gain(with, pair_of(with)?))).collect();
    let best_with = offloaded.winner().map(|place| place.row);
    let best_without = plain.winner().map(|place| place.row);
    let traditional = results.measure().filter(|row| plain.place(*row).is_some());
    let best_to = |without: Option<usize>| Some(gain(best_with?, without?));
    Some(Gains { designs, best: best_to(best_without), to_traditional: best_to(traditional) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::udp::report::fixture;

    #[test]
    fn each_design_is_paired_with_itself_and_the_best_with_the_best() {
        let results = fixture::with_offload();
        let gains = of_load(&results, 0).unwrap();
        let of: Vec<(usize, usize)> =
            gains.designs.iter().map(|gain| (gain.plain, gain.offloaded)).collect();
        assert_eq!(of, [(1, 7), (3, 8)], "the rows that were measured both ways");
        let ratio = |gain: Gain| match gain.ratio {
            Difference::Real(ratio) => ratio.median,
            other => panic!("{other:?}"),
        };
        assert!((ratio(gains.designs[0]) - 8.0).abs() < 1e-9);
        assert!((ratio(gains.designs[1]) - 10.0).abs() < 1e-9);
        let best = gains.best.unwrap();
        assert_eq!((best.plain, best.offloaded), (3, 8));
        let to_traditional = gains.to_traditional.unwrap();
        assert_eq!(to_traditional.plain, 0);
        assert!(ratio(to_traditional) > 26.0);
    }

    #[test]
    fn without_rows_of_both_kinds_there_is_nothing_to_pair() {
        assert_eq!(of_load(&fixture::results(), 0), None);
        let mut results = fixture::with_offload();
        results.loads[0].takes.offloaded = false;
        assert_eq!(of_load(&results, 0), None);
    }
}
