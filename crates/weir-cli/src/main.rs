//! The `weir` command: parse, resolve, call.

mod compare;
mod cores;
mod designs;
mod exit;
mod flood;
mod serve;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Measures the I/O of servers: every design side by side, on this machine.
#[derive(Debug, Parser)]
#[command(name = "weir", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Compare every design that can run here, under the same load.
    Compare(compare::CompareArgs),
    /// Run one design, and report at the end.
    #[command(subcommand)]
    Serve(serve::Serve),
    Flood(flood::FloodArgs),
    /// List designs and providers, and whether they can run here.
    Designs(designs::DesignsArgs),
}

fn main() -> anyhow::Result<ExitCode> {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return Ok(refuse(&error)),
    };
    match cli.command {
        Command::Compare(args) => Ok(compare::run(&args)),
        Command::Serve(serve) => Ok(serve::run(&serve)),
        Command::Flood(args) => flood::run(args),
        Command::Designs(args) => Ok(designs::run(&args)),
    }
}

/// Prints help, version or what is wrong. Whoever asked for JSON gets a document even then.
fn refuse(error: &clap::Error) -> ExitCode {
    let code = error.exit_code();
    let wants_json = std::env::args().any(|word| matches!(word.as_str(), "--json" | "-J"));
    if code != 0 && wants_json {
        let command: Vec<String> = std::env::args().collect();
        let text = error.render().to_string();
        let line = text.lines().next().unwrap_or_default();
        println!("{:#}", weir_lab::report::json::failure(&command, line));
    }
    // Fails only if nobody reads it.
    let _ = error.print();
    ExitCode::from(u8::try_from(code).unwrap_or(exit::USAGE))
}
