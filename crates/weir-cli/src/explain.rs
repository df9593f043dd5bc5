//! `weir explain`: what a column means.

use std::process::ExitCode;

use clap::Args;
use weir_lab::report::explain::{Meaning, meanings};

use crate::compare::display::width;
use crate::exit;

/// Say what a column of a comparison means.
///
/// Without a name all columns are listed. A name is a heading of a table, or a name in the JSON document, or a part of
/// one.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// The column: "× best", batch, cpu_ns_per_datagram.
    column: Vec<String>,
}

/// Runs `weir explain`.
pub fn run(args: &ExplainArgs) -> ExitCode {
    let words = args.column.join(" ");
    let mut found = meanings();
    if !args.column.is_empty() {
        found.retain(|meaning| meaning.is_meant_by(&words));
    }
    if found.is_empty() {
        say!("weir explain: there is no column {words:?}; `weir explain` lists them all");
        return ExitCode::from(exit::USAGE);
    }
    let text: String = found.iter().map(|meaning| explained(meaning, width())).collect();
    match crate::print_report(&text) {
        Ok(()) => ExitCode::from(exit::OK),
        Err(failed) => {
            say!("weir explain: {}", failed.message);
            ExitCode::from(failed.code)
        }
    }
}

fn explained(meaning: &Meaning, width: usize) -> String {
    let of = if meaning.kind.is_empty() { "all" } else { meaning.kind };
    let name = match (meaning.name, meaning.unit) {
        ("", _) => String::new(),
        (name, "") => format!(" [{name}]"),
        (name, unit) => format!(" [{name}, {unit}]"),
    };
    let head = format!("{of}: {}{name}", meaning.heading);
    let options =
        textwrap::Options::new(width.min(100)).initial_indent("    ").subsequent_indent("    ");
    format!("{head}\n{}\n", textwrap::fill(&meaning.about, options))
}
