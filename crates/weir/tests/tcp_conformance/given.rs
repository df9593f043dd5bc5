//! A server on a socket that is there already, and how others hear of its end.

use super::{client::Client, client::clients, support::*};
use std::{net::TcpListener, sync::mpsc, thread};
use weir::{
    Error,
    tcp::{Output, Server},
};

pub const CHECKS: &[Check] = &[
    ("a_socket_that_is_given_is_served", a_socket_that_is_given_is_served),
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
    assert_eq!(told.try_recv().as_deref(), Ok(text.as_str()));
    let failure = server.stop().failure;
    assert!(matches!(failure, Some(Error::HandlerPanicked { .. })), "{failure:?}");
    Ok(())
}
