//! `weir set`: settings of a server that runs, and what is wrong with some wishes.

#![forbid(unsafe_code)]

mod common;

use std::io::{BufRead, BufReader, Read};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use common::{SOON, Server, document, errors, output, until, weir};
use serde_json::Value;

fn log() -> PathBuf {
    std::env::temp_dir().join(format!("weir-set-{}.ndjson", std::process::id()))
}

/// The records that are whole by now.
fn records(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| serde_json::from_str(line).expect("a record a line")).collect()
}

fn count(record: &Value, name: &str) -> u64 {
    record["counts"][name].as_u64().unwrap_or(0)
}

/// Sends a datagram now and then for as long as `during` lasts.
fn sending<R>(port: u16, during: impl FnOnce() -> R) -> R {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
            while !done.load(Ordering::Relaxed) {
                let _ = socket.send_to(&[0; 64], ("127.0.0.1", port));
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(during));
        done.store(true, Ordering::Relaxed);
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[test]
fn a_change_is_in_force_in_the_next_interval_and_the_counters_show_it() {
    let path = log();
    let file = path.to_str().expect("text");
    let mut server = weir(&["serve", "udp", "--design", "rio-hybrid --threads 1 --spin 1000000"])
        .args(["--bind", "127.0.0.1:0", "--control", "127.0.0.1:0", "--json", "--interval", "20ms"])
        .args(["--end-with-input", "--performance-log", file, "--performance-interval", "20ms"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("weir can be started");
    let mut said = BufReader::new(server.stdout.take().expect("piped"));
    let mut line = String::new();
    said.read_line(&mut line).expect("a ready line");
    let ready: Value = serde_json::from_str(&line).expect("a document");
    let port = ready["ready"]["addresses"][0].as_str().and_then(|at| at.rsplit(':').next());
    let port: u16 = port.and_then(|port| port.parse().ok()).expect("a port");
    let control = ready["ready"]["control"].as_str().expect("a control channel");
    let (sender, lines) = mpsc::channel();
    let stderr = BufReader::new(server.stderr.take().expect("piped"));
    std::thread::spawn(move || {
        stderr.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
    });

    // A port alone is one of this machine.
    let (_, port_of_control) = control.rsplit_once(':').expect("a port");
    let shown = output(&["set", port_of_control, "--json"]);
    assert_eq!(shown.status.code(), Some(0), "{}", errors(&shown));
    let shown = document(&shown);
    let names: Vec<&str> =
        shown["settings"].as_array().unwrap().iter().filter_map(|of| of["name"].as_str()).collect();
    assert_eq!(names, ["threshold", "spin", "adaptive", "gather", "defer"]);
    assert_eq!(shown["settings"][1]["value"], "1000000us");
    sending(port, || {
        // Datagrams come more often than it ceases to poll.
        let polls = |of: &Value| count(of, "empty_dequeues") >= 100 && count(of, "waits") == 0;
        until("polling", || records(&path).iter().any(polls));
        let set = output(&["set", control, "spin=0", "threshold=64"]);
        assert_eq!(set.status.code(), Some(0), "{}", errors(&set));
        let text = String::from_utf8(set.stdout).expect("text");
        assert!(
            text.contains("spin=0us, before ") && text.contains(" (allowed: 0us to 1000000us)"),
            "{text}"
        );
        let line = loop {
            let line = lines.recv_timeout(SOON).expect("a line of the interval");
            if line.starts_with("settings in force:") {
                break line;
            }
        };
        assert!(line.contains("spin=0us") && line.contains("threshold=64"), "{line}");
        // An interval at whose beginning it was in force: each dequeue that brings nothing is followed by a wait.
        let of_spin = |of: &Value| of["settings"]["spin"].as_u64();
        let waits = |pair: &[Value]| {
            let whole = of_spin(&pair[0]) == Some(0) && count(&pair[1], "datagrams") > 0;
            whole
                && count(&pair[1], "waits") > 0
                && count(&pair[1], "empty_dequeues") <= count(&pair[1], "waits") + 1
        };
        until("waiting", || records(&path).windows(2).any(waits));
    });

    drop(server.stdin.take());
    let mut rest = String::new();
    said.read_to_string(&mut rest).expect("its report");
    assert!(server.wait().expect("it ends").success(), "{rest}");
    let report: Value = serde_json::from_str(rest.trim()).expect("a document");
    assert_eq!(
        (&report["settings"]["spin"], &report["settings"]["threshold"]),
        (&"0".into(), &"64".into())
    );
    std::fs::remove_file(path).expect("it was written");
}

#[test]
fn what_cannot_be_changed_is_refused_with_what_can_and_changes_nothing() {
    let mut server = Server::start(&["--design", "rio-hybrid --threads 2"]);
    let control = server.control.clone();
    let before = document(&output(&["set", &control, "--json"]));
    // `true` only where timers are fine enough for it.
    let flag = before["settings"][2]["allowed"].as_str().expect("what is allowed");
    assert!(["true or false", "false"].contains(&flag), "{before}");
    for (changes, said) in [
        (&["outstanding=7"][..], "fixed when the server starts"),
        (&["spin=7us", "spni=1"], "did you mean \"spin\""),
        (&["spin=7us", "threshold=0"], "1 to 1000"),
        (&["spin=2s"], "0us to 1000000us"),
        (&["spin=1us", "spin=2us"], "twice"),
        (&["adaptive=maybe"], flag),
        (&["spin"], "spin=20us"),
    ] {
        let set = output(&[&["set", control.as_str()][..], changes].concat());
        assert_eq!(set.status.code(), Some(2), "{changes:?}: {}", errors(&set));
        assert!(errors(&set).contains(said), "{changes:?}: {}", errors(&set));
    }
    let now = document(&output(&["set", &control, "--json"]));
    assert_eq!(now["settings"][1]["value"], "50us", "{now}");
    // Of two that change the same, the last one counts; both hear what is in force.
    for value in ["30us", "40us"] {
        let set = document(&output(&["set", &control, &format!("spin={value}"), "--json"]));
        assert_eq!((&set["status"], &set["settings"][1]["value"]), (&"ok".into(), &value.into()));
    }
    server.close_input();
    let (code, report) = server.end();
    assert_eq!((code, &report["settings"]["spin"]), (Some(0), &"40".into()), "{report}");
    let gone = output(&["set", &control, "--json"]);
    assert_eq!((gone.status.code(), &document(&gone)["status"]), (Some(1), &"failed".into()));
    assert!(errors(&gone).contains("started with --control"), "{}", errors(&gone));
}

#[test]
fn a_design_that_has_nothing_to_change_says_so() {
    let server =
        Server::begin(weir(&["serve", "tcp", "--design", "blocking", "--control", "127.0.0.1:0"]));
    let shown = output(&["set", &server.control]);
    assert_eq!(shown.status.code(), Some(0), "{}", errors(&shown));
    assert!(String::from_utf8_lossy(&shown.stdout).contains("nothing that can be changed"));
    let set = output(&["set", &server.control, "spin=1us"]);
    assert_eq!(set.status.code(), Some(2));
    assert!(errors(&set).contains("nothing that can be changed"), "{}", errors(&set));
}

#[test]
fn a_server_of_connections_is_changed_too() {
    let mut server =
        Server::begin(weir(&["serve", "tcp", "--design", "poll", "--control", "127.0.0.1:0"]));
    let control = server.control.clone();
    let shown = document(&output(&["set", &control, "--json"]));
    assert_eq!(
        (&shown["settings"][0]["name"], &shown["settings"][0]["value"]),
        (&"gather".into(), &"none".into())
    );
    let set = output(&["set", &control, "gather=200us,64", "--json"]);
    // Where timed waits end too late nothing can gather, and it says so.
    let told = match set.status.code() {
        Some(0) => "200us,64",
        _ => {
            assert!(errors(&set).contains("too late"), "{}", errors(&set));
            "none"
        }
    };
    let now = document(&output(&["set", &control, "--json"]));
    assert_eq!(now["settings"][0]["value"], told, "{now}");
    server.close_input();
    let (code, report) = server.end();
    assert_eq!((code, &report["settings"]["gather"]), (Some(0), &told.into()), "{report}");
}
