//! Timers: a wheel for limits, which may be a tick late, and a heap for what has to happen in time; a [`Clock`] has both.
//!
//! [`Alarms`] is the heap: each has its moment to the nanosecond, and the first is known at once. The [`Wheel`] holds one
//! timer for each of many things, set and cancelled in a few stores. It belongs to one thread (or stands behind a lock). Time runs in ticks of
//! [`TICK`]; a timer is the number of what it is for (a slot of a table) and the tick at which it
//! is due. Setting, moving and cancelling one is constant work, whatever the number of timers;
//! the wheel calls nobody: its owner takes what is due with [`Wheel::expired`], with no
//! lock held that the wheel knows of.
//!
//! A timer that is due far ahead lies in its bucket for several turns of the wheel, and costs a look
//! in each: [`BUCKETS`] ticks are 205 s.
//!
//! Source: "Hashed and Hierarchical Timing Wheels", Varghese and Lauck, 1987, scheme 6.

mod alarms;
mod clock;

pub use alarms::{Alarms, Moment};
pub use clock::Clock;

use std::time::{Duration, Instant};

/// How long a tick is: a timer of a [`Wheel`] fires at most so much late.
pub const TICK: Duration = Duration::from_millis(50);

/// A second is so many ticks, and nothing is left over: so time is divided by numbers of 32 bits.
const TICKS_PER_S: u64 = 1_000_000_000 / TICK_NS as u64;
const TICK_NS: u32 = TICK.as_nanos() as u32;
const _: () = assert!(TICKS_PER_S * TICK_NS as u64 == 1_000_000_000);

/// Buckets of the wheel.
pub const BUCKETS: usize = 4096;

/// A moment, in ticks since the wheel was made.
pub type Tick = u32;

/// What was done with timers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Timers that began to be.
    pub created: u64,
    /// Times one was set that was not.
    pub set: u64,
    /// Times one that was set was moved.
    pub updated: u64,
    /// Times one fell due.
    pub fired: u64,
    /// Times one was cancelled before it fell due.
    pub cancelled: u64,
}

impl Counts {
    /// Adds another wheel's counts to these.
    pub fn merge(&mut self, other: &Self) {
        self.created += other.created;
        self.set += other.set;
        self.updated += other.updated;
        self.fired += other.fired;
        self.cancelled += other.cancelled;
    }
}

/// Timers by number.
#[derive(Debug)]
pub struct Wheel {
    since: Instant,
    /// When it was last told the time.
    looked: Instant,
    /// The last tick that was looked at.
    now: Tick,
    /// The first timer of each bucket. No memory is taken before the first timer is set.
    heads: Box<[u32]>,
    /// A bit for each bucket that is not empty.
    occupied: Box<[u64]>,
    /// By number. Grows with the highest number set, as the table does that it is for.
    links: Vec<Link>,
    armed: u32,
    /// No timer is due before this tick; [`UNSET`] where none is set.
    next: Tick,
    counts: Counts,
}

#[derive(Debug, Clone, Copy)]
struct Link {
    next: u32,
    previous: u32,
    /// [`UNSET`] where it is not set.
    due: Tick,
}

/// No timer: the end of a list.
const NONE: u32 = u32::MAX;
/// The tick of a timer that is not set.
const UNSET: Tick = Tick::MAX;
/// Marks a number that no timer had yet.
const UNUSED: u32 = u32::MAX - 1;
const NEVER_USED: Link = Link { next: NONE, previous: UNUSED, due: UNSET };

impl Default for Wheel {
    fn default() -> Self {
        Self::starting(Instant::now())
    }
}

impl Wheel {
    /// An empty wheel whose tick 0 is `since`.
    pub fn starting(since: Instant) -> Self {
        Self {
            since,
            looked: Instant::now(),
            now: 0,
            heads: Box::default(),
            occupied: Box::default(),
            links: Vec::new(),
            armed: 0,
            next: UNSET,
            counts: Counts::default(),
        }
    }

    /// The tick of a moment.
    #[inline]
    pub fn tick_of(&self, moment: Instant) -> Tick {
        let time = moment.saturating_duration_since(self.since);
        tick(time.as_secs(), time.subsec_nanos() / TICK_NS)
    }

    /// So many ticks as last at least that long.
    #[inline]
    pub fn ticks(time: Duration) -> Tick {
        tick(time.as_secs(), time.subsec_nanos().div_ceil(TICK_NS))
    }

    /// The tick that [`expired`](Self::expired) last went to.
    #[inline]
    pub fn now(&self) -> Tick {
        self.now
    }

    /// When [`expired`](Self::expired) was last called; before that, when the wheel was made.
    #[inline]
    pub fn looked(&self) -> Instant {
        self.looked
    }

    /// Timers that are set.
    pub fn armed(&self) -> u32 {
        self.armed
    }

    /// What was done so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Sets the timer of this number, or moves it. What is due now or was due before fires with the
    /// next tick.
    pub fn set(&mut self, number: u32, due: Tick) {
        if self.heads.is_empty() {
            self.heads = vec![NONE; BUCKETS].into();
            self.occupied = vec![0; BUCKETS / 64].into();
        }
        let index = number as usize;
        if index >= self.links.len() {
            self.links.resize(index + 1, NEVER_USED);
        }
        self.counts.created += u64::from(self.links[index].previous == UNUSED);
        let due = due.clamp(self.now.saturating_add(1), UNSET - 1);
        if self.links[index].due == UNSET {
            self.counts.set += 1;
            self.armed += 1;
        } else {
            self.unlink(number);
            self.counts.updated += 1;
        }
        let bucket = due as usize % BUCKETS;
        let next = std::mem::replace(&mut self.heads[bucket], number);
        if next != NONE {
            self.links[next as usize].previous = number;
        }
        self.links[index] = Link { next, previous: NONE, due };
        self.occupied[bucket / 64] |= 1 << (bucket % 64);
        self.next = self.next.min(due);
    }

    /// Cancels the timer of this number. Says whether it was set.
    pub fn cancel(&mut self, number: u32) -> bool {
        if self.links.get(number as usize).is_none_or(|link| link.due == UNSET) {
            return false;
        }
        self.unlink(number);
        self.links[number as usize].due = UNSET;
        self.armed -= 1;
        if self.armed == 0 {
            self.next = UNSET;
        }
        self.counts.cancelled += 1;
        true
    }

    fn unlink(&mut self, number: u32) {
        let Link { next, previous, due } = self.links[number as usize];
        if next != NONE {
            self.links[next as usize].previous = previous;
        }
        if previous != NONE {
            self.links[previous as usize].next = next;
            return;
        }
        let bucket = due as usize % BUCKETS;
        self.heads[bucket] = next;
        if next == NONE {
            self.occupied[bucket / 64] &= !(1 << (bucket % 64));
        }
    }

    /// How long until the next tick at which anything may be due; `None` where no timer is set.
    #[inline]
    pub fn next_in(&self, now: Instant) -> Option<Duration> {
        let next = (self.next != UNSET).then_some(self.next)?;
        Some((self.since + TICK * next).saturating_duration_since(now))
    }

    /// The next tick at which anything may be due, a whole turn ahead at most.
    fn find_next(&self) -> Tick {
        if self.armed == 0 {
            return UNSET;
        }
        // The nearest bucket behind this tick's that is not empty.
        let first = (self.now as usize + 1) % BUCKETS;
        let mut ahead = 0;
        while ahead < BUCKETS {
            let bucket = (first + ahead) % BUCKETS;
            let word = self.occupied[bucket / 64] >> (bucket % 64);
            if word != 0 {
                ahead += word.trailing_zeros() as usize;
                break;
            }
            ahead += 64 - bucket % 64;
        }
        self.now.saturating_add(1 + ahead.min(BUCKETS - 1) as u32).min(UNSET - 1)
    }

    /// Goes on to `now` and moves into `due` the numbers of the timers that fell due, which are no
    /// longer set.
    pub fn expired(&mut self, now: Instant, due: &mut Vec<u32>) {
        self.looked = now;
        let until = self.tick_of(now);
        if until <= self.now {
            return;
        }
        let ticks = (until - self.now).min(BUCKETS as u32);
        let from = until - ticks;
        self.now = until;
        if self.next > until {
            return;
        }
        for tick in from + 1..=until {
            let bucket = tick as usize % BUCKETS;
            let mut number = self.heads[bucket];
            while number != NONE {
                let link = self.links[number as usize];
                if link.due <= until {
                    self.unlink(number);
                    self.links[number as usize].due = UNSET;
                    self.armed -= 1;
                    self.counts.fired += 1;
                    due.push(number);
                }
                number = link.next;
            }
        }
        self.next = self.find_next();
    }
}

/// The ticks of so many seconds, and so many more.
#[inline]
fn tick(seconds: u64, more: u32) -> Tick {
    let ticks = seconds.saturating_mul(TICKS_PER_S).saturating_add(more.into());
    // 6.8 years; beyond it nothing falls due.
    Tick::try_from(ticks).unwrap_or(UNSET).min(UNSET - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// A moment in the middle of a tick.
    fn at(since: Instant, tick: Tick) -> Instant {
        since + TICK * tick + TICK / 2
    }

    fn expired(wheel: &mut Wheel, tick: Tick) -> Vec<u32> {
        let (mut due, now) = (Vec::new(), at(wheel.since, tick));
        wheel.expired(now, &mut due);
        due.sort_unstable();
        due
    }

    #[test]
    fn a_timer_fires_once_at_its_tick_and_not_before() {
        let mut wheel = Wheel::default();
        wheel.set(7, 3);
        assert_eq!(expired(&mut wheel, 2), []);
        assert_eq!(expired(&mut wheel, 3), [7]);
        assert_eq!(expired(&mut wheel, 9), []);
        assert_eq!((wheel.armed(), wheel.counts().fired), (0, 1));
    }

    #[test]
    fn one_that_is_far_ahead_waits_for_its_turn() {
        let mut wheel = Wheel::default();
        let far = 3 * BUCKETS as Tick + 5;
        wheel.set(0, far);
        for tick in (0..far).step_by(100) {
            assert_eq!(expired(&mut wheel, tick), [], "at {tick}");
        }
        assert_eq!(expired(&mut wheel, far), [0]);
    }

    #[test]
    fn a_leap_of_time_misses_none() {
        let mut wheel = Wheel::default();
        for number in 0..1000 {
            wheel.set(number, number * 17 + 1);
        }
        assert_eq!(expired(&mut wheel, 1_000_000).len(), 1000);
    }

    #[test]
    fn a_cancelled_one_never_fires() {
        let mut wheel = Wheel::default();
        for number in 0..3 {
            wheel.set(number, 5);
        }
        assert!(wheel.cancel(1));
        assert!(!wheel.cancel(1) && !wheel.cancel(99));
        assert_eq!(expired(&mut wheel, 5), [0, 2]);
        let counts = Counts { created: 3, set: 3, updated: 0, fired: 2, cancelled: 1 };
        assert_eq!(wheel.counts(), counts);
    }

    #[test]
    fn it_says_how_long_nothing_is_due() {
        let mut wheel = Wheel::default();
        let start = wheel.since;
        assert_eq!(wheel.next_in(start), None);
        wheel.set(0, 10);
        assert_eq!(wheel.next_in(start), Some(TICK * 10));
        assert_eq!(wheel.next_in(start + TICK * 4), Some(TICK * 6));
        assert_eq!(wheel.next_in(start + TICK * 20), Some(Duration::ZERO));
    }

    #[test]
    fn a_time_is_so_many_ticks_as_last_as_long_and_no_more() {
        let ms = Duration::from_millis;
        for (time, ticks) in [
            (Duration::ZERO, 0),
            (Duration::from_nanos(1), 1),
            (ms(50), 1),
            (ms(50) + Duration::from_nanos(1), 2),
            (ms(950) + Duration::from_nanos(1), 20),
            (ms(1000), 20),
            (ms(300_050), 6001),
            (Duration::MAX, UNSET - 1),
        ] {
            assert_eq!(Wheel::ticks(time), ticks, "{time:?}");
        }
        let wheel = Wheel::default();
        for (ns, tick) in
            [(0, 0), (49_999_999, 0), (50_000_000, 1), (999_999_999, 19), (1_000_000_000, 20)]
        {
            assert_eq!(wheel.tick_of(wheel.since + Duration::from_nanos(ns)), tick, "{ns} ns");
        }
    }

    #[derive(Debug, Clone)]
    enum Step {
        Set(u32, Tick),
        Cancel(u32),
        Go(Tick),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..20u32, 0..9000u32).prop_map(|(number, ahead)| Step::Set(number, ahead)),
            (0..20u32).prop_map(Step::Cancel),
            (0..6000u32).prop_map(Step::Go),
        ]
    }

    proptest! {
        #[test]
        fn it_does_what_a_sorted_list_does(steps in prop::collection::vec(step(), 1..80)) {
            let mut wheel = Wheel::default();
            let (mut model, mut now) = (BTreeMap::new(), 0);
            for step in steps {
                match step {
                    Step::Set(number, ahead) => {
                        wheel.set(number, now + ahead);
                        model.insert(number, (now + ahead).max(now + 1));
                    }
                    Step::Cancel(number) => {
                        prop_assert_eq!(wheel.cancel(number), model.remove(&number).is_some());
                    }
                    Step::Go(ticks) => {
                        now += ticks;
                        let due: Vec<_> =
                            model.iter().filter(|(_, due)| **due <= now).map(|(n, _)| *n).collect();
                        model.retain(|_, due| *due > now);
                        prop_assert_eq!(expired(&mut wheel, now), due);
                    }
                }
                prop_assert_eq!(wheel.armed() as usize, model.len());
                let told = wheel.next_in(wheel.since + TICK * now);
                if let Some(first) = model.values().min() {
                    prop_assert!(told.unwrap() <= TICK * (first - now));
                } else {
                    prop_assert_eq!(told, None);
                }
            }
        }
    }
}
