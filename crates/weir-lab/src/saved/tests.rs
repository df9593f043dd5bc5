//! Documents of the fixture, read back.

use serde_json::{Value, json};

use super::claims::{Outcome, judge, of_document};
use super::diff::{Change, Diff};
use super::*;
use crate::report::conclusion::Claim;
use crate::report::document::document;
use crate::stats::compare::Difference;
use crate::stats::{Estimate, Interval};
use crate::udp::report::fixture;
use crate::udp::results::Results;

fn results() -> Results {
    fixture::results()
}

/// The fixture with one row's rates multiplied.
fn changed(row: usize, factor: f64) -> Results {
    let mut results = results();
    for sample in &mut results.cells[0][row].samples {
        sample.received_per_s = sample.received_per_s.map(|rate| rate * factor);
    }
    results
}

fn diff(before: &Value, after: &Value) -> Diff {
    Diff::of(parts(before)[0], parts(after)[0])
}

fn change_of(diff: &Diff, spec: &str) -> Change {
    let row = diff.rows.iter().find(|row| row.spec == spec && row.metric == "received_per_s");
    row.unwrap_or_else(|| panic!("{spec} is missing of {diff:#?}")).change
}

#[test]
fn a_result_does_not_differ_from_itself() {
    let same = document(&results());
    let diff = diff(&same, &same);
    assert!(diff.comparable && !diff.has_regressed());
    assert!(diff.rows.iter().all(|row| row.change == Change::WithinNoise), "{diff:#?}");
    assert!((diff.common_ratio.unwrap() - 1.0).abs() < 1e-9);
    assert!(diff.rows.iter().any(|row| row.metric == "latency_ns.p50"), "{diff:#?}");
    let text = diff.text(80);
    assert!(
        text.contains("The machines are alike.") && text.contains("saturation, 64 B"),
        "{text}"
    );
}

#[test]
fn what_cannot_be_judged_is_said() {
    let before = document(&results());
    let mut short = results();
    short.cells[0][1].samples.truncate(3);
    let one = diff(&before, &document(&short));
    assert_eq!((change_of(&one, "blocking"), one.why_not_judged()), (Change::TooFewRounds, None));
    assert!(one.text(300).contains("rows cannot be judged: too few rounds."), "{}", one.text(300));
    for cell in short.cells.iter_mut().flatten() {
        cell.samples.truncate(3);
    }
    let none = diff(&before, &document(&short));
    assert_eq!(none.why_not_judged(), Some("all rows have too few rounds"));
    assert!(none.text(300).contains("Nothing can be judged: all rows have"), "{}", none.text(300));
}

#[test]
fn what_became_slower_is_a_regression_and_what_became_faster_is_none() {
    let before = document(&results());
    let slower = diff(&before, &document(&changed(1, 0.5)));
    assert_eq!(change_of(&slower, "blocking"), Change::Worse);
    assert!(slower.has_regressed() && slower.text(100).contains("WORSE"));
    let faster = diff(&before, &document(&changed(1, 2.0)));
    assert_eq!(change_of(&faster, "blocking"), Change::Better);
    assert!(!faster.has_regressed());
}

#[test]
fn what_all_rows_changed_together_is_said_once_and_taken_out() {
    let before = document(&results());
    let mut slower = results();
    for row in 0..slower.rows.len() {
        slower.cells[0][row] = changed(row, 0.5).cells[0][row].clone();
    }
    let all = diff(&before, &document(&slower));
    assert_eq!(change_of(&all, "blocking"), Change::WithinNoise, "{all:#?}");
    let common = all.commons.iter().find(|common| common.load == "saturation, 64 B").unwrap();
    assert_eq!(common.change, Some(Change::Worse), "{common:?}");
    assert!((common.ratio - 0.5).abs() < 1e-9 && common.rows >= 3, "{common:?}");
    assert!(all.has_regressed() && all.together().count() == 1);
    assert_eq!(all.text(300).matches("WORSE").count(), 1, "{}", all.text(300));
    // One that changed by itself besides is told all the same.
    slower.cells[0][1] = changed(1, 0.25).cells[0][1].clone();
    let one = diff(&before, &document(&slower));
    assert_eq!(change_of(&one, "blocking"), Change::Worse, "{one:#?}");
    assert_eq!(one.rows.iter().filter(|row| row.change == Change::Worse).count(), 1);
}

#[test]
fn what_rows_have_in_common_is_taken_out_of_those_without_intervals_too() {
    let few = |mut results: Results| {
        results.cells.iter_mut().flatten().for_each(|cell| cell.samples.truncate(3));
        results
    };
    let mut slower = results();
    for row in 0..slower.rows.len() {
        slower.cells[0][row] = changed(row, 0.5).cells[0][row].clone();
    }
    let all = diff(&document(&few(results())), &document(&few(slower)));
    let of_first = || all.rows.iter().filter(|row| row.load == "saturation, 64 B");
    assert!(
        of_first().count() >= 3 && all.commons.iter().all(|one| one.load != "saturation, 64 B")
    );
    for row in of_first() {
        assert_eq!((row.change, row.own_low), (Change::TooFewRounds, None), "{row:?}");
        assert!((row.ratio - 0.5).abs() < 1e-9 && (row.own_ratio - 1.0).abs() < 1e-9, "{row:?}");
    }
}

#[test]
fn on_another_machine_only_what_a_row_changed_against_the_others_counts() {
    let before = document(&results());
    let mut all_slower = results();
    for row in 0..all_slower.rows.len() {
        all_slower.cells[0][row] = changed(row, 0.25).cells[0][row].clone();
    }
    all_slower.loads.truncate(1);
    all_slower.cells.truncate(1);
    all_slower.schedules.truncate(1);
    let mut after = document(&all_slower);
    assert!(diff(&before, &after).has_regressed(), "on the same machine it is one");
    after["machine"]["cpu_model"] = json!("another");
    let other = diff(&before, &after);
    assert!(!other.comparable && !other.has_regressed(), "{other:#?}");
    assert!(other.text(100).contains("cpu_model"));
    assert!(!other.only_before.is_empty(), "the second load is missing after");
    // Nor are figures of loopback and of another link compared.
    let mut linked = before.clone();
    linked["link"] = json!("a pair of veth devices");
    let linked = diff(&before, &linked);
    assert!(!linked.comparable && linked.text(300).contains("link (loopback, then a pair of veth"));
}

#[test]
fn claims_hold_again_fail_where_the_opposite_is_found_and_are_open_where_rows_are_missing() {
    let before = document(&results());
    let claims = of_document(&before);
    assert!(!claims.is_empty());
    let again = judge(&results(), &claims);
    assert_eq!(again.len(), claims.len());
    assert!(again.iter().all(|one| one.outcome == Outcome::Held), "{again:#?}");

    let reversed = judge(&changed(1, 4.0), &claims);
    let of_blocking = |one: &&super::claims::Judged| {
        one.claim.second == "blocking" && one.claim.metric == "received_per_s"
    };
    let one = reversed.iter().find(of_blocking).unwrap();
    assert_eq!(one.outcome, Outcome::Failed, "{one:?}");
    assert!(super::claims::text(&reversed, 80).contains("FAILED"));

    let mut gone = results();
    gone.cells[0][1].samples.clear();
    let open = judge(&gone, &claims);
    assert_eq!(open.iter().find(of_blocking).unwrap().outcome, Outcome::Undecided);
}

#[test]
fn what_is_no_result_is_refused_with_what_to_do() {
    let folder = std::env::temp_dir().join(format!("weir-saved-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let refused = |text: &str| {
        std::fs::write(folder.join(DOCUMENT), text).unwrap();
        Saved::load(&folder).unwrap_err().to_string()
    };
    assert!(refused("no json").contains("is not a JSON document"));
    assert!(refused("{}").contains("it has no schema_version"));
    assert!(refused(r#"{"schema_version": 99}"#).contains("use a newer weir"));
    assert!(refused(r#"{"schema_version": 1, "error": "nothing ran"}"#).contains("nothing ran"));
    assert!(Saved::load(&folder.join("none")).unwrap_err().to_string().contains("cannot read"));
    std::fs::write(folder.join(DOCUMENT), document(&results()).to_string()).unwrap();
    let saved = Saved::load(&folder).unwrap();
    assert_eq!(saved.parts()[0].kind(), "udp");
    assert!(saved.parts()[0].headline().unwrap().starts_with("Use rio-hybrid"));
    // A report holds the result, too.
    let report = folder.join("report.html");
    std::fs::write(&report, crate::report::html::page(&saved.document)).unwrap();
    let of_report = Saved::load(&report).unwrap();
    assert_eq!(of_report.parts()[0].headline(), saved.parts()[0].headline());
    assert_eq!(of_document(&of_report.document).len(), of_document(&saved.document).len());
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn rows_with_and_without_receive_offload_are_not_mistaken_for_each_other() {
    let both = document(&fixture::with_offload());
    let same = diff(&both, &both);
    assert!(same.rows.iter().all(|row| (row.ratio - 1.0).abs() < 1e-9), "{same:#?}");
    let claims = of_document(&both);
    let again = judge(&fixture::with_offload(), &claims);
    assert!(again.iter().all(|one| one.outcome == Outcome::Held), "{again:#?}");
    assert!(claims.iter().any(|(_, claim)| claim.first.ends_with(" (offload)")), "{claims:#?}");
}

#[test]
fn a_claim_fails_only_where_nothing_of_its_interval_is_possible() {
    let claims = of_document(&document(&results()));
    let (_, real) = claims.iter().find(|(_, claim)| claim.second == "blocking").unwrap();
    assert_eq!(real.verdict, crate::report::conclusion::Verdict::Real);
    let interval = Some(Interval { low: 0.9, high: 1.1 });
    let now = Difference::Tie(Estimate { median: 1.0, interval, samples: 9 });
    let tied = |low: f64, high: f64| {
        let claim = Claim { ratio: 1.2, low: Some(low), high: Some(high), ..real.clone() };
        super::claims::held(&claim, &now).0
    };
    assert_eq!(tied(1.05, 1.4), Outcome::Undecided);
    assert_eq!(tied(1.15, 1.4), Outcome::Failed);
}

#[test]
fn rows_of_an_older_document_are_compared_too() {
    let new = document(&results());
    let mut older = new.clone();
    for (list, name) in [("loads", "name"), ("results", "load_name")] {
        for entry in older[list].as_array_mut().unwrap() {
            entry.as_object_mut().unwrap().remove(name);
        }
    }
    assert_eq!(parts(&older)[0].figures().len(), parts(&new)[0].figures().len());
}
