//! The exit codes of the `weir` command. They stand here, for a comparison both ends with one
//! and reads those of its children.

/// Success.
pub const OK: u8 = 0;
/// The run failed.
pub const FAILED: u8 = 1;
/// Wrong usage.
pub const USAGE: u8 = 2;
/// The run is complete, and its data are wrong or a part of it is invalid.
pub const DATA_ERRORS: u8 = 3;
/// A figure is worse than a baseline's, or a claim does not hold.
pub const REGRESSION: u8 = 4;
/// Nothing could run here.
pub const UNAVAILABLE: u8 = 5;
/// Somebody ended it by Ctrl-C before it was done, and it has reported what there was: 128 and the number of SIGINT, as a
/// shell has it of a program that the signal killed.
pub const INTERRUPTED: u8 = 130;
