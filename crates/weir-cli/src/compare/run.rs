//! Running a comparison: what it is given, and how its results reach whoever asked.

use std::process::ExitCode;
use std::sync::Arc;

use weir_lab::report::document::failure;

use super::context::Context;
use super::hosts::AtRoot;
use super::output::{Output, OutputArgs};
use super::part::Part;
use super::saved::Baseline;
use super::stream::is_standard;
use crate::exit::{FAILED, Failure, INTERRUPTED};

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
    root: Option<Arc<AtRoot>>,
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
        let interrupt = match &root {
            Some(root) => root.interrupt(),
            None => super::heed_interrupts()?,
        };
        let context = Context {
            command: command.clone(),
            interrupt: interrupt.clone(),
            stream: output.stream(),
            live: asked.output.live,
            root: root.clone(),
        };
        // Over hosts a rank that is lost interrupts, too.
        let by_hand = || root.is_none() && interrupt.is_raised();
        let part = compare(&context).map_err(|failed| match failed.code {
            FAILED if by_hand() => Failure { code: INTERRUPTED, ..failed },
            _ => failed,
        })?;
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
