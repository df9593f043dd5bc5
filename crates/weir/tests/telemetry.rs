//! What servers tell `tracing`, and hand to a recorder of `metrics`: with a subscriber and a recorder of the test's own.

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
    io::{Read, Write},
    net::{TcpStream, UdpSocket},
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};
use weir::{
    filter::{ConnectionLimit, Filter},
    tcp::{self, Output},
    udp::{self, Datagram, Replies},
};

/// Time limits only catch hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Every event of weir, as one line: its level, its text, its fields.
#[derive(Default)]
struct Told {
    lines: Mutex<Vec<String>>,
    came: Condvar,
}

impl Told {
    /// Waits for a line that contains all of these.
    #[track_caller]
    fn wait_for(&self, words: &[&str]) {
        let is_it = |line: &String| words.iter().all(|word| line.contains(word));
        let lines = self.lines.lock().unwrap();
        let wanting = |lines: &mut Vec<String>| !lines.iter().any(is_it);
        let (lines, waited) = self.came.wait_timeout_while(lines, PATIENCE, wanting).unwrap();
        assert!(!waited.timed_out(), "nobody told {words:?}, but: {lines:#?}");
    }
}

struct Collector(Arc<Told>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = write!(self.0, " {}={value:?}", field.name());
    }
}

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "weir"
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.0.lines.lock().unwrap().push(line.0);
        self.0.came.notify_all();
    }
}

/// One subscriber for the whole program, as threads of servers have no other.
#[test]
fn events_tell_of_what_happens_to_a_server() {
    let told = Arc::new(Told::default());
    tracing::subscriber::set_global_default(Collector(Arc::clone(&told))).unwrap();

    // A filter that lets one connection in.
    let filter = ConnectionLimit::new(1, 1);
    let server = tcp::Server::bind("127.0.0.1:0".parse().unwrap())
        .start(
            tcp::AnyDesign::parse("blocking").unwrap(),
            filter.handlers(|_| |_: &mut [u8], output: &mut Output<'_>| output.echo().unwrap()),
        )
        .unwrap();
    let at = server.local_addresses()[0];
    told.wait_for(&["INFO", "a server of TCP runs", &at.to_string(), "(\"design\", \"blocking\")"]);
    told.wait_for(&["DEBUG", "a thread of the server begins"]);
    let mut client = TcpStream::connect(at).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(b"!").unwrap();
    client.read_exact(&mut [0]).unwrap();
    told.wait_for(&["DEBUG", "a connection begins", &client.local_addr().unwrap().to_string()]);
    let mut second = TcpStream::connect(at).unwrap();
    second.set_read_timeout(Some(PATIENCE)).unwrap();
    second.read_to_string(&mut String::new()).unwrap();
    told.wait_for(&["DEBUG", "a filter shuts a connection down", "the most allowed"]);
    drop((client, second));
    told.wait_for(&["DEBUG", "a connection has ended", "both sides had finished sending"]);
    assert!(server.stop().failure.is_none());
    told.wait_for(&["INFO", "the server stops"]);
    told.wait_for(&["DEBUG", "a thread of the server ends"]);

    // A limit of the server's own.
    let limits = tcp::Limits::default().connections(1);
    let server = tcp::Server::bind("127.0.0.1:0".parse().unwrap())
        .limits(limits)
        .start(tcp::AnyDesign::parse("blocking").unwrap(), |_| {
            |_: &mut [u8], output: &mut Output<'_>| output.echo().unwrap()
        })
        .unwrap();
    let at = server.local_addresses()[0];
    let mut client = TcpStream::connect(at).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(b"!").unwrap();
    client.read_exact(&mut [0]).unwrap();
    let refused = TcpStream::connect(at).unwrap();
    told.wait_for(&["DEBUG", "a connection is refused: a limit is reached", "1 connections"]);
    drop((client, refused));
    assert!(server.stop().failure.is_none());

    // The hybrid, which changes what it does while it runs.
    let server = udp::Server::bind("127.0.0.1:0".parse().unwrap())
        .start(udp::AnyDesign::parse("rio-hybrid --threads 1").unwrap(), |_| {
            |_: Datagram<'_>, _: &mut Replies<'_>| {}
        })
        .unwrap();
    told.wait_for(&["INFO", "a server of UDP runs", "(\"design\", \"rio-hybrid\")"]);
    told.wait_for(&["TRACE", "polling no longer pays"]);
    server.tune("spin", 0).unwrap();
    told.wait_for(&["INFO", "a setting was changed", "name=\"spin\" value=0"]);
    server.set(&[("threshold", "7")]).unwrap();
    told.wait_for(&["INFO", "settings were changed", "[(\"threshold\", \"7\")]"]);
    assert!(server.stop().failure.is_none());

    // A handler that panics.
    let server = udp::Server::bind("127.0.0.1:0".parse().unwrap())
        .start(udp::AnyDesign::parse("blocking").unwrap(), |_| {
            |_: Datagram<'_>, _: &mut Replies<'_>| panic!("on purpose")
        })
        .unwrap();
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    sender.send_to(b"!", server.local_addresses()[0]).unwrap();
    told.wait_for(&["ERROR", "the handler panicked", "on purpose"]);
    told.wait_for(&["ERROR", "the server fails", "on purpose"]);
    server.wait();
    assert!(server.stop().failure.is_some());
}

/// A recorder that keeps values by name and labels.
#[derive(Default)]
struct Recorder {
    values: Mutex<BTreeMap<String, Arc<AtomicU64>>>,
    described: Mutex<Vec<String>>,
}

impl Recorder {
    fn value(&self, key: &metrics::Key) -> Arc<AtomicU64> {
        let mut name = key.name().to_owned();
        for label in key.labels() {
            let _ = write!(name, " {}={}", label.key(), label.value());
        }
        Arc::clone(self.values.lock().unwrap().entry(name).or_default())
    }

    #[track_caller]
    fn get(&self, name: &str) -> u64 {
        let values = self.values.lock().unwrap();
        let value = values.get(name).unwrap_or_else(|| panic!("no {name:?} in {values:#?}"));
        value.load(Relaxed)
    }
}

impl metrics::Recorder for Recorder {
    fn describe_counter(
        &self,
        key: metrics::KeyName,
        _: Option<metrics::Unit>,
        _: metrics::SharedString,
    ) {
        self.described.lock().unwrap().push(key.as_str().to_owned());
    }

    fn describe_gauge(
        &self,
        _: metrics::KeyName,
        _: Option<metrics::Unit>,
        _: metrics::SharedString,
    ) {
    }

    fn describe_histogram(
        &self,
        _: metrics::KeyName,
        _: Option<metrics::Unit>,
        _: metrics::SharedString,
    ) {
    }

    fn register_counter(&self, key: &metrics::Key, _: &metrics::Metadata<'_>) -> metrics::Counter {
        metrics::Counter::from_arc(self.value(key))
    }

    fn register_gauge(&self, key: &metrics::Key, _: &metrics::Metadata<'_>) -> metrics::Gauge {
        metrics::Gauge::from_arc(self.value(key))
    }

    fn register_histogram(
        &self,
        _: &metrics::Key,
        _: &metrics::Metadata<'_>,
    ) -> metrics::Histogram {
        metrics::Histogram::noop()
    }
}

#[test]
fn a_recorder_has_what_servers_count() {
    let recorder = Recorder::default();
    let server = udp::Server::bind("127.0.0.1:0".parse().unwrap())
        .start(udp::AnyDesign::parse("blocking").unwrap(), |_| {
            |_: Datagram<'_>, _: &mut Replies<'_>| {}
        })
        .unwrap();
    let provider = |effective: Vec<(String, String)>| {
        effective
            .into_iter()
            .find(|(name, _)| name == "provider")
            .expect("it says on what it runs")
            .1
    };
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    let labels = format!(" design=blocking provider={} server=first", provider(server.effective()));
    for sent in 1..=3 {
        sender.send_to(b"hello", server.local_addresses()[0]).unwrap();
        while server.counters()[0].bytes < 5 * sent {
            std::thread::yield_now();
        }
        metrics::with_local_recorder(&recorder, || server.export_metrics(&[("server", "first")]));
        assert_eq!(recorder.get(&format!("weir_received_bytes_total{labels}")), 5 * sent);
    }
    assert_eq!(recorder.get(&format!("weir_datagrams_received_total{labels}")), 3);
    assert_eq!(f64::from_bits(recorder.get(&format!("weir_threads{labels}"))), 1.0);
    let damaged = format!("weir_frames_dropped_total{labels} reason=damaged");
    assert_eq!(recorder.get(&damaged), 0);
    assert!(server.stop().failure.is_none());

    let server = tcp::Server::bind("127.0.0.1:0".parse().unwrap())
        .start(tcp::AnyDesign::parse("blocking").unwrap(), |_| {
            |_: &mut [u8], output: &mut Output<'_>| output.echo().unwrap()
        })
        .unwrap();
    let mut client = TcpStream::connect(server.local_addresses()[0]).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(b"hello").unwrap();
    client.read_exact(&mut [0; 5]).unwrap();
    while server.counters().bytes_sent < 5 {
        std::thread::yield_now();
    }
    metrics::with_local_recorder(&recorder, || server.export_metrics(&[]));
    let labels = format!(" design=blocking provider={}", provider(server.effective()));
    assert_eq!(recorder.get(&format!("weir_connections_accepted_total{labels}")), 1);
    assert_eq!(recorder.get(&format!("weir_sent_bytes_total{labels}")), 5);
    assert_eq!(f64::from_bits(recorder.get(&format!("weir_connections_open{labels}"))), 1.0);
    let closed = format!("weir_connections_closed_total{labels} reason=finished");
    assert_eq!(recorder.get(&closed), 0);
    drop(client);
    assert!(server.stop().failure.is_none());
    let described = recorder.described.lock().unwrap();
    assert!(described.iter().any(|name| name == "weir_connections_closed_total"));
}
