//! The end of a server: asked for, under load, or by a handler that panics. Every slice comes
//! back on every path.

use super::support::*;
use std::{
    io::ErrorKind,
    net::{SocketAddr, UdpSocket},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Instant,
};
use weir::{
    Error,
    counters::Snapshot,
    udp::{Datagram, Handler, Outbox, Replies, Server},
};

pub const CHECKS: &[Check] = &[
    ("stop_at_once", stop_at_once),
    ("stop_under_load", stop_under_load),
    ("stop_while_echoing", stop_while_echoing),
    ("dropped_instead", dropped_instead),
    ("handler_panics", handler_panics),
    ("handler_panics_between_batches", handler_panics_between_batches),
    ("start_fails_half_way", start_fails_half_way),
];

/// In the original the messages that end the threads were counted as datagrams.
fn stop_at_once(subject: &Subject) -> Result<(), Skipped> {
    let mut at = any_port();
    for _ in 0..5 {
        let mut started = None;
        until("a start where a server was stopped", || {
            started = subject.try_log(&Server::bind(at), Answer::Nothing).ok();
            started.is_some()
        });
        let (server, log) = started.expect("just started");
        at = server.local_addresses()[0];
        let total = stop(server, &log);
        assert_eq!(total.datagrams, 0);
        assert_eq!(total.bytes, 0);
    }
    Ok(())
}

/// Sends as fast as it can until the server's socket has gone, or it is dropped: another check's server may have the port then.
struct Flood {
    end: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

/// Datagrams that a flood sends at most, should nobody end it.
const FLOOD_MAX: u64 = 20_000_000;

impl Flood {
    fn start(to: SocketAddr) -> Self {
        let socket = UdpSocket::bind(any_port()).unwrap();
        socket.connect(to).unwrap();
        let end = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&end);
        let thread = thread::spawn(move || {
            let by = Instant::now() + PATIENCE;
            for number in 0..FLOOD_MAX {
                let over = number % 1024 == 0 && Instant::now() > by;
                if over || ended.load(Relaxed) {
                    return;
                }
                if socket
                    .send(&number.to_le_bytes())
                    .is_err_and(|e| e.kind() == ErrorKind::ConnectionRefused)
                {
                    return;
                }
            }
        });
        Self { end, thread: Some(thread) }
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.end.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("a flood does not panic");
        }
    }
}

/// Counts, and checks that what a datagram says was said.
struct Count {
    datagrams: u64,
    wrong: u64,
    echo: bool,
    total: Arc<AtomicU64>,
}

impl Handler for Count {
    fn on_datagram(&mut self, datagram: Datagram<'_>, replies: &mut Replies<'_>) {
        self.datagrams += 1;
        self.wrong += u64::from(datagram.bytes.len() != 8 || datagram.truncated);
        if self.echo {
            let _ = replies.echo();
        }
        self.total.fetch_add(1, Relaxed);
    }
}

/// Floods a server, stops it meanwhile, and returns what it counted.
fn flooded(subject: &Subject, server: &Server, echo: bool) -> Snapshot {
    let total = Arc::new(AtomicU64::new(0));
    let of_handlers = Arc::clone(&total);
    let make = move |_| Count { datagrams: 0, wrong: 0, echo, total: Arc::clone(&of_handlers) };
    let server = subject.start(server, make).unwrap();
    let flood = Flood::start(server.local_addresses()[0]);
    until("the arrival of 3000 datagrams", || total.load(Relaxed) >= 3000);
    let since = Instant::now();
    let report = server.stop();
    assert!(since.elapsed() < PATIENCE, "the stop took {:?}", since.elapsed());
    drop(flood);
    for thread in &report.threads {
        let handler: &Count = thread.handler.get();
        assert_eq!((thread.counters.datagrams, handler.wrong), (handler.datagrams, 0));
    }
    assert_eq!(report.total().bytes, 8 * report.total().datagrams);
    assert!(report.failure.is_none(), "{}", report.failure.as_ref().unwrap());
    assert_slices(&report);
    report.total()
}

fn stop_under_load(subject: &Subject) -> Result<(), Skipped> {
    flooded(subject, &Server::bind(any_port()), false);
    Ok(())
}

fn stop_while_echoing(subject: &Subject) -> Result<(), Skipped> {
    let total = flooded(subject, &Server::bind(any_port()).limits(echo_limits()), true);
    assert!(total.replies > 0);
    assert!(total.replies + total.replies_refused <= total.datagrams);
    Ok(())
}

/// Dropping a server stops it too.
fn dropped_instead(subject: &Subject) -> Result<(), Skipped> {
    let (server, log) = subject.log(&Server::bind(any_port()));
    let to = server.local_addresses()[0];
    send_all(&senders(1, to), to, [10, 20], WINDOW, &log);
    drop(server);
    assert_left(to);
    assert_eq!(log.seen().len(), 2);
    Ok(())
}

/// Panics at a datagram, or at the end of the batch that it came in.
struct Panics {
    at: u64,
    between_batches: bool,
    total: Arc<AtomicU64>,
    /// It panicked: from then on it must be left alone.
    panicked: bool,
    called_again: Arc<AtomicBool>,
}

impl Panics {
    fn called(&self) {
        self.called_again.fetch_or(self.panicked, Relaxed);
    }

    fn panic_if(&mut self, due: bool) {
        self.panicked |= due;
        assert!(!due, "panicked {ON_PURPOSE}");
    }

    fn due(&self) -> bool {
        self.total.load(Relaxed) >= self.at
    }
}

impl Handler for Panics {
    fn on_datagram(&mut self, _: Datagram<'_>, _: &mut Replies<'_>) {
        self.called();
        self.total.fetch_add(1, Relaxed);
        self.panic_if(!self.between_batches && self.due());
    }

    fn on_batch_end(&mut self, _: &mut Outbox<'_>) {
        self.called();
        self.panic_if(self.between_batches && self.due());
    }
}

fn panicking(subject: &Subject, between_batches: bool) {
    let total = Arc::new(AtomicU64::new(0));
    let again = Arc::new(AtomicBool::new(false));
    let called_again = Arc::clone(&again);
    let make = move |_| Panics {
        at: 10,
        between_batches,
        total: Arc::clone(&total),
        panicked: false,
        called_again: Arc::clone(&called_again),
    };
    let server = subject.start(&Server::bind(any_port()), make).unwrap();
    let to = server.local_addresses()[0];
    let sender = &senders(1, to)[0];
    for number in 0..30 {
        sender.send_to(&pattern(number, 64), to).unwrap();
    }
    until("the end of the server", || !server.is_running());
    let report = server.stop();
    match &report.failure {
        Some(Error::HandlerPanicked { message, .. }) => assert!(message.contains(ON_PURPOSE)),
        other => panic!("{other:?}"),
    }
    assert!(!again.load(Relaxed), "a handler was called after it had panicked");
    assert_slices(&report);
    assert_left(to);
}

/// A handler that cannot be made is told, by an error or by its panic, and nothing of the server
/// is left.
fn start_fails_half_way(subject: &Subject) -> Result<(), Skipped> {
    let fails_at = subject.threads() as usize - 1;
    let at = UdpSocket::bind(any_port()).unwrap().local_addr().unwrap();
    let make = move |index| {
        assert!(index < fails_at, "not made {ON_PURPOSE}");
        |_: Datagram<'_>, _: &mut Replies<'_>| {}
    };
    let start = || subject.start(&Server::bind(at), make).map(drop);
    let started = catch_unwind(AssertUnwindSafe(start));
    assert!(!matches!(started, Ok(Ok(()))), "it started without its last handler");
    assert_left(at);
    Ok(())
}

fn handler_panics(subject: &Subject) -> Result<(), Skipped> {
    panicking(subject, false);
    Ok(())
}

fn handler_panics_between_batches(subject: &Subject) -> Result<(), Skipped> {
    panicking(subject, true);
    Ok(())
}
