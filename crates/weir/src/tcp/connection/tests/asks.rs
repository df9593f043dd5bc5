//! What a handler asks for: a time, a pause, to hold something back, and an end with a reason.

use super::*;

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
    let due = worker.clock.moment_of(start + SECOND);
    assert_eq!((connection.alarm(), connection.deadline(&worker.limits)), (due, None));
    go(&mut worker, start + SECOND - Duration::from_nanos(1));
    connection.timed(&mut worker);
    assert_eq!((state.lock().unwrap().1, connection.alarm()), (0, due));
    go(&mut worker, start + SECOND);
    connection.timed(&mut worker);
    assert_eq!((state.lock().unwrap().1, connection.unsent()), (1, &[7][..]));
    // Once.
    assert_eq!(connection.alarm(), Moment::NEVER);
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
        Asks { deadline: Some(start + 3 * SECOND), pause: true, ..Asks::NOTHING };
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
fn one_that_hears_on_receives_until_its_peer_ends_or_the_server_stops() {
    let state = Arc::new(Mutex::new((Asks { hears: true, ..Asks::NOTHING }, 0)));
    let of_handler = Arc::clone(&state);
    let (mut worker, start) = worker(limits(), move |_| Asking(Arc::clone(&of_handler)));
    for stops in [false, true] {
        let mut connection = Connection::open(&mut worker, peer());
        connection.call(&mut worker, Echo::Nothing, |_, output| {
            output.send(&vec![0; output.room()]).unwrap();
        });
        assert!(connection.wants(&worker.limits).receive, "its output is full");
        let full = connection.unsent().len();
        connection.sent(&mut worker, full);
        connection.call(&mut worker, Echo::Nothing, |_, output| output.finish());
        connection.fin_sent(&worker);
        let dropped = worker.counters.bytes_discarded.get();
        assert_eq!(connection.received(&mut worker, &mut [1]), 0);
        assert_eq!(worker.counters.bytes_discarded.get(), dropped, "it was heard");
        // It may take its time.
        assert_eq!((connection.deadline(&worker.limits), connection.is_ended()), (None, false));
        if stops {
            connection.finish_after(&mut worker, 0);
            assert_eq!(connection.received(&mut worker, &mut [1]), 0);
            assert_eq!(worker.counters.bytes_discarded.get(), dropped + 1);
            let linger = worker.limits.linger;
            go(&mut worker, start + linger + 2 * TICK);
            assert_eq!(timed(&mut connection, &mut worker).as_deref(), Some(STALLED));
        } else {
            connection.ended(&mut worker);
            assert!(connection.wants(&worker.limits).close);
        }
    }
}

#[test]
fn one_that_hears_on_is_refused_an_echo_while_its_output_is_full() {
    struct Echoes;
    impl Handler for Echoes {
        fn on_receive(&mut self, _: &mut [u8], output: &mut Output<'_>) {
            let _ = output.echo();
        }

        fn asks(&self) -> Asks {
            Asks { hears: true, ..Asks::NOTHING }
        }
    }
    let (mut worker, _) = worker(limits(), |_| Echoes);
    let mut connection = Connection::open(&mut worker, peer());
    connection.call(&mut worker, Echo::Nothing, |_, output| {
        output.send(&vec![0; output.room()]).unwrap();
    });
    let full = connection.unsent().len();
    for _ in 0..3 {
        assert_eq!(connection.received(&mut worker, &mut [1; 100]), 0);
    }
    assert_eq!(connection.unsent().len(), full, "nothing is added");
    connection.sent(&mut worker, full);
    assert_eq!(connection.received(&mut worker, &mut [1; 100]), 100);
}

#[test]
fn sending_ends_when_nothing_is_held_back() {
    let state = Arc::new(Mutex::new((Asks::NOTHING, 0)));
    let of_handler = Arc::clone(&state);
    let (mut worker, start) = worker(limits(), move |_| Asking(Arc::clone(&of_handler)));
    for stops in [false, true] {
        let mut connection = Connection::open(&mut worker, peer());
        state.lock().unwrap().0 =
            Asks { deadline: Some(start + SECOND), holds: true, ..Asks::NOTHING };
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
    connection.fin_sent(&worker);
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
