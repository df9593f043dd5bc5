//! `weir serve tcp` and `weir load tcp` with one another, with others, and what goes wrong.

#![forbid(unsafe_code)]

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, ChildStdout, Output, Stdio};
use std::thread;

use common::{document, errors, output, weir};
use serde_json::Value;
use socket2::{Domain, Socket, Type};

/// What every system has.
const POLL: &str = "poll --threads 1";

/// A port at which nobody listens. It is kept bound, or another process might listen there by then.
fn nobody() -> (Socket, String) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("loopback");
    let address = socket.local_addr().expect("it is bound").as_socket().expect("of IPv4");
    (socket, address.port().to_string())
}

/// A server that listens; it is ended when dropped.
struct Served {
    child: Child,
    lines: BufReader<ChildStdout>,
    port: String,
}

impl Served {
    fn start(more: &[&str]) -> Self {
        let mut child = weir(&["serve", "tcp", "--bind", "127.0.0.1:0", "--json"])
            .args(["--interval", "0", "--end-with-input"])
            .args(more)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("weir can be started");
        let mut lines = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        lines.read_line(&mut line).expect("a ready line");
        let ready: Value =
            serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e} in {line:?}"));
        let address = ready["ready"]["addresses"][0].as_str().expect("an address");
        let port = address.rsplit(':').next().expect("a port").to_owned();
        Self { child, lines, port }
    }

    fn load(&self, more: &[&str]) -> Output {
        load(&self.port, more)
    }

    /// Ends it, and gives its exit code and report.
    fn end(mut self) -> (Option<i32>, Value) {
        drop(self.child.stdin.take());
        let mut rest = String::new();
        self.lines.read_to_string(&mut rest).expect("its output can be read");
        let code = self.child.wait().expect("it can be waited for").code();
        let report = rest.lines().last().map(serde_json::from_str);
        (code, report.and_then(Result::ok).unwrap_or(Value::Null))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn load(port: &str, more: &[&str]) -> Output {
    let words = ["load", "tcp", "127.0.0.1", "--json", "-i", "0", "-p", port];
    output(&[&words, more].concat())
}

/// Every TCP design that can run here, with its defaults, and some as they are not by default.
fn what_runs_here() -> Vec<String> {
    let list = document(&output(&["designs", "--json"]));
    let designs = list["tcp_designs"].as_array().expect("a list").iter();
    let running = designs.filter(|design| design["status"] == "ok");
    let mut all: Vec<String> =
        running.map(|design| design["name"].as_str().expect("a name").to_owned()).collect();
    assert!(!all.is_empty(), "{list}");
    if all.iter().any(|name| name == "epoll") {
        all.push("epoll --threads 2 --trigger edge --share exclusive".into());
    }
    all
}

#[test]
fn what_is_loaded_is_served_and_accounted_for() {
    for design in what_runs_here() {
        let server = Served::start(&["--design", &design, "--echo"]);
        let load =
            server.load(&["-c", "20", "-x", "30", "-b", "1-9k", "-o", "3", "--threads", "2"]);
        assert_eq!(load.status.code(), Some(0), "{design}: {}", errors(&load));
        let load = document(&load);
        assert_eq!((&load["status"], &load["reason"]), (&"ok".into(), &Value::Null), "{load}");
        let report = &load["report"];
        assert_eq!((&report["finished"], &report["messages_over"]), (&20.into(), &600.into()));
        let (code, served) = server.end();
        assert_eq!(code, Some(0), "{design}: {served}");
        let counters = &served["counters"];
        assert_eq!(
            (&counters["accepted"], &served["closed"]),
            (&20.into(), &20.into()),
            "{served}"
        );
        assert_eq!(counters["bytes_received"], report["bytes_sent"], "{design}");
        assert_eq!(counters["bytes_sent"], report["bytes_received"], "{design}");
        assert_eq!(served["design"], design.split(' ').next().expect("a name"));
        // Windows counts it in ticks, of which it may have had none.
        assert!(served["cpu_ns"].as_u64() > Some(0) || cfg!(windows), "{served}");
    }
}

#[test]
fn the_report_says_which_engine_was_used_and_why() {
    let server = Served::start(&["--design", POLL, "--echo"]);
    let engine = |more: &[&str]| {
        let load = server.load(&[&["-c", "3", "-x", "5"], more].concat());
        assert_eq!(load.status.code(), Some(0), "{}", errors(&load));
        document(&load)["report"]["engine"].clone()
    };
    let asked = engine(&["--engine", "readiness"]);
    assert_eq!((asked["name"].as_str(), &asked["reason"]), (Some("readiness"), &Value::Null));
    let chosen = engine(&[]);
    assert!(["uring", "readiness"].contains(&chosen["name"].as_str().unwrap()), "{chosen}");
    assert!(chosen["reason"].is_string(), "{chosen}");
    let paced = engine(&["--messages-per-s", "1k"]);
    assert_eq!(paced["name"], "readiness", "{paced}");
    assert!(paced["reason"].as_str().unwrap().contains("open loop"), "{paced}");
    assert_eq!(server.end().0, Some(0));
}

#[test]
fn a_sink_takes_and_answers_nothing() {
    let server = Served::start(&["--design", POLL]);
    let one_way = server.load(&["--one-way", "-c", "2", "-x", "50", "-b", "10k", "-o", "4"]);
    assert_eq!(one_way.status.code(), Some(0), "{}", errors(&one_way));
    let echo = server.load(&["-x", "1", "--answer-timeout", "100ms"]);
    assert_eq!(echo.status.code(), Some(1), "{}", errors(&echo));
    assert!(errors(&echo).contains("--one-way"), "{}", errors(&echo));
    // That one does not wait for the server. Its only thread ends this one, which does, when it has taken what came before.
    let last = server.load(&["--one-way", "-x", "1"]);
    assert_eq!(last.status.code(), Some(0), "{}", errors(&last));
    let (code, served) = server.end();
    assert_eq!((code, &served["counters"]["bytes_sent"]), (Some(0), &0.into()));
    assert_eq!(served["counters"]["bytes_received"], 2 * 50 * 10_240 + 64 + 64);
}

#[test]
fn a_server_that_is_full_says_so() {
    let server = Served::start(&["--echo", "--connections-max", "3", "--design", POLL]);
    // So long that a server which has no core for a while has refused the others before the first three are over.
    let load = server.load(&["-c", "10", "-t", "2"]);
    assert_eq!(load.status.code(), Some(1), "{}", errors(&load));
    assert!(errors(&load).contains("7 refused by the server with a reason"), "{}", errors(&load));
    let load = server.load(&["-c", "10", "-t", "2", "--refusals-expected"]);
    assert_eq!(load.status.code(), Some(0), "{}", errors(&load));
    let report = &document(&load)["report"];
    let (open, refused) = (report["finished"].as_u64(), report["refused_by_server"].as_u64());
    assert_eq!((open, refused), (Some(3), Some(7)), "{report}");
    let said = report["refusals"].as_object().expect("what it said").keys().next().expect("one");
    assert!(said.contains("3 connections"), "{said}");
    let (code, served) = server.end();
    assert_eq!((code, &served["counters"]["refused"]), (Some(0), &14.into()), "{served}");
}

#[test]
fn a_byte_that_is_wrong_is_told_with_exit_code_3() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let port = listener.local_addr().expect("an address").port().to_string();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut bytes = [0; 64];
        stream.read_exact(&mut bytes).expect("a message");
        bytes[17] ^= 1;
        stream.write_all(&bytes).expect("it is taken");
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let load = load(&port, &["-x", "1"]);
    server.join().expect("it does not panic");
    assert_eq!(load.status.code(), Some(3), "{}", errors(&load));
    let document = document(&load);
    assert_eq!((&document["status"], &document["report"]["wrong"]), (&"invalid".into(), &1.into()));
    assert_eq!(document["report"]["wrong_bytes"]["offset"], 17);
    assert!(errors(&load).contains("byte 17 came back as"), "{}", errors(&load));
}

#[test]
fn what_cannot_be_loaded_has_a_document_too() {
    let (_kept, port) = nobody();
    for (words, code, said) in [
        (&["127.0.0.1", "-p", &port, "-c", "3"][..], 1, "is anything listening"),
        (&["192.0.2.1"], 2, "loopback"),
        (&["127.0.0.1", "-c", "0"], 2, "--connections"),
        (&["127.0.0.1", "--no-such-flag"], 2, "--no-such-flag"),
        (&["127.0.0.1:7012", "-p", "7013"], 2, "give one of them"),
    ] {
        let load = output(&[&["load", "tcp", "--json"], words].concat());
        assert_eq!(load.status.code(), Some(code), "{words:?}: {}", errors(&load));
        let document = document(&load);
        assert_eq!(document["status"], "failed", "{words:?}");
        let reason = document["reason"].as_str().expect("a reason");
        assert!(reason.contains(said), "{words:?}: {reason}");
    }
}

/// Where a process may have too few descriptors, several share the connections.
#[test]
#[cfg(target_os = "linux")] // elsewhere they cannot be taken away
fn as_many_processes_are_one_load_as_it_takes() {
    use weir_confine::{Confinement, Resource};
    let server = Served::start(&["--echo", "--design", POLL]);
    let few = || Confinement::new().limit(Resource::Descriptors, 46);
    let mut command = weir(&["load", "tcp", "127.0.0.1", "--json", "-i", "0", "-p", &server.port]);
    // 30 connections find room beside the 16 that a process may need.
    command.args(["-c", "50", "--blocks", "2", "--block-interval", "10ms", "-x", "20", "-o", "2"]);
    let counted =
        few().confine(command.stdin(Stdio::null())).output().expect("weir can be started");
    assert_eq!(counted.status.code(), Some(0), "{}", errors(&counted));
    let report = &document(&counted)["report"];
    assert_eq!((&report["processes"], &report["finished"]), (&4.into(), &100.into()), "{report}");
    assert_eq!(report["messages_over"], 2000);
    assert_eq!(report["latency_ns"]["n"], 2000);
    assert_eq!(report["source_addresses"], 4, "each has addresses of its own");

    // The one that leads them has no room for more.
    let mut command = weir(&["load", "tcp", "127.0.0.1", "--json", "-i", "0", "-p", &server.port]);
    command.args(["-c", "481"]);
    let many = few().confine(command.stdin(Stdio::null())).output().expect("weir can be started");
    assert_eq!(many.status.code(), Some(5), "{}", errors(&many));
    let reason = document(&many)["reason"].as_str().expect("a reason").to_owned();
    assert!(reason.contains("480 connections at most") && reason.contains("ulimit -n"), "{reason}");
    let (code, served) = server.end();
    assert_eq!((code, &served["counters"]["accepted"]), (Some(0), &100.into()), "{served}");
}

#[test]
fn several_processes_are_one_load() {
    let server = Served::start(&["--echo", "--design", POLL]);
    let timed = server.load(&["--processes", "2", "-c", "5", "-t", "300ms", "-O", "100ms"]);
    assert_eq!(timed.status.code(), Some(0), "{}", errors(&timed));
    let report = &document(&timed)["report"];
    assert_eq!((&report["ended_by"], &report["finished"]), (&"time".into(), &5.into()), "{report}");
    let all_ns = report["elapsed_ns"].as_f64().expect("it was measured");
    // Where the processes had no core while it was to be measured, nothing was.
    if let Some(window_ns) = report["window"]["elapsed_ns"].as_f64() {
        assert!(
            window_ns > 0.0 && window_ns + 90e6 <= all_ns,
            "without the warm-up: {window_ns} of {all_ns}"
        );
        let none = report["window"]["messages"] == 0;
        assert!(none || report["latency_ns"]["n"].as_u64() > Some(0), "{report}");
    }
    let (code, served) = server.end();
    assert_eq!((code, &served["counters"]["accepted"]), (Some(0), &5.into()), "{served}");
}

/// By one process and by several, with answers still to come when all is sent.
#[test]
fn a_file_is_sent_and_comes_back() {
    let path = std::env::temp_dir().join(format!("weir-cli-file-{}", std::process::id()));
    let bytes: Vec<u8> = (0..600_000u32).map(|at| (at % 253) as u8).collect();
    std::fs::write(&path, &bytes).expect("it can be written");
    let file = path.to_str().expect("it is text");
    let server = Served::start(&["--echo", "--design", POLL]);
    for (options, connections) in
        [(&["-c", "3"][..], 3), (&["-c", "6", "--processes", "2", "--half-close"], 6)]
    {
        let load = server.load(&[&["-F", file], options].concat());
        assert_eq!(load.status.code(), Some(0), "{}", errors(&load));
        let report = &document(&load)["report"];
        assert_eq!((&report["finished"], &report["file"]), (&connections.into(), &file.into()));
        assert_eq!(report["bytes_received"], connections * 600_000);
        assert_eq!(report["message_bytes_max"], 600_000, "{report}");
    }
    drop(server);
    std::fs::remove_file(&path).expect("it is there");
    let directory = std::env::temp_dir();
    let directory = directory.to_str().expect("it is text");
    // What the system says of it.
    let mut wrong = vec![(file, "os error"), (directory, "directory")];
    wrong.extend(cfg!(unix).then_some(("/dev/null", "regular")));
    for (path, said) in wrong {
        let load = load("1", &["--file", path]);
        assert_eq!(load.status.code(), Some(2), "{}", errors(&load));
        assert!(errors(&load).contains(said), "{path}: {}", errors(&load));
    }
}

/// Also what was done behind the last whole one, and of all processes.
#[test]
fn intervals_add_up_to_the_load() {
    let server = Served::start(&["--design", POLL, "--echo"]);
    for processes in ["1", "2"] {
        let words = ["load", "tcp", "127.0.0.1", "--json", "-i", "10ms", "-p", &server.port];
        let load =
            output(&[&words[..], &["-c", "4", "-x", "99", "--processes", processes]].concat());
        assert_eq!(load.status.code(), Some(0), "{}", errors(&load));
        let load = document(&load);
        let intervals = load["intervals"].as_array().expect("a list");
        let sum = |name: &str| -> u64 {
            intervals.iter().map(|one| one[name].as_u64().expect("a count")).sum()
        };
        assert_eq!(sum("messages"), 4 * 99, "{processes}: {load}");
        assert_eq!((sum("bytes_sent"), sum("bytes_received")), (4 * 99 * 64, 4 * 99 * 64));
    }
}

#[test]
fn what_fails_in_a_process_of_several_fails_the_load() {
    let (_kept, port) = nobody();
    let refused = load(&port, &["--processes", "3", "-c", "6"]);
    assert_eq!(refused.status.code(), Some(1), "{}", errors(&refused));
    let document_of_it = document(&refused);
    assert_eq!(document_of_it["report"]["refused"], 6, "{document_of_it}");
    for (words, code, said) in [
        (&["--processes", "0"][..], 2, "--processes"),
        (&["--processes", "2", "--cpu", "4000"], 2, "core 4000"),
        (&["--cpu", "4000"], 2, "core 4000"),
    ] {
        let load = load(&port, words);
        assert_eq!(load.status.code(), Some(code), "{words:?}: {}", errors(&load));
        let reason = document(&load)["reason"].as_str().expect("a reason").to_owned();
        assert!(reason.contains(said), "{words:?}: {reason}");
        assert!(reason.matches("os error").count() <= 1, "the cause once: {reason}");
    }
}

#[test]
fn a_dry_run_connects_to_nothing() {
    let load = load("1", &["--dry-run", "-c", "7", "--blocks", "3"]);
    assert_eq!(load.status.code(), Some(0), "{}", errors(&load));
    let document = document(&load);
    let settings = document["settings"].as_array().expect("a list");
    assert!(settings.iter().any(|s| s["value"] == "21 in 3 blocks"), "{document}");
}

#[test]
fn a_server_that_cannot_start_says_why() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let address = taken.local_addr().expect("an address").to_string();
    for (words, code, said) in [
        (&["--bind", &address][..], 1, "choose another port"),
        (&["--design", "no-such-design"], 2, "there is no design"),
        (&["--design", "epoll --threads 9999"], 2, "threads"),
        (&["--connections-max", "0"], 2, "connections"),
        (&["--buffer", "0"], 2, "buffer"),
    ] {
        let words = [&["serve", "tcp", "--json", "--bind", "127.0.0.1:0"], words].concat();
        let server = output(&words);
        assert_eq!(server.status.code(), Some(code), "{words:?}: {}", errors(&server));
        let document = document(&server);
        let reason = document["reason"].as_str().expect("a reason");
        assert!(reason.contains(said), "{words:?}: {reason}");
    }
}

/// Unix sockets that take no load, and what is said of them last.
#[cfg(target_os = "linux")]
#[test]
fn a_unix_socket_that_takes_no_load_is_told_with_what_to_do() {
    let folder = std::env::temp_dir().join(format!("weir-load-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let of_datagrams = folder.join("datagrams");
    let datagrams = std::os::unix::net::UnixDatagram::bind(&of_datagrams).expect("a socket");
    let of_nobody = folder.join("full");
    // Room for one, whom nobody accepts.
    let full = Socket::new(Domain::UNIX, Type::STREAM, None).expect("a socket");
    full.bind(&socket2::SockAddr::unix(&of_nobody).expect("an address")).expect("a name");
    full.listen(0).expect("it listens");
    for (path, said) in [
        (&of_datagrams, "it is a Unix socket of datagrams"),
        (&of_nobody, "the server's backlog is full of connections that wait to be accepted"),
    ] {
        let target = format!("unix:{}", path.display());
        let words = ["load", "tcp", &target, "-c", "3", "-t", "1", "--drain", "10ms", "-i", "0"];
        let load = output(&words);
        assert_eq!(load.status.code(), Some(1), "{target}: {}", errors(&load));
        let last = errors(&load).lines().last().unwrap_or_default().to_owned();
        assert!(last.contains(said), "{target}: {last}");
    }
    // What is none: of a file that has content that is known beforehand.
    let file = folder.join("file");
    std::fs::write(&file, "content").expect("it can be written");
    let none = output(&["load", "tcp", &format!("unix:{}", file.display())]);
    assert_eq!(none.status.code(), Some(2), "{}", errors(&none));
    assert!(
        errors(&none).contains("is a file or a folder, not a Unix socket"),
        "{}",
        errors(&none)
    );
    drop((datagrams, full));
    std::fs::remove_dir_all(&folder).expect("it is there");
}

/// What a signal does to both.
#[cfg(unix)]
mod signals {
    use super::*;
    use common::{ends, interrupt, kill};
    use std::net::TcpStream;

    /// A load of ten connections that is interrupted once it sends, and what it left.
    fn interrupted(options: &[&str]) -> Output {
        once_it_sends(options, |load| interrupt(load.id()))
    }

    /// What a load of ten connections left to which something happens once it sends.
    fn once_it_sends(options: &[&str], happens: impl FnOnce(&Child)) -> Output {
        let mut load = weir(&["load", "tcp", "127.0.0.1", "-c", "10", "-t", "60", "--json"])
            .args(["-i", "20ms"])
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("weir can be started");
        let mut lines = BufReader::new(load.stderr.take().expect("piped")).lines();
        // From, to, attempted, connected, open, messages/s. All are open, also where one of several processes is slow.
        let sends = |line: String| {
            let mut figures =
                line.split_whitespace().map(|word| word.parse::<f64>().unwrap_or(0.0));
            figures.nth(4) == Some(10.0) && figures.next() > Some(0.0)
        };
        assert!(lines.any(|line| line.is_ok_and(sends)), "it sends");
        let rest = thread::spawn(move || lines.for_each(drop));
        happens(&load);
        let load = ends(load);
        rest.join().expect("it does not panic");
        load
    }

    /// Of a server that takes everything and never answers: the second Ctrl-C ends it.
    #[test]
    fn a_load_that_waits_for_answers_in_vain_says_so_and_ends_at_the_second_interrupt() {
        let server = TcpListener::bind("127.0.0.1:0").expect("a socket");
        let port = server.local_addr().expect("it is bound").port().to_string();
        let mut load = weir(&["load", "tcp", "127.0.0.1", "-p", &port, "--drain", "1h", "-i", "0"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("weir can be started");
        let (mut connection, _) = server.accept().expect("a connection");
        connection.read_exact(&mut [0; 64]).expect("a message");
        interrupt(load.id());
        let mut lines = BufReader::new(load.stderr.take().expect("piped")).lines();
        let told = "waiting for answers and for the ends of connections, up to 3600.0 s";
        assert!(lines.any(|line| line.is_ok_and(|line| line.contains(told))), "it is told");
        interrupt(load.id());
        assert_eq!(ends(load).status.code(), Some(130));
    }

    /// Whether it is killed or ends in order while messages are on their way.
    #[test]
    fn a_load_whose_server_goes_has_failed() {
        for (sink, options) in [
            (false, &[][..]),
            (false, &["-o", "8"]),
            (false, &["-x", "100M"]),
            (false, &["--processes", "2"]),
            (true, &["--one-way"]),
        ] {
            for signal in [kill, interrupt] {
                let server = Served::start(if sink { &[] } else { &["--echo"] });
                let options = [&["-p", &server.port][..], options].concat();
                let load = once_it_sends(&options, |_| signal(server.child.id()));
                assert_eq!(load.status.code(), Some(1), "{options:?}");
                let document = document(&load);
                assert_eq!(document["status"], "failed", "{options:?}: {}", document["report"]);
                let reason = document["reason"].as_str().expect("a reason");
                assert!(reason.contains("10 of 10 connections failed"), "{options:?}: {reason}");
            }
        }
    }

    /// Ctrl-C ends both in order: nothing is lost, and both report.
    #[test]
    fn an_interrupt_ends_load_and_server_in_order() {
        let mut server = Served::start(&["--echo"]);
        let load = interrupted(&["-p", &server.port]);
        assert_eq!(load.status.code(), Some(130));
        assert_eq!(document(&load)["status"], "interrupted");
        let report = &document(&load)["report"];
        assert_eq!(report["ended_by"], "asked", "{report}");
        assert_eq!((&report["finished"], &report["messages_unanswered"]), (&10.into(), &0.into()));

        // The processes of a load are ended by the one that leads them, which alone hears of it.
        let load = interrupted(&["-p", &server.port, "--processes", "2"]);
        assert_eq!(load.status.code(), Some(130));
        let report = &document(&load)["report"];
        assert_eq!(
            (&report["ended_by"], &report["finished"]),
            (&"asked".into(), &10.into()),
            "{report}"
        );

        // One that is open when the server ends is ended in order by the server.
        let mut client =
            TcpStream::connect(format!("127.0.0.1:{}", server.port)).expect("it listens");
        client.write_all(b"hello").expect("it is taken");
        let mut back = [0; 5];
        client.read_exact(&mut back).expect("an echo");
        interrupt(server.child.id());
        assert_eq!(client.read(&mut back).expect("an end in order"), 0);
        drop(client);
        let mut report = String::new();
        server.lines.read_to_string(&mut report).expect("its report");
        let report: Value = serde_json::from_str(report.trim()).expect("a document");
        assert_eq!((&report["closed"], &report["open"]), (&21.into(), &0.into()), "{report}");
        assert_eq!(server.child.wait().expect("it ends").code(), Some(0));
    }
}
