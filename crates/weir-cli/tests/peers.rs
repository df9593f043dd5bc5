//! Programs that are not weir's, and how they behave and misbehave as rows of a comparison.

#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]

mod common;

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::{document, errors, has, is_ranked_or_says_why, output, running_with, script};
use serde_json::Value;

const PEER: &str = common::TALKS;

const FOREIGN: &str = common::FOREIGN;

/// Compares `blocking` with these peers in a network namespace of its own: the kernel counts for all programs of
/// one together. `None` where that cannot be had.
fn compared_apart(rounds: &str, peers: &[String], more: &[&str]) -> Option<Output> {
    const OWN: &[&str] = &["--user", "--map-root-user", "--net"];
    if !has("unshare", &[OWN, &["ip", "link"]].concat()) {
        return None;
    }
    let up = r#"ip link set lo up && exec "$@""#;
    let mut command = Command::new("unshare");
    command
        .args(OWN)
        .args(["sh", "-c", up, "sh", env!("CARGO_BIN_EXE_weir")])
        .args(["compare", "udp", "--design", "blocking", "--quick", "--rounds", rounds, "--json"])
        .args(peers.iter().flat_map(|peer| ["--peer", peer]))
        .args(more);
    Some(command.stdin(Stdio::null()).output().unwrap())
}

fn rows(document: &Value) -> &[Value] {
    document["results"].as_array().unwrap()
}

fn row<'d>(document: &'d Value, name: &str) -> &'d Value {
    rows(document).iter().find(|row| row["design"] == name).unwrap()
}

/// That a peer has shown in each of its runs what it received.
fn assert_believed(row: &Value) {
    let runs = row["runs"].as_array().unwrap();
    assert!(!runs.is_empty() && is_ranked_or_says_why(row), "{row:#}");
    for run in runs {
        assert_eq!(run["belief"]["state"], "proved", "{run:#}");
    }
    assert_eq!(row["peer"]["claimed"], Value::Null);
}

#[test]
fn a_program_that_talks_is_a_row_like_others() {
    let Some(python) = common::python() else { return };
    let _alone = common::alone();
    let peer = format!("snake={python} {}", script("talks", PEER));
    let words = ["compare", "udp", "--design", "blocking", "--peer", &peer, "--quick", "--json"];
    let run = output(&[&words[..], &["--rounds", "3"]].concat());
    let document = document(&run);
    assert_eq!(document["error"], Value::Null, "{}", errors(&run));
    let snake = row(&document, "snake");
    assert_eq!((&snake["kind"], &snake["status"]), (&"peer".into(), &"ok".into()), "{snake:#}");
    assert_eq!(snake["conformance"], "passed", "{snake:#}");
    assert!(snake["provider"].as_str().unwrap().starts_with("python 3"), "{snake:#}");
    assert_eq!(snake["peer"]["derived"], false);
    if common::measured_nothing(snake) {
        return eprintln!("skipped: the generator got no core in any run");
    }
    for metric in [
        "received_per_s",
        "cpu_ns_per_datagram",
        "context_switches_per_1000_datagrams",
        "resident_bytes",
    ] {
        let median = &snake["metrics"][metric]["median"];
        assert!(median.as_f64().is_some_and(|value| value > 0.0), "{metric}: {snake:#}");
    }
    assert_believed(snake);
    let p50 = &snake["metrics"]["latency_ns"]["p50"]["median"];
    assert_eq!(*p50, Value::Null, "nothing but its own word would tell it");
    let counts = &snake["ledger"]["counts"];
    let of = |name: &str| counts[name].as_u64().unwrap();
    assert!(of("received") > 0, "{counts}");
    // The queue of the CPU is that of all programs: others may have lost there what this one did not.
    let (own, tolerance) = (of("received") + of("dropped_socket"), of("sent") / 1000);
    assert!(own <= of("sent") + tolerance, "{counts}");
    assert!(own + of("dropped_cpu_queue") + tolerance >= of("sent"), "{counts}");
    let load = &document["loads"][0];
    // Where the machine was too busy to compare anything, or to rank both, neither is this.
    let is_ranked = |name: &str| row(&document, name)["reason"] == Value::Null;
    if load["winner"] != Value::Null && is_ranked("snake") && is_ranked("blocking") {
        assert_eq!(load["peers"][0]["metric"], "received_per_s");
        assert_eq!(load["peers"][0]["peer"], "snake");
    }
    assert_eq!(row(&document, "blocking")["kind"], "design");
}

#[test]
fn a_program_that_answers_is_ranked_by_what_the_generator_took() {
    let Some(python) = common::python() else { return };
    let _alone = common::alone();
    let path = script("answers", PEER);
    // One whose answers are damaged, one that does not promise any, and one that reads no datagram.
    let names = ["echoes", "mangles", "mute", "blind"];
    let peers = names.map(|name| format!("{name}={python} {path} {name}"));
    let mut words = vec!["compare", "udp", "--reply", "--quick", "--rounds", "2", "--json"];
    words.extend(["--design", "blocking", "--load", "saturation,2000"]);
    words.extend(peers.iter().flat_map(|peer| ["--peer", peer]));
    let run = output(&words);
    let document = document(&run);
    assert_eq!(document["error"], Value::Null, "{}", errors(&run));
    let echoes = row(&document, "echoes");
    assert_eq!(
        (&echoes["status"], &echoes["conformance"]),
        (&"ok".into(), &"passed".into()),
        "{echoes:#}"
    );
    assert_believed(echoes);
    let counts = &echoes["replies"]["counts"];
    assert_eq!(counts["replied"], Value::Null, "it does not say");
    if !common::measured_nothing(echoes) {
        assert!(counts["answered"].as_u64().is_some_and(|answered| answered > 0), "{counts}");
        assert!(echoes["metrics"]["latency_ns"]["p50"]["median"].is_number(), "{echoes:#}");
    }
    let mangles = row(&document, "mangles");
    assert_eq!(mangles["conformance"], "failed", "{mangles:#}");
    assert!(mangles["reason"].as_str().unwrap().contains("damaged"), "{mangles:#}");
    let mute = row(&document, "mute");
    assert_eq!(mute["status"], "unavailable", "{mute:#}");
    assert!(mute["reason"].as_str().unwrap().contains("reply-bytes"), "{mute:#}");
    // It has nothing to answer with.
    let blind = row(&document, "blind");
    assert_eq!(blind["conformance"], "failed", "{blind:#}");
}

#[test]
fn a_program_whose_child_receives_is_charged_for_the_child() {
    let Some(python) = common::python() else { return };
    let _alone = common::alone();
    let path = script("child", PEER);
    let peers = [format!("parent={python} {path} child"), format!("single={python} {path}")];
    let run = output(
        &[
            &["compare", "udp", "--design", "blocking", "--quick", "--rounds", "2", "--json"][..],
            &["--peer", &peers[0], "--peer", &peers[1]],
        ]
        .concat(),
    );
    let document = document(&run);
    let cpu_ns = |name: &str| {
        let metrics = &row(&document, name)["metrics"];
        metrics["cpu_ns_per_datagram"]["median"].as_f64().unwrap_or_else(|| panic!("{metrics:#}"))
    };
    // The same program but for who receives: the parent alone would be charged for next to nothing.
    if !["parent", "single"].iter().any(|name| common::measured_nothing(row(&document, name))) {
        let (parent, single) = (cpu_ns("parent"), cpu_ns("single"));
        assert!(parent > single / 5.0, "{parent} {single}");
    }
    for (name, processes) in [("single", 1), ("parent", 2)] {
        let row = row(&document, name);
        assert_believed(row);
        for run in row["runs"].as_array().unwrap() {
            // Each process has one thread: that all are counted shows that all were looked at.
            assert_eq!(run["threads_started"], processes, "{name}: {run:#}");
        }
    }
    assert_eq!(running_with(&path), Vec::<String>::new(), "nothing is left");
}

#[test]
fn a_program_that_knows_nothing_is_counted_by_the_kernel() {
    let Some(python) = common::python() else { return };
    // The kernel counts for all programs of a network namespace together: so in one of its own.
    let peer = format!("foreign={python} {} {{ip}} {{port}}", script("foreign", FOREIGN));
    let head = ["--peer-head", "foreign=0102"];
    let Some(run) = compared_apart("2", &[peer], &head) else { return };
    let document = document(&run);
    let foreign = row(&document, "foreign");
    assert_eq!(
        (&foreign["status"], &foreign["conformance"]),
        (&"ok".into(), &"passed".into()),
        "{foreign:#}"
    );
    assert_eq!(
        (&foreign["peer"]["derived"], &foreign["peer"]["head"]),
        (&true.into(), &"0102".into())
    );
    let rate = foreign["metrics"]["received_per_s"]["median"].as_f64();
    assert!(rate > Some(0.0) || common::measured_nothing(foreign), "{foreign:#}");
    assert_eq!(foreign["metrics"]["latency_ns"]["p50"]["median"], Value::Null, "it is not known");
    assert_eq!(foreign["ledger"]["counts"]["strangers"], 0);
    let said = foreign["reason"].as_str().unwrap_or_default();
    assert!(said.contains("its figures are a claim"), "{foreign:#}");
    assert_eq!((&foreign["rank"], &foreign["peer"]["claimed"]), (&Value::Null, &foreign["reason"]));
    assert_eq!(running_with(&script("foreign", FOREIGN)), Vec::<String>::new(), "nothing is left");
}

#[test]
fn a_program_that_cheats_has_no_rank() {
    let Some(python) = common::python() else { return };
    let path = script("cheats", PEER);
    let cheats = [
        ("second", "a socket on its port was closed"),
        ("invents", "were sent"),
        ("copies", "to all programs together"),
        ("doubles", "were sent"),
        ("turns", "it says that it received"),
        ("guesses", "are wrong: it has not read"),
        ("wide", "chose a mask"),
        ("inflates", "during the run"),
        ("blind", "returns no proof"),
    ];
    let peer = |name: &str| format!("{name}={python} {path} {name}");
    let mut peers: Vec<String> = cheats.iter().map(|(name, _)| peer(name)).collect();
    peers.push(peer("honest"));
    let Some(run) = compared_apart("1", &peers, &[]) else { return };
    let document = document(&run);
    for (name, reason) in cheats {
        let row = row(&document, name);
        let said = row["reason"].as_str().unwrap_or_default();
        // The kernel may lead all datagrams of the check to the socket that is not read.
        let is_unread = name == "second" && said.contains("reached the handler");
        assert!(said.contains(reason) || is_unread, "{name}: {row:#}");
        assert_eq!(row["rank"], Value::Null, "{name}");
        let is_claim = name == "blind";
        assert_eq!(row["peer"]["claimed"].is_string(), is_claim, "{name}: {row:#}");
        // One that is honest as long as it is checked has figures, and their runs say what contradicts them.
        let has_figures = is_claim || name == "turns";
        assert_eq!(
            row["metrics"]["received_per_s"]["median"].is_f64(),
            has_figures,
            "{name}: {row:#}"
        );
    }
    let honest = row(&document, "honest");
    assert_believed(honest);
    assert_eq!(run.status.code(), Some(3), "some rows are wrong: {}", errors(&run));
    assert_eq!(running_with(&path), Vec::<String>::new(), "nothing is left");
}

#[test]
fn latency_that_a_program_invents_ranks_nothing() {
    let Some(python) = common::python() else { return };
    let path = script("late", PEER);
    let peers = [format!("late={python} {path} late")];
    let Some(run) = compared_apart("2", &peers, &["--load", "2000"]) else { return };
    let document = document(&run);
    let late = row(&document, "late");
    assert_eq!(late["load"]["kind"], "paced");
    assert_eq!(late["metrics"]["latency_ns"]["p50"]["median"], Value::Null, "{late:#}");
    let said = late["reason"].as_str().unwrap_or_default();
    assert!(said.contains("latency is not measured"), "{late:#}");
    assert_eq!((&late["rank"], &late["peer"]["claimed"]), (&Value::Null, &Value::Null));
}

#[test]
fn programs_that_go_wrong_are_rows_with_their_reason() {
    let Some(python) = common::python() else { return };
    let path = script("wrong", PEER);
    // Its own, so that it is not taken for that of another run of this test.
    let slept = format!("{}.5", 100_000 + std::process::id());
    let peers = [
        ("crashes", "sh -c 'echo ouch >&2; exit 7'".into(), "exit status: 7"),
        ("rubbish", "echo hello".into(), "something other than its ready line"),
        ("silent", format!("sleep {slept}"), "no ready line within "),
        ("missing", "/no/such/program".into(), "No such file"),
        ("elsewhere", format!("{python} {path} elsewhere"), "has no such socket"),
        ("cannot", format!("{python} {path} cannot"), "no such mechanism here"),
        ("dies", format!("{python} {path} dies"), "as it was told"),
        ("busy", "true {ip} {port}".into(), "ended with exit status: 0"),
    ];
    let mut words: Vec<String> =
        ["compare", "udp", "--design", "blocking", "--quick", "--rounds", "2", "--json"]
            .map(String::from)
            .to_vec();
    for (name, command, _) in &peers {
        words.extend(["--peer".into(), format!("{name}={command}")]);
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let run = output(&words);
    let document = document(&run);
    assert_eq!(run.status.code(), Some(3), "complete, and not all of it valid: {}", errors(&run));
    for (name, _, reason) in &peers {
        let row = row(&document, name);
        let said = row["reason"].as_str().unwrap_or_default();
        assert!(said.contains(reason), "{name}: {said:?}");
        let unavailable = *name == "cannot";
        assert_eq!(row["status"] == "unavailable", unavailable, "{name}: {row:#}");
        assert_eq!(row["rank"], Value::Null);
    }
    assert_eq!(row(&document, "blocking")["status"], "ok", "the others are measured");
    for word in [path.as_str(), slept.as_str()] {
        assert_eq!(running_with(word), Vec::<String>::new(), "nothing is left running");
    }
}

/// Serves a program, once it is ready; it ends with its input.
fn serve(path: &str) -> std::process::Child {
    let python = common::python().expect("whoever serves has asked");
    let command = format!("{python} {path} {{ip}} {{port}}");
    let mut server =
        common::weir(&["serve", "peer", "--command", &command, "--end-with-input", "--json"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
    let mut line = String::new();
    let mut lines = std::io::BufReader::new(server.stdout.as_mut().unwrap());
    std::io::BufRead::read_line(&mut lines, &mut line).unwrap();
    let ready: Value = serde_json::from_str(&line).unwrap();
    assert!(ready["ready"]["settings"]["counted"].as_str().unwrap().contains("kernel"), "{ready}");
    server
}

/// The control groups of what this process serves: none where it may make none.
fn groups_of(id: u32) -> Vec<PathBuf> {
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap();
    let own = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mounts = mounts.lines().filter(|line| line.contains(" - cgroup2 "));
    let folders =
        mounts.filter_map(|line| line.split(' ').nth(4)).map(|at| PathBuf::from(at).join(own));
    let entries = folders.filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten();
    let of_it = format!("weir-{id}-");
    let paths = entries.map(|entry| entry.path());
    paths.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with(&of_it)).collect()
}

#[test]
fn a_program_does_not_outlive_whoever_serves_it() {
    if common::python().is_none() {
        return;
    }
    let path = script("orphan", FOREIGN);
    let mut server = serve(&path);
    assert_eq!(running_with(&path).len(), 1);
    let groups = groups_of(server.id());
    server.kill().unwrap();
    server.wait().unwrap();
    let deadline = Instant::now() + common::SOON;
    while !running_with(&path).is_empty() {
        assert!(Instant::now() < deadline, "left: {:?}", running_with(&path));
        std::thread::sleep(Duration::from_millis(20));
    }
    // The group that it had to leave goes with the next program that is served.
    let mut next = serve(&script("next", FOREIGN));
    let left: Vec<_> = groups.into_iter().filter(|group| group.exists()).collect();
    let groups = groups_of(next.id());
    drop(next.stdin.take());
    common::ends(next);
    assert_eq!(left, Vec::<PathBuf>::new());
    assert!(!groups.iter().any(|group| group.exists()), "{groups:?}");
}

#[test]
fn wrong_usage_of_peers_is_said() {
    for (words, said) in [
        (&["--peer", "nonsense"][..], "write it as"),
        (&["--peer", "blocking=x"][..], "name of a design"),
        (&["--peer", "a=x", "--peer-head", "a=00"][..], "must see the stamps"),
        (&["--peer-head", "a=00"][..], "--peer"),
    ] {
        let mut all = vec!["compare", "udp", "--dry-run", "--json", "--design", "epoll"];
        all.extend_from_slice(words);
        let failed = output(&all);
        assert_eq!(failed.status.code(), Some(2), "{words:?}: {}", errors(&failed));
        let document = document(&failed);
        assert!(document["error"].as_str().is_some_and(|error| error.contains(said)), "{document}");
    }
    let outside = output(&["serve", "peer", "--command", "true", "--bind", "0.0.0.0:0"]);
    assert_eq!(outside.status.code(), Some(5), "it cannot run there");
    assert!(errors(&outside).contains("give --bind one"), "{}", errors(&outside));
    let open = ["serve", "peer", "--command", "true", "--control", "0.0.0.0:0"];
    let open = output(&open);
    assert_eq!(open.status.code(), Some(2));
    assert!(errors(&open).contains("what they may send must be limited"), "{}", errors(&open));
    let polling = output(&["serve", "peer", "--command", "true", "--busy-poll", "50us"]);
    assert_eq!(polling.status.code(), Some(5));
    assert!(errors(&polling).contains("busy polling is not available"), "{}", errors(&polling));
}
