//! What is read, how long that takes, and how often it is done.

use std::fmt;
use std::time::Duration;

use weir_load::quantity::parse_time;

use crate::plan::{Row, Schedule, budget};
use crate::stats::bootstrap;

/// What is read if nothing else is said: nothing, as fast as it comes.
pub const DEVICE: &str = "/dev/null";
/// What is read beside it where fio takes part, since fio refuses a device of which reads bring nothing.
pub const DEVICE_FOR_FIO: &str = "/dev/zero";
/// What a device begins with of which every read takes so long.
const TIMER: &str = "timer:";

/// One load: what is read, and how much at a time. Rows are compared only under the same one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Load {
    /// The device, as `weir iops` is given it.
    pub device: String,
    /// Bytes asked for by each I/O.
    pub length: usize,
}

impl Load {
    /// A load.
    pub fn new(device: impl Into<String>, length: usize) -> Self {
        Self { device: device.into(), length }
    }

    /// A device of which every read takes so long.
    pub fn delayed(by: Duration, length: usize) -> Self {
        Self::new(format!("{TIMER}{}us", by.as_nanos() as f64 / 1e3), length)
    }

    /// How long every read of it takes, if it is such a device.
    pub fn delay(&self) -> Option<Duration> {
        parse_time(self.device.strip_prefix(TIMER)?).ok()
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.delay() {
            Some(delay) => write!(f, "a device that takes {delay:?}, {} B", self.length),
            None => write!(f, "{}, {} B", self.device, self.length),
        }
    }
}

/// How much to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// A first look: three rounds, which are too few for intervals.
    Quick,
    /// The table within a minute.
    Standard,
    /// Every depth from 1 to 1024; as long as that takes.
    Sweep,
}

/// Length of a run in milliseconds where the time follows from what is asked for.
const PLANNED_RUN_MS: u64 = 300;
/// What starting and ending the process of a run costs until it has been measured.
pub const PLANNED_OVERHEAD_MS: u64 = 40;
/// What checking a row costs in such a plan, in milliseconds.
const PLANNED_CHECK_MS: u64 = 300;
/// Seconds of a first look, and of the table within a minute.
const QUICK_S: f64 = 20.0;
const STANDARD_S: f64 = 55.0;
/// Rows that a minute has enough rounds for.
const ROWS_IN_A_MINUTE: usize = 22;

/// How an experiment is run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// How much to measure.
    pub depth: Depth,
    /// Rounds of each load, if they were asked for.
    pub rounds: Option<u32>,
    /// Seconds it may take in all; `None` for the time that what was asked for takes.
    pub budget_s: Option<f64>,
    /// How long each row runs once at the end, to see whether its rate falls; `None` for not at all.
    pub long_run: Option<Duration>,
}

impl Settings {
    /// Rounds that are aimed at.
    pub fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(match self.depth {
            Depth::Quick => budget::FEWEST_ROUNDS,
            // Three more than an interval needs, for a machine that changes its speed by itself.
            Depth::Standard => bootstrap::FEWEST_SAMPLES as u32 + 3,
            Depth::Sweep => bootstrap::FEWEST_SAMPLES as u32 + 1,
        })
    }

    /// Seconds from the first check to the last round; the long runs at the end come on top.
    pub fn budget_s(&self, loads: &[Load], rows: &[Row]) -> f64 {
        let ordinary = self.rounds.is_none() && loads.len() == 1 && runs(rows) <= ROWS_IN_A_MINUTE;
        self.budget_s.unwrap_or_else(|| match self.depth {
            Depth::Quick if ordinary => QUICK_S,
            Depth::Standard if ordinary => STANDARD_S,
            _ => self.estimate_s(loads.len(), runs(rows)),
        })
    }

    /// Seconds that the long runs at the end take.
    pub fn long_runs_s(&self, rows: &[Row]) -> f64 {
        self.long_run.map_or(0.0, |time| time.as_secs_f64() * runs(rows) as f64)
    }

    fn estimate_s(&self, loads: usize, rows: usize) -> f64 {
        let run_ms = PLANNED_RUN_MS + budget::WARMUP_MS + PLANNED_OVERHEAD_MS;
        let of_a_row_ms = PLANNED_CHECK_MS + u64::from(self.rounds()) * loads as u64 * run_ms;
        (rows as u64 * of_a_row_ms) as f64 / 1000.0
    }

    /// Rounds and run time of a load that has `share_s` seconds, where starting and ending a run costs
    /// `overhead_ms`.
    pub fn schedule(&self, share_s: f64, rows: usize, overhead_ms: u64) -> Schedule {
        budget::fit_asked(self.rounds, self.rounds(), share_s, rows, overhead_ms)
    }
}

/// Rows that can run here, as far as is known.
fn runs(rows: &[Row]) -> usize {
    rows.iter().filter(|row| row.unavailable.is_none()).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(depth: Depth) -> Settings {
        Settings { depth, rounds: None, budget_s: None, long_run: None }
    }

    #[test]
    fn a_delay_is_a_device_of_its_own() {
        let load = Load::delayed(Duration::from_micros(10), 4096);
        assert_eq!(
            (load.device.as_str(), load.delay()),
            ("timer:10us", Some(Duration::from_micros(10)))
        );
        assert_eq!(load.to_string(), "a device that takes 10µs, 4096 B");
        let plain = Load::new(DEVICE, 512);
        assert_eq!((plain.delay(), plain.to_string().as_str()), (None, "/dev/null, 512 B"));
    }

    #[test]
    fn a_minute_has_enough_rounds_for_intervals() {
        let rows = vec![Row::parse("sync").unwrap(); ROWS_IN_A_MINUTE];
        let loads = [Load::new(DEVICE, 4096)];
        let standard = settings(Depth::Standard);
        assert_eq!(standard.budget_s(&loads, &rows), STANDARD_S);
        // Checks have taken seven seconds.
        let schedule = standard.schedule(STANDARD_S - 7.0, rows.len(), PLANNED_OVERHEAD_MS);
        assert!(schedule.rounds as usize >= bootstrap::FEWEST_SAMPLES + 2, "{schedule:?}");
        assert!(schedule.total_ms(rows.len(), PLANNED_OVERHEAD_MS) <= 48_000, "{schedule:?}");
        let quick = settings(Depth::Quick).schedule(QUICK_S - 7.0, rows.len(), PLANNED_OVERHEAD_MS);
        assert!(quick.total_ms(rows.len(), PLANNED_OVERHEAD_MS) <= 14_600, "{quick:?}");
    }

    #[test]
    fn what_was_asked_for_besides_has_its_time() {
        let mut rows = vec![Row::parse("sync").unwrap(); 2];
        rows[1].unavailable = Some("not here".into());
        let two = [Load::new(DEVICE, 0), Load::new(DEVICE_FOR_FIO, 0)];
        let standard = settings(Depth::Standard);
        // One check, and nine rounds of 300 + 60 + 40 ms of each load.
        assert!((standard.budget_s(&two, &rows) - (0.3 + 9.0 * 2.0 * 0.4)).abs() < 1e-9);
        let asked = Settings { rounds: Some(4), ..standard };
        assert_eq!(asked.schedule(0.1, 8, 100).rounds, 4);
        let long = Settings { long_run: Some(Duration::from_secs(30)), ..standard };
        assert_eq!((standard.long_runs_s(&rows), long.long_runs_s(&rows)), (0.0, 30.0));
        assert_eq!(Settings { budget_s: Some(7.0), ..standard }.budget_s(&two, &rows), 7.0);
    }
}
