//! `weir simulate` from outside: figures that are the same each time, files, costs, and what is refused.

#![forbid(unsafe_code)]

mod common;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Output;

use common::{errors, output};
use serde_json::{Value, json};

/// A folder of this test's own.
fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("weir-simulate-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Costs in round numbers.
const COSTS: [(&str, f64); 25] = [
    ("call", 100.0),
    ("clock", 25.0),
    ("lock", 15.0),
    ("lock_spin", 1500.0),
    ("hop", 50.0),
    ("wake", 5000.0),
    ("wake_call", 1000.0),
    ("switch", 1500.0),
    ("slice", 2_800_000.0),
    ("enqueue", 30.0),
    ("handle", 20.0),
    ("moved", 100.0),
    ("receive", 500.0),
    ("receive_hold", 60.0),
    ("receive_none", 150.0),
    ("readiness", 250.0),
    ("dequeue", 150.0),
    ("dequeue_each", 350.0),
    ("completion", 40.0),
    ("post", 10.0),
    ("take", 200.0),
    ("take_each", 450.0),
    ("port_post", 50.0),
    ("port_lock", 15.0),
    ("work_step", 1.0),
];

fn costs(folder: &Path) -> String {
    let mut text = String::new();
    for (name, ns) in COSTS {
        let _ = writeln!(text, "[{name}]\nns = {ns}\nhow = \"invented\"");
    }
    written(&folder.join("costs.toml"), &text)
}

fn written(path: &Path, text: &str) -> String {
    std::fs::write(path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

fn simulated(words: &[&str]) -> Output {
    output(&[&["simulate"], words].concat())
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Few rows, so that it takes a moment.
const FEW: [&str; 10] = [
    "--cores",
    "1,4",
    "--load",
    "50k,20M",
    "--shared-work",
    "0,500ns",
    "--datagrams",
    "5k",
    "--copies",
    "thread",
];

#[test]
fn the_same_costs_and_seed_give_the_same_document_which_has_what_its_schema_says() {
    let folder = folder("document");
    let costs = costs(&folder);
    let words = [&["--costs", &costs, "--json", "--seed", "7"], &FEW[..]].concat();
    let (one, other) = (simulated(&words), simulated(&words));
    assert_eq!(one.status.code(), Some(0), "{}", errors(&one));
    assert_eq!(text(&one), text(&other));
    let document: Value = serde_json::from_str(&text(&one)).unwrap();
    let schema: Value = serde_json::from_str(&text(&simulated(&["--schema"]))).unwrap();
    let wrong: Vec<String> = jsonschema::validator_for(&schema)
        .unwrap()
        .iter_errors(&document)
        .map(|error| error.to_string())
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    let rows = document["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 11 * 2 * 2 * 2);
    for row in rows {
        let of = |name: &str| row[name].as_u64().unwrap();
        let kept = of("received") + of("lost_before_socket") + of("lost_at_socket") + of("waiting");
        assert_eq!(of("arrived"), kept, "{row}");
    }
    let another = simulated(&[&["--costs", &costs, "--json", "--seed", "8"], &FEW[..]].concat());
    assert_ne!(text(&one), text(&another));
}

#[test]
fn whatever_is_written_says_that_it_is_a_model() {
    let folder = folder("files");
    let costs = costs(&folder);
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let (page, table, plots) = (path("model.html"), path("model.csv"), path("plots"));
    let files = ["--costs", &costs, "-o", &page, "-o", &table, "--plots", &plots];
    let shown = simulated(&[&files[..], &FEW[..]].concat());
    assert_eq!(shown.status.code(), Some(0), "{}", errors(&shown));
    let said = "A model: these figures were computed from costs, and none of them was measured.";
    assert!(text(&shown).starts_with(said), "{}", text(&shown));
    let said_anyhow = text(&shown).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said_anyhow.contains("more than port and port-batch"));
    assert!(said_anyhow.contains("buffered") && said_anyhow.contains("rio-hybrid-reader"));
    assert!(
        ["blocking-batch", "epoll", "epoll-batch"]
            .iter()
            .all(|design| said_anyhow.contains(design))
    );
    let longest = text(&shown).lines().map(|line| line.chars().count()).max();
    assert!(longest <= Some(100), "{}", text(&shown));
    let read = |path: &str| std::fs::read_to_string(path).unwrap();
    assert!(read(&page).contains(said));
    assert!(read(&table).lines().skip(1).all(|line| line.starts_with("model,")));
    let pictures: Vec<_> =
        std::fs::read_dir(&plots).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(pictures.len(), 4);
    for picture in pictures {
        assert!(read(picture.to_str().unwrap()).contains("Model: "), "{picture:?}");
    }
}

/// A result of `weir compare udp` with one row that was measured at 1.9 million of 4 million a second.
fn measured(received: f64) -> Value {
    json!({
        "schema_version": 1,
        "kind": "udp",
        "server_cores": [0],
        "generator_cores": [1],
        "loads": [{"name": "saturation, 64 B"}],
        "results": [{
            "name": "blocking", "design": "blocking", "provider": "sockets", "load_name": "saturation, 64 B",
            "options": {},
            "load": {"kind": "saturation", "size_bytes": 64, "work": 0, "work_shared": false, "flows": 1,
                "generators": 1, "ports": 1, "receive_offload": false, "send_offload": true},
            "metrics": {"sent_per_s": {"median": 4e6}, "received_per_s": {"median": received},
                "threads_started": {"median": 1.0}},
        }],
    })
}

#[test]
fn a_measured_result_is_set_beside_the_model_however_far_off_it_is() {
    let folder = folder("check");
    let costs = costs(&folder);
    for (received, said) in
        [(1.9e6, "1 of 1 rows that the server limited are within 10 %"), (1e6, "0 of 1 rows")]
    {
        let report = written(&folder.join("result.json"), &measured(received).to_string());
        let checked = simulated(&["--costs", &costs, "--check", &report]);
        assert_eq!(checked.status.code(), Some(0), "{}", errors(&checked));
        assert!(text(&checked).contains(said), "{}", text(&checked));
    }
}

#[test]
fn what_is_wrong_is_said_with_what_to_do() {
    let folder = folder("wrong");
    let costs = costs(&folder);
    let of = |name: &str, text: &str| written(&folder.join(name), text);
    let (no_toml, no_json) = (of("no.toml", "call = ["), of("no.json", "{"));
    let missing = of("missing.toml", "[call]\nns = 1\nhow = \"\"\n");
    let unknown = of("unknown.toml", "[call]\nns = 1\nhow = \"\"\nwhy = 2\n");
    let tcp = of(
        "tcp.json",
        "{\"schema_version\": 1, \"kind\": \"tcp\", \"loads\": [{}], \"results\": []}",
    );
    for (words, reason) in [
        (vec!["--costs", "/nowhere/costs.toml"], "cannot read /nowhere/costs.toml: "),
        (vec!["--costs", &no_toml], "no.toml"),
        (vec!["--costs", &missing], "these costs are missing"),
        (vec!["--costs", &unknown], "unknown.toml: [call] has why, which no cost has"),
        (vec!["--costs", &costs, "--threads", "0"], "ask for 1 to 256"),
        (vec!["--costs", &costs, "--threads", "999"], "ask for 1 to 256"),
        (vec!["--costs", &costs, "--cores", "0"], "ask for 1 to 256"),
        (vec!["--costs", &costs, "--load", "2000M"], "ask for 1 to 1000M"),
        (vec!["--costs", &costs, "--threshold", "2000"], "threshold of 2000"),
        (vec!["--costs", &costs, "--check", &no_json], "no.json"),
        (vec!["--costs", &costs, "--check", &tcp], "no comparison of UDP servers"),
        (vec!["--costs", &costs, "-o", "costs.toml"], "--calibrate"),
        (vec!["--calibrate", "-o", "costs.html"], ".toml"),
        (vec!["--calibrate", "--json"], "cannot be used with"),
    ] {
        let refused = simulated(&words);
        assert_eq!(refused.status.code(), Some(2), "{words:?}: {}", errors(&refused));
        assert!(errors(&refused).contains(reason), "{words:?}: {}", errors(&refused));
    }
    // The same exit code as of a report and a comparison, before any other file is read.
    for (words, reason) in [
        (
            ["--costs", "/nowhere", "-o", "/nowhere/model.csv"].as_slice(),
            "cannot write /nowhere/model.csv",
        ),
        (&["--calibrate", "-o", "/nowhere/costs.toml"], "cannot write /nowhere/costs.toml"),
        (&["--costs", "/nowhere", "--plots", &costs], "is not a folder"),
    ] {
        let failed = simulated(words);
        assert_eq!(failed.status.code(), Some(1), "{words:?}: {}", errors(&failed));
        assert!(errors(&failed).contains(reason), "{words:?}: {}", errors(&failed));
    }
    let refused = simulated(&["--json", "--costs", &missing]);
    let document: Value = serde_json::from_str(&text(&refused)).unwrap();
    assert_eq!((&document["status"], &document["kind"]), (&json!("failed"), &json!("simulation")));
}
