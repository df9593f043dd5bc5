//! `weir tune`: sets what makes results of this machine steadier, and puts it back.

mod journal;

use std::path::Path;
use std::process::{Command, ExitCode};

use clap::Args;
use weir::machine::{self, Machine, Setting};
use weir::process::{pass_signals_on, pass_signals_to};

use crate::exit::{self, Failure};
use journal::{Journal, Outcome};

/// Apply settings that make results steadier, and restore the old ones.
///
/// Without options it only prints what it would set. With --apply it sets it, as root, and the settings stay until
/// --undo or the next start of the machine; with a command after "--" they stay while it runs. What was set before is
/// written down first, so --undo puts it back even if weir was killed. Signals that ask weir to end (SIGTERM, SIGHUP,
/// SIGINT) are passed on to the command, unless a terminal sent them to both, and weir waits for it to end.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct TuneArgs {
    /// Set it, until --undo.
    #[arg(long, conflicts_with = "undo")]
    apply: bool,

    /// Put back what --apply has set, or what a killed `weir tune -- COMMAND` has left.
    #[arg(long)]
    undo: bool,

    /// Run this command with the settings, and put them back when it ends; the exit code is the command's.
    #[arg(last = true, conflicts_with_all = ["apply", "undo"])]
    command: Vec<std::ffi::OsString>,
}

/// Where what was set before is written down. It goes when the machine starts anew, as the settings do.
const JOURNAL: &str = "/run/weir-tune.json";

/// Runs `weir tune`.
pub fn run(args: &TuneArgs) -> ExitCode {
    match tune(args) {
        Ok(code) => code,
        Err(failure) => {
            say!("weir tune: {}", failure.message);
            ExitCode::from(failure.code)
        }
    }
}

fn tune(args: &TuneArgs) -> Result<ExitCode, Failure> {
    let journal = Journal::at(Path::new(JOURNAL));
    if args.undo {
        return undo(&journal, None).map(ExitCode::from);
    }
    let settings = machine::settings(&Machine::describe());
    if !args.apply && args.command.is_empty() {
        return print(&settings).map(|()| ExitCode::from(exit::OK));
    }
    journal.check()?;
    for setting in &settings {
        say!("{}", line(setting));
    }
    let owner = format!("{} {:?}", std::process::id(), std::time::SystemTime::now());
    if !args.command.is_empty() {
        // What asks weir to end is for the command; what is left here is to wait for its end and to put everything back.
        ctrlc::set_handler(|| {}).map_err(Failure::failed)?;
        pass_signals_on().map_err(Failure::failed)?;
    }
    if !settings.is_empty() {
        journal.apply(&settings, &owner)?;
    }
    let Some((program, arguments)) = args.command.split_first() else {
        match settings.is_empty() {
            true => {
                say!("Nothing to set: every setting already has the value that steadies results.")
            }
            false => say!("Set. `weir tune --undo` puts back what was before."),
        }
        return Ok(ExitCode::from(exit::OK));
    };
    let ended = Command::new(program).args(arguments).spawn().and_then(|mut child| {
        pass_signals_to(Some(child.id()));
        let ended = child.wait();
        pass_signals_to(None);
        ended
    });
    let restored = match settings.is_empty() {
        true => Ok(exit::OK),
        false => undo(&journal, Some(&owner)),
    };
    let restored = restored.unwrap_or_else(|failure| {
        say!("weir tune: {}", failure.message);
        failure.code
    });
    let ended = ended.map_err(|error| {
        Failure::failed(format!("cannot run {}: {error}", program.to_string_lossy()))
    })?;
    Ok(match ended.code().and_then(|code| u8::try_from(code).ok()) {
        Some(exit::OK) => ExitCode::from(restored),
        Some(code) => ExitCode::from(code),
        None => ExitCode::from(exit::FAILED), // a signal ended it
    })
}

/// Answers the exit code.
fn undo(journal: &Journal, owner: Option<&str>) -> Result<u8, Failure> {
    let Some(restored) = journal.undo(owner)? else {
        say!("Nothing to put back.");
        return Ok(exit::OK);
    };
    let mut code = exit::OK;
    for (path, outcome) in restored {
        match outcome {
            Outcome::Back(value) => say!("{path}: back to {value}"),
            Outcome::Foreign => {
                say!("{path}: something else has changed it meanwhile; left as it is")
            }
            Outcome::Gone => say!("{path}: no longer exists"),
            Outcome::Failed(error) => {
                say!("{path}: could not be put back: {error}; try again with `weir tune --undo`");
                code = exit::FAILED;
            }
        }
    }
    Ok(code)
}

fn print(settings: &[Setting]) -> Result<(), Failure> {
    let mut text = String::new();
    for setting in settings {
        text.push_str(&line(setting));
        text.push('\n');
    }
    text.push_str(match settings {
        [] => "Nothing to set: every setting already has the value that steadies results.\n",
        _ => {
            "Nothing was set. `weir tune --apply`, as root, sets this until `weir tune --undo`;\n\
              `weir tune -- COMMAND` sets it while a command runs.\n"
        }
    });
    crate::print_results(&text)
}

fn line(setting: &Setting) -> String {
    let Setting { path, before, after, why, .. } = setting;
    format!("{path}: {before} -> {after}  ({why})")
}
