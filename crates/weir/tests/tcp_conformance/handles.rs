//! Handles: what other threads and other connections leave for a connection.

use super::{
    client::{Client, fill, read},
    support::*,
};
use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        mpsc::{self, Receiver, Sender},
    },
    thread,
};
use weir::tcp::{Handle, Handler, Limits, Output, Refused};

pub const CHECKS: &[Check] = &[
    ("sends_wakes_and_closes_from_another_thread", sends_wakes_and_closes),
    ("what_a_handle_sends_waits_for_room", what_a_handle_sends_waits_for_room),
    ("connections_speak_to_each_other", connections_speak_to_each_other),
    ("a_handle_outlives_its_connection", a_handle_outlives_its_connection),
    ("a_handle_of_what_has_finished_says_so", a_handle_of_what_has_finished_says_so),
    ("sends_while_its_peer_is_silent_and_the_server_stops", sends_at_a_stop),
];

/// Gives its handle away, and says when it is woken.
struct Reached {
    to: Sender<Handle>,
    early: &'static [u8],
}

impl Handler for Reached {
    fn on_connect(&mut self, _: SocketAddr, output: &mut Output<'_>) {
        let handle = output.handle();
        // Before the connection is where its thread finds it.
        handle.send(self.early).expect("it is not gone");
        self.to.send(handle).expect("the check waits for it");
    }

    fn on_receive(&mut self, _: &mut [u8], output: &mut Output<'_>) {
        output.echo().unwrap();
    }

    fn on_wake(&mut self, output: &mut Output<'_>) {
        let _ = output.send(b"woken"); // it may be full, or have finished
    }
}

/// A server of handlers that give their handles away.
fn reached(
    subject: &Subject,
    limits: Limits,
    early: &'static [u8],
) -> (weir::tcp::Running, Arc<Log>, Receiver<Handle>) {
    let (to, handles) = mpsc::channel();
    let to = Mutex::new(to);
    let (server, log) = subject.start(&server_with(limits), move |_| {
        let to = to.lock().expect("nobody panics with it").clone();
        Reached { to, early }
    });
    (server, log, handles)
}

fn handle_of_next(handles: &Receiver<Handle>) -> Handle {
    handles.recv_timeout(PATIENCE).expect("a connection")
}

/// Reads as many bytes as these are, and compares.
fn expect(client: &Client, what: &[u8]) {
    let (mut bytes, mut at) = (vec![0; what.len()], 0);
    while at < bytes.len() {
        let count = read(&client.stream, &mut bytes[at..]).expect("bytes");
        assert!(count > 0, "the end came after {at} of {} bytes", bytes.len());
        at += count;
    }
    assert_eq!(bytes, what);
}

fn sends_wakes_and_closes(subject: &Subject) -> Result<(), Skipped> {
    let (server, log, handles) = reached(subject, limits(), b"early");
    let to = server.local_addresses()[0];
    for _ in 0..20 {
        let mut client = Client::connect(to, 1);
        let handle = handle_of_next(&handles);
        expect(&client, b"early");
        client.ping();
        thread::scope(|scope| {
            scope.spawn(|| handle.send(b"hello").unwrap());
        });
        expect(&client, b"hello");
        handle.wake().unwrap();
        expect(&client, b"woken");
        // In this order, whatever of it comes together; and what the peer sends is heard meanwhile.
        handle.send(b"goodbye").unwrap();
        handle.wake().unwrap();
        handle.close();
        expect(&client, b"goodbyewoken");
        client.expect_end();
        client.end_sending();
        assert_eq!(log.wait_for_ending(client.address()), How::Finished);
        until("the end of the handle", || handle.is_gone());
    }
    assert_eq!(stop(server, &log).closed_finished, 20);
    Ok(())
}

fn what_a_handle_sends_waits_for_room(subject: &Subject) -> Result<(), Skipped> {
    const SEED: u64 = 7;
    const PIECE: usize = 1000;
    let with = limits().output_bytes(10_000);
    let (server, log, handles) = reached(subject, with, b"");
    let mut client = Client::connect(server.local_addresses()[0], SEED);
    let handle = handle_of_next(&handles);
    // The peer takes nothing: at last there is no room, neither in its system nor here. The thread of the connection may
    // still be moving what has come.
    let (mut sent, mut piece) = (0, [0; PIECE]);
    let mut full_at = None;
    until("a handle that is full", || {
        while handle.room() >= PIECE {
            fill(SEED, sent, &mut piece);
            handle.send(&piece).expect("there is room, and nobody else sends");
            sent += PIECE as u64;
        }
        assert_eq!(handle.send(&[0; 10_001]), Err(Refused::Full));
        full_at.replace(sent) == Some(sent)
    });
    // All of it comes, in order, and so does what follows while there is room again.
    let end = sent + 500_000;
    let sending = {
        let handle = handle.clone();
        thread::spawn(move || {
            let mut piece = [0; PIECE];
            while sent < end {
                fill(SEED, sent, &mut piece);
                match handle.send(&piece) {
                    Ok(()) => sent += PIECE as u64,
                    Err(Refused::Full) => thread::yield_now(),
                    Err(why) => panic!("{why}"),
                }
            }
            handle.close();
        })
    };
    while client.receive(1 << 16).expect("bytes, or the end") > 0 {}
    sending.join().expect("everything was sent");
    client.end_sending();
    let received = client.back();
    assert!(received >= end && received < end + PIECE as u64, "{received} bytes of {end}");
    assert_eq!(log.wait_for_ending(client.address()), How::Finished);
    drop(client);
    stop(server, &log);
    assert_bounded(&log, with);
    Ok(())
}

/// Those that are there, by their handles.
type Room = Arc<Mutex<Vec<Handle>>>;

/// Tells all others what its peer says.
struct Speaks {
    room: Room,
    own: Option<Handle>,
}

impl Handler for Speaks {
    fn on_connect(&mut self, _: SocketAddr, output: &mut Output<'_>) {
        let own = output.handle();
        self.room.lock().unwrap().push(own.clone());
        self.own = Some(own);
        output.send(b"!").unwrap();
    }

    fn on_receive(&mut self, bytes: &mut [u8], _: &mut Output<'_>) {
        let own = self.own.as_ref().expect("it has connected");
        for other in self.room.lock().unwrap().iter().filter(|other| !other.is_of_same(own)) {
            other.send(bytes).expect("little is sent");
        }
    }

    fn on_close(&mut self, _: &weir::tcp::Reason) {
        let own = self.own.as_ref().expect("it has connected");
        self.room.lock().unwrap().retain(|other| !other.is_of_same(own));
    }
}

/// Of one thread, and of several.
fn connections_speak_to_each_other(subject: &Subject) -> Result<(), Skipped> {
    const CLIENTS: usize = 6;
    let room = Room::default();
    let shared = Arc::clone(&room);
    let (server, log) =
        subject.start(&server(), move |_| Speaks { room: Arc::clone(&shared), own: None });
    let mut clients = super::client::clients(CLIENTS, server.local_addresses()[0]);
    clients.iter().for_each(|client| expect(client, b"!"));
    for round in 0..50u8 {
        for (number, speaker) in clients.iter().enumerate() {
            let said = [round, number as u8, b'.'];
            std::io::Write::write_all(&mut &speaker.stream, &said).unwrap();
            for (_, other) in clients.iter().enumerate().filter(|(other, _)| *other != number) {
                expect(other, &said);
            }
        }
    }
    for client in &mut clients {
        client.end_sending();
        client.expect_end();
    }
    drop(clients);
    assert_eq!(stop(server, &log).closed_finished, CLIENTS as u64);
    assert!(room.lock().unwrap().is_empty());
    Ok(())
}

fn a_handle_outlives_its_connection(subject: &Subject) -> Result<(), Skipped> {
    let (server, log, handles) = reached(subject, limits(), b"");
    let to = server.local_addresses()[0];
    let client = Client::connect(to, 1);
    let gone = handle_of_next(&handles);
    let address = client.address();
    client.reset();
    log.wait_for_ending(address);
    until("the end of the handle", || gone.is_gone());
    // The next connection gets its place, and nothing that is meant for the one before.
    let mut next = Client::connect(to, 2);
    let its = handle_of_next(&handles);
    assert_eq!((gone.send(b"late"), gone.wake()), (Err(Refused::Gone), Err(Refused::Gone)));
    gone.close();
    next.ping();
    its.send(b"now").unwrap();
    expect(&next, b"now");
    next.end_sending();
    next.expect_end();
    drop(next);
    stop(server, &log);
    assert_eq!((its.send(b"late"), its.room()), (Err(Refused::Gone), 0));
    its.close();
    assert!(!its.is_of_same(&gone) && its.is_gone());
    Ok(())
}

/// A side that sends nothing more refuses what is to be sent, however it came to that, and can be woken all the same.
fn a_handle_of_what_has_finished_says_so(subject: &Subject) -> Result<(), Skipped> {
    let (server, log, handles) = reached(subject, limits(), b"");
    let to = server.local_addresses()[0];
    for closes in [true, false] {
        let mut client = Client::connect(to, 1);
        let handle = handle_of_next(&handles);
        handle.send(b"before").unwrap();
        expect(&client, b"before");
        match closes {
            true => handle.close(),
            false => client.end_sending(), // the handler finishes
        }
        client.expect_end();
        until("a handle that sends nothing more", || match handle.send(b"late") {
            Ok(()) => false,
            Err(Refused::Finished | Refused::Gone) => true,
            Err(why) => panic!("{why}"),
        });
        assert_eq!(handle.room(), 0);
        if closes {
            assert_eq!(handle.send(b"late"), Err(Refused::Finished), "the peer has not ended");
            handle.wake().unwrap();
            client.end_sending();
        }
        assert_eq!(log.wait_for_ending(client.address()), How::Finished);
        until("the end of the handle", || handle.is_gone());
        assert_eq!(handle.send(b"late"), Err(Refused::Gone));
    }
    assert_eq!(stop(server, &log).closed_finished, 2);
    Ok(())
}

/// What is sent before a stop goes out; what is sent at it is sent or refused, and nobody hangs.
fn sends_at_a_stop(subject: &Subject) -> Result<(), Skipped> {
    let (server, log, handles) = reached(subject, limits(), b"");
    let to = server.local_addresses()[0];
    let clients = super::client::clients(4, to);
    let handles: Vec<_> = clients.iter().map(|_| handle_of_next(&handles)).collect();
    for handle in &handles {
        handle.send(b"before").unwrap();
    }
    clients.iter().for_each(|client| expect(client, b"before"));
    let sending = handles.into_iter().map(|handle| {
        thread::spawn(move || {
            while handle.send(b"beside").is_ok() {
                thread::yield_now();
                let _ = handle.wake();
            }
        })
    });
    let sending: Vec<_> = sending.collect();
    let receiving = clients.into_iter().map(|client| {
        thread::spawn(move || {
            let mut bytes = vec![0; 1 << 16];
            while read(&client.stream, &mut bytes).expect("bytes, or the end") > 0 {}
        })
    });
    let receiving: Vec<_> = receiving.collect();
    // Full is an end of sending as well as gone is; so there may be nobody left by now, or everybody.
    let total = stop(server, &log);
    for thread in sending.into_iter().chain(receiving) {
        thread.join().expect("nothing but the end of its connection");
    }
    assert_eq!((total.closed_finished, total.closed_stopped), (4, 0));
    Ok(())
}
