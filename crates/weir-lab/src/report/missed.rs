//! What a comparison was to measure and did not: loads without a run, and those with fewer rounds than they were to have.

use crate::experiment::cell::{Conformance, Skipped};
use crate::experiment::results::Results;
use crate::report::Reported;
use crate::report::words::shortened;

/// What a load has less than it was to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Missed {
    /// There was no time for a run of it.
    NoTime,
    /// The comparison was ended before a run of it.
    Interrupted,
    /// There was no time for all of its rounds.
    Rounds {
        /// Complete ones.
        made: u32,
        /// Those that were planned.
        of: u32,
    },
}

fn missed<K: Reported>(results: &Results<K>, load: usize) -> Option<Missed> {
    let cells = &results.cells[load];
    let has_run = cells.iter().any(|cell| !cell.samples.is_empty() || cell.failed_runs > 0);
    match (results.cut[load], results.schedules[load]) {
        (Some(_), _) if !has_run => Some(Missed::NoTime),
        (Some(made), Some(schedule)) => Some(Missed::Rounds { made, of: schedule.rounds }),
        _ if has_run || !results.interrupted => None,
        // What can be run under no load is missed by none.
        _ => (0..results.rows.len())
            .any(|row| results.takes_part(load, row) && could_run(results, load, row))
            .then_some(Missed::Interrupted),
    }
}

/// Whether nothing is known that kept a row from a run under a load but time.
fn could_run<K: Reported>(results: &Results<K>, load: usize, row: usize) -> bool {
    results.rows[row].unavailable.is_none()
        && !matches!(results.conformance[row], Conformance::Failed(_))
        && !matches!(results.cells[load][row].skipped, Some(Skipped::Unavailable(_)))
}

/// Whether a row has no figures under a load only because that was not measured.
pub(crate) fn is_only_that<K: Reported>(results: &Results<K>, load: usize, row: usize) -> bool {
    reason(results, load).is_some() && could_run(results, load, row)
}

/// Why a load was not measured that was to be; `None` if it was, or if its rows say why.
pub(crate) fn reason<K: Reported>(results: &Results<K>, load: usize) -> Option<&'static str> {
    match missed(results, load)? {
        Missed::NoTime => Some("no time for it (-t)"),
        Missed::Interrupted => Some("interrupted before it"),
        Missed::Rounds { .. } => None,
    }
}

/// What a load missed, and why: behind its name.
pub(crate) fn words<K: Reported>(results: &Results<K>, load: usize) -> Option<String> {
    Some(match (missed(results, load)?, reason(results, load)) {
        (Missed::Rounds { made, of }, _) => {
            format!("{made} of {of} rounds complete, no time for more (-t)")
        }
        (_, reason) => format!("not measured, {}", reason.unwrap_or_default()),
    })
}

/// The same of all loads: a sentence for each reason.
pub(crate) fn sentences<K: Reported>(results: &Results<K>) -> Vec<String> {
    let loads = || 0..results.loads.len();
    let without = |wanted: &str| -> Vec<String> {
        let of = loads().filter(|load| reason(results, *load) == Some(wanted));
        of.map(|load| results.loads[load].to_string()).collect()
    };
    let mut reasons: Vec<&str> = loads().filter_map(|load| reason(results, load)).collect();
    reasons.sort_unstable();
    reasons.dedup();
    let said =
        reasons.into_iter().map(|reason| (format!("Not measured, {reason}"), without(reason)));
    let shorter = loads().filter_map(|load| match missed(results, load)? {
        Missed::Rounds { made, of } => {
            Some(format!("{} ({made} of {of} complete)", results.loads[load]))
        }
        Missed::NoTime | Missed::Interrupted => None,
    });
    said.chain([("No time for all rounds (-t)".to_owned(), shorter.collect())])
        .filter(|(_, loads)| !loads.is_empty())
        // The names of loads have commas.
        .map(|(what, loads)| format!("{what}: {}.", shortened(loads).join("; ")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::document::document;
    use crate::report::export::markdown;
    use crate::report::html::page;
    use crate::report::screen::{DETAILS, LINES, foot_of_all, screen};
    use crate::report::table::report;
    use crate::udp::report::fixture;
    use crate::udp::results::Udp;

    /// The fixture without a run of its second load, for which there was no time.
    fn without_paced() -> Results<Udp> {
        let mut results = fixture::results();
        for cell in &mut results.cells[1] {
            *cell = Default::default();
            cell.had_no_time();
        }
        results.cut[1] = Some(0);
        results
    }

    #[test]
    fn a_load_for_which_there_was_no_time_is_named_wherever_there_is_an_answer() {
        let results = without_paced();
        let said = format!("Not measured, no time for it (-t): {}.", results.loads[1]);
        let value = document(&results);
        assert_eq!(value["conclusion"]["sentences"][0], said);
        let text = screen(&value, 100, LINES, DETAILS).replace('\n', " ");
        assert!(text.contains(&said), "{text}");
        let details = report(&results, 200);
        let said = format!("{}: not measured, no time for it (-t)", results.loads[1]);
        assert!(details.contains(&said), "{details}");
        let all = serde_json::json!({ "kind": "all", "udp": value });
        let foot = foot_of_all(&all, 200, DETAILS);
        assert_eq!(foot[0], format!("Not all was measured: UDP, {said}"));
        assert!(!details.contains("no time for a run of it"), "it is said of the load: {details}");
        let section = value["loads"][1]["summary"].as_array().unwrap();
        assert_eq!(section, &["Not measured: no time for it (-t)."]);
        let page = page(&value);
        let section = page.split("id=\"udp-load-1\"").nth(1).unwrap();
        let section = section.split("<section").next().unwrap();
        assert!(section.contains("Not measured: no time for it "), "{section}");
        assert!(!section.contains(" ms after ") && !section.contains("can be ranked"), "{section}");
        assert!(markdown(&value).contains("Not measured, no time for it"));
    }

    #[test]
    fn fewer_rounds_than_planned_and_what_was_interrupted_are_told_apart() {
        let mut results = fixture::results();
        assert!(sentences(&results).is_empty());
        results.cut = vec![Some(6), None];
        let first = results.loads[0].to_string();
        assert_eq!(
            sentences(&results),
            [format!("No time for all rounds (-t): {first} (6 of 8 complete).")]
        );
        results.cut[0] = None;
        results.interrupted = true;
        results.cells[1].fill(Default::default());
        let second = results.loads[1].to_string();
        assert_eq!(
            sentences(&results),
            [format!("Not measured, interrupted before it: {second}.")]
        );
        // A load that no row can run is not missed.
        let reason = || Some(Skipped::Unavailable("no".into()));
        results.cells[1].iter_mut().for_each(|cell| cell.skipped = reason());
        assert!(sentences(&results).is_empty());
    }
}
