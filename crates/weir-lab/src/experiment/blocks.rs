//! The rounds of one load: blocks, in each of which every row runs once, in random order.

use crate::experiment::plan::{self, Schedule, budget};
use crate::experiment::repeat::MOST_ATTEMPTS;
use crate::stats::bootstrap;
use crate::stats::random::Random;

/// A row whose first runs all failed, so many of them, is given up under that load.
pub const GIVEN_UP_AFTER: u32 = 2;
/// Fewest rounds before the confidence reached may end a load early.
pub const ROUNDS_BEFORE_EARLY_END: u32 = bootstrap::FEWEST_SAMPLES as u32;

/// The user wants to stop.
#[derive(Debug)]
pub struct Interrupted;

/// What is done with the runs of one load.
pub trait Blocks {
    /// Whether the time for all loads is over.
    fn time_is_up(&self) -> bool;

    /// Whether another run would be over in time, where the time is a bound.
    fn has_time(&self) -> bool {
        true
    }

    /// There is no time for more runs, and maybe none of this row was made.
    fn lacks_time(&mut self, row: usize);

    /// Whether more rounds would tell nothing that was asked for.
    fn is_settled(&mut self) -> bool;

    /// Whether a row is given up, or has nothing to run.
    fn is_over(&self, row: usize) -> bool;

    /// Run `number` of `of` is made.
    fn begins(&mut self, row: usize, number: usize, of: usize);

    /// Makes one run of a row. Gives whether it is to be made again, since it was disturbed
    /// ([`crate::experiment::repeat`]).
    ///
    /// # Errors
    /// [`Interrupted`].
    fn run(&mut self, row: usize, block: u32) -> Result<bool, Interrupted>;
}

/// Runs the blocks of a load. Gives how many were made where its time was up before the last one.
///
/// # Errors
/// [`Interrupted`].
pub fn run(
    what: &mut dyn Blocks,
    rows: &[usize],
    schedule: Schedule,
    random: &mut Random,
) -> Result<Option<u32>, Interrupted> {
    let of = schedule.rounds as usize * rows.len();
    let mut number = 0;
    for block in 0..schedule.rounds {
        // Every load has figures, even when that takes longer.
        if block >= budget::FEWEST_ROUNDS && what.time_is_up() {
            rows.iter().for_each(|row| what.lacks_time(*row));
            return Ok(Some(block));
        }
        if block >= ROUNDS_BEFORE_EARLY_END && what.is_settled() {
            break;
        }
        for row in plan::block_order(rows, random) {
            number += 1;
            if what.is_over(row) {
                continue;
            }
            if !what.has_time() {
                rows.iter().for_each(|row| what.lacks_time(*row));
                return Ok(Some(block));
            }
            what.begins(row, number, of);
            for _ in 0..MOST_ATTEMPTS {
                let again = what.run(row, block)?;
                if !again || what.is_over(row) || what.time_is_up() || !what.has_time() {
                    break;
                }
            }
        }
    }
    Ok(None)
}
