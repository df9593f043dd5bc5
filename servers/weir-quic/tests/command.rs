//! The program, as its users start it, and the script that compares sockets by it.

#[path = "../../testing.rs"]
mod testing;

mod common;

use common::{certified, of_perf};
use std::{
    io::{BufRead as _, BufReader, Read, Write as _},
    net::{SocketAddr, TcpStream},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};
use testing::{Folder, PATIENCE};

fn weir_quic(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir-quic"));
    command.args(arguments);
    command
}

/// A server that ends with this value.
struct Server {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    address: SocketAddr,
    /// What it said before it listened.
    said: Vec<String>,
}

impl Server {
    fn start(arguments: &[&str]) -> Self {
        let mut command = weir_quic(&["serve", "--listen", "127.0.0.1:0", "--until-eof"]);
        command.args(arguments).stderr(Stdio::piped());
        Self::of(command)
    }

    fn of(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let mut said = Vec::new();
        let errors = child.stderr.take().map(|errors| Box::new(errors) as Box<dyn Read>);
        let mut errors = BufReader::new(errors.unwrap_or(Box::new(std::io::empty()))).lines();
        if !line.starts_with("listening on ") {
            panic!("{line:?}: {:?}", errors.map(Result::unwrap).collect::<Vec<_>>());
        }
        // What was said before; more does not come while it runs.
        while said.last().is_none_or(|line: &String| !line.starts_with("receive-buffer-bytes")) {
            match errors.next() {
                Some(line) => said.push(line.unwrap()),
                None => break,
            }
            if said.iter().any(|line| line == "socket: quinn-udp") {
                break;
            }
        }
        let address = line.split_whitespace().nth(2).unwrap().parse().unwrap();
        Self { input: child.stdin.take(), child, output, address, said }
    }

    /// Stops it; gives its report.
    fn stop(mut self) -> serde_json::Value {
        drop(self.input.take());
        let mut report = String::new();
        self.output.read_to_string(&mut report).unwrap();
        assert!(self.child.wait().unwrap().success());
        serde_json::from_str(&report).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn load(server: &Server, arguments: &[&str]) -> serde_json::Value {
    let output = weir_quic(&["load", "--connect", &server.address.to_string(), "--seconds", "1"])
        .args(["--warm-up-ms", "0"])
        .args(arguments)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// What can run here, with the flags of `serve`.
fn sockets() -> Vec<Vec<&'static str>> {
    let mut all = vec![
        vec!["--on", "quinn-udp"],
        vec!["--on", "batch", "--tell", "thread"],
        vec!["--on", "batch", "--sends", "at-once"],
    ];
    if cfg!(target_os = "linux") {
        all.push(vec!["--on", "batch", "--spin-us", "50"]);
        all.push(vec!["--on", "batch", "--receive", "posted"]);
        let uring: weir_quinn::Provider = "uring".parse().unwrap();
        if uring.availability().is_ok() {
            all.push(vec!["--on", "uring"]);
            all.push(vec!["--on", "uring-sqpoll", "--tell", "thread"]);
        }
    }
    all
}

#[test]
fn requests_are_answered_on_every_kind_of_socket_and_counted_on_both_sides() {
    for flags in sockets() {
        let server = Server::start(&flags);
        let measured = load(
            &server,
            &["--connections", "3", "--requests", "2", "--download", "5000", "--upload", "300"],
        );
        let report = server.stop();
        let requests = measured["requests"].as_u64().unwrap();
        assert!(requests > 0, "{flags:?}: {measured}");
        assert_eq!(report["connections"], 3, "{flags:?}: {report}");
        // Those before and after what was measured come on top.
        assert!(report["requests"].as_u64().unwrap() >= requests, "{flags:?}: {report}");
        assert!(report["bytes_sent"].as_u64().unwrap() >= 5000 * requests, "{flags:?}: {report}");
        assert!(
            report["bytes_received"].as_u64().unwrap() >= 308 * requests,
            "{flags:?}: {report}"
        );
        let datagrams = report["datagrams_sent"].as_u64();
        assert_eq!(datagrams.is_none(), flags[1] == "quinn-udp", "{flags:?}: {report}");
        assert!(datagrams.is_none_or(|datagrams| datagrams > requests), "{flags:?}: {report}");
    }
}

/// What quinn's perf client does, on streams that go both ways and on those that go one way.
#[test]
fn quinns_perf_is_spoken_on_streams_of_both_kinds() {
    const WANTED: u64 = 100_000;
    const SENT: [u8; 1000] = [7; 1000];
    let folder = Folder::new("keys");
    let [cert, key] = ["cert.pem", "key.pem"].map(|name| folder.path(name));
    let certificate = certified(&cert, &key);
    let server = Server::start(&["--cert", &cert, "--key", &key]);
    drop(folder);

    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate).unwrap();
    let config = of_perf(roots);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut endpoint = quinn::Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
        endpoint.set_default_client_config(config);
        let connection = endpoint.connect(server.address, "localhost").unwrap().await.unwrap();
        let ask = async |mut send: quinn::SendStream| {
            send.write_all(&WANTED.to_be_bytes()).await.unwrap();
            send.write_all(&SENT).await.unwrap();
            send.finish().unwrap();
        };
        let (send, mut both_ways) = connection.open_bi().await.unwrap();
        ask(send).await;
        assert_eq!(both_ways.read_to_end(1 << 20).await.unwrap().len() as u64, WANTED);
        ask(connection.open_uni().await.unwrap()).await;
        let mut one_way = connection.accept_uni().await.unwrap();
        assert_eq!(one_way.read_to_end(1 << 20).await.unwrap().len() as u64, WANTED);
        connection.close(0u32.into(), b"done");
        endpoint.wait_idle().await;
    });
    let report = server.stop();
    let count = |name: &str| report[name].as_u64().unwrap();
    // The second may have ended with its connection.
    assert_eq!(count("requests") + count("requests_broken"), 2, "{report}");
    assert_eq!(count("bytes_sent"), 2 * WANTED, "{report}");
    assert_eq!(count("bytes_received"), 2 * (8 + SENT.len() as u64), "{report}");
}

/// A packet of a version that nobody has (0x?a?a?a?a), which a server answers with those that it has, and which is nobody's to
/// send again (RFC 9000, 6.1 and 15).
#[cfg(target_os = "linux")]
fn asks_for_versions() -> [u8; 1200] {
    let mut packet = [0; 1200];
    // A long header, the version, and the connection IDs: of the server, and of who asks.
    packet[..5].copy_from_slice(&[0xc0, 0x1a, 0x2a, 0x3a, 0x4a]);
    packet[5..14].copy_from_slice(&[8, 1, 1, 1, 1, 1, 1, 1, 1]);
    packet[14..23].copy_from_slice(&[8, 2, 2, 2, 2, 2, 2, 2, 2]);
    packet
}

/// The socket is passed on as a service manager does it, who keeps it: from descriptor 3 on, named in the environment of the very
/// process.
#[cfg(target_os = "linux")]
#[test]
fn what_comes_between_two_servers_on_a_socket_of_a_service_manager_waits() {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let start = |flags: &[&str]| {
        let mut command = Command::new("sh");
        command.arg("-c").arg(
            "exec 3<&2 2>/dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" serve --until-eof \"$@\"",
        );
        command.arg(env!("CARGO_BIN_EXE_weir-quic")).args(flags);
        command.stderr(Stdio::from(std::os::fd::OwnedFd::from(socket.try_clone().unwrap())));
        let server = Server::of(command);
        assert_eq!(server.address, address);
        server
    };
    // Those that differ in how they have the socket.
    let same = |flags: &&Vec<_>| flags.contains(&"--sends") || flags.contains(&"--spin-us");
    for flags in sockets().iter().filter(|flags| !same(flags)) {
        let server = start(flags);
        let measured = load(&server, &["--download", "1000"]);
        assert!(measured["requests"].as_u64().unwrap() > 0, "{flags:?}: {measured}");
        server.stop();
        // A client of quinn would send again what was lost. This is sent once, before the next server is there.
        let client = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client.send_to(&asks_for_versions(), address).unwrap();
        let server = start(flags);
        let mut answer = [0; 1500];
        let length = client.recv(&mut answer).unwrap_or_else(|e| panic!("{flags:?}: {e}"));
        // Version 0, the connection IDs the other way round, and the versions, of which 1 is one.
        let ids = [8, 2, 2, 2, 2, 2, 2, 2, 2, 8, 1, 1, 1, 1, 1, 1, 1, 1];
        assert_eq!((&answer[1..5], &answer[5..23]), (&[0; 4][..], &ids[..]), "{flags:?}");
        let mut versions = answer[23..length].chunks(4);
        assert!(versions.any(|version| version == [0, 0, 0, 1]), "{flags:?}: {length} bytes");
        server.stop();
    }
}

#[test]
fn one_request_may_be_large_in_both_directions() {
    let server = Server::start(&["--threads", "2"]);
    let said = |line: &str| server.said.iter().any(|said| said == line);
    assert!(said("provider: batch") && said("sends: gathered"), "{:?}", server.said);
    let measured = load(&server, &["--download", "8000000", "--upload", "8000000"]);
    assert!(measured["requests"].as_u64() > Some(0), "{measured}");
    assert!(measured["download_bytes_per_s"].as_f64().unwrap() > 0.0, "{measured}");
    server.stop();
}

#[test]
fn what_is_too_much_is_refused() {
    let server = Server::start(&["--max-response-bytes", "1000", "--max-connections", "1"]);
    let refused = |arguments: &[&str]| {
        let output = weir_quic(&["load", "--connect", &server.address.to_string()])
            .args(arguments)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(refused(&["--download", "1001"]).contains("receiving an answer"));
    assert!(refused(&["--download", "1", "--connections", "2"]).contains("connecting to"));
    let report = server.stop();
    assert_eq!(
        (&report["requests_too_large"], &report["connections_refused"]),
        (&1.into(), &1.into())
    );
}

#[test]
fn metrics_are_served_while_it_runs() {
    let mut server =
        weir_quic(&["serve", "--listen", "127.0.0.1:0", "--until-eof", "--metrics", "127.0.0.1:0"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
    let mut line = String::new();
    BufReader::new(server.stderr.take().unwrap()).read_line(&mut line).unwrap();
    let at = line.trim_end().strip_prefix("metrics at http://").unwrap();
    let at: SocketAddr = at.strip_suffix("/metrics").unwrap().parse().unwrap();
    let get = |path: &str| {
        let mut stream = TcpStream::connect(at).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let page = get("/metrics");
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
    for line in ["weir_quic_requests_total 0", "# TYPE weir_quic_connections gauge"] {
        assert!(page.lines().any(|there| there == line), "{line}: {page}");
    }
    assert!(get("/").starts_with("HTTP/1.1 404 "));
    drop(server.stdin.take());
    assert!(server.wait().unwrap().success());
}

#[test]
fn bad_settings_say_what_is_allowed_with_exit_code_2() {
    for (arguments, expected) in [
        (&["serve", "--on", "xdp"][..], "allowed: quinn-udp, auto"),
        (&["serve", "--tell", "thread", "--spin-us", "5"], "option spin"),
        (&["serve", "--receives", "0"], "allowed: 1 to 32768"),
        (&["serve", "--cert", "a.pem"], "--key"),
        (&["load", "--seconds", "0"], "1..=3600"),
    ] {
        let output = weir_quic(arguments).output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {errors}");
        assert!(errors.contains(expected), "{arguments:?}: {errors}");
    }
}

/// The script that compares, where it runs, and two cores that threads may be bound to: of a server and of a client.
#[cfg(target_os = "linux")]
fn measure_quic() -> Option<(Command, [String; 2])> {
    let python = Command::new("python3").arg("-V").output().map_err(|e| format!("python3: {e}"));
    if testing::required::cannot_run("python3", python) {
        return None;
    }
    let cores = weir::affinity::allowed_cores();
    if cores.len() < 2 || weir::affinity::forbidden().is_some() {
        eprintln!("skipped: it takes two cores that threads may be bound to");
        return None;
    }
    let cores = [cores[0], cores[1]].map(|core| core.to_string());
    let mut command = Command::new("python3");
    command.args([concat!(env!("CARGO_MANIFEST_DIR"), "/../measure-quic"), "--program"]);
    command.args([
        env!("CARGO_BIN_EXE_weir-quic"),
        "--server-cpu",
        &cores[0],
        "--client-cpu",
        &cores[1],
    ]);
    Some((command, cores))
}

#[cfg(target_os = "linux")]
#[test]
fn a_comparison_says_how_the_rows_differ() {
    let Some((mut measure, _)) = measure_quic() else { return };
    let output = measure
        .args(["--row", "quinn-udp", "--row", "batch --tell thread"])
        .args(["--load", "ping", "--rounds", "1", "--seconds", "1"])
        .args(["--quinn-perf", ""]) // nor one that may be installed
        .output()
        .unwrap();
    let (table, errors) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "{errors}");
    for row in ["| quinn-udp |", "| quinn-udp (again) |", "| batch --tell thread |"] {
        assert!(table.lines().any(|line| line.starts_with(row)), "{row}: {table}");
    }
}

/// In the place of quinn's client is a shell, whose first argument names what it runs: that says by which core it is run, and
/// loads the server.
#[cfg(target_os = "linux")]
#[test]
fn quinns_own_client_has_its_core_and_what_it_did_is_of_the_servers_report() {
    let Some((mut measure, [_, client])) = measure_quic() else { return };
    let folder = Folder::new("perf");
    let script = "grep Cpus_allowed_list /proc/self/status >>cores
        exec \"$WEIR_QUIC\" load --connect 127.0.0.1:${1#localhost:} --seconds 1 --download 1000";
    std::fs::write(folder.path("client"), script).unwrap();
    let output = measure
        .args(["--quinn-perf", "sh", "--row", "quinn-udp"])
        .args(["--load", "requests", "--rounds", "1", "--seconds", "1", "--json", "runs"])
        .env("WEIR_QUIC", env!("CARGO_BIN_EXE_weir-quic"))
        .current_dir(&folder.0)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let read = |name: &str| std::fs::read_to_string(folder.path(name)).unwrap();
    let (cores, runs) = (read("cores"), read("runs"));
    assert_eq!(cores, format!("Cpus_allowed_list:\t{client}\n").repeat(2));
    let runs: serde_json::Value = serde_json::from_str(&runs).unwrap();
    for run in runs.as_array().unwrap() {
        assert!(run["server"]["requests"].as_u64().unwrap() > 0, "{run}");
        assert_eq!(run["client"]["requests"], run["server"]["requests"], "{run}");
    }
}
