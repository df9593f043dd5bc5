//! The questions of the study, each with a tiny budget: what a plan has, and that what it asks for is
//! run, reported and put into the document.

#![forbid(unsafe_code)]

mod common;

use common::{document, errors, output};
use serde_json::Value;

fn rows(document: &Value) -> &[Value] {
    document["results"].as_array().map_or(&[], Vec::as_slice)
}

/// Compares `blocking` in so many rounds with these words; gives the document.
fn compared(rounds: &str, words: &[&str]) -> Value {
    let all = ["compare", "udp", "--design", "blocking", "--quick", "--rounds", rounds, "--json"];
    let run = output(&[&all[..], words].concat());
    let document = document(&run);
    assert_eq!(document["error"], Value::Null, "{}", errors(&run));
    for row in rows(&document) {
        assert_eq!(row["conformance"], "passed", "{row:#}");
    }
    document
}

#[test]
fn the_plan_of_the_whole_study_tells_its_time_its_loads_and_its_rows() {
    let plan = output(&["compare", "--full", "--dry-run", "--json"]);
    assert_eq!(plan.status.code(), Some(0), "{}", errors(&plan));
    let document = document(&plan);
    let planned_s = document["planned_s"].as_f64().unwrap();
    assert!(planned_s > 600.0, "{planned_s}");
    let loads = document["loads"].as_array().unwrap();
    let any = |wanted: &dyn Fn(&Value) -> bool| loads.iter().any(wanted);
    for size in [64, 1024, 1400] {
        assert!(any(&|load| load["size_bytes"] == size), "{size}");
    }
    assert!(any(&|load| load["ports"] == 4) && any(&|load| load["generators"] == 2));
    assert!(any(&|load| load["work"] == 500 && load["work_shared"] == true));
    assert!(any(&|load| load["search"]["goal"] == "no_drop"));
    assert!(any(&|load| load["share_of_partial_drop_rate"] == 0.9));
    // What the loads take one by one is what it takes in all.
    assert!(loads.iter().all(|load| load["rows"].as_u64().is_some_and(|rows| rows > 0)));
    let said = errors(&plan);
    assert!(said.contains(" min; server on core"), "{said}");
    assert!(said.contains("about 25 rounds of "), "{said}");
}

#[test]
fn a_budget_that_is_given_is_the_one_announced() {
    let plan = output(&["compare", "--full", "-t", "90", "--dry-run", "--json"]);
    assert_eq!(document(&plan)["planned_s"], 90.0);
    assert!(errors(&plan).contains("in about 90 s"), "{}", errors(&plan));
}

#[test]
fn wrong_values_of_the_lists_are_said() {
    for (words, said) in [
        (&["--ports", "0"][..], "--ports"),
        (&["--threads", "0"][..], "--threads"),
        (&["--sweep", "everything"][..], "--sweep"),
        (&["--load", "fast"][..], "--load"),
        (&["--load", "50k", "--pace", "50k"][..], "--pace"),
        (&["--receive-offload=some"][..], "--receive-offload"),
        (&["--size", "64,70000"][..], "70000"),
    ] {
        let failed = output(&[&["compare", "udp", "--dry-run"], words].concat());
        assert_eq!(failed.status.code(), Some(2), "{words:?}");
        assert!(errors(&failed).contains(said), "{words:?}: {}", errors(&failed));
    }
}

#[test]
fn each_value_of_a_list_is_run_by_itself() {
    let words = ["--size", "64,512", "--ports", "1,2", "--flows", "1,3", "--generators", "1,2"];
    let document = compared("1", &[&words[..], &["--load", "saturation"]].concat());
    let of = |row: &Value| {
        ["size_bytes", "ports", "flows", "generators"]
            .map(|name| row["load"][name].as_u64().unwrap())
    };
    let first: Vec<[u64; 4]> =
        rows(&document).iter().filter(|row| row["role"] == "plain").map(of).collect();
    let wanted = [[64, 1, 1, 1], [512, 1, 1, 1], [64, 2, 2, 1], [64, 1, 3, 1], [64, 1, 1, 2]];
    assert_eq!(first, wanted);
    for row in rows(&document) {
        assert_eq!(row["status"], "ok", "{row:#}");
        let counts = &row["ledger"]["counts"];
        let came = counts["received"].as_u64() > Some(0);
        assert!(came || common::measured_nothing(row), "{row:#}");
    }
    let calibrated = document["calibration"].as_array().unwrap();
    // One for each size, number of flows and of generators; a generator without a core is not calibrated.
    assert!((1..=5).contains(&calibrated.len()), "{calibrated:?}");
}

#[test]
fn work_and_threads_are_swept() {
    let words = ["--sweep", "work,threads", "--threads", "1,2", "--work", "0,shared:0,shared:300"];
    let document = compared("1", &words);
    let sweeps = &document["sweeps"];
    // What could not be compared, as the machine was another from run to run, is left out.
    let work = sweeps["work"].as_array().unwrap();
    assert!(work.len() <= 1, "{work:?}");
    for shared in work {
        assert_eq!(shared["work_shared"], true);
        assert!(shared["crossings"].is_array());
        let designs = shared["designs"].as_array().unwrap();
        assert!((1..=2).contains(&designs.len()), "on one thread and on two: {designs:?}");
        let at =
            shared["stops"].as_array().unwrap().iter().map(|stop| stop["at"].as_f64().unwrap());
        assert!(at.clone().all(|at| [0.0, 300.0].contains(&at)) && at.is_sorted(), "{shared}");
    }
    for stop in work.iter().flat_map(|shared| shared["stops"].as_array().unwrap()) {
        let figures = stop["received_per_s"].as_array().unwrap();
        // None where the machine was another from run to run, and 0 where the generator had no core in the only one.
        let is_late = rows(&document).iter().any(common::measured_nothing);
        let is_rate = |figure: &Value| figure.as_f64().is_none_or(|f| f > 0.0 || is_late);
        assert!(figures.iter().all(is_rate), "{stop}");
    }
    let threads = sweeps["threads"].as_array().unwrap();
    assert!(threads.len() <= 3, "one for each load: {threads:?}");
    let answers = document["answers"].as_array().unwrap();
    let of = |question: &str| {
        answers.iter().find(|answer| answer["question"] == question).unwrap()["sentences"]
            .to_string()
    };
    assert!(!of("How many threads?").is_empty());
    assert!(of("Is registered I/O worth it here, and when?").contains("Not measured"));
}

#[test]
fn rising_load_gives_rates_and_latencies_below_them() {
    let document = compared("1", &["--sweep", "load"]);
    let swept = &document["sweeps"]["load"];
    assert_eq!(swept["load"]["size_bytes"], 64, "{swept}");
    let steps: Vec<&Value> = document["loads"].as_array().unwrap().iter().collect();
    assert_eq!(steps.len(), 14, "saturation, six shares, four halvings, three latencies");
    for row in rows(&document) {
        // On a busy machine the generator may keep no pace, and then there is nothing to search.
        let explained = row["status"] == "ok" || row["skipped"].is_string();
        assert!(explained, "{row:#}");
    }
    for row in swept["rows"].as_array().unwrap() {
        let points = row["points"].as_array().unwrap();
        let rates: Vec<f64> =
            points.iter().map(|point| point["sent_per_s"].as_f64().unwrap()).collect();
        assert!(rates.is_sorted() && rates[0] > 0.0, "{rates:?}");
        assert!(row["no_drop"].is_object() && row["partial_drop"].is_object());
    }
}

/// Receive offload is Linux's.
#[cfg(target_os = "linux")]
#[test]
fn receive_offload_is_paired_in_one_run_and_ranked_apart() {
    let document = compared("2", &["--receive-offload=paired"]);
    let with = |row: &&Value| row["load"]["receive_offload"] == true;
    let (with, without): (Vec<&Value>, Vec<&Value>) = rows(&document).iter().partition(with);
    assert_eq!((with.len(), without.len()), (2, 2), "each under two names");
    for row in [&with[..], &without[..]].concat() {
        assert_eq!(row["status"], "ok", "{row:#}");
    }
    for (rows, offload) in [(&with, "true"), (&without, "false")] {
        for row in rows {
            assert_eq!(row["settings"]["receive-offload"], offload, "as obtained");
        }
        // Too noisy to rank is an answer too, on a busy machine.
        let ranks: Vec<&Value> = rows.iter().map(|row| &row["rank"]).collect();
        assert!(ranks.iter().all(|rank| rank.is_null() || **rank == 1), "of its own: {ranks:?}");
    }
    // Runs that do not count, and such in which nothing arrived, make no pairs.
    let makes_pairs = |run: &Value| {
        run["counted"] == true && run["received_per_s"].as_f64().is_some_and(|rate| rate > 0.0)
    };
    let mut runs = rows(&document).iter().flat_map(|row| row["runs"].as_array().unwrap());
    if common::machine_changed(&document) || !runs.all(makes_pairs) {
        return eprintln!("skipped: the machine was too busy or changed, so there are no pairs");
    }
    let gains = &document["loads"][0]["receive_offload"]["gains"];
    assert_eq!(gains["designs"].as_array().map(Vec::len), Some(1), "{gains}");
    let ratio = &gains["designs"][0]["ratio"];
    assert!(ratio["median"].as_f64().is_some_and(|ratio| ratio > 0.0), "{ratio}: {document:#}");
}
