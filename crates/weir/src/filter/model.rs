//! A chain of filters on a connection without I/O, driven by any bytes and held against a model: for the
//! property test here, and for the fuzz target.
//!
//! After eight bytes of settings each three are a step: what happens, how much, and what the handler does.

use super::{Filter, FlowControl, Policy, RateLimit, ReadTimeout, Verdict};
use crate::{
    tcp::{Asks, Connection, Handler, Limits, Output, Reason, Server, Wants, Worker},
    timer::TICK,
};
use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

/// Bytes received at a time, at most.
const LONGEST: usize = 300;

/// The least that a message has: its number.
const HEAD: usize = 4;

/// What the handler has said and will do.
#[derive(Default)]
struct Script {
    /// Lengths of what to send with the next call.
    next: Vec<usize>,
    echo: bool,
    finish: bool,
    late: bool,
    /// Lengths of the messages that were taken, by number.
    said: Vec<usize>,
    finished: bool,
    stopped: bool,
    reason: Option<String>,
}

fn content(number: usize, bytes: &mut [u8]) {
    let (head, rest) = bytes.split_at_mut(HEAD);
    head.copy_from_slice(&(number as u32).to_le_bytes());
    for (at, byte) in rest.iter_mut().enumerate() {
        *byte = (number * 31 + at * 7) as u8;
    }
}

struct Talker {
    script: Arc<Mutex<Script>>,
    due: Option<Instant>,
}

impl Talker {
    fn act(&mut self, received: Option<&mut [u8]>, output: &mut Output<'_>) {
        let mut script = self.script.lock().unwrap();
        if std::mem::take(&mut script.echo)
            && let Some(bytes) = received
            && bytes.len() >= HEAD
        {
            content(script.said.len(), bytes);
            if output.echo().is_ok() {
                script.said.push(bytes.len());
            }
        }
        for length in std::mem::take(&mut script.next) {
            let mut bytes = vec![0; length.max(HEAD)];
            content(script.said.len(), &mut bytes);
            if output.send(&bytes).is_ok() {
                assert!(!script.finished, "it was taken behind the end");
                script.said.push(bytes.len());
            }
        }
        if std::mem::take(&mut script.late) {
            self.due = Some(output.now() + 3 * TICK);
        }
        if std::mem::take(&mut script.finish) {
            script.finished = true;
            output.finish();
        }
    }
}

impl Handler for Talker {
    fn on_receive(&mut self, bytes: &mut [u8], output: &mut Output<'_>) {
        assert!(!self.script.lock().unwrap().stopped, "it was called behind the stop");
        self.act(Some(bytes), output);
    }

    fn on_sent(&mut self, bytes: usize, output: &mut Output<'_>) {
        assert!(bytes > 0);
        self.act(None, output);
    }

    fn on_end(&mut self, output: &mut Output<'_>) {
        self.act(None, output);
        self.script.lock().unwrap().finished = true;
        output.finish();
    }

    fn on_stop(&mut self, output: &mut Output<'_>) {
        self.act(None, output);
        self.script.lock().unwrap().stopped = true;
    }

    fn on_time(&mut self, output: &mut Output<'_>) {
        assert!(self.due.take().is_some_and(|due| due <= output.now()), "it did not ask for it");
        self.act(None, output);
    }

    fn asks(&self) -> Asks {
        Asks::NOTHING.at(self.due)
    }

    fn on_close(&mut self, reason: &Reason) {
        self.script.lock().unwrap().reason = Some(reason.to_string());
    }
}

type Chain = <super::Then<super::Then<ReadTimeout, RateLimit>, FlowControl> as Filter>::Of<Talker>;

/// A connection, a design that does what it wants, and what it must hold.
struct World {
    worker: Worker<Chain>,
    connection: Connection<Chain>,
    script: Arc<Mutex<Script>>,
    flow: FlowControl,
    window: usize,
    start: Instant,
    now: Instant,
    wire: Vec<u8>,
    received: u64,
    rate: u64,
    burst: Duration,
    time: Duration,
    /// Since when it would have been received from at any moment.
    heard: Instant,
    ended: bool,
}

/// The address of the peer.
fn peer() -> SocketAddr {
    "192.0.2.7:4321".parse().expect("an address")
}

impl World {
    fn new(settings: &[u8; 8]) -> Self {
        let script = Arc::<Mutex<Script>>::default();
        let bound = usize::from(u16::from_le_bytes([settings[0], settings[1]])) % 4000 + 1;
        let verdicts =
            [Verdict::Block, Verdict::DropOldest, Verdict::DropNewest].into_iter().cycle();
        let policy = match settings[2] % 4 {
            0 => Policy::Block,
            1 => Policy::DropOldest,
            2 => Policy::DropNewest,
            _ => {
                let verdicts = Mutex::new(verdicts);
                Policy::Ask(Arc::new(move |full| {
                    assert!(full.outstanding + full.message > full.bound);
                    verdicts.lock().unwrap().next().expect("without end")
                }))
            }
        };
        let rate = u64::from(settings[3]) * 40 + 100;
        let (burst, time) = (Duration::from_millis(300), TICK * (u32::from(settings[4]) + 10));
        let flow = FlowControl::new(bound, policy);
        let chain = ReadTimeout::new(time)
            .then(RateLimit::new(Some(rate), None).burst(burst))
            .then(flow.clone());
        let limits = Limits {
            output_bytes: usize::from(settings[5]) * 16 + 1,
            silent: None,
            idle: None,
            stalled: None,
            ..Limits::default()
        };
        let of_handler = Arc::clone(&script);
        let make = move |_| Talker { script: Arc::clone(&of_handler), due: None };
        let job = Server::bind(peer()).limits(limits).job(chain.handlers(make)).expect("valid");
        let mut worker = job.worker();
        let start = Instant::now();
        worker.now = Some(start);
        let connection = Connection::open(&mut worker, peer());
        let window = bound.div_ceil(2);
        let (now, wire) = (start, Vec::new());
        let (received, ended) = (0, false);
        Self {
            worker,
            connection,
            script,
            flow,
            window,
            start,
            now,
            wire,
            received,
            rate,
            burst,
            time,
            heard: start,
            ended,
        }
    }

    fn wants(&self) -> Wants {
        self.connection.wants(&self.worker.limits)
    }

    fn receive(&mut self, count: usize) {
        if !self.wants().receive {
            return;
        }
        let mut bytes = vec![0xee; count];
        let echo = self.connection.received(&mut self.worker, &mut bytes);
        self.received += count as u64;
        self.heard = self.now;
        assert!(echo == 0 || echo == count);
        if echo > 0 {
            // The system takes a part of it at once.
            let taken = count / 2;
            self.wire.extend_from_slice(&bytes[..taken]);
            self.connection.echoed(&mut self.worker, &bytes, taken);
        }
    }

    fn send(&mut self, mut room: usize) {
        while room > 0 && self.wants().send {
            let unsent = self.connection.unsent();
            let taken = unsent.len().min(room);
            self.wire.extend_from_slice(&unsent[..taken]);
            room -= taken;
            self.connection.sent(&mut self.worker, taken);
        }
    }

    fn is_due(&self) -> bool {
        let (clock, limits) = (&self.worker.clock, &self.worker.limits);
        let limit = self.connection.deadline(limits);
        limit.is_some_and(|due| due <= clock.now()) || self.connection.alarm() <= clock.moment()
    }

    fn go(&mut self, time: Duration) {
        let heard = self.wants().receive;
        self.now += time;
        if !heard {
            self.heard = self.now; // it is not the peer's silence
        }
        self.worker.now = Some(self.now);
        self.worker.clock.expired(self.now, &mut Vec::new());
        for _ in 0..4 {
            if self.is_due() {
                self.connection.timed(&mut self.worker);
            }
        }
        assert!(!self.is_due() || self.wants().close, "it asks for the past");
    }

    fn step(&mut self, [what, count, how]: [u8; 3]) {
        {
            let mut script = self.script.lock().unwrap();
            script.echo = how & 1 != 0;
            script.next =
                (0..how >> 1 & 3).map(|n| usize::from(count) * (usize::from(n) + 1)).collect();
            script.finish = how & 0xf8 == 0xf8;
            script.late = how & 0x18 == 0x10;
        }
        let count = usize::from(count);
        match what % 16 {
            0..=5 => self.receive((count + 1).min(LONGEST)),
            6..=10 => self.send(count * 4 + 1),
            11..=13 => self.go(Duration::from_millis(count as u64)),
            14 => self.go(TICK * count as u32),
            _ if what == 0xff && !self.ended => {
                self.ended = true;
                self.connection.ended(&mut self.worker);
            }
            _ if what == 0xef => self.connection.finish_after(&mut self.worker, 0),
            _ => self.send(1),
        }
    }

    /// What holds after each step.
    fn check(&mut self) {
        let elapsed = self.now - self.start;
        let most = self.rate as f64 * (elapsed + self.burst).as_secs_f64() + LONGEST as f64 + 1.0;
        let script = self.script.lock().unwrap();
        if !script.finished && !script.stopped {
            assert!(self.received as f64 <= most, "{} bytes, of {most}", self.received);
        }
        assert!(self.connection.unsent().len() <= self.window, "more was handed on than may be");
        let wants = self.wants();
        let over = self.now >= self.heard + self.time + 2 * TICK;
        if !wants.receive {
            self.heard = self.now;
        } else if !script.finished && !script.stopped && !self.ended {
            assert!(!over, "nothing was read for long");
        }
    }

    /// Everything goes at last; then the messages are told from each other again.
    fn end(mut self) {
        {
            // The handler says nothing more.
            let mut script = self.script.lock().unwrap();
            (script.echo, script.finish, script.late) = (false, false, false);
            script.next.clear();
        }
        let reason = loop {
            if self.wants().close {
                break self.connection.close(&mut self.worker);
            }
            self.send(usize::MAX);
            if self.wants().end_sending {
                self.connection.fin_sent(&self.worker);
            }
            if !std::mem::replace(&mut self.ended, true) {
                self.connection.ended(&mut self.worker);
            }
            self.go(TICK);
            assert!(self.now < self.start + Duration::from_secs(3600), "it never ends");
        };
        let in_order = matches!(reason, Reason::Finished);
        let script = self.script.lock().unwrap();
        let (mut rest, mut next, mut missing) = (&self.wire[..], 0, 0);
        while rest.len() >= HEAD {
            let number = u32::from_le_bytes(rest[..HEAD].try_into().expect("as many")) as usize;
            assert!(number >= next && number < script.said.len(), "message {number} after {next}");
            let length = script.said[number];
            if rest.len() < length {
                break;
            }
            let mut right = vec![0; length];
            content(number, &mut right);
            assert_eq!(rest[..length], right, "message {number}");
            missing += (number - next) as u64;
            next = number + 1;
            rest = &rest[length..];
        }
        if in_order {
            assert!(rest.is_empty(), "{} bytes are no message", rest.len());
            missing += (script.said.len() - next) as u64;
            assert_eq!(missing, self.flow.dropped().0, "messages dropped and not counted");
        }
        assert_eq!(script.reason.as_deref(), Some(reason.to_string().as_str()));
    }
}

/// Runs a chain as these bytes say.
///
/// # Panics
/// Where it does not what it must.
pub fn run(script: &[u8]) {
    let Some((settings, steps)) = script.split_first_chunk::<8>() else { return };
    let mut world = World::new(settings);
    for step in steps.chunks_exact(3) {
        world.step(step.try_into().expect("three"));
        if world.wants().close {
            break;
        }
        world.check();
    }
    world.end();
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn a_chain_does_what_the_model_does(script in prop::collection::vec(any::<u8>(), 8..400)) {
            super::run(&script);
        }
    }
}
