//! A comparison of one kind that was made or planned, and how it is given to whoever asked.

use std::process::ExitCode;
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

use super::common::CommonArgs;
use super::display::width;
use super::output::{Output, OutputArgs, is_standard};
use super::saved::Baseline;
use super::stream::Stream;
use crate::cores::Cores;
use crate::exit::{self, Failure};

/// Seconds for all kinds of comparisons, and for a first look: below that there are not enough rounds.
pub(super) const ALL_STANDARD_S: u64 = 110;
pub(super) const ALL_QUICK_S: u64 = 60;

/// The results of a comparison of any kind.
pub trait Made {
    /// All tables and sentences.
    fn details(&self) -> String;
    /// What became of the claims of another result, each with the kind of its comparison.
    fn judge(&self, claims: &[(String, Claim)]) -> Vec<Judged>;
}

impl<K: Told> Made for Results<K> {
    fn details(&self) -> String {
        report(self, width())
    }

    fn judge(&self, claims: &[(String, Claim)]) -> Vec<Judged> {
        judge(self, claims)
    }
}

/// What a part is made of.
pub enum Content {
    /// A text is all there is.
    Text(String),
    /// Results of one kind.
    One(Box<dyn Made>),
    /// Those of several, each below its heading.
    All(Vec<(&'static str, Part)>),
}

/// A comparison that was made, or planned.
pub struct Part {
    /// The exit code that tells the truth about it.
    pub code: u8,
    /// What a program reads.
    pub document: Value,
    /// What is said before all else.
    pub said: String,
    /// What it is made of.
    pub content: Content,
}

impl Part {
    /// One that was only planned: there is its document, and nothing to print.
    pub fn planned(plan: Value) -> Self {
        Self::of(exit::OK, String::new(), plan)
    }

    /// One whose text is all there is.
    pub fn of(code: u8, text: String, document: Value) -> Self {
        Self { code, document, said: String::new(), content: Content::Text(text) }
    }

    /// One that was made.
    pub fn made<K: Told>(results: Results<K>) -> Self {
        Self {
            code: results.exit_code(),
            document: document(&results),
            said: String::new(),
            content: Content::One(Box::new(results)),
        }
    }

    /// The same behind something that is said first, with more in the document.
    pub fn preceded_by(self, code: u8, said: String, more: Value) -> Self {
        let said = format!("{said}\n{}", self.said);
        Self { code, said, document: with(self.document, more), content: self.content }
    }

    /// The conclusion and the table that decides, in so many lines.
    pub fn screen(&self, lines: usize) -> String {
        let left = match self.said.lines().count() {
            0 => lines,
            said => lines.saturating_sub(said).max(LINES_OF_A_PART),
        };
        let shown = match &self.content {
            Content::Text(text) => text.clone(),
            Content::One(_) => screen(&self.document, width(), left),
            Content::All(parts) => {
                // Between two of them is an empty line.
                let each = (left + 1) / parts.len().max(1) - 1;
                let screens = parts.iter().map(|(_, part)| part.screen(each));
                screens.filter(|screen| !screen.is_empty()).collect::<Vec<_>>().join("\n")
            }
        };
        format!("{}{shown}", self.said)
    }

    /// Everything that a person may read.
    pub fn details(&self) -> String {
        let shown = match &self.content {
            Content::Text(text) => text.clone(),
            Content::One(made) => {
                format!("{}\n{}", screen(&self.document, width(), usize::MAX), made.details())
            }
            Content::All(parts) => {
                let details = parts.iter().map(|(heading, part)| {
                    let line = "=".repeat(heading.chars().count());
                    format!("{heading}\n{line}\n\n{}\n", part.details())
                });
                details.collect()
            }
        };
        format!("{}{shown}", self.said)
    }

    /// What became of the claims of another result, each with the kind of its comparison.
    pub fn judge(&self, claims: &[(String, Claim)]) -> Vec<Judged> {
        match &self.content {
            Content::Text(_) => vec![],
            Content::One(made) => made.judge(claims),
            Content::All(parts) => parts.iter().flat_map(|(_, part)| part.judge(claims)).collect(),
        }
    }
}

/// What a comparison of all kinds asks of each.
#[derive(Debug, Clone)]
pub struct OfAll {
    pub quick: bool,
    /// `None` where all rounds that were asked for are made.
    pub time: Option<Duration>,
    pub server_cpu: Option<Cores>,
    pub generator_cpu: Option<Cores>,
    pub common: CommonArgs,
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
