//! `weir compare --memory`: what the kernel holds for so many outstanding receives.

use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use weir_lab::child::{ChildError, Interrupt};
use weir_lab::experiment::plan::Row;
use weir_lab::udp::kernel_memory;

use crate::compare::part::Part;
use crate::exit::{self, Failure};

/// Options of the process that starts one server.
#[derive(Debug, Args)]
pub struct ProbeArgs {
    /// Design with its options; without one no server is started.
    #[arg(long)]
    design: Option<String>,
}

/// Starts one server and prints what the kernel holds for it.
pub fn probe(args: &ProbeArgs) -> ExitCode {
    match kernel_memory::probe(args.design.as_deref()) {
        Ok(probe) => {
            crate::print(&format!("{}\n", serde_json::json!(probe)));
            ExitCode::from(exit::OK)
        }
        Err(error) => {
            let failure = Failure::from(error);
            crate::print(&format!("{}\n", crate::serve::failure_document(&failure)));
            ExitCode::from(failure.code)
        }
    }
}

/// Measures all rows.
pub fn compare(
    program: &Path,
    interrupt: &Interrupt,
    rows: &[Row],
    command: &[String],
) -> Result<Part, Failure> {
    let tell = |spec: &str| say!("{spec}");
    let survey =
        kernel_memory::survey(program, interrupt, rows, tell).map_err(|error| match error {
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
    Ok(Part::of(code, survey.table(), survey.document(command)))
}
