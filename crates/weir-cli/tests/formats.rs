//! What a comparison gives to programs: documents that have what their schema says however it ended, events while it
//! runs, and plans.

#![forbid(unsafe_code)]

mod common;

use std::path::PathBuf;
use std::process::Output;
#[cfg(unix)]
use std::process::Stdio;

use common::{document, errors, output};
use serde_json::Value;

/// A short comparison of each kind.
const KINDS: [&[&str]; 3] = [
    &["compare", "udp", "--design", "blocking", "--rounds", "1", "--quick"],
    &["compare", "tcp", "--design", "poll", "-c", "2", "--rounds", "1", "--quick"],
    &["compare", "iops", "--design", "sync", "--rounds", "1", "--quick"],
];

/// The schema that weir prints, as a validator.
fn schema() -> jsonschema::Validator {
    let printed = output(&["schema"]);
    assert_eq!(printed.status.code(), Some(0), "{}", errors(&printed));
    let schema: Value = serde_json::from_slice(&printed.stdout).expect("a document");
    jsonschema::validator_for(&schema).expect("a schema")
}

fn assert_is_valid(document: &Value) {
    let schema = schema();
    let wrong = schema.iter_errors(document).map(|error| format!("{:.1000}", error.to_string()));
    let wrong: Vec<String> = wrong.collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

fn file(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("weir-formats-{}-{name}", std::process::id()))
}

fn read(path: &PathBuf) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    std::fs::remove_file(path).unwrap();
    text
}

#[test]
fn documents_of_every_kind_are_what_the_schema_says() {
    for words in KINDS.into_iter().filter(|words| common::can_compare(words[1])) {
        let run = output(&[words, &["--json", "--no-save"]].concat());
        common::assert_compared(&run);
        let document = document(&run);
        assert_eq!(document["results"][0]["status"], "ok", "{document:#}");
        assert_is_valid(&document);
        let planned = output(&[words, &["--json", "--dry-run"]].concat());
        assert_is_valid(&common::document(&planned));
    }
    let failed = output(&["compare", "udp", "--design", "nonsense", "--json"]);
    assert_eq!(failed.status.code(), Some(2), "{}", errors(&failed));
    assert_is_valid(&document(&failed));
    let refused = output(&["compare", "udp", "--nonsense", "--json"]);
    assert_eq!(refused.status.code(), Some(2));
    assert_is_valid(&document(&refused));
}

#[cfg(target_os = "linux")]
#[test]
fn a_document_is_kept_where_another_finds_no_room() {
    let results = file("kept");
    let more = ["--json=/dev/full", "--results", results.to_str().unwrap()];
    let run = output(&[KINDS[2], &more].concat());
    assert_eq!(run.status.code(), Some(1), "{}", errors(&run));
    assert!(errors(&run).contains("/dev/full: No space left"), "{}", errors(&run));
    let kept = std::fs::read_dir(&results).unwrap().next().expect("a folder").unwrap().path();
    let document = std::fs::read(kept.join("result.json")).unwrap();
    assert_is_valid(&serde_json::from_slice(&document).unwrap());
    std::fs::remove_dir_all(results).unwrap();
}

/// The events that are written on standard output.
fn events(run: &Output) -> Vec<Value> {
    let text = String::from_utf8(run.stdout.clone()).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}")))
        .collect()
}

#[test]
fn every_run_is_an_event_and_the_last_one_says_how_it_ended() {
    let json = file("events.json");
    let to_file = format!("--json={}", json.display());
    let run = output(&[KINDS[0], &["--ndjson", "--no-save", &to_file]].concat());
    common::assert_compared(&run);
    let events = events(&run);
    let document: Value = serde_json::from_str(&read(&json)).unwrap();
    let rows = document["results"].as_array().unwrap();
    let runs: usize = rows.iter().map(|row| row["runs"].as_array().unwrap().len()).sum();
    let (first, last) = (&events[0], &events[events.len() - 1]);
    assert_eq!((&first["event"], &first["seed"]), (&"begin".into(), &document["seed"]));
    let of_runs: Vec<&Value> = events.iter().filter(|event| event["event"] == "run").collect();
    assert_eq!(of_runs.len(), runs, "{events:#?}");
    // One that the machine disturbed may have no rate.
    let has_rate = |run: &Value| run["received_per_s"].is_number() || run["disturbed"].is_string();
    assert!(of_runs.iter().all(|event| has_rate(&event["run"])), "{of_runs:#?}");
    assert_eq!(last["event"], "end");
    assert_eq!(last["exit_code"], run.status.code().unwrap());
    assert_eq!(last["conclusions"]["udp"], document["conclusion"]);
}

#[test]
fn both_cannot_have_standard_output_and_a_file_must_be_writable() {
    let both = output(&[KINDS[2], &["--json", "--ndjson"]].concat());
    assert_eq!(both.status.code(), Some(2));
    assert!(errors(&both).contains("--ndjson=FILE"), "{}", errors(&both));
    let nowhere = output(&[KINDS[2], &["--ndjson=/nowhere/events"]].concat());
    assert_eq!(nowhere.status.code(), Some(1));
    assert!(
        errors(&nowhere).contains("cannot write events to /nowhere/events"),
        "{}",
        errors(&nowhere)
    );
}

#[cfg(target_os = "linux")]
#[test]
fn events_that_find_no_room_are_told_of_and_cost_no_result() {
    let run = output(&[KINDS[2], &["--ndjson=/dev/full", "--no-save", "--json"]].concat());
    assert_eq!(run.status.code(), Some(1), "{}", errors(&run));
    assert!(errors(&run).contains("events were lost"), "{}", errors(&run));
    assert_eq!(document(&run)["results"][0]["status"], "ok");
}

#[cfg(unix)]
#[test]
fn an_interrupted_comparison_has_a_document_and_an_end() {
    use std::io::{BufRead, BufReader, Read};
    let json = file("interrupted.json");
    let to_file = format!("--json={}", json.display());
    let words = [
        "compare",
        "udp",
        "--design",
        "blocking",
        "--rounds",
        "50",
        "--ndjson",
        &to_file,
        "--no-save",
    ];
    let mut child = common::weir(&words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("weir can be started");
    let mut lines = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    while !line.contains("\"event\":\"run\"") {
        line.clear();
        assert!(lines.read_line(&mut line).unwrap() > 0, "it ended before a run");
    }
    common::interrupt(child.id());
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    let ended = common::ends(child);
    assert_eq!(ended.status.code(), Some(130));
    let document: Value = serde_json::from_str(&read(&json)).unwrap();
    assert_eq!(document["interrupted"], true);
    assert_is_valid(&document);
    let last: Value = serde_json::from_str(rest.lines().last().unwrap()).unwrap();
    assert_eq!((&last["event"], &last["exit_code"]), (&"end".into(), &130.into()));
}

#[test]
fn a_plan_is_saved_edited_and_run() {
    if !common::can_compare("iops") {
        return;
    }
    let plan = file("plan.toml");
    let path = plan.to_str().unwrap();
    let words =
        ["compare", "iops", "--design", "sync", "--rounds", "2", "--dry-run", "--save-plan", path];
    let saved = output(&words);
    assert_eq!(saved.status.code(), Some(0), "{}", errors(&saved));
    let text = std::fs::read_to_string(&plan).unwrap();
    assert!(
        text.contains("kind = \"iops\"\ndesign = \"sync\"\n") && text.contains("rounds = 2"),
        "{text}"
    );
    std::fs::write(&plan, text.replace("rounds = 2", "rounds = 1")).unwrap();
    let run = output(&["compare", "--plan", path, "--json", "--no-save"]);
    common::assert_compared(&run);
    let compared = document(&run);
    assert_eq!((&compared["kind"], &compared["loads"][0]["rounds"]), (&"iops".into(), &1.into()));
    let command = &compared["command"];
    assert!(command.to_string().contains("--rounds=1") && !command.to_string().contains("--plan"));
    std::fs::write(&plan, text.replace("design", "desing")).unwrap();
    let refused = output(&["compare", "--plan", path, "--json"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(errors(&refused).contains("desing is not an option"), "{}", errors(&refused));
    assert_is_valid(&document(&refused));
    std::fs::remove_file(plan).unwrap();
}
