//! weir-quic: a QUIC server of quinn's perf protocol, whose sockets are a setting.

#![forbid(unsafe_code)]

mod hand_over;
mod load;
mod metrics;
mod perf;
mod serve;
mod sockets;
mod tls;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// A QUIC server for quinn's perf protocol, built on quinn; a flag chooses between the sockets of weir and of quinn-udp
#[derive(Debug, Parser)]
#[command(name = "weir-quic", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve requests of the perf protocol, in which a client says how many bytes it wants, sends some, and gets what
    /// it wants
    Serve(serve::Options),
    /// Send requests to a server of the perf protocol, and report how many were answered, and how fast
    Load(load::Options),
}

fn main() -> ExitCode {
    weir_program::exit_code(match Cli::parse().command {
        Command::Serve(options) => serve::run(&options),
        Command::Load(options) => load::run(&options),
    })
}

/// Starts a runtime of so many threads; one is the calling thread itself.
fn runtime(threads: usize) -> std::io::Result<tokio::runtime::Runtime> {
    match threads {
        1 => tokio::runtime::Builder::new_current_thread().enable_all().build(),
        _ => {
            tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build()
        }
    }
}

/// Keeps this thread, and those that it starts, to a core.
fn keep_to(core: Option<usize>) -> anyhow::Result<()> {
    if let Some(core) = core
        && let Err(error) = weir::affinity::pin_current_thread(core)
    {
        anyhow::bail!(
            "--cpu {core}: {error}; allowed: one of {:?}",
            weir::affinity::allowed_cores()
        );
    }
    Ok(())
}
