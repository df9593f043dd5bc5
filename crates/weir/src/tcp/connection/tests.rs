//! A connection by itself: its times, its ends, and what its handler may do.

mod asks;
mod model;

use super::*;
use crate::{
    tcp::{Refused, Server},
    timer::TICK,
};
use std::{
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
    connection.fin_sent(&worker);
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
    connection.fin_sent(&worker);
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
