//! How well a pace was held: datagrams sent in each 10 ms of the run.

/// Length of a window in ns.
pub const WINDOW_NS: u64 = 10_000_000;

/// How far from its target a window may be: this share of it, or one quantum.
pub const TOLERANCE: f64 = 0.02;

/// The share of windows that must be within tolerance for a pace to count as held.
pub const WITHIN_MIN: f64 = 0.99;

/// Counts windows, and those within 2 % or one quantum of the target: of an even pace the same for all, else what was due
/// in them. Windows follow one another from the start of the run; one cut off by its end does not count.
#[derive(Debug, Clone)]
pub struct Windows {
    start_ns: u64,
    quantum: u32,
    /// Datagrams of each window, or of the current one if they are counted as they are due.
    target: f64,
    is_by_due: bool,
    current: u64,
    sent: u64,
    within: u64,
}

impl Windows {
    /// For a pace of `datagrams_per_s` in quanta of `quantum` from `start_ns` on.
    pub fn new(datagrams_per_s: f64, quantum: u32, start_ns: u64) -> Self {
        let target = datagrams_per_s * WINDOW_NS as f64 / 1e9;
        Self { start_ns, quantum, target, is_by_due: false, current: 0, sent: 0, within: 0 }
    }

    /// For quanta whose times are told by [`due`](Self::due).
    pub fn of_due(quantum: u32, start_ns: u64) -> Self {
        Self { target: 0.0, is_by_due: true, ..Self::new(0.0, quantum, start_ns) }
    }

    /// Counts datagrams that were due at a time, before they are recorded; times must not go back. Of no meaning for an even
    /// pace.
    #[inline]
    pub fn due(&mut self, due_ns: u64, datagrams: u64) {
        if self.is_by_due {
            self.close_before(due_ns.saturating_sub(self.start_ns) / WINDOW_NS);
            self.target += datagrams as f64;
        }
    }

    /// Counts datagrams handed over at a time; times must not go back.
    #[inline]
    pub fn record(&mut self, at_ns: u64, datagrams: u64) {
        self.close_before(at_ns.saturating_sub(self.start_ns) / WINDOW_NS);
        self.sent += datagrams;
    }

    /// Ends the count: the windows that ended by `end_ns` are the ones counted.
    pub fn finish(&mut self, end_ns: u64) {
        self.close_before(end_ns.saturating_sub(self.start_ns) / WINDOW_NS);
    }

    fn close_before(&mut self, window: u64) {
        if window <= self.current {
            return;
        }
        self.within += u64::from(self.holds(self.sent));
        if self.is_by_due {
            self.target = 0.0;
        }
        let empty = window - self.current - 1;
        self.within += if self.holds(0) { empty } else { 0 };
        self.current = window;
        self.sent = 0;
    }

    fn holds(&self, sent: u64) -> bool {
        // A little more than the tolerance, for what rounding does to whole quanta.
        let tolerance = (TOLERANCE * self.target).max(f64::from(self.quantum)) + 1e-6;
        (sent as f64 - self.target).abs() <= tolerance
    }

    /// Windows that have ended.
    pub fn count(&self) -> u64 {
        self.current
    }

    /// Those within tolerance.
    pub fn within(&self) -> u64 {
        self.within
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_judged_one_by_one() {
        let mut windows = Windows::new(100_000.0, 1, 0); // 1000 a window, 980 to 1020 hold
        windows.record(0, 980);
        windows.record(WINDOW_NS, 1020);
        windows.record(2 * WINDOW_NS, 979);
        windows.record(3 * WINDOW_NS - 1, 0);
        windows.record(5 * WINDOW_NS, 1000); // the fourth and fifth: 0 sent in the fourth
        windows.finish(6 * WINDOW_NS + 1);
        assert_eq!((windows.count(), windows.within()), (6, 3));
    }

    #[test]
    fn at_low_rates_an_empty_window_is_within_a_quantum() {
        let mut windows = Windows::new(50.0, 1, 0);
        windows.record(0, 1);
        windows.finish(10 * WINDOW_NS);
        assert_eq!((windows.count(), windows.within()), (10, 10));
    }

    #[test]
    fn the_cut_off_window_does_not_count() {
        let mut windows = Windows::new(100_000.0, 1, 5);
        windows.record(5, 1000);
        windows.finish(WINDOW_NS);
        assert_eq!((windows.count(), windows.within()), (0, 0));
        windows.finish(5 + WINDOW_NS);
        assert_eq!((windows.count(), windows.within()), (1, 1));
    }
}
