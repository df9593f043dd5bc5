//! Options of a comparison that start something else than weir at the server's host, or need many connections.

use super::*;
use crate::common::{FOREIGN, TALKS, running_with, script};

fn row<'d>(document: &'d Value, name: &str) -> &'d Value {
    let rows = document["results"].as_array().unwrap_or_else(|| panic!("{document:#}"));
    rows.iter().find(|row| row["design"] == name).unwrap_or_else(|| panic!("{document:#}"))
}

fn reason(row: &Value) -> &str {
    row["reason"].as_str().unwrap_or_default()
}

/// A peer's option, and its script, which nothing else is started with.
fn peer(name: &str, text: &str, more: &str) -> Option<(String, String)> {
    static MADE: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = MADE.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let path = script(&format!("ranks-{name}-{}-{number}", std::process::id()), text);
    Some((format!("{name}={} {path} {more}", crate::common::python()?), path))
}

/// An echo server, with a thread for each connection.
const ECHO: &str = "import socket, sys, threading
def serve(connection):
    with connection:
        while data := connection.recv(65536):
            connection.sendall(data)
listener = socket.create_server((sys.argv[1], int(sys.argv[2])), backlog=256)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
";

/// Peers beside a design: one that talks, one that knows nothing, one that dies, and one that is not there.
fn compares_with_peers(ranks: impl Fn(&[&str]) -> Command, host: &str) {
    let Some((talks, path)) = peer("talks", TALKS, "") else { return };
    let foreign = peer("foreign", FOREIGN, "{ip} {port}").expect("there is Python").0;
    let dies = peer("dies", TALKS, "dies").expect("there is Python").0;
    let gone = "gone=/no/such/program";
    let mut words = vec!["compare", "udp", "--mpi", "--design", "blocking-batch"];
    for peer in [&talks, &foreign, &dies, gone] {
        words.extend(["--peer", peer]);
    }
    words.extend(["--load", "3000", "--rounds", "1", "--no-save", "--json"]);
    let output = run(ranks(&words));
    let document = document(&output);
    assert!(document["error"].is_null(), "{document:#} {}", errors(&output));
    let of_talks = row(&document, "talks");
    assert_eq!(of_talks["conformance"], "passed", "{of_talks:#}");
    let runs = of_talks["runs"].as_array().expect("runs");
    assert!(!runs.is_empty(), "{of_talks:#}");
    for run in runs {
        assert_eq!(run["belief"]["state"], "proved", "{run:#}");
    }
    let foreign = row(&document, "foreign");
    assert_eq!(foreign["peer"]["derived"], true);
    // The kernel counts for all programs of a network namespace, which on loopback other tests' are, too.
    let is_alone = !host.is_empty();
    assert!(!foreign["runs"][0].is_null() || !is_alone, "{foreign:#}");
    for (name, said) in
        [("gone", "No such file or directory (os error 2)"), ("dies", "as it was told")]
    {
        let row = row(&document, name);
        let why = reason(row);
        assert!(why.contains(&format!("rank 1 on {host}")) && why.contains(said), "{row:#}");
        assert_eq!(row["rank"], Value::Null);
    }
    assert!(reason(row(&document, "gone")).contains("/no/such/program"));
    let mut all = vec![];
    ledgers(&document, &mut all);
    assert!(!all.is_empty());
    for (counts, unexplained) in all.into_iter().filter(|_| is_alone) {
        let sent = number(&counts["sent"]);
        assert!(unexplained.unsigned_abs() * 1000 <= sent, "{counts:#}");
    }
    assert_eq!(running_with(&path), Vec::<String>::new(), "nothing is left");
}

#[test]
fn peers_of_udp_are_compared_by_two_ranks_on_loopback() {
    if is_here() {
        compares_with_peers(|words| ranks(2, words), "");
    }
}

#[test]
fn peers_of_udp_are_compared_over_hosts() {
    if !is_here() {
        return;
    }
    let Some(hosts) = Hosts::make() else { return };
    compares_with_peers(|words| hosts.ranks(4, words), "host1");
    hosts.have_nobody(&[0, 1, 2, 3]);
}

#[test]
fn peers_of_tcp_are_compared_over_hosts() {
    if !is_here() {
        return;
    }
    let Some((echo, path)) = peer("echo", ECHO, "{ip} {port}") else { return };
    let words = ["compare", "tcp", "--mpi", "--design", "epoll", "--peer", &echo];
    let words = [&words[..], &["--peer", "gone=/no/such/program {port}"]].concat();
    let words =
        [&words[..], &["-c", "6", "-l", "64", "--rounds", "1", "--no-save", "--json"]].concat();
    let compared = |command: Command| {
        let output = run(command);
        let document = document(&output);
        assert!(document["error"].is_null(), "{document:#} {}", errors(&output));
        let echo = row(&document, "echo");
        assert_eq!(echo["conformance"], "passed", "{echo:#}");
        assert!(number(&echo["runs"][0]["resident_bytes"]) > 0, "{echo:#}");
        let gone = reason(row(&document, "gone"));
        assert!(gone.contains("rank 1 on ") && gone.contains("(os error 2)"), "{gone}");
        assert_eq!(running_with(&path), Vec::<String>::new(), "nothing is left");
    };
    compared(ranks(2, &words));
    let Some(hosts) = Hosts::make() else { return };
    compared(hosts.ranks(4, &words));
    hosts.have_nobody(&[0, 1, 2, 3]);
}

/// A rank starts no program but those that its own command names.
#[test]
fn a_rank_starts_no_program_that_its_own_command_does_not_name() {
    if !is_here() {
        return;
    }
    let words = ["compare", "tcp", "--mpi", "--design", "epoll", "-c", "1", "-l", "64"];
    let words = [&words[..], &["--rounds", "1", "--no-save", "--json"]].concat();
    let asked = [&words[..], &["--peer", "other=/bin/sh -c {port}"]].concat();
    let mut command = started_by(&mpirun());
    command.args(["-n", "1", WEIR]).args(asked).args([":", "-n", "1", WEIR]).args(words);
    let output = run(command);
    let document = document(&output);
    let other = row(&document, "other");
    assert!(reason(other).contains("does not name /bin/sh"), "{other:#}");
}

#[test]
fn a_rank_that_is_lost_leaves_no_peer() {
    if !is_here() {
        return;
    }
    let Some((talks, path)) = peer("stays", TALKS, "") else { return };
    let words = ["compare", "udp", "--mpi", "--design", "blocking", "--peer", &talks];
    let words = [&words[..], &["--load", "1000", "--rounds", "50", "--no-save", "--json"]].concat();
    for lose in [kill, freeze] {
        let child = ranks(3, &words).spawn().expect("mpirun can be started");
        until("the peer", || !running_with(&path).is_empty());
        let all = descendants(child.id());
        lose(process_of_rank(&all, 1, true).expect("rank 1 runs"));
        let output = ends(child);
        let document = report_in(&output);
        let why = document["error"].as_str().unwrap_or_default();
        assert!(why.contains("rank 1 on "), "{document:#} {}", errors(&output));
        until("the end of the peer", || running_with(&path).is_empty());
        until("the end of all processes", || !all.iter().any(is_running));
    }
}

/// Who is refused by a limit, of the connections beside those whose figures count, on one host and on several.
#[test]
fn strategies_are_compared_over_hosts() {
    if !is_here() {
        return;
    }
    let words = ["compare", "tcp", "--mpi", "--strategies", "--mix", "silent", "-c", "4"];
    let words = [&words[..], &["--others", "40", "--design", "poll --per-address 4"]].concat();
    let words =
        [&words[..], &["--design", "poll", "--rounds", "1", "--no-save", "--json"]].concat();
    let compared = |command: Command| {
        let output = run(command);
        let document = document(&output);
        assert!(document["error"].is_null(), "{document:#} {}", errors(&output));
        document
    };
    let refused = |document: &Value, wanted: u64| {
        let rows = document["results"].as_array().expect("rows");
        let limited = rows.iter().find(|row| row["spec"] == "poll --per-address 4").expect("a row");
        let runs = limited["runs"].as_array().expect("runs");
        assert!(!runs.is_empty(), "{limited:#}");
        for run in runs {
            assert_eq!(run["invalid"], Value::Null, "{run:#}");
            let others = &run["others"];
            if others["connected"] == others["asked"] {
                assert_eq!(number(&others["refused"]), wanted, "{run:#}");
            }
            // Of each host its own.
            assert!(run["resident_bytes"].is_u64(), "{run:#}");
        }
    };
    // On loopback they come from four addresses.
    refused(&compared(ranks(2, &words)), 24);
    let Some(hosts) = Hosts::make() else { return };
    refused(&compared(hosts.ranks(4, &words)), 36);
    // Where all come from one address the limit would be on those that count.
    let shared = compared(hosts.ranks(2, &words));
    let rows = shared["results"].as_array().expect("rows");
    let limited = rows.iter().find(|row| row["spec"] == "poll --per-address 4").expect("a row");
    assert!(reason(limited).contains("start one more generator"), "{limited:#}");
}

/// What the experiment of the original would be over hosts is planned; that what it does holds is tested with few connections.
#[test]
fn the_experiment_of_the_original_is_planned_over_hosts() {
    if !is_here() {
        return;
    }
    let words = ["compare", "tcp", "--mpi", "--classic", "--design", "epoll", "--dry-run"];
    let output = run(ranks(3, &words));
    let said = errors(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("search for the most connections, up to 50000"), "{said}");
    let Some(hosts) = Hosts::make() else { return };
    let output = run(hosts.ranks(2, &words));
    let said = errors(&output);
    // One client's host has ports for about 28,000.
    assert!(said.contains("ip_local_port_range"), "{said}");
}

#[test]
fn a_link_within_one_machine_is_refused_over_hosts() {
    if !is_here() {
        return;
    }
    for kind in ["udp", "tcp"] {
        let output = run(ranks(2, &["compare", kind, "--mpi", "--on", "veth", "--json"]));
        let document = document(&output);
        let why = document["error"].as_str().unwrap_or_default();
        assert!(why.contains("leave --on veth out"), "{document:#}");
        assert_eq!(output.status.code(), Some(2));
    }
}
