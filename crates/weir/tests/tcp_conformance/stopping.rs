//! The end of a server: no new connections, what was acknowledged is answered, and then every peer
//! sees the end; what is not over in time is cut off.

use super::{
    client::{Client, clients, fill, read, verify},
    machine,
    support::*,
    wine,
};
use std::{
    io::{ErrorKind, Write},
    net::TcpStream,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};
use weir::tcp::{Output, Server};

pub const CHECKS: &[Check] = &[
    ("stop_at_once", stop_at_once),
    ("stop_ends_idle_connections", stop_ends_idle_connections),
    ("stop_answers_what_was_acknowledged", stop_answers_what_was_acknowledged),
    ("stop_answers_beyond_what_may_wait", stop_answers_beyond_what_may_wait),
    ("stop_under_load", stop_under_load),
    ("stop_while_peers_go_on_sending", stop_while_peers_go_on_sending),
    ("stop_with_a_peer_that_never_reads", stop_with_a_peer_that_never_reads),
    ("dropped_instead", dropped_instead),
];

/// And started again at the same address.
fn stop_at_once(subject: &Subject) -> Result<(), Skipped> {
    let mut at = any_port();
    for _ in 0..5 {
        let (server, log) = subject.echo(&Server::bind(at).limits(limits()));
        at = server.local_addresses()[0];
        let total = stop(server, &log);
        assert_eq!((total.accepted, total.messages), (0, 0));
    }
    Ok(())
}

/// Peers that have nothing to say see the end, and the server waits for theirs.
fn stop_ends_idle_connections(subject: &Subject) -> Result<(), Skipped> {
    let (server, log) = subject.echo(&server());
    let mut clients = clients(50, server.local_addresses()[0]);
    clients.iter_mut().for_each(Client::ping);
    thread::scope(|scope| {
        scope.spawn(|| {
            clients.iter_mut().for_each(Client::expect_end);
            clients.clear();
        });
        assert_eq!(stop(server, &log).closed_finished, 50);
    });
    Ok(())
}

/// Holds handlers back until it is opened.
#[derive(Default)]
struct Gate {
    open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn pass(&self) {
        let open = self.open.lock().unwrap();
        let passed = self.opened.wait_timeout_while(open, PATIENCE, |open| !*open).unwrap();
        assert!(*passed.0, "the gate was never opened");
    }

    fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
    }
}

/// What was acknowledged of what each client has sent, at the least.
fn acknowledged(clients: &[(&TcpStream, u64)]) -> Result<Vec<u64>, Skipped> {
    let streams: Vec<_> = clients.iter().map(|(stream, _)| *stream).collect();
    let waiting = machine::unacknowledged(&streams)
        .ok_or_else(|| Skipped("the system does not tell what was acknowledged".into()))?;
    Ok(clients.iter().zip(waiting).map(|((_, sent), waiting)| sent - waiting.min(*sent)).collect())
}

/// Handlers are held back while all that peers send is acknowledged by the system, and the server is
/// stopped then.
fn stop_answers_what_was_acknowledged(subject: &Subject) -> Result<(), Skipped> {
    const BYTES: usize = 40_000;
    let gate = Arc::new(Gate::default());
    let of_handlers = Arc::clone(&gate);
    let (server, log) = subject.start(&server(), move |_| {
        let gate = Arc::clone(&of_handlers);
        let mut pinged = 0;
        move |bytes: &mut [u8], output: &mut Output<'_>| {
            if pinged >= 100 {
                gate.pass();
            }
            pinged += bytes.len();
            output.echo().expect("nothing was sent before");
        }
    });
    let mut clients = clients(10, server.local_addresses()[0]);
    clients.iter_mut().for_each(Client::ping);
    clients.iter_mut().for_each(|client| client.send(BYTES));
    let sent: Vec<_> = clients.iter().map(|client| (&client.stream, client.sent())).collect();
    acknowledged(&sent).inspect_err(|_| gate.open())?;
    until("the system's acknowledgement", || {
        let all = acknowledged(&sent).expect("it was just told");
        all.iter().eq(sent.iter().map(|(_, sent)| sent))
    });
    thread::scope(|scope| {
        scope.spawn(|| {
            // Most times the stop comes first; it must not matter.
            thread::sleep(Duration::from_millis(20));
            gate.open();
            for mut client in clients {
                client.expect(BYTES);
                client.expect_end();
            }
        });
        let total = stop(server, &log);
        assert_eq!((total.closed_finished, total.bytes_discarded), (10, 0));
    });
    Ok(())
}

/// More was acknowledged than may wait to be sent: it is answered as the peer reads.
fn stop_answers_beyond_what_may_wait(subject: &Subject) -> Result<(), Skipped> {
    let limits = limits().output_bytes(16 * 1024);
    let (server, log) = subject.echo(&server_with(limits));
    let mut client = Client::connect(server.local_addresses()[0], 1);
    client.fill_up(|| server.counters().pauses > 0);
    let acknowledged = acknowledged(&[(&client.stream, client.sent())])?[0];
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(20));
            client.receive_all().expect("the end in order");
            let back = client.back();
            assert!(back >= acknowledged, "{back} bytes came back, of {acknowledged}");
            drop(client);
        });
        assert_eq!(stop(server, &log).closed_finished, 1);
    });
    assert_bounded(&log, limits);
    Ok(())
}

/// Each of these peers waits for its answer before it asks again.
fn stop_under_load(subject: &Subject) -> Result<(), Skipped> {
    let (server, log) = subject.echo(&server());
    let to = server.local_addresses()[0];
    let rounds = AtomicU64::new(0);
    thread::scope(|scope| {
        for number in 0..16 {
            let mut client = Client::connect(to, number);
            client.ping(); // it is accepted
            let rounds = &rounds;
            scope.spawn(move || {
                loop {
                    let bytes = client.next(1000);
                    // A server that has gone may answer so, and so it may what follows.
                    if (&client.stream).write_all(&bytes).is_err() {
                        break;
                    }
                    let until = client.sent();
                    while client.back() < until {
                        match client.receive(1000) {
                            Ok(0) => return,
                            Ok(_) => {}
                            Err(e) if e.kind() == ErrorKind::ConnectionReset => return,
                            Err(e) => panic!("waiting for an answer: {e}"),
                        }
                    }
                    rounds.fetch_add(1, Relaxed);
                }
            });
        }
        until("1000 rounds", || rounds.load(Relaxed) >= 1000);
        let total = stop(server, &log);
        assert_eq!((total.accepted, total.closed_stopped), (16, 0));
    });
    Ok(())
}

/// A peer that sends as fast as it can, and reads as fast, until the server's end.
struct Flood {
    stream: TcpStream,
    sent: AtomicU64,
    back: AtomicU64,
    over: AtomicBool,
}

impl Flood {
    fn send(&self, seed: u64) {
        let mut bytes = vec![0; 16 * 1024];
        let by = Instant::now() + PATIENCE;
        while !self.over.load(Relaxed) && Instant::now() < by {
            let sent = self.sent.load(Relaxed);
            fill(seed, sent, &mut bytes);
            if (&self.stream).write_all(&bytes).is_err() {
                return;
            }
            self.sent.store(sent + bytes.len() as u64, Relaxed);
        }
        // Where the server has gone there is nothing to end.
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
    }

    fn receive(&self, seed: u64) {
        let mut bytes = vec![0; 64 * 1024];
        loop {
            match read(&self.stream, &mut bytes) {
                Ok(0) => break,
                Ok(count) => {
                    verify(seed, self.back.load(Relaxed), &bytes[..count]);
                    self.back.fetch_add(count as u64, Relaxed);
                }
                Err(e) if e.kind() == ErrorKind::ConnectionReset => break,
                Err(e) => panic!("receiving: {e}"),
            }
        }
        self.over.store(true, Relaxed);
    }
}

/// What they have sent by then is answered all the same, and the stop is over in time.
fn stop_while_peers_go_on_sending(subject: &Subject) -> Result<(), Skipped> {
    if let Some(why) = wine::SEND_AT_AN_END.leaves_out() {
        return Err(Skipped(why)); // its peers would send for ever
    }
    if let Some(why) = wine::REST_OF_A_SEND.leaves_out() {
        return Err(Skipped(why)); // its peers would never end
    }
    let (server, log) = subject.echo(&server());
    let to = server.local_addresses()[0];
    let floods: Vec<_> = (0..4)
        .map(|seed| Flood {
            stream: Client::connect(to, seed).stream,
            sent: AtomicU64::new(0),
            back: AtomicU64::new(0),
            over: AtomicBool::new(false),
        })
        .collect();
    let lost = thread::scope(|scope| {
        let mut threads = Vec::new();
        for (seed, flood) in (0..).zip(&floods) {
            threads.push(scope.spawn(move || flood.send(seed)));
            threads.push(scope.spawn(move || flood.receive(seed)));
        }
        for flood in &floods {
            until("the flood", || flood.back.load(Relaxed) > 1 << 20);
        }
        // What is sent is read before what waits of it.
        let sent: Vec<_> =
            floods.iter().map(|flood| (&flood.stream, flood.sent.load(Relaxed))).collect();
        let acknowledged = acknowledged(&sent);
        let total = stop(server, &log);
        assert_eq!(total.closed_stopped, 0);
        threads.into_iter().for_each(|thread| thread.join().expect("a flood"));
        let back = floods.iter().map(|flood| flood.back.load(Relaxed));
        acknowledged.map(|all| {
            all.into_iter().zip(back).filter(|(all, back)| back < all).collect::<Vec<_>>()
        })
    })?;
    assert!(lost.is_empty(), "acknowledged, and come back: {lost:?}");
    Ok(())
}

/// The stop does not wait longer than it may.
fn stop_with_a_peer_that_never_reads(subject: &Subject) -> Result<(), Skipped> {
    let most = Duration::from_millis(500);
    let limits = limits().stop(most).stalled(None);
    let (server, log) = subject.echo(&server_with(limits));
    let to = server.local_addresses()[0];
    let mut stalled = Client::connect(to, 1);
    stalled.fill_up(|| server.counters().pauses > 0);
    // And one that does not close when it is told the end.
    let mut stays = Client::connect(to, 2);
    stays.ping();
    let since = Instant::now();
    let report = thread::scope(|scope| {
        // At once: on some systems a reset that comes later takes the place of the end.
        scope.spawn(|| stays.expect_end());
        stop_within(server, &log, most + SLACK)
    });
    assert!(since.elapsed() >= most, "they had less time than they might");
    assert_eq!(report.total().closed_stopped, 2);
    Ok(())
}

/// Dropping a server stops it too.
fn dropped_instead(subject: &Subject) -> Result<(), Skipped> {
    let (server, log) = subject.echo(&server());
    let to = server.local_addresses()[0];
    let mut client = Client::connect(to, 1);
    client.ping();
    thread::scope(|scope| {
        scope.spawn(|| {
            client.expect_end();
            drop(client);
        });
        drop(server);
    });
    assert_left(to);
    assert_eq!(log.told().closed.len(), 1);
    Ok(())
}
