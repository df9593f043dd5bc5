//! `weir compare` and `weir designs` as a user meets them.

mod common;

use common::{document, errors, output};

#[test]
fn a_short_comparison_is_one_valid_document() {
    let run = output(&[
        "compare",
        "udp",
        "--design",
        "blocking",
        "--design",
        "blocking-batch",
        "--quick",
        "-t",
        "4",
        "--seed",
        "7",
        "--json",
    ]);
    let document = document(&run);
    let code = run.status.code();
    assert_eq!(document["schema_version"], 1);
    assert_eq!(document["seed"], 7);
    assert_eq!(document["error"], serde_json::Value::Null, "{}", errors(&run));
    let rows = document["results"].as_array().unwrap();
    let named: Vec<(&str, &str)> = rows
        .iter()
        .map(|row| (row["design"].as_str().unwrap(), row["role"].as_str().unwrap()))
        .collect();
    assert_eq!(named, [("blocking", "plain"), ("blocking-batch", "plain"), ("blocking", "again")]);
    for row in rows {
        assert_eq!(row["status"], "ok", "{row:#}");
        assert_eq!(row["conformance"], "passed", "{row:#}");
        let received = &row["metrics"]["received_per_s"];
        assert!(received["median"].as_f64().is_some_and(|rate| rate > 0.0), "{received}");
        assert_eq!(received["samples"].as_array().unwrap().len(), 3, "three rounds are the fewest");
        let counts = &row["ledger"]["counts"];
        let of = |name: &str| counts[name].as_u64().unwrap_or(0);
        assert_eq!(of("offered"), of("sent") + of("refused"));
        assert!(of("received") > 0);
    }
    // Under Wine a run may be over before its generator is at its pace: the row says so, and
    // the exit code (invalid runs) with it.
    let codes: &[i32] = if cfg!(windows) { &[0, 3] } else { &[0] };
    assert!(code.is_some_and(|code| codes.contains(&code)), "{code:?}: {}", errors(&run));
}

#[test]
fn the_plan_can_be_seen_without_a_run() {
    let plan =
        output(&["compare", "--dry-run", "--seed", "9", "--design", "epoll", "--pace", "75%"]);
    assert_eq!(plan.status.code(), Some(0));
    let said = errors(&plan);
    for line in
        ["seed 9", "load: saturation, 64 B", "paced at 75 % of each row's maximum", "row: epoll"]
    {
        assert!(said.contains(line), "{line:?} is missing of {said}");
    }
}

#[test]
fn a_plan_is_a_document_too() {
    let plan = output(&["compare", "--dry-run", "--design", "epoll", "--json"]);
    let document = document(&plan);
    assert_eq!((plan.status.code(), &document["results"]), (Some(0), &serde_json::json!([])));
    assert_eq!(document["planned"][0], "epoll");
}

#[test]
fn wrong_usage_is_said_and_json_stays_valid() {
    for (words, said) in [
        (&["--design", "nonsense"][..], "nonsense"),
        (&["--design", "blocking --threads 0"][..], "1 to 256"),
        (&["--design", "blocking", "--design", "blocking"][..], "twice"),
        (&["--length", "70000"][..], "at most"),
        (&["--server-cpu", "8000"][..], "core 8000"),
        (&["--pace", "0"][..], "0"),
        (&["--quick", "--full"][..], "--full"),
        (&["tcp"][..], "tcp"),
    ] {
        let mut all = vec!["compare", "--json"];
        all.extend_from_slice(words);
        let failed = output(&all);
        assert_eq!(failed.status.code(), Some(2), "{words:?}: {}", errors(&failed));
        let document = document(&failed);
        assert_eq!(document["results"], serde_json::json!([]));
        assert!(document["error"].as_str().is_some_and(|error| error.contains(said)), "{document}");
    }
}

#[test]
fn designs_are_listed_with_their_options() {
    let list = output(&["designs"]);
    let text = String::from_utf8(list.stdout).unwrap();
    for name in ["blocking", "rio-hybrid", "uring", "batch"] {
        assert!(text.lines().any(|line| line.trim() == name), "{name} is missing of\n{text}");
    }
    let one = output(&["designs", "rio-hybrid"]);
    let text = String::from_utf8(one.stdout).unwrap();
    assert!(text.contains("--threshold") && text.contains("default 666"), "{text}");
    assert!(!text.contains("blocking-batch"), "{text}");

    let all = document(&output(&["designs", "--json"]));
    let designs = all["designs"].as_array().unwrap();
    assert!(designs.iter().any(|design| design["name"] == "blocking" && design["status"] == "ok"));
    assert!(designs.iter().all(|design| design["options"].is_array()));

    let unknown = output(&["designs", "nonsense", "--json"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(document(&unknown)["error"].as_str().unwrap().contains("rio-hybrid"));
}

/// Processes of which an argument is this word; none where `/proc` does not tell.
#[cfg(target_os = "linux")]
fn running_with(word: &str) -> Vec<String> {
    let lines = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let line = std::fs::read(entry.ok()?.path().join("cmdline")).ok()?;
        Some(String::from_utf8_lossy(&line).replace('\0', " "))
    });
    lines.filter(|line| line.split(' ').any(|other| other == word)).collect()
}

/// Starts a comparison that would take a minute, and waits until its first run is on. `length`
/// marks its processes.
#[cfg(target_os = "linux")]
fn under_way(length: &str) -> std::process::Child {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;
    let mut child = common::weir(&["compare", "--design", "blocking", "-t", "60", "-v", "--json"])
        .args(["--length", length])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let errors = child.stderr.take().unwrap();
    let mut lines = BufReader::new(errors).lines();
    // The calibration is the first flood, the check the second, the first run the third.
    for _ in 0..3 {
        assert!(lines.any(|line| line.is_ok_and(|line| line.contains(" flood "))));
    }
    // Its standard error must be read on, or it would wait.
    std::thread::spawn(move || lines.for_each(drop));
    child
}

#[cfg(target_os = "linux")]
#[test]
fn ctrl_c_ends_a_comparison_with_what_there_is() {
    let child = under_way("1231");
    let killed =
        std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(killed.unwrap().success());
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(1));
    let document = document(&ended);
    assert_eq!(document["interrupted"], true);
    assert_eq!(running_with("1231"), Vec::<String>::new(), "nothing is left running");
}

#[cfg(target_os = "linux")]
#[test]
fn nothing_survives_a_comparison_that_is_killed() {
    let mut child = under_way("1233");
    child.kill().unwrap();
    child.wait().unwrap();
    // The server ends with its input, the generator with its control connection.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !running_with("1233").is_empty() {
        assert!(std::time::Instant::now() < deadline, "left: {:?}", running_with("1233"));
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}
