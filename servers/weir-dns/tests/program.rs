//! The program from outside: real clients, connections with many queries, what is malformed, metrics, and a restart under load.

#![cfg(target_os = "linux")]

mod common;

use common::{
    PATIENCE, Program, ask,
    messages::question,
    testing::{Folder, Over, required::cannot_run},
    zone_file,
};
use std::{
    collections::HashMap,
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpStream, UdpSocket},
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};
use weir_dns::{name::Name, types};

/// Designs of all kinds that run where CI does.
const DESIGNS: &[(&str, &str)] = &[
    ("blocking-batch --threads 2", "blocking"),
    ("epoll-batch --threads 2", "epoll --threads 2"),
    ("rio-event --provider batch --outstanding 256", "select"),
    ("rio-hybrid --threads 2 --outstanding 256", "ring --threads 2"),
    ("port --threads 2 --outstanding 256", "port --threads 2"),
];

fn available((udp, tcp): (&str, &str)) -> bool {
    let udp_runs = weir::udp::AnyDesign::parse(udp).unwrap().availability();
    let tcp_runs = weir::tcp::AnyDesign::parse(tcp).unwrap().availability();
    !cannot_run(udp, udp_runs) && !cannot_run(tcp, tcp_runs)
}

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

/// Reads one message of a connection.
fn receive(stream: &mut TcpStream) -> Vec<u8> {
    let mut length = [0; 2];
    stream.read_exact(&mut length).unwrap();
    let mut message = vec![0; u16::from_be_bytes(length).into()];
    stream.read_exact(&mut message).unwrap();
    message
}

fn framed(message: &[u8]) -> Vec<u8> {
    [&(message.len() as u16).to_be_bytes()[..], message].concat()
}

#[test]
fn kdig_is_answered_on_designs_of_all_kinds() {
    let tried = Command::new("kdig").arg("-V").output().map_err(|e| format!("kdig: {e}"));
    if cannot_run("kdig", tried) {
        return;
    }
    for design in DESIGNS {
        if !available(*design) {
            continue;
        }
        let server = Program::start(&["--udp", design.0, "--tcp", design.1]);
        let kdig = |arguments: &[&str]| {
            let at = format!("@{}", server.address.ip());
            let port = server.address.port().to_string();
            let output = Command::new("kdig")
                .args([&at, "-p", &port, "+retry=20", "+timeout=3"])
                .args(arguments)
                .output()
                .unwrap();
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let short = kdig(&["+short", "www.example.com", "A"]);
        let mut lines: Vec<_> = short.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["192.0.2.4", "192.0.2.5"], "{design:?}");
        assert_eq!(kdig(&["+short", "+tcp", "x.wild.example.com", "A"]).trim(), "192.0.2.7");
        assert_eq!(kdig(&["+short", "+noedns", "WWW.eXample.com", "AAAA"]).trim(), "2001:db8::4");
        let absent = kdig(&["nothing.example.com", "A"]);
        assert!(absent.contains("NXDOMAIN") && absent.contains("SOA"), "{absent}");
        assert!(kdig(&["example.org", "A"]).contains("REFUSED"));
        // It does not fit, so the client asks again by TCP by itself.
        let big = kdig(&["+short", "big.example.com", "TXT"]);
        assert_eq!(big.lines().filter(|line| line.starts_with('"')).count(), 14, "{big}");
        let cut = kdig(&["+ignore", "big.example.com", "TXT"]);
        assert!(cut.contains(" tc") && cut.contains("ANSWER: 0"), "{cut}");
        assert!(kdig(&["+edns=1", "www.example.com"]).contains("BADVERS"));
        assert!(server.end().success(), "{design:?}");
    }
}

#[test]
fn a_connection_may_have_many_queries_cut_anywhere_and_take_its_time_to_read() {
    for design in DESIGNS {
        if !available(*design) {
            continue;
        }
        let server = Program::start(&["--udp", "none", "--tcp", design.1]);
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // Answers of which a connection's output has no room for all: the server has to pause, and go on.
        let big = name("big.example.com");
        const QUERIES: u16 = 2000;
        let queries: Vec<u8> =
            (0..QUERIES).flat_map(|id| framed(&question(id, &big, 16, None))).collect();
        let mut writer = stream.try_clone().unwrap();
        let writing = thread::spawn(move || {
            for part in queries.chunks(777) {
                writer.write_all(part).unwrap();
            }
            writer.shutdown(Shutdown::Write).unwrap();
        });
        for id in 0..QUERIES {
            let answer = receive(&mut stream);
            assert_eq!(answer[..2], id.to_be_bytes(), "{design:?}");
            assert_eq!(answer[7], 14, "all of them");
        }
        writing.join().unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap(), 0, "then the server ends it, too");
        assert!(server.end().success());
    }
}

#[test]
fn what_is_malformed_harms_nobody() {
    let mut server =
        Program::start(&["--udp", "blocking-batch", "--tcp", "epoll", "--metrics", "127.0.0.1:0"]);
    let line = server.says.next().expect("it says where metrics are").unwrap();
    let metrics = line.trim_start_matches("metrics at http://").trim_end_matches("/metrics");
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    let good = question(7, &name("www.example.com"), types::A, Some(1232));
    let asks = UdpSocket::bind("127.0.0.1:0").unwrap();
    let query = question(8, &name("www.example.com"), 1, None);
    // Between them it is asked something, so that no more wait than the socket has room for.
    let is_answered = || {
        let answer = ask(&asks, server.address, &query);
        assert_eq!(answer.expect("it goes on")[7], 2);
    };
    for length in 0..good.len() {
        client.send_to(&good[..length], server.address).unwrap();
        is_answered();
    }
    for at in 0..good.len() {
        for bit in 0..8 {
            let mut bad = good.clone();
            bad[at] ^= 1 << bit;
            client.send_to(&bad, server.address).unwrap();
        }
        is_answered();
    }
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // No message, a short one, one that is none, and a query.
    for message in [&[][..], b"abc", &[0xff; 40], &question(9, &name("alias.example.com"), 1, None)]
    {
        stream.write_all(&framed(message)).unwrap();
    }
    let answer = receive(&mut stream);
    assert_eq!((&answer[..2], answer[7]), (&[0, 9][..], 3), "one CNAME and two addresses");
    // A length without a message, and the end.
    stream.write_all(&[0, 50, 1]).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    let mut scraper = TcpStream::connect(metrics).unwrap();
    scraper.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut page = String::new();
    scraper.read_to_string(&mut page).unwrap();
    let count = |name: &str| -> u64 {
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name}: {page}")).parse().unwrap()
    };
    assert!(count("weir_dns_answers_total{rcode=\"FORMERR\"}") > 20);
    assert!(count("weir_dns_answers_total{rcode=\"NOERROR\"}") > 2);
    assert!(count("weir_dns_dropped_total") > 12, "short ones, and answers");
    assert!(count("weir_dns_names") > 20 && count("weir_dns_truncated_total") < 300);
    assert!(
        count("weir_dns_connections_open") <= 1 && page.contains("\nprocess_cpu_seconds_total ")
    );
    assert!(count("weir_udp_datagrams_total") > 300);
    assert_eq!(count("weir_tcp_accepted_total"), 1);
    assert!(server.end().success());
}

#[test]
fn what_makes_no_sense_is_said_with_what_to_do() {
    let zone = zone_file();
    let zone = zone.to_str().unwrap();
    let wrong_name = format!("example.net={zone}");
    for (arguments, code, word) in [
        (&[][..], 2, "--zone"),
        (&["--zone", zone, "--udp", "nonsense"], 2, "blocking"),
        (&["--zone", zone, "--tcp", "epoll --threads x"], 2, "threads"),
        (&["--zone", zone, "--udp", "none", "--tcp", "none"], 2, "nothing would be answered"),
        (&["--zone", zone, "--longest", "100"], 2, "512"),
        (
            &["--zone", zone, "--hand-over", "/nowhere/next", "--udp", "rio-event --provider xdp"],
            2,
            "of its own",
        ),
        (&["--zone", &wrong_name], 2, "has the zone example.com."),
        (&["--zone", "/nowhere/at.all"], 1, "/nowhere/at.all"),
        (&["--zone", zone, "--zone", zone], 1, "twice"),
        (&["--zone", zone, "--listen", "192.0.2.1:5300"], 1, "192.0.2.1:5300"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir-dns"));
        if !arguments.contains(&"--listen") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        let output = command.args(arguments).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {told}");
        assert!(told.contains(word), "{arguments:?}: {told}");
    }
}

/// Sockets as a service manager passes them on: from descriptor 3 on, named in the environment of this very process.
#[test]
fn sockets_of_a_service_manager_are_served() {
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = udp.local_addr().unwrap();
    let Ok(tcp) = std::net::TcpListener::bind(address) else {
        return sockets_of_a_service_manager_are_served(); // somebody has that port for connections
    };
    let mut command = Command::new("sh");
    command.arg("-c").arg(
        "exec 3<&0 4<&2 2>/dev/null; \
         LISTEN_PID=$$ LISTEN_FDS=2 LISTEN_FDNAMES=dns:dns exec \"$0\" --zone \"$1\"",
    );
    command.arg(env!("CARGO_BIN_EXE_weir-dns")).arg(zone_file());
    command.stdin(Stdio::from(std::os::fd::OwnedFd::from(udp)));
    command.stderr(Stdio::from(std::os::fd::OwnedFd::from(tcp)));
    let server = Program::of(command);
    assert_eq!(server.address, address);
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    let query = question(5, &name("www.example.com"), 1, None);
    assert_eq!(ask(&client, address, &query).expect("an answer")[7], 2);
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(&framed(&query)).unwrap();
    assert_eq!(receive(&mut stream)[7], 2);
    drop(stream);
    assert!(server.end().success());
}

/// Clients ask all the time, and the server is replaced by another one several times: each query that was sent has exactly
/// one answer, connections that were accepted have theirs to the end, and new ones come to the successor.
#[test]
fn nothing_is_lost_and_nothing_answered_twice_across_restarts() {
    for design in [
        ("blocking-batch --threads 1", "blocking"),
        ("epoll-batch --threads 1", "epoll --threads 1"),
        ("rio-hybrid --threads 2 --outstanding 256", "ring --threads 1"),
        ("rio-event --outstanding 256", "epoll --threads 1"),
        ("rio-event --provider batch --outstanding 256", "select"),
        ("rio-sharded --threads 2 --outstanding 256", "epoll --threads 1"),
        ("port-batch --threads 2", "port --threads 2"),
        ("blocking-batch --threads 1", "port-ordered --threads 1"),
        ("epoll-batch --threads 1", "overlapped-events"),
        ("blocking-batch --threads 1", "async-select"),
    ] {
        if available(design) {
            restart_under_load(design);
        }
    }
}

const RESTARTS: usize = 2;

fn restart_under_load((udp, tcp): (&str, &str)) {
    let folder = Folder::new("restart");
    let path = folder.path("next");
    let start = || Program::start(&["--udp", udp, "--tcp", tcp, "--hand-over", &path]);
    let mut server = start();
    let address = server.address;
    let over = AtomicBool::new(false);
    let (answered, connected) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        let _over = Over(&over);
        let asking = [0, 1].map(|_| scope.spawn(|| ask_all_the_time(address, &over, &answered)));
        let connecting = scope.spawn(|| connect_all_the_time(address, &over, &connected));
        let mut kept = TcpStream::connect(address).unwrap();
        kept.set_read_timeout(Some(PATIENCE)).unwrap();
        for restart in 0..RESTARTS {
            // Some answers of this one, of both kinds.
            let began = Instant::now();
            let before = [&answered, &connected].map(|count| count.load(SeqCst));
            while answered.load(SeqCst) < before[0] + 2000 || connected.load(SeqCst) == before[1] {
                assert!(began.elapsed() < 2 * PATIENCE, "no answers come");
                thread::yield_now();
            }
            kept.write_all(&framed(&question(restart as u16, &name("www.example.com"), 1, None)))
                .unwrap();
            let mut next = start();
            assert_eq!(next.address, address);
            // It was accepted by the first one, which serves it until it is closed.
            assert_eq!(receive(&mut kept)[..2], (restart as u16).to_be_bytes());
            kept.write_all(&framed(&question(77, &name("alias.example.com"), 1, None))).unwrap();
            assert_eq!(receive(&mut kept)[..2], [0, 77]);
            drop(kept);
            std::mem::swap(&mut server, &mut next);
            let ended = next.child.wait().unwrap();
            assert!(ended.success(), "the one that was replaced ends by itself: {ended}");
            kept = TcpStream::connect(address).unwrap();
            kept.set_read_timeout(Some(PATIENCE)).unwrap();
        }
        over.store(true, SeqCst);
        let asked: u64 = asking.map(|one| one.join().unwrap()).iter().sum();
        assert!(asked >= 2000 * RESTARTS as u64, "{asked}");
        connecting.join().unwrap();
    });
    assert!(server.end().success());
}

/// Queries that are under way at a time: no socket's buffer is too small for them.
const WINDOW: usize = 32;

/// Asks with so many queries under way, and checks that each is answered once. Says how many.
fn ask_all_the_time(to: SocketAddr, over: &AtomicBool, answered: &AtomicU64) -> u64 {
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.connect(to).unwrap();
    client.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let asked_for = name("www.example.com");
    let (mut next, mut count) = (0u16, 0u64);
    let mut open = HashMap::new();
    let mut answer = [0; 1500];
    let mut last = Instant::now();
    while !over.load(SeqCst) || !open.is_empty() {
        while open.len() < WINDOW && !over.load(SeqCst) {
            client.send(&question(next, &asked_for, 1, None)).unwrap();
            open.insert(next, ());
            next = next.wrapping_add(1);
        }
        match client.recv(&mut answer) {
            Ok(_) => {
                let id = u16::from_be_bytes([answer[0], answer[1]]);
                assert!(open.remove(&id).is_some(), "query {id} is answered a second time");
                count += 1;
                answered.fetch_add(1, SeqCst);
                last = Instant::now();
            }
            Err(_) => assert!(last.elapsed() < PATIENCE, "queries have no answer: {open:?}"),
        }
    }
    count
}

/// Connects, asks, and closes, again and again, and counts that.
fn connect_all_the_time(to: SocketAddr, over: &AtomicBool, connected: &AtomicU64) {
    while !over.load(SeqCst) {
        let mut stream = TcpStream::connect(to).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let id = connected.load(SeqCst) as u16;
        let query = framed(&question(id, &name("alias2.example.com"), 1, None));
        stream.write_all(&[&query[..], &query].concat()).unwrap();
        for _ in 0..2 {
            assert_eq!(receive(&mut stream)[..2], id.to_be_bytes());
        }
        connected.fetch_add(1, SeqCst);
        thread::park_timeout(Duration::from_millis(1)); // each leaves a port that is not free for a minute
    }
}
