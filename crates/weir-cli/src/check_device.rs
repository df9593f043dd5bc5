//! The check of one design for devices, in a process of its own.

use std::process::ExitCode;

use clap::Args;
use weir::device::{AnyDesign, Direction};
use weir_lab::device::check;

/// Options of the process that checks one design.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Design with its options.
    #[arg(long)]
    design: String,

    /// Let it write to the null device, too.
    #[arg(long)]
    write: bool,
}

/// Lets it read a file of known content, and prints what was seen.
pub fn run(args: &CheckArgs) -> ExitCode {
    let direction = if args.write { Direction::Write } else { Direction::Read };
    let checked = AnyDesign::parse(&args.design).and_then(|design| check::check(design, direction));
    crate::serve::print_found(checked)
}
