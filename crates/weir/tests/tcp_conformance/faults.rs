//! What goes wrong: handlers that panic, addresses that cannot be had, descriptors that are used up.

use super::{
    alone::descriptors,
    client::{Client, clients, socket_to},
    machine,
    support::*,
};
use std::{
    fs::File,
    io::ErrorKind,
    net::{SocketAddr, TcpListener},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};
use weir::{
    Error,
    tcp::{Handler, Output, Reason, Running, Server},
    timer::TICK,
};

pub const CHECKS: &[Check] = &[
    ("handler_panics", handler_panics),
    ("handler_cannot_be_made", handler_cannot_be_made),
    ("address_in_use", address_in_use),
    ("address_of_another_machine", address_of_another_machine),
    ("descriptors_run_out", descriptors_run_out),
    ("descriptors_come_back", descriptors_come_back),
];

/// Where a handler panics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    Connect,
    Receive,
    Sent,
    End,
    Close,
}

/// Echoes, and panics in one of its calls.
struct Panics(Option<Call>);

impl Panics {
    fn called(&self, call: Call) {
        assert!(self.0 != Some(call), "panicked {ON_PURPOSE} in {call:?}");
    }
}

impl Handler for Panics {
    fn on_connect(&mut self, _: SocketAddr, _: &mut Output<'_>) {
        self.called(Call::Connect);
    }

    fn on_receive(&mut self, _: &mut [u8], output: &mut Output<'_>) {
        output.echo().expect("nothing was sent before");
        self.called(Call::Receive);
    }

    fn on_sent(&mut self, _: usize, _: &mut Output<'_>) {
        self.called(Call::Sent);
    }

    fn on_end(&mut self, output: &mut Output<'_>) {
        output.finish();
        self.called(Call::End);
    }

    fn on_close(&mut self, _: &Reason) {
        self.called(Call::Close);
    }
}

/// The one connection is closed, the others and the server go on.
fn handler_panics(subject: &Subject) -> Result<(), Skipped> {
    for call in [Call::Connect, Call::Receive, Call::Sent, Call::End, Call::Close] {
        let made = AtomicU64::new(0);
        let (server, log) = subject
            .start(&server(), move |_| Panics((made.fetch_add(1, Relaxed) == 1).then_some(call)));
        let to = server.local_addresses()[0];
        let mut before = Client::connect(to, 1);
        before.ping();
        let bad = || Client::connect(to, 2);
        match call {
            Call::Connect => match Client::try_connect(to, 2) {
                Ok(mut bad) => bad.expect_reset(),
                // It was reset before the system could say that it is there.
                Err(e) => assert_eq!(e.kind(), ErrorKind::ConnectionReset, "{e}"),
            },
            Call::Receive | Call::Sent => {
                let mut bad = bad();
                bad.send(100);
                bad.expect_reset();
            }
            Call::End => {
                let mut bad = bad();
                bad.ping();
                bad.end_sending();
                bad.expect_reset();
            }
            Call::Close => bad().ping(),
        }
        until("the end of the connection", || server.counters().closed_panicked == 1);
        before.ping();
        let mut later = Client::connect(to, 3);
        later.ping();
        drop((before, later));
        let total = stop(server, &log);
        assert_eq!((total.closed_panicked, total.closed_finished), (1, 2), "{call:?}");
    }
    Ok(())
}

/// That ends the server, with all that it serves.
fn handler_cannot_be_made(subject: &Subject) -> Result<(), Skipped> {
    let made = AtomicU64::new(0);
    let (server, _) = subject.start(&server(), move |_| {
        assert!(made.fetch_add(1, Relaxed) < 3, "not made {ON_PURPOSE}");
        echo
    });
    let to = server.local_addresses()[0];
    let mut clients = clients(3, to);
    clients.iter_mut().for_each(Client::ping);
    // It may be reset before the system can say that it is there.
    let refused = Client::try_connect(to, 4);
    until("the end of the server", || !server.is_running());
    for mut client in clients.into_iter().chain(refused) {
        match client.receive(1) {
            Ok(count) => assert_eq!(count, 0, "more than was sent"),
            Err(e) => assert_eq!(e.kind(), ErrorKind::ConnectionReset, "{e}"),
        }
    }
    let since = Instant::now();
    let report = server.stop();
    assert!(since.elapsed() < limits().stop + SLACK, "the stop took {:?}", since.elapsed());
    let total = report.total();
    let failure = report.failure.expect("it failed").to_string();
    assert!(failure.contains(ON_PURPOSE), "{failure}");
    assert_eq!((report.open, total.accepted, total.closed_finished), (0, 4, 3));
    assert_eq!(total.closed_panicked, 1);
    assert_left(to);
    Ok(())
}

fn assert_not_bound(started: Result<(Running, Arc<Log>), Error>, kind: ErrorKind, advice: &str) {
    match started {
        Err(error @ Error::Bind { .. }) => {
            let text = error.to_string();
            assert!(text.starts_with("cannot bind ") && text.contains(advice), "{text}");
            let Error::Bind { source, .. } = error else { unreachable!("just seen") };
            assert_eq!(source.kind(), kind);
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it started"),
    }
}

fn address_in_use(subject: &Subject) -> Result<(), Skipped> {
    const ADVICE: &str = "choose another port";
    // By another program.
    let other = TcpListener::bind(any_port()).unwrap();
    let at = other.local_addr().unwrap();
    assert_not_bound(subject.try_start(&Server::bind(at), |_| echo), ErrorKind::AddrInUse, ADVICE);
    // By another server of the same design, which is not disturbed; and the first address of the
    // second server is free again.
    let (server, log) = subject.echo(&server());
    let at = server.local_addresses()[0];
    let free = TcpListener::bind(any_port()).unwrap().local_addr().unwrap();
    for both in [Server::bind(at), Server::bind(free).and_bind(at)] {
        assert_not_bound(subject.try_start(&both, |_| echo), ErrorKind::AddrInUse, ADVICE);
    }
    assert_left(free);
    let mut client = Client::connect(at, 1);
    client.ping();
    drop(client);
    stop(server, &log);
    // It can have the address after the other has gone, connections that are not quite over
    // notwithstanding.
    let (server, log) = subject.echo(&Server::bind(at).limits(limits()));
    Client::connect(at, 1).ping();
    stop(server, &log);
    Ok(())
}

fn address_of_another_machine(subject: &Subject) -> Result<(), Skipped> {
    // For documentation (RFC 5737): no machine has it.
    let at = SocketAddr::from(([192, 0, 2, 1], 0));
    let advice = "this machine has no such address";
    let started = subject.try_start(&Server::bind(at), |_| echo);
    assert_not_bound(started, ErrorKind::AddrNotAvailable, advice);
    Ok(())
}

/// How often a thread that waits may enter the kernel, or look in vain, from one tick of its clock to the next. One
/// that does not wait does so thousands of times.
const TRIES_PER_TICK: u64 = 10;

/// Opens files until the process can have no more.
fn hoard() -> Vec<File> {
    let Ok(first) = File::open("/dev/null") else { return vec![] };
    // Faster than opening each.
    let mut all = vec![first];
    while let Ok(another) = all[0].try_clone() {
        all.push(another);
    }
    all
}

/// Connections wait meanwhile, the server waits with them instead of trying again and again, and
/// what is open is served. Where connections of the server are no descriptors, none waits.
fn descriptors_run_out(subject: &Subject) -> Result<(), Skipped> {
    const WAITING: usize = 20;
    const WATCHED: Duration = Duration::from_millis(400);
    if machine::most_descriptors().is_none() {
        return Err(Skipped("the system does not tell how many descriptors there may be".into()));
    }
    let (server, log) = subject.echo(&server());
    let to = server.local_addresses()[0];
    let before = descriptors();
    let mut open = clients(2, to);
    open.iter_mut().for_each(Client::ping);
    let taken = descriptors().zip(before).map(|(after, before)| after - before);
    // These need no descriptor any more to connect.
    let sockets: Vec<_> = (0..WAITING).map(|_| socket_to(to)).collect();
    let hoarded = hoard();
    for (socket, address) in &sockets {
        socket.connect(address).expect("the system connects before anyone accepts");
    }
    let sockets = sockets.into_iter().map(|(socket, _)| socket);
    if taken == Some(open.len()) {
        for (number, socket) in (10..).zip(sockets) {
            let mut client = Client::on(socket.into(), number);
            client.ping();
        }
        drop((open, hoarded));
        let total = stop(server, &log);
        let all = WAITING as u64 + 2;
        assert_eq!((total.accepted, total.closed_finished, total.accept_pauses), (all, all, 0));
        return Ok(());
    }
    until("a pause of accepting", || server.counters().accept_pauses > 0);
    // This counts what is tried in a time, so it waits for time; the longer that was, the more may be.
    let threads = server.thread_ids().len() as u64;
    let tries = || {
        let calls = server.calls();
        calls.kernel_entries + calls.empty_dequeues + server.counters().empty_receives
    };
    let since = Instant::now();
    let (before, pauses) = (tries(), server.counters().accept_pauses);
    thread::sleep(WATCHED);
    let (tries, pauses) = (tries() - before, server.counters().accept_pauses - pauses);
    let ticks = since.elapsed().as_nanos().div_ceil(TICK.as_nanos()) as u64 + 1;
    assert!(pauses <= ticks * threads, "accepting failed {pauses} times in {ticks} ticks");
    let most = ticks * threads * TRIES_PER_TICK;
    assert!(tries <= most, "{tries} tries in {ticks} ticks of waiting, on {threads} threads");
    assert_eq!(server.counters().accepted, 2);
    open.iter_mut().for_each(Client::ping);
    // A connection that goes makes place for another.
    drop(open.pop());
    until("a connection in the place of another", || server.counters().accepted > 2);
    open.iter_mut().for_each(Client::ping);
    drop(hoarded);
    for (number, socket) in (10..).zip(sockets) {
        let mut client = Client::on(socket.into(), number);
        client.ping();
    }
    Client::connect(to, 5).ping();
    drop(open);
    let total = stop(server, &log);
    assert_eq!((total.accepted, total.closed_finished), (WAITING as u64 + 3, WAITING as u64 + 3));
    Ok(())
}

/// Whoever connected while there were no descriptors is served once there are some again, however few they
/// are: nobody else need connect for that.
fn descriptors_come_back(subject: &Subject) -> Result<(), Skipped> {
    const ROUNDS: u64 = 5;
    /// One more than accepts are outstanding.
    const MOST: u64 = 6;
    if machine::most_descriptors().is_none() {
        return Err(Skipped("the system does not tell how many descriptors there may be".into()));
    }
    let (server, log) = subject.echo(&server());
    let to = server.local_addresses()[0];
    let mut before = Client::connect(to, 1);
    before.ping();
    for (_, waiting) in (0..ROUNDS).flat_map(|round| (1..=MOST).map(move |many| (round, many))) {
        let sockets: Vec<_> = (0..waiting).map(|_| socket_to(to)).collect();
        let (earlier, hoarded) = (server.counters(), hoard());
        for (socket, address) in &sockets {
            socket.connect(address).expect("connecting before anyone accepts");
        }
        let sockets = sockets.into_iter().map(|(socket, _)| socket);
        // Where connections of the server are no descriptors, nobody waits.
        until("a pause of accepting", || {
            let now = server.counters();
            now.accept_pauses > earlier.accept_pauses || now.accepted > earlier.accepted
        });
        drop(hoarded);
        for (number, socket) in (10..).zip(sockets) {
            Client::on(socket.into(), number).ping();
        }
    }
    before.ping();
    drop(before);
    let all = 1 + ROUNDS * (1..=MOST).sum::<u64>();
    let total = stop(server, &log);
    assert_eq!((total.accepted, total.closed_finished), (all, all));
    Ok(())
}
