//! `weir compare --memory`: what the kernel holds for so many outstanding receives.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use weir_lab::child::ChildError;
use weir_lab::experiment::plan::Row;
use weir_lab::report::document::SCHEMA_VERSION;
use weir_lab::report::number::bytes;
use weir_lab::udp::kernel_memory::{self, KIND, Progress};

use crate::compare::context::Context;
use crate::compare::display::Display;
use crate::compare::part::Part;
use crate::compare::stream::Stream;
use crate::exit::{self, Failure};

/// About so long a line takes.
const TIME_OF_A_LINE: Duration = Duration::from_millis(2500);

/// Options of the process that starts one server.
#[derive(Debug, Args)]
pub struct ProbeArgs {
    /// Design with its options; without one no server is started.
    #[arg(long)]
    design: Option<String>,
}

/// Starts one server and prints what the kernel holds for it.
pub fn probe(args: &ProbeArgs) -> ExitCode {
    crate::serve::print_found(kernel_memory::probe(args.design.as_deref()))
}

/// Measures all rows.
pub fn compare(program: &Path, rows: &[Row], context: &Context) -> Result<Part, Failure> {
    let planned = TIME_OF_A_LINE * kernel_memory::lines(rows).len() as u32;
    let mut display = Display::of_time(planned, context);
    let survey = kernel_memory::survey(program, &context.interrupt, rows, |progress| {
        if let Some(stream) = &context.stream {
            tell(stream, &context.command, &progress);
        }
        match progress {
            Progress::Begin(..) => {}
            Progress::Measuring(row, number, of) => {
                display.change(&format!("server {number} of {of}: {}", row.spec()));
            }
            Progress::Measured(line) => match line.kernel_bytes() {
                Ok(held) => display.figure(&line.row().spec(), held, bytes),
                Err(reason) => display.keep(&format!("{}: {reason}", line.row().spec())),
            },
        }
    });
    display.clear();
    let survey = survey.map_err(|error| match error {
        ChildError::Reported(failure) => Failure::failed(failure.message),
        error => Failure::failed(error),
    })?;
    let code = if survey.has_failures() {
        exit::DATA_ERRORS
    } else if survey.has_figures() {
        exit::OK
    } else {
        exit::UNAVAILABLE
    };
    Ok(Part::of(code, survey.table(), survey.document(&context.command)))
}

/// Writes an event for what happened.
fn tell(stream: &Stream, command: &[String], progress: &Progress) {
    match progress {
        Progress::Begin(machine, lines) => stream.write(&json!({
            "event": "begin",
            "schema_version": SCHEMA_VERSION,
            "kind": KIND,
            "command": command,
            "machine": machine,
            "rows": lines.iter().map(|(row, _)| row.spec()).collect::<Vec<_>>(),
        })),
        Progress::Measuring(..) => {}
        Progress::Measured(line) => {
            let run = line.document();
            let event = match run["status"].as_str() {
                Some("ok") => "run",
                Some("failed") => "failed",
                _ => "left_out",
            };
            stream.write(&json!({
                "event": event,
                "kind": KIND,
                "row": run["spec"],
                "provider": run["provider"],
                "reason": run["reason"],
                "run": run,
            }));
        }
    }
}
