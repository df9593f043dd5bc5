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

#[cfg(test)]
mod tests {
    use super::*;

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
