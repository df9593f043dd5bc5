//! A generator's side of the answers: what comes back, held against what was sent.
//!
//! Each answer is audited like a datagram at a server: every byte of it is compared, its number marked, its time
//! taken. Since it bears the time at which its request was due, what is taken is a round trip. Beyond that its proof of
//! reading must be the one that was sent, and it must come to the flow that sent it.

use std::{io, sync::Arc};

use weir::counters::os::SocketUsage;

use super::window::Window;
use crate::{
    audit::{Audit, Auditor, Verdict},
    clock::now_ns,
    engine::{Answers, Lane},
    pacing::wait::Waiter,
    proof::Secret,
    stamp::Stamp,
};

/// How long all answers are waited for at the end, however they come, unless another may take longer.
const ANSWERS_AT_MOST_NS: u64 = 5_000_000_000;
/// Calls that a lane is emptied with, at most: far more than a socket of the usual size holds answers for.
const EMPTYING_CALLS_MAX: u32 = 512;

/// What all generators have in common: the account of the answers, and how long they are waited for.
#[derive(Debug, Clone)]
pub(super) struct Expected {
    pub audit: Arc<Audit>,
    /// Requests under way in each flow; none where a pace says when to send.
    pub outstanding: Option<u32>,
    /// How long another is waited for at the end while some are missing, in ns.
    pub another_within_ns: u64,
}

/// What a generator found in the answers of a phase, beside the audit.
#[derive(Debug, Default, Clone)]
pub(super) struct Found {
    /// Different requests answered until its time was over.
    pub in_time: u64,
    /// Different requests answered, also after that.
    pub answered: u64,
    /// Answers whose proof of reading is not the one that was sent, or which came to another flow.
    pub forged: u64,
    /// Requests whose place was given to another.
    pub given_up: u64,
    /// Answers dropped at the generator's own sockets, if known.
    pub dropped_socket: Option<u64>,
    /// How long it had nothing to send and nothing to take, in ns.
    pub waiting_ns: u64,
}

pub(super) struct Taker {
    answers: Answers,
    auditor: Auditor,
    windows: Vec<Window>,
    /// The lane that is looked at next.
    turn: usize,
    found: Found,
    dropped_before: Option<u64>,
    waiting_since_ns: Option<u64>,
    outstanding: Option<u32>,
    another_within_ns: u64,
    run: u32,
    secret: Secret,
    end_ns: u64,
}

impl Taker {
    pub(super) fn open(expected: &Expected, lanes: &[Lane]) -> io::Result<Self> {
        Ok(Self {
            answers: Answers::new(lanes)?,
            auditor: expected.audit.auditor(),
            windows: vec![],
            turn: 0,
            found: Found::default(),
            dropped_before: None,
            waiting_since_ns: None,
            outstanding: expected.outstanding,
            another_within_ns: expected.another_within_ns,
            run: 0,
            secret: Secret::random(),
            end_ns: 0,
        })
    }

    /// Whether several answers that were sent as one are taken as one.
    pub(super) fn are_taken_together(&self) -> bool {
        self.answers.are_taken_together()
    }

    /// A phase begins that ends at `end_ns`.
    pub(super) fn begin(&mut self, lanes: &[Lane], run: u32, secret: Secret, end_ns: u64) {
        let now_ns = now_ns();
        self.windows = lanes.iter().map(|_| Window::new(now_ns)).collect();
        (self.run, self.secret, self.end_ns, self.turn) = (run, secret, end_ns, 0);
        (self.found, self.waiting_since_ns) = (Found::default(), None);
        self.dropped_before = dropped(lanes);
    }

    /// How many requests a lane may send now, where their number is limited. It is filled up once a quarter of them is
    /// answered: so a call has several of them, and the server always has some.
    pub(super) fn room(&self, lane: usize) -> Option<u32> {
        let outstanding = self.outstanding?;
        let free = outstanding.saturating_sub(self.windows[lane].under_way());
        Some(if free >= outstanding.div_ceil(4) { free } else { 0 })
    }

    /// Requests went out.
    pub(super) fn sent(&mut self, lane: usize, first: u64, sent: u32, numbers: u32) {
        self.windows[lane].sent(first, sent, numbers);
    }

    /// Takes what has come on the next lane; gives whether anything had.
    ///
    /// # Errors
    /// What further calls would meet again.
    pub(super) fn take(&mut self, lanes: &[Lane], now_ns: u64) -> io::Result<bool> {
        let turn = self.turn;
        self.turn = if turn + 1 == lanes.len() { 0 } else { turn + 1 };
        self.take_of(turn, &lanes[turn], now_ns)
    }

    /// Nothing is sent any more: takes what still comes until all of the `sent` requests are answered, those that were
    /// given up too. It waits as long as one answer comes soon after the other, and whoever sends something else does not
    /// keep it waiting. Once that time is over it empties the lanes: a thread that had no core meanwhile has not looked.
    ///
    /// # Errors
    /// What further calls would meet again.
    pub(super) fn take_rest(
        &mut self,
        lanes: &[Lane],
        sent: u64,
        waiter: &Waiter,
    ) -> io::Result<()> {
        let mut now = now_ns();
        // Answers taken from now on come late, also where it was over before its time.
        self.end_ns = self.end_ns.min(now);
        let within_ns = self.another_within_ns;
        let at_most_ns = now.saturating_add(within_ns.max(ANSWERS_AT_MOST_NS));
        let mut until_ns = now.saturating_add(within_ns);
        while self.found.answered < sent {
            let (before, is_late) = (self.found.answered, now >= until_ns);
            if is_late {
                self.empty(lanes, now)?;
            } else if !self.take(lanes, now)? {
                waiter.pause();
            }
            let is_new = self.found.answered > before;
            if is_late && (!is_new || now >= at_most_ns) {
                break;
            }
            if is_new {
                until_ns = now.saturating_add(within_ns).min(at_most_ns);
            }
            now = now_ns();
        }
        Ok(())
    }

    /// Takes all that has come on every lane.
    fn empty(&mut self, lanes: &[Lane], now_ns: u64) -> io::Result<()> {
        for (at, lane) in lanes.iter().enumerate() {
            let mut calls = 0;
            while calls < EMPTYING_CALLS_MAX && self.take_of(at, lane, now_ns)? {
                calls += 1;
            }
        }
        Ok(())
    }

    fn take_of(&mut self, at: usize, lane: &Lane, now_ns: u64) -> io::Result<bool> {
        let Self { answers, auditor, windows, found, run, secret, end_ns, .. } = self;
        let window = &mut windows[at];
        let time = std::cell::Cell::new(now_ns);
        let taken = answers.take(
            lane,
            || time.set(crate::clock::now_ns()),
            |bytes| {
                let verdict = auditor.record(bytes, || time.get());
                let Ok(stamp) = Stamp::read(bytes) else { return };
                if stamp.run != *run {
                    return;
                }
                let Stamp { flow, sequence, proof, .. } = stamp;
                if flow != lane.flow || proof != secret.value(*run, flow, sequence) {
                    found.forged += 1;
                    return;
                }
                window.answered(sequence);
                if matches!(verdict, Verdict::Intact | Verdict::Reordered | Verdict::WarmUp) {
                    found.answered += 1;
                    found.in_time += u64::from(time.get() < *end_ns);
                }
            },
        )?;
        // What has come meanwhile is no reason: a generator that had no core has not looked yet.
        window.give_up_old(now_ns);
        Ok(taken > 0)
    }

    /// Notes whether the generator had something to do by now.
    #[inline]
    pub(super) fn note(&mut self, busy: bool, now_ns: u64) {
        match (busy, self.waiting_since_ns) {
            (false, None) => self.waiting_since_ns = Some(now_ns),
            (true, Some(since_ns)) => {
                self.found.waiting_ns += now_ns.saturating_sub(since_ns);
                self.waiting_since_ns = None;
            }
            _ => {}
        }
    }

    /// The phase is over.
    pub(super) fn end(&mut self, lanes: &[Lane]) -> Found {
        let mut found = std::mem::take(&mut self.found);
        found.given_up = self.windows.iter().map(Window::given_up).sum();
        let dropped = dropped(lanes).zip(self.dropped_before);
        found.dropped_socket = dropped.map(|(after, before)| after.saturating_sub(before));
        found
    }
}

/// What was dropped at the sockets of the lanes since they were opened, if the system tells.
fn dropped(lanes: &[Lane]) -> Option<u64> {
    let own: Vec<_> = lanes.iter().map(|lane| lane.local).collect();
    SocketUsage::bound_to(&own)?.drops
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;
    use crate::{
        audit::AuditSettings,
        engine::Blocking,
        stamp::{STAMP_BYTES, fill},
    };

    /// A thread that had no core in all the time that it was to wait finds the answer, whatever lies before it.
    #[test]
    fn an_answer_behind_much_else_is_found_after_the_time_is_over() {
        const RUN: u32 = 7;
        let server = UdpSocket::bind("127.0.0.1:0").expect("loopback");
        let target = server.local_addr().expect("it has an address");
        let lanes = [Lane::connect(target, 0, Blocking::No).expect("loopback is reachable")];
        let audit = Audit::new();
        audit.begin(AuditSettings::new(RUN, STAMP_BYTES, 1, true)).expect("it can begin");
        let expected = Expected { audit, outstanding: None, another_within_ns: 0 };
        let mut taker = Taker::open(&expected, &lanes).expect("it can be opened");
        let secret = Secret::random();
        taker.begin(&lanes, RUN, secret, now_ns());
        taker.sent(0, 0, 1, 1);
        for _ in 0..200 {
            server.send_to(b"something else", lanes[0].local).expect("it is sent");
        }
        let mut answer = [0; STAMP_BYTES];
        fill(&mut answer);
        let proof = secret.value(RUN, 0, 0);
        Stamp { run: RUN, flow: 0, sequence: 0, proof, due_ns: 0 }.write(&mut answer);
        server.send_to(&answer, lanes[0].local).expect("it is sent");
        taker.take_rest(&lanes, 1, &Waiter::for_current_thread(false)).expect("it can be taken");
        let found = taker.end(&lanes);
        assert_eq!((found.answered, found.in_time), (1, 0));
    }
}
