//! The `weir` command: parse, resolve, call.

mod flood;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Measures the I/O of servers.
#[derive(Debug, Parser)]
#[command(name = "weir", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Flood(flood::FloodArgs),
}

fn main() -> anyhow::Result<ExitCode> {
    match Cli::parse().command {
        Command::Flood(args) => flood::run(args),
    }
}
