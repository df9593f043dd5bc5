//! Waiting in groups, for the designs that have it.

use super::{
    client::{Client, clients, read},
    support::*,
};
use std::{
    fs,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};
use weir::tcp::{Asks, Handle, Handler, Output, Running};

pub const CHECKS: &[Check] = &[
    ("gathers_groups", gathers_groups),
    ("gathers_a_lone_message", gathers_a_lone_message),
    ("gathers_more_than_is_taken_at_a_time", gathers_more_than_is_taken_at_a_time),
    ("gathers_until_there_is_mail", gathers_until_there_is_mail),
    ("gathers_until_a_timer_is_due", gathers_until_a_timer_is_due),
    ("gathers_until_a_stop", gathers_until_a_stop),
    ("gathers_from_when_that_is_asked_for", gathers_from_when_that_is_asked_for),
];

/// The longest that may be asked for: far longer than the messages here are apart.
const LONG: &str = "1000000us,65536";

/// Messages that are sent one by one, and how far they are apart.
const COUNT: usize = 100;
const APART: Duration = Duration::from_millis(1);

/// How often what must not wait for a group is done: together longer than anybody's patience, if it did.
const TIMES: u32 = 200;

/// Starts a server that lets messages gather.
fn start<H: Handler>(
    subject: &Subject,
    gather: &str,
    make: impl Fn(SocketAddr) -> H + Send + Sync + 'static,
) -> (Running, Arc<Log>) {
    let (server, log) = subject.with("gather", gather).start(&server(), make);
    let settings = server.effective();
    let told = |name| settings.iter().find(|(known, _)| known == name).map(|(_, value)| &**value);
    assert_eq!(told("gather"), Some(gather));
    (server, log)
}

/// So many clients, once the server has taken them in.
fn connected(server: &Running, log: &Log, count: usize) -> Vec<Client> {
    let clients = clients(count, server.local_addresses()[0]);
    log.wait_for("that all are connected", |told| told.connected == count as u64);
    clients
}

/// How often the server's threads have slept, as the kernel counts it.
fn sleeps(server: &Running) -> u64 {
    let of_thread = |thread| {
        let status = fs::read_to_string(format!("/proc/self/task/{thread}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.expect("the kernel counts them").trim().parse::<u64>().unwrap()
    };
    server.thread_ids().into_iter().map(of_thread).sum()
}

/// The clients send messages in turn, which come one by one, each after the thread went to sleep again.
fn send_apart(clients: &mut [Client]) {
    for turn in 0..COUNT {
        let next = turn % clients.len();
        clients[next].send(100);
        thread::sleep(APART); // the pace, not a wait for something
    }
}

fn expect_all(clients: &mut [Client]) {
    for client in clients {
        client.expect((client.sent() - client.back()) as usize);
    }
}

/// A server that sleeps for each message sleeps as often. On a busy machine, where the messages take their time, those that
/// gather so long are over now and then: it sleeps until there is one, and until there is a group.
#[track_caller]
fn assert_groups(slept: u64, since: Instant, gathered: Duration) {
    let over = (since.elapsed().as_nanos() / gathered.as_nanos()) as u64;
    let most = COUNT as u64 / 2 + 2 * over;
    assert!(slept < most, "it slept {slept} times for {COUNT} messages, of at most {most}");
}

fn gathers_groups(subject: &Subject) -> Result<(), Skipped> {
    let (server, log) = start(subject, LONG, |_| echo);
    let by = server.effective().into_iter().find(|(name, _)| name == "gathers-by");
    // Threads that come with connections state it as the first of them comes.
    let mut clients = connected(&server, &log, 10);
    let by = by.or_else(|| server.effective().into_iter().find(|(name, _)| name == "gathers-by"));
    assert!(by.is_some_and(|(_, how)| how.contains("slack")), "it is told how");
    let (before, since) = (sleeps(&server), Instant::now());
    send_apart(&mut clients);
    expect_all(&mut clients);
    assert_groups(sleeps(&server) - before, since, Duration::from_secs(1));
    drop(clients);
    stop(server, &log);
    Ok(())
}

fn gathers_a_lone_message(subject: &Subject) -> Result<(), Skipped> {
    let (server, log) = start(subject, "500us,64", |_| echo);
    let mut client = Client::connect(server.local_addresses()[0], 1);
    (0..20).for_each(|_| client.ping());
    drop(client);
    stop(server, &log);
    Ok(())
}

/// What is taken at a time is less than a group: the rest does not wait as long again. If it did, this would take longer
/// than anybody's patience.
fn gathers_more_than_is_taken_at_a_time(subject: &Subject) -> Result<(), Skipped> {
    const BYTES: usize = 16;
    let has_drain = subject.design().known_options().iter().any(|option| option.name == "drain");
    let subject = if has_drain { subject.with("drain", "3") } else { subject.clone() };
    let subject = subject.with("gather", LONG);
    let (server, log) = subject.echo(&server().buffer_bytes(BYTES));
    let mut client = Client::connect(server.local_addresses()[0], 1);
    let since = Instant::now();
    // The first of them teach it that there is something to wait for.
    for messages in [10, 2 * TIMES as usize] {
        client.send(messages * BYTES);
        client.expect(messages * BYTES);
    }
    assert!(since.elapsed() < PATIENCE, "it took {:?}", since.elapsed());
    drop(client);
    stop(server, &log);
    Ok(())
}

/// Calls `f` while another client of the server gives it something to gather.
fn while_others_send(server: &Running, f: impl FnOnce()) {
    let mut talker = Client::connect(server.local_addresses()[0], 1);
    let (over, since) = (AtomicBool::new(false), Instant::now());
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Relaxed) && since.elapsed() < 2 * PATIENCE {
                talker.send(10);
                thread::sleep(APART);
            }
        });
        f();
        let took = since.elapsed();
        over.store(true, Relaxed);
        assert!(took < PATIENCE, "it took {took:?}");
    });
    talker.expect(talker.sent() as usize);
}

/// Gives its handle away, and answers when it is woken.
struct Woken(mpsc::Sender<Handle>);

impl Handler for Woken {
    fn on_connect(&mut self, _: SocketAddr, output: &mut Output<'_>) {
        let _ = self.0.send(output.handle()); // the check needs the first
    }

    fn on_receive(&mut self, _: &mut [u8], output: &mut Output<'_>) {
        output.echo().unwrap();
    }

    fn on_wake(&mut self, output: &mut Output<'_>) {
        output.send(b"!").unwrap();
    }
}

fn gathers_until_there_is_mail(subject: &Subject) -> Result<(), Skipped> {
    let (give, handles) = mpsc::channel();
    let give = Mutex::new(give);
    let make = move |_| Woken(give.lock().expect("nobody panics with it").clone());
    let (server, log) = start(subject, LONG, make);
    let silent = Client::connect(server.local_addresses()[0], 2);
    let handle = handles.recv_timeout(PATIENCE).expect("a connection");
    while_others_send(&server, || {
        for _ in 0..TIMES {
            handle.wake().unwrap();
            assert_eq!(read(&silent.stream, &mut [0]).expect("an answer"), 1);
        }
    });
    drop(silent);
    stop(server, &log);
    Ok(())
}

/// Asks to be called again and again, until it has said so much, if it has to say anything; and sends back what comes.
struct Ticks {
    left: u32,
    due: Option<Instant>,
}

impl Handler for Ticks {
    fn on_receive(&mut self, bytes: &mut [u8], output: &mut Output<'_>) {
        if bytes == b"begin" {
            (self.left, self.due) = (TIMES, Some(output.now() + APART));
        } else {
            output.echo().unwrap();
        }
    }

    fn on_time(&mut self, output: &mut Output<'_>) {
        output.send(b"!").unwrap();
        self.left -= 1;
        self.due = (self.left > 0).then(|| output.now() + APART);
    }

    fn asks(&self) -> Asks {
        Asks::NOTHING.at(self.due)
    }
}

fn gathers_until_a_timer_is_due(subject: &Subject) -> Result<(), Skipped> {
    use std::io::{Read as _, Write as _};
    let (server, log) = start(subject, LONG, |_| Ticks { left: 0, due: None });
    let mut called = Client::connect(server.local_addresses()[0], 2);
    while_others_send(&server, || {
        called.stream.write_all(b"begin").unwrap();
        called.stream.read_exact(&mut [0; TIMES as usize]).expect("a byte for each call");
    });
    drop(called);
    stop(server, &log);
    Ok(())
}

/// A stop finds it asleep, with messages that wait: those that were acknowledged by then are handled.
fn gathers_until_a_stop(subject: &Subject) -> Result<(), Skipped> {
    let (server, log) = start(subject, LONG, |_| echo);
    let mut clients = connected(&server, &log, 5);
    send_apart(&mut clients);
    let stopping = thread::spawn(move || stop(server, &log));
    expect_all(&mut clients);
    drop(clients);
    stopping.join().expect("a stop");
    Ok(())
}

/// A server that did not let messages gather does, and then no longer.
fn gathers_from_when_that_is_asked_for(subject: &Subject) -> Result<(), Skipped> {
    /// Than the messages here are apart, by far.
    const LONGER: &str = "150000us,65536";
    let (server, log) = start(subject, "none", |_| echo);
    let mut clients = connected(&server, &log, 5);
    clients[0].ping();
    for wrong in ["many", "200us", "2s,64"] {
        let error = server.set(&[("gather", wrong)]).unwrap_err().to_string();
        assert!(error.contains("200us,64"), "{error}");
    }
    server.set(&[("gather", LONGER)]).unwrap();
    let (before, since) = (sleeps(&server), Instant::now());
    send_apart(&mut clients);
    expect_all(&mut clients);
    assert_groups(sleeps(&server) - before, since, Duration::from_millis(150));
    server.set(&[("gather", "none")]).unwrap();
    (0..20).for_each(|_| clients[0].ping());
    let value = server.effective().into_iter().find(|(name, _)| name == "gather");
    assert_eq!(value.expect("it is a setting").1, "none");
    drop(clients);
    stop(server, &log);
    Ok(())
}
