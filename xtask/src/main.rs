//! Chores of the repository: `cargo run -p xtask -- help`.

mod licences;

use std::process::ExitCode;

use clap::Parser;

/// Chores of the repository.
#[derive(Parser)]
#[command(name = "xtask")]
enum Chore {
    /// Check the licence of every dependency against the list in xtask/src/licences.rs.
    Licences,
}

fn main() -> anyhow::Result<ExitCode> {
    match Chore::parse() {
        Chore::Licences => licences::check_workspace(),
    }
}
