//! Whether rates fall with time, as the original's did: a row of text for each.

use crate::device::results::{LongRun, Results};
use crate::device::rows::title;
use crate::device::sample::CHANGE;
use crate::experiment::plan::Role;
use crate::iops::Decay;
use crate::stats::Estimate;

/// What a slope says.
pub fn verdict(decay: &Decay) -> &'static str {
    match (decay.falls(), decay.rises()) {
        (true, _) => "it falls",
        (_, true) => "it rises",
        _ => "neither falls nor rises for sure",
    }
}

/// A row of text for each row that has figures: its long run, if it made one, and else what its short runs
/// show of a load.
pub fn said(results: &Results, load: usize) -> Vec<String> {
    let rows = (0..results.rows.len())
        .filter(|row| !matches!(results.rows[*row].role, Role::Again(_)))
        .filter_map(|row| Some((row, of_row(results, load, row)?)));
    let texts: Vec<(String, String)> =
        rows.map(|(row, text)| (title(&results.rows[row]), text)).collect();
    let widest = texts.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    texts.into_iter().map(|(name, text)| format!("{name:widest$}  {text}")).collect()
}

fn of_row(results: &Results, load: usize, row: usize) -> Option<String> {
    match &results.own.long_runs[row] {
        Some(LongRun::Made(Some(decay))) if load == 0 => Some(format!(
            "{:+.2} % a minute, 95 % sure: {:+.2} to {:+.2}; {}",
            decay.percent_per_minute,
            decay.low,
            decay.high,
            verdict(decay)
        )),
        Some(LongRun::Failed(reason)) if load == 0 => {
            Some(format!("its long run failed: {reason}"))
        }
        _ => Some(of_short_runs(&results.cells[load][row].estimate(&CHANGE, results.seed)?)),
    }
}

fn of_short_runs(change: &Estimate) -> String {
    let median = change.median;
    let Some(interval) = change.interval else {
        return format!("{median:+.2} % a second, of too few runs for an interval");
    };
    let (low, high) = (interval.low, interval.high);
    let verdict = match (high < 0.0, low > 0.0) {
        (true, _) => "it falls",
        (_, true) => "it rises",
        _ => "neither falls nor rises for sure",
    };
    format!("{median:+.2} % a second, 95 % sure: {low:+.2} to {high:+.2}; {verdict}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::results::tests::results;

    #[test]
    fn every_row_has_one() {
        let mut results = results(&[("sync", 2e6), ("ring", 1e6), ("no-op", 3e6)], 0);
        for (block, sample) in results.cells[0][1].samples.iter_mut().enumerate() {
            sample.change_percent_per_s = Some(-5.0 - block as f64);
        }
        let decay = Decay { percent_per_minute: 1.0, low: 0.5, high: 2.0, points: 30 };
        results.own.long_runs[2] = Some(LongRun::Made(Some(decay)));
        let said = said(&results, 0);
        assert_eq!(said.len(), 3, "the second name has none: {said:?}");
        assert!(
            said[0].starts_with("sync   +0.00 % a second") && said[0].contains("neither"),
            "{said:?}"
        );
        assert!(said[1].contains("-8.00 % a second") && said[1].ends_with("it falls"), "{said:?}");
        assert!(said[2].contains("+1.00 % a minute") && said[2].ends_with("it rises"), "{said:?}");
        results.cells[0][1].samples.truncate(3);
        assert!(super::said(&results, 0)[1].contains("too few runs"));
    }
}
