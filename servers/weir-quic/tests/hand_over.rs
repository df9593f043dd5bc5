//! One server takes the place of another (`--hand-over`): connections go on where they are, and nobody is lost who comes
//! meanwhile. Each server has a certificate of its own, by which clients tell who answers them, unless any of them may.

#![cfg(target_os = "linux")]

#[path = "../../testing.rs"]
mod testing;

mod common;

use common::{certified, of_perf};
use quinn::{ClientConfig, Connection, ConnectionError, Endpoint, RecvStream, SendStream};
use rustls::pki_types::CertificateDer;
use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    process::{Child, ChildStdout, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
};
use testing::{Folder, Over, PATIENCE};

/// A server that ends with this value.
struct Server {
    child: Child,
    output: BufReader<ChildStdout>,
    address: SocketAddr,
    certificate: CertificateDer<'static>,
}

/// A certificate of which it and its key are in files.
struct Certified {
    cert: String,
    key: String,
    certificate: CertificateDer<'static>,
}

impl Certified {
    fn of(folder: &Folder) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, SeqCst);
        let [cert, key] = ["cert", "key"].map(|name| folder.path(&format!("{name}-{number}.pem")));
        let certificate = certified(&cert, &key);
        Self { cert, key, certificate }
    }

    /// The command that starts a server which has it and may be replaced at that folder.
    fn command(&self, folder: &Folder, flags: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir-quic"));
        command.args([
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--cert",
            &self.cert,
            "--key",
            &self.key,
        ]);
        command.args(["--hand-over", &folder.path("next"), "--finish", "600"]).args(flags);
        command
    }
}

/// The command that starts one which may be replaced at that folder, with a certificate that no other one has.
fn command(folder: &Folder, flags: &[&str]) -> (Command, CertificateDer<'static>) {
    let certified = Certified::of(folder);
    (certified.command(folder, flags), certified.certificate)
}

impl Server {
    fn start(folder: &Folder, flags: &[&str]) -> Self {
        let (command, certificate) = command(folder, flags);
        Self::of(command, certificate)
    }

    fn of(mut command: Command, certificate: CertificateDer<'static>) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let address = line.strip_prefix("listening on ").and_then(|rest| rest.split(' ').next());
        let address = address.unwrap_or_else(|| {
            let mut errors = String::new();
            child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
            panic!("{line:?}: {errors}")
        });
        let address = address.parse().unwrap();
        Self { child, output, address, certificate }
    }

    fn terminate(&self) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    }

    /// Waits until it has ended; gives its report.
    fn ended(mut self) -> serde_json::Value {
        let mut report = String::new();
        self.output.read_to_string(&mut report).unwrap();
        assert!(self.child.wait().unwrap().success());
        serde_json::from_str(&report).unwrap()
    }

    /// What a client needs that takes this server for the right one, and no other.
    fn trusted(&self) -> ClientConfig {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        of_perf(roots)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It fails only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs what a client does, on a thread with a runtime.
fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let within = async { tokio::time::timeout(PATIENCE, test).await };
    runtime.block_on(within).expect("it hangs");
}

fn client() -> Endpoint {
    Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap()
}

/// Starts a server while a client's connections go on.
async fn start(folder: &Folder, flags: &[&str]) -> Server {
    let (command, certificate) = command(folder, flags);
    tokio::task::spawn_blocking(move || Server::of(command, certificate)).await.unwrap()
}

/// Connects to this server; that another one answers is a failure.
async fn connect(client: &Endpoint, server: &Server) -> Connection {
    connect_by(client, server, server.address).await
}

async fn connect_by(client: &Endpoint, server: &Server, to: SocketAddr) -> Connection {
    client.connect_with(server.trusted(), to, "localhost").unwrap().await.unwrap()
}

/// Begins a request.
async fn ask(connection: &Connection, wanted: usize) -> (SendStream, RecvStream) {
    let (mut send, receive) = connection.open_bi().await.unwrap();
    send.write_all(&(wanted as u64).to_be_bytes()).await.unwrap();
    (send, receive)
}

/// The rest of an answer: so many bytes, all of them 0.
async fn rest(mut receive: RecvStream, expected: usize) {
    let answer = receive.read_to_end(1 << 24).await.unwrap();
    assert_eq!(answer.len(), expected);
    assert!(answer.iter().all(|byte| *byte == 0), "other bytes came");
}

/// A whole request.
async fn request(connection: &Connection, wanted: usize) {
    let (mut send, receive) = ask(connection, wanted).await;
    send.finish().unwrap();
    rest(receive, wanted).await;
}

/// What can run here, with the flags of `serve`.
fn sockets() -> Vec<Vec<&'static str>> {
    let mut all = vec![
        vec!["--on", "quinn-udp"],
        vec!["--on", "batch", "--retry"],
        vec!["--on", "batch", "--receive", "posted", "--threads", "2"],
        vec!["--on", "batch", "--tell", "thread"],
    ];
    let uring: weir_quinn::Provider = "uring".parse().unwrap();
    if uring.availability().is_ok() {
        all.push(vec!["--on", "uring"]);
        all.push(vec!["--on", "uring-sqpoll", "--tell", "thread"]);
    }
    all
}

fn count(report: &serde_json::Value, name: &str) -> u64 {
    report[name].as_u64().unwrap_or_else(|| panic!("{name} is missing: {report}"))
}

#[test]
fn connections_go_on_while_new_servers_take_new_ones_and_the_old_ones_end_with_them() {
    /// More than a stream may have under way.
    const DOWNLOAD: usize = 4_000_000;
    const PART: usize = 500_000;
    for (number, flags) in sockets().iter().enumerate() {
        let folder = Folder::new(&format!("go-on-{number}"));
        run(async {
            let client = client();
            let first = start(&folder, flags).await;
            let of_first = connect(&client, &first).await;
            // Transfers both ways, each of which comes to rest on its way.
            let (mut send, mut download) = ask(&of_first, DOWNLOAD).await;
            send.finish().unwrap();
            let mut begin = [1; 1000];
            download.read_exact(&mut begin).await.unwrap();
            assert_eq!(begin, [0; 1000]);
            let (mut upload, uploaded) = ask(&of_first, 10).await;
            upload.write_all(&[7; PART]).await.unwrap();

            let second = start(&folder, flags).await;
            assert_eq!(second.address, first.address);
            let of_second = connect(&client, &second).await;
            tokio::join!(request(&of_second, PART), request(&of_first, PART));
            upload.write_all(&[7; PART]).await.unwrap();

            let third = start(&folder, flags).await;
            let of_third = connect(&client, &third).await;
            tokio::join!(
                rest(download, DOWNLOAD - begin.len()),
                request(&of_second, PART),
                request(&of_third, PART)
            );
            upload.write_all(&[7; PART]).await.unwrap();
            upload.finish().unwrap();
            rest(uploaded, 10).await;

            // Each ends by itself when its last connection has.
            of_first.close(0u32.into(), b"done");
            let report = tokio::task::spawn_blocking(|| first.ended()).await.unwrap();
            assert_eq!(count(&report, "connections"), 1, "{flags:?}: {report}");
            let received = 3 * 8 + 3 * PART as u64;
            assert_eq!(count(&report, "bytes_received"), received, "{flags:?}: {report}");
            let sent = (DOWNLOAD + PART + 10) as u64;
            assert_eq!(count(&report, "bytes_sent"), sent, "{flags:?}: {report}");
            assert_eq!(count(&report, "datagrams_forwarded"), 0, "{flags:?}: {report}");
            assert!(count(&report, "datagrams_taken") > 0, "{flags:?}: {report}");
            tokio::join!(request(&of_second, 10), request(&of_third, 10));
            of_second.close(0u32.into(), b"done");
            let report = tokio::task::spawn_blocking(|| second.ended()).await.unwrap();
            assert!(count(&report, "datagrams_forwarded") > 0, "{flags:?}: {report}");
            assert!(count(&report, "datagrams_taken") > 0, "{flags:?}: {report}");
            request(&of_third, 10).await;
            third.terminate();
            let report = tokio::task::spawn_blocking(|| third.ended()).await.unwrap();
            assert!(count(&report, "datagrams_forwarded") > 0, "{flags:?}: {report}");
            assert_eq!(count(&report, "datagrams_taken"), 0, "{flags:?}: {report}");
        });
    }
}

/// Clients come all the time, and the server is replaced several times.
#[test]
fn clients_that_come_while_it_is_replaced_are_answered() {
    const RESTARTS: usize = 3;
    for (number, flags) in [&["--on", "quinn-udp"][..], &["--on", "batch"]].iter().enumerate() {
        let folder = Folder::new(&format!("come-{number}"));
        // One certificate for all of them: any may answer a client that comes as it is replaced.
        let certified = Certified::of(&folder);
        let start = || Server::of(certified.command(&folder, flags), certified.certificate.clone());
        let mut server = start();
        let (address, trusted) = (server.address, server.trusted());
        let over = AtomicBool::new(false);
        let (told, answers) = mpsc::channel();
        std::thread::scope(|scope| {
            let _over = Over(&over);
            for _ in 0..2 {
                let (told, over, trusted) = (told.clone(), &over, &trusted);
                scope.spawn(move || {
                    let _over = Over(over);
                    run(async {
                        let client = client();
                        while !over.load(SeqCst) {
                            let connecting =
                                client.connect_with(trusted.clone(), address, "localhost");
                            let connection = connecting.unwrap().await.unwrap();
                            request(&connection, 1000).await;
                            connection.close(0u32.into(), b"done");
                            let _ = told.send(());
                        }
                        // Or the last server waits for the word of clients that are gone.
                        client.wait_idle().await;
                    });
                });
            }
            for _ in 0..RESTARTS {
                let _before = answers.try_iter().count();
                for _ in 0..20 {
                    answers.recv_timeout(PATIENCE).expect("a client was not answered");
                }
                let next = start();
                assert_eq!(next.address, address);
                std::mem::replace(&mut server, next).ended();
            }
        });
        server.terminate();
        server.ended();
    }
}

#[test]
fn a_signal_ends_one_that_was_replaced_in_order() {
    let folder = Folder::new("signal");
    run(async {
        let client = client();
        let first = start(&folder, &[]).await;
        let of_first = connect(&client, &first).await;
        let (mut send, receive) = ask(&of_first, 4_000_000).await;
        send.finish().unwrap();
        let second = start(&folder, &[]).await;
        first.terminate();
        rest(receive, 4_000_000).await;
        let ConnectionError::ApplicationClosed(closed) = of_first.closed().await else {
            panic!("it was not closed by the server");
        };
        assert_eq!(&closed.reason[..], b"the server stops");
        let report = tokio::task::spawn_blocking(|| first.ended()).await.unwrap();
        assert_eq!(count(&report, "requests"), 1, "{report}");
        request(&connect(&client, &second).await, 10).await;
        second.terminate();
        second.ended();
    });
}

/// Between a client and its server, so that one knows the connection's ID, as who looks on would.
struct Between {
    address: SocketAddr,
    /// Of the last packet with a short header that the client sent: the first eight bytes behind the first.
    id: Arc<Mutex<Option<[u8; 8]>>>,
}

impl Between {
    async fn new(server: SocketAddr) -> Self {
        let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let id = Arc::new(Mutex::new(None));
        let seen = Arc::clone(&id);
        tokio::spawn(async move {
            let (mut client, mut datagram) = (None, [0; 1 << 16]);
            loop {
                let (bytes, from) = socket.recv_from(&mut datagram).await.unwrap();
                let datagram = &datagram[..bytes];
                if from == server {
                    socket.send_to(datagram, client.unwrap()).await.unwrap();
                    continue;
                }
                client = Some(from);
                if datagram[0] & 0x80 == 0 {
                    *seen.lock().unwrap() = Some(*datagram[1..].first_chunk().unwrap());
                }
                socket.send_to(datagram, server).await.unwrap();
            }
        });
        Self { address, id }
    }
}

#[test]
fn who_makes_connection_ids_up_or_copies_them_gets_no_answer_and_ends_no_connection() {
    let folder = Folder::new("forged");
    run(async {
        let client = client();
        let first = start(&folder, &[]).await;
        let between = Between::new(first.address).await;
        let of_first = connect_by(&client, &first, between.address).await;
        request(&of_first, 10).await;
        let id = between.id.lock().unwrap().unwrap();
        let second = start(&folder, &[]).await;
        let stranger = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        stranger.connect(first.address).unwrap();
        let version = [0, 0, 0, 1];
        let mut forged: Vec<Vec<u8>> = vec![vec![]];
        for id in [id, [7; 8]] {
            // As after a handshake, of one, a first one that is long enough, and each cut short.
            forged.push([&[0x41][..], &id, &[9; 60]].concat());
            forged.push([&[0xe1][..], &version, &[8], &id, &[0; 60]].concat());
            forged.push([&[0xc1][..], &version, &[8], &id, &[0; 1200]].concat());
            forged.push([&[0x41][..], &id[..5]].concat());
            forged.push([&[0xe1][..], &version, &[8], &id[..5]].concat());
        }
        for (number, datagram) in forged.iter().cycle().take(200).enumerate() {
            stranger.send(datagram).unwrap();
            // What was sent before has been handled when this is answered: so the socket has room for what follows.
            if number % 50 == 49 {
                request(&of_first, 10).await;
            }
        }
        request(&connect(&client, &second).await, 10).await;
        stranger.set_nonblocking(true).unwrap();
        assert_eq!(
            stranger.recv(&mut [0; 1500]).unwrap_err().kind(),
            std::io::ErrorKind::WouldBlock
        );
        of_first.close(0u32.into(), b"done");
        let report = tokio::task::spawn_blocking(|| first.ended()).await.unwrap();
        assert_eq!(count(&report, "connections"), 1, "{report}");
        second.terminate();
        let report = tokio::task::spawn_blocking(|| second.ended()).await.unwrap();
        assert_eq!(count(&report, "connections"), 1, "{report}");
        assert!(count(&report, "datagrams_forwarded") >= 3 * 200 / 11, "{report}");
    });
}

#[test]
fn one_on_other_sockets_does_not_take_over_and_metrics_are_handed_over() {
    let folder = Folder::new("other");
    let start = || {
        let mut server = Server::start(&folder, &["--metrics", "127.0.0.1:0"]);
        let mut line = String::new();
        let errors = server.child.stderr.take().unwrap();
        BufReader::new(errors).read_line(&mut line).unwrap();
        (server, line)
    };
    let (first, at) = start();
    let (mut other, _) = command(&folder, &["--on", "quinn-udp"]);
    let output = other.output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.contains("start both with --on quinn-udp, or neither"), "{errors}");
    let (second, at_second) = start();
    assert_eq!((second.address, &at_second), (first.address, &at));
    first.ended();
    let at = at.trim_end().strip_prefix("metrics at http://").unwrap();
    let mut stream = TcpStream::connect(at.strip_suffix("/metrics").unwrap()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    assert!(page.contains("\nweir_quic_forwarded_datagrams_total 0\n"), "{page}");
    second.terminate();
    second.ended();
}
