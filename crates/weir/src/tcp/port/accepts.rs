//! The accepts outstanding at the listening sockets: how many are to be, what re-arms them, and what pauses and ends
//! them.

use crate::{
    Error,
    counters::Counters,
    lifecycle::lock,
    port::streams::{ListenerId, Outcome, Worker as Taker},
    stream::{self, Accepted, Listener, Mode},
    tcp::{
        Handler, Worker,
        acceptor::{Leaving, accept_what_waits},
    },
    timer::TICK,
};
use std::{
    io,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Instant,
};

/// Accepts at all listening sockets, which threads share. Each function holds the lock for a few steps.
pub(super) struct Accepts {
    listeners: Vec<(Listener, ListenerId)>,
    counts: Mutex<Counts>,
    /// Whether accepting is paused, so that who looks need not lock. It changes under the lock only: else one
    /// thread's end of a pause could hide the next pause, which then nobody would end.
    paused: AtomicBool,
}

impl Accepts {
    /// At each socket `first` at first, `most` at most, and `burst` more when they run dry.
    pub(super) fn new(
        listeners: Vec<(Listener, ListenerId)>,
        (first, most, burst): (u32, u32, u32),
    ) -> Self {
        let counts = Mutex::new(Counts::new(listeners.len(), first, most, burst));
        Self { listeners, counts, paused: AtomicBool::new(false) }
    }

    /// Where others accept.
    pub(super) fn none() -> Self {
        let accepts = Self::new(Vec::new(), (0, 0, 0));
        lock(&accepts.counts).leaving = Leaving::Left;
        accepts
    }

    /// Starts as many as are to be outstanding now.
    pub(super) fn rearm(&self, taker: &mut impl Taker) {
        for (number, (_, id)) in self.listeners.iter().enumerate() {
            let more = lock(&self.counts).start_more(number);
            let started = (0..more).take_while(|_| taker.accept(*id).is_ok()).count() as u32;
            if started < more {
                lock(&self.counts).back(number, more - started); // the port is closed
            }
        }
    }

    /// What an accept brought: a connection, or not. It counts as outstanding until it is [`done`](Self::done).
    pub(super) fn brought<H: Handler>(
        &self,
        worker: &Worker<H>,
        listener: usize,
        outcome: Outcome<Accepted>,
    ) -> Result<Option<Accepted>, Error> {
        match outcome {
            Outcome::Done(accepted) => {
                lock(&self.counts).succeeded(listener);
                Ok(Some(accepted))
            }
            Outcome::Failed(e) => self.failed(worker, listener, e).map(|()| None),
            Outcome::Returned => Ok(None),
        }
    }

    /// A connection that waits though accepts are outstanding: then they have run dry, and more are to be. The
    /// socket is asked once for as many connections as accepts are kept outstanding.
    pub(super) fn beyond<H: Handler>(
        &self,
        worker: &Worker<H>,
        listener: usize,
    ) -> Result<Option<Accepted>, Error> {
        if !lock(&self.counts).is_to_ask(listener) {
            return Ok(None);
        }
        match self.listeners[listener].0.accept(Mode::Try, &worker.calls) {
            Ok(Some(accepted)) => {
                let mut counts = lock(&self.counts);
                counts.ran_dry(listener);
                counts.succeeded(listener);
                Ok(Some(accepted))
            }
            Ok(None) => Ok(None),
            Err(e) => self.failed(worker, listener, e).map(|()| None),
        }
    }

    /// Pauses for want of descriptors or memory; an error of one connection is counted.
    fn failed<H: Handler>(
        &self,
        worker: &Worker<H>,
        listener: usize,
        error: io::Error,
    ) -> Result<(), Error> {
        if stream::is_want_of_resources(&error) {
            let mut counts = lock(&self.counts);
            if counts.pause(listener) {
                worker.accepting_pauses();
            }
            self.paused.store(counts.paused_until.is_some(), Relaxed);
        } else if stream::concerns_one_connection(&error) {
            worker.counters.accept_errors.one();
        } else {
            return Err(Error::io("accepting a connection", error));
        }
        Ok(())
    }

    /// One is over, and what it brought is taken in: others take its place.
    pub(super) fn done(&self, listener: usize, taker: &mut impl Taker) {
        lock(&self.counts).back(listener, 1);
        self.rearm(taker);
    }

    /// Until when accepting is paused, if it is.
    pub(super) fn paused_until(&self) -> Option<Instant> {
        self.paused.load(Relaxed).then(|| lock(&self.counts).paused_until)?
    }

    /// Ends a pause, where a descriptor was given back, or its time is over.
    pub(super) fn resume(&self, now: Option<Instant>, taker: &mut impl Taker) {
        if !self.paused.load(Relaxed) {
            return;
        }
        let mut counts = lock(&self.counts);
        let ended = counts.resume(now);
        self.paused.store(counts.paused_until.is_some(), Relaxed);
        drop(counts);
        if ended {
            self.rearm(taker);
        }
    }

    /// The server stops: no more are started, and who waits to be accepted is refused, unless the socket goes on elsewhere.
    /// Says whether that is so from now on.
    pub(super) fn shut(&self, taker: &mut impl Taker, counters: &Counters) -> bool {
        let shut = {
            let mut counts = lock(&self.counts);
            self.paused.store(false, Relaxed);
            counts.shut()
        };
        if shut {
            self.listeners.iter().for_each(|(listener, _)| listener.end_accepting());
            // At a socket that goes on they would wait for ever.
            taker.end_accepting(counters);
        }
        shut
    }

    /// The server goes on, and its sockets elsewhere: no more are started, and those that are outstanding are cancelled.
    pub(super) fn leave_off(&self, taker: &mut impl Taker, counters: &Counters) {
        let leaves = {
            let mut counts = lock(&self.counts);
            let leaves = counts.leave_off();
            self.paused.store(counts.paused_until.is_some(), Relaxed);
            leaves
        };
        if leaves {
            taker.end_accepting(counters);
        }
    }

    /// Once all that were cancelled have come back: [what waits](accept_what_waits), no more of it than accepts were
    /// outstanding. After a stop that is nothing, as it would end at once: it is left to whom the socket goes to.
    pub(super) fn left_off<H: Handler>(&self, worker: &Worker<H>) -> Option<Vec<Accepted>> {
        let most = {
            let mut counts = lock(&self.counts);
            counts.left_off().then_some(if counts.shut { 0 } else { counts.most })?
        };
        let listeners = self.listeners.iter().map(|(listener, _)| listener);
        Some(accept_what_waits(worker, listeners, most))
    }

    /// Those that were cancelled have not all come back, or that is not said yet.
    pub(super) fn is_leaving(&self) -> bool {
        lock(&self.counts).leaving == Leaving::Cancelling
    }

    pub(super) fn is_shut(&self) -> bool {
        lock(&self.counts).shut
    }

    /// No more are started, and none is outstanding.
    pub(super) fn is_over(&self) -> bool {
        let counts = lock(&self.counts);
        counts.shut && counts.outstanding() == 0
    }
}

/// How many are outstanding, and how many are to be.
struct Counts {
    listeners: Vec<AtListener>,
    /// Most of each listening socket, and how many more when they run dry.
    most: u32,
    burst: u32,
    /// Until when nothing is accepted, since the system had no descriptor or memory to give.
    paused_until: Option<Instant>,
    shut: bool,
    leaving: Leaving,
}

#[derive(Clone)]
struct AtListener {
    outstanding: u32,
    /// To be kept outstanding.
    meant: u32,
    /// Taken since the socket was last asked whether one waits.
    taken: u32,
    /// The last one failed for want of resources: for each pause one tries, until one succeeds.
    probing: bool,
    /// One came back since one was started to try. Those that are outstanding are told of who comes, not of who
    /// has waited since.
    probe: bool,
}

impl Counts {
    fn new(listeners: usize, first: u32, most: u32, burst: u32) -> Self {
        let (outstanding, meant, taken, probing, probe) = (0, first, 0, false, false);
        let each = AtListener { outstanding, meant, taken, probing, probe };
        let listeners = vec![each; listeners];
        let (paused_until, shut, leaving) = (None, false, Leaving::No);
        Self { listeners, most: most.max(first), burst, paused_until, shut, leaving }
    }

    /// Whether no more are started.
    fn ended(&self) -> bool {
        self.shut || self.leaving != Leaving::No
    }

    /// How many more to start now at this listening socket; they count as outstanding.
    fn start_more(&mut self, listener: usize) -> u32 {
        if self.ended() || self.paused_until.is_some() {
            return 0;
        }
        let at = &mut self.listeners[listener];
        let more = match at.probing {
            // In the place of the one that came back: so there are never too many.
            true => u32::from(std::mem::take(&mut at.probe)),
            false => at.meant.saturating_sub(at.outstanding),
        };
        at.outstanding += more;
        more
    }

    /// So many came back.
    fn back(&mut self, listener: usize, count: u32) {
        let at = &mut self.listeners[listener];
        at.outstanding -= count;
        at.probe = true;
    }

    fn succeeded(&mut self, listener: usize) {
        let at = &mut self.listeners[listener];
        at.probing = false;
        at.taken = at.taken.saturating_add(1);
    }

    /// Whether it is time to ask the socket if another waits.
    fn is_to_ask(&mut self, listener: usize) -> bool {
        let at = &mut self.listeners[listener];
        let ask = at.taken >= at.meant;
        if ask {
            at.taken = 0;
        }
        ask && !self.ended()
    }

    /// One waited though accepts were outstanding.
    fn ran_dry(&mut self, listener: usize) {
        let at = &mut self.listeners[listener];
        at.meant = (at.meant + self.burst).min(self.most);
    }

    /// One failed for want of descriptors or memory. Says whether accepting pauses from now on.
    fn pause(&mut self, listener: usize) -> bool {
        self.listeners[listener].probing = true;
        let begins = self.paused_until.is_none() && !self.ended();
        if begins {
            self.paused_until = Some(Instant::now() + TICK);
        }
        begins
    }

    /// Says whether there was a pause that is over.
    fn resume(&mut self, now: Option<Instant>) -> bool {
        let over = |until: Instant| now.is_none_or(|now| until <= now);
        self.paused_until.take_if(|until| over(*until)).is_some()
    }

    fn shut(&mut self) -> bool {
        self.paused_until = None;
        !std::mem::replace(&mut self.shut, true)
    }

    /// Says whether they were started until now.
    fn leave_off(&mut self) -> bool {
        let leaves = !self.ended();
        if leaves {
            self.paused_until = None;
            self.leaving = Leaving::Cancelling;
        }
        leaves
    }

    /// Says, once, that none is outstanding any more.
    fn left_off(&mut self) -> bool {
        let left = self.leaving == Leaving::Cancelling && self.outstanding() == 0;
        if left {
            self.leaving = Leaving::Left;
        }
        left
    }

    fn outstanding(&self) -> u32 {
        self.listeners.iter().map(|at| at.outstanding).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn accepts_begin_few_and_grow_by_bursts_when_they_run_dry() {
        let mut counts = Counts::new(1, 5, 500, 100);
        assert_eq!((counts.start_more(0), counts.start_more(0)), (5, 0));
        // One at a time: it is replaced, and the fifth asks.
        let asked: Vec<_> = (0..5)
            .map(|_| {
                counts.back(0, 1);
                counts.succeeded(0);
                let ask = counts.is_to_ask(0);
                assert_eq!(counts.start_more(0), 1);
                ask
            })
            .collect();
        assert_eq!(asked, [false, false, false, false, true]);
        for kept in [105, 205, 305, 405, 500, 500] {
            counts.ran_dry(0);
            counts.start_more(0);
            assert_eq!(counts.outstanding(), kept);
        }
    }

    #[test]
    fn a_want_of_descriptors_pauses_once_and_one_accept_tries() {
        let mut counts = Counts::new(1, 5, 500, 100);
        counts.start_more(0);
        counts.back(0, 5);
        let paused: Vec<_> = (0..5).map(|_| counts.pause(0)).collect();
        assert_eq!(paused, [true, false, false, false, false], "it is one pause");
        assert_eq!(counts.start_more(0), 0);
        let until = counts.paused_until.unwrap();
        assert!(!counts.resume(Some(until - Duration::from_millis(1))));
        assert!(counts.resume(Some(until)));
        assert_eq!((counts.start_more(0), counts.start_more(0)), (1, 0));
        counts.back(0, 1);
        counts.succeeded(0);
        assert_eq!(counts.start_more(0), 5);
        counts.pause(0);
        assert!(counts.resume(None), "a descriptor was given back");
        assert!(counts.shut() && !counts.shut());
        counts.back(0, 5);
        assert_eq!((counts.start_more(0), counts.pause(0)), (0, false));
    }

    #[test]
    fn who_leaves_off_starts_none_and_says_once_that_all_have_come_back() {
        let mut counts = Counts::new(1, 5, 500, 100);
        counts.start_more(0);
        counts.back(0, 1);
        assert!(counts.pause(0) && counts.leave_off() && !counts.leave_off());
        assert!(!counts.resume(None), "a pause is over with it");
        counts.back(0, 3);
        counts.succeeded(0);
        assert_eq!((counts.start_more(0), counts.is_to_ask(0), counts.pause(0)), (0, false, false));
        assert!(!counts.left_off(), "one is outstanding");
        counts.back(0, 1);
        assert!(counts.left_off() && !counts.left_off());
        assert!(counts.shut() && !counts.leave_off());
    }

    #[test]
    fn one_tries_though_others_are_outstanding() {
        let mut counts = Counts::new(1, 5, 5, 0);
        counts.start_more(0);
        for _ in 0..3 {
            counts.back(0, 1);
            assert!(counts.pause(0));
            assert_eq!(counts.start_more(0), 0);
            assert!(counts.resume(None));
            assert_eq!((counts.start_more(0), counts.start_more(0)), (1, 0));
        }
        counts.back(0, 1); // the one who waited had gone
        assert_eq!((counts.start_more(0), counts.outstanding()), (1, 5));
        counts.back(0, 1);
        counts.succeeded(0);
        assert_eq!((counts.start_more(0), counts.outstanding()), (1, 5));
    }
}
