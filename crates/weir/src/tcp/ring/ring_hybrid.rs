//! `ring-hybrid`: a ring that polls while it wins.
//!
//! It is `ring`, but a thread that finds nothing looks again for a while (`spin`) before it waits: whoever
//! waits must be woken, which takes longer than a small message takes. A look costs no entry into the
//! kernel: what is there to be done stands in memory that both share.
//!
//! Polling wins where something comes before the time is over. Each thread keeps count: as long as, of its last
//! spells of polling, `threshold` in a thousand or more have won, it polls; else it waits at once, and tries
//! a spell now and then. So an idle server sleeps, and a busy one does not; between the two it takes
//! a core's time for latency. Both can be tuned while it runs. With `gather` a thread that has stopped polling sleeps until
//! several messages are there.
//!
//! Origin: the "RIO hybrid" of Holgate's study of UDP (2012), for TCP.

use super::{
    engine::{self, BeforeWaiting},
    ring::needs,
};
use crate::{
    Error,
    design::{design, or_cores},
    gather::Gather,
    options::{Bytes, Microseconds, MicrosecondsValue},
    rio::streams::{Idle, Receiving},
    tcp::{ActiveSet, Handler, Job, Running},
    tunable::{Unit, microseconds},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

design! {
    tcp::RingHybrid "ring-hybrid", Rio;
    summary: "a ring per thread, which busy-polls while that pays before it sleeps";
    origin: "RIO hybrid, Holgate 2012, for TCP";
    options {
        /// Threads, each with a ring and connections of its own; 0 for as many as there are cores.
        threads: u32 = 0, 0..=256;
        /// Most slices of a ring that its connections receive into; it begins with 64 and gets more if they
        /// run short.
        slices: u32 = 512, 4..=32_768;
        /// Most rings of a thread; 0 for as many as the connection limit requires.
        rings: u32 = 0, 0..=1024;
        /// Size from which sends are zero-copy; 0 for never.
        zero_copy: u32 = 0, Bytes(0..=16_777_216);
        /// Spells of polling in a thousand that must pay off for it to go on (can be changed while it runs).
        threshold: u32 = 500, 0..=1000;
        /// How long a spell lasts before waiting, in microseconds (can be changed while it runs); 0 for none.
        spin: MicrosecondsValue = MicrosecondsValue(50), Microseconds(0..=1_000_000);
        /// How long messages may gather before a wait that follows polling in vain ends, and how many are enough (can
        /// be changed while it runs).
        gather: Gather = Gather::NONE, Gather::LIMITS;
    }
    provider: |design| engine::provider(design.receiving());
    availability: |design| engine::availability(design.receiving());
    resolve: |design| or_cores(&mut design.threads);
    active_set: |design| ActiveSet::of(design.threads);
}

impl RingHybrid {
    fn begin<H: Handler>(self, job: Job<H>) -> Result<Running, Error> {
        let needs = needs(&job, self.slices, Idle::Receive, self.rings, self.zero_copy);
        let tuning = Tuning {
            threshold: job.tunable("threshold", Unit::Number, self.threshold.into(), 0..=1000),
            spin_us: job.tunable("spin", Unit::Microseconds, self.spin.0, 0..=1_000_000),
        };
        let gather = job.gathers(self.gather).after_polling();
        engine::start(job, self.threads, needs, gather, move || Spells::new(tuning.clone()))
    }

    fn receiving(&self) -> Receiving {
        Receiving::Shared { slices: self.slices, idle: Idle::Receive }
    }
}

/// What may be changed while the server runs.
#[derive(Clone)]
struct Tuning {
    threshold: Arc<AtomicU64>,
    spin_us: Arc<AtomicU64>,
}

/// One in so many waits is preceded by a spell of polling even where that does not win: to find out when
/// it would again.
const TRIED: u32 = 16;

/// Whether polling wins.
struct Spells {
    tuning: Tuning,
    /// Of the last spells, those that won, in 65,536: each counts an eighth of what the one after it does
    /// less.
    won: u32,
    since: Option<Instant>,
    until: Option<Duration>,
    not_tried: u32,
}

impl Spells {
    const ALL: u32 = 1 << 16;

    fn new(tuning: Tuning) -> Self {
        Self { tuning, won: Self::ALL, since: None, until: None, not_tried: 0 }
    }
}

impl BeforeWaiting for Spells {
    const POLLS: bool = true;

    #[inline]
    fn found(&mut self) {
        if self.since.take().is_some() {
            self.won += (Self::ALL - self.won) / 8;
        }
    }

    #[inline]
    fn again(&mut self) -> bool {
        let now = Instant::now();
        let Some(since) = self.since else {
            let time = microseconds(&self.tuning.spin_us);
            let wins = u64::from(self.won) * 1000
                >= self.tuning.threshold.load(Relaxed) * u64::from(Self::ALL);
            if time.is_zero() || (!wins && self.not_tried < TRIED) {
                self.not_tried += 1;
                return false;
            }
            self.not_tried = 0;
            (self.since, self.until) = (Some(now), Some(time));
            return true;
        };
        std::hint::spin_loop();
        if self.until.is_some_and(|time| now - since < time) {
            return true;
        }
        self.since = None;
        self.won -= self.won / 8;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuning(threshold: u64, spin_us: u64) -> Tuning {
        let value = |value| Arc::new(AtomicU64::new(value));
        Tuning { threshold: value(threshold), spin_us: value(spin_us) }
    }

    /// A spell that finds nothing.
    fn loses(spells: &mut Spells) -> bool {
        let polled = spells.again();
        while spells.since.is_some() && spells.again() {}
        polled
    }

    #[test]
    fn it_waits_at_once_where_polling_does_not_win_and_tries_again() {
        let mut spells = Spells::new(tuning(500, 1));
        while loses(&mut spells) {}
        let waited = (1..).take_while(|_| !loses(&mut spells)).count();
        assert_eq!(waited as u32, TRIED - 1, "waits between two tries, the first was seen above");
        // It wins again, and polls each time.
        for _ in 0..16 {
            while !spells.again() {}
            spells.found();
        }
        assert!(loses(&mut spells) && loses(&mut spells));
    }

    #[test]
    fn what_is_tuned_holds_at_once() {
        let never = tuning(500, 0);
        let mut spells = Spells::new(never.clone());
        assert!(!spells.again());
        never.spin_us.store(1, Relaxed);
        while loses(&mut spells) {}
        never.threshold.store(0, Relaxed);
        assert!((0..100).all(|_| loses(&mut spells)), "it always polls");
    }
}
