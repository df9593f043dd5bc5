//! What a comparison of one kind gives, and how it is given to whoever asked.

use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use serde_json::Value;
use weir_lab::child::Interrupt;
use weir_lab::experiment::results::Results;
use weir_lab::report::Told;
use weir_lab::report::document::{document, failure};
use weir_lab::report::table::report;

use super::display::width;
use crate::cores::Cores;
use crate::exit::{self, Failure};

/// Seconds for all kinds of comparisons, and for a first look: below that there are not enough rounds.
pub(super) const ALL_STANDARD_S: u64 = 110;
pub(super) const ALL_QUICK_S: u64 = 60;

/// A comparison that was made, or planned.
pub struct Part {
    /// The exit code that tells the truth about it.
    pub code: u8,
    /// What a person reads. To make it takes time, so it is made when it is asked for.
    pub text: Box<dyn Fn() -> String>,
    /// What a program reads.
    pub document: Box<dyn Fn() -> Value>,
}

impl Part {
    /// One that was only planned: there is its document, and nothing to print.
    pub fn planned(plan: Value) -> Self {
        let (text, document) = (Box::new(String::new), Box::new(move || plan.clone()));
        Self { code: exit::OK, text, document }
    }

    /// One that was made.
    pub fn made<K: Told>(results: Results<K>) -> Self {
        let of_text = Rc::new(results);
        let of_document = Rc::clone(&of_text);
        Self {
            code: of_text.exit_code(),
            text: Box::new(move || report(&of_text, width())),
            document: Box::new(move || document(&of_document)),
        }
    }
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

    /// Makes its file, if it has one. What it held stays until there is something to be written.
    fn begin(&self) -> Result<(), Failure> {
        let Document::File(path) = self else { return Ok(()) };
        let opened = OpenOptions::new().write(true).create(true).truncate(false).open(path);
        opened.map(drop).map_err(|error| not_written(path, &error))
    }
}

/// What a comparison of all kinds asks of each.
#[derive(Debug, Clone)]
pub struct OfAll {
    pub quick: bool,
    pub rounds: Option<u32>,
    /// `None` where all rounds that were asked for are made.
    pub time: Option<Duration>,
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
    // A file that cannot be written is found before minutes are spent on what belongs into it.
    if let Err(failed) = document.begin() {
        return refuse(name, &command, Document::Nowhere, &failed);
    }
    let given = super::heed_interrupts()
        .and_then(|interrupt| compare(&command, interrupt))
        .and_then(|part| give(&part, document).map(|()| part.code));
    given.map(ExitCode::from).unwrap_or_else(|failed| refuse(name, &command, document, &failed))
}

/// Says why there is nothing.
pub fn refuse(name: &str, command: &[String], document: Document, failed: &Failure) -> ExitCode {
    let of_failure = || format!("{:#}\n", failure(command, &failed.message, failed.code));
    match document {
        Document::Nowhere => {}
        Document::StandardOutput => crate::print(&of_failure()),
        Document::File(path) => {
            if let Err(more) = write(path, &of_failure()) {
                say!("{name}: {}", more.message);
            }
        }
    }
    say!("{name}: {}", failed.message);
    ExitCode::from(failed.code)
}

/// Writes the document into its file, in the place of what is there.
fn write(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|error| not_written(path, &error))
}

fn not_written(path: &Path, error: &io::Error) -> Failure {
    Failure::failed(format!("cannot write the document to {}: {error}", path.display()))
}

/// Gives the document where it was asked for, and else, or besides, the text.
fn give(part: &Part, document: Document) -> Result<(), Failure> {
    let printed = match document {
        Document::Nowhere => crate::print_results(&(part.text)()),
        Document::StandardOutput => crate::print_results(&format!("{:#}\n", (part.document)())),
        Document::File(path) => {
            let written = write(path, &format!("{:#}\n", (part.document)()));
            crate::print_results(&(part.text)()).and(written)
        }
    };
    if printed.is_err() {
        // What took minutes to measure is not lost with it.
        say_on!("{}", (part.text)());
    }
    printed
}
