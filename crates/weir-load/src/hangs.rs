//! Finds threads that hang: a call that does not return, as of a driver that waits for its device for ever.
//!
//! Each counts its turns, of which it makes two a second at the least, however slow its pace. Looks are counted, and not time:
//! threads do not hang where the whole process was stopped for a while (Ctrl-Z, a suspended machine). One that is given no core
//! while others of its process are looks the same, and that is said.

use std::time::{Duration, Instant};

/// How often the threads are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How many looks in a row one that hangs has made no turn.
const LOOKS_MAX: u32 = 5;

/// What is known of each thread.
pub(crate) struct Hangs {
    looked: Instant,
    /// The turns that each had made, and since how many looks.
    each: Vec<(u64, u32)>,
}

impl Hangs {
    pub(crate) fn new(threads: usize) -> Self {
        Self { looked: Instant::now(), each: vec![(0, 0); threads] }
    }

    /// How long until they are to be looked at.
    pub(crate) fn left(&self) -> Duration {
        LOOK_EVERY.saturating_sub(self.looked.elapsed())
    }

    /// Looks at the turns that each has made, if it is time; none of one that has nothing to do. Gives which hangs.
    pub(crate) fn look(&mut self, turns: impl Iterator<Item = Option<u64>>) -> Option<usize> {
        if !self.left().is_zero() {
            return None;
        }
        self.looked = Instant::now();
        self.count(turns)
    }

    fn count(&mut self, turns: impl Iterator<Item = Option<u64>>) -> Option<usize> {
        for (of, turns) in self.each.iter_mut().zip(turns) {
            *of = match turns {
                Some(turns) if turns == of.0 => (turns, of.1 + 1),
                turns => (turns.unwrap_or(of.0), 0),
            };
        }
        self.each.iter().position(|(_, looks)| *looks >= LOOKS_MAX)
    }
}

/// What is said of one of so many.
pub(crate) fn in_words(what: &str, number: usize, of: usize) -> String {
    format!(
        "{what} {} of {of} hangs: one of its calls has not returned for {} s, or it gets no CPU time",
        number + 1,
        LOOK_EVERY.as_secs() * u64::from(LOOKS_MAX)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_makes_no_turn_hangs_and_who_has_nothing_to_do_does_not() {
        let mut hangs = Hangs::new(3);
        assert_eq!(hangs.look(std::iter::repeat(Some(0))), None, "it is not time");
        for look in 1..LOOKS_MAX {
            // The first moves, the second has nothing to do, the third stands.
            assert_eq!(hangs.count([Some(look.into()), None, Some(0)].into_iter()), None);
        }
        let found = hangs.count([Some(9), None, Some(0)].into_iter());
        assert_eq!(found, Some(2));
        assert_eq!(
            in_words("generator", 2, 3),
            "generator 3 of 3 hangs: one of its calls has not returned for 5 s, or it gets no CPU time"
        );
    }

    #[test]
    fn one_turn_between_is_enough() {
        let mut hangs = Hangs::new(1);
        for look in 0..100 {
            let turns = u64::from(look / (LOOKS_MAX - 1));
            assert_eq!(hangs.count([Some(turns)].into_iter()), None, "{look}");
        }
    }
}
