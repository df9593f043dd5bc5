//! `weir compare tcp` as a user meets it.

#![forbid(unsafe_code)]

mod common;
// Peers are looked after as Linux lets processes be.
#[cfg(target_os = "linux")]
#[path = "compare_tcp/peers.rs"]
mod peers;

use std::path::PathBuf;

use common::{document, errors, output};
use serde_json::Value;

#[test]
fn a_short_comparison_is_one_valid_document() {
    let run = output(&[
        "compare", "tcp", "--design", "select", "--design", "poll", "-c", "1", "--rounds", "3",
        "--seed", "7", "--json",
    ]);
    common::assert_compared(&run);
    let document = document(&run);
    assert_eq!((&document["schema_version"], &document["kind"]), (&2.into(), &"tcp".into()));
    assert_eq!((&document["seed"], &document["error"]), (&7.into(), &Value::Null));
    assert_eq!(document["check"]["messages"], 320);
    let rows = document["results"].as_array().unwrap();
    let named: Vec<(&str, &str)> = rows
        .iter()
        .map(|row| (row["design"].as_str().unwrap(), row["role"].as_str().unwrap()))
        .collect();
    // What stands once more is the first of its group; where a machine is busy both may be taken for designs that poll.
    assert_eq!(named[..3], [("select", "plain"), ("poll", "plain"), ("select", "again")]);
    for row in rows {
        assert_eq!((&row["status"], &row["conformance"]), (&"ok".into(), &"passed".into()));
        assert!(common::is_ranked_or_says_why(row), "{row:#}");
        // Three were asked for; a run is made again if the machine changed.
        assert!(row["runs"].as_array().unwrap().len() >= 3, "{row:#}");
        if common::measured_nothing(row) {
            continue;
        }
        let metric = |name: &str| row["metrics"][name]["median"].as_f64();
        let mut names = vec!["messages_per_s", "resident_bytes"];
        let says_why = |run: &Value| run["server_unknown"].is_string();
        if !row["runs"].as_array().unwrap().iter().all(says_why) {
            names.extend(["cpu_ns_per_message", "kernel_entries_per_message"]);
            // Windows counts them for threads that live only.
            names.extend(cfg!(unix).then_some("context_switches_per_message"));
        }
        for name in names {
            assert!(metric(name).is_some_and(|n| n > 0.0), "{name}: {:#}", row["metrics"][name]);
        }
        assert_eq!((metric("connected"), metric("threads")), (Some(1.0), Some(1.0)), "{row:#}");
        assert!(row["round_trip_of_all_runs_ns"]["p50"].as_u64() > Some(1000), "{row:#}");
    }
}

#[test]
fn a_table_and_a_document_in_a_file_stand_beside_each_other() {
    let directory = directory("file");
    let path = directory.join("out.json");
    let json = format!("--json={}", path.display());
    let words = ["--design", "poll", "-c", "4", "--pattern", "streaming", "-l", "4k"];
    let rest = ["--rounds", "3", "--details", &json];
    let run = output(&[&["compare", "tcp"], &words[..], &rest[..]].concat());
    common::assert_compared(&run);
    let table = String::from_utf8(run.stdout).unwrap();
    for wanted in ["streaming, 4096 B, 4 connections, 64 under way on each", "poll (again)", "4/4"]
    {
        assert!(table.contains(wanted), "{wanted:?} is missing of\n{table}");
    }
    let document: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!(document["loads"][0]["load"]["outstanding"], 64);
    std::fs::remove_dir_all(directory).unwrap();
}

/// Whoever is refused or closed is so by what the row's limits say: by the count of the client of those beside.
#[test]
fn strategies_are_held_against_mixes_and_limits_against_counts() {
    let run = output(&[
        "compare",
        "tcp",
        "--strategies",
        "--mix",
        "silent,stuck,turns",
        "-c",
        "4",
        "--others",
        "40",
        "--design",
        "poll",
        "--design",
        "poll --per-address 4",
        "--design",
        "poll --close-when-full",
        "--rounds",
        "1",
        "--seed",
        "7",
        "--json",
    ]);
    common::assert_compared(&run);
    let document = document(&run);
    let loads = document["loads"].as_array().unwrap();
    let of = |field: &str| -> Vec<&str> {
        loads.iter().map(|load| load["load"]["mix"][field].as_str().unwrap()).collect()
    };
    assert_eq!(of("name"), ["turns", "silent", "stuck"]);
    let headline = document["conclusion"]["headline"].as_str().unwrap();
    assert!(headline.contains("mix of connections"), "{headline}");
    // 40 silent ones come from 4 addresses, 40 stuck ones from 1.
    let wanted = [
        ("poll", "silent", "plain", (0, 0)),
        ("poll", "stuck", "plain", (0, 0)),
        ("poll --per-address 4", "silent", "refusal", (24, 0)),
        ("poll --per-address 4", "stuck", "refusal", (36, 0)),
        ("poll --close-when-full", "stuck", "refusal", (0, 40)),
    ];
    let rows = document["results"].as_array().unwrap();
    for (spec, mix, strategy, (refused, closed)) in wanted {
        let is_it = |row: &&Value| row["spec"] == spec && row["load"]["mix"]["name"] == mix;
        let row = rows.iter().find(is_it).unwrap_or_else(|| panic!("{spec} under {mix}"));
        assert_eq!((&row["conformance"], &row["strategy"]), (&"passed".into(), &strategy.into()));
        let runs = row["runs"].as_array().unwrap();
        assert!(!runs.is_empty(), "{row:#}");
        for run in runs {
            assert_eq!(run["invalid"], Value::Null, "{run:#}");
            let others = &run["others"];
            // Where the machine was too busy to make them all it says so, and nothing is concluded.
            if others["connected"] == others["asked"] {
                assert_eq!(
                    (&others["refused"], &others["closed"]),
                    (&refused.into(), &closed.into())
                );
            }
            // Nobody looked at a run whose generator had no core while it was to measure.
            if run["disturbed"] == "pace_not_kept" {
                continue;
            }
            let known = |name: &str| run[name].as_u64().is_some_and(|bytes| bytes > 0);
            assert!(known("client_resident_bytes") && known("resident_bytes"), "{run:#}");
            assert!(cfg!(windows) || run["server_socket_bytes"].is_u64(), "{run:#}");
        }
    }
    // What refuses takes part where that is asked of it.
    let limited = |row: &&Value| row["spec"] == "poll --close-when-full";
    assert_eq!(rows.iter().filter(limited).filter(|row| row["runs"][0].is_object()).count(), 1);
}

#[test]
fn wrong_strategies_are_wrong_usage() {
    for (words, said) in [
        (&["--strategies", "--sweep"][..], "--sweep"),
        (&["--mix", "flood"], "--strategies"),
        (&["--strategies", "-c", "1,2"], "give one"),
        (&["--strategies", "--mix", "mess"], "possible values: idle, busy"),
        (&["--design", "poll --active 0"], "--active"),
        (&["--design", "poll --silent"], "needs a value"),
    ] {
        let run = output(&[&["compare", "tcp"], words].concat());
        assert_eq!(run.status.code(), Some(2), "{words:?}: {}", errors(&run));
        assert!(errors(&run).contains(said), "{words:?}: {}", errors(&run));
    }
}

#[test]
fn the_plan_can_be_seen_without_a_run() {
    let plan = output(&["compare", "tcp", "--dry-run", "--sweep", "--json"]);
    assert_eq!(plan.status.code(), Some(0), "{}", errors(&plan));
    let document = document(&plan);
    assert_eq!(document["loads"].as_array().map(Vec::len), Some(32));
    assert_eq!((&document["kind"], &document["results"]), (&"tcp".into(), &serde_json::json!([])));
    let planned: Vec<&str> =
        document["planned"].as_array().unwrap().iter().map(|row| row.as_str().unwrap()).collect();
    for design in weir::tcp::designs() {
        let name = design.about().name;
        assert!(planned.iter().any(|spec| spec.split(' ').next() == Some(name)), "{name}");
    }
    let classic = output(&["compare", "tcp", "--classic", "--dry-run"]);
    let said = errors(&classic);
    assert!(said.contains("7000 connections") && said.contains("up to 50000"), "{said}");
    let plain = errors(&output(&["compare", "tcp", "--dry-run"]));
    assert!(plain.contains("in about 110 s"), "{plain}");
}

#[test]
fn wrong_usage_is_said_and_json_stays_valid() {
    for (words, said) in [
        (&["--design", "nonsense"][..], "nonsense"),
        (&["--design", "epoll --threads 9999"][..], "threads"),
        (&["--design", "poll", "--design", "poll"][..], "twice"),
        (&["--design", "rio-hybrid --trigger x"][..], "rio-hybrid"),
        (&["-l", "0"][..], "must be 1 to"),
        (&["-c", "0"][..], "must be 1 to"),
        (&["--buffer", "1g"][..], "must be 1 to"),
        (&["--peer", "go"][..], "write it as"),
        (&["--peer", "go=program"][..], "{port}"),
        (&["--peer", "epoll=program {port}"][..], "name of a design"),
        (&["--peers=/nowhere/peers"][..], "build them with peers/build"),
        (&["--server-cpu", "8000"][..], "core 8000"),
        (&["--classic", "--sweep"][..], "--sweep"),
        (&["--classic", "-c", "5"][..], "--connections"),
        (&["--most", "5"][..], "--classic"),
        (&["--rounds", "0"][..], "1..=50"),
        (&["--receive-offload"][..], "--receive-offload"),
    ] {
        let failed = output(&[&["compare", "tcp", "--json"], words].concat());
        assert_eq!(failed.status.code(), Some(2), "{words:?}: {}", errors(&failed));
        let document = document(&failed);
        assert_eq!(document["results"], serde_json::json!([]));
        assert!(document["error"].as_str().is_some_and(|error| error.contains(said)), "{document}");
    }
}

/// A directory of this test's own.
fn directory(name: &str) -> PathBuf {
    let directory = std::env::temp_dir().join(format!("weir-tcp-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    directory
}

#[test]
fn what_cannot_be_is_said_before_anything_runs() {
    for (words, said) in [
        (&["-o", "8", "-c", "4"][..], "add --pattern streaming"),
        (&["-t", "0"], "measures nothing"),
        (&["--peer", "foo"], "{ip} {port}"),
    ] {
        let words = [&["compare", "tcp", "--json"], words].concat();
        let run = output(&words);
        assert_eq!(run.status.code(), Some(2), "{words:?}: {}", errors(&run));
        let reason = document(&run)["reason"].to_string();
        assert!(reason.contains(said), "{words:?}: {reason}");
    }
}

#[test]
fn a_file_that_cannot_be_written_is_found_before_the_experiment() {
    // With -v each process that it starts is told.
    let run = output(&["compare", "tcp", "--json=/nonexistent/x", "-t", "60", "-v"]);
    assert_eq!(run.status.code(), Some(1), "{}", errors(&run));
    assert!(
        errors(&run).contains("cannot write the document to /nonexistent/x"),
        "{}",
        errors(&run)
    );
    assert!(!errors(&run).contains(" serve "), "nothing was run: {}", errors(&run));
}

#[test]
fn the_file_has_the_document_of_a_failure_too() {
    let directory = directory("failure");
    let path = directory.join("out.json");
    let json = format!("--json={}", path.display());
    let run = output(&["compare", "tcp", "--design", "no-such-design", &json]);
    assert_eq!(run.status.code(), Some(2), "{}", errors(&run));
    let document: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert!(document["reason"].as_str().unwrap().contains("no-such-design"), "{document:#}");
    std::fs::remove_dir_all(directory).unwrap();
}
