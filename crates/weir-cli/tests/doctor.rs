//! `weir doctor`, as a user and a script see it.

#![forbid(unsafe_code)]

mod common;

use common::{document, output};
use std::process::Output;

fn doctor(arguments: &[&str]) -> Output {
    output(&[&["doctor"], arguments].concat())
}

#[test]
fn every_check_has_its_evidence_and_what_is_wanting_its_consequence() {
    let output = doctor(&["--json"]);
    assert!(output.status.success(), "{output:?}");
    let document = document(&output);
    let checks = document["checks"].as_array().expect("a list");
    assert!(checks.len() > 20, "{document:#}");
    for check in checks {
        let text = |name: &str| check[name].as_str().expect("a text");
        let effect = text("effect");
        assert!(["none", "unknown", "limits", "falsifies"].contains(&effect), "{check:#}");
        assert!(!text("about").is_empty() && !text("found").is_empty(), "{check:#}");
        assert_eq!(text("consequence").is_empty(), effect == "none", "{check:#}");
    }
    assert!(document["costs"]["wake_up_ns"].as_u64().is_some(), "{document:#}");
    assert!(document["machine"]["cores"].as_u64().is_some(), "{document:#}");
}

#[test]
fn what_is_fine_is_shown_where_it_is_asked_for_and_lines_are_short() {
    let (some, all) = (doctor(&[]), doctor(&["--all"]));
    let text = |output: &Output| String::from_utf8(output.stdout.clone()).expect("text");
    assert!(text(&some).contains("--all shows them") && !text(&some).contains("\nFine\n"));
    assert!(text(&all).contains("\nFine\n"), "{}", text(&all));
    for line in text(&all).lines().skip(1) {
        let is_command = line.starts_with(&" ".repeat(17)); // to be copied
        assert!(is_command || line.chars().count() <= 100, "{line}");
    }
}

#[test]
fn what_it_does_not_know_is_refused() {
    let output = doctor(&["--cure"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty(), "{output:?}");
}
