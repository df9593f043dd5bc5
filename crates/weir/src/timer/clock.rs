//! The times of connections: limits to a tick, alarms to the nanosecond.

use super::{Alarms, Counts, Moment, Tick, Wheel};
use std::time::{Duration, Instant};

/// Two times for each of many things by number: a limit, in a [`Wheel`], and an alarm, in [`Alarms`].
///
/// A limit is moved all the time and is seldom reached: setting one is constant work, and it may be a tick late. An alarm is
/// what a handler asked for and waits for.
#[derive(Debug)]
pub struct Clock {
    wheel: Wheel,
    alarms: Alarms,
}

impl Clock {
    /// Nothing is set; time runs from `since`.
    pub fn starting(since: Instant) -> Self {
        Self { wheel: Wheel::starting(since), alarms: Alarms::starting(since) }
    }

    /// The tick that [`expired`](Self::expired) last went to.
    #[inline]
    pub fn now(&self) -> Tick {
        self.wheel.now()
    }

    /// The moment that it last went to.
    #[inline]
    pub fn moment(&self) -> Moment {
        self.alarms.now()
    }

    /// An instant as a moment.
    #[inline]
    pub fn moment_of(&self, instant: Instant) -> Moment {
        self.alarms.moment_of(instant)
    }

    /// The time that a wait is to be counted from: when the clock was last looked at, since what was done meanwhile makes
    /// a limit that much late, as it does where one falls due meanwhile. Where alarms are set it is read anew.
    #[inline]
    pub fn time(&self) -> Instant {
        if self.has_alarms() { Instant::now() } else { self.wheel.looked() }
    }

    /// Whether any alarm is set.
    #[inline]
    pub fn has_alarms(&self) -> bool {
        self.alarms.armed() > 0
    }

    /// Sets the limit of this number, or moves it. What is due now or was due before falls due with the next tick.
    pub fn set(&mut self, number: u32, due: Tick) {
        self.wheel.set(number, due);
    }

    /// Sets the alarm of this number, unless it goes off by then anyway: one that is put off goes off in vain once, which
    /// is less work than to move it each time.
    #[inline]
    pub fn set_alarm(&mut self, number: u32, due: Moment) {
        self.alarms.set_by(number, due);
    }

    /// Cancels both of this number.
    pub fn cancel(&mut self, number: u32) {
        self.wheel.cancel(number);
        self.alarms.cancel(number);
    }

    /// How long until anything may be due; `None` where nothing is set.
    #[inline]
    pub fn next_in(&self, now: Instant) -> Option<Duration> {
        [self.wheel.next_in(now), self.alarms.next_in(now)].into_iter().flatten().min()
    }

    /// Goes on to `now` and moves into `due` the numbers of what fell due, to be taken from the end: alarms in order, then
    /// limits. A number may come twice.
    #[inline]
    pub fn expired(&mut self, now: Instant, due: &mut Vec<u32>) {
        self.wheel.expired(now, due);
        self.alarms.expired(now, due);
    }

    /// What was done so far with both.
    pub fn counts(&self) -> Counts {
        let mut counts = self.wheel.counts();
        counts.merge(&self.alarms.counts());
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timer::TICK;

    #[test]
    fn whichever_comes_first_ends_a_wait() {
        let since = Instant::now();
        let mut clock = Clock::starting(since);
        assert_eq!((clock.next_in(since), clock.has_alarms()), (None, false));
        clock.set(1, 2);
        assert_eq!(clock.next_in(since), Some(2 * TICK));
        let us = Duration::from_micros(1);
        clock.set_alarm(1, clock.moment_of(since + 700 * us));
        clock.set_alarm(0, clock.moment_of(since + 600 * us));
        assert_eq!(clock.next_in(since), Some(600 * us));
        let mut due = Vec::new();
        clock.expired(since + 3 * TICK, &mut due);
        let order: Vec<_> = std::iter::from_fn(|| due.pop()).collect();
        assert_eq!(order, [0, 1, 1], "alarms in order, then limits");
        clock.set(5, 9);
        clock.set_alarm(5, clock.moment_of(since + 9 * TICK));
        clock.cancel(5);
        assert_eq!((clock.next_in(since), clock.has_alarms()), (None, false));
        assert_eq!((clock.counts().fired, clock.counts().cancelled), (3, 2));
    }
}
