//! From a budget of seconds to rounds and durations.

use crate::report::words::{list, shortened};

/// Seconds of a first look, and of the table within two minutes, of UDP and of TCP.
pub const QUICK_S: f64 = 30.0;
/// See [`QUICK_S`].
pub const STANDARD_S: f64 = 110.0;

/// Shortest measured part of a run in milliseconds: below it the start of the run, the
/// clock of the samples (20 ms) and one preemption weigh too much.
pub const SHORTEST_RUN_MS: u64 = 120;
/// Longest measured part: more rounds tell more than longer runs.
pub const LONGEST_RUN_MS: u64 = 2000;
/// Fewest rounds: a median of fewer is no better than a single run. Intervals need
/// [`FEWEST_SAMPLES`](crate::stats::bootstrap::FEWEST_SAMPLES).
pub const FEWEST_ROUNDS: u32 = 3;
/// Most rounds.
pub const MOST_ROUNDS: u32 = 50;
/// Time before the measured part, in which caches, the scheduler and the queues settle.
pub const WARMUP_MS: u64 = 60;

/// Length of a run in milliseconds where the time follows from what is asked for.
pub const PLANNED_RUN_MS: u64 = 300;

/// How much to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// A first look: three rounds, which are too few for intervals.
    Quick,
    /// The table within a minute or two.
    Standard,
    /// Everything; as long as that takes.
    Full,
}

/// How an experiment is run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// How much to measure.
    pub depth: Depth,
    /// Rounds of each load, if they were asked for.
    pub rounds: Option<u32>,
    /// Seconds it may take in all; `None` for what the rounds take that were asked for, else for the depth's own.
    pub budget_s: Option<f64>,
    /// Whether nothing may go on beyond those seconds, since they were asked for.
    pub is_bound: bool,
}

impl Settings {
    /// Only what the depth has by itself.
    pub fn new(depth: Depth) -> Self {
        Self { depth, rounds: None, budget_s: None, is_bound: false }
    }

    /// The same within a time that was asked for, if one was.
    pub fn within(self, seconds: Option<f64>) -> Self {
        Self { budget_s: seconds, is_bound: seconds.is_some(), ..self }
    }

    /// Whether a load may end before its rounds are through, once it is decided: a whole study makes all of them, since
    /// more rounds find smaller differences.
    pub fn ends_early(&self) -> bool {
        self.rounds.is_none() && self.depth != Depth::Full
    }

    /// The time that an experiment has with so many seconds.
    pub fn time(&self, seconds: f64) -> Time {
        Time { seconds, is_bound: self.is_bound, has_rounds: self.rounds.is_some() }
    }
}

/// The time that an experiment has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Time {
    /// Seconds.
    pub seconds: f64,
    /// Whether nothing may go on beyond it, since it was asked for; else it is what the plan takes, and every
    /// load has figures even when that takes longer.
    pub is_bound: bool,
    /// Whether all rounds are made however long they take, since their number was asked for.
    pub has_rounds: bool,
}

impl Time {
    /// Whether no more rounds are begun.
    pub fn is_up(&self, elapsed_s: f64) -> bool {
        (self.is_bound || !self.has_rounds) && elapsed_s > self.seconds
    }

    /// What is said of an experiment that took far longer than it was to.
    pub fn exceeded(&self, took_s: f64) -> Option<String> {
        self.is_up(took_s / 1.1).then(|| {
            format!(
                "it took {took_s:.0} s instead of {:.0}: compare fewer designs, or give it more time",
                self.seconds
            )
        })
    }

    /// Whether what takes so many milliseconds fits in when so many seconds are over.
    pub fn has_room(&self, elapsed_s: f64, takes_ms: f64) -> bool {
        !self.is_bound || elapsed_s + takes_ms / 1000.0 <= self.seconds
    }

    /// What is said of rows for whose check there was no time.
    pub fn unchecked(&self, rows: &[String], of: usize) -> String {
        format!(
            "not even the checks of the {of} rows fit in the {} s requested; not checked: {}; give it more \
             time (-t), or compare fewer designs (--design)",
            seconds(self.seconds),
            list(&shortened(rows.to_vec()))
        )
    }

    /// Why there are no figures, where there was no time for a run.
    pub fn without_a_run(&self) -> String {
        format!(
            "the checks left no time for a run within the {} s requested; give it more time (-t), or \
             compare fewer designs (--design)",
            seconds(self.seconds)
        )
    }
}

/// Seconds to a tenth: those of a kind of comparison are a part of all, and no round number.
fn seconds(seconds: f64) -> f64 {
    (seconds * 10.0).round() / 10.0
}

/// Why there are no figures, where no row can run or passed its check.
pub const NONE_CAN_BE_MEASURED: &str =
    "none of the designs can be measured here; their rows say why";

/// Why a row has no figures for whose check there was no time.
pub const NOT_CHECKED: &str = "there was no time for its check (-t)";
/// Why a row has no figures for whose first run there was no time.
pub const NO_TIME: &str = "there was no time for a run of it (-t)";

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
/// Rounds come first, since each adds a sample and a pair: as many as are aimed at,
/// fewer if their runs would be shorter than [`SHORTEST_RUN_MS`], more if they would be
/// longer than [`LONGEST_RUN_MS`]. [`FEWEST_ROUNDS`] are planned even where they do not
/// fit; the caller compares [`Schedule::total_ms`] with what there is and says so.
pub fn fit(aimed: u32, share_s: f64, rows: usize, overhead_ms: u64) -> Schedule {
    let per_row_ms = (share_s.max(0.0) * 1000.0) as u64 / rows.max(1) as u64;
    let fixed_ms = overhead_ms + WARMUP_MS;
    let most_rounds = per_row_ms / (fixed_ms + SHORTEST_RUN_MS);
    let fewest_rounds = per_row_ms / (fixed_ms + LONGEST_RUN_MS);
    let rounds = u64::from(aimed)
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

/// The same where so many rounds may have been asked for, which are kept.
pub fn fit_asked(
    asked: Option<u32>,
    aimed: u32,
    share_s: f64,
    rows: usize,
    overhead_ms: u64,
) -> Schedule {
    let schedule = fit(asked.unwrap_or(aimed), share_s, rows, overhead_ms);
    let Some(rounds) = asked else { return schedule };
    let per_run_ms = (share_s.max(0.0) * 1000.0) as u64 / u64::from(rounds) / rows.max(1) as u64;
    let run_ms = per_run_ms.saturating_sub(overhead_ms + WARMUP_MS);
    Schedule { rounds, run_ms: run_ms.clamp(SHORTEST_RUN_MS, LONGEST_RUN_MS), ..schedule }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds that a table within two minutes aims at.
    const NINE: u32 = 9;

    #[test]
    fn seventeen_rows_in_a_standard_budget() {
        let schedule = fit(NINE, 80.0, 17, 250);
        assert_eq!(schedule.rounds, 9);
        assert!(schedule.total_ms(17, 250) <= 80_000, "{schedule:?}");
        assert!(schedule.run_ms > 200, "{schedule:?}");
    }

    #[test]
    fn a_single_row_gets_more_rounds_and_not_endless_runs() {
        let schedule = fit(NINE, 80.0, 1, 100);
        assert!(schedule.rounds > 6 && schedule.run_ms <= LONGEST_RUN_MS, "{schedule:?}");
    }

    proptest::proptest! {
        #[test]
        fn a_plan_keeps_to_its_share_unless_it_is_at_its_least(
            share_s in 0.0..2000.0f64, rows in 1usize..60, overhead_ms in 0u64..2000, aimed in 3u32..20,
        ) {
            let schedule = fit(aimed, share_s, rows, overhead_ms);
            let fits = schedule.total_ms(rows, overhead_ms) as f64 <= share_s * 1000.0;
            let least = schedule.rounds == FEWEST_ROUNDS && schedule.run_ms == SHORTEST_RUN_MS;
            proptest::prop_assert!(fits || least, "{schedule:?}");
            proptest::prop_assert!((FEWEST_ROUNDS..=MOST_ROUNDS).contains(&schedule.rounds));
        }
    }
}
