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

/// A server of frames at its end, and where it listens.
fn server(site: &Site, design: &str) -> (Child, BufReader<impl Read + use<>>, SocketAddr) {
    let at = SocketAddr::new(site.server_v4(), 0).to_string();
    let mut child = site.at_server(|| {
        weir(&["serve", "udp", "--design", design, "--bind", &at, "--echo", "--json"])
            .args(["--interval", "0", "--end-with-input"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("weir can be started")
    });
    let mut lines = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    lines.read_line(&mut line).expect("a ready line");
    let ready: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line:?}"));
    let address = ready["ready"]["addresses"][0].as_str().expect("an address");
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
        let status = std::fs::read_to_string(thread.unwrap().path().join("status")).unwrap();
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
    let needs =
        weir::rio::Needs { payload: 1, receives: 1, sends: 0, per_dequeue: 1, offload: false };
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
        assert!(cpu.as_f64().is_some_and(|ns| ns > 0.0), "{row:#}");
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
