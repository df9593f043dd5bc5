//! What is left of a time that somebody waits for.

use std::time::{Duration, Instant};

/// What is left of a time, which begins when it is first asked for: a wait that there is no need for reads no
/// clock.
#[derive(Debug)]
pub struct TimeLeft {
    timeout: Option<Duration>,
    until: Option<Instant>,
}

impl TimeLeft {
    /// `None` is for ever.
    pub fn of(timeout: Option<Duration>) -> Self {
        Self { timeout, until: None }
    }

    /// `None`: for ever, also where the time is too long to be told.
    #[inline]
    pub fn left(&mut self) -> Option<Duration> {
        let timeout = self.timeout?;
        if let Some(until) = self.until {
            return Some(until.saturating_duration_since(Instant::now()));
        }
        self.until = Some(Instant::now().checked_add(timeout)?);
        Some(timeout)
    }
}

/// How long a proof may wait for each thing that this process does with itself: it is there at once, so this is for
/// a machine that gives the thread no core.
pub const PROOF_TIMEOUT: Duration = Duration::from_secs(10);

/// The end of a wait in which somebody looks again and again. It is given up only after a look in vain that began after
/// the deadline: a thread that had no core in all the time has not looked yet, and what it waits for is there.
#[derive(Debug)]
pub struct LastLook {
    by: Instant,
    /// Whether the look that is over began after the deadline.
    late: bool,
}

impl LastLook {
    /// The longest wait before a look that may be the last: for what was asked for just before.
    const PAUSE: Duration = Duration::from_millis(50);

    pub fn by(by: Instant) -> Self {
        Self { by, late: false }
    }

    /// After a look, and whether it `found` anything: how long to wait at most before the next. `None`: give up.
    pub fn wait(&mut self, found: bool) -> Option<Duration> {
        self.wait_at(found, Instant::now())
    }

    fn wait_at(&mut self, found: bool, now: Instant) -> Option<Duration> {
        let left = self.by.saturating_duration_since(now);
        if !left.is_zero() {
            return Some(left);
        }
        let over = self.late && !found;
        self.late = true;
        (!over).then_some(Self::PAUSE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_up_is_after_a_look_in_vain_that_began_after_the_deadline() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut look = LastLook::by(at(2000));
        assert_eq!(look.wait_at(false, at(0)), Some(Duration::from_millis(2000)));
        assert_eq!(look.wait_at(false, at(1999)), Some(Duration::from_millis(1)));
        // No core for ten seconds: the look that is over may have begun before the deadline.
        assert_eq!(look.wait_at(false, at(12_000)), Some(LastLook::PAUSE));
        // As long as something is found there may be more.
        assert_eq!(look.wait_at(true, at(12_001)), Some(LastLook::PAUSE));
        assert_eq!(look.wait_at(false, at(12_002)), None);
        let mut late = LastLook::by(at(0));
        assert_eq!(late.wait_at(false, at(0)), Some(LastLook::PAUSE));
        assert_eq!(late.wait_at(false, at(0)), None);
    }

    #[test]
    fn a_time_begins_when_it_is_first_asked_for_and_runs_out() {
        let time = Duration::from_millis(30);
        let mut left = TimeLeft::of(Some(time));
        let began = Instant::now();
        assert_eq!(left.left(), Some(time));
        let mut last = time;
        while let Some(now) = left.left().filter(|now| !now.is_zero()) {
            assert!(now <= last, "{now:?} after {last:?}");
            last = now;
        }
        assert!(began.elapsed() >= time);
        assert_eq!(TimeLeft::of(None).left(), None);
        let mut endless = TimeLeft::of(Some(Duration::MAX));
        assert_eq!((endless.left(), endless.left()), (None, None));
    }
}
