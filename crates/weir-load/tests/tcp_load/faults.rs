//! Servers that answer wrongly, break off, are silent, or are not there.

use crate::{support::*, wine};
use socket2::{Domain, Socket, Type};
use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener},
    thread,
    time::Duration,
};
use weir_load::tcp::{EndedBy, Engine, LoadSpec};

each_engine!(
    one_byte_that_was_changed_is_found,
    what_comes_twice_or_unasked_is_found,
    an_end_in_order_with_answers_due_is_a_loss,
    an_end_that_a_message_may_have_crossed_is_no_loss_and_a_failure,
    an_end_in_order_long_after_a_message_came_is_a_loss,
    a_sink_that_ends_before_its_time_fails_the_load,
    refusals_are_a_failure_unless_they_are_expected,
    resets_are_counted_and_do_not_hurt_the_others,
    resets_at_once_are_no_failed_connects,
    where_nobody_listens_all_are_refused,
    a_server_that_never_answers_is_given_up,
    what_a_full_backlog_drops_times_out,
    a_refusal_is_understood_in_any_pieces,
);

fn one_byte_that_was_changed_is_found(engine: Engine) {
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
    let spec = LoadSpec { connections: 8, sends: Some(40), outstanding: 4, ..server.spec(engine) };
    let report = run(&spec);
    assert_eq!((report.counts.wrong, report.counts.finished), (1, 7), "{report:?}");
    let wrong = report.wrong_bytes.expect("an example");
    assert_eq!(wrong.offset, PLACE);
    assert_eq!(wrong.expected.unwrap() ^ wrong.found, 0x10);
    assert!(report.data_errors);
    assert!(report.invalid().unwrap().contains("byte 1234"), "{:?}", report.invalid());
}

fn what_comes_twice_or_unasked_is_found(engine: Engine) {
    let twice = Server::start(|stream, _| echo(stream, |_, bytes| bytes.extend(bytes.clone())));
    let unasked = Server::start(|mut stream, _| {
        echo(stream.try_clone()?, |_, _| {})?;
        stream.write_all(b"!")
    });
    for server in [twice, unasked] {
        let report = run(&LoadSpec { connections: 4, sends: Some(3), ..server.spec(engine) });
        assert_eq!(report.counts.wrong, 4, "{report:?}");
        assert_eq!(report.wrong_bytes.unwrap().expected, None);
    }
}

fn an_end_in_order_with_answers_due_is_a_loss(engine: Engine) {
    let server = Server::start(|mut stream, _| {
        let mut bytes = [0; 64];
        stream.read_exact(&mut bytes)?;
        stream.write_all(&bytes[..63])?;
        stream.shutdown(Shutdown::Write)?;
        stream.read_to_end(&mut Vec::new()).map(drop)
    });
    let report = run(&LoadSpec { connections: 3, sends: Some(2), ..server.spec(engine) });
    assert_eq!(report.counts.truncated, 3, "{report:?}");
    assert!(report.data_errors && report.invalid().unwrap().contains("lost"));
    assert_eq!(report.messages_unanswered, 3);
}

/// As a server does that is stopped under load: the next message is on its way when it ends.
fn an_end_that_a_message_may_have_crossed_is_no_loss_and_a_failure(engine: Engine) {
    // A server that has no core between its last answer and its end looks as if it had lost a message.
    in_time(INSTANT, |_| an_end_that_a_message_crosses_is_no_loss(engine));
}

fn an_end_that_a_message_crosses_is_no_loss(engine: Engine) {
    for outstanding in [1, 2] {
        let server = Server::start(|mut stream, _| {
            let mut bytes = [0; 64];
            for _ in 0..3 {
                stream.read_exact(&mut bytes)?;
                stream.write_all(&bytes)?;
            }
            stream.shutdown(Shutdown::Write)?;
            stream.read_to_end(&mut Vec::new()).map(drop)
        });
        let report = run(&LoadSpec { connections: 3, outstanding, ..server.spec(engine) });
        assert_eq!((report.counts.ended_by_server, report.counts.truncated), (3, 0), "{report:?}");
        assert_eq!(
            (report.messages_unanswered, report.invalid()),
            (3 * u64::from(outstanding), None)
        );
        let failure = report.failure.expect("they did not last");
        assert!(failure.contains("3 ended by the server before their time"), "{failure}");
    }
}

fn an_end_in_order_long_after_a_message_came_is_a_loss(engine: Engine) {
    let server = Server::start(|mut stream, _| {
        stream.read_exact(&mut [0; 64])?;
        // It is this time that makes the difference.
        thread::sleep(Duration::from_millis(1500));
        stream.shutdown(Shutdown::Write)?;
        stream.read_to_end(&mut Vec::new()).map(drop)
    });
    let report = run(&LoadSpec { connections: 3, ..server.spec(engine) });
    assert_eq!((report.counts.ended_by_server, report.counts.truncated), (0, 3), "{report:?}");
    assert!(report.invalid().unwrap().contains("lost"));
}

/// A sink owes nothing, whatever it has not taken.
fn a_sink_that_ends_before_its_time_fails_the_load(engine: Engine) {
    let server = Server::start(|mut stream, _| {
        stream.read_exact(&mut [0; 64])?;
        stream.shutdown(Shutdown::Write)?;
        stream.read_to_end(&mut Vec::new()).map(drop)
    });
    let report = run(&LoadSpec { connections: 3, one_way: true, ..server.spec(engine) });
    assert_eq!((report.counts.ended_by_server, report.invalid()), (3, None), "{report:?}");
    assert!(report.failure.expect("they did not last").contains("3 of 3 connections failed"));
}

fn refusals_are_a_failure_unless_they_are_expected(engine: Engine) {
    let server = Server::start(|mut stream, number| match number % 5 {
        0 | 1 => echo(stream, |_, _| {}),
        _ => {
            stream.write_all(format!("{}there are 2\n", weir::tcp::REFUSAL).as_bytes())?;
            stream.shutdown(Shutdown::Write)?;
            stream.read_to_end(&mut Vec::new()).map(drop)
        }
    });
    let spec = LoadSpec { connections: 5, sends: Some(2), ..server.spec(engine) };
    let report = run(&spec);
    assert_eq!((report.counts.finished, report.counts.refused_by_server), (2, 3), "{report:?}");
    let failure = report.failure.expect("some were refused");
    assert!(
        failure.contains("3 refused by the server") && failure.contains("there are 2"),
        "{failure}"
    );
    let report = run(&LoadSpec { refusals_expected: true, ..spec });
    assert_eq!((report.counts.refused_by_server, report.failure), (3, None));
}

fn resets_are_counted_and_do_not_hurt_the_others(engine: Engine) {
    if wine::RESETS.is_left_out() {
        return;
    }
    let server = Server::start(|stream, number| {
        if number % 2 == 0 {
            return echo(stream, |_, _| {});
        }
        let mut first = [0];
        (&stream).read_exact(&mut first)?;
        socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO))
    });
    let report = run(&LoadSpec { connections: 10, sends: Some(5), ..server.spec(engine) });
    assert_eq!((report.counts.reset, report.counts.finished), (5, 5), "{report:?}");
    assert_eq!(report.invalid(), None);
    let failure = report.failure.expect("some did not last");
    assert!(
        failure.starts_with("5 of 10 connections failed: 5 broken off by the server"),
        "{failure}"
    );
}

fn resets_at_once_are_no_failed_connects(engine: Engine) {
    if wine::RESETS.is_left_out() {
        return;
    }
    let server =
        Server::start(|stream, _| socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)));
    let report = run(&LoadSpec { connections: 10, ..server.spec(engine) });
    assert_eq!((report.counts.connected, report.counts.reset), (10, 10), "{report:?}");
}

fn where_nobody_listens_all_are_refused(engine: Engine) {
    // It is kept bound, or another process might listen there by then.
    let bound = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    bound.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    let address = bound.local_addr().unwrap().as_socket().unwrap();
    let report = run(&LoadSpec {
        connections: 20,
        blocks: 2,
        block_interval: Duration::ZERO,
        ..spec_of(engine, address)
    });
    assert_eq!((report.counts.attempted, report.counts.refused), (40, 40), "{report:?}");
    assert!(report.failure.unwrap().contains("is anything listening"));
    assert_eq!(report.ended_by, EndedBy::Connections);
    assert_eq!(report.window, None);
}

fn a_server_that_never_answers_is_given_up(engine: Engine) {
    in_time(INSTANT, |instant| a_server_that_never_answers_is_given_up_within(engine, instant));
}

fn a_server_that_never_answers_is_given_up_within(engine: Engine, instant: Duration) {
    // The system makes the connections, and nobody accepts them.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let spec = LoadSpec { duration: SOON, ..spec_of(engine, listener.local_addr().unwrap()) };
    let given_up =
        run(&LoadSpec { connections: 5, sends: Some(1), answer_timeout: instant, ..spec.clone() });
    assert_eq!((given_up.counts.connected, given_up.counts.unanswered), (5, 5), "{given_up:?}");
    assert_eq!(given_up.messages_unanswered, 5);
    assert!(given_up.failure.unwrap().contains("no message came back"));
    let cut = run(&LoadSpec { connections: 5, duration: instant, drain: instant, ..spec });
    assert_eq!((cut.counts.cut_off, cut.ended_by), (5, EndedBy::Time), "{cut:?}");
}

fn what_a_full_backlog_drops_times_out(engine: Engine) {
    in_time(INSTANT, |instant| what_a_full_backlog_drops_times_out_within(engine, instant));
}

fn what_a_full_backlog_drops_times_out_within(engine: Engine, instant: Duration) {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    socket.bind(&any.into()).unwrap();
    socket.listen(1).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let spec = LoadSpec {
        connections: 12,
        connect_timeout: instant,
        answer_timeout: instant,
        duration: SOON,
        sends: Some(1),
        ..spec_of(engine, address)
    };
    let report = run(&spec);
    assert!(report.counts.timed_out > 0 && report.counts.connected > 0, "{report:?}");
    assert_eq!(report.counts.timed_out + report.counts.connected, 12);
    assert!(report.failure.is_some(), "nobody answered, and some were not made");
}

fn a_refusal_is_understood_in_any_pieces(engine: Engine) {
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
        let report = run(&LoadSpec { connections: 4, outstanding: 3, ..server.spec(engine) });
        assert_eq!(report.counts.refused_by_server, 4, "{report:?}");
        assert_eq!(report.refusals.by_count(), [("there are 5 connections", 4)]);
        assert!(!report.data_errors && report.failure.unwrap().contains("there are 5"));
    }
}
