//! From a budget of seconds to rounds and durations.

use crate::stats::bootstrap;

/// How much to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// A first look: saturation only, and three rounds, which are too few for intervals.
    Quick,
    /// The table within two minutes: saturation, and one paced load for the latency.
    Standard,
    /// Every load and more rounds; as long as that takes.
    Full,
}

impl Depth {
    /// Seconds from the first check to the table.
    pub fn budget_s(self) -> f64 {
        match self {
            Self::Quick => 30.0,
            Self::Standard => 110.0,
            Self::Full => 2400.0,
        }
    }

    /// Rounds at saturation that are aimed at: fewer make runs longer.
    fn rounds_aimed_at(self) -> u32 {
        match self {
            Self::Quick => 3,
            // Three more than an interval needs: a machine that changes its speed by itself costs a
            // round or two, and from nine on the interval leaves the farthest samples out.
            Self::Standard => bootstrap::FEWEST_SAMPLES as u32 + 3,
            Self::Full => 15,
        }
    }
}

/// Shortest measured part of a run in milliseconds: below it the start of the run, the
/// clock of the samples (20 ms) and one preemption weigh too much.
pub const SHORTEST_RUN_MS: u64 = 120;
/// Longest measured part: more rounds tell more than longer runs.
pub const LONGEST_RUN_MS: u64 = 2000;
/// Fewest rounds: a median of fewer is no better than a single run. Intervals need
/// [`bootstrap::FEWEST_SAMPLES`].
pub const FEWEST_ROUNDS: u32 = 3;
/// Most rounds.
pub const MOST_ROUNDS: u32 = 50;
/// Time before the measured part, in which caches, the scheduler and the queues settle.
pub const WARMUP_MS: u64 = 60;

/// Rounds and run time of one load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    /// How often every row runs.
    pub rounds: u32,
    /// Measured part of a run in milliseconds.
    pub run_ms: u64,
    /// Part before it in milliseconds, that nothing counts.
    pub warmup_ms: u64,
}

impl Schedule {
    /// Milliseconds that `rows` rows take when starting and ending a run costs
    /// `overhead_ms`.
    pub fn total_ms(&self, rows: usize, overhead_ms: u64) -> u64 {
        u64::from(self.rounds) * rows as u64 * (self.run_ms + self.warmup_ms + overhead_ms)
    }
}

/// Cuts `share_s` seconds into rounds for `rows` rows.
///
/// Rounds come first, since each adds a sample and a pair: as many as the depth aims at,
/// fewer if their runs would be shorter than [`SHORTEST_RUN_MS`], more if they would be
/// longer than [`LONGEST_RUN_MS`]. [`FEWEST_ROUNDS`] are planned even where they do not
/// fit; the caller compares [`Schedule::total_ms`] with what there is and says so.
pub fn fit(depth: Depth, share_s: f64, rows: usize, overhead_ms: u64) -> Schedule {
    let per_row_ms = (share_s.max(0.0) * 1000.0) as u64 / rows.max(1) as u64;
    let fixed_ms = overhead_ms + WARMUP_MS;
    let most_rounds = per_row_ms / (fixed_ms + SHORTEST_RUN_MS);
    let fewest_rounds = per_row_ms / (fixed_ms + LONGEST_RUN_MS);
    let aimed = u64::from(depth.rounds_aimed_at());
    let rounds = aimed
        .min(most_rounds)
        .max(fewest_rounds)
        .clamp(u64::from(FEWEST_ROUNDS), u64::from(MOST_ROUNDS));
    let run_ms = (per_row_ms / rounds).saturating_sub(fixed_ms);
    Schedule {
        rounds: rounds as u32,
        run_ms: run_ms.clamp(SHORTEST_RUN_MS, LONGEST_RUN_MS),
        warmup_ms: WARMUP_MS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seventeen_rows_in_a_standard_budget() {
        let schedule = fit(Depth::Standard, 80.0, 17, 250);
        assert_eq!(schedule.rounds, 9);
        assert!(schedule.total_ms(17, 250) <= 80_000, "{schedule:?}");
        assert!(schedule.run_ms > 200, "{schedule:?}");
    }

    #[test]
    fn the_paced_load_of_a_standard_experiment_has_enough_rounds_for_intervals() {
        // 19 rows, starting and ending a run costs 110 ms; calibration and checks are over. Two
        // rounds may be lost to a machine that changes.
        let loads = crate::plan::loads(Depth::Standard, crate::plan::Load::saturation(64));
        for share_s in crate::plan::shares(&loads, Depth::Standard.budget_s() - 8.0) {
            let schedule = fit(Depth::Standard, share_s, 19, 110);
            assert!(schedule.rounds as usize >= bootstrap::FEWEST_SAMPLES + 2, "{schedule:?}");
        }
    }

    #[test]
    fn a_single_row_gets_more_rounds_and_not_endless_runs() {
        let schedule = fit(Depth::Standard, 80.0, 1, 100);
        assert!(schedule.rounds > 6 && schedule.run_ms <= LONGEST_RUN_MS, "{schedule:?}");
    }

    proptest::proptest! {
        #[test]
        fn a_plan_keeps_to_its_share_unless_it_is_at_its_least(
            share_s in 0.0..2000.0f64, rows in 1usize..60, overhead_ms in 0u64..2000,
        ) {
            for depth in [Depth::Quick, Depth::Standard, Depth::Full] {
                let schedule = fit(depth, share_s, rows, overhead_ms);
                let fits = schedule.total_ms(rows, overhead_ms) as f64 <= share_s * 1000.0;
                let least = schedule.rounds == FEWEST_ROUNDS && schedule.run_ms == SHORTEST_RUN_MS;
                proptest::prop_assert!(fits || least, "{schedule:?}");
                proptest::prop_assert!((FEWEST_ROUNDS..=MOST_ROUNDS).contains(&schedule.rounds));
            }
        }
    }
}
