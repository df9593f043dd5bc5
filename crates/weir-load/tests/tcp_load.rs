//! Loads of connections on servers of the standard library, right ones and wrong ones.
#![cfg(target_os = "linux")]

use std::{
    fs::File,
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use weir_load::{
    Stop, StopReason,
    tcp::{EndedBy, Event, FileBy, LoadError, LoadReport, LoadSpec, Pace, Sizes, load},
};

/// Nothing here may take so long: reached only by a test that fails.
const SOON: Duration = Duration::from_secs(20);
const INSTANT: Duration = Duration::from_millis(200);

/// A server that gives each connection, with its number, to a thread of its own.
struct Server {
    address: SocketAddr,
    listener: TcpListener,
    stopping: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

impl Server {
    fn start(serve: impl Fn(TcpStream, u64) -> io::Result<()> + Send + Sync + 'static) -> Self {
        Self::listening(TcpListener::bind("127.0.0.1:0").unwrap(), serve)
    }

    fn listening(
        listener: TcpListener,
        serve: impl Fn(TcpStream, u64) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let address = listener.local_addr().unwrap();
        // The standard library's backlog is short. What comes to a full one in a flood of connects may be
        // answered with a cookie, and reset when a second message arrives before it is accepted.
        socket2::SockRef::from(&listener).listen(4096).unwrap();
        let kept = listener.try_clone().unwrap();
        let stopping = Arc::new(AtomicBool::new(false));
        let (seen, serve) = (Arc::clone(&stopping), Arc::new(serve));
        let accepting = thread::spawn(move || {
            let mut threads = Vec::new();
            for (number, stream) in (0..).zip(listener.incoming()) {
                if seen.load(SeqCst) {
                    break;
                }
                let (stream, serve) = (stream.unwrap(), Arc::clone(&serve));
                stream.set_nodelay(true).unwrap();
                stream.set_read_timeout(Some(SOON)).unwrap();
                let builder = thread::Builder::new().stack_size(128 * 1024);
                // What goes wrong is seen at the other end.
                threads.push(builder.spawn(move || drop(serve(stream, number))).unwrap());
            }
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
        Self { address, listener: kept, stopping, accepting: Some(accepting) }
    }

    fn echo() -> Self {
        Self::start(|stream, _| echo(stream, |_, _| {}))
    }

    fn spec(&self) -> LoadSpec {
        // No more at a time than find room in the backlog.
        let timeout = SOON;
        let spec = LoadSpec::new(self.address);
        LoadSpec { connecting: 64, answer_timeout: timeout, connect_timeout: timeout, ..spec }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopping.store(true, SeqCst);
        // It wakes who accepts, also where there is no port left to connect from.
        socket2::SockRef::from(&self.listener).shutdown(Shutdown::Read).unwrap();
        if let Some(accepting) = self.accepting.take() {
            accepting.join().unwrap();
        }
    }
}

/// Sends back what comes, after `spoil` has had it, with its offset.
fn echo(mut stream: TcpStream, mut spoil: impl FnMut(u64, &mut Vec<u8>)) -> io::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    let mut offset = 0;
    loop {
        let count = stream.read(&mut buffer)?;
        if count == 0 {
            return Ok(());
        }
        let mut bytes = buffer[..count].to_vec();
        spoil(offset, &mut bytes);
        offset += count as u64;
        stream.write_all(&bytes)?;
    }
}

fn run(spec: &LoadSpec) -> LoadReport {
    let began = Instant::now();
    let report = load(spec, &Stop::new(), |_| {}).expect("it can begin");
    assert!(began.elapsed() < 2 * SOON, "it ends: {report:?}");
    assert_eq!(report.counts.unbalanced(), None, "{report:?}");
    report
}

/// That everything went well, with so many messages on each connection.
fn assert_clean(report: &LoadReport, connections: u64, sends: u64) {
    let counts = &report.counts;
    assert_eq!((report.invalid(), &report.failure), (None, &None), "{report:?}");
    assert_eq!((counts.attempted, counts.connected), (connections, connections));
    assert_eq!(counts.finished, connections, "{counts:?}");
    assert_eq!(counts.messages_over, connections * sends);
    assert_eq!(counts.bytes_sent, counts.bytes_received);
    let latency = report.latency_ns.as_ref().expect("there were messages");
    assert_eq!(latency.n, connections * sends);
    assert_eq!(report.ended_by, EndedBy::Connections);
    assert!(report.errors.is_empty() && !report.data_errors);
}

#[test]
fn one_a_hundred_and_a_thousand_connections_are_echoed() {
    let server = Server::echo();
    for (connections, sends, outstanding, threads) in
        [(1, 500, 1, 1), (1, 300, 16, 1), (100, 20, 1, 1), (100, 20, 7, 3), (1000, 3, 2, 2)]
    {
        let spec = LoadSpec {
            connections,
            sends: Some(sends),
            outstanding,
            threads,
            sizes: Sizes::of(200),
            ..server.spec()
        };
        let report = run(&spec);
        assert_clean(&report, connections.into(), sends);
        assert_eq!(report.counts.bytes_sent, u64::from(connections) * sends * 200);
        assert!(report.open_max <= connections.into());
        let window = report.window.as_ref().expect("it is the whole load");
        assert_eq!(window.messages, report.counts.messages_over);
        assert!(window.cpu_ns.is_some_and(|ns| ns > 0), "{window:?}");
        assert!(report.connects_per_s.is_some_and(|rate| rate > 0.0));
    }
}

#[test]
fn messages_of_any_length_are_echoed() {
    let server = Server::echo();
    for (least, most, outstanding) in [(1, 1, 3), (1, 9, 1), (1, 40_000, 5), (300_000, 700_000, 2)]
    {
        let sizes = Sizes { least, most };
        let spec =
            LoadSpec { connections: 5, sends: Some(12), outstanding, sizes, ..server.spec() };
        let report = run(&spec);
        assert_clean(&report, 5, 12);
        let bytes = u64::from(least) * 60..=u64::from(most) * 60;
        assert!(bytes.contains(&report.counts.bytes_sent), "{report:?}");
    }
}

#[test]
fn ipv6_and_further_addresses_of_loopback_are_loaded() {
    for address in ["[::1]:0", "127.3.2.1:0"] {
        let listener = TcpListener::bind(address).unwrap();
        let server = Server::listening(listener, |stream, _| echo(stream, |_, _| {}));
        let spec = LoadSpec { connections: 3, sends: Some(5), ..server.spec() };
        assert_clean(&run(&spec), 3, 5);
    }
}

#[test]
fn blocks_are_added_one_after_another_and_time_ends_it() {
    let server = Server::echo();
    let spec = LoadSpec {
        connections: 5,
        blocks: 3,
        block_interval: Duration::from_millis(60),
        threads: 2,
        duration: 2 * INSTANT,
        warm_up: INSTANT / 2,
        interval: Some(Duration::from_millis(20)),
        ..server.spec()
    };
    let mut steps = Vec::new();
    let report = load(&spec, &Stop::new(), |event| {
        if let Event::Interval(progress) = event {
            steps.push(progress);
        }
    })
    .unwrap();
    assert_eq!((report.invalid(), report.ended_by), (None, EndedBy::Time), "{report:?}");
    assert_eq!((report.counts.connected, report.counts.finished), (15, 15));
    assert_eq!(report.messages_unanswered, 0, "what is under way at the end is waited for");
    let attempted: Vec<u64> = steps.iter().map(|step| step.attempted).collect();
    assert!(attempted.is_sorted() && attempted[0] < 15, "{attempted:?}");
    assert_eq!(attempted.last(), Some(&15));
    let told: u64 = steps.iter().map(|step| step.messages).sum();
    assert!(told > 0 && told <= report.counts.messages_over);
    let window = report.window.unwrap();
    // It is read when its time has come, or a little later.
    let expected = (spec.duration - spec.warm_up).as_nanos() as f64;
    assert!(window.elapsed_ns as f64 > 0.9 * expected, "{window:?}");
    assert!(window.messages > 0 && window.messages < report.counts.messages_over);
    let measured = report.latency_ns.unwrap().n;
    assert!(measured > 0 && measured < report.counts.messages_over, "the rest was before");
}

#[test]
fn one_byte_that_was_changed_is_found() {
    const PLACE: u64 = 1234;
    let server = Server::start(|stream, number| {
        echo(stream, |offset, bytes| {
            if let (3, Some(at)) = (number, PLACE.checked_sub(offset))
                && let Some(byte) = bytes.get_mut(at as usize)
            {
                *byte ^= 0x10;
            }
        })
    });
    let spec = LoadSpec { connections: 8, sends: Some(40), outstanding: 4, ..server.spec() };
    let report = run(&spec);
    assert_eq!((report.counts.wrong, report.counts.finished), (1, 7), "{report:?}");
    let wrong = report.wrong_bytes.expect("an example");
    assert_eq!(wrong.offset, PLACE);
    assert_eq!(wrong.expected.unwrap() ^ wrong.found, 0x10);
    assert!(report.data_errors);
    assert!(report.invalid().unwrap().contains("byte 1234"), "{:?}", report.invalid());
}

#[test]
fn what_comes_twice_or_unasked_is_found() {
    let twice = Server::start(|stream, _| echo(stream, |_, bytes| bytes.extend(bytes.clone())));
    let unasked = Server::start(|mut stream, _| {
        echo(stream.try_clone()?, |_, _| {})?;
        stream.write_all(b"!")
    });
    for server in [twice, unasked] {
        let report = run(&LoadSpec { connections: 4, sends: Some(3), ..server.spec() });
        assert_eq!(report.counts.wrong, 4, "{report:?}");
        assert_eq!(report.wrong_bytes.unwrap().expected, None);
    }
}

#[test]
fn bytes_of_another_connection_are_found() {
    let last = Arc::new(Mutex::new(Vec::new()));
    let server = Server::start(move |stream, _| {
        let last = Arc::clone(&last);
        echo(stream, move |_, bytes| {
            let mut last = last.lock().unwrap();
            if last.is_empty() {
                *last = bytes.clone();
            } else {
                bytes.clone_from(&last);
            }
        })
    });
    let report = run(&LoadSpec { connections: 5, sends: Some(1), ..server.spec() });
    assert_eq!((report.counts.wrong, report.counts.finished), (4, 1), "{report:?}");
}

#[test]
fn an_end_in_order_with_answers_due_is_a_loss() {
    let server = Server::start(|mut stream, _| {
        let mut bytes = [0; 64];
        stream.read_exact(&mut bytes)?;
        stream.write_all(&bytes[..63])?;
        stream.shutdown(Shutdown::Write)?;
        stream.read_to_end(&mut Vec::new()).map(drop)
    });
    let report = run(&LoadSpec { connections: 3, sends: Some(2), ..server.spec() });
    assert_eq!(report.counts.truncated, 3, "{report:?}");
    assert!(report.data_errors && report.invalid().unwrap().contains("lost"));
    assert_eq!(report.messages_unanswered, 3);
}

#[test]
fn resets_are_counted_and_do_not_hurt_the_others() {
    let server = Server::start(|stream, number| {
        if number % 2 == 0 {
            return echo(stream, |_, _| {});
        }
        let mut first = [0];
        (&stream).read_exact(&mut first)?;
        socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO))
    });
    let report = run(&LoadSpec { connections: 10, sends: Some(5), ..server.spec() });
    assert_eq!((report.counts.reset, report.counts.finished), (5, 5), "{report:?}");
    assert_eq!((report.invalid(), &report.failure), (None, &None));
}

#[test]
fn resets_at_once_are_no_failed_connects() {
    let server =
        Server::start(|stream, _| socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)));
    let report = run(&LoadSpec { connections: 10, ..server.spec() });
    assert_eq!((report.counts.connected, report.counts.reset), (10, 10), "{report:?}");
}

#[test]
fn where_nobody_listens_all_are_refused() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let report = run(&LoadSpec {
        connections: 20,
        blocks: 2,
        block_interval: Duration::ZERO,
        ..LoadSpec::new(address)
    });
    assert_eq!((report.counts.attempted, report.counts.refused), (40, 40), "{report:?}");
    assert!(report.failure.unwrap().contains("does anyone listen"));
    assert_eq!(report.ended_by, EndedBy::Connections);
    assert_eq!(report.window, None);
}

#[test]
fn a_server_that_never_answers_is_given_up() {
    // The system makes the connections, and nobody accepts them.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let spec = LoadSpec::new(listener.local_addr().unwrap());
    let given_up =
        run(&LoadSpec { connections: 5, sends: Some(1), answer_timeout: INSTANT, ..spec.clone() });
    assert_eq!((given_up.counts.connected, given_up.counts.unanswered), (5, 5), "{given_up:?}");
    assert_eq!(given_up.messages_unanswered, 5);
    assert!(given_up.failure.unwrap().contains("no message came back"));
    let cut = run(&LoadSpec { connections: 5, duration: INSTANT, drain: INSTANT, ..spec });
    assert_eq!((cut.counts.cut_off, cut.ended_by), (5, EndedBy::Time), "{cut:?}");
}

#[test]
fn what_a_full_backlog_drops_times_out() {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    socket.bind(&any.into()).unwrap();
    socket.listen(1).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let spec = LoadSpec {
        connections: 12,
        connect_timeout: INSTANT,
        answer_timeout: INSTANT,
        sends: Some(1),
        ..LoadSpec::new(address)
    };
    let report = run(&spec);
    assert!(report.counts.timed_out > 0 && report.counts.connected > 0, "{report:?}");
    assert_eq!(report.counts.timed_out + report.counts.connected, 12);
}

#[test]
fn a_refusal_is_understood_in_any_pieces() {
    let text = format!("{}there are 5 connections\n", weir::tcp::REFUSAL);
    for piece in [1, 3, 1000] {
        let text = text.clone();
        let server = Server::start(move |mut stream, _| {
            for bytes in text.as_bytes().chunks(piece) {
                stream.write_all(bytes)?;
            }
            stream.shutdown(Shutdown::Write)?;
            stream.read_to_end(&mut Vec::new()).map(drop)
        });
        let report = run(&LoadSpec { connections: 4, outstanding: 3, ..server.spec() });
        assert_eq!(report.counts.refused_by_server, 4, "{report:?}");
        assert_eq!(report.refusals.by_count(), [("there are 5 connections", 4)]);
        assert!(!report.data_errors && report.failure.unwrap().contains("there are 5"));
    }
}

/// The server answers nothing for a while. A client that asks only when it has an answer would have
/// one slow message a connection; here each that was due is as late as it is.
#[test]
fn an_open_loop_tells_of_every_message_that_had_to_wait() {
    const STALL: Duration = Duration::from_millis(300);
    let server = Server::start(|stream, _| {
        let mut stalled = false;
        echo(stream, |offset, _| {
            if offset >= 64 * 20 && !std::mem::replace(&mut stalled, true) {
                thread::sleep(STALL);
            }
        })
    });
    let spec = LoadSpec {
        connections: 2,
        pace: Pace::Open { messages_per_s: 400.0 },
        duration: Duration::from_millis(1000),
        ..server.spec()
    };
    let report = run(&spec);
    assert_eq!((report.invalid(), &report.failure), (None, &None), "{report:?}");
    let due = 400.0;
    let over = report.counts.messages_over as f64;
    assert!((due * 0.95..=due * 1.01).contains(&over), "{over} messages");
    // While it stalls, 0.3 s of messages come due; half of those wait for more than half of it.
    let late = {
        let total = report.latency_histogram.count();
        let within = (0..=1000u32)
            .map(|share| f64::from(share) / 1000.0)
            .filter(|share| {
                let ns = report.latency_histogram.percentile(*share).unwrap();
                ns > STALL.as_nanos() as u64 / 2
            })
            .count();
        total as f64 * within as f64 / 1000.0
    };
    // More of them on a machine that is busy with other things; a client that asks only when it has an
    // answer would have two.
    assert!(late >= 40.0, "{late} of {over} waited long");
    assert!(report.latency_ns.unwrap().max >= STALL.as_nanos() as u64);
    let delays = report.send_delay_ns.expect("of an open loop");
    assert!(delays.n > 0 && delays.percentile["50"] < 50_000_000, "{delays:?}");
}

/// However blocks and threads divide them, each connection sends from the beginning on.
#[test]
fn messages_of_small_blocks_are_due_at_once() {
    let server = Server::echo();
    let spec = LoadSpec {
        blocks: 7,
        block_interval: Duration::ZERO,
        threads: 4,
        // One in 100 s on each connection, of which the first is due when its block stands.
        pace: Pace::Open { messages_per_s: 0.07 },
        sends: Some(1),
        ..server.spec()
    };
    assert_clean(&run(&spec), 7, 1);
}

#[test]
fn messages_that_were_due_and_could_not_be_sent_are_counted() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let spec = LoadSpec {
        connections: 4,
        pace: Pace::Open { messages_per_s: 200.0 },
        duration: 2 * INSTANT,
        drain: Duration::ZERO,
        ..LoadSpec::new(listener.local_addr().unwrap())
    };
    let report = run(&spec);
    assert_eq!(report.messages_unanswered, 4, "{report:?}");
    let due = report.messages_due_unsent + 4;
    assert!((70..=81).contains(&due), "of 80: {due}");
}

#[test]
fn a_sink_gets_every_byte_and_answers_none() {
    let received = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&received);
    let server = Server::start(move |mut stream, _| {
        let count = io::copy(&mut stream, &mut io::sink())?;
        counted.fetch_add(count, SeqCst);
        Ok(())
    });
    let spec = LoadSpec {
        connections: 3,
        outstanding: 8,
        one_way: true,
        sizes: Sizes::of(50_000),
        duration: INSTANT,
        ..server.spec()
    };
    let report = run(&spec);
    assert_eq!((report.invalid(), &report.failure), (None, &None), "{report:?}");
    assert_eq!((report.counts.finished, report.counts.bytes_received), (3, 0));
    assert!(report.counts.messages_over > 3);
    drop(server);
    assert_eq!(received.load(SeqCst), report.counts.bytes_sent);
}

#[test]
fn a_stop_ends_it_in_order() {
    let server = Server::echo();
    let spec = LoadSpec {
        connections: 20,
        duration: Duration::from_secs(600),
        interval: Some(Duration::from_millis(50)),
        ..server.spec()
    };
    let (stop, began) = (Stop::new(), Instant::now());
    let report = load(&spec, &stop, |event| {
        if matches!(event, Event::Interval(progress) if progress.messages > 0) {
            stop.request(StopReason::Asked);
        }
    })
    .unwrap();
    assert!(began.elapsed() < SOON);
    assert_eq!((report.ended_by, report.invalid()), (EndedBy::Asked, None), "{report:?}");
    assert_eq!((report.counts.finished, report.messages_unanswered), (20, 0));
}

#[test]
fn the_report_is_one_document_without_a_nan() {
    let server = Server::echo();
    let report = run(&LoadSpec { sends: Some(3), ..server.spec() });
    let value = serde_json::to_value(&report).expect("it can be written");
    assert_eq!(value["messages_over"], 3, "{value}");
    assert!(value["latency_ns"]["percentile"]["99.9"].is_u64(), "{value}");
    assert_eq!(value["ended_by"], "connections");
}

/// Moves the calling thread, and those that it starts, into a network of its own, in which a source
/// address has 10 ports. It is gone when they are.
fn with_few_ports() -> io::Result<()> {
    // SAFETY: takes a number and touches no memory of ours.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let up = std::process::Command::new("ip").args(["link", "set", "lo", "up"]).status()?;
    assert!(up.success(), "ip: {up}");
    std::fs::write("/proc/sys/net/ipv4/ip_local_port_range", "40000 40009")
}

#[test]
fn where_ports_run_out_further_addresses_are_taken() {
    let alone = thread::spawn(|| {
        if let Err(why) = with_few_ports() {
            let required = std::env::var("WEIR_REQUIRE").unwrap_or_default();
            assert_ne!(required, "all", "required by WEIR_REQUIRE, but there is no network: {why}");
            eprintln!("not run: no network of its own: {why}");
            return;
        }
        // Outside of the range of what is chosen, so that it takes none.
        let listener = TcpListener::bind("127.0.0.1:5150").unwrap();
        let server = Server::listening(listener, |stream, _| echo(stream, |_, _| {}));
        let spec = LoadSpec { connections: 35, threads: 2, duration: INSTANT, ..server.spec() };
        let report = run(&spec);
        assert_eq!((report.counts.finished, report.invalid()), (35, None), "{report:?}");
        assert!((4..=5).contains(&report.source_addresses), "{}", report.source_addresses);

        // IPv6 has one address of loopback.
        let listener = TcpListener::bind("[::1]:5151").unwrap();
        let server = Server::listening(listener, |stream, _| echo(stream, |_, _| {}));
        let report = run(&LoadSpec { connections: 15, duration: INSTANT, ..server.spec() });
        assert_eq!((report.counts.finished, report.counts.connect_failed), (10, 5), "{report:?}");
        let (cause, count) = report.errors.by_count()[0];
        assert!(cause.contains("port") && count == 5, "{cause}");
    });
    alone.join().unwrap();
}

/// A file that is removed with it.
struct Temporary(PathBuf);

impl Temporary {
    fn of(bytes: &[u8]) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let (process, number) = (std::process::id(), NUMBER.fetch_add(1, SeqCst));
        let path = std::env::temp_dir().join(format!("weir-load-test-{process}-{number}"));
        std::fs::write(&path, bytes).unwrap();
        Self(path)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn some_bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8 ^ (at / 4096) as u8).collect()
}

#[test]
fn a_file_is_sent_and_what_comes_back_is_compared_with_it() {
    let server = Server::echo();
    for (len, sends, outstanding, by, half_close) in [
        (1, 3, 1, FileBy::Sendfile, false),
        (100, 2, 2, FileBy::Copy, true),
        (3_000_000, 1, 1, FileBy::Sendfile, true),
        (1_500_001, 3, 2, FileBy::Sendfile, false),
        (1_500_001, 2, 2, FileBy::Copy, false),
    ] {
        let file = Temporary::of(&some_bytes(len));
        let spec = LoadSpec {
            connections: 4,
            threads: 2,
            file: Some(file.0.clone()),
            file_by: by,
            sends: Some(sends),
            outstanding,
            half_close,
            ..server.spec()
        };
        let report = run(&spec);
        assert_clean(&report, 4, sends);
        assert_eq!(report.counts.bytes_received, 4 * sends * len as u64);
        assert_eq!((report.message_bytes_min, report.message_bytes_max), (len as u64, len as u64));
    }
}

#[test]
fn a_byte_of_a_file_that_was_changed_on_the_way_is_found() {
    const PLACE: u64 = 1_234_567;
    let server = Server::start(|stream, _| {
        echo(stream, |offset, bytes| {
            if let Some(at) = PLACE.checked_sub(offset)
                && let Some(byte) = bytes.get_mut(at as usize)
            {
                *byte ^= 0x10;
            }
        })
    });
    let bytes = some_bytes(1_000_000);
    let file = Temporary::of(&bytes);
    let spec = LoadSpec { file: Some(file.0.clone()), sends: Some(2), ..server.spec() };
    let report = run(&spec);
    let wrong = report.wrong_bytes.expect("it is found");
    assert_eq!(wrong.offset, PLACE, "in the second copy of the file");
    let expected = bytes[PLACE as usize % bytes.len()];
    assert_eq!((wrong.expected, wrong.found), (Some(expected), expected ^ 0x10));
    assert_eq!((report.counts.wrong, report.failure.is_some()), (1, false), "{report:?}");
}

/// What is cut off while it is sent is no fault of the server.
#[test]
fn a_file_that_is_truncated_while_it_is_sent_fails_the_load() {
    for by in [FileBy::Sendfile, FileBy::Copy] {
        let file = Temporary::of(&some_bytes(64 << 20));
        let path = file.0.clone();
        let server = Server::start(move |stream, _| {
            echo(stream, |offset, _| {
                if offset == 0 {
                    let file = File::options().write(true).open(&path).unwrap();
                    file.set_len(1000).unwrap();
                }
            })
        });
        let file = Some(file.0.clone());
        let report = run(&LoadSpec { file, file_by: by, sends: Some(1), ..server.spec() });
        let failure = report.failure.as_deref().expect("it failed");
        assert!(failure.contains("67108864 bytes, and has 1000 now"), "{failure}");
        assert_eq!((report.counts.broken, report.counts.wrong), (1, 0), "{report:?}");
        assert_eq!(report.invalid(), None, "{report:?}");
    }
}

#[test]
fn what_is_no_file_is_refused_before_anything_is_sent() {
    let server = Server::echo();
    let empty = Temporary::of(b"");
    for (path, said) in [
        (Path::new("/no/such/file"), "No such file"),
        (Path::new("/tmp"), "directory"),
        (&empty.0, "empty"),
    ] {
        let spec = LoadSpec { file: Some(path.to_owned()), ..server.spec() };
        let error = load(&spec, &Stop::new(), |_| panic!("nothing begins")).unwrap_err();
        assert!(matches!(error, LoadError::File { .. }), "{error:?}");
        assert!(error.to_string().contains(said), "{error}");
    }
}

#[test]
fn a_file_goes_to_a_sink_too() {
    let received = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&received);
    let server = Server::start(move |mut stream, _| {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            match stream.read(&mut buffer)? {
                0 => return Ok(()),
                count => seen.fetch_add(count as u64, SeqCst),
            };
        }
    });
    let file = Temporary::of(&some_bytes(700_000));
    let spec = LoadSpec {
        connections: 3,
        file: Some(file.0.clone()),
        sends: Some(2),
        one_way: true,
        ..server.spec()
    };
    let report = run(&spec);
    assert_eq!((report.invalid(), report.counts.finished), (None, 3), "{report:?}");
    assert_eq!(report.counts.messages_over, 6);
    drop(server);
    assert_eq!(received.load(SeqCst), 6 * 700_000);
}

/// A server that answers nobody before it has seen the first message of all would wait for ever if a
/// connection were made one after the other; one that sees a second before that has found a fault.
#[test]
fn none_sends_a_second_message_before_all_have_their_first_back() {
    const ALL: u32 = 40;
    let answered = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&answered);
    let server = Server::start(move |mut stream, _| {
        let mut message = [0; 64];
        for number in 0_u32.. {
            if stream.read_exact(&mut message).is_err() {
                break;
            }
            if number == 0 {
                // The last ones are late.
                thread::sleep(Duration::from_millis(2));
                seen.fetch_add(1, SeqCst);
            } else if seen.load(SeqCst) < ALL {
                return Err(io::Error::other("one ran ahead"));
            }
            stream.write_all(&message)?;
        }
        Ok(())
    });
    let spec = LoadSpec {
        connections: ALL,
        connecting: 3,
        outstanding: 4,
        together: true,
        duration: INSTANT,
        ..server.spec()
    };
    let report = run(&spec);
    assert_eq!((report.invalid(), report.counts.connected), (None, ALL.into()), "{report:?}");
    assert_eq!(answered.load(SeqCst), ALL);
    assert!(report.counts.messages_over > u64::from(ALL), "{report:?}");
    // Without an answer none is made, and nothing is measured.
    let silent = Server::start(|mut stream, _| {
        stream.read_to_end(&mut Vec::new())?;
        Ok(())
    });
    let report = run(&LoadSpec {
        answer_timeout: INSTANT / 2,
        ..LoadSpec { target: silent.spec().target, ..spec }
    });
    assert_eq!(report.counts.unanswered, u64::from(ALL), "{report:?}");
    assert_eq!(report.counts.messages_over, 0);
}

/// Those servers say nothing before they have seen the end of what is sent.
#[test]
fn a_half_close_reaches_the_server_while_answers_are_due() {
    fn server(answered: fn(usize) -> usize) -> Server {
        Server::start(move |mut stream, _| {
            let mut all = Vec::new();
            stream.read_to_end(&mut all)?;
            stream.write_all(&all[..answered(all.len())])
        })
    }
    let spec = |server: &Server| LoadSpec {
        connections: 5,
        sizes: Sizes { least: 1, most: 900 },
        sends: Some(6),
        outstanding: 6,
        half_close: true,
        ..server.spec()
    };
    let whole = server(|bytes| bytes);
    assert_clean(&run(&spec(&whole)), 5, 6);
    let short = server(|bytes| bytes - 1);
    let report = run(&spec(&short));
    assert_eq!((report.counts.truncated, report.counts.finished), (5, 0), "{report:?}");
    assert!(report.data_errors && report.invalid().is_some());
    // One that never answers is given up like any other.
    let silent = Server::start(|mut stream, _| {
        stream.read_to_end(&mut Vec::new())?;
        thread::sleep(2 * INSTANT);
        Ok(())
    });
    let report = run(&LoadSpec { answer_timeout: INSTANT / 2, ..spec(&silent) });
    assert_eq!(report.counts.unanswered, 5, "{report:?}");
}
