//! Both ends over loopback, and each end against one that misbehaves.

use std::{
    io::{BufRead, BufReader, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use super::*;
use crate::stop::{Stop, StopReason};

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// The longest that anything in here may take: reached only when a test fails.
const SOON: Duration = Duration::from_secs(60);

/// A receiver that tells the test what was asked of it.
struct Recorder {
    heard: mpsc::SyncSender<Heard>,
    refuses: Option<&'static str>,
    /// Datagrams that arrived of any run.
    arrived: Arc<AtomicU64>,
}

#[derive(Debug, PartialEq)]
enum Heard {
    Begin(AgreedRun),
    Start,
    End(Ending),
    Note(String),
}

impl Recorder {
    fn tell(&self, heard: Heard) {
        // A test that has seen enough listens no more.
        let _ = self.heard.try_send(heard);
    }
}

impl Receiver for Recorder {
    fn begin(&self, run: &AgreedRun) -> Result<Vec<u16>, String> {
        self.tell(Heard::Begin(run.clone()));
        self.refuses.map_or(Ok(vec![5201]), |reason| Err(reason.into()))
    }
    fn start(&self, _: &AgreedRun) {
        self.tell(Heard::Start);
    }
    fn quiet_ns(&self, _: &AgreedRun) -> u64 {
        u64::MAX
    }
    fn end(&self, run: &AgreedRun, ending: &Ending) -> serde_json::Value {
        self.tell(Heard::End(ending.clone()));
        serde_json::json!({ "received": 41, "same_host": run.same_host })
    }
    fn set(&self, changes: &[(&str, &str)]) -> Result<Vec<InForce>, String> {
        match changes {
            [("wrong", _)] => Err("not that; spin can be changed".into()),
            _ => {
                let of = |(name, value): &(&str, &str)| InForce {
                    name: (*name).into(),
                    value: (*value).into(),
                    allowed: "anything".into(),
                };
                Ok(changes.iter().map(of).collect())
            }
        }
    }
    fn note(&self, text: &str) {
        self.tell(Heard::Note(text.into()));
    }
    fn arrived(&self, _: &AgreedRun) -> Option<Arrived> {
        let datagrams = self.arrived.load(Ordering::Relaxed);
        Some(Arrived { datagrams, bytes: datagrams * 64 })
    }
}

/// Settings under which nobody is given up who has no core for a while.
fn patient() -> ControlSettings {
    ControlSettings {
        hello_within: SOON,
        start_within: SOON,
        alive_within: SOON,
        end_grace: SOON,
        quiet_within: SOON,
        ..ControlSettings::default()
    }
}

fn patient_client() -> ClientSettings {
    ClientSettings { answer_within: SOON, ..ClientSettings::default() }
}

fn server(settings: ControlSettings) -> (ControlServer, mpsc::Receiver<Heard>) {
    server_that(None, settings)
}

fn server_that(
    refuses: Option<&'static str>,
    settings: ControlSettings,
) -> (ControlServer, mpsc::Receiver<Heard>) {
    let (heard, hears) = mpsc::sync_channel(100);
    let recorder = Arc::new(Recorder { heard, refuses, arrived: Arc::default() });
    let server = ControlServer::bind((LOOPBACK, 0).into(), settings, recorder)
        .expect("loopback can be listened on");
    (server, hears)
}

fn connect(server: &ControlServer) -> (ControlClient, Arc<Stop>) {
    let stop = Arc::new(Stop::new());
    let settings = patient_client();
    let client = ControlClient::connect(server.local_address(), &settings, Arc::clone(&stop))
        .expect("it is the same build");
    (client, stop)
}

fn ask() -> RunAsk {
    RunAsk {
        run: 7,
        warm_up_run: Some(8),
        warm_up_ms: 10,
        size_bytes: 64,
        flows: 2,
        datagrams_per_s: None,
        window_ms: 10,
        duration_ms: 1000,
        datagrams: None,
        reply_bytes: None,
        clock_offset_ns: None,
    }
}

fn end() -> RunEnd {
    RunEnd {
        run: 7,
        sent_per_flow: vec![20, 22],
        refused: 1,
        late_skipped: 0,
        cpu_ns: Some(5),
        elapsed_ns: 10,
        secret: None,
    }
}

fn until_stopped(stop: &Stop) -> StopReason {
    let deadline = std::time::Instant::now() + SOON;
    while !stop.is_requested() {
        assert!(std::time::Instant::now() < deadline, "nobody raised the flag");
        thread::yield_now();
    }
    stop.reason().expect("it has a reason")
}

/// The next thing heard that is no note.
fn next(hears: &mpsc::Receiver<Heard>) -> Heard {
    loop {
        match hears.recv_timeout(SOON).expect("something is heard") {
            Heard::Note(_) => {}
            other => return other,
        }
    }
}

#[test]
fn a_run_from_hello_to_report_and_another_after_it() {
    let (server, hears) = server(patient());
    let (client, stop) = connect(&server);
    for _ in 0..2 {
        let consent = client.ask(&ask(), LOOPBACK, &[5201]).expect("consented");
        assert_eq!((consent.address, consent.ports.as_slice()), (LOOPBACK, &[5201][..]));
        let begun = Heard::Begin(AgreedRun {
            ask: ask(),
            peer: LOOPBACK,
            local: LOOPBACK,
            same_host: true,
        });
        assert_eq!(next(&hears), begun);
        client.start(7).expect("started");
        assert_eq!(next(&hears), Heard::Start);
        let report = client.end(end()).expect("reported");
        assert_eq!(report, serde_json::json!({ "received": 41, "same_host": true }));
        assert_eq!(next(&hears), Heard::End(Ending::Signalled(end())));
    }
    drop(client);
    assert!(!stop.is_requested(), "leaving is no loss");
}

#[test]
fn two_systems_at_one_address_have_two_clocks() {
    let at = |text: &str| text.parse::<SocketAddr>().expect("an address");
    let (here, also_here, elsewhere) = (at("127.0.0.1:1"), at("127.0.0.1:2"), at("192.0.2.1:1"));
    let same = server::is_same_host;
    assert!(same(None, None, here, also_here), "no identity, one address");
    assert!(!same(None, None, elsewhere, here));
    assert!(same(Some("a"), Some("a"), elsewhere, here), "one identity, by whatever way");
    assert!(!same(Some("a"), Some("b"), here, also_here), "a tunnel");
    assert!(!same(Some("a"), None, here, also_here), "another system");
    assert!(!same(None, Some("a"), here, also_here), "another system");
}

#[test]
fn another_build_is_refused_on_either_side_and_both_can_waive_it() {
    let other = Build { version: "9.9".into(), fingerprint: Some("f00d".into()) };
    let theirs = |any_build| ClientSettings { any_build, build: other.clone(), ..patient_client() };
    let connect_to = |server: &ControlServer, settings: &ClientSettings| {
        ControlClient::connect(server.local_address(), settings, Arc::default())
    };

    let (strict, _hears) = server(patient());
    let error = connect_to(&strict, &theirs(true)).err().expect("refused by the server");
    assert!(matches!(error, ControlError::Refused { .. }), "{error}");
    assert!(error.to_string().contains("--any-build"), "{error}");

    let (lenient, _hears) = server(ControlSettings { any_build: true, ..patient() });
    let error = connect_to(&lenient, &theirs(false)).err().expect("refused by the generator");
    assert!(matches!(error, ControlError::OtherBuild(_)), "{error}");
    assert!(connect_to(&lenient, &theirs(true)).is_ok());
}

#[test]
fn the_receivers_refusal_is_told_and_the_limits_are_held() {
    let (refusing, hears) = server_that(Some("the slice is too small"), patient());
    let (client, stop) = connect(&refusing);
    let error = client.ask(&ask(), LOOPBACK, &[5201]).expect_err("refused");
    assert!(error.to_string().contains("the slice is too small"), "{error}");
    assert!(matches!(next(&hears), Heard::Begin(_)));
    assert!(!stop.is_requested(), "nothing was lost");

    let (limited, hears) = server(ControlSettings {
        datagrams_per_s_max: Some(1000.0),
        duration_max: Duration::from_secs(2),
        ..patient()
    });
    let (client, _) = connect(&limited);
    for wrong in [
        ask(),
        RunAsk { datagrams_per_s: Some(1001.0), ..ask() },
        RunAsk { datagrams_per_s: Some(5.0), duration_ms: 2001, ..ask() },
        RunAsk { datagrams_per_s: Some(5.0), warm_up_ms: 1001, ..ask() },
        RunAsk { datagrams_per_s: Some(5.0), flows: 0, ..ask() },
    ] {
        let error = client.ask(&wrong, LOOPBACK, &[]).expect_err("refused");
        assert!(matches!(error, ControlError::Refused { .. }), "{error}");
    }
    let right = RunAsk { datagrams_per_s: Some(1000.0), ..ask() };
    client.ask(&right, LOOPBACK, &[]).expect("within the limits");
    assert!(matches!(next(&hears), Heard::Begin(run) if run.ask == right));
}

#[test]
fn consent_covers_only_the_address_and_ports_it_names() {
    let (server, _hears) = server(patient());
    let elsewhere = "127.0.0.2".parse().expect("an address");
    let (client, _) = connect(&server);
    let error = client.ask(&ask(), elsewhere, &[5201]).expect_err("another address");
    assert!(error.to_string().contains("not 127.0.0.2"), "{error}");
    let (client, _) = connect(&server);
    let error = client.ask(&ask(), LOOPBACK, &[5201, 53]).expect_err("another port");
    assert!(error.to_string().contains("port 53"), "{error}");
}

/// A server that answers each line with the next of the given ones, and then closes.
fn scripted(answers: Vec<Vec<u8>>) -> SocketAddr {
    let listener = TcpListener::bind((LOOPBACK, 0)).expect("loopback can be listened on");
    let address = listener.local_addr().expect("it has an address");
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a generator connects");
        stream.set_read_timeout(Some(SOON)).expect("a timeout can be set");
        let mut lines = BufReader::new(stream.try_clone().expect("a second handle"));
        for answer in answers {
            let mut line = String::new();
            // The generator may have hung up after an answer that it did not like.
            if lines.read_line(&mut line).is_err() || stream.write_all(&answer).is_err() {
                return;
            }
        }
    });
    address
}

fn line(message: &Message) -> Vec<u8> {
    let mut line = serde_json::to_vec(message).expect("it can be written");
    line.push(b'\n');
    line
}

fn hello() -> Vec<u8> {
    line(&Message::Hello(Hello { protocol: PROTOCOL, nonce: "0".repeat(32), keyed: false }))
}

fn proof() -> Vec<u8> {
    line(&Message::Proof(Proof::default()))
}

/// Somebody listens there and says nothing, as any other server does that waits for its client to speak.
#[test]
fn whoever_hears_no_hello_is_told_what_to_look_at() {
    let silent = TcpListener::bind((LOOPBACK, 0)).expect("a socket");
    let address = silent.local_addr().expect("it is bound");
    let connect = |answer_within| {
        let settings = ClientSettings { answer_within, ..ClientSettings::default() };
        ControlClient::connect(address, &settings, Arc::default()).err().expect("no hello")
    };
    // A busy system may not make the connection in that time.
    let times = [20, 1000, 20_000].map(Duration::from_millis);
    let (within, said) = times
        .into_iter()
        .map(|within| (within, connect(within)))
        .find(|(_, error)| !matches!(error, ControlError::Connect { .. }))
        .expect("somebody listens");
    let expected = format!("no hello of a weir server within {within:?}; give the address");
    assert!(said.to_string().contains(&expected), "{said}");
}

fn connect_scripted(answers: Vec<Vec<u8>>) -> Result<ControlClient, ControlError> {
    // Of whatever build the script may be.
    let settings = ClientSettings { any_build: true, ..patient_client() };
    ControlClient::connect(scripted(answers), &settings, Arc::default())
}

#[test]
fn a_server_that_claims_another_address_is_not_believed() {
    let consent = Consent {
        run: 7,
        address: "192.0.2.1".parse().expect("an address"),
        ports: vec![5201],
        datagrams_per_s_max: None,
        bits_per_s_max: None,
        duration_ms_max: 10_000,
        expires_ms: 1000,
        reply_bytes: None,
    };
    let client =
        connect_scripted(vec![hello(), proof(), line(&Message::Consent(consent))]).expect("hello");
    let error = client.ask(&ask(), LOOPBACK, &[5201]).expect_err("not covered");
    assert!(matches!(&error, ControlError::NotCovered { .. }), "{error}");
    assert!(error.to_string().contains("192.0.2.1"), "{error}");
}

#[test]
fn a_server_that_talks_nonsense_is_left() {
    let garbage = connect_scripted(vec![b"SSH-2.0-OpenSSH\r\n".to_vec()]).err().expect("no hello");
    assert!(matches!(garbage, ControlError::Line { .. }), "{garbage}");
    let endless = connect_scripted(vec![vec![b'x'; LINE_BYTES_MAX + 1]]).err().expect("no hello");
    assert!(
        matches!(endless, ControlError::Line { source: LineError::TooLong { .. }, .. }),
        "{endless}"
    );
    let early = connect_scripted(vec![line(&Message::Start { run: 1 })]).err().expect("no hello");
    assert!(matches!(early, ControlError::Unexpected { got: "start", .. }), "{early}");
    let gone = connect_scripted(vec![]).err().expect("no hello");
    // Closing with our hello unread may reset the connection instead.
    assert!(matches!(gone, ControlError::Closed { .. } | ControlError::Io { .. }), "{gone}");
}

#[test]
fn nobody_there_says_where_and_what_to_do() {
    // It is kept bound, or another process might listen there by then.
    let bound = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)
        .expect("a socket can be had");
    bound.bind(&SocketAddr::from((LOOPBACK, 0)).into()).expect("loopback can be bound");
    let address = bound.local_addr().ok().and_then(|at| at.as_socket()).expect("its address");
    let error = ControlClient::connect(address, &patient_client(), Arc::default())
        .err()
        .expect("nobody listens");
    let text = error.to_string();
    assert!(text.contains(&address.to_string()) && text.contains("--control"), "{text}");
}

#[test]
fn the_loss_of_the_server_raises_the_stop_flag() {
    let (server, hears) = server(patient());
    let (client, stop) = connect(&server);
    client.ask(&ask(), LOOPBACK, &[]).expect("consented");
    client.start(7).expect("started");
    drop(server);
    assert!(matches!(until_stopped(&stop), StopReason::ControlLost(_)));
    assert!(client.end(end()).is_err());
    assert!(matches!(next(&hears), Heard::Begin(_)));
    assert_eq!(next(&hears), Heard::Start);
    assert_eq!(next(&hears), Heard::End(Ending::Stopped));
}

#[test]
fn the_loss_of_the_generator_ends_the_run_without_a_signal() {
    let (server, hears) = server(patient());
    let (client, _) = connect(&server);
    client.ask(&ask(), LOOPBACK, &[]).expect("consented");
    client.start(7).expect("started");
    drop(client);
    assert!(matches!(next(&hears), Heard::Begin(_)));
    assert_eq!(next(&hears), Heard::Start);
    match next(&hears) {
        Heard::End(Ending::NotSignalled { reason }) => assert!(reason.contains("closed")),
        other => panic!("{other:?}"),
    }
    // The server goes on with the next generator.
    let (client, _) = connect(&server);
    client.ask(&ask(), LOOPBACK, &[]).expect("consented");
}

#[test]
fn consent_expires_and_silence_ends() {
    // Who is to say something in that time may not have its turn on a busy machine.
    for ms in [50, 500, 5_000] {
        if std::panic::catch_unwind(|| silence_ends(Duration::from_millis(ms))).is_ok() {
            return;
        }
    }
    silence_ends(Duration::from_secs(20));
}

fn silence_ends(short: Duration) {
    let (server, hears) = server(ControlSettings {
        start_within: short,
        hello_within: short,
        end_grace: short,
        ..patient()
    });
    let (client, stop) = connect(&server);
    client.ask(&ask(), LOOPBACK, &[]).expect("consented");
    assert!(matches!(next(&hears), Heard::Begin(_)));
    assert!(matches!(next(&hears), Heard::End(Ending::NotSignalled { .. })));
    assert!(matches!(until_stopped(&stop), StopReason::ControlLost(_)));

    let (client, stop) = connect(&server);
    client.ask(&RunAsk { duration_ms: 1, ..ask() }, LOOPBACK, &[]).expect("consented");
    client.start(7).expect("started");
    assert!(matches!(until_stopped(&stop), StopReason::ControlLost(_)));

    let mut silent = TcpStream::connect(server.local_address()).expect("it listens");
    silent.set_read_timeout(Some(SOON)).expect("a timeout can be set");
    assert_eq!(std::io::Read::read(&mut silent, &mut [0; 10]).expect("closed"), 0);
}

#[test]
fn a_generator_that_talks_nonsense_hears_why_and_is_left() {
    let (server, _hears) = server(patient());
    let mut endless = vec![b'x'; LINE_BYTES_MAX];
    endless.push(b'\n');
    for (says, hears) in [
        (b"GET / HTTP/1.1\r\n".to_vec(), "not a message"),
        (endless, "more than"),
        (line(&Message::Start { run: 7 }), "got start where hello was expected"),
    ] {
        let mut stream = TcpStream::connect(server.local_address()).expect("it listens");
        stream.set_read_timeout(Some(SOON)).expect("a timeout can be set");
        stream.write_all(&says).expect("it is read");
        let mut answer = String::new();
        BufReader::new(&stream).read_line(&mut answer).expect("an answer");
        match parse_line(answer.trim_end().as_bytes()) {
            Ok(Message::Refuse { reason }) => assert!(reason.contains(hears), "{reason}"),
            other => panic!("{other:?}"),
        }
    }
    let (client, _) = connect(&server);
    client.ask(&ask(), LOOPBACK, &[]).expect("others are served");
}

fn change(name: &str, value: &str) -> Change {
    Change { name: name.into(), value: value.into() }
}

#[test]
fn settings_are_changed_between_floods_and_by_several() {
    let (server, _hears) = server(patient());
    let ((first, _), (second, _)) = (connect(&server), connect(&server));
    for client in [&first, &second] {
        let now = client.set(vec![change("spin", "20us")]).expect("changed");
        assert_eq!((now.len(), now[0].value.as_str()), (1, "20us"));
        assert_eq!(client.set(vec![]).expect("shown"), []);
    }
    // A refusal ends nothing.
    match first.set(vec![change("wrong", "1")]) {
        Err(ControlError::Refused { reason, .. }) => assert!(reason.contains("spin"), "{reason}"),
        other => panic!("{other:?}"),
    }
    for senseless in
        [vec![change("spin", "1"); CHANGES_MAX + 1], vec![change(&"x".repeat(65), "1")]]
    {
        let refused = first.set(senseless).expect_err("refused");
        assert!(matches!(refused, ControlError::Refused { .. }), "{refused}");
    }
    first.ask(&ask(), LOOPBACK, &[]).expect("it may flood, too");
    second.set(vec![change("spin", "0")]).expect("changed while another floods");
    // On a connection with a run under way there is nothing but the run.
    assert!(first.set(vec![change("spin", "1")]).is_err());
    second.set(vec![]).expect("others are served");
}

#[test]
fn a_stranger_changes_nothing() {
    let (server, _hears) = server(patient());
    let mut stream = TcpStream::connect(server.local_address()).expect("it listens");
    stream.set_read_timeout(Some(SOON)).expect("a timeout can be set");
    let set = Message::Set { changes: vec![change("spin", "0")] };
    stream.write_all(&line(&set)).expect("it is read");
    let mut answer = String::new();
    BufReader::new(&stream).read_line(&mut answer).expect("an answer");
    assert!(answer.contains("got set where hello was expected"), "{answer}");
}

#[test]
fn an_end_for_another_number_of_flows_is_no_end() {
    let (server, hears) = server(patient());
    let (client, _) = connect(&server);
    client.ask(&ask(), LOOPBACK, &[]).expect("consented");
    client.start(7).expect("started");
    assert!(client.end(RunEnd { sent_per_flow: vec![1], ..end() }).is_err());
    assert!(matches!(next(&hears), Heard::Begin(_)));
    assert_eq!(next(&hears), Heard::Start);
    assert!(matches!(next(&hears), Heard::End(Ending::NotSignalled { .. })));
}

#[test]
fn there_are_at_most_so_many_generators_at_once() {
    let settings =
        ControlSettings { peers_max: 2, idle_grace: Duration::from_secs(3600), ..patient() };
    let (server, _hears) = server(settings);
    let (first, _) = connect(&server);
    let (_second, _) = connect(&server);
    let third = || {
        let (settings, stop) = (patient_client(), Arc::default());
        ControlClient::connect(server.local_address(), &settings, stop)
    };
    // The refusal may be overtaken by the reset that follows it.
    third().err().expect("refused");
    drop(first);
    let deadline = std::time::Instant::now() + SOON;
    while third().is_err() {
        assert!(std::time::Instant::now() < deadline, "the first one's place is free");
        thread::yield_now();
    }
}

#[test]
fn a_receiver_that_panics_does_not_leave_the_generator_flooding() {
    struct Panics;
    impl Receiver for Panics {
        fn begin(&self, _: &AgreedRun) -> Result<Vec<u16>, String> {
            Ok(vec![5201])
        }
        fn start(&self, _: &AgreedRun) {
            panic!("on purpose");
        }
        fn quiet_ns(&self, _: &AgreedRun) -> u64 {
            u64::MAX
        }
        fn end(&self, _: &AgreedRun, _: &Ending) -> serde_json::Value {
            serde_json::Value::Null
        }
    }
    let server = ControlServer::bind((LOOPBACK, 0).into(), patient(), Arc::new(Panics))
        .expect("loopback can be listened on");
    let (client, stop) = connect(&server);
    client.ask(&ask(), LOOPBACK, &[]).expect("consented");
    assert!(client.start(7).is_err());
    assert!(matches!(until_stopped(&stop), StopReason::ControlLost(_)));
}

/// A receiver that is quiet, and of whose run so much is still to come at each look.
struct Starved {
    looks: Mutex<Vec<Outstanding>>,
    heard: mpsc::SyncSender<String>,
}

impl Receiver for Starved {
    fn begin(&self, _: &AgreedRun) -> Result<Vec<u16>, String> {
        Ok(vec![5201])
    }
    fn start(&self, _: &AgreedRun) {}
    fn quiet_ns(&self, _: &AgreedRun) -> u64 {
        Duration::from_millis(30).as_nanos() as u64
    }
    fn outstanding(&self, _: &AgreedRun, sent: Option<u64>) -> Outstanding {
        if sent.is_none() {
            return Outstanding::default();
        }
        let mut looks = self.looks.lock().expect("nobody panicked");
        if looks.len() > 1 { looks.remove(0) } else { looks[0] }
    }
    fn cut_short(&self, _: &AgreedRun, reason: &str) {
        self.heard.send(reason.into()).expect("it is listened to");
    }
    fn end(&self, _: &AgreedRun, _: &Ending) -> serde_json::Value {
        self.looks.lock().expect("nobody panicked").len().into()
    }
}

/// Runs once against a server of which so much is to come at each look. Gives how many looks were
/// left, and why the run was cut short.
fn drained(looks: Vec<Outstanding>, settings: ControlSettings) -> (serde_json::Value, Vec<String>) {
    let (heard, hears) = mpsc::sync_channel(10);
    let starved = Arc::new(Starved { looks: Mutex::new(looks), heard });
    let server = ControlServer::bind((LOOPBACK, 0).into(), settings, starved)
        .expect("loopback can be listened on");
    let (client, _) = connect(&server);
    client.ask(&ask(), LOOPBACK, &[]).expect("consented");
    client.start(7).expect("started");
    let report = client.end(end()).expect("reported");
    (report, hears.try_iter().collect())
}

#[test]
fn a_run_ends_when_the_sockets_of_a_starved_server_are_empty_and_nothing_is_missing() {
    let of = |queued_bytes, missing| Outstanding { queued_bytes, missing };
    let looks = vec![
        of(Some(7000), None),
        of(Some(768), Some(9)),
        of(Some(0), Some(3)),
        of(Some(0), Some(0)),
    ];
    assert_eq!(drained(looks, patient()), (1.into(), vec![]));
}

#[test]
fn what_stays_missing_is_given_up_after_a_longer_quiet() {
    let missing = vec![Outstanding { queued_bytes: Some(0), missing: Some(1) }];
    let given_up =
        ControlSettings { missing_given_up_after: Duration::from_millis(25), ..patient() };
    assert_eq!(drained(missing, given_up), (1.into(), vec![]), "it was quiet for 30 ms");
}

#[test]
fn a_server_that_leaves_datagrams_in_its_sockets_is_waited_for_no_longer_than_that() {
    let hangs = vec![Outstanding { queued_bytes: Some(768), missing: None }];
    let settings = ControlSettings { quiet_within: Duration::from_millis(60), ..patient() };
    let (_, reasons) = drained(hangs, settings);
    assert_eq!(reasons.len(), 1);
    assert!(reasons[0].starts_with("60ms after the end of the run"), "{}", reasons[0]);
    assert!(reasons[0].contains("768 bytes"), "{}", reasons[0]);
}

/// The whole of what a connection is told, as text.
fn told(server: &ControlServer, lines: &[Vec<u8>]) -> String {
    let mut stream = TcpStream::connect(server.local_address()).expect("it listens");
    stream.set_read_timeout(Some(SOON)).expect("a timeout can be set");
    let mut answers = BufReader::new(stream.try_clone().expect("a second handle"));
    let mut said = String::new();
    for line in lines {
        stream.write_all(line).expect("it is read");
        answers.read_line(&mut said).expect("an answer");
    }
    said
}

#[test]
fn a_stranger_learns_nothing_of_the_build_or_the_key() {
    let fingerprint = "0123456789abcdef";
    let build = Build { version: "1.2.3-secret".into(), fingerprint: Some(fingerprint.into()) };
    let key = Key::new(b"a key that nobody knows").expect("long enough");
    for settings in [
        ControlSettings { build: build.clone(), ..patient() },
        ControlSettings { build: build.clone(), key: Some(key), ..patient() },
    ] {
        let keyed = settings.key.is_some();
        let (server, _hears) = server(settings);
        let said = told(&server, &[hello(), proof()]);
        assert!(said.contains(r#""message":"refuse""#), "{said}");
        assert!(said.contains(if keyed { "key" } else { "another build" }), "{said}");
        assert!(!said.contains("1.2.3") && !said.contains(fingerprint), "{said}");
        assert!(!said.contains(r#""message":"proof""#), "no hash to try builds against: {said}");
    }
}

#[test]
fn both_have_the_same_key_or_none() {
    let key = |text: &str| Some(Key::new(text.as_bytes()).expect("long enough"));
    let try_with = |server: &ControlServer, key| {
        let settings = ClientSettings { key, ..patient_client() };
        ControlClient::connect(server.local_address(), &settings, Arc::default())
    };
    let ours = "the key of both of them";
    let (keyed, _hears) = server(ControlSettings { key: key(ours), ..patient() });
    assert!(try_with(&keyed, key(ours)).is_ok());
    for (theirs, said) in [(key("the key of someone else"), "key"), (None, "--key-file")] {
        let error = try_with(&keyed, theirs).err().expect("refused");
        assert!(error.to_string().contains(said), "{error}");
    }
    let (open, _hears) = server(patient());
    let error = try_with(&open, key(ours)).err().expect("it expects one of the server");
    assert!(error.to_string().contains("has no key"), "{error}");
    // A server that only pretends to have it.
    let hello = Hello { protocol: PROTOCOL, nonce: "0".repeat(32), keyed: true };
    let address = scripted(vec![line(&Message::Hello(hello)), proof()]);
    let settings = ClientSettings { any_build: true, key: key(ours), ..patient_client() };
    let error = ControlClient::connect(address, &settings, Arc::default()).err().expect("refused");
    assert!(error.to_string().contains("another key"), "{error}");
}

#[test]
fn strangers_do_not_lock_generators_out() {
    let settings = ControlSettings {
        // No time-out helps.
        hello_within: Duration::from_secs(3600),
        ..patient()
    };
    let (most, per_address) = (settings.strangers_max, settings.strangers_per_address_max);
    let (server, _hears) = server(settings);
    let (first, _) = connect(&server);
    let connect_silently = |_| {
        let stream = TcpStream::connect(server.local_address()).expect("it listens");
        stream.set_read_timeout(Some(SOON)).expect("a timeout can be set");
        stream
    };
    let strangers: Vec<TcpStream> = (0..4 * most).map(connect_silently).collect();
    let (second, _) = connect(&server);
    for client in [&first, &second] {
        client.ask(&ask(), LOOPBACK, &[]).expect("consented");
    }
    // All but as many as one address may have were closed.
    let mut closed = 0;
    for mut stranger in &strangers[..strangers.len() - per_address] {
        let mut said = String::new();
        // A connection that is closed may be reset.
        let ended = std::io::Read::read_to_string(&mut stranger, &mut said);
        closed += usize::from(ended.is_ok() || said.contains("refuse"));
    }
    assert!(closed > 0, "they were closed to make room");
}

/// A receiver whose notes wait until the test lets them through: so a connection that was evicted ends late.
struct Gate {
    noted: mpsc::SyncSender<()>,
    through: Mutex<mpsc::Receiver<()>>,
}

impl Receiver for Gate {
    fn begin(&self, _: &AgreedRun) -> Result<Vec<u16>, String> {
        Ok(vec![5201])
    }
    fn start(&self, _: &AgreedRun) {}
    fn quiet_ns(&self, _: &AgreedRun) -> u64 {
        u64::MAX
    }
    fn end(&self, _: &AgreedRun, _: &Ending) -> serde_json::Value {
        serde_json::Value::Null
    }
    fn note(&self, _: &str) {
        let _ = self.noted.try_send(());
        // All go through once the test has dropped its end.
        let _ = self.through.lock().map(|through| through.recv());
    }
}

#[test]
fn a_generator_waits_for_those_that_were_evicted_and_is_not_closed() {
    let settings = ControlSettings {
        peers_max: 1,
        strangers_max: 1,
        hello_within: Duration::from_secs(3600),
        ..patient()
    };
    let ((noted, notes), (open, through)) = (mpsc::sync_channel(100), mpsc::channel());
    let gate = Arc::new(Gate { noted, through: Mutex::new(through) });
    let server = ControlServer::bind((LOOPBACK, 0).into(), settings, gate)
        .expect("loopback can be listened on");
    // Dropped before the server, also where the test fails: the server waits for its threads.
    let open = open;
    let connect_silently =
        || TcpStream::connect(server.local_address()).expect("the server listens");
    // Each takes the place of the one before, and two of them cannot end: as many as there may be are open.
    let strangers = [connect_silently(), connect_silently(), connect_silently()];
    (0..2).for_each(|_| notes.recv_timeout(SOON).expect("an evicted one is noted"));
    let generator = connect_silently();
    generator.set_read_timeout(Some(SOON)).expect("a timeout can be set");
    (&generator).write_all(&hello()).expect("it is read");
    // Nothing more is noted as long as none can end. The time is there for what would close it to happen in.
    assert!(notes.recv_timeout(Duration::from_millis(300)).is_err(), "it was closed");
    drop(open);
    let mut said = String::new();
    BufReader::new(&generator).read_line(&mut said).expect("an answer");
    assert!(said.contains("hello"), "{said:?}");
    drop(strangers);
}

#[test]
fn strangers_are_not_counted_as_generators() {
    let (server, _hears) = server(patient());
    let stranger = TcpStream::connect(server.local_address()).expect("it listens");
    let (client, _) = connect(&server);
    // They are accepted in the order in which they came, so that both are there.
    assert_eq!(server.peers(), 1);
    let deadline = std::time::Instant::now() + SOON;
    drop(client);
    while server.peers() > 0 {
        assert!(std::time::Instant::now() < deadline, "it has left");
        thread::yield_now();
    }
    drop(stranger);
}

#[test]
fn a_stranger_says_little_before_it_has_introduced_itself() {
    let (server, _hears) = server(patient());
    let mut long = vec![b'x'; STRANGERS_LINE_BYTES_MAX + 1];
    long.push(b'\n');
    let said = told(&server, &[long]);
    assert!(said.contains(&format!("more than {STRANGERS_LINE_BYTES_MAX}")), "{said}");
}

#[test]
fn rates_are_limited_over_all_generators() {
    let (server, _hears) = server(ControlSettings {
        datagrams_per_s_max: Some(1000.0),
        bits_per_s_max: Some(1000.0 * 64.0 * 8.0),
        ..patient()
    });
    let of = |datagrams_per_s| RunAsk { datagrams_per_s: Some(datagrams_per_s), ..ask() };
    let (first, _) = connect(&server);
    let (second, _) = connect(&server);
    let consent = first.ask(&of(600.0), LOOPBACK, &[]).expect("it is the first");
    assert_eq!(consent.datagrams_per_s_max, Some(600.0), "no more than it asked for");
    assert_eq!(consent.bits_per_s_max, Some(600.0 * 64.0 * 8.0));
    let error = second.ask(&of(500.0), LOOPBACK, &[]).expect_err("more than is left");
    assert!(error.to_string().contains("600"), "{error}");
    second.ask(&of(400.0), LOOPBACK, &[]).expect("what is left");
    first.start(7).expect("started");
    first.end(end()).expect("reported");
    first.ask(&of(500.0), LOOPBACK, &[]).expect("its own share came back");

    let large = RunAsk { size_bytes: 65, ..of(1000.0) };
    let (third, _) = connect(&server);
    let error = third.ask(&large, LOOPBACK, &[]).expect_err("too many bits");
    assert!(error.to_string().contains("--bitrate"), "{error}");
}

#[test]
fn consent_is_revoked_where_more_arrives_than_was_asked_for() {
    let (heard, hears) = mpsc::sync_channel(100);
    let arrived = Arc::<AtomicU64>::default();
    let recorder = Recorder { heard, refuses: None, arrived: Arc::clone(&arrived) };
    let server = ControlServer::bind((LOOPBACK, 0).into(), patient(), Arc::new(recorder))
        .expect("loopback can be listened on");
    let (client, stop) = connect(&server);
    let ask = RunAsk { datagrams_per_s: Some(10.0), duration_ms: 600_000, ..ask() };
    client.ask(&ask, LOOPBACK, &[]).expect("consented");
    client.start(7).expect("started");
    assert!(!stop.is_requested());
    arrived.store(1_000_000, Ordering::Relaxed);
    match until_stopped(&stop) {
        StopReason::Revoked(reason) => assert!(reason.contains("datagrams"), "{reason}"),
        other => panic!("{other:?}"),
    }
    assert!(matches!(next(&hears), Heard::Begin(_)));
    assert_eq!(next(&hears), Heard::Start);
    match next(&hears) {
        Heard::End(Ending::NotSignalled { reason }) => {
            assert!(reason.contains("the consent to 127.0.0.1"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_server_that_gives_no_sign_is_lost_while_signs_are_due() {
    // It answers everything that it is asked, and then nothing more.
    let consent = Consent {
        run: 7,
        address: LOOPBACK,
        ports: vec![5201],
        datagrams_per_s_max: None,
        bits_per_s_max: None,
        duration_ms_max: 10_000,
        expires_ms: 1000,
        reply_bytes: None,
    };
    let silent = TcpListener::bind((LOOPBACK, 0)).expect("loopback can be listened on");
    let address = silent.local_addr().expect("it has an address");
    let server = thread::spawn(move || {
        let (mut stream, _) = silent.accept().expect("a generator connects");
        let mut lines = BufReader::new(stream.try_clone().expect("a second handle"));
        for answer in [hello(), proof(), line(&Message::Consent(consent))] {
            lines.read_line(&mut String::new()).expect("a line");
            stream.write_all(&answer).expect("it is read");
        }
        // Until the generator hangs up.
        let mut rest = String::new();
        lines.read_line(&mut rest).map(|_| rest)
    });
    let (settings, stop) =
        (ClientSettings { any_build: true, ..patient_client() }, Arc::new(Stop::new()));
    let client = ControlClient::connect(address, &settings, Arc::clone(&stop)).expect("hello");
    client.ask(&ask(), LOOPBACK, &[]).expect("consented");
    let lease = client.lease();
    let _armed = lease.arm(crate::clock::now_ns());
    match until_stopped(&stop) {
        StopReason::ControlLost(why) => assert!(why.contains("no sign of the server"), "{why}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(server.join().expect("no panic").unwrap_or_default(), "", "it hung up");
}

#[test]
fn a_server_renews_as_long_as_a_run_is_on() {
    let settings = ControlSettings { renew_every: Duration::from_millis(1), ..patient() };
    let (server, _hears) = server(settings);
    let (client, stop) = connect(&server);
    client.ask(&ask(), LOOPBACK, &[]).expect("consented");
    let lease = client.lease();
    let deadline = std::time::Instant::now() + SOON;
    // The consent has been heard, and nothing but renewals follows it.
    let mut sign_ns = lease.sign_ns();
    for _ in 0..2 {
        while lease.sign_ns() == sign_ns {
            assert!(std::time::Instant::now() < deadline, "no renewal");
            thread::yield_now();
        }
        sign_ns = lease.sign_ns();
    }
    assert!(!stop.is_requested());
}

#[test]
fn a_generator_that_answers_no_renewal_is_gone() {
    let settings = ControlSettings {
        any_build: true,
        renew_every: Duration::from_millis(1),
        look_every: Duration::from_millis(1),
        alive_within: Duration::from_millis(50),
        ..patient()
    };
    let (server, hears) = server(settings);
    let mut stream = TcpStream::connect(server.local_address()).expect("it listens");
    // At once, so that it is not given up between two of them.
    let asks = line(&Message::Ask(RunAsk { warm_up_ms: 0, ..ask() }));
    let all = [hello(), proof(), asks, line(&Message::Start { run: 7 })].concat();
    stream.write_all(&all).expect("it is read");
    assert!(matches!(next(&hears), Heard::Begin(_)));
    assert_eq!(next(&hears), Heard::Start);
    match next(&hears) {
        Heard::End(Ending::NotSignalled { reason }) => assert!(reason.contains("sign of life")),
        other => panic!("{other:?}"),
    }
}
