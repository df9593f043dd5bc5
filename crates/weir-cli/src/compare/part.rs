//! A comparison of one kind that was made or planned, and how it is given to whoever asked.

use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use serde_json::Value;
use weir_lab::child::Interrupt;
use weir_lab::experiment::results::Results;
use weir_lab::report::Told;
use weir_lab::report::conclusion::Claim;
use weir_lab::report::document::{document, failure, with};
use weir_lab::report::screen::{LINES_OF_A_PART, screen};
use weir_lab::report::table::report;
use weir_lab::saved::claims::{Judged, judge};

use super::display::width;
use super::output::{Output, OutputArgs, is_standard};
use super::saved::Baseline;
use super::stream::Stream;
use crate::cores::Cores;
use crate::exit::{self, Failure};

/// Seconds for all kinds of comparisons, and for a first look: below that there are not enough rounds.
pub(super) const ALL_STANDARD_S: u64 = 110;
pub(super) const ALL_QUICK_S: u64 = 60;

/// Says what became of the claims of another result, each with the kind of its comparison.
type Judge = dyn Fn(&[(String, Claim)]) -> Vec<Judged>;

/// A comparison that was made, or planned. Its texts take time to make, so they are made when they are asked for.
pub struct Part {
    /// The exit code that tells the truth about it.
    pub code: u8,
    /// The conclusion and the table that decides, in so many lines.
    pub screen: Box<dyn Fn(usize) -> String>,
    /// Everything that a person may read.
    pub details: Box<dyn Fn() -> String>,
    /// What a program reads.
    pub document: Box<dyn Fn() -> Value>,
    /// What became of the claims of another result, each with the kind of its comparison.
    pub judge: Box<Judge>,
}

impl Part {
    /// One that was only planned: there is its document, and nothing to print.
    pub fn planned(plan: Value) -> Self {
        Self::of(exit::OK, String::new(), plan)
    }

    /// One whose table is all there is.
    pub fn of(code: u8, table: String, document: Value) -> Self {
        let text = table.clone();
        Self {
            code,
            screen: Box::new(move |_| text.clone()),
            details: Box::new(move || table.clone()),
            document: Box::new(move || document.clone()),
            judge: Box::new(|_| vec![]),
        }
    }

    /// One that was made.
    pub fn made<K: Told>(results: Results<K>) -> Self {
        let code = results.exit_code();
        let of_screen = Rc::new(results);
        let (of_details, of_document) = (Rc::clone(&of_screen), Rc::clone(&of_screen));
        let of_claims = Rc::clone(&of_screen);
        Self {
            code,
            screen: Box::new(move |lines| screen(&of_screen, width(), lines)),
            details: Box::new(move || {
                format!(
                    "{}\n{}",
                    screen(&of_details, width(), usize::MAX),
                    report(&of_details, width())
                )
            }),
            document: Box::new(move || document(&of_document)),
            judge: Box::new(move |claims| judge(&of_claims, claims)),
        }
    }

    /// The same behind something that is said first, with more in the document.
    pub fn preceded_by(self, code: u8, said: String, more: Value) -> Self {
        let Self { screen, details, document, judge, .. } = self;
        let of_details = said.clone();
        Self {
            code,
            screen: Box::new(move |lines| {
                let left = lines.saturating_sub(said.lines().count() + 1).max(LINES_OF_A_PART);
                format!("{said}\n{}", screen(left))
            }),
            details: Box::new(move || format!("{of_details}\n{}", details())),
            document: Box::new(move || with(document(), more.clone())),
            judge,
        }
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

/// What a comparison is given besides its options.
#[derive(Clone)]
pub struct Context {
    /// The command as typed.
    pub command: Vec<String>,
    /// Raised by Ctrl-C.
    pub interrupt: Interrupt,
    /// Where what happens is written, if that was asked for.
    pub stream: Option<Stream>,
    /// Whether the whole terminal shows what happens.
    pub live: bool,
}

/// What is run, and where its results go.
pub struct Asked<'a> {
    /// The command's name.
    pub name: &'a str,
    /// What is compared, in a word.
    pub kind: &'a str,
    pub output: &'a OutputArgs,
    pub dry_run: bool,
}

/// Runs a comparison, and gives what came of it.
pub fn run(
    asked: &Asked,
    command: Vec<String>,
    compare: impl FnOnce(&Context) -> Result<Part, Failure>,
) -> ExitCode {
    // Before any file is opened: what cannot be read costs no results of another day.
    let baseline =
        asked.output.baseline.as_deref().map(|path| Baseline::load(path, asked.kind)).transpose();
    let begun = baseline.and_then(|baseline| {
        Ok((baseline, Output::begin(asked.output, asked.kind, asked.dry_run)?))
    });
    let (baseline, output) = match begun {
        Ok(begun) => begun,
        Err(failed) => return refuse(asked, &command, &failed),
    };
    let attempt = || -> Result<Part, Failure> {
        let context = Context {
            command: command.clone(),
            interrupt: super::heed_interrupts()?,
            stream: output.stream(),
            live: asked.output.live,
        };
        let part = compare(&context)?;
        Ok(match baseline {
            Some(baseline) if !asked.dry_run => baseline.against(part),
            _ => part,
        })
    };
    match attempt() {
        Ok(part) => match output.give(&part) {
            Ok(()) => ExitCode::from(part.code),
            Err(failed) => refused(asked, &failed),
        },
        Err(failed) => {
            output.refuse(failed.code, &failure(&command, &failed.message, failed.code));
            refused(asked, &failed)
        }
    }
}

/// Says why nothing was begun; whoever asked for a document gets one.
pub fn refuse(asked: &Asked, command: &[String], failed: &Failure) -> ExitCode {
    if asked.output.json.as_deref().is_some_and(is_standard) {
        crate::print(&format!("{:#}\n", failure(command, &failed.message, failed.code)));
    }
    refused(asked, failed)
}

fn refused(asked: &Asked, failed: &Failure) -> ExitCode {
    say!("{}: {}", asked.name, failed.message);
    ExitCode::from(failed.code)
}
