//! The measured part of a run, from readings taken while it lasted.
//!
//! The server does not know beforehand when the first datagram comes and when the last. So
//! it reads its counters every few milliseconds, each time with the exact time, and decides
//! afterwards: the window begins with the first reading by which something had come, and ends
//! with the last one after which something still came. So neither the wait before nor the
//! quiet after counts, and how punctual the readings were does not matter.

use weir_lab::wire::Window;

/// Most readings kept. When there are more, every second is forgotten and from then on only
/// every second is kept: the window of a long run needs no finer ends.
const MOST_READINGS: usize = 4096;

/// One reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// When, in nanoseconds since any fixed moment.
    pub at_ns: u64,
    /// Datagrams of the run up to then.
    pub datagrams: u64,
    /// All datagrams that the server handled up to then: those of strangers and of other runs
    /// too.
    pub handled: u64,
    /// CPU time of the process up to then in nanoseconds, if known.
    pub cpu_ns: Option<u64>,
    /// CPU time of the server's threads up to then in nanoseconds, if known.
    pub threads_cpu_ns: Option<u64>,
}

/// The readings of a run, in the order of time.
#[derive(Debug, Default)]
pub struct Readings {
    kept: Vec<Reading>,
    last: Option<Reading>,
    /// One of 2^this is kept.
    thinned: u32,
    pushed: u64,
}

impl Readings {
    /// Adds a reading.
    pub fn push(&mut self, reading: Reading) {
        self.last = Some(reading);
        if self.pushed.is_multiple_of(1 << self.thinned) {
            self.kept.push(reading);
        }
        self.pushed += 1;
        if self.kept.len() == MOST_READINGS {
            let mut index = 0;
            self.kept.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.thinned += 1;
        }
    }

    /// The measured window. Where too little came for one, it is all there is.
    pub fn window(&self) -> Window {
        let (Some(start), Some(end)) = (self.kept.first(), self.last) else {
            return Window::default();
        };
        let first = self.kept.iter().find(|r| r.datagrams > start.datagrams);
        let last = self.kept.iter().rev().find(|r| r.datagrams < end.datagrams);
        match (first, last) {
            (Some(first), Some(last))
                if last.at_ns > first.at_ns && last.datagrams > first.datagrams =>
            {
                between(first, last)
            }
            _ => between(start, &end),
        }
    }
}

/// What lies between two readings.
pub fn between(first: &Reading, last: &Reading) -> Window {
    let since = |of: fn(&Reading) -> Option<u64>| Some(of(last)?.saturating_sub(of(first)?));
    Window {
        elapsed_ns: last.at_ns.saturating_sub(first.at_ns),
        datagrams: last.datagrams.saturating_sub(first.datagrams),
        handled: last.handled.saturating_sub(first.handled),
        cpu_ns: since(|reading| reading.cpu_ns),
        threads_cpu_ns: since(|reading| reading.threads_cpu_ns),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readings(list: &[(u64, u64)]) -> Readings {
        let mut readings = Readings::default();
        for (at_ns, datagrams) in list {
            let cpu_ns = Some(at_ns / 2);
            let handled = 3 * datagrams;
            let threads_cpu_ns = Some(at_ns / 5);
            let (at_ns, datagrams) = (*at_ns, *datagrams);
            readings.push(Reading { at_ns, datagrams, handled, cpu_ns, threads_cpu_ns });
        }
        readings
    }

    /// Two bursts, each between two readings: the one is before the window and the other behind it.
    #[test]
    fn where_nothing_came_between_the_first_and_the_last_it_is_all() {
        let window = readings(&[(0, 0), (10, 26), (20, 26), (30, 53), (40, 53)]).window();
        assert_eq!((window.elapsed_ns, window.datagrams, window.handled), (40, 53, 159));
    }

    #[test]
    fn neither_the_wait_before_nor_the_quiet_after_counts() {
        let list = [(0, 5), (10, 5), (20, 9), (30, 29), (40, 49), (50, 60), (60, 60), (70, 60)];
        let window = readings(&list).window();
        let (cpu_ns, threads_cpu_ns) = (Some(10), Some(4));
        let expected =
            Window { elapsed_ns: 20, datagrams: 40, handled: 120, cpu_ns, threads_cpu_ns };
        assert_eq!(window, expected);
    }

    #[test]
    fn too_little_for_a_window_is_taken_whole() {
        let window = readings(&[(0, 0), (10, 3), (20, 3)]).window();
        assert_eq!((window.elapsed_ns, window.datagrams), (20, 3));
        assert_eq!(readings(&[]).window(), Window::default());
        assert_eq!(readings(&[(5, 7)]).window().datagrams, 0);
    }

    #[test]
    fn unknown_cpu_time_stays_unknown() {
        let mut readings = readings(&[(0, 0), (10, 3)]);
        let unknown =
            Reading { at_ns: 20, datagrams: 9, handled: 9, cpu_ns: None, threads_cpu_ns: None };
        readings.push(unknown);
        let window = readings.window();
        assert_eq!((window.cpu_ns, window.threads_cpu_ns), (None, None));
    }

    #[test]
    fn a_long_run_keeps_a_bounded_number_and_the_true_window() {
        let mut readings = Readings::default();
        for n in 0..1_000_000u64 {
            let datagrams = n * 3;
            let cpu_ns = Some(n);
            let (at_ns, threads_cpu_ns) = (n * 10, cpu_ns);
            readings.push(Reading { at_ns, datagrams, handled: datagrams, cpu_ns, threads_cpu_ns });
            assert!(readings.kept.len() < MOST_READINGS);
        }
        let window = readings.window();
        let rate = window.datagrams as f64 / window.elapsed_ns as f64;
        assert!((rate - 0.3).abs() < 1e-9, "{window:?}");
        assert!(window.elapsed_ns > 9_980_000, "{window:?}");
    }
}
