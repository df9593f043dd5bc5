//! Servers on Unix sockets of datagrams: their files, their peers with and without a name, those that take nothing, and
//! programs that are not ours.

use super::support::*;

#[cfg(not(target_os = "linux"))]
pub const CHECKS: &[Check] = &[("unix_is_refused", unix_is_refused)];
#[cfg(not(target_os = "linux"))]
pub const CHECKS_WITH_OFFLOAD: &[Check] = CHECKS;
#[cfg(not(target_os = "linux"))]
pub const CHECKS_OF_VARIANTS: &[Check] = CHECKS;

#[cfg(target_os = "linux")]
pub use there::{CHECKS, CHECKS_OF_VARIANTS, CHECKS_WITH_OFFLOAD};

/// What the system lacks is said before anything is started.
#[cfg(not(target_os = "linux"))]
fn unix_is_refused(subject: &Subject) -> Result<(), Skipped> {
    let server = weir::udp::Server::bind_unix("@weir");
    match subject.try_log(&server, Answer::Nothing) {
        Err(weir::Error::Unavailable(_)) => Ok(()),
        other => panic!("{:?}", other.map(|_| "it started")),
    }
}

#[cfg(target_os = "linux")]
mod there {
    use super::{super::programs::run_python, *};
    use std::{
        collections::BTreeMap,
        fs,
        io::ErrorKind,
        net::SocketAddr,
        os::{
            linux::net::SocketAddrExt as _,
            unix::{
                fs::PermissionsExt as _,
                net::{self as unix, UnixDatagram},
            },
        },
        path::{Path, PathBuf},
        sync::{
            Arc,
            atomic::{AtomicU32, Ordering::Relaxed},
        },
        time::Duration,
    };
    use weir::{
        Error,
        limits::Limits,
        socket::SocketOptions,
        stream::UnixAddress,
        udp::{Datagram, Ecn, NotTaken, Replies, Running, Server, Transmit},
    };

    pub const CHECKS: &[Check] = &[
        ("unix_alone", unix_alone),
        ("unix_peers_without_a_name", unix_peers_without_a_name),
        ("unix_peer_that_takes_nothing", unix_peer_that_takes_nothing),
        ("unix_sent_to_anybody", unix_sent_to_anybody),
        ("unix_that_is_taken", unix_that_is_taken),
        ("unix_that_goes_from_server_to_server", unix_that_goes_from_server_to_server),
        ("unix_that_another_shuts", unix_that_another_shuts),
        ("unix_beside_the_internet", unix_beside_the_internet),
        ("unix_has_no_hops", unix_has_no_hops),
        ("unix_python", unix_python),
    ];

    /// What such a socket does otherwise than one of the internet: its datagrams, and that another may shut it.
    pub const CHECKS_OF_VARIANTS: &[Check] =
        &[("unix_alone", unix_alone), ("unix_that_another_shuts", unix_that_another_shuts)];

    /// They have no receive offload, and say so.
    pub const CHECKS_WITH_OFFLOAD: &[Check] = &[("unix_has_no_offload", has_them)];

    /// A path that no other check has.
    fn any_path() -> PathBuf {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Relaxed);
        std::env::temp_dir().join(format!("weir-udp-{}-{number}.sock", std::process::id()))
    }

    fn address(name: &UnixAddress) -> unix::SocketAddr {
        match (name.path(), name.abstract_name()) {
            (Some(path), _) => unix::SocketAddr::from_pathname(path),
            (None, name) => unix::SocketAddr::from_abstract_name(name.unwrap_or_default()),
        }
        .expect("a short name")
    }

    fn name_of(address: &unix::SocketAddr) -> UnixAddress {
        match (address.as_pathname(), address.as_abstract_name()) {
            (Some(path), _) => path.into(),
            (None, name) => {
                format!("@{}", String::from_utf8_lossy(name.expect("it has one"))).into()
            }
        }
    }

    /// A client, whose file goes with it.
    struct Client {
        socket: UnixDatagram,
        name: UnixAddress,
    }

    impl Client {
        fn at(name: impl Into<UnixAddress>) -> Self {
            let name = name.into();
            let socket = UnixDatagram::bind_addr(&address(&name)).expect("a name that is free");
            socket.set_read_timeout(Some(PATIENCE)).expect("a time");
            socket.set_write_timeout(Some(PATIENCE)).expect("a time");
            Self { socket, name }
        }

        fn new() -> Self {
            Self::at(any_path())
        }

        fn send(&self, bytes: &[u8], to: &UnixAddress) {
            let sent = self.socket.send_to_addr(bytes, &address(to));
            assert_eq!(sent.unwrap_or_else(|e| panic!("{to}: {e}")), bytes.len());
        }

        /// The next datagram, which must have come from there.
        fn receive(&self, from: &UnixAddress) -> Vec<u8> {
            let mut buffer = vec![0; 70_000];
            loop {
                match self.socket.recv_from(&mut buffer) {
                    Err(e) if e.kind() == ErrorKind::Interrupted => {}
                    other => {
                        let (length, source) = other.expect("a datagram");
                        assert_eq!(name_of(&source), *from);
                        buffer.truncate(length);
                        return buffer;
                    }
                }
            }
        }

        fn ask(&self, bytes: &[u8], to: &UnixAddress) {
            self.send(bytes, to);
            assert_eq!(self.receive(to), bytes);
        }

        /// What stands for it.
        fn source(&self) -> SocketAddr {
            SocketAddr::try_from(&self.name).expect("there is room for its name")
        }
    }

    impl Drop for Client {
        fn drop(&mut self) {
            if let Some(path) = self.name.path() {
                let _ = fs::remove_file(path);
            }
        }
    }

    /// Passes over rows that have no Unix sockets, once they have said so.
    fn has_them(subject: &Subject) -> Result<(), Skipped> {
        let path = any_path();
        if subject.is_of("rio-sharded") && subject.threads() > 1 {
            match subject.try_log(&Server::bind_unix(&path), Answer::Nothing) {
                Err(Error::Option { name, .. }) => assert_eq!(name, "threads"),
                _ if subject.offloads() => {}
                other => panic!("{:?}", other.map(|_| "it started")),
            }
            return Err(Skipped("all threads share a Unix socket".into()));
        }
        if subject.offloads() {
            match subject.try_log(&Server::bind_unix(&path), Answer::Nothing) {
                Err(Error::Unavailable(why)) => {
                    assert!(why.to_string().contains("offload"), "{why}")
                }
                other => panic!("{:?}", other.map(|_| "it started")),
            }
            return Err(Skipped("Unix sockets have no receive offload".into()));
        }
        Ok(())
    }

    /// A path and an abstract name, and no address of the internet: every byte comes back to whoever sent it, from where it
    /// was sent to.
    fn unix_alone(subject: &Subject) -> Result<(), Skipped> {
        has_them(subject)?;
        for answer in [Answer::Echo, Answer::Copy] {
            let path = any_path();
            let name = format!("@{}", path.file_name().expect("a name").display());
            let server = Server::bind_unix(&path).unix_mode(0o640).and_bind_unix(&*name);
            let (server, log) = subject.log_with(&server.limits(echo_limits()), answer);
            assert_eq!(server.local_addresses(), []);
            let addresses = server.unix_addresses().to_vec();
            assert_eq!(addresses, [UnixAddress::from(&path), UnixAddress::from(&*name)]);
            let mode = fs::metadata(&path).expect("a file").permissions().mode();
            assert_eq!(mode & 0o777, 0o640);
            let clients =
                [Client::new(), Client::new(), Client::at(format!("{name}-client")), Client::new()];
            let sizes = [0, 1, 8, 100, 255, 256, 257, 1000, 1023, 1024];
            let mut sent = BTreeMap::<_, u32>::new();
            for (number, size) in sizes.into_iter().cycle().take(200).enumerate() {
                let (client, place) = (&clients[number % clients.len()], number / 4 % 2);
                let bytes = pattern(number, size);
                client.ask(&bytes, &addresses[place]);
                *sent.entry((client.source(), bytes, place as u32)).or_default() += 1;
            }
            let mut seen = BTreeMap::<_, u32>::new();
            for one in log.seen() {
                *seen.entry((one.source, one.bytes, one.socket)).or_default() += 1;
            }
            assert!(seen == sent, "others were seen than were sent");
            // What is longer is cut, and told so.
            clients[0].send(&[7; 3000], &addresses[0]);
            let back = clients[0].receive(&addresses[0]);
            assert_eq!(back, [7; 1024]);
            wait_for_sends(&server, 201);
            let total = stop(server, &log);
            assert_eq!((total.replies, total.send_errors, total.truncated), (201, 0, 1));
            assert!(!path.exists());
        }
        Ok(())
    }

    /// Nobody can answer them; what they send is received all the same, also if it has no bytes.
    fn unix_peers_without_a_name(subject: &Subject) -> Result<(), Skipped> {
        has_them(subject)?;
        let to = UnixAddress::from(any_path());
        let server = Server::bind_unix(to.clone()).limits(echo_limits());
        let (server, log) = subject.log_with(&server, Answer::Copy);
        let client = Client::new();
        let nobody = UnixDatagram::unbound().expect("a socket");
        for round in 0..20 {
            let bytes = pattern(round, round % 3 * 50);
            nobody.send_to_addr(&bytes, &address(&to)).expect("it is sent");
            client.ask(&pattern(100 + round, 60), &to);
        }
        log.wait_for(40);
        let seen = log.seen();
        let unnamed: Vec<_> = seen.iter().filter(|seen| seen.source == NOBODY).collect();
        assert_eq!(unnamed.len(), 20);
        assert_eq!(unnamed.iter().filter(|seen| seen.bytes.is_empty()).count(), 7);
        assert_eq!(UnixAddress::of(NOBODY), None);
        wait_for_sends(&server, 40);
        let total = stop(server, &log);
        assert_eq!((total.replies, total.send_errors), (20, 20));
        Ok(())
    }

    const NOBODY: SocketAddr =
        SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0);

    /// Its queue is full, so no more can be sent to it; nobody else is kept waiting.
    fn unix_peer_that_takes_nothing(subject: &Subject) -> Result<(), Skipped> {
        has_them(subject)?;
        let most = fs::read_to_string("/proc/sys/net/unix/max_dgram_qlen").expect("Linux has it");
        let most: usize = most.trim().parse().expect("a number");
        if most > 520 {
            return Err(Skipped(format!(
                "net.unix.max_dgram_qlen is {most}: no queue is soon full"
            )));
        }
        let to = UnixAddress::from(any_path());
        // What waits at one peer takes room in this buffer, and by default that is used up by 280 small datagrams, long
        // before a queue of 512 is full, as systemd makes them.
        let options = SocketOptions::default().send_buffer_bytes(Some(1 << 20));
        let server = Server::bind_unix(to.clone()).socket_options(options).limits(echo_limits());
        let (server, log) = subject.log_with(&server, Answer::Copy);
        let (asks, other) = (Client::new(), Client::new());
        let requests = most + 40;
        for number in 0..requests {
            asks.send(&pattern(number, 20), &to);
            // In between, before and after it is full.
            if number % 10 == 0 {
                other.ask(&pattern(10_000 + number, 30), &to);
            }
        }
        let others = requests.div_ceil(10);
        log.wait_for(requests + others);
        other.ask(b"and now?", &to);
        // What had room is there.
        assert_eq!(asks.receive(&to).len(), 20);
        wait_for_sends(&server, (requests + others + 1) as u64);
        let total = stop(server, &log);
        assert_eq!(total.replies + total.send_errors, (requests + others + 1) as u64);
        assert!((1..=40).contains(&total.send_errors), "{} of {requests}", total.send_errors);
        assert_eq!(total.replies_refused, 0);
        Ok(())
    }

    /// Not in answer, by handlers and by other threads; to peers that have gone, too.
    fn unix_sent_to_anybody(subject: &Subject) -> Result<(), Skipped> {
        has_them(subject)?;
        let own = UnixAddress::from(any_path());
        let (asks, other) = (Client::new(), Client::new());
        let gone = UnixAddress::from(any_path());
        let dead = any_path();
        drop(UnixDatagram::bind(&dead).expect("a path that is free"));
        let targets = [other.name.clone(), gone.clone(), UnixAddress::from(&dead), own.clone()];
        let targets = targets.map(|name| SocketAddr::try_from(&name).expect("there is room"));
        let [to_other, to_gone, to_dead, to_own] = targets;
        let handler = move |_| {
            move |datagram: Datagram<'_>, replies: &mut Replies<'_>| {
                if datagram.source == to_own {
                    return; // it sent that itself
                }
                let outbox = &mut replies.outbox();
                let bytes = &*datagram.bytes;
                for to in [to_gone, to_other, to_dead, to_own] {
                    outbox.send(Transmit::new(to, bytes)).expect("there is room");
                }
                let cut = Transmit::new(to_other, bytes).segment_size(Some(4));
                outbox.send(cut).expect("there is room");
                let internet = Transmit::new("127.0.0.1:9".parse().unwrap(), bytes);
                assert!(matches!(outbox.send(internet), Err(NotTaken::NoSocket(_))));
                let marked = Transmit::new(to_other, bytes).ecn(Some(Ecn::Ce));
                assert!(matches!(outbox.send(marked), Err(NotTaken::Ecn)));
                let from = Transmit::new(to_other, bytes).source(Some([127, 0, 0, 1].into()));
                assert!(matches!(outbox.send(from), Err(NotTaken::Source(_))));
            }
        };
        let limits = Limits::SINK.transmits_outstanding(64);
        let server = Server::bind_unix(own.clone()).limits(limits);
        let server = subject.start(&server, handler).unwrap();
        const ROUNDS: u64 = 20;
        for round in 0..ROUNDS {
            let bytes = pattern(round as usize, 10);
            asks.send(&bytes, &own);
            // In any order where several threads of the kernel send.
            let mut came: Vec<_> = (0..4).map(|_| other.receive(&own)).collect();
            came.sort_by_key(|bytes| std::cmp::Reverse(bytes.len()));
            assert_eq!(came[0], bytes);
            let mut pieces = [&bytes[..4], &bytes[4..8], &bytes[8..]];
            pieces[..2].sort_unstable();
            came[1..3].sort_unstable();
            assert_eq!(came[1..], pieces);
        }
        let outbox = server.outbox();
        outbox.send(Transmit::new(to_other, b"by another thread")).unwrap();
        assert_eq!(other.receive(&own), b"by another thread");
        for (to, kind) in [(to_gone, ErrorKind::NotFound), (to_dead, ErrorKind::ConnectionRefused)]
        {
            match outbox.send(Transmit::new(to, b"anybody?")) {
                Err(NotTaken::Failed(e)) => assert_eq!(e.kind(), kind, "{e}"),
                other => panic!("{other:?}"),
            }
        }
        until("all was received", || datagrams(&server) == 2 * ROUNDS);
        wait_for_sends(&server, 7 * ROUNDS);
        let report = server.stop();
        assert_whole(&report);
        let total = report.total();
        assert_eq!((total.replies, total.send_errors), (5 * ROUNDS, 2 * ROUNDS));
        assert_eq!(total.replies_refused, 3 * ROUNDS);
        fs::remove_file(dead).expect("our file");
        Ok(())
    }

    fn datagrams(server: &Running<Boxed>) -> u64 {
        server.counters().iter().map(|thread| thread.datagrams).sum()
    }

    /// Waits until it is known of so many sends what became of them.
    fn wait_for_sends(server: &Running<Boxed>, count: u64) {
        let known = || server.counters().iter().map(|of| of.replies + of.send_errors).sum::<u64>();
        until("all sends are over", || known() >= count);
    }

    fn assert_not_bound(subject: &Subject, path: &UnixAddress, kind: ErrorKind) {
        match subject.try_log(&Server::bind_unix(path.clone()), Answer::Nothing) {
            Err(Error::BindUnix { address, source }) => {
                assert_eq!((&address, source.kind()), (path, kind), "{source}");
            }
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("it started at {path}"),
        }
    }

    /// By another server, which is not disturbed; and by what a program has left that is gone.
    fn unix_that_is_taken(subject: &Subject) -> Result<(), Skipped> {
        has_them(subject)?;
        let name = UnixAddress::from(any_path());
        let path = name.path().expect("a path");
        let client = Client::new();
        let start = || {
            let server = Server::bind_unix(name.clone()).limits(echo_limits());
            subject.log_with(&server, Answer::Echo)
        };
        let (server, log) = start();
        assert_not_bound(subject, &name, ErrorKind::AddrInUse);
        client.ask(b"one", &name);
        // Another program takes its place, and keeps it.
        fs::remove_file(path).expect("its file");
        drop(UnixDatagram::bind(path).expect("a path that is free"));
        let _ = stop(server, &log);
        assert!(path.exists(), "the file of another was removed");
        // Which has gone meanwhile.
        let (server, log) = start();
        client.ask(b"two", &name);
        let _ = stop(server, &log);
        fs::write(path, "of somebody").expect("a path that is free");
        assert_not_bound(subject, &name, ErrorKind::AlreadyExists);
        assert_eq!(fs::read(path).expect("it is left alone"), b"of somebody");
        fs::remove_file(path).expect("our file");
        Ok(())
    }

    /// A socket that is bound already, for servers that are given it, and its name.
    fn bound(subject: &Subject) -> Result<(UnixDatagram, UnixAddress), Skipped> {
        has_them(subject)?;
        let name = UnixAddress::from(any_path());
        let socket = UnixDatagram::bind_addr(&address(&name)).expect("a path that is free");
        Ok((socket, name))
    }

    /// A server that echoes on it.
    fn serve(subject: &Subject, socket: &UnixDatagram) -> (Running<Boxed>, Arc<Log>) {
        let given = socket.try_clone().expect("one more descriptor");
        let server = Server::from_unix(given).expect("it is bound").limits(echo_limits());
        subject.log_with(&server, Answer::Echo)
    }

    /// A socket that is bound already, which one server takes after the other. What comes in between waits.
    fn unix_that_goes_from_server_to_server(subject: &Subject) -> Result<(), Skipped> {
        let (socket, name) = bound(subject)?;
        let client = Client::new();
        for round in 0..4 {
            client.send(&[round; 5], &name); // it waits
            let (server, log) = serve(subject, &socket);
            assert_eq!(server.unix_addresses(), std::slice::from_ref(&name));
            assert_eq!(client.receive(&name), [round; 5]);
            client.ask(&[round; 7], &name);
            let _ = stop(server, &log);
        }
        let path = name.path().expect("a path");
        assert!(path.exists(), "whoever made the file removes it");
        fs::remove_file(path).expect("our file");
        // Sockets that cannot be served.
        let refused =
            |socket: UnixDatagram| Server::from_unix(socket).expect_err("it cannot be").to_string();
        assert!(refused(UnixDatagram::unbound().unwrap()).contains("no name"));
        let connected = Client::new();
        connected.socket.connect_addr(&address(&client.name)).unwrap();
        assert!(refused(connected.socket.try_clone().unwrap()).contains("connected"));
        Ok(())
    }

    /// A socket that is bound already, which another who has it shuts down: nothing will come any more, so the server ends, and
    /// says why, instead of being told for ever that something came. The provider `uring` is not told of it: there the server
    /// sleeps until it is stopped.
    fn unix_that_another_shuts(subject: &Subject) -> Result<(), Skipped> {
        let (socket, name) = bound(subject)?;
        let (server, _log) = serve(subject, &socket);
        let client = Client::new();
        client.ask(b"before", &name);
        socket.shutdown(std::net::Shutdown::Read).expect("it is open");
        fs::remove_file(name.path().expect("a path")).expect("our file");
        if subject.name().contains("/uring") {
            let waits = || server.counters().iter().map(|of| of.waits).sum::<u64>();
            let before = waits();
            assert!(!server.wait_for(Duration::from_millis(50)), "it was told");
            // For what was under way. In that time one that is woken for ever waits tens of thousands of times.
            let since = waits() - before;
            assert!(since <= 100 * u64::from(subject.threads()), "{since} waits for nothing");
            let report = server.stop();
            assert_whole(&report);
            assert_eq!(report.total().datagrams, 1);
            return Ok(());
        }
        assert!(server.wait_for(PATIENCE), "it goes on");
        let report = server.stop();
        let why = report.failure.as_ref().expect("it did not end by itself").to_string();
        assert!(why.contains("shut it down"), "{why}");
        assert_slices(&report);
        Ok(())
    }

    /// Each by its own socket, whose place is told.
    fn unix_beside_the_internet(subject: &Subject) -> Result<(), Skipped> {
        has_them(subject)?;
        let name = UnixAddress::from(any_path());
        let server = Server::bind(any_port()).and_bind_unix(name.clone()).limits(echo_limits());
        let (running, log) = subject.log_with(&server, Answer::Copy);
        let to = running.local_addresses()[0];
        let (client, of_internet) = (Client::new(), &senders(1, to)[0]);
        for round in 0..30 {
            let bytes = pattern(round, 40 + round);
            client.ask(&bytes, &name);
            of_internet.send_to(&bytes, to).expect("it is sent");
            let mut back = [0; 200];
            let (length, from) = receive(of_internet, &mut back).expect("an answer");
            assert_eq!((&back[..length], from), (&bytes[..], to));
        }
        for seen in log.seen() {
            let source =
                if seen.socket == 0 { of_internet.local_addr().unwrap() } else { client.source() };
            assert_eq!(seen.source, source);
        }
        wait_for_sends(&running, 60);
        assert_eq!(stop(running, &log).replies, 60);
        // What one of the internet is asked for is not asked of the other.
        let server = server.socket_options(SocketOptions::default().local_address(true));
        let (running, log) = match subject.try_log(&server, Answer::Copy) {
            Ok(started) => started,
            Err(Error::Unavailable(why)) if why.to_string().contains("control data") => {
                return Ok(());
            }
            Err(other) => panic!("{other}"),
        };
        client.ask(b"once more", &name);
        let _ = stop(running, &log);
        Ok(())
    }

    /// What such sockets have not is refused, with the reason, before anything is started.
    fn unix_has_no_hops(subject: &Subject) -> Result<(), Skipped> {
        has_them(subject)?;
        let path = any_path();
        let plain = SocketOptions::default();
        for (options, what) in [
            (plain.hops(Some(3)), "hops"),
            (plain.traffic_class(Some(4)), "traffic class"),
            (plain.receive_time(true), "receive time"),
            (plain.peer_errors(true), "errors that peers report"),
            (plain.local_address(true), "address that a datagram was sent to"),
        ] {
            let server = Server::bind_unix(&path).socket_options(options);
            match subject.try_log(&server, Answer::Nothing) {
                Err(Error::Unavailable(why)) => assert!(why.to_string().contains(what), "{why}"),
                other => panic!("{:?}", other.map(|_| "it started")),
            }
        }
        let twice = Server::bind_unix(&path).and_bind_unix(&path);
        assert!(matches!(subject.try_log(&twice, Answer::Nothing), Err(Error::Option { .. })));
        let server = Server::bind_unix(&path).join([224, 0, 0, 1].into(), 0);
        assert!(matches!(subject.try_log(&server, Answer::Nothing), Err(Error::Option { .. })));
        assert!(!Path::new(&path).exists());
        Ok(())
    }

    const PYTHON: &str = r#"
import os, socket, sys, tempfile

with tempfile.TemporaryDirectory() as folder:
    clients = [socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(8)]
    for number, client in enumerate(clients):
        client.settimeout(60)
        client.bind("" if number % 2 else os.path.join(folder, str(number)))
        client.sendto(bytes([number]) * 500, sys.argv[1])
        back, source = client.recvfrom(65536)
        assert back == bytes([number]) * 500 and source == sys.argv[1], source
print("8 echoes")
"#;

    /// Half of its clients have names that the kernel gave them.
    fn unix_python(subject: &Subject) -> Result<(), Skipped> {
        has_them(subject)?;
        let path = any_path();
        let server = Server::bind_unix(&path).limits(echo_limits());
        let (server, log) = subject.log_with(&server, Answer::Echo);
        let said = run_python(PYTHON, &[path.to_str().expect("a name in ASCII")])?;
        assert_eq!(said.trim_ascii_end(), b"8 echoes");
        wait_for_sends(&server, 8);
        assert_eq!(stop(server, &log).replies, 8);
        Ok(())
    }
}
