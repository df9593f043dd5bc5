//! weir on one system serves weir on another: this program and that for Windows, each as server and as client, and every
//! byte is verified where it arrives.
//!
//! The other program runs under Wine, so both see one loopback interface. `.ci/run` has it; by hand:
//!
//! ```sh
//! cargo build --target x86_64-pc-windows-gnu
//! WEIR_WINDOWS="$PWD/.ci/wine/run $PWD/target/x86_64-pc-windows-gnu/debug/weir.exe" \
//!     cargo test -p weir-cli --test interoperation -- --ignored
//! ```

#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]

mod common;

use std::net::UdpSocket;
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use std::thread;

use common::{SOON, Server, document, errors, weir};
use serde_json::Value;

/// Designs that are tried at a time: they mostly wait.
const AT_ONCE: usize = 4;

/// The same as a few datagrams to every socket's buffer: a server that gets no core for a while loses none.
const FEW: [(&str, &str); 2] = [("64", "60"), ("1472", "20")];

/// `weir` on this system or on the other.
#[derive(Clone, Copy, PartialEq, Eq)]
enum System {
    Here,
    Windows,
}

impl System {
    fn weir(self, words: &[&str]) -> Command {
        if self == Self::Here {
            return weir(words);
        }
        let command = std::env::var("WEIR_WINDOWS").expect("WEIR_WINDOWS starts weir.exe");
        let mut parts = command.split_whitespace();
        let mut command = Command::new(parts.next().expect("WEIR_WINDOWS names a program"));
        command.args(parts).args(words);
        command
    }

    fn output(self, words: &[&str]) -> Output {
        self.weir(words).stdin(Stdio::null()).output().expect("weir can be started")
    }

    /// The designs of a kind that run there, each once.
    fn designs(self, kind: &str) -> Vec<String> {
        let list = document(&self.output(&["designs", "--json"]));
        let designs = list[kind].as_array().expect("a list").iter();
        let runs = designs.filter(|design| design["status"] == "ok");
        runs.map(|design| design["name"].as_str().expect("a name").to_owned()).collect()
    }
}

/// The two ways round: who serves, and who sends.
const WAYS: [(System, System); 2] =
    [(System::Windows, System::Here), (System::Here, System::Windows)];

/// Tries something with each design, several at a time.
fn with_each(designs: Vec<String>, check: impl Fn(&str) + Sync) {
    assert!(!designs.is_empty(), "no design runs there");
    let left = Mutex::new(designs);
    let next = || left.lock().expect("no check panics here").pop();
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(design) = next() {
                    check(&design);
                }
            });
        }
    });
}

#[test]
#[ignore = "needs weir.exe: see above"]
fn what_one_floods_the_other_receives() {
    for (serves, floods) in WAYS {
        with_each(serves.designs("designs"), |design| {
            for (size, count) in FEW {
                let mut server = serves.weir(&["serve", "udp", "--design", design, "--once"]);
                server.args(["--control", "127.0.0.1:0", "--verify-all", "--any-build"]);
                server.args(["--size", size]);
                let server = Server::begin(server);
                let words =
                    ["flood", "127.0.0.1", "-i", "0", "--json", "--any-build", "--any-pace"];
                let load = ["-l", size, "-k", count, "--pps", "1k", "--control", &server.control];
                let flood = floods.output(&[&words[..], &load].concat());
                assert!(flood.status.success(), "{design}: {}", errors(&flood));
                let flood = document(&flood);
                let (code, report) = server.end();
                let audit = &report["audit"];
                assert_eq!((code, flood["sent"].to_string()), (Some(0), count.to_owned()));
                assert_eq!(
                    (&audit["received"], &audit["data_errors"]),
                    (&flood["sent"], &false.into())
                );
                assert_eq!(flood["report"]["audit"], *audit, "{design}: both tell the same");
                assert_eq!(report["slices_missing"], 0, "{design}");
            }
        });
    }
}

/// A client that is no weir's, so only this way round: every size that has a boundary near it.
#[test]
#[ignore = "needs weir.exe: see above"]
fn an_echo_there_answers_what_is_sent_here() {
    const SIZES: [usize; 9] = [0, 1, 15, 64, 1472, 1473, 4096, 16_384, 65_507];
    with_each(System::Windows.designs("designs"), |design| {
        let largest = SIZES[SIZES.len() - 1].to_string();
        let mut server = System::Windows.weir(&["serve", "udp", "--design", design, "--echo"]);
        server.args(["--size", &largest]);
        let mut server = Server::begin(server);
        let client = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        client.connect(("127.0.0.1", server.port)).expect("an address");
        client.set_read_timeout(Some(SOON)).expect("a time");
        for (number, size) in SIZES.into_iter().enumerate() {
            let sent: Vec<u8> = (0..size).map(|at| (at * 7 + number) as u8).collect();
            assert_eq!(client.send(&sent).expect("it is sent"), size);
            let mut back = vec![0; size + 1];
            let length = client.recv(&mut back).unwrap_or_else(|e| panic!("{design} {size}: {e}"));
            assert!(back[..length] == sent, "{design}: {size} bytes came back as {length}");
        }
        server.close_input();
        let (code, report) = server.end();
        assert_eq!((code, &report["counters"]["replies"]), (Some(0), &SIZES.len().into()));
    });
}

#[test]
#[ignore = "needs weir.exe: see above"]
fn what_one_sends_on_connections_the_other_echoes() {
    for (serves, loads) in WAYS {
        with_each(serves.designs("tcp_designs"), |design| {
            let serve = serves.weir(&["serve", "tcp", "--design", design, "--echo"]);
            let mut server = Server::begin(serve);
            let port = server.port.to_string();
            let words = ["load", "tcp", "127.0.0.1", "--json", "-i", "0", "-p", &port];
            let messages = ["-c", "8", "-x", "25", "-b", "1-9k", "-o", "3"];
            let load = loads.output(&[&words[..], &messages].concat());
            assert!(load.status.success(), "{design}: {}", errors(&load));
            let load = document(&load);
            // The client compares every byte that comes back; what is not the one it sent is no `ok`.
            assert_eq!(
                (&load["status"], &load["reason"]),
                (&"ok".into(), &Value::Null),
                "{design}"
            );
            let report = &load["report"];
            assert_eq!((&report["finished"], &report["messages_over"]), (&8.into(), &200.into()));
            server.close_input();
            let (code, served) = server.end();
            let counters = &served["counters"];
            assert_eq!((code, &counters["accepted"]), (Some(0), &8.into()), "{design}: {served}");
            assert_eq!(counters["bytes_received"], report["bytes_sent"], "{design}");
            assert_eq!(counters["bytes_sent"], report["bytes_received"], "{design}");
        });
    }
}

/// A comparison on Windows leaves out no design that runs there, and each passes its checks. Wine is asked for neither
/// ranks nor rates.
#[test]
#[ignore = "needs weir.exe: see above"]
fn a_comparison_checks_every_design_that_runs_there() {
    for (kind, list) in [("udp", "designs"), ("tcp", "tcp_designs")] {
        let compare = ["compare", kind, "--quick", "--rounds", "1", "--json", "--no-save"];
        let compared = System::Windows.output(&compare);
        // How it ends says nothing: a run that others disturbed is enough for another code.
        let document = document(&compared);
        assert_eq!(document["error"], Value::Null, "{kind}: {}", errors(&compared));
        let rows = document["results"].as_array().expect("a list");
        for design in System::Windows.designs(list) {
            let its: Vec<_> = rows.iter().filter(|row| row["design"] == *design).collect();
            assert!(!its.is_empty(), "{kind}: {design} is left out");
            for row in its {
                assert_eq!(row["conformance"], "passed", "{kind}: {design}: {}", row["failures"]);
            }
        }
    }
}
