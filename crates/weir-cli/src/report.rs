//! `weir report`: a saved result as a page.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use clap::builder::{PathBufValueParser, TypedValueParser as _};
use weir_lab::performance::has_any;
use weir_lab::report::html;
use weir_lab::saved::{DOCUMENT, Saved};

use crate::compare::output::{REPORT, log_as, parse_report, report_as, write, write_all};
use crate::compare::stream::is_standard;
use crate::exit::{self, Failure};
use crate::serve::performance::parse_file;

/// Write the report of a saved result: one HTML file with all tables and pictures, or CSV, or Markdown.
///
/// The HTML file opens from disk, needs no network, and holds the result itself. Exit codes: 0 success; 1 it cannot be written;
/// 2 the document cannot be read, or `weir compare` did not write it.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// A document that `weir compare` wrote, its folder, or a report, which holds its document.
    file: PathBuf,

    /// Where the report is written, as HTML, CSV or Markdown by the ending of the name: .html, .csv or .md; - is
    /// standard output, as HTML [default: beside the document: report.html in a folder of results, x.html for x.json].
    #[arg(short, long, value_name = "FILE", value_parser = PathBufValueParser::new().try_map(parse_output))]
    output: Option<PathBuf>,

    /// Write the performance log of the runs to this file instead: as CSV where the name ends in .csv, else (.ndjson,
    /// .jsonl, .json) a JSON object on each line.
    #[arg(
        long, value_name = "FILE", conflicts_with = "output",
        value_parser = PathBufValueParser::new().try_map(parse_file)
    )]
    performance_log: Option<PathBuf>,

    /// Write each picture of lines or points into this folder instead, as an SVG file.
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["output", "performance_log"])]
    plots: Option<PathBuf>,
}

/// Runs `weir report`.
pub fn run(args: &ReportArgs) -> ExitCode {
    match attempt(args) {
        Ok(()) => ExitCode::from(exit::OK),
        Err(failed) => {
            say!("weir report: {}", failed.message);
            ExitCode::from(failed.code)
        }
    }
}

fn attempt(args: &ReportArgs) -> Result<(), Failure> {
    let saved = Saved::open(&args.file).map_err(Failure::usage)?;
    if let Some(path) = &args.performance_log {
        if !has_any(&saved.document) {
            return Err(Failure::usage(format!(
                "{} has no performance log: it was made without one, or is a report, which leaves it out; result.json in \
                 the folder of results has it",
                saved.path.display()
            )));
        }
        write(path, &log_as(path, &saved.document))?;
        return crate::print_report(&format!("performance log: {}\n", path.display()));
    }
    if let Some(folder) = &args.plots {
        let files = html::files(&saved.document);
        if files.is_empty() {
            return Err(Failure::usage(format!(
                "{} has no figures for a picture of lines: a paced load with two rows or more has some, and so have \
                 several loads and sweeps",
                saved.path.display()
            )));
        }
        write_all(folder, &files)?;
        return crate::print_report(&format!(
            "pictures: {} in {}\n",
            files.len(),
            folder.display()
        ));
    }
    let path = args.output.clone().unwrap_or_else(|| beside(&saved.path));
    if args.output.is_none() && path == saved.path {
        return Err(Failure::usage(format!(
            "{} is a report already; say with -o where another goes",
            path.display()
        )));
    }
    let report = report_as(&path, &saved.document);
    if is_standard(&path) {
        return crate::print_report(&report);
    }
    write(&path, &report)?;
    crate::print_report(&format!("report: {}\n", path.display()))
}

fn parse_output(path: PathBuf) -> Result<PathBuf, String> {
    if is_standard(&path) { Ok(path) } else { parse_report(path) }
}

/// Where the report of a document stands, if nobody says another place.
fn beside(document: &Path) -> PathBuf {
    match document.file_name().is_some_and(|name| name == DOCUMENT) {
        true => document.with_file_name(REPORT),
        false => document.with_extension("html"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_stands_beside_its_document() {
        assert_eq!(beside(Path::new("results/x/result.json")), Path::new("results/x/report.html"));
        assert_eq!(beside(Path::new("all.json")), Path::new("all.html"));
    }
}
