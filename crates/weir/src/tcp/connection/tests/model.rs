//! Whatever comes and goes in whatever order, what a handler says reaches the wire once and in order.

use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;

/// What a handler does in a call.
#[derive(Debug, Clone, Default)]
struct Action {
    /// Changes the bytes and sends them back.
    echo: bool,
    /// Then sends pieces of so many bytes.
    send: Vec<usize>,
    finish: bool,
}

fn action() -> impl Strategy<Value = Action> {
    let send = || prop::collection::vec(0..200usize, 0..3);
    (any::<bool>(), send(), prop::bool::weighted(0.03)).prop_map(|(echo, send, finish)| Action {
        echo,
        send,
        finish,
    })
}

#[derive(Debug, Clone)]
enum Step {
    /// So many bytes come, and the handler does this.
    Receive(usize, Action),
    /// The system has room for so many bytes more. When it takes them, the handler does this.
    Room(usize, Action),
    /// The peer sends no more, and the handler does this.
    End(Action),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        10 => (1..LONGEST, action()).prop_map(|(count, action)| Step::Receive(count, action)),
        10 => (1..400usize, action()).prop_map(|(count, action)| Step::Room(count, action)),
        1 => action().prop_map(Step::End),
    ]
}

/// Bytes received at a time, at most.
const LONGEST: usize = 300;

/// How a design sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// At once, and then from the queue: readiness.
    Directly,
    /// From what the queue lends: a thread that sends.
    Lent,
    /// Echoes from where they lie, the rest from what the queue lends: completions.
    EchoLent,
}

/// What a handler is to do next, and what it has said in all, in the order in which it is to be heard.
#[derive(Debug, Default)]
struct Script {
    next: Action,
    said: Vec<u8>,
    refused: u64,
    finished: bool,
}

struct Scripted(Arc<Mutex<Script>>);

impl Scripted {
    fn act(&self, received: Option<&mut [u8]>, output: &mut Output<'_>) {
        let mut script = self.0.lock().unwrap();
        let Action { echo, send, finish } = std::mem::take(&mut script.next);
        let mut number = script.said.len();
        let mut fresh = |bytes: &mut [u8]| {
            for byte in bytes {
                *byte = (number * 7 + number / 256) as u8;
                number += 1;
            }
        };
        if echo && let Some(bytes) = received {
            fresh(bytes);
            match output.echo() {
                Ok(()) => script.said.extend_from_slice(bytes),
                Err(_) => script.refused += 1,
            }
        }
        for count in send {
            let mut bytes = vec![0; count];
            fresh(&mut bytes);
            let room = output.room();
            match output.send(&bytes) {
                Ok(()) => script.said.extend_from_slice(&bytes),
                Err(why) => {
                    assert!(script.finished || (why == Refused::Full && count > room), "{why}");
                    script.refused += 1;
                }
            }
        }
        if finish {
            script.finished = true;
            output.finish();
        }
    }
}

impl Handler for Scripted {
    fn on_receive(&mut self, bytes: &mut [u8], output: &mut Output<'_>) {
        self.act(Some(bytes), output);
    }

    fn on_sent(&mut self, _: usize, output: &mut Output<'_>) {
        self.act(None, output);
    }

    fn on_end(&mut self, output: &mut Output<'_>) {
        self.act(None, output);
    }
}

/// A connection, a design that does what it wants, and a system that takes what it has room for.
struct Bench {
    worker: Worker<Scripted>,
    connection: Connection<Scripted>,
    script: Arc<Mutex<Script>>,
    way: Way,
    /// What the design holds, and the system has not taken.
    held: VecDeque<u8>,
    room: usize,
    wire: Vec<u8>,
    received: u64,
    ended: bool,
    pauses: u64,
    paused: bool,
}

impl Bench {
    fn new(way: Way, output_bytes: usize) -> Self {
        let script = Arc::<Mutex<Script>>::default();
        let of_handler = Arc::clone(&script);
        let with = Limits { output_bytes, ..limits() };
        let (mut worker, _) = worker(with, move |_| Scripted(Arc::clone(&of_handler)));
        let connection = Connection::open(&mut worker, peer());
        let (held, wire) = (VecDeque::new(), Vec::new());
        let (room, received, pauses) = (0, 0, 0);
        let (ended, paused) = (false, false);
        Self { worker, connection, script, way, held, room, wire, received, ended, pauses, paused }
    }

    fn wants(&self) -> Wants {
        self.connection.wants(&self.worker.limits)
    }

    fn take(&mut self, bytes: &[u8]) -> usize {
        let count = bytes.len().min(self.room);
        self.wire.extend_from_slice(&bytes[..count]);
        self.room -= count;
        count
    }

    fn receive(&mut self, count: usize, action: Action) {
        if !self.wants().receive {
            return;
        }
        self.script.lock().unwrap().next = action;
        self.received += count as u64;
        let mut bytes = vec![0xee; count];
        let echo = self.connection.received(&mut self.worker, &mut bytes);
        if echo == 0 {
            return;
        }
        assert_eq!(echo, count);
        match self.way {
            Way::Directly => {
                let taken = self.take(&bytes);
                self.connection.echoed(&mut self.worker, &bytes, taken);
            }
            Way::Lent => self.connection.echoed(&mut self.worker, &bytes, 0),
            Way::EchoLent => {
                self.connection.lend_echo(echo);
                self.held.extend(bytes);
            }
        }
    }

    /// Sends what there is room for.
    fn send(&mut self) {
        while self.room > 0 {
            if self.way == Way::Directly {
                if !self.wants().send {
                    return;
                }
                let bytes = self.connection.unsent().to_vec();
                let taken = self.take(&bytes);
                self.connection.sent(&mut self.worker, taken);
                continue;
            }
            if self.held.is_empty() {
                if !self.wants().send {
                    return;
                }
                let mut out = Vec::new();
                self.connection.lend(&mut out);
                self.held.extend(out);
            }
            let bytes: Vec<_> = self.held.iter().copied().collect();
            let taken = self.take(&bytes);
            self.held.drain(..taken);
            self.connection.returned(&mut self.worker, taken);
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Receive(count, action) => self.receive(count, action),
            Step::Room(count, action) => {
                self.script.lock().unwrap().next = action;
                self.room += count;
            }
            Step::End(action) => {
                self.script.lock().unwrap().next = action;
                self.ended = true;
                self.connection.ended(&mut self.worker);
            }
        }
        self.send();
        let wants = self.wants();
        self.connection.note_pause(&self.worker, wants);
    }

    /// What holds after each step.
    fn check(&mut self) -> Result<(), TestCaseError> {
        let (wants, limits) = (self.wants(), self.worker.limits);
        let script = self.script.lock().unwrap();
        let waiting = self.held.len() + self.connection.unsent().len();
        let all = self.wire.iter().chain(&self.held).chain(self.connection.unsent());
        prop_assert!(all.eq(&script.said), "lost, doubled or out of order");
        prop_assert!(waiting <= limits.output_bytes + LONGEST, "{} bytes wait", waiting);
        let full = waiting >= limits.output_bytes;
        prop_assert_eq!(wants.receive, !self.ended && !full);
        prop_assert_eq!(wants.send, !self.connection.unsent().is_empty());
        prop_assert_eq!(wants.end_sending, (script.finished || self.ended) && waiting == 0);
        prop_assert!(!wants.close);
        let pauses = full && !self.ended;
        self.pauses += u64::from(pauses && !self.paused);
        self.paused = pauses;
        let counters = self.worker.counters.snapshot();
        prop_assert_eq!(counters.bytes_received, self.received);
        prop_assert_eq!(counters.bytes_sent, self.wire.len() as u64);
        prop_assert_eq!(counters.output_refused, script.refused);
        prop_assert_eq!(counters.pauses, self.pauses);
        Ok(())
    }
}

proptest! {
    #[test]
    fn output_is_never_lost_doubled_or_exchanged(
        way in prop_oneof![Just(Way::Directly), Just(Way::Lent), Just(Way::EchoLent)],
        output_bytes in 1..1000usize,
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let mut bench = Bench::new(way, output_bytes);
        for step in steps {
            bench.step(step);
            bench.check()?;
        }
        // Everything goes at last, and then the connection is over.
        bench.step(Step::End(Action::default()));
        bench.step(Step::Room(usize::MAX / 2, Action::default()));
        bench.check()?;
        prop_assert_eq!(&bench.wire, &bench.script.lock().unwrap().said);
        prop_assert_eq!(bench.wants(), Wants { end_sending: true, ..Wants::default() });
        bench.connection.fin_sent(&bench.worker);
        prop_assert_eq!(bench.wants(), Wants { close: true, ..Wants::default() });
        let reason = bench.connection.close(&mut bench.worker);
        prop_assert!(matches!(reason, Reason::Finished));
    }
}
