//! How connections share what serves them: one that always has something to say leaves the others their turns, a
//! thread that is busy holds up its own connections only, and what was dealt to it just before a stop is not lost.
//!
//! Handlers make what is to be seen happen themselves, so none of it depends on how soon anything is done.

use super::{
    client::{Client, clients, read},
    support::*,
};
use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, TcpStream},
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};
use weir::tcp::{Handler, Output};

pub const CHECKS: &[Check] = &[
    ("one_is_never_empty", one_is_never_empty),
    ("one_has_always_more_to_send", one_has_always_more_to_send),
    ("a_busy_thread_holds_up_its_own", a_busy_thread_holds_up_its_own),
    ("dealt_just_before_a_stop", dealt_just_before_a_stop),
];

/// The first byte of what the one that is never empty sends, and of what keeps a handler busy.
const MORE: u8 = b'M';
const HOLD: u8 = b'H';

/// The other end of a connection whose handler plays the peer, too: it sends to itself, so whenever something of it is
/// handled there is more already; or it reads what it has sent, so there is always room for more.
#[derive(Default)]
struct Endless {
    client: Mutex<Option<TcpStream>>,
    handled: AtomicU64,
    over: AtomicBool,
}

impl Endless {
    /// Reads what has come, if anything.
    fn take(&self) {
        if let Some(client) = &mut *self.client.lock().unwrap() {
            let _ = client.read(&mut [0; 64]);
        }
    }

    /// Sends as much as goes, at most so much.
    fn send(&self, most: usize) {
        let Some(mut client) =
            self.client.lock().unwrap().as_ref().map(|its| its.try_clone().unwrap())
        else {
            return;
        };
        match client.write(&vec![MORE; most]) {
            Ok(_) => {}
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(e) => panic!("sending: {e}"),
        }
    }
}

/// There is a bound to what is received from one while others wait. Where there is none this check would never end:
/// the one gives up after a while.
fn one_is_never_empty(subject: &Subject) -> Result<(), Skipped> {
    /// So little is received at once that there is always as much again: a receive that leaves room may end a turn.
    const AT_ONCE: usize = 1024;
    const AHEAD: usize = 32 * AT_ONCE;
    let endless = Arc::new(Endless::default());
    let its = Arc::clone(&endless);
    let server = server().buffer_bytes(AT_ONCE);
    let (server, log) = subject.start(&server, move |_| {
        let (endless, by) = (Arc::clone(&its), Instant::now() + 2 * PATIENCE);
        move |bytes: &mut [u8], output: &mut Output<'_>| {
            if bytes[0] != MORE {
                return echo(bytes, output);
            }
            endless.handled.fetch_add(1, Relaxed);
            if !endless.over.load(Relaxed) && Instant::now() < by {
                endless.send(bytes.len());
            }
        }
    });
    let to = server.local_addresses()[0];
    // With several threads some are of the same one.
    let mut others = clients(8, to);
    others.iter_mut().for_each(Client::ping);
    let client = Client::connect(to, 0).stream;
    client.set_nonblocking(true).unwrap();
    *endless.client.lock().unwrap() = Some(client);
    endless.send(AHEAD);
    for round in 1..=3 {
        until("more of the one", || endless.handled.load(Relaxed) >= 100 * round);
        others.iter_mut().for_each(Client::ping);
        Client::connect(to, 1).ping();
    }
    endless.over.store(true, Relaxed);
    drop((endless.client.lock().unwrap().take(), others));
    assert_eq!(stop(server, &log).closed_finished, 12);
    Ok(())
}

/// Once asked to, sends a byte whenever one was taken, having read that as the peer.
struct Pours {
    endless: Arc<Endless>,
    by: Instant,
    asked: bool,
}

impl Handler for Pours {
    fn on_receive(&mut self, bytes: &mut [u8], output: &mut Output<'_>) {
        self.asked = bytes[0] == MORE;
        match self.asked {
            true => output.send(&[MORE]).expect("nothing waits"),
            false => echo(bytes, output),
        }
    }

    fn on_sent(&mut self, _: usize, output: &mut Output<'_>) {
        let endless = &self.endless;
        if self.asked && !endless.over.load(Relaxed) && Instant::now() < self.by {
            endless.handled.fetch_add(1, Relaxed);
            endless.take();
            output.send(&[MORE]).expect("one waits at most");
        }
    }
}

/// There is a bound to what is sent by one that has always more, and whose peer keeps up. Where there is none this check
/// would never end: the one gives up after a while.
fn one_has_always_more_to_send(subject: &Subject) -> Result<(), Skipped> {
    let endless = Arc::new(Endless::default());
    let its = Arc::clone(&endless);
    let (server, log) = subject.start(&server(), move |_| {
        let (endless, by) = (Arc::clone(&its), Instant::now() + 2 * PATIENCE);
        Pours { endless, by, asked: false }
    });
    let to = server.local_addresses()[0];
    // With several threads some are of the same one.
    let mut others = clients(8, to);
    others.iter_mut().for_each(Client::ping);
    let client = Client::connect(to, 0).stream;
    client.set_nonblocking(true).unwrap();
    *endless.client.lock().unwrap() = Some(client);
    endless.send(1);
    for round in 1..=3 {
        until("more of the one", || endless.handled.load(Relaxed) >= 100 * round);
        others.iter_mut().for_each(Client::ping);
        Client::connect(to, 1).ping();
    }
    endless.over.store(true, Relaxed);
    let mut client = endless.client.lock().unwrap().take().expect("it was put there");
    client.set_nonblocking(false).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    client.read_to_end(&mut Vec::new()).unwrap();
    drop((client, others));
    assert_eq!(stop(server, &log).closed_finished, 12);
    Ok(())
}

/// Holds handlers back until it is opened.
#[derive(Default)]
struct Gate {
    open: Mutex<bool>,
    opened: Condvar,
    held: AtomicU64,
}

impl Gate {
    /// Echoes; holds back whoever asks for it.
    fn answer(self: &Arc<Self>) -> impl Fn(&mut [u8], &mut Output<'_>) + Send + use<> {
        let gate = Arc::clone(self);
        move |bytes, output| {
            if bytes[0] == HOLD {
                gate.held.fetch_add(1, Relaxed);
                let open = gate.open.lock().unwrap();
                let passed =
                    gate.opened.wait_timeout_while(open, 2 * PATIENCE, |open| !*open).unwrap();
                assert!(*passed.0, "the gate was never opened");
            }
            echo(bytes, output);
        }
    }

    fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
    }
}

/// Opens it, also where a check panics.
struct Opens<'a>(&'a Gate);

impl Drop for Opens<'_> {
    fn drop(&mut self) {
        self.0.open();
    }
}

fn hold(client: &Client) {
    (&client.stream).write_all(&[HOLD]).expect("sending one byte");
}

/// Where a server has several threads for its connections, one that is busy keeps the others from nothing.
fn a_busy_thread_holds_up_its_own(subject: &Subject) -> Result<(), Skipped> {
    // Where each thread accepts, all connections may be one thread's by chance, if the others do not get a core.
    let attempts = [2, 2, 2, 2, 2, 20, 20, 20];
    for patience_s in attempts {
        if others_are_answered(subject, Duration::from_secs(patience_s))? {
            return Ok(());
        }
    }
    let count = attempts.len();
    panic!("while one thread was busy no other connection was answered, {count} times");
}

/// Whether any of many connections is answered while a thread is busy with one.
fn others_are_answered(subject: &Subject, patience: Duration) -> Result<bool, Skipped> {
    /// More than two groups, where connections are looked after in groups.
    const MANY: usize = 130;
    let gate = Arc::new(Gate::default());
    let its = Arc::clone(&gate);
    let (server, log) = subject.start(&server(), move |_| its.answer());
    let to = server.local_addresses()[0];
    let mut many = clients(MANY, to);
    many.iter_mut().for_each(Client::ping);
    if server.thread_ids().len() == 1 {
        drop(many);
        stop(server, &log);
        return Err(Skipped("one thread serves all connections".into()));
    }
    if thread::available_parallelism().is_ok_and(|cores| cores.get() == 1) {
        drop(many);
        stop(server, &log);
        return Err(Skipped("on one core one thread of a port runs at a time".into()));
    }
    let opens = Opens(&gate);
    hold(&many[0]);
    until("a busy handler", || gate.held.load(Relaxed) == 1);
    let answered = |many: &mut [Client]| {
        many.iter_mut().for_each(|client| client.send(100));
        let by = Instant::now() + patience;
        let any = |many: &mut [Client]| {
            many.iter().any(|client| {
                client.stream.set_nonblocking(true).unwrap();
                let any = client.stream.peek(&mut [0]).is_ok();
                client.stream.set_nonblocking(false).unwrap();
                any
            })
        };
        while !any(many) && Instant::now() < by {
            thread::sleep(Duration::from_millis(1));
        }
        any(many)
    };
    let mut are_answered = answered(&mut many[1..]);
    // Of those that come now, too.
    let mut later = clients(MANY, to);
    are_answered &= answered(&mut later);
    drop(opens);
    many[1..].iter_mut().chain(&mut later).for_each(|client| client.expect(100));
    read(&many[0].stream, &mut [0]).expect("the byte that was held");
    drop((many, later));
    assert_eq!(stop(server, &log).closed_finished, 2 * MANY as u64);
    Ok(are_answered)
}

/// While threads are busy connections are accepted and dealt to them, and then the server stops: each of them is told
/// of, and closed, and where it was accepted by then what it had sent is answered.
fn dealt_just_before_a_stop(subject: &Subject) -> Result<(), Skipped> {
    const LATE: u64 = 20;
    let gate = Arc::new(Gate::default());
    let its = Arc::clone(&gate);
    let (server, log) = subject.start(&server(), move |_| its.answer());
    let to = server.local_addresses()[0];
    let mut held = clients(4, to);
    held.iter_mut().for_each(Client::ping);
    let opens = Opens(&gate);
    held.iter().for_each(hold);
    until("a busy handler", || gate.held.load(Relaxed) > 0);
    let before = server.counters().accepted;
    let mut late = clients(LATE as usize, to);
    late.iter_mut().for_each(|client| client.send(10));
    // Where a thread that is busy is the one that accepts nobody will be, which must not matter.
    let by = Instant::now() + Duration::from_millis(200);
    while server.counters().accepted < before + LATE && Instant::now() < by {
        thread::sleep(Duration::from_millis(1));
    }
    let all_dealt = server.counters().accepted == before + LATE;
    let report = thread::scope(|scope| {
        scope.spawn(move || {
            // Most times the stop comes first; it must not matter.
            thread::sleep(Duration::from_millis(20));
            drop(opens);
            for mut client in late {
                if all_dealt {
                    client.expect(10);
                    client.expect_end();
                } else {
                    // Answered, or refused.
                    while client.receive(10).is_ok_and(|count| count > 0) {}
                }
            }
            for client in held {
                assert_eq!(read(&client.stream, &mut [0; 2]).expect("the byte that was held"), 1);
                assert_eq!(read(&client.stream, &mut [0]).expect("the end"), 0);
            }
        });
        stop(server, &log)
    });
    assert!(report.accepted <= 4 + LATE && report.accepted >= 4);
    if all_dealt {
        assert_eq!(report.closed_finished, 4 + LATE);
    }
    Ok(())
}
