//! The `weir` command: parse, resolve, call.

#![forbid(unsafe_code)]

/// Says a line on standard error. Where nobody hears it, or the disk is full, it is not worth what else there is to do.
macro_rules! say {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($words)*);
    }};
}

/// The same without an end of the line.
macro_rules! say_on {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let _ = write!(std::io::stderr(), $($words)*);
    }};
}

mod check_device;
mod compare;
mod cores;
mod designs;
mod docs;
mod doctor;
mod exit;
mod explain;
mod flood;
mod interrupts;
mod interval;
mod intervals;
mod iops;
mod keys;
mod load;
mod memory;
mod ranks;
mod report;
mod saved;
mod serve;
mod set;
mod shown;
mod simulate;
mod tune;
mod utc;
mod width;

use std::error::Error as _;
use std::net::{AddrParseError, IpAddr, SocketAddr};
use std::num::{IntErrorKind, ParseIntError};
use std::{io::Write as _, process::ExitCode, sync::LazyLock};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory as _, Parser, Subcommand};

/// Measures the I/O of servers: every design side by side, on this machine.
#[derive(Debug, Parser)]
#[command(name = "weir", version, long_version = LONG_VERSION.as_str())]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// What `--version` says; `-V` says the first line.
static LONG_VERSION: LazyLock<String> =
    LazyLock::new(|| format!("{}\n{}", env!("CARGO_PKG_VERSION"), ranks::ABOUT_MPI));

#[derive(Debug, Subcommand)]
enum Command {
    Compare(Box<compare::CompareArgs>),
    Reproduce(saved::ReproduceArgs),
    Diff(saved::DiffArgs),
    History(saved::HistoryArgs),
    Report(report::ReportArgs),
    Explain(explain::ExplainArgs),
    Simulate(Box<simulate::SimulateArgs>),
    /// Run one design, and report at the end.
    #[command(subcommand)]
    Serve(serve::Serve),
    Set(set::SetArgs),
    Flood(flood::FloodArgs),
    /// Make connections to a server, send messages on them, and verify what comes back.
    #[command(subcommand)]
    Load(load::Load),
    Iops(iops::IopsArgs),
    /// List designs and providers, and whether they can run here.
    Designs(designs::DesignsArgs),
    Doctor(doctor::DoctorArgs),
    Tune(tune::TuneArgs),
    Completions(docs::CompletionsArgs),
    Manual(docs::ManualArgs),
    Schema(docs::SchemaArgs),
    /// What the kernel holds for one server: for `compare --memory`, which starts this.
    #[command(hide = true)]
    ProbeMemory(memory::ProbeArgs),
    /// Whether one design reads rightly: for `compare iops`, which starts this.
    #[command(hide = true)]
    CheckDevice(check_device::CheckArgs),
    /// Speaks MPI for a rank: for `--mpi`, which starts this.
    #[command(hide = true, name = ranks::LINK)]
    MpiLink,
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(error),
    };
    match cli.command {
        Command::Compare(args) => compare::run(*args),
        Command::Reproduce(args) => saved::reproduce(&args),
        Command::Diff(args) => saved::diff(&args),
        Command::History(args) => saved::history(&args),
        Command::Report(args) => report::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Simulate(args) => simulate::run(&args),
        Command::Serve(serve) => serve::run(&serve),
        Command::Set(args) => set::run(&args),
        Command::Flood(args) => flood::run(args),
        Command::Load(load) => load::run(&load),
        Command::Iops(args) => iops::run(&args),
        Command::Designs(args) => designs::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Tune(args) => tune::run(&args),
        Command::Completions(args) => docs::completions(&args, Cli::command()),
        Command::Manual(args) => docs::manual(&args, Cli::command()),
        Command::Schema(args) => docs::schema(&args),
        Command::ProbeMemory(args) => memory::probe(&args),
        Command::CheckDevice(args) => check_device::run(&args),
        Command::MpiLink => ExitCode::from(weir_mpi::link::serve()),
    }
}

/// The command as given; what is no UTF-8 in it is replaced.
fn arguments() -> Vec<String> {
    std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect()
}

/// A command as a shell takes it.
fn shell_words(command: &[String]) -> String {
    let word = |word: &String| {
        let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_=./,:%+@".contains(letter);
        match !word.is_empty() && word.chars().all(plain) {
            true => word.clone(),
            false => format!("'{}'", word.replace('\'', r"'\''")),
        }
    };
    command.iter().map(word).collect::<Vec<_>>().join(" ")
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
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(lost_results(&error)),
        _ => Ok(()),
    }
}

/// A text of a file that somebody else may have written, in which nothing commands the terminal.
fn harmless(text: &str) -> String {
    let shown = |letter: char| match letter.is_control() && letter != '\n' {
        true => char::REPLACEMENT_CHARACTER,
        false => letter,
    };
    text.chars().map(shown).collect()
}

/// Prints a report, whose loss must be told; what could not be printed goes to standard error.
fn print_report(text: &str) -> Result<(), exit::Failure> {
    print_results(text).inspect_err(|_| say_on!("{text}"))
}

fn lost_results(error: &std::io::Error) -> exit::Failure {
    exit::Failure::failed(format!(
        "cannot write the results to standard output: {error}; send them elsewhere"
    ))
}

/// Prints help, version or what is wrong. Whoever asked for JSON gets a document even then: that
/// of the command that was meant.
fn refuse(error: clap::Error) -> ExitCode {
    let error = in_words(with_the_nearest(error));
    let code = u8::try_from(error.exit_code()).unwrap_or(exit::USAGE);
    let command = arguments();
    let asks = |form: fn(&str) -> bool| command.iter().skip(1).any(|word| form(word));
    if code != exit::OK && asks(asks_for_json) {
        print(&format!("{}\n", document_of_refusal(&command, &reason(&error), false)));
    } else if code != exit::OK && has_events(&command) && asks(asks_for_events) {
        print(&format!("{}\n", document_of_refusal(&command, &reason(&error), true)));
    }
    match error.print() {
        // Help and version are what was asked for.
        Err(lost) if code == exit::OK && lost.kind() != std::io::ErrorKind::BrokenPipe => {
            say!("weir: {}", lost_results(&lost).message);
            ExitCode::from(exit::FAILED)
        }
        _ => ExitCode::from(code),
    }
}

/// A refusal of a word that names no subcommand, with the one that was most likely meant: clap finds it where letters are
/// missing or wrong, and not where two have changed places.
fn with_the_nearest(mut error: clap::Error) -> clap::Error {
    let word = match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(word)) if error.kind() == ErrorKind::InvalidSubcommand => word,
        _ => return error,
    };
    if error.get(ContextKind::SuggestedSubcommand).is_some() {
        return error;
    }
    let all = Cli::command();
    let before = arguments().into_iter().skip(1).take_while(|given| given != word);
    let command = before.fold(&all, |at, given| at.find_subcommand(given).unwrap_or(at));
    let names = command.get_subcommands().filter(|command| !command.is_hide_set());
    let nearest = names
        .map(clap::Command::get_name)
        .find(|name| strsim::osa_distance(name, word) == 1)
        .map(str::to_owned);
    if let Some(nearest) = nearest {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(vec![nearest]));
    }
    error
}

/// A refusal of a value that no parser of ours has seen: what the standard library says of it is of no help.
fn in_words(error: clap::Error) -> clap::Error {
    let of = |kind| error.get(kind).map(ToString::to_string).unwrap_or_default();
    let words: Option<String> = error.source().and_then(|source| {
        if source.is::<AddrParseError>() {
            // It does not say of what kind but in its words.
            let of_socket = source.to_string().contains("socket");
            let bare = of(ContextKind::InvalidValue).parse::<IpAddr>();
            Some(match (of_socket, bare) {
                (true, Ok(bare)) => {
                    format!("the port is missing, as in {}", SocketAddr::new(bare, 8080))
                }
                (true, Err(_)) => {
                    "give an address and a port, such as 127.0.0.1:8080 or [::1]:8080, not a name"
                        .into()
                }
                (false, _) => "give an address, such as 127.0.0.1".into(),
            })
        } else if let Some(number) = source.downcast_ref::<ParseIntError>() {
            let words = match number.kind() {
                IntErrorKind::PosOverflow => "the number is too large",
                IntErrorKind::NegOverflow => "the number is too small",
                _ => "give a whole number, in digits alone",
            };
            Some(words.into())
        } else {
            None
        }
    });
    let Some(words) = words else { return error };
    let text = format!(
        "invalid value '{}' for '{}': {words}\n\nFor more information, try '--help'.\n",
        of(ContextKind::InvalidValue),
        of(ContextKind::InvalidArg),
    );
    clap::Error::raw(error.kind(), text)
}

/// `--json`, or `-J` alone or among other letters.
fn asks_for_json(word: &str) -> bool {
    let letters = word.strip_prefix('-').filter(|rest| !rest.starts_with('-'));
    word == "--json" || letters.is_some_and(|letters| letters.contains('J'))
}

/// `--ndjson`, where that has no file.
fn asks_for_events(word: &str) -> bool {
    ["--ndjson", "--json-stream"].contains(&word)
}

/// Whether the last event of the command is its document.
fn has_events(command: &[String]) -> bool {
    let name = command.iter().skip(1).find(|word| !word.starts_with('-')).map(String::as_str);
    matches!(name, Some("serve" | "flood" | "load" | "iops"))
}

/// What is wrong, in one line: the first paragraph of what a person is told.
fn reason(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let lines = text.lines().map(str::trim).take_while(|line| !line.is_empty());
    let line = lines.collect::<Vec<_>>().join(" ");
    line.strip_prefix("error: ").map(str::to_owned).unwrap_or(line)
}

fn document_of_refusal(command: &[String], reason: &str, ndjson: bool) -> String {
    let name = command.iter().skip(1).find(|word| !word.starts_with('-')).map(String::as_str);
    match name {
        Some("compare" | "reproduce") => {
            format!("{:#}", weir_lab::report::document::failure(command, reason, exit::USAGE))
        }
        Some("serve") => {
            let document = serve::failure_document(&exit::Failure::usage(reason));
            if ndjson { shown::event("end", document) } else { document }.to_string()
        }
        Some("flood") => flood::failure(reason, ndjson),
        Some("load") => load::failure(reason, ndjson),
        Some("iops") => iops::failure(reason, ndjson),
        Some("designs") => designs::failure(reason).to_string(),
        _ => serde_json::json!({
            "schema_version": 1,
            "command": command,
            "status": "failed",
            "reason": reason,
        })
        .to_string(),
    }
}
