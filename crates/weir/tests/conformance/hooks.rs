//! What a handler is called for besides datagrams: its start, its time, and its end.

use super::support::*;
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};
use weir::{
    Error,
    limits::Limits,
    udp::{Datagram, Handler, OnPanic, Outbox, Replies, Server, Transmit},
};

pub const CHECKS: &[Check] = &[
    ("called_at_the_start_and_at_the_end", called_at_the_start_and_at_the_end),
    ("called_in_time_and_never_early", called_in_time_and_never_early),
    ("called_in_time_among_datagrams", called_in_time_among_datagrams),
    ("a_time_is_replaced_and_taken_back", a_time_is_replaced_and_taken_back),
    ("a_time_far_ahead_delays_no_stop", a_time_far_ahead_delays_no_stop),
    (
        "a_panic_at_the_start_is_an_error_of_the_start",
        a_panic_at_the_start_is_an_error_of_the_start,
    ),
    ("a_panic_in_time_ends_the_server", a_panic_in_time_ends_the_server),
    ("a_panic_may_lose_one_datagram_alone", a_panic_may_lose_one_datagram_alone),
    ("whoever_waits_for_the_end_is_told_why", whoever_waits_for_the_end_is_told_why),
];

fn limits() -> Limits {
    echo_limits().transmits_outstanding(64)
}

/// How often each call was made, over all threads.
#[derive(Default)]
struct Calls {
    made: AtomicU64,
    starts: AtomicU64,
    times: AtomicU64,
    ends: AtomicU64,
}

/// Greets at its start, and at its end.
struct Polite {
    to: SocketAddr,
    calls: Arc<Calls>,
}

impl Handler for Polite {
    fn on_start(&mut self, outbox: &mut Outbox<'_>) {
        self.calls.starts.fetch_add(1, Relaxed);
        outbox.send(Transmit::new(self.to, b"hello")).unwrap();
    }

    fn on_datagram(&mut self, _: Datagram<'_>, replies: &mut Replies<'_>) {
        replies.echo().unwrap();
    }

    fn on_stop(&mut self, outbox: &mut Outbox<'_>) {
        self.calls.ends.fetch_add(1, Relaxed);
        outbox.send(Transmit::new(self.to, b"good-bye")).unwrap();
    }
}

fn called_at_the_start_and_at_the_end(subject: &Subject) -> Result<(), Skipped> {
    let peer = &senders(1, any_port())[0];
    let (to, calls) = (peer.local_addr().unwrap(), Arc::new(Calls::default()));
    let for_threads = Arc::clone(&calls);
    let make = move |_| {
        for_threads.made.fetch_add(1, Relaxed);
        Polite { to, calls: Arc::clone(&for_threads) }
    };
    let server = subject.start(&Server::bind(any_port()).limits(limits()), make).unwrap();
    let made = calls.made.load(Relaxed);
    assert_eq!(calls.starts.load(Relaxed), made, "each thread, before the start returns");
    let at = server.local_addresses()[0];
    let mut buffer = [0; 64];
    let mut expect = |expected: &[u8]| {
        for _ in 0..made {
            let (len, from) = receive(peer, &mut buffer).expect("a greeting");
            assert_eq!((&buffer[..len], from), (expected, at));
        }
    };
    expect(b"hello");
    let sender = &senders(1, at)[0];
    sender.send_to(b"one", at).unwrap();
    assert_eq!(receive(sender, &mut [0; 64]).unwrap(), (3, at));
    assert_eq!(calls.ends.load(Relaxed), 0);
    let report = server.stop();
    assert_whole(&report);
    assert_eq!(calls.ends.load(Relaxed), made);
    expect(b"good-bye");
    assert_eq!(report.total().replies_refused, 0);
    Ok(())
}

/// Asks to be called again and again, a short time after each call.
struct Ticks {
    to: SocketAddr,
    left: u32,
    after: Duration,
    due: Instant,
    calls: Arc<Calls>,
}

impl Ticks {
    fn arm(&mut self, outbox: &mut Outbox<'_>) {
        self.due = Instant::now() + self.after;
        outbox.call_at(self.due);
        assert_eq!(outbox.called_at(), Some(self.due));
    }
}

impl Handler for Ticks {
    fn on_start(&mut self, outbox: &mut Outbox<'_>) {
        self.arm(outbox);
    }

    fn on_datagram(&mut self, _: Datagram<'_>, replies: &mut Replies<'_>) {
        replies.echo().unwrap();
    }

    fn on_time(&mut self, outbox: &mut Outbox<'_>) {
        assert!(Instant::now() >= self.due, "called early");
        assert_eq!(outbox.called_at(), None, "each time is for one call");
        self.calls.times.fetch_add(1, Relaxed);
        outbox.send(Transmit::new(self.to, b"tick")).unwrap();
        self.left -= 1;
        if self.left > 0 {
            self.arm(outbox);
        }
    }
}

const TICKS: u32 = 5;

fn ticking(
    to: SocketAddr,
    after: Duration,
) -> (Arc<Calls>, impl FnMut(usize) -> Ticks + Send + 'static) {
    let calls = Arc::new(Calls::default());
    let for_threads = Arc::clone(&calls);
    let make = move |_| {
        for_threads.made.fetch_add(1, Relaxed);
        let (due, calls) = (Instant::now(), Arc::clone(&for_threads));
        Ticks { to, left: TICKS, after, due, calls }
    };
    (calls, make)
}

/// Nothing comes: each thread sleeps, and is called all the same.
fn called_in_time_and_never_early(subject: &Subject) -> Result<(), Skipped> {
    for after in [Duration::ZERO, Duration::from_micros(300), Duration::from_millis(5)] {
        let peer = &senders(1, any_port())[0];
        let (calls, make) = ticking(peer.local_addr().unwrap(), after);
        let server = subject.start(&Server::bind(any_port()).limits(limits()), make).unwrap();
        let at = server.local_addresses()[0];
        let ticks = u64::from(TICKS) * calls.made.load(Relaxed);
        let mut buffer = [0; 64];
        for _ in 0..ticks {
            let (len, from) = receive(peer, &mut buffer).expect("a tick");
            assert_eq!((&buffer[..len], from), (&b"tick"[..], at));
        }
        let report = server.stop();
        assert_whole(&report);
        assert_eq!(calls.times.load(Relaxed), ticks);
        assert_eq!(report.total().replies_refused, 0);
    }
    Ok(())
}

/// Datagrams are served meanwhile, by whichever thread.
fn called_in_time_among_datagrams(subject: &Subject) -> Result<(), Skipped> {
    let peer = &senders(1, any_port())[0];
    let (calls, make) = ticking(peer.local_addr().unwrap(), Duration::from_millis(2));
    let server = subject.start(&Server::bind(any_port()).limits(limits()), make).unwrap();
    let at = server.local_addresses()[0];
    let sender = &senders(1, at)[0];
    let ticks = u64::from(TICKS) * calls.made.load(Relaxed);
    let mut buffer = [0; 64];
    let mut number = 0;
    until("all calls", || {
        let bytes = pattern(number, 40);
        number += 1;
        sender.send_to(&bytes, at).unwrap();
        let (len, from) = receive(sender, &mut buffer).expect("an echo");
        assert_eq!((&buffer[..len], from), (&bytes[..], at));
        calls.times.load(Relaxed) == ticks
    });
    for _ in 0..ticks {
        receive(peer, &mut buffer).expect("a tick");
    }
    let report = server.stop();
    assert_whole(&report);
    assert_eq!(report.total().datagrams, number as u64);
    Ok(())
}

/// Asks for times that it does not keep, and for one that it does.
struct Fickle {
    kept: Option<Instant>,
    calls: Arc<Calls>,
}

impl Handler for Fickle {
    fn on_datagram(&mut self, _: Datagram<'_>, replies: &mut Replies<'_>) {
        replies.echo().unwrap();
        let mut outbox = replies.outbox();
        let now = Instant::now();
        outbox.call_at(now);
        outbox.call_never();
        assert_eq!(outbox.called_at(), None);
        outbox.call_at(now + Duration::from_secs(3600));
        let kept = now + Duration::from_millis(3);
        outbox.call_at(kept);
        self.kept = Some(kept);
    }

    fn on_time(&mut self, _: &mut Outbox<'_>) {
        let kept = self.kept.take().expect("one call for each time that was kept");
        assert!(Instant::now() >= kept);
        self.calls.times.fetch_add(1, Relaxed);
    }
}

fn a_time_is_replaced_and_taken_back(subject: &Subject) -> Result<(), Skipped> {
    let calls = Arc::new(Calls::default());
    let for_threads = Arc::clone(&calls);
    let make = move |_| Fickle { kept: None, calls: Arc::clone(&for_threads) };
    let server = subject.start(&Server::bind(any_port()).limits(limits()), make).unwrap();
    let at = server.local_addresses()[0];
    let sender = &senders(1, at)[0];
    for round in 1..=3 {
        sender.send_to(b"now", at).unwrap();
        assert_eq!(receive(sender, &mut [0; 64]).unwrap(), (3, at));
        until("the call", || calls.times.load(Relaxed) == round);
    }
    assert_whole(&server.stop());
    Ok(())
}

/// Asks for a time that never comes.
struct Patient;

impl Handler for Patient {
    fn on_start(&mut self, outbox: &mut Outbox<'_>) {
        outbox.call_at(Instant::now() + Duration::from_secs(24 * 3600));
    }

    fn on_datagram(&mut self, _: Datagram<'_>, _: &mut Replies<'_>) {}

    fn on_time(&mut self, _: &mut Outbox<'_>) {
        unreachable!("it is tomorrow's");
    }
}

fn a_time_far_ahead_delays_no_stop(subject: &Subject) -> Result<(), Skipped> {
    for datagrams in [0, 1] {
        let server = subject.start(&Server::bind(any_port()), |_| Patient).unwrap();
        let at = server.local_addresses()[0];
        let sender = &senders(1, at)[0];
        for _ in 0..datagrams {
            sender.send_to(b"hello", at).unwrap();
        }
        let seen = || server.counters().iter().map(|thread| thread.datagrams).sum::<u64>();
        until("the datagrams", || seen() == datagrams);
        let since = Instant::now();
        assert_whole(&server.stop());
        assert!(since.elapsed() < PATIENCE);
    }
    Ok(())
}

/// Panics where it is told to.
struct Panics {
    at_start: bool,
}

impl Handler for Panics {
    fn on_start(&mut self, outbox: &mut Outbox<'_>) {
        assert!(!self.at_start, "{ON_PURPOSE}");
        outbox.call_at(Instant::now());
    }

    fn on_datagram(&mut self, _: Datagram<'_>, _: &mut Replies<'_>) {}

    fn on_time(&mut self, _: &mut Outbox<'_>) {
        panic!("{ON_PURPOSE}");
    }
}

fn a_panic_at_the_start_is_an_error_of_the_start(subject: &Subject) -> Result<(), Skipped> {
    let started = subject.start(&Server::bind(any_port()), |_| Panics { at_start: true });
    match started.map(drop) {
        Err(Error::HandlerPanicked { message, .. }) => assert!(message.contains(ON_PURPOSE)),
        other => panic!("{other:?}"),
    }
    Ok(())
}

fn a_panic_in_time_ends_the_server(subject: &Subject) -> Result<(), Skipped> {
    let server = subject.start(&Server::bind(any_port()), |_| Panics { at_start: false }).unwrap();
    until("the end of the server", || !server.is_running());
    let report = server.stop();
    assert!(matches!(report.failure, Some(Error::HandlerPanicked { .. })), "{:?}", report.failure);
    assert_slices(&report);
    Ok(())
}

/// More panics than receives are outstanding: each loses its own datagram, with what it was answered, and nothing else.
fn a_panic_may_lose_one_datagram_alone(subject: &Subject) -> Result<(), Skipped> {
    const ROUNDS: u64 = 100;
    const PANICS: u64 = 6;
    let handler = |_| {
        |datagram: Datagram<'_>, replies: &mut Replies<'_>| {
            if datagram.bytes[0] == 0 {
                replies.send(b"half an").unwrap();
                panic!("{ON_PURPOSE}");
            }
            replies.echo().unwrap();
        }
    };
    let server = Server::bind(any_port()).limits(limits()).on_panic(OnPanic::Drop);
    let server = subject.start(&server, handler).unwrap();
    let at = server.local_addresses()[0];
    let sender = &senders(1, at)[0];
    let mut buffer = [0; 64];
    for round in 1..=ROUNDS {
        for _ in 0..PANICS {
            sender.send_to(&[0; 20], at).unwrap();
        }
        sender.send_to(&[1; 20], at).unwrap();
        assert_eq!(receive(sender, &mut buffer).expect("an echo"), (20, at));
        assert_eq!(buffer[..20], [1; 20]);
        until("the panics", || {
            let panics = server.counters().iter().map(|thread| thread.handler_panics).sum::<u64>();
            panics == round * PANICS
        });
    }
    let report = server.stop();
    assert_whole(&report);
    assert_eq!(report.total().datagrams, ROUNDS * (PANICS + 1));
    Ok(())
}

fn whoever_waits_for_the_end_is_told_why(subject: &Subject) -> Result<(), Skipped> {
    let handler = |_| |_: Datagram<'_>, _: &mut Replies<'_>| panic!("{ON_PURPOSE}");
    let server = subject.start(&Server::bind(any_port()), handler).unwrap();
    let stopper = server.stopper();
    server.on_failure(|error| panic!("it was asked to stop: {error}"));
    let stopping = thread::spawn(move || stopper.wake());
    server.wait();
    assert_whole(&server.stop());
    stopping.join().unwrap();

    let server = subject.start(&Server::bind(any_port()), handler).unwrap();
    let (tell, told) = mpsc::channel();
    server.on_failure(move |error| tell.send(error.to_string()).unwrap());
    let at = server.local_addresses()[0];
    senders(1, at)[0].send_to(b"fail", at).unwrap();
    assert!(server.wait_for(PATIENCE), "it fails");
    let report = server.stop();
    let failure = report.failure.as_ref().expect("it failed").to_string();
    assert!(failure.contains(ON_PURPOSE), "{failure}");
    assert_eq!(told.try_recv().as_deref(), Ok(&*failure));
    assert_slices(&report);
    Ok(())
}
