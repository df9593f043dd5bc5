//! Whole floods over loopback, against a server that audits every datagram.

use std::{
    net::{IpAddr, Ipv4Addr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use serde_json::Value;
use weir_load::{
    FloodError, FloodReport, FloodSpec, Stop, StopReason,
    audit::{Audit, AuditSettings},
    clock::now_ns,
    control::{AgreedRun, Arrived, ControlServer, ControlSettings, Ending, Outstanding, Receiver},
    engine::engines,
    flood::{EndedBy, Event, Replies},
    pacing::Load,
    stamp::{self, Stamp},
};

#[path = "../../weir/src/wine.rs"]
mod wine;

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A UDP sink that shows every datagram to an auditor.
struct Sink {
    audit: Arc<Audit>,
    port: u16,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Sink {
    fn open() -> Self {
        let socket = socket2::Socket::from(UdpSocket::bind((LOOPBACK, 0)).expect("loopback"));
        socket.set_recv_buffer_size(4 << 20).expect("a receive buffer");
        // So that the thread sees the flag when nothing arrives.
        socket.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout");
        let socket = UdpSocket::from(socket);
        let port = socket.local_addr().expect("it has an address").port();
        let (audit, over) = (Audit::new(), Arc::new(AtomicBool::new(false)));
        let thread = thread::spawn({
            let (mut auditor, over) = (audit.auditor(), Arc::clone(&over));
            move || {
                let mut buffer = vec![0; 65_536];
                while !over.load(Ordering::Acquire) {
                    if let Ok(size) = socket.recv(&mut buffer) {
                        auditor.record(&buffer[..size], now_ns);
                    }
                }
            }
        });
        Self { audit, port, over, thread: Some(thread) }
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the sink did not panic");
        }
    }
}

/// The server: the sink under test and what it says on the control channel.
struct Server {
    audit: Arc<Audit>,
    port: u16,
}

impl Receiver for Server {
    fn begin(&self, run: &AgreedRun) -> Result<Vec<u16>, String> {
        let settings = AuditSettings { verify_every: 1, ..AuditSettings::for_run(run) };
        self.audit.begin(settings)?;
        Ok(vec![self.port])
    }
    fn start(&self, run: &AgreedRun) {
        self.audit.start(run.ask.run);
    }
    fn arrived(&self, run: &AgreedRun) -> Option<Arrived> {
        self.audit.arrived(run.ask.run)
    }
    fn quiet_ns(&self, run: &AgreedRun) -> u64 {
        self.audit.quiet_ns(run.ask.run)
    }
    /// What the sink has not received yet, since it has no core or since it is lost.
    fn outstanding(&self, run: &AgreedRun, sent: Option<u64>) -> Outstanding {
        let received = self.audit.received(run.ask.run);
        Outstanding { queued_bytes: None, missing: sent.map(|sent| sent.saturating_sub(received)) }
    }
    fn end(&self, run: &AgreedRun, ending: &Ending) -> Value {
        let sent = match ending {
            Ending::Signalled(end) => Some(end.sent_per_flow.as_slice()),
            Ending::NotSignalled { .. } | Ending::Stopped => None,
        };
        let report = self.audit.end(run.ask.run, sent).expect("the run is open");
        serde_json::to_value(report).expect("it can be written")
    }
}

fn server() -> (Sink, ControlServer) {
    server_with(ControlSettings::default())
}

/// Longer than a sink may have no core: what is on its way to it is not given up.
const PATIENCE: Duration = Duration::from_secs(60);

/// The same of an echo that leaves some unanswered: all of it is waited for.
const MISSING_WITHIN: Duration = Duration::from_secs(10);

/// One for floods of which the socket holds all.
fn patient_server() -> (Sink, ControlServer) {
    server_with(ControlSettings {
        missing_given_up_after: PATIENCE,
        quiet_within: PATIENCE,
        ..ControlSettings::default()
    })
}

fn server_with(settings: ControlSettings) -> (Sink, ControlServer) {
    let sink = Sink::open();
    let server = Arc::new(Server { audit: Arc::clone(&sink.audit), port: sink.port });
    let control = ControlServer::bind((LOOPBACK, 0).into(), settings, server)
        .expect("loopback can be listened on");
    (sink, control)
}

fn spec(control: &ControlServer) -> FloodSpec {
    FloodSpec {
        control: Some(control.local_address()),
        // Reached only by a test that fails.
        duration: Duration::from_secs(120),
        ..FloodSpec::new(LOOPBACK)
    }
}

fn run(spec: &FloodSpec) -> FloodReport {
    weir_load::flood(spec, &Arc::default(), |_| {}).expect("the flood can begin")
}

/// One in whose warm-up something was sent: on a busy machine a generator may have no core for so long.
fn run_with_a_warm_up(spec: &FloodSpec) -> FloodReport {
    let mut runs = std::iter::repeat_with(|| run(spec)).take(100);
    runs.find(|report| report.warm_up_sent > 0).expect("there is a warm-up")
}

fn check_account(report: &FloodReport) {
    assert_eq!(report.failure, None);
    assert_eq!(report.offered, report.sent + report.refused);
    assert_eq!(report.sent_per_flow.iter().sum::<u64>(), report.sent);
    let account = report.report.as_ref().expect("the server reports");
    let of = |name: &str| account[name].as_u64().unwrap_or_else(|| panic!("{name}: {account}"));
    assert_eq!(of("received") + of("lost"), report.sent, "{account}");
    for nothing in
        ["duplicates", "wrong_size", "corrupt_bodies", "corrupt_headers", "strangers", "untracked"]
    {
        assert_eq!(of(nothing), 0, "{nothing}: {account}");
    }
}

/// Datagrams of 64 bytes that a socket with the system's usual buffer holds.
const FEW: u64 = 200;

#[test]
fn every_engine_is_accounted_for_to_the_last_datagram() {
    let (_sink, control) = patient_server();
    for engine in engines().iter().filter(|about| about.probe().is_ok()) {
        let report = run(&FloodSpec {
            engine: Some(engine.name.into()),
            flows: 3,
            // So few that the socket holds them all, however late its thread has its turn.
            datagrams: Some(FEW),
            load: Load::Paced { datagrams_per_s: 20_000.0 },
            ..spec(&control)
        });
        check_account(&report);
        assert_eq!((report.engine, report.ended_by), (engine.name, EndedBy::Datagrams));
        assert_eq!((report.offered, report.flows), (FEW, 3));
        let account = report.report.expect("the server reports");
        assert_eq!(account["lost"], 0, "{account}");
        assert_eq!(account["bodies_checked"], FEW, "{account}");
        assert!(account["latency_ns"]["p50"].as_u64().expect("taken") > 0);
    }
}

#[test]
fn at_saturation_and_with_a_warm_up_the_account_balances() {
    let (_sink, control) = server();
    let spec = FloodSpec {
        duration: Duration::from_millis(200),
        warm_up: Duration::from_millis(50),
        generators: 2,
        flows: 2,
        ..spec(&control)
    };
    let report = run_with_a_warm_up(&spec);
    check_account(&report);
    assert_eq!((report.flows, report.ended_by), (4, EndedBy::Time));
    assert!(report.windows.is_none());
}

#[test]
fn sizes_without_room_for_a_stamp_are_counted() {
    let (_sink, control) = patient_server();
    for size_bytes in [0, 1, 31, 32] {
        let report = run(&FloodSpec {
            size_bytes,
            datagrams: Some(100),
            load: Load::Paced { datagrams_per_s: 10_000.0 },
            ..spec(&control)
        });
        check_account(&report);
        let account = report.report.expect("the server reports");
        assert_eq!(account["received"], 100);
        assert_eq!(account["unstamped"], if size_bytes < 32 { 100 } else { 0 });
    }
}

#[test]
fn a_warm_up_without_stamps_is_no_part_of_the_run() {
    let (_sink, control) = patient_server();
    for size_bytes in [0, 16] {
        let spec = FloodSpec {
            size_bytes,
            warm_up: Duration::from_millis(20),
            datagrams: Some(100),
            load: Load::Paced { datagrams_per_s: 5_000.0 },
            ..spec(&control)
        };
        let report = run_with_a_warm_up(&spec);
        check_account(&report);
        let account = report.report.expect("the server reports");
        assert_eq!((&account["received"], &account["lost"]), (&100.into(), &0.into()), "{account}");
        assert_eq!(account["warm_up"], report.warm_up_sent, "{account}");
    }
}

#[test]
fn a_run_ends_while_another_goes_on() {
    // If a run waited for the quiet of the whole server, its report would come too late.
    let settings = ControlSettings {
        quiet_within: 10 * PATIENCE,
        drained_after: Duration::from_millis(100),
        missing_given_up_after: PATIENCE,
        ..Default::default()
    };
    let (_sink, control) = server_with(settings);
    let (stop, long) = (Arc::new(Stop::new()), spec(&control));
    let (began, begins) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        let other = scope.spawn({
            let stop = Arc::clone(&stop);
            move || {
                let spec = FloodSpec {
                    run: 21,
                    // Never quiet, and so few that none is lost where the sink has no core for seconds.
                    load: Load::Paced { datagrams_per_s: 200.0 },
                    interval: Some(Duration::from_millis(20)),
                    duration: Duration::from_secs(60),
                    ..long
                };
                weir_load::flood(&spec, &stop, |event| {
                    if let Event::Interval(_) = event {
                        // Whoever waits needs the first one only.
                        let _ = began.send(());
                    }
                })
            }
        });
        begins.recv().expect("the other flood is on");
        let report = run(&FloodSpec {
            run: 22,
            datagrams: Some(100),
            warm_up: Duration::from_millis(10),
            load: Load::Paced { datagrams_per_s: 5_000.0 },
            ..spec(&control)
        });
        let other_is_on = !other.is_finished();
        stop.request(StopReason::Asked);
        let other = other.join().expect("no panic").expect("the flood can begin");
        assert!(other_is_on, "the floods overlapped");
        for report in [report, other] {
            assert_eq!(report.failure, None);
            let account = report.report.expect("the server reports");
            assert_eq!(account["received"].as_u64(), Some(report.sent), "{account}");
        }
    });
}

#[test]
fn several_generators_of_their_own_are_accounted_for_one_by_one() {
    let (_sink, control) = patient_server();
    let spec = spec(&control);
    let reports: Vec<FloodReport> = thread::scope(|scope| {
        let flood = |run_id| {
            let spec = FloodSpec {
                run: run_id,
                datagrams: Some(FEW / 4),
                load: Load::Paced { datagrams_per_s: 5_000.0 },
                ..spec.clone()
            };
            scope.spawn(move || run(&spec))
        };
        let floods = [flood(11), flood(12), flood(13)];
        floods.into_iter().map(|flood| flood.join().expect("no panic")).collect()
    });
    for report in &reports {
        // Another run's late datagrams may be strangers to one that is still open.
        let account = report.report.as_ref().expect("the server reports");
        assert_eq!((report.sent, account["received"].as_u64()), (FEW / 4, Some(FEW / 4)));
        assert_eq!(account["duplicates"], 0);
    }
}

#[test]
fn a_stop_ends_it_with_the_whole_report() {
    let (_sink, control) = server();
    let spec = FloodSpec { interval: Some(Duration::from_millis(20)), ..spec(&control) };
    let stop = Arc::new(Stop::new());
    let mut intervals = 0;
    let report = weir_load::flood(&spec, &stop, |event| match event {
        Event::Ready(settings) => assert!(settings.iter().any(|(name, _)| *name == "engine")),
        // Its counts are read one after the other while the flood goes on, so only those of the end must agree.
        Event::Interval(_) => {
            intervals += 1;
            if intervals == 3 {
                stop.request(StopReason::Asked);
            }
        }
    })
    .expect("the flood can begin");
    assert_eq!(report.ended_by, EndedBy::Asked);
    assert_eq!(report.offered, report.sent + report.refused);
    check_account(&report);
}

#[test]
fn without_its_control_connection_it_stops_at_once() {
    let (_sink, control) = server();
    let spec = FloodSpec { interval: Some(Duration::from_millis(20)), ..spec(&control) };
    let mut control = Some(control);
    let report = weir_load::flood(&spec, &Arc::default(), |event| {
        // On a busy machine the generator may have had no core in the first ones.
        if let Event::Interval(progress) = event
            && progress.sent > 0
        {
            drop(control.take());
        }
    })
    .expect("the flood can begin");
    assert_eq!(report.ended_by, EndedBy::ControlLost);
    assert!(report.sent > 0 && report.report.is_none());
    assert!(report.failure.expect("it is said").contains("control connection"));
}

#[test]
fn a_port_without_a_receiver_is_refused_and_not_lost() {
    if wine::SEND_TELLS_OF_NO_RECEIVER.is_left_out() {
        return;
    }
    // Who is connected to one receives from no other, and keeps the port from other processes.
    let elsewhere = UdpSocket::bind((LOOPBACK, 0)).expect("loopback");
    elsewhere.connect((LOOPBACK, 9)).expect("loopback");
    let port = elsewhere.local_addr().expect("it has an address").port();
    let report = run(&FloodSpec {
        ports: vec![port],
        datagrams: Some(50),
        load: Load::Paced { datagrams_per_s: 5_000.0 },
        duration: Duration::from_secs(20),
        ..FloodSpec::new(LOOPBACK)
    });
    assert_eq!((report.offered, report.failure), (50, None));
    assert!(report.refusals.connection_refused > 0);
    assert_eq!(report.refused, report.refusals.connection_refused);
    assert_eq!(report.offered, report.sent + report.refused);
}

#[test]
fn a_run_that_is_open_already_is_refused() {
    let (sink, control) = server();
    sink.audit.begin(AuditSettings::new(5, 64, 1, true)).expect("it is the first");
    let spec = FloodSpec { run: 5, ..spec(&control) };
    let error = weir_load::flood(&spec, &Arc::default(), |_| {}).expect_err("refused");
    assert!(matches!(error, FloodError::Control(_)));
    assert!(error.to_string().contains("open already"), "{error}");
}

#[test]
fn a_flood_of_which_more_arrives_than_was_agreed_is_ended() {
    let (sink, control) = server();
    let stop = Arc::new(Stop::new());
    let spec = FloodSpec {
        load: Load::Paced { datagrams_per_s: 100.0 },
        interval: Some(Duration::from_millis(20)),
        ..spec(&control)
    };
    let others = UdpSocket::bind((LOOPBACK, 0)).expect("loopback");
    let mut datagram = [0; 64];
    stamp::fill(&mut datagram);
    let mut sequence = 1 << 40;
    let report = weir_load::flood(&spec, &stop, |event| {
        // Whatever it says at its end of the channel, so much more arrives in its name.
        if let Event::Interval(_) = event {
            for _ in 0..500 {
                sequence += 1;
                Stamp { run: spec.run, flow: 0, sequence, proof: 0, due_ns: 0 }
                    .write(&mut datagram);
                others.send_to(&datagram, (LOOPBACK, sink.port)).expect("it is taken");
            }
        }
    })
    .expect("the flood can begin");
    assert_eq!(report.ended_by, EndedBy::Revoked, "{report:?}");
    assert!(report.failure.expect("it is said").contains("than was consented to"));
}

/// What an echo does wrong.
#[derive(Clone, Copy)]
enum Echo {
    /// Nothing.
    Right,
    /// Only so many bytes of each datagram come back.
    Beginning(usize),
    /// Of every so-many-th datagram nothing comes back.
    Silent(u64),
    /// The last byte of every so-many-th answer is another.
    Damaged(u64),
    /// Every so-many-th answer comes twice.
    Twice(u64),
    /// Every so-many-th answer goes to another flow, once there is one.
    ToAnother(u64),
    /// The first so many are answered; from then on the last datagram comes back again and again.
    Babbles(u64),
}

/// A server that answers, as long as it lives; it counts what it received.
struct Echoes {
    port: u16,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<u64>>,
}

impl Echoes {
    fn open(echo: Echo) -> Self {
        let socket = socket2::Socket::from(UdpSocket::bind((LOOPBACK, 0)).expect("loopback"));
        socket.set_recv_buffer_size(4 << 20).expect("a receive buffer");
        // So that the thread sees the flag when nothing arrives.
        socket.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout");
        let socket = UdpSocket::from(socket);
        let port = socket.local_addr().expect("it has an address").port();
        let over = Arc::<AtomicBool>::default();
        let ends = Arc::clone(&over);
        let thread = thread::spawn(move || {
            let (mut buffer, mut count, mut flows) = (vec![0; 65_536], 0, Vec::new());
            while !ends.load(Ordering::Acquire) {
                let Ok((size, from)) = socket.recv_from(&mut buffer) else { continue };
                count += 1;
                let is_one = |every: u64| count % every == 0;
                if let Echo::Babbles(first) = echo
                    && count > first
                {
                    while !ends.load(Ordering::Acquire) {
                        let _ = socket.send_to(&buffer[..size], from);
                    }
                }
                let (mut len, mut times, mut to) = (size, 1, from);
                match echo {
                    Echo::Beginning(most) => len = len.min(most),
                    Echo::Silent(every) if is_one(every) => times = 0,
                    Echo::Damaged(every) if is_one(every) => buffer[size - 1] ^= 1,
                    Echo::Twice(every) if is_one(every) => times = 2,
                    Echo::ToAnother(every) if is_one(every) => {
                        to = flows.iter().copied().find(|flow| *flow != from).unwrap_or(from);
                    }
                    _ => {}
                }
                if !flows.contains(&from) {
                    flows.push(from);
                }
                for _ in 0..times {
                    socket.send_to(&buffer[..len], to).expect("loopback takes it");
                }
            }
            count
        });
        Self { port, over, thread: Some(thread) }
    }

    /// Asks it so many times; gives what the generator found, and how many datagrams came.
    fn ask(mut self, change: impl FnOnce(&mut FloodSpec)) -> (FloodReport, u64) {
        let mut spec = FloodSpec {
            ports: vec![self.port],
            // An echo that has no core for a while finds all of them in its socket, and those that take the place of what
            // was given up meanwhile.
            replies: Some(Replies {
                outstanding: 16,
                another_within: PATIENCE,
                ..Replies::default()
            }),
            flows: 2,
            datagrams: Some(2000),
            // Reached only by a test that fails.
            duration: Duration::from_secs(120),
            ..FloodSpec::new(LOOPBACK)
        };
        change(&mut spec);
        let report = run(&spec);
        self.over.store(true, Ordering::Release);
        let count = self.thread.take().expect("it was not asked before").join().expect("no panic");
        (report, count)
    }
}

#[test]
fn every_answer_is_held_against_its_request() {
    for (size_bytes, reply_bytes) in [(32, None), (64, None), (1400, Some(100)), (20_000, None)] {
        let echo = reply_bytes.map_or(Echo::Right, Echo::Beginning);
        let (report, count) = Echoes::open(echo).ask(|spec| {
            spec.size_bytes = size_bytes;
            // Of large ones few find room in a socket.
            let outstanding = if size_bytes > 10_000 { 1 } else { 4 };
            spec.replies =
                Some(Replies { size_bytes: reply_bytes, outstanding, another_within: PATIENCE });
        });
        let answers = report.answers.expect("answers were expected");
        assert_eq!((report.sent, count), (2000, 2000), "{size_bytes}");
        assert_eq!((answers.answered, answers.missing, answers.received), (2000, 0, 2000));
        assert!(!answers.data_errors, "{size_bytes}: {answers:?}");
        assert_eq!(answers.size_bytes, reply_bytes.unwrap_or(size_bytes));
        let times = answers.round_trip_ns.expect("each has its time");
        assert_eq!(times.n, 2000);
        assert!(times.min > 0 && times.min <= times.max);
    }
}

#[test]
fn in_an_open_loop_requests_go_out_at_their_times_and_answers_are_taken_meanwhile() {
    let (report, count) = Echoes::open(Echo::Right).ask(|spec| {
        // With the warm-up no more than a socket holds: who has no core for a while is sent all the rest at once.
        spec.load = Load::Paced { datagrams_per_s: 5_000.0 };
        spec.warm_up = Duration::from_millis(10);
        spec.datagrams = Some(FEW / 2);
    });
    let answers = report.answers.expect("answers were expected");
    assert_eq!(answers.outstanding, None);
    // Those of the warm-up are counted nowhere else.
    assert_eq!(count, report.sent + report.warm_up_sent);
    assert_eq!((answers.answered, answers.missing), (report.sent, 0));
    assert!(!answers.data_errors, "{answers:?}");
}

#[test]
fn what_is_wrong_with_an_answer_is_found() {
    // All of what is missing for ever is waited for in the same seconds.
    let (silent, damaged, twice, short, astray) = thread::scope(|scope| {
        let [silent, damaged, twice, short, astray] = [
            Echo::Silent(500),
            Echo::Damaged(100),
            Echo::Twice(100),
            Echo::Beginning(40),
            Echo::ToAnother(2),
        ]
        .map(|echo| {
            scope.spawn(move || {
                let (report, _) = Echoes::open(echo).ask(|spec| {
                    let replies = spec.replies.as_mut().expect("answers are expected");
                    replies.another_within = MISSING_WITHIN;
                });
                report.answers.expect("answers were expected")
            })
        })
        .map(|asking| asking.join().expect("no panic"));
        (silent, damaged, twice, short, astray)
    });
    // How many were given up, and perhaps answered later, depends on when the echo had a core.
    assert_eq!((silent.answered, silent.missing, silent.data_errors), (1996, 4, false));
    assert_eq!((damaged.corrupt, damaged.data_errors), (20, true));
    assert_eq!((damaged.answered, damaged.missing), (1980, 20), "a damaged answer is none");
    assert_eq!((twice.answered, twice.data_errors), (2000, true));
    // The last request's second answer may come when nothing is waited for any more.
    assert!((19..=20).contains(&twice.duplicates), "{twice:?}");
    assert_eq!((short.wrong_size, short.answered, short.data_errors), (2000, 0, true));
    assert!(astray.forged > 0 && astray.data_errors, "{astray:?}");
    assert_eq!(astray.answered + astray.missing, 2000);
}

#[test]
fn a_server_that_never_falls_silent_is_not_listened_to_for_ever() {
    let (report, _) = Echoes::open(Echo::Babbles(100)).ask(|spec| {
        (spec.flows, spec.datagrams) = (1, Some(150));
        spec.replies = Some(Replies {
            outstanding: 200,
            another_within: MISSING_WITHIN,
            ..Replies::default()
        });
    });
    let answers = report.answers.expect("answers were expected");
    assert_eq!((answers.answered, answers.missing), (101, 49), "the last one is an answer once");
    assert!(answers.duplicates > 0 && answers.data_errors, "{answers:?}");
}

#[test]
fn what_comes_after_the_last_request_is_an_answer_but_no_rate() {
    let (report, _) = Echoes::open(Echo::Right).ask(|spec| {
        // All leave at once, so that none is answered before the last has left.
        (spec.flows, spec.datagrams) = (1, Some(1));
    });
    let answers = report.answers.expect("answers were expected");
    assert_eq!((answers.answered, answers.answered_in_time), (1, 0));
    assert!(answers.answers_per_s.abs() < f64::EPSILON, "{answers:?}");
}

#[test]
fn a_server_that_answers_nothing_is_not_asked() {
    let (_sink, control) = server();
    let spec = FloodSpec { replies: Some(Replies::default()), ..spec(&control) };
    let refused = weir_load::flood(&spec, &Arc::new(Stop::new()), |_| {});
    let error = refused.expect_err("it is a sink").to_string();
    assert!(error.contains("--echo") && error.contains("answers nothing"), "{error}");
}

#[test]
fn answers_that_could_not_be_told_apart_are_not_asked_for() {
    let check = |change: fn(&mut FloodSpec)| {
        let mut spec = FloodSpec {
            ports: vec![9],
            replies: Some(Replies::default()),
            ..FloodSpec::new(LOOPBACK)
        };
        spec.check().expect("right so far");
        change(&mut spec);
        spec.check().expect_err("refused").to_string()
    };
    assert!(check(|spec| spec.size_bytes = 31).contains("32 bytes at least"));
    let larger = check(|spec| {
        spec.replies = Some(Replies { size_bytes: Some(65), outstanding: 1, ..Replies::default() });
    });
    assert!(larger.contains("no more than its request"), "{larger}");
    let none = check(|spec| spec.replies = Some(Replies { outstanding: 0, ..Replies::default() }));
    assert!(none.contains("--outstanding"), "{none}");
    assert!(check(|spec| spec.head = "01".parse().unwrap()).contains("--head"));
    assert!(check(|spec| spec.engine = Some("xdp".into())).contains("xdp"));
}
