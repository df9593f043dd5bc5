//! `weir reproduce`, `weir diff` and `weir history`: what becomes of saved results.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser as _};
use serde_json::{Value, json};
use weir_lab::report::layout::{chars, figures, table_of_width};
use weir_lab::saved::Saved;
use weir_lab::saved::diff::Diff;

use crate::compare::context::Context;
use crate::compare::output::{OutputArgs, folder_of_results};
use crate::compare::run::{self, Asked};
use crate::compare::saved::{claims_of, diffs, reproduced};
use crate::exit::{self, Failure};
use crate::width::width;
use crate::{Cli, Command};

/// Run the plan of a saved result again, and say of each of its claims whether it holds here.
///
/// A claim holds, fails, or cannot be decided here, with the reason. Exit codes: those of `weir compare`, and 4 if a
/// claim failed.
#[derive(Debug, Args)]
pub struct ReproduceArgs {
    /// A document that `weir compare` wrote, its report, or its folder.
    file: PathBuf,

    /// Also run the programs that the result names (--peer). They run with your rights: if the result is a stranger's,
    /// read its command first.
    #[arg(long)]
    run_peers: bool,

    #[command(flatten)]
    output: OutputArgs,
}

/// Runs `weir reproduce`.
pub fn reproduce(args: &ReproduceArgs) -> ExitCode {
    let asked =
        Asked { name: "weir reproduce", kind: "reproduced", output: &args.output, dry_run: false };
    run::run(&asked, crate::arguments(), None, |context| {
        let saved = Saved::load(&args.file).map_err(Failure::usage)?;
        let claims = claims_of(&saved)?;
        let command = saved.command();
        let cli = Cli::try_parse_from(&command).map_err(|error| {
            let first = error.to_string().lines().next().unwrap_or_default().to_owned();
            Failure::failed(format!(
                "{}: this weir does not know the command that made it ({}): {first}",
                saved.path.display(),
                command.join(" ")
            ))
        })?;
        let Command::Compare(compare) = cli.command else {
            return Err(Failure::failed(format!(
                "{}: it was not made by `weir compare`, but by {}",
                saved.path.display(),
                command.join(" ")
            )));
        };
        if compare.has_peers() && !args.run_peers {
            return Err(Failure::usage(format!(
                "{} names programs to run; read its command, and add --run-peers if they may: {}",
                saved.path.display(),
                crate::harmless(&crate::shell_words(&command))
            )));
        }
        say!("running again: {}", crate::harmless(&crate::shell_words(&command)));
        let context = Context { command, ..context.clone() };
        Ok(reproduced(&saved, &claims, compare.compare(&context)?))
    })
}

/// Compare two saved results, their machines first.
///
/// The runs of two results are not interleaved, so every difference includes what changed on the machine. With three
/// rows or more, a change that the rows of a load have in common is stated once, and each row is judged by its own
/// change beyond that. Exit codes: 0 success; 1 nothing could be judged (no row in common, or too few rounds), or what
/// was found cannot be written; 2 a file cannot be read, or holds no results; 4 a figure is worse beyond the noise, or
/// all of a load together are.
#[derive(Debug, Args)]
pub struct DiffArgs {
    /// The result before: a document, or its folder.
    before: PathBuf,
    /// The result after.
    after: PathBuf,
    /// One JSON document instead of the tables.
    #[arg(short = 'J', long)]
    json: bool,
}

/// Runs `weir diff`.
pub fn diff(args: &DiffArgs) -> ExitCode {
    ended("weir diff", attempt_diff(args))
}

fn attempt_diff(args: &DiffArgs) -> Result<u8, Failure> {
    let load = |path: &Path| Saved::load(path).map_err(Failure::usage);
    let (before, after) = (load(&args.before)?, load(&args.after)?);
    let diffs = diffs(&before, &after.parts());
    if diffs.is_empty() {
        return Err(Failure::usage("the results are of different kinds: nothing can be compared"));
    }
    let text = match args.json {
        true => format!("{:#}\n", json!({ "schema_version": 1, "kind": "diff", "diffs": diffs })),
        false => {
            let texts: Vec<String> = diffs.iter().map(|diff| diff.text(width())).collect();
            crate::harmless(&texts.join("\n"))
        }
    };
    crate::print_report(&text)?;
    Ok(match () {
        () if diffs.iter().any(Diff::has_regressed) => exit::REGRESSION,
        () if diffs.iter().all(|diff| diff.why_not_judged().is_some()) => exit::FAILED,
        () => exit::OK,
    })
}

/// List saved results, the newest first.
///
/// Exit codes: 0 success, also if nothing is kept yet; 1 the list cannot be written; 2 wrong usage, or a folder that
/// cannot be read.
#[derive(Debug, Args)]
pub struct HistoryArgs {
    /// The folder in which results are kept [default: WEIR_RESULTS, or weir-results].
    #[arg(long, value_name = "FOLDER")]
    results: Option<PathBuf>,
    /// One JSON document instead of the table.
    #[arg(short = 'J', long)]
    json: bool,
}

/// Runs `weir history`.
pub fn history(args: &HistoryArgs) -> ExitCode {
    ended("weir history", attempt_history(args))
}

fn attempt_history(args: &HistoryArgs) -> Result<u8, Failure> {
    let base = folder_of_results(args.results.as_deref());
    let entries = match std::fs::read_dir(&base) {
        Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
        // Until something is kept there is none, unless somebody names it.
        Err(error) if error.kind() == io::ErrorKind::NotFound && args.results.is_none() => vec![],
        Err(error) => {
            let why = match error.kind() {
                io::ErrorKind::NotFound => "there is no such folder".into(),
                io::ErrorKind::NotADirectory => "it is not a folder".into(),
                _ => error.to_string(),
            };
            return Err(Failure::usage(format!(
                "cannot read {}: {why}; name the folder in which results are kept, or leave --results out",
                base.display()
            )));
        }
    };
    // An empty one was left by a run that was killed.
    let is_empty = |path: &Path| std::fs::read_dir(path).is_ok_and(|mut all| all.next().is_none());
    let mut folders: Vec<PathBuf> =
        entries.into_iter().filter(|path| path.is_dir() && !is_empty(path)).collect();
    // Their names begin with when they were made.
    folders.sort_by(|a, b| b.cmp(a));
    // One document at a time: hundreds of them do not fit into memory.
    let loaded = folders.into_iter().map(|path| {
        let saved = Saved::load(&path).map_err(|error| error.to_string());
        (path, saved)
    });
    let text = match args.json {
        true => {
            let all: Vec<Value> = loaded.map(|(path, saved)| entry(&path, &saved)).collect();
            format!("{:#}\n", json!({ "schema_version": 1, "kind": "history", "results": all }))
        }
        false => {
            let found = |(path, saved): (PathBuf, Result<Saved, String>)| {
                (path, saved.map_or_else(|error| vec![error], |saved| headlines(&saved)))
            };
            let all: Vec<(PathBuf, Vec<String>)> = loaded.map(found).collect();
            match all.is_empty() {
                true => format!("no results in {}\n", base.display()),
                false => crate::harmless(&listed(&all)),
            }
        }
    };
    crate::print_report(&text)?;
    Ok(exit::OK)
}

fn entry(path: &Path, saved: &Result<Saved, String>) -> Value {
    match saved {
        Ok(saved) => json!({
            "path": path.to_string_lossy(),
            "started_at": saved.document["started_at"],
            "kind": saved.document["kind"],
            "command": saved.command(),
            "exit_code": saved.document["exit_code"],
            "headlines": headlines(saved),
            "error": null,
        }),
        Err(error) => json!({ "path": path.to_string_lossy(), "error": error }),
    }
}

fn headlines(saved: &Saved) -> Vec<String> {
    let headline = |part: &weir_lab::saved::Part| {
        part.headline().map(|headline| format!("{}: {headline}", part.kind()))
    };
    saved.parts().iter().filter_map(headline).collect()
}

fn listed(all: &[(PathBuf, Vec<String>)]) -> String {
    let width = width();
    let names = || all.iter().map(|(path, _)| path.display().to_string());
    let left = width.saturating_sub(names().map(|name| chars(&name)).max().unwrap_or(0) + 4);
    let cut = |line: &String, most: usize| match chars(line) > most {
        true => line.chars().take(most.saturating_sub(1)).collect::<String>() + "…",
        false => line.clone(),
    };
    if left < LEAST_FOUND {
        // What is to be copied stays whole, on a line of its own.
        let entry = |(name, found): (String, &Vec<String>)| {
            let found = found.iter().map(|line| format!("  {}\n", cut(line, width.max(3) - 2)));
            format!("{name}\n{}", found.collect::<String>())
        };
        return names().zip(all.iter().map(|(_, found)| found)).map(entry).collect();
    }
    let mut table = table_of_width(width);
    table.set_header(["result", "what was found"]);
    for (name, (_, found)) in names().zip(all) {
        let found: Vec<String> = found.iter().map(|line| cut(line, left)).collect();
        table.add_row([name, found.join("\n")]);
    }
    figures(table, &[1]) + "\n"
}

/// Fewest characters of what was found that are worth a column.
const LEAST_FOUND: usize = 60;

fn ended(name: &str, result: Result<u8, Failure>) -> ExitCode {
    result.map(ExitCode::from).unwrap_or_else(|failed| {
        say!("{name}: {}", failed.message);
        ExitCode::from(failed.code)
    })
}
