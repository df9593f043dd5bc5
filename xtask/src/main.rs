//! Chores of the repository: `cargo run -p xtask -- help`.

mod book;
mod licences;

use std::process::ExitCode;

use clap::Parser;

/// Chores of the repository.
#[derive(Parser)]
#[command(name = "xtask")]
enum Chore {
    /// Check the licence of every dependency against the list in xtask/src/licences.rs.
    Licences,
    /// Check the book: its links, its summary, and that each design has a chapter with its options.
    Book,
}

fn main() -> anyhow::Result<ExitCode> {
    match Chore::parse() {
        Chore::Licences => licences::check_workspace(),
        Chore::Book => book::check(),
    }
}
