//! The intervals of a run, for its document: a bounded number that covers all of it.

/// Most intervals kept: more than an hour of seconds. When there are more, each two neighbours
/// become one, and from then on each one kept is of twice as many: the counts of the whole
/// run stay, and only its finest grain goes.
pub const INTERVALS_MAX: usize = 4096;

/// What is told of an interval.
pub trait Interval {
    /// What is told of this one and the next together.
    fn joined(&self, next: &Self) -> Self;
}

/// The intervals kept, in the order of time.
#[derive(Debug)]
pub struct Intervals<I> {
    kept: Vec<I>,
    /// Of how many each one kept is, but for the last, which may still grow: 2 to this power.
    doublings: u32,
    /// Of how many the last is.
    in_last: u64,
}

impl<I> Default for Intervals<I> {
    fn default() -> Self {
        Self { kept: Vec::new(), doublings: 0, in_last: 0 }
    }
}

impl<I: Interval> Intervals<I> {
    /// Adds the next one.
    pub fn push(&mut self, next: I) {
        match self.kept.last_mut() {
            Some(last) if self.in_last < 1 << self.doublings => {
                *last = last.joined(&next);
                self.in_last += 1;
                return;
            }
            _ => {}
        }
        if self.kept.len() == INTERVALS_MAX {
            self.kept = self.kept.chunks_exact(2).map(|two| two[0].joined(&two[1])).collect();
            self.doublings += 1;
        }
        self.kept.push(next);
        self.in_last = 1;
    }

    pub fn iter(&self) -> impl Iterator<Item = &I> {
        self.kept.iter()
    }
}

impl Interval for weir_load::flood::Progress {
    fn joined(&self, next: &Self) -> Self {
        Self {
            from_ns: self.from_ns,
            to_ns: next.to_ns,
            offered: self.offered + next.offered,
            sent: self.sent + next.sent,
            refused: self.refused + next.refused,
            late_skipped: self.late_skipped + next.late_skipped,
        }
    }
}

impl Interval for weir_load::tcp::Progress {
    fn joined(&self, next: &Self) -> Self {
        Self {
            from_ns: self.from_ns,
            messages: self.messages + next.messages,
            bytes_sent: self.bytes_sent + next.bytes_sent,
            bytes_received: self.bytes_received + next.bytes_received,
            // The others are what stood at its end.
            ..*next
        }
    }
}

impl Interval for weir_lab::iops::Progress {
    fn joined(&self, next: &Self) -> Self {
        Self {
            from_ns: self.from_ns,
            to_ns: next.to_ns,
            total: next.total,
            completed: self.completed + next.completed,
            failed: self.failed + next.failed,
            bytes: self.bytes + next.bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_load::flood::Progress;

    fn interval(number: u64) -> Progress {
        Progress {
            from_ns: number * 10,
            to_ns: number * 10 + 10,
            offered: 7,
            sent: 4,
            refused: 3,
            late_skipped: 1,
        }
    }

    #[test]
    fn few_are_kept_as_they_are() {
        let mut intervals = Intervals::default();
        (0..INTERVALS_MAX as u64).for_each(|number| intervals.push(interval(number)));
        assert!(intervals.iter().zip(0..).all(|(kept, number)| *kept == interval(number)));
    }

    #[test]
    fn of_many_a_bounded_number_tells_of_the_whole() {
        let mut intervals = Intervals::default();
        const MANY: u64 = 5 * INTERVALS_MAX as u64 + 3;
        for number in 0..MANY {
            intervals.push(interval(number));
            assert!(intervals.kept.len() <= INTERVALS_MAX);
        }
        assert!(intervals.kept.len() > INTERVALS_MAX / 2);
        let mut at_ns = 0;
        for kept in intervals.iter() {
            assert_eq!(kept.from_ns, at_ns, "without a gap");
            at_ns = kept.to_ns;
            assert_eq!(kept.sent * 10, (kept.to_ns - kept.from_ns) * 4, "{kept:?}");
        }
        assert_eq!(at_ns, MANY * 10);
        let sum = |of: fn(&Progress) -> u64| intervals.iter().map(of).sum::<u64>();
        assert_eq!(sum(|kept| kept.offered), 7 * MANY);
        assert_eq!(sum(|kept| kept.sent), 4 * MANY);
        assert_eq!(sum(|kept| kept.refused + kept.late_skipped), 4 * MANY);
    }
}
