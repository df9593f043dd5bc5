//! The flags of `weir serve tcp` that protect it: what each does to a peer, and what the report says.
#![cfg(target_os = "linux")]

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use common::{document, output, weir};
use serde_json::Value;

/// An echo server with these flags; it is ended when dropped.
struct Echo {
    child: Child,
    lines: BufReader<ChildStdout>,
    ready: Value,
}

impl Echo {
    fn start(flags: &[&str]) -> Self {
        let mut child = weir(&["serve", "tcp", "--bind", "127.0.0.1:0", "--json", "--echo"])
            .args(["--interval", "0", "--end-with-input", "--design", "epoll --threads 1"])
            .args(flags)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("weir can be started");
        let mut lines = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        lines.read_line(&mut line).expect("a ready line");
        let ready = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e} in {line:?}"));
        Self { child, lines, ready }
    }

    fn connect(&self) -> TcpStream {
        let address = self.ready["ready"]["addresses"][0].as_str().expect("an address");
        let stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(common::SOON)).expect("a socket");
        stream
    }

    fn setting(&self, name: &str) -> &str {
        self.ready["ready"]["settings"][name].as_str().unwrap_or_else(|| panic!("no {name}"))
    }

    /// Its report.
    fn end(mut self) -> Value {
        drop(self.child.stdin.take());
        let mut rest = String::new();
        self.lines.read_to_string(&mut rest).expect("its output can be read");
        assert_eq!(self.child.wait().expect("it ends").code(), Some(0));
        serde_json::from_str(rest.trim_end()).unwrap_or_else(|e| panic!("{e} in {rest:?}"))
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn ping(mut stream: &TcpStream) {
    let mut back = [0; 5];
    stream.write_all(b"hello").expect("sending");
    stream.read_exact(&mut back).expect("an echo");
    assert_eq!(&back, b"hello");
}

#[test]
fn a_read_timeout_closes_the_silent() {
    let server = Echo::start(&["--read-timeout", "300ms"]);
    assert_eq!(server.setting("read-timeout-ms"), "300");
    let mut silent = server.connect();
    let since = Instant::now();
    let error = silent.read(&mut [0; 10]).expect_err("a reset");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    assert!(since.elapsed() >= Duration::from_millis(250), "after {:?}", since.elapsed());
    let report = server.end();
    assert_eq!(report["counters"]["closed_by_filter"], 1, "{report}");
}

#[test]
fn an_address_has_so_many_connections_and_no_more() {
    let server = Echo::start(&["--per-address", "2"]);
    assert_eq!(server.setting("per-address"), "2");
    let within = [server.connect(), server.connect()];
    within.iter().for_each(ping);
    let mut said = String::new();
    server.connect().read_to_string(&mut said).expect("a line and the end");
    assert_eq!(
        said,
        "weir: refused: there are 2 connections from your address, the most that may be\n"
    );
    drop(within);
    let report = server.end();
    assert_eq!(report["counters"]["closed_by_filter"], 1, "{report}");
}

#[test]
fn a_rate_is_kept_by_pauses() {
    let server = Echo::start(&["--max-rate", "100k", "--max-receives", "1M"]);
    assert_eq!((server.setting("max-rate"), server.setting("max-receives")), ("102400", "1000000"));
    let mut stream = server.connect();
    let since = Instant::now();
    let (sent, mut back) = (vec![7; 60 * 1024], Vec::new());
    stream.write_all(&sent).expect("sending");
    stream.shutdown(std::net::Shutdown::Write).expect("a socket");
    stream.read_to_end(&mut back).expect("the end");
    assert!(back == sent, "{} bytes came back", back.len());
    // All but the burst of 200 ms.
    assert!(since.elapsed() >= Duration::from_millis(300), "after {:?}", since.elapsed());
    let report = server.end();
    assert!(report["counters"]["pauses"].as_u64() > Some(0), "{report}");
}

#[test]
fn an_active_set_is_served_first() {
    let server = Echo::start(&["--active", "1"]);
    assert_eq!(server.setting("active"), "1");
    let first = server.connect();
    ping(&first);
    let mut second = server.connect();
    second.write_all(b"hello").expect("sending");
    second.set_read_timeout(Some(Duration::from_millis(200))).expect("a socket");
    assert!(second.read(&mut [0; 5]).is_err(), "it was served before its turn");
    second.set_read_timeout(Some(common::SOON)).expect("a socket");
    drop(first);
    let mut back = [0; 5];
    second.read_exact(&mut back).expect("its turn has come");
    drop(second);
    let report = server.end();
    assert_eq!(report["counters"]["waited"], 1, "{report}");
}

#[test]
fn the_default_of_the_active_set_is_the_librarys() {
    let server = Echo::start(&["--active", "--bind", "127.0.0.1:0"]);
    assert_eq!(server.setting("active"), weir::tcp::ACTIVE.to_string());
    server.end();
}

#[test]
fn a_design_without_an_active_set_says_why() {
    let server = output(&["serve", "tcp", "--json", "--design", "blocking", "--active", "5"]);
    assert_eq!(server.status.code(), Some(2), "{}", common::errors(&server));
    let reason = document(&server)["reason"].to_string();
    assert!(reason.contains("blocking has no active set: each connection has threads"), "{reason}");
    let listed = document(&output(&["designs", "--json"]));
    for design in listed["tcp_designs"].as_array().expect("a list") {
        let how = design["active_set_how"].as_str().expect("in words");
        assert_eq!(design["active_set"].as_bool(), Some(how.starts_with("yes")), "{design}");
    }
}
