//! The filter for TLS with clients that are not ours. Python's is OpenSSL with its strictest checks; the
//! certificate is in `tests/tls`, whose README says how it was made.

use super::{
    client::{Client, Random},
    programs::{self, run_python},
    support::*,
};
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::SocketAddr,
    process::{Command, Stdio},
};
use weir::{
    filter::{ConnectionLimit, Filter, FlowControl, Policy, ReadTimeout, Tls},
    rustls::pki_types::CertificateDer,
    tcp::{Handler, Limits, Output},
};

pub const CHECKS: &[Check] = &[
    ("tls_python", python),
    ("tls_python_reads_late", python_reads_late),
    ("tls_cut_short", cut_short),
    ("tls_at_a_stop", at_a_stop),
    ("tls_openssl", openssl),
    ("tls_session", session),
    ("tls_of_no_tls", of_no_tls),
];

const AUTHORITY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tls/authority.pem");
const CHAIN: &[u8] = include_bytes!("../tls/certificate.pem");
const KEY: &[u8] = include_bytes!("../tls/key.pem");
const CLIENT_AUTHORITY: &[u8] = include_bytes!("../tls/client-authority.pem");
const CLIENT_CERTIFICATE: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tls/client-certificate.pem");
const CLIENT_KEY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tls/client-key.pem");

/// An echo behind TLS, in the middle of other filters.
fn secured() -> impl Filter {
    ConnectionLimit::new(1000, 1000)
        .then(ReadTimeout::new(PATIENCE))
        .then(Tls::from_pem(CHAIN, KEY).expect("a certificate and its key"))
        .then(FlowControl::new(64 * 1024, Policy::Block))
}

fn start(subject: &Subject, limits: Limits) -> (weir::tcp::Running, std::sync::Arc<Log>) {
    let handlers = secured().handlers(|_| echo as fn(&mut [u8], &mut Output<'_>));
    subject.start(&server_with(limits), handlers)
}

/// What each script begins with.
const BEGIN: &str = r#"
import hashlib, random, socket, ssl, sys, threading
ip, port, certificate = sys.argv[1], int(sys.argv[2]), sys.argv[3]
def connect(version=None):
    context = ssl.create_default_context(cafile=certificate)
    if version:
        context.minimum_version = context.maximum_version = version
    raw = socket.create_connection((ip, port), timeout=60)
    return context.wrap_socket(raw, server_hostname="localhost")
def exactly(stream, count):
    pieces = []
    while count:
        piece = stream.recv(min(count, 65536))
        assert piece, "the end came early"
        pieces.append(piece)
        count -= len(piece)
    return b"".join(pieces)
"#;

/// Where a script finds it.
fn address(server: &weir::tcp::Running) -> [String; 2] {
    let to = server.local_addresses()[0];
    [to.ip().to_string(), to.port().to_string()]
}

/// Runs a script to its end.
fn script(server: &weir::tcp::Running, text: &str) -> Result<Vec<u8>, Skipped> {
    let [ip, port] = address(server);
    run_python(&format!("{BEGIN}{text}"), &[&ip, &port, AUTHORITY])
}

/// Both versions, random pieces, and an end in order in both directions.
fn python(subject: &Subject) -> Result<(), Skipped> {
    let (server, log) = start(subject, limits());
    let said = script(
        &server,
        r#"
def client(number):
    version = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3][number % 2]
    rng, stream = random.Random(number), connect(version)
    for _ in range(20):
        piece = rng.randbytes(rng.randint(1, 1 << rng.randint(0, 16)))
        stream.sendall(piece)
        assert exactly(stream, len(piece)) == piece
    stream.unwrap().close() # waits for the server's close_notify
    done.append(number)
done = []
threads = [threading.Thread(target=client, args=(n,)) for n in range(6)]
[t.start() for t in threads]; [t.join() for t in threads]
print(len(done))
"#,
    )?;
    // A thread that fails says so on the standard error, and is missing here.
    assert_eq!(said.trim_ascii_end(), b"6");
    let total = stop(server, &log);
    assert_eq!(total.closed_finished, 6, "{:?}", log.told());
    Ok(())
}

/// A peer that sends before it reads: the server pauses, and everything arrives.
fn python_reads_late(subject: &Subject) -> Result<(), Skipped> {
    let limits = limits().output_bytes(64 * 1024);
    let (server, log) = start(subject, limits);
    let said = script(
        &server,
        r#"
context = ssl.create_default_context(cafile=certificate)
raw = socket.create_connection((ip, port), timeout=60)
into, out = ssl.MemoryBIO(), ssl.MemoryBIO()
tls = context.wrap_bio(into, out, server_hostname="localhost")
while True:
    try:
        tls.do_handshake()
        break
    except ssl.SSLWantReadError:
        raw.sendall(out.read())
        into.write(raw.recv(65536))
raw.sendall(out.read())
data = random.Random(1).randbytes(24 << 20)
tls.write(data)
rest = memoryview(out.read())
# Until nothing goes any more, for a second.
raw.settimeout(1)
try:
    while rest:
        rest = rest[raw.send(rest[:65536]):]
    print("the server takes whatever comes")
except TimeoutError:
    pass
raw.settimeout(60)
sender = threading.Thread(target=lambda: raw.sendall(rest))
sender.start()
back, total = hashlib.sha256(), 0
while total < len(data):
    try:
        piece = tls.read(1 << 20)
        back.update(piece)
        total += len(piece)
    except ssl.SSLWantReadError:
        got = raw.recv(1 << 20)
        assert got, "the end came early"
        into.write(got)
sender.join()
assert back.digest() == hashlib.sha256(data).digest()
try:
    tls.unwrap()
except ssl.SSLWantReadError:
    pass
raw.sendall(out.read())
raw.shutdown(socket.SHUT_WR)
while raw.recv(65536):
    pass
print("all is back")
"#,
    )?;
    assert_eq!(said.trim_ascii_end(), b"all is back");
    let total = stop(server, &log);
    assert_eq!(total.closed_finished, 1, "{:?}", log.told());
    assert!(total.pauses > 0);
    assert_bounded(&log, limits);
    Ok(())
}

/// A peer that ends without close_notify may have been cut short by somebody else.
fn cut_short(subject: &Subject) -> Result<(), Skipped> {
    let (server, log) = start(subject, limits());
    script(
        &server,
        r#"
stream = connect()
stream.sendall(b"hello")
assert exactly(stream, 5) == b"hello"
raw = socket.socket(fileno=stream.detach())
raw.settimeout(60)
raw.shutdown(socket.SHUT_WR)
while raw.recv(1000):
    pass
"#,
    )?;
    log.wait_for("the end", |told| told.closed.len() == 1);
    let ending = log.told().closed[0].clone();
    assert_eq!(ending.how, How::Declined);
    assert!(ending.text.contains("without close_notify"), "{}", ending.text);
    assert_eq!(stop(server, &log).closed_by_filter, 1);
    Ok(())
}

/// The stop of the server is an end in order to its clients.
fn at_a_stop(subject: &Subject) -> Result<(), Skipped> {
    let (server, log) = start(subject, limits());
    let [ip, port] = address(&server);
    let text = format!(
        r#"{BEGIN}
stream = connect()
stream.sendall(b"hello")
assert exactly(stream, 5) == b"hello"
print("ready", flush=True)
assert stream.recv(10) == b"" # close_notify: anything else is an exception
stream.unwrap().close()
print("closed in order")
"#
    );
    let mut child = programs::python(&text)
        .args([&ip, &port, AUTHORITY])
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| Skipped(format!("Python cannot be run here: {e}")))?;
    let mut lines = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    lines.read_line(&mut line).expect("a line");
    assert_eq!(line, "ready\n");
    let total = stop(server, &log);
    line.clear();
    lines.read_to_string(&mut line).expect("the rest");
    assert!(child.wait().expect("it ends").success());
    assert_eq!(line, "closed in order\n");
    assert_eq!(total.closed_finished, 1, "{:?}", log.told());
    Ok(())
}

fn openssl(subject: &Subject) -> Result<(), Skipped> {
    let (server, log) = start(subject, limits());
    let to = server.local_addresses()[0].to_string();
    for version in ["-tls1_2", "-tls1_3"] {
        let mut child = Command::new("openssl")
            .args(["s_client", "-connect", &to, "-CAfile", AUTHORITY, "-verify_return_error"])
            .args(["-quiet", "-no_ign_eof", version])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| Skipped(format!("openssl: {e}")))?;
        let mut into = child.stdin.take().expect("piped");
        let mut lines = BufReader::new(child.stdout.take().expect("piped"));
        for number in 0..3 {
            let said = format!("line {number}\n");
            into.write_all(said.as_bytes()).expect("it reads");
            let mut line = String::new();
            lines.read_line(&mut line).expect("an echo");
            assert_eq!(line, said);
        }
        // It says close_notify when its input ends, and may go without the server's.
        drop(into);
        assert!(child.wait().expect("it ends").success());
    }
    log.wait_for("the end of both", |told| told.closed.len() == 2);
    let by_notice = |how| matches!(how, How::Finished | How::Failed);
    assert!(log.told().closed.iter().all(|ending| by_notice(ending.how)), "{:?}", log.told());
    assert_eq!(log.told().received, stop(server, &log).bytes_received);
    Ok(())
}

/// Tells its client what it sees of the session.
struct TellsSession;

impl Handler for TellsSession {
    fn on_connect(&mut self, _: SocketAddr, output: &mut Output<'_>) {
        let tls = output.tls().expect("it stands behind TLS");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let name = tls.server_name().unwrap_or("-").to_owned();
        let protocol = tls.alpn_protocol().map_or("-".into(), text);
        // Its name stands in the certificate as it is.
        let is_client = |chain: &[CertificateDer<'_>]| {
            chain[0].as_ref().windows(11).any(|part| part == b"client.test")
        };
        let client = tls.peer_certificates().is_some_and(is_client);
        let line = format!("{name} {protocol} {client}\n");
        output.send(line.as_bytes()).expect("there is room");
    }

    fn on_receive(&mut self, _: &mut [u8], _: &mut Output<'_>) {}
}

/// The name that a client asks for, the protocol agreed upon, and who it is; one that does not say that is refused.
fn session(subject: &Subject) -> Result<(), Skipped> {
    let tls = Tls::from_pem_for_clients_of(CLIENT_AUTHORITY, CHAIN, KEY).expect("an authority");
    let tls = tls.alpn(["weir/2", "weir/1"]).expect("names");
    let (server, log) = subject.start(&server_with(limits()), tls.handlers(|_| TellsSession));
    let to = server.local_addresses()[0].to_string();
    let says_who = ["-cert", CLIENT_CERTIFICATE, "-key", CLIENT_KEY];
    for (version, says_who, expected) in [
        ("-tls1_2", &says_who[..], "localhost weir/1 true\n"),
        ("-tls1_3", &says_who[..], "localhost weir/1 true\n"),
        ("-tls1_3", &[], ""),
    ] {
        let mut child = Command::new("openssl")
            .args(["s_client", "-connect", &to, "-CAfile", AUTHORITY, "-verify_return_error"])
            .args(["-quiet", "-no_ign_eof", "-servername", "localhost", "-alpn", "weir/1", version])
            .args(says_who)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| Skipped(format!("openssl: {e}")))?;
        let mut line = String::new();
        let stdout = child.stdout.take().expect("piped");
        BufReader::new(stdout).read_line(&mut line).expect("a line or the end");
        drop(child.stdin.take());
        let status = child.wait().expect("it ends");
        assert_eq!((line.as_str(), status.success()), (expected, !says_who.is_empty()));
    }
    log.wait_for("the end of all", |told| told.closed.len() == 3);
    stop(server, &log);
    Ok(())
}

fn of_no_tls(subject: &Subject) -> Result<(), Skipped> {
    let (server, log) = start(subject, limits());
    let to = server.local_addresses()[0];
    let mut answer = Vec::new();
    let plain = Client::connect(to, 1);
    (&plain.stream).write_all(b"GET / HTTP/1.0\r\n\r\n").expect("sending");
    (&plain.stream).read_to_end(&mut answer).expect("an alert and the end");
    // A record of the type alert, fatal (RFC 8446, 6).
    assert!(matches!(answer[..], [21, 3, _, 0, 2, 2, _]), "{answer:?}");
    let address = plain.address();
    drop(plain);
    assert_eq!(log.wait_for_ending(address), How::Declined);
    // Nothing but noise, and one that leaves in the middle of the handshake.
    let noise = Client::connect(to, 2);
    let mut random = Random(9);
    let bytes: Vec<u8> = (0..1000).map(|_| random.next() as u8).collect();
    let _ = (&noise.stream).write_all(&bytes);
    let address = noise.address();
    let _ = (&noise.stream).read_to_end(&mut answer);
    drop(noise);
    assert_eq!(log.wait_for_ending(address), How::Declined);
    let leaves = Client::connect(to, 3);
    (&leaves.stream).write_all(&[22, 3, 1, 2, 0, 1, 0]).expect("the beginning of a record");
    let address = leaves.address();
    drop(leaves);
    assert_eq!(log.wait_for_ending(address), How::Declined);
    let endings = log.told().closed;
    assert!(endings.iter().all(|ending| ending.text.contains("TLS: ")), "{endings:?}");
    assert_eq!(stop(server, &log).closed_by_filter, 3);
    Ok(())
}
