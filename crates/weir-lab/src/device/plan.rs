//! What is read or written to, how long that takes, and how often it is done.

use std::fmt;
use std::time::Duration;

use weir::device::{Direction, NAMES};
use weir_load::quantity::parse_time;

use crate::experiment::plan::{Depth, Row, budget};
use crate::iops::TIMER;
use crate::stats::bootstrap;

/// What is read if nothing else is said: nothing, as fast as it comes.
pub const DEVICE: &str = NAMES.null;
/// What is read beside it where fio takes part, since fio refuses a device of which reads bring nothing.
pub const DEVICE_FOR_FIO: Option<&str> = NAMES.zeroes;
/// I/Os, one after the other, that a run lasts for at least: of fewer its rate says little, and of less than one
/// nothing.
const FEWEST_IOS: u32 = 10;
/// Longest that a read may take where designs are compared, so that the longest run lasts for enough of them.
pub const MOST_DELAY: Duration = Duration::from_millis(budget::LONGEST_RUN_MS / FEWEST_IOS as u64);

/// One load: what is read, or written to, and how much at a time. Rows are compared only under the same one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Load {
    /// The device, as `weir iops` is given it.
    pub device: String,
    /// Bytes asked for by each I/O.
    pub length: usize,
    /// What each I/O does.
    pub direction: Direction,
}

impl Load {
    /// A load of reads.
    pub fn new(device: impl Into<String>, length: usize) -> Self {
        Self { device: device.into(), length, direction: Direction::Read }
    }

    /// The same load in a direction.
    pub fn of(self, direction: Direction) -> Self {
        Self { direction, ..self }
    }

    /// A device of which every read takes so long.
    pub fn delayed(by: Duration, length: usize) -> Self {
        Self::new(format!("{TIMER}{}us", by.as_nanos() as f64 / 1e3), length)
    }

    /// What is read as it is written here however it was written: a delay in one unit.
    pub fn of_text(device: &str, length: usize) -> Self {
        let load = Self::new(device, length);
        load.delay().map_or(load, |delay| Self::delayed(delay, length))
    }

    /// Milliseconds that a run of it lasts at least; up to [`MOST_DELAY`] no more than the longest run.
    pub fn shortest_run_ms(&self) -> u64 {
        let ios = self.delay().unwrap_or_default() * FEWEST_IOS;
        (ios.as_micros().div_ceil(1000) as u64).max(budget::SHORTEST_RUN_MS)
    }

    /// How long every read of it takes, if it is such a device.
    pub fn delay(&self) -> Option<Duration> {
        parse_time(self.device.strip_prefix(TIMER)?).ok()
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.delay() {
            Some(delay) => write!(f, "a device that takes {delay:?}, {} B", self.length)?,
            None => write!(f, "{}, {} B", self.device, self.length)?,
        }
        match self.direction {
            Direction::Read => Ok(()),
            Direction::Write => write!(f, ", {}", self.direction),
        }
    }
}

/// What starting and ending the process of a run costs until it has been measured.
pub const PLANNED_OVERHEAD_MS: u64 = 40;
/// Seconds of a first look, and of the table within a minute.
pub const QUICK_S: f64 = 20.0;
/// See [`QUICK_S`].
pub const STANDARD_S: f64 = 55.0;
/// Rows that a minute has enough rounds for.
const ROWS_IN_A_MINUTE: usize = 22;

/// Rounds that are aimed at.
pub fn aims_at(depth: Depth) -> u32 {
    match depth {
        Depth::Quick => budget::FEWEST_ROUNDS,
        // Three more than an interval needs, for a machine that changes its speed by itself.
        Depth::Standard => bootstrap::FEWEST_SAMPLES as u32 + 3,
        Depth::Full => bootstrap::FEWEST_SAMPLES as u32 + 1,
    }
}

/// Seconds of the first look and of the table within a minute, where no more than usual was asked for.
pub fn usual_s(depth: Depth, loads: &[Load], rows: &[Row]) -> Option<f64> {
    let ordinary = loads.len() == 1
        && loads[0].shortest_run_ms() <= budget::PLANNED_RUN_MS
        && runs(rows) <= ROWS_IN_A_MINUTE;
    match depth {
        Depth::Quick if ordinary => Some(QUICK_S),
        Depth::Standard if ordinary => Some(STANDARD_S),
        _ => None,
    }
}

/// Rows that can run here, as far as is known.
pub fn runs(rows: &[Row]) -> usize {
    rows.iter().filter(|row| row.unavailable.is_none()).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::results::Devices;
    use crate::experiment::course::Course;
    use crate::experiment::plan::Settings;

    #[test]
    fn a_delay_is_a_device_of_its_own() {
        let load = Load::delayed(Duration::from_micros(10), 4096);
        assert_eq!(
            (load.device.as_str(), load.delay()),
            ("timer:10us", Some(Duration::from_micros(10)))
        );
        assert_eq!(load.to_string(), "a device that takes 10µs, 4096 B");
        let plain = Load::new(DEVICE, 512);
        assert_eq!((plain.delay(), plain.to_string()), (None, format!("{DEVICE}, 512 B")));
        assert_eq!(plain.of(Direction::Write).to_string(), format!("{DEVICE}, 512 B, writes"));
    }

    #[test]
    fn a_minute_has_enough_rounds_for_intervals() {
        let rows = vec![Row::parse("sync").unwrap(); ROWS_IN_A_MINUTE];
        let loads = [Load::new(DEVICE, 4096)];
        let standard = Settings::new(Depth::Standard);
        assert_eq!(Devices::budget_s(&standard, &loads, &rows), STANDARD_S);
        // Checks have taken seven seconds.
        let schedule = Devices::schedule(
            &standard,
            &loads[0],
            STANDARD_S - 7.0,
            rows.len(),
            PLANNED_OVERHEAD_MS,
        );
        assert!(schedule.rounds as usize >= bootstrap::FEWEST_SAMPLES + 2, "{schedule:?}");
        assert!(schedule.total_ms(rows.len(), PLANNED_OVERHEAD_MS) <= 48_000, "{schedule:?}");
        let quick = Settings::new(Depth::Quick);
        let quick =
            Devices::schedule(&quick, &loads[0], QUICK_S - 7.0, rows.len(), PLANNED_OVERHEAD_MS);
        assert!(quick.total_ms(rows.len(), PLANNED_OVERHEAD_MS) <= 14_600, "{quick:?}");
    }

    #[test]
    fn what_was_asked_for_besides_has_its_time() {
        let mut rows = vec![Row::parse("sync").unwrap(); 2];
        rows[1].unavailable = Some("not here".into());
        let two = [Load::new(DEVICE, 0), Load::new("another", 0)];
        let standard = Settings::new(Depth::Standard);
        // One check, and nine rounds of 300 + 60 + 40 ms of each load.
        assert!((Devices::budget_s(&standard, &two, &rows) - (0.3 + 9.0 * 2.0 * 0.4)).abs() < 1e-9);
        let asked = Settings { rounds: Some(4), ..standard };
        assert_eq!(Devices::schedule(&asked, &two[0], 0.1, 8, 100).rounds, 4);
        let long = Devices { long_run: Some(Duration::from_secs(30)), ..Devices::default() };
        assert_eq!(
            (Devices::default().planned_after_s(&rows), long.planned_after_s(&rows)),
            (0.0, 300.0 * 0.125 + 0.025)
        );
        assert_eq!(Devices::budget_s(&standard.within(Some(7.0)), &two, &rows), 7.0);
    }

    #[test]
    fn a_run_lasts_for_ten_ios_and_the_plan_knows() {
        let rows = vec![Row::parse("sync").unwrap(); 2];
        let slow = [Load::delayed(MOST_DELAY, 8)];
        let standard = Settings::new(Depth::Standard);
        assert_eq!(
            (slow[0].shortest_run_ms(), Load::new(DEVICE, 0).shortest_run_ms()),
            (2000, 120)
        );
        // Two checks, and nine rounds of 2000 + 60 + 40 ms of two rows.
        let budget_s = Devices::budget_s(&standard, &slow, &rows);
        assert!((budget_s - 2.0 * (0.3 + 9.0 * 2.1)).abs() < 1e-9, "{budget_s}");
        let of =
            |share_s: f64| Devices::schedule(&standard, &slow[0], share_s, 2, PLANNED_OVERHEAD_MS);
        assert_eq!((of(budget_s).rounds, of(budget_s).run_ms), (9, 2000));
        assert_eq!((of(1.0).rounds, of(1.0).run_ms), (budget::FEWEST_ROUNDS, 2000));
        let asked = Settings { rounds: Some(4), ..standard };
        assert_eq!(Devices::schedule(&asked, &slow[0], 0.1, 2, 40).rounds, 4);
    }
}
