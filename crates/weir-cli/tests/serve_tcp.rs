//! The flags of `weir serve tcp` that protect it: what each does to a peer, and what the report says.

#![forbid(unsafe_code)]

mod common;
#[path = "../../weir/src/wine.rs"]
mod wine;

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
        Self::with("poll --threads 1", flags)
    }

    fn with(design: &str, flags: &[&str]) -> Self {
        let mut command = weir(&["serve", "tcp", "--bind", "127.0.0.1:0", "--json", "--echo"]);
        command
            .args(["--interval", "0", "--end-with-input", "--design", design])
            .args(flags)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        Self::of(&mut command)
    }

    fn of(command: &mut std::process::Command) -> Self {
        let mut child = command.spawn().expect("weir can be started");
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

    /// Whether its metrics say that a connection has waited for its turn.
    fn has_waiting(&self) -> bool {
        let at = self.setting("metrics").split('/').nth(2).expect("a URL");
        let mut stream = TcpStream::connect(at).expect("it listens");
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("sending");
        let mut page = String::new();
        stream.read_to_string(&mut page).expect("a page and the end");
        let mut waited = page.lines().filter(|of| of.starts_with("weir_connections_waited_total"));
        waited.any(|line| line.ends_with(" 1"))
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
    // From before it is accepted: the server may have its core before this thread goes on.
    let since = Instant::now();
    let mut silent = server.connect();
    match silent.read(&mut [0; 10]) {
        Ok(0) if wine::RESETS.is_left_out() => {}
        other => {
            let error = other.expect_err("a reset");
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        }
    }
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
        "weir: refused: there are 2 connections from your address, the most allowed\n"
    );
    drop(within);
    let report = server.end();
    assert_eq!(report["counters"]["closed_by_filter"], 1, "{report}");
}

#[test]
fn a_connection_without_threads_is_refused() {
    let server = Echo::with("blocking", &["--threads-max", "4"]);
    assert_eq!(server.setting("threads-max"), "4");
    let within = [server.connect(), server.connect()];
    within.iter().for_each(ping);
    let mut said = String::new();
    server.connect().read_to_string(&mut said).expect("a line and the end");
    let why = "there are 2 connections, as many as there are threads for (threads-max = 4)";
    assert_eq!(said, format!("weir: refused: {why}\n"));
    drop(within);
    assert_eq!(server.end()["counters"]["refused"], 1);
    // Without the flag it is the system's own limit, where it has one.
    if cfg!(target_os = "linux") {
        let server = Echo::with("blocking", &[]);
        assert!(server.setting("threads-limit").contains(" = "));
        assert!(server.setting("threads-max").parse::<u32>().is_ok_and(|most| most > 4));
        server.end();
    }
}

#[test]
fn a_rate_is_kept_by_pauses() {
    let server = Echo::start(&["--max-rate", "100k", "--max-receives", "1M"]);
    assert_eq!((server.setting("max-rate"), server.setting("max-receives")), ("100000", "1000000"));
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
    let server = Echo::start(&["--active", "1", "--metrics", "0"]);
    assert_eq!(server.setting("active"), "1");
    let first = server.connect();
    ping(&first);
    let mut second = server.connect();
    second.write_all(b"hello").expect("sending");
    second.set_read_timeout(Some(Duration::from_millis(200))).expect("a socket");
    common::until("that it waits", || server.has_waiting());
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
    assert!(reason.contains("blocking has no active set: each connection has its own"), "{reason}");
    let listed = document(&output(&["designs", "--json"]));
    for design in listed["tcp_designs"].as_array().expect("a list") {
        let how = design["active_set_how"].as_str().expect("in words");
        assert_eq!(design["active_set"].as_bool(), Some(how.starts_with("yes")), "{design}");
    }
}

#[test]
fn a_server_states_what_is_in_effect() {
    let server = Echo::start(&[
        "--rcvbuf",
        "64k",
        "--work",
        "shared:5",
        "--cpu",
        "0",
        "--silent",
        "7",
        "--idle",
        "0",
        "--stalled",
        "3s",
        "--stop-time",
        "2",
        "--keepalive",
        "90",
        "--close-when-full",
    ]);
    for (name, value) in [
        ("receive-buffer-asked", "65536"),
        ("send-buffer-asked", "the system's, which grows"),
        ("work", "shared:5"),
        ("cpu", "0"),
        ("silent-ms", "7000"),
        ("idle-ms", "never"),
        ("stalled-ms", "3000"),
        ("linger-ms", "5000"),
        ("stop-time-ms", "2000"),
        ("when-full", "close"),
    ] {
        assert_eq!(server.setting(name), value, "{name}");
    }
    // Not every system is told how often.
    assert!(server.setting("keepalive").starts_with("after 90s, every 10s, "));
    // Linux takes twice as much as it is asked for (socket(7)), within its limits. Only it tells of the backlog.
    let mut obtained = vec!["receive-buffer-bytes", "send-buffer-bytes"];
    obtained.extend(cfg!(target_os = "linux").then_some("backlog-obtained"));
    for obtained in obtained {
        assert!(server.setting(obtained).parse::<u64>().unwrap() > 0, "{obtained}");
    }
    server.end();
}

#[test]
fn connections_that_came_and_went_between_two_looks_are_counted() {
    let server = Echo::start(&["--keepalive", "0"]);
    assert_eq!(server.setting("keepalive"), "never");
    let two = [server.connect(), server.connect()];
    two.iter().for_each(ping);
    drop(two);
    let report = server.end();
    assert_eq!(report["most_open"], 2, "{report}");
}

#[test]
fn numbers_that_make_no_sense_are_refused_as_they_were_given() {
    for (words, said) in [
        (["--max-rate", "0"], "0 is not allowed: nothing would be received"),
        (["--max-receives", "0"], "0 is not allowed: nothing would be received"),
        (["--per-address", "0"], "0 is not allowed; allowed: 1 to"),
        (["--connections-max", "5G"], "5G is not allowed; allowed: 1 to 16000000"),
        (["--active", "0"], "0 is not allowed; allowed: 1 to"),
        (["--keepalive", "10h"], "keepalive: 36000s is not allowed; allowed: 1s to 32767s"),
    ] {
        let serve = ["serve", "tcp", "--json", "--bind", "127.0.0.1:0", "--end-with-input"];
        let words = [&serve[..], &words[..]].concat();
        let server = output(&words);
        assert_eq!(server.status.code(), Some(2), "{words:?}: {}", common::errors(&server));
        let reason = document(&server)["reason"].to_string();
        assert!(reason.contains(said), "{words:?}: {reason}");
    }
}

#[test]
fn all_addresses_of_both_kinds_can_be_listened_on_at_one_port() {
    // Another process may take the port meanwhile: then it is tried on another.
    for tried in 1.. {
        let Ok(free) = std::net::TcpListener::bind("[::]:0") else {
            return eprintln!("skipped: there is no IPv6 here");
        };
        let port = free.local_addr().expect("an address").port();
        drop(free);
        let (v4, v6) = (format!("127.0.0.1:{port}"), format!("[::]:{port}"));
        let mut server = weir(&["serve", "tcp", "--bind", &v4, "--bind", &v6, "--end-with-input"]);
        let server = server.stdin(Stdio::null()).output().expect("weir can be started");
        if server.status.code() == Some(0) {
            return;
        }
        let errors = common::errors(&server);
        assert!(tried < 5 && errors.contains("choose another port"), "{errors}");
    }
}

/// What finds no descriptor for a group of its own is told so, and counted.
#[test]
#[cfg(target_os = "linux")] // elsewhere they cannot be taken away
fn who_finds_no_room_in_a_group_counts_as_refused() {
    use weir_confine::{Confinement, Resource};
    let mut refused = 0;
    // A connection takes one, and two more for its group: of three numbers in a row two leave one over, with
    // which it is accepted.
    for descriptors in [40, 41] {
        let mut command = weir(&["serve", "tcp", "--bind", "127.0.0.1:0", "--json", "--echo"]);
        command.args(["--interval", "0", "--end-with-input", "--design", "event-select --group 2"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let few = Confinement::new().limit(Resource::Descriptors, descriptors);
        let server = Echo::of(few.confine(&mut command));
        let mut clients: Vec<_> = (0..30).map(|_| server.connect()).collect();
        let mut told = 0;
        for client in &mut clients {
            let mut said = [0; 5];
            client.set_read_timeout(Some(Duration::from_secs(3))).expect("a socket");
            match client.write_all(b"hello").and_then(|()| client.read_exact(&mut said)) {
                Ok(()) => told += u64::from(&said == b"weir:"),
                Err(_) => break, // there was none left to accept it with
            }
        }
        drop(clients);
        let report = server.end();
        assert!(report["counters"]["refused"].as_u64() >= Some(told), "{told} of {report}");
        refused += told;
    }
    assert!(refused > 0, "all found room");
}

#[test]
fn designs_say_what_an_idle_connection_holds() {
    let listed = document(&output(&["designs", "--json"]));
    let mut holds = vec![];
    for design in listed["tcp_designs"].as_array().expect("a list") {
        let how = design["idle_holds"].as_str().expect("in words");
        assert_eq!(design["idle_holds_buffer"].as_bool(), Some(how != "no buffer"), "{design}");
        if how != "no buffer" {
            holds.push(design["name"].as_str().expect("a name"));
        }
    }
    assert_eq!(holds, ["blocking", "overlapped-events", "port", "port-ordered", "rio-tcp"]);
}

/// A server that forks for each connection; its children tell what they used, and their numbers.
#[cfg(target_os = "linux")]
const FORKING: &str = r#"
import os, signal, socket, sys, time
listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
while True:
    connection, _ = listener.accept()
    if os.fork():
        connection.close()
        continue
    if os.fork():
        os._exit(0)  # its child is nobody's
    while data := connection.recv(64):
        if data == b"work":
            until = time.process_time() + 0.5
            while time.process_time() < until: pass
            data = b"%d %d" % (time.process_time_ns(), os.getpid())
        connection.sendall(data)
    time.sleep(1000)
"#;

#[test]
#[cfg(target_os = "linux")]
fn a_server_of_several_processes_is_charged_for_all_and_leaves_none() {
    let Some(python) = common::python() else { return };
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("forking-echo.py");
    std::fs::write(&path, FORKING).unwrap();
    let command = format!("{python} {} {{ip}} {{port}}", path.display());
    let mut server =
        common::weir(&["serve", "tcp-peer", "--command", &command, "--end-with-input", "--json"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
    let mut output = std::io::BufReader::new(server.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    let ready: serde_json::Value = serde_json::from_str(&line).unwrap();
    let address = ready["ready"]["addresses"][0].as_str().unwrap();
    let mut connection = std::net::TcpStream::connect(address).unwrap();
    connection.set_read_timeout(Some(common::SOON)).unwrap();
    connection.write_all(b"work").unwrap();
    let mut answer = [0; 64];
    let length = connection.read(&mut answer).unwrap();
    let answer = std::str::from_utf8(&answer[..length]).unwrap();
    let (used_ns, process) = answer.split_once(' ').unwrap();
    let used_ns: u64 = used_ns.parse().unwrap();
    drop(server.stdin.take());
    line.clear();
    output.read_line(&mut line).unwrap();
    let report: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert!(server.wait().unwrap().success());
    // The group's count is as of the last tick.
    let counted_ns = report["cpu_ns"].as_u64().unwrap();
    assert!(counted_ns + 20_000_000 >= used_ns && used_ns >= 500_000_000, "{report:#}");
    // It would sleep for long. One that is killed is there for a moment more.
    let process = process.parse().unwrap();
    common::until("the end of what was forked", || !common::is_running(&process));
}

/// A file of the library's tests of TLS.
fn tls_file(name: &str) -> String {
    format!("{}/../weir/tests/tls/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
#[cfg(not(feature = "tls"))]
fn tls_that_was_not_built_in_says_so() {
    let (chain, key) = (tls_file("certificate.pem"), tls_file("key.pem"));
    let server = output(&["serve", "tcp", "--tls-cert", &chain, "--tls-key", &key]);
    assert_eq!(server.status.code(), Some(2), "{}", common::errors(&server));
    assert!(common::errors(&server).contains("--features tls"), "{}", common::errors(&server));
}

#[test]
#[cfg(feature = "tls")]
fn tls_is_spoken_with_clients_that_say_who_they_are() {
    let (chain, key) = (tls_file("certificate.pem"), tls_file("key.pem"));
    let (authority, client_ca) = (tls_file("authority.pem"), tls_file("client-authority.pem"));
    for (flag, file) in
        [("--tls-cert", "/nowhere"), ("--tls-key", "/nowhere"), ("--tls-key", &chain)]
    {
        let mut files = [("--tls-cert", chain.as_str()), ("--tls-key", &key)];
        files.iter_mut().filter(|(name, _)| *name == flag).for_each(|(_, path)| *path = file);
        let [(_, chain), (_, key)] = files;
        let server = output(&["serve", "tcp", "--tls-cert", chain, "--tls-key", key]);
        assert_eq!(server.status.code(), Some(2), "{flag} {file}: {}", common::errors(&server));
    }
    let tls = ["--tls-cert", &chain, "--tls-key", &key, "--tls-alpn", "two,one"];
    let server = Echo::start(&[&tls[..], &["--tls-client-ca", &client_ca]].concat());
    assert_eq!((server.setting("tls"), server.setting("tls-alpn")), (chain.as_str(), "two,one"));
    if !common::has("openssl", &["version"]) {
        return;
    }
    let to = server.ready["ready"]["addresses"][0].as_str().expect("an address");
    let (certificate, own) = (tls_file("client-certificate.pem"), tls_file("client-key.pem"));
    for (says_who, back) in [(true, "hello\n"), (false, "")] {
        let mut client = std::process::Command::new("openssl");
        client.args(["s_client", "-connect", to, "-CAfile", &authority, "-verify_return_error"]);
        client.args(["-quiet", "-no_ign_eof", "-alpn", "one"]);
        if says_who {
            client.args(["-cert", &certificate, "-key", &own]);
        }
        client.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut client = client.spawn().expect("openssl can be run");
        let mut into = client.stdin.take().expect("piped");
        // Where it was refused nobody reads.
        let _ = into.write_all(b"hello\n");
        let mut line = String::new();
        let stdout = client.stdout.take().expect("piped");
        BufReader::new(stdout).read_line(&mut line).expect("a line or the end");
        drop(into);
        assert_eq!((line.as_str(), client.wait().expect("it ends").success()), (back, says_who));
    }
    server.end();
}

/// A path that no other test has.
fn any_path(name: &str) -> String {
    let path = std::env::temp_dir().join(format!("weir-cli-{name}-{}.sock", std::process::id()));
    path.to_str().expect("a name in ASCII").to_owned()
}

#[test]
fn a_unix_socket_is_served_and_loaded() {
    let path = any_path("served");
    let serve =
        ["serve", "tcp", "--json", "--echo", "--interval", "0", "--end-with-input", "--design"];
    let flags = ["poll --threads 1", "--unix", &path, "--unix-mode", "600"];
    if cfg!(windows) {
        let refused = output(&[&serve[..], &flags].concat());
        assert_eq!(refused.status.code(), Some(5));
        assert!(common::errors(&refused).contains("Unix socket"), "{}", common::errors(&refused));
        return;
    }
    let mut command = weir(&serve);
    command.args(flags).stdin(Stdio::piped()).stdout(Stdio::piped());
    let server = Echo::of(&mut command);
    let target = format!("unix:{path}");
    assert_eq!(server.ready["ready"]["addresses"], serde_json::json!([]));
    assert_eq!(server.ready["ready"]["unix"], serde_json::json!([target]));
    // One is enough there.
    let taken = output(&["serve", "tcp", "--unix", &path]);
    assert_eq!(taken.status.code(), Some(1));
    assert!(
        common::errors(&taken).contains("somebody listens there"),
        "{}",
        common::errors(&taken)
    );
    let loaded = output(&["load", "tcp", &target, "-c", "4", "-x", "100", "--json", "-i", "0"]);
    assert_eq!(loaded.status.code(), Some(0), "{}", common::errors(&loaded));
    assert_eq!(document(&loaded)["report"]["target"], target);
    let report = server.end();
    // The other server has asked whether somebody is there.
    assert_eq!(report["counters"]["accepted"], 5, "{report}");
    assert_eq!(report["counters"]["closed_finished"], 5, "{report}");
    assert!(!std::path::Path::new(&path).exists());
}

#[test]
fn what_makes_no_sense_with_a_unix_socket_is_told() {
    let path = any_path("wrong");
    let target = format!("unix:{path}");
    let wrong: [(&[&str], i32, &str); 8] = [
        (&["serve", "tcp", "--unix", &path, "--unix-mode", "999"], 2, "in octal"),
        (&["serve", "tcp", "--unix-mode", "600"], 2, "--unix"),
        (&["serve", "tcp", "--unix", "@weir", "--unix-mode", "600"], 2, "anybody"),
        (&["serve", "tcp", "--unix", "unix:"], 2, "give the path of a socket"),
        (&["load", "tcp", "unix:"], 2, "no path"),
        (&["load", "tcp", &target, "--port", "7"], 2, "leave it out"),
        (&["load", "tcp", &target, "--control", "127.0.0.1:7"], 2, "leave it out"),
        (&["serve", "tcp", "--unix", "/nonexistent/x.sock"], 1, "make it first"),
    ];
    for (words, code, text) in wrong {
        if cfg!(windows) && code == 1 {
            continue; // there are none
        }
        let told = output(words);
        assert_eq!(told.status.code(), Some(code), "{words:?}: {}", common::errors(&told));
        assert!(common::errors(&told).contains(text), "{words:?}: {}", common::errors(&told));
    }
}

#[test]
fn one_off_ends_with_its_first_clients() {
    let mut server = Echo::start(&["--one-off"]);
    // All are open together: with a second of none between two of them it would end before the next came.
    let clients = [server.connect(), server.connect(), server.connect()];
    clients.iter().for_each(ping);
    drop(clients);
    // Its input stays open: nothing else ends it.
    let mut rest = String::new();
    server.lines.read_to_string(&mut rest).expect("its output can be read");
    assert_eq!(server.child.wait().expect("it ends").code(), Some(0));
    let report: Value = serde_json::from_str(rest.trim_end()).expect("its report");
    assert_eq!((&report["counters"]["accepted"], &report["open"]), (&3.into(), &0.into()));
}
