//! The performance log: of comparisons of each kind, and of a server by itself.

#![forbid(unsafe_code)]

mod common;

use std::path::{Path, PathBuf};

use common::{Server, assert_compared, document, errors, output};
use serde_json::Value;

/// A short comparison of each kind, and what its server counts.
const KINDS: [(&[&str], &str); 3] = [
    (&["compare", "udp", "--design", "blocking", "--rounds", "1", "--quick"], "datagrams"),
    (&["compare", "tcp", "--design", "poll", "-c", "2", "--rounds", "1", "--quick"], "messages"),
    (&["compare", "iops", "--design", "sync", "--rounds", "1", "--quick"], "completed"),
];

fn folder(name: &str) -> PathBuf {
    let folder = format!("weir-performance-{}-{name}", std::process::id());
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder)
}

/// The only folder of results in this one.
fn results(folder: &Path) -> PathBuf {
    let mut all = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.unwrap().path());
    all.next().expect("results")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path:?}: {error}"))
}

#[test]
fn every_run_of_a_comparison_has_its_log_beside_the_results() {
    for (words, counter) in KINDS.into_iter().filter(|(words, _)| common::can_compare(words[1])) {
        let at = folder(words[1]);
        let run = output(&[words, &["--results", at.to_str().unwrap()]].concat());
        assert_compared(&run);
        let results = results(&at);
        let document: Value = serde_json::from_str(&read(&results.join("result.json"))).unwrap();
        let rows = document["results"].as_array().unwrap();
        let runs: Vec<&Value> =
            rows.iter().flat_map(|row| row["runs"].as_array().unwrap()).collect();
        assert!(!runs.is_empty(), "{document:#}");
        // One whose generator had no core while it was to measure may have received nothing.
        for run in runs.iter().filter(|run| run["disturbed"] != "pace_not_kept") {
            let records = run["performance"].as_array().expect("a log");
            assert!(!records.is_empty(), "{run:#}");
            let counted = |of: &Value| of["counts"][counter].as_u64().unwrap_or(0);
            // A reading that came after the load, on a busy machine, has nothing of it, and that is said.
            let has_any = records.iter().map(counted).sum::<u64>() > 0;
            assert!(has_any || run["server_unknown"].is_string(), "{run:#}");
            let thread = &records[0]["threads"][0];
            assert!(thread["name"].as_str().unwrap().starts_with("weir-"), "{thread}");
            assert!(thread["usage"]["cpu_ns"].is_u64(), "{thread}");
            assert!(records[0]["process"]["cpu_ns"].is_u64(), "{}", records[0]);
            // What a system does not tell stands there as unknown.
            assert!(records[0]["system"].get("interrupts").is_some(), "{}", records[0]);
            #[cfg(target_os = "linux")]
            assert!(records[0]["system"]["interrupts"].is_u64());
        }
        let all: usize = runs.iter().map(|run| run["performance"].as_array().unwrap().len()).sum();
        assert_eq!(read(&results.join("performance.ndjson")).lines().count(), all);
        let csv = read(&results.join("performance.csv"));
        assert!(
            csv.starts_with("kind,load,spec,") && csv.contains(&format!(",server,,{counter},")),
            "{csv}"
        );
        let page = read(&results.join("report.html"));
        assert!(!page.contains("\"from_ns\"") && page.contains("performance.ndjson"));
        // The same once more from the saved result.
        let again = at.join("again.csv");
        let words =
            ["report", results.to_str().unwrap(), "--performance-log", again.to_str().unwrap()];
        let report = output(&words);
        assert_eq!(report.status.code(), Some(0), "{}", errors(&report));
        assert_eq!(read(&again), csv);
        std::fs::remove_dir_all(at).unwrap();
    }
}

#[test]
fn without_a_log_there_is_none() {
    let at = folder("none");
    let words =
        [KINDS[0].0, &["--performance-interval", "0", "--results", at.to_str().unwrap()]].concat();
    assert_compared(&output(&words));
    let results = results(&at);
    assert!(!results.join("performance.ndjson").exists());
    let saved = results.join("result.json");
    assert!(!read(&saved).contains("\"performance\""));
    let report = output(&["report", saved.to_str().unwrap(), "--performance-log", "x.csv"]);
    assert_eq!(report.status.code(), Some(2));
    assert!(errors(&report).contains("has no performance log"), "{}", errors(&report));
    std::fs::remove_dir_all(at).unwrap();
    let wrong = output(&["compare", "udp", "--performance-interval", "1ms", "--dry-run"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(errors(&wrong).contains("20ms to 1 h"), "{}", errors(&wrong));
}

#[test]
fn a_server_by_itself_logs_its_whole_life() {
    let at = folder("serve");
    std::fs::create_dir_all(&at).unwrap();
    for name in ["log.ndjson", "log.csv"] {
        let path = at.join(name);
        let log = ["--performance-log", path.to_str().unwrap(), "--performance-interval", "20ms"];
        let server =
            Server::start(&[&["--design", "blocking --threads 2", "--once"][..], &log].concat());
        let control = ["--control", &server.control, "--any-pace", "--json"];
        let flood = ["flood", "127.0.0.1", "-k", "200", "--pps", "2k", "-i", "0"];
        let flood = output(&[&flood[..], &control].concat());
        assert_eq!(flood.status.code(), Some(0), "{}", errors(&flood));
        let (code, report) = server.end();
        assert_eq!(code, Some(0));
        assert!(report.get("performance").is_none(), "it stands in the file");
        let received = report["counters"]["datagrams"].as_u64().unwrap();
        let text = read(&path);
        let logged: u64 = match name {
            "log.csv" => {
                let of = text.lines().filter_map(|line| line.split_once(",server,,datagrams,"));
                of.map(|(_, count)| count.parse::<u64>().unwrap()).sum()
            }
            _ => {
                let records = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
                records.filter_map(|record| record["counts"]["datagrams"].as_u64()).sum()
            }
        };
        assert_eq!(logged, received, "{text}");
        assert!(text.contains("weir-udp-0") && text.contains("weir-udp-1"), "{text}");
    }
    std::fs::remove_dir_all(at).unwrap();
}

#[test]
fn the_log_of_a_run_is_in_the_report_where_there_is_no_file() {
    let server =
        Server::start(&["--design", "blocking", "--once", "--performance-interval", "20ms"]);
    let control = ["--control", &server.control, "--any-pace", "--json"];
    // A second: many intervals, also where the server is looked at late.
    let flood = ["flood", "127.0.0.1", "-k", "2k", "--pps", "2k", "-i", "0"];
    let flood = output(&[&flood[..], &control].concat());
    assert_eq!(flood.status.code(), Some(0), "{}", errors(&flood));
    assert!(document(&flood)["report"].get("performance").is_none(), "it is not for the generator");
    let (_, report) = server.end();
    let records = report["performance"].as_array().expect("a log");
    let logged: u64 = records.iter().filter_map(|of| of["counts"]["datagrams"].as_u64()).sum();
    // What came after the generator had said its end is in no record.
    assert!(logged > 0 && logged <= report["counters"]["datagrams"].as_u64().unwrap(), "{report}");
}

/// A disk that is full costs the log, which is told, and not the server.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_costs_the_log_alone() {
    let link = folder("full").with_extension("ndjson");
    std::os::unix::fs::symlink("/dev/full", &link).unwrap();
    let log = ["--performance-log", link.to_str().unwrap(), "--performance-interval", "20ms"];
    let server = Server::start(&[&["--design", "blocking", "--once"][..], &log].concat());
    let control = ["--control", &server.control, "--any-pace", "--json"];
    let flood = output(
        &[&["flood", "127.0.0.1", "-k", "100", "--pps", "1k", "-i", "0"][..], &control].concat(),
    );
    assert_eq!(flood.status.code(), Some(0), "{}", errors(&flood));
    let (code, report) = server.end();
    std::fs::remove_file(link).unwrap();
    assert_eq!(code, Some(1), "that it was lost is told");
    let last = &report;
    assert!(last["error"].is_object() || last["counters"]["datagrams"].is_u64(), "{last}");
    let missing = folder("missing").join("log.csv");
    let words = ["serve", "udp", "--performance-log", missing.to_str().unwrap()];
    let refused = output(&words);
    assert_eq!(refused.status.code(), Some(1));
    assert!(errors(&refused).contains("cannot write the performance log"), "{}", errors(&refused));
}
