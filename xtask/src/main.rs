//! Chores of the repository: `cargo run -p xtask -- help`.

mod book;

use std::process::ExitCode;

use clap::Parser;

/// Chores of the repository.
#[derive(Parser)]
#[command(name = "xtask")]
enum Chore {
    /// Check the book: its links, its summary, and that each design has a chapter with its options.
    Book,
}

fn main() -> anyhow::Result<ExitCode> {
    match Chore::parse() {
        Chore::Book => book::check(),
    }
}
