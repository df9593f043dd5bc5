//! The exit codes of the `weir` command. They stand here, for a comparison both ends with one
//! and reads those of its children.

use crate::experiment::plan::Row;

/// Success.
pub const OK: u8 = 0;
/// The run failed.
pub const FAILED: u8 = 1;
/// Wrong usage.
pub const USAGE: u8 = 2;
/// The run is complete, and its data are wrong or a part of it is invalid.
pub const DATA_ERRORS: u8 = 3;
/// Nothing could run here.
pub const UNAVAILABLE: u8 = 5;

/// The exit code that tells the truth about an experiment with these rows: whether it has figures and was not
/// interrupted, and whether none of its checks and runs failed or were wrong.
pub(crate) fn of_experiment(rows: &[Row], complete: bool, valid: bool) -> u8 {
    let none_runs_here = !rows.is_empty() && rows.iter().all(|row| row.unavailable.is_some());
    match (none_runs_here, complete, valid) {
        (true, ..) => UNAVAILABLE,
        (false, false, _) => FAILED,
        (false, true, false) => DATA_ERRORS,
        (false, true, true) => OK,
    }
}
