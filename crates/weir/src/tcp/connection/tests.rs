use super::*;
use crate::{
    tcp::{Refused, Server},
    timer::TICK,
};
use proptest::prelude::*;
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

const SECOND: Duration = Duration::from_secs(1);

fn peer() -> SocketAddr {
    "192.0.2.7:4321".parse().unwrap()
}

/// Limits without times.
fn limits() -> Limits {
    Limits { silent: None, idle: None, stalled: None, ..Limits::default() }
}

/// A worker without a thread, and the moment at which its clock began, or a little later.
fn worker<H: Handler>(
    limits: Limits,
    make: impl Fn(SocketAddr) -> H + Send + Sync + 'static,
) -> (Worker<H>, Instant) {
    let worker = Server::bind(peer()).limits(limits).job(make).unwrap().worker();
    (worker, Instant::now())
}

/// Lets the clock go to a moment.
fn go<H: Handler>(worker: &mut Worker<H>, moment: Instant) {
    worker.clock.expired(moment, &mut Vec::new());
}

/// How it stands after the clock was asked, as the reason it is closed for.
fn timed<H: Handler>(connection: &mut Connection<H>, worker: &mut Worker<H>) -> Option<String> {
    connection.timed(worker);
    connection.reason.as_ref().map(|reason| reason.to_string())
}

/// Receives and sends back without a limit.
fn echoes<H: Handler>(connection: &mut Connection<H>, worker: &mut Worker<H>, bytes: &mut [u8]) {
    let echo = connection.received(worker, bytes);
    connection.echoed(worker, &bytes[..echo], echo);
}

fn echo(_: &mut [u8], output: &mut Output<'_>) {
    output.echo().unwrap();
}

fn send(bytes: &mut [u8], output: &mut Output<'_>) {
    output.send(bytes).unwrap();
}

const SILENT: &str = "nothing came from the peer for too long";
const STALLED: &str = "the peer took no output for too long";

#[test]
fn a_silent_peer_is_given_its_time_and_no_more() {
    let (mut worker, start) = worker(Limits { silent: Some(SECOND), ..limits() }, |_| echo);
    let mut connection = Connection::open(&mut worker, peer());
    assert_eq!(connection.deadline(&worker.limits), Some(Wheel::ticks(SECOND)));
    go(&mut worker, start + SECOND - 5 * TICK);
    assert_eq!(timed(&mut connection, &mut worker), None);
    go(&mut worker, start + SECOND + TICK);
    assert_eq!(timed(&mut connection, &mut worker).as_deref(), Some(SILENT));
    assert_eq!(connection.wants(&worker.limits), Wants { close: true, ..Wants::default() });
    assert!(matches!(connection.close(&mut worker), Reason::Silent));
    assert_eq!(worker.counters.closed_silent.get(), 1);
}

#[test]
fn one_that_spoke_is_given_the_other_time() {
    let with = Limits { silent: Some(SECOND), idle: Some(10 * SECOND), ..limits() };
    let (mut worker, start) = worker(with, |_| echo);
    let mut connection = Connection::open(&mut worker, peer());
    go(&mut worker, start + SECOND / 2);
    echoes(&mut connection, &mut worker, b"something".to_vec().as_mut());
    go(&mut worker, start + 10 * SECOND);
    assert_eq!(timed(&mut connection, &mut worker), None);
    go(&mut worker, start + 11 * SECOND);
    assert_eq!(timed(&mut connection, &mut worker).as_deref(), Some(SILENT));
}

#[test]
fn a_peer_that_is_not_received_from_is_not_silent() {
    let with = Limits { output_bytes: 100, idle: Some(SECOND), ..limits() };
    let (mut worker, start) = worker(with, |_| send);
    let mut connection = Connection::open(&mut worker, peer());
    assert_eq!(connection.received(&mut worker, &mut [1; 100]), 0);
    let wants = connection.wants(&worker.limits);
    assert_eq!(wants, Wants { send: true, ..Wants::default() });
    connection.note_pause(&worker, wants);
    assert_eq!(connection.deadline(&worker.limits), None);
    go(&mut worker, start + 5 * SECOND);
    assert_eq!(timed(&mut connection, &mut worker), None);
    // Its time begins when it is heard again.
    connection.sent(&mut worker, 1);
    let wants = connection.wants(&worker.limits);
    assert!(wants.receive);
    connection.note_pause(&worker, wants);
    assert_eq!(timed(&mut connection, &mut worker), None);
    go(&mut worker, start + 6 * SECOND + 2 * TICK);
    assert_eq!(timed(&mut connection, &mut worker).as_deref(), Some(SILENT));
    assert_eq!(worker.counters.pauses.get(), 1);
}

/// In each way that a design may have to send: what is left of an echo waits, what a handler sent waits,
/// and what is lent waits.
#[test]
fn output_stalls_from_when_it_began_to_wait() {
    for way in 0..4 {
        let with = Limits { stalled: Some(SECOND), ..limits() };
        let (mut worker, start) = worker(with, move |_| if way == 1 { send } else { echo });
        let mut connection = Connection::open(&mut worker, peer());
        echoes(&mut connection, &mut worker, b"at first".to_vec().as_mut());
        let waiting = connection.unsent().len();
        connection.sent(&mut worker, waiting);
        // It may be quiet for as long as it likes.
        go(&mut worker, start + 100 * SECOND);
        assert_eq!(connection.deadline(&worker.limits), None, "way {way}");
        assert_eq!(timed(&mut connection, &mut worker), None, "way {way}");
        let mut bytes = *b"later";
        let echo = connection.received(&mut worker, &mut bytes);
        assert_eq!(echo, if way == 1 { 0 } else { 5 });
        match way {
            0 => connection.echoed(&mut worker, &bytes, 3),
            1 => {}
            2 => connection.lend_echo(echo),
            _ => {
                connection.echoed(&mut worker, &bytes, 0);
                connection.lend(&mut Vec::new());
            }
        }
        let due = connection.deadline(&worker.limits).expect("output waits");
        assert_eq!(due, worker.clock.now() + Wheel::ticks(SECOND), "way {way}");
        assert_eq!(timed(&mut connection, &mut worker), None, "way {way}");
        // What the peer takes puts it off.
        go(&mut worker, start + 100 * SECOND + SECOND / 2);
        match way {
            0 | 1 => connection.sent(&mut worker, 1),
            _ => connection.returned(&mut worker, 1),
        }
        go(&mut worker, start + 101 * SECOND + 2 * TICK);
        assert_eq!(timed(&mut connection, &mut worker), None, "way {way}");
        go(&mut worker, start + 102 * SECOND);
        assert_eq!(timed(&mut connection, &mut worker).as_deref(), Some(STALLED), "way {way}");
    }
}

#[test]
fn a_peer_that_stays_is_waited_for_a_while() {
    let with = Limits { linger: SECOND, silent: Some(SECOND), idle: Some(SECOND), ..limits() };
    let (mut worker, start) =
        worker(with, |_| |_: &mut [u8], output: &mut Output<'_>| output.finish());
    let mut connection = Connection::open(&mut worker, peer());
    assert_eq!(connection.received(&mut worker, &mut [1]), 0);
    assert!(connection.wants(&worker.limits).end_sending);
    go(&mut worker, start + SECOND / 2);
    connection.told(&worker);
    let wants = connection.wants(&worker.limits);
    assert_eq!(wants, Wants { receive: true, ..Wants::default() });
    // That it goes on sending does not put it off.
    go(&mut worker, start + SECOND + TICK);
    assert_eq!(connection.received(&mut worker, &mut [2; 10]), 0);
    assert_eq!(worker.counters.bytes_discarded.get(), 10);
    assert_eq!(timed(&mut connection, &mut worker), None);
    go(&mut worker, start + SECOND * 3 / 2 + TICK);
    assert_eq!(timed(&mut connection, &mut worker).as_deref(), Some(STALLED));
}

/// Passes over the end of its peer.
struct PassesOver;

impl Handler for PassesOver {
    fn on_receive(&mut self, bytes: &mut [u8], output: &mut Output<'_>) {
        output.send(bytes).unwrap();
    }

    fn on_end(&mut self, _: &mut Output<'_>) {}
}

#[test]
fn an_end_that_is_passed_over_is_an_end_all_the_same() {
    let (mut worker, _) = worker(limits(), |_| PassesOver);
    let mut connection = Connection::open(&mut worker, peer());
    let _ = connection.received(&mut worker, &mut [1; 10]);
    connection.ended(&mut worker);
    let wants = connection.wants(&worker.limits);
    assert_eq!(wants, Wants { send: true, ..Wants::default() });
    connection.sent(&mut worker, 10);
    let wants = connection.wants(&worker.limits);
    assert_eq!(wants, Wants { end_sending: true, ..Wants::default() });
    connection.told(&worker);
    assert!(connection.wants(&worker.limits).close);
    assert!(matches!(connection.close(&mut worker), Reason::Finished));
}

#[test]
fn a_stop_leaves_what_was_received_by_then_to_the_handler() {
    let (mut worker, _) = worker(limits(), |_| echo);
    let mut connection = Connection::open(&mut worker, peer());
    connection.finish_after(&mut worker, 25);
    assert!(!connection.wants(&worker.limits).end_sending);
    echoes(&mut connection, &mut worker, &mut [1; 10]);
    assert!(!connection.wants(&worker.limits).end_sending);
    // What came together with the last of it is handled with it.
    echoes(&mut connection, &mut worker, &mut [1; 20]);
    assert_eq!(worker.counters.bytes_sent.get(), 30);
    assert!(connection.wants(&worker.limits).end_sending);
    assert_eq!(connection.received(&mut worker, &mut [1; 5]), 0);
    assert_eq!(worker.counters.bytes_discarded.get(), 5);
    // Nothing at all is over at once.
    let mut connection = Connection::open(&mut worker, peer());
    connection.finish_after(&mut worker, 0);
    assert!(connection.wants(&worker.limits).end_sending);
}

#[test]
fn full_output_is_the_end_where_it_is_asked_for() {
    for sends in [true, false] {
        let with = Limits { output_bytes: 100, when_full: WhenFull::Close, ..limits() };
        let (mut worker, _) = worker(with, move |_| if sends { send } else { echo });
        let mut connection = Connection::open(&mut worker, peer());
        for _ in 0..2 {
            let mut bytes = [1; 50];
            let echo = connection.received(&mut worker, &mut bytes);
            connection.echoed(&mut worker, &bytes[..echo], 0);
        }
        assert!(connection.wants(&worker.limits).close);
        assert!(matches!(connection.close(&mut worker), Reason::OutputFull));
    }
}

/// Tries what it may not do.
struct Oversteps;

impl Handler for Oversteps {
    fn on_connect(&mut self, its: SocketAddr, output: &mut Output<'_>) {
        assert_eq!(its, peer());
        assert_eq!(output.echo(), Err(Refused::NothingReceived));
    }

    fn on_receive(&mut self, _: &mut [u8], output: &mut Output<'_>) {
        assert_eq!((output.room(), output.waiting()), (100, 0));
        assert_eq!(output.send(&[1; 101]), Err(Refused::Full));
        assert_eq!(output.send(&[1; 60]), Ok(()));
        assert_eq!(output.echo(), Err(Refused::TooLate));
        assert_eq!(output.send(&[1; 41]), Err(Refused::Full));
        assert_eq!(output.send(&[1; 40]), Ok(()));
        assert_eq!((output.room(), output.waiting()), (0, 100));
        output.finish();
        assert_eq!(output.room(), 0);
        assert_eq!(output.send(&[]), Err(Refused::Finished));
        assert_eq!(output.echo(), Err(Refused::Finished));
    }
}

#[test]
fn what_a_handler_may_not_send_is_refused_and_counted() {
    let (mut worker, _) = worker(Limits { output_bytes: 100, ..limits() }, |_| Oversteps);
    let mut connection = Connection::open(&mut worker, peer());
    assert_eq!(connection.received(&mut worker, &mut [2; 10]), 0);
    assert_eq!(connection.unsent(), [1; 100]);
    assert!(connection.reason.is_none(), "{:?}", connection.reason);
    assert_eq!(worker.counters.output_refused.get(), 6);
}

struct Panics {
    closed: Arc<Mutex<bool>>,
}

impl Handler for Panics {
    fn on_receive(&mut self, _: &mut [u8], output: &mut Output<'_>) {
        output.echo().unwrap();
        panic!("on purpose");
    }

    fn on_close(&mut self, _: &Reason) {
        *self.closed.lock().unwrap() = true;
    }
}

#[test]
fn a_handler_that_panicked_is_called_no_more() {
    let closed = Arc::new(Mutex::new(false));
    let of_handler = Arc::clone(&closed);
    let (mut worker, _) = worker(limits(), move |_| Panics { closed: Arc::clone(&of_handler) });
    let mut connection = Connection::open(&mut worker, peer());
    assert_eq!(connection.received(&mut worker, &mut [1]), 0);
    assert!(connection.wants(&worker.limits).close);
    assert_eq!(connection.received(&mut worker, &mut [1]), 0);
    connection.ended(&mut worker);
    connection.fail(Reason::Stopped);
    let reason = connection.close(&mut worker);
    assert!(matches!(&reason, Reason::Panicked(text) if text == "on purpose"), "{reason}");
    assert!(!*closed.lock().unwrap());
    assert_eq!(worker.counters.closed_panicked.get(), 1);
}

#[test]
fn a_handler_breaks_off() {
    let (mut worker, _) = worker(limits(), |_| {
        |bytes: &mut [u8], output: &mut Output<'_>| {
            output.send(bytes).unwrap();
            output.abort();
        }
    });
    let mut connection = Connection::open(&mut worker, peer());
    let _ = connection.received(&mut worker, &mut [1]);
    assert_eq!(connection.wants(&worker.limits), Wants { close: true, ..Wants::default() });
    let reason = connection.close(&mut worker);
    assert!(matches!(reason, Reason::Aborted) && reason.is_abrupt());
}

/// What a handler does in a call.
#[derive(Debug, Clone, Default)]
struct Action {
    /// Changes the bytes and sends them back.
    echo: bool,
    /// Then sends pieces of so many bytes.
    send: Vec<usize>,
    finish: bool,
}

fn action() -> impl Strategy<Value = Action> {
    let send = || prop::collection::vec(0..200usize, 0..3);
    (any::<bool>(), send(), prop::bool::weighted(0.03)).prop_map(|(echo, send, finish)| Action {
        echo,
        send,
        finish,
    })
}

#[derive(Debug, Clone)]
enum Step {
    /// So many bytes come, and the handler does this.
    Receive(usize, Action),
    /// The system has room for so many bytes more. When it takes them, the handler does this.
    Room(usize, Action),
    /// The peer sends no more, and the handler does this.
    End(Action),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        10 => (1..LONGEST, action()).prop_map(|(count, action)| Step::Receive(count, action)),
        10 => (1..400usize, action()).prop_map(|(count, action)| Step::Room(count, action)),
        1 => action().prop_map(Step::End),
    ]
}

/// Bytes received at a time, at most.
const LONGEST: usize = 300;

/// How a design sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// At once, and then from the queue: readiness.
    Directly,
    /// From what the queue lends: a thread that sends.
    Lent,
    /// Echoes from where they lie, the rest from what the queue lends: completions.
    EchoLent,
}

/// What a handler is to do next, and what it has said in all, in the order in which it is to be heard.
#[derive(Debug, Default)]
struct Script {
    next: Action,
    said: Vec<u8>,
    refused: u64,
    finished: bool,
}

struct Scripted(Arc<Mutex<Script>>);

impl Scripted {
    fn act(&self, received: Option<&mut [u8]>, output: &mut Output<'_>) {
        let mut script = self.0.lock().unwrap();
        let Action { echo, send, finish } = std::mem::take(&mut script.next);
        let mut number = script.said.len();
        let mut fresh = |bytes: &mut [u8]| {
            for byte in bytes {
                *byte = (number * 7 + number / 256) as u8;
                number += 1;
            }
        };
        if echo && let Some(bytes) = received {
            fresh(bytes);
            match output.echo() {
                Ok(()) => script.said.extend_from_slice(bytes),
                Err(_) => script.refused += 1,
            }
        }
        for count in send {
            let mut bytes = vec![0; count];
            fresh(&mut bytes);
            let room = output.room();
            match output.send(&bytes) {
                Ok(()) => script.said.extend_from_slice(&bytes),
                Err(why) => {
                    assert!(script.finished || (why == Refused::Full && count > room), "{why}");
                    script.refused += 1;
                }
            }
        }
        if finish {
            script.finished = true;
            output.finish();
        }
    }
}

impl Handler for Scripted {
    fn on_receive(&mut self, bytes: &mut [u8], output: &mut Output<'_>) {
        self.act(Some(bytes), output);
    }

    fn on_sent(&mut self, _: usize, output: &mut Output<'_>) {
        self.act(None, output);
    }

    fn on_end(&mut self, output: &mut Output<'_>) {
        self.act(None, output);
    }
}

/// A connection, a design that does what it wants, and a system that takes what it has room for.
struct Bench {
    worker: Worker<Scripted>,
    connection: Connection<Scripted>,
    script: Arc<Mutex<Script>>,
    way: Way,
    /// What the design holds, and the system has not taken.
    held: VecDeque<u8>,
    room: usize,
    wire: Vec<u8>,
    received: u64,
    ended: bool,
    pauses: u64,
    paused: bool,
}

impl Bench {
    fn new(way: Way, output_bytes: usize) -> Self {
        let script = Arc::<Mutex<Script>>::default();
        let of_handler = Arc::clone(&script);
        let with = Limits { output_bytes, ..limits() };
        let (mut worker, _) = worker(with, move |_| Scripted(Arc::clone(&of_handler)));
        let connection = Connection::open(&mut worker, peer());
        let (held, wire) = (VecDeque::new(), Vec::new());
        let (room, received, pauses) = (0, 0, 0);
        let (ended, paused) = (false, false);
        Self { worker, connection, script, way, held, room, wire, received, ended, pauses, paused }
    }

    fn wants(&self) -> Wants {
        self.connection.wants(&self.worker.limits)
    }

    fn take(&mut self, bytes: &[u8]) -> usize {
        let count = bytes.len().min(self.room);
        self.wire.extend_from_slice(&bytes[..count]);
        self.room -= count;
        count
    }

    fn receive(&mut self, count: usize, action: Action) {
        if !self.wants().receive {
            return;
        }
        self.script.lock().unwrap().next = action;
        self.received += count as u64;
        let mut bytes = vec![0xee; count];
        let echo = self.connection.received(&mut self.worker, &mut bytes);
        if echo == 0 {
            return;
        }
        assert_eq!(echo, count);
        match self.way {
            Way::Directly => {
                let taken = self.take(&bytes);
                self.connection.echoed(&mut self.worker, &bytes, taken);
            }
            Way::Lent => self.connection.echoed(&mut self.worker, &bytes, 0),
            Way::EchoLent => {
                self.connection.lend_echo(echo);
                self.held.extend(bytes);
            }
        }
    }

    /// Sends what there is room for.
    fn send(&mut self) {
        while self.room > 0 {
            if self.way == Way::Directly {
                if !self.wants().send {
                    return;
                }
                let bytes = self.connection.unsent().to_vec();
                let taken = self.take(&bytes);
                self.connection.sent(&mut self.worker, taken);
                continue;
            }
            if self.held.is_empty() {
                if !self.wants().send {
                    return;
                }
                let mut out = Vec::new();
                self.connection.lend(&mut out);
                self.held.extend(out);
            }
            let bytes: Vec<_> = self.held.iter().copied().collect();
            let taken = self.take(&bytes);
            self.held.drain(..taken);
            self.connection.returned(&mut self.worker, taken);
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Receive(count, action) => self.receive(count, action),
            Step::Room(count, action) => {
                self.script.lock().unwrap().next = action;
                self.room += count;
            }
            Step::End(action) => {
                self.script.lock().unwrap().next = action;
                self.ended = true;
                self.connection.ended(&mut self.worker);
            }
        }
        self.send();
        let wants = self.wants();
        self.connection.note_pause(&self.worker, wants);
    }

    /// What holds after each step.
    fn check(&mut self) -> Result<(), TestCaseError> {
        let (wants, limits) = (self.wants(), self.worker.limits);
        let script = self.script.lock().unwrap();
        let waiting = self.held.len() + self.connection.unsent().len();
        let all = self.wire.iter().chain(&self.held).chain(self.connection.unsent());
        prop_assert!(all.eq(&script.said), "lost, doubled or out of order");
        prop_assert!(waiting <= limits.output_bytes + LONGEST, "{} bytes wait", waiting);
        let full = waiting >= limits.output_bytes;
        prop_assert_eq!(wants.receive, !self.ended && !full);
        prop_assert_eq!(wants.send, !self.connection.unsent().is_empty());
        prop_assert_eq!(wants.end_sending, (script.finished || self.ended) && waiting == 0);
        prop_assert!(!wants.close);
        let pauses = full && !self.ended;
        self.pauses += u64::from(pauses && !self.paused);
        self.paused = pauses;
        let counters = self.worker.counters.snapshot();
        prop_assert_eq!(counters.bytes_received, self.received);
        prop_assert_eq!(counters.bytes_sent, self.wire.len() as u64);
        prop_assert_eq!(counters.output_refused, script.refused);
        prop_assert_eq!(counters.pauses, self.pauses);
        Ok(())
    }
}

proptest! {
    #[test]
    fn output_is_never_lost_doubled_or_exchanged(
        way in prop_oneof![Just(Way::Directly), Just(Way::Lent), Just(Way::EchoLent)],
        output_bytes in 1..1000usize,
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let mut bench = Bench::new(way, output_bytes);
        for step in steps {
            bench.step(step);
            bench.check()?;
        }
        // Everything goes at last, and then the connection is over.
        bench.step(Step::End(Action::default()));
        bench.step(Step::Room(usize::MAX / 2, Action::default()));
        bench.check()?;
        prop_assert_eq!(&bench.wire, &bench.script.lock().unwrap().said);
        prop_assert_eq!(bench.wants(), Wants { end_sending: true, ..Wants::default() });
        bench.connection.told(&bench.worker);
        prop_assert_eq!(bench.wants(), Wants { close: true, ..Wants::default() });
        let reason = bench.connection.close(&mut bench.worker);
        prop_assert!(matches!(reason, Reason::Finished));
    }
}

/// Asks for what it is told to, and counts the calls of its time.
#[derive(Default)]
struct Asking(Arc<Mutex<(Asks, u32)>>);

impl Handler for Asking {
    fn on_receive(&mut self, _: &mut [u8], _: &mut Output<'_>) {}

    fn on_time(&mut self, output: &mut Output<'_>) {
        let mut state = self.0.lock().unwrap();
        state.0 = Asks::NOTHING;
        state.1 += 1;
        output.send(&[7]).unwrap();
    }

    fn asks(&self) -> Asks {
        self.0.lock().unwrap().0
    }
}

#[test]
fn a_handler_is_called_when_it_asks_and_not_before() {
    let state = Arc::new(Mutex::new((Asks::NOTHING, 0)));
    let of_handler = Arc::clone(&state);
    let (mut worker, start) = worker(limits(), move |_| Asking(Arc::clone(&of_handler)));
    state.lock().unwrap().0.deadline = Some(start + SECOND);
    let mut connection = Connection::open(&mut worker, peer());
    let due = connection.deadline(&worker.limits).expect("it asks");
    assert!((Wheel::ticks(SECOND)..=Wheel::ticks(SECOND) + 1).contains(&due));
    go(&mut worker, start + SECOND - TICK);
    connection.timed(&mut worker);
    assert_eq!((state.lock().unwrap().1, connection.deadline(&worker.limits)), (0, Some(due)));
    go(&mut worker, start + SECOND + 2 * TICK);
    connection.timed(&mut worker);
    assert_eq!((state.lock().unwrap().1, connection.unsent()), (1, &[7][..]));
    // Once.
    assert_eq!(connection.deadline(&worker.limits), None);
    go(&mut worker, start + 2 * SECOND);
    connection.timed(&mut worker);
    assert_eq!(state.lock().unwrap().1, 1);
}

#[test]
fn a_pause_is_no_silence_and_ends_with_the_connection() {
    let state = Arc::new(Mutex::new((Asks::NOTHING, 0)));
    let of_handler = Arc::clone(&state);
    let with = Limits { silent: Some(SECOND), idle: Some(SECOND), ..limits() };
    let (mut worker, start) = worker(with, move |_| Asking(Arc::clone(&of_handler)));
    let mut connection = Connection::open(&mut worker, peer());
    state.lock().unwrap().0 =
        Asks { deadline: Some(start + 3 * SECOND), pause: true, holds: false };
    assert_eq!(connection.received(&mut worker, &mut [1]), 0);
    let wants = connection.wants(&worker.limits);
    assert_eq!(wants, Wants::default());
    connection.note_pause(&worker, wants);
    assert_eq!(worker.counters.pauses.get(), 1);
    go(&mut worker, start + 2 * SECOND);
    assert_eq!(timed(&mut connection, &mut worker), None);
    // Its time takes the pause back, and only from now on is it silent.
    go(&mut worker, start + 4 * SECOND);
    assert_eq!(timed(&mut connection, &mut worker), None);
    assert!(connection.wants(&worker.limits).receive);
    go(&mut worker, start + 5 * SECOND + 2 * TICK);
    assert_eq!(timed(&mut connection, &mut worker).as_deref(), Some(SILENT));
    // One that has finished must see its peer's end.
    let mut connection = Connection::open(&mut worker, peer());
    state.lock().unwrap().0.pause = true;
    assert_eq!(connection.received(&mut worker, &mut [1]), 0);
    assert!(!connection.wants(&worker.limits).receive);
    connection.finish_after(&mut worker, 0);
    assert!(connection.wants(&worker.limits).receive);
}

#[test]
fn sending_ends_when_nothing_is_held_back() {
    let state = Arc::new(Mutex::new((Asks::NOTHING, 0)));
    let of_handler = Arc::clone(&state);
    let (mut worker, start) = worker(limits(), move |_| Asking(Arc::clone(&of_handler)));
    for stops in [false, true] {
        let mut connection = Connection::open(&mut worker, peer());
        state.lock().unwrap().0 =
            Asks { deadline: Some(start + SECOND), pause: false, holds: true };
        if stops {
            // The default handler finishes when it is told, and has more all the same.
            connection.finish_after(&mut worker, 0);
            assert_eq!(connection.received(&mut worker, &mut [1; 3]), 0);
            assert_eq!(worker.counters.bytes_discarded.get(), 3);
        } else {
            connection.ended(&mut worker);
        }
        assert!(!connection.wants(&worker.limits).end_sending, "stops: {stops}");
        state.lock().unwrap().0 = Asks::NOTHING;
        connection.call(&mut worker, Echo::Nothing, |_, _| {});
        assert!(connection.wants(&worker.limits).end_sending, "stops: {stops}");
    }
}

#[test]
fn one_that_declines_says_what_it_has_to_and_ends_in_order() {
    let (mut worker, _) = worker(limits(), |_| {
        |_: &mut [u8], output: &mut Output<'_>| {
            output.send(b"no").unwrap();
            output.decline("not today");
            assert_eq!(output.send(b"!"), Err(Refused::Finished));
        }
    });
    let mut connection = Connection::open(&mut worker, peer());
    assert_eq!(connection.received(&mut worker, &mut [1]), 0);
    assert_eq!(connection.received(&mut worker, &mut [2]), 0);
    assert_eq!(worker.counters.bytes_discarded.get(), 1);
    assert_eq!((connection.unsent(), connection.wants(&worker.limits).close), (&b"no"[..], false));
    connection.sent(&mut worker, 2);
    assert!(connection.wants(&worker.limits).end_sending);
    connection.told(&worker);
    assert!(!connection.wants(&worker.limits).close);
    connection.ended(&mut worker);
    assert!(connection.wants(&worker.limits).close);
    let reason = connection.close(&mut worker);
    assert!(matches!(&reason, Reason::Declined(why) if why == "not today") && !reason.is_abrupt());
    // Whatever befalls it meanwhile, it is over at once, and that is why.
    let mut connection = Connection::open(&mut worker, peer());
    let _ = connection.received(&mut worker, &mut [1]);
    connection.fail(Reason::Stalled);
    assert!(connection.wants(&worker.limits).close);
    assert!(matches!(connection.close(&mut worker), Reason::Declined(_)));
}
