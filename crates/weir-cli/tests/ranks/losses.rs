//! Comparisons over hosts of which one is lost after a round: who was lost and why is told, what the finished round gave is
//! in the document and in the saved result, and nobody is left.

use std::path::{Path, PathBuf};

use super::*;

const UDP: &[&str] = &["udp", "--design", "blocking", "--load", "1000"];
const TCP: &[&str] = &["tcp", "--design", "epoll", "-c", "9", "-l", "64"];

/// The rank that is lost, on the host of the same number. Rank 1 serves.
const LOST: usize = 2;

#[test]
fn a_comparison_of_udp_keeps_its_rounds_when_a_host_is_killed() {
    keeps_its_rounds(UDP, |_, rank| kill(rank), "its process is gone");
}

#[test]
fn a_comparison_of_udp_keeps_its_rounds_when_a_host_is_stopped() {
    keeps_its_rounds(UDP, |_, rank| freeze(rank), "has stood still");
}

#[test]
fn a_comparison_of_udp_keeps_its_rounds_when_a_link_is_taken_down() {
    keeps_its_rounds(UDP, |hosts, _| take_down(hosts), "does not reach rank 1 on host1");
}

#[test]
fn a_comparison_of_udp_keeps_its_rounds_when_a_host_has_no_descriptors_left() {
    keeps_its_rounds(UDP, |_, rank| leave_no_descriptors(rank), "Too many open files");
}

#[test]
fn a_comparison_of_tcp_keeps_its_rounds_when_a_link_is_taken_down() {
    keeps_its_rounds(TCP, |hosts, _| take_down(hosts), "does not reach rank 1 on host1");
}

fn take_down(hosts: &Hosts) {
    hosts.at_switch(&["ip", "link", "set", &format!("port{LOST}"), "down"]);
}

/// From now on the process can open nothing: any descriptor would have a higher number.
fn leave_no_descriptors(process: u32) {
    let words = ["--pid", &process.to_string(), "--nofile=3:3"];
    let limited = Command::new("prlimit").args(words).output().expect("prlimit of util-linux runs");
    assert!(limited.status.success(), "{}", errors(&limited));
}

/// A comparison over four hosts, of which one is lost by this once a round has ended.
fn keeps_its_rounds(kind: &[&str], lose: impl FnOnce(&Hosts, u32), how: &str) {
    if !is_here() {
        return;
    }
    let Some(hosts) = Hosts::make() else { return };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(&hosts.0);
    fs::create_dir_all(&folder).expect("it can be made");
    let (events, results) = (folder.join("events"), folder.join("results"));
    let to_files = [("--ndjson", &events), ("--results", &results)]
        .map(|(option, path)| format!("{option}={}", path.display()));
    let words = [&["compare"], kind, &["--mpi", "--rounds", "50", "--json"]].concat();
    let words = [&words[..], &to_files.each_ref().map(String::as_str)].concat();
    let child = hosts.ranks(4, &words).spawn().expect("mpirun can be started");
    let mut finished = vec![];
    until("a round", || {
        finished = runs_told_in(&events);
        // A round has a run of the design, and one of its second name.
        let of = |again: bool| finished.iter().filter(|(of, _)| *of == again).count();
        of(false) > 0 && of(true) > 0
    });
    let all = descendants(child.id());
    lose(&hosts, process_of_rank(&all, LOST, true).expect("it runs"));
    let output = ends(child);
    let said = errors(&output);
    let document = report_in(&output);
    let reason = document["error"].as_str().unwrap_or_default();
    let who = format!("rank {LOST} on host{LOST} ");
    assert!(reason.contains(&who) && reason.contains(how), "{reason}\n{said}");
    let code = output.status.code();
    assert!(code == Some(1) || may_kill(), "{code:?}: {said}");
    until("the end of all processes", || !all.iter().any(is_running));
    hosts.have_nobody(&[0, 1, 2, 3]);
    let saved = fs::read_dir(&results).expect("results are kept").next().expect("a folder");
    let saved = fs::read(saved.expect("a folder").path().join("result.json")).expect("a document");
    let saved: Value = serde_json::from_slice(&saved).expect("it is whole");
    for document in [&document, &saved] {
        assert_eq!(document["error"], reason);
        for (again, run) in &finished {
            let role = if *again { "again" } else { "plain" };
            let rows = document["results"].as_array().expect("rows");
            let row = rows.iter().find(|row| row["role"] == role).expect("a row");
            let runs = row["runs"].as_array().expect("runs");
            assert!(runs.iter().any(|kept| is_same(kept, run)), "{run:#} is not in {row:#}");
        }
    }
    fs::remove_dir_all(&folder).expect("it is ours");
}

/// What runs that have ended gave by the events so far, and whether each was one of the second name.
fn runs_told_in(events: &PathBuf) -> Vec<(bool, Value)> {
    let text = fs::read_to_string(events).unwrap_or_default();
    // The last one may not be whole yet.
    let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let runs = events.filter(|event| event["event"] == "run");
    runs.map(|event| (event["again"] == true, event["run"].clone())).collect()
}

/// Whether a run that was kept is the one that was told of when it ended: its counts are no other's.
fn is_same(kept: &Value, told: &Value) -> bool {
    ["block", "ledger", "messages_per_s", "received_per_s", "round_trip_ns", "latency_ns"]
        .iter()
        .all(|field| kept[*field] == told[*field])
}
