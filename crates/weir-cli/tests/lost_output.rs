//! Results that cannot be written are told of; a reader that has gone had enough.

#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]

mod common;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::{Child, Output, Stdio};

use common::{ends, errors, interrupt, weir};
use serde_json::Value;

/// A device on which nothing has room.
fn full() -> Stdio {
    File::options().write(true).open("/dev/full").expect("it is there").into()
}

/// A pipe of which nobody reads.
fn unread() -> Stdio {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    writer.into()
}

fn started(words: &[&str], output: Stdio) -> Child {
    let mut command = weir(words);
    command.stdin(Stdio::piped()).stdout(output).stderr(Stdio::piped());
    command.spawn().expect("weir can be started")
}

/// Closes its input and waits for its end.
fn ended(mut child: Child) -> Output {
    drop(child.stdin.take());
    ends(child)
}

/// Commands that find something by themselves, and one that serves until its input ends.
fn commands(port: &str) -> Vec<Vec<&str>> {
    let load = ["load", "tcp", "127.0.0.1", "-p", port, "-x", "3", "-i", "0"];
    let flood = ["flood", "127.0.0.1", "-p", port, "-k", "1", "-i", "0"];
    let iops = ["iops", "/dev/zero", "-k", "100", "-O", "0", "-i", "0"];
    let udp = ["serve", "udp", "--bind", "127.0.0.1:0", "--design", "blocking", "--end-with-input"];
    let tcp = ["serve", "tcp", "--bind", "127.0.0.1:0", "--design", "poll", "--end-with-input"];
    let all: [&[&str]; 7] = [&load, &flood, &iops, &udp, &tcp, &["designs"], &["doctor"]];
    let with_json = all.iter().map(|words| [words, &["--json"][..]].concat());
    // The first five have events as well.
    let with_events = all.iter().take(5).map(|words| [words, &["--ndjson"][..]].concat());
    all.iter().map(|words| words.to_vec()).chain(with_json).chain(with_events).collect()
}

/// A TCP server that echoes, and its port. Whether anybody takes a datagram there is all the same.
fn server() -> (Child, String) {
    let words = [
        "serve",
        "tcp",
        "--echo",
        "--json",
        "--bind",
        "127.0.0.1:0",
        "--end-with-input",
        "-i",
        "0",
    ];
    let mut child = started(&words, Stdio::piped());
    let mut line = String::new();
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped"));
    lines.read_line(&mut line).expect("a ready line");
    let ready: serde_json::Value = serde_json::from_str(&line).expect("a document");
    let address = ready["ready"]["addresses"][0].as_str().expect("an address");
    let port = address.rsplit(':').next().expect("a port").to_owned();
    std::thread::spawn(move || lines.lines().for_each(drop));
    (child, port)
}

#[test]
fn what_finds_no_room_is_told_of() {
    let (server, port) = server();
    for words in commands(&port) {
        let output = ended(started(&words, full()));
        let said = errors(&output);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {said}");
        assert_eq!(said.matches("cannot write the results").count(), 1, "{words:?}: {said}");
        assert!(said.contains("No space left"), "{words:?}: {said}");
    }
    assert_eq!(ended(server).status.code(), Some(0));
}

#[test]
fn what_is_said_beside_the_results_costs_none_of_them_where_nobody_hears_it() {
    let (server, port) = server();
    let compare = ["compare", "iops", "--design", "sync", "--rounds", "1"];
    let dry = ["compare", "udp", "--design", "blocking", "--dry-run", "--json"];
    let all = commands(&port).into_iter().chain([compare.to_vec(), dry.to_vec()]);
    for words in all {
        for errors in [full(), unread()] {
            let mut command = weir(&words);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
            let output = ended(command.spawn().expect("weir can be started"));
            assert!(matches!(output.status.code(), Some(0 | 3)), "{words:?}: {}", output.status);
            assert!(!output.stdout.is_empty(), "{words:?}");
        }
    }
    assert_eq!(ended(server).status.code(), Some(0));
}

#[test]
fn what_cannot_be_written_into_a_folder_is_told_with_what_to_do() {
    let of_pages =
        weir(&["manual", "--folder", "/dev/full"]).output().expect("weir can be started");
    let said = errors(&of_pages);
    assert_eq!(of_pages.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot make the folder /dev/full: "), "{said}");
    assert!(said.contains("is not a folder; name another one"), "{said}");
    let folder = std::env::temp_dir().join(format!("weir-lost-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    std::os::unix::fs::symlink("/dev/full", folder.join("weir.1")).expect("a link");
    let words = ["manual", "--folder", folder.to_str().expect("text")];
    let full = weir(&words).output().expect("weir can be started");
    std::fs::remove_dir_all(&folder).expect("it is there");
    let said = errors(&full);
    assert_eq!(full.status.code(), Some(1), "{said}");
    assert!(said.contains("No space left") && said.contains("make room there"), "{said}");
}

#[test]
fn a_reader_that_has_gone_had_enough() {
    let (server, port) = server();
    for words in commands(&port) {
        let output = ended(started(&words, unread()));
        let said = errors(&output);
        assert_eq!(output.status.code(), Some(0), "{words:?}: {said}");
        assert!(!said.contains("cannot write") && !said.contains("Broken pipe"), "{said}");
    }
    assert_eq!(ended(server).status.code(), Some(0));
}

/// Lines of intervals have their heading, wherever they go.
#[test]
fn lines_beside_documents_have_a_heading() {
    for (kind, heading) in [("tcp", "accepted/s"), ("udp", "datagrams/s")] {
        let words = ["serve", kind, "--json", "--bind", "127.0.0.1:0", "-i", "20ms"];
        let mut child = started(&words, Stdio::null());
        let mut lines = BufReader::new(child.stderr.take().expect("it is piped")).lines();
        let first = lines.next().expect("a line").expect("text");
        assert!(first.contains(heading), "{first}");
        let second = lines.next().expect("a line").expect("text");
        assert!(second.trim().starts_with("0."), "{second}");
        std::thread::spawn(move || lines.for_each(drop));
        interrupt(child.id());
        assert_eq!(ended(child).status.code(), Some(0));
    }
}

/// Reads the events of a command up to its first interval, asks it to end, and reads the others. Gives the first, that
/// interval and the last.
fn events(mut child: Child) -> [Value; 3] {
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let mut next = move || {
        let line = lines.next().expect("an event").expect("text");
        serde_json::from_str::<Value>(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    };
    let errors = BufReader::new(child.stderr.take().expect("it is piped"));
    std::thread::spawn(move || errors.lines().for_each(drop));
    let first = next();
    let interval = next();
    interrupt(child.id());
    let mut last = next();
    while last["event"] == "interval" {
        last = next();
    }
    assert_eq!(ended(child).status.code(), Some(if last["status"] == "ok" { 0 } else { 130 }));
    [first, interval, last]
}

#[test]
fn events_come_as_things_happen_and_the_last_is_the_document() {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let port = socket.local_addr().expect("it is bound").port().to_string();
    let pace = ["--pps", "100", "--any-pace"];
    let flood = [&["flood", "127.0.0.1", "-p", &port, "-t", "60"][..], &pace].concat();
    let (server, of_server) = server();
    let load = ["load", "tcp", "127.0.0.1", "-p", &of_server, "-t", "60"];
    let iops = ["iops", "/dev/zero", "-t", "60", "-O", "0"];
    let udp = ["serve", "udp", "--bind", "127.0.0.1:0", "--design", "blocking"];
    let tcp = ["serve", "tcp", "--bind", "127.0.0.1:0", "--design", "poll"];
    for (words, status, field) in [
        (&flood[..], "interrupted", "sent"),
        (&load, "interrupted", "messages"),
        (&iops, "interrupted", "completed"),
        (&udp, "ok", "datagrams"),
        (&tcp, "ok", "receives"),
    ] {
        let words = [words, &["--ndjson", "-i", "20ms"]].concat();
        let [first, interval, last] = events(started(&words, Stdio::piped()));
        assert_eq!((&first["event"], &interval["event"]), (&"begin".into(), &"interval".into()));
        assert!(first["settings"].is_array() || first["ready"].is_object(), "{words:?}: {first}");
        assert!(interval[field].is_u64(), "{words:?}: {interval}");
        assert_eq!((&last["event"], &last["status"]), (&"end".into(), &status.into()), "{last}");
        assert_eq!((&last["schema_version"], &last["intervals"]), (&2.into(), &Value::Null));
        let refused = weir(&[words[0], words[1], "--ndjson", "--nonsense"]).output().unwrap();
        let refused: Value = serde_json::from_slice(&refused.stdout).expect("one event");
        assert_eq!((&refused["event"], &refused["status"]), (&"end".into(), &"failed".into()));
    }
    assert_eq!(ended(server).status.code(), Some(0));
}
