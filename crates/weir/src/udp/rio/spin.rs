//! What a thread does that found its queue empty: poll, sleep ahead of the next datagram, or wait for it.
//!
//! The plain policy polls for a fixed time after the last datagram and then waits. The adaptive one looks at the gaps
//! between arrivals, and never polls longer in one of them than the plain one would:
//!
//! - Where they are *regular* it sleeps for most of a gap, with a timer that goes off ahead of the next arrival as it is
//!   expected, and polls from there. A datagram that comes earlier ends the sleep.
//! - Where they are not, nothing tells when the next one comes (with exponential gaps every moment is as good as any
//!   other). Then polling serves the arrivals that come within its time; where those are fewer than half, it waits at
//!   once.
//! - A gap far longer than the others is *silence*: it changes nothing, unless several follow each other.
//!
//! [`Adaptive`] reads no clock, and is told what happened.

use std::time::{Duration, Instant};

/// What to do after an empty dequeue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Idle {
    /// Dequeue again.
    Poll,
    /// Wait for so long, then dequeue again.
    Sleep(Duration),
    /// Wait for the next datagram.
    Wait,
}

/// The plain policy, for as long as `spin` after an empty dequeue.
#[derive(Debug, Default)]
pub(super) struct Fixed {
    empty_since: Option<Instant>,
}

impl Fixed {
    pub(super) fn arrived(&mut self) {
        self.empty_since = None;
    }

    #[inline]
    pub(super) fn empty(&mut self, now: Instant, spin: Duration) -> Idle {
        let since = *self.empty_since.get_or_insert(now);
        if now.saturating_duration_since(since) < spin {
            return Idle::Poll;
        }
        self.empty_since = None;
        Idle::Wait
    }
}

/// Gaps before anything is expected of the next.
const LEARNED: u32 = 16;

/// A new gap's part in what is known of them.
const GAIN: f64 = 1.0 / 16.0;

/// Longer than so many usual gaps is silence.
const SILENCE: f64 = 8.0;

/// So many of those in a row are no silence: there is less to do now.
const SLOWER: u32 = 4;

/// How early to be awake, in mean deviations: of a normal distribution's arrivals 1 % come before.
const EARLY: f64 = 3.0;

/// A sleep must be so long to cost less than to poll meanwhile: there are two switches of the context in it.
const WORTH_SLEEPING: Duration = Duration::from_micros(20);

/// The policy that adapts.
#[derive(Debug, Default)]
pub(super) struct Adaptive {
    /// When something last arrived.
    last: Option<Instant>,
    /// Gaps that are known, up to [`LEARNED`].
    known: u32,
    /// Of the gaps, in seconds.
    mean: f64,
    deviation: f64,
    /// Gaps in a row that were silence.
    silences: u32,
    /// The share of gaps within the time to poll.
    within: f64,
    /// How much later than asked a sleep ends, in seconds. What is not seen again is forgotten: else one busy spell
    /// could end the sleeping for good.
    lateness: f64,
    /// In this gap: when the sleep was to end, whether there was one, and since when it polls.
    until: Option<Instant>,
    slept: bool,
    polls_since: Option<Instant>,
}

impl Adaptive {
    /// Datagrams were dequeued.
    pub(super) fn arrived(&mut self, now: Instant, spin: Duration) {
        if let Some(last) = self.last.replace(now) {
            self.learn(now.saturating_duration_since(last).as_secs_f64(), spin);
        }
        match self.slept {
            // It may have been over so late that something had come meanwhile.
            true => self.woke(now, spin),
            false => self.lateness -= self.lateness * GAIN,
        }
        (self.until, self.slept, self.polls_since) = (None, false, None);
    }

    /// Takes note of how late the sleep ended, the first time after it. One that ended early, by a datagram or an alarm,
    /// says nothing of that.
    fn woke(&mut self, now: Instant, spin: Duration) {
        if let Some(until) = self.until.take().filter(|until| *until <= now) {
            let late = now.saturating_duration_since(until).min(spin).as_secs_f64();
            self.lateness += (late - self.lateness) * GAIN;
        }
    }

    /// Something else was dequeued, a reply that was sent, say: it says nothing of the gaps, and if it ended a sleep
    /// another may follow.
    pub(super) fn disturbed(&mut self) {
        (self.until, self.slept) = (None, false);
    }

    fn learn(&mut self, gap: f64, spin: Duration) {
        let within = f64::from(u8::from(gap <= spin.as_secs_f64()));
        if self.known == 0 {
            (self.mean, self.deviation, self.within) = (gap, gap / 2.0, within);
            self.known = 1;
            return;
        }
        self.within += (within - self.within) * GAIN;
        if gap > SILENCE * self.mean {
            self.silences += 1;
            if self.silences == SLOWER {
                (self.silences, self.known) = (0, 1);
                (self.mean, self.deviation) = (gap, gap / 2.0);
            }
            return;
        }
        self.silences = 0;
        self.known = (self.known + 1).min(LEARNED);
        let off = gap - self.mean;
        self.mean += off * GAIN;
        self.deviation += (off.abs() - self.deviation) * GAIN;
    }

    /// Nothing was dequeued. `spin` is the longest to poll in a gap.
    pub(super) fn empty(&mut self, now: Instant, spin: Duration) -> Idle {
        let Some(last) = self.last else { return Idle::Wait };
        self.woke(now, spin);
        // From so much before the expected arrival on it polls.
        let early = EARLY * self.deviation + self.lateness;
        let learned = self.known == LEARNED;
        let regular = learned && early < self.mean && early <= spin.as_secs_f64();
        if regular && !self.slept {
            let wake = last + Duration::from_secs_f64(self.mean - early);
            let sleep = wake.saturating_duration_since(now);
            if sleep >= WORTH_SLEEPING {
                (self.slept, self.until) = (true, Some(wake));
                return Idle::Sleep(sleep);
            }
        }
        if learned && !regular && self.within < 0.5 {
            return Idle::Wait;
        }
        let since = *self.polls_since.get_or_insert(now);
        if now.saturating_duration_since(since) < spin { Idle::Poll } else { Idle::Wait }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SPIN: Duration = Duration::from_micros(50);
    /// What a look at the queue takes, and how long after its time a sleeping thread runs.
    const LOOK: Duration = Duration::from_nanos(200);
    const WAKING: Duration = Duration::from_micros(6);

    /// What became of the datagrams of a course of gaps.
    struct Seen {
        /// Of each: how long after its arrival it was dequeued, how long was polled before it, and the sleeps.
        latency: Vec<Duration>,
        polled: Vec<Duration>,
        sleeps: Vec<u32>,
    }

    impl Seen {
        /// The part of the time that was polled or went into waking up, from this datagram on.
        fn busy(&self, from: usize, gaps: &[Duration]) -> f64 {
            let polled: Duration = self.polled[from..].iter().sum();
            let woken: u32 = self.sleeps[from..].iter().sum();
            let all: Duration = gaps[from..].iter().sum();
            (polled + woken * WAKING).as_secs_f64() / all.as_secs_f64()
        }

        fn median_latency(&self, from: usize) -> Duration {
            let mut latency = self.latency[from..].to_vec();
            latency.sort();
            latency[latency.len() / 2]
        }
    }

    /// Lets datagrams arrive with these gaps on a clock of our own, and does as it is told.
    fn run(gaps: &[Duration]) -> Seen {
        run_where(gaps, SPIN, false, |_| WAKING)
    }

    /// The same where waking up ahead of a datagram, whose number is given, takes so long; and where each dequeue is
    /// followed by one of the replies that were sent, if that is so.
    fn run_where(
        gaps: &[Duration],
        spin: Duration,
        replies: bool,
        waking: impl Fn(usize) -> Duration,
    ) -> Seen {
        let mut now = Instant::now();
        let mut adaptive = Adaptive::default();
        let mut seen = Seen { latency: vec![], polled: vec![], sleeps: vec![] };
        let mut arrival = now;
        let mut arrivals = gaps.iter().map(|gap| {
            arrival += *gap;
            arrival
        });
        let mut next = arrivals.next();
        while let Some(arrival) = next {
            let number = seen.latency.len();
            let (mut polled, mut sleeps) = (Duration::ZERO, 0);
            while now < arrival {
                match adaptive.empty(now, spin) {
                    Idle::Poll => (now, polled) = (now + LOOK, polled + LOOK),
                    Idle::Sleep(time) => {
                        assert!(time >= WORTH_SLEEPING && sleeps == 0, "{time:?}");
                        (now, sleeps) = ((now + time).min(arrival) + waking(number), sleeps + 1);
                    }
                    Idle::Wait => (now, sleeps) = (arrival + waking(number), sleeps + 1),
                }
            }
            adaptive.arrived(now, spin);
            // A dequeue takes all that have come.
            while let Some(came) = next.filter(|came| *came <= now) {
                seen.latency.push(now - came);
                seen.polled.push(std::mem::take(&mut polled));
                seen.sleeps.push(std::mem::take(&mut sleeps));
                next = arrivals.next();
            }
            if replies {
                now += LOOK;
                adaptive.disturbed();
            }
        }
        seen
    }

    fn paced(per_s: u32, count: usize) -> Vec<Duration> {
        vec![Duration::from_secs(1) / per_s; count]
    }

    /// Exponential gaps from numbers between 0 and 1.
    fn poisson(mean: Duration, uniform: &[f64]) -> Vec<Duration> {
        uniform.iter().map(|u| mean.mul_f64(-u.ln())).collect()
    }

    #[test]
    fn paced_datagrams_find_it_awake_and_it_sleeps_between_them() {
        for per_s in [100, 2000, 10_000, 15_000] {
            let gaps = paced(per_s, 400);
            let seen = run(&gaps);
            let late = seen.latency[100..].iter().filter(|latency| **latency > LOOK).count();
            assert!(late <= 3, "{late} of 300 at {per_s}/s");
            let busy = seen.busy(100, &gaps);
            assert!(busy < f64::from(per_s) * 30e-6, "{busy} at {per_s}/s");
        }
    }

    /// Where sleeps end far too late nothing is gained by them; where they do no longer, it is again.
    #[test]
    fn a_busy_spell_does_not_end_the_sleeping_for_good() {
        // As regular as clocks of machines are.
        let gaps: Vec<_> = [495, 505].repeat(450).into_iter().map(Duration::from_micros).collect();
        let waking = |number| match number {
            200..500 => Duration::from_micros(200),
            _ => WAKING,
        };
        let seen = run_where(&gaps, SPIN, false, waking);
        assert!(seen.latency[300..500].iter().all(|latency| *latency <= waking(300)));
        let late = seen.latency[800..].iter().filter(|latency| **latency > LOOK).count();
        assert!(late <= 1, "{late} of 100 after it");
    }

    /// Where a wake-up takes longer than the gaps differ, the first sleeps end too late; it learns from those, if the
    /// time to poll has room for it.
    #[test]
    fn sleeps_that_end_late_begin_earlier() {
        let (gaps, spin) = (paced(1000, 600), Duration::from_micros(200));
        let seen = run_where(&gaps, spin, false, |_| Duration::from_micros(30));
        let late = seen.latency[400..].iter().filter(|latency| **latency > LOOK).count();
        assert!(late <= 20, "{late} of 200");
        assert!(seen.polled.iter().all(|polled| *polled <= spin + LOOK));
    }

    #[test]
    fn replies_that_were_sent_are_no_arrivals() {
        let gaps = paced(2000, 400);
        let seen = run_where(&gaps, SPIN, true, |_| WAKING);
        let late = seen.latency[100..].iter().filter(|latency| **latency > LOOK).count();
        assert!(late <= 3, "{late} of 300");
        assert!(seen.busy(100, &gaps) < 0.06, "{}", seen.busy(100, &gaps));
    }

    /// By the provider's own alarm, for example.
    #[test]
    fn a_sleep_that_ended_early_is_none_that_was_in_time() {
        let (mut now, mut adaptive) = (Instant::now(), Adaptive::default());
        let gap = Duration::from_micros(500);
        for _ in 0..100 {
            adaptive.arrived(now, SPIN);
            now += gap;
        }
        adaptive.arrived(now, SPIN);
        let late = Duration::from_micros(10);
        adaptive.lateness = late.as_secs_f64();
        let Idle::Sleep(time) = adaptive.empty(now, SPIN) else { panic!("it is regular") };
        assert_eq!(adaptive.empty(now + time / 2, SPIN), Idle::Poll, "once in a gap");
        assert_eq!(adaptive.lateness, late.as_secs_f64());
    }

    #[test]
    fn where_gaps_are_shorter_than_a_sleep_is_worth_it_polls() {
        let seen = run(&paced(100_000, 200));
        assert!(seen.sleeps[20..].iter().all(|sleeps| *sleeps == 0));
    }

    #[test]
    fn silence_costs_no_more_than_the_time_to_poll_and_is_forgotten() {
        let mut gaps = paced(2000, 100);
        gaps.push(Duration::from_secs(10));
        gaps.extend(paced(2000, 100));
        let seen = run(&gaps);
        assert!(seen.polled[100] <= SPIN + LOOK && seen.sleeps[100] <= 2, "{:?}", seen.polled[100]);
        let late = seen.latency[101..].iter().filter(|latency| **latency > LOOK).count();
        assert!(late <= 3, "{late} after the silence");
    }

    #[test]
    fn a_load_that_falls_is_learned_again() {
        let mut gaps = paced(10_000, 100);
        gaps.extend(paced(100, 200));
        let seen = run(&gaps);
        assert!(seen.median_latency(200) <= LOOK);
    }

    #[test]
    fn bursts_are_polled_through() {
        let burst = [vec![Duration::from_millis(5)], paced(200_000, 49)].concat();
        let gaps = burst.repeat(20);
        let seen = run(&gaps);
        assert!(seen.median_latency(200) <= LOOK);
        assert!(seen.busy(200, &gaps) < 0.2, "{}", seen.busy(200, &gaps));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn it_never_polls_longer_than_the_fixed_policy_and_every_datagram_is_taken(
            gaps_ns in proptest::collection::vec(0u64..2_000_000, 1..400),
        ) {
            let gaps: Vec<_> = gaps_ns.into_iter().map(Duration::from_nanos).collect();
            let seen = run(&gaps);
            prop_assert_eq!(seen.latency.len(), gaps.len());
            for (polled, sleeps) in seen.polled.iter().zip(&seen.sleeps) {
                prop_assert!(*polled <= SPIN + LOOK, "{:?}", polled);
                prop_assert!(*sleeps <= 2);
            }
        }

        /// With exponential gaps it is the fixed policy where that pays, and waits at once where it does not.
        #[test]
        fn rare_poisson_arrivals_are_waited_for_and_dense_ones_polled_for(
            uniform in proptest::collection::vec(0.0001f64..1.0, 1000),
        ) {
            let rare = poisson(Duration::from_micros(500), &uniform);
            let seen = run(&rare);
            prop_assert!(seen.busy(100, &rare) < 0.03, "{}", seen.busy(100, &rare));
            let dense = poisson(Duration::from_micros(20), &uniform);
            let seen = run(&dense);
            prop_assert!(seen.median_latency(100) <= LOOK);
        }
    }
}
