//! The `weir` command: parse, resolve, call.

mod compare;
mod cores;
mod designs;
mod exit;
mod flood;
mod serve;

use std::{io::Write as _, process::ExitCode};

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

/// The command as given; what is no UTF-8 in it is replaced.
fn arguments() -> Vec<String> {
    std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect()
}

/// Prints to standard output. Fails only if nobody reads it, or the disk is full: then there
/// is nobody to tell.
fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Prints results, whose loss must be told. A reader that has gone, as `head` does, had enough.
fn print_results(text: &str) -> Result<(), exit::Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(exit::Failure::failed(
            format!("cannot write the results to standard output: {error}; send it elsewhere"),
        )),
        _ => Ok(()),
    }
}

/// Prints help, version or what is wrong. Whoever asked for JSON gets a document even then.
fn refuse(error: &clap::Error) -> ExitCode {
    let code = error.exit_code();
    let command = arguments();
    let wants_json = command.iter().any(|word| matches!(word.as_str(), "--json" | "-J"));
    if code != 0 && wants_json {
        let text = error.render().to_string();
        let line = text.lines().next().unwrap_or_default();
        let failure = weir_lab::report::json::failure(&command, line);
        // The control of a child reads line by line.
        let whole = command.get(1).is_some_and(|word| word == "serve");
        print(&if whole { format!("{failure}\n") } else { format!("{failure:#}\n") });
    }
    // Fails only if nobody reads it.
    let _ = error.print();
    ExitCode::from(u8::try_from(code).unwrap_or(exit::USAGE))
}
