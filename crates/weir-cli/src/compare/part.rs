//! What a comparison of one kind gives, and how it is given to whoever asked.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::Value;
use weir_lab::child::Interrupt;
use weir_lab::report::json::failure;

use crate::cores::Cores;
use crate::exit::Failure;

/// A comparison that was made, or planned.
pub struct Part {
    /// The exit code that tells the truth about it.
    pub code: u8,
    /// What a person reads. To make it takes time, so it is made when it is asked for.
    pub text: Box<dyn Fn() -> String>,
    /// What a program reads.
    pub document: Box<dyn Fn() -> Value>,
}

/// Where the document goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Document<'a> {
    /// There is none.
    Nowhere,
    /// To standard output, and no text.
    StandardOutput,
    /// Into a file, besides the text.
    File(&'a PathBuf),
}

impl<'a> Document<'a> {
    /// As it was asked for: `-` is standard output.
    pub fn of(asked: &'a Option<PathBuf>) -> Self {
        match asked {
            None => Document::Nowhere,
            Some(path) if path.as_os_str() == "-" => Document::StandardOutput,
            Some(path) => Document::File(path),
        }
    }
}

/// What a comparison of all kinds asks of each.
#[derive(Debug, Clone)]
pub struct OfAll {
    pub quick: bool,
    pub time: Duration,
    pub confidence: f64,
    pub seed: u64,
    pub server_cpu: Option<Cores>,
    pub generator_cpu: Option<Cores>,
    pub verbose: bool,
    pub dry_run: bool,
}

/// Runs a comparison of one kind, and gives what came of it. `name` is that of the command.
pub fn run(
    name: &str,
    document: Document,
    compare: impl FnOnce(&[String], Interrupt) -> Result<Part, Failure>,
) -> ExitCode {
    let command = crate::arguments();
    let given = super::heed_interrupts()
        .and_then(|interrupt| compare(&command, interrupt))
        .and_then(|part| give(&part, document).map(|()| part.code));
    given.map(ExitCode::from).unwrap_or_else(|failed| refuse(name, &command, document, &failed))
}

/// Says why there is nothing.
pub fn refuse(name: &str, command: &[String], document: Document, failed: &Failure) -> ExitCode {
    if document == Document::StandardOutput {
        let document = failure(command, &failed.message, failed.code);
        crate::print(&format!("{document:#}\n"));
    }
    eprintln!("{name}: {}", failed.message);
    ExitCode::from(failed.code)
}

/// Gives the document where it was asked for, and else, or besides, the text.
fn give(part: &Part, document: Document) -> Result<(), Failure> {
    let printed = match document {
        Document::Nowhere => crate::print_results(&(part.text)()),
        Document::StandardOutput => crate::print_results(&format!("{:#}\n", (part.document)())),
        Document::File(path) => {
            let written = std::fs::write(path, format!("{:#}\n", (part.document)()));
            crate::print_results(&(part.text)()).and(written.map_err(|error| {
                Failure::failed(format!("cannot write the document to {}: {error}", path.display()))
            }))
        }
    };
    if printed.is_err() {
        // What took minutes to measure is not lost with it.
        eprint!("{}", (part.text)());
    }
    printed
}
