//! The check that every design that a `weir` says it can run passes its checks in a comparison, as a user starts one. It is
//! for `weir.exe` under Wine: that asks neither for a rank nor for a rate.

use std::{
    collections::BTreeMap,
    process::{Command, ExitCode, Stdio},
};

use anyhow::{Context as _, ensure};
use clap::Args;
use serde_json::Value;

/// Compare all UDP designs and all TCP designs that a weir can run, for a moment, and check that each passed its checks.
#[derive(Args)]
pub struct Checked {
    /// Words that start weir.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    weir: Vec<String>,
}

/// What is compared, and the list of its designs in the document of `weir designs`.
const KINDS: [(&str, &str); 2] = [("udp", "designs"), ("tcp", "tcp_designs")];

impl Checked {
    /// Prints which rows are missing or did not pass, and says failure if any.
    ///
    /// # Errors
    /// If weir cannot be started, or prints no document.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let (designs, _) = self.document(&["designs", "--json"])?;
        let mut all_passed = true;
        for (kind, list) in KINDS {
            let runs = that_run(&designs[list]);
            ensure!(!runs.is_empty(), "weir says that it can run no design of {kind}");
            // Rounds instead of a time, as under Wine the checks alone take longer than any that is sensible elsewhere.
            let words = ["compare", kind, "--quick", "--rounds", "1", "--no-save", "--json"];
            let (compared, said) = self.document(&words)?;
            let problems = problems(&runs, &compared);
            problems.iter().for_each(|problem| eprintln!("compare {kind}: {problem}"));
            if problems.is_empty() {
                println!("compare {kind}: all {} designs passed their checks", runs.len());
            } else {
                eprintln!("{said}");
                all_passed = false;
            }
        }
        Ok(if all_passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// What weir prints with these words, as a document, and what it says beside it. How it ends says nothing here: noise
    /// alone makes a comparison end with 3, and whatever else went wrong is missing in the document.
    fn document(&self, words: &[&str]) -> anyhow::Result<(Value, String)> {
        let (program, first) = self.weir.split_first().context("no program is named")?;
        let made = Command::new(program)
            .args(first)
            .args(words)
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("starting {program}"))?;
        let said = String::from_utf8_lossy(&made.stderr).into_owned();
        let document = serde_json::from_slice(&made.stdout).with_context(|| {
            format!("reading what {words:?} printed, which ended with {}:\n{said}", made.status)
        })?;
        Ok((document, said))
    }
}

/// The designs of a list that can run.
fn that_run(list: &Value) -> Vec<&str> {
    let entries = list.as_array().into_iter().flatten();
    entries.filter(|entry| entry["status"] == "ok").filter_map(|of| of["name"].as_str()).collect()
}

/// What is wrong with a comparison in which these designs should have passed: each has a row, and no row of theirs, whatever
/// its options, is without checks that passed.
fn problems(runs: &[&str], compared: &Value) -> Vec<String> {
    let mut rows: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for row in compared["results"].as_array().into_iter().flatten() {
        rows.entry(row["design"].as_str().unwrap_or_default()).or_default().push(row);
    }
    let mut problems = Vec::new();
    if let Some(error) = compared["error"].as_str() {
        problems.push(error.to_owned());
    }
    for &design in runs {
        let of_it = rows.get(design).map_or(&[][..], Vec::as_slice);
        if of_it.is_empty() {
            problems.push(format!("{design} can run, and has no row"));
        }
        problems.extend(of_it.iter().filter(|row| row["conformance"] != "passed").map(|row| {
            let of = |field: &str| row[field].as_str().unwrap_or("-").to_owned();
            format!(
                "{}: checks {}, {}: {}",
                of("name"),
                of("conformance"),
                of("status"),
                of("reason")
            )
        }));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_design_that_runs_has_rows_whose_checks_passed() {
        let designs = json!([
            {"name": "a", "status": "ok"},
            {"name": "b", "status": "ok"},
            {"name": "c", "status": "unavailable"},
        ]);
        let runs = that_run(&designs);
        assert_eq!(runs, ["a", "b"]);
        let row = |design: &str, conformance: &str| json!({"design": design, "name": design, "conformance": conformance});
        let of = |rows: &[Value]| problems(&runs, &json!({"error": null, "results": rows})).len();
        let (a, b, c) = (row("a", "passed"), row("b", "passed"), row("c", "not_checked"));
        assert_eq!(of(&[a.clone(), b.clone(), c.clone()]), 0);
        assert_eq!(of(&[a.clone(), c]), 1, "no row of b");
        assert_eq!(of(&[a.clone(), b.clone(), row("b", "failed")]), 1, "one of two rows");
        assert_eq!(of(&[a, row("b", "not_checked")]), 1);
        assert_eq!(of(&[]), 2);
        let failed = json!({"error": "no cores", "results": []});
        assert_eq!(problems(&runs, &failed).len(), 3);
    }
}
