//! A server on a socket that is there already, and how others hear of its end.

use super::{client::Client, client::clients, support::*};
use std::{
    mem,
    net::TcpListener,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
        mpsc,
    },
    thread,
};
use weir::{
    Error,
    tcp::{Output, Running, Server},
    wake::Waker,
};

pub const CHECKS: &[Check] = &[
    ("a_socket_that_is_given_is_served", a_socket_that_is_given_is_served),
    ("a_socket_goes_from_server_to_server", a_socket_goes_from_server_to_server),
    (
        "a_socket_goes_from_server_to_server_under_load",
        a_socket_goes_from_server_to_server_under_load,
    ),
    ("who_waits_is_told_of_the_end", who_waits_is_told_of_the_end),
    ("a_failure_is_told", a_failure_is_told),
];

fn a_socket_that_is_given_is_served(subject: &Subject) -> Result<(), Skipped> {
    let listener = TcpListener::bind(any_port()).expect("an address of this process");
    let address = listener.local_addr().expect("it is bound");
    // It waits from before the server is there.
    let mut early = Client::connect(address, 1);
    let server = Server::from_std(listener).expect("it listens").limits(limits());
    let (server, log) = subject.echo(&server);
    assert_eq!(server.local_addresses(), [address]);
    assert!(server.end_accepting().is_err(), "nobody else could accept");
    early.ping();
    let mut clients = clients(10, address);
    clients.iter_mut().for_each(Client::ping);
    for mut client in clients.into_iter().chain([early]) {
        client.end_sending();
        client.expect_end();
    }
    assert_eq!(stop(server, &log).closed_finished, 11);
    Ok(())
}

/// Starts a server whose socket goes on when it has stopped.
fn start(subject: &Subject, server: &Server) -> Result<(Running, Arc<Log>), Skipped> {
    match subject.try_start(server, |_| echo) {
        Ok(started) => Ok(started),
        Err(Error::Unavailable(why)) => Err(Skipped(why.to_string())),
        Err(error) => panic!("{error}"),
    }
}

/// The second server begins before the first accepts no more. Who is served by the first is on, and whoever comes
/// afterwards comes to the second; so does who waits when there is none.
fn a_socket_goes_from_server_to_server(subject: &Subject) -> Result<(), Skipped> {
    let listener = TcpListener::bind(any_port()).expect("an address of this process");
    let address = listener.local_addr().expect("it is bound");
    let kept = || {
        let listener = listener.try_clone().expect("one more descriptor");
        Server::from_std(listener).expect("it listens").limits(limits()).keep_listening(true)
    };
    let (first, its_log) = start(subject, &kept())?;
    let mut of_first = clients(5, address);
    of_first.iter_mut().for_each(Client::ping);
    assert_eq!(first.counters().accepted, 5);
    let (second, log) = subject.echo(&kept());
    let (drain, drained) = mpsc::channel();
    first.on_drained(Waker::new(move || drain.send(()).expect("the check waits")));
    first.end_accepting().expect("its socket is kept");
    // Some of these may yet be accepted by the first: all are served, whoever has them.
    let mut of_either = clients(20, address);
    of_either.iter_mut().for_each(Client::ping);
    of_first.iter_mut().for_each(Client::ping);
    for client in of_either.iter_mut().chain(&mut of_first) {
        assert!(drained.try_recv().is_err(), "it has connections");
        client.end_sending();
        client.expect_end();
    }
    drained.recv_timeout(PATIENCE).expect("its last connection has ended");
    assert_eq!((first.accepting(), first.open()), (0, 0));
    finished(first, &its_log);
    let mut of_second = clients(10, address);
    of_second.iter_mut().for_each(Client::ping);
    assert!(second.counters().accepted >= 10);
    for client in &mut of_second {
        client.end_sending();
        client.expect_end();
    }
    finished(second, &log);
    // Who comes now waits for the next one.
    let mut early = Client::connect(address, 1);
    let (third, log) = subject.echo(&kept());
    early.ping();
    early.end_sending();
    early.expect_end();
    // One that has none is told at once when it accepts no more, or when it is asked later.
    until("its only connection ends", || third.open() == 0);
    let (drain, drained) = mpsc::channel();
    let drain = Waker::new(move || drain.send(()).expect("the check waits"));
    third.on_drained(drain.clone());
    assert!(third.accepting() > 0 && drained.try_recv().is_err(), "it accepts");
    third.end_accepting().expect("its socket is kept");
    drained.recv_timeout(PATIENCE).expect("nothing is left");
    third.on_drained(drain);
    drained.try_recv().expect("nothing is left");
    finished(third, &log);
    Ok(())
}

/// Stops a server whose socket goes on. Says how many connections have ended in order.
fn finished(server: Running, log: &Log) -> u64 {
    let report = server.stop();
    assert!(report.failure.is_none(), "{:?}", report.failure);
    assert_balanced(&report, log);
    report.total().closed_finished
}

/// How often the socket changes hands, and how many connections are served in between.
const CHANGES: usize = 12;
const BETWEEN: u64 = 30;

/// Clients that connect all the time.
const CLIENTS: u64 = 4;

/// Ends the load, also where the check fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// One server after the other has the socket while clients connect all the time. Each of them is served to its end by the
/// one that has accepted it, and each server is left by its connections.
fn a_socket_goes_from_server_to_server_under_load(subject: &Subject) -> Result<(), Skipped> {
    let listener = TcpListener::bind(any_port()).expect("an address of this process");
    let address = listener.local_addr().expect("it is bound");
    let kept = || {
        let listener = listener.try_clone().expect("one more descriptor");
        Server::from_std(listener).expect("it listens").limits(limits()).keep_listening(true)
    };
    let mut server = start(subject, &kept())?;
    let (over, served, mut by_servers) = (AtomicBool::new(false), AtomicU64::new(0), 0);
    thread::scope(|scope| {
        let _over = Over(&over);
        for number in 0..CLIENTS {
            let (over, served) = (&over, &served);
            scope.spawn(move || {
                let _over = Over(over);
                for seed in (number..).step_by(CLIENTS as usize) {
                    if over.load(SeqCst) {
                        break;
                    }
                    let mut client = Client::connect(address, seed);
                    client.ping();
                    client.ping();
                    client.end_sending();
                    client.expect_end();
                    served.fetch_add(1, SeqCst);
                }
            });
        }
        for _ in 0..CHANGES {
            let before = served.load(SeqCst);
            until("connections are served", || {
                assert!(!over.load(SeqCst), "a client was not served");
                served.load(SeqCst) >= before + BETWEEN
            });
            let next = subject.echo(&kept());
            let (drain, drained) = mpsc::channel();
            server.0.end_accepting().expect("its socket is kept");
            server.0.on_drained(Waker::new(move || drain.send(()).expect("the check waits")));
            drained.recv_timeout(PATIENCE).expect("its last connection has ended");
            let (before, its_log) = mem::replace(&mut server, next);
            by_servers += finished(before, &its_log);
        }
    });
    by_servers += finished(server.0, &server.1);
    assert_eq!(by_servers, served.into_inner());
    Ok(())
}

fn who_waits_is_told_of_the_end(subject: &Subject) -> Result<(), Skipped> {
    let (server, log) = subject.echo(&server());
    let mut client = Client::connect(server.local_addresses()[0], 1);
    client.ping();
    let stopper = server.stopper();
    thread::scope(|scope| {
        let waits = scope.spawn(|| server.wait());
        assert!(server.is_running());
        stopper.wake();
        waits.join().expect("it returns");
    });
    assert!(!server.is_running());
    server.wait(); // at once, now
    client.expect_end();
    drop(client);
    stop(server, &log);
    stopper.wake(); // it asks nobody any more
    Ok(())
}

fn a_failure_is_told(subject: &Subject) -> Result<(), Skipped> {
    let server = server().start(subject.design().clone(), |_| {
        let made: fn(&mut [u8], &mut Output<'_>) = match std::hint::black_box(true) {
            true => panic!("{ON_PURPOSE}"),
            false => echo,
        };
        made
    });
    let server = server.unwrap_or_else(|e| panic!("{e}"));
    let (tell, told) = mpsc::channel();
    server.on_failure(move |failure| tell.send(failure.to_string()).expect("the check waits"));
    // It may be reset at once.
    let _client = Client::try_connect(server.local_addresses()[0], 1);
    server.wait();
    let text = told.recv_timeout(PATIENCE).expect("the failure is told");
    assert!(text.contains(ON_PURPOSE), "{text}");
    // Who asks later hears it too.
    let (tell, told) = mpsc::channel();
    server.on_failure(move |failure| tell.send(failure.to_string()).expect("the check waits"));
    assert_eq!(told.recv_timeout(PATIENCE).as_deref(), Ok(text.as_str()));
    let failure = server.stop().failure;
    assert!(matches!(failure, Some(Error::HandlerPanicked { .. })), "{failure:?}");
    Ok(())
}
