//! Results that are kept: listed, compared, run again; and what explains them.

#![forbid(unsafe_code)]

mod common;

use std::path::{Path, PathBuf};
use std::process::Output;

use common::{errors, output, weir};
use serde_json::{Value, json};

/// A folder of this test's own.
fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("weir-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The folder that the last line names.
fn kept(output: &Output) -> PathBuf {
    let text = text(output);
    let last = text.lines().last().unwrap_or_default();
    last.strip_prefix("results: ").unwrap_or_else(|| panic!("{text}")).into()
}

fn document_in(folder: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(folder.join("result.json")).unwrap()).unwrap()
}

/// A result with one load and these rows, whose figures are certain.
fn made_up(rates: &[(&str, f64)], claims: Value) -> Value {
    let row = |(spec, rate): &(&str, f64)| {
        json!({
            "spec": spec, "provider": null, "role": "plain", "rank": 1, "reason": null,
            "load": {}, "load_name": "one",
            "metrics": { "ios_per_s": { "median": rate, "low": rate * 0.99, "high": rate * 1.01 } },
            "runs": [],
        })
    };
    json!({
        "schema_version": 1,
        "kind": "iops",
        "command": ["weir", "compare", "iops", "--design", "sync", "--rounds", "1", "--quick"],
        "machine": { "cpu_model": "one" },
        "conclusion": { "headline": "Use one.", "sentences": [], "claims": claims },
        "loads": [{ "name": "one", "load": {}, "ranked_by": "ios_per_s", "noise_floor_percent": 2.0 }],
        "results": rates.iter().map(row).collect::<Vec<_>>(),
        "error": null,
    })
}

fn written(path: &Path, document: &Value) -> String {
    std::fs::write(path, document.to_string()).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_comparison_is_kept_listed_and_does_not_differ_from_itself() {
    if !common::can_compare("iops") {
        return;
    }
    let base = folder("kept");
    let results = base.to_str().unwrap();
    let words = ["compare", "iops", "--design", "sync", "--rounds", "2", "--results", results];
    let run = output(&words);
    common::assert_compared(&run);
    assert!(text(&run).lines().count() <= 24, "{}", text(&run));
    let kept = kept(&run);
    let document = document_in(&kept);
    assert_eq!(document["kind"], "iops");
    assert!(document["started_at"].as_str().is_some_and(|at| at.ends_with('Z')), "{document:#}");
    assert!(document["conclusion"]["headline"].is_string());
    let details = std::fs::read_to_string(kept.join("details.txt")).unwrap();
    assert!(details.contains("× best") && details.lines().count() > 24, "{details}");

    let listed = output(&["history", "--results", results]);
    assert_eq!(listed.status.code(), Some(0), "{}", errors(&listed));
    assert!(text(&listed).contains("iops: "), "{}", text(&listed));
    let listed = output(&["history", "--results", results, "--json"]);
    let all = common::document(&listed);
    assert_eq!(all["results"].as_array().map(Vec::len), Some(1));
    assert_eq!(all["results"][0]["kind"], "iops");

    let kept = kept.to_str().unwrap();
    let same = output(&["diff", kept, kept]);
    assert_eq!(same.status.code(), Some(1), "{}", errors(&same));
    assert!(text(&same).contains("The machines are alike."), "{}", text(&same));
    let too_few = "Nothing can be judged: all rows have too few rounds.";
    assert!(text(&same).contains(too_few), "{}", text(&same));

    // Nothing is kept where nobody wants it.
    let words = ["compare", "iops", "--design", "sync", "--rounds", "1", "--no-save"];
    let run = output(&words);
    assert!(!text(&run).contains("results: "), "{}", text(&run));
    std::fs::remove_dir_all(base).unwrap();
}

#[test]
fn what_became_worse_ends_with_4() {
    let base = folder("diff");
    let before = written(&base.join("a.json"), &made_up(&[("x", 100.0), ("y", 100.0)], json!([])));
    let after = written(&base.join("b.json"), &made_up(&[("x", 80.0), ("y", 101.0)], json!([])));
    let worse = output(&["diff", &before, &after]);
    assert_eq!(worse.status.code(), Some(4), "{}", errors(&worse));
    assert!(text(&worse).contains("WORSE"), "{}", text(&worse));
    let document = common::document(&output(&["diff", &before, &after, "--json"]));
    assert_eq!(document["diffs"][0]["rows"][0]["change"], "worse");
    assert_eq!(document["diffs"][0]["rows"][1]["change"], "within_noise");
    assert_eq!(output(&["diff", &after, &before]).status.code(), Some(0));
    std::fs::remove_dir_all(base).unwrap();
}

#[test]
fn a_comparison_is_held_against_a_baseline() {
    if !common::can_compare("iops") {
        return;
    }
    let base = folder("baseline");
    // No device makes so many.
    let before = made_up(&[("sync", 1e15)], json!([]));
    let before = written(&base.join("a.json"), &before);
    let words = ["compare", "iops", "/dev/null", "--design", "sync", "--rounds", "6", "--no-save"];
    let run = output(&[&words[..], &["--baseline", &before, "--json"]].concat());
    // Another load, another machine: nothing can be judged, and a job that relies on it must not pass.
    assert!(matches!(run.status.code(), Some(1 | 3)), "{}: {}", run.status, errors(&run));
    assert!(common::document(&run)["baseline"].is_array());
    let missing = output(&[&words[..], &["--baseline", "/nonexistent/x"]].concat());
    assert_eq!(missing.status.code(), Some(2));
    assert!(errors(&missing).contains("cannot read /nonexistent/x"), "{}", errors(&missing));
    std::fs::remove_dir_all(base).unwrap();
}

#[test]
fn claims_are_judged_again() {
    if !common::can_compare("iops") {
        return;
    }
    let base = folder("reproduce");
    let claim = json!([{
        "text": "sync has 2.00 times that of ring", "evidence": "#iops-load-0",
        "load": "/dev/null, 4096 B", "metric": "ios_per_s", "first": "sync", "second": "ring",
        "verdict": "real", "ratio": 2.0, "low": 1.9, "high": 2.1,
    }]);
    let saved = written(&base.join("a.json"), &made_up(&[("sync", 1.0)], claim));
    let run = output(&["reproduce", &saved, "--json", "--no-save"]);
    common::assert_compared(&run);
    let document = common::document(&run);
    assert_eq!(document["claims"][0]["outcome"], "undecided", "ring is no row of it");
    assert!(document["claims"][0]["why"].as_str().unwrap().contains("not a row"));
    let shown = output(&["reproduce", &saved, "--no-save"]);
    assert!(text(&shown).contains("inconclusive: sync has 2.00"), "{}", text(&shown));

    let none = written(&base.join("b.json"), &made_up(&[("sync", 1.0)], json!([])));
    let none = output(&["reproduce", &none, "--no-save"]);
    assert_eq!(none.status.code(), Some(1));
    assert!(errors(&none).contains("contains no claims to check"), "{}", errors(&none));
    std::fs::remove_dir_all(base).unwrap();
}

#[test]
fn what_is_no_result_is_refused() {
    let base = folder("refused");
    let text = written(&base.join("a.json"), &json!("text"));
    for words in [&["diff", &text, &text][..], &["reproduce", &text, "--no-save"]] {
        let run = output(words);
        assert_eq!(run.status.code(), Some(2), "{words:?}: {}", errors(&run));
        assert!(errors(&run).contains("holds no results"), "{}", errors(&run));
    }
    let empty = output(&["history", "--results", base.join("none").to_str().unwrap()]);
    assert_eq!(empty.status.code(), Some(2));
    assert!(errors(&empty).contains("there is no such folder"), "{}", errors(&empty));
    let file = output(&["history", "--results", "/dev/null"]);
    assert_eq!(file.status.code(), Some(2));
    assert!(errors(&file).contains("it is not a folder"), "{}", errors(&file));
    let by_default = weir(&["history"]).current_dir(&base).env_remove("WEIR_RESULTS").output();
    assert_eq!(by_default.unwrap().status.code(), Some(0), "nothing is kept yet");
    std::fs::remove_dir_all(base).unwrap();
}

#[test]
fn columns_are_explained() {
    let all = output(&["explain"]);
    assert_eq!(all.status.code(), Some(0));
    assert!(text(&all).contains("[cpu_ns_per_datagram, ns]"), "{}", text(&all));
    let one = output(&["explain", "×", "best"]);
    assert!(text(&one).contains("tie"), "{}", text(&one));
    for (word, says) in [
        ("overflows", "could not hold what had completed"),
        ("closed_silent", "reason: silent"),
        ("strangers", "without the stamp of this run"),
        ("lost", "did not receive"),
        ("flood", "too late for the pace"),
        ("INVALID", "its ledger is wrong"),
        ("quantum", "in one call"),
        ("cores busy", "kept busy"),
        ("spin", "`weir designs rio-"),
    ] {
        let found = output(&["explain", word]);
        // Lines are wrapped.
        let said = text(&found).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains(says), "{word}: {said}");
    }
    let none = output(&["explain", "no such column"]);
    assert_eq!(none.status.code(), Some(2));
    assert!(errors(&none).contains("lists them all"), "{}", errors(&none));
}

#[test]
fn shells_and_manuals_have_what_they_need() {
    for shell in ["bash", "zsh", "fish", "powershell"] {
        let run = output(&["completions", shell]);
        assert!(run.status.success() && text(&run).contains("reproduce"), "{shell}");
    }
    let page = output(&["manual", "compare-udp"]);
    assert!(text(&page).contains(".TH WEIR-COMPARE-UDP"), "{}", text(&page));
    let version = concat!("weir ", env!("CARGO_PKG_VERSION"));
    let title = text(&page).lines().find(|line| line.starts_with(".TH")).map(str::to_owned);
    assert!(title.is_some_and(|title| title.contains(version)), "{}", text(&page));
    assert_eq!(output(&["manual", "no-such"]).status.code(), Some(2));
    let base = folder("manual");
    let all = output(&["manual", "--folder", base.to_str().unwrap()]);
    assert!(all.status.success(), "{}", errors(&all));
    for page in
        ["weir.1", "weir-compare.1", "weir-compare-tcp.1", "weir-serve-udp.1", "weir-doctor.1"]
    {
        assert!(base.join(page).is_file(), "{page}");
    }
    assert!(!base.join("weir-probe-memory.1").exists());
    std::fs::remove_dir_all(base).unwrap();
}

/// A name that is no UTF-8 is a name all the same.
#[cfg(target_os = "linux")]
#[test]
fn names_that_are_no_utf_8_are_taken() {
    use std::os::unix::ffi::OsStrExt as _;
    let base = folder("names");
    let kept = base.join(std::ffi::OsStr::from_bytes(b"kept-\xff"));
    std::fs::create_dir_all(&kept).unwrap();
    let empty = json!({ "schema_version": 1, "kind": "udp", "loads": [] });
    std::fs::write(kept.join("result.json"), empty.to_string()).unwrap();
    let listed = output(&["history", "--json", "--results", base.to_str().unwrap()]);
    assert_eq!(listed.status.code(), Some(0), "{}", errors(&listed));
    let report = base.join(std::ffi::OsStr::from_bytes(b"report-\xff.html"));
    let run = std::process::Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["report".as_ref(), kept.as_os_str(), "-o".as_ref(), report.as_os_str()])
        .output()
        .unwrap();
    assert!(run.status.success() && report.exists(), "{}", errors(&run));
    std::fs::remove_dir_all(base).unwrap();
}

#[test]
fn a_baseline_that_cannot_be_read_costs_no_file_of_another_day() {
    let base = folder("another-day");
    let files = ["a.json", "b.ndjson", "c.html"].map(|name| base.join(name));
    files.iter().for_each(|file| std::fs::write(file, "of another day").unwrap());
    let [json, ndjson, html] = files.each_ref().map(|file| file.to_str().unwrap());
    let (json, ndjson) = (format!("--json={json}"), format!("--ndjson={ndjson}"));
    let none = base.join("none");
    let words = ["compare", "iops", "--no-save", &json, &ndjson, "--report", html, "--baseline"];
    let run = output(&[&words[..], &[none.to_str().unwrap()]].concat());
    assert_eq!(run.status.code(), Some(2), "{}", errors(&run));
    for file in &files {
        assert_eq!(std::fs::read_to_string(file).unwrap(), "of another day", "{}", file.display());
    }
    std::fs::remove_dir_all(base).unwrap();
}

#[test]
fn a_result_of_somebody_else_commands_no_terminal() {
    let base = folder("terminal");
    let mut evil = made_up(&[("one", 1000.0)], json!([]));
    evil["conclusion"]["headline"] = json!("red \u{1b}[31m\u{7}");
    evil["results"][0]["spec"] = json!("one\u{1b}[31m");
    std::fs::create_dir_all(base.join("kept")).unwrap();
    let path = written(&base.join("kept").join("result.json"), &evil);
    for words in [&["history", "--results", base.to_str().unwrap()][..], &["diff", &path, &path]] {
        let run = output(words);
        assert_eq!(run.status.code(), Some(0), "{}", errors(&run));
        assert!(
            !text(&run).contains(|letter: char| letter.is_control() && letter != '\n'),
            "{words:?}"
        );
    }
    std::fs::remove_dir_all(base).unwrap();
}

#[test]
fn programs_that_a_result_names_are_not_run_unasked() {
    let base = folder("programs");
    let claim = json!([{
        "text": "a and b are tied", "evidence": "#udp-load-0", "load": "saturation, 64 B", "metric": "received_per_s",
        "first": "a", "second": "b", "verdict": "tie", "ratio": 1.0, "low": null, "high": null,
    }]);
    let mut evil = made_up(&[("a", 1.0)], claim);
    for kind in ["udp", "tcp"] {
        evil["command"] = json!(["weir", "compare", kind, "--peer", "x=/bin/false {port}"]);
        let saved = written(&base.join("a.json"), &evil);
        let run = output(&["reproduce", &saved, "--no-save"]);
        assert_eq!(run.status.code(), Some(2), "{}", errors(&run));
        assert!(
            errors(&run).contains("--run-peers") && errors(&run).contains("x=/bin/false"),
            "{}",
            errors(&run)
        );
    }
    std::fs::remove_dir_all(base).unwrap();
}
