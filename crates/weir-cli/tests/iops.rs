//! `weir iops`: what it reads, what it refuses, and what it says.

#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]

mod common;

use std::{
    io::{BufRead, BufReader, Read, Write},
    process::{Child, Stdio},
};

use common::{document, ends, errors, interrupt, output, weir};
use serde_json::Value;

fn iops(words: &[&str]) -> std::process::Output {
    output(&[&["iops", "--json", "-i", "0", "-O", "0"], words].concat())
}

/// Reads for a time. Where it gets no core while it is to be measured there are too few I/Os to tell anything by: then once
/// more, but not for ever.
fn measured(words: &[&str]) -> (std::process::Output, Value) {
    for tried in 1.. {
        let output = output(&[words, &["--json"]].concat());
        let found = document(&output);
        let is_enough = found["report"]["window"]["completed"].as_u64() > Some(1000);
        if is_enough || found["status"] != "ok" || tried == 5 {
            return (output, found);
        }
    }
    unreachable!("it ends with the fifth")
}

/// Every design for devices that can run here.
fn what_runs_here() -> Vec<String> {
    let list = document(&output(&["designs", "--json"]));
    let designs = list["device_designs"].as_array().expect("a list").iter();
    let running = designs.filter(|design| design["status"] == "ok");
    let all: Vec<String> =
        running.map(|design| design["name"].as_str().expect("a name").to_owned()).collect();
    assert!(all.len() >= 3, "plain reads run everywhere: {list}");
    all
}

#[test]
fn every_design_reads_as_often_as_it_is_told() {
    for design in what_runs_here() {
        let output = iops(&["/dev/null", "--design", &design, "-k", "20k"]);
        assert_eq!(output.status.code(), Some(0), "{design}: {}", errors(&output));
        let found = document(&output);
        assert_eq!((&found["status"], &found["schema_version"]), (&"ok".into(), &2.into()));
        let (report, counts) = (&found["report"], &found["report"]["counts"]);
        assert_eq!(counts["issued"], 20_000, "{design}: {found}");
        assert_eq!((&counts["completed"], &counts["failed"]), (&20_000.into(), &0.into()));
        assert_eq!(report["ended_by"], "ios");
        // What is over within a moment may leave nothing to measure.
        let window = &report["window"];
        let measured = window["completed"].as_u64().unwrap_or(0);
        let calls = window["kernel_entries_per_io"].as_f64();
        let known = calls.is_some_and(|calls| calls >= 0.0);
        assert!(measured < 10_000 || known, "{design}: {window}");
        let effective = found["settings"].as_array().expect("a list");
        assert!(effective.iter().any(|s| s["name"] == "design" && s["value"] == design.as_str()));
    }
}

#[test]
fn a_time_ends_it_and_intervals_add_up() {
    let words = ["iops", "/dev/zero", "-t", "300ms", "-O", "0", "-i", "100ms"];
    let (output, found) = measured(&words);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let (report, window) = (&found["report"], &found["report"]["window"]);
    assert_eq!(report["ended_by"], "time");
    let sampling = report["sampling_percent"].as_f64();
    assert!(sampling.is_some_and(|percent| percent > 0.0 && percent < 50.0), "{report}");
    let machine = &report["machine"];
    assert!(machine["kernel"].is_string() && machine["mitigations"].is_object(), "{machine}");
    let elapsed_ns = window["elapsed_ns"].as_u64().expect("a time");
    assert!(elapsed_ns >= 300_000_000, "{elapsed_ns}");
    let intervals = found["intervals"].as_array().expect("a list");
    // One that has no core for a while is told with the next.
    assert!(!intervals.is_empty(), "{found}");
    let sum: u64 = intervals.iter().map(|one| one["completed"].as_u64().expect("a count")).sum();
    let last = intervals.last().expect("some");
    assert_eq!(last["total"].as_u64(), Some(sum));
    assert!(sum <= window["completed"].as_u64().expect("a count"));
    let bytes = report["counts"]["bytes"].as_u64();
    assert_eq!(bytes, report["counts"]["completed"].as_u64().map(|completed| completed * 4096));
    let latency = &report["latency_ns"];
    assert!(latency["n"].as_u64() > Some(0), "{latency}");
    assert!(latency["p50"].as_u64().expect("a median") <= latency["p99_9"].as_u64().unwrap());
    assert!((window["kernel_entries_per_io"].as_f64().expect("known") - 1.0).abs() < 0.01);
    assert!(window["cpu_ns_per_io"].as_f64() > Some(0.0));
    let seconds = window["seconds"].as_array().map(Vec::len);
    assert!(seconds == Some(1) || elapsed_ns >= 1_000_000_000, "none was whole: {window}");
}

/// Where the kernel counts, it finds what a design that reads plainly counts itself, and the waiting and waking of
/// threads, too.
#[test]
fn the_kernel_can_count_the_entries() {
    for (design, source) in
        [("sync", "own counters"), ("overlapped-pool", "own counters, without futex")]
    {
        let words = ["iops", "/dev/null", "--design", design, "-t", "200ms", "-O", "50ms"];
        let (_, own) = measured(&words);
        if own["status"] == "failed" && own["reason"].to_string().contains("cannot be used here") {
            eprintln!("not run: {}", own["reason"]);
            continue;
        }
        assert_eq!(own["report"]["kernel_entries_source"], source, "{own:#}");
        let (output, counted) = measured(&[&words[..], &["--count-entries"]].concat());
        if output.status.code() == Some(5) {
            common::cannot_run(&errors(&output));
            return;
        }
        assert_eq!(counted["report"]["kernel_entries_source"], "kernel", "{counted:#}");
        let per_io = counted["report"]["window"]["kernel_entries_per_io"].as_f64().unwrap();
        match design {
            "sync" => assert!((per_io - 1.0).abs() < 0.05, "{per_io}"),
            _ => assert!(per_io > 0.0, "{per_io}"),
        }
    }
}

#[test]
fn people_get_fios_line() {
    // Long enough for many I/Os, also where it gets no core for a while.
    let words = ["iops", "/dev/null", "-t", "1", "-O", "0", "-i", "0"];
    let detailed = output(&[&words[..], &["--details"]].concat());
    let detailed = String::from_utf8_lossy(&detailed.stdout).into_owned();
    let (before, settings) = detailed.split_once("\nSettings:\n").expect("they come last");
    assert!(before.contains("IOPS=") && settings.contains("sample-every"), "{detailed}");
    let output = output(&words);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        text.starts_with("weir iops: device /dev/null") && !text.contains("Settings:"),
        "{text}"
    );
    let line = text.lines().find(|line| line.starts_with("IOPS=")).expect("the line");
    // What is under way when the counters are read is issued and not yet an entry, or the reverse.
    let (_, calls) = line.split_once(", BW=0 B/s, IOS/call=").expect("what fio's line has");
    let near_one = |ios: &str| (ios.parse::<f64>().expect("a number") - 1.0).abs() < 0.1;
    assert!(calls.split('/').count() == 2 && calls.split('/').all(near_one), "{line}");
    for word in
        ["issued", "completed", "latency", "system calls", "CPU", "over time", "taking it costs"]
    {
        assert!(text.contains(word), "{word} in {text}");
    }
}

#[test]
fn the_cost_of_latencies_is_measured_on_demand() {
    let output = iops(&["/dev/null", "-t", "100ms", "--sampling-cost"]);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let cost = &document(&output)["sampling_cost"];
    assert_eq!(cost["pairs"], 9, "{cost}");
    assert!(cost["low"].as_f64() <= cost["ratio"].as_f64(), "{cost}");
}

#[test]
fn every_design_that_moves_bytes_writes_as_often_as_it_is_told() {
    for design in what_runs_here() {
        let output = iops(&["/dev/null", "--write", "--design", &design, "-k", "20k", "-l", "512"]);
        let found = document(&output);
        if ["sync-empty", "no-op", "control", "uring-cmd"].contains(&design.as_str()) {
            assert_eq!(output.status.code(), Some(5), "{design}: {found}");
            assert!(errors_of(&found).contains("it has no writes"), "{found}");
            continue;
        }
        assert_eq!(output.status.code(), Some(0), "{design}: {}", errors(&output));
        let (report, counts) = (&found["report"], &found["report"]["counts"]);
        assert_eq!((&counts["issued"], &counts["completed"]), (&20_000.into(), &20_000.into()));
        assert_eq!(counts["bytes"], 20_000 * 512, "{design}: {counts}");
        assert_eq!((&counts["short"], &counts["empty"]), (&0.into(), &0.into()));
        assert_eq!(report["direction"], "writes");
        let effective = found["settings"].as_array().expect("a list");
        assert!(effective.iter().any(|s| s["name"] == "direction" && s["value"] == "writes"));
    }
}

#[test]
fn nothing_is_written_to_but_what_throws_it_away() {
    let file = std::env::temp_dir().join(format!("weir-not-written-{}", std::process::id()));
    std::fs::write(&file, "something").expect("a file");
    let path = file.to_str().expect("text");
    for words in [
        &[path][..],
        &[path, "--device", path],
        &["/dev/full"],
        &["/dev/full", "--device", "/dev/full"],
        &["/dev/ptmx"],
        &["eventfd:"],
        &["timer:10us"],
        // It would be refused once it is there.
        &["/dev/weir-has-no-such"],
    ] {
        let output = iops(&[words, &["--write", "-k", "1"]].concat());
        let found = document(&output);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {found}");
        assert!(errors_of(&found).contains("weir writes only to"), "{words:?}: {found}");
    }
    let left = std::fs::read(&file).expect("it is there");
    std::fs::remove_file(&file).expect("it is there");
    assert_eq!(left, b"something");
}

#[test]
fn what_must_not_be_read_is_wrong_usage_and_what_cannot_is_failure() {
    for (words, code, said) in [
        (&["/dev"][..], 2, "directory"),
        (&["/proc/self/comm", "--device", "/proc/self/stat"], 2, "--device"),
        (&["/proc/self/ns/net"], 2, "(nsfs)"),
        (&["/dev/ptmx"], 2, "a terminal"),
        (&["/dev/tty", "--device", "/dev/tty"], 2, "no flag"),
        (&["/dev/weir-has-no-such"], 2, "os error 2"),
        (&["/dev/null", "--design", "nonsense"], 2, "sync-empty"),
        (&["/dev/null", "--design", "sync", "--depth", "3"], 2, "one I/O at a time"),
        (&["/dev/null", "--design", "ring", "--depth", "0"], 2, "1 to 16384"),
        (&["/dev/null", "-k", "0"], 2, "1 or more"),
        (&["/dev/null", "-l", "1G"], 2, "16777216"),
        (&["eventfd:", "-l", "4"], 2, "8 or more"),
        (&["timer:10us", "-l", "4"], 2, "8 or more"),
        (&["timer:"], 2, "as in timer:10us"),
        (&["timer:soon"], 2, "as in timer:10us"),
        (&["timer:2s"], 2, "0 to 1s"),
        (&["timer:10us", "--design", "libaio"], 5, "libaio would wait"),
        (&["timer:10us", "--design", "sync-empty"], 5, "asks for none"),
        (&["/dev/null", "-t", "never"], 2, "number"),
        (&["/dev/null", "-t", "0"], 2, "more than 0"),
        (&["/dev/null", "--design", "control"], 5, "nothing device"),
        (&["/proc/kmsg"], 2, "--device"),
        (&["/proc/self/mem", "-k", "5"], 2, "--device"),
        (&["/proc/self/mem", "--device", "/proc/self/mem", "-k", "5"], 1, "/proc/self/mem"),
        (
            &["/proc/self/mem", "--device", "/proc/self/mem", "-k", "5", "--errors-max", "5"],
            3,
            "5 I/Os failed",
        ),
    ] {
        let output = iops(words);
        let said_all = errors(&output);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {said_all}");
        assert!(said_all.contains(said), "{words:?}: {said_all}");
        let found = document(&output);
        let status = if code == 3 { "invalid" } else { "failed" };
        assert_eq!(found["status"], status, "{found}");
        let reason = errors_of(&found);
        assert!(!reason.is_empty(), "{found}");
        assert!(reason.matches("os error").count() <= 1, "a cause is told once: {reason}");
    }
}

#[test]
fn the_figures_so_far_come_with_a_failure() {
    let named = ["/proc/self/mem", "--device", "/proc/self/mem"];
    let found = document(&iops(&[&named[..], &["-k", "50", "--errors-max", "10"]].concat()));
    assert_eq!(
        (&found["status"], &found["report"]["ended_by"]),
        (&"failed".into(), &"failure".into())
    );
    let counts = &found["report"]["counts"];
    assert_eq!((&counts["issued"], &counts["failed"]), (&11.into(), &11.into()), "{found}");
    assert_eq!(found["report"]["errors"][0][1], 11);
}

#[test]
fn a_listed_character_device_a_named_file_and_an_eventfd_are_read() {
    let listed = document(&iops(&["/dev/urandom", "-l", "16", "-k", "9"]));
    assert_eq!(listed["report"]["counts"]["bytes"], 144, "{listed}");
    let named = document(&iops(&["/proc/stat", "--device", "/proc/stat", "-l", "3", "-k", "9"]));
    assert_eq!(named["report"]["counts"]["bytes"], 27, "{named}");
    let event = document(&iops(&["eventfd:", "-k", "9"]));
    assert_eq!(event["report"]["counts"]["bytes"], 72, "{event}");
}

/// By every name of it, with and without being named once more: what waits in the pipe is still there.
#[test]
fn a_pipe_of_others_is_refused_and_nothing_is_taken_from_it() {
    for path in ["-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"] {
        for named in [&[][..], &["--device", path]] {
            let (mut reader, mut writer) = std::io::pipe().expect("a pipe");
            writer.write_all(b"for another").expect("there is room");
            drop(writer);
            let words =
                [&["iops", path, "--json", "-i", "0", "-O", "0", "-k", "1"], named].concat();
            let child = weir(&words)
                .stdin(reader.try_clone().expect("a descriptor"))
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn();
            let ended = ends(child.expect("weir can be started"));
            assert_eq!(ended.status.code(), Some(2), "{words:?}: {}", errors(&ended));
            let found = document(&ended);
            assert!(errors_of(&found).contains("it is a pipe"), "{found}");
            assert!(errors_of(&found).contains("weir reads /dev/null"), "{found}");
            let mut left = String::new();
            reader.read_to_string(&mut left).expect("it ends");
            assert_eq!(left, "for another", "{words:?}");
        }
    }
    // A file at the same place is read.
    let child = weir(&["iops", "-", "--json", "-i", "0", "-O", "0", "-l", "8", "-k", "9"])
        .stdin(std::fs::File::open(env!("CARGO_BIN_EXE_weir")).expect("it is there"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let found = document(&ends(child.expect("weir can be started")));
    assert_eq!(found["report"]["counts"]["bytes"], 72, "{found}");
}

#[test]
fn a_timer_takes_its_time_and_setting_it_is_counted() {
    let found = document(&iops(&["timer:200us", "-k", "5k", "--sample-every", "1"]));
    let (report, window) = (&found["report"], &found["report"]["window"]);
    assert_eq!((&report["kind"], &report["device"]), (&"timer".into(), &"timer:200us".into()));
    assert_eq!(report["counts"]["bytes"], 5000 * 8, "{found}");
    assert!(report["latency_ns"]["min"].as_u64() >= Some(200_000), "{report}");
    let calls = window["kernel_entries_per_io"].as_f64().expect("some were watched");
    assert!((1.8..=2.2).contains(&calls), "it is set, and read: {window}");
    let effective = found["settings"].as_array().expect("a list");
    let said = |name: &str, value: &str| {
        effective.iter().any(|s| s["name"] == name && s["value"].as_str().unwrap().contains(value))
    };
    assert!(said("delay-ns", "200000") && said("setting-it", "each I/O"), "{found}");
    assert!(said("on-a-ring", "tried") || said("on-a-ring", "worker threads"), "{found}");
}

/// One that reads for a minute, unless it is interrupted.
fn started(more: &[&str]) -> Child {
    let child = weir(&["iops", "/dev/null", "--json", "-t", "60"])
        .args(more)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    child.expect("weir can be started")
}

/// Whether it is the line of an interval by whose end there were I/Os: the time, from and to, and how many in all.
fn tells_of_ios(line: &str) -> bool {
    let numbers: Vec<f64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
    numbers.len() > 3 && numbers[2] > 0.0
}

#[test]
fn ctrl_c_ends_it_with_the_figures_so_far() {
    for design in what_runs_here() {
        let mut child = started(&["-O", "0", "-i", "20ms", "--design", &design]);
        let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        assert!(lines.any(|line| line.is_ok_and(|line| tells_of_ios(&line))), "{design}");
        let rest = std::thread::spawn(move || lines.map_while(Result::ok).collect::<Vec<_>>());
        interrupt(child.id());
        let ended = ends(child);
        let rest = rest.join().expect("it reads to the end").join("\n");
        assert_eq!(ended.status.code(), Some(130), "{design}: {rest}");
        assert!(
            rest.contains("ended by Ctrl-C or a signal after") && rest.contains(" of 60 s"),
            "{design}: {rest}"
        );
        let found = document(&ended);
        assert_eq!(found["report"]["ended_by"], "asked", "{design}: {found}");
        let count = |name: &str| found["report"]["counts"][name].as_u64().expect("a count");
        assert!(count("completed") > 0, "{design}");
        assert_eq!(count("issued"), count("completed") + count("failed"), "{design}");
    }
}

#[test]
fn a_dry_run_reads_nothing() {
    let output = iops(&["/dev/null", "--dry-run", "--design", "ring", "--depth", "7"]);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let found = document(&output);
    assert_eq!(found["report"], Value::Null);
    let settings = found["settings"].as_array().expect("a list");
    assert!(settings.iter().any(|s| s["name"] == "depth" && s["value"] == "7"), "{found}");
    for (name, value) in [
        ("time", "10s"),
        ("warm-up", "0ns"),
        ("interval", "none"),
        ("ios-max", "none"),
        ("sample-every", "128"),
        ("errors-max", "0"),
    ] {
        assert!(
            settings.iter().any(|s| s["name"] == name && s["value"] == value),
            "{name}: {found}"
        );
    }
    assert!(settings.iter().any(|s| s["name"] == "cpu" && s["value"] != ""), "{found}");
}

/// What a design's check says where this process may have so many descriptors.
fn checked_with(descriptors: u32, design: &str) -> std::process::Output {
    let script = format!("ulimit -n {descriptors}; exec \"$@\"");
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", &script, "sh", env!("CARGO_BIN_EXE_weir"), "check-device"]);
    shell.args(["--design", design]).stdin(Stdio::null());
    shell.output().expect("there is a shell")
}

#[test]
fn what_is_short_at_the_start_makes_a_design_unavailable_and_not_one_that_reads_nothing() {
    if !what_runs_here().contains(&"ring".to_owned()) {
        return;
    }
    let mut short = 0;
    for descriptors in 4..16 {
        let output = checked_with(descriptors, "ring --depth 4");
        if output.status.code() == Some(127) {
            continue; // not even its libraries could be loaded
        }
        let said = document(&output);
        match output.status.code() {
            Some(0) => {
                assert_eq!(said["reads_nothing"], false, "{descriptors}: {said}");
                assert_eq!(said["wrong"], Value::Null, "{descriptors}: {said}");
            }
            // The file of the check itself is no affair of the design.
            Some(1) => assert!(errors_of(&said).contains("weir-check"), "{descriptors}: {said}"),
            Some(5) => {
                assert_eq!(said["status"], "unavailable", "{descriptors}: {said}");
                assert!(errors_of(&said).contains("design ring"), "{descriptors}: {said}");
                short += 1;
            }
            other => panic!("{descriptors}: {other:?}: {said}"),
        }
    }
    assert!(short > 0, "a ring takes a descriptor");
}

fn errors_of(said: &Value) -> String {
    said["reason"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_path_at_which_there_is_nothing_is_wrong_usage() {
    let nope = output(&["iops", "/nonexistent/nope", "--json"]);
    assert_eq!(nope.status.code(), Some(2), "{}", errors(&nope));
    assert!(errors_of(&document(&nope)).contains("check the path"), "{}", errors(&nope));
}

#[test]
fn what_ends_in_the_warm_up_says_so() {
    let over = output(&["iops", "/dev/null", "--json", "-k", "1k", "-O", "60", "-i", "0"]);
    assert_eq!(over.status.code(), Some(0), "{}", errors(&over));
    assert!(errors(&over).contains("it ended before the warm-up did"), "{}", errors(&over));
    assert_eq!(document(&over)["report"]["window"], Value::Null);
    let mut child = started(&["-O", "60", "-i", "0"]);
    let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
    // The settings, which are told once it reads.
    assert!(lines.any(|line| line.is_ok_and(|line| line.starts_with("weir iops: device "))));
    std::thread::spawn(move || lines.for_each(drop));
    interrupt(child.id());
    let ended = ends(child);
    assert_eq!(ended.status.code(), Some(130));
    assert!(errors_of(&document(&ended)).contains("Ctrl-C or a signal in the warm-up"));
}
