//! What a handler may ask of its connection: to be called in time, a pause, and to be waited for.

use super::{
    client::{Client, Random, read},
    support::*,
    wine,
};
use std::{
    io::ErrorKind,
    net::SocketAddr,
    time::{Duration, Instant},
};
use weir::{
    tcp::{Asks, Handler, Output},
    timer::TICK,
};

pub const CHECKS: &[Check] = &[
    ("is_called_when_it_asks", is_called_when_it_asks),
    ("is_called_in_order_and_never_early", is_called_in_order_and_never_early),
    ("is_called_sooner_than_ticks", is_called_sooner_than_ticks),
    ("is_called_while_its_peer_takes_nothing", is_called_while_its_peer_takes_nothing),
    ("pauses_and_goes_on", pauses_and_goes_on),
    ("pauses_and_breaks", pauses_and_breaks),
    ("brings_output_after_the_end", brings_output_after_the_end),
    ("is_told_of_a_stop", is_told_of_a_stop),
    ("a_stop_waits_for_what_is_held_back", a_stop_waits_for_what_is_held_back),
];

/// A time that is long enough to tell from none.
const SHORT: Duration = Duration::from_millis(200);

/// Says so many lines, each after some time, then finishes.
struct Ticks {
    left: u32,
    due: Option<Instant>,
}

impl Handler for Ticks {
    fn on_connect(&mut self, _: SocketAddr, output: &mut Output<'_>) {
        self.due = Some(output.now() + SHORT);
    }

    fn on_receive(&mut self, _: &mut [u8], _: &mut Output<'_>) {}

    fn on_time(&mut self, output: &mut Output<'_>) {
        self.left -= 1;
        self.due = Some(output.now() + SHORT).filter(|_| self.left > 0);
        output.send(b"tick\n").unwrap();
        if self.left == 0 {
            output.finish();
        }
    }

    fn asks(&self) -> Asks {
        Asks::NOTHING.at(self.due)
    }
}

fn is_called_when_it_asks(subject: &Subject) -> Result<(), Skipped> {
    let (server, log) = subject.start(&server(), |_| Ticks { left: 3, due: None });
    let to = server.local_addresses()[0];
    let since = Instant::now();
    let silent = Client::connect(to, 1);
    let mut speaks = Client::connect(to, 2);
    for client in [&silent, &speaks] {
        let mut line = [0; 5];
        for _ in 0..3 {
            let mut at = 0;
            while at < line.len() {
                let count = read(&client.stream, &mut line[at..]).expect("a tick");
                assert!(count > 0, "the end came early");
                at += count;
            }
            assert_eq!(&line, b"tick\n");
            speaks_in_between(client);
        }
    }
    // Never early, and the times of one are not put off by the other's.
    assert!(since.elapsed() >= 3 * SHORT, "after {:?}", since.elapsed());
    speaks.expect_end();
    drop((silent, speaks));
    let timers = stop_within(server, &log, limits().stop + SLACK).timers;
    assert!(timers.fired >= 6, "{timers:?}");
    Ok(())
}

/// Says when it was called, as asked for: so many microseconds after it connected, in a line.
struct CalledAfter {
    left: Vec<u64>,
    began: Option<Instant>,
}

impl Handler for CalledAfter {
    fn on_connect(&mut self, _: SocketAddr, output: &mut Output<'_>) {
        self.began = Some(output.now());
    }

    fn on_receive(&mut self, _: &mut [u8], _: &mut Output<'_>) {}

    fn on_time(&mut self, output: &mut Output<'_>) {
        let due = self.asks().deadline.expect("it asks, and is called for nothing else");
        assert!(output.now() >= due, "{:?} early", due - output.now());
        let after = self.left.pop().expect("it asks for one more");
        output.send(&[after as u8]).unwrap();
        if self.left.is_empty() {
            output.finish();
        }
    }

    fn asks(&self) -> Asks {
        let next = self.left.last().map(|after| Duration::from_micros(*after));
        Asks::NOTHING.at(next.and_then(|after| Some(self.began? + after)))
    }
}

/// What several connections ask for, at times that are no whole milliseconds, and that cross.
fn is_called_in_order_and_never_early(subject: &Subject) -> Result<(), Skipped> {
    const CALLS: u64 = 40;
    let (server, log) = subject.start(&server(), |_| CalledAfter {
        left: (1..=CALLS).rev().map(|call| call * 777).collect(),
        began: None,
    });
    for mut client in super::client::clients(8, server.local_addresses()[0]) {
        let calls: Vec<_> = (1..=CALLS).map(|call| (call * 777) as u8).collect();
        assert_eq!(everything(&mut client), calls);
    }
    let timers = stop_within(server, &log, limits().stop + SLACK).timers;
    assert!(timers.fired >= 8 * CALLS, "{timers:?}");
    Ok(())
}

/// A time that is asked for in small steps is over long before as many ticks are. A machine that is busy may come late;
/// so it is tried again and again, as one that ticks is late each time.
fn is_called_sooner_than_ticks(subject: &Subject) -> Result<(), Skipped> {
    const CALLS: u32 = 10;
    let (server, log) = subject.start(&server(), |_| CalledAfter {
        left: (1..=u64::from(CALLS)).rev().map(|call| call * 1000).collect(),
        began: None,
    });
    let to = server.local_addresses()[0];
    let since = Instant::now();
    loop {
        let mut client = Client::connect(to, 1);
        let began = Instant::now();
        assert_eq!(everything(&mut client).len(), CALLS as usize);
        // One that is called at ticks needs as many, less the one that it may have begun in the middle of.
        if began.elapsed() < (CALLS - 1) * TICK {
            break;
        }
        assert!(since.elapsed() < PATIENCE, "{CALLS} calls took {:?}", began.elapsed());
    }
    stop(server, &log);
    Ok(())
}

/// What the server says until it has finished.
fn everything(client: &mut Client) -> Vec<u8> {
    let (mut all, mut bytes) = (Vec::new(), [0; 100]);
    loop {
        match read(&client.stream, &mut bytes).expect("bytes, or the end") {
            0 => break,
            count => all.extend_from_slice(&bytes[..count]),
        }
    }
    client.end_sending();
    all
}

/// What comes meanwhile puts nothing off; the connection may be finished by then.
fn speaks_in_between(client: &Client) {
    use std::io::Write;
    let _ = (&client.stream).write_all(b"x");
}

/// Sends what there is room for and breaks the connection off where it is not all gone in time.
struct Bulk {
    due: Option<Instant>,
}

impl Handler for Bulk {
    fn on_receive(&mut self, _: &mut [u8], output: &mut Output<'_>) {
        self.due = Some(output.now() + SHORT);
        self.on_sent(0, output);
    }

    fn on_sent(&mut self, _: usize, output: &mut Output<'_>) {
        output.send(&vec![0; output.room()]).unwrap();
    }

    fn on_time(&mut self, output: &mut Output<'_>) {
        self.due = None;
        output.close("it took too long");
    }

    fn asks(&self) -> Asks {
        Asks::NOTHING.at(self.due)
    }
}

/// Also where every thread of the connection waits for the system.
fn is_called_while_its_peer_takes_nothing(subject: &Subject) -> Result<(), Skipped> {
    // Its own time is the only one that can end it.
    let limits = limits().stalled(None);
    let (server, log) = subject.start(&server_with(limits), |_| Bulk { due: None });
    let to = server.local_addresses()[0];
    let mut client = Client::connect(to, 1);
    let since = Instant::now();
    client.send(1);
    assert_eq!(log.wait_for_ending(client.address()), How::Filter);
    assert!(since.elapsed() >= SHORT, "after {:?}", since.elapsed());
    let text = log.told().closed[0].text.clone();
    assert!(text.contains("it took too long"), "{text}");
    // A thread that waits for room can only be woken by what its peer may take for an end in order.
    let mut bytes = vec![0; 1 << 20];
    while read(&client.stream, &mut bytes).is_ok_and(|count| count > 0) {}
    drop(client);
    assert_eq!(stop(server, &log).closed_by_filter, 1);
    Ok(())
}

/// Echoes, and pauses after each receive.
struct Rests {
    time: Duration,
    until: Option<Instant>,
}

impl Handler for Rests {
    fn on_receive(&mut self, _: &mut [u8], output: &mut Output<'_>) {
        self.until = Some(output.now() + self.time);
        output.echo().unwrap();
    }

    fn on_time(&mut self, _: &mut Output<'_>) {
        self.until = None;
    }

    fn asks(&self) -> Asks {
        Asks::NOTHING.deadline(self.until).pause(self.until.is_some())
    }
}

fn pauses_and_goes_on(subject: &Subject) -> Result<(), Skipped> {
    in_time(SHORT, |short| pauses_and_goes_on_with(subject, short))
}

fn pauses_and_goes_on_with(subject: &Subject, short: Duration) -> Result<(), Skipped> {
    // Its silence while it is not received from is no silence.
    let limits = limits().idle(Some(short));
    let (server, log) =
        subject.start(&server_with(limits), |_| Rests { time: 2 * TICK, until: None });
    let mut client = Client::connect(server.local_addresses()[0], 1);
    let since = Instant::now();
    let receives = 8;
    client.exchange(receives * weir::tcp::DEFAULT_BUFFER_BYTES as u64, &mut Random(7));
    let least = 2 * TICK * (receives as u32 - 1);
    assert!(since.elapsed() >= least, "it took only {:?}", since.elapsed());
    client.end_sending();
    client.expect_end();
    assert_eq!(log.wait_for_ending(client.address()), How::Finished);
    drop(client);
    let total = stop(server, &log);
    assert!(total.pauses >= receives, "{} pauses", total.pauses);
    Ok(())
}

/// A connection that breaks while nothing is received from it ends no later than the pause.
fn pauses_and_breaks(subject: &Subject) -> Result<(), Skipped> {
    let (server, log) = subject.start(&server(), |_| Rests { time: SHORT, until: None });
    let to = server.local_addresses()[0];
    let mut client = Client::connect(to, 1);
    client.ping();
    until("the pause", || server.counters().pauses == 1);
    let before = server.counters();
    let address = client.address();
    client.reset();
    let how = log.wait_for_ending(address);
    let is_told = !wine::RESETS.is_left_out() && !subject.is_unix();
    assert!(how == How::Failed || how == How::Finished && !is_told, "{how:?}");
    // Nobody asked again and again in between.
    let asked = server.counters().since(&before);
    assert!(asked.empty_receives + asked.batches.count() < 50, "{asked:?}");
    stop(server, &log);
    Ok(())
}

/// Answers some time later, also when its peer has ended or the server stops meanwhile.
#[derive(Default)]
struct Late {
    kept: Vec<u8>,
    due: Option<Instant>,
    ends: bool,
}

impl Late {
    fn end(&mut self, output: &mut Output<'_>) {
        self.ends = true;
        if self.kept.is_empty() {
            output.finish();
        }
    }
}

impl Handler for Late {
    fn on_receive(&mut self, bytes: &mut [u8], output: &mut Output<'_>) {
        self.kept.extend_from_slice(bytes);
        self.due = Some(output.now() + SHORT);
    }

    fn on_end(&mut self, output: &mut Output<'_>) {
        self.end(output);
    }

    fn on_stop(&mut self, output: &mut Output<'_>) {
        self.end(output);
    }

    fn on_time(&mut self, output: &mut Output<'_>) {
        self.due = None;
        output.send(&std::mem::take(&mut self.kept)).unwrap();
        if self.ends {
            output.finish();
        }
    }

    fn asks(&self) -> Asks {
        Asks::NOTHING.deadline(self.due).holds(!self.kept.is_empty())
    }
}

fn brings_output_after_the_end(subject: &Subject) -> Result<(), Skipped> {
    let (server, log) = subject.start(&server(), |_| Late::default());
    let mut client = Client::connect(server.local_addresses()[0], 1);
    client.ping();
    client.send(100);
    client.end_sending();
    client.expect(100);
    client.expect_end();
    assert_eq!(log.wait_for_ending(client.address()), How::Finished);
    drop(client);
    stop(server, &log);
    Ok(())
}

fn a_stop_waits_for_what_is_held_back(subject: &Subject) -> Result<(), Skipped> {
    let (server, log) = subject.start(&server(), |_| Late::default());
    let mut client = Client::connect(server.local_addresses()[0], 1);
    client.send(100);
    log.wait_for("a receive", |told| told.received == 100);
    let receiving = std::thread::spawn(move || {
        client.expect(100);
        client.expect_end();
    });
    let total = stop(server, &log);
    receiving.join().expect("everything, then the end");
    assert_eq!(total.closed_finished, 1);
    Ok(())
}

struct Polite;

impl Handler for Polite {
    fn on_receive(&mut self, _: &mut [u8], output: &mut Output<'_>) {
        output.echo().unwrap();
    }

    fn on_stop(&mut self, output: &mut Output<'_>) {
        output.send(b"goodbye").unwrap();
    }
}

/// After all that was received by then.
fn is_told_of_a_stop(subject: &Subject) -> Result<(), Skipped> {
    let (server, log) = subject.start(&server(), |_| Polite);
    let to = server.local_addresses()[0];
    let mut clients = super::client::clients(3, to);
    clients.iter_mut().for_each(Client::ping);
    let receiving = std::thread::spawn(move || {
        for client in clients {
            let (mut said, mut bytes) = (Vec::new(), [0; 100]);
            loop {
                match read(&client.stream, &mut bytes) {
                    Ok(0) => break,
                    Ok(count) => said.extend_from_slice(&bytes[..count]),
                    Err(e) => panic!("{:?} instead of the end", e.kind() as ErrorKind),
                }
            }
            assert_eq!(said, b"goodbye");
        }
    });
    let total = stop(server, &log);
    receiving.join().expect("a goodbye");
    assert_eq!((total.closed_finished, total.closed_stopped), (3, 0));
    Ok(())
}
