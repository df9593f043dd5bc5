//! The program itself: its flags, its signals, and how one takes the place of another.

#![cfg(unix)]

mod common;

use common::{
    Client, PATIENCE, number, ok,
    testing::{Folder, Over},
    text,
};
use redis_protocol::resp2::types::OwnedFrame;
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    os::unix::{fs::PermissionsExt as _, net::UnixStream},
    process::{Child, ChildStdout, Command, Stdio},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    thread,
};

struct Program {
    child: Child,
    lines: BufReader<ChildStdout>,
    address: String,
}

impl Program {
    fn start(flags: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir-cache"));
        command.args(["--bind", "127.0.0.1:0", "--design", "poll --threads 1"]).args(flags);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let address = line(&mut lines, "listens on ");
        Self { child, lines, address }
    }

    fn client(&self) -> Client<TcpStream> {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client::new(stream)
    }

    /// What it says at its end.
    fn end(mut self) -> String {
        let mut rest = String::new();
        self.lines.read_to_string(&mut rest).unwrap();
        assert!(self.child.wait().unwrap().success());
        rest
    }

    fn terminate(&self) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It fails only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn line(lines: &mut impl BufRead, begin: &str) -> String {
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    let rest = line.trim_end().strip_prefix(begin);
    rest.unwrap_or_else(|| panic!("{line:?} does not begin with {begin:?}")).to_owned()
}

#[test]
fn a_signal_ends_it_in_order_and_metrics_are_served() {
    let mut program = Program::start(&["--metrics", "127.0.0.1:0"]);
    let metrics = line(&mut program.lines, "metrics at http://");
    let mut client = program.client();
    assert_eq!(client.say("SET a 1 EX 100"), ok());
    assert_eq!(client.say("GET a"), OwnedFrame::BulkString(b"1".to_vec()));
    let (at, path) = metrics.split_once('/').unwrap();
    let answer = scrape(at, path);
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    for metric in [
        "weir_cache_keys 1",
        "weir_cache_expiring_keys 1",
        "weir_cache_clients 1",
        "weir_cache_hits_total 1",
        "weir_cache_commands_total 2",
        "weir_cache_tcp_accepted_total 1",
    ] {
        assert!(answer.contains(&format!("\n{metric}\n")), "{metric} is missing in {answer}");
    }
    assert!(scrape(at, "").starts_with("HTTP/1.1 404 "));
    drop(client);
    program.terminate();
    let said = program.end();
    assert_eq!(said, "1 clients, 1 keys, 1 hits, 0 misses, 0 expired, 0 evicted\n");
}

#[test]
fn a_unix_socket_is_served_beside() {
    let folder = Folder::new("unix");
    let path = folder.path("cache.sock");
    let name = &*path;
    let mut program = Program::start(&["--unixsocket", name, "--unixsocketperm", "700"]);
    assert_eq!(line(&mut program.lines, "listens on unix:"), name);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(program.client().say("SET a 1"), ok());
    let stream = UnixStream::connect(&path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut local = Client::new(stream);
    assert_eq!(local.say("GET a"), OwnedFrame::BulkString(b"1".to_vec()));
    drop(local);
    // Redis's own client, where there is one.
    if let Ok(said) = Command::new("redis-cli").args(["-s", name, "GET", "a"]).output() {
        assert_eq!(said.stdout, b"1\n");
    }
    program.terminate();
    assert!(program.end().contains(" 1 keys, "));
    assert!(!std::fs::exists(name).unwrap());
}

fn scrape(at: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET /{path} HTTP/1.1\r\nhost: test\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn one_takes_the_place_of_another_and_no_client_is_refused_or_cut_off() {
    let folder = Folder::new("next");
    let flags = ["--hand-over", &folder.path("next")];
    let first = Program::start(&flags);
    let mut of_first = first.client();
    assert_eq!(of_first.say("INCR n"), number(1));
    let second = Program::start(&flags);
    assert_eq!(second.address, first.address);
    // Its clients are served on; new ones come to the second at last, which has keys of its own.
    assert_eq!(of_first.say("INCR n"), number(2));
    loop {
        let mut client = first.client();
        if client.say("EXISTS n") == number(0) {
            break;
        }
    }
    assert_eq!(of_first.say("INCR n"), number(3));
    drop(of_first);
    first.end();
    assert_eq!(second.client().say("INCR n"), number(1));
    second.terminate();
    second.end();
}

/// Clients come all the time, and the cache is replaced several times: each client that was accepted is answered.
#[test]
fn clients_that_come_while_it_is_replaced_are_answered() {
    const RESTARTS: usize = 3;
    let folder = Folder::new("restart");
    let flags = ["--hand-over", &folder.path("next")];
    let mut server = Program::start(&flags);
    let address = server.address.clone();
    let (over, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        let _over = Over(&over);
        for _ in 0..2 {
            scope.spawn(|| {
                let _over = Over(&over);
                while !over.load(SeqCst) {
                    let stream = TcpStream::connect(&address).unwrap();
                    stream.set_read_timeout(Some(PATIENCE)).unwrap();
                    let mut client = Client::new(stream);
                    assert_eq!(client.say("ECHO hello"), text("hello"));
                    answered.fetch_add(1, SeqCst);
                }
            });
        }
        for _ in 0..RESTARTS {
            let before = answered.load(SeqCst);
            while answered.load(SeqCst) < before + 20 {
                assert!(!over.load(SeqCst), "a client was not answered");
                thread::yield_now();
            }
            let next = Program::start(&flags);
            assert_eq!(next.address, address);
            std::mem::replace(&mut server, next).end();
        }
    });
    server.terminate();
    server.end();
}

#[test]
fn metrics_are_handed_over_with_the_cache() {
    let folder = Folder::new("metrics");
    let flags = ["--hand-over", &folder.path("next"), "--metrics", "127.0.0.1:0"];
    let mut first = Program::start(&flags);
    let metrics = line(&mut first.lines, "metrics at http://");
    assert_eq!(first.client().say("SET a 1"), ok());
    let mut second = Program::start(&flags);
    assert_eq!(second.address, first.address);
    assert_eq!(line(&mut second.lines, "metrics at http://"), metrics);
    first.end();
    let (at, path) = metrics.split_once('/').unwrap();
    let answer = scrape(at, path);
    assert!(answer.contains("\nweir_cache_keys 0\n"), "{answer}");
    second.terminate();
    second.end();
}

#[test]
fn wrong_flags_say_what_to_do() {
    for (flags, word) in [
        (&["--memory", "0"][..], "64k"),
        (&["--eviction", "none"], "allkeys-lru"),
        (&["--shards", "65"], "1 to 64"),
        (&["--design", "nonsense"], "epoll"),
        (&["--bind", "127.0.0.1"], "--bind"),
        (&["--finish", "86401"], "86400"),
        (&["--idle", "86401"], "86400"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir-cache"));
        let output = command.args(flags).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {said}");
        assert!(said.contains(word), "{flags:?}: {said}");
    }
}
