//! `weir compare iops`, and `weir compare` of all kinds, as a user meets them.

#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]

mod common;

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use common::{document, errors, output};
use serde_json::Value;

fn row<'a>(document: &'a Value, spec: &str, device: &str) -> &'a Value {
    let rows = document["results"].as_array().unwrap();
    let is_it = |row: &&Value| row["spec"] == spec && row["load"]["device"] == device;
    rows.iter().find(is_it).unwrap_or_else(|| panic!("no row {spec} of {device}"))
}

/// Whether a design got no core in any of its attempts while it was watched, as a busy machine may have it: its other
/// threads or other programs had them all. It has no figures then.
fn got_no_core(row: &Value) -> bool {
    let reason = row["reason"].as_str().unwrap_or_default();
    let is_it = reason.starts_with("no I/O completed") && row["conformance"] == "passed";
    if is_it {
        eprintln!("not run: {reason}");
    }
    is_it
}

#[test]
fn a_short_comparison_is_one_valid_document() {
    let run = output(&[
        "compare",
        "iops",
        "--design",
        "sync",
        "--design",
        "sync-empty",
        "--design",
        "threads",
        "--rounds",
        "3",
        "--seed",
        "7",
        "--json",
    ]);
    common::assert_compared(&run);
    let document = document(&run);
    assert_eq!((&document["schema_version"], &document["kind"]), (&2.into(), &"iops".into()));
    assert_eq!((&document["seed"], &document["error"]), (&7.into(), &Value::Null));
    assert_eq!(document["ratio_to"], "sync");
    let rows = document["results"].as_array().unwrap();
    let named: Vec<(&str, &str, &str)> = rows
        .iter()
        .map(|row| {
            let text = |name: &str| row[name].as_str().unwrap();
            (text("design"), text("role"), text("conformance"))
        })
        .collect();
    assert_eq!(
        named,
        [
            ("sync", "plain", "passed"),
            ("sync-empty", "plain", "passed"),
            ("threads", "plain", "passed"),
            ("sync", "again", "passed")
        ]
    );
    for row in rows.iter().filter(|row| !got_no_core(row)) {
        assert_eq!(row["status"], "ok", "{row:#}");
        assert!(common::is_ranked_or_says_why(row), "{row:#}");
        let metric = |name: &str| row["metrics"][name]["median"].as_f64();
        for name in ["ios_per_s", "cpu_ns_per_io", "cpu_utilization_percent"] {
            assert!(metric(name).is_some_and(|n| n > 0.0), "{name}: {row:#}");
        }
        let calls = metric("kernel_entries_per_io").unwrap();
        assert!((calls - 1.0).abs() < 0.1, "plain reads: {calls}");
        assert_eq!((metric("bytes_per_s"), metric("hand_overs_per_io")), (Some(0.0), Some(0.0)));
        assert!(row["latency_of_all_runs_ns"]["p50"].as_u64() > Some(10), "{row:#}");
        assert!(row["command"].as_str().unwrap().ends_with(" --json /dev/null"), "{row:#}");
        // Three were asked for; a run is made again if the machine changed.
        assert!(row["runs"].as_array().unwrap().len() >= 3, "{row:#}");
    }
    assert_eq!((&rows[1]["group"], &rows[2]["group"]), (&"reads_nothing".into(), &"waits".into()));
    let ratio = rows[2]["ratio_to_sync"]["median"].as_f64();
    assert!(ratio.is_none_or(|ratio| ratio > 0.0), "{:#}", rows[2]);
}

#[test]
fn writes_are_compared_and_what_has_none_says_so() {
    let designs = ["--design", "sync", "--design", "no-op", "--design", "threads"];
    let rest = ["compare", "iops", "--write", "--rounds", "3", "--json"];
    let run = output(&[&rest[..], &designs].concat());
    common::assert_compared(&run);
    let document = document(&run);
    assert_eq!(document["loads"][0]["load"]["direction"], "writes");
    for spec in ["sync", "threads"] {
        let row = row(&document, spec, "/dev/null");
        if got_no_core(row) {
            continue;
        }
        assert_eq!((&row["status"], &row["conformance"]), (&"ok".into(), &"passed".into()));
        let median = |name: &str| row["metrics"][name]["median"].as_f64().unwrap();
        let bytes_per_io = median("bytes_per_s") / median("ios_per_s");
        assert!((bytes_per_io - 4096.0).abs() < 100.0, "{spec}: {bytes_per_io}");
        assert!(row["command"].as_str().unwrap().ends_with("--write /dev/null"), "{row:#}");
    }
    let none = row(&document, "no-op", "/dev/null");
    assert_eq!(none["status"], "unavailable");
    assert!(none["reason"].as_str().unwrap().contains("it has no writes"), "{none:#}");
}

#[test]
fn every_design_is_a_row_and_what_cannot_run_says_why() {
    let run = output(&["compare", "iops", "--quick", "--rounds", "1", "--json"]);
    common::assert_compared(&run);
    let document = document(&run);
    for design in weir::device::designs() {
        let name = design.about().name;
        let row = row(&document, name, "/dev/null");
        match design.availability() {
            // What makes no I/O on a file is for another device than this.
            Ok(()) if row["check"]["ios"] != 0 => {
                if got_no_core(row) {
                    continue;
                }
                assert_eq!(
                    (&row["status"], &row["conformance"]),
                    (&"ok".into(), &"passed".into()),
                    "{row:#}"
                );
            }
            _ => {
                assert_eq!(row["status"], "unavailable", "{row:#}");
                assert!(row["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{row:#}");
            }
        }
    }
    let rows = document["results"].as_array().unwrap();
    for row in rows.iter().filter(|row| row["design"] == "overlapped-pool" && row["status"] == "ok")
    {
        assert!(row["metrics"]["hand_overs_per_io"]["median"].as_f64() > Some(0.5), "{row:#}");
    }
}

/// A design whose threads wait for each other leaves entries out of its own count.
#[test]
fn entries_that_a_design_leaves_out_are_counted_by_the_kernel_where_it_may() {
    let words = ["compare", "iops", "--design", "overlapped-pool", "--rounds", "1", "--json"];
    let run = output(&words);
    common::assert_compared(&run);
    let document = document(&run);
    let row = row(&document, "overlapped-pool", "/dev/null");
    if row["status"] == "unavailable" {
        eprintln!("not run: {}", row["reason"]);
        return;
    }
    if got_no_core(row) {
        return;
    }
    let counted = row["kernel_entries_counted"].as_f64();
    match weir::counters::os::KernelEntries::begin() {
        Ok(_) => {
            assert_eq!(row["kernel_entries_source"], "kernel", "{row:#}");
            assert!(counted > Some(0.0), "{row:#}");
        }
        Err(why) => {
            common::cannot_run(&why.to_string());
            let wanted = "own counters, without futex";
            assert_eq!((&row["kernel_entries_source"], counted), (&wanted.into(), None));
        }
    }
}

#[test]
fn a_table_and_a_document_in_a_file_stand_beside_each_other() {
    let directory = std::env::temp_dir().join(format!("weir-iops-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let (path, content) = (directory.join("out.json"), directory.join("content"));
    std::fs::write(&content, vec![7; 200 * 512]).unwrap();
    let json = format!("--json={}", path.display());
    let content = content.display().to_string();
    let run = output(&[
        "compare",
        "iops",
        "/dev/zero",
        &content,
        "-l",
        "512",
        "--design",
        "sync",
        "--rounds",
        "3",
        "--details",
        &json,
    ]);
    common::assert_compared(&run);
    let table = String::from_utf8(run.stdout).unwrap();
    for wanted in ["/dev/zero, 512 B", "sync (again)", "× sync", "bytes/s"] {
        assert!(table.contains(wanted), "{wanted:?} is missing of\n{table}");
    }
    let document: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    // A run that was looked at too late has too few parts to tell how its rate changes.
    let change = |row: &Value| row["metrics"]["change_percent_per_s"]["median"].is_number();
    let is_known = document["results"].as_array().unwrap().iter().any(change);
    assert_eq!(table.contains("within its runs"), is_known, "{table}");
    assert_eq!(document["loads"].as_array().map(Vec::len), Some(2));
    let of = |device: &str| {
        let metrics = &row(&document, "sync", device)["metrics"];
        let median = |name: &str| metrics[name]["median"].as_f64().unwrap();
        median("bytes_per_s") / median("ios_per_s")
    };
    for device in ["/dev/zero", &content] {
        assert!((of(device) - 512.0).abs() < 1.0, "{device}: {}", of(device));
    }
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn fio_is_a_row_where_there_is_one_and_says_why_where_not() {
    let words = ["compare", "iops", "--fio", "--design", "sync", "--rounds", "1", "--json"];
    let without = common::weir(&words).env("PATH", "/nowhere").output().unwrap();
    let found = document(&without);
    common::assert_compared(&without);
    assert_eq!(found["fio"], Value::Null);
    let reason = &row(&found, "fio psync", "/dev/zero")["reason"];
    assert!(reason.as_str().unwrap().contains("no program fio in the PATH"), "{reason}");

    if std::process::Command::new("fio").arg("--version").output().is_err() {
        common::cannot_run("there is no fio here");
        return;
    }
    let with = output(&words);
    common::assert_compared(&with);
    let found = document(&with);
    assert!(found["fio"]["version"].as_str().unwrap().starts_with("fio"), "{}", found["fio"]);
    for name in ["fio sync", "fio psync", "fio pvsync2", "fio io_uring"] {
        let refused = row(&found, name, "/dev/null");
        assert_eq!(refused["status"], "unavailable", "{refused:#}");
        let why = refused["reason"].as_str().unwrap();
        assert!(why.contains("empty read"), "{why}");
        let rival = row(&found, name, "/dev/zero");
        // Its ring may be forbidden here, and then it says so.
        if name == "fio io_uring" && rival["status"] == "unavailable" {
            continue;
        }
        assert_eq!((&rival["status"], &rival["kind"]), (&"ok".into(), &"peer".into()), "{rival:#}");
        let median = |metric: &str| rival["metrics"][metric]["median"].as_f64();
        assert!(median("ios_per_s").is_some_and(|n| n > 0.0), "{name}: {rival:#}");
        // It is not known where fio saw none.
        assert!(median("cpu_ns_per_io").is_none_or(|n| n > 0.0), "{name}: {rival:#}");
        let command = rival["command"].as_str().unwrap();
        assert!(
            command.contains("--gtod_reduce=1") && command.contains("--filename=/dev/zero"),
            "{command}"
        );
    }
    let answers = found["answers"].as_array().unwrap();
    let asked =
        |about: &str| answers.iter().any(|a| a["question"].as_str().unwrap().contains(about));
    assert!(asked("compare with fio"), "{answers:?}");
}

#[test]
fn delays_are_loads_and_it_is_told_from_which_on_many_outstanding_pay() {
    let run = output(&[
        "compare", "iops", "--delay", "0,500us", "--design", "sync", "--design", "ring",
        "--rounds", "3", "--json",
    ]);
    common::assert_compared(&run);
    let document = document(&run);
    if document["results"][1]["status"] == "unavailable" {
        eprintln!("not run: {}", document["results"][1]["reason"]);
        return;
    }
    let delays: Vec<f64> = document["loads"]
        .as_array()
        .unwrap()
        .iter()
        .map(|load| load["load"]["delay_us"].as_f64().unwrap())
        .collect();
    assert_eq!(delays, [0.0, 500.0]);
    let rate = |design: &str| {
        let row = row(&document, design, "timer:500us");
        row["metrics"]["ios_per_s"]["median"].as_f64().unwrap_or_else(|| panic!("{row:#}"))
    };
    // One read after the other, and each takes so long or longer. How many more there are where many are outstanding is
    // for the benchmark of devices to say.
    assert!(rate("sync") <= 2000.0 && rate("ring") > 0.0, "{} {}", rate("sync"), rate("ring"));
    assert!(document["crossings"].is_array(), "{}", document["crossings"]);
    let answers = document["answers"].as_array().unwrap();
    assert!(answers.iter().any(|a| a["question"].as_str().unwrap().starts_with("How long")));
}

#[test]
fn long_runs_show_whether_the_rate_declines() {
    let run = output(&[
        "compare",
        "iops",
        "--design",
        "sync",
        "--rounds",
        "1",
        "--over-time",
        "3s",
        "--json",
    ]);
    common::assert_compared(&run);
    let document = document(&run);
    let long = document["long_runs"].as_array().unwrap();
    assert_eq!((long.len(), &long[0]["spec"]), (1, &"sync".into()), "{long:?}");
    let found = &long[0]["over_time"];
    assert_eq!(
        (&found["control"], found["readings"].as_array().unwrap().len()),
        (&"sync".into(), 30)
    );
    // Where it got no core in many of its turns, nothing is told.
    let rate = &found["rate"];
    assert!(rate.is_null() || rate["low"].as_f64() <= rate["high"].as_f64(), "{found}");
    assert!(found["verdict"].is_string() && found["resident_bytes"]["last"].is_number(), "{found}");
    assert!(document["answers"].to_string().contains("Does the rate decline with time?"));
}

#[test]
fn the_plan_can_be_seen_without_a_run() {
    let plan = output(&["compare", "iops", "--dry-run", "--sweep", "--json"]);
    assert_eq!(plan.status.code(), Some(0), "{}", errors(&plan));
    let document = document(&plan);
    assert_eq!((&document["kind"], &document["results"]), (&"iops".into(), &serde_json::json!([])));
    let planned: Vec<&str> =
        document["planned"].as_array().unwrap().iter().map(|row| row.as_str().unwrap()).collect();
    for wanted in ["sync", "ring --depth 1", "ring-registered --depth 1024", "no-op --depth 16"] {
        assert!(planned.contains(&wanted), "{wanted}: {planned:?}");
    }
    let plain = errors(&output(&["compare", "iops", "--dry-run"]));
    assert!(
        plain.contains("in about 55 s") && plain.contains("row: ring-registered --depth 1\n"),
        "{plain}"
    );
}

#[test]
fn wrong_usage_is_said_and_json_stays_valid() {
    for (words, code, said) in [
        (&["--design", "nonsense"][..], 2, "nonsense"),
        (&["--design", "ring --depth 0"][..], 2, "1 to"),
        (&["--design", "sync", "--design", "sync"][..], 2, "twice"),
        (&["--design", "sync", "--sweep"][..], 2, "--sweep"),
        (&["-"][..], 2, "separate process"),
        (&["/dev"][..], 2, "directory"),
        (&["/proc/self/comm"][..], 2, "--device"),
        (&["/proc/self/ns/net"][..], 2, "(nsfs)"),
        (&["/dev/weir-has-no-such"][..], 2, "check the path"),
        (&["-l", "1g"][..], 2, "allowed: 0 to"),
        (&["--delay", "2s"][..], 2, "allowed: 0 to 200ms"),
        (&["timer:2s"][..], 2, "allowed: 0 to 200ms"),
        (&["timer:soon"][..], 2, "as in timer:10us"),
        (&["timer:"][..], 2, "as in timer:10us"),
        (&["timer:10us", "-l", "512,4"][..], 2, "8 or more"),
        (&["--delay", "10us", "-l", "7"][..], 2, "8 or more"),
        (&["eventfd:", "-l", "0"][..], 2, "8 or more"),
        (&["/dev/stdin"][..], 2, "separate process"),
        (&["/dev/fd/0"][..], 2, "separate process"),
        (&["/proc/self/fd/0"][..], 2, "separate process"),
        (&["/proc/thread-self/fd/0"][..], 2, "separate process"),
        (&["/dev/null", "--delay", "1us"][..], 2, "--delay"),
        (&["/dev/full", "--write"][..], 2, "weir writes only to"),
        (&["timer:10us", "--write"][..], 2, "weir writes only to"),
        (&["--write", "--delay", "1us"][..], 2, "--delay"),
        (&["--write", "--fio"][..], 2, "--fio"),
        (&["--over-time", "2s"][..], 2, "3s or more"),
        (&["--cpu", "8000"][..], 2, "core 8000"),
        (&["--rounds", "0"][..], 2, "1..=50"),
    ] {
        let failed = output(&[&["compare", "iops", "--json"], words].concat());
        assert_eq!(failed.status.code(), Some(code), "{words:?}: {}", errors(&failed));
        let document = document(&failed);
        assert_eq!(document["results"], serde_json::json!([]));
        assert!(document["error"].as_str().is_some_and(|error| error.contains(said)), "{document}");
    }
}

#[test]
fn a_pipe_and_a_link_to_what_this_process_has_open_are_refused() {
    let directory = std::env::temp_dir().join(format!("weir-iops-pipe-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let (pipe, link, file) =
        (directory.join("pipe"), directory.join("link"), directory.join("file"));
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success(), "{made}");
    std::os::unix::fs::symlink("/dev/stdin", &link).unwrap();
    std::fs::write(&file, [7; 4096]).unwrap();
    for (path, said) in [(&pipe, "it is a pipe"), (&link, "separate process")] {
        let refused = output(&["compare", "iops", path.to_str().unwrap(), "--dry-run", "--json"]);
        assert_eq!(refused.status.code(), Some(2), "{path:?}: {}", errors(&refused));
        let error = &document(&refused)["error"];
        assert!(error.as_str().is_some_and(|error| error.contains(said)), "{path:?}: {error}");
    }
    // Any other link is followed.
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink("file", &link).unwrap();
    let taken = output(&["compare", "iops", link.to_str().unwrap(), "--dry-run", "--json"]);
    assert_eq!(taken.status.code(), Some(0), "{}", errors(&taken));
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn ctrl_c_ends_a_comparison_with_what_there_is() {
    let mut child = common::weir(&[
        "compare", "iops", "--design", "sync", "-l", "1237", "-t", "60", "-v", "--json",
    ])
    .stdout(Stdio::piped())
    .stderr(Stdio::piped())
    .spawn()
    .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    // With the second run the first has been made.
    for _ in 0..2 {
        assert!(lines.any(|line| line.is_ok_and(|line| line.contains("-l 1237"))));
    }
    std::thread::spawn(move || lines.for_each(drop));
    common::interrupt(child.id());
    let ended = common::ends(child);
    assert_eq!(ended.status.code(), Some(130));
    let document = document(&ended);
    assert_eq!(document["interrupted"], true);
    let rows = document["results"].as_array().unwrap();
    let runs: usize = rows.iter().map(|row| row["runs"].as_array().unwrap().len()).sum();
    assert!(runs >= 1, "the figures so far: {document:#}");
}

#[test]
fn without_a_word_all_three_kinds_are_planned_each_with_its_part_of_the_time() {
    let plan = output(&["compare", "--dry-run", "--json"]);
    assert_eq!(plan.status.code(), Some(0), "{}", errors(&plan));
    let document = document(&plan);
    assert_eq!((&document["kind"], &document["error"]), (&"all".into(), &Value::Null));
    assert_eq!(
        (&document["tcp"]["kind"], &document["iops"]["kind"]),
        (&"tcp".into(), &"iops".into())
    );
    let seconds = |kind: &str| document[kind]["planned_s"].as_f64().unwrap();
    let all = seconds("udp") + seconds("tcp") + seconds("iops");
    assert!((all - 133.0).abs() < 1.0, "{all}");
    for kind in ["udp", "tcp", "iops"] {
        assert!(!document[kind]["planned"].as_array().unwrap().is_empty(), "{kind}");
    }
    let of_udp = errors(&output(&["compare", "udp", "--dry-run", "--design", "epoll"]));
    assert!(of_udp.contains("paced at 50000/s") && !of_udp.contains("TCP"), "{of_udp}");
    let answered = |words: &[&str]| {
        let words = [&["compare", "udp", "--dry-run", "--design", "epoll"], words].concat();
        errors(&output(&words)).contains("each answered")
    };
    // Servers that answer stand beside sinks where nothing else is asked for.
    assert!(of_udp.contains("each answered") && answered(&["--quick"]) && answered(&["-t", "1m"]));
    for words in [&["--load", "saturation"][..], &["--rounds", "3"], &["-t", "5"], &["-l", "16"]] {
        assert!(!answered(words), "{words:?}");
    }
}

#[test]
fn ctrl_c_ends_all_three_with_one_document() {
    let mut child = common::weir(&["compare", "-t", "60", "-v", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.is_ok_and(|line| line.contains(" flood "))));
    std::thread::spawn(move || lines.for_each(drop));
    common::interrupt(child.id());
    let ended = common::ends(child);
    assert_eq!(ended.status.code(), Some(130));
    let document = document(&ended);
    assert_eq!(
        (&document["interrupted"], &document["udp"]["interrupted"]),
        (&true.into(), &true.into())
    );
    for kind in ["tcp", "iops"] {
        let error = document[kind]["error"].as_str().unwrap();
        assert!(error.contains("interrupted before it began"), "{error}");
    }
}
