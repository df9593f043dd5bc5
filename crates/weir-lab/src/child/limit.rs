//! The time that an experiment may take in all, and what it leaves to each wait for a child.

use std::time::{Duration, Instant};

/// A wait may take this part of the time for all: one that hangs must not cost all others theirs.
const PART_OF_A_WAIT: u32 = 4;
/// However little time there is, a child that is only slow, or a busy machine, needs so much before it counts as one that
/// hangs: whether it does must not depend on the time that was asked for. The end of that ends the wait all the same.
const LEAST_WAIT: Duration = Duration::from_secs(10);

/// When an experiment began, and how long it may take.
#[derive(Debug, Clone, Copy)]
pub struct TimeLimit {
    began: Instant,
    all: Option<Duration>,
}

impl TimeLimit {
    /// It begins now, and has no limit yet.
    pub fn none() -> Self {
        Self { began: Instant::now(), all: None }
    }

    /// Seconds since it began.
    pub fn elapsed_s(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// Lets nothing go on for longer than so many seconds after it began.
    pub fn set(&mut self, seconds: f64) {
        self.all = Duration::try_from_secs_f64(seconds).ok();
    }

    /// How long a wait may take for which `usual` is enough on any machine.
    pub fn wait(&self, usual: Duration) -> Duration {
        self.all.map_or(usual, |all| usual.min((all / PART_OF_A_WAIT).max(LEAST_WAIT)))
    }

    /// When a wait that begins now is over: for what lasts so long, and `usual` beyond it.
    pub fn deadline(&self, lasts: Duration, usual: Duration) -> Instant {
        self.cut(Instant::now(), lasts + self.wait(usual))
    }

    /// Whether the time is over.
    pub fn is_up(&self) -> bool {
        self.all.is_some_and(|all| self.began.elapsed() >= all)
    }

    fn cut(&self, now: Instant, wait: Duration) -> Instant {
        let own = now + wait;
        match self.all.and_then(|all| self.began.checked_add(all)) {
            Some(end) => own.min(end),
            None => own,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: Duration = Duration::from_secs(15);

    #[test]
    fn a_wait_has_its_usual_time_where_there_is_no_limit() {
        let limit = TimeLimit::none();
        assert_eq!((limit.wait(USUAL), limit.is_up()), (USUAL, false));
        let mut endless = limit;
        endless.set(f64::INFINITY);
        assert_eq!((endless.wait(USUAL), endless.is_up()), (USUAL, false));
    }

    #[test]
    fn a_wait_has_a_part_of_the_time_and_ends_with_it() {
        let mut limit = TimeLimit::none();
        limit.set(48.0);
        assert_eq!(limit.wait(USUAL), Duration::from_secs(12));
        assert_eq!(limit.wait(Duration::from_secs(1)), Duration::from_secs(1));
        let began = limit.began;
        let late = began + Duration::from_secs(40);
        assert_eq!(limit.cut(began, limit.wait(USUAL)), began + Duration::from_secs(12));
        assert_eq!(limit.cut(late, limit.wait(USUAL)), began + Duration::from_secs(48));
        for seconds in [1.0, 8.0, 20.0] {
            limit.set(seconds);
            assert_eq!(
                limit.wait(USUAL),
                Duration::from_secs(10),
                "a slow child is no hanging one"
            );
            let end = began + Duration::from_secs_f64(seconds);
            assert!(limit.cut(began, limit.wait(USUAL)) <= end);
        }
        limit.set(0.0);
        assert!(limit.is_up());
    }
}
