use super::*;
use crate::experiment::plan::Settings;
use crate::report::document::{document, plan};
use crate::udp::report::fixture;

fn walk(value: &Value, path: &str, seen: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                walk(value, &format!("{path}.{key}"), seen);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| walk(item, path, seen)),
        _ => seen.push(path.to_owned()),
    }
}

#[test]
fn the_document_has_what_the_schema_says() {
    let document = document(&fixture::results());
    assert_eq!(document["schema_version"], 2);
    assert_eq!(document["command"], json!(["weir", "compare", "udp"]));
    let rows = document["results"].as_array().unwrap();
    assert_eq!(rows.len(), 14, "seven rows under two loads");
    let hybrid = &rows[3];
    assert_eq!((&hybrid["design"], &hybrid["provider"]), (&json!("rio-hybrid"), &json!("uring")));
    assert_eq!(hybrid["options"], json!({"threads": "1"}));
    assert_eq!(
        hybrid["load"],
        json!({
            "kind": "saturation", "offered_per_s": null, "share_of_maximum": null,
            "share_of_partial_drop_rate": null, "search": null, "size_bytes": 64, "replies": null,
            "work": 0, "work_shared": false, "ports": 1, "flows": 1, "generators": 1, "receive_offload": false, "send_offload": true,
            "rcvbuf_bytes": 212_992, "busy_poll_us": null,
        }),
        "what was obtained"
    );
    let asked = &document["loads"][0]["load"]["rcvbuf_bytes"];
    assert_eq!(asked, &Value::Null, "nobody asked for a size");
    assert_eq!((&hybrid["status"], &hybrid["reason"]), (&json!("ok"), &Value::Null));
    let mut refused = fixture::results();
    for (engine, offloaded) in [("sendmmsg", false), ("xdp", true)] {
        for sample in &mut refused.cells[0][3].samples {
            sample.engine = Some(engine.into());
        }
        let refused = crate::report::document::document(&refused);
        assert_eq!(refused["results"][3]["load"]["send_offload"], offloaded, "as obtained");
    }
    let received = &hybrid["metrics"]["received_per_s"];
    assert_eq!(received["median"], 2.05e6);
    assert_eq!(received["samples"].as_array().unwrap().len(), 8);
    assert_eq!(received["counted"].as_array().unwrap().len(), 8, "one for each sample");
    assert_eq!((&received["counted"][2], &received["counted"][3]), (&json!(true), &json!(false)));
    assert_eq!(received["unit"], "datagrams/s");
    let paced = &rows[10];
    assert_eq!(paced["metrics"]["latency_ns"]["p50"]["median"], 4700.0);
    assert_eq!(paced["metrics"]["latency_ns"]["p99"]["unit"], "ns");
    assert_eq!(paced["load"]["offered_per_s"], 50_000);
}

#[test]
fn rows_that_did_not_run_say_why() {
    let document = document(&fixture::results());
    let rows = document["results"].as_array().unwrap();
    assert_eq!(rows[5]["status"], "unavailable");
    assert!(rows[5]["reason"].as_str().unwrap().contains("Operation not permitted"));
    assert_eq!(rows[6]["status"], "failed");
    assert!(rows[6]["reason"].as_str().unwrap().contains("exit code 101"));
    assert_eq!(rows[6]["metrics"]["received_per_s"]["median"], Value::Null);
    assert_eq!(rows[6]["rank"], Value::Null);
}

#[test]
fn what_is_not_a_number_becomes_null_and_the_document_stays_valid() {
    let mut results = fixture::results();
    results.cells[0][3].samples[0].received_per_s = Some(f64::NAN);
    results.cells[0][3].samples[1].cpu_ns_per_datagram = Some(f64::INFINITY);
    let text = serde_json::to_string(&document(&results)).unwrap();
    assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    let again: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(again["results"][3]["metrics"]["received_per_s"]["samples"][0], Value::Null);
    assert_eq!(again["results"][3]["runs"][0]["received_per_s"], Value::Null);
}

#[test]
fn the_fields_are_those_that_readers_rely_on() {
    let mut seen = vec![];
    walk(&document(&fixture::results()), "", &mut seen);
    seen.sort();
    seen.dedup();
    for name in [
        ".machine.cpu_model",
        ".seed",
        ".calibration.sent_per_s",
        ".calibration.core_to_core_ns",
        ".calibration.core_to_core_after_ns",
        ".check.datagrams",
        ".results.runs.calibration_alike",
        ".results.winner_to_it.verdict",
        ".loads.noise_floor_percent",
        ".loads.confidence.reached",
        ".loads.published.measured_ratio_to_traditional",
        ".results.ratio_to_traditional.verdict",
        ".results.ledger.unexplained",
        ".results.ledger.lost_place_unknown",
        ".results.ledger.counts.dropped_socket",
        ".results.metrics.batch_datagrams.p50.median",
        ".results.runs.core_to_core_ns",
        ".results.settings.receive-buffer-bytes",
        ".results.skipped",
        ".loads.shown",
        ".answers.question",
        ".answers.sentences",
        ".calibration.generators",
    ] {
        assert!(seen.iter().any(|path| path == name), "{name} is missing of {seen:?}");
    }
}

#[test]
fn what_receive_offload_brings_is_in_the_document() {
    let document = document(&fixture::with_offload());
    let offload = &document["loads"][0]["receive_offload"];
    let gains = &offload["gains"];
    assert_eq!(gains["designs"].as_array().unwrap().len(), 2);
    assert_eq!(gains["best_with_to_best_without"]["ratio"]["verdict"], "real");
    let ratio = gains["best_with_to_best_without"]["ratio"]["median"].as_f64().unwrap();
    assert!((ratio - 10.0).abs() < 1e-9, "{ratio}");
    assert!(gains["best_with_to_traditional"]["without"].as_str().unwrap().contains("5000"));
    assert_eq!(offload["winner"], document["loads"][0]["winner"], "the same design, with it");
    assert_eq!(document["loads"][1]["receive_offload"], Value::Null);
    let rows = document["results"].as_array().unwrap();
    let with = |row: &&Value| row["load"]["receive_offload"] == true;
    let specs: Vec<&Value> = rows.iter().filter(with).map(|row| &row["spec"]).collect();
    assert_eq!(specs.len(), 3, "they take part under the first load only: {specs:?}");
}

#[test]
fn published_figures_stand_beside_what_was_made_like_them() {
    let figures = |results: &Results| {
        document(results)["loads"][0]["published"].as_array().map_or(0, Vec::len)
    };
    assert_eq!(figures(&fixture::results()), PUBLISHED.len());
    let with = |change: fn(&mut Results)| {
        let mut results = fixture::results();
        change(&mut results);
        results
    };
    for unlike in [
        with(|results| results.own.link = Some("a veth pair".into())),
        with(|results| results.loads[0].busy_poll_us = Some(50)),
        with(|results| results.loads[0].work.steps = 500),
        with(|results| results.loads[0].receive_offload = true),
    ] {
        assert_eq!(figures(&unlike), 0);
    }
}

#[test]
fn a_share_of_a_link_says_of_which_and_how_many_that_are() {
    let mut results = fixture::results();
    let of = crate::udp::plan::LinkShare { share: 0.5, bits_per_s: 10_000_000_000 };
    results.loads[1].rate = Rate::OfLink(of);
    let load = &document(&results)["loads"][1]["load"];
    assert_eq!((&load["kind"], &load["offered_per_s"]), (&json!("paced"), &json!(4_807_692)));
    let link = json!({ "share": 0.5, "bits_per_s": 10_000_000_000_u64, "wire_bytes": 130 });
    assert_eq!(load["link"], link);
    let unlinked = &document(&fixture::results())["loads"][1]["load"];
    assert_eq!(unlinked.get("link"), None);
}

#[test]
fn a_plan_tells_its_rows_rounds_and_time() {
    let results = fixture::results();
    let settings = Settings {
        depth: crate::experiment::plan::Depth::Standard,
        rounds: None,
        budget_s: Some(110.0),
        is_bound: true,
    };
    let document = plan(&results, &settings);
    assert_eq!(document["planned_s"], 110.0);
    assert_eq!(document["loads"][0]["rows"], 6, "one of seven cannot run here");
    assert_eq!(document["loads"][1]["rounds_aimed_at"], 9);
    let document = plan(&results, &Settings { rounds: Some(2), ..settings });
    assert_eq!(document["loads"][1]["rounds_aimed_at"], 2);
}
