//! How many accepts are outstanding, and how many are to be: the count. The engine starts them (`keep_accepting`).

use crate::{lifecycle::lock, timer::TICK};
use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Instant,
};

/// How many accepts are outstanding, and how many are to be.
pub(in crate::tcp::port) struct Accepts {
    listeners: Vec<AtListener>,
    /// Most of each listening socket, and how many more when they run dry.
    most: u32,
    burst: u32,
    /// Until when nothing is accepted, since the system had no descriptor or memory to give.
    paused_until: Option<Instant>,
    shut: bool,
}

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

impl Accepts {
    pub(in crate::tcp::port) fn new(listeners: usize, first: u32, most: u32, burst: u32) -> Self {
        let (outstanding, meant, taken, probing, probe) = (0, first, 0, false, false);
        let each = |_| AtListener { outstanding, meant, taken, probing, probe };
        let listeners = (0..listeners).map(each).collect();
        Self { listeners, most: most.max(first), burst, paused_until: None, shut: false }
    }

    /// How many more to start now at this listening socket; they count as outstanding.
    pub(in crate::tcp::port) fn start_more(&mut self, listener: usize) -> u32 {
        if self.shut || self.paused_until.is_some() {
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
    pub(in crate::tcp::port) fn back(&mut self, listener: usize, count: u32) {
        let at = &mut self.listeners[listener];
        at.outstanding -= count;
        at.probe = true;
    }

    /// One succeeded. Says whether it is time to ask the socket if another waits, though accepts are
    /// outstanding: once for as many as are kept so.
    pub(in crate::tcp::port) fn succeeded(&mut self, listener: usize) -> bool {
        let at = &mut self.listeners[listener];
        at.probing = false;
        at.taken += 1;
        let ask = at.taken >= at.meant;
        if ask {
            at.taken = 0;
        }
        ask && !self.shut
    }

    /// One waited though accepts were outstanding: they have run dry.
    pub(in crate::tcp::port) fn ran_dry(&mut self, listener: usize) {
        let at = &mut self.listeners[listener];
        at.meant = (at.meant + self.burst).min(self.most);
    }

    /// One failed for want of descriptors or memory. Says whether accepting pauses from now on.
    pub(in crate::tcp::port) fn pause(&mut self, listener: usize) -> bool {
        self.listeners[listener].probing = true;
        let begins = self.paused_until.is_none() && !self.shut;
        if begins {
            self.paused_until = Some(Instant::now() + TICK);
        }
        begins
    }

    /// Ends a pause, where a descriptor was given back, or its time is over. Says whether there was one.
    pub(in crate::tcp::port) fn resume(&mut self, now: Option<Instant>) -> bool {
        let over = |until: Instant| now.is_none_or(|now| until <= now);
        self.paused_until.take_if(|until| over(*until)).is_some()
    }

    pub(in crate::tcp::port) fn paused_until(&self) -> Option<Instant> {
        self.paused_until
    }

    /// No more are started. Says whether they were until now.
    pub(in crate::tcp::port) fn shut(&mut self) -> bool {
        self.paused_until = None;
        !std::mem::replace(&mut self.shut, true)
    }

    pub(in crate::tcp::port) fn is_shut(&self) -> bool {
        self.shut
    }

    pub(in crate::tcp::port) fn outstanding(&self) -> u32 {
        self.listeners.iter().map(|at| at.outstanding).sum()
    }
}

/// The same for several threads.
pub(in crate::tcp::port) struct SharedAccepts {
    accepts: Mutex<Accepts>,
    /// Whether accepting is paused, so that who looks need not lock. It changes under the lock only: else one
    /// thread's end of a pause could hide the next pause, which then nobody would end.
    paused: AtomicBool,
}

impl SharedAccepts {
    pub(in crate::tcp::port) fn new(accepts: Accepts) -> Self {
        Self { accepts: Mutex::new(accepts), paused: AtomicBool::new(false) }
    }

    pub(in crate::tcp::port) fn start_more(&self, listener: usize) -> u32 {
        lock(&self.accepts).start_more(listener)
    }

    pub(in crate::tcp::port) fn back(&self, listener: usize, count: u32) {
        lock(&self.accepts).back(listener, count);
    }

    pub(in crate::tcp::port) fn succeeded(&self, listener: usize) -> bool {
        lock(&self.accepts).succeeded(listener)
    }

    pub(in crate::tcp::port) fn ran_dry(&self, listener: usize) {
        lock(&self.accepts).ran_dry(listener);
    }

    pub(in crate::tcp::port) fn is_shut(&self) -> bool {
        lock(&self.accepts).is_shut()
    }

    /// No more are started, and none is outstanding.
    pub(in crate::tcp::port) fn is_over(&self) -> bool {
        let accepts = lock(&self.accepts);
        accepts.is_shut() && accepts.outstanding() == 0
    }

    /// An accept failed for want of descriptors or memory. Says whether accepting pauses from now on.
    pub(in crate::tcp::port) fn pause(&self, listener: usize) -> bool {
        let mut accepts = lock(&self.accepts);
        let begins = accepts.pause(listener);
        self.paused.store(accepts.paused_until().is_some(), Relaxed);
        begins
    }

    /// Until when accepting is paused, if it is.
    pub(in crate::tcp::port) fn paused_until(&self) -> Option<Instant> {
        self.paused.load(Relaxed).then(|| lock(&self.accepts).paused_until())?
    }

    /// Ends a pause, where a descriptor was given back, or its time is over. Says whether there was one.
    pub(in crate::tcp::port) fn resume(&self, now: Option<Instant>) -> bool {
        if !self.paused.load(Relaxed) {
            return false;
        }
        let mut accepts = lock(&self.accepts);
        let ended = accepts.resume(now);
        self.paused.store(accepts.paused_until().is_some(), Relaxed);
        ended
    }

    /// No more accepts are started. Says whether they were until now.
    pub(in crate::tcp::port) fn shut(&self) -> bool {
        let mut accepts = lock(&self.accepts);
        self.paused.store(false, Relaxed);
        accepts.shut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn accepts_begin_few_and_grow_by_bursts_when_they_run_dry() {
        let mut accepts = Accepts::new(1, 5, 500, 100);
        assert_eq!((accepts.start_more(0), accepts.start_more(0)), (5, 0));
        // One at a time: it is replaced, and the fifth asks.
        let asked: Vec<_> = (0..5)
            .map(|_| {
                accepts.back(0, 1);
                let ask = accepts.succeeded(0);
                assert_eq!(accepts.start_more(0), 1);
                ask
            })
            .collect();
        assert_eq!(asked, [false, false, false, false, true]);
        for kept in [105, 205, 305, 405, 500, 500] {
            accepts.ran_dry(0);
            accepts.start_more(0);
            assert_eq!(accepts.outstanding(), kept);
        }
    }

    #[test]
    fn a_want_of_descriptors_pauses_once_and_one_accept_tries() {
        let mut accepts = Accepts::new(1, 5, 500, 100);
        accepts.start_more(0);
        accepts.back(0, 5);
        let paused: Vec<_> = (0..5).map(|_| accepts.pause(0)).collect();
        assert_eq!(paused, [true, false, false, false, false], "it is one pause");
        assert_eq!(accepts.start_more(0), 0);
        let until = accepts.paused_until().unwrap();
        assert!(!accepts.resume(Some(until - Duration::from_millis(1))));
        assert!(accepts.resume(Some(until)));
        assert_eq!((accepts.start_more(0), accepts.start_more(0)), (1, 0));
        accepts.back(0, 1);
        accepts.succeeded(0);
        assert_eq!(accepts.start_more(0), 5);
        accepts.pause(0);
        assert!(accepts.resume(None), "a descriptor was given back");
        assert!(accepts.shut() && !accepts.shut());
        accepts.back(0, 5);
        assert_eq!((accepts.start_more(0), accepts.pause(0)), (0, false));
    }

    #[test]
    fn one_tries_though_others_are_outstanding() {
        let mut accepts = Accepts::new(1, 5, 5, 0);
        accepts.start_more(0);
        for _ in 0..3 {
            accepts.back(0, 1);
            assert!(accepts.pause(0));
            assert_eq!(accepts.start_more(0), 0);
            assert!(accepts.resume(None));
            assert_eq!((accepts.start_more(0), accepts.start_more(0)), (1, 0));
        }
        accepts.back(0, 1); // the one who waited had gone
        assert_eq!((accepts.start_more(0), accepts.outstanding()), (1, 5));
        accepts.back(0, 1);
        accepts.succeeded(0);
        assert_eq!((accepts.start_more(0), accepts.outstanding()), (1, 5));
    }
}
