//! `weir serve udp` with `weir flood` on the other end, and what goes wrong.

#![forbid(unsafe_code)]

mod common;
#[path = "../../weir/src/wine.rs"]
mod wine;

use std::net::UdpSocket;

use common::{Server, document, errors, output, weir};
use serde_json::Value;

#[test]
fn a_flood_is_served_and_accounted_for() {
    let server = Server::start(&["--design", "blocking", "--once", "--verify-all"]);
    let flood = output(&[
        "flood",
        "127.0.0.1",
        "-k",
        "500",
        "--pps",
        "5k",
        "--any-pace",
        "-P",
        "2",
        "-i",
        "0",
        "--control",
        &server.control,
        "--json",
    ]);
    assert_eq!(flood.status.code(), Some(0), "{}", errors(&flood));
    let flood = document(&flood);
    let (code, report) = server.end();
    assert_eq!((code, &flood["sent"]), (Some(0), &500.into()));
    assert_eq!((&report["schema_version"], &report["status"]), (&2.into(), &"ok".into()));
    assert!(report["reason"].is_null() && report["command"].is_array(), "{report}");
    let dropped = report["system"]["dropped_socket"].as_u64().unwrap_or(0);
    assert_eq!(report["audit"]["received"], 500 - dropped);
    assert_eq!(report["audit"]["data_errors"], false);
    assert_eq!(report["end_signalled"], true);
    assert_eq!(report["slices_missing"], 0);
    assert_eq!((&report["threads_used"], &report["runs"]), (&1.into(), &1.into()));
    let thread = &report["threads"][0];
    assert!(thread["cpu_ns"].as_u64().is_some_and(|ns| ns > 0), "{thread}");
    #[cfg(target_os = "linux")]
    assert!(thread["context_switches"].is_u64() && thread["core"].is_u64(), "{thread}");
    assert_eq!(flood["report"]["audit"], report["audit"], "both tell the same");
    assert!(report["audit"]["latency_ns"]["p50"].as_u64().is_some_and(|ns| ns > 0));
    assert!(report["window"]["datagrams"].as_u64().is_some_and(|n| n > 0), "{report}");
}

#[test]
fn without_a_run_the_report_is_of_the_whole_life_until_its_end() {
    let mut server = Server::start(&["--design", "blocking --threads 2", "--echo"]);
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    peer.set_read_timeout(Some(common::SOON)).unwrap();
    for n in 0..20u8 {
        peer.send_to(&[n; 9], ("127.0.0.1", server.port)).unwrap();
        let mut back = [0; 10];
        assert_eq!(peer.recv(&mut back).unwrap(), 9);
    }
    // The last reply may not have been counted yet.
    server.close_input();
    let (code, report) = server.end();
    assert_eq!((code, &report["runs"]), (Some(0), &0.into()), "{report:#}");
    let counters = &report["counters"];
    assert_eq!((&counters["datagrams"], &counters["replies"]), (&20.into(), &20.into()));
    assert_eq!(report["audit"]["received"], 20);
    let threads = report["threads"].as_array().unwrap();
    let of_threads = |name: &str| threads.iter().map(|of| of[name].as_u64().unwrap()).sum::<u64>();
    assert_eq!((threads.len(), of_threads("datagrams")), (2, 20), "{threads:?}");
    let used = threads.iter().filter(|of| of["datagrams"].as_u64() > Some(0)).count();
    assert_eq!(report["threads_used"], used);
    assert!(threads.iter().all(|of| of["cpu_ns"].is_u64()), "{threads:?}");
}

/// Times that each thread of a process has gone to sleep; without those that end meanwhile, as that of a control channel.
#[cfg(target_os = "linux")]
fn sleeps(id: u32) -> std::collections::BTreeMap<String, u64> {
    let threads = std::fs::read_dir(format!("/proc/{id}/task")).expect("it runs");
    let of = |thread: std::io::Result<std::fs::DirEntry>| {
        let thread = thread.expect("a thread");
        let status = std::fs::read_to_string(thread.path().join("status")).ok()?;
        let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        let count = count.and_then(|count| count.trim().parse().ok()).expect("it is counted");
        Some((thread.file_name().into_string().expect("a number"), count))
    };
    threads.filter_map(of).collect()
}

/// Waits for a second in which no thread of it wakes.
#[cfg(target_os = "linux")]
fn comes_to_rest(id: u32) -> std::collections::BTreeMap<String, u64> {
    const SECONDS: usize = 30;
    let mut before = sleeps(id);
    for _ in 0..SECONDS {
        std::thread::sleep(std::time::Duration::from_secs(1));
        let now = sleeps(id);
        if now == before {
            return now;
        }
        before = now;
    }
    panic!("something woke in each of {SECONDS} seconds: {before:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_server_that_nobody_sends_to_sleeps_until_somebody_does() {
    let mut server = Server::start(&["--design", "epoll-batch", "--echo"]);
    let (peer, main) = (UdpSocket::bind("127.0.0.1:0").unwrap(), server.id().to_string());
    peer.set_read_timeout(Some(common::SOON)).unwrap();
    for round in 1..=2u8 {
        let asleep = comes_to_rest(server.id());
        peer.send_to(&[round; 9], ("127.0.0.1", server.port)).unwrap();
        assert_eq!(peer.recv(&mut [0; 10]).unwrap(), 9);
        // Who reads the counters is woken, too, as floods that nobody announces are to be measured.
        common::until("a reading", || sleeps(server.id())[&main] > asleep[&main]);
    }
    let asleep = comes_to_rest(server.id());
    let control = ["--control", &server.control, "--json"];
    let flood = [
        &["flood", "127.0.0.1", "-k", "100", "-i", "0", "--pps", "2k", "--any-pace"][..],
        &control,
    ];
    let flood = output(&flood.concat());
    assert_eq!(flood.status.code(), Some(0), "{}", errors(&flood));
    common::until("a reading of the run", || sleeps(server.id())[&main] > asleep[&main]);
    server.close_input();
    let (code, report) = server.end();
    assert_eq!((code, &report["runs"]), (Some(0), &1.into()), "{report:#}");
    // Its readings were taken, although the server slept before: 100 datagrams in 50 ms.
    assert!(report["window"]["datagrams"].as_u64().is_some_and(|n| n > 0), "{report}");
}

/// The whole flood finds room in the socket, since 64 datagrams take as much as a few.
#[cfg(target_os = "linux")]
#[test]
fn with_receive_offload_many_datagrams_come_as_one() {
    let server = Server::start(&["--design", "blocking", "--receive-offload", "--once"]);
    let control = ["--control", &server.control, "--json"];
    let flood = [&["flood", "127.0.0.1", "-k", "640", "-i", "0"][..], &control].concat();
    let flood = output(&flood);
    assert_eq!(flood.status.code(), Some(0), "{}", errors(&flood));
    let (code, report) = server.end();
    assert_eq!((code, &report["audit"]["received"]), (Some(0), &640.into()), "{report}");
    assert_eq!(report["settings"]["receive-offload"], "true");
    assert_eq!(report["counters"]["datagrams"], 640);
    let dequeues = report["counters"]["dequeues"].as_u64();
    assert!(dequeues.is_some_and(|dequeues| dequeues <= 64), "{report}");
}

/// What was dropped is told of each socket, if the system tells it.
#[cfg(target_os = "linux")]
#[test]
fn each_socket_has_its_drops() {
    let six = ["--bind", "127.0.0.1:0", "--bind", "[::1]:0"];
    let server = Server::start(&[&["--design", "blocking", "--once"][..], &six].concat());
    let control = ["--control", &server.control, "--json"];
    let flood = output(&[&["flood", "127.0.0.1", "-k", "100", "-i", "0"][..], &control].concat());
    assert_eq!(flood.status.code(), Some(0), "{}", errors(&flood));
    let (_, report) = server.end();
    let sockets = report["sockets"].as_array().expect("a list");
    assert!(sockets.len() >= 2, "{report}");
    let dropped: u64 = sockets.iter().map(|socket| socket["dropped"].as_u64().unwrap()).sum();
    assert_eq!(report["system"]["dropped_socket"], dropped, "{report}");
    assert!(sockets.iter().any(|s| s["address"].as_str().unwrap().starts_with("[::1]:")));
}

/// Every design that can run here, on every provider that can.
fn what_runs_here() -> Vec<String> {
    let list = document(&output(&["designs", "--json"]));
    let running = |list: &Value| -> Vec<Value> {
        let entries = list.as_array().unwrap().iter();
        entries.filter(|entry| entry["status"] == "ok").cloned().collect()
    };
    let mut providers = running(&list["providers"]);
    providers.retain(|provider| provider["reaches_loopback"] == true);
    let rows_of = |design: &Value| -> Vec<String> {
        let name = design["name"].as_str().unwrap().to_owned();
        let options = design["options"].as_array().unwrap();
        if !options.iter().any(|option| option["name"] == "provider") {
            return vec![name];
        }
        let with =
            |provider: &Value| format!("{name} --provider {}", provider["name"].as_str().unwrap());
        providers.iter().map(with).collect()
    };
    running(&list["designs"]).iter().flat_map(rows_of).collect()
}

#[test]
fn strangers_are_counted_apart_by_every_design() {
    // They mostly wait: several at a time.
    let designs = std::sync::Mutex::new(what_runs_here());
    let next = || designs.lock().unwrap().pop();
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                while let Some(design) = next() {
                    strangers_are_counted_apart_by(&design);
                }
            });
        }
    });
}

fn strangers_are_counted_apart_by(design: &str) {
    // Where this thread or the flood has no core for as long as the run lasts, there are none in it: then once more.
    let met = (0..5).any(|_| strangers_were_in_a_flood_of(design));
    assert!(met, "{design}: no strangers were counted in any run");
}

/// Whether both were in the run, each counted for itself.
fn strangers_were_in_a_flood_of(design: &str) -> bool {
    let server = Server::start(&["--design", design, "--once"]);
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    let words = ["flood", "127.0.0.1", "-t", "200ms", "--pps", "2k", "-i", "0", "--control"];
    let mut flood = weir(&words)
        .args([&server.control, "--json"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut strange = 0u64;
    while flood.try_wait().unwrap().is_none() {
        // Empty, too short for a stamp, and long enough for one.
        let bytes = &b"not of this run, and not of any other run either"[..strange as usize % 49];
        stranger.send_to(bytes, ("127.0.0.1", server.port)).unwrap();
        strange += 1;
        std::thread::sleep(STRANGE_EVERY);
    }
    let (_, report) = server.end();
    let audit = &report["audit"];
    let strangers = audit["strangers"].as_u64().unwrap();
    assert!(strangers <= strange, "{design}: {strangers} of {strange}");
    let flood = document(&flood.wait_with_output().unwrap());
    let sent = flood["sent"].as_u64().unwrap();
    let received = audit["received"].as_u64().unwrap();
    assert!(received <= sent && (received > 0 || sent == 0), "{design}: {audit} of {sent}");
    assert_eq!(audit["data_errors"], false, "{design}: {audit}");
    strangers > 0 && received > 0
}

/// Strangers are no flood: they shall not push the datagrams of the run out.
const STRANGE_EVERY: std::time::Duration = std::time::Duration::from_millis(1);

#[test]
fn an_echo_answers_and_a_sink_does_not() {
    for (echo, expected) in [(true, Some(5)), (false, None)] {
        let more: &[&str] =
            if echo { &["--design", "blocking", "--echo"] } else { &["--design", "blocking"] };
        let server = Server::start(more);
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket
            .set_read_timeout(Some(match echo {
                true => common::SOON,
                false => std::time::Duration::from_millis(100),
            }))
            .unwrap();
        socket.send_to(b"hello", ("127.0.0.1", server.port)).unwrap();
        assert_eq!(socket.recv(&mut [0; 16]).ok(), expected);
    }
}

#[test]
fn the_end_of_its_input_ends_a_server_with_its_report() {
    let mut server = Server::start(&["--design", "blocking"]);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    for _ in 0..3 {
        socket.send_to(b"hello", ("127.0.0.1", server.port)).unwrap();
    }
    server.close_input();
    let (code, report) = server.end();
    assert_eq!((code, &report["design"]), (Some(0), &"blocking".into()));
}

#[test]
fn that_json_of_a_server_is_two_documents_is_said() {
    for kind in ["udp", "tcp"] {
        let help = String::from_utf8(output(&["serve", kind, "--help"]).stdout).expect("text");
        let words: Vec<&str> = help.split_whitespace().collect();
        assert!(words.join(" ").contains("Two JSON documents on stdout, a line each"), "{help}");
        assert!(!help.contains("One JSON document on stdout"), "{help}");
    }
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_a_server_with_its_report() {
    let server = Server::start(&["--design", "blocking --threads 2"]);
    common::interrupt(server.id());
    let (code, report) = server.end();
    assert_eq!((code, &report["threads_started"]), (Some(0), &2.into()));
}

#[cfg(unix)]
#[test]
fn a_generator_that_is_killed_leaves_a_report_and_no_server() {
    let server = Server::start(&["--design", "blocking", "--once"]);
    let mut flood = common::flood_under_way(&["--pps", "1k", "--control", &server.control]);
    flood.kill().unwrap();
    flood.wait().unwrap();
    let (code, report) = server.end();
    // Its counts are open, and the exit code says so.
    assert_eq!((code, &report["end_signalled"]), (Some(3), &false.into()));
    assert!(report["audit"]["received"].as_u64().is_some_and(|n| n > 0), "{report}");
}

/// Whoever stops the server cut the run off, and not its generator: nothing is wrong but that.
#[test]
fn a_server_that_is_stopped_in_the_middle_of_a_flood_blames_nobody() {
    let mut server = Server::start(&["--design", "blocking", "--echo"]);
    let flood = common::flood_under_way(&["--pps", "1k", "--control", &server.control]);
    // Its only thread takes one datagram after the other: what was sent before one that it answers has come. Stopped, it
    // looks at none any more.
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    peer.set_read_timeout(Some(std::time::Duration::from_millis(100))).unwrap();
    common::until("an answer", || {
        peer.send_to(b"hello", ("127.0.0.1", server.port)).unwrap();
        peer.recv(&mut [0; 16]).is_ok()
    });
    server.close_input();
    let (code, report) = server.end();
    assert_eq!((code, &report["end_signalled"]), (Some(1), &false.into()), "{report}");
    let why = report["cut_short"].as_str().unwrap_or_default();
    assert!(why.contains("the server was stopped"), "{report}");
    assert_eq!(report["audit"]["data_errors"], false);
    assert!(report["audit"]["received"].as_u64().is_some_and(|n| n > 0), "{report}");
    assert!(!common::ends(flood).status.success(), "its run was cut off");
}

#[test]
fn a_port_in_use_is_said_with_what_to_do() {
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let failed = output(&["serve", "udp", "--design", "blocking", "--bind", &address, "--json"]);
    assert_eq!(failed.status.code(), Some(1));
    let message = document(&failed)["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains(&address) && message.contains("choose another port"), "{message}");
    assert!(errors(&failed).contains(&message));
    assert_eq!(document(&failed)["status"], "failed");
    assert_eq!(document(&failed)["reason"], message);
}

#[test]
fn an_address_of_another_machine_is_refused() {
    if wine::FOREIGN_ADDRESS.is_left_out() {
        return;
    }
    // 192.0.2.0/24 is kept for documentation: no machine has it.
    let words = ["serve", "udp", "--design", "blocking", "--bind", "192.0.2.1:9999"];
    let failed = output(&[&words[..], &["--end-with-input"]].concat());
    assert_eq!(failed.status.code(), Some(1));
    assert!(errors(&failed).contains("no such address"), "{}", errors(&failed));
}

#[test]
fn absurd_values_are_wrong_usage() {
    for (words, said) in [
        (&["--design", "blocking --threads 0"][..], "1 to 256"),
        (&["--design", "nonsense"][..], "blocking"),
        (&["--design", "rio-hybrid --outstanding 1000000000"][..], "1 to 1000000"),
        (&["--design", "rio-hybrid --threshold 2000"][..], "threshold"),
        (&["--bind", "nowhere"][..], "nowhere"),
        (&["--size", "0"][..], "1 to"),
        (&["--cpu", "8000"][..], "8000"),
        (&["--interval", "1us"][..], "10ms"),
        (&["--no-such-flag"][..], "--no-such-flag"),
        (&["--once"][..], "--control"),
        (&["--max-pps", "5"][..], "--control"),
        (&["--control", "127.0.0.1:0", "--max-time", "0"][..], "longer"),
        (&["--control", "0.0.0.0:0"][..], "--max-pps"),
        (&["--control", "0.0.0.0:0", "--max-pps", "1k"][..], "--max-time"),
        (&["--control", "[::]:0", "--max-time", "1"][..], "--max-pps"),
        (&["--control", "[::]:0", "--max-time", "1", "--max-pps", "1k"][..], "--max-bitrate"),
        (&["--control", "127.0.0.1:0", "--key-file", "/nowhere/at/all"][..], "/nowhere/at/all"),
    ] {
        let mut all = vec!["serve", "udp"];
        all.extend_from_slice(words);
        let failed = output(&all);
        assert_eq!(failed.status.code(), Some(2), "{words:?}: {}", errors(&failed));
        assert!(errors(&failed).contains(said), "{words:?}: {}", errors(&failed));
    }
}

/// What a server says that it runs with.
fn settings(words: &[&str]) -> serde_json::Value {
    let usual = ["serve", "udp", "--end-with-input", "--json", "--interval", "0"];
    let ended = output(&[&usual, words].concat());
    assert_eq!(ended.status.code(), Some(0), "{}", errors(&ended));
    let text = String::from_utf8(ended.stdout).unwrap();
    let ready: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    ready["ready"]["settings"].clone()
}

/// As `flood`, `load` and iperf3 have it.
#[test]
fn a_port_alone_is_one_of_this_machine() {
    for kind in ["udp", "tcp"] {
        let words =
            ["serve", kind, "--design", "blocking", "--end-with-input", "--json", "-i", "0"];
        let ended = output(&[&words[..], &["-p", "0,0"]].concat());
        assert_eq!(ended.status.code(), Some(0), "{}", errors(&ended));
        let text = String::from_utf8(ended.stdout).unwrap();
        let ready: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        assert_eq!((&ready["schema_version"], &last["schema_version"]), (&2.into(), &2.into()));
        assert_eq!((&last["status"], &last["reason"]), (&"ok".into(), &Value::Null), "{text}");
        let addresses = ready["ready"]["addresses"].as_array().unwrap().iter();
        let addresses: Vec<std::net::SocketAddr> =
            addresses.map(|address| address.as_str().unwrap().parse().unwrap()).collect();
        assert_eq!(addresses.len(), 2, "{text}");
        assert!(addresses.iter().all(|at| at.ip().is_loopback() && at.port() != 0), "{text}");
        let both = output(&[&words[..], &["-p", "0", "--bind", "127.0.0.1:0"]].concat());
        assert_eq!(both.status.code(), Some(2), "{}", errors(&both));
        assert!(errors(&both).contains("--bind"), "{}", errors(&both));
    }
}

#[test]
fn memory_is_asked_for_by_flags_and_in_the_text_of_the_design() {
    let here = ["--bind", "127.0.0.1:0"];
    let in_text = settings(&[&here[..], &["--design", "blocking --pages huge"]].concat());
    assert_eq!((&in_text["pages"], &in_text["provider"]), (&"huge".into(), &"sockets".into()));
    let huge = in_text["page-bytes"] == "2097152" || in_text["huge-pages-advised"] == "true";
    let always = std::path::Path::new("/sys/kernel/mm/transparent_hugepage");
    assert!(huge || cfg!(windows) || !always.exists());
    let flags = ["--design", "blocking --pages huge", "--pages", "normal", "--numa-node", "auto"];
    let by_flag = settings(&[&here[..], &flags].concat());
    assert_eq!((&by_flag["pages"], &by_flag["page-bytes"]), (&"normal".into(), &"4096".into()));
    let nowhere = output(&["serve", "udp", "--bind", "127.0.0.1:0", "--numa-node", "1023"]);
    let said = errors(&nowhere);
    assert!(said.contains("node 1023") && !said.contains("fewer"), "{said}");
    assert_ne!(nowhere.status.code(), Some(0));
    let twice = ["serve", "udp", "--bind", "127.0.0.1:9", "--bind", "127.0.0.1:9"];
    let twice = output(&twice);
    assert_eq!(twice.status.code(), Some(2));
    assert!(errors(&twice).contains("127.0.0.1:9 is named twice"), "{}", errors(&twice));
    let wrong = output(&["serve", "udp", "--bind", "127.0.0.1:0", "--pages", "giant"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(errors(&wrong).contains("auto, normal or huge"), "{}", errors(&wrong));
}

#[test]
fn an_echo_on_every_address_answers_from_the_one_that_was_written_to() {
    if let Err(why) = weir::socket::replies_from_local_address() {
        return eprintln!("skipped: {why}");
    }
    let echo = ["--design", "blocking", "--echo", "--bind"];
    assert_eq!(settings(&[&echo[..], &["0.0.0.0:0"]].concat())["local-address"], "true");
    assert_eq!(settings(&[&echo[..], &["127.0.0.1:0"]].concat())["local-address"], "false");
}

#[test]
fn an_echo_that_goes_round_is_dropped_and_counted() {
    let mut server = Server::start(&["--design", "blocking", "--echo"]);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(("127.0.0.1", server.port)).unwrap();
    socket.set_read_timeout(Some(common::SOON)).unwrap();
    let receive = || {
        let mut buffer = [0; 64];
        let length = socket.recv(&mut buffer).expect("an answer");
        buffer[..length].to_vec()
    };
    // One thread answers in order, so the answer to what follows says whether there was one.
    let answered = |number: u32| {
        socket.send(b"round and round").unwrap();
        socket.send(&number.to_le_bytes()).unwrap();
        let first = receive();
        let came_back = first == b"round and round";
        let second = if came_back { receive() } else { first };
        assert_eq!(second, number.to_le_bytes());
        came_back
    };
    assert_eq!((0..1000).find(|number| !answered(*number)), Some(128));
    assert!(answered(1000), "a client that means it goes on");
    server.close_input();
    let (code, report) = server.end();
    assert_eq!((code, &report["counters"]["loops_dropped"]), (Some(0), &1.into()), "{report}");
}

#[test]
#[cfg(target_os = "linux")] // elsewhere a traffic class is not a program's to choose
fn how_answers_are_sent_and_which_groups_are_heard_is_asked_for_by_flags() {
    let join = "239.255.77.4%1";
    let flags = ["--echo", "-S", "0xb8", "--ttl", "9", "--path-mtu", "discover", "--join", join];
    let settings = settings(&[&["--bind", "0.0.0.0:0"], &flags[..]].concat());
    let of = |name: &str| settings[name].as_str().map(str::to_owned);
    let expected =
        [("traffic-class", "184"), ("hops", "9"), ("path-mtu", "discover"), ("groups", join)];
    for (name, value) in expected {
        assert_eq!(of(name).as_deref(), Some(value), "{name} of {settings}");
    }
}

#[test]
fn what_those_flags_do_not_take_is_explained() {
    for (words, part) in [
        (&["--echo", "--tos", "256"][..], "0 to 255"),
        (&["--echo", "--ttl", "0"][..], "1..=255"),
        (&["--echo", "--path-mtu", "never"][..], "use system, fragment, discover or probe"),
        (&["--join", "192.0.2.1"][..], "224.0.0.0/4"),
        (&["--join", "239.1.2.3%eth0"][..], "a device's index"),
        (&["--join", "239.1.2.3", "--bind", "127.0.0.1:0"][..], "bound to every address"),
    ] {
        let failed = output(&[&["serve", "udp"], words].concat());
        assert_eq!(failed.status.code(), Some(2), "{words:?}: {}", errors(&failed));
        assert!(errors(&failed).contains(part), "{words:?}: {}", errors(&failed));
    }
}

/// A path that no other test has.
#[cfg(target_os = "linux")]
fn any_path(name: &str) -> String {
    let path = std::env::temp_dir().join(format!("weir-serve-{name}-{}.sock", std::process::id()));
    path.to_str().expect("a name in ASCII").to_owned()
}

#[cfg(target_os = "linux")]
#[test]
fn a_unix_socket_of_datagrams_is_served() {
    use std::os::unix::{fs::PermissionsExt as _, net::UnixDatagram};
    let [path, own] = ["served", "client"].map(any_path);
    let flags = ["--design", "epoll", "--echo", "--unix", &path, "--unix-mode", "600"];
    let mut server = Server::start(&flags);
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // One is enough there.
    let taken = output(&["serve", "udp", "--design", "epoll", "--unix", &path]);
    assert_eq!(taken.status.code(), Some(1));
    assert!(errors(&taken).contains(&format!("unix:{path}")), "{}", errors(&taken));
    let client = UnixDatagram::bind(&own).unwrap();
    client.set_read_timeout(Some(common::SOON)).unwrap();
    for n in 0..20u8 {
        client.send_to(&[n; 9], &path).unwrap();
        let mut back = [0; 10];
        assert_eq!((client.recv(&mut back).unwrap(), back[0]), (9, n));
    }
    std::fs::remove_file(own).unwrap();
    server.close_input();
    let (code, report) = server.end();
    assert_eq!((code, &report["counters"]["datagrams"]), (Some(0), &20.into()), "{report}");
    assert!(!std::path::Path::new(&path).exists());
}

#[cfg(target_os = "linux")]
#[test]
fn what_a_unix_socket_of_datagrams_has_not_is_told() {
    let path = any_path("wrong");
    let wrong: [(&[&str], i32, &str); 6] = [
        (&["--unix", &path, "--unix-mode", "999"], 2, "in octal"),
        (&["--unix-mode", "600"], 2, "--unix"),
        (&["--unix", "@weir", "--unix-mode", "600"], 2, "anybody"),
        (&["--unix", &path, "--echo", "--ttl", "3"], 5, "hops"),
        (&["--unix", &path, "--receive-offload"], 5, "offload"),
        (&["--unix", "/nonexistent/x.sock"], 1, "make it first"),
    ];
    for (words, code, text) in wrong {
        let told = output(&[&["serve", "udp", "--design", "blocking"], words].concat());
        assert_eq!(told.status.code(), Some(code), "{words:?}: {}", errors(&told));
        assert!(errors(&told).contains(text), "{words:?}: {}", errors(&told));
    }
    assert!(!std::path::Path::new(&path).exists());
}
