//! AF_XDP as a user meets it: on a link of its own, made and removed by the test or by the command
//! itself. That takes root, and `ip` of iproute2; without, the tests say that they were not run.

#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]

mod common;

use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::{Child, Command, Stdio};

use common::{SOON, document, ends, errors, kill, output, until, weir};
use serde_json::Value;
use weir_confine::Confinement;
use weir_lab::udp::link::{Link, Site};

/// On a thread of its own, which the link takes to its end.
fn on_a_link(test: impl FnOnce(&Site) + Send + 'static) {
    let run = move || match Link::make() {
        Ok(link) => test(&Site::Link(link)),
        Err(unavailable) => common::cannot_run(&unavailable.to_string()),
    };
    std::thread::spawn(run).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

/// A server at its end, its standard output behind the line that says that it is ready, and that line.
fn started(
    site: &Site,
    words: &[&str],
    errors: Stdio,
) -> (Child, BufReader<impl Read + use<>>, Value) {
    let mut child = site.at_server(|| {
        weir(&["serve", "udp", "--json", "--interval", "0", "--end-with-input"])
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .expect("weir can be started")
    });
    let mut lines = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    lines.read_line(&mut line).expect("a ready line");
    let ready: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line:?}"));
    (child, lines, ready["ready"].clone())
}

/// A server of frames at its end, and where it listens.
fn server(site: &Site, design: &str) -> (Child, BufReader<impl Read + use<>>, SocketAddr) {
    let at = SocketAddr::new(site.server(), 0).to_string();
    let words = ["--design", design, "--bind", &at, "--echo"];
    let (child, lines, ready) = started(site, &words, Stdio::inherit());
    let address = ready["addresses"][0].as_str().expect("an address");
    (child, lines, address.parse().expect("an address"))
}

/// Sends a datagram and expects it back.
fn echo(to: SocketAddr) {
    let any: IpAddr = "0.0.0.0".parse().unwrap();
    let socket = UdpSocket::bind((any, 0)).unwrap();
    socket.set_read_timeout(Some(SOON)).unwrap();
    socket.send_to(b"there and back", to).unwrap();
    let mut back = [0; 100];
    let (size, from) = socket.recv_from(&mut back).expect("an echo");
    assert_eq!((&back[..size], from), (&b"there and back"[..], to));
}

/// What the kernel says of the server's device.
fn device(site: &Site) -> String {
    let shown = site.at_server(|| Command::new("ip").args(["link", "show", "weir0"]).output());
    String::from_utf8(shown.expect("ip runs").stdout).expect("text")
}

/// Whether a program is attached to the server's device.
fn has_program(site: &Site) -> bool {
    device(site).contains("xdp")
}

/// That none of a server's threads, of which there are so many at least, has what is given up.
fn without_privilege(server: &Child, least: usize) {
    // CAP_NET_ADMIN, NET_RAW, IPC_LOCK, SYS_ADMIN, PERFMON, BPF.
    let given_up: u64 = [12, 13, 14, 21, 38, 39].iter().map(|capability| 1u64 << capability).sum();
    let threads = std::fs::read_dir(format!("/proc/{}/task", server.id())).unwrap();
    let mut count = 0;
    for thread in threads {
        // One that has ended meanwhile has nothing any more.
        let status = std::fs::read_to_string(thread.unwrap().path().join("status"));
        let Ok(status) = status else { continue };
        for set in ["CapEff:", "CapPrm:"] {
            let line = status.lines().find(|line| line.starts_with(set)).unwrap();
            let number = line.split_whitespace().nth(1).unwrap();
            let has = u64::from_str_radix(number, 16).unwrap();
            assert_eq!(has & given_up, 0, "{status}");
        }
        count += 1;
    }
    assert!(count >= least, "{count} threads");
}

fn has_thread(server: &Child, name: &str) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{}/task", server.id())).unwrap();
    threads.flatten().any(|thread| {
        let comm = std::fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
        comm.starts_with(name)
    })
}

/// Datagrams that are there and back before the end.
const ECHOES: u64 = 20;

#[test]
fn privilege_is_given_up_and_traffic_and_the_end_need_none() {
    on_a_link(|site| {
        for design in ["rio-event --provider xdp", "rio-hybrid --provider xdp --threads 2"] {
            let (mut child, mut lines, at) = server(site, design);
            assert!(has_program(site), "{}", device(site));
            without_privilege(&child, 2);
            (0..ECHOES).for_each(|_| echo(at));
            drop(child.stdin.take());
            let mut rest = String::new();
            lines.read_to_string(&mut rest).unwrap();
            let report: Value = serde_json::from_str(rest.lines().last().unwrap()).unwrap();
            assert_eq!(report["counters"]["datagrams"], ECHOES, "{report:#}");
            // A reply is counted when the kernel says that it is sent: of the last ones that may come after the stop.
            let replies = report["counters"]["replies"].as_u64().unwrap();
            assert!((1..=ECHOES).contains(&replies), "{report:#}");
            assert_eq!(report["slices_missing"], 0);
            assert!(ends(child).status.success(), "{design}");
            assert!(!has_program(site), "{}", device(site));
        }
    });
}

/// A thread that a provider has the kernel start, before those of the server are ready.
#[test]
fn privilege_is_given_up_by_the_kernel_s_threads_of_a_provider_too() {
    let provider = weir::rio::uring::Uring::polling(weir::rio::uring::Polling::KernelThread);
    let needs = weir::rio::Needs {
        payload: 1,
        receives: 1,
        sends: 0,
        per_dequeue: 1,
        offload: false,
        meta: false,
    };
    if let Err(unavailable) = weir::rio::Provider::<weir::rio::HandOver>::layout(&provider, &needs)
    {
        return common::cannot_run(&unavailable.to_string());
    }
    on_a_link(|site| {
        let (mut child, mut lines, at) =
            server(site, "rio-port --provider uring-sqpoll --threads 2");
        // The kernel's thread names itself when it first runs.
        until("the kernel's thread", || has_thread(&child, "iou-sqp"));
        without_privilege(&child, 4);
        echo(at);
        drop(child.stdin.take());
        lines.read_to_string(&mut String::new()).unwrap();
        assert!(ends(child).status.success());
    });
}

#[test]
fn a_server_that_is_killed_leaves_no_program_behind() {
    on_a_link(|site| {
        for _ in 0..2 {
            // The second finds the device, its queue and the port free.
            let (child, _lines, at) = server(site, "rio-event --provider xdp");
            echo(at);
            assert!(has_program(site), "{}", device(site));
            kill(child.id());
            ends(child);
            // The kernel may let go of it behind its back; it sends no event to a test.
            until("the end of its program", || !has_program(site));
        }
    });
}

#[test]
fn designs_on_sockets_and_on_frames_are_compared_on_one_link() {
    let _alone = common::alone();
    if let Err(unavailable) = std::thread::spawn(|| Link::make().map(drop)).join().unwrap() {
        return common::cannot_run(&unavailable.to_string());
    }
    let words = ["compare", "udp", "--on", "veth", "--quick", "--rounds", "3", "--json"];
    let designs = ["--design", "blocking-batch", "--design", "rio-event --provider xdp"];
    let run = output(&[&words[..], &designs].concat());
    let document = document(&run);
    common::assert_compared(&run);
    assert!(document["link"].as_str().is_some_and(|link| link.contains("veth")), "{document:#}");
    for row in document["results"].as_array().unwrap() {
        assert_eq!(
            (&row["status"], &row["conformance"]),
            (&"ok".into(), &"passed".into()),
            "{row:#}"
        );
        assert_eq!(row["runs"][0]["engine"], "xdp");
        let cpu = &row["metrics"]["threads_cpu_ns_per_datagram"]["median"];
        let is_known = cpu.as_f64().is_some_and(|ns| ns > 0.0);
        assert!(is_known || common::measured_nothing(row), "{row:#}");
        let dropped = &row["ledger"]["counts"]["dropped_device"];
        assert!(dropped.is_u64(), "drops of the device are known: {row:#}");
    }
    let saving = &document["loads"][0]["receiving_threads_on_frames"];
    // Where the machine was too busy to compare anything, neither is this.
    if saving.is_null() {
        return;
    }
    assert_eq!(saving["frames"], "rio-event --provider xdp", "{saving}");
    assert!(saving["ratio"]["median"].as_f64().is_some_and(|ratio| ratio > 0.0), "{saving}");
}

/// Limits by address, which take as many addresses as on loopback, and others beside those that are measured.
#[test]
fn strategies_of_tcp_are_compared_on_a_link() {
    let _alone = common::alone();
    if let Err(unavailable) = std::thread::spawn(|| Link::make().map(drop)).join().unwrap() {
        return common::cannot_run(&unavailable.to_string());
    }
    let words = ["compare", "tcp", "--on", "veth", "--strategies", "--mix", "silent", "-c", "8"];
    let more = ["--others", "40", "--rounds", "2", "--json"];
    let designs = ["--design", "epoll", "--design", "epoll --per-address 4"];
    let run = output(&[&words[..], &more, &designs].concat());
    let document = document(&run);
    common::assert_compared(&run);
    assert!(document["link"].as_str().is_some_and(|link| link.contains("veth")), "{document:#}");
    let rows = document["results"].as_array().unwrap();
    for row in rows {
        assert_eq!(row["conformance"], "passed", "{row:#}");
        let runs = row["runs"].as_array().expect("its runs");
        assert!(runs.iter().all(|run| run["invalid"].is_null()), "{row:#}");
    }
    // 4 of each of the four addresses stay. One more or one less, and the row were invalid.
    let limited = rows.iter().find(|row| row["name"] == "epoll --per-address 4").expect("the row");
    let others = &limited["runs"][0]["others"];
    // Where the machine was too busy to make them all it says so, and nothing is concluded.
    if others["connected"] == others["asked"] {
        assert_eq!(others["refused"], 40 - 4 * 4, "{limited:#}");
    }
}

#[test]
fn without_privilege_there_is_no_link_and_the_reason_is_said() {
    let mut command = weir(&["compare", "udp", "--on", "veth", "--quick", "-t", "2", "--json"]);
    let confined = Confinement::new().unprivileged().confine(command.stdin(Stdio::null())).output();
    let confined = confined.expect("weir can be started");
    assert_eq!(confined.status.code(), Some(5), "{}", errors(&confined));
    let error = document(&confined)["error"].clone();
    assert!(error.as_str().is_some_and(|said| said.contains("needs root")), "{error}");
}

#[test]
fn a_datagram_longer_than_a_packet_is_refused_on_a_link() {
    let refused = output(&["compare", "udp", "--on", "veth", "-l", "1453", "--dry-run"]);
    assert_eq!(refused.status.code(), Some(2), "{}", errors(&refused));
}

/// The Ethernet address of the generator's device.
fn our_mac() -> String {
    let shown = Command::new("ip").args(["link", "show", "weir1"]).output().expect("ip runs");
    let shown = String::from_utf8(shown.stdout).expect("text");
    let mut words = shown.split_whitespace().skip_while(|word| *word != "link/ether");
    words.nth(1).expect("an address").to_owned()
}

#[test]
fn who_sends_to_which_port_is_shown_on_frames_and_on_copies() {
    on_a_link(|site| {
        for provider in ["xdp", "packet"] {
            let words = ["--any-port", "--on", "weir0", "--design", "rio-event", "--provider"];
            let words = [&words[..], &[provider, "--print"]].concat();
            let (mut child, mut lines, ready) = started(site, &words, Stdio::piped());
            let said = ready["settings"]["any-port"].as_str().expect("it is said");
            assert!(said.starts_with(&format!("by {provider}-any-port")), "{said}");
            let mut printed = BufReader::new(child.stderr.take().expect("piped"));
            let socket = UdpSocket::bind((IpAddr::from([0, 0, 0, 0]), 0)).unwrap();
            let mut seen = String::new();
            for (number, port) in [7, 53, 53].into_iter().enumerate() {
                let to = SocketAddr::new(site.server(), port);
                socket.send_to(format!("number {number}").as_bytes(), to).unwrap();
                // Each is printed, so each has come.
                printed.read_line(&mut seen).unwrap();
            }
            let from = socket.local_addr().unwrap().port();
            for (line, (number, port)) in seen.lines().zip([(0, 7), (1, 53), (2, 53)]) {
                let expected = format!(
                    "{}  198.18.0.2:{from} > 198.18.0.1:{port}  length 8: \"number {number}\"",
                    our_mac()
                );
                assert!(line.ends_with(&expected), "{line:?}: {expected:?}");
            }
            drop(child.stdin.take());
            let mut rest = String::new();
            lines.read_to_string(&mut rest).unwrap();
            let report: Value = serde_json::from_str(rest.lines().last().unwrap()).unwrap();
            let all = &report["any_port"];
            assert_eq!((&all["datagrams"], &all["bytes"]), (&3.into(), &24.into()), "{report:#}");
            let first = &all["pairs"][0];
            assert_eq!((&first["port"], &first["datagrams"]), (&53.into(), &2.into()));
            assert_eq!(
                (&first["from"], &first["ethernet_address"]),
                (&"198.18.0.2".into(), &our_mac().into())
            );
            assert_eq!(report["slices_missing"], 0);
            assert!(ends(child).status.success(), "{provider}");
        }
    });
}

#[test]
fn a_device_without_frames_is_received_from_by_copies_and_the_reason_is_said() {
    on_a_link(|site| {
        let words = ["--any-port", "--on", "lo"];
        let (mut child, _lines, ready) = started(site, &words, Stdio::inherit());
        let said = ready["settings"]["any-port"].as_str().expect("it is said");
        assert!(said.starts_with("by packet-any-port"), "{said}");
        assert!(
            said.contains("xdp-any-port cannot be used here") && said.contains("loopback"),
            "{said}"
        );
        drop(child.stdin.take());
        assert!(ends(child).status.success());
    });
}

#[test]
fn what_any_port_needs_is_said() {
    for (words, said) in [
        (&["--any-port"][..], "--on"),
        (&["--any-port", "--on", "weir-none"], "--on weir-none: "),
        (&["--any-port", "--on", "lo", "--echo"], "--echo"),
        (&["--any-port", "--on", "lo", "--provider", "uring"], "allowed: xdp, packet"),
        (&["--on", "lo"], "--any-port"),
        (&["--any-port", "--on", "lo", "--design", "rio-event --provider xdp"], "beside it"),
    ] {
        let output = output(&[&["serve", "udp"], words].concat());
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(errors(&output).contains(said), "{words:?}: {}", errors(&output));
    }
    let mut command = weir(&["serve", "udp", "--any-port", "--on", "lo", "--interval", "0"]);
    let confined = Confinement::new().unprivileged().confine(command.stdin(Stdio::null())).output();
    let confined = confined.expect("weir can be started");
    assert_eq!(confined.status.code(), Some(5), "{}", errors(&confined));
    assert!(errors(&confined).contains("CAP_NET_RAW"), "{}", errors(&confined));
}
