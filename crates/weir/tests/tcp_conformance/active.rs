//! The active set: the first so many are served, the others wait for their turn.

use super::{
    client::{Client, clients},
    support::*,
};
use std::{io::Read, time::Duration};
use weir::{
    Error,
    tcp::{ActiveSet, Limits, REFUSAL},
};

pub const CHECKS: &[Check] = &[
    ("active_serves_in_order", serves_in_order),
    ("active_refuses_beyond_the_limit", refuses_beyond_the_limit),
    ("active_and_those_that_leave_while_they_wait", leave_while_they_wait),
    ("active_at_a_stop", at_a_stop),
    ("active_where_there_is_none", where_there_is_none),
];

const SHORT: Duration = Duration::from_millis(300);

/// Limits with an active set, where the design has one and order of arrival is the server's.
pub fn limits_of(subject: &Subject, most: u32, limits: Limits) -> Result<Limits, Skipped> {
    match subject.active_set() {
        ActiveSet::InOrder => Ok(limits.active(Some(most))),
        ActiveSet::PerThread => Err(Skipped("each thread has an order of its own".into())),
        ActiveSet::Absent(why) => Err(Skipped(why.into())),
    }
}

/// Connects so many, one after the other, each of which has come before the next, and sends for each.
fn queue(server: &weir::tcp::Running, count: u64) -> Vec<Client> {
    let to = server.local_addresses()[0];
    (0..count)
        .map(|number| {
            let mut client = Client::connect(to, number);
            client.send(100);
            until("a connection", || server.counters().accepted == number + 1);
            client
        })
        .collect()
}

fn serves_in_order(subject: &Subject) -> Result<(), Skipped> {
    in_time(SHORT, |short| serves_in_order_with(subject, short))
}

fn serves_in_order_with(subject: &Subject, short: Duration) -> Result<(), Skipped> {
    // Nor is their waiting held against them, however long.
    let limits = limits().silent(Some(short)).idle(None);
    let limits = limits_of(subject, 3, limits)?;
    let (server, log) = subject.echo(&server_with(limits));
    let mut clients = queue(&server, 8);
    for client in &mut clients[..3] {
        client.expect(100);
        client.ping();
    }
    std::thread::sleep(2 * short); // this is about time
    assert_eq!((server.counters().waited, log.told().received), (5, 3 * 200));
    assert_eq!(server.open(), 8);
    // One leaves, and the one that came next is served, and nobody else.
    for next in 3..8 {
        let before = log.told().received;
        drop(clients.remove(0));
        let index = 2;
        clients[index].expect(100);
        clients[index].ping();
        assert_eq!(
            log.told().received,
            before + 200,
            "another was served with the one numbered {next}"
        );
    }
    drop(clients);
    let total = stop(server, &log);
    assert_eq!((total.closed_finished, total.waited), (8, 5));
    Ok(())
}

fn refuses_beyond_the_limit(subject: &Subject) -> Result<(), Skipped> {
    let limits = limits().connections(4);
    let limits = limits_of(subject, 2, limits)?;
    let (server, log) = subject.echo(&server_with(limits));
    let clients = queue(&server, 4);
    let beyond = Client::connect(server.local_addresses()[0], 9);
    let mut said = String::new();
    (&beyond.stream).read_to_string(&mut said).unwrap();
    assert_eq!(said, format!("{REFUSAL}there are 4 connections, the most allowed\n"));
    drop((beyond, clients));
    let total = stop(server, &log);
    assert_eq!((total.accepted, total.refused, total.waited), (4, 1, 2));
    Ok(())
}

fn leave_while_they_wait(subject: &Subject) -> Result<(), Skipped> {
    let limits = limits_of(subject, 1, limits())?;
    let (server, log) = subject.echo(&server_with(limits));
    let mut clients = queue(&server, 6);
    clients[0].expect(100);
    // Two go in the middle of the queue: in order, and with a reset.
    drop(clients.remove(4));
    clients.remove(2).reset();
    let mut rest = clients.split_off(1);
    drop(clients);
    rest[0].expect(100);
    let last = rest.split_off(1);
    drop(rest);
    // Those that have gone hold nobody up.
    for mut client in last {
        client.expect(100);
        client.end_sending();
        client.expect_end();
    }
    until("the end of all", || server.open() == 0);
    let total = stop(server, &log);
    assert_eq!((total.accepted, total.closed()), (6, 6));
    Ok(())
}

/// Whoever waits then is served after all: what it sent was acknowledged.
fn at_a_stop(subject: &Subject) -> Result<(), Skipped> {
    let limits = limits_of(subject, 2, limits())?;
    let (server, log) = subject.echo(&server_with(limits));
    let clients = queue(&server, 6);
    let receiving = std::thread::spawn(move || {
        for mut client in clients {
            client.expect(100);
            client.expect_end();
        }
    });
    let total = stop(server, &log);
    receiving.join().expect("an answer for each");
    assert_eq!((total.closed_finished, total.bytes_sent), (6, 600));
    Ok(())
}

fn where_there_is_none(subject: &Subject) -> Result<(), Skipped> {
    let limits = limits().active(Some(1));
    match (subject.active_set(), subject.try_start(&server_with(limits), |_| echo)) {
        (ActiveSet::Absent(why), Err(Error::Option { name, problem })) => {
            assert!(name == "active" && problem.contains(why), "{problem}");
        }
        // One is less than one for each thread.
        (ActiveSet::PerThread, Err(Error::Option { name, .. })) => {
            assert_eq!(name, "active");
            let limits = limits.active(Some(2));
            let (server, log) = subject.echo(&server_with(limits));
            let clients = clients(10, server.local_addresses()[0]);
            for mut client in clients {
                // In whatever order: each is served when the one before it has gone.
                client.send(100);
                client.end_sending();
                drop(client);
            }
            until("the end of all", || server.counters().closed() == 10);
            assert_eq!(stop(server, &log).bytes_received, 1000);
        }
        (ActiveSet::InOrder, Ok((server, log))) => _ = stop(server, &log),
        (set, Err(error)) => panic!("{set:?}: {error}"),
        (set, Ok(_)) => panic!("{set:?}: it started"),
    }
    Ok(())
}
