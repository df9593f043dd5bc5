//! Where one row overtakes another as each I/O takes longer.

use super::plan::Load;
use super::results::{Group, Results};
use super::sample::RATE;
use crate::experiment::plan::Role;
use crate::stats::compare::Difference;
use crate::udp::crossing::{Crossing, changes};

/// The loads on devices of which every read takes so long, shortest first: for each length by itself, in the
/// order in which the lengths were asked for.
pub fn by_delay(results: &Results) -> Vec<Vec<usize>> {
    let mut axes: Vec<Vec<usize>> = vec![];
    for load in 0..results.loads.len() {
        if results.loads[load].delay().is_none() {
            continue;
        }
        let length = |load: usize| results.loads[load].length;
        match axes.iter_mut().find(|axis| length(axis[0]) == length(load)) {
            Some(axis) => axis.push(load),
            None => axes.push(vec![load]),
        }
    }
    axes.iter_mut().for_each(|axis| axis.sort_by_key(|load| results.loads[*load].delay()));
    axes
}

/// Microseconds that each read takes.
pub fn delay_us(load: &Load) -> f64 {
    load.delay().unwrap_or_default().as_secs_f64() * 1e6
}

/// Every place on an axis of [`by_delay`] where another row overtakes the measure or falls behind it, in
/// microseconds that each I/O takes; `before` and `after` are rows. What reads nothing waits for no I/O, and
/// crosses nobody. Real ones first, then by place.
pub fn with_measure(results: &Results, axis: &[usize]) -> Vec<Crossing> {
    let Some(measure) = results.measure() else { return vec![] };
    let mut all = vec![];
    for row in 0..results.rows.len() {
        let reads = results.group_of(row) != Group::Nothing;
        if row == measure || !reads || matches!(results.rows[row].role, Role::Again(_)) {
            continue;
        }
        let ranked = |load: &usize| {
            [measure, row].into_iter().all(|row| results.unranked(*load, row).is_none())
        };
        let known: Vec<(f64, f64, bool)> = axis
            .iter()
            .filter(|load| ranked(load))
            .filter_map(|load| {
                let difference = results.against(*load, &RATE, (measure, row));
                let real = matches!(difference, Difference::Real(_));
                Some((delay_us(&results.loads[*load]), difference.ratio()?.median.ln(), real))
            })
            .collect();
        all.extend(changes((measure, row), &known));
    }
    all.sort_by(|a, b| b.real.cmp(&a.real).then(a.at.total_cmp(&b.at)));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::results::tests::under;
    use std::time::Duration;

    #[test]
    fn what_waits_for_many_overtakes_what_waits_for_one() {
        let loads = [100, 0, 10].map(|us| Load::delayed(Duration::from_micros(us), 4096));
        let rows: [(&str, &[f64]); 2] =
            [("sync", &[10e3, 2e6, 90e3]), ("ring", &[900e3, 1e6, 900e3])];
        let results = under(loads.to_vec(), &rows, 0);
        assert_eq!(by_delay(&results), [[1, 2, 0]]);
        let crossings = with_measure(&results, &[1, 2, 0]);
        assert_eq!(crossings.len(), 1, "{crossings:?}");
        let Crossing { before, after, between, at, real } = crossings[0].clone();
        assert_eq!((before, after, between, real), (0, 1, (0.0, 10.0), true));
        // The logarithm of the ratio goes from ln 2 to ln 0.1.
        assert!((at - 10.0 * 2f64.ln() / 20f64.ln()).abs() < 1e-6, "{at}");
    }

    #[test]
    fn each_length_has_an_axis_of_its_own() {
        let load = |us, length| Load::delayed(Duration::from_micros(us), length);
        let loads = vec![load(10, 512), load(0, 512), load(0, 4096), load(10, 4096)];
        // With 512 bytes the ring is always ahead, with 4096 never.
        let rows: [(&str, &[f64]); 2] =
            [("sync", &[1e6, 1e6, 2e6, 2e6]), ("ring", &[2e6, 2e6, 1e6, 1e6])];
        let results = under(loads, &rows, 0);
        let axes = by_delay(&results);
        assert_eq!(axes, [[1, 0], [2, 3]]);
        for axis in axes {
            assert_eq!(with_measure(&results, &axis), [], "{axis:?}");
        }
    }
}
