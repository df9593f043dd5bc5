//! How often the loads of UDP run, and the time that takes.

use super::{Load, Rate, Shown, Takes, rows_of};
use crate::experiment::plan::Row;
use crate::experiment::plan::budget::{FEWEST_ROUNDS, QUICK_S, STANDARD_S, WARMUP_MS};
use crate::stats::bootstrap;

/// How much to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// A first look: saturation only, and three rounds, which are too few for intervals.
    Quick,
    /// The table within two minutes: saturation, and one paced load for the latency.
    Standard,
    /// Every load; as long as that takes.
    Full,
}

/// Rounds of a step of a sweep over the load: only losses and latencies are taken from it, and
/// the highest rate of a row is approached in many steps.
const ROUNDS_OF_A_PACED_STEP: u32 = FEWEST_ROUNDS;
/// Rounds of a step of a sweep over work or threads: one more than an interval needs.
const ROUNDS_OF_A_STEP: u32 = bootstrap::FEWEST_SAMPLES as u32 + 1;

/// Length of a run in milliseconds where the time follows from what is asked for.
const PLANNED_RUN_MS: u64 = 300;
/// What starting and ending a run costs in such a plan; it is measured later.
pub const PLANNED_OVERHEAD_MS: u64 = 130;
/// What checking a row costs in such a plan.
const PLANNED_CHECK_MS: u64 = 400;
/// What calibrating the generator costs, for each kind of load.
const PLANNED_CALIBRATION_MS: u64 = 800;

/// The seconds that loads and rows take with all the rounds of each load.
pub fn estimate_s(rounds_of: impl Fn(&Load) -> u32, loads: &[Load], rows: &[Row]) -> f64 {
    let run_ms = PLANNED_RUN_MS + WARMUP_MS + PLANNED_OVERHEAD_MS;
    let of_load = |load: &Load| {
        let rows = rows_of(load, rows).len() as u64;
        u64::from(rounds_of(load)) * rows * run_ms
    };
    let kinds = loads.iter().filter(|load| !load.is_paced()).count() as u64;
    let checked = rows.iter().filter(|row| row.unavailable.is_none()).count() as u64;
    let before_ms = checked * PLANNED_CHECK_MS + kinds.max(1) * PLANNED_CALIBRATION_MS;
    (before_ms + loads.iter().map(of_load).sum::<u64>()) as f64 / 1000.0
}

impl Depth {
    /// Seconds from the first check to the table, unless told otherwise: for the first look and the
    /// table within two minutes they are fixed; what has more loads or more rows than those has the
    /// time that it takes.
    pub fn budget_s(self, loads: &[Load], rows: &[Row]) -> f64 {
        let ordinary = loads.iter().all(|load| load.takes == Takes::default());
        match self {
            Self::Quick if ordinary && loads.len() == 1 => QUICK_S,
            Self::Standard if ordinary && loads.len() <= 2 => STANDARD_S,
            _ => estimate_s(|load| self.rounds_of(load), loads, rows),
        }
    }

    /// Rounds of a load that are aimed at: fewer make runs longer.
    pub fn rounds_of(self, load: &Load) -> u32 {
        let of_a_step = match load.rate {
            Rate::Saturation => ROUNDS_OF_A_STEP,
            Rate::OfPartialDrop(_) => ROUNDS_OF_A_STEP,
            Rate::PerSecond(_) | Rate::OfMaximum(_) | Rate::Search { .. } => ROUNDS_OF_A_PACED_STEP,
        };
        match (self, load.shown) {
            (Self::Quick, _) => FEWEST_ROUNDS,
            (_, Shown::Step) => of_a_step,
            // Three more than an interval needs: a machine that changes its speed by itself costs a
            // round or two, and from nine on the interval leaves the farthest samples out.
            (Self::Standard | Self::Full, Shown::Table) => bootstrap::FEWEST_SAMPLES as u32 + 3,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::plan::budget::fit;

    #[test]
    fn the_paced_load_of_a_standard_experiment_has_enough_rounds_for_intervals() {
        // 19 rows, starting and ending a run costs 110 ms; calibration and checks are over. Two
        // rounds may be lost to a machine that changes.
        let depth = Depth::Standard;
        let loads = crate::udp::plan::Asked::new(depth, Load::saturation(64)).loads();
        let left_s = depth.budget_s(&loads, &[]) - 8.0;
        for share_s in crate::udp::plan::shares(
            |load| depth.rounds_of(load),
            &[(loads[0], 19), (loads[1], 19)],
            left_s,
        ) {
            let schedule = fit(depth.rounds_of(&loads[0]), share_s, 19, 110);
            assert!(schedule.rounds as usize >= bootstrap::FEWEST_SAMPLES + 2, "{schedule:?}");
        }
    }

    #[test]
    fn the_time_of_a_plan_follows_from_its_loads_and_rows() {
        let rows = vec![Row::parse("epoll").unwrap(), Row::parse("port").unwrap()];
        let base = Load::saturation(64);
        // Nine rounds of two rows, 490 ms each; two checks and a calibration before.
        let one = estimate_s(|load| Depth::Full.rounds_of(load), &[base], &rows);
        assert!((one - (9.0 * 2.0 * 0.49 + 2.0 * 0.4 + 0.8)).abs() < 1e-9, "{one}");
        let step = base.at(Rate::OfMaximum(0.5)).as_step();
        let two = estimate_s(|load| Depth::Full.rounds_of(load), &[base, step], &rows);
        assert!((two - one - 3.0 * 2.0 * 0.49).abs() < 1e-9, "{two}");
        assert_eq!(Depth::Full.budget_s(&[base], &rows), one);
        assert_eq!(Depth::Standard.budget_s(&[base], &rows), 110.0);
        let takes = Takes { offloaded: true, ..Takes::default() };
        let paired = [Load { takes, ..base }];
        assert_eq!(Depth::Standard.budget_s(&paired, &rows), one, "not squeezed into two minutes");
    }
}
