//! Where one row overtakes another as each I/O takes longer.

use super::plan::Load;
use super::results::Results;
use super::sample::RATE;
use crate::crossing::{Crossing, changes};
use crate::plan::Role;
use crate::stats::compare::Difference;

/// The loads on devices of which every read takes so long, shortest first.
pub fn by_delay(results: &Results) -> Vec<usize> {
    let mut loads: Vec<usize> =
        (0..results.loads.len()).filter(|load| results.loads[*load].delay().is_some()).collect();
    loads.sort_by_key(|load| results.loads[*load].delay());
    loads
}

/// Microseconds that each read takes.
pub fn delay_us(load: &Load) -> f64 {
    load.delay().unwrap_or_default().as_secs_f64() * 1e6
}

/// Every place where another row overtakes the measure or falls behind it, in microseconds that each I/O
/// takes; `before` and `after` are rows. Real ones first, then by place.
pub fn with_measure(results: &Results) -> Vec<Crossing> {
    let loads = by_delay(results);
    let Some(measure) = results.measure() else { return vec![] };
    let mut all = vec![];
    for row in 0..results.rows.len() {
        if row == measure || matches!(results.rows[row].role, Role::Again(_)) {
            continue;
        }
        let ranked = |load: &usize| {
            [measure, row].into_iter().all(|row| results.unranked(*load, row).is_none())
        };
        let known: Vec<(f64, f64, bool)> = loads
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
    use crate::devices::results::tests::under;
    use std::time::Duration;

    #[test]
    fn what_waits_for_many_overtakes_what_waits_for_one() {
        let loads = [100, 0, 10].map(|us| Load::delayed(Duration::from_micros(us), 4096));
        let rows: [(&str, &[f64]); 2] =
            [("sync", &[10e3, 2e6, 90e3]), ("ring", &[900e3, 1e6, 900e3])];
        let results = under(loads.to_vec(), &rows, 0);
        assert_eq!(by_delay(&results), [1, 2, 0]);
        let crossings = with_measure(&results);
        assert_eq!(crossings.len(), 1, "{crossings:?}");
        let Crossing { before, after, between, at, real } = crossings[0].clone();
        assert_eq!((before, after, between, real), (0, 1, (0.0, 10.0), true));
        // The logarithm of the ratio goes from ln 2 to ln 0.1.
        assert!((at - 10.0 * 2f64.ln() / 20f64.ln()).abs() < 1e-6, "{at}");
    }
}
