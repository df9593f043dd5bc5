//! Whether rates decline with time, as the original's did: a row of text for each.

use crate::device::results::{LongRun, Results};
use crate::device::rows::title;
use crate::device::sample::CHANGE;
use crate::experiment::plan::Role;
use crate::iops::{JudgedBy, OverTime, Trend, Verdict};
use crate::report::number::{bytes, si};
use crate::report::words::list;
use crate::stats::Estimate;

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
        Some(LongRun::Made(Some(found))) if load == 0 => Some(of_long_run(found)),
        Some(LongRun::Failed(reason)) if load == 0 => {
            Some(format!("its long run failed: {reason}"))
        }
        _ => Some(of_short_runs(&results.cells[load][row].estimate(&CHANGE, results.seed)?)),
    }
}

fn of_long_run(found: &OverTime) -> String {
    let trend = |trend: &Option<Trend>| match trend {
        Some(Trend { percent, low, high, .. }) => {
            format!("{percent:+.1} % ({low:+.1} to {high:+.1})")
        }
        None => "unknown".into(),
    };
    let memory = found.resident_bytes.map_or(String::new(), |ends| {
        format!("; resident {} to {}", bytes(ends.first), bytes(ends.last))
    });
    let by = match found.judged_by {
        JudgedBy::Rate => "",
        JudgedBy::PerCpu => " (per CPU second, since others had the cores)",
    };
    format!(
        "{}{by}: {} to {}; first tenth {} I/Os/s, last {}; per CPU second {}; {} itself {}{memory}",
        found.verdict,
        trend(&found.rate),
        found.control,
        si(found.ios_per_s.first),
        si(found.ios_per_s.last),
        trend(&found.per_cpu),
        found.control,
        trend(&found.control_rate),
    )
}

/// Which verdicts a sentence is about.
type Wanted = fn(&Verdict) -> bool;

/// The answer to whether rates decline: by long runs alone.
pub fn answer(results: &Results) -> Vec<String> {
    let of = |wanted: Wanted| -> Vec<String> {
        let rows = results.rows.iter().zip(&results.own.long_runs);
        let said = rows.filter_map(|(row, run)| {
            let Some(LongRun::Made(Some(found))) = run else { return None };
            let verdict = found.judged().map_or(Verdict::Unknown, Trend::verdict);
            let percent = match verdict {
                Verdict::Declines(percent) => format!(" (by {percent:.1} %)"),
                Verdict::Rises(percent) => format!(" (it rises by {percent:.1} %)"),
                Verdict::Steady(within) => format!(" (within ±{within:.1} %)"),
                Verdict::AtMost(percent) => format!(" (by more than {percent:.1} %)"),
                Verdict::Unknown => String::new(),
            };
            wanted(&verdict).then(|| format!("{}{percent}", title(row)))
        });
        said.collect()
    };
    let time = results.own.long_run.map_or(0.0, |time| time.as_secs_f64());
    let sentences: [(&str, Wanted); 3] = [
        ("declines", |of| matches!(of, Verdict::Declines(_))),
        ("does not decline", |of| {
            matches!(of, Verdict::Steady(_) | Verdict::AtMost(_) | Verdict::Rises(_))
        }),
        ("may or may not decline", |of| matches!(of, Verdict::Unknown)),
    ];
    sentences
        .into_iter()
        .map(|(verdict, wanted)| (verdict, of(wanted)))
        .filter(|(_, names)| !names.is_empty())
        .map(|(verdict, names)| {
            format!(
                "Over {time} s of its own beside plain reads, the rate {verdict}: {}.",
                list(&names)
            )
        })
        .collect()
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
        _ => "no clear trend",
    };
    format!("{median:+.2} % a second, 95 % interval: {low:+.2} to {high:+.2}; {verdict}")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::device::results::tests::results;
    use crate::iops::{Plan, Turn};
    use std::time::Duration;

    /// A run whose rate changes by so much from its beginning to its end.
    pub fn found(percent: f64) -> OverTime {
        let plan = Plan::of(Duration::from_secs(60));
        let turn = |completed: f64| Turn {
            completed: completed as u64,
            elapsed_ns: 1_000_000_000,
            cpu_ns: Some(900_000_000),
            outstanding: 128,
            resident_bytes: Some(1 << 22),
            ..Turn::default()
        };
        let turns = plan.turns() as usize;
        let slope = (1.0 + percent / 100.0).ln() / turns as f64;
        let designs: Vec<Turn> =
            (0..turns).map(|at| turn(2e9 * (slope * at as f64).exp())).collect();
        OverTime::of("sync", &plan, &vec![turn(1e9); turns + 1], &designs, None)
    }

    #[test]
    fn every_row_has_one() {
        let mut results = results(&[("sync", 2e6), ("ring", 1e6), ("no-op", 3e6)], 0);
        for (block, sample) in results.cells[0][1].samples.iter_mut().enumerate() {
            sample.change_percent_per_s = Some(-5.0 - block as f64);
        }
        results.own.long_runs[2] = Some(LongRun::Made(Some(Box::new(found(-11.0)))));
        let said = said(&results, 0);
        assert_eq!(said.len(), 3, "the second name has none: {said:?}");
        assert!(
            said[0].starts_with("sync   +0.00 % a second") && said[0].contains("no clear trend"),
            "{said:?}"
        );
        assert!(said[1].contains("-8.00 % a second") && said[1].ends_with("it falls"), "{said:?}");
        assert!(
            said[2].starts_with("no-op  declines by 11.0 %: -11.0 % (-11.0 to -11.0) to sync"),
            "{said:?}"
        );
        assert!(
            said[2].contains("sync itself +0.0 %") && said[2].ends_with("resident 4 MiB to 4 MiB"),
            "{said:?}"
        );
        results.cells[0][1].samples.truncate(3);
        assert!(super::said(&results, 0)[1].contains("too few runs"));
    }

    #[test]
    fn the_answer_names_who_declines_and_who_does_not() {
        let mut results =
            results(&[("sync", 2e6), ("ring", 1e6), ("no-op", 3e6), ("port", 1e6)], 0);
        assert!(answer(&results).is_empty());
        results.own.long_run = Some(Duration::from_secs(60));
        for (row, percent) in [(0, 0.0), (1, -11.0), (2, 4.0)] {
            results.own.long_runs[row] = Some(LongRun::Made(Some(Box::new(found(percent)))));
        }
        let short = OverTime::of("sync", &Plan::of(Duration::from_secs(3)), &[], &[], None);
        results.own.long_runs[3] = Some(LongRun::Made(Some(Box::new(short))));
        let said = answer(&results);
        assert_eq!(said.len(), 3, "{said:?}");
        assert!(said[0].ends_with("the rate declines: ring (by 11.0 %)."), "{said:?}");
        assert!(
            said[1]
                .contains("does not decline: sync (within ±0.0 %) and no-op (it rises by 4.0 %)"),
            "{said:?}"
        );
        assert!(said[2].ends_with("may or may not decline: port."), "{said:?}");
    }
}
