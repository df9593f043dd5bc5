//! Programs of others as rows, and an interrupt.

use std::io::Write as _;
use std::path::PathBuf;

use serde_json::Value;

use crate::common::{self, document, errors, output};
use crate::directory;

/// A server in Python with a thread for each connection; `answer` says what it does with what it received,
/// `data`, on its connection number `number`.
fn python(name: &str, answer: &str) -> Option<(PathBuf, String)> {
    let python = common::python()?;
    let directory = directory(name);
    let script = directory.join("echo.py");
    let text = format!(
        "import os, socket, sys, threading\n\
         def serve(connection, number):\n\
         \x20   with connection:\n\
         \x20       while True:\n\
         \x20           data = connection.recv(65536)\n\
         \x20           if not data:\n\
         \x20               return\n\
         \x20           {answer}\n\
         \x20           connection.sendall(data)\n\
         listener = socket.create_server((sys.argv[1], int(sys.argv[2])), backlog=256)\n\
         number = 0\n\
         while True:\n\
         \x20   connection, _ = listener.accept()\n\
         \x20   number += 1\n\
         \x20   threading.Thread(target=serve, args=(connection, number), daemon=True).start()\n"
    );
    std::fs::File::create(&script).unwrap().write_all(text.as_bytes()).unwrap();
    let peer = format!("python={python} {} {{ip}} {{port}}", script.display());
    Some((directory, peer))
}

/// Compares a peer with `epoll` and gives the document and the exit code.
fn with_peer(peer: &str, connections: &str) -> (Value, Option<i32>) {
    let run = output(&[
        "compare",
        "tcp",
        "--design",
        "epoll",
        "--peer",
        peer,
        "-c",
        connections,
        "--rounds",
        "2",
        "--json",
    ]);
    (document(&run), run.status.code())
}

fn row<'a>(document: &'a Value, design: &str) -> &'a Value {
    let rows = document["results"].as_array().unwrap();
    rows.iter().find(|row| row["design"] == design).unwrap()
}

#[test]
fn a_peer_is_a_row_like_any_other() {
    let Some((directory, peer)) = python("echo", "pass") else { return };
    let (document, code) = with_peer(&peer, "8");
    let row = row(&document, "python");
    assert!(matches!(code, Some(0 | 3)), "{code:?}: {row:#}");
    assert!(common::is_ranked_or_says_why(row), "{row:#}");
    assert_eq!((&row["kind"], &row["status"]), (&"peer".into(), &"ok".into()));
    // On a busy machine there is always something to do for it, and it never sleeps; or it is looked at too late.
    assert!(row["polls"].is_boolean() || row["polls"].is_null(), "{row:#}");
    let metric = |name: &str| row["metrics"][name]["median"].as_f64();
    if !common::measured_nothing(row) {
        assert!(metric("resident_bytes").is_some_and(|bytes| bytes > 0.0), "{row:#}");
        assert!(cpu_is_above(row, 0.0), "{row:#}");
        let threads = metric("threads").unwrap();
        assert!((2.0..=9.0).contains(&threads), "one, and one for each connection: {threads}");
    }
    assert_eq!(metric("kernel_entries_per_message"), None, "nobody counts them");
    // Where the machine was too busy to compare anything, neither is this.
    let peers = document["loads"][0]["peers"].as_array().unwrap();
    let compared = peers.iter().any(|p| p["metric"] == "messages_per_s" && p["peer"] == "python");
    let is_late = |name: &str| common::measured_nothing(self::row(&document, name));
    let none = peers.is_empty() || is_late("python") || is_late("epoll");
    assert!(compared || none, "{peers:?}");
    std::fs::remove_dir_all(directory).unwrap();
}

/// The first process of `socat` only accepts: for each connection it forks a second one, which becomes `cat`. (`ncat -k -e`
/// forks, too, but in 2 of 14 tries it stopped in the middle of the check, so it is no good for a test.)
#[test]
fn a_server_with_a_process_for_each_connection_is_charged_for_them_all() {
    if !common::has("socat", &["-V"]) {
        return;
    }
    let forks = "socat=socat TCP-LISTEN:{port},bind={ip},backlog=256,fork EXEC:/bin/cat,nofork";
    let (document, code) = with_peer(forks, "8");
    let row = row(&document, "socat");
    assert!(matches!(code, Some(0 | 3)), "{code:?}: {row:#}");
    assert_eq!((&row["conformance"], &row["status"]), (&"passed".into(), &"ok".into()), "{row:#}");
    assert_charged_for_processes(row, 9.0);
}

/// Four processes that were forked before the first connection share its listener; each polls all it has.
#[test]
fn a_preforking_server_that_polls_is_charged_and_stands_with_what_polls() {
    let Some(python) = common::python() else { return };
    let directory = directory("prefork");
    let script = directory.join("echo.py");
    let text = "import os, socket, sys\n\
        listener = socket.create_server((sys.argv[1], int(sys.argv[2])), backlog=256)\n\
        listener.setblocking(False)\n\
        os.fork()\n\
        os.fork()\n\
        connections = []\n\
        while True:\n\
        \x20   try:\n\
        \x20       connection = listener.accept()[0]\n\
        \x20       connection.setblocking(False)\n\
        \x20       connections.append(connection)\n\
        \x20   except BlockingIOError:\n\
        \x20       pass\n\
        \x20   for connection in list(connections):\n\
        \x20       try:\n\
        \x20           data = connection.recv(65536)\n\
        \x20           connection.setblocking(True)\n\
        \x20           connection.sendall(data)\n\
        \x20           connection.setblocking(False)\n\
        \x20       except BlockingIOError:\n\
        \x20           continue\n\
        \x20       if not data:\n\
        \x20           connections.remove(connection)\n\
        \x20           connection.close()\n";
    std::fs::write(&script, text).unwrap();
    let peer = format!("prefork={python} {} {{ip}} {{port}}", script.display());
    let (document, code) = with_peer(&peer, "8");
    let row = row(&document, "prefork");
    assert!(matches!(code, Some(0 | 3)), "{code:?}: {row:#}");
    assert_eq!((&row["conformance"], &row["status"]), (&"passed".into(), &"ok".into()), "{row:#}");
    assert_charged_for_processes(row, 4.0);
    // It is not known where it was looked at too late.
    assert_ne!(row["polls"], false, "{row:#}");
    std::fs::remove_dir_all(directory).unwrap();
}

/// What a server of several processes took is that of all of them.
fn assert_charged_for_processes(row: &Value, threads: f64) {
    assert!(common::is_ranked_or_says_why(row), "{row:#}");
    if common::measured_nothing(row) {
        return eprintln!("skipped: the generator got no core in any run");
    }
    let metric = |name: &str| row["metrics"][name]["median"].as_f64();
    assert!(metric("threads").is_some_and(|seen| seen >= threads), "{row:#}");
    assert!(metric("resident_bytes").is_some_and(|bytes| bytes > 0.0), "{row:#}");
    // Each message is received and sent by a child, in two system calls; the parent's own part would be next to nothing.
    assert!(cpu_is_above(row, 100.0), "{row:#}");
}

/// Whether a message takes more than so many ns of CPU time, or each run says why that is not known: by its reason, or
/// since none was answered.
fn cpu_is_above(row: &Value, ns: f64) -> bool {
    let says_why = |run: &Value| run["server_unknown"].is_string() || run["messages_per_s"] == 0.0;
    match row["metrics"]["cpu_ns_per_message"]["median"].as_f64() {
        Some(cpu_ns) => cpu_ns > ns,
        None => row["runs"].as_array().unwrap().iter().all(says_why),
    }
}

/// `--peers` takes what `peers/build` left in a folder: programs, the list of their rows, and why one is not there.
#[test]
fn the_peers_of_a_folder_are_rows_and_those_not_built_say_why() {
    use std::os::unix::fs::PermissionsExt as _;
    let Some((directory, peer)) = python("peers", "pass") else { return };
    let program = directory.join("peer-here");
    let python = peer.strip_prefix("python=").and_then(|peer| peer.split(" {ip}").next()).unwrap();
    let text = format!(
        "#!/bin/sh\n[ \"$3\" = plain ] && [ \"$4\" -ge 4096 ] && exec {python} \"$1\" \"$2\"\n"
    );
    std::fs::write(&program, text).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::write(directory.join("tcp-rows"), "here peer-here plain\ngone peer-gone plain\n")
        .unwrap();
    std::fs::write(directory.join("peer-gone.why-not"), "there is no go here\n").unwrap();
    let peers = format!("--peers={}", directory.display());
    let words = ["compare", "tcp", "--design", "epoll", &peers, "-c", "8", "--json"];
    let run = output(&[&words[..], &["--rounds", "3"]].concat());
    let document = document(&run);
    common::assert_compared(&run);
    let (here, gone) = (row(&document, "here"), row(&document, "gone"));
    assert_eq!((&here["kind"], &here["status"]), (&"peer".into(), &"ok".into()), "{here:#}");
    assert_eq!(gone["status"], "unavailable", "{gone:#}");
    assert_eq!(gone["reason"], "not built: there is no go here");
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_peer_that_does_not_echo_rightly_gets_no_rank() {
    let change = "data = data[:-1] + bytes([data[-1] ^ 1])";
    let Some((directory, peer)) = python("wrong", change) else { return };
    let (document, code) = with_peer(&peer, "8");
    let row = row(&document, "python");
    assert_eq!((code, &row["conformance"]), (Some(3), &"failed".into()), "{row:#}");
    assert_eq!((&row["rank"], &row["status"]), (&Value::Null, &"failed".into()));
    assert!(row["reason"].as_str().unwrap().contains("failed the check before timing"), "{row:#}");
    assert_eq!(self::row(&document, "epoll")["status"], "ok");
    std::fs::remove_dir_all(directory).unwrap();
}

/// While it is checked it echoes; then the first bytes of one connection are the answer to everything.
#[test]
fn a_peer_that_cheats_once_it_is_timed_has_no_rank_and_an_honest_one_is_not_accused() {
    let fixed = "data = globals().setdefault('kept', data) if number > 25 else data";
    let Some((directory, cheat)) = python("cheat", fixed) else { return };
    let Some((of_honest, honest)) = python("honest", "pass") else { return };
    let cheat = cheat.replacen("python=", "cheat=", 1);
    let words = ["compare", "tcp", "--design", "epoll", "--peer", &cheat, "--peer", &honest];
    let run = output(&[&words[..], &["-c", "30", "--rounds", "3", "--json"]].concat());
    let document = document(&run);
    assert_eq!(run.status.code(), Some(3), "{}", errors(&run));
    let (cheat, honest) = (row(&document, "cheat"), row(&document, "python"));
    assert_eq!((&cheat["conformance"], &cheat["rank"]), (&"passed".into(), &Value::Null));
    let wrong = "came back as 0x";
    assert!(cheat["reason"].as_str().is_some_and(|why| why.contains(wrong)), "{cheat:#}");
    for run in cheat["runs"].as_array().unwrap() {
        assert!(run["invalid"].as_str().is_some_and(|why| why.contains(wrong)), "{run:#}");
    }
    assert_eq!((&honest["conformance"], &honest["status"]), (&"passed".into(), &"ok".into()));
    assert!(common::is_ranked_or_says_why(honest), "{honest:#}");
    for run in honest["runs"].as_array().unwrap() {
        assert_eq!(run["invalid"], Value::Null, "{run:#}");
    }
    std::fs::remove_dir_all(directory).unwrap();
    std::fs::remove_dir_all(of_honest).unwrap();
}

#[test]
fn connections_that_a_peer_breaks_are_not_served_and_cost_it_its_rank() {
    let _alone = common::alone();
    // Those of the check are served; of a run's every third is reset in the middle.
    let reset = "reset = number > 25 and number % 3 == 0\n            \
                 if reset: connection.setsockopt(1, 13, bytes([1, 0, 0, 0, 0, 0, 0, 0]))\n            \
                 if reset: return";
    let Some((directory, peer)) = python("reset", reset) else { return };
    let (document, _) = with_peer(&peer, "30");
    let row = row(&document, "python");
    assert_eq!(row["conformance"], "passed", "{row:#}");
    assert_eq!(row["rank"], Value::Null, "{row:#}");
    let run = &row["runs"][0];
    let (connected, lost) = (run["connected"].as_u64().unwrap(), run["lost"].as_u64().unwrap());
    assert!(connected == 30 && lost > 0, "{run:#}");
    let served = row["metrics"]["served"]["median"].as_f64().unwrap();
    assert_eq!(served, (connected - lost) as f64, "{row:#}");
    assert!(row["reason"].as_str().unwrap().contains("of 30 connections were refused or broke"));
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_peer_that_crashes_keeps_its_row_and_its_reason() {
    // The check makes 18 connections, the first one to see whether it listens; a run of 30 makes more.
    let crash = "os._exit(7) if number > 25 else None";
    let Some((directory, peer)) = python("crash", crash) else { return };
    let (document, code) = with_peer(&peer, "30");
    let row = row(&document, "python");
    assert_eq!((code, &row["conformance"]), (Some(3), &"passed".into()), "{row:#}");
    assert_eq!(row["rank"], Value::Null);
    let reason = row["reason"].as_str().unwrap();
    // A program that ends closes its connections a moment before it has ended.
    let wanted = match row["status"].as_str() {
        Some("failed") => "the peer ended with exit status: 7",
        _ => "of 30 connections",
    };
    assert!(reason.contains(wanted), "{row:#}");
    assert_eq!(self::row(&document, "epoll")["status"], "ok");
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_program_that_is_not_there_has_failed() {
    let (document, code) = with_peer("ghost=/nowhere/ghost {port}", "1");
    let row = row(&document, "ghost");
    assert_eq!((code, &row["status"]), (Some(3), &"failed".into()), "{row:#}");
    assert!(row["reason"].as_str().unwrap().contains("/nowhere/ghost"), "{row:#}");
}

#[test]
fn ctrl_c_ends_a_comparison_with_what_there_is() {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;
    let mut child = common::weir(&[
        "compare", "tcp", "--design", "epoll", "-c", "3", "-l", "1237", "-t", "60", "-v", "--json",
    ])
    .stdout(Stdio::piped())
    .stderr(Stdio::piped())
    .spawn()
    .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    // Two loads belong to the check; with the second one of a run the first run has been made.
    for _ in 0..2 {
        assert!(lines.any(|line| line.is_ok_and(|line| line.contains("-b 1237"))));
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
