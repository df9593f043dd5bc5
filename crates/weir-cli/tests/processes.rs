//! A server and generators as processes of their own, and what happens between them.

#![forbid(unsafe_code)]

mod common;

use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;

use common::{Server, document, ends, errors, flood_under_way, output, weir};
use serde_json::Value;

fn flood(server: &Server, more: &[&str]) -> Value {
    let mut words = vec!["flood", "127.0.0.1", "-i", "0", "--json", "--any-pace"];
    words.extend(["--control", &server.control]);
    words.extend_from_slice(more);
    let ended = output(&words);
    assert_eq!(ended.status.code(), Some(0), "{}", errors(&ended));
    document(&ended)
}

#[test]
fn what_is_no_address_or_number_is_said_in_words() {
    for (words, said) in [
        (&["serve", "udp", "--bind", "localhost:80"][..], "give an address and a port, such as"),
        (
            &["serve", "tcp", "--control", "localhost:5200"],
            "give a port, or an address with a port",
        ),
        (&["set", "127.0.0.1"], "give a port, or an address with a port"),
        (
            &["load", "tcp", "::1", "--sources", "1", "--first-source", "x"],
            "give an address, such as",
        ),
        (&["flood", "127.0.0.1", "-p", "x"], "'x' for '--port <PORT>': give a whole number"),
        (&["compare", "udp", "--seed", "99999999999999999999"], "the number is too large"),
        (&["serve", "udp", "--bind", "127.0.0.1"], "the port is missing, as in 127.0.0.1:8080"),
        (&["serve", "tcp", "--bind", "::1"], "the port is missing, as in [::1]:8080"),
        (&["compare", "upd"], "a similar subcommand exists: 'udp'"),
        (&["serve", "tpc"], "a similar subcommand exists: 'tcp'"),
        (&["flood", ""], "the target is empty"),
        (&["flood", "/run/x.sock"], "is a Unix socket, and datagrams are sent to an address"),
        (&["load", "tcp", "x.sock"], "for a Unix socket write unix:x.sock"),
        (
            &["load", "tcp", "127.0.0.1", "-b", "10Mbit"],
            "is a bit rate, but this is the length of a message",
        ),
        (&["load", "tcp", ""], "the target is empty"),
        (&["iops", "/dev/null", "--design", "sync --x 1"], "available: none"),
    ] {
        let run = output(words);
        assert_eq!(run.status.code(), Some(2), "{words:?}");
        let told = String::from_utf8_lossy(&run.stderr);
        assert!(told.contains(said), "{words:?}: {told}");
        for of_the_machine in ["invalid digit", "address syntax", "target type"] {
            assert!(!told.contains(of_the_machine), "{words:?}: {told}");
        }
    }
    let run = output(&["flood", "127.0.0.1", "-p", "x", "--json"]);
    let document: serde_json::Value = serde_json::from_slice(&run.stdout).expect("a document");
    assert!(document.to_string().contains("give a whole number"), "{document}");
}

#[cfg(unix)]
#[test]
fn what_has_no_end_is_not_read_to_it() {
    for words in [
        &["serve", "tcp", "-p", "0", "--control", "127.0.0.1:0", "--key-file", "/dev/zero"][..],
        &["simulate", "--costs", "/dev/zero"],
        &["compare", "--plan", "/dev/zero"],
    ] {
        let run = output(words);
        assert_eq!(
            run.status.code(),
            Some(2),
            "{words:?}: {}",
            String::from_utf8_lossy(&run.stderr)
        );
    }
}

#[test]
fn a_warm_up_without_stamps_is_no_part_of_the_run() {
    for length in ["0", "16"] {
        // A generator that has no core for as long as the warm-up lasts sends nothing in it: then once more.
        let had_one = (0..5).any(|_| {
            let server = Server::start(&["--design", "blocking", "--once"]);
            let flood = flood(&server, &["-l", length, "-k", "1k", "-O", "100ms", "--pps", "5k"]);
            let (code, report) = server.end();
            let dropped = report["system"]["dropped_socket"].as_u64().unwrap_or(0);
            assert_eq!(flood["sent"], 1000, "{flood}");
            assert_eq!(report["audit"]["received"], 1000 - dropped, "{length}: {report}");
            assert_eq!((code, &report["audit"]["strangers"]), (Some(0), &0.into()), "{report}");
            flood["warm_up_sent"].as_u64() > Some(0)
        });
        assert!(had_one, "{length}: nothing was sent in any warm-up");
    }
}

#[test]
fn datagrams_come_as_from_independent_senders_where_that_is_asked() {
    let server = Server::start(&["--design", "blocking"]);
    let poisson = ["--arrivals", "poisson", "--pps", "5k", "-k", "1500"];
    let report = flood(&server, &poisson);
    assert_eq!(report["load"]["arrivals"], "poisson");
    assert!(report["sent"] == 1500 && report["windows"].as_u64() > Some(0), "{report}");
    assert_nothing_vanished(&report);
    assert_eq!(flood(&server, &["-k", "50", "--pps", "5k"])["load"]["arrivals"], "even");

    let wrong = ["flood", "127.0.0.1", "-i", "0", "--control", &server.control, "--arrivals"];
    for (words, says) in [(&["poisson"][..], "--pps"), (&["often"][..], "even or poisson")] {
        let ended = output(&[&wrong[..], words].concat());
        assert_eq!(ended.status.code(), Some(2), "{}", errors(&ended));
        assert!(errors(&ended).contains(says), "{}", errors(&ended));
    }
}

/// What did not arrive was dropped at the socket, where both floods' drops are counted.
fn assert_nothing_vanished(flood: &Value) {
    let report = &flood["report"];
    let sent = flood["sent"].as_u64().unwrap();
    let received = report["audit"]["received"].as_u64().unwrap();
    let dropped = report["system"]["dropped_socket"].as_u64().unwrap_or(0);
    assert!(received <= sent && sent - received <= dropped, "{flood}");
    assert!(report["window"]["datagrams"].as_u64().unwrap() <= received, "{report}");
}

#[test]
fn two_generators_at_once_have_windows_of_their_own() {
    let server = Server::start(&["--design", "blocking"]);
    let long = flood_under_way(&["--pps", "20k", "--control", &server.control]);
    // In one of them the other's are handled meanwhile, too; in those of which it had no core they are not.
    let shorts = (1..=5).find(|_| {
        let short = flood(&server, &["-k", "200", "--pps", "1k", "-O", "100ms"]);
        let window = &short["report"]["window"];
        let (own, handled) = (window["datagrams"].as_u64(), window["handled"].as_u64());
        assert!(own > Some(0) && own <= short["sent"].as_u64(), "{window}");
        assert_nothing_vanished(&short);
        assert_eq!(short["report"]["other_runs"], 1);
        let seconds = window["elapsed_ns"].as_f64().unwrap() / 1e9;
        assert!(seconds < 30.0, "its 0.2 s, and not the other's minute: {window}");
        handled > own
    });
    let shorts = shorts.expect("the other's were handled meanwhile");

    // The long one was not disturbed: it can still be ended, and gets its account.
    end_early(long, shorts);
}

/// Ends a flood during which there were so many other runs.
#[cfg(unix)]
fn end_early(long: std::process::Child, others: u32) {
    common::interrupt(long.id());
    let ended = ends(long);
    assert_eq!(ended.status.code(), Some(130));
    let long = document(&ended);
    assert_eq!((&long["ended_by"], &long["status"]), (&"asked".into(), &"interrupted".into()));
    assert_eq!(long["report"]["other_runs"], others);
    assert_nothing_vanished(&long);
}

/// A pace that no machine keeps, so that there is something wrong with it besides.
#[cfg(unix)]
#[test]
fn ctrl_c_ends_a_flood_that_misses_its_pace_with_130_and_says_both() {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let port = socket.local_addr().expect("it is bound").port().to_string();
    let flood = common::under_way(&["-p", &port, "--pps", "1G", "--engine", "send"]);
    common::interrupt(flood.id());
    let ended = ends(flood);
    let document = document(&ended);
    assert_eq!((ended.status.code(), &document["status"]), (Some(130), &"interrupted".into()));
    let reason = document["reason"].as_str().expect("a reason");
    assert!(reason.starts_with("ended by Ctrl-C or a signal after "), "{reason}");
    assert!(reason.contains("; until then: the pace was not held"), "{reason}");
    // What is left behind the last whole interval is one, too.
    let intervals = document["intervals"].as_array().expect("a list");
    let sum: u64 = intervals.iter().map(|one| one["sent"].as_u64().expect("a count")).sum();
    assert_eq!(document["sent"], sum, "{document}");
}

#[cfg(unix)]
#[test]
fn ctrl_c_in_the_warm_up_of_a_flood_says_so() {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let port = socket.local_addr().expect("it is bound").port().to_string();
    let words = ["flood", "127.0.0.1", "-p", &port, "-O", "60", "--pps", "10k", "--json"];
    let mut flood = weir(&words);
    flood.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::piped());
    let flood = flood.stderr(std::process::Stdio::null()).spawn().expect("weir can be started");
    // The first datagram of the warm-up.
    socket.set_read_timeout(Some(common::SOON)).expect("a time");
    socket.recv(&mut [0; 64]).expect("it has begun");
    common::interrupt(flood.id());
    let ended = ends(flood);
    let document = document(&ended);
    assert_eq!(ended.status.code(), Some(130), "{document}");
    let said = "ended by Ctrl-C or a signal in the warm-up, before anything was counted";
    assert_eq!(document["reason"], said);
}

#[cfg(not(unix))]
fn end_early(mut long: std::process::Child, _: u32) {
    long.kill().unwrap();
    ends(long);
}

#[test]
fn a_server_that_is_killed_ends_the_flood_at_once() {
    let mut server = Server::start(&["--design", "blocking"]);
    let flood = flood_under_way(&["--pps", "1k", "--control", &server.control]);
    server.kill();
    let ended = ends(flood);
    let document = document(&ended);
    assert_eq!((ended.status.code(), &document["status"]), (Some(1), &"failed".into()));
    assert_eq!(document["ended_by"], "control_lost");
    let reason = document["reason"].as_str().unwrap();
    assert!(reason.contains("control connection") && reason.contains(&server.control), "{reason}");
    assert!(document["sent"].as_u64() > Some(0) && document["report"].is_null(), "{document}");
}

/// Its kernel still answers for it, so no connection is lost.
#[cfg(unix)]
#[test]
fn a_server_that_stands_still_ends_the_flood() {
    let server = Server::start(&["--design", "blocking"]);
    let flood = flood_under_way(&["--pps", "1k", "--control", &server.control]);
    common::freeze(server.id());
    let ended = ends(flood);
    let document = document(&ended);
    assert_eq!((ended.status.code(), &document["ended_by"]), (Some(1), &"control_lost".into()));
    let reason = document["reason"].as_str().unwrap();
    assert!(reason.contains("no sign of the server for 2s"), "{reason}");
}

#[test]
fn generator_and_server_share_a_key_or_have_none() {
    let directory = std::env::temp_dir().join(format!("weir-key-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let file = |name: &str, key: &str| {
        let path = directory.join(name);
        std::fs::write(&path, key).unwrap();
        path.into_os_string().into_string().unwrap()
    };
    let right = file("right", "a key that both have\n");
    let wrong = file("wrong", "a key that only one has\n");
    let server = Server::start(&["--design", "blocking", "--key-file", &right]);
    let within = flood(&server, &["-k", "5", "--pps", "1k", "--key-file", &right]);
    assert_eq!(within["sent"], 5);
    #[cfg(unix)]
    for (mode, is_told) in [(0o644, true), (0o600, false)] {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::set_permissions(&right, std::fs::Permissions::from_mode(mode)).unwrap();
        let set = output(&["set", &server.control, "--key-file", &right]);
        assert_eq!(set.status.code(), Some(0), "{}", errors(&set));
        assert_eq!(errors(&set).contains(&format!("chmod 600 {right}")), is_told, "{mode:o}");
    }
    for (more, said) in [(&["--key-file", &wrong][..], "key"), (&[], "--key-file")] {
        let mut words = vec!["flood", "127.0.0.1", "-k", "5", "--control", &server.control];
        words.extend_from_slice(more);
        let refused = output(&words);
        assert_eq!(refused.status.code(), Some(1), "{}", errors(&refused));
        assert!(errors(&refused).contains(said), "{}", errors(&refused));
    }
    let by_environment = weir(&["flood", "127.0.0.1", "-k", "5", "--control", &server.control])
        .env("WEIR_KEY", "a key that both have")
        .output()
        .unwrap();
    assert_eq!(by_environment.status.code(), Some(0), "{}", errors(&by_environment));
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_key_in_the_environment_is_looked_at_only_where_there_is_a_control_channel() {
    let with_short_key = |words: &[&str]| {
        let mut command = weir(words);
        command.env("WEIR_KEY", "short").stdin(std::process::Stdio::null());
        command.output().unwrap()
    };
    let serve = ["serve", "udp", "--design", "blocking", "--bind", "127.0.0.1:0"];
    let serve = [&serve[..], &["--end-with-input"]].concat();
    let flood = ["flood", "127.0.0.1", "-k", "1"];
    for (words, without) in [(&serve[..], &[][..]), (&flood, &["-p", "9"])] {
        // What becomes of a datagram to a port without a listener is another matter.
        let other = with_short_key(&[words, without].concat());
        assert!(!errors(&other).contains("WEIR_KEY"), "{words:?}: {}", errors(&other));
        assert_ne!(other.status.code(), Some(2), "{words:?}: {}", errors(&other));
        let keyed = with_short_key(&[words, &["--control", "127.0.0.1:0"]].concat());
        assert_eq!(keyed.status.code(), Some(2), "{words:?}: {}", errors(&keyed));
        assert!(errors(&keyed).contains("WEIR_KEY"), "{words:?}: {}", errors(&keyed));
    }
}

/// Both ends of a control connection that can be cut in the middle.
fn cut_in_the_middle(control: &str) -> (String, impl FnOnce() + use<>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap().to_string();
    let control = control.to_owned();
    let connecting = thread::spawn(move || {
        let ends = [listener.accept().unwrap().0, TcpStream::connect(control).unwrap()];
        for (from, to) in [(0, 1), (1, 0)] {
            let (mut from, mut to) =
                (ends[from].try_clone().unwrap(), ends[to].try_clone().unwrap());
            // It ends when the connection is cut, with whatever that does to it.
            thread::spawn(move || io::copy(&mut from, &mut to));
        }
        ends
    });
    let cut = move || {
        for end in connecting.join().unwrap() {
            end.shutdown(Shutdown::Both).unwrap();
        }
    };
    (at, cut)
}

#[test]
fn a_control_connection_that_is_lost_ends_the_flood_and_the_run() {
    let server = Server::start(&["--design", "blocking", "--once"]);
    let (control, cut) = cut_in_the_middle(&server.control);
    let flood = flood_under_way(&["--pps", "1k", "--control", &control]);
    cut();
    let ended = ends(flood);
    let document = document(&ended);
    assert_eq!((ended.status.code(), &document["ended_by"]), (Some(1), &"control_lost".into()));
    let reason = document["reason"].as_str().unwrap();
    assert!(reason.contains("control connection with"), "{reason}");
    let (code, report) = server.end();
    assert_eq!((code, &report["end_signalled"]), (Some(3), &false.into()));
    assert!(report["audit"]["received"].as_u64() > Some(0), "{report}");
}

#[test]
fn what_a_generator_may_ask_for_can_be_limited() {
    let server = Server::start(&["--design", "blocking", "--max-pps", "2k", "--max-time", "60"]);
    for (asked, said) in [
        (&["-t", "1"][..], "--pps"),
        (&["-t", "1", "--pps", "3k"][..], "2000"),
        (&["-t", "61", "--pps", "1k"][..], "--time"),
        (&["-t", "60", "-O", "1", "--pps", "1k"][..], "warm-up"),
        (&["-k", "5", "--pps", "1k"][..], "--max-time"),
    ] {
        let mut words = vec!["flood", "127.0.0.1", "--json", "--control", &server.control];
        words.extend_from_slice(asked);
        let refused = output(&words);
        let document = document(&refused);
        assert_eq!((refused.status.code(), &document["status"]), (Some(1), &"failed".into()));
        let reason = document["reason"].as_str().unwrap();
        assert!(reason.contains("refused") && reason.contains(said), "{asked:?}: {reason}");
    }
    let within = flood(&server, &["-k", "5", "--pps", "2k", "--max-time", "60"]);
    assert_eq!(within["sent"], 5);
}

#[test]
fn a_control_channel_off_loopback_needs_all_limits() {
    let failed = output(&["serve", "udp", "--bind", "127.0.0.1:0", "--control", "0.0.0.0:0", "-J"]);
    let document = document(&failed);
    assert_eq!((failed.status.code(), &document["status"]), (Some(2), &"failed".into()));
    let reason = document["reason"].as_str().unwrap();
    assert!(reason.contains("0.0.0.0:0") && reason.contains("--max-time"), "{reason}");
    // With all it begins, and ends with its input, which is at its end already.
    let words = "serve udp --design blocking --bind 127.0.0.1:0 --control 0.0.0.0:0 --max-pps 1k \
                 --max-bitrate 1M --max-time 5 --end-with-input";
    let limited = output(&words.split_whitespace().collect::<Vec<_>>());
    assert_eq!(limited.status.code(), Some(0), "{}", errors(&limited));
    let said = String::from_utf8(limited.stdout).unwrap();
    assert!(
        said.contains("at most 1000 datagrams/s, at most 1000000 bits of payload/s, at most 5s"),
        "{said}"
    );
}

#[test]
fn whoever_asks_for_json_gets_the_document_of_the_command_that_failed() {
    for (words, lists) in [
        (&["flood", "--json", "--nope"][..], &["sent", "offered", "report"][..]),
        (&["flood", "--json"][..], &["sent"][..]),
        (&["flood", "127.0.0.1", "-p", "1", "-t", "1", "-k", "1", "-uJ"][..], &["sent"][..]),
        (&["serve", "udp", "--json", "--nope"][..], &["error"][..]),
        (&["designs", "--nope", "-J"][..], &["designs", "providers"][..]),
        (&["compare", "--nope", "--json"][..], &["results", "machine"][..]),
        (&["nonsense", "--json"][..], &[][..]),
        (&["--json"][..], &[][..]),
    ] {
        let failed = output(words);
        let document = document(&failed);
        assert_eq!(failed.status.code(), Some(2), "{words:?}");
        let version = if ["flood", "serve", "compare"].contains(&words[0]) { 2 } else { 1 };
        assert_eq!(document["schema_version"], version, "{words:?}");
        assert_eq!(document["status"], "failed", "{words:?}");
        let reason = document["reason"].as_str().unwrap();
        assert!(!reason.is_empty() && errors(&failed).contains(&reason[..12]), "{reason}");
        assert_eq!(document["command"].as_array().unwrap().len(), words.len() + 1);
        for name in lists {
            assert!(document.get(name).is_some(), "{name} is missing of {document}");
        }
        let of_compare = document.get("results").is_some();
        assert_eq!(of_compare, words[0] == "compare", "{words:?}");
    }
    let missing = document(&output(&["flood", "--json"]));
    assert!(missing["reason"].as_str().unwrap().contains("<TARGET>"), "{missing}");
}

#[test]
fn a_flood_may_be_spelled_as_iperf3_does() {
    let server = Server::start(&["--design", "blocking"]);
    let of_bytes = flood(&server, &["-u", "-n", "1K", "-l", "100", "--pps", "5k"]);
    assert_eq!((&of_bytes["sent"], &of_bytes["ended_by"]), (&11.into(), &"datagrams".into()));
    let of_blocks = flood(&server, &["-u", "-k", "7", "--pps", "5k"]);
    assert_eq!(of_blocks["sent"], 7);
    let both = weir(&["flood", "127.0.0.1", "-p", "1", "-t", "1", "-n", "5"]).output().unwrap();
    assert_eq!(both.status.code(), Some(2), "{}", errors(&both));
}

#[test]
fn a_flood_says_what_was_received_and_lost() {
    let server = Server::start(&["--design", "blocking"]);
    let whole = flood(&server, &["-k", "20", "--pps", "1k", "--max-loss", "100%"]);
    let sent = whole["sent"].as_u64().unwrap();
    let (received, lost) = (whole["received"].as_u64(), whole["lost_packets"].as_u64());
    assert_eq!(received.zip(lost).map(|(received, lost)| received + lost), Some(sent), "{whole}");
    let share = 100.0 * lost.unwrap() as f64 / sent as f64;
    assert_eq!(whole["lost_percent"].as_f64(), Some(share));

    // The server takes datagrams that begin otherwise for strangers: none of the run arrives.
    let words = ["flood", "127.0.0.1", "-k", "20", "--pps", "1k", "--control", &server.control];
    let lossy = output(&[&words[..], &["--head", "00", "--max-loss", "99%"]].concat());
    let said = String::from_utf8_lossy(&lossy.stdout).into_owned();
    assert_eq!(lossy.status.code(), Some(3), "{said}{}", errors(&lossy));
    assert!(said.contains("received  0") && said.contains("lost  20 (100.000 %)"), "{said}");
    assert!(errors(&lossy).contains("--max-loss"), "{}", errors(&lossy));

    let port = server.port.to_string();
    let unheard = output(&["flood", "127.0.0.1", "-p", &port, "-k", "20"]);
    assert_eq!(unheard.status.code(), Some(0), "{}", errors(&unheard));
    let said = String::from_utf8_lossy(&unheard.stdout).into_owned();
    assert!(said.contains("received  unknown (no control channel)"), "{said}");
}
