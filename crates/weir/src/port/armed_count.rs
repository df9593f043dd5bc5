//! How many receives to have armed on a socket, where the kernel wakes each of them for every datagram. A model of a
//! server decides by the same code.
//!
//! Under load many: each that is armed when its submission runs takes what lies in the socket, so the
//! more are submitted together the more one entry brings. With little load few: a datagram that comes
//! to an empty socket wakes every receive that waits there, and all but one wait again.

/// Receives armed on each socket where nothing else was asked for: at least, and at most.
const LEAST: u32 = 4;
pub(crate) const MOST: u32 = 64;

/// How many receives to have armed on each socket: a fixed number, or as many as come at once.
#[derive(Debug)]
pub struct ArmedCount {
    least: u32,
    most: u32,
    now: u32,
}

impl ArmedCount {
    /// So many; 0 for as many as come at once.
    pub fn new(armed: u32) -> Self {
        match armed {
            0 => Self { least: LEAST, most: MOST, now: LEAST },
            fixed => Self { least: fixed, most: fixed, now: fixed },
        }
    }

    /// How many now.
    #[inline]
    pub fn now(&self) -> u32 {
        self.now
    }

    /// Takes note of an entry into the kernel: so many operations were submitted, and so many
    /// completions lay ready afterwards.
    #[inline]
    pub fn entered(&mut self, submitted: u32, ready: u32) {
        if ready >= submitted && 2 * submitted >= self.now.min(MOST / 4) {
            // All that was submitted found something at once.
            self.now = (2 * self.now).min(self.most);
        } else if ready <= self.now / 4 {
            self.now = (self.now / 2).max(self.least);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_arms_more_and_its_absence_fewer() {
        let mut armed_count = ArmedCount::new(0);
        assert_eq!(armed_count.now(), LEAST);
        for expected in [8, 16, 32, 64, 64] {
            let submitted = armed_count.now().min(16);
            armed_count.entered(submitted, submitted);
            assert_eq!(armed_count.now(), expected);
        }
        for expected in [32, 16, 8, 4, 4, 4] {
            armed_count.entered(1, 1);
            assert_eq!(armed_count.now(), expected, "one datagram at a time");
        }
    }

    #[test]
    fn a_wait_that_brought_a_few_changes_nothing() {
        let mut armed_count = ArmedCount::new(0);
        armed_count.entered(4, 4);
        armed_count.entered(8, 5);
        assert_eq!(armed_count.now(), 8);
    }

    #[test]
    fn a_fixed_number_stays() {
        let mut armed_count = ArmedCount::new(5000);
        for (submitted, ready) in [(1, 0), (1, 1), (5000, 5000), (0, 0)] {
            armed_count.entered(submitted, ready);
            assert_eq!(armed_count.now(), 5000);
        }
    }
}
